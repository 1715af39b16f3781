// Owns the way from a program's name to its command, and what all commands share.
#include "context.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/text.h"
#include "cli/client/daemon.h"
#include "cli/term/local_time.h"
#include "job_row.h"

static const struct slurm_command commands[] = {
    {"sbatch", sbatch_run, "submit a batch script"},
    {"srun", srun_run, "run tasks, alone or as a step of a job"},
    {"salloc", salloc_run, "allocate and open a shell"},
    {"squeue", squeue_run, "list jobs that are not finished", .names = true},
    {"sinfo", sinfo_run, "list partitions and nodes"},
    {"scancel", scancel_run, "cancel or signal jobs", .names = true},
    {"scontrol", scontrol_run, "show and change jobs, nodes, partitions", .names = true},
    {"sacct", sacct_run, "list jobs of the past and their use", .names = true},
    {"sprio", sprio_run, "list what orders waiting jobs", .names = true},
    {"sshare", sshare_run, "list shares of projects", .names = true},
    {"sreport", sreport_run, "report use by project and user", .names = true},
    {"sstat", sstat_run, "use of running jobs", .names = true},
    {"sdiag", sdiag_run, "figures of the controller"},
    {"sbcast", sbcast_run, "copy a file to the nodes of a job"},
    {"sattach", sattach_run, "attach to the output of a running job"},
    {"seff", seff_run, "how much of what it asked for a job used", .names = true},
    {"sacctmgr", sacctmgr_run, "list projects, users, QoS and the cluster", .names = true},
};

const struct slurm_command *slurm_commands(size_t *count) {
    *count = sizeof commands / sizeof *commands;
    return commands;
}

const struct slurm_command *slurm_command_find(const char *name) {
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (streq(commands[i].name, name))
            return &commands[i];
    return NULL;
}

// Whether a line of the name service switch names only sources that the files cover.
static bool sources_local(const char *p) {
    static const char *const local[] = {"files", "compat", "systemd"};
    while (*(p += strspn(p, " \t\n"))) {
        size_t n = strcspn(p, " \t\n#"), i = 0;
        if (!n)
            return true;  // a comment
        while (i < 3 && !(strlen(local[i]) == n && strncmp(local[i], p, n) == 0))
            i++;
        if (i == 3)
            return false;
        p += n;
    }
    return true;
}

bool slurm_names_local(FILE *nsswitch) {
    char line[512];
    while (nsswitch && fgets(line, sizeof line, nsswitch)) {
        const char *colon = strchr(line, ':');
        if (colon && (str_has_prefix(line, "passwd:") || str_has_prefix(line, "group:")) && !sources_local(colon + 1))
            return false;
    }
    return true;
}

// A C library that is not the system's reads the files only; acequiad knows the other sources too.
static bool knows_names(void) {
#ifdef __GLIBC__
    return true;
#else
    cleanup_fclose FILE *f = fopen("/etc/nsswitch.conf", "re");
    return slurm_names_local(f);
#endif
}

int slurm_main(const char *name, int argc, char **argv, const struct cli_transport *tls) {
    const struct slurm_command *command = slurm_command_find(name);
    struct slurm s = {.cli = {.tls = tls}, .program = name};
    // Another program may have to do the same over TLS: it is called as "acequia slurm NAME ...".
    char **outer = xcalloc((size_t)argc + 3, sizeof *outer);
    char **own = xcalloc((size_t)argc + 1, sizeof *own);
    outer[0] = xstrdup("acequia");
    outer[1] = xstrdup("slurm");
    outer[2] = own[0] = xstrdup(name);
    for (int i = 1; i < argc; i++)
        outer[i + 2] = own[i] = argv[i];
    s.cli.argc = argc + 2;
    s.cli.argv = outer;
    // Some C libraries write the first line by itself; a reader of one line ("| head -1") would then end the
    // rest with SIGPIPE, and with it a script that looks at the status of pipes.
    if (!isatty(STDOUT_FILENO))
        setvbuf(stdout, NULL, _IOFBF, BUFSIZ);
    int status = SLURM_FAILED;
    if (command->names && !tls && !knows_names() && client_daemon_exec_client(&s.cli, &s.cli.error) < 0)
        slurm_error(&s, "%s", s.cli.error.text);
    else
        status = command->run(&s, argc, own);
    client_free(s.client);
    arena_done(&s.cli.arena);
    free(outer[0]);
    free(outer[1]);
    free(outer[2]);
    free(outer);
    free(own);
    return status;
}

static void message(const char *program, const char *kind, const char *fmt, va_list args) {
    fflush(stdout);
    fprintf(stderr, "%s: %s", program, kind);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
}

void slurm_error(const struct slurm *s, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    message(s->program, "error: ", fmt, args);
    va_end(args);
}

