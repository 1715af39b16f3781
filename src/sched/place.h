// Choosing nodes for one job, whole or not at all. place.c.
#pragma once
#include "pass.h"

struct placement_spot {
    uint32_t node, tasks;
};

struct sched_alloc *sched_place(struct sched_pass *p, struct world_request *r);  // NULL: not now
struct sched_alloc *sched_place_build(const struct world *w, const struct world_request *r,
                                      struct placement_spot *spots, uint32_t n, enum policy_placement how);
void sched_place_done(struct sched_pass *p);  // frees the heaps
