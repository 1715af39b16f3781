// Packs a step into what its job holds: which nodes, how many tasks and which ranks on each, which
// CPUs, how much memory, which GPUs, and which of them each task sees. Pure: everything is an argument.
// A step holds either all CPUs of its nodes (whole), exactly what it asks for, or nothing of its own
// (overlap). GPUs and memory are held only when the step asks for them.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"

enum {
    STEP_TASKS_MAX = 65536,  // of one step
    STEP_GPUS_MAX = 64,      // on one node: the width of a task's GPU mask
};

struct step_gpu {
    uint32_t index;  // of the node's GPUs
    uint32_t milli, held_milli;
};

// What the job holds on one node, and what its running steps hold of that.
struct step_slot {
    const char *node;
    uint32_t cpus, cpus_held;
    bool *cpu_held;  // by position among the job's CPUs on this node
    uint64_t memory_bytes, memory_held_bytes;  // memory_bytes 0: the job has no limit
    struct step_gpu *gpus;
    uint32_t gpu_count;
};

// How ranks are dealt to nodes. The number of tasks per node is the same for all of them: one task per
// node in turn until all are placed, as Slurm does.
enum step_distribution { STEP_BLOCK, STEP_CYCLIC, STEP_PLANE };

// Which of the step's GPUs on its node a task sees.
enum step_bind_kind {
    STEP_BIND_DEFAULT,   // with gpus_per_task its own, otherwise all
    STEP_BIND_ALL,
    STEP_BIND_SINGLE,    // one; `count` tasks share each
    STEP_BIND_PER_TASK,  // `count` each, in order
    STEP_BIND_MAP,       // task i sees list[i mod length], a position among the step's GPUs
    STEP_BIND_MASK,      // likewise, a bit mask of positions
};
struct step_bind {
    enum step_bind_kind kind;
    uint32_t count;
    uint64_t *list;
    uint32_t len;
};

struct step_request {
    uint32_t tasks;
    uint32_t nodes;  // exactly so many; 0: as few as needed, or with `whole` as many as there are tasks for
    uint32_t tasks_per_node, cpus_per_task;  // 0: no bound; 0: 1
    uint64_t memory_per_node_bytes, memory_per_cpu_bytes;
    uint32_t gpus_milli, gpus_per_node_milli, gpus_per_task_milli;  // at most one of them
    bool whole, overlap, overcommit;
    const char *const *required, *const *excluded;  // names of nodes
    uint32_t required_count, excluded_count;
    enum step_distribution distribution;
    uint32_t plane_size;
    struct step_bind bind;
};

struct step_gpu_share {
    uint32_t index, milli;
};

// What the step has on one node.
struct step_share {
    uint32_t slot;       // position in the slots that were given
    uint32_t *ranks;     // of its tasks there, ascending
    uint32_t tasks;
    uint32_t *cpus;      // positions among the job's CPUs there
    uint32_t cpu_count;  // 0: no CPUs of its own
    uint64_t memory_bytes;
    struct step_gpu_share *gpus;
    uint32_t gpu_count;
    bool owns_gpus;       // other steps may not have them
    uint64_t *task_gpus;  // by task: mask of positions in `gpus`; NULL: every task sees all
};

struct step_layout {
    struct step_share *at;
    uint32_t len;
};

// "block", "cyclic", "plane=4"; what follows a colon or comma (sockets, packing) changes nothing here.
int sched_step_distribution_parse(const char *text, enum step_distribution *out, uint32_t *plane_size,
                                  struct error *e);
// "none", "closest", "single:2", "per_task:1", "map_gpu:0,1", "mask_gpu:0x3,0xc", each also after "verbose,".
int sched_step_bind_parse(const char *text, struct arena *a, struct step_bind *out, struct error *e);

// -EAGAIN: it fits when other steps have ended. Any other error: it can never fit into this job.
int sched_step_pack(const struct step_request *r, const struct step_slot *slots, uint32_t count,
                    struct arena *a, struct step_layout *out, struct error *e);
// Whether what the layout holds is there and free.
bool sched_step_fits(const struct step_slot *slots, const struct step_layout *layout);
void sched_step_hold(struct step_slot *slots, const struct step_layout *layout);
void sched_step_free(struct step_slot *slots, const struct step_layout *layout);
