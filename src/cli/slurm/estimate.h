// sbatch and srun --test-only: nothing is submitted, the controller's forecast is shown.
#pragma once
#include "cli/slurm/slurm.h"
#include "model/job.h"

// Prints on standard error, as Slurm does. The exit status.
int estimate_show(struct slurm *s, const struct spec *spec);
