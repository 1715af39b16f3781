// Owns the way from fork to exec: limits, then becoming the user for good, and only then anything
// that the user names (folder, files, command). A failure is left in the shared note. What needs
// memory is made before the fork: the new process may share the nursery's, and may be killed at
// any moment, so from child_run on nothing is allocated and nothing shared is written but the note and
// the one variable that nobody else reads, the process's own number.
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"
#include "cgroup/procs.h"
#include "launch/box_report.h"
#include "launch/fds.h"
#include "launch/mpi.h"
#include "launch/shebang.h"
#include "launch/volume.h"
#include "shepherd.h"

enum {
    SCRIPT_PATH_MAX = 4096,
    LAUNCH_FAILED_EXIT = 127,
    LATE_FOLDER_MS = 3000,
    LATE_FOLDER_STEP_MS = 20,
    OWN_PID_MAX = 32,
    MPI_VARIABLES_MAX = 64,
    ABOVE_FD = 16
};

_Noreturn __attribute__((format(printf, 4, 5)))
static void fail(const struct child *c, enum launch_code code, int err, const char *fmt, ...) {
    uint32_t free = 0;
    if (atomic_compare_exchange_strong(&c->note->claimed, &free, 1)) {
        va_list args;
        va_start(args, fmt);
        vsnprintf(c->note->text, sizeof c->note->text, fmt, args);
        va_end(args);
        size_t len = strlen(c->note->text);
        if (err)
            snprintf(c->note->text + len, sizeof c->note->text - len, ": %s", strerror(err));
        c->note->rank = c->task->rank;
        c->note->code = err == ENOSPC || err == EDQUOT ? LAUNCH_DISK : code;
    }
    _exit(LAUNCH_FAILED_EXIT);
}

void child_reset_signals(void) {
    for (int sig = 1; sig < 32; sig++)
        if (sig != SIGKILL && sig != SIGSTOP)
            signal(sig, SIG_DFL);
}

static void unblock_signals(void) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static void set_affinity(const struct child *c) {
    const uint32_t *cpus = c->task->ncpus ? c->task->cpus : c->req->cpus;
    uint32_t n = c->task->ncpus ? c->task->ncpus : c->req->ncpus;
    cpu_set_t set[LAUNCH_CPUS_MAX / CPU_SETSIZE] = {0};
    if (!n)
        return;
    for (uint32_t i = 0; i < n; i++)
        if (cpus[i] < LAUNCH_CPUS_MAX)
            CPU_SET_S(cpus[i], sizeof set, set);
    // Cpus that this machine does not have (a node declared larger than it is) bind nothing.
    sched_setaffinity(0, sizeof set, set);
}

static const char *env_get(char **env, const char *key) {
    size_t len = strlen(key);
    for (; *env; env++)
        if (strncmp(*env, key, len) == 0 && (*env)[len] == '=')
            return *env + len + 1;
    return NULL;
}

// --cpu-bind=verbose: what the kernel says, in Slurm's words.
static void tell_affinity(const struct child *c) {
    cpu_set_t set[LAUNCH_CPUS_MAX / CPU_SETSIZE] = {0};
    char mask[LAUNCH_CPUS_MAX / 4 + 1], host[64] = "";
    const char *verbose = env_get(c->env, "SLURM_CPU_BIND_VERBOSE"),
               *node = env_get(c->env, "SLURMD_NODENAME");
    int top = 0;
    if (!c->req->step || !verbose || !streq(verbose, "verbose") || sched_getaffinity(0, sizeof set, set) < 0)
        return;
    for (int digit = LAUNCH_CPUS_MAX / 4 - 1; digit >= 0; digit--) {
        unsigned v = 0;
        for (int bit = 0; bit < 4; bit++)
            v |= (unsigned)!!CPU_ISSET_S((size_t)(digit * 4 + bit), sizeof set, set) << bit;
        if (v || top || !digit)
            mask[top++] = "0123456789ABCDEF"[v];
    }
    mask[top] = 0;
    gethostname(host, sizeof host - 1);
    dprintf(STDERR_FILENO, "cpu-bind=MASK - %s, task %2u %2u [%d]: mask 0x%s set\n", node ? node : host,
            c->task->rank, (unsigned)(c->task - c->req->tasks), (int)getpid(), mask);
}

