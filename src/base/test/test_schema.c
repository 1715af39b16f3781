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
static const struct schema old_schema = {.name = "an old thing", .size = sizeof(struct thing), .fields = entity_fields, .count = 2};

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

static void repeated_fields_are_refused(void **state) {
    cleanup_arena struct arena a = {0};
    struct thing out, twice = {.count = 5, .centre = &centre, .corners = {corners, 3}};
    cleanup_buf struct buf b = {0};
    schema_encode(&entity_schema, &twice, &b);
    assert_int_equal(schema_decode(&entity_schema, b.data, b.len, &a, &out), 0);
    schema_encode(&entity_schema, &twice, &b);
    assert_int_equal(schema_decode(&entity_schema, b.data, b.len, &a, &out), -EBADMSG);
    static const char number[] = "\x06\x05\x06\x05", text[] = "\x03\x01x\x03\x01y", sub[] = "\x11\x00\x11\x00";
    assert_int_equal(schema_decode(&entity_schema, number, 4, &a, &out), -EBADMSG);
    assert_int_equal(schema_decode(&entity_schema, text, 6, &a, &out), -EBADMSG);
    assert_int_equal(schema_decode(&entity_schema, sub, 4, &a, &out), -EBADMSG);
    assert_int_equal(schema_decode(&entity_schema, number, 2, &a, &out), 0);
    assert_int_equal(out.count, 5);
}

