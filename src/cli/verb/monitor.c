// acequia monitor: a Prometheus of the machine's own packages, set up for this cluster.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/rand.h"
#include "base/text.h"
#include "cli/client/client.h"
#include "cli/client/daemon.h"
#include "cli/term/local_time.h"
#include "verbs.h"
#include "model/config.h"
#include "model/paths.h"

enum {
    PORT_DEFAULT = 9090,
    INTERVAL_DEFAULT_S = 15,
    RETENTION_DEFAULT_S = 30 * 86400,
    TOKEN_TTL_S = 365 * 86400,
    READY_MS = 30000,
    STOP_MS = 20000,
    TEMPLATE_MAX = 65536,
    SECRET_BYTES = 18
};

static const struct option_spec specs[] = {
    {"port", 0, "PORT", "Port of Prometheus on the loopback address; default 9090.", 0, NULL, NULL},
    {"interval", 0, "DURATION", "How often metrics are scraped; default 15s.", 0, NULL, NULL},
    {"keep", 0, "DURATION", "How long they are kept; default 30d.", 0, NULL, NULL},
    {"stop", 0, NULL, "Stop it. Its data are kept.", 0, NULL, NULL},
    {"write-only", 0, NULL, "Only write its configuration and print the path.", 0, NULL, NULL},
};
static const struct option_table monitor_options = OPTION_TABLE("Options", specs);

struct monitor {
    struct cli *cli;
    struct paths paths;
    const char *folder, *config, *token, *token_id, *password, *web, *templates, *controller;
    uint32_t port, interval_s, keep_s;
};

// Where the rules and the template are: installed, or left in the tree of the build.
static const char *find_templates(struct arena *a) {
    static const char *const places[] = {"../share/acequia/prometheus", "../../share/acequia/prometheus",
                                         "../../../deploy/prometheus", "../../../../deploy/prometheus", NULL};
    return paths_beside(a, NULL, places, "prometheus.yml", R_OK);
}

static const char *find_program(struct arena *a, const char *name) {
    const char *path = getenv("PATH");
    for (const char *p = path ? path : "/usr/bin:/bin"; *p;) {
        size_t n = strcspn(p, ":");
        const char *full = arena_printf(a, "%.*s/%s", (int)n, p, name);
        if (n && access(full, X_OK) == 0)
            return full;
        p += n + (p[n] == ':');
    }
    return NULL;
}

static int write_file(struct monitor *m, const char *path, const char *text, mode_t mode) {
    const char *fresh = arena_printf(&m->cli->arena, "%s.new", path);
    unlink(fresh);
    cleanup_close int fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    size_t len = strlen(text);
    if (fd < 0 || write(fd, text, len) != (ssize_t)len || rename(fresh, path) < 0)
        return error_set(&m->cli->error, errno ? errno : EIO, "cannot write %s: %s", path, strerror(errno));
    return 0;
}

static int read_file(struct monitor *m, const char *path, const char **out) {
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    char *text = arena_alloc(&m->cli->arena, TEMPLATE_MAX + 1);
    ssize_t n = fd < 0 ? -1 : read(fd, text, TEMPLATE_MAX);
    if (n < 0)
        return error_set(&m->cli->error, errno, "cannot read %s: %s", path, strerror(errno));
    *out = text;
    return 0;
}

// Prometheus speaks to the controller over the network only.
static int find_controller(struct monitor *m) {
    cleanup_config struct config config = {0};
    int64_t now = clock_wall_ms();
    struct error *e = &m->cli->error;
    int r = config_load(m->paths.config, now, local_time_offset_s(now), &config, e);
    if (r < 0)
        return r;
    const char *listen = config.cluster.listen;
    if (str_empty(listen))
        return error_set(e, ENOTCONN,
                         "Prometheus reaches the controller by TLS only: put \"listen = 127.0.0.1:%d\" into "
                         "[cluster] of %s, "
                         "then acequia down and acequia up",
                         CLIENT_PORT_DEFAULT, m->paths.config);
    const char *colon = strrchr(listen, ':');
    bool all = str_has_prefix(listen, "0.0.0.0:") || str_has_prefix(listen, "[::]:") || colon == listen;
    m->controller = arena_printf(&m->cli->arena, "%s%s", all ? "127.0.0.1" : "", all ? colon : listen);
    return 0;
}

