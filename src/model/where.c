// Owns the grammar of filters. What a column's value is, the caller knows.
#include "model/where.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/text.h"
#include "model/units.h"

#define COLUMN_LETTERS "abcdefghijklmnopqrstuvwxyz_"

struct parser {
    const char *p;
    const struct where_column *columns;
    uint32_t column_count;
    const struct where_clock *clock;
    struct arena *a;
};

static int unknown_column(const struct parser *w, const char *name, struct error *e) {
    const char *best = NULL;
    unsigned distance = str_edit_distance_near(name);
    char shown[64];
    for (uint32_t i = 0; i < w->column_count; i++) {
        unsigned d = str_edit_distance(w->columns[i].name, name);
        if (d < distance) {
            distance = d;
            best = w->columns[i].name;
        }
    }
    str_printable(name, shown, sizeof shown);
    if (best)
        return error_set(e, EINVAL, "where: there is no column \"%s\"; did you mean \"%s\"?", shown, best);
    cleanup_buf struct buf all = {0};
    for (uint32_t i = 0; i < w->column_count; i++)
        buf_addf(&all, "%s%s", i ? ", " : "", w->columns[i].name);
    return error_set(e, EINVAL, "where: there is no column \"%s\"; columns are %s", shown, buf_str(&all));
}

static int find_column(const struct parser *w, const char *name, uint32_t *out, struct error *e) {
    for (uint32_t i = 0; i < w->column_count; i++)
        if (streq(w->columns[i].name, name)) {
            *out = i;
            return 0;
        }
    return unknown_column(w, name, e);
}

static int read_op(struct parser *w, enum where_op *out, struct error *e) {
    static const struct {
        const char *text;
        enum where_op op;
    } ops[] = {{"!=", WHERE_UNEQUAL}, {"<=", WHERE_AT_MOST}, {">=", WHERE_AT_LEAST}, {"==", WHERE_EQUAL},
               {"=", WHERE_EQUAL},    {"<", WHERE_BELOW},    {">", WHERE_ABOVE}};
    char shown[64];
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (str_has_prefix(w->p, ops[i].text)) {
            w->p += strlen(ops[i].text);
            *out = ops[i].op;
            return 0;
        }
    return error_set(e, EINVAL,
                     "where: \"%s\" is not understood; expected terms such as user=ana* or gpus>=2",
                     str_printable(w->p, shown, sizeof shown));
}

static int parse_gpus(const char *text, int64_t *out) {
    char *end;
    double v = *text >= '0' && *text <= '9' ? strtod(text, &end) : -1;
    if (v < 0 || *end || v > 1e9)
        return -EINVAL;
    *out = (int64_t)(v * 1000 + 0.5);
    return 0;
}

static int parse_flag(const char *text, int64_t *out) {
    *out = streq(text, "yes") || streq(text, "true") || streq(text, "1");
    return *out || streq(text, "no") || streq(text, "false") || streq(text, "0") ? 0 : -EINVAL;
}

static int parse_number(const struct parser *w, enum where_kind kind, const char *text, int64_t *out) {
    uint64_t bytes;
    uint32_t seconds;
    int r;
    switch (kind) {
    case WHERE_NUMBER: return parse_i64(text, out);
    case WHERE_FLAG: return parse_flag(text, out);
    case WHERE_GPUS: return parse_gpus(text, out);
    case WHERE_BYTES:
        r = size_parse(text, 1, &bytes, NULL);
        *out = r < 0 ? 0 : (int64_t)bytes;
        return r;
    case WHERE_SECONDS:
    case WHERE_MILLIS:
        r = duration_parse(text, 1, &seconds, NULL);
        *out = r < 0 ? 0 : seconds == DURATION_UNLIMITED ? DURATION_LIMIT_S : seconds;
        *out *= kind == WHERE_MILLIS ? 1000 : 1;
        return r;
    case WHERE_TIME:
        return time_parse(text, w->clock->now_ms, w->clock->zone_offset_s, TIME_TODAY, out, NULL);
    default: return -EINVAL;
    }
}

static int wrong_value(const char *column, enum where_kind kind, const char *text, struct error *e) {
    static const char *const expected[] = {
        [WHERE_TEXT] = "text",
        [WHERE_NUMBER] = "a number",
        [WHERE_FLAG] = "yes or no",
        [WHERE_GPUS] = "a number such as 2 or 0.5",
        [WHERE_BYTES] = "a size such as 8G",
        [WHERE_SECONDS] = "a duration such as 90m, 8h or 1d",
        [WHERE_MILLIS] = "a duration such as 90m, 8h or 1d",
        [WHERE_TIME] = "a time such as 08:00, 2026-01-30 or now-2hours",
    };
    char shown[64];
    return error_set(e, EINVAL, "where: %s is compared with \"%s\"; expected %s", column,
                     str_printable(text, shown, sizeof shown), expected[kind]);
}

static int add_value(const struct parser *w, struct where_term *t, const char *text, struct error *e) {
    const char *name = w->columns[t->column].name;
    if (t->count == WHERE_VALUES_MAX)
        return error_set(e, E2BIG, "where: %s has more than %d alternatives", name, WHERE_VALUES_MAX);
    t->patterns[t->count] = text;
    if (t->kind != WHERE_TEXT && parse_number(w, t->kind, text, &t->numbers[t->count]) < 0)
        return wrong_value(name, t->kind, text, e);
    t->count++;
    return 0;
}

