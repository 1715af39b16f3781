// Elastic jobs: what happens when their workers start and end, and the commands that change their size. The job has
// an id and a place in the queue; each worker is a job of its own with an id, attempts, an exit and a log. The
// minimum starts together and goes back to the queue together; workers beyond it are optional.
#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "model/name.h"
#include "model/reason.h"
#include "model/signalname.h"
#include "pauses.h"
#include "state.h"

enum {
    RESTARTS_DEFAULT = 10,  // of a worker, when the job does not say how many retries
    RESTART_PAUSE_MAX_S = 300,
};


int core_group_check_spec(const struct core *c, const struct spec *s, struct error *e) {
    int r = core_components_check(c, s, e);
    if (r < 0)
        return r;
    if (!s->workers_max) {
        const char *given = s->on_worker_end   ? "on_worker_end"
                            : s->worker_signal ? "worker_signal"
                            : s->workers_min   ? "workers_min"
                                               : NULL;
        return given ? error_set(e, EINVAL, "%s: the job has no workers; give --workers MIN-MAX", given) : 0;
    }
    if (!core_feature(c, FEATURE_ELASTIC))
        return error_set(e, ENOTSUP, "workers: finish the upgrade first: acequia upgrade finish");
    if (s->workers_max > JOB_WORKERS_MAX)
        return error_set(e, ERANGE, "workers: %u are too many; a job has at most %d", s->workers_max,
                         JOB_WORKERS_MAX);
    if (!s->workers_min || s->workers_min > s->workers_max)
        return error_set(
            e, EINVAL, "workers: %u-%u is not a range; the least number is from 1 to the largest, as in 2-8",
            s->workers_min, s->workers_max);
    if (s->worker_signal > SIGNAL_NUMBER_MAX)
        return error_set(e, ERANGE, "worker_signal: there is no signal %u", s->worker_signal);
    if (s->array.len)
        return error_set(e, EINVAL, "workers: an array cannot have workers; submit several jobs instead");
    if (((s->launch == LAUNCH_STEPS || s->lease_s) && !s->components.len) || s->attach || s->pty ||
        s->stdin_open)
        return error_set(e, EINVAL, "workers: only a batch job has workers; use submit");
    if (!s->components.len && !spec_worker_is_task(s))
        return error_set(
            e, EINVAL,
            "workers: a worker is one task on one node; give it more CPUs (--cpus) or ask for more workers");
    if (s->exclusive)
        return error_set(
            e, EINVAL,
            "workers: they cannot be exclusive; to have whole nodes, ask for all CPUs or GPUs of a node");
    return 0;
}

// --- starts ---

// A worker runs no longer than its job.
uint32_t core_worker_time_limit(const struct core *c, const struct core_job *worker, int64_t now_ms) {
    const struct core_job *job = core_group_job(c, worker);
    if (!job || !job->run || !job->run->time_limit_s)
        return 0;
    int64_t used_s = (now_ms - job->start_ms - core_run_paused_ms(job, now_ms)) / 1000;
    return used_s < job->run->time_limit_s ? (uint32_t)(job->run->time_limit_s - used_s) : 1;
}

static int by_node_name(const void *a, const void *b) {
    return strverscmp(((const struct placed_worker *)a)->part->node,
                      ((const struct placed_worker *)b)->part->node);
}

static int by_name(const void *a, const void *b) {
    return strverscmp(((const struct part *)a)->node, ((const struct part *)b)->node);
}

// The first `tasks` of what is given on a node, from task `from` on; all of them when that is as many as there are.
static void set_part(const struct core *c, const struct sched_alloc_node *n, uint32_t from, uint32_t tasks,
                     struct arena *arena, struct part *out) {
    uint32_t all = n->tasks ? n->tasks : 1, gpus = n->gpu_count * tasks / all;
    *out = (struct part){.node = c->node_list.at[n->node - 1]->name,
                         .cpus = n->cpus * tasks / all,
                         .tasks = tasks,
                         .memory_bytes = n->memory_bytes / all * tasks};
    if (tasks == all)
        out->memory_bytes = n->memory_bytes;
    out->gpus.at = arena_alloc(arena, (gpus + 1) * sizeof *out->gpus.at);
    for (; out->gpus.len < gpus; out->gpus.len++) {
        const struct sched_alloc_gpu *g = &n->gpus[from * gpus + out->gpus.len];
        out->gpus.at[out->gpus.len] = (struct gpu_grant){g->index, g->milli};
    }
}

