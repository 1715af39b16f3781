// Submit and update: every field of a spec is checked before anything is stored, here against itself and the
// cluster, in sched/check.c against what nodes, partitions, QoS and projects allow. A message says field,
// value and remedy.
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "state.h"
#include "model/license.h"
#include "model/arrayspec.h"
#include "model/constraint.h"
#include "model/mountspec.h"
#include "model/name.h"
#include "model/nodelist.h"
#include "model/pattern.h"
#include "model/port.h"
#include "model/secret.h"
#include "model/signalname.h"
#include "model/tag.h"
#include "model/units.h"
#include "model/volume.h"

enum {
    NICE_MAX = 10000,
    RETRIES_MAX = 10000,
    BACKOFF_MAX_S = 30 * 86400,
    ARGV_MAX = 65536,
    ARGV_BYTES_MAX = 1 << 20,
    PATH_BYTES_MAX = 4095,
    SINGLETON_ARRAY_MAX = 1000,
    PARTITIONS_PER_JOB = 16,
    CONTAINER_TEXT_MAX = 16383,
    SPEC_BYTES_MAX = 4 << 20,  // encoded; a record of the journal is at most 16 MiB
};

static int check_range(const char *field, uint64_t value, uint64_t max, struct error *e) {
    if (value <= max)
        return 0;
    return error_set(e, ERANGE, "%s: %llu is too large; at most %llu is allowed", field,
                     (unsigned long long)value, (unsigned long long)max);
}

static int check_path(const char *field, const char *path, struct error *e) {
    if (!path)
        return 0;
    if (strlen(path) > PATH_BYTES_MAX)
        return error_set(e, ENAMETOOLONG, "%s: the path has %zu bytes; at most %d are allowed", field,
                         strlen(path), PATH_BYTES_MAX);
    if (str_has_control_chars(path, strlen(path)))
        return error_set(e, EINVAL, "%s: the path contains control characters; remove them", field);
    return 0;
}

static int check_texts(const struct spec *s, struct error *e) {
    int r;
    if ((r = job_name_check(s->name, e)) < 0)
        return r;
    if (s->submit_line && (r = name_line_check("submit_line", s->submit_line, COMMENT_MAX, e)) < 0)
        return r;
    if (s->comment && (r = name_line_check("comment", s->comment, COMMENT_MAX, e)) < 0)
        return r;
    if ((r = core_check_notify(s, e)) < 0 ||
        (r = secret_wishes_check(s->secrets.at, s->secrets.len, e)) < 0 ||
        (r = ports_check(s->ports.at, s->ports.len, e)) < 0 || (r = health_check_spec(s, e)) < 0 ||
        (r = volume_wishes_check(s->volumes.at, s->volumes.len, e)) < 0)
        return r;
    if (!s->workdir || s->workdir[0] != '/')
        return error_set(e, EINVAL, "workdir: \"%s\" is not an absolute path", s->workdir ? s->workdir : "");
    const char *const fields[] = {"workdir", "output", "error", "input"};
    const char *const paths[] = {s->workdir, s->output, s->error, s->input};
    for (int i = 0; i < 4; i++)
        if ((r = check_path(fields[i], paths[i], e)) < 0)
            return r;
    // Output and error alone may have patterns like %j; the name of the input is taken as it is.
    for (int i = 1; i < 3; i++)
        if (paths[i] && (r = pattern_check(paths[i], e)) < 0)
            return r;
    size_t bytes = 0;
    if (s->argv.len > ARGV_MAX)
        return error_set(e, E2BIG, "argv: %u arguments; at most %d are allowed", s->argv.len, ARGV_MAX);
    for (uint32_t i = 0; i < s->argv.len; i++)
        bytes += strlen(s->argv.at[i]) + 1;
    if (bytes > ARGV_BYTES_MAX)
        return error_set(e, E2BIG,
                         "argv: %zu bytes of arguments; at most %d are allowed. Put them into a file", bytes,
                         ARGV_BYTES_MAX);
    // An image may have a command of its own, and a job of steps runs nothing by itself.
    if (!s->argv.len && str_empty(s->script_id) && str_empty(s->container) && str_empty(s->container_name) &&
        s->launch != LAUNCH_STEPS)
        return error_set(e, EINVAL, "there is nothing to run: give a command after --, or a script");
    if (s->argv.len && !*s->argv.at[0] && str_empty(s->script_id))
        return error_set(e, EINVAL, "argv: it is empty");
    return 0;
}

static bool in_container(const struct spec *s) {
    return !str_empty(s->container) || !str_empty(s->container_name);
}

