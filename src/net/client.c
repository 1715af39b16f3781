// The blocking client: requests, responses whole or streamed, and WebSocket over the same
// connection. Bytes read past the end of a message wait in `in` for the next one.
#include "net/client.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rand.h"
#include "handshake.h"

enum { READ_BYTES = 64 * 1024 };

struct http_client {
    struct http_transport transport;
    char *host;
    struct buf in;
    size_t in_at;  // consumed part of `in`
    int wake_fd;
    bool usable;
    bool is_ws;
    struct ws ws;
    struct rand mask;
};

struct http_client *http_client_new(struct http_transport transport, const char *host) {
    struct http_client *c = xcalloc(1, sizeof *c);
    c->transport = transport;
    c->host = xstrdup(host);
    c->wake_fd = -1;
    c->usable = true;
    return c;
}

struct http_client *http_client_free(struct http_client *c) {
    if (!c)
        return NULL;
    c->transport.close(c->transport.self);
    if (c->is_ws)
        ws_done(&c->ws);
    buf_done(&c->in);
    free(c->host);
    free(c);
    return NULL;
}

int http_client_fd(const struct http_client *c) {
    return c->transport.fd(c->transport.self);
}

void http_client_wake_on(struct http_client *c, int fd) {
    c->wake_fd = fd;
}

bool http_client_reusable(const struct http_client *c) {
    return c->usable && !c->is_ws;
}

static int wait_readable(const struct http_client *c, int timeout_ms) {
    struct pollfd p[2] = {{.fd = http_client_fd(c), .events = POLLIN},
                          {.fd = c->wake_fd, .events = POLLIN}};
    for (;;) {
        int r = poll(p, 2, timeout_ms);
        if (r < 0 && errno != EINTR)
            return -errno;
        if (r == 0)
            return -ETIMEDOUT;
        if (r > 0)
            return p[1].revents ? -EINTR : 0;
    }
}

// Gets more bytes, waiting only when none are there: 1, 0 at the end, or a negative errno.
static int fill(struct http_client *c, int timeout_ms) {
    if (c->in_at == c->in.len) {
        c->in_at = 0;
        buf_clear(&c->in);
    }
    char *p = buf_reserve(&c->in, READ_BYTES);
    for (;;) {
        ssize_t n = c->transport.read(c->transport.self, p, READ_BYTES);
        if (n > 0) {
            c->in.len += (size_t)n;
            return 1;
        }
        if (n != -EAGAIN)
            return (int)n;
        int r = wait_readable(c, timeout_ms);
        if (r < 0)
            return r;
    }
}

static int send_request(struct http_client *c, const struct http_request *q, int timeout_ms,
                        struct error *e) {
    cleanup_buf struct buf out = {0};
    bool bodiless = !q->body_len && (strcmp(q->method, "GET") == 0 ||
                                     strcmp(q->method, "HEAD") == 0);
    http_write_request_head(&out, q->method, q->target, c->host, q->content_type,
                            bodiless ? -1 : (int64_t)q->body_len, q->extra);
    buf_add(&out, q->body, q->body_len);
    int r = c->transport.write(c->transport.self, out.data, out.len, timeout_ms);
    // A server that refuses early may have answered and closed before reading everything.
    if (r == -EPIPE || r == -ECONNRESET)
        return 0;
    return r < 0 ? error_set(e, -r, "sending to the server failed: %s", strerror(-r)) : 0;
}

static int read_failed(int r, struct error *e) {
    if (r == 0)
        return error_set(e, ECONNRESET, "the server closed the connection before it answered");
    if (r == -EINTR)
        return error_set(e, EINTR, "interrupted");
    if (r == -ETIMEDOUT)
        return error_set(e, ETIMEDOUT, "the server did not answer in time");
    return error_set(e, -r, "reading from the server failed: %s", strerror(-r));
}

static int deliver(struct http_message *m, http_body_fn fn, void *arg) {
    if (!fn || m->body.len == 0 || m->status < 200 || m->status > 299)
        return 0;
    int r = fn(arg, m->body.data, m->body.len);
    buf_clear(&m->body);
    return r;
}

// Reads one message, interim ones included.
static int read_message(struct http_client *c, struct http_parser *p, http_body_fn fn, void *arg,
                        int timeout_ms, struct error *e) {
    while (p->state != HTTP_STATE_DONE) {
        if (c->in_at == c->in.len) {
            int r = fill(c, timeout_ms);
            if (r == 0 && http_parser_eof(p) == 0)
                break;
            if (r <= 0)
                return read_failed(r, e);
        }
        ssize_t n = http_parser_feed(p, c->in.data + c->in_at, c->in.len - c->in_at);
        if (n < 0)
            return error_set(e, EPROTO, "the server's answer is not valid HTTP: %s", p->fail_text);
        c->in_at += (size_t)n;
        int r = deliver(p->message, fn, arg);
        if (r)
            return r;
    }
    return 0;
}

