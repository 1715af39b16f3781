// A twin of the whole compute control on a clock of its own: the real throttle, meter, barriers, arbiter
// and bucket, over a GPU, processes and threads that exist only in simulated time. One thread, no
// sleeping, the same result every time; wake-ups are as late as on a real machine.
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum { TWIN_JOBS = 8, TWIN_STREAMS = 16 };

struct twin_load {
    uint32_t milli;
    bool borrow;
    bool joins;             // no job of its own: another process of the one before
    uint64_t kernel_ns;     // each launch runs so long; every 7th a third, every 5th double, if mixed
    bool mixed;
    uint64_t launch_ns;     // what a launch takes the program
    unsigned sync_every;    // launches between two waits for the GPU; 0: never
    uint64_t think_ns;      // pause after such a wait
    bool unsynced;          // pauses without having waited
    unsigned streams;       // launched on in turn, each waiting for the one before; 0: one
    uint64_t from_ns, until_ns; // when it works; 0: to the end
    uint64_t again_ns;      // when it works once more, to the end; 0: it does not
    uint64_t killed_ns;     // when it is gone from one instruction to the next; 0: never
};

struct twin_result {
    double share[TWIN_JOBS]; // of the GPU's time, in percent
    double busy;             // of all
    uint64_t launches[TWIN_JOBS];
    uint64_t wait_p50_ns[TWIN_JOBS], wait_p99_ns[TWIN_JOBS]; // from the first launch to the sync's end
    uint64_t charged_ns[TWIN_JOBS];
};

struct twin_world {
    const struct twin_load *load;
    unsigned jobs;
    bool shared;    // one arbiter; else each has the GPU's time by its bucket alone
    bool no_barriers;  // as with an old driver
    uint64_t run_ns, measure_from_ns, measure_until_ns; // 0: to the end
};

// Ledgers and the arbiter are made in `dir`. Asserts on what must never happen.
void twin_run(const char *dir, const struct twin_world *w, struct twin_result *out);