static int check_container(const struct spec *s, struct error *e) {
    cleanup_arena struct arena a = {0};
    const struct {
        const char *what, *text;
    } texts[] = {{"container", s->container},
                 {"container_mounts", s->container_mounts},
                 {"container_workdir", s->container_workdir},
                 {"container_name", s->container_name}};
    struct mount_specs mounts;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        int r = str_empty(texts[i].text)
                    ? 0
                    : name_line_check(texts[i].what, texts[i].text, CONTAINER_TEXT_MAX, e);
        if (r < 0)
            return r;
        if (!str_empty(texts[i].text) && !in_container(s))
            return error_set(e, EINVAL, "%s: there is no container; name an image with --container", texts[i].what);
    }
    if (!str_empty(s->container_name) && name_check("container_name", s->container_name, e) < 0)
        return -EINVAL;
    if (s->container_pull && str_empty(s->container))
        return error_set(e, EINVAL, "container_pull: there is no image; name one with --container");
    if (s->image_task && (in_container(s) || !str_empty(s->script_id) || s->tasks > 1 || s->nodes_min > 1))
        return error_set(
            e, EINVAL,
            "image_task: work on images is one process on one node, without a container or script");
    if (!str_empty(s->container_workdir) && *s->container_workdir != '/')
        return error_set(e, EINVAL, "container_workdir: \"%s\" is not an absolute path", s->container_workdir);
    return str_empty(s->container_mounts)
               ? 0
               : spec_mounts_parse("container_mounts", s->container_mounts, &a, &mounts, e);
}

// What the scheduler does not look at. Nodes, tasks, CPUs and GPUs: sched/check.c.
static int check_amounts(const struct spec *s, struct error *e) {
    int r;
    if ((r = check_range("memory_per_node_bytes", s->memory_per_node_bytes, SIZE_LIMIT_BYTES, e)) < 0 ||
        (r = check_range("memory_per_cpu_bytes", s->memory_per_cpu_bytes,
                         SIZE_LIMIT_BYTES / SCHED_CPUS_PER_TASK_MAX, e)) < 0 ||
        (r = check_range("memory_per_gpu_bytes", s->memory_per_gpu_bytes,
                         SIZE_LIMIT_BYTES / SCHED_CPUS_PER_TASK_MAX, e)) < 0 ||
        (r = check_range("gpu_memory_bytes", s->gpu_memory_bytes, SIZE_LIMIT_BYTES, e)) < 0 ||
        (r = check_range("time_limit_s", s->time_limit_s, DURATION_LIMIT_S, e)) < 0 ||
        (r = check_range("time_min_s", s->time_min_s, DURATION_LIMIT_S, e)) < 0 ||
        (r = check_range("grace_s", s->grace_s, 86400, e)) < 0 ||
        (r = check_range("retries", s->retries, RETRIES_MAX, e)) < 0 ||
        (r = check_range("backoff_s", s->backoff_s, BACKOFF_MAX_S, e)) < 0 ||
        (r = check_range("min_run_s", s->min_run_s, DURATION_LIMIT_S, e)) < 0 ||
        (r = check_range("signal", s->signal, SIGNAL_NUMBER_MAX, e)) < 0 ||
        (r = check_range("signal_before_s", s->signal_before_s, SIGNAL_BEFORE_MAX_S, e)) < 0)
        return r;
    if (s->time_min_s && s->time_limit_s && s->time_min_s > s->time_limit_s) {
        char least[UNIT_TEXT_MAX], most[UNIT_TEXT_MAX];
        return error_set(e, EINVAL, "time_min_s: %s is above the time limit, %s; give less",
                         duration_format(s->time_min_s, least), duration_format(s->time_limit_s, most));
    }
    if (s->begin_ms < 0 || s->begin_ms > TIME_LIMIT_MS || s->deadline_ms < 0 || s->deadline_ms > TIME_LIMIT_MS)
        return error_set(e, ERANGE, "begin or deadline: the time is out of range");
    if ((r = check_range("umask", s->umask, 0777, e)) < 0)
        return r;
    if ((r = check_container(s, e)) < 0)
        return r;
    if (s->nice < -NICE_MAX || s->nice > NICE_MAX)
        return error_set(e, ERANGE, "nice: %d is out of range; expected %d to %d", s->nice, -NICE_MAX, NICE_MAX);
    return 0;
}

static int check_array(const struct core *c, const struct spec *s, struct error *e) {
    uint64_t count = 0;
    for (uint32_t i = 0; i < s->array.len; i++) {
        const struct array_range *r = &s->array.at[i];
        if (!r->step || r->last < r->first || r->last > ARRAY_INDEX_MAX)
            return error_set(
                e, EINVAL,
                "array: the range %u-%u:%u is not valid; expected first-last:step with indices up to %d",
                r->first, r->last, r->step, ARRAY_INDEX_MAX);
        count += (r->last - r->first) / r->step + 1;
        for (uint32_t k = 0; k < i && s->array.len <= 64; k++)  // long lists come sorted from the parser
            if (r->first <= s->array.at[k].last && s->array.at[k].first <= r->last && r->step == 1 &&
                s->array.at[k].step == 1)
                return error_set(e, EINVAL, "array: the ranges %u-%u and %u-%u overlap", s->array.at[k].first,
                                 s->array.at[k].last, r->first, r->last);
    }
    if (count > c->config.max_array_size)
        return error_set(e, E2BIG, "array: %llu elements; at most %u are allowed (max_array_size)",
                         (unsigned long long)count, c->config.max_array_size);
    if (s->array_limit && !s->array.len)
        return error_set(e, EINVAL, "array_limit: only an array can have one");
    return 0;
}

