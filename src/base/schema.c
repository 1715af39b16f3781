// Owns the binary form. A value is a varint (numbers, zigzag for signed) or length-delimited bytes
// (strings, structs, doubles, each list element on its own). Every length is checked against what is
// left before it is used.
#include "base/schema.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/text.h"

enum { GIVEN_ZEROS_KEY = 0 << 1 | 1 };

static const size_t sizes[] = {
    [FIELD_BOOL] = sizeof(bool),       [FIELD_U32] = 4,
    [FIELD_I32] = 4,                   [FIELD_U64] = 8,
    [FIELD_I64] = 8,                   [FIELD_DOUBLE] = 8,
    [FIELD_ENUM] = sizeof(unsigned),   [FIELD_STRING] = sizeof(char *),
    [FIELD_BYTES] = sizeof(struct bytes),  [FIELD_RAW_JSON] = sizeof(char *),
};

size_t schema_field_size(const struct field *f) {
    return f->type == FIELD_STRUCT ? f->sub->size : sizes[f->type];
}

static bool is_number(const struct field *f) {
    return f->type <= FIELD_I64 || f->type == FIELD_ENUM;
}

enum { VARINT_MAX = 10, VARINT_ONE_BYTE = 0x80 };

static size_t varint_bytes(uint64_t v, uint8_t bytes[static VARINT_MAX]) {
    size_t n = 0;
    do {
        bytes[n] = (uint8_t)(v & 0x7f);
        v >>= 7;
        if (v)
            bytes[n] |= 0x80;
        n++;
    } while (v);
    return n;
}

void schema_put_varint(struct buf *b, uint64_t v) {
    uint8_t bytes[VARINT_MAX];
    if (v < VARINT_ONE_BYTE)  // most are: numbers of fields, short lengths
        buf_addc(b, (char)v);
    else
        buf_add(b, bytes, varint_bytes(v, bytes));
}

int schema_get_varint(const uint8_t **p, const uint8_t *end, uint64_t *v) {
    uint64_t out = 0;
    for (unsigned shift = 0; *p < end && shift < 64; shift += 7) {
        uint8_t c = *(*p)++;
        if (shift == 63 && c > 1)
            return -EBADMSG;
        out |= (uint64_t)(c & 0x7f) << shift;
        if (!(c & 0x80)) {
            *v = out;
            return 0;
        }
    }
    return -EBADMSG;
}

static uint64_t load_number(const struct field *f, const void *at) {
    switch ((enum field_type)f->type) {
    case FIELD_BOOL: return *(const bool *)at;
    case FIELD_U32: return *(const uint32_t *)at;
    case FIELD_ENUM: return *(const unsigned *)at;
    case FIELD_U64: return *(const uint64_t *)at;
    case FIELD_I32: {
        int64_t v = *(const int32_t *)at;
        return (uint64_t)v << 1 ^ (uint64_t)(v >> 63);
    }
    case FIELD_I64: {
        int64_t v = *(const int64_t *)at;
        return (uint64_t)v << 1 ^ (uint64_t)(v >> 63);
    }
    default: assert(!"a number"); return 0;
    }
}

static int words_count(const char *const *words) {
    int n = 0;
    while (words[n])
        n++;
    return n;
}

