// Optional workers: jobs that use what others leave. What they hold is kept in a second ledger of each node and is
// not subtracted from what is free, so a pass over the other jobs decides as if they were not there. optional.c.
#pragma once
#include "base/vec.h"
#include "sched/world.h"

struct world;
struct world_job;
struct world_node;
struct world_project;
struct world_request;

enum { OPTIONAL_REST_MS = 30000 };

// Waiting workers of one group that ask for the same, by id.
struct optional_queue {
    struct world_request *request;
    uint64_t group;
    struct optional_queue *next;  // of the same request
    uint32_t slot;                // in world_optional.queues
    VEC(struct world_job *) jobs;
};

struct world_optional {
    VEC(struct world_job *) running;      // including those that are ending; by run_slot
    uint32_t ending;
    VEC(struct optional_queue *) queues;  // in no order
    uint32_t waiting;                     // in the queues
    uint32_t pending;                     // waiting, held, or before their begin time
};

// What optional workers hold of a node, beside world_gpu.optional_milli.
struct node_optional {
    uint32_t cpus;
    uint64_t memory;
    uint32_t exclusive;  // workers that do not share the node (0 or 1)
    VEC(struct world_job *) jobs;
    // A worker of this project was given back here: the project starts none here before then, if others want the room.
    uint32_t rest_project;
    int64_t rest_until_ms;
};

void sched_optional_enqueue(struct world *w, struct world_job *j);
void sched_optional_dequeue(struct world *w, struct world_job *j);
void sched_optional_run(struct world *w, struct world_job *j);
void sched_optional_stop(struct world *w, struct world_job *j);
void sched_optional_rest(struct world *w, const struct world_job *j, int64_t now_ms);  // it was given back
// Adds (sign 1) or takes back (sign -1) what a worker holds on its nodes.
void sched_optional_hold(struct world *w, struct world_job *j, const struct sched_alloc *a, int sign);
// The same in the sums of its project, QoS and user.
void sched_optional_count(struct world *w, struct world_request *r, const struct sched_alloc *a, int sign);
void sched_optional_node_again(struct world_node *n);  // after the node's description changed
void sched_optional_recount(struct world *w);
void sched_optional_assert(const struct world *w);
void sched_optional_clone(struct world *to,
                          const struct world *w);  // what adding and starting jobs does not copy
void sched_optional_free(struct world *w);
