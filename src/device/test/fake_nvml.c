// A library with NVML's entry points over pretended GPUs. With FAKE_NVML_OLD it is an old driver: only
// what was there years ago, in the first versions of the structs. In another process (journeys) the
// file that FAKE_NVML_FILE names says what there is: "gpus COUNT MIB" and lines "GPU PID MIB".
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device/nvml.h"
#include "fake_nvml.h"

#define EXPORT __attribute__((visibility("default")))

static struct fake_nvml fake;
static struct handle {
    unsigned gpu;
    int mig;  // -1: the whole GPU
} handles[FAKE_GPUS_MAX][FAKE_MIG_MAX + 1];

EXPORT struct fake_nvml *fake_nvml(void);
EXPORT struct fake_nvml *fake_nvml(void) {
    return &fake;
}

static nvml_device device(unsigned gpu, int mig) {
    struct handle *h = &handles[gpu][mig + 1];
    *h = (struct handle){.gpu = gpu, .mig = mig};
    return (nvml_device)(void *)h;
}

static const struct handle *of(nvml_device d) {
    return (const struct handle *)(void *)d;
}

static void burn(unsigned us) {
    struct timespec start, now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
    do
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    while ((now.tv_sec - start.tv_sec) * 1000000 + (now.tv_nsec - start.tv_nsec) / 1000 < (long)us);
}

static struct fake_gpu *gpu_of(nvml_device d) {
    fake.calls++;
    if (fake.busy_us)
        burn(fake.busy_us);
    return &fake.gpus[of(d)->gpu];
}

static void read_file(void) {
    const char *path = getenv("FAKE_NVML_FILE");
    FILE *f = path ? fopen(path, "re") : NULL;
    unsigned gpu, pid;
    unsigned long long mib;
    if (!f)
        return;
    if (fscanf(f, "gpus %u %llu", &fake.count, &mib) != 2 || fake.count > FAKE_GPUS_MAX)
        fake.count = mib = 0;
    for (unsigned i = 0; i < fake.count; i++) {
        struct fake_gpu *g = &fake.gpus[i];
        unsigned b = 0x10 + i, w = b * 0x101;  // as the pretended CUDA driver of src/shim/test has them
        snprintf(g->uuid, sizeof g->uuid, "GPU-%04x%04x-%04x-%04x-%04x-%04x%04x%04x", w, w, w, w, w, w, w, w);
        snprintf(g->name, sizeof g->name, "NVIDIA Pretended");
        snprintf(g->bus_id, sizeof g->bus_id, "00000000:%02X:00.0", 0x10 + i);
        g->minor = i;
        g->total = mib << 20;
        g->used = g->process_count = 0;
    }
    while (fscanf(f, "%u %u %llu", &gpu, &pid, &mib) == 3 && gpu < fake.count &&
           fake.gpus[gpu].process_count < FAKE_PROCESSES_MAX) {
        struct fake_gpu *g = &fake.gpus[gpu];
        g->processes[g->process_count++] = (struct fake_process){.pid = pid, .memory = mib << 20};
        g->used += mib << 20;
    }
    fclose(f);
}

#define ENTRY(name, ...)         \
    EXPORT int name(__VA_ARGS__); \
    EXPORT int name(__VA_ARGS__)
#define LIVE(g)      \
    if ((g)->lost)   \
        return (g)->lost;

