// Jobs with several parts of different shapes: all start together or none, with planned starts, preemption and limits.
#include "cluster.h"

enum { HOUR = 3600 * 1000 };

// A head with 16 CPUs, and two nodes with two GPUs each.
static struct sched_request head_and_workers(struct sched_request *worker) {
    *worker = (struct sched_request){.nodes_min = 2, .gpu_milli_per_node = 2000, .cpus_per_task = 4};
    return (struct sched_request){.project = 1,
                                  .user = 1,
                                  .cpus_per_task = 16,
                                  .time_limit_ms = HOUR,
                                  .parts = worker,
                                  .part_count = 1};
}

static void all_parts_start_together(void **state) {
    (void)state;
    struct cluster c = cluster_new(2, 2);
    cluster_project(&c, 1, 0, 4);
    struct sched_request worker, q = head_and_workers(&worker);
    uint64_t id = cluster_submit(&c, &q);
    struct sched_decisions d;
    sched_decide(c.w, c.now_ms, &c.policy, &d);
    assert_int_equal(d.starts.len, 1);
    const struct sched_alloc *a = d.starts.at[0].alloc;
    assert_int_equal(a->piece_count, 2);
    assert_int_equal(a->node_count, 2);
    assert_int_equal(a->pieces[0]->node_count, 1);
    assert_int_equal(a->pieces[0]->nodes[0].cpus, 16);
    assert_int_equal(a->pieces[0]->nodes[0].gpu_count, 0);
    assert_int_equal(a->pieces[1]->node_count, 2);
    assert_int_equal(a->pieces[1]->nodes[1].gpu_count, 2);
    assert_int_equal(a->nodes[0].cpus + a->nodes[1].cpus, 24);
    assert_int_equal(sched_alloc_gpu_milli(a), 4000);
    assert_int_equal(world_job_start(c.w, id, a, c.now_ms), 0);
    sched_decisions_done(&d);
    assert_int_equal(cluster_used(&c, 1), 4000);
    struct sched_job_view v;
    assert_true(world_job(c.w, id, &v));
    assert_int_equal(v.alloc->piece_count, 2);
    assert_int_equal(sched_request_tasks(v.request), 3);
    assert_int_equal(sched_request_cpus(v.request), 24);
    world_assert(c.w);
    struct world *copy = world_clone(c.w);
    world_assert(copy);
    world_free(copy);
    assert_int_equal(world_job_end(c.w, id, c.now_ms), 0);
    world_assert(c.w);
    world_free(c.w);
}

static void none_starts_when_one_does_not_fit(void **state) {
    (void)state;
    struct cluster c = cluster_new(2, 2);
    cluster_project(&c, 1, 0, 4);
    // Each part fits by itself, both together do not: 40 CPUs beside 2 × 30 of 2 × 64.
    struct sched_request part = {.nodes_min = 2, .cpus_per_task = 30};
    struct sched_request q = {
        .project = 1, .user = 1, .cpus_per_task = 40, .time_limit_ms = HOUR, .parts = &part, .part_count = 1};
    uint64_t both = cluster_submit(&c, &q);
    part.cpus_per_task = 24;
    uint64_t fits = cluster_submit(&c, &q);
    struct sched_decisions d;
    sched_decide(c.w, c.now_ms, &c.policy, &d);
    world_assert(c.w);
    assert_int_equal(d.starts.len, 1);
    assert_int_equal(d.starts.at[0].job, fits);
    sched_decisions_done(&d);
    assert_int_not_equal(sched_job_reason(c.w, both), SCHED_REASON_NONE);
    world_free(c.w);
}

