// Owns the world as a whole: its tables by id, the words it has seen, the log of changed nodes, and
// copying.
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/text.h"
#include "fitcache.h"
#include "mix.h"

enum { HALF_LIFE_DEFAULT_MS = 7 * 24 * 3600 * 1000, CHANGES_KEPT = 65536 };

struct world *world_new(void) {
    struct world *w = xcalloc(1, sizeof *w);
    w->half_life_ms = HALF_LIFE_DEFAULT_MS;
    w->dims = DIM_MODEL;
    w->config_version = w->nodes_version = 1;
    // Jobs without project: nothing guaranteed, nothing rationed, one GPU's weight.
    struct project *none = world_project_slot(w, 0);
    none->present = true;
    none->name = xstrdup("");
    none->weight = SCHED_UNLIMITED;
    for (unsigned d = 0; d < DIMS_MAX; d++)
        none->quota[d] = none->limit[d] = SCHED_UNLIMITED;
    return w;
}

struct node *world_node(const struct world *w, uint32_t id) {
    struct node *n = id < w->nodes.len ? w->nodes.at[id] : NULL;
    return n && n->present ? n : NULL;
}

struct project *world_project(const struct world *w, uint32_t id) {
    struct project *p = id < w->projects.len ? w->projects.at[id] : NULL;
    return p && p->present ? p : NULL;
}

struct project *world_project_slot(struct world *w, uint32_t id) {
    assert(id < SCHED_PROJECTS_MAX);
    while (w->projects.len <= id)
        vec_push(&w->projects, NULL);
    if (!w->projects.at[id]) {
        struct project *p = w->projects.at[id] = xcalloc(1, sizeof *p);
        p->id = id;
    }
    return w->projects.at[id];
}

struct partition *world_partition(const struct world *w, uint32_t id) {
    struct partition *p = id < w->partitions.len ? w->partitions.at[id] : NULL;
    return p && p->present ? p : NULL;
}

struct qos *world_qos(const struct world *w, uint32_t id) {
    struct qos *q = id < w->qos.len ? w->qos.at[id] : NULL;
    return q && q->present ? q : NULL;
}

struct reservation *world_reservation(const struct world *w, const char *name) {
    for (uint32_t i = 0; name && i < w->reservations.len; i++)
        if (streq(w->reservations.at[i]->name, name))
            return w->reservations.at[i];
    return NULL;
}

struct job *world_find(const struct world *w, uint64_t id) {
    return map_get(&w->jobs, id);
}

int world_model(struct world *w, const char *model, bool add) {
    for (uint32_t i = 0; i < w->models.len; i++)
        if (streq(w->models.at[i], model))
            return (int)i;
    if (!add || w->models.len >= SCHED_MODELS_MAX)
        return -1;
    vec_push(&w->models, xstrdup(model));
    return (int)w->models.len - 1;
}

int world_feature(struct world *w, const char *feature, bool add) {
    for (uint32_t i = 0; i < w->features.len; i++)
        if (streq(w->features.at[i], feature))
            return (int)i;
    if (!add || w->features.len >= SCHED_FEATURES_MAX)
        return -1;
    vec_push(&w->features, xstrdup(feature));
    return (int)w->features.len - 1;
}

void world_config_changed(struct world *w) {
    w->config_version++;
    w->nodes_version++;
}

void world_node_changed(struct world *w, uint32_t node) {
    if (w->changes.len >= CHANGES_KEPT) {
        w->changes_base += w->changes.len;
        vec_clear(&w->changes);
    }
    vec_push(&w->changes, node);
    const struct node *n = world_node(w, node);
    while (w->room.len <= node) {
        vec_push(&w->whole_free, 0);
        vec_push(&w->room, 0);
        w->room_count[0]++;
    }
    uint8_t room = n ? (uint8_t)((n->free_milli + SCHED_GPU - 1) / SCHED_GPU) : 0;
    w->whole_free.at[node] = n ? (uint8_t)n->whole_free : 0;
    w->room_count[w->room.at[node]]--;
    w->room_count[room]++;
    w->room.at[node] = room;
}

int64_t world_fragmented_milligpu(const struct world *w) {
    return mix_fragmented(w);
}

uint32_t world_pending(const struct world *w) {
    return w->pending;
}

uint32_t world_running(const struct world *w) {
    return w->running.len;
}

bool world_node_figures(const struct world *w, uint32_t id, struct sched_node_figures *out) {
    const struct node *n = world_node(w, id);
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
    for (uint32_t i = 0; i < n->gpu_count; i++)
        out->gpu_milli_free += n->gpus[i].free_milli;
    return true;
}

bool world_project_figures(struct world *w, uint32_t id, struct sched_project_figures *out) {
    const struct project *p = world_project(w, id);
    if (!p)
        return false;
    share_update(w);
    *out = (struct sched_project_figures){
        .quota_milligpu = p->quota[DIM_GPU],
        .share_milligpu = p->share[DIM_GPU],
        .used_milligpu = p->tree_used[DIM_GPU],
        .queued_milligpu = p->queued[DIM_GPU],
        .used_cpus = p->tree_used[DIM_CPU],
        .queued_cpus = p->queued[DIM_CPU],
        .running = p->running,
        .pending = p->pending,
    };
    return true;
}

struct world *world_free(struct world *w) {
    if (!w)
        return NULL;
    size_t it = 0;
    void *v;
    world_gave_forget(w);
    while (map_next(&w->jobs, &it, NULL, &v)) {
        alloc_free(((struct job *)v)->alloc);
        free(v);
    }
    for (it = 0; map_next(&w->requests, &it, NULL, &v);)
        for (struct request *r = v, *next; r; r = next) {
            next = r->next;
            request_free(r);
        }
    for (it = 0; map_next(&w->users, &it, NULL, &v);)
        free(v);
    for (it = 0; map_next(&w->qos_users, &it, NULL, &v);)
        free(v);
    rules_free(w);
    nodes_free(w);
    fits_free(w);
    mix_free(w);
    vec_done(&w->tree);
    vec_done(&w->by_end.sorted);
    vec_done(&w->by_end.fresh);
    vec_done(&w->by_worth.sorted);
    vec_done(&w->by_worth.fresh);
    vec_done(&w->victims);
    vec_done(&w->noted);
    vec_done(&w->takers);
    vec_done(&w->gave);
    map_done(&w->jobs);
    map_done(&w->requests);
    map_done(&w->users);
    map_done(&w->qos_users);
    vec_done(&w->running);
    vec_done(&w->waiting);
    vec_done(&w->ending);
    vec_done(&w->changes);
    vec_done(&w->whole_free);
    vec_done(&w->room);
    free(w);
    return NULL;
}
