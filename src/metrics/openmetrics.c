// The controller's and the agents' answer: which families, in which order, from which fields.
#include "metrics/openmetrics.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/text.h"
#include "base/vec.h"
#include "export.h"

enum metrics_format metrics_negotiate(const char *accept) {
    if (accept && strstr(accept, "text/plain") && !strstr(accept, "application/openmetrics-text"))
        return METRICS_PLAIN;
    return METRICS_OPENMETRICS;
}

const char *metrics_content_type(enum metrics_format format) {
    return format == METRICS_OPENMETRICS ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                         : "text/plain; version=0.0.4; charset=utf-8";
}

static void put_one(struct metrics_writer *w, enum metric_id id, uint64_t value) {
    metrics_family(w, id);
    metrics_put_u64(w, NULL, value);
}

static void put_one_milli(struct metrics_writer *w, enum metric_id id, uint64_t value) {
    metrics_family(w, id);
    metrics_put_milli(w, NULL, value);
}

static void put_labelled(struct metrics_writer *w, const char *name, const char *value, uint64_t n) {
    struct buf labels = {0};
    metrics_label(&labels, name, value);
    metrics_put_u64(w, buf_str(&labels), n);
    buf_done(&labels);
}

void metrics_export_about(struct metrics_writer *w, const char *version, int64_t start_ms,
                          const struct metrics_process *p) {
    metrics_family(w, M_BUILD);
    put_labelled(w, "version", version, 1);
    put_one_milli(w, M_START, start_ms > 0 ? (uint64_t)start_ms : 0);
    put_one_milli(w, M_PROCESS_CPU, p->cpu_us / 1000);
    put_one(w, M_PROCESS_MEMORY, p->memory_bytes);
    put_one(w, M_PROCESS_FDS, p->fds);
}

// A list of groups within its limit: the busiest by themselves, the rest as one. A group that is
// called "other" goes there too, or its series would come twice.
struct folded {
    VEC(struct metrics_group) groups;
    uint64_t left_out;
};

static int busier_first(const void *a, const void *b) {
    const struct metrics_group *x = a, *y = b;
    uint64_t nx = x->running + x->pending + x->suspended, ny = y->running + y->pending + y->suspended;
    if (nx != ny)
        return nx > ny ? -1 : 1;
    return strcmp(x->name, y->name);
}

static uint64_t shares_of(const struct metrics_group *g) {
    return g->share_milligpu ? g->share_milligpu : 1000;
}

static void group_add(struct metrics_group *sum, const struct metrics_group *g) {
    sum->pending += g->pending;
    sum->running += g->running;
    sum->suspended += g->suspended;
    sum->cpus += g->cpus;
    sum->gpus_milli += g->gpus_milli;
    sum->quota_milligpu += g->quota_milligpu;
    sum->share_milligpu += shares_of(g);
    sum->cpus_total += g->cpus_total;
    sum->cpus_idle += g->cpus_idle;
    sum->cpus_other += g->cpus_other;
}

static void fold(const struct metrics_group *at, uint32_t len, uint32_t max, struct folded *out) {
    *out = (struct folded){0};
    struct metrics_group other = {.name = METRICS_OTHER};
    bool has_other = false;
    struct metrics_group *sorted = len ? xmemdup(at, len * sizeof *at) : NULL;
    if (len > max)
        qsort(sorted, len, sizeof *sorted, busier_first);
    for (uint32_t i = 0; i < len; i++) {
        if (i < max && !streq(sorted[i].name, METRICS_OTHER)) {
            vec_push(&out->groups, sorted[i]);
            continue;
        }
        group_add(&other, &sorted[i]);
        has_other = true;
        out->left_out += i >= max;
    }
    if (has_other)
        vec_push(&out->groups, other);
    free(sorted);
}

enum group_field {
    GROUP_PENDING,
    GROUP_RUNNING,
    GROUP_SUSPENDED,
    GROUP_CPUS,
    GROUP_GPUS,
    GROUP_QUOTA,
    GROUP_IDLE,
    GROUP_OTHER,
    GROUP_TOTAL
};

