// Searches the smallest change with which a job would start now. Every candidate is applied to the world, a pass is
// made, and the change is undone: only a change with which the job did start is reported. What the user can change
// comes before what needs an administrator, and small changes before large ones. The number of passes is bounded.
#include "suggestion.h"

#include "fit_class.h"
#include "plan.h"
#include "what_if.h"

enum {
    TRIES_MAX = 24,
    TRIES_LEAST = 48,
    TRIES_MOST = 480,
    TRIES_WORK = 500000,
    LIMIT_LEAST_MS = 60000,
    PRIORITY_RAISE = 1000000
};

struct suggestion_try {
    struct world *w;
    struct world_job *job;
    int64_t now_ms;
    const struct policy *policy;
    unsigned left;
    unsigned *passes;  // left for all changes together
    struct sched_explanation *out;
    bool release, first;  // tried on top of each change
};

static bool starts_under(struct world *w, uint64_t job, int64_t now_ms, const struct policy *policy) {
    struct sched_decisions d;
    bool found = false;
    sched_decide(w, now_ms, policy, &d);
    for (uint32_t i = 0; i < d.starts.len; i++)
        found |= d.starts.at[i].job == job;
    sched_decisions_done(&d);
    return found;
}

// Searching for victims takes long, so a pass without preemption comes first; the job must start in both.
static bool starts(struct world *w, uint64_t job, int64_t now_ms, const struct policy *policy) {
    struct policy quick = *policy;
    quick.reclaim = false;
    return (!policy->reclaim || starts_under(w, job, now_ms, &quick)) && starts_under(w, job, now_ms, policy);
}

// The job with another request, which the caller has to unref.
static struct sched_job changed(const struct suggestion_try *t, struct world *w, const struct sched_request *asked) {
    const struct world_job *j = t->job;
    struct sched_request q = *asked;
    q.priority += t->first ? PRIORITY_RAISE : 0;
    return (struct sched_job){.id = j->id,
                              .request = world_request(w, &q),
                              .submit_ms = j->submit_ms,
                              .begin_ms = t->release ? 0 : j->begin_ms,
                              .hold = t->release ? SCHED_HOLD_NONE : (enum sched_hold)j->hold,
                              .restarts = j->restarts};
}

static bool starts_as(struct suggestion_try *t, const struct sched_request *asked) {
    if (!t->left)
        return false;
    t->left--;
    struct world_job *j = t->job;
    struct world_request *old = j->request;
    old->refs++;
    struct sched_job before = {.id = j->id,
                               .request = old,
                               .submit_ms = j->submit_ms,
                               .begin_ms = j->begin_ms,
                               .hold = (enum sched_hold)j->hold,
                               .restarts = j->restarts};
    struct sched_job after = changed(t, t->w, asked);
    // If it does not fit in what is free, no pass is needed.
    if (!sched_fit_enough(sched_fit_of(t->w, (struct world_request *)(uintptr_t)after.request))) {
        world_request_unref(t->w, after.request);
        world_request_unref(t->w, old);
        return false;
    }
    world_job_update(t->w, &after);
    world_request_unref(t->w, after.request);
    bool works = starts(t->w, j->id, t->now_ms, t->policy);
    *t->passes -= *t->passes > 0;
    world_job_update(t->w, &before);
    world_request_unref(t->w, old);
    return works;
}

static bool found(struct suggestion_try *t, enum explain_change change, int64_t value) {
    t->out->change = change;
    t->out->value = value;
    return true;
}

static bool try_nothing(struct suggestion_try *t) {
    if (!t->release && !t->first)
        return false;
    if (!starts_as(t, &t->job->request->asked))
        return false;
    if (t->first) {
        t->first = false;
        return found(t, CHANGE_PRIORITY, PRIORITY_RAISE);
    }
    t->release = false;
    return found(t, t->job->hold != SCHED_HOLD_NONE ? CHANGE_RELEASE : CHANGE_BEGIN_NOW, 0);
}

