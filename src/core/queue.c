// The queue as users see it: why a pending job does not start, and the commands that change that.
#include <errno.h>
#include <signal.h>

#include "base/text.h"
#include "state.h"
#include "model/name.h"

static enum sched_hold hold_of(const struct core *c, const struct core_job *j) {
    if (core_is_worker(j) && (core_group_job(c, j)->state == JOB_SUSPENDED || core_texts_lost(c, j)))
        return SCHED_HOLD_OTHER;
    return j->flags & HELD_ADMIN         ? SCHED_HOLD_ADMIN
           : j->flags & HELD_USER        ? SCHED_HOLD_USER
           : j->flags & WAITS_DEPENDENCY ? SCHED_HOLD_DEPENDENCY
           : j->flags & WAITS_ARRAY      ? SCHED_HOLD_ARRAY
                                         : SCHED_HOLD_NONE;
}

void core_job_to_world(struct core *c, struct core_job *j) {
    const struct world_request *request = j->sub->group ? core_group_queued_request(c, j) : j->sub->request;
    if (!request)
        return;
    struct sched_job s = {.id = j->id,
                          .request = request,
                          .group = core_is_optional(j) ? j->sub->group->id : 0,
                          .submit_ms = j->sub->submit_ms,
                          .begin_ms = j->begin_ms,
                          .hold = hold_of(c, j),
                          .restarts = j->attempt};
    world_job_add(c->world, &s);
    if (core_is_worker(j))
        core_worker_rank_to_world(c, core_worker_of(j));
}

void core_job_hold_changed(struct core *c, struct core_job *j) {
    if (j->state == JOB_PENDING)
        world_job_hold(c->world, j->id, hold_of(c, j));
}

enum job_reason core_reason_of(const struct core *c, const struct core_job *j) {
    const struct core_job *job = core_is_worker(j) ? core_group_job(c, j) : NULL;
    if (job && job->state == JOB_PENDING)
        j = job;  // its workers wait for the same
    // From what a person must change first to what the scheduler decides: a held job does not wait for resources,
    // whatever else is true of it.
    if (j->flags & HELD_ADMIN)
        return REASON_HELD_ADMIN;
    if (j->flags & HELD_USER)
        return REASON_HELD_USER;
    if (j->state != JOB_PENDING)
        return REASON_NONE;
    if (core_texts_lost(c, j))
        return REASON_SCRIPT_LOST;
    if (j->flags & DEPENDENCY_NEVER)
        return REASON_DEPENDENCY_NEVER;
    if (j->flags & WAITS_DEPENDENCY)
        return REASON_DEPENDENCY;
    if (j->flags & WAITS_ARRAY)
        return REASON_ARRAY_LIMIT;
    switch (sched_job_reason(c->world, j->id)) {
    case SCHED_REASON_BEGIN_TIME: return REASON_BEGIN_TIME;
    case SCHED_REASON_PROJECT_GONE: return REASON_PROJECT_GONE;
    case SCHED_REASON_PROJECT_LIMIT:
    case SCHED_REASON_QUOTA: return REASON_QUOTA;
    case SCHED_REASON_PARTITION: return REASON_PARTITION_DOWN;
    case SCHED_REASON_TIME_LIMIT: return REASON_PARTITION;
    case SCHED_REASON_QOS_GONE: return REASON_QOS_GONE;
    case SCHED_REASON_QOS_LIMIT: return REASON_QOS_LIMIT;
    case SCHED_REASON_LICENSES: return REASON_LICENSES;
    case SCHED_REASON_NODES: return REASON_NODES_DOWN;
    case SCHED_REASON_RESERVATION: return REASON_RESERVATION;
    case SCHED_REASON_RESERVATION_GONE: return REASON_RESERVATION_GONE;
    case SCHED_REASON_PRIORITY: return REASON_PRIORITY;
    case SCHED_REASON_RESOURCES:
    case SCHED_REASON_PREEMPTING: return REASON_RESOURCES;
    default: return REASON_NONE;
    }
}

int core_need_admin(const struct actor *actor, const char *what, struct error *e) {
    if (actor->admin)
        return 0;
    return error_set(e, EPERM, "only an administrator may %s; you are %s", what, actor->user);
}

int core_need_operator(const struct actor *actor, const char *what, struct error *e) {
    if (actor->admin || actor->operates)
        return 0;
    return error_set(e, EPERM, "only an operator or administrator may %s; you are %s", what, actor->user);
}

static bool in_list(const char *const *at, uint32_t len, const char *user) {
    for (uint32_t i = 0; i < len; i++)
        if (streq(at[i], user))
            return true;
    return false;
}

static const struct project *project_of(const struct core *c, const char *name) {
    const struct entity_entry *t = core_find_entity(c, ENTITY_PROJECT, name);
    return t ? t->value : NULL;
}

bool core_leads(const struct core *c, const char *user, const char *project) {
    const struct project *p = project_of(c, project);
    return p && in_list(p->leads.at, p->leads.len, user);
}

