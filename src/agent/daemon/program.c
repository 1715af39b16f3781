// Owns the agent's command line and what surrounds a run of it: names, folders, joining, the pid file.
#include "agent/daemon/program.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "agent/daemon/daemon.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "model/name.h"
#include "model/paths.h"
#include "net/pki.h"

enum { TOKEN_FILE_MAX = 4096, SAVED_MAX = 512, LOCK_TRIES = 100, LOCK_PAUSE_US = 20000 };

struct program {
    struct arena arena;
    struct paths paths;
    struct config config;
    struct agent_options options;
    const char *join, *token_file;
    bool enroll_only;  // join, and let somebody else start the agent
    const char *folder;
    int pid_fd;
};

static void usage(void) {
    fprintf(stderr, "usage: acequia agent [--name NODE] [--join HOST:PORT[,HOST:PORT…] --token-file FILE "
                    "[--enroll-only]]\n"
                    "                     [--cgroup auto|v1|v2|none] [--until MS] [--cpus N] [--memory BYTES]\n"
                    "                     [--features A,B]\n");
}

static int parse(struct program *p, int argc, char **argv) {
    static const struct option options[] = {{"name", required_argument, NULL, 'n'},
                                            {"join", required_argument, NULL, 'j'},
                                            {"token-file", required_argument, NULL, 't'},
                                            {"enroll-only", no_argument, NULL, 'e'},
                                            {"cgroup", required_argument, NULL, 'c'},
                                            {"until", required_argument, NULL, 'u'},
                                            {"cpus", required_argument, NULL, 'p'},
                                            {"memory", required_argument, NULL, 'm'},
                                            {"features", required_argument, NULL, 'f'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    int o, r = 0;
    uint64_t until_ms = 0;
    while ((o = getopt_long(argc, argv, "n:h", options, NULL)) >= 0)
        switch (o) {
        case 'n': p->options.name = optarg; break;
        case 'j': p->join = optarg; break;
        case 't': p->token_file = optarg; break;
        case 'c': p->options.cgroup = optarg; break;
        case 'e': p->enroll_only = true; break;
        case 'u': r |= parse_u64(optarg, &until_ms); break;
        case 'p': r |= parse_u32(optarg, &p->options.cpus); break;
        case 'm': r |= parse_u64(optarg, &p->options.memory_bytes); break;
        case 'f': p->options.features = optarg; break;
        default: usage(); return -EINVAL;
        }
    p->options.until_ms = (int64_t)(until_ms & INT64_MAX);
    if (optind < argc || r < 0) {
        usage();
        return -EINVAL;
    }
    return 0;
}

// The machine's name up to its first dot, unless one is given.
static int choose_name(struct program *p, struct error *e) {
    if (!p->options.name) {
        char host[256] = "";
        gethostname(host, sizeof host - 1);
        host[strcspn(host, ".")] = 0;
        p->options.name = arena_strdup(&p->arena, host);
    }
    return name_check("node", p->options.name, e);
}

static int read_file(const char *path, size_t max, struct buf *out, struct error *e) {
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_set(e, errno, "%s cannot be read: %s", path, strerror(errno));
    ssize_t n = read(fd, buf_reserve(out, max), max);
    if (n < 0)
        return error_set(e, errno, "%s cannot be read: %s", path, strerror(errno));
    out->len += (size_t)n;
    out->data[out->len] = 0;
    return 0;
}

static int split_one(struct program *p, const char *text, struct error *e) {
    const char *colon = strrchr(text, ':');
    uint32_t port;
    if (!colon || colon == text || parse_u32(colon + 1, &port) < 0 || !port || port > 65535)
        return error_set(e, EINVAL, "join: \"%.200s\" is not HOST:PORT; write for example head:6820", text);
    size_t len = (size_t)(colon - text);
    if (text[0] == '[' && text[len - 1] == ']')
        text++, len -= 2;
    if (p->options.controller_count == AGENT_CONTROLLERS_MAX)
        return error_set(e, E2BIG, "join: there are at most %d controllers", AGENT_CONTROLLERS_MAX);
    p->options.controllers[p->options.controller_count++] =
        (struct agent_controller){arena_strndup(&p->arena, text, len), (uint16_t)port};
    return 0;
}

// One address, or those of all controllers that share a database, divided by commas.
static int split_address(struct program *p, const char *text, struct error *e) {
    int r = 0;
    p->options.controller_count = 0;
    for (const char *at = text; r == 0; at++) {
        size_t len = strcspn(at, ",");
        r = split_one(p, arena_strndup(&p->arena, at, len), e);
        at += len;
        if (!*at)
            break;
    }
    return r;
}

static const char *in_folder(struct program *p, const char *file) {
    return arena_printf(&p->arena, "%s/%s", p->folder, file);
}

static int remember_address(struct program *p, const char *address, struct error *e) {
    const char *line = arena_printf(&p->arena, "%s\n", address);
    return pki_write_file(in_folder(p, "controller"), line, strlen(line), 0644, e);
}

static int join_with_token(struct program *p, struct error *e) {
    cleanup_buf struct buf token = {0};
    cleanup_free char *name = NULL;
    int r = read_file(p->token_file, TOKEN_FILE_MAX, &token, e);
    if (r < 0)
        return r;
    for (uint32_t i = 0; i < p->options.controller_count; i++) {  // the one that leads
        const struct agent_controller *k = &p->options.controllers[i];
        r = agent_join(p->folder, k->host, k->port, buf_str(&token), p->options.name, &name, e);
        if (r == 0)
            break;
    }
    return r < 0 ? r : remember_address(p, p->join, e);
}

// Joined once, it knows where to dial and who it is. A new token joins it anew; one that is used or gone does not
// matter to a node that has its certificate, so that it can be started with the same arguments every time.
static int join(struct program *p, struct error *e) {
    cleanup_buf struct buf saved = {0};
    int r;
    bool known = access(in_folder(p, "cert.pem"), R_OK) == 0;
    if (p->join && (p->token_file || !known)) {
        if (!p->token_file)
            return error_set(e, EINVAL,
                             "token-file: a new node needs a token; make one with 'acequia token create' on "
                             "the controller");
        if ((r = split_address(p, p->join, e)) < 0)
            return r;
        if ((r = join_with_token(p, e)) < 0 && !known)
            return r;
        if (r < 0)
            log_info("the join token is not used (%s); this node has a certificate and goes on with it", e->text);
    } else if (p->join) {
        if ((r = split_address(p, p->join, e)) < 0)
            return r;
    } else if (known && read_file(in_folder(p, "controller"), SAVED_MAX, &saved, NULL) == 0) {
        saved.data[strcspn(saved.data, "\n")] = 0;
        if ((r = split_address(p, saved.data, e)) < 0)
            return r;
    }
    if (!p->options.controller_count) {
        p->options.socket = p->paths.socket;
        return 0;
    }
    p->options.ca_file = in_folder(p, "ca.pem");
    p->options.cert_file = in_folder(p, "cert.pem");
    p->options.key_file = in_folder(p, "key.pem");
    return 0;
}

// An agent that was just killed holds its lock until the kernel has taken it down: wait that long.
static int take_lock(int fd) {
    for (int tries = 0;; tries++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            return 0;
        if (errno != EWOULDBLOCK || tries == LOCK_TRIES)
            return -errno;
        usleep(LOCK_PAUSE_US);
    }
}

// The lock keeps a second agent of the same name out.
static int take_pid_file(struct program *p, struct error *e) {
    char daemon[IDENTIFIER_MAX + 16];
    snprintf(daemon, sizeof daemon, "agent-%s", p->options.name);
    const char *path = paths_pid_file(&p->paths, &p->arena, daemon);
    p->pid_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (p->pid_fd < 0)
        return error_set(e, errno, "%s cannot be written: %s", path, strerror(errno));
    if (take_lock(p->pid_fd) < 0)
        return error_set(e, EBUSY, "an agent for node %s is running already", p->options.name);
    // Over what is there, which takes no room: a full file system must not keep the agent from its jobs.
    char text[24];
    int len = snprintf(text, sizeof text, "%d\n", (int)getpid());
    if (pwrite(p->pid_fd, text, (size_t)len, 0) != len || ftruncate(p->pid_fd, len) < 0)
        log_warn("%s cannot be written (%s); 'acequia down' will not find this agent, process %d", path,
                 strerror(errno), (int)getpid());
    return 0;
}

static int32_t zone_offset_s(void) {
    time_t t = time(NULL);
    struct tm tm;
    localtime_r(&t, &tm);
    return (int32_t)tm.tm_gmtoff;
}

static int run(struct program *p, struct error *e) {
    int r;
    if ((r = paths_get(&p->arena, &p->paths, e)) < 0 || (r = choose_name(p, e)) < 0 ||
        (r = config_load(p->paths.config, clock_wall_ms(), zone_offset_s(), &p->config, e)) < 0 ||
        (r = paths_make(p->paths.state, 0700, e)) < 0 || (r = paths_make(p->paths.run, 0755, e)) < 0 ||
        (r = paths_make(p->paths.agents, 0755, e)) < 0)
        return r;
    p->folder = paths_agent(&p->paths, &p->arena, p->options.name);
    if ((r = paths_make(p->folder, 0755, e)) < 0 || (r = take_pid_file(p, e)) < 0 || (r = join(p, e)) < 0)
        return r;
    if (p->enroll_only)
        return 0;
    log_set_level(p->config.cluster.log_level);
    p->options.folder = p->folder;
    p->options.images = p->paths.images;
    p->options.config = &p->config;
    return agent_run(&p->options, e);
}

int agent_main(int argc, char **argv) {
    struct program p = {.pid_fd = -1};
    struct error e = {0};
    if (parse(&p, argc, argv) < 0)
        return 2;
    umask(022);
    int r = run(&p, &e);
    if (r < 0)
        log_error("the agent cannot run: %s", e.text);
    if (p.pid_fd >= 0)
        close(p.pid_fd);
    config_done(&p.config);
    arena_done(&p.arena);
    return r < 0 ? 1 : 0;
}
