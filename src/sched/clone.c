// Copies a world by the calls any caller would use, so that a copy is equal in everything that decides.
#include <string.h>

#include "base/cleanup.h"
#include "request_mix.h"

static void clone_nodes(struct world *to, const struct world *w) {
    for (uint32_t i = 0; i < w->cluster.nodes.len; i++) {
        const struct world_node *n = w->cluster.nodes.at[i];
        if (!n || (!n->present && !n->jobs.len && !(n->optional && n->optional->jobs.len)))
            continue;
        struct sched_gpu gpus[SCHED_GPUS_MAX];
        for (uint32_t g = 0; g < n->gpu_count; g++)
            gpus[g] = (struct sched_gpu){w->cluster.models.at[n->gpus[g].model], n->gpus[g].memory_bytes,
                                         n->gpus[g].group, !n->gpus[g].usable, n->gpus[g].socket};
        const char *features[SCHED_FEATURES_MAX];
        uint32_t count = 0;
        for (uint32_t f = 0; f < w->cluster.features.len; f++)
            if (n->features.bits[f / 64] >> (f % 64) & 1)
                features[count++] = w->cluster.features.at[f];
        struct sched_node s = {.id = n->id,
                               .name = n->name,
                               .state = n->state,
                               .cpus = n->cpus,
                               .memory_bytes = n->memory,
                               .gpus = gpus,
                               .gpu_count = n->gpu_count,
                               .features = features,
                               .feature_count = count,
                               .user = n->user,
                               .until_ms = n->until_ms};
        world_node_set(to, &s, NULL);
    }
}

static void clone_partitions(struct world *to, const struct world *w) {
    for (uint32_t i = 0; i < w->rules.partitions.len; i++) {
        const struct world_partition *p = world_partition(w, i);
        if (!p)
            continue;
        struct sched_partition s = {.id = p->id,
                                    .name = p->name,
                                    .all_nodes = p->all_nodes,
                                    .nodes = p->nodes.at,
                                    .node_count = p->nodes.len,
                                    .default_time_ms = p->default_time_ms,
                                    .max_time_ms = p->max_time_ms,
                                    .tier = p->tier,
                                    .fifo = p->fifo,
                                    .closed = p->closed};
        world_partition_set(to, &s, NULL);
    }
}

