// Owns making processes in the right control group. Version 1 moves a process at a cost of about
// a fifth of a short job, so a small process (the nursery) stays inside the shepherd's group and
// forks the job's processes there as children of the shepherd. Version 2 forks straight into the
// group. Without control groups it is a plain fork.
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "cgroup/cgroup_io.h"
#include "launch/fds.h"
#include "shepherd.h"

enum { NETWORK_PATH_MAX = 48 };

// What the nursery is told; it reads the request itself, because it was forked before.
struct shepherd_order {
    char name[SPOOL_NAME_MAX];
    uint32_t step, task, note;
    uint32_t groups;  // descriptors of the step's groups come first
    bool reset_oom, death_signal, truncate, has_fds;
    bool answer;  // the shepherd waits; otherwise the note is enough
    bool has_mpi;  // the last descriptor is for the task's talk with the helper of its MPI step
    bool helper;   // it is that helper that is made
    bool share;   // the nursery has nothing else to do until it has become the job's program
    uint64_t id;
    char network[NETWORK_PATH_MAX];  // see struct child
};

static const struct launch_process no_task;

static void fill_child(struct child *c, const struct shepherd *s, const struct shepherd_order *o,
                       const struct launch_request *r) {
    *c = (struct child){
        .spool_path = s->spool_path,
        .name = o->name,
        .req = r,
        .task = o->helper ? &no_task : &r->tasks[o->task],
        .helper = o->helper,
        .mpi_fd = -1,
        .note = &s->notes[o->note],
        .fds = {-1, -1, -1},
        .answer_fd = -1,
        .reset_oom = o->reset_oom,
        .death_signal = o->death_signal,
        .truncate = o->truncate,
        .id = o->id,
        .network = o->network,
    };
}

static int read_request(const struct shepherd *s, const struct shepherd_order *o, struct arena *arena,
                        struct launch_request *r) {
    char path[SPOOL_NAME_MAX * 2 + 2], unit[SPOOL_NAME_MAX];
    struct spool_status status;
    struct stat st;
    spool_unit_name(unit, o->step);
    snprintf(path, sizeof path, "%s/%s", o->name, unit);
    cleanup_close int fd = openat(s->spool_fd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || fstat(fd, &st) < 0 || pread(fd, &status, sizeof status, 0) != sizeof status)
        return -EIO;
    off_t head = SPOOL_STATUS_SIZE + (off_t)status.ntasks * (off_t)sizeof(int32_t);
    if (st.st_size <= head || st.st_size > LAUNCH_REQUEST_MAX * 2L)
        return -EBADMSG;
    size_t len = (size_t)(st.st_size - head);
    char *data = arena_alloc(arena, len);
    if (pread(fd, data, len, head) != (ssize_t)len)
        return -EIO;
    return launch_decode(data, len, arena, r, NULL);
}

enum { ORDER_FDS = 4 + CGROUP_STEP_FDS, CHILD_STACK = 128 << 10 };
static_assert((int)ORDER_FDS <= (int)FDS_SENT_MAX, "an order goes in one message");

union fd_space {
    struct cmsghdr header;
    char space[CMSG_SPACE(ORDER_FDS * sizeof(int))];
};

