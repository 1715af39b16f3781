// Owns the way from options of sbatch, srun and salloc to a spec. Slurm's exit status of a bad value
// depends on the option: 255 where its parser refuses, 1 where a later check does.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/text.h"
#include "cli/term/local_time.h"
#include "cli/job/options.h"
#include "submit_options.h"
#include "model/arrayspec.h"
#include "model/dependency.h"
#include "model/gpuspec.h"
#include "model/nodelist.h"
#include "model/signalname.h"

enum { NICE_DEFAULT = 100, NICE_MOST = 2147483645, COUNT_MAX = 1 << 20, NODEFILE_MAX = 1 << 20 };

int slurm_job_count_arg(struct slurm *s, const struct opts *o, const char *name, uint32_t *out) {
    const char *text = slurm_opt_get(o, name);
    uint32_t v;
    if (!text)
        return 0;
    if (parse_u32(text, &v) < 0 || !v || v > COUNT_MAX) {
        slurm_error(s, "Invalid numeric value \"%s\" for --%s.", text, name);
        return SLURM_FAILED;
    }
    *out = v;
    return 0;
}

static int bad_value(struct slurm *s, const char *name) {
    slurm_error(s, "Invalid --%s specification", name);
    return SLURM_USAGE;
}

int slurm_job_memory_arg(struct slurm *s, const struct opts *o, const char *name, uint64_t *bytes, bool *given) {
    const char *text = slurm_opt_get(o, name);
    uint64_t v;
    *given = text != NULL;
    if (!text)
        return 0;
    if (size_parse(text, SIZE_M, &v, NULL) < 0)
        return bad_value(s, name);
    *bytes = v;
    return 0;
}

int slurm_job_time_arg(struct slurm *s, const struct opts *o, const char *name, uint32_t *seconds) {
    const char *text = slurm_opt_get(o, name);
    uint32_t v;
    if (!text)
        return 0;
    if (streq(text, "-1") || slurm_same_word(text, "infinite") || slurm_same_word(text, "unlimited"))
        v = DURATION_UNLIMITED;
    else if (strspn(text, "0123456789-:") != strlen(text) || duration_parse(text, 60, &v, NULL) < 0)
        return bad_value(s, name);
    // Whole minutes, as Slurm counts.
    *seconds = v == DURATION_UNLIMITED || !v || v > DURATION_LIMIT_S - 60 ? DURATION_LIMIT_S : (v + 59) / 60 * 60;
    return 0;
}

static int take_gpu(struct slurm *s, const char *name, const char *text, uint32_t *milli, const char **model) {
    struct gpu_spec g;
    if (strchr(text, ',') || gpu_spec_parse(text, &g, NULL) < 0)
        return bad_value(s, name);
    *milli = g.milli;
    if (*g.model)
        *model = arena_strdup(&s->cli.arena, g.model);
    return 0;
}

int slurm_job_gpu_arg(struct slurm *s, const struct opts *o, const char *name, uint32_t *milli, const char **model) {
    const char *text = slurm_opt_filled(o, name);
    if (!text || streq(text, "0"))
        return 0;
    return take_gpu(s, name, text, milli, model);
}

// "gpu:2", "gpu:a100:1", "gpu", "none"; anything but GPUs is no resource here.
int slurm_job_gres_arg(struct slurm *s, const struct opts *o, uint32_t *milli, const char **model) {
    const char *text = slurm_opt_get(o, "gres");
    struct gpu_spec g;
    if (!text || slurm_same_word(text, "none"))
        return 0;
    if (str_has_prefix(text, "gres/"))
        text += 5;
    if (str_has_prefix(text, "gres:"))
        text += 5;
    const char *count = strrchr(text, ':');
    bool is_gpu = streq(text, "gpu") || str_has_prefix(text, "gpu:");
    if (is_gpu && count && streq(count, ":0"))
        return 0;
    if (!is_gpu || strchr(text, ',') || gpu_spec_parse(streq(text, "gpu") ? "gpu:1" : text, &g, NULL) < 0) {
        slurm_error(s, "Invalid generic resource (gres) specification");
        return SLURM_FAILED;
    }
    *milli = g.milli;
    if (*g.model)
        *model = arena_strdup(&s->cli.arena, g.model);
    return 0;
}

