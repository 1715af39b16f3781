// Optional workers that have to end: those on the place of a job that starts, of a job whose victims are ending, or of
// a planned start within the grace time; and those beyond a limit of their project.
//
// Invariant: what runs fits. On every node, what jobs hold (those that started and wait for workers in their way
// included) and what the workers that were not told to end hold is never more than the node has.
#include <assert.h>
#include <stdlib.h>

#include "growth.h"
#include "plan.h"

typedef VEC(struct world_job *) worker_vec;

bool sched_optional_leaving(const struct world_job *j) {
    return j->state == SCHED_JOB_ENDING || j->leaves;
}

static const struct world_project *project_of(const struct world *w, const struct world_job *j) {
    return w->rules.projects.at[j->request->asked.project];
}

// Those that end anyway come first, then those of the project that uses the largest part of its share, then the group
// with the highest number, the latest. In a group the lowest rank, then the latest started.
struct give_back_key {
    struct world_job *job;
    bool leaving;
    int64_t fullness;
};

static int by_give_back(const struct give_back_key *x, const struct give_back_key *y) {
    const struct world_job *a = x->job, *b = y->job;
    if (x->leaving != y->leaving)
        return x->leaving ? -1 : 1;
    if (x->fullness != y->fullness)
        return x->fullness > y->fullness ? -1 : 1;
    if (a->group != b->group)
        return a->group > b->group ? -1 : 1;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    if (a->start_ms != b->start_ms)
        return a->start_ms > b->start_ms ? -1 : 1;
    return (a->id < b->id) - (a->id > b->id);
}

static struct give_back_key key_of(const struct world *w, struct world_job *j) {
    return (struct give_back_key){j, sched_optional_leaving(j), project_of(w, j)->fullness_milli};
}

static int by_key(const void *a, const void *b) {
    return by_give_back(a, b);
}

void sched_give_back_sort(const struct world *w, struct world_job **jobs, uint32_t n) {
    if (n < 2)
        return;
    struct give_back_key *keys = xcalloc(n, sizeof *keys);
    for (uint32_t i = 0; i < n; i++)
        keys[i] = key_of(w, jobs[i]);
    qsort(keys, n, sizeof *keys, by_key);
    for (uint32_t i = 0; i < n; i++)
        jobs[i] = keys[i].job;
    free(keys);
}

// By how much a node is over-committed when its second ledger counts; 0 or less: not at all.
struct overcommit {
    int64_t cpus, memory;
    int64_t gpus[SCHED_GPUS_MAX];
    uint32_t gpu_count;
};

// Only what `a` uses is looked at: the rest is not in its way.
static void measure(const struct world_node *n, const struct sched_alloc_node *a, struct overcommit *o) {
    *o = (struct overcommit){.gpu_count = n->gpu_count};
    if (a->cpus)
        o->cpus = (int64_t)n->cpus_held + n->cpus_withheld + n->optional->cpus - n->cpus;
    if (a->memory_bytes)
        o->memory = (int64_t)(n->memory_held + n->memory_withheld + n->optional->memory - n->memory);
    for (uint32_t i = 0; i < a->gpu_count; i++) {
        uint32_t g = a->gpus[i].index;
        if (g < n->gpu_count)
            o->gpus[g] = (int64_t)n->gpus[g].held_milli + n->gpus[g].withheld_milli +
                         n->gpus[g].optional_milli - SCHED_GPU;
    }
}

static bool over(const struct overcommit *o) {
    bool any = o->cpus > 0 || o->memory > 0;
    for (uint32_t g = 0; g < o->gpu_count; g++)
        any |= o->gpus[g] > 0;
    return any;
}

// Adds what the worker holds of the node (sign 1), or takes it back (sign -1). Returns whether that matters.
static bool change(struct overcommit *o, const struct world_job *j, uint32_t node, int sign) {
    bool matters = false;
    for (uint32_t i = 0; i < j->alloc->node_count; i++) {
        const struct sched_alloc_node *a = &j->alloc->nodes[i];
        if (a->node != node)
            continue;
        matters |= (o->cpus > 0 && a->cpus) || (o->memory > 0 && a->memory_bytes);
        o->cpus += sign * (int64_t)a->cpus;
        o->memory += sign * (int64_t)a->memory_bytes;
        for (uint32_t g = 0; g < a->gpu_count; g++)
            if (a->gpus[g].index < o->gpu_count) {
                matters |= o->gpus[a->gpus[g].index] > 0;
                o->gpus[a->gpus[g].index] += sign * (int64_t)a->gpus[g].milli;
            }
    }
    return matters;
}

