// Preemption: finds a small set of victims so that a job can start whose project is under its share or within
// its quota, or whose QoS allows it. Rules:
// - a set is chosen only if the job fits once the victims have ended, and every victim is needed;
// - each victim is legal when those before it are gone already: no project loses more than it may;
// - what the job then holds, which may be more than it asked for, must justify the victims as well;
// - no victim is above the job in the preemption order (preemption_order.c).
// Sets are tried cheapest first: one victim, several on one node, several nodes.
#include <assert.h>

#include "reclaim.h"

#include "parts.h"
#include "plan.h"
#include "tentative.h"

enum {
    VICTIMS_MAX = 4096,
    PAIRS_FROM_MAX = 32,
    SUBSETS_OF_MAX = 10,
    NODES_TRIED_MAX = 64,
    NODES_FEW = 96,
    BEYOND = 0x10
};

// The job that victims are looked for.
struct preemptor {
    struct sched_pass *p;
    struct world_job *job;
    struct world_request *r;
    struct world_project *project;
    int64_t amount;
    unsigned dim;
    bool in_quota;  // its project stays within its quota (and share, as quotas may exceed the capacity)
    const struct world_qos *qos;
    bool by_qos;
    bool above;       // pass.above is of this job
    uint32_t *count;  // not NULL: only count the victims, preempt nobody
    bool placed;      // a set was found, but the job could not be placed: its time limit may be why
};

typedef VEC(struct world_job *) job_vec;

// The lowest project above both (or one of them); NULL: none.
static struct world_project *common(const struct world *w, struct world_project *a, struct world_project *b) {
    for (struct world_project *x = a; x; x = sched_project_parent(w, x))
        for (struct world_project *y = b; y; y = sched_project_parent(w, y))
            if (x == y)
                return x;
    return NULL;
}

// Does the preemptor's project, and every project above it below `top`, use less than its share now?
// `within`: would none of them exceed it with the job?
static bool under_share(const struct preemptor *t, const struct world_project *top, bool *within) {
    const struct world_project *own = t->project;
    unsigned d = t->dim;
    if (own->used[d] >= own->own_share[d])
        return false;
    *within = own->used[d] + t->amount <= own->own_share[d];
    for (const struct world_project *x = own; x && x != top; x = sched_project_parent(t->p->w, x)) {
        if (x->tree_used[d] >= x->share[d])
            return false;
        *within &= x->tree_used[d] + t->amount <= x->share[d];
    }
    return true;
}

// May the victim's project lose a job that holds this much? If the preemptor stays within its share: when the
// project uses more than its share now. If not: only when it does not fall below its share.
static bool over_share(const struct preemptor *t, const struct world_project *v, const struct world_project *top,
                       unsigned d, int64_t held, bool within) {
    if (!v->present)
        return true;
    if (within ? v->used[d] <= v->own_share[d] : v->used[d] - held < v->own_share[d])
        return false;
    for (const struct world_project *x = v; x && x != top; x = sched_project_parent(t->p->w, x))
        if (within ? x->tree_used[d] <= x->share[d] : x->tree_used[d] - held < x->share[d])
            return false;
    return true;
}

static bool qos_may(const struct world_qos *q, uint32_t other) {
    for (uint32_t i = 0; q && i < q->preempts.len; i++)
        if (q->preempts.at[i] == other)
            return true;
    return false;
}

static int64_t held_in(const struct world *w, const struct world_job *v, unsigned dim) {
    if (dim <= DIM_CPU)
        return dim == DIM_GPU ? v->held_gpu : v->held_cpus;
    int64_t held[DIMS_MAX];
    sched_alloc_amounts(w, v->alloc, held);
    return held[dim];
}

// An interactive job may preempt jobs of its own project. A job that merely cannot be requeued (an attached
// run, --no-requeue) may not, although it is not preemptible either.
static bool may_preempt_own(const struct world_request *r) {
    return r->asked.class == SCHED_INTERACTIVE && !r->preemptible;
}

// Could any job of this project be a legal victim? If not, its jobs need not be looked at.
static bool may_lose(const struct preemptor *t, struct world_project *v) {
    if (t->by_qos || v == t->project || !v->present)
        return true;
    const struct world_project *top = common(t->p->w, t->project, v);
    bool within, under = under_share(t, top, &within);
    for (unsigned d = 0; d < t->p->w->cluster.dims; d++) {
        if (under && v->used[d] > 0 && over_share(t, v, top, d, 0, true))
            return true;
        if (t->in_quota && v->quota[d] != SCHED_UNLIMITED && v->used[d] > v->quota[d])
            return true;
    }
    return false;
}