// Shorter and shorter time limits; the longest that works.
static bool try_limit(struct suggestion_try *t) {
    struct sched_request q = t->job->request->asked;
    int64_t limit = t->job->request->limit_ms;
    if (limit == INT64_MAX)
        limit = 7LL * 24 * 3600 * 1000;
    for (unsigned eighths = 7; limit >= LIMIT_LEAST_MS && t->left; eighths--) {
        q.time_limit_ms = limit / 8 * eighths;
        if (q.time_limit_ms >= LIMIT_LEAST_MS && starts_as(t, &q))
            return found(t, CHANGE_TIME_LIMIT, q.time_limit_ms);
        if (eighths == 4) {
            limit /= 2;
            eighths = 8;
        }
        if (limit < 2 * LIMIT_LEAST_MS)
            break;
    }
    return false;
}

// One GPU less each time, then half a GPU, a quarter.
static bool try_gpus(struct suggestion_try *t) {
    struct sched_request q = t->job->request->asked;
    uint32_t *amounts[] = {&q.gpu_milli_per_task, &q.gpu_milli_per_node, &q.gpu_milli_per_job};
    for (unsigned i = 0; i < 3; i++) {
        uint32_t milli = *amounts[i];
        while (milli > 250) {
            milli = milli > SCHED_GPU ? milli - SCHED_GPU : milli == SCHED_GPU ? SCHED_GPU / 2 : milli / 2;
            *amounts[i] = milli;
            if (starts_as(t, &q))
                return found(t, CHANGE_GPUS, milli);
        }
        *amounts[i] = t->job->request->asked.gpu_milli_per_task * (i == 0) +
                      t->job->request->asked.gpu_milli_per_node * (i == 1) +
                      t->job->request->asked.gpu_milli_per_job * (i == 2);
    }
    return false;
}

// The largest number that works, by bisection: where more fit, fewer fit as well.
static uint32_t largest(struct suggestion_try *t, struct sched_request *q, uint32_t *field, uint32_t high) {
    uint32_t low = 0;
    while (low + 1 < high) {
        uint32_t mid = low + (high - low) / 2;
        *field = mid;
        if (starts_as(t, q))
            low = mid;
        else
            high = mid;
    }
    return low;
}

static bool try_fewer(struct suggestion_try *t) {
    const struct sched_request *asked = &t->job->request->asked;
    const struct sched_demand *d = &t->job->request->demand;
    struct sched_request q = *asked;
    uint32_t n;
    if (d->nodes_min > 1 && d->even) {
        q.tasks = 0;
        q.tasks_per_node = d->node_tasks;
        q.nodes_max = 0;
        if (!asked->gpu_milli_per_job && (n = largest(t, &q, &q.nodes_min, d->nodes_min)))
            return found(t, CHANGE_NODES, n);
        q = *asked;
    }
    if (d->tasks > 1 && !asked->nodes_min && !asked->gpu_milli_per_job && (n = largest(t, &q, &q.tasks, d->tasks)))
        return found(t, CHANGE_TASKS, n);
    q = *asked;
    if (d->cpus_task > 1 && (n = largest(t, &q, &q.cpus_per_task, d->cpus_task)))
        return found(t, CHANGE_CPUS, n);
    return false;
}

static bool try_memory(struct suggestion_try *t) {
    struct sched_request q = t->job->request->asked;
    for (uint64_t m = q.memory_per_node_bytes; m > 1 << 20 && t->left; m -= m / 4) {
        q.memory_per_node_bytes = m - m / 4;
        if (starts_as(t, &q))
            return found(t, CHANGE_MEMORY, (int64_t)q.memory_per_node_bytes);
    }
    return false;
}

// One wish is dropped at a time, the one a user most easily does without first: what is suggested is the smallest
// change.
static bool try_wishes(struct suggestion_try *t) {
    const struct sched_request *asked = &t->job->request->asked;
    struct sched_request q = *asked;
    q.gpu_model = NULL;
    if (asked->gpu_model && starts_as(t, &q))
        return found(t, CHANGE_ANY_MODEL, 0);
    q = *asked;
    q.feature_count = 0;
    if (asked->feature_count && starts_as(t, &q))
        return found(t, CHANGE_NO_FEATURES, 0);
    q = *asked;
    q.nodes_only_count = q.nodes_except_count = 0;
    if ((asked->nodes_only_count || asked->nodes_except_count) && starts_as(t, &q))
        return found(t, CHANGE_NO_NODE_LIST, 0);
    q = *asked;
    q.exclusive = false;
    if (asked->exclusive && starts_as(t, &q))
        return found(t, CHANGE_SHARED, 0);
    q = *asked;
    q.reservation = NULL;
    if (asked->reservation && starts_as(t, &q))
        return found(t, CHANGE_NO_RESERVATION, 0);
    q = *asked;
    q.class = SCHED_TRAIN;
    q.preemptible = SCHED_BY_CLASS;
    if (!t->job->request->preemptible && starts_as(t, &q))
        return found(t, CHANGE_TRAIN, 0);
    return false;
}

