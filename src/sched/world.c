// The world as a whole: creating and freeing it, look-up by id, models and features by index, the log of changed
// nodes, figures for display.
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/text.h"
#include "fit_class.h"
#include "request_mix.h"

enum { HALF_LIFE_DEFAULT_MS = 7 * 24 * 3600 * 1000, CHANGES_KEPT = 65536 };

struct world *world_new(void) {
    struct world *w = xcalloc(1, sizeof *w);
    w->usage.half_life_ms = HALF_LIFE_DEFAULT_MS;
    w->cluster.dims = DIM_MODEL;
    w->version.config = w->version.nodes = 1;
    // Project 0 is that of jobs without project: no quota, no limit, the weight of one GPU.
    struct world_project *none = world_project_slot(w, 0);
    none->present = true;
    none->name = xstrdup("");
    none->weight = SCHED_UNLIMITED;
    for (unsigned d = 0; d < DIMS_MAX; d++)
        none->quota[d] = none->limit[d] = SCHED_UNLIMITED;
    return w;
}

struct world_node *world_node(const struct world *w, uint32_t id) {
    struct world_node *n = id < w->cluster.nodes.len ? w->cluster.nodes.at[id] : NULL;
    return n && n->present ? n : NULL;
}

struct world_project *world_project(const struct world *w, uint32_t id) {
    struct world_project *p = id < w->rules.projects.len ? w->rules.projects.at[id] : NULL;
    return p && p->present ? p : NULL;
}

struct world_project *world_project_slot(struct world *w, uint32_t id) {
    assert(id < SCHED_PROJECTS_MAX);
    while (w->rules.projects.len <= id)
        vec_push(&w->rules.projects, NULL);
    if (!w->rules.projects.at[id]) {
        struct world_project *p = w->rules.projects.at[id] = xcalloc(1, sizeof *p);
        p->id = id;
    }
    return w->rules.projects.at[id];
}

struct world_partition *world_partition(const struct world *w, uint32_t id) {
    struct world_partition *p = id < w->rules.partitions.len ? w->rules.partitions.at[id] : NULL;
    return p && p->present ? p : NULL;
}

struct world_qos *world_qos(const struct world *w, uint32_t id) {
    struct world_qos *q = id < w->rules.qos.len ? w->rules.qos.at[id] : NULL;
    return q && q->present ? q : NULL;
}

struct world_reservation *world_reservation(const struct world *w, const char *name) {
    for (uint32_t i = 0; name && i < w->rules.reservations.len; i++)
        if (streq(w->rules.reservations.at[i]->name, name))
            return w->rules.reservations.at[i];
    return NULL;
}

struct world_job *world_find(const struct world *w, uint64_t id) {
    return map_get(&w->jobs.by_id, id);
}

int world_model(struct world *w, const char *model, bool add) {
    for (uint32_t i = 0; i < w->cluster.models.len; i++)
        if (streq(w->cluster.models.at[i], model))
            return (int)i;
    if (!add || w->cluster.models.len >= SCHED_MODELS_MAX)
        return -1;
    vec_push(&w->cluster.models, xstrdup(model));
    return (int)w->cluster.models.len - 1;
}

int world_feature(struct world *w, const char *feature, bool add) {
    for (uint32_t i = 0; i < w->cluster.features.len; i++)
        if (streq(w->cluster.features.at[i], feature))
            return (int)i;
    if (!add || w->cluster.features.len >= SCHED_FEATURES_MAX)
        return -1;
    vec_push(&w->cluster.features, xstrdup(feature));
    return (int)w->cluster.features.len - 1;
}

void world_config_changed(struct world *w) {
    w->version.config++;
    w->version.nodes++;
}

void world_node_changed(struct world *w, uint32_t node) {
    if (w->cluster.changes.len >= CHANGES_KEPT) {
        w->cluster.changes_base += w->cluster.changes.len;
        vec_clear(&w->cluster.changes);
    }
    vec_push(&w->cluster.changes, node);
    const struct world_node *n = world_node(w, node);
    while (w->cluster.room.len <= node) {
        vec_push(&w->cluster.whole_free, 0);
        vec_push(&w->cluster.room, 0);
        w->cluster.room_count[0]++;
    }
    uint8_t room = n ? (uint8_t)((n->free_milli + SCHED_GPU - 1) / SCHED_GPU) : 0;
    w->cluster.whole_free.at[node] = n ? (uint8_t)n->whole_free : 0;
    w->cluster.room_count[w->cluster.room.at[node]]--;
    w->cluster.room_count[room]++;
    w->cluster.room.at[node] = room;
}

