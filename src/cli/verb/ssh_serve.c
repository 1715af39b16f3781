// The job's side of ssh: one ssh server for one connection, on standard input and output, as the job's user. Its
// configuration, the key it accepts and its host key are in memory; nothing is left on the disk, and nothing secret is
// sent. In a container the server is the node's own, with the node's libraries, which acequia-box has put there.
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "model/paths.h"
#include "ssh.h"

extern char **environ;

enum { ARGS_MAX = 16, OUTPUT_MAX = 8 << 10 };

static const char *const plain_environment[] = {"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
                                                "LC_ALL=C", NULL};

// The command line of `program`, through the loader where there is one.
static int command(const char *program, const struct ssh_loader *l, const char *argv[ARGS_MAX]) {
    int n = 0;
    if (l) {
        argv[n++] = l->program;
        argv[n++] = "--library-path";
        argv[n++] = l->libraries;
    }
    argv[n++] = program;
    return n;
}

// Runs it to its end; what it prints goes to `out`, NULL: nowhere. 0 if it ended well.
static int run_program(const char *const argv[], struct buf *out, struct error *e) {
    posix_spawn_file_actions_t f;
    int ends[2], status = 0;
    pid_t pid;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return error_set(e, errno, "no pipe: %m");
    posix_spawn_file_actions_init(&f);
    posix_spawn_file_actions_addopen(&f, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&f, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&f, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    int r = posix_spawnp(&pid, argv[0], &f, NULL, (char *const *)(uintptr_t)argv,
                         (char *const *)(uintptr_t)plain_environment);
    posix_spawn_file_actions_destroy(&f);
    close(ends[1]);
    char piece[512];
    for (ssize_t n; r == 0 && (n = read(ends[0], piece, sizeof piece)) > 0;)
        if (out && out->len < OUTPUT_MAX)
            buf_add(out, piece, (size_t)n);
    close(ends[0]);
    while (r == 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (r)
        return error_set(e, r, "%s cannot be run: %s; install it: apt-get install openssh-client", argv[0],
                         strerror(r));
    return status ? error_set(e, EIO, "%s failed", argv[0]) : 0;
}

int verb_ssh_make_key(const char *keygen, const struct ssh_loader *l, enum ssh_key_use use, const char *path,
                      struct error *e) {
    const char *argv[ARGS_MAX];
    int n = command(keygen, l, argv);
    const char *const rest[] = {"-q",
                                "-t",
                                use == SSH_KEY_CLIENT ? "ecdsa" : "ed25519",
                                "-m",
                                use == SSH_KEY_CLIENT ? "PEM" : "RFC4716",
                                "-N",
                                "",
                                "-C",
                                "acequia",
                                "-f",
                                path,
                                NULL};
    memcpy(argv + n, rest, sizeof rest);
    return run_program(argv, NULL, e);
}

int verb_ssh_public_key(const char *keygen, const struct ssh_loader *l, const char *path, struct buf *out,
                        struct error *e) {
    const char *argv[ARGS_MAX];
    int n = command(keygen, l, argv);
    const char *const rest[] = {"-y", "-f", path, NULL};
    memcpy(argv + n, rest, sizeof rest);
    int r = run_program(argv, out, e);
    if (r < 0)
        return r;
    size_t type = strcspn(buf_str(out), " \n"), len = type + 1 + strcspn(buf_str(out) + type + 1, " \n");
    if (out->len <= type + 1 || len > SSH_KEY_LINE_MAX)
        return error_set(e, EBADMSG, "ssh-keygen prints no key");
    out->data[len] = 0;
    out->len = len;
    return 0;
}

// --- the server ---

struct server {
    const char *program, *keygen;
    struct ssh_loader own;            // in a container
    const struct ssh_loader *loader;  // NULL: none
    int host_key, accepted, config;   // in memory
};

static int find_server(struct cli *c, struct server *s) {
    bool contained = !str_empty(getenv("ACEQUIA_CONTAINER"));
    *s = (struct server){.program = "/usr/sbin/sshd", .keygen = "ssh-keygen"};
    if (contained) {
        static const char *const loaders[] = {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"};
        s->program = PATHS_CONTAINER_SSH "/sshd";
        s->keygen = PATHS_CONTAINER_SSH "/ssh-keygen";
        s->own.libraries = PATHS_CONTAINER_SSH "/lib";
        for (size_t i = 0; i < sizeof loaders / sizeof *loaders; i++) {
            const char *path = arena_printf(&c->arena, PATHS_CONTAINER_SSH "/lib/%s", loaders[i]);
            if (access(path, X_OK) == 0)
                s->own.program = path;
        }
        s->loader = &s->own;
    }
    if (contained && geteuid() == 0)
        return cli_failf(c,
                         "ssh into a container needs a job of an ordinary user: the ssh server of root wants "
                         "privileges that no container has; use acequia bash");
    if (access(s->program, X_OK) < 0 || (contained && !s->own.program))
        return cli_failf(c, "this node has no ssh server; an administrator installs it with 'apt-get install "
                            "openssh-server' (its service need not run), or use acequia bash");
    if (geteuid() == 0 && mkdir("/run/sshd", 0755) < 0 && errno != EEXIST)  // as its service does
        return cli_failf(c, "/run/sshd cannot be made: %s", strerror(errno));
    return 0;
}

// A file in memory that the server opens through our /proc entry; it closes descriptors that it inherits.
static int in_memory(const char *name, const char *data, size_t len) {
    cleanup_close int fd = memfd_create(name, MFD_CLOEXEC);
    if (fd < 0 || fchmod(fd, 0600) < 0 || write(fd, data, len) != (ssize_t)len)
        return -EIO;
    return TAKE_FD(fd);
}

static int read_into_memory(const char *path) {
    char key[4096];
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    ssize_t n = fd < 0 ? -1 : read(fd, key, sizeof key);
    int r = n > 0 && (size_t)n < sizeof key ? in_memory("host-key", key, (size_t)n) : -EIO;
    explicit_bzero(key, sizeof key);
    return r;
}

// Made anew for each connection. ssh-keygen writes files only: they are there for a moment, in a folder of their own.
static int make_host_key(struct cli *c, struct server *s, struct buf *public) {
    const char *tmp = getenv("TMPDIR");
    char *folder = arena_printf(&c->arena, "%s/.acequia-ssh-XXXXXX", str_empty(tmp) ? "/tmp" : tmp);
    if (!mkdtemp(folder))
        return cli_failf(c, "no folder can be made in %s: %s", str_empty(tmp) ? "/tmp" : tmp,
                         strerror(errno));
    const char *path = arena_printf(&c->arena, "%s/key", folder);
    int r = verb_ssh_make_key(s->keygen, s->loader, SSH_KEY_HOST, path, &c->error);
    if (r == 0)
        r = verb_ssh_public_key(s->keygen, s->loader, path, public, &c->error);
    if (r == 0 && (s->host_key = read_into_memory(path)) < 0)
        r = error_set(&c->error, EIO, "the host key cannot be read");
    unlink(path);
    unlink(arena_printf(&c->arena, "%s.pub", path));
    rmdir(folder);
    return r < 0 ? cli_fail(c) : 0;
}

static bool passed_on(const char *variable) {
    static const char *const own[] = {
        "TERM=", "LINES=", "COLUMNS=", "SHLVL=", "PWD=", "OLDPWD=", "_=", "SSH_"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (str_has_prefix(variable, own[i]))
            return false;
    // ssh's files have no way to write the end of a line.
    return strchr(variable, '=') && !strpbrk(variable, "\n\r");
}

// The job's variables are those of the session: its GPUs, its limits on them, its numbers. One line: the first counts.
static void write_variables(struct buf *b) {
    bool any = false;
    for (char **v = environ; *v; v++) {
        if (!passed_on(*v))
            continue;
        buf_adds(b, any ? " \"" : "SetEnv \"");
        for (const char *p = *v; *p; p++) {
            if (*p == '"' || *p == '\\')
                buf_addc(b, '\\');
            buf_addc(b, *p);
        }
        buf_addc(b, '"');
        any = true;
    }
    buf_addc(b, '\n');
}

static int write_config(struct cli *c, struct server *s, const char *accepted) {
    cleanup_buf struct buf b = {0};
    const char *line = arena_printf(&c->arena, "%s\n", accepted);
    int self = (int)getpid();
    s->accepted = in_memory("accepted", line, strlen(line));
    buf_addf(&b, "HostKey /proc/%d/fd/%d\nAuthorizedKeysFile /proc/%d/fd/%d\n", self, s->host_key, self,
             s->accepted);
    buf_adds(&b,
             "AuthenticationMethods publickey\nPubkeyAuthentication yes\nPasswordAuthentication no\n"
             "KbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\nStrictModes no\nUsePAM no\n"
             "PidFile none\nLogLevel ERROR\nPrintMotd no\nX11Forwarding no\nGatewayPorts no\n"
             "AllowTcpForwarding yes\nAllowStreamLocalForwarding yes\nAllowAgentForwarding yes\n"
             "AcceptEnv LANG LC_*\nSubsystem sftp internal-sftp\n");
    write_variables(&b);
    s->config = s->accepted < 0 ? -1 : in_memory("config", b.data, b.len);
    return s->config < 0 ? cli_failf(c, "no memory for the ssh server's configuration") : 0;
}

// A terminal that is opened belongs to the group "tty" where /dev/pts is mounted as usual. Else the server, which gives
// it to that group, would need root.
static bool gives_terminals(void) {
    const struct group *tty = getgrnam("tty");
    cleanup_close int fd = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    struct stat st;
    const char *name = fd < 0 ? NULL : ptsname(fd);
    return geteuid() == 0 || !tty || !name || stat(name, &st) < 0 || st.st_gid == tty->gr_gid;
}

static int write_file(const char *path, int flags, const char *data, size_t len) {
    cleanup_close int fd = open(path, flags | O_WRONLY | O_CLOEXEC, 0644);
    return fd < 0 || write(fd, data, len) != (ssize_t)len ? -1 : 0;
}

// Privileges in our own namespace are no use any more, and the server, which has none, could not read our files.
static void drop_capabilities(void) {
    const struct {
        uint32_t version;
        int pid;
    } head = {.version = 0x20080522};  // the kernel's third form, with sets of two words
    const uint32_t none[6] = {0};
    if (syscall(SYS_capset, &head, none) < 0)
        cli_note("privileges cannot be given up: %s", strerror(errno));
}

// There it sees, in namespaces of its own, a list of groups without that one. What fails leaves it without terminals,
// which the server says when one is asked for.
static void hide_group_tty(struct cli *c) {
    cleanup_buf struct buf kept = {0};
    const char *map;
    char path[] = "/tmp/.acequia-ssh-XXXXXX", line[4096];
    unsigned uid = geteuid(), gid = getegid();
    FILE *f = fopen("/etc/group", "re");
    while (f && fgets(line, sizeof line, f))
        if (!str_has_prefix(line, "tty:"))
            buf_adds(&kept, line);
    if (f)
        fclose(f);
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
        return;
    write_file("/proc/self/setgroups", 0, "deny", 4);
    map = arena_printf(&c->arena, "%u %u 1", uid, uid);
    if (write_file("/proc/self/uid_map", 0, map, strlen(map)) < 0)
        return;
    map = arena_printf(&c->arena, "%u %u 1", gid, gid);
    if (write_file("/proc/self/gid_map", 0, map, strlen(map)) < 0)
        return;
    cleanup_close int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        return;
    if (fchmod(fd, 0644) == 0 && write(fd, kept.data, kept.len) == (ssize_t)kept.len &&
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
        mount(path, "/etc/group", NULL, MS_BIND, NULL) < 0)
        cli_note("terminals cannot be had: %s", strerror(errno));
    unlink(path);
    drop_capabilities();
}

_Noreturn static void become_server(const struct server *s, pid_t parent) {
    char config[64];
    const char *argv[ARGS_MAX];
    snprintf(config, sizeof config, "/proc/%d/fd/%d", (int)parent, s->config);
    int n = command(s->program, s->loader, argv);
    const char *const rest[] = {"-i", "-e", "-f", config, NULL};
    memcpy(argv + n, rest, sizeof rest);
    // The job's own settings for libraries are for its programs.
    execve(argv[0], (char *const *)(uintptr_t)argv, (char *const *)(uintptr_t)plain_environment);
    dprintf(STDERR_FILENO, "acequia: %s cannot be run: %s\n", argv[0], strerror(errno));
    _exit(127);
}

static int check_accepted(struct cli *c, const char *key) {
    for (const char *p = key; *p; p++)
        if ((unsigned char)*p < ' ' || (unsigned char)*p > '~')
            return cli_usage(c, "what is to be accepted is not a key");
    return (str_has_prefix(key, "ecdsa-sha2-nistp256 ") || str_has_prefix(key, "ssh-ed25519 ")) &&
                   strlen(key) <= SSH_KEY_LINE_MAX
               ? 0
               : cli_usage(c, "what is to be accepted is not a key");
}

int verb_ssh_serve(struct cli *c) {
    cleanup_buf struct buf public = {0};
    struct server s;
    int status = check_accepted(c, c->arguments[0]), wstatus = 0;
    if (status == 0)
        status = find_server(c, &s);
    if (status == 0)
        status = make_host_key(c, &s, &public);
    if (status == 0)
        status = write_config(c, &s, c->arguments[0]);
    if (status)
        return status;
    if (!gives_terminals())
        hide_group_tty(c);  // both of us: one of another namespace could not read our files in memory
    if (dprintf(STDOUT_FILENO, SSH_GREETING "%s\n", buf_str(&public)) < 0)
        return CLI_FAILED;
    pid_t self = getpid(), pid = fork();
    if (pid < 0)
        return cli_failf(c, "no process: %s", strerror(errno));
    if (pid == 0)
        become_server(&s, self);
    close(STDIN_FILENO);  // the server's alone: their ends are its own
    close(STDOUT_FILENO);
    while (waitpid(pid, &wstatus, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(wstatus) ? WEXITSTATUS(wstatus) : CLI_FAILED;
}
