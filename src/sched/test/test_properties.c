// What must hold whatever happens, over random clusters, jobs and changes. A seed decides everything;
// a failure is shrunk to the fewest steps that still fail and printed.
#include <inttypes.h>
#include <stdlib.h>

#include "base/rand.h"
#include "cluster.h"

enum { STEPS = 60, SEEDS = 400, NODES = 4, PARTITIONS = 3, PROJECTS = 4, USERS = 3, JOBS = 128, LOOP_MAX = 200 };

enum op { SUBMIT, END, CANCEL, NODE_FLIP, NODE_GONE, PROJECT_EDIT, PROJECT_GONE, QOS_EDIT, QOS_GONE,
          PARTITION_EDIT, ROUND, OP_COUNT };

struct property_step {
    enum op op;
    uint32_t a, b, c, d;
};

struct setup {
    bool tree, limits, qos, fractions, partitions, several;
    int32_t tier[PARTITIONS + 1];
    uint32_t gpus[NODES + 1];
    int64_t quota[PROJECTS + 1];
};

struct property_run {
    struct cluster c;
    struct setup setup;
    uint64_t jobs[JOBS];  // known ids
    uint32_t job_count;
    uint64_t ending[JOBS];
    uint32_t ending_count;
    bool one_partition;  // no job names several
    int64_t reported[JOBS + 1];  // planned starts as they were told last; 0: none
    char why[256];
};

