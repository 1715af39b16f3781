// Choosing nodes for one job, whole or not at all. place.c.
#pragma once
#include "pass.h"

struct placement_spot {
    uint32_t node, tasks;
    uint32_t gpus;  // with gpu_total; else 0
};

struct placement_candidate {
    uint32_t node, tasks;
    int64_t score;
    uint32_t gpus;  // it has for a job with gpu_total; else 0
};
// Divides the tasks over the candidates, the first ones first; returns the number of nodes, 0: they are not enough.
uint32_t sched_place_divide(const struct sched_demand *d, const struct placement_candidate *from,
                            uint32_t count, struct placement_spot *spots);

struct sched_alloc *sched_place(struct sched_pass *p, struct world_request *r);  // NULL: not now
// With the longest shorter time limit the job allows, to a minute, with which it can start now; NULL: with none.
// decide.c
struct sched_alloc *sched_place_shorter(struct sched_pass *p, struct world_job *j, struct world_request *r,
                                        int64_t *limit_ms);
struct sched_alloc *sched_place_part(struct sched_pass *p,
                                     struct world_request *r);  // without its further parts
struct sched_alloc *sched_place_build(const struct world *w, const struct world_request *r,
                                      struct placement_spot *spots, uint32_t n, enum policy_placement how);
void sched_place_done(struct sched_pass *p);  // frees the heaps
