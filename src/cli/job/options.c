// Owns the options of a job and their translation into a spec.
#include "cli/job/options.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "cli/job/resolve.h"
#include "model/arrayspec.h"
#include "model/dependency.h"
#include "model/gpuspec.h"
#include "model/health.h"
#include "model/name.h"
#include "model/nodelist.h"
#include "model/pattern.h"
#include "model/port.h"
#include "model/secret.h"
#include "model/signalname.h"
#include "model/tag.h"
#include "model/units.h"
#include "model/volume.h"

enum { NODES_MAX = 65536, TASKS_MAX = 1000000, CPUS_MAX = 65536, NICE_MAX = 1000000, RETRIES_MAX = 10000 };

static const struct option_spec resource_specs[] = {
    {"nodes", 'N', "MIN[-MAX]", "Number of nodes; default: as many as the tasks need.", 0, NULL, NULL},
    {"tasks", 'n', "COUNT", "Tasks, the processes of a parallel program.", 0, "ntasks", NULL},
    {"tasks-per-node", 0, "COUNT", "Tasks on each node.", 0, "ntasks-per-node", NULL},
    {"cpus", 'c', "COUNT", "CPUs for each task.", 0, "cpus-per-task", NULL},
    {"memory", 'm', "SIZE",
     "Memory per node, such as 64G or 512M; a bare number is megabytes. 0: the default.", 0, "mem", NULL},
    {"memory-per-cpu", 0, "SIZE", "Memory for each CPU.", 0, "mem-per-cpu", NULL},
    {"memory-per-gpu", 0, "SIZE", "Memory for each GPU.", 0, "mem-per-gpu", NULL},
    {"gpus", 'g', "GPUS",
     "GPUs for the job: a number, a fraction below 1 such as 0.5, or with a model as a100:2.", 0, "gpu",
     NULL},
    {"gpus-per-node", 0, "GPUS", "GPUs on each node.", 0, NULL, NULL},
    {"gpus-per-task", 0, "GPUS", "GPUs for each task.", 0, NULL, NULL},
    {"gpu-memory", 0, "SIZE", "GPU memory; converted to a fraction of the GPU.", 0, NULL, NULL},
    {"cpus-per-gpu", 0, "COUNT", "CPUs for each GPU.", 0, NULL, NULL},
    {"tasks-per-gpu", 0, "COUNT", "Tasks for each GPU.", 0, "ntasks-per-gpu", NULL},
    {"time", 't', "DURATION", "Time limit: 90m, 8h, 2-12:00:00 or unlimited; a bare number is minutes.", 0,
     NULL, NULL},
    {"time-min", 0, "DURATION", "Shortest acceptable time limit, so that the job may start earlier.", 0, NULL,
     NULL},
    {"project", 'P', "NAME", "Project the job belongs to.", 0, "account", "@project"},
    {"partition", 'p', "NAMES", "Partition; of several (a,b) the one where it starts first.", 0, NULL,
     "@partition"},
    {"qos", 'q', "NAME", "Quality of service.", 0, NULL, "@qos"},
    {"interactive", 0, NULL, "Interactive job: never preempted, only within the project's quota.", 0, NULL,
     NULL},
    {"constraint", 'C', "FEATURES",
     "Features the nodes must have, joined by & (all) and | (any), with parentheses.", 0, "features", NULL},
    {"nodelist", 'w', "NODES", "Nodes that must be used, such as n[01-04].", 0, NULL, "@node"},
    {"exclude", 'x', "NODES", "Nodes that must not be used.", 0, NULL, "@node"},
    {"exclusive", 0, NULL, "Do not share its nodes with other jobs.", 0, NULL, NULL},
    {"spread", 0, NULL, "Spread over many nodes instead of packing.", 0, NULL, NULL},
    {"same-socket", 0, NULL, "GPUs and CPUs must be of one socket or NVLink group.", 0, NULL, NULL},
    {"reservation", 0, "NAME", "Reservation to run in.", 0, NULL, "@reservation"},
};
const struct option_table job_resource_options = OPTION_TABLE("What the job needs", resource_specs);

