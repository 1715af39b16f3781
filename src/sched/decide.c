// One scheduling pass. Jobs for which others were preempted come first; then every pending job in order
// either starts, preempts others, gets a planned start, or waits with a reason. Jobs that come later may
// start too where they do not delay a planned start (backfill).
#include <assert.h>

#include "growth.h"
#include "order.h"
#include "partition_choice.h"
#include "parts.h"
#include "place.h"
#include "plan.h"
#include "promise.h"
#include "reclaim.h"
#include "tentative.h"

static const char *const WORDS[SCHED_REASON_COUNT] = {
    "None",     "Held",      "BeginTime",   "ProjectGone",  "Partition",       "QosGone",
    "QosLimit", "TimeLimit", "Deadline",    "ProjectLimit", "Quota",           "Resources",
    "Priority", "Nodes",     "Reservation", "Vacating",     "ReservationGone",
};

const char *sched_reason_word(enum sched_reason r) {
    return r < SCHED_REASON_COUNT ? WORDS[r] : "None";
}

void sched_decisions_done(struct sched_decisions *d) {
    for (uint32_t i = 0; i < d->starts.len; i++) {
        sched_alloc_free(d->starts.at[i].alloc);
        free(d->starts.at[i].after);
    }
    vec_done(&d->starts);
    vec_done(&d->preempts);
    for (uint32_t i = 0; i < d->plans.len; i++)
        free(d->plans.at[i].nodes);
    vec_done(&d->plans);
    vec_done(&d->broken);
    *d = (struct sched_decisions){0};
}

void sched_pass_reason(struct sched_pass *p, struct world_job *j, enum sched_reason reason) {
    j->reason = (uint8_t)reason;
    vec_push(&p->w->jobs.with_reason, j->id);
}

static void reasons_clear(struct world *w) {
    for (uint32_t i = 0; i < w->jobs.with_reason.len; i++) {
        struct world_job *j = world_find(w, w->jobs.with_reason.at[i]);
        if (j)
            j->reason = SCHED_REASON_NONE;
    }
    vec_clear(&w->jobs.with_reason);
}

static int by_age(const void *pa, const void *pb) {
    const struct world_job *a = *(struct world_job *const *)pa, *b = *(struct world_job *const *)pb;
    if (a->submit_ms != b->submit_ms)
        return a->submit_ms < b->submit_ms ? -1 : 1;
    return (a->id > b->id) - (a->id < b->id);
}

// The preemptors that still wait, oldest first.
static uint32_t waiting_preemptors(struct world *w, struct world_job ***out) {
    VEC(struct world_job *) found = {0};
    uint32_t kept = 0;
    for (uint32_t i = 0; i < w->jobs.preemptors.len; i++) {
        struct world_job *j = world_find(w, w->jobs.preemptors.at[i]);
        if (!j || !j->preemptor)
            continue;
        w->jobs.preemptors.at[kept++] = j->id;
        if (j->queued)
            vec_push(&found, j);
    }
    w->jobs.preemptors.len = kept;
    if (found.len)
        qsort(found.at, found.len, sizeof *found.at, by_age);
    // A job that started, was requeued and preempted again is in the list twice.
    uint32_t n = 0;
    for (uint32_t i = 0; i < found.len; i++)
        if (!i || found.at[i] != found.at[i - 1])
            found.at[n++] = found.at[i];
    *out = found.at;
    return n;
}

static bool eligible_anywhere(const struct sched_pass *p, const struct world_job *j) {
    bool any = false;
    for (uint32_t i = 0; i < sched_job_options(j); i++)
        any |= !sched_eligibility(p, sched_job_option(j, i));
    return any;
}