static bool failed(struct property_run *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool failed(struct property_run *r, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(r->why, sizeof r->why, fmt, args);
    va_end(args);
    return false;
}

static void project_put(struct property_run *r, uint32_t id) {
    char name[8];
    snprintf(name, sizeof name, "p%u", id);
    struct sched_project p = {.id = id,
                              .parent = r->setup.tree && id > 2 ? id - 2 : 0,
                              .name = name,
                              .quota_milligpu = r->setup.quota[id] * 1000,
                              .weight_milli = SCHED_UNLIMITED,
                              .limit_milligpu = r->setup.limits && id == 2 ? r->setup.quota[id] * 1000 + 2000
                                                                           : SCHED_UNLIMITED,
                              .quota_cpus = SCHED_UNLIMITED,
                              .limit_cpus = SCHED_UNLIMITED,
                              .interactive_limit_ms = SCHED_UNLIMITED};
    world_project_set(r->c.w, &p, NULL);
    world_preemptions_forget(r->c.w);
}

static void qos_put(struct property_run *r, uint32_t id, uint32_t jobs_max) {
    uint32_t lower = 1;
    struct sched_qos q = {.id = id, .name = id == 1 ? "low" : "high", .priority = id == 1 ? -10 : 10,
                          .max_jobs_per_user = jobs_max, .preempts = &lower, .preempts_count = id == 2};
    test_qos_set(r->c.w, &q, NULL);
    world_preemptions_forget(r->c.w);
}

// Two nodes each, one of them in the next partition too.
static void partition_put(struct property_run *r, uint32_t id, int32_t tier, bool closed) {
    char name[8];
    snprintf(name, sizeof name, "q%u", id);
    struct sched_partition p = {.id = id, .name = name, .nodes = (uint32_t[]){id, id + 1}, .node_count = 2,
                                .tier = tier, .closed = closed};
    r->setup.tier[id] = tier;
    test_partition_set(r->c.w, &p, NULL);
}

static void start_run(struct property_run *r, uint64_t seed) {
    struct rand rnd;
    rand_seed(&rnd, seed * 7919 + 1);
    *r = (struct property_run){.c = {.w = world_new(), .next_id = 1, .now_ms = 1000},
                               .one_partition = r->one_partition};
    sched_policy_default(&r->c.policy);
    r->setup.tree = rand_below(&rnd, 3) == 0;
    r->setup.limits = rand_below(&rnd, 3) == 0;
    r->setup.qos = rand_below(&rnd, 3) == 0;
    r->setup.fractions = rand_below(&rnd, 2);
    for (uint32_t i = 1; i <= NODES; i++) {
        r->setup.gpus[i] = 1 + (uint32_t)rand_below(&rnd, 4);
        cluster_node(&r->c, i, r->setup.gpus[i], rand_below(&rnd, 4) ? "V100" : "A100");
    }
    for (uint32_t i = 1; i <= PROJECTS; i++) {
        r->setup.quota[i] = (int64_t)rand_below(&rnd, 4);
        project_put(r, i);
    }
    qos_put(r, 1, 0);
    qos_put(r, 2, 0);
    r->setup.partitions = rand_below(&rnd, 2);
    r->setup.several = !r->one_partition;
    for (uint32_t i = 1; i <= PARTITIONS; i++)
        partition_put(r, i, rand_below(&rnd, 3) == 0, false);
}

static void end_run(struct property_run *r) {
    world_free(r->c.w);
}

static struct property_step random_step(struct rand *rnd) {
    static const uint8_t often[OP_COUNT] = {30, 12, 4, 2, 2, 2, 1, 1, 1, 2, 30};
    uint32_t sum = 0;
    for (unsigned i = 0; i < OP_COUNT; i++)
        sum += often[i];
    uint32_t k = (uint32_t)rand_below(rnd, sum);
    enum op op = SUBMIT;
    while (k >= often[op])
        k -= often[op++];
    return (struct property_step){op, (uint32_t)rand_u64(rnd), (uint32_t)rand_u64(rnd), (uint32_t)rand_u64(rnd),
                         (uint32_t)rand_u64(rnd)};
}

static void submit(struct property_run *r, const struct property_step *s) {
    if (r->job_count == JOBS)
        return;
    struct sched_request q = {.project = 1 + s->a % PROJECTS, .user = 1 + s->b % USERS, .cpus_per_task = 1 + s->c % 3};
    switch (s->d % 10) {
    case 0: q.gpu_milli_per_task = 2000; break;
    case 1:
        q.nodes_min = 2;
        if (s->c % 2)
            q.gpu_milli_per_job = 3000;  // two on one node, one on the other
        else
            q.gpu_milli_per_node = 1000;
        break;
    case 2:
        q.tasks = 3;
        q.gpu_milli_per_task = 1000;
        break;
    case 3: q.gpu_milli_per_task = r->setup.fractions ? 400 : 1000; break;
    case 4: q.gpu_memory_bytes = r->setup.fractions ? 8ULL << 30 : 0; break;
    case 5: q.exclusive = s->c % 3 == 0; break;
    case 6:
        q.gpu_milli_per_task = 1000;
        q.gpu_model = s->c % 2 ? "A100" : "V100|A100";
        break;
    default: q.gpu_milli_per_task = 1000;
    }
    if (s->c % 7 == 0)
        q.class = SCHED_INTERACTIVE;
    if (r->setup.qos && s->b % 4 == 0)
        q.qos = 1 + s->b / 4 % 2;
    uint32_t also[] = {1 + s->a / 11 % PARTITIONS, 1 + s->b / 11 % PARTITIONS};
    if (r->setup.partitions && s->c % 5) {  // one, or wherever of several it can start first
        q.partition = 1 + s->d / 11 % PARTITIONS;
        q.also = also;
        q.also_count = r->setup.several ? s->c % 3 : 0;
    }
    r->jobs[r->job_count++] = cluster_submit(&r->c, &q);
}

static uint64_t nth(const struct property_run *r, uint32_t n, bool running) {
    uint64_t found[JOBS];
    uint32_t count = 0;
    for (uint32_t i = 0; i < r->job_count; i++) {
        struct sched_job_view v;
        if (world_job(r->c.w, r->jobs[i], &v) &&
            (running ? v.state == SCHED_JOB_RUNNING : v.state == SCHED_JOB_PENDING))
            found[count++] = r->jobs[i];
    }
    return count ? found[n % count] : 0;
}

static bool same_decisions(const struct sched_decisions *a, const struct sched_decisions *b) {
    if (a->starts.len != b->starts.len || a->preempts.len != b->preempts.len || a->plans.len != b->plans.len)
        return false;
    for (uint32_t i = 0; i < a->starts.len; i++) {
        const struct sched_start *x = &a->starts.at[i], *y = &b->starts.at[i];
        if (x->job != y->job || x->partition != y->partition || x->alloc->node_count != y->alloc->node_count)
            return false;
        for (uint32_t k = 0; k < x->alloc->node_count; k++) {
            const struct sched_alloc_node *m = &x->alloc->nodes[k], *n = &y->alloc->nodes[k];
            if (m->node != n->node || m->cpus != n->cpus || m->tasks != n->tasks || m->gpu_count != n->gpu_count ||
                m->memory_bytes != n->memory_bytes ||
                (m->gpu_count && memcmp(m->gpus, n->gpus, m->gpu_count * sizeof *m->gpus)))
                return false;
        }
    }
    for (uint32_t i = 0; i < a->preempts.len; i++)
        if (a->preempts.at[i].victim != b->preempts.at[i].victim ||
            a->preempts.at[i].for_job != b->preempts.at[i].for_job)
            return false;
    for (uint32_t i = 0; i < a->plans.len; i++)
        if (a->plans.at[i].job != b->plans.at[i].job || a->plans.at[i].start_ms != b->plans.at[i].start_ms)
            return false;
    return true;
}

// Every start is whole, inside what there is, and inside the limits.
static bool check_held(struct property_run *r) {
    uint32_t gpu[NODES + 1][SCHED_GPUS_MAX] = {0}, cpus[NODES + 1] = {0}, jobs[NODES + 1] = {0}, alone[NODES + 1] = {0};
    for (uint32_t i = 0; i < r->job_count; i++) {
        struct sched_job_view v;
        if (!world_job(r->c.w, r->jobs[i], &v) || v.state == SCHED_JOB_PENDING)
            continue;
        const struct sched_request *q = sched_request_asked(v.request);
        uint32_t tasks = 0;
        for (uint32_t k = 0; k < v.alloc->node_count; k++) {
            const struct sched_alloc_node *n = &v.alloc->nodes[k];
            if (k && n->node <= v.alloc->nodes[k - 1].node)
                return failed(r, "job %" PRIu64 ": nodes out of order", v.id);
            if (v.partition && n->node != v.partition && n->node != v.partition + 1)
                return failed(r, "job %" PRIu64 " is outside its partition %u", v.id, v.partition);
            tasks += n->tasks;
            cpus[n->node] += n->cpus;
            jobs[n->node]++;
            alone[n->node] += q->exclusive;
            if (q->gpu_milli_per_job && !n->gpu_count)
                return failed(r, "job %" PRIu64 " has no GPU on node %u", v.id, n->node);
            for (uint32_t g = 0; g < n->gpu_count; g++)
                gpu[n->node][n->gpus[g].index] += n->gpus[g].milli;
        }
        if (q->gpu_milli_per_job && sched_alloc_gpu_milli(v.alloc) != q->gpu_milli_per_job)
            return failed(r, "job %" PRIu64 " has not the GPUs that it asked for", v.id);
        if (tasks != sched_request_tasks(v.request) || (q->nodes_min && v.alloc->node_count != q->nodes_min))
            return failed(r, "job %" PRIu64 " started with %u of %u tasks", v.id, tasks,
                          sched_request_tasks(v.request));
    }
    for (uint32_t n = 1; n <= NODES; n++) {
        if (cpus[n] > 64 || (alone[n] && jobs[n] > 1))
            return failed(r, "node %u: %u cpus, %u jobs", n, cpus[n], jobs[n]);
        for (uint32_t g = 0; g < SCHED_GPUS_MAX; g++)
            if (gpu[n][g] > (g < r->setup.gpus[n] ? 1000U : 0))
                return failed(r, "node %u GPU %u: %u milli granted", n, g, gpu[n][g]);
    }
    return true;
}

static bool tiers_differ(const struct property_run *r, uint64_t job) {
    struct sched_job_view v;
    world_job(r->c.w, job, &v);
    const struct sched_request *q = sched_request_asked(v.request);
    bool differ = false;
    for (uint32_t i = 0; i < q->also_count; i++)
        differ |= r->setup.tier[q->also[i]] != r->setup.tier[q->partition];
    return differ;
}

// With any one of its victims still running the preemptor would not start. Seen only where there is one
// preemptor, as what others were promised is not said.
static bool check_victims(struct property_run *r, const struct sched_decisions *d) {
    if (r->ending_count)
        return true;
    for (uint32_t i = 1; i < d->preempts.len; i++)
        if (d->preempts.at[i].for_job != d->preempts.at[0].for_job)
            return true;
    for (uint32_t i = 0; i < d->preempts.len; i++) {
        uint64_t preemptor = d->preempts.at[i].for_job;
        if (tiers_differ(r, preemptor))
            continue;  // it comes first in one of its partitions: there it takes, also what is dearer than elsewhere
        struct world *w = world_clone(r->c.w);
        struct policy policy = r->c.policy;
        policy.reclaim = false;
        for (uint32_t k = 0; k < r->job_count; k++) {
            struct sched_job_view v;
            if (world_job(w, r->jobs[k], &v) && v.state == SCHED_JOB_PENDING && v.id != preemptor)
                world_job_remove(w, v.id);
        }
        for (uint32_t k = 0; k < d->starts.len; k++)
            if (world_job(r->c.w, d->starts.at[k].job, &(struct sched_job_view){0}) &&
                d->starts.at[k].job != preemptor) {
                struct sched_job_view v;
                world_job(r->c.w, d->starts.at[k].job, &v);
                const struct world_request *q = world_request(w, sched_request_asked(v.request));
                world_job_add(w, &(struct sched_job){.id = v.id, .request = q, .submit_ms = v.submit_ms});
                world_request_unref(w, q);
                world_job_start_in(w, v.id, d->starts.at[k].partition, d->starts.at[k].alloc, r->c.now_ms);
            }
        for (uint32_t k = 0; k < d->preempts.len; k++)
            if (d->preempts.at[k].for_job == preemptor && k != i)
                world_job_end(w, d->preempts.at[k].victim, r->c.now_ms);
        struct sched_decisions again;
        sched_decide(w, r->c.now_ms, &policy, &again);
        bool started = again.starts.len > 0;
        sched_decisions_done(&again);
        world_free(w);
        if (started)
            return failed(r, "job %" PRIu64 " did not need victim %" PRIu64, preemptor, d->preempts.at[i].victim);
    }
    return true;
}

// What a round decided, for reading a failure (SCHED_TRACE=1).
static void print_round(struct property_run *r, const struct sched_decisions *d) {
    struct sched_project_figures f;
    struct sched_job_view v;
    print_message("%" PRId64 " s:", r->c.now_ms / 1000);
    for (uint32_t i = 1; i <= PROJECTS; i++)
        if (world_project_figures(r->c.w, i, &f))
            print_message(" p%u(quota %" PRId64 " share %" PRId64 " used %" PRId64 " queued %" PRId64 ")", i,
                          f.quota_milligpu, f.share_milligpu, f.used_milligpu, f.queued_milligpu);
    for (uint32_t i = 0; i < d->starts.len && world_job(r->c.w, d->starts.at[i].job, &v); i++)
        print_message(" start %" PRIu64 "(p%u %" PRIu64 ")", v.id, sched_request_asked(v.request)->project,
                      sched_request_gpu_milli(v.request));
    for (uint32_t i = 0; i < d->preempts.len && world_job(r->c.w, d->preempts.at[i].victim, &v); i++)
        print_message(" preempt %" PRIu64 "(p%u %" PRIu64 ") for %" PRIu64 " why %d", v.id,
                      sched_request_asked(v.request)->project, sched_request_gpu_milli(v.request),
                      d->preempts.at[i].for_job, d->preempts.at[i].why);
    for (uint32_t i = 0; i < d->plans.len; i++)
        print_message(" plan %" PRIu64, d->plans.at[i].job);
    print_message("\n");
}

static bool was_broken(const struct sched_decisions *d, uint64_t job) {
    for (uint32_t i = 0; i < d->broken.len; i++)
        if (d->broken.at[i].job == job)
            return d->broken.at[i].late > SCHED_LATE_NONE && d->broken.at[i].late < SCHED_LATE_COUNT;
    return false;
}

// No planned start that was told moves later, or is not told any more, without a reason of the closed list.
static bool check_promises(struct property_run *r, const struct sched_decisions *d) {
    int64_t now[JOBS + 1] = {0};
    for (uint32_t i = 0; i < d->plans.len; i++)
        now[d->plans.at[i].job] = d->plans.at[i].start_ms;
    for (uint64_t id = 1; id <= JOBS; id++) {
        struct sched_job_view v;
        bool waits = world_job(r->c.w, id, &v) && v.state == SCHED_JOB_PENDING && v.promised_ms;
        for (uint32_t i = 0; i < d->starts.len; i++)
            waits &= d->starts.at[i].job != id;
        if (waits && r->reported[id] && (!now[id] || now[id] > r->reported[id]) && !was_broken(d, id))
            return failed(r, "job %" PRIu64 " was to start at %" PRId64 ", now %" PRId64 ", for no reason", id,
                          r->reported[id], now[id]);
        r->reported[id] = now[id];
    }
    return true;
}

static bool one_round(struct property_run *r, bool instantly, uint32_t *moves) {
    struct cluster *c = &r->c;
    struct sched_decisions d, again, fresh;
    struct world *copy = world_clone(c->w);
    sched_decide(c->w, c->now_ms, &c->policy, &d);
    sched_decide(c->w, c->now_ms, &c->policy, &again);
    sched_decide(copy, c->now_ms, &c->policy, &fresh);
    bool same = same_decisions(&d, &again), rebuilt = same_decisions(&d, &fresh);
    if (!rebuilt && getenv("SCHED_TRACE"))
        print_round(r, &fresh);
    sched_decisions_done(&again);
    sched_decisions_done(&fresh);
    world_free(copy);
    bool fine = same && rebuilt;
    if (!same)
        failed(r, "the same world gave two different decisions");
    else if (!rebuilt)
        failed(r, "a rebuilt world decides differently");
    if (fine)
        fine = check_victims(r, &d);
    *moves = d.starts.len + d.preempts.len;
    fine = fine && check_promises(r, &d);
    if (getenv("SCHED_TRACE"))
        print_round(r, &d);
    for (uint32_t i = 0; i < d.starts.len; i++)
        if (world_job_start_in(c->w, d.starts.at[i].job, d.starts.at[i].partition, d.starts.at[i].alloc, c->now_ms))
            fine = failed(r, "job %" PRIu64 " started twice", d.starts.at[i].job);
    for (uint32_t i = 0; i < d.preempts.len; i++) {
        world_job_preempt(c->w, &d.preempts.at[i]);
        r->ending[r->ending_count++] = d.preempts.at[i].victim;
    }
    sched_promises_keep(c->w, &d);
    sched_decisions_done(&d);
    // Some victims take longer than others.
    for (uint32_t i = r->ending_count; i-- > 0;)
        if (instantly || i % 2 == 0) {
            cluster_requeue(c, r->ending[i]);
            r->ending[i] = r->ending[--r->ending_count];
        }
    c->now_ms += 1000;
    world_assert(c->w);
    return fine && check_held(r);
}

static bool take_step(struct property_run *r, const struct property_step *s) {
    struct world *w = r->c.w;
    uint32_t node = 1 + s->a % NODES, moves;
    struct sched_node_figures f;
    uint64_t id;
    switch (s->op) {
    case SUBMIT: submit(r, s); break;
    case END:
        if ((id = nth(r, s->a, true)))
            world_job_end(w, id, r->c.now_ms);
        break;
    case CANCEL:
        if ((id = nth(r, s->a, false)))
            world_job_remove(w, id);
        break;
    case NODE_FLIP:
        world_node_state(w, node,
                         s->b % 3       ? SCHED_NODE_UP
                         : s->b / 3 % 2 ? SCHED_NODE_DRAINED
                                        : SCHED_NODE_DOWN);
        break;
    case NODE_GONE:
        if (world_node_figures(w, node, &f))
            world_node_remove(w, node);
        else
            cluster_node(&r->c, node, r->setup.gpus[node], "V100");
        break;
    case PROJECT_EDIT:
        r->setup.quota[1 + s->a % PROJECTS] = s->b % 5;
        project_put(r, 1 + s->a % PROJECTS);
        break;
    case PROJECT_GONE: world_project_remove(w, 1 + s->a % PROJECTS); break;
    case QOS_EDIT: qos_put(r, 1 + s->a % 2, s->b % 4); break;
    case QOS_GONE: world_qos_remove(w, 1 + s->a % 2); break;
    case PARTITION_EDIT: partition_put(r, 1 + s->a % PARTITIONS, s->b % 3 == 0, s->c % 3 == 0); break;
    case ROUND: return one_round(r, false, &moves);
    case OP_COUNT: break;
    }
    world_assert(w);
    return true;
}

// No pending job could start on what lies idle.
static bool check_work_conserving(struct property_run *r) {
    for (uint32_t i = 0; i < r->job_count; i++) {
        struct sched_job_view v;
        if (!world_job(r->c.w, r->jobs[i], &v) || v.state != SCHED_JOB_PENDING)
            continue;
        struct world *w = world_clone(r->c.w);
        for (uint32_t k = 0; k < r->job_count; k++) {
            struct sched_job_view o;
            if (k != i && world_job(w, r->jobs[k], &o) && o.state == SCHED_JOB_PENDING)
                world_job_remove(w, r->jobs[k]);
        }
        struct sched_decisions d;
        struct policy policy = r->c.policy;
        policy.reclaim = false;
        sched_decide(w, r->c.now_ms, &policy, &d);
        bool started = d.starts.len > 0;
        sched_decisions_done(&d);
        world_free(w);
        if (started)
            return failed(r, "job %" PRIu64 " fits and waits", v.id);
    }
    return true;
}

// By hand: is there a legal set of at most two victims with which the job would start?
static bool legal_set(struct property_run *r, const struct sched_job_view *preemptor,
                      const struct sched_job_view *v, uint32_t n) {
    struct sched_project_figures mine, theirs;
    const struct sched_request *q = sched_request_asked(preemptor->request);
    if (!world_project_figures(r->c.w, q->project, &mine))
        return false;
    int64_t amount = (int64_t)sched_request_gpu_milli(preemptor->request);
    if (mine.used_milligpu >= mine.share_milligpu || mine.used_milligpu + amount > mine.share_milligpu)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t project = sched_request_asked(v[i].request)->project;
        int64_t sum = 0, least = INT64_MAX;
        for (uint32_t k = 0; k < n; k++) {
            int64_t held = (int64_t)sched_alloc_gpu_milli(v[k].alloc);
            if (sched_request_asked(v[k].request)->project == project) {
                sum += held;
                least = held < least ? held : least;
            }
        }
        if (project == q->project || !world_project_figures(r->c.w, project, &theirs) ||
            theirs.used_milligpu - sum + least <= theirs.share_milligpu)
            return false;
    }
    struct world *w = world_clone(r->c.w);
    for (uint32_t k = 0; k < r->job_count; k++) {
        struct sched_job_view o;
        if (world_job(w, r->jobs[k], &o) && o.state == SCHED_JOB_PENDING && o.id != preemptor->id)
            world_job_remove(w, o.id);
    }
    for (uint32_t i = 0; i < n; i++)
        world_job_end(w, v[i].id, r->c.now_ms);
    struct sched_decisions d;
    struct policy policy = r->c.policy;
    policy.reclaim = false;
    sched_decide(w, r->c.now_ms, &policy, &d);
    bool starts = d.starts.len > 0;
    sched_decisions_done(&d);
    world_free(w);
    return starts;
}

