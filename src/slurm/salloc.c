// salloc: an allocation, and a shell or command here that uses it with srun. sattach: looking on.
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/client/session.h"
#include "het.h"
#include "salloc.h"
#include "step_run.h"
#include "model/name.h"
#include "model/nodelist.h"

struct salloc {
    struct step_run run;  // first: the callback gets this
    struct opts *blocks;  // of options, one for each component
    uint32_t count;
    const struct spec *first;  // what the first block asks for
    slurm_use_fn use;
    void *ctx;
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
    slurm_job_asked(a->run.s, &a->blocks[0], a->first, &told);
    for (uint32_t i = 0; i < told.len; i++) {
        const char *eq = strchr(told.at[i], '=');
        setenv(arena_strndup(&a->run.s->cli.arena, told.at[i], (size_t)(eq - told.at[i])), eq + 1, 1);
    }
    setenv("SLURM_NODE_ALIASES", "(null)", 1);
    if (gethostname(host, sizeof host - 1) == 0)
        setenv("SLURM_SUBMIT_HOST", host, 1);
}

// Members that are no part of the record are left out: the table refuses what it does not know. In an answer "steps" is
// the list of their events, in the record their number.
static bool read_record(struct salloc *a, struct client *k, const char *job, struct job_record *out) {
    struct cli *c = &a->run.s->cli;
    struct reply r;
    if (client_call(k, "GET", arena_printf(&c->arena, "/v1/jobs/%s", job), NULL, &r) < 0 || !r.json)
        return false;
    struct json *plain = arena_memdup(&c->arena, r.json, sizeof *r.json);
    struct json_member *kept = arena_alloc(&c->arena, (r.json->len + 1) * sizeof *kept);
    plain->len = 0;
    for (uint32_t i = 0; i < r.json->len; i++)
        for (size_t n = 0; n < job_record_schema.count; n++)
            if (streq(job_record_schema.fields[n].name, r.json->members[i].key) &&
                !streq(r.json->members[i].key, "steps"))
                kept[plain->len++] = r.json->members[i];
    plain->members = kept;
    return schema_read_json(&job_record_schema, plain, &c->arena, out, &c->error) == 0;
}

// What a job or a component of it has.
struct place_text {
    struct buf nodes, tasks, cpus;
    uint32_t task_count;
};

static void place_text(const struct job_record *r, struct place_text *out) {
    VEC(const char *) names = {0};
    *out = (struct place_text){0};
    for (uint32_t i = 0; i < r->parts.len; i++) {
        vec_push(&names, r->parts.at[i].node);
        out->task_count += r->parts.at[i].tasks;
    }
    fold_parts(r, true, &out->tasks);
    fold_parts(r, false, &out->cpus);
    nodelist_fold(names.at, names.len, &out->nodes);
    vec_done(&names);
}

static void place_text_done(struct place_text *p) {
    buf_done(&p->nodes);
    buf_done(&p->tasks);
    buf_done(&p->cpus);
}

// What a shell in an allocation finds, as far as it is known outside the job.
static void set_environment(struct salloc *a, uint64_t job, const struct job_record *r) {
    struct place_text p;
    char here[4096];
    place_text(r, &p);
    set_number("SLURM_JOB_ID", job);
    set_number("SLURM_JOBID", job);
    setenv("SLURM_JOB_NAME", r->spec->name, 1);
    setenv("SLURM_JOB_NODELIST", buf_str(&p.nodes), 1);
    setenv("SLURM_NODELIST", buf_str(&p.nodes), 1);
    set_number("SLURM_JOB_NUM_NODES", r->parts.len);
    set_number("SLURM_NNODES", r->parts.len);
    set_asked(a);
    setenv("SLURM_TASKS_PER_NODE", buf_str(&p.tasks), 1);
    setenv("SLURM_JOB_CPUS_PER_NODE", buf_str(&p.cpus), 1);
    if (r->spec->partition)
        setenv("SLURM_JOB_PARTITION", r->spec->partition, 1);
    if (r->spec->project)
        setenv("SLURM_JOB_ACCOUNT", r->spec->project, 1);
    if (getcwd(here, sizeof here))
        setenv("SLURM_SUBMIT_DIR", here, 1);
    place_text_done(&p);
}

// Both names that Slurm has for it.
static void set_group(struct salloc *a, const char *name, uint32_t group, const char *value) {
    struct arena *arena = &a->run.s->cli.arena;
    setenv(arena_printf(arena, "SLURM_%s_HET_GROUP_%u", name, group), value, 1);
    setenv(arena_printf(arena, "SLURM_%s_PACK_GROUP_%u", name, group), value, 1);
}

static void set_group_number(struct salloc *a, const char *name, uint32_t group, uint64_t v) {
    if (v)
        set_group(a, name, group, arena_printf(&a->run.s->cli.arena, "%llu", (unsigned long long)v));
}

// One component of several.
static void set_component(struct salloc *a, uint64_t job, uint32_t group, const struct job_record *r) {
    const struct spec *s = r->spec;
    struct place_text p;
    place_text(r, &p);
    set_group_number(a, "JOB_ID", group, group ? r->id : job);
    set_group(a, "JOB_NAME", group, s->name);
    set_group(a, "JOB_NODELIST", group, buf_str(&p.nodes));
    set_group(a, "NODELIST", group, buf_str(&p.nodes));
    set_group(a, "NODE_ALIASES", group, "(null)");
    set_group_number(a, "JOB_NUM_NODES", group, r->parts.len);
    set_group_number(a, "NNODES", group, r->parts.len);
    set_group(a, "JOB_CPUS_PER_NODE", group, buf_str(&p.cpus));
    set_group(a, "TASKS_PER_NODE", group, buf_str(&p.tasks));
    set_group_number(a, "NTASKS", group, p.task_count);
    set_group_number(a, "NPROCS", group, p.task_count);
    set_group_number(a, "NTASKS_PER_NODE", group, s->tasks_per_node);
    set_group_number(a, "CPUS_PER_TASK", group, s->cpus_per_task > 1 ? s->cpus_per_task : 0);
    set_group_number(a, "MEM_PER_NODE", group, s->memory_per_node_bytes >> 20);
    set_group_number(a, "MEM_PER_CPU", group, s->memory_per_cpu_bytes >> 20);
    if (s->partition)
        set_group(a, "JOB_PARTITION", group, s->partition);
    place_text_done(&p);
}

