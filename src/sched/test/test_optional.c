// Optional workers of elastic jobs: they use what others leave, change no other decision, and give way.
#include <inttypes.h>
#include <stdlib.h>

#include "cluster.h"
#include "sched/explain.h"

enum { HOUR = 3600 * 1000 };

static struct sched_request worker(uint32_t project, uint32_t gpus) {
    return (struct sched_request){
        .project = project, .user = 1, .gpu_milli_per_task = gpus * 1000, .optional = true};
}

static uint64_t add_worker(struct cluster *c, const struct sched_request *q, uint64_t group) {
    const struct world_request *r = world_request(c->w, q);
    uint64_t id = c->next_id++;
    struct sched_job j = {.id = id, .request = r, .submit_ms = c->now_ms, .group = group};
    assert_int_equal(world_job_add(c->w, &j), 0);
    world_request_unref(c->w, r);
    return id;
}

static void add_workers(struct cluster *c, uint32_t project, uint64_t group, uint32_t n) {
    struct sched_request q = worker(project, 1);
    for (uint32_t i = 0; i < n; i++)
        add_worker(c, &q, group);
}

static void add_again(struct cluster *c, uint64_t id) {
    struct sched_job_view v;
    assert_true(world_job(c->w, id, &v));
    const struct world_request *r = world_request(c->w, sched_request_asked(v.request));
    struct sched_job j = {.id = id, .request = r, .submit_ms = v.submit_ms, .group = v.group};
    assert_int_equal(world_job_end(c->w, id, c->now_ms), 0);
    assert_int_equal(world_job_add(c->w, &j), 0);
    world_request_unref(c->w, r);
}

static void carry_out(struct cluster *c, const struct sched_decisions *d) {
    for (uint32_t i = 0; i < d->starts.len; i++)
        assert_int_equal(world_job_start_in(c->w, d->starts.at[i].job, d->starts.at[i].partition,
                                            d->starts.at[i].alloc, c->now_ms),
                         0);
    for (uint32_t i = 0; i < d->preempts.len; i++)
        assert_int_equal(world_job_preempt(c->w, &d->preempts.at[i]), 0);
    world_assert(c->w);
}

// Decides and carries out; workers that were told to end do so at once. Returns how much happened.
static uint32_t settle_once(struct cluster *c) {
    struct sched_decisions d;
    sched_decide(c->w, c->now_ms, &c->policy, &d);
    world_assert(c->w);
    carry_out(c, &d);
    uint32_t n = d.starts.len + d.preempts.len;
    for (uint32_t i = 0; i < d.preempts.len; i++)
        add_again(c, d.preempts.at[i].victim);
    world_assert(c->w);
    sched_decisions_done(&d);
    c->now_ms += 40000;
    return n;
}

static uint32_t running_workers(struct cluster *c, uint32_t project) {
    struct sched_project_figures f;
    assert_true(world_project_figures(c->w, project, &f));
    return f.optional_running;
}

static void grows_by_all_that_fits_in_one_pass(void **state) {
    (void)state;
    struct cluster c = cluster_new(2, 4);
    cluster_project(&c, 1, 0, 2);
    add_workers(&c, 1, 100, 20);
    assert_int_equal(settle_once(&c), 8);
    assert_int_equal(running_workers(&c, 1), 8);
    assert_int_equal(world_optional_waiting(c.w), 12);
    assert_int_equal(settle_once(&c), 0);
    // Nothing of it is counted as used or held.
    struct sched_project_figures f;
    struct sched_node_figures n;
    world_project_figures(c.w, 1, &f);
    world_node_figures(c.w, 1, &n);
    assert_int_equal(f.used_milligpu, 0);
    assert_int_equal(f.running + f.pending, 0);
    assert_int_equal(f.optional_milligpu, 8000);
    assert_int_equal(n.gpu_milli_free, 4000);
    assert_int_equal(n.optional_gpu_milli, 4000);
    assert_int_equal(world_pending(c.w) + world_running(c.w), 0);
    world_free(c.w);
}

