// Partitions, projects, QoS and reservations: checking, copying, removing them. A project's slot stays when it is
// removed, so that the counts of its remaining jobs stay right.
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "world_state.h"

static int by_u32(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

#define COPY_IDS(to, from, n)                                                                                        \
    do {                                                                                                             \
        vec_clear(to);                                                                                               \
        for (uint32_t i_ = 0; i_ < (n); i_++)                                                                        \
            vec_push(to, (from)[i_]);                                                                                \
        if ((to)->len)                                                                                               \
            qsort((to)->at, (to)->len, sizeof *(to)->at, by_u32);                                                    \
    } while (0)

bool sched_partition_has(const struct world_partition *p, uint32_t node) {
    if (!p->present)
        return false;
    return p->all_nodes || (p->nodes.len && bsearch(&node, p->nodes.at, p->nodes.len, sizeof node, by_u32));
}

static void membership(struct world *w, uint32_t id) {
    for (uint32_t i = 0; i < w->cluster.nodes.len; i++) {
        struct world_node *n = w->cluster.nodes.at[i];
        if (!n)
            continue;
        n->partitions[id / 64] &= ~(1ULL << (id % 64));
        if (w->rules.partitions.at[id] && sched_partition_has(w->rules.partitions.at[id], n->id))
            n->partitions[id / 64] |= 1ULL << (id % 64);
    }
}

int world_partition_set(struct world *w, const struct sched_partition *from, struct error *err) {
    if (!from->id || from->id >= SCHED_PARTITIONS_MAX)
        return error_set(err, ERANGE, "partition id %u: ids go from 1 to %d", from->id, SCHED_PARTITIONS_MAX - 1);
    if (str_empty(from->name))
        return error_set(err, EINVAL, "partition %u has no name: give it one", from->id);
    if (from->default_time_ms < SCHED_UNLIMITED || from->max_time_ms < SCHED_UNLIMITED)
        return error_set(err, EINVAL, "partition %s: a time limit is negative; give 0 or more, or none",
                         from->name);
    if (from->max_time_ms >= 0 && from->default_time_ms > from->max_time_ms)
        return error_set(err, EINVAL, "partition %s: default time %lld s is above its maximum %lld s", from->name,
                         (long long)from->default_time_ms / 1000, (long long)from->max_time_ms / 1000);
    while (w->rules.partitions.len <= from->id)
        vec_push(&w->rules.partitions, NULL);
    struct world_partition *p = w->rules.partitions.at[from->id];
    if (!p)
        p = w->rules.partitions.at[from->id] = xcalloc(1, sizeof *p);
    free(p->name);
    p->id = from->id;
    p->present = true;
    p->name = xstrdup(from->name);
    p->all_nodes = from->all_nodes;
    p->fifo = from->fifo;
    p->closed = from->closed;
    p->tier = from->tier;
    p->default_time_ms = from->default_time_ms;
    p->max_time_ms = from->max_time_ms;
    COPY_IDS(&p->nodes, from->nodes, from->all_nodes ? 0 : from->node_count);
    membership(w, p->id);
    world_config_changed(w);
    return 0;
}

const char *world_partition_name(const struct world *w, uint32_t id) {
    const struct world_partition *p = world_partition(w, id);
    return p ? p->name : NULL;
}

void world_partition_remove(struct world *w, uint32_t id) {
    struct world_partition *p = world_partition(w, id);
    if (!p)
        return;
    p->present = false;
    membership(w, id);
    world_config_changed(w);
}

static int project_check(const struct world *w, const struct sched_project *p, struct error *err) {
    if (!p->id || p->id >= SCHED_PROJECTS_MAX)
        return error_set(err, ERANGE, "project id %u: ids go from 1 to %d", p->id, SCHED_PROJECTS_MAX - 1);
    if (str_empty(p->name))
        return error_set(err, EINVAL, "project %u has no name: give it one", p->id);
    if (p->quota_milligpu < 0)
        return error_set(err, EINVAL, "project %s: the quota is negative; give 0 or more", p->name);
    if (p->weight_milli < SCHED_UNLIMITED)
        return error_set(err, EINVAL, "project %s: weight %lld is negative: give 0 (nothing over quota) or more",
                         p->name, (long long)p->weight_milli);
    if (p->limit_milligpu < SCHED_UNLIMITED || p->limit_cpus < SCHED_UNLIMITED || p->quota_cpus < SCHED_UNLIMITED)
        return error_set(err, EINVAL, "project %s: a limit is negative: give 0 or more, or none", p->name);
    if (p->limit_milligpu >= 0 && p->limit_milligpu < p->quota_milligpu && !p->quota_rest)
        return error_set(
            err, EINVAL,
            "project %s: its limit of %g GPUs is below its quota of %g; raise the limit or lower the quota",
            p->name, (double)p->limit_milligpu / 1000, (double)p->quota_milligpu / 1000);
    // Bounded by the number of projects: a cycle above this project must not hang the check that is to refuse it.
    uint32_t up = p->parent;
    for (unsigned steps = 0; up; steps++) {
        if (up == p->id || steps > SCHED_PROJECTS_MAX)
            return error_set(err, EINVAL,
                             "project %s: its parent is below it in the tree: choose another "
                             "parent",
                             p->name);
        const struct world_project *q = up < w->rules.projects.len ? w->rules.projects.at[up] : NULL;
        up = q ? q->parent : 0;
    }
    if (p->parent >= SCHED_PROJECTS_MAX)
        return error_set(err, ERANGE, "project %s: parent id %u is unknown", p->name, p->parent);
    for (uint32_t i = 0; i < p->model_count; i++)
        if (str_empty(p->models[i].model) || p->models[i].quota_milligpu < 0)
            return error_set(err, EINVAL, "project %s: a quota by GPU model needs a model and 0 or more GPUs",
                             p->name);
    return 0;
}

// Gives each GPU model that some project has a quota for a dimension; true when that changed.
static bool dims_update(struct world *w) {
    uint64_t wanted = 0;
    for (uint32_t i = 0; i < w->rules.projects.len; i++) {
        const struct world_project *p = w->rules.projects.at[i];
        for (uint32_t k = 0; p && p->present && k < p->models.len; k++)
            wanted |= 1ULL << p->models.at[k].model;
    }
    uint8_t old[SCHED_MODELS_MAX];
    memcpy(old, w->cluster.dim_of_model, sizeof old);
    w->cluster.dims = DIM_MODEL;
    // Dimensions are numbered anew each time: they are few (each costs time in every share), and a model that no
    // quota names any more must not keep its place.
    for (unsigned m = 0; m < SCHED_MODELS_MAX; m++) {
        bool has = (wanted >> m & 1) && w->cluster.dims < DIMS_MAX;
        w->cluster.dim_of_model[m] = has ? (uint8_t)w->cluster.dims++ : 0;
    }
    for (uint32_t i = 0; i < w->rules.projects.len; i++) {
        struct world_project *p = w->rules.projects.at[i];
        if (!p || !i)
            continue;
        for (unsigned d = DIM_MODEL; d < DIMS_MAX; d++) {
            p->quota[d] = 0;
            p->limit[d] = SCHED_UNLIMITED;
        }
        for (uint32_t k = 0; k < p->models.len; k++) {
            unsigned d = w->cluster.dim_of_model[p->models.at[k].model];
            if (d) {
                p->quota[d] = p->models.at[k].quota;
                p->limit[d] = p->models.at[k].limit;
            }
        }
    }
    return memcmp(old, w->cluster.dim_of_model, sizeof old) != 0;
}

static void dims_refresh(struct world *w) {
    if (dims_update(w)) {
        sched_nodes_recount_capacity(w);
        world_recount(w);
    }
}

int world_project_set(struct world *w, const struct sched_project *from, struct error *err) {
    int r = project_check(w, from, err);
    if (r)
        return r;
    uint32_t words = w->cluster.models.len;
    for (uint32_t i = 0; i < from->model_count; i++)
        if (world_model(w, from->models[i].model, true) < 0)
            return error_set(err, ERANGE, "project %s: GPU model %s is one too many, at most %d differ", from->name,
                             from->models[i].model, SCHED_MODELS_MAX);
    struct world_project *p = world_project_slot(w, from->id);
    free(p->name);
    p->name = xstrdup(from->name);
    p->present = true;
    p->parent = from->parent;
    p->quota[DIM_GPU] = from->quota_milligpu;
    p->quota_rest = from->quota_rest && !from->parent;
    p->limit[DIM_GPU] = from->limit_milligpu;
    p->quota[DIM_CPU] = from->quota_cpus;
    p->limit[DIM_CPU] = from->limit_cpus;
    p->weight = from->weight_milli;
    p->interactive_limit_ms = from->interactive_limit_ms;
    p->closed = from->closed;
    vec_clear(&p->models);
    for (uint32_t i = 0; i < from->model_count; i++) {
        const struct sched_model_quota *q = &from->models[i];
        int model = world_model(w, q->model, false);
        vec_push(&p->models, (struct world_model_quota){(uint8_t)model, q->quota_milligpu, q->limit_milligpu});
    }
    COPY_IDS(&p->nodes, from->nodes, from->node_count);
    dims_refresh(w);
    if (words != w->cluster.models.len)
        sched_requests_derive(w);
    world_config_changed(w);
    return 0;
}

void world_project_remove(struct world *w, uint32_t id) {
    struct world_project *p = world_project(w, id);
    if (!p)
        return;
    p->present = false;
    p->parent = 0;  // its jobs belong to no project now
    p->weight = 0;
    p->quota_rest = false;
    for (unsigned d = 0; d < DIMS_MAX; d++)
        p->quota[d] = p->limit[d] = p->share[d] = p->own_share[d] = 0;
    dims_refresh(w);
    world_config_changed(w);
}

static int qos_check(const struct world *w, const struct sched_qos *q, struct error *err) {
    if (!q->id || q->id >= SCHED_QOS_MAX)
        return error_set(err, ERANGE, "QoS id %u: ids go from 1 to %d", q->id, SCHED_QOS_MAX - 1);
    if (str_empty(q->name))
        return error_set(err, EINVAL, "QoS %u has no name: give it one", q->id);
    if (q->max_time_ms < SCHED_UNLIMITED || q->max_jobs_per_user < SCHED_UNLIMITED ||
        q->max_gpu_milli_per_user < SCHED_UNLIMITED || q->max_gpu_milli < SCHED_UNLIMITED ||
        q->max_cpus_per_user < SCHED_UNLIMITED)
        return error_set(err, EINVAL, "QoS %s: a limit is negative; give 0 or more, or none", q->name);
    for (uint32_t i = 0; i < q->preempts_count; i++) {
        if (q->preempts[i] == q->id)
            return error_set(err, EINVAL,
                             "QoS %s may not preempt itself: its jobs would preempt each other for ever",
                             q->name);
        // Longer circles do no harm: preemption ends all the same (preemption_order.c).
        const struct world_qos *other = world_qos(w, q->preempts[i]);
        for (uint32_t k = 0; other && k < other->preempts.len; k++)
            if (other->preempts.at[k] == q->id)
                return error_set(err, EINVAL,
                                 "QoS %s and %s would preempt each other; only one of the two may", q->name,
                                 other->name);
    }
    return 0;
}

int world_qos_set(struct world *w, const struct sched_qos *from, struct error *err) {
    int r = qos_check(w, from, err);
    if (r)
        return r;
    while (w->rules.qos.len <= from->id)
        vec_push(&w->rules.qos, NULL);
    struct world_qos *q = w->rules.qos.at[from->id];
    if (!q)
        q = w->rules.qos.at[from->id] = xcalloc(1, sizeof *q);
    free(q->name);
    q->id = from->id;
    q->present = true;
    q->name = xstrdup(from->name);
    q->priority = from->priority;
    q->max_jobs_per_user = from->max_jobs_per_user;
    q->max_gpu_milli_per_user = from->max_gpu_milli_per_user;
    q->max_gpu_milli = from->max_gpu_milli;
    q->max_cpus_per_user = from->max_cpus_per_user;
    q->max_time_ms = from->max_time_ms;
    q->usage_factor_milli = from->usage_factor_milli;
    q->preemptible = from->preemptible;
    COPY_IDS(&q->preempts, from->preempts, from->preempts_count);
    world_recount(w);
    world_config_changed(w);
    return 0;
}

void world_qos_remove(struct world *w, uint32_t id) {
    struct world_qos *q = world_qos(w, id);
    if (!q)
        return;
    q->present = false;
    world_recount(w);
    world_config_changed(w);
}

static struct world_license *license_slot(struct world *w, uint32_t id) {
    while (w->rules.licenses.len <= id)
        vec_push(&w->rules.licenses, NULL);
    if (!w->rules.licenses.at[id])
        w->rules.licenses.at[id] = xcalloc(1, sizeof(struct world_license));
    return w->rules.licenses.at[id];
}

struct world_license *world_license(const struct world *w, uint32_t id) {
    struct world_license *l = id < w->rules.licenses.len ? w->rules.licenses.at[id] : NULL;
    return l && l->present ? l : NULL;
}

int world_license_set(struct world *w, const struct sched_license *from, struct error *err) {
    if (!from->id || from->id >= SCHED_LICENSES_MAX || str_empty(from->name))
        return error_set(err, EINVAL, "a license needs a name and an id below %d", SCHED_LICENSES_MAX);
    struct world_license *l = license_slot(w, from->id);
    char *name = xstrdup(from->name);
    free(l->name);
    l->id = from->id;
    l->present = true;
    l->name = name;
    l->count = from->count;
    world_config_changed(w);
    return 0;
}

void world_license_remove(struct world *w, uint32_t id) {
    struct world_license *l = world_license(w, id);
    if (!l)
        return;
    l->present = false;
    world_config_changed(w);
}

uint64_t world_license_used(const struct world *w, uint32_t id) {
    const struct world_license *l = id < w->rules.licenses.len ? w->rules.licenses.at[id] : NULL;
    return l ? l->used : 0;
}

void sched_licenses_use(struct world *w, const struct sched_request *q, int sign) {
    for (uint32_t i = 0; i < q->license_count; i++)
        license_slot(w, q->licenses[i].license)->used += (uint64_t)((int64_t)sign * q->licenses[i].count);
}

int world_reservation_set(struct world *w, const struct sched_reservation *from, struct error *err) {
    if (!from->id || str_empty(from->name))
        return error_set(err, EINVAL, "a reservation needs an id and a name");
    if (from->end_ms <= from->start_ms)
        return error_set(err, EINVAL, "reservation %s ends before it starts: give a later end", from->name);
    const struct world_reservation *same = world_reservation(w, from->name);
    if (same && same->id != from->id)
        return error_set(err, EINVAL, "a reservation named %s exists: choose another name", from->name);
    uint32_t i = 0;
    while (i < w->rules.reservations.len && w->rules.reservations.at[i]->id < from->id)
        i++;
    if (i == w->rules.reservations.len || w->rules.reservations.at[i]->id != from->id) {
        vec_push(&w->rules.reservations, NULL);
        memmove(w->rules.reservations.at + i + 1, w->rules.reservations.at + i,
                (w->rules.reservations.len - i - 1) * sizeof *w->rules.reservations.at);
        w->rules.reservations.at[i] = xcalloc(1, sizeof(struct world_reservation));
    }
    struct world_reservation *r = w->rules.reservations.at[i];
    free(r->name);
    r->id = from->id;
    r->name = xstrdup(from->name);
    r->start_ms = from->start_ms;
    r->end_ms = from->end_ms;
    r->maintenance = from->maintenance;
    COPY_IDS(&r->nodes, from->nodes, from->node_count);
    COPY_IDS(&r->users, from->users, from->user_count);
    COPY_IDS(&r->projects, from->projects, from->project_count);
    world_config_changed(w);
    return 0;
}

static void reservation_free(struct world_reservation *r) {
    free(r->name);
    vec_done(&r->nodes);
    vec_done(&r->users);
    vec_done(&r->projects);
    free(r);
}

void world_reservation_remove(struct world *w, uint32_t id) {
    for (uint32_t i = 0; i < w->rules.reservations.len; i++)
        if (w->rules.reservations.at[i]->id == id) {
            reservation_free(w->rules.reservations.at[i]);
            vec_remove(&w->rules.reservations, i);
            world_config_changed(w);
            return;
        }
}

void sched_rules_free(struct world *w) {
    for (uint32_t i = 0; i < w->rules.licenses.len; i++)
        if (w->rules.licenses.at[i]) {
            free(w->rules.licenses.at[i]->name);
            free(w->rules.licenses.at[i]);
        }
    vec_done(&w->rules.licenses);
    for (uint32_t i = 0; i < w->rules.partitions.len; i++)
        if (w->rules.partitions.at[i]) {
            free(w->rules.partitions.at[i]->name);
            vec_done(&w->rules.partitions.at[i]->nodes);
            free(w->rules.partitions.at[i]);
        }
    for (uint32_t i = 0; i < w->rules.projects.len; i++)
        if (w->rules.projects.at[i]) {
            struct world_project *p = w->rules.projects.at[i];
            free(p->name);
            vec_done(&p->models);
            vec_done(&p->nodes);
            sched_project_queue_done(&p->queue);
            free(p);
        }
    for (uint32_t i = 0; i < w->rules.qos.len; i++)
        if (w->rules.qos.at[i]) {
            free(w->rules.qos.at[i]->name);
            vec_done(&w->rules.qos.at[i]->preempts);
            free(w->rules.qos.at[i]);
        }
    for (uint32_t i = 0; i < w->rules.reservations.len; i++)
        reservation_free(w->rules.reservations.at[i]);
    vec_done(&w->rules.partitions);
    vec_done(&w->rules.projects);
    vec_done(&w->rules.qos);
    vec_done(&w->rules.reservations);
}

// Quotas above the capacity are allowed (nodes may come back), but worth a warning.
bool world_warning(const struct world *w, uint32_t i, char *text, size_t size) {
    int64_t sum[DIMS_MAX] = {0};
    for (uint32_t k = 0; k < w->rules.projects.len; k++) {
        const struct world_project *p = world_project(w, k);
        for (unsigned d = 0; p && !sched_project_parent(w, p) && d < w->cluster.dims; d++)
            sum[d] += p->quota_rest && d == DIM_GPU ? 0 : sched_project_quota(p, d);
    }
    for (unsigned d = 0; d < w->cluster.dims; d++) {
        if (sum[d] <= w->cluster.capacity[d] || i-- > 0)
            continue;
        int64_t unit = d == DIM_CPU ? 1 : SCHED_GPU;
        snprintf(text, size,
                 "the projects' quotas add up to %lld %s%s, the nodes that are up have %lld: guarantees "
                 "shrink in proportion",
                 (long long)(sum[d] / unit), d == DIM_CPU ? "CPU" : "GPU",
                 sum[d] / unit == 1 ? "" : "s",
                 (long long)(w->cluster.capacity[d] / unit));
        return true;
    }
    for (uint32_t k = 0; k < w->rules.projects.len; k++) {
        const struct world_project *p = world_project(w, k);
        if (!p || !p->parent || sched_project_parent(w, p) || i-- > 0)
            continue;
        snprintf(text, size, "project %s: its parent does not exist, it is treated as top of the tree", p->name);
        return true;
    }
    return false;
}
