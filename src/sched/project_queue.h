// A project's pending jobs in order: one entry per request that has jobs ready to start. project_queue.c.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/vec.h"

enum { OPTIONS_ORDERED = 31 };  // options of a request whose order is kept; those after it go by partition id

struct sched_fit;
struct world_project;
struct world_request;
struct world_user;

// The next job of one request, with everything that decides its place; fills a cache line.
struct queue_entry {
    int64_t key;                    // its queue time; its time limit while backfilling shortest first
    int64_t base;                   // the key without its user's usage
    int64_t limit_ms;
    struct world_request *request;  // NULL: a free slot
    struct sched_fit *fit;
    struct world_user *user;
    int32_t tier, priority;
    uint32_t at;                    // index in the request's queue; of a free slot: the next free one
    uint8_t partition, dim;
    bool stale;                     // the request's next job is another one now
    bool ignores_use : 1;           // in a partition in the order of submission: its user's usage does not count
    bool may_preempt : 1;           // whatever its project's share is: by QoS, or not preemptible itself
    bool named : 1;                 // it names a reservation
    uint8_t nth : 5;                // of an option: its place among the partitions its jobs name
};

// An entry stays in its slot while its request has jobs; `sorted` is the order at the latest pass, which
// the next pass brings up to date.
struct project_queue {
    VEC(struct queue_entry) slots;
    VEC(uint32_t) sorted;
    uint32_t free;     // 1 + the first free slot; 0: none
    uint32_t count;    // slots in use
    uint64_t version;  // of configuration and policy that the entries were made with
};

void sched_project_queue_add(struct project_queue *q, struct world_request *r);
void sched_project_queue_remove(struct project_queue *q, struct world_request *r);
void sched_project_queue_stale(struct world_project *p, struct world_request *r);
void sched_project_queue_done(struct project_queue *q);
