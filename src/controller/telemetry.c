// Owns the newest telemetry of each node, the time series and the idle GPUs. Nothing of it is in the
// journal: it comes again with the next second, and the series are saved now and then.
#include "telemetry.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "alerts.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "model/gpuspec.h"
#include "model/units.h"
#include "net/pki.h"

enum {
    FORGET_MS = 60000,
    USAGE_STEP_MS = 1900,  // between two points of a job's CPUs and memory
    SERIES_FILE_MAX = 512 << 20,
    FINDING_MAX = 256,
    FINDING_MS = 10000,
    SAVE_BYTES = 64 << 10,  // of charts, in a second: all of a large cluster take half an hour,
    SAVE_EVERY_MS = 60000,  // those of a small one are saved every minute
};

struct latest {
    struct arena arena;
    struct message_telemetry *sample;
    int64_t mono_ms;  // when it came
};

struct gpu_idle {
    uint64_t job;
    const char *node;  // interned
    uint32_t index;
    struct idle_state state;
    int64_t seen_ms;
    uint64_t tick;  // in which it was last counted, and with which figures:
    uint64_t use_milli, memory_bytes, power_mw;
};

// What a job's GPUs did since the last tick.
struct job_gpus {
    uint64_t id;
    uint64_t use_milli, most_milli, memory_bytes, power_mw;
    uint32_t samples;           // GPUs heard of, each once
    uint32_t attempt, grants;   // GPUs that this attempt holds
    bool unknown;
    uint64_t last_use_milli;    // of the newest second that was whole
    int64_t last_use_ms;        // 0: there is none
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
    uint64_t tick;
    int64_t save_began_ms;  // when the first of them was saved last, on the clock that is never set
    uint32_t save_next;     // of the series; past the last: all are saved
    struct strmap saved;    // name, of those in the store → itself, allocated
};

// --- saving ---

// Each series is a named value of the store, SERIES_PREFIX and its name. They are written one after the other, a few
// in a second, so that neither the loop nor the disk is held up however many there are.
#define SERIES_PREFIX "series/"

static void keep_series(struct controller *c, const char *name, const struct buf *b) {
    char blob[sizeof SERIES_PREFIX + SERIES_NAME_MAX];
    static_assert(sizeof blob - 1 <= STORE_BLOB_NAME_MAX, "a series has room for its name");
    snprintf(blob, sizeof blob, SERIES_PREFIX "%s", name);
    pipeline_keep_blob(c->pipeline, blob, b ? b->data : NULL, b ? b->len : 0);
}

// Returns the bytes.
static size_t save_series(struct controller *c, uint32_t i) {
    struct telemetry *t = c->telemetry;
    cleanup_buf struct buf b = {0};
    const char *name = series_save_one(t->series, i, &b);
    keep_series(c, name, &b);
    if (!strmap_get(&t->saved, name)) {
        char *copy = xstrdup(name);
        strmap_put(&t->saved, copy, copy);
    }
    return b.len;
}

// Those that are no longer kept in memory leave the store too.
static void forget_series(struct controller *c) {
    struct telemetry *t = c->telemetry;
    VEC(char *) gone = {0};
    void *name;
    for (size_t it = 0; strmap_next(&t->saved, &it, NULL, &name);)
        if (!series_has(t->series, name))
            vec_push(&gone, (char *)name);
    for (uint32_t i = 0; i < gone.len; i++) {
        keep_series(c, gone.at[i], NULL);
        strmap_remove(&t->saved, gone.at[i]);
        free(gone.at[i]);
    }
    vec_done(&gone);
}

static void save_some(struct controller *c) {
    struct telemetry *t = c->telemetry;
    int64_t mono = clock_mono_ms();
    if (pipeline_degraded(c->pipeline, NULL, 0))
        return;  // what cannot be written must not pile up
    if (t->save_next >= series_count(t->series)) {
        if (mono - t->save_began_ms < SAVE_EVERY_MS)
            return;
        t->save_began_ms = mono;
        t->save_next = 0;
        forget_series(c);
    }
    for (size_t bytes = 0; bytes < SAVE_BYTES && t->save_next < series_count(t->series);)
        bytes += save_series(c, t->save_next++);
}

void telemetry_save(struct controller *c) {
    if (!c->telemetry)
        return;
    forget_series(c);
    for (uint32_t i = 0; i < series_count(c->telemetry->series); i++)
        save_series(c, i);
}

