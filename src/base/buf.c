// Owns growth: capacity doubles, so appending is linear overall.
#include "base/buf.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/text.h"

void buf_done(struct buf *b) {
    free(b->data);
    *b = (struct buf){0};
}

void buf_clear(struct buf *b) {
    b->len = 0;
    if (b->data)
        b->data[0] = 0;
}

char *buf_reserve(struct buf *b, size_t more) {
    size_t need = b->len + more + 1;
    assert(need > more);
    if (need > b->cap) {
        size_t cap = b->cap ? b->cap : 64;
        while (cap < need)
            cap *= 2;
        b->data = xrealloc(b->data, cap);
        b->cap = cap;
    }
    return b->data + b->len;
}

void buf_add(struct buf *b, const void *p, size_t n) {
    char *at = buf_reserve(b, n);
    if (n)
        memcpy(at, p, n);
    b->len += n;
    b->data[b->len] = 0;
}

void buf_addc_slow(struct buf *b, char c) {
    buf_add(b, &c, 1);
}

void buf_fill(struct buf *b, char c, size_t count) {
    memset(buf_reserve(b, count), c, count);
    b->len += count;
    b->data[b->len] = 0;
}

void buf_adds(struct buf *b, const char *s) {
    buf_add(b, s, strlen(s));
}

void buf_addu(struct buf *b, uint64_t v) {
    char digits[20], *p = digits + sizeof digits;
    do {
        *--p = (char)('0' + v % 10);
        v /= 10;
    } while (v);
    buf_add(b, p, (size_t)(digits + sizeof digits - p));
}

void buf_vaddf(struct buf *b, const char *fmt, va_list args) {
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    assert(n >= 0);
    buf_reserve(b, (size_t)n);
    vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
    va_end(again);
    b->len += (size_t)n;
}

void buf_add_visible(struct buf *b, const char *s) {
    uint32_t code;
    for (size_t len = strlen(s), n; len; s += n, len -= n) {
        n = str_control_char(s, len, &code);
        if (n)
            buf_addf(b, code < 0x80 ? "\\x%02x" : "\\u%04x", code);
        else
            buf_add(b, s, n = 1);
    }
}

void buf_addf(struct buf *b, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    buf_vaddf(b, fmt, args);
    va_end(args);
}

void buf_drop(struct buf *b, size_t n) {
    assert(n <= b->len);
    if (!n)
        return;
    memmove(b->data, b->data + n, b->len - n + 1);
    b->len -= n;
}

char *buf_take(struct buf *b) {
    char *out = b->data ? b->data : xstrdup("");
    *b = (struct buf){0};
    return out;
}

const char *buf_str(const struct buf *b) {
    return b->data ? b->data : "";
}
