// Owns the loop between standard input and output, signals, and a job's streams, and connecting again.
#include "cli/client/session.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/rand.h"
#include "base/text.h"
#include "base/vec.h"
#include "cli/client/job_wait.h"
#include "cli/term/terminal.h"

enum {
    CHUNK = 64 * 1024,
    INPUT_HEAD = 9,             // channel and position
    OUTPUT_HEAD = 17,           // channel, rank, number of the stream, position
    INPUT_WINDOW = 256 * 1024,  // input that was sent and may have to be sent again
    ACK_BYTES = 512 * 1024,     // output is acknowledged this often
    STREAMS_MAX = 1 << 20,
    PING_MS = 10 * 1000,    // of silence; the controller answers
    SILENT_MS = 40 * 1000,  // then the connection counts as dead
    RECONNECT_MS = 200,
    RECONNECT_NOTE_MS = 5000,
    PENDING_NOTE_MS = 1000,
    PART_OF_LINE_MS = 200
};

// One stream: the position up to which it was shown, and the beginning of a line whose end has not come.
struct origin {
    uint64_t at, bytes;
    struct buf line[3];
};

struct session_live {
    struct client_session *session;
    struct client *client;
    struct http_client *http;
    struct terminal_raw raw;
    int signals;
    bool input_open, done, told_waiting, running, pending;
    bool heard;  // anything came before the final state
    int interrupts;
    int exit_status;
    int64_t job, began_ms;
    int64_t heard_ms, pinged_ms;
    int64_t lost_ms;  // since when there is no connection; 0: there is one
    bool told_lost;
    struct buf kept;             // input that is not known to have arrived
    uint64_t kept_at;            // position of its first byte
    bool input_ended, locating;  // its end was read; it is not known where it goes on
    VEC(struct origin) origins;  // by number of the stream
    uint64_t unacked, file;
    uint32_t attempt;
    uint64_t epoch;       // of the step that a command is
    bool lines;           // several nodes: only whole lines are shown, so that they do not mix
    char reason[64];
};