// The most milli-GPU this project may lose to the preemptor. If the preemptor stays within its share or quota,
// the last victim may be larger than the project's excess; otherwise no project may fall below its share. Where only a
// project above the preemptor's own would exceed its share, that can change with the first victim.
static int64_t most_reclaimable(const struct preemptor *t, struct world_project *v) {
    const struct world_project *own = t->project;
    if (t->by_qos || v == own || !v->present || t->in_quota ||
        own->used[t->dim] + t->amount <= own->own_share[t->dim])
        return INT64_MAX / 4;
    bool within;
    if (!under_share(t, common(t->p->w, t->project, v), &within))
        return INT64_MAX / 4;
    int64_t sum = 0;
    for (unsigned d = 0; d < t->p->w->cluster.dims; d++)
        if (d != DIM_CPU && v->used[d] > v->own_share[d])
            sum += v->used[d] - v->own_share[d];
    return sum;
}

static bool find_victim_projects(struct preemptor *t) {
    struct sched_pass *p = t->p;
    bool any = false;
    vec_clear(&p->victim_projects);
    vec_clear(&p->victim_most);
    p->victim_total = 0;
    for (uint32_t i = 0; i < p->w->rules.projects.len; i++) {
        struct world_project *v = p->w->rules.projects.at[i];
        bool may = v && v->running && may_lose(t, v) && (v != t->project || may_preempt_own(t->r) || t->by_qos);
        int64_t most = may ? most_reclaimable(t, v) : -1;
        vec_push(&p->victim_projects, may);
        vec_push(&p->victim_most, most);
        if (may)
            p->victim_total = p->victim_total > INT64_MAX / 4 - most ? INT64_MAX / 4 : p->victim_total + most;
        any |= may;
    }
    return any;
}

static bool in_victim_project(const struct preemptor *t, const struct world_job *v) {
    return t->p->victim_projects.at[v->request->asked.project];
}

// Is the job above the preemptor by steps of this claim's kind or stronger?
static bool above(const struct preemptor *t, const struct world_job *v, enum sched_claim claim) {
    uintptr_t steps = t->above ? (uintptr_t)map_get(&t->p->above, v->id) : 0;
    return steps && steps - 1 <= claim;
}

// The reason why this job may be preempted now (enum sched_preempt_why), with BEYOND added when the preemptor's
// project exceeds its share thereby; -1: it may not be preempted.
static int legal(const struct preemptor *t, const struct world_job *v) {
    struct world *w = t->p->w;
    if (!in_victim_project(t, v) || above(t, v, SCHED_CLAIM_SHARE))
        return -1;
    int64_t least = v->request->asked.min_runtime_ms;
    if (t->p->policy->min_runtime_ms > least)
        least = t->p->policy->min_runtime_ms;
    if (v->state != SCHED_JOB_RUNNING || pass_is_victim(t->p, v))
        return -1;
    if (t->p->now_ms - v->start_ms < least) {  // decide again when it has run that long
        int64_t ripe = v->start_ms + least;
        if (ripe < t->p->out->next_ms)
            t->p->out->next_ms = ripe;
        return -1;
    }
    if (qos_may(t->qos, v->request->asked.qos))
        return SCHED_PREEMPT_QOS;
    // A job whose QoS may preempt would preempt its way back at once: only a QoS above it may preempt it.
    const struct world_qos *its = world_qos(w, v->request->asked.qos);
    if (its && its->preempts.len)
        return -1;
    struct world_project *owner = world_project_slot(w, v->request->asked.project);
    if (owner == t->project)
        return may_preempt_own(t->r) ? SCHED_PREEMPT_PROJECT : -1;
    if (!t->p->policy->reclaim)
        return -1;
    unsigned dim = v->request->dim;
    const struct world_project *top = common(w, t->project, owner);
    bool within;
    if (under_share(t, top, &within) && over_share(t, owner, top, dim, held_in(w, v, dim), within) &&
        (within || !above(t, v, SCHED_CLAIM_BEYOND)))
        return within ? SCHED_PREEMPT_SHARE : SCHED_PREEMPT_SHARE | BEYOND;
    if (t->in_quota && !above(t, v, SCHED_CLAIM_QUOTA) &&
        (!owner->present || (owner->quota[dim] != SCHED_UNLIMITED && owner->used[dim] > owner->quota[dim])))
        return SCHED_PREEMPT_QUOTA;
    return -1;
}

