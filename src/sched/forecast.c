// Owns forecasts: the world is copied and played forward, once with every job running to its limit
// and once with every job ending when its user's jobs usually do. Nobody new comes in.
#include "sched/forecast.h"

#include "sched/internal.h"

enum { RATIO_UNKNOWN = 600 };  // thousandths of its limit a job uses when nothing is known of its user

static int64_t end_of(struct world *w, const struct job *j, bool early, int64_t now_ms) {
    int64_t end = job_end_ms(j);
    if (end == INT64_MAX)
        return end;
    if (early) {
        const struct user *u = user_get(&w->users, j->request->asked.project, j->request->asked.user);
        int64_t ratio = u && u->ratio_milli ? u->ratio_milli : RATIO_UNKNOWN;
        end = j->start_ms + j->limit_ms / 1000 * ratio;
    }
    return end > now_ms ? end : now_ms + 1;
}

static struct job *next_end(struct world *w, bool early, int64_t now_ms, int64_t *at_ms) {
    struct job *first = NULL;
    *at_ms = INT64_MAX;
    for (uint32_t i = 0; i < w->running.len; i++) {
        struct job *j = w->running.at[i];
        int64_t end = j->state == SCHED_JOB_ENDING ? now_ms + 1 : end_of(w, j, early, now_ms);
        if (end < *at_ms || (end == *at_ms && first && j->id < first->id)) {
            *at_ms = end;
            first = j;
        }
    }
    return first;
}

static void carry_out(struct world *w, const struct decisions *d, int64_t now_ms) {
    for (uint32_t i = 0; i < d->starts.len; i++)
        world_job_start(w, d->starts.at[i].job, d->starts.at[i].alloc, now_ms);
    for (uint32_t i = 0; i < d->preempts.len; i++)
        world_job_ending(w, d->preempts.at[i].victim, d->preempts.at[i].for_job);
}

static void end_job(struct world *w, struct job *j, int64_t now_ms) {
    struct sched_job again = {.id = j->id, .request = j->request, .submit_ms = j->submit_ms,
                              .restarts = j->restarts + 1};
    bool requeue = j->state == SCHED_JOB_ENDING && j->ending_for;
    j->request->refs++;
    world_job_end(w, again.id, now_ms);
    if (requeue)
        world_job_add(w, &again);
    world_request_unref(w, again.request);
}

// The time the job starts; INT64_MAX: never by itself; -1: not within the steps.
static int64_t play(const struct world *from, uint64_t job, int64_t now_ms, const struct policy *policy, bool early) {
    struct world *w = world_clone(from);
    int64_t found = -1, now = now_ms;
    for (unsigned step = 0; step < WHEN_STEPS_MAX && found < 0; step++) {
        struct decisions d;
        sched_decide(w, now, policy, &d);
        for (uint32_t i = 0; i < d.starts.len; i++)
            if (d.starts.at[i].job == job)
                found = now;
        carry_out(w, &d, now);
        int64_t wake = d.next_ms, at;
        decisions_done(&d);
        struct job *j = next_end(w, early, now, &at);
        if (found >= 0)
            break;
        if (at == INT64_MAX && wake == INT64_MAX)
            found = INT64_MAX;
        now = at < wake ? at : wake;
        if (j && at <= wake)
            end_job(w, j, now);
    }
    world_free(w);
    return found;
}

struct explain_band forecast(const struct world *w, uint64_t job, int64_t now_ms, const struct policy *policy) {
    int64_t late = play(w, job, now_ms, policy, false);
    if (late == now_ms)
        return (struct explain_band){EXPLAIN_NOW, now_ms, now_ms};
    int64_t early = play(w, job, now_ms, policy, true);
    if (late == INT64_MAX || early == INT64_MAX)
        return (struct explain_band){EXPLAIN_UNKNOWN, early > 0 && early < INT64_MAX ? early : 0, INT64_MAX};
    if (late < 0 || early < 0)
        return (struct explain_band){EXPLAIN_LATER, early > 0 ? early : 0, late > 0 ? late : INT64_MAX};
    return (struct explain_band){EXPLAIN_FORECAST, early < late ? early : late, late > early ? late : early};
}
