// Owns preemption: finding the smallest legal set of victims so that a job of a project under its
// share (or inside its quota, or with the right by QoS) can start. Victims are tried on copies of
// nodes; nothing is chosen unless the taker then fits, and every victim is needed.
#include <assert.h>

#include "pass.h"

enum { VICTIMS_MAX = 4096, PAIRS_FROM_MAX = 32, SUBSETS_OF_MAX = 10, NODES_TRIED_MAX = 64,
       NODES_FEW = 96, BEYOND = 0x10 };

struct taker {
    struct pass *p;
    struct job *job;
    struct request *r;
    struct project *project;
    int64_t amount;
    unsigned dim;
    bool in_quota;       // after starting; also of what the quota is worth when quotas exceed capacity
    const struct qos *qos;
    bool by_qos;
    bool above;          // there may be jobs above it
    uint32_t *count;     // only counted: how many would have to go
};

typedef VEC(struct job *) job_vec;

static struct project *common(const struct world *w, struct project *a, struct project *b) {
    for (struct project *x = a; x; x = project_parent(w, x))
        for (struct project *y = b; y; y = project_parent(w, y))
            if (x == y)
                return x;
    return NULL;
}

// Is the taker, with its own jobs and on every level up to below `top`, under its share now; and
// would it not be above it afterwards?
static bool under_share(const struct taker *t, const struct project *top, bool *within) {
    const struct project *own = t->project;
    unsigned d = t->dim;
    if (own->used[d] >= own->own_share[d])
        return false;
    *within = own->used[d] + t->amount <= own->own_share[d];
    for (const struct project *x = own; x && x != top; x = project_parent(t->p->w, x)) {
        if (x->tree_used[d] >= x->share[d])
            return false;
        *within &= x->tree_used[d] + t->amount <= x->share[d];
    }
    return true;
}

static bool over_share(const struct taker *t, const struct project *v, const struct project *top, unsigned d,
                       int64_t held, bool within) {
    if (!v->present)
        return true;
    if (within ? v->used[d] <= v->own_share[d] : v->used[d] - held < v->own_share[d])
        return false;
    for (const struct project *x = v; x && x != top; x = project_parent(t->p->w, x))
        if (within ? x->tree_used[d] <= x->share[d] : x->tree_used[d] - held < x->share[d])
            return false;
    return true;
}

static bool qos_may(const struct qos *q, uint32_t other) {
    for (uint32_t i = 0; q && i < q->preempts.len; i++)
        if (q->preempts.at[i] == other)
            return true;
    return false;
}

static int64_t held_in(const struct world *w, const struct job *v, unsigned dim) {
    if (dim <= DIM_CPU)
        return dim == DIM_GPU ? v->held_gpu : v->held_cpus;
    int64_t held[DIMS_MAX];
    alloc_amounts(w, v->alloc, held);
    return held[dim];
}

// Interactive work may take from its own project. Work that only cannot be queued again (an attached
// run, --no-requeue) is not paused either, but takes nothing from colleagues.
static bool takes_own(const struct request *r) {
    return r->asked.class == SCHED_INTERACTIVE && !r->preemptible;
}

// Could any job of this project be legal? Saves looking at its jobs when not.
static bool may_give(const struct taker *t, struct project *v) {
    if (t->by_qos || v == t->project || !v->present)
        return true;
    const struct project *top = common(t->p->w, t->project, v);
    bool within, under = under_share(t, top, &within);
    for (unsigned d = 0; d < t->p->w->dims; d++) {
        if (under && v->used[d] > 0 && over_share(t, v, top, d, 0, true))
            return true;
        if (t->in_quota && v->quota[d] != SCHED_UNLIMITED && v->used[d] > v->quota[d])
            return true;
    }
    return false;
}

