// Reads blocks of options and makes components of them, and enters a component for a step: its variables become
// those of the job.
#include "het.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cli/job/options.h"
#include "model/nodelist.h"

struct opts *slurm_het_opts(struct slurm *s, unsigned program) {
    struct opts *all = arena_alloc(&s->cli.arena, JOB_COMPONENTS_MAX * sizeof *all);
    for (uint32_t i = 0; i < JOB_COMPONENTS_MAX; i++)
        slurm_opts_init(&all[i], slurm_job_opts, slurm_job_opt_count, program);
    return all;
}

static bool too_many(struct slurm *s, uint32_t count) {
    if (count < JOB_COMPONENTS_MAX)
        return false;
    slurm_error(s, "too many components: a job has at most %d", JOB_COMPONENTS_MAX);
    return true;
}

bool slurm_het_parse(struct slurm *s, int argc, char **argv, struct opts *out, uint32_t *count) {
    for (*count = 0;;) {
        if (too_many(s, *count) || !slurm_opts_parse(&out[*count], s, argc, argv, true))
            return false;
        const struct opts *o = &out[(*count)++];
        if (!o->argument_count || !streq(o->arguments[0], ":"))
            return true;
        argc = o->argument_count;  // ":" stands where the program's name does
        argv = o->arguments;
    }
}

static void clear_shape(struct spec *p) {
#define CLEAR(member) p->member = 0;
    COMPONENT_SHAPE(CLEAR)
#undef CLEAR
}

int slurm_het_spec(struct slurm *s, const struct opts *blocks, uint32_t count, struct spec *spec) {
    if (spec->array.len) {
        slurm_error(s, "%sInvalid job array specification", slurm_submit_prefix(s));
        return SLURM_FAILED;
    }
    struct job_component *list = arena_alloc(&s->cli.arena, count * sizeof *list);
    for (uint32_t i = 0; i < count; i++) {
        struct spec own = *spec;
        int r = i ? slurm_job_spec_from(s, &blocks[i], &own) : 0;
        if (r)
            return r;
        list[i] =
            (struct job_component){.name = i ? arena_printf(&s->cli.arena, "group%u", i) : COMPONENT_HEAD};
        job_component_of_spec(&own, &list[i]);
        list[i].workers_min = list[i].workers_max = 1;
        list[i].launch =
            i ? LAUNCH_STEPS : spec->launch;  // the script runs in the first; the others wait for steps
        if (!i)
            list[i].partition = list[i].output = list[i].error = NULL;  // as the job's
    }
    clear_shape(spec);
    spec->components.at = list;
    spec->components.len = count;
    return 0;
}

static bool read_range(const char *text, uint32_t *first, uint32_t *last) {
    char *end;
    unsigned long a = strtoul(text, &end, 10), b = a;
    if (end == text)
        return false;
    if (*end == '-') {
        const char *from = end + 1;
        b = strtoul(from, &end, 10);
        if (end == from)
            return false;
    }
    *first = (uint32_t)a;
    *last = (uint32_t)b;
    return !*end && a <= b && b < JOB_COMPONENTS_MAX;
}

int slurm_het_groups(struct slurm *s, const char *text, uint64_t *groups) {
    uint32_t size = slurm_het_size();
    char *list = arena_strdup(&s->cli.arena, text), *rest = NULL;
    *groups = 0;
    for (char *one = strtok_r(list, ",", &rest); one; one = strtok_r(NULL, ",", &rest)) {
        uint32_t first, last;
        if (!read_range(one, &first, &last) || last >= size) {
            slurm_error(s, "Invalid --het-group value: %s; the job has components 0 to %u", text,
                        size ? size - 1 : 0);
            return SLURM_FAILED;
        }
        for (uint32_t i = first; i <= last; i++)
            *groups |= UINT64_C(1) << i;
    }
    return *groups ? 0 : SLURM_FAILED;
}

static const char *of_group(const char *name, uint32_t group) {
    char full[96];
    snprintf(full, sizeof full, "%s_HET_GROUP_%u", name, group);
    return getenv(full);
}

uint32_t slurm_het_size(void) {
    uint32_t n;
    const char *text = getenv("SLURM_HET_SIZE");
    return text && parse_u32(text, &n) == 0 && n <= JOB_COMPONENTS_MAX ? n : 0;
}

uint32_t slurm_het_tasks(uint32_t group) {
    uint32_t n;
    const char *text = of_group("SLURM_NTASKS", group);
    return text && parse_u32(text, &n) == 0 && n ? n : 1;
}

