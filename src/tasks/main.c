// acequia-tasks: the process of a pool (python/acequia/pool.py) on its node. At the head it owns the sockets of clients
// and worker processes, the shared memory, and the output of workers; what is to be done decides tasks/pool.h. With
// --join it is that of another node (join.h). It runs as the user in the job's control group. A template, for Python a
// small program (worker.py), starts it and forks worker processes when told to; each of the two ends with the other.
// Neither agent nor controller is needed while it runs.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/map.h"
#include "base/text.h"
#include "base/vec.h"
#include "join.h"
#include "nodes.h"
#include "tasks/pool.h"
#include "workers.h"

enum {
    UNREAD_MAX = 8 << 20,  // of answers: who has more is asked for nothing until it reads
    EVENTS = 64,
    CONNECTIONS_MAX = 1024,
    CONNECTION_NUMBERS = 1 << 24
};

struct pool_socket {
    struct tasks_stream s;
    bool hello, worker;
    bool client;       // the pool lives while there is one; those that only look do not count
    uint32_t process;  // of a worker
};

struct pool_program {
    int epoll, listener;
    const char *path;
    struct workers workers;
    struct nodes *nodes;
    struct tasks_options o;
    struct tasks_pool *pool;
    struct map conns;
    uint32_t next_conn, nclients, nconns;
    int64_t linger_us, alone_since_us;
};

static void do_stop(void *ctx, uint32_t worker, bool kill);

// --- connections ---

static struct pool_socket *conn_new(struct pool_program *p, int fd, bool worker) {
    struct pool_socket *c = xcalloc(1, sizeof *c);
    c->s.fd = fd;
    c->s.number = ++p->next_conn;
    c->s.unread_max = worker ? 0 : UNREAD_MAX;
    c->worker = c->hello = worker;
    map_put(&p->conns, c->s.number, c);
    tasks_watch(p->epoll, fd, FROM_CONNECTION, c->s.number, EPOLLIN, EPOLL_CTL_ADD);
    p->nconns += !worker;
    return c;
}

static void socket_free(struct pool_socket *c) {
    tasks_stream_done(&c->s);
    free(c);
}

static void conn_close(struct pool_program *p, struct pool_socket *c) {
    if (!c->worker && c->hello)
        tasks_pool_close(p->pool, c->s.number, tasks_now_us());
    if (c->client && --p->nclients == 0)
        p->alone_since_us = tasks_now_us();
    if (c->s.fd >= 0)
        close(c->s.fd);
    c->s.fd = -1;
    if (c->worker)
        return;  // it goes with its process
    p->nconns--;
    map_remove(&p->conns, c->s.number);
    socket_free(c);
}

static void welcome(struct pool_program *p, struct pool_socket *c, bool shares) {
    cleanup_buf struct buf b = {0};
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    tasks_begin(&b, TASKS_WELCOME, 4 + 4 + 8 + 1);
    tasks_add_u32(&b, TASKS_VERSION);
    tasks_add_u32(&b, c->s.number);
    tasks_add_u64(&b, p->o.memory_bytes);
    tasks_add_u8(&b, shares);
    struct iovec v = {b.data, b.len};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    if (shares) {
        m.msg_control = control.bytes;
        m.msg_controllen = sizeof control.bytes;
        struct cmsghdr *h = CMSG_FIRSTHDR(&m);
        *h = (struct cmsghdr){
            .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(h), &p->workers.memory_fd, sizeof(int));
    }
    // The first bytes of a connection fit into its buffer.
    if (sendmsg(c->s.fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)b.len)
        shutdown(c->s.fd, SHUT_RDWR);
}

static int on_hello(struct pool_program *p, struct pool_socket *c, enum tasks_frame type, const char *body,
                    size_t len) {
    struct tasks_reader r = {.at = (const uint8_t *)body, .end = (const uint8_t *)body + len};
    uint32_t version = tasks_read_u32(&r);
    uint8_t kind = tasks_read_u8(&r), shares = tasks_read_u8(&r);
    if (r.bad || type != TASKS_HELLO || (kind != TASKS_CLIENT && kind != TASKS_VIEWER))
        return -EPROTO;
    bool same = version == TASKS_VERSION;  // the other side says what is wrong
    welcome(p, c, same && shares && kind == TASKS_CLIENT);
    if (!same)
        return -EPROTO;
    c->hello = true;
    c->client = kind == TASKS_CLIENT;
    p->nclients += c->client;
    tasks_pool_open(p->pool, c->s.number, kind, shares, false, 0);
    return 0;
}

