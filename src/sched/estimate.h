// When a pending job will start, estimated from totals; for worlds too large to simulate. estimate.c.
#pragma once
#include "sched/explain.h"
#include "world_state.h"

struct explain_band sched_estimate_start(struct world *w, const struct world_job *j, int64_t now_ms,
                                         const struct policy *policy);
