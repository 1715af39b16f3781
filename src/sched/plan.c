// Planned starts: when and where a blocked job can start if running jobs end at their time limits, and whether
// another job may use those nodes meanwhile without delaying it (backfill). Reservations are treated alike.
//
// Invariant: a job that passes sched_plan_allows on a node either ends before every planned part there begins, or
// leaves enough for that part once the jobs that end before it are gone. Hence backfill never delays a planned
// start, as long as jobs end no later than their limits.
#include <assert.h>
#include <string.h>

#include "base/text.h"
#include "plan.h"
#include "place.h"
#include "uneven.h"

static int64_t later(int64_t at_ms, int64_t by_ms) {
    return by_ms >= INT64_MAX - at_ms ? INT64_MAX : at_ms + by_ms;
}

static bool reserved(const struct world_reservation *r, uint32_t node) {
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

bool sched_node_ends_before(const struct world_node *n, int64_t at_ms, int64_t limit_ms) {
    return n->until_ms && later(at_ms, limit_ms) > n->until_ms;
}

bool sched_reservations_allow(const struct world *w, const struct world_request *r, uint32_t node, int64_t at_ms,
                              int64_t limit_ms) {
    int64_t end_ms = later(at_ms, limit_ms);
    bool inside = !r->asked.reservation;
    const struct world_node *n = w->cluster.ending ? world_node(w, node) : NULL;
    if (n && sched_node_ends_before(n, at_ms, limit_ms))
        return false;
    for (uint32_t i = 0; i < w->rules.reservations.len; i++) {
        const struct world_reservation *v = w->rules.reservations.at[i];
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

// The arrays by node are made when the first node is marked: most passes need none.
static void mark(struct sched_pass *p, uint32_t node) {
    uint32_t count = p->w->cluster.nodes.len;
    if (!count)
        return;
    if (!p->restricted.len) {
        vec_reserve(&p->restricted, count);
        vec_reserve(&p->first_part, count);
        memset(p->restricted.at, 0, count * sizeof *p->restricted.at);
        memset(p->first_part.at, 0, count * sizeof *p->first_part.at);
        p->restricted.len = p->first_part.len = count;
    }
    if (world_node(p->w, node))
        p->restricted.at[node] = 1;
}

void sched_plan_mark_reservations(struct sched_pass *p) {
    for (uint32_t i = 0; i < p->w->rules.reservations.len; i++) {
        const struct world_reservation *v = p->w->rules.reservations.at[i];
        if (v->end_ms <= p->now_ms)
            continue;
        int64_t edge = v->start_ms > p->now_ms ? v->start_ms : v->end_ms;
        p->out->next_ms = edge < p->out->next_ms ? edge : p->out->next_ms;
        for (uint32_t k = 0; k < v->nodes.len; k++)
            mark(p, v->nodes.at[k]);
        for (uint32_t k = 0; !v->nodes.len && k < p->w->cluster.nodes.len; k++)
            mark(p, k);
    }
    for (uint32_t k = 0; p->w->cluster.ending && k < p->w->cluster.nodes.len; k++)
        if (world_node(p->w, k) && p->w->cluster.nodes.at[k]->until_ms)
            mark(p, k);
}

void sched_node_copy_init(struct node_copy *s, const struct world_node *n) {
    s->node = *n;
    memcpy(s->gpus, n->gpus, n->gpu_count * sizeof *n->gpus);
    s->node.gpus = s->gpus;
}

void sched_node_copy_release(struct node_copy *s, const struct world_job *j) {
    for (uint32_t i = 0; i < j->alloc->node_count; i++)
        if (j->alloc->nodes[i].node == s->node.id)
            sched_node_allocate(&s->node, &j->alloc->nodes[i], j->request->demand.exclusive, -1);
}

// Hundreds of tasks can share a node: more GPU slots than fit on the stack, where the usual few are.
static void node_copy_take(struct node_copy *s, const struct sched_demand *d, uint32_t tasks) {
    struct sched_alloc_node a;
    struct sched_alloc_gpu few[SCHED_GPUS_MAX], *many = NULL;
    uint32_t slots = sched_fit_gpu_slots(d, tasks);
    if (slots > SCHED_GPUS_MAX)
        many = xcalloc(slots, sizeof *many);
    sched_fit_node(&s->node, d, tasks, -1, &a, many ? many : few);
    sched_node_allocate(&s->node, &a, d->exclusive, 1);
    free(many);
}

// A job past its time limit is expected to end right away.
int64_t sched_plan_expected_end(const struct sched_pass *p, const struct world_job *j) {
    int64_t end_ms = sched_job_end_ms(j);
    return end_ms > p->now_ms ? end_ms : p->now_ms + 1;
}

static bool taken_out(const struct sched_pass *p, const struct world_job *j) {
    for (uint32_t i = 0; i < p->without_count; i++)
        if (p->without[i] == j)
            return true;
    return false;
}

bool sched_plan_allows(struct sched_pass *p, const struct world_request *r, const struct world_node *n,
                       uint32_t tasks) {
    if (!sched_reservations_allow(p->w, r, n->id, p->now_ms, r->limit_ms))
        return false;
    int64_t end_ms = later(p->now_ms, r->limit_ms);
    for (uint32_t i = pass_first_part(p, n->id); i; i = p->parts.at[i - 1].next) {
        const struct planned_part *part = &p->parts.at[i - 1];
        if (end_ms <= part->from_ms || !pass_part_counts(p, part))
            continue;
        // One whose time has come waits for jobs that should have ended.
        int64_t from_ms = part->from_ms > p->now_ms ? part->from_ms : p->now_ms + 1;
        struct node_copy s;
        struct sched_demand own = sched_demand_most(&r->demand, n);
        sched_node_copy_init(&s, n);
        node_copy_take(&s, &own, tasks);
        for (uint32_t k = 0; k < n->jobs.len; k++)
            if (sched_plan_expected_end(p, n->jobs.at[k]) <= from_ms && !taken_out(p, n->jobs.at[k]))
                sched_node_copy_release(&s, n->jobs.at[k]);
        struct sched_demand needs = sched_demand_on(&part->request->demand, part->gpus);
        if (sched_fit_tasks(&s.node, &needs) < part->tasks)
            return false;
        // Other parts of the same job on the node follow it in the list, and have to fit beside it.
        for (; part->next && p->parts.at[part->next - 1].job == part->job && p->parts.at[part->next - 1].tasks;
             part = &p->parts.at[part->next - 1]) {
            const struct planned_part *beside = &p->parts.at[part->next - 1];
            node_copy_take(&s, &needs, part->tasks);
            needs = sched_demand_on(&beside->request->demand, beside->gpus);
            if (sched_fit_tasks(&s.node, &needs) < beside->tasks)
                return false;
        }
    }
    return true;
}

// Search for a planned start: running jobs are ended in the order of their limits, on copies of their nodes,
// until the job fits.
struct plan_search {
    struct sched_pass *p;
    struct world_request *r;
    const struct sched_fit *f;
    struct node_copy **copies;  // by node id
    uint16_t *cap;              // by node id
    VEC(uint32_t) order;        // nodes in the order in which they came to fit
    uint32_t nodes_fit;
    uint64_t tasks_fit;
    int64_t until_ms;  // later is too late
};

static void search_look(struct plan_search *k, uint32_t id, uint32_t cap) {
    for (uint32_t i = pass_first_part(k->p, id); i; i = k->p->parts.at[i - 1].next)
        if (pass_part_counts(k->p, &k->p->parts.at[i - 1]))
            cap = 0;  // another job's planned start is there
    cap = cap > UINT16_MAX ? UINT16_MAX : cap;
    if (!k->cap[id] && cap)
        vec_push(&k->order, id);
    k->nodes_fit += (cap > 0) - (k->cap[id] > 0);
    k->tasks_fit += cap;
    k->tasks_fit -= k->cap[id];
    k->cap[id] = (uint16_t)cap;
}

static void search_job_end(struct plan_search *k, const struct world_job *j, int64_t at_ms) {
    for (uint32_t i = 0; i < j->alloc->node_count; i++) {
        uint32_t id = j->alloc->nodes[i].node;
        if (id >= k->f->nodes_len || !k->f->allowed[id])
            continue;
        if (!k->copies[id]) {
            k->copies[id] = xmalloc(sizeof **k->copies);
            sched_node_copy_init(k->copies[id], k->p->w->cluster.nodes.at[id]);
        }
        sched_node_copy_release(k->copies[id], j);
        if (sched_reservations_allow(k->p->w, k->r, id, at_ms, k->r->limit_ms))
            search_look(k, id, sched_fit_tasks(&k->copies[id]->node, &k->f->demand));
    }
}

// Nodes of a reservation count again when it ends (or, for jobs that name it, when it begins).
static void search_reservation_end(struct plan_search *k, const struct world_reservation *v, int64_t at_ms) {
    for (uint32_t id = 1; id < k->f->nodes_len; id++)
        if (k->f->allowed[id] && reserved(v, id) &&
            sched_reservations_allow(k->p->w, k->r, id, at_ms, k->r->limit_ms)) {
            const struct world_node *n = k->copies[id] ? &k->copies[id]->node : k->p->w->cluster.nodes.at[id];
            search_look(k, id, sched_fit_tasks(n, &k->f->demand));
        }
}

static int by_cap(const void *pa, const void *pb) {
    const struct placement_spot *a = pa, *b = pb;
    if (a->tasks != b->tasks)
        return a->tasks < b->tasks ? -1 : 1;
    return (a->node > b->node) - (a->node < b->node);
}

// Sorts the nodes with most room to the end, where keep_nodes takes from. Returns how many tasks the job's
// largest allowed number of nodes can run.
static uint64_t order_by_cap(struct plan_search *k) {
    struct placement_spot *spots = xcalloc(k->order.len + 1, sizeof *spots);
    for (uint32_t i = 0; i < k->order.len; i++)
        spots[i] = (struct placement_spot){k->order.at[i], k->cap[k->order.at[i]]};
    qsort(spots, k->order.len, sizeof *spots, by_cap);
    uint64_t most = 0;
    for (uint32_t i = 0; i < k->order.len; i++) {
        k->order.at[i] = spots[i].node;
        most += k->order.len - i <= k->f->demand.nodes_max ? spots[i].tasks : 0;
    }
    free(spots);
    return most;
}

static bool search_enough(struct plan_search *k) {
    const struct sched_demand *d = &k->f->demand;
    if (k->nodes_fit < d->nodes_min || k->tasks_fit < d->tasks)
        return false;
    return d->even || k->nodes_fit <= d->nodes_max || order_by_cap(k) >= d->tasks;
}

static int by_time(const void *pa, const void *pb) {
    const struct world_job *a = *(struct world_job *const *)pa, *b = *(struct world_job *const *)pb;
    int64_t x = sched_job_end_ms(a), y = sched_job_end_ms(b);
    if (x != y)
        return x < y ? -1 : 1;
    return (a->id > b->id) - (a->id < b->id);
}

struct started {
    VEC(struct world_job *) jobs;
};

static void started_in_pass(const struct sched_pass *p, struct started *s) {
    for (uint32_t i = 0; i < p->out->starts.len; i++)
        vec_push(&s->jobs, world_find(p->w, p->out->starts.at[i].job));
    if (s->jobs.len)
        qsort(s->jobs.at, s->jobs.len, sizeof *s->jobs.at, by_time);
}

// When a reservation lets the job in: the one it names when it begins, every other when it is over.
static int64_t opens_ms(const struct plan_search *k, const struct world_reservation *v) {
    return streq(v->name, k->r->asked.reservation) ? v->start_ms : v->end_ms;
}

// The next time in (after_ms, before_ms] at which one opens; INT64_MAX: none does.
static int64_t next_window(const struct plan_search *k, int64_t after_ms, int64_t before_ms) {
    int64_t best_ms = INT64_MAX;
    for (uint32_t i = 0; i < k->p->w->rules.reservations.len; i++) {
        int64_t at_ms = opens_ms(k, k->p->w->rules.reservations.at[i]);
        if (at_ms > after_ms && at_ms <= before_ms && at_ms < best_ms)
            best_ms = at_ms;
    }
    return best_ms;
}

// Several reservations can end together, on different nodes: all of them count.
static void search_windows(struct plan_search *k, int64_t at_ms) {
    for (uint32_t i = 0; i < k->p->w->rules.reservations.len; i++)
        if (opens_ms(k, k->p->w->rules.reservations.at[i]) == at_ms)
            search_reservation_end(k, k->p->w->rules.reservations.at[i], at_ms);
}

// A node that fitted earlier may be closed by now, because a reservation begins there before the job would end.
// Example: node A is free and reserved in an hour, node B is free in 50 minutes; a job of 30 minutes on both cannot
// start in 50 minutes, although each of them fits it at some time before.
static void search_drop_closed(struct plan_search *k, int64_t at_ms) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < k->order.len; i++) {
        uint32_t id = k->order.at[i];
        if (sched_reservations_allow(k->p->w, k->r, id, at_ms, k->r->limit_ms))
            k->order.at[kept++] = id;
        else
            search_look(k, id, 0);
    }
    k->order.len = kept;
}

// What a victim leaves belongs to the job it was preempted for.
static bool frees_for_preemptor(const struct sched_pass *p, const struct world_job *j) {
    return pass_is_victim(p, j) && (j->state != SCHED_JOB_ENDING || j->ending_for);
}

// The time at which enough fits; INT64_MAX: never, or not before until_ms.
static int64_t search_ends(struct plan_search *k) {
    struct sched_pass *p = k->p;
    struct started mine = {0};
    sched_by_end_merge(p->w);
    started_in_pass(p, &mine);
    uint32_t i = 0, m = 0;
    int64_t at = p->now_ms, found = INT64_MAX;
    for (;;) {
        // Two lists by expected end are merged: the jobs that ran before this pass, and those started in it. Between
        // two ends, windows of reservations open and close; whatever comes first changes what is free.
        struct world_job *a = i < p->w->orders.by_end.sorted.len ? p->w->orders.by_end.sorted.at[i] : NULL;
        struct world_job *b = m < mine.jobs.len ? mine.jobs.at[m] : NULL;
        struct world_job *j = !a ? b : !b ? a : by_time(&a, &b) < 0 ? a : b;
        int64_t end_ms = j ? sched_plan_expected_end(p, j) : INT64_MAX;
        int64_t window_ms = next_window(k, at, end_ms);
        if (window_ms < INT64_MAX) {
            at = window_ms;
            search_windows(k, at);
        } else if (end_ms >= k->until_ms) {
            break;
        } else {
            at = end_ms;
            if (j != a || !frees_for_preemptor(p, j))
                search_job_end(k, j, at);
            i += j == a;
            m += j == b;
        }
        if ((p->w->rules.reservations.len || p->w->cluster.ending) && search_enough(k))
            search_drop_closed(k, at);
        if (search_enough(k)) {
            found = at;
            break;
        }
    }
    vec_done(&mine.jobs);
    return found;
}

void sched_plan_keep_part(struct sched_pass *p, struct world_job *j, const struct world_request *r, uint32_t node,
                          uint32_t tasks, uint32_t gpus, int64_t from_ms) {
    mark(p, node);
    vec_push(&p->parts, (struct planned_part){.node = node,
                                              .next = p->first_part.at[node],
                                              .from_ms = from_ms,
                                              .request = r,
                                              .tasks = tasks,
                                              .job = j,
                                              .gpus = gpus});
    p->first_part.at[node] = p->parts.len;
}

// Takes the nodes that came to fit last, so that nodes that are free now stay free for backfill.
static void keep_nodes(struct plan_search *k, struct world_job *j, int64_t from_ms) {
    const struct sched_demand *d = &k->f->demand;
    struct sched_pass *p = k->p;
    uint32_t left = d->tasks, nodes = 0;
    for (uint32_t i = k->order.len; i-- > 0 && left;) {
        uint32_t id = k->order.at[i];
        uint32_t others = nodes + 1 < d->nodes_min ? d->nodes_min - nodes - 1 : 0;
        uint32_t most = left > others ? left - others : 1;
        uint32_t tasks = k->cap[id] < most ? k->cap[id] : most;
        sched_plan_keep_part(p, j, k->r, id, tasks, 0, from_ms);
        left -= tasks;
        nodes++;
    }
}

static int64_t search_begin(struct plan_search *k, struct sched_pass *p, struct world_request *r, int64_t until_ms) {
    *k = (struct plan_search){.p = p, .r = r, .f = sched_fit_of(p->w, r), .until_ms = until_ms};
    k->copies = xcalloc(k->f->nodes_len + 1, sizeof *k->copies);
    k->cap = xcalloc(k->f->nodes_len + 1, sizeof *k->cap);
    for (uint32_t id = 0; id < k->f->nodes_len; id++)
        if (k->f->cap[id] && sched_reservations_allow(p->w, r, id, p->now_ms, r->limit_ms))
            search_look(k, id, k->f->cap[id]);
    return search_enough(k) ? INT64_MAX : search_ends(k);
}

static void search_done(struct plan_search *k) {
    for (uint32_t id = 0; k->f && id < k->f->nodes_len; id++)
        free(k->copies[id]);
    free(k->copies);
    free(k->cap);
    vec_done(&k->order);
}

// To the decisions, with the parts from `from` on as the nodes it is planned on.
static void note_plan(struct sched_pass *p, struct world_job *j, const struct world_request *r, uint32_t from,
                      int64_t at_ms) {
    struct sched_plan plan = {.job = j->id,
                              .start_ms = at_ms,
                              .partition = r->asked.partition,
                              .node_count = p->parts.len - from};
    plan.nodes = xcalloc(plan.node_count + 1, sizeof *plan.nodes);
    for (uint32_t i = 0; i < plan.node_count; i++) {
        const struct planned_part *part = &p->parts.at[from + i];
        uint32_t at = 0;
        while (part->request != r && r->parts.at[at] != part->request)
            at++;
        plan.nodes[i] =
            (struct sched_promise_node){part->node, part->tasks, part->gpus, part->request == r ? 0 : at + 1};
    }
    vec_push(&p->out->plans, plan);
    map_put(&p->planned, j->id, j);
    p->choice_planned |= r->choice != NULL;
    for (uint32_t i = 0; r->choice && i < r->choice->options.len; i++)
        sched_fit_class(p->w, r->choice->options.at[i])->own_plan_pass = p->w->last_pass.number;
}

static void keep(struct plan_search *k, struct world_job *j, int64_t at_ms) {
    uint32_t parts = k->p->parts.len;
    keep_nodes(k, j, at_ms);
    note_plan(k->p, j, k->r, parts, at_ms);
}

// --- jobs that need something else on each node: of several parts, or with GPUs that are not divided evenly ---

static void ends_release(struct sched_pass *p, struct world_job *const *jobs, uint32_t n, int sign) {
    for (uint32_t i = 0; i < n; i++) {
        const struct world_job *j = jobs[i];
        for (uint32_t k = 0; k < j->alloc->node_count; k++) {
            struct world_node *node = p->w->cluster.nodes.at[j->alloc->nodes[k].node];
            sched_node_allocate(node, &j->alloc->nodes[k], j->request->demand.exclusive, -sign);
            world_node_changed(p->w, node->id);
        }
    }
}

// Where it fits when the first n of these jobs have ended; NULL: nowhere.
static struct sched_alloc *place_after(struct sched_pass *p, struct world_request *r,
                                       struct world_job *const *jobs, uint32_t n) {
    p->planning_ms = sched_plan_expected_end(p, jobs[n - 1]);
    ends_release(p, jobs, n, 1);
    bool retry = p->retry;
    p->retry = true;  // what failed in what is free now says nothing
    struct sched_alloc *a = sched_place(p, r);
    p->retry = retry;
    ends_release(p, jobs, n, -1);
    p->planning_ms = 0;
    return a;
}

// --- where a planned job will start ---

// The running jobs, those of this pass included, that end by then, first to last.
static void ends_by(struct sched_pass *p, int64_t at_ms, struct started *out) {
    sched_by_end_merge(p->w);
    for (uint32_t i = 0; i < p->w->orders.by_end.sorted.len; i++)
        if (sched_plan_expected_end(p, p->w->orders.by_end.sorted.at[i]) <= at_ms)
            vec_push(&out->jobs, p->w->orders.by_end.sorted.at[i]);
    uint32_t running = out->jobs.len;
    for (uint32_t i = 0; i < p->out->starts.len; i++) {
        struct world_job *j = world_find(p->w, p->out->starts.at[i].job);
        if (sched_plan_expected_end(p, j) <= at_ms)
            vec_push(&out->jobs, j);
    }
    if (out->jobs.len > running)
        qsort(out->jobs.at, out->jobs.len, sizeof *out->jobs.at, by_time);
}

// Looks at the cluster as it will be when the planned job starts: what ends until then is taken out, the job is put
// in, and `look` sees the nodes. Everything is put back afterwards, in the opposite order: the world is as before.
void sched_plan_at_start(struct sched_pass *p, struct world_job *j, const struct sched_plan *plan,
                         plan_place_fn look, void *ctx) {
    struct started ends = {0};
    struct world_request *r = sched_job_option_in(j, plan->partition);
    ends_by(p, plan->start_ms, &ends);
    ends_release(p, ends.jobs.at, ends.jobs.len, 1);
    bool retry = p->retry;
    p->retry = true;
    p->placing = j;
    p->planning_ms = plan->start_ms;
    struct sched_alloc *a = sched_place(p, r);
    p->planning_ms = 0;
    p->placing = NULL;
    p->retry = retry;
    for (uint32_t i = 0; a && i < a->node_count; i++)
        sched_node_allocate(p->w->cluster.nodes.at[a->nodes[i].node], &a->nodes[i], r->demand.exclusive, 1);
    if (a)
        look(ctx, p, a);
    for (uint32_t i = 0; a && i < a->node_count; i++) {
        sched_node_allocate(p->w->cluster.nodes.at[a->nodes[i].node], &a->nodes[i], r->demand.exclusive, -1);
        world_node_changed(p->w, a->nodes[i].node);
    }
    ends_release(p, ends.jobs.at, ends.jobs.len, -1);
    sched_alloc_free(a);
    vec_done(&ends.jobs);
}

static void keep_piece(struct sched_pass *p, struct world_job *j, const struct world_request *r,
                       const struct sched_alloc *a, int64_t from_ms) {
    for (uint32_t i = 0; i < a->node_count; i++)
        sched_plan_keep_part(p, j, r, a->nodes[i].node, a->nodes[i].tasks,
                             r->demand.gpu_total ? a->nodes[i].gpu_count : 0, from_ms);
}

// The fewest ends after which all of it fits, found by doubling and halving: the more have ended, the more fits.
// Returns where, NULL: never, or not before *at_ms, which becomes the time.
static struct sched_alloc *find_place_after(struct sched_pass *p, struct world_request *r, int64_t *at_ms) {
    struct started ends = {0};
    sched_by_end_merge(p->w);
    for (uint32_t i = 0; i < p->w->orders.by_end.sorted.len; i++)
        vec_push(&ends.jobs, p->w->orders.by_end.sorted.at[i]);
    started_in_pass(p, &ends);
    while (ends.jobs.len && sched_plan_expected_end(p, ends.jobs.at[ends.jobs.len - 1]) >= *at_ms)
        ends.jobs.len--;
    uint32_t low = 0, high = ends.jobs.len ? 1 : 0;  // too few, and perhaps enough
    struct sched_alloc *a = NULL;
    while (high && !(a = place_after(p, r, ends.jobs.at, high)) && high < ends.jobs.len) {
        low = high;
        high = high * 2 < ends.jobs.len ? high * 2 : ends.jobs.len;
    }
    while (a && high - low > 1) {
        uint32_t mid = low + (high - low) / 2;
        struct sched_alloc *b = place_after(p, r, ends.jobs.at, mid);
        if (b) {
            sched_alloc_free(a);
            a = b;
            high = mid;
        } else {
            low = mid;
        }
    }
    if (a)
        *at_ms = sched_plan_expected_end(p, ends.jobs.at[high - 1]);
    vec_done(&ends.jobs);
    return a;
}

static struct world_request *plan_unlike(struct sched_pass *p, struct world_job *j,
                                         struct world_request *const *among, uint32_t count, int64_t at_ms) {
    struct sched_alloc *best = NULL;
    struct world_request *r = NULL;
    uint32_t parts = p->parts.len;
    for (uint32_t i = 0; i < count; i++) {
        struct sched_alloc *a = find_place_after(p, among[i], &at_ms);
        if (!a)
            continue;
        sched_alloc_free(best);
        best = a;
        r = among[i];
    }
    if (!best)
        return NULL;
    for (uint32_t i = 0; i < best->piece_count; i++)
        keep_piece(p, j, i ? r->parts.at[i - 1] : r, best->pieces[i], at_ms);
    if (!best->piece_count)
        keep_piece(p, j, r, best, at_ms);
    note_plan(p, j, r, parts, at_ms);
    sched_alloc_free(best);
    return r;
}

struct world_request *sched_plan_make(struct sched_pass *p, struct world_job *j, struct world_request *const *among,
                                      uint32_t count, int64_t until_ms) {
    if (among[0]->parts.len || among[0]->demand.gpu_total)
        return plan_unlike(p, j, among, count, until_ms);
    struct plan_search best = {0}, k;
    int64_t soonest = until_ms;
    for (uint32_t i = 0; i < count; i++) {
        int64_t at = search_begin(&k, p, among[i], soonest);
        if (at < soonest) {
            struct plan_search t = best;
            best = k;
            k = t;
            soonest = at;
        }
        search_done(&k);
    }
    if (soonest == until_ms)
        return NULL;
    keep(&best, j, soonest);
    struct world_request *r = best.r;
    search_done(&best);
    return r;
}

void sched_plan_clear(struct sched_pass *p) {
    vec_done(&p->restricted);
    vec_done(&p->first_part);
    vec_done(&p->parts);
    map_done(&p->planned);
}
