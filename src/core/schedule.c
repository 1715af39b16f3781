// Scheduling passes: decisions of the scheduler become events.
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pauses.h"
#include "removal.h"
#include "model/reason.h"
#include "state.h"
#include "model/name.h"

enum { SET_BACK_MS = 1000 };  // less may be the order in which times were read

// Of two time limits, 0 being none. A rule that allows no time at all lets no job start (sched/eligibility.c).
static uint32_t least(uint32_t a_s, uint32_t b_s) {
    return !a_s || (b_s && b_s < a_s) ? b_s : a_s;
}

static uint32_t time_limit_of(const struct core *c, const struct core_job *j, const char *partition) {
    const struct entity_entry *t = core_find_entity(c, ENTITY_PARTITION, partition);
    const struct partition *p = t ? t->value : NULL;
    if (j->sub->time_limit_s)
        return j->sub->time_limit_s;
    uint32_t limit_s = p && p->default_time_s ? p->default_time_s
                       : p && p->max_time_s   ? p->max_time_s
                                              : c->config.default_time_s;
    t = core_find_entity(c, ENTITY_QOS, j->sub->qos);
    return least(limit_s, t ? ((const struct qos *)t->value)->max_wall_s : 0);
}

static uint32_t interactive_limit(const struct core *c, const struct core_job *j, uint32_t limit_s) {
    const struct entity_entry *t = core_find_entity(c, ENTITY_PROJECT, j->sub->project);
    uint32_t most =
        t && j->sub->class == CLASS_INTERACTIVE ? ((const struct project *)t->value)->interactive_limit_s : 0;
    return least(limit_s, most);
}

static int by_name(const void *a, const void *b) {
    return strverscmp(((const struct part *)a)->node, ((const struct part *)b)->node);
}

static void start(struct core *c, struct core_job *j, const struct sched_start *s, int64_t now_ms) {
    cleanup_arena struct arena arena = {0};
    const struct sched_alloc *a = s->alloc;
    struct event_job_placed b = {.id = j->id, .attempt = core_next_attempt(c, j), .epoch = core_epoch(c)};
    if (!s->partition)  // of a name that this state has never known: it waits until there is such a partition
        return;
    if (name_list_several(j->sub->partition))
        b.partition = c->entity_list[ENTITY_PARTITION].at[s->partition - 1]->name;
    b.time_limit_s = interactive_limit(c, j, time_limit_of(c, j, b.partition ? b.partition : j->sub->partition));
    if (!b.time_limit_s && j->sub->deadline_ms)  // without a limit of its own it may run until its deadline
        b.time_limit_s = (uint32_t)((j->sub->deadline_ms - now_ms) / 1000) + 1;
    if (s->limit_ms)
        b.time_limit_s = least(b.time_limit_s, (uint32_t)(s->limit_ms / 1000));
    if (core_is_group(j)) {
        core_group_start(c, j, s, &b, now_ms);
        return;
    }
    if (core_is_worker(j))
        b.time_limit_s = core_worker_time_limit(c, j, now_ms);
    b.optional = core_is_optional(j);
    b.parts.at = arena_alloc(&arena, a->node_count * sizeof *b.parts.at);
    for (b.parts.len = 0; b.parts.len < a->node_count; b.parts.len++) {
        const struct sched_alloc_node *n = &a->nodes[b.parts.len];
        struct part *p = &b.parts.at[b.parts.len];
        *p = (struct part){.node = c->node_list.at[n->node - 1]->name,
                           .cpus = n->cpus,
                           .tasks = n->tasks,
                           .memory_bytes = n->memory_bytes};
        p->gpus.at = arena_alloc(&arena, n->gpu_count * sizeof *p->gpus.at);
        for (p->gpus.len = 0; p->gpus.len < n->gpu_count; p->gpus.len++)
            p->gpus.at[p->gpus.len] = (struct gpu_grant){n->gpus[p->gpus.len].index, n->gpus[p->gpus.len].milli};
    }
    // In the order of the node list: MPI programs expect rank 0 on its first node.
    if (b.parts.len > 1)
        qsort(b.parts.at, b.parts.len, sizeof *b.parts.at, by_name);
    core_emit(c, now_ms, EVENT_JOB_PLACED, &b);
    for (uint32_t i = 0; i < j->run->part_count; i++)
        core_effect(c, EFFECT_LAUNCH, j->run->parts[i].node->name, j->id, j->attempt);
    core_effect(c, EFFECT_JOB_CHANGED, NULL, j->id, 0);
}

