// The cluster at a glance: GET /v1/overview, and the parts of the live feed that all viewers share (nodes, shares,
// status). Nothing here tells whose job a GPU is held by, only which project's: it is the same for everybody.
#include <string.h>

#include "answers_portal.h"
#include "base/clock.h"
#include "base/text.h"
#include "job_table.h"
#include "live.h"
#include "overview.h"
#include "telemetry.h"

enum {
    NODE_GPUS_MAX = 128,
    IDLE_AFTER_S = 60,  // a held GPU that was not used for so long counts as idle
    WAIT_HOURS = 24,
    OVERVIEW_KEEP_MS = 1000,
    HOUR_MS = 3600000,
    HOUR_STEP_MS = 60000,
};

// --- nodes ---

struct node_filling {
    struct controller *controller;
    struct arena *arena;
    const char *node;
    struct answer_view_node *out;
    uint32_t room[NODE_GPUS_MAX];
};

static void add_part(void *ctx, const struct core_grant *g) {
    struct node_filling *f = ctx;
    if (g->index >= f->out->gpus.len)
        return;
    struct answer_view_gpu *gpu = &f->out->gpus.at[g->index];
    if (gpu->parts.len == f->room[g->index]) {
        f->room[g->index] = f->room[g->index] ? f->room[g->index] * 2 : 2;
        struct answer_gpu_part *more = arena_alloc(f->arena, f->room[g->index] * sizeof *more);
        if (gpu->parts.len)
            memcpy(more, gpu->parts.at, gpu->parts.len * sizeof *more);
        gpu->parts.at = more;
    }
    gpu->parts.at[gpu->parts.len++] = (struct answer_gpu_part){g->project, g->milli};
    gpu->held_milli += g->milli;
}

static void fill_sample(const struct gpu_sample *s, struct answer_view_gpu *out) {
    const struct schema *schema = &answer_view_gpu_schema;
    out->memory_used_bytes = s->memory_used_bytes;
    out->power_mw = s->power_mw;
    out->temperature_c = s->temperature_c;
    schema_give(schema, out, &out->memory_used_bytes);
    schema_give(schema, out, &out->power_mw);
    schema_give(schema, out, &out->temperature_c);
    if (s->utilisation_unknown)
        return;
    out->use_milli = s->utilisation_milli;
    schema_give(schema, out, &out->use_milli);
}

static void fill_node(struct controller *c, const struct node_view *v, struct arena *a,
                      struct answer_view_node *out) {
    const struct node *n = v->node;
    const struct message_telemetry *t = telemetry_latest(c, n->name);
    struct node_filling f = {.controller = c, .arena = a, .node = n->name, .out = out};
    *out = (struct answer_view_node){.name = n->name,
                                     .state = api_node_state(v),
                                     .reason = v->reason ? v->reason : api_launch_trouble(v, a),
                                     .cpus = n->cpus,
                                     .cpus_used = v->cpus_used,
                                     .memory_bytes = n->memory_bytes,
                                     .memory_used_bytes = v->memory_used_bytes,
                                     .jobs = v->jobs};
    out->gpus.len = n->gpus.len < NODE_GPUS_MAX ? n->gpus.len : NODE_GPUS_MAX;
    out->gpus.at = arena_alloc(a, (out->gpus.len + 1) * sizeof *out->gpus.at);
    for (uint32_t i = 0; i < out->gpus.len; i++)
        out->gpus.at[i] = (struct answer_view_gpu){.index = i,
                                                   .model = n->gpus.at[i].model,
                                                   .memory_bytes = n->gpus.at[i].memory_bytes,
                                                   .unhealthy = n->gpus.at[i].unhealthy};
    core_each_grant(c->core, n->name, add_part, &f);
    if (!t)
        return;
    out->cpu_milli = t->cpu_milli;
    out->memory_in_use_bytes = t->memory_used_bytes;
    schema_give(&answer_view_node_schema, out, &out->cpu_milli);
    schema_give(&answer_view_node_schema, out, &out->memory_in_use_bytes);
    for (uint32_t i = 0; i < t->gpus.len; i++)
        if (!t->gpus.at[i].id && t->gpus.at[i].index < out->gpus.len)
            fill_sample(&t->gpus.at[i], &out->gpus.at[t->gpus.at[i].index]);
}

struct node_collecting {
    struct controller *controller;
    struct arena *arena;
    struct answer_view_node *at;
    uint32_t len, room;
};

static bool collect_node(void *ctx, const struct node_view *v) {
    struct node_collecting *l = ctx;
    if (l->len == l->room) {
        l->room = l->room ? l->room * 2 : 16;
        struct answer_view_node *more = arena_alloc(l->arena, l->room * sizeof *more);
        if (l->len)
            memcpy(more, l->at, l->len * sizeof *more);
        l->at = more;
    }
    fill_node(l->controller, v, l->arena, &l->at[l->len++]);
    return true;
}

