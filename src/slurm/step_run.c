// Owns what srun and salloc show of a step or an allocation, in Slurm's words, and what they do at signals and at its
// end.
#include "step_run.h"

#include <errno.h>
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
#include "cli/client/live.h"

enum { SECOND_INTERRUPT_MS = 1000 };

struct task_lines {  // output of one task that has not come to the end of its line
    uint32_t rank;
    int channel;
    struct buf text;
};

struct step_live {
    struct client_live live;  // first: the functions get this
    struct step_run *run;
    int status;
    bool told_queued, told_granted, started, forced, told_wait;
    bool named_again;  // the controller knows what a job in a request means that is sent again
    uint32_t step;
    int64_t interrupted_ms;
    pid_t child;        // salloc: what uses the allocation; 0: none
    bool giving;        // the allocation is being given back, with this exit
    int give_code, give_signal;
    int64_t end_by_ms;  // --wait: when the nodes that are left are killed; 0: not yet
    VEC(struct task_lines *) lines;
};

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
    return client_live_write(&l->live, one->channel == 2 ? l->run->err_fd : l->run->out_fd, out.data,
                             out.len);
}

static bool is_rank(const char *only, uint32_t rank) {
    uint32_t v;
    return !only || (parse_u32(only, &v) == 0 && v == rank);
}

static int take_output(struct client_live *live, int channel, uint32_t rank, uint32_t node, uint64_t at,
                       const char *data, size_t len) {
    struct step_live *l = (struct step_live *)live;
    int r;
    if (!is_rank(channel == 2 ? l->run->only_error : l->run->only_output, rank))
        return 0;
    if (l->run->label) {
        struct task_lines *one = lines_of(l, rank, channel);
        buf_add(&one->text, data, len);
        r = put_lines(l, one, false);
    } else {
        r = client_live_write(live, channel == 2 ? l->run->err_fd : l->run->out_fd, data, len);
    }
    return r == -EPIPE ? client_live_send(live, "{\"signal\":13}") : r;
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
    uint64_t shown = i < l->live.streams.len ? l->live.streams.at[i].bytes : 0;
    if (l->run->key && !l->run->attached && printed > shown)
        slurm_error(l->run->s,
                    "%s: %llu bytes of output are missing: they were dropped while srun was not connected",
                    node, (unsigned long long)(printed - shown));
}

static void take_end(struct step_live *l, const struct json *j) {
    struct slurm *s = l->run->s;
    int64_t code = json_i64(j, "exit_code", 0), signal = json_i64(j, "exit_signal", 0);
    const struct json *nodes = json_get(j, "nodes");
    l->live.done = true;
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
    if (l->forced && !l->run->wait_s && !l->told_wait)
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
    l->live.done = false;
    snprintf(text, sizeof text, "{\"give_back\":%d,\"give_back_signal\":%d}", l->give_code, l->give_signal);
    return client_live_send(&l->live, text);
}