// The most milli-GPU this project can lose to the taker. As long as the taker is not above its share
// afterwards, or is inside its quota, one last job may be larger than what the project has too much;
// otherwise nobody falls below a share.
static int64_t most_given(const struct taker *t, struct project *v) {
    if (t->by_qos || v == t->project || !v->present || t->in_quota)
        return INT64_MAX / 4;
    bool within;
    if (!under_share(t, common(t->p->w, t->project, v), &within) || within)
        return INT64_MAX / 4;
    int64_t sum = 0;
    for (unsigned d = 0; d < t->p->w->dims; d++)
        if (d != DIM_CPU && v->used[d] > v->own_share[d])
            sum += v->used[d] - v->own_share[d];
    return sum;
}

static bool know_givers(struct taker *t) {
    struct pass *p = t->p;
    bool any = false;
    vec_clear(&p->gives);
    vec_clear(&p->gives_most);
    p->gives_all = 0;
    for (uint32_t i = 0; i < p->w->projects.len; i++) {
        struct project *v = p->w->projects.at[i];
        bool gives = v && v->running && may_give(t, v) && (v != t->project || takes_own(t->r) || t->by_qos);
        int64_t most = gives ? most_given(t, v) : 0;
        vec_push(&p->gives, gives);
        vec_push(&p->gives_most, most);
        p->gives_all = p->gives_all > INT64_MAX / 4 - most ? INT64_MAX / 4 : p->gives_all + most;
        any |= gives;
    }
    return any;
}

static bool gives(const struct taker *t, const struct job *v) {
    return t->p->gives.at[v->request->asked.project];
}

// It must not be taken back by such a claim.
static bool above(const struct taker *t, const struct job *v, enum sched_claim claim) {
    uintptr_t steps = t->above ? (uintptr_t)map_get(&t->p->above, v->id) : 0;
    return steps && steps - 1 <= claim;
}

// Why this victim may be taken as things stand, with BEYOND when the taker gets more than its project's
// due thereby; -1 when it may not.
static int legal(const struct taker *t, const struct job *v) {
    struct world *w = t->p->w;
    if (!gives(t, v) || above(t, v, SCHED_CLAIM_DUE))
        return -1;
    int64_t least = v->request->asked.min_runtime_ms;
    if (t->p->policy->min_runtime_ms > least)
        least = t->p->policy->min_runtime_ms;
    if (v->vacating || v->state != SCHED_JOB_RUNNING)
        return -1;
    if (t->p->now_ms - v->start_ms < least) {  // look again when it has run that long
        int64_t ripe = v->start_ms + least;
        if (ripe < t->p->out->next_ms)
            t->p->out->next_ms = ripe;
        return -1;
    }
    if (qos_may(t->qos, v->request->asked.qos))
        return SCHED_PREEMPT_QOS;
    // What has the right to preempt would come straight back: only a QoS above it may take it.
    const struct qos *its = world_qos(w, v->request->asked.qos);
    if (its && its->preempts.len)
        return -1;
    struct project *owner = world_project_slot(w, v->request->asked.project);
    if (owner == t->project)
        return takes_own(t->r) ? SCHED_PREEMPT_PROJECT : -1;
    if (!t->p->policy->reclaim)
        return -1;
    unsigned dim = v->request->dim;
    const struct project *top = common(w, t->project, owner);
    bool within;
    if (under_share(t, top, &within) && over_share(t, owner, top, dim, held_in(w, v, dim), within) &&
        (within || !above(t, v, SCHED_CLAIM_BEYOND)))
        return within ? SCHED_PREEMPT_SHARE : SCHED_PREEMPT_SHARE | BEYOND;
    if (t->in_quota && !above(t, v, SCHED_CLAIM_QUOTA) &&
        (!owner->present || (owner->quota[dim] != SCHED_UNLIMITED && owner->used[dim] > owner->quota[dim])))
        return SCHED_PREEMPT_QUOTA;
    return -1;
}

static int by_worth(const void *pa, const void *pb) {
    const struct job *a = *(struct job *const *)pa, *b = *(struct job *const *)pb;
    if (a->request->priority != b->request->priority)
        return a->request->priority < b->request->priority ? -1 : 1;
    if (a->start_ms != b->start_ms)
        return a->start_ms > b->start_ms ? -1 : 1;
    return (a->id < b->id) - (a->id > b->id);
}

