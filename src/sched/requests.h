// Interned requests and what is derived from them. request.c.
#pragma once
#include "base/map.h"
#include "base/vec.h"
#include "nodes.h"
#include "sched/world.h"

struct optional_queue;
struct request_mix;
struct sched_fit;
struct world_user;

// What a job needs, in the form placement works with.
struct sched_demand {
    uint32_t nodes_min, nodes_max;
    uint32_t tasks;
    uint32_t node_tasks;          // at most this many tasks on one node
    bool even;                    // the same number of tasks on each of exactly nodes_min nodes
    bool exclusive, spread, same_group;
    uint32_t cpus_task;
    uint64_t memory_node, memory_task;
    uint32_t gpu_task, gpu_node;  // milli
    uint64_t gpu_memory;          // per GPU; decides the fraction when gpu_by_memory
    bool gpu_by_memory;
    uint64_t models;              // allowed, 0: any
    bool model_unknown;           // a model that no node has
    bool gpu_uneven;              // a total of GPUs that its nodes cannot share
    // A total that they can share only unevenly, else 0; each node then has at least one GPU (gpu_node). uneven.h.
    uint32_t gpu_total;
    uint64_t memory_gpu;          // of a job with gpu_total: for each GPU after a node's first
};

// Jobs in an order. The free room of the array lies where a job was put in or taken out last: many that are taken out
// in a row, wherever they are, each move none or one.
struct job_queue {
    struct world_job **at;
    uint32_t len, cap;
    uint32_t gap;  // the room lies before the job of this index
};

static inline struct world_job *job_queue_at(const struct job_queue *q, uint32_t i) {
    return q->at[i < q->gap ? i : i + (q->cap - q->len)];
}

// A request that names several partitions is a choice: it has one option, a request of its own, for each
// of them. Its jobs wait in the queues of all options; the choice's own queue stays empty. What does not
// depend on the partition (amounts, project, user, rights) is the same in a choice and its options.
struct world_request {
    struct sched_request asked;            // lists and texts owned
    VEC(struct world_request *) options;   // of a choice, in the order named, each with a reference; else empty
    const struct world_request *choice;    // of an option; else NULL
    VEC(struct world_request *) parts;     // that start together with it, each with a reference; else empty
    uint8_t nth;                           // of an option: its place, see struct queue_entry
    char *code;                            // canonical bytes, for interning
    uint32_t code_len;
    uint64_t hash;
    struct world_request *next;            // with the same hash
    uint32_t refs;
    struct sched_demand demand;
    VEC(struct world_features) features;   // one of each set is required
    bool feature_unknown;
    struct sched_fit *fit;
    uint64_t fit_version;                  // version.config of the lookup
    struct world_user *user, *qos_user;    // never freed before the world
    // Recomputed by sched_request_refresh when limit_version is not version.config.
    uint64_t limit_version;
    int64_t limit_ms;                      // effective time limit, INT64_MAX: none
    int64_t queue_limit_ms;                // of a choice the longest of its options', so that options sort together
    uint8_t dim;                           // the dimension whose share applies to it
    int64_t amount;                        // it asks for in that dimension
    bool preemptible;
    bool fifo;                             // its partition keeps the order of submission
    int32_t priority, tier;
    struct job_queue queue;                // ready jobs by (submit, id)
    struct optional_queue *optional;       // waiting optional workers, one queue for each group
    uint32_t project_slot;                 // in its project's queue while `queue` is not empty
    uint64_t gpu_milli;                    // of the whole job
    uint64_t reservation_pass;             // pass + 1 in which `reservation_blocks` was computed
    bool reservation_blocks;               // reservations keep it waiting, nothing else
};

struct world_requests {
    struct map by_hash;       // hash → struct world_request, linked by `next`
    uint32_t by_memory;       // number of requests for GPU memory
    struct map fits;          // hash → struct sched_fit (fit_class.h)
    uint32_t fit_count;
    struct request_mix *mix;  // kinds of requests seen lately (request_mix.h)
};

void sched_request_derive(struct world *w, struct world_request *r);  // again after models or features changed
void sched_requests_derive(struct world *w);
void sched_request_refresh(struct world *w, struct world_request *r);  // limit, priority, …: after changes of the rules
void sched_request_free(struct world_request *r);
int64_t sched_request_limit_ms(const struct world *w, const struct world_request *r);
bool sched_request_partition_has(const struct sched_request *q, const struct world_node *n);  // one of its partitions
bool sched_request_features_ok(const struct world_request *r, const struct world_node *n);
bool sched_request_node_allowed(const struct world *w, const struct world_request *r, const struct world_node *n);
unsigned sched_request_dim(const struct world *w, const struct world_request *r);
int64_t sched_request_amount(const struct world *w, const struct world_request *r, unsigned dim);
bool sched_request_preemptible(const struct world *w, const struct world_request *r);
int32_t sched_request_priority(const struct world *w, const struct world_request *r);
bool sched_request_counts(const struct world_request *r);  // of a choice's options only the first is counted

// fit.c: what fits on one node.
uint32_t sched_fit_tasks(const struct world_node *n, const struct sched_demand *d);
uint32_t sched_fit_tasks_idle(const struct world_node *n, const struct sched_demand *d);  // were it up and idle
// Milli-GPU that a fraction takes on a GPU with this memory; over SCHED_GPU: it does not fit there.
uint32_t sched_demand_milli(const struct sched_demand *d, uint32_t milli, uint64_t gpu_memory);
// Whole GPUs that a job with gpu_total could have there.
uint32_t sched_fit_gpus(const struct world_node *n, const struct sched_demand *d);
uint32_t sched_fit_gpu_slots(const struct sched_demand *d, uint32_t tasks);
void sched_fit_node(const struct world_node *n, const struct sched_demand *d, uint32_t tasks, int wish,
                    struct sched_alloc_node *out, struct sched_alloc_gpu *gpus);
