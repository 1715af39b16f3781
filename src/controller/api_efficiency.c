// How well a job used what it asked for, and the time series behind the charts.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "array_read.h"
#include "telemetry.h"

// What the job may use on its GPUs together, and what one whole GPU of the last kind has. A node that
// is gone leaves both unknown.
static void gpu_memory(const struct controller *c, const struct job_record *r, struct efficiency_input *in) {
    for (uint32_t i = 0; i < r->parts.len; i++) {
        const struct part *p = &r->parts.at[i];
        struct node_view v;
        if (!p->gpus.len)
            continue;
        if (!core_node(c->core, p->node, &v)) {
            in->gpu_memory_bytes = in->gpu_memory_each_bytes = 0;
            return;
        }
        for (uint32_t k = 0; k < p->gpus.len; k++) {
            if (p->gpus.at[k].index >= v.node->gpus.len)
                continue;
            uint64_t whole = v.node->gpus.at[p->gpus.at[k].index].memory_bytes;
            in->gpu_memory_each_bytes = whole;
            in->gpu_memory_bytes += p->gpus.at[k].milli >= 1000 ? whole
                                    : r->spec->gpu_memory_bytes ? r->spec->gpu_memory_bytes
                                                                : whole / 1000 * p->gpus.at[k].milli;
        }
    }
}

static const struct usage *usage_of(const struct controller *c, const struct job_record *r, bool live) {
    static const struct usage none;
    const struct live_usage *now = live ? map_get(&c->live, r->id) : NULL;
    return now ? &now->usage : r->usage ? r->usage : &none;
}

// The elements of an array that have begun; of very many, those that were found first.
enum { ELEMENTS_MAX = 20000 };

struct elements {
    struct array_read walk;
    struct efficiency_sum sum;
    struct arena arena;        // of the one that is kept
    struct job_record sample;  // with places, to know what was held
};

static bool take_element(struct elements *s, const struct job_record *r, bool live) {
    if (r->start_ms)
        efficiency_add(&s->sum, r, usage_of(s->walk.read.controller, r, live), controller_now_ms());
    return s->sum.count < ELEMENTS_MAX;
}

static bool ended_element(struct array_read *walk, const struct store_history *row) {
    struct elements *s = (struct elements *)walk;
    cleanup_arena struct arena a = {0};
    struct job_record r;
    bool first = !s->sample.parts.len && row->start_ms;
    if (schema_decode(&job_record_schema, row->data, row->len, first ? &s->arena : &a, &r) < 0)
        return true;
    if (first && r.parts.len)
        s->sample = r;
    return take_element(s, &r, false);
}

static bool live_element(struct array_read *walk, const struct job_view *v) {
    struct elements *s = (struct elements *)walk;
    cleanup_arena struct arena a = {0};
    struct job_record r;
    bool first = !s->sample.parts.len;
    if (!v->start_ms || core_record(walk->read.controller->core, v->id, first ? &s->arena : &a, &r) < 0)
        return true;
    if (first && r.parts.len)
        s->sample = r;
    return take_element(s, &r, true);
}

// The report as an answer; rows of what was neither asked for nor used are left out.
static void answer_report(struct api_call *call, const struct efficiency *e) {
    struct answer_efficiency_row rows[EFFICIENCY_ROWS];
    struct answer_efficiency out = {.elapsed_s = e->elapsed_s,
                                    .final = e->final,
                                    .too_short = e->too_short,
                                    .failed = e->failed,
                                    .elements = e->elements};
    out.rows.at = rows;
    for (int i = 0; i < EFFICIENCY_ROWS; i++) {
        const struct efficiency_row *from = &e->rows[i];
        struct answer_efficiency_row *to = &rows[out.rows.len];
        if (!from->known)
            continue;
        out.rows.len++;
        *to = (struct answer_efficiency_row){
            .what = efficiency_words[i], .option = from->option, .text = from->text};
        if (i != EFFICIENCY_ENERGY) {
            to->asked = from->asked;
            schema_give(&answer_efficiency_row_schema, to, &to->asked);
        }
        if (i != EFFICIENCY_ENERGY && !from->unmeasured) {
            to->percent = from->percent;
            schema_give(&answer_efficiency_row_schema, to, &to->percent);
        }
        if (!from->unmeasured) {
            to->used = from->used;
            schema_give(&answer_efficiency_row_schema, to, &to->used);
        }
    }
    api_answer(call, &answer_efficiency_schema, &out);
}