enum { PREEMPT_REASON_MAX = 64 + 2 * IDENTIFIER_MAX + 64 };

// Of an optional worker; `by` is NULL when its project is over a limit.
static void give_back_reason(const struct core_job *by, char out[static PREEMPT_REASON_MAX]) {
    const struct phrase_value values[PHRASE_VALUES_MAX] = {
        SAY_NUMBER(!by ? 0 : core_is_worker(by) ? core_group_of(by)->id : by->id),
        SAY_TEXT(by ? by->sub->project : NULL)};
    reason_format(out, PREEMPT_REASON_MAX, by ? BECAUSE_GIVEN_BACK : BECAUSE_GIVEN_BACK_LIMIT, values);
}

static void preempt_reason(enum sched_preempt_why why, const struct core_job *victim, const struct core_job *by,
                           char out[static PREEMPT_REASON_MAX]) {
    if (why == SCHED_PREEMPT_OPTIONAL) {
        give_back_reason(by, out);
        return;
    }
    static const enum reason_phrase phrases[] = {[SCHED_PREEMPT_SHARE] = BECAUSE_PREEMPTED_SHARE,
                                                 [SCHED_PREEMPT_QUOTA] = BECAUSE_PREEMPTED_QUOTA,
                                                 [SCHED_PREEMPT_QOS] = BECAUSE_PREEMPTED_QOS,
                                                 [SCHED_PREEMPT_PROJECT] = BECAUSE_PREEMPTED_PROJECT};
    struct phrase_value values[PHRASE_VALUES_MAX] = {SAY_NUMBER(by->id), SAY_TEXT(victim->sub->project),
                                                     SAY_TEXT(by->sub->project)};
    if (why == SCHED_PREEMPT_QOS) {
        values[1].text = by->sub->qos ? by->sub->qos : "(none)";
        values[2].text = victim->sub->qos ? victim->sub->qos : "(none)";
    }
    reason_format(out, PREEMPT_REASON_MAX, phrases[why], values);
}

// The limit of its array is being applied to one slice of elements after the other, and has not come to this one:
// whether it may start is not known yet.
static bool limit_is_open(const struct core_job *j) {
    const struct array *a = j->sub->array;
    return a && a->limit && j->id - a->id >= a->limited;
}

static void preempt(struct core *c, const struct sched_preempt *p, int64_t now_ms) {
    struct core_job *j = core_find_job(c, p->victim), *other = core_find_job(c, p->for_job);
    if (!j || !j->run || j->run->ending || (!other && p->why != SCHED_PREEMPT_OPTIONAL) ||
        (other && limit_is_open(other)))
        return;
    char by[24], reason[PREEMPT_REASON_MAX];
    snprintf(by, sizeof by, "%llu", (unsigned long long)p->for_job);
    preempt_reason(p->why, j, other, reason);
    struct event_job_ending how = {
        .cause = END_PREEMPT, .by = by, .reason = reason,  // grace_s 0: the job's own, or the cluster's
        .claim = p->grounds.claim, .share = p->grounds.share, .by_share = p->grounds.by_share};
    core_begin_ending(c, j, &how, now_ms);
}

// Planned starts are made anew by every pass: what the latest one did not plan again is no longer expected.
static void keep_plans(struct core *c, const struct sched_decisions *d) {
    for (uint32_t i = 0; i < c->planned.len; i++) {
        struct core_job *j = core_find_job(c, c->planned.at[i]);
        if (j)
            j->expected_start_s = 0;
    }
    vec_clear(&c->planned);
    for (uint32_t i = 0; i < d->plans.len; i++) {
        struct core_job *j = core_find_job(c, d->plans.at[i].job);
        if (!j)
            continue;
        j->expected_start_s = (uint32_t)((d->plans.at[i].start_ms + 999) / 1000);
        vec_push(&c->planned, j->id);
    }
}

