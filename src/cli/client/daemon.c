// Owns starting and stopping of the daemons by pid file. A pid counts only while the process of that
// number is the daemon meant, so that a number that was handed out again is not mistaken for it.
#include "cli/client/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/text.h"
#include "model/paths.h"

int client_daemon_path(struct arena *a, const char **out, struct error *e) {
    const char *path = paths_program(a, NULL, "acequiad", "acequiad");
    *out = path;
    return path
               ? 0
               : error_set(e, ENOENT, "acequiad is not installed beside this program; install Acequia again");
}

int client_daemon_exec(struct cli *c, const char *role, char **arguments, int count, struct error *e) {
    const char *path;
    int r = client_daemon_path(&c->arena, &path, e);
    if (r < 0)
        return r;
    const char **argv = arena_alloc(&c->arena, ((size_t)count + 3) * sizeof *argv);
    int n = 0;
    argv[n++] = "acequiad";
    argv[n++] = role;
    for (int i = 0; i < count; i++)
        argv[n++] = arguments[i];
    execv(path, (char *const *)(uintptr_t)argv);
    return error_set(e, errno, "cannot start %s: %s", path, strerror(errno));
}

int client_daemon_exec_client(struct cli *c, struct error *e) {
    return client_daemon_exec(c, "client", c->argv + 1, c->argc - 1, e);
}

// When the process started, in clock ticks since boot; 0: there is no such process.
static uint64_t start_time(pid_t pid) {
    char path[64], text[1024];
    uint64_t v = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (n <= 0)
        return 0;
    text[n] = 0;
    char *p = strrchr(text, ')');  // the name may hold anything
    if (!p || p[1] != ' ' || p[2] == 'Z')
        return 0;
    for (int field = 2; p && field < 22; field++)
        p = strchr(p + 1, ' ');
    if (!p)
        return 0;
    p[1 + strcspn(p + 1, " ")] = 0;
    return parse_u64(p + 1, &v) == 0 ? v : 0;
}

static int write_pid(const char *path, pid_t pid, struct error *e) {
    char text[32];
    int n = snprintf(text, sizeof text, "%d\n", (int)pid);
    cleanup_close int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0 || write(fd, text, (size_t)n) != n)
        return error_set(e, errno, "cannot write %s: %s%s", path, strerror(errno), error_remedy(errno));
    return 0;
}

// Whether the process is "acequiad ROLE …".
static bool is_daemon(pid_t pid, const char *role) {
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid);
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, line, sizeof line - 1);
    if (n <= 0)
        return false;
    line[n] = 0;
    const char *slash = strrchr(line, '/'), *second = line + strlen(line) + 1;
    return streq(slash ? slash + 1 : line, "acequiad") && second < line + n && streq(second, role);
}

static pid_t pid_of_file(struct cli *c, const struct paths *p, const char *name) {
    char text[32] = "";
    uint64_t pid;
    cleanup_close int fd = open(paths_pid_file(p, &c->arena, name), O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (n <= 0)
        return 0;
    text[n] = 0;
    text[strcspn(text, " \n")] = 0;
    return parse_u64(text, &pid) < 0 || pid < 2 || pid > INT32_MAX ? 0 : (pid_t)pid;
}

pid_t client_daemon_running(struct cli *c, const struct paths *p, const char *name) {
    char host[256] = "";
    pid_t pid = pid_of_file(c, p, name);
    if (pid && is_daemon(pid, name))
        return pid;
    // An agent that was not started by "up" has told its number under its node's name.
    if (!streq(name, "agent") || gethostname(host, sizeof host - 1) < 0)
        return 0;
    host[strcspn(host, ".")] = 0;
    pid = pid_of_file(c, p, arena_printf(&c->arena, "agent-%s", host));
    return pid && is_daemon(pid, name) ? pid : 0;
}

pid_t client_daemon_program_running(struct cli *c, const struct paths *p, const char *name,
                                    const char *mark) {
    char path[64], line[4096];
    pid_t pid = pid_of_file(c, p, name);
    snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid);
    cleanup_close int fd = pid ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    ssize_t n = fd < 0 ? -1 : read(fd, line, sizeof line);
    return n > 0 && memmem(line, (size_t)n, mark, strlen(mark)) ? pid : 0;
}

static void become_daemon(const char *log, const char *path, const char *const *argv, int report) {
    setsid();
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
    if (null >= 0 && fd >= 0 && dup2(null, 0) >= 0 && dup2(fd, 1) >= 0 && dup2(fd, 2) >= 0) {
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        signal(SIGINT, SIG_DFL);
        signal(SIGPIPE, SIG_DFL);
        if (chdir("/") == 0)
            execv(path, (char *const *)(uintptr_t)argv);
    }
    int code = errno;
    ssize_t ignored = write(report, &code, sizeof code);
    _exit(ignored > 0 ? 127 : 126);
}

int client_daemon_start(struct cli *c, const struct paths *p, const char *name, const char *const *arguments,
                        pid_t *pid, struct error *e) {
    const char *path;
    int r = client_daemon_path(&c->arena, &path, e);
    return r < 0 ? r : client_daemon_program_start(c, p, name, path, arguments, pid, e);
}

int client_daemon_program_start(struct cli *c, const struct paths *p, const char *name, const char *path,
                                const char *const *arguments, pid_t *pid, struct error *e) {
    const char *log = paths_log_file(p, &c->arena, name);
    int pipe_fds[2], code = 0;
    if (pipe2(pipe_fds, O_CLOEXEC) < 0)
        return error_set(e, errno, "cannot start %s: %s", name, strerror(errno));
    cleanup_close int from = pipe_fds[0], to = pipe_fds[1];
    *pid = fork();
    if (*pid < 0)
        return error_set(e, errno, "cannot start %s: %s", name, strerror(errno));
    if (*pid == 0)
        become_daemon(log, path, arguments, to);
    close(TAKE_FD(to));
    if (read(from, &code, sizeof code) == (ssize_t)sizeof code) {
        waitpid(*pid, NULL, 0);
        return error_set(e, code, "cannot start %s with log file %s: %s", path, log, strerror(code));
    }
    int r = write_pid(paths_pid_file(p, &c->arena, name), *pid, e);
    if (r < 0) {  // nobody would find it to stop it
        kill(*pid, SIGTERM);
        waitpid(*pid, NULL, 0);
    }
    return r;
}

static int stop_process(struct cli *c, const struct paths *p, const char *name, pid_t pid, int timeout_ms,
                        struct error *e) {
    const char *file = paths_pid_file(p, &c->arena, name);
    if (!pid) {
        unlink(file);
        return 0;
    }
    uint64_t started = start_time(pid);
    int64_t deadline = clock_mono_ms() + timeout_ms;
    if (kill(pid, SIGTERM) < 0)
        return error_set(e, errno, "cannot stop %s (process %d): %s", name, (int)pid, strerror(errno));
    while (start_time(pid) == started) {
        if (clock_mono_ms() > deadline) {
            kill(pid, SIGKILL);
            deadline = INT64_MAX;
        }
        waitpid(pid, NULL, WNOHANG);
        usleep(5000);
    }
    unlink(file);
    return 1;
}

int client_daemon_stop(struct cli *c, const struct paths *p, const char *name, int timeout_ms,
                       struct error *e) {
    return stop_process(c, p, name, client_daemon_running(c, p, name), timeout_ms, e);
}

int client_daemon_program_stop(struct cli *c, const struct paths *p, const char *name, const char *mark,
                               int timeout_ms, struct error *e) {
    return stop_process(c, p, name, client_daemon_program_running(c, p, name, mark), timeout_ms, e);
}
