// Owns planned starts: when a blocked job can start by the limits of what runs, on which nodes, and
// whether another job may use those nodes without delaying it. Also the windows of reservations,
// which are planned around in the same way.
#include <assert.h>
#include <string.h>

#include "base/text.h"
#include "pass.h"

static int64_t later(int64_t at_ms, int64_t by_ms) {
    return by_ms >= INT64_MAX - at_ms ? INT64_MAX : at_ms + by_ms;
}

static bool reserved(const struct reservation *r, uint32_t node) {
    if (!r->nodes.len)
        return true;
    uint32_t low = 0, high = r->nodes.len;
    while (low < high) {
        uint32_t mid = (low + high) / 2;
        if (r->nodes.at[mid] < node)
            low = mid + 1;
        else
            high = mid;
    }
    return low < r->nodes.len && r->nodes.at[low] == node;
}

bool window_allows(const struct world *w, const struct request *r, uint32_t node, int64_t at_ms, int64_t limit_ms) {
    int64_t end_ms = later(at_ms, limit_ms);
    bool inside = !r->asked.reservation;
    for (uint32_t i = 0; i < w->reservations.len; i++) {
        const struct reservation *v = w->reservations.at[i];
        if (!reserved(v, node))
            continue;
        if (!v->maintenance && streq(v->name, r->asked.reservation)) {
            if (at_ms < v->start_ms || end_ms > v->end_ms)
                return false;
            inside = true;
        } else if (at_ms < v->end_ms && end_ms > v->start_ms) {
            return false;
        }
    }
    return inside;
}

static void mark(struct pass *p, uint32_t node) {
    struct node *n = world_node(p->w, node);
    if (n && !n->special) {
        n->special = true;
        vec_push(&p->special, node);
    }
}

void plan_windows(struct pass *p) {
    for (uint32_t i = 0; i < p->w->reservations.len; i++) {
        const struct reservation *v = p->w->reservations.at[i];
        if (v->end_ms <= p->now_ms)
            continue;
        int64_t edge = v->start_ms > p->now_ms ? v->start_ms : v->end_ms;
        p->out->next_ms = edge < p->out->next_ms ? edge : p->out->next_ms;
        for (uint32_t k = 0; k < v->nodes.len; k++)
            mark(p, v->nodes.at[k]);
        for (uint32_t k = 0; !v->nodes.len && k < p->w->nodes.len; k++)
            mark(p, k);
    }
}

void scratch_copy(struct scratch *s, const struct node *n) {
    s->node = *n;
    memcpy(s->gpus, n->gpus, n->gpu_count * sizeof *n->gpus);
    s->node.gpus = s->gpus;
}

void scratch_give(struct scratch *s, const struct job *j) {
    for (uint32_t i = 0; i < j->alloc->node_count; i++)
        if (j->alloc->nodes[i].node == s->node.id)
            node_hold(&s->node, &j->alloc->nodes[i], j->request->demand.exclusive, -1);
}

static void scratch_take(struct scratch *s, const struct demand *d, uint32_t tasks) {
    struct alloc_node a;
    struct alloc_gpu gpus[2 * SCHED_GPUS_MAX];
    if (fit_gpu_slots(d, tasks) <= 2 * SCHED_GPUS_MAX) {
        fit_node(&s->node, d, tasks, -1, &a, gpus);
        node_hold(&s->node, &a, d->exclusive, 1);
    }
}

// A job past its limit is expected to end at any moment.
static int64_t expected_end(const struct pass *p, const struct job *j) {
    int64_t end_ms = job_end_ms(j);
    return end_ms > p->now_ms ? end_ms : p->now_ms + 1;
}

bool plan_allows(struct pass *p, const struct request *r, const struct node *n, uint32_t tasks) {
    if (!window_allows(p->w, r, n->id, p->now_ms, r->limit_ms))
        return false;
    int64_t end_ms = later(p->now_ms, r->limit_ms);
    for (uint32_t i = n->hold; i; i = p->parts.at[i - 1].next) {
        const struct part *part = &p->parts.at[i - 1];
        if (end_ms <= part->from_ms || part->job == p->placing)
            continue;
        struct scratch s;
        scratch_copy(&s, n);
        scratch_take(&s, &r->demand, tasks);
        for (uint32_t k = 0; k < n->jobs.len; k++)
            if (expected_end(p, n->jobs.at[k]) <= part->from_ms)
                scratch_give(&s, n->jobs.at[k]);
        if (fit_tasks(&s.node, &part->request->demand) < part->tasks)
            return false;
    }
    return true;
}

