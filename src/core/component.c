// The components of a job with workers: kinds of workers, each with a shape, a minimum and a maximum. A component's
// workers share a submission, which is derived from the job's and describes one of them. A job with one kind of workers
// has one component, whose submission is the job's own.
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/text.h"
#include "model/name.h"
#include "state.h"

// --- checks ---

// What a job with components leaves to them.
static const char *own_shape(const struct spec *s) {
    const struct {
        const char *name;
        bool given;
    } fields[] = {
        {"nodes_min", s->nodes_min || s->nodes_max},
        {"tasks", s->tasks || s->tasks_per_node || s->ntasks_per_gpu},
        {"cpus_per_task", s->cpus_per_task || s->cpus_per_gpu},
        {"memory_per_node_bytes",
         s->memory_per_node_bytes || s->memory_per_cpu_bytes || s->memory_per_gpu_bytes},
        {"gpus_milli",
         s->gpus_milli || s->gpus_per_node_milli || s->gpus_per_task_milli || s->gpu_memory_bytes},
        {"gpu_model", s->gpu_model != NULL},
        {"features", !str_empty(s->features)},
        {"nodes", !str_empty(s->nodes) || !str_empty(s->exclude)},
        {"container", !str_empty(s->container) || !str_empty(s->container_name)},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (fields[i].given)
            return fields[i].name;
    return NULL;
}

static int check_component(const struct spec *s, uint32_t i, struct error *e) {
    const struct job_component *k = &s->components.at[i];
    struct spec worker;
    int r = str_empty(k->name) ? error_set(e, EINVAL, "components: component %u has no name", i)
                               : name_check("component", k->name, e);
    if (r < 0)
        return r;
    for (uint32_t other = 0; other < i; other++)
        if (streq(s->components.at[other].name, k->name))
            return error_set(e, EINVAL, "components: there are two with the name \"%s\"", k->name);
    if (k->workers_min > k->workers_max)
        return error_set(e, EINVAL,
                         "component %s: %u-%u workers is not a range; expected the least number first",
                         k->name, k->workers_min, k->workers_max);
    if (!k->workers_min && !spec_component_may_be_empty(s, i))
        return error_set(
            e, EINVAL,
            "component %s: %u-%u workers; it needs at least 1: only beside a component \"head\" can "
            "another one have none",
            k->name, k->workers_min, k->workers_max);
    spec_component(s, i, &worker);
    if (!spec_worker_is_task(&worker) && k->workers_min != k->workers_max)
        return error_set(e, EINVAL,
                         "component %s: workers with several tasks or nodes come in a fixed number; give one number "
                         "of workers instead of %u-%u",
                         k->name, k->workers_min, k->workers_max);
    if (name_list_several(worker.partition))
        return error_set(e, EINVAL, "component %s: \"%s\" are several partitions; give it one", k->name,
                         worker.partition);
    return 0;
}

int core_components_check(const struct core *c, const struct spec *s, struct error *e) {
    uint64_t parts = 0;
    if (s->component)
        return error_set(e, EINVAL,
                         "component: only the controller sets it; describe kinds of workers in components");
    if (!s->components.len)
        return 0;
    if (!core_feature(c, FEATURE_COMPONENTS))
        return error_set(e, ENOTSUP, "components: finish the upgrade first: acequia upgrade finish");
    if (s->components.len > JOB_COMPONENTS_MAX)
        return error_set(e, E2BIG, "components: %u are too many; a job has at most %d", s->components.len,
                         JOB_COMPONENTS_MAX);
    const char *field = own_shape(s);
    if (field)
        return error_set(e, EINVAL,
                         "%s: a job with components has no resources of its own; give this to a component",
                         field);
    for (uint32_t i = 0; i < s->components.len; i++) {
        int r = check_component(s, i, e);
        struct spec worker;
        if (r < 0)
            return r;
        spec_component(s, i, &worker);
        parts += spec_worker_is_task(&worker) ? 1 : worker.workers_min;
    }
    if (parts > SCHED_PARTS_MAX + 1)
        return error_set(e, E2BIG,
                         "components: %llu workers with several tasks or nodes and components of others; at most %d "
                         "can start together",
                         (unsigned long long)parts, SCHED_PARTS_MAX + 1);
    return 0;
}

// --- requests ---

// The spec describes one worker; `workers` of them are one request, each a task of it.
void core_group_request(const struct spec *s, uint32_t workers, struct sched_request *out) {
    uint32_t cpus = s->cpus_per_task ? s->cpus_per_task : 1;
    if (!spec_worker_is_task(s))
        return;
    out->nodes_min = out->nodes_max = out->tasks_per_node = 0;
    out->tasks = workers;
    out->gpu_milli_per_task = s->gpus_per_task_milli   ? s->gpus_per_task_milli
                              : s->gpus_per_node_milli ? s->gpus_per_node_milli
                                                       : s->gpus_milli;
    out->gpu_milli_per_job = out->gpu_milli_per_node = 0;
    if (s->memory_per_node_bytes) {
        out->memory_per_cpu_bytes = (s->memory_per_node_bytes + cpus - 1) / cpus;
        out->memory_per_node_bytes = 0;
    }
}

int core_components_request(struct core *c, const char *user, const struct spec *s, const uint32_t *counts,
                            struct arena *a, struct sched_request *out, struct error *e) {
    uint32_t n = 0;
    int result = 0;
    for (uint32_t i = 0; i < s->components.len; i++)
        n += counts ? counts[i] : s->components.at[i].workers_min;
    struct sched_request *parts = arena_alloc(a, (n + 1) * sizeof *parts);
    n = 0;
    for (uint32_t i = 0; i < s->components.len; i++) {
        uint32_t workers = counts ? counts[i] : s->components.at[i].workers_min;
        struct spec worker;
        spec_component(s, i, &worker);
        uint32_t copies = spec_worker_is_task(&worker) ? workers > 0 : workers;
        for (uint32_t k = 0; k < copies && n <= SCHED_PARTS_MAX; k++, n++) {
            int r = core_request(c, user, &worker, a, &parts[n], result < 0 ? NULL : e);
            result = result < 0 ? result : r;
            core_group_request(&worker, workers, &parts[n]);
        }
    }
    if (!n) {  // nothing of it is wanted any more; the caller does not place it
        struct spec worker;
        spec_component(s, 0, &worker);
        return core_request(c, user, &worker, a, out, e);
    }
    *out = parts[0];
    out->parts = parts + 1;
    out->part_count = n - 1;
    return result;
}

static const struct world_request *replace(struct core *c, const struct world_request *old,
                                           const struct sched_request *asked) {
    const struct world_request *made = world_request(c->world, asked);
    if (old)
        world_request_unref(c->world, old);
    return made;
}

static const struct world_request *worker_request(struct core *c, const struct world_request *old,
                                                  const struct spec *worker, uint32_t workers, bool optional) {
    cleanup_arena struct arena a = {0};
    struct sched_request asked;
    core_request(c, worker->user, worker, &a, &asked, NULL);
    core_group_request(worker, workers, &asked);
    asked.user = core_user_handle(c, worker->user);
    asked.optional = optional;
    return replace(c, old, &asked);
}

void core_group_set_together(struct core *c, struct group *g, const struct spec *s) {
    cleanup_arena struct arena a = {0};
    uint32_t counts[JOB_COMPONENTS_MAX];
    struct sched_request asked;
    if (!s->components.len) {
        g->together = worker_request(c, g->together, s, g->components.at[0].together, false);
        return;
    }
    for (uint32_t i = 0; i < g->components.len; i++)
        counts[i] = g->components.at[i].together;
    core_components_request(c, s->user, s, counts, &a, &asked, NULL);
    asked.user = core_user_handle(c, s->user);
    for (uint32_t i = 0; i < asked.part_count; i++)
        ((struct sched_request *)(uintptr_t)asked.parts)[i].user = asked.user;
    g->together = replace(c, g->together, &asked);
}

// --- state ---

static void set_component(struct core *c, struct group *g, struct group_component *k, const struct spec *worker,
                          int64_t submit_ms) {
    k->name = core_intern(c, worker->component ? worker->component : "worker");
    k->min = worker->workers_min;
    k->max = worker->workers_max;
    k->head = streq(k->name, COMPONENT_HEAD);
    k->task = spec_worker_is_task(worker);
    k->single = worker_request(c, k->single, worker, 1, false);
    k->optional = worker_request(c, k->optional, worker, 1, true);
    if (!worker->component)
        return;
    struct submission *old = k->sub;
    k->sub = core_submission_new(c, g->id, worker, submit_ms);
    k->sub->group = g;
    k->sub->refs = 1;
    core_submission_unref(c, old);
}

void core_group_set_spec(struct core *c, struct group *g, const struct spec *s, int64_t submit_ms) {
    uint32_t count = s->components.len ? s->components.len : 1;
    assert(!g->components.len || g->components.len == count);
    g->min = g->max = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct spec worker = *s;
        if (s->components.len)
            spec_component(s, i, &worker);
        if (i == g->components.len)
            vec_push(&g->components, ((struct group_component){0}));
        set_component(c, g, &g->components.at[i], &worker, submit_ms);
        g->min += g->components.at[i].min;
        g->max += g->components.at[i].max;
    }
}

void core_components_free(struct core *c, struct group *g) {
    for (uint32_t i = 0; i < g->components.len; i++) {
        struct group_component *k = &g->components.at[i];
        world_request_unref(c->world, k->single);
        world_request_unref(c->world, k->optional);
        core_submission_unref(c, k->sub);
    }
    vec_done(&g->components);
}

struct group_component *core_component_of(const struct group *g, const struct group_worker *w) {
    assert(w->component < g->components.len);
    return &g->components.at[w->component];
}

int core_component_find(const struct group *g, const char *name) {
    for (uint32_t i = 0; i < g->components.len; i++)
        if (name && streq(g->components.at[i].name, name))
            return (int)i;
    return -ENOENT;
}

const struct core_job *core_group_head(const struct core *c, const struct group *g) {
    for (uint32_t i = 0; i < g->workers.len; i++) {
        const struct core_job *j =
            core_component_of(g, &g->workers.at[i])->head ? core_worker_job(c, &g->workers.at[i]) : NULL;
        if (j)
            return j;
    }
    return NULL;
}

bool core_group_has_head(const struct group *g) {
    for (uint32_t i = 0; i < g->components.len; i++)
        if (g->components.at[i].head)
            return true;
    return false;
}
