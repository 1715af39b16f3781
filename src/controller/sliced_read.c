// Owns the questions that are answered in slices, and whose turn it is.
#include "sliced_read.h"

#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "base/clock.h"
#include "base/text.h"

enum {
    CLOCK_ROWS = 16,                // between two looks at the clock
    BACKLOG_BYTES = 1 << 20,        // unsent; then it waits for its reader
    BACKLOG_MANY_BYTES = 64 << 10,  // the same when there are more questions than
    READS_FEW = 32,
};

struct read_user {
    char *name;
    uint32_t reads;
    uint64_t served;  // the last slice of one of them
};

static void on_idle(uv_idle_t *h) {
}

void controller_reads_wake(struct controller *c) {
    if (c->reads.list.len)
        uv_idle_start(&c->reads.idle, on_idle);
}

static struct read_user *user_of(struct controller *c, const char *name) {
    struct read_user *u = strmap_get(&c->reads.users, name);
    if (u)
        return u;
    u = xcalloc(1, sizeof *u);
    u->name = xstrdup(name);
    u->served = c->reads.slices;  // behind those who wait already
    strmap_put(&c->reads.users, u->name, u);
    return u;
}

static void leave(struct controller *c, struct sliced_read *r) {
    struct read_user *u = r->user;
    if (--u->reads == 0) {
        strmap_remove(&c->reads.users, u->name);
        free(u->name);
        free(u);
    }
    r->free(r);
}

static bool is_ready(const struct sliced_read *r) {
    return !r->committing && (r->gone || (!r->waits && (!r->has_news || r->has_news(r))));
}

// Of the user who was served longest ago the question that was.
static bool is_before(const struct sliced_read *a, const struct sliced_read *b) {
    return a->user == b->user ? a->served < b->served : a->user->served < b->user->served;
}

static uint32_t next_ready(const struct controller *c) {
    uint32_t best = UINT32_MAX;
    for (uint32_t i = 0; i < c->reads.list.len; i++)
        if (is_ready(c->reads.list.at[i]) &&
            (best == UINT32_MAX || is_before(c->reads.list.at[i], c->reads.list.at[best])))
            best = i;
    return best;
}

// Ends the request of a reader who has left.
static void dismiss(struct sliced_read *r) {
    if (r->stream_type)
        net_reply_stream_end(r->req);
    else
        api_error(r->req, 503, "EAGAIN", "nobody waits for the answer any more");
}

bool controller_reads_turn(struct controller *c) {
    struct reads *reads = &c->reads;
    reads->until_us = clock_mono_us() + READ_SLICE_US;
    reads->rows = 0;
    bool worked = false;
    while (reads->rows < READ_SLICE_ROWS && (!worked || clock_mono_us() < reads->until_us)) {
        uint32_t at = next_ready(c);
        if (at == UINT32_MAX) {
            uv_idle_stop(&reads->idle);
            break;
        }
        struct sliced_read *r = reads->list.at[at];
        r->served = r->user->served = ++reads->slices;
        worked = true;
        if (r->gone)
            dismiss(r);
        if (r->gone || r->run(r)) {
            vec_remove_swap(&reads->list, at);
            leave(c, r);
        }
    }
    if (reads->rows > reads->rows_max)
        reads->rows_max = reads->rows;
    return worked;
}

bool sliced_read_over(struct sliced_read *r, uint32_t rows) {
    struct reads *reads = &r->controller->reads;
    uint32_t before = reads->rows;
    reads->rows += rows;
    return reads->rows >= READ_SLICE_ROWS ||
           ((r->slow_rows || before / CLOCK_ROWS != reads->rows / CLOCK_ROWS) &&
            clock_mono_us() >= reads->until_us);
}

static void on_committed(void *arg) {
    struct sliced_read *r = arg;
    r->committing = false;
    controller_reads_wake(r->controller);
}

bool sliced_read_await_commit(struct sliced_read *r) {
    struct commit_pipeline *p = r->controller->pipeline;
    if (pipeline_degraded(p, NULL, 0) || !pipeline_has_endings(p))
        return false;
    r->committing = true;
    pipeline_when_committed(p, on_committed, r);
    return true;
}

void sliced_read_send(struct sliced_read *r, struct buf *out) {
    if (!out->len)
        return;
    ssize_t unsent = net_reply_stream_write(r->req, out->data, out->len);
    r->gone |= unsent < 0;
    r->waits = unsent > (r->controller->reads.list.len > READS_FEW ? BACKLOG_MANY_BYTES : BACKLOG_BYTES);
    buf_clear(out);
}

static void on_close(struct net_request *req, void *user) {
    struct sliced_read *r = user;
    r->gone = true;
    controller_reads_wake(r->controller);
}

static void on_drain(struct net_request *req, void *user) {
    struct sliced_read *r = user;
    r->waits = false;
    controller_reads_wake(r->controller);
}

static uint32_t alike(const struct sliced_read *r) {
    const struct reads *reads = &r->controller->reads;
    uint32_t n = 0;
    for (uint32_t i = 0; i < reads->list.len; i++) {
        const struct sliced_read *other = reads->list.at[i];
        n += other->user == r->user && other->run == r->run && other->has_news == r->has_news;
    }
    return n;
}

void sliced_read_begin(struct sliced_read *r, struct api_call *call) {
    struct controller *c = r->controller = call->controller;
    r->req = call->req;
    r->user = user_of(c, call->actor.user);
    r->user->reads++;
    if (c->reads.list.len >= READS_MAX || (!call->actor.admin && alike(r) >= READS_USER_MAX)) {
        api_error(call->req, 429, "EAGAIN",
                  "too many long answers are being written; read those, or ask again in a moment");
        leave(c, r);
        return;
    }
    if (r->stream_type)
        net_reply_stream_start(call->req, 200, r->stream_type);
    net_request_watch(call->req, on_close, on_drain, r);
    vec_push(&c->reads.list, r);
    controller_reads_wake(c);
}

void controller_reads_init(struct controller *c) {
    uv_idle_init(&c->loop, &c->reads.idle);
}

void controller_reads_done(struct controller *c) {
    while (c->reads.list.len)
        leave(c, c->reads.list.at[--c->reads.list.len]);
    vec_done(&c->reads.list);
    strmap_done(&c->reads.users);
}
