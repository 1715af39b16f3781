// Raw tunnels: the bytes of an upgraded connection, as they come.
#include <stdlib.h>

#include "base/alloc.h"
#include "socket_internal.h"

struct net_raw {
    struct net_conn *conn;  // a reference
    struct net_raw_callbacks callbacks;
    void *user;
};

static const struct conn_ops raw_ops;

struct net_raw *net_raw_attach(struct net_conn *c, const struct net_raw_callbacks *callbacks,
                               void *user) {
    struct net_raw *raw = xcalloc(1, sizeof *raw);
    raw->conn = net_conn_ref(c);
    raw->callbacks = *callbacks;
    raw->user = user;
    c->ops = &raw_ops;
    c->owner = raw;
    return raw;
}

ssize_t net_raw_write(struct net_raw *raw, const void *data, size_t len) {
    return net_conn_write_bounded(raw->conn, data, len);
}

ssize_t net_raw_write_parts(struct net_raw *raw, const void *head, size_t head_len, const void *data,
                            size_t len) {
    return net_conn_write_parts(raw->conn, head, head_len, data, len);
}

void net_raw_end(struct net_raw *raw) {
    net_conn_finish(raw->conn);
}

void net_raw_abort(struct net_raw *raw) {
    net_conn_destroy(raw->conn);
}

void net_raw_resume(struct net_raw *raw) {
    net_conn_resume(raw->conn);
}

size_t net_raw_pending(const struct net_raw *raw) {
    return net_conn_pending(raw->conn);
}

void net_raw_deadline(struct net_raw *raw, uint64_t after_ms) {
    net_conn_set_deadline(raw->conn, after_ms);
}

bool net_raw_ending(const struct net_raw *raw) {
    return raw->conn->closing || raw->conn->finishing;
}

struct net_conn *net_raw_conn(struct net_raw *raw) {
    return raw->conn;
}

void net_raw_set_user(struct net_raw *raw, void *user) {
    raw->user = user;
}

static size_t on_data(struct net_conn *c, const char *data, size_t len) {
    struct net_raw *raw = c->owner;
    return raw->callbacks.on_data(raw, data, len, raw->user);
}

static void on_eof(struct net_conn *c) {
    struct net_raw *raw = c->owner;
    if (net_conn_peer_closed(c) || !raw->callbacks.on_eof)
        net_conn_destroy(c);
    else
        raw->callbacks.on_eof(raw, raw->user);
}

static void on_drain(struct net_conn *c) {
    struct net_raw *raw = c->owner;
    if (raw->callbacks.on_drain)
        raw->callbacks.on_drain(raw, raw->user);
}

static void on_deadline(struct net_conn *c) {
    struct net_raw *raw = c->owner;
    if (raw->callbacks.on_deadline)
        raw->callbacks.on_deadline(raw, raw->user);
    else
        net_conn_destroy(c);
}

static void on_gone(struct net_conn *c) {
    struct net_raw *raw = c->owner;
    raw->callbacks.on_close(raw, raw->user);
    net_conn_unref(raw->conn);
    free(raw);
}

static const struct conn_ops raw_ops = {
    .on_data = on_data,
    .on_eof = on_eof,
    .on_drain = on_drain,
    .on_deadline = on_deadline,
    .on_shutdown = net_conn_finish,
    .on_gone = on_gone,
};
