// Jobs: pending in their request's queue, running on nodes, or ending. job.c, allocation.c.
#pragma once
#include "base/map.h"
#include "preemption_order.h"
#include "requests.h"

// Where and when a pending job will start at the latest (promise.c).
struct world_promise {
    int64_t start_ms;
    uint64_t searched;  // world_jobs.releases when an earlier start was last looked for
    uint32_t partition, count;
    struct sched_promise_node nodes[];
};

struct world_job {
    uint64_t id;
    struct world_request *request;
    int64_t submit_ms, begin_ms, start_ms, limit_ms;
    struct sched_alloc *alloc;
    uint64_t ending_for;           // the job it was preempted for; 0: it ends for another reason
    struct world_promise *promise;  // NULL: none
    struct preemption_list *preempted_by;  // NULL: never preempted (preemption_order.c)
    int64_t cost;                  // what it counts as in its user's usage while it runs
    int64_t held_gpu, held_cpus;   // of its allocation
    uint32_t restarts;
    uint32_t run_slot;             // index in world_jobs.running, or world_optional.running
    int32_t rank;                  // of an optional worker: the lowest of its group ends first
    uint64_t group;                // of an optional worker: its elastic job
    int32_t victim_priority;       // its priority as the victim order knows it
    uint32_t since_pass;           // last_pass.decided when it was queued
    uint8_t partition;             // it runs in; 0: none, or it waits
    uint8_t state, hold, reason;
    bool in_by_end : 1, in_victim_order : 1;
    bool preemptor : 1;            // jobs were preempted for it: it comes first
    bool queued : 1;               // in its request's queue (or those of its options)
    bool nonpreemptible : 1;       // as counted in its project while it runs
    bool optional : 1;             // as its request says
    bool leaves : 1;               // an optional worker that the pass under way tells to end
};

struct world_jobs {
    struct map by_id;                    // id → struct world_job
    VEC(struct world_job *) running;     // including those that are ending
    VEC(struct world_job *) begin_heap;  // begin time not reached, heap by (begin, id)
    VEC(struct world_job *) ending;      // by id
    uint32_t pending;
    uint32_t ready;                      // pending jobs that are in a queue
    uint64_t queue_moves;                // jobs moved to put others between them, counted for tests
    VEC(struct world_job *) promised;    // jobs with a promise, by (start, id)
    uint64_t releases;                   // grows whenever an earlier start may have become possible
    VEC(uint64_t) preemptors;            // jobs marked `preemptor`, in the order of marking
    VEC(struct world_job *) preempted;   // jobs with a `preempted_by` list
    VEC(uint64_t) with_reason;           // jobs that the latest pass gave a reason of their own
};

struct world_job *world_find(const struct world *w, uint64_t id);
int64_t sched_job_end_ms(const struct world_job *j);  // by its limit; INT64_MAX: none
// The requests a pending job waits in: its own, or each option of a choice.
bool sched_job_is_choice(const struct world_job *j);
uint32_t sched_job_options(const struct world_job *j);
struct world_request *sched_job_option(const struct world_job *j, uint32_t i);
struct world_request *sched_job_option_in(const struct world_job *j, uint32_t partition);  // else the first
uint32_t sched_queue_index(const struct world_request *r, const struct world_job *j);      // in the request's queue
void sched_job_enqueue(struct world *w, struct world_job *j);
void sched_job_dequeue(struct world *w, struct world_job *j);
void world_enqueue_begun(struct world *w, int64_t now_ms);  // jobs whose begin time has come
void sched_job_unbegin(struct world *w, struct world_job *j);  // puts one of them back to wait for its begin time

void sched_promise_drop(struct world *w, struct world_job *j);
// Adds (sign 1) or takes back (sign -1) a job in the counts of its project, QoS and user.
void sched_count_running(struct world *w, struct world_job *j, int sign, int64_t now_ms);
void sched_count_queued(struct world *w, struct world_job *j, int sign);
void world_recount(struct world *w);  // every count again, from the jobs