// Adds to `out` the workers on the node that have to end so that `a`, which the node counts as held, is really there.
// In the order of giving back, and none that is not needed: the last one taken that is not needed stays.
static void in_way(const struct world *w, const struct world_node *n, const struct sched_alloc_node *a,
                   worker_vec *out) {
    struct overcommit o;
    if (!n->optional || !n->optional->jobs.len)
        return;
    measure(n, a, &o);
    if (!over(&o))
        return;
    worker_vec here = {0};
    for (uint32_t i = 0; i < n->optional->jobs.len; i++)
        if (n->optional->jobs.at[i]->state != SCHED_JOB_PENDING)  // else it starts in this pass
            vec_push(&here, n->optional->jobs.at[i]);
    sched_give_back_sort(w, here.at, here.len);
    uint32_t first = out->len;
    for (uint32_t i = 0; i < here.len && over(&o); i++) {
        if (change(&o, here.at[i], n->id, -1))
            vec_push(out, here.at[i]);
        else
            change(&o, here.at[i], n->id, 1);
    }
    for (uint32_t i = out->len; i-- > first;) {
        change(&o, out->at[i], n->id, 1);
        if (over(&o))
            change(&o, out->at[i], n->id, -1);
        else
            vec_remove(out, i);
    }
    vec_done(&here);
}

static void leave(struct sched_pass *p, const struct world_job *j, int sign) {
    int64_t held[DIMS_MAX];
    sched_alloc_amounts(p->w, j->alloc, held);
    struct world_project *own = world_project_slot(p->w, j->request->asked.project);
    for (unsigned d = 0; d < DIM_MODEL; d++)
        own->growth_change[d] -= sign * held[d];
    for (struct world_project *t = own; t; t = sched_project_parent(p->w, t))
        for (unsigned d = 0; d < p->w->cluster.dims; d++)
            t->leaving_tree[d] += sign * held[d];
}

void sched_optional_tell(struct sched_pass *p, struct world_job *worker, uint64_t for_job) {
    assert(!sched_optional_leaving(worker));
    worker->leaves = true;
    leave(p, worker, 1);
    vec_push(&p->given_back, (struct sched_preempt){.victim = worker->id,
                                                    .for_job = for_job,
                                                    .why = SCHED_PREEMPT_OPTIONAL,
                                                    .grace_ms = p->policy->grace_ms,
                                                    .grounds = {.by = for_job, .share = INT64_MAX}});
}

static void tell_all(struct sched_pass *p, const worker_vec *workers, uint64_t for_job) {
    for (uint32_t i = 0; i < workers->len; i++)
        if (!sched_optional_leaving(workers->at[i]))
            sched_optional_tell(p, workers->at[i], for_job);
}

static int by_id(const void *pa, const void *pb) {
    const struct world_job *a = *(struct world_job *const *)pa, *b = *(struct world_job *const *)pb;
    return (a->id > b->id) - (a->id < b->id);
}

// The workers in the way of an allocation that its nodes count as held, each once, by id.
static void in_way_of(const struct world *w, const struct sched_alloc *a, worker_vec *out) {
    for (uint32_t i = 0; i < a->node_count; i++)
        in_way(w, w->cluster.nodes.at[a->nodes[i].node], &a->nodes[i], out);
    if (out->len > 1)
        qsort(out->at, out->len, sizeof *out->at, by_id);
    uint32_t n = 0;
    for (uint32_t i = 0; i < out->len; i++)
        if (!i || out->at[i] != out->at[i - 1])
            out->at[n++] = out->at[i];
    out->len = n;
}

