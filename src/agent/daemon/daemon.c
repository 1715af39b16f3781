// Owns the daemon's life: opening its folders, the event loop, the connection to the controller
// and connecting anew. What to do is decided in agent/logic and done in agent/launch; messages are handed to the one,
// and carried out by the other, without a look at what they say.
#include "agent/daemon/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/map.h"
#include "base/rand.h"
#include "base/text.h"
#include "metrics.h"
#include "model/paths.h"
#include "net/dial.h"
#include "net/pki.h"
#include "net/tls.h"

#define GATEWAY_PROGRAM "/usr/bin/pasta"

enum {
    TMPFS_MAGIC_NUMBER = 0x01021994,
    DEFAULT_GRACE_S = 30,
    LEAVE_TRIES = 30,
    DESCRIPTORS = 32 * 1024,  // streams are bounded to fewer
};

static void dial_later(struct agent *a);

// Whether the kernel's table of routes has a default one that leads outside.
static bool has_default_route(const char *file, bool v6) {
    char line[256], to[40], size[40], device[40];
    bool found = false;
    cleanup_fclose FILE *f = fopen(file, "re");
    while (f && !found && fgets(line, sizeof line, f))
        found = v6 ? sscanf(line, "%39s %39s %*s %*s %*s %*s %*s %*s %*s %39s", to, size, device) == 3 &&
                         strspn(to, "0") == strlen(to) && streq(size, "00") && !streq(device, "lo")
                   : sscanf(line, "%39s %39s %*s %*s %*s %*s %*s %39s", device, to, size) == 3 &&
                         streq(to, "00000000") && streq(size, "00000000");
    return found;
}

// The program that connects a job's own network with the outside takes the node's default route; on a node without one
// it does not start.
static const char *usable_gateway(void) {
    bool outside =
        has_default_route("/proc/net/route", false) || has_default_route("/proc/net/ipv6_route", true);
    return outside && access(GATEWAY_PROGRAM, X_OK) == 0 ? GATEWAY_PROGRAM : NULL;
}

// --- terms of leaders ---

static const char *term_file(struct agent *a) {
    return arena_printf(&a->shared.arena, "%s/term", a->options->folder);
}

static void read_term(struct agent *a) {
    cleanup_close int fd = open(term_file(a), O_RDONLY | O_CLOEXEC);
    char text[24] = "";
    uint64_t term;
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (n > 0)
        text[strcspn(text, "\n")] = 0;
    if (n > 0 && parse_u64(text, &term) == 0 && agent_logic_term(a->shared.logic, term))
        a->kept_term = term;
}

// On disk before anything is done in its name: after a restart of this agent an older leader is still refused.
static int take_term(struct agent *a, uint64_t term, struct error *e) {
    char text[24];
    if (!agent_logic_term(a->shared.logic, term))
        return error_set(e, ESTALE, "another controller has led since (term %llu, it has %llu)",
                         (unsigned long long)a->kept_term, (unsigned long long)term);
    if (!term || term == a->kept_term)
        return 0;
    snprintf(text, sizeof text, "%llu\n", (unsigned long long)term);
    int r = pki_write_file(term_file(a), text, strlen(text), 0600, e);
    if (r == 0)
        a->kept_term = term;
    return r;
}

static void on_open(struct net_ws *ws, void *user) {
    struct agent *a = user;
    a->shared.open = true;
    launcher_connected(a->launcher);
    agent_logic_connected(a->shared.logic, &a->shared.node, clock_mono_ms());
    launcher_execute(a->launcher);
}

static void on_message(struct net_ws *ws, enum ws_opcode type, const char *data, size_t len,
                       void *user) {
    struct agent *a = user;
    cleanup_arena struct arena arena = {0};
    struct message m;
    struct error e = {0};
    uint64_t term = 0;
    if (type == WS_BINARY && message_take_term(&data, &len, &term) == 0 && take_term(a, term, &e) < 0) {
        log_warn("what a controller sent is not obeyed: %s", e.text);
        net_ws_close(ws, WS_POLICY, "another controller leads");
        return;
    }
    int r = type == WS_BINARY ? message_decode_views(data, len, &arena, &m) : -EBADMSG;
    if (r == -EPROTONOSUPPORT) {
        if (message_skip(&a->skips, m.type))
            log_warn("messages of type %u are skipped; the controller is of a later release than this agent", m.type);
        return;
    }
    if (r < 0) {
        log_error("the controller sent something that is not a message");
        net_ws_close(ws, WS_BAD_DATA, "not a message");
        return;
    }
    if (m.type == MESSAGE_NODE_LOOK) {
        agent_look(a, m.body);
        return;
    }
    agent_logic_message(a->shared.logic, &m, clock_mono_ms());
    launcher_execute(a->launcher);
    message_wipe(&m);
    if (m.type == MESSAGE_WELCOME) {
        a->dial_delay_ms = AGENT_DIAL_FIRST_MS;
        a->refusals = 0;
        const struct message_welcome *w = m.body;
        if (w->grace_s)
            a->shared.request_node.grace_s = w->grace_s;
        log_info("connected to cluster %s (controller %s) as node %s", w->cluster ? w->cluster : "?",
                 w->version ? w->version : "0.1", a->shared.node.name);
        if (!a->welcomed_once && a->options->on_ready)
            a->options->on_ready(a->options->ctx);
        a->welcomed_once = true;
    }
}