// The walk through the ends of running jobs.
struct walk {
    struct pass *p;
    struct request *r;
    const struct fit *f;
    struct scratch **copies;   // by node id
    uint16_t *cap;             // by node id
    VEC(uint32_t) order;       // nodes in the order in which they came to fit
    uint32_t nodes_fit;
    uint64_t tasks_fit;
    int64_t until_ms;          // later is too late
};

static void walk_look(struct walk *k, uint32_t id, uint32_t cap) {
    const struct node *n = k->p->w->nodes.at[id];
    if (n->hold)
        cap = 0;  // promised to another planned job
    cap = cap > UINT16_MAX ? UINT16_MAX : cap;
    if (!k->cap[id] && cap)
        vec_push(&k->order, id);
    k->nodes_fit += (cap > 0) - (k->cap[id] > 0);
    k->tasks_fit += cap;
    k->tasks_fit -= k->cap[id];
    k->cap[id] = (uint16_t)cap;
}

static void walk_end(struct walk *k, const struct job *j, int64_t at_ms) {
    for (uint32_t i = 0; i < j->alloc->node_count; i++) {
        uint32_t id = j->alloc->nodes[i].node;
        if (id >= k->f->nodes_len || !k->f->allowed[id])
            continue;
        if (!k->copies[id]) {
            k->copies[id] = xmalloc(sizeof **k->copies);
            scratch_copy(k->copies[id], k->p->w->nodes.at[id]);
        }
        scratch_give(k->copies[id], j);
        if (window_allows(k->p->w, k->r, id, at_ms, k->r->limit_ms))
            walk_look(k, id, fit_tasks(&k->copies[id]->node, &k->f->demand));
    }
}

// When a reservation ends its nodes count again.
static void walk_window(struct walk *k, const struct reservation *v, int64_t at_ms) {
    for (uint32_t id = 1; id < k->f->nodes_len; id++)
        if (k->f->allowed[id] && reserved(v, id) && window_allows(k->p->w, k->r, id, at_ms, k->r->limit_ms)) {
            const struct node *n = k->copies[id] ? &k->copies[id]->node : k->p->w->nodes.at[id];
            walk_look(k, id, fit_tasks(n, &k->f->demand));
        }
}

static int by_cap(const void *pa, const void *pb) {
    const struct spot *a = pa, *b = pb;
    if (a->tasks != b->tasks)
        return a->tasks < b->tasks ? -1 : 1;
    return (a->node > b->node) - (a->node < b->node);
}

// Brings the nodes with most room to the end of the order, where keep_nodes takes from.
static uint64_t order_by_cap(struct walk *k) {
    struct spot *spots = xcalloc(k->order.len + 1, sizeof *spots);
    for (uint32_t i = 0; i < k->order.len; i++)
        spots[i] = (struct spot){k->order.at[i], k->cap[k->order.at[i]]};
    qsort(spots, k->order.len, sizeof *spots, by_cap);
    uint64_t most = 0;
    for (uint32_t i = 0; i < k->order.len; i++) {
        k->order.at[i] = spots[i].node;
        most += k->order.len - i <= k->f->demand.nodes_max ? spots[i].tasks : 0;
    }
    free(spots);
    return most;
}

static bool walk_enough(struct walk *k) {
    const struct demand *d = &k->f->demand;
    if (k->nodes_fit < d->nodes_min || k->tasks_fit < d->tasks)
        return false;
    return d->even || k->nodes_fit <= d->nodes_max || order_by_cap(k) >= d->tasks;
}

static int by_time(const void *pa, const void *pb) {
    const struct job *a = *(struct job *const *)pa, *b = *(struct job *const *)pb;
    int64_t x = job_end_ms(a), y = job_end_ms(b);
    if (x != y)
        return x < y ? -1 : 1;
    return (a->id > b->id) - (a->id < b->id);
}

struct started {
    VEC(struct job *) jobs;
};

static void started_in_pass(const struct pass *p, struct started *s) {
    for (uint32_t i = 0; i < p->out->starts.len; i++)
        vec_push(&s->jobs, world_find(p->w, p->out->starts.at[i].job));
    if (s->jobs.len)
        qsort(s->jobs.at, s->jobs.len, sizeof *s->jobs.at, by_time);
}

static const struct reservation *next_window(const struct walk *k, int64_t after_ms, int64_t before_ms) {
    const struct reservation *best = NULL;
    for (uint32_t i = 0; i < k->p->w->reservations.len; i++) {
        const struct reservation *v = k->p->w->reservations.at[i];
        int64_t at = streq(v->name, k->r->asked.reservation) ? v->start_ms : v->end_ms;
        int64_t best_at = best ? streq(best->name, k->r->asked.reservation) ? best->start_ms : best->end_ms : INT64_MAX;
        if (at > after_ms && at <= before_ms && at < best_at)
            best = v;
    }
    return best;
}

