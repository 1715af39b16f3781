// Time series: what comes out is what went in, as fine as it is kept; bounds; damage.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rand.h"
#include "metrics/series.h"

enum { HOUR_MS = 3600000, DAY_MS = 24 * HOUR_MS };
static const int64_t t0 = 1800000000000;  // a whole hour

struct points {
    struct arena arena;
    const struct json *list;
    int64_t step_ms;
};

static void query(const struct series_store *s, const char *name, int64_t from, int64_t to, int64_t step,
                  struct points *out) {
    struct buf b = {0};
    struct json_writer w = {.out = &b};
    struct error e;
    struct json *j;
    *out = (struct points){.step_ms = step};
    assert_int_equal(series_query(s, name, from, to, &out->step_ms, &w, &e), 0);
    assert_int_equal(json_parse(b.data, b.len, &out->arena, &j, &e), 0);
    out->list = j;
    buf_done(&b);
}

static int64_t at_of(const struct points *p, uint32_t i) {
    return p->list->items[i].items[0].i;
}

static double value_of(const struct points *p, uint32_t i) {
    const struct json *v = &p->list->items[i].items[1];
    return v->type == JSON_DOUBLE ? v->d : (double)v->i;
}

static void test_fine(void **state) {
    struct series_store *s = series_store_new(10);
    struct points p;
    for (int i = 0; i < 600; i++)
        if (i % 10)  // a gap every ten seconds
            assert_int_equal(series_add(s, "a", t0 + i * 1000 + 300, i), 0);
    query(s, "a", t0, t0 + 600000, 0, &p);
    assert_int_equal(p.list->len, 540);
    assert_int_equal(p.step_ms, 1000);
    assert_true(at_of(&p, 0) == t0 + 1000 && value_of(&p, 0) == 1);
    assert_true(at_of(&p, 539) == t0 + 599000 && value_of(&p, 539) == 599);
    arena_done(&p.arena);
    query(s, "a", t0 - DAY_MS, t0 + 600000, 0, &p);  // a longer range than there is: nothing is lost by it
    assert_int_equal(p.list->len, 34);
    assert_int_equal(p.step_ms, 18000);
    arena_done(&p.arena);
    query(s, "a", t0, t0 + 600000, 10000, &p);  // means of ten seconds
    assert_int_equal(p.list->len, 60);
    assert_true(value_of(&p, 3) == 35);
    arena_done(&p.arena);
    series_store_free(s);
}

// A clock that ran ahead, by hours or by years, and was set right: what is written then is kept and seen.
static void test_clock_set_back(void **state) {
    static const int64_t ahead[] = {HOUR_MS / 2, 5 * HOUR_MS, 20 * (int64_t)DAY_MS, 40 * 365 * (int64_t)DAY_MS};
    for (size_t k = 0; k < sizeof ahead / sizeof *ahead; k++) {
        struct series_store *s = series_store_new(10);
        struct points p;
        for (int64_t i = 0; i < 3600; i++)
            series_add(s, "a", t0 + i * 1000, 1);
        for (int64_t i = 0; i < 60; i++)
            series_add(s, "a", t0 + HOUR_MS + ahead[k] + i * 1000, 9);
        for (int64_t i = 0; i < 600; i++)
            assert_int_equal(series_add(s, "a", t0 + HOUR_MS + i * 1000, 2), 0);
        assert_true(series_mean(s, "a", t0 + HOUR_MS, t0 + HOUR_MS + 600000) == 2);
        query(s, "a", t0 + HOUR_MS, t0 + 41 * 365 * (int64_t)DAY_MS, 0, &p);  // nothing lies in the future
        for (uint32_t i = 0; i < p.list->len; i++)
            assert_true(value_of(&p, i) <= 2);
        assert_true(p.list->len >= 1);
        arena_done(&p.arena);
        if (k == 0) {  // what was before is still there
            query(s, "a", t0 + 3000000, t0 + HOUR_MS, 0, &p);
            assert_int_equal(p.list->len, 600);
            arena_done(&p.arena);
        }
        struct buf b = {0};  // and it can be saved and loaded
        struct series_store *again = series_store_new(10);
        series_save(s, &b);
        assert_int_equal(series_load(again, b.data, b.len), 0);
        assert_true(series_mean(again, "a", t0 + HOUR_MS, t0 + HOUR_MS + 600000) == 2);
        buf_done(&b);
        series_store_free(again);
        series_store_free(s);
    }
}

