// Owns GET /metrics: gathers what the controller has anyway and leaves the form to src/metrics. Jobs are counted in
// slices, everything else in the turn in which it is answered.
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "serve.h"
#include "base/clock.h"
#include "base/text.h"
#include "api.h"
#include "audit.h"
#include "sliced_read.h"
#include "telemetry.h"
#include "metrics/openmetrics.h"
#include "model/name.h"
#include "model/nodelist.h"
#include "sched/sched.h"

struct members {  // of a partition
    struct metrics_group *group;
    bool all;
    struct strmap nodes;
};

struct booking {  // a reservation that holds now
    bool maintenance, all;
    struct strmap nodes;
};

enum { NODE_GPUS_MAX = 128 };  // MIG instances counted one by one

struct gathering {
    struct sliced_read read;
    struct actor viewer;
    struct arena arena;
    struct metrics_input in;
    uint64_t after;  // jobs up to this one are counted
    bool cut;
    struct strmap groups[3];  // users, projects, partitions → struct metrics_group
    VEC(struct metrics_node) nodes;
    VEC(struct metrics_gpu) gpus;
    VEC(struct metrics_job_gpu) job_gpus;
    VEC(struct members) partitions;
    VEC(struct booking) bookings;
};

static struct metrics_group *group(struct gathering *g, int kind, const char *name) {
    struct metrics_group *found = strmap_get(&g->groups[kind], name);
    if (!found) {
        found = arena_alloc(&g->arena, sizeof *found);
        found->name = name;
        strmap_put(&g->groups[kind], name, found);
    }
    return found;
}

// It waits in each of its partitions.
static void add_waiting(struct gathering *g, const char *partitions) {
    size_t len;
    char name[NAME_MAX + 1];
    for (const char *at; (at = name_list_next(&partitions, &len));) {
        snprintf(name, sizeof name, "%.*s", (int)len, at);
        const char *known = strmap_get(&g->groups[2], name) ? name : arena_strdup(&g->arena, name);
        group(g, 2, known)->pending++;
    }
}

static bool add_job(void *ctx, const struct job_view *v) {
    struct gathering *g = ctx;
    bool several = name_list_several(v->partition);
    // Users that the viewer may not know of are counted together, without a name.
    const char *const names[] = {
        job_sight(g->read.controller, &g->viewer, v->user, v->project) >= SIGHT_PUBLIC ? v->user : "", v->project,
        several ? NULL : v->partition};
    if (several)
        add_waiting(g, v->partition);
    for (int kind = 0; kind < 3; kind++) {
        if (!names[kind])
            continue;
        struct metrics_group *m = group(g, kind, names[kind]);
        m->pending += v->state == JOB_PENDING;
        m->suspended += v->state == JOB_SUSPENDED;
        if (job_state_holds_resources(v->state)) {
            m->running += v->state != JOB_SUSPENDED;
            m->cpus += v->cpus;
            m->gpus_milli += v->gpus_milli;
        }
    }
    if (v->state == JOB_PENDING) {
        g->in.pending_by_reason[v->reason]++;
        bool waits = v->reason == REASON_RESOURCES || v->reason == REASON_PRIORITY ||
                     v->reason == REASON_RESERVATION;
        if (waits && v->eligible_ms &&
            (!g->in.oldest_eligible_ms || v->eligible_ms < g->in.oldest_eligible_ms))
            g->in.oldest_eligible_ms = v->eligible_ms;
    }
    g->after = v->id;
    g->cut = sliced_read_over(&g->read, 1);
    return !g->cut;
}

static const struct gpu_sample *device_sample(const struct message_telemetry *t, uint32_t index) {
    for (uint32_t i = 0; t && i < t->gpus.len; i++)
        if (t->gpus.at[i].index == index && !t->gpus.at[i].id)
            return &t->gpus.at[i];
    return NULL;
}

static uint32_t granted_milli(struct gathering *g, uint64_t id, const char *node, uint32_t index) {
    cleanup_arena struct arena a = {0};
    struct job_record r;
    if (core_record(g->read.controller->core, id, &a, &r) < 0)
        return 0;
    for (uint32_t i = 0; i < r.parts.len; i++)
        for (uint32_t k = 0; streq(r.parts.at[i].node, node) && k < r.parts.at[i].gpus.len; k++)
            if (r.parts.at[i].gpus.at[k].index == index)
                return r.parts.at[i].gpus.at[k].milli;
    return 0;
}

