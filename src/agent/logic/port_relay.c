// Owns the agent's side of a connection to a port of a job; see the header.
#include "agent/logic/port_relay.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    CONNECT_PATIENCE_MS = 10 * 1000,  // until the program has taken the connection
    LISTEN_PATIENCE_MS = 3000,        // until the attempt's shepherd listens
    ASK_AGAIN_MS = 100,               // while the shepherd does not listen yet
    PIECES_TURN = 4,                  // of one connection, before others have their turn
};

static void finish(struct port_relay *r, int err) {
    char text[128];
    uint32_t port = r->port;
    switch (err) {
    case 0: r->host->end(r->ctx, NULL); return;
    case ECONNREFUSED: snprintf(text, sizeof text, "nothing listens on port %u of the job", port); break;
    case EACCES:
        snprintf(text, sizeof text, "a program of another user listens on port %u of the node", port);
        break;
    case EADDRINUSE:
        snprintf(text, sizeof text,
                 "not the job but another program of its user listens on port %u of the node", port);
        break;
    case ENOENT:
    case ESRCH: snprintf(text, sizeof text, "the job does not run on this node"); break;
    case ETIMEDOUT:
        snprintf(text, sizeof text, "the program on port %u does not accept connections", port);
        break;
    case EINVAL: snprintf(text, sizeof text, "the job was started by a release that has no ports"); break;
    default: snprintf(text, sizeof text, "port %u of the job: %s", port, strerror(err));
    }
    r->host->end(r->ctx, text);
}

static bool may_read(const struct port_relay *r) {
    return r->credit && !r->program_ended && r->host->may_send(r->ctx);
}

static void want(struct port_relay *r) {
    r->host->want(r->ctx, r->connected && may_read(r), !r->connected || r->unsent.len);
}

// 0, EAGAIN: there is no more now, or the errno that ends the stream.
static int receive(struct port_relay *r) {
    static char piece[PORT_RELAY_PIECE_BYTES];
    size_t most = r->credit < sizeof piece ? (size_t)r->credit : sizeof piece;
    ssize_t n = r->host->read(r->ctx, piece, most);
    if (n < 0)
        return n == -EINTR ? EAGAIN : (int)-n;
    struct message_stream m = {
        .stream = r->stream, .fd = 1, .eof = n == 0, .data = {.data = piece, .len = (size_t)n}};
    r->credit -= (uint64_t)n;
    r->program_ended = n == 0;
    r->host->send(r->ctx, MESSAGE_STREAM_DATA, &m);
    return (size_t)n < most ? EAGAIN : 0;
}

// Returns how much the program took, or a negative errno.
static ssize_t write_to_program(struct port_relay *r, const void *data, size_t len) {
    ssize_t n = r->host->write(r->ctx, data, len);
    if (n < 0)
        return n == -EAGAIN || n == -EINTR ? 0 : n;
    struct message_stream m = {.stream = r->stream, .credit = (uint64_t)n};
    r->host->send(r->ctx, MESSAGE_STREAM_CREDIT, &m);
    return n;
}

static int send_unsent(struct port_relay *r) {
    if (r->unsent.len) {
        ssize_t n = write_to_program(r, r->unsent.data, r->unsent.len);
        if (n < 0)
            return (int)-n;
        buf_drop(&r->unsent, (size_t)n);
    }
    if (!r->unsent.len && r->other_ended)
        r->host->shut(r->ctx);
    return 0;
}

void agent_port_ready(struct port_relay *r, int error, bool readable, bool writable) {
    int err = error;
    r->connected |= !err;
    if (!err && writable)
        err = send_unsent(r);
    for (int i = 0; i < PIECES_TURN && !err && readable && may_read(r); i++)
        err = receive(r);
    err = err == EAGAIN ? 0 : err;
    if (err || (r->program_ended && r->other_ended && !r->unsent.len))
        finish(r, err);
    else
        want(r);
}

void agent_port_answered(struct port_relay *r, int error) {
    r->answered = true;
    if (error)
        finish(r, error);
    else
        want(r);
}

static void ask(struct port_relay *r, int64_t now_ms) {
    int result = r->host->ask(r->ctx);
    r->ask_ms = now_ms + ASK_AGAIN_MS;
    if (result == -EAGAIN || result == -ECONNREFUSED ||
        (result == -ENOENT && now_ms - r->begun_ms < LISTEN_PATIENCE_MS))
        return;
    r->asked = true;
    if (result < 0)
        finish(r, -result);
}

void agent_port_pump(struct port_relay *r, int64_t now_ms) {
    if (!r->connected && now_ms - r->begun_ms > CONNECT_PATIENCE_MS)
        finish(r, ETIMEDOUT);
    else if (r->answered)
        want(r);
    else if (!r->asked && now_ms >= r->ask_ms)
        ask(r, now_ms);
}

void agent_port_take(struct port_relay *r, const struct message_stream *m) {
    if (r->unsent.len + m->data.len > PORT_RELAY_UNSENT_MAX) {
        finish(r, EOVERFLOW);
        return;
    }
    // Without a copy if it can be. An error is found again, and the stream ended, when the rest is sent.
    bool direct = r->connected && !r->unsent.len && m->data.len;
    ssize_t n = direct ? write_to_program(r, m->data.data, m->data.len) : 0;
    size_t sent = n > 0 ? (size_t)n : 0;
    if (sent < m->data.len)
        buf_add(&r->unsent, (const char *)m->data.data + sent, m->data.len - sent);
    r->other_ended |= m->eof;
    if (r->connected)
        agent_port_ready(r, 0, false, true);
}

void agent_port_credit(struct port_relay *r, uint64_t bytes) {
    r->credit += bytes;
    if (r->answered)
        want(r);
}

void agent_port_begin(struct port_relay *r, const struct message_connect *m, bool other, int64_t now_ms) {
    r->stream = m->stream;
    r->credit = m->credit;
    r->port = m->port;
    r->begun_ms = now_ms;
    if (other)
        finish(r, ESRCH);
    else
        ask(r, now_ms);
}

void agent_port_done(struct port_relay *r) {
    buf_done(&r->unsent);
}
