// The world: queues, nodes and counts follow jobs through their lives; requests that could never start are refused.
#include <string.h>

#include "../world_state.h"
#include "cluster.h"

static const struct sched_gpu V100[8] = {
    {"V100", 32ULL << 30, 0, false}, {"V100", 32ULL << 30, 0, false}, {"V100", 32ULL << 30, 0, false},
    {"V100", 32ULL << 30, 0, false}, {"V100", 32ULL << 30, 1, false}, {"V100", 32ULL << 30, 1, false},
    {"V100", 32ULL << 30, 1, false}, {"V100", 32ULL << 30, 1, false},
};

static struct world *two_nodes(void) {
    struct world *w = world_new();
    for (uint32_t id = 1; id <= 2; id++) {
        struct sched_node n = {.id = id, .name = id == 1 ? "dgx1-1" : "dgx1-2", .cpus = 40,
                               .memory_bytes = 512ULL << 30, .gpus = V100, .gpu_count = 8};
        assert_int_equal(world_node_set(w, &n, NULL), 0);
    }
    struct sched_project p = {.id = 1,
                              .name = "team",
                              .quota_milligpu = 4000,
                              .weight_milli = SCHED_UNLIMITED,
                              .limit_milligpu = SCHED_UNLIMITED,
                              .quota_cpus = SCHED_UNLIMITED,
                              .limit_cpus = SCHED_UNLIMITED,
                              .interactive_limit_ms = SCHED_UNLIMITED};
    assert_int_equal(world_project_set(w, &p, NULL), 0);
    return w;
}

static void add(struct world *w, uint64_t id, const struct sched_request *q) {
    const struct world_request *r = world_request(w, q);
    assert_int_equal(world_job_add(w, &(struct sched_job){.id = id, .request = r, .submit_ms = (int64_t)id}), 0);
    world_request_unref(w, r);
}

// Jobs that become ready in the reverse order, as those that waited for one job may, do not each move all others.
static void reverse_order_costs_little(void **state) {
    enum { MANY = 20000 };
    struct world *w = two_nodes();
    for (uint64_t id = MANY; id > 0; id--)
        add(w, id, &(struct sched_request){.project = 1, .user = 1, .gpu_milli_per_job = 4000});
    world_assert(w);
    assert_true(w->jobs.queue_moves < 10 * MANY);
    struct policy policy;
    sched_policy_default(&policy);
    struct sched_decisions d;
    sched_decide(w, 1000, &policy, &d);
    assert_int_equal(d.starts.at[0].job, 1);
    sched_decisions_done(&d);
    world_free(w);
}

// Jobs that are taken out of the middle one after the other, as those of an array that is held, move few others.
static void the_middle_of_a_queue_costs_little(void **state) {
    enum { MANY = 20000 };
    struct world *w = two_nodes();
    for (uint64_t id = 1; id <= MANY; id++)
        add(w, id, &(struct sched_request){.project = 1, .user = 1, .gpu_milli_per_job = 4000});
    w->jobs.queue_moves = 0;
    for (uint64_t id = MANY / 4; id < MANY / 2; id++)
        world_job_remove(w, id);
    for (uint64_t id = MANY * 3 / 4; id > MANY / 2; id--)
        world_job_remove(w, id);
    assert_true(w->jobs.queue_moves < 2 * MANY);
    world_assert(w);
    for (uint64_t id = MANY / 4; id < MANY / 2; id++)
        add(w, id, &(struct sched_request){.project = 1, .user = 1, .gpu_milli_per_job = 4000});
    assert_true(w->jobs.queue_moves < 3 * MANY);
    world_assert(w);
    world_free(w);
}

