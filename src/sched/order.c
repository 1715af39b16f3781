// Owns the order: a heap of projects, each with its requests in order. Inside a pass use only grows,
// so keys only get worse: a stale key is noticed when its owner comes to the top and is sifted down
// again. A project's turns are read from where they are kept; only when one of its jobs got a
// decision are they copied into a heap of their own.
#include "order.h"

#include <assert.h>
#include <string.h>

enum { PATIENCE_LEAST = 2 };

static struct job *job_of(const struct turn *t) {
    return t->request->queue.at[t->at];
}

// What its user's use adds to the turn, made once per user and load.
static int64_t use_of(const struct order *o, struct user *u) {
    const struct world *w = o->p->w;
    int64_t load = user_load(w, u, o->p->now_ms);
    if (u->use_pass != w->pass || u->use_of != load) {
        u->use_pass = w->pass;
        u->use_of = load;
        u->use_ms = turn_scaled(load, o->p->policy->use_ms, o->cost_capacity);
    }
    return u->use_ms;
}

int64_t turn_key(const struct order *o, const struct turn *t) {
    if (o->shortest)
        return t->limit_ms == INT64_MAX ? NO_LIMIT_COUNTS_AS_MS : t->limit_ms;
    if (t->use_free)
        return t->base;
    int64_t longest = o->p->policy->max_wait_ms, submit_ms;
    if (longest && o->p->now_ms - (submit_ms = job_of(t)->submit_ms) > longest)
        return turn_overdue(submit_ms);
    return turn_add(t->base, use_of(o, t->user));
}

bool turn_before(const struct turn *a, const struct turn *b) {
    if (a->tier != b->tier)
        return a->tier > b->tier;
    if (a->priority != b->priority)
        return a->priority > b->priority;
    if (a->key != b->key)
        return a->key < b->key;
    const struct job *i = job_of(a), *j = job_of(b);
    if (i == j)
        return a->nth != b->nth ? a->nth < b->nth : a->partition < b->partition;
    return i->submit_ms != j->submit_ms ? i->submit_ms < j->submit_ms : i->id < j->id;
}

// --- lines ---

static uint32_t line_len(const struct line *l) {
    return l->heaped ? l->heap.len : l->count - l->next;
}

static struct turn *line_top(const struct line *l) {
    return l->heaped ? &l->heap.at[0] : &l->project->turns.slots.at[l->project->turns.sorted.at[l->next]];
}

static void turn_sift(struct line *l, uint32_t i) {
    struct turn t = l->heap.at[i];
    for (uint32_t k; (k = 2 * i + 1) < l->heap.len; i = k) {
        if (k + 1 < l->heap.len && turn_before(&l->heap.at[k + 1], &l->heap.at[k]))
            k++;
        if (!turn_before(&l->heap.at[k], &t))
            break;
        l->heap.at[i] = l->heap.at[k];
    }
    l->heap.at[i] = t;
}

static void line_heap(struct line *l) {
    if (l->heaped)
        return;
    const struct turns *t = &l->project->turns;
    vec_reserve(&l->heap, line_len(l) + 1);
    for (uint32_t i = l->next; i < l->count; i++)
        vec_push(&l->heap, t->slots.at[t->sorted.at[i]]);  // sorted: a heap already
    l->heaped = true;
}

// Users' use may have grown since the keys were made.
static void line_settle(const struct order *o, struct line *l) {
    while (l->heaped && l->heap.len) {
        struct turn *t = &l->heap.at[0];
        int64_t key = turn_key(o, t);
        if (key == t->key)
            return;
        t->key = key;
        turn_sift(l, 0);
    }
}

// How full the project is in the dimension of its first job: the fullest level of the tree counts.
static void line_fullness(const struct order *o, struct line *l, unsigned d) {
    if (l->moves == o->p->moves + 1 && l->dim == d)
        return;
    l->moves = o->p->moves + 1;
    l->dim = d;
    const struct project *own = l->project;
    l->used = own->used[d];
    l->share = own->own_share[d];
    l->over_share = l->used >= l->share;
    for (const struct project *up = project_parent(o->p->w, own); up; up = project_parent(o->p->w, up)) {
        l->over_share |= up->tree_used[d] >= up->share[d];
        if ((__int128)up->tree_used[d] * l->share > (__int128)l->used * up->share[d]) {
            l->used = up->tree_used[d];
            l->share = up->share[d];
        }
    }
}

