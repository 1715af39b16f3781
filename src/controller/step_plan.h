// How a step is packed into what its job holds: pure, so that it can be tested alone. A step takes
// either all CPUs of the nodes it runs on (whole), exactly what it asks for, or nothing of its own
// (overlap). GPUs and memory are taken only when asked for.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "model/job.h"

struct step_gpu {
    uint32_t index, milli, held;
};

// What the job holds on one node, and what steps have taken of it.
struct step_part {
    const char *node;
    uint32_t cpus, cpus_held;
    bool *cpu_held;  // by number among the job's CPUs there
    uint64_t memory_bytes, memory_held;
    struct step_gpu *gpus;
    uint32_t gpu_count;
};

struct step_need {
    uint32_t tasks, nodes;  // nodes 0: as few as needed (exact), or up to all
    uint32_t tasks_per_node, cpus_per_task;
    uint64_t memory_per_node_bytes, memory_per_cpu_bytes;
    uint32_t gpus_milli, gpus_per_node_milli, gpus_per_task_milli;
    bool whole, overlap, overcommit;
    const char **names;  // only these nodes; none: any
    uint32_t name_count;
};

// What the step has on one node.
struct step_share {
    uint32_t part, tasks, first_rank;
    uint32_t *cpus;
    uint32_t cpu_count;
    uint64_t memory_bytes;
    struct gpu_grant *gpus;
    uint32_t gpu_count;
    bool owns_gpus;
};

struct step_shares {
    struct step_share *at;
    uint32_t len;
};

void step_part_init(struct step_part *p, const struct part *from, struct arena *a);
// -EAGAIN: other steps are in the way; else it can never be.
int step_plan(const struct step_need *need, const struct step_part *parts, uint32_t count, struct arena *a,
              struct step_shares *out, struct error *e);
void step_take(struct step_part *parts, const struct step_shares *shares);
void step_release(struct step_part *parts, const struct step_shares *shares);
