// The server: its listeners, the accepting of connections and its end. A unix socket is bound under
// a temporary name and renamed into place, so that its file never has the wrong mode and never
// replaces one that is in use.
#include "net/server.h"

#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "server_internal.h"

enum { BACKLOG = 1024 };

struct listener {
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_pipe_t pipe;
        uv_tcp_t tcp;
    };
    struct net_server *server;
    uv_timer_t again;   // lets in the one that waits
    uint64_t at_ms;     // loop time of the turn,
    uint32_t accepted;  // and how many were let in in it
    unsigned handles;
    enum net_peer_kind kind;
    struct tls_context *tls;
    char *path;               // of a unix socket
    mode_t mode;
    dev_t dev;                // and the file that is ours
    ino_t ino;
};

static void set_defaults(struct net_server_options *o) {
    o->connections_max = o->connections_max ? o->connections_max : NET_CONNECTIONS_MAX;
    if (!o->network_connections_max)
        o->network_connections_max = o->connections_max - o->connections_max / 4;
    o->admin_connections = o->admin_connections ? o->admin_connections : NET_ADMIN_CONNECTIONS;
    o->user_connections_max = o->user_connections_max ? o->user_connections_max : NET_USER_CONNECTIONS_MAX;
    o->address_connections_max = o->address_connections_max ? o->address_connections_max : NET_ADDRESS_CONNECTIONS_MAX;
    o->receiving_max = o->receiving_max ? o->receiving_max : NET_RECEIVING_MAX;
    uint64_t body_max = o->body_max ? o->body_max : HTTP_BODY_MAX;
    o->user_unsent_max = o->user_unsent_max ? o->user_unsent_max : NET_USER_UNSENT_MAX;
    if (!o->user_receiving_max)
        o->user_receiving_max = body_max > NET_USER_RECEIVING_MAX / 2 ? 2 * body_max : NET_USER_RECEIVING_MAX;
    o->small_body_bytes = o->small_body_bytes ? o->small_body_bytes : NET_SMALL_BODY_BYTES;
}

struct net_server *net_server_new(uv_loop_t *loop, const struct net_server_options *options) {
    assert(options->on_request);
    struct net_server *s = xcalloc(1, sizeof *s);
    s->loop = loop;
    s->options = *options;
    set_defaults(&s->options);
    s->strangers.many_pieces = CONN_STRANGERS_MANY_PIECES;
    uv_timer_init(loop, &s->grace);
    s->grace.data = s;
    signal(SIGPIPE, SIG_IGN);  // a client that goes away is an error of that write, nothing more
    return s;
}

uint16_t net_server_port(const struct net_server *s) {
    return s->port;
}

uint32_t net_server_connections(const struct net_server *s) {
    return s->connections;
}

static void free_http_conn(struct net_conn *c) {
    free(c);
}

static void on_grace_closed(uv_handle_t *handle) {
    struct net_server *s = handle->data;
    void (*done)(void *) = s->done;
    void *user = s->done_user;
    vec_done(&s->listeners);
    strmap_done(&s->budgets);
    free(s);
    if (done)
        done(user);
}

static void maybe_done(struct net_server *s) {
    if (s->closing && s->connections == 0 && s->listeners_open == 0 &&
        !uv_is_closing((uv_handle_t *)&s->grace))
        uv_close((uv_handle_t *)&s->grace, on_grace_closed);
}

static void on_conn_closed(struct net_conn *c) {
    struct http_conn *h = (struct http_conn *)c;
    struct net_server *s = h->server;
    if (h->prev)
        h->prev->next = h->next;
    else
        s->first = h->next;
    if (h->next)
        h->next->prev = h->prev;
    net_budget_release(s, h);
    h->server = NULL;
    s->connections--;
    maybe_done(s);
}