static bool try_places(struct suggestion_try *t) {
    struct sched_request q = t->job->request->asked;
    for (uint32_t i = 1; i < t->w->rules.partitions.len && q.partition; i++) {
        if (sched_job_option_in(t->job, i)->asked.partition == i || !world_partition(t->w, i))
            continue;
        q.partition = i;
        q.also_count = 0;
        if (starts_as(t, &q))
            return found(t, CHANGE_PARTITION, i);
    }
    q = t->job->request->asked;
    for (uint32_t i = 0; i < t->w->rules.qos.len || i == 0; i++) {
        if (i == q.qos || (i && !world_qos(t->w, i)))
            continue;
        q.qos = i;
        if (starts_as(t, &q))
            return found(t, CHANGE_QOS, i);
        q.qos = t->job->request->asked.qos;
    }
    return false;
}

// The project's quota or limit raised to what the job needs.
static bool try_project(struct suggestion_try *t) {
    const struct world_request *r = t->job->request;
    enum sched_reason reason = t->out->reason;
    if (reason != SCHED_REASON_QUOTA && reason != SCHED_REASON_PROJECT_LIMIT)
        return false;
    unsigned d = r->dim == DIM_CPU ? DIM_CPU : DIM_GPU;
    bool quota = reason == SCHED_REASON_QUOTA;
    for (struct world_project *p = world_project(t->w, r->asked.project); p && p->id;
         p = sched_project_parent(t->w, p)) {
        int64_t had_quota = p->quota[d], had_limit = p->limit[d];
        bool had_rest = p->quota_rest;
        int64_t value = (quota ? p->weight == 0 ? p->used[d] : p->used_nonpreemptible[d] : p->tree_used[d]) +
                        sched_request_amount(t->w, r, d);
        *(quota ? &p->quota[d] : &p->limit[d]) = value;
        if (p->limit[d] >= 0 && p->limit[d] < p->quota[d])
            p->limit[d] = p->quota[d];
        p->quota_rest = false;
        bool works = starts_as(t, &r->asked);
        p->quota[d] = had_quota;
        p->limit[d] = had_limit;
        p->quota_rest = had_rest;
        if (works)
            return found(t, quota ? CHANGE_PROJECT_QUOTA : CHANGE_PROJECT_LIMIT, value);
    }
    return false;
}

static int by_start(const void *pa, const void *pb) {
    const struct world_job *a = *(struct world_job *const *)pa, *b = *(struct world_job *const *)pb;
    if (a->start_ms != b->start_ms)
        return a->start_ms > b->start_ms ? -1 : 1;
    return (a->id < b->id) - (a->id > b->id);
}

// Jobs that would have to end on one node.
struct node_clearing {
    uint32_t node, count, tasks;  // tasks that fit afterwards
    uint64_t ends[EXPLAIN_ENDS_MAX];
};

// The fewest running jobs on the node (latest started first) whose end would make room for a part.
static bool clear_node(const struct world_node *n, const struct sched_demand *d, struct node_clearing *c) {
    struct node_copy s;
    struct world_job *jobs[EXPLAIN_ENDS_MAX];
    uint32_t count = 0, used = 0, need = d->even ? d->node_tasks : 1;
    *c = (struct node_clearing){.node = n->id};
    for (uint32_t i = 0; i < n->jobs.len && count < EXPLAIN_ENDS_MAX; i++)
        jobs[count++] = n->jobs.at[i];
    if (count)
        qsort(jobs, count, sizeof *jobs, by_start);
    sched_node_copy_init(&s, n);
    while (used < count && sched_fit_tasks(&s.node, d) < need)
        sched_node_copy_release(&s, jobs[used++]);
    if (sched_fit_tasks(&s.node, d) < need)
        return false;
    for (uint32_t i = used; i-- > 0;) {  // leave out those that need not end
        sched_node_copy_init(&s, n);
        for (uint32_t k = 0; k < used; k++)
            if (k != i && jobs[k])
                sched_node_copy_release(&s, jobs[k]);
        if (sched_fit_tasks(&s.node, d) >= need)
            jobs[i] = NULL;
    }
    sched_node_copy_init(&s, n);
    for (uint32_t i = 0; i < used; i++)
        if (jobs[i]) {
            sched_node_copy_release(&s, jobs[i]);
            c->ends[c->count++] = jobs[i]->id;
        }
    c->tasks = sched_fit_tasks(&s.node, d);
    return true;
}