// As if the victim were gone from its project, while a set is being put together.
static void uncount(const struct taker *t, const struct job *v, int sign) {
    int64_t held[DIMS_MAX];
    alloc_amounts(t->p->w, v->alloc, held);
    project_use(t->p->w, world_project_slot(t->p->w, v->request->asked.project), held, false, -sign);
}

static uint32_t tasks_needed(const struct taker *t) {
    const struct demand *d = &t->r->demand;
    return d->even ? d->node_tasks : 1;
}

static bool fits_without(const struct taker *t, const struct node *n, struct job *const *victims, uint32_t count,
                         const struct job *except) {
    struct scratch s;
    scratch_copy(&s, n);
    for (uint32_t i = 0; i < count; i++)
        if (victims[i] != except)
            scratch_give(&s, victims[i]);
    return fit_tasks(&s.node, &t->r->demand) >= tasks_needed(t);
}

// Two victims that do it, when more were found: the first pair in order of worth.
static bool pair(const struct taker *t, const struct node *n, const job_vec *all, job_vec *set) {
    for (uint32_t i = 0; i < all->len && all->len <= PAIRS_FROM_MAX; i++) {
        uncount(t, all->at[i], 1);
        for (uint32_t k = 0; k < i; k++) {
            struct job *two[2] = {all->at[k], all->at[i]};
            if (legal(t, all->at[k]) >= 0 && fits_without(t, n, two, 2, NULL)) {
                uncount(t, all->at[i], -1);
                vec_clear(set);
                vec_push(set, two[1]);
                vec_push(set, two[0]);
                return true;
            }
        }
        uncount(t, all->at[i], -1);
    }
    return false;
}

// The order of worth can use up what a project may give before the victim that would do it comes up.
// Then every subset is tried, small ones first, each taken in order of worth.
static bool subset(const struct taker *t, const struct node *n, const job_vec *all, job_vec *set) {
    if (all->len > SUBSETS_OF_MAX)
        return false;
    for (uint32_t size = 2; size <= all->len; size++)
        for (uint32_t mask = 0; mask < 1U << all->len; mask++) {
            if ((uint32_t)__builtin_popcount(mask) != size)
                continue;
            bool fine = true;
            vec_clear(set);
            for (uint32_t i = 0; i < all->len && fine; i++)
                if (mask >> i & 1) {
                    fine = legal(t, all->at[i]) >= 0;
                    if (fine) {
                        uncount(t, all->at[i], 1);
                        vec_push(set, all->at[i]);
                    }
                }
            for (uint32_t i = set->len; i-- > 0;)
                uncount(t, set->at[i], -1);
            if (fine && fits_without(t, n, set->at, set->len, NULL))
                return true;
        }
    return false;
}

// The least victims on one node that make room for one part of the taker; false when none do.
static bool node_set(const struct taker *t, const struct node *n, job_vec *set) {
    job_vec all = {0};
    vec_clear(set);
    for (uint32_t i = 0; i < n->jobs.len; i++)
        if (gives(t, n->jobs.at[i]) && !n->jobs.at[i]->fixed && n->jobs.at[i]->state == SCHED_JOB_RUNNING &&
            legal(t, n->jobs.at[i]) >= 0)
            vec_push(&all, n->jobs.at[i]);
    bool found = false;
    if (all.len && fits_without(t, n, all.at, all.len, NULL)) {
        qsort(all.at, all.len, sizeof *all.at, by_worth);
        for (uint32_t i = 0; i < all.len && !found; i++) {
            if (legal(t, all.at[i]) < 0)
                continue;  // its project has given enough already
            uncount(t, all.at[i], 1);
            vec_push(set, all.at[i]);
            found = fits_without(t, n, set->at, set->len, NULL);
        }
        for (uint32_t i = set->len; i-- > 0;)
            uncount(t, set->at[i], -1);
        for (uint32_t i = set->len; found && i-- > 0;)
            if (fits_without(t, n, set->at, set->len, set->at[i]))
                vec_remove(set, i);
        if (!found)
            found = subset(t, n, &all, set);
        else if (set->len > 2)
            pair(t, n, &all, set);
    }
    vec_done(&all);
    return found;
}

