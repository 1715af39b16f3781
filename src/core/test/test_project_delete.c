// A project, partition or QoS that is deleted although it has jobs.
#include "rig.h"

#include <errno.h>

static struct core *reloaded(struct rig *r) {
    struct core_config config;
    core_config_default(&config);
    cleanup_buf struct buf snapshot = {0};
    struct core *again = core_new(&config);
    core_snapshot(r->core, &snapshot);
    assert_int_equal(core_load_snapshot(again, core_seq(r->core), snapshot.data, snapshot.len, NULL), 0);
    return again;
}

// What runs goes on to its end, what waits is cancelled, nothing new is taken; a restart of the controller in between
// changes nothing of that.
static void a_deleted_project_ends_with_its_jobs(void **state) {
    struct rig r;
    struct error e = {0};
    struct spec s = rig_spec();
    uint64_t id, count;
    rig_init(&r);
    rig_hello(&r, "n1", 1, 0, "b1", NULL, 0);
    assert_int_equal(do_project_set(r.core, &root, &(struct project){.name = "p"}, r.now_ms, &e), 0);
    s.project = "p";
    uint64_t runs = rig_submit(&r, &alice, &s), waits = rig_submit(&r, &alice, &s);
    rig_started(&r, "n1", runs, 1);
    assert_int_equal(do_delete(r.core, &root, ENTITY_PROJECT, "p", true, r.now_ms, &e), 0);
    core_schedule(r.core, r.now_ms);
    rig_drain(&r);
    assert_int_equal(rig_state(&r, runs), JOB_RUNNING);
    assert_int_equal(rig_state(&r, waits), JOB_STATE_COUNT);
    assert_int_equal(r.last_state, JOB_CANCELLED);
    assert_true(core_entity_exists(r.core, ENTITY_PROJECT, "p"));
    assert_int_equal(do_submit(r.core, &alice, &s, NULL, false, r.now_ms, &id, &count, &e), -EBUSY);
    assert_string_equal(e.text,
                        "project: \"p\" is being deleted; it is gone when its last job has ended (1 job)");
    assert_int_equal(do_project_set(r.core, &root, &(struct project){.name = "p"}, r.now_ms, &e), -EBUSY);
    assert_int_equal(
        do_project_set(r.core, &root, &(struct project){.name = "c", .parent = "p"}, r.now_ms, &e), -EBUSY);
    assert_int_equal(do_delete(r.core, &root, ENTITY_PROJECT, "p", true, r.now_ms, &e), -EBUSY);
    struct core *again = reloaded(&r);
    core_free(r.core);
    r.core = again;
    assert_int_equal(do_submit(r.core, &alice, &s, NULL, false, r.now_ms, &id, &count, &e), -EBUSY);
    // Preempted or put back, it does not wait in a project that is no more.
    struct attempt known = {.id = runs, .attempt = 1, .state = ATTEMPT_RUNNING};
    rig_hello(&r, "n1", 1, 0, "b1", &known, 1);
    assert_int_equal(do_requeue(r.core, &alice, runs, false, r.now_ms, &e), 0);
    rig_drain(&r);
    r.now_ms += 2000;
    rig_end(&r, "n1", runs, 1, END_REQUEUE, 0);
    assert_int_equal(rig_state(&r, runs), JOB_STATE_COUNT);
    assert_false(core_entity_exists(r.core, ENTITY_PROJECT, "p"));
    rig_done(&r);
}

// Many waiting jobs are cancelled in several passes, and none of them starts in between.
static void many_waiting_jobs_are_cancelled_in_slices(void **state) {
    enum { JOBS = 2500 };
    struct rig r;
    struct error e = {0};
    struct spec s = rig_spec();
    rig_init(&r);
    assert_int_equal(do_project_set(r.core, &root, &(struct project){.name = "p"}, r.now_ms, &e), 0);
    s.project = "p";
    for (int i = 0; i < JOBS; i++)
        rig_submit(&r, &alice, &s);
    assert_int_equal(do_delete(r.core, &root, ENTITY_PROJECT, "p", true, r.now_ms, &e), 0);
    rig_drain(&r);
    rig_hello(&r, "n1", 8, 0, "b1", NULL, 0);  // a pass, with free CPUs
    assert_int_equal(r.finished, 1000);
    assert_int_equal(r.launches.len, 0);
    for (int pass = 0; pass < 2; pass++)
        assert_true(core_schedule(r.core, r.now_ms) <= r.now_ms || pass == 1);
    rig_drain(&r);
    assert_int_equal(r.finished, JOBS);
    assert_false(core_entity_exists(r.core, ENTITY_PROJECT, "p"));
    rig_done(&r);
}

