// Filters of lists, and tags.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/text.h"
#include "model/tag.h"
#include "model/units.h"
#include "model/where.h"

static const struct where_column columns[] = {
    {"user", WHERE_TEXT},   {"gpus", WHERE_GPUS},  {"memory", WHERE_BYTES}, {"age", WHERE_SECONDS},
    {"time", WHERE_MILLIS}, {"start", WHERE_TIME}, {"held", WHERE_FLAG},    {"cpus", WHERE_NUMBER},
};
enum { USER, GPUS, MEMORY, AGE, TIME, START, HELD, CPUS, COLUMNS };

static int parse(const char *text, struct arena *a, struct where *out, struct error *e) {
    struct where_clock clock = {.now_ms = 1769860800000, .zone_offset_s = 3600};
    *e = (struct error){0};
    return where_parse(text, columns, COLUMNS, &clock, a, out, e);
}

static void patterns(void **state) {
    static const struct {
        const char *pattern, *text;
        bool matches;
    } cases[] = {
        {"", "", true},          {"", "a", false},           {"a", "", false},
        {"*", "", true},         {"ana*", "anabel", true},   {"ana*", "an", false},
        {"*el", "anabel", true}, {"a*b*c", "a1b2b3c", true}, {"a*b*c", "a1c", false},
        {"?", "ñ", true},        {"??", "ñ", false},         {"\\*", "*", true},
        {"\\*", "a", false},     {"a\\?", "a?", true},       {"a\\?", "ab", false},
        {"**a**", "xax", true},  {"*.py", "a.py.py", true},  {"a?c", "abc", true},
        {"a?c", "ac", false},    {"\\", "\\", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(where_pattern_match(cases[i].pattern, cases[i].text, strlen(cases[i].text)),
                         cases[i].matches);
}

static void terms(void **state) {
    cleanup_arena struct arena a = {0};
    struct where w;
    struct error e;
    assert_int_equal(parse("", &a, &w, &e), 0);
    assert_int_equal(w.count, 0);
    assert_int_equal(
        parse("  user=ana*|b\\|c\t gpus>=0.5 memory<8G age>1d time<=90m held=yes cpus!=1|2 ", &a, &w, &e), 0);
    assert_int_equal(w.count, 7);
    assert_int_equal(w.at[0].count, 2);
    assert_string_equal(w.at[0].patterns[1], "b\\|c");
    assert_int_equal(w.at[1].op, WHERE_AT_LEAST);
    assert_int_equal(w.at[1].numbers[0], 500);
    assert_int_equal(w.at[2].numbers[0], 8 * SIZE_G);
    assert_int_equal(w.at[3].numbers[0], 86400);
    assert_int_equal(w.at[4].numbers[0], 5400 * 1000);
    assert_int_equal(w.at[5].numbers[0], 1);
    assert_int_equal(w.at[6].count, 2);
    assert_int_equal(parse("user=\"a b\"|c gpus=0", &a, &w, &e), 0);
    assert_string_equal(w.at[0].patterns[0], "a b");
    assert_int_equal(w.at[1].numbers[0], 0);
    assert_int_equal(parse("user=", &a, &w, &e), 0);
    assert_string_equal(w.at[0].patterns[0], "");
    assert_int_equal(parse("start>now-2hours", &a, &w, &e), 0);
    assert_int_equal(w.at[0].numbers[0], 1769860800000 - 7200 * 1000);
}

static void refused(void **state) {
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"usr=a", "did you mean \"user\""},
        {"quux=a", "columns are user, gpus"},
        {"user", "expected terms"},
        {"=a", "expected terms"},
        {"user>a", "compare it by = or !="},
        {"gpus>=x", "such as 2 or 0.5"},
        {"memory<1X", "such as 8G"},
        {"age>1q", "90m, 8h or 1d"},
        {"held=2", "yes or no"},
        {"gpus>1|2", "has alternatives"},
        {"user=\"a", "quote is not closed"},
        {"cpus=1e3", "a number"},
        {"start>never", "2026-01-30"},
        {"gpus>=-1", "such as 2"},
        {"gpus>=nan", "such as 2"},
    };
    cleanup_arena struct arena a = {0};
    struct where w;
    struct error e;
    char text[WHERE_BYTES_MAX + 2];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_true(parse(cases[i].text, &a, &w, &e) < 0);
        assert_non_null(strstr(e.text, cases[i].says));
    }
    memset(text, 'u', sizeof text - 1);
    text[sizeof text - 1] = 0;
    assert_int_equal(parse(text, &a, &w, &e), -E2BIG);
    assert_int_equal(parse("user=1|2|3|4|5|6|7|8|9|10|11|12|13|14|15|16|17", &a, &w, &e), -E2BIG);
    assert_int_equal(
        parse("cpus=1 cpus=1 cpus=1 cpus=1 cpus=1 cpus=1 cpus=1 cpus=1 cpus=1 cpus=1 cpus=1 cpus=1 cpus=1 "
              "cpus=1 cpus=1 cpus=1 cpus=1",
              &a, &w, &e),
        -E2BIG);
}

