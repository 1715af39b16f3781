// Owns the newest telemetry of each node, the time series and the idle GPUs. Nothing of it is in the
// journal: it comes again with the next second, and the series are saved now and then.
#include "controller/telemetry.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/text.h"
#include "model/units.h"
#include "net/pki.h"

enum { FORGET_MS = 60000, SERIES_FILE_MAX = 512 << 20, FINDING_MAX = 256, FINDING_MS = 10000 };

struct latest {
    struct arena arena;
    struct message_telemetry *sample;
};

struct gpu_idle {
    uint64_t job;
    const char *node;  // interned
    uint32_t index;
    struct idle_state state;
    int64_t seen_ms;
};

// What a job's GPUs did since the last tick.
struct job_gpus {
    uint64_t id;
    uint64_t use_milli, most_milli, memory_bytes, power_mw;
    uint32_t samples;
    bool unknown;
    char finding[FINDING_MAX];  // the newest way in which it does not keep to its part
    int64_t finding_ms;         // 0: there is none
    struct idle_state idle;
    int64_t seen_ms;
};

struct telemetry {
    struct strmap nodes;  // interned name → struct latest
    struct map jobs;      // id → struct job_gpus
    struct map gpus;      // hash of job, node, index → struct gpu_idle
    struct series_store *series;
    struct metrics_recent recent;
    int64_t saved_ms;
    bool saving;
};

static const char *series_path(const struct controller *c, struct arena *a) {
    return arena_printf(a, "%s/series.bin", c->paths.state);
}

void telemetry_open(struct controller *c) {
    cleanup_arena struct arena a = {0};
    cleanup_free char *data = NULL;
    struct stat st;
    c->telemetry = xcalloc(1, sizeof *c->telemetry);
    c->telemetry->series = series_store_new(SERIES_MAX);
    c->telemetry->saved_ms = now_ms();
    cleanup_close int fd = open(series_path(c, &a), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || fstat(fd, &st) < 0 || st.st_size <= 0 || st.st_size > SERIES_FILE_MAX)
        return;
    data = xmalloc((size_t)st.st_size);
    ssize_t n = read(fd, data, (size_t)st.st_size);
    if (n > 0 && series_load(c->telemetry->series, data, (size_t)n) < 0)
        log_warn("the saved time series are damaged; %u of them could be read", series_count(c->telemetry->series));
}

static void write_series(const char *path, const struct buf *b) {
    struct error e = {0};
    if (pki_write_file(path, b->data, b->len, 0600, &e) < 0)
        log_warn("the time series cannot be saved: %s", e.text);
}

void telemetry_save(struct controller *c) {
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf b = {0};
    if (!c->telemetry)
        return;
    series_save(c->telemetry->series, &b);
    write_series(series_path(c, &a), &b);
}

// While the loop goes on, the disk is waited for in a work thread.
struct saving {
    uv_work_t work;
    struct arena arena;
    const char *path;
    struct buf bytes;
    struct controller *controller;
};

static void save_work(uv_work_t *w) {
    struct saving *s = w->data;
    write_series(s->path, &s->bytes);
}

static void save_done(uv_work_t *w, int status) {
    struct saving *s = w->data;
    if (s->controller->telemetry)
        s->controller->telemetry->saving = false;
    buf_done(&s->bytes);
    arena_done(&s->arena);
    free(s);
}

static void save_later(struct controller *c, int64_t now) {
    struct saving *s = xcalloc(1, sizeof *s);
    c->telemetry->saved_ms = now;
    s->controller = c;
    s->work.data = s;
    s->path = series_path(c, &s->arena);
    series_save(c->telemetry->series, &s->bytes);
    c->telemetry->saving = uv_queue_work(&c->loop, &s->work, save_work, save_done) == 0;
    if (!c->telemetry->saving)
        save_done(&s->work, UV_ECANCELED);
}

// --- what comes in ---

static void keep(struct telemetry *t, const char *prefix, const char *what, int64_t now, double value) {
    char name[SERIES_NAME_MAX + 1];
    snprintf(name, sizeof name, "%s/%s", prefix, what);
    series_add(t->series, name, now, value);
}

