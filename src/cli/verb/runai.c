// Run:AI's command line: each command becomes one of this program's own; lists have Run:AI's columns (runai_list.c).
// Options that mean nothing here, because a cluster of Kubernetes is not needed, are accepted without an effect; those
// that would have one and have no equal are refused.
#include "runai.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "base/vec.h"
#include "cli/client/client.h"
#include "cli/job/defaults.h"
#include "cli/verb/verb.h"
#include "verbs.h"

// The call of this program that a command becomes.
struct words {
    VEC(char *) at;
};

static void add(struct cli *c, struct words *w, const char *word) {
    vec_push(&w->at, arena_strdup(&c->arena, word));
}

static void add_option(struct cli *c, struct words *w, const char *option, const char *value) {
    if (value) {
        add(c, w, option);
        add(c, w, value);
    }
}

static int call(struct cli *c, struct words *w) {
    vec_push(&w->at, NULL);
    int status = verbs_main((int)w->at.len - 1, w->at.at, c->tls);
    vec_done(&w->at);
    return status;
}

static void begin(struct cli *c, struct words *w, const char *verb) {
    *w = (struct words){0};
    add(c, w, "acequia");
    add(c, w, verb);
}

// --- options ---

enum effect { VALUE, EVERY, FLAG, REFUSED };

// How an option of `runai submit` is said here.
struct equal {
    const char *option;
    enum effect effect;
    const char *ours;  // option; or why it is refused
};

static const struct option_spec submit_specs[] = {
    {"name", 0, "NAME", "Name of the job, also as the first argument.", 0, "job-name-prefix name-prefix",
     NULL},
    {"image", 'i', "IMAGE", "Container image: a name of a registry, or a file or folder of the nodes.", 0,
     NULL, "@file"},
    {"gpu", 'g', "GPUS", "GPUs, or a fraction of one.", 0, "gpus", NULL},
    {"gpu-memory", 0, "SIZE", "GPU memory, instead of a fraction.", 0, NULL, NULL},
    {"cpu", 'c', "COUNT", "CPUs.", 0, NULL, NULL},
    {"memory", 'm', "SIZE", "Memory.", 0, NULL, NULL},
    {"project", 'p', "NAME", "Project; default: that of runai project set.", 0, NULL, "@project"},
    {"interactive", 0, NULL, "Never preempted, only within the project's quota.", 0, NULL, NULL},
    {"command", 0, "COMMAND", "The command, instead of the image's; also after --.", 0, NULL, NULL},
    {"args", 0, "TEXT", "Its arguments; may be given several times.", OPTION_REPEAT, NULL, NULL},
    {"environment", 'e', "NAME=VALUE", "An environment variable; may be given several times.", OPTION_REPEAT,
     NULL, NULL},
    {"volume", 'v', "FOLDER:/PATH[:ro]", "A folder of the nodes; may be given several times.", OPTION_REPEAT,
     NULL, NULL},
    {"pvc", 0, "NAME:/PATH[:ro]", "A volume (acequia volume create); may be given several times.",
     OPTION_REPEAT, "existing-pvc", NULL},
    {"working-dir", 0, "FOLDER", "Working directory in the container.", 0, NULL, NULL},
    {"service-type", 's', "KIND",
     "ingress, portforward, nodeport or loadbalancer: all are acequia open and port-forward.", 0, NULL,
     "ingress portforward nodeport loadbalancer"},
    {"port", 0, "[OUTSIDE:]PORT", "A port of the program; may be given several times.", OPTION_REPEAT, NULL,
     NULL},
    {"backoff-limit", 0, "COUNT", "Run it again when it fails, up to so often.", 0, "backoffLimit", NULL},
    {"node-type", 0, "FEATURE", "A feature that the node must have.", 0, NULL, NULL},
    {"node-pools", 0, "NAMES", "Partition, or several joined by commas.", 0, "node-pool", "@partition"},
    {"attach", 0, NULL, "Print its output until it has ended.", 0, NULL, NULL},
    {"dry-run", 0, NULL, "Only check whether the job would be accepted.", 0, NULL, NULL},
    {"parallelism", 0, "COUNT", "", OPTION_HIDDEN, "completions", NULL},
    {"cpu-limit", 0, "COUNT", "", OPTION_HIDDEN, NULL, NULL},
    {"memory-limit", 0, "SIZE", "", OPTION_HIDDEN, NULL, NULL},
    {"large-shm", 0, NULL, "", OPTION_HIDDEN, "host-ipc", NULL},
    {"shm", 0, NULL, "", OPTION_HIDDEN, NULL, NULL},
    {"local-image", 0, NULL, "Use the image that the node has; do not ask its registry.", 0, NULL, NULL},
    {"always-pull-image", 0, NULL, "Ask the registry whether the image has changed.", 0, NULL, NULL},
    {"image-pull-policy", 0, "WHEN", "The same: Always, IfNotPresent or Never.", 0, NULL,
     "Always IfNotPresent Never"},
    {"run-as-user", 0, NULL, "", OPTION_HIDDEN, "create-home-dir prevent-privilege-escalation", NULL},
    {"preemptible", 0, NULL, "", OPTION_HIDDEN, NULL, NULL},
    {"host-network", 0, NULL, "", OPTION_HIDDEN, NULL, NULL},
    {"stdin", 0, NULL, "", OPTION_HIDDEN, NULL, NULL},
    {"tty", 't', NULL, "", OPTION_HIDDEN, NULL, NULL},
    {"jupyter", 0, NULL, "", OPTION_HIDDEN, NULL, NULL},
    {"annotation", 'a', "TEXT", "", OPTION_HIDDEN | OPTION_REPEAT, NULL, NULL},
    {"label", 'l', "TEXT", "", OPTION_HIDDEN | OPTION_REPEAT, NULL, NULL},
    {"ttl-after-finish", 0, "DURATION", "", OPTION_HIDDEN, NULL, NULL},
};
static const struct option_table submit_table = OPTION_TABLE("Options of runai submit", submit_specs);

