// Promised starts. A job that got a planned start keeps it: the nodes it was planned on are kept for it from that time
// on, in every later pass, whatever is submitted meanwhile. An earlier start replaces it; a later one only for a reason
// of enum sched_late, which is reported.
//
// Invariant: a job that starts in a pass passes sched_plan_allows for every promise, except jobs that stay within their
// project's guaranteed quota, before which only promises of that kind come. So a promise that held when a pass began
// holds when it ends, unless one of those took its place.
#include "promise.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "partition_choice.h"
#include "parts.h"
#include "place.h"
#include "plan.h"
#include "reclaim.h"
#include "tentative.h"
#include "uneven.h"

enum {
    OVERRUN_LEAST_MS = 1000,  // a job that should have ended is expected to do so within the grace time, or this
    STEP_PART = 64,          // a start is promised anew when it is earlier by this part of the time that is left …
    STEP_LEAST_MS = 1000     // … and by as much as this
};

static const char *const WORDS[SCHED_LATE_COUNT] = {"None", "NodeLost", "RulesChanged", "QuotaClaimed", "JobOverran",
                                                    "OwnLimit"};

const char *sched_late_word(enum sched_late late) {
    return late < SCHED_LATE_COUNT ? WORDS[late] : WORDS[0];
}

// --- what the world keeps ---

static bool promised_before(const struct world_job *a, const struct world_job *b) {
    return a->promise->start_ms != b->promise->start_ms ? a->promise->start_ms < b->promise->start_ms : a->id < b->id;
}

void sched_promise_drop(struct world *w, struct world_job *j) {
    if (!j->promise)
        return;
    for (uint32_t i = 0; i < w->jobs.promised.len; i++)
        if (w->jobs.promised.at[i] == j) {
            vec_remove(&w->jobs.promised, i);
            break;
        }
    free(j->promise);
    j->promise = NULL;
}

static uint64_t releases(const struct world *w) {
    return w->jobs.releases + w->version.config + w->version.nodes;
}

int world_job_promise(struct world *w, uint64_t id, int64_t start_ms, uint32_t partition,
                      const struct sched_promise_node *nodes, uint32_t count) {
    struct world_job *j = world_find(w, id);
    if (!j || j->state != SCHED_JOB_PENDING || j->optional)
        return -ENOENT;
    for (uint32_t i = 0; i < count; i++)
        if (!nodes[i].node || nodes[i].node >= SCHED_NODES_MAX || nodes[i].part > j->request->parts.len)
            return -EINVAL;
    sched_promise_drop(w, j);
    if (start_ms <= 0 || !count)
        return 0;
    j->promise = xmalloc(sizeof *j->promise + count * sizeof *nodes);
    *j->promise = (struct world_promise){
        .start_ms = start_ms, .searched = releases(w), .partition = partition, .count = count};
    memcpy(j->promise->nodes, nodes, count * sizeof *nodes);
    vec_push(&w->jobs.promised, j);
    uint32_t i = w->jobs.promised.len - 1;
    for (; i && promised_before(j, w->jobs.promised.at[i - 1]); i--)
        w->jobs.promised.at[i] = w->jobs.promised.at[i - 1];
    w->jobs.promised.at[i] = j;
    return 0;
}

void sched_promises_keep(struct world *w, const struct sched_decisions *d) {
    for (uint32_t i = 0; i < d->broken.len; i++)
        world_job_promise(w, d->broken.at[i].job, 0, 0, NULL, 0);
    for (uint32_t i = 0; i < d->plans.len; i++)
        if (d->plans.at[i].nodes)
            world_job_promise(w, d->plans.at[i].job, d->plans.at[i].start_ms, d->plans.at[i].partition,
                              d->plans.at[i].nodes, d->plans.at[i].node_count);
}

// --- in a pass ---

uint32_t sched_promise_claims(const struct sched_pass *p, const struct world_request *r) {
    const struct world_project *own = world_project(p->w, r->asked.project);
    unsigned d = r->dim;
    bool claims = p->policy->order == POLICY_ORDER_FAIR && own && own->quota[d] > 0 && r->amount > 0 &&
                  own->used[d] + r->amount <= own->quota[d];
    return claims ? r->asked.project : 0;
}

