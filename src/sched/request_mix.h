// The mix of requests seen lately, and how badly a node's free GPUs serve it: fragmentation.
#pragma once
#include "world_state.h"

void sched_mix_add(struct world *w, const struct world_request *r);  // a job with this request came in
void sched_mix_free(struct world *w);
void sched_mix_clone(struct world *to, const struct world *from);
uint64_t sched_mix_version(const struct world *w);
// By how much fragmentation grows when `tasks` tasks of the demand go on the node; for one fraction
// of a GPU, `gpu` is where it should go (else -1). Lower is better; 0 without anything seen.
int64_t sched_mix_growth(const struct world *w, const struct world_node *n, const struct sched_demand *d,
                         uint32_t tasks, int *gpu);
// Milli-GPU that the average recent request could not use, over all nodes that are up.
int64_t sched_mix_fragmented(const struct world *w);