static void a_job_starts_at_once_and_waits_for_the_workers_in_its_way(void **state) {
    (void)state;
    struct cluster c = cluster_new(1, 4);
    cluster_project(&c, 1, 0, 2);
    cluster_project(&c, 2, 0, 2);
    add_workers(&c, 1, 100, 4);
    settle_once(&c);
    struct sched_decisions d;
    uint64_t job =
        cluster_submit(&c, &(struct sched_request){.project = 2, .user = 2, .gpu_milli_per_task = 2000});
    sched_decide(c.w, c.now_ms, &c.policy, &d);
    assert_int_equal(d.starts.len, 1);
    assert_int_equal(d.starts.at[0].job, job);
    assert_int_equal(d.starts.at[0].after_count, 2);
    assert_int_equal(d.preempts.len, 2);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(d.preempts.at[i].why, SCHED_PREEMPT_OPTIONAL);
        assert_int_equal(d.preempts.at[i].for_job, job);
        assert_true(d.preempts.at[i].victim == d.starts.at[0].after[0] ||
                    d.preempts.at[i].victim == d.starts.at[0].after[1]);
    }
    carry_out(&c, &d);
    uint64_t after[2] = {d.starts.at[0].after[0], d.starts.at[0].after[1]};
    sched_decisions_done(&d);
    // The workers told to end are not replaced, and nobody else is told.
    sched_decide(c.w, c.now_ms, &c.policy, &d);
    assert_int_equal(d.starts.len + d.preempts.len, 0);
    sched_decisions_done(&d);
    add_again(&c, after[0]);
    add_again(&c, after[1]);
    assert_int_equal(settle_once(&c), 0);
    world_assert(c.w);
    world_free(c.w);
}

// CPUs are short, so it is a choice: the lowest rank first, then the latest started.
static void the_lowest_rank_gives_way_first_then_the_newest(void **state) {
    (void)state;
    struct cluster c = cluster_new(1, 0);
    cluster_project(&c, 1, 0, 0);
    struct sched_request q = {.project = 1, .user = 1, .cpus_per_task = 16, .optional = true};
    uint64_t id[4];
    for (unsigned i = 0; i < 4; i++) {
        id[i] = add_worker(&c, &q, 7);
        settle_once(&c);
    }
    assert_int_equal(world_job_rank(c.w, id[1], -1), 0);
    assert_int_equal(world_job_rank(c.w, 999, -1), -ENOENT);
    struct sched_decisions d;
    cluster_submit(&c, &(struct sched_request){.project = 1, .user = 1, .cpus_per_task = 20});
    sched_decide(c.w, c.now_ms, &c.policy, &d);
    assert_int_equal(d.preempts.len, 2);
    assert_int_equal(d.preempts.at[0].victim + d.preempts.at[1].victim, id[1] + id[3]);
    sched_decisions_done(&d);
    world_free(c.w);
}

// GPUs of a node are alike: the job gets those nobody holds, then that of the worker ranked lowest.
static void a_job_gets_the_gpus_whose_workers_are_missed_least(void **state) {
    (void)state;
    struct cluster c = cluster_new(1, 4);
    cluster_project(&c, 1, 0, 4);
    add_workers(&c, 1, 100, 3);
    settle_once(&c);
    assert_int_equal(world_job_rank(c.w, 2, -1), 0);
    struct sched_decisions d;
    struct sched_request q = {.project = 1, .user = 2, .gpu_milli_per_task = 1000};
    cluster_submit(&c, &q);
    sched_decide(c.w, c.now_ms, &c.policy, &d);
    assert_int_equal(d.starts.len, 1);
    assert_int_equal(d.preempts.len, 0);
    carry_out(&c, &d);
    sched_decisions_done(&d);
    cluster_submit(&c, &q);
    sched_decide(c.w, c.now_ms, &c.policy, &d);
    assert_int_equal(d.starts.len, 1);
    assert_int_equal(d.preempts.len, 1);
    assert_int_equal(d.preempts.at[0].victim, 2);
    assert_int_equal(d.starts.at[0].after_count, 1);
    assert_int_equal(d.starts.at[0].after[0], 2);
    carry_out(&c, &d);
    sched_decisions_done(&d);
    world_free(c.w);
}

