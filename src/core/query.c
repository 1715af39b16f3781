// Queries: views of jobs and nodes, counts, and the lists of projects, partitions, QoS, reservations and
// tokens. Nothing here changes the state.
#include "base/text.h"
#include "state.h"
#include "model/nodelist.h"

void core_fold_nodes(const struct core *c, const struct core_job *j, struct buf *out) {
    VEC(const char *) names = {0};
    for (uint32_t i = 0; j->run && i < j->run->part_count; i++)
        vec_push(&names, j->run->parts[i].node->name);
    if (core_is_group(j) && j->run) {
        vec_reserve(&names, c->node_list.len);
        names.len = core_group_nodes(c, j->sub->group, names.at, c->node_list.len);
    }
    nodelist_fold(names.at, names.len, out);
    vec_done(&names);
}

static void view_workers(const struct core *c, const struct core_job *j, struct job_view *v) {
    struct core_group_counts n;
    if (core_is_worker(j)) {
        v->job = j->sub->group->id;
        v->worker = j->array_index;
        v->optional = core_is_optional(j);
        v->components = j->sub->group->components.len;
        v->component = core_component_of(j->sub->group, core_worker_of(j))->name;
        if (core_component_of(j->sub->group, core_worker_of(j))->sub)
            return;
        v->cpus /= v->tasks ? v->tasks : 1;
        v->gpus_milli /= v->tasks ? v->tasks : 1;
        v->memory_bytes /= v->tasks ? v->tasks : 1;
        v->tasks = v->node_count = 1;
        return;
    }
    core_group_counts(c, j->sub->group, &n);
    v->workers_min = n.least;
    v->workers_max = n.most;
    v->workers_running = n.running;
    v->components = j->sub->group->components.len;
    v->node_count = j->sub->nodes_min;
    if (!j->run)
        return;
    v->tasks = n.running;
    v->cpus = n.cpus;
    v->memory_bytes = n.memory_bytes;
    v->gpus_milli = n.gpus_milli;
    v->node_count = core_group_nodes(c, j->sub->group, NULL, UINT32_MAX);
}

static void view_of(const struct core *c, const struct core_job *j, struct job_view *v) {
    const struct submission *s = j->sub;
    *v = (struct job_view){
        .id = j->id,
        .array_id = s->is_array ? s->id : 0,
        .array_index = s->is_array ? j->array_index : 0,
        .array_limit = s->array ? s->array->limit : 0,
        .name = s->name,
        .user = s->user,
        .project = s->project,
        .partition = j->run && j->run->partition ? j->run->partition : s->partition,
        .qos = s->qos,
        .class = (enum job_class)s->class,
        .state = (enum job_state)j->state,
        .reason = core_reason_of(c, j),
        .attempt = j->attempt,
        .tasks = s->tasks,
        .cpus = s->cpus,
        .node_count = j->run ? j->run->part_count : s->nodes_min,
        .time_limit_s = j->run ? j->run->time_limit_s : s->time_limit_s,
        .steps = j->steps,
        .priority = s->priority,
        .preempted = j->preempted,
        .uid = s->uid,
        .memory_bytes = s->memory_bytes,
        .gpus_milli = s->gpus_milli,
        .submit_ms = s->submit_ms,
        .eligible_ms = j->eligible_ms,
        .start_ms = j->start_ms,
        .expected_start_ms = j->state == JOB_PENDING ? (int64_t)j->expected_start_s * 1000 : 0,
        .suspended_ms = j->run ? j->run->suspended_ms : 0,
        .suspend_ms = j->run ? j->run->suspend_ms : 0,
        .ending_reason = j->run ? j->run->reason : NULL,
        .ending = j->run && j->run->ending ? schema_word_name(event_end_cause_words, j->run->cause) : NULL,
        .spec_bytes = s->spec,
        .spec_len = s->spec_len,
        .held = j->flags & (HELD_USER | HELD_ADMIN),
        .nice = s->nice};
    const struct core_job *program = core_is_group(j) && core_group_has_head(s->group)
                                         ? core_group_head(c, s->group)
                                         : j;  // what a job with a head serves is its head's
    v->health = program ? core_health_of(program, &v->health_reason) : HEALTH_NONE;
    if (s->group)
        view_workers(c, j, v);
    if (!j->run || core_is_group(j))
        return;
    v->cpus = 0;  // what it has may be more than it asked for: nodes of its own
    v->memory_bytes = 0;
    for (uint32_t i = 0; i < j->run->part_count; i++) {
        v->cpus += j->run->parts[i].cpus;
        v->memory_bytes += j->run->parts[i].memory_bytes;
    }
}

