// Owns playing the journal back. The scheduler is a pure function and every change of the policy is
// an event, so every recorded decision must come out again; a difference means the program has changed.
// Core and scheduler have no state but their own, so another core can be worked on by another thread.
#include "journal_replay.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "sched/sched.h"
#include "sched/world.h"

struct playing {
    struct past *past;
    struct core *core;
    int64_t until_ms;
    uint64_t events;
    struct journal_replay_report *report;  // NULL: only the state is wanted
    struct sched_decisions decisions;
    bool in_pass, grows;         // grows: an elastic job was started in this pass
    uint32_t start, preempt;     // next of the decisions to be met
    bool differs;
};

static void difference(struct playing *p, const struct store_event *e, const char *recorded, const char *now) {
    struct journal_replay_difference d = {.seq = e->seq, .at_ms = e->at_ms};
    if (!p->differs)
        p->report->different++;
    p->differs = true;
    if (p->report->differences.len >= PAST_DIFFERENCES_MAX)
        return;
    snprintf(d.recorded, sizeof d.recorded, "%s", recorded);
    snprintf(d.now, sizeof d.now, "%s", now);
    vec_push(&p->report->differences, d);
}

static bool same_nodes(struct playing *p, const struct event_job_placed *b, const struct sched_alloc *a) {
    if (b->parts.len != a->node_count)
        return false;
    for (uint32_t i = 0; i < b->parts.len; i++) {
        if (core_node_handle(p->core, b->parts.at[i].node) != a->nodes[i].node ||
            b->parts.at[i].gpus.len != a->nodes[i].gpu_count)
            return false;
        for (uint32_t g = 0; g < a->nodes[i].gpu_count; g++)
            if (b->parts.at[i].gpus.at[g].index != a->nodes[i].gpus[g].index ||
                b->parts.at[i].gpus.at[g].milli != a->nodes[i].gpus[g].milli)
                return false;
    }
    return true;
}

// The minimum of an elastic job: as many workers on each node as was decided.
static bool same_workers(struct playing *p, const struct event_workers_placed *b,
                         const struct sched_alloc *a) {
    uint32_t placed = 0;
    for (uint32_t i = 0; i < a->node_count; i++) {
        uint32_t here = 0;
        for (uint32_t k = 0; k < b->workers.len; k++)
            here += core_node_handle(p->core, b->workers.at[k].part->node) == a->nodes[i].node;
        if (here != a->nodes[i].tasks)
            return false;
        placed += here;
    }
    return placed == b->workers.len;
}

// A recorded start, beside the next one that is decided now: `same` says whether its place is.
static void meet_start(struct playing *p, const struct store_event *e, uint64_t id, const char *recorded,
                       bool same) {
    char now[80] = "nothing more";
    p->report->starts++;
    // The decision is taken off even when it differs: one job that was placed elsewhere is one difference, not one
    // for each start after it.
    if (p->start < p->decisions.starts.len) {
        const struct sched_start *s = &p->decisions.starts.at[p->start++];
        if (s->job == id && same)
            return;
        snprintf(now, sizeof now, "start job %llu%s", (unsigned long long)s->job,
                 s->job == id ? " elsewhere" : "");
    }
    difference(p, e, recorded, now);
}

static const struct sched_alloc *next_place(const struct playing *p) {
    return p->start < p->decisions.starts.len ? p->decisions.starts.at[p->start].alloc : NULL;
}

static void meet_job(struct playing *p, const struct store_event *e, const struct event_job_placed *b) {
    const struct sched_alloc *a = next_place(p);
    char recorded[80];
    snprintf(recorded, sizeof recorded, "start job %llu on %.40s", (unsigned long long)b->id,
             b->parts.len ? b->parts.at[0].node : "?");
    meet_start(p, e, b->id, recorded, a && same_nodes(p, b, a));
}

static void meet_workers(struct playing *p, const struct store_event *e,
                         const struct event_workers_placed *b) {
    const struct sched_alloc *a = next_place(p);
    char recorded[80];
    p->grows = true;
    snprintf(recorded, sizeof recorded, "start %u workers of job %llu", b->workers.len,
             (unsigned long long)b->id);
    meet_start(p, e, b->id, recorded, a && same_workers(p, b, a));
}

static void meet_preemption(struct playing *p, const struct store_event *e, const struct event_job_ending *b) {
    char recorded[80], now[80] = "nothing more";
    p->report->preemptions++;
    snprintf(recorded, sizeof recorded, "preempt job %llu for %.20s", (unsigned long long)b->id, b->by ? b->by : "?");
    if (p->preempt < p->decisions.preempts.len) {
        const struct sched_preempt *s = &p->decisions.preempts.at[p->preempt++];
        if (s->victim == b->id)
            return;
        snprintf(now, sizeof now, "preempt job %llu", (unsigned long long)s->victim);
    }
    difference(p, e, recorded, now);
}

