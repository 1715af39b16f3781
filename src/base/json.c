// Owns the JSON grammar (RFC 8259), strictly: no comments, no trailing commas, no NaN, no lone
// surrogates, depth at most JSON_DEPTH_MAX.
#include "base/json.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/vec.h"

struct reader {
    const char *start, *p, *end;
    struct arena *arena;
    struct error *error;
    int depth;
    const struct json *like;  // the object before this one in an array: mostly of the same shape
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
    if (!u)
        return fail(r, "a string may not contain NUL");
    *n += utf8_put(out + *n, u);
    return 0;
}

static int read_string(struct reader *r, const char **out, uint32_t *len) {
    const char *q = ++r->p;
    while (q < r->end && *q != '"' && *q != '\\' && (unsigned char)*q >= 32)
        q++;
    size_t n = (size_t)(q - r->p);
    char *text;
    if (q < r->end && *q == '"') {  // no escapes: the usual case
        text = arena_strndup(r->arena, r->p, n);
        r->p = q + 1;
    } else {
        for (; q < r->end && *q != '"'; q++)
            if (*q == '\\')
                q++;
        if (q >= r->end)
            return fail(r, "string without end");
        text = arena_alloc(r->arena, (size_t)(q - r->p) + 1);
        n = 0;
        while (*r->p != '"') {
            if ((unsigned char)*r->p < 32)
                return fail(r, "control character in a string");
            if (*r->p != '\\') {
                text[n++] = *r->p++;
                continue;
            }
            r->p++;
            int e = read_escape(r, text, &n);
            if (e < 0)
                return e;
        }
        r->p++;
        text[n] = 0;
    }
    if (!utf8_valid(text, n))
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

static int read_number(struct reader *r, struct json *v) {
    const char *from = r->p;
    bool whole = true;
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

static int read_array(struct reader *r, struct json *v) {
    VEC(struct json) items = {0};
    int e = 0;
    r->p++;
    skip_space(r);
    if (r->p < r->end && *r->p == ']') {
        r->p++;
    } else {
        for (;;) {
            struct json item = {0};
            const struct json *before = items.len ? &items.at[items.len - 1] : NULL;
            skip_space(r);
            r->like = before && before->type == JSON_OBJECT && r->p < r->end && *r->p == '{' ? before : NULL;
            if ((e = read_value(r, &item)) < 0)
                break;
            vec_push(&items, item);
            skip_space(r);
            if (r->p < r->end && *r->p == ',') {
                r->p++;
                continue;
            }
            if (r->p < r->end && *r->p == ']')
                r->p++;
            else
                e = fail(r, "expected ',' or ']'");
            break;
        }
    }
    if (e == 0) {
        v->type = JSON_ARRAY;
        v->len = items.len;
        v->items = items.len ? arena_memdup(r->arena, items.at, items.len * sizeof *items.at) : NULL;
    }
    vec_done(&items);
    return e;
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

static int read_object(struct reader *r, struct json *v) {
    VEC(struct json_member) members = {0};
    const struct json *like = r->like;
    bool as_expected = like != NULL;
    int e = 0;
    r->like = NULL;
    r->p++;
    skip_space(r);
    if (r->p < r->end && *r->p == '}') {
        r->p++;
    } else {
        for (;;) {
            struct json_member m = {0};
            const char *expected = as_expected && members.len < like->len ? like->members[members.len].key : NULL;
            as_expected = as_expected && expected;
            if (members.len == 0 && like)
                vec_reserve(&members, like->len);
            if ((e = read_member(r, &m, expected, &as_expected)) < 0)
                break;
            // Objects of requests are small; large ones (more than this) skip the repeat check.
            for (uint32_t i = 0; !as_expected && members.len < 256 && i < members.len; i++)
                if (strcmp(members.at[i].key, m.key) == 0)
                    e = fail(r, "the same name twice in one object");
            if (e < 0)
                break;
            vec_push(&members, m);
            skip_space(r);
            if (r->p < r->end && *r->p == ',') {
                r->p++;
                continue;
            }
            if (r->p < r->end && *r->p == '}')
                r->p++;
            else
                e = fail(r, "expected ',' or '}'");
            break;
        }
    }
    if (e == 0) {
        v->type = JSON_OBJECT;
        v->len = members.len;
        v->members = members.len ? arena_memdup(r->arena, members.at, members.len * sizeof *members.at) : NULL;
    }
    vec_done(&members);
    return e;
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
    if (*r->p == '"') {
        v->type = JSON_STRING;
        return read_string(r, &v->s, &v->len);
    }
    if (*r->p == '-' || (*r->p >= '0' && *r->p <= '9'))
        return read_number(r, v);
    if (*r->p != '[' && *r->p != '{')
        return read_word(r, v);
    if (++r->depth > JSON_DEPTH_MAX)
        return fail(r, "nested too deeply");
    int e = *r->p == '[' ? read_array(r, v) : read_object(r, v);
    r->depth--;
    return e;
}

int json_parse(const char *text, size_t len, struct arena *a, struct json **out, struct error *e) {
    struct reader r = {.start = text, .p = text, .end = text + len, .arena = a, .error = e};
    struct json *v = arena_alloc(a, sizeof *v);
    int n = read_value(&r, v);
    if (n < 0)
        return n;
    skip_space(&r);
    if (r.p != r.end)
        return fail(&r, "something after the value");
    *out = v;
    return 0;
}

const struct json *json_get(const struct json *object, const char *key) {
    if (!object || object->type != JSON_OBJECT)
        return NULL;
    for (uint32_t i = 0; i < object->len; i++)
        if (object->members[i].key[0] == key[0] && strcmp(object->members[i].key, key) == 0)
            return &object->members[i].value;
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

static void comma(struct json_writer *w) {
    if (w->need_comma)
        buf_addc(w->out, ',');
    w->need_comma = true;
}

void json_open(struct json_writer *w, char bracket) {
    comma(w);
    buf_addc(w->out, bracket);
    w->need_comma = false;
}

void json_close(struct json_writer *w, char bracket) {
    buf_addc(w->out, bracket);
    w->need_comma = true;
}

static void put_quoted(struct buf *b, const char *s, size_t len) {
    static const char hex[] = "0123456789abcdef";
    char *o = buf_reserve(b, len * 6 + 2), *start = o;
    *o++ = '"';
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c >= 32 && c != '"' && c != '\\' && c != 127) {
            *o++ = (char)c;
            continue;
        }
        *o++ = '\\';
        static const char plain[] = "\n\t\r\"\\", letters[] = "ntr\"\\";
        const char *at = c ? strchr(plain, c) : NULL;
        if (at) {
            *o++ = letters[at - plain];
        } else {
            *o++ = 'u';
            *o++ = '0';
            *o++ = '0';
            *o++ = hex[c >> 4];
            *o++ = hex[c & 15];
        }
    }
    *o++ = '"';
    *o = 0;
    b->len += (size_t)(o - start);
}

void json_key(struct json_writer *w, const char *key) {
    comma(w);
    put_quoted(w->out, key, strlen(key));
    buf_addc(w->out, ':');
    w->need_comma = false;
}

void json_put_strn(struct json_writer *w, const char *s, size_t len) {
    comma(w);
    put_quoted(w->out, s, len);
}

void json_put_str(struct json_writer *w, const char *s) {
    if (s)
        json_put_strn(w, s, strlen(s));
    else
        json_put_null(w);
}

void json_put_u64(struct json_writer *w, uint64_t v) {
    comma(w);
    buf_addu(w->out, v);
}

void json_put_i64(struct json_writer *w, int64_t v) {
    comma(w);
    if (v < 0)
        buf_addc(w->out, '-');
    buf_addu(w->out, v < 0 ? 0 - (uint64_t)v : (uint64_t)v);
}

void json_put_double(struct json_writer *w, double v) {
    if (!isfinite(v)) {
        json_put_null(w);
        return;
    }
    comma(w);
    char text[32];
    snprintf(text, sizeof text, "%.15g", v == 0 ? 0 : v);
    if (strtod(text, NULL) != v)
        snprintf(text, sizeof text, "%.17g", v);
    buf_adds(w->out, text);
}

void json_put_bool(struct json_writer *w, bool v) {
    comma(w);
    buf_adds(w->out, v ? "true" : "false");
}

void json_put_null(struct json_writer *w) {
    comma(w);
    buf_adds(w->out, "null");
}

void json_put_raw(struct json_writer *w, const char *json) {
    comma(w);
    buf_adds(w->out, json);
}

void json_kv_str(struct json_writer *w, const char *key, const char *s) {
    json_key(w, key);
    json_put_str(w, s);
}

void json_kv_i64(struct json_writer *w, const char *key, int64_t v) {
    json_key(w, key);
    json_put_i64(w, v);
}

void json_kv_bool(struct json_writer *w, const char *key, bool v) {
    json_key(w, key);
    json_put_bool(w, v);
}

void json_write(struct json_writer *w, const struct json *v) {
    switch (v->type) {
    case JSON_NULL: json_put_null(w); break;
    case JSON_BOOL: json_put_bool(w, v->boolean); break;
    case JSON_INT: json_put_i64(w, v->i); break;
    case JSON_UINT: json_put_u64(w, v->u); break;
    case JSON_DOUBLE: json_put_double(w, v->d); break;
    case JSON_STRING: json_put_strn(w, v->s, v->len); break;
    case JSON_ARRAY:
        json_open(w, '[');
        for (uint32_t i = 0; i < v->len; i++)
            json_write(w, &v->items[i]);
        json_close(w, ']');
        break;
    case JSON_OBJECT:
        json_open(w, '{');
        for (uint32_t i = 0; i < v->len; i++) {
            json_key(w, v->members[i].key);
            json_write(w, &v->members[i].value);
        }
        json_close(w, '}');
        break;
    }
}
