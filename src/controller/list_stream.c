// Owns the lists that are being written. The loop calls back as long as one of them has something to
// write; each turn is one slice of one list. Between slices nothing of core or store is held: live jobs
// go on after the last id, finished ones after the last row, so a slow reader costs a small buffer.
#include "list_stream.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"

enum phase { PHASE_LIVE, PHASE_COMMIT, PHASE_FINISHED, PHASE_END };

enum { CLOCK_EVERY = 16 };  // rows between looks at the clock

struct id_range {
    uint64_t first, last;
};

struct list_stream {
    struct listing l;
    struct net_request *req;
    enum list_form form;
    enum phase phase;
    bool finished;          // those of history, too
    bool waits;             // for its reader
    bool committing;        // waits for a commit, and must stay until then
    bool gone;              // its reader has left
    uint64_t after;         // live: the last id
    VEC(struct id_range) told;  // live ones that were written: they may end meanwhile, and be in history
    struct store_query query;
    int64_t ended_from_ms, ended_before_ms;  // of a trace; 0: any
    int64_t until_us;       // of this slice
    uint32_t seen;          // in this slice
    bool cut;               // the slice ended before the list did
    struct error error;
};

void listing_stream_head(struct listing *l) {
    l->compact = l->lines = true;
    json_open(&l->w, '{');
    json_key(&l->w, "fields");
    listing_fields(l);
    json_kv_i64(&l->w, "now_ms", l->now);
    json_close(&l->w, '}');
    buf_addc(&l->out, '\n');
    l->w.need_comma = false;
}

void listing_stream_tail(struct listing *l, const struct error *e) {
    json_open(&l->w, '{');
    json_kv_i64(&l->w, "rows", (int64_t)l->rows);
    if (e) {
        cleanup_arena struct arena a = {0};
        json_key(&l->w, "error");
        schema_write_json(&answer_error_schema, api_error_answer(&a, e), &l->w);
    }
    json_close(&l->w, '}');
    buf_addc(&l->out, '\n');
}

static bool slice_over(struct list_stream *s) {
    // A filter with patterns may take long for a single row.
    return (++s->seen % CLOCK_EVERY == 0 || s->l.filter.where.count) && clock_mono_us() >= s->until_us;
}

static void note_told(struct list_stream *s, uint64_t id) {
    struct id_range *last = s->told.len ? &s->told.at[s->told.len - 1] : NULL;
    if (last && last->last + 1 == id)
        last->last = id;
    else
        vec_push(&s->told, ((struct id_range){id, id}));
}

static bool was_told(const struct list_stream *s, uint64_t id) {
    uint32_t from = 0, to = s->told.len;
    while (from < to) {
        uint32_t mid = (from + to) / 2;
        if (s->told.at[mid].last < id)
            from = mid + 1;
        else
            to = mid;
    }
    return from < s->told.len && s->told.at[from].first <= id;
}

// A slice may end inside a row that folds elements of an array; the row then keeps copies of what may be gone when the
// next slice begins.
static bool next_live(void *ctx, const struct job_view *v) {
    struct list_stream *s = ctx;
    if (slice_over(s)) {
        s->cut = true;
        return false;
    }
    s->after = v->id;
    bool more = listing_live(&s->l, v);
    if (s->finished && s->l.last_id == v->id)
        note_told(s, v->id);
    return more;
}

static int next_traced(struct list_stream *s, const struct store_history *row) {
    bool there = row->end_ms >= s->ended_from_ms && (!s->ended_before_ms || row->end_ms < s->ended_before_ms);
    return there ? api_trace_row(&s->l, row) : 0;
}

static int next_finished(void *ctx, const struct store_history *row) {
    struct list_stream *s = ctx;
    s->query.resume = true;
    s->query.after_id = row->id;
    s->query.after_end_ms = row->end_ms;
    s->query.after_began_ms = store_history_began_ms(row);
    int r = was_told(s, row->id) ? 0 : s->form == LIST_TRACE ? next_traced(s, row) : listing_finished(&s->l, row);
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
    if (pipeline_degraded(s->l.controller->pipeline, NULL, 0))
        return;
    s->committing = true;
    pipeline_when_committed(s->l.controller->pipeline, committed, s);
}

static void end(struct list_stream *s) {
    struct listing *l = &s->l;
    if (s->form == LIST_LINES) {
        listing_stream_tail(l, s->error.code ? &s->error : NULL);
    } else if (s->form == LIST_DOCUMENT) {
        json_close(&l->w, ']');
        json_kv_str(&l->w, "next", s->finished && l->limit && l->rows >= l->limit ? l->key : NULL);
        json_close(&l->w, '}');
        buf_addc(&l->out, '\n');
    }
}

