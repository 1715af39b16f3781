// Owns the WebSocket that carries a connection to a port of a job: GET /v1/jobs/{job}/connect. Bytes are binary
// messages, the end of one side is the text {"eof":true}.
#include "port_socket.h"

#include <errno.h>
#include <stdlib.h>

#include "model/port.h"

struct port_conn *port_conn_open(struct controller *c, const struct actor *actor, uint64_t job, uint32_t port,
                                 const struct port_conn_client *client, void *ctx, struct error *e) {
    cleanup_arena struct arena a = {0};
    struct job_record r;
    bool live;
    if (!core_has_job(c->core, job) && api_record(c, job, &a, &r, &live) == 0) {
        port_conn_not_running(job, r.state, e);
        return NULL;
    }
    return port_conn_begin(&c->streams, c->core, actor, job, port, client, ctx, e);
}

struct port_socket {
    struct net_ws *ws;
    struct port_conn *conn;  // NULL: it has ended
};

static ssize_t to_client(void *ctx, const char *data, size_t len) {
    struct port_socket *s = ctx;
    return net_ws_send(s->ws, WS_BINARY, data, len);
}

static void send_eof(void *ctx) {
    struct port_socket *s = ctx;
    api_session_send(s->ws, &port_eof_schema, &(struct port_eof){true});
}

static void on_conn_end(void *ctx, const char *text) {
    struct port_socket *s = ctx;
    struct error e = {0};
    s->conn = NULL;
    if (text) {
        error_set(&e, EIO, "%s", text);
        api_session_error(s->ws, &e);
    }
    net_ws_close(s->ws, WS_NORMAL, "");
}

static void on_room(void *ctx) {
    struct port_socket *s = ctx;
    net_ws_pause(s->ws, false);
}

static void on_message(struct net_ws *ws, enum ws_opcode type, const char *data, size_t len, void *user) {
    struct port_socket *s = user;
    cleanup_arena struct arena a = {0};
    struct port_eof q;
    struct error e = {0};
    if (!s->conn)
        return;
    if (type == WS_BINARY) {
        if (!port_conn_send(s->conn, data, len))
            net_ws_pause(ws, true);
    } else if (api_session_read(data, len, &port_eof_schema, &a, &q, &e) < 0) {
        api_session_error(ws, &e);
        net_ws_close(ws, WS_NORMAL, "");
    } else if (q.eof) {
        port_conn_send_eof(s->conn);
    }
}

static void on_drain(struct net_ws *ws, void *user) {
    struct port_socket *s = user;
    if (s->conn)
        port_conn_drained(s->conn);
}

static void on_close(struct net_ws *ws, int status, const char *reason, void *user) {
    struct port_socket *s = user;
    if (s->conn)
        port_conn_close(s->conn);
    free(s);
}

void api_connect(struct api_call *call) {
    static const struct port_conn_client client = {
        .data = to_client, .eof = send_eof, .end = on_conn_end, .room = on_room};
    static const struct net_ws_callbacks callbacks = {
        .on_message = on_message, .on_drain = on_drain, .on_close = on_close};
    const struct query_connect *q = call->query;
    struct error e = {0};
    if (!net_request_wants_ws(call->req)) {
        net_upgrade_ws(call->req, NULL, &callbacks, NULL);  // says what is expected
        return;
    }
    struct port_socket *s = xcalloc(1, sizeof *s);
    uint64_t job = api_first_worker(call->controller, call->job);
    s->conn = port_conn_open(call->controller, &call->actor, job, (uint32_t)q->port, &client, s, &e);
    if (!s->conn) {
        api_fail(call->req, &e);
        free(s);
        return;
    }
    s->ws = net_upgrade_ws(call->req, NULL, &callbacks, s);
    if (s->ws) {
        net_ws_limit(s->ws, PORT_CONN_WINDOW);
        return;
    }
    port_conn_close(s->conn);
    free(s);
}
