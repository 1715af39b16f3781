// Nodes that cannot launch: the job is unharmed, the node is paused, tried again, and trusted after a start.
#include "rig.h"

static void refuse(struct rig *r, const char *node, uint64_t id, uint32_t attempt) {
    struct message_ended m = {.id = id, .attempt = attempt, .cause = END_NODE_FAIL, .launch_failed = true,
                              .reason = "spool folder: no space left"};
    core_agent_ended(r->core, node, &m, r->now_ms);
    core_schedule(r->core, r->now_ms);
    rig_drain(r);
}

static struct node_view node(struct rig *r, const char *name) {
    struct node_view v;
    assert_true(core_node(r->core, name, &v));
    return v;
}

static void a_job_is_not_harmed_by_a_sick_node(void **state) {
    struct rig r;
    struct core_config config;
    core_config_default(&config);
    config.max_attempts = 2;
    rig_init(&r);
    core_configure(r.core, &config);
    rig_hello(&r, "n1", 1, 0, "b1", NULL, 0);
    struct spec s = rig_spec();
    s.requeue = false;  // also one that must not run twice: it has not run
    uint64_t id = rig_submit(&r, &alice, &s);
    for (uint32_t attempt = 1; attempt <= 6; attempt++) {
        assert_int_equal(rig_state(&r, id), JOB_STARTING);
        refuse(&r, "n1", id, attempt);
        assert_int_equal(rig_state(&r, id), JOB_PENDING);
        struct node_view v = node(&r, "n1");
        assert_int_equal(v.launch_failures, attempt);
        assert_int_equal(v.retry_ms - r.now_ms, 5000 << (attempt - 1));
        assert_string_equal(v.launch_reason, "spool folder: no space left");
        r.now_ms = v.retry_ms - 1;
        assert_int_equal(core_schedule(r.core, r.now_ms), v.retry_ms);
        assert_int_equal(rig_state(&r, id), JOB_PENDING);
        r.now_ms++;
        core_schedule(r.core, r.now_ms);
        rig_drain(&r);
    }
    rig_started(&r, "n1", id, 7);
    assert_int_equal(node(&r, "n1").launch_failures, 0);
    rig_end(&r, "n1", id, 7, END_EXIT, 0);
    assert_int_equal(r.last_state, JOB_COMPLETED);
    rig_done(&r);
}

// All that were on their way fail for the same reason: one pause, and the other node gets the work.
static void a_burst_counts_once(void **state) {
    struct rig r;
    rig_init(&r);
    rig_hello(&r, "n1", 4, 0, "b1", NULL, 0);
    struct spec s = rig_spec();
    uint64_t ids[4];
    for (int i = 0; i < 4; i++)
        ids[i] = rig_submit(&r, &alice, &s);
    for (int i = 0; i < 4; i++)
        refuse(&r, "n1", ids[i], 1);
    assert_int_equal(node(&r, "n1").launch_failures, 1);
    rig_hello(&r, "n2", 4, 0, "b1", NULL, 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(rig_state(&r, ids[i]), JOB_STARTING);
    assert_int_equal(node(&r, "n2").jobs, 4);
    // An administrator who mended it need not wait.
    struct error e = {0};
    assert_int_equal(do_resume(r.core, &root, "n1", r.now_ms, &e), 0);
    assert_int_equal(node(&r, "n1").retry_ms, 0);
    rig_drain(&r);
    rig_done(&r);
}

static void it_is_remembered(void **state) {
    struct rig r;
    cleanup_buf struct buf before = {0}, after = {0};
    rig_init(&r);
    rig_hello(&r, "n1", 4, 0, "b1", NULL, 0);
    struct spec s = rig_spec();
    refuse(&r, "n1", rig_submit(&r, &alice, &s), 1);
    core_snapshot(r.core, &before);
    struct core_config config;
    core_config_default(&config);
    struct core *again = core_new(&config);
    struct error e = {0};
    assert_int_equal(core_load_snapshot(again, core_seq(r.core), before.data, before.len, &e), 0);
    core_snapshot(again, &after);
    assert_int_equal(before.len, after.len);
    assert_memory_equal(before.data, after.data, before.len);
    struct node_view v;
    assert_true(core_node(again, "n1", &v) && v.retry_ms == r.now_ms + 5000);
    core_free(again);
    rig_done(&r);
}

// The pause was counted by a clock that was a day ahead.
static void a_pause_ends_when_the_clock_is_set_back(void **state) {
    struct rig r;
    rig_init(&r);
    r.now_ms += 2 * 86400 * 1000;
    rig_hello(&r, "n1", 1, 0, "b1", NULL, 0);
    struct spec s = rig_spec();
    uint64_t id = rig_submit(&r, &alice, &s);
    refuse(&r, "n1", id, 1);
    r.now_ms -= 86400 * 1000;
    core_schedule(r.core, r.now_ms += 5000);
    rig_drain(&r);
    assert_int_equal(node(&r, "n1").retry_ms, 0);
    assert_int_equal(rig_state(&r, id), JOB_STARTING);
    rig_done(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_is_not_harmed_by_a_sick_node),
        cmocka_unit_test(a_burst_counts_once),
        cmocka_unit_test(a_pause_ends_when_the_clock_is_set_back),
        cmocka_unit_test(it_is_remembered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
