// acequia cp: the client starts itself inside the job as the other end of the copy, through the same session as exec,
// so that it runs as the job's user, in its container and within its limits.
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/client/session.h"
#include "cli/job/resolve.h"
#include "cli/job/transfer.h"
#include "model/message.h"
#include "model/units.h"
#include "verbs.h"

enum { PROGRESS_EVERY_MS = 200, PROGRESS_AFTER_MS = 1000, PROBLEMS_EXIT = 3 };

static const struct option_spec specs[] = {
    {"recursive", 'r', NULL, "Copy folders with what is in them.", 0, NULL, NULL},
    {"node", 'w', "NUMBER", "On the job's node with this number, from 0.", 0, NULL, NULL},
    {"quiet", 'q', NULL, "Do not show progress.", 0, NULL, NULL},
    {"serve-send", 0, NULL, "The other end: send to standard output.", OPTION_HIDDEN, NULL, NULL},
    {"serve-receive", 0, NULL, "The other end: receive from standard input.", OPTION_HIDDEN, NULL, NULL},
};
static const struct option_table table = OPTION_TABLE("Options", specs);

struct cp_progress {
    int64_t began_ms, shown_ms;
    bool on, shown;
};

static void note(const char *text) {
    cli_note("%s", text);
}

static void show_progress(void *ctx, const struct job_transfer *t) {
    struct cp_progress *p = ctx;
    int64_t now = clock_mono_ms();
    char done[UNIT_TEXT_MAX], all[UNIT_TEXT_MAX], rate[UNIT_TEXT_MAX];
    if (!p->on || now - p->began_ms < PROGRESS_AFTER_MS || now - p->shown_ms < PROGRESS_EVERY_MS)
        return;
    p->shown_ms = now;
    p->shown = true;
    size_format(t->bytes, done);
    size_format(t->bytes * 1000 / (uint64_t)(now - p->began_ms), rate);
    if (t->total)
        fprintf(stderr, "\r%s of %s (%llu %%), %s/s \033[K", done, size_format(t->total, all),
                (unsigned long long)(t->bytes * 100 / t->total), rate);
    else
        fprintf(stderr, "\r%s in %llu files, %s/s \033[K", done, (unsigned long long)t->files, rate);
}

// "12:path", "train:path", "12_3:path", "12+1:path": a job, unless a '/' comes before the colon.
static const char *remote_path(const char *argument) {
    const char *colon = strchr(argument, ':'), *slash = strchr(argument, '/');
    return colon && colon > argument && (!slash || slash > colon) ? colon + 1 : NULL;
}

struct cp_place {
    const char *job;  // its id
    uint32_t node;
    const char *path;
};

static int parse_place(struct cli *c, const char *argument, struct cp_place *out) {
    const char *path = remote_path(argument);
    char *job = arena_strndup(&c->arena, argument, (size_t)(path - argument) - 1), *one[] = {job, NULL};
    *out = (struct cp_place){.path = *path ? path : "."};
    if (option_u32(&c->options, "node", 0, 65535, &out->node, &c->error) < 0)
        return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    char **arguments = c->arguments;
    int count = c->count;
    c->arguments = one;
    c->count = 1;
    int status = job_resolve_arguments(c, 1, true);
    out->job = one[0];
    c->arguments = arguments;
    c->count = count;
    return status;
}

// In a process of its own: standard input and output are the ends of pipes.
static _Noreturn void run_session(struct cli *c, const struct cp_place *p, bool sends, bool recursive, int fd) {
    cleanup_buf struct buf first = {0}, target = {0};
    char key[SESSION_KEY_MAX];
    struct json_writer w = {.out = &first};
    const char *argv[] = {EXEC_OWN_PROGRAM,        "cp", sends ? "--serve-send" : "--serve-receive",
                          recursive ? "-r" : "-q", "--", p->path};
    if (dup2(fd, sends ? STDOUT_FILENO : STDIN_FILENO) < 0)
        _exit(CLI_FAILED);
    json_open(&w, '{');
    json_open_key(&w, "argv", '[');
    for (size_t i = 0; i < sizeof argv / sizeof *argv; i++)
        json_put_str(&w, argv[i]);
    json_close(&w, ']');
    json_kv_i64(&w, "node", p->node);
    if (client_session_key(key) == 0)
        json_kv_str(&w, "key", key);
    json_close(&w, '}');
    buf_adds(&target, "/v1/jobs/");
    http_percent_encode(&target, p->job);
    buf_adds(&target, "/exec");
    struct client_session s = {
        .cli = c, .kind = SESSION_EXEC, .target = buf_str(&target), .first = &first, .input = !sends};
    int status = client_session_run(&s);
    if (status && strstr(c->error.text, EXEC_OWN_PROGRAM))
        cli_note("the node's agent is of an earlier release, which cannot copy; upgrade it");
    fflush(NULL);
    _exit(status);
}

