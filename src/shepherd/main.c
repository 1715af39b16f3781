// The shepherd program: the zygote's loop and the idle loop of its shepherds. Nothing here knows
// what a job is. Started by the agent as
//   acequia-shepherd SPOOL POOL_FD CGROUP_MODE TAG READY_MIN READY_MAX
// POOL_FD is the receiving end of a socket on which the agent names folders, one per packet; all
// idle shepherds wait on it, and its end means that the agent is gone.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/text.h"
#include "cgroup/cgroup_io.h"
#include "cgroup/procs.h"
#include "shepherd.h"

struct zygote {
    struct shepherd template;
    pid_t pids[SHEPHERDS_MAX];
    uint32_t top;  // entries ever used
};

static void on_child(int sig) {
}

static void set_signals(void) {
    static const int ignored[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2,
                                  SIGALRM};
    struct sigaction sa = {.sa_handler = on_child, .sa_flags = SA_NOCLDSTOP};
    sigset_t mask;
    for (size_t i = 0; i < sizeof ignored / sizeof ignored[0]; i++)
        signal(ignored[i], SIG_IGN);
    sigaction(SIGCHLD, &sa, NULL);
    sigemptyset(&mask);
    sigaddset(&mask, SIGCHLD);
    sigprocmask(SIG_BLOCK, &mask, NULL);
}

