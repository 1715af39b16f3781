// A job that names several partitions: it waits in each at its place there, starts in the first that
// lets it, counts once, plans once, and takes from nobody while one of its partitions has room.
#include "cluster.h"
#include "sched/explain.h"

enum { A = 1, B = 2, C = 3, MINUTE = 60000 };

static void partition(struct cluster *c, uint32_t id, uint32_t first, uint32_t last, int32_t tier, int64_t max_ms) {
    static const char *const names[] = {"", "a", "b", "c"};
    uint32_t nodes[16], n = 0;
    for (uint32_t i = first; i <= last; i++)
        nodes[n++] = i;
    struct sched_partition p = {
        .id = id, .name = names[id], .nodes = nodes, .node_count = n, .tier = tier, .max_time_ms = max_ms};
    assert_int_equal(test_partition_set(c->w, &p, NULL), 0);
}

// Nodes 1 and 2 are a, 3 and 4 are b; four GPUs each.
static struct cluster two_partitions(void) {
    struct cluster c = cluster_new(4, 4);
    cluster_project(&c, 1, 0, 16);
    partition(&c, A, 1, 2, 0, 0);
    partition(&c, B, 3, 4, 0, 0);
    return c;
}

static const uint32_t ALSO_B[] = {B}, ALSO_A[] = {A}, ALSO_BC[] = {B, C};

static struct sched_request asks(uint32_t gpus, uint32_t partition, const uint32_t *also, uint32_t also_count) {
    return (struct sched_request){.project = 1,
                                  .user = 1,
                                  .gpu_milli_per_task = gpus * 1000,
                                  .partition = partition,
                                  .also = also,
                                  .also_count = also_count,
                                  .time_limit_ms = 10 * MINUTE};
}

static uint64_t submit(struct cluster *c, uint32_t gpus, uint32_t partition, const uint32_t *also, uint32_t count) {
    struct sched_request q = asks(gpus, partition, also, count);
    return cluster_submit(c, &q);
}

// On whole nodes.
static uint64_t submit_wide(struct cluster *c, uint32_t nodes, uint32_t partition, const uint32_t *also, uint32_t count,
                            int64_t limit_ms) {
    struct sched_request q = asks(0, partition, also, count);
    q.nodes_min = nodes;
    q.gpu_milli_per_node = 4000;
    q.time_limit_ms = limit_ms;
    return cluster_submit(c, &q);
}

static uint32_t runs_in(const struct cluster *c, uint64_t id) {
    struct sched_job_view v;
    return world_job(c->w, id, &v) && v.state == SCHED_JOB_RUNNING ? v.partition : 0;
}

static void it_starts_in_the_one_with_room(void **state) {
    (void)state;
    struct cluster c = two_partitions();
    uint64_t first = submit(&c, 1, A, ALSO_B, 1), other = submit(&c, 1, B, ALSO_A, 1);
    cluster_settle(&c);
    assert_int_equal(runs_in(&c, first), A);  // both are idle: the one named first
    assert_int_equal(runs_in(&c, other), B);
    partition(&c, B, 3, 4, 0, MINUTE);  // b would give it less time: that makes no difference
    struct sched_request q = asks(1, A, ALSO_B, 1);
    q.time_limit_ms = 0;
    assert_int_equal(runs_in(&c, first), A);
    uint64_t endless = cluster_submit(&c, &q);
    cluster_settle(&c);
    assert_int_equal(runs_in(&c, endless), A);
    assert_int_equal(world_job_end(c.w, endless, c.now_ms), 0);
    partition(&c, B, 3, 4, 0, 0);
    uint64_t full[] = {submit(&c, 4, A, NULL, 0), submit(&c, 3, A, NULL, 0)};
    cluster_settle(&c);
    assert_true(cluster_runs(&c, full[0]) && cluster_runs(&c, full[1]));
    uint64_t moved = submit(&c, 1, A, ALSO_B, 1);
    cluster_settle(&c);
    assert_int_equal(runs_in(&c, moved), B);
    assert_int_equal(world_pending(c.w), 0);
    world_free(c.w);
}