// One piece of the allocation for each worker: a task of the request.
static void split_tasks(const struct core *c, const struct sched_alloc *a, struct arena *arena,
                        struct event_workers_placed *b) {
    uint32_t first = b->workers.len;
    for (uint32_t i = 0; i < a->node_count; i++)
        for (uint32_t t = 0; t < a->nodes[i].tasks; t++) {
            struct part *p = arena_alloc(arena, sizeof *p);
            set_part(c, &a->nodes[i], t, 1, arena, p);
            b->workers.at[b->workers.len++] = (struct placed_worker){.part = p};
        }
    if (b->workers.len - first > 1)
        qsort(b->workers.at + first, b->workers.len - first, sizeof *b->workers.at, by_node_name);
}

// All of it is one worker's. Its parts are in the order of the node list: MPI programs expect rank 0 on the first.
static void whole(const struct core *c, const struct sched_alloc *a, struct arena *arena,
                  struct event_workers_placed *b) {
    struct part *parts = arena_alloc(arena, (a->node_count + 1) * sizeof *parts);
    for (uint32_t i = 0; i < a->node_count; i++)
        set_part(c, &a->nodes[i], 0, a->nodes[i].tasks, arena, &parts[i]);
    if (a->node_count > 1)
        qsort(parts, a->node_count, sizeof *parts, by_name);
    b->workers.at[b->workers.len++] =
        (struct placed_worker){.part = parts, .more = {parts + 1, a->node_count - 1}};
}

// Worker numbers and attempts for what component `k` was given, from entry `from` of the event on.
static uint32_t name_workers(const struct core *c, const struct group *g, uint32_t k, uint32_t from,
                             struct event_workers_placed *b) {
    uint32_t used = from;
    for (uint32_t i = 0; i < g->workers.len && used < b->workers.len; i++) {
        const struct core_job *j =
            g->workers.at[i].component == k ? core_worker_job(c, &g->workers.at[i]) : NULL;
        if (!j)
            continue;
        b->workers.at[used].number = i;
        b->workers.at[used].id = j->id;
        b->workers.at[used++].attempt = core_next_attempt(c, j);
    }
    return used;
}

// The pieces of the allocation are in the order of the request's parts (component.c).
static void split(const struct core *c, const struct group *g, const struct sched_alloc *a,
                  struct arena *arena, struct event_workers_placed *b) {
    uint32_t piece = 0;
    b->workers.at = arena_alloc(arena, (core_group_together(g) + 1) * sizeof *b->workers.at);
    for (uint32_t k = 0; k < g->components.len; k++) {
        const struct group_component *of = &g->components.at[k];
        uint32_t from = b->workers.len, pieces = of->task ? of->together > 0 : of->together;
        for (uint32_t i = 0; i < pieces; i++, piece++) {
            const struct sched_alloc *mine = a->piece_count ? a->pieces[piece] : a;
            if (of->task)
                split_tasks(c, mine, arena, b);
            else
                whole(c, mine, arena, b);
        }
        uint32_t used = name_workers(c, g, k, from, b);
        assert(used == b->workers.len && used == from + of->together);
    }
    assert(b->workers.len && piece == (a->piece_count ? a->piece_count : 1));
}

