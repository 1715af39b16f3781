// Reports of agents: a part of a job has started or ended; from that the end of the job, or its requeue. A report
// about any but the current attempt is stale: it is acknowledged, so that the agent forgets it, and changes
// nothing.
#include <assert.h>
#include <signal.h>
#include <stdio.h>

#include "base/text.h"
#include "model/reason.h"
#include "state.h"

enum { REASON_TEXT_MAX = 512, CPU_LIST_MAX = 2048 };

struct run_part *core_part_on(struct core_job *j, const char *node) {
    for (uint32_t i = 0; j->run && i < j->run->part_count; i++)
        if (streq(j->run->parts[i].node->name, node))
            return &j->run->parts[i];
    return NULL;
}

struct run_part *core_reported_part(struct core *c, const char *node, uint64_t id, uint32_t attempt,
                                    struct core_job **j) {
    const struct node_entry *n = core_find_node(c, node);
    *j = core_find_job(c, id);
    struct run_part *p = *j && (*j)->attempt == attempt && core_agent_job(*j) == id ? core_part_on(*j, node) : NULL;
    for (uint32_t i = 0; !p && n && i < n->jobs.len; i++) {  // one that has another number there
        *j = n->jobs.at[i];
        if ((*j)->run->agent_id == id && (*j)->attempt == attempt)
            p = core_part_on(*j, node);
    }
    return p && !p->ended ? p : NULL;
}

bool core_runs_on(const struct core *c, uint64_t id, uint32_t attempt, const char *node) {
    struct core_job *j = core_find_job(c, id);
    return j && j->attempt == attempt && core_part_on(j, node);
}

// The list comes from an agent and is shown at terminals: only digits, commas and dashes.
static bool cpu_list(const char *text) {
    size_t len = text ? strlen(text) : 0;
    return len && len <= CPU_LIST_MAX && strspn(text, "0123456789,-") == len;
}

void core_agent_started(struct core *c, const char *node, const struct message_started *m, int64_t now_ms) {
    struct core_job *j;
    struct run_part *p = core_reported_part(c, node, m->id, m->attempt, &j);
    if (!p || p->started)
        return;
    struct event_job_started b = {.id = j->id, .attempt = m->attempt, .node = p->node->name,
                                  .cpu_ids = cpu_list(m->cpu_ids) ? m->cpu_ids : NULL};
    core_emit(c, now_ms, EVENT_JOB_STARTED, &b);
    if (j->state == JOB_SUSPENDED)  // by way of another node's part
        core_send_suspend(c, j, p);
    core_steps_part_started(c, j, b.node);
    core_node_launch_worked(c, p->node, now_ms);
}

void core_send_kill(struct core *c, const struct core_job *j, const struct run_part *p) {
    cleanup_arena struct arena a = {0};
    struct spec s = {0};
    if (j->run->cause == END_PREEMPT && p == &j->run->parts[0])
        core_spec_of(j, &a, &s);  // its work is saved on the first node, where the batch script runs
    struct message_kill m = {.id = core_agent_job(j), .attempt = j->attempt, .cause = j->run->cause,
                             .reason = j->run->reason, .signal = j->run->signal, .grace_s = j->run->grace_s,
                             .checkpoint = s.checkpoint, .epoch = j->run->epoch};
    core_effect_send(c, p->node->name, MESSAGE_KILL, &m);
}

void core_send_time_limit(struct core *c, const struct core_job *j, const struct run_part *p) {
    struct message_time_limit m = {
        .id = core_agent_job(j), .attempt = j->attempt, .time_limit_s = j->run->time_limit_s};
    core_effect_send(c, p->node->name, MESSAGE_TIME_LIMIT, &m);
}

void core_send_suspend(struct core *c, const struct core_job *j, const struct run_part *p) {
    struct message_suspend m = {
        .id = core_agent_job(j), .attempt = j->attempt, .resume = j->state != JOB_SUSPENDED};
    core_effect_send(c, p->node->name, MESSAGE_SUSPEND, &m);
}

