// Owns the asking side of the control socket.
#include "launch/control.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "launch/fds.h"
#include "launch/spool.h"

enum { FDS_MAX = 3, RETRY_MS = 5, SENDS_MAX = 5 };

static int send_once(int spool_fd, uint64_t job, uint32_t attempt, const struct control_request *r,
                     const int *fds, int nfds) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    char name[SPOOL_NAME_MAX];
    if (nfds < 0 || nfds > FDS_MAX)
        return -EINVAL;
    cleanup_close int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    // By descriptor, because a socket's path may not be longer than about a hundred bytes.
    spool_name(name, job, attempt);
    snprintf(a.sun_path, sizeof a.sun_path, "/proc/self/fd/%d/%s/control", spool_fd, name);
    if (connect(fd, (struct sockaddr *)&a, sizeof a) < 0)
        return -errno;
    int rc = launch_fds_send(fd, r, sizeof *r, fds, nfds);
    if (rc < 0)
        return rc;
    return TAKE_FD(fd);
}

// A shepherd does not wait long for the request once somebody has connected. On a busy machine the asking process may
// not get to send it in time and finds the connection closed: nothing was received, so it is sent again.
int launch_control_send(int spool_fd, uint64_t job, uint32_t attempt, const struct control_request *r,
                        const int *fds, int nfds) {
    int fd = -EPIPE;
    for (int i = 0; i < SENDS_MAX && fd == -EPIPE; i++)
        fd = send_once(spool_fd, job, attempt, r, fds, nfds);
    return fd;
}

int launch_control_receive(int fd_in, int timeout_ms, struct control_reply *out) {
    cleanup_close int fd = fd_in;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    struct control_reply reply = {.progress_milli = -1};
    int n;
    // A signal, such as the end of a child, is no answer: the shepherd has the request and carries it out.
    int64_t until = clock_mono_ms() + timeout_ms;
    for (int64_t left = timeout_ms; (n = poll(&p, 1, (int)left)) < 0 && errno == EINTR;) {
        left = until - clock_mono_ms();
        left = left > 0 ? left : 0;
    }
    if (n <= 0)
        return n < 0 ? -errno : -ETIMEDOUT;
    ssize_t len = recv(fd, &reply, sizeof reply, 0);
    if (len < 0)
        return -errno;
    if (len != sizeof reply && len != CONTROL_REPLY_MIN)
        return -ECONNRESET;
    reply.progress_text[sizeof reply.progress_text - 1] = 0;
    *out = reply;
    return reply.result;
}

int launch_control_receive_fd(int fd) {
    struct control_reply reply;
    int brought = -1, n;
    ssize_t len = launch_fds_receive(fd, &reply, sizeof reply, &brought, 1, &n);
    if (len < 0)
        return (int)len;
    // A shepherd of an earlier release does not know the request and brings nothing.
    if (len < (ssize_t)CONTROL_REPLY_MIN || (reply.result == 0 && !n))
        reply.result = -ECONNRESET;
    if (reply.result < 0 && n)
        close(brought);
    return reply.result < 0 ? reply.result : brought;
}

int launch_control_call(int spool_fd, uint64_t job, uint32_t attempt, const struct control_request *r,
                        const int *fds, int nfds, int timeout_ms, struct control_reply *out) {
    int64_t until = clock_mono_ms() + timeout_ms;
    struct timespec nap = {.tv_nsec = RETRY_MS * 1000000};
    for (;;) {
        int fd = launch_control_send(spool_fd, job, attempt, r, fds, nfds);
        if (fd >= 0)
            return launch_control_receive(fd, timeout_ms, out);
        bool early = fd == -ENOENT || fd == -ECONNREFUSED || fd == -EAGAIN;
        if (!early || clock_mono_ms() >= until)
            return fd;
        nanosleep(&nap, NULL);
    }
}
