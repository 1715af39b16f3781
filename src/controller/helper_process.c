// Owns the processes of small programs: starts them, writes the question, gathers the answer, ends the slow ones. Each
// has a thread, which does nothing else: to start a process takes as long as the machine is busy, and as the
// controller is large, which the loop must not wait for.
#include "helper_process.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "controller.h"
#include "model/paths.h"

extern char **environ;

enum { PIECE = 16384, EXIT_LOOK_MS = 5, ANSWER_FD = 3 };

struct helper {
    struct controller *controller;
    helper_done done;
    void *arg;
    struct arena arena;  // of program and arguments
    const char *program;
    char **args;
    int answer;  // a descriptor that it gets as number 3; -1: none
    uint32_t limit_ms;
    struct buf input, output;
    int status;
    int cancel;  // an eventfd: the controller ends
    pthread_t thread;
    uv_async_t over;
};

static void wipe(struct buf *b) {
    if (b->data)
        explicit_bzero(b->data, b->cap);
    buf_done(b);
}

static void helper_free(struct helper *h) {
    struct controller *c = h->controller;
    for (uint32_t i = 0; i < c->helpers.len; i++)
        if (c->helpers.at[i] == h) {
            vec_remove_swap(&c->helpers, i);
            break;
        }
    wipe(&h->input);
    wipe(&h->output);
    if (h->cancel >= 0)
        close(h->cancel);
    arena_done(&h->arena);
    free(h);
}

// --- the thread ---

static int spawn(const struct helper *h, int input, int output, pid_t *pid) {
    static char *const env[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, input, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
    if (h->answer >= 0)
        posix_spawn_file_actions_adddup2(&files, h->answer, ANSWER_FD);
    posix_spawnattr_init(&how);
    posix_spawnattr_setsigmask(&how, &none);
    posix_spawnattr_setsigdefault(&how, &all);
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    // Our own programs find what we find, as the certificates of the database.
    int r = posix_spawn(pid, h->program, &files, &how, h->args, h->answer < 0 ? env : environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&how);
    return -r;
}

// One piece of the question. False: all of it is written, or nobody reads it.
static bool write_piece(const struct helper *h, int fd, size_t *at) {
    ssize_t n = write(fd, h->input.data + *at, h->input.len - *at);
    if (n > 0)
        *at += (size_t)n;
    return (n > 0 || errno == EAGAIN || errno == EINTR) && *at < h->input.len;
}

// One piece of the answer. False: that was all, or it is too much.
static bool read_piece(struct helper *h, int fd, bool *too_much) {
    char piece[PIECE];
    ssize_t n = read(fd, piece, sizeof piece);
    if (n > 0 && h->output.len + (size_t)n <= HELPER_OUTPUT_MAX)
        buf_add(&h->output, piece, (size_t)n);
    else if (n > 0)
        *too_much = true;
    explicit_bzero(piece, sizeof piece);
    return !*too_much && (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)));
}

// Until it has said all. False: it took too long, said too much, or the controller ends.
static bool converse(struct helper *h, int *input, int output, int64_t until_ms) {
    size_t at = 0;
    bool too_much = false, says = true;
    while (says) {
        int64_t left_ms = until_ms - clock_mono_ms();
        struct pollfd fds[] = {{h->cancel, POLLIN, 0}, {output, POLLIN, 0}, {*input, POLLOUT, 0}};
        if (left_ms <= 0 ||
            (poll(fds, *input < 0 ? 2 : 3, left_ms < INT_MAX ? (int)left_ms : INT_MAX) < 0 &&
             errno != EINTR) ||
            fds[0].revents)
            return false;
        if (*input >= 0 && fds[2].revents &&
            !write_piece(h, *input, &at)) {  // it reads to the end of its input
            close(*input);
            *input = -1;
        }
        if (fds[1].revents)
            says = read_piece(h, output, &too_much);
    }
    return !too_much;
}

// It has closed its output and is about to end.
static bool wait_for_end(const struct helper *h, pid_t pid, int64_t until_ms, int *status) {
    struct pollfd cancelled = {h->cancel, POLLIN, 0};
    while (waitpid(pid, status, WNOHANG) != pid)
        if (clock_mono_ms() >= until_ms || poll(&cancelled, 1, EXIT_LOOK_MS) > 0)
            return false;
    return true;
}

