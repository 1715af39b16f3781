// GPUs of this machine: which there are, and what each one does right now. A source is one way to
// know: NVML opened at run time, or a simulated twin declared in the configuration. Other vendors
// are another table of functions. A source only reports facts; monitor.h judges health and splits
// use among jobs.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "model/message.h"
#include "model/node.h"

enum {
    GPU_DEVICES_MAX = 128,    // MIG instances counted one by one
    GPU_PROCESSES_MAX = 1024, // on one GPU
    GPU_XIDS_MAX = 8,         // new ones kept between two readings
    GPU_ERROR_MAX = 96,
    GPU_NODES_MAX = 8,        // device files of one GPU
};

struct gpu_process {
    uint32_t pid;  // in the agent's pid namespace
    uint32_t utilisation_milli;
    uint64_t memory_bytes;
    uint64_t job;  // a simulated process knows whose it is; 0: ask by pid
    uint32_t attempt;
};

struct gpu_reading {
    int error;                        // negative errno: the device did not answer; the rest is void
    char error_text[GPU_ERROR_MAX];
    struct gpu_sample sample;         // of the whole device; energy_mj 0: the device does not count it
    bool process_use;                 // the processes' utilisation is measured
    bool remap_pending, remap_failed; // of memory rows
    uint32_t xids[GPU_XIDS_MAX], xid_count;  // since the last reading
    const struct gpu_process *processes;     // the source's, until the next reading of this GPU
    uint32_t process_count;
    bool processes_fresh;             // they were asked for in this reading
    uint32_t power_share_milli;       // of the power read that is this device's: less than 1000 for MIG
};

// What a job holds on a GPU, from the agent.
struct gpu_use {
    uint64_t job;
    uint32_t attempt;
    uint32_t index;               // of the GPU
    uint32_t milli;               // share
    uint64_t memory_limit_bytes;  // 0: the share of the GPU's memory
    const char *ledger;           // path of its ledger, NULL: a whole GPU without one
    // For simulated GPUs: how busy the job keeps its share, 0 … 1000; negative: a believable load.
    int32_t load_milli;
    uint64_t load_bytes;          // likewise: memory it holds, whatever it may; 0: a believable amount
};

struct gpu_source;
struct gpu_source_ops {
    const char *name;
    // The GPUs in order of their index; strings and structs land in the arena. Called once.
    int (*discover)(struct gpu_source *s, struct arena *a, struct gpu **gpus, uint32_t *count, struct error *e);
    // May take milliseconds and, with a broken GPU, seconds: not for an event loop's thread.
    void (*read)(struct gpu_source *s, uint32_t index, int64_t now_ms, struct gpu_reading *out);
    // What holds what from now on; NULL: the source does not need to know.
    void (*running)(struct gpu_source *s, const struct gpu_use *uses, uint32_t count);
    void (*free)(struct gpu_source *s);
};
struct gpu_source {
    const struct gpu_source_ops *ops;
};
struct gpu_source *gpu_source_free(struct gpu_source *s);  // NULL is fine; returns NULL

// NVIDIA's GPUs. `library` NULL: libnvidia-ml.so.1; `root` is put before /sys and /proc, NULL: "".
// -ENOENT: there is no driver, which is no error on a machine without GPUs.
int gpu_nvml_open(const char *library, const char *root, struct gpu_source **out, struct error *e);

struct gpu_sim_model {
    const char *model;
    uint32_t count;
    uint64_t memory_bytes;  // 0: what this model has
};
struct gpu_sim_config {
    const char *node;  // makes the UUIDs
    const struct gpu_sim_model *models;
    uint32_t model_count;
    // A file with lines "INDEX xid CODE", "INDEX ecc COUNT", "INDEX remap", "INDEX lost", looked at
    // every second: what it says is so until it is gone. NULL: none.
    const char *faults;
};
int gpu_sim_open(const struct gpu_sim_config *config, struct gpu_source **out, struct error *e);

enum gpu_fault { GPU_FAULT_NONE, GPU_FAULT_XID, GPU_FAULT_ECC, GPU_FAULT_REMAP, GPU_FAULT_LOST };
// An XID happens once; the others stay until GPU_FAULT_NONE, which is also a reset of the GPU.
void gpu_sim_fault(struct gpu_source *s, uint32_t index, enum gpu_fault fault, uint32_t value);

// The device files a job with this GPU must reach, this GPU's alone; those that every job with a GPU
// needs come from gpu_common_nodes. Paths are cut out of gpu->minor_path into `paths`.
struct gpu_nodes {
    char paths[GPU_NODES_MAX][64];
    uint32_t count;
};
void gpu_nodes(const struct gpu *g, struct gpu_nodes *out);
void gpu_common_nodes(struct gpu_nodes *out);  // /dev/nvidiactl, /dev/nvidia-uvm, …
