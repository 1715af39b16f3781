// What an administrator configures: partitions, QoS, reservations, and the table of projects. rules.c.
#pragma once
#include "base/vec.h"
#include "projects.h"

struct world_partition {
    uint32_t id;
    bool present;
    char *name;
    bool all_nodes, fifo, closed;
    int32_t tier;
    int64_t default_time_ms, max_time_ms;
    VEC(uint32_t) nodes;
};

struct world_qos {
    uint32_t id;
    bool present;
    char *name;
    int32_t priority;
    int64_t max_jobs_per_user, max_gpu_milli_per_user, max_gpu_milli, max_cpus_per_user;
    int64_t max_time_ms;
    VEC(uint32_t) preempts;
    uint32_t usage_factor_milli;
    enum sched_override preemptible;
    uint64_t used_gpu_milli;
    uint64_t optional_gpu_milli;  // held by optional workers, not counted above
};

struct world_license {
    uint32_t id;
    bool present;
    char *name;
    uint32_t count;
    uint64_t used;  // also kept while it is not present
};

struct world_reservation {
    uint32_t id;
    char *name;
    int64_t start_ms, end_ms;
    bool maintenance;
    VEC(uint32_t) nodes, users, projects;
};

struct world_rules {
    VEC(struct world_partition *) partitions;      // by id
    VEC(struct world_project *) projects;          // by id; 0: jobs without project
    VEC(struct world_qos *) qos;                   // by id
    VEC(struct world_license *) licenses;          // by id
    VEC(struct world_reservation *) reservations;  // in ascending id
    VEC(struct world_project *) tree;              // present projects, parents first, then by id
    uint64_t tree_version;                         // version.config it was built for
};

struct world_partition *world_partition(const struct world *w, uint32_t id);  // present, or NULL
struct world_qos *world_qos(const struct world *w, uint32_t id);              // present, or NULL
struct world_license *world_license(const struct world *w, uint32_t id);      // present, or NULL
void sched_licenses_use(struct world *w, const struct sched_request *q, int sign);
struct world_reservation *world_reservation(const struct world *w, const char *name);
bool sched_partition_has(const struct world_partition *p, uint32_t node);
void sched_rules_free(struct world *w);
