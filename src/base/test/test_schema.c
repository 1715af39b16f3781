// Round trips of table-described structs, tolerance for unknown fields, and refusal of bad input.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/rand.h"
#include "base/schema.h"

enum colour { RED, GREEN };
static const char *const colours[] = {"red", "green", NULL};

struct point {
    int64_t x;
    double y;
};
static const struct field point_fields[] = {FIELD(1, struct point, x, ""), FIELD(2, struct point, y, "")};
static const struct schema point_schema = SCHEMA(struct point, "a point", point_fields);

struct thing {
    const char *name;
    bool big;
    uint32_t count;
    int32_t delta;
    uint64_t total;
    enum colour colour;
    struct bytes raw;
    struct point *centre;
    LIST(struct point) corners;
    LIST(const char *) words;
    LIST(uint32_t) numbers;
};
static const struct field entity_fields[] = {
    FIELD(1, struct thing, name, ""),
    FIELD(2, struct thing, big, ""),
    FIELD(3, struct thing, count, ""),
    FIELD(4, struct thing, delta, ""),
    FIELD(5, struct thing, total, ""),
    FIELD_WORDS(6, struct thing, colour, colours, ""),
    FIELD(7, struct thing, raw, ""),
    FIELD_SUB(8, struct thing, centre, &point_schema, ""),
    FIELD_LIST_SUB(9, struct thing, corners, &point_schema, ""),
    FIELD_LIST(10, struct thing, words, ""),
    FIELD_LIST(11, struct thing, numbers, ""),
};
static const struct schema entity_schema = SCHEMA(struct thing, "a thing", entity_fields);
// What a version before saw: fewer fields.
static const struct schema old_schema = {"an old thing", sizeof(struct thing), entity_fields, 2};

static struct point corners[] = {{1, 0.5}, {-2, 0}, {0, 0}};
static const char *words[] = {"a", "", "c"};
static uint32_t numbers[] = {0, 7, UINT32_MAX};
static struct point centre = {INT64_MIN, -1.25};
static const struct thing sample = {"náme",       true,       5,           INT32_MIN,
                                    UINT64_MAX,   GREEN,      {"\0\1", 2}, &centre,
                                    {corners, 3}, {words, 3}, {numbers, 3}};

static void binary_round_trip(void **state) {
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf b = {0};
    struct thing t;
    schema_encode(&entity_schema, &sample, &b);
    assert_int_equal(schema_decode(&entity_schema, b.data, b.len, &a, &t), 0);
    assert_true(schema_equal(&entity_schema, &sample, &t));
    assert_string_equal(t.name, "náme");
    assert_true(t.delta == INT32_MIN && t.total == UINT64_MAX && t.centre->x == INT64_MIN && t.centre->y == -1.25);
    assert_int_equal(t.corners.len, 3);
    assert_int_equal(t.corners.at[1].x, -2);
    assert_string_equal(t.words.at[1], "");
    assert_int_equal(t.numbers.at[2], UINT32_MAX);
    assert_int_equal(schema_decode(&old_schema, b.data, b.len, &a, &t), 0);
    assert_true(t.big && !t.count);
}

static void json_round_trip(void **state) {
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf b = {0};
    struct thing t;
    struct json *j;
    struct error e = {0};
    schema_write_json(&entity_schema, &sample, &(struct json_writer){.out = &b});
    assert_int_equal(json_parse(b.data, b.len, &a, &j, &e), 0);
    assert_int_equal(schema_read_json(&entity_schema, j, &a, &t, &e), 0);
    assert_true(schema_equal(&entity_schema, &sample, &t));
}

static void json_errors_name_the_field(void **state) {
    static const char *const cases[][2] = {
        {"{\"cuont\":1}", "did you mean \"count\""}, {"{\"count\":-1}", "\"count\": the number is out of range"},
        {"{\"count\":4294967296}", "out of range"},  {"{\"colour\":\"blue\"}", "expected one of red, green"},
        {"{\"name\":5}", "\"name\": expected text"}, {"{\"words\":\"a\"}", "\"words\": expected a list"},
        {"{\"raw\":\"0g\"}", "hexadecimal"},         {"[]", "expected a JSON object"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cleanup_arena struct arena a = {0};
        struct json *j;
        struct thing t;
        struct error e = {0};
        assert_int_equal(json_parse(cases[i][0], strlen(cases[i][0]), &a, &j, &e), 0);
        assert_true(schema_read_json(&entity_schema, j, &a, &t, &e) < 0);
        if (!strstr(e.text, cases[i][1]))
            fail_msg("%s gave: %s", cases[i][0], e.text);
    }
}

static void damaged_bytes_never_hurt(void **state) {
    struct rand r;
    cleanup_buf struct buf b = {0};
    schema_encode(&entity_schema, &sample, &b);
    for (uint64_t seed = 0; seed < 20000; seed++) {
        cleanup_arena struct arena a = {0};
        struct thing t;
        char copy[256];
        rand_seed(&r, seed);
        size_t len = rand_below(&r, b.len + 1);
        memcpy(copy, b.data, len);
        for (int k = 0; k < 3 && len; k++)
            copy[rand_below(&r, len)] = (char)rand_u64(&r);
        if (schema_decode(&entity_schema, copy, len, &a, &t) == 0) {
            cleanup_buf struct buf again = {0};
            schema_encode(&entity_schema, &t, &again);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(binary_round_trip),
        cmocka_unit_test(json_round_trip),
        cmocka_unit_test(json_errors_name_the_field),
        cmocka_unit_test(damaged_bytes_never_hurt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
