// Sizes, durations, times.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "model/job.h"
#include "model/units.h"

static void sizes(void **state) {
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {{"64G", 64 * SIZE_G}, {"1.5T", SIZE_T + SIZE_T / 2}, {"512M", 512 * SIZE_M}, {"100", 100 * SIZE_M},
                {"7B", 7}, {"2KiB", 2048}, {"2kb", 2048}, {"0", 0}, {"0.5G", SIZE_G / 2}, {"1024P", SIZE_LIMIT_BYTES}};
    static const char *const bad[] = {
        "",      "G",   "-1", "1.G", ".5G", "1X", "1GG", " 1", "1 G", "1e3", "99999999999999999999",
        "1025P", "0x10"};
    char out[UNIT_TEXT_MAX];
    struct error e;
    uint64_t v;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(size_parse(good[i].text, SIZE_M, &v, &e), 0);
        assert_true(v == good[i].bytes);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        v = 42;
        assert_true(size_parse(bad[i], SIZE_M, &v, &e) < 0);
        assert_true(v == 42 && e.text[0]);
    }
    assert_string_equal(size_format(64 * SIZE_G, out), "64G");
    assert_string_equal(size_format(SIZE_T + SIZE_T / 2, out), "1.5T");
    assert_string_equal(size_format(1023 * SIZE_M, out), "1023M");
    assert_string_equal(size_format(1, out), "1B");
    assert_string_equal(size_format(0, out), "0");
    assert_string_equal(size_format(UINT64_MAX, out), "16E");
}

static void durations(void **state) {
    static const struct {
        const char *text;
        uint32_t seconds;
    } good[] = {{"90", 5400},
                {"90m", 5400},
                {"8h", 28800},
                {"2-12:30:00", 217800},
                {"1-02", 93600},
                {"1-02:30", 95400},
                {"10:30", 630},
                {"1:10:30", 4230},
                {"1h30m", 5400},
                {"8 hours", 28800},
                {"1 day 2 hours", 93600},
                {"2w", 1209600},
                {"45s", 45},
                {"0", 0},
                {"unlimited", DURATION_UNLIMITED},
                {"INFINITE", DURATION_UNLIMITED},
                {"90:00", 5400}};
    static const char *const bad[] = {"",        "-1",       "1-",    "1:",   ":5",
                                      "1:2:3:4", "5x",       "30m1h", "1h1h", "99999999999999999999",
                                      "1-2-3",   "4000000d", "h",     "1.5h"};
    char out[UNIT_TEXT_MAX];
    struct error e;
    uint32_t v;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(duration_parse(good[i].text, 60, &v, &e), 0);
        assert_int_equal(v, good[i].seconds);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        v = 42;
        assert_true(duration_parse(bad[i], 60, &v, &e) < 0);
        assert_true(v == 42 && e.text[0]);
    }
    assert_string_equal(duration_format(28800, out), "8h");
    assert_string_equal(duration_format(131400, out), "1d12h30m");
    assert_string_equal(duration_format(0, out), "0s");
    assert_string_equal(duration_elapsed_format(5, out), "0:05");
    assert_string_equal(duration_elapsed_format(3723, out), "1:02:03");
    assert_string_equal(duration_elapsed_format(2 * 86400 + 3723, out), "2-01:02:03");
    assert_string_equal(duration_elapsed_format_full(5, out), "00:00:05");
}

