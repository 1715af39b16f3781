// Owns the loop between this terminal and the tasks of a step.
#include "step_run.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rand.h"
#include "base/text.h"
#include "submit_options.h"
#include "cli/term/terminal.h"

enum {
    CHUNK = 64 * 1024,
    SECOND_INTERRUPT_MS = 1000,
    RANK_BYTES = 4,
    INPUT_HEAD = 9,             // channel and position
    OUTPUT_HEAD = 17,           // channel, rank, node, position
    INPUT_WINDOW = 256 * 1024,  // input that was sent and may have to be sent again
    ACK_BYTES = 512 * 1024,     // output is acknowledged this often
    NODES_MAX = 65536,
    PING_MS = 10 * 1000,        // of silence; the controller answers
    SILENT_MS = 40 * 1000,      // then the connection counts as dead
    RECONNECT_MS = 300,
    RECONNECT_NOTE_MS = 5000,
};

struct task_lines {  // output of one task that has not come to the end of its line
    uint32_t rank;
    int channel;
    struct buf text;
};

struct step_live {
    struct step_run *run;
    struct http_client *http;
    struct terminal_raw raw;
    int signals, status;
    bool input_open, done, told_queued, told_granted, started, forced, told_wait;
    uint32_t step, attempt;
    uint64_t epoch;  // of the step; 0: none was started, as far as we know
    int64_t interrupted_ms;
    pid_t child;        // salloc: what uses the allocation; 0: none
    VEC(uint64_t) at;   // by node: output before this was written
    VEC(uint64_t) bytes;  // the same in bytes that tasks have printed
    uint64_t unacked;
    struct buf kept;    // input that is not known to have arrived
    uint64_t kept_at;   // position of its first byte
    bool locating, input_ended;  // it is not known where input goes on; its end was read
    int64_t heard_ms, pinged_ms, lost_ms;  // lost_ms: since when there is no connection; 0: there is one
    bool told_lost;
    bool giving;        // the allocation is being given back, with this exit
    int give_code, give_signal;
    int64_t end_by_ms;  // --wait: when the nodes that are left are killed; 0: not yet
    VEC(struct task_lines *) lines;
};

static int keep_alive(struct step_live *l, int64_t now_ms);