bool sched_promise_plan_free(const struct sched_pass *p, uint32_t partition) {
    uint32_t plans = p->plans[partition];
    for (uint32_t i = 0; p->claiming && i < p->promises.len; i++) {
        const struct promise_state *s = &p->promises.at[i];
        plans -= pass_yields(p, s->yields) && pass_planned(p, s->job) && s->job->promise->partition == partition;
    }
    return plans < p->policy->plan_depth;
}

bool sched_promise_plan_possible(const struct sched_pass *p, uint32_t partition) {
    uint32_t plans = p->plans[partition];
    // One that has not had its turn may start then, or lose its place.
    for (uint32_t i = 0; !p->promises_served && i < p->promises.len; i++) {
        const struct promise_state *s = &p->promises.at[i];
        plans -= (!s->served || s->yields) && pass_planned(p, s->job) && s->job->promise->partition == partition;
    }
    return plans < p->policy->plan_depth;
}

static struct world_request *part_of(struct world_request *r, uint32_t part) {
    return part ? r->parts.at[part - 1] : r;
}

// The request it was promised a start with; NULL: it no longer names that partition.
static struct world_request *promised_option(const struct world_job *j) {
    struct world_request *r = sched_job_option_in(j, j->promise->partition);
    return r->asked.partition == j->promise->partition ? r : NULL;
}

static void put(struct sched_pass *p, struct world_job *j, struct world_request *r, uint32_t yields) {
    for (uint32_t i = 0; i < j->promise->count; i++) {
        const struct sched_promise_node *n = &j->promise->nodes[i];
        if (world_node(p->w, n->node))
            sched_plan_keep_part(p, j, part_of(r, n->part), n->node, n->tasks, n->gpus,
                                 j->promise->start_ms);
    }
    for (uint32_t i = p->parts.len; i-- > 0 && p->parts.at[i].job == j;)
        p->parts.at[i].yields = yields;
    map_put(&p->planned, j->id, j);
    p->choice_planned |= r->choice != NULL;
    for (uint32_t i = 0; r->choice && i < r->choice->options.len; i++)
        sched_fit_class(p->w, r->choice->options.at[i])->own_plan_pass = p->w->last_pass.number;
}

void sched_promise_remake(struct sched_pass *p, struct world_job *j, const struct sched_plan *plan) {
    struct world_request *r = sched_job_option_in(j, plan->partition);
    const struct sched_promise_node *nodes = plan->nodes;
    uint32_t count = plan->node_count;
    if (!nodes && j->promise) {
        nodes = j->promise->nodes;
        count = j->promise->count;
    }
    for (uint32_t i = 0; nodes && i < count; i++)
        if (world_node(p->w, nodes[i].node) && nodes[i].part <= r->parts.len)
            sched_plan_keep_part(p, j, part_of(r, nodes[i].part), nodes[i].node, nodes[i].tasks, nodes[i].gpus,
                                 plan->start_ms);
    map_put(&p->planned, j->id, j);
}

void sched_promises_mark(struct sched_pass *p) {
    if (!p->policy->promises || !p->policy->plan_depth)
        return;
    // Those within their quota first; else in the order of their starts.
    for (int yields = 0; yields < 2; yields++)
        for (uint32_t i = 0; i < p->w->jobs.promised.len; i++) {
            struct world_job *j = p->w->jobs.promised.at[i];
            if (!j->queued)
                continue;
            for (uint32_t k = 0; k < sched_job_options(j); k++)
                sched_request_refresh(p->w, sched_job_option(j, k));
            sched_request_refresh(p->w, j->request);
            if ((sched_promise_claims(p, j->request) == 0) != yields)
                continue;
            struct world_request *r = promised_option(j);
            uint32_t yields_as = yields ? j->request->asked.project : 0;
            vec_push(&p->promises, ((struct promise_state){.job = j, .yields = yields_as}));
            if (!r)
                continue;
            put(p, j, r, yields_as);
            p->plans[r->asked.partition]++;
            if (j->promise->start_ms > p->now_ms && j->promise->start_ms < p->out->next_ms)
                p->out->next_ms = j->promise->start_ms;
        }
}

// Takes the parts that the job had before `until` off their nodes.
static void take_off(struct sched_pass *p, const struct world_job *j, uint32_t until) {
    for (uint32_t i = 0; i < until; i++)
        if (p->parts.at[i].job == j)
            p->parts.at[i].tasks = 0;
}

static void unplan(struct sched_pass *p, struct world_job *j) {
    if (!pass_planned(p, j))
        return;
    take_off(p, j, p->parts.len);
    map_remove(&p->planned, j->id);
    p->plans[j->promise->partition]--;
}