// Without victims: starts the preemptor if it fits now. With victims: if it will fit once they have ended,
// sets those resources aside for it.
static bool serve_preemptor(struct sched_pass *p, struct world_job *t, struct world_job *const *victims, uint32_t n) {
    for (uint32_t i = 0; i < sched_job_options(t); i++) {
        struct world_request *r = sched_job_option(t, i);
        sched_request_refresh(p->w, r);
        p->claiming = sched_promise_claims(p, r);
        p->placing = t->promise ? t : NULL;
        struct sched_alloc *a = NULL;
        if (!sched_eligibility(p, r))
            a = n ? sched_tentative_place_without(p, r, victims, n) : sched_place(p, r);
        p->placing = NULL;
        if (!a)
            continue;
        if (p->claiming)
            p->claimed = t->id;
        if (n) {
            sched_tentative_earmark(p, t, r, a, victims, n);
            sched_pass_reason(p, t, SCHED_REASON_PREEMPTING);
        } else {
            sched_tentative_start(p, t, r, a, false);
            p->out->next_ms = p->now_ms;  // it started out of order: jobs before it may have a claim on what it got
        }
        return true;
    }
    return false;
}

// Preemptors start as soon as they fit; until then the resources of their victims are set aside for them.
// One that would not fit even without all its victims (a node was lost) is treated like any other job again.
static void serve_preemptors(struct sched_pass *p) {
    struct world_job **preemptors;
    VEC(struct world_job *) victims = {0};
    for (uint32_t i = 0; i < p->w->jobs.ending.len; i++)
        sched_tentative_preempt(p, p->w->jobs.ending.at[i]);
    uint32_t count = waiting_preemptors(p->w, &preemptors);
    for (uint32_t i = 0; i < count; i++) {
        struct world_job *t = preemptors[i];
        vec_clear(&victims);
        for (uint32_t k = 0; k < p->w->jobs.ending.len; k++)
            if (p->w->jobs.ending.at[k]->ending_for == t->id)
                vec_push(&victims, p->w->jobs.ending.at[k]);
        if (serve_preemptor(p, t, NULL, 0))
            continue;
        if (victims.len)
            serve_preemptor(p, t, victims.at, victims.len);
        else if (!p->promises.len && eligible_anywhere(p, t))  // else a promise can be in its way, which may move
            t->preemptor = false;
    }
    p->claiming = 0;
    free(preemptors);
    vec_done(&victims);
}

bool sched_pass_strict(const struct sched_pass *p, const struct world_request *r) {
    const struct world_partition *part = world_partition(p->w, r->asked.partition);
    return p->policy->backfill == POLICY_BACKFILL_NONE || (part && part->fifo);
}

// The job does not fit now: it preempts others, gets a planned start, or waits. Returns whether the
// request's next job is to be looked at as well.
static bool blocked(struct sched_pass *p, struct sched_order *o, struct world_job *j, struct world_request *r) {
    struct sched_fit *f = sched_fit_of(p->w, r);
    bool choice = r->choice, enough = r->parts.len ? sched_parts_enough(p, r) : sched_fit_enough_together(f);
    // If enough is free and only a planned start is in its way, it preempts nobody.
    if (!enough && !(choice && sched_choice_room(p, j, r, false)) &&
        sched_reclaim(p, j, choice ? sched_choice_cheapest(p, j, r) : r)) {
        sched_pass_reason(p, j, SCHED_REASON_PREEMPTING);
        return true;
    }
    uint32_t part = r->asked.partition;
    if (!enough) {
        if (!sched_fits_when_idle(p->w, f) || (r->parts.len && !sched_parts_fit_idle(p->w, r)))
            return false;
        if (sched_pass_strict(p, r)) {
            if (!p->closed[part])
                sched_pass_reason(p, j, SCHED_REASON_RESOURCES);
        } else if (sched_promise_plan_free(p, part)) {
            // It is planned in another partition or starts there next: the job after it may be planned here.
            if (choice && (pass_planned(p, j) || sched_choice_room(p, j, r, true)))
                return true;
            struct world_request *in = choice ? sched_choice_plan(p, j, r) : sched_plan_make(p, j, &r, 1, INT64_MAX);
            in = in ? in : r;
            p->plans[in->asked.partition]++;
            sched_pass_reason(p, j, SCHED_REASON_RESOURCES);
            if (p->policy->backfill == POLICY_BACKFILL_SHORTEST && !o->shortest) {
                o->shortest = true;
                sched_order_drop(o);
                sched_order_rebuild(o);
                return true;
            }
            if (in != r)
                return true;
        }
    }
    p->closed[part] |= sched_pass_strict(p, r);
    // This job must not preempt those above it, but the request's next job may be allowed to.
    return j->preempted_by && !enough;
}

