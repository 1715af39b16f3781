// What exists besides jobs: nodes with their GPUs, projects, partitions, QoS, reservations.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/schema.h"

struct gpu {
    const char *uuid, *model;
    uint64_t memory_bytes;
    const char *pci;
    int32_t numa;
    uint32_t link_group;  // GPUs with the same group (not 0) are joined by NVLink
    bool simulated;
    const char *unhealthy;  // why it is out of use; NULL: fine
    const char *minor_path; // device node
};
extern const struct schema gpu_schema;

// What an agent says of its machine.
struct node {
    const char *name;
    const char *address, *version;
    const char *boot_id;   // changes with every start of the machine
    const char *spool_id;  // changes when the agent lost its memory of attempts
    uint32_t cpus, sockets, cores_per_socket, threads_per_core;
    uint64_t memory_bytes;
    LIST(struct gpu) gpus;
    LIST(const char *) features;
    const char *missing;   // what this agent cannot enforce, for people
    uint64_t tmp_bytes;
    const char *os, *arch;
    int64_t boot_ms, agent_start_ms;  // wall clock; 0: not known
    bool containers;       // can run them
    const char *user;      // runs this user's jobs only, as its agent is not root; NULL: everybody's
    int64_t until_ms;      // it goes then, e.g. with the allocation it runs in; 0: it stays
};
extern const struct schema node_schema;

// Silent: the connection is gone; it gets no new work, what runs there is left alone until the
// node's time-out makes it down.
enum node_state { NODE_UP, NODE_SILENT, NODE_DOWN };
extern const char *const node_state_words[];

enum { PROJECT_QUOTA_ALL = 1000000000 };  // a quota of what no other project is promised
#define PROJECT_DEFAULT "default"         // always there: of jobs that name none

struct project {
    const char *name, *parent;
    uint32_t quota_milligpu, weight_milli;
    bool has_weight;           // else the quota is the weight
    uint32_t limit_milligpu;
    bool has_limit;
    LIST(const char *) members;  // empty: everybody
    const char *nodes;           // empty: all
    uint32_t interactive_limit_s;
    LIST(const char *) model_quotas;  // "V100=4"
    const char *default_qos;
    bool shared_logs;            // members see each other's scripts and logs
    LIST(const char *) leads;    // users who may act on its jobs and name its members
    const char
        *deleted_by;    // being deleted, by this administrator: it starts nothing and ends with its last job
    uint64_t given[1];  // see entity_has
};
extern const struct schema entity_project_schema;

struct partition {
    const char *name, *nodes;
    bool is_default, fifo, down, closed;
    uint32_t default_time_s, max_time_s, tier;
    uint64_t default_memory_per_cpu_bytes;
    uint64_t given[1];  // see entity_has
};
extern const struct schema entity_partition_schema;

struct qos {
    const char *name;
    int32_t priority;
    uint32_t max_jobs_per_user, max_gpus_per_user_milli, max_wall_s;
    LIST(const char *) preempts;
    double usage_factor;  // not given: 1
    bool no_preempt;
    uint64_t given[1];  // see entity_has
};
extern const struct schema entity_qos_schema;

struct reservation {
    const char *name, *nodes;
    int64_t start_ms, end_ms;
    LIST(const char *) users, projects;
    bool maintenance;
};
extern const struct schema entity_reservation_schema;

// Seats of a program that running jobs share, whichever nodes they run on.
struct license {
    const char *name;
    uint32_t count;
    uint32_t used;  // in answers: held by running jobs
};
extern const struct schema entity_license_schema;

// The rules of sharing that are not properties of one project, partition or QoS.
enum policy_order_word { ORDER_FAIR, ORDER_FCFS };
enum policy_backfill_word { BACKFILL_IN_ORDER, BACKFILL_SHORTEST, BACKFILL_NONE };
enum policy_placement_word { PLACEMENT_FRAGMENT, PLACEMENT_PACK, PLACEMENT_SPREAD, PLACEMENT_FIRST };
extern const char *const policy_order_words[], *const policy_backfill_words[], *const policy_placement_words[];

struct policy_settings {
    enum policy_order_word order;
    enum policy_backfill_word backfill;
    enum policy_placement_word placement;
    double short_factor;
    uint32_t half_life_s, use_s, max_wait_s, qos_step_s, nice_step_s, min_run_s, plan_depth;
    int32_t size_s;
    bool reclaim, interactive_in_quota;
    uint64_t given[1];  // of a change: fields given as zero, see base/schema.h
};
extern const struct schema policy_schema;

// What an administrator sets up by name. Each of the structs begins with its name.
enum entity_kind { ENTITY_PROJECT, ENTITY_PARTITION, ENTITY_QOS, ENTITY_RESERVATION, ENTITY_LICENSE, ENTITY_COUNT };
const struct schema *entity_schema(enum entity_kind kind);
const char *entity_word(enum entity_kind kind);     // for messages: "project"
const char *entity_command(enum entity_kind kind);  // the command-line verb: "project"

// Whether a limit is set. Limits are the nullable fields of projects, partitions and QoS: one that was not given is
// no limit, zero is a limit of zero. `member` is its address in `value`.
bool entity_has(enum entity_kind kind, const void *value, const void *member);
// Brings a value that was read from a request, a file or an old journal into the form that is kept: presence of
// limits only, has_limit and has_weight of a project agree with the figures they are about.
void entity_normalize(enum entity_kind kind, void *value);
// Whether a limit is zero, which the journals of release 0.1.0 cannot tell from none.
bool entity_has_zero_limit(enum entity_kind kind, const void *value);
