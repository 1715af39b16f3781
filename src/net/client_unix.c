// The unix-socket transport of the blocking client.
#include <errno.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/client.h"
#include "connect.h"

static int unix_fd(void *self) {
    return (int)(intptr_t)self;
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
    return net_send_all(unix_fd(self), p, n, timeout_ms);
}

static bool unix_buffered(void *self) {
    return false;
}

static void unix_close(void *self) {
    close(unix_fd(self));
}

int http_client_unix(const char *path, struct http_client **out, struct error *e) {
    int fd = net_connect_unix(path, e);
    if (fd < 0)
        return fd;
    *out = http_client_new((struct http_transport){(void *)(intptr_t)fd, unix_read, unix_write,
                                                   unix_fd, unix_buffered, unix_close},
                           "localhost");
    return 0;
}