int http_client_stream(struct http_client *c, const struct http_request *q,
                       struct http_message *out, http_body_fn fn, void *arg, struct error *e) {
    http_message_init(out);
    if (!http_client_reusable(c))
        return error_set(e, ENOTCONN, "the connection to the server has ended");
    c->usable = false;
    int timeout_ms = q->timeout_ms ? q->timeout_ms : HTTP_CLIENT_TIMEOUT_MS;
    int r = send_request(c, q, timeout_ms, e);
    if (r < 0)
        return r;
    for (;;) {
        struct http_parser p;
        http_parser_begin(&p, HTTP_RESPONSE, out, 0, fn ? INT64_MAX : UINT32_MAX);
        p.no_body = strcmp(q->method, "HEAD") == 0;
        r = read_message(c, &p, fn, arg, timeout_ms, e);
        if (r)
            return r;
        if (out->status >= 200 || out->status == 101)
            break;
        http_message_done(out);
    }
    c->usable = out->keep_alive && out->status != 101;
    return 0;
}

int http_client_call(struct http_client *c, const struct http_request *q, struct http_message *out,
                     struct error *e) {
    return http_client_stream(c, q, out, NULL, NULL, e);
}

int http_client_ws_open(struct http_client *c, const char *target, const char *extra,
                        struct http_message *refusal, struct error *e) {
    struct {
        unsigned char nonce[16];
        uint64_t seed;
    } secret;
    struct http_message own, *m = refusal ? refusal : &own;
    http_message_init(m);
    int r = rand_secret(&secret, sizeof secret);
    if (r < 0)
        return error_set(e, -r, "the kernel gives no random numbers: %s", strerror(-r));
    char key[WS_KEY_LEN + 1];
    ws_key(secret.nonce, key);
    cleanup_buf struct buf lines = {0};
    ws_handshake_lines(&lines, key);
    buf_adds(&lines, extra ? extra : "");
    struct http_request q = {.method = "GET", .target = target, .extra = lines.data};
    r = http_client_call(c, &q, m, e);
    if (r == 0)
        r = ws_handshake_check(m, key, e);
    if (m == &own)
        http_message_done(m);
    if (r < 0)
        return r;
    rand_seed(&c->mask, secret.seed);
    ws_init(&c->ws, WS_CLIENT, 0);
    c->is_ws = true;
    return 0;
}

static int send_frame(struct http_client *c, struct buf *frame) {
    return c->transport.write(c->transport.self, frame->data, frame->len, HTTP_CLIENT_TIMEOUT_MS);
}

int http_client_ws_send(struct http_client *c, enum ws_opcode opcode, const void *data,
                        size_t len) {
    cleanup_buf struct buf frame = {0};
    if (!c->is_ws)
        return -ENOTCONN;
    ws_encode(&frame, WS_CLIENT, opcode, data, len, (uint32_t)rand_u64(&c->mask));
    return send_frame(c, &frame);
}

int http_client_ws_close(struct http_client *c, int status, const char *reason) {
    cleanup_buf struct buf frame = {0};
    if (!c->is_ws)
        return -ENOTCONN;
    ws_encode_close(&frame, WS_CLIENT, status, reason, (uint32_t)rand_u64(&c->mask));
    return send_frame(c, &frame);
}

bool http_client_ws_buffered(const struct http_client *c) {
    return c->in_at < c->in.len || c->transport.buffered(c->transport.self);
}

int http_client_ws_recv(struct http_client *c, struct ws_event *event, int timeout_ms) {
    if (!c->is_ws)
        return -ENOTCONN;
    for (;;) {
        bool got = false;
        ssize_t n = ws_feed(&c->ws, c->in.data + c->in_at, c->in.len - c->in_at, event, &got);
        if (n < 0)
            return (int)n;
        c->in_at += (size_t)n;
        if (got && event->type == WS_PING) {
            int r = http_client_ws_send(c, WS_PONG, event->data, event->len);
            if (r < 0)
                return r;
        } else if (got && event->type != WS_PONG) {
            return 1;
        } else if (!got) {
            int r = fill(c, timeout_ms);
            if (r <= 0)
                return r == 0 ? -EPIPE : r == -ETIMEDOUT ? 0 : r;
        }
    }
}