static void run(struct helper *h) {
    int input[2] = {-1, -1}, output[2] = {-1, -1}, status = 0, r = 0;
    int64_t until_ms = clock_mono_ms() + h->limit_ms;
    pid_t pid = -1;
    h->status = -1;
    if (pipe2(input, O_CLOEXEC) < 0 || pipe2(output, O_CLOEXEC) < 0)
        r = -errno;
    r = r < 0 ? r : spawn(h, input[0], output[1], &pid);
    if (input[0] >= 0)
        close(input[0]);
    if (output[1] >= 0)
        close(output[1]);
    if (r < 0) {
        log_warn("cannot start %s: %s", h->program, strerror(-r));
    } else {
        fcntl(input[1], F_SETFL, O_NONBLOCK);
        if (!h->input.len) {
            close(input[1]);
            input[1] = -1;
        }
        if (!converse(h, &input[1], output[0], until_ms) || !wait_for_end(h, pid, until_ms, &status)) {
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
        } else if (WIFEXITED(status)) {
            h->status = WEXITSTATUS(status);
        }
    }
    if (input[1] >= 0)
        close(input[1]);
    if (output[0] >= 0)
        close(output[0]);
    wipe(&h->input);
}

static void *begin(void *arg) {
    struct helper *h = arg;
    run(h);
    uv_async_send(&h->over);
    return NULL;
}

// --- the loop ---

static void on_closed(uv_handle_t *handle) {
    helper_free(handle->data);
}

static void on_over(uv_async_t *over) {
    struct helper *h = over->data;
    pthread_join(h->thread, NULL);
    h->done(h->arg, h->status, &h->output);
    uv_close((uv_handle_t *)over, on_closed);
}

// Signals are the loop's.
static int start_thread(struct helper *h) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int r = pthread_create(&h->thread, NULL, begin, h);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -r;
}

static void take_args(struct helper *h, const struct helper_question *q) {
    uint32_t n = 0;
    while (q->args && q->args[n])
        n++;
    h->args = arena_alloc(&h->arena, (n + 3) * sizeof *h->args);
    for (uint32_t i = 0; i < n; i++)
        h->args[i] = arena_strdup(&h->arena, q->args[i]);
    if (n)
        return;
    h->args[0] = arena_strdup(&h->arena, h->program);
    h->args[1] = q->role ? arena_strdup(&h->arena, q->role) : NULL;
}

int helper_ask(struct controller *c, struct helper_question *q, struct error *e) {
    cleanup_arena struct arena a = {0};
    const char *program = q->path ? q->path : paths_program(&a, NULL, q->module, q->program);
    int r = 0;
    if (c->helpers.len >= HELPERS_MAX)
        r = error_set(e, EAGAIN, "too many logins at once; try again in a moment");
    else if (!program)
        r = error_set(e, ENOTSUP, "the program %s is not installed beside acequiad", q->program);
    if (r < 0) {
        wipe(&q->input);
        return r;
    }
    struct helper *h = xcalloc(1, sizeof *h);
    *h = (struct helper){.controller = c,
                         .done = q->done,
                         .arg = q->arg,
                         .input = q->input,
                         .limit_ms = q->limit_ms,
                         .answer = q->answer ? q->answer : -1,
                         .cancel = eventfd(0, EFD_CLOEXEC)};
    q->input = (struct buf){0};
    h->program = arena_strdup(&h->arena, program);
    take_args(h, q);
    r = h->cancel < 0 ? -errno : uv_async_init(&c->loop, &h->over, on_over);
    h->over.data = h;
    if (r < 0) {
        helper_free(h);
        return error_set(e, EAGAIN, "cannot start %s: %s", program, strerror(-r));
    }
    if ((r = start_thread(h)) < 0) {
        uv_close((uv_handle_t *)&h->over, on_closed);
        return error_set(e, EAGAIN, "cannot start %s: %s", program, strerror(-r));
    }
    vec_push(&c->helpers, h);
    return 0;
}

void helpers_free(struct controller *c) {
    while (c->helpers.len) {
        struct helper *h = c->helpers.at[0];
        uint64_t one = 1;
        if (write(h->cancel, &one, sizeof one) != sizeof one)
            log_warn("%s cannot be ended", h->program);
        pthread_join(h->thread, NULL);
        helper_free(h);
    }
    vec_done(&c->helpers);
}