// A name that is not known gets the nearest one as a hint.
static int unknown(const struct core *c, enum entity_kind t, const char *name, struct error *e) {
    const char *best = NULL;
    unsigned distance = str_edit_distance_near(name);
    for (uint32_t i = 0; i < c->entity_list[t].len; i++) {
        const struct entity_entry *x = c->entity_list[t].at[i];
        unsigned d = str_edit_distance(x->name, name);
        if (x->value && d < distance) {
            distance = d;
            best = x->name;
        }
    }
    char shown[64];
    str_printable(name, shown, sizeof shown);
    if (best)
        return error_set(e, ENOENT, "%s \"%s\" does not exist; did you mean \"%s\"?", entity_word(t), shown,
                         best);
    return error_set(e, ENOENT, "%s \"%s\" does not exist; see 'acequia %s list'", entity_word(t), shown,
                     entity_command(t));
}

// One name of a list; the text lives in `out`.
static const char *name_at(const char *at, size_t len, char out[static IDENTIFIER_MAX + 1]) {
    snprintf(out, IDENTIFIER_MAX + 1, "%.*s", (int)(len < IDENTIFIER_MAX ? len : IDENTIFIER_MAX), at);
    return out;
}

static int check_partitions(const struct core *c, const char *list, struct error *e) {
    char name[IDENTIFIER_MAX + 1];
    size_t len;
    uint32_t count = 0;
    if (str_empty(list))
        return error_set(e, ENOENT,
                         "partition: there is none; an administrator creates one with 'acequia partition create'");
    if (!name_list_several(list))
        return core_find_entity(c, ENTITY_PARTITION, list) ? 0 : unknown(c, ENTITY_PARTITION, list, e);
    for (const char *at, *rest = list; (at = name_list_next(&rest, &len));) {
        if (len > IDENTIFIER_MAX || !core_find_entity(c, ENTITY_PARTITION, name_at(at, len, name)))
            return unknown(c, ENTITY_PARTITION, name_at(at, len, name), e);
        if (++count > PARTITIONS_PER_JOB)
            return error_set(e, E2BIG, "partition: a job may name at most %d", PARTITIONS_PER_JOB);
    }
    return count ? 0 : unknown(c, ENTITY_PARTITION, list, e);
}

static int check_open(const struct core *c, const char *list, struct error *e) {
    char name[IDENTIFIER_MAX + 1];
    size_t len;
    for (const char *at, *rest = list; (at = name_list_next(&rest, &len));) {
        const struct entity_entry *t =
            len <= IDENTIFIER_MAX ? core_find_entity(c, ENTITY_PARTITION, name_at(at, len, name)) : NULL;
        if (t && ((const struct partition *)t->value)->closed)
            return error_set(e, EBUSY, "closed: partition \"%s\" accepts no new jobs now; choose another", t->name);
    }
    return 0;
}

// Seats that can never be had are refused; those in use are waited for. Workers start and leave one by one, so that
// the seats of their job would be held by none of them.
int core_licenses_check(const struct core *c, const struct spec *s, struct error *e) {
    cleanup_arena struct arena a = {0};
    struct license_asks asks;
    int r = license_asks_parse(s->licenses, &a, &asks, e);
    if (r < 0 || !asks.len)
        return r;
    if (!core_feature(c, FEATURE_LICENSES))
        return error_set(e, ENOTSUP, "licenses: finish the upgrade first: acequia upgrade finish");
    if (s->workers_max || s->components.len || s->component)
        return error_set(e, EINVAL, "licenses: jobs with workers or components cannot hold licenses; submit a job "
                                    "of fixed size");
    for (uint32_t i = 0; i < asks.len; i++) {
        const struct entity_entry *t = core_find_entity(c, ENTITY_LICENSE, asks.at[i].name);
        if (!t)
            return unknown(c, ENTITY_LICENSE, asks.at[i].name, e);
        uint32_t count = ((const struct license *)t->value)->count;
        if (count && asks.at[i].count > count)
            return error_set(e, ERANGE, "licenses: %s has %u %s; ask for at most so many", t->name, count,
                             count == 1 ? "seat" : "seats");
    }
    return 0;
}

static int check_names(const struct core *c, const struct actor *actor, const struct spec *s, struct error *e) {
    const struct entity_entry *t;
    if (!(t = core_find_entity(c, ENTITY_PROJECT, s->project)))
        return unknown(c, ENTITY_PROJECT, s->project, e);
    if (actor->project && !streq(actor->project, s->project))
        return error_set(e, EPERM, "project: your token is for project %s alone; submit to that one",
                         actor->project);
    // Of a job that a lead or operator changes, its user is the member.
    const struct project *project = t->value;
    if (!actor->admin && project->members.len && !core_is_named_member(c, s->user, s->project) &&
        !core_leads(c, s->user, s->project))
        return error_set(e, EPERM,
                         "project \"%s\": you (%s) are not a member; ask an administrator to add you, or "
                         "choose another project",
                         s->project, s->user);
    int r = check_partitions(c, s->partition, e);
    if (r < 0)
        return r;
    if (s->qos && !core_find_entity(c, ENTITY_QOS, s->qos))
        return unknown(c, ENTITY_QOS, s->qos, e);
    if (s->reservation && !core_find_entity(c, ENTITY_RESERVATION, s->reservation))
        return unknown(c, ENTITY_RESERVATION, s->reservation, e);
    if ((r = core_licenses_check(c, s, e)) < 0)
        return r;
    if ((s->nice < 0 || s->priority) && !actor->admin)
        return error_set(e, EPERM, "%s: only an administrator may raise a priority", s->nice < 0 ? "nice" : "priority");
    return 0;
}

