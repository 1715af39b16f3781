// The ledger: one small file per (job, GPU) that every process of the job maps, holding the job's
// limits and what it uses. The node agent creates it and reads it; the shim inside the job's
// processes reserves and releases in it. Nothing is ever locked: every change is one
// compare-and-swap that others can finish, so a process killed at any instruction blocks nobody
// and leaves no byte miscounted; what it held is given back when it is found dead.
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define LEDGER_MAGIC 0x3147444c51434141ULL // "AACQLDG1", little-endian
#define LEDGER_SUFFIX ".ledger"
enum {
    LEDGER_VERSION = 1,
    LEDGER_SLOTS = 512, // processes of one job on one GPU at a time
    LEDGER_PAGE_SHIFT = 12,
    LEDGER_JOB_MAX = 64,
    LEDGER_UUID_MAX = 40, // 36 characters and a terminator, without "GPU-" or "MIG-"
    LEDGER_PATH_MAX = 512,
};

enum ledger_flag {
    LEDGER_BORROW = 1, // may use compute others leave idle, beyond its own share
};

// What a process's bytes are for; the sum over the kinds is what the slot is charged.
enum ledger_kind {
    LEDGER_DEVICE,  // cuMemAlloc and its kin, managed memory
    LEDGER_POOL,    // reserved by stream-ordered pools
    LEDGER_VMM,     // cuMemCreate
    LEDGER_ARRAY,   // arrays and mipmaps
    LEDGER_GRAPH,   // graph memory nodes
    LEDGER_CONTEXT, // contexts, modules, stacks: measured
    LEDGER_KINDS,
};

struct ledger_limits {
    uint64_t memory_bytes;  // 0: not limited
    uint32_t compute_milli; // thousandths of the GPU's time; 0 or 1000: not limited
    uint32_t flags;         // enum ledger_flag
    uint64_t context_bytes; // what one context costs on this GPU and driver; 0: not known yet
    uint64_t total_bytes;   // the GPU's own memory; 0: not known
};

struct ledger_process {
    pid_t pid; // as seen in the process's own pid namespace
    bool same_namespace;
    uint64_t bytes;
    uint64_t kind_bytes[LEDGER_KINDS];
    uint64_t launches;
    uint64_t throttled_ns;
};

struct ledger_usage {
    char job[LEDGER_JOB_MAX];
    char uuid[LEDGER_UUID_MAX];
    struct ledger_limits limits;
    uint64_t used_bytes;
    uint64_t peak_bytes;
    uint64_t overdraft_bytes; // most that was ever charged beyond the limit (contexts that grew)
    uint64_t refused;         // allocations answered with out-of-memory
    uint64_t gpu_ns;          // GPU time charged since the ledger was made
    uint64_t throttled_ns;    // time launches were held back, summed over threads
    uint64_t launches;
    unsigned nprocesses;
    struct ledger_process process[LEDGER_SLOTS];
};

struct ledger;

// For the agent. `uuid` may carry its "GPU-" or "MIG-" prefix. The file appears whole or not at
// all; an existing one is replaced only when `replace` is set. All return 0 or a negative errno.
int ledger_path(char out[LEDGER_PATH_MAX], const char *dir, const char *uuid, const char *suffix);
int ledger_create(const char *path, const char *job, const char *uuid,
                  const struct ledger_limits *limits, mode_t mode, bool replace);
size_t ledger_bytes(void);  // of every ledger file
// Reads by pread, never by a mapping: a job that truncates its own ledger cannot hurt the reader.
int ledger_sample(const char *path, struct ledger_usage *out);
int ledger_set_limits(const char *path, const struct ledger_limits *limits);

// For the shim (and for tests). `ledger_attach` gives the calling process a slot; after fork the
// child must call `ledger_after_fork` before anything else.
int ledger_open(const char *path, struct ledger **out);
struct ledger *ledger_close(struct ledger *l);
int ledger_attach(struct ledger *l);
void ledger_detach(struct ledger *l);
void ledger_after_fork(struct ledger *l);
bool ledger_attached(const struct ledger *l);

// Reserve before allocating: -ENOMEM when the job's limit would be passed. Then either commit
// happened and the bytes stay, or refund. `ledger_charge` is for what already exists (a context
// found larger than reserved): it always succeeds and may pass the limit.
int ledger_reserve(struct ledger *l, enum ledger_kind kind, uint64_t bytes);
void ledger_refund(struct ledger *l, enum ledger_kind kind, uint64_t bytes);
void ledger_charge(struct ledger *l, enum ledger_kind kind, uint64_t bytes);
unsigned ledger_reclaim_dead(struct ledger *l);

uint64_t ledger_used(const struct ledger *l);
uint64_t ledger_own(const struct ledger *l); // charged to the calling process
uint64_t ledger_own_kind(const struct ledger *l, enum ledger_kind kind);
struct ledger_limits ledger_limits(const struct ledger *l);
const char *ledger_job(const struct ledger *l);
void ledger_note_context(struct ledger *l, uint64_t bytes); // remembers the largest seen
void ledger_view(struct ledger *l, struct ledger_usage *out); // as ledger_sample, from the mapping
uint64_t ledger_round(uint64_t bytes);

// The compute side of the file; the rules are in bucket.h. Every word stands alone.
enum { LEDGER_BUSY_WORDS = 256 };
struct ledger_compute {
    _Atomic uint64_t zero_at_ns; // when the bucket was or will be exactly empty
    uint64_t spare_ns;
    _Atomic uint64_t charged_ns; // the end of the latest stretch charged
    _Atomic uint64_t gpu_ns;
    _Atomic uint64_t throttled_ns;
    _Atomic uint64_t launches;
    _Atomic uint64_t busy[LEDGER_BUSY_WORDS]; // which moments were charged: {lap:16, moments:48}
};
struct ledger_compute *ledger_compute(struct ledger *l);
_Atomic uint32_t *ledger_compute_milli(struct ledger *l);
_Atomic uint32_t *ledger_flags(struct ledger *l);
void ledger_count_launches(struct ledger *l, uint64_t launches, uint64_t throttled_ns);
