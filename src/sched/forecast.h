// Playing the queue forward on a copy of the world, or estimating where that would take too long.
#pragma once
#include "sched/explain.h"

struct explain_band sched_forecast_start(struct world *w, uint64_t job, int64_t now_ms, const struct policy *policy);