// It is to read, not to rule: a user who has no jobs and may act on nobody's.
#define MONITOR_USER "nobody"

// The token of the start before is of no use to anybody any more; one that is gone already is fine.
static void revoke_older(struct monitor *m, struct client *k) {
    struct reply reply;
    const char *id = "";
    if (access(m->token_id, R_OK) < 0 || read_file(m, m->token_id, &id) < 0 || !*id)
        return;
    client_call(k, "DELETE", arena_printf(&m->cli->arena, "/v1/tokens/%s", id), NULL, &reply);
    m->cli->error = (struct error){0};
}

static int make_token(struct monitor *m) {
    cleanup_buf struct buf body = {0};
    struct json_writer w = {.out = &body};
    struct reply reply;
    struct client *k = NULL;
    int r = client_open(m->cli, &k);
    if (r == 0)
        r = client_call(k, "GET", "/v1/status", NULL, &reply);
    bool admin = r == 0 && json_true(reply.json, "admin");
    const char *user = r == 0 ? admin ? MONITOR_USER : json_str(reply.json, "user") : NULL;
    if (r == 0) {
        revoke_older(m, k);
        json_open(&w, '{');
        json_kv_str(&w, "kind", "user");
        json_kv_str(&w, "user", user);
        json_kv_i64(&w, "ttl_s", TOKEN_TTL_S);
        json_close(&w, '}');
        r = client_call(k, "POST", "/v1/tokens", &body, &reply);
    }
    client_free(k);
    const char *token = r == 0 ? json_str(reply.json, "token") : NULL,
               *id = r == 0 ? json_str(reply.json, "id") : NULL;
    if (r == 0 && id)
        r = write_file(m, m->token_id, id, 0600);
    if (r < 0)
        return r;
    return token ? write_file(m, m->token, token, 0600)
                 : error_set(&m->cli->error, EPROTO, "the controller gave no token");
}

// A password for Prometheus' own pages: nobody else on this machine is to read them. The library for
// hashing is opened only here.
static int make_password(struct monitor *m) {
    uint8_t bytes[SECRET_BYTES],
        salt_bytes[16];  // the salt is in the file with the hash: it must not be of the secret
    char secret[2 * SECRET_BYTES + 1], salt[192];
    struct error *e = &m->cli->error;
    if (access(m->password, R_OK) == 0 && access(m->web, R_OK) == 0)
        return 0;
    int r = rand_secret(bytes, sizeof bytes);
    if (r == 0)
        r = rand_secret(salt_bytes, sizeof salt_bytes);
    if (r < 0)
        return error_set(e, -r, "cannot read random numbers");
    for (size_t i = 0; i < SECRET_BYTES; i++)
        snprintf(secret + 2 * i, 3, "%02x", bytes[i]);
    void *library = dlopen("libcrypt.so.1", RTLD_NOW | RTLD_LOCAL);
    char *(*hash)(const char *, const char *) = NULL;
    char *(*new_salt)(const char *, unsigned long, const char *, int, char *, int) = NULL;
    if (library) {
        void *p = dlsym(library, "crypt"), *q = dlsym(library, "crypt_gensalt_rn");
        memcpy(&hash, &p, sizeof p);
        memcpy(&new_salt, &q, sizeof q);
    }
    const char *hashed =
        hash && new_salt &&
                new_salt("$2b$", 10, (const char *)salt_bytes, sizeof salt_bytes, salt, sizeof salt)
            ? hash(secret, salt)
            : NULL;
    if (!hashed || !str_has_prefix(hashed, "$2"))
        return error_set(
            e, ENOTSUP,
            "the system's libcrypt.so.1 cannot make bcrypt hashes, which Prometheus needs for its password");
    r = write_file(m, m->password, secret, 0600);
    return r < 0 ? r
                 : write_file(m, m->web,
                              arena_printf(&m->cli->arena, "basic_auth_users:\n  acequia: '%s'\n", hashed),
                              0600);
}

