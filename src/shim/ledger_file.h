// The bytes of a ledger file, shared by ledger.c (which maps it) and ledger_file.c (which writes
// and reads it whole). Version 1; every field little-endian and naturally aligned.
#pragma once
#include <assert.h>

#include "shim/ledger.h"

enum {
    WORD_SEQ_BITS = 24,
    WORD_SLOT_BITS = 10,
    WORD_SEQ_MASK = (1 << WORD_SEQ_BITS) - 1,
    WORD_PAGE_BITS = 30,
    PAGES_MAX = (1 << WORD_PAGE_BITS) - 1, // 4 TiB
    LOCK_BASE = 1 << 30, // one byte per slot, beyond the file's end, for liveness locks
    OWNER_PID_BITS = 22,
    OWNER_START_BITS = 32,
};
static_assert(LEDGER_SLOTS < (1 << WORD_SLOT_BITS) - 1, "the last slot number means none");

// Called before every access that other processes can see; the tests interleave and kill there.
#ifndef LEDGER_STEP
#define LEDGER_STEP() ((void)0)
#endif

struct ledger_slot {
    _Atomic uint64_t owner; // 0 free, else {namespace:10, pid:22, start time in ticks:32}
    _Atomic uint64_t charged; // {pages:40, seq:24}
    _Atomic uint64_t pending; // {change in pages:40 signed, seq:24}
    _Atomic uint64_t kind_bytes[LEDGER_KINDS];
    _Atomic uint64_t launches;
    _Atomic uint64_t throttled_ns;
    uint64_t spare[5];
};
static_assert(sizeof(struct ledger_slot) == 128, "slots do not share cache lines");

struct ledger_file {
    uint64_t magic;
    uint32_t version;
    uint32_t slots;
    char job[LEDGER_JOB_MAX];
    char uuid[LEDGER_UUID_MAX];
    _Atomic uint64_t memory_bytes;
    _Atomic uint32_t compute_milli;
    _Atomic uint32_t flags;
    _Atomic uint64_t context_bytes;
    _Atomic uint64_t total_bytes;
    char gap[104]; // what changes often starts on its own cache line
    _Atomic uint64_t total; // {pages:30, slot:10, seq:24}
    _Atomic uint64_t peak_pages;
    _Atomic uint64_t overdraft_pages;
    _Atomic uint64_t refused;
    char gap2[96];
    struct ledger_compute compute;
    char gap3[80];
    struct ledger_slot slot[LEDGER_SLOTS];
};
static_assert(offsetof(struct ledger_file, total) == 256, "ledger layout");
static_assert(offsetof(struct ledger_file, compute) == 384, "ledger layout");
static_assert(offsetof(struct ledger_file, slot) == 2560, "ledger layout");

static inline unsigned owner_namespace(uint64_t owner) {
    return (unsigned)(owner >> (OWNER_PID_BITS + OWNER_START_BITS));
}

static inline pid_t owner_pid(uint64_t owner) {
    return (pid_t)(owner >> OWNER_START_BITS & ((1 << OWNER_PID_BITS) - 1));
}

uint64_t ledger_owner_word(void);
bool ledger_slot_locked(int fd, unsigned i);
bool ledger_owner_dead(int fd, unsigned i, uint64_t owner, unsigned own_namespace);
int ledger_file_check(int fd);
struct ledger_limits ledger_file_limits(const struct ledger_file *f);
void ledger_file_usage(const struct ledger_file *f, int fd, struct ledger_usage *out);