static int fill_unix_peer(struct net_conn *c) {
    uv_os_fd_t fd;
    struct ucred cred;
    socklen_t len = sizeof cred;
    if (uv_fileno(&c->handle, &fd) < 0 ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
        return -EACCES;
    c->peer = (struct net_peer){
        .kind = NET_PEER_UNIX, .uid = cred.uid, .gid = cred.gid, .pid = cred.pid};
    memcpy(c->peer.address, "unix", 5);
    return 0;
}

static void fill_tcp_peer(struct net_conn *c, enum net_peer_kind kind) {
    struct sockaddr_storage a;
    int len = sizeof a;
    char host[INET6_ADDRSTRLEN] = "?";
    int port = 0;
    if (uv_tcp_getpeername(&c->tcp, (struct sockaddr *)&a, &len) == 0) {
        uv_ip_name((struct sockaddr *)&a, host, sizeof host);
        port = ntohs(((struct sockaddr_in *)&a)->sin_port);  // at the same place in both families
    }
    c->peer = (struct net_peer){.kind = kind, .uid = (uid_t)-1, .gid = (gid_t)-1, .pid = -1};
    snprintf(c->peer.address, sizeof c->peer.address, "[%s]:%d", host, port);
}

// Set up whole before anything is checked: destroying a connection has one way, which closes its handle in the loop;
// a connection that was accepted half would need another.
static void accept_one(struct listener *l) {
    struct net_server *s = l->server;
    struct http_conn *h = xcalloc(1, sizeof *h);
    struct net_conn *c = &h->conn;
    if (l->kind == NET_PEER_UNIX)
        uv_pipe_init(s->loop, &c->pipe, 0);
    else
        uv_tcp_init(s->loop, &c->tcp);
    net_conn_init(c, s->loop, s->read_buffer);
    c->free_fn = free_http_conn;
    c->on_closed = on_conn_closed;
    h->server = s;
    h->next = s->first;
    if (s->first)
        s->first->prev = h;
    s->first = h;
    s->connections++;
    int r = uv_accept(&l->stream, &c->stream);
    if (l->kind != NET_PEER_UNIX) {
        fill_tcp_peer(c, l->kind);
        uv_tcp_nodelay(&c->tcp, 1);
        c->tls = l->tls ? tls_new(l->tls) : NULL;
        c->handshakes = &s->handshakes;
    } else if (r == 0) {
        r = fill_unix_peer(c);
    }
    h->identified = l->kind == NET_PEER_UNIX;
    http_conn_start(s, h);
    if (r < 0 || s->closing || !net_budget_accept(s, h))
        net_conn_destroy(c);
}

static void on_connection(uv_stream_t *stream, int status);

static void on_accept_again(uv_timer_t *t) {
    struct listener *l = t->data;
    on_connection(&l->stream, 0);
}

// While one that libuv has announced is not accepted, libuv announces no other.
static void on_connection(uv_stream_t *stream, int status) {
    struct listener *l = stream->data;
    struct net_server *s = l->server;
    if (status < 0)
        return;
    if (l->at_ms != uv_now(s->loop)) {
        l->at_ms = uv_now(s->loop);
        l->accepted = 0;
    }
    if (l->accepted == NET_ACCEPT_TURN) {
        uv_timer_start(&l->again, on_accept_again, 1, 0);
        return;
    }
    if (++l->accepted > s->accepted_max)
        s->accepted_max = l->accepted;
    accept_one(l);
}

static struct listener *listener_new(struct net_server *s, enum net_peer_kind kind) {
    struct listener *l = xcalloc(1, sizeof *l);
    l->server = s;
    l->kind = kind;
    uv_timer_init(s->loop, &l->again);
    l->again.data = l;
    l->handles = 2;
    return l;
}

static void on_listener_closed(uv_handle_t *handle) {
    struct listener *l = handle->data;
    struct net_server *s = l->server;
    if (--l->handles)
        return;
    free(l->path);
    free(l);
    s->listeners_open--;
    maybe_done(s);
}

static void listener_close(struct listener *l) {
    struct stat st;
    if (l->path && lstat(l->path, &st) == 0 && st.st_dev == l->dev && st.st_ino == l->ino)
        unlink(l->path);
    uv_close(&l->handle, on_listener_closed);
    uv_close((uv_handle_t *)&l->again, on_listener_closed);
}

// Starts listening unless something failed before (`r`); the listener is the server's afterwards,
// also on failure.
static int listener_start(struct net_server *s, struct listener *l, int r) {
    l->handle.data = l;
    s->listeners_open++;
    if (r == 0)
        r = uv_listen(&l->stream, BACKLOG, on_connection);
    if (r < 0) {
        listener_close(l);
        return r;
    }
    vec_push(&s->listeners, l);
    return 0;
}

// Whether somebody answers at the socket.
static bool socket_alive(const struct sockaddr_un *a) {
    cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return fd >= 0 && (connect(fd, (const struct sockaddr *)a, sizeof *a) == 0 || errno == EAGAIN);
}

static int bind_unix(const char *path, mode_t mode, struct stat *st, struct error *e) {
    struct sockaddr_un a = {.sun_family = AF_UNIX}, final = {.sun_family = AF_UNIX};
    int n = snprintf(a.sun_path, sizeof a.sun_path, "%s.%d", path, (int)getpid());
    if (n < 0 || (size_t)n >= sizeof a.sun_path)
        return error_set(e, ENAMETOOLONG, "the socket path %s is too long: at most about %zu bytes",
                         path, sizeof a.sun_path - 9);
    memcpy(final.sun_path, path, strlen(path));
    if (lstat(path, st) == 0) {
        if (!S_ISSOCK(st->st_mode))
            return error_set(e, EEXIST, "%s exists and is not a socket", path);
        if (socket_alive(&final))
            return error_set(e, EADDRINUSE, "another server listens on %s", path);
    }
    cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return error_set(e, errno, "no socket: %s", strerror(errno));
    unlink(a.sun_path);
    // Listening comes before the rename: whoever sees the socket can connect to it.
    if (fchmod(fd, 0) < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) < 0)
        return error_set(e, errno, "cannot bind %s: %s", path, strerror(errno));
    if (chmod(a.sun_path, mode) < 0 || listen(fd, BACKLOG) < 0 || lstat(a.sun_path, st) < 0 ||
        rename(a.sun_path, path) < 0) {
        int code = errno;
        unlink(a.sun_path);
        return error_set(e, code, "cannot make the socket %s: %s", path, strerror(code));
    }
    return TAKE_FD(fd);
}

