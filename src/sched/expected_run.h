// How long a job is expected to run: as its user's latest job of the same size and time limit. expected_run.c.
#pragma once
#include "sched/world.h"

struct world_user;
struct world_job;

// The shapes of the jobs that ended last, the latest first.
struct run_history {
    uint32_t count;
    struct sched_run_shape at[SCHED_RUN_SHAPES_MAX];
};

// As the latest; the time limit where nothing is known, and never more than it.
int64_t sched_expected_run_ms(const struct world_request *r, int64_t limit_ms);
void sched_run_learn(struct world *w, const struct world_job *ended, int64_t now_ms);