// What a set of victims costs: the worthiest of them, how many, how much they hold, and how long they
// ran. Of two sets that hold the same, the one that throws away less work is cheaper; comparing start
// times instead of time run keeps the outcome from turning around while nothing happens.
struct cost {
    int32_t priority;
    uint32_t count;
    int64_t held;     // milli-GPU, CPUs weighted
    int64_t started;  // weighted by what is held
    uint32_t node;
};

static struct cost cost_of(const job_vec *set, uint32_t node) {
    struct cost c = {.priority = INT32_MIN, .count = set->len, .node = node};
    for (uint32_t i = 0; i < set->len; i++) {
        const struct job *v = set->at[i];
        if (v->request->priority > c.priority)
            c.priority = v->request->priority;
        c.held += v->cost;
        c.started += v->cost * (v->start_ms / 1000);
    }
    return c;
}

static int by_cost(const void *pa, const void *pb) {
    const struct cost *a = pa, *b = pb;
    if (a->priority != b->priority)
        return a->priority < b->priority ? -1 : 1;
    if (a->count != b->count)
        return a->count < b->count ? -1 : 1;
    if (a->held != b->held)
        return a->held < b->held ? -1 : 1;
    if (a->started != b->started)
        return a->started > b->started ? -1 : 1;
    return (a->node > b->node) - (a->node < b->node);
}

static uint32_t whole_needed(const struct taker *t) {
    return (t->r->demand.gpu_task * tasks_needed(t) + t->r->demand.gpu_node) / SCHED_GPU;
}

static bool enough_gpus(const struct taker *t, const struct node *n, const struct job *v) {
    uint32_t whole = whole_needed(t), freed = 0;
    for (uint32_t i = 0; whole && i < v->alloc->node_count; i++)
        if (v->alloc->nodes[i].node == n->id)
            freed += v->alloc->nodes[i].gpu_count;
    return n->whole_free + freed >= whole;
}

static enum sched_claim claim_of(uint8_t why) {
    return why & BEYOND ? SCHED_CLAIM_BEYOND : why == SCHED_PREEMPT_QUOTA ? SCHED_CLAIM_QUOTA : SCHED_CLAIM_DUE;
}

static void commit(const struct taker *t, const job_vec *set, const uint8_t *whys, struct alloc *a) {
    struct pass *p = t->p;
    for (uint32_t i = 0; i < set->len; i++) {
        struct job *v = set->at[i];
        vec_push(&p->out->preempts, (struct sched_preempt){.victim = v->id, .for_job = t->job->id,
                                                           .why = (enum sched_preempt_why)(whys[i] & ~BEYOND),
                                                           .grace_ms = p->policy->grace_ms,
                                                           .gave = gave_grounds(p->w, v, t->job, claim_of(whys[i]))});
    }
    for (uint32_t i = 0; i < set->len; i++)
        trial_vacate(p, set->at[i]);
    trial_promise(p, t->job, t->r, a, set->at, set->len);
}

static void know_quota(struct taker *t) {
    int64_t after = t->project->used[t->dim] + t->amount;
    t->in_quota = t->project->quota[t->dim] != SCHED_UNLIMITED && after <= t->project->quota[t->dim] &&
                  after <= t->project->own_share[t->dim];
}

// Each victim's reason, taken one after the other; false when one is not legal. Placed, a job may hold
// more than it asked for (whole nodes, memory as a fraction of a smaller GPU): the victims must be
// legal for that, too, or they would come straight back.
static bool reasons(struct taker *t, const job_vec *set, const struct alloc *a, uint8_t *whys) {
    int64_t held[DIMS_MAX];
    alloc_amounts(t->p->w, a, held);
    t->amount = held[t->dim];
    know_quota(t);
    uint32_t n = 0;
    for (int why; n < set->len && (why = legal(t, set->at[n])) >= 0; n++) {
        whys[n] = (uint8_t)why;
        uncount(t, set->at[n], 1);
    }
    bool fine = n == set->len;
    while (n-- > 0)
        uncount(t, set->at[n], -1);
    return fine;
}