static void slice(struct list_stream *s) {
    struct controller *c = s->l.controller;
    s->until_us = clock_mono_us() + LIST_SLICE_US;
    s->seen = 0;
    s->cut = false;
    if (s->phase == PHASE_LIVE) {
        core_each_job_after(c->core, s->after, next_live, s);
        if (s->cut)
            listing_pause(&s->l);
        else
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
        end(s);
}

static void stream_free(struct list_stream *s) {
    listing_done(&s->l);
    vec_done(&s->told);
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
            if (s->error.code && s->form != LIST_LINES)
                net_reply_stream_abort(s->req);
            else
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

// The one filter that history has an index for; false when there is none.
static bool lead_by(const struct listing *l, struct store_query *q) {
    if (l->name)
        q->name = l->name;
    else if (l->user && !listing_several(l->user))
        q->user = l->user;
    else if (l->project && !listing_several(l->project))
        q->project = l->project;
    else if (l->states && !(l->states & (l->states - 1)))
        q->state_mask = l->states;
    else
        return false;
    return true;
}

static struct store_query lead(const struct listing *l, int64_t from_ms) {
    struct store_query q = {.order = STORE_ANY, .ended_from_ms = from_ms};
    if (l->began_before_ms && l->began_before_ms < l->now)
        q.began_before_ms = l->began_before_ms;
    else if (!lead_by(l, &q))
        q = lead_through_all(l, q);
    return q;
}

// The newest first, from where the last page ended.
static int lead_page(const struct listing *l, struct api_call *call, struct store_query *out, struct error *e) {
    const struct query_jobs *asked = call->query;
    struct store_query q = {.order = STORE_BY_END,
                            .descending = true,
                            .ended_from_ms = asked->since_ms,
                            .ended_before_ms = asked->until_ms};
    const char *after = asked->after, *dot = after ? strchr(after, '.') : NULL;
    lead_by(l, &q);
    if (after && (!dot || parse_i64(arena_strndup(&call->arena, after, (size_t)(dot - after)), &q.after_end_ms) < 0 ||
                  parse_u64(dot + 1, &q.after_id) < 0))
        return error_set(e, EINVAL, "parameter \"after\": expected the \"next\" of the page before");
    q.resume = after != NULL;
    *out = q;
    return 0;
}

static bool live_wanted(const struct listing *l) {
    for (int s = 0; s < JOB_STATE_COUNT; s++)
        if (!job_state_final((enum job_state)s) && (!l->states || l->states >> s & 1))
            return true;
    return false;
}

static int begin_lines(struct list_stream *s, struct api_call *call, struct error *e) {
    int r = listing_init(&s->l, call, e);
    if (r < 0)
        return r;
    const struct query_jobs *q = call->query;
    s->finished = q->all || q->finished;
    s->phase = (q->finished && !q->all) || !live_wanted(&s->l) ? PHASE_COMMIT : PHASE_LIVE;
    if (!s->finished && s->phase == PHASE_COMMIT)
        s->phase = PHASE_END;
    s->query = lead(&s->l, q->from_ms);
    listing_stream_head(&s->l);
    return 0;
}

static int begin_document(struct list_stream *s, struct api_call *call, struct error *e) {
    struct listing *l = &s->l;
    int r = listing_init(l, call, e);
    if (r < 0)
        return r;
    s->finished = ((const struct query_jobs *)call->query)->finished;
    s->phase = s->finished ? PHASE_COMMIT : PHASE_LIVE;
    if (s->finished && !l->limit)
        l->limit = LIST_PAGE_ROWS;
    if ((r = lead_page(l, call, &s->query, e)) < 0) {
        listing_done(l);
        return r;
    }
    listing_document_head(l);
    return 0;
}

static void begin_trace(struct list_stream *s, struct api_call *call) {
    s->l = (struct listing){.controller = call->controller};
    s->finished = true;
    s->phase = PHASE_COMMIT;
    s->query = (struct store_query){.order = STORE_BY_ID};
    const struct query_trace *q = call->query;
    s->ended_from_ms = q->since_ms;
    s->ended_before_ms = q->until_ms;
    api_trace_head(&s->l);
}

void listing_document_head(struct listing *l) {
    json_open(&l->w, '{');
    if (l->compact) {
        json_key(&l->w, "fields");
        listing_fields(l);
    }
    json_open_key(&l->w, "jobs", '[');
}

void listing_stream_begin(struct api_call *call, enum list_form form) {
    static const char *const types[] = {LIST_STREAM_TYPE, "application/json", "text/csv; charset=utf-8"};
    struct controller *c = call->controller;
    struct list_stream *s = xcalloc(1, sizeof *s);
    struct error e = {0};
    int r = 0;
    s->req = call->req;
    s->form = form;
    if (form == LIST_TRACE)
        begin_trace(s, call);
    else
        r = form == LIST_LINES ? begin_lines(s, call, &e) : begin_document(s, call, &e);
    if (r < 0) {
        api_fail(call->req, &e);
        free(s);
        return;
    }
    net_reply_stream_start(call->req, 200, types[form]);
    net_request_watch(call->req, on_close, on_drain, s);
    vec_push(&c->list_streams, s);
    wake(c);
}

void listing_streams_init(struct controller *c) {
    uv_idle_init(&c->loop, &c->list_idle);
    c->list_idle.data = c;
}

void listing_streams_done(struct controller *c) {
    for (uint32_t i = 0; i < c->list_streams.len; i++)
        stream_free(c->list_streams.at[i]);
    vec_done(&c->list_streams);
}