static bool check_reclaimed(struct property_run *r) {
    struct sched_job_view running[JOBS];
    uint32_t count = 0;
    for (uint32_t i = 0; i < r->job_count; i++) {
        struct sched_job_view v;
        if (world_job(r->c.w, r->jobs[i], &v) && v.state == SCHED_JOB_RUNNING && sched_alloc_gpu_milli(v.alloc) &&
            sched_request_asked(v.request)->class == SCHED_TRAIN && sched_request_asked(v.request)->qos != 2)
            running[count++] = v;  // QoS 2 may preempt and is only taken by QoS
    }
    for (uint32_t i = 0; i < r->job_count; i++) {
        struct sched_job_view t;
        if (!world_job(r->c.w, r->jobs[i], &t) || t.state != SCHED_JOB_PENDING || !sched_request_gpu_milli(t.request) ||
            sched_request_tasks(t.request) > 1 || sched_request_asked(t.request)->class != SCHED_TRAIN ||
            sched_job_reason(r->c.w, t.id) == SCHED_REASON_QOS_LIMIT)
            continue;
        for (uint32_t a = 0; a < count; a++) {
            if (legal_set(r, &t, &running[a], 1))
                return failed(r, "job %" PRIu64 " could have taken %" PRIu64, t.id, running[a].id);
            for (uint32_t b = 0; b < a; b++) {
                struct sched_job_view two[2] = {running[a], running[b]};
                if (legal_set(r, &t, two, 2))
                    return failed(r, "job %" PRIu64 " could have taken %" PRIu64 " and %" PRIu64, t.id,
                                  two[0].id, two[1].id);
            }
        }
    }
    return true;
}

