// An allocation that is there while something here uses it: salloc, and srun with several components outside a job.
#pragma once
#include "submit_options.h"

typedef int (*slurm_use_fn)(struct slurm *s, void *ctx);

struct slurm_allocation {
    const char *name;  // of the job, unless the options say one
    bool stays;        // it is only asked for, and stays
    bool tells;        // says that it was granted and is given back
    slurm_use_fn
        use;  // in a process of its own, with the variables of the job; its result is the exit status
    void *ctx;
};
// One block of options for each component.
int slurm_allocation(struct slurm *s, struct opts *blocks, uint32_t count, struct slurm_allocation *how);