static void times(void **state) {
    // Saturday 2026-01-31 13:00:00 at one hour east of UTC
    int64_t now = 1769860800000, at;
    static const struct {
        const char *text, *local;
    } good[] = {{"2026-01-31T12:00", "2026-01-31T12:00:00"},
                {"2026-02-28", "2026-02-28T00:00:00"},
                {"16:00", "2026-01-31T16:00:00"},
                {"12:00", "2026-02-01T12:00:00"},  // the next one
                {"now+1hour", "2026-01-31T14:00:00"},
                {"now+90", "2026-01-31T13:01:30"},
                {"now-1day", "2026-01-30T13:00:00"},
                {"tomorrow", "2026-02-01T00:00:00"},
                {"today", "2026-01-31T00:00:00"},
                {"midnight", "2026-02-01T00:00:00"},
                {"noon", "2026-02-01T12:00:00"},
                {"teatime", "2026-01-31T16:00:00"},
                {"4:30pm", "2026-01-31T16:30:00"},
                {"02/03", "2026-02-03T00:00:00"},
                {"02/03/27-10:00", "2027-02-03T10:00:00"},
                {"0203", "2026-02-03T00:00:00"},
                {"0101", "2027-01-01T00:00:00"},  // the next one
                {"020327", "2027-02-03T00:00:00"},
                {"02.03.27", "2027-02-03T00:00:00"},
                {"2027-02-03-10:00", "2027-02-03T10:00:00"},
                {"uts1769860800", "2026-01-31T13:00:00"},
                {"2024-02-29T23:59:59", "2024-02-29T23:59:59"},
                {"2026-01-31T12:00Z", "2026-01-31T13:00:00"},
                {"@1769860800", "2026-01-31T13:00:00"}};
    static const char *const bad[] = {"",       "25:00", "2026-02-29",      "2026-13-01",  "now+",
                                      "now+1x", "soon",  "12:60",           "2026-01-31T", "13:00pm",
                                      "@-1",    "1/1/1", "2026-01-31X12:00", "1301", "02.03/27", "uts", "02030"};
    char out[UNIT_TEXT_MAX];
    struct error e;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(time_parse(good[i].text, now, 3600, TIME_NEXT, &at, &e), 0);
        assert_string_equal(time_format(at, 3600, out), good[i].local);
    }
    assert_int_equal(time_parse("12:00", now, 3600, TIME_TODAY, &at, &e), 0);
    assert_string_equal(time_format(at, 3600, out), "2026-01-31T12:00:00");
    assert_int_equal(time_parse("12/24", now, 3600, TIME_TODAY, &at, &e), 0);  // a month that was
    assert_string_equal(time_format(at, 3600, out), "2025-12-24T00:00:00");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_true(time_parse(bad[i], now, 3600, TIME_NEXT, &at, &e) < 0);
    assert_string_equal(time_format(0, 0, out), "-");
}

// What is asked for by GPU: the numbers that the scheduler knows.
static void by_gpu(void **state) {
    struct spec a = {.tasks = 5, .ntasks_per_gpu = 2};
    spec_count_by_gpu(&a);
    assert_int_equal(a.gpus_milli, 3000);
    struct spec b = {.gpus_milli = 2000, .ntasks_per_gpu = 3, .cpus_per_gpu = 6};
    spec_count_by_gpu(&b);
    assert_int_equal(b.tasks, 6);
    assert_int_equal(b.cpus_per_task, 2);
    struct spec c = {.gpus_per_node_milli = 4000, .nodes_min = 2, .cpus_per_gpu = 3};
    spec_count_by_gpu(&c);
    assert_int_equal(c.cpus_per_task, 12);
    struct spec d = {.gpus_per_task_milli = 500, .tasks = 4, .cpus_per_gpu = 3};
    spec_count_by_gpu(&d);
    assert_int_equal(d.cpus_per_task, 3);
    struct spec e = {.gpus_per_node_milli = 2000, .nodes_min = 2, .ntasks_per_gpu = 2};
    spec_count_by_gpu(&e);
    assert_int_equal(e.tasks, 8);
    assert_int_equal(e.tasks_per_node, 4);
    struct spec f = {.cpus_per_gpu = 4};  // no GPU, no CPU of it
    spec_count_by_gpu(&f);
    assert_int_equal(f.cpus_per_task, 0);
    struct spec g = {.tasks = UINT32_MAX, .ntasks_per_gpu = 1};
    spec_count_by_gpu(&g);
    assert_int_equal(g.gpus_milli, UINT32_MAX);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(sizes), cmocka_unit_test(durations), cmocka_unit_test(times),
                                       cmocka_unit_test(by_gpu)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
