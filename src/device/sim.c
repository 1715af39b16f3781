// The simulated twin: GPUs declared in the configuration whose telemetry follows what holds them.
// Everything is a function of the holders, the time and the job's number: the same run gives the same
// figures. Power follows use, temperature follows power with inertia, memory fills up and stays.
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/map.h"
#include "base/text.h"
#include "base/vec.h"
#include "sim.h"

static const struct {
    const char *model;
    uint32_t memory_gib, power_w, clock_mhz, memory_clock_mhz;
    bool profiled;  // has performance monitoring
} models[] = {
    {"b200", 180, 1000, 1965, 3996, true},
    {"h200", 141, 700, 1980, 3201, true},
    {"h100", 80, 700, 1980, 2619, true},
    {"a100", 80, 400, 1410, 1593, false},
    {"l40s", 48, 350, 2520, 9001, false},
    {"a40", 48, 300, 1740, 7251, false},
    {"v100", 32, 300, 1530, 877, false},
    {"t4", 16, 70, 1590, 5001, false},
    {"", 24, 350, 1800, 5001, false},
};

static size_t known_model(const char *name) {
    size_t i = 0;
    while (*models[i].model && strcasecmp(models[i].model, name))
        i++;
    return i;
}

static void sim_free(struct gpu_source *base) {
    struct sim_source *s = (struct sim_source *)base;
    arena_done(&s->arena);
    vec_done(&s->uses);
    free(s->faults_path);
    free(s);
}

static struct gpu describe(const struct sim_source *s, uint32_t i, struct arena *a) {
    const struct sim_gpu *g = &s->gpus[i];
    uint64_t h = hash_u64(hash_bytes(s->node, strlen(s->node)) + i), h2 = hash_u64(h);
    return (struct gpu){
        .uuid = arena_printf(a, "GPU-%08x-%04x-%04x-%04x-%012llx", (unsigned)(h >> 32),
                             (unsigned)(h >> 16 & 0xffff), (unsigned)(h & 0xffff), (unsigned)(h2 >> 48),
                             (unsigned long long)(h2 & 0xffffffffffffULL)),
        .model = arena_strdup(a, g->model),
        .memory_bytes = g->memory_bytes,
        .pci = arena_printf(a, "0000:%02x:00.0", 0x10 + i),
        .numa = s->count > 1 && i >= s->count / 2,
        .link_group = s->count > 1 ? 1 : 0,
        .simulated = true,
    };
}

static int sim_discover(struct gpu_source *base, struct arena *a, struct gpu **gpus, uint32_t *count, struct error *e) {
    struct sim_source *s = (struct sim_source *)base;
    *gpus = arena_alloc(a, (s->count ? s->count : 1) * sizeof **gpus);
    for (uint32_t i = 0; i < s->count; i++)
        (*gpus)[i] = describe(s, i, a);
    *count = s->count;
    return 0;
}

static void sim_running(struct gpu_source *base, const struct gpu_use *uses, uint32_t count) {
    struct sim_source *s = (struct sim_source *)base;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < s->uses.len; i++) {  // those that go on keep when they came
        struct sim_use *u = &s->uses.at[i];
        for (uint32_t k = 0; k < count; k++)
            if (uses[k].job == u->use.job && uses[k].attempt == u->use.attempt && uses[k].index == u->use.index) {
                s->uses.at[kept] = (struct sim_use){.use = uses[k], .since_ms = u->since_ms};
                kept++;
                break;
            }
    }
    s->uses.len = kept;
    for (uint32_t k = 0; k < count; k++) {
        bool there = false;
        for (uint32_t i = 0; i < kept && !there; i++)
            there = uses[k].job == s->uses.at[i].use.job && uses[k].attempt == s->uses.at[i].use.attempt &&
                    uses[k].index == s->uses.at[i].use.index;
        if (!there && s->uses.len < SIM_USES_MAX)
            vec_push(&s->uses, (struct sim_use){.use = uses[k], .since_ms = s->now_ms});
    }
    for (uint32_t i = 0; i < s->uses.len; i++)
        s->uses.at[i].use.ledger = NULL;  // the caller's string
}

