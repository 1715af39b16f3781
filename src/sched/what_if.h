// Questions ("why does it wait?", "what if …?") are answered by changing the world temporarily and making
// passes. Afterwards the world is as before, but for caches: a question never changes what others are shown.
#pragma once
#include "world_state.h"

// What passes leave behind for the answers to later questions: saved before a question, restored after it.
// what_if.c.
struct saved_reason {
    uint64_t job;
    uint8_t reason;
};

struct saved_promise {
    uint64_t job;
    struct world_promise *promise;  // a copy
};

struct sched_question {
    struct world *w;
    struct world_last_pass last_pass;
    struct world_job *job;                  // the one asked about; NULL: none
    uint32_t since_pass;                    // of that job
    uint64_t releases;
    VEC(struct saved_promise) promises;     // a change of the job asked about takes its own back
    VEC(struct saved_reason) reasons;
    VEC(uint64_t) preemptors, marked;       // the list, and those with the flag set
    VEC(uint64_t) begun;                    // jobs whose begin time came, but no pass since
};
void sched_question_begin(struct sched_question *q, struct world *w, struct world_job *job, int64_t now_ms);
void sched_question_end(struct sched_question *q);

// job.c
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
