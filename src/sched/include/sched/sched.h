// The scheduler: decide(world, now, policy) → decisions. Pure and deterministic: the same world, time and
// policy give the same decisions, byte for byte, and the world stays as it was but for caches. The caller
// carries the decisions out and reports them back (world_job_start_in, world_job_preempt, world_job_end).
// This module's functions begin with sched_, those that change or read a world with world_.
#pragma once
#include "base/vec.h"
#include "sched/policy.h"
#include "sched/world.h"

enum sched_reason {
    SCHED_REASON_NONE,        // not considered by a pass yet
    SCHED_REASON_HELD,        // see the job's hold
    SCHED_REASON_BEGIN_TIME,  // its begin time has not come
    SCHED_REASON_PROJECT_GONE,
    SCHED_REASON_PARTITION,  // gone or closed
    SCHED_REASON_QOS_GONE,
    SCHED_REASON_QOS_LIMIT,
    SCHED_REASON_TIME_LIMIT,  // over the partition's, QoS's or project's
    SCHED_REASON_DEADLINE,
    SCHED_REASON_PROJECT_LIMIT,
    SCHED_REASON_QUOTA,        // interactive work waits for room inside the quota
    SCHED_REASON_RESOURCES,    // too little is free: it is next in the queue
    SCHED_REASON_PRIORITY,     // other jobs come first, or it would delay a planned one
    SCHED_REASON_NODES,        // no node that is up can fit it even when idle
    SCHED_REASON_RESERVATION,  // its own is not open, or it could run into another's
    SCHED_REASON_PREEMPTING,   // jobs were preempted for it and have not ended yet
    SCHED_REASON_RESERVATION_GONE,
    SCHED_REASON_LICENSES,  // too few seats of a license are free
    SCHED_REASON_COUNT,
};
const char *sched_reason_word(enum sched_reason r);  // one word, as lists show it

enum sched_preempt_why {
    SCHED_PREEMPT_SHARE,    // the victim's project uses more than its share, the preemptor's less
    SCHED_PREEMPT_QUOTA,    // the preemptor is within its project's guaranteed quota
    SCHED_PREEMPT_QOS,      // the preemptor's QoS may preempt the victim's
    SCHED_PREEMPT_PROJECT,  // an interactive job within its quota, of the same project
    SCHED_PREEMPT_OPTIONAL,  // the victim is an optional worker. for_job starts on its place, now or within the grace
                             // time, or is a worker of a project further below its share; 0: over a limit
};

struct sched_start {
    uint64_t job;
    struct sched_alloc *alloc;  // owned by the decisions
    uint32_t partition;   // of those it may have; 0: it names none
    int64_t limit_ms;     // its time limit, where it is shorter than asked for (time_min_ms); 0: as asked for
    bool backfill;        // passed a planned job without delaying it
    bool optional;        // an optional worker; these come after all others
    uint64_t *after;  // optional workers on its place: its processes must not start before these have ended
    uint32_t after_count;
};

struct sched_preempt {
    uint64_t victim, for_job;
    enum sched_preempt_why why;
    int64_t grace_ms;
    struct sched_preemption grounds;  // kept with the victim (preemption_order.c)
};

// The victim was asked to end. As world_job_ending, with the grounds.
int world_job_preempt(struct world *w, const struct sched_preempt *p);

struct sched_plan {
    uint64_t job;
    int64_t start_ms;     // by the limits of what runs
    uint32_t partition;   // of those it may have: the one it is planned in
    uint32_t node_count;
    struct sched_promise_node *nodes;  // owned; NULL: as promised already
};

// A promised start could not be kept: it is planned anew in `plans`, or its start is not known.
struct sched_broken_promise {
    uint64_t job;
    int64_t start_ms;  // as it was promised
    enum sched_late late;
    uint64_t by;       // the job that overran or claims the quota; the node's id; 0: not known
};

struct sched_decisions {
    VEC(struct sched_start) starts;      // carry out in this order
    VEC(struct sched_preempt) preempts;  // victims of one preemptor are adjacent
    VEC(struct sched_plan) plans;        // planned starts; those of a job whose promise was broken come after it
    VEC(struct sched_broken_promise) broken;
    uint32_t looked_at;                  // pending jobs that were ready
    int64_t next_ms;                     // decide again then even if nothing happens; INT64_MAX: no need
};

void sched_decisions_done(struct sched_decisions *d);  // frees, leaves it empty
void sched_decide(struct world *w, int64_t now_ms, const struct policy *policy,
                  struct sched_decisions *out);
// Makes every planned start of these decisions a promise (world_job_promise), after their starts were carried out.
void sched_promises_keep(struct world *w, const struct sched_decisions *d);
// The same without the shortcuts that skip jobs which cannot start anyway; for tests.
void sched_decide_all(struct world *w, int64_t now_ms, const struct policy *policy, struct sched_decisions *out);
// As of the latest pass; cheap.
enum sched_reason sched_job_reason(const struct world *w, uint64_t job);
// The same for one of the partitions a queued job names; sched_job_reason tells the one nearest to starting.
enum sched_reason sched_option_reason(const struct world *w, uint64_t job, uint32_t partition);

// What orders a pending job inside its project: tier, priority, then queue time = submitted + short + use +
// size + qos + nice, the earliest first. `priority` combines them in one positive number, higher first: jobs
// of one project and partition sort by it, to the second. Between projects shares come first, which a number
// of one job cannot express (see `position` in an explanation). 0: the job is held or has not begun.
struct sched_queue_position {
    int64_t priority;
    int64_t queue_time_ms, age_ms, short_ms, use_ms, size_ms;
    int64_t qos_ms, nice_ms; // 0 unless the policy lets priority and nice count as time
    bool overdue;            // waited longer than policy.max_wait_ms: first of its priority
    int32_t tier;            // of its partition; sorts before everything else
    int32_t qos, own, nice;  // QoS's priority, its own, and nice
};
// Constant time; -ENOENT when there is no such pending job.
int sched_queue_position(struct world *w, uint64_t job, int64_t now_ms, const struct policy *policy,
                         struct sched_queue_position *out);
