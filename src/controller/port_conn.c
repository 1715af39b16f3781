// Owns connections to the ports of jobs, and the WebSocket that carries one: GET /v1/jobs/{job}/connect.
#include "port_conn.h"

#include <errno.h>
#include <stdlib.h>

#include "base/text.h"
#include "model/port.h"

struct port_conn {
    struct controller *controller;
    struct stream *stream;
    struct port_conn_client client;
    void *ctx;
    uint64_t unacknowledged;  // sent to the node, which has not said that the program took it
    bool full;
    bool held;  // the node does not take what it is sent
};

static ssize_t on_data(void *ctx, const struct message_stream *m) {
    struct port_conn *p = ctx;
    ssize_t n = m->data.len ? p->client.data(p->ctx, m->data.data, m->data.len) : 0;
    if (n >= 0 && m->eof)
        p->client.eof(p->ctx);
    if (n < 0)
        p->stream = NULL;  // dropped by whoever called
    return n;
}

static void release(struct port_conn *p) {
    p->controller->streams.held_inputs -= p->held;
    p->held = false;
}

static void on_end(void *ctx, const struct message_stream *end) {
    struct port_conn *p = ctx;
    release(p);
    p->stream = NULL;
    p->client.end(p->ctx, end->error);
    free(p);
}

static void on_credit(void *ctx, uint64_t bytes) {
    struct port_conn *p = ctx;
    p->unacknowledged -= bytes < p->unacknowledged ? bytes : p->unacknowledged;
    if (!p->full || p->unacknowledged > PORT_CONN_WINDOW / 2)
        return;
    p->full = false;
    if (!p->held)
        p->client.room(p->ctx);
}

static void on_node_room(void *ctx) {
    struct port_conn *p = ctx;
    if (!p->held)
        return;
    release(p);
    if (!p->full)
        p->client.room(p->ctx);
}

// The node on which the port is: that of the batch script, the first one.
static int find_port(struct controller *c, uint64_t job, uint32_t port, struct message_connect *out,
                     const char **node, struct error *e) {
    cleanup_arena struct arena a = {0};
    unsigned long long id = (unsigned long long)job;
    struct job_record r;
    enum port_protocol protocol;
    bool live;
    int rc = api_record(c, job, &a, &r, &live);
    if (rc < 0)
        return error_set(e, ENOENT, "there is no job %llu", id);
    if (!live || r.state != JOB_RUNNING || !r.parts.len)
        return error_set(e, EBUSY, "job %llu is %s; its ports can be reached while it runs", id,
                         job_state_words[r.state]);
    uint64_t number = core_agent_job_number(c->core, job, r.attempt);
    if (!port_find(r.spec->ports.at, r.spec->ports.len, number, port, &protocol))
        return error_set(e, EINVAL, "job %llu has no port %u; ports are given at its submit, with --port %u",
                         id, port, port);
    *out = (struct message_connect){
        .id = number, .attempt = r.attempt, .port = port, .epoch = core_attempt_epoch(c->core, job)};
    core_job_node_names(c->core, job, node, 1);
    const struct agent_conn *agent = strmap_get(&c->agents, *node);
    if (!agent)
        return error_set(e, EAGAIN, "node %s is not connected now; try again when it is back", *node);
    if (agent->level < feature_info(FEATURE_PORTS)->level)
        return error_set(e, EPROTONOSUPPORT,
                         "node %s has an agent of an earlier release, which has no ports; upgrade it", *node);
    return 0;
}

struct port_conn *port_conn_open(struct controller *c, const struct actor *actor, uint64_t job, uint32_t port,
                                 const struct port_conn_client *client, void *ctx, struct error *e) {
    static const struct stream_client stream = {
        .data = on_data, .end = on_end, .credit = on_credit, .room = on_node_room};
    struct message_connect m;
    const char *node;
    if (find_port(c, job, port, &m, &node, e) < 0)
        return NULL;
    struct port_conn *p = xcalloc(1, sizeof *p);
    *p = (struct port_conn){.controller = c, .client = *client, .ctx = ctx};
    p->stream = controller_stream_new(&c->streams, actor, node, &stream, p, e);
    if (!p->stream) {
        free(p);
        return NULL;
    }
    m.stream = controller_stream_id(p->stream);
    m.credit = client->window ? client->window : controller_stream_window(&c->streams, m.stream);
    c->streams.host->send(c->streams.ctx, node, MESSAGE_CONNECT, &m);
    return p;
}

bool port_conn_send(struct port_conn *p, const char *data, size_t len) {
    struct message_stream m = {.data = {.data = data, .len = len}};
    if (p->stream && len)
        controller_stream_send(p->stream, MESSAGE_STREAM_DATA, &m);
    p->unacknowledged += len;
    p->full |= p->unacknowledged >= PORT_CONN_WINDOW;
    if (p->stream && !p->held && controller_stream_backlog(p->stream) > PORT_CONN_NODE_BACKLOG) {
        p->held = true;
        p->controller->streams.held_inputs++;
    }
    return !p->full && !p->held;
}

void port_conn_grant(struct port_conn *p, uint64_t bytes) {
    struct message_stream m = {.credit = bytes};
    if (p->stream)
        controller_stream_send(p->stream, MESSAGE_STREAM_CREDIT, &m);
}

void port_conn_send_eof(struct port_conn *p) {
    struct message_stream m = {.eof = true};
    if (p->stream)
        controller_stream_send(p->stream, MESSAGE_STREAM_DATA, &m);
}

void port_conn_drained(struct port_conn *p) {
    if (p->stream)
        controller_stream_drained(p->stream);
}

void port_conn_close(struct port_conn *p) {
    release(p);
    if (p->stream)
        controller_stream_drop(p->stream);
    free(p);
}

// --- the WebSocket: bytes are binary messages, the end of one side is the text {"eof":true} ---

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
