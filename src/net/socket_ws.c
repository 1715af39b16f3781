// WebSockets on the event loop, for both roles. One frame is handed on per turn, so that a handler
// that pauses or closes from inside its callback is obeyed at once.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rand.h"
#include "socket_internal.h"

enum {
    CLOSE_WAIT_MS = 3000,       // how long the peer may take to answer a close frame
    PONG_PENDING_MAX = 65536,   // with more unsent, pings are not answered: nobody reads
    OUTPUT_HIGH = 1024 * 1024,  // unsent bytes beyond which a client is not listened to
};

struct net_ws {
    struct net_conn *conn;  // a reference
    struct ws codec;
    struct net_ws_callbacks callbacks;
    void *user;
    struct rand mask;
    struct buf frame;  // of a client: the one that is sent, masked
    bool open, close_sent;
    bool paused;  // by its owner
    bool held;    // until the client has read what it was sent
    int status;  // what on_close will be told
    char reason[WS_CONTROL_MAX];
};

static const struct conn_ops ws_ops;

static uint32_t next_mask(struct net_ws *ws) {
    return ws->codec.role == WS_CLIENT ? (uint32_t)rand_u64(&ws->mask) : 0;
}

static void set_reason(struct net_ws *ws, int status, const char *text, size_t len) {
    if (len >= sizeof ws->reason)
        len = sizeof ws->reason - 1;
    ws->status = status;
    memcpy(ws->reason, text, len);
    ws->reason[len] = 0;
}

struct net_ws *net_ws_prepare(struct net_conn *c, size_t message_max,
                              const struct net_ws_callbacks *callbacks, void *user) {
    struct net_ws *ws = xcalloc(1, sizeof *ws);
    uint64_t seed = 0;
    if (rand_secret(&seed, sizeof seed) < 0)
        abort();  // the kernel always has random numbers once it is up
    rand_seed(&ws->mask, seed);
    ws_init(&ws->codec, WS_CLIENT, message_max);
    ws->conn = net_conn_ref(c);
    ws->callbacks = *callbacks;
    ws->user = user;
    set_reason(ws, WS_ABNORMAL, "", 0);
    return ws;
}

static void take_over(struct net_ws *ws) {
    ws->open = true;
    ws->conn->ops = &ws_ops;
    ws->conn->owner = ws;
}

struct net_ws *net_ws_attach(struct net_conn *c, enum ws_role role, size_t message_max,
                             const struct net_ws_callbacks *callbacks, void *user) {
    struct net_ws *ws = net_ws_prepare(c, message_max, callbacks, user);
    ws->codec.role = role;
    take_over(ws);
    return ws;
}

void net_ws_limit(struct net_ws *ws, size_t message_max) {
    ws->codec.message_max = message_max;
}

void net_ws_opened(struct net_ws *ws) {
    take_over(ws);
    if (ws->callbacks.on_open)
        ws->callbacks.on_open(ws, ws->user);
}

static void end(struct net_ws *ws) {
    ws->open = false;
    ws->callbacks.on_close(ws, ws->status, ws->reason, ws->user);
    net_conn_unref(ws->conn);
    ws_done(&ws->codec);
    buf_done(&ws->frame);
    free(ws);
}

void net_ws_failed(struct net_ws *ws, const char *reason) {
    set_reason(ws, WS_ABNORMAL, reason, strlen(reason));
    end(ws);
}

ssize_t net_ws_send(struct net_ws *ws, enum ws_opcode type, const void *data, size_t len) {
    if (!ws->open)
        return -ENOTCONN;
    if (ws->close_sent)
        return -EPIPE;
    if (ws->codec.role == WS_SERVER) {
        unsigned char head[WS_HEAD_MAX];
        return net_conn_write_parts(ws->conn, head, ws_encode_head(head, type, len), data, len);
    }
    buf_clear(&ws->frame);
    ws_encode(&ws->frame, WS_CLIENT, type, data, len, next_mask(ws));
    ssize_t n = net_conn_write_bounded(ws->conn, ws->frame.data, ws->frame.len);
    if (ws->frame.cap > CONN_KEEP_DIALLED_BYTES)
        buf_done(&ws->frame);
    return n;
}

static void send_close(struct net_ws *ws, int status, const char *reason) {
    if (ws->close_sent)
        return;
    cleanup_buf struct buf frame = {0};
    ws_encode_close(&frame, ws->codec.role, status, reason, next_mask(ws));
    net_conn_write(ws->conn, frame.data, frame.len);
    ws->close_sent = true;
}