static void comparisons(void **state) {
    cleanup_arena struct arena a = {0};
    struct where w;
    struct error e;
    const char *one[] = {"anabel"}, *two[] = {"RUNNING", "R"}, *none[] = {NULL};
    assert_int_equal(parse("user=ana* user!=b* user=R user!=R user= user!=", &a, &w, &e), 0);
    assert_true(where_texts(&w.at[0], one, 1) && where_texts(&w.at[1], one, 1));
    assert_true(where_texts(&w.at[2], two, 2) && !where_texts(&w.at[3], two, 2));
    assert_true(where_texts(&w.at[4], none, 1) && !where_texts(&w.at[5], none, 1));
    assert_false(where_texts(&w.at[0], NULL, 0));
    assert_true(where_texts(&w.at[1], NULL, 0));
    assert_int_equal(parse("cpus<2 cpus<=2 cpus>2 cpus>=2 cpus=2|3 cpus!=2|3", &a, &w, &e), 0);
    static const bool expected[][3] = {{true, false, false}, {true, true, false}, {false, false, true},
                                       {false, true, true},  {false, true, true}, {true, false, false}};
    for (int t = 0; t < 6; t++)
        for (int v = 1; v <= 3; v++)
            assert_int_equal(where_number(&w.at[t], v), expected[t][v - 1]);
    // What has not happened is neither before nor after.
    assert_int_equal(parse("start<now start>now start!=now", &a, &w, &e), 0);
    assert_true(!where_number(&w.at[0], 0) && !where_number(&w.at[1], 0) && where_number(&w.at[2], 0));
}

static void tags(void **state) {
    cleanup_arena struct arena a = {0};
    struct error e = {0};
    const char *have[] = {"exp1", "team=vision"}, *change[] = {"team=speech", "-exp1", "b", "x=", "b"};
    struct tag_list old = {have, 2}, changes = {change, 5}, out;
    assert_int_equal(tags_change(&old, &changes, &a, &out, &e), 0);
    assert_int_equal(out.len, 3);
    assert_string_equal(out.at[0], "team=speech");
    assert_string_equal(out.at[1], "b");
    assert_string_equal(out.at[2], "x=");
    const char *all[] = {"c", "-", "d"};
    assert_int_equal(tags_change(&old, &(struct tag_list){all, 3}, &a, &out, &e), 0);
    assert_int_equal(out.len, 1);
    assert_string_equal(out.at[0], "d");
    static const char *const bad[] = {"",          "a b",    "=v",  "k=a b", "k=a,b",
                                      "k=\x1b[2J", "k=\xff", "--x", "k=\"",  "\xc3\xb1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_true(
            tags_change(&old, &(struct tag_list){(const char **)(uintptr_t)&bad[i], 1}, &a, &out, &e) < 0);
        assert_non_null(strstr(e.text, "tag:"));
    }
    const char *many[TAGS_MAX + 1];
    for (int i = 0; i <= TAGS_MAX; i++)
        many[i] = arena_printf(&a, "t%d", i);
    assert_int_equal(tags_change(&(struct tag_list){0}, &(struct tag_list){many, TAGS_MAX}, &a, &out, &e), 0);
    assert_int_equal(tags_change(&(struct tag_list){0}, &(struct tag_list){many, TAGS_MAX + 1}, &a, &out, &e),
                     -E2BIG);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns),    cmocka_unit_test(terms), cmocka_unit_test(refused),
        cmocka_unit_test(comparisons), cmocka_unit_test(tags),
    };
    return cmocka_run_group_tests_name("where", tests, NULL, NULL);
}