static uint64_t group_value(const struct metrics_group *g, enum group_field f) {
    switch (f) {
    case GROUP_PENDING: return g->pending;
    case GROUP_RUNNING: return g->running;
    case GROUP_SUSPENDED: return g->suspended;
    case GROUP_CPUS: return g->cpus;
    case GROUP_GPUS: return g->gpus_milli;
    case GROUP_QUOTA: return g->quota_milligpu;
    case GROUP_IDLE: return g->cpus_idle;
    case GROUP_OTHER: return g->cpus_other;
    case GROUP_TOTAL: return g->cpus_total;
    }
    assert(false);
    return 0;
}

static void put_groups(struct metrics_writer *w, enum metric_id id, const char *label, const struct folded *f,
                       enum group_field field) {
    metrics_family(w, id);
    struct buf labels = {0};
    for (uint32_t i = 0; i < f->groups.len; i++) {
        buf_clear(&labels);
        metrics_label(&labels, label, f->groups.at[i].name);
        uint64_t v = group_value(&f->groups.at[i], field);
        if (field == GROUP_GPUS || field == GROUP_QUOTA)
            metrics_put_milli(w, buf_str(&labels), v);
        else
            metrics_put_u64(w, buf_str(&labels), v);
    }
    buf_done(&labels);
}

static void put_groups_by_state(struct metrics_writer *w, enum metric_id id, const char *label,
                                const struct folded *f) {
    static const char *const states[] = {
        [GROUP_PENDING] = "PENDING", [GROUP_RUNNING] = "RUNNING", [GROUP_SUSPENDED] = "SUSPENDED"};
    metrics_family(w, id);
    struct buf labels = {0};
    for (uint32_t i = 0; i < f->groups.len; i++)
        for (enum group_field field = GROUP_PENDING; field <= GROUP_SUSPENDED; field++) {
            buf_clear(&labels);
            metrics_label(&labels, label, f->groups.at[i].name);
            metrics_label(&labels, "state", states[field]);
            metrics_put_u64(w, buf_str(&labels), group_value(&f->groups.at[i], field));
        }
    buf_done(&labels);
}

static void put_jobs(struct metrics_writer *w, const struct metrics_input *in) {
    metrics_family(w, M_JOBS);
    for (int s = 0; s < JOB_STATE_COUNT; s++)
        if (!job_state_final((enum job_state)s))
            put_labelled(w, "state", job_state_words[s], in->jobs_by_state[s]);
    metrics_family(w, M_JOBS_ENDED);
    for (int s = 0; s < JOB_STATE_COUNT; s++)
        if (job_state_final((enum job_state)s))
            put_labelled(w, "state", job_state_words[s], in->jobs_by_state[s]);
    metrics_family(w, M_PENDING);
    for (int r = 0; r < REASON_COUNT; r++)
        put_labelled(w, "reason", job_reason_words[r], in->pending_by_reason[r]);
    put_one(w, M_JOBS_SUBMITTED, in->submitted);
    put_one(w, M_JOBS_STARTED, in->started);
    put_one(w, M_JOBS_REQUEUED, in->requeued);
    put_one(w, M_JOBS_PREEMPTED, in->preempted);
    int64_t waits_ms = in->oldest_eligible_ms ? in->now_ms - in->oldest_eligible_ms : 0;
    put_one_milli(w, M_OLDEST, waits_ms > 0 ? (uint64_t)waits_ms : 0);
}

