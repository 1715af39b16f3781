// A growing byte buffer. Always NUL-terminated past `len` once anything was appended, so `data`
// can be used as text. Owned by the caller: buf_done frees, buf_take hands the bytes on.
#pragma once
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf {
    char *data;
    size_t len, cap;
};

void buf_done(struct buf *b);
void buf_clear(struct buf *b);                  // length 0, memory kept
char *buf_reserve(struct buf *b, size_t more);  // room for `more` bytes past len; returns data + len
void buf_add(struct buf *b, const void *p, size_t n);
void buf_addc_slow(struct buf *b, char c);
static inline void buf_addc(struct buf *b, char c) {
    if (b->len + 1 >= b->cap) {
        buf_addc_slow(b, c);
        return;
    }
    b->data[b->len++] = c;
    b->data[b->len] = 0;
}
void buf_fill(struct buf *b, char c, size_t count);
void buf_adds(struct buf *b, const char *s);
// For terminals: control characters are written as \x1b or \u202e (see str_has_control_chars).
void buf_add_visible(struct buf *b, const char *s);
void buf_addu(struct buf *b, uint64_t v);  // decimal
void buf_addf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_vaddf(struct buf *b, const char *fmt, va_list args) __attribute__((format(printf, 2, 0)));
void buf_drop(struct buf *b, size_t n);  // removes n bytes from the front
char *buf_take(struct buf *b);           // NUL-terminated, caller frees; b is empty afterwards
const char *buf_str(const struct buf *b);  // "" when empty

#define cleanup_buf __attribute__((__cleanup__(buf_done)))
