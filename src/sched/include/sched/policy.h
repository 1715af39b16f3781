// The rules of sharing that are not properties of one project, partition or QoS.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

enum policy_order {
    POLICY_ORDER_FAIR,  // projects by share, inside them by queue time
    POLICY_ORDER_FCFS,  // first come, first served: for comparison
};

enum policy_backfill {
    POLICY_BACKFILL_IN_ORDER,
    POLICY_BACKFILL_SHORTEST,  // shortest limit first, once a job is blocked
    POLICY_BACKFILL_NONE,      // strict order everywhere
};

enum policy_placement {
    POLICY_PLACE_FRAGMENT,  // keep what is left usable for the requests seen lately
    POLICY_PLACE_PACK,      // fullest node first
    POLICY_PLACE_SPREAD,    // emptiest node first
    POLICY_PLACE_FIRST,     // lowest node id first
};

// Inside a project, jobs are ordered by priority and then by queue time, the earliest first. Queue time is the
// time of submission, plus `short_milli` thousandths of the job's time limit, plus `use_ms` for a user whose
// recent usage equals the whole cluster (in proportion for less), plus `size_ms` per GPU, less `qos_ms` per
// step of priority, plus `nice_ms` per step of nice. As time passes every job comes first, short jobs and
// those of users who used little sooner.
struct policy {
    enum policy_order order;
    enum policy_backfill backfill;
    enum policy_placement placement;
    int32_t short_milli;
    int64_t short_max_ms;    // of the limit, no more than this counts; 0: all of it
    int64_t use_ms;
    int64_t size_ms;
    int64_t qos_ms, nice_ms; // per step of priority, or of nice; 0: it sorts before queue time
    int64_t half_life_ms;    // the owner of the world sets it with world_half_life
    int64_t max_wait_ms;     // waited longer: first among the same priority; 0: off
    bool reclaim;            // projects under their share may preempt those over it
    bool interactive_within_quota;
    uint32_t plan_depth;     // blocked jobs per partition that get a planned start
    bool promises;           // a planned start moves later only for the reasons of enum sched_late
    int64_t grace_ms;        // between the signal and the kill of a victim
    int64_t min_runtime_ms;  // no job is preempted before it ran this long
};

void sched_policy_default(struct policy *p);
int sched_policy_check(const struct policy *p, struct error *err);
