// How many more nodes are wanted, and which of those that are there will be needed: a pure function of the world, of
// what can be had, and of the time. Decided by the scheduler itself: a copy of the world goes on until a new node could
// be there; nodes are added for the jobs that have not started by then, the cheapest first, and those that get a job
// are wanted. So no node is wanted for a job that starts elsewhere sooner, and all that are wanted are wanted in one
// step.
#pragma once
#include "base/vec.h"
#include "sched/policy.h"
#include "sched/world.h"

enum { AUTOSCALE_STEP_MAX = 1000 };  // nodes of one shape in one step

struct autoscale_shape {
    struct sched_node node;  // what one node will be; id, name and state do not count
    const uint32_t *partitions;  // whose lists of nodes will name it; those of all nodes need not be here
    uint32_t partition_count;
    int64_t lifetime_ms;  // 0: it stays
    int64_t boot_ms;      // from asking for it until it takes jobs
    uint64_t cost;        // of one, in any unit; of equal cost the one that is there sooner comes first
    uint32_t coming;      // on their way already
    uint32_t room;        // that may be asked for now
    // the answer
    uint32_t wanted;       // of `room`
    uint32_t coming_used;  // of `coming`: what jobs would start on
    uint32_t jobs;         // that would start on the wanted ones, or partly on them
    uint64_t first_job;    // of them; 0: none
};

struct autoscale_result {
    VEC(uint32_t) used;  // nodes of the world on which a waiting job will start, ascending; the caller frees it
    uint32_t unmet;      // ready jobs that would not start even so
};

void sched_autoscale(const struct world *w, struct autoscale_shape *shapes, uint32_t count, int64_t now_ms,
                     const struct policy *policy, struct autoscale_result *out);
