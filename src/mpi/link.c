// Owns the frames between helpers and the proof of the key. The proof is a challenge on both sides, so that neither the
// key nor anything that can be used again is sent; what follows is as open as the program's own MPI messages.
#include "mpi/link.h"

#include <errno.h>
#include <string.h>

#include "base/siphash.h"

enum { HEAD = 5 };

void link_init(struct mpi_link *l, bool hub, uint32_t node, const uint8_t key[static MPI_KEY_BYTES],
               const uint8_t nonce[static LINK_NONCE_BYTES]) {
    *l = (struct mpi_link){.hub = hub, .node = node};
    memcpy(l->key, key, sizeof l->key);
    memcpy(l->nonce, nonce, sizeof l->nonce);
    if (hub)
        return;
    char hello[sizeof node + LINK_NONCE_BYTES];
    memcpy(hello, &node, sizeof node);
    memcpy(hello + sizeof node, nonce, LINK_NONCE_BYTES);
    uint32_t n = sizeof hello;
    buf_add(&l->out, &n, sizeof n);
    buf_addc(&l->out, LINK_HELLO);
    buf_add(&l->out, hello, sizeof hello);
}

void link_done(struct mpi_link *l) {
    buf_done(&l->in);
    buf_done(&l->out);
    buf_done(&l->held);
    explicit_bzero(l->key, sizeof l->key);
}

static void add_frame(struct buf *b, enum link_frame type, const void *data, size_t len) {
    uint32_t n = (uint32_t)len;
    buf_add(b, &n, sizeof n);
    buf_addc(b, (char)type);
    buf_add(b, data, len);
}

void link_send(struct mpi_link *l, enum link_frame type, const void *data, size_t len) {
    add_frame(l->open ? &l->out : &l->held, type, data, len);
}

// The side is in it, so that an answer cannot be sent back as a question.
static uint64_t tag_of(const struct mpi_link *l, char side, const uint8_t *first, const uint8_t *second) {
    uint8_t text[1 + sizeof l->node + 2 * LINK_NONCE_BYTES];
    text[0] = (uint8_t)side;
    memcpy(text + 1, &l->node, sizeof l->node);
    memcpy(text + 1 + sizeof l->node, first, LINK_NONCE_BYTES);
    memcpy(text + 1 + sizeof l->node + LINK_NONCE_BYTES, second, LINK_NONCE_BYTES);
    return siphash(l->key, text, sizeof text);
}

static void opened(struct mpi_link *l) {
    l->open = true;
    buf_add(&l->out, l->held.data, l->held.len);
    buf_done(&l->held);
}

// Frames until both sides are known.
static int prove(struct mpi_link *l, enum link_frame type, const char *data, size_t len) {
    uint64_t tag;
    if (l->hub && type == LINK_HELLO && len == sizeof l->node + LINK_NONCE_BYTES) {
        char answer[LINK_NONCE_BYTES + sizeof tag];
        memcpy(&l->node, data, sizeof l->node);
        memcpy(l->other, data + sizeof l->node, LINK_NONCE_BYTES);
        tag = tag_of(l, 'h', l->other, l->nonce);
        memcpy(answer, l->nonce, LINK_NONCE_BYTES);
        memcpy(answer + LINK_NONCE_BYTES, &tag, sizeof tag);
        add_frame(&l->out, LINK_CHALLENGE, answer, sizeof answer);
        return 0;
    }
    if (!l->hub && type == LINK_CHALLENGE && len == LINK_NONCE_BYTES + sizeof tag) {
        memcpy(l->other, data, LINK_NONCE_BYTES);
        memcpy(&tag, data + LINK_NONCE_BYTES, sizeof tag);
        if (tag != tag_of(l, 'h', l->nonce, l->other))
            return -EPERM;
        tag = tag_of(l, 'n', l->other, l->nonce);
        add_frame(&l->out, LINK_PROOF, &tag, sizeof tag);
        opened(l);
        return 0;
    }
    if (l->hub && type == LINK_PROOF && len == sizeof tag) {
        memcpy(&tag, data, sizeof tag);
        if (tag != tag_of(l, 'n', l->nonce, l->other))
            return -EPERM;
        opened(l);
        return 0;
    }
    return -EPROTO;
}

int link_data(struct mpi_link *l, const void *data, size_t len, link_fn *fn, void *ctx) {
    buf_add(&l->in, data, len);
    size_t at = 0;
    int rc = 0;
    while (rc == 0 && l->in.len - at >= HEAD) {
        uint32_t n;
        memcpy(&n, l->in.data + at, sizeof n);
        uint8_t type = (uint8_t)l->in.data[at + sizeof n];
        if (n > (l->open ? LINK_FRAME_MAX : LINK_PROOF_MAX) || !type || type >= LINK_FRAMES)
            return -EPROTO;
        if (l->in.len - at - HEAD < n)
            break;
        const char *body = l->in.data + at + HEAD;
        at += HEAD + n;
        bool was_open = l->open;
        if (!was_open)
            rc = prove(l, type, body, n);
        else
            rc = type <= LINK_PROOF ? -EPROTO : fn(ctx, l, type, body, n);
        if (l->open && !was_open)
            break;  // whoever reads it learns first who the other side is
    }
    if (at)
        buf_drop(&l->in, at);
    return rc;
}
