// Owns the answering side of the control socket. Only the user that runs the agent may ask.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cgroup/procs.h"
#include "launch/control.h"
#include "launch/fds.h"
#include "shepherd.h"

enum { LISTEN_FAILED = -2, BACKLOG = 64, RECEIVE_TIMEOUT_MS = 100, SOCKET_PATIENCE_S = 8 };

void steps_listen(struct shepherd *s) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    cleanup_close int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    snprintf(a.sun_path, sizeof a.sun_path, "/proc/self/fd/%d/control", s->folder_fd);
    s->listen_fd = LISTEN_FAILED;
    unlinkat(s->folder_fd, "control", 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) < 0 || listen(fd, BACKLOG) < 0)
        return;
    s->listen_fd = TAKE_FD(fd);
}

static int receive(int conn, struct control_request *r, int fds[3]) {
    struct timeval t = {.tv_usec = RECEIVE_TIMEOUT_MS * 1000};
    int nfds;
    setsockopt(conn, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
    ssize_t n = launch_fds_receive(conn, r, sizeof *r, fds, 3, &nfds);
    if (n < 0)
        return (int)n;
    if (n == sizeof *r)
        return nfds;
    while (nfds)
        close(fds[--nfds]);
    return -EBADMSG;
}

static bool may_ask(int conn) {
    struct ucred cred;
    socklen_t len = sizeof cred;
    return getsockopt(conn, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0 &&
           (cred.uid == 0 || cred.uid == geteuid());
}

static int start_step(struct shepherd *s, uint32_t step, const int *fds, int nfds,
                      int64_t now_ms) {
    struct error e;
    struct shepherd_unit *u = NULL;
    if (!step || unit_find(s, step))
        return -EEXIST;
    for (int i = 1; i < UNITS_MAX && !u; i++)
        if (s->units[i].phase == UNIT_FREE)
            u = &s->units[i];
    if (!u || s->units[0].phase != UNIT_RUNNING)
        return u ? -ESHUTDOWN : -EUSERS;
    int rc = unit_load(s, u, step, &e);
    for (int i = 0; i < nfds; i++)
        u->fds[i] = fds[i];
    if (rc < 0) {
        unit_done(s, u);
        return rc;
    }
    unit_start(s, u, now_ms);
    unit_hint(s, u);
    return 0;
}

static int suspend(struct shepherd *s, bool stop, int64_t now_ms) {
    if (s->suspended == stop)
        return 0;
    s->suspended = stop;
    if (stop)
        s->suspended_since_ms = now_ms;
    else
        s->suspended_ms += now_ms - s->suspended_since_ms;
    attempt_signal(s, SIGNAL_ALL, stop ? SIGSTOP : SIGCONT);
    return 0;
}

static void usage_now(struct shepherd *s, struct control_reply *reply, int64_t now_ms) {
    struct shepherd_unit *m = &s->units[0];
    struct launch_usage *out = &reply->usage;
    enum cgroup_oom oom;
    if (!s->site->has[CG_MEMORY] || !s->site->has[CG_PIDS]) {
        struct procs_usage use;
        cgroup_procs_tree_usage(getpid(), &use);
        reply->memory_now_bytes = use.rss_bytes;
        reply->processes = use.count;
    }
    *out = (struct launch_usage){.user_us = m->user_us, .system_us = m->system_us,
                                 .peak_bytes = m->peak_bytes, .wall_ms = now_ms - m->start_ms};
    cgroup_slot_usage(&s->slot, out, &oom);
    cgroup_slot_now(&s->slot, &reply->memory_now_bytes, &reply->processes);
    // Kernels before 5.19 do not keep the peak of a group of version 2: then it is what was seen.
    if (reply->memory_now_bytes > m->peak_bytes)
        m->peak_bytes = reply->memory_now_bytes;
    progress_look(s, now_ms - m->start_ms, reply);
}

// Each request says a state ("suspended", "this limit"), so that the agent may send it twice. A signal is the
// exception: it is sent once, and lost when the attempt ends in the same moment.
static int handle(struct shepherd *s, const struct control_request *r, const int *fds, int nfds,
                  int64_t now_ms, struct control_reply *reply) {
    struct shepherd_unit *u = r->step && r->type != CONTROL_STEP ? unit_find(s, r->step) : NULL;
    if (r->step && r->type != CONTROL_STEP && !u)
        return -ESRCH;
    if (r->signal < 0 || r->signal > 64 || r->target > SIGNAL_STEPS || r->value_ms < 0)
        return -EINVAL;
    switch (r->type) {
    case CONTROL_SIGNAL:
        if (u)
            unit_signal(s, u, r->signal);
        else
            attempt_signal(s, r->target, r->signal);
        return 0;
    case CONTROL_KILL:
        if (u)
            unit_end(s, u, ENDED_KILLED, r->why, r->signal, r->value_ms, now_ms);
        else
            attempt_end(s, ENDED_KILLED, r->why, r->signal, r->value_ms, now_ms);
        return 0;
    case CONTROL_STEP:
        return start_step(s, r->step, fds, nfds, now_ms);
    case CONTROL_TIME_LIMIT:
        s->limit_ms = r->value_ms;
        // The warning before the end is given again before the new one.
        s->warned = false;
        return 0;
    case CONTROL_SUSPEND:
    case CONTROL_RESUME:
        return suspend(s, r->type == CONTROL_SUSPEND, now_ms);
    case CONTROL_RELAY:
        u = u ? u : &s->units[0];
        if (u->relay)
            relay_wake(u);
        return 0;
    case CONTROL_MPI: return u ? mpi_hub(s, u) : -EINVAL;
    case CONTROL_USAGE:
        usage_now(s, reply, now_ms);
        return 0;
    default:
        return -EINVAL;
    }
}

// By a process of its own, as the user: the path is the user's, and the file system may hang.
static void connect_socket(struct shepherd *s, int conn, const char *path) {
    struct control_reply reply = {.progress_milli = -1};
    if (fork() != 0)
        return;
    child_reset_signals();
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    alarm(SOCKET_PATIENCE_S);
    int fd = shepherd_become(&s->units[0].req) ? network_connect_socket(s, path) : -EPERM;
    reply.result = fd < 0 ? fd : 0;
    _exit(launch_fds_send(conn, &reply, sizeof reply, &fd, fd >= 0) < 0);
}

void steps_serve(struct shepherd *s, int64_t now_ms) {
    struct control_request r;
    int fds[3];
    cleanup_close int conn = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC);
    if (conn < 0)
        return;
    struct control_reply reply = {.result = -EPERM, .progress_milli = -1};
    cleanup_close int connected = -1;
    if (may_ask(conn)) {
        int nfds = receive(conn, &r, fds);
        if (nfds < 0)
            return;
        const char *path = r.type == CONTROL_CONNECT ? network_socket_path(s, r.value_ms) : NULL;
        if (path) {
            connect_socket(s, conn, path);
            return;
        }
        if (r.type == CONTROL_CONNECT)
            reply.result = connected = network_connect(s, r.value_ms);
        else
            reply.result = handle(s, &r, fds, nfds, now_ms, &reply);
        if (connected >= 0)
            reply.result = 0;
        // A started step owns the descriptors (and has closed them).
        for (int i = 0; i < nfds; i++)
            if (r.type != CONTROL_STEP || reply.result == -EEXIST || reply.result == -EUSERS ||
                reply.result == -ESHUTDOWN)
                close(fds[i]);
    }
    fcntl(conn, F_SETFL, O_NONBLOCK);
    if (launch_fds_send(conn, &reply, sizeof reply, &connected, connected >= 0) < 0)
        return;  // whoever asked is gone
}