int slurm_job_nodes_arg(struct slurm *s, const struct opts *o, uint32_t *least, uint32_t *most) {
    const char *text = slurm_opt_get(o, "nodes");
    uint32_t low, high;
    if (!text)
        return 0;
    const char *dash = strchr(text, '-');
    const char *first = dash ? arena_strndup(&s->cli.arena, text, (size_t)(dash - text)) : text;
    bool bad = parse_u32(first, &low) < 0 || (dash && parse_u32(dash + 1, &high) < 0) || !low || low > COUNT_MAX;
    if (streq(text, "0")) {
        slurm_error(s, "%sNode count specification invalid", slurm_submit_prefix(s));
        return SLURM_FAILED;
    }
    if (bad || (dash && high > COUNT_MAX)) {
        slurm_error(s, "\"%s\" is not a valid node count", text);
        return SLURM_USAGE;
    }
    if (dash && high < low) {
        slurm_error(s, "Maximum node count %u is less than minimum node count %u", high, low);
        return SLURM_USAGE;
    }
    *least = low;
    *most = dash ? high : low;
    return 0;
}

// --mincpus: at least so many CPUs on each node, of which each task there gets its part.
static void take_least_cpus(struct spec *p, uint32_t least) {
    uint32_t nodes = p->nodes_min ? p->nodes_min : 1;
    uint32_t per_node = p->tasks_per_node ? p->tasks_per_node : p->tasks / nodes;
    uint32_t per_task = (least + (per_node ? per_node - 1 : 0)) / (per_node ? per_node : 1);
    if (per_task > 1 && p->cpus_per_task < per_task)
        p->cpus_per_task = per_task;
}

static int take_counts(struct slurm *s, const struct opts *o, struct spec *p) {
    uint32_t least = 0;
    int r = slurm_job_nodes_arg(s, o, &p->nodes_min, &p->nodes_max);
    r = r ? r : slurm_job_count_arg(s, o, "ntasks", &p->tasks);
    r = r ? r : slurm_job_count_arg(s, o, "ntasks-per-node", &p->tasks_per_node);
    r = r ? r : slurm_job_count_arg(s, o, "cpus-per-task", &p->cpus_per_task);
    r = r ? r : slurm_job_count_arg(s, o, "cpus-per-gpu", &p->cpus_per_gpu);
    r = r ? r : slurm_job_count_arg(s, o, "ntasks-per-gpu", &p->ntasks_per_gpu);
    r = r ? r : slurm_job_count_arg(s, o, "mincpus", &least);
    if (r)
        return r;
    if (p->tasks && p->tasks_per_node && !p->nodes_min)
        p->nodes_min = p->nodes_max = (p->tasks + p->tasks_per_node - 1) / p->tasks_per_node;
    // With nodes alone there is a task on each; with tasks per node, that many.
    uint32_t nodes = p->nodes_min ? p->nodes_min : 1;
    if (!p->tasks && !p->ntasks_per_gpu)
        p->tasks = nodes * (p->tasks_per_node ? p->tasks_per_node : 1);
    if (p->tasks && p->tasks < nodes) {
        fprintf(stderr, "%s: Warning: can't run %u processes on %u nodes, setting nnodes to %u\n", s->program,
                p->tasks, nodes, p->tasks);
        p->nodes_min = p->nodes_max = p->tasks;
    }
    if (slurm_opt_given(
            o, "overcommit")) {  // a CPU for each node, whatever runs on it; steps are told how many tasks
        p->tasks = p->nodes_min ? p->nodes_min : 1;
        p->tasks_per_node = 0;
    }
    take_least_cpus(p, least);
    return 0;
}

static int take_memory(struct slurm *s, const struct opts *o, struct spec *p) {
    bool node, cpu, gpu;
    int r = slurm_job_memory_arg(s, o, "mem", &p->memory_per_node_bytes, &node);
    r = r ? r : slurm_job_memory_arg(s, o, "mem-per-cpu", &p->memory_per_cpu_bytes, &cpu);
    r = r ? r : slurm_job_memory_arg(s, o, "mem-per-gpu", &p->memory_per_gpu_bytes, &gpu);
    if (r)
        return r;
    if (node + cpu + gpu > 1) {
        slurm_fatal(s, "--mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.");
        return SLURM_FAILED;
    }
    if (node && !p->memory_per_node_bytes) {
        // All memory of a node leaves nothing for others: the node is the job's.
        p->exclusive = true;
        slurm_verbose(s, "--mem=0: the whole node is asked for");
    }
    return 0;
}

