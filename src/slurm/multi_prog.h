// srun --multi-prog.
#pragma once
#include "context.h"

// Reads the file into a script for "sh -c"; *tasks 0: becomes as many as it names. Prints what is wrong.
int slurm_multi_prog(struct slurm *s, const char *path, uint32_t *tasks, const char **script);
