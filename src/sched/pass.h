// One scheduling pass under way. It decides on the world itself: every start, victim and planned start is
// applied at once, so that the next job sees it, and all are taken back at the end (tentative.c). Between
// passes a world holds nothing of a pass but caches.
#pragma once
#include "base/map.h"
#include "fit_class.h"
#include "sched/explain.h"
#include "world_state.h"

// A node's part of a planned start: from `from_ms` on, `tasks` tasks of the job must fit on the node.
struct planned_part {
    uint32_t node, next;  // next: 1 + index of another part on the same node
    int64_t from_ms;
    const struct world_request *request;
    uint32_t tasks;          // 0: no longer
    struct world_job *job;
    uint32_t gpus;  // of a job with gpu_total; else 0
    uint32_t yields;         // project: other projects' jobs within their guaranteed quota need not heed it; 0: all do
};

// Resources set aside for a job whose victims have not ended yet.
struct earmark {
    struct world_job *job;
    struct world_request *request;  // its own, or the option it will start in
    struct sched_alloc *alloc;
    struct sched_alloc *withheld;   // the part of `alloc` that is free now, and not for others
};

// A promise in the pass under way.
struct promise_state {
    struct world_job *job;
    uint32_t yields;  // see planned_part
    bool served;
};

struct sched_pass {
    struct world *w;
    const struct policy *policy;
    int64_t now_ms;
    struct sched_decisions *out;
    uint32_t moves;                 // starts, victims and earmarks so far
    bool served;                    // some job got its decision before the order was made
    bool all;                       // for tests: no shortcut leaves jobs out
    // Tentative decisions.
    VEC(struct earmark) earmarks;
    struct map earmarked;           // ids of their jobs
    VEC(struct world_job *) victims;  // ending already, or chosen in this pass
    VEC(uint8_t) is_victim;         // by run_slot; empty: there are none
    bool retry;                     // placing as if victims were gone: earlier failures do not count
    // Planned starts and reservations.
    VEC(struct planned_part) parts;
    VEC(uint32_t) first_part;       // by node: 1 + index of the first part on it; empty: there are none
    VEC(uint8_t) restricted;        // by node: has a planned part or a reservation; empty: there are none
    struct map planned;             // ids of jobs with a planned start
    bool choice_planned;            // one of them is a choice
    VEC(struct promise_state) promises;  // of all promised jobs, those within their quota first (promise.c)
    bool promises_served;
    uint32_t claiming;              // the job at hand stays within the guaranteed quota of this project; 0: it does not
    uint64_t claimed;               // the latest such job that got something in this pass
    bool placing_parts;             // of a job with several parts (parts.c)
    int64_t planning_ms;            // not 0: placing is for a start at this time
    struct world_job *const *without;  // placing as if these had ended: they hold nothing at the moment
    uint32_t without_count;
    const struct world_job *placing;  // a planned job is tried elsewhere: its own plan is not in its way
    uint8_t plans[SCHED_PARTITIONS_MAX];  // planned starts made per partition
    bool closed[SCHED_PARTITIONS_MAX];    // in strict order, and a job is blocked
    // Optional workers (growth.h).
    VEC(struct sched_preempt) given_back;  // those that have to end
    VEC(struct sched_start) grown;         // those that start
    VEC(uint8_t) soon;  // by node: a planned start is there within the grace time; empty: none
    // Placement.
    VEC(struct sched_fit *) ranked;   // classes whose nodes are in a heap
    VEC(struct sched_fit *) classes;  // of all queue entries in the order
    // Preemption (reclaim.c).
    VEC(uint32_t) may_preempt;      // by project: mask of dimensions in which it began the pass under its share
    uint32_t over_moves;            // decisions made when `over` was computed, + 1
    bool over;                      // some project uses more than its share or quota
    bool running_counted;
    uint32_t running_projects;      // projects with running jobs
    uint32_t victims_from;          // those before it in the world's victims are victims already
    VEC(uint8_t) victim_projects;   // by project: may lose jobs to the preemptor at hand …
    VEC(int64_t) victim_most;       // … this many milli-GPU at most; -1: none
    int64_t victim_total;           // and all of them together
    VEC(uint16_t) freeable;         // by node: GPUs that jobs of these projects hold
    uint64_t freeable_for;          // hash of what `freeable` was computed from
    struct map reclaims_failed;     // hash of a preemptor's kind → decisions made when it failed, + 1
    struct map above;               // jobs above the preemptor at hand → 1 + the weakest claim on the way
};

static inline bool pass_restricted(const struct sched_pass *p, uint32_t node) {
    return p->restricted.len && p->restricted.at[node];
}

static inline uint32_t pass_first_part(const struct sched_pass *p, uint32_t node) {
    return p->first_part.len ? p->first_part.at[node] : 0;
}

// Is this running job ending, or chosen as a victim in this pass?
static inline bool pass_is_victim(const struct sched_pass *p, const struct world_job *running) {
    return running->run_slot < p->is_victim.len && p->is_victim.at[running->run_slot];
}

static inline bool pass_planned(const struct sched_pass *p, const struct world_job *j) {
    return p->planned.len && map_get(&p->planned, j->id);
}

static inline bool pass_yields(const struct sched_pass *p, uint32_t yields) {
    return yields && p->claiming && yields != p->claiming;
}

// Does this planned part count for the job at hand?
static inline bool pass_part_counts(const struct sched_pass *p, const struct planned_part *part) {
    return part->tasks && part->job != p->placing && !pass_yields(p, part->yields);
}

void sched_pass_done(struct sched_pass *p);  // takes everything back and frees the pass's memory
void sched_pass_reason(struct sched_pass *p, struct world_job *j, enum sched_reason reason);
bool sched_pass_strict(const struct sched_pass *p, const struct world_request *r);  // no job passes a blocked one
// Why the request's next job may not start whatever is free; SCHED_REASON_NONE: it may. eligibility.c
enum sched_reason sched_eligibility(const struct sched_pass *p, const struct world_request *r);
// The limit of its QoS that one more job of this request would exceed; `optional`: as an optional worker.
struct explain_license sched_license_limit(const struct world *w, const struct world_request *r);
struct explain_limit sched_qos_limit(const struct world *w, const struct world_request *r, bool optional);