static void add_device(struct telemetry *t, const char *node, const struct gpu_sample *s, int64_t now) {
    char prefix[SERIES_NAME_MAX - 32];
    snprintf(prefix, sizeof prefix, "gpu/%s/%u", node, s->index);
    if (!s->utilisation_unknown)
        keep(t, prefix, "utilisation", now, s->utilisation_milli / 1000.0);
    keep(t, prefix, "memory_bytes", now, (double)s->memory_used_bytes);
    keep(t, prefix, "power_watts", now, (double)s->power_mw / 1000.0);
    keep(t, prefix, "temperature_celsius", now, s->temperature_c);
}

static uint64_t gpu_key(uint64_t job, const char *node, uint32_t index) {
    return hash_u64(job * 1024 + index) ^ hash_bytes(node, strlen(node));
}

static void add_job(struct controller *c, const char *node, const struct gpu_sample *s, int64_t now) {
    static const struct idle_policy look_only = {.below_milli = TELEMETRY_IDLE_MILLI};
    struct telemetry *t = c->telemetry;
    if (!core_runs_on(c->core, s->id, s->attempt, node))
        return;
    struct job_gpus *j = map_get(&t->jobs, s->id);
    if (!j) {
        j = xcalloc(1, sizeof *j);
        j->id = s->id;
        map_put(&t->jobs, s->id, j);
    }
    j->seen_ms = now;
    j->samples++;
    j->unknown |= s->utilisation_unknown;
    if (s->finding) {
        printable(s->finding, j->finding, sizeof j->finding);
        j->finding_ms = now;
    }
    j->use_milli += s->utilisation_milli;
    j->memory_bytes += s->memory_used_bytes;
    j->power_mw += s->power_mw;
    if (s->utilisation_milli > j->most_milli)
        j->most_milli = s->utilisation_milli;
    uint64_t key = gpu_key(s->id, node, s->index);
    struct gpu_idle *g = map_get(&t->gpus, key);
    if (!g) {
        g = xcalloc(1, sizeof *g);
        *g = (struct gpu_idle){.job = s->id, .node = node, .index = s->index};
        map_put(&t->gpus, key, g);
    }
    g->seen_ms = now;
    idle_look(&g->state, &look_only, now, s->utilisation_unknown ? -1 : (int64_t)s->utilisation_milli);
}

void telemetry_add(struct controller *c, const char *node, const struct message_telemetry *m) {
    struct telemetry *t = c->telemetry;
    int64_t now = now_ms();
    const char *name = core_intern(c->core, node);
    struct latest *l = strmap_get(&t->nodes, name);
    if (!l) {
        l = xcalloc(1, sizeof *l);
        strmap_put(&t->nodes, name, l);
    }
    arena_done(&l->arena);
    l->sample = schema_copy(message_info(MESSAGE_TELEMETRY)->schema, m, &l->arena);
    for (uint32_t i = 0; i < m->gpus.len; i++) {
        const struct gpu_sample *s = &m->gpus.at[i];
        if (s->id)
            add_job(c, name, s, now);
        else
            add_device(t, name, s, now);
    }
}

const struct message_telemetry *telemetry_latest(const struct controller *c, const char *node) {
    const struct latest *l = c->telemetry ? strmap_get(&c->telemetry->nodes, node) : NULL;
    return l ? l->sample : NULL;
}

// --- once a second ---

static struct idle_policy policy_of(const struct controller *c) {
    const struct config_cluster *k = &c->config.cluster;
    return (struct idle_policy){.below_milli = TELEMETRY_IDLE_MILLI,
                                .after_s = k->idle_gpu_after_s,
                                .warn_s = k->idle_gpu_warn_s,
                                .end_s = k->idle_gpu_end_s};
}

static void end_idle(struct controller *c, const struct job_gpus *j, int64_t now) {
    char text[UNIT_TEXT_MAX], reason[160];
    struct error e = {0};
    const struct actor actor = {.user = "root", .admin = true};
    snprintf(reason, sizeof reason, "held GPUs for %s without using them (idle_gpu_end)",
             duration_format(idle_seconds(&j->idle, now), text));
    if (core_cancel(c->core, &actor, j->id, &(struct cancel_options){.reason = reason}, now, &e) < 0)
        log_warn("job %llu holds idle GPUs and cannot be ended: %s", (unsigned long long)j->id, e.text);
    else
        log_info("job %llu ended: %s", (unsigned long long)j->id, reason);
}