static int by_count(const void *pa, const void *pb) {
    const struct node_clearing *a = pa, *b = pb;
    if (a->count != b->count)
        return a->count < b->count ? -1 : 1;
    return (a->node > b->node) - (a->node < b->node);
}

static void end_also(struct sched_explanation *e, uint64_t id) {
    for (uint32_t i = 0; i < e->end_count; i++)
        if (e->ends[i] == id)
            return;
    if (e->end_count < EXPLAIN_ENDS_MAX)
        e->ends[e->end_count++] = id;
}

static bool try_ends(struct suggestion_try *t) {
    const struct world_request *r = t->job->request;
    VEC(struct node_clearing) all = {0};
    const struct sched_fit *f = sched_fit_of(t->w, t->job->request);
    uint32_t best = 0;  // nodes on which at most one job has to end: no others are cheaper
    for (uint32_t i = 0; i < f->nodes_len && best < r->demand.nodes_max; i++) {
        const struct world_node *n = f->allowed[i] ? world_node(t->w, i) : NULL;
        struct node_clearing c;
        if (!n || n->state != SCHED_NODE_UP || !clear_node(n, &r->demand, &c))
            continue;
        vec_push(&all, c);
        best += c.count <= 1;
    }
    if (all.len)
        qsort(all.at, all.len, sizeof *all.at, by_count);
    uint32_t tasks = 0, nodes = 0;
    t->out->end_count = 0;
    for (uint32_t i = 0; i < all.len && (tasks < r->demand.tasks || nodes < r->demand.nodes_min); i++, nodes++) {
        for (uint32_t k = 0; k < all.at[i].count; k++)
            end_also(t->out, all.at[i].ends[k]);
        tasks += all.at[i].tasks;
    }
    vec_done(&all);
    bool works = false;
    if (t->out->end_count && tasks >= r->demand.tasks) {
        struct taken_out_job gone[EXPLAIN_ENDS_MAX];
        for (uint32_t i = 0; i < t->out->end_count; i++)
            sched_job_take_out(t->w, world_find(t->w, t->out->ends[i]), t->now_ms, &gone[i]);
        works = starts_as(t, &r->asked);
        for (uint32_t i = t->out->end_count; i-- > 0;)
            sched_job_put_back(t->w, &gone[i]);
    }
    if (!works)
        t->out->end_count = 0;
    return works && found(t, CHANGE_END_JOBS, t->out->end_count);
}

// Questions are answered in the controller's loop: the larger the world, the fewer passes.
static unsigned passes_for(const struct world *w) {
    size_t n = TRIES_WORK / (w->jobs.running.len + w->jobs.ready + 1);
    return n < TRIES_LEAST ? TRIES_LEAST : n > TRIES_MOST ? TRIES_MOST : (unsigned)n;
}

void sched_suggest_change(struct world *w, struct world_job *j, int64_t now_ms, const struct policy *policy,
                          struct sched_explanation *out) {
    static const struct {
        bool (*try)(struct suggestion_try *);
        bool always;  // also when no passes are left
    } tries[] = {{try_nothing, true}, {try_wishes, false}, {try_limit, false},  {try_gpus, false}, {try_fewer, false},
                 {try_memory, false}, {try_places, false}, {try_project, true}, {try_ends, true}};
    unsigned passes = passes_for(w);
    for (unsigned first = 0; first < 2; first++)
        for (unsigned i = 0; i < sizeof tries / sizeof *tries; i++) {
            struct suggestion_try t = {.w = w,
                                       .job = j,
                                       .now_ms = now_ms,
                                       .policy = policy,
                                       .out = out,
                                       .release = !j->queued,
                                       .first = first,
                                       .passes = &passes};
            t.left = tries[i].always || passes > TRIES_MAX ? TRIES_MAX : passes;
            if (tries[i].try(&t)) {
                out->also_release = t.release;
                out->also_first = t.first;
                return;
            }
        }
}
