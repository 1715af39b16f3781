// srun: alone it asks for an allocation and runs its tasks there; inside a job it is a step.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "cli/client/session.h"
#include "test_only.h"
#include "submit_options.h"
#include "job_row.h"
#include "mpi_program.h"
#include "multi_prog.h"
#include "srun.h"
#include "step_hooks.h"
#include "step_run.h"
#include "model/name.h"
#include "model/nodelist.h"

struct srun {
    struct slurm *s;
    struct opts o;
    const char *job;  // inside which; NULL: alone
    char **argv;
    int argc;
    struct spec spec;
    const char *name, *output, *error;  // patterns of files that are written on the nodes; NULL: none
    bool pty;
    const char *key;      // of the request, so that it can be repeated
    bool asks_gpus;       // the command line says how many, not the job
    const struct srun_place *place;  // in a job with several components; else NULL
    const char *mpi;                 // what its tasks find each other by, in the API's words; NULL: nothing
    uint32_t step_tasks;  // with --overcommit more than the job is given CPUs for; 0: as in the spec
};

// Variables that srun reads have names of their own, and some of them are set in every job.
static void read_environment(struct srun *r) {
    static const struct {
        const char *variable, *option;
        bool alone_only;
    } names[] = {
        {"SLURM_NTASKS", "ntasks", false},
        {"SLURM_NPROCS", "ntasks", false},
        {"SLURM_NNODES", "nodes", false},
        {"SRUN_CPUS_PER_TASK", "cpus-per-task", false},
        {"SLURM_NTASKS_PER_NODE", "ntasks-per-node", false},
        {"SLURM_LABELIO", "label", false},
        {"SLURM_UNBUFFEREDIO", "unbuffered", false},
        {"SLURM_KILL_BAD_EXIT", "kill-on-bad-exit", false},
        {"SLURM_OVERLAP", "overlap", false},
        {"SLURM_EXACT", "exact", false},
        {"SLURM_WHOLE", "whole", false},
        {"SLURM_EXCLUSIVE", "exclusive", false},
        {"SLURM_OPEN_MODE", "open-mode", false},
        {"SLURM_STDOUTMODE", "output", false},
        {"SLURM_STDERRMODE", "error", false},
        {"SLURM_STDINMODE", "input", false},
        {"SLURM_EXPORT_ENV", "export", false},
        {"SLURM_MPI_TYPE", "mpi", false},
        {"SLURM_MULTI_PROG", "multi-prog", false},
        {"SLURM_IMMEDIATE", "immediate", false},
        {"SLURM_WORKING_DIR", "chdir", false},
        {"SLURM_DEBUG", "verbose", false},
        {"SLURM_OVERCOMMIT", "overcommit", false},
        {"SLURM_ACCOUNT", "account", true},
        {"SLURM_PARTITION", "partition", true},
        {"SLURM_QOS", "qos", true},
        {"SLURM_RESERVATION", "reservation", true},
        {"SLURM_TIMELIMIT", "time", true},
        {"SLURM_CONSTRAINT", "constraint", true},
        {"SLURM_GRES", "gres", true},
        {"SLURM_GPUS", "gpus", true},
        {"SLURM_GPUS_PER_NODE", "gpus-per-node", true},
        {"SLURM_GPUS_PER_TASK", "gpus-per-task", false},
        {"SLURM_GPU_BIND", "gpu-bind", false},
        {"SLURM_JOB_NAME", "job-name", true},
        {"SLURM_WAIT", "wait", false},
        {"SLURM_THREADS", "threads", false},
        {"SLURM_NTASKS_PER_GPU", "ntasks-per-gpu", true},
        {"SLURM_DISTRIBUTION", "distribution", false},
        {"SLURM_CPU_BIND", "cpu-bind", false},
        {"SLURM_TEST_ONLY", "test-only", true},
        {"SLURM_NO_KILL", "no-kill", true},
        {"SLURM_HINT", "hint", false},
        {"SLURM_CPUS_PER_GPU", "cpus-per-gpu", true},
        {"SLURM_MEM_PER_GPU", "mem-per-gpu", true},
        {"SLURM_SIGNAL", "signal", true},
        {"SLURM_MEM_PER_NODE", "mem", true},
        {"SLURM_MEM_PER_CPU", "mem-per-cpu", true},
        {"SLURM_DEPENDENCY", "dependency", true},
        {"SLURM_BCAST", "bcast", false},
        {"SLURM_PROLOG", "prolog", false},
        {"SLURM_EPILOG", "epilog", false},
        {"SLURM_TASK_PROLOG", "task-prolog", false},
        {"SLURM_TASK_EPILOG", "task-epilog", false},
    };
    struct opts *o = &r->o;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *v = getenv(names[i].variable);
        if (!v || (names[i].alone_only && r->job))
            continue;
        if (r->asks_gpus && streq(names[i].option, "gpus-per-task"))
            continue;  // the step's own number of GPUs replaces the job's
        for (uint32_t k = 0; k < o->count; k++)
            if (streq(o->table[k].name, names[i].option) &&
                (!o->table[k].programs || o->table[k].programs & FOR_SRUN) && !o->given[k]) {
                o->given[k] = o->table[k].value != OPT_FLAG || !streq(v, "0");
                o->value[k] = o->table[k].value == OPT_FLAG ? NULL : v;
            }
    }
}