static const struct option_spec control_specs[] = {
    {"name", 'J', "NAME", "Name of the job; default: that of the script or command.", 0, "job-name", NULL},
    {"chdir", 'D', "FOLDER", "Working directory; default: the current one.", 0, "workdir", "@dir"},
    {"output", 'o', "PATTERN",
     "File for standard output: %j job, %x name, %u user, %A array, %a index, %N node, %t task. Else "
     "acequia-%j.out.",
     0, NULL, "@file"},
    {"error", 'e', "PATTERN", "File for standard error; default: the output file.", 0, NULL, "@file"},
    {"input", 'i', "FILE", "File for standard input.", 0, NULL, "@file"},
    {"append", 0, NULL, "Append to output files instead of replacing them.", 0, NULL, NULL},
    {"truncate", 0, NULL, "A later attempt empties the output files; by default it appends to them.", 0, NULL,
     NULL},
    {"export", 0, "WHAT", "Environment: all (the default), none, or names and NAME=VALUE with commas.", 0,
     NULL, "all none"},
    {"env", 'E', "NAME=VALUE", "Set an environment variable.", OPTION_REPEAT, NULL, NULL},
    {"array", 'a', "INDICES", "Job array, as 0-99, 1,3,5-9 or 0-99999:2%50 (50 at once).", 0, NULL, NULL},
    {"workers", 0, "MIN[-MAX]",
     "Elastic job: at least MIN workers, which start together, and up to MAX while nobody else needs the "
     "room.",
     0, NULL, NULL},
    {"component", 0, "'NAME: OPTIONS'",
     "A kind of workers, of a job that has several: options for one worker, --workers for how many, and "
     "after -- a "
     "command of its own. All start together; the job ends with the component called head.",
     OPTION_REPEAT, NULL, NULL},
    {"on-worker-end", 0, "WHAT",
     "When a worker fails: fail (the job ends), restart (the worker is run again, see --retries and "
     "--backoff) or "
     "continue without it.",
     0, NULL, "fail restart continue"},
    {"worker-signal", 0, "SIGNAL", "Signal to all workers when one joins or leaves.", 0, NULL, NULL},
    {"dependency", 'd', "LIST",
     "Wait for other jobs: after, afterok, afternotok, afterany, aftercorr with ids or names, as "
     "afterok:12:13_4 or afterok:train; singleton; none.",
     0, NULL, NULL},
    {"cancel-invalid-dependency", 0, NULL,
     "Cancel the job as soon as its dependency can no longer be satisfied; otherwise it stays in the queue.",
     0, NULL, NULL},
    {"begin", 'b', "TIME", "Do not start before: 16:00, tomorrow, now+1hour or 2026-01-31T12:00.", 0, NULL,
     NULL},
    {"deadline", 0, "TIME", "Cancel the job if it cannot end before this time.", 0, NULL, NULL},
    {"hold", 'H', NULL, "Submit it held, until it is released.", 0, NULL, NULL},
    {"requeue", 0, NULL, "Queue it again if its node fails.", 0, NULL, NULL},
    {"no-requeue", 0, NULL, "Do not queue it again if its node fails.", 0, NULL, NULL},
    {"nice", 0, "NUMBER", "Lower the priority by this number.", 0, NULL, NULL},
    {"comment", 0, "TEXT", "A comment.", 0, NULL, NULL},
    {"secret", 0, "NAME[:file][=VARIABLE]",
     "Give the job a secret (acequia secret set) in the variable NAME, or as a file whose path is in "
     "NAME_FILE.",
     OPTION_REPEAT, NULL, NULL},
    {"license", 0, "NAME[:SEATS],...", "Seats of licenses that it holds while it runs (acequia license list).", 0,
     NULL, "@license"},
    {"port", 0, "[http:|tcp:]NUMBER|unix:PATH",
     "A port of the program that you reach with acequia open and acequia port-forward; may be given several "
     "times. 0: one that the program is told in ACEQUIA_PORT. unix:PATH: a socket that speaks HTTP; %j in it "
     "is the "
     "job.",
     OPTION_REPEAT, NULL, NULL},
    {"volume", 'v', "NAME:/PATH[:ro]",
     "A volume (acequia volume create) that the job sees at this path, or a folder of its nodes as "
     "/FOLDER:/PATH; may be "
     "given several times.",
     OPTION_REPEAT, "pvc", NULL},
    {"network", 0, "WHICH",
     "Network of its processes: own (nobody else reaches its ports), node (that of the node), or auto: its "
     "own if it "
     "has ports.",
     0, NULL, "auto own node"},
    {"health", 0, "CHECK",
     "How to ask whether the program is ready: /PATH or http:PORT/PATH of its HTTP port, jupyter, or a shell "
     "command. "
     "Its address is served only while it is; one that stays sick is ended as failed, see --retries.",
     0, NULL, NULL},
    {"health-interval", 0, "DURATION", "Time between two checks; a bare number is seconds. Default: 5s.", 0,
     NULL, NULL},
    {"health-failures", 0, "COUNT",
     "Failed checks in a row after which it is sick; after twice as many it is ended. Default: 3.", 0, NULL,
     NULL},
    {"idle", 0, "DURATION",
     "End it when no kernel of its Jupyter server was used for so long; a bare number is seconds. Needs "
     "--health "
     "jupyter.",
     0, NULL, NULL},
    {"tag", 0, "TAG",
     "A tag: a word or key=value; may be given several times. With update, '-' before a tag removes it, '-' "
     "alone all.",
     OPTION_REPEAT, NULL, NULL},
    {"notify", 0, "WHEN",
     "Send a mail or call a webhook at: begin, end, fail, requeue, time_limit_90, time_limit_80, "
     "time_limit_50, all; "
     "array_tasks: for each element of an array.",
     0, NULL, NULL},
    {"notify-to", 0, "ADDRESSES", "Mail addresses and https:// URLs, separated by commas; default: you.", 0,
     NULL, NULL},
    {"signal", 0, "[B:]SIGNAL[@SECONDS]", "Signal sent before the time limit; B: only to the batch script.",
     0, NULL, NULL},
    {"retries", 0, "N", "Run the job again up to N times when its program fails.", 0, NULL, NULL},
    {"backoff", 0, "DURATION", "Pause before it is run again; a bare number is seconds. Default: none.", 0,
     NULL, NULL},
    {"grace", 0, "DURATION", "Time between SIGTERM and SIGKILL; a bare number is seconds.", 0, NULL, NULL},
    {"min-run", 0, "DURATION", "Do not preempt it before it ran this long; a bare number is seconds.", 0,
     NULL, NULL},
    {"checkpoint", 0, "COMMAND", "Command to run in the job before it is preempted.", 0, NULL, NULL},
    {"container", 0, "IMAGE",
     "Run in a container: a root file system, OCI bundle or layout, squashfs file or saved image on the "
     "nodes, or a "
     "registry image docker://HOST/NAME:TAG.",
     0, "container-image", "@file"},
    {"container-mounts", 0, "SRC[:DST[:ro]],...", "Folders and files of the node to mount.", 0, "mounts",
     NULL},
    {"container-name", 0, "NAME",
     "A container that keeps what is written to it: made from the image the first time, and used again by "
     "later jobs on that node.",
     0, NULL, NULL},
    {"pull", 0, "WHEN",
     "When the registry is asked for the image: always, missing (only where there is none) or never. Else a "
     "name is believed to mean the same image for ten minutes.",
     0, NULL, "always missing never"},
    {"container-workdir", 0, "FOLDER", "Working directory in the container; default: as outside.", 0, NULL,
     NULL},
};
const struct option_table job_control_options = OPTION_TABLE("How it is run", control_specs);

