// The JSON form of table-described structs. An answer has every field of its table (absent texts and
// structs are null); a request has only the fields that are given. Reading marks given zeros.
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/schema.h"
#include "base/text.h"

static void write_struct(const struct schema *s, const void *value, size_t first, bool all,
                         struct json_writer *w);

static void write_value(const struct field *f, const void *at, bool all, struct json_writer *w) {
    switch ((enum field_type)f->type) {
    case FIELD_BOOL: json_put_bool(w, *(const bool *)at); break;
    case FIELD_U32: json_put_u64(w, *(const uint32_t *)at); break;
    case FIELD_I32: json_put_i64(w, *(const int32_t *)at); break;
    case FIELD_U64: json_put_u64(w, *(const uint64_t *)at); break;
    case FIELD_I64: json_put_i64(w, *(const int64_t *)at); break;
    case FIELD_DOUBLE: json_put_double(w, *(const double *)at); break;
    case FIELD_ENUM: json_put_str(w, schema_word_name(f->words, *(const unsigned *)at)); break;
    case FIELD_STRING: json_put_str(w, *(const char *const *)at); break;
    case FIELD_BYTES: {
        static const char hex[] = "0123456789abcdef";
        const struct bytes *b = at;
        cleanup_buf struct buf text = {0};
        for (size_t i = 0; i < b->len; i++) {
            uint8_t c = ((const uint8_t *)b->data)[i];
            buf_addc(&text, hex[c >> 4]);
            buf_addc(&text, hex[c & 15]);
        }
        json_put_str(w, buf_str(&text));
        break;
    }
    case FIELD_STRUCT: write_struct(f->sub, at, 0, all, w); break;
    case FIELD_RAW_JSON: json_put_raw(w, *(const char *const *)at); break;
    }
}

static bool is_null(const struct field *f, const void *at) {
    return (f->type == FIELD_STRING || f->type == FIELD_STRUCT || f->type == FIELD_RAW_JSON) && !*(void *const *)at;
}

// A list whose elements have names: {"name": element without it, ...}.
static void write_keyed(const struct field *f, const struct any_list *list, bool all, struct json_writer *w) {
    json_open(w, '{');
    for (uint32_t k = 0; k < list->len; k++) {
        const char *element = (const char *)list->at + k * f->sub->size;
        json_key(w, *(const char *const *)(element + f->sub->fields[0].offset));
        write_struct(f->sub, element, 1, all, w);
    }
    json_close(w, '}');
}

static void write_field(const struct field *f, const void *at, bool all, struct json_writer *w) {
    if (f->keyed) {
        write_keyed(f, at, all, w);
    } else if (f->list) {
        const struct any_list *list = at;
        json_open(w, '[');
        for (uint32_t k = 0; k < list->len; k++)
            write_value(f, (const char *)list->at + k * schema_field_size(f), all, w);
        json_close(w, ']');
    } else if (is_null(f, at)) {
        json_put_null(w);
    } else {
        write_value(f, f->type == FIELD_STRUCT ? *(void *const *)at : at, all, w);
    }
}

static void write_struct(const struct schema *s, const void *value, size_t first, bool all,
                         struct json_writer *w) {
    json_open(w, '{');
    for (size_t i = first; i < s->count; i++) {
        const struct field *f = &s->fields[i];
        const char *at = (const char *)value + f->offset;
        bool given = (all && !f->nullable) || schema_field_given(s, f, value);
        if (!all && !given)
            continue;
        json_key(w, f->name);
        if (given)
            write_field(f, at, all, w);
        else
            json_put_null(w);
    }
    json_close(w, '}');
}

void schema_write_json(const struct schema *s, const void *value, struct json_writer *w) {
    write_struct(s, value, 0, true, w);
}

void schema_write_value(const struct field *f, const void *value, struct json_writer *w) {
    write_field(f, (const char *)value + f->offset, true, w);
}

void schema_write_given_json(const struct schema *s, const void *value, struct json_writer *w) {
    write_struct(s, value, 0, false, w);
}

static int wrong(const struct field *f, struct error *e, const char *expected) {
    return error_set(e, EINVAL, "field \"%s\": expected %s", f->name, expected);
}

