// GPUs right now: what those of a node do and for which jobs, and which have a fault.
#include "base/text.h"
#include "api.h"
#include "telemetry.h"

enum { NODE_GPUS_MAX = 128, NAMED_MAX = 5 };

static void fill_sample(const struct gpu_sample *s, struct answer_gpu_now *out) {
    const struct schema *schema = &answer_gpu_now_schema;
    if (!s->utilisation_unknown) {
        out->use_milli = s->utilisation_milli;
        schema_give(schema, out, &out->use_milli);
    }
    out->memory_used_bytes = s->memory_used_bytes;
    out->power_mw = s->power_mw;
    out->temperature_c = s->temperature_c;
    out->sm_clock_mhz = s->sm_clock_mhz;
    out->clock_reasons = s->throttle_reasons;
    out->foreign_bytes = s->foreign_bytes;
    const void *const known[] = {&out->memory_used_bytes, &out->power_mw,      &out->temperature_c,
                                 &out->sm_clock_mhz,      &out->clock_reasons, &out->foreign_bytes};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        schema_give(schema, out, known[i]);
}

static bool fill_holder(struct controller *c, const struct actor *viewer, const struct gpu_sample *s,
                        struct arena *a, struct answer_gpu_holder *out) {
    struct job_view v;
    enum job_sight sight =
        core_view(c->core, s->id, &v) ? job_sight(c, viewer, v.user, v.project) : SIGHT_NONE;
    if (sight == SIGHT_NONE)
        return false;
    *out = (struct answer_gpu_holder){
        .job = v.array_id ? arena_printf(a, "%llu_%u", (unsigned long long)v.array_id, v.array_index)
                          : arena_printf(a, "%llu", (unsigned long long)v.id),
        .user = sight >= SIGHT_PUBLIC ? v.user : NULL,
        .memory_used_bytes = s->memory_used_bytes,
        .power_mw = s->power_mw,
        .stray = s->stray};
    if (!s->utilisation_unknown) {
        out->use_milli = s->utilisation_milli;
        schema_give(&answer_gpu_holder_schema, out, &out->use_milli);
    }
    return true;
}

void api_gpus_now(struct controller *c, const struct actor *viewer, const struct node_view *v,
                  struct arena *a, struct answer_node_status *out) {
    const struct message_telemetry *t = telemetry_latest(c, v->node->name);
    uint32_t held[NODE_GPUS_MAX], samples = t ? t->gpus.len : 0;
    core_node_gpus(c->core, v->node->name, held, NODE_GPUS_MAX);
    out->gpus_now.len = v->node->gpus.len < NODE_GPUS_MAX ? v->node->gpus.len : NODE_GPUS_MAX;
    out->gpus_now.at = arena_alloc(a, (out->gpus_now.len + 1) * sizeof *out->gpus_now.at);
    for (uint32_t i = 0; i < out->gpus_now.len; i++) {
        struct answer_gpu_now *g = &out->gpus_now.at[i];
        *g = (struct answer_gpu_now){.held_milli = held[i]};
        g->jobs.at = arena_alloc(a, (samples + 1) * sizeof *g->jobs.at);
        for (uint32_t k = 0; k < samples; k++) {
            const struct gpu_sample *s = &t->gpus.at[k];
            if (s->index == i && !s->id)
                fill_sample(s, g);
            else if (s->index == i)
                g->jobs.len += fill_holder(c, viewer, s, a, &g->jobs.at[g->jobs.len]);
        }
    }
}

struct gpu_totals {
    const struct controller *controller;
    uint32_t count, measured, sick;
    uint64_t use_milli, power_mw;
    struct buf names;  // "n1:0, n1:3"
};

static bool add_node(void *ctx, const struct node_view *v) {
    struct gpu_totals *t = ctx;
    const struct message_telemetry *m = telemetry_latest(t->controller, v->node->name);
    t->count += v->node->gpus.len;
    for (uint32_t i = 0; i < v->node->gpus.len; i++) {
        if (str_empty(v->node->gpus.at[i].unhealthy))
            continue;
        if (t->sick++ < NAMED_MAX)
            buf_addf(&t->names, "%s %s:%u", t->names.len ? "," : "", v->node->name, i);
    }
    for (uint32_t i = 0; m && i < m->gpus.len; i++) {
        if (m->gpus.at[i].id)
            continue;
        t->power_mw += m->gpus.at[i].power_mw;
        if (m->gpus.at[i].utilisation_unknown)
            continue;
        t->use_milli += m->gpus.at[i].utilisation_milli;
        t->measured++;
    }
    return true;
}

void api_gpu_counts(struct controller *c, struct answer_gpu_counts *out, struct buf *warning) {
    struct gpu_totals t = {.controller = c};
    core_each_node(c->core, add_node, &t);
    *out = (struct answer_gpu_counts){.total = t.count,
                                      .out_of_use = t.sick,
                                      .measured = t.measured,
                                      .busy_milli = t.use_milli,
                                      .power_mw = t.power_mw};
    if (t.sick)
        buf_addf(warning, "%u %s out of use:%s%s; 'acequia nodes NODE' shows why", t.sick,
                 t.sick == 1 ? "GPU is" : "GPUs are", buf_str(&t.names), t.sick > NAMED_MAX ? " and others" : "");
    buf_done(&t.names);
}

const char *api_sick_gpu(const struct controller *c, const struct job_record *r, char *out, size_t size) {
    for (uint32_t i = 0; i < r->parts.len; i++) {
        const struct part *p = &r->parts.at[i];
        struct node_view v;
        if (!core_node(c->core, p->node, &v))
            continue;
        for (uint32_t k = 0; k < p->gpus.len; k++) {
            uint32_t index = p->gpus.at[k].index;
            if (index >= v.node->gpus.len || str_empty(v.node->gpus.at[index].unhealthy))
                continue;
            snprintf(out, size, "runs on GPU %u of %s, which has a fault: %s", index, p->node,
                     v.node->gpus.at[index].unhealthy);
            return out;
        }
    }
    return NULL;
}
