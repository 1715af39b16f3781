// What the fake NVML library pretends; the test changes it between readings.
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum { FAKE_GPUS_MAX = 8, FAKE_PROCESSES_MAX = 16, FAKE_LINKS = 18, FAKE_EVENTS_MAX = 8, FAKE_MIG_MAX = 7 };

struct fake_process {
    unsigned pid;
    uint64_t memory;
    unsigned sm[4], samples;  // utilisation samples since the last time
};

struct fake_gpu {
    char uuid[80], name[64], bus_id[32];
    unsigned minor, utilisation, memory_utilisation, power_mw, temperature, memory_temperature, sm_clock, memory_clock;
    uint64_t total, used, energy_mj, reasons, ecc, pcie_tx, pcie_rx, nvlink_tx_kib, nvlink_rx_kib;
    unsigned remapped, remap_pending, remap_failed, replays;
    struct fake_process processes[FAKE_PROCESSES_MAX];
    unsigned process_count;
    int lost;              // result of every call, 0: works
    struct {
        unsigned active, to_switch;
        char bus_id[32];
    } links[FAKE_LINKS];
    unsigned mig_count;    // 0: MIG is off
    unsigned mig_slices[FAKE_MIG_MAX];
    uint64_t mig_memory[FAKE_MIG_MAX];
    bool gpm;              // a GPU with performance monitoring
    double mig_use[FAKE_MIG_MAX];  // in %, as it tells
};

struct fake_event {
    unsigned gpu;
    uint64_t type, data;
};

struct fake_nvml {
    struct fake_gpu gpus[FAKE_GPUS_MAX];
    unsigned count;
    struct fake_event events[FAKE_EVENTS_MAX];
    unsigned event_count;
    int init_result;
    uint64_t clock_us;     // of the process samples
    unsigned calls, pcie_calls, open;
    int gpm_samples;       // allocated
    unsigned busy_us;      // what every call burns
};

typedef struct fake_nvml *(*fake_nvml_fn)(void);  // exported as "fake_nvml"