static void on_close(struct net_ws *ws, int status, const char *reason, void *user) {
    struct agent *a = user;
    a->shared.ws = NULL;
    a->shared.open = false;
    agent_logic_disconnected(a->shared.logic);
    if (a->stopping)
        return;
    // Several are tried in turn three times a second: each is heard once, then one a minute.
    if (a->refusals++ <= a->options->controller_count ||
        clock_mono_ms() - a->refused_ms >= REFUSED_AGAIN_MS) {
        log_warn("not connected to the controller: %s", *reason ? reason : "the connection ended");
        a->refused_ms = clock_mono_ms();
    }
    a->controller++;
    streams_close_all(a->streams);
    dial_later(a);
}

static const struct net_ws_callbacks callbacks = {
    .on_open = on_open, .on_message = on_message, .on_close = on_close};

static void on_dial(uv_timer_t *t) {
    struct agent *a = t->data;
    uint32_t count = a->options->controller_count;
    struct net_dial_options o = {
        .unix_path = a->options->socket,
        .tls = a->tls,
        .target = "/v1/agent",
        .message_max = MESSAGE_MAX_BYTES,
    };
    if (count) {
        o.host = a->options->controllers[a->controller % count].host;
        o.port = a->options->controllers[a->controller % count].port;
        a->shared.controller_host = o.host;
    }
    if (count > 1)
        o.timeout_ms = AGENT_DIAL_ANSWER_MS;
    if (!a->shared.ws && !a->stopping)
        a->shared.ws = net_dial_ws(&a->shared.loop, &o, &callbacks, a);
}

// Twice as long every time, and not everybody at once.
static void dial_later(struct agent *a) {
    uint64_t random = 0;
    rand_secret(&random, sizeof random);
    uint64_t half = (uint64_t)a->dial_delay_ms / 2;
    uv_timer_start(&a->dial, on_dial, half + random % (half + 1), 0);
    a->dial_delay_ms *= 2;
    int64_t most = a->options->controller_count > 1 ? AGENT_DIAL_NEXT_MS : AGENT_DIAL_MAX_MS;
    if (a->dial_delay_ms > most)
        a->dial_delay_ms = most;
}

static void on_tick(uv_timer_t *t) {
    struct agent *a = t->data;
    int64_t now_ms = clock_mono_ms();
    agent_logic_tick(a->shared.logic, now_ms);
    launcher_execute(a->launcher);
    launcher_tick(a->launcher, now_ms);
}

static void on_child(uv_signal_t *s, int signum) {
    struct agent *a = s->data;
    agent_reap_pending(&a->shared);
    launcher_child_exited(a->launcher);
}

static void on_closed(uv_handle_t *h) {
}

static void close_handle(uv_handle_t *h) {
    if (!uv_is_closing(h))
        uv_close(h, on_closed);
}

static void on_stop(uv_signal_t *s, int signum) {
    struct agent *a = s->data;
    if (a->stopping)
        return;
    log_info("stopping; running jobs go on");
    a->stopping = true;
    launcher_stop(a->launcher);
    a->streams = streams_free(a->streams);
    gpus_stop(a->gpus);
    agent_metrics_stop(a->metrics);
    if (a->shared.ws)
        net_ws_close(a->shared.ws, WS_GOING_AWAY, "the agent stops");
    uv_handle_t *handles[] = {(uv_handle_t *)&a->tick, (uv_handle_t *)&a->dial, (uv_handle_t *)&a->on_term,
                              (uv_handle_t *)&a->on_int, (uv_handle_t *)&a->on_child};
    for (size_t i = 0; i < sizeof handles / sizeof handles[0]; i++)
        close_handle(handles[i]);
}

static void start_handles(struct agent *a) {
    uv_timer_init(&a->shared.loop, &a->tick);
    uv_timer_init(&a->shared.loop, &a->dial);
    uv_signal_init(&a->shared.loop, &a->on_term);
    uv_signal_init(&a->shared.loop, &a->on_int);
    uv_signal_init(&a->shared.loop, &a->on_child);
    a->tick.data = a->dial.data = a;
    a->on_term.data = a->on_int.data = a->on_child.data = a;
    uv_timer_start(&a->tick, on_tick, LAUNCHER_TICK_MS, LAUNCHER_TICK_MS);
    uv_timer_start(&a->dial, on_dial, 0, 0);
    uv_signal_start(&a->on_term, on_stop, SIGTERM);
    uv_signal_start(&a->on_int, on_stop, SIGINT);
    uv_signal_start(&a->on_child, on_child, SIGCHLD);
}