int64_t core_view_paused_ms(const struct job_view *v, int64_t now_ms) {
    int64_t now = v->state == JOB_SUSPENDED ? now_ms - v->suspend_ms : 0;
    return v->suspended_ms + (now > 0 ? now : 0);
}

uint64_t core_agent_job_number(const struct core *c, uint64_t id, uint32_t attempt) {
    const struct core_job *j = core_find_job(c, id);
    return j && j->run && j->attempt == attempt ? core_agent_job(j) : 0;
}

uint64_t core_attempt_epoch(const struct core *c, uint64_t id) {
    const struct core_job *j = core_find_job(c, id);
    return j && j->run ? j->run->epoch : 0;
}

bool core_has_job(const struct core *c, uint64_t id) {
    return core_find_job(c, id) != NULL;
}

bool core_view(const struct core *c, uint64_t id, struct job_view *out) {
    const struct core_job *j = core_find_job(c, id);
    if (j)
        view_of(c, j, out);
    return j != NULL;
}

void core_each_job_after(const struct core *c, uint64_t after,
                         bool (*fn)(void *ctx, const struct job_view *v), void *ctx) {
    for (uint32_t i = core_order_after(c, after); i < c->order.len; i++) {
        struct job_view v;
        if (!c->order.at[i].job)
            continue;
        view_of(c, c->order.at[i].job, &v);
        if (!fn(ctx, &v))
            return;
    }
}

void core_each_job(const struct core *c, bool (*fn)(void *ctx, const struct job_view *v), void *ctx) {
    core_each_job_after(c, 0, fn, ctx);
}

bool core_is_array(const struct core *c, uint64_t id) {
    return map_get(&c->arrays, id) != NULL;
}

uint64_t core_worker(const struct core *c, uint64_t job, uint32_t number) {
    const struct group *g = map_get(&c->groups, job);
    return g && number < g->workers.len ? g->workers.at[number].id : 0;
}

uint64_t core_head(const struct core *c, uint64_t job) {
    const struct group *g = map_get(&c->groups, job);
    const struct core_job *head = g && core_group_has_head(g) ? core_group_head(c, g) : NULL;
    return head ? head->id : 0;
}

uint32_t core_worker_count(const struct core *c, uint64_t job) {
    const struct group *g = map_get(&c->groups, job);
    return g ? g->workers.len : 0;
}

uint64_t core_newest_id(const struct core *c) {
    return c->next_id - 1;
}

uint64_t core_array_size(const struct core *c, uint64_t id) {
    const struct array *a = map_get(&c->arrays, id);
    return a ? a->count : 0;
}

void core_each_element(const struct core *c, uint64_t array_id, uint64_t after,
                       bool (*fn)(void *ctx, const struct job_view *v), void *ctx) {
    const struct array *a = map_get(&c->arrays, array_id);
    for (uint64_t k = a && after >= a->id ? after - a->id + 1 : 0; a && k < a->created; k++) {
        const struct core_job *j = core_find_job(c, a->id + k);
        struct job_view v;
        if (!j)
            continue;
        view_of(c, j, &v);
        if (!fn(ctx, &v))
            return;
    }
}

void core_job_nodes(const struct core *c, uint64_t id, struct buf *out) {
    const struct core_job *j = core_find_job(c, id);
    if (j)
        core_fold_nodes(c, j, out);
}