ENTRY(nvmlInit_v2, void) {
    fake.open += !fake.init_result;
    return fake.init_result;
}
ENTRY(nvmlShutdown, void) {
    fake.open--;
    return 0;
}
EXPORT const char *nvmlErrorString(int r);
EXPORT const char *nvmlErrorString(int r) {
    return r == NVML_GPU_IS_LOST ? "GPU is lost" : "Not Supported";
}
ENTRY(nvmlDeviceGetCount_v2, unsigned *n) {
    read_file();
    *n = fake.count;
    return 0;
}
ENTRY(nvmlDeviceGetHandleByIndex_v2, unsigned i, nvml_device *d) {
    *d = device(i, -1);
    return 0;
}
ENTRY(nvmlDeviceGetName, nvml_device d, char *out, unsigned len) {
    snprintf(out, len, "%s", gpu_of(d)->name);
    return 0;
}
ENTRY(nvmlDeviceGetUUID, nvml_device d, char *out, unsigned len) {
    snprintf(out, len, "%s", gpu_of(d)->uuid);
    if (of(d)->mig >= 0) {
        memcpy(out, "MIG", 3);
        out[4] = (char)('0' + of(d)->mig);
    }
    return 0;
}
ENTRY(nvmlDeviceGetPciInfo_v3, nvml_device d, struct nvml_pci *out) {
    snprintf(out->bus_id, sizeof out->bus_id, "%s", gpu_of(d)->bus_id);
    return 0;
}
ENTRY(nvmlDeviceGetMemoryInfo, nvml_device d, struct nvml_memory *out) {
    struct fake_gpu *g = gpu_of(d);
    LIVE(g);
    uint64_t total = of(d)->mig >= 0 ? g->mig_memory[of(d)->mig] : g->total;
    *out = (struct nvml_memory){.total = total, .used = g->used, .free = total - g->used};
    return 0;
}
ENTRY(nvmlDeviceGetMinorNumber, nvml_device d, unsigned *out) {
    *out = gpu_of(d)->minor;
    return 0;
}
ENTRY(nvmlDeviceGetUtilizationRates, nvml_device d, struct nvml_utilisation *out) {
    struct fake_gpu *g = gpu_of(d);
    if (of(d)->mig >= 0 || g->mig_count)
        return NVML_NOT_SUPPORTED;
    *out = (struct nvml_utilisation){g->utilisation, g->memory_utilisation};
    return 0;
}
ENTRY(nvmlDeviceGetPowerUsage, nvml_device d, unsigned *out) {
    *out = gpu_of(d)->power_mw;
    return 0;
}
ENTRY(nvmlDeviceGetTemperature, nvml_device d, unsigned sensor, unsigned *out) {
    *out = gpu_of(d)->temperature;
    return 0;
}
ENTRY(nvmlDeviceGetClockInfo, nvml_device d, unsigned which, unsigned *out) {
    *out = which == NVML_CLOCK_SM ? gpu_of(d)->sm_clock : gpu_of(d)->memory_clock;
    return 0;
}
ENTRY(nvmlDeviceGetCurrentClocksThrottleReasons, nvml_device d, unsigned long long *out) {
    *out = gpu_of(d)->reasons;
    return 0;
}
ENTRY(nvmlDeviceGetPcieThroughput, nvml_device d, unsigned which, unsigned *kb) {
    fake.pcie_calls++;
    *kb = (unsigned)((which == NVML_PCIE_TX ? gpu_of(d)->pcie_tx : gpu_of(d)->pcie_rx) / 1024);
    return 0;
}
ENTRY(nvmlDeviceGetTotalEccErrors, nvml_device d, unsigned type, unsigned counter, unsigned long long *out) {
    *out = gpu_of(d)->ecc;
    return type == NVML_ECC_UNCORRECTED && counter == NVML_ECC_VOLATILE ? 0 : NVML_NOT_SUPPORTED;
}

