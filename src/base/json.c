// Owns the JSON grammar (RFC 8259), strictly: no comments, no trailing commas, no NaN, no lone
// surrogates, depth at most JSON_DEPTH_MAX.
#include "base/json.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/vec.h"

// Members of arrays and objects not yet closed lie on two stacks that all levels share; what is
// closed moves to the arena, at its final size.
struct reader {
    const char *start, *p, *end;
    struct arena *arena;
    struct error *error;
    char *own;         // the text again: strings stay in it; NULL: they are copied
    int depth;
    uint64_t values, values_max;
    struct json like;  // the object before this one in an array: mostly of the same shape
    VEC(struct json) items;
    VEC(struct json_member) members;
};

static int fail(struct reader *r, const char *what) {
    return error_set(r->error, EINVAL, "not valid JSON at byte %zu: %s", (size_t)(r->p - r->start), what);
}

static void skip_space(struct reader *r) {
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\n' || *r->p == '\t' || *r->p == '\r'))
        r->p++;
}

static int hex4(struct reader *r, unsigned *out) {
    unsigned v = 0;
    if (r->end - r->p < 4)
        return fail(r, "a \\u escape needs four hexadecimal digits");
    for (int i = 0; i < 4; i++, r->p++) {
        char c = *r->p;
        unsigned d = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                     : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a' + 10)
                     : c >= 'A' && c <= 'F' ? (unsigned)(c - 'A' + 10)
                                            : 16;
        if (d == 16)
            return fail(r, "a \\u escape needs four hexadecimal digits");
        v = v << 4 | d;
    }
    *out = v;
    return 0;
}

static size_t utf8_put(char *out, unsigned c) {
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xc0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xe0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3f));
        out[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3f));
    out[2] = (char)(0x80 | (c >> 6 & 0x3f));
    out[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

static int read_escape(struct reader *r, char *out, size_t *n) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char c = *r->p++;
    if (c != 'u') {
        const char *at = strchr(from, c);
        if (!c || !at)
            return fail(r, "unknown escape");
        out[(*n)++] = to[at - from];
        return 0;
    }
    unsigned u, low;
    int e = hex4(r, &u);
    if (e < 0)
        return e;
    // Characters beyond the basic plane come as two escapes. Half of a pair is no character, and has no UTF-8.
    if (u >= 0xd800 && u < 0xdc00) {
        if (r->end - r->p < 2 || r->p[0] != '\\' || r->p[1] != 'u')
            return fail(r, "half of a surrogate pair");
        r->p += 2;
        if ((e = hex4(r, &low)) < 0)
            return e;
        if (low < 0xdc00 || low > 0xdfff)
            return fail(r, "half of a surrogate pair");
        u = 0x10000 + ((u - 0xd800) << 10) + (low - 0xdc00);
    } else if (u >= 0xdc00 && u < 0xe000) {
        return fail(r, "half of a surrogate pair");
    }
    // Everywhere else a text ends at NUL: what comes after it would be checked and then lost.
    if (!u)
        return fail(r, "a string may not contain NUL");
    *n += utf8_put(out + *n, u);
    return 0;
}

#define EACH(byte) (0x0101010101010101ULL * (byte))

static uint64_t has_zero(uint64_t word) {  // some bit, if one of its bytes is 0
    return (word - EACH(1)) & ~word & EACH(0x80);
}

// The first quote, backslash or control character from `q` on, or `end`. Scripts are long: eight bytes at a time.
static const char *plain_end(const char *q, const char *end, uint64_t *all) {
    for (uint64_t word; end - q >= 8; q += 8) {
        memcpy(&word, q, 8);
        if (has_zero(word ^ EACH('"')) | has_zero(word ^ EACH('\\')) |
            ((word - EACH(32)) & ~word & EACH(0x80)))
            break;
        *all |= word;
    }
    while (q < end && *q != '"' && *q != '\\' && (unsigned char)*q >= 32)
        *all |= (unsigned char)*q++;
    return q;
}

// The end of the string that begins at r->p, after its quote; `plain` when it has no escapes.
static const char *string_end(const struct reader *r, bool *plain, bool *ascii) {
    uint64_t all = 0;
    const char *q = plain_end(r->p, r->end, &all);
    *plain = q < r->end && *q == '"';
    *ascii = *plain && !(all & EACH(0x80));
    while (q < r->end && *q != '"')
        q = plain_end(q + (*q == '\\' ? 2 : 1), r->end, &all);
    return q < r->end ? q : NULL;
}

