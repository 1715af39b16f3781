// Small questions about strings, and strict conversions from text: a conversion consumes the whole
// string or fails, and never wraps around.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool streq(const char *a, const char *b);  // NULL equals only NULL
bool str_has_prefix(const char *s, const char *prefix);
bool str_empty(const char *s);             // NULL or ""
int parse_u64(const char *s, uint64_t *out);            // -EINVAL, -ERANGE
int parse_i64(const char *s, int64_t *out);
int parse_u32(const char *s, uint32_t *out);
bool str_utf8_valid(const char *s, size_t len);
// Control characters must not reach a terminal: codes below U+0020, U+007F to U+009F, line separators, and the
// marks that change the direction of text (bidi), which make a name look like another.
bool str_has_control_chars(const char *s, size_t len);
// Length in bytes of the control character at `s`; 0: there is none. Bytes that are not UTF-8 are none.
size_t str_control_char(const char *s, size_t len, uint32_t *code);
// Text made safe and short for a message: control characters become '?', cut at `max` with "...".
const char *str_printable(const char *s, char *out, size_t max);
// Edit distance for "did you mean" hints; strings over 64 bytes count as far apart.
unsigned str_edit_distance(const char *a, const char *b);
// A name is worth suggesting when its distance from `given` is below this.
unsigned str_edit_distance_near(const char *given);
