// Owns what a pass does differently for a job that names several partitions. It waits in the queue of
// each, in each at its place; the first that lets it start has it. It has at most one planned start,
// and takes from others only where no partition of its own has room. Options that come at the same
// turn come right after each other, so of these the best can be chosen without passing anybody.
#include "pass.h"

static bool same_turn(const struct pass *p, struct request *a, struct request *b) {
    request_refresh(p->w, a);
    request_refresh(p->w, b);
    bool by_limit = p->policy->backfill == POLICY_BACKFILL_SHORTEST;
    return a->tier == b->tier && a->fifo == b->fifo && (!by_limit || a->limit_ms == b->limit_ms);
}

static bool open_to(const struct pass *p, struct request *r) {
    request_refresh(p->w, r);
    return !p->closed[r->asked.partition] && !gate(p, r);
}

bool choice_room(struct pass *p, const struct job *j, struct request *r, bool now) {
    bool room = false;
    for (uint32_t i = 0; i < job_options(j) && !room; i++) {
        struct request *x = job_option(j, i);
        if (x == r || (now && !same_turn(p, x, r)) || !open_to(p, x))
            continue;
        struct alloc *a = place(p, x);
        room = a;
        alloc_free(a);
    }
    return room;
}

struct request *choice_cheapest(struct pass *p, struct job *j, struct request *r) {
    struct request *best = r;
    uint32_t fewest = reclaim_count(p, j, r);
    for (uint32_t i = 0; i < job_options(j) && fewest != 1; i++) {
        struct request *x = job_option(j, i);
        if (x == r || !same_turn(p, x, r) || !open_to(p, x) || fit_enough(fit_of(p->w, x)))
            continue;
        uint32_t count = reclaim_count(p, j, x);
        if (count && (!fewest || count < fewest)) {
            fewest = count;
            best = x;
        }
    }
    return best;
}

struct request *choice_plan(struct pass *p, struct job *j, struct request *r) {
    VEC(struct request *) among = {0};
    vec_push(&among, r);
    for (uint32_t i = 0; i < job_options(j); i++) {
        struct request *x = job_option(j, i);
        if (x != r && same_turn(p, x, r) && open_to(p, x) && !pass_strict(p, x) &&
            p->plans[x->asked.partition] < p->policy->plan_depth && fit_ever(p->w, fit_of(p->w, x)))
            vec_push(&among, x);
    }
    struct request *in = plan_make(p, j, among.at, among.len);
    vec_done(&among);
    return in;
}