// The worker on this GPU that comes last in the order of giving back; NULL: none is there, or all end anyway.
static struct world_job *holder(const struct world *w, const struct world_node *n, uint32_t gpu) {
    struct give_back_key last = {0};
    for (uint32_t i = 0; n->gpus[gpu].optional_milli && i < n->optional->jobs.len; i++) {
        struct world_job *j = n->optional->jobs.at[i];
        bool here = false;
        for (uint32_t k = 0; k < j->alloc->node_count; k++)
            for (uint32_t g = 0; j->alloc->nodes[k].node == n->id && g < j->alloc->nodes[k].gpu_count; g++)
                here |= j->alloc->nodes[k].gpus[g].index == gpu;
        struct give_back_key key = key_of(w, j);
        if (here && !key.leaving && (!last.job || by_give_back(&key, &last) > 0))
            last = key;
    }
    return last.job;
}

static bool alike(const struct world_gpu *a, const struct world_gpu *b) {
    return a->model == b->model && a->memory_bytes == b->memory_bytes && a->group == b->group &&
           a->socket == b->socket;
}

// The GPU that is as good as this one for the job, entirely free for it, and best for the workers: one without workers,
// else one whose worker comes first in the order of giving back.
static uint32_t best_gpu(const struct world *w, const struct world_node *n, uint32_t gpu) {
    struct world_job *worker = holder(w, n, gpu);
    for (uint32_t i = 0; i < n->gpu_count && worker; i++) {
        if (n->gpus[i].free_milli != SCHED_GPU || !alike(&n->gpus[i], &n->gpus[gpu]))
            continue;
        struct world_job *other = holder(w, n, i);
        struct give_back_key a = key_of(w, worker), b = other ? key_of(w, other) : a;
        if (!other || by_give_back(&b, &a) < 0) {
            gpu = i;
            worker = other;
        }
    }
    return gpu;
}

static int by_index(const void *pa, const void *pb) {
    const struct sched_alloc_gpu *a = pa, *b = pb;
    return (a->index > b->index) - (a->index < b->index);
}

// Entirely free GPUs that are alike are equal for the job and for all decisions, so it takes those whose workers are
// missed least. Done when the pass is over: no other decision of it sees a difference.
static void choose_gpus(struct sched_pass *p, const struct sched_start *s) {
    if (s->alloc->piece_count)
        return;
    const struct world_job *j = world_find(p->w, s->job);
    for (uint32_t i = 0; i < s->alloc->node_count; i++) {
        struct sched_alloc_node *a = &s->alloc->nodes[i];
        struct world_node *n = p->w->cluster.nodes.at[a->node];
        if (!n->optional || !n->optional->jobs.len || !a->gpu_count || a->gpus[0].milli != SCHED_GPU)
            continue;
        for (uint32_t g = 0; g < a->gpu_count; g++) {
            uint32_t best = best_gpu(p->w, n, a->gpus[g].index);
            if (best == a->gpus[g].index)
                continue;
            sched_node_allocate(n, a, j->request->demand.exclusive, -1);
            a->gpus[g].index = (uint16_t)best;
            sched_node_allocate(n, a, j->request->demand.exclusive, 1);
        }
        qsort(a->gpus, a->gpu_count, sizeof *a->gpus, by_index);
        world_node_changed(p->w, n->id);
    }
}

static void for_start(struct sched_pass *p, struct sched_start *s) {
    worker_vec workers = {0};
    choose_gpus(p, s);
    in_way_of(p->w, s->alloc, &workers);
    tell_all(p, &workers, s->job);
    if (workers.len)
        s->after = xcalloc(workers.len, sizeof *s->after);
    for (uint32_t i = 0; i < workers.len; i++)
        s->after[s->after_count++] = workers.at[i]->id;
    vec_done(&workers);
}

static void mark_soon(struct sched_pass *p, uint32_t node) {
    if (!p->soon.len) {
        vec_reserve(&p->soon, p->w->cluster.nodes.len);
        memset(p->soon.at, 0, p->w->cluster.nodes.len);
        p->soon.len = p->w->cluster.nodes.len;
    }
    p->soon.at[node] = 1;
}

