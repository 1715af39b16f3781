// acequia-tasks: the process of a pool (python/acequia/pool.py) on its node. Owns the sockets of clients and worker
// processes, the shared memory, and the output of workers; what is to be done decides tasks/pool.h. It runs as the user
// in the job's control group. The job's first process, a small Python program (worker.py), starts it and forks worker
// processes when told to; each of the two ends with the other. Neither agent nor controller is needed while it runs.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/map.h"
#include "base/text.h"
#include "base/vec.h"
#include "tasks/pool.h"

enum {
    READ_BYTES = 256 << 10,  // of one connection in one turn
    UNREAD_MAX = 8 << 20,    // of answers: who has more is asked for nothing until it reads
    TAIL_BYTES = 4096,       // kept of what a worker's task wrote
    EVENTS = 64,
    CONNECTIONS_MAX = 1024,
    CONNECTION_NUMBERS = 1 << 24,
    CONTROL_MAX = 512,
    SOCKET_BYTES = 1 << 20,  // wished for buffers of workers' channels
    GPUS_MAX = 64,
    DESCRIPTORS_PER_WORKER = 4,
    DESCRIPTORS_BESIDE = 64,  // of clients and our own, where there are few
};

enum source { FROM_CONTROL, FROM_LISTENER, FROM_CONNECTION, FROM_OUTPUT };

struct pool_socket {
    int fd;
    uint32_t number;
    bool hello, wants_write, paused, worker;
    bool client;       // the pool lives while there is one; those that only look do not count
    uint32_t process;  // of a worker
    struct buf in, out;
};

struct worker_process {
    uint32_t number, conn;
    int channel, channel_end, output;
    struct buf tail;
};

struct pool_program {
    int epoll, control, listener, memory_fd;
    uint8_t *memory;
    const char *path;
    struct tasks_options o;
    struct tasks_pool *pool;
    struct map conns, processes;
    uint32_t next_conn, nclients, nconns;
    int64_t linger_us, alone_since_us;
    bool over;
};

static int64_t now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}

static void watch(struct pool_program *p, int fd, enum source source, uint32_t number, uint32_t events,
                  int op) {
    struct epoll_event e = {.events = events, .data.u64 = (uint64_t)source << 32 | number};
    epoll_ctl(p->epoll, op, fd, &e);
}

static void do_stop(void *ctx, uint32_t worker, bool kill);

// --- connections ---

static bool reads_nothing(const struct pool_socket *c) {
    return !c->worker && c->out.len > UNREAD_MAX;
}

static void conn_watch(struct pool_program *p, struct pool_socket *c, bool wants_write) {
    bool paused = reads_nothing(c);
    if (wants_write == c->wants_write && paused == c->paused)
        return;
    c->wants_write = wants_write;
    c->paused = paused;
    watch(p, c->fd, FROM_CONNECTION, c->number,
          (paused ? 0 : (uint32_t)EPOLLIN) | (wants_write ? (uint32_t)EPOLLOUT : 0), EPOLL_CTL_MOD);
}

static void conn_flush(struct pool_program *p, struct pool_socket *c) {
    size_t at = 0;
    while (c->fd >= 0 && at < c->out.len) {
        ssize_t n = send(c->fd, c->out.data + at, c->out.len - at, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0)
            break;  // what is wrong is seen when it is read
        at += (size_t)n;
    }
    if (at)
        buf_drop(&c->out, at);
    conn_watch(p, c, c->fd >= 0 && c->out.len);
}

static struct pool_socket *conn_new(struct pool_program *p, int fd, bool worker) {
    struct pool_socket *c = xcalloc(1, sizeof *c);
    c->fd = fd;
    c->number = ++p->next_conn;
    c->worker = c->hello = worker;
    map_put(&p->conns, c->number, c);
    watch(p, fd, FROM_CONNECTION, c->number, EPOLLIN, EPOLL_CTL_ADD);
    p->nconns++;
    return c;
}

static void socket_free(struct pool_socket *c) {
    if (c->fd >= 0)
        close(c->fd);
    buf_done(&c->in);
    buf_done(&c->out);
    free(c);
}

