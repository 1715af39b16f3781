// acequia ssh, ssh-proxy, ssh-config: the client's side of ssh into a job. The connection is a command inside the job
// (ssh_serve.c), through the same session as exec: authorised by the controller, as the job's user, in its container
// and within its limits. What ssh itself needs to be content lies in a folder of the job,
// ~/.cache/acequia/ssh/JOB.acequia-CLUSTER: a key made for it here, and the job's host keys, which come over the
// authorised connection. The folder goes with the last connection. CLUSTER stands for the controller's address: two
// clusters may have jobs of the same number.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "base/text.h"
#include "cli/client/session.h"
#include "cli/job/resolve.h"
#include "model/message.h"
#include "model/paths.h"
#include "ssh.h"
#include "verbs.h"

#define SUFFIX ".acequia"
enum { CLUSTER_HEX = 8, FOLDER_TRIES = 100, COPY_BYTES = 64 << 10, SETTINGS = 8, HOST_NAME_MAX_BYTES = 255 };

static const char *const folder_files[] = {"key", "key.pub", "known_hosts", "lock"};

static const char *base_folder(struct cli *c) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (!str_empty(cache) && *cache == '/')
        return arena_printf(&c->arena, "%s/acequia/ssh", cache);
    if (!str_empty(home) && *home == '/')
        return arena_printf(&c->arena, "%s/.cache/acequia/ssh", home);
    cli_failf(c, "HOME is not set to an absolute path; ssh's keys have no place");
    return NULL;
}

// --- the folder of a job ---

// Under the exclusive lock: nobody uses it. A new one may be made at once.
static void remove_folder(int folder, int parent, const char *name) {
    for (size_t i = 0; i < sizeof folder_files / sizeof *folder_files; i++)
        unlinkat(folder, folder_files[i], 0);
    unlinkat(parent, name, AT_REMOVEDIR);
}

// Also of connections that were killed: whose lock is free has no connection.
static void remove_unused(int parent, const char *name) {
    cleanup_close int folder = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    cleanup_close int lock = folder < 0 ? -1 : openat(folder, "lock", O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) == 0)
        remove_folder(folder, parent, name);
}

static void remove_all_unused(int parent) {
    int fd = openat(parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d && fd >= 0)
        close(fd);
    for (struct dirent *ent; d && (ent = readdir(d));)
        if (ent->d_name[0] != '.')
            remove_unused(parent, ent->d_name);
    if (d)
        closedir(d);
}

struct keys {
    const char *path;
    int parent, folder, lock;
};