// The last word on a set: with it gone the taker is placed, and every victim is legal. Then it is done.
static bool take(struct taker *t, const job_vec *set) {
    struct alloc *a = trial_place_without(t->p, t->r, set->at, set->len);
    if (!a)
        return false;
    uint8_t *whys = xcalloc(set->len + 1, sizeof *whys);
    int64_t asked = t->amount;
    bool fine = reasons(t, set, a, whys);
    if (fine && !t->count) {
        commit(t, set, whys, a);
    } else {
        if (fine)
            *t->count = set->len;
        alloc_free(a);
        t->amount = asked;
        know_quota(t);
    }
    free(whys);
    return fine;
}

static bool skip(const struct taker *t, const struct victim *c) {
    return c->fixed || !t->p->gives.at[c->project] || c->milli > t->p->gives_most.at[c->project] || c->job->vacating ||
           c->job->state != SCHED_JOB_RUNNING;
}

// Is this one enough by itself on one of its nodes? Then it is taken.
static bool alone(struct taker *t, const struct fit *f, struct job *v, job_vec *set) {
    for (uint32_t k = 0; k < v->alloc->node_count; k++) {
        uint32_t id = v->alloc->nodes[k].node;
        const struct node *n = world_node(t->p->w, id);
        if (!n || id >= f->nodes_len || !f->allowed[id] || !enough_gpus(t, n, v) || legal(t, v) < 0 ||
            !fits_without(t, n, &v, 1, NULL))
            continue;
        vec_clear(set);
        vec_push(set, v);
        if (take(t, set))
            return true;
    }
    return false;
}

// One victim that is enough by itself, the least worth first.
static bool one_victim(struct taker *t, const struct fit *f, job_vec *set) {
    struct pass *p = t->p;
    const struct world *w = p->w;
    uint32_t whole = whole_needed(t);
    while (p->victims_from < w->victims.len && w->victims.at[p->victims_from].job->vacating)
        p->victims_from++;
    for (uint32_t i = p->victims_from; i < w->victims.len; i++) {
        const struct victim *c = &w->victims.at[i];
        if ((c->node && c->gpus + w->whole_free.at[c->node] < whole) || skip(t, c))
            continue;
        if (alone(t, f, c->job, set))
            return true;
    }
    return false;
}

// GPUs that jobs of giving projects hold, by node: few nodes deserve a closer look. The same for every
// taker to whom the same projects give, until something moves.
static const uint16_t *freeable(const struct taker *t) {
    struct pass *p = t->p;
    const struct world *w = p->w;
    uint64_t who = hash_bytes(p->gives.at, p->gives.len) ^ hash_u64(p->out->starts.len + p->out->preempts.len) ^ 1;
    if (p->freeable.len == w->nodes.len && p->freeable_for == who)
        return p->freeable.at;
    p->freeable_for = who;
    vec_clear(&p->freeable);
    for (uint32_t i = 0; i < w->nodes.len; i++)
        vec_push(&p->freeable, 0);
    uint16_t *gpus = p->freeable.at;
    for (uint32_t i = p->victims_from; i < w->victims.len; i++) {
        const struct victim *c = &w->victims.at[i];
        if (c->fixed || !p->gives.at[c->project])
            continue;
        if (c->node) {
            gpus[c->node] = (uint16_t)(gpus[c->node] + c->gpus);
            continue;
        }
        const struct alloc *a = c->job->alloc;
        for (uint32_t k = 0; k < a->node_count; k++)
            gpus[a->nodes[k].node] = (uint16_t)(gpus[a->nodes[k].node] + a->nodes[k].gpu_count);
    }
    return gpus;
}

static bool worth_a_look(const struct taker *t, const struct fit *f, const uint16_t *gpus, uint32_t id) {
    const struct node *n = t->p->w->nodes.at[id];
    return f->allowed[id] && n->jobs.len && gpus[id] + n->whole_free >= whole_needed(t);
}