static const struct equal equals[] = {
    {"gpu", VALUE, "--gpus"},
    {"gpu-memory", VALUE, "--gpu-memory"},
    {"cpu", VALUE, "--cpus"},
    {"memory", VALUE, "--memory"},
    {"project", VALUE, "--project"},
    {"interactive", FLAG, "--interactive"},
    {"environment", EVERY, "--env"},
    {"volume", EVERY, "--volume"},
    {"pvc", EVERY, "--volume"},
    {"working-dir", VALUE, "--container-workdir"},
    {"backoff-limit", VALUE, "--retries"},
    {"node-type", VALUE, "--constraint"},
    {"node-pools", VALUE, "--partition"},
    {"label", EVERY, "--tag"},
    {"dry-run", FLAG, "--dry-run"},
    {"parallelism", REFUSED, "use acequia submit --array 1-COUNT for several runs of one job"},
    {"host-network", REFUSED, "use acequia submit --network node"},
    {"jupyter", REFUSED, "use acequia notebook"},
    {"stdin", REFUSED, "use acequia run --pty for a job that reads from the terminal"},
    {"tty", REFUSED, "use acequia run --pty for a job with a terminal"},
};

// A name of a registry in the form docker://HOST/NAME; a path as it is.
static const char *image(struct cli *c, const char *name) {
    if (strchr("/.~", *name) || strstr(name, "://"))
        return name;
    const char *slash = strchr(name, '/');
    size_t first = slash ? (size_t)(slash - name) : 0;
    bool host =
        slash && (memchr(name, '.', first) || memchr(name, ':', first) || !strncmp(name, "localhost", first));
    return arena_printf(&c->arena, "docker://%s%s%s", host ? "" : "docker.io/", slash ? "" : "library/",
                        name);
}

// When the registry is asked for the image. Theirs are Kubernetes' words.
static int add_pull(struct cli *c, struct words *w) {
    static const char *const policies[][2] = {
        {"Always", "always"}, {"IfNotPresent", "missing"}, {"Never", "never"}};
    const char *policy = option_get(&c->options, "image-pull-policy");
    bool always = option_given(&c->options, "always-pull-image"),
         local = option_given(&c->options, "local-image");
    if (always + local + (policy != NULL) > 1)
        return cli_usage(c, "give one of --always-pull-image, --local-image and --image-pull-policy");
    if (always || local)
        add_option(c, w, "--pull", always ? "always" : "never");
    if (!policy)
        return CLI_OK;
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++)
        if (strcasecmp(policy, policies[i][0]) == 0) {
            add_option(c, w, "--pull", policies[i][1]);
            return CLI_OK;
        }
    return cli_usage(c, "--image-pull-policy is \"%.40s\"; expected Always, IfNotPresent or Never", policy);
}