void core_group_start(struct core *c, struct core_job *job, const struct sched_start *s,
                      const struct event_job_placed *placed, int64_t now_ms) {
    cleanup_arena struct arena arena = {0};
    struct group *g = job->sub->group;
    struct event_workers_placed b = {.id = job->id,
                                     .attempt = placed->attempt,
                                     .time_limit_s = placed->time_limit_s,
                                     .partition = placed->partition,
                                     .epoch = placed->epoch};
    split(c, g, s->alloc, &arena, &b);
    core_emit(c, now_ms, EVENT_WORKERS_PLACED, &b);
    for (uint32_t i = 0; i < b.workers.len; i++) {
        const struct core_job *j = core_find_job(c, g->workers.at[b.workers.at[i].number].id);
        for (uint32_t k = 0; k < j->run->part_count; k++)
            core_effect(c, EFFECT_LAUNCH, j->run->parts[k].node->name, j->id, j->attempt);
        core_effect(c, EFFECT_JOB_CHANGED, NULL, j->id, 0);
    }
    core_effect(c, EFFECT_JOB_CHANGED, NULL, job->id, 0);
}

// --- launches that wait ---

static bool over_committed(const struct core *c, const struct run_part *p) {
    const struct node_entry *n = p->node;
    uint32_t held[SCHED_GPUS_MAX];
    if (n->cpus_used > n->node->cpus || n->memory_used_bytes > n->node->memory_bytes)
        return true;
    core_node_gpus(c, n->name, held, SCHED_GPUS_MAX);
    for (uint32_t i = 0; i < p->gpu_count; i++)
        if (p->gpus[i].index < SCHED_GPUS_MAX && held[p->gpus[i].index] > SCHED_GPU)
            return true;
    return false;
}

static bool gives_back(const struct node_entry *n) {
    for (uint32_t i = 0; i < n->jobs.len; i++)
        if (core_is_optional(n->jobs.at[i]) && n->jobs.at[i]->run->ending)
            return true;
    return false;
}

// Optional workers that are being ended still hold what the job was given; or it is run again after a pause.
bool core_launch_waits(const struct core *c, const struct core_job *j) {
    if (!j->run || j->run->delayed)
        return j->run != NULL;
    bool possible = c->groups.len && !core_is_optional(j);
    for (uint32_t i = 0; possible && i < j->run->part_count; i++) {
        const struct run_part *p = &j->run->parts[i];
        if (!p->started && !p->ended && gives_back(p->node) && over_committed(c, p))
            return true;
    }
    return false;
}

bool core_launch_is_late(const struct core *c, const struct core_job *j) {
    for (uint32_t i = 0; i < c->late_launches.len; i++)
        if (c->late_launches.at[i] == j->id)
            return true;
    return core_launch_waits(c, j);
}

void core_launch_later(struct core *c, const struct core_job *j) {
    for (uint32_t i = 0; i < c->late_launches.len; i++)
        if (c->late_launches.at[i] == j->id)
            return;
    vec_push(&c->late_launches, j->id);
    c->next_group_ms = 0;
}

// Launches that had to wait, for an optional worker to leave the place or for the pause before a restart, are
// made as soon as both are over. What has been ended meanwhile drops out of the list.
static void launch_late(struct core *c, int64_t now_ms) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < c->late_launches.len; i++) {
        struct core_job *j = core_find_job(c, c->late_launches.at[i]);
        if (!j || !j->run || j->run->ending || j->run->adopted || j->state != JOB_STARTING)
            continue;
        if (j->run->delayed && now_ms >= j->begin_ms)
            j->run->delayed = false;
        if (core_launch_waits(c, j)) {
            if (j->run->delayed && j->begin_ms < c->next_group_ms)
                c->next_group_ms = j->begin_ms;
            c->late_launches.at[kept++] = j->id;
            continue;
        }
        for (uint32_t k = 0; k < j->run->part_count; k++)
            if (!j->run->parts[k].started && !j->run->parts[k].ended)
                core_effect(c, EFFECT_LAUNCH, j->run->parts[k].node->name, j->id, j->attempt);
        core_effect(c, EFFECT_JOB_CHANGED, NULL, j->id, 0);
    }
    c->late_launches.len = kept;
}

