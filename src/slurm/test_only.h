// sbatch and srun --test-only: nothing is submitted, the controller's forecast is shown.
#pragma once
#include "context.h"
#include "model/job.h"

// Prints on standard error, as Slurm does. The exit status.
int slurm_test_only(struct slurm *s, const struct spec *spec);