// A text option checked by `check`.
static int take_identifier(const struct cli_options *o, const char *option, const char **out, struct error *e) {
    const char *text = option_get(o, option);
    if (!text)
        return 0;
    int r = name_check(option, text, e);
    if (r == 0)
        *out = text;
    return r;
}

// Names joined by commas.
static int take_identifiers(const struct cli_options *o, const char *option, const char **out, struct error *e) {
    const char *text = option_get(o, option), *rest = text;
    char name[IDENTIFIER_MAX + 2];  // one more than is allowed, so that it is seen
    size_t len;
    int r = text && !*text ? name_check(option, text, e) : 0;
    for (const char *at; r == 0 && (at = name_list_next(&rest, &len));) {
        snprintf(name, sizeof name, "%.*s", (int)(len < sizeof name ? len : sizeof name - 1), at);
        r = name_check(option, name, e);
    }
    if (r == 0 && text)
        *out = text;
    return r;
}

static int take_gpus(struct cli *c, const struct cli_options *o, const char *option, uint32_t *milli, struct spec *s) {
    const char *text = option_get(o, option);
    struct gpu_spec g;
    if (!text)
        return 0;
    int r = gpu_spec_parse(text, &g, &c->error);
    if (r < 0) {
        error_prefix(&c->error, "--%s", option);
        return r;
    }
    *milli = g.milli;
    if (g.model[0])
        s->gpu_model = arena_strdup(&c->arena, g.model);
    return 0;
}

