// Optional workers in a pass: which have to end, and which can start. give_back.c, grow.c.
#pragma once
#include "pass.h"

void sched_growth_begin(struct world *w);  // shares; before the shares of the pass are computed
// Optional workers on the place of a start have to end, and its processes start after them. The same for jobs whose
// victims have not ended yet, for planned starts within the grace time, and for limits.
void sched_give_back(struct sched_pass *p);
void sched_grow(struct sched_pass *p);
void sched_growth_undo(struct sched_pass *p);    // the world is as before the pass
void sched_growth_report(struct sched_pass *p);  // moves what was found to the decisions

// eligibility.c: as sched_eligibility, for an optional worker.
enum sched_reason sched_optional_eligibility(const struct world *w, const struct world_request *r,
                                             int64_t now_ms);

// growth_place.c: does one find room in what is free in both ledgers, planned starts and reservations left aside?
bool sched_growth_fits(const struct world *w, const struct sched_fit *f);

// give_back.c
bool sched_optional_leaving(const struct world_job *j);  // ending, or told to end in this pass
void sched_optional_tell(struct sched_pass *p, struct world_job *worker, uint64_t for_job);
void sched_give_back_sort(const struct world *w, struct world_job **workers, uint32_t n);  // who ends first