static int64_t wake_time(const struct core *c) {
    // A time counts only while there is something it is for: it is not taken back when the last of its kind goes.
    int64_t next_ms = c->next_decide_ms;
    if (core_deletions_wait(c) && c->next_deletion_ms < next_ms)
        next_ms = c->next_deletion_ms;
    if (c->deadlines && c->next_deadline_ms < next_ms)
        next_ms = c->next_deadline_ms;
    if (c->time_warnings && c->next_warning_ms < next_ms)
        next_ms = c->next_warning_ms;
    if (c->leased.len && c->next_lease_ms < next_ms)
        next_ms = c->next_lease_ms;
    if (c->next_group_ms < next_ms)
        next_ms = c->next_group_ms;
    if (c->grants.len && c->next_grant_ms < next_ms)
        next_ms = c->next_grant_ms;
    if (c->dirty)
        next_ms = 0;
    return next_ms < c->next_retry_ms ? next_ms : c->next_retry_ms;
}

void core_passes(const struct core *c, struct core_passes *out) {
    *out = c->passes;
}

// The clock was set back. Times that were set by the one before would come only when it has caught up, perhaps in
// hours: everything is looked at again now, and pauses that the controller takes by itself are over.
static void look_again(struct core *c, int64_t now_ms) {
    c->next_decide_ms = c->next_deadline_ms = c->next_warning_ms = c->next_deletion_ms = c->next_grant_ms = 0;
    c->dirty = true;
    core_node_pauses_end(c, now_ms);
    core_group_pauses_end(c);
    core_service_pauses_end(c);
    c->next_autoscale_ms = 0;
}

int64_t core_schedule(struct core *c, int64_t now_ms) {
    if (now_ms + SET_BACK_MS < c->scheduled_ms)
        look_again(c, now_ms);
    c->scheduled_ms = now_ms;
    if (core_deletions_wait(c) && now_ms >= c->next_deletion_ms)
        core_deletions(c, now_ms);
    if (c->deadlines && now_ms >= c->next_deadline_ms)
        core_removals(c, now_ms);
    if (c->time_warnings && now_ms >= c->next_warning_ms)
        core_warn_of_time_limits(c, now_ms);
    if (now_ms >= c->next_retry_ms)
        core_node_retries(c, now_ms);
    if (core_leases_due(c, now_ms))
        core_leases_check(c, now_ms);
    if (c->grants.len && now_ms >= c->next_grant_ms)
        core_grants_expire(c, now_ms);
    if (!c->dirty && now_ms < c->next_decide_ms) {
        core_group_tasks(c, now_ms);
        return wake_time(c);
    }
    struct sched_decisions *d = &c->decisions;
    c->dirty = false;
    sched_decisions_done(d);
    struct policy policy = c->config.policy;
    policy.promises &= core_feature(c, FEATURE_PROMISES);
    sched_decide(c->world, now_ms, &policy, d);
    for (uint32_t i = 0; i < d->starts.len; i++) {
        struct core_job *j = core_find_job(c, d->starts.at[i].job);
        assert(j && j->state == JOB_PENDING && !j->run);
        if (limit_is_open(j))
            continue;
        start(c, j, &d->starts.at[i], now_ms);
        c->passes.backfilled += d->starts.at[i].backfill;
    }
    for (uint32_t i = 0; i < d->preempts.len; i++)
        preempt(c, &d->preempts.at[i], now_ms);
    keep_plans(c, d);
    core_promises(c, d, now_ms);
    c->passes.passes++;
    c->passes.started += d->starts.len;
    c->passes.looked_at += d->looked_at;
    c->next_decide_ms = d->next_ms;
    // The decisions themselves need no further pass, except that an elastic job that starts can grow.
    c->dirty = c->may_grow;
    c->may_grow = false;
    core_group_tasks(c, now_ms);
    return wake_time(c);
}
