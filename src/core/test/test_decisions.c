// What the core makes of the scheduler's decisions: deadlines, reasons of preemption, planned starts; and
// dependencies that would never end.
#include <errno.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "rig.h"

static void same_after_snapshot(struct rig *r, struct core **loaded) {
    cleanup_buf struct buf x = {0}, y = {0};
    struct core_config config;
    struct error e = {0};
    core_config_default(&config);
    *loaded = core_new(&config);
    core_snapshot(r->core, &x);
    assert_int_equal(core_load_snapshot(*loaded, core_seq(r->core), x.data, x.len, &e), 0);
    core_snapshot(*loaded, &y);
    assert_int_equal(x.len, y.len);
    assert_memory_equal(x.data, y.data, x.len);
}

// A pending job goes as soon as it could not end before its deadline; one without a time limit runs until then.
static void deadlines_are_kept(void **state) {
    (void)state;
    struct rig r;
    rig_init(&r);
    rig_hello(&r, "n1", 1, 0, "b1", NULL, 0);
    struct spec s = rig_spec();
    uint64_t running = rig_submit(&r, &alice, &s);
    assert_int_equal(rig_state(&r, running), JOB_STARTING);
    s.time_limit_s = 60;
    s.deadline_ms = r.now_ms + 100 * 1000;
    uint64_t waits = rig_submit(&r, &alice, &s);
    r.now_ms += 40 * 1000;
    core_schedule(r.core, r.now_ms);
    rig_drain(&r);
    assert_int_equal(rig_state(&r, waits), JOB_PENDING);  // it could end just in time
    r.now_ms += 1000;
    core_schedule(r.core, r.now_ms);
    rig_drain(&r);
    assert_int_equal(rig_state(&r, waits), JOB_STATE_COUNT);
    assert_int_equal(r.last_state, JOB_DEADLINE);
    s.time_limit_s = 0;
    s.deadline_ms = r.now_ms + 100 * 1000;
    uint64_t open = rig_submit(&r, &alice, &s);
    r.now_ms += 70 * 1000;
    rig_end(&r, "n1", running, 1, END_EXIT, 0);
    struct job_view v;
    assert_true(core_view(r.core, open, &v));
    assert_int_equal(v.state, JOB_STARTING);
    assert_in_range(v.time_limit_s, 30, 31);
    rig_done(&r);
}

// Many deadlines that pass at the same moment do not hold up everybody else: each call ends a slice.
static void many_deadlines_are_kept_in_slices(void **state) {
    (void)state;
    struct rig r;
    rig_init(&r);
    rig_hello(&r, "n1", 1, 0, "b1", NULL, 0);
    struct spec s = rig_spec();
    rig_submit(&r, &alice, &s);
    enum { SLICE = 2000 };  // core_slice()
    struct array_range all = {0, SLICE * 2 + 9, 1};
    s.array.at = &all;
    s.array.len = 1;
    s.time_limit_s = 60;
    s.deadline_ms = r.now_ms + 100 * 1000;
    rig_submit(&r, &alice, &s);
    while (core_array_continue(r.core, r.now_ms))
        continue;
    struct core_counts counts;
    core_counts(r.core, &counts);
    uint64_t before = counts.by_state[JOB_PENDING];
    assert_int_equal(before, SLICE * 2 + 10);
    r.now_ms += 90 * 1000;
    assert_true(core_schedule(r.core, r.now_ms) <= r.now_ms);
    core_counts(r.core, &counts);
    assert_int_equal(before - counts.by_state[JOB_PENDING], SLICE);
    core_schedule(r.core, r.now_ms);
    core_schedule(r.core, r.now_ms);
    core_counts(r.core, &counts);
    assert_int_equal(counts.by_state[JOB_PENDING], 0);
    rig_drain(&r);
    rig_done(&r);
}

