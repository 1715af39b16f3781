// scontrol
#include "scontrol.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "job_row.h"
#include "option.h"

static const struct opt table[] = {
    {"all", 'a', OPT_FLAG, OPT_DOES, "ALL", NULL, 0},
    {"cluster", 'M', OPT_VALUE, OPT_DOES, NULL, NULL, 0},
    {"clusters", 0, OPT_VALUE, OPT_DOES, NULL, NULL, 0},
    {"details", 'd', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"federation", 'F', OPT_FLAG, OPT_HARMLESS, NULL, "there is one cluster", 0},
    {"future", 0, OPT_FLAG, OPT_HARMLESS, NULL, "there are no future nodes", 0},
    {"help", 'h', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"hide", 0, OPT_FLAG, OPT_HARMLESS, NULL, "no partition is hidden", 0},
    {"json", 0, OPT_FLAG, OPT_REFUSED, NULL, "use squeue --json or acequia get --json", 0},
    {"local", 0, OPT_FLAG, OPT_HARMLESS, NULL, "there is one cluster", 0},
    {"oneliner", 'o', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"quiet", 'Q', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"sibling", 0, OPT_FLAG, OPT_HARMLESS, NULL, "there is one cluster", 0},
    {"uid", 'u', OPT_VALUE, OPT_REFUSED, NULL, "commands run as who gives them", 0},
    {"verbose", 'v', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"version", 'V', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
};

static int run_help(struct scontrol *c, int argc, char **argv) {
    printf("scontrol [OPTIONS] COMMAND\n"
           "  show job|node|partition|step|hostnames|hostlist|config|reservation|topology [NAME]\n"
           "  update JobId=... | NodeName=... | PartitionName=... | ReservationName=...\n"
           "  create reservation ...    delete reservation NAME\n"
           "  hold JOBS   uhold JOBS   release JOBS   requeue JOBS   requeuehold JOBS   suspend JOBS   resume JOBS\n"
           "  top JOBS   listpids [JOB[.STEP]]   pidinfo PID\n"
           "  ping   reconfigure   version   wait_job JOB   write batch_script JOB [FILE|-]\n");
    return SLURM_OK;
}

static int run_ping(struct scontrol *c, int argc, char **argv) {
    char host[256] = "localhost";
    struct reply r;
    gethostname(host, sizeof host - 1);
    bool up = client_open(&c->s->cli, &c->s->client) == 0 &&
              client_call(c->s->client, "GET", "/v1/status", NULL, &r) == 0;
    printf("Slurmctld(primary) at %s is %s\n", host, up ? "UP" : "DOWN");
    return up ? SLURM_OK : SLURM_FAILED;
}

static int run_version(struct scontrol *c, int argc, char **argv) {
    return slurm_version();
}

static int run_hold(struct scontrol *c, int argc, char **argv) {
    return scontrol_act(c, "hold", "hold", false, argc, argv);
}
static int run_uhold(struct scontrol *c, int argc, char **argv) {
    return scontrol_act(c, "uhold", "hold", false, argc, argv);
}
static int run_release(struct scontrol *c, int argc, char **argv) {
    return scontrol_act(c, "release", "release", false, argc, argv);
}
static int run_requeue(struct scontrol *c, int argc, char **argv) {
    return scontrol_act(c, "requeue", "requeue", false, argc, argv);
}
static int run_requeuehold(struct scontrol *c, int argc, char **argv) {
    return scontrol_act(c, "requeuehold", "requeue", true, argc, argv);
}
static int run_suspend(struct scontrol *c, int argc, char **argv) {
    return scontrol_act(c, "suspend", "suspend", false, argc, argv);
}
static int run_resume(struct scontrol *c, int argc, char **argv) {
    return scontrol_act(c, "resume", "resume", false, argc, argv);
}

// Settings are read again when the controller is told so by a signal; here the call only proves
// that it is there and that the caller may.
static int run_reconfigure(struct scontrol *c, int argc, char **argv) {
    struct reply r;
    if (slurm_get(c->s, "/v1/status", &r))
        return SLURM_FAILED;
    if (!json_true(r.json, "admin")) {
        fprintf(stderr, "slurm_reconfigure error: Invalid user id\n");
        return SLURM_FAILED;
    }
    slurm_verbose(c->s, "partitions, projects and QoS take effect at once; for the configuration file send "
                        "SIGHUP to the controller");
    return SLURM_OK;
}

// Until its nodes can be used, which is when it runs.
static int run_wait_job(struct scontrol *c, int argc, char **argv) {
    uint32_t id;
    if (parse_u32(argv[1], &id) < 0 || !id) {
        fprintf(stderr, "Invalid job_id %s\n", argv[1]);
        return SLURM_FAILED;
    }
    for (;; sleep(1)) {
        struct reply r;
        if (!slurm_client(c->s))
            return SLURM_FAILED;
        if (client_call(c->s->client, "GET", arena_printf(&c->s->cli.arena, "/v1/jobs/%u", id), NULL, &r) < 0) {
            fprintf(stderr, "scontrol: Problem running job %u\n", id);
            return SLURM_FAILED;
        }
        int state = schema_word_find(job_state_words, json_str(r.json, "state"));
        if (state == JOB_RUNNING || state == JOB_SUSPENDED)
            return SLURM_OK;
        if (state < 0 || job_state_final((enum job_state)state) || state == JOB_COMPLETING) {
            fprintf(stderr, "scontrol: Job %u no longer running\n", id);
            return SLURM_FAILED;
        }
    }
}

static int run_write(struct scontrol *c, int argc, char **argv) {
    struct reply r;
    if (argc < 3 || !slurm_same_word(argv[1], "batch_script")) {
        fprintf(stderr, "invalid write argument:%s\n", argv[1]);
        return SLURM_FAILED;
    }
    if (!slurm_client(c->s))
        return SLURM_FAILED;
    if (client_call(c->s->client, "GET", arena_printf(&c->s->cli.arena, "/v1/jobs/%s/script", argv[2]), NULL, &r) < 0) {
        int code = c->s->cli.error.code;
        fprintf(stderr, "job script retrieval failed: %s\n",
                code == EPERM || code == EACCES ? "Invalid user id" : "Invalid job id specified");
        return SLURM_OK;  // as Slurm does
    }
    const char *path = argc > 3 ? argv[3] : arena_printf(&c->s->cli.arena, "slurm-%s.sh", argv[2]);
    cleanup_fclose FILE *f = streq(path, "-") ? NULL : fopen(path, "we");
    if (!f && !streq(path, "-")) {
        fprintf(stderr, "failed to open file `%s`: %m\n", path);
        return SLURM_FAILED;
    }
    if (fwrite(r.text, 1, r.len, f ? f : stdout) != r.len || fflush(f ? f : stdout))
        return SLURM_FAILED;
    if (f)
        printf("batch script for job %s written to %s\n", argv[2], path);
    return SLURM_OK;
}

static int run_errnumstr(struct scontrol *c, int argc, char **argv) {
    uint32_t number;
    if (parse_u32(argv[1], &number) < 0 || number > 4095)
        return SLURM_FAILED;
    printf("%s\n", strerror((int)number));
    return SLURM_OK;
}

// What only has a meaning inside an interactive scontrol, or would show nothing here.
static int run_nothing(struct scontrol *c, int argc, char **argv) {
    return SLURM_OK;
}

// What Slurm's daemons do and these do otherwise, or not at all.
static int run_refused(struct scontrol *c, int argc, char **argv) {
    static const struct {
        const char *word, *instead;
    } known[] = {{"notify", "write to the job's output or use acequia exec"},
                 {"token", "use acequia token"},
                 {"setdebug", "set the log level in acequia.conf"},
                 {"setdebugflags", "set the log level in acequia.conf"},
                 {"schedloglevel", "every decision is recorded; see acequia why"},
                 {"fsdampeningfactor", "see acequia policy"},
                 {"takeover", "there is one controller"},
                 {"shutdown", "stop the service, or use acequia down"},
                 {"abort", "stop the service, or use acequia down"},
                 {"reboot", "drain the node and reboot it there"},
                 {"cancel_reboot", "nodes are not rebooted from here"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strncasecmp(known[i].word, argv[0], strlen(argv[0])))
            slurm_error(c->s, "%s is not supported: %s", known[i].word, known[i].instead);
    return SLURM_FAILED;
}

static int run_top(struct scontrol *c, int argc, char **argv) {
    return scontrol_top(c, argc - 1, argv + 1);
}

static int run_show(struct scontrol *c, int argc, char **argv) {
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "too %s arguments for keyword:%s\n", argc < 2 ? "few" : "many", argv[0]);
        return SLURM_FAILED;
    }
    return scontrol_show(c, argc - 1, argv + 1);
}
static int run_update(struct scontrol *c, int argc, char **argv) {
    return scontrol_update(c, argc - 1, argv + 1);
}
static int run_create(struct scontrol *c, int argc, char **argv) {
    return scontrol_create(c, argc - 1, argv + 1);
}
static int run_delete(struct scontrol *c, int argc, char **argv) {
    return scontrol_delete(c, argc - 1, argv + 1);
}