static int conn_frames(struct pool_program *p, struct pool_socket *c) {
    size_t at = 0, len;
    enum tasks_frame type;
    const char *body;
    int r = 0;
    int64_t now = tasks_now_us();
    while (!tasks_stream_reads_nothing(&c->s) && (r = tasks_next_frame(&c->s.in, &at, &type, &body, &len)) > 0) {
        r = c->hello ? tasks_pool_frame(p->pool, c->s.number, type, body, len, now)
                     : on_hello(p, c, type, body, len);
        if (r < 0)
            return r;
    }
    if (at)
        buf_drop(&c->s.in, at);
    return r;
}

// 1: there may be more; 0: not now; negative: it has ended.
static int conn_read(struct pool_program *p, struct pool_socket *c) {
    int more = tasks_stream_read(&c->s);
    int r = more < 0 ? 0 : conn_frames(p, c);
    return r < 0 ? r : more;
}

static void on_connection(struct pool_program *p, uint32_t number, uint32_t events) {
    struct pool_socket *c = map_get(&p->conns, number);
    if (!c || c->s.fd < 0)
        return;
    int r = events & (EPOLLIN | EPOLLHUP | EPOLLERR) ? conn_read(p, c) : 0;
    if (r < 0) {
        if (c->worker && r == -EPROTO)
            do_stop(p, c->process, true);
        conn_close(p, c);
        return;
    }
    if (events & EPOLLOUT) {
        bool paused = c->s.paused;
        tasks_stream_flush(&c->s, p->epoll, FROM_CONNECTION);
        tasks_pool_drained(p->pool, number);
        if (paused && !c->s.paused && conn_frames(p, c) < 0) {
            conn_close(p, c);
            return;
        }
    }
    tasks_stream_watch(&c->s, p->epoll, FROM_CONNECTION, c->s.wants_write);
}

static void on_listener(struct pool_program *p) {
    struct ucred peer;
    socklen_t len = sizeof peer;
    int fd = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    bool known =
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && (peer.uid == geteuid() || peer.uid == 0);
    if (!known || p->nconns >= CONNECTIONS_MAX || p->next_conn + 1 >= CONNECTION_NUMBERS)
        close(fd);
    else
        conn_new(p, fd, false);
}

// --- what the pool asks for: of this node, or of another one ---

static void do_send(void *ctx, uint32_t conn, const struct buf *frames) {
    struct pool_program *p = ctx;
    struct pool_socket *c = map_get(&p->conns, conn);
    if (c && c->s.fd >= 0)
        buf_add(&c->s.out, frames->data, frames->len);
    else if (!c && p->nodes)
        nodes_send(p->nodes, conn, frames);
}

static size_t do_unsent(void *ctx, uint32_t conn) {
    struct pool_program *p = ctx;
    const struct pool_socket *c = map_get(&p->conns, conn);
    return c ? c->s.out.len : p->nodes ? nodes_unsent(p->nodes, conn) : 0;
}

static void do_start(void *ctx, uint32_t node, uint32_t worker, const char *gpus) {
    struct pool_program *p = ctx;
    if (node) {
        uint32_t conn = ++p->next_conn;
        nodes_start(p->nodes, node, worker, conn, gpus);
        tasks_pool_open(p->pool, conn, TASKS_WORKER, true, true, worker);
        return;
    }
    int fd = workers_start(&p->workers, worker, p->next_conn + 1, gpus);
    struct pool_socket *c = conn_new(p, fd, true);
    c->process = worker;
    tasks_pool_open(p->pool, c->s.number, TASKS_WORKER, true, true, worker);
}

static bool elsewhere(const struct pool_program *p, uint32_t worker) {
    return p->nodes && nodes_has(p->nodes, worker);
}