// "4" or "2-4"
static int take_nodes(struct cli *c, const struct cli_options *o, struct spec *s) {
    const char *text = option_get(o, "nodes");
    char shown[64], first[16];
    uint32_t low, high;
    if (!text)
        return 0;
    size_t n = strcspn(text, "-");
    if (n >= sizeof first)
        goto bad;
    memcpy(first, text, n);
    first[n] = 0;
    if (parse_u32(first, &low) < 0 || !low || low > NODES_MAX)
        goto bad;
    high = low;
    if (text[n] && (parse_u32(text + n + 1, &high) < 0 || high < low || high > NODES_MAX))
        goto bad;
    s->nodes_min = low;
    s->nodes_max = high;
    return 0;
bad:
    return error_set(&c->error, EINVAL,
                     "--nodes is \"%s\"; give a number such as 4 or a range such as 2-4, at most %d",
                     str_printable(text, shown, sizeof shown), NODES_MAX);
}

static int take_node_lists(struct cli *c, const struct cli_options *o, struct spec *s) {
    static const char *const names[] = {"nodelist", "exclude"};
    const char **outs[] = {&s->nodes, &s->exclude};
    struct name_list list;
    for (int i = 0; i < 2; i++) {
        const char *text = option_get(o, names[i]);
        if (!text)
            continue;
        int r = nodelist_expand(text, &c->arena, &list, &c->error);
        if (r < 0) {
            error_prefix(&c->error, "--%s", names[i]);
            return r;
        }
        *outs[i] = text;
    }
    return 0;
}

static int take_resources(struct cli *c, const struct cli_options *o, struct spec *s) {
    struct error *e = &c->error;
    int r = take_nodes(c, o, s);
    r = r < 0 ? r : option_u32(o, "tasks", 1, TASKS_MAX, &s->tasks, e);
    r = r < 0 ? r : option_u32(o, "tasks-per-node", 1, TASKS_MAX, &s->tasks_per_node, e);
    r = r < 0 ? r : option_u32(o, "cpus", 1, CPUS_MAX, &s->cpus_per_task, e);
    r = r < 0 ? r : option_u32(o, "cpus-per-gpu", 1, CPUS_MAX, &s->cpus_per_gpu, e);
    r = r < 0 ? r : option_u32(o, "tasks-per-gpu", 1, TASKS_MAX, &s->ntasks_per_gpu, e);
    r = r < 0 ? r : option_size(o, "memory", SIZE_M, &s->memory_per_node_bytes, e);
    r = r < 0 ? r : option_size(o, "memory-per-cpu", SIZE_M, &s->memory_per_cpu_bytes, e);
    r = r < 0 ? r : option_size(o, "memory-per-gpu", SIZE_M, &s->memory_per_gpu_bytes, e);
    r = r < 0 ? r : option_size(o, "gpu-memory", SIZE_M, &s->gpu_memory_bytes, e);
    r = r < 0 ? r : take_gpus(c, o, "gpus", &s->gpus_milli, s);
    r = r < 0 ? r : take_gpus(c, o, "gpus-per-node", &s->gpus_per_node_milli, s);
    r = r < 0 ? r : take_gpus(c, o, "gpus-per-task", &s->gpus_per_task_milli, s);
    r = r < 0 ? r : option_duration(o, "time", 60, &s->time_limit_s, e);
    if (s->time_limit_s == DURATION_UNLIMITED)
        s->time_limit_s = DURATION_LIMIT_S;  // 0 would be the partition's default
    r = r < 0 ? r : option_duration(o, "time-min", 60, &s->time_min_s, e);
    r = r < 0 ? r : take_identifier(o, "project", &s->project, e);
    r = r < 0 ? r : take_identifiers(o, "partition", &s->partition, e);
    r = r < 0 ? r : take_identifier(o, "qos", &s->qos, e);
    r = r < 0 ? r : take_identifier(o, "reservation", &s->reservation, e);
    r = r < 0 ? r : take_node_lists(c, o, s);
    if (r < 0)
        return r;
    s->features = option_get(o, "constraint");
    s->class = option_given(o, "interactive") ? CLASS_INTERACTIVE : CLASS_TRAIN;
    s->exclusive = option_given(o, "exclusive");
    s->spread = option_given(o, "spread");
    s->contiguous_topology = option_given(o, "same-socket");
    if (s->time_limit_s == DURATION_UNLIMITED)
        s->time_limit_s = DURATION_LIMIT_S;
    if (option_given(o, "time") && !s->time_limit_s)
        return error_set(e, EINVAL, "--time is \"%s\"; give more than 0, or unlimited", option_get(o, "time"));
    if ((s->gpus_milli != 0) + (s->gpus_per_node_milli != 0) + (s->gpus_per_task_milli != 0) > 1)
        return error_set(e, EINVAL, "give only one of --gpus, --gpus-per-node and --gpus-per-task");
    if ((s->memory_per_node_bytes != 0) + (s->memory_per_cpu_bytes != 0) + (s->memory_per_gpu_bytes != 0) > 1)
        return error_set(e, EINVAL, "give only one of --memory, --memory-per-cpu and --memory-per-gpu");
    return 0;
}