#ifdef FAKE_NVML_OLD
ENTRY(nvmlDeviceGetComputeRunningProcesses, nvml_device d, unsigned *n, struct nvml_process_v1 *out) {
    const struct fake_gpu *g = gpu_of(d);
    for (*n = 0; *n < g->process_count; ++*n)
        out[*n] = (struct nvml_process_v1){.pid = g->processes[*n].pid, .memory = g->processes[*n].memory};
    return 0;
}
#else
ENTRY(nvmlDeviceGetMemoryInfo_v2, nvml_device d, struct nvml_memory_v2 *out) {
    struct fake_gpu *g = gpu_of(d);
    LIVE(g);
    if (out->version != (sizeof *out | 2u << 24))
        return 25;
    uint64_t total = of(d)->mig >= 0 ? g->mig_memory[of(d)->mig] : g->total;
    *out = (struct nvml_memory_v2){.version = out->version,
                                   .total = total,
                                   .reserved = 1 << 20,
                                   .used = g->used,
                                   .free = total - g->used};
    return 0;
}
ENTRY(nvmlDeviceGetComputeRunningProcesses_v3, nvml_device d, unsigned *n, struct nvml_process_v2 *out) {
    read_file();
    const struct fake_gpu *g = gpu_of(d);
    for (*n = 0; *n < g->process_count; ++*n)
        out[*n] = (struct nvml_process_v2){
            .pid = g->processes[*n].pid, .memory = g->processes[*n].memory, .gpu_instance = ~0u};
    return 0;
}
ENTRY(nvmlDeviceGetProcessUtilization, nvml_device d, struct nvml_process_use *out, unsigned *n,
      unsigned long long last_us) {
    const struct fake_gpu *g = gpu_of(d);
    *n = 0;
    for (unsigned i = 0; i < g->process_count; i++)
        for (unsigned k = 0; k < g->processes[i].samples; k++)
            out[(*n)++] = (struct nvml_process_use){
                .pid = g->processes[i].pid, .at_us = fake.clock_us - k, .sm = g->processes[i].sm[k]};
    return *n ? 0 : NVML_NOT_FOUND;
}
ENTRY(nvmlDeviceGetTotalEnergyConsumption, nvml_device d, unsigned long long *out) {
    *out = gpu_of(d)->energy_mj;
    return 0;
}
ENTRY(nvmlDeviceGetPcieReplayCounter, nvml_device d, unsigned *out) {
    *out = gpu_of(d)->replays;
    return 0;
}
ENTRY(nvmlDeviceGetEncoderUtilization, nvml_device d, unsigned *out, unsigned *period) {
    *out = 3;
    return 0;
}
ENTRY(nvmlDeviceGetFieldValues, nvml_device d, int n, struct nvml_field *f) {
    const struct fake_gpu *g = gpu_of(d);
    for (int i = 0; i < n; i++) {
        f[i].result = 0;
        f[i].type = NVML_VALUE_ULONG_LONG;
        switch (f[i].id) {
        case NVML_FI_MEMORY_TEMP: f[i].type = NVML_VALUE_UINT; f[i].value.u = g->memory_temperature; break;
        case NVML_FI_PCIE_TX: f[i].value.ull = g->pcie_tx; break;
        case NVML_FI_PCIE_RX: f[i].value.ull = g->pcie_rx; break;
        case NVML_FI_NVLINK_TX: f[i].value.ull = g->nvlink_tx_kib; break;
        case NVML_FI_NVLINK_RX: f[i].value.ull = g->nvlink_rx_kib; break;
        default: f[i].result = NVML_NOT_SUPPORTED;
        }
    }
    return 0;
}
ENTRY(nvmlDeviceGetRemappedRows, nvml_device d, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
      unsigned *failed) {
    const struct fake_gpu *g = gpu_of(d);
    *corrected = 0;
    *uncorrected = g->remapped;
    *pending = g->remap_pending;
    *failed = g->remap_failed;
    return 0;
}
ENTRY(nvmlDeviceGetNvLinkState, nvml_device d, unsigned link, unsigned *active) {
    *active = gpu_of(d)->links[link].active;
    return 0;
}
ENTRY(nvmlDeviceGetNvLinkRemotePciInfo_v2, nvml_device d, unsigned link, struct nvml_pci *out) {
    snprintf(out->bus_id, sizeof out->bus_id, "%s", gpu_of(d)->links[link].bus_id);
    return 0;
}
ENTRY(nvmlDeviceGetNvLinkRemoteDeviceType, nvml_device d, unsigned link, unsigned *type) {
    *type = gpu_of(d)->links[link].to_switch ? NVML_REMOTE_SWITCH : NVML_REMOTE_GPU;
    return 0;
}
ENTRY(nvmlDeviceGetMigMode, nvml_device d, unsigned *current, unsigned *pending) {
    *current = *pending = gpu_of(d)->mig_count > 0;
    return 0;
}
ENTRY(nvmlDeviceGetMaxMigDeviceCount, nvml_device d, unsigned *n) {
    *n = FAKE_MIG_MAX;
    return 0;
}
ENTRY(nvmlDeviceGetMigDeviceHandleByIndex, nvml_device d, unsigned i, nvml_device *out) {
    if (i >= gpu_of(d)->mig_count)
        return NVML_NOT_FOUND;
    *out = device(of(d)->gpu, (int)i);
    return 0;
}
ENTRY(nvmlDeviceGetGpuInstanceId, nvml_device d, unsigned *out) {
    *out = 3 + (unsigned)of(d)->mig;
    return 0;
}
ENTRY(nvmlDeviceGetComputeInstanceId, nvml_device d, unsigned *out) {
    *out = 0;
    return 0;
}
ENTRY(nvmlDeviceGetAttributes_v2, nvml_device d, struct nvml_attributes *out) {
    *out = (struct nvml_attributes){.compute_slices = gpu_of(d)->mig_slices[of(d)->mig]};
    return 0;
}
struct nvml_gpm_opaque {
    double use;
    uint64_t at;
};
ENTRY(nvmlGpmQueryDeviceSupport, nvml_device d, struct nvml_gpm_support *out) {
    out->supported = gpu_of(d)->gpm;
    return out->version == NVML_GPM_VERSION ? 0 : NVML_NOT_SUPPORTED;
}
ENTRY(nvmlGpmSampleAlloc, nvml_gpm_sample *out) {
    *out = calloc(1, sizeof **out);
    fake.gpm_samples++;
    return *out ? 0 : NVML_NOT_SUPPORTED;
}
ENTRY(nvmlGpmSampleFree, nvml_gpm_sample s) {
    fake.gpm_samples--;
    free(s);
    return 0;
}
ENTRY(nvmlGpmSampleGet, nvml_device d, nvml_gpm_sample s) {
    *s = (struct nvml_gpm_opaque){.use = gpu_of(d)->utilisation, .at = ++fake.clock_us};
    return 0;
}
ENTRY(nvmlGpmMigSampleGet, nvml_device d, unsigned instance, nvml_gpm_sample s) {
    *s = (struct nvml_gpm_opaque){.use = gpu_of(d)->mig_use[instance - 3], .at = ++fake.clock_us};
    return 0;
}
ENTRY(nvmlGpmMetricsGet, struct nvml_gpm_metrics *m) {
    if (m->version != NVML_GPM_VERSION || m->before->at >= m->after->at || !m->before->at)
        return NVML_NOT_SUPPORTED;  // two samples, the older first
    for (unsigned i = 0; i < m->count; i++)
        m->metrics[i].value = m->metrics[i].id == NVML_GPM_GRAPHICS_UTIL ? m->after->use : m->after->use / 2;
    return 0;
}
ENTRY(nvmlEventSetCreate, nvml_events *out) {
    *out = (nvml_events)(void *)&fake;
    return 0;
}
ENTRY(nvmlDeviceRegisterEvents, nvml_device d, unsigned long long types, nvml_events set) {
    return types == (NVML_EVENT_XID | NVML_EVENT_DOUBLE_BIT_ECC) ? 0 : NVML_NOT_SUPPORTED;
}
ENTRY(nvmlEventSetWait_v2, nvml_events set, struct nvml_event *out, unsigned ms) {
    if (!fake.event_count)
        return NVML_TIMEOUT;
    struct fake_event e = fake.events[0];
    memmove(fake.events, fake.events + 1, --fake.event_count * sizeof e);
    *out = (struct nvml_event){.device = device(e.gpu, -1), .type = e.type, .data = e.data};
    return 0;
}
ENTRY(nvmlEventSetFree, nvml_events set) {
    return 0;
}
#endif
