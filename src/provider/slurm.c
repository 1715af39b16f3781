// Slurm as the engine: a node is a pilot job with an agent in it, submitted as an ordinary user. The job's name is the
// key of the node and its comment the provider's tag, so what there is can always be asked of Slurm, and nothing has to
// be remembered here. Slurm 22.05 or later.
#include <errno.h>
#include <getopt.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/map.h"
#include "base/text.h"
#include "engine.h"
#include "model/units.h"

enum { SUBMIT_ARGS_MAX = 24, FIELDS_MAX = 8, BOOT_S = 5 };

struct slurm_engine_state {
    struct engine_place place;
    const char *partition, *gres, *account, *qos, *constraint, *time, *gpu_model;
    uint32_t cpus;
    uint64_t memory_bytes;
    const char *user;  // whose jobs these are; NULL: root's, and the agents run everybody's
    uint32_t lifetime_s;
};

static int failed(const char *what, const char *errors, int status, struct error *e) {
    char first[300];
    const char *text = errors;
    while (strncmp(text, "error: ", 7) == 0 || strchr(text, ':')) {  // "sbatch: error: …"
        const char *next = strstr(text, "error: ");
        if (!next)
            break;
        text = next + 7;
    }
    snprintf(first, sizeof first, "%.*s", (int)strcspn(text, "\n"), text);
    return error_set(e, EIO, "%s failed: %s", what, *first ? first : "it said nothing");
}

static int run(const char *const *argv, const char *input, struct arena *a, const char **output, struct error *e) {
    const char *errors;
    int status;
    int r = engine_run(argv, input, a, output, &errors, &status, e);
    if (r == 0 && (!WIFEXITED(status) || WEXITSTATUS(status)))
        r = failed(argv[0], errors, status, e);
    return r;
}

// Cuts the line into its fields, in place; returns how many.
static uint32_t split(char *line, char *fields[FIELDS_MAX]) {
    uint32_t n = 0;
    for (char *at = line; at && n < FIELDS_MAX; n++) {
        fields[n] = at;
        at = strchr(at, '|');
        if (at)
            *at++ = 0;
    }
    return n;
}

// "1-02:03:04", "02:03:04", "03:04" or "30" (minutes) as seconds; 0: there is no limit.
static uint32_t limit_seconds(const char *text) {
    unsigned days = 0, part[3] = {0};
    const char *dash = strchr(text, '-');
    if (dash && sscanf(text, "%u", &days) != 1)
        return 0;
    int n = sscanf(dash ? dash + 1 : text, "%u:%u:%u", &part[0], &part[1], &part[2]);
    if (n < 1)
        return 0;
    uint64_t s = n == 3   ? part[0] * 3600ULL + part[1] * 60 + part[2]
                 : dash   ? part[0] * 3600ULL + part[1] * 60
                 : n == 2 ? part[0] * 60ULL + part[1]
                          : part[0] * 60ULL;
    s += days * 86400ULL;
    return s < UINT32_MAX ? (uint32_t)s : 0;
}

// "gpu:2", "gpu:a100:4(S:0-1)" → model and count.
static uint32_t gpus_of(const char *gres, struct arena *a, const char **model) {
    const char *gpu = gres ? strstr(gres, "gpu") : NULL;
    char type[64] = "";
    unsigned n = 0;
    if (!gpu)
        return 0;
    if (sscanf(gpu, "gpu:%u", &n) != 1 && sscanf(gpu, "gpu:%63[^:(,]:%u", type, &n) < 1)
        return 1;
    if (*type && !n)
        n = 1;
    if (*type)
        *model = arena_strdup(a, type);
    return n;
}

// --- the verbs ---

