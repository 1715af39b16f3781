// The families of GPUs and of jobs on GPUs, the same on controller and agents. A GPU without a
// sample yet appears only where no measurement is needed: an absent series is honest, a 0 is not.
#include "export.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/text.h"

enum { MIB = 1 << 20 };

static const char *known(const char *s) {
    return str_empty(s) ? "unknown" : s;
}

enum { DEVICE_MAX = 64 };

// "nvidia0" of "/dev/nvidia0", as NVIDIA's exporter has it; of an instance, whose list of device files begins
// with its GPU's, that one. Simulated ones have none; a name by their number keeps dashboards whole.
static const char *device_name(const struct metrics_gpu *g, char out[static DEVICE_MAX]) {
    const char *path = g->gpu->minor_path;
    if (str_empty(path)) {
        snprintf(out, DEVICE_MAX, "nvidia%u", g->index);
        return out;
    }
    size_t len = strcspn(path, ",");
    for (size_t i = len; i-- > 0;)
        if (path[i] == '/') {
            path += i + 1;
            len -= i + 1;
            break;
        }
    snprintf(out, DEVICE_MAX, "%.*s", (int)len, path);
    return out;
}

// "1g.18gb" of "NVIDIA H200 MIG 1g.18gb"; empty, which is the same as no label: a whole GPU.
static const char *mig_profile(const struct gpu *g) {
    static const char word[] = " MIG ";
    const char *found = g->model ? strstr(g->model, word) : NULL;
    return found ? found + sizeof word - 1 : "";
}

static char *dcgm_labels(const struct metrics_gpu *g) {
    struct buf b = {0};
    char device[DEVICE_MAX];
    const char *profile = mig_profile(g->gpu);
    metrics_label_u64(&b, "gpu", g->index);
    metrics_label(&b, "UUID", known(g->gpu->uuid));
    metrics_label(&b, "pci_bus_id", g->gpu->pci ? g->gpu->pci : "");
    metrics_label(&b, "device", device_name(g, device));
    metrics_label(&b, "modelName", known(g->gpu->model));
    metrics_label(&b, "GPU_I_PROFILE", profile);
    metrics_label(&b, "Hostname", g->node);
    return buf_take(&b);
}

static char *gpu_labels(const struct metrics_gpu *g) {
    struct buf b = {0};
    metrics_label(&b, "node", g->node);
    metrics_label_u64(&b, "gpu", g->index);
    metrics_label(&b, "uuid", known(g->gpu->uuid));
    metrics_label(&b, "model", known(g->gpu->model));
    return buf_take(&b);
}

static char *job_labels(const struct metrics_job_gpu *j) {
    struct buf b = {0};
    if (j->label)
        metrics_label(&b, "job_id", j->label);
    else
        metrics_label_u64(&b, "job_id", j->job);
    metrics_label(&b, "user", j->user ? j->user : "");
    metrics_label(&b, "project", j->project ? j->project : "");
    metrics_label(&b, "node", j->node);
    metrics_label_u64(&b, "gpu", j->sample->index);
    metrics_label(&b, "uuid", known(j->uuid));
    return buf_take(&b);
}

// One row per family of whole devices: how a sample becomes a number, in thousandths.
struct gpu_family {
    enum metric_id id;
    uint64_t (*milli)(const struct metrics_gpu *g);
    enum { ALWAYS, UTILISATION, PROFILE } needs;  // left out where the driver does not measure it
};

static bool has(const struct gpu_sample *s, int needs) {
    return s && (needs == ALWAYS || (needs == UTILISATION ? !s->utilisation_unknown : s->profiled));
}

#define MILLI(name, expression)                             \
    static uint64_t name(const struct metrics_gpu *g) {     \
        const struct gpu_sample *s = g->sample;             \
        return expression;                                  \
    }
