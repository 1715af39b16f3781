// A job's queue time and its parts, and the priority number that is shown for it.
#include "queue_position.h"

#include <errno.h>

#include "pass.h"

static int64_t bounded(__int128 v) {
    return v > INT64_MAX / 2 ? INT64_MAX / 2 : v < INT64_MIN / 4 ? INT64_MIN / 4 : (int64_t)v;
}

// a × b / c; the short way when it does not overflow.
int64_t sched_queue_time_scaled(int64_t a, int64_t b, int64_t c) {
    int64_t product;
    if (!__builtin_mul_overflow(a, b, &product))
        return bounded(product / c);
    return bounded((__int128)a * b / c);
}

int64_t sched_queue_time_add(int64_t a, int64_t b) {
    return bounded((__int128)a + b);
}

int64_t sched_cost_capacity(const struct world *w) {
    int64_t all = w->cluster.capacity[DIM_GPU] + w->cluster.capacity[DIM_CPU] * CPU_COST;
    return all > 0 ? all : 1;
}

static int32_t steps(const struct world *w, const struct world_request *r) {
    const struct world_qos *q = world_qos(w, r->asked.qos);
    int64_t sum = (int64_t)(q ? q->priority : 0) + r->asked.priority;
    return sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : (int32_t)sum;
}

int32_t sched_queue_priority(const struct world *w, const struct policy *policy, const struct world_request *r) {
    if (policy->order == POLICY_ORDER_FCFS || (!policy->qos_ms && !policy->nice_ms))
        return r->priority;
    int64_t sum = (policy->qos_ms ? 0 : (int64_t)steps(w, r)) - (policy->nice_ms ? 0 : r->asked.nice);
    return sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : (int32_t)sum;
}

void sched_queue_time_parts(const struct world *w, const struct policy *policy, const struct world_request *r,
                            int64_t submit_ms, int64_t load, int64_t capacity, int64_t now_ms,
                            struct queue_time_parts *out) {
    *out = (struct queue_time_parts){0};
    if (policy->order == POLICY_ORDER_FCFS || r->fifo)
        return;
    out->overdue = policy->max_wait_ms && now_ms - submit_ms > policy->max_wait_ms;
    if (out->overdue)
        return;
    int64_t limit = r->queue_limit_ms == INT64_MAX ? NO_LIMIT_COUNTS_AS_MS : r->queue_limit_ms;
    if (policy->short_max_ms && limit > policy->short_max_ms)
        limit = policy->short_max_ms;
    out->short_ms = sched_queue_time_scaled(limit, policy->short_milli, 1000);
    out->use_ms = sched_queue_time_scaled(load, policy->use_ms, capacity);
    out->size_ms = policy->size_ms ? sched_queue_time_scaled((int64_t)r->gpu_milli, policy->size_ms, SCHED_GPU) : 0;
    out->qos_ms = policy->qos_ms ? sched_queue_time_scaled(-(int64_t)steps(w, r), policy->qos_ms, 1) : 0;
    out->nice_ms = policy->nice_ms ? sched_queue_time_scaled(r->asked.nice, policy->nice_ms, 1) : 0;
}

int64_t sched_queue_time_overdue(int64_t submit_ms) {
    return INT64_MIN / 2 + submit_ms;
}

int64_t sched_queue_time(int64_t submit_ms, const struct queue_time_parts *parts) {
    if (parts->overdue)
        return sched_queue_time_overdue(submit_ms);
    int64_t own = sched_queue_time_add(sched_queue_time_add(parts->size_ms, parts->qos_ms), parts->nice_ms);
    return sched_queue_time_add(sched_queue_time_add(sched_queue_time_add(submit_ms, parts->short_ms), parts->use_ms),
                                own);
}

// --- the priority number ---

// One point is one second of queue time. A step of priority (QoS, the job's own, nice) is worth more than any queue
// time. For priorities below zero there is less room: there one point is a thousand seconds.
// Example: priority 0, queue time 60 s ago: 1,000,000,060; priority 1, queue time in an hour: 2,999,996,400.
enum { BELOW_BAND = 100000, BELOW_TOP = 100000000 };
static const int64_t QUEUE_POINTS = 1000000000, CLASS_POINTS = 2000000000, CLASS_MAX = 4000000;

