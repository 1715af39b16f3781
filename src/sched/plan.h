// Planned starts and reservations: what may use a node without delaying who has it later. plan.c.
#pragma once
#include "pass.h"

// A copy of a node that can be changed freely.
struct node_copy {
    struct world_node node;
    struct world_gpu gpus[SCHED_GPUS_MAX];
};
void sched_node_copy_init(struct node_copy *c, const struct world_node *n);
void sched_node_copy_release(struct node_copy *c, const struct world_job *j);  // as if the job had ended

void sched_plan_mark_reservations(struct sched_pass *p);
// Gives the job a planned start with the one of these requests that starts soonest; NULL: with none.
struct world_request *sched_plan_make(struct sched_pass *p, struct world_job *j, struct world_request *const *among,
                                      uint32_t count);
bool sched_plan_allows(struct sched_pass *p, const struct world_request *r, const struct world_node *n,
                       uint32_t tasks);
bool sched_reservations_allow(const struct world *w, const struct world_request *r, uint32_t node, int64_t at_ms,
                              int64_t limit_ms);
// The node as it will be when the planned part has started there, by the limits of what runs, and what the part holds
// of it; false: the part would not fit. `gpus`: room for sched_fit_gpu_slots entries.
bool sched_plan_part_state(struct sched_pass *p, const struct planned_part *part, struct node_copy *state,
                           struct sched_alloc_node *a, struct sched_alloc_gpu *gpus);
void sched_plan_clear(struct sched_pass *p);
