// The node's GPUs over time: reads every GPU once a second, judges health, splits use, power and
// energy among jobs, and adds up what each attempt used. Reading may block and belongs into a work
// thread; everything else is quick and belongs to the owner's thread. The two never run at once.
#pragma once
#include "device/audit.h"
#include "base/buf.h"
#include "device/gpu.h"

struct gpu_monitor;

// Finds the GPUs; takes the source over, also on failure.
int gpu_monitor_new(struct gpu_source *source, struct gpu_monitor **out, struct error *e);
struct gpu_monitor *gpu_monitor_free(struct gpu_monitor *m);  // returns NULL
// In order of their index, with `unhealthy` as of the newest split; the monitor's own.
const struct gpu *gpu_monitor_gpus(const struct gpu_monitor *m, uint32_t *count);

// What must outlive the agent: GPUs that need a reset, a line each, "UUID XID ENERGY". A GPU whose driver counts
// no energy is left out, for nothing would tell that it was reset. Recalled before the first reading.
void gpu_monitor_keep(const struct gpu_monitor *m, struct buf *out);
void gpu_monitor_recall(struct gpu_monitor *m, const char *text);

// Work thread: one reading of every GPU. `now_ms` never goes back.
void gpu_monitor_read(struct gpu_monitor *m, int64_t now_ms);

// Which attempt a process belongs to; false: none of ours.
typedef bool (*gpu_owner_fn)(void *ctx, uint32_t pid, uint64_t *job, uint32_t *attempt);
// The process's number in its own pid namespace; 0: not known.
typedef uint32_t (*gpu_inner_fn)(void *ctx, uint32_t pid);
struct gpu_holders {
    const struct gpu_use *uses;
    uint32_t count;
    gpu_owner_fn owner;  // NULL: nothing is known of processes
    gpu_inner_fn inner;  // NULL: all in one namespace
    bool no_audit;       // whether jobs keep to their parts is not looked at
    void *ctx;
};
// A job that does not keep to its part of a GPU, at this reading and for several before it.
struct gpu_finding {
    uint64_t job;
    uint32_t attempt, index;
    struct audit_finding what;
    const char *text;  // one sentence; also in the job's sample, if it holds the GPU
};
struct gpu_samples {
    const struct gpu_sample *at;  // whole devices first, then jobs; the monitor's, until the next split
    uint32_t len;
    bool health_changed;          // the node must be reported anew
    const struct gpu_finding *findings;
    uint32_t finding_count;
};
// Owner's thread, after a reading.
void gpu_monitor_split(struct gpu_monitor *m, const struct gpu_holders *holders, struct gpu_samples *out);

// Adds what the attempt used on all its GPUs (busy and throttled time, peak of memory, energy). Stays
// known for a minute after the attempt was last named as a holder. False: nothing known.
bool gpu_monitor_usage(const struct gpu_monitor *m, uint64_t job, uint32_t attempt, struct usage *sum);
