// Growth: what is free in both ledgers after a pass is given to waiting optional workers, all that fit. First those
// that need GPUs. Of the projects the one that uses the smallest part of its share comes first, optional use counted;
// in a project the groups in the order of the queue.
//
// Rebalancing: a project whose next worker finds no room gets that of another's worker if that makes the two more
// equal. Write use(P) for the part of its share that project P uses, optional workers included; shares are here what
// projects are due if each wanted everything. Workers of A are given back for a worker of B only if use(A) without them
// is still at least use(B) with it.
//
// Theorem. While no job comes, ends or changes, growth and rebalancing end.
// Proof. Take the list of use(P) of all projects, sorted from the smallest. (1) A start raises one number and lowers
// none, so the list grows in lexical order. (2) In a rebalancing A falls from a to a' and B rises from b to b', with
// b < b' <= a' < a: the smaller of the two, b, is replaced by larger ones, so the list grows too. If on the freed room
// another project D starts first, it comes before B in the order of growth, so use(D) <= b: the same holds with D for
// B. (3) There are finitely many sets of running workers, and none comes twice. Workers without GPUs start after those
// with them and are exchanged only among themselves: they change nothing of the list by GPUs, and the same argument
// holds for their list by CPUs.
// Example. A and B have equal shares and 8 GPUs between them; A runs 8 one-GPU workers, then B comes with 8. A gives
// back one (7 >= 1), then more, until A has 4 and B 4: from 4 and 4 the next would be 3 and 5. From 5 and 3 it is 4 and
// 4. So equal projects end up equal within one worker.
#include <stdlib.h>

#include "growth.h"
#include "growth_place.h"
#include "queue_position.h"

enum { MOVES_MAX = 64 };  // of rebalancing in one pass

// Waiting workers of one group with one request.
struct growth_entry {
    const struct optional_queue *queue;
    struct world_project *project;
    unsigned dim;
    int32_t tier, priority;
    int64_t key;      // queue time
    uint32_t next;    // of queue->jobs
    uint32_t option;  // of the partitions it names
    bool listed;      // `room` is of this option
    struct growth_room room;
    bool grows, moves;  // more may start in free room; in room given back by others
};

struct growth {
    struct sched_pass *p;
    VEC(struct growth_entry) entries;
    struct map promised;  // waiting workers for which others are ending
    VEC(struct world_job *) givers;
    bool givers_listed;
};

static void project_sums(struct world *w, struct world_project *p) {
    for (unsigned d = 0; d < w->cluster.dims; d++) {
        p->optional_tree[d] = p->optional_used[d];
        p->leaving_tree[d] = 0;
    }
    for (unsigned d = 0; d < DIM_MODEL; d++) {
        p->growth_change[d] = 0;
        p->growth_share[d] = p->present ? p->own_share[d] : 0;
    }
    unsigned d = p->growth_share[DIM_GPU] ? DIM_GPU : DIM_CPU;
    int64_t share = p->growth_share[d], used = p->used[d] + p->optional_used[d];
    p->fullness_milli = share ? (int64_t)((__int128)used * 1000 / share) : used ? INT64_MAX : 0;
}

// What a project wants in the shares for growth: without end if it has or wants anything, else nothing. So the share
// says what it is due in proportion to the others, however little of it it asks for.
static void want_all(const struct world *w, struct world_project *p) {
    for (unsigned d = 0; d < w->cluster.dims; d++) {
        bool any = p->used[d] + p->queued[d] + p->optional_used[d] > 0;
        p->queued[d] = any ? w->cluster.capacity[d] : 0;
        p->queued_nonpreemptible[d] = 0;
    }
}

