// Owns what is told about GPUs right now: those of a node, what they do and for whom; and which are out of use.
#include "base/text.h"
#include "api.h"
#include "telemetry.h"

enum { NODE_GPUS_MAX = 128, NAMED_MAX = 5 };

static void put_sample(struct json_writer *w, const struct gpu_sample *s) {
    if (!s->utilisation_unknown)
        json_kv_i64(w, "use_milli", s->utilisation_milli);
    json_kv_i64(w, "memory_used_bytes", (int64_t)s->memory_used_bytes);
    json_kv_i64(w, "power_mw", (int64_t)s->power_mw);
    json_kv_i64(w, "temperature_c", s->temperature_c);
    json_kv_i64(w, "sm_clock_mhz", s->sm_clock_mhz);
    json_kv_i64(w, "clock_reasons", (int64_t)s->throttle_reasons);
    json_kv_i64(w, "foreign_bytes", (int64_t)s->foreign_bytes);
}

static void put_holder(struct controller *c, struct json_writer *w, const struct gpu_sample *s) {
    struct job_view v;
    char label[48];
    if (!core_view(c->core, s->id, &v))
        return;
    if (v.array_id)
        snprintf(label, sizeof label, "%llu_%u", (unsigned long long)v.array_id, v.array_index);
    else
        snprintf(label, sizeof label, "%llu", (unsigned long long)v.id);
    json_open(w, '{');
    json_kv_str(w, "job", label);
    json_kv_str(w, "user", v.user);
    if (!s->utilisation_unknown)
        json_kv_i64(w, "use_milli", s->utilisation_milli);
    json_kv_i64(w, "memory_used_bytes", (int64_t)s->memory_used_bytes);
    json_kv_i64(w, "power_mw", (int64_t)s->power_mw);
    if (s->stray)
        json_kv_bool(w, "stray", true);
    json_close(w, '}');
}

void api_put_gpus_now(struct controller *c, struct json_writer *w, const struct node_view *v) {
    const struct message_telemetry *t = telemetry_latest(c, v->node->name);
    uint32_t held[NODE_GPUS_MAX];
    core_node_gpus(c->core, v->node->name, held, NODE_GPUS_MAX);
    json_key(w, "gpus_now");
    json_open(w, '[');
    for (uint32_t i = 0; i < v->node->gpus.len && i < NODE_GPUS_MAX; i++) {
        json_open(w, '{');
        json_kv_i64(w, "held_milli", held[i]);
        for (uint32_t k = 0; t && k < t->gpus.len; k++)
            if (t->gpus.at[k].index == i && !t->gpus.at[k].id)
                put_sample(w, &t->gpus.at[k]);
        json_key(w, "jobs");
        json_open(w, '[');
        for (uint32_t k = 0; t && k < t->gpus.len; k++)
            if (t->gpus.at[k].index == i && t->gpus.at[k].id)
                put_holder(c, w, &t->gpus.at[k]);
        json_close(w, ']');
        json_close(w, '}');
    }
    json_close(w, ']');
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

void api_put_gpu_status(struct controller *c, struct json_writer *w, struct buf *warning) {
    struct gpu_totals t = {.controller = c};
    core_each_node(c->core, add_node, &t);
    json_key(w, "gpus");
    json_open(w, '{');
    json_kv_i64(w, "total", t.count);
    json_kv_i64(w, "out_of_use", t.sick);
    json_kv_i64(w, "measured", t.measured);
    json_kv_i64(w, "busy_milli", (int64_t)t.use_milli);
    json_kv_i64(w, "power_mw", (int64_t)t.power_mw);
    json_close(w, '}');
    if (t.sick)
        buf_addf(warning, "%u %s out of use:%s%s; acequia nodes NODE tells why", t.sick,
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