static void put_slurm_queue(struct metrics_writer *w, const struct metrics_input *in) {
    static const struct {
        enum metric_id id;
        enum job_state states[2];
    } ended[] = {
        {M_SLURM_Q_CANCELLED, {JOB_CANCELLED}}, {M_SLURM_Q_COMPLETED, {JOB_COMPLETED}},
        {M_SLURM_Q_FAILED, {JOB_FAILED, JOB_OUT_OF_MEMORY}}, {M_SLURM_Q_TIMEOUT, {JOB_TIMEOUT, JOB_DEADLINE}},
        {M_SLURM_Q_PREEMPTED, {JOB_PREEMPTED}}, {M_SLURM_Q_NODE_FAIL, {JOB_NODE_FAIL}},
    };
    const uint64_t *n = in->jobs_by_state;
    put_one(w, M_SLURM_Q_PENDING, n[JOB_PENDING]);
    put_one(w, M_SLURM_Q_DEPENDENCY,
            in->pending_by_reason[REASON_DEPENDENCY] + in->pending_by_reason[REASON_DEPENDENCY_NEVER]);
    put_one(w, M_SLURM_Q_RUNNING, n[JOB_RUNNING]);
    put_one(w, M_SLURM_Q_SUSPENDED, n[JOB_SUSPENDED]);
    put_one(w, M_SLURM_Q_CONFIGURING, n[JOB_STARTING]);
    put_one(w, M_SLURM_Q_COMPLETING, n[JOB_COMPLETING]);
    for (size_t i = 0; i < sizeof ended / sizeof *ended; i++) {
        uint64_t count = 0;
        for (int k = 0; k < 2 && in->recent; k++)
            if (ended[i].states[k] != JOB_PENDING)
                count += metrics_recent_count(in->recent, in->now_ms, ended[i].states[k]);
        put_one(w, ended[i].id, count);
    }
}

enum node_word {
    NODE_IDLE,
    NODE_MIXED,
    NODE_ALLOCATED,
    NODE_DRAINING,
    NODE_DRAINED,
    NODE_SILENT_WORD,
    NODE_DOWN_WORD,
    NODE_WORDS
};
static const char *const node_words[NODE_WORDS] = {"idle",    "mixed",  "allocated", "draining",
                                                   "drained", "silent", "down"};

static enum node_word word_of(const struct metrics_node *n) {
    if (n->state == NODE_DOWN)
        return NODE_DOWN_WORD;
    if (n->state == NODE_SILENT)
        return NODE_SILENT_WORD;
    if (n->drained)
        return n->jobs ? NODE_DRAINING : NODE_DRAINED;
    if (!n->jobs)
        return NODE_IDLE;
    bool full = n->cpus_used >= n->cpus || (n->gpus_milli && n->gpus_used_milli >= n->gpus_milli);
    return full ? NODE_ALLOCATED : NODE_MIXED;
}

static bool takes_jobs(const struct metrics_node *n) {
    return n->state == NODE_UP && !n->drained && !n->maintenance;
}

struct totals {
    uint64_t words[NODE_WORDS];
    uint64_t completing, error, maintenance, reserved;
    uint64_t cpus, cpus_used, cpus_other, gpus_milli, gpus_used_milli;
};

static void sum_nodes(const struct metrics_input *in, struct totals *t) {
    *t = (struct totals){0};
    for (uint32_t i = 0; i < in->nodes.len; i++) {
        const struct metrics_node *n = &in->nodes.at[i];
        t->words[word_of(n)]++;
        t->completing += n->completing;
        t->error += n->gpu_unhealthy;
        t->maintenance += n->maintenance;
        t->reserved += n->reserved;
        t->cpus += n->cpus;
        t->cpus_used += n->cpus_used;
        t->cpus_other += takes_jobs(n) ? 0 : export_u64_diff(n->cpus, n->cpus_used);
        t->gpus_milli += n->gpus_milli;
        t->gpus_used_milli += n->gpus_used_milli;
    }
}

static void put_totals(struct metrics_writer *w, const struct totals *t) {
    metrics_family(w, M_NODES);
    for (int i = 0; i < NODE_WORDS; i++)
        put_labelled(w, "state", node_words[i], t->words[i]);
    put_one(w, M_CPUS, t->cpus);
    put_one(w, M_CPUS_ALLOCATED, t->cpus_used);
    put_one_milli(w, M_GPUS, t->gpus_milli);
    put_one_milli(w, M_GPUS_ALLOCATED, t->gpus_used_milli);
}

