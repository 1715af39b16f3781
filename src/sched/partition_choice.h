// Jobs that name several partitions; `r` is the option at hand. partition_choice.c.
#pragma once
#include "pass.h"

// Is there room in another of its partitions? `now`: only in those that come at the same place in the order,
// so that it starts there next.
bool sched_choice_room(struct sched_pass *p, const struct world_job *j, struct world_request *r, bool now);
// The option with which fewest victims are needed.
struct world_request *sched_choice_cheapest(struct sched_pass *p, struct world_job *j, struct world_request *r);
// Gives it a planned start in the partition at hand or in one that comes at the same place; NULL: in none.
struct world_request *sched_choice_plan(struct sched_pass *p, struct world_job *j, struct world_request *r);
