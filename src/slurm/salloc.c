// salloc: an allocation, and a shell or command here that uses it with srun. sattach: looking on.
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/client/session.h"
#include "submit_options.h"
#include "step_run.h"
#include "model/name.h"
#include "model/nodelist.h"

struct salloc {
    struct step_run run;  // first: the callback gets this
    struct opts o;
    char **argv;
    int argc;
};

static void set_number(const char *name, uint64_t v) {
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)v);
    setenv(name, text, 1);
}

// "2(x3),1": how Slurm writes a number per node.
static void add_count(struct buf *out, uint32_t *last, uint32_t *run, uint32_t v) {
    if (*run && *last == v) {
        ++*run;
        return;
    }
    if (*run)
        buf_addf(out, *run > 1 ? "%s%u(x%u)" : "%s%u", out->len ? "," : "", *last, *run);
    *last = v;
    *run = 1;
}

static void fold_parts(const struct job_record *r, bool tasks, struct buf *out) {
    uint32_t last = 0, run = 0;
    for (uint32_t i = 0; i < r->parts.len; i++)
        add_count(out, &last, &run, tasks ? r->parts.at[i].tasks : r->parts.at[i].cpus);
    add_count(out, &last, &run, ~last);
}

static void set_asked(struct salloc *a) {
    struct texts told;
    char host[256] = "";
    slurm_job_asked(a->run.s, &a->o, a->run.spec, &told);
    for (uint32_t i = 0; i < told.len; i++) {
        const char *eq = strchr(told.at[i], '=');
        setenv(arena_strndup(&a->run.s->cli.arena, told.at[i], (size_t)(eq - told.at[i])), eq + 1, 1);
    }
    setenv("SLURM_NODE_ALIASES", "(null)", 1);
    if (gethostname(host, sizeof host - 1) == 0)
        setenv("SLURM_SUBMIT_HOST", host, 1);
}

// What a shell in an allocation finds, as far as it is known outside the job.
static void set_environment(struct salloc *a, const struct json *record) {
    struct job_record r;
    struct arena *arena = &a->run.s->cli.arena;
    cleanup_buf struct buf nodes = {0}, tasks = {0}, cpus = {0};
    VEC(const char *) names = {0};
    char here[4096];
    struct json *plain = arena_memdup(arena, record, sizeof *record);
    // Members that are no part of the record are left out: the table refuses what it does not know. In an
    // answer "steps" is the list of their events, in the record their number.
    struct json_member *kept = arena_alloc(arena, (record->len + 1) * sizeof *kept);
    plain->len = 0;
    for (uint32_t i = 0; i < record->len; i++)
        for (size_t k = 0; k < job_record_schema.count; k++)
            if (streq(job_record_schema.fields[k].name, record->members[i].key) &&
                !streq(record->members[i].key, "steps"))
                kept[plain->len++] = record->members[i];
    plain->members = kept;
    if (schema_read_json(&job_record_schema, plain, arena, &r, &a->run.s->cli.error) < 0)
        return;
    for (uint32_t i = 0; i < r.parts.len; i++)
        vec_push(&names, r.parts.at[i].node);
    fold_parts(&r, true, &tasks);
    fold_parts(&r, false, &cpus);
    nodelist_fold(names.at, names.len, &nodes);
    vec_done(&names);
    set_number("SLURM_JOB_ID", r.id);
    set_number("SLURM_JOBID", r.id);
    setenv("SLURM_JOB_NAME", r.spec->name, 1);
    setenv("SLURM_JOB_NODELIST", buf_str(&nodes), 1);
    setenv("SLURM_NODELIST", buf_str(&nodes), 1);
    set_number("SLURM_JOB_NUM_NODES", r.parts.len);
    set_number("SLURM_NNODES", r.parts.len);
    set_asked(a);
    setenv("SLURM_TASKS_PER_NODE", buf_str(&tasks), 1);
    setenv("SLURM_JOB_CPUS_PER_NODE", buf_str(&cpus), 1);
    if (r.spec->partition)
        setenv("SLURM_JOB_PARTITION", r.spec->partition, 1);
    if (r.spec->project)
        setenv("SLURM_JOB_ACCOUNT", r.spec->project, 1);
    if (getcwd(here, sizeof here))
        setenv("SLURM_SUBMIT_DIR", here, 1);
}