MILLI(sm_clock, s->sm_clock_mhz * 1000ULL)
MILLI(memory_clock, s->memory_clock_mhz * 1000ULL)
MILLI(power, s->power_mw)
MILLI(energy, s->energy_mj * 1000ULL)
MILLI(pcie_replays, s->pcie_replays * 1000ULL)
MILLI(pcie_tx, s->pcie_tx_bytes_s * 1000ULL)
MILLI(pcie_rx, s->pcie_rx_bytes_s * 1000ULL)
MILLI(utilisation, s->utilisation_milli * 100ULL)
MILLI(memory_copy, s->memory_copy_milli * 100ULL)
MILLI(encoder, s->encoder_milli * 100ULL)
MILLI(decoder, s->decoder_milli * 100ULL)
MILLI(xid, s->xid_errors * 1000ULL)
MILLI(memory_free, export_u64_diff(s->memory_total_bytes, s->memory_used_bytes) / MIB * 1000ULL)
MILLI(memory_used, s->memory_used_bytes / MIB * 1000ULL)
MILLI(nvlink, s->nvlink_bytes_s * 1000ULL)
MILLI(rows, s->remapped_rows * 1000ULL)
MILLI(rows_uncorrected, s->remapped_uncorrected * 1000ULL)
MILLI(rows_corrected, export_u64_diff(s->remapped_rows, s->remapped_uncorrected) * 1000ULL)
MILLI(rows_failed, s->remap_failed * 1000ULL)
MILLI(engine, s->engine_milli)
MILLI(sm_active, s->sm_milli)
MILLI(occupancy, s->occupancy_milli)
MILLI(tensor, s->tensor_milli)
MILLI(dram, s->dram_milli)
MILLI(ecc, s->ecc_errors * 1000ULL)
MILLI(foreign, s->foreign_bytes * 1000ULL)
MILLI(reasons, s->throttle_reasons * 1000ULL)
#undef MILLI

static const struct gpu_family dcgm_families[] = {
    {M_DCGM_SM_CLOCK, sm_clock},
    {M_DCGM_MEM_CLOCK, memory_clock},
    {M_DCGM_POWER, power},
    {M_DCGM_ENERGY, energy},
    {M_DCGM_PCIE_REPLAY, pcie_replays},
    {M_DCGM_PCIE_TX, pcie_tx},
    {M_DCGM_PCIE_RX, pcie_rx},
    {M_DCGM_GPU_UTIL, utilisation, UTILISATION},
    {M_DCGM_MEM_COPY, memory_copy, UTILISATION},
    {M_DCGM_ENC, encoder},
    {M_DCGM_DEC, decoder},
    {M_DCGM_XID, xid},
    {M_DCGM_FB_FREE, memory_free},
    {M_DCGM_FB_USED, memory_used},
    {M_DCGM_NVLINK, nvlink},
    {M_DCGM_ROWS, rows_uncorrected},
    {M_DCGM_ROWS_CORRECTED, rows_corrected},
    {M_DCGM_ROWS_FAILED, rows_failed},
    {M_DCGM_ENGINE, engine, PROFILE},
    {M_DCGM_SM_ACTIVE, sm_active, PROFILE},
    {M_DCGM_OCCUPANCY, occupancy, PROFILE},
    {M_DCGM_TENSOR, tensor, PROFILE},
    {M_DCGM_DRAM, dram, PROFILE},
};
static const struct gpu_family own_families[] = {
    {M_GPU_ECC, ecc}, {M_GPU_REMAPPED, rows}, {M_GPU_FOREIGN, foreign}, {M_GPU_THROTTLE, reasons},
};

static void put_families(struct metrics_writer *w, const struct gpu_family *families, size_t count,
                         const struct metrics_export_gpus *in, char *const *labels) {
    for (size_t f = 0; f < count; f++) {
        metrics_family(w, families[f].id);
        for (uint32_t i = 0; i < in->gpu_count; i++)
            if (has(in->gpus[i].sample, families[f].needs))
                metrics_put_milli(w, labels[i], families[f].milli(&in->gpus[i]));
    }
}