static int add_submit_options(struct cli *c, struct words *w) {
    const struct cli_options *o = &c->options;
    for (size_t i = 0; i < sizeof equals / sizeof *equals; i++) {
        const struct equal *e = &equals[i];
        uint32_t it = 0;
        if (!option_given(o, e->option))
            continue;
        if (e->effect == REFUSED)
            return cli_usage(c, "--%s has no equal here: %s", e->option, e->ours);
        if (e->effect == FLAG)
            add(c, w, e->ours);
        else if (e->effect == VALUE)
            add_option(c, w, e->ours, option_get(o, e->option));
        for (const char *value; e->effect == EVERY && (value = option_next(o, e->option, &it));)
            add_option(c, w, e->ours, value);
    }
    uint32_t it = 0;
    for (const char *port; (port = option_next(o, "port", &it));)
        add_option(c, w, "--port", strrchr(port, ':') ? strrchr(port, ':') + 1 : port);
    if (option_get(o, "image"))
        add_option(c, w, "--container", image(c, option_get(o, "image")));
    return add_pull(c, w);
}

// Earlier releases gave --command a value; later ones have the command after --, and --command is a flag.
static int drop_command_flag(int argc, char **argv) {
    int dashes = 0, n = 0;
    while (dashes < argc && !streq(argv[dashes], "--"))
        dashes++;
    for (int i = 0; i < argc; i++)
        if (i > dashes || dashes == argc || !streq(argv[i], "--command"))
            argv[n++] = argv[i];
    return n;
}

// --- commands ---

static int parse(struct cli *c, const struct option_table *const *tables, int argc, char **argv, bool stop) {
    if (options_parse(tables, argc, argv, stop, &c->options, &c->error) < 0)
        return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    c->arguments = c->options.arguments.at;
    c->count = (int)c->options.arguments.len;
    return CLI_OK;
}

static int submit(struct cli *c, int argc, char **argv) {
    static const struct option_table *const tables[] = {&submit_table, &cli_common_options, NULL};
    struct words w;
    argc = drop_command_flag(argc, argv);
    int status = parse(c, tables, argc, argv, false);
    if (status != CLI_OK)
        return status;
    const char *name = option_get(&c->options, "name"), *command = option_get(&c->options, "command");
    bool dashes = argc > c->count && c->count && streq(argv[argc - c->count - 1], "--");
    int from = 0;
    if (!name && c->count && !dashes)
        name = c->arguments[from++];
    begin(c, &w, "submit");
    add_option(c, &w, "--name", name);
    status = add_submit_options(c, &w);
    if (status == CLI_OK && !option_get(&c->options, "image") && !command && from >= c->count)
        status = cli_usage(
            c, "give the job a name and an image, or a command: runai submit NAME -i IMAGE [-- COMMAND]");
    if (status != CLI_OK) {
        vec_done(&w.at);
        return status;
    }
    add(c, &w, "--");
    if (command)
        add(c, &w, command);
    uint32_t it = 0;
    for (const char *text; (text = option_next(&c->options, "args", &it));)
        add(c, &w, text);
    for (; from < c->count; from++)
        add(c, &w, c->arguments[from]);
    status = call(c, &w);
    if (status != CLI_OK || option_given(&c->options, "dry-run"))
        return status;
    const char *project = option_get(&c->options, "project");
    printf("You can run `runai describe job %s%s%s` to check the job status\n", name ? name : "NAME",
           project ? " -p " : "", project ? project : "");
    if (!option_given(&c->options, "attach") || !name)
        return CLI_OK;
    begin(c, &w, "logs");
    add(c, &w, "--follow");
    add(c, &w, name);
    return call(c, &w);
}

static const struct option_spec pick_specs[] = {
    {"project", 'p', "NAME", "Project of the job.", 0, NULL, "@project"},
    {"all-projects", 'A', NULL, "Jobs of all projects.", 0, NULL, NULL},
    {"all", 0, NULL, "All of them.", 0, NULL, NULL},
    {"follow", 'f', NULL, "Keep printing until the job has ended.", 0, NULL, NULL},
    {"tail", 't', "LINES", "Only the last lines.", 0, NULL, NULL},
    {"interactive", 0, NULL, "", OPTION_HIDDEN, NULL, NULL},
    {"stdin", 'i', NULL, "", OPTION_HIDDEN, NULL, NULL},
    {"tty", 0, NULL, "", OPTION_HIDDEN, NULL, NULL},
    {"port", 0, "[LOCAL:]PORT", "Port to forward; may be given several times.", OPTION_REPEAT, NULL, NULL},
};
static const struct option_table pick_table = OPTION_TABLE("Options", pick_specs);
static const struct option_table *const pick_tables[] = {&pick_table, &cli_common_options, NULL};

