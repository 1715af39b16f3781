// Runs commands of an engine: bounded in time and in what they may say.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "engine.h"

enum { LIMIT_MS = 100000, OUTPUT_MAX = 16 << 20 };

extern char **environ;

// Until it has closed both. False: it took too long or said too much.
static bool converse(int input, int output, int errors, const char *text, struct buf *out, struct buf *err) {
    int64_t until_ms = clock_mono_ms() + LIMIT_MS;
    size_t len = text ? strlen(text) : 0, at = 0;
    bool open[2] = {true, true};
    while (open[0] || open[1]) {
        int64_t left_ms = until_ms - clock_mono_ms();
        struct pollfd fds[] = {{open[0] ? output : -1, POLLIN, 0},
                               {open[1] ? errors : -1, POLLIN, 0},
                               {at < len ? input : -1, POLLOUT, 0}};
        if (left_ms <= 0 || (poll(fds, 3, (int)left_ms) < 0 && errno != EINTR))
            return false;
        for (int i = 0; i < 2; i++) {
            char piece[16384];
            ssize_t n = fds[i].revents ? read(fds[i].fd, piece, sizeof piece) : -1;
            if (n > 0)
                buf_add(i ? err : out, piece, (size_t)n);
            if (n == 0)
                open[i] = false;
        }
        if (fds[2].revents) {
            ssize_t n = write(input, text + at, len - at);
            at = n > 0 ? at + (size_t)n : len;
        }
        if (at == len && input >= 0) {
            close(input);
            input = -1;
        }
        if (out->len + err->len > OUTPUT_MAX)
            return false;
    }
    if (input >= 0)
        close(input);
    return true;
}

int engine_run(const char *const *argv, const char *input, struct arena *a, const char **output, const char **errors,
               int *status, struct error *e) {
    cleanup_buf struct buf out = {0}, err = {0};
    posix_spawn_file_actions_t files;
    int in[2] = {-1, -1}, to[2] = {-1, -1}, bad[2] = {-1, -1};
    pid_t pid;
    if (pipe2(in, O_CLOEXEC) < 0 || pipe2(to, O_CLOEXEC) < 0 || pipe2(bad, O_CLOEXEC) < 0)
        return error_set(e, errno, "no pipe can be made: %m");
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, in[0], 0);
    posix_spawn_file_actions_adddup2(&files, to[1], 1);
    posix_spawn_file_actions_adddup2(&files, bad[1], 2);
    int r = posix_spawnp(&pid, argv[0], &files, NULL, (char **)(uintptr_t)argv, environ);
    posix_spawn_file_actions_destroy(&files);
    close(in[0]);
    close(to[1]);
    close(bad[1]);
    bool good = r == 0 && converse(in[1], to[0], bad[0], input, &out, &err);
    if (r == 0 && !good)
        kill(pid, SIGKILL);
    if (r != 0)
        close(in[1]);
    close(to[0]);
    close(bad[0]);
    if (r == 0)
        waitpid(pid, status, 0);
    if (r != 0)
        return error_set(e, r, "%s cannot be started: %s", argv[0], strerror(r));
    if (!good)
        return error_set(e, ETIMEDOUT, "%s did not end within %d s", argv[0], LIMIT_MS / 1000);
    *output = arena_strdup(a, buf_str(&out));
    *errors = arena_strdup(a, buf_str(&err));
    return 0;
}
