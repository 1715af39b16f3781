// Entry point of the command line: finds the verb, parses its options, runs it.
#include "cli/verb/verb.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/job/resolve.h"
#include "cli/term/terminal.h"
#include "runai.h"
#include "docker.h"
#include "slurm/slurm.h"
#include "texts.h"
#include "verbs.h"

#define ENTRY(name) &verb_##name,
static const struct verb *const table[] = {VERBS(ENTRY)};
#undef ENTRY

const struct verb *const *verbs_all(size_t *count) {
    *count = sizeof table / sizeof *table;
    return table;
}

const struct verb *verb_find(const char *name) {
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (streq(table[i]->name, name) || streq(table[i]->alias, name))
            return table[i];
    return NULL;
}

// What people of other tools would type: word, verb, and so on.
static const char *other_word(const char *name) {
    static const char *const words[] = {
        "ps",         "list",
        "queue",      "list",
        "jobs",       "list",
        "job",        "get",
        "squeue",     "list",
        "history",    "list --finished",
        "sacct",      "list --finished",
        "kill",       "cancel",
        "stop",       "cancel",
        "rm",         "cancel",
        "remove",     "cancel",
        "abort",      "cancel",
        "scancel",    "cancel",
        "describe",   "get",
        "info",       "get",
        "inspect",    "get",
        "sbatch",     "submit",
        "create",     "submit",
        "srun",       "run",
        "start",      "up",
        "shell",      "bash",
        "log",        "logs",
        "tail",       "logs -f",
        "output",     "logs",
        "restart",    "requeue",
        "pause",      "suspend",
        "unhold",     "release",
        "edit",       "update",
        "modify",     "update",
        "node",       "nodes",
        "sinfo",      "nodes",
        "undrain",    "resume",
        "quota",      "shares",
        "usage",      "shares",
        "queues",     "partition list",
        "projects",   "project list",
        "partitions", "partition list",
        "user",       "token",
        "login",      "token",
        "install",    "up",
        "init",       "up",
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i += 2)
        if (streq(words[i], name))
            return words[i + 1];
    return NULL;
}

static int unknown_verb(struct cli *c, const char *name) {
    char shown[64];
    const char *nearest = other_word(name);
    unsigned best = nearest ? 0 : str_edit_distance_near(name);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        unsigned d = str_edit_distance(name, table[i]->name);
        if (table[i]->group && d < best) {
            best = d;
            nearest = table[i]->name;
        }
    }
    str_printable(name, shown, sizeof shown);
    if (nearest)
        cli_note("unknown verb \"%s\"; did you mean \"%s\"?", shown, nearest);
    else
        cli_note("unknown verb \"%s\"; see acequia --help", shown);
    return CLI_USAGE;
}

static int print_help(const struct verb *v) {
    cleanup_buf struct buf out = {0};
    if (v)
        verb_help_verb(v, &out);
    else
        verb_help_overview(&out, terminal_colour());
    return cli_print(&out);
}

static bool asks_for_help(int argc, char **argv, bool stop) {
    for (int i = 0; i < argc && !streq(argv[i], "--") && !(stop && argv[i][0] != '-'); i++)
        if (streq(argv[i], "--help") || streq(argv[i], "-h"))
            return true;
    return false;
}

static int run_verb(struct cli *c, int argc, char **argv) {
    const struct verb *v = c->verb;
    if (v->raw) {
        if (asks_for_help(argc, argv, false))
            return print_help(v);
        c->arguments = argv;
        c->count = argc;
        return v->run(c);
    }
    c->json = false;
    for (int i = 0; i < argc && !streq(argv[i], "--") && !(v->stop && argv[i][0] != '-'); i++)
        c->json = c->json || streq(argv[i], "--json");  // so that errors of parsing are JSON, too
    if (options_parse(v->options, argc, argv, v->stop, &c->options, &c->error) < 0) {
        if (asks_for_help(argc, argv, v->stop))
            return print_help(v);
        struct error e = c->error;
        return cli_usage(c, "%s", e.text);
    }
    if (option_given(&c->options, "help"))
        return print_help(v);
    c->json = option_given(&c->options, "json");
    c->arguments = c->options.arguments.at;
    c->count = (int)c->options.arguments.len;
    if (c->count < v->least)
        return cli_usage(c, "%s needs %s: acequia %s %.*s", v->name,
                         v->least == 1 ? "an argument" : "more arguments", v->name,
                         (int)strcspn(v->arguments, "\n"), v->arguments);
    if (v->most >= 0 && c->count > v->most) {
        char shown[64];
        return cli_usage(c, "%s: unexpected argument \"%s\"", v->name,
                         str_printable(c->arguments[v->most], shown, sizeof shown));
    }
    int status = v->jobs ? job_resolve_arguments(c, v->jobs == VERB_JOB_FIRST ? 1 : c->count, v->live_jobs) : CLI_OK;
    return status == CLI_OK ? v->run(c) : status;
}

// Called under the name of one of Slurm's commands, or as "acequia slurm NAME".
static bool is_slurm(int argc, char **argv, const char **name, int *skip) {
    const char *slash = argc ? strrchr(argv[0], '/') : NULL;
    *name = slash ? slash + 1 : argc ? argv[0] : "";
    *skip = 0;
    if (argc > 2 && streq(argv[1], "slurm")) {
        *name = argv[2];
        *skip = 2;
    }
    return slurm_command_find(*name) != NULL;
}

// Where a standard descriptor is closed, the next file opened would take its place: a connection
// would be read as input, or be written to as output.
static void fill_standard(void) {
    int fd;
    do
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

int verbs_main(int argc, char **argv, const struct cli_transport *tls) {
    fill_standard();
    const char *slurm;
    int skip;
    if (is_slurm(argc, argv, &slurm, &skip))
        return slurm_main(slurm, argc - skip, argv + skip, tls);
    if (argc && streq(slurm, "runai"))  // the program's own name
        return verb_runai_main(argc, argv, tls);
    if (docker_is_name(slurm))
        return docker_main(argc, argv, tls);
    if (streq(slurm, "sudo"))
        return docker_sudo(argc, argv, tls);
    struct cli c = {.argc = argc, .argv = argv, .tls = tls};
    if (argc < 2) {
        print_help(NULL);
        return CLI_USAGE;
    }
    const char *name = argv[1];
    if (streq(name, "--help") || streq(name, "-h"))
        return print_help(NULL);
    if (streq(name, "--version") || streq(name, "-V"))
        name = "version";
    if (*name == '-')
        return cli_note("the verb comes first: acequia VERB [options]; see acequia --help"), CLI_USAGE;
    c.verb = verb_find(name);
    if (!c.verb)
        return unknown_verb(&c, name);
    int status = run_verb(&c, argc - 2, argv + 2);
    options_done(&c.options);
    arena_done(&c.arena);
    return status;
}