// A flood of jobs takes nothing from the GPUs' charts, and jobs that run take the place of those that ended.
static void test_jobs_give_way(void **state) {
    struct series_store *s = series_store_new(4);
    char name[32];
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "job/%d/gpu_power_watts", i);
        assert_int_equal(series_add(s, name, t0 + i, 1), 0);
    }
    assert_int_equal(series_add(s, "job/9/gpu_power_watts", t0 + 1000, 1), -ENOSPC);  // all of them run
    assert_int_equal(series_add(s, "gpu/n1/0/power_watts", t0 + 1000, 1), 0);
    assert_true(isnan(series_mean(s, "job/0/gpu_power_watts", t0 - 1000, t0 + 2000)));
    assert_int_equal(series_add(s, "job/9/gpu_power_watts", t0 + 62000, 1), 0);  // the others have ended
    assert_int_equal(series_add(s, "job/8/gpu_power_watts", t0 + 62000, 1), 0);
    assert_false(isnan(series_mean(s, "gpu/n1/0/power_watts", t0, t0 + 2000)));
    assert_int_equal(series_count(s), 4);
    series_store_free(s);
}

static void test_long(void **state) {
    struct series_store *s = series_store_new(10);
    struct points p;
    int64_t end = t0 + 10 * (int64_t)DAY_MS;
    for (int64_t t = t0; t < end; t += 5000)  // the value is the hour
        series_add(s, "a", t, (double)((t - t0) / HOUR_MS));
    query(s, "a", end - HOUR_MS, end, 0, &p);
    assert_int_equal(p.step_ms, 1000);
    assert_int_equal(p.list->len, 720);
    arena_done(&p.arena);
    query(s, "a", end - DAY_MS, end, 0, &p);
    assert_int_equal(p.step_ms, 60000);
    assert_int_equal(p.list->len, 1440);
    assert_true(value_of(&p, 0) == 216 && value_of(&p, 1439) == 239);
    arena_done(&p.arena);
    query(s, "a", t0, end, 0, &p);
    assert_int_equal(p.step_ms, 3600000);
    assert_int_equal(p.list->len, 240);
    assert_true(value_of(&p, 0) == 0 && value_of(&p, 100) == 100);
    arena_done(&p.arena);
    query(s, "a", end - DAY_MS, end, HOUR_MS, &p);  // no finer than asked
    assert_int_equal(p.list->len, 24);
    arena_done(&p.arena);
    assert_true(fabs(series_mean(s, "a", end - 2 * HOUR_MS, end) - 238.5) < 0.01);
    assert_true(isnan(series_mean(s, "b", t0, end)));
    series_store_free(s);
}

static void test_order_and_repeats(void **state) {
    struct series_store *s = series_store_new(10);
    struct points p;
    series_add(s, "a", t0, 1);
    series_add(s, "a", t0 + 500, 3);  // the last of a second counts
    series_add(s, "a", t0 - 5000, 9);  // too old
    series_add(s, "a", t0 + 1000, 5);
    assert_int_equal(series_add(s, "a", t0 + 2000, NAN), -EINVAL);
    query(s, "a", t0 - 10000, t0 + 10000, 0, &p);
    assert_int_equal(p.list->len, 2);
    assert_true(value_of(&p, 0) == 3 && value_of(&p, 1) == 5);
    arena_done(&p.arena);
    series_store_free(s);
}

static void test_bounds(void **state) {
    struct series_store *s = series_store_new(3);
    struct error e;
    struct buf b = {0};
    struct json_writer w = {.out = &b};
    series_add(s, "a", t0, 1);
    series_add(s, "b", t0 + 1000, 1);
    series_add(s, "c", t0 + 2000, 1);
    series_add(s, "a", t0 + 3000, 1);
    assert_int_equal(series_add(s, "d", t0 + 4000, 1), -ENOSPC);  // all are in use
    series_add(s, "a", t0 + HOUR_MS, 1);
    series_add(s, "d", t0 + HOUR_MS + 2000, 1);  // b was not written for longest
    assert_int_equal(series_count(s), 3);
    int64_t step = 0;
    assert_int_equal(series_query(s, "b", t0, t0 + 1, &step, &w, &e), -ENOENT);
    assert_int_equal(series_query(s, "a", t0, t0, &step, &w, &e), -EINVAL);
    char name[SERIES_NAME_MAX + 2];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = 0;
    assert_int_equal(series_add(s, name, t0, 1), -ENAMETOOLONG);
    struct points p;
    query(s, "a", 0, t0 + DAY_MS, 1, &p);  // half a century by the millisecond
    assert_true(p.list->len <= SERIES_ANSWER_MAX);
    arena_done(&p.arena);
    assert_true(series_bytes_each() < 65536);
    buf_done(&b);
    series_store_free(s);
}