void sched_growth_begin(struct world *w) {
    uint32_t n = w->rules.projects.len;
    int64_t(*saved)[2][DIMS_MAX] = xcalloc(n + 1, sizeof *saved);
    for (uint32_t i = 0; i < n; i++) {
        const struct world_project *p = w->rules.projects.at[i];
        if (!p)
            continue;
        memcpy(saved[i][0], p->queued, sizeof p->queued);
        memcpy(saved[i][1], p->queued_nonpreemptible, sizeof p->queued_nonpreemptible);
    }
    for (uint32_t i = 0; i < w->optional.queues.len; i++) {
        const struct optional_queue *q = w->optional.queues.at[i];
        struct world_project *p = w->rules.projects.at[q->request->asked.project];
        for (unsigned d = 0; d < w->cluster.dims; d++)
            p->queued[d] += sched_request_amount(w, q->request, d);
    }
    for (uint32_t i = 0; i < n; i++)
        if (w->rules.projects.at[i])
            want_all(w, w->rules.projects.at[i]);
    // The shares are computed with these wishes; then the real ones are put back, since the order of jobs must not
    // change because optional workers could grow.
    sched_share_update_exact(w);
    for (uint32_t i = 0; i < n; i++) {
        struct world_project *p = w->rules.projects.at[i];
        if (!p)
            continue;
        memcpy(p->queued, saved[i][0], sizeof p->queued);
        memcpy(p->queued_nonpreemptible, saved[i][1], sizeof p->queued_nonpreemptible);
        project_sums(w, p);
    }
    for (uint32_t i = w->rules.tree.len; i-- > 0;) {
        struct world_project *up = sched_project_parent(w, w->rules.tree.at[i]);
        for (unsigned d = 0; up && d < w->cluster.dims; d++)
            up->optional_tree[d] += w->rules.tree.at[i]->optional_tree[d];
    }
    free(saved);
}

static int64_t in_use(const struct world_project *p, unsigned d) {
    return p->used[d] + p->optional_used[d] + p->growth_change[d];
}

// Is x of share s a smaller part than y of share t? Any use of no share is the largest.
static bool smaller_part(int64_t x, int64_t s, int64_t y, int64_t t) {
    if (!s || !t)
        return s && !t;
    return (__int128)x * t < (__int128)y * s;
}

static unsigned growth_dim(const struct world_request *r) {
    return r->gpu_milli ? DIM_GPU : DIM_CPU;
}

// --- the order ---

static int by_queue(const void *pa, const void *pb) {
    const struct growth_entry *a = pa, *b = pb;
    if (a->project != b->project)
        return a->project->id < b->project->id ? -1 : 1;
    if (a->tier != b->tier)
        return a->tier > b->tier ? -1 : 1;
    if (a->priority != b->priority)
        return a->priority > b->priority ? -1 : 1;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    if (a->queue->group != b->queue->group)
        return a->queue->group < b->queue->group ? -1 : 1;
    uint64_t x = a->queue->jobs.at[0]->id, y = b->queue->jobs.at[0]->id;
    return (x > y) - (x < y);
}

static void entries_make(struct growth *g) {
    struct world *w = g->p->w;
    for (uint32_t i = 0; i < w->optional.queues.len; i++) {
        const struct optional_queue *q = w->optional.queues.at[i];
        struct world_request *r = q->request->options.len ? q->request->options.at[0] : q->request;
        struct queue_time_parts parts;
        sched_request_refresh(w, r);
        int64_t load = sched_user_load(w, r->user, g->p->now_ms), submit_ms = q->jobs.at[0]->submit_ms;
        sched_queue_time_parts(w, g->p->policy, r, submit_ms, load, sched_cost_capacity(w), g->p->now_ms,
                               &parts);
        vec_push(&g->entries, (struct growth_entry){.queue = q,
                                                    .project = w->rules.projects.at[r->asked.project],
                                                    .dim = growth_dim(r),
                                                    .tier = r->tier,
                                                    .priority = sched_queue_priority(w, g->p->policy, r),
                                                    .key = sched_queue_time(submit_ms, &parts),
                                                    .grows = true});
    }
    if (g->entries.len)
        qsort(g->entries.at, g->entries.len, sizeof *g->entries.at, by_queue);
}

static bool alive(const struct growth_entry *e, unsigned dim, bool moves) {
    return e->dim == dim && (moves ? e->moves : e->grows) && e->next < e->queue->jobs.len;
}