static int read_integer(const struct field *f, const struct json *j, void *at, struct error *e) {
    bool is_signed = f->type == FIELD_I32 || f->type == FIELD_I64;
    int64_t low = f->type == FIELD_I32 ? INT32_MIN : is_signed ? INT64_MIN : 0;
    uint64_t high = f->type == FIELD_U32   ? UINT32_MAX
                    : f->type == FIELD_I32 ? INT32_MAX
                    : is_signed            ? INT64_MAX
                                           : UINT64_MAX;
    struct json whole = *j;
    // 414.0 is a whole number too, and what some languages write; beyond 2^53 a double does not tell which one.
    if (j->type == JSON_DOUBLE && j->d == floor(j->d) && fabs(j->d) <= 9007199254740992.0) {
        whole = (struct json){.type = JSON_INT, .i = (int64_t)j->d};
        j = &whole;
    }
    if (j->type != JSON_INT && j->type != JSON_UINT)
        return wrong(f, e, "a whole number");
    if (f->min || f->max) {
        low = f->min;
        high = f->max;
    }
    if (j->type == JSON_INT ? j->i < low || (j->i > 0 && (uint64_t)j->i > high) : j->u > high)
        return error_set(e, ERANGE, "field \"%s\": the number is out of range; expected %lld to %llu", f->name,
                         (long long)low, (unsigned long long)high);
    uint64_t v = j->type == JSON_INT ? (uint64_t)j->i : j->u;
    memcpy(at, &v, schema_field_size(f));
    return 0;
}

static int hex_digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int read_bytes(const struct field *f, const struct json *j, struct arena *a, struct bytes *out,
                      struct error *e) {
    if (j->type != JSON_STRING || j->len % 2)
        return wrong(f, e, "bytes as hexadecimal text");
    if (f->max && (j->len / 2 < (uint64_t)f->min || j->len / 2 > f->max))
        return error_set(e, EINVAL, "field \"%s\": %u bytes; expected %lld to %llu", f->name, j->len / 2,
                         (long long)f->min, (unsigned long long)f->max);
    uint8_t *data = arena_alloc(a, j->len / 2);
    for (uint32_t i = 0; i < j->len; i += 2) {
        int hi = hex_digit(j->s[i]), lo = hex_digit(j->s[i + 1]);
        if (hi < 0 || lo < 0)
            return wrong(f, e, "bytes as hexadecimal text");
        data[i / 2] = (uint8_t)(hi << 4 | lo);
    }
    *out = (struct bytes){data, j->len / 2};
    return 0;
}

static int read_enum(const struct field *f, const struct json *j, unsigned *out, struct error *e) {
    int v = j->type == JSON_STRING ? schema_word_find(f->words, j->s) : -1;
    if (v >= 0) {
        *out = (unsigned)v;
        return 0;
    }
    cleanup_buf struct buf list = {0};
    for (int i = 0; f->words[i]; i++)
        buf_addf(&list, "%s%s", i ? ", " : "", f->words[i]);
    char shown[64];
    return error_set(e, EINVAL, "field \"%s\": \"%s\" is not known; expected one of %s", f->name,
                     j->type == JSON_STRING ? str_printable(j->s, shown, sizeof shown) : "(no text)",
                     buf_str(&list));
}

// The least length of a text is in characters, as JSON Schema counts them; the most is in bytes, which are never fewer.
static uint64_t characters(const char *text, size_t len) {
    uint64_t n = 0;
    for (size_t i = 0; i < len; i++)
        n += (text[i] & 0xc0) != 0x80;
    return n;
}