static int take_text(struct client_live *live, const struct json *j) {
    struct step_live *l = (struct step_live *)live;
    struct slurm *s = l->run->s;
    const struct json *error = json_get(j, "error");
    if (error && l->giving) {  // after a new connection: the job has ended already
        live->done = true;
        return 0;
    }
    if (error)
        return error_set(&s->cli.error, EIO, "%s",
                         error->type == JSON_OBJECT && json_str(error, "message") ? json_str(error, "message")
                                                                                  : "failed");
    if (json_str(j, "missing"))
        slurm_error(s, "%s: %s", json_str(j, "node") ? json_str(j, "node") : "?", json_str(j, "missing"));
    if (json_get(j, "id")) {
        l->run->job = (uint64_t)json_i64(j, "id", 0);
        l->named_again = json_true(j, "named_again");
    }
    if (json_str(j, "waiting") && !s->quiet)
        fprintf(stderr, "%s: Job %llu step creation temporarily disabled, retrying (%s)\n", s->program,
                (unsigned long long)l->run->job, json_str(j, "waiting"));
    if (json_get(j, "step")) {
        l->started = true;
        l->step = (uint32_t)json_i64(j, "step", 0);
        live->epoch = (uint64_t)json_i64(j, "epoch", 0);
        live->attempt = (uint32_t)json_i64(j, "attempt", 0);
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
    return l->run->key ? client_live_send(live, "{\"received\":true}") : 0;
}

static int closed(struct client_live *live) {
    const struct step_live *l = (const struct step_live *)live;
    live->done = live->done || l->giving;
    return live->done ? 0 : -EPIPE;
}

// The first Ctrl-C tells what runs, the second within a second ends it.
static int take_signal(struct client_live *live, const struct signalfd_siginfo *info) {
    struct step_live *l = (struct step_live *)live;
    char text[64];
    if (info->ssi_signo == SIGWINCH)
        return live->pty ? client_live_send_size(live) : 0;
    if (info->ssi_signo == SIGCHLD) {
        int status;
        if (!l->child || waitpid(l->child, &status, WNOHANG) != l->child)
            return 0;
        l->status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        l->child = 0;
        l->give_code = l->status;
        if (l->run->tells && !l->run->s->quiet)
            fprintf(stderr, "%s: Relinquishing job allocation %llu\n", l->run->s->program,
                    (unsigned long long)l->run->job);
        return give_back(l);
    }
    if (l->child) {  // Ctrl-C reaches it by itself
        if (info->ssi_signo != SIGINT)
            kill(l->child, (int)info->ssi_signo);
        return 0;
    }
    if (l->run->attached) {
        live->done = true;
        l->status = SLURM_OK;
        return 0;
    }
    if ((info->ssi_signo == SIGINT || l->run->granted) && !l->started) {
        l->giving = l->run->key != NULL;
        live->done = !l->giving;
        l->status = l->give_code = 130;
        fprintf(stderr, "%s: Force Terminated job %llu\n", l->run->s->program, (unsigned long long)l->run->job);
        return client_live_send(live, "{\"cancel\":true}");
    }
    if (info->ssi_signo == SIGINT) {
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
        int r = client_live_send(live, "{\"signal\":2}");
        return r < 0 ? r : client_live_send(live, "{\"cancel\":true}");
    }
    if (info->ssi_signo == SIGTERM || info->ssi_signo == SIGHUP) {
        fprintf(stderr, "%s: forcing job termination\n", l->run->s->program);
        fprintf(stderr, "%s: Job step aborted: Waiting up to 32 seconds for job step to finish.\n", l->run->s->program);
    }
    snprintf(text, sizeof text, "{\"signal\":%u}", info->ssi_signo);
    int r = client_live_send(live, text);
    return r == 0 && (info->ssi_signo == SIGTERM || info->ssi_signo == SIGHUP)
               ? client_live_send(live, "{\"cancel\":true}")
               : r;
}

static int end_rest(struct step_live *l) {
    fprintf(stderr, "%s: First task exited %us ago\n", l->run->s->program, l->run->wait_s);
    tell_terminating(l);
    l->told_wait = true;
    l->end_by_ms = 0;
    l->run->wait_s = 0;
    return client_live_send(&l->live, "{\"signal\":9}");
}

static int wait_ms(const struct client_live *live) {
    const struct step_live *l = (const struct step_live *)live;
    int64_t left = l->end_by_ms - clock_mono_ms();
    int ms = l->run->key ? LIVE_PING_MS / 2 : -1;
    return l->end_by_ms && (ms < 0 || left < ms) ? (int)(left > 0 ? left : 0) : ms;
}

static int turn(struct client_live *live, bool timed_out) {
    struct step_live *l = (struct step_live *)live;
    return l->end_by_ms && clock_mono_ms() >= l->end_by_ms ? end_rest(l) : 0;
}

// --- connections ---

// The request, and where its output goes on: the same key, so the controller finds the step it has made.
static void write_request(const struct client_live *live, bool again, struct buf *target, struct buf *out) {
    const struct step_live *l = (const struct step_live *)live;
    size_t tail = (size_t)l->run->step_depth;
    const struct buf *first = l->run->first;
    buf_adds(target, l->run->target);
    if (!again || !tail || first->len <= tail) {
        buf_add(out, first->data, first->len);
    } else {
        buf_add(out, first->data, first->len - tail);
        buf_adds(out, ",");
        client_live_positions(live, out);
        buf_add(out, first->data + first->len - tail, tail);
    }
    // It has started: if the controller does not know it any more, it must not be submitted again.
    if (again && l->run->alone && l->run->key && l->named_again && (l->told_granted || l->started)) {
        out->len--;
        buf_addf(out, ",\"job\":%llu}", (unsigned long long)l->run->job);
    }
}

static int connected(struct client_live *live, bool again) {
    struct step_live *l = (struct step_live *)live;
    return again && l->giving ? give_back(l) : 0;
}

static bool heeds_signals(const struct client_live *live) {
    return !((const struct step_live *)live)->child;
}

static void waits(struct client_live *live) {
    fprintf(stderr, "%s: the controller does not answer; waiting for it\n",
            ((struct step_live *)live)->run->s->program);
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
    if (r == -EINTR) {
        slurm_error(s, "%s; job %llu goes on", s->cli.error.text, job);
        return SLURM_FAILED;
    }
    if (run->attached) {
        slurm_error(s, "%s",
                    strstr(s->cli.error.text, "has no step")
                        ? "Unable to attach to job step: Invalid job id specified"
                        : s->cli.error.text);
        return SLURM_FAILED;
    }
    if (l->live.epoch) {
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
    static const struct client_live_ops ops = {write_request, connected, take_output, take_text,
                                               take_signal,   closed,    wait_ms,     turn,
                                               heeds_signals, waits};
    struct slurm *s = run->s;
    if (!slurm_client(s))
        return SLURM_FAILED;
    struct step_live l = {.live = {.cli = &s->cli,
                                   .ops = &ops,
                                   .signals = catch_signals(run->granted != NULL),
                                   .placed = run->key != NULL,
                                   .pty = run->pty,
                                   .input_open = run->input,
                                   .client = s->client},
                          .run = run};
    s->client = NULL;
    s->cli.error.code = 0;
    int r = client_live_run(&l.live);
    s->client = l.live.client;
    for (uint32_t i = 0; i < l.lines.len; i++) {
        put_lines(&l, l.lines.at[i], true);
        buf_done(&l.lines.at[i]->text);
        free(l.lines.at[i]);
    }
    vec_done(&l.lines);
    client_live_done(&l.live);
    return r < 0 ? problem(&l, r) : l.status;
}
