// What must hold with optional workers, whatever happens: over random clusters, jobs, elastic jobs and changes.
// - Every other job is decided as if no optional worker were there: starts, places, victims and planned starts.
// - What runs fits: processes of jobs whose start waits for workers in their way do not run before these have ended.
// - Whole jobs or nothing; the same decisions from a copied world.
// - When nothing comes or ends, everything comes to rest, and equal projects have the same within one worker.
// SCHED_SEED=n repeats one history, SCHED_SEEDS=n runs more.
#include <inttypes.h>
#include <stdlib.h>

#include "base/rand.h"
#include "cluster.h"

enum {
    SEEDS = 300,
    EVENTS = 80,
    NODES = 4,
    PROJECTS = 3,
    JOBS = 300,
    MINUTE = 60000,
    ROUNDS_MAX = 300,
    AFTER_MAX = 64
};

struct elastic_job {
    uint64_t id;
    bool ending;                // it was told to end
    uint64_t after[AFTER_MAX];  // workers in the way of its start
    uint32_t after_count;
};

struct optional_run {
    struct cluster c;
    struct rand rnd;
    uint64_t seed;
    struct elastic_job jobs[JOBS];
    uint32_t job_count;
    uint32_t gpus[NODES + 1];
    bool fractions, rules, equal;
    int64_t next_ms;
};

static uint32_t below(struct optional_run *r, uint32_t n) {
    return (uint32_t)rand_below(&r->rnd, n);
}

static bool one_in(struct optional_run *r, uint32_t n) {
    return below(r, n) == 0;
}

static void project_put(struct optional_run *r, uint32_t id) {
    char name[8];
    snprintf(name, sizeof name, "p%u", id);
    struct sched_project p = {
        .id = id,
        .parent = !r->equal && r->rules && id == 3 && one_in(r, 2) ? 1 : 0,
        .name = name,
        .quota_milligpu = r->equal ? 1000 : below(r, 4) * 1000,
        .weight_milli = !r->equal && r->rules && one_in(r, 5) ? 0 : (int64_t)SCHED_UNLIMITED,
        .limit_milligpu = !r->equal && r->rules && one_in(r, 4) ? 3000 : (int64_t)SCHED_UNLIMITED,
        .quota_cpus = SCHED_UNLIMITED,
        .limit_cpus = SCHED_UNLIMITED,
        .interactive_limit_ms = SCHED_UNLIMITED};
    assert_int_equal(world_project_set(r->c.w, &p, NULL), 0);
    world_preemptions_forget(r->c.w);
}

static void begin(struct optional_run *r, uint64_t seed, bool equal) {
    *r = (struct optional_run){.c = cluster_new(0, 0), .seed = seed, .equal = equal};
    rand_seed(&r->rnd, seed * 31 + equal);
    r->fractions = !equal && one_in(r, 2);
    r->rules = one_in(r, 2);
    r->c.policy.grace_ms = one_in(r, 3) ? 0 : 30000;
    r->c.policy.plan_depth = 1 + below(r, 3);
    r->c.policy.min_runtime_ms = one_in(r, 4) ? MINUTE : 0;
    r->c.policy.placement = (enum policy_placement)below(r, 4);
    for (uint32_t i = 1; i <= NODES; i++) {
        r->gpus[i] = 1 + below(r, 4);
        cluster_node(&r->c, i, r->gpus[i], !equal && one_in(r, 4) ? "A100" : "V100");
    }
    for (uint32_t i = 1; i <= PROJECTS; i++)
        project_put(r, i);
    for (uint32_t i = 1; i <= 2; i++) {
        struct sched_partition p = {.id = i,
                                    .name = i == 1 ? "one" : "two",
                                    .nodes = (uint32_t[]){i, i + 1, i + 2},
                                    .node_count = 3,
                                    .tier = (int32_t)i - 1,
                                    .max_time_ms = SCHED_UNLIMITED,
                                    .default_time_ms = SCHED_UNLIMITED};
        assert_int_equal(world_partition_set(r->c.w, &p, NULL), 0);
    }
}

