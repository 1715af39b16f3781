// When a pending job would start, from totals: constant in the number of steps, however long the queue.
#pragma once
#include "sched/explain.h"
#include "internal.h"

struct explain_band estimate(struct world *w, const struct job *j, int64_t now_ms, const struct policy *policy);
