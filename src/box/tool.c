// Owns running the programs that fetch and unpack images. What they read was made by strangers, so each
// runs in namespaces of its own in which everything is read-only but one folder, and most without a
// network: a program that is led astray by an image can harm nothing but that image's folder.
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/text.h"
#include "box/box.h"

#define TOOL_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
enum {
    ERRORS_MAX = 64 << 10,
    WORDS_MAX = 200,
    NOT_ROOT = 1000,
    ROOTS_OTHER = 2,  // who root is to buildah: a user that every system has, with a home, and that nobody is
    ASK_MS = 1000,
    WAIT_MS = 20,
    FOLDER_TRIES = 100,
    REFUSED = -1,  // instead of the time of the next question
};

static int write_text(const char *path, const char *text) {
    cleanup_close int fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd < 0 || write(fd, text, strlen(text)) < 0 ? -errno : 0;
}

int box_namespaces(int flags, uid_t inner_uid, gid_t inner_gid, struct error *e) {
    char text[64];
    uid_t uid = geteuid();
    gid_t gid = getegid();
    if (unshare(flags | CLONE_NEWUSER) < 0)
        return error_set(e, errno, "containers cannot be run on this node: user namespaces are not allowed (%m); "
                         "see user.max_user_namespaces and kernel.unprivileged_userns_clone");
    int rc = write_text("/proc/self/setgroups", "deny");
    snprintf(text, sizeof text, "%u %u 1", inner_uid, uid);
    rc = rc < 0 && rc != -ENOENT ? rc : write_text("/proc/self/uid_map", text);
    snprintf(text, sizeof text, "%u %u 1", inner_gid, gid);
    rc = rc < 0 ? rc : write_text("/proc/self/gid_map", text);
    if (rc < 0)
        return error_set(e, -rc, "containers cannot be run on this node: the user namespace cannot be set up: %s",
                         strerror(-rc));
    if ((flags & CLONE_NEWNS) && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return error_set(e, errno, "containers cannot be run on this node: mounts cannot be made private: %m");
    return 0;
}

// buildah's own processes look for a folder of their user at these places, whatever their environment says (two of
// their libraries, each its own way): there they find the one for temporary files. Without it they would want the
// user's home, which there need not be. All builds of the user share the folders, each with a mount of its own over
// them, which goes when anybody removes the folder: so each holds a lock, and only the last one removes it.
struct runtime_folder {
    char path[64];
    int lock;  // -1: it was there before us, and stays
};
enum { RUNTIME_FOLDERS = 2 };

static void runtime_folder_open(struct runtime_folder *r, const char *prefix, uid_t uid) {
    struct stat mine, now;
    r->lock = -1;
    snprintf(r->path, sizeof r->path, "%s%u", prefix, uid);
    for (int tries = 0; tries < FOLDER_TRIES; tries++) {
        if (mkdir(r->path, 0700) < 0 && errno != EEXIST)
            break;
        cleanup_close int fd = open(r->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        // Asked before it is waited for: whoever made it first may hold its lock for ever.
        if (fd < 0 || fstat(fd, &mine) < 0 || mine.st_uid != geteuid() || flock(fd, LOCK_SH) < 0)
            continue;
        if (stat(r->path, &now) == 0 && now.st_ino == mine.st_ino) {  // else it was removed in between
            r->lock = TAKE_FD(fd);
            return;
        }
    }
    r->path[0] = 0;
}

static void runtime_folders_open(struct runtime_folder r[static RUNTIME_FOLDERS], uid_t uid) {
    r[0].lock = -1;
    snprintf(r[0].path, sizeof r[0].path, "/run/user/%u", uid);
    if (access(r[0].path, F_OK) < 0)
        runtime_folder_open(&r[0], "/tmp/podman-run-", uid);
    runtime_folder_open(&r[1], "/tmp/containers-user-", uid);
}

static void runtime_folder_close(struct runtime_folder *r) {
    if (r->lock >= 0 && flock(r->lock, LOCK_EX | LOCK_NB) == 0)
        rmdir(r->path);
    if (r->lock >= 0)
        close(r->lock);
}

struct places {
    const char *folder, *temporary;
    const char *also[RUNTIME_FOLDERS + 1];  // where programs see the temporary folder, too; NULL: nowhere
    bool of_root;                           // for a job of root
};

// Who is root may open what belongs to root, disks too, even without a privilege: instead of the node's devices there
// are those that programs need.
static int hide_devices(struct error *e) {
    static const char *const kept[] = {"null", "zero", "full", "random", "urandom", "tty", "fuse"};
    enum { KEPT = sizeof kept / sizeof *kept };
    char path[32];
    int trees[KEPT], r = 0;
    for (size_t i = 0; i < KEPT; i++) {
        snprintf(path, sizeof path, "/dev/%s", kept[i]);
        trees[i] = open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    }
    if (mount("tmpfs", "/dev", "tmpfs", MS_NOSUID, "mode=0755") < 0)
        r = error_set(e, errno, "the node's devices cannot be covered: %m");
    for (size_t i = 0; i < KEPT; i++) {
        snprintf(path, sizeof path, "/dev/%s", kept[i]);
        cleanup_close int tree = trees[i];
        cleanup_close int place = r < 0 || tree < 0 ? -1 : open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (place >= 0)
            move_mount(tree, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH);
    }
    if (r == 0 && (symlink("/proc/self/fd", "/dev/fd") < 0 || mkdir("/dev/shm", 01777) < 0 ||
                   mkdir("/dev/pts", 0755) < 0))
        r = error_set(e, errno, "a folder for devices cannot be made: %m");
    return r;
}

// Everything read-only but the folder.
static int confine(const struct places *p, struct error *e) {
    const char *folder = p->folder;
    struct mount_attr ro = {.attr_set = MOUNT_ATTR_RDONLY}, rw = {.attr_clr = MOUNT_ATTR_RDONLY};
    if (p->of_root && hide_devices(e) < 0)
        return -e->code;
    if (folder && mount(folder, folder, NULL, MS_BIND | MS_REC, NULL) < 0)
        return error_set(e, errno, "%s cannot be bound: %m", folder);
    for (int i = 0; i <= RUNTIME_FOLDERS; i++)
        if (p->also[i] && mount(p->temporary, p->also[i], NULL, MS_BIND, NULL) < 0)
            return error_set(e, errno, "%s cannot be bound: %m", p->also[i]);
    if (mount_setattr(AT_FDCWD, "/", AT_RECURSIVE, &ro, sizeof ro) < 0)
        return error_set(e, errno, "the file systems cannot be made read-only: %m");
    if (folder && mount_setattr(AT_FDCWD, folder, AT_RECURSIVE, &rw, sizeof rw) < 0)
        return error_set(e, errno, "%s cannot be made writable: %m", folder);
    for (int i = 0; i <= RUNTIME_FOLDERS; i++)
        if (p->also[i] && mount_setattr(AT_FDCWD, p->also[i], 0, &rw, sizeof rw) < 0)
            return error_set(e, errno, "%s cannot be made writable: %m", p->also[i]);
    return 0;
}

#if defined(__x86_64__)
#define OWN_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define OWN_ARCH AUDIT_ARCH_AARCH64
#endif

// A namespace with one user in it: every change of an owner or a user would fail, and with it most of what installs
// packages. Such calls return success and do nothing, so that all files belong to the one user, as they will when the
// image is run. Nothing is allowed that was not before.
static int pretend_ids(void) {
#ifdef OWN_ARCH
    static const uint32_t calls[] = {
#ifdef SYS_chown
        SYS_chown,     SYS_lchown,
#endif
        SYS_fchown,    SYS_fchownat,  SYS_setuid,    SYS_setgid,   SYS_setreuid, SYS_setregid,
        SYS_setresuid, SYS_setresgid, SYS_setgroups, SYS_setfsuid, SYS_setfsgid};
    enum { CALLS = sizeof calls / sizeof *calls };
    struct sock_filter f[CALLS + 5] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OWN_ARCH, 0, CALLS + 1),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    };
    for (uint32_t i = 0; i < CALLS; i++)
        f[3 + i] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[i], (uint8_t)(CALLS - i), 0);
    f[3 + CALLS] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    f[4 + CALLS] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO);  // with error 0: success
    struct sock_fprog program = {CALLS + 5, f};
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0 ? -errno : 0;
#else
    return 0;