static bool start(struct sched_pass *p, struct world_job *j) {
    for (uint32_t i = 0; i < sched_job_options(j); i++) {
        struct world_request *r = sched_job_option(j, i);
        if (p->closed[r->asked.partition] || sched_eligibility(p, r))
            continue;
        int64_t shorter_ms = 0;
        struct sched_alloc *a = sched_place(p, r);
        if (!a)
            a = sched_place_shorter(p, j, r, &shorter_ms);
        if (!a)
            continue;
        unplan(p, j);
        p->served = true;
        sched_start_with_limit(p, j, r, a, false, shorter_ms);
        return true;
    }
    return false;
}

static bool by_rules(enum sched_reason r) {
    return r == SCHED_REASON_PROJECT_GONE || r == SCHED_REASON_PARTITION || r == SCHED_REASON_QOS_GONE ||
           r == SCHED_REASON_TIME_LIMIT || r == SCHED_REASON_DEADLINE || r == SCHED_REASON_RESERVATION_GONE;
}

// Why enough will not be free on the node at that time.
static enum sched_late who_is_late(const struct sched_pass *p, const struct world_node *n, uint32_t tasks,
                                   const struct sched_demand *d, uint64_t *by) {
    struct node_copy idle;
    sched_node_copy_init(&idle, n);
    for (uint32_t i = 0; i < n->jobs.len; i++) {
        sched_node_copy_release(&idle, n->jobs.at[i]);
        if (sched_job_end_ms(n->jobs.at[i]) <= p->now_ms) {
            *by = n->jobs.at[i]->id;
            return SCHED_LATE_OVERRUN;
        }
    }
    if (sched_fit_tasks(&idle.node, d) < tasks) {
        *by = n->id;
        return SCHED_LATE_NODE;
    }
    *by = p->claimed;
    return p->claimed ? SCHED_LATE_QUOTA : SCHED_LATE_RULES;
}

static enum sched_late node_late(struct sched_pass *p, const struct promise_state *s, struct world_request *r,
                                 const struct sched_promise_node *at, int64_t start_ms, uint64_t *by) {
    struct world_request *part = part_of(r, at->part);
    const struct world_node *n = world_node(p->w, at->node);
    *by = at->node;
    if (!n || n->state != SCHED_NODE_UP)
        return SCHED_LATE_NODE;
    sched_request_refresh(p->w, part);
    const struct sched_fit *f = sched_fit_of(p->w, part);
    *by = 0;
    int64_t from_ms = start_ms > p->now_ms ? start_ms : p->now_ms;
    if (at->node >= f->nodes_len || !f->allowed[at->node] ||
        !sched_reservations_allow(p->w, r, at->node, from_ms, r->limit_ms))
        return SCHED_LATE_RULES;
    for (uint32_t i = pass_first_part(p, at->node); i; i = p->parts.at[i - 1].next) {
        const struct planned_part *other = &p->parts.at[i - 1];
        if (s->yields && other->tasks && !other->yields && other->job != s->job) {
            *by = other->job->id;
            return SCHED_LATE_QUOTA;
        }
    }
    struct node_copy c;
    sched_node_copy_init(&c, n);
    for (uint32_t i = 0; i < n->jobs.len; i++)
        if (sched_plan_expected_end(p, n->jobs.at[i]) <= start_ms)
            sched_node_copy_release(&c, n->jobs.at[i]);
    struct sched_demand needs = sched_demand_on(&part->demand, at->gpus);
    return sched_fit_tasks(&c.node, &needs) >= at->tasks ? SCHED_LATE_NONE
                                                         : who_is_late(p, n, at->tasks, &needs, by);
}

static enum sched_late late(struct sched_pass *p, const struct promise_state *s, uint64_t *by) {
    const struct world_promise *m = s->job->promise;
    struct world_request *r = promised_option(s->job);
    *by = 0;
    if (!r || sched_pass_strict(p, r))
        return SCHED_LATE_RULES;
    enum sched_reason reason = sched_eligibility(p, r);
    if (by_rules(reason))
        return SCHED_LATE_RULES;
    if (reason && m->start_ms <= p->now_ms)
        return SCHED_LATE_LIMIT;
    for (uint32_t i = 0; i < m->count; i++) {
        enum sched_late why = node_late(p, s, r, &m->nodes[i], m->start_ms, by);
        if (why)
            return why;
    }
    return m->start_ms > p->now_ms ? SCHED_LATE_NONE : SCHED_LATE_OVERRUN;
}