static int take_gpus(struct slurm *s, const struct opts *o, struct spec *p) {
    uint32_t gres = 0;
    int r = slurm_job_gpu_arg(s, o, "gpus", &p->gpus_milli, &p->gpu_model);
    r = r ? r : slurm_job_gpu_arg(s, o, "gpus-per-node", &p->gpus_per_node_milli, &p->gpu_model);
    r = r ? r : slurm_job_gpu_arg(s, o, "gpus-per-task", &p->gpus_per_task_milli, &p->gpu_model);
    r = r ? r : slurm_job_gres_arg(s, o, &gres, &p->gpu_model);
    if (r)
        return r;
    if (gres && !p->gpus_per_node_milli)
        p->gpus_per_node_milli = gres;
    // A total beside a number per node or task says the same twice; the finer one counts.
    if (p->gpus_milli && (p->gpus_per_node_milli || p->gpus_per_task_milli))
        p->gpus_milli = 0;
    if (p->gpus_per_node_milli && p->gpus_per_task_milli)
        p->gpus_per_node_milli = 0;
    return 0;
}

static int take_times(struct slurm *s, const struct opts *o, struct spec *p) {
    static const char *const names[] = {"begin", "deadline"};
    int64_t *outs[] = {&p->begin_ms, &p->deadline_ms};
    int r = slurm_job_time_arg(s, o, "time", &p->time_limit_s);
    r = r ? r : slurm_job_time_arg(s, o, "time-min", &p->time_min_s);
    if (r)
        return r;
    for (int i = 0; i < 2; i++) {
        const char *text = slurm_opt_get(o, names[i]);
        if (text && local_time_parse(text, clock_wall_ms(), TIME_NEXT, outs[i], NULL) < 0) {
            fprintf(stderr, "Invalid time specification (pos=0): %s\n", text);
            return bad_value(s, names[i]);
        }
    }
    return 0;
}

// A file of names, separated by blanks or lines.
static int read_nodefile(struct slurm *s, const char *path, const char **out) {
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    cleanup_free char *text = xcalloc(1, NODEFILE_MAX + 1);
    ssize_t n = fd < 0 ? -1 : read(fd, text, NODEFILE_MAX);
    if (n < 0) {
        slurm_error(s, "Unable to open file %s: %s", path, strerror(errno));
        return bad_value(s, "nodefile");
    }
    cleanup_buf struct buf names = {0};
    for (char *p = text; *(p += strspn(p, " \t\r\n,")); p += strcspn(p, " \t\r\n"))
        buf_addf(&names, "%s%.*s", names.len ? "," : "", (int)strcspn(p, " \t\r\n"), p);
    *out = arena_strdup(&s->cli.arena, buf_str(&names));
    return 0;
}

static int take_places(struct slurm *s, const struct opts *o, struct spec *p) {
    struct name_list names;
    if (slurm_opt_get(o, "nodefile") && read_nodefile(s, slurm_opt_get(o, "nodefile"), &p->nodes))
        return SLURM_USAGE;
    if (slurm_opt_filled(o, "nodelist"))
        p->nodes = slurm_opt_filled(o, "nodelist");
    p->exclude = slurm_opt_filled(o, "exclude");
    if (p->nodes && nodelist_expand(p->nodes, &s->cli.arena, &names, NULL) < 0) {
        slurm_error(s, "%sInvalid node name specified", slurm_submit_prefix(s));
        return SLURM_FAILED;
    }
    if (p->nodes && slurm_opt_get(o, "nodes") && p->nodes_max && names.len > p->nodes_max) {
        slurm_error(s, "invalid number of nodes (-N %u-%u)", names.len, p->nodes_max);
        return SLURM_FAILED;
    }
    if (p->nodes && !p->nodes_min && names.len > 1)
        p->nodes_min = p->nodes_max = names.len;
    if (p->nodes_min > p->tasks && !slurm_opt_given(o, "ntasks") && !p->ntasks_per_gpu)
        p->tasks = p->nodes_min * (p->tasks_per_node ? p->tasks_per_node : 1);
    if (p->exclude && nodelist_expand(p->exclude, &s->cli.arena, &names, NULL) < 0)
        return bad_value(s, "exclude");
    const char *features = slurm_opt_get(o, "constraint");
    if (features) {
        size_t n = strlen(features);
        if (n > 1 && (*features == '"' || *features == '\'') && features[n - 1] == *features)
            features = arena_strndup(&s->cli.arena, features + 1, n - 2);
        // "[a|b]": all nodes with the same one, which one node always has.
        n = strlen(features);
        if (n > 2 && *features == '[' && features[n - 1] == ']' && p->nodes_max <= 1)
            features = arena_strndup(&s->cli.arena, features + 1, n - 2);
        p->features = features;
    }
    if (slurm_opt_given(o, "exclusive"))
        p->exclusive = true;
    p->spread = slurm_opt_given(o, "spread-job");
    return 0;
}

