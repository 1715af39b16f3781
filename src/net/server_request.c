// Requests and their answers. A request keeps its connection's memory alive, so that a handler can
// answer whenever it likes; what it writes goes to the connection when its turn has come, into its
// own buffer before that, and nowhere when the client has gone.
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "server_internal.h"
#include "socket_internal.h"

static struct net_server_request *request_of(const struct net_request *req) {
    return (struct net_server_request *)(uintptr_t)req;  // the first member
}

struct net_server_request *net_request_new(struct http_conn *h) {
    struct net_server_request *r = xmalloc(sizeof *r);
    memset(r, 0, offsetof(struct net_server_request, message));
    http_message_init(&r->message);
    memset((char *)r + offsetof(struct net_server_request, conn), 0,
           sizeof *r - offsetof(struct net_server_request, conn));
    r->conn = h;
    net_conn_ref(&h->conn);
    r->pub.http = &r->message;
    r->pub.peer = &h->conn.peer;
    r->pub.body = r->pub.query = "";
    return r;
}

struct net_server_request *net_request_free(struct net_server_request *r) {
    if (!r)
        return NULL;
    assert(!r->linked && r->conn->queued >= r->out.len);
    r->conn->queued -= r->out.len;
    net_conn_queued(&r->conn->conn, r->conn->queued);
    http_message_done(&r->message);
    buf_done(&r->out);
    buf_done(&r->extra);
    buf_done(&r->late_text);
    buf_done(&r->capture.body);
    net_conn_unref(&r->conn->conn);
    free(r);
    return NULL;
}

bool net_request_gone(const struct net_request *req) {
    const struct net_server_request *r = request_of(req);
    return r->gone || r->conn->conn.closing;
}

const char *net_request_account(const struct net_request *req) {
    const struct http_conn *h = request_of(req)->conn;
    return h->budget ? h->budget->key : "";
}

void net_request_set_pass(struct net_request *req, const char *pass) {
    struct http_conn *h = request_of(req)->conn;
    assert(strlen(pass) <= NET_PASS_MAX);
    snprintf(h->pass, sizeof h->pass, "%s", pass);
}

void net_request_watch(struct net_request *req, void (*on_close)(struct net_request *, void *user),
                       void (*on_drain)(struct net_request *, void *user), void *user) {
    struct net_server_request *r = request_of(req);
    r->on_close = on_close;
    r->on_drain = on_drain;
    r->watch_user = user;
}

int net_reply_header(struct net_request *req, const char *name, const char *value) {
    struct net_server_request *r = request_of(req);
    if (!http_header_ok(name, value))
        return -EINVAL;
    buf_adds(&r->extra, name);
    buf_adds(&r->extra, ": ");
    buf_adds(&r->extra, value);
    buf_adds(&r->extra, "\r\n");
    return 0;
}

static ssize_t emit(struct net_server_request *r, const void *data, size_t len) {
    struct http_conn *h = r->conn;
    if (net_request_gone(&r->pub))
        return -EPIPE;
    if (h->first == r)
        return r->streaming ? net_conn_write_bounded(&h->conn, data, len)
                            : net_conn_write(&h->conn, data, len);
    if (h->queued + len > h->conn.output_max) {
        net_conn_destroy(&h->conn);
        return -ENOBUFS;
    }
    h->queued += len;
    buf_add(&r->out, data, len);
    net_conn_queued(&h->conn, h->queued);
    return (ssize_t)r->out.len;
}

// The answer is complete: the request leaves the handler's hands.
static int complete(struct net_server_request *r) {
    struct http_conn *h = r->conn;
    assert(!r->done);
    if (net_request_gone(&r->pub)) {
        if (r->linked)
            http_conn_unlink(r);
        net_request_free(r);
        return -EPIPE;
    }
    r->done = true;
    if (r->message.upgrade)
        h->upgrading = false;
    // The connection must outlive the request that may hold its last other reference.
    net_conn_ref(&h->conn);
    if (h->first == r)
        http_conn_advance(h);
    net_conn_unref(&h->conn);
    return 0;
}

static bool is_head(const struct net_server_request *r) {
    return r->message.method && strcmp(r->message.method, "HEAD") == 0;
}

static const char *extra_of(const struct net_server_request *r) {
    return r->extra.len ? r->extra.data : NULL;
}

