// Stands for the server and the look-up of users: see rig.h.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>

#include "../admission.h"
#include "../app.h"
#include "base/cleanup.h"
#include "rig.h"

// --- users ---

const struct net_peer fake_root = {.kind = NET_PEER_UNIX, .address = "unix"};
const struct net_peer fake_alice = {.kind = NET_PEER_UNIX, .uid = 1001, .gid = 1001, .address = "unix"};
const struct net_peer fake_bob = {.kind = NET_PEER_UNIX, .uid = 1002, .gid = 1002, .address = "unix"};
const struct net_peer fake_slow = {.kind = NET_PEER_UNIX, .uid = 1003, .gid = 1003, .address = "unix"};
const struct net_peer fake_lost = {.kind = NET_PEER_UNIX, .uid = 1004, .gid = 1004, .address = "unix"};
bool fake_users_answer;

static const struct user_info known[] = {
    {.uid = 0, .gid = 0, .name = "root", .home = "/root", .shell = "/bin/sh"},
    {.uid = 1001, .gid = 1001, .name = "alice", .home = "/home/alice", .shell = "/bin/sh"},
    {.uid = 1002, .gid = 1002, .name = "bob", .home = "/home/bob", .shell = "/bin/sh"},
    {.uid = 1003, .gid = 1003, .name = "carol", .home = "/home/carol", .shell = "/bin/sh"},
    {.uid = 1005, .gid = 1005, .name = "dave", .home = "/home/dave", .shell = "/bin/sh"},
    {.uid = 1006, .gid = 1006, .name = "erin", .home = "/home/erin", .shell = "/bin/sh"},
    {.uid = 1007, .gid = 1007, .name = "frank", .home = "/home/frank", .shell = "/bin/sh"},
};

static int find(uint32_t uid, const char *name, const struct user_info **out, struct error *e) {
    if (!name && uid == fake_lost.uid)
        return error_set(e, ETIMEDOUT, "who user %u is cannot be found out now; try again later", uid);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (name ? strcmp(known[i].name, name) == 0 : known[i].uid == uid) {
            if (known[i].uid == fake_slow.uid && !fake_users_answer)
                return -EINPROGRESS;
            *out = &known[i];
            return 0;
        }
    return -ENOENT;
}

int users_start(struct users **out, struct error *e) {
    *out = NULL;
    return 0;
}

struct users *users_free(struct users *u) {
    return NULL;
}

int users_by_uid(struct users *u, uint32_t uid, int64_t now_ms, const struct user_info **out,
                 struct error *e) {
    return find(uid, NULL, out, e);
}

int users_by_name(struct users *u, const char *name, int64_t now_ms, const struct user_info **out,
                  struct error *e) {
    return find(0, name, out, e);
}

const struct user_info *users_last(const struct users *u, uint32_t uid, const char *name) {
    const struct user_info *out = NULL;
    return find(uid, name, &out, NULL) == 0 ? out : NULL;
}

int users_fd(const struct users *u) {
    static int fd = -1;
    if (fd < 0)
        fd = eventfd(0, EFD_CLOEXEC);  // nothing ever comes
    return fd;
}

bool users_read(struct users *u, int64_t now_ms) {
    return false;
}

bool users_tick(struct users *u, int64_t now_ms) {
    return false;
}

// --- answers ---

static struct fake_request *fake_of(const struct net_request *req) {
    return (struct fake_request *)(uintptr_t)req;
}

static void replied(struct fake_request *q, int status, bool streams) {
    assert_int_equal(q->status, 0);  // one answer for a request
    q->status = status;
    api_replied(&q->pub, status, streams, &q->rig->c);
}

int net_reply_header(struct net_request *req, const char *name, const char *value) {
    if (!http_header_ok(name, value))
        return -EINVAL;
    buf_addf(&fake_of(req)->headers, "%s: %s\r\n", name, value);
    return 0;
}

void net_request_capture(struct net_request *req, size_t max, net_answer_fn fn, void *user) {
    fake_of(req)->capture = fn;
    fake_of(req)->capture_user = user;
}

int net_reply(struct net_request *req, int status, const char *content_type, const void *body, size_t len) {
    struct fake_request *q = fake_of(req);
    if (q->capture) {
        net_answer_fn fn = q->capture;
        q->capture = NULL;
        fn(req, status, content_type, body, len, q->capture_user);
        return 0;
    }
    assert_false(q->done);
    replied(q, status, false);
    if (content_type)
        net_reply_header(req, "Content-Type", content_type);
    buf_add(&q->body, body, len);
    q->done = true;
    return q->gone ? -EPIPE : 0;
}