static bool play(struct property_run *r, uint64_t seed, const struct property_step *steps, uint32_t n) {
    start_run(r, seed);
    bool fine = true;
    for (uint32_t i = 0; i < n && fine; i++)
        fine = take_step(r, &steps[i]);
    uint32_t moves = 1, rounds = 0;
    for (bool freed = true; fine && (moves || freed) && rounds < LOOP_MAX; rounds++) {
        freed = r->ending_count > 0;
        fine = one_round(r, true, &moves);
    }
    if (fine && moves)
        fine = failed(r, "still moving after %d rounds: a preemption loop", LOOP_MAX);
    for (int i = 0; i < 5 && fine; i++) {
        fine = one_round(r, true, &moves);
        if (fine && moves)
            fine = failed(r, "moved again after it had come to rest");
    }
    if (fine)
        fine = check_work_conserving(r);
    if (fine && !r->setup.tree)
        fine = check_reclaimed(r);
    end_run(r);
    return fine;
}

static void print_steps(const struct property_step *steps, uint32_t n) {
    static const char *const words[OP_COUNT] = {"submit", "end", "cancel", "node-flip", "node-gone", "project-edit",
                                                "project-gone", "qos-edit", "qos-gone",
                                                "partition-edit", "round"};
    for (uint32_t i = 0; i < n; i++)
        print_message("  %-12s %u %u %u %u\n", words[steps[i].op], steps[i].a, steps[i].b, steps[i].c, steps[i].d);
}

