// Owns the loop between standard input and output, signals, and a job's streams.
#include "cli/client/session.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/text.h"
#include "base/vec.h"
#include "cli/client/job_wait.h"
#include "cli/term/terminal.h"

enum {
    CHUNK = 64 * 1024,
    INPUT_WINDOW = 256 * 1024,
    REATTACH_MS = 60 * 1000,
    REATTACH_PAUSE_US = 200 * 1000,
    PENDING_NOTE_MS = 1000,
    NODES_MAX = 1 << 20,
    PART_OF_LINE_MS = 200
};

// What came from one node: bytes of each channel, those to leave out after attaching again, and the
// beginning of a line whose end has not come.
struct origin {
    uint64_t shown[3], skip[3];
    struct buf line[3];
};

struct session_live {
    struct client_session *session;
    struct client *client;
    struct http_client *http;
    struct terminal_raw raw;
    int signals;
    bool input_open, done, told_waiting, running;
    bool heard;  // anything came before the final state
    int interrupts;
    int exit_status;
    int64_t job, began_ms;
    int64_t lost_ms;  // since when nothing came; 0: it is well
    uint64_t window;  // input that may be sent before the job takes some
    uint64_t sent, left;  // bytes of input, and those of them that have left for good
    struct buf kept;      // those in between: sent again after attaching again
    bool ended, locating; // the end was sent; nothing is before it is known where to go on
    VEC(struct origin) origins;  // by the node's place in the job
    bool lines;           // several nodes: only whole lines are shown, so that they do not mix
    char reason[64];
};

void client_session_json_terminal(struct json_writer *w) {
    int rows, columns;
    terminal_size(&rows, &columns);
    json_kv_i64(w, "rows", rows);
    json_kv_i64(w, "columns", columns);
}

static int write_all(int fd, const char *p, size_t n) {
    while (n) {
        ssize_t put = write(fd, p, n);
        if (put < 0 && errno == EAGAIN) {
            struct pollfd w = {.fd = fd, .events = POLLOUT};
            poll(&w, 1, -1);
            continue;
        }
        if (put < 0 && errno != EINTR)
            return -errno;
        if (put > 0) {
            p += put;
            n -= (size_t)put;
        }
    }
    return 0;
}

static int send_text(struct session_live *l, const char *text) {
    return http_client_ws_send(l->http, WS_TEXT, text, strlen(text));
}

static int send_size(struct session_live *l) {
    char text[64];
    int rows, columns;
    terminal_size(&rows, &columns);
    snprintf(text, sizeof text, "{\"resize\":[%d,%d]}", rows, columns);
    return send_text(l, text);
}

// Nobody reads any more: the job is told to stop, as a pipe would.
static int show(struct session_live *l, int fd, const char *data, size_t len) {
    int r = write_all(fd, data, len);
    return r == -EPIPE ? send_text(l, "{\"signal\":13}") : r;
}

// Whole lines; one that is too long, or that has waited, goes as it is.
static int show_lines(struct session_live *l, struct origin *o, int fd, const char *data, size_t len) {
    const char *end = memrchr(data, '\n', len);
    struct buf *line = &o->line[fd];
    size_t whole = end ? (size_t)(end - data) + 1 : line->len + len > CHUNK ? len : 0;
    int r = 0;
    if (whole && line->len) {
        r = show(l, fd, line->data, line->len);
        buf_clear(line);
    }
    if (r == 0 && whole)
        r = show(l, fd, data, whole);
    buf_add(line, data + whole, len - whole);
    return r;
}

static bool parts_of_lines(struct session_live *l, bool put) {
    bool any = false;
    for (uint32_t i = 0; i < l->origins.len; i++)
        for (int fd = 1; fd <= 2; fd++) {
            struct buf *line = &l->origins.at[i].line[fd];
            any |= line->len > 0;
            if (put && line->len)
                show(l, fd, line->data, line->len);
            if (put)
                buf_clear(line);
        }
    return any;
}

static struct origin *origin_of(struct session_live *l, uint32_t node) {
    while (l->origins.len <= node)
        vec_push(&l->origins, (struct origin){0});
    return &l->origins.at[node];
}

