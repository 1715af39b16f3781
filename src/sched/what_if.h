// Temporary changes of the world for questions; afterwards everything but caches is as before. job.c.
#pragma once
#include "world_state.h"

// A running job taken out as if it had ended.
struct taken_out_job {
    struct world_job *job;
    struct world_user user;  // as it was
    int64_t cost;
    uint8_t state;
};
void sched_job_take_out(struct world *w, struct world_job *j, int64_t now_ms, struct taken_out_job *out);
void sched_job_put_back(struct world *w, const struct taken_out_job *l);  // the latest taken out first

// A pending job that nobody submitted. It does not count in the request mix.
struct world_job *sched_job_add_hypothetical(struct world *w, const struct sched_job *job);
