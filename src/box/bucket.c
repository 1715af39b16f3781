// Owns volumes that are buckets of S3. The mount is ours: made here, in the namespaces of the job, without a place on
// the node. A program that the node has (rclone, or mount-s3 for reading) answers for it, as the job's user with the
// user's own credentials, in the job's control group: it ends with the job, and the mount goes with the last process of
// the job. What is written goes to a cache on the node first; that it is sent is the matter of bucket_send.c.
//
// Such programs mount by starting "fusermount", which hands them the open /dev/fuse. Here that is a link to this
// program, which hands over the one of the mount that is there already.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "box/box.h"
#include "model/volume.h"

#define FUSE_VARIABLE "ACEQUIA_FUSE_FD"
#define PROGRAM_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
enum { ANSWER_MAX_MS = 90000 };

int box_buckets_parse(const char *text, struct arena *a, struct box_buckets *out, struct error *e) {
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, "\n");
        const char *line = arena_strndup(a, p, n);
        size_t len = strcspn(line, " ");
        const char *rest = line + len;
        bool read_only = str_has_prefix(rest, " ro /");
        if (!len || (!read_only && !str_has_prefix(rest, " rw /")) || out->len == VOLUMES_PER_JOB)
            return error_set(e, EINVAL, "acequia-box does not understand --buckets %s", line);
        out->at[out->len++] = (struct box_bucket){
            .url = arena_strndup(a, line, len), .to = rest + strlen(" ro "), .read_only = read_only};
        p += n + (p[n] == '\n');
    }
    return 0;
}

// --- as fusermount ---

bool box_is_fusermount(const char *name) {
    const char *slash = strrchr(name, '/');
    return str_has_prefix(slash ? slash + 1 : name, "fusermount");
}

