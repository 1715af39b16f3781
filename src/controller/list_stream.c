// Owns the lists that are being written: live jobs in the order of their ids, then those of history, or both by their
// names. Between slices nothing of core or store is held: live jobs go on after the last id, finished ones after the
// last row, so a slow reader costs a small buffer.
#include "list_stream.h"

#include <errno.h>
#include <string.h>

#include "base/text.h"
#include "list_names.h"
#include "sliced_read.h"

enum list_phase { PHASE_NAMES, PHASE_LIVE, PHASE_COMMIT, PHASE_FINISHED, PHASE_END };

struct list_stream {
    struct sliced_read read;
    struct listing l;
    enum list_form form;
    enum list_phase phase;
    struct list_names *names;  // NULL: all jobs that pass
    bool finished;             // those of history, too
    uint64_t after;            // live: the last id
    struct seen_ids told;      // live ones that were written
    struct store_query query;
    int64_t ended_from_ms, ended_before_ms;  // of a trace; 0: any
    bool cut;                                // the slice ended before the list did
    struct error error;
};

static void lines_head(struct listing *l) {
    l->compact = l->lines = true;
    json_open(&l->w, '{');
    json_key(&l->w, "fields");
    listing_fields(l);
    json_kv_i64(&l->w, "now_ms", l->now);
    json_close(&l->w, '}');
    buf_addc(&l->out, '\n');
    l->w.need_comma = false;
}

static void lines_tail(struct listing *l, const struct error *e) {
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
    return s->cut = sliced_read_over(&s->read, 1);
}

// A slice may end inside a row that folds elements of an array; the row then keeps copies of what may be gone when the
// next slice begins.
static bool next_live(void *ctx, const struct job_view *v) {
    struct list_stream *s = ctx;
    bool more = listing_live(&s->l, v);
    if ((s->cut = s->l.unfinished))
        return false;
    s->after = v->id;
    if (s->finished && s->l.last_id == v->id)
        seen_ids_add(&s->told, v->id);
    return more && !slice_over(s);
}

static int next_traced(struct list_stream *s, const struct store_history *row) {
    bool there = row->end_ms >= s->ended_from_ms && (!s->ended_before_ms || row->end_ms < s->ended_before_ms);
    return there ? api_trace_row(&s->l, row) : 0;
}

static int next_finished(void *ctx, const struct store_history *row) {
    struct list_stream *s = ctx;
    int r = seen_ids_have(&s->told, row->id) ? 0
            : s->form == LIST_TRACE          ? next_traced(s, row)
                                             : listing_finished(&s->l, row);
    if ((s->cut = s->l.unfinished))
        return 1;
    s->query.resume = true;
    s->query.after_id = row->id;
    s->query.after_end_ms = row->end_ms;
    s->query.after_began_ms = store_history_began_ms(row);
    return r == 0 && slice_over(s) ? 1 : r;
}

static void end(struct list_stream *s) {
    struct listing *l = &s->l;
    if (s->form == LIST_LINES) {
        lines_tail(l, s->error.code ? &s->error : NULL);
    } else if (s->form == LIST_DOCUMENT) {
        json_close(&l->w, ']');
        json_kv_str(&l->w, "next", s->finished && l->limit && l->rows >= l->limit ? l->key : NULL);
        json_close(&l->w, '}');
        buf_addc(&l->out, '\n');
    }
}

static void go_on(struct list_stream *s) {
    struct controller *c = s->l.controller;
    s->cut = false;
    if (s->phase == PHASE_NAMES && list_names_go_on(s->names))
        s->phase = PHASE_END;
    if (s->phase == PHASE_LIVE) {
        core_each_job_after(c->core, s->after, next_live, s);
        if (s->cut) {
            listing_pause(&s->l);
        } else {
            listing_fold_end(&s->l);
            s->phase = s->finished ? PHASE_COMMIT : PHASE_END;
        }
    } else if (s->phase == PHASE_COMMIT) {  // a job that has ended is in history once that is committed
        s->phase = PHASE_FINISHED;
        (void)sliced_read_await_commit(&s->read);
    } else if (s->phase == PHASE_FINISHED) {
        if (store_history(c->store, &s->query, next_finished, s, &s->error) < 0 || !s->cut)
            s->phase = PHASE_END;
    }
    if (s->l.limit && s->l.rows >= s->l.limit)
        s->phase = PHASE_END;
}

