// The kinds of resources that shares, quotas and limits are counted in ("dimensions").
#pragma once
#include "sched/request.h"

enum {
    DIM_GPU,        // milli-GPU of any model
    DIM_CPU,        // CPUs
    DIM_MODEL,      // the first of the GPU models that some project has a quota for
    DIMS_MAX = 16,
    CPU_COST = 50,  // milli-GPU that one CPU counts as in a user's usage
};
