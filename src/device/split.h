// How one GPU's use, power and energy are split among the jobs that hold it: pure arithmetic.
// Use: the ledger's GPU time where there is one, else what the driver measures per process, else the
// device's use by share; measured uses that add up to more than the whole GPU are taken in proportion.
// Energy: what the GPU draws when idle goes by share, the rest by measured use; what falls to nobody's
// share stays with nobody.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct split_job {
    uint32_t milli;            // share
    bool measured;             // use_milli comes from ledger or processes
    uint32_t use_milli;        // in and out: part of the GPU's time
    uint64_t power_mw, energy_mj;  // out
};

struct split_device {
    bool use_known;
    uint32_t use_milli;
    uint32_t foreign_milli;    // measured use of processes that belong to no job
    uint64_t power_mw;
    uint64_t energy_mj;        // drawn since the last time
    uint64_t idle_power_mw;    // lowest seen while unused; 0: not known
    int64_t span_ms;           // since the last time
};

void gpu_split(const struct split_device *d, struct split_job *jobs, uint32_t count);
