// A small cluster with a bit of everything, for the tests of the exporters. `step` moves its counters on.
#pragma once
#include "base/arena.h"
#include "metrics/openmetrics.h"

void example_input(struct arena *a, uint64_t step, int64_t now_ms, struct metrics_input *out);
void example_agent(struct arena *a, uint64_t step, int64_t now_ms, struct metrics_agent_input *out);
