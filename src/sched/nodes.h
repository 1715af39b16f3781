// Nodes and their GPUs: what each has, what running jobs hold of it, what is free. node.c, allocation.c.
#pragma once
#include "base/vec.h"
#include "resources.h"
#include "sched/world.h"

enum { FEATURE_WORDS = SCHED_FEATURES_MAX / 64, PARTITION_WORDS = SCHED_PARTITIONS_MAX / 64 };

struct node_optional;
struct world_job;

struct world_features {
    uint64_t bits[FEATURE_WORDS];  // by index into world_cluster.features
};

// free = total - held - withheld. Withheld: set aside during a pass for a job whose victims have not ended
// yet (struct earmark); 0 between passes. What optional workers hold is not subtracted (optional.h).
struct world_gpu {
    uint64_t memory_bytes;
    uint16_t free_milli;  // 0 when unusable
    uint16_t held_milli;
    uint16_t withheld_milli;
    uint16_t group;
    uint8_t model;        // index into world_cluster.models
    bool usable;
    uint8_t socket;
    uint16_t optional_milli;  // held by optional workers
};

struct world_node {
    uint32_t id;
    enum sched_node_state state;
    bool present;                    // false: removed, its running jobs have not ended yet
    uint16_t whole_free, most_free;  // GPUs entirely free; largest free_milli
    uint32_t free_milli;             // of all GPUs together
    uint64_t state_hash;             // of shape and free resources; 0: to be computed
    char *name;
    uint32_t cpus, cpus_free, cpus_held, cpus_withheld;
    uint64_t memory, memory_free, memory_held, memory_withheld;
    uint32_t gpu_count, gpu_usable;
    struct world_gpu *gpus;
    uint64_t models;                 // mask of its GPUs' models
    struct world_features features;
    uint64_t partitions[PARTITION_WORDS];  // mask of those it belongs to
    uint32_t exclusive;              // running jobs that do not share it (0 or 1)
    uint32_t user;                   // whose jobs it runs; 0: everybody's
    int64_t until_ms;                // when it goes; 0: never
    VEC(struct world_job *) jobs;    // running here, also while the node is away
    struct node_optional *optional;  // NULL: no optional worker was here yet
};

// A GPU memory size and how many GPUs have it.
struct world_gpu_size {
    uint64_t bytes;
    uint32_t count;
};

struct world_potential;

// All nodes, and what is counted over them.
struct world_cluster {
    struct world_potential *potential;
    uint32_t potential_count;
    VEC(struct world_node *) nodes;          // by id
    VEC(char *) models, features;            // words, by index
    VEC(struct world_gpu_size) gpu_sizes;    // of present nodes
    uint32_t of_users, ending;               // nodes with a user of their own, and those that go some day
    uint32_t dims;                           // dimensions in use
    uint8_t dim_of_model[SCHED_MODELS_MAX];  // 0: no quota by this model
    int64_t capacity[DIMS_MAX];              // of nodes that are up
    VEC(uint32_t) changes;                   // nodes whose free resources changed, oldest first
    uint64_t changes_base;                   // number of changes dropped from the front
    VEC(uint8_t) whole_free;                 // by node: GPUs entirely free
    VEC(uint8_t) room;                       // by node: sum of free GPU parts, in GPUs, rounded up
    uint32_t room_count[SCHED_GPUS_MAX + 1];  // number of nodes by `room`
};

// Many nodes of one kind that could be had.
struct world_potential {
    struct world_node node;
    uint32_t count;
};
void sched_potential_clear(struct world *w);

struct world_node *world_node(const struct world *w, uint32_t id);  // present, or NULL
int world_model(struct world *w, const char *model, bool add);      // index or -1
int world_feature(struct world *w, const char *feature, bool add);  // index or -1
void world_node_changed(struct world *w, uint32_t node);            // its free resources changed
void sched_nodes_recount_capacity(struct world *w);
void sched_nodes_free(struct world *w);

// Adds (sign 1) or takes back (sign -1) one node's part of an allocation.
void sched_node_allocate(struct world_node *n, const struct sched_alloc_node *a, bool exclusive, int sign);
void sched_node_withhold(struct world_node *n, const struct sched_alloc_node *a, int sign);
void sched_node_refresh(struct world_node *n);  // computes what is free
void sched_alloc_amounts(const struct world *w, const struct sched_alloc *a, int64_t held[DIMS_MAX]);