// Pending jobs would wait for ever: also those that come back to the queue later, and after a restart.
static void jobs_of_a_deleted_qos_do_not_wait_for_ever(void **state) {
    struct rig r;
    struct error e = {0};
    struct spec s = rig_spec();
    rig_init(&r);
    rig_hello(&r, "n1", 1, 0, "b1", NULL, 0);
    assert_int_equal(do_qos_set(r.core, &root, &(struct qos){.name = "q", .usage_factor = 1}, r.now_ms, &e),
                     0);
    s.qos = "q";
    uint64_t runs = rig_submit(&r, &alice, &s), waits = rig_submit(&r, &alice, &s);
    s.qos = NULL;
    uint64_t other = rig_submit(&r, &alice, &s);
    rig_started(&r, "n1", runs, 1);
    assert_int_equal(do_delete(r.core, &root, ENTITY_QOS, "q", false, r.now_ms, &e), -EBUSY);
    assert_int_equal(do_delete(r.core, &root, ENTITY_QOS, "q", true, r.now_ms, &e), 0);
    struct core *again = reloaded(&r);  // before anything was done about them
    core_free(r.core);
    r.core = again;
    core_schedule(r.core, r.now_ms);
    rig_drain(&r);
    assert_int_equal(rig_state(&r, waits), JOB_STATE_COUNT);
    assert_int_equal(r.last_state, JOB_CANCELLED);
    assert_int_equal(rig_state(&r, other), JOB_PENDING);
    struct attempt known = {.id = runs, .attempt = 1, .state = ATTEMPT_RUNNING};
    rig_hello(&r, "n1", 1, 0, "b1", &known, 1);
    assert_int_equal(rig_state(&r, runs), JOB_RUNNING);
    assert_int_equal(do_requeue(r.core, &alice, runs, false, r.now_ms, &e), 0);
    rig_drain(&r);
    r.now_ms += 2000;
    rig_end(&r, "n1", runs, 1, END_REQUEUE, 0);
    assert_int_equal(rig_state(&r, runs), JOB_STATE_COUNT);
    rig_done(&r);
}

static void jobs_of_a_deleted_partition_wait_only_where_they_can_run(void **state) {
    struct rig r;
    struct error e = {0};
    struct spec s = rig_spec();
    rig_init(&r);
    for (int i = 0; i < 2; i++)
        assert_int_equal(
            do_partition_set(r.core, &root, &(struct partition){.name = i ? "b" : "a"}, r.now_ms, &e), 0);
    s.partition = "a";
    uint64_t one = rig_submit(&r, &alice, &s);
    s.partition = "a,b";
    uint64_t both = rig_submit(&r, &alice, &s);
    assert_int_equal(do_delete(r.core, &root, ENTITY_PARTITION, "a", true, r.now_ms, &e), 0);
    core_schedule(r.core, r.now_ms);
    assert_int_equal(rig_state(&r, one), JOB_STATE_COUNT);
    assert_int_equal(rig_state(&r, both), JOB_PENDING);
    assert_int_equal(do_delete(r.core, &root, ENTITY_PARTITION, "b", true, r.now_ms, &e), 0);
    core_schedule(r.core, r.now_ms);
    assert_int_equal(rig_state(&r, both), JOB_STATE_COUNT);
    rig_done(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_of_a_deleted_qos_do_not_wait_for_ever),
        cmocka_unit_test(jobs_of_a_deleted_partition_wait_only_where_they_can_run),
        cmocka_unit_test(a_deleted_project_ends_with_its_jobs),
        cmocka_unit_test(many_waiting_jobs_are_cancelled_in_slices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