static int load_series(void *ctx, const char *blob, const void *data, size_t len) {
    struct telemetry *t = ctx;
    const char *name = blob + sizeof SERIES_PREFIX - 1;
    if (!strmap_get(&t->saved, name)) {
        char *copy = xstrdup(name);
        strmap_put(&t->saved, copy, copy);
    }
    return series_load(t->series, data, len) < 0 ? -EBADMSG : 0;
}

static const char *old_file(const struct controller *c, struct arena *a) {
    return arena_printf(a, "%s/series.bin", c->paths.state);
}

static void remove_old_file(void *arg) {
    struct controller *c = arg;
    cleanup_arena struct arena a = {0};
    unlink(old_file(c, &a));
}

// Earlier releases had one file for all. They find it again until the upgrade is finished.
static int load_old_file(struct controller *c) {
    cleanup_arena struct arena a = {0};
    cleanup_free char *data = NULL;
    struct stat st;
    cleanup_close int fd = open(old_file(c, &a), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || fstat(fd, &st) < 0 || st.st_size <= 0 || st.st_size > SERIES_FILE_MAX)
        return 0;
    data = xmalloc((size_t)st.st_size);
    ssize_t n = c->telemetry->saved.len ? 0 : read(fd, data, (size_t)st.st_size);
    int r = n > 0 ? series_load(c->telemetry->series, data, (size_t)n) : 0;
    if (core_level(c->core) > FEATURE_LEVEL_FIRST) {
        if (n > 0)
            telemetry_save(c);
        pipeline_when_committed(c->pipeline, remove_old_file, c);
    }
    return r;
}

void telemetry_open(struct controller *c) {
    struct telemetry *t = c->telemetry = xcalloc(1, sizeof *c->telemetry);
    t->series = series_store_new(SERIES_MAX);
    t->tick = 1;  // 0: never
    t->save_began_ms = clock_mono_ms();
    t->save_next = UINT32_MAX;
    int r = store_blobs(c->store, SERIES_PREFIX, load_series, t, NULL), r2 = load_old_file(c);
    if (r < 0 || r2 < 0)
        log_warn("the saved time series are damaged; %u of them could be read", series_count(t->series));
}

// --- what comes in ---

static void keep(struct controller *c, const char *prefix, const char *what, int64_t now, double value) {
    char name[SERIES_NAME_MAX + 1];
    snprintf(name, sizeof name, "%s/%s", prefix, what);
    series_add(c->telemetry->series, name, now, value);
    alerts_measure(c, name, value);
}

// Charts of jobs without GPUs leave room for those of others.
static bool has_room(const struct controller *c, const char *prefix, uint64_t gpus_milli) {
    const struct series_store *s = c->telemetry->series;
    char name[SERIES_NAME_MAX + 1];
    snprintf(name, sizeof name, "%s/memory_bytes", prefix);
    return gpus_milli || series_count(s) < SERIES_MAX / 4 * 3 || series_has(s, name);
}

void telemetry_job_usage(struct controller *c, uint64_t id, struct live_usage *u) {
    int64_t now = controller_now_ms(), span_ms = now - u->charted_ms;
    uint64_t cpu_us = u->usage.cpu_user_us + u->usage.cpu_system_us;
    char prefix[64];
    struct job_view v;
    bool again =
        u->charted_ms && span_ms > 0 && cpu_us >= u->charted_cpu_us && u->charted_attempt == u->attempt;
    if ((again && span_ms < USAGE_STEP_MS) || !core_view(c->core, id, &v))
        return;
    snprintf(prefix, sizeof prefix, "job/%llu", (unsigned long long)id);
    if (has_room(c, prefix, v.gpus_milli)) {
        keep(c, prefix, "memory_bytes", now, (double)u->memory_now_bytes);
        if (again)
            keep(c, prefix, "cpu_cores", now,
                 (double)(cpu_us - u->charted_cpu_us) / 1000.0 / (double)span_ms);
    }
    u->charted_ms = now;
    u->charted_cpu_us = cpu_us;
    u->charted_attempt = u->attempt;
}

static void add_node(struct controller *c, const char *node, const struct message_telemetry *m, int64_t now) {
    char prefix[SERIES_NAME_MAX - 32];
    snprintf(prefix, sizeof prefix, "node/%s", node);
    keep(c, prefix, "cpu_utilisation", now, m->cpu_milli / 1000.0);
    keep(c, prefix, "memory_bytes", now, (double)m->memory_used_bytes);
}

