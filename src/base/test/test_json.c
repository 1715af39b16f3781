// The JSON reader is strict, the writer writes what the reader reads.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/json.h"

static int parse(const char *text, struct arena *a, struct json **v) {
    struct error e = {0};
    int r = json_parse(text, strlen(text), a, v, &e);
    assert_true((r < 0) == (e.code != 0));
    return r;
}

static void reads_values(void **state) {
    cleanup_arena struct arena a = {0};
    struct json *v;
    assert_int_equal(parse(" {\"a\": [1, -2, 18446744073709551615, 1.5e3], "
                           "\"b\":\"x\\u00e9\\ud83d\\ude00\\n\", \"c\":null, \"d\":true} ",
                           &a, &v),
                     0);
    const struct json *list = json_get(v, "a");
    assert_int_equal(list->len, 4);
    assert_int_equal(list->items[1].i, -2);
    assert_true(list->items[2].type == JSON_UINT && list->items[2].u == UINT64_MAX);
    assert_true(list->items[3].d == 1500);
    assert_string_equal(json_str(v, "b"), "xé😀\n");
    assert_true(json_true(v, "d"));
    assert_null(json_get(v, "z"));
}

static void refuses_what_is_not_json(void **state) {
    static const char *const bad[] = {
        "",        "{",        "[1,]",         "{\"a\":1,}", "01",      "1.",     "-",       "nul",       "\"\x01\"",
        "\"\\x\"", "\"abc",    "\"\\ud800\"",  "\"\\u0000\"", "[1] 2",  "{1:2}",  "1e999",   "{\"a\" 1}", "\"\xff\"",
        "{\"a\":1,\"a\":2}",   "\"\\udc00\"", "'a'",        "[1 2]",   "+1",     ".5",      "\"\\",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cleanup_arena struct arena a = {0};
        struct json *v;
        if (parse(bad[i], &a, &v) == 0)
            fail_msg("accepted: %s", bad[i]);
    }
    char deep[200];
    memset(deep, '[', sizeof deep);
    cleanup_arena struct arena a = {0};
    struct json *v;
    struct error e;
    assert_int_equal(json_parse(deep, sizeof deep, &a, &v, &e), -EINVAL);
}

static void lists_of_objects_of_one_shape_and_of_others(void **state) {
    static const char text[] = "[{\"a\":1,\"b\":{\"c\":2}},{\"a\":3,\"b\":{\"c\":4}},{\"b\":5,\"a\":6},{"
                               "\"a\":7},{\"a\":8,\"b\":9,\"ab\":10},[{\"x\":1},{\"x\":2}]]";
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf b = {0};
    struct json *v;
    assert_int_equal(parse(text, &a, &v), 0);
    json_write(&(struct json_writer){.out = &b}, v);
    assert_string_equal(b.data, text);
    assert_int_equal(json_i64(&v->items[2], "a", 0), 6);
    assert_true(parse("[{\"a\":1,\"b\":2},{\"a\":1,\"b\":2,\"a\":3}]", &a, &v) < 0);
    assert_true(parse("[{\"a\":1,\"b\":2},{\"b\":1,\"b\":2}]", &a, &v) < 0);
    assert_true(parse("[{\"a\":1},{\"a", &a, &v) < 0);
    // A name whose decoded form looks like two members is not taken for them.
    assert_int_equal(parse("[{\"a\\\":1,\\\"b\":0},{\"a\":1,\"b\":2}]", &a, &v), 0);
    assert_int_equal(v->items[1].len, 2);
}

static void writes_what_it_reads(void **state) {
    static const char text[] = "{\"a\":[1,-2,18446744073709551615,0.5],\"b\":\"q\\\"\\\\\\n\\u0001é\",\"c\":{"
                               "\"d\":null,\"e\":false},\"f\":[]}";
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf b = {0};
    struct json *v;
    assert_int_equal(parse(text, &a, &v), 0);
    json_write(&(struct json_writer){.out = &b}, v);
    assert_string_equal(b.data, text);
}