// Whoever reads our output may take a break (a pager): the controller is told meanwhile that we are there. A pipe that
// can be written to takes PIPE_BUF bytes without blocking.
static int write_all(struct step_live *l, int fd, const char *p, size_t n) {
    while (fd >= 0 && n) {
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

static int send_text(struct step_live *l, const char *text) {
    return http_client_ws_send(l->http, WS_TEXT, text, strlen(text));
}

static struct task_lines *lines_of(struct step_live *l, uint32_t rank, int channel) {
    for (uint32_t i = 0; i < l->lines.len; i++)
        if (l->lines.at[i]->rank == rank && l->lines.at[i]->channel == channel)
            return l->lines.at[i];
    struct task_lines *one = xcalloc(1, sizeof *one);
    one->rank = rank;
    one->channel = channel;
    vec_push(&l->lines, one);
    return one;
}

static int rank_width(uint32_t tasks) {
    int width = 1;
    for (uint32_t n = tasks ? tasks - 1 : 0; n >= 10; n /= 10)
        width++;
    return width;
}

static int put_lines(struct step_live *l, struct task_lines *one, bool all) {
    cleanup_buf struct buf out = {0};
    size_t done = 0;
    const char *end;
    while (done < one->text.len && ((end = memchr(one->text.data + done, '\n', one->text.len - done)) || all)) {
        size_t n = end ? (size_t)(end - one->text.data) + 1 - done : one->text.len - done;
        buf_addf(&out, "%*u: ", rank_width(l->run->tasks), one->rank);
        buf_add(&out, one->text.data + done, n);
        if (!end)
            buf_addc(&out, '\n');
        done += n;
    }
    buf_drop(&one->text, done);
    return write_all(l, one->channel == 2 ? l->run->err_fd : l->run->out_fd, out.data, out.len);
}

static bool is_rank(const char *only, uint32_t rank) {
    uint32_t v;
    return !only || (parse_u32(only, &v) == 0 && v == rank);
}

static uint64_t number_at(const char *p, int bytes) {
    uint64_t v = 0;
    for (int i = 0; i < bytes; i++)
        v |= (uint64_t)(unsigned char)p[i] << (8 * i);
    return v;
}

static int show_output(struct step_live *l, int channel, uint32_t rank, const char *data, size_t len) {
    int r;
    if (!is_rank(channel == 2 ? l->run->only_error : l->run->only_output, rank))
        return 0;
    if (l->run->label) {
        struct task_lines *one = lines_of(l, rank, channel);
        buf_add(&one->text, data, len);
        r = put_lines(l, one, false);
    } else {
        r = write_all(l, channel == 2 ? l->run->err_fd : l->run->out_fd, data, len);
    }
    return r == -EPIPE ? send_text(l, "{\"signal\":13}") : r;
}

static int send_acks(struct step_live *l) {
    cleanup_buf struct buf b = {0};
    buf_adds(&b, "{\"ack\":[");
    for (uint32_t i = 0; i < l->at.len; i++)
        buf_addf(&b, "%s%llu", i ? "," : "", (unsigned long long)l->at.at[i]);
    buf_adds(&b, "]}");
    l->unacked = 0;
    return send_text(l, buf_str(&b));
}

// Output with its position in the node's stream: after a new connection nothing is shown twice.
static int take_placed_output(struct step_live *l, const char *data, size_t len) {
    int channel = data[0] - 4;
    uint32_t rank = (uint32_t)number_at(data + 1, 4), node = (uint32_t)number_at(data + 5, 4);
    uint64_t at = number_at(data + 9, 8);
    if (node >= NODES_MAX)
        return -EPROTO;
    while (l->at.len <= node) {
        vec_push(&l->at, 0);
        vec_push(&l->bytes, 0);
    }
    if (at <= l->at.at[node])
        return 0;
    int r = show_output(l, channel, rank, data + OUTPUT_HEAD, len - OUTPUT_HEAD);
    if (r < 0)
        return r;
    l->at.at[node] = at;
    l->bytes.at[node] += len - OUTPUT_HEAD;
    l->unacked += len;
    return l->unacked >= ACK_BYTES ? send_acks(l) : 0;
}

static int take_output(struct step_live *l, const char *data, size_t len) {
    if (len >= OUTPUT_HEAD && (data[0] == 5 || data[0] == 6))
        return take_placed_output(l, data, len);
    if (len < 1 + RANK_BYTES || (data[0] != 1 && data[0] != 2))
        return 0;
    return show_output(l, data[0], (uint32_t)number_at(data + 1, RANK_BYTES), data + 1 + RANK_BYTES,
                       len - 1 - RANK_BYTES);
}

static const char *signal_words(int64_t signal) {
    switch (signal) {
    case SIGKILL: return "Killed";
    case SIGTERM: return "Terminated";
    case SIGSEGV: return "Segmentation fault";
    case SIGABRT: return "Aborted";
    case SIGINT: return "Interrupt";
    default: return strsignal((int)signal);
    }
}

// A command that cannot be started gives the errno of the attempt, as in Slurm.
static int launch_status(const char *error) {
    if (strstr(error, "not found") || strstr(error, "not exist"))
        return ENOENT;
    return strstr(error, "may not be executed") ? EACCES : 1;
}

static const char *plural(const char *ranks) {
    return strpbrk(ranks, ",-") ? "s" : "";
}

// One line for all tasks of a node that ended alike.
static void tell_failed(struct step_live *l, const char *node, const struct json *f) {
    const char *ranks = json_str(f, "tasks");
    int64_t code = json_i64(f, "exit_code", 0), signal = json_i64(f, "exit_signal", 0);
    if (!ranks)
        return;
    if (signal)
        slurm_error(l->run->s, "%s: task%s %s: %s", node, plural(ranks), ranks, signal_words(signal));
    else
        slurm_error(l->run->s, "%s: task%s %s: Exited with exit code %lld", node, plural(ranks), ranks,
                    (long long)code);
    l->forced = l->forced || signal == SIGTERM || signal == SIGKILL;
}

static void tell_error(struct step_live *l, const char *node, const struct json *n, const char *error) {
    struct slurm *s = l->run->s;
    const char *ranks = json_str(n, "tasks");
    int status = launch_status(error);
    if (strstr(error, "over the memory limit") || strstr(error, "ran out of memory")) {
        slurm_error(s, "%s: task%s %s: Out Of Memory (%s)", node, plural(ranks ? ranks : "0"),
                    ranks ? ranks : "0", error);
        l->status = l->status ? l->status : 1;
        return;
    }
    if (!strstr(error, "command") || !ranks) {
        slurm_error(s, "%s: task %lld: %s", node, (long long)json_i64(n, "task", 0), error);
        l->status = l->status ? l->status : 1;
        return;
    }
    fprintf(stderr, "slurmstepd: error: execve(): %s: %s\n", l->run->argv0 ? l->run->argv0 : "",
            status == 1 ? error : strerror(status));
    slurm_error(s, "%s: task%s %s: Exited with exit code %d", node, plural(ranks), ranks, status);
    l->status = status;
}

static void tell_terminating(struct step_live *l) {
    fprintf(stderr, "%s: launch/slurm: _step_signal: Terminating StepId=%llu.%u\n", l->run->s->program,
            (unsigned long long)l->run->job, l->step);
}

// What tasks have printed and this client never got: dropped at the limit, or lost with the node's files.
static void tell_missing(struct step_live *l, const char *node, uint32_t i, uint64_t printed) {
    uint64_t shown = i < l->bytes.len ? l->bytes.at[i] : 0;
    if (l->run->key && !l->run->attached && printed > shown)
        slurm_error(l->run->s,
                    "%s: %llu bytes of output are missing: they were dropped while srun was not connected",
                    node, (unsigned long long)(printed - shown));
}

static void take_end(struct step_live *l, const struct json *j) {
    struct slurm *s = l->run->s;
    int64_t code = json_i64(j, "exit_code", 0), signal = json_i64(j, "exit_signal", 0);
    const struct json *nodes = json_get(j, "nodes");
    l->done = true;
    l->status = signal > 0 && signal < 128 ? 128 + (int)signal : (int)(code & 255);
    if (l->run->kill_on_bad_exit && l->status && l->run->tasks > 1)
        tell_terminating(l);
    else if (l->run->wait_s && signal == SIGKILL && l->run->tasks > 1 && !l->told_wait)
        fprintf(stderr, "%s: First task exited %us ago\n", s->program, l->run->wait_s);
    for (uint32_t i = 0; nodes && nodes->type == JSON_ARRAY && i < nodes->len; i++) {
        const struct json *n = &nodes->items[i], *failed = json_get(n, "failed");
        const char *node = json_str(n, "node"), *error = json_str(n, "error");
        tell_missing(l, node, i, (uint64_t)json_i64(n, "output_bytes", 0));
        if (error)
            tell_error(l, node, n, error);
        for (uint32_t k = 0; !error && failed && failed->type == JSON_ARRAY && k < failed->len; k++)
            tell_failed(l, node, &failed->items[k]);
    }
    if (l->forced && !l->run->wait_s)
        fprintf(stderr, "%s: Force Terminated StepId=%llu.%u\n", s->program, (unsigned long long)l->run->job, l->step);
}

static int take_state(struct step_live *l, const char *state, const char *reason) {
    struct step_run *r = l->run;
    if (streq(state, "PENDING") && !l->told_queued && !r->s->quiet && reason && !streq(reason, "None")) {
        l->told_queued = true;
        fprintf(stderr, "%s: job %llu queued and waiting for resources\n", r->s->program, (unsigned long long)r->job);
    }
    if (streq(state, "RUNNING") && !l->told_granted) {
        l->told_granted = true;
        if (l->told_queued)
            fprintf(stderr, "%s: job %llu has been allocated resources\n", r->s->program, (unsigned long long)r->job);
        if (r->granted) {
            l->child = r->granted(r, r->job);
            r->s->cli.error.code = 0;  // of questions it asked: they are not about this connection
            return l->child < 0 ? -EAGAIN : 0;
        }
    }
    return 0;
}

// Done when the controller has closed the connection: what is only sent may be lost with it.
static int give_back(struct step_live *l) {
    char text[96];
    l->giving = true;
    l->done = false;
    snprintf(text, sizeof text, "{\"give_back\":%d,\"give_back_signal\":%d}", l->give_code, l->give_signal);
    return send_text(l, text);
}

static int send_input(struct step_live *l, uint64_t offset, const char *data, size_t len) {
    static char piece[CHUNK + INPUT_HEAD];
    piece[0] = 7;
    for (int i = 0; i < 8; i++)
        piece[1 + i] = (char)(offset >> (8 * i));
    memcpy(piece + INPUT_HEAD, data, len);
    return http_client_ws_send(l->http, WS_BINARY, piece, len + INPUT_HEAD);
}

// Input from a position on, as far as it was read.
static int send_kept(struct step_live *l, uint64_t from) {
    int r = 0;
    size_t at = from > l->kept_at ? (size_t)(from - l->kept_at) : 0;
    for (; r == 0 && at < l->kept.len; at += CHUNK) {
        size_t n = l->kept.len - at < CHUNK ? l->kept.len - at : CHUNK;
        r = send_input(l, l->kept_at + at, l->kept.data + at, n);
    }
    return r == 0 && l->input_ended ? send_input(l, l->kept_at + l->kept.len, "", 0) : r;
}

// What has arrived is forgotten; after a new connection, here or of a node, the rest is sent again.
static int take_position(struct step_live *l, const struct json *j) {
    bool again = json_get(j, "input_from") != NULL;
    uint64_t at = (uint64_t)json_i64(j, again ? "input_from" : "input_at", 0);
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
    return send_kept(l, at);
}

static int take_text(struct step_live *l, const char *data, size_t len) {
    cleanup_arena struct arena a = {0};
    struct json *j;
    struct slurm *s = l->run->s;
    if (json_parse(data, len, &a, &j, NULL) < 0 || j->type != JSON_OBJECT)
        return -EPROTO;
    const struct json *error = json_get(j, "error");
    if (error && l->giving) {  // after a new connection: the job has ended already
        l->done = true;
        return 0;
    }
    if (error)
        return error_set(&s->cli.error, EIO, "%s",
                         error->type == JSON_OBJECT && json_str(error, "message") ? json_str(error, "message")
                                                                                  : "failed");
    if (json_str(j, "missing"))
        slurm_error(s, "%s: %s", json_str(j, "node") ? json_str(j, "node") : "?", json_str(j, "missing"));
    if (json_get(j, "input_from") || json_get(j, "input_at"))
        return take_position(l, j);
    if (json_get(j, "id"))
        l->run->job = (uint64_t)json_i64(j, "id", 0);
    if (json_str(j, "waiting") && !s->quiet)
        fprintf(stderr, "%s: Job %llu step creation temporarily disabled, retrying (%s)\n", s->program,
                (unsigned long long)l->run->job, json_str(j, "waiting"));
    if (json_get(j, "step")) {
        l->started = true;
        l->step = (uint32_t)json_i64(j, "step", 0);
        l->epoch = (uint64_t)json_i64(j, "epoch", 0);
        l->attempt = (uint32_t)json_i64(j, "attempt", 0);
        if (json_get(j, "tasks"))
            l->run->tasks = (uint32_t)json_i64(j, "tasks", 1);
    }
    if (json_get(j, "node_ended") && l->run->wait_s && !l->end_by_ms)
        l->end_by_ms = clock_mono_ms() + (int64_t)l->run->wait_s * 1000;
    if (json_str(j, "state"))
        return take_state(l, json_str(j, "state"), json_str(j, "reason"));
    if (!json_get(j, "exit_code"))
        return 0;
    if (l->giving)
        return 0;
    take_end(l, j);
    l->give_code = (int)json_i64(j, "exit_code", 0);
    l->give_signal = (int)json_i64(j, "exit_signal", 0);
    if (l->run->alone && l->run->key)
        return give_back(l);
    return l->run->key ? send_text(l, "{\"received\":true}") : 0;
}

static int take_messages(struct step_live *l) {
    do {
        struct ws_event event;
        int r = http_client_ws_recv(l->http, &event, 0);
        if (r <= 0)
            return r;
        l->heard_ms = clock_mono_ms();
        if (event.type == WS_CLOSE) {
            l->done = l->done || l->giving;
            return l->done ? 0 : -EPIPE;
        }
        r = event.type == WS_BINARY ? take_output(l, event.data, event.len) : take_text(l, event.data, event.len);
        if (r < 0)
            return r;
    } while (!l->done && http_client_ws_buffered(l->http));
    return 0;
}

static int forward_input(struct step_live *l) {
    static char piece[CHUNK + 1];
    ssize_t n = read(STDIN_FILENO, piece + 1, CHUNK);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return 0;
    if (n <= 0) {
        l->input_open = false;
        l->input_ended = true;
        n = 0;
    }
    piece[0] = 0;
    if (!l->run->key)
        return http_client_ws_send(l->http, WS_BINARY, piece, (size_t)n + 1);
    uint64_t at = l->kept_at + l->kept.len;
    buf_add(&l->kept, piece + 1, (size_t)n);
    return send_input(l, at, piece + 1, (size_t)n);
}

// The first Ctrl-C tells what runs, the second within a second ends it.
static int take_signal(struct step_live *l) {
    struct signalfd_siginfo info;
    char text[64];
    int rows, columns;
    if (read(l->signals, &info, sizeof info) != (ssize_t)sizeof info)
        return 0;
    if (info.ssi_signo == SIGWINCH) {
        terminal_size(&rows, &columns);
        snprintf(text, sizeof text, "{\"resize\":[%d,%d]}", rows, columns);
        return l->run->pty ? send_text(l, text) : 0;
    }
    if (info.ssi_signo == SIGCHLD) {
        int status;
        if (!l->child || waitpid(l->child, &status, WNOHANG) != l->child)
            return 0;
        l->status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        l->child = 0;
        l->give_code = l->status;
        if (!l->run->s->quiet)
            fprintf(stderr, "%s: Relinquishing job allocation %llu\n", l->run->s->program,
                    (unsigned long long)l->run->job);
        return give_back(l);
    }
    if (l->child) {  // Ctrl-C reaches it by itself
        if (info.ssi_signo != SIGINT)
            kill(l->child, (int)info.ssi_signo);
        return 0;
    }
    if (l->run->attached) {
        l->done = true;
        l->status = SLURM_OK;
        return 0;
    }
    if ((info.ssi_signo == SIGINT || l->run->granted) && !l->started) {
        l->giving = l->run->key != NULL;
        l->done = !l->giving;
        l->status = l->give_code = 130;
        fprintf(stderr, "%s: Force Terminated job %llu\n", l->run->s->program, (unsigned long long)l->run->job);
        return send_text(l, "{\"cancel\":true}");
    }
    if (info.ssi_signo == SIGINT) {
        int64_t now = clock_mono_ms();
        bool second = l->interrupted_ms && now - l->interrupted_ms < SECOND_INTERRUPT_MS;
        l->interrupted_ms = now;
        const char *program = l->run->s->program;
        unsigned long long job = (unsigned long long)l->run->job;
        if (!second && !l->run->quit_on_interrupt) {
            char ranks[32] = "0";
            fprintf(stderr, "%s: interrupt (one more within 1 sec to abort)\n", program);
            if (l->run->tasks > 1)
                snprintf(ranks, sizeof ranks, "0-%u", l->run->tasks - 1);
            fprintf(stderr, "%s: StepId=%llu.%u task%s %s: running\n", program, job, l->step, plural(ranks), ranks);
            return 0;
        }
        fprintf(stderr, "%s: sending Ctrl-C to StepId=%llu.%u\n%s: forcing job termination\n", program, job,
                l->step, program);
        fprintf(stderr, "%s: Job step aborted: Waiting up to 32 seconds for job step to finish.\n", program);
        l->forced = false;
        int r = send_text(l, "{\"signal\":2}");
        return r < 0 ? r : send_text(l, "{\"cancel\":true}");
    }
    if (info.ssi_signo == SIGTERM || info.ssi_signo == SIGHUP) {
        fprintf(stderr, "%s: forcing job termination\n", l->run->s->program);
        fprintf(stderr, "%s: Job step aborted: Waiting up to 32 seconds for job step to finish.\n", l->run->s->program);
    }
    snprintf(text, sizeof text, "{\"signal\":%u}", info.ssi_signo);
    int r = send_text(l, text);
    return r == 0 && (info.ssi_signo == SIGTERM || info.ssi_signo == SIGHUP) ? send_text(l, "{\"cancel\":true}") : r;
}

static int end_rest(struct step_live *l) {
    fprintf(stderr, "%s: First task exited %us ago\n", l->run->s->program, l->run->wait_s);
    tell_terminating(l);
    l->told_wait = true;
    l->end_by_ms = 0;
    l->run->wait_s = 0;
    return send_text(l, "{\"signal\":9}");
}

static int keep_alive(struct step_live *l, int64_t now_ms) {
    if (!l->run->key)
        return 0;
    if (now_ms - l->heard_ms > SILENT_MS)
        return -EPIPE;  // half open: the other side is gone and could not say so
    if (now_ms - l->heard_ms < PING_MS || now_ms - l->pinged_ms < PING_MS)
        return 0;
    l->pinged_ms = now_ms;
    return send_text(l, "{\"ping\":true}");
}

static int wait_ms(const struct step_live *l, bool buffered) {
    int64_t left = l->end_by_ms - clock_mono_ms();
    int ms = l->run->key ? PING_MS / 2 : -1;
    if (buffered)
        return 0;
    return l->end_by_ms && (ms < 0 || left < ms) ? (int)(left > 0 ? left : 0) : ms;
}

static int loop(struct step_live *l) {
    while (!l->done) {
        bool reads = l->input_open && !l->locating && l->kept.len < INPUT_WINDOW;
        struct pollfd fds[] = {{.fd = http_client_fd(l->http), .events = POLLIN}, {.fd = l->signals, .events = POLLIN},
                               {.fd = reads ? STDIN_FILENO : -1, .events = POLLIN}};
        bool buffered = http_client_ws_buffered(l->http);
        int n = poll(fds, 3, wait_ms(l, buffered));
        if (n < 0 && errno != EINTR)
            return -errno;
        if (buffered || (n > 0 && fds[0].revents))
            l->heard_ms = clock_mono_ms();
        int r = keep_alive(l, clock_mono_ms());
        if (r == 0 && l->end_by_ms && clock_mono_ms() >= l->end_by_ms)
            r = end_rest(l);
        if (r == 0 && n > 0 && fds[1].revents)
            r = take_signal(l);
        if (r == 0 && !l->done && (buffered || (n > 0 && fds[0].revents)))
            r = take_messages(l);
        if (r == 0 && !l->done && n > 0 && fds[2].revents)
            r = forward_input(l);
        if (r < 0)
            return r;
    }
    return 0;
}

// --- connections ---

static bool is_cut(int r) {
    return r == -EPIPE || r == -ECONNRESET || r == -ECONNREFUSED || r == -ENOENT || r == -ETIMEDOUT || r == -EAGAIN ||
           r == -ENOTCONN || r == -ECONNABORTED;
}

// The request, and where its output goes on: the same key, so the controller finds the step it has made.
static void write_request(const struct step_live *l, bool again, struct buf *out) {
    size_t tail = (size_t)l->run->step_depth;
    const struct buf *first = l->run->first;
    if (!again || !tail || first->len <= tail) {
        buf_add(out, first->data, first->len);
        return;
    }
    buf_add(out, first->data, first->len - tail);
    buf_adds(out, ",\"resume\":true,\"from\":[");
    for (uint32_t i = 0; i < l->at.len; i++)
        buf_addf(out, "%s%llu", i ? "," : "", (unsigned long long)l->at.at[i]);
    buf_adds(out, "]");
    if (l->epoch)
        buf_addf(out, ",\"epoch\":%llu,\"attempt\":%u", (unsigned long long)l->epoch, l->attempt);
    buf_add(out, first->data + first->len - tail, tail);
}

static int connect_once(struct step_live *l, bool again) {
    cleanup_buf struct buf request = {0};
    int r = client_socket(l->run->s->client, l->run->target, &l->http);
    write_request(l, again, &request);
    if (r == 0)
        r = http_client_ws_send(l->http, WS_TEXT, buf_str(&request), request.len);
    l->heard_ms = clock_mono_ms();
    l->locating = l->run->key != NULL;
    return r;
}

// The controller is away, or the connection was cut: what runs goes on meanwhile.
static int reconnect(struct step_live *l) {
    struct slurm *s = l->run->s;
    if (!l->lost_ms)
        l->lost_ms = clock_mono_ms();
    for (;;) {
        struct pollfd p = {.fd = l->signals, .events = POLLIN};
        struct signalfd_siginfo info;
        s->client = client_free(s->client);
        s->cli.error.code = 0;
        if (client_open(&s->cli, &s->client) == 0 && connect_once(l, true) == 0) {
            s->cli.error.code = 0;  // of attempts that failed meanwhile
            l->lost_ms = 0;
            l->told_lost = false;
            return 0;
        }
        if (!l->told_lost && clock_mono_ms() - l->lost_ms > RECONNECT_NOTE_MS) {
            l->told_lost = true;
            fprintf(stderr, "%s: the controller does not answer; waiting for it\n", s->program);
        }
        if (poll(&p, 1, RECONNECT_MS) <= 0 || l->child)
            continue;
        if (read(l->signals, &info, sizeof info) == (ssize_t)sizeof info &&
            (info.ssi_signo == SIGINT || info.ssi_signo == SIGTERM || info.ssi_signo == SIGHUP))
            return error_set(&s->cli.error, EINTR, "interrupted while the controller was away; job %llu goes on",
                             (unsigned long long)l->run->job);
    }
}

static int catch_signals(bool child) {
    static const int caught[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof caught / sizeof *caught; i++)
        if (!child || caught[i] == SIGINT || caught[i] == SIGTERM || caught[i] == SIGHUP)
            sigaddset(&set, caught[i]);
    if (child)
        sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGTTIN, SIG_IGN);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static int problem(struct step_live *l, int r) {
    struct step_run *run = l->run;
    struct slurm *s = run->s;
    if (!s->cli.error.code)
        error_set(&s->cli.error, -r, "the connection to the controller is lost: %s", strerror(-r));
    unsigned long long job = (unsigned long long)run->job;
    if (run->attached) {
        slurm_error(s, "%s",
                    strstr(s->cli.error.text, "has no step")
                        ? "Unable to attach to job step: Invalid job id specified"
                        : s->cli.error.text);
        return SLURM_FAILED;
    }
    if (l->epoch) {
        slurm_error(s, "%s", s->cli.error.text);
    } else if (run->alone && !run->job) {
        const char *words = slurm_submit_error_text(s, run->spec);
        slurm_error(s, "%s%s", slurm_submit_prefix(s), words);
    } else if (!run->alone && (strstr(s->cli.error.text, "has already ended") ||
                               strstr(s->cli.error.text, "there is no job"))) {
        slurm_error(s, "Unable to confirm allocation for job %llu: Invalid job id specified", job);
        fprintf(stderr, "%s: Check SLURM_JOB_ID environment variable. Expired or invalid job %llu\n", s->program, job);
    } else if (str_has_prefix(s->cli.error.text, "Only allocated")) {
        slurm_error(s, "%s", s->cli.error.text);
    } else if (str_has_prefix(s->cli.error.text, "Step requested GRES")) {
        slurm_error(s, "%s", s->cli.error.text);
        slurm_error(s, "Unable to create step for job %llu: Invalid generic resource (gres) specification", job);
    } else {
        slurm_error(s, "Unable to create step for job %llu: %s", job, s->cli.error.text);
    }
    return SLURM_FAILED;
}

const char *slurm_step_key(struct slurm *s) {
    unsigned char bytes[STEP_KEY_BYTES];
    cleanup_buf struct buf b = {0};
    if (rand_secret(bytes, sizeof bytes) < 0)
        return NULL;
    for (size_t i = 0; i < sizeof bytes; i++)
        buf_addf(&b, "%02x", bytes[i]);
    return arena_strdup(&s->cli.arena, buf_str(&b));
}

void slurm_add_key(struct buf *submit, const char *key) {
    if (!key || submit->len < 2)
        return;
    submit->len--;
    buf_addf(submit, ",\"key\":\"%s\"}", key);
}

int slurm_step_run(struct step_run *run) {
    struct step_live l = {.run = run, .input_open = run->input, .signals = catch_signals(run->granted != NULL)};
    struct client *k = slurm_client(run->s);
    run->s->cli.error.code = 0;
    if (!k)
        return SLURM_FAILED;
    int r = connect_once(&l, false);
    if (r == 0 && run->pty && isatty(STDIN_FILENO))
        terminal_raw_begin(&l.raw, STDIN_FILENO);
    while (r == 0 && !l.done) {
        r = loop(&l);
        if (r < 0 && is_cut(r) && run->key && !run->s->cli.error.code) {
            r = reconnect(&l);
            if (r == 0 && l.giving)
                r = give_back(&l);
        }
    }
    terminal_raw_end(&l.raw);
    for (uint32_t i = 0; i < l.lines.len; i++) {
        put_lines(&l, l.lines.at[i], true);
        buf_done(&l.lines.at[i]->text);
        free(l.lines.at[i]);
    }
    vec_done(&l.lines);
    vec_done(&l.at);
    vec_done(&l.bytes);
    buf_done(&l.kept);
    if (l.signals >= 0)
        close(l.signals);
    return r < 0 ? problem(&l, r) : l.status;
}
