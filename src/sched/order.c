// The order of a pass: a heap of projects by rank, each with its entries in order. Invariant: inside a pass
// usage only grows, so ranks and keys only get worse; a stale one is noticed when its owner comes to the
// top, and is sifted down then. (After victims were chosen, sched_order_rerank ranks all projects again.)
// A project's entries are read from its queue; only when one of its jobs gets a decision are they copied
// into a heap of the pass, because then their keys change.
#include "order.h"

#include <assert.h>
#include <string.h>

#include "promise.h"
#include "reclaim.h"

enum { PATIENCE_LEAST = 2 };

static struct world_job *job_of(const struct queue_entry *e) {
    return job_queue_at(&e->request->queue, e->at);
}

// What its user's usage adds to the queue time, computed once per user and load.
static int64_t use_ms(const struct sched_order *o, struct world_user *u) {
    const struct world *w = o->p->w;
    int64_t load = sched_user_load(w, u, o->p->now_ms);
    if (u->cached.use_pass != w->last_pass.number || u->cached.use_load != load) {
        u->cached.use_pass = w->last_pass.number;
        u->cached.use_load = load;
        u->cached.use_ms = sched_queue_time_scaled(load, o->p->policy->use_ms, o->cost_capacity);
    }
    return u->cached.use_ms;
}

int64_t sched_queue_entry_key(const struct sched_order *o, const struct queue_entry *t) {
    if (o->shortest)
        return t->limit_ms == INT64_MAX ? NO_LIMIT_COUNTS_AS_MS : t->limit_ms;
    if (t->ignores_use)
        return t->base;
    int64_t longest = o->p->policy->max_wait_ms, submit_ms;
    if (longest && t->base < o->recent_base && o->p->now_ms - (submit_ms = job_of(t)->submit_ms) > longest)
        return sched_queue_time_overdue(submit_ms);
    return sched_queue_time_add(t->base, use_ms(o, t->user));
}

bool sched_queue_entry_before(const struct queue_entry *a, const struct queue_entry *b) {
    if (a->tier != b->tier)
        return a->tier > b->tier;
    if (a->priority != b->priority)
        return a->priority > b->priority;
    if (a->key != b->key)
        return a->key < b->key;
    const struct world_job *i = job_of(a), *j = job_of(b);
    if (i == j)
        return a->nth != b->nth ? a->nth < b->nth : a->partition < b->partition;
    return i->submit_ms != j->submit_ms ? i->submit_ms < j->submit_ms : i->id < j->id;
}

// --- projects in the order ---

static uint32_t project_len(const struct order_project *l) {
    return l->heaped ? l->heap.len : l->count - l->next;
}

static struct queue_entry *project_top(const struct order_project *l) {
    return l->heaped ? &l->heap.at[0] : &l->project->queue.slots.at[l->project->queue.sorted.at[l->next]];
}

static void entry_sift(struct order_project *l, uint32_t i) {
    struct queue_entry t = l->heap.at[i];
    for (uint32_t k; (k = 2 * i + 1) < l->heap.len; i = k) {
        if (k + 1 < l->heap.len && sched_queue_entry_before(&l->heap.at[k + 1], &l->heap.at[k]))
            k++;
        if (!sched_queue_entry_before(&l->heap.at[k], &t))
            break;
        l->heap.at[i] = l->heap.at[k];
    }
    l->heap.at[i] = t;
}

static void project_heap(struct order_project *l) {
    if (l->heaped)
        return;
    const struct project_queue *t = &l->project->queue;
    vec_reserve(&l->heap, project_len(l) + 1);
    for (uint32_t i = l->next; i < l->count; i++)
        vec_push(&l->heap, t->slots.at[t->sorted.at[i]]);  // sorted: a heap already
    l->heaped = true;
}

// Users' usage may have grown since the keys were computed.
static void project_settle(const struct sched_order *o, struct order_project *l) {
    while (l->heaped && l->heap.len) {
        struct queue_entry *t = &l->heap.at[0];
        int64_t key = sched_queue_entry_key(o, t);
        if (key == t->key)
            return;
        t->key = key;
        entry_sift(l, 0);
    }
}

