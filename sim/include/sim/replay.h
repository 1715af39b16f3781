// Replaying a trace in virtual time through the scheduler that the controller uses.
#pragma once
#include "sched/sched.h"
#include "sim/trace.h"

struct replay_outcome {
    int64_t start_ms;  // of the last attempt; -1: never
    int64_t end_ms;
    uint32_t preempted;
};

struct sample {
    int64_t at_ms;
    int64_t used;      // milli-GPU, or CPUs where the trace has no GPUs
    uint32_t pending, running;
};

struct replay {
    VEC(struct replay_outcome) jobs;    // by trace index
    VEC(struct sample) samples;  // at every change
    int64_t capacity;            // in the unit of `used`
    uint64_t decisions;          // passes
    uint32_t preemptions, unstarted;
    uint32_t grown, given_back;  // starts of optional workers, and how often one was told to end
    int64_t lost;                // what preempted jobs had used, in the unit of `used` times ms
    int64_t fragmented_sum;      // milli-GPU, over fragmented_samples
    uint32_t fragmented_samples;
    int64_t first_ms, last_ms;
};

int sim_replay_run(const struct trace *t, const struct policy *policy, struct replay *out, struct error *err);
void sim_replay_done(struct replay *r);

// Placement only: jobs drawn with replacement until their GPUs reach `percent` of what is there,
// placed one by one in random order; nobody leaves, nobody tries again. What was allocated when
// arrivals had reached 100 % and `percent`, in hundredths of a per cent of all GPUs.
struct fill {
    int32_t at_100, at_end;
    uint32_t arrived, placed;
};
int sim_fill_run(const struct trace *t, const struct policy *policy, uint32_t percent, uint64_t seed, struct fill *out,
             struct error *err);

int sim_replay_world(const struct trace *t, struct world *w, struct error *err);  // its nodes and projects
struct sched_request sim_replay_request(const struct trace *t, const struct trace_job *j);
