// From a client's request for a step to what the core packs and what runs.
#include "step_request.h"

#include <errno.h>
#include <string.h>

#include "api.h"
#include "base/text.h"
#include "model/name.h"
#include "model/nodelist.h"

enum {
    STEP_NAME_MAX = 255,
    STEP_KEY_MAX = 64,
    STEP_ENVIRONMENT_MAX = 4 << 20,
    LEASE_S = 60,  // of a step whose client gave a key and no lease
};

static uint32_t within(uint64_t v) {
    return v < UINT32_MAX ? (uint32_t)v : UINT32_MAX;
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

static int read_names(const char *text, struct arena *a, const char *const **at, uint32_t *count,
                      struct error *e) {
    struct name_list names;
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

static int read_place(const struct request_step *q, const struct job_record *r, struct arena *a,
                      struct step_request *n, struct error *e) {
    *n = (struct step_request){.tasks = q->tasks,
                               .nodes = q->nodes < STEP_TASKS_MAX ? q->nodes : STEP_TASKS_MAX,
                               .tasks_per_node =
                                   q->tasks_per_node < STEP_TASKS_MAX ? q->tasks_per_node : STEP_TASKS_MAX,
                               .cpus_per_task = q->cpus_per_task,
                               .memory_per_node_bytes = q->memory_per_node_bytes,
                               .memory_per_cpu_bytes = q->memory_per_cpu_bytes,
                               .gpus_milli = q->gpus_milli,
                               .gpus_per_node_milli = q->gpus_per_node_milli,
                               .gpus_per_task_milli = q->gpus_per_task_milli,
                               .overlap = q->overlap,
                               .overcommit = q->overcommit,
                               .whole = !q->exact && !q->overlap};
    if (read_names(q->nodelist, a, &n->required, &n->required_count, e) < 0 ||
        read_names(q->exclude, a, &n->excluded, &n->excluded_count, e) < 0)
        return -EINVAL;
    if (q->distribution &&
        sched_step_distribution_parse(q->distribution, &n->distribution, &n->plane_size, e) < 0)
        return -EINVAL;
    if (q->gpu_bind && sched_step_bind_parse(q->gpu_bind, a, &n->bind, e) < 0)
        return -EINVAL;
    return count_tasks(r, n, e);
}

static int read_environment(const struct request_step *q, struct buf *out, struct error *e) {
    for (uint32_t i = 0; i < q->environment.len; i++)
        buf_add(out, q->environment.at[i], strlen(q->environment.at[i]) + 1);
    return out->len > STEP_ENVIRONMENT_MAX
               ? error_set(e, E2BIG, "environment: %zu bytes; a step may have %d", out->len, STEP_ENVIRONMENT_MAX)
               : 0;
}

// One task on one node that holds nothing of its own.
static int place_exec(int64_t index, const struct job_record *r, struct arena *a, struct step_request *n,
                      struct error *e) {
    if (!r->parts.len)
        return error_set(e, EBUSY, "job %llu is %s; a command needs a running job", (unsigned long long)r->id,
                         job_state_words[r->state]);
    if (index < 0 || index >= r->parts.len)
        return error_set(e, EINVAL, "node: job %llu has %u %s, counted from 0; there is no %lld",
                         (unsigned long long)r->id, r->parts.len, r->parts.len == 1 ? "node" : "nodes",
                         (long long)index);
    const char **name = arena_alloc(a, sizeof *name);
    *name = r->parts.at[index].node;
    *n =
        (struct step_request){.tasks = 1, .nodes = 1, .overlap = true, .required = name, .required_count = 1};
    return 0;
}

void controller_step_from_exec(const struct request_exec *q, struct request_step *out) {
    *out = (struct request_step){.argv = {q->argv.at, q->argv.len},
                                 .environment = {q->environment.at, q->environment.len},
                                 .workdir = q->workdir,
                                 .key = q->key,
                                 .name = "exec",
                                 .pty = q->pty,
                                 .rows = q->rows,
                                 .columns = q->columns,
                                 .resume = q->resume,
                                 .from = {q->from.at, q->from.len},
                                 .epoch = q->epoch,
                                 .attempt = q->attempt};
}

int controller_step_wish_read(const struct request_step *q, const struct job_record *r,
                              const int64_t *exec_node, struct arena *a, struct step_wish *out,
                              struct buf *environment, struct error *e) {
    bool has_umask = schema_given(&request_step_schema, q, &q->umask);
    if (q->name && name_line_check("name", q->name, STEP_NAME_MAX, e) < 0)
        return -EINVAL;
    if (q->key && name_line_check("key", q->key, STEP_KEY_MAX, e) < 0)
        return -EINVAL;
    bool exec = exec_node != NULL;
    if (!q->argv.len && !q->pty && !exec)
        return error_set(e, EINVAL, "field \"argv\" is empty: there is nothing to run");
    *out = (struct step_wish){.name = q->name ? q->name : "step", .key = q->key};
    // Without a key it ends with its connection.
    out->lease_s = !q->key ? 0 : schema_given(&request_step_schema, q, &q->lease_s) ? q->lease_s : LEASE_S;
    int rc = exec ? place_exec(*exec_node, r, a, &out->place, e) : read_place(q, r, a, &out->place, e);
    if (rc < 0 || read_environment(q, environment, e) < 0)
        return -e->code;
    out->command = (struct message_exec){.argv = {q->argv.at, q->argv.len},
                                         .workdir = q->workdir,
                                         .umask_plus = has_umask ? q->umask + 1 : 0,
                                         .pty = q->pty,
                                         .rows = q->rows,
                                         .columns = q->columns,
                                         .cpus_per_task = out->place.cpus_per_task,
                                         .output = job_letters(a, q->output, r),
                                         .error = job_letters(a, q->error, r),
                                         .input = job_letters(a, q->input, r),
                                         .kill_on_bad_exit = q->kill_on_bad_exit,
                                         .append = q->append,
                                         .time_limit_s = q->time_limit_s,
                                         .wait_s = q->wait_s,
                                         .container = q->container,
                                         .container_mounts = q->container_mounts,
                                         .container_workdir = q->container_workdir,
                                         .container_name = q->container_name,
                                         .input_rank = q->input_rank,
                                         .mpi = q->mpi,
                                         .cpu_bind = q->cpu_bind};
    return 0;
}
