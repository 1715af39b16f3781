// See the header.
#include "block.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/cleanup.h"
#include "base/schema.h"
#include "base/text.h"

const char *const data_type_words[] = {"bool", "u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64", "f16", "f32",
                                       "f64", "text", "bytes", "json", "rows", "array", NULL};

size_t data_type_size(enum data_type t) {
    static const uint8_t sizes[] = {1, 1, 1, 2, 2, 4, 4, 8, 8, 2, 4, 8};
    return t < DATA_UTF8 ? sizes[t] : 0;
}

struct data_block *data_block_new(uint32_t columns, uint64_t rows) {
    struct data_block *b = xcalloc(1, sizeof *b);
    b->columns = xcalloc(columns ? columns : 1, sizeof *b->columns);
    b->columns_count = columns;
    b->rows = rows;
    b->refs = 1;
    return b;
}

void data_block_free(struct data_block *b) {
    if (!b)
        return;
    free(b->columns);
    free(b);
}

uint64_t data_column_row_bytes(const struct data_column *c) {
    uint64_t n = data_type_size(c->type);
    for (uint32_t i = 0; i < c->dimensions; i++)
        n *= c->shape[i];
    return n;
}

void data_block_describe(const struct data_block *b, uint64_t from, uint64_t count, struct json_writer *w) {
    json_open_key(w, "columns", '[');
    for (uint32_t i = 0; i < b->columns_count; i++) {
        const struct data_column *c = &b->columns[i];
        uint64_t row = data_column_row_bytes(c);
        json_open(w, '{');
        json_kv_str(w, "name", c->name);
        json_kv_str(w, "type", data_type_words[c->type]);
        json_open_key(w, "shape", '[');
        for (uint32_t d = 0; d < c->dimensions; d++)
            json_put_u64(w, c->shape[d]);
        json_close(w, ']');
        json_key(w, "at");
        json_put_u64(w, c->type < DATA_UTF8 ? c->values + from * row : c->values);
        json_key(w, "size");
        json_put_u64(w, c->type < DATA_UTF8 ? count * row : c->size);
        if (c->type >= DATA_UTF8) {
            json_key(w, "offsets");
            json_put_u64(w, c->offsets + from * sizeof(uint64_t));
        }
        if (c->type == DATA_ARRAY) {
            json_key(w, "shapes");
            json_put_u64(w, c->shapes + from * 3 * sizeof(uint32_t));
        }
        json_close(w, '}');
    }
    json_close(w, ']');
}

// --- what a worker says ---

static bool number_of(const struct json *object, const char *key, uint64_t *out) {
    const struct json *v = json_get(object, key);
    if (!v || (v->type != JSON_INT && v->type != JSON_UINT) || (v->type == JSON_INT && v->i < 0))
        return false;
    *out = v->type == JSON_INT ? (uint64_t)v->i : v->u;
    return true;
}

static bool inside(uint64_t at, uint64_t size, uint64_t memory_size) {
    return size <= memory_size && at <= memory_size - size;
}

static int read_shape(const struct json *shape, struct data_column *c) {
    if (!shape || shape->type != JSON_ARRAY || shape->len > DATA_DIMENSIONS_MAX)
        return -EBADMSG;
    uint64_t total = 1;
    for (uint32_t i = 0; i < shape->len; i++) {
        const struct json *v = &shape->items[i];
        if (v->type != JSON_INT || v->i < 0 || v->i > INT32_MAX)
            return -EBADMSG;
        c->shape[i] = (uint32_t)v->i;
        total *= c->shape[i] ? c->shape[i] : 1;
        if (total > INT64_MAX / 16)
            return -EBADMSG;
    }
    c->dimensions = shape->len;
    return 0;
}

static int read_column(const struct json *j, uint64_t rows, const uint8_t *memory, uint64_t memory_size,
                       struct data_column *c) {
    const char *name = json_str(j, "name");
    int type = schema_word_find(data_type_words, json_str(j, "type") ? json_str(j, "type") : "");
    if (!name || !*name || strlen(name) >= sizeof c->name || type < 0 || type == DATA_ARRAY)
        return -EBADMSG;
    memcpy(c->name, name, strlen(name) + 1);
    c->type = (uint32_t)type;
    if (read_shape(json_get(j, "shape"), c) || !number_of(j, "at", &c->values) || !number_of(j, "size", &c->size) ||
        !inside(c->values, c->size, memory_size))
        return -EBADMSG;
    if (type < DATA_UTF8) {
        uint64_t row = data_column_row_bytes(c);
        return row && rows > c->size / row ? -EBADMSG : 0;
    }
    if (c->dimensions || !number_of(j, "offsets", &c->offsets) || rows >= memory_size / sizeof(uint64_t) ||
        !inside(c->offsets, (rows + 1) * sizeof(uint64_t), memory_size) || c->offsets % sizeof(uint64_t))
        return -EBADMSG;
    uint64_t last = 0;
    for (uint64_t i = 0; i <= rows; i++) {
        uint64_t at;
        memcpy(&at, memory + c->offsets + i * sizeof at, sizeof at);
        if (at < last || at > c->size)
            return -EBADMSG;
        last = at;
    }
    return 0;
}