// Appends "2(x3),1", as Slurm writes a number for each node. Returns for how many nodes; 0: it is no such text.
static uint32_t add_counts(const char *text, struct buf *out, uint64_t *sum) {
    uint32_t nodes = 0;
    for (const char *p = text; *p;) {
        char *end;
        unsigned long value = strtoul(p, &end, 10), times = 1;
        if (end == p)
            return 0;
        if (strncmp(end, "(x", 2) == 0) {
            times = strtoul(end + 2, &end, 10);
            if (*end++ != ')')
                return 0;
        }
        if (!times || times > NODELIST_NAMES_MAX - nodes || (*end && *end != ',') || value > UINT32_MAX)
            return 0;
        for (unsigned long i = 0; i < times; i++)
            buf_addf(out, "%s%lu", out->len ? "," : "", value);
        nodes += (uint32_t)times;
        *sum += value * times;
        p = *end ? end + 1 : end;
    }
    return nodes;
}

// "2,2,2,1" as "2(x3),1".
static void fold_counts(struct buf *counts) {
    cleanup_buf struct buf out = {0};
    for (const char *p = buf_str(counts); *p;) {
        size_t len = strcspn(p, ",");
        uint32_t run = 1;
        const char *next = p + len;
        while (*next && strncmp(next + 1, p, len) == 0 && (next[1 + len] == ',' || !next[1 + len])) {
            next += 1 + len;
            run++;
        }
        buf_addf(&out, run > 1 ? "%s%.*s(x%u)" : "%s%.*s", out.len ? "," : "", (int)len, p, run);
        p = *next ? next + 1 : next;
    }
    buf_clear(counts);
    buf_add(counts, out.data, out.len);
}

// Folded if that keeps the order and no node is there twice: places in the list are numbers of nodes.
static void join_nodes(struct slurm *s, const char *more, uint32_t count, struct buf *nodes) {
    struct arena *a = &s->cli.arena;
    cleanup_buf struct buf folded = {0}, joined = {0};
    struct name_list both, again;
    buf_addf(&joined, "%s%s%s", buf_str(nodes), nodes->len ? "," : "", more);
    buf_clear(nodes);
    buf_add(nodes, joined.data, joined.len);
    if (nodelist_expand(buf_str(&joined), a, &both, NULL) < 0)
        return;
    nodelist_fold(both.at, both.len, &folded);
    bool same =
        both.len == count && nodelist_expand(buf_str(&folded), a, &again, NULL) == 0 && again.len == count;
    for (uint32_t i = 0; same && i < both.len; i++)
        same = streq(both.at[i], again.at[i]);
    if (!same)
        return;
    buf_clear(nodes);
    buf_add(nodes, folded.data, folded.len);
}

bool slurm_het_add_nodes(struct slurm *s, uint32_t group, uint32_t tasks, struct het_nodes *all) {
    const char *nodes = of_group("SLURM_JOB_NODELIST", group),
               *cpus = of_group("SLURM_JOB_CPUS_PER_NODE", group),
               *each = of_group("SLURM_TASKS_PER_NODE", group);
    cleanup_buf struct buf own = {0};
    uint64_t cpu_sum = 0, task_sum = 0;
    if (!nodes || !cpus || !each)
        return false;
    uint32_t count = add_counts(cpus, &all->cpus, &cpu_sum);
    if (!count || add_counts(each, &own, &task_sum) != count)
        return false;
    if (!all->count)
        all->tasks_known = true;
    all->tasks_known &= task_sum == tasks || tasks % count == 0;
    for (uint32_t i = 0; i < count && task_sum != tasks; i++) {
        if (!i)
            buf_clear(&own);
        buf_addf(&own, "%s%u", i ? "," : "", tasks / count);
    }
    buf_addf(&all->tasks, "%s%s", all->tasks.len ? "," : "", buf_str(&own));
    all->count += count;
    join_nodes(s, nodes, all->count, &all->nodes);
    return true;
}

void slurm_het_nodes_fold(struct het_nodes *all) {
    fold_counts(&all->cpus);
    fold_counts(&all->tasks);
}

void slurm_het_nodes_done(struct het_nodes *all) {
    buf_done(&all->nodes);
    buf_done(&all->cpus);
    buf_done(&all->tasks);
}

void slurm_het_enter(uint32_t group) {
    static const char *const names[] = {
        "SLURM_NTASKS",          "SLURM_NPROCS",        "SLURM_JOB_NODELIST",
        "SLURM_NTASKS_PER_NODE", "SLURM_JOB_NUM_NODES", "SLURM_TASKS_PER_NODE",
        "SLURM_CPUS_PER_TASK",   "SLURM_JOB_PARTITION", "SLURM_JOB_CPUS_PER_NODE",
        "SLURM_MEM_PER_NODE",    "SLURM_MEM_PER_CPU"};
    static const char *const same[][2] = {{"SLURM_NODELIST", "SLURM_JOB_NODELIST"},
                                          {"SLURM_NNODES", "SLURM_JOB_NUM_NODES"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *v = of_group(names[i], group);
        if (v)
            setenv(names[i], v, 1);
        else
            unsetenv(names[i]);
    }
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (getenv(same[i][1]))
            setenv(same[i][0], getenv(same[i][1]), 1);
    for (size_t i = 0; group && i < 3; i++) {  // what was asked for by the first component
        static const char *const first_only[] = {"SLURM_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_TASK"};
        unsetenv(first_only[i]);
    }
}