void core_each_part(struct core *c, const struct core_job *j,
                    void (*send)(struct core *c, const struct core_job *j, const struct run_part *p)) {
    const struct group *g = core_is_group(j) ? j->sub->group : NULL;
    for (uint32_t i = 0; j->run && i < j->run->part_count; i++)
        if (!j->run->parts[i].ended)
            send(c, j, &j->run->parts[i]);
    for (uint32_t i = 0; g && i < g->workers.len; i++) {
        const struct core_job *w = core_worker_job(c, &g->workers.at[i]);
        if (w)
            core_each_part(c, w, send);
    }
}

static uint32_t grace_of(const struct core *c, const struct core_job *j, const struct event_job_ending *how) {
    cleanup_arena struct arena a = {0};
    struct spec s;
    if (how->signal == SIGKILL)
        return 0;
    if (how->grace_s)
        return how->grace_s;
    core_spec_of(j, &a, &s);
    return s.grace_s ? s.grace_s : c->config.grace_s;
}

void core_begin_ending(struct core *c, struct core_job *j, const struct event_job_ending *how, int64_t now_ms) {
    struct event_job_ending b = *how;
    b.id = j->id;
    b.attempt = j->attempt;
    b.grace_s = grace_of(c, j, how);
    core_emit(c, now_ms, EVENT_JOB_ENDING, &b);
    core_each_part(c, j, core_send_kill);
}

void core_end_pending(struct core *c, struct core_job *j, enum job_state state, const char *by, const char *reason,
                 int64_t now_ms) {
    struct event_job_ended b = {.id = j->id, .attempt = j->attempt, .state = state, .by = by, .reason = reason};
    if (!core_is_worker(j) || j->attempt)  // a worker that never ran has no place in history
        core_finished_row(c, j, &b, now_ms);
    core_emit(c, now_ms, EVENT_JOB_ENDED, &b);
}

enum job_state core_part_state(const struct run_part *p) {
    switch (p->cause) {
    case END_CANCEL: return JOB_CANCELLED;
    case END_TIMEOUT: return JOB_TIMEOUT;
    case END_OOM: return JOB_OUT_OF_MEMORY;
    case END_NODE_FAIL: return JOB_NODE_FAIL;
    case END_PREEMPT: return JOB_PREEMPTED;
    case END_DEADLINE: return JOB_DEADLINE;
    case END_IDLE: return JOB_COMPLETED;
    default: return p->cause == END_EXIT && !p->exit_code && !p->exit_signal ? JOB_COMPLETED : JOB_FAILED;
    }
}

// As a shell reports it: 128 + signal.
static uint32_t exit_status(const struct run_part *p) {
    return p->exit_signal ? 128 + p->exit_signal : (uint32_t)p->exit_code;
}

// The part whose end becomes the job's: one on a lost node; else the batch script's (the first part) if the others
// were ended because of it; else the first that failed, of those that exited by themselves the highest status.
static const struct run_part *telling_part(const struct core_run *r) {
    const struct run_part *bad = NULL;
    for (uint32_t i = 0; i < r->part_count; i++) {
        const struct run_part *p = &r->parts[i];
        if (p->cause == END_NODE_FAIL)
            return p;
        if (core_part_state(p) != JOB_COMPLETED &&
            (!bad || (!r->ending && bad->cause == END_EXIT && p->cause == END_EXIT &&
                      exit_status(p) > exit_status(bad))))
            bad = p;
    }
    // The others were ended because the first part had: their end is not the job's.
    if (r->ending && r->cause == END_EXIT && core_part_state(&r->parts[0]) == JOB_COMPLETED)
        return &r->parts[0];
    return bad ? bad : &r->parts[0];
}

// A cancel or requeue that was acknowledged holds also when the node is lost meanwhile, or when the agent ended
// the attempt for an earlier reason.
static enum end_cause cause_for(const struct core_run *r, const struct run_part *p) {
    bool promised = r->ending && (r->cause == END_CANCEL || r->cause == END_REQUEUE);
    return promised && (p->cause == END_NODE_FAIL || p->cause == END_PREEMPT || p->cause == END_REQUEUE)
               ? r->cause
               : p->cause;
}