uint32_t core_job_node_names(const struct core *c, uint64_t id, const char **names, uint32_t max) {
    const struct core_job *j = core_find_job(c, id);
    uint32_t n = 0;
    if (j && core_is_group(j) && j->run)
        return core_group_nodes(c, j->sub->group, names, max);
    for (; j && j->run && n < j->run->part_count && n < max; n++)
        names[n] = j->run->parts[n].node->name;
    return n;
}

bool core_job_ending(const struct core *c, uint64_t id, uint32_t i, struct core_ending *out) {
    const struct core_job *j = core_find_job(c, id);
    if (!j || !j->run || !j->run->ending || core_is_group(j))
        return false;
    for (uint32_t k = 0; k < j->run->part_count; k++)
        if (!j->run->parts[k].ended && !i--) {
            *out = (struct core_ending){j->run->parts[k].node->name, j->run->ending_ms, j->run->grace_s};
            return true;
        }
    return false;
}

static void node_view_of(const struct node_entry *n, struct node_view *v) {
    *v = (struct node_view){.node = n->node, .state = n->state, .drained = n->drained, .reason = n->reason, .by = n->by,
                            .reason_ms = n->reason_ms, .cpus_used = n->cpus_used, .gpus_used_milli = n->gpus_used_milli,
                            .jobs = n->jobs.len, .memory_used_bytes = n->memory_used_bytes, .stale = n->stale.len / 2,
                            .busy_ms = n->busy_ms, .launch_failures = n->launch_failures, .retry_ms = n->retry_ms,
                            .launch_reason = n->launch_reason};
}

void core_each_node(const struct core *c, bool (*fn)(void *ctx, const struct node_view *v), void *ctx) {
    for (uint32_t i = 0; i < c->node_list.len; i++) {
        struct node_view v;
        if (c->node_list.at[i]->removed)
            continue;
        node_view_of(c->node_list.at[i], &v);
        if (!fn(ctx, &v))
            return;
    }
}

bool core_node(const struct core *c, const char *name, struct node_view *out) {
    const struct node_entry *n = core_find_node(c, name);
    if (n)
        node_view_of(n, out);
    return n != NULL;
}

void core_node_gpus(const struct core *c, const char *name, uint32_t *held, uint32_t max) {
    const struct node_entry *n = core_find_node(c, name);
    memset(held, 0, max * sizeof *held);
    for (uint32_t i = 0; n && i < n->jobs.len; i++) {
        const struct run_part *p = core_part_on(n->jobs.at[i], name);
        for (uint32_t g = 0; p && g < p->gpu_count; g++)
            if (p->gpus[g].index < max)
                held[p->gpus[g].index] += p->gpus[g].milli;
    }
}

void core_each_grant(const struct core *c, const char *node,
                     void (*fn)(void *ctx, const struct core_grant *g), void *ctx) {
    const struct node_entry *n = core_find_node(c, node);
    for (uint32_t i = 0; n && i < n->jobs.len; i++) {
        const struct core_job *j = n->jobs.at[i];
        const struct run_part *p = core_part_on(n->jobs.at[i], node);
        for (uint32_t g = 0; p && g < p->gpu_count; g++)
            fn(ctx, &(struct core_grant){.job = j->id,
                                         .user = j->sub->user,
                                         .project = j->sub->project,
                                         .index = p->gpus[g].index,
                                         .milli = p->gpus[g].milli});
    }
}

void core_each_running(const struct core *c, void (*fn)(void *ctx, const struct job_view *v), void *ctx) {
    struct job_view v;
    for (uint32_t i = 0; i < c->node_list.len; i++) {
        const struct node_entry *n = c->node_list.at[i];
        for (uint32_t k = 0; k < n->jobs.len; k++) {
            const struct core_job *j = n->jobs.at[k];
            if (!j->run || !j->run->part_count || j->run->parts[0].node != n)
                continue;
            view_of(c, j, &v);
            fn(ctx, &v);
        }
    }
}