void core_group_pauses_end(struct core *c) {
    for (uint32_t i = 0; i < c->late_launches.len; i++) {
        struct core_job *j = core_find_job(c, c->late_launches.at[i]);
        if (j && j->run)
            j->run->delayed = false;
    }
    core_group_send_now(c);
}

void core_group_tasks(struct core *c, int64_t now_ms) {
    c->next_group_ms = INT64_MAX;
    launch_late(c, now_ms);
    core_group_send_changed(c, now_ms);
}

// --- ends ---

// The job has a head, and all workers of it have ended.
static bool head_done(const struct group *g) {
    for (uint32_t i = 0; i < g->workers.len; i++)
        if (core_component_of(g, &g->workers.at[i])->head && !(g->workers.at[i].flags & GROUP_LEFT))
            return false;
    return core_group_has_head(g);
}

// It is being ended in order to start anew.
static bool sent_back(const struct core_job *job) {
    const struct core_run *r = job->run;
    return r->ending && (r->cause == END_REQUEUE ||
                         (job->sub->requeue && (r->cause == END_PREEMPT || r->cause == END_NODE_FAIL)));
}

// Whether the whole job goes back to the queue once all of its workers have ended. Never without its head, which may
// end for good meanwhile: it is cancelled, or was run too often.
static bool goes_back(const struct core *c, const struct core_job *job) {
    cleanup_arena struct arena a = {0};
    struct spec s;
    if (!job->run->ending || head_done(job->sub->group) || core_texts_lost(c, job))
        return false;
    if (sent_back(job))
        return true;
    if (job->run->cause != END_EXIT)
        return false;
    core_spec_of(job, &a, &s);
    return s.on_worker_end == WORKER_END_FAIL && job->retried < s.retries;
}

static enum job_state state_after(enum end_cause cause) {
    return core_part_state(&(struct run_part){.cause = cause});
}

// A component that only waits for steps ends with its job, and as its job does.
static struct run_part as_the_job(const struct core_job *j, const struct core_job *job,
                                  const struct run_part *p) {
    cleanup_arena struct arena a = {0};
    const struct group *g = job->sub->group;
    struct run_part end = *p;
    struct spec s;
    core_spec_of(j, &a, &s);
    if (s.launch == LAUNCH_STEPS && job->run->cause == END_EXIT) {
        end.cause = END_EXIT;
        end.exit_code = g->worst_state ? g->worst_code : job->run->exit_code;
        end.exit_signal = g->worst_state ? g->worst_signal : job->run->exit_signal;
    }
    return end;
}

static void end_worker(struct core *c, struct core_job *j, const struct run_part *p, const char *reason,
                       int64_t now_ms) {
    struct event_job_ended b = {.id = j->id,
                                .attempt = j->attempt,
                                .state = core_part_state(p),
                                .exit_code = p->exit_code,
                                .exit_signal = p->exit_signal,
                                .reason = reason,
                                .by = j->run ? j->run->by : NULL};
    core_finished_row(c, j, &b, now_ms);
    core_emit(c, now_ms, EVENT_JOB_ENDED, &b);
}

static void requeue_worker(struct core *c, struct core_job *j, enum end_cause cause, const char *reason,
                           bool never_ran, int64_t begin_ms, int64_t now_ms) {
    struct event_job_requeued b = {.id = j->id,
                                   .attempt = j->attempt,
                                   .cause = cause,
                                   .by = j->run->by,
                                   .reason = reason,
                                   .uncounted = never_ran,
                                   .begin_ms = begin_ms,
                                   .retry = cause == END_EXIT || cause == END_UNHEALTHY};
    core_emit(c, now_ms, EVENT_JOB_REQUEUED, &b);
}

static uint32_t pause_s(const struct spec *s, uint32_t restarts) {
    uint64_t pause = s->backoff_s ? s->backoff_s : 1;
    for (uint32_t i = 0; i < restarts && pause < RESTART_PAUSE_MAX_S; i++)
        pause *= 2;
    return (uint32_t)(pause < RESTART_PAUSE_MAX_S || pause == s->backoff_s ? pause : RESTART_PAUSE_MAX_S);
}