static void workers_go_where_other_jobs_go_last(void **state) {
    (void)state;
    struct cluster c = cluster_new(2, 4);
    cluster_project(&c, 1, 0, 2);
    add_workers(&c, 1, 100, 4);
    settle_once(&c);
    struct sched_decisions d;
    for (unsigned i = 0; i < 4; i++)
        cluster_submit(&c, &(struct sched_request){.project = 1, .user = 2, .gpu_milli_per_task = 1000});
    sched_decide(c.w, c.now_ms, &c.policy, &d);
    assert_int_equal(d.starts.len, 4);
    assert_int_equal(d.preempts.len, 0);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(d.starts.at[i].after_count, 0);
    sched_decisions_done(&d);
    world_free(c.w);
}

static void told_ahead_of_a_planned_start_by_the_grace_time(void **state) {
    (void)state;
    struct cluster c = cluster_new(1, 4);
    c.policy.grace_ms = 30000;
    c.policy.reclaim = false;
    cluster_project(&c, 1, 0, 2);
    cluster_project(&c, 2, 0, 2);
    uint64_t first = cluster_submit(
        &c,
        &(struct sched_request){.project = 2, .user = 2, .gpu_milli_per_task = 1000, .time_limit_ms = HOUR});
    settle_once(&c);
    struct sched_job_view v;
    assert_true(world_job(c.w, first, &v));
    uint64_t wide = cluster_submit(
        &c,
        &(struct sched_request){.project = 2, .user = 2, .gpu_milli_per_task = 4000, .time_limit_ms = HOUR});
    add_workers(&c, 1, 100, 4);
    struct sched_decisions d;
    sched_decide(c.w, c.now_ms, &c.policy, &d);
    // They stand on room that is planned for later.
    assert_int_equal(d.plans.len, 1);
    assert_int_equal(d.plans.at[0].start_ms, v.limit_end_ms);
    assert_int_equal(d.starts.len, 3);
    assert_int_equal(d.next_ms, v.limit_end_ms - 30000);
    carry_out(&c, &d);
    sched_decisions_done(&d);
    c.now_ms = v.limit_end_ms - 30001;
    sched_decide(c.w, c.now_ms, &c.policy, &d);
    assert_int_equal(d.preempts.len, 0);
    sched_decisions_done(&d);
    c.now_ms++;
    sched_decide(c.w, c.now_ms, &c.policy, &d);
    assert_int_equal(d.plans.at[0].start_ms, v.limit_end_ms);
    assert_int_equal(d.preempts.len, 3);
    assert_int_equal(d.preempts.at[0].for_job, wide);
    carry_out(&c, &d);
    for (unsigned i = 0; i < 3; i++)
        add_again(&c, d.preempts.at[i].victim);
    sched_decisions_done(&d);
    // And do not come back before it.
    sched_decide(c.w, c.now_ms, &c.policy, &d);
    assert_int_equal(d.starts.len + d.preempts.len, 0);
    sched_decisions_done(&d);
    c.now_ms = v.limit_end_ms;
    world_job_end(c.w, first, c.now_ms);
    sched_decide(c.w, c.now_ms, &c.policy, &d);
    assert_int_equal(d.starts.len, 1);
    assert_int_equal(d.starts.at[0].job, wide);
    assert_int_equal(d.starts.at[0].after_count, 0);
    sched_decisions_done(&d);
    world_free(c.w);
}

static void equal_projects_end_up_equal(void **state) {
    (void)state;
    struct cluster c = cluster_new(2, 8);
    for (uint32_t p = 1; p <= 3; p++)
        cluster_project(&c, p, 0, 2);
    add_workers(&c, 1, 100, 16);
    settle_once(&c);
    assert_int_equal(running_workers(&c, 1), 16);
    add_workers(&c, 2, 200, 16);
    unsigned rounds = 0;
    while (settle_once(&c))
        assert_true(++rounds < 50);
    assert_int_equal(running_workers(&c, 1), 8);
    assert_int_equal(running_workers(&c, 2), 8);
    add_workers(&c, 3, 300, 16);
    for (rounds = 0; settle_once(&c);)
        assert_true(++rounds < 50);
    for (uint32_t p = 1; p <= 3; p++)
        assert_in_range(running_workers(&c, p), 5, 6);
    world_free(c.w);
}