static int decode_string(struct reader *r, const char *end, char *text, size_t *n) {
    while (r->p < end) {
        if ((unsigned char)*r->p < 32)
            return fail(r, "control character in a string");
        if (*r->p != '\\') {
            uint64_t unused = 0;
            size_t run = (size_t)(plain_end(r->p, end, &unused) - r->p);
            memmove(text + *n, r->p, run);  // it may be the same text
            *n += run;
            r->p += run;
            continue;
        }
        r->p++;
        int e = read_escape(r, text, n);
        if (e < 0)
            return e;
    }
    return 0;
}

static int read_string(struct reader *r, const char **out, uint32_t *len) {
    bool plain, ascii;
    r->p++;
    const char *q = string_end(r, &plain, &ascii);
    if (!q)
        return fail(r, "string without end");
    size_t n = (size_t)(q - r->p);
    // What is decoded is never longer than what was written.
    char *text = r->own  ? r->own + (r->p - r->start)
                 : plain ? arena_strndup(r->arena, r->p, n)
                         : arena_alloc(r->arena, n + 1);
    if (plain) {
        r->p = q;
    } else {
        n = 0;
        int e = decode_string(r, q, text, &n);
        if (e < 0)
            return e;
    }
    r->p++;
    text[n] = 0;
    if (!ascii && !str_utf8_valid(text, n))
        return fail(r, "a string that is not UTF-8");
    *out = text;
    *len = (uint32_t)n;
    return 0;
}