// The project of -p, or that of `runai project set`.
static const char *project_of(struct cli *c) {
    struct job_defaults d;
    const char *given = option_get(&c->options, "project");
    if (given || option_given(&c->options, "all-projects") || job_defaults_load(c, &d) < 0)
        return given;
    for (uint32_t i = 0; i < d.count; i++)
        if (!d.at[i].template && streq(d.at[i].option, "project"))
            return d.at[i].value;
    return NULL;
}

// "runai describe job NAME" and "runai describe NAME" are the same.
static void skip_kind(struct cli *c) {
    if (c->count > 1 && (streq(c->arguments[0], "job") || streq(c->arguments[0], "jobs"))) {
        c->arguments++;
        c->count--;
    }
}

static int on_job(struct cli *c, int argc, char **argv, const char *verb) {
    struct words w;
    int status = parse(c, pick_tables, argc, argv, false);
    if (status != CLI_OK)
        return status;
    skip_kind(c);
    if (c->count != 1)
        return cli_usage(c, "give the name of one job");
    begin(c, &w, verb);
    add_option(c, &w, "--project", project_of(c));
    if (option_given(&c->options, "follow"))
        add(c, &w, "--follow");
    add_option(c, &w, "--tail", option_get(&c->options, "tail"));
    add(c, &w, c->arguments[0]);
    return call(c, &w);
}

static int describe(struct cli *c, int argc, char **argv) {
    return on_job(c, argc, argv, "get");
}

static int logs(struct cli *c, int argc, char **argv) {
    return on_job(c, argc, argv, "logs");
}

static int bash(struct cli *c, int argc, char **argv) {
    return on_job(c, argc, argv, "bash");
}

static int attach(struct cli *c, int argc, char **argv) {
    return on_job(c, argc, argv, "attach");
}

static int suspend(struct cli *c, int argc, char **argv) {
    return on_job(c, argc, argv, "suspend");
}

static int resume(struct cli *c, int argc, char **argv) {
    return on_job(c, argc, argv, "continue");
}

static int delete (struct cli *c, int argc, char **argv) {
    struct words w;
    int status = parse(c, pick_tables, argc, argv, false);
    if (status != CLI_OK)
        return status;
    skip_kind(c);
    if (!c->count && !option_given(&c->options, "all"))
        return cli_usage(c, "give names of jobs, or --all for all of yours");
    begin(c, &w, "cancel");
    if (!c->count)
        add(c, &w, "--all");
    add_option(c, &w, "--project", project_of(c));
    for (int i = 0; i < c->count; i++)
        add(c, &w, c->arguments[i]);
    return call(c, &w);
}

static int exec_command(struct cli *c, int argc, char **argv) {
    struct words w;
    bool terminal = false;
    // "-it" and "-i -t" come before or after the name, and end where the command begins.
    int from = 0, name = -1;
    const char *project = NULL;
    for (; from < argc; from++) {
        if (streq(argv[from], "--")) {
            from++;
            break;
        }
        if (streq(argv[from], "-it") || streq(argv[from], "-ti") || streq(argv[from], "-t") ||
            streq(argv[from], "--tty"))
            terminal = true;
        else if (streq(argv[from], "-i") || streq(argv[from], "--stdin"))
            continue;
        else if ((streq(argv[from], "-p") || streq(argv[from], "--project")) && from + 1 < argc)
            project = argv[++from];
        else if (argv[from][0] == '-')
            return cli_usage(c, "unknown option %s of runai exec", argv[from]);
        else if (name < 0)
            name = from;
        else
            break;
    }
    if (name < 0 || from >= argc)
        return cli_usage(c, "give a job and a command: runai exec NAME -- COMMAND");
    begin(c, &w, "exec");
    if (terminal)
        add(c, &w, "--pty");
    add_option(c, &w, "--project", project);
    add(c, &w, argv[name]);
    add(c, &w, "--");
    for (; from < argc; from++)
        add(c, &w, argv[from]);
    return call(c, &w);
}

