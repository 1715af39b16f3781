// The TLS transport of the blocking client: a TLS session between the caller and a plain socket.
#include "net/tls_client.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "connect.h"

struct transport {
    int fd;
    struct tls *tls;
    struct buf out;
    bool eof;
};

static int transport_fd(void *self) {
    return ((struct transport *)self)->fd;
}

static int flush(struct transport *t, int timeout_ms) {
    tls_output(t->tls, &t->out);
    int r = net_send_all(t->fd, t->out.data, t->out.len, timeout_ms);
    buf_clear(&t->out);
    return r;
}

// Moves what the socket has into the session: bytes, 0 at the end, or a negative errno.
static ssize_t receive(struct transport *t) {
    char cipher[32 * 1024];
    ssize_t n;
    do
        n = recv(t->fd, cipher, sizeof cipher, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    tls_feed(t->tls, cipher, (size_t)n);
    return n;
}

static ssize_t transport_read(void *self, void *p, size_t n) {
    struct transport *t = self;
    for (;;) {
        ssize_t got = tls_read(t->tls, p, n);
        if (got == -EPIPE)
            return 0;
        if (got)
            return got;
        // An end without the orderly one could be cut off by anybody: it counts as a failure.
        ssize_t r = receive(t);
        if (r <= 0)
            return r == 0 ? -ECONNRESET : r;
    }
}

static int transport_write(void *self, const void *p, size_t n, int timeout_ms) {
    struct transport *t = self;
    int r = tls_write(t->tls, p, n, &t->out);
    return r < 0 ? r : flush(t, timeout_ms);
}

static bool transport_buffered(void *self) {
    return tls_readable(((struct transport *)self)->tls);
}

static void transport_close(void *self) {
    struct transport *t = self;
    tls_end(t->tls);
    flush(t, 0);
    close(t->fd);
    tls_free(t->tls);
    buf_done(&t->out);
    free(t);
}

static int handshake(struct transport *t, int timeout_ms, struct error *e) {
    for (;;) {
        int done = tls_handshake(t->tls);
        int r = flush(t, timeout_ms);
        if (done < 0)
            return error_set(e, EPROTO, "the TLS handshake failed: %s", tls_problem(t->tls));
        if (r < 0)
            return error_set(e, -r, "the TLS handshake failed: %s", strerror(-r));
        if (done)
            return 0;
        struct pollfd p = {.fd = t->fd, .events = POLLIN};
        r = poll(&p, 1, timeout_ms);
        if (r == 0)
            return error_set(e, ETIMEDOUT, "the server did not answer the TLS handshake in time");
        ssize_t n = receive(t);
        if (n == 0 || (n < 0 && n != -EAGAIN))
            return error_set(e, ECONNRESET, "the server ended the TLS handshake");
    }
}

int http_client_tls(const char *host, uint16_t port, struct tls_context *context, int timeout_ms,
                    struct http_client **out, struct error *e) {
    int fd = net_connect_tcp(host, port, timeout_ms, e);
    if (fd < 0)
        return fd;
    struct transport *t = xcalloc(1, sizeof *t);
    t->fd = fd;
    t->tls = tls_new(context);
    int r = handshake(t, timeout_ms, e);
    if (r < 0) {
        transport_close(t);
        return error_prefix(e, "%s port %u", host, port);
    }
    cleanup_buf struct buf name = {0};
    buf_addf(&name, strchr(host, ':') ? "[%s]:%u" : "%s:%u", host, port);
    *out = http_client_new((struct http_transport){t, transport_read, transport_write, transport_fd,
                                                   transport_buffered, transport_close},
                           name.data);
    return 0;
}
