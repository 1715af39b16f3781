// Owns connections to the ports of jobs: which node and attempt is meant, bytes both ways within their windows, ends.
#include "port_conn.h"

#include <errno.h>
#include <stdlib.h>

#include "base/text.h"
#include "model/port.h"

struct port_conn {
    struct stream_table *table;
    struct stream *stream;
    struct port_conn_client client;
    void *ctx;
    uint64_t window;          // bytes on their way to the program before the sender is to pause
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
    p->table->held_inputs -= p->held;
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
    if (!p->full || p->unacknowledged > p->window / 2)
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
static int find_port(const struct stream_table *t, const struct core *core, uint64_t job, uint32_t port,
                     struct message_connect *out, const char **node, struct error *e) {
    cleanup_arena struct arena a = {0};
    unsigned long long id = (unsigned long long)job;
    struct job_record r;
    enum port_protocol protocol;
    if (core_record(core, job, &a, &r) < 0)
        return error_set(e, ENOENT, "there is no job %llu", id);
    if (r.state != JOB_RUNNING || !r.parts.len)
        return port_conn_not_running(job, r.state, e);
    uint64_t number = core_agent_job_number(core, job, r.attempt);
    if (!port_find(r.spec->ports.at, r.spec->ports.len, number, port, &protocol))
        return error_set(e, EINVAL, "job %llu has no port %u; ports are given at its submit, with --port %u",
                         id, port, port);
    *out = (struct message_connect){
        .id = number, .attempt = r.attempt, .port = port, .epoch = core_attempt_epoch(core, job)};
    core_job_node_names(core, job, node, 1);
    if (!t->host->connected(t->ctx, *node))
        return error_set(e, EAGAIN, "node %s is not connected now; try again when it is back", *node);
    if (t->host->level(t->ctx, *node) < feature_info(FEATURE_PORTS)->level)
        return error_set(e, EPROTONOSUPPORT,
                         "node %s has an agent of an earlier release, which has no ports; upgrade it", *node);
    return 0;
}

int port_conn_not_running(uint64_t job, enum job_state state, struct error *e) {
    return error_set(e, EBUSY, "job %llu is %s; its ports can be reached while it runs",
                     (unsigned long long)job, job_state_words[state]);
}

struct port_conn *port_conn_begin(struct stream_table *t, const struct core *core, const struct actor *actor,
                                  uint64_t job, uint32_t port, const struct port_conn_client *client,
                                  void *ctx, struct error *e) {
    static const struct stream_client stream = {
        .data = on_data, .end = on_end, .credit = on_credit, .room = on_node_room};
    struct message_connect m;
    const char *node;
    if (find_port(t, core, job, port, &m, &node, e) < 0)
        return NULL;
    struct port_conn *p = xcalloc(1, sizeof *p);
    *p =
        (struct port_conn){.table = t,
                           .client = *client,
                           .ctx = ctx,
                           .window = t->window_bytes < PORT_CONN_WINDOW ? t->window_bytes : PORT_CONN_WINDOW};
    p->stream = controller_stream_new(t, actor, node, &stream, p, e);
    if (!p->stream) {
        free(p);
        return NULL;
    }
    m.stream = controller_stream_id(p->stream);
    m.credit = client->window ? client->window : controller_stream_window(t, m.stream);
    t->host->send(t->ctx, node, MESSAGE_CONNECT, &m);
    return p;
}

bool port_conn_send(struct port_conn *p, const char *data, size_t len) {
    struct message_stream m = {.data = {.data = data, .len = len}};
    if (p->stream && len)
        controller_stream_send(p->stream, MESSAGE_STREAM_DATA, &m);
    p->unacknowledged += len;
    p->full |= p->unacknowledged >= p->window;
    if (p->stream && !p->held && controller_stream_backlog(p->stream) > PORT_CONN_NODE_BACKLOG) {
        p->held = true;
        p->table->held_inputs++;
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
