// Jobs whose GPUs are not divided evenly over their nodes: who gets how many, planned starts, preemption, refusals.
#include "base/rand.h"
#include "cluster.h"

enum { HOUR = 3600 * 1000 };

static struct sched_request wants(uint32_t nodes, uint32_t tasks, uint32_t gpus) {
    return (struct sched_request){.project = 1,
                                  .user = 1,
                                  .nodes_min = nodes,
                                  .tasks = tasks,
                                  .gpu_milli_per_job = gpus * 1000,
                                  .time_limit_ms = HOUR};
}

// Takes this many GPUs of the node.
static void hold(struct cluster *c, uint32_t node, uint32_t gpus, int64_t limit_ms) {
    struct sched_request q = {.project = 1,
                              .user = 1,
                              .gpu_milli_per_task = gpus * 1000,
                              .time_limit_ms = limit_ms,
                              .nodes_only = &node,
                              .nodes_only_count = 1};
    if (!gpus)
        return;
    cluster_submit(c, &q);
    cluster_settle(c);
}

// "node:tasks:gpus" of what a job holds.
static void held(struct cluster *c, uint64_t id, char *text, size_t size) {
    struct sched_job_view v;
    *text = '\0';
    assert_true(world_job(c->w, id, &v));
    for (uint32_t i = 0; v.alloc && i < v.alloc->node_count; i++) {
        const struct sched_alloc_node *n = &v.alloc->nodes[i];
        size_t len = strlen(text);
        snprintf(text + len, size - len, "%s%u:%u:%u", i ? " " : "", n->node, n->tasks, n->gpu_count);
    }
}

static void deals_as_slurm_does(void **state) {
    (void)state;
    static const struct {
        uint32_t taken[3], nodes, tasks, gpus;
        const char *held;
    } cases[] = {
        {{0}, 2, 0, 5, "1:1:4 2:1:1"},
        {{0}, 2, 3, 5, "1:2:4 2:1:1"},
        {{0}, 2, 0, 7, "1:1:4 2:1:3"},
        {{0}, 3, 0, 4, "1:1:2 2:1:1 3:1:1"},
        {{0}, 3, 0, 8, "1:1:4 2:1:3 3:1:1"},
        {{0}, 3, 6, 10, "1:2:4 2:2:4 3:2:2"},
        {{0}, 2, 5, 3, "1:4:2 2:1:1"},
        {{1, 0, 0}, 3, 0, 10, "1:1:3 2:1:4 3:1:3"},
        {{3, 0, 0}, 3, 0, 7, "1:1:1 2:1:4 3:1:2"},
        {{0, 3, 0}, 2, 0, 5, "1:1:4 3:1:1"},
        {{2, 0, 4}, 2, 0, 5, "1:1:2 2:1:3"},
        {{2, 1, 1}, 2, 0, 7, ""},
        {{2, 2, 0}, 3, 0, 10, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cluster c = cluster_new(3, 4);
        char text[128];
        cluster_project(&c, 1, 0, 12);
        for (uint32_t n = 0; n < 3; n++)
            hold(&c, n + 1, cases[i].taken[n], HOUR);
        struct sched_request q = wants(cases[i].nodes, cases[i].tasks, cases[i].gpus);
        uint64_t id = cluster_submit(&c, &q);
        cluster_settle(&c);
        held(&c, id, text, sizeof text);
        if (strcmp(text, cases[i].held) != 0)
            fail_msg("case %zu: %s instead of %s", i, text, cases[i].held);
        struct sched_job_view v;
        assert_true(world_job(c.w, id, &v));
        assert_int_equal(sched_request_gpu_milli(v.request), cases[i].gpus * 1000);
        world_free(c.w);
    }
}

static void memory_follows_the_gpus(void **state) {
    (void)state;
    struct cluster c = cluster_new(2, 4);
    cluster_project(&c, 1, 0, 8);
    struct sched_request q = wants(2, 0, 5);
    q.memory_per_gpu_bytes = 160ULL << 30;  // three of them on a node of 512 GiB
    uint64_t id = cluster_submit(&c, &q);
    cluster_settle(&c);
    struct sched_job_view v;
    assert_true(world_job(c.w, id, &v));
    assert_int_equal(v.alloc->nodes[0].gpu_count, 3);
    assert_int_equal(v.alloc->nodes[0].memory_bytes, 480ULL << 30);
    assert_int_equal(v.alloc->nodes[1].gpu_count, 2);
    assert_int_equal(v.alloc->nodes[1].memory_bytes, 320ULL << 30);
    world_free(c.w);
}

static int check(struct cluster *c, const struct sched_request *q, struct error *e) {
    return world_check_request(c->w, q, c->now_ms, &c->policy, e);
}

static void refuses_what_no_nodes_have(void **state) {
    (void)state;
    struct cluster c = cluster_new(3, 4);
    cluster_project(&c, 1, 0, 12);
    struct error e;
    struct sched_request q = wants(2, 0, 9);
    assert_true(check(&c, &q, &e) < 0);
    assert_string_equal(e.text, "gpus: 9, but no 2 of the nodes it may use have as many together; ask for fewer, or "
                                "for more nodes");
    q = wants(3, 0, 2);
    assert_true(check(&c, &q, &e) < 0);
    assert_string_equal(e.text, "gpus: 2 cannot be divided over 3 nodes, each of which needs at least one; ask for "
                                "more, or for fewer nodes");
    q = wants(2, 0, 7);
    assert_int_equal(check(&c, &q, &e), 0);
    q = wants(3, 0, 11);
    assert_int_equal(check(&c, &q, &e), 0);
    world_free(c.w);
}

static void is_planned_for_and_not_delayed(void **state) {
    (void)state;
    struct cluster c = cluster_new(2, 4);
    cluster_project(&c, 1, 0, 8);
    hold(&c, 1, 2, HOUR);
    hold(&c, 2, 2, 3 * HOUR);
    int64_t began = c.now_ms;
    struct sched_request q = wants(2, 0, 5);
    uint64_t wide = cluster_submit(&c, &q);
    q = wants(1, 0, 2);
    q.time_limit_ms = 2 * HOUR;
    uint64_t late = cluster_submit(&c, &q);  // would leave the first node less than the two it has to give
    q.time_limit_ms = HOUR / 2;
    uint64_t early = cluster_submit(&c, &q);
    struct sched_decisions d;
    sched_decide(c.w, c.now_ms, &c.policy, &d);
    assert_int_equal(d.plans.len, 1);
    assert_int_equal(d.plans.at[0].job, wide);
    assert_int_equal(d.plans.at[0].node_count, 2);
    assert_in_range(d.plans.at[0].start_ms, HOUR, HOUR + began);
    assert_int_equal(d.starts.len, 1);
    assert_int_equal(d.starts.at[0].job, early);
    sched_decisions_done(&d);
    assert_int_not_equal(sched_job_reason(c.w, late), SCHED_REASON_NONE);
    world_assert(c.w);
    world_free(c.w);
}

static void preempts_for_all_its_nodes(void **state) {
    (void)state;
    struct cluster c = cluster_new(2, 4);
    cluster_project(&c, 1, 0, 8);
    cluster_project(&c, 2, 0, 0);
    for (unsigned i = 0; i < 4; i++)
        cluster_submit(&c, &(struct sched_request){.project = 2, .user = 2, .gpu_milli_per_task = 2000});
    cluster_settle(&c);
    struct sched_request q = wants(2, 0, 5);
    uint64_t id = cluster_submit(&c, &q);
    cluster_settle(&c);
    char text[128];
    held(&c, id, text, sizeof text);
    assert_string_equal(text, "1:1:2 2:1:3");  // one of the four stays
    assert_int_equal(c.preempted, 3);
    world_free(c.w);
}

// It starts exactly when some choice of nodes has its GPUs, tasks aside, and every node then has at least one.
static void starts_whenever_it_fits(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        struct rand rnd;
        rand_seed(&rnd, seed);
        struct cluster c = cluster_new(4, 4);
        cluster_project(&c, 1, 0, 16);
        uint32_t room[4], nodes = 2 + (uint32_t)rand_below(&rnd, 3);
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t taken = (uint32_t)rand_below(&rnd, 5);
            hold(&c, i + 1, taken, HOUR);
            room[i] = 4 - taken;
        }
        struct sched_request q = wants(nodes, 0, nodes + (uint32_t)rand_below(&rnd, 3 * nodes));
        uint32_t gpus = q.gpu_milli_per_job / 1000;
        bool fits = false;
        for (uint32_t set = 0; set < 16 && gpus % nodes; set++) {
            uint32_t sum = 0, empty = 0;
            for (uint32_t i = 0; i < 4; i++) {
                sum += set >> i & 1 ? room[i] : 0;
                empty += (set >> i & 1) && !room[i];
            }
            fits |= (uint32_t)__builtin_popcount(set) == nodes && !empty && sum >= gpus;
        }
        uint64_t id = cluster_submit(&c, &q);
        cluster_settle(&c);
        struct sched_job_view v;
        assert_true(world_job(c.w, id, &v));
        if (gpus % nodes && (v.state == SCHED_JOB_RUNNING) != fits)
            fail_msg("seed %d: %u GPUs on %u nodes of %u, %u, %u, %u", (int)seed, gpus, nodes, room[0], room[1], room[2],
                     room[3]);
        for (uint32_t i = 0; v.alloc && i < v.alloc->node_count; i++)
            assert_true(v.alloc->nodes[i].gpu_count);
        if (v.alloc)
            assert_int_equal(sched_alloc_gpu_milli(v.alloc), gpus * 1000);
        world_free(c.w);
    }
}