// Two bytes an element in the message, sixteen in memory.
static void decoded_lists_are_bounded(void **state) {
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf b = {0};
    struct thing out;
    enum { ELEMENTS = 1000 };
    for (int i = 0; i < ELEMENTS; i++)
        buf_add(&b, "\x13\x00", 2);
    assert_int_equal(schema_decode_bounded(&entity_schema, b.data, b.len, ELEMENTS * sizeof(struct point) - 1, &a, &out),
                     -EBADMSG);
    assert_int_equal(schema_decode_bounded(&entity_schema, b.data, b.len, ELEMENTS * sizeof(struct point), &a, &out), 0);
    assert_int_equal(out.corners.len, ELEMENTS);
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

// The same fields with presence.
struct wish {
    const char *name;
    bool big;
    uint32_t count;
    int32_t delta;
    uint64_t total;
    double factor;
    enum colour colour;
    struct bytes raw;
    struct wish *inner;
    LIST(uint32_t) numbers;
    LIST(struct point) corners;
    uint64_t given[2];
};
extern const struct schema wish_schema;
static const struct field wish_fields[] = {
    FIELD(1, struct wish, name, ""),
    FIELD(2, struct wish, big, ""),
    FIELD(3, struct wish, count, ""),
    FIELD(63, struct wish, delta, ""),
    FIELD(64, struct wish, total, ""),
    FIELD(65, struct wish, factor, ""),
    FIELD_WORDS(100, struct wish, colour, colours, ""),
    FIELD(101, struct wish, raw, ""),
    FIELD_SUB(102, struct wish, inner, &wish_schema, ""),
    FIELD_LIST(127, struct wish, numbers, ""),
    FIELD_LIST_SUB(20, struct wish, corners, &point_schema, ""),
};
const struct schema wish_schema = SCHEMA_GIVEN(struct wish, "a wish", wish_fields);

#define GIVEN(w, member) schema_given(&wish_schema, w, &(w)->member)

static struct wish read_wish(struct arena *a, const char *text) {
    struct wish w;
    struct json *j;
    struct error e = {0};
    assert_int_equal(json_parse(text, strlen(text), a, &j, &e), 0);
    assert_int_equal(schema_read_json(&wish_schema, j, a, &w, &e), 0);
    return w;
}

static void a_given_zero_is_not_absent(void **state) {
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf b = {0}, text = {0};
    const char *request = "{\"name\":\"\",\"big\":false,\"count\":0,\"factor\":0,\"colour\":\"red\",\"numbers\":[]}";
    struct wish w = read_wish(&a, request), decoded, *copy;
    assert_true(GIVEN(&w, big) && GIVEN(&w, count) && GIVEN(&w, colour) && GIVEN(&w, numbers) && GIVEN(&w, name));
    assert_false(GIVEN(&w, delta) || GIVEN(&w, total) || GIVEN(&w, raw) || GIVEN(&w, inner) || GIVEN(&w, corners));
    schema_encode(&wish_schema, &w, &b);
    assert_int_equal(schema_decode(&wish_schema, b.data, b.len, &a, &decoded), 0);
    copy = schema_copy(&wish_schema, &w, &a);
    assert_memory_equal(decoded.given, w.given, sizeof w.given);
    assert_memory_equal(copy->given, w.given, sizeof w.given);
    assert_true(schema_equal(&wish_schema, &w, &decoded));
    assert_false(schema_equal(&wish_schema, &w, &(struct wish){.name = ""}));
    schema_write_given_json(&wish_schema, &decoded, &(struct json_writer){.out = &text});
    assert_string_equal(buf_str(&text), request);
}

static void null_counts_as_absent(void **state) {
    cleanup_arena struct arena a = {0};
    struct wish w = read_wish(&a, "{\"big\":null,\"name\":null,\"numbers\":null}");
    assert_false(GIVEN(&w, big) || GIVEN(&w, name) || GIVEN(&w, numbers));
}

static void a_change_is_put_over_what_is_there(void **state) {
    cleanup_arena struct arena a = {0};
    struct wish w = {.name = "before", .big = true, .count = 7, .delta = -3, .numbers = {numbers, 3}};
    struct wish change = read_wish(&a, "{\"big\":false,\"delta\":4,\"numbers\":[]}");
    schema_merge(&wish_schema, &w, &change);
    assert_string_equal(w.name, "before");
    assert_true(!w.big && w.count == 7 && w.delta == 4 && w.numbers.len == 0);
    assert_true(GIVEN(&w, big) && GIVEN(&w, numbers));
    schema_forget_given(&wish_schema, &w);
    assert_false(GIVEN(&w, big) || GIVEN(&w, numbers));
    assert_true(GIVEN(&w, count));
}

static void whole_numbers_may_be_written_as_fractions(void **state) {
    cleanup_arena struct arena a = {0};
    struct wish w = read_wish(&a, "{\"count\":5.0,\"delta\":-3e0}");
    assert_true(w.count == 5 && w.delta == -3);
    static const char *const wrong[] = {"{\"count\":5.5}", "{\"count\":-1.0}", "{\"count\":1e30}",
                                        "{\"count\":4294967296.0}"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct json *j;
        struct error e = {0};
        assert_int_equal(json_parse(wrong[i], strlen(wrong[i]), &a, &j, &e), 0);
        assert_true(schema_read_json(&wish_schema, j, &a, &w, &e) < 0);
        assert_non_null(strstr(e.text, "count"));
    }
}

static void presence_costs_nothing_without_zeros(void **state) {
    struct schema plain = wish_schema;
    struct wish w = {.name = "x", .count = 5};
    cleanup_buf struct buf with = {0}, without = {0};
    plain.given_bits = 0;
    schema_encode(&wish_schema, &w, &with);
    schema_encode(&plain, &w, &without);
    assert_int_equal(with.len, without.len);
    // A reader without presence skips the list of given zeros.
    cleanup_arena struct arena a = {0};
    struct wish read;
    schema_give(&wish_schema, &w, &w.big);
    buf_clear(&with);
    schema_encode(&wish_schema, &w, &with);
    assert_int_equal(with.len, without.len + 3);
    assert_int_equal(schema_decode(&plain, with.data, with.len, &a, &read), 0);
    assert_true(read.count == 5 && !read.given[0]);
}

static void answers_have_every_field(void **state) {
    cleanup_buf struct buf b = {0};
    schema_write_json(&entity_schema, &(struct thing){0}, &(struct json_writer){.out = &b});
    assert_string_equal(buf_str(&b),
                        "{\"name\":null,\"big\":false,\"count\":0,\"delta\":0,\"total\":0,\"colour\":\"red\","
                        "\"raw\":\"\",\"centre\":null,\"corners\":[],\"words\":[],\"numbers\":[]}");
}

// A random wish; each field is absent, given as zero, or has a value.
static void random_wish(struct rand *r, struct arena *a, struct wish *w, int depth) {
    *w = (struct wish){0};
    for (size_t i = 0; i < wish_schema.count; i++) {
        const struct field *f = &wish_schema.fields[i];
        void *at = (char *)w + f->offset;
        uint64_t kind = rand_below(r, 3);
        if (!kind)
            continue;
        schema_give(&wish_schema, w, at);
        if (kind == 1) {
            if (f->type == FIELD_STRING)
                *(const char **)at = "";
            if (f->type == FIELD_STRUCT && !f->list) {  // a struct that is given has a value
                if (depth)
                    random_wish(r, a, *(struct wish **)at = arena_alloc(a, sizeof *w), depth - 1);
                else
                    w->given[f->num / 64] &= ~(1ULL << f->num % 64);
            }
            continue;
        }
        switch (f->num) {
        case 1: w->name = words[rand_below(r, 3)]; break;
        case 2: w->big = true; break;
        case 3: w->count = (uint32_t)rand_u64(r); break;
        case 63: w->delta = (int32_t)rand_u64(r); break;
        case 64: w->total = rand_u64(r); break;
        case 65: w->factor = (double)rand_between(r, -1000, 1000) / 8; break;
        case 100: w->colour = rand_below(r, 2) ? GREEN : RED; break;
        case 101: w->raw = (struct bytes){"\1\0\2", 1 + rand_below(r, 3)}; break;
        case 102: w->given[1] &= ~(1ULL << (102 - 64)); break;
        case 127: w->numbers.at = numbers, w->numbers.len = 1 + (uint32_t)rand_below(r, 3); break;
        case 20: w->corners.at = corners, w->corners.len = 1 + (uint32_t)rand_below(r, 3); break;
        }
    }
}

static void check_same(const struct wish *x, const struct wish *y) {
    for (size_t i = 0; i < wish_schema.count; i++) {
        size_t offset = wish_schema.fields[i].offset;
        assert_int_equal(schema_given(&wish_schema, x, (const char *)x + offset),
                         schema_given(&wish_schema, y, (const char *)y + offset));
    }
    if (x->inner)
        check_same(x->inner, y->inner);
}

static void random_structs_keep_values_and_presence(void **state) {
    for (uint64_t seed = 0; seed < 5000; seed++) {
        cleanup_arena struct arena a = {0};
        cleanup_buf struct buf b = {0}, text = {0}, again = {0};
        struct rand r;
        struct wish w, decoded, merged = {.name = "old", .big = true, .count = 1, .numbers = {numbers, 1}};
        rand_seed(&r, seed);
        random_wish(&r, &a, &w, 2);
        schema_encode(&wish_schema, &w, &b);
        assert_int_equal(schema_decode(&wish_schema, b.data, b.len, &a, &decoded), 0);
        check_same(&w, &decoded);
        assert_true(schema_equal(&wish_schema, &w, &decoded));
        schema_write_given_json(&wish_schema, &w, &(struct json_writer){.out = &text});
        struct wish read = read_wish(&a, buf_str(&text));
        check_same(&w, &read);
        assert_true(schema_equal(&wish_schema, &w, &read));
        schema_write_given_json(&wish_schema, &decoded, &(struct json_writer){.out = &again});
        assert_string_equal(buf_str(&text), buf_str(&again));
        schema_merge(&wish_schema, &merged, &w);
        assert_int_equal(merged.big, GIVEN(&w, big) ? w.big : true);
        assert_int_equal(merged.count, GIVEN(&w, count) ? w.count : 1);
        assert_int_equal(merged.numbers.len, GIVEN(&w, numbers) ? w.numbers.len : 1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(binary_round_trip),
        cmocka_unit_test(json_round_trip),
        cmocka_unit_test(json_errors_name_the_field),
        cmocka_unit_test(repeated_fields_are_refused),
        cmocka_unit_test(decoded_lists_are_bounded),
        cmocka_unit_test(damaged_bytes_never_hurt),
        cmocka_unit_test(a_given_zero_is_not_absent),
        cmocka_unit_test(null_counts_as_absent),
        cmocka_unit_test(a_change_is_put_over_what_is_there),
        cmocka_unit_test(whole_numbers_may_be_written_as_fractions),
        cmocka_unit_test(presence_costs_nothing_without_zeros),
        cmocka_unit_test(answers_have_every_field),
        cmocka_unit_test(random_structs_keep_values_and_presence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