int box_fusermount(int argc, char **argv) {
    const char *fuse = getenv(FUSE_VARIABLE), *to = getenv("_FUSE_COMMFD");
    uint32_t fd, channel;
    for (int i = 1; i < argc; i++)
        if (streq(argv[i], "-u"))
            return 0;  // it goes with the job
    if (!fuse || !to || parse_u32(fuse, &fd) < 0 || parse_u32(to, &channel) < 0)
        return 1;
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {
        .head = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
    char byte = 0;
    struct iovec data = {&byte, 1};
    struct msghdr m = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    int number = (int)fd;
    memcpy(CMSG_DATA(&control.head), &number, sizeof number);
    return sendmsg((int)channel, &m, 0) < 0;
}

// --- the mount ---

static int set(int fs, const char *key, const char *value) {
    return fsconfig(fs, FSCONFIG_SET_STRING, key, value, 0) < 0 ? -errno : 0;
}

static int make_mount(int fuse, const struct box_bucket *b, struct arena *a, struct error *e) {
    cleanup_close int fs = fsopen("fuse", FSOPEN_CLOEXEC);
    int r = fs < 0 ? -errno : set(fs, "source", b->url);
    r = r < 0 ? r : set(fs, "subtype", "s3");
    r = r < 0 ? r : set(fs, "fd", arena_printf(a, "%d", fuse));
    r = r < 0 ? r : set(fs, "rootmode", "40000");
    r = r < 0 ? r : set(fs, "user_id", arena_printf(a, "%u", geteuid()));
    r = r < 0 ? r : set(fs, "group_id", arena_printf(a, "%u", getegid()));
    if (r == 0 && fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        r = -errno;
    unsigned flags = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | (b->read_only ? MOUNT_ATTR_RDONLY : 0);
    int tree = r < 0 ? r : fsmount(fs, FSMOUNT_CLOEXEC, flags);
    if (tree >= 0)
        return tree;
    return error_set(e, r < 0 ? -r : errno, "%s cannot be mounted on this node: %s", b->url,
                     strerror(r < 0 ? -r : errno));
}

// --- the program that answers ---

// A folder with the links by which it finds us, and an empty one that it believes to mount on.
static int make_links(const char *folder, struct arena *a, struct error *e) {
    static const char *const names[] = {"fusermount", "fusermount3"};
    char own[4096];
    ssize_t n = readlink("/proc/self/exe", own, sizeof own - 1);
    own[n > 0 ? n : 0] = 0;
    if ((mkdir(folder, 0700) < 0 && errno != EEXIST) ||
        (mkdir(arena_printf(a, "%s/empty", folder), 0700) < 0 && errno != EEXIST))
        return error_set(e, errno, "the folder %s cannot be made: %m", folder);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *path = arena_printf(a, "%s/%s", folder, names[i]);
        const char *fresh = arena_printf(a, "%s.%d", path, getpid());
        // Others of this user may start at the same moment: it is replaced in one step.
        if (symlink(own, fresh) < 0 || rename(fresh, path) < 0)
            return error_set(e, errno, "%s cannot be made: %m", path);
    }
    return 0;
}

static void set_default(const char *name, const char *value) {
    if (value)
        setenv(name, value, 0);
}

// The words that both read are Amazon's own; what only rclone knows is said for it, unless the job says otherwise.
static void add_rclone(struct box_list *argv, const struct volume_source *s, const char *empty, const char *unsent,
                       struct arena *a) {
    const char *region = getenv("AWS_REGION");
    set_default("RCLONE_S3_ENV_AUTH", "true");
    set_default("RCLONE_S3_PROVIDER", s->endpoint ? "Other" : "AWS");
    set_default("RCLONE_S3_REGION", region ? region : getenv("AWS_DEFAULT_REGION"));
    set_default("RCLONE_S3_NO_CHECK_BUCKET", "true");  // it makes no bucket
    set_default("RCLONE_CA_CERT", getenv("AWS_CA_BUNDLE"));
    unsetenv("AWS_CA_BUNDLE");  // rclone fails on it
    set_default("RCLONE_CONTIMEOUT", "10s");
    set_default("RCLONE_LOW_LEVEL_RETRIES", "3");
    set_default("RCLONE_LOG_LEVEL", "ERROR");
    if (s->endpoint)
        setenv("RCLONE_S3_ENDPOINT", s->endpoint, 1);
    box_list_add(argv, a, "rclone");
    box_list_add(argv, a, "mount");
    box_list_add(argv, a, arena_printf(a, ":s3:%s/%s", s->bucket, s->prefix ? s->prefix : ""));
    box_list_add(argv, a, empty);
    box_list_add(argv, a, "--dir-cache-time=10s");  // commands in the job have mounts of their own
    if (!unsent)
        return;
    box_list_add(argv, a, "--vfs-cache-mode=writes");
    box_list_add(argv, a, "--vfs-write-back=1s");
    box_list_add(argv, a, arena_printf(a, "--cache-dir=%s", unsent));
}

// unsent: NULL for one that is only read.
static char **command_of(const struct volume_source *s, const char *empty, const char *unsent, struct arena *a) {
    struct box_list argv = {0};
    if (box_tool_found("rclone")) {
        add_rclone(&argv, s, empty, unsent, a);
    } else {
        box_list_add(&argv, a, "mount-s3");
        box_list_add(&argv, a, s->bucket);
        box_list_add(&argv, a, empty);
        box_list_add(&argv, a, "--foreground");
        if (s->prefix)
            box_list_add(&argv, a, arena_printf(a, "--prefix=%s/", s->prefix));
        if (s->endpoint)
            box_list_add(&argv, a, arena_printf(a, "--endpoint-url=%s", s->endpoint));
    }
    if (!unsent)
        box_list_add(&argv, a, "--read-only");
    char **out = arena_alloc(a, (argv.len + 1) * sizeof *out);
    for (uint32_t i = 0; i < argv.len; i++)
        out[i] = arena_strdup(a, argv.at[i]);
    out[argv.len] = NULL;
    return out;
}

// The signals that a job is asked to end by are its program's alone: while that clears up, its bucket is there. What
// would install a handler for them is answered as if it had.
static int ignore_signals(void) {
    static const int ignored[] = {SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGTERM};
    enum { COUNT = sizeof ignored / sizeof *ignored };
    struct sock_filter f[COUNT + 5];
    int n = 0;
    f[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    f[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_rt_sigaction, 0, COUNT + 1);
    f[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0]));
    for (int i = 0; i < COUNT; i++) {
        signal(ignored[i], SIG_IGN);
        f[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)ignored[i], (uint8_t)(COUNT - i), 0);
    }
    f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO);  // with error 0: success
    struct sock_fprog program = {(unsigned short)n, f};
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0 ? -errno : 0;
}

_Noreturn static void run_program(const struct box_bucket *b, int fuse, const char *folder, const char *unsent,
                                  struct arena *a) {
    struct volume_source s;
    struct error e = {0};
    if (volume_source_parse(b->url, a, &s, &e) < 0 || ignore_signals() < 0)
        _exit(126);
    char **argv = command_of(&s, arena_printf(a, "%s/empty", folder), unsent, a);
    fcntl(fuse, F_SETFD, 0);
    setenv(FUSE_VARIABLE, arena_printf(a, "%d", fuse), 1);
    setenv("PATH", arena_printf(a, "%s:" PROGRAM_PATH, folder), 1);
    unsetenv("LD_PRELOAD");
    execvp(argv[0], argv);
    dprintf(STDERR_FILENO, "acequia: %s cannot be started: %s\n", argv[0], strerror(errno));
    _exit(127);
}