static const struct {
    const char *word;
    size_t least;  // letters that suffice
    int (*run)(struct scontrol *c, int argc, char **argv);
    bool needs_argument;
} words[] = {
    {"show", 2, run_show, false},          {"update", 1, run_update, true},
    {"hold", 3, run_hold, true},           {"holdu", 5, run_uhold, true},
    {"uhold", 2, run_uhold, true},          {"release", 3, run_release, true},
    {"requeue", 3, run_requeue, true},     {"requeuehold", 8, run_requeuehold, true},
    {"suspend", 2, run_suspend, true},     {"resume", 3, run_resume, true},
    {"ping", 3, run_ping, false},          {"reconfigure", 3, run_reconfigure, false},
    {"version", 4, run_version, false},    {"wait_job", 2, run_wait_job, true},
    {"write", 2, run_write, true},         {"create", 2, run_create, true},
    {"delete", 1, run_delete, true},       {"help", 2, run_help, false},
    {"errnumstr", 2, run_errnumstr, true}, {"completing", 2, run_nothing, false},
    {"cluster", 2, run_nothing, false},    {"details", 3, run_nothing, false},
    {"oneliner", 1, run_nothing, false},   {"quiet", 4, run_nothing, false},
    {"exit", 1, run_nothing, false},       {"quit", 4, run_nothing, false},
    {"top", 3, run_top, true},             {"notify", 1, run_refused, true},
    {"listpids", 1, scontrol_pids, false}, {"pidinfo", 3, scontrol_pid, true},
    {"token", 3, run_refused, false},      {"takeover", 3, run_refused, false},
    {"setdebug", 3, run_refused, true},    {"setdebugflags", 9, run_refused, true},
    {"schedloglevel", 3, run_refused, true}, {"fsdampeningfactor", 3, run_refused, true},
    {"shutdown", 3, run_refused, false},   {"abort", 1, run_refused, false},
    {"reboot", 3, run_refused, false},     {"cancel_reboot", 3, run_refused, false},
};

