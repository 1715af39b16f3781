// Owns the GPU monitor's turns (reading on a worker thread, splitting on the loop) and the table of
// who holds what. A GPU that cannot be read costs telemetry, never a job.
#include "agent/gpu/gpus.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/gpu/saved_usage.h"
#include "agent/node/environment.h"
#include "agent/node/node.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "cgroup/owners.h"
#include "device/fraction.h"
#include "device/health.h"
#include "device/host.h"
#include "device/monitor.h"
#include "gpu_audit.h"
#include "model/paths.h"
#include "model/units.h"
#include "net/pki.h"

enum { READ_EVERY_MS = 1000, TRIM_EVERY_MS = 50, GRANTS_MAX = 256, HEALTH_FILE_MAX = 32768 };

struct holder {
    uint64_t id;
    uint32_t attempt, index, milli;
    uint64_t memory_bytes;
    char *ledger;        // NULL: a whole GPU
    int32_t load_milli;  // of simulated GPUs; negative: a believable load
    uint64_t load_bytes;
    struct usage before; // of the attempt, counted by an agent that was killed
    struct usage usage;  // of the attempt, as of the newest reading, that one's included
};

struct gpus {
    struct agent_node *agent;
    struct gpu_monitor *monitor;
    struct host_state host;
    const char *shim_dir;
    VEC(struct holder) holders;
    struct owners *owners;
    bool numbers_are_ours;  // of processes, as the driver tells them
    struct gpu_audits audits;
    uv_timer_t timer, trim;
    uv_work_t work;
    bool busy, stopping, started;
    const char *health_path;
    char sickness[GPU_DEVICES_MAX][HEALTH_TEXT_MAX];  // as it was last told in the log
    struct message_telemetry latest;  // at_ms 0: none; its samples are the monitor's
};

// Where the shadow libraries are: installed, or left by the build.
static const char *find_shim(struct arena *a) {
    static const char *const places[] = {"../lib/acequia/shim",
                                         "../../lib/acequia/shim",
                                         "../../lib/x86_64-linux-gnu/acequia/shim",
                                         "../lib/x86_64-linux-gnu/acequia/shim",
                                         "../shim",
                                         NULL};
    const char *given = getenv("ACEQUIA_SHIM_DIR");
    return str_empty(given) ? paths_beside(a, NULL, places, "libcuda.so.1", R_OK) : arena_strdup(a, given);
}

static int open_source(struct agent_node *a, const struct config_node *c, struct gpu_source **out,
                       struct error *e) {
    if (!c->gpus.len || !c->gpus_simulated) {
        int rc = gpu_nvml_open(NULL, NULL, out, e);
        if (rc == -ENOENT && c->gpus.len)
            log_warn("the configuration declares GPUs, but this machine has no driver for any; "
                     "gpus_simulated = true pretends them");
        return rc;
    }
    struct gpu_sim_model *models = arena_alloc(&a->arena, c->gpus.len * sizeof *models);
    for (uint32_t i = 0; i < c->gpus.len; i++)
        models[i] = (struct gpu_sim_model){.model = c->gpus.at[i].model,
                                           .count = c->gpus.at[i].count,
                                           .memory_bytes = c->gpus.at[i].memory_bytes};
    struct gpu_sim_config sim = {
        .node = a->node.name, .models = models, .model_count = c->gpus.len,
        .faults = arena_printf(&a->arena, "%s/gpu-faults", a->folder),
    };
    return gpu_sim_open(&sim, out, e);
}

// GPUs that need a reset stay out of use when the agent starts anew, until the reset is seen.
static const char *health_path(struct gpus *g) {
    return arena_printf(&g->agent->arena, "%s/gpu-health", g->agent->folder);
}