static void groups_of_a_project_grow_in_queue_order(void **state) {
    (void)state;
    struct cluster c = cluster_new(1, 4);
    cluster_project(&c, 1, 0, 2);
    add_workers(&c, 1, 100, 3);
    c.now_ms += 1000;
    add_workers(&c, 1, 200, 3);
    struct sched_decisions d;
    sched_decide(c.w, c.now_ms, &c.policy, &d);
    assert_int_equal(d.starts.len, 4);
    for (unsigned i = 0; i < 4; i++) {
        struct sched_job_view v;
        assert_true(world_job(c.w, d.starts.at[i].job, &v));
        assert_int_equal(v.group, i < 3 ? 100 : 200);
    }
    sched_decisions_done(&d);
    world_free(c.w);
}

static void limits_of_projects_hold(void **state) {
    (void)state;
    struct cluster c = cluster_new(2, 4);
    struct sched_project p = {.id = 1,
                              .name = "p1",
                              .quota_milligpu = 1000,
                              .weight_milli = SCHED_UNLIMITED,
                              .limit_milligpu = 3000,
                              .quota_cpus = SCHED_UNLIMITED,
                              .limit_cpus = SCHED_UNLIMITED};
    assert_int_equal(world_project_set(c.w, &p, NULL), 0);
    add_workers(&c, 1, 100, 8);
    assert_int_equal(settle_once(&c), 3);
    uint64_t job =
        cluster_submit(&c, &(struct sched_request){.project = 1, .user = 1, .gpu_milli_per_task = 2000});
    struct sched_decisions d;
    sched_decide(c.w, c.now_ms, &c.policy, &d);
    assert_int_equal(d.starts.len, 1);
    assert_int_equal(d.preempts.len, 2);
    assert_int_equal(d.preempts.at[0].for_job, job);
    sched_decisions_done(&d);
    // A weight of 0: nothing beyond the quota.
    p.weight_milli = 0;
    p.limit_milligpu = SCHED_UNLIMITED;
    p.id = 2;
    p.name = "p2";
    assert_int_equal(world_project_set(c.w, &p, NULL), 0);
    add_workers(&c, 2, 200, 8);
    sched_decide(c.w, c.now_ms, &c.policy, &d);
    unsigned mine = 0;
    for (uint32_t i = 0; i < d.starts.len; i++)
        mine += d.starts.at[i].optional;
    assert_int_equal(mine, 1);
    sched_decisions_done(&d);
    world_free(c.w);
}

// Victims of a preemptor end later: the workers on the rest of its place are told at the same time.
static void workers_in_the_way_of_a_preemptor_are_told_with_its_victims(void **state) {
    (void)state;
    struct cluster c = cluster_new(1, 4);
    cluster_project(&c, 1, 0, 4);
    cluster_project(&c, 2, 0, 0);
    uint64_t spare =
        cluster_submit(&c, &(struct sched_request){.project = 2, .user = 1, .gpu_milli_per_task = 2000});
    settle_once(&c);
    add_workers(&c, 2, 100, 4);
    assert_int_equal(settle_once(&c), 2);
    uint64_t job =
        cluster_submit(&c, &(struct sched_request){.project = 1, .user = 2, .gpu_milli_per_task = 4000});
    struct sched_decisions d;
    sched_decide(c.w, c.now_ms, &c.policy, &d);
    assert_int_equal(d.starts.len, 0);
    assert_int_equal(d.preempts.len, 3);
    assert_int_equal(d.preempts.at[0].victim, spare);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(d.preempts.at[i].for_job, job);
        assert_true((d.preempts.at[i].why == SCHED_PREEMPT_OPTIONAL) == (i > 0));
    }
    sched_decisions_done(&d);
    world_free(c.w);
}