static int do_give(void *ctx, uint32_t worker, const struct buf *packet) {
    struct pool_program *p = ctx;
    if (elsewhere(p, worker))
        return nodes_give(p->nodes, worker, packet);
    return workers_give(&p->workers, worker, packet->data, packet->len);
}

static bool do_take_back(void *ctx, uint32_t worker, struct buf *packet) {
    struct pool_program *p = ctx;
    return workers_take_back(&p->workers, worker, packet);
}

static void do_ask_back(void *ctx, uint32_t worker) {
    struct pool_program *p = ctx;
    nodes_ask_back(p->nodes, worker);
}

static void do_stop(void *ctx, uint32_t worker, bool kill) {
    struct pool_program *p = ctx;
    if (elsewhere(p, worker))
        nodes_stop(p->nodes, worker, kill);
    else
        workers_stop(&p->workers, worker, kill);
}

static void do_output(void *ctx, uint32_t worker, struct buf *out) {
    struct pool_program *p = ctx;
    if (elsewhere(p, worker))
        nodes_output(p->nodes, worker, out);
    else
        workers_output(&p->workers, worker, out);
}

static void do_fill(void *ctx, uint64_t at, uint64_t size) {
    struct pool_program *p = ctx;
    fallocate(p->workers.memory_fd, 0, (off_t)at, (off_t)size);
}

static void do_drop(void *ctx, uint32_t node, uint64_t at, uint64_t size) {
    struct pool_program *p = ctx;
    if (node)
        nodes_drop(p->nodes, node, at, size);
    else
        workers_drop(&p->workers, at, size);
}

static void do_fetch(void *ctx, uint32_t to, uint64_t id, uint64_t at, uint64_t size, uint32_t from, uint64_t from_at) {
    struct pool_program *p = ctx;
    nodes_fetch(p->nodes, to, &(struct peer_fetch){.id = id, .at = at, .size = size}, from, from_at);
}

static uint8_t *do_memory(void *ctx, uint64_t at) {
    struct pool_program *p = ctx;
    return p->workers.memory + at;
}

static void process_ended(void *ctx, uint32_t worker, const char *how) {
    struct pool_program *p = ctx;
    struct pool_socket *c = map_get(&p->conns, workers_get(&p->workers, worker)->conn);
    while (c->s.fd >= 0 && conn_read(p, c) > 0)
        continue;
    tasks_pool_worker_ended(p->pool, worker, how, tasks_now_us());
    tasks_pool_close(p->pool, c->s.number, tasks_now_us());
    map_remove(&p->conns, c->s.number);
    socket_free(c);
    workers_forget(&p->workers, worker);
}

// --- the program ---

static int listen_at(const char *path) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof at.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(at.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    mode_t before = umask(077);
    unlink(path);
    int r = fd < 0 ? -1 : bind(fd, (struct sockaddr *)&at, sizeof at);
    umask(before);
    return r < 0 || listen(fd, 128) < 0 ? -1 : fd;
}

static void handle(struct pool_program *p, const struct epoll_event *e) {
    uint32_t number = (uint32_t)e->data.u64;
    switch ((enum source)(e->data.u64 >> 32)) {
    case FROM_CONTROL: workers_on_control(&p->workers, process_ended, p); break;
    case FROM_LISTENER: on_listener(p); break;
    case FROM_CONNECTION: on_connection(p, number, e->events); break;
    case FROM_OUTPUT: workers_on_output(&p->workers, number); break;
    case FROM_NODES: nodes_accept(p->nodes); break;
    case FROM_PEER: nodes_event(p->nodes, number, e->events); break;
    }
}

static void flush_all(struct pool_program *p) {
    uint64_t id;
    void *value;
    for (size_t it = 0; map_next(&p->conns, &it, &id, &value);) {
        struct pool_socket *c = value;
        if (!c->s.out.len || c->s.wants_write)
            continue;
        tasks_stream_flush(&c->s, p->epoll, FROM_CONNECTION);
        if (c->s.out.len || c->s.fd < 0)
            continue;
        tasks_pool_drained(p->pool, c->s.number);
        if (c->s.out.len)  // more of a large value: in the next turn, others have theirs before
            tasks_stream_watch(&c->s, p->epoll, FROM_CONNECTION, true);
    }
}