// The entry that comes next; NULL: none.
static struct growth_entry *next_entry(struct growth *g, unsigned dim, bool moves) {
    struct growth_entry *best = NULL;
    for (uint32_t i = 0; i < g->entries.len; i++) {
        struct growth_entry *e = &g->entries.at[i];
        if (!alive(e, dim, moves) || (best && best->project == e->project))
            continue;
        if (!best || smaller_part(in_use(e->project, dim), e->project->growth_share[dim],
                                  in_use(best->project, dim), best->project->growth_share[dim]))
            best = e;
    }
    return best;
}

static struct world_request *option_of(const struct growth_entry *e) {
    struct world_request *r = e->queue->request;
    return r->options.len ? r->options.at[e->option] : r;
}

static uint32_t options_of(const struct growth_entry *e) {
    return e->queue->request->options.len ? e->queue->request->options.len : 1;
}

// --- growing ---

static void promise(struct growth *g, struct world_job *j, int sign) {
    const struct world_request *r = j->request->options.len ? j->request->options.at[0] : j->request;
    struct world_project *p = g->p->w->rules.projects.at[r->asked.project];
    for (unsigned d = 0; d < DIM_MODEL; d++)
        p->growth_change[d] += sign * sched_request_amount(g->p->w, r, d);
    if (sign > 0)
        map_put(&g->promised, j->id, j);
    else
        map_remove(&g->promised, j->id);
}

static void count(struct sched_pass *p, struct world_job *j, struct world_request *r,
                  const struct sched_alloc *a, int sign) {
    int64_t held[DIMS_MAX];
    sched_alloc_amounts(p->w, a, held);
    for (struct world_project *t = world_project_slot(p->w, r->asked.project); t;
         t = sched_project_parent(p->w, t))
        for (unsigned d = 0; d < p->w->cluster.dims; d++)
            t->optional_tree[d] += sign * held[d];
    sched_optional_count(p->w, r, a, sign);
    sched_optional_hold(p->w, j, a, sign);
}

static void start(struct growth *g, struct growth_entry *e, struct sched_alloc *a) {
    struct sched_pass *p = g->p;
    struct world_job *j = e->queue->jobs.at[e->next++];
    struct world_request *r = option_of(e);
    if (map_get(&g->promised, j->id))
        promise(g, j, -1);
    j->alloc = a;
    count(p, j, r, a, 1);
    vec_push(&p->grown, (struct sched_start){
                            .job = j->id, .alloc = a, .partition = r->asked.partition, .optional = true});
}

// Starts the entry's next worker; false: it has no room in any of its partitions, or may not have more.
static bool grow_one(struct growth *g, struct growth_entry *e) {
    struct sched_pass *p = g->p;
    for (; e->option < options_of(e); e->option++) {
        struct world_request *r = option_of(e);
        sched_request_refresh(p->w, r);
        if (sched_optional_eligibility(p->w, r, p->now_ms))
            continue;
        e->moves = true;
        if (!e->listed)
            sched_growth_room_init(p, r, &e->room);
        e->listed = true;
        struct sched_alloc *a = sched_growth_place(p, &e->room);
        if (a) {
            start(g, e, a);
            return true;
        }
        sched_growth_room_done(&e->room);
        e->listed = false;
    }
    return false;
}

// --- rebalancing ---

static void list_givers(struct growth *g) {
    const struct world *w = g->p->w;
    if (g->givers_listed)
        return;
    g->givers_listed = true;
    for (uint32_t i = 0; i < w->optional.running.len; i++)
        if (!sched_optional_leaving(w->optional.running.at[i]))
            vec_push(&g->givers, w->optional.running.at[i]);
    sched_give_back_sort(w, g->givers.at, g->givers.len);
}

struct exchange {
    struct world_request *request;  // of the worker that is to start …
    const struct sched_fit *fit;
    struct world_project *to;  // … in this project
    unsigned dim;
    int64_t amount;
};

static int64_t held_in(const struct world_job *j, unsigned dim) {
    return dim == DIM_GPU ? j->held_gpu : j->held_cpus;
}

// Does the giver use as much of its share without `amount` as the taker with the new worker?
static bool more_equal(const struct exchange *x, const struct world_project *from, int64_t amount) {
    if (!x->to->growth_share[x->dim])
        return false;
    return !smaller_part(in_use(from, x->dim) - amount, from->growth_share[x->dim],
                         in_use(x->to, x->dim) + x->amount, x->to->growth_share[x->dim]);
}