void line_place(const struct order *o, struct line *l) {
    line_settle(o, l);
    if (!line_len(l))
        return;
    const struct turn *t = line_top(l);
    l->tier = t->tier;
    l->priority = t->priority;
    if (!l->project)
        return;
    unsigned d = t->dim;
    line_fullness(o, l, d);
    int64_t quota = l->project->quota[d];
    l->over_quota = quota == SCHED_UNLIMITED || l->project->used[d] + t->request->amount > quota;
}

bool line_before(const struct line *a, const struct line *b) {
    if (!line_len(a) || !line_len(b))
        return line_len(a) < line_len(b);  // done with: to the top, and out
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
        return x < y;
    if (a->share != b->share && (!a->share || !b->share))
        return b->share == 0;
    int64_t i = job_of(line_top(a))->submit_ms, j = job_of(line_top(b))->submit_ms;
    if (i != j)
        return i < j;
    return a->project && b->project && a->project->id < b->project->id;
}

// Returns whether it stayed where it was.
static bool line_sift(struct order *o, uint32_t i) {
    uint32_t mine = o->heap.at[i], from = i;
    for (uint32_t k; (k = 2 * i + 1) < o->heap.len; i = k) {
        if (k + 1 < o->heap.len && line_before(&o->lines.at[o->heap.at[k + 1]], &o->lines.at[o->heap.at[k]]))
            k++;
        if (!line_before(&o->lines.at[o->heap.at[k]], &o->lines.at[mine]))
            break;
        o->heap.at[i] = o->heap.at[k];
    }
    o->heap.at[i] = mine;
    return i == from;
}

void order_projects(struct order *o) {
    for (uint32_t i = 0; i < o->heap.len; i++)
        line_place(o, &o->lines.at[o->heap.at[i]]);
    for (uint32_t i = o->heap.len / 2; i-- > 0;)
        line_sift(o, i);
}

void order_rebuild(struct order *o) {
    for (uint32_t i = 0; i < o->heap.len; i++) {
        struct line *l = &o->lines.at[o->heap.at[i]];
        line_heap(l);
        for (uint32_t k = 0; k < l->heap.len; k++)
            l->heap.at[k].key = turn_key(o, &l->heap.at[k]);
        for (uint32_t k = l->heap.len / 2; k-- > 0;)
            turn_sift(l, k);
    }
    order_projects(o);
}

// Turns that were made with other rules are all made again.
static void rules_known(struct world *w, const struct policy *p) {
    if (w->turn_rules.order == (int)p->order && w->turn_rules.short_milli == p->short_milli &&
        w->turn_rules.size_ms == p->size_ms && w->turn_rules.qos_ms == p->qos_ms && w->turn_rules.nice_ms == p->nice_ms)
        return;
    w->turn_rules.order = (int)p->order;
    w->turn_rules.short_milli = p->short_milli;
    w->turn_rules.size_ms = p->size_ms;
    w->turn_rules.qos_ms = p->qos_ms;
    w->turn_rules.nice_ms = p->nice_ms;
    w->turn_rules.version++;
}

// Who may take from others is settled when the pass begins: a project that gave something in it takes
// nothing in the same pass.
static uint32_t takes_in(const struct world *w, const struct project *p) {
    uint32_t dims = 0;
    for (unsigned d = 0; d < w->dims && d < DIMS_MAX; d++)
        dims |= (uint32_t)(p->used[d] < p->own_share[d]) << d;
    return dims;
}

void order_make(struct order *o, struct pass *p) {
    struct world *w = p->w;
    *o = (struct order){.p = p, .cost_capacity = cost_capacity(w), .patience = PATIENCE_LEAST};
    rules_known(w, p->policy);
    bool fair = p->policy->order == POLICY_ORDER_FAIR;
    struct line all = {.heaped = true};
    for (uint32_t i = 0; i < w->projects.len; i++) {
        struct project *project = w->projects.at[i];
        if (!project || !project->turns.count)
            continue;
        project->takes = takes_in(w, project);
        struct line l = {.project = project};
        turns_sort(o, project, &l);
        l.count = project->turns.count;
        if (fair) {
            vec_push(&o->heap, o->lines.len);
            vec_push(&o->lines, l);
            continue;
        }
        line_heap(&l);
        vec_reserve(&all.heap, all.heap.len + l.heap.len);
        memcpy(all.heap.at + all.heap.len, l.heap.at, l.heap.len * sizeof *l.heap.at);
        all.heap.len += l.heap.len;
        vec_done(&l.heap);
        all.classes |= l.classes;
        all.partitions |= l.partitions;
        all.special |= l.special;
    }
    if (all.heap.len) {
        for (uint32_t k = all.heap.len / 2; k-- > 0;)
            turn_sift(&all, k);
        vec_push(&o->heap, o->lines.len);
        vec_push(&o->lines, all);
    }
    order_projects(o);
}

