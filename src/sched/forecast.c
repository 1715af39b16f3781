// Forecasts of a start: a copy of the world is simulated twice, with every job running to its time limit, and with
// every job ending when its user's jobs usually do. No new jobs are assumed.
#include "forecast.h"

#include "base/cleanup.h"
#include "estimate.h"
#include "world_state.h"

// Of 1,000: the part of its time limit that a job is assumed to run if nothing is known of its user.
enum { RATIO_UNKNOWN = 600 };

// The larger the world, the fewer steps: questions are answered in the controller's loop.
enum { PLAYED_MAX = 1500, STEPS_LEAST = 6, WORK_MAX = 100000, TOGETHER_PART = 24 };

struct ending_jobs {
    VEC(struct world_job *) jobs;
};

static int by_id(const void *pa, const void *pb) {
    const struct world_job *a = *(struct world_job *const *)pa, *b = *(struct world_job *const *)pb;
    return (a->id > b->id) - (a->id < b->id);
}

static unsigned steps_for(const struct world *w) {
    size_t work = w->jobs.running.len / 8 + w->requests.by_hash.len + 100;
    size_t steps = WORK_MAX / work;
    return steps < STEPS_LEAST ? STEPS_LEAST : steps > WHEN_STEPS_MAX ? WHEN_STEPS_MAX : (unsigned)steps;
}

static int64_t end_of(struct world *w, const struct world_job *j, bool early, int64_t now_ms) {
    int64_t end = sched_job_end_ms(j);
    if (end == INT64_MAX)
        return end;
    if (early) {
        sched_request_refresh(w, j->request);
        const struct world_user *u = j->request->user;
        int64_t ratio = u && u->ratio_milli ? u->ratio_milli : RATIO_UNKNOWN;
        end = j->start_ms + j->limit_ms / 1000 * ratio;
    }
    return end > now_ms ? end : now_ms + 1;
}

// The next end, with all jobs that end soon after it: the further away from `began_ms`, the more are taken together,
// so that a bounded number of steps reaches further.
static int64_t next_ends(struct world *w, bool early, int64_t now_ms, int64_t began_ms, struct ending_jobs *out) {
    int64_t first = INT64_MAX;
    vec_clear(&out->jobs);
    for (uint32_t i = 0; i < w->jobs.running.len; i++) {
        const struct world_job *j = w->jobs.running.at[i];
        int64_t end = j->state == SCHED_JOB_ENDING ? now_ms + 1 : end_of(w, j, early, now_ms);
        first = end < first ? end : first;
    }
    if (first == INT64_MAX)
        return first;
    int64_t until = first + (first - began_ms) / TOGETHER_PART;
    int64_t last = first;
    for (uint32_t i = 0; i < w->jobs.running.len; i++) {
        struct world_job *j = w->jobs.running.at[i];
        int64_t end = j->state == SCHED_JOB_ENDING ? now_ms + 1 : end_of(w, j, early, now_ms);
        if (end > until)
            continue;
        vec_push(&out->jobs, j);
        last = end > last ? end : last;
    }
    qsort(out->jobs.at, out->jobs.len, sizeof *out->jobs.at, by_id);
    return last;
}

static void carry_out(struct world *w, const struct sched_decisions *d, int64_t now_ms) {
    for (uint32_t i = 0; i < d->starts.len; i++)
        world_job_start_in(w, d->starts.at[i].job, d->starts.at[i].partition, d->starts.at[i].alloc, now_ms);
    for (uint32_t i = 0; i < d->preempts.len; i++)
        world_job_preempt(w, &d->preempts.at[i]);
}

static void end_job(struct world *w, struct world_job *j, int64_t now_ms) {
    struct sched_job again = {
        .id = j->id, .request = j->request, .submit_ms = j->submit_ms, .restarts = j->restarts + 1};
    bool requeue = j->state == SCHED_JOB_ENDING && j->ending_for;
    uint32_t gave;
    cleanup_free struct sched_preemption *to = world_job_preemptions(w, j->id, &gave);
    j->request->refs++;
    world_job_end(w, again.id, now_ms);
    if (requeue) {
        world_job_add(w, &again);
        world_job_preemptions_set(w, again.id, to, gave);
    }
    world_request_unref(w, again.request);
}

// The time the job starts; INT64_MAX: never by itself; -1: not before `horizon_ms`.
static int64_t simulate(const struct world *from, uint64_t job, int64_t now_ms, const struct policy *policy, bool early,
                    int64_t *horizon_ms) {
    struct world *w = world_clone(from);
    struct ending_jobs ends = {0};
    int64_t found = -1, now = now_ms;
    unsigned steps = steps_for(w);
    while (steps-- > 0 && found < 0) {
        struct sched_decisions d;
        sched_decide(w, now, policy, &d);
        for (uint32_t i = 0; i < d.starts.len; i++)
            if (d.starts.at[i].job == job)
                found = now;
        carry_out(w, &d, now);
        int64_t wake = d.next_ms;
        sched_decisions_done(&d);
        *horizon_ms = now;
        if (found >= 0)
            break;
        int64_t at = next_ends(w, early, now, now_ms, &ends);
        if (at == INT64_MAX && wake == INT64_MAX)
            found = INT64_MAX;
        now = at < wake ? at : wake;
        for (uint32_t i = 0; i < ends.jobs.len && at <= wake; i++)
            end_job(w, ends.jobs.at[i], now);
    }
    vec_done(&ends.jobs);
    world_free(w);
    return found;
}

struct explain_band sched_forecast_start(struct world *w, uint64_t job, int64_t now_ms, const struct policy *policy) {
    const struct world_job *j = world_find(w, job);
    if (j->queued && w->jobs.running.len + w->jobs.ready > PLAYED_MAX)
        return sched_estimate_start(w, j, now_ms, policy);
    int64_t late_horizon, early_horizon;
    int64_t late = simulate(w, job, now_ms, policy, false, &late_horizon);
    if (late == now_ms)
        return (struct explain_band){EXPLAIN_NOW, now_ms, now_ms};
    int64_t early = simulate(w, job, now_ms, policy, true, &early_horizon);
    if (early < 0)
        return (struct explain_band){EXPLAIN_LATER, early_horizon, late > 0 ? late : INT64_MAX};
    if (late == INT64_MAX || early == INT64_MAX)
        return (struct explain_band){EXPLAIN_UNKNOWN, early < INT64_MAX ? early : 0, INT64_MAX};
    if (late < 0)
        return (struct explain_band){EXPLAIN_LATER, early, INT64_MAX};
    return (struct explain_band){EXPLAIN_FORECAST, early < late ? early : late, late > early ? late : early};
}