int net_reply_stream_start(struct net_request *req, int status, const char *content_type) {
    struct fake_request *q = fake_of(req);
    q->captured_status = status;
    if (q->capture)
        return 0;
    replied(q, status, true);
    net_reply_header(req, "Content-Type", content_type);
    q->streaming = true;
    return q->gone ? -EPIPE : 0;
}

bool net_request_gone(const struct net_request *req) {
    return fake_of((struct net_request *)(uintptr_t)req)->gone;
}

const char *net_request_account(const struct net_request *req) {
    static char account[64];
    char network[NET_ADDRESS_MAX];
    net_address_network(req->peer->address, network, sizeof network);
    if (req->peer->kind == NET_PEER_UNIX)
        snprintf(account, sizeof account, "uid %u", (unsigned)req->peer->uid);
    else
        snprintf(account, sizeof account, "%s %.40s", req->peer->has_cert ? "node" : "address", network);
    return account;
}

int net_reply_stream_start_length(struct net_request *req, int status, const char *content_type,
                                  int64_t length) {
    return net_reply_stream_start(req, status, content_type);
}

ssize_t net_reply_stream_write(struct net_request *req, const void *data, size_t len) {
    struct fake_request *q = fake_of(req);
    if (q->capture) {
        buf_add(&q->captured, data, len);
        return 0;
    }
    assert_true(q->streaming && !q->done);
    if (q->gone)
        return -EPIPE;
    buf_add(&q->body, data, len);
    return (ssize_t)q->pending;
}

int net_reply_stream_end(struct net_request *req) {
    struct fake_request *q = fake_of(req);
    if (q->capture) {
        struct buf body = q->captured;
        q->captured = (struct buf){0};
        net_reply(req, q->captured_status, NULL, body.data, body.len);
        buf_done(&body);
        return 0;
    }
    assert_true(q->streaming && !q->done);
    q->done = true;
    return 0;
}

void net_reply_stream_abort(struct net_request *req) {
    fake_of(req)->aborted = true;
    net_reply_stream_end(req);
}

size_t net_reply_stream_pending(const struct net_request *req) {
    return fake_of(req)->pending;
}

void net_request_watch(struct net_request *req, void (*on_close)(struct net_request *, void *user),
                       void (*on_drain)(struct net_request *, void *user), void *user) {
    struct fake_request *q = fake_of(req);
    q->on_close = on_close;
    q->on_drain = on_drain;
    q->watch_user = user;
}

bool net_request_wants_ws(const struct net_request *req) {
    return http_message_header(&fake_of(req)->message, "upgrade") != NULL;
}

void net_request_set_pass(struct net_request *req, const char *pass) {
    snprintf(fake_of(req)->pass, sizeof fake_of(req)->pass, "%s", pass);
}

void fake_leave(struct fake_request *q) {
    q->gone = true;
    if (q->on_close)
        q->on_close(&q->pub, q->watch_user);
}

// --- the server ---

struct net_server *net_server_new(struct uv_loop_s *loop, const struct net_server_options *options) {
    return NULL;
}

int net_server_listen_unix(struct net_server *s, const char *path, mode_t mode, struct error *e) {
    return 0;
}

atomic_bool fake_socket_deleted;

int net_server_restore_unix(struct net_server *s, struct error *e) {
    return atomic_exchange(&fake_socket_deleted, false);
}

int net_server_listen_tls(struct net_server *s, const char *host, uint16_t port, struct tls_context *tls,
                          struct error *e) {
    return 0;
}

int net_server_listen_loopback(struct net_server *s, uint16_t *port, struct error *e) {
    *port = *port ? *port : 6821;
    return 0;
}

uint32_t net_server_connections(const struct net_server *s) {
    return 1;
}

uint32_t net_server_end_passes(struct net_server *s, bool (*holds)(const char *pass, void *user),
                               void *user) {
    return 0;
}

void net_server_close(struct net_server *s, uint32_t grace_ms, void (*done)(void *user), void *user) {
    done(user);
}

static void check_head(struct fake_request *q) {
    if (q->peer.kind == NET_PEER_UNIX)
        return;
    admission_check(&q->pub, &q->admission, &q->rig->c);
    if (q->admission.status)
        net_reply(&q->pub, q->admission.status, q->admission.content_type, q->admission.text,
                  strlen(q->admission.text));
}