static uint64_t add(struct optional_run *r, const struct sched_request *q, uint64_t group) {
    const struct world_request *req = world_request(r->c.w, q);
    uint64_t id = r->c.next_id++;
    struct sched_job j = {.id = id, .request = req, .submit_ms = r->c.now_ms, .group = group};
    assert_int_equal(world_job_add(r->c.w, &j), 0);
    world_request_unref(r->c.w, req);
    r->jobs[r->job_count++] = (struct elastic_job){.id = id};
    return id;
}

static struct sched_request shape(struct optional_run *r) {
    struct sched_request q = {
        .project = 1 + below(r, PROJECTS), .user = 1 + below(r, 2), .gpu_milli_per_task = 1000};
    if (r->equal)
        return q;
    q.cpus_per_task = 1 + below(r, 3) * 16;
    switch (below(r, 8)) {
    case 0: q.gpu_milli_per_task = 2000; break;
    case 1: q.gpu_milli_per_task = r->fractions ? 300 : 1000; break;
    case 2: q.gpu_milli_per_task = 0; break;
    case 3:
        q.nodes_min = 2;
        if (below(r, 2)) {
            q.gpu_milli_per_task = 0;
            q.gpu_milli_per_job = 3000;
        }
        break;
    case 4: q.tasks = 3; break;
    case 5: q.exclusive = one_in(r, 2); break;
    case 6: q.gpu_model = "A100|V100"; break;
    default: break;
    }
    if (one_in(r, 4))
        q.memory_per_node_bytes = 200ULL << 30;
    if (one_in(r, 3))
        q.partition = 1 + below(r, 2);
    if (q.partition && one_in(r, 2)) {
        static const uint32_t both[] = {1, 2};
        q.also = both;
        q.also_count = 2;
    }
    return q;
}

static void submit(struct optional_run *r) {
    struct sched_request q = shape(r);
    q.time_limit_ms = (int64_t)(1 + below(r, 10)) * MINUTE;
    if (!r->equal && one_in(r, 6))
        q.class = SCHED_INTERACTIVE;
    struct sched_request parts[2] = {shape(r), shape(r)};
    if (!r->equal && !q.also_count && one_in(r, 4)) {  // parts of different shapes that start together
        q.parts = parts;
        q.part_count = 1 + below(r, 2);
    }
    if (r->job_count < JOBS)
        add(r, &q, 0);
}

static void submit_workers(struct optional_run *r) {
    struct sched_request q = shape(r);
    q.optional = true;
    if (one_in(r, 3))
        q.time_limit_ms = (int64_t)(1 + below(r, 5)) * MINUTE;
    // One group per project where projects are compared.
    uint64_t group = r->equal ? 1000 + q.project : 1000 + below(r, 6);
    if (r->equal) {
        q.user = 1;
        q.time_limit_ms = 0;
    }
    for (uint32_t n = 1 + below(r, 8); n > 0 && r->job_count < JOBS; n--) {
        uint64_t id = add(r, &q, group);
        if (one_in(r, 3))
            world_job_rank(r->c.w, id, (int32_t)below(r, 3) - 1);
    }
}

static struct elastic_job *known(struct optional_run *r, uint64_t id) {
    for (uint32_t i = 0; i < r->job_count; i++)
        if (r->jobs[i].id == id)
            return &r->jobs[i];
    return NULL;
}

// It is gone, for those that wait for its end as well.
static void gone(struct optional_run *r, uint64_t id) {
    for (uint32_t i = 0; i < r->job_count; i++)
        for (uint32_t k = 0; k < r->jobs[i].after_count;)
            if (r->jobs[i].after[k] == id)
                r->jobs[i].after[k] = r->jobs[i].after[--r->jobs[i].after_count];
            else
                k++;
}

static void end_job(struct optional_run *r, struct elastic_job *e, bool again) {
    struct sched_job_view v;
    assert_true(world_job(r->c.w, e->id, &v));
    const struct world_request *req = world_request(r->c.w, sched_request_asked(v.request));
    struct sched_job j = {.id = e->id, .request = req, .submit_ms = v.submit_ms, .group = v.group};
    uint32_t count;
    struct sched_preemption *by = world_job_preemptions(r->c.w, e->id, &count);
    assert_int_equal(world_job_end(r->c.w, e->id, r->c.now_ms), 0);
    gone(r, e->id);
    e->ending = false;
    e->after_count = 0;
    if (again) {
        assert_int_equal(world_job_add(r->c.w, &j), 0);
        world_job_preemptions_set(r->c.w, e->id, by, count);
        world_job_rank(r->c.w, e->id, v.rank);
    } else {
        *e = r->jobs[--r->job_count];
    }
    free(by);
    world_request_unref(r->c.w, req);
}

