// Published runs with known outcomes: four teams on two machines with eight GPUs each, quotas 4, 2,
// 2 and 8. Interactive work runs only inside the quota; train work may go over and is paused when its
// owner's share shrinks. Ends exactly as published, and stays put.
#include "cluster.h"

enum { A = 1, B, C, D };

static uint64_t submit(struct cluster *c, const char *name, uint32_t project, uint32_t milli, bool train) {
    struct sched_request q = {.project = project, .user = project, .gpu_milli_per_job = milli,
                              .class = train ? SCHED_TRAIN : SCHED_INTERACTIVE};
    uint64_t id = cluster_submit(c, &q);
    c->names[id] = name;
    cluster_settle(c);
    return id;
}

static uint64_t named(const struct cluster *c, const char *name) {
    for (uint64_t i = 1; i < NAMES_MAX; i++)
        if (c->names[i] && strcmp(c->names[i], name) == 0)
            return i;
    fail_msg("no job %s", name);
    return 0;
}

static void expect_used(struct cluster *c, int64_t a, int64_t b, int64_t cc, int64_t d) {
    assert_int_equal(cluster_used(c, A), a * 1000);
    assert_int_equal(cluster_used(c, B), b * 1000);
    assert_int_equal(cluster_used(c, C), cc * 1000);
    assert_int_equal(cluster_used(c, D), d * 1000);
}

static void expect_quiet(struct cluster *c) {
    for (int i = 0; i < 5; i++)
        assert_int_equal(cluster_round(c), 0);
}

static struct cluster teams(void) {
    struct cluster c = cluster_new(2, 8);
    cluster_project(&c, A, 0, 4);
    cluster_project(&c, B, 0, 2);
    cluster_project(&c, C, 0, 2);
    cluster_project(&c, D, 0, 8);
    return c;
}

static void run_48(struct cluster *c) {
    submit(c, "a-1-1-jupyter", A, 1000, false);
    submit(c, "a-1-g", A, 1000, true);
    submit(c, "a-2-gg", A, 2000, true);
    submit(c, "b-1-g06", B, 600, false);
    submit(c, "b-2-g04", B, 400, false);
    submit(c, "b-3-g", B, 1000, true);
    submit(c, "b-4-gg", B, 2000, true);
    submit(c, "c-1-g05", C, 500, false);
    submit(c, "c-2-g03", C, 300, false);
    submit(c, "c-3-g02", C, 200, false);
    submit(c, "c-4-gg", C, 2000, true);
    submit(c, "c-5-g", C, 1000, true);
    submit(c, "d-1-gggg", D, 4000, true);
}

static void run_49(struct cluster *c) {
    run_48(c);
    submit(c, "d-2-gg", D, 2000, true);
    submit(c, "d-3-gg", D, 2000, true);
}

static void scenario_48(void **state) {
    (void)state;
    struct cluster c = teams();
    run_48(&c);
    expect_used(&c, 4, 4, 4, 4);
    assert_int_equal(world_running(c.w), 13);
    assert_int_equal(world_pending(c.w), 0);
    assert_int_equal(c.preempted, 0);
    expect_quiet(&c);
    world_free(c.w);
}

static void scenario_49(void **state) {
    (void)state;
    struct cluster c = teams();
    run_48(&c);
    submit(&c, "d-2-gg", D, 2000, true);
    assert_int_equal(c.preempted, 1);
    assert_false(cluster_runs(&c, named(&c, "c-4-gg")));
    expect_quiet(&c);
    submit(&c, "d-3-gg", D, 2000, true);
    assert_int_equal(c.preempted, 2);
    expect_used(&c, 4, 2, 2, 8);
    assert_int_equal(world_running(c.w), 13);
    assert_int_equal(world_pending(c.w), 2);
    assert_false(cluster_runs(&c, named(&c, "b-4-gg")));
    assert_false(cluster_runs(&c, named(&c, "c-4-gg")));
    assert_true(cluster_runs(&c, named(&c, "c-5-g")));
    expect_quiet(&c);
    world_free(c.w);
}

static void scenario_410(void **state) {
    (void)state;
    struct cluster c = teams();
    run_49(&c);
    submit(&c, "a-3-gg", A, 2000, true);
    submit(&c, "a-4-gg", A, 2000, true);
    submit(&c, "b-5-gg", B, 2000, true);
    submit(&c, "c-6-gg", C, 2000, true);
    expect_used(&c, 4, 2, 2, 8);
    assert_int_equal(world_pending(c.w), 6);
    expect_quiet(&c);
    const char *gone[] = {"d-1-gggg", "d-2-gg", "d-3-gg"};
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(world_job_end(c.w, named(&c, gone[i]), c.now_ms), 0);
    cluster_settle(&c);
    expect_used(&c, 8, 4, 4, 0);
    assert_int_equal(world_running(c.w), 14);
    assert_int_equal(world_pending(c.w), 2);
    assert_false(cluster_runs(&c, named(&c, "b-5-gg")));
    assert_false(cluster_runs(&c, named(&c, "c-6-gg")));
    expect_quiet(&c);
    world_free(c.w);
}

// Starts a job of so many GPUs and returns which it got, as a mask.
static uint32_t taken_by(struct cluster *c, uint32_t gpus) {
    uint64_t id = cluster_submit(c, &(struct sched_request){.user = 1, .gpu_milli_per_task = gpus * 1000});
    struct sched_decisions d;
    uint32_t mask = 0;
    sched_decide(c->w, c->now_ms, &c->policy, &d);
    assert_int_equal(d.starts.len, 1);
    assert_int_equal(d.starts.at[0].job, id);
    const struct sched_alloc_node *n = &d.starts.at[0].alloc->nodes[0];
    for (uint32_t i = 0; i < n->gpu_count; i++)
        mask |= 1u << n->gpus[i].index;
    assert_int_equal(world_job_start(c->w, id, d.starts.at[0].alloc, c->now_ms), 0);
    sched_decisions_done(&d);
    c->now_ms += 1000;
    return mask;
}

// GPUs that are all linked are still nearer to one socket than to the other.
static void gpus_of_one_socket(void **state) {
    (void)state;
    for (uint32_t groups = 1; groups <= 2; groups++) {
        struct cluster c = cluster_new(1, 0);
        struct sched_gpu g[8];
        for (uint32_t i = 0; i < 8; i++)  // two groups: each has GPUs on both sockets
            g[i] = (struct sched_gpu){"H200", 141ULL << 30, groups == 1 ? 1 : 1 + i % 2, false, i / 4};
        struct sched_node n = {
            .id = 1, .name = "n1", .cpus = 64, .memory_bytes = 512ULL << 30, .gpus = g, .gpu_count = 8};
        struct error e;
        assert_int_equal(world_node_set(c.w, &n, &e), 0);
        assert_int_equal(taken_by(&c, 1), 0x01);
        if (groups == 1) {
            assert_int_equal(taken_by(&c, 2), 0x06);  // not across, and the other socket stays whole
            assert_int_equal(taken_by(&c, 4), 0xf0);
            assert_int_equal(taken_by(&c, 1), 0x08);
        } else {
            assert_int_equal(taken_by(&c, 2), 0x50);  // the group with fewest left, there one socket
            assert_int_equal(taken_by(&c, 3), 0x2a);  // of the other group: 1 and 3, then 5
            assert_int_equal(taken_by(&c, 1), 0x04);
        }
        world_assert(c.w);
        world_free(c.w);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpus_of_one_socket),
        cmocka_unit_test(scenario_48),
        cmocka_unit_test(scenario_49),
        cmocka_unit_test(scenario_410),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