static void a_worker_given_back_rests_while_others_want_the_room(void **state) {
    (void)state;
    struct cluster c = cluster_new(1, 1);
    cluster_project(&c, 1, 0, 1);
    add_workers(&c, 1, 100, 1);
    settle_once(&c);
    struct sched_decisions d;
    uint64_t job =
        cluster_submit(&c, &(struct sched_request){.project = 1, .user = 1, .gpu_milli_per_task = 1000});
    sched_decide(c.w, c.now_ms, &c.policy, &d);
    carry_out(&c, &d);
    add_again(&c, d.preempts.at[0].victim);
    sched_decisions_done(&d);
    // It never ran, and another waits that cannot use the room (its user's partition is closed, say: held back here
    // by a missing QoS).
    world_job_end(c.w, job, c.now_ms);
    uint64_t other = cluster_submit(
        &c, &(struct sched_request){.project = 1, .user = 1, .qos = 9, .gpu_milli_per_task = 1000});
    sched_decide(c.w, c.now_ms, &c.policy, &d);
    assert_int_equal(d.starts.len, 0);
    assert_int_equal(d.next_ms, c.now_ms + 30000);
    sched_decisions_done(&d);
    c.now_ms += 30000;
    sched_decide(c.w, c.now_ms, &c.policy, &d);
    assert_int_equal(d.starts.len, 1);
    sched_decisions_done(&d);
    c.now_ms -= 30000;
    world_job_remove(c.w, other);
    sched_decide(c.w, c.now_ms, &c.policy, &d);
    assert_int_equal(d.starts.len, 1);
    sched_decisions_done(&d);
    world_free(c.w);
}

static void shrinking_gives_pieces_back(void **state) {
    (void)state;
    struct cluster c = cluster_new(3, 4);
    cluster_project(&c, 1, 0, 12);
    uint64_t id = cluster_submit(
        &c, &(struct sched_request){
                .project = 1, .user = 1, .nodes_min = 3, .gpu_milli_per_node = 4000, .time_limit_ms = HOUR});
    cluster_settle(&c);
    struct sched_job_view v;
    assert_true(world_job(c.w, id, &v));
    struct sched_alloc *keep = sched_alloc_new(2, 5);
    struct sched_alloc_gpu *gpus = sched_alloc_gpus(keep);
    keep->nodes[0] = v.alloc->nodes[0];
    keep->nodes[0].gpus = gpus;
    memcpy(gpus, v.alloc->nodes[0].gpus, 4 * sizeof *gpus);
    keep->nodes[1] = v.alloc->nodes[2];
    keep->nodes[1].gpus = gpus + 4;
    keep->nodes[1].gpu_count = 1;
    gpus[4] = v.alloc->nodes[2].gpus[3];
    assert_int_equal(world_job_shrink(c.w, id, keep, c.now_ms), 0);
    world_assert(c.w);
    assert_int_equal(cluster_used(&c, 1), 5000);
    struct sched_node_figures n;
    assert_true(world_node_figures(c.w, 2, &n));
    assert_int_equal(n.gpu_milli_free, 4000);
    // Not more than it holds.
    keep->nodes[1].node = 2;
    assert_int_equal(world_job_shrink(c.w, id, keep, c.now_ms), -EINVAL);
    keep->nodes[1].node = 3;
    gpus[4].index = 0;
    assert_int_equal(world_job_shrink(c.w, id, keep, c.now_ms), -EINVAL);
    free(keep);
    uint64_t next =
        cluster_submit(&c, &(struct sched_request){.project = 1, .user = 1, .gpu_milli_per_task = 4000});
    cluster_settle(&c);
    assert_true(cluster_runs(&c, next));
    assert_int_equal(world_job_shrink(c.w, id, NULL, c.now_ms), 0);
    assert_int_equal(cluster_used(&c, 1), 4000);
    world_assert(c.w);
    struct world *copy = world_clone(c.w);
    world_assert(copy);
    assert_true(world_job(copy, id, &v));
    assert_int_equal(v.alloc->node_count, 0);
    world_free(copy);
    cluster_settle(&c);
    assert_int_equal(world_job_end(c.w, id, c.now_ms), 0);
    world_assert(c.w);
    world_free(c.w);
}

// Where other jobs are placed depends on the requests seen lately: workers do not count among them.
static void workers_do_not_change_where_jobs_go(void **state) {
    (void)state;
    struct cluster c = cluster_new(4, 8);
    cluster_project(&c, 1, 0, 32);
    for (unsigned i = 0; i < 50; i++)
        cluster_submit(&c, &(struct sched_request){
                               .project = 1, .user = 1, .gpu_milli_per_task = 300, .cpus_per_task = 6});
    cluster_settle(&c);
    int64_t before = world_fragmented_milligpu(c.w);
    struct sched_request q = worker(1, 7);
    for (unsigned i = 0; i < 500; i++)
        add_worker(&c, &q, 100);
    assert_int_equal(world_fragmented_milligpu(c.w), before);
    world_free(c.w);
}

