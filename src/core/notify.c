// Decides which events somebody wants to hear of (the job's `notify`), and warns of time limits that come near. A
// notice leaves with the other effects, after the commit; who sends it is the controller's business.
#include "model/notify.h"

#include <stdio.h>

#include "state.h"

enum { WARNING_INTERVAL_MS = 1000 };

// Without array_tasks an array counts as a whole: it begins with its first element and ends with its last.
static bool counts_for_array(const struct core_job *j, const struct event *e, struct notice *out) {
    const struct array *a = j->sub->array;
    if (!a || j->sub->notify & NOTIFY_ARRAY_TASKS)
        return true;
    out->array_count = a->count;
    if (e->type == EVENT_JOB_STARTED)
        return a->begun == 0;
    if (e->type != EVENT_JOB_ENDED || a->ended + 1 < a->count)
        return false;
    out->array_ok = a->ended_ok + (((const struct event_job_ended *)e->body)->state == JOB_COMPLETED);
    return true;
}

static void push_notice(struct core *c, const struct notice *n) {
    struct effect effect = {.type = EFFECT_NOTIFY, .job = n->job, .offset = c->outbox.notices.len};
    vec_push(&c->outbox.notices, *n);
    vec_push(&c->outbox.effects, effect);
}

static void alert_notice(struct core *c, uint64_t seq, const struct event_alert *a) {
    struct notice n = {.seq = seq, .type = EVENT_ALERT_RAISED, .value = a->value};
    snprintf(n.rule, sizeof n.rule, "%s", a->rule);
    snprintf(n.subject, sizeof n.subject, "%s", a->subject);
    push_notice(c, &n);
}

// For a controller that is started again before its notices were delivered: whether an element was the first or the
// last of its array cannot be seen any more when it reads the journal.
static void note_in_event(const struct event *e, const struct notice *n, bool first) {
    if (e->type == EVENT_JOB_STARTED)
        ((struct event_job_started *)e->body)->first = first;
    if (e->type == EVENT_JOB_ENDED) {
        struct event_job_ended *b = e->body;
        b->array_elements = n->array_count;
        b->array_completed = n->array_ok;
    }
}

// Called before the event is applied, since afterwards a job that has ended is gone, and before it is encoded.
void core_notice(struct core *c, uint64_t seq, const struct event *e) {
    if (e->type == EVENT_ALERT_RAISED)
        alert_notice(c, seq, e->body);
    if (e->type != EVENT_JOB_STARTED && e->type != EVENT_JOB_ENDED && e->type != EVENT_JOB_REQUEUED &&
        e->type != EVENT_JOB_TIME_WARNING)
        return;
    const struct core_job *j = core_find_job(c, event_job_id(e));
    struct notice n = {.seq = seq, .type = e->type};
    bool worker = j && core_is_worker(j);
    note_in_event(e, &(struct notice){0}, false);
    if (worker) {  // its job begins with its first worker; other events of workers are not the job's
        j = core_group_job(c, j);
        if (e->type != EVENT_JOB_STARTED)
            return;
    }
    if (!j || !j->sub->notify || (e->type == EVENT_JOB_STARTED && j->state != JOB_STARTING) ||
        !counts_for_array(j, e, &n))
        return;
    n.job = j->id;
    note_in_event(e, &n, worker || n.array_count);
    if (e->type == EVENT_JOB_TIME_WARNING)
        n.percent = ((const struct event_job_time_warning *)e->body)->percent;
    push_notice(c, &n);
}

bool core_wants_time_warning(const struct submission *s) {
    return s->notify & NOTIFY_TIME_WARNINGS;
}

static void warn_if_due(struct core *c, struct core_job *j, int64_t now_ms) {
    uint32_t percent;
    if (j->state != JOB_RUNNING || !j->run || !j->run->time_limit_s || j->run->ending ||
        !(percent = spec_notify_time_percent(j->sub->notify, j->run->warned_percent)))
        return;
    int64_t used_ms = now_ms - j->start_ms - core_run_paused_ms(j, now_ms);
    if (used_ms >= (int64_t)j->run->time_limit_s * 10 * percent) {
        struct event_job_time_warning b = {.id = j->id, .attempt = j->attempt, .percent = percent};
        core_emit(c, now_ms, EVENT_JOB_TIME_WARNING, &b);
    }
}

static void warn_of(struct core *c, struct core_job *j, int64_t now_ms) {
    warn_if_due(c, core_is_worker(j) ? core_group_job(c, j) : j, now_ms);
}

// Looks at the running jobs once a second, and only while some job asks for a warning.
void core_warn_of_time_limits(struct core *c, int64_t now_ms) {
    c->next_warning_ms = now_ms + WARNING_INTERVAL_MS;
    if (!core_feature(c, FEATURE_TIME_WARNINGS))
        return;
    for (uint32_t i = 0; i < c->node_list.len; i++)
        for (uint32_t k = 0; k < c->node_list.at[i]->jobs.len; k++)
            if (c->node_list.at[i]->jobs.at[k]->sub->notify & NOTIFY_TIME_WARNINGS)
                warn_of(c, c->node_list.at[i]->jobs.at[k], now_ms);
}

int core_check_notify(const struct spec *s, struct error *e) {
    uint32_t mask;
    int r = spec_notify_parse(s->notify, &mask, e);
    if (r < 0)
        return r;
    return s->notify_to ? spec_notify_targets_check(s->notify_to, e) : 0;
}