static void many_fill_both(void **state) {
    (void)state;
    struct cluster c = two_partitions();
    for (unsigned i = 0; i < 40; i++)
        submit(&c, 1, A, ALSO_B, 1);
    struct sched_project_figures f;
    assert_true(world_project_figures(c.w, 1, &f));
    assert_int_equal(f.queued_milligpu, 40 * 1000);  // once each
    assert_int_equal(f.pending, 40);
    cluster_settle(&c);
    assert_true(world_project_figures(c.w, 1, &f));
    assert_int_equal(f.used_milligpu, 16 * 1000);
    assert_int_equal(f.queued_milligpu, 24 * 1000);
    cluster_node(&c, 4, 4, "A100");  // a new model: everything is counted again
    assert_true(world_project_figures(c.w, 1, &f));
    assert_int_equal(f.queued_milligpu, 24 * 1000);
    for (uint64_t id = 1; id <= 40; id++)
        if (!cluster_runs(&c, id))
            assert_int_equal(world_job_remove(c.w, id), 0);
    assert_true(world_project_figures(c.w, 1, &f));
    assert_int_equal(f.queued_milligpu, 0);
    world_assert(c.w);
    world_free(c.w);
}

static void what_forbids_one_leaves_the_others(void **state) {
    (void)state;
    struct cluster c = two_partitions();
    struct sched_partition closed = {.id = A, .name = "a", .all_nodes = true, .closed = true};
    assert_int_equal(test_partition_set(c.w, &closed, NULL), 0);
    uint64_t id = submit(&c, 1, A, ALSO_B, 1);
    cluster_settle(&c);
    assert_int_equal(runs_in(&c, id), B);
    partition(&c, A, 1, 2, 0, 5 * MINUTE);  // too short
    id = submit(&c, 1, A, ALSO_B, 1);
    cluster_settle(&c);
    assert_int_equal(runs_in(&c, id), B);
    partition(&c, B, 3, 4, 0, 5 * MINUTE);
    id = submit(&c, 1, A, ALSO_B, 1);
    cluster_settle(&c);
    assert_int_equal(sched_job_reason(c.w, id), SCHED_REASON_TIME_LIMIT);
    world_partition_remove(c.w, A);
    partition(&c, B, 3, 4, 0, 0);
    cluster_settle(&c);
    assert_int_equal(runs_in(&c, id), B);
    submit(&c, 4, B, NULL, 0);
    submit(&c, 4, B, NULL, 0);
    id = submit(&c, 4, A, ALSO_B, 1);
    cluster_settle(&c);
    assert_int_equal(sched_job_reason(c.w, id), SCHED_REASON_PRIORITY);  // in b; a is gone
    assert_int_equal(sched_option_reason(c.w, id, A), SCHED_REASON_PARTITION);
    world_partition_remove(c.w, B);
    cluster_settle(&c);
    assert_int_equal(sched_job_reason(c.w, id), SCHED_REASON_PARTITION);
    world_free(c.w);
}

static void a_higher_tier_is_looked_at_first(void **state) {
    (void)state;
    struct cluster c = two_partitions();
    partition(&c, B, 3, 4, 1, 0);
    uint64_t id = submit(&c, 1, A, ALSO_B, 1);
    cluster_settle(&c);
    assert_int_equal(runs_in(&c, id), B);
    world_free(c.w);
}