// Its node could not launch it and nothing of it ran anywhere: it is as if it had never been placed.
static bool never_ran(const struct core_run *r, const struct run_part *p) {
    for (uint32_t i = 0; i < r->part_count; i++)
        if (r->parts[i].started)
            return false;
    return p->launch_failed;
}

static bool goes_back(const struct core *c, const struct core_job *j, enum end_cause cause, bool unharmed) {
    if (core_texts_lost(c, j))
        return false;
    return cause == END_REQUEUE ||
           ((j->sub->requeue || unharmed) && (cause == END_NODE_FAIL || cause == END_PREEMPT));
}

// Its program failed by itself, and the job asked to be run again then.
static bool retry(struct core *c, struct core_job *j, const struct run_part *p, int64_t now_ms) {
    cleanup_arena struct arena a = {0};
    struct spec s;
    char reason[120];
    if ((p->cause != END_EXIT && p->cause != END_UNHEALTHY) || core_part_state(p) != JOB_FAILED ||
        (j->run->ending && j->run->cause != END_EXIT))
        return false;
    core_spec_of(j, &a, &s);
    if (j->retried >= s.retries)
        return false;
    if (p->cause == END_UNHEALTHY)
        REASON(reason, RETRY_UNHEALTHY, SAY_NUMBER(j->retried + 1u), SAY_NUMBER(s.retries));
    else if (p->exit_signal)
        REASON(reason, RETRY_SIGNAL, SAY_NUMBER(p->exit_signal), SAY_NUMBER(j->retried + 1u), SAY_NUMBER(s.retries));
    else
        REASON(reason, RETRY_STATUS, SAY_NUMBER((uint32_t)p->exit_code), SAY_NUMBER(j->retried + 1u),
               SAY_NUMBER(s.retries));
    struct event_job_requeued b = {.id = j->id,
                                   .attempt = j->attempt,
                                   .cause = p->cause,
                                   .reason = reason,
                                   .retry = true,
                                   .begin_ms = s.backoff_s ? now_ms + (int64_t)s.backoff_s * 1000 : 0};
    core_emit(c, now_ms, EVENT_JOB_REQUEUED, &b);
    return true;
}

void core_finish_if_done(struct core *c, struct core_job *j, int64_t now_ms) {
    struct core_run *r = j->run;
    for (uint32_t i = 0; i < r->part_count; i++)
        if (!r->parts[i].ended)
            return;
    struct run_part p = *telling_part(r);
    p.cause = cause_for(r, &p);
    const char *reason = r->end_reason ? r->end_reason : r->reason;
    bool unharmed = never_ran(r, &p);
    if (core_is_worker(j)) {
        core_group_worker_done(c, j, &p, reason, unharmed, now_ms);
        return;
    }
    if (goes_back(c, j, p.cause, unharmed)) {
        bool too_often = !unharmed && j->attempt - j->uncounted >= c->config.max_attempts;
        struct event_job_requeued b = {.id = j->id,
                                       .attempt = j->attempt,
                                       .cause = p.cause,
                                       .by = r->by,
                                       .reason = reason,
                                       .hold = r->hold || too_often,
                                       .uncounted = unharmed};
        core_emit(c, now_ms, EVENT_JOB_REQUEUED, &b);
        return;
    }
    if (retry(c, j, &p, now_ms))
        return;
    struct event_job_ended b = {.id = j->id,
                                .attempt = j->attempt,
                                .state = core_part_state(&p),
                                .exit_code = p.exit_code,
                                .exit_signal = p.exit_signal,
                                .reason = reason,
                                .by = r->by};
    // An allocation that its owner released, or tasks of which one had failed.
    if (p.cause == END_EXIT && r->ending && r->cause == END_EXIT && (r->exit_code || r->exit_signal)) {
        b.state = JOB_FAILED;
        b.exit_code = r->exit_code;
        b.exit_signal = r->exit_signal;
    }
    core_finished_row(c, j, &b, now_ms);
    core_emit(c, now_ms, EVENT_JOB_ENDED, &b);
}