// The name of the next folder and descriptors that came along; 0 at the end.
static ssize_t take(struct shepherd *s, char name[SPOOL_NAME_MAX], int fds[3], int *nfds) {
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(3 * sizeof(int))];
    } c;
    struct iovec iov = {.iov_base = name, .iov_len = SPOOL_NAME_MAX - 1};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &c,
                       .msg_controllen = sizeof c};
    ssize_t n;
    do
        n = recvmsg(s->pool_fd, &m, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    *nfds = 0;
    if (n <= 0)
        return 0;
    name[n] = 0;
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    if (h && h->cmsg_type == SCM_RIGHTS) {
        *nfds = (int)((h->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(fds, CMSG_DATA(h), (size_t)*nfds * sizeof(int));
    }
    return n;
}

static void wake_zygote(struct shepherd *s) {
    uint64_t one = 1;
    if (write(s->wake_fd, &one, sizeof one) < 0)
        return;  // awake already
}

// A shepherd may be killed between its state and the count. The order is such that the count is
// then too low, never too high: at worst there is a shepherd more than needed.
void shepherd_settle(struct shepherd *s) {
    if (s->settled)
        return;
    s->settled = true;
    int before = atomic_fetch_sub(&s->pool->ready, 1);
    atomic_store(&s->entry->state, POOL_SETTLED);
    if (before <= s->ready_min)
        wake_zygote(s);
}

// False: there are enough without this one.
static bool back_in_pool(struct shepherd *s) {
    if (s->settled && atomic_load(&s->pool->ready) >= s->ready_max)
        return false;
    atomic_store(&s->entry->state, POOL_IDLE);
    if (s->settled)
        atomic_fetch_add(&s->pool->ready, 1);
    return true;
}

static void serve(struct shepherd *s) {
    char name[SPOOL_NAME_MAX];
    int fds[3], nfds;
    while (take(s, name, fds, &nfds) > 0) {
        s->settled = false;
        if (spool_parse_name(name, &s->entry->job, &s->entry->attempt) == 0) {
            atomic_store(&s->entry->state, POOL_YOUNG);
            attempt_run(s, name, fds, nfds);
            if (!back_in_pool(s))
                return;
        } else {
            for (int i = 0; i < nfds; i++)
                close(fds[i]);
        }
    }
}

_Noreturn static void shepherd_main(struct zygote *z, struct pool_entry *entry) {
    struct shepherd *s = &z->template;
    s->entry = entry;
    s->nursery_fd = -1;
    setsid();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_NAME, "acequia-shep");
    s->notes = mmap(NULL, UNITS_MAX * sizeof *s->notes, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s->notes == MAP_FAILED)
        _exit(1);
    serve(s);
    s->slot.spoilt = true;
    spawn_release(s);
    _exit(0);
}

static void grow(struct zygote *z) {
    struct shepherd_pool *pool = z->template.pool;
    while (atomic_load(&pool->ready) < z->template.ready_min) {
        uint32_t i = 0;
        while (i < z->top && z->pids[i])
            i++;
        if (i == SHEPHERDS_MAX)
            return;
        if (i == z->top)
            z->top++;
        atomic_store(&pool->at[i].state, POOL_IDLE);
        atomic_fetch_add(&pool->ready, 1);
        pid_t pid = fork();
        if (pid == 0)
            shepherd_main(z, &pool->at[i]);
        if (pid < 0) {  // try again at the next event
            atomic_store(&pool->at[i].state, POOL_FREE);
            atomic_fetch_sub(&pool->ready, 1);
            return;
        }
        z->pids[i] = pid;
    }
}

static bool is_shepherd(void *ctx, pid_t pid) {
    struct zygote *z = ctx;
    for (uint32_t i = 0; i < z->top; i++)
        if (z->pids[i] == pid)
            return true;
    return false;
}

// A shepherd that was killed: the agent is told at once, and where no control group can find its
// processes, those that fell to us are killed here.
static void mourn(struct zygote *z, struct pool_entry *entry) {
    uint32_t was = atomic_exchange(&entry->state, POOL_FREE);
    if (was == POOL_IDLE || was == POOL_YOUNG)
        atomic_fetch_sub(&z->template.pool->ready, 1);
    if (was != POOL_YOUNG && was != POOL_SETTLED)
        return;
    if (z->template.site->kind == CGROUP_NONE)
        for (int i = 0; i < 100 && cgroup_procs_signal_tree(getpid(), SIGKILL, is_shepherd, z) > 0; i++)
            usleep(2000);
    struct spool_hint h = {.job = entry->job, .attempt = entry->attempt, .state = SPOOL_ORPHANED};
    if (write(z->template.hint_fd, &h, sizeof h) < 0)
        return;
}

static void reap(struct zygote *z) {
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        for (uint32_t i = 0; i < z->top; i++)
            if (z->pids[i] == pid) {
                z->pids[i] = 0;
                if (WIFSIGNALED(status))
                    mourn(z, &z->template.pool->at[i]);
                else
                    atomic_store(&z->template.pool->at[i].state, POOL_FREE);
                break;
            }
}

static int zygote_loop(struct zygote *z) {
    struct shepherd *s = &z->template;
    sigset_t none;
    sigemptyset(&none);
    for (;;) {
        uint64_t wakes;
        struct pollfd p[2] = {{.fd = s->wake_fd, .events = POLLIN}, {.fd = s->pool_fd}};
        reap(z);
        grow(z);
        int n = ppoll(p, 2, NULL, &none);
        if (n > 0 && (p[1].revents & (POLLHUP | POLLERR)))
            return 0;  // the agent is gone; busy shepherds go on without us
        if (n > 0 && read(s->wake_fd, &wakes, sizeof wakes) < 0)
            continue;
    }
}

static void detach_stdio(int spool_fd) {
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int log = openat(spool_fd, "shepherd.log", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    dup2(null, 0);
    dup2(null, 1);
    dup2(log >= 0 ? log : null, 2);
}

static int number(const char *text, uint32_t max) {
    uint32_t v;
    return parse_u32(text, &v) < 0 || v > max ? -1 : (int)v;
}

static int fail(const char *what) {
    fprintf(stderr, "acequia-shepherd: %s\n", what);
    return 2;
}

int main(int argc, char **argv) {
    static struct cgroup_site site;
    static struct zygote z;
    struct shepherd *s = &z.template;
    struct error e;
    if (argc != 7)
        return fail("is started by the agent: SPOOL POOL_FD CGROUP_MODE TAG READY_MIN READY_MAX");
    s->spool_path = argv[1];
    s->pool_fd = number(argv[2], 1 << 20);
    s->ready_min = number(argv[5], SHEPHERDS_MAX);
    s->ready_max = number(argv[6], SHEPHERDS_MAX);
    if (s->pool_fd < 0 || s->ready_min < 1 || s->ready_max < s->ready_min)
        return fail("wrong arguments");
    fcntl(s->pool_fd, F_SETFD, FD_CLOEXEC);
    s->spool_fd = spool_open(s->spool_path, &e);
    if (s->spool_fd < 0 || cgroup_discover(&site, argv[3], argv[4], &e) < 0)
        return fail(e.text);
    s->site = &site;
    s->hint_fd = openat(s->spool_fd, "hints", O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
    s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    s->pool = mmap(NULL, sizeof *s->pool, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                   0);
    if (s->hint_fd < 0 || s->wake_fd < 0 || s->pool == MAP_FAILED)
        return fail("cannot set up");
    detach_stdio(s->spool_fd);
    setsid();
    set_signals();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    // Of all processes those that watch the others must not be the ones to die.
    s->protected_from_oom = geteuid() == 0 && cgroup_kernel_write("/proc/self/oom_score_adj", "-1000") == 0;
    return zygote_loop(&z);
}