// The lock is held as long as the connection lasts. A folder that was removed meanwhile is made again.
static int open_folder(struct cli *c, const char *base, const char *host, struct keys *k) {
    k->path = arena_printf(&c->arena, "%s/%s", base, host);
    for (int i = 0; i < FOLDER_TRIES; i++) {
        struct stat st;
        if (mkdirat(k->parent, host, 0700) < 0 && errno != EEXIST)
            break;
        cleanup_close int folder = openat(k->parent, host, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (folder < 0 && errno == ENOENT)
            continue;
        cleanup_close int lock =
            folder < 0 ? -1 : openat(folder, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (lock < 0 && errno == ENOENT)
            continue;
        if (lock < 0 || flock(lock, LOCK_SH) < 0 || fstat(lock, &st) < 0)
            break;
        if (!st.st_nlink)
            continue;
        k->folder = TAKE_FD(folder);
        k->lock = TAKE_FD(lock);
        return 0;
    }
    return cli_failf(c, "%s cannot be made: %s", k->path, strerror(errno));
}

// Of several connections that begin at once, one makes the key for all.
static int make_key(struct cli *c, const struct keys *k, const char **public) {
    cleanup_buf struct buf text = {0};
    const char *key = arena_printf(&c->arena, "%s/key", k->path);
    const char *own = arena_printf(&c->arena, "%s.%d", key, (int)getpid());
    const char *own_public = arena_printf(&c->arena, "%s.pub", own);
    int r = 0;
    if (access(key, R_OK) < 0) {
        r = verb_ssh_make_key("ssh-keygen", NULL, SSH_KEY_CLIENT, own, &c->error);
        if (r == 0 && link(own, key) < 0 && errno != EEXIST)
            r = error_set(&c->error, errno, "%s cannot be made: %m", key);
        unlink(own);
        unlink(own_public);
    }
    if (r == 0)
        r = verb_ssh_public_key("ssh-keygen", NULL, key, &text, &c->error);
    if (r < 0)
        return cli_fail(c);
    *public = arena_strdup(&c->arena, buf_str(&text));
    return 0;
}

static int open_keys(struct cli *c, const char *host, struct keys *k, const char **public) {
    const char *base = base_folder(c);
    *k = (struct keys){.parent = -1, .folder = -1, .lock = -1};
    if (!base)
        return CLI_FAILED;
    if (paths_make(base, 0700, &c->error) < 0)
        return cli_fail(c);
    k->parent = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (k->parent < 0)
        return cli_failf(c, "%s cannot be opened: %s", base, strerror(errno));
    remove_all_unused(k->parent);
    int r = open_folder(c, base, host, k);
    return r ? r : make_key(c, k, public);
}

static void close_keys(const struct keys *k, const char *host) {
    if (k->lock >= 0)
        close(k->lock);
    if (k->folder >= 0)
        close(k->folder);
    if (k->parent >= 0)
        remove_unused(k->parent, host);
}

// --- the connection ---

// "12.acequia" and "12" are the job 12. The name is also that of its folder.
static int read_host(struct cli *c, const char *given, const char **host, char **job) {
    char shown[64];
    size_t n = strlen(given), s = strlen(SUFFIX);
    if (n > s && streq(given + n - s, SUFFIX))
        n -= s;
    if (!n || n > HOST_NAME_MAX_BYTES - s || *given == '.' || *given == '-' || strchr(given, '/'))
        return cli_usage(c, "\"%s\" is not a job; write its number or its name, or JOB" SUFFIX,
                         str_printable(given, shown, sizeof shown));
    *job = arena_strndup(&c->arena, given, n);
    *host = arena_printf(&c->arena, "%s" SUFFIX, *job);
    return 0;
}

static int resolve_job(struct cli *c, char **job) {
    char *one[] = {*job, NULL};
    char **arguments = c->arguments;
    int count = c->count;
    c->arguments = one;
    c->count = 1;
    int status = job_resolve_arguments(c, 1, true);
    *job = one[0];
    c->arguments = arguments;
    c->count = count;
    return status;
}

// In a process of its own, whose output is a pipe.
static _Noreturn void run_session(struct cli *c, const char *job, uint32_t node, const char *public) {
    cleanup_buf struct buf first = {0}, target = {0};
    char key[SESSION_KEY_MAX];
    struct json_writer w = {.out = &first};
    const char *argv[] = {EXEC_OWN_PROGRAM, EXEC_SSH, "--serve", public};
    json_open(&w, '{');
    json_open_key(&w, "argv", '[');
    for (size_t i = 0; i < sizeof argv / sizeof *argv; i++)
        json_put_str(&w, argv[i]);
    json_close(&w, ']');
    json_kv_i64(&w, "node", node);
    if (client_session_key(key) == 0)
        json_kv_str(&w, "key", key);
    json_close(&w, '}');
    buf_adds(&target, "/v1/jobs/");
    http_percent_encode(&target, job);
    buf_adds(&target, "/exec");
    struct client_session s = {
        .cli = c, .kind = SESSION_EXEC, .target = buf_str(&target), .first = &first, .input = true};
    int status = client_session_run(&s);
    fflush(NULL);
    _exit(status);
}

// The first line is the job's host key. It is written down before ssh sees a byte of the connection, so that ssh
// finds it there when it looks. 0, -EPIPE: the other side has ended and has said why.
static int take_host_key(const struct keys *k, int from) {
    char line[SSH_KEY_LINE_MAX + sizeof SSH_GREETING];
    size_t n = 0, skip = strlen(SSH_GREETING);
    for (; n < sizeof line - 1; n++)
        if (read(from, line + n, 1) != 1 || line[n] == '\n')
            break;
    if (line[n] != '\n' || n <= skip || memcmp(line, SSH_GREETING, skip) != 0)
        return -EPIPE;
    line[n] = 0;
    char known[sizeof line + 4];
    int len = snprintf(known, sizeof known, "* %s\n", line + skip);
    cleanup_close int fd =
        openat(k->folder, "known_hosts", O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    return fd < 0 ? -errno : verb_write_all(fd, known, (size_t)len);
}

static int copy_to_ssh(int from) {
    static char piece[COPY_BYTES];
    ssize_t n;
    int r = 0;
    while (r == 0 && (n = read(from, piece, sizeof piece)) != 0)
        r = n < 0 ? (errno == EINTR ? 0 : -errno) : verb_write_all(STDOUT_FILENO, piece, (size_t)n);
    return r;
}

static int carry(struct cli *c, const char *job, uint32_t node, const struct keys *k, const char *public) {
    int ends[2], wstatus = 0;
    if (pipe(ends) < 0)
        return cli_failf(c, "no pipe: %s", strerror(errno));
    // ssh hangs up when it is done. Then its end of our input is closed as well, which ends the session in good order.
    signal(SIGHUP, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    pid_t self = getpid(), pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != self || dup2(ends[1], STDOUT_FILENO) < 0)
            _exit(CLI_FAILED);
        close(ends[0]);
        close(ends[1]);
        run_session(c, job, node, public);
    }
    close(ends[1]);
    close(STDIN_FILENO);  // the session's alone
    int r = pid < 0 ? -errno : take_host_key(k, ends[0]);
    if (r == 0)
        r = copy_to_ssh(ends[0]);
    close(ends[0]);
    if (pid < 0)
        return cli_failf(c, "no process: %s", strerror(-r));
    if (r < 0 && r != -EPIPE)
        cli_failf(c, "ssh cannot be connected: %s", strerror(-r));
    while (waitpid(pid, &wstatus, 0) < 0 && errno == EINTR)
        ;
    return r < 0 || !WIFEXITED(wstatus) ? CLI_FAILED : WEXITSTATUS(wstatus);
}

// Part of the names of folders. ssh's settings name it, and hand it to the proxy, so that both mean the same folder.
static const char *cluster_of(struct cli *c, const char *given) {
    cleanup_buf struct buf server = {0};
    struct client *k;
    if (given &&
        (!*given || strspn(given, "0123456789abcdef") != strlen(given) || strlen(given) > CLUSTER_HEX)) {
        cli_usage(c, "--cluster: expected what acequia ssh-config has written");
        return NULL;
    }
    if (given)
        return given;
    if (client_open(c, &k) < 0) {
        cli_fail(c);
        return NULL;
    }
    client_server_text(k, &server);
    client_free(k);
    return arena_printf(&c->arena, "%08x", (unsigned)hash_bytes(server.data, server.len));
}

static int run_proxy(struct cli *c) {
    const char *host, *public = NULL;
    struct keys k;
    char *job;
    uint32_t node = 0;
    if (option_given(&c->options, "serve"))
        return verb_ssh_serve(c);
    if (option_u32(&c->options, "node", 0, 65535, &node, &c->error) < 0)
        return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    int status = read_host(c, c->arguments[0], &host, &job);
    if (status == CLI_OK && client_before_fork(c) < 0)
        status = cli_fail(c);
    if (status == CLI_OK)
        status = resolve_job(c, &job);
    if (status != CLI_OK)
        return status;
    const char *cluster = cluster_of(c, option_get(&c->options, "cluster"));
    if (!cluster)
        return CLI_FAILED;
    const char *folder = arena_printf(&c->arena, "%s-%s", host, cluster);
    status = open_keys(c, folder, &k, &public);
    if (status == CLI_OK)
        status = carry(c, job, node, &k, public);
    close_keys(&k, folder);
    return status;
}

// --- ssh's settings ---

struct setting {
    const char *name, *value;
};

// In a value of ssh's '%' begins a token, and our command is read by a shell.
static const char *quoted(struct arena *a, const char *text) {
    cleanup_buf struct buf b = {0};
    buf_addc(&b, '\'');
    for (; *text; text++)
        buf_adds(&b, *text == '\'' ? "'\\''" : *text == '%' ? "%%" : (char[]){*text, 0});
    buf_addc(&b, '\'');
    return arena_strdup(a, buf_str(&b));
}

static const char *doubled(struct arena *a, const char *text) {
    cleanup_buf struct buf b = {0};
    for (; *text; text++)
        buf_adds(&b, *text == '%' ? "%%" : (char[]){*text, 0});
    return arena_strdup(a, buf_str(&b));
}

static const char *own_program(struct cli *c) {
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0)
        return "acequia";
    self[n] = 0;
    // acequiad stands in for the small program where a controller is reached over TLS: the small one is named.
    const char *small = paths_program(&c->arena, NULL, "cli", "acequia");
    return small ? small : arena_strdup(&c->arena, self);
}

static int settings(struct cli *c, const char *user, uint32_t node, struct setting out[SETTINGS]) {
    const char *base = base_folder(c), *cluster = base ? cluster_of(c, NULL) : NULL;
    if (!cluster)
        return -ENOENT;
    const char *folder = doubled(&c->arena, base);
    const char *place = node ? arena_printf(&c->arena, " --node %u", node) : "";
    int n = 0;
    out[n++] =
        (struct setting){"ProxyCommand", arena_printf(&c->arena, "%s ssh-proxy --cluster %s%s %%n",
                                                      quoted(&c->arena, own_program(c)), cluster, place)};
    if (user)
        out[n++] = (struct setting){"User", user};
    out[n++] =
        (struct setting){"IdentityFile", arena_printf(&c->arena, "\"%s/%%n-%s/key\"", folder, cluster)};
    out[n++] = (struct setting){"IdentitiesOnly", "yes"};
    out[n++] = (struct setting){"UserKnownHostsFile",
                                arena_printf(&c->arena, "\"%s/%%n-%s/known_hosts\"", folder, cluster)};
    out[n++] = (struct setting){"GlobalKnownHostsFile", "/dev/null"};
    out[n++] = (struct setting){"StrictHostKeyChecking", "yes"};
    out[n++] = (struct setting){"UpdateHostKeys", "no"};
    return n;
}

static int run_config(struct cli *c) {
    cleanup_buf struct buf out = {0};
    struct setting all[SETTINGS];
    struct reply me;
    int status = client_get(c, "/v1/me", &me);
    if (status != CLI_OK)
        return status;
    int n = settings(c, json_str(me.json, "user"), 0, all);
    if (n < 0)
        return CLI_FAILED;
    buf_adds(&out, "Host *" SUFFIX "\n");
    for (int i = 0; i < n; i++)
        buf_addf(&out, "    %s %s\n", all[i].name, all[i].value);
    return cli_print(&out);
}

struct arguments {
    struct arena *a;
    VEC(char *) at;
};

static void add(struct arguments *v, const char *text) {
    vec_push(&v->at, arena_strdup(v->a, text));
}

// Options of ssh's own that are passed on as they are.
static void add_options(struct cli *c, struct arguments *v) {
    static const char *const values[][2] = {
        {"local-forward", "-L"}, {"remote-forward", "-R"}, {"dynamic-forward", "-D"}, {"option", "-o"}};
    static const char *const flags[][2] = {
        {"agent", "-A"}, {"no-command", "-N"}, {"pty", "-t"}, {"no-pty", "-T"}, {"verbose", "-v"}};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        uint32_t it = 0;
        for (const char *value; (value = option_next(&c->options, values[i][0], &it));) {
            add(v, values[i][1]);
            add(v, value);
        }
    }
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (option_given(&c->options, flags[i][0]))
            add(v, flags[i][1]);
}