static int store_number(const struct field *f, void *at, uint64_t v) {
    int64_t signed_v = (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
    switch ((enum field_type)f->type) {
    case FIELD_BOOL:
        if (v > 1)
            return -EBADMSG;
        *(bool *)at = v;
        return 0;
    case FIELD_U32:
        if (v > UINT32_MAX)
            return -EBADMSG;
        *(uint32_t *)at = (uint32_t)v;
        return 0;
    case FIELD_ENUM:
        if (v > UINT32_MAX)
            return -EBADMSG;
        // A word of a newer release: an open enumeration keeps it and shows it as unknown; in others it could be
        // taken for something that it is not.
        if (!f->open && v >= (uint64_t)words_count(f->words))
            return -EPROTONOSUPPORT;
        *(unsigned *)at = (unsigned)v;
        return 0;
    case FIELD_U64: *(uint64_t *)at = v; return 0;
    case FIELD_I32:
        if (signed_v > INT32_MAX || signed_v < INT32_MIN)
            return -EBADMSG;
        *(int32_t *)at = (int32_t)signed_v;
        return 0;
    case FIELD_I64: *(int64_t *)at = signed_v; return 0;
    default: assert(!"a number"); return -EBADMSG;
    }
}

static bool is_zero(const struct field *f, const void *at) {
    if (f->list)
        return !((const struct any_list *)at)->len;
    switch ((enum field_type)f->type) {
    case FIELD_STRUCT:
    case FIELD_RAW_JSON:
    case FIELD_STRING: return !*(void *const *)at;
    case FIELD_BYTES: return !((const struct bytes *)at)->len;
    case FIELD_DOUBLE: return *(const double *)at == 0;
    default: return load_number(f, at) == 0;
    }
}

static uint64_t *given_word(const struct schema *s, const void *value, uint64_t num) {
    return (uint64_t *)((uintptr_t)value + s->given_offset) + num / 64;
}

static bool is_marked(const struct schema *s, const void *value, uint64_t num) {
    return num < s->given_bits && *given_word(s, value, num) >> num % 64 & 1;
}

static void mark(const struct schema *s, void *value, uint64_t num) {
    if (num < s->given_bits)
        *given_word(s, value, num) |= 1ULL << num % 64;
}

static const struct field *field_of_member(const struct schema *s, const void *value, const void *member) {
    ptrdiff_t offset = (const char *)member - (const char *)value;
    for (size_t i = 0; i < s->count; i++)
        if (s->fields[i].offset == offset)
            return &s->fields[i];
    assert(!"a member that is in the table");
    return NULL;
}

bool schema_field_given(const struct schema *s, const struct field *f, const void *value) {
    return !is_zero(f, (const char *)value + f->offset) || is_marked(s, value, f->num);
}

bool schema_given(const struct schema *s, const void *value, const void *member) {
    return schema_field_given(s, field_of_member(s, value, member), value);
}

void schema_give(const struct schema *s, void *value, const void *member) {
    assert(s->given_bits);
    mark(s, value, field_of_member(s, value, member)->num);
}

void schema_unmark(const struct schema *s, void *value, const void *member) {
    uint64_t num = field_of_member(s, value, member)->num;
    if (num < s->given_bits)
        *given_word(s, value, num) &= ~(1ULL << num % 64);
}

bool schema_given_zero(const struct schema *s, const struct field *f, const void *value) {
    return is_marked(s, value, f->num) && is_zero(f, (const char *)value + f->offset);
}

void schema_forget_given(const struct schema *s, void *value) {
    if (s->given_bits)
        memset((char *)value + s->given_offset, 0, s->given_bits / 8);
}

void schema_merge(const struct schema *s, void *value, const void *change) {
    for (size_t i = 0; i < s->count; i++) {
        const struct field *f = &s->fields[i];
        size_t size = f->list                   ? sizeof(struct any_list)
                      : f->type == FIELD_STRUCT ? sizeof(void *)
                                                : schema_field_size(f);
        if (!schema_field_given(s, f, change))
            continue;
        memcpy((char *)value + f->offset, (const char *)change + f->offset, size);
        if (is_zero(f, (char *)value + f->offset))
            mark(s, value, f->num);
    }
}

static void put_block(struct buf *out, const void *p, size_t len) {
    schema_put_varint(out, len);
    buf_add(out, p, len);
}

// As put_block, but written in place: its length is known afterwards and mostly takes one byte.
static void put_struct(const struct schema *s, const void *value, struct buf *out) {
    size_t from = out->len;
    uint8_t head[VARINT_MAX];
    buf_addc(out, 0);
    schema_encode(s, value, out);
    size_t len = out->len - from - 1, n = varint_bytes(len, head);
    if (n > 1) {
        buf_reserve(out, n - 1);
        memmove(out->data + from + n, out->data + from + 1, len + 1);  // with the NUL
        out->len += n - 1;
    }
    memcpy(out->data + from, head, n);
}

static void encode_value(const struct field *f, const void *at, struct buf *out) {
    if (is_number(f)) {
        schema_put_varint(out, load_number(f, at));
    } else if (f->type == FIELD_STRING) {
        const char *s = *(const char *const *)at;
        put_block(out, s ? s : "", s ? strlen(s) : 0);
    } else if (f->type == FIELD_BYTES) {
        const struct bytes *b = at;
        put_block(out, b->data, b->len);
    } else if (f->type == FIELD_DOUBLE) {
        put_block(out, at, sizeof(double));
    } else {
        put_struct(f->sub, at, out);
    }
}

// Field number 0: a block of the numbers of fields that are given as zero, false or empty.
static void encode_given_zeros(const struct schema *s, const void *value, struct buf *out) {
    cleanup_buf struct buf nums = {0};
    for (size_t i = 0; i < s->count; i++)
        if (is_marked(s, value, s->fields[i].num) && is_zero(&s->fields[i], (const char *)value + s->fields[i].offset))
            schema_put_varint(&nums, s->fields[i].num);
    if (nums.len) {
        schema_put_varint(out, GIVEN_ZEROS_KEY);
        put_block(out, nums.data, nums.len);
    }
}

void schema_encode(const struct schema *s, const void *value, struct buf *out) {
    for (size_t i = 0; i < s->count; i++) {
        const struct field *f = &s->fields[i];
        const char *at = (const char *)value + f->offset;
        uint64_t key = (uint64_t)f->num << 1 | !is_number(f);
        if (f->list) {
            const struct any_list *list = (const void *)at;
            for (uint32_t k = 0; k < list->len; k++) {
                schema_put_varint(out, key);
                encode_value(f, (const char *)list->at + k * schema_field_size(f), out);
            }
        } else if (!is_zero(f, at)) {
            schema_put_varint(out, key);
            encode_value(f, f->type == FIELD_STRUCT ? *(void *const *)at : at, out);
        }
    }
    if (s->given_bits)
        encode_given_zeros(s, value, out);
}

struct decoder {
    struct arena *arena;
    size_t memory_left;
    int depth;
    bool views;  // byte strings stay where they are
};

static bool spend(struct decoder *d, size_t bytes) {
    if (bytes > d->memory_left)
        return false;
    d->memory_left -= bytes;
    return true;
}

static int decode_struct(struct decoder *d, const struct schema *s, const uint8_t *p, const uint8_t *end, void *value);

static int decode_value(struct decoder *d, const struct field *f, const uint8_t **p, const uint8_t *end, void *at) {
    uint64_t v;
    int e = schema_get_varint(p, end, &v);
    if (e < 0 || is_number(f))
        return e < 0 ? e : store_number(f, at, v);
    if (v > (uint64_t)(end - *p))
        return -EBADMSG;
    const uint8_t *block = *p;
    *p += v;
    bool view = f->type == FIELD_BYTES && d->views;
    if ((f->type == FIELD_STRING || f->type == FIELD_BYTES) && !view && !spend(d, v + 1))
        return -EBADMSG;
    if (f->type == FIELD_STRING) {
        if (memchr(block, 0, v))
            return -EBADMSG;
        *(const char **)at = arena_strndup(d->arena, (const char *)block, v);
    } else if (f->type == FIELD_BYTES) {
        *(struct bytes *)at = (struct bytes){view ? block : arena_memdup(d->arena, block, v), v};
    } else if (f->type == FIELD_DOUBLE) {
        if (v != sizeof(double))
            return -EBADMSG;
        memcpy(at, block, sizeof(double));
    } else {
        return decode_struct(d, f->sub, block, *p, at);
    }
    return 0;
}

static const struct field *field_by_num(const struct schema *s, uint64_t num, size_t *hint) {
    size_t i = *hint;
    for (size_t n = 0; n < s->count; n++) {  // fields arrive in table order: the hint is mostly right
        if (s->fields[i].num == num) {
            *hint = i;
            return &s->fields[i];
        }
        i = i + 1 < s->count ? i + 1 : 0;
    }
    return NULL;
}

static int skip_value(const uint8_t **p, const uint8_t *end, bool block) {
    uint64_t v;
    int e = schema_get_varint(p, end, &v);
    if (e < 0 || !block)
        return e;
    if (v > (uint64_t)(end - *p))
        return -EBADMSG;
    *p += v;
    return 0;
}

// How many elements of list field `key` follow in a row, so that the list is allocated once.
static uint32_t count_run(const uint8_t *p, const uint8_t *end, uint64_t key) {
    uint32_t n = 0;
    uint64_t k = key;
    while (k == key) {
        n++;
        if (skip_value(&p, end, key & 1) < 0 || schema_get_varint(&p, end, &k) < 0)
            break;
    }
    return n;
}

static int decode_list(struct decoder *d, const struct field *f, uint64_t key, const uint8_t **p,
                       const uint8_t *end, struct any_list *list) {
    uint32_t n = count_run(*p, end, key);
    if (n > SCHEMA_LIST_MAX || !spend(d, n * schema_field_size(f)))
        return -EBADMSG;
    list->at = arena_alloc(d->arena, n * schema_field_size(f));
    for (list->len = 0; list->len < n; list->len++) {
        uint64_t same;
        if (list->len && (schema_get_varint(p, end, &same) < 0 || same != key))
            return -EBADMSG;
        int e = decode_value(d, f, p, end, (char *)list->at + list->len * schema_field_size(f));
        if (e < 0)
            return e;
    }
    return 0;
}

// Numbers of fields that this version does not know are skipped.
static int decode_given_zeros(const struct schema *s, const uint8_t **p, const uint8_t *end, void *value) {
    uint64_t len, num;
    size_t hint = 0;
    if (schema_get_varint(p, end, &len) < 0 || len > (uint64_t)(end - *p))
        return -EBADMSG;
    for (end = *p + len; *p < end;) {
        if (schema_get_varint(p, end, &num) < 0)
            return -EBADMSG;
        if (field_by_num(s, num, &hint))
            mark(s, value, num);
    }
    return 0;
}

static int decode_struct(struct decoder *d, const struct schema *s, const uint8_t *p, const uint8_t *end, void *value) {
    size_t hint = 0;
    int e = 0;
    uint64_t seen[SCHEMA_FIELDS_MAX / 64] = {0};  // a field comes once; a list's elements in a row
    assert(s->count <= SCHEMA_FIELDS_MAX);
    memset(value, 0, s->size);
    if (++d->depth > SCHEMA_DEPTH_MAX)
        return -EBADMSG;
    while (e == 0 && p < end) {
        uint64_t key;
        if ((e = schema_get_varint(&p, end, &key)) < 0)
            break;
        if (key == GIVEN_ZEROS_KEY && s->given_bits) {
            e = decode_given_zeros(s, &p, end, value);
            continue;
        }
        const struct field *f = field_by_num(s, key >> 1, &hint);
        if (!f) {
            e = skip_value(&p, end, key & 1);
            continue;
        }
        void *at = (char *)value + f->offset;
        uint64_t bit = 1ull << (hint & 63);
        bool repeated = seen[hint / 64] & bit;
        seen[hint / 64] |= bit;
        if ((key & 1) == is_number(f) || repeated)
            e = -EBADMSG;
        else if (f->list)
            e = decode_list(d, f, key, &p, end, at);
        else if (f->type == FIELD_STRUCT)
            e = spend(d, f->sub->size) ? decode_value(d, f, &p, end, *(void **)at = arena_alloc(d->arena, f->sub->size))
                                       : -EBADMSG;
        else
            e = decode_value(d, f, &p, end, at);
        if (s->given_bits && e == 0 && is_zero(f, at))
            mark(s, value, f->num);
    }
    d->depth--;
    return e;
}

int schema_decode(const struct schema *s, const void *data, size_t len, struct arena *a, void *value) {
    return schema_decode_bounded(s, data, len, SIZE_MAX, a, value);
}

int schema_decode_bounded(const struct schema *s, const void *data, size_t len, size_t memory_max, struct arena *a,
                          void *value) {
    struct decoder d = {.arena = a, .memory_left = memory_max};
    return decode_struct(&d, s, data, (const uint8_t *)data + len, value);
}

int schema_decode_views(const struct schema *s, const void *data, size_t len, size_t memory_max,
                        struct arena *a, void *value) {
    struct decoder d = {.arena = a, .memory_left = memory_max, .views = true};
    return decode_struct(&d, s, data, (const uint8_t *)data + len, value);
}

bool schema_equal(const struct schema *s, const void *a, const void *b) {
    cleanup_buf struct buf x = {0}, y = {0};
    schema_encode(s, a, &x);
    schema_encode(s, b, &y);
    return x.len == y.len && (!x.len || memcmp(x.data, y.data, x.len) == 0);
}

void *schema_copy(const struct schema *s, const void *value, struct arena *a) {
    cleanup_buf struct buf b = {0};
    void *copy = arena_alloc(a, s->size);
    schema_encode(s, value, &b);
    int e = schema_decode(s, b.data, b.len, a, copy);
    assert(e == 0);
    return copy;
}

const char *schema_word_name(const char *const *words, unsigned value) {
    return value < (unsigned)words_count(words) ? words[value] : "unknown";
}

int schema_word_find(const char *const *words, const char *word) {
    for (int i = 0; words[i]; i++)
        if (streq(words[i], word))
            return i;
    return -1;
}