int64_t world_fragmented_milligpu(const struct world *w) {
    return sched_mix_fragmented(w);
}

uint32_t world_pending(const struct world *w) {
    return w->jobs.pending;
}

uint32_t world_running(const struct world *w) {
    return w->jobs.running.len;
}

uint32_t world_optional_running(const struct world *w) {
    return w->optional.running.len;
}

uint32_t world_optional_waiting(const struct world *w) {
    return w->optional.waiting;
}

bool world_node_figures(const struct world *w, uint32_t id, struct sched_node_figures *out) {
    const struct world_node *n = world_node(w, id);
    if (!n)
        return false;
    *out = (struct sched_node_figures){
        .cpus = n->cpus,
        .cpus_free = n->cpus_free,
        .memory_bytes = n->memory,
        .memory_free_bytes = n->memory_free,
        .gpus = n->gpu_usable,
        .jobs = n->jobs.len,
    };
    for (uint32_t i = 0; i < n->gpu_count; i++) {
        out->gpu_milli_free += n->gpus[i].free_milli;
        out->optional_gpu_milli += n->gpus[i].optional_milli;
    }
    if (n->optional) {
        out->optional_cpus = n->optional->cpus;
        out->optional_memory_bytes = n->optional->memory;
        out->optional_jobs = n->optional->jobs.len;
    }
    return true;
}

bool world_project_figures(struct world *w, uint32_t id, struct sched_project_figures *out) {
    const struct world_project *p = world_project(w, id);
    if (!p)
        return false;
    sched_share_update(w);
    *out = (struct sched_project_figures){
        .quota_milligpu = p->quota[DIM_GPU],
        .share_milligpu = p->share[DIM_GPU],
        .used_milligpu = p->tree_used[DIM_GPU],
        .queued_milligpu = p->queued[DIM_GPU],
        .used_cpus = p->tree_used[DIM_CPU],
        .queued_cpus = p->queued[DIM_CPU],
        .running = p->running,
        .pending = p->pending,
        .optional_milligpu = p->optional_used[DIM_GPU],
        .optional_cpus = p->optional_used[DIM_CPU],
        .optional_running = p->optional_running,
        .optional_waiting = p->optional_pending,
    };
    return true;
}

struct world *world_free(struct world *w) {
    if (!w)
        return NULL;
    size_t it = 0;
    void *v;
    world_preemptions_forget(w);
    while (map_next(&w->jobs.by_id, &it, NULL, &v)) {
        sched_alloc_free(((struct world_job *)v)->alloc);
        free(((struct world_job *)v)->promise);
        free(v);
    }
    vec_done(&w->jobs.promised);
    for (it = 0; map_next(&w->requests.by_hash, &it, NULL, &v);)
        for (struct world_request *r = v, *next; r; r = next) {
            next = r->next;
            sched_request_free(r);
        }
    for (it = 0; map_next(&w->usage.users, &it, NULL, &v);)
        free(v);
    for (it = 0; map_next(&w->usage.qos_users, &it, NULL, &v);)
        free(v);
    sched_optional_free(w);
    sched_rules_free(w);
    sched_nodes_free(w);
    sched_fits_free(w);
    sched_mix_free(w);
    vec_done(&w->rules.tree);
    vec_done(&w->orders.by_end.sorted);
    vec_done(&w->orders.by_end.unmerged);
    vec_done(&w->orders.victim_order.sorted);
    vec_done(&w->orders.victim_order.unmerged);
    vec_done(&w->orders.victims);
    vec_done(&w->jobs.with_reason);
    vec_done(&w->jobs.preemptors);
    vec_done(&w->jobs.preempted);
    map_done(&w->jobs.by_id);
    map_done(&w->requests.by_hash);
    map_done(&w->usage.users);
    map_done(&w->usage.qos_users);
    vec_done(&w->jobs.running);
    vec_done(&w->jobs.begin_heap);
    vec_done(&w->jobs.ending);
    vec_done(&w->cluster.changes);
    vec_done(&w->cluster.whole_free);
    vec_done(&w->cluster.room);
    free(w);
    return NULL;
}
