// Owns the reading of a step's request: JSON from a client becomes what the core packs and what runs.
#include "step_request.h"

#include <errno.h>
#include <string.h>

#include "api.h"
#include "base/text.h"
#include "model/name.h"
#include "model/nodelist.h"

enum { STEP_NAME_MAX = 255, STEP_KEY_MAX = 64, STEP_ENVIRONMENT_MAX = 4 << 20 };

static uint32_t number_of(const struct json *j, const char *key, uint32_t most) {
    int64_t v = json_i64(j, key, 0);
    return v < 0 ? 0 : v > most ? most : (uint32_t)v;
}

static uint32_t within(uint64_t v) {
    return v < UINT32_MAX ? (uint32_t)v : UINT32_MAX;
}

static void list_texts(const struct json *j, const char *key, struct arena *a, struct any_list *out) {
    const struct json *list = json_get(j, key);
    *out = (struct any_list){0};
    if (!list || list->type != JSON_ARRAY)
        return;
    const char **at = arena_alloc(a, (list->len + 1) * sizeof *at);
    for (uint32_t i = 0; i < list->len; i++)
        if (list->items[i].type == JSON_STRING)
            at[out->len++] = list->items[i].s;
    out->at = at;
}

// Letters that mean the job are filled in here, those that mean the task on its node.
static const char *job_letters(struct arena *a, const char *pattern, const struct job_record *r) {
    cleanup_buf struct buf b = {0};
    for (const char *p = pattern; p && *p; p++) {
        if (*p != '%') {
            buf_addc(&b, *p);
            continue;
        }
        switch (p[1]) {
        case 'j': buf_addu(&b, r->id); break;
        case 'A': buf_addu(&b, r->is_array ? r->array_id : r->id); break;
        case 'a': buf_addu(&b, r->array_index); break;
        case 'u': buf_adds(&b, r->spec->user); break;
        case 'x':
            for (const char *n = r->spec->name; n && *n; n++)
                buf_adds(&b, *n == '%' ? "%%" : (char[]){*n == '/' ? '_' : *n, 0});
            break;
        default:
            buf_addc(&b, '%');
            if (p[1])
                buf_addc(&b, p[1]);
        }
        p += p[1] != 0;
    }
    return pattern ? arena_strdup(a, buf_str(&b)) : NULL;
}

static int read_names(const struct json *q, const char *key, struct arena *a, const char *const **at, uint32_t *count,
                      struct error *e) {
    struct name_list names;
    const char *text = json_str(q, key);
    if (!text)
        return 0;
    if (nodelist_expand(text, a, &names, e) < 0)
        return -EINVAL;
    *at = names.at;
    *count = names.len;
    return 0;
}

// Tasks that are not asked for: what the nodes give, else the job's.
static int count_tasks(const struct job_record *r, struct step_request *n, struct error *e) {
    uint32_t parts = r->parts.len, job_tasks = r->spec->tasks ? r->spec->tasks : parts;
    if (!n->tasks && n->nodes)
        n->tasks = within((uint64_t)n->nodes * (n->tasks_per_node ? n->tasks_per_node : 1));
    if (!n->tasks)
        n->tasks = n->tasks_per_node ? within((uint64_t)parts * n->tasks_per_node) : job_tasks;
    if (n->nodes <= parts && n->tasks > STEP_TASKS_MAX)
        return error_set(e, E2BIG, "the step asks for %u tasks; at most %d are possible", n->tasks, STEP_TASKS_MAX);
    return 0;
}

