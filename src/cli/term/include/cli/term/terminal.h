// The terminal this program talks to: width, colour, raw mode.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <termios.h>

#include "base/buf.h"

// Below NARROW tables leave out columns; below WIDE they abbreviate.
enum { TERMINAL_NARROW = 72, TERMINAL_WIDE = 120, TERMINAL_WIDTH_DEFAULT = 80, TERMINAL_WIDTH_MAX = 1000 };

enum colour {
    COLOUR_NONE,
    COLOUR_GREEN,
    COLOUR_YELLOW,
    COLOUR_RED,
    COLOUR_BLUE,
    COLOUR_GREY,
    COLOUR_BOLD,
    COLOUR_CYAN
};

int terminal_width(void);  // of standard output; $COLUMNS; else 80
int terminal_table_width(void);  // the same; 0, no limit, where a program reads and COLUMNS is not set
void terminal_size(int *rows, int *columns);
bool terminal_colour(void);  // standard output is a terminal that shows colour, and NO_COLOR is not set
const char *terminal_colour_on(enum colour c);
const char *terminal_colour_off(enum colour c);

struct terminal_raw {
    bool active;
    int fd;
    struct termios before;
};
int terminal_raw_begin(struct terminal_raw *t, int fd);
void terminal_raw_end(struct terminal_raw *t);

// Appends `text` and a newline, broken at blanks into lines of at most 80 columns. The first line begins at column
// `at` (already written by the caller), the others are indented by `indent`.
void terminal_wrap(struct buf *out, const char *text, size_t at, size_t indent);
