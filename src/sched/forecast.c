// Forecasts of a start: a copy of the world is simulated twice, with every job running to its time limit, and with
// every job ending when its user's jobs usually do. No new jobs are assumed.
#include "forecast.h"

#include "base/cleanup.h"
#include "estimate.h"
#include "world_state.h"

// Of 1,000: the part of its time limit that a job is assumed to run if nothing is known of its user.
enum { RATIO_UNKNOWN = 600 };

// The larger the world, the fewer steps: questions are answered in the controller's loop.
enum { PLAYED_MAX = 1500, EXACT_MAX = 200, STEPS_LEAST = 6, WORK_MAX = 100000, TOGETHER_PART = 24 };

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

static uint32_t running(const struct world *w) {
    return w->jobs.running.len + w->optional.running.len;
}

static struct world_job *running_at(const struct world *w, uint32_t i) {
    return i < w->jobs.running.len ? w->jobs.running.at[i] : w->optional.running.at[i - w->jobs.running.len];
}

// The next end, with all jobs that end soon after it: the further away from `began_ms`, the more are taken together,
// so that a bounded number of steps reaches further. `exact`: none are.
static int64_t next_ends(struct world *w, bool early, bool exact, int64_t now_ms, int64_t began_ms,
                         struct ending_jobs *out) {
    int64_t first = INT64_MAX;
    vec_clear(&out->jobs);
    for (uint32_t i = 0; i < running(w); i++) {
        const struct world_job *j = running_at(w, i);
        int64_t end = j->state == SCHED_JOB_ENDING ? now_ms + 1 : end_of(w, j, early, now_ms);
        first = end < first ? end : first;
    }
    if (first == INT64_MAX)
        return first;
    int64_t until = exact ? first : first + (first - began_ms) / TOGETHER_PART;
    int64_t last = first;
    for (uint32_t i = 0; i < running(w); i++) {
        struct world_job *j = running_at(w, i);
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
    for (uint32_t i = 0; i < d->starts.len; i++) {
        const struct sched_start *s = &d->starts.at[i];
        world_job_start_in(w, s->job, s->partition, s->alloc, now_ms);
        if (s->limit_ms)
            world_job_limit(w, s->job, s->limit_ms);
    }
    for (uint32_t i = 0; i < d->preempts.len; i++)
        world_job_preempt(w, &d->preempts.at[i]);
    sched_promises_keep(w, d);
}

static void end_job(struct world *w, struct world_job *j, int64_t now_ms) {
    struct sched_job again = {.id = j->id,
                              .request = j->request,
                              .submit_ms = j->submit_ms,
                              .restarts = j->restarts + 1,
                              .group = j->group};
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

// What is waited for: that a job starts, that a group has a number of optional workers, or (starts) that all jobs
// have started, whose times are gathered.
struct forecast_goal {
    uint64_t job, group;
    uint32_t workers;
    struct map *starts;  // of jobs: their first start in ms, as a pointer
    uint64_t longer;     // of starts: this running job has another time limit; 0: none
    int64_t limit_ms;
    bool exact;
};

static bool is_reached(const struct world *w, const struct forecast_goal *g) {
    struct sched_job_view v;
    if (g->starts)
        return w->jobs.ready == 0;
    if (g->job)
        return world_job(w, g->job, &v) && v.state != SCHED_JOB_PENDING;
    uint32_t count = 0;
    for (uint32_t i = 0; i < w->optional.running.len; i++)
        count += w->optional.running.at[i]->group == g->group &&
                 w->optional.running.at[i]->state == SCHED_JOB_RUNNING;
    return count >= g->workers;
}

static void remove_optional(struct world *w) {
    while (w->optional.running.len)
        world_job_remove(w, w->optional.running.at[w->optional.running.len - 1]->id);
    while (w->optional.queues.len) {
        const struct optional_queue *q = w->optional.queues.at[w->optional.queues.len - 1];
        world_job_remove(w, q->jobs.at[q->jobs.len - 1]->id);
    }
}

enum { HYPOTHETICAL_BASE = 0x6fffffff };

// Adds workers like those of the group until it has the number asked for; false: there is none to copy.
static bool add_workers(struct world *w, const struct forecast_goal *g) {
    const struct world_job *like = NULL;
    uint32_t have = 0;
    for (uint32_t i = 0; i < w->optional.running.len; i++)
        if (w->optional.running.at[i]->group == g->group) {
            like = w->optional.running.at[i];
            have++;
        }
    for (uint32_t i = 0; i < w->optional.queues.len; i++)
        if (w->optional.queues.at[i]->group == g->group) {
            like = w->optional.queues.at[i]->jobs.at[0];
            have += w->optional.queues.at[i]->jobs.len;
        }
    for (uint32_t i = have; like && i < g->workers; i++)
        world_job_add(w, &(struct sched_job){.id = UINT64_MAX - HYPOTHETICAL_BASE + i,
                                             .request = like->request,
                                             .submit_ms = like->submit_ms,
                                             .group = g->group});
    return like;
}

static void note_start(struct map *starts, uint64_t job, int64_t at_ms) {
    if (!map_get(starts, job))
        map_put(starts, job, (void *)(intptr_t)at_ms);
}

static void note_starts(const struct sched_decisions *d, int64_t now_ms, struct map *starts) {
    for (uint32_t i = 0; i < d->starts.len; i++)
        note_start(starts, d->starts.at[i].job, now_ms);
}

// The time the goal is reached; INT64_MAX: never by itself; -1: not before `horizon_ms`.
static int64_t simulate(const struct world *from, const struct forecast_goal *goal, int64_t now_ms,
                        const struct policy *policy, bool early, int64_t *horizon_ms) {
    struct world *w = world_clone(from);
    const struct world_job *asked = world_find(w, goal->job);
    if (goal->starts || (asked && !asked->optional))
        remove_optional(w);  // they change nothing for it
    if (goal->longer)
        world_job_limit(w, goal->longer, goal->limit_ms);
    struct ending_jobs ends = {0};
    int64_t found = goal->starts || asked || add_workers(w, goal) ? -1 : INT64_MAX, now = now_ms;
    unsigned steps = steps_for(w);
    while (steps-- > 0 && found < 0) {
        struct sched_decisions d;
        sched_decide(w, now, policy, &d);
        carry_out(w, &d, now);
        if (goal->starts)
            note_starts(&d, now, goal->starts);
        if (is_reached(w, goal))
            found = now;
        int64_t wake = d.next_ms;
        sched_decisions_done(&d);
        *horizon_ms = now;
        if (found >= 0)
            break;
        int64_t at = next_ends(w, early, goal->exact, now, now_ms, &ends);
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

int64_t sched_forecast_play(struct world *w, int64_t now_ms, int64_t until_ms, const struct policy *policy,
                            forecast_pass_fn fn, void *ctx) {
    struct ending_jobs ends = {0};
    int64_t now = now_ms;
    for (unsigned steps = steps_for(w); steps > 0; steps--) {
        struct sched_decisions d;
        sched_decide(w, now, policy, &d);
        fn(ctx, &d);
        carry_out(w, &d, now);
        int64_t wake = d.next_ms > now ? d.next_ms : now + 1;
        sched_decisions_done(&d);
        int64_t at = next_ends(w, false, false, now, now_ms, &ends);
        if ((at < wake ? at : wake) > until_ms)
            break;
        now = at < wake ? at : wake;
        for (uint32_t i = 0; i < ends.jobs.len && at <= wake; i++)
            end_job(w, ends.jobs.at[i], now);
    }
    vec_done(&ends.jobs);
    return now;
}

void sched_forecast_without_optional(struct world *w) {
    remove_optional(w);
}

static struct explain_band forecast(const struct world *w, const struct forecast_goal *goal, int64_t now_ms,
                                    const struct policy *policy) {
    int64_t late_horizon, early_horizon;
    int64_t late = simulate(w, goal, now_ms, policy, false, &late_horizon);
    if (late == now_ms)
        return (struct explain_band){EXPLAIN_NOW, now_ms, now_ms};
    int64_t early = simulate(w, goal, now_ms, policy, true, &early_horizon);
    if (early < 0)
        return (struct explain_band){EXPLAIN_LATER, early_horizon, late > 0 ? late : INT64_MAX};
    if (late == INT64_MAX || early == INT64_MAX)
        return (struct explain_band){EXPLAIN_UNKNOWN, early < INT64_MAX ? early : 0, INT64_MAX};
    if (late < 0)
        return (struct explain_band){EXPLAIN_LATER, early, INT64_MAX};
    return (struct explain_band){EXPLAIN_FORECAST, early < late ? early : late, late > early ? late : early};
}

static bool too_large(const struct world *w) {
    return running(w) + w->jobs.ready + w->optional.waiting > PLAYED_MAX;
}

struct explain_band sched_forecast_start(struct world *w, uint64_t job, int64_t now_ms,
                                         const struct policy *policy) {
    const struct world_job *j = world_find(w, job);
    if (j->optional && too_large(w))
        return (struct explain_band){EXPLAIN_LATER, now_ms, INT64_MAX};
    if (!j->optional && j->queued && w->jobs.running.len + w->jobs.ready > PLAYED_MAX)
        return sched_estimate_start(w, j, now_ms, policy);
    return forecast(w, &(struct forecast_goal){.job = job}, now_ms, policy);
}

struct explain_band sched_when_workers(struct world *w, uint64_t group, uint32_t workers, int64_t now_ms,
                                       const struct policy *policy) {
    struct forecast_goal goal = {.group = group, .workers = workers};
    bool known = false;
    for (uint32_t i = 0; i < w->optional.running.len && !known; i++)
        known = w->optional.running.at[i]->group == group;
    for (uint32_t i = 0; i < w->optional.queues.len && !known; i++)
        known = w->optional.queues.at[i]->group == group;
    if (!known)
        return (struct explain_band){EXPLAIN_NEVER, 0, 0};
    if (is_reached(w, &goal))
        return (struct explain_band){EXPLAIN_NOW, now_ms, now_ms};
    if (too_large(w) || workers > PLAYED_MAX)
        return (struct explain_band){EXPLAIN_LATER, now_ms, INT64_MAX};
    return forecast(w, &goal, now_ms, policy);
}

// --- who waits longer ---

// The starts that one pass plans: what is known of a world that is too large to be simulated.
static void note_plans(const struct world *from, const struct forecast_goal *g, int64_t now_ms,
                       const struct policy *policy) {
    struct world *w = world_clone(from);
    struct sched_decisions d;
    if (g->longer)
        world_job_limit(w, g->longer, g->limit_ms);
    sched_decide(w, now_ms, policy, &d);
    note_starts(&d, now_ms, g->starts);
    for (uint32_t i = 0; i < d.plans.len; i++)
        note_start(g->starts, d.plans.at[i].job, d.plans.at[i].start_ms);
    sched_decisions_done(&d);
    world_free(w);
}

static int by_delay(const void *pa, const void *pb) {
    const struct sched_delay *a = pa, *b = pb;
    int64_t x = a->after_ms - a->before_ms, y = b->after_ms - b->before_ms;
    return x != y ? (x < y) - (x > y) : (a->job > b->job) - (a->job < b->job);
}

// Less than what jobs that end close together are taken as is no move.
static bool is_move(int64_t before_ms, int64_t after_ms, int64_t now_ms, bool exact) {
    int64_t least = exact ? 1000 : (before_ms - now_ms) / TOGETHER_PART + 1000;
    return after_ms - before_ms >= least || before_ms - after_ms >= least;
}

static void compare_starts(const struct map *before, const struct map *after, int64_t now_ms, bool exact,
                           struct sched_delays *out) {
    size_t it = 0;
    uint64_t job;
    void *value;
    while (map_next(before, &it, &job, &value)) {
        void *other = map_get(after, job);
        int64_t before_ms = (int64_t)(intptr_t)value, after_ms = other ? (int64_t)(intptr_t)other : INT64_MAX;
        if (is_move(before_ms, after_ms, now_ms, exact))
            vec_push(&out->moved, ((struct sched_delay){job, before_ms, after_ms}));
    }
    if (out->moved.len)
        qsort(out->moved.at, out->moved.len, sizeof *out->moved.at, by_delay);
}

void sched_extension(struct world *w, uint64_t job, int64_t limit_ms, int64_t now_ms,
                     const struct policy *policy, struct sched_delays *out) {
    struct map before = {0}, after = {0};
    uint32_t jobs = w->jobs.running.len + w->jobs.ready;
    bool exact = jobs <= EXACT_MAX, planned = jobs > PLAYED_MAX;
    struct forecast_goal goals[] = {{.starts = &before, .exact = exact},
                                    {.starts = &after, .exact = exact, .longer = job, .limit_ms = limit_ms}};
    *out = (struct sched_delays){.complete = !planned};
    for (int i = 0; i < 2; i++) {
        int64_t horizon_ms;
        if (planned)
            note_plans(w, &goals[i], now_ms, policy);
        else
            out->complete &= simulate(w, &goals[i], now_ms, policy, false, &horizon_ms) != -1;
    }
    compare_starts(&before, &after, now_ms, exact || planned, out);
    map_done(&before);
    map_done(&after);
}
