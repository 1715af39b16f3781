// The live side of srun and salloc: one WebSocket over which tasks are started and watched.
#pragma once
#include "base/vec.h"
#include "context.h"
#include "model/job.h"

struct step_run {
    struct slurm *s;
    const char *target;        // of the WebSocket
    const struct buf *first;   // first message
    bool label, pty, input;
    const char *only_output, *only_error;  // rank of the one task whose output is shown; NULL: all
    int out_fd, err_fd;        // where output goes; -1: nowhere
    uint32_t tasks;
    bool alone;                // an allocation of its own: Ctrl-C cancels it
    bool attached;             // looks on at a step of somebody: signals end only the looking
    bool kill_on_bad_exit, quit_on_interrupt;
    uint32_t wait_s;           // after the first task's end; 0: as long as it takes
    const struct spec *spec;   // of the allocation, for messages
    const char *argv0;
    // salloc: called when the allocation is there; its exit status is the job's.
    int (*granted)(struct step_run *r, uint64_t job);
    uint64_t job;
};

int slurm_step_run(struct step_run *r);  // the exit status
