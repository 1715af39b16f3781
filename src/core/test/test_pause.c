// Pauses and holds of jobs that run, what comes after an ended job's start, and the limit of an array
// that is changed; each of them also out of a snapshot.
#include <errno.h>

#include "rig.h"

static struct core *reloaded(struct rig *r) {
    cleanup_buf struct buf b = {0};
    struct core_config config;
    struct error e = {0};
    core_config_default(&config);
    struct core *c = core_new(&config);
    core_snapshot(r->core, &b);
    assert_int_equal(core_load_snapshot(c, core_seq(r->core), b.data, b.len, &e), 0);
    core_assert(c);
    return c;
}

static struct job_view view(const struct core *c, uint64_t id) {
    struct job_view v;
    assert_true(core_view(c, id, &v));
    return v;
}

static uint64_t running(struct rig *r, struct spec *s) {
    uint64_t id = rig_submit(r, &alice, s);
    rig_started(r, "n1", id, 1);
    assert_int_equal(rig_state(r, id), JOB_RUNNING);
    return id;
}

static void pauses_are_counted(void **state) {
    struct rig r;
    struct error e = {0};
    rig_init(&r);
    rig_hello(&r, "n1", 4, 0, "b1", NULL, 0);
    struct spec s = rig_spec();
    uint64_t id = running(&r, &s);
    r.now_ms += 5000;
    assert_int_equal(do_suspend(r.core, &alice, id, false, r.now_ms, &e), 0);
    int64_t at = r.now_ms;
    r.now_ms += 7000;
    struct job_view v = view(r.core, id);
    assert_int_equal(v.suspend_ms, at);
    assert_int_equal(core_view_paused_ms(&v, r.now_ms), 7000);
    assert_int_equal(do_suspend(r.core, &alice, id, true, r.now_ms, &e), 0);
    r.now_ms += 1000;
    assert_int_equal(do_suspend(r.core, &alice, id, false, r.now_ms, &e), 0);
    r.now_ms += 2000;
    struct core *other = reloaded(&r);
    v = view(other, id);
    assert_int_equal(core_view_paused_ms(&v, r.now_ms), 9000);
    core_free(other);
    // It is ended while it is suspended: the pause ends then.
    assert_int_equal(do_cancel(r.core, &alice, id, &(struct command_cancel){0}, r.now_ms, &e), 0);
    r.now_ms += 30000;
    v = view(r.core, id);
    assert_int_equal(core_view_paused_ms(&v, r.now_ms), 9000);
    rig_drain(&r);
    rig_done(&r);
}

// A message that was lost with its connection is said again at the next hello.
static void a_hello_is_answered_with_the_desired_state(void **state) {
    struct rig r;
    struct error e = {0};
    rig_init(&r);
    rig_hello(&r, "n1", 4, 0, "b1", NULL, 0);
    struct spec s = rig_spec();
    uint64_t id = running(&r, &s);
    struct attempt known = {.id = id, .attempt = 1, .state = ATTEMPT_RUNNING};
    rig_hello(&r, "n1", 4, 0, "b1", &known, 1);
    assert_true(r.suspends == 1 &&
                r.resumed);  // it may have been suspended in a state that was lost by a restore
    assert_int_equal(do_suspend(r.core, &alice, id, false, r.now_ms, &e), 0);
    rig_drain(&r);
    assert_true(r.suspends == 2 && !r.resumed);
    rig_hello(&r, "n1", 4, 0, "b1", &known, 1);
    assert_true(r.suspends == 3 && !r.resumed);
    assert_int_equal(do_suspend(r.core, &alice, id, true, r.now_ms, &e), 0);
    rig_hello(&r, "n1", 4, 0, "b1", &known, 1);
    assert_true(r.suspends == 5 && r.resumed);
    rig_done(&r);
}

static void a_hold_waits_for_the_requeue(void **state) {
    struct rig r;
    struct error e = {0};
    rig_init(&r);
    rig_hello(&r, "n1", 4, 0, "b1", NULL, 0);
    struct spec s = rig_spec();
    uint64_t id = running(&r, &s);
    assert_int_equal(do_hold(r.core, &alice, id, r.now_ms, &e), 0);
    assert_int_equal(view(r.core, id).state, JOB_RUNNING);
    assert_int_equal(view(r.core, id).reason, REASON_HELD_USER);
    assert_int_equal(do_hold_as(r.core, &root, id, HOLD_ADMIN, r.now_ms, &e), 0);
    assert_int_equal(view(r.core, id).reason, REASON_HELD_ADMIN);
    assert_int_equal(do_release(r.core, &alice, id, r.now_ms, &e), -EPERM);
    assert_int_equal(do_hold_as(r.core, &root, id, HOLD_USER, r.now_ms, &e), 0);
    assert_int_equal(view(r.core, id).reason, REASON_HELD_USER);
    assert_int_equal(do_requeue(r.core, &alice, id, false, r.now_ms, &e), 0);
    rig_end(&r, "n1", id, 1, END_REQUEUE, 0);
    assert_int_equal(rig_state(&r, id), JOB_PENDING);
    assert_int_equal(view(r.core, id).reason, REASON_HELD_USER);
    assert_int_equal(do_release(r.core, &alice, id, r.now_ms, &e), 0);
    core_schedule(r.core, r.now_ms);
    rig_drain(&r);
    assert_int_equal(rig_state(&r, id), JOB_STARTING);
    rig_done(&r);
}