static pid_t run_here(struct salloc *a) {
    const char *shell = getenv("SHELL");
    char *shell_argv[] = {arena_strdup(&a->run.s->cli.arena, shell ? shell : "/bin/sh"), NULL};
    char **argv = a->argc ? a->argv : shell_argv;
    sigset_t none;
    pid_t pid = fork();
    if (pid == 0) {
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        execvp(argv[0], argv);
        fprintf(stderr, "salloc: error: Unable to find command \"%s\": %s\n", argv[0], strerror(errno));
        _exit(SLURM_FAILED);
    }
    signal(SIGINT, SIG_IGN);  // Ctrl-C is for what runs in the allocation
    signal(SIGQUIT, SIG_IGN);
    return pid;
}

static pid_t granted(struct step_run *run, uint64_t job) {
    struct salloc *a = (struct salloc *)run;
    struct cli *c = &run->s->cli;
    struct client *k;
    struct reply r;
    if (!run->s->quiet)
        fprintf(stderr, "salloc: Granted job allocation %llu\n", (unsigned long long)job);
    if (client_open(c, &k) == 0) {
        if (client_call(k, "GET", arena_printf(&c->arena, "/v1/jobs/%llu", (unsigned long long)job), NULL,
                        &r) == 0 &&
            r.json)
            set_environment(a, r.json);
        if (client_call(k, "GET", "/v1/status", NULL, &r) == 0 && r.json && json_str(r.json, "cluster"))
            setenv("SLURM_CLUSTER_NAME", json_str(r.json, "cluster"), 1);
        client_free(k);
    }
    return run_here(a);
}

// --no-shell: an allocation that stays; it is a job like any other.
static int submit_only(struct slurm *s, const struct spec *spec, const struct texts *environment) {
    cleanup_buf struct buf body = {0};
    struct reply r;
    slurm_job_request(spec, NULL, environment, false, true, &body);
    if (!slurm_client(s))
        return SLURM_FAILED;
    if (client_call(s->client, "POST", "/v1/jobs", &body, &r) < 0) {
        const char *words = slurm_submit_error_text(s, spec);
        slurm_error(s, "%s%s", slurm_submit_prefix(s), words);
        return SLURM_FAILED;
    }
    if (!s->quiet)
        fprintf(stderr, "salloc: Granted job allocation %lld\n", (long long)json_i64(r.json, "id", 0));
    return SLURM_OK;
}

int salloc_run(struct slurm *s, int argc, char **argv) {
    struct salloc a = {.run = {.s = s, .target = "/v1/allocate", .granted = granted, .alone = true}};
    struct spec spec;
    struct texts environment;
    cleanup_buf struct buf first = {0}, submit = {0};
    struct json_writer w = {.out = &first};
    slurm_opts_init(&a.o, slurm_job_opts, slurm_job_opt_count, FOR_SALLOC);
    if (!slurm_opts_parse(&a.o, s, argc, argv, true))
        return SLURM_USAGE;
    if (slurm_opt_given(&a.o, "version"))
        return slurm_version();
    if (slurm_opt_given(&a.o, "help") || slurm_opt_given(&a.o, "usage")) {
        cleanup_buf struct buf out = {0};
        slurm_opts_help(&a.o, "salloc", "[OPTIONS(0)...] [command(0) [args(0)...]]", &out);
        return cli_print(&out);
    }
    slurm_opts_environment(&a.o, "SALLOC");
    s->verbose = slurm_opt_given(&a.o, "verbose");
    s->quiet = slurm_opt_given(&a.o, "quiet");
    if (!slurm_opts_check(&a.o, s))
        return SLURM_FAILED;
    s->clusters = slurm_opt_get(&a.o, "clusters");
    int r = slurm_job_spec_from(s, &a.o, &spec);
    r = r ? r : slurm_job_export(s, &a.o, &spec, &environment);
    if (r || slurm_check_clusters(s))
        return r ? r : SLURM_FAILED;
    a.argv = a.o.arguments;
    a.argc = a.o.argument_count;
    if (!spec.name)
        spec.name = a.argc && job_name_check(a.argv[0], NULL) == 0 ? a.argv[0] : "interactive";
    spec.launch = LAUNCH_STEPS;
    if (!slurm_opt_given(&a.o, "no-shell"))
        spec.lease_s = STEP_LEASE_S;
    if (slurm_opt_given(&a.o, "no-shell"))
        return submit_only(s, &spec, &environment);
    a.run.key = slurm_step_key(s);
    slurm_job_request(&spec, NULL, &environment, false, true, &submit);
    slurm_add_key(&submit, a.run.key);
    json_open(&w, '{');
    json_key(&w, "submit");
    json_put_raw(&w, buf_str(&submit));
    json_close(&w, '}');
    a.run.first = &first;
    a.run.spec = &spec;
    return slurm_step_run(&a.run);
}

