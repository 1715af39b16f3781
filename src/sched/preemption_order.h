// Who was preempted for whom, and which jobs a job must not preempt because of it. preemption_order.c.
#pragma once
#include "sched/sched.h"

struct sched_pass;
struct world_job;

void sched_preemption_record(struct world *w, struct world_job *j, const struct sched_preemption *new);
void sched_preemptions_forget(struct world *w, struct world_job *j);
void sched_preemptions_lapse(struct world *w, uint32_t project);  // one of its jobs ended by itself
// Fills pass.above with the jobs above the preemptor; false: there are none, it was never preempted.
bool sched_preemption_find_above(struct sched_pass *p, const struct world_job *preemptor);
struct sched_preemption sched_preemption_grounds(struct world *w, const struct world_job *victim,
                                                 const struct world_job *preemptor, enum sched_claim claim);