// "after:JOB+1" of a job that has ended: a minute after its start.
static void after_counts_from_the_start(void **state) {
    struct rig r;
    rig_init(&r);
    rig_hello(&r, "n1", 4, 0, "b1", NULL, 0);
    struct spec s = rig_spec();
    uint64_t first = running(&r, &s);
    int64_t start = view(r.core, first).start_ms;
    r.now_ms += 20000;
    rig_end(&r, "n1", first, 1, END_EXIT, 0);
    char text[40];
    snprintf(text, sizeof text, "after:%llu+1", (unsigned long long)first);
    s.dependency = text;
    struct core *other = reloaded(&r);
    uint64_t id = rig_submit(&r, &alice, &s);
    assert_int_equal(rig_state(&r, id), JOB_PENDING);
    assert_int_equal(view(r.core, id).reason, REASON_BEGIN_TIME);
    r.now_ms = start / 1000 * 1000 + 60000;
    core_schedule(r.core, r.now_ms);
    rig_drain(&r);
    assert_int_equal(rig_state(&r, id), JOB_STARTING);
    uint64_t count;
    struct error e = {0};
    assert_int_equal(do_submit(other, &alice, &s, NULL, false, start + 20000, &id, &count, &e), 0);
    core_schedule(other, start + 20000);
    assert_int_equal(view(other, id).reason, REASON_BEGIN_TIME);
    core_free(other);
    rig_done(&r);
}

static uint32_t let_through(struct rig *r, uint64_t id, uint32_t count) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i++)
        n += view(r->core, id + i).reason != REASON_ARRAY_LIMIT;
    return n;
}

static void the_limit_of_an_array_changes(void **state) {
    struct rig r;
    struct error e = {0};
    rig_init(&r);
    rig_hello(&r, "n1", 16, 0, "b1", NULL, 0);
    struct spec s = rig_spec();
    struct array_range range = {0, 9, 1};
    s.array.at = &range;
    s.array.len = 1;
    s.array_limit = 2;
    uint64_t id = rig_submit(&r, &alice, &s);
    assert_int_equal(let_through(&r, id, 10), 2);
    s.array_limit = 5;
    assert_int_equal(do_update(r.core, &alice, id + 3, &s, r.now_ms, &e), 0);
    core_schedule(r.core, r.now_ms);
    rig_drain(&r);
    assert_int_equal(let_through(&r, id, 10), 5);
    // Another change of another element leaves it.
    cleanup_arena struct arena a = {0};
    struct job_record record;
    assert_int_equal(core_record(r.core, id + 7, &a, &record), 0);
    record.spec->comment = "still five";
    assert_int_equal(do_update(r.core, &alice, id + 7, record.spec, r.now_ms, &e), 0);
    rig_drain(&r);
    assert_int_equal(let_through(&r, id, 10), 5);
    struct core *other = reloaded(&r);
    assert_int_equal(view(other, id).array_limit, 5);
    core_free(other);
    s.array_limit = 0;
    schema_give(&spec_schema, &s, &s.array_limit);
    assert_int_equal(do_update(r.core, &alice, id + 9, &s, r.now_ms, &e), 0);
    core_schedule(r.core, r.now_ms);
    rig_drain(&r);
    assert_int_equal(let_through(&r, id, 10), 10);
    rig_done(&r);
}

static void an_idle_node_was_busy(void **state) {
    struct rig r;
    struct node_view v;
    rig_init(&r);
    rig_hello(&r, "n1", 4, 0, "b1", NULL, 0);
    assert_true(core_node(r.core, "n1", &v) && v.busy_ms == 0);
    struct spec s = rig_spec();
    uint64_t id = running(&r, &s);
    r.now_ms += 4000;
    rig_end(&r, "n1", id, 1, END_EXIT, 0);
    assert_true(core_node(r.core, "n1", &v));
    assert_int_equal(v.busy_ms, r.now_ms);
    struct core *other = reloaded(&r);
    assert_true(core_node(other, "n1", &v));
    assert_int_equal(v.busy_ms, r.now_ms);
    core_free(other);
    rig_done(&r);
}

