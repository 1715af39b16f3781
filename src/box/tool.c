// Owns running the programs that fetch and unpack images. What they read was made by strangers, so each
// runs in namespaces of its own in which everything is read-only but one folder, and most without a
// network: a program that is led astray by an image can harm nothing but that image's folder.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "box/box.h"

#define TOOL_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
enum { ERRORS_MAX = 64 << 10, WORDS_MAX = 200, NOT_ROOT = 1000 };

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

// Everything read-only but the folder.
static int confine(const char *folder, struct error *e) {
    struct mount_attr ro = {.attr_set = MOUNT_ATTR_RDONLY}, rw = {.attr_clr = MOUNT_ATTR_RDONLY};
    if (folder && mount(folder, folder, NULL, MS_BIND | MS_REC, NULL) < 0)
        return error_set(e, errno, "%s cannot be bound: %m", folder);
    if (mount_setattr(AT_FDCWD, "/", AT_RECURSIVE, &ro, sizeof ro) < 0)
        return error_set(e, errno, "the file systems cannot be made read-only: %m");
    if (folder && mount_setattr(AT_FDCWD, folder, AT_RECURSIVE, &rw, sizeof rw) < 0)
        return error_set(e, errno, "%s cannot be made writable: %m", folder);
    return 0;
}

_Noreturn static void run_child(const struct box_tool *t, int out, int err, pid_t parent) {
    struct error e = {0};
    uid_t uid = t->as_root ? 0 : geteuid() ? geteuid() : NOT_ROOT;
    gid_t gid = t->as_root ? 0 : getegid() ? getegid() : NOT_ROOT;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    // It may have ended before this was asked for: then nobody would end us.
    if (getppid() != parent)
        _exit(127);
    umask(022);
    dup2(null, 0);
    dup2(out >= 0 ? out : null, 1);
    dup2(err, 2);
    setenv("PATH", TOOL_PATH, 1);
    setenv("LC_ALL", "C", 1);
    unsetenv("LD_LIBRARY_PATH");
    unsetenv("LD_PRELOAD");
    if (t->folder) {
        setenv("TMPDIR", t->folder, 1);
        setenv("XDG_DATA_HOME", t->folder, 1);
    }
    int flags = CLONE_NEWNS | (t->network ? 0 : CLONE_NEWNET);
    if (box_namespaces(flags, uid, gid, &e) < 0 || confine(t->folder, &e) < 0 ||
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || (t->folder && chdir(t->folder) < 0)) {
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

static void read_both(int out, int err, const struct box_tool *t) {
    struct pollfd p[2] = {{.fd = out, .events = POLLIN}, {.fd = err, .events = POLLIN}};
    while (p[0].fd >= 0 || p[1].fd >= 0) {
        if (poll(p, 2, -1) < 0 && errno != EINTR)
            return;
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

int box_tool_run(const struct box_tool *t) {
    cleanup_close int out_r = -1, out_w = -1, err_r = -1, err_w = -1;
    int out[2], err[2], status;
    pid_t self = getpid();
    if (pipe2(out, O_CLOEXEC) < 0)
        return -errno;
    out_r = out[0];
    out_w = out[1];
    if (pipe2(err, O_CLOEXEC) < 0)
        return -errno;
    err_r = err[0];
    err_w = err[1];
    pid_t pid = fork();
    if (pid < 0)
        return -errno;
    if (pid == 0)
        run_child(t, out_w, err_w, self);
    close(TAKE_FD(out_w));
    close(TAKE_FD(err_w));
    read_both(out_r, err_r, t);
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -errno;
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
