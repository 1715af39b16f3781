// See the header. A worker has three descriptors beside the usual ones: its socket, the shared memory, and its settings
// in a memory of their own, because they can be larger than a packet.
#include "worker.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"

enum {
    FIRST_FD = 3,
    SOCKET_FD = 3,
    MEMORY_FD = 4,
    SETTINGS_FD = 5,
    PARK_FD = 100,
    SOCKET_BYTES = 4 << 20,
    GRACE_MS = 200
};

static int settings_file(const char *text) {
    int fd = memfd_create("acequia-data-settings", MFD_CLOEXEC);
    size_t n = strlen(text);
    if (fd >= 0 && write(fd, text, n) != (ssize_t)n) {
        close(fd);
        return -1;
    }
    return fd;
}

// In the child: only what does not allocate.
static void become_worker(const struct data_worker_setup *s, int fd, int settings, pid_t parent, const char *threads) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    int from[] = {fd, s->memory_fd, settings};
    for (int i = 0; i < 3; i++)  // out of the way of each other first
        from[i] = fcntl(from[i], F_DUPFD, PARK_FD);
    for (int i = 0; i < 3; i++)
        dup2(from[i], FIRST_FD + i);
    close_range(FIRST_FD + 3, ~0u, 0);
    if (s->gpus)
        setenv("CUDA_VISIBLE_DEVICES", s->gpus, 1);
    if (s->threads) {
        setenv("OMP_NUM_THREADS", threads, 1);
        setenv("MKL_NUM_THREADS", threads, 1);
        setenv("OPENBLAS_NUM_THREADS", threads, 1);
    }
    setenv("ACEQUIA_DATA_THREADS", threads, 1);
    execlp(s->python, s->python, s->program, (char *)NULL);
    dprintf(2, "acequia data: %s cannot be run: %s\n", s->python, strerror(errno));
    _exit(127);
}

int data_worker_start(struct data_worker *w, const struct data_worker_setup *setup, struct error *e) {
    int pair[2];
    cleanup_close int settings = settings_file(setup->settings);
    if (settings < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return error_set(e, errno, "no worker can be started: %s", strerror(errno));
    int bytes = SOCKET_BYTES;
    for (int i = 0; i < 2; i++)
        setsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    char threads[16];
    snprintf(threads, sizeof threads, "%u", setup->threads);
    pid_t parent = getpid();
    w->pid = fork();
    if (w->pid == 0)
        become_worker(setup, pair[1], settings, parent, threads);
    int failed = errno;
    close(pair[1]);
    if (w->pid < 0) {
        close(pair[0]);
        w->pid = 0;
        return error_set(e, failed, "no worker can be started: %s", strerror(failed));
    }
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    w->fd = pair[0];
    w->state = DATA_WORKER_STARTING;
    return 0;
}

int data_worker_send(struct data_worker *w, const struct buf *message) {
    for (;;) {
        ssize_t n = send(w->fd, message->data, message->len, MSG_NOSIGNAL);
        if (n >= 0)
            return 0;
        if (errno != EINTR)
            return -errno;
    }
}

int data_worker_receive(struct data_worker *w, struct buf *out) {
    buf_clear(out);
    char *into = buf_reserve(out, DATA_PACKET_MAX);
    ssize_t n = recv(w->fd, into, DATA_PACKET_MAX, 0);
    if (n > 0) {
        out->len = (size_t)n;
        return 1;
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    return -EPIPE;
}

void data_worker_kill(struct data_worker *w, int *status) {
    *status = 0;
    if (w->fd >= 0)
        close(w->fd);
    w->fd = -1;
    if (w->pid > 0) {
        // One that ends by itself has a status of its own to tell.
        int r = 0;
        for (int ms = 0; ms < GRACE_MS && (r = waitpid(w->pid, status, WNOHANG)) == 0; ms += 2)
            nanosleep(&(struct timespec){0, 2000000}, NULL);
        if (r == 0) {
            kill(w->pid, SIGKILL);
            while (waitpid(w->pid, status, 0) < 0 && errno == EINTR)
                ;
        }
    }
    w->pid = 0;
    w->state = DATA_WORKER_NONE;
}