// Has it run as long as a job must before it can be preempted? If not, another pass is due when it has.
static bool ripe(struct sched_pass *p, const struct world_job *j) {
    int64_t least = j->request->asked.min_runtime_ms;
    least = p->policy->min_runtime_ms > least ? p->policy->min_runtime_ms : least;
    if (p->now_ms - j->start_ms >= least)
        return true;
    p->out->next_ms = j->start_ms + least < p->out->next_ms ? j->start_ms + least : p->out->next_ms;
    return false;
}

static bool may_give(struct growth *g, const struct exchange *x, const struct world_job *j) {
    const struct world_project *from = g->p->w->rules.projects.at[j->request->asked.project];
    return from != x->to && !sched_optional_leaving(j) && growth_dim(j->request) == x->dim &&
           more_equal(x, from, held_in(j, x->dim)) && ripe(g->p, j);
}

static bool node_open(struct growth *g, const struct exchange *x, uint32_t id) {
    const struct sched_demand *d = &x->fit->demand;
    if (id >= x->fit->nodes_len || x->fit->cap[id] < d->tasks || !sched_growth_may_use(g->p, x->request, id))
        return false;
    const struct node_optional *o = g->p->w->cluster.nodes.at[id]->optional;
    for (uint32_t i = 0; i < o->jobs.len; i++)
        if (sched_optional_leaving(o->jobs.at[i]))
            return false;  // what it leaves is somebody's already
    return true;
}

// Workers of one project on the node, the first in the order of giving back, without which the new one fits there.
static uint32_t exchange_on(struct growth *g, const struct exchange *x, const struct world_project *from,
                            uint32_t node, struct world_job **set, uint32_t max) {
    const struct world_node *n = g->p->w->cluster.nodes.at[node];
    struct node_copy c;
    uint32_t count = 0;
    int64_t amount = 0;
    sched_growth_copy(&c, n);
    for (uint32_t i = 0; i < g->givers.len && count < max; i++) {
        struct world_job *j = g->givers.at[i];
        if (j->request->asked.project != from->id || !may_give(g, x, j))
            continue;
        for (uint32_t k = 0; k < j->alloc->node_count; k++) {
            if (j->alloc->nodes[k].node != node)
                continue;
            amount += held_in(j, x->dim);
            if (!more_equal(x, from, amount))
                return 0;
            set[count++] = j;
            c.node.exclusive -= j->request->demand.exclusive;
            sched_node_withhold(&c.node, &j->alloc->nodes[k], -1);
            if (sched_fit_tasks(&c.node, &x->fit->demand) >= x->fit->demand.tasks)
                return count;
        }
    }
    return 0;
}

enum { EXCHANGED_MAX = 16 };

static bool exchange(struct growth *g, struct growth_entry *e, const struct exchange *x) {
    struct sched_pass *p = g->p;
    for (uint32_t i = 0; i < g->givers.len; i++) {
        const struct world_job *j = g->givers.at[i];
        if (!may_give(g, x, j))
            continue;
        const struct world_project *from = p->w->rules.projects.at[j->request->asked.project];
        for (uint32_t k = 0; k < j->alloc->node_count; k++) {
            struct world_job *set[EXCHANGED_MAX];
            uint32_t node = j->alloc->nodes[k].node;
            uint32_t n = node_open(g, x, node) ? exchange_on(g, x, from, node, set, EXCHANGED_MAX) : 0;
            struct world_job *to = e->queue->jobs.at[e->next];
            for (uint32_t v = 0; v < n; v++)
                sched_optional_tell(p, set[v], to->id);
            if (n) {
                promise(g, to, 1);
                return true;
            }
        }
    }
    return false;
}

// Is there a project that could give anything? Most of the time there is none, and no worker need be looked at.
static bool any_may_give(const struct growth *g, const struct exchange *x) {
    const struct world *w = g->p->w;
    for (uint32_t i = 0; i < w->rules.projects.len; i++) {
        const struct world_project *p = w->rules.projects.at[i];
        if (p && p != x->to && p->optional_running && p->optional_used[x->dim] && more_equal(x, p, 1))
            return true;
    }
    return false;
}