int data_block_read(const struct json *columns, uint64_t rows, const uint8_t *memory, uint64_t memory_size,
                    struct data_block **out, struct error *e) {
    if (!columns || columns->type != JSON_ARRAY || columns->len > DATA_COLUMNS_MAX || rows > INT64_MAX / 16)
        return error_set(e, EBADMSG, "a worker's answer has no columns, or more than %d", DATA_COLUMNS_MAX);
    struct data_block *b = data_block_new(columns->len, rows);
    for (uint32_t i = 0; i < columns->len; i++) {
        int r = columns->items[i].type == JSON_OBJECT
                    ? read_column(&columns->items[i], rows, memory, memory_size, &b->columns[i])
                    : -EBADMSG;
        if (r) {
            data_block_free(b);
            return error_set(e, EBADMSG, "column %u of a worker's answer does not lie in the shared memory", i);
        }
    }
    *out = b;
    return 0;
}

// --- rows as text ---

static double half(uint16_t h) {
    int exponent = h >> 10 & 31;
    double m = h & 1023, v = exponent == 0    ? ldexp(m, -24)
                             : exponent == 31 ? (m ? NAN : INFINITY)
                                              : ldexp(m + 1024, exponent - 25);
    return h & 0x8000 ? -v : v;
}

// The shortest text that reads back as the same number; what is no number is null.
static void put_float(struct json_writer *w, double v, bool is_single) {
    if (!isfinite(v)) {
        json_put_null(w);
        return;
    }
    if (!is_single) {
        json_put_double(w, v);
        return;
    }
    char text[32];
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtof(text, NULL) == (float)v)
            break;
    }
    json_put_raw(w, text);
}

#define PUT(type, call)                 \
    do {                                \
        type v_;                        \
        memcpy(&v_, p, sizeof v_);      \
        call(w, v_);                    \
    } while (0)

static void put_number(struct json_writer *w, enum data_type t, const uint8_t *p) {
    float f;
    double d;
    uint16_t h;
    switch (t) {
    case DATA_BOOL: json_put_bool(w, *p); break;
    case DATA_U8: json_put_u64(w, *p); break;
    case DATA_I8: PUT(int8_t, json_put_i64); break;
    case DATA_U16: PUT(uint16_t, json_put_u64); break;
    case DATA_I16: PUT(int16_t, json_put_i64); break;
    case DATA_U32: PUT(uint32_t, json_put_u64); break;
    case DATA_I32: PUT(int32_t, json_put_i64); break;
    case DATA_U64: PUT(uint64_t, json_put_u64); break;
    case DATA_I64: PUT(int64_t, json_put_i64); break;
    case DATA_F16:
        memcpy(&h, p, sizeof h);
        put_float(w, half(h), true);
        break;
    case DATA_F32:
        memcpy(&f, p, sizeof f);
        put_float(w, (double)f, true);
        break;
    default:
        memcpy(&d, p, sizeof d);
        put_float(w, d, false);
        break;
    }
}

static const uint8_t *put_array(struct json_writer *w, const struct data_column *c, uint32_t dimension,
                                const uint8_t *p) {
    if (dimension == c->dimensions) {
        put_number(w, c->type, p);
        return p + data_type_size(c->type);
    }
    json_open(w, '[');
    for (uint32_t i = 0; i < c->shape[dimension]; i++)
        p = put_array(w, c, dimension + 1, p);
    json_close(w, ']');
    return p;
}

static void put_base64(struct json_writer *w, const uint8_t *p, size_t n) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    struct buf cleanup_buf b = {0};
    for (size_t i = 0; i < n; i += 3) {
        uint32_t v = (uint32_t)p[i] << 16 | (i + 1 < n ? (uint32_t)p[i + 1] << 8 : 0) | (i + 2 < n ? p[i + 2] : 0u);
        buf_addc(&b, digits[v >> 18]);
        buf_addc(&b, digits[v >> 12 & 63]);
        buf_addc(&b, i + 1 < n ? digits[v >> 6 & 63] : '=');
        buf_addc(&b, i + 2 < n ? digits[v & 63] : '=');
    }
    json_put_str(w, buf_str(&b));
}

