// Owns copying a world: by the same deltas a caller would use, so a copy is a world like any other
// and equal in everything that decides.
#include <string.h>

#include "base/cleanup.h"
#include "mix.h"

static void clone_nodes(struct world *to, const struct world *w) {
    for (uint32_t i = 0; i < w->nodes.len; i++) {
        const struct node *n = w->nodes.at[i];
        if (!n || (!n->present && !n->jobs.len))
            continue;
        struct sched_gpu gpus[SCHED_GPUS_MAX];
        for (uint32_t g = 0; g < n->gpu_count; g++)
            gpus[g] = (struct sched_gpu){w->models.at[n->gpus[g].model], n->gpus[g].memory_bytes,
                                         n->gpus[g].group, !n->gpus[g].usable, n->gpus[g].socket};
        const char *features[SCHED_FEATURES_MAX];
        uint32_t count = 0;
        for (uint32_t f = 0; f < w->features.len; f++)
            if (n->features.bits[f / 64] >> (f % 64) & 1)
                features[count++] = w->features.at[f];
        struct sched_node s = {.id = n->id, .name = n->name, .state = n->state, .cpus = n->cpus,
                               .memory_bytes = n->memory, .gpus = gpus, .gpu_count = n->gpu_count,
                               .features = features, .feature_count = count};
        world_node_set(to, &s, NULL);
    }
}

static void clone_partitions(struct world *to, const struct world *w) {
    for (uint32_t i = 0; i < w->partitions.len; i++) {
        const struct partition *p = world_partition(w, i);
        if (!p)
            continue;
        struct sched_partition s = {.id = p->id, .name = p->name, .all_nodes = p->all_nodes, .nodes = p->nodes.at,
                                    .node_count = p->nodes.len, .default_time_ms = p->default_time_ms,
                                    .max_time_ms = p->max_time_ms, .tier = p->tier, .fifo = p->fifo,
                                    .closed = p->closed};
        world_partition_set(to, &s, NULL);
    }
}

bool project_export(const struct world *w, uint32_t id, struct sched_project *out,
                    struct sched_model_quota quotas[SCHED_MODELS_MAX]) {
    const struct project *p = world_project(w, id);
    if (!p || !id)
        return false;
    uint32_t n = p->models.len < SCHED_MODELS_MAX ? p->models.len : SCHED_MODELS_MAX;
    for (uint32_t k = 0; k < n; k++)
        quotas[k] = (struct sched_model_quota){w->models.at[p->models.at[k].model], p->models.at[k].quota,
                                               p->models.at[k].limit};
    *out = (struct sched_project){.id = p->id,
                                  .parent = p->parent,
                                  .name = p->name,
                                  .quota_milligpu = p->quota[DIM_GPU],
                                  .quota_rest = p->quota_rest,
                                  .weight_milli = p->weight,
                                  .limit_milligpu = p->limit[DIM_GPU],
                                  .quota_cpus = p->quota[DIM_CPU],
                                  .limit_cpus = p->limit[DIM_CPU],
                                  .models = quotas,
                                  .model_count = n,
                                  .nodes = p->nodes.at,
                                  .node_count = p->nodes.len,
                                  .interactive_limit_ms = p->interactive_limit_ms};
    return true;
}

static void clone_projects(struct world *to, const struct world *w) {
    for (uint32_t i = 0; i < w->projects.len; i++) {
        struct sched_model_quota quotas[SCHED_MODELS_MAX];
        struct sched_project s;
        if (project_export(w, i, &s, quotas))
            world_project_set(to, &s, NULL);
    }
}

static void clone_rest(struct world *to, const struct world *w) {
    for (uint32_t i = 0; i < w->qos.len; i++) {
        const struct qos *q = world_qos(w, i);
        if (!q)
            continue;
        struct sched_qos s = {.id = q->id, .name = q->name, .priority = q->priority,
                              .max_jobs_per_user = q->max_jobs_per_user,
                              .max_gpu_milli_per_user = q->max_gpu_milli_per_user,
                              .max_gpu_milli = q->max_gpu_milli, .max_cpus_per_user = q->max_cpus_per_user,
                              .max_time_ms = q->max_time_ms, .preempts = q->preempts.at,
                              .preempts_count = q->preempts.len, .usage_factor_milli = q->usage_factor_milli,
                              .preemptible = q->preemptible};
        world_qos_set(to, &s, NULL);
    }
    for (uint32_t i = 0; i < w->reservations.len; i++) {
        const struct reservation *r = w->reservations.at[i];
        struct sched_reservation s = {.id = r->id, .name = r->name, .start_ms = r->start_ms, .end_ms = r->end_ms,
                                      .nodes = r->nodes.at, .node_count = r->nodes.len,
                                      .maintenance = r->maintenance, .users = r->users.at,
                                      .user_count = r->users.len, .projects = r->projects.at,
                                      .project_count = r->projects.len};
        world_reservation_set(to, &s, NULL);
    }
}