// Whose dependency fails, or has failed already, is cancelled if it asked for that, and stays otherwise.
static void jobs_without_a_chance_are_cancelled(void **state) {
    (void)state;
    struct rig r;
    rig_init(&r);
    rig_hello(&r, "n1", 1, 0, "b1", NULL, 0);
    struct spec s = rig_spec();
    uint64_t first = rig_submit(&r, &alice, &s);
    char ok[32];
    snprintf(ok, sizeof ok, "afterok:%llu", (unsigned long long)first);
    s.dependency = ok;
    uint64_t stays = rig_submit(&r, &alice, &s);
    s.cancel_invalid_dependency = true;
    uint64_t goes = rig_submit(&r, &alice, &s);
    struct core *loaded;
    same_after_snapshot(&r, &loaded);
    core_free(loaded);
    rig_end(&r, "n1", first, 1, END_EXIT, 1);
    r.now_ms += 2000;
    core_schedule(r.core, r.now_ms);
    rig_drain(&r);
    assert_int_equal(rig_state(&r, stays), JOB_PENDING);
    assert_int_equal(rig_state(&r, goes), JOB_STATE_COUNT);
    assert_int_equal(r.last_state, JOB_CANCELLED);
    goes = rig_submit(&r, &alice, &s);
    r.now_ms += 2000;
    core_schedule(r.core, r.now_ms);
    rig_drain(&r);
    assert_int_equal(rig_state(&r, goes), JOB_STATE_COUNT);
    rig_done(&r);
}

// Looked for by a clock that was a day ahead, the next look is not a day away.
static void deadlines_are_kept_when_the_clock_is_set_back(void **state) {
    (void)state;
    struct rig r;
    rig_init(&r);
    r.now_ms += 2 * 86400 * 1000;
    rig_hello(&r, "n1", 1, 0, "b1", NULL, 0);
    struct spec s = rig_spec();
    uint64_t running = rig_submit(&r, &alice, &s);
    assert_int_equal(rig_state(&r, running), JOB_STARTING);
    int64_t right_ms = r.now_ms - 86400 * 1000;
    s.deadline_ms = r.now_ms + 3600 * 1000;
    uint64_t other = rig_submit(&r, &alice, &s);
    core_schedule(r.core, r.now_ms += 1000);
    rig_drain(&r);
    r.now_ms = right_ms;
    core_schedule(r.core, r.now_ms);
    s.deadline_ms = r.now_ms + 30 * 1000;
    uint64_t waits = rig_submit(&r, &alice, &s);
    core_schedule(r.core, r.now_ms += 60 * 1000);
    rig_drain(&r);
    assert_int_equal(rig_state(&r, waits), JOB_STATE_COUNT);
    assert_int_equal(r.last_state, JOB_DEADLINE);
    assert_int_equal(rig_state(&r, other), JOB_PENDING);
    rig_done(&r);
}

// A preempted job tells for whom and why, waiting and running again, also after the controller was restarted.
static void preempted_jobs_say_so(void **state) {
    (void)state;
    struct rig r;
    struct error e = {0};
    rig_init(&r);
    rig_hello(&r, "n1", 4, 4, "b1", NULL, 0);
    assert_int_equal(do_project_set(r.core, &root, &(struct project){.name = "vision", .quota_milligpu = 4000},
                                      r.now_ms, &e), 0);
    struct spec s = rig_spec();
    s.gpus_milli = 4000;
    uint64_t victim = rig_submit(&r, &alice, &s);
    rig_started(&r, "n1", victim, 1);
    s.project = "vision";
    s.time_limit_s = 3600;
    uint64_t by = rig_submit(&r, &bob, &s);
    rig_end(&r, "n1", victim, 1, END_PREEMPT, 0);
    assert_int_equal(rig_state(&r, victim), JOB_PENDING);
    char expected[100];
    snprintf(expected, sizeof expected, "Preempted for job %llu: default used more than its share, vision less",
             (unsigned long long)by);
    struct core *loaded;
    same_after_snapshot(&r, &loaded);
    struct core *both[] = {r.core, loaded};
    for (int i = 0; i < 2; i++) {
        cleanup_arena struct arena a = {0};
        struct job_record record;
        assert_int_equal(core_record(both[i], victim, &a, &record), 0);
        assert_int_equal(record.preempted, 1);
        assert_string_equal(record.preempted_why, expected);
        assert_int_equal(core_record(both[i], by, &a, &record), 0);
        assert_null(record.preempted_why);
    }
    core_free(loaded);
    rig_done(&r);
}