// Letters that have no meaning stay as they are, as in Slurm. A script is the step "batch".
static const char *take_pattern(struct slurm *s, const char *text, bool script) {
    cleanup_buf struct buf b = {0};
    for (const char *p = text; *p; p++) {
        if (script && *p == '%' && (p[1] == 's' || p[1] == 'J')) {
            buf_adds(&b, *++p == 's' ? "batch" : "%j");
            continue;
        }
        size_t digits = *p == '%' ? strspn(p + 1, "0123456789") : 0;
        if (*p == '%' && (!p[1 + digits] || !strchr("%jxuAabNntsJ", p[1 + digits])))
            buf_addc(&b, '%');
        buf_addc(&b, *p);
        if (*p == '%' && p[1] == '%')
            buf_addc(&b, *++p);
    }
    return arena_strdup(&s->cli.arena, buf_str(&b));
}

static int take_files(struct slurm *s, const struct opts *o, struct spec *p) {
    const char *mode = slurm_opt_get(o, "open-mode");
    if (slurm_opt_filled(o, "output"))
        p->output = take_pattern(s, slurm_opt_filled(o, "output"), o->program == FOR_SBATCH);
    if (slurm_opt_filled(o, "error"))
        p->error = take_pattern(s, slurm_opt_filled(o, "error"), o->program == FOR_SBATCH);
    p->input = slurm_opt_get(o, "input");
    if (!mode)
        return 0;
    if (*mode != 'a' && *mode != 'A' && *mode != 't' && *mode != 'T')
        return bad_value(s, "open-mode");
    p->append = *mode == 'a' || *mode == 'A';
    p->truncate = !p->append;
    return 0;
}

// As it will be shown: "12,13" is an old way to write afterany. What is none is told by the controller.
static const char *plain_dependency(struct slurm *s, const char *text) {
    struct dependency d;
    cleanup_buf struct buf b = {0};
    if (str_empty(text) || dependency_parse(text, &s->cli.arena, &d, NULL) < 0)
        return text;
    dependency_format(&d, &b);
    return arena_strdup(&s->cli.arena, buf_str(&b));
}

static int take_control(struct slurm *s, const struct opts *o, struct spec *p) {
    const char *array = o->program == FOR_SBATCH ? slurm_opt_get(o, "array") : NULL,
               *signal = slurm_opt_get(o, "signal"), *nice = slurm_opt_get(o, "nice");
    const char *priority = slurm_opt_get(o, "priority");
    struct array_spec a;
    struct signal_spec g;
    int64_t v;
    if (array) {
        if (array_parse(array, &s->cli.arena, &a, &s->cli.error) < 0) {
            slurm_error(s, "%sInvalid job array specification", slurm_submit_prefix(s));
            return SLURM_FAILED;
        }
        p->array.at = a.at;
        p->array.len = a.len;
        p->array_limit = a.limit;
    }
    if (signal) {
        if (signal_spec_parse(signal, &g, NULL) < 0)
            return bad_value(s, "signal");
        p->signal = g.signal;
        p->signal_before_s = g.before_s;
        p->signal_batch_only = g.batch_only;
    }
    if (slurm_opt_given(o, "nice")) {
        p->nice = NICE_DEFAULT;
        if (nice && parse_i64(nice, &v) < 0)
            return bad_value(s, "nice");
        if (nice && (v < -NICE_MOST || v > NICE_MOST)) {
            slurm_error(s, "Invalid --nice value, out of range (+/- %d)", NICE_MOST);
            return SLURM_USAGE;
        }
        if (nice)
            p->nice = (int32_t)v;
    }
    if (priority && !slurm_same_word(priority, "top")) {
        if (parse_i64(priority, &v) < 0 || v < 0 || v > UINT32_MAX) {
            slurm_error(s, "Invalid numeric value \"%s\" for --priority.", priority);
            return SLURM_FAILED;
        }
        p->priority = (uint32_t)v;
        p->hold = v == 0;
    }
    p->hold = p->hold || slurm_opt_given(o, "hold");
    p->cancel_invalid_dependency =
        o->program == FOR_SBATCH && slurm_same_word(slurm_opt_filled(o, "kill-on-invalid-dep"), "yes");
    p->dependency = plain_dependency(s, slurm_opt_get(o, "dependency"));
    return 0;
}