static int sooner(int a, int b) {
    return a < 0 || (b >= 0 && b < a) ? b : a;
}

static void loop(struct pool_program *p) {
    struct epoll_event events[EVENTS];
    while (!p->workers.over && !tasks_pool_ending(p->pool)) {
        int wait = tasks_pool_turn(p->pool, tasks_now_us());
        flush_all(p);
        if (p->nodes)
            wait = sooner(wait, nodes_turn(p->nodes, tasks_now_us()));
        if (!p->nclients) {
            int64_t left = p->alone_since_us + p->linger_us - tasks_now_us();
            if (left <= 0)
                return;
            wait = sooner(wait, (int)(left / 1000) + 1);
        }
        int n = epoll_wait(p->epoll, events, EVENTS, wait);
        for (int i = 0; i < n && !p->workers.over; i++)
            handle(p, &events[i]);
    }
}

static const char *option(int argc, char **argv, const char *name) {
    for (int i = 1; i + 1 < argc; i += 2)
        if (streq(argv[i], name))
            return argv[i + 1];
    return NULL;
}

static void done(struct pool_program *p) {
    uint64_t id;
    void *value;
    p->nodes = nodes_free(p->nodes);
    for (size_t it = 0; map_next(&p->conns, &it, &id, &value);)
        socket_free(value);
    map_done(&p->conns);
    workers_done(&p->workers);
    tasks_pool_free(p->pool);
}

static int wrong_use(void) {
    fprintf(stderr, "acequia-tasks is started by acequia.Pool\n");
    return 2;
}

int main(int argc, char **argv) {
    static const struct tasks_host host = {do_send, do_unsent, do_start, do_give,  do_take_back, do_ask_back,
                                           do_stop, do_output, do_fill,  do_drop, do_fetch,     do_memory};
    static const char *gpus[WORKERS_GPUS_MAX];
    struct pool_program p = {.epoll = epoll_create1(EPOLL_CLOEXEC), .alone_since_us = tasks_now_us()};
    const char *cpus = option(argc, argv, "--cpus"), *linger = option(argc, argv, "--linger"),
               *join = option(argc, argv, "--join");
    uint32_t linger_s = 0;
    p.workers.epoll = p.epoll;
    p.workers.source = FROM_OUTPUT;
    p.path = option(argc, argv, "--socket");
    if (!workers_init(&p.workers, option(argc, argv, "--control"), option(argc, argv, "--memory")) || !cpus ||
        parse_u32(cpus, &p.o.cpus) < 0 || !p.o.cpus)
        return wrong_use();
    if (!join && (!p.path || !linger || parse_u32(linger, &linger_s) < 0))
        return wrong_use();
    const char *names = option(argc, argv, "--gpus"), *node = getenv("ACEQUIA_NODE");
    cleanup_free char *list = xstrdup(names ? names : "");
    p.o.name = node ? node : "";
    p.o.gpus = nodes_split_gpus(list, gpus);
    p.o.gpu_names = gpus;
    p.o.memory_bytes = p.workers.memory_bytes;
    p.o.workers = workers_possible(CONNECTIONS_MAX);
    p.o.held_bytes = p.o.memory_bytes / 2 > (64 << 20) ? p.o.memory_bytes / 2 : 64 << 20;
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (join)
        return join_run(&p.workers, &p.o, names ? names : "", join);
    p.linger_us = linger_s * 1000000LL;
    p.listener = listen_at(p.path);
    if (p.listener < 0 || !workers_memory(&p.workers)) {
        fprintf(stderr, "acequia-tasks: the pool cannot begin at %s: %s\n", p.path, strerror(errno));
        return 1;
    }
    tasks_watch(p.epoll, p.workers.control, FROM_CONTROL, 0, EPOLLIN, EPOLL_CTL_ADD);
    tasks_watch(p.epoll, p.listener, FROM_LISTENER, 0, EPOLLIN, EPOLL_CTL_ADD);
    p.pool = tasks_pool_new(&p.o, &host, &p);
    if (option(argc, argv, "--nodes") && !(p.nodes = nodes_new(p.epoll, &p.workers, p.pool)))
        return 1;
    loop(&p);
    unlink(p.path);
    done(&p);
    return 0;
}