static int node_handles(struct core *c, const char *field, const char *list, struct arena *a,
                        const uint32_t **ids, uint32_t *count, struct error *e) {
    struct name_list names;
    if (str_empty(list))
        return 0;
    int r = nodelist_expand(list, a, &names, e);
    if (r < 0)
        return r;
    uint32_t *out = arena_alloc(a, names.len * sizeof *out), n = 0;
    for (uint32_t i = 0; i < names.len; i++) {
        const struct node_entry *node = core_find_node(c, names.at[i]);
        char shown[64];
        if (node)
            out[n++] = node->handle;
        else
            r = error_set(e, ENOENT, "%s: node \"%s\" does not exist; see 'acequia nodes'", field,
                          str_printable(names.at[i], shown, sizeof shown));
    }
    *ids = out;
    *count = n;
    return r;
}

static int split_features(const struct spec *s, struct arena *a, struct sched_request *out, struct error *e) {
    struct constraint c;
    int r = constraint_parse(s->features, a, &c, e);
    if (r < 0)
        return r;
    out->features = c.terms;
    out->feature_count = c.len;
    if (c.alike && (s->nodes_min > 1 || s->nodes_max > 1 || (!s->nodes_min && s->tasks > 1)))
        return error_set(
            e, EINVAL,
            "features: brackets ask for nodes that are alike, which is supported for jobs of one node only; "
            "give one node (-N 1), or name one feature");
    return 0;
}

static void set_partitions(const struct core *c, const char *list, struct arena *a, struct sched_request *out) {
    char name[IDENTIFIER_MAX + 1];
    size_t len;
    if (!name_list_several(list)) {
        out->partition = core_handle(c, ENTITY_PARTITION, list);
        return;
    }
    uint32_t *also = arena_alloc(a, PARTITIONS_PER_JOB * sizeof *also), n = 0;
    for (const char *at; n <= PARTITIONS_PER_JOB && (at = name_list_next(&list, &len)); n++)
        *(n ? &also[n - 1] : &out->partition) = core_handle(c, ENTITY_PARTITION, name_at(at, len, name));
    out->also = also;
    out->also_count = n ? n - 1 : 0;
}

static void add_feature(struct sched_request *out, const char *name, struct arena *a) {
    const char **list = arena_alloc(a, (out->feature_count + 1) * sizeof *list);
    if (out->feature_count)
        memcpy(list, out->features, out->feature_count * sizeof *list);
    list[out->feature_count++] = name;
    out->features = list;
}

// What was deleted since keeps its number, so that the job waits for it.
static void add_licenses(const struct core *c, const struct spec *s, struct arena *a, struct sched_request *out) {
    struct license_asks asks;
    if (str_empty(s->licenses) || license_asks_parse(s->licenses, a, &asks, NULL) < 0)
        return;
    struct sched_license_use *uses = arena_alloc(a, asks.len * sizeof *uses);
    for (uint32_t i = 0; i < asks.len; i++) {
        uint32_t id = core_handle(c, ENTITY_LICENSE, asks.at[i].name);
        if (id)
            uses[out->license_count++] = (struct sched_license_use){id, asks.at[i].count};
    }
    out->licenses = uses;
}

int core_request(struct core *c, const char *user, const struct spec *s, struct arena *a,
                 struct sched_request *out, struct error *e) {
    if (s->components.len)
        return core_components_request(c, user, s, NULL, a, out, e);
    *out = (struct sched_request){
        .project = core_handle(c, ENTITY_PROJECT, s->project),
        .user = core_user_known(c, user),
        .qos = core_handle(c, ENTITY_QOS, s->qos),
        .class = s->class == CLASS_INTERACTIVE ? SCHED_INTERACTIVE : SCHED_TRAIN,
        .nodes_min = s->nodes_min,
        .nodes_max = s->nodes_max,
        .tasks = s->tasks,
        .tasks_per_node = s->tasks_per_node,
        .cpus_per_task = s->cpus_per_task,
        .memory_per_node_bytes = s->memory_per_node_bytes,
        .memory_per_cpu_bytes = s->memory_per_cpu_bytes,
        .memory_per_gpu_bytes = s->memory_per_gpu_bytes,
        .gpu_milli_per_job = s->gpus_milli,
        .gpu_milli_per_node = s->gpus_per_node_milli,
        .gpu_milli_per_task = s->gpus_per_task_milli,
        .gpu_memory_bytes = s->gpu_memory_bytes,
        .gpu_model = s->gpu_model,
        .exclusive = s->exclusive,
        .spread = s->spread,
        .same_group = s->contiguous_topology,
        .reservation = s->reservation,
        .time_limit_ms = (int64_t)s->time_limit_s * 1000,
        .time_min_ms = (int64_t)s->time_min_s * 1000,
        .min_runtime_ms = (int64_t)s->min_run_s * 1000,
        .deadline_ms = s->deadline_ms,
        .priority = s->priority < INT32_MAX ? (int32_t)s->priority : INT32_MAX,
        .nice = s->nice,
        .preemptible = s->requeue || s->class == CLASS_INTERACTIVE ? SCHED_BY_CLASS : SCHED_NO,
    };
    if (s->workers_max)
        core_group_request(s, s->component ? 1 : s->workers_min, out);
    set_partitions(c, s->partition, a, out);
    add_licenses(c, s, a, out);
    // All are carried out even if one fails: a job that is loaded from the journal gets a request that is as complete
    // as possible; a submit is refused by the first error.
    int r = node_handles(c, "nodes", s->nodes, a, &out->nodes_only, &out->nodes_only_count, e);
    int r2 = node_handles(c, "exclude", s->exclude, a, &out->nodes_except, &out->nodes_except_count, e);
    int r3 = split_features(s, a, out, e);
    if (r3 == 0 && (in_container(s) || s->image_task))
        add_feature(out, CORE_CONTAINERS, a);
    return r < 0 ? r : r2 < 0 ? r2 : r3;
}

