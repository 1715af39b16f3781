// Planned starts that are kept from pass to pass. commitment.c.
#pragma once
#include "pass.h"

// A planned start as the world keeps it between passes.
struct world_plan {
    int64_t start_ms;
    int64_t was_ms;            // the earliest start it ever had
    enum sched_plan_late why;  // it is later than that now
    uint64_t claimed_by;       // a job of another project started where this one was to start; 0: none
    uint64_t version;          // of rules and time limits when it was made
    uint32_t partition;
    uint32_t part_count;  // 0: nodes are to be found by the next pass
    struct sched_plan_part parts[];
};

void sched_commitments_begin(struct sched_pass *p);  // keeps their nodes, or finds others
struct commitment *sched_commitment_of(const struct sched_pass *p, const struct world_job *j);
bool sched_commitments_of_request(const struct sched_pass *p, const struct world_request *r);
// Would starting a job of this request leave every committed job within its limits?
bool sched_commitments_allow(struct sched_pass *p, const struct world_request *r);
// Do limits leave room for a job of this request when all planned jobs run?
bool sched_commitments_leave_room(struct sched_pass *p, const struct world_request *r);
// May a job of this request start where that one was to start, because its project is below its share?
bool sched_commitment_yields(const struct sched_pass *p, const struct world_request *r,
                             const struct world_job *j);
// A job of this request starts: notes which planned jobs yield to it, while its project is below its share still.
void sched_commitments_claimed(struct sched_pass *p, const struct world_job *j,
                               const struct world_request *r);
void sched_commitment_started(struct sched_pass *p, const struct world_job *j);  // with the place it has now
void sched_commitment_add(struct sched_pass *p, struct world_job *j, struct world_request *r,
                          int64_t start_ms);
void sched_commitments_report(struct sched_pass *p);
