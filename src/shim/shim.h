// The state of the shim in one process. A library that stands in for another is called without a
// handle of ours, so this is the one place with a process-wide variable (`shim`), and its rules
// are: `lock` guards the tables and the counters of a device, is never held across a driver call
// that allocates, and after fork everything is forgotten, because a child owns nothing.
#pragma once
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "cuda_abi.h"
#include "shim/ledger.h"
#include "table.h"

enum {
    SHIM_DEVICES = 64,
    SHIM_SMALL_MAX = 1 << 20,        // smaller allocations share the driver's blocks
    SHIM_BLOCK_BYTES = 2 << 20,      // what the driver takes from the GPU at a time
    SHIM_POOL_STEP_BYTES = 32 << 20, // what a pool grows by
    SHIM_CONTEXT_GUESS_BYTES = 640 << 20, // reserved for a context nobody has measured yet
    SHIM_CONTEXT_SLACK_BYTES = 32 << 20,  // room for modules loaded between two measurements
    SHIM_MEASURE_NS = 250 * 1000 * 1000,
};

struct throttle;
struct arbiter;

enum device_state { DEVICE_UNKNOWN, DEVICE_FREE, DEVICE_LIMITED, DEVICE_BROKEN };

struct shim_device {
    _Atomic int state;
    int ordinal;
    char uuid[LEDGER_UUID_MAX];
    struct ledger *ledger;
    struct arbiter *arbiter; // NULL: jobs on this GPU do not see each other
    uint64_t small_bytes, small_charged;
    uint64_t context_bytes; // charged
    _Atomic unsigned contexts;
    CUcontext primary;
    _Atomic uint64_t measured_ns; // when
    uint64_t graph_bytes; // charged
    _Atomic unsigned graph_generation;
    _Atomic unsigned busy; // allocations under way, during which measuring would mislead
    _Atomic uint64_t changes;
};

struct shim {
    // Read by every launch: one cache line.
    _Alignas(64) bool enabled;
    _Atomic unsigned captures;   // streams being captured
    _Atomic unsigned throttle_epoch; // moves when a throttle goes, so that no thread keeps it in mind
    _Atomic bool pools_used, graphs_used;
    _Atomic bool asks; // contexts change by ways we do not see: asked at every launch

    pthread_mutex_t lock;
    pthread_mutex_t context_lock; // one context is made at a time, so that its cost is its own
    struct shim_device device[SHIM_DEVICES];
    struct shim_table pointers, handles, mappings, arrays, pools, graphs;
};
extern struct shim shim;

// Real functions, by the names in cuda_hooks.def and cuda_calls.def.
enum real_index {
#define X(name) R_##name,
#include "cuda_hooks.def"
#include "cuda_calls.def"
#undef X
    R_COUNT,
};
extern void *shim_real[R_COUNT];
#define REAL(name) ((__typeof__(&name))shim_real[R_##name])
CUresult shim_missing(void);
#define HAVE(name) (shim_real[R_##name] != (void *)shim_missing)

uint64_t shim_now_ns(void);
void shim_sleep_ns(uint64_t ns);
struct shim_device *shim_device(CUdevice ordinal); // NULL: not limited
struct shim_device *shim_current(void);            // that of the current context
bool shim_capturing(CUstream stream, bool per_thread);
void shim_after_fork(void);

// A reservation on its way to being an allocation.
struct hold {
    struct shim_device *device; // NULL: nothing to account
    enum ledger_kind kind;
    uint64_t bytes;
};
CUresult hold_take(struct hold *h, struct shim_device *d, enum ledger_kind kind, uint64_t bytes);
void hold_drop(struct hold *h);
void hold_resize(struct hold *h, uint64_t bytes);
CUresult hold_keep(struct hold *h, struct shim_table *t, CUresult r, uint64_t key);

// For freeing: the entry leaves the table before the driver may hand the address out again.
bool held_take(struct shim_table *t, uint64_t key, struct shim_table_entry *out);
void held_end(struct shim_table *t, const struct shim_table_entry *item, CUresult r);

void account_refund(struct shim_device *d, enum ledger_kind kind, uint64_t bytes);
int account_reserve(struct shim_device *d, enum ledger_kind kind, uint64_t bytes);

void pool_refresh(struct shim_device *d); // what pools gave back to the GPU is given back to the job
bool pool_freed(const struct shim_table_entry *pointer);

CUresult context_begin(struct hold *h, CUdevice ordinal);
void context_end(struct hold *h, CUresult r);
void context_gone(CUdevice ordinal, CUcontext context);
void context_measure(struct shim_device *d, bool now);
void context_after_fork(void);
uint64_t nvml_own_bytes(const char *uuid); // 0: cannot be known

struct hold graph_begin(CUgraphExec exec, CUresult *r);
void graph_end(struct hold *h, CUgraphExec exec, CUresult r);