static void look_at(struct controller *c, struct job_gpus *j, const struct job_view *v,
                    const struct idle_policy *p, int64_t now) {
    char text[UNIT_TEXT_MAX];
    // A part that is not heard of may be busy.
    bool whole = j->samples * 1000ULL >= v->gpus_milli && !j->unknown && v->state == JOB_RUNNING;
    enum idle_step step = idle_look(&j->idle, p, now, whole ? (int64_t)j->most_milli : -1);
    duration_format(idle_seconds(&j->idle, now), text);
    if (step == IDLE_NAME)
        log_info("job %llu of %s holds GPUs and has not used them for %s", (unsigned long long)j->id, v->user, text);
    if (step == IDLE_WARN)
        log_warn("job %llu of %s holds GPUs and has not used them for %s: its owner is warned",
                 (unsigned long long)j->id, v->user, text);
    if (step == IDLE_END)
        end_idle(c, j, now);
}

static void tick_jobs(struct controller *c, int64_t now) {
    struct telemetry *t = c->telemetry;
    struct idle_policy p = policy_of(c);
    size_t it = 0;
    uint64_t id;
    void *value;
    while (map_next(&t->jobs, &it, &id, &value)) {
        struct job_gpus *j = value;
        struct job_view v;
        if (!core_view(c->core, id, &v) || now - j->seen_ms > FORGET_MS) {
            free(map_remove(&t->jobs, id));
            continue;
        }
        if (!j->samples)
            continue;
        char prefix[64];
        snprintf(prefix, sizeof prefix, "job/%llu", (unsigned long long)id);
        if (!j->unknown)
            keep(t, prefix, "gpu_utilisation", now, (double)j->use_milli / 1000.0);
        keep(t, prefix, "gpu_memory_bytes", now, (double)j->memory_bytes);
        keep(t, prefix, "gpu_power_watts", now, (double)j->power_mw / 1000.0);
        look_at(c, j, &v, &p, now);
        j->use_milli = j->most_milli = j->memory_bytes = j->power_mw = 0;
        j->samples = 0;
        j->unknown = false;
    }
}

static void forget_gpus(struct telemetry *t, int64_t now) {
    size_t it = 0;
    uint64_t key;
    void *value;
    while (map_next(&t->gpus, &it, &key, &value))
        if (now - ((struct gpu_idle *)value)->seen_ms > FORGET_MS)
            free(map_remove(&t->gpus, key));
}

struct cluster_sum {
    uint64_t gpus, held_milli;
};

static bool sum_node(void *ctx, const struct node_view *v) {
    struct cluster_sum *s = ctx;
    s->gpus += v->state == NODE_UP ? v->node->gpus.len : 0;
    s->held_milli += v->gpus_used_milli;
    return true;
}

static void tick_cluster(struct controller *c, int64_t now) {
    struct telemetry *t = c->telemetry;
    struct core_counts n;
    struct cluster_sum sum = {0};
    double use = 0;
    uint64_t measured = 0;
    size_t it = 0;
    void *value;
    core_counts(c->core, &n);
    core_each_node(c->core, sum_node, &sum);
    while (strmap_next(&t->nodes, &it, NULL, &value)) {
        const struct message_telemetry *m = ((struct latest *)value)->sample;
        for (uint32_t i = 0; i < m->gpus.len; i++)
            if (!m->gpus.at[i].id && !m->gpus.at[i].utilisation_unknown) {
                use += m->gpus.at[i].utilisation_milli / 1000.0;
                measured++;
            }
    }
    keep(t, "cluster", "jobs_pending", now, (double)n.by_state[JOB_PENDING]);
    keep(t, "cluster", "jobs_running", now, (double)n.by_state[JOB_RUNNING]);
    keep(t, "cluster", "gpus", now, (double)sum.gpus);
    keep(t, "cluster", "gpus_allocated", now, (double)sum.held_milli / 1000.0);
    if (measured)
        keep(t, "cluster", "gpu_utilisation", now, use / (double)measured);
    metrics_recent_update(&t->recent, now, n.by_state);
}