static int64_t clamped(int64_t v, int64_t low, int64_t high) {
    return v < low ? low : v > high ? high : v;
}

static int64_t priority_number(int32_t class, const struct queue_time_parts *parts, int64_t queue_time_ms,
                               int64_t age_ms, int64_t now_ms) {
    int64_t since_s =
        queue_time_ms > now_ms ? -((queue_time_ms - now_ms + 999) / 1000) : (now_ms - queue_time_ms) / 1000;
    int64_t points = clamped(QUEUE_POINTS + since_s, BELOW_TOP, QUEUE_POINTS / 10 * 19 - 1);
    if (parts->overdue)
        points = QUEUE_POINTS / 10 * 19 + clamped(age_ms / 1000, 0, QUEUE_POINTS / 10 - 1);
    if (class >= 0)
        return points + clamped(class, 0, CLASS_MAX) * CLASS_POINTS;
    int64_t within = clamped(BELOW_BAND / 2 + (points - QUEUE_POINTS) / 1000, 0, BELOW_BAND / 10 * 9 - 1);
    if (parts->overdue)
        within = BELOW_BAND / 10 * 9 + clamped(age_ms / 1000000, 0, BELOW_BAND / 10 - 1);
    return clamped(BELOW_TOP + (int64_t) class * BELOW_BAND + within, 1, BELOW_TOP - 1);
}

// Of a job with several partitions, the option that comes first.
static struct world_request *first_option(struct world *w, const struct world_job *j, const struct policy *policy) {
    struct world_request *best = sched_job_option(j, 0);
    sched_request_refresh(w, best);
    for (uint32_t i = 1; i < sched_job_options(j); i++) {
        struct world_request *r = sched_job_option(j, i);
        struct queue_time_parts a, b;
        sched_request_refresh(w, r);
        sched_queue_time_parts(w, policy, best, j->submit_ms, 0, 1, j->submit_ms, &a);
        sched_queue_time_parts(w, policy, r, j->submit_ms, 0, 1, j->submit_ms, &b);
        int64_t x = sched_queue_time(j->submit_ms, &a), y = sched_queue_time(j->submit_ms, &b);
        if (r->tier != best->tier ? r->tier > best->tier : y < x)
            best = r;
    }
    return best;
}

int sched_queue_position(struct world *w, uint64_t job, int64_t now_ms, const struct policy *policy,
                         struct sched_queue_position *out) {
    struct world_job *j = world_find(w, job);
    if (!j || j->state != SCHED_JOB_PENDING)
        return -ENOENT;
    struct world_request *r = first_option(w, j, policy);
    const struct world_user *u = r->user;
    const struct world_qos *q = world_qos(w, r->asked.qos);
    bool fair = policy->order == POLICY_ORDER_FAIR;
    int64_t load = fair ? sched_user_average(u, now_ms, w->usage.half_life_ms) + u->cost : 0;
    struct queue_time_parts parts;
    sched_queue_time_parts(w, policy, r, j->submit_ms, load, sched_cost_capacity(w), now_ms, &parts);
    *out = (struct sched_queue_position){
        .queue_time_ms = sched_queue_time(j->submit_ms, &parts),
        .age_ms = now_ms > j->submit_ms ? now_ms - j->submit_ms : 0,
        .short_ms = parts.short_ms,
        .use_ms = parts.use_ms,
        .size_ms = parts.size_ms,
        .qos_ms = parts.qos_ms,
        .nice_ms = parts.nice_ms,
        .overdue = parts.overdue,
        .tier = r->tier,
        .qos = q ? q->priority : 0,
        .own = r->asked.priority,
        .nice = r->asked.nice,
    };
    // Overdue jobs are first of their priority, the oldest before the others: nothing else moves them.
    if (parts.overdue)
        out->queue_time_ms = j->submit_ms;
    if (j->queued)
        out->priority = priority_number(sched_queue_priority(w, policy, r), &parts, out->queue_time_ms,
                                        out->age_ms, now_ms);
    return 0;
}