static int receive_order(int fd, struct shepherd_order *o, int fds[ORDER_FDS]) {
    union fd_space c;
    struct iovec iov = {.iov_base = o, .iov_len = sizeof *o};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &c,
                       .msg_controllen = sizeof c};
    if (recvmsg(fd, &m, MSG_CMSG_CLOEXEC) != sizeof *o)
        return -1;
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    if (!h || h->cmsg_type != SCM_RIGHTS)
        return 0;
    int n = (int)((h->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    memcpy(fds, CMSG_DATA(h), (size_t)n * sizeof(int));
    return n;
}

static int nursery_child(void *arg) {
    const struct child *c = arg;
    int32_t pid = atomic_load(&c->note->pid);
    if (c->answer_fd >= 0 && send(c->answer_fd, &pid, sizeof pid, MSG_NOSIGNAL) < 0)
        _exit(127);  // the shepherd is gone
    child_run(c);
}

// The address sanitizer knows nothing of other stacks.
#ifdef __SANITIZE_ADDRESS__
enum { MAY_SHARE = 0 };
#else
enum { MAY_SHARE = 1 };
#endif

// Makes a child of the shepherd, in the groups of the nursery. One that shares lives in the nursery's
// memory until it becomes the job's program, and the nursery waits: no page has to be copied. Its own
// are its stack, descriptors, signals and credentials; that it changed its user makes the memory
// untraceable. Others may be followed by more, and may hang in somebody's file system meanwhile.
static int nursery_make(struct child *c, bool share) {
    static _Alignas(64) char stack[CHILD_STACK];
    const int flags = CLONE_PARENT | CLONE_PARENT_SETTID | SIGCHLD;
    if (share && MAY_SHARE)
        return clone(nursery_child, stack + sizeof stack, CLONE_VM | CLONE_VFORK | flags, c,
                     &c->note->pid);
    int pid = (int)syscall(SYS_clone, flags, NULL, &c->note->pid, NULL, NULL);
    if (pid == 0)
        nursery_child(c);
    return pid;
}

static int nursery_obey(const struct shepherd *s, const struct shepherd_order *o, int fd, const int *fds,
                        int nfds) {
    cleanup_arena struct arena arena = {0};
    struct launch_request r;
    struct launch_note *note = &s->notes[o->note];
    struct child c;
    int used = 0;
    if (read_request(s, o, &arena, &r) < 0 || (!o->helper && o->task >= r.ntasks)) {
        note->code = LAUNCH_REQUEST;
        snprintf(note->text, sizeof note->text, "the launch request cannot be read");
        atomic_store(&note->claimed, 1);
        return -EBADMSG;
    }
    fill_child(&c, s, o, &r);
    if (o->has_mpi && nfds > 0)
        c.mpi_fd = fds[nfds - 1];
    child_prepare(&c, &arena);
    c.answer_fd = o->answer ? fd : -1;
    while (used < nfds && c.groups < o->groups && c.groups < CGROUP_STEP_FDS)
        c.group_fds[c.groups++] = fds[used++];
    for (int i = 0; o->has_fds && i < 3 && used < nfds - (int)o->has_mpi; i++)
        c.fds[i] = fds[used++];
    return nursery_make(&c, o->share) < 0 ? -errno : 0;
}

_Noreturn static void nursery_run(const struct shepherd *s, int fd) {
    struct shepherd_order o;
    int fds[ORDER_FDS], nfds;
    sigset_t all;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, "acequia-nurse");
    if (s->protected_from_oom)
        cgroup_kernel_write("/proc/self/oom_score_adj", "0");
    // Deaf instead of ignoring, so that children have one thing to undo and no handler to run.
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    child_reset_signals();
    while ((nfds = receive_order(fd, &o, fds)) >= 0) {
        int rc = nursery_obey(s, &o, fd, fds, nfds);
        for (int i = 0; i < nfds; i++)
            close(fds[i]);
        if (rc == 0)
            continue;
        atomic_store(&s->notes[o.note].pid, rc);
        if (!o.answer)
            kill(getppid(), SIGCHLD);  // it looks at the note then
        else if (send(fd, &rc, sizeof rc, MSG_NOSIGNAL) < 0)
            break;
    }
    _exit(0);
}

static int nursery_start(struct shepherd *s, struct error *e) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return error_set(e, errno, "cannot make a socket pair: %m");
    pid_t pid = fork();
    if (pid == 0) {
        close(pair[0]);
        nursery_run(s, pair[1]);
    }
    close(pair[1]);
    if (pid < 0) {
        close(pair[0]);
        return error_set(e, errno, "cannot fork: %m");
    }
    s->nursery_fd = pair[0];
    return cgroup_slot_adopt(&s->slot, pid, e);
}

static int order_nursery(struct shepherd *s, struct shepherd_order *o, const int *fds, int nfds) {
    int answer;
    if (s->nursery_fd < 0 || launch_fds_send(s->nursery_fd, o, sizeof *o, fds, nfds) < 0)
        return -EPIPE;
    if (!o->answer)
        return 0;
    ssize_t n;
    do
        n = recv(s->nursery_fd, &answer, sizeof answer, 0);
    while (n < 0 && errno == EINTR);
    return n == sizeof answer ? answer : -EPIPE;
}

int spawn_ready(struct shepherd *s, const struct launch_request *r, struct error *e) {
    if (!s->has_slot) {
        char name[CGROUP_NAME_MAX];
        snprintf(name, sizeof name, "s%d-%u", getpid(), s->slots_made++);
        cgroup_slot_init(&s->slot, s->site, name);
        s->has_slot = true;
    }
    int rc = cgroup_slot_prepare(&s->slot, r, e);
    if (rc == 0 && s->site->kind == CGROUP_V1 && !s->slot.nursery)
        rc = nursery_start(s, e);
    if (rc < 0)
        s->slot.spoilt = true;
    return rc;
}

