// A pending job's queue time and priority: what orders it inside its project. queue_position.c.
#pragma once
#include "world_state.h"

enum { NO_LIMIT_COUNTS_AS_MS = 24 * 3600 * 1000 };

struct queue_time_parts {
    bool overdue;  // waited longer than policy.max_wait_ms: before all others of its priority
    int64_t short_ms, use_ms, size_ms;
    int64_t qos_ms, nice_ms;  // 0 unless the policy lets priority and nice count as time
};

// The priority that sorts before queue time: what of QoS, priority and nice does not count as time.
int32_t sched_queue_priority(const struct world *w, const struct policy *policy, const struct world_request *r);

int64_t sched_queue_time_add(int64_t a, int64_t b);                 // bounded
int64_t sched_queue_time_scaled(int64_t a, int64_t b, int64_t c);   // a × b / c, bounded
int64_t sched_queue_time_overdue(int64_t submit_ms);
// `load`: what its user uses; `capacity`: what the whole cluster counts as in users' usage.
void sched_queue_time_parts(const struct world *w, const struct policy *policy, const struct world_request *r,
                            int64_t submit_ms, int64_t load, int64_t capacity, int64_t now_ms,
                            struct queue_time_parts *out);
int64_t sched_queue_time(int64_t submit_ms, const struct queue_time_parts *parts);  // the earliest goes first
int64_t sched_cost_capacity(const struct world *w);