// Processes run on a node: those of workers, and of jobs that no longer wait for any.
static void check_fits(struct optional_run *r) {
    for (uint32_t n = 1; n <= NODES; n++) {
        uint32_t cpus = 0, gpus[SCHED_GPUS_MAX] = {0};
        uint64_t memory = 0;
        for (uint32_t i = 0; i < r->job_count; i++) {
            struct sched_job_view v;
            assert_true(world_job(r->c.w, r->jobs[i].id, &v));
            if (v.state == SCHED_JOB_PENDING || r->jobs[i].after_count)
                continue;
            for (uint32_t k = 0; k < v.alloc->node_count; k++) {
                const struct sched_alloc_node *a = &v.alloc->nodes[k];
                if (a->node != n)
                    continue;
                cpus += a->cpus;
                memory += a->memory_bytes;
                for (uint32_t g = 0; g < a->gpu_count; g++)
                    gpus[a->gpus[g].index] += a->gpus[g].milli;
            }
        }
        bool fits = cpus <= 64 && memory <= 512ULL << 30;
        for (uint32_t g = 0; g < r->gpus[n]; g++)
            fits &= gpus[g] <= SCHED_GPU;
        if (!fits)
            fail_msg("seed %" PRIu64 ": what runs on node %u does not fit", r->seed, n);
    }
}

static void check_whole(struct optional_run *r, const struct sched_start *s) {
    struct sched_job_view v;
    uint32_t tasks = 0;
    assert_true(world_job(r->c.w, s->job, &v));
    for (uint32_t k = 0; k < s->alloc->node_count; k++)
        tasks += s->alloc->nodes[k].tasks;
    if (tasks != sched_request_tasks(v.request))
        fail_msg("seed %" PRIu64 ": job %" PRIu64 " gets %u tasks", r->seed, s->job, tasks);
}

// Entirely free GPUs of a node are alike here: which of them a job gets may depend on the workers there.
static bool same_gpus(const struct sched_alloc_node *x, const struct sched_alloc_node *y) {
    bool same = x->gpu_count == y->gpu_count;
    for (uint32_t g = 0; same && g < x->gpu_count; g++)
        same = x->gpus[g].milli == y->gpus[g].milli &&
               (x->gpus[g].index == y->gpus[g].index || x->gpus[g].milli == SCHED_GPU);
    return same;
}

static bool same_alloc(const struct sched_alloc *a, const struct sched_alloc *b) {
    bool same = a->node_count == b->node_count;
    for (uint32_t i = 0; same && i < a->node_count; i++) {
        const struct sched_alloc_node *x = &a->nodes[i], *y = &b->nodes[i];
        same = x->node == y->node && x->cpus == y->cpus && x->tasks == y->tasks &&
               x->memory_bytes == y->memory_bytes && same_gpus(x, y);
    }
    return same;
}

static bool same_start(const struct sched_start *a, const struct sched_start *b) {
    return a->job == b->job && a->partition == b->partition && a->backfill == b->backfill &&
           a->optional == b->optional && same_alloc(a->alloc, b->alloc);
}

static bool same_preempt(const struct sched_preempt *a, const struct sched_preempt *b) {
    return a->victim == b->victim && a->for_job == b->for_job && a->why == b->why &&
           a->grace_ms == b->grace_ms && a->grounds.by == b->grounds.by &&
           a->grounds.share == b->grounds.share && a->grounds.by_share == b->grounds.by_share &&
           a->grounds.claim == b->grounds.claim;
}

static bool same_plans(const struct sched_decisions *a, const struct sched_decisions *b) {
    bool same = a->plans.len == b->plans.len && a->looked_at == b->looked_at;
    for (uint32_t i = 0; same && i < a->plans.len; i++)
        same = a->plans.at[i].job == b->plans.at[i].job &&
               a->plans.at[i].start_ms == b->plans.at[i].start_ms &&
               a->plans.at[i].partition == b->plans.at[i].partition;
    return same;
}