// A file that every task or node has for itself is written there, and so is one that is named after
// a job which is not there yet; others are written here.
static bool on_nodes(const struct srun *r, const char *pattern) {
    for (const char *p = pattern; p && *p; p++) {
        if (*p != '%')
            continue;
        p++;
        p += strspn(p, "0123456789");
        if (!*p)
            return false;
        if (strchr(r->job ? "tnNsJ" : "tnNsJjAa", *p))
            return true;
    }
    return false;
}

static bool is_number(const char *text) {
    return text && *text && strspn(text, "0123456789") == strlen(text);
}

// Where this side writes output; patterns know the job only.
static int open_output(struct srun *r, const char *pattern, int otherwise, int *fd, const char **only) {
    *fd = otherwise;
    if (!pattern || slurm_same_word(pattern, "all") || on_nodes(r, pattern))
        return 0;
    if (is_number(pattern)) {
        *only = pattern;
        return 0;
    }
    if (slurm_same_word(pattern, "none")) {
        *fd = -1;
        return 0;
    }
    cleanup_buf struct buf path = {0};
    const char *id = getenv("SLURM_JOB_ID"), *array = getenv("SLURM_ARRAY_JOB_ID"),
               *index = getenv("SLURM_ARRAY_TASK_ID"), *name = getenv("SLURM_JOB_NAME");
    for (const char *p = pattern; *p; p++) {
        const char *v = NULL;
        if (*p == '%')
            v = p[1] == 'j' || p[1] == 'J' ? (r->job ? r->job : id)
                : p[1] == 'A'              ? (array ? array : id)
                : p[1] == 'a'              ? index
                : p[1] == 'x'              ? (r->job ? name : r->name)
                : p[1] == 'u'              ? slurm_own_name(&r->s->cli.arena)
                : p[1] == '%'              ? "%"
                                           : NULL;
        if (v) {
            buf_adds(&path, v);
            p++;
        } else {
            buf_addc(&path, *p);
        }
    }
    int mode = r->spec.append ? O_APPEND : O_TRUNC;
    *fd = open(buf_str(&path), O_WRONLY | O_CREAT | O_CLOEXEC | mode, 0666);
    if (*fd >= 0)
        return 0;
    slurm_error(r->s, "Could not open %s file: %s", otherwise == STDOUT_FILENO ? "stdout" : "stderr", strerror(errno));
    return SLURM_FAILED;
}

// A file that all tasks read is read here. True: whatever standard input is then is sent on.
static int open_input(struct srun *r, const char *input, bool *forward) {
    *forward = !input || slurm_same_word(input, "all") || is_number(input);
    if (*forward || slurm_same_word(input, "none") || on_nodes(r, input))
        return 0;
    cleanup_close int fd = open(input, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || dup2(fd, STDIN_FILENO) < 0) {
        slurm_error(r->s, "Could not open stdin file: %s", strerror(errno));
        return SLURM_FAILED;
    }
    *forward = true;
    return 0;
}

static void put_number(struct json_writer *w, const char *key, uint64_t v) {
    if (v)
        json_kv_i64(w, key, (int64_t)v);
}