static void at_planned_start(void *ctx, struct sched_pass *p, const struct sched_alloc *place) {
    worker_vec *workers = ctx;
    in_way_of(p->w, place, workers);
    for (uint32_t i = 0; i < place->node_count; i++)
        mark_soon(p, place->nodes[i].node);
}

// A planned start within the grace time: the workers on the place it will have are told now, so that it is not late.
// Nodes of such starts get no new workers.
static void for_planned(struct sched_pass *p) {
    for (uint32_t i = 0; i < p->out->plans.len; i++) {
        const struct sched_plan *plan = &p->out->plans.at[i];
        int64_t tell_ms = plan->start_ms - p->policy->grace_ms;
        if (tell_ms > p->now_ms) {
            p->out->next_ms = tell_ms < p->out->next_ms ? tell_ms : p->out->next_ms;
            continue;
        }
        worker_vec workers = {0};
        sched_plan_at_start(p, world_find(p->w, plan->job), plan, at_planned_start, &workers);
        tell_all(p, &workers, plan->job);
        vec_done(&workers);
    }
    for (uint32_t i = 0; i < p->parts.len; i++)
        if (p->parts.at[i].tasks && p->parts.at[i].from_ms - p->policy->grace_ms <= p->now_ms)
            mark_soon(p, p->parts.at[i].node);
}

static bool any_over_limit(const struct world *w) {
    for (uint32_t i = 0; i < w->rules.tree.len; i++) {
        const struct world_project *t = w->rules.tree.at[i];
        for (unsigned d = 0; d < w->cluster.dims; d++)
            if (t->limit[d] >= 0 && t->optional_tree[d] &&
                t->tree_used[d] + t->optional_tree[d] - t->leaving_tree[d] > t->limit[d])
                return true;
    }
    return false;
}

static bool over_limit(const struct world *w, const struct world_job *j) {
    int64_t held[DIMS_MAX];
    sched_alloc_amounts(w, j->alloc, held);
    for (const struct world_project *t = project_of(w, j); t; t = sched_project_parent(w, t))
        for (unsigned d = 0; d < w->cluster.dims; d++)
            if (held[d] && t->limit[d] >= 0 &&
                t->tree_used[d] + t->optional_tree[d] - t->leaving_tree[d] > t->limit[d])
                return true;
    return false;
}

// The latest start of this pass in the project; 0: none, the limit itself was lowered.
static uint64_t started_in(const struct sched_pass *p, uint32_t project) {
    for (uint32_t i = p->out->starts.len; i-- > 0;)
        if (world_find(p->w, p->out->starts.at[i].job)->request->asked.project == project)
            return p->out->starts.at[i].job;
    return 0;
}

// Jobs start within the limit whatever optional workers of the project use: the workers make room in it.
static void for_limits(struct sched_pass *p) {
    worker_vec beyond = {0};
    if (!any_over_limit(p->w))
        return;
    for (uint32_t i = 0; i < p->w->optional.running.len; i++) {
        struct world_job *j = p->w->optional.running.at[i];
        if (!sched_optional_leaving(j) && over_limit(p->w, j))
            vec_push(&beyond, j);
    }
    sched_give_back_sort(p->w, beyond.at, beyond.len);
    for (uint32_t i = 0; i < beyond.len; i++)
        if (over_limit(p->w, beyond.at[i]))
            sched_optional_tell(p, beyond.at[i], started_in(p, beyond.at[i]->request->asked.project));
    vec_done(&beyond);
}

void sched_give_back(struct sched_pass *p) {
    for (uint32_t i = 0; p->w->optional.ending && i < p->w->optional.running.len; i++)
        if (p->w->optional.running.at[i]->state == SCHED_JOB_ENDING)
            leave(p, p->w->optional.running.at[i], 1);
    for (uint32_t i = 0; i < p->out->starts.len && p->w->optional.running.len; i++)
        for_start(p, &p->out->starts.at[i]);
    for (uint32_t i = 0; i < p->earmarks.len && p->w->optional.running.len; i++) {
        worker_vec workers = {0};
        in_way_of(p->w, p->earmarks.at[i].alloc, &workers);
        tell_all(p, &workers, p->earmarks.at[i].job->id);
        vec_done(&workers);
    }
    for_planned(p);
    for_limits(p);
}