// `less` has the decisions of a world without optional workers.
static void check_same(struct optional_run *r, const struct sched_decisions *d,
                       const struct sched_decisions *less, bool all) {
    uint32_t starts = 0, preempts = 0;
    while (starts < d->starts.len && (all || !d->starts.at[starts].optional))
        starts++;
    while (preempts < d->preempts.len && (all || d->preempts.at[preempts].why != SCHED_PREEMPT_OPTIONAL))
        preempts++;
    bool same = starts == less->starts.len && preempts == less->preempts.len && same_plans(d, less);
    for (uint32_t i = 0; same && i < starts; i++)
        same = same_start(&d->starts.at[i], &less->starts.at[i]);
    for (uint32_t i = 0; same && i < preempts; i++)
        same = same_preempt(&d->preempts.at[i], &less->preempts.at[i]);
    for (uint32_t i = starts; same && i < d->starts.len; i++)
        same = d->starts.at[i].optional;
    for (uint32_t i = preempts; same && i < d->preempts.len; i++)
        same = d->preempts.at[i].why == SCHED_PREEMPT_OPTIONAL;
    if (!same)
        fail_msg("seed %" PRIu64 ": %s decides otherwise", r->seed,
                 all ? "a copy" : "a world without optional workers");
}

static void check_alike(struct optional_run *r, const struct sched_decisions *d) {
    struct sched_decisions other;
    struct world *w = world_clone(r->c.w);
    world_assert(w);
    sched_decide(w, r->c.now_ms, &r->c.policy, &other);
    check_same(r, d, &other, true);
    sched_decisions_done(&other);
    for (uint32_t i = 0; i < r->job_count; i++) {
        struct sched_job_view v;
        if (world_job(w, r->jobs[i].id, &v) && v.optional)
            world_job_remove(w, r->jobs[i].id);
    }
    world_assert(w);
    sched_decide(w, r->c.now_ms, &r->c.policy, &other);
    check_same(r, d, &other, false);
    sched_decisions_done(&other);
    world_free(w);
}

static void carry_out(struct optional_run *r, const struct sched_decisions *d) {
    for (uint32_t i = 0; i < d->starts.len; i++) {
        const struct sched_start *s = &d->starts.at[i];
        struct elastic_job *e = known(r, s->job);
        check_whole(r, s);
        assert_int_equal(world_job_start_in(r->c.w, s->job, s->partition, s->alloc, r->c.now_ms), 0);
        assert_true(s->after_count <= AFTER_MAX);
        for (uint32_t k = 0; k < s->after_count; k++)
            e->after[e->after_count++] = s->after[k];
    }
    for (uint32_t i = 0; i < d->preempts.len; i++) {
        assert_int_equal(world_job_preempt(r->c.w, &d->preempts.at[i]), 0);
        known(r, d->preempts.at[i].victim)->ending = true;
    }
    sched_promises_keep(r->c.w, d);
}

// A worker that is waited for was told to end.
static void check_waits(struct optional_run *r) {
    for (uint32_t i = 0; i < r->job_count; i++) {
        struct sched_job_view v;
        for (uint32_t k = 0; k < r->jobs[i].after_count; k++) {
            assert_true(world_job(r->c.w, r->jobs[i].after[k], &v));
            if (v.state != SCHED_JOB_ENDING || !v.optional)
                fail_msg("seed %" PRIu64 ": nobody told worker %" PRIu64 " to end", r->seed, v.id);
        }
    }
}

static uint32_t one_round(struct optional_run *r) {
    struct sched_decisions d;
    sched_decide(r->c.w, r->c.now_ms, &r->c.policy, &d);
    world_assert(r->c.w);
    check_alike(r, &d);
    carry_out(r, &d);
    world_assert(r->c.w);
    check_fits(r);
    check_waits(r);
    uint32_t n = d.starts.len + d.preempts.len;
    r->next_ms = d.next_ms;
    sched_decisions_done(&d);
    return n;
}

// Some of those that were told to end do; `all`: every one.
static uint32_t end_told(struct optional_run *r, bool all) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->job_count; i++)
        if (r->jobs[i].ending && (all || one_in(r, 2))) {
            end_job(r, &r->jobs[i], true);
            n++;
        }
    return n;
}

