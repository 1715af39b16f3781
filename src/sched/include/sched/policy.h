// The rules of sharing that are not properties of one project, partition or QoS.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

enum policy_order {
    POLICY_ORDER_FAIR,  // projects by share, inside them by turn
    POLICY_ORDER_FCFS,  // first come, first served: the yardstick of the simulator
};

enum policy_backfill {
    POLICY_BACKFILL_IN_ORDER,
    POLICY_BACKFILL_SHORTEST,  // shortest limit first, once somebody is blocked
    POLICY_BACKFILL_NONE,      // strict order everywhere
};

enum policy_placement {
    POLICY_PLACE_FRAGMENT,  // keep what is left usable for the requests seen lately
    POLICY_PLACE_PACK,      // fullest node first
    POLICY_PLACE_SPREAD,    // emptiest node first
    POLICY_PLACE_FIRST,     // lowest node id first
};

// A job's turn is a time: when it was submitted, plus `short_milli` thousandths of its time limit,
// plus `use_ms` for a user whose recent use equals the whole cluster (in proportion for less), plus
// `size_ms` for every GPU it asks for, less `qos_ms` for every step of priority, plus `nice_ms` for every
// step of nice. The earliest turn comes first inside a project, after QoS and
// priority; so everybody's turn comes, short work sooner, and whoever used little lately sooner.
struct policy {
    enum policy_order order;
    enum policy_backfill backfill;
    enum policy_placement placement;
    int32_t short_milli;
    int64_t use_ms;
    int64_t size_ms;
    int64_t qos_ms, nice_ms; // what a step of priority, or of nice, is worth; 0: it comes before every turn
    int64_t half_life_ms;    // for whoever keeps the world: world_half_life
    int64_t max_wait_ms;     // waited longer: first among the same priority; 0: off
    bool reclaim;            // projects under their share may take from those over it
    bool interactive_within_quota;
    uint32_t plan_depth;     // blocked jobs per partition that get a planned start
    int64_t grace_ms;        // between the signal and the kill of a victim
    int64_t min_runtime_ms;  // nobody is preempted before
};

void policy_default(struct policy *p);
int policy_check(const struct policy *p, struct error *err);