static int write_config(struct monitor *m) {
    struct arena *a = &m->cli->arena;
    const struct {
        const char *word, *value;
    } words[] = {
        {"@CONTROLLER@", m->controller},
        {"@CA_FILE@", arena_printf(a, "%s/ca.crt", m->paths.state)},
        {"@TOKEN_FILE@", m->token},
        {"@RULES@", m->templates},
        {"@INTERVAL@", arena_printf(a, "%us", m->interval_s)},
    };
    cleanup_buf struct buf out = {0};
    const char *text = "";
    int r = read_file(m, arena_printf(a, "%s/prometheus.yml", m->templates), &text);
    if (r < 0)
        return r;
    for (const char *p = text; *p;) {
        size_t i = 0, count = sizeof words / sizeof *words;
        bool comment = *p == '#' && (p == text || p[-1] == '\n');
        if (comment) {  // explains the words
            p += strcspn(p, "\n");
            p += *p == '\n';
            continue;
        }
        while (i < count && !str_has_prefix(p, words[i].word))
            i++;
        if (i < count) {
            buf_adds(&out, words[i].value);
            p += strlen(words[i].word);
        } else {
            buf_addc(&out, *p++);
        }
    }
    return write_file(m, m->config, buf_str(&out), 0600);
}

static int prepare(struct monitor *m) {
    struct cli *c = m->cli;
    m->port = PORT_DEFAULT;
    m->interval_s = INTERVAL_DEFAULT_S;
    m->keep_s = RETENTION_DEFAULT_S;
    int r = option_u32(&c->options, "port", 1, 65535, &m->port, &c->error);
    r = r < 0 ? r : option_duration(&c->options, "interval", 1, &m->interval_s, &c->error);
    r = r < 0 ? r : option_duration(&c->options, "keep", 86400, &m->keep_s, &c->error);
    r = r < 0 ? r : paths_get(&c->arena, &m->paths, &c->error);
    if (r < 0)
        return r;
    if (!m->interval_s || m->interval_s > 3600 || !m->keep_s)
        return error_set(&c->error, EINVAL, "--interval is from 1s to 1h and --keep more than 0");
    m->folder = arena_printf(&c->arena, "%s/monitor", m->paths.state);
    m->config = arena_printf(&c->arena, "%s/prometheus.yml", m->folder);
    m->token = arena_printf(&c->arena, "%s/token", m->folder);
    m->token_id = arena_printf(&c->arena, "%s/token.id", m->folder);
    m->password = arena_printf(&c->arena, "%s/password", m->folder);
    m->web = arena_printf(&c->arena, "%s/web.yml", m->folder);
    return 0;
}

static int write_all(struct monitor *m) {
    struct error *e = &m->cli->error;
    m->templates = find_templates(&m->cli->arena);
    if (!m->templates)
        return error_set(
            e, ENOENT,
            "the rules for Prometheus (share/acequia/prometheus) are not installed beside this program");
    int r = find_controller(m);
    if (r < 0)
        return r;
    if (mkdir(m->folder, 0700) < 0 && errno != EEXIST)
        return error_set(e, errno, "cannot create the folder %s: %s", m->folder, strerror(errno));
    r = make_token(m);
    r = r < 0 ? r : make_password(m);
    return r < 0 ? r : write_config(m);
}

static bool answers(uint32_t port) {
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    cleanup_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0;
}