static void conn_close(struct pool_program *p, struct pool_socket *c) {
    if (!c->worker && c->hello)
        tasks_pool_close(p->pool, c->number, now_us());
    if (c->client && --p->nclients == 0)
        p->alone_since_us = now_us();
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
    if (c->worker)
        return;  // it goes with its process
    p->nconns--;
    map_remove(&p->conns, c->number);
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
    tasks_add_u32(&b, c->number);
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
        memcpy(CMSG_DATA(h), &p->memory_fd, sizeof(int));
    }
    // The first bytes of a connection fit into its buffer.
    if (sendmsg(c->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)b.len)
        shutdown(c->fd, SHUT_RDWR);
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
    tasks_pool_open(p->pool, c->number, kind, shares, false, 0);
    return 0;
}

static int conn_frames(struct pool_program *p, struct pool_socket *c) {
    size_t at = 0, len;
    enum tasks_frame type;
    const char *body;
    int r = 0;
    int64_t now = now_us();
    while (!reads_nothing(c) && (r = tasks_next_frame(&c->in, &at, &type, &body, &len)) > 0) {
        r = c->hello ? tasks_pool_frame(p->pool, c->number, type, body, len, now)
                     : on_hello(p, c, type, body, len);
        if (r < 0)
            return r;
    }
    if (at)
        buf_drop(&c->in, at);
    return r;
}