static int take_patterns(struct cli *c, const struct cli_options *o, struct spec *s) {
    static const char *const names[] = {"output", "error"};
    const char **outs[] = {&s->output, &s->error};
    for (int i = 0; i < 2; i++) {
        const char *text = option_get(o, names[i]);
        int r = text ? pattern_check(text, &c->error) : 0;
        if (r < 0) {
            error_prefix(&c->error, "--%s", names[i]);
            return r;
        }
        *outs[i] = text;
    }
    s->input = option_get(o, "input");
    s->append = option_given(o, "append");
    s->truncate = option_given(o, "truncate");
    return 0;
}

static int take_array(struct cli *c, const struct cli_options *o, struct spec *s) {
    struct array_spec array;
    struct dependency dependency;
    const char *text = option_get(o, "array");
    int r = text ? array_parse(text, &c->arena, &array, &c->error) : 0;
    if (r < 0) {
        error_prefix(&c->error, "--array");
        return r;
    }
    if (text) {
        s->array.at = array.at;
        s->array.len = array.len;
        s->array_limit = array.limit;
    }
    s->dependency = option_get(o, "dependency");
    if (s->dependency && streq(s->dependency, "none"))
        s->dependency = "";
    if (str_empty(s->dependency))
        return 0;
    s->dependency = job_resolve_dependency(c, s->dependency);
    r = s->dependency ? dependency_parse(s->dependency, &c->arena, &dependency, &c->error) : -EINVAL;
    if (r < 0)
        error_prefix(&c->error, "--dependency");
    return r;
}

static int take_signal(struct cli *c, const struct cli_options *o, struct spec *s) {
    const char *text = option_get(o, "signal");
    struct signal_spec wish;
    if (!text || streq(text, "none"))
        return 0;
    int r = signal_spec_parse(text, &wish, &c->error);
    if (r < 0) {
        error_prefix(&c->error, "--signal");
        return r;
    }
    s->signal = wish.signal;
    s->signal_before_s = wish.before_s;
    s->signal_batch_only = wish.batch_only;
    return 0;
}

static int take_workdir(struct cli *c, const struct cli_options *o, struct spec *s) {
    const char *text = option_get(o, "chdir");
    cleanup_free char *here = NULL;
    if (!text || *text != '/') {
        here = getcwd(NULL, 0);
        if (!here)
            return error_set(&c->error, errno, "the current folder cannot be found: %s; give --chdir", strerror(errno));
    }
    s->workdir = !text          ? arena_strdup(&c->arena, here)
                 : *text == '/' ? text
                                : arena_printf(&c->arena, "%s/%s", here, text);
    return name_line_check("--chdir", s->workdir, PATTERN_PATH_MAX, &c->error);
}

// Every value of an option that may be given several times.
static struct tag_list all_of(struct cli *c, const struct cli_options *o, const char *option) {
    struct tag_list given = {0};
    uint32_t it = 0, count = 0;
    while (option_next(o, option, &it))
        count++;
    given.at = arena_alloc(&c->arena, (count + 1) * sizeof *given.at);
    it = 0;
    for (const char *text; (text = option_next(o, option, &it));)
        given.at[given.len++] = text;
    return given;
}

