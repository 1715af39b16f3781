// The live side of srun and salloc: a WebSocket over which tasks are started and watched. When it is cut,
// another one goes on where it was: the step and the allocation do not depend on it.
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
    bool tells;                // an allocation: says when it is given back
    bool attached;             // looks on at a step of somebody: signals end only the looking
    bool kill_on_bad_exit, quit_on_interrupt;
    uint32_t wait_s;           // after the first task's end; 0: as long as it takes
    const struct spec *spec;   // of the allocation, for messages
    const char *argv0;
    // salloc: called when the allocation is there; starts what uses it, whose exit status is the job's.
    pid_t (*granted)(struct step_run *r, uint64_t job);
    uint64_t job;
    const char *key;           // by which the controller knows a repeated request; NULL: it is not repeated
    int step_depth;            // closing braces at the end of `first` from the step's own on; 0: there is no step
};

enum { STEP_KEY_BYTES = 16, STEP_LEASE_S = 60 };
const char *slurm_step_key(struct slurm *s);                     // a new one
void slurm_add_key(struct buf *submit, const char *key);         // to a request that is a JSON object

int slurm_step_run(struct step_run *r);  // the exit status