static void add_job_gpus(struct gathering *g, const struct node_view *v, const struct message_telemetry *t) {
    for (uint32_t i = 0; t && i < t->gpus.len; i++) {
        const struct gpu_sample *s = &t->gpus.at[i];
        struct job_view job;
        if (!s->id || s->index >= v->node->gpus.len || !core_view(g->read.controller->core, s->id, &job))
            continue;
        enum job_sight sight = job_sight(g->read.controller, &g->viewer, job.user, job.project);
        if (sight == SIGHT_NONE)
            continue;
        struct metrics_job_gpu m = {.job = s->id,
                                    .user = sight >= SIGHT_PUBLIC ? job.user : "",
                                    .project = job.project,
                                    .node = v->node->name,
                                    .uuid = v->node->gpus.at[s->index].uuid,
                                    .sample = s,
                                    .grant_milli = granted_milli(g, s->id, v->node->name, s->index),
                                    .idle_s =
                                        telemetry_gpu_idle_s(g->read.controller, s->id, v->node->name, s->index)};
        if (job.array_id)
            m.label = arena_printf(&g->arena, "%llu_%u", (unsigned long long)job.array_id, job.array_index);
        vec_push(&g->job_gpus, m);
    }
}

static void add_to_partitions(struct gathering *g, const struct node_view *v) {
    uint32_t room = v->node->cpus > v->cpus_used ? v->node->cpus - v->cpus_used : 0;
    bool takes_jobs = v->state == NODE_UP && !v->drained;
    for (uint32_t i = 0; i < g->partitions.len; i++) {
        struct members *p = &g->partitions.at[i];
        if (!p->all && !strmap_get(&p->nodes, v->node->name))
            continue;
        p->group->cpus_total += v->node->cpus;
        p->group->cpus_idle += takes_jobs ? room : 0;
        p->group->cpus_other += takes_jobs ? 0 : room;
    }
}

static void add_bookings(const struct gathering *g, const char *node, struct metrics_node *m) {
    for (uint32_t i = 0; i < g->bookings.len; i++) {
        const struct booking *b = &g->bookings.at[i];
        if (!b->all && !strmap_get(&b->nodes, node))
            continue;
        m->maintenance |= b->maintenance;
        m->reserved |= !b->maintenance;
    }
}

static bool add_node(void *ctx, const struct node_view *v) {
    struct gathering *g = ctx;
    const struct message_telemetry *t = telemetry_latest(g->read.controller, v->node->name);
    struct metrics_node m = {.name = v->node->name,
                             .state = v->state,
                             .drained = v->drained,
                             .cpus = v->node->cpus,
                             .cpus_used = v->cpus_used,
                             .jobs = v->jobs,
                             .memory_bytes = v->node->memory_bytes,
                             .memory_used_bytes = v->memory_used_bytes,
                             .gpus_milli = v->node->gpus.len * 1000,
                             .gpus_used_milli = v->gpus_used_milli,
                             .telemetry = t};
    m.completing = v->stale || core_node_ending(g->read.controller->core, v->node->name);
    add_bookings(g, v->node->name, &m);
    uint32_t held[NODE_GPUS_MAX];
    core_node_gpus(g->read.controller->core, v->node->name, held, NODE_GPUS_MAX);
    for (uint32_t i = 0; i < v->node->gpus.len && i < NODE_GPUS_MAX; i++) {
        m.gpu_unhealthy |= v->node->gpus.at[i].unhealthy != NULL;
        struct metrics_gpu gpu = {.node = v->node->name,
                                  .index = i,
                                  .gpu = &v->node->gpus.at[i],
                                  .allocated_milli = held[i],
                                  .sample = device_sample(t, i)};
        vec_push(&g->gpus, gpu);
    }
    vec_push(&g->nodes, m);
    add_to_partitions(g, v);
    add_job_gpus(g, v, t);
    return true;
}

// The groups of one kind as a list, in order of name so that the page is the same each time.
static int by_name(const void *a, const void *b) {
    return strcmp(((const struct metrics_group *)a)->name, ((const struct metrics_group *)b)->name);
}

