// The rules of sharing that are not properties of one project, partition or QoS.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

enum policy_order {
    POLICY_ORDER_FAIR,  // projects by share, users by use, then the factors below
    POLICY_ORDER_FCFS,  // first come, first served: the yardstick of the simulator
};

enum policy_backfill {
    POLICY_BACKFILL_SHORTEST,  // expected shortest first
    POLICY_BACKFILL_IN_ORDER,
    POLICY_BACKFILL_NONE,      // strict order everywhere
};

enum policy_placement {
    POLICY_PLACE_FRAGMENT,  // keep what is left usable for the requests seen lately
    POLICY_PLACE_PACK,      // fullest node first
    POLICY_PLACE_SPREAD,    // emptiest node first
    POLICY_PLACE_FIRST,     // lowest node id first
};

struct policy {
    enum policy_order order;
    enum policy_backfill backfill;
    enum policy_placement placement;
    // Weights of the order inside a project; 0 switches a factor off. QoS and priority always come
    // first; ties end in age and then id.
    int32_t weight_use;    // less used lately first
    int32_t weight_age;    // waited longer first
    int32_t weight_size;   // larger first (negative: smaller first)
    int32_t weight_short;  // expected shorter first
    bool learn;            // expect run times from the user's history instead of the limit
    bool reclaim;          // projects under their share may take from those over it
    bool interactive_within_quota;
    uint32_t plan_depth;   // blocked jobs per partition that get a planned start
    int64_t grace_ms;      // between the signal and the kill of a victim
    int64_t min_runtime_ms;  // nobody is preempted before
    int64_t max_wait_ms;     // waited longer: before everyone else of the same priority; 0: off
};

void policy_default(struct policy *p);
int policy_check(const struct policy *p, struct error *err);
