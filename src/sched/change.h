// The smallest change that starts a job now.
#pragma once
#include "sched/explain.h"
#include "internal.h"

void change_find(struct world *w, struct job *j, int64_t now_ms, const struct policy *policy, struct explanation *out);