// What is free is needed later, by a planned start or a reservation. A job that says how short its time limit may be
// starts now with the longest limit, to a minute, that ends before.
struct sched_alloc *sched_place_shorter(struct sched_pass *p, struct world_job *j, struct world_request *r,
                                         int64_t *limit_ms) {
    enum { STEP_MS = 60 * 1000 };
    const int64_t most_ms = 366LL * 86400 * 1000, asked_ms = r->limit_ms;
    int64_t low = r->asked.time_min_ms, high = asked_ms;
    if (!low || low >= asked_ms || r->parts.len || (r->choice && sched_choice_room(p, j, r, true)))
        return NULL;
    r->limit_ms = low;
    struct sched_alloc *a = sched_place(p, r);
    if (high - low > most_ms)
        high = low + most_ms;
    while (a && high - low > STEP_MS) {
        r->limit_ms = low + (high - low) / 2;
        struct sched_alloc *longer = sched_place(p, r);
        if (!longer) {
            high = r->limit_ms;
            continue;
        }
        sched_alloc_free(a);
        a = longer;
        low = r->limit_ms;
    }
    r->limit_ms = asked_ms;
    *limit_ms = low / 1000 * 1000;
    return a;
}

void sched_start_with_limit(struct sched_pass *p, struct world_job *j, struct world_request *r, struct sched_alloc *a,
                            bool backfill, int64_t limit_ms) {
    int64_t asked_ms = r->limit_ms;
    r->limit_ms = limit_ms ? limit_ms : asked_ms;
    sched_tentative_start(p, j, r, a, backfill);
    r->limit_ms = asked_ms;
    p->out->starts.at[p->out->starts.len - 1].limit_ms = limit_ms;
}

// Parts are placed one after the other, so that a job can fit beside what is withheld for it although it did not fit
// before: else a younger job of the same request would get that place. Returns true.
static bool start_earmarked(struct sched_pass *p, struct world_job *j, struct world_request *r) {
    struct sched_alloc *a = sched_eligibility(p, r) ? NULL : sched_place(p, r);
    if (!a)
        return true;
    sched_tentative_start(p, j, r, a, false);
    p->out->next_ms = p->now_ms;  // what was withheld for it is for others now
    return true;
}

// Looks at one job; false when its request is done with for this pass.
static bool consider(struct sched_pass *p, struct sched_order *o, const struct queue_entry *e) {
    struct world_request *r = e->request;
    struct world_job *j = job_queue_at(&r->queue, e->at);
    if (p->served && (j->alloc || (p->earmarked.len && map_get(&p->earmarked, j->id))))
        return j->alloc || !r->parts.len || start_earmarked(p, j, r);
    if (p->closed[e->partition] || sched_eligibility(p, r))
        return false;
    if (p->promises.len && j->promise && pass_planned(p, j))
        return sched_promise_turn(p, j, r);
    p->placing = p->choice_planned && pass_planned(p, j) ? j : NULL;
    int64_t shorter_ms = 0;
    struct sched_alloc *a = sched_place(p, r);
    if (!a)
        a = sched_place_shorter(p, j, r, &shorter_ms);
    bool more = a || blocked(p, o, j, r);
    p->placing = NULL;
    if (a)
        sched_start_with_limit(p, j, r, a, shorter_ms || p->parts.len > 0, shorter_ms);
    if (p->claiming && (a || pass_planned(p, j) || (p->earmarked.len && map_get(&p->earmarked, j->id))))
        p->claimed = j->id;
    return more;
}

