// When a pending job will start, by simulating a copy of the world or, for large ones, by an estimate. forecast.c.
#pragma once
#include "sched/explain.h"

struct explain_band sched_forecast_start(struct world *w, uint64_t job, int64_t now_ms, const struct policy *policy);

// Carries on from now_ms until until_ms as the scheduler would, jobs running to their limits, and tells the decisions
// of each pass before they are carried out. A bounded number of passes; returns the time it came to. Changes `w`.
typedef void (*forecast_pass_fn)(void *ctx, const struct sched_decisions *d);
int64_t sched_forecast_play(struct world *w, int64_t now_ms, int64_t until_ms, const struct policy *policy,
                            forecast_pass_fn fn, void *ctx);
void sched_forecast_without_optional(struct world *w);  // takes all optional workers out
