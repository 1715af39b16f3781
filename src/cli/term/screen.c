// Owns the loop of a full screen: the alternate buffer, keys, the terminal's size, and what is shown
// when the controller does not answer.
#include "cli/term/screen.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "cli/term/terminal.h"

enum { KEY_ESCAPE = 27, KEY_CTRL_C = 3, KEYS_MAX = 32 };

// Bytes of the next character or colour code, and whether it takes a column.
static size_t next_part(const char *p, bool *visible) {
    size_t n = 1;
    *visible = *p != '\033';
    if (*visible)
        while (((unsigned char)p[n] & 0xc0) == 0x80)
            n++;
    else
        while (p[n] && p[n - 1] != 'm')
            n++;
    return n;
}

static void add_line(const char *p, size_t len, int columns, struct buf *out) {
    int used = 0;
    bool visible, colour = false;
    for (size_t i = 0, n; i < len; i += n) {
        n = next_part(p + i, &visible);
        colour |= !visible;
        if (used + visible > columns)
            continue;
        used += visible;
        buf_add(out, p + i, n);
    }
    buf_addf(out, "%s\033[K\r\n", colour ? "\033[0m" : "");
}

int screen_fit(const char *text, int rows, int columns, struct buf *out) {
    int left_out = 0;
    for (const char *p = text; *p;) {
        size_t len = strcspn(p, "\n");
        if (rows-- > 0)
            add_line(p, len, columns, out);
        else
            left_out++;
        p += len + (p[len] == '\n');
    }
    return left_out;
}

static void show(const struct error *e, const struct buf *text, bool stale) {
    cleanup_buf struct buf screen = {0}, foot = {0};
    int rows, columns;
    terminal_size(&rows, &columns);
    buf_adds(&screen, "\033[H");
    int more = screen_fit(buf_str(text), rows - 1, columns, &screen);
    if (stale)
        buf_addf(&foot, "%s; trying again", e->text);
    else if (more)
        buf_addf(&foot, "%d more; q quits", more);
    else
        buf_adds(&foot, "q quits");
    const char *on = !terminal_colour() ? "" : terminal_colour_on(stale ? COLOUR_RED : COLOUR_GREY);
    buf_addf(&screen, "\033[J%s", on);
    buf_addf(&screen, "%.*s%s", columns - 1, buf_str(&foot), *on ? terminal_colour_off(COLOUR_GREY) : "");
    fwrite(buf_str(&screen), 1, screen.len, stdout);
    fflush(stdout);
}

static int open_signals(void) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGWINCH};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigaddset(&set, numbers[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

// Waits for the next time to draw; true when somebody wants to leave. An escape alone leaves, but
// not one that begins the code of an arrow key.
static bool leave(int signals, unsigned every_ms) {
    struct pollfd fds[] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = signals, .events = POLLIN}};
    char keys[KEYS_MAX];
    if (poll(fds, 2, (int)every_ms) <= 0)
        return false;
    if (fds[0].revents) {
        ssize_t n = read(STDIN_FILENO, keys, sizeof keys);
        return n <= 0 || keys[0] == 'q' || keys[0] == KEY_CTRL_C || (keys[0] == KEY_ESCAPE && n == 1);
    }
    struct signalfd_siginfo info;
    return read(signals, &info, sizeof info) > 0 && info.ssi_signo != SIGWINCH;
}

int screen_watch(struct error *e, unsigned every_ms, screen_draw_fn *draw, void *arg) {
    struct terminal_raw raw = {0};
    cleanup_buf struct buf text = {0};
    int r = draw(arg, &text);
    if (r < 0)
        return r;
    cleanup_close int signals = open_signals();
    terminal_raw_begin(&raw, STDIN_FILENO);
    fputs("\033[?1049h\033[?25l", stdout);
    fflush(stdout);
    show(e, &text, false);
    while (!leave(signals, every_ms)) {
        cleanup_buf struct buf fresh = {0};
        bool stale = draw(arg, &fresh) < 0;
        if (!stale) {
            buf_clear(&text);
            buf_add(&text, buf_str(&fresh), fresh.len);
        }
        show(e, &text, stale);
    }
    fputs("\033[?25h\033[?1049l", stdout);
    fflush(stdout);
    terminal_raw_end(&raw);
    return 0;
}
