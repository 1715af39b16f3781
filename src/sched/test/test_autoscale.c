// How many nodes are wanted, and which nodes will be needed; nodes of one user, and nodes that go.
#include "sched/autoscale.h"

#include "cluster.h"
#include "sched/explain.h"

static struct sched_request cpus(uint32_t n, int64_t limit_ms) {
    return (struct sched_request){.project = 1, .user = 1, .cpus_per_task = n, .time_limit_ms = limit_ms};
}

static struct autoscale_shape shape(uint32_t n, uint32_t room) {
    return (struct autoscale_shape){
        .node = {.cpus = n, .memory_bytes = 64ULL << 30}, .boot_ms = 20000, .room = room};
}

static struct cluster empty(void) {
    struct cluster c = cluster_new(0, 0);
    cluster_project(&c, 1, 0, 0);
    return c;
}

static struct autoscale_result ask(struct cluster *c, struct autoscale_shape *s, uint32_t count) {
    struct autoscale_result out;
    sched_autoscale(c->w, s, count, c->now_ms, &c->policy, &out);
    world_assert(c->w);
    return out;
}

static void as_many_as_jobs_fill_in_one_step(void **state) {
    struct cluster c = empty();
    struct sched_request q = cpus(2, 60000);
    for (int i = 0; i < 10; i++)
        cluster_submit(&c, &q);
    struct autoscale_shape s = shape(8, 100);
    struct autoscale_result r = ask(&c, &s, 1);
    assert_int_equal(s.wanted, 3);  // ten jobs of two CPUs, four to a node
    assert_int_equal(s.jobs, 10);
    assert_int_equal(s.first_job, 1);
    assert_int_equal(r.unmet, 0);
    s = shape(8, 2);
    r = ask(&c, &s, 1);
    assert_int_equal(s.wanted, 2);
    assert_int_equal(r.unmet, 2);
    s = shape(8, 100);
    s.coming = 2;  // these are counted on
    r = ask(&c, &s, 1);
    assert_int_equal(s.wanted, 1);
    assert_int_equal(s.coming_used, 2);
    s = shape(1, 100);  // too small for any of them
    r = ask(&c, &s, 1);
    assert_int_equal(s.wanted, 0);
    assert_int_equal(r.unmet, 10);
    vec_done(&r.used);
    world_free(c.w);
}

static void nothing_for_a_job_that_starts_elsewhere_sooner(void **state) {
    struct cluster c = cluster_new(1, 0);  // 64 CPUs
    cluster_project(&c, 1, 0, 0);
    struct sched_request soon = cpus(64, 10000), later = cpus(64, 90000);
    cluster_submit(&c, &soon);
    cluster_settle(&c);
    struct sched_request next = cpus(64, 60000);
    cluster_submit(&c, &next);
    struct autoscale_shape s = shape(64, 4);
    struct autoscale_result r = ask(&c, &s, 1);
    assert_int_equal(s.wanted, 0);  // the node is free in 10 s, a new one would take 20
    assert_int_equal(r.used.len, 1);
    vec_done(&r.used);
    cluster_submit(&c, &later);
    r = ask(&c, &s, 1);
    assert_int_equal(s.wanted, 1);  // for the third
    assert_int_equal(s.first_job, 3);
    vec_done(&r.used);
    world_free(c.w);
}

static void the_cheapest_first_and_then_the_warmest(void **state) {
    struct cluster c = empty();
    struct sched_request q = cpus(4, 600000);
    for (int i = 0; i < 3; i++)
        cluster_submit(&c, &q);
    struct autoscale_shape s[3] = {shape(4, 9), shape(4, 1), shape(4, 1)};
    s[0].cost = 5;
    s[1].cost = s[2].cost = 2;
    s[1].boot_ms = 90000;
    s[2].boot_ms = 1000;
    struct autoscale_result r = ask(&c, s, 3);
    assert_int_equal(s[1].wanted, 1);
    assert_int_equal(s[2].wanted, 1);
    assert_int_equal(s[2].first_job, 1);
    assert_int_equal(s[0].wanted, 1);
    vec_done(&r.used);
    world_free(c.w);
}

static void a_job_of_many_nodes_gets_all_or_none(void **state) {
    struct cluster c = empty();
    struct sched_request q = cpus(4, 60000);
    q.nodes_min = 4;
    q.tasks_per_node = 1;
    cluster_submit(&c, &q);
    struct autoscale_shape s = shape(4, 3);
    struct autoscale_result r = ask(&c, &s, 1);
    assert_int_equal(s.wanted, 0);
    s = shape(4, 8);
    r = ask(&c, &s, 1);
    assert_int_equal(s.wanted, 4);
    assert_int_equal(s.jobs, 1);
    vec_done(&r.used);
    world_free(c.w);
}

