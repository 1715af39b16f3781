// The scheduling policy: from the settings that people write to what the scheduler works with, and back. A change
// is an event, so that recorded decisions can be replayed with the policy that was in force.
#include <assert.h>
#include <errno.h>

#include "state.h"
#include "sched/world.h"

static_assert((int)ORDER_FCFS == (int)POLICY_ORDER_FCFS && (int)BACKFILL_NONE == (int)POLICY_BACKFILL_NONE &&
                  (int)BACKFILL_SHORTEST == (int)POLICY_BACKFILL_SHORTEST &&
                  (int)PLACEMENT_FIRST == (int)POLICY_PLACE_FIRST &&
                  (int)PLACEMENT_SPREAD == (int)POLICY_PLACE_SPREAD &&
                  (int)PLACEMENT_PACK == (int)POLICY_PLACE_PACK,
              "the same words in the same order");

static void to_settings(const struct policy *p, struct policy_settings *out) {
    *out = (struct policy_settings){
        .order = (enum policy_order_word)p->order,
        .backfill = (enum policy_backfill_word)p->backfill,
        .placement = (enum policy_placement_word)p->placement,
        .short_factor = p->short_milli / 1000.0,
        .half_life_s = (uint32_t)(p->half_life_ms / 1000),
        .use_s = (uint32_t)(p->use_ms / 1000),
        .max_wait_s = (uint32_t)(p->max_wait_ms / 1000),
        .qos_step_s = (uint32_t)(p->qos_ms / 1000),
        .nice_step_s = (uint32_t)(p->nice_ms / 1000),
        .min_run_s = (uint32_t)(p->min_runtime_ms / 1000),
        .plan_depth = p->plan_depth,
        .size_s = (int32_t)(p->size_ms / 1000),
        .reclaim = p->reclaim,
        .interactive_in_quota = p->interactive_within_quota,
    };
}

// The grace period is a setting of the cluster, not of the policy.
static void to_policy(const struct policy_settings *s, struct policy *p) {
    p->order = (enum policy_order)s->order;
    p->backfill = (enum policy_backfill)s->backfill;
    p->placement = (enum policy_placement)s->placement;
    p->short_milli = (int32_t)(s->short_factor * 1000 + 0.5);
    p->half_life_ms = (int64_t)s->half_life_s * 1000;
    p->use_ms = (int64_t)s->use_s * 1000;
    p->max_wait_ms = (int64_t)s->max_wait_s * 1000;
    p->qos_ms = (int64_t)s->qos_step_s * 1000;
    p->nice_ms = (int64_t)s->nice_step_s * 1000;
    p->min_runtime_ms = (int64_t)s->min_run_s * 1000;
    p->plan_depth = s->plan_depth;
    p->size_ms = (int64_t)s->size_s * 1000;
    p->reclaim = s->reclaim;
    p->interactive_within_quota = s->interactive_in_quota;
}

void core_policy_settings(const struct core *c, struct policy_settings *out) {
    to_settings(&c->config.policy, out);
}

int core_policy_of(const struct policy_settings *s, struct policy *p, struct error *e) {
    if (!(s->short_factor >= 0 && s->short_factor <= 1000))
        return error_set(e, ERANGE, "short_factor: expected 0 to 1000");
    if (s->order > ORDER_FCFS || s->backfill > BACKFILL_NONE || s->placement > PLACEMENT_FIRST)
        return error_set(e, EINVAL, "order, backfill or placement has a value that is not known");
    to_policy(s, p);
    return sched_policy_check(p, e);
}

CORE_COMMAND(core_command_policy_set) {
    struct policy_settings before, s;
    struct policy p = c->config.policy;
    int r = core_need_admin(actor, "change the policy", e);
    if (r < 0)
        return r;
    core_policy_settings(c, &before);
    s = before;
    schema_merge(&policy_schema, &s, body);
    schema_forget_given(&policy_schema, &s);
    if ((r = core_policy_of(&s, &p, e)) < 0)
        return r;
    struct event_policy_set b = {.policy = &s, .by = actor->user};
    if (!schema_equal(&policy_schema, &before, &s))
        core_emit(c, now_ms, EVENT_POLICY_SET, &b);
    return 0;
}

bool core_policy_loads(const struct policy_settings *s) {
    struct policy p = {0};
    if (!s || !(s->short_factor >= 0 && s->short_factor <= 1000000) || s->order > ORDER_FCFS ||
        s->backfill > BACKFILL_NONE || s->placement > PLACEMENT_FIRST)
        return false;
    to_policy(s, &p);
    return p.half_life_ms > 0;
}

void core_apply_policy(struct core *c, const struct policy_settings *s, int64_t at_ms) {
    c->policy = *s;
    c->has_policy = true;
    to_policy(s, &c->config.policy);
    if (at_ms)
        world_half_life_from(c->world, c->config.policy.half_life_ms, at_ms);
    else
        world_half_life(c->world, c->config.policy.half_life_ms);
    c->dirty = true;
}

// After the configuration was read again: a policy that a command has set stays in force.
void core_policy_reapply(struct core *c) {
    if (c->has_policy)
        to_policy(&c->policy, &c->config.policy);
}