static void one_planned_start_where_it_is_soonest(void **state) {
    (void)state;
    struct cluster c = two_partitions();
    submit_wide(&c, 2, A, NULL, 0, 60 * MINUTE);
    submit_wide(&c, 2, B, NULL, 0, 20 * MINUTE);
    cluster_settle(&c);
    int64_t from_ms = c.now_ms;
    uint64_t first = submit_wide(&c, 2, A, ALSO_B, 1, 10 * MINUTE);
    uint64_t second = submit_wide(&c, 2, A, ALSO_B, 1, 10 * MINUTE);
    struct sched_decisions d;
    sched_decide(c.w, c.now_ms, &c.policy, &d);
    assert_int_equal(d.starts.len, 0);
    assert_int_equal(d.plans.len, 2);  // each once, the second in what the first left
    assert_int_equal(d.plans.at[0].job, first);
    assert_int_equal(d.plans.at[0].partition, B);
    assert_in_range(d.plans.at[0].start_ms - from_ms, 0, 20 * MINUTE);
    assert_int_equal(d.plans.at[1].job, second);
    assert_int_equal(d.plans.at[1].partition, A);
    sched_decisions_done(&d);
    c.policy.plan_depth = 2;
    sched_decide(c.w, c.now_ms, &c.policy, &d);
    assert_int_equal(d.plans.len, 2);
    assert_true(d.plans.at[0].job == first && d.plans.at[1].job == second);
    sched_decisions_done(&d);
    c.policy.plan_depth = 1;
    sched_decide(c.w, c.now_ms, &c.policy, &d);
    sched_decisions_done(&d);
    assert_int_equal(sched_job_reason(c.w, first), SCHED_REASON_RESOURCES);
    struct sched_explanation e;
    assert_int_equal(sched_explain(c.w, first, c.now_ms, &c.policy, &e), 0);
    assert_int_equal(e.option_count, 2);
    assert_int_equal(e.options[0].planned_ms, 0);
    assert_true(e.options[1].planned_ms > c.now_ms);
    assert_int_equal(e.position, 1);
    assert_in_range(e.band.late_ms - from_ms, 0, 21 * MINUTE);
    struct buf text = {0};
    sched_explain_text(c.w, &e, c.now_ms, &text);
    assert_non_null(strstr(buf_str(&text), "\n  a: waiting for free resources or behind other jobs\n  b: planned start in "));
    buf_done(&text);
    assert_int_equal(sched_explain(c.w, second, c.now_ms, &c.policy, &e), 0);
    assert_int_equal(e.position, 2);
    world_free(c.w);
}

// a is looked at first and has one of two nodes free: that one is kept. b has all nodes, two of them free.
static void its_own_plan(bool another) {
    struct cluster c = cluster_new(4, 4);
    cluster_project(&c, 1, 0, 16);
    partition(&c, A, 1, 2, 1, 0);
    partition(&c, B, 1, 4, 0, 0);
    partition(&c, C, 2, 3, 0, 0);
    submit_wide(&c, 2, C, NULL, 0, 60 * MINUTE);
    cluster_settle(&c);
    // another, before it in b: what fails for that one, because of the plan, does not for its owner
    uint64_t before = another ? submit_wide(&c, 2, B, NULL, 0, 120 * MINUTE) : 0;
    uint64_t id = submit_wide(&c, 2, A, ALSO_B, 1, 120 * MINUTE);
    struct sched_decisions d;
    sched_decide(c.w, c.now_ms, &c.policy, &d);
    assert_int_equal(d.starts.len, 1);
    assert_int_equal(d.starts.at[0].job, id);
    assert_int_equal(d.starts.at[0].partition, B);
    assert_int_equal(d.plans.len, 0);               // it does not wait any more
    assert_int_equal(d.next_ms, c.now_ms);          // what was kept for it is given out at once
    sched_decisions_done(&d);
    cluster_settle(&c);
    assert_int_equal(runs_in(&c, id), B);
    assert_false(before && cluster_runs(&c, before));
    world_free(c.w);
}

static void its_own_plan_is_not_in_its_way(void **state) {
    (void)state;
    its_own_plan(false);
    its_own_plan(true);
}

