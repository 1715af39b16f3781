// Owns the layout of tables.
#include "cli/table.h"

#include <assert.h>
#include <stdarg.h>
#include <string.h>

size_t text_width(const char *s) {
    size_t n = 0;
    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

void table_init(struct table *t, struct arena *a, const struct table_column *columns, uint32_t count) {
    assert(count <= TABLE_COLUMNS_MAX);
    *t = (struct table){.arena = a, .columns = columns, .count = count};
}

void table_done(struct table *t) {
    vec_done(&t->cells);
}

void table_add(struct table *t, const char *text, enum colour colour) {
    vec_push(&t->cells, (struct table_cell){text ? text : "", colour});
}

void table_addf(struct table *t, const char *fmt, ...) {
    cleanup_buf struct buf b = {0};
    va_list args;
    va_start(args, fmt);
    buf_vaddf(&b, fmt, args);
    va_end(args);
    table_add(t, arena_strndup(t->arena, buf_str(&b), b.len), COLOUR_NONE);
}

uint32_t table_rows(const struct table *t) {
    return t->count ? t->cells.len / t->count : 0;
}

static void natural_widths(const struct table *t, size_t *widths) {
    for (uint32_t c = 0; c < t->count; c++)
        widths[c] = text_width(t->columns[c].title);
    for (uint32_t i = 0; i < t->cells.len; i++) {
        size_t w = text_width(t->cells.at[i].text);
        if (w > widths[i % t->count])
            widths[i % t->count] = w;
    }
}

// Takes characters away from the columns that give way first, the widest of them first.
static void shrink(const struct table *t, size_t *widths, size_t room) {
    size_t total = 2 * (t->count - 1);
    for (uint32_t c = 0; c < t->count; c++)
        total += widths[c];
    for (int level = 9; level >= 1; level--)
        while (total > room) {
            uint32_t widest = UINT32_MAX;
            for (uint32_t c = 0; c < t->count; c++) {
                size_t least = t->columns[c].least > 3 ? t->columns[c].least : 3;
                if (t->columns[c].shrink == level && widths[c] > least && (widest == UINT32_MAX || widths[c] > widths[widest]))
                    widest = c;
            }
            if (widest == UINT32_MAX)
                break;
            widths[widest]--;
            total--;
        }
}

static void add_spaces(struct buf *out, size_t n) {
    memset(buf_reserve(out, n), ' ', n);
    out->len += n;
    out->data[out->len] = 0;
}

// The first `width` characters; the last one becomes a mark when something was cut.
static void add_cut(struct buf *out, const char *s, size_t width) {
    const char *p = s;
    for (size_t n = 0; n + 1 < width; n++)
        for (p++; ((unsigned char)*p & 0xc0) == 0x80; p++)
            ;
    buf_add(out, s, (size_t)(p - s));
    buf_adds(out, "+");
}

static void add_cell(const struct table *t, uint32_t c, const struct table_cell *cell, size_t width, bool colour, struct buf *out) {
    size_t w = text_width(cell->text), shown = w > width ? width : w;
    bool last = c + 1 == t->count;
    if (t->columns[c].right)
        add_spaces(out, width - shown);
    if (colour)
        buf_adds(out, colour_on(cell->colour));
    if (w > width)
        add_cut(out, cell->text, width);
    else
        buf_adds(out, cell->text);
    if (colour)
        buf_adds(out, colour_off(cell->colour));
    if (!last)
        add_spaces(out, (t->columns[c].right ? 0 : width - shown) + 2);
}

static void end_line(struct buf *out) {
    while (out->len && out->data[out->len - 1] == ' ')
        out->len--;
    buf_addc(out, '\n');
}

void table_print(const struct table *t, int width, bool heading, bool colour, struct buf *out) {
    size_t widths[TABLE_COLUMNS_MAX];
    if (!t->count)
        return;
    natural_widths(t, widths);
    if (width > 0)
        shrink(t, widths, (size_t)width);
    if (heading) {
        for (uint32_t c = 0; c < t->count; c++)
            add_cell(t, c, &(struct table_cell){t->columns[c].title, COLOUR_BOLD}, widths[c], colour, out);
        end_line(out);
    }
    for (uint32_t i = 0; i < t->cells.len; i++) {
        add_cell(t, i % t->count, &t->cells.at[i], widths[i % t->count], colour, out);
        if (i % t->count == t->count - 1)
            end_line(out);
    }
}