static int read_place(const struct json *q, const struct job_record *r, struct arena *a, struct step_request *n,
                      struct error *e) {
    *n = (struct step_request){.tasks = number_of(q, "tasks", UINT32_MAX),
                               .nodes = number_of(q, "nodes", STEP_TASKS_MAX),
                               .tasks_per_node = number_of(q, "tasks_per_node", STEP_TASKS_MAX),
                               .cpus_per_task = number_of(q, "cpus_per_task", 65536),
                               .memory_per_node_bytes = (uint64_t)json_i64(q, "memory_per_node_bytes", 0),
                               .memory_per_cpu_bytes = (uint64_t)json_i64(q, "memory_per_cpu_bytes", 0),
                               .gpus_milli = number_of(q, "gpus_milli", UINT32_MAX),
                               .gpus_per_node_milli = number_of(q, "gpus_per_node_milli", UINT32_MAX),
                               .gpus_per_task_milli = number_of(q, "gpus_per_task_milli", UINT32_MAX),
                               .overlap = json_true(q, "overlap"),
                               .overcommit = json_true(q, "overcommit"),
                               .whole = !json_true(q, "exact") && !json_true(q, "overlap")};
    if (read_names(q, "nodelist", a, &n->required, &n->required_count, e) < 0 ||
        read_names(q, "exclude", a, &n->excluded, &n->excluded_count, e) < 0)
        return -EINVAL;
    if (json_str(q, "distribution") &&
        sched_step_distribution_parse(json_str(q, "distribution"), &n->distribution, &n->plane_size, e) < 0)
        return -EINVAL;
    if (json_str(q, "gpu_bind") && sched_step_bind_parse(json_str(q, "gpu_bind"), a, &n->bind, e) < 0)
        return -EINVAL;
    return count_tasks(r, n, e);
}

static uint32_t umask_plus(const struct json *q) {
    int64_t mask = json_i64(q, "umask", -1);
    return mask >= 0 && mask <= 0777 ? (uint32_t)mask + 1 : 0;
}

static int read_environment(const struct json *q, struct arena *a, struct buf *out, struct error *e) {
    struct any_list list;
    list_texts(q, "environment", a, &list);
    for (uint32_t i = 0; i < list.len; i++) {
        const char *entry = ((const char **)list.at)[i];
        buf_add(out, entry, strlen(entry) + 1);
    }
    return out->len > STEP_ENVIRONMENT_MAX
               ? error_set(e, E2BIG, "environment: %zu bytes; a step may have %d", out->len, STEP_ENVIRONMENT_MAX)
               : 0;
}

int controller_step_wish_read(const struct json *q, const struct job_record *r, struct arena *a,
                              struct step_wish *out, struct buf *environment, struct error *e) {
    struct any_list argv;
    const char *name = json_str(q, "name"), *key = json_str(q, "key");
    if (name && name_line_check("name", name, STEP_NAME_MAX, e) < 0)
        return -EINVAL;
    if (key && name_line_check("key", key, STEP_KEY_MAX, e) < 0)
        return -EINVAL;
    list_texts(q, "argv", a, &argv);
    if (!argv.len && !json_true(q, "pty"))
        return error_set(e, EINVAL, "argv: there is nothing to run");
    *out = (struct step_wish){.name = name ? name : "step", .key = key};
    if (read_place(q, r, a, &out->place, e) < 0 || read_environment(q, a, environment, e) < 0)
        return -e->code;
    out->command = (struct message_exec){.argv = {argv.at, argv.len},
                                         .workdir = json_str(q, "workdir"),
                                         .umask_plus = umask_plus(q),
                                         .pty = json_true(q, "pty"),
                                         .rows = number_of(q, "rows", 10000),
                                         .columns = number_of(q, "columns", 10000),
                                         .cpus_per_task = out->place.cpus_per_task,
                                         .output = job_letters(a, json_str(q, "output"), r),
                                         .error = job_letters(a, json_str(q, "error"), r),
                                         .input = job_letters(a, json_str(q, "input"), r),
                                         .kill_on_bad_exit = json_true(q, "kill_on_bad_exit"),
                                         .append = json_true(q, "append"),
                                         .time_limit_s = number_of(q, "time_limit_s", UINT32_MAX),
                                         .wait_s = number_of(q, "wait_s", UINT32_MAX),
                                         .container = json_str(q, "container"),
                                         .container_mounts = json_str(q, "container_mounts"),
                                         .container_workdir = json_str(q, "container_workdir"),
                                         .input_rank = number_of(q, "input_rank", UINT32_MAX)};
    return 0;
}
