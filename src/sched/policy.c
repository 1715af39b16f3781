// Owns the default policy and what a policy may say.
#include "sched/policy.h"

#include <errno.h>

void policy_default(struct policy *p) {
    *p = (struct policy){
        .order = POLICY_ORDER_FAIR,
        .backfill = POLICY_BACKFILL_SHORTEST,
        .placement = POLICY_PLACE_FRAGMENT,
        .weight_use = 100,
        .weight_age = 0,
        .learn = true,
        .reclaim = true,
        .interactive_within_quota = true,
        .plan_depth = 1,
        .grace_ms = 30 * 1000,
    };
}

enum { WEIGHT_MAX = 1000000, PLAN_DEPTH_MAX = 64 };

static int weight(const char *name, int32_t v, struct error *err) {
    if (v > WEIGHT_MAX || v < -WEIGHT_MAX)
        return error_set(err, EINVAL, "%s is %d: give a number from %d to %d", name, v, -WEIGHT_MAX,
                         WEIGHT_MAX);
    return 0;
}

int policy_check(const struct policy *p, struct error *err) {
    int r;
    if ((r = weight("weight_use", p->weight_use, err)) || (r = weight("weight_age", p->weight_age, err)) ||
        (r = weight("weight_size", p->weight_size, err)) ||
        (r = weight("weight_short", p->weight_short, err)))
        return r;
    if (p->plan_depth > PLAN_DEPTH_MAX)
        return error_set(err, EINVAL, "plan_depth is %u: at most %d jobs are planned ahead", p->plan_depth,
                         PLAN_DEPTH_MAX);
    if (p->grace_ms < 0 || p->min_runtime_ms < 0 || p->max_wait_ms < 0)
        return error_set(err, EINVAL, "grace, min_runtime and max_wait are durations: give 0 or more");
    return 0;
}
