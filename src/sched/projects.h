// Projects: quota, limit, what their jobs use and queue, and the share each is due. rules.c, share.c.
#pragma once
#include "project_queue.h"
#include "resources.h"
#include "sched/world.h"

struct world_model_quota {
    uint8_t model;
    int64_t quota, limit;
};

struct world_project {
    uint32_t id, parent;
    bool present, closed;
    bool quota_rest;              // quota[DIM_GPU] is what the other projects' quotas leave
    char *name;
    int64_t quota[DIMS_MAX];      // DIM_CPU may be SCHED_UNLIMITED
    int64_t limit[DIMS_MAX];      // SCHED_UNLIMITED
    int64_t weight;
    VEC(struct world_model_quota) models;
    VEC(uint32_t) nodes;          // allowed, sorted; empty: all
    int64_t interactive_limit_ms;
    // Sums over the project's own jobs (not its children's), kept exact by every change.
    int64_t used[DIMS_MAX], used_nonpreemptible[DIMS_MAX];
    int64_t queued[DIMS_MAX], queued_nonpreemptible[DIMS_MAX];
    uint32_t running, pending;
    // The same for optional workers, which are counted only here.
    int64_t optional_used[DIMS_MAX];
    uint32_t optional_running, optional_pending;
    struct project_queue queue;
    // Computed by sched_share_update. tree_…, share and want: of the whole subtree; own_…: of its own jobs.
    int64_t tree_used[DIMS_MAX], share[DIMS_MAX];
    int64_t own_share[DIMS_MAX];
    int64_t want[DIMS_MAX], own_want[DIMS_MAX], tree_quota[DIMS_MAX];
    uint32_t depth;
    // Computed by sched_growth_begin, if there are optional workers (growth.h).
    int64_t growth_share[DIM_MODEL];   // what it is due in proportion to the others, if each wanted everything
    int64_t growth_change[DIM_MODEL];  // to be added to what it uses: less what leaves, more what is promised
    int64_t optional_tree[DIMS_MAX];   // held by optional workers of the whole subtree …
    int64_t leaving_tree[DIMS_MAX];    // … and the part of it held by those that were told to end
    int64_t fullness_milli;            // thousandths of the growth share that were in use when the pass began
};

struct world_project *world_project(const struct world *w, uint32_t id);  // present, or NULL
struct world_project *world_project_slot(struct world *w, uint32_t id);   // made when missing
struct world_project *sched_project_parent(const struct world *w, const struct world_project *p);
int64_t sched_project_quota(const struct world_project *p, unsigned dim);  // 0 when not rationed
bool sched_project_allows(const struct world_project *p, uint32_t node);
// Adds (sign 1) or takes back (sign -1) amounts used by the project, and by every project above it.
void sched_project_use(struct world *w, struct world_project *p, const int64_t held[DIMS_MAX], bool nonpreemptible,
                       int sign);
bool sched_project_export(const struct world *w, uint32_t id, struct sched_project *out,
                          struct sched_model_quota quotas[SCHED_MODELS_MAX]);  // borrowed
void sched_share_update(struct world *w);
void sched_share_update_exact(struct world *w);  // not in whole GPUs: equal projects have equal shares
