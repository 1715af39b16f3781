// Owns what the helpers of a step's nodes exchange: fences of PMI, collectives of PMIx, questions for a rank's values.
// The first node's helper gathers and hands out.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "helper.h"

// --- fences of PMI ---

static void fence_over(struct mpi_helper *h, const void *data, size_t len) {
    if (!pmi_fence_done(h->world, data, len))
        helper_abort(h, 0, 0, "the nodes of the step do not agree on a fence of PMI");
}

static void fence_from(struct mpi_helper *h, uint32_t node, const void *data, size_t len) {
    if (h->fence_has[node])
        return;
    h->fence_has[node] = true;
    buf_add(&h->fence[node], data, len);
    if (++h->fence_got < h->o.nodes)
        return;
    cleanup_buf struct buf all = {0};
    for (uint32_t i = 0; i < h->o.nodes; i++) {
        buf_add(&all, h->fence[i].data, h->fence[i].len);
        buf_done(&h->fence[i]);
        h->fence_has[i] = false;
    }
    h->fence_got = 0;
    for (uint32_t i = 1; i < h->o.nodes; i++)
        helper_send(h, i, LINK_FENCE_DONE, all.data, all.len);
    fence_over(h, all.data, all.len);
}

void exchange_fence(void *ctx, const void *data, size_t len) {
    struct mpi_helper *h = ctx;
    if (h->o.nodes == 1)
        fence_over(h, data, len);
    else if (helper_is_hub(h))
        fence_from(h, 0, data, len);
    else
        helper_send(h, 0, LINK_FENCE, data, len);
}

// --- collectives of PMIx ---

static void collected(struct mpi_helper *h, const char *signature, const void *data, size_t len) {
    for (uint32_t i = 0; i < h->waiting.len; i++) {
        struct mpi_waiting w = h->waiting.at[i];
        if (!streq(w.signature, signature))
            continue;
        vec_remove(&h->waiting, i);
        pmix_server_collected(h->server, w.token, data, len);
        free(w.signature);
        return;
    }
}

static void collective_over(struct mpi_helper *h, uint32_t index) {
    struct collective c = h->collectives.at[index];
    cleanup_buf struct buf all = {0};
    uint32_t len = (uint32_t)strlen(c.signature);
    vec_remove(&h->collectives, index);
    buf_add(&all, &len, sizeof len);
    buf_add(&all, c.signature, len);
    for (uint32_t i = 0; i < c.count; i++) {
        buf_add(&all, c.data[i].data, c.data[i].len);
        buf_done(&c.data[i]);
    }
    for (uint32_t i = 0; i < c.count; i++)
        if (c.nodes[i])
            helper_send(h, c.nodes[i], LINK_COLLECT_DONE, all.data, all.len);
        else
            collected(h, c.signature, all.data + sizeof len + len, all.len - sizeof len - len);
    free(c.signature);
    free(c.nodes);
    free(c.data);
    free(c.has);
}

static void collect_from(struct mpi_helper *h, uint32_t node, const char *signature, const uint32_t *nodes,
                         uint32_t count, const void *data, size_t len) {
    uint32_t at = 0, place = 0;
    while (at < h->collectives.len && !streq(h->collectives.at[at].signature, signature))
        at++;
    if (at == h->collectives.len) {
        struct collective c = {.signature = xstrdup(signature),
                               .nodes = xmemdup(nodes, count * sizeof *nodes),
                               .count = count,
                               .data = xcalloc(count, sizeof(struct buf)),
                               .has = xcalloc(count, sizeof(bool))};
        vec_push(&h->collectives, c);
    }
    struct collective *c = &h->collectives.at[at];
    while (place < c->count && c->nodes[place] != node)
        place++;
    if (place == c->count || c->has[place])
        return;
    c->has[place] = true;
    buf_add(&c->data[place], data, len);
    if (++c->got == c->count)
        collective_over(h, at);
}

void exchange_collect(void *ctx, const char *signature, const uint32_t *nodes, uint32_t count,
                       const void *data, size_t len, void *token) {
    struct mpi_helper *h = ctx;
    if (count == 1) {
        pmix_server_collected(h->server, token, data, len);
        return;
    }
    vec_push(&h->waiting, ((struct mpi_waiting){xstrdup(signature), token}));
    if (helper_is_hub(h)) {
        collect_from(h, 0, signature, nodes, count, data, len);
        return;
    }
    cleanup_buf struct buf b = {0};
    uint32_t n = (uint32_t)strlen(signature);
    buf_add(&b, &n, sizeof n);
    buf_add(&b, signature, n);
    buf_add(&b, &count, sizeof count);
    buf_add(&b, nodes, count * sizeof *nodes);
    buf_add(&b, data, len);
    helper_send(h, 0, LINK_COLLECT, b.data, b.len);
}

struct frame_reader {
    const char *at;
    size_t left;
    bool bad;
};

static const char *take(struct frame_reader *r, size_t n) {
    if (r->bad || r->left < n) {
        r->bad = true;
        return NULL;
    }
    const char *p = r->at;
    r->at += n;
    r->left -= n;
    return p;
}

static uint32_t take_u32(struct frame_reader *r) {
    uint32_t v = 0;
    const char *p = take(r, sizeof v);
    if (p)
        memcpy(&v, p, sizeof v);
    return v;
}