uint32_t core_node_handle(const struct core *c, const char *node) {
    const struct node_entry *n = core_find_node(c, node);
    return n ? n->handle : 0;
}

uint32_t core_handle(const struct core *c, enum entity_kind kind, const char *name) {
    const struct entity_entry *t = name ? strmap_get(&c->entities[kind], name) : NULL;
    return t ? t->handle : 0;
}

// The one that is marked; "main" is marked from the start, so another that is comes before it.
const char *core_default_partition(const struct core *c) {
    const char *first = NULL, *marked = NULL;
    for (uint32_t i = 0; i < c->entity_list[ENTITY_PARTITION].len; i++) {
        const struct entity_entry *t = c->entity_list[ENTITY_PARTITION].at[i];
        if (!t->value)
            continue;
        first = first ? first : t->name;
        if (((const struct partition *)t->value)->is_default && (!marked || !streq(t->name, "main")))
            marked = t->name;
    }
    return marked ? marked : first;
}

// A user's own project when they are a member of exactly one that names members, else "default".
static const char *default_project(const struct core *c, const char *user) {
    const char *found = NULL;
    for (uint32_t i = 0; i < c->entity_list[ENTITY_PROJECT].len; i++) {
        const struct entity_entry *t = c->entity_list[ENTITY_PROJECT].at[i];
        const struct project *p = t->value;
        if (!p || p->deleted_by || !p->members.len || !core_is_named_member(c, user, t->name))
            continue;
        if (found)
            return PROJECT_DEFAULT;
        found = t->name;
    }
    return found ? found : PROJECT_DEFAULT;
}

static void forget_default_memory(struct spec *s) {
    if (s->memory_default)
        s->memory_per_node_bytes = s->memory_per_cpu_bytes = s->memory_per_gpu_bytes = s->memory_default = 0;
    for (uint32_t i = 0; i < s->components.len; i++) {
        struct job_component *k = &s->components.at[i];
        if (k->memory_default)
            k->memory_per_node_bytes = k->memory_per_cpu_bytes = k->memory_per_gpu_bytes = k->memory_default =
                0;
    }
}

static void fill_workers(uint32_t *min, uint32_t *max) {
    if (*max && !*min)
        *min = *max;
    else if (*min && !*max)
        *max = *min;
}

// As for a job: CPUs by GPU, memory by CPU. The job's numbers of workers become the sums.
static void fill_component(const struct core *c, struct spec *s, uint32_t component) {
    struct job_component *k = &s->components.at[component];
    struct spec worker;
    if (!k->workers_given && !k->workers_min && !k->workers_max)
        k->workers_min = k->workers_max = 1;
    if (!k->workers_given)
        fill_workers(&k->workers_min, &k->workers_max);
    spec_component(s, component, &worker);
    spec_count_by_gpu(&worker);
    if (!worker.exclusive && !worker.memory_per_node_bytes && !worker.memory_per_cpu_bytes &&
        !worker.memory_per_gpu_bytes) {
        core_fill_memory(c, core_find_entity(c, ENTITY_PARTITION, worker.partition), &worker);
        worker.memory_default =
            worker.memory_per_node_bytes || worker.memory_per_cpu_bytes || worker.memory_per_gpu_bytes;
    }
#define TAKE(member) k->member = worker.member;
    COMPONENT_SHAPE(TAKE)
#undef TAKE
    s->workers_min += k->workers_min;
    s->workers_max += k->workers_max;
}