static bool on_memory(const char *path) {
    struct statfs fs;
    return statfs(path, &fs) == 0 && fs.f_type == TMPFS_MAGIC_NUMBER;
}

// Ours, or not there yet. In a folder that everybody can write to, somebody else may have been first.
static bool can_be_ours(const char *path, bool *exists) {
    struct stat st;
    *exists = lstat(path, &st) == 0;
    return !*exists || (S_ISDIR(st.st_mode) && st.st_uid == geteuid());
}

// A spool folder lives on a memory file system if it can: files there cost a tenth. Its name
// follows from the agent's folder, and one that exists is preferred, so that a restarted agent
// finds it. Not for plain users: theirs are swept away when they log out, while their jobs go on.
static const char *choose_spool(struct agent *a) {
    static const char *const places[] = {"/run", "/dev/shm"};
    const char *folder = a->options->folder, *fresh = NULL;
    bool exists;
    if (!str_empty(a->options->spool))
        return a->options->spool;
    const char *own = arena_printf(&a->shared.arena, "%s/spool", folder);
    if (geteuid() != 0 || on_memory(folder) || (can_be_ours(own, &exists) && exists))
        return own;
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        const char *path = arena_printf(&a->shared.arena, "%s/acequia-%u-%016llx", places[i], geteuid(),
                                        (unsigned long long)hash_bytes(folder, strlen(folder)));
        if (!on_memory(places[i]) || !can_be_ours(path, &exists))
            continue;
        if (exists)
            return path;
        fresh = fresh ? fresh : path;
    }
    return fresh ? fresh : own;
}