#endif
}

// Root without any privilege of root's: buildah would look for what is root's.
static uint32_t user_for_buildah(void) {
    return geteuid() ? geteuid() : ROOTS_OTHER;
}

// Programs of containers ask these whether they run in a namespace that was made for them.
static void set_rootless(void) {
    char text[32];
    snprintf(text, sizeof text, "%u", user_for_buildah());
    setenv("_CONTAINERS_ROOTLESS_UID", text, 1);
    snprintf(text, sizeof text, "%u", geteuid() ? getegid() : ROOTS_OTHER);
    setenv("_CONTAINERS_ROOTLESS_GID", text, 1);
    setenv("_CONTAINERS_USERNS_CONFIGURED", "done", 1);
}

_Noreturn static void run_child(const struct box_tool *t, int out, int err, pid_t parent,
                                const struct runtime_folder runtime[static RUNTIME_FOLDERS]) {
    struct error e = {0};
    uid_t uid = t->as_root ? 0 : geteuid() ? geteuid() : NOT_ROOT;
    gid_t gid = t->as_root ? 0 : getegid() ? getegid() : NOT_ROOT;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    const char *temporary = t->temporary ? t->temporary : t->folder;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    // It may have ended before this was asked for: then nobody would end us.
    if (getppid() != parent)
        _exit(127);
    umask(022);
    if (t->pretend_ids)
        setpgid(0, 0);  // it starts others, which end with it
    dup2(t->input > 0 ? t->input : null, 0);
    if (!t->show) {
        dup2(out >= 0 ? out : null, 1);
        dup2(err, 2);
    }
    if (t->pretend_ids)
        set_rootless();
    setenv("PATH", TOOL_PATH, 1);
    setenv("LC_ALL", "C", 1);
    unsetenv("LD_LIBRARY_PATH");
    unsetenv("LD_PRELOAD");
    if (t->folder) {
        setenv("TMPDIR", temporary, 1);
        setenv("XDG_DATA_HOME", temporary, 1);
        if (t->pretend_ids) {
            setenv("XDG_CACHE_HOME", temporary, 1);
            setenv("XDG_RUNTIME_DIR", temporary, 1);
        }
    }
    struct places p = {.folder = t->folder, .temporary = temporary, .of_root = geteuid() == 0};
    if (t->pretend_ids) {
        for (int i = 0; i < RUNTIME_FOLDERS; i++)
            p.also[i] = *runtime[i].path ? runtime[i].path : NULL;
        if (!str_has_prefix(t->folder, "/var/tmp/") && !(t->sees && str_has_prefix(t->sees, "/var/tmp")))
            p.also[RUNTIME_FOLDERS] = "/var/tmp";  // its programs write there, whatever TMPDIR says
    }
    int flags = CLONE_NEWNS | (t->network ? 0 : CLONE_NEWNET);
    if (box_namespaces(flags, uid, gid, &e) < 0 || confine(&p, &e) < 0 ||
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || (t->folder && chdir(t->folder) < 0) ||
        (t->pretend_ids && pretend_ids() < 0)) {
        dprintf(2, "%s\n", e.text);
        _exit(126);
    }
    execvp(t->argv[0], t->argv);
    dprintf(2, "%s is not installed on this node\n", t->argv[0]);
    _exit(127);
}