void core_fill_defaults(const struct core *c, const struct actor *actor, struct spec *s) {
    s->user = actor->user;
    s->uid = actor->uid;
    s->gid = actor->gid;
    if (s->components.len)
        s->workers_min = s->workers_max = 0;
    fill_workers(&s->workers_min, &s->workers_max);
    if (str_empty(s->name))
        s->name = "job";
    if (str_empty(s->project))
        s->project = actor->project ? actor->project : default_project(c, actor->user);
    if (str_empty(s->partition))
        s->partition = core_default_partition(c);
    const struct entity_entry *t = core_find_entity(c, ENTITY_PROJECT, s->project);
    if (str_empty(s->qos))
        s->qos = t ? ((const struct project *)t->value)->default_qos : NULL;
    else if (s->slurm_words && streq(s->qos, "normal") && !core_find_entity(c, ENTITY_QOS, "normal"))
        s->qos = NULL;  // what Slurm's commands call a job without one
    char name[IDENTIFIER_MAX + 1];
    const char *rest = s->partition;
    size_t len;
    const char *first = name_list_next(&rest, &len);
    struct entity_entry *part = first ? core_find_entity(c, ENTITY_PARTITION, name_at(first, len, name)) : NULL;
    spec_count_by_gpu(s);
    if (s->components.len) {
        for (uint32_t i = 0; i < s->components.len; i++)
            fill_component(c, s, i);
        return;
    }
    // A job that has nodes to itself has all their memory, unless it says how much.
    if (!s->exclusive && !s->memory_per_node_bytes && !s->memory_per_cpu_bytes && !s->memory_per_gpu_bytes) {
        core_fill_memory(c, part, s);
        s->memory_default = s->memory_per_node_bytes || s->memory_per_cpu_bytes || s->memory_per_gpu_bytes;
    }
}

// Elements of an array share what was submitted; one that is changed has its own.
static int check_memory(struct core *c, const struct spec *s, struct error *e) {
    c->encoded_of = NULL;
    size_t bytes = core_encode_spec(c, s)->len;
    c->encoded_of = s;
    if (bytes > SPEC_BYTES_MAX)
        return error_set(
            e, E2BIG, "the job's options take %zu bytes; at most %d are allowed. Put long texts into files",
            bytes, SPEC_BYTES_MAX);
    if (core_user_count(c, s->user)->spec_bytes + bytes <= c->config.max_spec_bytes_per_user)
        return 0;
    return error_set(e, EAGAIN,
                     "the commands and options of %s's jobs take more than %llu MiB; put long argument lists "
                     "into files, or wait until some have ended",
                     s->user, (unsigned long long)(c->config.max_spec_bytes_per_user >> 20));
}

int core_check_room(struct core *c, const struct actor *actor, uint64_t count, struct error *e) {
    uint64_t live = core_user_count(c, actor->user)->live;
    if (c->jobs.len + c->uncreated + count > c->config.max_jobs)
        return error_set(
            e, EAGAIN,
            "the queue holds %zu jobs; at most %llu are allowed (max_jobs). Try again when some have ended",
            c->jobs.len + (size_t)c->uncreated, (unsigned long long)c->config.max_jobs);
    if (live + count > c->config.max_jobs_per_user)
        return error_set(e, EAGAIN,
                         "you have %llu jobs and submit %llu more; at most %llu are allowed "
                         "(max_jobs_per_user). Try again when some have ended",
                         (unsigned long long)live, (unsigned long long)count,
                         (unsigned long long)c->config.max_jobs_per_user);
    return 0;
}

// Each element of an array looks at all others of its name.
static int check_singleton(const struct spec *s, struct error *e) {
    if (str_empty(s->dependency) || !strstr(s->dependency, "singleton") || spec_array_count(s) <= SINGLETON_ARRAY_MAX)
        return 0;
    return error_set(e, E2BIG,
                     "dependency: singleton is possible for arrays of up to %d elements; this one has %llu",
                     SINGLETON_ARRAY_MAX, (unsigned long long)spec_array_count(s));
}

// An empty cluster may still grow.
static bool any_containers(const struct core *c) {
    for (uint32_t i = 0; i < c->node_list.len; i++)
        if (c->node_list.at[i]->node && c->node_list.at[i]->node->containers)
            return true;
    return !c->node_list.len;
}

static bool needs_containers(const struct spec *s) {
    for (uint32_t i = 0; i < s->components.len; i++)
        if (!str_empty(s->components.at[i].container))
            return true;
    return in_container(s) || s->image_task;
}

static int check_components(const struct core *c, const struct actor *actor, const struct spec *s,
                            struct error *e) {
    int r = 0;
    for (uint32_t i = 0; i < s->components.len && r == 0; i++) {
        struct spec worker;
        spec_component(s, i, &worker);
        if ((r = check_texts(&worker, e)) < 0 || (r = check_amounts(&worker, e)) < 0 ||
            (r = check_names(c, actor, &worker, e)) < 0)
            error_prefix(e, "component %s", worker.component);
    }
    return r;
}

// `self`: the job that is updated; 0: a new one.
int core_check_spec(struct core *c, const struct actor *actor, const struct spec *s, uint64_t self, int64_t now_ms,
                    struct error *e) {
    cleanup_arena struct arena a = {0};
    struct sched_request request;
    int r;
    if ((r = check_texts(s, e)) < 0 || (r = check_amounts(s, e)) < 0 || (r = check_array(c, s, e)) < 0 ||
        (r = check_names(c, actor, s, e)) < 0 || (r = check_singleton(s, e)) < 0 ||
        (r = core_group_check_spec(c, s, e)) < 0 || (r = check_components(c, actor, s, e)) < 0 ||
        (r = core_depend_check(c, s->dependency, self, e)) < 0 ||
        (r = core_request(c, actor->user, s, &a, &request, e)) < 0)
        return r;
    if (needs_containers(s) && !any_containers(c))
        return error_set(e, ENOTSUP,
                         "container: none of the %u nodes can run containers; see 'acequia nodes --missing' "
                         "for the reason",
                         c->node_list.len);
    const struct core_job *j = self ? core_find_job(c, self) : NULL;
    if (j && j->state != JOB_PENDING) {  // it runs: what decides whether it may start does not matter any more
        request.deadline_ms = 0;
        request.preemptible = SCHED_YES;
    } else if ((r = core_check_not_deleted(c, "project", s->project, e)) < 0) {
        return r;
    }
    int64_t start_ms = s->begin_ms > now_ms ? s->begin_ms : now_ms;
    return world_check_request(c->world, &request, start_ms, &c->config.policy, e);
}