// What part of its share the project uses, in the dimension of its first job; of the project and those above
// it, the one with the largest part counts.
static void project_fullness(const struct sched_order *o, struct order_project *l, unsigned d) {
    if (l->moves == o->p->moves + 1 && l->dim == d)
        return;
    l->moves = o->p->moves + 1;
    l->dim = d;
    const struct world_project *own = l->project;
    l->used = own->used[d];
    l->share = own->own_share[d];
    l->over_share = l->used >= l->share;
    for (const struct world_project *up = sched_project_parent(o->p->w, own); up;
         up = sched_project_parent(o->p->w, up)) {
        l->over_share |= up->tree_used[d] >= up->share[d];
        if ((__int128)up->tree_used[d] * l->share > (__int128)l->used * up->share[d]) {
            l->used = up->tree_used[d];
            l->share = up->share[d];
        }
    }
}

void sched_order_project_rank(const struct sched_order *o, struct order_project *l) {
    project_settle(o, l);
    if (!project_len(l))
        return;
    const struct queue_entry *t = project_top(l);
    l->tier = t->tier;
    l->priority = t->priority;
    if (!l->project)
        return;
    unsigned d = t->dim;
    project_fullness(o, l, d);
    int64_t quota = l->project->quota[d];
    l->over_quota = quota == SCHED_UNLIMITED || l->project->used[d] + t->request->amount > quota;
}

bool sched_order_project_before(const struct order_project *a, const struct order_project *b) {
    if (!project_len(a) || !project_len(b))
        return project_len(a) < project_len(b);  // an empty one comes to the top, to be removed
    if (a->tier != b->tier)
        return a->tier > b->tier;
    if (a->over_share != b->over_share)
        return b->over_share;
    if (a->over_quota != b->over_quota)
        return b->over_quota;
    if (a->priority != b->priority)
        return a->priority > b->priority;
    __int128 x = (__int128)a->used * b->share, y = (__int128)b->used * a->share;
    if (x != y)
        return x < y;  // used / share, compared without dividing
    if (a->share != b->share && (!a->share || !b->share))
        return b->share == 0;
    int64_t i = job_of(project_top(a))->submit_ms, j = job_of(project_top(b))->submit_ms;
    if (i != j)
        return i < j;
    return a->project && b->project && a->project->id < b->project->id;
}

// Returns whether it stayed where it was.
static bool project_sift(struct sched_order *o, uint32_t i) {
    uint32_t mine = o->heap.at[i], from = i;
    for (uint32_t k; (k = 2 * i + 1) < o->heap.len; i = k) {
        if (k + 1 < o->heap.len &&
            sched_order_project_before(&o->projects.at[o->heap.at[k + 1]], &o->projects.at[o->heap.at[k]]))
            k++;
        if (!sched_order_project_before(&o->projects.at[o->heap.at[k]], &o->projects.at[mine]))
            break;
        o->heap.at[i] = o->heap.at[k];
    }
    o->heap.at[i] = mine;
    return i == from;
}

void sched_order_rerank(struct sched_order *o) {
    for (uint32_t i = 0; i < o->heap.len; i++)
        sched_order_project_rank(o, &o->projects.at[o->heap.at[i]]);
    for (uint32_t i = o->heap.len / 2; i-- > 0;)
        project_sift(o, i);
}

void sched_order_rebuild(struct sched_order *o) {
    for (uint32_t i = 0; i < o->heap.len; i++) {
        struct order_project *l = &o->projects.at[o->heap.at[i]];
        project_heap(l);
        for (uint32_t k = 0; k < l->heap.len; k++)
            l->heap.at[k].key = sched_queue_entry_key(o, &l->heap.at[k]);
        for (uint32_t k = l->heap.len / 2; k-- > 0;)
            entry_sift(l, k);
    }
    sched_order_rerank(o);
}

// After a change of policy all entries are computed again.
static void queue_rules_update(struct world *w, const struct policy *p) {
    if (w->queue_rules.order == (int)p->order && w->queue_rules.short_milli == p->short_milli &&
        w->queue_rules.short_max_ms == p->short_max_ms &&
        w->queue_rules.size_ms == p->size_ms && w->queue_rules.qos_ms == p->qos_ms &&
        w->queue_rules.nice_ms == p->nice_ms)
        return;
    w->queue_rules.order = (int)p->order;
    w->queue_rules.short_milli = p->short_milli;
    w->queue_rules.short_max_ms = p->short_max_ms;
    w->queue_rules.size_ms = p->size_ms;
    w->queue_rules.qos_ms = p->qos_ms;
    w->queue_rules.nice_ms = p->nice_ms;
    w->queue_rules.version++;
}

