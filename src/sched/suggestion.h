// The smallest change with which a pending job would start now. suggestion.c.
#pragma once
#include "sched/explain.h"
#include "world_state.h"

void sched_suggest_change(struct world *w, struct world_job *j, int64_t now_ms, const struct policy *policy,
                          struct sched_explanation *out);
