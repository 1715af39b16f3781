// Fuzz target: JSON, and the reading of a job's spec from it; what parses is written and read again
// as the same. Reading in place and reading item by item take and refuse the same texts.
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/json.h"
#include "driver.h"
#include "model/job.h"

const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_SEED("{\"a\":[1,-2,18446744073709551615,1.5e3],\"b\":\"x\\u00e9\\ud83d\\ude00\\n\",\"c\":null,\"d\":"
              "true}"),
    FUZZ_SEED("[{\"a\":1,\"b\":{\"c\":2}},{\"a\":3,\"b\":{\"c\":4}},{\"b\":5,\"a\":6}]"),
    FUZZ_SEED("{\"name\":\"t\",\"class\":\"interactive\",\"array\":[{\"first\":0,\"last\":9,\"step\":1}],"
              "\"tasks\":4,"
              "\"argv\":[\"a\",\"b\"],\"nice\":-5,\"launch\":\"tasks\"}"),
    FUZZ_SEED(
        "{\"fields\":[\"id\"],\"now_ms\":1}\n[1,\"a\",null]\n[2,\"\\u00e9\",{\"x\":[]}]\n{\"rows\":2}\n"),
    FUZZ_SEED("[[[[]]],{},\"\",0,-0.5e-3]"),
    {0},
};

static void check_in_place(const uint8_t *data, size_t size, const struct json *v) {
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf text = {0}, first = {0}, second = {0};
    struct json *here = NULL;
    buf_add(&text, data, size);
    assert((json_parse_in_place(text.data, size, &a, &here, NULL) == 0) == (v != NULL));
    if (!v)
        return;
    json_write(&(struct json_writer){.out = &first}, v);
    json_write(&(struct json_writer){.out = &second}, here);
    assert(first.len == second.len && memcmp(first.data, second.data, first.len) == 0);
}

static int write_line(void *ctx, const struct json *v) {
    json_write(&(struct json_writer){.out = ctx}, v);
    buf_addc(ctx, '\n');
    return 0;
}

// Whatever the lines are, what was read of them is read again as the same.
static void check_lines(const uint8_t *data, size_t size) {
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf text = {0}, first = {0}, copy = {0}, second = {0};
    buf_add(&text, data, size);
    int r = json_each_line(text.data, size, &a, write_line, &first, NULL);
    assert(r == 0 || r == -EINVAL);
    buf_add(&copy, first.data, first.len);
    assert(json_each_line(copy.data, copy.len, &a, write_line, &second, NULL) == 0);
    assert(first.len == second.len && (!first.len || memcmp(first.data, second.data, first.len) == 0));
}

static void check_items(const uint8_t *data, size_t size, const struct json *v) {
    cleanup_buf struct buf first = {0}, second = {0};
    struct json_writer w = {.out = &second};
    struct json_items it;
    int r;
    if (!json_items_begin(&it, (const char *)data, size, UINT64_MAX)) {
        assert(!v || v->type != JSON_ARRAY);
        return;
    }
    json_open(&w, '[');
    do {
        cleanup_arena struct arena a = {0};
        struct json *item;
        r = json_items_next(&it, &a, &item, NULL);
        if (r > 0)
            json_write(&w, item);
    } while (r > 0);
    json_close(&w, ']');
    assert((r == 0) == (v != NULL));
    if (!v)
        return;
    json_write(&(struct json_writer){.out = &first}, v);
    assert(first.len == second.len && memcmp(first.data, second.data, first.len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf first = {0}, second = {0};
    struct json *v, *again;
    struct error e = {0};
    struct spec spec;
    check_lines(data, size);
    if (json_parse((const char *)data, size, &a, &v, &e) < 0) {
        assert(e.code && e.text[0]);
        check_in_place(data, size, NULL);
        check_items(data, size, NULL);
        return 0;
    }
    check_in_place(data, size, v);
    check_items(data, size, v);
    json_write(&(struct json_writer){.out = &first}, v);
    assert(json_parse(first.data, first.len, &a, &again, &e) == 0);
    json_write(&(struct json_writer){.out = &second}, again);
    assert(first.len == second.len && memcmp(first.data, second.data, first.len) == 0);
    if (schema_read_json(&spec_schema, v, &a, &spec, &e) == 0) {
        buf_clear(&first);
        schema_write_given_json(&spec_schema, &spec, &(struct json_writer){.out = &first});
        struct spec copy;
        assert(json_parse(first.data, first.len, &a, &again, &e) == 0);
        assert(schema_read_json(&spec_schema, again, &a, &copy, &e) == 0 &&
               schema_equal(&spec_schema, &spec, &copy));
    }
    return 0;
}