static int start(struct monitor *m) {
    struct cli *c = m->cli;
    struct arena *a = &c->arena;
    const char *program = find_program(a, "prometheus");
    if (!program)
        return error_set(&c->error, ENOENT,
                         "the program prometheus is not installed; on Debian: apt install prometheus");
    if (answers(m->port))
        return error_set(&c->error, EADDRINUSE, "port 127.0.0.1:%u is in use; choose another with --port",
                         m->port);
    const char *const argv[] = {"prometheus",
                                arena_printf(a, "--config.file=%s", m->config),
                                arena_printf(a, "--storage.tsdb.path=%s/data", m->folder),
                                arena_printf(a, "--storage.tsdb.retention.time=%us", m->keep_s),
                                arena_printf(a, "--web.listen-address=127.0.0.1:%u", m->port),
                                arena_printf(a, "--web.config.file=%s", m->web),
                                NULL};
    pid_t pid;
    int r = client_daemon_program_start(c, &m->paths, "prometheus", program, argv, &pid, &c->error);
    for (int64_t began = clock_mono_ms(); r == 0 && !answers(m->port); usleep(50000)) {
        if (waitpid(pid, NULL, WNOHANG) == pid)
            return error_set(&c->error, ECHILD, "Prometheus exited immediately; see %s",
                             paths_log_file(&m->paths, a, "prometheus"));
        if (clock_mono_ms() - began > READY_MS)
            return error_set(&c->error, ETIMEDOUT, "Prometheus does not answer; see %s",
                             paths_log_file(&m->paths, a, "prometheus"));
    }
    return r;
}

// Where the one that runs listens, from its own command line.
static const char *running_at(struct monitor *m, pid_t pid) {
    static const char option[] = "--web.listen-address=";
    char text[4096];
    cleanup_close int fd =
        open(arena_printf(&m->cli->arena, "/proc/%d/cmdline", (int)pid), O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    text[n > 0 ? n : 0] = 0;
    for (const char *p = text; p < text + n; p += strlen(p) + 1)
        if (str_has_prefix(p, option))
            return arena_strdup(&m->cli->arena, p + sizeof option - 1);
    return "?";
}

static int stop(struct monitor *m) {
    struct cli *c = m->cli;
    cleanup_buf struct buf out = {0};
    int r = client_daemon_program_stop(c, &m->paths, "prometheus", m->config, STOP_MS, &c->error);
    if (r < 0)
        return cli_fail(c);
    buf_adds(&out, r ? "Prometheus stopped\n" : "Prometheus was not running\n");
    return cli_print(&out);
}

static bool changes_wanted(const struct cli *c) {
    return option_given(&c->options, "port") || option_given(&c->options, "interval") ||
           option_given(&c->options, "keep");
}

static int run(struct cli *c) {
    struct monitor m = {.cli = c};
    cleanup_buf struct buf out = {0};
    if (prepare(&m) < 0)
        return cli_fail(c);
    if (option_given(&c->options, "stop"))
        return stop(&m);
    pid_t pid = client_daemon_program_running(c, &m.paths, "prometheus", m.config);
    bool only = option_given(&c->options, "write-only");
    // The small program may be linked statically and cannot open libraries.
    if (!pid && !c->tls && client_daemon_exec_client(c, &c->error) < 0)
        return cli_fail(c);
    if (!pid && (write_all(&m) < 0 || (!only && start(&m) < 0)))
        return cli_fail(c);
    if (!m.templates)
        m.templates = find_templates(&c->arena);
    if (pid)
        buf_addf(
            &out,
            "Prometheus  is already running (process %d): http://%s/ as user acequia, password in %s\n%s",
            (int)pid, running_at(&m, pid), m.password,
            changes_wanted(c) ? "Changes     need acequia monitor --stop first\n" : "");
    else if (!only)
        buf_addf(&out, "Prometheus  http://127.0.0.1:%u/ as user acequia, password in %s\n", m.port,
                 m.password);
    buf_addf(&out, "Settings    %s\nDashboards  for Grafana: %s\n", m.config,
             m.templates ? arena_printf(&c->arena, "%s/../grafana", m.templates) : "share/acequia/grafana");
    return cli_print(&out);
}

const struct verb verb_monitor = {
    .name = "monitor",
    .group = "Cluster",
    .arguments = "[options]",
    .summary = "start a Prometheus server configured for this cluster",
    .text = "Uses the prometheus package of the system, with a token of its own, the cluster's certificate, "
            "recording rules and alerts. It listens on "
            "the loopback address and asks for a password. Dashboards for Grafana are installed beside the "
            "rules.",
    .examples = "acequia monitor\nacequia monitor --port 9091 --keep 90d\nacequia monitor --stop",
    .options = {&monitor_options, &cli_common_options},
    .run = run,
    .most = 0,
};