void telemetry_tick(struct controller *c) {
    int64_t now = now_ms();
    tick_cluster(c, now);
    tick_jobs(c, now);
    forget_gpus(c->telemetry, now);
    if (!c->telemetry->saving && (now - c->telemetry->saved_ms >= TELEMETRY_SAVE_MS || now < c->telemetry->saved_ms))
        save_later(c, now);
}

// --- questions ---

struct series_store *telemetry_series(const struct controller *c) {
    return c->telemetry->series;
}

const struct metrics_recent *telemetry_recent(const struct controller *c) {
    return &c->telemetry->recent;
}

uint64_t telemetry_gpu_idle_s(const struct controller *c, uint64_t job, const char *node, uint32_t index) {
    const struct gpu_idle *g = map_get(&c->telemetry->gpus, gpu_key(job, node, index));
    return g ? idle_seconds(&g->state, now_ms()) : 0;
}

uint64_t telemetry_idle_s(const struct controller *c, uint64_t job) {
    const struct job_gpus *j = map_get(&c->telemetry->jobs, job);
    return j ? idle_seconds(&j->idle, now_ms()) : 0;
}

const char *telemetry_warning(const struct controller *c, uint64_t job, char *out, size_t size) {
    const struct job_gpus *j = map_get(&c->telemetry->jobs, job);
    char text[UNIT_TEXT_MAX], end[UNIT_TEXT_MAX];
    if (j && j->finding_ms && now_ms() - j->finding_ms < FINDING_MS) {
        snprintf(out, size, "does not keep to its part of a GPU: %s", j->finding);
        return out;
    }
    if (!j || j->idle.stage < IDLE_NAMED)
        return NULL;
    struct idle_policy p = policy_of(c);
    uint64_t s = idle_seconds(&j->idle, now_ms());
    duration_format(s, text);
    if (p.end_s)
        snprintf(out, size, "holds GPUs and has not used them for %s; it is ended after %s", text,
                 duration_format(p.end_s, end));
    else
        snprintf(out, size, "holds GPUs and has not used them for %s", text);
    return out;
}

const char *telemetry_waste(const struct controller *c, char *out, size_t size) {
    enum { NAMED_MAX = 5 };
    uint64_t ids[NAMED_MAX];
    uint32_t count = 0;
    size_t it = 0, len = 0;
    void *value;
    while (map_next(&c->telemetry->jobs, &it, NULL, &value)) {
        const struct job_gpus *j = value;
        if (j->idle.stage < IDLE_NAMED)
            continue;
        uint32_t at = count < NAMED_MAX ? count : NAMED_MAX;  // the lowest numbers, in order
        while (at > 0 && ids[at - 1] > j->id) {
            if (at < NAMED_MAX)
                ids[at] = ids[at - 1];
            at--;
        }
        if (at < NAMED_MAX)
            ids[at] = j->id;
        count++;
    }
    if (!count)
        return NULL;
    len = (size_t)snprintf(out, size, "%u %s GPUs without using them:", count, count == 1 ? "job holds" : "jobs hold");
    for (uint32_t i = 0; i < count && i < NAMED_MAX && len < size; i++)
        len += (size_t)snprintf(out + len, size - len, "%s %llu", i ? "," : "", (unsigned long long)ids[i]);
    if (count > NAMED_MAX && len < size)
        snprintf(out + len, size - len, " and others");
    return out;
}

static void free_values(struct map *m) {
    size_t it = 0;
    void *v;
    while (map_next(m, &it, NULL, &v))
        free(v);
    map_done(m);
}

void telemetry_done(struct controller *c) {
    size_t it = 0;
    void *v;
    if (!c->telemetry)
        return;
    while (strmap_next(&c->telemetry->nodes, &it, NULL, &v)) {
        arena_done(&((struct latest *)v)->arena);
        free(v);
    }
    strmap_done(&c->telemetry->nodes);
    free_values(&c->telemetry->jobs);
    free_values(&c->telemetry->gpus);
    series_store_free(c->telemetry->series);
    free(c->telemetry);
    c->telemetry = NULL;
}