static int by_victim_order(const void *pa, const void *pb) {
    const struct world_job *a = *(struct world_job *const *)pa, *b = *(struct world_job *const *)pb;
    if (a->request->priority != b->request->priority)
        return a->request->priority < b->request->priority ? -1 : 1;
    if (a->start_ms != b->start_ms)
        return a->start_ms > b->start_ms ? -1 : 1;
    return (a->id < b->id) - (a->id > b->id);
}

// Counts (sign 1) as if the victim were gone from its project, while a set is put together; -1 undoes it.
static void count_without(const struct preemptor *t, const struct world_job *v, int sign) {
    int64_t held[DIMS_MAX] = {[DIM_GPU] = v->held_gpu, [DIM_CPU] = v->held_cpus};
    if (t->p->w->cluster.dims > DIM_CPU + 1)
        sched_alloc_amounts(t->p->w, v->alloc, held);
    sched_project_use(t->p->w, world_project_slot(t->p->w, v->request->asked.project), held, false, -sign);
}

static uint32_t tasks_needed(const struct preemptor *t) {
    const struct sched_demand *d = &t->r->demand;
    return d->even ? d->node_tasks : 1;
}

static uint32_t whole_needed(const struct preemptor *t) {
    return (t->r->demand.gpu_task * tasks_needed(t) + t->r->demand.gpu_node) / SCHED_GPU;
}

static uint32_t gpus_on(const struct world_job *v, uint32_t node) {
    uint32_t gpus = 0;
    for (uint32_t i = 0; i < v->alloc->node_count; i++)
        if (v->alloc->nodes[i].node == node)
            gpus += v->alloc->nodes[i].gpu_count;
    return gpus;
}

static bool fits_without(const struct preemptor *t, const struct world_node *n, struct world_job *const *victims,
                         uint32_t count, const struct world_job *except) {
    struct node_copy s;
    sched_node_copy_init(&s, n);
    for (uint32_t i = 0; i < count; i++)
        if (victims[i] != except)
            sched_node_copy_release(&s, victims[i]);
    return sched_fit_tasks(&s.node, &t->r->demand) >= tasks_needed(t);
}

// Looks for two victims that are enough where more were found: the first pair in victim order.
static bool pair(const struct preemptor *t, const struct world_node *n, const job_vec *all, job_vec *set) {
    for (uint32_t i = 0; i < all->len && all->len <= PAIRS_FROM_MAX; i++) {
        count_without(t, all->at[i], 1);
        for (uint32_t k = 0; k < i; k++) {
            struct world_job *two[2] = {all->at[k], all->at[i]};
            if (legal(t, all->at[k]) >= 0 && fits_without(t, n, two, 2, NULL)) {
                count_without(t, all->at[i], -1);
                vec_clear(set);
                vec_push(set, two[1]);
                vec_push(set, two[0]);
                return true;
            }
        }
        count_without(t, all->at[i], -1);
    }
    return false;
}

// Could these victims (bits of `all`) free that many whole GPUs, and may their projects lose each of them?
static bool frees_enough(const struct preemptor *t, const struct world_node *n, const job_vec *all,
                         const uint32_t *gpus, uint32_t mask, uint32_t whole) {
    uint32_t freed = n->whole_free;
    for (uint32_t rest = mask; rest; rest &= rest - 1)
        freed += gpus[__builtin_ctz(rest)];
    if (freed < whole)
        return false;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        uint32_t project = all->at[__builtin_ctz(rest)]->request->asked.project;
        int64_t lost = 0;
        for (uint32_t k = mask; k; k &= k - 1)
            if (all->at[__builtin_ctz(k)]->request->asked.project == project)
                lost += all->at[__builtin_ctz(k)]->held_gpu;
        if (lost > t->p->victim_most.at[project])
            return false;
    }
    return true;
}

