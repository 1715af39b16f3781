// Promised starts: jobs that were planned once and are planned no later from then on. promise.c.
#pragma once
#include "pass.h"

// Puts the parts of all promised jobs on their nodes, so that no other job delays them.
void sched_promises_mark(struct sched_pass *p);
// Their turn: those within their project's quota first, the others (`all`) before the first job without a claim.
void sched_promises_serve(struct sched_pass *p, bool all);
// A promised job comes up in the order: it may preempt others. Returns true.
bool sched_promise_turn(struct sched_pass *p, struct world_job *j, struct world_request *r);
// The request's project, if one more job of this request stays within its guaranteed quota; else 0. Such a job may
// delay promises to jobs of other projects that are beyond their quotas.
uint32_t sched_promise_claims(const struct sched_pass *p, const struct world_request *r);
bool sched_promise_plan_possible(const struct sched_pass *p, uint32_t partition);  // of any job in this pass
// Puts the parts of a planned start of earlier decisions on their nodes.
void sched_promise_remake(struct sched_pass *p, struct world_job *j, const struct sched_plan *plan);
// May the job at hand still get a planned start in this partition?
bool sched_promise_plan_free(const struct sched_pass *p, uint32_t partition);
