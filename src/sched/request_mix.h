// The mix of requests seen lately, and the fragmentation of free GPUs measured against it. request_mix.c.
#pragma once
#include "world_state.h"

void sched_mix_add(struct world *w, const struct world_request *r);  // a job with this request was submitted
void sched_mix_free(struct world *w);
void sched_mix_clone(struct world *to, const struct world *from);
uint64_t sched_mix_version(const struct world *w);
// By how much fragmentation grows when `tasks` tasks of the demand are placed on the node; lower is better.
// `gpu`: for one fraction of a GPU, the best GPU; else -1.
int64_t sched_mix_growth(const struct world *w, const struct world_node *n, const struct sched_demand *d,
                         uint32_t tasks, int *gpu);
// Milli-GPU that the average recent request could not use, over all nodes that are up.
int64_t sched_mix_fragmented(const struct world *w);