static void planned_for_when_all_parts_fit_and_not_delayed(void **state) {
    (void)state;
    struct cluster c = cluster_new(3, 2);
    cluster_project(&c, 1, 0, 6);
    struct sched_request gpus = {.project = 1, .user = 1, .gpu_milli_per_task = 2000};
    int64_t hours[] = {1, 3, 2};
    for (unsigned i = 0; i < 3; i++) {
        gpus.time_limit_ms = hours[i] * HOUR;
        cluster_submit(&c, &gpus);
        cluster_settle(&c);
    }
    int64_t began = c.now_ms;
    struct sched_request worker, q = head_and_workers(&worker);
    uint64_t wide = cluster_submit(&c, &q);
    struct sched_decisions d;
    sched_decide(c.w, c.now_ms, &c.policy, &d);
    assert_int_equal(d.starts.len, 0);
    assert_int_equal(d.plans.len, 1);
    assert_int_equal(d.plans.at[0].job, wide);
    assert_in_range(d.plans.at[0].start_ms, 2 * HOUR, 2 * HOUR + began);
    int64_t planned = d.plans.at[0].start_ms;
    sched_decisions_done(&d);
    // The first ends: two GPUs are free until the second does. Only what ends before may use them.
    world_job_end(c.w, 1, c.now_ms);
    gpus.time_limit_ms = 3 * HOUR;
    uint64_t late = cluster_submit(&c, &gpus);
    gpus.time_limit_ms = HOUR;
    uint64_t early = cluster_submit(&c, &gpus);
    // The head's 16 CPUs are kept as well: on no node may a long job leave fewer than it needs.
    sched_decide(c.w, c.now_ms, &c.policy, &d);
    assert_int_equal(d.starts.len, 1);
    assert_int_equal(d.starts.at[0].job, early);
    assert_int_equal(d.plans.at[0].start_ms, planned);
    sched_decisions_done(&d);
    assert_false(cluster_runs(&c, late));
    world_free(c.w);
}

static void preempts_for_all_its_parts(void **state) {
    (void)state;
    struct cluster c = cluster_new(3, 2);
    cluster_project(&c, 1, 0, 6);
    cluster_project(&c, 2, 0, 0);
    for (unsigned i = 0; i < 3; i++)
        cluster_submit(&c, &(struct sched_request){
                               .project = 2, .user = 2, .gpu_milli_per_task = 2000, .cpus_per_task = 60});
    cluster_settle(&c);
    struct sched_request worker, q = head_and_workers(&worker);
    worker.cpus_per_task = 50;
    uint64_t id = cluster_submit(&c, &q);
    struct sched_decisions d;
    sched_decide(c.w, c.now_ms, &c.policy, &d);
    assert_int_equal(d.preempts.len, 3);  // two for the workers, one for the head
    sched_decisions_done(&d);
    cluster_settle(&c);
    assert_true(cluster_runs(&c, id));
    assert_int_equal(c.preempted, 3);
    world_free(c.w);
}

static void limits_and_checks_count_all_parts(void **state) {
    (void)state;
    struct cluster c = cluster_new(2, 2);
    struct sched_project p = {.id = 1,
                              .name = "p1",
                              .weight_milli = SCHED_UNLIMITED,
                              .limit_milligpu = 3000,
                              .quota_cpus = SCHED_UNLIMITED,
                              .limit_cpus = SCHED_UNLIMITED,
                              .interactive_limit_ms = SCHED_UNLIMITED};
    assert_int_equal(world_project_set(c.w, &p, NULL), 0);
    struct sched_request worker, q = head_and_workers(&worker);
    struct error e;
    assert_int_equal(world_check_request(c.w, &q, c.now_ms, &c.policy, &e), -EINVAL);
    assert_non_null(strstr(e.text, "exceed project p1's limit"));
    uint64_t id = cluster_submit(&c, &q);
    cluster_settle(&c);
    assert_int_equal(sched_job_reason(c.w, id), SCHED_REASON_PROJECT_LIMIT);
    p.limit_milligpu = SCHED_UNLIMITED;
    assert_int_equal(world_project_set(c.w, &p, NULL), 0);
    assert_int_equal(world_check_request(c.w, &q, c.now_ms, &c.policy, &e), 0);
    worker.gpu_milli_per_node = 3000;
    assert_int_equal(world_check_request(c.w, &q, c.now_ms, &c.policy, &e), -ERANGE);
    assert_non_null(strstr(e.text, "component 1: gpus: 3"));
    // Each fits by itself; together they need 6 of 4 GPUs.
    worker.gpu_milli_per_node = 2000;
    q.gpu_milli_per_task = 2000;
    assert_int_equal(world_check_request(c.w, &q, c.now_ms, &c.policy, &e), -ERANGE);
    assert_non_null(strstr(e.text, "together they need 6 GPUs, but the nodes have 4"));
    q.part_count = SCHED_PARTS_MAX + 1;
    assert_int_equal(world_check_request(c.w, &q, c.now_ms, &c.policy, &e), -ERANGE);
    cluster_settle(&c);
    assert_true(cluster_runs(&c, id));
    world_free(c.w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_parts_start_together),
        cmocka_unit_test(none_starts_when_one_does_not_fit),
        cmocka_unit_test(planned_for_when_all_parts_fit_and_not_delayed),
        cmocka_unit_test(preempts_for_all_its_parts),
        cmocka_unit_test(limits_and_checks_count_all_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