static const uint8_t *varying(const struct data_column *c, const uint8_t *memory, uint64_t row, size_t *len) {
    uint64_t ends[2];
    memcpy(ends, memory + c->offsets + row * sizeof *ends, sizeof ends);
    *len = ends[1] - ends[0];
    return memory + c->values + ends[0];
}

static void put_value(struct json_writer *w, const struct data_column *c, const uint8_t *memory, uint64_t row) {
    size_t len;
    if (c->type < DATA_UTF8) {
        put_array(w, c, 0, memory + c->values + row * data_column_row_bytes(c));
        return;
    }
    const uint8_t *p = varying(c, memory, row, &len);
    if (c->type == DATA_UTF8 && str_utf8_valid((const char *)p, len)) {
        json_put_strn(w, (const char *)p, len);
    } else if (c->type == DATA_JSON || c->type == DATA_ROW) {
        cleanup_free char *text = xstrndup((const char *)p, len);
        json_put_raw(w, text);
    } else {
        put_base64(w, p, len);
    }
}

int data_block_jsonl(const struct data_block *b, const uint8_t *memory, uint64_t from, uint64_t count,
                     struct buf *out) {
    for (uint64_t row = from; row < from + count; row++) {
        struct json_writer w = {.out = out};
        if (b->columns_count == 1 && b->columns[0].type == DATA_ROW) {
            put_value(&w, &b->columns[0], memory, row);
        } else {
            json_open(&w, '{');
            for (uint32_t i = 0; i < b->columns_count; i++) {
                json_key(&w, b->columns[i].name);
                w.need_comma = false;
                put_value(&w, &b->columns[i], memory, row);
            }
            json_close(&w, '}');
        }
        buf_addc(out, '\n');
    }
    return 0;
}

// --- CSV ---

static void csv_text(struct buf *out, const char *s, size_t n) {
    bool plain = true;
    for (size_t i = 0; plain && i < n; i++)
        plain = s[i] != ',' && s[i] != '"' && s[i] != '\n' && s[i] != '\r';
    if (plain && n) {
        buf_add(out, s, n);
        return;
    }
    buf_addc(out, '"');
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '"')
            buf_addc(out, '"');
        buf_addc(out, s[i]);
    }
    buf_addc(out, '"');
}

static void csv_value(struct buf *out, const struct json *v) {
    struct buf cleanup_buf text = {0};
    struct json_writer w = {.out = &text};
    if (v->type == JSON_STRING) {
        csv_text(out, v->s, v->len);
    } else if (v->type != JSON_NULL) {
        json_write(&w, v);
        csv_text(out, text.data, text.len);
    }
}

// Rows that are objects: the first one's names are the columns of all.
static int csv_objects(const struct data_block *b, const uint8_t *memory, uint64_t from, uint64_t count, bool header,
                       struct buf *out, struct error *e) {
    struct arena cleanup_arena names_arena = {0}, cleanup_arena a = {0};
    struct json *first = NULL;
    for (uint64_t row = from; row < from + count; row++) {
        size_t len;
        const char *p = (const char *)varying(&b->columns[0], memory, row, &len);
        struct json *j = NULL;
        if (json_parse(p, len, row == from ? &names_arena : &a, &j, e) || j->type != JSON_OBJECT)
            return error_set(e, EBADMSG, "a row is no JSON object, so it has no columns for CSV");
        if (row == from) {
            first = j;
            for (uint32_t i = 0; header && i < j->len; i++) {
                buf_adds(out, i ? "," : "");
                csv_text(out, j->members[i].key, strlen(j->members[i].key));
            }
            if (header)
                buf_addc(out, '\n');
        }
        if (j->len != first->len)
            return error_set(e, EBADMSG, "a row has %u columns, the first one %u: CSV needs the same in all",
                             j->len, first->len);
        for (uint32_t i = 0; i < first->len; i++) {
            static const struct json null = {.type = JSON_NULL};
            const struct json *v = json_get(j, first->members[i].key);
            buf_adds(out, i ? "," : "");
            csv_value(out, v ? v : &null);
        }
        buf_addc(out, '\n');
        arena_reset(&a);
    }
    return 0;
}

