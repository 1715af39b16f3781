// Two orders of the running jobs: by end, and by who is preempted first. running_order.c.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/vec.h"

struct world;
struct world_job;

// Running jobs in some order, and those not merged in yet.
struct running_order {
    VEC(struct world_job *) sorted, unmerged;
    uint32_t removed;  // since the last merge
    bool discarded;    // too many were removed: rebuilt from all running jobs when needed
};

// A running job in the victim order, with what decides whether it is worth a closer look.
struct sched_victim {
    struct world_job *job;
    uint32_t project;
    uint32_t node;        // 0: on several
    uint32_t milli;       // milli-GPU it holds in all
    uint16_t gpus;        // GPUs it holds on that node
    bool nonpreemptible;
};

struct world_running_orders {
    struct running_order by_end;        // by (end by limit, id)
    struct running_order victim_order;  // the first to be preempted first
    uint64_t victim_version;            // version.config of its priorities
    VEC(struct sched_victim) victims;   // victim_order.sorted in compact form
    bool victims_stale;
};

// The merges bring `sorted` (and the victims) up to date.
void sched_by_end_add(struct world *w, struct world_job *j);
void sched_by_end_remove(struct world *w, struct world_job *j);
void sched_by_end_merge(struct world *w);
void sched_victims_add(struct world *w, struct world_job *j);
void sched_victims_remove(struct world *w, struct world_job *j);
void sched_victims_merge(struct world *w);
void sched_running_orders_assert(const struct world *w);