static int collect_frame(struct mpi_helper *h, uint32_t node, struct frame_reader *r) {
    cleanup_arena struct arena a = {0};
    uint32_t n = take_u32(r);
    const char *text = take(r, n);
    uint32_t count = take_u32(r);
    if (r->bad || !count || count > h->o.nodes)
        return -EPROTO;
    uint32_t *nodes = arena_alloc(&a, count * sizeof *nodes);
    for (uint32_t i = 0; i < count; i++)
        if ((nodes[i] = take_u32(r)) >= h->o.nodes)
            return -EPROTO;
    if (r->bad)
        return -EPROTO;
    collect_from(h, node, arena_strndup(&a, text, n), nodes, count, r->at, r->left);
    return 0;
}

static int collect_done_frame(struct mpi_helper *h, struct frame_reader *r) {
    cleanup_arena struct arena a = {0};
    uint32_t n = take_u32(r);
    const char *text = take(r, n);
    if (r->bad)
        return -EPROTO;
    collected(h, arena_strndup(&a, text, n), r->at, r->left);
    return 0;
}

// --- questions for the data of one rank ---

struct modex_question {
    uint32_t to, from, rank;
    int32_t status;
    uint64_t token;
};

static void send_question(struct mpi_helper *h, enum link_frame type, const struct modex_question *q,
                          const void *data, size_t len);

static void take_question(struct mpi_helper *h, enum link_frame type, const struct modex_question *q,
                          const void *data, size_t len) {
    if (q->to != h->node)
        send_question(h, type, q, data, len);
    else if (type == LINK_TOLD)
        pmix_server_told(h->server, (void *)(uintptr_t)q->token, q->status, data, len);
    else {
        struct modex_question *kept = xmemdup(q, sizeof *q);
        pmix_server_question(h->server, q->rank, (uint64_t)(uintptr_t)kept);
    }
}

static void send_question(struct mpi_helper *h, enum link_frame type, const struct modex_question *q,
                          const void *data, size_t len) {
    cleanup_buf struct buf b = {0};
    buf_add(&b, q, sizeof *q);
    buf_add(&b, data, len);
    helper_send(h, q->to, type, b.data, b.len);
}

void exchange_ask(void *ctx, uint32_t rank, void *token) {
    struct mpi_helper *h = ctx;
    struct modex_question q = {
        .to = h->o.places[rank], .from = h->node, .rank = rank, .token = (uint64_t)(uintptr_t)token};
    send_question(h, LINK_ASK, &q, NULL, 0);
}

void exchange_answer(void *ctx, uint64_t question, int32_t status, const void *data, size_t len) {
    struct mpi_helper *h = ctx;
    cleanup_free struct modex_question *asked = (struct modex_question *)(uintptr_t)question;
    struct modex_question q = {
        .to = asked->from, .from = h->node, .rank = asked->rank, .status = status, .token = asked->token};
    take_question(h, LINK_TOLD, &q, data, len);
}

static int question_frame(struct mpi_helper *h, enum link_frame type, struct frame_reader *r) {
    struct modex_question q;
    const char *p = take(r, sizeof q);
    if (!p || !h->server)
        return -EPROTO;
    memcpy(&q, p, sizeof q);
    if (q.to >= h->o.nodes || q.from >= h->o.nodes || q.rank >= h->o.size || (q.to != h->node && !helper_is_hub(h)))
        return -EPROTO;
    if (type == LINK_ASK && q.to == h->node && helper_task_of(h, q.rank) == UINT32_MAX)
        return -EPROTO;
    take_question(h, type, &q, r->at, r->left);
    return 0;
}

// --- frames ---

static int abort_frame(struct mpi_helper *h, struct frame_reader *r) {
    char text[MPI_TEXT_MAX], clean[MPI_TEXT_MAX];
    uint32_t rank = take_u32(r);
    int32_t code = (int32_t)take_u32(r);
    if (r->bad)
        return -EPROTO;
    snprintf(text, sizeof text, "%.*s", (int)(r->left < sizeof text ? r->left : sizeof text - 1), r->at);
    str_printable(text, clean, sizeof clean);
    if (helper_is_hub(h))
        helper_abort_others(h, rank, code, clean);
    helper_abort_here(h, rank, code, "");  // said where it happened
    return 0;
}

int exchange_frame(void *ctx, struct mpi_link *l, enum link_frame type, const char *data, size_t len) {
    struct mpi_helper *h = ctx;
    struct frame_reader r = {data, len, false};
    uint32_t node = helper_is_hub(h) ? l->node : 0;
    switch (type) {
    case LINK_FENCE:
        if (!helper_is_hub(h) || !h->world)
            return -EPROTO;
        fence_from(h, node, data, len);
        return 0;
    case LINK_FENCE_DONE:
        if (helper_is_hub(h) || !h->world)
            return -EPROTO;
        fence_over(h, data, len);
        return 0;
    case LINK_COLLECT: return helper_is_hub(h) && h->server ? collect_frame(h, node, &r) : -EPROTO;
    case LINK_COLLECT_DONE: return !helper_is_hub(h) && h->server ? collect_done_frame(h, &r) : -EPROTO;
    case LINK_ASK:
    case LINK_TOLD: return question_frame(h, type, &r);
    case LINK_ABORT: return abort_frame(h, &r);
    case LINK_BYE:
        if (len != 1)
            return -EPROTO;
        h->peers[node].joined = data[0] != 0;
        return 0;
    default: return -EPROTO;
    }
}