int data_block_csv(const struct data_block *b, const uint8_t *memory, uint64_t from, uint64_t count,
                   bool header, struct buf *out, struct error *e) {
    if (b->columns_count == 1 && b->columns[0].type == DATA_ROW)
        return csv_objects(b, memory, from, count, header, out, e);
    for (uint32_t i = 0; header && i < b->columns_count; i++) {
        buf_adds(out, i ? "," : "");
        csv_text(out, b->columns[i].name, strlen(b->columns[i].name));
    }
    if (header)
        buf_addc(out, '\n');
    for (uint64_t row = from; row < from + count; row++) {
        for (uint32_t i = 0; i < b->columns_count; i++) {
            const struct data_column *c = &b->columns[i];
            struct buf cleanup_buf text = {0};
            struct json_writer w = {.out = &text};
            buf_adds(out, i ? "," : "");
            size_t len;
            if (c->type == DATA_UTF8) {
                const char *p = (const char *)varying(c, memory, row, &len);
                csv_text(out, p, len);
            } else if (c->type == DATA_JSON) {  // a text is itself, and nothing is nothing
                struct arena cleanup_arena a = {0};
                struct json *j = NULL;
                const char *p = (const char *)varying(c, memory, row, &len);
                if (json_parse(p, len, &a, &j, e))
                    return -EBADMSG;
                csv_value(out, j);
            } else {
                put_value(&w, c, memory, row);
                if (c->type < DATA_UTF8 && !c->dimensions)
                    buf_add(out, text.data, text.len);
                else
                    csv_text(out, text.data, text.len);
            }
        }
        buf_addc(out, '\n');
    }
    return 0;
}

int data_csv_fields(char *line, size_t len, char **fields, size_t *lens, uint32_t max, bool *quoted) {
    uint32_t n = 0;
    size_t at = 0;
    while (len && (line[len - 1] == '\n' || line[len - 1] == '\r'))
        len--;
    for (;;) {
        if (n == max)
            return -E2BIG;
        size_t to = at;
        fields[n] = line + at;
        quoted[n] = at < len && line[at] == '"';
        if (quoted[n]) {
            size_t from = at + 1;
            for (;; from++) {
                if (from >= len)
                    return -EBADMSG;
                if (line[from] == '"') {
                    if (from + 1 < len && line[from + 1] == '"')
                        from++;
                    else
                        break;
                }
                line[to++] = line[from];
            }
            lens[n] = to - at;
            at = from + 1;
            if (at < len && line[at] != ',')
                return -EBADMSG;
        } else {
            while (at < len && line[at] != ',')
                at++;
            lens[n] = at - to;
        }
        n++;
        if (at >= len)
            return (int)n;
        at++;
    }
}

// A field without quotation marks that is a number as JSON writes it.
static bool is_number(const char *s, size_t n) {
    size_t i = n && *s == '-' ? 1 : 0;
    if (i == n || n > 40 || (s[i] == '0' && i + 1 < n && s[i + 1] >= '0' && s[i + 1] <= '9'))
        return false;
    size_t digits = i;
    while (i < n && s[i] >= '0' && s[i] <= '9')
        i++;
    if (i == digits)
        return false;
    if (i < n && s[i] == '.') {
        size_t from = ++i;
        while (i < n && s[i] >= '0' && s[i] <= '9')
            i++;
        if (i == from)
            return false;
    }
    if (i < n && (s[i] == 'e' || s[i] == 'E')) {
        i++;
        if (i < n && (s[i] == '+' || s[i] == '-'))
            i++;
        size_t from = i;
        while (i < n && s[i] >= '0' && s[i] <= '9')
            i++;
        if (i == from)
            return false;
    }
    return i == n;
}

int data_csv_row(char *line, size_t len, const char *const *names, uint32_t names_count, struct buf *out,
                 struct error *e) {
    char *fields[DATA_COLUMNS_MAX];
    size_t lens[DATA_COLUMNS_MAX];
    bool quoted[DATA_COLUMNS_MAX];
    int n = data_csv_fields(line, len, fields, lens, DATA_COLUMNS_MAX, quoted);
    if (n < 0)
        return error_set(e, EBADMSG, n == -E2BIG ? "more than 256 columns" : "a quotation mark in the wrong place");
    if ((uint32_t)n != names_count)
        return error_set(e, EBADMSG, "%d fields, but the header names %u", n, names_count);
    struct json_writer w = {.out = out};
    json_open(&w, '{');
    for (int i = 0; i < n; i++) {
        json_key(&w, names[i]);
        if (!quoted[i] && !lens[i]) {
            json_put_null(&w);
        } else if (!quoted[i] && is_number(fields[i], lens[i])) {
            buf_add(out, fields[i], lens[i]);
            w.need_comma = true;
        } else if (str_utf8_valid(fields[i], lens[i])) {
            json_put_strn(&w, fields[i], lens[i]);
        } else {
            return error_set(e, EBADMSG, "column %s is not UTF-8", names[i]);
        }
    }
    json_close(&w, '}');
    return 0;
}