static void put_slurm_totals(struct metrics_writer *w, const struct totals *t) {
    put_one(w, M_SLURM_NODES_ALLOC, t->words[NODE_ALLOCATED]);
    put_one(w, M_SLURM_NODES_COMP, t->completing);
    put_one(w, M_SLURM_NODES_DOWN, t->words[NODE_DOWN_WORD]);
    put_one(w, M_SLURM_NODES_DRAIN, t->words[NODE_DRAINING] + t->words[NODE_DRAINED]);
    put_one(w, M_SLURM_NODES_ERR, t->error);
    put_one(w, M_SLURM_NODES_FAIL, t->words[NODE_SILENT_WORD]);
    put_one(w, M_SLURM_NODES_IDLE, t->words[NODE_IDLE]);
    put_one(w, M_SLURM_NODES_MAINT, t->maintenance);
    put_one(w, M_SLURM_NODES_MIX, t->words[NODE_MIXED]);
    put_one(w, M_SLURM_NODES_RESV, t->reserved);
    put_one(w, M_SLURM_CPUS_ALLOC, t->cpus_used);
    put_one(w, M_SLURM_CPUS_IDLE, export_u64_diff(t->cpus, t->cpus_used + t->cpus_other));
    put_one(w, M_SLURM_CPUS_OTHER, t->cpus_other);
    put_one(w, M_SLURM_CPUS_TOTAL, t->cpus);
    put_one_milli(w, M_SLURM_GPUS_ALLOC, t->gpus_used_milli);
    put_one_milli(w, M_SLURM_GPUS_IDLE, export_u64_diff(t->gpus_milli, t->gpus_used_milli));
    put_one_milli(w, M_SLURM_GPUS_TOTAL, t->gpus_milli);
    put_one_milli(w, M_SLURM_GPUS_USE, t->gpus_milli ? t->gpus_used_milli * 1000 / t->gpus_milli : 0);
}

#define PUT_NODES(id, put, when, value)                       \
    do {                                                      \
        metrics_family(w, id);                                \
        for (uint32_t i = 0; i < count; i++) {                \
            const struct metrics_node *n = &nodes[i];         \
            if (when)                                         \
                put(w, labels[i], value);                     \
        }                                                     \
    } while (0)

// What agents export of themselves, too.
static void put_nodes_measured(struct metrics_writer *w, const struct metrics_node *nodes, uint32_t count,
                               char *const *labels) {
    PUT_NODES(M_NODE_UP, metrics_put_u64, true, n->state == NODE_UP);
    PUT_NODES(M_NODE_JOBS, metrics_put_u64, true, n->jobs);
    PUT_NODES(M_NODE_CPUS, metrics_put_u64, true, n->cpus);
    PUT_NODES(M_NODE_MEMORY, metrics_put_u64, true, n->memory_bytes);
    PUT_NODES(M_NODE_GPUS, metrics_put_milli, true, n->gpus_milli);
    PUT_NODES(M_NODE_CPU_USE, metrics_put_milli, n->telemetry, n->telemetry->cpu_milli);
    PUT_NODES(M_NODE_LOAD, metrics_put_milli, n->telemetry, n->telemetry->load_milli);
    PUT_NODES(M_NODE_MEMORY_USED, metrics_put_u64, n->telemetry, n->telemetry->memory_used_bytes);
    PUT_NODES(M_NODE_DISK_FREE, metrics_put_u64, n->telemetry, n->telemetry->disk_free_bytes);
    PUT_NODES(M_NODE_DISK, metrics_put_u64, n->telemetry && n->telemetry->disk_bytes, n->telemetry->disk_bytes);
}