// `in` has the use and, of an array, the mean.
static void report_on(struct api_call *call, struct job_record *r, struct efficiency_input *in) {
    struct controller *c = call->controller;
    struct efficiency report;
    struct job_view v;
    if (!in->elements && !r->start_ms) {
        api_error(call->req, 409, "EBUSY", "the job has not run yet; there is nothing to compare");
        return;
    }
    in->record = r;
    in->time_limit_s = core_view(c->core, r->id, &v) ? v.time_limit_s : r->spec->time_limit_s;
    gpu_memory(c, r, in);
    efficiency_of(in, &call->arena, &report);
    answer_report(call, &report);
}

static void answer_one(struct api_call *call) {
    struct job_record r;
    bool live;
    if (api_record(call->controller, call->job, &call->arena, &r, &live) < 0) {
        api_no_job(call->req, call->job);
        return;
    }
    struct efficiency_input in = {.usage = usage_of(call->controller, &r, live),
                                  .now_ms = controller_now_ms()};
    report_on(call, &r, &in);
}

// Of an array of which nothing has run, its first element says so.
static void answer_array(struct array_read *walk, const struct error *e) {
    struct elements *s = (struct elements *)walk;
    struct api_call call = {.controller = walk->read.controller, .req = walk->read.req, .job = walk->array};
    struct efficiency_input in = {0};
    struct usage mean;
    if (!s->sum.count || !s->sample.parts.len) {
        answer_one(&call);
    } else {
        efficiency_mean(&s->sum, &s->sample, &mean, &in);
        report_on(&call, &s->sample, &in);
    }
    arena_done(&call.arena);
}

static void elements_done(struct array_read *walk) {
    arena_done(&((struct elements *)walk)->arena);
}

void api_efficiency(struct api_call *call) {
    struct job_record r;
    bool live;
    if (strchr(call->name, '_') || api_record(call->controller, call->job, &call->arena, &r, &live) < 0 ||
        !r.is_array) {
        answer_one(call);
        return;
    }
    struct elements *s = xcalloc(1, sizeof *s);
    s->walk = (struct array_read){.array = r.array_id,
                                  .live = live_element,
                                  .ended = ended_element,
                                  .answer = answer_array,
                                  .done = elements_done};
    array_read_begin(&s->walk, call);
}

struct series_names {
    struct api_call *call;
    uint64_t job;  // that was looked at last
    bool hidden;   // the caller may not know of it
    VEC(const char *) list;
};

// "job/12/gpu_utilisation" of a job that the caller may not know of.
static bool is_hidden(struct series_names *n, const char *name) {
    if (!str_has_prefix(name, "job/"))
        return false;
    uint64_t id = strtoull(name + 4, NULL, 10);
    if (id != n->job) {
        n->job = id;
        n->hidden = n->call->controller->config.cluster.others_jobs == OTHERS_JOBS_HIDDEN &&
                    !(n->call->actor.admin && !n->call->actor.project) &&
                    job_sight_of(n->call->controller, &n->call->actor, id) == SIGHT_NONE;
    }
    return n->hidden;
}

static void add_name(void *ctx, const char *name) {
    struct series_names *n = ctx;
    if (!is_hidden(n, name))
        vec_push(&n->list, arena_strdup(&n->call->arena, name));
}

static void list_series(struct api_call *call, const char *prefix) {
    struct series_names n = {.call = call};
    series_each(telemetry_series(call->controller), prefix ? prefix : "", add_name, &n);
    struct answer_series_names answer = {.names = {n.list.at, n.list.len}};
    api_answer(call, &answer_series_names_schema, &answer);
    vec_done(&n.list);
}

void api_series(struct api_call *call) {
    cleanup_buf struct buf points = {0};
    struct json_writer w = {.out = &points};
    struct error e = {0};
    const struct query_series *q = call->query;
    char shown[64];
    int64_t now = controller_now_ms(), step_ms = q->step_ms;
    if (!q->name) {
        list_series(call, q->prefix);
        return;
    }
    int64_t to = schema_given(&query_series_schema, q, &q->to_ms) ? q->to_ms : now;
    int64_t from = schema_given(&query_series_schema, q, &q->from_ms) ? q->from_ms : to - 3600000;
    if (is_hidden(&(struct series_names){.call = call}, q->name)) {
        error_set(&e, ENOENT, "there is no series \"%s\"", str_printable(q->name, shown, sizeof shown));
        api_fail(call->req, &e);
        return;
    }
    if (series_query(telemetry_series(call->controller), q->name, from, to, &step_ms, &w, &e) < 0) {
        api_fail(call->req, &e);
        return;
    }
    struct answer_series answer = {q->name, step_ms, buf_str(&points)};
    api_answer(call, &answer_series_schema, &answer);
}