static struct sched_explanation explain(struct cluster *c, uint64_t id, struct buf *text) {
    struct sched_explanation e;
    assert_int_equal(sched_explain(c->w, id, c->now_ms, &c->policy, &e), 0);
    buf_clear(text);
    sched_explain_text(c->w, &e, c->now_ms, text);
    return e;
}

static void says_why_a_job_is_not_larger(void **state) {
    (void)state;
    cleanup_buf struct buf text = {0};
    struct cluster c = cluster_new(1, 4);
    cluster_project(&c, 1, 0, 4);
    cluster_project(&c, 2, 0, 4);
    uint64_t job = cluster_submit(
        &c,
        &(struct sched_request){.project = 2, .user = 2, .gpu_milli_per_task = 2000, .time_limit_ms = HOUR});
    settle_once(&c);
    add_workers(&c, 1, 100, 6);
    settle_once(&c);
    uint64_t last = c.next_id - 1;
    struct sched_explanation e = explain(&c, last, &text);
    assert_int_equal(e.reason, SCHED_REASON_RESOURCES);
    assert_int_equal(e.nodes.busy_gpus, 1);
    assert_int_equal(e.holders_all, 3);  // the job and two workers
    assert_int_equal(e.holders[0].job, job);
    assert_int_equal(e.position, 0);
    assert_non_null(
        strstr(buf_str(&text), "optional worker: it starts when there is room that no other job uses"));
    // When the job ends there is room for two more.
    struct sched_job_view v;
    assert_true(world_job(c.w, job, &v));
    struct explain_band b = sched_when_workers(c.w, 100, 4, c.now_ms, &c.policy);
    assert_int_equal(b.basis, EXPLAIN_FORECAST);
    assert_int_equal(b.late_ms, v.limit_end_ms);
    assert_int_equal(sched_when_workers(c.w, 100, 2, c.now_ms, &c.policy).basis, EXPLAIN_NOW);
    assert_int_equal(sched_when_workers(c.w, 100, 9, c.now_ms, &c.policy).basis, EXPLAIN_UNKNOWN);
    assert_int_equal(sched_when_workers(c.w, 7, 1, c.now_ms, &c.policy).basis, EXPLAIN_NEVER);
    // A limit of the project.
    struct sched_project p = {.id = 1,
                              .name = "p1",
                              .weight_milli = SCHED_UNLIMITED,
                              .limit_milligpu = 2000,
                              .quota_cpus = SCHED_UNLIMITED,
                              .limit_cpus = SCHED_UNLIMITED,
                              .interactive_limit_ms = SCHED_UNLIMITED};
    assert_int_equal(world_project_set(c.w, &p, NULL), 0);
    e = explain(&c, last, &text);
    assert_int_equal(e.reason, SCHED_REASON_PROJECT_LIMIT);
    // An optional worker is in the way of nobody: the answers for other jobs do not name it.
    uint64_t next =
        cluster_submit(&c, &(struct sched_request){.project = 2, .user = 2, .gpu_milli_per_task = 3000});
    e = explain(&c, next, &text);
    assert_int_equal(e.holders_all, 1);
    assert_int_equal(e.band.late_ms, v.limit_end_ms);
    world_assert(c.w);
    world_free(c.w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grows_by_all_that_fits_in_one_pass),
        cmocka_unit_test(a_job_starts_at_once_and_waits_for_the_workers_in_its_way),
        cmocka_unit_test(the_lowest_rank_gives_way_first_then_the_newest),
        cmocka_unit_test(a_job_gets_the_gpus_whose_workers_are_missed_least),
        cmocka_unit_test(workers_go_where_other_jobs_go_last),
        cmocka_unit_test(told_ahead_of_a_planned_start_by_the_grace_time),
        cmocka_unit_test(equal_projects_end_up_equal),
        cmocka_unit_test(groups_of_a_project_grow_in_queue_order),
        cmocka_unit_test(limits_of_projects_hold),
        cmocka_unit_test(workers_in_the_way_of_a_preemptor_are_told_with_its_victims),
        cmocka_unit_test(a_worker_given_back_rests_while_others_want_the_room),
        cmocka_unit_test(shrinking_gives_pieces_back),
        cmocka_unit_test(says_why_a_job_is_not_larger),
        cmocka_unit_test(workers_do_not_change_where_jobs_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