// line: to the job's process, for a bucket that is written to; else -1.
_Noreturn static void become_program(const struct box_bucket *b, int fuse, const char *folder, const char *cache,
                                     int line, struct arena *a) {
    struct volume_source s;
    struct error e = {0};
    const char *unsent = NULL;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    setsid();
    dup2(null, STDIN_FILENO);
    dup2(STDERR_FILENO, STDOUT_FILENO);
    // The root folder that it sees stays the node's when that of the job changes.
    if (volume_source_parse(b->url, a, &s, &e) < 0 || unshare(CLONE_NEWNS) < 0 || chdir("/") < 0 ||
        (geteuid() != 0 && box_drop_privileges(&e) < 0))
        _exit(126);
    if (line < 0)
        run_program(b, fuse, folder, NULL, a);
    if (!(unsent = box_unsent_folder(cache, s.bucket, a, &e))) {
        dprintf(STDERR_FILENO, "acequia: %s\n", e.text);
        _exit(126);
    }
    pid_t pid = fork();
    if (pid == 0)
        run_program(b, fuse, folder, unsent, a);
    close(fuse);
    if (pid < 0)
        _exit(126);
    box_bucket_send(b->url, unsent, pid, line);
}

// By a child that ends at once, so that the job's program has no child that it does not know.
static int start_program(const struct box_bucket *b, int fuse, const char *folder, const char *cache, int line,
                         struct arena *a) {
    pid_t pid = fork();
    if (pid == 0) {
        pid_t inner = fork();
        if (inner == 0)
            become_program(b, fuse, folder, cache, line, a);
        _exit(inner < 0);
    }
    int status = 1;
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return pid < 0 || status ? -EAGAIN : 0;
}

// Reads the folder once, in a process of its own: a program that does not answer cannot be interrupted otherwise.
static int wait_for_answer(int tree, const struct box_bucket *b, struct error *e) {
    int result[2], code = 0;
    if (pipe2(result, O_CLOEXEC) < 0)
        return error_set(e, errno, "%s cannot be mounted: %m", b->url);
    pid_t pid = fork();
    if (pid == 0) {
        int fd = openat(tree, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *d = fd < 0 ? NULL : fdopendir(fd);
        errno = d ? 0 : errno;
        if (d)
            (void)readdir(d);
        code = errno;
        _exit(write(result[1], &code, sizeof code) != sizeof code);
    }
    close(result[1]);
    struct pollfd p = {.fd = result[0], .events = POLLIN};
    int n = pid < 0 ? -1 : poll(&p, 1, ANSWER_MAX_MS);
    ssize_t got = n > 0 ? read(result[0], &code, sizeof code) : 0;
    close(result[0]);
    if (pid > 0) {
        kill(pid, SIGKILL);
        while (n > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    if (got == (ssize_t)sizeof code && !code)
        return 0;
    if (n == 0)
        return error_set(e, ETIMEDOUT, "%s did not answer within %d s", b->url, ANSWER_MAX_MS / 1000);
    return error_set(
        e, EIO,
        "%s cannot be read (%s): what the program that mounts it says is in the job's output; are "
        "the bucket and the credentials (~/.aws, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY) right?",
        b->url, strerror(code ? code : EIO));
}

static int check_programs(const struct box_bucket *b, struct error *e) {
    bool rclone = box_tool_found("rclone"), other = box_tool_found("mount-s3");
    if (!rclone && !other)
        return error_set(
            e, ENOENT,
            "%s cannot be mounted: this node has neither rclone nor mount-s3; an administrator installs one",
            b->url);
    if (!rclone && !b->read_only)
        return error_set(e, ENOENT,
                         "%s cannot be written to: this node has mount-s3, which jobs only read with, and no "
                         "rclone; add :ro, or an administrator installs rclone",
                         b->url);
    return 0;
}

int box_bucket_mount(const struct box_bucket *b, const char *cache, struct box_senders *senders, struct arena *a,
                     struct error *e) {
    const char *folder = arena_printf(a, "%s/fuse", cache);
    int line[2] = {-1, -1}, r = check_programs(b, e);
    if (r < 0)
        return r;
    cleanup_close int fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (fuse < 0)
        return error_set(
            e, errno,
            "%s cannot be mounted: /dev/fuse cannot be opened on this node (%m); an administrator "
            "loads the module fuse and gives users access (chmod 666 /dev/fuse)",
            b->url);
    cleanup_close int tree = make_mount(fuse, b, a, e);
    r = tree < 0 ? tree : make_links(folder, a, e);
    if (r < 0)
        return r;
    if (!b->read_only && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, line) < 0)
        return error_set(e, errno, "%s cannot be mounted: %m", b->url);
    r = start_program(b, fuse, folder, cache, line[1], a);
    close(TAKE_FD(fuse));  // it ends with the program: whoever reads then gets an error instead of waiting
    if (line[1] >= 0)
        close(line[1]);
    if (line[0] >= 0) {
        senders->url[senders->len] = b->url;
        senders->line[senders->len++] = line[0];
    }
    if (r < 0)
        return error_set(e, -r, "%s cannot be mounted: no process can be started", b->url);
    r = wait_for_answer(tree, b, e);
    return r < 0 ? r : TAKE_FD(tree);
}