// What each node, task or step is told anew; it must not travel from the node where srun runs.
static bool of_the_place(const char *entry) {
    static const char *const names[] = {"SLURM_STEP",
                                        "SLURM_PROCID=",
                                        "SLURM_LOCALID=",
                                        "SLURM_NODEID=",
                                        "SLURM_GTIDS=",
                                        "SLURMD_NODENAME=",
                                        "SLURM_TOPOLOGY_ADDR=",
                                        "SLURM_CPUS_ON_NODE=",
                                        "SLURM_GPUS_ON_NODE=",
                                        "SLURM_JOB_GPUS=",
                                        "SLURM_TASK_PID=",
                                        "SLURM_LAUNCH_NODE_IPADDR=",
                                        "SLURM_SRUN_COMM_HOST=",
                                        "CUDA_VISIBLE_DEVICES=",
                                        "NVIDIA_VISIBLE_DEVICES=",
                                        "ACEQUIA_NODE",
                                        "ACEQUIA_PROCID=",
                                        "ACEQUIA_LOCALID=",
                                        "ACEQUIA_STEP",
                                        "ACEQUIA_GPU",
                                        "ACEQUIA_JOB_GPUS=",
                                        "ACEQUIA_CPUS_ON_NODE="};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (str_has_prefix(entry, names[i]))
            return true;
    return false;
}

// Many programs take the machine where srun runs for the one where rank 0 listens.
static void put_launch_node(struct srun *r, struct json_writer *w) {
    static const char *const names[] = {"SLURM_LAUNCH_NODE_IPADDR", "SLURM_SRUN_COMM_HOST"};
    char address[CLIENT_ADDRESS_MAX];
    struct client *k = slurm_client(r->s);
    if (!k)
        return;
    client_own_address(k, address);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        json_put_str(w, arena_printf(&r->s->cli.arena, "%s=%s", names[i], address));
}

static int write_step(struct srun *r, struct json_writer *w) {
    const struct opts *o = &r->o;
    const struct spec *p = &r->spec;
    struct texts environment;
    const char *input = slurm_opt_get(o, "input");
    uint32_t number = 0;
    bool exclusive = slurm_opt_given(o, "exclusive") && !slurm_opt_get(o, "exclusive");
    if (slurm_job_export(r->s, o, NULL, &environment))
        return SLURM_FAILED;
    json_open(w, '{');
    json_open_key(w, "argv", '[');
    for (int i = 0; i < r->argc; i++)
        json_put_str(w, r->argv[i]);
    json_close(w, ']');
    json_open_key(w, "environment", '[');
    for (uint32_t i = 0; i < environment.len; i++)
        // Without a job around it, variables of an outer one would be wrong in the job that srun makes.
        if (!of_the_place(environment.at[i]) && (r->job || !str_has_prefix(environment.at[i], "SLURM_JOB")))
            json_put_str(w, environment.at[i]);
    put_launch_node(r, w);
    json_close(w, ']');
    if (r->key)
        json_kv_str(w, "key", r->key);
    json_kv_str(w, "name", r->name);
    json_kv_str(w, "workdir", p->workdir);
    if (p->container)
        json_kv_str(w, "container", p->container);
    if (p->container_mounts)
        json_kv_str(w, "container_mounts", p->container_mounts);
    if (p->container_name)
        json_kv_str(w, "container_name", p->container_name);
    if (p->container_workdir)
        json_kv_str(w, "container_workdir", p->container_workdir);
    if (p->has_umask)
        json_kv_i64(w, "umask", p->umask);
    put_number(w, "tasks", r->step_tasks ? r->step_tasks : p->tasks);
    put_number(w, "nodes", r->job ? p->nodes_min : 0);
    put_number(w, "tasks_per_node", p->tasks_per_node);
    put_number(w, "cpus_per_task", p->cpus_per_task);
    if (r->job) {
        put_number(w, "memory_per_node_bytes", p->memory_per_node_bytes);
        put_number(w, "memory_per_cpu_bytes", p->memory_per_cpu_bytes);
        put_number(w, "gpus_milli", p->gpus_milli);
        put_number(w, "gpus_per_node_milli", p->gpus_per_node_milli);
        if (p->nodes)
            json_kv_str(w, "nodelist", p->nodes);
        if (p->exclude)
            json_kv_str(w, "exclude", p->exclude);
        // Slurm's rule: a step that says what each task needs gets just that, others the whole job.
        json_kv_bool(w, "exact",
                     (slurm_opt_given(o, "exact") || exclusive || p->cpus_per_task || r->asks_gpus) &&
                         !slurm_opt_given(o, "whole"));
        json_kv_bool(w, "overlap", slurm_opt_given(o, "overlap"));
        put_number(w, "time_limit_s", p->time_limit_s < DURATION_LIMIT_S ? p->time_limit_s : 0);
    }
    put_number(w, "gpus_per_task_milli", p->gpus_per_task_milli);
    if (slurm_opt_get(o, "gpu-bind"))
        json_kv_str(w, "gpu_bind", slurm_opt_get(o, "gpu-bind"));
    if (slurm_opt_get(o, "distribution"))
        json_kv_str(w, "distribution", slurm_opt_get(o, "distribution"));
    if (r->mpi)
        json_kv_str(w, "mpi", r->mpi);
    if (slurm_opt_get(o, "cpu-bind"))
        json_kv_str(w, "cpu_bind", slurm_opt_get(o, "cpu-bind"));
    json_kv_bool(w, "kill_on_bad_exit",
                 slurm_opt_given(o, "kill-on-bad-exit") && !streq(slurm_opt_get(o, "kill-on-bad-exit"), "0"));
    if (slurm_opt_get(o, "wait") && parse_u32(slurm_opt_get(o, "wait"), &number) == 0)
        put_number(w, "wait_s", number);
    json_kv_bool(w, "overcommit", slurm_opt_given(o, "overcommit"));
    json_kv_bool(w, "immediate", slurm_opt_given(o, "immediate"));
    json_kv_bool(w, "append", p->append);
    if (r->output)
        json_kv_str(w, "output", r->output);
    if (r->error)
        json_kv_str(w, "error", r->error);
    if (slurm_same_word(input, "none"))
        json_kv_str(w, "input", "/dev/null");
    else if (is_number(input) && parse_u32(input, &number) == 0)
        // 0 stands for all tasks.
        json_kv_i64(w, "input_rank", (int64_t)number + 1);
    else if (input && on_nodes(r, input))
        json_kv_str(w, "input", input);
    if (r->pty) {
        json_kv_bool(w, "pty", true);
        client_session_json_terminal(w);
    }
    json_close(w, '}');
    return 0;
}