static int read_value(const struct field *f, const struct json *j, struct arena *a, void *at, struct error *e) {
    switch ((enum field_type)f->type) {
    case FIELD_BOOL:
        if (j->type != JSON_BOOL)
            return wrong(f, e, "true or false");
        *(bool *)at = j->boolean;
        return 0;
    case FIELD_U32:
    case FIELD_I32:
    case FIELD_U64:
    case FIELD_I64: return read_integer(f, j, at, e);
    case FIELD_DOUBLE:
        if (j->type != JSON_INT && j->type != JSON_UINT && j->type != JSON_DOUBLE)
            return wrong(f, e, "a number");
        *(double *)at = j->type == JSON_INT ? (double)j->i : j->type == JSON_UINT ? (double)j->u : j->d;
        // Asked this way round, so that what is not a number fails as well.
        if (f->max && !(*(double *)at >= (double)f->min && *(double *)at <= (double)f->max))
            return error_set(e, ERANGE, "field \"%s\": the number is out of range; expected %lld to %llu",
                             f->name, (long long)f->min, (unsigned long long)f->max);
        return 0;
    case FIELD_ENUM: return read_enum(f, j, at, e);
    case FIELD_STRING:
        if (j->type != JSON_STRING)
            return wrong(f, e, "text");
        if (f->max && characters(j->s, j->len) < (uint64_t)f->min)
            return error_set(e, EINVAL, "field \"%s\": %llu characters; expected at least %lld", f->name,
                             (unsigned long long)characters(j->s, j->len), (long long)f->min);
        if (f->max && j->len > f->max)
            return error_set(e, EINVAL, "field \"%s\": %u bytes; expected at most %llu", f->name, j->len,
                             (unsigned long long)f->max);
        *(const char **)at = arena_strndup(a, j->s, j->len);
        return 0;
    case FIELD_BYTES: return read_bytes(f, j, a, at, e);
    case FIELD_STRUCT: return schema_read_json(f->sub, j, a, at, e);
    case FIELD_RAW_JSON: break;
    }
    return wrong(f, e, "nothing: only answers have it");
}

static int read_list(const struct field *f, const struct json *j, struct arena *a, struct any_list *list,
                     struct error *e) {
    if (j->type != JSON_ARRAY)
        return wrong(f, e, "a list");
    if (j->len > SCHEMA_LIST_MAX)
        return error_set(e, E2BIG, "field \"%s\": %u elements; at most %d are allowed", f->name, j->len,
                         SCHEMA_LIST_MAX);
    list->at = arena_alloc(a, j->len * schema_field_size(f));
    for (list->len = 0; list->len < j->len; list->len++) {
        int r =
            read_value(f, &j->items[list->len], a, (char *)list->at + list->len * schema_field_size(f), e);
        if (r < 0)
            return r;
    }
    return 0;
}

static const struct field *field_by_name(const struct schema *s, const char *name) {
    for (size_t i = 0; i < s->count; i++)
        if (streq(s->fields[i].name, name))
            return &s->fields[i];
    return NULL;
}

// What was meant, perhaps; costs far more than finding a field that is there.
static const char *near_name(const struct schema *s, const char *name) {
    const char *near = NULL;
    unsigned best = 4;
    for (size_t i = 0; i < s->count; i++) {
        unsigned d = str_edit_distance(s->fields[i].name, name);
        if (d < best) {
            best = d;
            near = s->fields[i].name;
        }
    }
    return near;
}

int schema_read_json(const struct schema *s, const struct json *j, struct arena *a, void *value, struct error *e) {
    memset(value, 0, s->size);
    if (j->type != JSON_OBJECT)
        return error_set(e, EINVAL, "expected a JSON object for %s", s->name);
    for (uint32_t i = 0; i < j->len; i++) {
        char shown[64];
        const struct field *f = field_by_name(s, j->members[i].key);
        const struct json *v = &j->members[i].value;
        const char *near = f ? NULL : near_name(s, j->members[i].key);
        if (!f)
            return error_set(e, EINVAL, "unknown field \"%s\" in %s%s%s%s",
                             str_printable(j->members[i].key, shown, sizeof shown), s->name,
                             near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
        // null is a field that was not given.
        if (v->type == JSON_NULL)
            continue;
        void *at = (char *)value + f->offset;
        if (!f->list && f->type == FIELD_STRUCT)
            at = *(void **)at = arena_alloc(a, f->sub->size);
        int r = f->list ? read_list(f, v, a, at, e) : read_value(f, v, a, at, e);
        if (r < 0)
            return r;
        if (s->given_bits && !schema_field_given(s, f, value))
            schema_give(s, value, (char *)value + f->offset);
    }
    for (size_t i = 0; i < s->count; i++)
        if (s->fields[i].required && !json_get(j, s->fields[i].name))
            return error_set(e, EINVAL, "field \"%s\" is missing in %s", s->fields[i].name, s->name);
    return 0;
}