static void nobody_gives_while_there_is_room(void **state) {
    (void)state;
    for (int32_t tier = 0; tier < 2; tier++) {
        struct cluster c = cluster_new(4, 4);
        cluster_project(&c, 1, 0, 12);
        cluster_project(&c, 2, 0, 4);
        partition(&c, A, 1, 2, tier, 0);
        partition(&c, B, 3, 4, 0, 0);
        struct sched_request theirs = {.project = 2, .user = 2, .gpu_milli_per_task = 4000, .partition = A};
        cluster_submit(&c, &theirs);
        cluster_submit(&c, &theirs);
        cluster_settle(&c);
        uint64_t id = submit(&c, 4, A, ALSO_B, 1);
        cluster_settle(&c);
        assert_int_equal(runs_in(&c, id), B);
        assert_int_equal(c.preempted, 0);
        uint64_t more[] = {submit(&c, 4, A, ALSO_B, 1), submit(&c, 4, A, ALSO_B, 1)};
        cluster_settle(&c);
        assert_true(cluster_runs(&c, more[0]) && cluster_runs(&c, more[1]));
        assert_int_equal(c.preempted, 1);  // now there is no other way
        world_free(c.w);
    }
}

static void the_fewest_give(void **state) {
    (void)state;
    struct cluster c = cluster_new(2, 4);
    cluster_project(&c, 1, 0, 8);
    cluster_project(&c, 2, 0, 0);
    partition(&c, A, 1, 1, 0, 0);
    partition(&c, B, 2, 2, 0, 0);
    struct sched_request theirs = {.project = 2, .user = 2, .gpu_milli_per_task = 1000, .partition = A};
    for (unsigned i = 0; i < 4; i++)
        cluster_submit(&c, &theirs);
    theirs.partition = B;
    theirs.gpu_milli_per_task = 4000;
    cluster_submit(&c, &theirs);
    cluster_settle(&c);
    uint64_t id = submit(&c, 4, A, ALSO_B, 1);
    cluster_settle(&c);
    assert_int_equal(runs_in(&c, id), B);
    assert_int_equal(c.preempted, 1);
    world_free(c.w);
}

static void a_requeued_job_has_all_of_them_again(void **state) {
    (void)state;
    struct cluster c = two_partitions();
    uint64_t id = submit(&c, 4, A, ALSO_B, 1);
    cluster_settle(&c);
    assert_int_equal(runs_in(&c, id), A);
    cluster_requeue(&c, id);
    world_node_state(c.w, 1, SCHED_NODE_DOWN);
    world_node_state(c.w, 2, SCHED_NODE_DOWN);
    cluster_settle(&c);
    assert_int_equal(runs_in(&c, id), B);
    struct world *copy = world_clone(c.w);
    struct sched_job_view v;
    assert_true(world_job(copy, id, &v));
    assert_int_equal(v.partition, B);
    assert_int_equal(sched_request_asked(v.request)->also_count, 1);
    world_free(copy);
    world_free(c.w);
}

// b keeps the order of submission: a job that waits there too keeps others from passing it.
static void strict_order_holds(void **state) {
    (void)state;
    struct cluster c = two_partitions();
    struct sched_partition fifo = {
        .id = B, .name = "b", .nodes = (uint32_t[]){3, 4}, .node_count = 2, .fifo = true};
    assert_int_equal(test_partition_set(c.w, &fifo, NULL), 0);
    submit(&c, 4, A, NULL, 0);
    submit(&c, 4, A, NULL, 0);
    submit(&c, 4, B, NULL, 0);
    cluster_settle(&c);
    uint64_t wide = submit_wide(&c, 2, A, ALSO_B, 1, 10 * MINUTE), narrow = submit(&c, 1, B, NULL, 0);
    cluster_settle(&c);
    assert_false(cluster_runs(&c, wide));
    assert_false(cluster_runs(&c, narrow));
    world_job_end(c.w, 1, c.now_ms);
    world_job_end(c.w, 2, c.now_ms);
    cluster_settle(&c);
    assert_int_equal(runs_in(&c, wide), A);
    assert_int_equal(runs_in(&c, narrow), B);  // nobody before it any more
    world_free(c.w);
}

