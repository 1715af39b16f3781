// Jobs that name several partitions. Such a job waits in the queue of each and starts in the first that has room.
// It has at most one planned start, and preempts others only if none of its partitions has room. Options with the
// same tier and queue time come right after each other in the order, so the best of them can be chosen without
// passing other jobs.
#include "partition_choice.h"

#include "place.h"
#include "plan.h"
#include "promise.h"
#include "reclaim.h"

static bool same_place(const struct sched_pass *p, struct world_request *a, struct world_request *b) {
    sched_request_refresh(p->w, a);
    sched_request_refresh(p->w, b);
    bool by_limit = p->policy->backfill == POLICY_BACKFILL_SHORTEST;
    return a->tier == b->tier && a->fifo == b->fifo && (!by_limit || a->limit_ms == b->limit_ms);
}

static bool open_to(const struct sched_pass *p, struct world_request *r) {
    sched_request_refresh(p->w, r);
    return !p->closed[r->asked.partition] && !sched_eligibility(p, r);
}

bool sched_choice_room(struct sched_pass *p, const struct world_job *j, struct world_request *r, bool now) {
    bool room = false;
    for (uint32_t i = 0; i < sched_job_options(j) && !room; i++) {
        struct world_request *x = sched_job_option(j, i);
        if (x == r || (now && !same_place(p, x, r)) || !open_to(p, x))
            continue;
        struct sched_alloc *a = sched_place(p, x);
        room = a;
        sched_alloc_free(a);
    }
    return room;
}

struct world_request *sched_choice_cheapest(struct sched_pass *p, struct world_job *j, struct world_request *r) {
    struct world_request *best = r;
    uint32_t fewest = sched_reclaim_count(p, j, r);
    for (uint32_t i = 0; i < sched_job_options(j) && fewest != 1; i++) {
        struct world_request *x = sched_job_option(j, i);
        if (x == r || !same_place(p, x, r) || !open_to(p, x) || sched_fit_enough(sched_fit_of(p->w, x)))
            continue;
        uint32_t count = sched_reclaim_count(p, j, x);
        if (count && (!fewest || count < fewest)) {
            fewest = count;
            best = x;
        }
    }
    return best;
}

struct world_request *sched_choice_plan(struct sched_pass *p, struct world_job *j, struct world_request *r) {
    VEC(struct world_request *) among = {0};
    vec_push(&among, r);
    for (uint32_t i = 0; i < sched_job_options(j); i++) {
        struct world_request *x = sched_job_option(j, i);
        if (x != r && same_place(p, x, r) && open_to(p, x) && !sched_pass_strict(p, x) &&
            sched_promise_plan_free(p, x->asked.partition) && sched_fits_when_idle(p->w, sched_fit_of(p->w, x)))
            vec_push(&among, x);
    }
    struct world_request *in = sched_plan_make(p, j, among.at, among.len, INT64_MAX);
    vec_done(&among);
    return in;
}