static void tell(const struct net_server_request *r, const struct net_request *req, int status, bool streams) {
    const struct net_server *s = r->conn->server;  // gone when the connection is
    if (s && s->options.on_reply)
        s->options.on_reply(req, status, streams, s->options.user);
}

void net_request_capture(struct net_request *req, size_t max, net_answer_fn fn, void *user) {
    struct net_server_request *r = request_of(req);
    assert(!r->streaming && !r->done);
    r->capture.fn = fn;
    r->capture.user = user;
    r->capture.max = max;
}

// Hands over what was collected; the request is then answered by the function.
static int captured(struct net_server_request *r, int status, const char *type, const void *body,
                    size_t len) {
    net_answer_fn fn = r->capture.fn;
    struct buf kept = r->capture.body;
    r->capture.fn = NULL;
    r->capture.body = (struct buf){0};
    fn(&r->pub, status, type, body ? body : kept.data,
       body ? (len < r->capture.max ? len : r->capture.max) : kept.len, r->capture.user);
    buf_done(&kept);
    return 0;
}

int net_reply(struct net_request *req, int status, const char *content_type, const void *body,
              size_t len) {
    struct net_server_request *r = request_of(req);
    if (r->capture.fn)
        return captured(r, status, content_type, len ? body : "", len);
    assert(!r->streaming && status >= 200 && len <= INT32_MAX);
    tell(r, req, status, false);
    struct net_conn *c = &r->conn->conn;
    if (!net_request_gone(req)) {
        bool outer = !c->corked;  // head and body leave together
        cleanup_buf struct buf head = {0};
        http_write_response_head(&head, status, content_type, (int64_t)len, !r->last, extra_of(r));
        net_conn_cork(c);
        emit(r, head.data, head.len);
        if (len && !is_head(r) && status != 204 && status != 304)
            emit(r, body, len);
        if (outer)
            net_conn_uncork(c);
    }
    return complete(r);
}

int net_reply_stream_start(struct net_request *req, int status, const char *content_type) {
    return net_reply_stream_start_length(req, status, content_type, -1);
}

int net_reply_stream_start_length(struct net_request *req, int status, const char *content_type,
                                  int64_t length) {
    struct net_server_request *r = request_of(req);
    if (r->capture.fn) {
        r->capture.status = status;
        r->capture.type = content_type;
        return 0;
    }
    assert(!r->streaming && status >= 200 && status != 204 && status != 304);
    tell(r, req, status, true);
    r->streaming = true;
    r->chunked = length < 0 && r->message.minor == 1;
    if (length < 0 && !r->chunked)
        r->last = true;
    cleanup_buf struct buf text = {0};
    int64_t framing = r->chunked ? HTTP_CHUNKED : HTTP_UNTIL_CLOSE;
    http_write_response_head(&text, status, content_type, length < 0 ? framing : length, !r->last,
                             extra_of(r));
    ssize_t n = emit(r, text.data, text.len);
    return n < 0 ? (int)n : 0;
}

ssize_t net_reply_stream_write(struct net_request *req, const void *data, size_t len) {
    struct net_server_request *r = request_of(req);
    if (r->capture.fn) {
        size_t room = r->capture.max - r->capture.body.len;
        buf_add(&r->capture.body, data, len < room ? len : room);
        return net_request_gone(req) ? -EPIPE : 0;
    }
    assert(r->streaming && !r->done);
    if (len == 0 || is_head(r))
        return net_request_gone(req) ? -EPIPE : (ssize_t)net_reply_stream_pending(req);
    if (!r->chunked)
        return emit(r, data, len);
    cleanup_buf struct buf chunk = {0};
    buf_reserve(&chunk, len + 24);
    http_write_chunk(&chunk, data, len);
    return emit(r, chunk.data, chunk.len);
}

size_t net_reply_stream_pending(const struct net_request *req) {
    const struct net_server_request *r = request_of(req);
    return r->gone ? 0 : net_conn_pending(&r->conn->conn) + r->out.len;
}

int net_reply_stream_end(struct net_request *req) {
    struct net_server_request *r = request_of(req);
    if (r->capture.fn)
        return captured(r, r->capture.status, r->capture.type, NULL, 0);
    assert(r->streaming);
    if (r->chunked && !is_head(r)) {
        cleanup_buf struct buf end = {0};
        http_write_last_chunk(&end);
        emit(r, end.data, end.len);
    }
    return complete(r);
}