static const char *cpu_ids(struct rig *r, uint64_t id, struct arena *a) {
    struct job_record record;
    assert_int_equal(core_record(r->core, id, a, &record), 0);
    return record.parts.at[0].cpu_ids;
}

// The node says which CPUs it gave; anything but numbers is not believed.
static void cpus_are_told(void **state) {
    struct rig r;
    cleanup_arena struct arena a = {0};
    rig_init(&r);
    rig_hello(&r, "n1", 4, 0, "b1", NULL, 0);
    struct spec s = rig_spec();
    uint64_t one = rig_submit(&r, &alice, &s), two = rig_submit(&r, &alice, &s);
    struct message_started m = {.id = one, .attempt = 1, .cpu_ids = "0,2-3"};
    core_agent_started(r.core, "n1", &m, r.now_ms);
    m = (struct message_started){.id = two, .attempt = 1, .cpu_ids = "\033[2J"};
    core_agent_started(r.core, "n1", &m, r.now_ms);
    rig_drain(&r);
    assert_string_equal(cpu_ids(&r, one, &a), "0,2-3");
    assert_null(cpu_ids(&r, two, &a));
    struct core *other = reloaded(&r);
    struct job_record record;
    assert_int_equal(core_record(other, one, &a, &record), 0);
    assert_string_equal(record.parts.at[0].cpu_ids, "0,2-3");
    core_free(other);
    rig_done(&r);
}

// A closed partition accepts no new jobs, and starts pending ones.
static void closed_partitions_go_on(void **state) {
    struct rig r;
    struct error e = {0};
    rig_init(&r);
    struct spec s = rig_spec();
    uint64_t id = rig_submit(&r, &alice, &s), count;
    struct partition p = {.name = "main", .is_default = true, .closed = true};
    assert_int_equal(do_partition_set(r.core, &root, &p, r.now_ms, &e), 0);
    assert_int_equal(do_submit(r.core, &alice, &s, NULL, false, r.now_ms, &count, &count, &e), -EBUSY);
    assert_non_null(strstr(e.text, "accepts no new jobs"));
    rig_drain(&r);
    rig_hello(&r, "n1", 4, 0, "b1", NULL, 0);
    assert_int_equal(rig_state(&r, id), JOB_STARTING);
    rig_done(&r);
}

// A program that fails is run again as often as asked, after the pause, and the last failure counts.
static void failures_are_retried(void **state) {
    struct rig r;
    rig_init(&r);
    rig_hello(&r, "n1", 4, 0, "b1", NULL, 0);
    struct spec s = rig_spec();
    s.retries = 2;
    s.backoff_s = 30;
    uint64_t id = rig_submit(&r, &alice, &s);
    for (uint32_t attempt = 1; attempt <= 2; attempt++) {
        rig_started(&r, "n1", id, attempt);
        rig_end(&r, "n1", id, attempt, END_EXIT, 3);
        assert_int_equal(rig_state(&r, id), JOB_PENDING);
        struct spec change = {.comment = attempt == 1 ? "first" : "second"};  // says nothing about the pause
        assert_int_equal(do_update(r.core, &alice, id, &change, r.now_ms, NULL), 0);
        r.now_ms += 29999;
        core_schedule(r.core, r.now_ms);
        assert_int_equal(rig_state(&r, id), JOB_PENDING);
        r.now_ms++;
        core_schedule(r.core, r.now_ms);
        rig_drain(&r);
        assert_int_equal(rig_state(&r, id), JOB_STARTING);
    }
    rig_started(&r, "n1", id, 3);
    rig_end(&r, "n1", id, 3, END_EXIT, 3);
    assert_int_equal(r.last_state, JOB_FAILED);
    // One that is cancelled, or that succeeds, is not.
    id = rig_submit(&r, &alice, &s);
    rig_started(&r, "n1", id, 1);
    rig_end(&r, "n1", id, 1, END_EXIT, 0);
    assert_int_equal(r.last_state, JOB_COMPLETED);
    rig_done(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pauses_are_counted),
        cmocka_unit_test(failures_are_retried),
        cmocka_unit_test(a_hello_is_answered_with_the_desired_state),
        cmocka_unit_test(a_hold_waits_for_the_requeue),
        cmocka_unit_test(after_counts_from_the_start),
        cmocka_unit_test(the_limit_of_an_array_changes),
        cmocka_unit_test(an_idle_node_was_busy),
        cmocka_unit_test(cpus_are_told),
        cmocka_unit_test(closed_partitions_go_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