static double noise(uint64_t job, uint32_t index, int64_t now_ms) {  // -1 … 1, new every second
    uint64_t h = hash_u64(hash_u64(job * 131 + index) + (uint64_t)(now_ms / 1000));
    return (double)(h >> 11) / (double)(1ULL << 52) - 1.0;
}

// A training job: a start without use, steps at its own level, a pause for a checkpoint now and then.
static double load_of(const struct sim_use *u, int64_t now_ms) {
    if (u->use.load_milli >= 0)
        return fmin(u->use.load_milli, 1000) / 1000.0;
    uint64_t h = hash_u64(u->use.job);
    double age_s = (double)(now_ms - u->since_ms) / 1000.0, level = 0.72 + (double)(h % 24) / 100.0;
    double period_s = 180 + (double)(h >> 8 & 127);
    if (age_s < 4)
        return 0.02;
    if (fmod(age_s, period_s) > period_s - 5)
        return 0.08;
    return fmax(0, fmin(1, level + 0.03 * noise(u->use.job, u->use.index, now_ms)));
}

static uint64_t memory_of(const struct sim_gpu *g, const struct sim_use *u, double load, int64_t now_ms) {
    uint64_t limit = u->use.memory_limit_bytes ? u->use.memory_limit_bytes
                                               : (uint64_t)((double)g->memory_bytes * u->use.milli / 1000.0);
    if (u->use.load_bytes)
        return u->use.load_bytes;
    if (u->use.load_milli == 0)
        return limit < (400ULL << 20) ? limit : 400ULL << 20;  // a context and nothing in it
    double fill = 0.55 + (double)(hash_u64(u->use.job + 7) % 35) / 100.0;
    double ramp = fmin(1, (double)(now_ms - u->since_ms) / 20000.0);
    return (uint64_t)((double)limit * fill * ramp);
}

// All that depends on the holders: use and memory of the device, and of each holder as a process.
static double add_up(struct sim_source *s, uint32_t index, int64_t now_ms, struct gpu_reading *out) {
    struct sim_gpu *g = &s->gpus[index];
    double use = 0;
    out->sample.memory_used_bytes = 500ULL << 20;  // the driver's own
    for (uint32_t i = 0; i < s->uses.len; i++) {
        const struct sim_use *u = &s->uses.at[i];
        if (u->use.index != index)
            continue;
        double load = load_of(u, now_ms) * u->use.milli / 1000.0;
        uint64_t memory = memory_of(g, u, load, now_ms);
        use += load;
        out->sample.memory_used_bytes += memory;
        if (out->process_count < SIM_PROCESSES)
            g->processes[out->process_count++] =
                (struct gpu_process){.job = u->use.job,
                                     .attempt = u->use.attempt,
                                     .memory_bytes = memory,
                                     .utilisation_milli = (uint32_t)(load * 1000)};
    }
    out->processes = g->processes;
    out->process_use = out->processes_fresh = true;
    if (out->sample.memory_used_bytes > g->memory_bytes)
        out->sample.memory_used_bytes = g->memory_bytes;
    return fmin(use, 1);
}

static void heat_up(struct sim_gpu *g, size_t model, double use, int64_t now_ms) {
    double tdp = models[model].power_w, idle = tdp * 0.11;
    double dt = g->at_ms ? fmin((double)(now_ms - g->at_ms) / 1000.0, 3600) : 0;
    double power = idle + (tdp - idle) * pow(use, 0.8);
    double target = 29 + 46 * power / tdp;
    g->energy_mj += (g->power_w + power) / 2 * dt * 1000;
    g->power_w = power;
    g->temperature += (target - g->temperature) * (1 - exp(-dt / 25));
    g->at_ms = now_ms;
}

