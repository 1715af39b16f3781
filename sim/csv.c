// Reads CSV traces: the node and pod lists of openb, and our own format with named columns in any order.
#include <errno.h>
#include <string.h>

#include "base/text.h"
#include "sim/trace.h"

enum { MIB = 1 << 20 };

// Where each wanted column is; -1: not there.
static void columns(char *header, const char *const *names, unsigned count, int *at) {
    char *fields[TRACE_FIELDS_MAX];
    uint32_t n = trace_input_split(header, ',', fields, TRACE_FIELDS_MAX);
    for (unsigned i = 0; i < count; i++) {
        at[i] = -1;
        for (uint32_t k = 0; k < n; k++)
            if (streq(fields[k], names[i]))
                at[i] = (int)k;
    }
}

struct csv_row {
    const struct input *in;
    char *fields[TRACE_FIELDS_MAX];
    uint32_t n;
    const int *at;
    const char *const *names;
};

static int row_int(const struct csv_row *r, unsigned column, int64_t low, int64_t high, int64_t missing, int64_t *out,
                   struct error *err) {
    int at = r->at[column];
    *out = missing;
    if (at < 0 || (uint32_t)at >= r->n || !*r->fields[at])
        return 0;
    int e = trace_input_int(r->in, r->names[column], r->fields[at], out, err);
    if (!e && (*out < low || *out > high))
        return error_set(err, ERANGE, "line %u: %s is %lld: give %lld to %lld", trace_input_number(r->in),
                         r->names[column], (long long)*out, (long long)low, (long long)high);
    return e;
}

static const char *row_text(const struct csv_row *r, unsigned column) {
    int at = r->at[column];
    return at >= 0 && (uint32_t)at < r->n ? r->fields[at] : "";
}

static int need_columns(const int *at, const char *const *names, unsigned count, const char *what, struct error *err) {
    for (unsigned i = 0; i < count; i++)
        if (at[i] < 0)
            return error_set(err, EINVAL, "%s: the header has no column %s, which is needed", what, names[i]);
    return 0;
}

enum { N_NAME, N_CPU, N_MEMORY, N_GPU, N_MODEL, N_COUNT };
static const char *const NODE_COLUMNS[N_COUNT] = {"sn", "cpu_milli", "memory_mib", "gpu", "model"};

int trace_read_nodes(struct trace *t, const char *path, struct error *err) {
    struct input *in = trace_input_open(path, err);
    if (!in)
        return -err->code;
    char *line;
    int at[N_COUNT], r = trace_input_line(in, &line, err);
    if (r == 0)
        r = error_set(err, EINVAL, "%s is empty: a header was expected", path);
    if (r > 0) {
        columns(line, NODE_COLUMNS, N_COUNT, at);
        int e = need_columns(at, NODE_COLUMNS, N_COUNT, path, err);
        r = e ? e : r;
    }
    while (r > 0 && (r = trace_input_line(in, &line, err)) > 0) {
        struct csv_row row = {.in = in, .at = at, .names = NODE_COLUMNS};
        if (!*line)
            continue;
        row.n = trace_input_split(line, ',', row.fields, TRACE_FIELDS_MAX);
        int64_t cpu, memory, gpu;
        int e = row_int(&row, N_CPU, 0, UINT32_MAX, 0, &cpu, err);
        e = e ? e : row_int(&row, N_MEMORY, 0, INT64_MAX / MIB, 0, &memory, err);
        e = e ? e : row_int(&row, N_GPU, 0, 64, 0, &gpu, err);
        if (!e && t->nodes.len >= TRACE_NODES_MAX)
            e = error_set(err, E2BIG, "%s: more than %d nodes", path, TRACE_NODES_MAX);
        if (e) {
            r = e;
            break;
        }
        t->gpus |= gpu > 0;
        vec_push(&t->nodes, (struct trace_node){.name = xstrdup(row_text(&row, N_NAME)), .cpus = (uint32_t)cpu,
                                                .memory_bytes = (uint64_t)memory * MIB, .gpus = (uint32_t)gpu,
                                                .model = xstrdup(row_text(&row, N_MODEL))});
    }
    trace_input_close(in);
    return r < 0 ? r : 0;
}

enum { P_NAME, P_CPU, P_MEMORY, P_GPUS, P_MILLI, P_CREATED, P_DELETED, P_MODEL, P_QOS, P_SCHEDULED, P_COUNT };
static const char *const POD_COLUMNS[P_COUNT] = {"name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli",
                                                 "creation_time", "deletion_time", "gpu_spec", "qos", "scheduled_time"};

static int pod(struct trace *t, const struct csv_row *row, struct error *err) {
    int64_t cpu, memory, gpus, milli, created, deleted, scheduled;
    int e = row_int(row, P_CPU, 0, UINT32_MAX, 0, &cpu, err);
    e = e ? e : row_int(row, P_MEMORY, 0, INT64_MAX / MIB, 0, &memory, err);
    e = e ? e : row_int(row, P_GPUS, 0, 64, 0, &gpus, err);
    e = e ? e : row_int(row, P_MILLI, 0, 1000, 0, &milli, err);
    e = e ? e : row_int(row, P_CREATED, 0, INT64_MAX / 4000, 0, &created, err);
    e = e ? e : row_int(row, P_DELETED, 0, INT64_MAX / 4000, 0, &deleted, err);
    e = e ? e : row_int(row, P_SCHEDULED, 0, INT64_MAX / 4000, created, &scheduled, err);
    if (e)
        return e;
    int64_t run = deleted - (scheduled > created ? scheduled : created);
    if (t->jobs.len >= TRACE_JOBS_MAX)
        return error_set(err, E2BIG, "more than %d pods: cut the trace", TRACE_JOBS_MAX);
    struct trace_job j = {.submit_ms = created * 1000, .run_ms = (run > 0 ? run : 1) * 1000, .nodes = 1, .tasks = 1,
                          .cpus_per_task = cpu > 0 ? (uint32_t)cpu : 1, .memory_bytes = (uint64_t)memory * MIB,
                          .gpu_milli = (uint32_t)(gpus > 1 ? gpus * 1000 : gpus * milli),
                          .model = trace_names_number(&t->models, row_text(row, P_MODEL)),
                          .project = trace_names_number(&t->projects, row_text(row, P_QOS))};
    j.user = j.project;
    vec_push(&t->jobs, j);
    return 0;
}