// As it was typed, on one line and cut where it gets too long.
static const char *submit_line(struct slurm *s) {
    cleanup_buf struct buf b = {0};
    for (int i = 2; i < s->cli.argc && b.len <= COMMENT_MAX; i++)  // after "acequia slurm"
        buf_addf(&b, "%s%s", b.len ? " " : "", s->cli.argv[i]);
    for (size_t i = 0; i < b.len; i++)
        if ((unsigned char)b.data[i] < 32 || b.data[i] == 127)
            b.data[i] = ' ';
    size_t len = b.len < COMMENT_MAX ? b.len : COMMENT_MAX;
    while (len && !str_utf8_valid(buf_str(&b), len))
        len--;
    return arena_strndup(&s->cli.arena, buf_str(&b), len);
}

int slurm_job_spec_from(struct slurm *s, const struct opts *o, struct spec *out) {
    struct spec p = {0};
    char here[4096];
    int r = slurm_job_values_check(s, o);
    r = r ? r : take_counts(s, o, &p);
    r = r ? r : take_memory(s, o, &p);
    r = r ? r : take_gpus(s, o, &p);
    r = r ? r : take_times(s, o, &p);
    r = r ? r : take_places(s, o, &p);
    r = r || o->program == FOR_SALLOC ? r : take_files(s, o, &p);
    r = r ? r : take_control(s, o, &p);
    if (r)
        return r;
    spec_count_by_gpu(&p);
    job_umask(&p);
    p.slurm_words = true;
    p.submit_line = submit_line(s);
    p.name = slurm_opt_get(o, "job-name");
    p.project = slurm_opt_get(o, "account");
    p.partition = slurm_opt_get(o, "partition");
    if (slurm_opt_given(o, "partition") && str_empty(p.partition)) {
        slurm_error(s, "invalid partition specified: (null)");
        slurm_error(s, "%sInvalid partition name specified", slurm_submit_prefix(s));
        return SLURM_FAILED;
    }
    if (p.time_min_s && p.time_limit_s && p.time_min_s > p.time_limit_s) {
        slurm_error(s, "%sInvalid time-min specification (exceeds job's time or other limits)", slurm_submit_prefix(s));
        return SLURM_FAILED;
    }
    p.licenses = slurm_opt_filled(o, "licenses");
    p.qos = slurm_opt_get(o, "qos");
    p.comment = slurm_opt_get(o, "comment");
    p.notify = slurm_opt_get(o, "mail-type");
    p.notify_to = slurm_opt_filled(o, "mail-user");
    p.reservation = slurm_opt_filled(o, "reservation");
    p.container = slurm_opt_get(o, "container-image") ? slurm_opt_get(o, "container-image")
                                                      : slurm_opt_get(o, "container");
    p.container_mounts = slurm_opt_get(o, "container-mounts");
    p.container_workdir = slurm_opt_get(o, "container-workdir");
    p.container_name = slurm_opt_get(o, "container-name");
    const char *dir = slurm_opt_get(o, "chdir");
    if (!getcwd(here, sizeof here)) {
        slurm_error(s, "getcwd failed: %s", strerror(errno));
        return SLURM_FAILED;
    }
    p.workdir = !dir          ? arena_strdup(&s->cli.arena, here)
                : *dir == '/' ? dir
                              : arena_printf(&s->cli.arena, "%s/%s", here, dir);
    *out = p;
    return 0;
}