static void starts_and_frees(void **state) {
    (void)state;
    struct world *w = two_nodes();
    struct policy policy;
    sched_policy_default(&policy);
    for (uint64_t id = 1; id <= 5; id++)
        add(w, id, &(struct sched_request){.project = 1, .user = 1, .gpu_milli_per_job = 4000});
    struct sched_decisions d;
    sched_decide(w, 1000, &policy, &d);
    assert_int_equal(d.starts.len, 4);
    for (uint32_t i = 0; i < d.starts.len; i++)
        assert_int_equal(world_job_start(w, d.starts.at[i].job, d.starts.at[i].alloc, 1000), 0);
    sched_decisions_done(&d);
    world_assert(w);
    struct sched_node_figures f;
    assert_true(world_node_figures(w, 1, &f));
    assert_int_equal(f.gpu_milli_free, 0);
    sched_decide(w, 2000, &policy, &d);
    assert_int_equal(d.starts.len, 0);
    sched_decisions_done(&d);
    assert_int_equal(world_job_end(w, 2, 3000), 0);
    world_assert(w);
    sched_decide(w, 3000, &policy, &d);
    assert_int_equal(d.starts.len, 1);
    assert_int_equal(d.starts.at[0].job, 5);
    sched_decisions_done(&d);
    world_free(w);
}

static void node_goes_and_comes_back(void **state) {
    (void)state;
    struct world *w = two_nodes();
    struct policy policy;
    sched_policy_default(&policy);
    add(w, 1, &(struct sched_request){.project = 1, .user = 1, .gpu_milli_per_job = 8000});
    struct sched_decisions d;
    sched_decide(w, 0, &policy, &d);
    assert_int_equal(d.starts.len, 1);
    uint32_t node = d.starts.at[0].alloc->nodes[0].node;
    world_job_start(w, 1, d.starts.at[0].alloc, 0);
    sched_decisions_done(&d);
    world_node_remove(w, node);
    world_assert(w);
    struct sched_node n = {.id = node, .name = "again", .cpus = 40, .memory_bytes = 1ULL << 38, .gpus = V100,
                           .gpu_count = 8};
    assert_int_equal(world_node_set(w, &n, NULL), 0);
    world_assert(w);
    struct sched_node_figures f;
    assert_true(world_node_figures(w, node, &f));
    assert_int_equal(f.gpu_milli_free, 0);
    world_node_remove(w, node);
    assert_int_equal(world_job_end(w, 1, 10), 0);
    world_assert(w);
    world_free(w);
}

// Placing many of a kind in one pass (from a heap) gives what placing them a few at a time (by looking
// at every node) gives.
static void many_at_once_or_few_at_a_time(void **state) {
    (void)state;
    enum { NODES = 400, JOBS = 300, AT_A_TIME = 5 };
    struct world *w = world_new();
    for (uint32_t id = 1; id <= NODES; id++) {
        struct sched_node n = {.id = id, .name = "n", .cpus = 16 + id % 7 * 8, .memory_bytes = 512ULL << 30,
                               .gpus = V100, .gpu_count = 2 + id % 7};
        assert_int_equal(world_node_set(w, &n, NULL), 0);
    }
    struct policy policy;
    sched_policy_default(&policy);
    for (uint64_t id = 1; id <= JOBS; id++)
        add(w, id, &(struct sched_request){.user = 1, .cpus_per_task = 3 + id % 3 * 2,
                                           .gpu_milli_per_task = id % 3 == 0 ? 300 : id % 3 * 1000});
    struct sched_decisions all, some;
    sched_decide(w, 1000, &policy, &all);
    assert_int_equal(all.starts.len, JOBS);
    for (uint32_t done = 0; done < JOBS;) {
        sched_decide(w, 1000, &policy, &some);
        for (uint32_t i = 0; i < some.starts.len && i < AT_A_TIME; i++, done++) {
            const struct sched_start *a = &all.starts.at[done], *b = &some.starts.at[i];
            assert_int_equal(a->job, b->job);
            assert_int_equal(a->alloc->nodes[0].node, b->alloc->nodes[0].node);
            assert_int_equal(a->alloc->nodes[0].gpus[0].index, b->alloc->nodes[0].gpus[0].index);
            assert_int_equal(world_job_start(w, b->job, b->alloc, 1000), 0);
        }
        sched_decisions_done(&some);
    }
    sched_decisions_done(&all);
    world_assert(w);
    world_free(w);
}

// At time 0, with the default policy.
static int check(struct world *w, const struct sched_request *q, struct error *e) {
    struct policy p;
    sched_policy_default(&p);
    return world_check_request(w, q, 0, &p, e);
}

