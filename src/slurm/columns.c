// Owns formats of columns.
#include "columns.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <strings.h>

#include "base/text.h"

enum { WIDTH_MAX = 100000, NAMED_WIDTH = 20 };

static const struct column *by_letter(const struct column *table, size_t count, int letter) {
    for (size_t i = 0; i < count; i++)
        if (table[i].letter == letter)
            return &table[i];
    return NULL;
}

static int read_width(const char **p) {
    int width = 0;
    for (; **p >= '0' && **p <= '9'; (*p)++)
        width = width > WIDTH_MAX ? width : width * 10 + (**p - '0');
    return width;
}

// Text that belongs to no column stands behind the last one, or before all.
static void add_text(struct arena *a, struct columns *c, const char *text, size_t len) {
    const char **end = c->at.len ? &c->at.at[c->at.len - 1].suffix : &c->prefix;
    *end = arena_printf(a, "%s%.*s", *end, (int)len, text);
}

void slurm_columns_by_letters(struct slurm *s, const struct column *table, size_t count, const char *format,
                              const char *what, struct columns *out) {
    size_t n = strcspn(format, "%");
    out->prefix = arena_strndup(&s->cli.arena, format, n);
    for (const char *p = format + n; *p;) {
        const char *from = p++;
        struct column_use u = {.right = *p == '.'};
        p += u.right;
        u.width = read_width(&p);
        if (!*p)
            break;
        if (*p == '%' && p == from + 1)  // written twice it is still one
            continue;
        u.column = by_letter(table, count, *p);
        if (u.column) {
            u.suffix = "";
            vec_push(&out->at, u);
            from = ++p;
        } else if (streq(s->program, "sinfo")) {
            fprintf(stderr, "Invalid %s format specification: %c\n", what, *p);
        } else {
            slurm_error(s, "Invalid %s format specification: %c", what, *p);
        }
        p += strcspn(p, "%");
        add_text(&s->cli.arena, out, from, (size_t)(p - from));
    }
}

void slurm_columns_by_names(struct slurm *s, const struct column *table, size_t count, const char *format,
                            const char *what, struct columns *out) {
    out->prefix = "";
    for (const char *p = format; *p;) {
        size_t n = strcspn(p, ",");
        char *item = arena_strndup(&s->cli.arena, p, n), *colon = strchr(item, ':');
        struct column_use u = {.width = NAMED_WIDTH, .suffix = ""};
        if (colon) {
            const char *rest = colon + 1;
            *colon = 0;
            if (*rest == '.') {
                u.right = true;
                rest++;
            }
            u.width = read_width(&rest);
            u.suffix = rest;
            // "name:;" or "name:\x1f": as long as it is, then that text.
            if (!u.width && !*rest)
                u.width = NAMED_WIDTH;
        }
        for (size_t i = 0; i < count && !u.column; i++)
            if (table[i].name && !strcasecmp(table[i].name, item))
                u.column = &table[i];
        if (u.column)
            vec_push(&out->at, u);
        else if (*item)
            slurm_error(s, "Invalid %s format specification: %s", what, item);
        p += n + (p[n] == ',');
    }
}

void slurm_columns_fields(struct arena *a, const struct columns *c, const char *more, const char **out) {
    cleanup_buf struct buf b = {0};
    buf_adds(&b, more);
    for (uint32_t i = 0; i < c->at.len; i++) {
        const char *fields = c->at.at[i].column->fields;
        for (const char *p = fields; p && *p;) {
            size_t n = strcspn(p, ",");
            const char *one = arena_strndup(a, p, n);
            bool there = false;
            for (const char *q = buf_str(&b); *q && !there; q += strcspn(q, ",") + (q[strcspn(q, ",")] == ','))
                there = !strncmp(q, one, n) && (q[n] == ',' || !q[n]);
            if (!there)
                buf_addf(&b, "%s%s", b.len ? "," : "", one);
            p += n + (p[n] == ',');
        }
    }
    *out = arena_strdup(a, buf_str(&b));
}

// Cuts or pads what was written from `at` on. Widths count bytes, but a character is never cut in two.
static void pad(const struct column_use *u, size_t at, struct buf *out) {
    size_t width = (size_t)u->width, len = out->len - at;
    if (!width || len == width)
        return;
    if (len > width) {
        len = width;
        while (len && ((unsigned char)out->data[at + len] & 0xc0) == 0x80)
            len--;
        out->len = at + len;
        out->data[out->len] = 0;
    }
    size_t more = width - len;
    buf_fill(out, ' ', more);
    if (u->right && more && len) {
        memmove(out->data + at + more, out->data + at, len);
        memset(out->data + at, ' ', more);
    }
}

void slurm_columns_heading(const struct columns *c, struct buf *out) {
    buf_adds(out, c->prefix);
    for (uint32_t i = 0; i < c->at.len; i++) {
        const struct column_use *u = &c->at.at[i];
        size_t at = out->len;
        buf_adds(out, u->column->heading);
        pad(u, at, out);
        buf_adds(out, u->suffix);
    }
    buf_addc(out, '\n');
}

void slurm_columns_head(const struct slurm *s, bool with_time, const struct columns *c, struct buf *out) {
    time_t now = time(NULL);
    struct tm tm;
    char text[64];
    if (s->clusters)
        buf_addf(out, "CLUSTER: %s\n", s->clusters);
    if (with_time && strftime(text, sizeof text, "%a %b %d %H:%M:%S %Y", localtime_r(&now, &tm)))
        buf_addf(out, "%s\n", text);
    slurm_columns_heading(c, out);
}

void slurm_columns_row(const struct columns *c, const void *row, struct buf *out) {
    buf_adds(out, c->prefix);
    for (uint32_t i = 0; i < c->at.len; i++) {
        const struct column_use *u = &c->at.at[i];
        size_t at = out->len;
        u->column->put(row, out);
        pad(u, at, out);
        buf_adds(out, u->suffix);
    }
    buf_addc(out, '\n');
}

void slurm_columns_done(struct columns *c) {
    vec_done(&c->at);
}