void overview_nodes(struct controller *c, struct arena *a, struct answer_view_node **at, uint32_t *len) {
    struct node_collecting l = {.controller = c, .arena = a};
    core_each_node(c->core, collect_node, &l);
    *at = l.at;
    *len = l.len;
}

// --- figures ---

struct figures {
    struct controller *controller;
    const char *node;
    struct answer_view_gpus gpus;
    struct answer_view_cpus cpus;
    struct answer_view_memory memory;
    struct answer_node_counts nodes;
    struct answer_states jobs;
    struct answer_view_users users;
    struct answer_view_projects projects;
    struct answer_view_wait wait;
    struct answer_view_alerts alerts;
    struct answer_shares shares;
};

static void add_idle(void *ctx, const struct core_grant *g) {
    struct figures *f = ctx;
    if (telemetry_gpu_idle_s(f->controller, g->job, f->node, g->index) >= IDLE_AFTER_S)
        f->gpus.idle_allocated_milli += g->milli;
}

static bool add_node(void *ctx, const struct node_view *v) {
    struct figures *f = ctx;
    const struct message_telemetry *t = telemetry_latest(f->controller, v->node->name);
    uint64_t usable = 0;
    f->node = v->node->name;
    f->gpus.total += v->node->gpus.len;
    f->gpus.allocated_milli += v->gpus_used_milli;
    f->cpus.total += v->node->cpus;
    f->cpus.allocated += v->cpus_used;
    f->memory.total_bytes += v->node->memory_bytes;
    f->memory.allocated_bytes += v->memory_used_bytes;
    for (uint32_t i = 0; i < v->node->gpus.len; i++) {
        bool healthy = str_empty(v->node->gpus.at[i].unhealthy);
        usable += healthy ? 1000 : 0;
        f->gpus.out_of_use += !healthy;
    }
    if (v->state == NODE_UP && !v->drained && usable > v->gpus_used_milli)
        f->gpus.free_milli += usable - v->gpus_used_milli;
    for (uint32_t i = 0; t && i < t->gpus.len; i++) {
        if (t->gpus.at[i].id)
            continue;
        f->gpus.power_mw += t->gpus.at[i].power_mw;
        f->gpus.measured += !t->gpus.at[i].utilisation_unknown;
        f->gpus.busy_milli += t->gpus.at[i].utilisation_unknown ? 0 : t->gpus.at[i].utilisation_milli;
    }
    core_each_grant(f->controller->core, f->node, add_idle, f);
    return true;
}

static bool count_alert(void *ctx, const struct event_alert *a) {
    struct answer_view_alerts *n = ctx;
    *(a->by ? &n->acknowledged : &n->open) += 1;
    return true;
}

static void gather(struct controller *c, struct arena *a, struct figures *f) {
    struct core_counts n;
    *f = (struct figures){.controller = c, .wait.hours = WAIT_HOURS};
    core_counts(c->core, &n);
    f->nodes = (struct answer_node_counts){n.nodes, n.nodes_up, n.nodes_drained, n.nodes_down};
    f->jobs =
        (struct answer_states){.submitted = n.submitted, .requeued = n.requeued, .preempted = n.preempted};
    memcpy(f->jobs.by_state, n.by_state, sizeof f->jobs.by_state);
    core_each_node(c->core, add_node, f);
    api_fill_shares(c->core, a, &f->shares);
    for (uint32_t i = 0; i < f->shares.projects.len; i++) {
        const struct answer_share *s = &f->shares.projects.at[i];
        f->projects.live += s->running || s->pending;
        f->projects.running += s->running > 0;
        f->projects.pending += s->pending > 0;
    }
    f->users.live = core_live_users(c->core);
    core_each_alert(c->core, count_alert, &f->alerts);
    job_table_waits(c, controller_now_ms() - (int64_t)WAIT_HOURS * HOUR_MS, &f->wait.jobs, &f->wait.median_ms,
                    &f->wait.p90_ms);
}

// --- the live feed's parts ---

// A part whose content has changed becomes a new event.
static void take_content(struct feed_part *p, const char *name, struct buf *content, const char *head) {
    if (p->version && p->content.len == content->len &&
        !memcmp(p->content.data, content->data, content->len)) {
        buf_done(content);
        return;
    }
    buf_done(&p->content);
    p->content = *content;
    *content = (struct buf){0};
    buf_clear(&p->event);
    buf_addf(&p->event, "event: %s\ndata: {%s%s\n\n", name, head,
             p->content.len ? buf_str(&p->content) + 1 : "}");
    p->version++;
}

static void look_at_nodes(struct controller *c, struct feed_parts *p, const char *head) {
    cleanup_arena struct arena a = {0};
    struct node_collecting l = {.controller = c, .arena = &a};
    struct buf content = {0};
    struct json_writer w = {.out = &content};
    core_each_node(c->core, collect_node, &l);
    json_open(&w, '{');
    json_open_key(&w, "nodes", '[');
    for (uint32_t i = 0; i < l.len; i++)
        schema_write_json(&answer_view_node_schema, &l.at[i], &w);
    json_close(&w, ']');
    json_close(&w, '}');
    take_content(&p->nodes, "nodes", &content, head);
}