static void reads_in_place(void **state) {
    char text[] = "[\"plain\",\"q\\\"\\u00e9\\n\",{\"k\\u0041\":-7},\"\",123456789012345678,1234567890123456789,-0]";
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf b = {0};
    struct json *v;
    assert_int_equal(json_parse_in_place(text, sizeof text - 1, &a, &v, NULL), 0);
    assert_true(v->items[0].s > text && v->items[0].s < text + sizeof text);
    json_write(&(struct json_writer){.out = &b}, v);
    assert_string_equal(b.data, "[\"plain\",\"q\\\"é\\n\",{\"kA\":-7},\"\",123456789012345678,1234567890123456789,0]");
    char cut[] = "[\"abc";
    assert_true(json_parse_in_place(cut, sizeof cut - 1, &a, &v, NULL) < 0);
}

struct seen {
    char text[64];
    int stop_at, count;
};

static int see_line(void *ctx, const struct json *v) {
    struct seen *s = ctx;
    cleanup_buf struct buf b = {0};
    json_write(&(struct json_writer){.out = &b}, v);
    size_t at = strlen(s->text);
    assert_true(at + b.len < sizeof s->text);
    memcpy(s->text + at, b.data, b.len + 1);
    return ++s->count == s->stop_at ? 77 : 0;
}

static void reads_lines(void **state) {
    static const struct {
        const char *text, *read;
        int stop_at, result;
    } cases[] = {{"[1,\"a\"]\n{\"b\":2}\n\n3\n", "[1,\"a\"]{\"b\":2}3", 0, 0},
                 {"", "", 0, 0},
                 {"\n", "", 0, 0},
                 {"1\n2\n3\n", "12", 2, 77},
                 {"1\n[2\n", "1", 0, -EINVAL},
                 {"1 2\n", "", 0, -EINVAL},
                 {"1\n2", "12", 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cleanup_arena struct arena a = {0};
        cleanup_buf struct buf text = {0};
        struct seen seen = {.stop_at = cases[i].stop_at};
        buf_adds(&text, cases[i].text);
        assert_int_equal(json_each_line(text.data, text.len, &a, see_line, &seen, NULL), cases[i].result);
        assert_string_equal(seen.text, cases[i].read);
    }
}

static void bounds_the_number_of_values(void **state) {
    cleanup_arena struct arena a = {0};
    struct json *v;
    struct error e;
    assert_int_equal(json_parse_few("[1,2,{\"a\":3}]", 13, 5, &a, &v, &e), 0);
    assert_int_equal(json_parse_few("[1,2,{\"a\":3}]", 13, 4, &a, &v, &e), -E2BIG);
    assert_non_null(strstr(e.text, "more than 4 values"));
}

static int count_items(const char *text, uint64_t values_max, uint64_t *count) {
    struct json_items it;
    int r;
    *count = 0;
    if (!json_items_begin(&it, text, strlen(text), values_max))
        return -ENOENT;
    do {
        cleanup_arena struct arena a = {0};
        struct json *v = NULL;
        struct error e;
        r = json_items_next(&it, &a, &v, &e);
        assert_true((r > 0) == (v != NULL));
        *count += r > 0;
    } while (r > 0);
    return r;
}

static void reads_items_one_by_one(void **state) {
    static const struct {
        const char *text;
        int result;
        uint64_t count;
    } cases[] = {
        {"[]", 0, 0},          {" [ ] ", 0, 0},
        {"[1]", 0, 1},         {" [1 , {\"a\":[2]},\"x\"] ", 0, 3},
        {"[1,]", -EINVAL, 1},  {"[1", -EINVAL, 0},
        {"[1,2", -EINVAL, 1},  {"[1]2", -EINVAL, 0},
        {"[]2", -EINVAL, 0},   {"[,1]", -EINVAL, 0},
        {"{}", -ENOENT, 0},    {"", -ENOENT, 0},
        {"[", -EINVAL, 0},     {"[1,[2,3,4]]", -E2BIG, 1},
        {"[1,2,3,4,5]", 0, 5},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t count;
        int r = count_items(cases[i].text, 3, &count);
        if (r != cases[i].result || count != cases[i].count)
            fail_msg("%s: %d after %d items", cases[i].text, r, (int)count);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_values),
        cmocka_unit_test(refuses_what_is_not_json),
        cmocka_unit_test(lists_of_objects_of_one_shape_and_of_others),
        cmocka_unit_test(reads_in_place),
        cmocka_unit_test(bounds_the_number_of_values),
        cmocka_unit_test(reads_lines),
        cmocka_unit_test(reads_items_one_by_one),
        cmocka_unit_test(writes_what_it_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
