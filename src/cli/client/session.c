// Owns what run, attach, exec and logs show of a job, and what they do at signals and at its end.
#include "cli/client/session.h"

#include <errno.h>
#include <fcntl.h>
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
#include "cli/client/live.h"
#include "cli/term/local_time.h"

enum { PENDING_NOTE_MS = 1000, PART_OF_LINE_MS = 200 };

// Of one stream: the beginning of a line whose end has not come.
struct part_of_line {
    struct buf line[3];
};

struct session_live {
    struct client_live live;  // first: the functions get this
    struct client_session *session;
    bool told_waiting, running, pending;
    bool heard;  // anything came before the final state
    int interrupts;
    int exit_status;
    int64_t job, began_ms;
    VEC(struct part_of_line) parts;  // by number of the stream
    VEC(char *) nodes;  // of the attempt, in the order of the streams
    uint64_t file;
    int64_t time_ms;   // of the output that comes next; 0: not known
    bool within_line;  // the last output did not end one
    bool lines;  // several nodes: only whole lines are shown, so that they do not mix
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

// Nobody reads any more: the job is told to stop, as a pipe would; a log is not followed any longer.
static int show(struct session_live *l, int fd, const char *data, size_t len) {
    int r = client_live_write(&l->live, fd, data, len);
    if (r < 0 && l->session->kind == SESSION_LOGS) {
        l->session->closed = l->live.done = true;
        l->exit_status =
            r == -EPIPE ? CLI_OK
                        : cli_failf(l->session->cli, "cannot write to standard output: %s", strerror(-r));
        return 0;
    }
    return r == -EPIPE ? client_live_send(&l->live, "{\"signal\":13}") : r;
}

// Each line behind the time when it was written. Lines whose time is not known have the same width.
static int show_times(struct session_live *l, int fd, const char *data, size_t len) {
    char text[UNIT_TEXT_MAX], time[UNIT_TEXT_MAX + 8];
    cleanup_buf struct buf out = {0};
    if (l->time_ms)
        snprintf(time, sizeof time, "%s.%03d  ", local_time_format(l->time_ms, text),
                 (int)(l->time_ms % 1000));
    else
        snprintf(time, sizeof time, "%-25s", "-");
    while (len) {
        const char *end = memchr(data, '\n', len);
        size_t n = end ? (size_t)(end - data) + 1 : len;
        if (!l->within_line)
            buf_adds(&out, time);
        buf_add(&out, data, n);
        l->within_line = !end;
        data += n;
        len -= n;
    }
    return out.len ? show(l, fd, out.data, out.len) : 0;
}

// Whole lines; one that is too long, or that has waited, goes as it is.
static int show_lines(struct session_live *l, struct part_of_line *o, int fd, const char *data, size_t len) {
    const char *end = memrchr(data, '\n', len);
    struct buf *line = &o->line[fd];
    size_t whole = end ? (size_t)(end - data) + 1 : line->len + len > LIVE_CHUNK ? len : 0;
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

static bool has_parts_of_lines(const struct session_live *l) {
    for (uint32_t i = 0; i < l->parts.len; i++)
        if (l->parts.at[i].line[1].len || l->parts.at[i].line[2].len)
            return true;
    return false;
}

static void show_parts_of_lines(struct session_live *l) {
    for (uint32_t i = 0; i < l->parts.len; i++)
        for (int fd = 1; fd <= 2; fd++) {
            struct buf *line = &l->parts.at[i].line[fd];
            if (line->len)
                show(l, fd, line->data, line->len);
            buf_clear(line);
        }
}

static void tell_missing(const struct session_live *l, uint64_t bytes) {
    cli_note("job %lld: %llu bytes of output are missing here: they are not kept any more", (long long)l->job,
             (unsigned long long)bytes);
}

static int take_output(struct client_live *live, int fd, uint32_t rank, uint32_t stream, uint64_t at,
                       const char *data, size_t len) {
    struct session_live *l = (struct session_live *)live;
    if (l->session->kind !=
        SESSION_EXEC) {  // a stream of bytes: positions count them; what cannot be had is said
        uint64_t before = live->streams.at[stream].at, begin = at > len ? at - len : 0;
        size_t skip = begin < before ? (size_t)(before - begin) : 0;
        if (begin > before)
            tell_missing(l, begin - before);
        data += skip;
        len -= skip;
    }
    l->running = l->heard = true;
    while (l->parts.len <= stream)
        vec_push(&l->parts, (struct part_of_line){0});
    if (l->session->times)
        return show_times(l, fd, data, len);
    return l->lines ? show_lines(l, &l->parts.at[stream], fd, data, len) : show(l, fd, data, len);
}

static bool final_state(const char *state) {
    static const char *const live[] = {"PENDING", "STARTING", "RUNNING", "SUSPENDED", "COMPLETING"};
    for (size_t i = 0; i < sizeof live / sizeof *live; i++)
        if (streq(state, live[i]))
            return false;
    return true;
}

static void take_state(struct session_live *l, const struct json *j, const char *state) {
    struct client_session *s = l->session;
    const char *reason = json_str(j, "reason");
    if (reason)
        snprintf(l->reason, sizeof l->reason, "%.60s", reason);
    l->pending = streq(state, "PENDING");
    l->running = l->running || !l->pending;
    if (s->once && json_get(j, "exit_code")) {  // all that there is now
        l->exit_status = CLI_OK;
        l->live.done = true;
        return;
    }
    if (!final_state(state))
        return;
    snprintf(s->state, sizeof s->state, "%s", state);
    snprintf(s->reason, sizeof s->reason, "%s", reason ? reason : "");
    s->exit_code = json_i64(j, "exit_code", 0);
    s->exit_signal = json_i64(j, "exit_signal", 0);
    l->exit_status = client_job_exit_status(j);
    l->live.done = true;
    show_parts_of_lines(l);
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
    l->live.done = true;
    for (uint32_t i = 0; i < l->live.streams.len; i++)
        shown += l->live.streams.at[i].bytes;
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
    return client_live_send(&l->live, "{\"received\":true}");
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
    if (!l->live.streams.len)
        vec_push(&l->live.streams, (struct client_live_stream){0});
    if (l->file && !l->live.attempt)  // of an attached job the attempt was told
        cli_note("job %lld: its output file was %s", (long long)l->job,
                 file == l->file ? "emptied and begins anew" : "replaced by another one");
    l->file = file;
    l->live.streams.at[0].at = at;
}

static void forget_nodes(struct session_live *l) {
    for (uint32_t i = 0; i < l->nodes.len; i++)
        free(l->nodes.at[i]);
    vec_clear(&l->nodes);
}

// A job that runs again prints from the beginning.
static void take_attempt(struct session_live *l, uint32_t attempt, uint64_t epoch) {
    bool other = attempt != l->live.attempt || (epoch && l->live.epoch && epoch != l->live.epoch);
    if (l->live.attempt && other) {
        for (uint32_t i = 0; i < l->live.streams.len; i++)
            l->live.streams.at[i].at = 0;
        forget_nodes(l);
        cli_note("job %lld runs again, attempt %u", (long long)l->job, attempt);
    }
    l->live.attempt = attempt;
    l->live.epoch = epoch ? epoch : l->live.epoch;
}

static void put_node(struct session_live *l, const char *name, uint32_t place) {
    uint32_t was = 0;
    while (was < l->nodes.len && !streq(l->nodes.at[was], name))
        was++;
    if (was == l->nodes.len)
        vec_push(&l->nodes, xstrdup(name));
    while (l->live.streams.len < 2 * l->nodes.len)
        vec_push(&l->live.streams, (struct client_live_stream){0});
    char *node = l->nodes.at[was];
    l->nodes.at[was] = l->nodes.at[place];
    l->nodes.at[place] = node;
    for (uint32_t i = 0; i < 2; i++) {
        struct client_live_stream s = l->live.streams.at[2 * was + i];
        l->live.streams.at[2 * was + i] = l->live.streams.at[2 * place + i];
        l->live.streams.at[2 * place + i] = s;
    }
}

// After a restore of an older copy the nodes of an attempt are found one by one, each in its place among the others.
// Those that are not found yet stay behind them, with the positions in their output.
static void take_nodes(struct session_live *l, const struct json *names) {
    for (uint32_t i = 0; i < names->len; i++)
        if (names->items[i].type == JSON_STRING && i <= l->nodes.len)
            put_node(l, names->items[i].s, i);
}

static int take_text(struct client_live *live, const struct json *j) {
    struct session_live *l = (struct session_live *)live;
    if (json_get(j, "error"))
        return take_error(l, json_get(j, "error"));
    if (json_str(j, "missing")) {
        cli_note("node %s: %s", json_str(j, "node") ? json_str(j, "node") : "?", json_str(j, "missing"));
        l->session->missing = true;
    }
    if (json_get(j, "file"))
        take_file(l, j);
    l->time_ms = json_i64(j, "time_ms", l->time_ms);
    if (json_get(j, "attempt"))
        take_attempt(l, (uint32_t)json_i64(j, "attempt", 0),
                     json_get(j, "step") ? 0 : (uint64_t)json_i64(j, "epoch", 0));
    if (json_get(j, "step"))
        live->epoch = (uint64_t)json_i64(j, "epoch", 0);
    const struct json *names = json_get(j, "names");
    if (names && names->type == JSON_ARRAY && l->session->kind != SESSION_LOGS)
        take_nodes(l, names);
    l->lines |= l->session->kind != SESSION_EXEC && json_i64(j, "nodes", 1) > 1;
    if (json_get(j, "id"))
        l->job = json_i64(j, "id", 0);
    const char *state = json_str(j, "state");
    if (state)
        take_state(l, j, state);
    else if (json_get(j, "exit_code"))
        return take_command_end(l, j);
    l->heard |= l->running;
    return 0;
}

static int take_signal(struct client_live *live, const struct signalfd_siginfo *info) {
    struct session_live *l = (struct session_live *)live;
    char text[32];
    if (info->ssi_signo == SIGWINCH)
        return live->pty ? client_live_send_size(live) : 0;
    if (!l->session->cancels) {
        snprintf(text, sizeof text, "{\"signal\":%u}", info->ssi_signo);
        return client_live_send(live, text);
    }
    l->interrupts++;
    if (l->interrupts == 1) {
        cli_note("cancelling job %lld; press Ctrl-C again to kill it", (long long)l->job);
        return client_live_send(live, "{\"cancel\":true}");
    }
    if (l->interrupts > 3)
        return -ECANCELED;
    return client_live_send(live, "{\"signal\":9}");
}

static int closed(struct client_live *l) {
    return -EPIPE;
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

static int wait_ms(const struct client_live *live) {
    const struct session_live *l = (const struct session_live *)live;
    return has_parts_of_lines(l)           ? PART_OF_LINE_MS
           : l->told_waiting || l->running ? LIVE_PING_MS / 2
                                           : PENDING_NOTE_MS;
}

static int turn(struct client_live *live, bool timed_out) {
    struct session_live *l = (struct session_live *)live;
    if (timed_out)
        show_parts_of_lines(l);
    note_waiting(l);
    return 0;
}

// --- connections ---

static void put_positions(const struct session_live *l, struct buf *out) {
    struct json_writer w = {.out = out};
    client_live_positions(&l->live, out);
    if (!l->nodes.len)
        return;
    buf_adds(out, ",\"nodes\":");
    json_open(&w, '[');
    for (uint32_t i = 0; i < l->nodes.len; i++)
        json_put_str(&w, l->nodes.at[i]);
    json_close(&w, ']');
}

static void write_request(const struct client_live *live, bool again, struct buf *target, struct buf *first) {
    const struct session_live *l = (const struct session_live *)live;
    const struct client_session *s = l->session;
    if (again && s->kind == SESSION_RUN && l->job)
        buf_addf(target, "/v1/jobs/%lld/attach?placed=1", (long long)l->job);
    else
        buf_adds(target, s->target);
    if (s->kind == SESSION_LOGS) {
        if (live->streams.len)
            buf_addf(target, "&from=%llu", (unsigned long long)live->streams.at[0].at);
        if (l->file)
            buf_addf(target, "&file=%llu", (unsigned long long)l->file);
        else if (!live->streams.len && s->last_lines)
            buf_addf(target, "&%s", s->last_lines);
        return;
    }
    if (s->first && !(again && s->kind == SESSION_RUN && l->job)) {
        buf_add(first, s->first->data, s->first->len - 1);
        if (again && s->kind == SESSION_EXEC) {
            buf_adds(first, ",");
            client_live_positions(live, first);
        }
    } else {
        buf_adds(first, "{");
        if (again)
            put_positions(l, first);
    }
    buf_adds(first, "}");
}

static int connected(struct client_live *l, bool again) {
    return again && l->pty ? client_live_send_size(l) : 0;
}

static bool heeds_signals(const struct client_live *l) {
    return true;
}

static void waits(struct client_live *l) {
    cli_note("the controller does not answer; waiting for it");
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
    static const struct client_live_ops ops = {write_request, connected, take_output, take_text,
                                               take_signal,   closed,    wait_ms,     turn,
                                               heeds_signals, waits};
    struct session_live l = {.live = {.cli = s->cli,
                                      .ops = &ops,
                                      .signals = catch_signals(s),
                                      .placed = true,
                                      .pty = s->pty,
                                      .input_open = s->input},
                             .session = s,
                             .job = s->id,
                             .began_ms = clock_mono_ms(),
                             .exit_status = CLI_FAILED};
    int r = l.live.signals < 0 ? error_set(&s->cli->error, errno, "cannot watch signals: %s", strerror(errno))
                               : client_live_run(&l.live);
    client_free(l.live.client);
    for (uint32_t i = 0; i < l.parts.len; i++)
        for (int fd = 1; fd <= 2; fd++)
            buf_done(&l.parts.at[i].line[fd]);
    vec_done(&l.parts);
    forget_nodes(&l);
    vec_done(&l.nodes);
    client_live_done(&l.live);
    s->id = l.job;
    if (r == -ECANCELED)
        return 130;
    if (r < 0 && !l.live.done && !s->cli->error.code)
        error_set(&s->cli->error, -r, "lost the connection to the controller: %s", strerror(-r));
    if (r < 0 && !l.live.done) {
        if (r == -EINTR && l.job)
            error_set(&s->cli->error, EINTR, "%s; the job goes on",
                      arena_strdup(&s->cli->arena, s->cli->error.text));
        int status = cli_fail(s->cli);
        if (l.job && s->kind == SESSION_RUN && r == -EINTR)
            cli_note("to go on: acequia attach %lld", (long long)l.job);
        return r == -EINTR ? 130 : status;
    }
    return l.exit_status;
}
