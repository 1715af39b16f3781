// The simulated GPUs' state, for sim.c and sim_faults.c only.
#pragma once
#include "base/vec.h"
#include "device/gpu.h"

enum { SIM_PROCESSES = 64, SIM_USES_MAX = 4096 };

struct sim_gpu {
    const char *model;
    uint64_t memory_bytes;
    int64_t at_ms;
    double power_w, temperature, energy_mj;
    uint64_t ecc;
    bool remap, lost, faulty;
    uint32_t xids[GPU_XIDS_MAX], xid_count;
    struct gpu_process processes[SIM_PROCESSES];
};

struct sim_use {
    struct gpu_use use;
    int64_t since_ms;
};

struct sim_source {
    struct gpu_source source;
    struct arena arena;
    const char *node;
    char *faults_path;
    uint64_t faults_hash;  // of the text that was last acted on
    struct sim_gpu gpus[GPU_DEVICES_MAX];
    uint32_t count;
    VEC(struct sim_use) uses;
    int64_t now_ms;
};

void gpu_sim_faults_read(struct sim_source *s);