static void add_device(struct controller *c, const char *node, const struct gpu_sample *s, int64_t now) {
    char prefix[SERIES_NAME_MAX - 32];
    snprintf(prefix, sizeof prefix, "gpu/%s/%u", node, s->index);
    if (!s->utilisation_unknown)
        keep(c, prefix, "utilisation", now, s->utilisation_milli / 1000.0);
    keep(c, prefix, "memory_bytes", now, (double)s->memory_used_bytes);
    keep(c, prefix, "power_watts", now, (double)s->power_mw / 1000.0);
    keep(c, prefix, "temperature_celsius", now, s->temperature_c);
}

static uint64_t gpu_key(uint64_t job, const char *node, uint32_t index) {
    return hash_u64(job * 1024 + index) ^ hash_keyed(node, strlen(node));
}

static uint32_t count_grants(const struct controller *c, uint64_t id) {
    cleanup_arena struct arena a = {0};
    struct job_record r;
    uint32_t n = 0;
    if (core_record(c->core, id, &a, &r) < 0)
        return UINT32_MAX;
    for (uint32_t i = 0; i < r.parts.len; i++)
        n += r.parts.at[i].gpus.len;
    return n;
}

static void add_job(struct controller *c, const char *node, const struct gpu_sample *s, int64_t now) {
    struct telemetry *t = c->telemetry;
    struct job_view v;
    if (!core_runs_on(c->core, s->id, s->attempt, node) || !core_view(c->core, s->id, &v))
        return;
    const struct idle_policy look_only = {.below_milli = metrics_idle_below_milli(v.gpus_milli)};
    struct job_gpus *j = map_get(&t->jobs, s->id);
    if (!j) {
        j = xcalloc(1, sizeof *j);
        j->id = s->id;
        map_put(&t->jobs, s->id, j);
    }
    j->seen_ms = now;
    if (j->attempt != s->attempt) {
        j->attempt = s->attempt;
        j->grants = count_grants(c, s->id);
        j->idle = (struct idle_state){0};
    }
    if (s->finding) {
        str_printable(s->finding, j->finding, sizeof j->finding);
        if (!j->finding_ms)
            log_warn("job %llu of %s does not keep to its part of a GPU of %s: %s", (unsigned long long)s->id, v.user,
                     node, j->finding);
        j->finding_ms = now;
    }
    if (s->stray)
        return;
    j->unknown |= s->utilisation_unknown;
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
    // Of two messages within a tick, one of which came late, the later one replaces the earlier.
    bool again = g->tick == t->tick;
    j->samples += !again;
    j->use_milli += s->utilisation_milli - (again ? g->use_milli : 0);
    j->memory_bytes += s->memory_used_bytes - (again ? g->memory_bytes : 0);
    j->power_mw += s->power_mw - (again ? g->power_mw : 0);
    g->tick = t->tick;
    g->use_milli = s->utilisation_milli;
    g->memory_bytes = s->memory_used_bytes;
    g->power_mw = s->power_mw;
    metrics_idle_look(&g->state, &look_only, now,
                      s->utilisation_unknown ? -1 : (int64_t)s->utilisation_milli);
}

void telemetry_add(struct controller *c, const char *node, const struct message_telemetry *m) {
    struct telemetry *t = c->telemetry;
    int64_t now = controller_now_ms();
    const char *name = core_intern(c->core, node);
    struct latest *l = strmap_get(&t->nodes, name);
    if (!l) {
        l = xcalloc(1, sizeof *l);
        strmap_put(&t->nodes, name, l);
    }
    arena_done(&l->arena);
    l->mono_ms = clock_mono_ms();
    l->sample = schema_copy(message_info(MESSAGE_TELEMETRY)->schema, m, &l->arena);
    for (uint32_t i = 0; i < m->gpus.len; i++) {
        const struct gpu_sample *s = &m->gpus.at[i];
        if (s->id)
            add_job(c, name, s, now);
        else
            add_device(c, name, s, now);
    }
    add_node(c, name, m, now);
}

static bool is_fresh(const struct latest *l) {
    return l && clock_mono_ms() - l->mono_ms <= TELEMETRY_FRESH_MS;
}

const struct message_telemetry *telemetry_latest(const struct controller *c, const char *node) {
    const struct latest *l = c->telemetry ? strmap_get(&c->telemetry->nodes, node) : NULL;
    return is_fresh(l) ? l->sample : NULL;
}

// --- once a second ---

static struct idle_policy policy_of(const struct controller *c, uint64_t gpus_milli) {
    const struct config_cluster *k = &c->config.cluster;
    return (struct idle_policy){.below_milli = metrics_idle_below_milli(gpus_milli),
                                .after_s = k->idle_gpu_after_s,
                                .warn_s = k->idle_gpu_warn_s,
                                .end_s = k->idle_gpu_end_s};
}

