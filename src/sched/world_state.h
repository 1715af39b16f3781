// The inside of a world, for the files of this folder only. Everything in it is a copy of what the caller
// said, an index over it that every change keeps exact, or a cache that can be rebuilt.
#pragma once
#include "jobs.h"
#include "nodes.h"
#include "optional.h"
#include "requests.h"
#include "rules.h"
#include "running_order.h"
#include "sched/sched.h"
#include "usage.h"

// The pass under way, or the latest.
struct world_last_pass {
    uint64_t number;              // grows with every pass, also with those made for a question (what_if.h)
    uint64_t decided;             // passes whose decisions counted
    int64_t now_ms;
    bool within_quota, no_plans;  // of its policy
};

struct world {
    struct world_cluster cluster;
    struct world_rules rules;
    struct world_requests requests;
    struct world_jobs jobs;
    struct world_optional optional;
    struct world_running_orders orders;
    struct world_usage usage;
    struct {              // grow with every change; caches remember the one they were made for
        uint64_t config;  // anything but free resources and jobs changed
        uint64_t nodes;   // nodes came, went, or changed their state
    } version;
    struct world_last_pass last_pass;
    struct {              // the policy that the entries of project queues were made with
        int order;
        int32_t short_milli;
        int64_t short_max_ms, size_ms, qos_ms, nice_ms;
        uint64_t version;
    } queue_rules;
};

void world_config_changed(struct world *w);