static void same(const struct series_store *a, const struct series_store *b, const char *name, int64_t from,
                 int64_t to) {
    struct buf x = {0}, y = {0};
    struct json_writer wx = {.out = &x}, wy = {.out = &y};
    struct error e;
    int64_t step_a = 0, step_b = 0;
    assert_int_equal(series_query(a, name, from, to, &step_a, &wx, &e), 0);
    assert_int_equal(series_query(b, name, from, to, &step_b, &wy, &e), 0);
    assert_int_equal(step_a, step_b);
    assert_string_equal(buf_str(&x), buf_str(&y));
    buf_done(&x);
    buf_done(&y);
}

static void test_save(void **state) {
    struct series_store *s = series_store_new(10), *loaded = series_store_new(10);
    struct buf b = {0};
    struct rand r;
    rand_seed(&r, 3);
    for (int64_t t = t0; t < t0 + DAY_MS; t += 1000) {
        series_add(s, "gpu/n1/0/use", t, (double)rand_below(&r, 1000) / 1000);
        series_add(s, "jobs/running", t, 12);
    }
    series_add(s, "once", t0 + 90000, 1.5);
    series_save(s, &b);
    assert_int_equal(series_load(loaded, b.data, b.len), 0);
    assert_int_equal(series_count(loaded), 3);
    for (int64_t end = t0 + DAY_MS; end > t0; end -= 7 * HOUR_MS) {
        same(s, loaded, "gpu/n1/0/use", end - HOUR_MS, end);
        same(s, loaded, "jobs/running", end - 3 * HOUR_MS, end);
    }
    same(s, loaded, "once", t0, t0 + DAY_MS);
    for (int i = 0; i < 100; i++) {  // both go on alike
        series_add(s, "jobs/running", t0 + DAY_MS + i * 1000, i);
        series_add(loaded, "jobs/running", t0 + DAY_MS + i * 1000, i);
    }
    same(s, loaded, "jobs/running", t0, t0 + 2 * (int64_t)DAY_MS);
    series_store_free(loaded);
    for (size_t cut = 0; cut < b.len; cut += cut < 100 ? 1 : 997) {  // damage is noticed, never followed
        loaded = series_store_new(10);
        assert_int_equal(series_load(loaded, b.data, cut), -EBADMSG);
        series_store_free(loaded);
    }
    for (int i = 0; i < 3000; i++) {
        size_t at = rand_below(&r, b.len < 400 || i % 2 ? b.len : 400);
        char kept = b.data[at];
        b.data[at] = (char)rand_u64(&r);
        loaded = series_store_new(10);
        series_load(loaded, b.data, b.len);
        series_add(loaded, "jobs/running", t0 + 3 * (int64_t)DAY_MS, 1);
        series_store_free(loaded);
        b.data[at] = kept;
    }
    buf_done(&b);
    series_store_free(s);
}

static void collect(void *ctx, const char *name) {
    buf_addf(ctx, "%s ", name);
}

static void test_names(void **state) {
    struct series_store *s = series_store_new(10);
    struct buf b = {0};
    series_add(s, "gpu/b", t0, 1);
    series_add(s, "jobs", t0, 1);
    series_add(s, "gpu/a", t0, 1);
    series_each(s, "gpu/", collect, &b);
    assert_string_equal(buf_str(&b), "gpu/a gpu/b ");
    buf_done(&b);
    series_store_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fine),   cmocka_unit_test(test_clock_set_back),
        cmocka_unit_test(test_long),   cmocka_unit_test(test_order_and_repeats),
        cmocka_unit_test(test_bounds), cmocka_unit_test(test_save),
        cmocka_unit_test(test_names),  cmocka_unit_test(test_jobs_give_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
