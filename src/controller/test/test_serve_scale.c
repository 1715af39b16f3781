// How many replicas a service has: decided by a pure function, so each rule is a row of numbers here.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "serve_scale.h"

static struct serve_load usual(void) {
    return (struct serve_load){.now_ms = 1000000,
                               .min = 0,
                               .max = 8,
                               .target = 4,
                               .cooldown_ms = 60000,
                               .idle_ms = 300000,
                               .replicas = 2,
                               .ready = 2,
                               .in_flight = 6,
                               .request_ms = 1000000};
}

static void more_work_has_more_replicas_at_once(void **state) {
    struct serve_scaler s = {0};
    struct serve_load l = usual();
    assert_int_equal(serve_scale(&s, &l), 2);
    l.in_flight = 8.1;
    assert_int_equal(serve_scale(&s, &l), 3);
    l.in_flight = 8;
    l.queued = 12;
    assert_int_equal(serve_scale(&s, &l), 5);
    l.queued = 4000;
    assert_int_equal(serve_scale(&s, &l), 8);  // no more than the most
}

static void a_request_at_zero_starts_one(void **state) {
    struct serve_scaler s = {0};
    struct serve_load l = usual();
    l.replicas = l.ready = 0;
    l.in_flight = 0;
    l.request_ms = 0;
    assert_int_equal(serve_scale(&s, &l), 0);
    l.queued = 1;
    assert_int_equal(serve_scale(&s, &l), 1);
}

static void less_work_has_fewer_after_the_cooldown(void **state) {
    struct serve_scaler s = {0};
    struct serve_load l = usual();
    l.replicas = 6;
    l.in_flight = 4;
    assert_int_equal(serve_scale(&s, &l), 6);
    l.now_ms += 30000;
    l.in_flight = 11;  // a short burst in between: as many as were needed most stay
    assert_int_equal(serve_scale(&s, &l), 6);
    l.now_ms += 29999;
    l.in_flight = 4;
    assert_int_equal(serve_scale(&s, &l), 6);
    l.now_ms += 1;
    assert_int_equal(serve_scale(&s, &l), 3);
    l.replicas = 3;
    assert_int_equal(serve_scale(&s, &l), 3);  // the next step waits again
    l.now_ms += 60000;
    assert_int_equal(serve_scale(&s, &l), 1);
}

static void work_that_comes_back_begins_the_cooldown_anew(void **state) {
    struct serve_scaler s = {0};
    struct serve_load l = usual();
    l.in_flight = 1;
    assert_int_equal(serve_scale(&s, &l), 2);
    l.now_ms += 59000;
    l.in_flight = 8;
    assert_int_equal(serve_scale(&s, &l), 2);
    l.now_ms += 2000;
    l.in_flight = 1;
    assert_int_equal(serve_scale(&s, &l), 2);
}

static void none_only_after_the_idle_time(void **state) {
    struct serve_scaler s = {0};
    struct serve_load l = usual();
    l.replicas = l.ready = 1;
    l.in_flight = 0;
    l.now_ms = l.request_ms + 299999;
    assert_int_equal(serve_scale(&s, &l), 1);
    l.now_ms++;
    assert_int_equal(serve_scale(&s, &l), 0);
    l.min = 1;
    assert_int_equal(serve_scale(&s, &l), 1);
    l.min = 0;
    l.in_flight = 0.01;  // a request that lasts
    assert_int_equal(serve_scale(&s, &l), 1);
}

static void slow_answers_have_more_where_that_helps(void **state) {
    struct serve_scaler s = {0};
    struct serve_load l = usual();
    l.latency_ms = 100;
    l.p99_ms = 150;
    assert_int_equal(serve_scale(&s, &l), 3);
    l.p99_ms = 5000;  // twice as many at most in one step
    assert_int_equal(serve_scale(&s, &l), 4);
    l.ready = 1;  // those that were decided are not there yet
    assert_int_equal(serve_scale(&s, &l), 2);
    l.ready = 2;
    l.in_flight = 2;  // each has one request: it is slow by itself
    assert_int_equal(serve_scale(&s, &l), 2);
}

static void latency_is_told_within_a_fifth(void **state) {
    static struct serve_latency l;
    assert_int_equal(serve_latency_us(&l, 1000, 990), 0);
    for (int i = 0; i < 1000; i++)
        serve_latency_add(&l, 20000 + i, i < 980 ? 1000 : 90000, false);
    uint64_t half = serve_latency_us(&l, 21000, 500), most = serve_latency_us(&l, 21000, 990);
    assert_in_range(half, 1000, 1250);
    assert_in_range(most, 90000, 112500);
    assert_true(serve_latency_rate(&l, 21000) > 900);
    assert_int_equal(serve_latency_us(&l, 21000 + 60000, 990), 0);  // what is old does not count
    serve_latency_add(&l, 21000 + 60000, INT64_MAX / 2, true);
    assert_true(serve_latency_us(&l, 21000 + 60000, 990) > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(more_work_has_more_replicas_at_once),
        cmocka_unit_test(a_request_at_zero_starts_one),
        cmocka_unit_test(less_work_has_fewer_after_the_cooldown),
        cmocka_unit_test(work_that_comes_back_begins_the_cooldown_anew),
        cmocka_unit_test(none_only_after_the_idle_time),
        cmocka_unit_test(slow_answers_have_more_where_that_helps),
        cmocka_unit_test(latency_is_told_within_a_fifth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