// Which projects may preempt is decided when the pass begins: one that loses jobs in a pass preempts nobody
// in the same pass.
static uint32_t dims_under_share(const struct world *w, const struct world_project *p) {
    uint32_t dims = 0;
    for (unsigned d = 0; d < w->cluster.dims && d < DIMS_MAX; d++)
        dims |= (uint32_t)(p->used[d] < p->own_share[d]) << d;
    return dims;
}

// Jobs whose queue time without usage is not before this have not waited for max_wait_ms: most need no look at the job.
static int64_t recent_base(const struct policy *p, int64_t now_ms) {
    if (!p->short_max_ms || p->size_ms || p->qos_ms || p->nice_ms)
        return INT64_MAX;
    return now_ms - p->max_wait_ms + sched_queue_time_scaled(p->short_max_ms, p->short_milli, 1000);
}

void sched_order_make(struct sched_order *o, struct sched_pass *p) {
    struct world *w = p->w;
    *o = (struct sched_order){.p = p, .cost_capacity = sched_cost_capacity(w), .patience = PATIENCE_LEAST};
    queue_rules_update(w, p->policy);
    o->recent_base = recent_base(p->policy, p->now_ms);
    bool fair = p->policy->order == POLICY_ORDER_FAIR;
    struct order_project all = {.heaped = true};
    vec_reserve(&p->may_preempt, w->rules.projects.len);
    memset(p->may_preempt.at, 0, w->rules.projects.len * sizeof *p->may_preempt.at);
    p->may_preempt.len = w->rules.projects.len;
    for (uint32_t i = 0; i < w->rules.projects.len; i++) {
        struct world_project *project = w->rules.projects.at[i];
        if (!project || !project->queue.count)
            continue;
        p->may_preempt.at[i] = dims_under_share(w, project);
        struct order_project l = {.project = project};
        sched_project_queue_sort(o, project, &l);
        l.count = project->queue.count;
        // Fair: projects take turns, so each keeps its own queue in the heap of projects. Otherwise shares do not
        // count, and all queues become one: the heap has a single entry.
        if (fair) {
            vec_push(&o->heap, o->projects.len);
            vec_push(&o->projects, l);
            continue;
        }
        project_heap(&l);
        vec_reserve(&all.heap, all.heap.len + l.heap.len);
        memcpy(all.heap.at + all.heap.len, l.heap.at, l.heap.len * sizeof *l.heap.at);
        all.heap.len += l.heap.len;
        vec_done(&l.heap);
        all.classes |= l.classes;
        all.partitions |= l.partitions;
        all.may_preempt |= l.may_preempt;
    }
    if (all.heap.len) {
        for (uint32_t k = all.heap.len / 2; k-- > 0;)
            entry_sift(&all, k);
        vec_push(&o->heap, o->projects.len);
        vec_push(&o->projects, all);
    }
    sched_order_rerank(o);
}

struct queue_entry *sched_order_next(struct sched_order *o) {
    while (o->heap.len) {
        struct order_project *l = &o->projects.at[o->heap.at[0]];
        sched_order_project_rank(o, l);
        if (!project_len(l)) {
            vec_remove_swap(&o->heap, 0);
            if (o->heap.len)
                project_sift(o, 0);
        } else if (project_sift(o, 0)) {
            return project_top(l);
        }
    }
    return NULL;
}

static struct order_project *first(struct sched_order *o) {
    return &o->projects.at[o->heap.at[0]];
}

void sched_order_advance(struct sched_order *o) {
    struct order_project *l = first(o);
    project_heap(l);
    struct queue_entry *t = &l->heap.at[0];
    if (++t->at == t->request->queue.len) {
        sched_order_drop(o);
        return;
    }
    const struct world_job *before = job_queue_at(&t->request->queue, t->at - 1);
    t->base = sched_queue_time_add(t->base, job_of(t)->submit_ms - before->submit_ms);
    t->key = sched_queue_entry_key(o, t);
    entry_sift(l, 0);
}