static bool run(struct sliced_read *r) {
    struct list_stream *s = (struct list_stream *)r;
    go_on(s);
    if (s->phase == PHASE_END && !r->committing)
        end(s);
    sliced_read_send(r, &s->l.out);
    if (s->phase != PHASE_END || r->committing)
        return false;
    if (s->error.code && s->form != LIST_LINES)
        net_reply_stream_abort(r->req);
    else
        net_reply_stream_end(r->req);
    return true;
}

static void stream_free(struct sliced_read *r) {
    struct list_stream *s = (struct list_stream *)r;
    listing_done(&s->l);
    seen_ids_done(&s->told);
    list_names_free(s->names);
    free(s);
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

static int begin_names(struct list_stream *s, const char *ids, struct error *e) {
    s->phase = PHASE_NAMES;
    s->names = list_names_new(ids, &s->l, &s->read, e);
    return s->names ? 0 : -e->code;
}

static int begin_lines(struct list_stream *s, struct api_call *call, struct error *e) {
    int r = listing_init(&s->l, call, e);
    if (r < 0)
        return r;
    const struct query_jobs *q = call->query;
    lines_head(&s->l);
    if (q->ids)
        return begin_names(s, q->ids, e);
    s->finished = q->all || q->finished;
    s->phase = (q->finished && !q->all) || !live_wanted(&s->l) ? PHASE_COMMIT : PHASE_LIVE;
    if (!s->finished && s->phase == PHASE_COMMIT)
        s->phase = PHASE_END;
    s->query = lead(&s->l, q->from_ms);
    return 0;
}

static void document_head(struct listing *l) {
    json_open(&l->w, '{');
    if (l->compact) {
        json_key(&l->w, "fields");
        listing_fields(l);
    }
    json_open_key(&l->w, "jobs", '[');
}

static int begin_document(struct list_stream *s, struct api_call *call, struct error *e) {
    struct listing *l = &s->l;
    int r = listing_init(l, call, e);
    if (r < 0)
        return r;
    const struct query_jobs *q = call->query;
    document_head(l);
    if (q->ids)
        return begin_names(s, q->ids, e);
    s->finished = q->finished;
    s->phase = s->finished ? PHASE_COMMIT : PHASE_LIVE;
    if (s->finished && !l->limit)
        l->limit = LIST_PAGE_ROWS;
    return lead_page(l, call, &s->query, e);
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

void listing_stream_begin(struct api_call *call, enum list_form form) {
    static const char *const types[] = {LIST_STREAM_TYPE, "application/json", "text/csv; charset=utf-8"};
    struct list_stream *s = xcalloc(1, sizeof *s);
    struct error e = {0};
    int r = 0;
    s->read = (struct sliced_read){.run = run, .free = stream_free, .stream_type = types[form]};
    s->read.controller = call->controller;
    s->form = form;
    if (form == LIST_TRACE)
        begin_trace(s, call);
    else
        r = form == LIST_LINES ? begin_lines(s, call, &e) : begin_document(s, call, &e);
    if (r < 0) {
        api_fail(call->req, &e);
        stream_free(&s->read);
        return;
    }
    s->l.read = &s->read;
    s->read.slow_rows = s->l.filter.where.count > 0;  // a pattern may take long for a single row
    sliced_read_begin(&s->read, call);
}

void api_list(struct api_call *call) {
    listing_stream_begin(call, ((const struct query_jobs *)call->query)->stream ? LIST_LINES : LIST_DOCUMENT);
}