static void clone_users(struct map *to, const struct map *from) {
    size_t it = 0;
    void *v;
    while (map_next(from, &it, NULL, &v)) {
        const struct user *u = v;
        struct user *c = map_get(to, u->key);
        if (!c) {
            c = xcalloc(1, sizeof *c);
            map_put(to, u->key, c);
        }
        *c = *u;
        c->pass = 0;
    }
}

static int by_id(const void *pa, const void *pb) {
    const struct job *a = *(struct job *const *)pa, *b = *(struct job *const *)pb;
    return (a->id > b->id) - (a->id < b->id);
}

// By id: in the order of one hash table, another fills up in clusters.
static void clone_jobs(struct world *to, const struct world *w) {
    VEC(struct job *) jobs = {0};
    size_t it = 0;
    void *v;
    while (map_next(&w->jobs, &it, NULL, &v))
        vec_push(&jobs, v);
    if (jobs.len)
        qsort(jobs.at, jobs.len, sizeof *jobs.at, by_id);
    const struct request *from = NULL, *r = NULL;
    for (uint32_t i = 0; i < jobs.len; i++) {
        const struct job *j = jobs.at[i];
        if (j->request != from) {
            world_request_unref(to, r);
            r = world_request(to, &j->request->asked);
            from = j->request;
        }
        struct sched_job s = {.id = j->id, .request = r, .submit_ms = j->submit_ms, .begin_ms = j->begin_ms,
                              .hold = (enum sched_hold)j->hold, .restarts = j->restarts};
        world_job_add(to, &s);
        if (j->state == SCHED_JOB_PENDING)
            continue;
        world_job_start_in(to, j->id, j->partition, j->alloc, j->start_ms);
        world_find(to, j->id)->limit_ms = j->limit_ms;
        if (j->state == SCHED_JOB_ENDING)
            world_job_ending(to, j->id, j->ending_for);
    }
    world_request_unref(to, r);
    for (uint32_t i = 0; i < jobs.len && w->gave.len; i++) {
        uint32_t gave;
        cleanup_free struct sched_gave *list = world_job_gave(w, jobs.at[i]->id, &gave);
        world_job_gave_set(to, jobs.at[i]->id, list, gave);
    }
    vec_done(&jobs);
}

struct world *world_clone(const struct world *w) {
    struct world *to = world_new();
    to->half_life_ms = w->half_life_ms;
    for (uint32_t i = 0; i < w->models.len; i++)  // same numbers: the request mix uses them
        world_model(to, w->models.at[i], true);
    for (uint32_t i = 0; i < w->features.len; i++)
        world_feature(to, w->features.at[i], true);
    clone_nodes(to, w);
    clone_partitions(to, w);
    clone_projects(to, w);
    clone_rest(to, w);
    clone_jobs(to, w);
    for (uint32_t i = 0; i < w->nodes.len; i++)
        if (w->nodes.at[i] && !w->nodes.at[i]->present)
            world_node_remove(to, i);
    for (uint32_t i = 0; i < to->takers.len; i++)  // a taker that started and came back is none now
        world_find(to, to->takers.at[i])->taker = false;
    vec_clear(&to->takers);
    for (uint32_t i = 0; i < w->takers.len; i++) {
        struct job *j = world_find(to, w->takers.at[i]);
        if (j && world_find(w, j->id)->taker && !j->taker) {
            j->taker = true;
            vec_push(&to->takers, j->id);
        }
    }
    mix_clone(to, w);
    clone_users(&to->users, &w->users);
    clone_users(&to->qos_users, &w->qos_users);
    return to;
}