// Jobs with a promise come before the first job that has no claim on its project's guaranteed quota. After that, claims
// no longer delay them in this pass.
// Returns whether they had their turn now.
static bool serve_promises(struct sched_pass *p, struct sched_order *o, const struct queue_entry *e) {
    p->claiming = e && !p->promises_served ? sched_promise_claims(p, e->request) : 0;
    if (p->claiming || p->promises_served)
        return false;
    sched_promises_serve(p, true);
    if (p->policy->backfill == POLICY_BACKFILL_SHORTEST && p->out->plans.len && !o->shortest) {
        o->shortest = true;
        sched_order_rebuild(o);
    }
    return true;
}

static void look_at_all(struct sched_pass *p) {
    struct sched_order o;
    sched_order_make(&o, p);
    sched_promises_serve(p, false);
    for (struct queue_entry *e; (e = sched_order_next(&o));) {
        if (serve_promises(p, &o, e))
            continue;
        uint32_t preempts = p->out->preempts.len, moves = p->moves;
        bool shortest = o.shortest;
        if (sched_order_skippable(&o, e) || !consider(p, &o, e))
            sched_order_drop(&o);
        else if (o.shortest == shortest)
            sched_order_advance(&o);
        if (p->out->preempts.len != preempts)
            sched_order_rerank(&o);  // the victims' projects use less now
        sched_order_trim(&o, p->moves == moves);
    }
    p->claiming = 0;
    if (!p->promises_served)
        sched_promises_serve(p, true);
    sched_order_done(&o);
    p->out->looked_at = p->w->jobs.ready;
}

void sched_pass_done(struct sched_pass *p) {
    sched_growth_undo(p);
    sched_tentative_undo(p);
    sched_plan_clear(p);
    sched_place_done(p);
    vec_done(&p->promises);
    vec_done(&p->victim_projects);
    vec_done(&p->victim_most);
    vec_done(&p->freeable);
    map_done(&p->reclaims_failed);
    map_done(&p->above);
    sched_growth_report(p);
}

static void decide(struct sched_pass *p) {
    struct world *w = p->w;
    world_enqueue_begun(w, p->now_ms);
    w->last_pass.number++;
    w->last_pass.decided++;
    reasons_clear(w);
    bool optional = w->optional.running.len || w->optional.waiting;
    if (optional)
        sched_growth_begin(w);
    sched_share_update(w);
    sched_plan_mark_reservations(p);
    sched_promises_mark(p);
    if (w->jobs.begin_heap.len && w->jobs.begin_heap.at[0]->begin_ms < p->out->next_ms)
        p->out->next_ms = w->jobs.begin_heap.at[0]->begin_ms;
    serve_preemptors(p);
    p->served = p->moves > 0;
    look_at_all(p);
    if (p->out->preempts.len)
        p->out->next_ms = p->now_ms;  // a victim's project may have a claim on others now
    if (optional) {
        sched_give_back(p);
        sched_grow(p);
    }
    w->last_pass.now_ms = p->now_ms;
    w->last_pass.within_quota = p->policy->interactive_within_quota;
    w->last_pass.no_plans = !p->policy->plan_depth;
    sched_pass_done(p);
}

void sched_decide(struct world *w, int64_t now_ms, const struct policy *policy, struct sched_decisions *out) {
    *out = (struct sched_decisions){.next_ms = INT64_MAX};
    struct sched_pass p = {.w = w, .policy = policy, .now_ms = now_ms, .out = out};
    decide(&p);
}

void sched_decide_all(struct world *w, int64_t now_ms, const struct policy *policy, struct sched_decisions *out) {
    *out = (struct sched_decisions){.next_ms = INT64_MAX};
    struct sched_pass p = {.w = w, .policy = policy, .now_ms = now_ms, .out = out, .all = true};
    decide(&p);
}
