// Owns the proof of the pool's key, the keys of a connection, and its records: a length of 4 bytes, which is
// authenticated too, the encrypted type and body, and a tag.
#include "tasks/link.h"

#include <assert.h>
#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>
#include <sys/random.h>

#include "base/siphash.h"

enum { PROOF = 32, MAGIC = 4, LENGTH = 4, HELLO = MAGIC + LINK_NONCE_BYTES, ANSWER = LINK_NONCE_BYTES + PROOF };
static const char magic[MAGIC + 1] = "aqT1";

// Of both sides' numbers; the label tells sides and purposes apart, so that no answer can be used as another.
static void derive(const struct tasks_link *l, const char *label, uint8_t out[static PROOF]) {
    uint8_t text[16 + 2 * LINK_NONCE_BYTES] = {0};
    unsigned n = PROOF;
    memcpy(text, label, strlen(label));
    memcpy(text + 16, l->server ? l->other : l->nonce, LINK_NONCE_BYTES);
    memcpy(text + 16 + LINK_NONCE_BYTES, l->server ? l->nonce : l->other, LINK_NONCE_BYTES);
    HMAC(EVP_sha256(), l->key, LINK_KEY_BYTES, text, sizeof text, out, &n);
}

int tasks_link_init(struct tasks_link *l, bool server, const uint8_t key[static LINK_KEY_BYTES]) {
    *l = (struct tasks_link){.server = server};
    memcpy(l->key, key, sizeof l->key);
    if (getrandom(l->nonce, sizeof l->nonce, 0) != sizeof l->nonce)
        return -EIO;
    if (!server) {
        buf_add(&l->out, magic, MAGIC);
        buf_add(&l->out, l->nonce, sizeof l->nonce);
    }
    return 0;
}

void tasks_link_done(struct tasks_link *l) {
    EVP_CIPHER_CTX_free(l->sealer);
    EVP_CIPHER_CTX_free(l->opener);
    buf_done(&l->in);
    buf_done(&l->out);
    buf_done(&l->plain);
    OPENSSL_cleanse(l, sizeof *l);
}

static EVP_CIPHER_CTX *cipher(const struct tasks_link *l, const char *label, bool seal) {
    uint8_t key[PROOF];
    EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
    derive(l, label, key);
    if (c && EVP_CipherInit_ex(c, EVP_aes_256_gcm(), NULL, key, NULL, seal) != 1) {
        EVP_CIPHER_CTX_free(c);
        c = NULL;
    }
    OPENSSL_cleanse(key, sizeof key);
    return c;
}

static int begin(struct tasks_link *l) {
    l->sealer = cipher(l, l->server ? "server sends" : "client sends", true);
    l->opener = cipher(l, l->server ? "client sends" : "server sends", false);
    l->open = true;
    return l->sealer && l->opener ? 1 : -ENOMEM;
}

// 1: one more step is done; 0: more has to come.
static int prove(struct tasks_link *l) {
    uint8_t proof[PROOF];
    if (l->server && !l->greeted) {
        if (l->in.len < HELLO)
            return 0;
        if (memcmp(l->in.data, magic, MAGIC) != 0)
            return -EPROTO;
        memcpy(l->other, l->in.data + MAGIC, LINK_NONCE_BYTES);
        buf_drop(&l->in, HELLO);
        derive(l, "server", proof);
        buf_add(&l->out, l->nonce, LINK_NONCE_BYTES);
        buf_add(&l->out, proof, PROOF);
        l->greeted = true;
        return 1;
    }
    size_t need = l->server ? PROOF : ANSWER;
    if (l->in.len < need)
        return 0;
    if (!l->server)
        memcpy(l->other, l->in.data, LINK_NONCE_BYTES);
    derive(l, l->server ? "client" : "server", proof);
    bool right = CRYPTO_memcmp(proof, l->in.data + need - PROOF, PROOF) == 0;
    buf_drop(&l->in, need);
    if (!right)
        return -EPERM;
    if (!l->server) {
        derive(l, "client", proof);
        buf_add(&l->out, proof, PROOF);
    }
    return begin(l);
}

static void nonce_of(uint64_t number, uint8_t out[static 12]) {
    memset(out, 0, 12);
    memcpy(out, &number, sizeof number);
}

