// Tables for people: columns as wide as needed, shortened where the line would be longer than the
// terminal. Cells are UTF-8; widths are columns of a terminal.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/vec.h"
#include "cli/term/terminal.h"

enum { TABLE_COLUMNS_MAX = 64 };

struct table_column {
    const char *title;
    bool right;      // numbers
    uint8_t shrink;  // 0: never shortened; columns of a higher number give way first
    uint8_t least;   // not shortened below this
};

struct table_cell {
    const char *text;
    uint32_t len;    // bytes
    uint16_t width;  // columns
    uint16_t colour;
};

struct text_table {
    struct arena *arena;
    const struct table_column *columns;
    uint32_t count;
    VEC(struct table_cell) cells;
    uint16_t widest[TABLE_COLUMNS_MAX];
};

void table_init(struct text_table *t, struct arena *a, const struct table_column *columns, uint32_t count);
void table_done(struct text_table *t);
// Cells row by row. The text is kept, not copied.
void table_add(struct text_table *t, const char *text, enum colour colour);
void table_addf(struct text_table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
uint32_t table_rows(const struct text_table *t);
// width 0: nothing is shortened.
void table_print(const struct text_table *t, int width, bool heading, bool colour, struct buf *out);
size_t table_text_width(const char *s);  // in columns of a terminal