// The value up to a blank outside quotes, cut at each '|'. A backslash stays for the pattern.
static int read_values(struct parser *w, struct where_term *t, struct error *e) {
    cleanup_buf struct buf value = {0};
    bool quoted = false;
    int r = 0;
    for (; r == 0 && *w->p && (quoted || (*w->p != ' ' && *w->p != '\t')); w->p++) {
        if (*w->p == '"') {
            quoted = !quoted;
        } else if (*w->p == '|') {
            r = add_value(w, t, arena_strdup(w->a, buf_str(&value)), e);
            buf_clear(&value);
        } else {
            if (*w->p == '\\' && w->p[1]) {
                if (t->kind == WHERE_TEXT)
                    buf_addc(&value, '\\');
                w->p++;
            }
            buf_addc(&value, *w->p);
        }
    }
    if (r == 0 && quoted)
        return error_set(e, EINVAL, "where: a quote is not closed");
    return r < 0 ? r : add_value(w, t, arena_strdup(w->a, buf_str(&value)), e);
}

static int read_term(struct parser *w, struct where_term *t, struct error *e) {
    size_t n = strspn(w->p, COLUMN_LETTERS);
    const char *name = arena_strndup(w->a, w->p, n);
    char shown[64];
    int r;
    if (!n)
        return error_set(e, EINVAL,
                         "where: \"%s\" is not understood; expected terms such as user=ana* or gpus>=2",
                         str_printable(w->p, shown, sizeof shown));
    w->p += n;
    if ((r = find_column(w, name, &t->column, e)) < 0 || (r = read_op(w, &t->op, e)) < 0)
        return r;
    t->kind = w->columns[t->column].kind;
    if ((t->kind == WHERE_TEXT || t->kind == WHERE_FLAG) && t->op > WHERE_UNEQUAL)
        return error_set(e, EINVAL, "where: %s is not a number; compare it by = or !=", name);
    if ((r = read_values(w, t, e)) < 0)
        return r;
    if (t->count > 1 && t->op > WHERE_UNEQUAL)
        return error_set(e, EINVAL, "where: %s has alternatives; compare it by = or !=", name);
    return 0;
}

int where_parse(const char *text, const struct where_column *columns, uint32_t column_count,
                const struct where_clock *clock, struct arena *a, struct where *out, struct error *e) {
    struct parser w = {.p = text, .columns = columns, .column_count = column_count, .clock = clock, .a = a};
    struct where parsed = {0};
    if (strlen(text) > WHERE_BYTES_MAX)
        return error_set(e, E2BIG, "where: the filter has %zu bytes; at most %d are allowed", strlen(text),
                         WHERE_BYTES_MAX);
    for (;;) {
        w.p += strspn(w.p, " \t");
        if (!*w.p)
            break;
        if (parsed.count == WHERE_TERMS_MAX)
            return error_set(e, E2BIG, "where: more than %d terms; write fewer", WHERE_TERMS_MAX);
        int r = read_term(&w, &parsed.at[parsed.count++], e);
        if (r < 0)
            return r;
    }
    *out = parsed;
    return 0;
}

bool where_number(const struct where_term *t, int64_t value) {
    int64_t n = t->numbers[0];
    if (t->kind == WHERE_TIME && !value)  // it has not happened
        return t->op == WHERE_UNEQUAL;
    switch (t->op) {
    case WHERE_BELOW: return value < n;
    case WHERE_AT_MOST: return value <= n;
    case WHERE_ABOVE: return value > n;
    case WHERE_AT_LEAST: return value >= n;
    default: break;
    }
    bool found = false;
    for (uint32_t i = 0; i < t->count; i++)
        found |= t->numbers[i] == value;
    return found == (t->op == WHERE_EQUAL);
}

// The byte after the character at `i`.
static size_t next_char(const char *text, size_t len, size_t i) {
    do
        i++;
    while (i < len && ((unsigned char)text[i] & 0xc0) == 0x80);
    return i;
}

bool where_pattern_match(const char *pattern, const char *text, size_t len) {
    const char *star = NULL;
    size_t i = 0, retry = 0;
    while (i < len) {
        bool escaped = *pattern == '\\' && pattern[1];
        if (*pattern == '*') {
            star = pattern++;
            retry = i;
        } else if (*pattern == '?') {
            i = next_char(text, len, i);
            pattern++;
        } else if (*pattern && pattern[escaped] == text[i]) {
            i++;
            pattern += escaped + 1;
        } else if (star) {  // the last star takes one byte more
            pattern = star + 1;
            i = ++retry;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return !*pattern;
}

bool where_texts(const struct where_term *t, const char *const *texts, uint32_t count) {
    bool found = false;
    for (uint32_t k = 0; k < count && !found; k++) {
        const char *text = texts[k] ? texts[k] : "";
        size_t len = strnlen(text, WHERE_MATCHED_MAX);
        for (uint32_t i = 0; i < t->count && !found; i++)
            found = where_pattern_match(t->patterns[i], text, len);
    }
    return found == (t->op == WHERE_EQUAL);
}