static bool nodes_up(const struct core_job *j) {
    for (uint32_t i = 0; i < j->run->part_count; i++)
        if (j->run->parts[i].node->state != NODE_UP || j->run->parts[i].node->removed)
            return false;
    return true;
}

// Its program failed and it may be run again: where it was, if that is its own piece.
static bool restart_worker(struct core *c, struct core_job *j, const struct spec *s, const struct run_part *p,
                           const char *reason, int64_t now_ms) {
    uint32_t most = s->retries ? s->retries : RESTARTS_DEFAULT;
    char text[160];
    if (s->on_worker_end != WORKER_END_RESTART || j->retried >= most || core_texts_lost(c, j))
        return false;
    int64_t begin_ms = now_ms + 1000 * (int64_t)pause_s(s, j->retried);
    if (p->cause == END_EXIT)
        snprintf(text, sizeof text, "%s %u; restart %u of %u",
                 p->exit_signal ? "ended by signal" : "exit status",
                 p->exit_signal ? p->exit_signal : (uint32_t)p->exit_code, j->retried + 1u, most);
    else
        snprintf(text, sizeof text, "%.100s; restart %u of %u", reason ? reason : "failed", j->retried + 1u,
                 most);
    if (!(core_worker_of(j)->flags & GROUP_PIECE) || !nodes_up(j)) {
        requeue_worker(c, j, END_EXIT, text, false, begin_ms, now_ms);
        return true;
    }
    struct event_worker_restarted b = {.id = j->id,
                                       .attempt = core_next_attempt(c, j),
                                       .begin_ms = begin_ms,
                                       .time_limit_s = core_worker_time_limit(c, j, now_ms),
                                       .epoch = core_epoch(c),
                                       .reason = text,
                                       .job = j->sub->group->id};
    core_emit(c, now_ms, EVENT_WORKER_RESTARTED, &b);
    return true;
}

static void worker_failed(struct core *c, struct core_job *j, const struct run_part *p, const char *reason,
                          int64_t now_ms) {
    cleanup_arena struct arena a = {0};
    struct spec s;
    struct core_job *job = core_group_job(c, j);
    char text[64];
    core_spec_of(j, &a, &s);
    if (p->cause != END_TIMEOUT && restart_worker(c, j, &s, p, reason, now_ms))
        return;
    snprintf(text, sizeof text, "worker %u has %s", j->array_index,
             p->cause == END_TIMEOUT ? "reached the time limit" : "failed");
    struct event_job_ending how = {
        .cause = p->cause, .exit_code = p->exit_code, .exit_signal = p->exit_signal, .reason = text};
    if (how.cause != END_TIMEOUT && how.cause != END_NODE_FAIL)
        how.cause = END_EXIT;
    bool retry = how.cause == END_EXIT && s.on_worker_end == WORKER_END_FAIL && job->retried < s.retries;
    if (retry)
        requeue_worker(c, j, END_EXIT, reason, false, 0, now_ms);
    else
        end_worker(c, j, p, reason, now_ms);
    if (p->cause == END_TIMEOUT || s.on_worker_end != WORKER_END_CONTINUE || head_done(job->sub->group))
        core_begin_ending(c, job, &how, now_ms);
}