static int run_ssh(struct cli *c) {
    struct arguments v = {.a = &c->arena};
    struct setting all[SETTINGS];
    struct reply reply;
    const char *host;
    char *job;
    uint32_t node = 0;
    if (option_u32(&c->options, "node", 0, 65535, &node, &c->error) < 0)
        return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    int status = read_host(c, c->arguments[0], &host, &job);
    if (status == CLI_OK)
        status = resolve_job(c, &job);
    if (status == CLI_OK)
        status = client_get(c, arena_printf(&c->arena, "/v1/jobs/%s", job), &reply);
    if (status != CLI_OK)
        return status;
    const struct json *spec = json_get(reply.json, "spec");
    const char *user = spec ? json_str(spec, "user") : NULL, *state = json_str(reply.json, "state");
    if (!streq(state, "RUNNING"))
        return cli_failf(c, "job %s is %s; ssh needs a running job", job, state ? state : "not running");
    int n = settings(c, user, node, all);
    if (n < 0)
        return CLI_FAILED;
    add(&v, "ssh");
    for (int i = 0; i < n; i++) {
        add(&v, "-o");
        add(&v, arena_printf(&c->arena, "%s=%s", all[i].name, all[i].value));
    }
    add_options(c, &v);
    add(&v, "--");
    add(&v, arena_printf(&c->arena, "%s" SUFFIX, job));
    for (int i = c->count > 1 && streq(c->arguments[1], "--") ? 2 : 1; i < c->count; i++)
        add(&v, c->arguments[i]);
    vec_push(&v.at, NULL);
    execvp("ssh", v.at.at);
    return cli_failf(c, "ssh cannot be run: %s; install it: apt-get install openssh-client", strerror(errno));
}

