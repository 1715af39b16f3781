// Dialling: connect on a worker thread, then TLS, then the HTTP upgrade, then the connection is
// the WebSocket's. Until then this file owns it and collects the reason of a failure.
#include "net/dial.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/rand.h"
#include "connect.h"
#include "handshake.h"
#include "socket_internal.h"

struct dial {
    struct net_conn conn;
    uv_work_t work;
    struct net_ws *ws;
    char *unix_path, *host, *target, *extra;
    uint16_t port;
    struct tls_context *tls;
    uint32_t timeout_ms;
    int fd;  // what the worker yields, and `error`
    struct error error;
    bool worker_done;
    char key[WS_KEY_LEN + 1];
    struct http_message response;
    struct http_parser parser;
    char read_buffer[CONN_READ_BYTES];
};

static struct dial *dial_of(struct net_conn *c) {
    return (struct dial *)c;  // the first member
}

static void dial_free(struct net_conn *c) {
    struct dial *d = dial_of(c);
    http_message_done(&d->response);
    free(d->unix_path);
    free(d->host);
    free(d->target);
    free(d->extra);
    free(d);
}

static void give_up(struct dial *d, int code, const char *text) {
    if (!d->error.code)
        error_set(&d->error, code, "%s", text);
    net_conn_destroy(&d->conn);
}

static void send_upgrade(struct net_conn *c) {
    struct dial *d = dial_of(c);
    cleanup_buf struct buf lines = {0}, head = {0}, host = {0};
    ws_handshake_lines(&lines, d->key);
    buf_adds(&lines, d->extra ? d->extra : "");
    if (d->unix_path)
        buf_adds(&host, "localhost");
    else
        buf_addf(&host, strchr(d->host, ':') ? "[%s]:%u" : "%s:%u", d->host, d->port);
    http_write_request_head(&head, "GET", d->target, host.data, NULL, -1, lines.data);
    http_parser_begin(&d->parser, HTTP_RESPONSE, &d->response, 0, 64 * 1024);
    net_conn_write(c, head.data, head.len);
}

static size_t on_data(struct net_conn *c, const char *data, size_t len) {
    struct dial *d = dial_of(c);
    ssize_t n = http_parser_feed(&d->parser, data, len);
    if (n < 0) {
        give_up(d, EPROTO, "the server's answer is not valid HTTP");
        return len;
    }
    if (d->parser.state == HTTP_STATE_DONE) {
        if (ws_handshake_check(&d->response, d->key, &d->error) < 0) {
            net_conn_destroy(c);
            return len;
        }
        net_conn_set_deadline(c, 0);
        net_ws_opened(TAKE_PTR(d->ws));
    }
    return (size_t)n;
}

static void on_eof(struct net_conn *c) {
    give_up(dial_of(c), ECONNRESET, "the server closed the connection before it answered");
}

static void on_deadline(struct net_conn *c) {
    give_up(dial_of(c), ETIMEDOUT, "the server did not answer in time");
}

static void on_gone(struct net_conn *c) {
    struct dial *d = dial_of(c);
    const char *reason = d->worker_done && d->error.code ? d->error.text
                         : c->problem                      ? c->problem
                         : c->problem_code ? uv_strerror(c->problem_code)
                                           : "given up";
    net_ws_failed(TAKE_PTR(d->ws), reason);
}

static const struct conn_ops dial_ops = {
    .on_open = send_upgrade,
    .on_data = on_data,
    .on_eof = on_eof,
    .on_deadline = on_deadline,
    .on_gone = on_gone,
};

// On a worker thread: touches only what was set before it was queued, and fd and error.
static void do_connect(uv_work_t *work) {
    struct dial *d = work->data;
    d->fd = d->unix_path ? net_connect_unix(d->unix_path, &d->error)
                         : net_connect_tcp(d->host, d->port, (int)d->timeout_ms, &d->error);
}

static void fill_peer(struct dial *d) {
    struct net_peer *p = &d->conn.peer;
    struct ucred cred = {.uid = (uid_t)-1, .gid = (gid_t)-1};
    socklen_t len = sizeof cred;
    if (d->unix_path)
        getsockopt(d->fd, SOL_SOCKET, SO_PEERCRED, &cred, &len);
    *p = (struct net_peer){.kind = d->unix_path ? NET_PEER_UNIX : NET_PEER_TLS,
                           .uid = cred.uid,
                           .gid = cred.gid,
                           .pid = cred.pid};
    if (d->unix_path)
        memcpy(p->address, "unix", 5);
    else
        snprintf(p->address, sizeof p->address, "[%.48s]:%u", d->host, d->port);
}

static void on_connected(uv_work_t *work, int status) {
    struct dial *d = work->data;
    struct net_conn *c = &d->conn;
    d->worker_done = true;
    if (c->closing || status < 0 || d->fd < 0) {
        if (d->fd >= 0)
            close(d->fd);
        net_conn_destroy(c);
        net_conn_unref(c);
        return;
    }
    fill_peer(d);
    int r = d->unix_path ? uv_pipe_open(&c->pipe, d->fd) : uv_tcp_open(&c->tcp, d->fd);
    if (r < 0) {
        close(d->fd);
        give_up(d, -r, uv_strerror(r));
    } else {
        net_conn_set_deadline(c, d->timeout_ms);
        if (!d->unix_path)
            c->tls = tls_new(d->tls);
        net_conn_start(c);
        if (d->unix_path)
            send_upgrade(c);
    }
    net_conn_unref(c);
}

static void make_key(struct dial *d) {
    unsigned char nonce[16];
    if (rand_secret(nonce, sizeof nonce) < 0)
        abort();  // the kernel always has random numbers once it is up
    ws_key(nonce, d->key);
}

struct net_ws *net_dial_ws(uv_loop_t *loop, const struct net_dial_options *o,
                           const struct net_ws_callbacks *callbacks, void *user) {
    assert(o->target && (o->unix_path || (o->host && o->tls)));
    struct dial *d = xcalloc(1, sizeof *d);
    struct net_conn *c = &d->conn;
    signal(SIGPIPE, SIG_IGN);  // as in the server
    http_message_init(&d->response);
    d->unix_path = o->unix_path ? xstrdup(o->unix_path) : NULL;
    d->host = o->host ? xstrdup(o->host) : NULL;
    d->target = xstrdup(o->target);
    d->extra = o->extra ? xstrdup(o->extra) : NULL;
    d->port = o->port;
    d->tls = o->tls;
    d->timeout_ms = o->timeout_ms ? o->timeout_ms : NET_DIAL_TIMEOUT_MS;
    d->fd = -1;
    make_key(d);
    if (d->unix_path)
        uv_pipe_init(loop, &c->pipe, 0);
    else
        uv_tcp_init(loop, &c->tcp);
    c->output_max = o->output_max;
    c->keep_bytes = CONN_KEEP_DIALLED_BYTES;
    c->write_timeout_ms = o->write_timeout_ms;
    net_conn_init(c, loop, d->read_buffer);
    c->ops = &dial_ops;
    c->free_fn = dial_free;
    d->ws = net_ws_prepare(c, o->message_max, callbacks, user);
    d->work.data = d;
    net_conn_ref(c);  // the worker's
    int r = uv_queue_work(loop, &d->work, do_connect, on_connected);
    assert(r == 0);
    return d->ws;
}
