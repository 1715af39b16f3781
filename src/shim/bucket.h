// The job's compute account: a bucket filled with GPU time at the job's share of the wall clock
// and emptied by what its kernels took. It is one word, the moment at which the bucket was or will
// be empty, so a charge is one addition and a process killed anywhere leaves it whole. GPU time is
// charged once however many processes and streams were busy in it: `charged_to_ns` says how far.
#pragma once
#include <stdatomic.h>
#include <stdint.h>

#include "ledger.h"

enum {
    BUCKET_CAP_NS = 20 * 1000 * 1000,    // unused share is kept for this long
    BUCKET_WINDOW_NS = 4 * 1000 * 1000,  // work let through at a time once it was held back
};
#define BUCKET_DEBT_MAX_NS (120ULL * 1000000000ULL)
#define BUCKET_AHEAD_MAX_NS (10ULL * 1000000000ULL) // a clock mark further ahead is not believed

// In GPU time; negative: overdrawn.
static inline int64_t bucket_balance(const struct ledger_compute *c, uint32_t milli, uint64_t now) {
    int64_t wall = (int64_t)(now - atomic_load_explicit(&c->zero_at_ns, memory_order_relaxed));
    if (wall > BUCKET_CAP_NS)
        wall = BUCKET_CAP_NS;
    return wall / 1000 * milli;
}

// The balance at which work goes on after it was held back.
static inline int64_t bucket_open_level(uint32_t milli) {
    int64_t want = (int64_t)BUCKET_WINDOW_NS / 1000 * (1000 - milli);
    int64_t most = (int64_t)BUCKET_CAP_NS / 2000 * milli;
    return want < most ? want : most;
}

// Charges the part of [from, to) nobody charged yet; returns it.
static inline uint64_t bucket_charge(struct ledger_compute *c, uint32_t milli, uint64_t from, uint64_t to) {
    uint64_t done = atomic_load(&c->charged_to_ns), start;
    do {
        start = done > from && done < to + BUCKET_AHEAD_MAX_NS ? done : from;
        if (to <= start)
            return 0;
    } while (!atomic_compare_exchange_weak(&c->charged_to_ns, &done, to));
    uint64_t used = to - start, cost = used * 1000 / (milli ? milli : 1000);
    atomic_fetch_add_explicit(&c->gpu_ns, used, memory_order_relaxed);
    uint64_t zero = atomic_load(&c->zero_at_ns), next;
    do {
        uint64_t floor = to > BUCKET_CAP_NS ? to - BUCKET_CAP_NS : 0;
        next = (zero > floor ? zero : floor) + cost;
        if (next > to + BUCKET_DEBT_MAX_NS)
            next = to + BUCKET_DEBT_MAX_NS;
    } while (!atomic_compare_exchange_weak(&c->zero_at_ns, &zero, next));
    return used;
}