// Temperatures can be below 0, and the memory's is absent on many models: 0 means not measured.
static void put_temperatures(struct metrics_writer *w, const struct metrics_export_gpus *in,
                             char *const *labels) {
    metrics_family(w, M_DCGM_GPU_TEMP);
    for (uint32_t i = 0; i < in->gpu_count; i++)
        if (in->gpus[i].sample)
            metrics_put(w, labels[i], in->gpus[i].sample->temperature_c);
    metrics_family(w, M_DCGM_MEMORY_TEMP);
    for (uint32_t i = 0; i < in->gpu_count; i++)
        if (in->gpus[i].sample && in->gpus[i].sample->memory_temperature_c)
            metrics_put(w, labels[i], in->gpus[i].sample->memory_temperature_c);
}

static void put_devices(struct metrics_writer *w, const struct metrics_export_gpus *in) {
    char **labels = xcalloc(in->gpu_count ? in->gpu_count : 1, sizeof *labels);
    for (uint32_t i = 0; i < in->gpu_count; i++)
        labels[i] = dcgm_labels(&in->gpus[i]);
    put_families(w, dcgm_families, sizeof dcgm_families / sizeof *dcgm_families, in, labels);
    put_temperatures(w, in, labels);
    for (uint32_t i = 0; i < in->gpu_count; i++) {
        free(labels[i]);
        labels[i] = gpu_labels(&in->gpus[i]);
    }
    metrics_family(w, M_GPU_HEALTHY);
    for (uint32_t i = 0; i < in->gpu_count; i++)
        metrics_put_u64(w, labels[i], str_empty(in->gpus[i].gpu->unhealthy));
    metrics_family(w, M_GPU_ALLOCATED);
    for (uint32_t i = 0; i < in->gpu_count; i++)
        metrics_put_milli(w, labels[i], in->gpus[i].allocated_milli);
    put_families(w, own_families, sizeof own_families / sizeof *own_families, in, labels);
    for (uint32_t i = 0; i < in->gpu_count; i++)
        free(labels[i]);
    free(labels);
}

#define PUT_JOBS_WHEN(id, put, when, value)                 \
    do {                                                    \
        metrics_family(w, id);                              \
        for (uint32_t i = 0; i < in->job_count; i++) {      \
            const struct metrics_job_gpu *j = &in->jobs[i]; \
            if (when)                                       \
                put(w, labels[i], value);                   \
        }                                                   \
    } while (0)
// A stray is told as such and by its memory; it holds nothing.
#define PUT_JOBS(id, put, value) PUT_JOBS_WHEN(id, put, !j->sample->stray, value)

static void put_jobs(struct metrics_writer *w, const struct metrics_export_gpus *in) {
    char **labels = xcalloc(in->job_count ? in->job_count : 1, sizeof *labels);
    for (uint32_t i = 0; i < in->job_count; i++)
        labels[i] = job_labels(&in->jobs[i]);
    PUT_JOBS(M_JOB_GPU_GRANT, metrics_put_milli, j->grant_milli);
    PUT_JOBS_WHEN(M_JOB_GPU_USE, metrics_put_milli, !j->sample->utilisation_unknown, j->sample->utilisation_milli);
    PUT_JOBS_WHEN(M_JOB_GPU_MEMORY, metrics_put_u64, true, j->sample->memory_used_bytes);
    PUT_JOBS(M_JOB_GPU_MEMORY_LIMIT, metrics_put_u64, j->sample->memory_total_bytes);
    PUT_JOBS(M_JOB_GPU_POWER, metrics_put_milli, j->sample->power_mw);
    PUT_JOBS(M_JOB_GPU_ENERGY, metrics_put_milli, j->sample->energy_mj);
    PUT_JOBS(M_JOB_GPU_THROTTLED, metrics_put_milli, j->sample->throttled_milli);
    PUT_JOBS_WHEN(M_JOB_GPU_OUTSIDE, metrics_put_u64, true, j->sample->finding != NULL);
    if (in->idle)
        PUT_JOBS(M_JOB_GPU_IDLE, metrics_put_u64, j->idle_s);
    for (uint32_t i = 0; i < in->job_count; i++)
        free(labels[i]);
    free(labels);
}

void metrics_export_gpus(struct metrics_writer *w, const struct metrics_export_gpus *in) {
    put_devices(w, in);
    put_jobs(w, in);
}