// The tags of `s` with changes made to them.
static int change_tags(const struct core *c, struct spec *s, const struct spec *change, struct arena *a,
                       struct error *e) {
    struct tag_list tags = {s->tags.at, s->tags.len}, changes = {change->tags.at, change->tags.len};
    if (changes.len && !core_feature(c, FEATURE_TAGS))
        return error_set(e, ENOTSUP, "tags: finish the upgrade first: acequia upgrade finish");
    int r = tags_change(&tags, &changes, a, &tags, e);
    if (r == 0) {
        s->tags.at = tags.at;
        s->tags.len = tags.len;
    }
    return r;
}

// Else an administrator who submits another's job again would run a stranger's script as root.
static int check_user(const struct actor *actor, const char *user, struct error *e) {
    char shown[64];
    if (str_empty(user) || streq(user, actor->user))
        return 0;
    return error_set(e, EPERM, "user: the job is %s's and would run as %s; only %s can submit it",
                     str_printable(user, shown, sizeof shown), actor->user, shown);
}

static int check_ports(const struct core *c, const struct spec *s, struct error *e) {
    if ((s->ports.len || s->network != NETWORK_AUTO) && !core_feature(c, FEATURE_PORTS))
        return error_set(e, ENOTSUP, "port: finish the upgrade first: acequia upgrade finish");
    if (!str_empty(s->upload_id) && !core_feature(c, FEATURE_UPLOADS))
        return error_set(e, ENOTSUP, "upload: finish the upgrade first: acequia upgrade finish");
    if (!str_empty(s->health) && !core_feature(c, FEATURE_HEALTH))
        return error_set(e, ENOTSUP, "health: finish the upgrade first: acequia upgrade finish");
    return 0;
}

int core_command_submit(struct core *c, const struct actor *actor, const char *key, const struct command_submit *m,
                        int64_t now_ms, struct command_result *out, struct error *e) {
    struct event_key entry;
    char key_hash[CORE_KEY_HASH_TEXT];
    int r;
    if (key && (r = core_key_check(key, e)) < 0)
        return r;
    bool keyed = key && !m->dry_run;
    if (keyed && ((r = core_key_find(c, actor->user, key, m->spec, now_ms, &entry, out, e)) < 0 || out->repeated))
        return r;
    cleanup_arena struct arena a = {0};
    struct spec s = *m->spec;
    s.tags.len = 0;
    s.component = NULL;
    s.service = m->service;
    s.revision = m->revision;
    s.components.at = arena_memdup(&a, s.components.at, s.components.len * sizeof *s.components.at);
    if ((r = change_tags(c, &s, m->spec, &a, e)) < 0)
        return r;
    if (!schema_given(&spec_schema, &s, &s.requeue))
        s.requeue = c->config.requeue;
    schema_forget_given(&spec_schema, &s);
    if (keyed)
        core_key_to_text(&entry, key_hash);
    s.key_hash = keyed && core_feature(c, FEATURE_KEYS) ? key_hash : NULL;
    forget_default_memory(&s);
    if ((r = check_user(actor, s.user, e)) < 0)
        return r;
    core_fill_defaults(c, actor, &s);
    if (s.deadline_ms && s.deadline_ms <= now_ms)
        return error_set(e, ERANGE, "deadline: that time has passed already; give a later one");
    if ((r = core_volumes_resolve(c, &s, &a, e)) < 0)
        return r;
    r = core_check_spec(c, actor, &s, 0, now_ms, e);
    if (r < 0 || (r = check_open(c, s.partition, e)) < 0 ||
        (r = core_check_room(c, actor, spec_array_count(&s) + s.workers_max, e)) < 0 ||
        (r = check_memory(c, &s, e)) < 0 || (r = core_texts_check(c, &s, e)) < 0 ||
        (r = core_secrets_check(c, &s, e)) < 0 || (r = check_ports(c, &s, e)) < 0)
        return r;
    *out = (struct command_result){.id = c->next_id, .count = spec_array_count(&s)};
    if (m->dry_run)
        return 0;
    struct event_job_submitted b = {.id = c->next_id, .spec = &s, .key = keyed ? &entry : NULL};
    if (out->count > c->config.elements_at_once && core_feature(c, FEATURE_ARRAY_SLICES))
        b.created = c->config.elements_at_once;
    if (keyed && !core_feature(c, FEATURE_KEYS))
        b.key_text = key;  // as the release before wrote it
    core_emit(c, now_ms, EVENT_JOB_SUBMITTED, &b);
    return 0;
}

