// Owns strict text conversion.
#include "base/text.h"

#include <errno.h>
#include <string.h>

bool streq(const char *a, const char *b) {
    return a == b || (a && b && strcmp(a, b) == 0);
}

bool str_has_prefix(const char *s, const char *prefix) {
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

bool str_empty(const char *s) {
    return !s || !*s;
}

int parse_u64(const char *s, uint64_t *out) {
    uint64_t v = 0;
    if (!s || !*s)
        return -EINVAL;
    for (; *s; s++) {
        if (*s < '0' || *s > '9')
            return -EINVAL;
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, (uint64_t)(*s - '0'), &v))
            return -ERANGE;
    }
    *out = v;
    return 0;
}

int parse_i64(const char *s, int64_t *out) {
    uint64_t v;
    bool negative = s && *s == '-';
    int r = parse_u64(negative ? s + 1 : s, &v);
    if (r < 0)
        return r;
    if (v > (uint64_t)INT64_MAX + negative)
        return -ERANGE;
    *out = negative ? (int64_t)(0 - v) : (int64_t)v;
    return 0;
}

int parse_u32(const char *s, uint32_t *out) {
    uint64_t v;
    int r = parse_u64(s, &v);
    if (r < 0)
        return r;
    if (v > UINT32_MAX)
        return -ERANGE;
    *out = (uint32_t)v;
    return 0;
}

// Length of the UTF-8 sequence at s, 0 if it is not a valid one.
static size_t utf8_sequence(const unsigned char *s, size_t len) {
    size_t n = s[0] < 0x80                   ? 1
               : s[0] >= 0xc2 && s[0] < 0xe0 ? 2
               : (s[0] & 0xf0) == 0xe0       ? 3
               : s[0] >= 0xf0 && s[0] < 0xf5 ? 4
                                             : 0;
    if (!n || n > len)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
        (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    return n;
}

bool str_utf8_valid(const char *s, size_t len) {
    size_t i = 0;
    for (uint64_t word; i + 8 <= len; i += 8) {  // plain ASCII, eight at a time
        memcpy(&word, s + i, 8);
        if (word & 0x8080808080808080ULL)
            break;
    }
    for (size_t n; i < len; i += n)
        if (!(n = utf8_sequence((const unsigned char *)s + i, len - i)))
            return false;
    return true;
}

// C0 and C1 control codes, line and paragraph separators, the marks that reverse the direction of text, and characters
// that nobody sees: two names that look the same are the same.
static bool is_control(uint32_t code) {
    static const uint32_t ranges[][2] = {
        {0, 0x1f},         {0x7f, 0x9f},         // C0, DEL, C1
        {0xad, 0xad},      {0x34f, 0x34f},       // soft hyphen, combining grapheme joiner
        {0x61c, 0x61c},    {0x115f, 0x1160},     // Arabic letter mark, Hangul fillers
        {0x17b4, 0x17b5},  {0x180b, 0x180f},     // Khmer inherent vowels, Mongolian selectors
        {0x200b, 0x200f},  {0x2028, 0x202e},     // zero-width characters and marks, separators, bidi controls
        {0x2060, 0x206f},  {0x3164, 0x3164},     // word joiner, invisible operators, isolates; Hangul filler
        {0xfeff, 0xfeff},  {0xffa0, 0xffa0},     // byte order mark, halfwidth Hangul filler
        {0xfff0, 0xfffb},  {0xe0000, 0xe0fff},   // interlinear annotations; tags and variation selectors
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (code >= ranges[i][0] && code <= ranges[i][1])
            return true;
    return false;
}

size_t str_control_char(const char *s, size_t len, uint32_t *code) {
    const unsigned char *u = (const unsigned char *)s;
    size_t n = utf8_sequence(u, len);
    if (n == 1)
        *code = u[0];
    else if (n == 2)
        *code = (u[0] & 0x1fu) << 6 | (u[1] & 0x3fu);
    else if (n == 3)
        *code = (u[0] & 0x0fu) << 12 | (u[1] & 0x3fu) << 6 | (u[2] & 0x3fu);
    else if (n == 4)
        *code = (u[0] & 0x07u) << 18 | (u[1] & 0x3fu) << 12 | (u[2] & 0x3fu) << 6 | (u[3] & 0x3fu);
    else
        return 0;
    return is_control(*code) ? n : 0;
}

bool str_has_control_chars(const char *s, size_t len) {
    uint32_t code;
    for (size_t i = 0; i < len; i++)
        if (((unsigned char)s[i] < 32 || (unsigned char)s[i] >= 127) &&
            str_control_char(s + i, len - i, &code))
            return true;
    return false;
}

const char *str_printable(const char *s, char *out, size_t max) {
    size_t n = 0, i = 0, len = strlen(s);
    uint32_t code;
    if (max < 4)
        return "";
    for (size_t here; i < len; i += here) {  // whole characters only: the result is valid UTF-8 whatever `s` is
        here = utf8_sequence((const unsigned char *)s + i, len - i);
        bool bad = !here || str_control_char(s + i, len - i, &code);
        if (n + (bad ? 1 : here) > max - 4)
            break;
        if (bad)
            out[n++] = '?';
        else
            n = (size_t)(stpncpy(out + n, s + i, here) - out);
        here = here ? here : 1;
    }
    if (i < len) {
        memcpy(out + n, "...", 3);
        n += 3;
    }
    out[n] = 0;
    return out;
}

unsigned str_edit_distance(const char *a, const char *b) {
    enum { MAX = 64 };
    size_t la = strlen(a), lb = strlen(b);
    unsigned row[MAX + 1];
    if (la > MAX || lb > MAX)
        return MAX;
    for (size_t j = 0; j <= lb; j++)
        row[j] = (unsigned)j;
    for (size_t i = 1; i <= la; i++) {
        unsigned diagonal = row[0];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= lb; j++) {
            unsigned best = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[lb];
}

unsigned str_edit_distance_near(const char *given) {
    return (unsigned)strlen(given) / 4 + 2;
}