// What becomes of a worker whose attempt has ended, in order of precedence: the job is ending (it goes back with the
// job, or ends with it); it is done for good; it lost its place through no fault of its own and waits again; it
// failed, and the job says what then.
void core_group_worker_done(struct core *c, struct core_job *j, const struct run_part *p, const char *reason,
                            bool never_ran, int64_t now_ms) {
    struct core_job *job = core_group_job(c, j);
    bool cancelled = j->run->ending && j->run->cause == END_CANCEL;
    bool too_often = !never_ran && j->attempt - j->uncounted >= c->config.max_attempts;
    if (job->run->ending) {
        struct run_part end = as_the_job(j, job, p);
        if (goes_back(c, job) && !(cancelled && job->run->cause != END_CANCEL))
            requeue_worker(c, j, job->run->cause, reason, never_ran, 0, now_ms);
        else
            end_worker(c, j, &end, reason, now_ms);
    } else if (cancelled || core_part_state(p) == JOB_COMPLETED) {
        end_worker(c, j, p, reason, now_ms);
    } else if (!too_often && !core_texts_lost(c, j) &&
               (p->cause == END_REQUEUE ||
                (p->cause == END_PREEMPT && (core_is_optional(j) || j->sub->requeue)) ||
                (p->cause == END_NODE_FAIL && (j->sub->requeue || never_ran)))) {
        requeue_worker(c, j, p->cause, reason, never_ran, 0, now_ms);
    } else {
        worker_failed(c, j, p, reason, now_ms);
    }
    core_group_settle(c, job, now_ms);
}

static void requeue_job(struct core *c, struct core_job *job, int64_t now_ms) {
    cleanup_arena struct arena a = {0};
    struct spec s;
    const struct core_run *r = job->run;
    core_spec_of(job, &a, &s);
    bool retry = r->ending && r->cause == END_EXIT;
    struct event_job_requeued b = {.id = job->id,
                                   .attempt = job->attempt,
                                   .cause = r->ending ? r->cause : END_NODE_FAIL,
                                   .by = r->by,
                                   .reason = r->ending ? r->reason : reason_text(BECAUSE_ALL_WORKERS_ENDED),
                                   .hold = r->hold || job->attempt >= c->config.max_attempts,
                                   .retry = retry,
                                   .begin_ms =
                                       retry && s.backoff_s ? now_ms + (int64_t)s.backoff_s * 1000 : 0};
    core_emit(c, now_ms, EVENT_JOB_REQUEUED, &b);
}

static void end_job(struct core *c, struct core_job *job, int64_t now_ms) {
    struct group *g = job->sub->group;
    const struct core_run *r = job->run;
    struct event_job_ended b = {.id = job->id, .attempt = job->attempt, .by = r->by, .reason = r->reason};
    for (uint32_t i = 0; i < g->workers.len; i++) {  // those that wait: who has run has a place in history
        struct core_job *j = core_worker_job(c, &g->workers.at[i]);
        if (j && j->attempt)
            core_end_pending(c, j, JOB_CANCELLED, NULL, reason_text(BECAUSE_JOB_ENDED), now_ms);
    }
    if (sent_back(job)) {  // and is not there to go back: its head has ended, or all of its workers
        b.by = NULL;
        b.reason = head_done(g) ? reason_text(BECAUSE_HEAD_ENDED) : reason_text(BECAUSE_WORKERS_ENDED);
    }
    if (r->ending && r->cause != END_EXIT && !sent_back(job)) {
        b.state = state_after(r->cause);
    } else if (g->worst_state) {
        b.state = (enum job_state)g->worst_state;
        b.exit_code = g->worst_code;
        b.exit_signal = g->worst_signal;
    } else if (r->ending && r->cause == END_EXIT) {  // an allocation that was given back
        b.state = core_part_state(
            &(struct run_part){.cause = END_EXIT, .exit_code = r->exit_code, .exit_signal = r->exit_signal});
        b.exit_code = r->exit_code;
        b.exit_signal = r->exit_signal;
    } else {
        b.state = JOB_CANCELLED;
    }
    core_finished_row(c, job, &b, now_ms);
    core_emit(c, now_ms, EVENT_JOB_ENDED, &b);
}