// The end of what it said is kept when it says too much; of its output, the beginning.
static void drain(int fd, struct buf *out, size_t max, bool keep_end) {
    char data[4096];
    ssize_t n = read(fd, data, sizeof data);
    if (n <= 0 || !out)
        return;
    if (out->len + (size_t)n > max && keep_end)
        buf_drop(out, out->len / 2);
    if (out->len + (size_t)n <= max)
        buf_add(out, data, (size_t)n);
}

static volatile sig_atomic_t running;

static void end_running(int number) {
    (void)number;
    if (running && kill(-(pid_t)running, SIGKILL) < 0)
        kill((pid_t)running, SIGKILL);
}

// Whether it may go on; once refused it never may. The next question comes later the longer this one took: trees are
// walked for it.
static bool may_go_on(const struct box_tool *t, int64_t *next_ms) {
    int64_t now_ms = clock_mono_ms();
    if (*next_ms == REFUSED)
        return false;
    if (!t->allowed || now_ms < *next_ms)
        return true;
    bool yes = t->allowed(t->allowed_ctx);
    int64_t took_ms = clock_mono_ms() - now_ms;
    *next_ms = yes ? now_ms + took_ms + (took_ms * 20 > ASK_MS ? took_ms * 20 : ASK_MS) : REFUSED;
    return yes;
}