// Only starts are missed here: preemptions that are decided and not recorded are normal, since the core leaves a
// victim alone that is being ended already.
static void end_pass(struct playing *p, const struct store_event *e) {
    char now[80];
    if (!p->in_pass)
        return;
    p->in_pass = false;
    if (p->start < p->decisions.starts.len) {
        snprintf(now, sizeof now, "start job %llu too", (unsigned long long)p->decisions.starts.at[p->start].job);
        difference(p, e, "nothing more", now);
    }
}

// Events of one pass stand together: starts, then preemptions.
static int compare(struct playing *p, const struct store_event *e) {
    cleanup_arena struct arena a = {0};
    struct event event;
    int r = event_decode((enum event_type)e->type, e->data, e->len, &a, &event);
    if (r < 0)
        return r;
    const struct event_job_ending *ending = e->type == EVENT_JOB_ENDING ? event.body : NULL;
    const struct event_job_placed *placed = e->type == EVENT_JOB_PLACED ? event.body : NULL;
    // An attempt adopted after a restore was not decided here.
    bool workers = e->type == EVENT_WORKERS_PLACED;
    bool decided = workers || (placed && !placed->reason) || (ending && ending->cause == END_PREEMPT);
    if (!decided) {
        end_pass(p, e);
        return 0;
    }
    // A pass that starts an elastic job is followed by one in which it grows.
    if (p->in_pass && p->grows && !ending && p->start == p->decisions.starts.len)
        end_pass(p, e);
    if (!p->in_pass) {
        p->in_pass = true;
        p->grows = false;
        p->differs = false;
        p->start = p->preempt = 0;
        p->report->passes++;
        sched_decisions_done(&p->decisions);
        // The state is that before the first event of the pass, and the time is the pass's own, so the decisions must
        // be the ones recorded. They are compared before core_replay applies the event.
        sched_decide(core_world(p->core), e->at_ms, core_policy(p->core), &p->decisions);
    }
    if (ending)
        meet_preemption(p, e, ending);
    else if (workers)
        meet_workers(p, e, event.body);
    else
        meet_job(p, e, event.body);
    return 0;
}

static int play(void *ctx, const struct store_event *e) {
    struct playing *p = ctx;
    if (e->at_ms > p->until_ms)
        return 1;
    if (atomic_load(&p->past->stop))
        return -ECANCELED;
    // Events before the oldest snapshot may have been pruned; a replay from the middle would compare with an empty
    // cluster.
    if (e->seq != p->events + 1)
        return -ENODATA;
    p->events++;
    int r = p->report ? compare(p, e) : 0;
    return r < 0 ? r : core_replay(p->core, e->seq, e->at_ms, (enum event_type)e->type, e->data, e->len);
}

// On the other thread.
static void play_all(uv_work_t *work) {
    struct past *past = work->data;
    struct playing p = {.past = past, .until_ms = past->compare ? INT64_MAX : past->at_ms,
                        .report = past->compare ? &past->report : NULL};
    struct core_config config;
    core_config_default(&config);
    config.policy.grace_ms = past->grace_ms;  // the rest as the events say
    p.core = core_new(&config);
    int r = store_journal(past->controller->store, play, &p, NULL);
    past->report.events = p.events;
    sched_decisions_done(&p.decisions);
    past->core = p.core;
    if (r < 0)
        past->result = error_set(&past->error, r == -ENODATA ? ENODATA : EIO,
                                 r == -ENODATA ? "the beginning of the journal is no longer kept"
                                               : "the journal cannot be played back");
}

static void played(uv_work_t *work, int status) {
    struct past *p = work->data;
    p->controller->past = NULL;
    p->done(p);
    core_free(p->core);
    vec_done(&p->report.differences);
    free(p);
}

int controller_journal_replay_ask(struct api_call *call, int64_t at_ms, bool compare,
                                  void (*done)(struct past *p), struct error *e) {
    struct controller *c = call->controller;
    if (c->past)
        return error_set(e, EAGAIN, "the journal is being replayed for another request; ask again in a moment");
    if (core_seq(c->core) > PAST_EVENTS_MAX)
        return error_set(e, EFBIG, "the journal has %llu events; at most %d can be played back",
                         (unsigned long long)core_seq(c->core), PAST_EVENTS_MAX);
    struct past *p = xcalloc(1, sizeof *p);
    *p = (struct past){.work.data = p, .controller = c, .req = call->req, .actor = call->actor, .job = call->job,
                       .at_ms = at_ms, .began_us = clock_mono_us(), .compare = compare, .done = done,
                       .grace_ms = core_policy(c->core)->grace_ms};
    snprintf(p->user, sizeof p->user, "%s", call->actor.user);
    p->actor.user = p->user;
    if (uv_queue_work(&c->loop, &p->work, play_all, played) < 0) {
        free(p);
        return error_set(e, EAGAIN, "the journal cannot be played back now; ask again in a moment");
    }
    c->past = p;
    return 0;
}

void controller_journal_replay_stop(struct controller *c) {
    if (c->past)
        atomic_store(&c->past->stop, true);
}
