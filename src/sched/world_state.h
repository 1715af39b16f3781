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

// The part of a policy that decides queue times. Compared as bytes: members in an order without gaps.
struct queue_rules {
    int64_t short_ms, short_lead_ms, max_wait_ms, size_ms, qos_ms, nice_ms;
    int32_t short_milli, area_milli;
    int64_t order;
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
        uint64_t limits;  // the time limit of a running job changed
        uint64_t nodes;   // nodes came, went, or changed their state
    } version;
    struct world_last_pass last_pass;
    struct queue_rules queue_rules;  // the entries of project queues were made with
    uint64_t queue_rules_version;
};

void world_config_changed(struct world *w);