// 1: there may be more; 0: not now; negative: it has ended.
static int conn_read(struct pool_program *p, struct pool_socket *c) {
    char *room = buf_reserve(&c->in, READ_BYTES);
    ssize_t n = recv(c->fd, room, READ_BYTES, MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    if (n == 0)
        return -ECONNRESET;
    c->in.len += (size_t)n;
    int r = conn_frames(p, c);
    return r < 0 ? r : n == READ_BYTES;
}

static void on_connection(struct pool_program *p, uint32_t number, uint32_t events) {
    struct pool_socket *c = map_get(&p->conns, number);
    if (!c || c->fd < 0)
        return;
    int r = events & (EPOLLIN | EPOLLHUP | EPOLLERR) ? conn_read(p, c) : 0;
    if (r < 0) {
        if (c->worker && r == -EPROTO)
            do_stop(p, c->process, true);
        conn_close(p, c);
        return;
    }
    if (events & EPOLLOUT) {
        bool paused = c->paused;
        conn_flush(p, c);
        tasks_pool_drained(p->pool, number);
        if (paused && !c->paused && conn_frames(p, c) < 0) {
            conn_close(p, c);
            return;
        }
    }
    conn_watch(p, c, c->wants_write);
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

// --- what the pool asks for ---

static void do_send(void *ctx, uint32_t conn, const struct buf *frames) {
    struct pool_program *p = ctx;
    struct pool_socket *c = map_get(&p->conns, conn);
    if (c && c->fd >= 0)
        buf_add(&c->out, frames->data, frames->len);
}

static size_t do_unsent(void *ctx, uint32_t conn) {
    struct pool_program *p = ctx;
    const struct pool_socket *c = map_get(&p->conns, conn);
    return c ? c->out.len : 0;
}

static void tell_template(struct pool_program *p, const char *text, const int *fds, size_t nfds) {
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(4 * sizeof(int))];
    } control = {0};
    struct iovec v = {(char *)(uintptr_t)text, strlen(text)};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    if (nfds) {
        m.msg_control = control.bytes;
        m.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
        struct cmsghdr *h = CMSG_FIRSTHDR(&m);
        *h = (struct cmsghdr){
            .cmsg_len = CMSG_LEN(nfds * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(h), fds, nfds * sizeof(int));
    }
    if (sendmsg(p->control, &m, MSG_NOSIGNAL) < 0)
        p->over = true;
}

static void do_start(void *ctx, uint32_t worker, const char *gpus) {
    struct pool_program *p = ctx;
    struct worker_process *w = xcalloc(1, sizeof *w);
    int channel[2] = {-1, -1}, stream[2] = {-1, -1}, out[2] = {-1, -1}, size = SOCKET_BYTES;
    *w = (struct worker_process){.number = worker, .channel = -1, .channel_end = -1, .output = -1};
    map_put(&p->processes, (uint64_t)worker + 1, w);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channel) < 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, stream) < 0 || pipe2(out, O_CLOEXEC) < 0) {
        fprintf(stderr, "acequia-tasks: a worker process cannot be started: %s\n", strerror(errno));
        exit(1);  // nothing works without descriptors; clients are told that the pool has ended
    }
    setsockopt(channel[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    fcntl(channel[0], F_SETFL, O_NONBLOCK);
    fcntl(stream[0], F_SETFL, O_NONBLOCK);
    fcntl(out[0], F_SETFL, O_NONBLOCK);
    w->channel = channel[0];
    w->channel_end = channel[1];
    w->output = out[0];
    struct pool_socket *c = conn_new(p, stream[0], true);
    c->process = worker;
    w->conn = c->number;
    p->nconns--;
    watch(p, out[0], FROM_OUTPUT, worker, EPOLLIN, EPOLL_CTL_ADD);
    cleanup_buf struct buf text = {0};
    buf_addf(&text, "start %u %u %llu %s", worker, w->conn, (unsigned long long)p->o.memory_bytes, gpus);
    tell_template(p, buf_str(&text), (int[]){channel[1], stream[1], out[1], p->memory_fd}, 4);
    close(stream[1]);
    close(out[1]);
    tasks_pool_open(p->pool, w->conn, TASKS_WORKER, true, true, worker);
}

static struct worker_process *process_of(struct pool_program *p, uint32_t worker) {
    return map_get(&p->processes, (uint64_t)worker + 1);
}

static int do_give(void *ctx, uint32_t worker, const struct buf *packet) {
    struct pool_program *p = ctx;
    struct worker_process *w = process_of(p, worker);
    if (!w)
        return -ESRCH;
    return send(w->channel, packet->data, packet->len, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -EAGAIN : 0;
}

static bool do_take_back(void *ctx, uint32_t worker, struct buf *packet) {
    struct pool_program *p = ctx;
    struct worker_process *w = process_of(p, worker);
    if (!w)
        return false;
    char *room = buf_reserve(packet, TASKS_MESSAGE_MAX);
    ssize_t n = recv(w->channel_end, room, TASKS_MESSAGE_MAX, MSG_DONTWAIT);
    if (n <= 0)
        return false;
    packet->len += (size_t)n;
    return true;
}

static void do_stop(void *ctx, uint32_t worker, bool kill) {
    struct pool_program *p = ctx;
    struct worker_process *w = process_of(p, worker);
    char quit = TASKS_QUIT, text[32];
    if (!w || (!kill && send(w->channel, &quit, 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1))
        return;
    snprintf(text, sizeof text, "kill %u", worker);
    tell_template(p, text, NULL, 0);
}

static void keep_tail(struct buf *tail, const char *data, size_t len) {
    buf_add(tail, data, len);
    if (tail->len > TAIL_BYTES)
        buf_drop(tail, tail->len - TAIL_BYTES);
}

// False: it has ended.
static bool read_output(struct worker_process *w) {
    char piece[TAIL_BYTES];
    for (int i = 0; i < 16; i++) {
        ssize_t n = read(w->output, piece, sizeof piece);
        if (n <= 0)
            return n < 0;
        keep_tail(&w->tail, piece, (size_t)n);
        for (ssize_t at = 0, put; at < n; at += put)
            if ((put = write(STDOUT_FILENO, piece + at, (size_t)(n - at))) <= 0)
                break;
    }
    return true;
}

static void do_output(void *ctx, uint32_t worker, struct buf *out) {
    struct worker_process *w = process_of(ctx, worker);
    if (!w)
        return;
    read_output(w);
    buf_add(out, w->tail.data, w->tail.len);
    buf_clear(&w->tail);
}

static void do_fill(void *ctx, uint64_t at, uint64_t size) {
    struct pool_program *p = ctx;
    fallocate(p->memory_fd, 0, (off_t)at, (off_t)size);
}

static void do_drop(void *ctx, uint64_t at, uint64_t size) {
    struct pool_program *p = ctx;
    fallocate(p->memory_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)size);
}

static uint8_t *do_memory(void *ctx, uint64_t at) {
    struct pool_program *p = ctx;
    return p->memory + at;
}

// --- worker processes ---

static void on_output(struct pool_program *p, uint32_t worker) {
    struct worker_process *w = process_of(p, worker);
    if (w && !read_output(w))  // its task may have closed or replaced it, and goes on
        watch(p, w->output, FROM_OUTPUT, worker, 0, EPOLL_CTL_DEL);
}

static void process_free(struct worker_process *w) {
    close(w->channel);
    close(w->channel_end);
    close(w->output);
    buf_done(&w->tail);
    free(w);
}

static void describe(int status, char *how, size_t size) {
    if (WIFSIGNALED(status))
        snprintf(how, size, "signal %d, %s", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(how, size, "exit code %d", WEXITSTATUS(status));
}

static void process_ended(struct pool_program *p, uint32_t worker, int status) {
    struct worker_process *w = process_of(p, worker);
    char how[96];
    if (!w)
        return;
    struct pool_socket *c = map_get(&p->conns, w->conn);
    while (c->fd >= 0 && conn_read(p, c) > 0)
        continue;
    describe(status, how, sizeof how);
    read_output(w);
    tasks_pool_worker_ended(p->pool, worker, how, now_us());
    tasks_pool_close(p->pool, c->number, now_us());
    map_remove(&p->conns, c->number);
    socket_free(c);
    map_remove(&p->processes, (uint64_t)worker + 1);
    process_free(w);
}

static void on_control(struct pool_program *p) {
    char text[CONTROL_MAX + 1];
    unsigned worker;
    int status;
    for (;;) {
        ssize_t n = recv(p->control, text, CONTROL_MAX, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0) {
            p->over = true;
            return;
        }
        text[n] = 0;
        if (sscanf(text, "end %u %d", &worker, &status) == 2)
            process_ended(p, worker, status);
    }
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

static bool make_memory(struct pool_program *p) {
    p->memory_fd = memfd_create("acequia-tasks", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (p->memory_fd < 0 || ftruncate(p->memory_fd, (off_t)p->o.memory_bytes) < 0 ||
        fcntl(p->memory_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        return false;
    p->memory =
        mmap(NULL, p->o.memory_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, p->memory_fd, 0);
    return p->memory != MAP_FAILED;
}

static void handle(struct pool_program *p, const struct epoll_event *e) {
    uint32_t number = (uint32_t)e->data.u64;
    switch ((enum source)(e->data.u64 >> 32)) {
    case FROM_CONTROL: on_control(p); break;
    case FROM_LISTENER: on_listener(p); break;
    case FROM_CONNECTION: on_connection(p, number, e->events); break;
    case FROM_OUTPUT: on_output(p, number); break;
    }
}

static void flush_all(struct pool_program *p) {
    uint64_t id;
    void *value;
    for (size_t it = 0; map_next(&p->conns, &it, &id, &value);) {
        struct pool_socket *c = value;
        if (!c->out.len || c->wants_write)
            continue;
        conn_flush(p, c);
        if (c->out.len || c->fd < 0)
            continue;
        tasks_pool_drained(p->pool, c->number);
        if (c->out.len) {  // more of a large value: in the next turn, others have theirs before
            conn_watch(p, c, true);
        }
    }
}

static void loop(struct pool_program *p) {
    struct epoll_event events[EVENTS];
    while (!p->over && !tasks_pool_ending(p->pool)) {
        int wait = tasks_pool_turn(p->pool, now_us());
        flush_all(p);
        if (!p->nclients) {
            int64_t left = p->alone_since_us + p->linger_us - now_us();
            if (left <= 0)
                return;
            wait = wait < 0 || wait > left / 1000 ? (int)(left / 1000) + 1 : wait;
        }
        int n = epoll_wait(p->epoll, events, EVENTS, wait);
        for (int i = 0; i < n && !p->over; i++)
            handle(p, &events[i]);
    }
}

// Each worker process takes several descriptors, and shells give programs 1,024 only.
static uint32_t workers_possible(void) {
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) < 0)
        return 0;
    if (l.rlim_cur < l.rlim_max) {
        l.rlim_cur = l.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &l) < 0)
            getrlimit(RLIMIT_NOFILE, &l);
    }
    rlim_t most = l.rlim_cur / DESCRIPTORS_PER_WORKER, beside = DESCRIPTORS_BESIDE / DESCRIPTORS_PER_WORKER;
    return most > CONNECTIONS_MAX ? CONNECTIONS_MAX : most > beside ? (uint32_t)(most - beside) : 1;
}

static const char *option(int argc, char **argv, const char *name) {
    for (int i = 1; i + 1 < argc; i += 2)
        if (streq(argv[i], name))
            return argv[i + 1];
    return NULL;
}

static uint32_t split_gpus(char *list, const char *names[GPUS_MAX]) {
    uint32_t n = 0;
    for (char *at = list; at && *at && n < GPUS_MAX;) {
        names[n++] = at;
        at += strcspn(at, ",");
        if (*at)
            *at++ = 0;
    }
    return n;
}

int main(int argc, char **argv) {
    static const struct tasks_host host = {do_send, do_unsent, do_start, do_give, do_take_back,
                                           do_stop, do_output, do_fill,  do_drop, do_memory};
    static const char *gpus[GPUS_MAX];
    struct pool_program p = {.epoll = epoll_create1(EPOLL_CLOEXEC), .alone_since_us = now_us()};
    const char *control = option(argc, argv, "--control"), *cpus = option(argc, argv, "--cpus"),
               *memory = option(argc, argv, "--memory"), *linger = option(argc, argv, "--linger"),
               *names = option(argc, argv, "--gpus");
    uint32_t fd = 0, linger_s = 0;
    int64_t bytes = 0;
    p.path = option(argc, argv, "--socket");
    if (!p.path || !control || parse_u32(control, &fd) < 0 || !cpus || parse_u32(cpus, &p.o.cpus) < 0 ||
        !memory || parse_i64(memory, &bytes) < 0 || bytes < 1 || !linger ||
        parse_u32(linger, &linger_s) < 0 || !p.o.cpus) {
        fprintf(stderr, "acequia-tasks is started by acequia.Pool\n");
        return 2;
    }
    cleanup_free char *list = xstrdup(names ? names : "");
    p.o.gpus = split_gpus(list, gpus);
    p.o.gpu_names = gpus;
    p.o.memory_bytes = (uint64_t)bytes;
    p.o.workers = workers_possible();
    p.o.held_bytes = (uint64_t)bytes / 2 > (64 << 20) ? (uint64_t)bytes / 2 : 64 << 20;
    p.linger_us = linger_s * 1000000LL;
    p.control = (int)fd;
    fcntl(p.control, F_SETFD, FD_CLOEXEC);
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    p.listener = listen_at(p.path);
    if (p.listener < 0 || !make_memory(&p)) {
        fprintf(stderr, "acequia-tasks: the pool cannot begin at %s: %s\n", p.path, strerror(errno));
        return 1;
    }
    watch(&p, p.control, FROM_CONTROL, 0, EPOLLIN, EPOLL_CTL_ADD);
    watch(&p, p.listener, FROM_LISTENER, 0, EPOLLIN, EPOLL_CTL_ADD);
    p.pool = tasks_pool_new(&p.o, &host, &p);
    loop(&p);
    unlink(p.path);
    uint64_t id;
    void *value;
    for (size_t it = 0; map_next(&p.processes, &it, &id, &value);)
        process_free(value);
    for (size_t it = 0; map_next(&p.conns, &it, &id, &value);)
        socket_free(value);
    map_done(&p.processes);
    map_done(&p.conns);
    tasks_pool_free(p.pool);
    return 0;
}