static int take_secrets(struct cli *c, const struct cli_options *o, struct spec *s) {
    struct tag_list given = all_of(c, o, "secret");
    s->secrets.at = given.at;
    s->secrets.len = given.len;
    return secret_wishes_check(given.at, given.len, &c->error);
}

static int take_pull(const struct cli_options *o, struct spec *s, struct error *e) {
    const char *text = option_get(o, "pull");
    for (int i = PULL_ALWAYS; text && i < PULL_COUNT; i++)
        if (streq(text, job_pull_words[i])) {
            s->container_pull = (enum job_pull)i;
            return 0;
        }
    char shown[64];
    return text ? error_set(e, EINVAL, "--pull is \"%s\"; expected always, missing or never",
                            str_printable(text, shown, sizeof shown))
                : 0;
}

static int take_volumes(struct cli *c, const struct cli_options *o, struct spec *s) {
    struct tag_list given = all_of(c, o, "volume");
    s->volumes.at = given.at;
    s->volumes.len = given.len;
    return volume_wishes_check(given.at, given.len, &c->error);
}

// A duration that ends; none is 0.
static int take_span(const struct cli_options *o, const char *option, uint32_t *out, struct error *e) {
    if (streq(option_get(o, option), "none"))
        return 0;
    int r = option_duration(o, option, 1, out, e);
    if (r == 0 && option_given(o, option) && *out == DURATION_UNLIMITED)
        return error_set(e, EINVAL, "--%s is \"%.40s\"; give a duration such as 30s or 10m, or none", option,
                         option_get(o, option));
    return r;
}

static int take_ports(struct cli *c, const struct cli_options *o, struct spec *s) {
    struct tag_list given = all_of(c, o, "port");
    const char *network = option_get(o, "network");
    int word = network ? schema_word_find(job_network_words, network) : NETWORK_AUTO;
    s->ports.at = given.at;
    s->ports.len = given.len;
    if (word < 0)
        return error_set(&c->error, EINVAL, "--network is \"%.40s\"; expected auto, own or node", network);
    s->network = (enum job_network)word;
    s->health = option_get(o, "health");
    int r = ports_check(given.at, given.len, &c->error);
    r = r < 0 ? r : take_span(o, "health-interval", &s->health_interval_s, &c->error);
    r = r < 0 ? r : option_u32(o, "health-failures", 1, HEALTH_FAILURES_MAX, &s->health_failures, &c->error);
    return r < 0 ? r : take_span(o, "idle", &s->idle_s, &c->error);
}

static int take_tags(struct cli *c, const struct cli_options *o, struct spec *s) {
    struct tag_list given = all_of(c, o, "tag"), changed;
    int r = tags_change(&(struct tag_list){0}, &given, &c->arena, &changed, &c->error);
    s->tags.at = given.at;
    s->tags.len = given.len;
    return r;
}

int job_workers_parse(const char *option, const char *text, uint32_t *min, uint32_t *max, struct error *e) {
    char shown[64];
    return spec_workers_parse(text, min, max) == 0
               ? 0
               : error_set(e, EINVAL,
                           "%s is \"%s\"; give a number such as 4 or a range such as 2-8, at most %d", option,
                           str_printable(text, shown, sizeof shown), JOB_WORKERS_MAX);
}

static int take_workers(const struct cli_options *o, struct spec *s, struct error *e) {
    const char *workers = option_get(o, "workers"), *end = option_get(o, "on-worker-end"),
               *signal = option_get(o, "worker-signal");
    int r = workers ? job_workers_parse("--workers", workers, &s->workers_min, &s->workers_max, e) : 0;
    if (r < 0)
        return r;
    if (end) {
        int word = schema_word_find(job_worker_end_words, end);
        if (word < 0)
            return error_set(e, EINVAL, "--on-worker-end is \"%.40s\"; expected fail, restart or continue",
                             end);
        s->on_worker_end = (enum worker_end)word;
    }
    return signal ? signal_parse(signal, &s->worker_signal, e) : 0;
}

// A point in time, or none.
static int take_time(const struct cli_options *o, const char *option, int64_t *out, struct error *e) {
    return streq(option_get(o, option), "none") ? 0 : option_time(o, option, out, e);
}