static int offers(void *ctx, struct arena *a, struct provider_report *out, struct error *e) {
    struct slurm_engine_state *s = ctx;
    const char *text;
    const char *argv[] = {"sinfo", "-h", "-o", "%c|%m|%G|%l|%D", "-p", s->partition ? s->partition : "", NULL};
    if (!s->partition)
        argv[4] = NULL;
    int r = run(argv, NULL, a, &text, e);
    if (r < 0)
        return r;
    static const char *feature[] = {"slurm"};
    struct provider_shape *shape = arena_alloc(a, sizeof *shape);
    *shape = (struct provider_shape){.name = s->partition ? s->partition : "node",
                                     .cpus = s->cpus,
                                     .memory_bytes = s->memory_bytes,
                                     .features = {feature, 1},
                                     .user = s->user,
                                     .boot_s = BOOT_S,
                                     .lifetime_s = s->time ? limit_seconds(s->time) : 0};
    shape->gpus = gpus_of(s->gres, a, &shape->gpu_model);
    for (char *line = arena_strdup(a, text); line && *line;) {
        char *next = strchr(line, '\n'), *fields[FIELDS_MAX];
        if (next)
            *next++ = 0;
        uint32_t cpus = 0, memory_mb = 0, nodes = 0;
        if (split(line, fields) == 5 && sscanf(fields[0], "%u", &cpus) == 1 &&
            sscanf(fields[1], "%u", &memory_mb) == 1 && sscanf(fields[4], "%u", &nodes) == 1) {
            // Of nodes that differ the smallest is what every one has.
            if (!s->cpus && (!shape->cpus || cpus < shape->cpus))
                shape->cpus = cpus;
            uint64_t bytes = (uint64_t)memory_mb << 20;
            if (!s->memory_bytes && (!shape->memory_bytes || bytes < shape->memory_bytes))
                shape->memory_bytes = bytes;
            shape->max += s->cpus && cpus ? nodes * (cpus / s->cpus) : nodes;
            if (!s->time && !shape->lifetime_s)
                shape->lifetime_s = limit_seconds(fields[3]);
        }
        line = next;
    }
    if (!shape->cpus)
        return error_set(e, ENOENT, "Slurm has no nodes in partition %s; see sinfo",
                         s->partition ? s->partition : "(default)");
    s->lifetime_s = shape->lifetime_s;
    out->shapes.at = shape;
    out->shapes.len = 1;
    return 0;
}

static int64_t time_of(const char *text) {
    struct tm tm = {.tm_isdst = -1};
    if (!strptime(text, "%Y-%m-%dT%H:%M:%S", &tm))
        return 0;
    time_t t = mktime(&tm);
    return t > 0 ? (int64_t)t * 1000 : 0;
}

static int list(void *ctx, struct arena *a, struct provider_report *out, struct error *e) {
    struct slurm_engine_state *s = ctx;
    const char *text, *who = s->user ? s->user : "root";
    const char *argv[] = {"squeue", "-h", "-u", who, "-o", "%k|%j|%i|%T|%r|%e", NULL};
    uint32_t room = 0;
    int r = run(argv, NULL, a, &text, e);
    for (char *line = r < 0 ? NULL : arena_strdup(a, text); line && *line;) {
        char *next = strchr(line, '\n'), *fields[FIELDS_MAX];
        if (next)
            *next++ = 0;
        if (split(line, fields) == 6 && streq(fields[0], s->place.tag)) {
            struct engine_node n = {.key = fields[1], .handle = fields[2]};
            bool pending = streq(fields[3], "PENDING") || streq(fields[3], "CONFIGURING") ||
                           streq(fields[3], "REQUEUED") || streq(fields[3], "SUSPENDED");
            bool runs = streq(fields[3], "RUNNING") || streq(fields[3], "COMPLETING");
            n.state = pending ? ENGINE_PENDING : runs ? ENGINE_RUNNING : ENGINE_ENDED;
            if (n.state != ENGINE_RUNNING)
                n.reason = arena_printf(a, "%s in Slurm: %s", fields[3], fields[4]);
            else
                n.until_ms = time_of(fields[5]);
            engine_add(out, n, &room, a);
        }
        line = next;
    }
    return r;
}