// Returns the time at which enough fits, INT64_MAX when never.
static int64_t walk_all(struct walk *k) {
    struct pass *p = k->p;
    struct started mine = {0};
    ends_merge(p->w);
    started_in_pass(p, &mine);
    uint32_t i = 0, m = 0;
    int64_t at = p->now_ms, found = INT64_MAX;
    for (;;) {
        struct job *a = i < p->w->by_end.sorted.len ? p->w->by_end.sorted.at[i] : NULL;
        struct job *b = m < mine.jobs.len ? mine.jobs.at[m] : NULL;
        struct job *j = !a ? b : !b ? a : by_time(&a, &b) < 0 ? a : b;
        int64_t end_ms = j ? expected_end(p, j) : INT64_MAX;
        const struct reservation *v = next_window(k, at, end_ms);
        if (v) {
            at = streq(v->name, k->r->asked.reservation) ? v->start_ms : v->end_ms;
            walk_window(k, v, at);
        } else if (end_ms >= k->until_ms) {
            break;
        } else {
            at = end_ms;
            walk_end(k, j, at);
            i += j == a;
            m += j == b;
        }
        if (walk_enough(k)) {
            found = at;
            break;
        }
    }
    vec_done(&mine.jobs);
    return found;
}

// Nodes that came to fit last are taken first: what is free now stays free for shorter work.
static void keep_nodes(struct walk *k, struct job *j, int64_t from_ms) {
    const struct demand *d = &k->f->demand;
    struct pass *p = k->p;
    uint32_t left = d->tasks, nodes = 0;
    for (uint32_t i = k->order.len; i-- > 0 && left;) {
        uint32_t id = k->order.at[i];
        uint32_t others = nodes + 1 < d->nodes_min ? d->nodes_min - nodes - 1 : 0;
        uint32_t most = left > others ? left - others : 1;
        uint32_t tasks = k->cap[id] < most ? k->cap[id] : most;
        struct node *n = p->w->nodes.at[id];
        vec_push(&p->parts, (struct part){id, n->hold, from_ms, k->r, tasks, j});
        n->hold = p->parts.len;
        mark(p, id);
        left -= tasks;
        nodes++;
    }
    p->any_plan = true;
}

static int64_t walk_begin(struct walk *k, struct pass *p, struct request *r, int64_t until_ms) {
    *k = (struct walk){.p = p, .r = r, .f = fit_of(p->w, r), .until_ms = until_ms};
    k->copies = xcalloc(k->f->nodes_len + 1, sizeof *k->copies);
    k->cap = xcalloc(k->f->nodes_len + 1, sizeof *k->cap);
    for (uint32_t id = 0; id < k->f->nodes_len; id++)
        if (k->f->cap[id] && window_allows(p->w, r, id, p->now_ms, r->limit_ms))
            walk_look(k, id, k->f->cap[id]);
    return walk_enough(k) ? INT64_MAX : walk_all(k);
}

static void walk_done(struct walk *k) {
    for (uint32_t id = 0; k->f && id < k->f->nodes_len; id++)
        free(k->copies[id]);
    free(k->copies);
    free(k->cap);
    vec_done(&k->order);
}

static void keep(struct walk *k, struct job *j, int64_t at_ms) {
    struct pass *p = k->p;
    const struct request *r = k->r;
    keep_nodes(k, j, at_ms);
    vec_push(&p->out->plans, (struct sched_plan){.job = j->id,
                                                 .start_ms = at_ms,
                                                 .partition = r->asked.partition,
                                                 .node_count = r->demand.nodes_min});
    j->planned = true;
    p->choice_planned |= r->choice != NULL;
    for (uint32_t i = 0; r->choice && i < r->choice->options.len; i++)
        fit_class(p->w, r->choice->options.at[i])->own_pass = p->w->pass;
}

struct request *plan_make(struct pass *p, struct job *j, struct request *const *among, uint32_t count) {
    struct walk best = {0}, k;
    int64_t soonest = INT64_MAX;
    for (uint32_t i = 0; i < count; i++) {
        int64_t at = walk_begin(&k, p, among[i], soonest);
        if (at < soonest) {
            struct walk t = best;
            best = k;
            k = t;
            soonest = at;
        }
        walk_done(&k);
    }
    if (soonest == INT64_MAX)
        return NULL;
    keep(&best, j, soonest);
    struct request *r = best.r;
    walk_done(&best);
    return r;
}

void plan_clear(struct pass *p) {
    for (uint32_t i = 0; i < p->special.len; i++) {
        struct node *n = p->w->nodes.at[p->special.at[i]];
        n->special = false;
        n->hold = 0;
    }
    for (uint32_t i = 0; i < p->parts.len; i++)
        p->parts.at[i].job->planned = false;
    vec_done(&p->special);
    vec_done(&p->parts);
}