// The job as it was, with what may change while it runs.
static struct spec with_light_changes(const struct spec *old, const struct spec *s) {
    struct spec allowed = *old;
    allowed.time_limit_s = s->time_limit_s;
    allowed.comment = s->comment;
    allowed.tags.at = s->tags.at;
    allowed.tags.len = s->tags.len;
    allowed.nice = s->nice;
    allowed.name = s->name;
    allowed.requeue = s->requeue;
    allowed.priority = s->priority;
    allowed.time_min_s = s->time_min_s;
    allowed.deadline_ms = s->deadline_ms;
    allowed.array_limit = s->array_limit;
    return allowed;
}

// Leads and operators arrange others' jobs; what runs, and where it writes, is its user's: it runs as that user.
static int check_foreign_change(const struct actor *actor, const struct spec *old, const struct spec *s,
                                struct error *e) {
    if (actor->admin || streq(actor->user, old->user))
        return 0;
    struct spec allowed = with_light_changes(old, s);
    allowed.partition = s->partition;
    allowed.qos = s->qos;
    if (schema_equal(&spec_schema, &allowed, s))
        return 0;
    return error_set(e, EPERM,
                     "of another user's job only partition, QoS, name, comment, tags, time limit, deadline, "
                     "priority, nice "
                     "value, requeue flag and the array's limit can be changed");
}

// The indices of an array stay as they are; with them its limit can be given.
static int check_array_change(const struct spec *old, const struct spec *change, struct error *e) {
    if (!change->array.len)
        return 0;
    if (!old->array.len)
        return error_set(e, EINVAL,
                         "array: the job is no array and cannot become one; submit an array instead");
    bool same = change->array.len == old->array.len &&
                memcmp(change->array.at, old->array.at, old->array.len * sizeof *old->array.at) == 0;
    return same ? 0
                : error_set(e, EINVAL,
                            "array: its indices stay as submitted; give the same ones to change how many "
                            "elements run at once, as in 0-9%%4");
}

CORE_COMMAND(core_command_update) {
    const struct command_update *m = body;
    uint64_t id = m->id;
    struct core_job *j;
    int r = core_need_job(c, actor, id, &j, e);
    if (r < 0)
        return r;
    cleanup_arena struct arena a = {0};
    struct spec s, old;
    core_spec_of(j, &a, &old);
    s = old;
    spec_merge(&s, m->change);
    s.tags.at = old.tags.at;
    s.tags.len = old.tags.len;
    if ((r = change_tags(c, &s, m->change, &a, e)) < 0)
        return r;
    schema_forget_given(&spec_schema, &s);
    if (j->state == JOB_PENDING)
        forget_default_memory(&s);  // other CPUs or GPUs have another default
    core_fill_defaults(c, actor, &s);
    s.user = old.user;
    s.uid = old.uid;
    s.gid = old.gid;
    s.array.at = old.array.at;
    s.array.len = old.array.len;
    if (m->change->volumes.len && (r = core_volumes_resolve(c, &s, &a, e)) < 0)
        return r;
    if (m->change->components.len)
        return error_set(e, EINVAL,
                         "components: they stay as submitted; use 'acequia resize %llu COMPONENT=MIN-MAX'",
                         (unsigned long long)id);
    if ((r = check_array_change(&old, m->change, e)) < 0 ||
        (r = check_foreign_change(actor, &old, &s, e)) < 0)
        return r;
    if (core_is_worker(j))
        return error_set(e, EINVAL, "%llu is a worker of job %llu; change that job", (unsigned long long)id,
                         (unsigned long long)j->sub->group->id);
    if (s.workers_min != old.workers_min || s.workers_max != old.workers_max)
        return error_set(e, EINVAL, "workers: use 'acequia resize %llu MIN-MAX'", (unsigned long long)id);
    if (j->state != JOB_PENDING) {
        // The limit it runs with may be its partition's.
        if (s.time_limit_s != old.time_limit_s && j->run && j->run->time_limit_s &&
            s.time_limit_s > j->run->time_limit_s && !actor->admin)
            return error_set(e, EPERM, "time_limit_s: only an administrator may lengthen a running job");
        if (j->run && j->run->partition && streq(s.partition, j->run->partition))
            s.partition = old.partition;  // as it is shown; it keeps the others for when it is pending again
        struct spec allowed = with_light_changes(&old, &s);
        if (!schema_equal(&spec_schema, &allowed, &s))
            return error_set(
                e, EBUSY,
                "job %llu is %s: only its name, comment, tags, time limit, deadline, priority, nice value, "
                "requeue flag and its array's limit can be changed now",
                (unsigned long long)id, job_state_words[j->state]);
    }
    if ((r = core_check_spec(c, actor, &s, id, now_ms, e)) < 0 || (r = check_memory(c, &s, e)) < 0 ||
        (m->change->secrets.len && (r = core_secrets_check(c, &s, e)) < 0))
        return r;
    if (m->dry_run)
        return 0;
    struct event_job_updated b = {.id = id, .spec = &s, .by = actor->user};
    core_emit(c, now_ms, EVENT_JOB_UPDATED, &b);
    core_each_part(c, j, core_send_time_limit);
    return 0;
}