int sattach_run(struct slurm *s, int argc, char **argv) {
    static const struct opt table[] = {
        {"error-filter", 0, OPT_VALUE, OPT_HARMLESS, NULL, "all tasks are shown", 0},
        {"help", 'h', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
        {"input-filter", 0, OPT_VALUE, OPT_HARMLESS, NULL, "input goes to all tasks", 0},
        {"label", 'l', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
        {"layout", 0, OPT_FLAG, OPT_REFUSED, NULL, "use scontrol show step", 0},
        {"output-filter", 0, OPT_VALUE, OPT_HARMLESS, NULL, "all tasks are shown", 0},
        {"pty", 0, OPT_FLAG, OPT_DOES, NULL, NULL, 0},
        {"quiet", 'Q', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
        {"verbose", 'v', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
        {"version", 'V', OPT_FLAG, OPT_DOES, NULL, NULL, 0}};
    struct opts o;
    slurm_opts_init(&o, table, sizeof table / sizeof *table, 0);
    if (!slurm_opts_parse(&o, s, argc, argv, false) || !slurm_opts_check(&o, s))
        return SLURM_FAILED;
    if (slurm_opt_given(&o, "version"))
        return slurm_version();
    if (slurm_opt_given(&o, "help")) {
        cleanup_buf struct buf out = {0};
        slurm_opts_help(&o, "sattach", "[OPTIONS] <jobid.stepid>", &out);
        return cli_print(&out);
    }
    if (o.argument_count != 1) {
        slurm_error(s, "too many parameters");
        printf("Usage: sattach [options] <jobid.stepid>\n");
        return SLURM_FAILED;
    }
    const char *id = arena_strndup(&s->cli.arena, o.arguments[0], strcspn(o.arguments[0], "."));
    struct reply r;
    if (slurm_get(s, arena_printf(&s->cli.arena, "/v1/jobs/%s", id), &r))
        return SLURM_FAILED;
    const struct json *spec = json_get(r.json, "spec");
    if (spec && json_true(spec, "attach")) {
        struct client_session live = {.cli = &s->cli,
                                      .target =
                                          arena_printf(&s->cli.arena, "/v1/jobs/%s/attach?placed=1", id),
                                      .input = true,
                                      .pty = slurm_opt_given(&o, "pty"),
                                      .kind = SESSION_ATTACH};
        return client_session_run(&live);
    }
    const char *dot = strchr(o.arguments[0], '.');
    uint32_t number;
    if (!dot || parse_u32(dot + 1, &number) < 0) {
        slurm_error(
            s, "%s is no step such as %s.0; the output of a batch script is in its file: acequia logs -f %s",
            o.arguments[0], id, id);
        return SLURM_FAILED;
    }
    cleanup_buf struct buf first = {0};
    buf_addf(&first, "{\"attach\":%u}", number);
    struct step_run run = {.s = s,
                           .target = arena_printf(&s->cli.arena, "/v1/jobs/%s/step", id),
                           .first = &first,
                           .label = slurm_opt_given(&o, "label"),
                           .input = true,
                           .out_fd = STDOUT_FILENO,
                           .err_fd = STDERR_FILENO,
                           .tasks = 1,
                           .attached = true};
    parse_u64(id, &run.job);
    return slurm_step_run(&run);
}