int trace_read_openb(struct trace *t, struct input *in, char *header, struct error *err) {
    int at[P_COUNT], r = 1;
    columns(header, POD_COLUMNS, P_COUNT, at);
    int e = need_columns(at, POD_COLUMNS, P_MODEL, "openb pods", err);
    char *line;
    while (!e && (r = trace_input_line(in, &line, err)) > 0) {
        struct csv_row row = {.in = in, .at = at, .names = POD_COLUMNS};
        if (!*line)
            continue;
        row.n = trace_input_split(line, ',', row.fields, TRACE_FIELDS_MAX);
        e = pod(t, &row, err);
    }
    t->gpus = true;
    return e ? e : r < 0 ? r : 0;
}

enum {
    O_SUBMIT,
    O_RUN,
    O_LIMIT,
    O_USER,
    O_PROJECT,
    O_NODES,
    O_TASKS,
    O_CPUS,
    O_MEMORY,
    O_GPU,
    O_MODEL,
    O_CLASS,
    O_WORKERS,
    O_COUNT
};
static const char *const OWN_COLUMNS[O_COUNT] = {
    "submit_s",      "run_s",      "limit_s",   "user",      "project", "nodes",      "tasks",
    "cpus_per_task", "memory_mib", "gpu_milli", "gpu_model", "class",   "workers_max"};

static int own_row(struct trace *t, const struct csv_row *row, struct error *err) {
    int64_t submit, run, limit, nodes, tasks, cpus, memory, gpu, workers;
    int e = row_int(row, O_SUBMIT, 0, INT64_MAX / 4000, 0, &submit, err);
    e = e ? e : row_int(row, O_RUN, 0, INT64_MAX / 4000, 0, &run, err);
    e = e ? e : row_int(row, O_LIMIT, 0, INT64_MAX / 4000, 0, &limit, err);
    e = e ? e : row_int(row, O_NODES, 0, TRACE_NODES_MAX, 0, &nodes, err);
    e = e ? e : row_int(row, O_TASKS, 1, 1000000, 1, &tasks, err);
    e = e ? e : row_int(row, O_CPUS, 1, 65536, 1, &cpus, err);
    e = e ? e : row_int(row, O_MEMORY, 0, INT64_MAX / MIB, 0, &memory, err);
    e = e ? e : row_int(row, O_GPU, 0, 64000, 0, &gpu, err);
    e = e ? e : row_int(row, O_WORKERS, 0, TRACE_WORKERS_MAX, 0, &workers, err);
    if (e)
        return e;
    if (workers > tasks && run > TRACE_ELASTIC_RUN_MAX_S)
        return error_set(err, ERANGE, "line %u: run_s is %lld: an elastic job runs for at most %d s",
                         trace_input_number(row->in), (long long)run, TRACE_ELASTIC_RUN_MAX_S);
    if (run <= 0) {
        t->skipped++;
        return 0;
    }
    if (t->jobs.len >= TRACE_JOBS_MAX)
        return error_set(err, E2BIG, "more than %d jobs: cut the trace", TRACE_JOBS_MAX);
    struct trace_job j = {.submit_ms = submit * 1000,
                          .run_ms = (limit && run > limit ? limit : run) * 1000,
                          .limit_ms = limit * 1000,
                          .nodes = (uint32_t)nodes,
                          .tasks = (uint32_t)tasks,
                          .cpus_per_task = (uint32_t)cpus,
                          .memory_bytes = (uint64_t)memory * MIB,
                          .gpu_milli = (uint32_t)gpu,
                          .workers = workers > tasks ? (uint32_t)workers : 0,
                          .user = trace_names_number(&t->users, row_text(row, O_USER)),
                          .project = trace_names_number(&t->projects, row_text(row, O_PROJECT)),
                          .model = trace_names_number(&t->models, row_text(row, O_MODEL)),
                          .interactive = streq(row_text(row, O_CLASS), "interactive")};
    t->gpus |= gpu > 0;
    vec_push(&t->jobs, j);
    return 0;
}

int trace_read_own(struct trace *t, struct input *in, char *header, struct error *err) {
    int at[O_COUNT], r = 1;
    columns(header, OWN_COLUMNS, O_COUNT, at);
    int e = need_columns(at, OWN_COLUMNS, O_LIMIT, "trace", err);
    char *line;
    while (!e && (r = trace_input_line(in, &line, err)) > 0) {
        struct csv_row row = {.in = in, .at = at, .names = OWN_COLUMNS};
        if (!*line)
            continue;
        row.n = trace_input_split(line, ',', row.fields, TRACE_FIELDS_MAX);
        e = own_row(t, &row, err);
    }
    return e ? e : r < 0 ? r : 0;
}