struct fake_request *rig_raw(struct rig *r, const struct net_peer *from, const void *bytes, size_t len) {
    struct fake_request *q = xcalloc(1, sizeof *q);
    struct http_parser parser;
    q->rig = r;
    q->peer = *from;
    http_message_init(&q->message);
    http_parser_begin(&parser, HTTP_REQUEST, &q->message, 0, 0);
    for (size_t at = 0; parser.state != HTTP_STATE_DONE;) {
        ssize_t n = http_parser_feed(&parser, (const char *)bytes + at, len - at);
        if (n <= 0) {
            http_message_done(&q->message);
            free(q);
            return NULL;
        }
        at += (size_t)n;
    }
    vec_push(&r->requests, q);
    q->pub = (struct net_request){.method = q->message.method,
                                  .path = q->message.path,
                                  .query = q->message.query,
                                  .body = buf_str(&q->message.body),
                                  .body_len = q->message.body.len,
                                  .http = &q->message,
                                  .peer = &q->peer};
    check_head(q);
    if (!q->status)
        api_request(&q->pub, &r->c);
    return q;
}

struct fake_request *rig_bytes_at_once(struct rig *r, const struct net_peer *from, const char *head,
                                       const char *body) {
    cleanup_buf struct buf bytes = {0};
    buf_addf(&bytes, "%s%s", head, strstr(head, "\r\nHost:") ? "" : "Host: test\r\n");
    if (body)
        buf_addf(&bytes, "Content-Length: %zu\r\n", strlen(body));
    buf_addf(&bytes, "\r\n%s", body ? body : "");
    struct fake_request *q = rig_raw(r, from, bytes.data, bytes.len);
    if (!q)
        fail_msg("%s: it is no request", head);
    return q;
}

struct fake_request *rig_bytes(struct rig *r, const struct net_peer *from, const char *head,
                               const char *body) {
    struct fake_request *q = rig_bytes_at_once(r, from, head, body);
    rig_settle(r);
    return q;
}

struct fake_request *rig_call(struct rig *r, const struct net_peer *from, const char *method,
                              const char *target, const char *body) {
    cleanup_buf struct buf head = {0};
    buf_addf(&head, "%s %s HTTP/1.1\r\n", method, target);
    return rig_bytes(r, from, buf_str(&head), body);
}

// --- WebSockets ---

struct net_ws *net_upgrade_ws(struct net_request *req, const char *protocol,
                              const struct net_ws_callbacks *callbacks, void *user) {
    struct fake_request *q = fake_of(req);
    if (!q->message.upgrade) {
        net_reply(req, 426, "text/plain", "", 0);
        return NULL;
    }
    struct net_ws *ws = xcalloc(1, sizeof *ws);
    *ws = (struct net_ws){.callbacks = *callbacks, .user = user, .peer = q->peer};
    vec_push(&q->rig->sockets, ws);
    q->status = 101;
    q->done = true;
    q->ws = ws;
    return ws;
}

ssize_t net_ws_send(struct net_ws *ws, enum ws_opcode type, const void *data, size_t len) {
    assert_false(ws->closed);
    if (ws->closing)
        return -EPIPE;
    struct fake_message m = {.type = type, .data = xcalloc(1, len + 1), .len = len};
    memcpy(m.data, data, len);
    vec_push(&ws->sent, m);
    return (ssize_t)ws->pending;
}

void net_ws_close(struct net_ws *ws, int status, const char *reason) {
    if (ws->closing)
        return;
    ws->closing = true;
    ws->status = status;
    snprintf(ws->reason, sizeof ws->reason, "%s", reason);
}

void net_ws_abort(struct net_ws *ws) {
    net_ws_close(ws, WS_ABNORMAL, "");
}

void net_ws_limit(struct net_ws *ws, size_t message_max) {
    ws->limit = message_max;
}

void net_ws_pause(struct net_ws *ws, bool paused) {
    ws->paused = paused;
}

size_t net_ws_pending(const struct net_ws *ws) {
    return ws->pending;
}

struct net_ws *rig_socket(struct rig *r, const struct net_peer *from, const char *target) {
    cleanup_buf struct buf head = {0};
    buf_addf(&head,
             "GET %s HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
             "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
             target);
    return rig_bytes(r, from, buf_str(&head), NULL)->ws;
}

static void arrive(struct rig *r, struct net_ws *ws, enum ws_opcode type, const void *data, size_t len) {
    assert_false(ws->closed);
    if (ws->limit && len > ws->limit)
        net_ws_close(ws, WS_TOO_BIG, "the message is too large");
    if (!ws->closing) {
        cleanup_free char *copy = xmalloc(len + 1);  // of exactly this size: what reads beyond it is found
        memcpy(copy, data, len);
        copy[len] = 0;
        ws->callbacks.on_message(ws, type, copy, len, ws->user);
    }
    rig_settle(r);
}