// Channels 1 and 2 are output and error of the first node; 3 and 4 name another.
static int take_output(struct session_live *l, const char *data, size_t len) {
    uint32_t node = 0;
    if (len < 1 || data[0] < 1 || data[0] > 4)
        return 0;
    int fd = data[0] > 2 ? data[0] - 2 : data[0];
    size_t head = data[0] > 2 ? 5 : 1;
    if (len < head)
        return 0;
    for (int i = 0; head > 1 && i < 4; i++)
        node |= (uint32_t)(unsigned char)data[1 + i] << (8 * i);
    if (node >= NODES_MAX)
        return error_set(&l->session->cli->error, EPROTO,
                         "the controller sent a message that this version does not understand");
    data += head;
    len -= head;
    l->lost_ms = 0;
    l->running = true;
    struct origin *o = origin_of(l, node);
    size_t skip = o->skip[fd] < len ? (size_t)o->skip[fd] : len;
    o->skip[fd] -= skip;
    o->shown[fd] += len - skip;
    return l->lines ? show_lines(l, o, fd, data + skip, len - skip) : show(l, fd, data + skip, len - skip);
}

static bool final_state(const char *state) {
    static const char *const live[] = {"PENDING", "STARTING", "RUNNING", "SUSPENDED", "COMPLETING"};
    for (size_t i = 0; i < sizeof live / sizeof *live; i++)
        if (streq(state, live[i]))
            return false;
    return true;
}

static int send_input(struct session_live *l, const char *data, size_t len) {
    static char piece[CHUNK + 1];
    assert(len <= CHUNK);
    memcpy(piece + 1, data, len);
    return http_client_ws_send(l->http, WS_BINARY, piece, len + 1);
}

static void input_left(struct session_live *l, uint64_t bytes) {
    size_t gone = bytes < l->kept.len ? (size_t)bytes : l->kept.len;
    buf_drop(&l->kept, gone);
    l->left += gone;
    l->window = INPUT_WINDOW - l->kept.len;
}

// After attaching again: what the job's nodes have not had is sent once more.
static int take_position(struct session_live *l, const struct json *j) {
    uint64_t at = (uint64_t)json_i64(j, "input_at", 0), left = (uint64_t)json_i64(j, "input_left", 0);
    int r = 0;
    if (!l->locating)
        return 0;
    l->locating = false;
    if (json_true(j, "input_closed")) {
        l->input_open = false;
        return 0;
    }
    if (at < l->left || at > l->sent)
        at = l->sent;  // somebody else has fed it too: nothing is known, nothing is repeated
    if (left > l->left)
        input_left(l, left - l->left);
    for (size_t from = (size_t)(at - l->left); r == 0 && from < l->kept.len;) {
        size_t n = l->kept.len - from < CHUNK ? l->kept.len - from : CHUNK;
        r = send_input(l, l->kept.data + from, n);
        from += n;
    }
    return r == 0 && l->ended ? send_input(l, "", 0) : r;
}

static void take_state(struct session_live *l, const struct json *j, const char *state) {
    const char *reason = json_str(j, "reason");
    if (reason)
        snprintf(l->reason, sizeof l->reason, "%.60s", reason);
    l->running = l->running || !streq(state, "PENDING");
    if (!final_state(state))
        return;
    l->exit_status = client_job_exit_status(j);
    l->done = true;
    parts_of_lines(l, true);
    if (!l->session->first && !l->heard) {
        cli_note("job %lld has already ended (%s); to see its output: acequia logs %lld", (long long)l->job, state,
                 (long long)l->job);
        return;
    }
    bool plain = streq(state, "COMPLETED") || (streq(state, "FAILED") && !json_i64(j, "exit_signal", 0));
    if (!plain || !str_empty(reason) || (l->exit_status && !json_i64(j, "exit_code", 0)))
        cli_note("job %lld: %s%s%s", (long long)l->job, state, str_empty(reason) ? "" : ", ", reason ? reason : "");
}

