// Planned starts: when a blocked job can start at the earliest, with reservations in between, and that backfill leaves
// it what it needs then.
#include "cluster.h"

static struct sched_request gpus(uint32_t nodes, uint32_t n, int64_t limit_ms) {
    return (struct sched_request){.project = 1,
                                  .user = 1,
                                  .nodes_min = nodes,
                                  .gpu_milli_per_node = n * 1000,
                                  .time_limit_ms = limit_ms};
}

static void reserve(struct cluster *c, uint32_t id, uint32_t node, int64_t start_ms, int64_t end_ms) {
    char name[16];
    snprintf(name, sizeof name, "service%u", id);
    struct sched_reservation r = {.id = id,
                                  .name = name,
                                  .start_ms = start_ms,
                                  .end_ms = end_ms,
                                  .nodes = &node,
                                  .node_count = 1,
                                  .maintenance = true};
    assert_int_equal(world_reservation_set(c->w, &r, NULL), 0);
}

// Runs on this node alone.
static uint64_t run_on(struct cluster *c, uint32_t node, uint32_t n, int64_t limit_ms) {
    struct sched_request q = gpus(1, n, limit_ms);
    q.nodes_only = &node;
    q.nodes_only_count = 1;
    uint64_t id = cluster_submit(c, &q);
    cluster_settle(c);
    assert_true(cluster_runs(c, id));
    return id;
}

static int64_t end_of(const struct cluster *c, uint64_t id) {
    struct sched_job_view v;
    assert_true(world_job(c->w, id, &v));
    return v.limit_end_ms;
}

// The planned start of the job; INT64_MAX: it has none.
static int64_t planned_ms(struct cluster *c, uint64_t id) {
    struct sched_decisions d;
    int64_t at_ms = INT64_MAX;
    sched_decide(c->w, c->now_ms, &c->policy, &d);
    for (uint32_t i = 0; i < d.plans.len; i++)
        if (d.plans.at[i].job == id)
            at_ms = d.plans.at[i].start_ms;
    sched_decisions_done(&d);
    return at_ms;
}

static void reservations_that_end_together_open_all_their_nodes(void **state) {
    struct cluster c = cluster_new(3, 4);
    cluster_project(&c, 1, 0, 12);
    run_on(&c, 3, 4, 50000);
    reserve(&c, 1, 1, 0, 200000);
    reserve(&c, 2, 2, 0, 200000);
    struct sched_request q = gpus(3, 4, 10000);
    assert_int_equal(planned_ms(&c, cluster_submit(&c, &q)), 200000);
    world_free(c.w);
}

static void a_node_that_closes_meanwhile_does_not_count(void **state) {
    struct cluster c = cluster_new(2, 4);
    cluster_project(&c, 1, 0, 8);
    uint64_t first = run_on(&c, 2, 4, 3000000);
    reserve(&c, 1, 1, 3600000, 7200000);
    struct sched_request q = gpus(2, 4, 1800000);
    assert_int_equal(planned_ms(&c, cluster_submit(&c, &q)), 7200000);
    q.time_limit_ms = 500000;  // ends before the reservation begins
    cluster_settle(&c);
    struct cluster d = cluster_new(2, 4);
    cluster_project(&d, 1, 0, 8);
    first = run_on(&d, 2, 4, 3000000);
    reserve(&d, 1, 1, 3600000, 7200000);
    assert_int_equal(planned_ms(&d, cluster_submit(&d, &q)), end_of(&d, first));
    world_free(c.w);
    world_free(d.w);
}

// Two hundred tasks with a hundredth of a GPU each are one job of two GPUs.
static void many_small_tasks_do_not_delay_a_planned_start(void **state) {
    struct cluster c = cluster_new(0, 0);
    struct sched_gpu g[4];
    for (uint32_t i = 0; i < 4; i++)
        g[i] = (struct sched_gpu){"V100", 32ULL << 30, 0, false};
    struct sched_node n = {
        .id = 1, .name = "n1", .cpus = 256, .memory_bytes = 512ULL << 30, .gpus = g, .gpu_count = 4};
    assert_int_equal(world_node_set(c.w, &n, NULL), 0);
    cluster_project(&c, 1, 0, 4);
    uint64_t first = run_on(&c, 1, 2, 100000);
    struct sched_request whole = gpus(1, 4, 100000);
    uint64_t next = cluster_submit(&c, &whole);
    assert_int_equal(planned_ms(&c, next), end_of(&c, first));
    struct sched_request small = {.project = 1,
                                  .user = 1,
                                  .nodes_min = 1,
                                  .tasks = 200,
                                  .gpu_milli_per_task = 10,
                                  .time_limit_ms = 500000};
    uint64_t longer = cluster_submit(&c, &small);
    cluster_settle(&c);
    assert_false(cluster_runs(&c, longer));
    small.time_limit_ms = 10000;
    uint64_t shorter = cluster_submit(&c, &small);
    cluster_settle(&c);
    assert_true(cluster_runs(&c, shorter));
    world_free(c.w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reservations_that_end_together_open_all_their_nodes),
        cmocka_unit_test(a_node_that_closes_meanwhile_does_not_count),
        cmocka_unit_test(many_small_tasks_do_not_delay_a_planned_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
