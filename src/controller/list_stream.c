// Owns the lists that are being written. The loop calls back as long as one of them has something to
// write; each turn is one slice of one list. Between slices nothing of core or store is held: live jobs
// go on after the last id, finished ones after the last row, so a slow reader costs a small buffer.
#include "controller/list_stream.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"

enum phase { PHASE_LIVE, PHASE_COMMIT, PHASE_FINISHED, PHASE_END };

enum { CLOCK_EVERY = 16 };  // rows between looks at the clock

struct list_stream {
    struct listing l;
    struct net_request *req;
    enum phase phase;
    bool finished;          // those of history, too
    bool waits;             // for its reader
    bool committing;        // waits for a commit, and must stay until then
    bool gone;              // its reader has left
    uint64_t after;         // live: the last id
    struct store_query query;
    int64_t until_us;       // of this slice
    uint32_t seen;          // in this slice
    bool cut;               // the slice ended before the list did
    struct error error;
};

void list_stream_head(struct listing *l) {
    l->compact = l->lines = true;
    json_open(&l->w, '{');
    json_key(&l->w, "fields");
    listing_fields(l);
    json_kv_i64(&l->w, "now_ms", l->now);
    json_close(&l->w, '}');
    buf_addc(&l->out, '\n');
    l->w.need_comma = false;
}

void list_stream_tail(struct listing *l, const struct error *e) {
    json_open(&l->w, '{');
    json_kv_i64(&l->w, "rows", (int64_t)l->rows);
    if (e) {
        json_key(&l->w, "error");
        api_error_json(&l->w, e);
    }
    json_close(&l->w, '}');
    buf_addc(&l->out, '\n');
}

static bool slice_over(struct list_stream *s) {
    return ++s->seen % CLOCK_EVERY == 0 && clock_mono_us() >= s->until_us;
}

// A slice ends between rows, never inside one that folds elements of an array: what it is folded from
// may be gone when the next slice begins.
static bool next_live(void *ctx, const struct job_view *v) {
    struct list_stream *s = ctx;
    if (slice_over(s) && !listing_folding(&s->l, v)) {
        s->cut = true;
        return false;
    }
    s->after = v->id;
    return listing_live(&s->l, v);
}

static int next_finished(void *ctx, const struct store_history *row) {
    struct list_stream *s = ctx;
    s->query.resume = true;
    s->query.after_id = row->id;
    s->query.after_end_ms = row->end_ms;
    s->query.after_began_ms = store_history_began_ms(row);
    int r = listing_finished(&s->l, row);
    if (r == 0 && slice_over(s)) {
        s->cut = true;
        r = 1;
    }
    return r;
}

static void on_idle(uv_idle_t *h);

static void wake(struct controller *c) {
    uv_idle_start(&c->list_idle, on_idle);
}

static void committed(void *arg) {
    struct list_stream *s = arg;
    s->committing = false;
    wake(s->l.controller);
}

// A job that has ended is in history once that is committed: none falls between the two.
static void await_commit(struct list_stream *s) {
    s->phase = PHASE_FINISHED;
    if (shell_degraded(s->l.controller->shell, NULL, 0))
        return;
    s->committing = true;
    shell_when_committed(s->l.controller->shell, committed, s);
}

static void slice(struct list_stream *s) {
    struct controller *c = s->l.controller;
    s->until_us = clock_mono_us() + LIST_SLICE_US;
    s->seen = 0;
    s->cut = false;
    if (s->phase == PHASE_LIVE) {
        core_each_job_after(c->core, s->after, next_live, s);
        listing_fold_end(&s->l);
        if (!s->cut)
            s->phase = s->finished ? PHASE_COMMIT : PHASE_END;
    }
    if (s->phase == PHASE_COMMIT)
        await_commit(s);
    else if (s->phase == PHASE_FINISHED && !s->cut) {
        if (store_history(c->store, &s->query, next_finished, s, &s->error) < 0 || !s->cut)
            s->phase = PHASE_END;
    }
    if (s->l.limit && s->l.rows >= s->l.limit)
        s->phase = PHASE_END;
    if (s->phase == PHASE_END)
        list_stream_tail(&s->l, s->error.code ? &s->error : NULL);
}

static void stream_free(struct list_stream *s) {
    listing_done(&s->l);
    free(s);
}

static void on_close(struct net_request *req, void *user) {
    struct list_stream *s = user;
    s->gone = true;
    wake(s->l.controller);
}