// A planned start is shown while the latest pass planned it, and not longer.
static void expected_starts_are_those_of_the_latest_pass(void **state) {
    (void)state;
    struct rig r;
    struct error e = {0};
    struct job_view v;
    rig_init(&r);
    rig_hello(&r, "n1", 4, 0, "b1", NULL, 0);
    struct spec s = rig_spec();
    s.cpus_per_task = 4;
    s.time_limit_s = 600;
    rig_submit(&r, &alice, &s);
    uint64_t next = rig_submit(&r, &alice, &s);
    assert_true(core_view(r.core, next, &v));
    assert_int_equal(v.expected_start_ms, r.now_ms + 600 * 1000);
    assert_int_equal(do_hold(r.core, &alice, next, r.now_ms, &e), 0);
    core_schedule(r.core, r.now_ms);
    rig_drain(&r);
    assert_true(core_view(r.core, next, &v));
    assert_int_equal(v.expected_start_ms, 0);
    rig_done(&r);
}

static int depend_on(struct rig *r, uint64_t job, const char *kind, uint64_t on, struct error *e) {
    char text[48];
    struct spec s = rig_spec();
    snprintf(text, sizeof text, "%s:%llu", kind, (unsigned long long)on);
    s.dependency = text;
    return do_update(r->core, &alice, job, &s, r->now_ms, e);
}

// A job never waits for itself, directly, as an element of an array, or through an array that waits for it.
static void cycles_through_arrays_are_refused(void **state) {
    (void)state;
    struct rig r;
    struct error e = {0};
    char text[32];
    rig_init(&r);
    struct spec s = rig_spec();
    struct array_range three = {0, 2, 1};
    uint64_t single = rig_submit(&r, &alice, &s), other = rig_submit(&r, &alice, &s);
    s.array.at = &three;
    s.array.len = 1;
    snprintf(text, sizeof text, "afterok:%llu", (unsigned long long)single);
    s.dependency = text;
    uint64_t array = rig_submit(&r, &alice, &s);
    assert_int_equal(depend_on(&r, single, "afterok", single, &e), -EDEADLK);
    assert_int_equal(depend_on(&r, array, "afterok", array, &e), -EDEADLK);
    assert_non_null(strstr(e.text, "is an element of array"));
    assert_int_equal(depend_on(&r, array + 1, "afterany", array, &e), -EDEADLK);
    assert_int_equal(depend_on(&r, array + 1, "aftercorr", array, &e), -EDEADLK);
    assert_int_equal(depend_on(&r, single, "afterok", array, &e), -EDEADLK);
    assert_non_null(strstr(e.text, "waits for job"));
    assert_int_equal(depend_on(&r, other, "afterok", array, &e), 0);
    assert_int_equal(depend_on(&r, single, "afterok", other, &e), -EDEADLK);     // over the array
    assert_int_equal(depend_on(&r, array + 1, "afterok", other, &e), -EDEADLK);  // which waits for its array
    rig_done(&r);
}

// Two QoS that could preempt each other are refused before anything is recorded.
static void qos_do_not_preempt_each_other(void **state) {
    (void)state;
    struct rig r;
    struct error e = {0};
    const char *low = "low", *high = "high";
    rig_init(&r);
    struct qos a = {.name = low, .usage_factor = 1}, b = {.name = high, .usage_factor = 1, .preempts = {&low, 1}};
    assert_int_equal(do_qos_set(r.core, &root, &b, r.now_ms, &e), -ENOENT);
    assert_int_equal(do_qos_set(r.core, &root, &a, r.now_ms, &e), 0);
    assert_int_equal(do_qos_set(r.core, &root, &b, r.now_ms, &e), 0);
    uint64_t before = core_seq(r.core);
    a.preempts.at = &high;
    a.preempts.len = 1;
    assert_int_equal(do_qos_set(r.core, &root, &a, r.now_ms, &e), -EINVAL);
    a.preempts.at = &low;
    assert_int_equal(do_qos_set(r.core, &root, &a, r.now_ms, &e), -EINVAL);
    assert_int_equal(core_seq(r.core), before);
    rig_done(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deadlines_are_kept),
        cmocka_unit_test(many_deadlines_are_kept_in_slices),
        cmocka_unit_test(jobs_without_a_chance_are_cancelled),
        cmocka_unit_test(deadlines_are_kept_when_the_clock_is_set_back),
        cmocka_unit_test(preempted_jobs_say_so),
        cmocka_unit_test(expected_starts_are_those_of_the_latest_pass),
        cmocka_unit_test(cycles_through_arrays_are_refused),
        cmocka_unit_test(qos_do_not_preempt_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