static void put_nodes_held(struct metrics_writer *w, const struct metrics_node *nodes, uint32_t count,
                           char *const *labels) {
    PUT_NODES(M_NODE_DRAINED, metrics_put_u64, true, n->drained);
    PUT_NODES(M_NODE_CPUS_ALLOCATED, metrics_put_u64, true, n->cpus_used);
    PUT_NODES(M_NODE_MEMORY_ALLOCATED, metrics_put_u64, true, n->memory_used_bytes);
    PUT_NODES(M_NODE_GPUS_ALLOCATED, metrics_put_milli, true, n->gpus_used_milli);
}

static void put_nodes_slurm(struct metrics_writer *w, const struct metrics_node *nodes, uint32_t count,
                            char *const *labels) {
    PUT_NODES(M_SLURM_NODE_CPU_ALLOC, metrics_put_u64, true, n->cpus_used);
    PUT_NODES(M_SLURM_NODE_CPU_IDLE, metrics_put_u64, true, takes_jobs(n) ? export_u64_diff(n->cpus, n->cpus_used) : 0);
    PUT_NODES(M_SLURM_NODE_CPU_OTHER, metrics_put_u64, true,
              takes_jobs(n) ? 0 : export_u64_diff(n->cpus, n->cpus_used));
    PUT_NODES(M_SLURM_NODE_CPU_TOTAL, metrics_put_u64, true, n->cpus);
    PUT_NODES(M_SLURM_NODE_MEM_ALLOC, metrics_put_u64, true, n->memory_used_bytes >> 20);
    PUT_NODES(M_SLURM_NODE_MEM_TOTAL, metrics_put_u64, true, n->memory_bytes >> 20);
}

static char **node_labels(const struct metrics_node *nodes, uint32_t count, bool status) {
    char **labels = xcalloc(count ? count : 1, sizeof *labels);
    for (uint32_t i = 0; i < count; i++) {
        struct buf b = {0};
        metrics_label(&b, "node", nodes[i].name);
        if (status)
            metrics_label(&b, "status", node_words[word_of(&nodes[i])]);
        labels[i] = buf_take(&b);
    }
    return labels;
}

static void labels_free(char **labels, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        free(labels[i]);
    free(labels);
}

static void put_nodes(struct metrics_writer *w, const struct metrics_node *nodes, uint32_t count) {
    char **labels = node_labels(nodes, count, false);
    put_nodes_measured(w, nodes, count, labels);
    put_nodes_held(w, nodes, count, labels);
    labels_free(labels, count);
    labels = node_labels(nodes, count, true);
    put_nodes_slurm(w, nodes, count, labels);
    labels_free(labels, count);
}

static void put_scheduler(struct metrics_writer *w, const struct metrics_input *in) {
    static const struct metrics_histogram none;
    const struct metrics_histogram *pass = in->pass ? in->pass : &none;
    metrics_family(w, M_PASS);
    metrics_put_histogram(w, pass);
    put_one(w, M_PASS_JOBS, in->pass_jobs);
    put_one(w, M_BACKFILLED, in->backfilled);
    int64_t up_ms = in->now_ms - in->start_ms;
    put_one(w, M_SLURM_S_LAST, in->pass_last_us);
    put_one(w, M_SLURM_S_MEAN, pass->count ? pass->sum_us / pass->count : 0);
    put_one_milli(w, M_SLURM_S_RATE, up_ms > 0 ? pass->count * 60000000ULL / (uint64_t)up_ms : 0);
    put_one_milli(w, M_SLURM_S_DEPTH, pass->count ? in->pass_jobs * 1000 / pass->count : 0);
    put_one(w, M_SLURM_S_BF_LAST, in->pass_last_us);
    put_one(w, M_SLURM_S_BF_MEAN, pass->count ? pass->sum_us / pass->count : 0);
    put_one(w, M_SLURM_S_BACKFILLED, in->backfilled);
    put_one(w, M_SLURM_S_BF_CYCLE, in->backfilled);
    put_one(w, M_SLURM_S_BF_HET, 0);
    put_one(w, M_SLURM_S_DBD, 0);
    put_one(w, M_SLURM_S_THREADS, in->connections);
    put_one(w, M_SLURM_S_QUEUE, in->journal_waiting);
    metrics_family(w, M_API_TIME);
    metrics_put_histogram(w, in->request ? in->request : &none);
}