int net_server_listen_unix(struct net_server *s, const char *path, mode_t mode, struct error *e) {
    struct stat st;
    int fd = bind_unix(path, mode, &st, e);
    if (fd < 0)
        return fd;
    struct listener *l = listener_new(s, NET_PEER_UNIX);
    l->path = xstrdup(path);
    l->mode = mode;
    l->dev = st.st_dev;
    l->ino = st.st_ino;
    uv_pipe_init(s->loop, &l->pipe, 0);
    int r = uv_pipe_open(&l->pipe, fd);
    if (r < 0)
        close(fd);
    r = listener_start(s, l, r);
    return r < 0 ? error_set(e, -r, "cannot listen on %s: %s", path, uv_strerror(r)) : 0;
}

static uint16_t port_of(const struct listener *l) {
    struct sockaddr_storage bound;
    int len = sizeof bound;
    if (uv_tcp_getsockname(&l->tcp, (struct sockaddr *)&bound, &len) < 0)
        return 0;
    return ntohs(((struct sockaddr_in *)&bound)->sin_port);  // at the same place in both families
}

int net_server_restore_unix(struct net_server *s, struct error *e) {
    struct stat st;
    for (uint32_t i = 0; !s->closing && i < s->listeners.len; i++) {
        struct listener *l = s->listeners.at[i];
        if (!l->path || lstat(l->path, &st) == 0 || errno != ENOENT)
            continue;
        int r = net_server_listen_unix(s, l->path, l->mode, e);
        if (r < 0)
            return r;
        vec_remove_swap(&s->listeners, i);
        listener_close(l);  // nobody can reach it any more; its connections go on
        return 1;
    }
    return 0;
}

int net_server_listen_tls(struct net_server *s, const char *host, uint16_t port,
                          struct tls_context *tls, struct error *e) {
    char service[8];
    snprintf(service, sizeof service, "%u", port);
    struct addrinfo *list = NULL,
                    hints = {.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM};
    const char *name = host ? host : "::";
    int g = getaddrinfo(name, service, &hints, &list);
    if (g != 0 && !host)
        g = getaddrinfo("0.0.0.0", service, &hints, &list);
    if (g != 0)
        return error_set(e, EINVAL, "cannot listen on %s: %s", name, gai_strerror(g));
    struct listener *l = listener_new(s, NET_PEER_TLS);
    l->tls = tls;
    uv_tcp_init(s->loop, &l->tcp);
    int r = uv_tcp_bind(&l->tcp, list->ai_addr, 0);
    freeaddrinfo(list);
    r = listener_start(s, l, r);
    if (r < 0)
        return error_set(e, -r, "cannot listen on %s port %u: %s", name, port, uv_strerror(r));
    s->port = port_of(l);
    return 0;
}

int net_server_listen_loopback(struct net_server *s, uint16_t *port, struct error *e) {
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons(*port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct listener *l = listener_new(s, NET_PEER_HTTP);
    uv_tcp_init(s->loop, &l->tcp);
    int r = listener_start(s, l, uv_tcp_bind(&l->tcp, (const struct sockaddr *)&a, 0));
    if (r < 0)
        return error_set(e, -r, "cannot listen on 127.0.0.1 port %u: %s", *port, uv_strerror(r));
    *port = port_of(l);
    return 0;
}

uint32_t net_server_end_passes(struct net_server *s, bool (*holds)(const char *pass, void *user), void *user) {
    uint32_t ended = 0;
    for (struct http_conn *h = s->first; h; h = h->next)
        if (h->pass[0] && !holds(h->pass, user)) {
            net_conn_destroy(&h->conn);
            ended++;
        }
    return ended;
}

static void on_grace_over(uv_timer_t *timer) {
    struct net_server *s = timer->data;
    for (struct http_conn *h = s->first; h; h = h->next)
        net_conn_destroy(&h->conn);
}

void net_server_close(struct net_server *s, uint32_t grace_ms, void (*done)(void *user),
                      void *user) {
    if (s->closing)
        return;
    s->closing = true;
    s->done = done;
    s->done_user = user;
    for (uint32_t i = 0; i < s->listeners.len; i++)
        listener_close(s->listeners.at[i]);
    vec_clear(&s->listeners);
    for (struct http_conn *h = s->first; h; h = h->next)
        http_conn_shutdown(h);
    uv_timer_start(&s->grace, on_grace_over, grace_ms, 0);
    maybe_done(s);
}