void net_reply_stream_abort(struct net_request *req) {
    struct net_server_request *r = request_of(req);
    if (r->capture.fn) {
        captured(r, 503, r->capture.type, NULL, 0);
        return;
    }
    assert(r->streaming);
    if (!net_request_gone(req))
        net_conn_destroy(&r->conn->conn);
    complete(r);
}

bool net_request_wants_ws(const struct net_request *req) {
    const struct http_message *m = req->http;
    const char *version = http_message_header(m, "Sec-WebSocket-Version");
    const char *key = http_message_header(m, "Sec-WebSocket-Key");
    char accept[WS_ACCEPT_LEN + 1];
    return m->upgrade && http_message_has_token(m, "Upgrade", "websocket") && version &&
           strcmp(version, "13") == 0 && key && ws_accept(key, accept) == 0 &&
           strcmp(m->method, "GET") == 0 && m->body.len == 0;
}

// A client that will send nothing more cannot use what it asked for: it counts as gone.
static bool can_upgrade(struct net_server_request *r) {
    if (r->conn->conn.eof)
        net_conn_destroy(&r->conn->conn);
    return !net_request_gone(&r->pub);
}

// Takes the connection away from HTTP; the request is freed.
static struct net_conn *detach(struct net_server_request *r) {
    struct http_conn *h = r->conn;
    assert(h->first == r && h->count == 1 && r->message.upgrade);
    h->upgraded = true;
    net_conn_set_deadline(&h->conn, 0);
    http_conn_unlink(r);
    struct net_conn *c = &h->conn;
    net_request_free(r);
    net_conn_resume(c);
    return c;
}

// A browser names the page that opens a socket. Only pages of this server may: a page from elsewhere could use what the
// browser knows. Programs send no Origin.
static bool origin_ok(const struct net_request *req) {
    const char *origin = http_message_header(req->http, "Origin"), *host = http_message_header(req->http, "Host");
    if (!origin)
        return true;
    const char *at = strstr(origin, "://");
    return at && host && strcasecmp(at + 3, host) == 0;
}

static bool refuse_origin(struct net_request *req) {
    static const char text[] = "This page may not open a WebSocket here: its Origin is not this server.";
    if (origin_ok(req))
        return false;
    net_reply(req, 403, "text/plain; charset=utf-8", text, sizeof text - 1);
    return true;
}

struct net_ws *net_upgrade_ws(struct net_request *req, const char *protocol,
                              const struct net_ws_callbacks *callbacks, void *user) {
    static const char text[] = "This is a WebSocket: an upgrade with version 13 and a key is due.";
    struct net_server_request *r = request_of(req);
    if (!net_request_wants_ws(req)) {
        net_reply_header(req, "Sec-WebSocket-Version", "13");
        net_reply(req, 426, "text/plain; charset=utf-8", text, sizeof text - 1);
        return NULL;
    }
    if (refuse_origin(req))
        return NULL;
    if (!can_upgrade(r)) {
        complete(r);
        return NULL;
    }
    char accept[WS_ACCEPT_LEN + 1];
    ws_accept(http_message_header(req->http, "Sec-WebSocket-Key"), accept);
    net_reply_header(req, "Connection", "Upgrade");
    net_reply_header(req, "Upgrade", "websocket");
    net_reply_header(req, "Sec-WebSocket-Accept", accept);
    if (protocol)
        net_reply_header(req, "Sec-WebSocket-Protocol", protocol);
    cleanup_buf struct buf head = {0};
    http_write_response_head(&head, 101, NULL, 0, true, extra_of(r));
    emit(r, head.data, head.len);
    size_t message_max = r->conn->server ? r->conn->server->options.ws_message_max : 0;
    return net_ws_attach(detach(r), WS_SERVER, message_max, callbacks, user);
}

struct net_raw *net_upgrade_raw(struct net_request *req, const struct net_raw_callbacks *callbacks,
                                void *user) {
    static const char text[] = "An upgrade of the connection is due here.";
    struct net_server_request *r = request_of(req);
    if (!can_upgrade(r)) {
        complete(r);
        return NULL;
    }
    if (!req->http->upgrade) {
        net_reply(req, 426, "text/plain; charset=utf-8", text, sizeof text - 1);
        return NULL;
    }
    if (refuse_origin(req))
        return NULL;
    return net_raw_attach(detach(r), callbacks, user);
}
