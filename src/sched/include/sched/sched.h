// The scheduler: decide(world, now, policy) → decisions. Pure and deterministic: the same world, time
// and policy give the same decisions, byte for byte; the world itself is left as it was (only caches
// inside it change). The caller carries out the decisions and reports them back as deltas
// (world_job_start, world_job_ending, world_job_end).
#pragma once
#include "base/vec.h"
#include "sched/policy.h"
#include "sched/world.h"

enum sched_reason {
    SCHED_REASON_NONE,        // not looked at yet
    SCHED_REASON_HELD,        // see the job's hold
    SCHED_REASON_BEGIN_TIME,  // its begin time has not come
    SCHED_REASON_PROJECT_GONE,
    SCHED_REASON_PARTITION,   // gone or closed
    SCHED_REASON_QOS_GONE,
    SCHED_REASON_QOS_LIMIT,
    SCHED_REASON_TIME_LIMIT,  // over the partition's, QoS's or project's
    SCHED_REASON_DEADLINE,
    SCHED_REASON_PROJECT_LIMIT,
    SCHED_REASON_QUOTA,       // interactive work waits for room inside the quota
    SCHED_REASON_RESOURCES,   // nothing free that fits: it is next in line and planned
    SCHED_REASON_PRIORITY,    // others are before it, or it would delay a planned job
    SCHED_REASON_NODES,       // no node that is up can fit it even when idle
    SCHED_REASON_RESERVATION, // its own is not open, or it could run into another's
    SCHED_REASON_VACATING,    // preempted jobs are making room for it
    SCHED_REASON_COUNT,
};
const char *sched_reason_word(enum sched_reason r);  // one word, as lists show it

enum sched_preempt_why {
    SCHED_PREEMPT_SHARE,   // its project was over its share, the taker's under
    SCHED_PREEMPT_QUOTA,   // the taker is inside its guaranteed quota
    SCHED_PREEMPT_QOS,     // the taker's QoS may preempt
    SCHED_PREEMPT_PROJECT, // interactive work of the same project inside its quota
};

struct sched_start {
    uint64_t job;
    struct alloc *alloc;  // owned by the decisions
    uint32_t partition;   // of those it may have; 0: it names none
    bool backfill;        // passed a planned job without delaying it
};

struct sched_preempt {
    uint64_t victim, for_job;
    enum sched_preempt_why why;
    int64_t grace_ms;
    struct sched_gave gave;  // for_job, and on what grounds
};

int world_job_preempt(struct world *w, const struct sched_preempt *p);  // as world_job_ending, with all that is known

struct sched_plan {
    uint64_t job;
    int64_t start_ms;     // by the limits of what runs
    uint32_t partition;   // of those it may have: the one it is planned in
    uint32_t node_count;
};

struct decisions {
    VEC(struct sched_start) starts;      // carry out in this order
    VEC(struct sched_preempt) preempts;  // victims of one taker are next to each other
    VEC(struct sched_plan) plans;
    uint32_t looked_at;                  // pending jobs that were ready
    int64_t next_ms;                     // decide again then even if nothing happens; INT64_MAX: no need
};

void decisions_done(struct decisions *d);  // frees, leaves it empty
void sched_decide(struct world *w, int64_t now_ms, const struct policy *policy,
                  struct decisions *out);
// The same with nobody left out because he could get nothing anyway: what the other is tested against.
void sched_decide_all(struct world *w, int64_t now_ms, const struct policy *policy, struct decisions *out);
// By the latest decide, made when asked; cheap.
enum sched_reason sched_job_reason(const struct world *w, uint64_t job);
// Of a ready job in one of its partitions; of the whole job the one is told that is nearest to starting.
enum sched_reason sched_option_reason(const struct world *w, uint64_t job, uint32_t partition);

// A pending job's turn in parts: turn = submitted + short + use + size + qos + nice; the earliest goes first.
// `priority` stands for the turn and the priorities before it in one positive number, higher first:
// jobs of one project and partition sort by it as they are looked at, to the second. Between projects
// shares come first, which no number of one job can say; see the position in an explanation. 0: it is
// held or its begin time has not come.
struct sched_turn {
    int64_t priority;
    int64_t turn_ms, age_ms, short_ms, use_ms, size_ms;
    int64_t qos_ms, nice_ms; // where priority and nice count as time (else 0: they come before the turn)
    bool overdue;            // waited longer than the policy lets anybody: first of its priority
    int32_t tier;            // of its partition: before everything else
    int32_t qos, own, nice;  // QoS's priority, its own, and nice
};
// Made on demand, in constant time; -ENOENT when there is no such pending job.
int sched_turn(struct world *w, uint64_t job, int64_t now_ms, const struct policy *policy, struct sched_turn *out);
