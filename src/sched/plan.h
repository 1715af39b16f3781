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
// Gives the job a planned start with the one of these requests that starts soonest; NULL: none before until_ms.
struct world_request *sched_plan_make(struct sched_pass *p, struct world_job *j, struct world_request *const *among,
                                      uint32_t count, int64_t until_ms);
void sched_plan_keep_part(struct sched_pass *p, struct world_job *j, const struct world_request *r, uint32_t node,
                          uint32_t tasks, uint32_t gpus, int64_t from_ms);
int64_t sched_plan_expected_end(const struct sched_pass *p, const struct world_job *j);
bool sched_plan_allows(struct sched_pass *p, const struct world_request *r, const struct world_node *n,
                       uint32_t tasks);
// The node goes before a job that starts then would have to end.
bool sched_node_ends_before(const struct world_node *n, int64_t at_ms, int64_t limit_ms);
bool sched_reservations_allow(const struct world *w, const struct world_request *r, uint32_t node, int64_t at_ms,
                              int64_t limit_ms);
// Calls `look` with the place where the job would start if it were its planned time, by the limits of what runs, and
// the world as it would be then; not at all if it would not fit. That need not be where nodes are kept for it: those
// are the ones that come to fit last, so that others can be used until then.
typedef void (*plan_place_fn)(void *ctx, struct sched_pass *p, const struct sched_alloc *place);
void sched_plan_at_start(struct sched_pass *p, struct world_job *j, const struct sched_plan *plan,
                         plan_place_fn look, void *ctx);
void sched_plan_clear(struct sched_pass *p);
