// When a pending job would start, from totals: constant in the number of steps, however long the queue.
#pragma once
#include "sched/explain.h"
#include "world_state.h"

struct explain_band sched_estimate_start(struct world *w, const struct world_job *j, int64_t now_ms,
                                         const struct policy *policy);