static void put_daemon(struct metrics_writer *w, const struct metrics_input *in) {
    put_one(w, M_API_CONNECTIONS, in->connections);
    put_one(w, M_JOURNAL_EVENTS, in->journal_events);
    put_one(w, M_JOURNAL_SIZE, in->journal_bytes);
    put_one(w, M_JOURNAL_COMMITS, in->journal_commits);
    put_one_milli(w, M_JOURNAL_COMMIT_TIME, in->journal_commit_us / 1000);
    if (in->snapshot_ms)
        put_one_milli(w, M_SNAPSHOT_AGE, in->now_ms > in->snapshot_ms ? (uint64_t)(in->now_ms - in->snapshot_ms) : 0);
    struct buf labels = {0};
    metrics_family(w, M_API_REQUESTS);
    for (uint32_t i = 0; i < in->routes.len && i < METRICS_ROUTES_MAX; i++) {
        buf_clear(&labels);
        metrics_label(&labels, "route", in->routes.at[i].route);
        metrics_label(&labels, "method", in->routes.at[i].method);
        metrics_label_u64(&labels, "code", in->routes.at[i].code);
        metrics_put_u64(w, buf_str(&labels), in->routes.at[i].count);
    }
    buf_done(&labels);
    metrics_family(w, M_STORAGE);
    for (uint32_t i = 0; i < in->storage.len && i < METRICS_STORAGE_MAX; i++)
        put_labelled(w, "path", in->storage.at[i].path, in->storage.at[i].size_bytes);
    metrics_family(w, M_STORAGE_FREE);
    for (uint32_t i = 0; i < in->storage.len && i < METRICS_STORAGE_MAX; i++)
        put_labelled(w, "path", in->storage.at[i].path, in->storage.at[i].free_bytes);
}

static void put_users(struct metrics_writer *w, const struct folded *f) {
    put_groups_by_state(w, M_USER_JOBS, "user", f);
    put_groups(w, M_USER_GPUS, "user", f, GROUP_GPUS);
    put_groups(w, M_SLURM_USER_PENDING, "user", f, GROUP_PENDING);
    put_groups(w, M_SLURM_USER_RUNNING, "user", f, GROUP_RUNNING);
    put_groups(w, M_SLURM_USER_SUSPENDED, "user", f, GROUP_SUSPENDED);
    put_groups(w, M_SLURM_USER_CPUS, "user", f, GROUP_CPUS);
}

// As sshare has it: the part promised against the part in use, of GPUs where there are any, else of CPUs.
static void put_fairshare(struct metrics_writer *w, const struct folded *f, const struct totals *t) {
    struct buf labels = {0};
    double total = t->gpus_milli ? (double)t->gpus_milli : (double)t->cpus * 1000, shares = 0;
    for (uint32_t i = 0; i < f->groups.len; i++)
        shares += (double)shares_of(&f->groups.at[i]);
    metrics_family(w, M_SLURM_ACCOUNT_FAIR);
    for (uint32_t i = 0; i < f->groups.len; i++) {
        const struct metrics_group *g = &f->groups.at[i];
        double norm = (double)shares_of(g) / shares;
        double used = t->gpus_milli ? (double)g->gpus_milli : (double)g->cpus * 1000;
        buf_clear(&labels);
        metrics_label(&labels, "account", g->name);
        metrics_put(w, buf_str(&labels), used > 0 && total > 0 ? norm / (norm + used / total) : 1);
    }
    buf_done(&labels);
}