int client_session_key(char out[SESSION_KEY_MAX]) {
    unsigned char bytes[(SESSION_KEY_MAX - 1) / 2];
    int r = rand_secret(bytes, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
    return r;
}

void client_session_json_terminal(struct json_writer *w) {
    int rows, columns;
    terminal_size(&rows, &columns);
    json_kv_i64(w, "rows", rows);
    json_kv_i64(w, "columns", columns);
}

static int keep_alive(struct session_live *l, int64_t now_ms);

// Whoever reads our output may take a break (a pager): the controller is told meanwhile that we are there. A pipe that
// can be written to takes PIPE_BUF bytes without blocking.
static int write_all(struct session_live *l, int fd, const char *p, size_t n) {
    while (n) {
        struct pollfd w = {.fd = fd, .events = POLLOUT};
        if (poll(&w, 1, PING_MS) == 0) {
            l->heard_ms = clock_mono_ms() - PING_MS;  // nothing was read meanwhile
            int r = keep_alive(l, clock_mono_ms());
            if (r < 0)
                return r;
            continue;
        }
        ssize_t put = write(fd, p, n < PIPE_BUF ? n : PIPE_BUF);
        if (put < 0 && errno != EINTR && errno != EAGAIN)
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

// Nobody reads any more: the job is told to stop, as a pipe would; a log is not followed any longer.
static int show(struct session_live *l, int fd, const char *data, size_t len) {
    int r = write_all(l, fd, data, len);
    if (r < 0 && l->session->kind == SESSION_LOGS) {
        l->session->closed = l->done = true;
        l->exit_status =
            r == -EPIPE ? CLI_OK
                        : cli_failf(l->session->cli, "cannot write to standard output: %s", strerror(-r));
        return 0;
    }
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

static int bad_message(struct session_live *l) {
    return error_set(&l->session->cli->error, EPROTO,
                     "the controller sent a message that this version does not understand");
}

static uint64_t number_at(const char *p, int bytes) {
    uint64_t v = 0;
    for (int i = 0; i < bytes; i++)
        v |= (uint64_t)(unsigned char)p[i] << (8 * i);
    return v;
}

static int send_acks(struct session_live *l) {
    cleanup_buf struct buf b = {0};
    buf_adds(&b, "{\"ack\":[");
    for (uint32_t i = 0; i < l->origins.len; i++)
        buf_addf(&b, "%s%llu", i ? "," : "", (unsigned long long)l->origins.at[i].at);
    buf_adds(&b, "]}");
    l->unacked = 0;
    return send_text(l, buf_str(&b));
}

static void tell_missing(const struct session_live *l, uint64_t bytes) {
    cli_note("job %lld: %llu bytes of output are missing here: they are not kept any more", (long long)l->job,
             (unsigned long long)bytes);
}

// Output with its position: nothing is shown twice, and what cannot be had is said.
static int take_output(struct session_live *l, const char *data, size_t len) {
    if (len < OUTPUT_HEAD || (data[0] != 5 && data[0] != 6))
        return 0;
    int fd = data[0] - 4;
    uint64_t number = number_at(data + 5, 4), at = number_at(data + 9, 8);
    if (number >= STREAMS_MAX)
        return bad_message(l);
    data += OUTPUT_HEAD;
    len -= OUTPUT_HEAD;
    while (l->origins.len <= number)
        vec_push(&l->origins, (struct origin){0});
    struct origin *o = &l->origins.at[number];
    if (at <= o->at)
        return 0;
    if (l->session->kind != SESSION_EXEC) {  // a stream of bytes: positions count them
        uint64_t begin = at > len ? at - len : 0;
        size_t skip = begin < o->at ? (size_t)(o->at - begin) : 0;
        if (begin > o->at)
            tell_missing(l, begin - o->at);
        data += skip;
        len -= skip;
    }
    l->running = true;
    o->at = at;
    o->bytes += len;
    l->unacked += len;
    int r = l->lines ? show_lines(l, o, fd, data, len) : show(l, fd, data, len);
    return r == 0 && l->unacked >= ACK_BYTES ? send_acks(l) : r;
}

static bool final_state(const char *state) {
    static const char *const live[] = {"PENDING", "STARTING", "RUNNING", "SUSPENDED", "COMPLETING"};
    for (size_t i = 0; i < sizeof live / sizeof *live; i++)
        if (streq(state, live[i]))
            return false;
    return true;
}

static int send_input(struct session_live *l, uint64_t offset, const char *data, size_t len) {
    static char piece[CHUNK + INPUT_HEAD];
    piece[0] = 7;
    for (int i = 0; i < 8; i++)
        piece[1 + i] = (char)(offset >> (8 * i));
    memcpy(piece + INPUT_HEAD, data, len);
    return http_client_ws_send(l->http, WS_BINARY, piece, len + INPUT_HEAD);
}

// What has arrived is forgotten; after a new connection, here or of a node, the rest is sent again.
static int take_position(struct session_live *l, const struct json *j) {
    bool again = json_get(j, "input_from") != NULL;
    uint64_t at = (uint64_t)json_i64(j, again ? "input_from" : "input_at", 0);
    int r = 0;
    if (json_true(j, "input_closed")) {
        l->input_open = l->locating = false;
        return 0;
    }
    if (at > l->kept_at && at <= l->kept_at + l->kept.len) {
        buf_drop(&l->kept, (size_t)(at - l->kept_at));
        l->kept_at = at;
    }
    if (!again)
        return 0;
    l->locating = false;
    for (size_t from = at > l->kept_at ? (size_t)(at - l->kept_at) : 0; r == 0 && from < l->kept.len;
         from += CHUNK) {
        size_t n = l->kept.len - from < CHUNK ? l->kept.len - from : CHUNK;
        r = send_input(l, l->kept_at + from, l->kept.data + from, n);
    }
    return r == 0 && l->input_ended ? send_input(l, l->kept_at + l->kept.len, "", 0) : r;
}

static void take_state(struct session_live *l, const struct json *j, const char *state) {
    struct client_session *s = l->session;
    const char *reason = json_str(j, "reason");
    if (reason)
        snprintf(l->reason, sizeof l->reason, "%.60s", reason);
    l->pending = streq(state, "PENDING");
    l->running = l->running || !l->pending;
    if (!final_state(state))
        return;
    snprintf(s->state, sizeof s->state, "%s", state);
    snprintf(s->reason, sizeof s->reason, "%s", reason ? reason : "");
    s->exit_code = json_i64(j, "exit_code", 0);
    s->exit_signal = json_i64(j, "exit_signal", 0);
    l->exit_status = client_job_exit_status(j);
    l->done = true;
    parts_of_lines(l, true);
    if (s->kind == SESSION_LOGS)
        return;
    if (s->kind == SESSION_ATTACH && !l->heard) {
        cli_note("job %lld has already ended (%s); to see its output: acequia logs %lld", (long long)l->job, state,
                 (long long)l->job);
        return;
    }
    bool plain = streq(state, "COMPLETED") || (streq(state, "FAILED") && !s->exit_signal);
    if (!plain || !str_empty(reason) || (l->exit_status && !s->exit_code))
        cli_note("job %lld: %s%s%s", (long long)l->job, state, str_empty(reason) ? "" : ", ", reason ? reason : "");
}

// As a shell says it: 127 for a command that is not there, 126 for one that may not be executed.
static int launch_status(const char *error) {
    if (strstr(error, "not found") || strstr(error, "not exist"))
        return 127;
    return strstr(error, "may not be executed") || strstr(error, "neither a program nor a script")
               ? 126
               : CLI_FAILED;
}

static int take_command_end(struct session_live *l, const struct json *j) {
    const struct json *nodes = json_get(j, "nodes");
    const struct json *n = nodes && nodes->type == JSON_ARRAY && nodes->len ? &nodes->items[0] : NULL;
    const char *error = n ? json_str(n, "error") : NULL;
    int64_t signal = json_i64(j, "exit_signal", 0), code = json_i64(j, "exit_code", 0);
    uint64_t printed = n ? (uint64_t)json_i64(n, "output_bytes", 0) : 0, shown = 0;
    l->exit_status = signal > 0 && signal < 128 ? 128 + (int)signal : (int)(code & 255);
    l->done = true;
    for (uint32_t i = 0; i < l->origins.len; i++)
        shown += l->origins.at[i].bytes;
    if (printed > shown)
        cli_note(
            "%llu bytes of the command's output are missing: they were dropped while this client was not "
            "connected",
            (unsigned long long)(printed - shown));
    if (error) {
        error_set(&l->session->cli->error, EIO, "%s", error);
        cli_fail(l->session->cli);
        int status = launch_status(error);
        l->exit_status = status != CLI_FAILED || !l->exit_status ? status : l->exit_status;
    }
    return send_text(l, "{\"received\":true}");
}

static int take_error(struct session_live *l, const struct json *error) {
    const char *message = error->type == JSON_OBJECT   ? json_str(error, "message")
                          : error->type == JSON_STRING ? error->s
                                                       : NULL;
    int code = error->type == JSON_OBJECT ? client_errno(json_str(error, "code"), EIO) : EIO;
    return error_set(&l->session->cli->error, code, "%s",
                     message ? message : "the controller reports a failure");
}

// A log goes on in another file, or in the same one that was emptied; or this is where its last lines begin.
static void take_file(struct session_live *l, const struct json *j) {
    uint64_t file = (uint64_t)json_i64(j, "file", 0), at = (uint64_t)json_i64(j, "at", 0);
    if (!l->origins.len)
        vec_push(&l->origins, (struct origin){0});
    if (l->file)
        cli_note("job %lld: its output file was %s", (long long)l->job,
                 file == l->file ? "emptied and begins anew" : "replaced by another one");
    l->file = file;
    l->origins.at[0].at = at;
}

// A job that runs again prints from the beginning.
static void take_attempt(struct session_live *l, uint32_t attempt) {
    if (l->attempt && attempt != l->attempt) {
        for (uint32_t i = 0; i < l->origins.len; i++)
            l->origins.at[i].at = 0;
        cli_note("job %lld runs again, attempt %u", (long long)l->job, attempt);
    }
    l->attempt = attempt;
}

static int take_text(struct session_live *l, const char *data, size_t len) {
    cleanup_arena struct arena a = {0};
    struct json *j;
    if (json_parse(data, len, &a, &j, NULL) < 0 || j->type != JSON_OBJECT)
        return bad_message(l);
    if (json_get(j, "error"))
        return take_error(l, json_get(j, "error"));
    if (json_str(j, "missing"))
        cli_note("node %s: %s", json_str(j, "node") ? json_str(j, "node") : "?", json_str(j, "missing"));
    if (json_get(j, "input_at") || json_get(j, "input_from"))
        return take_position(l, j);
    if (json_get(j, "file"))
        take_file(l, j);
    if (json_get(j, "attempt"))
        take_attempt(l, (uint32_t)json_i64(j, "attempt", 0));
    if (json_get(j, "step"))
        l->epoch = (uint64_t)json_i64(j, "epoch", 0);
    l->lines |= l->session->kind != SESSION_EXEC && json_i64(j, "nodes", 1) > 1;
    if (json_get(j, "id"))
        l->job = json_i64(j, "id", 0);
    const char *state = json_str(j, "state");
    if (state)
        take_state(l, j, state);
    else if (json_get(j, "exit_code"))
        return take_command_end(l, j);
    return 0;
}

static int take_messages(struct session_live *l) {
    do {
        struct ws_event event;
        int r = http_client_ws_recv(l->http, &event, 0);
        if (r <= 0)
            return r;
        l->heard_ms = clock_mono_ms();
        if (event.type == WS_CLOSE)
            return -EPIPE;
        r = event.type == WS_BINARY ? take_output(l, event.data, event.len) : take_text(l, event.data, event.len);
        if (r < 0)
            return r;
        l->heard |= event.type == WS_BINARY || l->running;
    } while (!l->done && http_client_ws_buffered(l->http));
    return 0;
}

static int forward_input(struct session_live *l) {
    static char piece[CHUNK];
    ssize_t n = read(STDIN_FILENO, piece, CHUNK);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return 0;
    if (n <= 0) {
        l->input_open = false;
        l->input_ended = true;
        n = 0;
    }
    uint64_t at = l->kept_at + l->kept.len;
    buf_add(&l->kept, piece, (size_t)n);
    return send_input(l, at, piece, (size_t)n);
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
    bool waits =
        l->session->kind == SESSION_LOGS ? l->pending : clock_mono_ms() - l->began_ms >= PENDING_NOTE_MS;
    if (l->told_waiting || l->running || l->session->kind == SESSION_EXEC || !waits)
        return;
    l->told_waiting = true;
    if (l->job && l->session->kind == SESSION_LOGS)
        cli_note("job %lld has not begun; waiting for its output", (long long)l->job);
    else if (l->job)
        cli_note("job %lld is pending%s%s%s; see acequia why %lld", (long long)l->job,
                 *l->reason ? " (" : "", l->reason, *l->reason ? ")" : "", (long long)l->job);
}

// A connection may be half open: the other side is gone and could not say so.
static int keep_alive(struct session_live *l, int64_t now_ms) {
    if (now_ms - l->heard_ms > SILENT_MS)
        return -EPIPE;
    if (now_ms - l->heard_ms < PING_MS || now_ms - l->pinged_ms < PING_MS)
        return 0;
    l->pinged_ms = now_ms;
    return send_text(l, "{\"ping\":true}");
}

static int loop(struct session_live *l) {
    while (!l->done) {
        bool reads = l->input_open && !l->locating && l->kept.len < INPUT_WINDOW;
        struct pollfd fds[] = {
            {.fd = http_client_fd(l->http), .events = POLLIN},
            {.fd = l->signals, .events = POLLIN},
            {.fd = reads ? STDIN_FILENO : -1, .events = POLLIN},
        };
        bool buffered = http_client_ws_buffered(l->http), part = parts_of_lines(l, false);
        int n = poll(fds, 3,
                     buffered                        ? 0
                     : part                          ? PART_OF_LINE_MS
                     : l->told_waiting || l->running ? PING_MS / 2
                                                     : PENDING_NOTE_MS);
        if (n < 0 && errno != EINTR)
            return -errno;
        if (buffered || (n > 0 && fds[0].revents))
            l->heard_ms = clock_mono_ms();
        int r = keep_alive(l, clock_mono_ms());
        if (n == 0 && part && !buffered)
            parts_of_lines(l, true);
        if (r == 0 && n > 0 && fds[1].revents)
            r = take_signal(l);
        if (r == 0 && !l->done && (buffered || (n > 0 && fds[0].revents)))
            r = take_messages(l);
        if (r == 0 && !l->done && n > 0 && fds[2].revents)
            r = forward_input(l);
        if (r < 0)
            return r;
        note_waiting(l);
    }
    return 0;
}

// --- connections ---

static bool is_cut(int r) {
    return r == -EPIPE || r == -ECONNRESET || r == -ECONNREFUSED || r == -ETIMEDOUT || r == -EAGAIN ||
           r == -ENOTCONN || r == -ECONNABORTED || r == -EHOSTUNREACH || r == -ENETUNREACH;
}

// The positions that we have, as members of an object.
static void put_positions(const struct session_live *l, struct buf *out) {
    buf_adds(out, "\"resume\":true,\"from\":[");
    for (uint32_t i = 0; i < l->origins.len; i++)
        buf_addf(out, "%s%llu", i ? "," : "", (unsigned long long)l->origins.at[i].at);
    buf_adds(out, "]");
    if (l->epoch)
        buf_addf(out, ",\"epoch\":%llu,\"attempt\":%u", (unsigned long long)l->epoch, l->attempt);
}

// Where to and what to say first; `again`: after a cut, with what we have.
static void write_request(const struct session_live *l, bool again, struct buf *target, struct buf *first) {
    const struct client_session *s = l->session;
    if (again && s->kind == SESSION_RUN && l->job)
        buf_addf(target, "/v1/jobs/%lld/attach?placed=1", (long long)l->job);
    else
        buf_adds(target, s->target);
    if (s->kind == SESSION_LOGS) {
        if (l->file)
            buf_addf(target, "&from=%llu&file=%llu", (unsigned long long)l->origins.at[0].at,
                     (unsigned long long)l->file);
        else if (l->origins.len)
            buf_addf(target, "&from=%llu", (unsigned long long)l->origins.at[0].at);
        else if (s->last_lines)
            buf_addf(target, "&%s", s->last_lines);
        return;
    }
    if (s->first && !(again && s->kind == SESSION_RUN && l->job)) {
        buf_add(first, s->first->data, s->first->len - 1);
        if (again && s->kind == SESSION_EXEC) {
            buf_adds(first, ",");
            put_positions(l, first);
        }
    } else {
        buf_adds(first, "{");
        if (again)
            put_positions(l, first);
    }
    buf_adds(first, "}");
}

static int connect_once(struct session_live *l, bool again) {
    cleanup_buf struct buf target = {0}, first = {0};
    int r = client_open(l->session->cli, &l->client);
    write_request(l, again, &target, &first);
    if (r == 0)
        r = client_socket(l->client, buf_str(&target), &l->http);
    if (r == 0 && first.len)
        r = http_client_ws_send(l->http, WS_TEXT, first.data, first.len);
    l->heard_ms = clock_mono_ms();
    l->locating = l->session->input;
    if (r == 0 && again && l->session->pty)
        r = send_size(l);
    return r;
}

static bool is_interrupted(struct session_live *l, int timeout_ms) {
    struct pollfd p = {.fd = l->signals, .events = POLLIN};
    struct signalfd_siginfo info;
    return poll(&p, 1, timeout_ms) > 0 && read(l->signals, &info, sizeof info) == (ssize_t)sizeof info &&
           info.ssi_signo != SIGWINCH;
}

// The controller is away, or the connection was cut: what runs goes on meanwhile.
static int reconnect(struct session_live *l) {
    struct cli *c = l->session->cli;
    l->lost_ms = clock_mono_ms();
    for (int pause_ms = 0;; pause_ms = RECONNECT_MS) {
        if (is_interrupted(l, pause_ms))
            return error_set(&c->error, EINTR, "interrupted while the controller was away%s",
                             l->job ? "; the job goes on" : "");
        l->client = client_free(l->client);
        c->error.code = 0;
        int r = connect_once(l, true);
        if (r == 0)
            break;
        if (!is_cut(r))
            return r;
        if (!l->told_lost && clock_mono_ms() - l->lost_ms > RECONNECT_NOTE_MS) {
            l->told_lost = true;
            cli_note("the controller does not answer; waiting for it");
        }
    }
    c->error.code = 0;  // of attempts that failed meanwhile
    l->lost_ms = 0;
    l->told_lost = false;
    return 0;
}

static int catch_signals(const struct client_session *s) {
    sigset_t set;
    sigemptyset(&set);
    signal(SIGPIPE, SIG_IGN);
    if (s->kind == SESSION_LOGS)
        return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGQUIT);
    sigaddset(&set, SIGWINCH);
    sigprocmask(SIG_BLOCK, &set, NULL);
    if (!s->pty)
        signal(SIGTTIN, SIG_IGN);  // in the background there is no input, which is not an end
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

int client_session_run(struct client_session *s) {
    struct session_live l = {.session = s,
                             .input_open = s->input,
                             .job = s->id,
                             .began_ms = clock_mono_ms(),
                             .exit_status = CLI_FAILED};
    l.signals = catch_signals(s);
    int r = l.signals < 0 ? error_set(&s->cli->error, errno, "cannot watch signals: %s", strerror(errno))
                          : connect_once(&l, false);
    if (r == 0 && s->pty && isatty(STDIN_FILENO))
        terminal_raw_begin(&l.raw, STDIN_FILENO);
    while (r == 0 && !l.done) {
        s->cli->error.code = 0;
        r = loop(&l);
        if (r < 0 && !l.done && is_cut(r) && (!s->cli->error.code || r == -EAGAIN))
            r = reconnect(&l);
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
    if (r < 0 && !l.done && !s->cli->error.code)
        error_set(&s->cli->error, -r, "lost the connection to the controller: %s", strerror(-r));
    if (r < 0 && !l.done) {
        int status = cli_fail(s->cli);
        if (l.job && s->kind == SESSION_RUN && r == -EINTR)
            cli_note("to go on: acequia attach %lld", (long long)l.job);
        return r == -EINTR ? 130 : status;
    }
    return l.exit_status;
}
