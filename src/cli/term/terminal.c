// Owns what is known and changed about the terminal.
#include "cli/term/terminal.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/text.h"

void terminal_size(int *rows, int *columns) {
    struct winsize w;
    *rows = 24;
    *columns = TERMINAL_WIDTH_DEFAULT;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 || ioctl(STDIN_FILENO, TIOCGWINSZ, &w) == 0) {
        if (w.ws_col)
            *columns = w.ws_col;
        if (w.ws_row)
            *rows = w.ws_row;
    }
}

int terminal_width(void) {
    uint32_t v;
    const char *columns = getenv("COLUMNS");
    int rows, width = TERMINAL_WIDTH_DEFAULT;
    if (isatty(STDOUT_FILENO))
        terminal_size(&rows, &width);
    else if (columns && parse_u32(columns, &v) == 0 && v >= 20)
        width = v > TERMINAL_WIDTH_MAX ? TERMINAL_WIDTH_MAX : (int)v;
    return width < 20 ? TERMINAL_WIDTH_DEFAULT : width > TERMINAL_WIDTH_MAX ? TERMINAL_WIDTH_MAX : width;
}

int terminal_table_width(void) {
    return isatty(STDOUT_FILENO) || !str_empty(getenv("COLUMNS")) ? terminal_width() : 0;
}

bool terminal_colour(void) {
    const char *term = getenv("TERM");
    return isatty(STDOUT_FILENO) && str_empty(getenv("NO_COLOR")) && term && !streq(term, "dumb");
}

const char *terminal_colour_on(enum colour c) {
    static const char *const codes[] = {"",         "\033[32m", "\033[33m", "\033[31m",
                                        "\033[34m", "\033[90m", "\033[1m",  "\033[36m"};
    return codes[c];
}

const char *terminal_colour_off(enum colour c) {
    return c == COLOUR_NONE ? "" : "\033[0m";
}

int terminal_raw_begin(struct terminal_raw *t, int fd) {
    struct termios raw;
    t->fd = fd;
    if (tcgetattr(fd, &t->before) < 0)
        return -errno;
    raw = t->before;
    cfmakeraw(&raw);
    if (tcsetattr(fd, TCSANOW, &raw) < 0)
        return -errno;
    t->active = true;
    return 0;
}

void terminal_raw_end(struct terminal_raw *t) {
    if (t->active)
        tcsetattr(t->fd, TCSANOW, &t->before);
    t->active = false;
}

void terminal_wrap(struct buf *out, const char *text, size_t at, size_t indent) {
    // Long lines are hard to read, so a wide terminal changes nothing.
    size_t column = at, width = isatty(STDOUT_FILENO) ? (size_t)terminal_width() : TERMINAL_WIDTH_DEFAULT;
    bool first = true;
    if (width > TERMINAL_WIDTH_DEFAULT)
        width = TERMINAL_WIDTH_DEFAULT;
    for (const char *p = text; *p;) {
        if (*p == '\n') {
            buf_addf(out, "\n%*s", (int)indent, "");
            column = indent;
            first = true;
            p++;
            continue;
        }
        size_t len = strcspn(p, " \n");
        if (!first && column + 1 + len > width) {
            buf_addf(out, "\n%*s", (int)indent, "");
            column = indent;
            first = true;
        }
        if (!first) {
            buf_addc(out, ' ');
            column++;
        }
        buf_add(out, p, len);
        column += len;
        first = false;
        p += len;
        while (*p == ' ')
            p++;
    }
    buf_addc(out, '\n');
}