static void put_projects(struct metrics_writer *w, const struct folded *f) {
    put_groups_by_state(w, M_PROJECT_JOBS, "project", f);
    put_groups(w, M_PROJECT_GPUS, "project", f, GROUP_GPUS);
    put_groups(w, M_PROJECT_QUOTA, "project", f, GROUP_QUOTA);
    put_groups(w, M_SLURM_ACCOUNT_PENDING, "account", f, GROUP_PENDING);
    put_groups(w, M_SLURM_ACCOUNT_RUNNING, "account", f, GROUP_RUNNING);
    put_groups(w, M_SLURM_ACCOUNT_SUSPENDED, "account", f, GROUP_SUSPENDED);
    put_groups(w, M_SLURM_ACCOUNT_CPUS, "account", f, GROUP_CPUS);
}

// One sample of each service; `name` and `value`: a further label, NULL: none.
static void put_service(struct metrics_writer *w, const struct metrics_service *s, const char *name,
                        const char *value, double sample) {
    cleanup_buf struct buf labels = {0};
    metrics_label(&labels, "service", s->name);
    metrics_label(&labels, "user", s->user);
    if (name)
        metrics_label(&labels, name, value);
    metrics_put(w, buf_str(&labels), sample);
}

static void put_services(struct metrics_writer *w, const struct metrics_input *in) {
    static const enum metric_id families[] = {M_SERVICE_REPLICAS, M_SERVICE_IN_FLIGHT, M_SERVICE_QUEUED,
                                              M_SERVICE_REQUESTS, M_SERVICE_LATENCY};
    for (size_t k = 0; k < sizeof families / sizeof *families; k++) {
        metrics_family(w, families[k]);
        for (uint32_t i = 0; i < in->services.len; i++) {
            const struct metrics_service *s = &in->services.at[i];
            if (families[k] == M_SERVICE_REPLICAS) {
                put_service(w, s, "state", "wanted", (double)s->wanted);
                put_service(w, s, "state", "ready", (double)s->ready);
            } else if (families[k] == M_SERVICE_IN_FLIGHT) {
                put_service(w, s, NULL, NULL, (double)s->in_flight);
            } else if (families[k] == M_SERVICE_QUEUED) {
                put_service(w, s, NULL, NULL, (double)s->queued);
            } else if (families[k] == M_SERVICE_REQUESTS) {
                put_service(w, s, "result", "given", (double)s->requests);
                put_service(w, s, "result", "failed", (double)s->failures);
                put_service(w, s, "result", "refused", (double)s->refused);
            } else {
                put_service(w, s, "quantile", "0.5", (double)s->p50_us / 1e6);
                put_service(w, s, "quantile", "0.99", (double)s->p99_us / 1e6);
            }
        }
    }
}

static void put_partitions(struct metrics_writer *w, const struct folded *f) {
    put_groups(w, M_SLURM_PARTITION_ALLOC, "partition", f, GROUP_CPUS);
    put_groups(w, M_SLURM_PARTITION_IDLE, "partition", f, GROUP_IDLE);
    put_groups(w, M_SLURM_PARTITION_OTHER, "partition", f, GROUP_OTHER);
    put_groups(w, M_SLURM_PARTITION_TOTAL, "partition", f, GROUP_TOTAL);
    put_groups(w, M_SLURM_PARTITION_PENDING, "partition", f, GROUP_PENDING);
}

static uint32_t within(uint32_t len, uint32_t max) {
    return len < max ? len : max;
}