uint32_t core_live_users(const struct core *c) {
    uint32_t n = 0;
    size_t it = 0;
    void *user;
    while (strmap_next(&c->user_jobs, &it, NULL, &user))
        n += ((const struct core_user *)user)->live > 0;
    return n;
}

uint32_t core_node_ending(const struct core *c, const char *name) {
    const struct node_entry *n = core_find_node(c, name);
    uint32_t count = 0;
    for (uint32_t i = 0; n && i < n->jobs.len; i++)
        count += n->jobs.at[i]->state == JOB_COMPLETING;
    return count;
}

const char *core_node_fingerprint(const struct core *c, const char *name) {
    const struct node_entry *n = core_find_node(c, name);
    return n ? n->fingerprint : NULL;
}

void core_counts(const struct core *c, struct core_counts *out) {
    *out = c->counts;
    for (uint32_t i = 0; i < c->node_list.len; i++) {
        const struct node_entry *n = c->node_list.at[i];
        if (n->removed)
            continue;
        out->nodes++;
        out->nodes_up += n->state == NODE_UP && !n->drained;
        out->nodes_drained += n->state == NODE_UP && n->drained;
        out->nodes_down += n->state != NODE_UP;
    }
}

void core_each_entity(const struct core *c, enum entity_kind kind,
                      bool (*fn)(void *ctx, const char *name, const void *value), void *ctx) {
    for (uint32_t i = 0; i < c->entity_list[kind].len; i++) {
        const struct entity_entry *t = c->entity_list[kind].at[i];
        if (t->value && !fn(ctx, t->name, t->value))
            return;
    }
}

uint64_t core_job_version(const struct core *c, uint64_t id) {
    const struct core_job *j = core_find_job(c, id);
    return j ? j->version : 0;
}

uint64_t core_entity_version(const struct core *c, enum entity_kind kind, const char *name) {
    const struct entity_entry *e = core_find_entity(c, kind, name);
    return e && e->value ? e->version : 0;
}

bool core_entity_exists(const struct core *c, enum entity_kind kind, const char *name) {
    const struct entity_entry *e = core_find_entity(c, kind, name);
    return e && e->value;
}

void core_each_partition_of(const struct core *c, const char *node,
                            bool (*fn)(void *ctx, const char *name, const void *value), void *ctx) {
    for (uint32_t i = 0; i < c->entity_list[ENTITY_PARTITION].len; i++) {
        const struct entity_entry *t = c->entity_list[ENTITY_PARTITION].at[i];
        const struct partition *p = t->value;
        if (!p)
            continue;
        bool in = str_empty(p->nodes) || streq(p->nodes, "ALL");
        cleanup_arena struct arena a = {0};
        struct name_list names = {0};
        if (!in && nodelist_expand(p->nodes, &a, &names, NULL) == 0)
            for (uint32_t k = 0; k < names.len; k++)
                in |= streq(names.at[k], node);
        if (in && !fn(ctx, t->name, p))
            return;
    }
}

void core_each_token(const struct core *c, bool (*fn)(void *ctx, const struct event_token *t, bool used), void *ctx) {
    struct core_token_list tokens = core_tokens_by_id(c);
    for (uint32_t i = 0; i < tokens.len; i++)
        if (!fn(ctx, tokens.at[i]->token, tokens.at[i]->used))
            break;
    vec_done(&tokens);
}

struct world *core_world(struct core *c) {
    return c->world;
}

uint32_t core_license_used(const struct core *c, const char *name) {
    uint64_t used = world_license_used(c->world, core_handle(c, ENTITY_LICENSE, name));
    return used < UINT32_MAX ? (uint32_t)used : UINT32_MAX;
}

const struct policy *core_policy(const struct core *c) {
    return &c->config.policy;
}

const struct usage *core_usage(const struct core *c, uint64_t id) {
    const struct core_job *j = core_find_job(c, id);
    return j ? j->usage : NULL;
}
