// Jobs with several parts of different shapes, which start together. parts.c.
#pragma once
#include "pass.h"

struct sched_alloc *sched_place_parts(struct sched_pass *p, struct world_request *r);  // NULL: not now
// Would all parts fit in what is free, planned starts and reservations left aside?
bool sched_parts_enough(struct sched_pass *p, struct world_request *r);
bool sched_parts_fit_idle(struct world *w,
                          struct world_request *r);  // each by itself, if all nodes were idle
bool sched_parts_may_use(struct world *w, const struct world_request *r,
                         uint32_t node);  // one of the parts after the first