static void held_jobs_and_those_over_a_limit_want_none(void **state) {
    struct cluster c = empty();
    struct sched_request q = cpus(4, 60000);
    uint64_t id = cluster_submit(&c, &q);
    world_job_hold(c.w, id, SCHED_HOLD_USER);
    struct autoscale_shape s = shape(4, 3);
    struct autoscale_result r = ask(&c, &s, 1);
    assert_int_equal(s.wanted, 0);
    world_job_hold(c.w, id, SCHED_HOLD_NONE);
    s.lifetime_ms = 30000;  // gone before the job would have to end
    r = ask(&c, &s, 1);
    assert_int_equal(s.wanted, 0);
    s.lifetime_ms = 90000;
    r = ask(&c, &s, 1);
    assert_int_equal(s.wanted, 1);
    s.node.user = 2;
    r = ask(&c, &s, 1);
    assert_int_equal(s.wanted, 0);
    vec_done(&r.used);
    world_free(c.w);
}

static void explained(struct cluster *c, uint64_t id, const char *words) {
    struct sched_explanation e;
    cleanup_buf struct buf text = {0};
    assert_int_equal(sched_explain(c->w, id, c->now_ms, &c->policy, &e), 0);
    sched_explain_text(c->w, &e, c->now_ms, &text);
    if (!strstr(buf_str(&text), words))
        fail_msg("no \"%s\" in: %s", words, buf_str(&text));
}

static void nodes_of_a_user_and_nodes_that_go(void **state) {
    struct cluster c = empty();
    struct sched_node n = {
        .id = 1, .name = "n1", .cpus = 4, .memory_bytes = 64ULL << 30, .user = 2, .until_ms = c.now_ms + 60000};
    assert_int_equal(world_node_set(c.w, &n, NULL), 0);
    struct sched_request q = cpus(1, 30000);
    struct error e = {0};
    assert_int_equal(world_check_request(c.w, &q, c.now_ms, &c.policy, &e), -ERANGE);
    uint64_t other = cluster_submit(&c, &q);
    q.user = 2;
    uint64_t own = cluster_submit(&c, &q);
    q.time_limit_ms = 90000;
    uint64_t late = cluster_submit(&c, &q);
    q.time_limit_ms = 0;
    uint64_t unlimited = cluster_submit(&c, &q);
    cluster_settle(&c);
    assert_true(cluster_runs(&c, own));
    assert_false(cluster_runs(&c, other) || cluster_runs(&c, late) || cluster_runs(&c, unlimited));
    explained(&c, other, "1 for another user's jobs only");
    explained(&c, late, "will be gone before its time limit is over");
    explained(&c, unlimited, "It has no time limit");
    struct world *copy = world_clone(c.w);
    struct sched_decisions d;
    sched_decide(copy, c.now_ms, &c.policy, &d);
    assert_int_equal(d.starts.len, 0);
    sched_decisions_done(&d);
    world_free(copy);
    n.user = 0;
    n.until_ms = 0;
    assert_int_equal(world_node_set(c.w, &n, NULL), 0);
    cluster_settle(&c);
    assert_true(cluster_runs(&c, other) && cluster_runs(&c, late) && cluster_runs(&c, unlimited));
    world_assert(c.w);
    world_free(c.w);
}

static void what_could_be_had_is_not_refused(void **state) {
    struct cluster c = cluster_new(1, 0);
    cluster_project(&c, 1, 0, 0);
    struct sched_request q = {.project = 1, .user = 1, .gpu_milli_per_job = 2000, .gpu_model = "L40", .nodes_min = 2};
    struct error e = {0};
    assert_int_equal(world_check_request(c.w, &q, 0, &c.policy, &e), -ERANGE);
    struct sched_gpu gpu = {.model = "L40", .memory_bytes = 48ULL << 30};
    struct world_shape s = {
        .node = {.cpus = 8, .memory_bytes = 64ULL << 30, .gpus = &gpu, .gpu_count = 1}, .nodes = 2};
    assert_int_equal(world_shapes_set(c.w, &s, 1, NULL), 0);
    assert_int_equal(world_check_request(c.w, &q, 0, &c.policy, &e), 0);
    s.nodes = 1;
    assert_int_equal(world_shapes_set(c.w, &s, 1, NULL), 0);
    assert_int_equal(world_check_request(c.w, &q, 0, &c.policy, &e), -ERANGE);
    world_free(c.w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_many_as_jobs_fill_in_one_step),
        cmocka_unit_test(nothing_for_a_job_that_starts_elsewhere_sooner),
        cmocka_unit_test(the_cheapest_first_and_then_the_warmest),
        cmocka_unit_test(a_job_of_many_nodes_gets_all_or_none),
        cmocka_unit_test(held_jobs_and_those_over_a_limit_want_none),
        cmocka_unit_test(nodes_of_a_user_and_nodes_that_go),
        cmocka_unit_test(what_could_be_had_is_not_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