static void on_drain(struct net_request *req, void *user) {
    struct list_stream *s = user;
    s->waits = false;
    wake(s->l.controller);
}

// Every wait for a reader costs two changes of process; many lists at once shall not cost much memory.
static ssize_t backlog_max(const struct controller *c) {
    return c->list_streams.len > LIST_STREAMS_FEW ? LIST_BACKLOG_MANY_BYTES : LIST_BACKLOG_BYTES;
}

// True when it is done with.
static bool go_on(struct list_stream *s) {
    if (!s->gone)
        slice(s);
    if (!s->gone && s->l.out.len) {
        ssize_t waiting = net_reply_stream_write(s->req, s->l.out.data, s->l.out.len);
        s->gone = waiting < 0;
        s->waits = waiting > backlog_max(s->l.controller);
        buf_clear(&s->l.out);
    }
    return (s->gone || s->phase == PHASE_END) && !s->committing;
}

static void on_idle(uv_idle_t *h) {
    struct controller *c = h->data;
    uint32_t n = c->list_streams.len;
    for (uint32_t tried = 0; tried < n; tried++) {
        uint32_t at = c->list_next++ % n;
        struct list_stream *s = c->list_streams.at[at];
        if (s->committing || (s->waits && !s->gone))
            continue;
        if (go_on(s)) {
            vec_remove_swap(&c->list_streams, at);
            net_reply_stream_end(s->req);
            stream_free(s);
        }
        return;
    }
    uv_idle_stop(h);
}

// One filter leads the way through history by its index; the others are applied row by row, so that a
// slice can end after any row.
static int note_end(void *ctx, const struct store_history *row) {
    *(int64_t *)ctx = row->end_ms;
    return 1;
}

// Everything there is: read as it lies there.
static struct store_query lead_through_all(const struct listing *l, struct store_query q) {
    int64_t oldest = INT64_MAX;
    store_history(l->controller->store, &(struct store_query){.order = STORE_BY_END, .limit = 1}, note_end,
                  &oldest, NULL);
    if (q.ended_from_ms <= oldest)
        q = (struct store_query){.order = STORE_BY_ID};
    return q;
}

static struct store_query lead(const struct listing *l, int64_t from_ms) {
    struct store_query q = {.order = STORE_ANY, .ended_from_ms = from_ms};
    if (l->began_before_ms && l->began_before_ms < l->now)
        q.began_before_ms = l->began_before_ms;
    else if (l->name)
        q.name = l->name;
    else if (l->user && !listing_several(l->user))
        q.user = l->user;
    else if (l->project && !listing_several(l->project))
        q.project = l->project;
    else if (l->states && !(l->states & (l->states - 1)))
        q.state_mask = l->states;
    else
        q = lead_through_all(l, q);
    return q;
}

static bool live_wanted(const struct listing *l) {
    for (int s = 0; s < JOB_STATE_COUNT; s++)
        if (!job_state_final((enum job_state)s) && (!l->states || l->states >> s & 1))
            return true;
    return false;
}

void list_stream_begin(struct api_call *call) {
    struct controller *c = call->controller;
    struct list_stream *s = xcalloc(1, sizeof *s);
    struct error e = {0};
    if (listing_init(&s->l, call, &e) < 0) {
        api_fail(call->req, &e);
        free(s);
        return;
    }
    bool all = api_query_i64(call, "all", 0), finished = api_query_i64(call, "finished", 0);
    s->req = call->req;
    s->finished = all || finished;
    s->phase = (finished && !all) || !live_wanted(&s->l) ? PHASE_COMMIT : PHASE_LIVE;
    if (!s->finished && s->phase == PHASE_COMMIT)
        s->phase = PHASE_END;
    s->query = lead(&s->l, api_query_i64(call, "from_ms", 0));
    list_stream_head(&s->l);
    net_reply_stream_start(call->req, 200, LIST_STREAM_TYPE);
    net_request_watch(call->req, on_close, on_drain, s);
    vec_push(&c->list_streams, s);
    wake(c);
}

void list_streams_init(struct controller *c) {
    uv_idle_init(&c->loop, &c->list_idle);
    c->list_idle.data = c;
}

void list_streams_done(struct controller *c) {
    for (uint32_t i = 0; i < c->list_streams.len; i++)
        stream_free(c->list_streams.at[i]);
    vec_done(&c->list_streams);
}