static void look_at_status(struct controller *c, struct feed_parts *p, const char *head) {
    cleanup_arena struct arena a = {0};
    struct figures f;
    struct buf status = {0}, shares = {0};
    gather(c, &a, &f);
    struct answer_view_status s = {&f.gpus, &f.nodes, &f.jobs, &f.users, &f.projects, &f.wait, &f.alerts};
    schema_write_json(&answer_view_status_schema, &s, &(struct json_writer){.out = &status});
    schema_write_json(&answer_shares_schema, &f.shares, &(struct json_writer){.out = &shares});
    take_content(&p->status, "status", &status, head);
    take_content(&p->shares, "shares", &shares, "");
}

// The nodes of a large cluster are many bytes for each of many viewers: then they come less often.
static int64_t nodes_ms(const struct feed_parts *p, uint32_t viewers) {
    int64_t ms = (int64_t)((uint64_t)p->nodes.event.len * viewers * 1000 * 4 / LIVE_BYTES_PER_S);
    return ms < LIVE_PARTS_MS ? LIVE_PARTS_MS : ms > LIVE_PARTS_MOST_MS ? LIVE_PARTS_MOST_MS : ms;
}

void feed_parts_look(struct controller *c, struct feed_parts *p, uint32_t viewers, int64_t mono_ms) {
    char at[40], seq[40], head[80];
    snprintf(at, sizeof at, "\"at_ms\":%lld,", (long long)controller_now_ms());
    snprintf(seq, sizeof seq, "\"seq\":%llu,", (unsigned long long)pipeline_committed_seq(c->pipeline));
    snprintf(head, sizeof head, "%s%s", at, seq);
    if (!p->nodes.version || mono_ms - p->nodes.looked_ms >= nodes_ms(p, viewers)) {
        p->nodes.looked_ms = mono_ms;
        look_at_nodes(c, p, at);
    }
    if (!p->status.version || mono_ms - p->status.looked_ms >= LIVE_PARTS_MS) {
        p->status.looked_ms = mono_ms;
        look_at_status(c, p, head);
    }
}

void feed_parts_done(struct feed_parts *p) {
    struct feed_part *const all[] = {&p->nodes, &p->shares, &p->status};
    for (int i = 0; i < 3; i++) {
        buf_done(&all[i]->event);
        buf_done(&all[i]->content);
    }
}

// --- GET /v1/overview ---

static const char *chart(struct controller *c, const char *name, int64_t now_ms, struct arena *a) {
    cleanup_buf struct buf b = {0};
    int64_t step_ms = HOUR_STEP_MS;
    if (series_query(telemetry_series(c), name, now_ms - HOUR_MS, now_ms, &step_ms,
                     &(struct json_writer){.out = &b}, NULL) < 0)
        return "[]";
    return arena_strdup(a, buf_str(&b));
}

static void write_overview(struct controller *c, struct buf *out) {
    cleanup_arena struct arena a = {0};
    struct figures f;
    struct node_collecting l = {.controller = c, .arena = &a};
    int64_t now_ms = controller_now_ms();
    gather(c, &a, &f);
    core_each_node(c->core, collect_node, &l);
    struct answer_view_hour hour = {.step_ms = HOUR_STEP_MS,
                                    .utilisation = chart(c, "cluster/gpu_utilisation", now_ms, &a),
                                    .power_watts = chart(c, "cluster/gpu_power_watts", now_ms, &a),
                                    .gpus_allocated = chart(c, "cluster/gpus_allocated", now_ms, &a),
                                    .jobs_pending = chart(c, "cluster/jobs_pending", now_ms, &a),
                                    .jobs_running = chart(c, "cluster/jobs_running", now_ms, &a)};
    struct answer_overview o = {.at_ms = now_ms,
                                .seq = pipeline_committed_seq(c->pipeline),
                                .cluster = c->config.cluster.name,
                                .version = ACEQUIA_VERSION,
                                .gpus = &f.gpus,
                                .cpus = &f.cpus,
                                .memory = &f.memory,
                                .nodes = &f.nodes,
                                .jobs = &f.jobs,
                                .users = &f.users,
                                .projects = &f.projects,
                                .wait = &f.wait,
                                .alerts = &f.alerts,
                                .last_hour = &hour,
                                .shares = &f.shares};
    o.node_list.at = l.at;
    o.node_list.len = l.len;
    schema_write_json(&answer_overview_schema, &o, &(struct json_writer){.out = out});
    buf_addc(out, '\n');
}

void api_overview(struct api_call *call) {
    struct controller *c = call->controller;
    int64_t now = clock_mono_ms();
    if (!c->overview.len || now - c->overview_ms >= OVERVIEW_KEEP_MS) {
        buf_clear(&c->overview);
        write_overview(c, &c->overview);
        c->overview_ms = now;
    }
    net_reply(call->req, 200, "application/json", c->overview.data, c->overview.len);
}