static struct elastic_job *any(struct optional_run *r, bool running) {
    for (uint32_t tries = 0; tries < 20 && r->job_count; tries++) {
        struct elastic_job *e = &r->jobs[below(r, r->job_count)];
        struct sched_job_view v;
        assert_true(world_job(r->c.w, e->id, &v));
        if ((v.state != SCHED_JOB_PENDING) == running)
            return e;
    }
    return NULL;
}

static void event(struct optional_run *r) {
    struct elastic_job *e;
    switch (below(r, 16)) {
    case 0:
    case 1:
    case 2: submit(r); break;
    case 3:
    case 4: submit_workers(r); break;
    case 5:
    case 6:
        if ((e = any(r, true)))
            end_job(r, e, false);
        break;
    case 7:
        if ((e = any(r, false)))
            end_job(r, e, false);
        break;
    case 8:
        if (!r->equal)
            world_node_state(r->c.w, 1 + below(r, NODES), one_in(r, 3) ? SCHED_NODE_DRAINED : SCHED_NODE_UP);
        break;
    case 9:
        if (!r->equal)
            project_put(r, 1 + below(r, PROJECTS));
        break;
    case 10: r->c.now_ms += (int64_t)below(r, 4) * MINUTE; break;
    case 11:
        if ((e = any(r, false)))
            world_job_hold(r->c.w, e->id, one_in(r, 3) ? SCHED_HOLD_USER : SCHED_HOLD_NONE);
        break;
    case 12: end_told(r, false); break;
    default: one_round(r); break;
    }
    r->c.now_ms += below(r, 3) * 1000;
    world_assert(r->c.w);
    check_fits(r);
}

// Rounds until nothing moves, also later: until no further pass is asked for, or for some time.
static void come_to_rest(struct optional_run *r) {
    uint32_t rounds = 0, quiet = 0;
    while (quiet < 8) {
        uint32_t n = one_round(r) + end_told(r, true);
        quiet = n ? 0 : quiet + 1;
        if (++rounds == ROUNDS_MAX)
            fail_msg("seed %" PRIu64 ": still moving after %u rounds", r->seed, rounds);
        bool asked = r->next_ms != INT64_MAX && r->next_ms > r->c.now_ms;
        r->c.now_ms = asked && !n ? r->next_ms : r->c.now_ms + 1000;
    }
}

// Of two equal projects, the one with waiting workers has at most one worker less.
static void check_equal(struct optional_run *r) {
    struct sched_project_figures f[PROJECTS + 1];
    bool waits[PROJECTS + 1] = {0};
    for (uint32_t i = 0; i < r->job_count; i++) {
        struct sched_job_view v;
        assert_true(world_job(r->c.w, r->jobs[i].id, &v));
        if (v.optional && v.state == SCHED_JOB_PENDING && !v.hold)
            waits[sched_request_asked(v.request)->project] = true;
    }
    for (uint32_t p = 1; p <= PROJECTS; p++)
        assert_true(world_project_figures(r->c.w, p, &f[p]));
    for (uint32_t a = 1; a <= PROJECTS; a++)
        for (uint32_t b = 1; b <= PROJECTS; b++)
            if (waits[b] && f[a].optional_running &&
                f[a].used_milligpu + f[a].optional_milligpu >
                    f[b].used_milligpu + f[b].optional_milligpu + 1000)
                fail_msg("seed %" PRIu64 ": project %u has %" PRId64 "+%" PRId64
                         ", project %u waits with %" PRId64 "+%" PRId64,
                         r->seed, a, f[a].used_milligpu, f[a].optional_milligpu, b, f[b].used_milligpu,
                         f[b].optional_milligpu);
}

static void histories(bool equal) {
    const char *from = getenv("SCHED_SEED"), *many = getenv("SCHED_SEEDS");
    uint64_t first = from ? strtoull(from, NULL, 10) : 1, count = many   ? strtoull(many, NULL, 10)
                                                                  : from ? 1
                                                                         : SEEDS;
    static struct optional_run r;
    for (uint64_t seed = first; seed < first + count; seed++) {
        begin(&r, seed, equal);
        for (unsigned i = 0; i < EVENTS; i++)
            event(&r);
        come_to_rest(&r);
        if (equal)
            check_equal(&r);
        world_free(r.c.w);
    }
}

static void holds_over_random_histories(void **state) {
    (void)state;
    histories(false);
}

static void equal_projects_become_equal(void **state) {
    (void)state;
    histories(true);
}