void fake_text(struct rig *r, struct net_ws *ws, const char *text) {
    arrive(r, ws, WS_TEXT, text, strlen(text));
}

void fake_binary(struct rig *r, struct net_ws *ws, const void *data, size_t len) {
    arrive(r, ws, WS_BINARY, data, len);
}

void fake_hang_up(struct rig *r, struct net_ws *ws) {
    net_ws_close(ws, WS_NORMAL, "");
    rig_settle(r);
}

const char *fake_next_text(struct net_ws *ws) {
    while (ws->read < ws->sent.len) {
        const struct fake_message *m = &ws->sent.at[ws->read++];
        if (m->type == WS_TEXT)
            return m->data;
    }
    return NULL;
}

void *fake_next_message(struct net_ws *ws, enum message_type type, struct arena *a) {
    while (ws->read < ws->sent.len) {
        const struct fake_message *f = &ws->sent.at[ws->read++];
        struct message m;
        if (f->type == WS_BINARY && message_decode(f->data, f->len, a, &m) == 0 && m.type == type)
            return m.body;
    }
    return NULL;
}

// --- connections that were taken over ---

ssize_t net_raw_write(struct net_raw *raw, const void *data, size_t len) {
    assert_false(raw->closed);
    if (raw->ended || raw->aborted)
        return -EPIPE;
    buf_add(&raw->out, data, len);
    return (ssize_t)raw->pending;
}

ssize_t net_raw_write_parts(struct net_raw *raw, const void *head, size_t head_len, const void *data,
                            size_t len) {
    ssize_t n = head_len ? net_raw_write(raw, head, head_len) : 0;
    return n < 0 ? n : net_raw_write(raw, data, len);
}

void net_raw_end(struct net_raw *raw) {
    raw->ended = true;
}

void net_raw_abort(struct net_raw *raw) {
    raw->aborted = true;
}

void net_raw_resume(struct net_raw *raw) {
    raw->resumed = raw->paused;
}

size_t net_raw_pending(const struct net_raw *raw) {
    return raw->pending;
}

void net_raw_deadline(struct net_raw *raw, uint64_t after_ms) {
    assert_false(raw->closed);
    raw->deadline_ms = after_ms;
}

bool net_raw_identify(struct net_raw *raw, const char *account, const char *pass) {
    snprintf(raw->account, sizeof raw->account, "%s", account);
    snprintf(raw->pass, sizeof raw->pass, "%s", pass);
    return true;
}

struct net_raw *rig_takeover(struct rig *r, const struct net_peer *from, const void *bytes, size_t len) {
    struct http_message m;
    struct http_parser parser;
    http_message_init(&m);
    http_parser_begin(&parser, HTTP_REQUEST, &m, 0, INT64_MAX);
    ssize_t n = http_parser_feed(&parser, bytes, len);
    struct net_request req = {.method = m.method, .path = m.path, .query = m.query, .http = &m, .peer = from};
    if (n < 0 || parser.state == HTTP_STATE_HEAD || !apps_takeover.wants(&req, &r->c)) {
        http_message_done(&m);
        return NULL;
    }
    struct net_raw *raw = xcalloc(1, sizeof *raw);
    raw->callbacks = apps_takeover.callbacks;
    vec_push(&r->raws, raw);
    raw->user = apps_takeover.begin(raw, from, &parser, &m, &r->c);
    fake_raw_data(r, raw, (const char *)bytes + n, len - (size_t)n);
    return raw;
}

static void offer(struct net_raw *raw) {
    while (raw->kept.len && !raw->paused && !raw->ended && !raw->aborted) {
        size_t n = raw->callbacks->on_data(raw, raw->kept.data, raw->kept.len, raw->user);
        assert_true(n <= raw->kept.len);
        buf_drop(&raw->kept, n);
        raw->paused = n == 0;
    }
}

bool fake_raw_go_on(struct net_raw *raw) {
    if (!raw->resumed || raw->ended || raw->aborted)
        return false;
    raw->paused = raw->resumed = false;
    offer(raw);
    return true;
}

void fake_raw_data(struct rig *r, struct net_raw *raw, const void *data, size_t len) {
    buf_add(&raw->kept, data, len);
    offer(raw);
    rig_settle(r);
}

void fake_raw_deadline(struct rig *r, struct net_raw *raw) {
    assert_true(raw->deadline_ms);
    raw->deadline_ms = 0;
    raw->callbacks->on_deadline(raw, raw->user);
    rig_settle(r);
}

void fake_raw_leave(struct rig *r, struct net_raw *raw) {
    raw->aborted = true;
    rig_settle(r);
}
