// Reads a policy from the command line: a name, then settings.
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "sim/sim.h"

struct named {
    const char *name;
    enum policy_order order;
    enum policy_backfill backfill;
    bool plain;  // no turns: first come, first served, nobody is preempted
};

static const struct named NAMED[] = {
    {"default", POLICY_ORDER_FAIR, POLICY_BACKFILL_IN_ORDER, false},
    {"easy", POLICY_ORDER_FCFS, POLICY_BACKFILL_IN_ORDER, true},
    {"sjbf", POLICY_ORDER_FCFS, POLICY_BACKFILL_SHORTEST, true},
    {"fcfs", POLICY_ORDER_FCFS, POLICY_BACKFILL_NONE, true},
};

const char *sim_policy_help(void) {
    return "default, easy (first come first served with backfill), sjbf (shortest first backfill), fcfs "
           "(strict), "
           "then settings after commas: short_milli=N, short_max_h=N, promises=0|1, "
           "use_h=N, half_life_h=N, size_min=N, qos_min=N, "
           "nice_min=N, max_wait_h=N, plan_depth=N, grace_s=N, "
           "min_runtime_s=N, reclaim=0|1, placement=fragment|pack|spread|first";
}

static int placement(const char *value, struct policy *p, struct error *err) {
    static const char *const words[] = {"fragment", "pack", "spread", "first"};
    for (unsigned i = 0; i < 4; i++)
        if (streq(value, words[i])) {
            p->placement = (enum policy_placement)i;
            return 0;
        }
    return error_set(err, EINVAL, "placement %s: give fragment, pack, spread or first", value);
}

static int setting(const char *key, const char *value, struct policy *p, struct error *err) {
    enum { HOUR_MS = 3600000, MINUTE_MS = 60000 };
    int64_t v;
    if (streq(key, "placement"))
        return placement(value, p, err);
    if (parse_i64(value, &v) || v < -1000000 || v > 1000000)
        return error_set(err, EINVAL, "%s is '%s': give a whole number up to 1000000", key, value);
    if (streq(key, "short_milli"))
        p->short_milli = (int32_t)v;
    else if (streq(key, "short_max_h"))
        p->short_max_ms = v * HOUR_MS;
    else if (streq(key, "promises"))
        p->promises = v != 0;
    else if (streq(key, "use_h"))
        p->use_ms = v * HOUR_MS;
    else if (streq(key, "size_min"))
        p->size_ms = v * MINUTE_MS;
    else if (streq(key, "half_life_h"))
        p->half_life_ms = v * HOUR_MS;
    else if (streq(key, "qos_min"))
        p->qos_ms = v * MINUTE_MS;
    else if (streq(key, "nice_min"))
        p->nice_ms = v * MINUTE_MS;
    else if (streq(key, "max_wait_h"))
        p->max_wait_ms = v * HOUR_MS;
    else if (streq(key, "plan_depth"))
        p->plan_depth = v < 0 ? UINT32_MAX : (uint32_t)v;
    else if (streq(key, "grace_s"))
        p->grace_ms = v * 1000;
    else if (streq(key, "min_runtime_s"))
        p->min_runtime_ms = v * 1000;
    else if (streq(key, "reclaim"))
        p->reclaim = v != 0;
    else
        return error_set(err, EINVAL, "policy setting '%s' is not known: %s", key, sim_policy_help());
    return 0;
}

int sim_policy(const char *text, struct policy *p, struct error *err) {
    cleanup_free char *copy = xstrdup(text);
    char *fields[TRACE_FIELDS_MAX];
    uint32_t n = trace_input_split(copy, ',', fields, TRACE_FIELDS_MAX);
    const struct named *named = NULL;
    for (unsigned i = 0; i < sizeof NAMED / sizeof *NAMED; i++)
        if (streq(NAMED[i].name, fields[0]))
            named = &NAMED[i];
    if (!named)
        return error_set(err, EINVAL, "policy '%s' is not known: %s", fields[0], sim_policy_help());
    sched_policy_default(p);
    p->order = named->order;
    p->backfill = named->backfill;
    p->reclaim = !named->plain;
    p->promises = !named->plain;
    for (uint32_t i = 1; i < n; i++) {
        char *value = strchr(fields[i], '=');
        if (!value)
            return error_set(err, EINVAL, "policy setting '%s': write name=value", fields[i]);
        *value++ = 0;
        int r = setting(fields[i], value, p, err);
        if (r)
            return r;
    }
    return sched_policy_check(p, err);
}
