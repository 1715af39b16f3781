// GET /v1/jobs/{job}/extension: what another time limit of a running job does to those that wait, by the scheduler
// itself, and whether the rules allow it. Nothing is changed; POST /v1/jobs/update does that.
#include <errno.h>

#include "answers_portal.h"
#include "api.h"
#include "job_sight.h"
#include "sched/explain.h"

enum { MOVED_MAX = 100 };

static const char *label_of(const struct job_view *v, struct arena *a) {
    if (v->job)
        return arena_printf(a, "%llu+%u", (unsigned long long)v->job, v->worker);
    if (v->array_id)
        return arena_printf(a, "%llu_%u", (unsigned long long)v->array_id, v->array_index);
    return arena_printf(a, "%llu", (unsigned long long)v->id);
}

// False: the asker may not even know that there is such a job.
static bool fill_delay(struct api_call *call, const struct sched_delay *d, struct answer_delay *out) {
    struct job_view v;
    *out = (struct answer_delay){.before_ms = d->before_ms};
    if (d->after_ms != INT64_MAX) {
        out->after_ms = d->after_ms;
        schema_give(&answer_delay_schema, out, &out->after_ms);
    }
    if (!core_view(call->controller->core, d->job, &v))
        return false;
    enum job_sight sight = job_sight(call->controller, &call->actor, v.user, v.project);
    out->job = label_of(&v, &call->arena);
    out->project = v.project;
    if (sight >= SIGHT_PUBLIC) {
        out->name = v.name;
        out->user = v.user;
    }
    return sight > SIGHT_NONE;
}

static void fill_delays(struct api_call *call, const struct sched_delays *d, struct answer_extension *out) {
    uint32_t shown = d->moved.len < MOVED_MAX ? d->moved.len : MOVED_MAX;
    out->complete = d->complete;
    for (uint32_t i = 0; i < d->moved.len; i++) {
        bool later = d->moved.at[i].after_ms > d->moved.at[i].before_ms;
        out->delayed += later;
        out->earlier += !later;
    }
    out->moved.at = arena_alloc(&call->arena, (shown + 1) * sizeof *out->moved.at);
    for (uint32_t i = 0; i < shown; i++)
        out->moved.len += fill_delay(call, &d->moved.at[i], &out->moved.at[out->moved.len]);
}

// Why the actor may not set the limit; NULL: they may.
static const char *refusal(struct api_call *call, uint32_t limit_s) {
    struct spec change = {.time_limit_s = limit_s};
    struct error e = {0};
    schema_give(&spec_schema, &change, &change.time_limit_s);
    struct command command = {COMMAND_UPDATE,
                              &(struct command_update){.id = call->job, .change = &change, .dry_run = true}};
    int r = core_command(call->controller->core, &call->actor, NULL, &command, controller_now_ms(), NULL, &e);
    return r < 0 ? arena_strdup(&call->arena, e.text) : NULL;
}

void api_extension(struct api_call *call) {
    struct core *core = call->controller->core;
    uint32_t limit_s = ((const struct query_extension *)call->query)->time_limit_s;
    int64_t now_ms = controller_now_ms();
    struct error e = {0};
    struct job_view v;
    if (!core_view(core, call->job, &v) || job_sight(call->controller, &call->actor, v.user, v.project) == SIGHT_NONE) {
        api_no_job(call->req, call->job);
        return;
    }
    if (!job_state_holds_resources(v.state)) {
        error_set(&e, EBUSY, "job %llu does not run: its time limit delays nobody yet",
                  (unsigned long long)call->job);
        api_fail(call->req, &e);
        return;
    }
    if (!query_throttle_begin(call))
        return;
    struct sched_delays delays;
    int64_t paused_ms = core_view_paused_ms(&v, now_ms), limit_ms = (int64_t)limit_s * 1000;
    sched_extension(core_world(core), call->job, limit_ms + v.suspended_ms, now_ms, core_policy(core),
                    &delays);
    query_throttle_end(call->controller);
    struct answer_extension out = {.time_limit_s = limit_s,
                                   .end_ms = v.start_ms + paused_ms + limit_ms,
                                   .refused = refusal(call, limit_s)};
    fill_delays(call, &delays, &out);
    vec_done(&delays.moved);
    api_answer(call, &answer_extension_schema, &out);
}