static void recall_health(struct gpus *g) {
    char text[HEALTH_FILE_MAX + 1];
    cleanup_close int fd = open(health_path(g), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    ssize_t n = fd < 0 ? 0 : read(fd, text, HEALTH_FILE_MAX);
    text[n > 0 ? n : 0] = 0;
    gpu_monitor_recall(g->monitor, text);
}

static void keep_health(struct gpus *g) {
    cleanup_buf struct buf b = {0};
    struct error e = {0};
    if (!g->health_path)
        g->health_path = health_path(g);
    gpu_monitor_keep(g->monitor, &b);
    if (!b.len)
        unlink(g->health_path);
    else if (pki_write_file(g->health_path, b.data, b.len, 0600, &e) < 0)
        log_warn("which GPUs need a reset cannot be kept: %s", e.text);
}

struct gpus *gpus_open(struct agent_node *a, const struct config_node *c) {
    struct gpus *g = xcalloc(1, sizeof *g);
    struct gpu_source *source = NULL;
    struct error e = {0};
    uint32_t count = 0;
    g->agent = a;
    g->shim_dir = find_shim(&a->arena);
    g->owners = cgroup_owners_new(&a->site);
    g->numbers_are_ours = cgroup_owners_in_first_namespace();
    g->audits.policy = c->gpu_audit;
    int rc = open_source(a, c, &source, &e);
    if (rc == 0)
        rc = gpu_monitor_new(source, &g->monitor, &e);
    if (rc < 0 && rc != -ENOENT)
        log_warn("GPUs cannot be used: %s", e.text);
    if (rc == 0) {
        recall_health(g);
        const struct gpu *list = gpu_monitor_gpus(g->monitor, &count);
        memcpy(&a->node.gpus.at, &list, sizeof list);
        a->node.gpus.len = count;
    }
    return g;
}

// --- telemetry ---

static void read_gpus(uv_work_t *w) {
    struct gpus *g = w->data;
    if (g->monitor)
        gpu_monitor_read(g->monitor, clock_mono_ms());
}

// In a container the driver may name processes by other numbers than ours: a number alone then proves
// nothing, an open GPU does.
static bool owner_of(void *ctx, uint32_t pid, uint64_t *job, uint32_t *attempt) {
    const struct gpus *g = ctx;
    if (!g->numbers_are_ours && !cgroup_owners_has_open(pid, "/dev/nvidia"))
        return false;
    return cgroup_owners_find(g->owners, pid, job, attempt);
}

static uint32_t inner_of(void *ctx, uint32_t pid) {
    return cgroup_owners_inner_pid(pid);
}

static bool is_first(const struct gpus *g, uint32_t at) {
    for (uint32_t i = 0; i < at; i++)
        if (g->holders.at[i].id == g->holders.at[at].id && g->holders.at[i].attempt == g->holders.at[at].attempt)
            return false;
    return true;
}

static void remember_usage(struct gpus *g) {
    for (uint32_t i = 0; i < g->holders.len; i++) {
        struct holder *h = &g->holders.at[i];
        uint64_t peak = h->before.gpu_memory_peak_bytes;
        h->usage = (struct usage){0};
        gpu_monitor_usage(g->monitor, h->id, h->attempt, &h->usage);
        h->usage.gpu_busy_ms += h->before.gpu_busy_ms;
        h->usage.gpu_throttled_ms += h->before.gpu_throttled_ms;
        h->usage.gpu_measured_ms += h->before.gpu_measured_ms;
        h->usage.energy_mj += h->before.energy_mj;
        h->usage.gpu_memory_peak_bytes = peak > h->usage.gpu_memory_peak_bytes ? peak : h->usage.gpu_memory_peak_bytes;
        if (is_first(g, i))
            gpus_saved_usage_write(g->agent->spool_fd, h->id, h->attempt, &h->usage);
    }
}

static void log_health(struct gpus *g) {
    uint32_t count;
    const struct gpu *list = gpu_monitor_gpus(g->monitor, &count);
    for (uint32_t i = 0; i < count; i++) {
        const char *now = list[i].unhealthy ? list[i].unhealthy : "";
        if (streq(now, g->sickness[i]))
            continue;
        if (*now)
            log_warn("GPU %u (%s) is out of use: %s", i, list[i].uuid, now);
        else
            log_info("GPU %u (%s) is in use again", i, list[i].uuid);
        snprintf(g->sickness[i], sizeof g->sickness[i], "%s", now);
    }
}

static void split(struct gpus *g, struct message_telemetry *t) {
    struct gpu_use *uses = xcalloc(g->holders.len + 1, sizeof *uses);
    struct gpu_samples samples = {0};
    for (uint32_t i = 0; i < g->holders.len; i++) {
        const struct holder *h = &g->holders.at[i];
        uses[i] = (struct gpu_use){.job = h->id, .attempt = h->attempt, .index = h->index,
                                   .milli = h->milli, .memory_limit_bytes = h->memory_bytes,
                                   .ledger = h->ledger, .load_milli = h->load_milli,
                                   .load_bytes = h->load_bytes};
    }
    struct gpu_holders holders = {.uses = uses, .count = g->holders.len, .owner = owner_of,
                                  .inner = inner_of, .ctx = g,
                                  .no_audit = g->audits.policy == GPU_AUDIT_OFF};
    gpu_monitor_split(g->monitor, &holders, &samples);
    memcpy(&t->gpus.at, &samples.at, sizeof samples.at);
    t->gpus.len = samples.len;
    remember_usage(g);
    free(uses);
    gpus_audit_act(&g->audits, g->agent, &samples);
    if (samples.health_changed) {
        log_health(g);
        keep_health(g);
        agent_send(g->agent, MESSAGE_NODE_CHANGED, &g->agent->node);
    }
}

static void on_read(uv_work_t *w, int status) {
    struct gpus *g = w->data;
    struct message_telemetry t = {.at_ms = clock_wall_ms()};
    g->busy = false;
    if (g->stopping)
        return;
    gpu_host_sample(&g->host, g->agent->folder, &t);
    if (g->monitor)
        split(g, &t);
    g->latest = t;
    if (agent_logic_welcomed(g->agent->logic))
        agent_send(g->agent, MESSAGE_TELEMETRY, &t);
}

static void on_timer(uv_timer_t *timer) {
    struct gpus *g = timer->data;
    if (g->busy)
        return;  // a GPU that takes its time: the next second
    g->busy = uv_queue_work(&g->agent->loop, &g->work, read_gpus, on_read) == 0;
}

static const char *arbiter_folder(struct gpus *g, struct arena *a) {
    return arena_printf(a, "%s/arbiter", g->agent->spool_path);
}

// A ledger that its job has enlarged is cut back, and the job is ended: the file system is everybody's.
static void on_trim(uv_timer_t *t) {
    struct gpus *g = t->data;
    cleanup_arena struct arena a = {0};
    const char *reason = "it has enlarged the file in which its share of a GPU is counted";
    bool ended = false;
    for (uint32_t i = 0; i < g->holders.len; i++) {
        const struct holder *h = &g->holders.at[i];
        if (!h->ledger)
            continue;
        if (gpu_fraction_trim_arbiter(arbiter_folder(g, &a), g->agent->node.gpus.at[h->index].uuid))
            log_warn("GPU %u: a job has enlarged the file through which its jobs take turns; it is cut back", h->index);
        if (!gpu_fraction_trim_ledger(h->ledger))
            continue;
        log_warn("job %llu is ended: %s", (unsigned long long)h->id, reason);
        agent_logic_stop(g->agent->logic, h->id, h->attempt, END_GPU, reason, clock_mono_ms());
        ended = true;
    }
    if (ended)
        g->agent->execute(g->agent);
}

void gpus_start(struct gpus *g) {
    uv_timer_init(&g->agent->loop, &g->timer);
    g->timer.data = g->work.data = g;
    uv_timer_start(&g->timer, on_timer, READ_EVERY_MS, READ_EVERY_MS);
    uv_timer_init(&g->agent->loop, &g->trim);
    g->trim.data = g;
    if (g->agent->node.gpus.len && g->shim_dir)
        uv_timer_start(&g->trim, on_trim, TRIM_EVERY_MS, TRIM_EVERY_MS);
    g->started = true;
}

void gpus_stop(struct gpus *g) {
    g->stopping = true;
    if (g->started) {
        uv_close((uv_handle_t *)&g->timer, NULL);
        uv_close((uv_handle_t *)&g->trim, NULL);
    }
}

struct gpus *gpus_free(struct gpus *g) {
    if (!g)
        return NULL;
    for (uint32_t i = 0; i < g->holders.len; i++)
        free(g->holders.at[i].ledger);
    vec_done(&g->holders);
    cgroup_owners_free(g->owners);
    gpu_monitor_free(g->monitor);
    free(g);
    return NULL;
}

// --- grants ---

static const char *ledger_folder(struct gpus *g, uint64_t id, uint32_t attempt, struct arena *a) {
    return arena_printf(a, "%s/gpu/%llu.%u", g->agent->spool_path, (unsigned long long)id, attempt);
}

static const char *get_env(const struct launch_request *r, const char *name) {
    size_t len = strlen(name);
    for (uint32_t i = 0; i < r->nenv; i++)
        if (strncmp(r->env[i], name, len) == 0 && r->env[i][len] == '=')
            return r->env[i] + len + 1;
    return NULL;
}

// For tests and demonstrations a job can say how busy it keeps simulated GPUs, in thousandths.
static int32_t simulated_load(const struct launch_request *r) {
    const char *text = get_env(r, "ACEQUIA_SIMULATED_GPU_LOAD");
    uint32_t milli;
    return text && parse_u32(text, &milli) == 0 && milli <= 1000 ? (int32_t)milli : -1;
}

static uint64_t simulated_bytes(const struct launch_request *r) {
    const char *text = get_env(r, "ACEQUIA_SIMULATED_GPU_MEMORY");
    uint64_t bytes;
    return text && size_parse(text, 1, &bytes, NULL) == 0 ? bytes : 0;
}

static void hold(struct gpus *g, const struct launch_request *r, const struct gpu_grant *grant,
                 uint64_t memory_bytes, const char *ledger) {
    struct holder h = {.id = r->job, .attempt = r->attempt, .index = grant->index,
                       .milli = grant->milli, .memory_bytes = memory_bytes,
                       .ledger = ledger ? xstrdup(ledger) : NULL, .load_milli = simulated_load(r),
                       .load_bytes = simulated_bytes(r)};
    vec_push(&g->holders, h);
}

static int make_folder(const char *path) {
    if (mkdir(path, 0711) < 0 && errno != EEXIST)
        return -errno;
    return chmod(path, 0711) < 0 ? -errno : 0;
}

static void put_env(struct launch_request *r, struct arena *a, const char *name,
                    const char *value) {
    char **env = arena_alloc(a, (r->nenv + 2) * sizeof *env);
    size_t len = strlen(name);
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->nenv; i++)
        if (strncmp(r->env[i], name, len) != 0 || r->env[i][len] != '=')
            env[n++] = r->env[i];
    env[n++] = arena_printf(a, "%s=%s", name, value);
    r->env = env;
    r->nenv = n;
}