static int list(struct cli *c, int argc, char **argv) {
    struct words w;
    int status = parse(c, pick_tables, argc, argv, false);
    if (status != CLI_OK)
        return status;
    const char *what = c->count ? c->arguments[0] : "jobs";
    if (streq(what, "jobs") || streq(what, "job"))
        return verb_runai_list(c, project_of(c));
    bool projects = streq(what, "projects") || streq(what, "project");
    if (!projects && !streq(what, "nodes") && !streq(what, "node"))
        return cli_usage(c, "runai list shows jobs, projects or nodes, not %s", what);
    begin(c, &w, projects ? "shares" : "nodes");
    return call(c, &w);
}

static int project(struct cli *c, int argc, char **argv) {
    struct words w;
    if (argc == 2 && streq(argv[0], "set")) {
        if (job_defaults_change(c, NULL, "project", argv[1]) < 0)
            return cli_fail(c);
        printf("Project %s has been set as default project\n", argv[1]);
        return CLI_OK;
    }
    if (argc != 1 || !streq(argv[0], "list"))
        return cli_usage(c, "use: runai project set NAME, or runai project list");
    begin(c, &w, "shares");
    return call(c, &w);
}

static int config(struct cli *c, int argc, char **argv) {
    char *words[] = {(char *)"set", argc == 2 ? argv[1] : NULL};
    if (argc == 2 && streq(argv[0], "project"))
        return project(c, 2, words);
    return cli_usage(c, "use: runai config project NAME");
}

static int top(struct cli *c, int argc, char **argv) {
    struct words w;
    int status = parse(c, pick_tables, argc, argv, false);
    if (status != CLI_OK)
        return status;
    bool nodes = c->count && (streq(c->arguments[0], "node") || streq(c->arguments[0], "nodes"));
    if (c->count && !nodes && !streq(c->arguments[0], "job") && !streq(c->arguments[0], "jobs"))
        return cli_usage(c, "runai top shows job or node, not %s", c->arguments[0]);
    begin(c, &w, nodes ? "nodes" : "top");
    if (!nodes)
        add(c, &w, "--once");
    return call(c, &w);
}

static int port_forward(struct cli *c, int argc, char **argv) {
    struct words w;
    int status = parse(c, pick_tables, argc, argv, false);
    if (status != CLI_OK)
        return status;
    skip_kind(c);
    uint32_t it = 0;
    if (c->count != 1 || !option_get(&c->options, "port"))
        return cli_usage(c, "use: runai port-forward NAME --port 8888:8888");
    begin(c, &w, "port-forward");
    add_option(c, &w, "--project", option_get(&c->options, "project"));
    add(c, &w, c->arguments[0]);
    for (const char *port; (port = option_next(&c->options, "port", &it));)
        add(c, &w, port);
    return call(c, &w);
}

static int whoami(struct cli *c, int argc, char **argv) {
    struct words w;
    begin(c, &w, "whoami");
    return call(c, &w);
}

static int version(struct cli *c, int argc, char **argv) {
    printf("Version: runai command line of acequia %s\n", ACEQUIA_VERSION);
    return CLI_OK;
}