static void set_all(struct salloc *a, struct client *k, uint64_t job) {
    struct arena *arena = &a->run.s->cli.arena;
    struct job_record r;
    for (uint32_t i = 0; i < a->count; i++) {
        const char *id = arena_printf(arena, a->count > 1 ? "%llu+%u" : "%llu", (unsigned long long)job, i);
        if (!read_record(a, k, id, &r))
            return;
        if (!i)
            set_environment(a, job, &r);
        if (a->count > 1)
            set_component(a, job, i, &r);
    }
    if (a->count > 1) {
        set_number("SLURM_HET_SIZE", a->count);
        set_number("SLURM_PACK_SIZE", a->count);
    }
}

static pid_t run_here(struct salloc *a) {
    sigset_t none;
    fflush(stdout);
    fflush(stderr);
    pid_t pid = fork();
    if (pid == 0) {
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        a->run.s->client = NULL;  // the connection is the parent's
        int status = a->use(a->run.s, a->ctx);
        fflush(stdout);
        fflush(stderr);
        _exit(status);
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
    if (run->tells && !run->s->quiet)
        fprintf(stderr, "salloc: Granted job allocation %llu\n", (unsigned long long)job);
    if (client_open(c, &k) == 0) {
        set_all(a, k, job);
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

int slurm_allocation(struct slurm *s, struct opts *blocks, uint32_t count, struct slurm_allocation *how) {
    struct salloc a = {
        .run = {.s = s, .target = "/v1/allocate", .granted = granted, .alone = true, .tells = how->tells},
        .blocks = blocks,
        .count = count,
        .use = how->use,
        .ctx = how->ctx};
    struct spec first, spec;
    struct texts environment;
    cleanup_buf struct buf message = {0}, submit = {0};
    struct json_writer w = {.out = &message};
    int r = slurm_job_spec_from(s, &blocks[0], &spec);
    r = r ? r : slurm_job_export(s, &blocks[0], &spec, &environment);
    if (r || slurm_check_clusters(s))
        return r ? r : SLURM_FAILED;
    if (!spec.name)
        spec.name = how->name;
    spec.launch = LAUNCH_STEPS;
    first = spec;
    if (count > 1 && (r = slurm_het_spec(s, blocks, count, &spec)))
        return r;
    if (how->stays)
        return submit_only(s, &spec, &environment);
    spec.lease_s = STEP_LEASE_S;
    a.run.key = slurm_step_key(s);
    slurm_job_request(&spec, NULL, &environment, false, true, &submit);
    slurm_add_key(&submit, a.run.key);
    json_open(&w, '{');
    json_key(&w, "submit");
    json_put_raw(&w, buf_str(&submit));
    json_close(&w, '}');
    a.first = &first;
    a.run.first = &message;
    a.run.spec = &spec;
    return slurm_step_run(&a.run);
}

static int exec_command(struct slurm *s, void *ctx) {
    const struct opts *o = ctx;
    const char *shell = getenv("SHELL");
    char *shell_argv[] = {arena_strdup(&s->cli.arena, shell ? shell : "/bin/sh"), NULL};
    char **argv = o->argument_count ? o->arguments : shell_argv;
    execvp(argv[0], argv);
    fprintf(stderr, "salloc: error: Unable to find command \"%s\": %s\n", argv[0], strerror(errno));
    return SLURM_FAILED;
}

int salloc_run(struct slurm *s, int argc, char **argv) {
    struct opts *blocks = slurm_het_opts(s, FOR_SALLOC);
    uint32_t count;
    if (!slurm_het_parse(s, argc, argv, blocks, &count))
        return SLURM_USAGE;
    const struct opts *o = &blocks[0], *last = &blocks[count - 1];
    if (slurm_opt_given(o, "version"))
        return slurm_version();
    if (slurm_opt_given(o, "help") || slurm_opt_given(o, "usage")) {
        cleanup_buf struct buf out = {0};
        slurm_opts_help(o, "salloc", "[OPTIONS(0)...] [ : [OPTIONS(N)...]] [command(0) [args(0)...]]", &out);
        return cli_print(&out);
    }
    s->verbose = slurm_opt_given(o, "verbose");
    s->quiet = slurm_opt_given(o, "quiet");
    for (uint32_t i = 0; i < count; i++) {
        slurm_opts_environment(&blocks[i], "SALLOC");
        if (!slurm_opts_check(&blocks[i], s))
            return SLURM_FAILED;
    }
    s->clusters = slurm_opt_get(o, "clusters");
    const char *program = last->argument_count ? last->arguments[0] : NULL;
    struct slurm_allocation how = {.name = program && job_name_check(program, NULL) == 0 ? program
                                                                                         : "interactive",
                                   .stays = slurm_opt_given(o, "no-shell"),
                                   .tells = true,
                                   .use = exec_command,
                                   .ctx = (void *)(uintptr_t)last};
    return slurm_allocation(s, blocks, count, &how);
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
