// Owns the expansion of output path patterns.
#include "model/pattern.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

static void add_number(struct buf *out, uint64_t v, int width) {
    buf_addf(out, "%0*llu", width, (unsigned long long)v);
}

static void add_name(struct buf *out, const char *s) {
    for (; s && *s; s++)
        buf_addc(out, *s == '/' ? '_' : *s);
}

// False for an unknown letter.
static bool add_value(struct buf *out, char letter, int width, const struct pattern_values *v) {
    switch (letter) {
    case '%': buf_addc(out, '%'); return true;
    case 'j': add_number(out, v->job, width); return true;
    case 'A': add_number(out, v->array ? v->array : v->job, width); return true;
    case 'a': add_number(out, v->array_index, width); return true;
    case 'b': add_number(out, v->array_index % 10, width); return true;
    case 'n': add_number(out, v->node_index, width); return true;
    case 't': add_number(out, v->task, width); return true;
    case 's': add_number(out, v->step, width); return true;
    case 'J':
        add_number(out, v->job, width);
        buf_addc(out, '.');
        buf_addu(out, v->step);
        return true;
    case 'x': add_name(out, v->name); return true;
    case 'u': add_name(out, v->user); return true;
    case 'N': add_name(out, v->node); return true;
    default: return false;
    }
}

static int expand(const char *pattern, const struct pattern_values *v, struct buf *out, struct error *e) {
    char shown[64];
    for (const char *p = pattern; *p; p++) {
        if (*p != '%') {
            buf_addc(out, *p);
            continue;
        }
        int width = 0;
        for (p++; *p >= '0' && *p <= '9'; p++)
            width = width > PATTERN_WIDTH_MAX ? width : width * 10 + (*p - '0');
        if (width > PATTERN_WIDTH_MAX)
            return error_set(e, EINVAL, "path \"%s\" pads a number to more than %d digits",
                             str_printable(pattern, shown, sizeof shown), PATTERN_WIDTH_MAX);
        if (!*p || !add_value(out, *p, width, v))
            return error_set(e, EINVAL,
                             "path \"%s\" holds %%%.1s, which is not known; use %%j %%x %%u %%A %%a %%b %%N "
                             "%%n %%t %%s %%J, or %%%% "
                             "for a percent sign",
                             str_printable(pattern, shown, sizeof shown),
                             *p && (unsigned char)*p < 127 ? p : "");
    }
    return 0;
}

int pattern_check(const char *pattern, struct error *e) {
    static const struct pattern_values none;
    char shown[64];
    cleanup_buf struct buf scratch = {0};
    size_t len = pattern ? strlen(pattern) : 0;
    if (!len)
        return error_set(e, EINVAL, "the path is empty; name a file, for example out-%%j.txt");
    if (len > PATTERN_PATH_MAX || !str_utf8_valid(pattern, len) || str_has_control_chars(pattern, len))
        return error_set(e, EINVAL,
                         "path \"%s\" is longer than %d bytes, not UTF-8, or holds control characters",
                         str_printable(pattern, shown, sizeof shown), PATTERN_PATH_MAX);
    return expand(pattern, &none, &scratch, e);
}

int pattern_expand(const char *pattern, const char *workdir, const struct pattern_values *v, struct buf *out,
                   struct error *e) {
    cleanup_buf struct buf path = {0};
    char shown[64];
    int r = pattern_check(pattern, e);
    if (r < 0)
        return r;
    if (*pattern != '/') {
        if (str_empty(workdir) || *workdir != '/')
            return error_set(
                e, EINVAL, "path \"%s\" is relative and there is no working directory; give an absolute path",
                str_printable(pattern, shown, sizeof shown));
        buf_adds(&path, workdir);
        if (workdir[strlen(workdir) - 1] != '/')
            buf_addc(&path, '/');
    }
    r = expand(pattern, v, &path, e);
    if (r < 0)
        return r;
    if (path.len > PATTERN_PATH_MAX)
        return error_set(e, ENAMETOOLONG, "path \"%s\" becomes longer than %d bytes",
                         str_printable(pattern, shown, sizeof shown), PATTERN_PATH_MAX);
    buf_add(out, path.data, path.len);
    return 0;
}
