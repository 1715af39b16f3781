// The part of NVML that is used, declared here so that the build needs nothing of NVIDIA's. Numbers
// and layouts are those of the library's stable interface. Newer entry points come first and older
// ones stand in where the driver lacks them; what is missing altogether stays NULL.
#pragma once
#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/gpu.h"

typedef struct nvml_device_opaque *nvml_device;
typedef struct nvml_events_opaque *nvml_events;
typedef struct nvml_gpm_opaque *nvml_gpm_sample;

enum nvml_result {
    NVML_SUCCESS = 0,
    NVML_NOT_SUPPORTED = 3,
    NVML_NOT_FOUND = 6,
    NVML_INSUFFICIENT_SIZE = 7,
    NVML_DRIVER_NOT_LOADED = 9,
    NVML_TIMEOUT = 10,
    NVML_GPU_IS_LOST = 15,
    NVML_RESET_REQUIRED = 16,
};
enum {
    NVML_CLOCK_SM = 1,
    NVML_CLOCK_MEM = 2,
    NVML_PCIE_TX = 0,
    NVML_PCIE_RX = 1,
    NVML_ECC_UNCORRECTED = 1,
    NVML_ECC_VOLATILE = 0,
    NVML_EVENT_DOUBLE_BIT_ECC = 0x2,
    NVML_EVENT_XID = 0x8,
    NVML_LINKS = 18,
    NVML_REMOTE_GPU = 0,
    NVML_REMOTE_SWITCH = 2,
    NVML_FI_MEMORY_TEMP = 82,
    NVML_FI_POWER_INSTANT = 186,  // mW
    NVML_FI_NVLINK_TX = 138,  // KiB since the driver was loaded
    NVML_FI_NVLINK_RX = 139,
    NVML_FI_PCIE_TX = 197,    // bytes since the driver was loaded
    NVML_FI_PCIE_RX = 198,
    NVML_ALL_LINKS = UINT32_MAX,
    NVML_UUID_BYTES = 96,
    NVML_NAME_BYTES = 96,
};
enum nvml_value {
    NVML_VALUE_DOUBLE,
    NVML_VALUE_UINT,
    NVML_VALUE_ULONG,
    NVML_VALUE_ULONG_LONG,
    NVML_VALUE_LONG_LONG,
    NVML_VALUE_INT
};

struct nvml_pci {
    char bus_legacy[16];
    unsigned domain, bus, device, pci_device, pci_subsystem;
    char bus_id[32];
};
struct nvml_memory {
    unsigned long long total, free, used;
};
struct nvml_memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};
struct nvml_utilisation {
    unsigned gpu, memory;
};
struct nvml_process_v1 {
    unsigned pid;
    unsigned long long memory;
};
struct nvml_process_v2 {  // also of v3
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
};
struct nvml_process_use {
    unsigned pid;
    unsigned long long at_us;
    unsigned sm, memory, encoder, decoder;
};
struct nvml_field {
    unsigned id, scope;
    long long at_us, latency_us;
    unsigned type, result;
    union {
        double d;
        int i;
        unsigned u;
        unsigned long ul;
        unsigned long long ull;
        long long ll;
    } value;
};
struct nvml_event {
    nvml_device device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};
struct nvml_attributes {
    unsigned multiprocessors, copy_engines, decoders, encoders, jpegs, ofas, gpu_slices, compute_slices;
    unsigned long long memory_mb;
};
// GPU performance monitoring (Hopper and later): two samples make a measurement, also of a MIG instance.
enum {
    NVML_GPM_VERSION = 1,
    NVML_GPM_GRAPHICS_UTIL = 1,  // % of the time in which anything ran
    NVML_GPM_SM_UTIL = 2,        // % of the multiprocessors with work
    NVML_GPM_SM_OCCUPANCY = 3,   // % of the warps they can hold
    NVML_GPM_TENSOR_UTIL = 5,    // % of the time in which tensor cores worked
    NVML_GPM_DRAM_UTIL = 10,     // % of the memory's bandwidth
    NVML_GPM_METRICS_MAX = 512,  // more than any driver knows: room, should it look at all of it
};
struct nvml_gpm_support {
    unsigned version, supported;
};
struct nvml_gpm_metric {
    unsigned id;
    int result;
    double value;
    char *texts[3];
};
struct nvml_gpm_metrics {
    unsigned version, count;
    nvml_gpm_sample before, after;
    struct nvml_gpm_metric metrics[NVML_GPM_METRICS_MAX];
};
static_assert(sizeof(struct nvml_gpm_metric) == 40 && offsetof(struct nvml_gpm_metrics, metrics) == 24,
              "layout of NVML");
static_assert(sizeof(struct nvml_pci) == 68 && sizeof(struct nvml_memory_v2) == 40, "layout of NVML");
static_assert(sizeof(struct nvml_process_v2) == 24 && sizeof(struct nvml_process_use) == 32, "layout of NVML");
static_assert(sizeof(struct nvml_field) == 40 && sizeof(struct nvml_event) == 32, "layout of NVML");
static_assert(sizeof(struct nvml_attributes) == 40, "layout of NVML");