static int take_text(struct session_live *l, const char *data, size_t len) {
    cleanup_arena struct arena a = {0};
    struct json *j;
    if (json_parse(data, len, &a, &j, NULL) < 0 || j->type != JSON_OBJECT)
        return error_set(&l->session->cli->error, EPROTO,
                         "the controller sent a message that this version does not understand");
    const struct json *error = json_get(j, "error");
    if (error) {
        if (l->session->job && l->job && error->type == JSON_OBJECT && streq(json_str(error, "code"), "EAGAIN"))
            return -EPIPE;  // its node is away: attach again
        const char *message = error->type == JSON_OBJECT   ? json_str(error, "message")
                              : error->type == JSON_STRING ? error->s
                                                           : NULL;
        int code = error->type == JSON_OBJECT ? client_errno(json_str(error, "code"), EIO) : EIO;
        return error_set(&l->session->cli->error, code, "%s", message ? message : "the controller reports a failure");
    }
    l->lost_ms = 0;
    if (json_i64(j, "input", 0) > 0)
        input_left(l, (uint64_t)json_i64(j, "input", 0));
    if (json_get(j, "input_at"))
        return take_position(l, j);
    l->lines |= json_i64(j, "nodes", 1) > 1;
    if (json_get(j, "id"))
        l->job = json_i64(j, "id", 0);
    const char *state = json_str(j, "state");
    if (state) {
        take_state(l, j, state);
    } else if (json_get(j, "exit_code") || json_get(j, "exit_signal")) {
        int64_t signal = json_i64(j, "exit_signal", 0), code = json_i64(j, "exit_code", 0);
        l->exit_status = signal > 0 && signal < 128 ? 128 + (int)signal : (int)(code & 255);
        l->done = true;
    }
    return 0;
}

static int take_messages(struct session_live *l) {
    do {
        struct ws_event event;
        int r = http_client_ws_recv(l->http, &event, 0);
        if (r <= 0)
            return r;
        if (event.type == WS_CLOSE)
            return -EPIPE;
        r = event.type == WS_BINARY ? take_output(l, event.data, event.len) : take_text(l, event.data, event.len);
        if (r < 0)
            return r;
        l->heard = true;
    } while (!l->done && http_client_ws_buffered(l->http));
    return 0;
}

static int forward_input(struct session_live *l) {
    static char piece[CHUNK];
    ssize_t n = read(STDIN_FILENO, piece, l->window < CHUNK ? l->window : CHUNK);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return 0;
    if (n <= 0) {
        l->input_open = false;
        l->ended = true;
        n = 0;
    }
    l->sent += (uint64_t)n;
    buf_add(&l->kept, piece, (size_t)n);
    l->window = INPUT_WINDOW - l->kept.len;
    return send_input(l, piece, (size_t)n);
}

static int take_signal(struct session_live *l) {
    struct signalfd_siginfo info;
    char text[32];
    if (read(l->signals, &info, sizeof info) != (ssize_t)sizeof info)
        return 0;
    if (info.ssi_signo == SIGWINCH)
        return l->session->pty ? send_size(l) : 0;
    if (!l->session->cancels) {
        snprintf(text, sizeof text, "{\"signal\":%u}", info.ssi_signo);
        return send_text(l, text);
    }
    l->interrupts++;
    if (l->interrupts == 1) {
        cli_note("cancelling job %lld; press Ctrl-C again to kill it", (long long)l->job);
        return send_text(l, "{\"cancel\":true}");
    }
    if (l->interrupts > 3)
        return -ECANCELED;
    return send_text(l, "{\"signal\":9}");
}

static void note_waiting(struct session_live *l) {
    if (l->told_waiting || l->running || !l->session->job || clock_mono_ms() - l->began_ms < PENDING_NOTE_MS)
        return;
    l->told_waiting = true;
    if (l->job)
        cli_note("job %lld is pending%s%s%s; see acequia why %lld", (long long)l->job,
                 *l->reason ? " (" : "", l->reason, *l->reason ? ")" : "", (long long)l->job);
}

