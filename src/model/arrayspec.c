// Owns the text form of array indices. A set of indices is kept as a bitmap while it is read, so
// overlapping parts cannot make an element appear twice.
#include "model/arrayspec.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "base/vec.h"

static int spec_error(const char *text, struct error *e) {
    char shown[64];
    return error_set(e, EINVAL, "\"%s\" is not an array; write indices such as 0-99, 1,3,5-9 or 0-100:10%%4",
                     str_printable(text, shown, sizeof shown));
}

static int index_error(const char *text, struct error *e) {
    char shown[64];
    return error_set(e, ERANGE, "array \"%s\" goes beyond the largest index, %d",
                     str_printable(text, shown, sizeof shown), ARRAY_INDEX_MAX);
}

// 0, -EINVAL (no number), -ERANGE
static int take_index(const char **p, uint32_t *out) {
    uint64_t v = 0;
    const char *start = *p;
    bool large = false;
    for (; **p >= '0' && **p <= '9'; (*p)++) {
        v = v * 10 + (uint64_t)(**p - '0');
        large = large || v > ARRAY_INDEX_MAX;
        v = large ? 0 : v;
    }
    *out = (uint32_t)v;
    return *p == start ? -EINVAL : large ? -ERANGE : 0;
}

static int take_range(const char **p, struct array_range *r) {
    int c = take_index(p, &r->first);
    r->last = r->first;
    r->step = 1;
    if (c == 0 && **p == '-') {
        (*p)++;
        c = take_index(p, &r->last);
        if (c == 0 && **p == ':') {
            (*p)++;
            c = take_index(p, &r->step);
        }
    }
    if (c == 0 && (r->last < r->first || !r->step))
        return -EINVAL;
    return c;
}

// The longest run of constant step from position i of ascending indices.
static uint32_t run_end(const uint32_t *v, uint32_t count, uint32_t i) {
    uint32_t end = i + 1;
    if (end >= count)
        return end;
    uint32_t step = v[i + 1] - v[i];
    while (end < count && v[end] - v[end - 1] == step)
        end++;
    return step > 1 && end - i < 3 ? i + 1 : end;  // two distant indices are not worth a range
}

static struct array_range run_range(const uint32_t *v, uint32_t i, uint32_t end) {
    return (struct array_range){v[i], v[end - 1], end - i > 1 ? v[i + 1] - v[i] : 1};
}

static int ranges_of_bitmap(const uint64_t *bits, uint32_t words, struct arena *a, struct array_spec *out) {
    uint32_t n = 0;
    uint32_t *indices = xcalloc(out->elements, sizeof *indices);
    for (uint32_t w = 0; w < words; w++)
        for (uint64_t b = bits[w]; b; b &= b - 1)
            indices[n++] = w * 64 + (uint32_t)__builtin_ctzll(b);
    VEC(struct array_range) ranges = {0};
    for (uint32_t i = 0; i < n;) {
        uint32_t end = run_end(indices, n, i);
        vec_push(&ranges, run_range(indices, i, end));
        i = end;
    }
    out->at = arena_memdup(a, ranges.at, ranges.len * sizeof *ranges.at);
    out->len = ranges.len;
    vec_done(&ranges);
    free(indices);
    return 0;
}

int array_parse(const char *text, struct arena *a, struct array_spec *out, struct error *e) {
    enum { WORDS = ARRAY_INDEX_MAX / 64 + 1 };
    struct array_spec s = {0};
    char shown[64];
    if (str_empty(text) || strlen(text) > ARRAY_TEXT_MAX)
        return spec_error(text ? text : "", e);
    cleanup_free uint64_t *bits = xcalloc(WORDS, sizeof *bits);
    const char *p = text;
    uint64_t named = 0;
    uint32_t highest = 0;
    for (;;) {
        struct array_range r;
        int c = take_range(&p, &r);
        if (c < 0)
            return c == -ERANGE ? index_error(text, e) : spec_error(text, e);
        named += (r.last - r.first) / r.step + 1;
        if (named >
            2 * ARRAY_ELEMENTS_MAX)  // else a short text could name millions of indices thousands of times
            return error_set(
                e, ERANGE, "array \"%s\" names more than %d indices; at most %d elements are allowed",
                str_printable(text, shown, sizeof shown), 2 * ARRAY_ELEMENTS_MAX, ARRAY_ELEMENTS_MAX);
        highest = r.last > highest ? r.last : highest;
        for (uint64_t i = r.first; i <= r.last; i += r.step) {
            uint64_t bit = 1ull << (i % 64);
            s.elements += !(bits[i / 64] & bit);
            bits[i / 64] |= bit;
        }
        if (*p != ',')
            break;
        p++;
    }
    if (*p == '%') {
        p++;
        int c = take_index(&p, &s.limit);
        if (c == -EINVAL || (c == 0 && !s.limit))
            return error_set(e, EINVAL,
                             "array \"%s\": after %% give how many elements may run at once, at least 1",
                             str_printable(text, shown, sizeof shown));
        if (c < 0)
            return index_error(text, e);
    }
    if (*p)
        return spec_error(text, e);
    if (s.elements > ARRAY_ELEMENTS_MAX)
        return error_set(e, ERANGE, "array \"%s\" has %llu elements; at most %d are allowed",
                         str_printable(text, shown, sizeof shown), (unsigned long long)s.elements,
                         ARRAY_ELEMENTS_MAX);
    ranges_of_bitmap(bits, highest / 64 + 1, a, &s);
    *out = s;
    return 0;
}

static void format_range(const struct array_range *r, struct buf *out) {
    buf_addu(out, r->first);
    if (r->last == r->first)
        return;
    buf_addc(out, '-');
    buf_addu(out, r->last);
    if (r->step > 1) {
        buf_addc(out, ':');
        buf_addu(out, r->step);
    }
}

static void format_limit(uint32_t limit, struct buf *out) {
    if (limit) {
        buf_addc(out, '%');
        buf_addu(out, limit);
    }
}

void array_fold(const uint32_t *indices, uint32_t count, uint32_t limit, struct buf *out) {
    for (uint32_t i = 0; i < count;) {
        uint32_t end = run_end(indices, count, i);
        struct array_range r = run_range(indices, i, end);
        if (i)
            buf_addc(out, ',');
        format_range(&r, out);
        i = end;
    }
    format_limit(limit, out);
}

void array_ranges_format(const struct array_range *ranges, uint32_t count, uint32_t limit, struct buf *out) {
    for (uint32_t i = 0; i < count; i++) {
        if (i)
            buf_addc(out, ',');
        format_range(&ranges[i], out);
    }
    format_limit(limit, out);
}