static void end_idle(struct controller *c, const struct job_gpus *j, int64_t now) {
    char text[UNIT_TEXT_MAX], reason[160];
    struct error e = {0};
    const struct actor actor = {.user = "root", .admin = true};
    snprintf(reason, sizeof reason, "held GPUs for %s without using them (idle_gpu_end)",
             duration_format(metrics_idle_seconds(&j->idle), text));
    struct command command = {COMMAND_CANCEL, &(struct command_cancel){.id = j->id, .reason = reason}};
    if (core_command(c->core, &actor, NULL, &command, now, NULL, &e) < 0)
        log_warn("job %llu holds idle GPUs and cannot be ended: %s", (unsigned long long)j->id, e.text);
    else
        log_info("job %llu ended: %s", (unsigned long long)j->id, reason);
}

static void look_at(struct controller *c, struct job_gpus *j, const struct job_view *v, int64_t now) {
    const struct idle_policy p = policy_of(c, v->gpus_milli);
    char text[UNIT_TEXT_MAX];
    // A part that is not heard of may be busy.
    bool whole = j->samples >= j->grants && !j->unknown && v->state == JOB_RUNNING;
    enum idle_step step = metrics_idle_look(&j->idle, &p, now, whole ? (int64_t)j->most_milli : -1);
    duration_format(metrics_idle_seconds(&j->idle), text);
    if (step == IDLE_NAME)
        log_info("job %llu of %s holds GPUs and has not used them for %s", (unsigned long long)j->id, v->user, text);
    if (step == IDLE_WARN)
        log_warn("job %llu of %s holds GPUs and has not used them for %s: its owner is warned",
                 (unsigned long long)j->id, v->user, text);
    if (step == IDLE_END)
        end_idle(c, j, now);
}

// Only what is not as it should be: see alerts.h.
static void measure_alerts(struct controller *c, const struct job_gpus *j, const char *prefix, int64_t now) {
    char name[SERIES_NAME_MAX + 1];
    uint64_t idle_s = metrics_idle_seconds(&j->idle);
    snprintf(name, sizeof name, "%s/gpu_idle_seconds", prefix);
    if (idle_s)
        alerts_measure(c, name, (double)idle_s);
    snprintf(name, sizeof name, "%s/outside_gpu_limits", prefix);
    if (j->finding_ms && now - j->finding_ms < FINDING_MS)
        alerts_measure(c, name, 1);
}

static void tick_jobs(struct controller *c, int64_t now) {
    struct telemetry *t = c->telemetry;
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
        j->last_use_milli = j->use_milli;
        j->last_use_ms = j->unknown ? 0 : now;
        if (!j->unknown)
            keep(c, prefix, "gpu_utilisation", now, (double)j->use_milli / 1000.0);
        keep(c, prefix, "gpu_memory_bytes", now, (double)j->memory_bytes);
        keep(c, prefix, "gpu_power_watts", now, (double)j->power_mw / 1000.0);
        look_at(c, j, &v, now);
        measure_alerts(c, j, prefix, now);
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
    double use = 0, power_watts = 0;
    uint64_t measured = 0;
    size_t it = 0;
    void *value;
    core_counts(c->core, &n);
    core_each_node(c->core, sum_node, &sum);
    while (strmap_next(&t->nodes, &it, NULL, &value)) {
        const struct message_telemetry *m = ((struct latest *)value)->sample;
        for (uint32_t i = 0; is_fresh(value) && i < m->gpus.len; i++) {
            if (m->gpus.at[i].id)
                continue;
            power_watts += (double)m->gpus.at[i].power_mw / 1000.0;
            if (m->gpus.at[i].utilisation_unknown)
                continue;
            use += m->gpus.at[i].utilisation_milli / 1000.0;
            measured++;
        }
    }
    keep(c, "cluster", "jobs_pending", now, (double)n.by_state[JOB_PENDING]);
    keep(c, "cluster", "jobs_running", now, (double)n.by_state[JOB_RUNNING]);
    keep(c, "cluster", "gpus", now, (double)sum.gpus);
    keep(c, "cluster", "gpus_allocated", now, (double)sum.held_milli / 1000.0);
    if (measured)
        keep(c, "cluster", "gpu_utilisation", now, use / (double)measured);
    if (sum.gpus)
        keep(c, "cluster", "gpu_power_watts", now, power_watts);
    metrics_recent_update(&t->recent, now, n.by_state);
}

void telemetry_tick(struct controller *c) {
    int64_t now = controller_now_ms();
    tick_cluster(c, now);
    tick_jobs(c, now);
    c->telemetry->tick++;
    forget_gpus(c->telemetry, now);
    save_some(c);
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
    return g ? metrics_idle_seconds(&g->state) : 0;
}