static int grant_fraction(struct gpus *g, const struct message_launch *m,
                          const struct gpu_grant *grant, struct launch_request *r,
                          struct arena *a, struct error *e) {
    const struct gpu *gpu = &g->agent->node.gpus.at[grant->index];
    const char *folder = ledger_folder(g, m->id, m->attempt, a);
    char path[FRACTION_PATH_MAX];
    // The ledger is the job's own, so that its processes can write to it.
    struct fraction f = {
        .job = arena_printf(a, "%llu.%u", (unsigned long long)m->id, m->attempt), .folder = folder,
        .arbiter_folder = arbiter_folder(g, a), .milli = grant->milli,
        .memory_bytes = m->spec->gpu_memory_bytes, .uid = r->switch_user ? r->uid : (uid_t)-1,
        .gid = r->gid,
    };
    if (!g->shim_dir)
        return error_set(e, ENOENT, "the libraries that enforce fractions of a GPU are not "
                         "installed on this node");
    int rc = make_folder(arena_printf(a, "%s/gpu", g->agent->spool_path));
    if (rc == 0)
        rc = make_folder(f.arbiter_folder);
    if (rc == 0)
        rc = make_folder(folder);
    if (rc == 0)
        rc = gpu_fraction_make(&f, gpu, path);
    if (rc < 0)
        return error_set(e, -rc, "the ledger of GPU %u cannot be made: %s", grant->index,
                         strerror(-rc));
    const char *before = get_env(r, "LD_LIBRARY_PATH");
    put_env(r, a, "ACEQUIA_GPU_LEDGER_DIR", folder);
    put_env(r, a, "ACEQUIA_GPU_ARBITER_DIR", f.arbiter_folder);
    if (!before || !str_has_prefix(before, g->shim_dir))
        put_env(r, a, "LD_LIBRARY_PATH",
                str_empty(before) ? g->shim_dir : arena_printf(a, "%s:%s", g->shim_dir, before));
    hold(g, r, grant, m->spec->gpu_memory_bytes, path);
    return 0;
}

