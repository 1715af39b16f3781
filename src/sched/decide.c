// Owns one scheduling pass: jobs in order; each starts, takes from others, gets a planned start, or
// learns what it waits for.
#include <assert.h>

#include "order.h"

static const char *const WORDS[SCHED_REASON_COUNT] = {
    "None", "Held", "BeginTime", "ProjectGone", "Partition", "QosGone", "QosLimit", "TimeLimit",
    "Deadline", "ProjectLimit", "Quota", "Resources", "Priority", "Nodes", "Reservation", "Vacating",
};

const char *sched_reason_word(enum sched_reason r) {
    return r < SCHED_REASON_COUNT ? WORDS[r] : "None";
}

void decisions_done(struct decisions *d) {
    for (uint32_t i = 0; i < d->starts.len; i++)
        alloc_free(d->starts.at[i].alloc);
    vec_done(&d->starts);
    vec_done(&d->preempts);
    vec_done(&d->plans);
    *d = (struct decisions){0};
}

static void note(struct pass *p, struct job *j, enum sched_reason reason) {
    j->reason = (uint8_t)reason;
    vec_push(&p->w->noted, j->id);
}

static void notes_clear(struct world *w) {
    for (uint32_t i = 0; i < w->noted.len; i++) {
        struct job *j = world_find(w, w->noted.at[i]);
        if (j)
            j->reason = SCHED_REASON_NONE;
    }
    vec_clear(&w->noted);
}

static int by_age(const void *pa, const void *pb) {
    const struct job *a = *(struct job *const *)pa, *b = *(struct job *const *)pb;
    if (a->submit_ms != b->submit_ms)
        return a->submit_ms < b->submit_ms ? -1 : 1;
    return (a->id > b->id) - (a->id < b->id);
}

// The jobs others were told to make room for that still wait, oldest first.
static uint32_t takers_of(struct world *w, struct job ***out) {
    VEC(struct job *) found = {0};
    uint32_t kept = 0;
    for (uint32_t i = 0; i < w->takers.len; i++) {
        struct job *j = world_find(w, w->takers.at[i]);
        if (!j || !j->taker)
            continue;
        w->takers.at[kept++] = j->id;
        if (j->queued)
            vec_push(&found, j);
    }
    w->takers.len = kept;
    if (found.len)
        qsort(found.at, found.len, sizeof *found.at, by_age);
    // one that started, came back and was marked again is in the list twice
    uint32_t n = 0;
    for (uint32_t i = 0; i < found.len; i++)
        if (!i || found.at[i] != found.at[i - 1])
            found.at[n++] = found.at[i];
    *out = found.at;
    return n;
}

static bool may(const struct pass *p, const struct job *j) {
    bool any = false;
    for (uint32_t i = 0; i < job_options(j); i++)
        any |= !gate(p, job_option(j, i));
    return any;
}

// It starts if it fits; with victims, if it will fit without them, that is kept for it.
static bool serve_taker(struct pass *p, struct job *t, struct job *const *victims, uint32_t n) {
    for (uint32_t i = 0; i < job_options(t); i++) {
        struct request *r = job_option(t, i);
        request_refresh(p->w, r);
        struct alloc *a = gate(p, r) ? NULL : n ? trial_place_without(p, r, victims, n) : place(p, r);
        if (!a)
            continue;
        if (n) {
            trial_promise(p, t, r, a, victims, n);
            note(p, t, SCHED_REASON_VACATING);
        } else {
            trial_start(p, t, r, a, false);
            p->out->next_ms = p->now_ms;  // out of order: who is before it may take from it once it runs
        }
        return true;
    }
    return false;
}

// They start as soon as they fit, and what they were promised stays theirs meanwhile. One that would
// not fit even when all its victims are gone (a node was lost) is a job like any other again.
static void serve_takers(struct pass *p) {
    struct job **takers;
    VEC(struct job *) victims = {0};
    for (uint32_t i = 0; i < p->w->ending.len; i++)
        trial_vacate(p, p->w->ending.at[i]);
    uint32_t count = takers_of(p->w, &takers);
    for (uint32_t i = 0; i < count; i++) {
        struct job *t = takers[i];
        vec_clear(&victims);
        for (uint32_t k = 0; k < p->w->ending.len; k++)
            if (p->w->ending.at[k]->ending_for == t->id)
                vec_push(&victims, p->w->ending.at[k]);
        if (serve_taker(p, t, NULL, 0))
            continue;
        if (victims.len)
            serve_taker(p, t, victims.at, victims.len);
        else if (may(p, t))
            t->taker = false;
    }
    free(takers);
    vec_done(&victims);
}