static const struct option_spec ssh_specs[] = {
    {"node", 'w', "NUMBER", "On the job's node with this number, from 0.", 0, NULL, NULL},
    {"local-forward", 'L', "[ADDRESS:]PORT:HOST:PORT",
     "A port here leads to one as seen from inside the job.", OPTION_REPEAT, NULL, NULL},
    {"remote-forward", 'R', "[ADDRESS:]PORT:HOST:PORT",
     "A port inside the job leads to one as seen from here.", OPTION_REPEAT, NULL, NULL},
    {"dynamic-forward", 'D', "[ADDRESS:]PORT", "A SOCKS proxy here that connects from inside the job.",
     OPTION_REPEAT, NULL, NULL},
    {"agent", 'A', NULL, "Forward the ssh agent.", 0, NULL, NULL},
    {"no-command", 'N', NULL, "Run no command; only forward.", 0, NULL, NULL},
    {"pty", 't', NULL, "Allocate a terminal for the command.", 0, NULL, NULL},
    {"no-pty", 'T', NULL, "Allocate no terminal.", 0, NULL, NULL},
    {"option", 'o', "NAME=VALUE", "Any setting of ssh.", OPTION_REPEAT, NULL, NULL},
    {"verbose", 'v', NULL, "Show what ssh does.", 0, NULL, NULL},
};
static const struct option_table ssh_table = OPTION_TABLE("Options", ssh_specs);

