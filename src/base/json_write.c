// Owns the writing of JSON: what it writes, the reader reads.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

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

void json_open_key(struct json_writer *w, const char *key, char bracket) {
    json_key(w, key);
    json_open(w, bracket);
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