bool sched_project_export(const struct world *w, uint32_t id, struct sched_project *out,
                          struct sched_model_quota quotas[SCHED_MODELS_MAX]) {
    const struct world_project *p = world_project(w, id);
    if (!p || !id)
        return false;
    uint32_t n = p->models.len < SCHED_MODELS_MAX ? p->models.len : SCHED_MODELS_MAX;
    for (uint32_t k = 0; k < n; k++)
        quotas[k] = (struct sched_model_quota){w->cluster.models.at[p->models.at[k].model], p->models.at[k].quota,
                                               p->models.at[k].limit};
    *out = (struct sched_project){.id = p->id,
                                  .parent = p->parent,
                                  .name = p->name,
                                  .quota_milligpu = p->quota[DIM_GPU],
                                  .quota_rest = p->quota_rest,
                                  .closed = p->closed,
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
    for (uint32_t i = 0; i < w->rules.projects.len; i++) {
        struct sched_model_quota quotas[SCHED_MODELS_MAX];
        struct sched_project s;
        if (sched_project_export(w, i, &s, quotas))
            world_project_set(to, &s, NULL);
    }
}

static void clone_rest(struct world *to, const struct world *w) {
    for (uint32_t i = 0; i < w->rules.qos.len; i++) {
        const struct world_qos *q = world_qos(w, i);
        if (!q)
            continue;
        struct sched_qos s = {.id = q->id,
                              .name = q->name,
                              .priority = q->priority,
                              .max_jobs_per_user = q->max_jobs_per_user,
                              .max_gpu_milli_per_user = q->max_gpu_milli_per_user,
                              .max_gpu_milli = q->max_gpu_milli,
                              .max_cpus_per_user = q->max_cpus_per_user,
                              .max_time_ms = q->max_time_ms,
                              .preempts = q->preempts.at,
                              .preempts_count = q->preempts.len,
                              .usage_factor_milli = q->usage_factor_milli,
                              .preemptible = q->preemptible};
        world_qos_set(to, &s, NULL);
    }
    for (uint32_t i = 0; i < w->rules.licenses.len; i++) {
        const struct world_license *l = world_license(w, i);
        if (l)
            world_license_set(to, &(struct sched_license){.id = i, .name = l->name, .count = l->count}, NULL);
    }
    for (uint32_t i = 0; i < w->rules.reservations.len; i++) {
        const struct world_reservation *r = w->rules.reservations.at[i];
        struct sched_reservation s = {.id = r->id,
                                      .name = r->name,
                                      .start_ms = r->start_ms,
                                      .end_ms = r->end_ms,
                                      .nodes = r->nodes.at,
                                      .node_count = r->nodes.len,
                                      .maintenance = r->maintenance,
                                      .users = r->users.at,
                                      .user_count = r->users.len,
                                      .projects = r->projects.at,
                                      .project_count = r->projects.len};
        world_reservation_set(to, &s, NULL);
    }
}

static void clone_users(struct map *to, const struct map *from) {
    size_t it = 0;
    void *v;
    while (map_next(from, &it, NULL, &v)) {
        const struct world_user *u = v;
        struct world_user *c = map_get(to, u->key);
        if (!c) {
            c = xcalloc(1, sizeof *c);
            map_put(to, u->key, c);
        }
        *c = *u;
        memset(&c->cached, 0, sizeof c->cached);  // pass numbers start again in the copy
    }
}

static int by_id(const void *pa, const void *pb) {
    const struct world_job *a = *(struct world_job *const *)pa, *b = *(struct world_job *const *)pb;
    return (a->id > b->id) - (a->id < b->id);
}

// In the order of ids: copying one hash table into another in its own order makes long chains.
static void clone_jobs(struct world *to, const struct world *w) {
    VEC(struct world_job *) jobs = {0};
    size_t it = 0;
    void *v;
    while (map_next(&w->jobs.by_id, &it, NULL, &v))
        vec_push(&jobs, v);
    if (jobs.len)
        qsort(jobs.at, jobs.len, sizeof *jobs.at, by_id);
    const struct world_request *from = NULL, *r = NULL;
    for (uint32_t i = 0; i < jobs.len; i++) {
        const struct world_job *j = jobs.at[i];
        if (j->request != from) {
            world_request_unref(to, r);
            r = world_request(to, &j->request->asked);
            from = j->request;
        }
        struct sched_job s = {.id = j->id,
                              .request = r,
                              .submit_ms = j->submit_ms,
                              .begin_ms = j->begin_ms,
                              .hold = (enum sched_hold)j->hold,
                              .restarts = j->restarts,
                              .group = j->group};
        world_job_add(to, &s);
        world_job_rank(to, j->id, j->rank);
        if (j->state == SCHED_JOB_PENDING)
            continue;
        world_job_start_in(to, j->id, j->partition, j->alloc, j->start_ms);
        world_find(to, j->id)->limit_ms = j->limit_ms;
        if (j->state == SCHED_JOB_ENDING)
            world_job_ending(to, j->id, j->ending_for);
    }
    world_request_unref(to, r);
    for (uint32_t i = 0; i < jobs.len && w->jobs.preempted.len; i++) {
        uint32_t count;
        cleanup_free struct sched_preemption *list = world_job_preemptions(w, jobs.at[i]->id, &count);
        world_job_preemptions_set(to, jobs.at[i]->id, list, count);
    }
    vec_done(&jobs);
}

struct world *world_clone(const struct world *w) {
    struct world *to = world_new();
    to->usage.half_life_ms = w->usage.half_life_ms;
    for (uint32_t i = 0; i < w->cluster.models.len; i++)  // same indexes: the request mix refers to them
        world_model(to, w->cluster.models.at[i], true);
    for (uint32_t i = 0; i < w->cluster.features.len; i++)
        world_feature(to, w->cluster.features.at[i], true);
    clone_nodes(to, w);
    clone_partitions(to, w);
    clone_projects(to, w);
    clone_rest(to, w);
    clone_jobs(to, w);
    for (uint32_t i = 0; i < w->cluster.nodes.len; i++)
        if (w->cluster.nodes.at[i] && !w->cluster.nodes.at[i]->present)
            world_node_remove(to, i);
    for (uint32_t i = 0; i < to->jobs.preemptors.len; i++)  // one that started and was requeued is no preemptor now
        world_find(to, to->jobs.preemptors.at[i])->preemptor = false;
    vec_clear(&to->jobs.preemptors);
    for (uint32_t i = 0; i < w->jobs.preemptors.len; i++) {
        struct world_job *j = world_find(to, w->jobs.preemptors.at[i]);
        if (j && world_find(w, j->id)->preemptor && !j->preemptor) {
            j->preemptor = true;
            vec_push(&to->jobs.preemptors, j->id);
        }
    }
    to->jobs.releases =
        w->jobs.releases + w->version.config + w->version.nodes - to->version.config - to->version.nodes;
    for (uint32_t i = 0; i < w->jobs.promised.len; i++) {
        const struct world_job *j = w->jobs.promised.at[i];
        const struct world_promise *m = j->promise;
        world_job_promise(to, j->id, m->start_ms, m->partition, m->nodes, m->count);
        world_find(to, j->id)->promise->searched = m->searched;
    }
    sched_optional_clone(to, w);
    sched_mix_clone(to, w);
    clone_users(&to->usage.users, &w->usage.users);
    clone_users(&to->usage.qos_users, &w->usage.qos_users);
    return to;
}