// The agent in its own folder; everything of it goes with the job. SIGTERM, which Slurm sends before the kill, ends it.
static const char *script(const struct slurm_engine_state *s, const struct asked_node *n, struct arena *a) {
    return arena_printf(
        a,
        "#!/bin/sh\n"
        "umask 077\n"
        "home=$(mktemp -d \"${TMPDIR:-/tmp}/acequia-pilot-XXXXXX\") || exit 1\n"
        "trap 'rm -rf \"$home\"' EXIT\n"
        "printf '%%s\\n' '%s' > \"$home/token\"\n"
        "export ACEQUIA_HOME=\"$home\"\n"
        "limit=%u\n"
        "until=${SLURM_JOB_END_TIME:-}\n"
        "[ -n \"$until\" ] || [ \"$limit\" = 0 ] || until=$(($(date +%%s) + limit))\n"
        "set -- --name '%s' --join '%s' --token-file \"$home/token\" --features 'slurm'\n"
        "[ -z \"$until\" ] || set -- \"$@\" --until \"${until}000\"\n"
        "[ -z \"${SLURM_CPUS_ON_NODE:-}\" ] || set -- \"$@\" --cpus \"$SLURM_CPUS_ON_NODE\"\n"
        "[ \"${SLURM_MEM_PER_NODE:-0}\" = 0 ] || set -- \"$@\" --memory $((SLURM_MEM_PER_NODE * 1048576))\n"
        "'%s' agent \"$@\" &\n"
        "agent=$!\n"
        "trap 'kill -TERM $agent' TERM\n"
        "wait $agent\n"
        "wait $agent 2>/dev/null\n",
        n->token, s->lifetime_s, n->node, s->place.controller, s->place.program);
}

static int submit(const struct slurm_engine_state *s, const struct asked_node *n, struct arena *a,
                  struct engine_node *said, struct error *e) {
    const char *argv[SUBMIT_ARGS_MAX], *text;
    uint32_t k = 0;
    argv[k++] = "sbatch";
    argv[k++] = "--parsable";
    argv[k++] = arena_printf(a, "--job-name=%s", n->key);
    argv[k++] = arena_printf(a, "--comment=%s", s->place.tag);
    argv[k++] = "--nodes=1";
    argv[k++] = "--ntasks=1";
    argv[k++] = "--no-requeue";
    argv[k++] = "--output=/dev/null";
    argv[k++] = "--chdir=/tmp";
    if (s->partition)
        argv[k++] = arena_printf(a, "--partition=%s", s->partition);
    if (s->gres)
        argv[k++] = arena_printf(a, "--gres=%s", s->gres);
    if (s->account)
        argv[k++] = arena_printf(a, "--account=%s", s->account);
    if (s->qos)
        argv[k++] = arena_printf(a, "--qos=%s", s->qos);
    if (s->constraint)
        argv[k++] = arena_printf(a, "--constraint=%s", s->constraint);
    if (s->time)
        argv[k++] = arena_printf(a, "--time=%s", s->time);
    if (s->cpus)
        argv[k++] = arena_printf(a, "--cpus-per-task=%u", s->cpus);
    else
        argv[k++] = "--exclusive";
    argv[k++] = s->memory_bytes
                    ? arena_printf(a, "--mem=%lluM", (unsigned long long)(s->memory_bytes >> 20))
                    : "--mem=0";
    argv[k] = NULL;
    int r = run(argv, script(s, n, a), a, &text, e);
    if (r == 0)
        *said = (struct engine_node){.key = n->key, .handle = arena_strndup(a, text, strcspn(text, ";\n"))};
    return r;
}

// One that Slurm has under this key is not submitted again.
static int start(void *ctx, const struct engine_question *q, struct arena *a, struct provider_report *out,
                 struct error *e) {
    struct slurm_engine_state *s = ctx;
    struct provider_report there = {0};
    uint32_t room = 0;
    if (str_empty(s->place.controller))
        return error_set(e, EINVAL,
                         "agents cannot dial the controller: set listen in [cluster], or give --controller HOST:PORT");
    int r = list(ctx, a, &there, e);
    if (r < 0)
        return r;
    for (uint32_t i = 0; i < q->nodes.len; i++) {
        const struct asked_node *n = &q->nodes.at[i];
        struct engine_node said = {0};
        struct error why = {0};
        for (uint32_t k = 0; k < there.nodes.len; k++)
            if (streq(there.nodes.at[k].key, n->key) && there.nodes.at[k].state != ENGINE_ENDED)
                said = there.nodes.at[k];
        bool usable = n->key && n->node && n->token && !strpbrk(n->key, "'|\n") && !strpbrk(n->node, "'\n") &&
                      !strpbrk(n->token, "'\n");
        if (!said.key && usable && submit(s, n, a, &said, &why) < 0)
            said = (struct engine_node){.key = n->key, .error = arena_strdup(a, why.text)};
        if (said.key)
            engine_add(out, said, &room, a);
    }
    return 0;
}