static void fill(const struct sim_gpu *g, size_t model, double use, struct gpu_sample *out) {
    out->utilisation_milli = (uint32_t)lround(use * 1000);
    out->memory_total_bytes = g->memory_bytes;
    out->power_mw = (uint64_t)(g->power_w * 1000);
    out->energy_mj = (uint64_t)g->energy_mj + 1;
    out->temperature_c = (int32_t)lround(g->temperature);
    out->memory_temperature_c = out->temperature_c + 6;
    out->sm_clock_mhz = use > 0.005 ? models[model].clock_mhz : 345;
    out->memory_clock_mhz = models[model].memory_clock_mhz;
    out->throttle_reasons = use > 0.005 ? (use > 0.97 ? 0x4 : 0) : 0x1;  // power cap, idle
    if (use > 0.97)
        out->sm_clock_mhz = out->sm_clock_mhz * 96 / 100;
    out->memory_copy_milli = (uint32_t)lround(use * 550);
    out->profiled = models[model].profiled;
    if (out->profiled) {
        out->engine_milli = out->utilisation_milli;
        out->sm_milli = (uint32_t)lround(use * 880);
        out->occupancy_milli = (uint32_t)lround(use * 370);
        out->tensor_milli = (uint32_t)lround(use * 420);
        out->dram_milli = out->memory_copy_milli;
    }
    out->pcie_tx_bytes_s = (uint64_t)(use * 1.1e9);
    out->pcie_rx_bytes_s = (uint64_t)(use * 2.4e9);
}

static void add_faults(struct sim_gpu *g, struct gpu_reading *out) {
    out->sample.ecc_errors = g->ecc;
    out->remap_pending = g->remap;
    memcpy(out->xids, g->xids, sizeof out->xids);
    out->xid_count = g->xid_count;
    g->xid_count = 0;
    if (g->lost) {
        out->error = -ENODEV;
        snprintf(out->error_text, sizeof out->error_text, "GPU is lost");
    }
}

static void sim_read(struct gpu_source *base, uint32_t index, int64_t now_ms, struct gpu_reading *out) {
    struct sim_source *s = (struct sim_source *)base;
    assert(index < s->count);
    struct sim_gpu *g = &s->gpus[index];
    *out = (struct gpu_reading){.power_share_milli = 1000, .sample.index = index};
    s->now_ms = now_ms;
    if (index == 0 && s->faults_path)
        gpu_sim_faults_read(s);
    size_t model = known_model(g->model);
    double use = add_up(s, index, now_ms, out);
    heat_up(g, model, use, now_ms);
    fill(g, model, use, &out->sample);
    out->sample.nvlink_bytes_s = s->count > 1 ? (uint64_t)(use * 9e9) : 0;
    add_faults(g, out);
}

static const struct gpu_source_ops sim_ops = {
    .name = "simulated", .discover = sim_discover, .read = sim_read, .running = sim_running, .free = sim_free};

int gpu_sim_open(const struct gpu_sim_config *config, struct gpu_source **out, struct error *e) {
    struct sim_source *s = xcalloc(1, sizeof *s);
    s->source.ops = &sim_ops;
    s->node = arena_strdup(&s->arena, config->node);
    s->faults_path = config->faults ? xstrdup(config->faults) : NULL;
    for (uint32_t i = 0; i < config->model_count; i++) {
        const struct gpu_sim_model *m = &config->models[i];
        if (m->count > GPU_DEVICES_MAX - s->count) {
            sim_free(&s->source);
            return error_set(e, EINVAL, "gpus = %s:%u: a node has at most %d GPUs", m->model, m->count,
                             GPU_DEVICES_MAX);
        }
        const char *name = arena_strdup(&s->arena, m->model);
        uint64_t memory = m->memory_bytes ? m->memory_bytes : (uint64_t)models[known_model(name)].memory_gib << 30;
        for (uint32_t k = 0; k < m->count; k++)
            s->gpus[s->count++] = (struct sim_gpu){.model = name, .memory_bytes = memory, .temperature = 31};
    }
    *out = &s->source;
    return 0;
}