// X(needed, member, symbol, arguments)
#define NVML_FUNCTIONS(X)                                                                                    \
    X(true, init, "nvmlInit_v2", (void))                                                                     \
    X(true, shutdown, "nvmlShutdown", (void))                                                                \
    X(true, count, "nvmlDeviceGetCount_v2", (unsigned *))                                                    \
    X(true, handle, "nvmlDeviceGetHandleByIndex_v2", (unsigned, nvml_device *))                              \
    X(true, name, "nvmlDeviceGetName", (nvml_device, char *, unsigned))                                      \
    X(true, uuid, "nvmlDeviceGetUUID", (nvml_device, char *, unsigned))                                      \
    X(true, pci, "nvmlDeviceGetPciInfo_v3", (nvml_device, struct nvml_pci *))                                \
    X(true, memory, "nvmlDeviceGetMemoryInfo", (nvml_device, struct nvml_memory *))                          \
    X(false, memory_v2, "nvmlDeviceGetMemoryInfo_v2", (nvml_device, struct nvml_memory_v2 *))                \
    X(false, minor, "nvmlDeviceGetMinorNumber", (nvml_device, unsigned *))                                   \
    X(false, utilisation, "nvmlDeviceGetUtilizationRates", (nvml_device, struct nvml_utilisation *))         \
    X(false, power, "nvmlDeviceGetPowerUsage", (nvml_device, unsigned *))                                    \
    X(false, energy, "nvmlDeviceGetTotalEnergyConsumption", (nvml_device, unsigned long long *))             \
    X(false, temperature, "nvmlDeviceGetTemperature", (nvml_device, unsigned, unsigned *))                   \
    X(false, clock, "nvmlDeviceGetClockInfo", (nvml_device, unsigned, unsigned *))                           \
    X(false, reasons, "nvmlDeviceGetCurrentClocksEventReasons", (nvml_device, unsigned long long *))         \
    X(false, reasons_old, "nvmlDeviceGetCurrentClocksThrottleReasons", (nvml_device, unsigned long long *))  \
    X(false, pcie, "nvmlDeviceGetPcieThroughput", (nvml_device, unsigned, unsigned *))                       \
    X(false, pcie_replays, "nvmlDeviceGetPcieReplayCounter", (nvml_device, unsigned *))                      \
    X(false, encoder, "nvmlDeviceGetEncoderUtilization", (nvml_device, unsigned *, unsigned *))              \
    X(false, decoder, "nvmlDeviceGetDecoderUtilization", (nvml_device, unsigned *, unsigned *))              \
    X(false, fields, "nvmlDeviceGetFieldValues", (nvml_device, int, struct nvml_field *))                    \
    X(false, ecc, "nvmlDeviceGetTotalEccErrors", (nvml_device, unsigned, unsigned, unsigned long long *))    \
    X(false, remapped, "nvmlDeviceGetRemappedRows",                                                          \
      (nvml_device, unsigned *, unsigned *, unsigned *, unsigned *))                                         \
    X(false, retired_pending, "nvmlDeviceGetRetiredPagesPendingStatus", (nvml_device, unsigned *))           \
    X(false, processes_v3, "nvmlDeviceGetComputeRunningProcesses_v3",                                        \
      (nvml_device, unsigned *, struct nvml_process_v2 *))                                                   \
    X(false, processes_v2, "nvmlDeviceGetComputeRunningProcesses_v2",                                        \
      (nvml_device, unsigned *, struct nvml_process_v2 *))                                                   \
    X(false, processes_v1, "nvmlDeviceGetComputeRunningProcesses",                                           \
      (nvml_device, unsigned *, struct nvml_process_v1 *))                                                   \
    X(false, process_use, "nvmlDeviceGetProcessUtilization",                                                 \
      (nvml_device, struct nvml_process_use *, unsigned *, unsigned long long))                              \
    X(false, link_state, "nvmlDeviceGetNvLinkState", (nvml_device, unsigned, unsigned *))                    \
    X(false, link_pci, "nvmlDeviceGetNvLinkRemotePciInfo_v2", (nvml_device, unsigned, struct nvml_pci *))    \
    X(false, link_type, "nvmlDeviceGetNvLinkRemoteDeviceType", (nvml_device, unsigned, unsigned *))          \
    X(false, mig_mode, "nvmlDeviceGetMigMode", (nvml_device, unsigned *, unsigned *))                        \
    X(false, mig_max, "nvmlDeviceGetMaxMigDeviceCount", (nvml_device, unsigned *))                           \
    X(false, mig_handle, "nvmlDeviceGetMigDeviceHandleByIndex", (nvml_device, unsigned, nvml_device *))      \
    X(false, mig_gpu_instance, "nvmlDeviceGetGpuInstanceId", (nvml_device, unsigned *))                      \
    X(false, mig_compute_instance, "nvmlDeviceGetComputeInstanceId", (nvml_device, unsigned *))              \
    X(false, attributes, "nvmlDeviceGetAttributes_v2", (nvml_device, struct nvml_attributes *))              \
    X(false, gpm_support, "nvmlGpmQueryDeviceSupport", (nvml_device, struct nvml_gpm_support *))             \
    X(false, gpm_alloc, "nvmlGpmSampleAlloc", (nvml_gpm_sample *))                                           \
    X(false, gpm_free, "nvmlGpmSampleFree", (nvml_gpm_sample))                                               \
    X(false, gpm_sample, "nvmlGpmSampleGet", (nvml_device, nvml_gpm_sample))                                 \
    X(false, gpm_mig_sample, "nvmlGpmMigSampleGet", (nvml_device, unsigned, nvml_gpm_sample))                \
    X(false, gpm_metrics, "nvmlGpmMetricsGet", (struct nvml_gpm_metrics *))                                  \
    X(false, events_new, "nvmlEventSetCreate", (nvml_events *))                                              \
    X(false, events_register, "nvmlDeviceRegisterEvents", (nvml_device, unsigned long long, nvml_events))    \
    X(false, events_wait, "nvmlEventSetWait_v2", (nvml_events, struct nvml_event *, unsigned))               \
    X(false, events_free, "nvmlEventSetFree", (nvml_events))