// In victim order, a project may have lost all it may before the victim comes that would be enough. Example: the
// project is 2 GPUs over its share, the order is V1 (1 GPU), V2 (2 GPUs), and the preemptor needs V2's two; with
// V1 gone first, V2 is no longer legal. So every subset is tried, small ones first, each in victim order.
static bool subset(const struct preemptor *t, const struct world_node *n, const job_vec *all, job_vec *set) {
    if (all->len > SUBSETS_OF_MAX)
        return false;
    uint32_t gpus[SUBSETS_OF_MAX], whole = whole_needed(t);
    for (uint32_t i = 0; i < all->len; i++)
        gpus[i] = gpus_on(all->at[i], n->id);
    for (uint32_t size = 2; size <= all->len; size++)
        // The next larger number with as many bits.
        for (uint32_t mask = (1U << size) - 1, low; mask < 1U << all->len;
             low = mask & -mask, mask = ((((mask + low) ^ mask) >> 2) / low) | (mask + low)) {
            if (!frees_enough(t, n, all, gpus, mask, whole))
                continue;
            bool fine = true;
            vec_clear(set);
            for (uint32_t i = 0; i < all->len && fine; i++)
                if (mask >> i & 1) {
                    fine = legal(t, all->at[i]) >= 0;
                    if (fine) {
                        count_without(t, all->at[i], 1);
                        vec_push(set, all->at[i]);
                    }
                }
            for (uint32_t i = set->len; i-- > 0;)
                count_without(t, set->at[i], -1);
            if (fine && fits_without(t, n, set->at, set->len, NULL))
                return true;
        }
    return false;
}

