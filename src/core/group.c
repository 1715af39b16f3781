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
#include "model/signalname.h"
#include "state.h"

enum {
    RESTARTS_DEFAULT = 10,  // of a worker, when the job does not say how many retries
    RESTART_PAUSE_MAX_S = 300,
    MEMBERS_INTERVAL_MS = 1000,
    MEMBERS_PER_SECOND = 16384,  // lines of membership that one job's nodes are sent
};

int core_group_check_spec(const struct core *c, const struct spec *s, struct error *e) {
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
        return error_set(e, EINVAL,
                         "workers: %u-%u is not a range; expected a least number from 1 to the most",
                         s->workers_min, s->workers_max);
    if (s->worker_signal > SIGNAL_NUMBER_MAX)
        return error_set(e, ERANGE, "worker_signal: there is no signal %u", s->worker_signal);
    if (s->array.len)
        return error_set(e, EINVAL, "workers: an array has no workers; submit several jobs instead");
    if (s->launch == LAUNCH_STEPS || s->attach || s->pty || s->stdin_open || s->lease_s)
        return error_set(e, EINVAL, "workers: only a batch job has workers; use submit");
    if (s->tasks > 1 || s->nodes_min > 1 || s->nodes_max > 1)
        return error_set(
            e, EINVAL,
            "workers: a worker is one task on one node; give it more CPUs (--cpus-per-task) or ask for "
            "more workers");
    if (s->exclusive)
        return error_set(e, EINVAL,
                         "workers: a worker cannot have a node to itself; ask for all of its CPUs or GPUs");
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

// One piece of the allocation for each worker: a task of the request.
static void split(const struct core *c, const struct sched_alloc *a, struct arena *arena,
                  struct event_workers_placed *b) {
    uint32_t tasks = 0;
    for (uint32_t i = 0; i < a->node_count; i++)
        tasks += a->nodes[i].tasks;
    b->workers.at = arena_alloc(arena, (tasks + 1) * sizeof *b->workers.at);
    for (uint32_t i = 0; i < a->node_count; i++) {
        const struct sched_alloc_node *n = &a->nodes[i];
        uint32_t gpus = n->tasks ? n->gpu_count / n->tasks : 0;
        for (uint32_t t = 0; t < n->tasks; t++) {
            struct part *p = arena_alloc(arena, sizeof *p);
            *p = (struct part){.node = c->node_list.at[n->node - 1]->name,
                               .cpus = n->cpus / n->tasks,
                               .tasks = 1,
                               .memory_bytes = n->memory_bytes / n->tasks};
            p->gpus.at = arena_alloc(arena, (gpus + 1) * sizeof *p->gpus.at);
            for (; p->gpus.len < gpus; p->gpus.len++) {
                const struct sched_alloc_gpu *g = &n->gpus[t * gpus + p->gpus.len];
                p->gpus.at[p->gpus.len] = (struct gpu_grant){g->index, g->milli};
            }
            b->workers.at[b->workers.len++] = (struct placed_worker){.part = p};
        }
    }
    if (b->workers.len > 1)
        qsort(b->workers.at, b->workers.len, sizeof *b->workers.at, by_node_name);
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
    uint32_t used = 0;
    split(c, s->alloc, &arena, &b);
    for (uint32_t i = 0; i < g->workers.len && used < b.workers.len; i++) {
        const struct core_job *j = core_worker_job(c, &g->workers.at[i]);
        if (!j)
            continue;
        b.workers.at[used].number = i;
        b.workers.at[used].id = j->id;
        b.workers.at[used++].attempt = core_next_attempt(c, j);
    }
    assert(used == b.workers.len && used);
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

void core_launch_later(struct core *c, const struct core_job *j) {
    for (uint32_t i = 0; i < c->late_launches.len; i++)
        if (c->late_launches.at[i] == j->id)
            return;
    vec_push(&c->late_launches, j->id);
    c->next_group_ms = 0;
}

static void launch_late(struct core *c, int64_t now_ms) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < c->late_launches.len; i++) {
        struct core_job *j = core_find_job(c, c->late_launches.at[i]);
        if (!j || !j->run || j->run->ending || j->state != JOB_STARTING)
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

// --- ends ---

// Whether the whole job goes back to the queue once all of its workers have ended.
static bool goes_back(const struct core_job *job) {
    const struct core_run *r = job->run;
    cleanup_arena struct arena a = {0};
    struct spec s;
    if (!r->ending)
        return false;
    if (r->cause == END_REQUEUE ||
        (job->sub->requeue && (r->cause == END_PREEMPT || r->cause == END_NODE_FAIL)))
        return true;
    if (r->cause != END_EXIT)
        return false;
    core_spec_of(job, &a, &s);
    return s.on_worker_end == WORKER_END_FAIL && job->retried < s.retries;
}

static enum job_state state_after(enum end_cause cause) {
    return core_part_state(&(struct run_part){.cause = cause});
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
                                   .retry = cause == END_EXIT};
    core_emit(c, now_ms, EVENT_JOB_REQUEUED, &b);
}

static uint32_t pause_s(const struct spec *s, uint32_t restarts) {
    uint64_t pause = s->backoff_s ? s->backoff_s : 1;
    for (uint32_t i = 0; i < restarts && pause < RESTART_PAUSE_MAX_S; i++)
        pause *= 2;
    return (uint32_t)(pause < RESTART_PAUSE_MAX_S || pause == s->backoff_s ? pause : RESTART_PAUSE_MAX_S);
}

// Its program failed and it may be run again: where it was, if that is its own piece.
static bool restart_worker(struct core *c, struct core_job *j, const struct spec *s, const struct run_part *p,
                           const char *reason, int64_t now_ms) {
    uint32_t most = s->retries ? s->retries : RESTARTS_DEFAULT;
    char text[160];
    if (s->on_worker_end != WORKER_END_RESTART || j->retried >= most || core_texts_lost(j))
        return false;
    int64_t begin_ms = now_ms + 1000 * (int64_t)pause_s(s, j->retried);
    if (p->cause == END_EXIT)
        snprintf(text, sizeof text, "%s %u; restart %u of %u",
                 p->exit_signal ? "ended by signal" : "exit status",
                 p->exit_signal ? p->exit_signal : (uint32_t)p->exit_code, j->retried + 1u, most);
    else
        snprintf(text, sizeof text, "%.100s; restart %u of %u", reason ? reason : "failed", j->retried + 1u,
                 most);
    if (!(core_worker_of(j)->flags & GROUP_PIECE) || p->node->state != NODE_UP || p->node->removed) {
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
    if (p->cause == END_TIMEOUT || s.on_worker_end != WORKER_END_CONTINUE)
        core_begin_ending(c, job, &how, now_ms);
}

void core_group_worker_done(struct core *c, struct core_job *j, const struct run_part *p, const char *reason,
                            bool never_ran, int64_t now_ms) {
    struct core_job *job = core_group_job(c, j);
    bool cancelled = j->run->ending && j->run->cause == END_CANCEL;
    bool too_often = !never_ran && j->attempt - j->uncounted >= c->config.max_attempts;
    if (job->run->ending) {
        if (goes_back(job) && !(cancelled && job->run->cause != END_CANCEL))
            requeue_worker(c, j, job->run->cause, reason, never_ran, 0, now_ms);
        else
            end_worker(c, j, p, reason, now_ms);
    } else if (cancelled || core_part_state(p) == JOB_COMPLETED) {
        end_worker(c, j, p, reason, now_ms);
    } else if (!too_often && !core_texts_lost(j) &&
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
                                   .reason = r->ending ? r->reason : "none of its workers runs any more",
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
            core_end_pending(c, j, JOB_CANCELLED, NULL, "its job has ended", now_ms);
    }
    if (r->ending && r->cause != END_EXIT) {
        b.state = state_after(r->cause);
    } else if (g->worst_state) {
        b.state = (enum job_state)g->worst_state;
        b.exit_code = g->worst_code;
        b.exit_signal = g->worst_signal;
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
    for (uint32_t i = 0; i < g->workers.len; i++) {
        const struct core_job *j = core_worker_job(c, &g->workers.at[i]);
        if (j && j->run)
            return;
        waits |= j && g->workers.at[i].flags & GROUP_MINIMUM;
    }
    if (job->run->ending ? goes_back(job) && waits : waits)
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

static void shrink_to(struct core *c, const struct core_job *job, uint32_t max, const char *by,
                      int64_t now_ms) {
    const struct group *g = job->sub->group;
    VEC(struct leaver) live = {0};
    for (uint32_t i = 0; i < g->workers.len; i++) {
        const struct group_worker *w = &g->workers.at[i];
        const struct core_job *j = core_worker_job(c, w);
        if (!j || told_to_leave(j))
            continue;
        int kind = !j->run ? (w->flags & GROUP_MINIMUM ? 1 : 0) : core_is_optional(j) ? 2 : 3;
        vec_push(&live, ((struct leaver){i, kind, !(w->flags & GROUP_IDLE), w->rank}));
    }
    if (live.len)
        qsort(live.at, live.len, sizeof *live.at, by_leaving);
    for (uint32_t i = 0; i + max < live.len; i++) {
        struct core_job *j = core_find_job(c, g->workers.at[live.at[i].number].id);
        struct event_job_ending how = {.cause = END_CANCEL, .by = by, .reason = "the job was made smaller"};
        if (j->run)
            core_begin_ending(c, j, &how, now_ms);
        else
            core_end_pending(c, j, JOB_CANCELLED, by, how.reason, now_ms);
    }
    vec_done(&live);
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
    core_spec_of(job, &a, &s);
    s.workers_max = m->workers_max;
    s.workers_min = m->workers_min ? m->workers_min : g->min < m->workers_max ? g->min : m->workers_max;
    uint32_t live = 0;
    for (uint32_t i = 0; i < g->workers.len; i++) {
        const struct core_job *j = core_worker_job(c, &g->workers.at[i]);
        live += j && !told_to_leave(j);
    }
    struct event_job_resized b = {.id = job->id,
                                  .workers_min = s.workers_min,
                                  .workers_max = s.workers_max,
                                  .added = s.workers_max > live ? s.workers_max - live : 0,
                                  .first_id = c->next_id,
                                  .by = actor->user};
    if (!s.workers_max)
        return error_set(e, EINVAL, "workers: a job has at least one; cancel it to end it");
    struct actor owner = {.user = job->sub->user, .uid = job->sub->uid, .admin = true};
    if ((r = core_check_spec(c, &owner, &s, job->id, now_ms, e)) < 0 ||
        (r = core_check_room(c, &owner, b.added, e)) < 0)
        return r;
    if (g->workers.len + b.added > 16 * JOB_WORKERS_MAX)
        return error_set(e, E2BIG, "job %llu has had %u workers; no more are possible",
                         (unsigned long long)m->id, g->workers.len);
    core_emit(c, now_ms, EVENT_JOB_RESIZED, &b);
    shrink_to(c, job, b.workers_max, actor->user, now_ms);
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

// --- membership ---

static enum worker_state state_of(const struct core_job *j) {
    return !j                         ? WORKER_LEFT
           : !j->run                  ? WORKER_WAITING
           : j->run->ending           ? WORKER_LEAVING
           : j->state == JOB_STARTING ? WORKER_STARTING
                                      : WORKER_RUNNING;
}

// One JSON line for each worker that was ever placed or waits.
static void member_lines(const struct core *c, const struct group *g, struct buf *out) {
    for (uint32_t i = 0; i < g->workers.len; i++) {
        const struct group_worker *m = &g->workers.at[i];
        const struct core_job *j = core_worker_job(c, m);
        const struct run_part *p = j && j->run && j->run->part_count ? &j->run->parts[0] : NULL;
        struct json_writer w = {.out = out};
        if (!j && (!m->node || g->workers.len > JOB_WORKERS_MAX))
            continue;  // of very many that have come and gone only those who are there are told
        json_open(&w, '{');
        json_kv_i64(&w, "worker", i);
        json_kv_str(&w, "component", "worker");
        json_kv_i64(&w, "job", (int64_t)m->id);
        json_kv_str(&w, "state", job_worker_state_words[state_of(j)]);
        json_kv_bool(&w, "optional", j && core_is_optional(j));
        if (p) {
            json_kv_i64(&w, "attempt", j->attempt);
            json_kv_str(&w, "node", p->node->name);
            json_kv_str(&w, "address",
                        str_empty(p->node->node->address) ? p->node->name : p->node->node->address);
            json_kv_i64(&w, "cpus", p->cpus);
            json_key(&w, "gpus");
            json_open(&w, '[');
            for (uint32_t k = 0; k < p->gpu_count; k++)
                json_put_u64(&w, p->gpus[k].index);
            json_close(&w, ']');
        }
        json_close(&w, '}');
        buf_add(out, "\n", 1);
    }
}

void core_group_members(const struct core *c, const struct core_job *worker, struct arena *a,
                        struct message_workers *out) {
    cleanup_buf struct buf lines = {0};
    const struct group *g = worker->sub->group;
    struct spec s;
    core_spec_of(worker, a, &s);
    member_lines(c, g, &lines);
    *out = (struct message_workers){.job = g->id, .generation = g->generation, .signal = s.worker_signal};
    out->lines = (struct bytes){arena_memdup(a, lines.data, lines.len), lines.len};
}

void core_group_send_members(struct core *c, const struct core_job *worker, const struct run_part *p) {
    cleanup_arena struct arena a = {0};
    struct message_workers m;
    uint64_t id = core_agent_job(worker);
    uint32_t attempt = worker->attempt;
    core_group_members(c, worker, &a, &m);
    m.ids.at = &id;
    m.attempts.at = &attempt;
    m.ids.len = m.attempts.len = 1;
    core_effect_send(c, p->node->name, MESSAGE_WORKERS, &m);
}

struct member {
    const struct core_job *job;
    const struct node_entry *node;
};

static int by_member_node(const void *a, const void *b) {
    const struct member *x = a, *y = b;
    return x->node->handle != y->node->handle ? (x->node->handle < y->node->handle ? -1 : 1)
                                              : (x->job->id > y->job->id) - (x->job->id < y->job->id);
}

// One message to each node that runs workers of the job, from node `send_from` on and as many as may be sent at once.
// True when all nodes have it.
static bool send_to_nodes(struct core *c, struct group *g) {
    cleanup_arena struct arena a = {0};
    VEC(struct member) members = {0};
    struct message_workers m = {0};
    uint32_t lines = 0, i = 0;
    for (uint32_t k = 0; k < g->workers.len; k++) {
        const struct core_job *j = core_worker_job(c, &g->workers.at[k]);
        if (j && j->run && j->run->part_count && j->run->parts[0].started && !j->run->parts[0].ended &&
            j->run->parts[0].node->handle >= g->send_from)
            vec_push(&members, ((struct member){j, j->run->parts[0].node}));
    }
    if (members.len) {
        qsort(members.at, members.len, sizeof *members.at, by_member_node);
        core_group_members(c, members.at[0].job, &a, &m);
        m.ids.at = arena_alloc(&a, members.len * sizeof *m.ids.at);
        m.attempts.at = arena_alloc(&a, members.len * sizeof *m.attempts.at);
    }
    for (; i < members.len && lines < MEMBERS_PER_SECOND; i++) {
        m.ids.at[m.ids.len++] = core_agent_job(members.at[i].job);
        m.attempts.at[m.attempts.len++] = members.at[i].job->attempt;
        g->send_from = members.at[i].node->handle + 1;
        if (i + 1 < members.len && members.at[i + 1].node == members.at[i].node)
            continue;
        core_effect_send(c, members.at[i].node->name, MESSAGE_WORKERS, &m);
        m.ids.len = m.attempts.len = 0;
        lines += g->workers.len;
    }
    bool all = i == members.len;
    if (all)
        g->send_from = 0;
    vec_done(&members);
    return all;
}

static void send_changed(struct core *c, int64_t now_ms) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < c->changed_groups.len; i++) {
        struct group *g = map_get(&c->groups, c->changed_groups.at[i]);
        if (!g)
            continue;
        bool all = false;
        if (now_ms >= g->next_send_ms) {
            if (!g->send_from)
                g->send_generation = g->generation;
            all = send_to_nodes(c, g) && g->send_generation == g->generation;
            g->next_send_ms = now_ms + MEMBERS_INTERVAL_MS;
        }
        g->listed = !all;
        if (all)
            continue;
        c->changed_groups.at[kept++] = g->id;
        if (g->next_send_ms < c->next_group_ms)
            c->next_group_ms = g->next_send_ms;
    }
    c->changed_groups.len = kept;
}

void core_group_tasks(struct core *c, int64_t now_ms) {
    c->next_group_ms = INT64_MAX;
    launch_late(c, now_ms);
    send_changed(c, now_ms);
}

// --- views ---

void core_group_record(const struct core *c, const struct core_job *j, struct arena *a,
                       struct job_record *out) {
    const struct group *g = j->sub->group;
    if (core_is_worker(j)) {
        out->job = g->id;
        out->worker = j->array_index;
        return;
    }
    out->workers.at = arena_alloc(a, (g->workers.len + 1) * sizeof *out->workers.at);
    for (uint32_t i = 0; i < g->workers.len; i++) {
        const struct group_worker *from = &g->workers.at[i];
        const struct core_job *w = core_worker_job(c, from);
        struct worker *to = &out->workers.at[out->workers.len++];
        *to = (struct worker){.number = i,
                              .id = from->id,
                              .state = state_of(w),
                              .rank = from->rank,
                              .idle = from->flags & GROUP_IDLE,
                              .exit_code = from->exit_code,
                              .exit_signal = from->exit_signal};
        if (from->node)
            to->node = c->node_list.at[from->node - 1]->name;
        if (w) {
            to->attempt = w->attempt;
            to->optional = j->run ? core_is_optional(w) : i >= g->min;
        } else {
            to->ended = job_state_words[from->state];
        }
    }
}

void core_group_counts(const struct core *c, const struct group *g, struct core_group_counts *out) {
    *out = (struct core_group_counts){.most = g->max, .least = g->min};
    for (uint32_t i = 0; i < g->workers.len; i++) {
        const struct core_job *j = core_worker_job(c, &g->workers.at[i]);
        if (!j || !j->run)
            continue;
        out->running++;
        for (uint32_t k = 0; k < j->run->part_count; k++) {
            const struct run_part *p = &j->run->parts[k];
            out->cpus += p->cpus;
            out->memory_bytes += p->memory_bytes;
            for (uint32_t n = 0; n < p->gpu_count; n++)
                out->gpus_milli += p->gpus[n].milli;
        }
    }
}

// The nodes of its workers in this attempt, each once.
uint32_t core_group_nodes(const struct core *c, const struct group *g, const char **names, uint32_t max) {
    uint8_t seen[SCHED_NODES_MAX / 8 + 1] = {0};
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->workers.len && n < max; i++) {
        uint32_t node = g->workers.at[i].node;
        if (!node || seen[node / 8] & 1u << node % 8)
            continue;
        seen[node / 8] |= (uint8_t)(1u << node % 8);
        names[n++] = c->node_list.at[node - 1]->name;
    }
    return n;
}
