// The job's compute account: a bucket filled with GPU time at the job's share of the wall clock
// and emptied by what its kernels took. It is one word, the moment at which the bucket was or will
// be empty, so a charge is one addition and a process killed anywhere leaves it whole. A moment
// (50 us) is charged once however many processes and streams were busy in it: whoever sets its bit
// first pays.
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "shim/ledger.h"

enum {
    BUCKET_CAP_NS = 20 * 1000 * 1000,   // unused share is kept for this long
    BUCKET_WINDOW_NS = 4 * 1000 * 1000, // work let through at a time once the bucket was empty
    BUCKET_MOMENT_NS = 50 * 1000,
    BUCKET_WORD_MOMENTS = 48,
};
#define BUCKET_DEBT_MAX_NS (120ULL * 1000000000ULL)

// In GPU time; negative: overdrawn.
static inline int64_t bucket_balance(const struct ledger_compute *c, uint32_t milli, uint64_t now) {
    int64_t wall = (int64_t)(now - atomic_load_explicit(&c->zero_at_ns, memory_order_relaxed));
    return (wall < BUCKET_CAP_NS ? wall : BUCKET_CAP_NS) / 1000 * milli;
}

// What the bucket lacks, in GPU time, before `next_ns` of work may join `running_ns` of it. While
// work runs the bucket fills, so only the rest must be there. Once empty it is let fill up a little,
// so that work goes in windows and not in bits; a piece larger than the bucket goes when nothing
// else runs and the bucket is half full, and is paid off afterwards.
static inline int64_t bucket_lack(const struct ledger_compute *c, uint32_t milli, double running_ns,
                                  double next_ns, bool flowing, uint64_t now) {
    double rest = running_ns * (1000 - milli) / 1000, more = next_ns * (1000 - milli) / 1000;
    double half = (double)BUCKET_CAP_NS / 2000 * milli;
    double window = (double)BUCKET_WINDOW_NS / 1000 * (1000 - milli);
    if (!flowing && more < window)
        more = window;
    if (running_ns <= 0 && more > half)
        more = half;
    return (int64_t)(rest + more) - bucket_balance(c, milli, now);
}

// Marks the moments [from, to) of one word; how many were not marked before. A word of a later lap
// means that the report comes too late to compare: it is charged in full.
static inline unsigned bucket_mark(_Atomic uint64_t *word, uint64_t lap, unsigned from,
                                   unsigned to) {
    uint64_t bits = (to - from == 64 ? 0 : 1ULL << (to - from)) - 1, old = atomic_load(word), next;
    bits <<= from;
    do {
        uint64_t held = old >> BUCKET_WORD_MOMENTS;
        if (held != lap && ((held - lap) & 0xffff) < 0x8000)
            return to - from;
        uint64_t set = held == lap ? old & ((1ULL << BUCKET_WORD_MOMENTS) - 1) : 0;
        next = lap << BUCKET_WORD_MOMENTS | set | bits;
        if (held == lap && (set & bits) == bits)
            return 0;
    } while (!atomic_compare_exchange_weak(word, &old, next));
    uint64_t had = old >> BUCKET_WORD_MOMENTS == lap ? old & bits : 0;
    return to - from - (unsigned)__builtin_popcountll(had);
}

// A moment belongs to the stretch its middle lies in, so stretches that meet share none.
static inline uint64_t bucket_unmarked(struct ledger_compute *c, uint64_t from, uint64_t to) {
    uint64_t a = (from + BUCKET_MOMENT_NS / 2) / BUCKET_MOMENT_NS;
    uint64_t b = (to + BUCKET_MOMENT_NS / 2) / BUCKET_MOMENT_NS;
    uint64_t ring = (uint64_t)LEDGER_BUSY_WORDS * BUCKET_WORD_MOMENTS / 2, fresh = 0;
    if (b - a > ring) { // longer than can be compared: the older part is taken as new
        fresh = b - a - ring;
        a = b - ring;
    }
    while (a < b) {
        uint64_t word = a / BUCKET_WORD_MOMENTS;
        unsigned first = (unsigned)(a % BUCKET_WORD_MOMENTS);
        unsigned last = b - a > BUCKET_WORD_MOMENTS - first ? BUCKET_WORD_MOMENTS : first + (unsigned)(b - a);
        fresh += bucket_mark(&c->busy[word % LEDGER_BUSY_WORDS], word / LEDGER_BUSY_WORDS & 0xffff,
                             first, last);
        a += last - first;
    }
    return fresh * BUCKET_MOMENT_NS;
}

// Charges the part of [from, to) nobody charged yet; returns it.
static inline uint64_t bucket_charge(struct ledger_compute *c, uint32_t milli, uint64_t from,
                                     uint64_t to) {
    uint64_t used = to > from ? bucket_unmarked(c, from, to) : 0;
    if (!used)
        return 0;
    uint64_t cost = used * 1000 / (milli ? milli : 1000), cap = BUCKET_CAP_NS;
    atomic_store_explicit(&c->charged_ns, to, memory_order_relaxed);
    atomic_fetch_add_explicit(&c->gpu_ns, used, memory_order_relaxed);
    uint64_t zero = atomic_load(&c->zero_at_ns), next;
    do {
        uint64_t floor = from > cap ? from - cap : 0; // only idle time is forgotten
        next = (zero > floor ? zero : floor) + cost;
        if (next > to + BUCKET_DEBT_MAX_NS)
            next = to + BUCKET_DEBT_MAX_NS;
    } while (!atomic_compare_exchange_weak(&c->zero_at_ns, &zero, next));
    return used;
}