// Leaves out ever smaller runs of steps as long as it still fails.
static uint32_t shrink(struct property_run *r, uint64_t seed, struct property_step *steps, uint32_t n) {
    for (uint32_t chunk = n / 2 ? n / 2 : 1;; chunk /= 2) {
        for (uint32_t at = 0; at + chunk <= n;) {
            struct property_step fewer[STEPS];
            memcpy(fewer, steps, at * sizeof *steps);
            memcpy(fewer + at, steps + at + chunk, (n - at - chunk) * sizeof *steps);
            if (!play(r, seed, fewer, n - chunk)) {
                n -= chunk;
                memcpy(steps, fewer, n * sizeof *steps);
            } else {
                at += chunk;
            }
        }
        if (chunk <= 1)
            return n;
    }
}

static void histories(bool one_partition) {
    const char *from = getenv("SCHED_SEED"), *many = getenv("SCHED_SEEDS");
    uint64_t first = from ? strtoull(from, NULL, 10) : 1, count = many ? strtoull(many, NULL, 10) : from ? 1 : SEEDS;
    for (uint64_t seed = first; seed < first + count; seed++) {
        struct rand rnd;
        struct property_step steps[STEPS];
        static struct property_run r;
        r.one_partition = one_partition;
        rand_seed(&rnd, seed);
        for (unsigned i = 0; i < STEPS; i++)
            steps[i] = random_step(&rnd);
        if (play(&r, seed, steps, STEPS))
            continue;
        uint32_t n = shrink(&r, seed, steps, STEPS);
        play(&r, seed, steps, n);
        print_message("seed %" PRIu64 ", %u steps: %s\n", seed, n, r.why);
        print_steps(steps, n);
        fail();
    }
}