// Three tasks would fit on each of three nodes, the job wants seven on two: others must not pass it for ever.
static void is_planned_for_although_all_nodes_together_have_room(void **state) {
    (void)state;
    struct cluster c = cluster_new(3, 0);
    cluster_project(&c, 1, 0, 0);
    for (uint32_t n = 1; n <= 3; n++) {
        cluster_submit(&c, &(struct sched_request){.project = 1,
                                                   .user = 1,
                                                   .cpus_per_task = 34,
                                                   .time_limit_ms = HOUR,
                                                   .nodes_only = &n,
                                                   .nodes_only_count = 1});
        cluster_settle(&c);
    }
    struct sched_request q = wants(2, 7, 0);
    q.cpus_per_task = 10;
    uint64_t id = cluster_submit(&c, &q);
    struct sched_decisions d;
    sched_decide(c.w, c.now_ms, &c.policy, &d);
    assert_int_equal(d.plans.len, 1);
    assert_int_equal(d.plans.at[0].job, id);
    sched_decisions_done(&d);
    struct error e;
    q.tasks = 13;  // six fit on a node
    assert_true(check(&c, &q, &e) < 0);
    assert_string_equal(e.text, "tasks: 13, but no 2 of the nodes it may use can run as many together; ask for fewer, "
                                "or for more nodes");
    world_free(c.w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deals_as_slurm_does),
        cmocka_unit_test(memory_follows_the_gpus),
        cmocka_unit_test(refuses_what_no_nodes_have),
        cmocka_unit_test(is_planned_for_and_not_delayed),
        cmocka_unit_test(preempts_for_all_its_nodes),
        cmocka_unit_test(starts_whenever_it_fits),
        cmocka_unit_test(is_planned_for_although_all_nodes_together_have_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
