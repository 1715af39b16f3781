// The unix-socket transport of the blocking client.
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/cleanup.h"
#include "net/client.h"

static int unix_fd(void *self) {
    return (int)(intptr_t)self;
}

static int wait_writable(int fd, int timeout_ms) {
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    for (;;) {
        int r = poll(&p, 1, timeout_ms);
        if (r > 0)
            return 0;
        if (r == 0)
            return -ETIMEDOUT;
        if (errno != EINTR)
            return -errno;
    }
}

static ssize_t unix_read(void *self, void *p, size_t n) {
    for (;;) {
        ssize_t got = recv(unix_fd(self), p, n, MSG_DONTWAIT);
        if (got >= 0)
            return got;
        if (errno != EINTR)
            return -errno;
    }
}

static int unix_write(void *self, const void *p, size_t n, int timeout_ms) {
    const char *at = p;
    while (n) {
        ssize_t put = send(unix_fd(self), at, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (put < 0 && errno == EAGAIN) {
            int r = wait_writable(unix_fd(self), timeout_ms);
            if (r < 0)
                return r;
            continue;
        }
        if (put < 0 && errno != EINTR)
            return -errno;
        if (put > 0) {
            at += put;
            n -= (size_t)put;
        }
    }
    return 0;
}

static bool unix_buffered(void *self) {
    return false;
}

static void unix_close(void *self) {
    close(unix_fd(self));
}

int http_client_unix(const char *path, struct http_client **out, struct error *e) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    size_t len = strlen(path);
    if (len >= sizeof a.sun_path)
        return error_set(e, ENAMETOOLONG, "the socket path %s is longer than %zu bytes", path,
                         sizeof a.sun_path - 1);
    memcpy(a.sun_path, path, len);
    cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error_set(e, errno, "no socket: %s", strerror(errno));
    while (connect(fd, (struct sockaddr *)&a, sizeof a) < 0)
        if (errno != EINTR)
            return error_set(e, errno, "connecting to %s failed: %s", path, strerror(errno));
    *out = http_client_new(
        (struct http_transport){(void *)(intptr_t)TAKE_FD(fd), unix_read, unix_write, unix_fd,
                                unix_buffered, unix_close},
        "localhost");
    return 0;
}