static const struct runai_command {
    const char *name, *alias, *arguments, *summary;
    int (*run)(struct cli *c, int argc, char **argv);
} commands[] = {
    {"submit", NULL, "NAME -i IMAGE [-g GPUS] [options] [-- COMMAND]", "submit a job", submit},
    {"list", "ls", "[jobs|projects|nodes] [-p PROJECT | -A]", "list jobs, projects or nodes", list},
    {"describe", "get", "[job] NAME [-p PROJECT]", "show a job", describe},
    {"logs", NULL, "NAME [-f] [--tail LINES]", "print a job's output", logs},
    {"bash", NULL, "NAME", "open a shell in a job", bash},
    {"exec", NULL, "NAME [-it] -- COMMAND", "run a command in a job", exec_command},
    {"attach", NULL, "NAME", "attach to a job", attach},
    {"port-forward", NULL, "NAME --port [LOCAL:]PORT", "reach a port of a job", port_forward},
    {"suspend", NULL, "NAME", "suspend a job", suspend},
    {"resume", NULL, "NAME", "let a suspended job go on", resume},
    {"delete", NULL, "[job] NAME...", "end jobs", delete},
    {"project", NULL, "set NAME | list", "choose the project of later commands", project},
    {"config", NULL, "project NAME", "the same", config},
    {"top", NULL, "[job|node]", "show use", top},
    {"whoami", NULL, "", "show who you are to the cluster", whoami},
    {"version", NULL, "", "show the version", version},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static void help(void) {
    printf("runai: Run:AI's commands, spoken to an Acequia cluster\n\nUsage: runai COMMAND [options]\n\n");
    for (size_t i = 0; i < COMMANDS; i++)
        printf("  %-12s %-48s %s\n", commands[i].name, commands[i].arguments, commands[i].summary);
    printf("\nacequia help runai tells what differs.\n");
}

static const struct runai_command *find(const char *name) {
    for (size_t i = 0; i < COMMANDS; i++)
        if (streq(commands[i].name, name) || streq(commands[i].alias, name))
            return &commands[i];
    return NULL;
}

static int unknown(struct cli *c, const char *name) {
    char shown[64];
    const char *nearest = NULL;
    unsigned best = str_edit_distance_near(name);
    for (size_t i = 0; i < COMMANDS; i++) {
        unsigned d = str_edit_distance(name, commands[i].name);
        if (d < best) {
            best = d;
            nearest = commands[i].name;
        }
    }
    str_printable(name, shown, sizeof shown);
    if (nearest)
        cli_note("unknown command \"%s\"; did you mean \"runai %s\"?", shown, nearest);
    else
        cli_note("unknown command \"%s\"; see runai help", shown);
    return CLI_USAGE;
}

// A cluster on another machine needs another program, which is then called with the same words: found out before
// anything is done.
static int reach(struct cli *c) {
    struct client *k;
    int r = client_open(c, &k);
    if (r == 0)
        client_free(k);
    return r < 0 ? cli_fail(c) : CLI_OK;
}

int verb_runai_main(int argc, char **argv, const struct cli_transport *tls) {
    struct cli c = {.tls = tls, .verb = &verb_runai};
    VEC(char *) outer = {0};
    const char *name = argc > 1 ? argv[1] : "help";
    if (streq(name, "help") || streq(name, "--help") || streq(name, "-h"))
        return help(), argc > 1 ? CLI_OK : CLI_USAGE;
    const struct runai_command *command = find(name);
    if (!command)
        return unknown(&c, name);
    vec_push(&outer, (char *)"acequia");
    vec_push(&outer, (char *)"runai");
    for (int i = 1; i < argc; i++)
        vec_push(&outer, argv[i]);
    c.argc = (int)outer.len;
    vec_push(&outer, NULL);
    c.argv = outer.at;
    bool local = command->run == project || command->run == config || command->run == version;
    int status = local && !(argc > 2 && streq(argv[2], "list")) ? CLI_OK : reach(&c);
    if (status == CLI_OK)
        status = command->run(&c, argc - 2, argv + 2);
    options_done(&c.options);
    arena_done(&c.arena);
    vec_done(&outer);
    return status;
}

static int run(struct cli *c) {
    VEC(char *) words = {0};
    vec_push(&words, (char *)"runai");
    for (int i = 0; i < c->count; i++)
        vec_push(&words, c->arguments[i]);
    int status = verb_runai_main((int)words.len, words.at, c->tls);
    vec_done(&words);
    return status;
}

const struct verb verb_runai = {
    .name = "runai",
    .group = "Cluster",
    .arguments = "COMMAND [arguments...]",
    .summary = "speak Run:AI's command line",
    .text =
        "A link to acequia that is called runai does the same; acequia slurm-commands makes one. Images "
        "without "
        "a host are taken from Docker Hub, as there. Jobs that ended are listed for a day. Accepted without "
        "an "
        "effect, because nothing has to be said here: --large-shm, --shm, --host-ipc, "
        "--run-as-user, --create-home-dir, --preemptible, --service-type, --annotation, "
        "--cpu-limit, --memory-limit, --ttl-after-finish. What would have an effect and has no equal is "
        "refused.",
    .examples = "acequia runai submit hyper1 -i registry.example.org/quickstart -g 1 -p team-a\n"
                "acequia runai list -p team-a\nacequia runai bash hyper1",
    .options = {&submit_table, &cli_common_options},
    .run = run,
    .raw = true,
    .most = -1,
};
