// GPUs of a job that its nodes cannot share equally, as in `-N2 --gpus=5`. Slurm's rule, which the steps of a job
// follow as well: one GPU on every node, the rest on the first nodes that have some. uneven.c.
#pragma once
#include "place.h"

// One `unit` on each, the rest on the first that have room. False: they have not enough, or one has nothing.
bool sched_deal(uint32_t total, uint32_t unit, const uint32_t *room, uint32_t count, uint32_t *out);

// What such a job needs of a node on which it gets this many GPUs; with 0 the demand as it is.
struct sched_demand sched_demand_on(const struct sched_demand *d, uint32_t gpus);
// The same with the most GPUs that it may take there now.
struct sched_demand sched_demand_most(const struct sched_demand *d, const struct world_node *n);

// Whether these nodes are enough for the tasks and, with gpu_total, the GPUs: on as many of them as the job may use.
// Puts them into another order.
bool sched_nodes_enough(const struct sched_demand *d, struct placement_candidate *from, uint32_t count);
// Chooses the nodes, those with most GPUs first, and deals tasks and GPUs to them in the order of their names; puts
// `from` into another order. Returns the number of nodes, 0: they are not enough. `spots` has room for all of `from`.
uint32_t sched_uneven_place(const struct world *w, const struct sched_demand *d, struct placement_candidate *from,
                            uint32_t count, struct placement_spot *spots);
