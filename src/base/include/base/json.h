// JSON: a strict bounded reader into an arena, and a writer onto a buffer. Numbers keep their text
// class: integers that fit i64/u64 stay exact, others are doubles.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"

enum { JSON_DEPTH_MAX = 32 };

enum json_type { JSON_NULL, JSON_BOOL, JSON_INT, JSON_UINT, JSON_DOUBLE, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

struct json {
    enum json_type type;
    uint32_t len;  // string bytes, array or object elements
    union {
        bool boolean;
        int64_t i;
        uint64_t u;  // JSON_UINT: above INT64_MAX
        double d;
        const char *s;
        struct json *items;
        struct json_member *members;
    };
};

struct json_member {
    const char *key;
    struct json value;
};

// One whole value, nothing after it. Strings are valid UTF-8 without NUL; repeated keys are refused.
int json_parse(const char *text, size_t len, struct arena *a, struct json **out, struct error *e);
// The same, but a text of more values than that is refused with -E2BIG: each costs memory.
int json_parse_few(const char *text, size_t len, uint64_t values_max, struct arena *a, struct json **out,
                   struct error *e);
// The same without copying: strings point into the text, which is changed and must stay.
int json_parse_in_place(char *text, size_t len, struct arena *a, struct json **out, struct error *e);

// Lines of one value each, without copying: strings and values live until text or arena change. `fn`
// returns 0 to go on; anything else ends the reading and is returned.
typedef int (*json_line_fn)(void *ctx, const struct json *value);
int json_each_line(char *text, size_t len, struct arena *a, json_line_fn fn, void *ctx, struct error *e);

// The items of one long array, one after the other, so that only one of them is in memory. What is
// wrong behind an item is found with it or with a later one.
struct json_items {
    const char *text;
    size_t len, at;
    uint64_t count, values_max;  // values_max: of one item
    size_t item_max;             // bytes of one item; 0: any
    bool ended;
};
bool json_items_begin(struct json_items *it, const char *text, size_t len,
                      uint64_t values_max);  // false: it is no array
// 1: an item, 0: the end, and nothing stands behind it; a negative errno: it is no JSON.
int json_items_next(struct json_items *it, struct arena *a, struct json **out, struct error *e);

const struct json *json_get(const struct json *object, const char *key);  // NULL if absent or null
const char *json_str(const struct json *object, const char *key);         // NULL if absent or no string
int64_t json_i64(const struct json *object, const char *key, int64_t fallback);
bool json_true(const struct json *object, const char *key);

// Writer: commas are put where they belong. The caller balances open and close.
struct json_writer {
    struct buf *out;
    bool need_comma;
};

void json_open(struct json_writer *w, char bracket);   // '{' or '['
void json_open_key(struct json_writer *w, const char *key,
                   char bracket);                      // a member that is an object or list
void json_close(struct json_writer *w, char bracket);  // '}' or ']'
void json_key(struct json_writer *w, const char *key);
void json_put_str(struct json_writer *w, const char *s);  // NULL becomes null
void json_put_strn(struct json_writer *w, const char *s, size_t len);
void json_put_i64(struct json_writer *w, int64_t v);
void json_put_u64(struct json_writer *w, uint64_t v);
void json_put_double(struct json_writer *w, double v);
void json_put_bool(struct json_writer *w, bool v);
void json_put_null(struct json_writer *w);
void json_put_raw(struct json_writer *w, const char *json);  // a finished value
void json_write(struct json_writer *w, const struct json *v);
// key and value in one go
void json_kv_str(struct json_writer *w, const char *key, const char *s);
void json_kv_i64(struct json_writer *w, const char *key, int64_t v);
void json_kv_bool(struct json_writer *w, const char *key, bool v);