bool core_is_named_member(const struct core *c, const char *user, const char *project) {
    const struct project *p = project_of(c, project);
    return p && (in_list(p->members.at, p->members.len, user) || core_grants_project(c, user, project));
}

bool core_may_know(const struct core *c, const struct actor *actor, const char *user, const char *project) {
    if (actor->project && !streq(actor->project, project))
        return false;
    return actor->admin || actor->operates || streq(actor->user, user) ||
           core_leads(c, actor->user, project) || core_is_named_member(c, actor->user, project);
}

// Whose jobs one may cancel, hold and so on; not: whose scripts one may read.
static bool may_act(const struct core *c, const struct actor *actor, const struct submission *s) {
    return (!actor->project || streq(actor->project, s->project)) &&
           (actor->admin || actor->operates || streq(actor->user, s->user) ||
            core_leads(c, actor->user, s->project));
}

int core_need_job(const struct core *c, const struct actor *actor, uint64_t id, struct core_job **out,
                  struct error *e) {
    struct core_job *j = core_find_job(c, id);
    if (!j) {
        const struct core_outcome *o = core_outcome_find(c, id);
        return error_set(e, o ? EALREADY : ENOENT, o ? "job %llu has already ended" : "there is no job %llu",
                         (unsigned long long)id);
    }
    if (!may_act(c, actor, j->sub))
        return error_set(
            e, EPERM,
            "job %llu is another user's; only they, a lead of its project or an operator may do that",
            (unsigned long long)id);
    *out = j;
    return 0;
}

bool core_job_owner(const struct core *c, uint64_t id, const char **user, const char **project) {
    const struct core_job *j = core_find_job(c, id);
    if (!j)
        return false;
    *user = j->sub->user;
    *project = j->sub->project;
    return true;
}

bool core_may_see(const struct core *c, const struct actor *actor, const char *user, const char *project) {
    if (actor->project && !streq(actor->project, project))
        return false;
    if (actor->admin || streq(actor->user, user))
        return true;
    const struct project *p = project_of(c, project);
    return p && p->shared_logs && core_is_named_member(c, actor->user, project);
}

// The job is as it was asked to be: no event, and the sentence says so.
static int unchanged(struct error *e, uint64_t id, const char *how) {
    error_set(e, EALREADY, "job %llu %s", (unsigned long long)id, how);
    return CORE_UNCHANGED;
}

CORE_COMMAND(core_command_hold) {
    const struct command_hold *m = body;
    struct core_job *j;
    int r = core_need_job(c, actor, m->id, &j, e);
    if (r < 0)
        return r;
    if (core_is_worker(j))
        return error_set(e, EINVAL, "%llu is a worker of job %llu; hold that job, or resize it",
                         (unsigned long long)m->id, (unsigned long long)core_group_of(j)->id);
    bool own = streq(actor->user, j->sub->user);
    bool by_admin = actor->admin && (m->as == HOLD_ADMIN || (m->as == HOLD_BY_OWNER && !own));
    if (m->as == HOLD_USER && j->flags & HELD_ADMIN &&
        (r = core_command_release(c, actor, &(struct command_job){m->id}, now_ms, e)) < 0)
        return r;
    if (j->flags & (by_admin ? HELD_ADMIN : HELD_USER))
        return unchanged(e, m->id, "is held already");
    struct event_job b = {.id = m->id, .by = actor->user, .by_admin = by_admin};
    core_emit(c, now_ms, EVENT_JOB_HELD, &b);
    return 0;
}

CORE_COMMAND(core_command_release) {
    const struct command_job *m = body;
    struct core_job *j;
    int r = core_need_job(c, actor, m->id, &j, e);
    if (r < 0)
        return r;
    if (j->flags & HELD_ADMIN && !actor->admin)
        return error_set(e, EPERM, "job %llu is held by an administrator, who must release it",
                         (unsigned long long)m->id);
    if (!(j->flags & (HELD_USER | HELD_ADMIN)))
        return unchanged(e, m->id, "was not held");
    struct event_job b = {.id = m->id, .by = actor->user, .by_admin = actor->admin};
    core_emit(c, now_ms, EVENT_JOB_RELEASED, &b);
    return 0;
}

static int send_signal(struct core *c, struct core_job *j, const struct command_cancel *o, struct error *e) {
    const struct group *g = core_is_group(j) ? j->sub->group : NULL;
    for (uint32_t i = 0; g && i < g->workers.len; i++) {
        struct core_job *w = core_find_job(c, g->workers.at[i].id);
        if (w && w->run)
            send_signal(c, w, o, e);
    }
    if (!j->run)
        return error_set(e, EBUSY, "job %llu is %s; only a running job can be sent a signal", (unsigned long long)j->id,
                         job_state_words[j->state]);
    cleanup_arena struct arena a = {0};
    struct spec s;
    core_spec_of(j, &a, &s);
    for (uint32_t i = 0; i < j->run->part_count; i++) {
        struct message_signal m = {.id = core_agent_job(j),
                                   .attempt = j->attempt,
                                   .signal = o->signal,
                                   .batch_only = o->batch_only,
                                   .step = o->step,
                                   .steps_only = o->steps_only && s.launch == LAUNCH_BATCH};
        struct message_kill k = {
            .id = core_agent_job(j), .attempt = j->attempt, .step = o->step, .cause = END_CANCEL, .signal = o->signal};
        if (j->run->parts[i].ended || (i && o->batch_only))
            continue;
        // Killing a step ends it and is repeated until it has; any other signal is sent once.
        if (o->step && (!o->signal || o->signal == SIGKILL))
            core_effect_send(c, j->run->parts[i].node->name, MESSAGE_KILL, &k);
        else
            core_effect_send(c, j->run->parts[i].node->name, MESSAGE_SIGNAL, &m);
    }
    return 0;
}

