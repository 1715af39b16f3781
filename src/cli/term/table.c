// Owns the layout of tables.
#include "cli/term/table.h"

#include <assert.h>
#include <stdarg.h>
#include <string.h>

#include "base/text.h"

// Characters that take two columns, or none, as terminals draw them.
static const struct {
    uint32_t first, last;
    uint8_t width;
} wide[] = {
    {0x300, 0x36f, 0},     {0x1100, 0x115f, 2},   {0x200b, 0x200f, 0},   {0x2e80, 0x303e, 2},   {0x3041, 0xa4cf, 2},
    {0xac00, 0xd7a3, 2},   {0xf900, 0xfaff, 2},   {0xfe00, 0xfe0f, 0},   {0xfe30, 0xfe6f, 2},   {0xff00, 0xff60, 2},
    {0xffe0, 0xffe6, 2},   {0x1f300, 0x1f64f, 2}, {0x1f680, 0x1f6ff, 2}, {0x1f900, 0x1f9ff, 2}, {0x20000, 0x3fffd, 2},
};

// Bytes and columns of the character at `s`, which is not the end.
static size_t next_char(const char *s, size_t *width) {
    unsigned char c = (unsigned char)*s;
    uint32_t code = c < 0x80 ? c : c < 0xe0 ? c & 0x1f : c < 0xf0 ? c & 0x0f : c & 0x07;
    size_t n = 1;
    for (; ((unsigned char)s[n] & 0xc0) == 0x80; n++)
        code = code << 6 | ((unsigned char)s[n] & 0x3f);
    *width = 1;
    for (size_t i = 0; code >= 0x300 && i < sizeof wide / sizeof *wide; i++)
        if (code >= wide[i].first && code <= wide[i].last)
            *width = wide[i].width;
    return n;
}

size_t table_text_width(const char *s) {
    size_t columns = 0, width;
    while (*s) {
        if ((unsigned char)*s < 0x80) {  // nearly always
            columns++;
            s++;
            continue;
        }
        s += next_char(s, &width);
        columns += width;
    }
    return columns;
}

static struct table_cell make_cell(const char *text, enum colour colour) {
    size_t len = strlen(text), width = table_text_width(text);
    return (struct table_cell){text, (uint32_t)len, (uint16_t)(width < UINT16_MAX ? width : UINT16_MAX),
                               (uint16_t)colour};
}

void table_init(struct text_table *t, struct arena *a, const struct table_column *columns, uint32_t count) {
    assert(count <= TABLE_COLUMNS_MAX);
    *t = (struct text_table){.arena = a, .columns = columns, .count = count};
    for (uint32_t c = 0; c < count; c++)
        t->widest[c] = make_cell(columns[c].title, COLOUR_NONE).width;
}

void table_done(struct text_table *t) {
    vec_done(&t->cells);
}

void table_add(struct text_table *t, const char *text, enum colour colour) {
    cleanup_buf struct buf b = {0};
    if (text && str_has_control_chars(text, strlen(text))) {  // would be obeyed by the terminal
        buf_add_visible(&b, text);
        text = arena_strndup(t->arena, buf_str(&b), b.len);
    }
    struct table_cell cell = make_cell(text ? text : "", colour);
    uint32_t column = t->cells.len % t->count;
    if (cell.width > t->widest[column])
        t->widest[column] = cell.width;
    vec_push(&t->cells, cell);
}

void table_addf(struct text_table *t, const char *fmt, ...) {
    cleanup_buf struct buf b = {0};
    va_list args;
    va_start(args, fmt);
    buf_vaddf(&b, fmt, args);
    va_end(args);
    table_add(t, arena_strndup(t->arena, buf_str(&b), b.len), COLOUR_NONE);
}

uint32_t table_rows(const struct text_table *t) {
    return t->count ? t->cells.len / t->count : 0;
}

enum { CELL_LEAST = 3 };

// Takes characters away from the columns that give way first, the widest of them first; when that is
// not enough, also from what they would like to keep.
static void shrink(const struct text_table *t, size_t *widths, size_t room) {
    size_t total = 2 * (t->count - 1);
    for (uint32_t c = 0; c < t->count; c++)
        total += widths[c];
    for (int round = 9 + 9; round >= 1; round--)
        while (total > room) {
            uint32_t widest = UINT32_MAX;
            int level = round > 9 ? round - 9 : round;
            for (uint32_t c = 0; c < t->count; c++) {
                size_t least = round > 9 && t->columns[c].least > CELL_LEAST ? t->columns[c].least : CELL_LEAST;
                if (t->columns[c].shrink == level && widths[c] > least &&
                    (widest == UINT32_MAX || widths[c] > widths[widest]))
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

// What fits into `width` columns and a mark that something was cut.
static void add_cut(struct buf *out, const char *s, size_t width) {
    size_t used = 0, columns;
    const char *p = s;
    for (size_t n; *p && (n = next_char(p, &columns), used + columns < width); p += n)
        used += columns;
    buf_add(out, s, (size_t)(p - s));
    for (; used < width; used++)
        buf_addc(out, '+');
}

static void add_cell(const struct text_table *t, uint32_t c, const struct table_cell *cell, size_t width,
                     bool colour, struct buf *out) {
    size_t w = cell->width, shown = w > width ? width : w;
    bool last = c + 1 == t->count;
    if (t->columns[c].right)
        add_spaces(out, width - shown);
    if (colour)
        buf_adds(out, terminal_colour_on((enum colour)cell->colour));
    if (w > width)
        add_cut(out, cell->text, width);
    else
        buf_add(out, cell->text, cell->len);
    if (colour)
        buf_adds(out, terminal_colour_off((enum colour)cell->colour));
    if (!last)
        add_spaces(out, (t->columns[c].right ? 0 : width - shown) + 2);
}

static void end_line(struct buf *out) {
    while (out->len && out->data[out->len - 1] == ' ')
        out->len--;
    buf_addc(out, '\n');
}

void table_print(const struct text_table *t, int width, bool heading, bool colour, struct buf *out) {
    size_t widths[TABLE_COLUMNS_MAX];
    if (!t->count)
        return;
    for (uint32_t c = 0; c < t->count; c++)
        widths[c] = t->widest[c];
    if (width > 0)
        shrink(t, widths, (size_t)width);
    if (heading) {
        for (uint32_t c = 0; c < t->count; c++) {
            struct table_cell title = make_cell(t->columns[c].title, COLOUR_BOLD);
            add_cell(t, c, &title, widths[c], colour, out);
        }
        end_line(out);
    }
    for (uint32_t i = 0; i < t->cells.len;) {
        for (uint32_t c = 0; c < t->count && i < t->cells.len; c++, i++)
            add_cell(t, c, &t->cells.at[i], widths[c], colour, out);
        end_line(out);
    }
}