static void holds_over_random_histories(void **state) {
    (void)state;
    histories(false);
}

static void holds_with_one_partition_each(void **state) {
    (void)state;
    histories(true);
}

// A wide job planned behind narrow ones starts no later than first promised.
static void planned_jobs_keep_their_promise(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct rand rnd;
        rand_seed(&rnd, seed);
        struct cluster c = cluster_new(4, 4);
        cluster_project(&c, 1, 0, 16);
        if (seed % 2)
            c.policy.order = POLICY_ORDER_FCFS;
        int64_t promised[NAMES_MAX * 4] = {0}, ends[NAMES_MAX * 4] = {0};
        for (unsigned i = 0; i < 60; i++) {
            struct sched_request q = {.project = 1, .user = 1, .time_limit_ms = 1000 * rand_between(&rnd, 5, 200)};
            if (rand_below(&rnd, 8) == 0) {
                q.nodes_min = 1 + (uint32_t)rand_below(&rnd, 4);
                if (q.nodes_min > 1 && rand_below(&rnd, 2))
                    q.gpu_milli_per_job = 1000 * (4 * q.nodes_min - 1);
                else
                    q.gpu_milli_per_node = 4000;
            } else {
                q.gpu_milli_per_task = 1000 * (uint32_t)rand_between(&rnd, 1, 2);
            }
            cluster_submit(&c, &q);
        }
        for (int64_t t = 0; t < 4000 && world_pending(c.w); t++, c.now_ms += 1000) {
            for (uint64_t id = 1; id < c.next_id; id++)
                if (ends[id] && ends[id] <= c.now_ms) {
                    world_job_end(c.w, id, c.now_ms);
                    ends[id] = 0;
                }
            struct sched_decisions d;
            sched_decide(c.w, c.now_ms, &c.policy, &d);
            for (uint32_t i = 0; i < d.starts.len; i++) {
                struct sched_job_view v;
                uint64_t id = d.starts.at[i].job;
                world_job_start(c.w, id, d.starts.at[i].alloc, c.now_ms);
                assert_true(world_job(c.w, id, &v));
                int64_t limit = v.limit_end_ms - c.now_ms;
                ends[id] = c.now_ms + (rand_below(&rnd, 2) ? limit : 1000 * rand_between(&rnd, 1, limit / 1000));
                if (promised[id] && c.now_ms > promised[id])
                    fail_msg("seed %" PRIu64 ": job %" PRIu64 " was promised %" PRId64 ", starts %" PRId64, seed, id,
                             promised[id], c.now_ms);
            }
            // only the first promise counts; use must not change the order, so it is one user's queue
            for (uint32_t i = 0; i < d.plans.len; i++)
                if (!promised[d.plans.at[i].job])
                    promised[d.plans.at[i].job] = d.plans.at[i].start_ms;
            sched_promises_keep(c.w, &d);
            sched_decisions_done(&d);
        }
        assert_int_equal(world_pending(c.w), 0);
        world_free(c.w);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(holds_over_random_histories),
        cmocka_unit_test(holds_with_one_partition_each),
        cmocka_unit_test(planned_jobs_keep_their_promise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
