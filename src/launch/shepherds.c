// Owns the zygote and the socket to it. The agent keeps the receiving end open too, so packets
// that no shepherd took yet survive the death of a zygote.
#include "launch/shepherds.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "launch/fds.h"
#include "launch/spool.h"

enum { FDS_MAX = 3, READY_MAX = 256 };

struct shepherds {
    char *program, *spool_path, *cgroup, *tag;
    unsigned ready_min, ready_max;
    uint64_t open_files;
    int send_fd, receive_fd;
    pid_t pid;
};

// Only what is safe between fork and exec.
_Noreturn static void run_zygote(const struct shepherds *s, char *const *argv) {
    static char *const env[] = {NULL};
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    fcntl(s->receive_fd, F_SETFD, 0);
    struct rlimit files;
    if (s->open_files && getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = s->open_files;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    execve(s->program, argv, env);
    _exit(127);
}

static int start_zygote(struct shepherds *s, struct error *e) {
    char fd[16], ready_min[16], ready_max[16], name[] = "acequia-shepherd";
    if (access(s->program, X_OK) < 0)
        return error_set(e, errno, "the shepherd program %s cannot be executed: %m", s->program);
    snprintf(fd, sizeof fd, "%d", s->receive_fd);
    snprintf(ready_min, sizeof ready_min, "%u", s->ready_min);
    snprintf(ready_max, sizeof ready_max, "%u", s->ready_max);
    char *argv[] = {name, s->spool_path, fd, s->cgroup, s->tag, ready_min, ready_max, NULL};
    pid_t pid = fork();
    if (pid < 0)
        return error_set(e, errno, "cannot fork: %m");
    if (pid == 0)
        run_zygote(s, argv);
    s->pid = pid;
    return 0;
}

int launch_shepherds_start(struct shepherds **out, const struct shepherds_options *o, struct error *e) {
    int pair[2];
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned ready = cpus < 1 ? 2 : cpus > READY_MAX / 4 ? READY_MAX / 2 : (unsigned)cpus * 2;
    if (o->spool_path[0] != '/')
        return error_set(e, EINVAL, "spool folder %s: must be an absolute path", o->spool_path);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return error_set(e, errno, "cannot make a socket pair: %m");
    struct shepherds *s = xcalloc(1, sizeof *s);
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    *s = (struct shepherds){
        .program = xstrdup(o->program),
        .spool_path = xstrdup(o->spool_path),
        .cgroup = xstrdup(o->cgroup),
        .tag = xstrdup(o->tag),
        .send_fd = pair[0],
        .receive_fd = pair[1],
        .ready_min = o->ready_min ? o->ready_min : ready,
        .ready_max = o->ready_max ? o->ready_max : ready * 2,
        .open_files = o->open_files,
    };
    int rc = start_zygote(s, e);
    if (rc < 0) {
        launch_shepherds_free(s);
        return rc;
    }
    *out = s;
    return 0;
}

struct shepherds *launch_shepherds_free(struct shepherds *s) {
    if (!s)
        return NULL;
    close(s->send_fd);
    close(s->receive_fd);
    if (s->pid > 0)
        waitpid(s->pid, NULL, 0);
    free(s->program);
    free(s->spool_path);
    free(s->cgroup);
    free(s->tag);
    free(s);
    return NULL;
}

int launch_shepherds_launch(struct shepherds *s, uint64_t job, uint32_t attempt, const int *fds, int nfds) {
    char name[SPOOL_NAME_MAX];
    if (nfds < 0 || nfds > FDS_MAX)
        return -EINVAL;
    spool_name(name, job, attempt);
    return launch_fds_send(s->send_fd, name, strlen(name), fds, nfds);
}

int launch_shepherds_fd(const struct shepherds *s) {
    return s->send_fd;
}

pid_t launch_shepherds_pid(const struct shepherds *s) {
    return s->pid;
}

int launch_shepherds_restart(struct shepherds *s, struct error *e) {
    return start_zygote(s, e);
}