void net_ws_close(struct net_ws *ws, int status, const char *reason) {
    if (!ws->open) {
        net_conn_destroy(ws->conn);
        return;
    }
    if (ws->close_sent)
        return;
    send_close(ws, status, reason);
    net_conn_set_deadline(ws->conn, CLOSE_WAIT_MS);
    ws->paused = ws->held = false;
    if (ws->conn->paused)
        net_conn_resume(ws->conn);
}

void net_ws_abort(struct net_ws *ws) {
    net_conn_destroy(ws->conn);
}

void net_ws_pause(struct net_ws *ws, bool paused) {
    ws->paused = paused && !ws->close_sent;
    if (ws->paused)
        net_conn_pause(ws->conn);
    else if (!ws->held)
        net_conn_resume(ws->conn);
}

size_t net_ws_pending(const struct net_ws *ws) {
    return net_conn_pending(ws->conn);
}

const struct net_peer *net_ws_peer(const struct net_ws *ws) {
    return &ws->conn->peer;
}

int64_t net_ws_last_input_ms(const struct net_ws *ws) {
    return (int64_t)ws->conn->last_input;
}

static void handle_event(struct net_ws *ws, const struct ws_event *event) {
    switch (event->type) {
    case WS_PING:
        if (net_conn_pending(ws->conn) <= PONG_PENDING_MAX)
            net_ws_send(ws, WS_PONG, event->data, event->len);
        break;
    case WS_PONG:
        break;
    case WS_CLOSE:
        set_reason(ws, event->status, event->data, event->len);
        send_close(ws, event->status, "");
        net_conn_finish(ws->conn);
        break;
    case WS_TEXT:
    case WS_BINARY:
        if (!ws->close_sent)
            ws->callbacks.on_message(ws, event->type, event->data, event->len, ws->user);
        break;
    }
}

static void fail(struct net_ws *ws, int status, const char *text) {
    set_reason(ws, status, text, strlen(text));
    send_close(ws, status, text);
    net_conn_finish(ws->conn);
}

// A client that is sent much and does not read it is not listened to until it does: what it asks for would be sent
// behind that. Not of those who may do the same: two who both wait for the other to read would wait forever.
static bool must_read_first(struct net_ws *ws) {
    size_t pending = net_conn_pending(ws->conn);
    const struct conn_account *a = ws->conn->account;
    return a && !a->always_heard && !ws->close_sent &&
           (pending > OUTPUT_HIGH || (pending && net_conn_account_full(ws->conn)));
}

static size_t on_data(struct net_conn *c, const char *data, size_t len) {
    struct net_ws *ws = c->owner;
    struct ws_event event;
    bool got;
    if ((ws->held = must_read_first(ws)))
        return 0;
    ssize_t n = ws_feed(&ws->codec, data, len, &event, &got);
    if (n < 0) {
        fail(ws, ws->codec.fail_status, ws->codec.fail_text);
        return len;
    }
    if (c->on_receiving && !c->on_receiving(c, ws_unfinished(&ws->codec))) {
        fail(ws, WS_TRY_LATER, "too many bytes of messages are being received");
        return len;
    }
    if (got)
        handle_event(ws, &event);
    return (size_t)n;
}

static void on_drain(struct net_conn *c) {
    struct net_ws *ws = c->owner;
    bool held = ws->held;
    ws->held = false;
    if (held && !ws->paused)
        net_conn_resume(c);
    if (ws->callbacks.on_drain && !ws->close_sent)
        ws->callbacks.on_drain(ws, ws->user);
}

static void on_shutdown(struct net_conn *c) {
    net_ws_close(c->owner, WS_GOING_AWAY, "the server is stopping");
}

static void on_gone(struct net_conn *c) {
    struct net_ws *ws = c->owner;
    if (ws->status == WS_ABNORMAL && !ws->reason[0]) {
        const char *text = c->problem        ? c->problem
                           : c->problem_code ? uv_strerror(c->problem_code)
                                             : "the connection ended";
        set_reason(ws, WS_ABNORMAL, text, strlen(text));
    }
    end(ws);
}

static const struct conn_ops ws_ops = {
    .on_data = on_data,
    .on_eof = net_conn_destroy,
    .on_drain = on_drain,
    .on_deadline = net_conn_destroy,
    .on_shutdown = on_shutdown,
    .on_gone = on_gone,
};