void slurm_fatal(const struct slurm *s, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    message(s->program, "fatal: ", fmt, args);
    va_end(args);
}

void slurm_verbose(const struct slurm *s, const char *fmt, ...) {
    va_list args;
    if (!s->verbose)
        return;
    va_start(args, fmt);
    message(s->program, "", fmt, args);
    va_end(args);
}

int slurm_call_failed(struct slurm *s) {
    bool away = s->cli.error.code == ECONNREFUSED || !s->client;
    slurm_error(s, "%s%s", away ? "Unable to contact slurm controller (connect failure): " : "", s->cli.error.text);
    return SLURM_FAILED;
}

struct client *slurm_client(struct slurm *s) {
    if (!s->client && client_open(&s->cli, &s->client) < 0)
        slurm_call_failed(s);
    return s->client;
}

static int call(struct slurm *s, const char *method, const char *target, const struct buf *body, struct reply *out) {
    struct client *k = slurm_client(s);
    if (!k)
        return SLURM_FAILED;
    return client_call(k, method, target, body, out) == 0 ? 0 : slurm_call_failed(s);
}

int slurm_get(struct slurm *s, const char *target, struct reply *out) {
    return call(s, "GET", target, NULL, out);
}

int slurm_post(struct slurm *s, const char *target, const struct buf *body, struct reply *out) {
    return call(s, "POST", target, body, out);
}

const char *slurm_cluster(struct slurm *s) {
    struct reply r;
    if (slurm_get(s, "/v1/status", &r))
        return NULL;
    const char *name = r.json ? json_str(r.json, "cluster") : NULL;
    return name ? name : "cluster";
}

int slurm_check_clusters(struct slurm *s) {
    if (!s->clusters)
        return 0;
    const char *name = slurm_cluster(s);
    if (!name)
        return SLURM_FAILED;
    if (slurm_same_word(s->clusters, "all") || streq(s->clusters, name)) {
        s->clusters = name;
        return 0;
    }
    slurm_error(s, "No cluster '%s' known by database.", s->clusters);
    slurm_error(s,
                "'%s' can't be reached now, or it is an invalid entry for --cluster.  Use 'sacctmgr list "
                "clusters' to see available clusters.",
                s->clusters);
    return SLURM_FAILED;
}

const char *slurm_time(int64_t at_ms, const char *none, char out[static UNIT_TEXT_MAX]) {
    // The format is the user's, so that no compiler can check it; its result is bounded.
    static size_t (*const as_the_user_says)(char *, size_t, const char *, const struct tm *) = strftime;
    // SLURM_TIME_FORMAT is read for every time: looking it up costs little beside printing one.
    const char *format = getenv("SLURM_TIME_FORMAT");
    time_t at = (time_t)(at_ms / 1000);
    struct tm tm;
    if (at_ms <= 0) {
        snprintf(out, UNIT_TEXT_MAX, "%s", none);
    } else if (str_empty(format) || streq(format, "standard")) {
        local_time_format(at_ms, out);
    } else if (streq(format, "relative")) {
        int64_t now = clock_wall_ms();
        local_time_short(at_ms, now, out);
    } else if (!localtime_r(&at, &tm) || !as_the_user_says(out, UNIT_TEXT_MAX, format, &tm)) {
        local_time_format(at_ms, out);
    }
    return out;
}

const char *slurm_limit(uint64_t seconds, const char *none, char out[static UNIT_TEXT_MAX]) {
    if (!seconds || seconds >= DURATION_LIMIT_S)
        snprintf(out, UNIT_TEXT_MAX, "%s", none);
    else
        duration_elapsed_format((int64_t)seconds, out);
    return out;
}

const char *slurm_megabytes(uint64_t bytes, char out[static UNIT_TEXT_MAX]) {
    uint64_t mb = bytes >> 20;
    if (mb && mb % 1024 == 0 && mb < 1024 * 1024)
        snprintf(out, UNIT_TEXT_MAX, "%lluG", (unsigned long long)(mb / 1024));
    else if (mb && mb % (1024 * 1024) == 0)
        snprintf(out, UNIT_TEXT_MAX, "%lluT", (unsigned long long)(mb / 1024 / 1024));
    else if (bytes && !mb)
        snprintf(out, UNIT_TEXT_MAX, "%lluK", (unsigned long long)(bytes >> 10));
    else
        snprintf(out, UNIT_TEXT_MAX, "%lluM", (unsigned long long)mb);
    return out;
}

int slurm_version(void) {
    // The first words are what scripts look for: the command line spoken here.
    printf("slurm 22.05.8 (acequia %s)\n", ACEQUIA_VERSION);
    return SLURM_OK;
}

bool slurm_same_word(const char *a, const char *b) {
    return a && b && strcasecmp(a, b) == 0;
}