static void refused(struct world *w, const struct sched_request *q, const char *text) {
    struct error e = {0};
    assert_true(check(w, q, &e) < 0);
    if (!strstr(e.text, text))
        fail_msg("expected \"%s\", got \"%s\"", text, e.text);
}

static void refuses_what_never_fits(void **state) {
    (void)state;
    struct world *w = two_nodes();
    struct error e;
    assert_true(check(w, &(struct sched_request){.project = 1, .gpu_milli_per_job = 9000}, &e) < 0);
    assert_non_null(strstr(e.text, "gpus: 9"));
    assert_true(check(w, &(struct sched_request){.project = 1, .gpu_milli_per_job = 1500}, &e) < 0);
    assert_true(check(w, &(struct sched_request){.project = 1, .nodes_min = 3}, &e) < 0);
    assert_true(check(w, &(struct sched_request){.project = 7}, &e) < 0);
    assert_true(check(w, &(struct sched_request){.project = 1, .gpu_model = "H100",
                                                              .gpu_milli_per_job = 1000}, &e) < 0);
    assert_int_equal(check(w, &(struct sched_request){.project = 1, .nodes_min = 2,
                                                                    .gpu_milli_per_node = 8000}, &e), 0);
    assert_int_equal(check(w, &(struct sched_request){.project = 1, .gpu_memory_bytes = 16ULL << 30},
                                         &e), 0);
    world_free(w);
}

static void the_rest_is_promised_to_one(void **state) {
    (void)state;
    struct world *w = two_nodes();
    struct sched_project p = {.id = 2,
                              .name = "default",
                              .quota_rest = true,
                              .weight_milli = SCHED_UNLIMITED,
                              .limit_milligpu = SCHED_UNLIMITED,
                              .quota_cpus = SCHED_UNLIMITED,
                              .limit_cpus = SCHED_UNLIMITED,
                              .interactive_limit_ms = SCHED_UNLIMITED};
    struct sched_project_figures all, rest;
    char text[256];
    assert_int_equal(world_project_set(w, &p, NULL), 0);
    assert_true(world_project_figures(w, 2, &all));
    p = (struct sched_project){.id = 3,
                               .name = "team",
                               .quota_milligpu = 5000,
                               .weight_milli = SCHED_UNLIMITED,
                               .limit_milligpu = SCHED_UNLIMITED,
                               .quota_cpus = SCHED_UNLIMITED,
                               .limit_cpus = SCHED_UNLIMITED,
                               .interactive_limit_ms = SCHED_UNLIMITED};
    assert_int_equal(world_project_set(w, &p, NULL), 0);
    assert_false(world_warning(w, 0, text, sizeof text));
    assert_true(world_project_figures(w, 2, &rest));
    assert_true(all.quota_milligpu > 5000);
    assert_int_equal(rest.quota_milligpu, all.quota_milligpu - 5000);
    p.quota_milligpu = 1000000;
    assert_int_equal(world_project_set(w, &p, NULL), 0);
    assert_true(world_project_figures(w, 2, &rest));
    assert_int_equal(rest.quota_milligpu, 0);
    world_free(w);
}

static void refuses_bad_policy(void **state) {
    (void)state;
    struct world *w = two_nodes();
    struct error e;
    struct sched_project p = {.id = 2,
                              .parent = 1,
                              .name = "child",
                              .weight_milli = SCHED_UNLIMITED,
                              .limit_milligpu = SCHED_UNLIMITED,
                              .quota_cpus = SCHED_UNLIMITED,
                              .limit_cpus = SCHED_UNLIMITED,
                              .interactive_limit_ms = SCHED_UNLIMITED};
    assert_int_equal(world_project_set(w, &p, &e), 0);
    struct sched_project loop = p;
    loop.id = 1;
    loop.parent = 2;
    assert_true(world_project_set(w, &loop, &e) < 0);
    p.quota_milligpu = -5;
    assert_true(world_project_set(w, &p, &e) < 0);
    assert_non_null(strstr(e.text, "negative"));
    world_free(w);
}