// As in test_properties, with optional workers on everything that is free. Jobs run to their limits, workers end when
// their grace time is over: a job planned at least that far ahead has its place, without workers, when it was promised.
// Only if another job starts within the grace time before can its place become another one, and it waits for part of it.
static void planned_starts_are_not_late(void **state) {
    (void)state;
    enum { GROUP = 1000, WORKERS = 20, GRACE = 30000 };
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct rand rnd;
        rand_seed(&rnd, seed);
        struct cluster c = cluster_new(4, 4);
        cluster_project(&c, 1, 0, 16);
        cluster_project(&c, 2, 0, 0);
        c.policy.order = POLICY_ORDER_FCFS;
        c.policy.grace_ms = GRACE;
        c.policy.reclaim = false;
        int64_t promised[128] = {0}, ends[128] = {0}, started = 0;
        for (unsigned i = 0; i < 60; i++) {
            struct sched_request q = {
                .project = 1, .user = 1, .time_limit_ms = 1000 * rand_between(&rnd, 40, 300)};
            if (rand_below(&rnd, 5) == 0) {
                q.nodes_min = 1 + (uint32_t)rand_below(&rnd, 4);
                q.gpu_milli_per_node = 1000 * (uint32_t)rand_between(&rnd, 1, 4);
            } else {
                q.gpu_milli_per_task = 1000 * (uint32_t)rand_between(&rnd, 1, 3);
            }
            cluster_submit(&c, &q);
        }
        uint64_t jobs = c.next_id;
        struct sched_request worker = {.project = 2, .user = 2, .gpu_milli_per_task = 1000, .optional = true};
        const struct world_request *req = world_request(c.w, &worker);
        for (unsigned i = 0; i < WORKERS; i++)
            world_job_add(c.w, &(struct sched_job){.id = c.next_id++, .request = req, .group = GROUP});
        for (int64_t t = 0; t < 6000 && world_pending(c.w); t++, c.now_ms += 1000) {
            for (uint64_t id = 1; id < c.next_id; id++)
                if (ends[id] && ends[id] <= c.now_ms) {
                    ends[id] = 0;
                    world_job_end(c.w, id, c.now_ms);
                    if (id >= jobs)
                        world_job_add(c.w, &(struct sched_job){.id = id, .request = req, .group = GROUP});
                }
            struct sched_decisions d;
            sched_decide(c.w, c.now_ms, &c.policy, &d);
            for (uint32_t i = 0; i < d.preempts.len; i++) {
                world_job_preempt(c.w, &d.preempts.at[i]);
                ends[d.preempts.at[i].victim] = c.now_ms + GRACE;
            }
            sched_promises_keep(c.w, &d);
            for (uint32_t i = 0; i < d.starts.len; i++) {
                const struct sched_start *s = &d.starts.at[i];
                struct sched_job_view v;
                world_job_start(c.w, s->job, s->alloc, c.now_ms);
                assert_true(world_job(c.w, s->job, &v));
                int64_t there = c.now_ms;
                for (uint32_t k = 0; k < s->after_count; k++)
                    there = ends[s->after[k]] > there ? ends[s->after[k]] : there;
                if (s->job < jobs)
                    ends[s->job] = v.limit_end_ms;
                bool moved = started > c.now_ms - GRACE && there < promised[s->job] + GRACE;
                if (promised[s->job] && there > promised[s->job] && !moved)
                    fail_msg("seed %" PRIu64 ": job %" PRIu64 " was promised %" PRId64
                             ", has its place at %" PRId64,
                             seed, s->job, promised[s->job], there);
            }
            for (uint32_t i = 0; i < d.starts.len; i++)
                started = d.starts.at[i].optional ? started : c.now_ms;
            for (uint32_t i = 0; i < d.plans.len; i++)
                if (!promised[d.plans.at[i].job])
                    promised[d.plans.at[i].job] =
                        d.plans.at[i].start_ms > c.now_ms + GRACE ? d.plans.at[i].start_ms : c.now_ms + GRACE;
            sched_decisions_done(&d);
        }
        assert_int_equal(world_pending(c.w), 0);
        world_request_unref(c.w, req);
        world_free(c.w);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(holds_over_random_histories),
        cmocka_unit_test(equal_projects_become_equal),
        cmocka_unit_test(planned_starts_are_not_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