// Victims on the nodes that deserve a look: one that is enough, else several on one node.
static bool on_nodes(struct taker *t, const struct fit *f, const uint32_t *nodes, uint32_t count, job_vec *set) {
    const struct pass *p = t->p;
    job_vec here = {0};
    VEC(struct cost) costs = {0};
    bool done = false;
    for (uint32_t i = 0; i < count; i++) {
        const struct node *n = p->w->nodes.at[nodes[i]];
        for (uint32_t k = 0; k < n->jobs.len; k++)
            if (gives(t, n->jobs.at[k]) && !n->jobs.at[k]->fixed && enough_gpus(t, n, n->jobs.at[k]) &&
                legal(t, n->jobs.at[k]) >= 0)
                vec_push(&here, n->jobs.at[k]);
    }
    if (here.len)
        qsort(here.at, here.len, sizeof *here.at, by_worth);
    for (uint32_t i = 0; i < here.len && !done; i++)
        done = (i == 0 || here.at[i] != here.at[i - 1]) && alone(t, f, here.at[i], set);
    for (uint32_t i = 0; i < count && !done; i++)
        if (node_set(t, p->w->nodes.at[nodes[i]], set))
            vec_push(&costs, cost_of(set, nodes[i]));
    if (costs.len)
        qsort(costs.at, costs.len, sizeof *costs.at, by_cost);
    for (uint32_t i = 0; i < costs.len && i < NODES_TRIED_MAX && !done; i++)
        done = node_set(t, p->w->nodes.at[costs.at[i].node], set) && take(t, set);
    vec_done(&costs);
    vec_done(&here);
    return done;
}

// Several victims on one node; nodes in the order of their least worthy job.
static bool one_node(struct taker *t, const struct fit *f, job_vec *set) {
    const struct pass *p = t->p;
    const struct world *w = p->w;
    const uint16_t *gpus = freeable(t);
    VEC(struct cost) costs = {0};
    uint8_t *seen = xcalloc(f->nodes_len + 1, 1);
    int32_t lowest = p->victims_from < w->victims.len ? w->victims.at[p->victims_from].job->worth : 0;
    bool done = false;
    for (uint32_t i = p->victims_from; i < w->victims.len && !done; i++) {
        const struct victim *c = &w->victims.at[i];
        if ((c->node && (c->node >= f->nodes_len || seen[c->node])) || skip(t, c))
            continue;
        for (uint32_t k = 0; k < c->job->alloc->node_count && !done; k++) {
            uint32_t id = c->job->alloc->nodes[k].node;
            if (id >= f->nodes_len || seen[id]++ || !worth_a_look(t, f, gpus, id) || !node_set(t, w->nodes.at[id], set))
                continue;
            vec_push(&costs, cost_of(set, id));
            if (set->len == 2 && costs.at[costs.len - 1].priority == lowest)
                done = take(t, set);  // one was not enough: it gets no better
        }
    }
    free(seen);
    if (costs.len)
        qsort(costs.at, costs.len, sizeof *costs.at, by_cost);
    for (uint32_t i = 0; i < costs.len && i < NODES_TRIED_MAX && !done; i++)
        done = node_set(t, w->nodes.at[costs.at[i].node], set) && take(t, set);
    vec_done(&costs);
    return done;
}

static bool one_part(struct taker *t, const struct fit *f, job_vec *set) {
    uint32_t few[NODES_FEW], count = 0;
    const uint16_t *gpus = whole_needed(t) > 1 ? freeable(t) : NULL;
    for (uint32_t id = 1; gpus && id < f->nodes_len && count <= NODES_FEW; id++)
        if (worth_a_look(t, f, gpus, id)) {
            if (count < NODES_FEW)
                few[count] = id;
            count++;
        }
    if (gpus && count <= NODES_FEW)
        return on_nodes(t, f, few, count, set);
    return one_victim(t, f, set) || one_node(t, f, set);
}

