// Which events bring a notice, arrays as a whole and element by element, and warnings of time limits.
#include <errno.h>

#include "model/notify.h"
#include "rig.h"

// Notices since the last look.
static uint32_t take_notices(struct rig *r, struct notice *out, uint32_t max) {
    rig_drain(r);
    uint32_t n = r->notices.len < max ? r->notices.len : max;
    if (n)
        memcpy(out, r->notices.at, n * sizeof *out);
    vec_clear(&r->notices);
    return n;
}

static void words(void **state) {
    uint32_t mask;
    struct error e = {0};
    assert_int_equal(spec_notify_parse("begin,END,Fail", &mask, &e), 0);
    assert_int_equal(mask, NOTIFY_BEGIN | NOTIFY_END | NOTIFY_FAIL);
    assert_int_equal(spec_notify_parse(NULL, &mask, &e), 0);
    assert_int_equal(mask, 0);
    assert_int_equal(spec_notify_parse("none", &mask, &e), 0);
    assert_int_equal(mask, 0);
    assert_int_equal(spec_notify_parse("begin,,end", &mask, &e), -EINVAL);
    assert_int_equal(spec_notify_parse("often", &mask, &e), -EINVAL);
    assert_int_equal(spec_notify_targets_check("a@b,c,https://h/x", &e), 0);
    assert_int_equal(spec_notify_targets_check("a@b,", &e), 0);
    assert_int_equal(spec_notify_targets_check("", &e), -EINVAL);
    assert_int_equal(spec_notify_targets_check("https://u@h/x", &e), -EINVAL);
    assert_int_equal(spec_notify_targets_check("a,b,c,d,e,f,g,h,i", &e), -E2BIG);
    assert_int_equal(spec_notify_time_percent(NOTIFY_TIME_LIMIT_50 | NOTIFY_TIME_LIMIT_90, 0), 50);
    assert_int_equal(spec_notify_time_percent(NOTIFY_TIME_LIMIT_50 | NOTIFY_TIME_LIMIT_90, 50), 90);
    assert_int_equal(spec_notify_time_percent(NOTIFY_TIME_LIMIT_50 | NOTIFY_TIME_LIMIT_90, 90), 0);
}

static void a_job_begins_and_ends(void **state) {
    struct rig r;
    struct notice n[8];
    rig_init(&r);
    rig_hello(&r, "n1", 4, 0, "b1", NULL, 0);
    struct spec s = rig_spec();
    s.notify = "all";
    uint64_t id = rig_submit(&r, &alice, &s);
    assert_int_equal(take_notices(&r, n, 8), 0);
    rig_started(&r, "n1", id, 1);
    assert_int_equal(take_notices(&r, n, 8), 1);
    assert_int_equal(n[0].type, EVENT_JOB_STARTED);
    assert_int_equal(n[0].job, id);
    rig_end(&r, "n1", id, 1, END_EXIT, 0);
    assert_int_equal(take_notices(&r, n, 8), 1);
    assert_int_equal(n[0].type, EVENT_JOB_ENDED);
    assert_int_equal(n[0].array_count, 0);
    s.notify = NULL;
    id = rig_submit(&r, &alice, &s);
    rig_started(&r, "n1", id, 1);
    rig_end(&r, "n1", id, 1, END_EXIT, 0);
    assert_int_equal(take_notices(&r, n, 8), 0);
    rig_done(&r);
}

static uint32_t run_array(const char *notify, struct notice *n, uint32_t max) {
    struct rig r;
    struct array_range range = {0, 2, 1};
    rig_init(&r);
    rig_hello(&r, "n1", 4, 0, "b1", NULL, 0);
    struct spec s = rig_spec();
    s.notify = notify;
    s.array.at = &range;
    s.array.len = 1;
    uint64_t id = rig_submit(&r, &alice, &s);
    uint32_t count = 0;
    for (uint64_t i = 0; i < 3; i++) {
        rig_started(&r, "n1", id + i, 1);
        count += take_notices(&r, n + count, max - count);
    }
    for (uint64_t i = 0; i < 3; i++) {
        rig_end(&r, "n1", id + i, 1, END_EXIT, i == 1);
        count += take_notices(&r, n + count, max - count);
    }
    rig_done(&r);
    return count;
}

static void an_array_counts_as_one(void **state) {
    struct notice n[16];
    assert_int_equal(run_array("begin,end", n, 16), 2);
    assert_int_equal(n[0].type, EVENT_JOB_STARTED);
    assert_int_equal(n[1].type, EVENT_JOB_ENDED);
    assert_int_equal(n[1].array_count, 3);
    assert_int_equal(n[1].array_ok, 2);
    assert_int_equal(run_array("begin,end,array_tasks", n, 16), 6);
}

static void time_limits_come_near(void **state) {
    struct rig r;
    struct notice n[8];
    struct core_config config;
    struct error e = {0};
    cleanup_buf struct buf b = {0};
    rig_init(&r);
    rig_hello(&r, "n1", 4, 0, "b1", NULL, 0);
    struct spec s = rig_spec();
    s.notify = "time_limit_50,time_limit_80";
    s.time_limit_s = 1000;
    uint64_t id = rig_submit(&r, &alice, &s);
    rig_started(&r, "n1", id, 1);
    take_notices(&r, n, 8);
    r.now_ms += 400000;
    core_schedule(r.core, r.now_ms);
    assert_int_equal(take_notices(&r, n, 8), 0);
    r.now_ms += 150000;
    assert_true(core_schedule(r.core, r.now_ms) <= r.now_ms + 1000);
    assert_int_equal(take_notices(&r, n, 8), 1);
    assert_int_equal(n[0].type, EVENT_JOB_TIME_WARNING);
    assert_int_equal(n[0].percent, 50);
    r.now_ms += 2000;
    core_schedule(r.core, r.now_ms);
    assert_int_equal(take_notices(&r, n, 8), 0);
    // A snapshot remembers what was said: no second warning of the same kind.
    core_config_default(&config);
    struct core *again = core_new(&config);
    core_snapshot(r.core, &b);
    assert_int_equal(core_load_snapshot(again, core_seq(r.core), b.data, b.len, &e), 0);
    struct core *first = r.core;
    r.core = again;
    r.now_ms += 2000;
    core_schedule(r.core, r.now_ms);
    assert_int_equal(take_notices(&r, n, 8), 0);
    r.now_ms += 250000;
    core_schedule(r.core, r.now_ms);
    assert_int_equal(take_notices(&r, n, 8), 1);
    assert_int_equal(n[0].percent, 80);
    r.core = first;
    core_free(again);
    rig_done(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words),
        cmocka_unit_test(a_job_begins_and_ends),
        cmocka_unit_test(an_array_counts_as_one),
        cmocka_unit_test(time_limits_come_near),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