// Others are told to end for the entry's next worker; false: that would make nobody more equal.
static bool move_one(struct growth *g, struct growth_entry *e) {
    struct world *w = g->p->w;
    while (e->next < e->queue->jobs.len && map_get(&g->promised, e->queue->jobs.at[e->next]->id))
        e->next++;
    if (e->next == e->queue->jobs.len)
        return false;
    for (e->option = 0; e->option < options_of(e); e->option++) {
        struct world_request *r = option_of(e);
        const struct sched_fit *f = sched_fit_of(w, r);
        struct exchange x = {r, f, e->project, e->dim, sched_request_amount(w, r, e->dim)};
        if (!f->demand.even || f->demand.nodes_min != 1 || sched_optional_eligibility(w, r, g->p->now_ms))
            continue;
        if (!any_may_give(g, &x))
            continue;
        list_givers(g);
        if (exchange(g, e, &x)) {
            e->next++;
            return true;
        }
    }
    return false;
}

static void rebalance(struct growth *g, unsigned dim) {
    struct growth_entry *e;
    for (uint32_t moves = 0; (e = next_entry(g, dim, true));) {
        if (!move_one(g, e))
            e->moves = false;
        else if (++moves == MOVES_MAX)
            return;  // another pass follows when these have ended
    }
}

// --- the pass ---

// A node on which a worker is ending for a waiting one is left to that one.
static void keep_promises(struct growth *g) {
    struct sched_pass *p = g->p;
    for (uint32_t i = 0; p->w->optional.ending && i < p->w->optional.running.len; i++) {
        const struct world_job *v = p->w->optional.running.at[i];
        struct world_job *to = v->state == SCHED_JOB_ENDING ? world_find(p->w, v->ending_for) : NULL;
        if (!to || !to->optional || !to->queued)
            continue;
        if (!map_get(&g->promised, to->id))
            promise(g, to, 1);
        if (!p->soon.len) {
            vec_reserve(&p->soon, p->w->cluster.nodes.len);
            memset(p->soon.at, 0, p->w->cluster.nodes.len);
            p->soon.len = p->w->cluster.nodes.len;
        }
        for (uint32_t k = 0; k < v->alloc->node_count; k++)
            p->soon.at[v->alloc->nodes[k].node] = 1;
    }
}

void sched_grow(struct sched_pass *p) {
    if (!p->w->optional.waiting)
        return;
    struct growth g = {.p = p};
    keep_promises(&g);
    entries_make(&g);
    for (unsigned dim = DIM_GPU; dim <= DIM_CPU; dim++) {
        struct growth_entry *e;
        while ((e = next_entry(&g, dim, false)))
            if (!grow_one(&g, e))
                e->grows = false;
        rebalance(&g, dim);
    }
    for (uint32_t i = 0; i < g.entries.len; i++)
        if (g.entries.at[i].listed)
            sched_growth_room_done(&g.entries.at[i].room);
    vec_done(&g.entries);
    vec_done(&g.givers);
    map_done(&g.promised);
}

void sched_growth_undo(struct sched_pass *p) {
    for (uint32_t i = p->grown.len; i-- > 0;) {
        const struct sched_start *s = &p->grown.at[i];
        struct world_job *j = world_find(p->w, s->job);
        count(p, j, sched_job_option_in(j, s->partition), s->alloc, -1);
        j->alloc = NULL;
    }
    for (uint32_t i = 0; i < p->given_back.len; i++)
        world_find(p->w, p->given_back.at[i].victim)->leaves = false;
}

void sched_growth_report(struct sched_pass *p) {
    for (uint32_t i = 0; i < p->given_back.len; i++)
        vec_push(&p->out->preempts, p->given_back.at[i]);
    for (uint32_t i = 0; i < p->grown.len; i++)
        vec_push(&p->out->starts, p->grown.at[i]);
    vec_done(&p->given_back);
    vec_done(&p->grown);
    vec_done(&p->soon);
}