void core_group_settle(struct core *c, struct core_job *job, int64_t now_ms) {
    const struct group *g = job->sub->group;
    bool waits = false;
    if (!job->run)
        return;
    if (!job->run->ending && head_done(g)) {
        struct event_job_ending how = {.cause = END_EXIT, .reason = reason_text(BECAUSE_HEAD_ENDED)};
        core_begin_ending(c, job, &how, now_ms);
    }
    for (uint32_t i = 0; i < g->workers.len; i++) {
        const struct core_job *j = core_worker_job(c, &g->workers.at[i]);
        if (j && j->run)
            return;
        waits |= j && g->workers.at[i].flags & GROUP_MINIMUM;
    }
    if (job->run->ending ? goes_back(c, job) && waits : waits && !core_texts_lost(c, job))
        requeue_job(c, job, now_ms);
    else
        end_job(c, job, now_ms);
}

// --- commands ---

static int need_group(const struct core *c, const struct actor *actor, uint64_t id, struct core_job **out,
                      struct error *e) {
    int r = core_need_job(c, actor, id, out, e);
    if (r < 0)
        return r;
    if (!core_is_group(*out))
        return error_set(e, EINVAL,
                         "job %llu has no workers; only a job submitted with --workers can be resized",
                         (unsigned long long)id);
    return 0;
}

struct leaver {
    uint32_t number;
    int kind;  // 0: waits, 1: waits and belongs to the minimum, 2: an optional one that runs, 3: one of the minimum
    bool busy;
    int32_t rank;
};

// In the order in which workers leave; of equals the newest first.
static int by_leaving(const void *a, const void *b) {
    const struct leaver *x = a, *y = b;
    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    if (x->busy != y->busy)
        return x->busy ? 1 : -1;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x->number > y->number ? -1 : 1;
}

static bool told_to_leave(const struct core_job *j) {
    return j->run && j->run->ending && j->run->cause == END_CANCEL;
}

static void shrink_to(struct core *c, const struct core_job *job, uint32_t component, uint32_t max,
                      const char *by, int64_t now_ms) {
    const struct group *g = job->sub->group;
    VEC(struct leaver) live = {0};
    for (uint32_t i = 0; i < g->workers.len; i++) {
        const struct group_worker *w = &g->workers.at[i];
        const struct core_job *j = w->component == component ? core_worker_job(c, w) : NULL;
        if (!j || told_to_leave(j))
            continue;
        int kind = !j->run ? (w->flags & GROUP_MINIMUM ? 1 : 0) : core_is_optional(j) ? 2 : 3;
        vec_push(&live, ((struct leaver){i, kind, !(w->flags & GROUP_IDLE), w->rank}));
    }
    if (live.len)
        qsort(live.at, live.len, sizeof *live.at, by_leaving);
    for (uint32_t i = 0; i + max < live.len; i++) {
        struct core_job *j = core_find_job(c, g->workers.at[live.at[i].number].id);
        struct event_job_ending how = {.cause = END_CANCEL, .by = by, .reason = reason_text(BECAUSE_MADE_SMALLER)};
        if (j->run)
            core_begin_ending(c, j, &how, now_ms);
        else
            core_end_pending(c, j, JOB_CANCELLED, by, how.reason, now_ms);
    }
    vec_done(&live);
}

static int component_to_resize(const struct group *g, const char *name, struct error *e) {
    char shown[64];
    int found = str_empty(name) ? (g->components.len == 1 ? 0 : -ENOENT) : core_component_find(g, name);
    if (found >= 0)
        return found;
    if (str_empty(name))
        return error_set(e, EINVAL, "the job has %u components; say which, as in %s=4", g->components.len,
                         g->components.at[g->components.len - 1].name);
    cleanup_buf struct buf names = {0};
    for (uint32_t i = 0; i < g->components.len; i++)
        buf_addf(&names, "%s%s", i ? ", " : "", g->components.at[i].name);
    return error_set(e, ENOENT, "the job has no component \"%s\"; it has %s",
                     str_printable(name, shown, sizeof shown), buf_str(&names));
}

