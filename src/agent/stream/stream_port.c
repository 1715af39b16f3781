// Owns streams to the ports of jobs: the sockets of agent/logic/port_relay.h. The attempt's shepherd makes the
// connection, because it alone can reach a network of the job's own, and hands it over.
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/logic/port_relay.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "launch/control.h"
#include "stream.h"

struct stream_port {
    struct port_relay relay;
    struct stream_fd *asked;  // the shepherd's answer comes here
    struct stream_fd *conn;
};

struct stream_port *stream_port_free(struct stream_port *p) {
    if (!p)
        return NULL;
    stream_fd_close(p->asked);
    stream_fd_close(p->conn);
    agent_port_done(&p->relay);
    free(p);
    return NULL;
}

// --- what the relay asks for ---

static ssize_t do_read(void *ctx, void *data, size_t size) {
    const struct agent_stream *s = ctx;
    ssize_t n = recv(s->port->conn->fd, data, size, MSG_DONTWAIT);
    return n < 0 ? -errno : n;
}

static ssize_t do_write(void *ctx, const void *data, size_t size) {
    const struct agent_stream *s = ctx;
    ssize_t n = send(s->port->conn->fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    return n < 0 ? -errno : n;
}

static void do_shut(void *ctx) {
    const struct agent_stream *s = ctx;
    shutdown(s->port->conn->fd, SHUT_WR);
}

static void do_want(void *ctx, bool read, bool write) {
    const struct agent_stream *s = ctx;
    if (s->port->conn)
        stream_fd_want(s->port->conn, (read ? UV_READABLE : 0) | (write ? UV_WRITABLE : 0));
}

static bool may_send(void *ctx) {
    return stream_takes_more(ctx);
}

static void do_send(void *ctx, enum message_type type, struct message_stream *m) {
    const struct agent_stream *s = ctx;
    agent_send(s->all->agent, type, m);
}

static void do_end(void *ctx, const char *error) {
    stream_finish(ctx, error);
}

// --- sockets ---

static void on_conn(struct stream_fd *w, int events) {
    struct agent_stream *s = w->owner;
    int err = 0;
    socklen_t len = sizeof err;
    if (!s->port->relay.connected && getsockopt(w->fd, SOL_SOCKET, SO_ERROR, &err, &len) < 0)
        err = errno;
    agent_port_ready(&s->port->relay, err, events & UV_READABLE, events & UV_WRITABLE);
}

static void on_answer(struct stream_fd *w, int events) {
    struct agent_stream *s = w->owner;
    struct stream_port *p = s->port;
    int fd = launch_control_receive_fd(w->fd);
    if (fd == -EAGAIN)
        return;
    p->asked = stream_fd_close(p->asked);
    if (fd >= 0 && !(p->conn = stream_fd_new(s->all->agent, fd, s, on_conn))) {
        close(fd);
        fd = -EMFILE;
    }
    agent_port_answered(&p->relay, fd < 0 ? -fd : 0);
}

static int do_ask(void *ctx) {
    struct agent_stream *s = ctx;
    struct control_request r = {.type = CONTROL_CONNECT, .value_ms = s->port->relay.port};
    int fd = launch_control_send(s->all->agent->spool_fd, s->id, s->attempt, &r, NULL, 0);
    if (fd < 0)
        return fd;
    s->port->asked = stream_fd_new(s->all->agent, fd, s, on_answer);
    if (s->port->asked)
        return 0;
    close(fd);
    return -EMFILE;
}

// --- the stream ---

void stream_port_pump(struct agent_stream *s, int64_t now_ms) {
    agent_port_pump(&s->port->relay, now_ms);
}

void stream_port_take(struct agent_stream *s, const struct message_stream *m) {
    agent_port_take(&s->port->relay, m);
}

void stream_port_credit(struct agent_stream *s, uint64_t bytes) {
    agent_port_credit(&s->port->relay, bytes);
}

void stream_port_start(struct agent_stream *s, const struct message_connect *m) {
    static const struct port_relay_host host = {.ask = do_ask,
                                                .read = do_read,
                                                .write = do_write,
                                                .shut = do_shut,
                                                .want = do_want,
                                                .may_send = may_send,
                                                .send = do_send,
                                                .end = do_end};
    s->port = xcalloc(1, sizeof *s->port);
    s->port->relay = (struct port_relay){.host = &host, .ctx = s};
    bool other = agent_logic_is_other(s->all->agent->logic, m->id, m->attempt, m->epoch);
    agent_port_begin(&s->port->relay, m, other, clock_mono_ms());
}
