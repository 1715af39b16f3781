// Decisions applied to the world during a pass, and taken back at its end. tentative.c.
#pragma once
#include "pass.h"

// `r`: the job's request, or the option it starts in. The decisions own `a`.
void sched_tentative_start(struct sched_pass *p, struct world_job *j, struct world_request *r, struct sched_alloc *a,
                           bool backfill);
// limit_ms: its time limit if it is not the one asked for; else 0. decide.c
void sched_start_with_limit(struct sched_pass *p, struct world_job *j, struct world_request *r, struct sched_alloc *a,
                            bool backfill, int64_t limit_ms);
void sched_tentative_preempt(struct sched_pass *p, struct world_job *victim);
// Sets `a` aside for the job until the victims have ended. The pass owns `a`.
void sched_tentative_earmark(struct sched_pass *p, struct world_job *j, struct world_request *r,
                             struct sched_alloc *a, struct world_job *const *victims, uint32_t n);
// Places as if the victims had ended.
struct sched_alloc *sched_tentative_place_without(struct sched_pass *p, struct world_request *r,
                                                  struct world_job *const *victims, uint32_t n);
void sched_tentative_undo(struct sched_pass *p);