static void refused_only_where_none_can_do(void **state) {
    (void)state;
    struct cluster c = two_partitions();
    struct error e;
    partition(&c, A, 1, 2, 0, 5 * MINUTE);
    struct sched_request q = asks(1, A, ALSO_B, 1);
    assert_int_equal(world_check_request(c.w, &q, c.now_ms, &c.policy, &e), 0);
    q.time_limit_ms = 0;
    q.nodes_min = 3;  // more than one of them has, though together they have four
    assert_true(world_check_request(c.w, &q, c.now_ms, &c.policy, &e) < 0);
    assert_non_null(strstr(e.text, "ask for fewer nodes (in partition a; the other partitions"));
    q = asks(1, A, ALSO_BC, 2);
    assert_true(world_check_request(c.w, &q, c.now_ms, &c.policy, &e) < 0);  // there is no c
    struct sched_when when;
    q = asks(1, A, ALSO_B, 1);
    submit_wide(&c, 2, B, NULL, 0, 60 * MINUTE);
    submit_wide(&c, 2, A, NULL, 0, 4 * MINUTE);
    cluster_settle(&c);
    q.time_limit_ms = MINUTE;
    sched_when(c.w, &q, 1, c.now_ms, &c.policy, &when);
    assert_in_range(when.band.late_ms - c.now_ms, 0, 4 * MINUTE);  // the earlier of the two
    assert_int_equal(world_pending(c.w), 0);
    world_assert(c.w);
    world_free(c.w);
}

static void changing_it_leaves_no_trace(void **state) {
    (void)state;
    struct cluster c = two_partitions();
    submit_wide(&c, 2, A, NULL, 0, 60 * MINUTE);
    submit_wide(&c, 2, B, NULL, 0, 60 * MINUTE);
    cluster_settle(&c);
    const uint32_t twice[] = {B, A, B};
    uint64_t id = submit(&c, 1, A, twice, 3);
    world_assert(c.w);
    assert_int_equal(world_job_hold(c.w, id, SCHED_HOLD_USER), 0);
    world_assert(c.w);
    assert_int_equal(world_job_hold(c.w, id, SCHED_HOLD_NONE), 0);
    struct sched_request q = asks(1, B, NULL, 0);
    const struct world_request *one = world_request(c.w, &q);
    assert_int_equal(world_job_update(c.w, &(struct sched_job){.id = id, .request = one, .submit_ms = 5}), 0);
    world_assert(c.w);
    q = asks(1, B, ALSO_A, 1);
    const struct world_request *two = world_request(c.w, &q);
    assert_int_equal(world_job_update(c.w, &(struct sched_job){.id = id, .request = two, .submit_ms = 5}), 0);
    world_request_unref(c.w, one);
    world_request_unref(c.w, two);
    world_assert(c.w);
    world_job_end(c.w, 1, c.now_ms);
    cluster_settle(&c);
    assert_int_equal(runs_in(&c, id), A);
    world_free(c.w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_starts_in_the_one_with_room),
        cmocka_unit_test(many_fill_both),
        cmocka_unit_test(what_forbids_one_leaves_the_others),
        cmocka_unit_test(a_higher_tier_is_looked_at_first),
        cmocka_unit_test(one_planned_start_where_it_is_soonest),
        cmocka_unit_test(its_own_plan_is_not_in_its_way),
        cmocka_unit_test(nobody_gives_while_there_is_room),
        cmocka_unit_test(the_fewest_give),
        cmocka_unit_test(a_requeued_job_has_all_of_them_again),
        cmocka_unit_test(strict_order_holds),
        cmocka_unit_test(refused_only_where_none_can_do),
        cmocka_unit_test(changing_it_leaves_no_trace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