int gpus_grant(struct gpus *g, const struct message_launch *m, struct launch_request *r,
               struct arena *arena, struct error *e) {
    for (uint32_t i = 0; i < m->part->gpus.len; i++) {
        const struct gpu_grant *grant = &m->part->gpus.at[i];
        if (grant->index >= g->agent->node.gpus.len)
            return error_set(e, ENODEV, "GPU %u does not exist on this node", grant->index);
        bool fraction = grant->milli < 1000 && !g->agent->node.gpus.at[grant->index].simulated;
        int rc = fraction ? grant_fraction(g, m, grant, r, arena, e) : 0;
        if (rc < 0) {
            gpus_release(g, m->id, m->attempt);
            return rc;
        }
        if (!fraction)
            hold(g, r, grant, m->spec->gpu_memory_bytes, NULL);
    }
    return 0;
}

// "0:500,1:1000", with ":BYTES" behind where the memory was asked for.
void gpus_recover(struct gpus *g, const struct launch_request *r) {
    const char *text = get_env(r, "ACEQUIA_GPU_GRANTS"), *dir = get_env(r, "ACEQUIA_GPU_LEDGER_DIR");
    unsigned index, milli;
    unsigned long long bytes;
    int used, more;
    for (int i = 0; text && i < GRANTS_MAX && sscanf(text, "%u:%u%n", &index, &milli, &used) == 2;
         i++) {
        struct gpu_grant grant = {.index = index, .milli = milli};
        char path[FRACTION_PATH_MAX] = "";
        if (index >= g->agent->node.gpus.len)
            return;
        if (dir)
            gpu_fraction_path(dir, g->agent->node.gpus.at[index].uuid, path);
        text += used;
        if (sscanf(text, ":%llu%n", &bytes, &more) == 1)
            text += more;
        else
            bytes = 0;
        // A ledger's folder is told for all of its GPUs, also for whole ones beside the fraction.
        bool ledger = *path && milli < FRACTION_WHOLE_MILLI;
        hold(g, r, &grant, bytes, ledger ? path : NULL);
        struct holder *h = &g->holders.at[g->holders.len - 1];
        if (gpus_saved_usage_read(g->agent->spool_fd, h->id, h->attempt, &h->before))
            h->usage = h->before;
        text += *text == ',';
    }
}