void core_end_part(struct core *c, struct core_job *j, struct run_part *p, enum end_cause cause, const char *reason,
              int64_t now_ms) {
    struct event_part_ended b = {
        .id = j->id, .attempt = j->attempt, .node = p->node->name, .cause = cause, .reason = reason};
    core_emit(c, now_ms, EVENT_PART_ENDED, &b);
    core_steps_part_ended(c, j, b.node, now_ms);
}

// One part has ended: ends the others if the job cannot go on without it.
void core_end_other_parts(struct core *c, struct core_job *j, const struct run_part *p, int64_t now_ms) {
    cleanup_arena struct arena a = {0};
    struct spec s;
    if (j->run->part_count == 1 || j->run->ending)
        return;
    core_spec_of(j, &a, &s);
    bool failed = core_part_state(p) != JOB_COMPLETED;
    if (s.launch == LAUNCH_TASKS ? failed && (!s.no_kill_on_bad_exit || p->cause != END_EXIT)
                                 : p == &j->run->parts[0] || failed)
        core_begin_ending(c, j,
                     &(struct event_job_ending){.cause = p->cause,
                                                .exit_code = p->exit_code,
                                                .exit_signal = p->exit_signal,
                                                .reason = reason_text(BECAUSE_PART_ENDED)},
                     now_ms);
}

static void stale_gone(struct core *c, struct node_entry *n, uint64_t id, uint32_t attempt, int64_t now_ms) {
    for (uint32_t i = 0; i + 1 < n->stale.len; i += 2)
        if (n->stale.at[i] == id && n->stale.at[i + 1] == attempt) {
            vec_remove(&n->stale, i + 1);
            vec_remove(&n->stale, i);
            if (!n->stale.len && !n->unknown.len)
                core_node_ready(c, n, now_ms);
            return;
        }
}

void core_agent_ended(struct core *c, const char *node, const struct message_ended *m, int64_t now_ms) {
    struct node_entry *n = core_find_node(c, node);
    struct core_job *j;
    struct message_ack ack = {.id = m->id, .attempt = m->attempt, .of_epoch = m->epoch};
    struct run_part *p = core_reported_part(c, node, m->id, m->attempt, &j);
    if (p && m->epoch && j->run->epoch && m->epoch != j->run->epoch)
        p = NULL;  // of an attempt from before a restore; the job has one of the same number now
    char reason[REASON_TEXT_MAX];  // shown at terminals: control characters are removed
    if (n && core_attempt_asked(n, m->id, m->attempt))
        return;  // its description, which comes as well, brings the end
    if (p) {
        struct event_part_ended b = {
            .id = j->id,
            .attempt = m->attempt,
            .node = p->node->name,
            .cause = m->cause,
            .exit_code = m->exit_code,
            .exit_signal = m->exit_signal,
            .usage = m->usage,
            .reason = m->reason ? str_printable(m->reason, reason, sizeof reason) : NULL,
            .launch_failed = m->launch_failed && m->cause == END_NODE_FAIL && !m->start_ms};
        if (!p->started && m->start_ms)  // the report of the start was lost
            core_agent_started(c, node, &(struct message_started){.id = m->id, .attempt = m->attempt}, now_ms);
        core_emit(c, now_ms, EVENT_PART_ENDED, &b);
        if (b.launch_failed && n)
            core_node_launch_failed(c, n, b.reason, now_ms);
        core_steps_part_ended(c, j, b.node, now_ms);
        core_end_other_parts(c, j, p, now_ms);
        core_finish_if_done(c, j, now_ms);
    }
    ack.epoch = core_epoch(c);
    ack.seq = c->seq;
    core_effect_send(c, node, MESSAGE_ACK, &ack);
    if (n)
        stale_gone(c, n, m->id, m->attempt, now_ms);
}
