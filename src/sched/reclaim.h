// Preemption: choosing victims for a job. reclaim.c.
#pragma once
#include "pass.h"

bool sched_reclaim(struct sched_pass *p, struct world_job *j, struct world_request *r);
// Number of victims it would take; 0: none would do.
uint32_t sched_reclaim_count(struct sched_pass *p, struct world_job *j, struct world_request *r);
bool sched_reclaim_possible(struct sched_pass *p);  // some project uses more than its share or quota
