// Owns the worker processes of this node: descriptors, the orders to the template, and the shared memory.
#include "workers.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "tasks/wire.h"

enum {
    READ_BYTES = 256 << 10,  // of one connection in one turn
    TAIL_BYTES = 4096,       // kept of what a worker's task wrote
    CONTROL_MAX = 512,
    SOCKET_BYTES = 1 << 20,  // wished for buffers of workers' channels
    DESCRIPTORS_PER_WORKER = 4,
    DESCRIPTORS_BESIDE = 64,  // of clients and our own, where there are few
};

int64_t tasks_now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}

void tasks_watch(int epoll, int fd, uint64_t source, uint32_t number, uint32_t events, int op) {
    struct epoll_event e = {.events = events, .data.u64 = source << 32 | number};
    epoll_ctl(epoll, op, fd, &e);
}

// --- streams ---

int tasks_stream_read(struct tasks_stream *s) {
    char *room = buf_reserve(&s->in, READ_BYTES);
    ssize_t n = recv(s->fd, room, READ_BYTES, MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    if (n == 0)
        return -ECONNRESET;
    s->in.len += (size_t)n;
    return n == READ_BYTES;
}

bool tasks_stream_reads_nothing(const struct tasks_stream *s) {
    return s->unread_max && s->out.len > s->unread_max;
}

void tasks_stream_watch(struct tasks_stream *s, int epoll, uint64_t source, bool wants_write) {
    bool paused = tasks_stream_reads_nothing(s);
    if (wants_write == s->wants_write && paused == s->paused)
        return;
    s->wants_write = wants_write;
    s->paused = paused;
    tasks_watch(epoll, s->fd, source, s->number,
                (paused ? 0 : (uint32_t)EPOLLIN) | (wants_write ? (uint32_t)EPOLLOUT : 0), EPOLL_CTL_MOD);
}

void tasks_stream_flush(struct tasks_stream *s, int epoll, uint64_t source) {
    size_t at = 0;
    while (s->fd >= 0 && at < s->out.len) {
        ssize_t n = send(s->fd, s->out.data + at, s->out.len - at, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0)
            break;  // what is wrong is seen when it is read
        at += (size_t)n;
    }
    if (at)
        buf_drop(&s->out, at);
    tasks_stream_watch(s, epoll, source, s->fd >= 0 && s->out.len);
}

void tasks_stream_done(struct tasks_stream *s) {
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
    buf_done(&s->in);
    buf_done(&s->out);
}

// --- the template ---

static void tell_template(struct workers *ws, const char *text, const int *fds, size_t nfds) {
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
    if (sendmsg(ws->control, &m, MSG_NOSIGNAL) < 0)
        ws->over = true;
}

struct worker_process *workers_get(const struct workers *ws, uint32_t number) {
    return map_get(&ws->processes, (uint64_t)number + 1);
}

int workers_start(struct workers *ws, uint32_t number, uint32_t conn, const char *gpus) {
    struct worker_process *w = xcalloc(1, sizeof *w);
    int channel[2] = {-1, -1}, stream[2] = {-1, -1}, out[2] = {-1, -1}, size = SOCKET_BYTES;
    *w = (struct worker_process){.number = number, .conn = conn};
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
    map_put(&ws->processes, (uint64_t)number + 1, w);
    tasks_watch(ws->epoll, out[0], ws->source, number, EPOLLIN, EPOLL_CTL_ADD);
    cleanup_buf struct buf text = {0};
    buf_addf(&text, "start %u %u %llu %s", number, conn, (unsigned long long)ws->memory_bytes, gpus);
    tell_template(ws, buf_str(&text), (int[]){channel[1], stream[1], out[1], ws->memory_fd}, 4);
    close(stream[1]);
    close(out[1]);
    return stream[0];
}

int workers_give(struct workers *ws, uint32_t number, const void *packet, size_t len) {
    struct worker_process *w = workers_get(ws, number);
    if (!w)
        return -ESRCH;
    return send(w->channel, packet, len, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -EAGAIN : 0;
}

bool workers_take_back(struct workers *ws, uint32_t number, struct buf *packet) {
    struct worker_process *w = workers_get(ws, number);
    if (!w)
        return false;
    char *room = buf_reserve(packet, TASKS_MESSAGE_MAX);
    ssize_t n = recv(w->channel_end, room, TASKS_MESSAGE_MAX, MSG_DONTWAIT);
    if (n <= 0)
        return false;
    packet->len += (size_t)n;
    return true;
}

void workers_stop(struct workers *ws, uint32_t number, bool kill) {
    struct worker_process *w = workers_get(ws, number);
    char quit = TASKS_QUIT, text[32];
    if (!w || (!kill && send(w->channel, &quit, 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1))
        return;
    snprintf(text, sizeof text, "kill %u", number);
    tell_template(ws, text, NULL, 0);
}

// --- output ---

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

void workers_output(struct workers *ws, uint32_t number, struct buf *out) {
    struct worker_process *w = workers_get(ws, number);
    if (!w)
        return;
    read_output(w);
    buf_add(out, w->tail.data, w->tail.len);
    buf_clear(&w->tail);
}

void workers_on_output(struct workers *ws, uint32_t number) {
    struct worker_process *w = workers_get(ws, number);
    if (w && !read_output(w))  // its task may have closed or replaced it, and goes on
        tasks_watch(ws->epoll, w->output, ws->source, number, 0, EPOLL_CTL_DEL);
}

// --- ends ---

static void process_free(struct worker_process *w) {
    close(w->channel);
    close(w->channel_end);
    close(w->output);
    buf_done(&w->tail);
    free(w);
}

void workers_forget(struct workers *ws, uint32_t number) {
    struct worker_process *w = map_remove(&ws->processes, (uint64_t)number + 1);
    if (w)
        process_free(w);
}

static void describe(int status, char *how, size_t size) {
    if (WIFSIGNALED(status))
        snprintf(how, size, "signal %d, %s", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(how, size, "exit code %d", WEXITSTATUS(status));
}

void workers_on_control(struct workers *ws, workers_ended_fn *ended, void *ctx) {
    char text[CONTROL_MAX + 1], how[96];
    unsigned worker;
    int status;
    for (;;) {
        ssize_t n = recv(ws->control, text, CONTROL_MAX, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0) {
            ws->over = true;
            return;
        }
        text[n] = 0;
        if (sscanf(text, "end %u %d", &worker, &status) != 2 || !workers_get(ws, worker))
            continue;
        describe(status, how, sizeof how);
        read_output(workers_get(ws, worker));
        ended(ctx, worker, how);
    }
}

// --- memory ---

bool workers_memory(struct workers *ws) {
    ws->memory_fd = memfd_create("acequia-tasks", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (ws->memory_fd < 0 || ftruncate(ws->memory_fd, (off_t)ws->memory_bytes) < 0 ||
        fcntl(ws->memory_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        return false;
    ws->memory =
        mmap(NULL, ws->memory_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, ws->memory_fd, 0);
    return ws->memory != MAP_FAILED;
}

void workers_drop(const struct workers *ws, uint64_t at, uint64_t size) {
    fallocate(ws->memory_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)size);
}

bool workers_init(struct workers *ws, const char *control, const char *memory) {
    uint32_t fd = 0;
    int64_t bytes = 0;
    if (!control || parse_u32(control, &fd) < 0 || !memory || parse_i64(memory, &bytes) < 0 || bytes < 1)
        return false;
    ws->control = (int)fd;
    ws->memory_bytes = (uint64_t)bytes;
    fcntl(ws->control, F_SETFD, FD_CLOEXEC);
    return true;
}

// Each worker process takes several descriptors, and shells give programs 1,024 only.
uint32_t workers_possible(uint32_t limit) {
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) < 0)
        return 0;
    if (l.rlim_cur < l.rlim_max) {
        l.rlim_cur = l.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &l) < 0)
            getrlimit(RLIMIT_NOFILE, &l);
    }
    rlim_t most = l.rlim_cur / DESCRIPTORS_PER_WORKER, beside = DESCRIPTORS_BESIDE / DESCRIPTORS_PER_WORKER;
    return most > limit ? limit : most > beside ? (uint32_t)(most - beside) : 1;
}


void workers_done(struct workers *ws) {
    uint64_t id;
    void *value;
    for (size_t it = 0; map_next(&ws->processes, &it, &id, &value);)
        process_free(value);
    map_done(&ws->processes);
}