static bool in_set(const job_vec *set, const struct job *j) {
    for (uint32_t i = 0; i < set->len; i++)
        if (set->at[i] == j)
            return true;
    return false;
}

// A gang: the nodes where room costs least, until there are enough.
static bool many_nodes(const struct taker *t, const struct fit *f, job_vec *all) {
    VEC(struct cost) costs = {0};
    job_vec set = {0};
    uint32_t need = t->r->demand.nodes_min, looks = 0;
    const uint16_t *gpus = freeable(t);
    for (uint32_t id = 1; id < f->nodes_len; id++)
        looks += f->cap[id] || worth_a_look(t, f, gpus, id);
    for (uint32_t id = 1; id < f->nodes_len && looks >= t->r->demand.nodes_min; id++) {
        if (f->cap[id])
            need -= need > 0;
        else if (worth_a_look(t, f, gpus, id) && node_set(t, t->p->w->nodes.at[id], &set))
            vec_push(&costs, cost_of(&set, id));
    }
    if (costs.len)
        qsort(costs.at, costs.len, sizeof *costs.at, by_cost);
    for (uint32_t i = 0; i < costs.len && need && all->len < VICTIMS_MAX; i++) {
        const struct node *n = t->p->w->nodes.at[costs.at[i].node];
        // victims taken for other nodes may hold this one too
        uint32_t here = 0;
        for (uint32_t k = 0; k < n->jobs.len; k++)
            here += in_set(all, n->jobs.at[k]);
        if (here && fits_without(t, n, all->at, all->len, NULL)) {
            need--;
            continue;
        }
        if (!node_set(t, n, &set))
            continue;
        for (uint32_t k = 0; k < set.len; k++)
            if (!in_set(all, set.at[k])) {
                uncount(t, set.at[k], 1);
                vec_push(all, set.at[k]);
            }
        need--;
    }
    for (uint32_t i = all->len; i-- > 0;)
        uncount(t, all->at[i], -1);
    vec_done(&costs);
    vec_done(&set);
    return need == 0 && all->len;
}

// Any layout: the least worthy one after the other until the taker fits.
static bool one_by_one(const struct taker *t, const struct fit *f, job_vec *all) {
    struct alloc *a = NULL;
    for (uint32_t i = 0; i < t->p->w->victims.len && !a && all->len < VICTIMS_MAX; i++) {
        struct job *v = t->p->w->victims.at[i].job;
        if (skip(t, &t->p->w->victims.at[i]))
            continue;
        bool here = false;
        for (uint32_t k = 0; k < v->alloc->node_count; k++)
            here |= v->alloc->nodes[k].node < f->nodes_len && f->allowed[v->alloc->nodes[k].node];
        if (!here || legal(t, v) < 0)
            continue;
        uncount(t, v, 1);
        vec_push(all, v);
        a = trial_place_without(t->p, t->r, all->at, all->len);
    }
    for (uint32_t i = all->len; i-- > 0;)
        uncount(t, all->at[i], -1);
    alloc_free(a);
    return a;
}

// Drops victims that are not needed, the worthiest first.
static void prune(const struct taker *t, job_vec *set) {
    qsort(set->at, set->len, sizeof *set->at, by_worth);
    for (uint32_t i = set->len; i-- > 0 && set->len > 1;) {
        struct job *v = set->at[i];
        vec_remove(set, i);
        struct alloc *a = trial_place_without(t->p, t->r, set->at, set->len);
        if (!a) {
            vec_push(set, NULL);
            for (uint32_t k = set->len - 1; k > i; k--)
                set->at[k] = set->at[k - 1];
            set->at[i] = v;
        }
        alloc_free(a);
    }
}

// Counted once per pass: does anybody but this project hold anything?
static bool others_run(struct pass *p, const struct project *own) {
    if (p->running_pass != p->w->pass) {
        p->running_pass = p->w->pass;
        for (uint32_t i = 0; i < p->w->projects.len; i++)
            p->running_projects += p->w->projects.at[i] && p->w->projects.at[i]->running;
    }
    return p->running_projects > (own->running > 0);
}