static struct metrics_group *list_groups(struct gathering *g, int kind, uint32_t *len) {
    struct metrics_group *list = arena_alloc(&g->arena, g->groups[kind].len * sizeof *list);
    size_t it = 0;
    void *v;
    *len = 0;
    while (strmap_next(&g->groups[kind], &it, NULL, &v))
        list[(*len)++] = *(struct metrics_group *)v;
    qsort(list, *len, sizeof *list, by_name);
    strmap_done(&g->groups[kind]);
    return list;
}

// Routes are counted by their place in the table and the status; 0 stands for no route at all.
void api_replied(const struct net_request *req, int status, bool streams, void *user) {
    struct controller *c = user;
    uint64_t key = (uint64_t)req->tag << 16 | (uint32_t)status;
    uint64_t *count = map_get(&c->replies, key);
    if (!count) {
        count = xcalloc(1, sizeof *count);
        map_put(&c->replies, key, count);
    }
    ++*count;
    audit_reply(c, req, status);
    if (!streams && req->began_us)
        metrics_observe(&c->request_times, (uint64_t)(clock_mono_us() - req->began_us));
}

static int by_route(const void *a, const void *b) {
    const struct metrics_route *x = a, *y = b;
    int r = strcmp(x->route, y->route);
    r = r ? r : strcmp(x->method, y->method);
    return r ? r : (int)x->code - (int)y->code;
}

static void add_routes(struct gathering *g) {
    struct map *m = &g->read.controller->replies;
    struct metrics_route *list = arena_alloc(&g->arena, (m->len + 1) * sizeof *list);
    uint32_t n = 0;
    size_t it = 0;
    uint64_t key;
    void *v;
    while (map_next(m, &it, &key, &v)) {
        const struct route *r = key >> 16 ? &api_routes[(key >> 16) - 1] : NULL;
        list[n++] = (struct metrics_route){.route = r ? r->path : "none",
                                           .method = r ? r->method : "",
                                           .code = key & 0xffff,
                                           .count = *(uint64_t *)v};
    }
    qsort(list, n, sizeof *list, by_route);
    g->in.routes.at = list;
    g->in.routes.len = n;
}

static uint64_t size_of(const char *path) {
    struct statvfs v;
    return statvfs(path, &v) == 0 ? (uint64_t)v.f_blocks * v.f_frsize : 0;
}

static bool add_quota(void *ctx, const char *name, const void *value) {
    struct gathering *g = ctx;
    struct metrics_group *m = group(g, 1, name);
    struct core *core = g->read.controller->core;
    struct sched_project_figures f;
    m->quota_milligpu = ((const struct project *)value)->quota_milligpu;
    if (world_project_figures(core_world(core), core_handle(core, ENTITY_PROJECT, name), &f) &&
        f.quota_milligpu > 0)
        m->share_milligpu = (uint64_t)f.quota_milligpu;
    return true;
}

static bool add_partition(void *ctx, const char *name, const void *value) {
    struct gathering *g = ctx;
    const struct partition *p = value;
    struct name_list names = {0};
    struct members m = {.group = group(g, 2, name), .all = str_empty(p->nodes)};
    if (!m.all && nodelist_expand(p->nodes, &g->arena, &names, NULL) == 0)
        for (uint32_t i = 0; i < names.len; i++)
            strmap_put(&m.nodes, names.at[i], g);
    vec_push(&g->partitions, m);
    return true;
}

static bool add_booking(void *ctx, const char *name, const void *value) {
    struct gathering *g = ctx;
    const struct reservation *r = value;
    struct name_list names = {0};
    struct booking b = {.maintenance = r->maintenance, .all = str_empty(r->nodes)};
    if (r->start_ms > g->in.now_ms || (r->end_ms && r->end_ms <= g->in.now_ms))
        return true;
    if (!b.all && nodelist_expand(r->nodes, &g->arena, &names, NULL) == 0)
        for (uint32_t i = 0; i < names.len; i++)
            strmap_put(&b.nodes, names.at[i], g);
    vec_push(&g->bookings, b);
    return true;
}