static pid_t fork_into(int group_fd) {
    struct clone_args args = {.flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD,
                              .cgroup = (uint64_t)group_fd};
    return (pid_t)syscall(SYS_clone3, &args, sizeof args);
}

static pid_t order_task(struct shepherd *s, struct shepherd_unit *u, struct shepherd_order *o, const int *groups) {
    int fds[ORDER_FDS], n = 0;
    for (; n < (int)o->groups; n++)
        fds[n] = groups[n];
    for (int i = 0; !o->helper && u->fds[0] >= 0 && i < 3 && u->fds[i] >= 0; i++)
        fds[n++] = u->fds[i];
    o->has_fds = !o->helper && u->fds[0] >= 0;
    o->has_mpi = u->mpi.task_fd >= 0;
    if (o->has_mpi)
        fds[n++] = u->mpi.task_fd;
    o->answer = u->req.ntasks > 1 || o->helper;
    o->share = !u->step && u->req.ntasks == 1;
    u->awaited = !o->answer;
    return order_nursery(s, o, fds, n);
}

static pid_t fork_task(struct shepherd *s, struct shepherd_unit *u, const struct shepherd_order *o, int group) {
    pid_t shepherd = getpid();
    sigset_t all, before;
    // We ignore signals; the new process does so until it has reset them. Blocked, they wait for that and are not lost:
    // a job that is told to end at once does not use up its grace.
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    pid_t pid = s->site->kind == CGROUP_V2 ? fork_into(group) : fork();
    int err = errno;
    if (pid != 0)
        sigprocmask(SIG_SETMASK, &before, NULL);
    if (pid == 0) {
        struct child c;
        fill_child(&c, s, o, &u->req);
        memcpy(c.fds, u->fds, sizeof c.fds);
        c.mpi_fd = u->mpi.task_fd;
        c.reset_signals = true;
        c.shepherd = shepherd;
        child_prepare(&c, &u->arena);
        child_run(&c);
    }
    return pid < 0 ? -err : pid;
}

static pid_t spawn(struct shepherd *s, struct shepherd_unit *u, uint32_t task, bool helper) {
    enum cgroup_kind kind = s->site->kind;
    int groups[CGROUP_STEP_FDS];
    int n = cgroup_step_open(&s->slot, u->step, groups);
    struct shepherd_order o = {
        .step = u->step,
        .task = task,
        .note = (uint32_t)(u->note - s->notes),
        .groups = n > 0 ? (uint32_t)n : 0,
        .reset_oom = s->protected_from_oom && kind != CGROUP_V1,
        .death_signal = kind == CGROUP_NONE,
        // The first task empties a file that all share; the others add to it.
        .truncate = !helper && !u->req.append && (task == 0 || u->req.tasks[task].out),
        .id = u->status.id,
        .helper = helper,
    };
    if (n < 0)
        return n;
    memcpy(o.name, s->name, sizeof o.name);
    if (s->network_fd >= 0)
        snprintf(o.network, sizeof o.network, "/proc/%d/fd/%d", getpid(), s->network_fd);
    pid_t pid = kind == CGROUP_V1 ? order_task(s, u, &o, groups)
                                  : fork_task(s, u, &o, n > 0 ? groups[0] : -1);
    for (int i = 0; i < n; i++)
        close(groups[i]);
    return pid;
}

pid_t spawn_task(struct shepherd *s, struct shepherd_unit *u, uint32_t task) {
    return spawn(s, u, task, false);
}

pid_t spawn_helper(struct shepherd *s, struct shepherd_unit *u) {
    return spawn(s, u, 0, true);
}

void spawn_release(struct shepherd *s) {
    if (!s->has_slot)
        return;
    cgroup_slot_unwatch(&s->slot);
    if (s->slot.nursery && cgroup_slot_reusable(&s->slot))
        return;
    if (s->nursery_fd >= 0) {
        close(s->nursery_fd);
        s->nursery_fd = -1;
    }
    if (s->slot.nursery > 0) {
        kill(s->slot.nursery, SIGKILL);
        waitpid(s->slot.nursery, NULL, 0);
    }
    cgroup_slot_done(&s->slot);
    s->has_slot = false;
}