uint64_t telemetry_idle_s(const struct controller *c, uint64_t job) {
    const struct job_gpus *j = map_get(&c->telemetry->jobs, job);
    return j ? metrics_idle_seconds(&j->idle) : 0;
}

const char *telemetry_warning(const struct controller *c, uint64_t job, char *out, size_t size) {
    const struct job_gpus *j = map_get(&c->telemetry->jobs, job);
    char text[UNIT_TEXT_MAX], end[UNIT_TEXT_MAX];
    if (j && j->finding_ms && controller_now_ms() - j->finding_ms < FINDING_MS) {
        snprintf(out, size, "does not keep to its part of a GPU: %s", j->finding);
        return out;
    }
    if (!j || j->idle.stage < IDLE_NAMED)
        return NULL;
    struct idle_policy p = policy_of(c, 0);
    duration_format(metrics_idle_seconds(&j->idle), text);
    if (p.end_s)
        snprintf(out, size, "holds GPUs and has not used them for %s; it is ended after %s", text,
                 duration_format(p.end_s, end));
    else
        snprintf(out, size, "holds GPUs and has not used them for %s", text);
    return out;
}

bool telemetry_job_use(const struct controller *c, uint64_t job, uint64_t *milli) {
    const struct job_gpus *j = map_get(&c->telemetry->jobs, job);
    if (!j || !j->last_use_ms || llabs(controller_now_ms() - j->last_use_ms) > TELEMETRY_FRESH_MS)
        return false;
    *milli = j->last_use_milli;
    return true;
}

// --- notes on the cluster ---

enum { NAMED_MAX = 5 };

static bool is_waste(const struct job_gpus *j, int64_t now) {
    return j->idle.stage >= IDLE_NAMED;
}

static bool is_outside(const struct job_gpus *j, int64_t now) {
    return j->finding_ms && now - j->finding_ms < FINDING_MS;
}

// The lowest numbers of the jobs that are so, in order; returns how many there are in all.
static uint32_t pick(const struct controller *c, bool (*is)(const struct job_gpus *j, int64_t now),
                     uint64_t ids[static NAMED_MAX]) {
    uint32_t count = 0;
    size_t it = 0;
    void *value;
    int64_t now = controller_now_ms();
    while (map_next(&c->telemetry->jobs, &it, NULL, &value)) {
        const struct job_gpus *j = value;
        if (!is(j, now))
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
    return count;
}

static void name_job(const struct controller *c, uint64_t id, bool idle, struct buf *out) {
    const struct job_gpus *j = map_get(&c->telemetry->jobs, id);
    char gpus[GPU_TEXT_MAX], text[UNIT_TEXT_MAX];
    struct job_view v;
    buf_addf(out, " %llu", (unsigned long long)id);
    if (!core_view(c->core, id, &v))
        return;
    buf_addf(out, " of %s", v.user);
    if (idle)
        buf_addf(out, " (%s for %s)", gpu_milli_format(v.gpus_milli, gpus),
                 duration_format(metrics_idle_seconds(&j->idle), text));
}

static bool note(const struct controller *c, const uint64_t *ids, uint32_t count, bool idle, struct buf *out) {
    for (uint32_t i = 0; i < count && i < NAMED_MAX; i++) {
        buf_adds(out, i ? "," : "");
        name_job(c, ids[i], idle, out);
    }
    if (count > NAMED_MAX)
        buf_adds(out, " and others");
    return true;
}

bool telemetry_waste(const struct controller *c, struct buf *out) {
    uint64_t ids[NAMED_MAX];
    uint32_t count = pick(c, is_waste, ids);
    if (!count)
        return false;
    buf_addf(out, "%u %s GPUs without using them:", count, count == 1 ? "job holds" : "jobs hold");
    return note(c, ids, count, true, out);
}

bool telemetry_outside(const struct controller *c, struct buf *out) {
    uint64_t ids[NAMED_MAX];
    uint32_t count = pick(c, is_outside, ids);
    if (!count)
        return false;
    buf_addf(out, "%u %s to %s part of a GPU:", count, count == 1 ? "job does not keep" : "jobs do not keep",
             count == 1 ? "its" : "their");
    return note(c, ids, count, false, out);
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
    void *name;
    for (size_t saved = 0; strmap_next(&c->telemetry->saved, &saved, NULL, &name);)
        free(name);
    strmap_done(&c->telemetry->saved);
    series_store_free(c->telemetry->series);
    free(c->telemetry);
    c->telemetry = NULL;
}