static int open_folders(struct agent *a, struct error *e) {
    const char *folder = a->options->folder;
    if (folder[0] != '/')
        return error_set(e, EINVAL, "the agent's folder %s must be an absolute path", folder);
    if (mkdir(folder, 0700) < 0 && errno != EEXIST)
        return error_set(e, errno, "the agent's folder %s cannot be made: %s%s", folder, strerror(errno),
                         error_remedy(errno));
    const char *output = arena_printf(&a->shared.arena, "%s/output", folder);
    if (mkdir(output, 0700) < 0 && errno != EEXIST)
        return error_set(e, errno, "the folder %s cannot be made: %s%s", output, strerror(errno),
                         error_remedy(errno));
    a->shared.output_fd = open(output, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (a->shared.output_fd < 0)
        return error_set(e, errno, "the folder %s cannot be opened: %m", output);
    a->shared.request_node.output_folder = output;
    a->shared.spool_path = choose_spool(a);
    a->shared.spool_fd = spool_open(a->shared.spool_path, e);
    return a->shared.spool_fd < 0 ? a->shared.spool_fd : 0;
}

static int open_tls(struct agent *a, struct error *e) {
    const struct agent_options *o = a->options;
    struct tls_client_options t = {.ca_file = o->ca_file, .cert_file = o->cert_file,
                                   .key_file = o->key_file};
    return o->socket ? 0 : tls_context_client(&t, &a->tls, e);
}

static uint32_t physical_cpus(void) {
    long n = sysconf(_SC_NPROCESSORS_CONF);
    return n > 0 ? (uint32_t)n : 1;
}

// The path of acequia-MODULE. One that is missing is said by the first launch that needs it.
static const char *find_program(struct arena *a, const char *module) {
    const char *name = arena_printf(a, "acequia-%s", module), *path = paths_program(a, NULL, module, name);
    return path ? path : arena_printf(a, "/usr/libexec/acequia/%s", name);
}

static int set_up(struct agent *a, struct error *e) {
    const struct agent_options *o = a->options;
    char tag[32];
    int rc = users_start(&a->shared.users, e);
    if (rc == 0)
        rc = open_folders(a, e);
    if (rc < 0)
        return rc;
    snprintf(tag, sizeof tag, "%016llx",
             (unsigned long long)hash_bytes(a->shared.spool_path, strlen(a->shared.spool_path)));
    rc = cgroup_discover(&a->shared.site, o->cgroup ? o->cgroup : "auto", tag, e);
    if (rc == 0)
        rc = agent_describe(a, e);
    if (rc == 0)
        rc = open_tls(a, e);
    if (rc < 0)
        return rc;
    a->shared.request_node.spool_path = a->shared.spool_path;
    a->shared.request_node.name = a->shared.node.name;
    a->shared.request_node.node = &a->shared.node;
    a->shared.request_node.root = geteuid() == 0;
    a->shared.request_node.own_uid = geteuid();
    a->shared.request_node.cluster_home = getenv("ACEQUIA_HOME");
    a->shared.request_node.can_deny_devices = a->shared.site.has[CG_DEVICES];
    a->shared.request_node.gateway = usable_gateway();
    a->shared.request_node.grace_s = DEFAULT_GRACE_S;
    a->shared.files_program = find_program(&a->shared.arena, "files");
    // A node that is declared larger than the machine has no cpus to bind to.
    a->shared.logic = agent_logic_new(a->shared.node.cpus <= physical_cpus() ? a->shared.node.cpus : 0);
    read_term(a);
    struct launcher_options lo = {
        .folder = o->folder,
        .shepherd = str_empty(o->shepherd) ? find_program(&a->shared.arena, "shepherd") : o->shepherd,
        .cgroup = o->cgroup ? o->cgroup : "auto",
        .tag = arena_strdup(&a->shared.arena, tag),
        .open_files = a->open_files};
    return launcher_open(&a->shared, a->gpus, &lo, &a->launcher, e);
}

// Idle shepherds take their groups away within moments of our leaving; then the site can go too.
static void leave_site(struct agent *a) {
    struct timespec nap = {.tv_nsec = 10000000};
    for (int i = 0; i < LEAVE_TRIES && a->shared.site.kind != CGROUP_NONE; i++) {
        cgroup_leave(&a->shared.site);
        if (access(a->shared.site.base[a->shared.site.track], F_OK) < 0)
            return;
        nanosleep(&nap, NULL);
    }
}

static void count_running(void *ctx, uint64_t id, uint32_t attempt, enum agent_phase phase) {
    *(uint32_t *)ctx += phase != AGENT_ENDED;
}

static void tear_down(struct agent *a) {
    uint32_t running = 0;
    launcher_free(a->launcher);
    if (a->shared.logic)
        agent_logic_each(a->shared.logic, count_running, &running);
    if (a->shared.logic && !running)
        leave_site(a);
    // One that nobody chose is found again by its name alone; empty, it would lie there until the next boot.
    if (a->shared.spool_fd >= 0 && str_empty(a->options->spool))
        spool_discard(a->shared.spool_fd, a->shared.spool_path);
    agent_logic_free(a->shared.logic);
    users_free(a->shared.users);
    gpus_free(a->gpus);
    agent_metrics_free(a->metrics);
    vec_done(&a->views.times);
    tls_context_free(a->tls);
    vec_done(&a->shared.unreaped);
    int *fds[] = {&a->shared.spool_fd, &a->shared.output_fd};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++)
        if (*fds[i] >= 0)
            close(*fds[i]);
    buf_done(&a->shared.message);
    arena_done(&a->shared.arena);
}

// Metrics are not worth a node: without them it goes on.
static void start_metrics(struct agent *a) {
    struct error e = {0};
    if (str_empty(a->metrics_listen))
        return;
    if (agent_metrics_open(a, a->metrics_listen, &a->metrics, &e) < 0)
        log_error("metrics are not served: %s", e.text);
    else
        log_info("metrics are served on %s with TLS", a->metrics_listen);
}

// Streams of users need descriptors, and must not take those that launches and looks at jobs need. Jobs keep the limit
// that the agent was started with.
static void raise_limits(struct agent *a) {
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) < 0 || l.rlim_cur >= DESCRIPTORS)
        return;
    a->open_files = l.rlim_cur;
    l.rlim_cur = l.rlim_max < DESCRIPTORS ? l.rlim_max : DESCRIPTORS;
    if (setrlimit(RLIMIT_NOFILE, &l) < 0)
        log_warn("the limit of open files cannot be raised: %s", strerror(errno));
}

int agent_run(const struct agent_options *o, struct error *e) {
    struct agent a = {.options = o,
                      .shared = {.folder = o->folder, .spool_fd = -1, .output_fd = -1},
                      .dial_delay_ms = AGENT_DIAL_FIRST_MS};
    signal(SIGPIPE, SIG_IGN);
    raise_limits(&a);
    int rc = set_up(&a, e);
    if (rc < 0) {
        tear_down(&a);
        return rc;
    }
    if (a.shared.node.missing)
        log_info("on this node: %s", a.shared.node.missing);
    uv_loop_init(&a.shared.loop);
    a.streams = streams_new(&a.shared);
    start_handles(&a);
    launcher_start(a.launcher, a.streams);
    gpus_start(a.gpus);
    start_metrics(&a);
    launcher_recover(a.launcher);
    uv_run(&a.shared.loop, UV_RUN_DEFAULT);
    uv_loop_close(&a.shared.loop);
    tear_down(&a);
    return 0;
}
