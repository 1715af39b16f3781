// srun, and what it does in a job with several components: "srun a : b" and "srun --het-group=0,1 a" run a step in each
// of them, at the same time, whose tasks are numbered over all.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <fcntl.h>

#include "base/text.h"
#include "het.h"
#include "model/name.h"
#include "salloc.h"
#include "srun.h"

struct block {
    int argc;
    char **argv;
    uint64_t groups;  // 0: not said
    uint32_t tasks;   // 0: not said
    bool picks_nodes;  // it may run on some of its component's nodes only
};

struct srun_part {
    const struct block *block;
    struct srun_place place;
    uint32_t group;
};

// Blocks between lone ":", each with a program's name before it.
static uint32_t split(struct slurm *s, int argc, char **argv, struct block *out) {
    uint32_t n = 0;
    int from = 1;
    for (int i = 1; i <= argc; i++) {
        if (i < argc && !streq(argv[i], ":"))
            continue;
        if (n == JOB_COMPONENTS_MAX)
            return 0;
        struct block *b = &out[n++];
        *b = (struct block){.argc = i - from + 1};
        b->argv = arena_alloc(&s->cli.arena, ((size_t)b->argc + 1) * sizeof *b->argv);
        b->argv[0] = argv[0];
        memcpy(b->argv + 1, argv + from, (size_t)(b->argc - 1) * sizeof *argv);
        b->argv[b->argc] = NULL;
        from = i + 1;
    }
    return n;
}

// What decides where a block runs. The block is parsed again, with the variables of its component, when it is run.
static int look_at(struct slurm *s, struct block *b) {
    struct opts o;
    char **copy = arena_memdup(&s->cli.arena, b->argv, ((size_t)b->argc + 1) * sizeof *copy);
    slurm_opts_init(&o, slurm_job_opts, slurm_job_opt_count, FOR_SRUN);
    if (!slurm_opts_parse(&o, s, b->argc, copy, true))
        return SLURM_USAGE;
    const char *groups = slurm_opt_get(&o, "het-group");
    if (slurm_opt_get(&o, "ntasks") && parse_u32(slurm_opt_get(&o, "ntasks"), &b->tasks) < 0)
        b->tasks = 0;
    b->picks_nodes = slurm_opt_given(&o, "nodes") || slurm_opt_given(&o, "nodelist") ||
                     slurm_opt_given(&o, "exclude") || slurm_opt_given(&o, "relative");
    if (groups && !slurm_het_size()) {
        slurm_error(s, "--het-group: this is not a heterogeneous job");
        return SLURM_FAILED;
    }
    return groups ? slurm_het_groups(s, groups, &b->groups) : 0;
}

// The variables of a step in several components name the nodes of all of them.
static void number_nodes(struct slurm *s, struct srun_part *parts, uint32_t count) {
    struct arena *a = &s->cli.arena;
    struct het_nodes all = {0};
    bool known = count > 1;
    for (uint32_t i = 0; known && i < count; i++) {
        parts[i].place.first_node = all.count;
        known = !parts[i].block->picks_nodes &&
                slurm_het_add_nodes(s, parts[i].group, parts[i].place.own_tasks, &all);
    }
    slurm_het_nodes_fold(&all);
    for (uint32_t i = 0; known && i < count; i++) {
        struct srun_place *p = &parts[i].place;
        p->node_count = all.count;
        p->nodes = arena_strdup(a, buf_str(&all.nodes));
        p->cpus_per_node = arena_strdup(a, buf_str(&all.cpus));
        p->tasks_per_node = all.tasks_known ? arena_strdup(a, buf_str(&all.tasks)) : NULL;
    }
    slurm_het_nodes_done(&all);
}

static uint32_t place_all(struct slurm *s, const struct block *blocks, uint32_t count,
                          struct srun_part *out) {
    uint32_t n = 0, tasks = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t groups = blocks[i].groups ? blocks[i].groups : UINT64_C(1) << i;
        for (uint32_t g = 0; g < slurm_het_size() && n < JOB_COMPONENTS_MAX; g++) {
            if (!(groups >> g & 1))
                continue;
            struct srun_part *p = &out[n++];
            *p = (struct srun_part){.block = &blocks[i], .group = g};
            p->place.job = arena_printf(&s->cli.arena, "%s+%u", getenv("SLURM_JOB_ID"), g);
            p->place.own_tasks = blocks[i].tasks ? blocks[i].tasks : slurm_het_tasks(g);
            p->place.first_task = tasks;
            tasks += p->place.own_tasks;
        }
    }
    for (uint32_t i = 0; i < n; i++)
        out[i].place.tasks = tasks;
    number_nodes(s, out, n);
    return n;
}

