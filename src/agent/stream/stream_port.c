// Owns streams to the ports of jobs. The attempt's shepherd makes the connection, because it alone can reach a network
// of the job's own, and hands it over; from then on bytes are copied both ways, each as far as the other side gave
// credit. Such a stream cannot go on after a cut: it ends, and whoever used it connects again.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "launch/control.h"
#include "stream.h"

enum {
    PIECE_BYTES = 64 << 10,
    UNSENT_MAX = 1 << 20,             // for the job; the other side stops well before
    CONNECT_PATIENCE_MS = 10 * 1000,  // until the program has taken the connection
    ASK_AGAIN_MS = 100,               // while the shepherd does not listen yet
};

struct stream_port {
    uint32_t number;
    struct stream_fd *asked;  // the shepherd's answer comes here
    struct stream_fd *conn;
    bool connected;
    bool job_ended, other_ended;  // sends no more
    struct buf unsent;            // for the job
    int64_t begun_ms, ask_ms;
};

struct stream_port *stream_port_free(struct stream_port *p) {
    if (!p)
        return NULL;
    stream_fd_close(p->asked);
    stream_fd_close(p->conn);
    buf_done(&p->unsent);
    free(p);
    return NULL;
}

static void finish(struct agent_stream *s, int err) {
    char text[128];
    uint32_t port = s->port->number;
    switch (err) {
    case 0: stream_finish(s, NULL); return;
    case ECONNREFUSED: snprintf(text, sizeof text, "nothing listens on port %u of the job", port); break;
    case EACCES:
        snprintf(text, sizeof text, "a program of another user listens on port %u of the node", port);
        break;
    case ENOENT:
    case ESRCH: snprintf(text, sizeof text, "the job does not run on this node"); break;
    case ETIMEDOUT:
        snprintf(text, sizeof text, "the program on port %u does not accept connections", port);
        break;
    case EINVAL: snprintf(text, sizeof text, "the job was started by a release that has no ports"); break;
    default: snprintf(text, sizeof text, "port %u of the job: %s", port, strerror(err));
    }
    stream_finish(s, text);
}

static void want(struct agent_stream *s) {
    struct stream_port *p = s->port;
    bool reads = p->connected && stream_room(s) && !p->job_ended;
    bool writes = !p->connected || p->unsent.len;
    stream_fd_want(p->conn, (reads ? UV_READABLE : 0) | (writes ? UV_WRITABLE : 0));
}

// 0, or the errno that ends the stream.
static int receive(struct agent_stream *s) {
    static char piece[PIECE_BYTES];
    struct stream_port *p = s->port;
    size_t most = s->credit < sizeof piece ? (size_t)s->credit : sizeof piece;
    ssize_t n = recv(p->conn->fd, piece, most, MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : errno;
    struct message_stream m = {
        .stream = s->number, .fd = 1, .eof = n == 0, .data = {.data = piece, .len = (size_t)n}};
    s->credit -= (uint64_t)n;
    p->job_ended = n == 0;
    agent_send(s->all->agent, MESSAGE_STREAM_DATA, &m);
    return 0;
}

static int send_unsent(struct agent_stream *s) {
    struct stream_port *p = s->port;
    if (p->unsent.len) {
        ssize_t n = send(p->conn->fd, p->unsent.data, p->unsent.len, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0)
            return errno == EAGAIN || errno == EINTR ? 0 : errno;
        buf_drop(&p->unsent, (size_t)n);
        struct message_stream m = {.stream = s->number, .credit = (uint64_t)n};
        agent_send(s->all->agent, MESSAGE_STREAM_CREDIT, &m);
    }
    if (!p->unsent.len && p->other_ended)
        shutdown(p->conn->fd, SHUT_WR);
    return 0;
}

static void on_conn(struct stream_fd *w, int events) {
    struct agent_stream *s = w->owner;
    struct stream_port *p = s->port;
    int err = 0;
    socklen_t len = sizeof err;
    if (!p->connected) {
        if (getsockopt(w->fd, SOL_SOCKET, SO_ERROR, &err, &len) < 0)
            err = errno;
        p->connected = !err;
    }
    if (!err && events & UV_WRITABLE)
        err = send_unsent(s);
    if (!err && events & UV_READABLE && stream_room(s) && !p->job_ended)
        err = receive(s);
    if (err || (p->job_ended && p->other_ended && !p->unsent.len))
        finish(s, err);
    else
        want(s);
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
    if (fd < 0)
        finish(s, -fd);
    else
        want(s);
}

static void ask(struct agent_stream *s, int64_t now_ms) {
    struct stream_port *p = s->port;
    struct control_request r = {.type = CONTROL_CONNECT, .value_ms = p->number};
    int fd = launch_control_send(s->all->agent->spool_fd, s->id, s->attempt, &r, NULL, 0);
    p->ask_ms = now_ms + ASK_AGAIN_MS;
    if (fd == -EAGAIN || fd == -ECONNREFUSED ||
        (fd == -ENOENT && now_ms - p->begun_ms < AGENT_CONTROL_PATIENCE_MS))
        return;
    if (fd >= 0 && !(p->asked = stream_fd_new(s->all->agent, fd, s, on_answer))) {
        close(fd);
        fd = -EMFILE;
    }
    if (fd < 0)
        finish(s, -fd);
}

void stream_port_pump(struct agent_stream *s, int64_t now_ms) {
    struct stream_port *p = s->port;
    if (!p->connected && now_ms - p->begun_ms > CONNECT_PATIENCE_MS)
        finish(s, ETIMEDOUT);
    else if (p->conn)
        want(s);
    else if (!p->asked && now_ms >= p->ask_ms)
        ask(s, now_ms);
}

void stream_port_take(struct agent_stream *s, const struct message_stream *m) {
    struct stream_port *p = s->port;
    if (p->unsent.len + m->data.len > UNSENT_MAX) {
        finish(s, EOVERFLOW);
        return;
    }
    buf_add(&p->unsent, m->data.data, m->data.len);
    p->other_ended |= m->eof;
    if (p->connected)
        on_conn(p->conn, UV_WRITABLE);
}

void stream_port_start(struct agent_stream *s, const struct message_connect *m) {
    s->port = xcalloc(1, sizeof *s->port);
    s->port->number = m->port;
    s->port->begun_ms = clock_mono_ms();
    if (agent_logic_is_other(s->all->agent->logic, m->id, m->attempt, m->epoch))
        finish(s, ESRCH);
    else
        ask(s, s->port->begun_ms);
}
