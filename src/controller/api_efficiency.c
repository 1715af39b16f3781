// Owns what is told about use: a job's efficiency, and the time series behind the charts.
#include <string.h>

#include "base/text.h"
#include "api.h"
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
    struct controller *controller;
    struct efficiency_sum sum;
    struct arena *arena;       // of the one that is kept
    struct job_record sample;  // with places, to know what was held
};

static bool take_element(struct elements *s, const struct job_record *r, bool live) {
    if (r->start_ms)
        efficiency_add(&s->sum, r, usage_of(s->controller, r, live), now_ms());
    return s->sum.count < ELEMENTS_MAX;
}

static int ended_element(void *ctx, const struct store_history *row) {
    struct elements *s = ctx;
    cleanup_arena struct arena a = {0};
    struct job_record r;
    bool first = !s->sample.parts.len;
    if (schema_decode(&job_record_schema, row->data, row->len, first ? s->arena : &a, &r) < 0)
        return 0;
    if (first && r.parts.len)
        s->sample = r;
    return take_element(s, &r, false) ? 0 : 1;
}

static bool live_element(void *ctx, const struct job_view *v) {
    struct elements *s = ctx;
    cleanup_arena struct arena a = {0};
    struct job_record r;
    bool first = !s->sample.parts.len;
    if (!v->start_ms || core_record(s->controller->core, v->id, first ? s->arena : &a, &r) < 0)
        return true;
    if (first && r.parts.len)
        s->sample = r;
    return take_element(s, &r, true);
}

// False: the job is no array, or one of which nothing has run.
static bool whole_array(struct api_call *call, struct job_record *r, struct usage *mean, struct efficiency_input *in) {
    struct elements s = {.controller = call->controller, .arena = &call->arena};
    if (!r->is_array || strchr(call->name, '_'))
        return false;
    store_history(call->controller->store, &(struct store_query){.array = r->array_id, .order = STORE_BY_ID},
                  ended_element, &s, NULL);
    core_each_element(call->controller->core, r->array_id, live_element, &s);
    if (!s.sum.count || !s.sample.parts.len)
        return false;
    *r = s.sample;
    efficiency_mean(&s.sum, r, mean, in);
    return true;
}

void api_efficiency(struct api_call *call) {
    struct controller *c = call->controller;
    cleanup_buf struct buf b = {0};
    struct json_writer w = {.out = &b};
    struct job_record r;
    struct job_view v;
    struct efficiency report;
    struct usage mean;
    bool live;
    if (api_record(c, call->job, &call->arena, &r, &live) < 0) {
        api_no_job(call->req, call->job);
        return;
    }
    struct efficiency_input in = {.record = &r, .usage = usage_of(c, &r, live), .now_ms = now_ms()};
    if (!whole_array(call, &r, &mean, &in) && !r.start_ms) {
        api_error(call->req, 409, "EBUSY", "the job has not run yet; there is nothing to compare");
        return;
    }
    in.time_limit_s = core_view(c->core, r.id, &v) ? v.time_limit_s : r.spec->time_limit_s;
    gpu_memory(c, &r, &in);
    efficiency_of(&in, &call->arena, &report);
    efficiency_json(&report, &w);
    api_json(call->req, 200, &b);
}

static void put_name(void *ctx, const char *name) {
    json_put_str(ctx, name);
}

void api_series(struct api_call *call) {
    struct controller *c = call->controller;
    cleanup_buf struct buf b = {0};
    struct json_writer w = {.out = &b};
    struct error e = {0};
    const char *name = api_query(call, "name"), *prefix = api_query(call, "prefix");
    int64_t now = now_ms();
    if (!name) {
        json_open(&w, '{');
        json_key(&w, "names");
        json_open(&w, '[');
        series_each(telemetry_series(c), prefix ? prefix : "", put_name, &w);
        json_close(&w, ']');
        json_close(&w, '}');
        api_json(call->req, 200, &b);
        return;
    }
    int64_t to = api_query_i64(call, "to_ms", now), from = api_query_i64(call, "from_ms", to - 3600000);
    if (series_query(telemetry_series(c), name, from, to, api_query_i64(call, "step_ms", 0), &w, &e) < 0)
        api_fail(call->req, &e);
    else
        api_json(call->req, 200, &b);
}
