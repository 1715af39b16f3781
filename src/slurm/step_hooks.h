// Programs that srun runs around the tasks of a step, and files that it copies to the nodes of a job.
#pragma once
#include "context.h"

// Before and after each task, as the task (--task-prolog, --task-epilog): the command line that does so. NULL: no such
// program is given.
char **slurm_hooked_command(struct arena *a, const char *prolog, const char *epilog, char *const *argv,
                            int argc, int *count);
// Where srun runs (--prolog, --epilog); NULL does nothing. The program's exit status, or -1 with the error printed.
int slurm_hook_run(struct slurm *s, const char *program);

// The shell script that takes a copy from its standard input on a node; see step_hooks.c for its arguments.
extern const char slurm_bcast_receive[];

struct bcast {
    const char *source, *target;  // a target that is a folder gets the file's name
    const char *job;              // NULL: the one that this runs in
    bool force, preserve;         // replace what is there; keep the mode and the time of change
};
// Copies a file to every node of a job. The exit status; errors are printed.
int slurm_bcast(struct slurm *s, const struct bcast *b);
