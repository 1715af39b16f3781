// Connecting and sending on plain sockets; nothing here needs an event loop.
#include "connect.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/cleanup.h"

int net_connect_unix(const char *path, struct error *e) {
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
    return TAKE_FD(fd);
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

static int connect_address(const struct addrinfo *a, int timeout_ms) {
    cleanup_close int fd =
        socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
    if (fd < 0)
        return -errno;
    if (connect(fd, a->ai_addr, a->ai_addrlen) < 0) {
        if (errno != EINPROGRESS)
            return -errno;
        int r = wait_writable(fd, timeout_ms);
        if (r < 0)
            return r;
        int problem = 0;
        socklen_t len = sizeof problem;
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &problem, &len) < 0)
            return -errno;
        if (problem)
            return -problem;
    }
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    return TAKE_FD(fd);
}

int net_connect_tcp(const char *host, uint16_t port, int timeout_ms, struct error *e) {
    char service[8];
    snprintf(service, sizeof service, "%u", port);
    struct addrinfo *list = NULL, hints = {.ai_socktype = SOCK_STREAM};
    int g = getaddrinfo(host, service, &hints, &list);
    if (g != 0)
        return error_set(e, EHOSTUNREACH, "the host %s is not known: %s", host, gai_strerror(g));
    int fd = -EHOSTUNREACH;
    for (const struct addrinfo *a = list; a && fd < 0; a = a->ai_next)
        fd = connect_address(a, timeout_ms);
    freeaddrinfo(list);
    if (fd < 0)
        return error_set(e, -fd, "connecting to %s port %u failed: %s", host, port, strerror(-fd));
    return fd;
}

int net_send_all(int fd, const void *p, size_t n, int timeout_ms) {
    const char *at = p;
    while (n) {
        ssize_t put = send(fd, at, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (put < 0 && errno == EAGAIN) {
            int r = wait_writable(fd, timeout_ms);
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
