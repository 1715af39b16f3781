// A cluster to test with: builds worlds from a few words, carries out decisions as a controller
// would, and checks what must always hold.
#pragma once
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "sched/sched.h"

enum { NAMES_MAX = 64 };

struct cluster {
    struct world *w;
    struct policy policy;
    int64_t now_ms;
    uint64_t next_id;
    uint32_t preempted, started;
    const char *names[NAMES_MAX];  // by job id
};

static inline void cluster_node(struct cluster *c, uint32_t id, uint32_t gpus, const char *model) {
    struct sched_gpu g[SCHED_GPUS_MAX];
    char name[16];
    snprintf(name, sizeof name, "n%u", id);
    for (uint32_t i = 0; i < gpus; i++)
        g[i] = (struct sched_gpu){model, 32ULL << 30, i / 4, false};
    struct sched_node n = {
        .id = id, .name = name, .cpus = 64, .memory_bytes = 512ULL << 30, .gpus = g, .gpu_count = gpus};
    struct error e;
    if (world_node_set(c->w, &n, &e))
        fail_msg("%s", e.text);
}

static inline void cluster_project(struct cluster *c, uint32_t id, uint32_t parent, int64_t quota_gpus) {
    char name[16];
    snprintf(name, sizeof name, "p%u", id);
    struct sched_project p = {.id = id,
                              .parent = parent,
                              .name = name,
                              .quota_milligpu = quota_gpus * 1000,
                              .weight_milli = SCHED_UNLIMITED,
                              .limit_milligpu = SCHED_UNLIMITED,
                              .quota_cpus = SCHED_UNLIMITED,
                              .limit_cpus = SCHED_UNLIMITED,
                              .interactive_limit_ms = SCHED_UNLIMITED};
    struct error e;
    if (world_project_set(c->w, &p, &e))
        fail_msg("%s", e.text);
}

// Sets a partition or QoS whose limits that were left out of the literal, hence 0, are none.
static inline int test_partition_set(struct world *w, const struct sched_partition *p, struct error *e) {
    struct sched_partition set = *p;
    set.default_time_ms = set.default_time_ms ? set.default_time_ms : SCHED_UNLIMITED;
    set.max_time_ms = set.max_time_ms ? set.max_time_ms : SCHED_UNLIMITED;
    return world_partition_set(w, &set, e);
}

static inline int test_qos_set(struct world *w, const struct sched_qos *q, struct error *e) {
    struct sched_qos set = *q;
    int64_t *const limits[] = {&set.max_jobs_per_user, &set.max_gpu_milli_per_user, &set.max_gpu_milli,
                               &set.max_cpus_per_user, &set.max_time_ms};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        *limits[i] = *limits[i] ? *limits[i] : SCHED_UNLIMITED;
    set.usage_factor_milli = set.usage_factor_milli ? set.usage_factor_milli : 1000;
    return world_qos_set(w, &set, e);
}

static inline struct cluster cluster_new(uint32_t nodes, uint32_t gpus) {
    struct cluster c = {.w = world_new(), .next_id = 1, .now_ms = 1000};
    sched_policy_default(&c.policy);
    for (uint32_t i = 1; i <= nodes; i++)
        cluster_node(&c, i, gpus, "V100");
    return c;
}

static inline uint64_t cluster_submit(struct cluster *c, const struct sched_request *q) {
    const struct world_request *r = world_request(c->w, q);
    uint64_t id = c->next_id++;
    assert_int_equal(world_job_add(c->w, &(struct sched_job){.id = id, .request = r, .submit_ms = c->now_ms}), 0);
    world_request_unref(c->w, r);
    return id;
}

// The victim ends at once and goes back to its place in the queue.
static inline void cluster_requeue(struct cluster *c, uint64_t id) {
    struct sched_job_view v;
    assert_true(world_job(c->w, id, &v));
    const struct world_request *r = world_request(c->w, sched_request_asked(v.request));
    struct sched_job j = {.id = id, .request = r, .submit_ms = v.submit_ms, .restarts = v.restarts + 1};
    uint32_t count;
    struct sched_preemption *by = world_job_preemptions(c->w, id, &count);
    assert_int_equal(world_job_end(c->w, id, c->now_ms), 0);
    assert_int_equal(world_job_add(c->w, &j), 0);
    world_job_preemptions_set(c->w, id, by, count);
    free(by);
    world_request_unref(c->w, r);
}

// One round: decide and carry out. Returns the number of starts and preemptions.
static inline uint32_t cluster_round(struct cluster *c) {
    struct sched_decisions d;
    sched_decide(c->w, c->now_ms, &c->policy, &d);
    uint32_t n = d.starts.len + d.preempts.len;
    for (uint32_t i = 0; i < d.starts.len; i++)
        assert_int_equal(world_job_start_in(c->w, d.starts.at[i].job, d.starts.at[i].partition,
                                            d.starts.at[i].alloc, c->now_ms), 0);
    for (uint32_t i = 0; i < d.starts.len; i++)
        if (d.starts.at[i].limit_ms)
            world_job_limit(c->w, d.starts.at[i].job, d.starts.at[i].limit_ms);
    for (uint32_t i = 0; i < d.preempts.len; i++)
        world_job_preempt(c->w, &d.preempts.at[i]);
    sched_promises_keep(c->w, &d);
    for (uint32_t i = 0; i < d.preempts.len; i++)
        cluster_requeue(c, d.preempts.at[i].victim);
    c->started += d.starts.len;
    c->preempted += d.preempts.len;
    sched_decisions_done(&d);
    c->now_ms += 1000;
    return n;
}

static inline void cluster_settle(struct cluster *c) {
    for (unsigned i = 0; cluster_round(c); i++)
        assert_true(i < 1000);
    world_assert(c->w);
}

static inline bool cluster_runs(const struct cluster *c, uint64_t id) {
    struct sched_job_view v;
    return world_job(c->w, id, &v) && v.state == SCHED_JOB_RUNNING;
}

static inline int64_t cluster_used(struct cluster *c, uint32_t project) {
    struct sched_project_figures f;
    assert_true(world_project_figures(c->w, project, &f));
    return f.used_milligpu;
}