static void set_oom_score(const struct child *c) {
    char text[16];
    if (!c->reset_oom && !c->req->oom_score_adj)
        return;
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    int n = snprintf(text, sizeof text, "%d", c->req->oom_score_adj);
    if (fd < 0 || write(fd, text, (size_t)n) < 0)
        fail(c, LAUNCH_LIMITS, errno, "the out-of-memory score %s cannot be set", text);
    close(fd);
}

static void set_limits(const struct child *c) {
    const struct launch_request *r = c->req;
    set_affinity(c);
    set_oom_score(c);
    if (r->nice && setpriority(PRIO_PROCESS, 0, r->nice) < 0)
        fail(c, LAUNCH_LIMITS, errno, "the priority %d cannot be set", r->nice);
    for (uint32_t i = 0; i < r->nrlimits; i++) {
        struct rlimit l = {.rlim_cur = r->rlimits[i].soft, .rlim_max = r->rlimits[i].hard};
        if (setrlimit((int)r->rlimits[i].resource, &l) < 0)
            fail(c, LAUNCH_LIMITS, errno, "the resource limit %u cannot be set",
                 r->rlimits[i].resource);
    }
    umask((mode_t)r->umask);
}

static void become_user(const struct child *c) {
    const struct launch_request *r = c->req;
    uid_t real, effective, saved;
    gid_t greal, geffective, gsaved;
    if (r->switch_user) {
        if (setgroups(r->ngroups, r->groups) < 0 || setresgid(r->gid, r->gid, r->gid) < 0 ||
            setresuid(r->uid, r->uid, r->uid) < 0)
            fail(c, LAUNCH_PRIVILEGE, errno, "cannot become user %u, group %u", r->uid, r->gid);
        // Believed only when seen, and only when there is no way back.
        if (getresuid(&real, &effective, &saved) < 0 || getresgid(&greal, &geffective, &gsaved) < 0)
            fail(c, LAUNCH_PRIVILEGE, errno, "cannot verify the user");
        if (real != r->uid || effective != r->uid || saved != r->uid || greal != r->gid ||
            geffective != r->gid || gsaved != r->gid)
            fail(c, LAUNCH_PRIVILEGE, 0, "became another user than %u", r->uid);
        if (r->uid != 0 && (setuid(0) == 0 || seteuid(0) == 0 || setresuid(0, 0, 0) == 0))
            fail(c, LAUNCH_PRIVILEGE, 0, "root could be regained after becoming user %u", r->uid);
    }
    if (r->no_new_privs && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        fail(c, LAUNCH_PRIVILEGE, errno, "cannot give up new privileges");
    // After the change of user, which clears it. A shepherd that died before sends nothing.
    if (c->death_signal && (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != c->shepherd))
        _exit(LAUNCH_FAILED_EXIT);
}

static void place(const struct child *c, int from, int to) {
    if (from == to)
        fcntl(from, F_SETFD, 0);
    else if (dup2(from, to) < 0)
        fail(c, LAUNCH_RESOURCE, errno, "cannot place descriptor %d", to);
}

// Programs written for Slurm make the folder of the output once they know the job's number, and a job
// may start before they come to it: it is given a moment.
static int open_late(const char *path, int flags, bool wait) {
    const struct timespec step = {.tv_nsec = LATE_FOLDER_STEP_MS * 1000000L};
    int fd = open(path, flags, 0666);
    for (int ms = 0; fd < 0 && errno == ENOENT && wait && ms < LATE_FOLDER_MS; ms += LATE_FOLDER_STEP_MS) {
        nanosleep(&step, NULL);
        fd = open(path, flags, 0666);
    }
    return fd;
}

// What an attempt before this one wrote is kept, and told from what this one writes.
static void separate_attempts(const struct child *c, int fd) {
    char line[80];
    struct stat st;
    if (c->req->step || c->req->attempt < 2 || !c->req->append || c->task->rank || fstat(fd, &st) < 0 ||
        !S_ISREG(st.st_mode) || !st.st_size)
        return;
    int n = snprintf(line, sizeof line, "acequia: job %llu: attempt %u begins\n", (unsigned long long)c->req->job,
                     c->req->attempt);
    if (write(fd, line, (size_t)n) < 0)
        return;  // a full disk: the job itself will find out
}

// Without waiting for a reader if it is a pipe, which would hold the launch up without limit.
static int open_output(const struct child *c, const char *path, int as) {
    struct stat st;
    int flags = O_WRONLY | O_CREAT | O_APPEND | O_NOCTTY | O_CLOEXEC | O_NONBLOCK;
    int fd = open_late(path, flags | (c->truncate ? O_TRUNC : 0), c->req->slurm_words);
    if (fd < 0 && errno == ENXIO)
        fail(c, LAUNCH_OUTPUT, 0, "output file %s is a pipe that nobody reads", path);
    if (fd < 0)
        fail(c, LAUNCH_OUTPUT, errno, "output file %s cannot be opened", path);
    fcntl(fd, F_SETFL, O_APPEND);
    if (c->task == c->req->tasks && fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        c->note->before[as - 1] = (uint64_t)st.st_size;
    separate_attempts(c, fd);
    return fd;
}

static void open_files(const struct child *c) {
    const char *in = c->task->in ? c->task->in : c->req->in;
    const char *out = c->task->out ? c->task->out : c->req->out;
    const char *err = c->task->err ? c->task->err : c->req->err;
    int fd = open(in ? in : "/dev/null", O_RDONLY | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        fail(c, LAUNCH_INPUT, errno, "input file %s cannot be opened", in ? in : "/dev/null");
    fcntl(fd, F_SETFL, 0);
    place(c, fd, 0);
    place(c, open_output(c, out ? out : "/dev/null", 1), 1);
    if (err && !streq(err, out))
        place(c, open_output(c, err, 2), 2);
    else
        place(c, 1, 2);
}

static void take_passed_files(const struct child *c) {
    if (c->fds[0] < 0)
        fail(c, LAUNCH_REQUEST, 0, "the launch came without the descriptors that it needs");
    int last = c->fds[0];
    for (int i = 0; i < 3; i++) {
        if (c->fds[i] >= 0)
            last = c->fds[i];
        place(c, last, i);
    }
    if (c->req->tty && ioctl(0, TIOCSCTTY, 0) < 0)
        fail(c, LAUNCH_INPUT, errno, "the terminal cannot be taken over");
}

// Streams that a step has files for; the others were passed along.
static void open_relay_files(const struct child *c) {
    const char *in = c->task->in ? c->task->in : c->req->in;
    const char *out = c->task->out ? c->task->out : c->req->out;
    const char *err = c->task->err ? c->task->err : c->req->err;
    if (in) {
        int fd = open(in, O_RDONLY | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
        if (fd < 0)
            fail(c, LAUNCH_INPUT, errno, "input file %s cannot be opened", in);
        fcntl(fd, F_SETFL, 0);
        place(c, fd, 0);
    }
    if (out)
        place(c, open_output(c, out, 1), 1);
    if (err && !streq(err, out))
        place(c, open_output(c, err, 2), 2);
    else if (out)
        place(c, 1, 2);
}

static size_t key_length(const char *entry) {
    return strcspn(entry, "=");
}

// The helper of an MPI step has little of the user's environment: what its own libraries read.
static bool for_helper(const char *entry) {
    static const char *const names[] = {"HOME=", "USER=", "TMPDIR=", "PATH=", "LD_LIBRARY_PATH=", "ACEQUIA_MPI_SPAWN="};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (str_has_prefix(entry, names[i]))
            return true;
    return false;
}

// The unit's variables, those of the task, and the mark.
static char **make_env(const struct child *c, struct arena *arena) {
    const struct launch_request *r = c->req;
    const struct launch_process *t = c->task;
    char folder[MPI_FOLDER_MAX], **env = arena_alloc(arena, (r->nenv + t->nenv + 4 + MPI_VARIABLES_MAX) * sizeof *env);
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->nenv; i++) {
        bool replaced = str_has_prefix(r->env[i], "SLURM_TASK_PID=") || (c->helper && !for_helper(r->env[i]));
        size_t len = key_length(r->env[i]);
        for (uint32_t k = 0; k < t->nenv && !replaced; k++)
            replaced = key_length(t->env[k]) == len && strncmp(t->env[k], r->env[i], len) == 0;
        if (!replaced)
            env[n++] = r->env[i];
    }
    for (uint32_t k = 0; k < t->nenv; k++)
        env[n++] = t->env[k];
    env[n++] = c->own_pid;
    env[n++] = arena_printf(arena, "%s=%016" PRIx64, PROCS_MARK, c->id);
    if (c->helper)
        env[n] = arena_printf(arena, "ACEQUIA_MPI_FOLDER=%s", mpi_folder(folder, c->id, r->step));
    return env;
}

void child_prepare(struct child *c, struct arena *arena) {
    c->own_pid = arena_alloc(arena, OWN_PID_MAX);
    c->env = make_env(c, arena);
    if (c->mpi_fd >= 0)
        c->mpi_text = arena_alloc(arena, MPI_ENVIRONMENT_MAX + 1);
    uint32_t argc = c->req->argc > c->task->argc ? c->req->argc : c->task->argc;
    c->script_argv = arena_alloc(arena, (argc + c->req->boxc + 6) * sizeof *c->script_argv);
}

_Noreturn static void exec_failed(const struct child *c, const char *command, int err) {
    struct stat st;
    switch (err) {
    case ENOENT:
    case ENOTDIR:
        if (strchr(command, '/') && stat(command, &st) == 0)
            fail(c, LAUNCH_INTERPRETER, 0,
                 "command %s names an interpreter or loader that does not exist", command);
        fail(c, LAUNCH_COMMAND, 0, "command %s not found", command);
    case EACCES:
    case EPERM:
        fail(c, LAUNCH_PERMISSION, 0, "command %s may not be executed by this user (is it a "
             "folder, or is its execute permission missing?)", command);
    case ENOEXEC:
        fail(c, LAUNCH_FORMAT, 0, "command %s is neither a program nor a script that begins with "
             "#! and an interpreter", command);
    case ENOMEM:
    case EAGAIN:
        fail(c, LAUNCH_RESOURCE, err, "command %s cannot be started", command);
    case E2BIG:
        fail(c, LAUNCH_REQUEST, 0, "command %s: arguments and environment are too large", command);
    default:
        fail(c, LAUNCH_COMMAND, err, "command %s cannot be executed", command);
    }
}

// Looked at before it is executed: an execve that fails costs ten times as much.
static bool not_there(const char *path) {
    struct stat st;
    return stat(path, &st) < 0 && (errno == ENOENT || errno == ENOTDIR);
}

_Noreturn static void exec_command(const struct child *c, char **argv) {
    const char *path = env_get(c->env, "PATH"), *command = argv[0];
    char full[4096];
    int err = ENOENT;
    if (strchr(command, '/')) {
        execve(command, argv, c->env);
        exec_failed(c, command, errno);
    }
    if (!*command)
        exec_failed(c, command, ENOENT);
    for (const char *p = path ? path : "/usr/local/bin:/usr/bin:/bin"; p;) {
        size_t len = strcspn(p, ":");
        int n = snprintf(full, sizeof full, "%.*s%s%s", (int)len, p, len ? "/" : "./", command);
        if (n > 0 && (size_t)n < sizeof full && !not_there(full)) {
            execve(full, argv, c->env);
            if (errno != EACCES)
                exec_failed(c, full, errno);
            err = EACCES;
        }
        p = p[len] ? p + len + 1 : NULL;
    }
    exec_failed(c, command, err);
}

_Noreturn static void exec_script(const struct child *c) {
    char script[SCRIPT_PATH_MAX], text[SHEBANG_MAX + 128], *interpreter;
    struct shebang s;
    snprintf(script, sizeof script, "%s/%s/script", c->spool_path, c->name);
    enum launch_code code = launch_shebang_read(script, &s, text, sizeof text);
    if (code != LAUNCH_OK)
        fail(c, code, 0, "%s", text);
    char **argv = c->script_argv;
    uint32_t n = 0;
    argv[n++] = interpreter = s.interpreter;
    if (s.argument)
        argv[n++] = s.argument;
    argv[n++] = script;
    for (uint32_t i = 0; i < c->req->argc; i++)
        argv[n++] = c->req->argv[i];
    execve(interpreter, argv, c->env);
    if (errno == ENOENT || errno == ENOTDIR)
        fail(c, LAUNCH_INTERPRETER, 0, "the script's interpreter %s does not exist", interpreter);
    if (errno == EACCES)
        fail(c, LAUNCH_INTERPRETER, 0, "the script's interpreter %s may not be executed",
             interpreter);
    exec_failed(c, interpreter, errno);
}

// A container job is started through acequia-box, which runs as the user like all that comes after it.
_Noreturn static void exec_box(const struct child *c) {
    char script[SCRIPT_PATH_MAX];
    const struct launch_request *r = c->req;
    bool is_script = r->has_script && !c->task->argc;
    char **argv = c->script_argv, *const *rest = c->task->argc ? c->task->argv : r->argv;
    uint32_t n = 0, argc = c->task->argc ? c->task->argc : r->argc;
    for (uint32_t i = 0; i < r->boxc; i++)
        argv[n++] = r->box[i];
    if (is_script)
        argv[n++] = "--script";
    argv[n++] = "--";
    if (is_script) {
        snprintf(script, sizeof script, "%s/%s/script", c->spool_path, c->name);
        argv[n++] = script;
    }
    for (uint32_t i = 0; i < argc; i++)
        argv[n++] = rest[i];
    argv[n] = NULL;
    fcntl(BOX_REPORT_FD, F_SETFD, 0);
    execve(argv[0], argv, c->env);
    fail(c, LAUNCH_IMAGE, errno, "%s cannot be executed", argv[0]);
}

// Opened while we may: the user gets the descriptor, not the file.
static int open_report(const struct child *c) {
    char path[SCRIPT_PATH_MAX], name[SPOOL_NAME_MAX];
    if (!c->req->boxc)
        return -1;
    spool_report_name(name, c->req->step);
    snprintf(path, sizeof path, "%s/%s/%s", c->spool_path, c->name, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        fail(c, LAUNCH_RESOURCE, errno, "the image cannot be prepared");
    return fd;
}

static void enter_network(const struct child *c) {
    if (!*c->network)
        return;
    int fd = open(c->network, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET) < 0)
        fail(c, LAUNCH_NODE, errno, "the job's own network cannot be entered");
    close(fd);
}

// As root, while we are. Whether the size of one is not kept.
static bool make_volumes(const struct child *c) {
    bool unlimited = false, own_mounts = false;
    for (uint32_t i = 0; i < c->req->nvolumes; i++) {
        cleanup_arena struct arena a = {0};
        struct volume_folder v;
        struct error e = {0};
        int r = launch_volume_read(c->req->volumes[i], &a, &v);
        if (r == 0)
            r = launch_volume_is_nfs(&v) ? launch_nfs_mount(&v, &own_mounts, &e)
                                         : launch_volume_make(&v, c->req->uid, &e);
        if (r < 0)
            fail(c, LAUNCH_IMAGE, 0, "%s", e.text[0] ? e.text : "a volume cannot be read from its request");
        unlimited |= r == 1;
    }
    return unlimited;
}

static bool read_all(int fd, void *to, size_t len) {
    for (char *p = to; len;) {
        ssize_t n = read(fd, p, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        p += n;
        len -= (size_t)n;
    }
    return true;
}

// An entry of that name is replaced, but not by "?NAME=value"; there is room for MPI_VARIABLES_MAX more.
static void set_variable(const struct child *c, char *entry, uint32_t *added) {
    bool keep = *entry == '?';
    entry += keep;
    size_t len = key_length(entry);
    char **p = c->env;
    for (; *p; p++)
        if (key_length(*p) == len && strncmp(*p, entry, len) == 0)
            break;
    if (*p ? keep : (*added)++ >= MPI_VARIABLES_MAX - 1)
        return;
    *p = entry;
}

// The helper of the step's MPI says what the program needs to find it. Waits until it is ready.
static int join_mpi(const struct child *c) {
    struct mpi_environment head;
    uint32_t added = 0;
    if (c->mpi_fd < 0)
        return -1;
    if (!read_all(c->mpi_fd, &head, sizeof head) || head.len > MPI_ENVIRONMENT_MAX ||
        !read_all(c->mpi_fd, c->mpi_text, head.len))
        fail(c, LAUNCH_RESOURCE, 0, "the helper of the MPI step ended before the task could begin");
    for (uint32_t at = 0; at < head.len; at += (uint32_t)strlen(c->mpi_text + at) + 1)
        set_variable(c, c->mpi_text + at, &added);
    int fd = fcntl(c->mpi_fd, F_DUPFD_CLOEXEC, ABOVE_FD), output[] = {STDOUT_FILENO, STDERR_FILENO};
    if (fd < 0 || (c->task == c->req->tasks && launch_fds_send(fd, "", 1, output, 2) < 0))
        fail(c, LAUNCH_RESOURCE, errno, "the helper of the MPI step cannot be reached");
    return fd;
}

// The step's variables, for ranks that its ranks start; the helper itself has only a few of them.
static int environment_file(const struct child *c) {
    int fd = memfd_create("environment", MFD_CLOEXEC);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
    for (uint32_t i = 0; f && i < c->req->nenv; i++)
        fwrite(c->req->env[i], strlen(c->req->env[i]) + 1, 1, f);
    return f && fflush(f) == 0 ? fcntl(fd, F_DUPFD_CLOEXEC, ABOVE_FD) : -1;
}

_Noreturn static void become_helper(const struct child *c) {
    int null = open("/dev/null", O_RDWR | O_CLOEXEC), fd = fcntl(c->mpi_fd, F_DUPFD_CLOEXEC, ABOVE_FD),
        environment = environment_file(c);
    if (null < 0 || fd < 0 || ((!c->req->cwd || chdir(c->req->cwd) < 0) && chdir("/") < 0))
        _exit(LAUNCH_FAILED_EXIT);
    for (int i = 0; i < 3; i++)
        place(c, null, i);
    close_range(MPI_HELPER_FD, ~0U, CLOSE_RANGE_CLOEXEC);
    dup2(fd, MPI_HELPER_FD);
    if (environment >= 0)
        dup2(environment, MPI_ENVIRONMENT_FD);
    execve(c->req->mpi[0], c->req->mpi, c->env);
    fail(c, LAUNCH_NODE, errno, "the helper for MPI, %s, cannot be executed", c->req->mpi[0]);
}

void child_run(const struct child *c) {
    const char *cwd = c->req->cwd ? c->req->cwd : "/";
    for (uint32_t i = 0; i < c->groups; i++)
        if (write(c->group_fds[i], "0", 1) < 0)
            fail(c, LAUNCH_LIMITS, errno, "the step's control group cannot be entered");
    int report = c->helper ? -1 : open_report(c);
    enter_network(c);
    setsid();
    snprintf(c->own_pid, OWN_PID_MAX, "SLURM_TASK_PID=%d", (int)getpid());
    set_limits(c);
    if (c->reset_signals)
        child_reset_signals();
    unblock_signals();
    bool unlimited = !c->helper && make_volumes(c);
    become_user(c);
    if (c->helper)
        become_helper(c);
    if (chdir(cwd) < 0)
        fail(c, LAUNCH_CWD, errno, "working directory %s cannot be entered", cwd);
    if (c->req->use_fds || c->req->relay)
        take_passed_files(c);
    else
        open_files(c);
    if (c->req->relay)
        open_relay_files(c);
    atomic_fetch_add(&c->note->opened, 1);
    tell_affinity(c);
    if (unlimited && c->task == c->req->tasks)
        dprintf(STDERR_FILENO,
                "acequia: the file system of a volume has no project quota: its size is not kept\n");
    // Everything of ours is close-on-exec already; this is the second lock.
    close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
    int mpi = join_mpi(c);
    if (c->req->boxc) {
        if (report != BOX_REPORT_FD && dup2(report, BOX_REPORT_FD) < 0)
            fail(c, LAUNCH_RESOURCE, errno, "the image cannot be prepared");
        if (mpi >= 0)
            dup2(mpi, MPI_TASK_FD);
        exec_box(c);
    }
    if (mpi >= 0)
        dup2(mpi, MPI_TASK_FD);  // open in the program
    if (c->task->argc)
        exec_command(c, c->task->argv);
    if (c->req->has_script)
        exec_script(c);
    exec_command(c, c->req->argv);
}