static void gathering_free(struct sliced_read *r) {
    struct gathering *g = (struct gathering *)r;
    for (uint32_t i = 0; i < g->partitions.len; i++)
        strmap_done(&g->partitions.at[i].nodes);
    for (uint32_t i = 0; i < g->bookings.len; i++)
        strmap_done(&g->bookings.at[i].nodes);
    for (int kind = 0; kind < 3; kind++)
        strmap_done(&g->groups[kind]);
    vec_done(&g->nodes);
    vec_done(&g->gpus);
    vec_done(&g->job_gpus);
    vec_done(&g->partitions);
    vec_done(&g->bookings);
    arena_done(&g->arena);
    free(g);
}

// Entities, nodes and what the core and the store count by themselves.
static void add_cluster(struct gathering *g) {
    struct controller *c = g->read.controller;
    struct metrics_input *in = &g->in;
    struct core_counts n;
    struct core_passes passes;
    core_counts(c->core, &n);
    memcpy(in->jobs_by_state, n.by_state, sizeof in->jobs_by_state);
    in->submitted = n.submitted;
    in->requeued = n.requeued;
    in->preempted = n.preempted;
    core_each_entity(c->core, ENTITY_PROJECT, add_quota, g);
    core_each_entity(c->core, ENTITY_PARTITION, add_partition, g);
    core_each_entity(c->core, ENTITY_RESERVATION, add_booking, g);
    core_each_node(c->core, add_node, g);
    uint32_t len;
    struct metrics_group *users = list_groups(g, 0, &len);
    in->users.at = users, in->users.len = len;
    struct metrics_group *projects = list_groups(g, 1, &len);
    in->projects.at = projects, in->projects.len = len;
    struct metrics_group *partitions = list_groups(g, 2, &len);
    in->partitions.at = partitions, in->partitions.len = len;
    in->nodes.at = g->nodes.at, in->nodes.len = g->nodes.len;
    in->gpus.at = g->gpus.at, in->gpus.len = g->gpus.len;
    in->job_gpus.at = g->job_gpus.at, in->job_gpus.len = g->job_gpus.len;
    struct metrics_service *services = serve_metrics(c, &g->viewer, &g->arena, &len);
    in->services.at = services, in->services.len = len;
    core_passes(c->core, &passes);
    in->started = passes.started;
    in->pass_jobs = passes.looked_at;
    in->backfilled = passes.backfilled;
}

static void answer(struct gathering *g) {
    struct controller *c = g->read.controller;
    struct metrics_input *in = &g->in;
    cleanup_buf struct buf b = {0};
    struct store_stats s;
    store_stats(c->store, &s);
    in->now_ms = controller_now_ms();
    in->format = metrics_negotiate(http_message_header(g->read.req->http, "Accept"));
    add_cluster(g);
    in->pass = &c->pass_times;
    in->pass_last_us = (uint64_t)c->schedule_us;
    in->request = &c->request_times;
    in->recent = telemetry_recent(c);
    add_routes(g);
    in->connections = net_server_connections(c->server);
    in->journal_events = s.records;
    in->journal_bytes = s.file_bytes;
    in->journal_waiting = s.waiting_batches;
    in->journal_commits = s.commits;
    in->journal_commit_us = s.commit_us_total;
    struct metrics_storage storage = {
        .path = c->paths.state, .free_bytes = s.free_bytes, .size_bytes = size_of(c->paths.state)};
    in->storage.at = &storage, in->storage.len = 1;
    metrics_process_self(&in->process);
    metrics_controller(in, &b);
    net_reply(g->read.req, 200, metrics_content_type(in->format), b.data, b.len);
}

static bool run(struct sliced_read *r) {
    struct gathering *g = (struct gathering *)r;
    g->cut = false;
    core_each_job_after(r->controller->core, g->after, add_job, g);
    if (!g->cut)
        answer(g);
    return !g->cut;
}

void api_metrics(struct api_call *call) {
    struct gathering *g = xcalloc(1, sizeof *g);
    g->read = (struct sliced_read){.run = run, .free = gathering_free};
    g->viewer = call->actor;
    g->viewer.user = arena_strdup(&g->arena, call->actor.user);
    g->in.version = ACEQUIA_VERSION;
    g->in.start_ms = call->controller->started_ms;
    sliced_read_begin(&g->read, call);
}