static int loop(struct session_live *l) {
    while (!l->done) {
        struct pollfd fds[] = {
            {.fd = http_client_fd(l->http), .events = POLLIN},
            {.fd = l->signals, .events = POLLIN},
            {.fd = l->input_open && l->window && !l->locating ? STDIN_FILENO : -1, .events = POLLIN},
        };
        bool buffered = http_client_ws_buffered(l->http), part = parts_of_lines(l, false);
        int n = poll(fds, 3,
                     buffered                        ? 0
                     : part                          ? PART_OF_LINE_MS
                     : l->told_waiting || l->running ? -1
                                                     : PENDING_NOTE_MS);
        if (n < 0 && errno != EINTR)
            return -errno;
        int r = 0;
        if (n == 0 && part && !buffered)
            parts_of_lines(l, true);
        if (n > 0 && fds[1].revents)
            r = take_signal(l);
        if (r == 0 && (buffered || (n > 0 && fds[0].revents)))
            r = take_messages(l);
        if (r == 0 && !l->done && n > 0 && fds[2].revents)
            r = forward_input(l);
        if (r < 0)
            return r;
        note_waiting(l);
    }
    return 0;
}

static int open_socket(struct session_live *l, const char *target, const struct buf *first) {
    int r = client_open(l->session->cli, &l->client);
    if (r == 0)
        r = client_socket(l->client, target, &l->http);
    if (r == 0 && first)
        r = http_client_ws_send(l->http, WS_TEXT, buf_str(first), first->len);
    return r;
}

// The controller went away; the job goes on. Attach again and leave out what was shown already.
static int attach_again(struct session_live *l) {
    const char *target = arena_printf(&l->session->cli->arena, "/v1/jobs/%lld/attach?resume=1", (long long)l->job);
    bool first = !l->lost_ms;
    if (first)
        l->lost_ms = clock_mono_ms();
    while (clock_mono_ms() - l->lost_ms < REATTACH_MS) {
        if (!first)
            usleep(REATTACH_PAUSE_US);
        first = false;
        l->client = client_free(l->client);
        if (open_socket(l, target, NULL) == 0) {
            for (uint32_t i = 0; i < l->origins.len; i++)
                memcpy(l->origins.at[i].skip, l->origins.at[i].shown, sizeof l->origins.at[i].skip);
            l->locating = l->session->input;
            return 0;
        }
    }
    return -EPIPE;
}

static int catch_signals(bool pty) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGQUIT);
    sigaddset(&set, SIGWINCH);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    if (!pty)
        signal(SIGTTIN, SIG_IGN);  // in the background there is no input, which is not an end
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

int client_session_run(struct client_session *s) {
    struct session_live l = {.session = s,
                     .input_open = s->input,
                     .window = INPUT_WINDOW,
                     .began_ms = clock_mono_ms(),
                     .exit_status = CLI_FAILED};
    l.signals = catch_signals(s->pty);
    int r = l.signals < 0 ? error_set(&s->cli->error, errno, "cannot watch signals: %s", strerror(errno))
                          : open_socket(&l, s->target, s->first);
    if (r == 0 && s->pty && isatty(STDIN_FILENO))
        terminal_raw_begin(&l.raw, STDIN_FILENO);
    bool lost = false;
    while (r == 0 && !l.done) {
        s->cli->error.code = 0;
        r = loop(&l);
        lost = r == -EPIPE || r == -ECONNRESET;
        if (lost && s->job && l.job)
            r = attach_again(&l);
    }
    terminal_raw_end(&l.raw);
    client_free(l.client);
    buf_done(&l.kept);
    for (uint32_t i = 0; i < l.origins.len; i++)
        for (int fd = 1; fd <= 2; fd++)
            buf_done(&l.origins.at[i].line[fd]);
    vec_done(&l.origins);
    s->id = l.job;
    if (l.signals >= 0)
        close(l.signals);
    if (r == -ECANCELED)
        return 130;
    if (r < 0 && lost && l.job)
        return cli_failf(s->cli,
                         "lost the connection to the controller; job %lld continues: acequia attach %lld",
                         (long long)l.job, (long long)l.job);
    if (r < 0 && !s->cli->error.code)
        error_set(&s->cli->error, -r, "lost the connection to the controller: %s", strerror(-r));
    return r < 0 ? cli_fail(s->cli) : l.exit_status;
}