static int copy(struct cli *c, const char *local, const struct cp_place *p, bool to_job) {
    bool recursive = option_given(&c->options, "recursive");
    struct cp_progress progress = {.began_ms = clock_mono_ms(),
                                   .on = isatty(STDERR_FILENO) && !option_given(&c->options, "quiet")};
    struct job_transfer t = {
        .recursive = recursive, .note = note, .progress = show_progress, .ctx = &progress};
    if (!to_job)
        t.wanted = p->path;
    int ends[2], wstatus = 0;
    struct error e = {0};
    if (to_job && access(local, R_OK) < 0)  // before anything is started there
        return cli_failf(c, "%s: %s", local, strerror(errno));
    if (client_before_fork(c) < 0)
        return cli_fail(c);
    if (pipe(ends) < 0)
        return cli_failf(c, "no pipe: %s", strerror(errno));
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[to_job]);
        run_session(c, p, !to_job, recursive, ends[!to_job]);
    }
    close(ends[!to_job]);
    if (pid < 0) {
        close(ends[to_job]);
        return cli_failf(c, "no process: %s", strerror(errno));
    }
    signal(SIGPIPE, SIG_IGN);
    int r = to_job ? job_transfer_send(ends[1], local, &t, &e) : job_transfer_receive(ends[0], local, &t, &e);
    close(ends[to_job]);
    while (waitpid(pid, &wstatus, 0) < 0 && errno == EINTR)
        ;
    if (progress.shown)
        fprintf(stderr, "\r\033[K");
    int status = WIFEXITED(wstatus) ? WEXITSTATUS(wstatus) : CLI_FAILED;
    // The other end has said what was wrong; here it only looks like a pipe that broke.
    if (r < 0 && (r != -EPIPE || !status))
        cli_failf(c, "%s", e.text);
    return status == PROBLEMS_EXIT || (status == CLI_OK && (r < 0 || t.problems)) ? CLI_FAILED : status;
}

static int serve(struct cli *c, bool sends) {
    struct job_transfer t = {.recursive = option_given(&c->options, "recursive"), .note = note};
    struct error e = {0};
    signal(SIGPIPE, SIG_IGN);
    int r = sends ? job_transfer_send(STDOUT_FILENO, c->arguments[0], &t, &e)
                  : job_transfer_receive(STDIN_FILENO, c->arguments[0], &t, &e);
    if (r < 0)
        return r == -EPIPE ? CLI_FAILED : cli_failf(c, "%s", e.text);
    return t.problems ? PROBLEMS_EXIT : CLI_OK;
}

static int run(struct cli *c) {
    if (option_given(&c->options, "serve-send") || option_given(&c->options, "serve-receive"))
        return c->count == 1 ? serve(c, option_given(&c->options, "serve-send"))
                             : cli_usage(c, "one path is needed");
    if (c->count < 2)
        return cli_usage(
            c, "give what to copy and where to: acequia cp FILE JOB:PATH, or acequia cp JOB:PATH FILE");
    const char *to = c->arguments[c->count - 1];
    bool to_job = remote_path(to) != NULL;
    struct cp_place p;
    int status = CLI_OK, count = c->count - 1;
    for (int i = 0; i < count; i++)
        if (to_job == (remote_path(c->arguments[i]) != NULL))
            return cli_usage(
                c,
                to_job ? "\"%.60s\" is in a job, too; copy to or from this machine"
                       : "neither \"%.60s\" nor the last argument is in a job; write the one that is as JOB:PATH",
                c->arguments[i]);
    for (int i = 0; i < count; i++) {
        const char *from = c->arguments[i];
        int one = parse_place(c, to_job ? to : from, &p);
        if (one == CLI_OK)
            one = copy(c, to_job ? from : to, &p, to_job);
        status = status == CLI_OK ? one : status;
    }
    return status;
}

const struct verb verb_cp = {
    .name = "cp",
    .group = "Work",
    .arguments = "[-r] [-w NUMBER] FILE... JOB:PATH\n[-r] [-w NUMBER] JOB:PATH... FILE",
    .summary = "copy files to and from a running job",
    .text =
        "The other end runs inside the job, as its user, in its container and within its limits; a PATH that "
        "is "
        "not absolute is below the job's working directory. JOB is a number or a name; 12_3 is an element of "
        "an "
        "array, 12+1 a worker of an elastic job, as everywhere. Of a job on several nodes the first is meant "
        "unless --node says another. If the destination is a folder, the copy goes into it. A local name "
        "with a "
        "colon is written with ./ before it.",
    .examples = "acequia cp data.bin 12:/tmp\nacequia cp -r 12:checkpoints .\n"
                "acequia cp --node 1 12:/tmp/rank1.log .",
    .options = {&table, &job_pick_options, &cli_common_options},
    .run = run,
    .complete = "@file",
    .least = 1,
    .most = -1,
};
