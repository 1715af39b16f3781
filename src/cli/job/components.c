// --component "NAME: options": the kinds of workers of a job that has several.
#include <errno.h>
#include <string.h>

#include "base/text.h"
#include "cli/job/options.h"
#include "model/name.h"

enum { WORDS_MAX = 256 };

// What a component can say for itself; all else is the job's.
static const char *const own[] = {
    "nodes",     "tasks",     "tasks-per-node", "cpus",           "memory",           "memory-per-cpu",
    "memory-per-gpu", "gpus", "gpus-per-node",  "gpus-per-task",  "gpu-memory",       "cpus-per-gpu",
    "tasks-per-gpu", "partition", "constraint", "nodelist",       "exclude",          "spread",
    "same-socket", "workers", "output",         "error",          "container",        "container-mounts",
    "container-workdir"};

static bool is_own(const char *option) {
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (streq(own[i], option))
            return true;
    return false;
}

void job_component_of_spec(const struct spec *s, struct job_component *out) {
    out->workers_min = s->workers_min;
    out->workers_max = s->workers_max;
    out->partition = s->partition;
    out->output = s->output;
    out->error = s->error;
    out->launch = s->launch;
#define TAKE(member) out->member = s->member;
    COMPONENT_SHAPE(TAKE)
#undef TAKE
}

static int read_options(struct cli *c, const struct cli_options *o, struct job_component *out) {
    struct spec s;
    for (uint32_t i = 0; i < o->values.len; i++)
        if (!is_own(o->values.at[i].option->name))
            return error_set(&c->error, EINVAL,
                             "--%s applies to the whole job; give it outside of --component",
                             o->values.at[i].option->name);
    int r = job_spec(c, o, &s);
    if (r < 0)
        return r;
    job_component_of_spec(&s, out);
    out->workers_given = option_given(o, "workers");
    out->argv.at = arena_memdup(&c->arena, o->arguments.at, o->arguments.len * sizeof *o->arguments.at);
    out->argv.len = o->arguments.len;
    return 0;
}

static int read_component(struct cli *c, const char *text, struct job_component *out) {
    static const struct option_table *const tables[] = {&job_resource_options, &job_control_options, NULL};
    size_t n = strcspn(text, ":");
    char *rest = arena_strdup(&c->arena, text[n] ? text + n + 1 : ""), *words[WORDS_MAX], *word;
    struct cli_options o;
    int count = 0;
    *out = (struct job_component){.name = arena_strndup(&c->arena, text, n)};
    if (!n)
        return error_set(&c->error, EINVAL, "expected NAME: OPTIONS, as in 'train: --workers 2-8 -g 1'");
    int r = name_check("component", out->name, &c->error);
    if (r < 0)
        return r;
    while ((word = job_next_word(&rest))) {
        if (count == WORDS_MAX)
            return error_set(&c->error, E2BIG, "component %s has more than %d words", out->name, WORDS_MAX);
        words[count++] = word;
    }
    if ((r = options_parse(tables, count, words, true, &o, &c->error)) < 0)
        return r;
    r = read_options(c, &o, out);
    options_done(&o);
    return r;
}

int job_components(struct cli *c, const struct cli_options *o, struct spec *s) {
    uint32_t it = 0, count = 0;
    while (option_next(o, "component", &it))
        count++;
    if (count > JOB_COMPONENTS_MAX)
        return error_set(&c->error, E2BIG, "--component: a job has at most %d components",
                         JOB_COMPONENTS_MAX);
    if (count && s->workers_max)
        return error_set(&c->error, EINVAL, "--workers: give it to a component, as in 'train: --workers 2-8'");
    s->components.at = arena_alloc(&c->arena, (count + 1) * sizeof *s->components.at);
    it = 0;
    for (const char *text; (text = option_next(o, "component", &it)); s->components.len++) {
        int r = read_component(c, text, &s->components.at[s->components.len]);
        if (r < 0) {
            error_prefix(&c->error, "--component");
            return r;
        }
    }
    return 0;
}