void metrics_controller(const struct metrics_input *in, struct buf *out) {
    struct metrics_writer w;
    struct folded users, projects, partitions;
    struct totals totals;
    fold(in->users.at, in->users.len, METRICS_USERS_MAX, &users);
    fold(in->projects.at, in->projects.len, METRICS_PROJECTS_MAX, &projects);
    fold(in->partitions.at, in->partitions.len, METRICS_PARTITIONS_MAX, &partitions);
    sum_nodes(in, &totals);

    metrics_start(&w, out, in->format);
    metrics_export_about(&w, in->version, in->start_ms, &in->process);
    metrics_family(&w, M_DROPPED);
    put_labelled(&w, "list", "users", users.left_out);
    put_labelled(&w, "list", "projects", projects.left_out);
    put_labelled(&w, "list", "partitions", partitions.left_out);
    put_labelled(&w, "list", "routes", in->routes.len - within(in->routes.len, METRICS_ROUTES_MAX));
    put_labelled(&w, "list", "nodes", in->nodes.len - within(in->nodes.len, METRICS_NODES_MAX));
    put_labelled(&w, "list", "gpus", in->gpus.len - within(in->gpus.len, METRICS_GPUS_MAX));
    put_labelled(&w, "list", "job_gpus", in->job_gpus.len - within(in->job_gpus.len, METRICS_JOB_GPUS_MAX));
    put_jobs(&w, in);
    put_slurm_queue(&w, in);
    put_users(&w, &users);
    put_projects(&w, &projects);
    put_services(&w, in);
    put_fairshare(&w, &projects, &totals);
    put_partitions(&w, &partitions);
    put_totals(&w, &totals);
    put_slurm_totals(&w, &totals);
    put_nodes(&w, in->nodes.at, within(in->nodes.len, METRICS_NODES_MAX));
    put_scheduler(&w, in);
    put_daemon(&w, in);
    metrics_export_gpus(
        &w, &(struct metrics_export_gpus){.gpus = in->gpus.at,
                                          .gpu_count = within(in->gpus.len, METRICS_GPUS_MAX),
                                          .jobs = in->job_gpus.at,
                                          .job_count = within(in->job_gpus.len, METRICS_JOB_GPUS_MAX),
                                          .idle = true});
    metrics_end(&w);
    vec_done(&users.groups);
    vec_done(&projects.groups);
    vec_done(&partitions.groups);
}

// The newest sample of a whole device.
static const struct gpu_sample *device_sample(const struct message_telemetry *t, uint32_t index) {
    for (uint32_t i = 0; t && i < t->gpus.len; i++)
        if (t->gpus.at[i].index == index && !t->gpus.at[i].id)
            return &t->gpus.at[i];
    return NULL;
}

void metrics_agent(const struct metrics_agent_input *in, struct buf *out) {
    struct metrics_writer w;
    metrics_start(&w, out, in->format);
    metrics_export_about(&w, in->version, in->start_ms, &in->process);
    uint32_t count = within(in->node->gpus.len, METRICS_GPUS_MAX),
             jobs = within(in->job_gpus.len, METRICS_JOB_GPUS_MAX);
    metrics_family(&w, M_DROPPED);
    put_labelled(&w, "list", "gpus", in->node->gpus.len - count);
    put_labelled(&w, "list", "job_gpus", in->job_gpus.len - jobs);
    struct metrics_node self = {.name = in->node->name,
                                .state = in->connected ? NODE_UP : NODE_SILENT,
                                .jobs = in->jobs,
                                .cpus = in->node->cpus,
                                .memory_bytes = in->node->memory_bytes,
                                .gpus_milli = in->node->gpus.len * 1000,
                                .telemetry = in->telemetry};
    char **labels = node_labels(&self, 1, false);
    put_nodes_measured(&w, &self, 1, labels);
    labels_free(labels, 1);
    struct metrics_gpu *gpus = xcalloc(count ? count : 1, sizeof *gpus);
    for (uint32_t i = 0; i < count; i++)
        gpus[i] = (struct metrics_gpu){.node = in->node->name, .index = i, .gpu = &in->node->gpus.at[i],
                                       .allocated_milli = i < in->allocated_milli.len ? in->allocated_milli.at[i] : 0,
                                       .sample = device_sample(in->telemetry, i)};
    metrics_export_gpus(&w,
                        &(struct metrics_export_gpus){
                            .gpus = gpus, .gpu_count = count, .jobs = in->job_gpus.at, .job_count = jobs});
    free(gpus);
    metrics_end(&w);
}