// Is anybody above share or quota at all? Looked at once, and again when something moved.
static bool somebody_over(struct pass *p) {
    uint32_t moves = 1 + p->out->starts.len + p->out->preempts.len;
    if (p->over_moves == moves)
        return p->over;
    p->over_moves = moves;
    p->over = false;
    for (uint32_t i = 0; i < p->w->projects.len && !p->over; i++) {
        const struct project *v = p->w->projects.at[i];
        if (!v || !v->running)
            continue;
        for (unsigned d = 0; d < p->w->dims; d++)
            p->over |= !v->present || v->used[d] > v->own_share[d] ||
                       (v->quota[d] != SCHED_UNLIMITED && v->used[d] > v->quota[d]);
    }
    return p->over;
}

bool reclaim_hope(struct pass *p) {
    return somebody_over(p);
}

// Freed shares that the taker needs at the least, wherever it goes; when less than that can be given
// it is hopeless.
static bool too_little(const struct taker *t) {
    const struct world *w = t->p->w;
    uint32_t whole = whole_needed(t), most = SCHED_GPUS_MAX, enough = 0;
    if (!whole || whole > SCHED_GPUS_MAX || !t->r->demand.even)
        return false;
    for (uint32_t k = whole; k <= SCHED_GPUS_MAX; k++)
        enough += w->room_count[k];
    if (enough >= t->r->demand.nodes_min)
        return false;
    while (most >= whole || (most && !w->room_count[most]))
        most--;
    return t->p->gives_all < (int64_t)(whole - most) * (t->r->demand.nodes_min - enough) * SCHED_GPU;
}

static bool search(struct taker *t, const struct fit *f) {
    job_vec set = {0};
    bool done;
    if (t->r->demand.even && t->r->demand.nodes_min == 1) {
        done = one_part(t, f, &set);
    } else {
        done = t->r->demand.even ? many_nodes(t, f, &set) : one_by_one(t, f, &set);
        if (done) {
            prune(t, &set);
            done = take(t, &set);
        }
    }
    vec_done(&set);
    return done;
}

static bool find(struct pass *p, struct job *j, struct request *r, uint32_t *count) {
    struct taker t = {.p = p, .job = j, .r = r, .project = world_project(p->w, r->asked.project), .dim = r->dim,
                      .amount = r->amount, .qos = world_qos(p->w, r->asked.qos), .count = count};
    if (!t.project)
        return false;
    bool within, under = under_share(&t, project_parent(p->w, t.project), &within);
    know_quota(&t);
    t.by_qos = t.qos && t.qos->preempts.len;
    if (!t.by_qos && r->preemptible &&
        (!p->policy->reclaim || !(t.project->takes >> t.dim & 1) || (!under && !t.in_quota)))
        return false;
    if (!t.by_qos && r->preemptible && (!others_run(p, t.project) || !somebody_over(p)))
        return false;
    // What failed for one request fails for others like it, as long as nothing moved since.
    struct fit *f = fit_of(p->w, r);
    uint64_t like[] = {f->hash, r->asked.project, r->asked.qos, r->preemptible, takes_own(r), (uint64_t)r->limit_ms,
                       j->gave ? j->id : 0};
    uint64_t key = hash_bytes(like, sizeof like);
    uintptr_t moves = 1 + p->out->starts.len + p->out->preempts.len;
    if ((uintptr_t)map_get(&p->reclaims_failed, key) == moves)
        return false;
    worth_merge(p->w);
    t.above = gave_above(p, j);
    if (p->w->victims.len && know_givers(&t) && !too_little(&t) && search(&t, f))
        return true;
    map_put(&p->reclaims_failed, key, (void *)moves);
    return false;
}

bool reclaim(struct pass *p, struct job *j, struct request *r) {
    return find(p, j, r, NULL);
}

uint32_t reclaim_count(struct pass *p, struct job *j, struct request *r) {
    uint32_t count = 0;
    find(p, j, r, &count);
    return count;
}