static int wait_for(pid_t pid, const struct box_tool *t, int64_t *next_ms) {
    int status;
    pid_t got;
    while ((got = waitpid(pid, &status, t->allowed ? WNOHANG : 0)) != pid) {
        if (got < 0 && errno != EINTR)
            return -errno;
        if (got == 0 && !may_go_on(t, next_ms)) {
            end_running(0);
            while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
                ;
            return -EFBIG;
        }
        if (got == 0)
            poll(NULL, 0, WAIT_MS);
    }
    return status;
}

static void read_both(int out, int err, const struct box_tool *t, int64_t *next_ms) {
    struct pollfd p[2] = {{.fd = out, .events = POLLIN}, {.fd = err, .events = POLLIN}};
    while (p[0].fd >= 0 || p[1].fd >= 0) {
        if (poll(p, 2, t->allowed ? ASK_MS : -1) < 0 && errno != EINTR)
            return;
        if (!may_go_on(t, next_ms))
            return;  // it is ended where it is waited for
        for (int i = 0; i < 2; i++) {
            if (p[i].fd < 0 || !p[i].revents)
                continue;
            if (p[i].revents & POLLIN)
                drain(p[i].fd, i ? t->errors : t->out, i ? ERRORS_MAX : BOX_CONFIG_MAX, i);
            else
                p[i].fd = -1;
        }
    }
}

void box_tool_forward_signals(void) {
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP};
    struct sigaction action = {.sa_handler = end_running};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaction(signals[i], &action, NULL);
}

int box_tool_run(const struct box_tool *t) {
    cleanup_close int out_r = -1, out_w = -1, err_r = -1, err_w = -1;
    int out[2], err[2];
    pid_t self = getpid();
    if (pipe2(out, O_CLOEXEC) < 0)
        return -errno;
    out_r = out[0];
    out_w = out[1];
    if (pipe2(err, O_CLOEXEC) < 0)
        return -errno;
    err_r = err[0];
    err_w = err[1];
    struct runtime_folder runtime[RUNTIME_FOLDERS] = {{.lock = -1}, {.lock = -1}};
    if (t->pretend_ids)
        runtime_folders_open(runtime, user_for_buildah());
    pid_t pid = fork();
    if (pid < 0)
        return -errno;
    if (pid == 0)
        run_child(t, out_w, err_w, self, runtime);
    if (t->pretend_ids)
        setpgid(pid, pid);  // whoever is first
    running = pid;
    close(TAKE_FD(out_w));
    close(TAKE_FD(err_w));
    int64_t next_ms = clock_mono_ms() + ASK_MS;
    read_both(out_r, err_r, t, &next_ms);
    int status = wait_for(pid, t, &next_ms);
    running = 0;
    for (int i = 0; i < RUNTIME_FOLDERS; i++)
        runtime_folder_close(&runtime[i]);
    return status;
}

bool box_tool_found(const char *name) {
    static const char *const places[] = {"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"};
    char path[256];
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(path, sizeof path, "%s/%s", places[i], name);
        if (access(path, X_OK) == 0)
            return true;
    }
    return false;
}

// Programs of this kind write lines such as: time="…" level=fatal msg="what it is about".
const char *box_tool_last_words(const struct buf *errors, struct arena *a) {
    const char *text = buf_str(errors);
    size_t end = strlen(text);
    while (end && strchr(" \n\r\t", text[end - 1]))
        end--;
    size_t begin = end;
    while (begin && text[begin - 1] != '\n')
        begin--;
    char *line = arena_strndup(a, text + begin, end - begin);
    char *message = strstr(line, "msg=\"");
    if (message) {
        line = message + strlen("msg=\"");
        size_t len = strlen(line);
        if (len && line[len - 1] == '"')
            line[len - 1] = 0;
    }
    size_t kept = 0;
    for (const char *p = line; *p; p++)
        if (p[0] != '\\' || p[1] != '"')
            line[kept++] = *p;
    line[kept] = 0;
    char *clean = arena_alloc(a, WORDS_MAX + 4);
    return *line ? str_printable(line, clean, WORDS_MAX) : "it did not say why";
}