int scontrol_run(struct slurm *s, int argc, char **argv) {
    struct opts o;
    slurm_opts_init(&o, table, sizeof table / sizeof *table, 0);
    if (!slurm_opts_parse(&o, s, argc, argv, false))
        return SLURM_FAILED;
    s->verbose = slurm_opt_given(&o, "verbose");
    if (!slurm_opts_check(&o, s))
        return SLURM_FAILED;
    if (slurm_opt_given(&o, "version"))
        return slurm_version();
    struct scontrol c = {.s = s,
                         .one_line = slurm_opt_given(&o, "oneliner"),
                         .details = slurm_opt_given(&o, "details"),
                         .quiet = slurm_opt_given(&o, "quiet")};
    if (slurm_opt_given(&o, "help"))
        return run_help(&c, 0, NULL);
    s->clusters = slurm_opt_get(&o, "cluster") ? slurm_opt_get(&o, "cluster") : slurm_opt_get(&o, "clusters");
    if (slurm_check_clusters(s))
        return SLURM_FAILED;
    if (!o.argument_count) {
        fprintf(stderr, "scontrol: give a command; see scontrol help\n");
        return SLURM_FAILED;
    }
    const char *word = o.arguments[0];
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t len = strlen(word);
        if (len < words[i].least || len > strlen(words[i].word) || strncasecmp(word, words[i].word, len) != 0)
            continue;
        if (words[i].needs_argument && o.argument_count < 2) {
            bool changes = words[i].run == run_update || words[i].run == run_create || words[i].run == run_delete;
            fprintf(stderr, changes ? "too few arguments for %s keyword\n" : "too few arguments for keyword:%s\n",
                    word);
            return SLURM_FAILED;
        }
        return words[i].run(&c, o.argument_count, o.arguments);
    }
    fprintf(stderr, "invalid keyword: %s\n", word);
    return SLURM_FAILED;
}
