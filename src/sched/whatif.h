// Trying things on the world itself and taking them back: nothing is left but caches.
#pragma once
#include "internal.h"

// A running job taken out as if it had ended, and put back.
struct lifted {
    struct job *job;
    struct user user;    // as it was
    int64_t cost;
    uint8_t state;
};
void job_lift(struct world *w, struct job *j, int64_t now_ms, struct lifted *out);
void job_return(struct world *w, const struct lifted *l);  // the latest lifted first

// A pending job that nobody submitted. It leaves no trace in the mix of requests.
struct job *job_suppose(struct world *w, const struct sched_job *job);
