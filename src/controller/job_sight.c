// Decides who sees what of a job, by whose it is, its project and the setting others_jobs.
#include "job_sight.h"

#include <string.h>

#include "api.h"
#include "base/text.h"

enum job_sight job_sight(const struct controller *c, const struct actor *viewer, const char *user,
                         const char *project) {
    static const enum job_sight of_others[] = {[OTHERS_JOBS_VISIBLE] = SIGHT_PUBLIC,
                                               [OTHERS_JOBS_MASKED] = SIGHT_MASKED,
                                               [OTHERS_JOBS_HIDDEN] = SIGHT_NONE};
    if (core_may_see(c->core, viewer, user, project))
        return SIGHT_ALL;
    if (core_may_know(c->core, viewer, user, project))
        return SIGHT_PUBLIC;
    return of_others[c->config.cluster.others_jobs];
}

enum job_sight job_sight_of(struct controller *c, const struct actor *viewer, uint64_t id) {
    cleanup_arena struct arena a = {0};
    struct job_record r;
    const char *user, *project;
    bool live;
    if (core_job_owner(c->core, id, &user, &project))
        return job_sight(c, viewer, user, project);
    return api_record(c, id, &a, &r, &live) < 0 ? SIGHT_NONE
                                                : job_sight(c, viewer, r.spec->user, r.spec->project);
}

void job_sight_mask(struct answer_job *job) {
    job->name = job->user = job->by = NULL;
    job->comment = job->workdir = job->output = job->error = job->command_text = NULL;
    job->dependency = job->features = job->container = job->warning = NULL;
    job->steps = "[]";
    job->spec = NULL;
    job->tags.len = 0;
    job->uid = 0;
    schema_unmark(&answer_job_schema, job, &job->uid);
}

// Why a job could not be started names folders and commands after the first colon; why it ended may name people.
const char *job_sight_reason(enum job_sight sight, struct arena *a, const char *reason) {
    const char *colon = reason ? strstr(reason, ": ") : NULL;
    if (sight == SIGHT_ALL || !reason)
        return reason;
    if (sight != SIGHT_PUBLIC)
        return schema_word_find(job_reason_words, reason) >= 0 ? reason : NULL;
    return colon ? arena_strndup(a, reason, (size_t)(colon - reason)) : reason;
}

void job_sight_name(const struct controller *c, const struct actor *viewer, const struct job_view *v,
                    struct buf *out) {
    enum job_sight sight = job_sight(c, viewer, v->user, v->project);
    if (v->job)
        buf_addf(out, "%llu+%u", (unsigned long long)v->job, v->worker);
    else if (v->array_id)
        buf_addf(out, "%llu_%u", (unsigned long long)v->array_id, v->array_index);
    else
        buf_addf(out, "%llu", (unsigned long long)v->id);
    if (sight >= SIGHT_PUBLIC)
        buf_addf(out, " %s (%s, %s)", v->name, v->user, v->project);
    else if (sight == SIGHT_MASKED)
        buf_addf(out, " (%s)", v->project);
}