void sched_order_drop(struct sched_order *o) {
    struct order_project *l = first(o);
    project_top(l)->fit->left--;
    if (!l->heaped) {
        l->next++;
        return;
    }
    vec_remove_swap(&l->heap, 0);
    if (l->heap.len)
        entry_sift(l, 0);
}

// --- jobs that need not be looked at ---

// Can a job of this class still be placed in this pass? What is free only shrinks.
static bool class_alive(struct sched_order *o, struct sched_fit *f) {
    struct world *w = o->p->w;
    if (!f->left || f->dead_pass == w->last_pass.number)
        return false;
    if (!sched_fit_enough(sched_fit_of(w, f->any))) {
        f->dead_pass = w->last_pass.number;
        return false;
    }
    return f->named || f->own_plan_pass == w->last_pass.number || f->failed_pass != w->last_pass.number ||
           f->least_ms < f->failed_limit_ms;
}

// Does it matter which job comes next in this partition, even if it cannot start now? It may get a planned
// start, or block those after it.
static bool partition_open(const struct sched_pass *p, uint32_t id) {
    const struct world_partition *part = world_partition(p->w, id);
    if (id && (!part || part->closed))
        return false;
    if (p->policy->backfill == POLICY_BACKFILL_NONE || (part && part->fifo))
        return !p->closed[id];
    return sched_promise_plan_possible(p, id);
}

static bool may_preempt(const struct sched_pass *p, const struct order_project *l) {
    if (l->may_preempt || !l->project)
        return true;
    return p->policy->reclaim && (p->may_preempt.at[l->project->id] & l->dims);
}

bool sched_order_skippable(struct sched_order *o, const struct queue_entry *t) {
    const struct sched_pass *p = o->p;
    if (p->all || t->may_preempt || class_alive(o, t->fit) || partition_open(p, t->partition))
        return false;
    const struct order_project *l = first(o);
    return !p->policy->reclaim || (l->project && !(p->may_preempt.at[l->project->id] >> t->dim & 1));
}

// Removes projects none of whose jobs can start, preempt, or matter to their partition. How often this is
// tried adapts: twice as long a wait after a try that removed nothing.
static void leave_out(struct sched_order *o) {
    const struct sched_pass *p = o->p;
    uint64_t alive = 0, open = 0;
    for (uint32_t i = 0; i < p->classes.len; i++)
        if (~alive & p->classes.at[i]->bit && class_alive(o, p->classes.at[i]))
            alive |= p->classes.at[i]->bit;
    for (uint32_t i = 0; i < o->partitions.len; i++)
        if (partition_open(p, o->partitions.at[i]))
            open |= 1ULL << (o->partitions.at[i] % 64);
    // If no job can start and no project is over its share, none will be in this pass: no victims by share.
    bool quiet = !alive && !sched_reclaim_possible(o->p);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < o->heap.len; i++) {
        const struct order_project *l = &o->projects.at[o->heap.at[i]];
        if ((l->classes & alive) || (l->partitions & open) || (may_preempt(p, l) && (l->may_preempt || !quiet)))
            o->heap.at[kept++] = o->heap.at[i];
    }
    o->patience = kept == o->heap.len ? o->patience * 2 : PATIENCE_LEAST;
    if (kept == o->heap.len)
        return;
    o->heap.len = kept;
    sched_order_rerank(o);
}

void sched_order_trim(struct sched_order *o, bool in_vain) {
    o->idle = in_vain ? o->idle + 1 : 0;
    if (o->p->all || o->idle < o->patience || (o->p->promises.len && !o->p->promises_served))
        return;  // whoever is left out could have been the first whose turn comes after the promises
    o->idle = 0;
    leave_out(o);
}

void sched_order_done(struct sched_order *o) {
    for (uint32_t i = 0; i < o->projects.len; i++)
        vec_done(&o->projects.at[i].heap);
    vec_done(&o->projects);
    vec_done(&o->heap);
    vec_done(&o->moved);
    vec_done(&o->partitions);
    vec_done(&o->p->classes);
    vec_done(&o->p->may_preempt);
}
