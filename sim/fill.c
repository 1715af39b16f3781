// Placement only: how much of all GPUs a placement rule can allocate before the free parts are too scattered.
#include <assert.h>
#include <errno.h>

#include "base/rand.h"
#include "sim/replay.h"

enum { FILL_PERCENT_MAX = 1000 };

static int draw(const struct trace *t, uint32_t percent, int64_t capacity, uint64_t seed, uint32_t **out,
                uint32_t *count, struct error *err) {
    struct rand r;
    VEC(uint32_t) drawn = {0};
    int64_t asked = 0, wanted = capacity / 100 * percent, all = 0;
    for (uint32_t i = 0; i < t->jobs.len; i++)
        all += (int64_t)t->jobs.at[i].gpu_milli * t->jobs.at[i].tasks;
    if (!all)
        return error_set(err, EINVAL, "no job of the trace asks for a GPU: filling makes no sense");
    rand_seed(&r, seed);
    while (asked < wanted) {
        uint32_t i = (uint32_t)rand_below(&r, t->jobs.len);
        asked += (int64_t)t->jobs.at[i].gpu_milli * t->jobs.at[i].tasks;
        vec_push(&drawn, i);
    }
    for (uint32_t i = drawn.len; i > 1; i--) {
        uint32_t k = (uint32_t)rand_below(&r, i), swap = drawn.at[k];
        drawn.at[k] = drawn.at[i - 1];
        drawn.at[i - 1] = swap;
    }
    *out = drawn.at;
    *count = drawn.len;
    return 0;
}

static bool place_one(struct world *w, const struct trace *t, const struct policy *policy, uint32_t job, uint64_t id,
                      int64_t *allocated) {
    struct sched_request q = sim_replay_request(t, &t->jobs.at[job]);
    q.project = q.user = 0;
    const struct world_request *r = world_request(w, &q);
    int e = world_job_add(w, &(struct sched_job){.id = id, .request = r, .submit_ms = (int64_t)id});
    assert(!e);
    (void)e;
    world_request_unref(w, r);
    struct sched_decisions d;
    sched_decide(w, (int64_t)id, policy, &d);
    bool placed = d.starts.len > 0;
    if (placed) {
        world_job_start(w, id, d.starts.at[0].alloc, (int64_t)id);
        *allocated += (int64_t)sched_alloc_gpu_milli(d.starts.at[0].alloc);
    } else {
        world_job_remove(w, id);
    }
    sched_decisions_done(&d);
    return placed;
}

int sim_fill_run(const struct trace *t, const struct policy *policy, uint32_t percent, uint64_t seed, struct fill *out,
             struct error *err) {
    *out = (struct fill){0};
    if (percent < 100 || percent > FILL_PERCENT_MAX)
        return error_set(err, ERANGE, "fill %u %%: give 100 to %d", percent, FILL_PERCENT_MAX);
    struct world *w = world_new();
    int r = sim_replay_world(t, w, err);
    int64_t capacity = 0, arrived = 0, allocated = 0;
    uint32_t *drawn = NULL, count = 0;
    for (uint32_t i = 0; i < t->nodes.len; i++)
        capacity += (int64_t)t->nodes.at[i].gpus * SCHED_GPU;
    if (!r && !capacity)
        r = error_set(err, EINVAL, "no node has a GPU: filling makes no sense");
    if (!r)
        r = draw(t, percent, capacity, seed, &drawn, &count, err);
    struct policy p = *policy;
    p.plan_depth = 0;
    p.reclaim = false;
    for (uint32_t i = 0; i < count && !r; i++) {
        out->placed += place_one(w, t, &p, drawn[i], (uint64_t)i + 1, &allocated);
        arrived += (int64_t)t->jobs.at[drawn[i]].gpu_milli * t->jobs.at[drawn[i]].tasks;
        if (arrived <= capacity)
            out->at_100 = (int32_t)(allocated * 10000 / capacity);
    }
    out->arrived = count;
    out->at_end = capacity ? (int32_t)(allocated * 10000 / capacity) : 0;
    free(drawn);
    world_free(w);
    return r;
}