static int run_part(struct slurm *s, const struct srun_part *p) {
    slurm_het_enter(p->group);
    return slurm_srun_one(s, p->block->argc, p->block->argv, &p->place);
}

// Each in a process of its own; only the first reads standard input.
static int run_parts(struct slurm *s, const struct srun_part *parts, uint32_t count) {
    pid_t *pids = arena_alloc(&s->cli.arena, count * sizeof *pids);
    int worst = 0;
    for (uint32_t i = 0; i < count; i++) {
        fflush(stdout);
        fflush(stderr);
        pids[i] = fork();
        if (pids[i] == 0) {
            int null = i ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1;
            if (null >= 0)
                dup2(null, STDIN_FILENO);
            int status = run_part(s, &parts[i]);
            fflush(stdout);
            fflush(stderr);
            _exit(status);
        }
        if (pids[i] < 0) {
            slurm_error(s, "no process could be started for component %u", parts[i].group);
            worst = SLURM_FAILED;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        int status;
        if (pids[i] < 0 || waitpid(pids[i], &status, 0) < 0)
            continue;
        int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        worst = code > worst ? code : worst;
    }
    return worst;
}

static int run_blocks(struct slurm *s, const struct block *blocks, uint32_t count) {
    struct srun_part parts[JOB_COMPONENTS_MAX];
    uint32_t n = place_all(s, blocks, count, parts);
    return n == 1 ? run_part(s, &parts[0]) : run_parts(s, parts, n);
}

struct blocks {
    const struct block *at;
    uint32_t count;
};

static int use_allocation(struct slurm *s, void *ctx) {
    const struct blocks *b = ctx;
    return run_blocks(s, b->at, b->count);
}

// Outside a job: an allocation with these components, for these steps.
static int allocate(struct slurm *s, const struct block *blocks, uint32_t count) {
    struct opts *options = slurm_het_opts(s, FOR_SRUN);
    struct blocks all = {blocks, count};
    for (uint32_t i = 0; i < count; i++) {
        char **copy =
            arena_memdup(&s->cli.arena, blocks[i].argv, ((size_t)blocks[i].argc + 1) * sizeof *copy);
        if (!slurm_opts_parse(&options[i], s, blocks[i].argc, copy, true))
            return SLURM_USAGE;
        slurm_opts_environment(&options[i], "SLURM");
        if (!slurm_opts_check(&options[i], s))
            return SLURM_FAILED;
        if (!options[i].argument_count) {
            slurm_fatal(s, "No command given to execute.");
            return SLURM_FAILED;
        }
    }
    s->verbose = slurm_opt_given(&options[0], "verbose");
    s->quiet = slurm_opt_given(&options[0], "quiet");
    s->clusters = slurm_opt_get(&options[0], "clusters");
    const char *slash = strrchr(options[0].arguments[0], '/'),
               *name = slash ? slash + 1 : options[0].arguments[0];
    struct slurm_allocation how = {
        .name = job_name_check(name, NULL) == 0 ? name : "srun", .use = use_allocation, .ctx = &all};
    return slurm_allocation(s, options, count, &how);
}

int srun_run(struct slurm *s, int argc, char **argv) {
    struct block blocks[JOB_COMPONENTS_MAX];
    uint32_t count = split(s, argc, argv, blocks), size = slurm_het_size();
    if (!count) {
        slurm_error(s, "too many components: a job has at most %d", JOB_COMPONENTS_MAX);
        return SLURM_FAILED;
    }
    for (uint32_t i = 0; i < count; i++) {
        int r = look_at(s, &blocks[i]);
        if (r)
            return r;
    }
    bool inside = !str_empty(getenv("SLURM_JOB_ID"));
    if (count > 1 && !inside)
        return allocate(s, blocks, count);
    if (count > 1 && count > size) {
        slurm_error(s, "%u components are asked for; the job has %u", count, size ? size : 1);
        return SLURM_FAILED;
    }
    return size && inside ? run_blocks(s, blocks, count) : slurm_srun_one(s, argc, argv, NULL);
}
