// When a pending job will start, by simulating a copy of the world or, for large ones, by an estimate. forecast.c.
#pragma once
#include "sched/explain.h"

struct explain_band sched_forecast_start(struct world *w, uint64_t job, int64_t now_ms, const struct policy *policy);