void tasks_link_send(struct tasks_link *l, enum tasks_link_frame type, const void *head, size_t head_len,
                     const void *body,
               size_t body_len) {
    uint8_t nonce[12], kind = (uint8_t)type;
    uint32_t len = (uint32_t)(1 + head_len + body_len);
    int n;
    assert(1 + head_len + body_len <= LINK_RECORD_MAX);
    if (!l->open)
        return;
    nonce_of(l->sealed++, nonce);
    uint8_t *to = (uint8_t *)buf_reserve(&l->out, LENGTH + len + LINK_TAG_BYTES);
    memcpy(to, &len, LENGTH);
    uint8_t *at = to + LENGTH;
    bool good = EVP_EncryptInit_ex(l->sealer, NULL, NULL, NULL, nonce) == 1 &&
                EVP_EncryptUpdate(l->sealer, NULL, &n, to, LENGTH) == 1 &&
                EVP_EncryptUpdate(l->sealer, at, &n, &kind, 1) == 1 &&
                (!head_len || EVP_EncryptUpdate(l->sealer, at + 1, &n, head, (int)head_len) == 1) &&
                (!body_len || EVP_EncryptUpdate(l->sealer, at + 1 + head_len, &n, body, (int)body_len) == 1) &&
                EVP_EncryptFinal_ex(l->sealer, at + len, &n) == 1 &&
                EVP_CIPHER_CTX_ctrl(l->sealer, EVP_CTRL_GCM_GET_TAG, LINK_TAG_BYTES, at + len) == 1;
    assert(good);  // with a key and memory that are there it cannot fail
    l->out.len += LENGTH + len + LINK_TAG_BYTES;
}

int tasks_link_next(struct tasks_link *l, enum tasks_link_frame *type, const char **body, size_t *len) {
    uint8_t nonce[12];
    uint32_t n;
    int done;
    while (!l->open) {
        int r = prove(l);
        if (r <= 0)
            return r;
    }
    size_t there = l->in.len - l->at;
    if (there >= LENGTH)
        memcpy(&n, l->in.data + l->at, LENGTH);
    if (there >= LENGTH && (!n || n > LINK_RECORD_MAX))
        return -EPROTO;
    if (there < LENGTH || there < LENGTH + n + LINK_TAG_BYTES) {
        buf_drop(&l->in, l->at);
        l->at = 0;
        return 0;
    }
    uint8_t *at = (uint8_t *)l->in.data + l->at;
    nonce_of(l->opened++, nonce);
    buf_clear(&l->plain);
    uint8_t *to = (uint8_t *)buf_reserve(&l->plain, n + 1);
    bool good = EVP_DecryptInit_ex(l->opener, NULL, NULL, NULL, nonce) == 1 &&
                EVP_DecryptUpdate(l->opener, NULL, &done, at, LENGTH) == 1 &&
                EVP_DecryptUpdate(l->opener, to, &done, at + LENGTH, (int)n) == 1 &&
                EVP_CIPHER_CTX_ctrl(l->opener, EVP_CTRL_GCM_SET_TAG, LINK_TAG_BYTES, at + LENGTH + n) == 1 &&
                EVP_DecryptFinal_ex(l->opener, to + n, &done) == 1;
    if (!good)
        return -EBADMSG;
    l->at += LENGTH + n + LINK_TAG_BYTES;
    l->plain.len = n;
    to[n] = 0;
    *type = to[0];
    *body = (const char *)to + 1;
    *len = n - 1;
    return *type && *type < LINK_FRAME_KINDS ? 1 : -EPROTO;
}

uint16_t tasks_link_port(const uint8_t key[static LINK_KEY_BYTES], uint32_t which) {
    enum { FIRST = 10000, COUNT = 22000 };  // below what systems choose themselves
    return (uint16_t)(FIRST + siphash(key, &which, sizeof which) % COUNT);
}

int tasks_link_key(const char *hex, uint8_t out[static LINK_KEY_BYTES]) {
    if (!hex || strlen(hex) != 2 * LINK_KEY_BYTES)
        return -EINVAL;
    for (size_t i = 0; i < 2 * LINK_KEY_BYTES; i++) {
        const char digits[] = "0123456789abcdef", *d = strchr(digits, hex[i]);
        if (!d)
            return -EINVAL;
        out[i / 2] = (uint8_t)(out[i / 2] << 4 | (d - digits));
    }
    return 0;
}
