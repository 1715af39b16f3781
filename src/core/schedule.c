// Owns the meeting with the scheduler: its decisions become events, and what must end by itself
// (deadlines) ends.
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state.h"
#include "model/name.h"

static uint32_t time_limit_of(const struct core *c, const struct core_job *j, const char *partition) {
    const struct entity_entry *t = core_find_entity(c, ENTITY_PARTITION, partition);
    const struct partition *p = t ? t->value : NULL;
    if (j->sub->time_limit_s)
        return j->sub->time_limit_s;
    if (p && p->default_time_s)
        return p->default_time_s;
    if (p && p->max_time_s)
        return p->max_time_s;
    return c->config.default_time_s;
}

static uint32_t interactive_limit(const struct core *c, const struct core_job *j, uint32_t limit_s) {
    const struct entity_entry *t = core_find_entity(c, ENTITY_PROJECT, j->sub->project);
    uint32_t most =
        t && j->sub->class == CLASS_INTERACTIVE ? ((const struct project *)t->value)->interactive_limit_s : 0;
    return most && (!limit_s || limit_s > most) ? most : limit_s;
}

static int by_name(const void *a, const void *b) {
    return strverscmp(((const struct part *)a)->node, ((const struct part *)b)->node);
}

static void start(struct core *c, struct core_job *j, const struct sched_start *s, int64_t now_ms) {
    cleanup_arena struct arena arena = {0};
    const struct sched_alloc *a = s->alloc;
    struct event_job_placed b = {.id = j->id, .attempt = j->attempt + 1};
    assert(s->partition);
    if (names_several(j->sub->partition))
        b.partition = c->entity_list[ENTITY_PARTITION].at[s->partition - 1]->name;
    b.time_limit_s = interactive_limit(c, j, time_limit_of(c, j, b.partition ? b.partition : j->sub->partition));
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
    // In the order of the node list: programs take its first name for where rank 0 is.
    if (b.parts.len > 1)
        qsort(b.parts.at, b.parts.len, sizeof *b.parts.at, by_name);
    core_emit(c, now_ms, EVENT_JOB_PLACED, &b);
    for (uint32_t i = 0; i < j->run->part_count; i++)
        core_effect(c, EFFECT_LAUNCH, j->run->parts[i].node->name, j->id, j->attempt);
    core_effect(c, EFFECT_JOB_CHANGED, NULL, j->id, 0);
}

static void preempt(struct core *c, const struct sched_preempt *p, int64_t now_ms) {
    static const char *const why[] = {
        [SCHED_PREEMPT_SHARE] = "its project is over its share, the other's below",
        [SCHED_PREEMPT_QUOTA] = "the other job is inside its project's guaranteed quota",
        [SCHED_PREEMPT_QOS] = "the other job's QoS may preempt",
        [SCHED_PREEMPT_PROJECT] = "interactive work of the same project comes first",
    };
    struct core_job *j = core_find_job(c, p->victim);
    if (!j || !j->run || j->run->ending)
        return;
    char by[24], reason[160];
    snprintf(by, sizeof by, "%llu", (unsigned long long)p->for_job);
    snprintf(reason, sizeof reason, "made room for job %s: %s", by, why[p->why]);
    struct event_job_ending how = {
        .cause = END_PREEMPT, .by = by, .reason = reason,  // with the grace it asked for, or the cluster's
        .claim = p->grounds.claim, .share = p->grounds.share, .by_share = p->grounds.by_share};
    core_begin_ending(c, j, &how, now_ms);
}

// Plans change with every decision; only what people see of them is kept.
static void note_plans(struct core *c, const struct sched_decisions *d) {
    for (uint32_t i = 0; i < d->plans.len; i++) {
        struct core_job *j = core_find_job(c, d->plans.at[i].job);
        if (j)
            j->expected_start_s = (uint32_t)((d->plans.at[i].start_ms + 999) / 1000);
    }
}

// Looked for once a second at most, and only while some job has a deadline.
static void end_overdue(struct core *c, int64_t now_ms) {
    c->next_deadline_ms = now_ms + 1000;
    for (uint32_t i = 0; i < c->order.len; i++) {
        struct core_job *j = c->order.at[i];
        if (j && j->sub->deadline_ms && j->sub->deadline_ms <= now_ms && j->state == JOB_PENDING)
            core_end_pending(c, j, JOB_DEADLINE, NULL, "its deadline passed before it could start", now_ms);
    }
}

static int64_t wake_time(const struct core *c) {
    int64_t next_ms = c->next_decide_ms;
    if (c->deadlines && c->next_deadline_ms < next_ms)
        next_ms = c->next_deadline_ms;
    if (c->time_warnings && c->next_warning_ms < next_ms)
        next_ms = c->next_warning_ms;
    return next_ms < c->next_retry_ms ? next_ms : c->next_retry_ms;
}

void core_passes(const struct core *c, struct core_passes *out) {
    *out = c->passes;
}

int64_t core_schedule(struct core *c, int64_t now_ms) {
    if (c->deadlines && now_ms >= c->next_deadline_ms)
        end_overdue(c, now_ms);
    if (c->time_warnings && now_ms >= c->next_warning_ms)
        core_warn_of_time_limits(c, now_ms);
    if (now_ms >= c->next_retry_ms)
        core_node_retries(c, now_ms);
    if (!c->dirty && now_ms < c->next_decide_ms)
        return wake_time(c);
    struct sched_decisions *d = &c->decisions;
    c->dirty = false;
    sched_decisions_done(d);
    sched_decide(c->world, now_ms, &c->config.policy, d);
    for (uint32_t i = 0; i < d->starts.len; i++) {
        struct core_job *j = core_find_job(c, d->starts.at[i].job);
        assert(j && j->state == JOB_PENDING && !j->run);
        start(c, j, &d->starts.at[i], now_ms);
        c->passes.backfilled += d->starts.at[i].backfill;
    }
    for (uint32_t i = 0; i < d->preempts.len; i++)
        preempt(c, &d->preempts.at[i], now_ms);
    note_plans(c, d);
    c->passes.passes++;
    c->passes.started += d->starts.len;
    c->passes.looked_at += d->looked_at;
    c->next_decide_ms = d->next_ms;
    c->dirty = false;  // what was decided just now is no news
    return wake_time(c);
}