CORE_COMMAND(core_command_resize) {
    const struct command_resize *m = body;
    struct core_job *job;
    cleanup_arena struct arena a = {0};
    struct spec s;
    int r = need_group(c, actor, m->id, &job, e);
    if (r < 0)
        return r;
    if (job->run && job->run->ending)
        return error_set(e, EBUSY, "job %llu is being ended", (unsigned long long)m->id);
    struct group *g = job->sub->group;
    int component;
    if ((component = component_to_resize(g, m->component, e)) < 0)
        return component;
    core_spec_of(job, &a, &s);
    bool may_be_empty = s.components.len && spec_component_may_be_empty(&s, (uint32_t)component);
    if (!m->workers_max && !may_be_empty)
        return error_set(e, EINVAL, "workers: %s has at least one; cancel the job to end it",
                         s.components.len ? g->components.at[component].name : "a job");
    struct event_job_resized b = {.id = job->id,
                                  .workers_min = m->workers_min,
                                  .workers_max = m->workers_max,
                                  .first_id = c->next_id,
                                  .by = actor->user};
    uint32_t live = 0, min = g->components.at[component].min;
    if (!b.workers_min && !m->min_given)
        b.workers_min = min < b.workers_max ? min : b.workers_max;
    for (uint32_t i = 0; i < g->workers.len; i++) {
        const struct group_worker *w = &g->workers.at[i];
        const struct core_job *j = w->component == (uint32_t)component ? core_worker_job(c, w) : NULL;
        live += j && !told_to_leave(j);
    }
    // Workers that are being told to leave do not count: a job of 4 that was made 2 and then 4 again, while two still
    // end, gets two new ones.
    b.added = b.workers_max > live ? b.workers_max - live : 0;
    if (b.added && core_texts_lost(c, job))
        return error_set(
            e, ENOTSUP,
            "job %llu was adopted after a restore and its script is lost: it can get no more workers; "
            "submit it anew",
            (unsigned long long)m->id);
    if (s.components.len)
        b.component = g->components.at[component].name;
    core_spec_resize(&s, (uint32_t)component, b.workers_min, b.workers_max);
    struct actor owner = {.user = job->sub->user, .uid = job->sub->uid, .admin = true};
    if ((r = core_check_spec(c, &owner, &s, job->id, now_ms, e)) < 0 ||
        (r = core_check_room(c, &owner, b.added, e)) < 0)
        return r;
    if (g->workers.len + b.added > 16 * JOB_WORKERS_MAX)
        return error_set(e, E2BIG, "job %llu has had %u workers; no more are possible",
                         (unsigned long long)m->id, g->workers.len);
    core_emit(c, now_ms, EVENT_JOB_RESIZED, &b);
    shrink_to(c, job, (uint32_t)component, b.workers_max, actor->user, now_ms);
    core_group_settle(c, job, now_ms);
    return 0;
}

CORE_COMMAND(core_command_rank_workers) {
    const struct command_rank_workers *m = body;
    struct core_job *job;
    int r = need_group(c, actor, m->id, &job, e);
    if (r < 0)
        return r;
    if (!m->ranks.len || m->ranks.len > JOB_WORKERS_MAX)
        return error_set(e, EINVAL, "ranks: %u of them; expected 1 to %d", m->ranks.len, JOB_WORKERS_MAX);
    for (uint32_t i = 0; i < m->ranks.len; i++) {
        const struct worker_rank *k = &m->ranks.at[i];
        if (k->number >= job->sub->group->workers.len)
            return error_set(e, ENOENT, "job %llu has no worker %u", (unsigned long long)m->id, k->number);
        if (k->rank < -JOB_WORKER_RANK_MAX || k->rank > JOB_WORKER_RANK_MAX)
            return error_set(e, ERANGE, "rank: %d is out of range; expected %d to %d", k->rank,
                             -JOB_WORKER_RANK_MAX, JOB_WORKER_RANK_MAX);
    }
    struct event_workers_ranked b = {.id = job->id, .ranks = {m->ranks.at, m->ranks.len}, .by = actor->user};
    core_emit(c, now_ms, EVENT_WORKERS_RANKED, &b);
    return 0;
}