static int run_tasks(struct srun *r) {
    const struct opts *o = &r->o;
    r->key = slurm_step_key(r->s);
    cleanup_buf struct buf first = {0}, target = {0};
    struct json_writer w = {.out = &first};
    uint32_t wait_s = 0;
    struct step_run run = {.s = r->s,
                           .first = &first,
                           .label = slurm_opt_given(o, "label"),
                           .pty = r->pty,
                           .alone = !r->job,
                           .spec = &r->spec,
                           .argv0 = r->argv[0],
                           .tasks = r->step_tasks   ? r->step_tasks
                                    : r->spec.tasks ? r->spec.tasks
                                                    : 1,
                           .kill_on_bad_exit = slurm_opt_given(o, "kill-on-bad-exit") &&
                                               !streq(slurm_opt_get(o, "kill-on-bad-exit"), "0"),
                           .quit_on_interrupt = slurm_opt_given(o, "quit-on-interrupt")};
    if (slurm_opt_get(o, "wait") && parse_u32(slurm_opt_get(o, "wait"), &wait_s) == 0)
        run.wait_s = wait_s;
    int status = open_output(r, slurm_opt_get(o, "output"), STDOUT_FILENO, &run.out_fd, &run.only_output);
    status = status ? status
                    : open_output(r, slurm_opt_get(o, "error"),
                                  slurm_opt_get(o, "output") && !on_nodes(r, slurm_opt_get(o, "output"))
                                      ? run.out_fd
                                      : STDERR_FILENO,
                                  &run.err_fd, &run.only_error);
    status = status ? status : open_input(r, slurm_opt_get(o, "input"), &run.input);
    if (status)
        return status;
    if (r->job) {
        buf_addf(&target, "/v1/jobs/%s/step", r->job);
        if (write_step(r, &w))
            return SLURM_FAILED;
        parse_u64(arena_strndup(&r->s->cli.arena, r->job, strcspn(r->job, "+")), &run.job);
    } else {
        struct texts environment;
        slurm_job_export(r->s, o, &r->spec, &environment);
        buf_adds(&target, "/v1/allocate");
        json_open(&w, '{');
        json_key(&w, "submit");
        cleanup_buf struct buf submit = {0};
        slurm_job_request(&r->spec, NULL, &environment, false, true, &submit);
        slurm_add_key(&submit, r->key);
        json_put_raw(&w, buf_str(&submit));
        json_key(&w, "step");
        if (write_step(r, &w))
            return SLURM_FAILED;
        json_close(&w, '}');
    }
    run.key = r->key;
    run.step_depth = r->job ? 1 : 2;
    run.target = buf_str(&target);
    return slurm_step_run(&run);
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

// --relative: nodes of the job counted from its first.
static int take_relative(struct srun *r) {
    struct name_list names;
    uint32_t first;
    const char *text = slurm_opt_get(&r->o, "relative"), *list = getenv("SLURM_JOB_NODELIST");
    if (!text)
        return 0;
    uint32_t n = r->spec.nodes_min ? r->spec.nodes_min : 1;
    if (parse_u32(text, &first) < 0) {
        slurm_error(r->s, "Invalid numeric value \"%s\" for --relative.", text);
        return SLURM_FAILED;
    }
    names.len = 0;
    if (list && nodelist_expand(list, &r->s->cli.arena, &names, NULL) < 0)
        names.len = 0;
    if (first + n > (names.len ? names.len : 1)) {
        slurm_error(
            r->s,
            "--relative and SLURM_JOB_NUM_NODES option incompatible with count of allocated nodes (%u+%u>%u)",
            first, n, names.len ? names.len : 1);
        return SLURM_FAILED;
    }
    if (!names.len)
        return 0;
    cleanup_buf struct buf b = {0};
    for (uint32_t i = first; i < first + n; i++)
        buf_addf(&b, "%s%s", b.len ? "," : "", names.at[i]);
    r->spec.nodes = arena_strdup(&r->s->cli.arena, buf_str(&b));
    r->spec.nodes_min = r->spec.nodes_max = n;
    return 0;
}

// --exclude in a job: the step runs on what is left of its nodes.
static int take_exclude(struct srun *r) {
    struct name_list names, except;
    struct arena *a = &r->s->cli.arena;
    const char *list = getenv("SLURM_JOB_NODELIST");
    uint32_t left = 0;
    if (!r->spec.exclude || str_empty(list) || nodelist_expand(list, a, &names, NULL) < 0 ||
        nodelist_expand(r->spec.exclude, a, &except, NULL) < 0)
        return 0;
    for (uint32_t i = 0; i < names.len; i++) {
        bool out = false;
        for (uint32_t k = 0; k < except.len && !out; k++)
            out = streq(names.at[i], except.at[k]);
        left += !out;
    }
    if (!left || (slurm_opt_given(&r->o, "nodes") && r->spec.nodes_min > left && !getenv("SLURM_NNODES"))) {
        slurm_error(r->s, "Unable to create step for job %s: Requested node configuration is not available", r->job);
        return SLURM_FAILED;
    }
    if (r->spec.nodes_min > left)
        r->spec.nodes_min = r->spec.nodes_max = left;
    return 0;
}

// Inside a job its own numbers of tasks and nodes stand for what the step does not ask for. Where they
// do not go together, the number of tasks holds, as in Slurm.
static void reconcile_counts(struct srun *r) {
    struct spec *p = &r->spec;
    if (p->tasks && p->nodes_min > p->tasks) {
        fprintf(stderr, "srun: Warning: can't run %u processes on %u nodes, setting nnodes to %u\n", p->tasks,
                p->nodes_min, p->tasks);
        p->nodes_min = p->nodes_max = p->tasks;
    }
    uint32_t nodes = p->nodes_min ? p->nodes_min : 1;
    if (p->tasks && p->tasks_per_node && p->tasks != nodes && p->tasks != (uint64_t)nodes * p->tasks_per_node) {
        fprintf(stderr,
                "srun: Warning: can't honor --ntasks-per-node set to %u which doesn't match the requested tasks %u "
                "with the number of requested nodes %u. Ignoring --ntasks-per-node.\n",
                p->tasks_per_node, p->tasks, nodes);
        p->tasks_per_node = 0;
    }
}

// A step in several components is one step of each: its tasks and nodes are numbered over all of them. Lists are
// arguments of the shell, so that nothing in them is taken for a command.
static const char *renumber(struct arena *a, const struct srun_place *p) {
    const char *tasks =
        arena_printf(a,
                     "export SLURM_PROCID=$((SLURM_PROCID+%u)) SLURM_NTASKS=%u SLURM_NPROCS=%u "
                     "SLURM_STEP_NUM_TASKS=%u;",
                     p->first_task, p->tasks, p->tasks, p->tasks);
    const char *nodes =
        p->nodes
            ? arena_printf(a,
                           " export SLURM_NODEID=$((SLURM_NODEID+%u)) SLURM_JOB_NUM_NODES=%u "
                           "SLURM_NNODES=%u SLURM_STEP_NUM_NODES=%u SLURM_JOB_NODELIST=\"$1\" "
                           "SLURM_NODELIST=\"$1\" SLURM_STEP_NODELIST=\"$1\" SLURM_JOB_CPUS_PER_NODE=\"$2\";",
                           p->first_node, p->node_count, p->node_count, p->node_count)
            : "";
    const char *spread =
        p->tasks_per_node ? " export SLURM_TASKS_PER_NODE=\"$3\" SLURM_STEP_TASKS_PER_NODE=\"$3\";" : "";
    return arena_printf(a, "%s%s%s shift 3; exec \"$@\"", tasks, nodes, spread);
}

static void number_over_components(struct srun *r) {
    enum { BEFORE = 7 };
    struct arena *a = &r->s->cli.arena;
    const struct srun_place *p = r->place;
    if (!p || p->tasks <= p->own_tasks || slurm_opt_given(&r->o, "multi-prog"))
        return;
    const char *before[BEFORE] = {"/bin/sh",
                                  "-c",
                                  renumber(a, p),
                                  "srun",
                                  p->nodes ? p->nodes : "",
                                  p->cpus_per_node ? p->cpus_per_node : "",
                                  p->tasks_per_node ? p->tasks_per_node : ""};
    char **argv = arena_alloc(a, ((size_t)r->argc + BEFORE + 1) * sizeof *argv);
    for (int i = 0; i < BEFORE; i++)
        argv[i] = arena_strdup(a, before[i]);
    memcpy(argv + BEFORE, r->argv, (size_t)r->argc * sizeof *argv);
    argv[r->argc + BEFORE] = NULL;
    r->argv = argv;
    r->argc += BEFORE;
}

// What the API calls it. NULL: there is no such type.
static const char *mpi_word(const char *type) {
    if (slurm_same_word(type, "none"))
        return "none";
    if (slurm_same_word(type, "pmi2") || slurm_same_word(type, "pmi"))
        return "pmi";
    return slurm_same_word(type, "pmix") || str_has_prefix(type, "pmix_v") ? "pmix" : NULL;
}

static bool has_several_tasks(const struct srun *r) {
    const char *nodes = getenv("SLURM_JOB_NUM_NODES");
    uint32_t n = r->spec.tasks;
    if (!n && r->spec.nodes_min)
        n = r->spec.nodes_min * (r->spec.tasks_per_node ? r->spec.tasks_per_node : 1);
    if (!n && (r->spec.tasks_per_node > 1 || !r->job || !nodes || parse_u32(nodes, &n) < 0))
        n = r->spec.tasks_per_node;
    return n > 1;
}

// A program that finds no neighbours starts as many programs of one rank, and nobody would notice.
static void warn_alone(const struct srun *r, enum mpi_program kind) {
    static const char *const library[] = {"", "", "MPICH or one like it", "Open MPI"};
    static const char *const option[] = {"", "", "pmi2", "pmix"};
    if (kind >= MPI_PROGRAM_PMI)
        fprintf(stderr,
                "srun: warning: %s uses %s; with --mpi=%s each of its tasks is an MPI program of its own. "
                "Leave --mpi out, or use --mpi=%s\n",
                r->argv[0], library[kind], streq(r->mpi, "pmi") ? "pmi2" : r->mpi, option[kind]);
}

// Without --mpi: what the program needs. One task finds nobody, and needs something only where its library refuses to
// run without.
static void choose_mpi(struct srun *r) {
    const char *type = slurm_opt_get(&r->o, "mpi");
    bool several = has_several_tasks(r), hidden = r->spec.container || slurm_opt_given(&r->o, "multi-prog");
    enum mpi_program kind = hidden ? MPI_PROGRAM_UNKNOWN : slurm_mpi_program(r->argv[0]);
    if (type) {
        r->mpi = mpi_word(type);
        bool wrong = (streq(r->mpi, "none") && kind >= MPI_PROGRAM_PMI) ||
                     (streq(r->mpi, "pmi") && kind == MPI_PROGRAM_PMIX) ||
                     (streq(r->mpi, "pmix") && kind == MPI_PROGRAM_PMI);
        if (several && wrong)
            warn_alone(r, kind);
    } else if (kind == MPI_PROGRAM_PMIX) {
        r->mpi = "pmix";
    } else if (several && kind != MPI_PROGRAM_NONE) {
        r->mpi = kind == MPI_PROGRAM_PMI ? "pmi" : "both";
    }
}

// --bcast[=TARGET]: the program is copied to the nodes first, and run from there.
static int copy_program(struct srun *r) {
    const char *target = slurm_opt_filled(&r->o, "bcast");
    struct arena *a = &r->s->cli.arena;
    if (!slurm_opt_given(&r->o, "bcast") || streq(slurm_opt_get(&r->o, "bcast"), ""))
        return 0;
    if (!r->job) {
        slurm_error(r->s, "--bcast copies to the nodes of an allocation: use it inside one (salloc, sbatch)");
        return SLURM_FAILED;
    }
    if (!target)
        target = arena_printf(a, "%s/slurm_bcast_%s_%s", r->spec.workdir, r->job, base_name(r->argv[0]));
    else if (target[strlen(target) - 1] == '/')
        target = arena_printf(a, "%s%s", target, base_name(r->argv[0]));
    int status = slurm_bcast(
        r->s, &(struct bcast){
                  .source = r->argv[0], .target = target, .job = r->job, .force = true, .preserve = true});
    r->argv[0] = arena_strdup(a, target);
    return status;
}

static int prepare(struct srun *r) {
    const struct opts *o = &r->o;
    const char *mpi = slurm_opt_get(o, "mpi");
    if (mpi && slurm_same_word(mpi, "list")) {
        printf("MPI plugin types are...\n\tnone\n\tpmi2\n\tpmix\n");
        return -1;
    }
    if (mpi && !mpi_word(mpi)) {
        slurm_error(r->s, "Couldn't find the specified plugin name for mpi/%s: none, pmi2 and pmix are known",
                    mpi);
        return SLURM_FAILED;
    }
    struct opts copy = *o;
    for (uint32_t i = 0; i < copy.count; i++)  // a job's rule against it does not bind a step
        if (streq(copy.table[i].name, "overcommit") || (r->job && streq(copy.table[i].name, "mincpus"))) {
            copy.given[i] = false;
            copy.value[i] = NULL;
        }
    uint32_t named = 0;
    const char *script = NULL;
    if (slurm_opt_given(o, "multi-prog")) {
        if (slurm_opt_get(o, "ntasks") && parse_u32(slurm_opt_get(o, "ntasks"), &named) < 0)
            named = 0;
        int wrong = slurm_multi_prog(r->s, r->argv[0], &named, &script);
        if (wrong)
            return wrong;
    }
    int status = slurm_job_spec_from(r->s, &copy, &r->spec);
    if (status)
        return status;
    if (!slurm_opt_given(o, "ntasks") && r->job)
        r->spec.tasks = 0;
    choose_mpi(r);
    r->name = slurm_opt_get(o, "job-name") ? slurm_opt_get(o, "job-name") : base_name(r->argv[0]);
    status = copy_program(r);
    if (status)
        return status;
    if (script) {
        char **argv = arena_alloc(&r->s->cli.arena, 4 * sizeof *argv);
        argv[0] = arena_strdup(&r->s->cli.arena, "/bin/sh");
        argv[1] = arena_strdup(&r->s->cli.arena, "-c");
        argv[2] = arena_strdup(&r->s->cli.arena, script);
        r->argv = argv;
        r->argc = 3;
        r->spec.tasks = named;
    }
    char **around = slurm_hooked_command(&r->s->cli.arena, slurm_opt_filled(o, "task-prolog"),
                                         slurm_opt_filled(o, "task-epilog"), r->argv, r->argc, &r->argc);
    if (around)
        r->argv = around;
    number_over_components(r);
    r->output = on_nodes(r, slurm_opt_get(o, "output")) ? r->spec.output : NULL;
    r->error = on_nodes(r, slurm_opt_get(o, "error")) ? r->spec.error : NULL;
    r->pty = slurm_opt_given(o, "pty");
    if (r->pty && !isatty(STDOUT_FILENO)) {
        slurm_error(r->s, "ioctl(TIOCGWINSZ): Inappropriate ioctl for device");  // C libraries differ
        slurm_error(r->s, "Not using a pseudo-terminal, disregarding --pty option");
        r->pty = false;
    }
    if (r->job) {
        reconcile_counts(r);
        status = take_relative(r);
        return status ? status : take_exclude(r);
    }
    if (slurm_opt_given(o, "overcommit")) {
        r->step_tasks = r->spec.tasks;
        r->spec.tasks = r->spec.nodes_min ? r->spec.nodes_min : 1;
        r->spec.tasks_per_node = 0;
    }
    r->spec.name = job_name_check(r->name, NULL) == 0 ? r->name : "srun";
    r->spec.launch = LAUNCH_STEPS;
    r->spec.lease_s = STEP_LEASE_S;
    r->spec.output = r->spec.error = r->spec.input = NULL;
    cleanup_buf struct buf shown = {0};
    for (int i = 0; i < r->argc && shown.len < 500; i++)
        buf_addf(&shown, "%s%s", i ? " " : "", r->argv[i]);
    if (!str_has_control_chars(buf_str(&shown), shown.len) && str_utf8_valid(buf_str(&shown), shown.len))
        r->spec.command_text = arena_strdup(&r->s->cli.arena, buf_str(&shown));
    return 0;
}

int slurm_srun_one(struct slurm *s, int argc, char **argv, const struct srun_place *place) {
    struct srun r = {.s = s, .place = place};
    slurm_opts_init(&r.o, slurm_job_opts, slurm_job_opt_count, FOR_SRUN);
    if (!slurm_opts_parse(&r.o, s, argc, argv, true))
        return SLURM_USAGE;
    if (slurm_opt_given(&r.o, "version"))
        return slurm_version();
    if (slurm_opt_given(&r.o, "help") || slurm_opt_given(&r.o, "usage")) {
        cleanup_buf struct buf out = {0};
        slurm_opts_help(&r.o, "srun", "[OPTIONS(0)... [executable(0) [args(0)...]]]", &out);
        return cli_print(&out);
    }
    r.job = slurm_opt_get(&r.o, "jobid") ? slurm_opt_get(&r.o, "jobid") : getenv("SLURM_JOB_ID");
    if (str_empty(r.job))
        r.job = getenv("SLURM_JOBID");
    r.asks_gpus = slurm_opt_given(&r.o, "gpus") || slurm_opt_given(&r.o, "gpus-per-node") ||
                  slurm_opt_given(&r.o, "gpus-per-task") || slurm_opt_given(&r.o, "gres");
    if (place)
        r.job = place->job;
    read_environment(&r);
    s->verbose = slurm_opt_given(&r.o, "verbose");
    s->quiet = slurm_opt_given(&r.o, "quiet");
    if (!slurm_opts_check(&r.o, s))
        return SLURM_FAILED;
    r.argv = r.o.arguments;
    r.argc = r.o.argument_count;
    if (!r.argc && !(slurm_opt_given(&r.o, "mpi") && slurm_same_word(slurm_opt_get(&r.o, "mpi"), "list"))) {
        slurm_fatal(s, "No command given to execute.");
        return SLURM_FAILED;
    }
    s->clusters = slurm_opt_get(&r.o, "clusters");
    if (slurm_check_clusters(s))
        return SLURM_FAILED;
    int status = prepare(&r);
    if (status)
        return status < 0 ? SLURM_OK : status;
    if (slurm_opt_given(&r.o, "test-only") && !r.job)
        return slurm_test_only(s, &r.spec);
    if (slurm_hook_run(s, slurm_opt_filled(&r.o, "prolog")) < 0)
        return SLURM_FAILED;
    status = run_tasks(&r);
    slurm_hook_run(s, slurm_opt_filled(&r.o, "epilog"));
    return status;
}