struct turn *order_next(struct order *o) {
    while (o->heap.len) {
        struct line *l = &o->lines.at[o->heap.at[0]];
        line_place(o, l);
        if (!line_len(l)) {
            vec_remove_swap(&o->heap, 0);
            if (o->heap.len)
                line_sift(o, 0);
        } else if (line_sift(o, 0)) {
            return line_top(l);
        }
    }
    return NULL;
}

static struct line *first(struct order *o) {
    return &o->lines.at[o->heap.at[0]];
}

void order_started(struct order *o) {
    struct line *l = first(o);
    line_heap(l);
    struct turn *t = &l->heap.at[0];
    if (++t->at == t->request->queue.len) {
        order_drop(o);
        return;
    }
    t->base = turn_add(t->base, job_of(t)->submit_ms - t->request->queue.at[t->at - 1]->submit_ms);
    t->key = turn_key(o, t);
    turn_sift(l, 0);
}

void order_drop(struct order *o) {
    struct line *l = first(o);
    line_top(l)->fit->left--;
    if (!l->heaped) {
        l->next++;
        return;
    }
    vec_remove_swap(&l->heap, 0);
    if (l->heap.len)
        turn_sift(l, 0);
}

// --- who need not be looked at ---

// Can a job of this class be placed in this pass, as things stand? What is free only shrinks.
static bool class_alive(struct order *o, struct fit *f) {
    struct world *w = o->p->w;
    if (!f->left || f->dead_pass == w->pass)
        return false;
    if (!fit_enough(fit_of(w, f->any))) {
        f->dead_pass = w->pass;
        return false;
    }
    return f->named || f->own_pass == w->pass || f->failed_pass != w->pass || f->least_ms < f->failed_limit_ms;
}

// Does it matter who comes next in this partition, even if the job can have nothing now?
static bool partition_open(const struct pass *p, uint32_t id) {
    const struct partition *part = world_partition(p->w, id);
    if (id && (!part || part->closed))
        return false;
    if (p->policy->backfill == POLICY_BACKFILL_NONE || (part && part->fifo))
        return !p->closed[id];
    return p->plans[id] < p->policy->plan_depth;
}

static bool may_take(const struct pass *p, const struct line *l) {
    if (l->special || !l->project)
        return true;
    return p->policy->reclaim && (l->project->takes & l->dims);
}

bool order_inert(struct order *o, const struct turn *t) {
    const struct pass *p = o->p;
    if (p->all || t->special || class_alive(o, t->fit) || partition_open(p, t->partition))
        return false;
    const struct line *l = first(o);
    return !p->policy->reclaim || (l->project && !(l->project->takes >> t->dim & 1));
}

static void leave_out(struct order *o) {
    const struct pass *p = o->p;
    uint64_t alive = 0, open = 0;
    for (uint32_t i = 0; i < p->classes.len; i++)
        if (~alive & p->classes.at[i]->bit && class_alive(o, p->classes.at[i]))
            alive |= p->classes.at[i]->bit;
    for (uint32_t i = 0; i < o->partitions.len; i++)
        if (partition_open(p, o->partitions.at[i]))
            open |= 1ULL << (o->partitions.at[i] % 64);
    // With nothing to start, nobody comes to be above a share: then nobody has anything to give.
    bool quiet = !alive && !reclaim_hope(o->p);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < o->heap.len; i++) {
        const struct line *l = &o->lines.at[o->heap.at[i]];
        if ((l->classes & alive) || (l->partitions & open) || (may_take(p, l) && (l->special || !quiet)))
            o->heap.at[kept++] = o->heap.at[i];
    }
    o->patience = kept == o->heap.len ? o->patience * 2 : PATIENCE_LEAST;
    if (kept == o->heap.len)
        return;
    o->heap.len = kept;
    order_projects(o);
}

void order_trim(struct order *o, bool in_vain) {
    o->idle = in_vain ? o->idle + 1 : 0;
    if (o->p->all || o->idle < o->patience)
        return;
    o->idle = 0;
    leave_out(o);
}

void order_done(struct order *o) {
    for (uint32_t i = 0; i < o->lines.len; i++)
        vec_done(&o->lines.at[i].heap);
    vec_done(&o->lines);
    vec_done(&o->heap);
    vec_done(&o->moved);
    vec_done(&o->partitions);
    vec_done(&o->p->classes);
}