bool pass_strict(const struct pass *p, const struct request *r) {
    const struct partition *part = world_partition(p->w, r->asked.partition);
    return p->policy->backfill == POLICY_BACKFILL_NONE || (part && part->fifo);
}

// The job does not fit now: take, plan, or wait.
static bool blocked(struct pass *p, struct order *o, struct job *j, struct request *r) {
    struct fit *f = fit_of(p->w, r);
    bool choice = r->choice;
    // One that would fit but for a planned job before it takes nothing from anybody.
    if (!fit_enough(f) && !(choice && choice_room(p, j, r, false)) &&
        reclaim(p, j, choice ? choice_cheapest(p, j, r) : r)) {
        note(p, j, SCHED_REASON_VACATING);
        return true;
    }
    uint32_t part = r->asked.partition;
    if (!fit_enough(f)) {
        if (!fit_ever(p->w, f))
            return false;
        if (pass_strict(p, r)) {
            if (!p->closed[part])
                note(p, j, SCHED_REASON_RESOURCES);
        } else if (p->plans[part] < p->policy->plan_depth) {
            // planned in another partition, or starting there next: who follows may be planned here
            if (choice && (j->planned || choice_room(p, j, r, true)))
                return true;
            struct request *in = choice ? choice_plan(p, j, r) : plan_make(p, j, &r, 1);
            in = in ? in : r;
            p->plans[in->asked.partition]++;
            note(p, j, SCHED_REASON_RESOURCES);
            if (p->policy->backfill == POLICY_BACKFILL_SHORTEST && !o->shortest) {
                o->shortest = true;
                order_drop(o);
                order_rebuild(o);
                return true;
            }
            if (in != r)
                return true;
        }
    }
    p->closed[part] |= pass_strict(p, r);
    return j->gave && !fit_enough(f);  // what it must not take back, the next one like it may take
}

// Looks at the next job; false when its request is done with for this pass.
static bool consider(struct pass *p, struct order *o, const struct turn *t) {
    struct request *r = t->request;
    struct job *j = r->queue.at[t->at];
    if (p->served && (j->alloc || j->promised))
        return true;
    if (p->closed[t->partition] || gate(p, r))
        return false;
    p->placing = p->choice_planned && j->planned ? j : NULL;
    struct alloc *a = place(p, r);
    bool more = a || blocked(p, o, j, r);
    p->placing = NULL;
    if (a)
        trial_start(p, j, r, a, p->any_plan);
    return more;
}

static void look_at_all(struct pass *p) {
    struct order o;
    order_make(&o, p);
    for (struct turn *t; (t = order_next(&o));) {
        uint32_t preempts = p->out->preempts.len, moves = p->moves;
        bool shortest = o.shortest;
        if (order_inert(&o, t) || !consider(p, &o, t))
            order_drop(&o);
        else if (o.shortest == shortest)
            order_started(&o);
        if (p->out->preempts.len != preempts)
            order_projects(&o);  // victims' projects use less now
        order_trim(&o, p->moves == moves);
    }
    order_done(&o);
    p->out->looked_at = p->w->ready;
}

static void decide(struct pass *p) {
    struct world *w = p->w;
    world_due(w, p->now_ms);
    w->pass++;
    notes_clear(w);
    share_update(w);
    plan_windows(p);
    if (w->waiting.len && w->waiting.at[0]->begin_ms < p->out->next_ms)
        p->out->next_ms = w->waiting.at[0]->begin_ms;
    serve_takers(p);
    p->served = p->moves > 0;
    look_at_all(p);
    if (p->out->preempts.len)
        p->out->next_ms = p->now_ms;  // who gave something may be due something from others now
    w->judged.now_ms = p->now_ms;
    w->judged.within_quota = p->policy->interactive_within_quota;
    w->judged.planless = !p->policy->plan_depth;
    trial_undo(p);
    plan_clear(p);
    place_done(p);
    vec_done(&p->gives);
    vec_done(&p->gives_most);
    vec_done(&p->freeable);
    map_done(&p->reclaims_failed);
    map_done(&p->above);
}

void sched_decide(struct world *w, int64_t now_ms, const struct policy *policy, struct decisions *out) {
    *out = (struct decisions){.next_ms = INT64_MAX};
    struct pass p = {.w = w, .policy = policy, .now_ms = now_ms, .out = out};
    decide(&p);
}

void sched_decide_all(struct world *w, int64_t now_ms, const struct policy *policy, struct decisions *out) {
    *out = (struct decisions){.next_ms = INT64_MAX};
    struct pass p = {.w = w, .policy = policy, .now_ms = now_ms, .out = out, .all = true};
    decide(&p);
}