enum { MINUTE_MS = 60 * 1000, HOUR_MS = 60 * MINUTE_MS };

// A job that could never start is refused at submit, in words that say what to change.
static void hopeless_requests_are_refused(void **state) {
    (void)state;
    struct cluster c = cluster_new(1, 8);
    cluster_project(&c, 1, 0, 2);
    struct sched_partition part = {.id = 1, .name = "short", .all_nodes = true, .max_time_ms = 4 * HOUR_MS};
    assert_int_equal(test_partition_set(c.w, &part, NULL), 0);
    struct sched_qos qos = {.id = 1, .name = "low", .max_gpu_milli_per_user = 1500, .max_time_ms = 90 * MINUTE_MS};
    assert_int_equal(test_qos_set(c.w, &qos, NULL), 0);
    struct error e = {0};
    struct sched_request q = {.project = 1, .partition = 1, .time_limit_ms = 5 * HOUR_MS};
    refused(c.w, &q, "time_limit_s: 5 h exceeds partition short's limit of 4 h");
    q.time_limit_ms = INT64_C(100) * 365 * 24 * HOUR_MS;
    refused(c.w, &q, "time_limit_s: unlimited exceeds partition short's limit of 4 h");
    struct sched_partition empty = {.id = 2, .name = "new"};
    assert_int_equal(test_partition_set(c.w, &empty, NULL), 0);
    q = (struct sched_request){.project = 1, .partition = 2};
    refused(c.w, &q, "partition: none of the nodes of partition new exists yet");
    // memory that comes with the GPUs is not what was asked for too much of
    q = (struct sched_request){.gpu_milli_per_job = 99000, .memory_per_gpu_bytes = 1ULL << 40};
    refused(c.w, &q, "gpus: 99 on one node");
    q = (struct sched_request){.project = 1, .qos = 1, .time_limit_ms = 91 * MINUTE_MS};
    refused(c.w, &q, "1 h 31 min exceeds QoS low's limit of 1 h 30 min");
    q = (struct sched_request){.project = 1, .qos = 1, .gpu_milli_per_job = 2000};
    refused(c.w, &q, "gpus: 2 exceed QoS low's limit of 1.5 for one user");
    // a deadline before the job could have ended
    q = (struct sched_request){.project = 1, .time_limit_ms = 2 * HOUR_MS, .deadline_ms = 2 * HOUR_MS};
    assert_int_equal(check(c.w, &q, &e), 0);
    q.deadline_ms--;
    refused(c.w, &q, "the job's time limit is 2 h");
    q.time_limit_ms = 0;  // none: it may run until its deadline
    assert_int_equal(check(c.w, &q, &e), 0);
    q.partition = 1;      // whose limit of 4 h applies then
    refused(c.w, &q, "the job's time limit is 4 h");
    q.deadline_ms = 4 * HOUR_MS;
    assert_int_equal(check(c.w, &q, &e), 0);
    // larger than the quota it must stay within
    q = (struct sched_request){.project = 1, .gpu_milli_per_job = 3000};
    assert_int_equal(check(c.w, &q, &e), 0);
    q.class = SCHED_INTERACTIVE;
    refused(c.w, &q, "gpus: 3 exceed project p1's quota of 2");
    q.gpu_milli_per_job = 2000;
    assert_int_equal(check(c.w, &q, &e), 0);
    struct policy anywhere;
    sched_policy_default(&anywhere);
    anywhere.interactive_within_quota = false;
    q.gpu_milli_per_job = 3000;
    assert_int_equal(world_check_request(c.w, &q, 0, &anywhere, &e), 0);
    world_free(c.w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hopeless_requests_are_refused), cmocka_unit_test(starts_and_frees),
        cmocka_unit_test(reverse_order_costs_little),    cmocka_unit_test(the_middle_of_a_queue_costs_little),
        cmocka_unit_test(node_goes_and_comes_back),      cmocka_unit_test(many_at_once_or_few_at_a_time),
        cmocka_unit_test(refuses_what_never_fits),       cmocka_unit_test(refuses_bad_policy),
        cmocka_unit_test(the_rest_is_promised_to_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