void gpus_usage(const struct gpus *g, uint64_t id, uint32_t attempt, struct usage *u) {
    for (uint32_t i = 0; i < g->holders.len; i++) {
        const struct holder *h = &g->holders.at[i];
        if (h->id != id || h->attempt != attempt)
            continue;
        u->gpu_busy_ms += h->usage.gpu_busy_ms;
        u->gpu_throttled_ms += h->usage.gpu_throttled_ms;
        u->gpu_measured_ms += h->usage.gpu_measured_ms;
        u->gpu_memory_peak_bytes += h->usage.gpu_memory_peak_bytes;
        u->energy_mj += h->usage.energy_mj;
        return;  // every entry of the attempt holds the sum
    }
}

const struct message_telemetry *gpus_latest(const struct gpus *g) {
    return g->latest.at_ms ? &g->latest : NULL;
}

uint32_t gpus_share(const struct gpus *g, uint64_t id, uint32_t attempt, uint32_t index) {
    for (uint32_t i = 0; i < g->holders.len; i++) {
        const struct holder *h = &g->holders.at[i];
        if (h->id == id && h->attempt == attempt && h->index == index)
            return h->milli;
    }
    return 0;
}

struct owners *gpus_owners_copy(const struct gpus *g) {
    return cgroup_owners_copy(g->owners);
}

const struct owners *gpus_owners(const struct gpus *g) {
    return g->owners;
}

void gpus_started(struct gpus *g, const struct spool_status *s) {
    cgroup_owners_started(g->owners, s);
}

void gpus_release(struct gpus *g, uint64_t id, uint32_t attempt) {
    cgroup_owners_ended(g->owners, id, attempt);
    for (uint32_t i = g->holders.len; i-- > 0;)
        if (g->holders.at[i].id == id && g->holders.at[i].attempt == attempt) {
            free(g->holders.at[i].ledger);
            vec_remove(&g->holders, i);
        }
}

void gpus_forget(struct gpus *g, uint64_t id, uint32_t attempt) {
    cleanup_arena struct arena a = {0};
    const char *folder = ledger_folder(g, id, attempt, &a);
    const char *job = arena_printf(&a, "%llu.%u", (unsigned long long)id, attempt);
    struct agent_node *agent = g->agent;
    gpus_release(g, id, attempt);
    if (!agent->node.gpus.len || access(folder, F_OK) < 0)
        return;
    for (uint32_t i = 0; i < agent->node.gpus.len; i++)
        gpu_fraction_forget(folder, arbiter_folder(g, &a), agent->node.gpus.at[i].uuid, job);
    rmdir(folder);
}
