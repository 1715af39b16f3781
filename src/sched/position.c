// Owns a job's place in the order of a pass in which nobody starts, without walking it. Projects are
// merged by their first jobs, so a job comes when everything before it in its own line has come: it is
// as late as the worst place its line had until then. Of another line everything comes before it up to
// the first job with which that line is worse.
#include "order.h"

// The turn of the request's job at `at`.
static struct turn turn_at(const struct order *o, const struct turn *t, uint32_t at) {
    struct turn c = *t;
    c.at = at;
    c.base = turn_add(c.base, c.request->queue.at[at]->submit_ms - c.request->queue.at[t->at]->submit_ms);
    c.key = turn_key(o, &c);
    return c;
}

// The first of the request's jobs, from its head on, that does not come before the bound.
static uint32_t first_not_before(const struct order *o, const struct turn *t, const struct turn *bound) {
    uint32_t low = t->at, high = t->request->queue.len;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        struct turn c = turn_at(o, t, mid);
        if (turn_before(&c, bound))
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

uint32_t order_jobs_before(const struct order *o, const struct turn *t, const struct turn *bound) {
    if (!bound)
        return t->request->queue.len - t->at;
    return turn_before(t, bound) ? first_not_before(o, t, bound) - t->at : 0;
}

static struct turn turn_of(const struct order *o, const struct project *p, const struct request *r,
                           const struct job *j) {
    return turn_at(o, &p->turns.slots.at[r->project_slot], queue_place(r, j));
}

// The same jobs wait in all options of a choice, in the same order: they have come when they have come
// in one. Told for the option that comes first; 0 for the others.
static uint32_t choice_before(const struct order *o, const struct project *p, const struct turn *t,
                              const struct turn *bound) {
    uint32_t most = 0;
    for (uint32_t i = 0; i < t->request->choice->options.len; i++) {
        const struct turn *other = &p->turns.slots.at[t->request->choice->options.at[i]->project_slot];
        if (turn_before(other, t))
            return 0;
        uint32_t n = order_jobs_before(o, other, bound);
        most = n > most ? n : most;
    }
    return most;
}

static uint32_t jobs_before(const struct order *o, const struct project *p, const struct turn *bound) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < p->turns.sorted.len; i++) {
        const struct turn *t = &p->turns.slots.at[p->turns.sorted.at[i]];
        if (bound && !turn_before(t, bound))
            break;  // nor the heads that follow
        sum += t->request->choice ? choice_before(o, p, t, bound) : order_jobs_before(o, t, bound);
    }
    return sum;
}

// The project's place with this turn as its first; `turn` must outlive it.
static struct line place_with(const struct order *o, struct project *p, struct turn *turn) {
    struct line l = {.project = p, .heaped = true};
    l.heap.at = turn;
    l.heap.len = l.heap.cap = 1;
    line_place(o, &l);
    return l;
}

// The worst place the job's line has until the job comes.
static struct line worst_until(const struct order *o, struct project *p, struct turn *mine, struct turn *worst) {
    *worst = *mine;
    struct line at_worst = place_with(o, p, worst);
    for (uint32_t i = 0; i < p->turns.sorted.len; i++) {
        const struct turn *t = &p->turns.slots.at[p->turns.sorted.at[i]];
        uint32_t end = turn_before(t, mine) ? first_not_before(o, t, mine) : t->at;
        if (end == t->at)
            continue;
        struct turn last = turn_at(o, t, end - 1);
        struct line l = place_with(o, p, &last);
        if (line_before(&at_worst, &l)) {
            *worst = last;
            at_worst = place_with(o, p, worst);
        }
    }
    return at_worst;
}

// The first job of the line, in its order, with which it is not before `bound`; false: there is none.
static bool first_worse(const struct order *o, struct project *p, const struct line *bound, struct turn *out) {
    bool any = false;
    for (uint32_t i = 0; i < p->turns.sorted.len; i++) {
        const struct turn *t = &p->turns.slots.at[p->turns.sorted.at[i]];
        if (any && !turn_before(t, out))
            break;
        uint32_t low = t->at, high = t->request->queue.len;
        while (low < high) {  // places of one request's jobs differ by their age only
            uint32_t mid = low + (high - low) / 2;
            struct turn c = turn_at(o, t, mid);
            struct line l = place_with(o, p, &c);
            if (line_before(&l, bound))
                low = mid + 1;
            else
                high = mid;
        }
        if (low == t->request->queue.len)
            continue;
        struct turn c = turn_at(o, t, low);
        if (!any || turn_before(&c, out))
            *out = c;
        any = true;
    }
    return any;
}

uint32_t order_position(struct order *o, const struct job *j, order_cut_fn cut, void *ctx) {
    if (!j->queued)
        return 0;
    const struct world *w = o->p->w;
    struct project *own = w->projects.at[j->request->asked.project];
    struct turn mine = turn_of(o, own, job_option(j, 0), j), worst, first;
    for (uint32_t i = 1; i < job_options(j); i++) {
        struct turn other = turn_of(o, own, job_option(j, i), j);
        if (turn_before(&other, &mine))
            mine = other;
    }
    bool fair = o->p->policy->order == POLICY_ORDER_FAIR;
    struct line place = worst_until(o, own, &mine, &worst);
    uint32_t sum = 1;
    for (uint32_t i = 0; i < w->projects.len; i++) {
        struct project *p = w->projects.at[i];
        if (!p || !p->turns.count)
            continue;
        bool bounded = p == own || !fair || first_worse(o, p, &place, &first);
        const struct turn *bound = !bounded ? NULL : p == own || !fair ? &mine : &first;
        sum += jobs_before(o, p, bound);
        if (cut)
            cut(ctx, p, bound);
    }
    return sum;
}