static int take_control(struct cli *c, const struct cli_options *o, struct spec *s) {
    struct error *e = &c->error;
    const char *name = option_get(o, "name");
    int r = name ? job_name_check(name, e) : 0;
    r = r < 0 ? r : take_workdir(c, o, s);
    r = r < 0 ? r : take_patterns(c, o, s);
    r = r < 0 ? r : take_array(c, o, s);
    r = r < 0 ? r : take_signal(c, o, s);
    r = r < 0 ? r : take_tags(c, o, s);
    r = r < 0 ? r : take_secrets(c, o, s);
    r = r < 0 ? r : take_ports(c, o, s);
    r = r < 0 ? r : take_volumes(c, o, s);
    r = r < 0 ? r : take_pull(o, s, e);
    r = r < 0 ? r : take_time(o, "begin", &s->begin_ms, e);
    r = r < 0 ? r : take_time(o, "deadline", &s->deadline_ms, e);
    r = r < 0 ? r : option_i32(o, "nice", -NICE_MAX, NICE_MAX, &s->nice, e);
    r = r < 0 ? r : take_span(o, "grace", &s->grace_s, e);
    r = r < 0 ? r : option_u32(o, "retries", 0, RETRIES_MAX, &s->retries, e);
    r = r < 0 ? r : take_span(o, "backoff", &s->backoff_s, e);
    r = r < 0 ? r : take_span(o, "min-run", &s->min_run_s, e);
    r = r < 0 ? r : take_workers(o, s, e);
    r = r < 0 ? r : job_components(c, o, s);
    if (r < 0)
        return r;
    s->name = name;
    s->comment = option_get(o, "comment");
    s->notify = option_get(o, "notify");
    s->notify_to = option_get(o, "notify-to");
    s->checkpoint = option_get(o, "checkpoint");
    s->container = option_get(o, "container");
    s->container_mounts = option_get(o, "container-mounts");
    s->container_workdir = option_get(o, "container-workdir");
    s->container_name = option_get(o, "container-name");
    s->hold = option_given(o, "hold");
    s->licenses = option_get(o, "license");
    s->cancel_invalid_dependency = option_given(o, "cancel-invalid-dependency");
    s->requeue = option_given(o, "requeue");
    return s->comment ? name_line_check("--comment", s->comment, COMMENT_MAX, e) : 0;
}

// An option given as zero is told from one that was not given.
static void mark_given(const struct cli_options *o, struct spec *s) {
    const struct {
        const char *option;
        const void *member;
    } fields[] = {
        {"memory", &s->memory_per_node_bytes},
        {"memory-per-cpu", &s->memory_per_cpu_bytes},
        {"memory-per-gpu", &s->memory_per_gpu_bytes},
        {"gpus", &s->gpus_milli},
        {"gpus-per-node", &s->gpus_per_node_milli},
        {"gpus-per-task", &s->gpus_per_task_milli},
        {"gpu-memory", &s->gpu_memory_bytes},
        {"time-min", &s->time_min_s},
        {"nice", &s->nice},
        {"grace", &s->grace_s},
        {"min-run", &s->min_run_s},
        {"no-requeue", &s->requeue},
        {"begin", &s->begin_ms},
        {"deadline", &s->deadline_ms},
        {"retries", &s->retries},
        {"backoff", &s->backoff_s},
        {"on-worker-end", &s->on_worker_end},
        {"network", &s->network},
        {"signal", &s->signal},
        {"idle", &s->idle_s},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (option_given(o, fields[i].option))
            schema_give(&spec_schema, s, fields[i].member);
    if (option_given(o, "array"))
        schema_give(&spec_schema, s, &s->array_limit);
}

int job_spec(struct cli *c, const struct cli_options *o, struct spec *out) {
    struct spec s = {0};
    if (option_given(o, "requeue") && option_given(o, "no-requeue"))
        return error_set(&c->error, EINVAL, "give only one of --requeue and --no-requeue");
    int r = take_resources(c, o, &s);
    r = r < 0 ? r : take_control(c, o, &s);
    if (r < 0)
        return r;
    mark_given(o, &s);
    *out = s;
    return 0;
}

void job_umask(struct spec *s) {
    s->umask = (uint32_t)umask(077);
    s->has_umask = true;
    umask((mode_t)s->umask);
}

void job_note_shell(char *const *argv, int argc) {
    if (argc == 1 && strpbrk(argv[0], " |&;<>") && access(argv[0], F_OK) < 0)
        cli_note("\"%.60s\" is used as the name of a program; to run a shell command line use: sh -c '...'", argv[0]);
}