// An earlier start, if something that helps has happened since the last look.
static void improve(struct sched_pass *p, struct world_job *j) {
    struct world_promise *m = j->promise;
    struct world_request *r = promised_option(j);
    int64_t left_ms = m->start_ms - p->now_ms;
    int64_t step_ms = left_ms / STEP_PART > STEP_LEAST_MS ? left_ms / STEP_PART : STEP_LEAST_MS;
    uint32_t parts = p->parts.len;
    if (m->searched == releases(p->w) || sched_eligibility(p, r))
        return;
    if (sched_plan_make(p, j, &r, 1, m->start_ms - step_ms))
        take_off(p, j, parts);
    else
        m->searched = releases(p->w);
}

static void plan_again(struct sched_pass *p, struct world_job *j, enum sched_late why) {
    uint32_t parts = p->parts.len;
    struct world_request *r = promised_option(j);
    if (!r || sched_pass_strict(p, r) || sched_eligibility(p, r) || !sched_promise_plan_free(p, r->asked.partition) ||
        !sched_plan_make(p, j, &r, 1, INT64_MAX))
        return;
    p->plans[r->asked.partition]++;
    struct sched_plan *plan = &p->out->plans.at[p->out->plans.len - 1];
    int64_t grace_ms = p->policy->grace_ms > OVERRUN_LEAST_MS ? p->policy->grace_ms : OVERRUN_LEAST_MS;
    if (why != SCHED_LATE_OVERRUN || plan->start_ms >= p->now_ms + grace_ms)
        return;
    plan->start_ms = p->now_ms + grace_ms;
    for (uint32_t i = parts; i < p->parts.len; i++)
        p->parts.at[i].from_ms = plan->start_ms;
}

static void serve(struct sched_pass *p, struct promise_state *s) {
    struct world_job *j = s->job;
    const struct world_promise *m = j->promise;
    uint64_t by;
    s->served = true;
    if (j->alloc) {
        unplan(p, j);
        return;
    }
    p->claiming = s->yields ? 0 : j->request->asked.project;
    p->placing = j;
    uint32_t plans = p->out->plans.len;
    bool preempting = p->earmarked.len && map_get(&p->earmarked, j->id);
    if (!preempting && start(p, j)) {
        p->placing = NULL;
        p->claiming = 0;
        return;
    }
    enum sched_late why = preempting ? SCHED_LATE_NONE : late(p, s, &by);
    if (why) {
        vec_push(&p->out->broken, ((struct sched_broken_promise){j->id, m->start_ms, why, by}));
        unplan(p, j);
        plan_again(p, j, why);
    } else if (!preempting) {
        improve(p, j);
    }
    p->placing = NULL;
    p->claiming = 0;
    if (p->out->plans.len == plans && !why)
        vec_push(&p->out->plans, ((struct sched_plan){.job = j->id,
                                                      .start_ms = m->start_ms,
                                                      .partition = m->partition,
                                                      .node_count = m->count}));
    if (pass_planned(p, j))
        sched_pass_reason(p, j, SCHED_REASON_RESOURCES);
}

void sched_promises_serve(struct sched_pass *p, bool all) {
    for (uint32_t i = 0; i < p->promises.len; i++)
        if (!p->promises.at[i].served && (all || !p->promises.at[i].yields))
            serve(p, &p->promises.at[i]);
    p->promises_served |= all;
}

bool sched_promise_turn(struct sched_pass *p, struct world_job *j, struct world_request *r) {
    for (uint32_t i = 0; i < p->promises.len; i++)
        if (p->promises.at[i].job == j && !p->promises.at[i].served)
            serve(p, &p->promises.at[i]);
    if (j->alloc || (p->earmarked.len && map_get(&p->earmarked, j->id)))
        return true;
    bool enough = r->parts.len ? sched_parts_enough(p, r) : sched_fit_enough(sched_fit_of(p->w, r));
    if (!enough && !(r->choice && sched_choice_room(p, j, r, false)) &&
        sched_reclaim(p, j, r->choice ? sched_choice_cheapest(p, j, r) : r))
        sched_pass_reason(p, j, SCHED_REASON_PREEMPTING);
    return true;
}