static int stop(void *ctx, const struct engine_question *q, struct arena *a, struct provider_report *out,
                struct error *e) {
    struct slurm_engine_state *s = ctx;
    uint32_t room = 0;
    for (uint32_t i = 0; i < q->nodes.len; i++) {
        const struct asked_node *n = &q->nodes.at[i];
        const char *text, *who = s->user ? s->user : "root";
        struct error why = {0};
        // By its name: also one whose handle nobody has heard of.
        const char *argv[] = {"scancel", "--full", "-u", who, "-n", n->key, NULL};
        if (strchr(n->key, ',') || run(argv, NULL, a, &text, &why) < 0)
            engine_add(out, (struct engine_node){.key = n->key, .error = arena_strdup(a, why.text)}, &room, a);
        else
            engine_add(out, (struct engine_node){.key = n->key}, &room, a);
    }
    return 0;
}

// --- settings ---

static int become(const char *name, struct error *e) {
    const struct passwd *u = getpwnam(name);
    if (!u)
        return error_set(e, ENOENT, "as: there is no user \"%.60s\" on this machine", name);
    if (geteuid() == u->pw_uid)
        return 0;
    if (initgroups(u->pw_name, u->pw_gid) < 0 || setgid(u->pw_gid) < 0 || setuid(u->pw_uid) < 0)
        return error_set(e, errno, "as: only root can submit as another user: %m");
    setenv("HOME", u->pw_dir, 1);
    setenv("USER", u->pw_name, 1);
    return 0;
}

int slurm_engine(const struct engine_place *place, int argc, char **argv, struct arena *a, struct engine *out,
                 struct error *e) {
    static const struct option options[] = {
        {"partition", required_argument, NULL, 'p'}, {"gres", required_argument, NULL, 'g'},
        {"account", required_argument, NULL, 'A'},   {"qos", required_argument, NULL, 'q'},
        {"constraint", required_argument, NULL, 'C'}, {"time", required_argument, NULL, 't'},
        {"as", required_argument, NULL, 'u'},        {"cpus", required_argument, NULL, 'c'},
        {"memory", required_argument, NULL, 'm'},    {"controller", required_argument, NULL, 'j'},
        {"program", required_argument, NULL, 'x'},   {0}};
    struct slurm_engine_state *s = arena_alloc(a, sizeof *s);
    const char *as = NULL;
    int r = 0;
    *s = (struct slurm_engine_state){.place = *place};
    s->place.program = "acequia";
    opterr = 0;
    optind = 1;
    for (int o; (o = getopt_long(argc, argv, "", options, NULL)) >= 0 && r == 0;)
        switch (o) {
        case 'p': s->partition = optarg; break;
        case 'g': s->gres = optarg; break;
        case 'A': s->account = optarg; break;
        case 'q': s->qos = optarg; break;
        case 'C': s->constraint = optarg; break;
        case 't': s->time = optarg; break;
        case 'u': as = optarg; break;
        case 'c': r = parse_u32(optarg, &s->cpus); break;
        case 'm': r = size_parse(optarg, 1 << 20, &s->memory_bytes, e); break;
        case 'j': s->place.controller = optarg; break;
        case 'x': s->place.program = optarg; break;
        default: r = -EINVAL;
        }
    if (r < 0 || optind < argc)
        return error_set(e, EINVAL, "an option of the provider is not understood: \"%.60s\"",
                         argv[optind < argc ? optind : argc - 1]);
    if (strpbrk(s->place.program, "'\n") || strpbrk(s->place.controller, "'\n"))
        return error_set(e, EINVAL, "program and controller may not contain quotes");
    if (as && (r = become(as, e)) < 0)
        return r;
    const struct passwd *u = geteuid() ? getpwuid(geteuid()) : NULL;
    s->user = u ? arena_strdup(a, u->pw_name) : NULL;
    *out = (struct engine){.offers = offers, .start = start, .stop = stop, .list = list, .ctx = s};
    return 0;
}
