// Reads trace files: lines of bounded length, checked numbers, errors that name file, line and field.
#include <errno.h>
#include <string.h>
#include <zlib.h>

#include "base/text.h"
#include "sim/trace.h"

enum { GZ_BUFFER = 1 << 18 };

struct input {
    gzFile file;
    char *path;
    uint32_t number;
    char *buffer;
    uint32_t len, at;
    char line[TRACE_LINE_MAX];
};

struct input *trace_input_open(const char *path, struct error *err) {
    gzFile f = gzopen(path, "rb");
    if (!f) {
        error_set(err, errno ? errno : ENOMEM, "%s: %s", path, strerror(errno ? errno : ENOMEM));
        return NULL;
    }
    struct input *in = xcalloc(1, sizeof *in);
    in->file = f;
    in->path = xstrdup(path);
    in->buffer = xmalloc(GZ_BUFFER);
    return in;
}

void trace_input_close(struct input *in) {
    if (!in)
        return;
    gzclose(in->file);
    free(in->path);
    free(in->buffer);
    free(in);
}

uint32_t trace_input_number(const struct input *in) {
    return in->number;
}

static int refill(struct input *in, struct error *err) {
    int n = gzread(in->file, in->buffer, GZ_BUFFER);
    if (n < 0)
        return error_set(err, EIO, "%s: cannot be read: %s", in->path, gzerror(in->file, &n));
    in->at = 0;
    in->len = (uint32_t)n;
    return n > 0;
}

int trace_input_line(struct input *in, char **line, struct error *err) {
    uint32_t used = 0;
    bool any = false, done = false;
    while (!done) {
        if (in->at == in->len) {
            int r = refill(in, err);
            if (r < 0)
                return r;
            if (!r && !any)
                return 0;
            if (!r)
                break;
        }
        char *from = in->buffer + in->at, *end = memchr(from, '\n', in->len - in->at);
        uint32_t n = end ? (uint32_t)(end - from) : in->len - in->at;
        if (used + n >= TRACE_LINE_MAX)
            return error_set(err, EINVAL, "%s:%u: the line is longer than %d bytes", in->path, in->number + 1,
                             TRACE_LINE_MAX);
        memcpy(in->line + used, from, n);
        used += n;
        in->at += n + (end ? 1 : 0);
        any = true;
        done = end != NULL;
    }
    if (used && in->line[used - 1] == '\r')
        used--;
    in->line[used] = 0;
    in->number++;
    *line = in->line;
    return 1;
}

uint32_t trace_input_split(char *line, char separator, char **fields, uint32_t max) {
    uint32_t n = 0;
    if (separator == ' ') {
        for (char *s = line; n < max;) {
            s += strspn(s, " \t");
            if (!*s)
                break;
            fields[n++] = s;
            s += strcspn(s, " \t");
            if (*s)
                *s++ = 0;
        }
        return n;
    }
    for (char *s = line; s && n < max;) {
        fields[n++] = s;
        s = strchr(s, separator);
        if (s)
            *s++ = 0;
    }
    return n;
}

int trace_input_int(const struct input *in, const char *name, const char *text, int64_t *out, struct error *err) {
    char digits[32], shown[48];
    size_t len = strcspn(text, ".");
    const char *rest = text + len;
    bool fine = len < sizeof digits && (!*rest || strspn(rest + 1, "0123456789") == strlen(rest + 1));
    if (fine) {
        memcpy(digits, text, len);
        digits[len] = 0;
        fine = parse_i64(digits, out) == 0;
    }
    if (!fine)
        return error_set(err, EINVAL, "%s:%u: %s is '%s': a number was expected", in->path, in->number, name,
                         str_printable(text, shown, sizeof shown));
    return 0;
}
