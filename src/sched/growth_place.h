// Where optional workers can start: in what is free in both ledgers of the nodes. growth_place.c.
#pragma once
#include "pass.h"
#include "place.h"
#include "plan.h"

// The nodes one request may grow on, best first, and how far they are used up: during growth room only shrinks.
struct growth_room {
    struct world_request *request;
    struct sched_fit *fit;
    VEC(struct placement_candidate) nodes;
    uint32_t at;
};

void sched_growth_room_init(struct sched_pass *p, struct world_request *r, struct growth_room *out);
struct sched_alloc *sched_growth_place(struct sched_pass *p, struct growth_room *room);  // NULL: nowhere
void sched_growth_room_done(struct growth_room *room);

// May a worker with this request start on the node at all, whatever is free?
bool sched_growth_may_use(struct sched_pass *p, const struct world_request *r, uint32_t node);
// A copy of the node on which only what is free in both ledgers is free.
void sched_growth_copy(struct node_copy *c, const struct world_node *n);