static bool digits(struct reader *r) {
    const char *from = r->p;
    while (r->p < r->end && *r->p >= '0' && *r->p <= '9')
        r->p++;
    return r->p > from;
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

// The usual number: whole, and too short to overflow.
static bool read_short(struct reader *r, struct json *v) {
    enum { SHORT_DIGITS = 18 };
    const char *p = r->p + (*r->p == '-'), *first = p;
    int64_t n = 0;
    while (p < r->end && is_digit(*p) && p - first < SHORT_DIGITS)
        n = n * 10 + (*p++ - '0');
    if (p == first || p == r->end || is_digit(*p) || *p == '.' || *p == 'e' || *p == 'E' ||
        (*first == '0' && p - first > 1))
        return false;
    v->type = JSON_INT;
    v->i = *r->p == '-' ? -n : n;
    r->p = p;
    return true;
}

static int read_number(struct reader *r, struct json *v) {
    const char *from = r->p;
    bool whole = true;
    if (read_short(r, v))
        return 0;
    // strtod and the like take more than JSON has (hexadecimal, infinity, leading zeros): the form is checked here,
    // and they only convert.
    if (*r->p == '-')
        r->p++;
    const char *first = r->p;
    if (!digits(r) || (*first == '0' && r->p - first > 1))
        return fail(r, "malformed number");
    if (r->p < r->end && *r->p == '.') {
        whole = false;
        r->p++;
        if (!digits(r))
            return fail(r, "malformed number");
    }
    if (r->p < r->end && (*r->p == 'e' || *r->p == 'E')) {
        whole = false;
        r->p++;
        if (r->p < r->end && (*r->p == '+' || *r->p == '-'))
            r->p++;
        if (!digits(r))
            return fail(r, "malformed number");
    }
    char text[64];
    size_t len = (size_t)(r->p - from);
    if (len >= sizeof text)
        return fail(r, "a number of more than 63 characters");
    memcpy(text, from, len);
    text[len] = 0;
    if (whole && parse_i64(text, &v->i) == 0) {
        v->type = JSON_INT;
    } else if (whole && parse_u64(text, &v->u) == 0) {
        v->type = JSON_UINT;
    } else {
        v->type = JSON_DOUBLE;
        v->d = strtod(text, NULL);
        if (!isfinite(v->d))
            return fail(r, "a number too large");
    }
    return 0;
}

static int read_value(struct reader *r, struct json *v);

// After a member: 1 when another follows, 0 at the end.
static int goes_on(struct reader *r, char closing) {
    skip_space(r);
    if (r->p < r->end && *r->p == ',') {
        r->p++;
        return 1;
    }
    if (r->p >= r->end || *r->p != closing)
        return fail(r, closing == ']' ? "expected ',' or ']'" : "expected ',' or '}'");
    r->p++;
    return 0;
}

static bool is_empty(struct reader *r, char closing) {
    r->p++;
    skip_space(r);
    bool empty = r->p < r->end && *r->p == closing;
    r->p += empty;
    return empty;
}

static int read_array(struct reader *r, struct json *v) {
    uint32_t base = r->items.len;
    int more = !is_empty(r, ']');
    v->type = JSON_ARRAY;
    while (more > 0) {
        struct json item = {0};
        skip_space(r);
        r->like = r->items.len > base ? r->items.at[r->items.len - 1] : (struct json){0};
        int e = read_value(r, &item);
        if (e < 0)
            return e;
        vec_push(&r->items, item);
        more = goes_on(r, ']');
    }
    if (more < 0)
        return more;
    v->len = r->items.len - base;
    v->items = v->len ? arena_memdup(r->arena, r->items.at + base, v->len * sizeof *v->items) : NULL;
    r->items.len = base;
    return 0;
}

// The name that stood at the same place in the object before, if it stands here too: lists of objects
// repeat their names, which are then neither copied nor compared with each other again.
static bool same_name(struct reader *r, const char *expected) {
    size_t len = strlen(expected);
    // A name that was written with escapes may look like other text when it is not.
    if (memchr(expected, '"', len) || memchr(expected, '\\', len))
        return false;
    if ((size_t)(r->end - r->p) < len + 2 || memcmp(r->p + 1, expected, len) != 0 || r->p[len + 1] != '"')
        return false;
    r->p += len + 2;
    return true;
}

static int read_member(struct reader *r, struct json_member *m, const char *expected, bool *as_expected) {
    uint32_t len;
    skip_space(r);
    if (r->p >= r->end || *r->p != '"')
        return fail(r, "expected a name in quotes");
    if (expected && same_name(r, expected)) {
        m->key = expected;
    } else {
        *as_expected = false;
        int e = read_string(r, &m->key, &len);
        if (e < 0)
            return e;
    }
    skip_space(r);
    if (r->p >= r->end || *r->p != ':')
        return fail(r, "expected ':'");
    r->p++;
    return read_value(r, &m->value);
}

static bool is_repeated(const struct reader *r, uint32_t base, const char *key) {
    // Objects of requests are small; large ones (more than this) skip the check.
    enum { CHECKED_MAX = 256 };
    for (uint32_t i = base; r->members.len - base < CHECKED_MAX && i < r->members.len; i++)
        if (strcmp(r->members.at[i].key, key) == 0)
            return true;
    return false;
}

static int read_object(struct reader *r, struct json *v) {
    uint32_t base = r->members.len;
    const struct json like = r->like;
    bool as_expected = like.type == JSON_OBJECT;
    r->like = (struct json){0};
    int more = !is_empty(r, '}');
    v->type = JSON_OBJECT;
    while (more > 0) {
        struct json_member m = {0};
        uint32_t at = r->members.len - base;
        as_expected = as_expected && at < like.len;
        int e = read_member(r, &m, as_expected ? like.members[at].key : NULL, &as_expected);
        if (e < 0)
            return e;
        if (!as_expected && is_repeated(r, base, m.key))
            return fail(r, "the same name twice in one object");
        vec_push(&r->members, m);
        more = goes_on(r, '}');
    }
    if (more < 0)
        return more;
    v->len = r->members.len - base;
    v->members = v->len ? arena_memdup(r->arena, r->members.at + base, v->len * sizeof *v->members) : NULL;
    r->members.len = base;
    return 0;
}

static int read_word(struct reader *r, struct json *v) {
    static const struct {
        const char *word;
        enum json_type type;
        bool value;
    } words[] = {{"true", JSON_BOOL, true}, {"false", JSON_BOOL, false}, {"null", JSON_NULL, false}};
    for (size_t i = 0; i < 3; i++) {
        size_t n = strlen(words[i].word);
        if ((size_t)(r->end - r->p) >= n && memcmp(r->p, words[i].word, n) == 0) {
            r->p += n;
            v->type = words[i].type;
            v->boolean = words[i].value;
            return 0;
        }
    }
    return fail(r, "expected a value");
}

static int read_value(struct reader *r, struct json *v) {
    skip_space(r);
    if (r->p >= r->end)
        return fail(r, "ends too early");
    if (++r->values > r->values_max)
        return error_set(r->error, E2BIG, "more than %llu values in one JSON text; send it in parts",
                         (unsigned long long)r->values_max);
    if (*r->p == '"') {
        v->type = JSON_STRING;
        return read_string(r, &v->s, &v->len);
    }
    if (*r->p == '-' || is_digit(*r->p))
        return read_number(r, v);
    if (*r->p != '[' && *r->p != '{')
        return read_word(r, v);
    if (++r->depth > JSON_DEPTH_MAX)
        return fail(r, "nested too deeply");
    int e = *r->p == '[' ? read_array(r, v) : read_object(r, v);
    r->depth--;
    return e;
}

static void reader_done(struct reader *r) {
    vec_done(&r->items);
    vec_done(&r->members);
}

static int nothing_behind(struct reader *r) {
    skip_space(r);
    return r->p == r->end ? 0 : fail(r, "something after the value");
}

static int read_all(struct reader *r, struct json **out) {
    struct json *v = arena_alloc(r->arena, sizeof *v);
    int e = read_value(r, v);
    if (e == 0)
        e = nothing_behind(r);
    if (e == 0)
        *out = v;
    reader_done(r);
    return e;
}

static struct reader reader_of(const char *text, size_t len, struct arena *a, struct error *e) {
    return (struct reader){.start = text, .p = text, .end = text + len, .arena = a, .error = e,
                           .values_max = UINT64_MAX};
}

int json_parse(const char *text, size_t len, struct arena *a, struct json **out, struct error *e) {
    struct reader r = reader_of(text, len, a, e);
    return read_all(&r, out);
}

int json_parse_few(const char *text, size_t len, uint64_t values_max, struct arena *a, struct json **out,
                   struct error *e) {
    struct reader r = reader_of(text, len, a, e);
    r.values_max = values_max;
    return read_all(&r, out);
}

int json_parse_in_place(char *text, size_t len, struct arena *a, struct json **out, struct error *e) {
    struct reader r = reader_of(text, len, a, e);
    r.own = text;
    return read_all(&r, out);
}

int json_each_line(char *text, size_t len, struct arena *a, json_line_fn fn, void *ctx, struct error *e) {
    struct reader r = reader_of(text, len, a, e);
    r.own = text;
    int n = 0;
    for (skip_space(&r); n == 0 && r.p < r.end; skip_space(&r)) {
        struct json v = {0};
        n = read_value(&r, &v);
        if (n == 0 && r.p < r.end && *r.p != '\n')
            n = fail(&r, "something after the value");
        if (n == 0)
            n = fn(ctx, &v);
    }
    reader_done(&r);
    return n;
}

bool json_items_begin(struct json_items *it, const char *text, size_t len, uint64_t values_max) {
    struct reader r = {.p = text, .end = text + len};
    skip_space(&r);
    *it = (struct json_items){.text = text, .len = len, .values_max = values_max, .at = (size_t)(r.p - text) + 1};
    return r.p < r.end && *r.p == '[';
}

static int next_item(struct json_items *it, struct reader *r, struct json *v) {
    skip_space(r);
    if (!it->count && r->p < r->end && *r->p == ']') {
        r->p++;
        it->ended = true;
        return nothing_behind(r);
    }
    int e = read_value(r, v), more = e < 0 ? e : goes_on(r, ']');
    if (more < 0)
        return more;
    it->count++;
    it->ended = !more;
    e = more ? 0 : nothing_behind(r);
    return e < 0 ? e : 1;
}

int json_items_next(struct json_items *it, struct arena *a, struct json **out, struct error *e) {
    size_t left = it->len - it->at;
    bool cut = it->item_max && left > it->item_max;
    struct reader r = {.start = it->text,
                       .p = it->text + it->at,
                       .end = it->text + it->at + (cut ? it->item_max : left),
                       .arena = a,
                       .error = e,
                       .depth = 1,
                       .values_max = it->values_max};
    if (it->ended)
        return 0;
    struct json *v = arena_alloc(a, sizeof *v);
    int n = next_item(it, &r, v);
    if (n > 0)
        *out = v;
    else if (n < 0 && cut)
        error_set(e, E2BIG,
                  "item %llu of the list, at byte %zu, is not valid JSON or has more than %zu bytes",
                  (unsigned long long)it->count + 1, it->at, it->item_max);
    it->at = (size_t)(r.p - it->text);
    reader_done(&r);
    return n;
}

const struct json *json_get(const struct json *object, const char *key) {
    if (!object || object->type != JSON_OBJECT)
        return NULL;
    for (uint32_t i = 0; i < object->len; i++)
        if (object->members[i].key[0] == key[0] && strcmp(object->members[i].key, key) == 0)
            return object->members[i].value.type == JSON_NULL ? NULL : &object->members[i].value;
    return NULL;
}

const char *json_str(const struct json *object, const char *key) {
    const struct json *v = json_get(object, key);
    return v && v->type == JSON_STRING ? v->s : NULL;
}

int64_t json_i64(const struct json *object, const char *key, int64_t fallback) {
    const struct json *v = json_get(object, key);
    return v && v->type == JSON_INT ? v->i : fallback;
}

bool json_true(const struct json *object, const char *key) {
    const struct json *v = json_get(object, key);
    return v && v->type == JSON_BOOL && v->boolean;
}