const struct verb verb_ssh = {
    .name = "ssh",
    .group = "Programs",
    .arguments = "[options] JOB [--] [COMMAND [arguments...]]",
    .summary = "ssh into a running job: shell, forwarding of ports and agents",
    .text = "Runs ssh with an ssh server that is started inside the job for this connection, as the job's "
            "user, in "
            "its "
            "network and container and within its limits. The node needs Debian's openssh-server installed; "
            "it need "
            "not run, "
            "and no port is opened. For other programs that use ssh (scp, sftp, rsync, editors) see acequia "
            "ssh-config. What "
            "runs in the session ends with the connection.",
    .examples = "acequia ssh 12\nacequia ssh 12 -- nvidia-smi\nacequia ssh -N -L 8080:localhost:8080 train",
    .options = {&ssh_table, &job_pick_options, &cli_common_options},
    .run = run_ssh,
    .stop = true,
    .complete = "@job",
    .least = 1,
    .most = -1,
};

static const struct option_spec proxy_specs[] = {
    {"node", 'w', "NUMBER", "On the job's node with this number, from 0.", 0, NULL, NULL},
    {"serve", 0, NULL, "The other end, inside the job.", OPTION_HIDDEN, NULL, NULL},
    {"cluster", 0, "NAME", "Which cluster's keys, as acequia ssh-config writes it.", OPTION_HIDDEN, NULL,
     NULL},
};
static const struct option_table proxy_table = OPTION_TABLE("Options", proxy_specs);

const struct verb verb_ssh_proxy = {
    .name = "ssh-proxy",
    .group = "Programs",
    .arguments = "[options] JOB",
    .summary = "connect ssh with a job; for ssh's ProxyCommand",
    .text = "Standard input and output are the connection. The key that the job accepts, and the job's host "
            "key, lie "
            "in "
            "~/.cache/acequia/ssh as long as a connection is open. See acequia ssh-config for the "
            "settings that "
            "belong to it.",
    .examples = "acequia ssh-config >> ~/.ssh/config\nrsync -a data 12.acequia:",
    .options = {&proxy_table, &job_pick_options, &cli_common_options},
    .run = run_proxy,
    .complete = "@job",
    .least = 1,
    .most = 1,
};

const struct verb verb_ssh_config = {
    .name = "ssh-config",
    .group = "Programs",
    .arguments = "",
    .summary = "print the lines for ~/.ssh/config",
    .text = "With them every program that uses ssh reaches running jobs as JOB.acequia, by number or name: "
            "ssh, scp, "
            "sftp, "
            "rsync, and editors that work over ssh, as VS Code and PyCharm.",
    .examples = "acequia ssh-config >> ~/.ssh/config\nscp model.bin 12.acequia:\nssh train.acequia",
    .options = {&cli_common_options},
    .run = run_config,
    .least = 0,
    .most = 0,
};