// A small set of victims on one node that makes room for one part of the preemptor; false: there is none.
static bool node_set(const struct preemptor *t, const struct world_node *n, job_vec *set) {
    job_vec all = {0};
    vec_clear(set);
    for (uint32_t i = 0; i < n->jobs.len; i++)
        if (in_victim_project(t, n->jobs.at[i]) && !n->jobs.at[i]->nonpreemptible &&
            n->jobs.at[i]->state == SCHED_JOB_RUNNING && legal(t, n->jobs.at[i]) >= 0)
            vec_push(&all, n->jobs.at[i]);
    bool found = false;
    if (all.len && fits_without(t, n, all.at, all.len, NULL)) {
        qsort(all.at, all.len, sizeof *all.at, by_victim_order);
        for (uint32_t i = 0; i < all.len && !found; i++) {
            if (legal(t, all.at[i]) < 0)
                continue;  // its project has lost all it may
            count_without(t, all.at[i], 1);
            vec_push(set, all.at[i]);
            found = fits_without(t, n, set->at, set->len, NULL);
        }
        for (uint32_t i = set->len; i-- > 0;)
            count_without(t, set->at[i], -1);
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

// What a set of victims costs, compared field by field: the highest priority among them, how many, how much they
// hold, and how long they ran (less lost work is cheaper). Start times are compared instead of run times, so
// that the result does not change while time passes.
struct victim_set_cost {
    int32_t priority;
    uint32_t count;
    int64_t held;     // milli-GPU, CPUs weighted
    int64_t started;  // weighted by what is held
    uint32_t node;
};

static struct victim_set_cost cost_of(const job_vec *set, uint32_t node) {
    struct victim_set_cost c = {.priority = INT32_MIN, .count = set->len, .node = node};
    for (uint32_t i = 0; i < set->len; i++) {
        const struct world_job *v = set->at[i];
        if (v->request->priority > c.priority)
            c.priority = v->request->priority;
        c.held += v->cost;
        c.started += v->cost * (v->start_ms / 1000);
    }
    return c;
}

static int by_cost(const void *pa, const void *pb) {
    const struct victim_set_cost *a = pa, *b = pb;
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

static bool enough_gpus(const struct preemptor *t, const struct world_node *n, const struct world_job *v) {
    uint32_t whole = whole_needed(t);
    return !whole || n->whole_free + gpus_on(v, n->id) >= whole;
}

static enum sched_claim claim_of(uint8_t why) {
    return why & BEYOND ? SCHED_CLAIM_BEYOND : why == SCHED_PREEMPT_QUOTA ? SCHED_CLAIM_QUOTA : SCHED_CLAIM_SHARE;
}

static void commit(const struct preemptor *t, const job_vec *set, const uint8_t *whys, struct sched_alloc *a) {
    struct sched_pass *p = t->p;
    for (uint32_t i = 0; i < set->len; i++) {
        struct world_job *v = set->at[i];
        vec_push(&p->out->preempts,
                 (struct sched_preempt){.victim = v->id,
                                        .for_job = t->job->id,
                                        .why = (enum sched_preempt_why)(whys[i] & ~BEYOND),
                                        .grace_ms = p->policy->grace_ms,
                                        .grounds = sched_preemption_grounds(p->w, v, t->job, claim_of(whys[i]))});
    }
    for (uint32_t i = 0; i < set->len; i++)
        sched_tentative_preempt(p, set->at[i]);
    sched_tentative_earmark(p, t->job, t->r, a, set->at, set->len);
}

static void update_in_quota(struct preemptor *t) {
    int64_t after = t->project->used[t->dim] + t->amount;
    t->in_quota = t->project->quota[t->dim] != SCHED_UNLIMITED && after <= t->project->quota[t->dim] &&
                  after <= t->project->own_share[t->dim];
}

// Each victim's reason, with those before it gone; false when one is not legal. Placed, a job may hold more than
// it asked for (whole nodes, memory as a fraction of a smaller GPU): the victims must be legal for that
// amount, or they would preempt the job in turn.
static bool reasons(struct preemptor *t, const job_vec *set, const struct sched_alloc *a, uint8_t *whys) {
    int64_t held[DIMS_MAX];
    sched_alloc_amounts(t->p->w, a, held);
    t->amount = held[t->dim];
    update_in_quota(t);
    uint32_t n = 0;
    for (int why; n < set->len && (why = legal(t, set->at[n])) >= 0; n++) {
        whys[n] = (uint8_t)why;
        count_without(t, set->at[n], 1);
    }
    bool fine = n == set->len;
    while (n-- > 0)
        count_without(t, set->at[n], -1);
    return fine;
}

// Preempts the set if the job can be placed without it and every victim is legal.
static bool preempt_set(struct preemptor *t, const job_vec *set) {
    t->placed = true;
    struct sched_alloc *a = sched_tentative_place_without(t->p, t->r, set->at, set->len);
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
        sched_alloc_free(a);
        t->amount = asked;
        update_in_quota(t);
    }
    free(whys);
    return fine;
}

static bool skip(const struct preemptor *t, const struct sched_victim *c) {
    return c->nonpreemptible || !t->p->victim_projects.at[c->project] ||
           c->milli > t->p->victim_most.at[c->project] || c->job->state != SCHED_JOB_RUNNING ||
           pass_is_victim(t->p, c->job);
}

// Preempts this job if it is enough by itself on one of its nodes.
static bool alone(struct preemptor *t, const struct sched_fit *f, struct world_job *v, job_vec *set) {
    for (uint32_t k = 0; k < v->alloc->node_count; k++) {
        uint32_t id = v->alloc->nodes[k].node;
        const struct world_node *n = world_node(t->p->w, id);
        if (!n || id >= f->nodes_len || !f->allowed[id] || !enough_gpus(t, n, v) || legal(t, v) < 0 ||
            !fits_without(t, n, &v, 1, NULL))
            continue;
        vec_clear(set);
        vec_push(set, v);
        if (preempt_set(t, set))
            return true;
    }
    return false;
}

// One victim that is enough by itself, in victim order.
static bool one_victim(struct preemptor *t, const struct sched_fit *f, job_vec *set) {
    struct sched_pass *p = t->p;
    const struct world *w = p->w;
    uint32_t whole = whole_needed(t);
    while (p->victims_from < w->orders.victims.len && pass_is_victim(p, w->orders.victims.at[p->victims_from].job))
        p->victims_from++;
    for (uint32_t i = p->victims_from; i < w->orders.victims.len; i++) {
        const struct sched_victim *c = &w->orders.victims.at[i];
        if ((c->node && c->gpus + w->cluster.whole_free.at[c->node] < whole) || skip(t, c))
            continue;
        if (alone(t, f, c->job, set))
            return true;
    }
    return false;
}

// By node: GPUs that jobs of the victim projects hold, so that few nodes need a closer look. Jobs that hold more than
// their project may lose do not count. The same for every preemptor with the same victim projects and losses, until a
// decision is made.
static const uint16_t *freeable(const struct preemptor *t) {
    struct sched_pass *p = t->p;
    const struct world *w = p->w;
    uint64_t who = hash_bytes(p->victim_projects.at, p->victim_projects.len) ^
                   hash_bytes(p->victim_most.at, p->victim_most.len * sizeof *p->victim_most.at) ^
                   hash_u64(p->out->starts.len + p->out->preempts.len) ^ 1;
    if (p->freeable.len == w->cluster.nodes.len && p->freeable_for == who)
        return p->freeable.at;
    p->freeable_for = who;
    vec_clear(&p->freeable);
    for (uint32_t i = 0; i < w->cluster.nodes.len; i++)
        vec_push(&p->freeable, 0);
    uint16_t *gpus = p->freeable.at;
    for (uint32_t i = p->victims_from; i < w->orders.victims.len; i++) {
        const struct sched_victim *c = &w->orders.victims.at[i];
        if (c->nonpreemptible || c->milli > p->victim_most.at[c->project])
            continue;
        if (c->node) {
            gpus[c->node] = (uint16_t)(gpus[c->node] + c->gpus);
            continue;
        }
        const struct sched_alloc *a = c->job->alloc;
        for (uint32_t k = 0; k < a->node_count; k++)
            gpus[a->nodes[k].node] = (uint16_t)(gpus[a->nodes[k].node] + a->nodes[k].gpu_count);
    }
    return gpus;
}

static bool worth_a_look(const struct preemptor *t, const struct sched_fit *f, const uint16_t *gpus, uint32_t id) {
    const struct world_node *n = t->p->w->cluster.nodes.at[id];
    return f->allowed[id] && n->jobs.len && gpus[id] + n->whole_free >= whole_needed(t);
}

// Victims on these nodes: one that is enough, else several on one node.
static bool on_nodes(struct preemptor *t, const struct sched_fit *f, const uint32_t *nodes, uint32_t count,
                     job_vec *set) {
    const struct sched_pass *p = t->p;
    job_vec here = {0};
    VEC(struct victim_set_cost) costs = {0};
    bool done = false;
    for (uint32_t i = 0; i < count; i++) {
        const struct world_node *n = p->w->cluster.nodes.at[nodes[i]];
        for (uint32_t k = 0; k < n->jobs.len; k++)
            if (in_victim_project(t, n->jobs.at[k]) && !n->jobs.at[k]->nonpreemptible &&
                enough_gpus(t, n, n->jobs.at[k]) && legal(t, n->jobs.at[k]) >= 0)
                vec_push(&here, n->jobs.at[k]);
    }
    if (here.len)
        qsort(here.at, here.len, sizeof *here.at, by_victim_order);
    // One victim before several: fewer jobs lose their work. A job on several of the nodes is listed more than once.
    for (uint32_t i = 0; i < here.len && !done; i++)
        done = (i == 0 || here.at[i] != here.at[i - 1]) && alone(t, f, here.at[i], set);
    for (uint32_t i = 0; i < count && !done; i++)
        if (node_set(t, p->w->cluster.nodes.at[nodes[i]], set))
            vec_push(&costs, cost_of(set, nodes[i]));
    if (costs.len)
        qsort(costs.at, costs.len, sizeof *costs.at, by_cost);
    for (uint32_t i = 0; i < costs.len && i < NODES_TRIED_MAX && !done; i++)
        done = node_set(t, p->w->cluster.nodes.at[costs.at[i].node], set) && preempt_set(t, set);
    vec_done(&costs);
    vec_done(&here);
    return done;
}

// Several victims on one node; nodes in the order of their first job in victim order.
static bool one_node(struct preemptor *t, const struct sched_fit *f, job_vec *set) {
    const struct sched_pass *p = t->p;
    const struct world *w = p->w;
    const uint16_t *gpus = freeable(t);
    VEC(struct victim_set_cost) costs = {0};
    uint8_t *seen = xcalloc(f->nodes_len + 1, 1);
    int32_t lowest =
        p->victims_from < w->orders.victims.len ? w->orders.victims.at[p->victims_from].job->victim_priority : 0;
    bool done = false;
    for (uint32_t i = p->victims_from; i < w->orders.victims.len && !done; i++) {
        const struct sched_victim *c = &w->orders.victims.at[i];
        if ((c->node && (c->node >= f->nodes_len || seen[c->node])) || skip(t, c))
            continue;
        for (uint32_t k = 0; k < c->job->alloc->node_count && !done; k++) {
            uint32_t id = c->job->alloc->nodes[k].node;
            if (id >= f->nodes_len || seen[id]++ || !worth_a_look(t, f, gpus, id) ||
                !node_set(t, w->cluster.nodes.at[id], set))
                continue;
            vec_push(&costs, cost_of(set, id));
            if (set->len == 2 && costs.at[costs.len - 1].priority == lowest)
                done = preempt_set(t, set);  // one is not enough anywhere: two of lowest priority are the cheapest
        }
    }
    free(seen);
    if (costs.len)
        qsort(costs.at, costs.len, sizeof *costs.at, by_cost);
    for (uint32_t i = 0; i < costs.len && i < NODES_TRIED_MAX && !done; i++)
        done = node_set(t, w->cluster.nodes.at[costs.at[i].node], set) && preempt_set(t, set);
    vec_done(&costs);
    return done;
}

static bool one_part(struct preemptor *t, const struct sched_fit *f, job_vec *set) {
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

static bool in_set(const job_vec *set, const struct world_job *j) {
    for (uint32_t i = 0; i < set->len; i++)
        if (set->at[i] == j)
            return true;
    return false;
}

// A job on several nodes: the nodes with the cheapest victims, until there are enough.
static bool many_nodes(const struct preemptor *t, const struct sched_fit *f, job_vec *all) {
    VEC(struct victim_set_cost) costs = {0};
    job_vec set = {0};
    uint32_t need = t->r->demand.nodes_min, looks = 0;
    const uint16_t *gpus = freeable(t);
    for (uint32_t id = 1; id < f->nodes_len; id++)
        looks += f->cap[id] || worth_a_look(t, f, gpus, id);
    for (uint32_t id = 1; id < f->nodes_len && looks >= t->r->demand.nodes_min; id++) {
        if (f->cap[id])
            need -= need > 0;
        else if (worth_a_look(t, f, gpus, id) && node_set(t, t->p->w->cluster.nodes.at[id], &set))
            vec_push(&costs, cost_of(&set, id));
    }
    if (costs.len)
        qsort(costs.at, costs.len, sizeof *costs.at, by_cost);
    for (uint32_t i = 0; i < costs.len && need && all->len < VICTIMS_MAX; i++) {
        const struct world_node *n = t->p->w->cluster.nodes.at[costs.at[i].node];
        // Victims chosen for other nodes may free this one as well.
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
                count_without(t, set.at[k], 1);
                vec_push(all, set.at[k]);
            }
        need--;
    }
    for (uint32_t i = all->len; i-- > 0;)
        count_without(t, all->at[i], -1);
    vec_done(&costs);
    vec_done(&set);
    return need == 0 && all->len;
}

// Any layout: victims in their order until the preemptor fits.
static bool one_by_one(struct preemptor *t, const struct sched_fit *f, job_vec *all) {
    struct sched_alloc *a = NULL;
    for (uint32_t i = 0; i < t->p->w->orders.victims.len && !a && all->len < VICTIMS_MAX; i++) {
        struct world_job *v = t->p->w->orders.victims.at[i].job;
        if (skip(t, &t->p->w->orders.victims.at[i]))
            continue;
        bool here = false;
        for (uint32_t k = 0; k < v->alloc->node_count; k++)
            here |= v->alloc->nodes[k].node < f->nodes_len &&
                    (f->allowed[v->alloc->nodes[k].node] ||
                     sched_parts_may_use(t->p->w, t->r, v->alloc->nodes[k].node));
        if (!here || legal(t, v) < 0)
            continue;
        // From here on use is counted as if this victim had ended: whether the next one may be preempted depends on it.
        count_without(t, v, 1);
        vec_push(all, v);
        t->placed = true;
        a = sched_tentative_place_without(t->p, t->r, all->at, all->len);
    }
    for (uint32_t i = all->len; i-- > 0;)
        count_without(t, all->at[i], -1);
    sched_alloc_free(a);
    return a;
}

// Drops victims that are not needed, the last in victim order first.
static void prune(const struct preemptor *t, job_vec *set) {
    qsort(set->at, set->len, sizeof *set->at, by_victim_order);
    for (uint32_t i = set->len; i-- > 0 && set->len > 1;) {
        struct world_job *v = set->at[i];
        vec_remove(set, i);
        struct sched_alloc *a = sched_tentative_place_without(t->p, t->r, set->at, set->len);
        if (!a) {
            vec_push(set, NULL);
            for (uint32_t k = set->len - 1; k > i; k--)
                set->at[k] = set->at[k - 1];
            set->at[i] = v;
        }
        sched_alloc_free(a);
    }
}

// Does another project have running jobs? Counted once per pass.
static bool others_run(struct sched_pass *p, const struct world_project *own) {
    if (!p->running_counted) {
        p->running_counted = true;
        for (uint32_t i = 0; i < p->w->rules.projects.len; i++)
            p->running_projects += p->w->rules.projects.at[i] && p->w->rules.projects.at[i]->running;
    }
    return p->running_projects > (own->running > 0);
}

// Does any project use more than its share or quota? Computed again after each decision.
static bool any_project_over(struct sched_pass *p) {
    uint32_t moves = 1 + p->out->starts.len + p->out->preempts.len;
    if (p->over_moves == moves)
        return p->over;
    p->over_moves = moves;
    p->over = false;
    for (uint32_t i = 0; i < p->w->rules.projects.len && !p->over; i++) {
        const struct world_project *v = p->w->rules.projects.at[i];
        if (!v || !v->running)
            continue;
        for (unsigned d = 0; d < p->w->cluster.dims; d++)
            p->over |= !v->present || v->used[d] > v->own_share[d] ||
                       (v->quota[d] != SCHED_UNLIMITED && v->used[d] > v->quota[d]);
    }
    return p->over;
}

bool sched_reclaim_possible(struct sched_pass *p) {
    return any_project_over(p);
}

// Can the victim projects not lose enough, wherever the job goes? Example: it needs 4 whole GPUs on one node and
// no node has more than 1 free: at least 3 GPUs must be freed.
static bool too_little(const struct preemptor *t) {
    const struct world *w = t->p->w;
    uint32_t whole = whole_needed(t), most = SCHED_GPUS_MAX, enough = 0;
    if (!whole || whole > SCHED_GPUS_MAX || !t->r->demand.even || t->r->parts.len)
        return false;
    for (uint32_t k = whole; k <= SCHED_GPUS_MAX; k++)
        enough += w->cluster.room_count[k];
    if (enough >= t->r->demand.nodes_min)
        return false;
    while (most >= whole || (most && !w->cluster.room_count[most]))
        most--;
    return t->p->victim_total < (int64_t)(whole - most) * (t->r->demand.nodes_min - enough) * SCHED_GPU;
}

static bool search(struct preemptor *t, const struct sched_fit *f) {
    job_vec set = {0};
    bool done;
    const struct sched_demand *d = &t->r->demand;
    bool alike = d->even && !d->gpu_total && !t->r->parts.len;  // what it needs is the same on each node
    if (alike && d->nodes_min == 1) {
        done = one_part(t, f, &set);
    } else {
        done = alike ? many_nodes(t, f, &set) : one_by_one(t, f, &set);
        if (done) {
            prune(t, &set);
            done = preempt_set(t, &set);
        }
    }
    vec_done(&set);
    return done;
}

static bool find(struct sched_pass *p, struct world_job *j, struct world_request *r, uint32_t *count) {
    struct preemptor t = {.p = p,
                          .job = j,
                          .r = r,
                          .project = world_project(p->w, r->asked.project),
                          .dim = r->dim,
                          .amount = r->amount,
                          .qos = world_qos(p->w, r->asked.qos),
                          .count = count};
    if (!t.project)
        return false;
    bool within, under = under_share(&t, sched_project_parent(p->w, t.project), &within);
    update_in_quota(&t);
    t.by_qos = t.qos && t.qos->preempts.len;
    if (!t.by_qos && r->preemptible &&
        (!p->policy->reclaim || !(p->may_preempt.at[t.project->id] >> t.dim & 1) || (!under && !t.in_quota)))
        return false;
    if (!t.by_qos && r->preemptible && (!others_run(p, t.project) || !any_project_over(p)))
        return false;
    // What failed for one job fails for others like it, as long as no decision was made since.
    struct sched_fit *f = sched_fit_of(p->w, r);
    uint64_t like[] = {f->hash,
                       r->asked.project,
                       r->asked.qos,
                       r->preemptible,
                       may_preempt_own(r),
                       j->preempted_by ? j->id : 0,
                       r->parts.len ? r->hash : 0,
                       0};
    uint64_t key = hash_bytes(like, sizeof like);  // for any time limit
    like[sizeof like / sizeof *like - 1] = (uint64_t)r->limit_ms;
    uint64_t key_limit = hash_bytes(like, sizeof like);
    uintptr_t moves = 1 + p->out->starts.len + p->out->preempts.len;
    if ((uintptr_t)map_get(&p->reclaims_failed, key) == moves ||
        (uintptr_t)map_get(&p->reclaims_failed, key_limit) == moves)
        return false;
    sched_victims_merge(p->w);
    t.above = sched_preemption_find_above(p, j);
    if (p->w->orders.victims.len && find_victim_projects(&t) && !too_little(&t) && search(&t, f))
        return true;
    map_put(&p->reclaims_failed, t.placed ? key_limit : key, (void *)moves);
    return false;
}

bool sched_reclaim(struct sched_pass *p, struct world_job *j, struct world_request *r) {
    return find(p, j, r, NULL);
}

uint32_t sched_reclaim_count(struct sched_pass *p, struct world_job *j, struct world_request *r) {
    uint32_t count = 0;
    find(p, j, r, &count);
    return count;
}
