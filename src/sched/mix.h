// The mix of requests seen lately, and how badly a node's free GPUs serve it: fragmentation.
#pragma once
#include "internal.h"

void mix_add(struct world *w, const struct request *r);  // a job with this request came in
void mix_free(struct world *w);
void mix_clone(struct world *to, const struct world *from);
uint64_t mix_version(const struct world *w);
// By how much fragmentation grows when `tasks` tasks of the demand go on the node; for one fraction
// of a GPU, `gpu` is where it should go (else -1). Lower is better; 0 without anything seen.
int64_t mix_growth(const struct world *w, const struct node *n, const struct demand *d, uint32_t tasks,
                   int *gpu);
// Milli-GPU that the average recent request could not use, over all nodes that are up.
int64_t mix_fragmented(const struct world *w);
