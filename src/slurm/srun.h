// One step of srun, alone or in a job.
#pragma once
#include "context.h"

// In a job with several components: where the step runs, and how its tasks are numbered over all of them.
struct srun_place {
    const char *job;  // as "12+1"
    uint32_t first_task, own_tasks, tasks;
    // Of all components of the step, as its variables say it; NULL: those of this component.
    const char *nodes, *cpus_per_node;
    const char *tasks_per_node;  // also NULL: it is not known how the tasks are spread
    uint32_t first_node, node_count;
};
int slurm_srun_one(struct slurm *s, int argc, char **argv,
                   const struct srun_place *place);  // place NULL: as said
