// The default policy, and the range of each setting.
#include "sched/policy.h"

#include <errno.h>

enum { HOUR_MS = 3600 * 1000 };

void sched_policy_default(struct policy *p) {
    *p = (struct policy){
        .order = POLICY_ORDER_FAIR,
        .backfill = POLICY_BACKFILL_IN_ORDER,
        .placement = POLICY_PLACE_FRAGMENT,
        .short_milli = 5000,
        .short_max_ms = 12LL * HOUR_MS,
        .use_ms = 36LL * HOUR_MS,
        .half_life_ms = 7LL * 24 * HOUR_MS,
        .max_wait_ms = 120LL * HOUR_MS,
        .reclaim = true,
        .interactive_within_quota = true,
        .plan_depth = 1,
        .promises = true,
        .grace_ms = 30 * 1000,
    };
}

enum { SHORT_MAX = 1000000, PLAN_DEPTH_MAX = 64 };
static const int64_t DURATION_MAX_MS = 10LL * 365 * 24 * HOUR_MS;

static int duration(const char *name, int64_t v, int64_t low, struct error *err) {
    if (v < low || v > DURATION_MAX_MS)
        return error_set(err, EINVAL, "%s is %lld ms: give %s10 years at most", name, (long long)v,
                         low ? "" : "a duration from 0, ");
    return 0;
}

int sched_policy_check(const struct policy *p, struct error *err) {
    int r;
    if (p->short_milli < 0 || p->short_milli > SHORT_MAX)
        return error_set(err, EINVAL, "short factor is %d thousandths: give 0 to %d", p->short_milli, SHORT_MAX);
    if (p->plan_depth > PLAN_DEPTH_MAX)
        return error_set(err, EINVAL, "plan depth is %u: at most %d jobs are planned ahead", p->plan_depth,
                         PLAN_DEPTH_MAX);
    if ((r = duration("use", p->use_ms, 0, err)) || (r = duration("size", p->size_ms, -DURATION_MAX_MS, err)) ||
        (r = duration("step of QoS", p->qos_ms, 0, err)) || (r = duration("step of nice", p->nice_ms, 0, err)) ||
        (r = duration("longest time limit that counts", p->short_max_ms, 0, err)) ||
        (r = duration("half-life", p->half_life_ms, 1000, err)) ||
        (r = duration("maximum wait", p->max_wait_ms, 0, err)) || (r = duration("grace", p->grace_ms, 0, err)) ||
        (r = duration("minimum run time", p->min_runtime_ms, 0, err)))
        return r;
    return 0;
}
