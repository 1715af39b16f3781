// Writes samples straight in their encoded form, so that nothing has to be allocated for them.
#include "sample.h"

#include <string.h>

enum { DEPTH_MAX = 4, LIST_ELEMENTS_MAX = 3 };

static const char *const texts[] = {"n1",   "alice",     "default", "gpu", "a100", "0-3",
                                    "/tmp", "afterok:1", "1_[0-9]", "é",   ""};

static uint64_t number(const struct field *f, struct rand *r) {
    static const uint64_t edges[] = {0, 1, 2, 127, 128, 1000, UINT32_MAX, INT64_MAX};
    if (f->type == FIELD_BOOL)
        return rand_below(r, 2);
    if (f->type == FIELD_ENUM) {
        uint64_t n = 0;
        while (f->words && f->words[n])
            n++;
        return n ? rand_below(r, n) : 0;
    }
    uint64_t v = rand_below(r, 3) ? rand_below(r, 10) : edges[rand_below(r, sizeof edges / sizeof *edges)];
    return f->type == FIELD_U32 && v > UINT32_MAX ? 1 : v;
}

static bool is_number(const struct field *f) {
    return f->type <= FIELD_I64 || f->type == FIELD_ENUM;
}

static void put_varint(struct buf *out, uint64_t v) {
    while (v >= 0x80) {
        buf_addc(out, (char)(v | 0x80));
        v >>= 7;
    }
    buf_addc(out, (char)v);
}

static void put_value(const struct field *f, struct rand *r, int depth, struct buf *out) {
    cleanup_buf struct buf inner = {0};
    if (is_number(f)) {
        uint64_t v = number(f, r);
        bool is_signed = f->type == FIELD_I32 || f->type == FIELD_I64;
        put_varint(out, is_signed ? v << 1 : v);
        return;
    }
    if (f->type == FIELD_STRING || f->type == FIELD_BYTES) {
        buf_adds(&inner, texts[rand_below(r, sizeof texts / sizeof *texts)]);
    } else if (f->type == FIELD_DOUBLE) {
        double d = (double)rand_below(r, 1000) / 8;
        buf_add(&inner, &d, sizeof d);
    } else if (depth < DEPTH_MAX) {
        fuzz_sample_binary(f->sub, r, depth + 1, &inner);
    }
    put_varint(out, inner.len);
    buf_add(out, inner.data ? inner.data : "", inner.len);
}

void fuzz_sample_binary(const struct schema *s, struct rand *r, int depth, struct buf *out) {
    for (size_t i = 0; i < s->count; i++) {
        const struct field *f = &s->fields[i];
        uint64_t n = rand_below(r, 3) == 0 ? 0 : f->list ? rand_below(r, LIST_ELEMENTS_MAX + 1) : 1;
        for (uint64_t k = 0; k < n; k++) {
            put_varint(out, (uint64_t)f->num << 1 | !is_number(f));
            put_value(f, r, depth, out);
        }
    }
}

static void json_sample(const struct field *f, struct rand *r, int depth, struct json_writer *w) {
    uint64_t n = is_number(f) ? number(f, r) : 0;
    switch (f->type) {
    case FIELD_BOOL: json_put_bool(w, n); break;
    case FIELD_ENUM: json_put_str(w, f->words && f->words[n] ? f->words[n] : "x"); break;
    case FIELD_STRING:
    case FIELD_BYTES: json_put_str(w, texts[rand_below(r, sizeof texts / sizeof *texts)]); break;
    case FIELD_DOUBLE: json_put_double(w, (double)rand_below(r, 1000) / 8); break;
    case FIELD_STRUCT:
        if (depth < DEPTH_MAX)
            fuzz_sample_json(f->sub, r, depth + 1, w);
        else
            json_put_null(w);
        break;
    default: json_put_u64(w, n);
    }
}

void fuzz_sample_json(const struct schema *s, struct rand *r, int depth, struct json_writer *w) {
    json_open(w, '{');
    for (size_t i = 0; i < s->count; i++) {
        const struct field *f = &s->fields[i];
        if (rand_below(r, 3) == 0)
            continue;
        json_key(w, f->name);
        if (!f->list) {
            json_sample(f, r, depth, w);
            continue;
        }
        json_open(w, '[');
        for (uint64_t n = rand_below(r, LIST_ELEMENTS_MAX + 1); n; n--)
            json_sample(f, r, depth, w);
        json_close(w, ']');
    }
    json_close(w, '}');
}
