// Owns which environment goes with a job, and the request that is sent.
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "base/vec.h"
#include "submit_options.h"
#include "model/name.h"
#include "model/secret.h"

extern char **environ;
typedef VEC(const char *) text_vec;

// What an outer job said about itself, and what the new one will be told anew.
static bool of_outer_job(const char *entry) {
    static const char *const prefixes[] = {
        "SLURM_JOB",       "SLURM_ARRAY_",    "SLURM_STEP",          "SLURM_TASK",       "SLURM_NTASKS",
        "SLURM_NPROCS",    "SLURM_NNODES",    "SLURM_NODELIST",      "SLURM_CPUS_",      "SLURM_GPUS",
        "SLURM_MEM_",      "SLURM_PROCID",    "SLURM_LOCALID",       "SLURM_NODEID",     "SLURM_GTIDS",
        "SLURMD_NODENAME", "SLURM_TOPOLOGY_", "SLURM_RESTART_COUNT", "SLURM_EXPORT_ENV", "SLURM_SUBMIT_",
        "SLURM_TRES_",     "SBATCH_",         "ACEQUIA_JOB",         "ACEQUIA_ARRAY",    "ACEQUIA_STEP",
        "ACEQUIA_NTASKS"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (str_has_prefix(entry, prefixes[i]))
            return true;
    return false;
}

static void set(text_vec *v, const char *entry) {
    size_t len = strcspn(entry, "=");
    for (uint32_t i = 0; i < v->len; i++)
        if (!strncmp(v->at[i], entry, len) && v->at[i][len] == '=') {
            v->at[i] = entry;
            return;
        }
    vec_push(v, entry);
}

// Secrets of the job stay behind: the environment that is sent is kept by the controller, and steps have them anyway.
static void add_all(text_vec *v, bool for_step) {
    const char *secrets = getenv(SECRET_VARIABLES);
    for (char **e = environ; *e; e++)
        if (strchr(*e, '=') && !secret_variable(secrets, *e) && (for_step || !of_outer_job(*e)) &&
            str_utf8_valid(*e, strlen(*e)))
            vec_push(v, *e);
}

static void add_ours(text_vec *v, bool for_step) {
    for (char **e = environ; *e; e++)
        if (str_has_prefix(*e, "SLURM_") && strchr(*e, '=') && (for_step || !of_outer_job(*e)) &&
            str_utf8_valid(*e, strlen(*e)))
            set(v, *e);
}

// The end of one item; a value may be quoted with ''.
static size_t item_len(const char *p) {
    size_t n = 0;
    for (char quote = 0; p[n] && (quote || p[n] != ','); n++)
        if (p[n] == '\'' || p[n] == '"')
            quote = quote ? 0 : p[n];
    return n;
}

static void add_item(struct slurm *s, text_vec *v, const char *item, bool for_step) {
    if (slurm_same_word(item, "ALL")) {
        add_all(v, for_step);
    } else if (strchr(item, '=')) {
        char *copy = arena_strdup(&s->cli.arena, item), *value = strchr(copy, '=') + 1;
        size_t n = strlen(value);
        if (n > 1 && (*value == '\'' || *value == '"') && value[n - 1] == *value) {
            memmove(value, value + 1, n - 2);
            value[n - 2] = 0;
        }
        set(v, copy);
    } else if (*item && getenv(item) && !secret_variable(getenv(SECRET_VARIABLES), item)) {
        set(v, arena_printf(&s->cli.arena, "%s=%s", item, getenv(item)));
    }
}

static void add_numbers(struct slurm *s, const struct opts *o, const struct spec *spec, text_vec *v) {
    const struct {
        const char *option, *variable;
        uint64_t value;
    } told[] = {{"cpus-per-task", "SLURM_CPUS_PER_TASK", spec->cpus_per_task},
                {"ntasks-per-node", "SLURM_NTASKS_PER_NODE", spec->tasks_per_node},
                {"ntasks-per-gpu", "SLURM_NTASKS_PER_GPU", spec->ntasks_per_gpu},
                {"cpus-per-gpu", "SLURM_CPUS_PER_GPU", spec->cpus_per_gpu},
                {"mem", "SLURM_MEM_PER_NODE", spec->memory_per_node_bytes >> 20},
                {"mem-per-cpu", "SLURM_MEM_PER_CPU", spec->memory_per_cpu_bytes >> 20},
                {"mem-per-gpu", "SLURM_MEM_PER_GPU", spec->memory_per_gpu_bytes >> 20}};
    struct arena *a = &s->cli.arena;
    for (size_t i = 0; i < sizeof told / sizeof *told; i++)
        if (slurm_opt_given(o, told[i].option) && told[i].value)
            set(v, arena_printf(a, "%s=%llu", told[i].variable, (unsigned long long)told[i].value));
    uint32_t tasks = spec->tasks;
    if (slurm_opt_given(o, "overcommit")) {
        uint32_t each = 1;
        set(v, "SLURM_OVERCOMMIT=1");
        slurm_job_count_arg(s, o, "ntasks-per-node", &each);
        tasks *= each;
        slurm_job_count_arg(s, o, "ntasks", &tasks);
    }
    if (tasks && (slurm_opt_given(o, "ntasks") || slurm_opt_given(o, "ntasks-per-node") ||
                  slurm_opt_given(o, "ntasks-per-gpu"))) {
        set(v, arena_printf(a, "SLURM_NTASKS=%u", tasks));
        set(v, arena_printf(a, "SLURM_NPROCS=%u", tasks));
    }
}

// A script or shell is told what was asked for, in the words it was asked in; so are the steps in it.
static void add_asked(struct slurm *s, const struct opts *o, const struct spec *spec, text_vec *v) {
    static const struct {
        const char *option, *variable;
    } told[] = {{"gpus", "SLURM_GPUS"},
                {"gpus-per-node", "SLURM_GPUS_PER_NODE"},
                {"gpus-per-task", "SLURM_GPUS_PER_TASK"},
                {"gpu-bind", "SLURM_GPU_BIND"},
                {"gpu-freq", "SLURM_GPU_FREQ"},
                {"hint", "SLURM_HINT"},
                {"distribution", "SLURM_DISTRIBUTION"},
                {"threads-per-core", "SLURM_THREADS_PER_CORE"},
                {"ntasks-per-core", "SLURM_NTASKS_PER_CORE"},
                {"ntasks-per-socket", "SLURM_NTASKS_PER_SOCKET"}};
    struct arena *a = &s->cli.arena;
    for (size_t i = 0; i < sizeof told / sizeof *told; i++)
        if (slurm_opt_get(o, told[i].option))
            set(v, arena_printf(a, "%s=%s", told[i].variable, slurm_opt_get(o, told[i].option)));
    if (slurm_same_word(slurm_opt_get(o, "hint"), "nomultithread"))
        set(v, "SLURM_THREADS_PER_CORE=1");
    add_numbers(s, o, spec, v);
    if (o->program != FOR_SBATCH)
        return;
    if (slurm_opt_get(o, "open-mode"))
        set(v, spec->append ? "SLURM_OPEN_MODE=a" : "SLURM_OPEN_MODE=t");
    if (spec->array.len) {  // a list is kept as ranges with steps; only a step that was written is told
        const char *colon = strrchr(slurm_opt_get(o, "array"), ':');
        set(v, arena_printf(a, "SLURM_ARRAY_TASK_STEP=%.*s", colon ? (int)strspn(colon + 1, "0123456789") : 1,
                            colon ? colon + 1 : "1"));
    }
}

static void give(struct slurm *s, text_vec *v, struct texts *out) {
    vec_push(v, NULL);
    *out = (struct texts){arena_memdup(&s->cli.arena, v->at, v->len * sizeof *v->at), v->len - 1};
    vec_done(v);
}

void slurm_job_asked(struct slurm *s, const struct opts *o, const struct spec *spec, struct texts *out) {
    text_vec v = {0};
    add_asked(s, o, spec, &v);
    give(s, &v, out);
}

int slurm_job_export(struct slurm *s, const struct opts *o, const struct spec *spec, struct texts *out) {
    const char *what = o->program == FOR_SALLOC ? NULL : slurm_opt_get(o, "export");
    text_vec v = {0};
    char host[256] = "", here[4096];
    bool for_step = !spec;
    if (!what || slurm_same_word(what, "ALL")) {
        add_all(&v, for_step);
    } else {
        add_ours(&v, for_step);
        for (const char *p = what; *p && !slurm_same_word(what, "NONE") && !slurm_same_word(what, "NIL");) {
            size_t n = item_len(p);
            add_item(s, &v, arena_strndup(&s->cli.arena, p, n), for_step);
            p += n + (p[n] == ',');
        }
    }
    if (!for_step) {
        if (what)
            set(&v, arena_printf(&s->cli.arena, "SLURM_EXPORT_ENV=%s", what));
        if (gethostname(host, sizeof host - 1) == 0)
            set(&v, arena_printf(&s->cli.arena, "SLURM_SUBMIT_HOST=%s", host));
        if (getcwd(here, sizeof here))
            set(&v, arena_printf(&s->cli.arena, "SLURM_SUBMIT_DIR=%s", here));
        if (o->program == FOR_SBATCH)
            add_asked(s, o, spec, &v);
    }
    give(s, &v, out);
    return 0;
}

void slurm_job_request(const struct spec *spec, const struct script *script, const struct texts *environment,
                 bool dry_run, bool no_requeue, struct buf *out) {
    struct json_writer w = {.out = out};
    json_open(&w, '{');
    json_key(&w, "spec");
    struct spec given = *spec;
    if (no_requeue)
        schema_give(&spec_schema, &given, &given.requeue);
    schema_write_given_json(&spec_schema, &given, &w);
    if (script && script->text) {
        json_key(&w, "script");
        json_put_strn(&w, script->text, script->len);
    }
    json_open_key(&w, "environment", '[');
    for (uint32_t i = 0; i < environment->len; i++)
        json_put_str(&w, environment->at[i]);
    json_close(&w, ']');
    if (dry_run)
        json_kv_bool(&w, "dry_run", true);
    json_close(&w, '}');
}

// The controller's sentences by their beginnings, and Slurm's words for the same; `first` is a line
// that Slurm prints before.
static const struct {
    const char *begins, *words, *first;
} submit_errors[] = {
    {"partition", "Invalid partition name specified", NULL},
    {"closed", "Required partition not available (inactive or drain)", NULL},
    {"project", "Invalid account or account/partition combination specified", NULL},
    {"QoS", "Invalid qos specification", NULL},
    {"qos", "Invalid qos specification", NULL},
    {"reservation", "Requested reservation is invalid", NULL},
    {"license", "Invalid license specification", NULL},
    {"features", "Invalid feature specification", NULL},
    {"dependency", "Job dependency problem", NULL},
    {"array", "Invalid job array specification", NULL},
    {"exclude", "Invalid node name specified", NULL},
    {"nodes: node", "Invalid node name specified", NULL},
    {"node list", "Invalid node name specified", NULL},
    {"time limit", "Requested time limit is invalid (missing or exceeds some limit)", NULL},
    {"time_limit_s", "Requested time limit is invalid (missing or exceeds some limit)", NULL},
    {"deadline", "Requested time limit is invalid (missing or exceeds some limit)", NULL},
    {"cpus", "Requested node configuration is not available", NULL},
    {"memory", "Requested node configuration is not available", "Memory specification can not be satisfied"},
    {"gpus", "Requested node configuration is not available", NULL},
    {"GPU", "Requested node configuration is not available", NULL},
    {"nodes", "Requested node configuration is not available", NULL},
    {"tasks", "Requested node configuration is not available", NULL},
    {"nice", "Invalid --nice value", NULL},
    {"priority", "Access/permission denied", NULL},
    {"you have", "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)", NULL},
    {"the queue holds", "Slurm temporarily unable to accept job, sleeping and retrying", NULL},
};

const char *slurm_submit_prefix(const struct slurm *s) {
    if (streq(s->program, "sbatch"))
        return "Batch job submission failed: ";
    return streq(s->program, "salloc") ? "Job submit/allocate failed: " : "Unable to allocate resources: ";
}

const char *slurm_submit_words(const char *text) {
    if (strstr(text, "is not a dependency"))
        return "Job dependency problem";
    for (size_t i = 0; i < sizeof submit_errors / sizeof *submit_errors; i++)
        if (str_has_prefix(text, submit_errors[i].begins))
            return submit_errors[i].words;
    return NULL;
}

// Of a list, the one that is not known: it stands in quotes.
static const char *unknown_partition(struct slurm *s, const char *list, const char *text) {
    const char *name = strchr(text, '"');
    if (!name_list_several(list) || !name || !strchr(name + 1, '"'))
        return list;
    name = arena_strndup(&s->cli.arena, name + 1, strcspn(name + 1, "\""));
    return strchr(name, ',') ? "(null)" : name;
}

const char *slurm_submit_error_text(struct slurm *s, const struct spec *spec) {
    const char *text = s->cli.error.text;
    if (strstr(text, "is not a dependency"))
        text = arena_printf(&s->cli.arena, "dependency: %s", text);
    for (size_t i = 0; i < sizeof submit_errors / sizeof *submit_errors; i++)
        if (str_has_prefix(text, submit_errors[i].begins)) {
            if (submit_errors[i].first)
                slurm_error(s, "%s", submit_errors[i].first);
            if (i == 0 && spec && spec->partition)
                slurm_error(s, "invalid partition specified: %s", unknown_partition(s, spec->partition, text));
            else
                slurm_error(s, "%s", text);
            return submit_errors[i].words;
        }
    return text;
}