CORE_COMMAND(core_command_cancel) {
    const struct command_cancel *o = body;
    struct core_job *j;
    int r = core_need_job(c, actor, o->id, &j, e);
    if (r < 0)
        return r;
    if (o->reason && (r = name_line_check("reason", o->reason, COMMENT_MAX, e)) < 0)
        return r;
    struct core_step_view step;
    if (o->step && core_step_view(c, o->id, o->step, NULL, &step))
        return step.ended ? 0 : core_step_signal(c, actor, o->id, o->step, o->signal ? o->signal : SIGTERM, !o->signal,
                                                 now_ms, e);
    // A signal that leaves the end to the program is only passed on: the job's state does not change, so
    // there is no event.
    if (o->step || (o->signal && (o->signal != SIGKILL || o->batch_only)))
        return send_signal(c, j, o, e);
    struct core_job *job = core_is_worker(j) ? core_group_job(c, j) : NULL;
    // Workers of the minimum start together or not at all: none of them can leave before.
    if (!j->run && job && !job->run)
        return error_set(e, EBUSY,
                         "job %llu is pending: its workers start together; resize or cancel the job",
                         (unsigned long long)job->id);
    if (!j->run) {
        core_end_pending(c, j, JOB_CANCELLED, actor->user, o->reason, now_ms);
        if (job)
            core_group_settle(c, job, now_ms);
        return 0;
    }
    // A second cancel changes nothing unless it is harder: SIGKILL cuts the grace period short.
    if (j->run->ending && j->run->cause == END_CANCEL && o->signal != SIGKILL)
        return unchanged(e, o->id, "is being cancelled already");
    struct event_job_ending how = {.cause = END_CANCEL, .by = actor->user, .reason = o->reason};
    if (o->signal == SIGKILL)
        how.signal = SIGKILL;
    core_begin_ending(c, j, &how, now_ms);
    return 0;
}

CORE_COMMAND(core_command_requeue) {
    const struct command_requeue *m = body;
    struct core_job *j;
    int r = core_need_job(c, actor, m->id, &j, e);
    if (r < 0)
        return r;
    if (core_is_worker(j) && m->hold)
        return error_set(e, EINVAL, "%llu is a worker of job %llu; a worker cannot be held",
                         (unsigned long long)m->id, (unsigned long long)core_group_of(j)->id);
    if (!j->run)
        return m->hold ? core_command_hold(c, actor, &(struct command_hold){.id = m->id}, now_ms, e)
                       : unchanged(e, m->id, "is pending: it is in the queue already");
    if (j->run->ending)
        return error_set(e, EBUSY, "job %llu is already ending", (unsigned long long)m->id);
    if (core_texts_lost(c, j))
        return error_set(e, ENOTSUP,
                         "job %llu was adopted after a restore and its script is lost: it cannot be run again; cancel "
                         "it and submit it anew",
                         (unsigned long long)m->id);
    struct event_job_ending how = {.cause = END_REQUEUE, .by = actor->user, .hold = m->hold};
    core_begin_ending(c, j, &how, now_ms);
    return 0;
}

static int suspend(struct core *c, const struct actor *actor, uint64_t id, bool resume, int64_t now_ms,
                   struct error *e) {
    struct core_job *j;
    int r = core_need_job(c, actor, id, &j, e);
    if (r < 0)
        return r;
    if (j->state == (resume ? JOB_RUNNING : JOB_SUSPENDED))
        return unchanged(e, id, resume ? "was not suspended" : "is suspended already");
    if (j->state != (resume ? JOB_SUSPENDED : JOB_RUNNING))
        return error_set(e, EBUSY, "job %llu is %s; only a %s job can be %s", (unsigned long long)id,
                         job_state_words[j->state], resume ? "suspended" : "running",
                         resume ? "resumed" : "suspended");
    struct event_job b = {.id = id, .by = actor->user, .by_admin = actor->admin};
    core_emit(c, now_ms, resume ? EVENT_JOB_RESUMED : EVENT_JOB_SUSPENDED, &b);
    core_each_part(c, j, core_send_suspend);
    return 0;
}

CORE_COMMAND(core_command_suspend) {
    return suspend(c, actor, ((const struct command_job *)body)->id, false, now_ms, e);
}

CORE_COMMAND(core_command_resume) {
    return suspend(c, actor, ((const struct command_job *)body)->id, true, now_ms, e);
}