struct nvml_api {
#define NVML_MEMBER(needed, member, symbol, arguments) int(*member) arguments;
    NVML_FUNCTIONS(NVML_MEMBER)
#undef NVML_MEMBER
    const char *(*error_text)(int);
};

// Counters from which rates are made.
struct nvml_rate {
    uint64_t value;
    int64_t at_ms;
    bool known;
};

// What is asked for together. Some questions cost the driver microseconds, some milliseconds of busy
// waiting, and which is which differs from driver to driver; so each is timed, and a dear one is asked
// less often.
enum nvml_probe {
    PROBE_MEMORY,
    PROBE_USE,
    PROBE_ENGINES,
    PROBE_ENERGY,
    PROBE_POWER,
    PROBE_TEMPERATURE,
    PROBE_MEMORY_TEMPERATURE,
    PROBE_CLOCKS,
    PROBE_REASONS,
    PROBE_PCIE,
    PROBE_NVLINK,
    PROBE_PROCESSES,
    PROBE_PROCESS_USE,
    PROBE_ERRORS,
    PROBE_PROFILE,
    PROBE_COUNT,
};

struct nvml_turn {
    bool asked;
    int64_t asked_ms;
    double cost_us;  // moving average of CPU
};

struct nvml_gpm {
    bool tried, works, sampled;
    nvml_gpm_sample samples[2];  // the newest is at `newest`
    unsigned newest;
    unsigned instance;           // of a MIG instance
};

struct nvml_gpu {
    nvml_device handle;   // of a MIG instance, its own
    nvml_device physical;
    bool mig;
    uint32_t power_share_milli;
    char bus_id[32];
    unsigned minor;
    uint64_t process_at_us;  // newest utilisation sample of processes
    struct nvml_rate pcie_tx, pcie_rx, nvlink;
    struct nvml_gpm gpm;
    bool no_instant_power, no_pcie_counts;  // the driver lacks them
    struct nvml_turn turns[PROBE_COUNT];
    double budget_us;          // of CPU for dear questions; negative: overdrawn
    int64_t earned_ms;
    uint64_t energy_mj;        // the counter, when it was last asked for
    int64_t energy_ms;
    struct gpu_sample sample;  // the newest of each value
    int error;                 // of the newest question for memory: whether it answers at all
    bool remap_pending, remap_failed, process_use;
    struct gpu_process *memory_of, *use_of, *processes;  // by process; the last is both together
    uint32_t memory_count, use_count;
    int64_t processes_ms;      // when they were last asked for
    uint32_t xids[GPU_XIDS_MAX], xid_count;
};

struct nvml_source {
    struct gpu_source source;
    void *library;
    struct nvml_api api;
    bool initialised;
    nvml_events events;
    struct nvml_turn event_turn;
    char *root;
    struct nvml_gpu gpus[GPU_DEVICES_MAX];
    uint32_t count;
    uint32_t pcie_turn;      // whose throughput is measured at this reading
    void *scratch;           // for the driver's lists
    struct nvml_gpm_metrics *gpm_metrics;  // made when first needed
    bool gpm_always;         // also for whole GPUs: to compare the two ways of measuring
};

// nvml_topology.c
void nvml_links(struct nvml_source *s, struct gpu *gpus);
int32_t nvml_numa(const struct nvml_source *s, const char *bus_id);
// The device files of a MIG instance, comma-separated, in the arena.
const char *nvml_mig_nodes(const struct nvml_source *s, struct nvml_gpu *g, struct arena *a);
// nvml_gpm.c
// What was done since the last call, by the GPU or MIG instance, into g->sample; false: not measured (yet).
bool nvml_gpm_read(struct nvml_source *s, struct nvml_gpu *g);
void nvml_gpm_done(struct nvml_source *s);
// nvml_read.c
void nvml_read(struct gpu_source *base, uint32_t index, int64_t now_ms, struct gpu_reading *out);
