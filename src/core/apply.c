// Changes of the state by events about jobs, one function per event. Nothing here decides, fails or sends; an
// event about a job that does not exist changes nothing.
#include <assert.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "removal.h"
#include "state.h"

// Puts a job into every index but the scheduler's.
void core_job_link(struct core *c, struct core_job *j) {
    map_put(&c->jobs, j->id, j);
    core_order_add(c, j);
    core_user_count(c, j->sub->user)->live++;
    if (core_is_worker(j))
        return;  // its job counts for all of its workers
    core_same_name_add(c, j);
    core_service_job_linked(c, j);
    c->deadlines += core_may_be_removed(j->sub);
    c->time_warnings += core_wants_time_warning(j->sub);
    if (j->sub->lease_s)
        core_lease_add(c, j->id, 0);
    if (j->sub->array)
        j->sub->array->singletons += core_depend_is_singleton(j->sub);
    c->counts.by_state[j->state]++;
}

void core_job_unlink(struct core *c, struct core_job *j, int64_t at_ms) {
    map_remove(&c->jobs, j->id);
    core_order_remove(c, j);
    core_user_count(c, j->sub->user)->live--;
    if (!core_is_worker(j)) {
        core_same_name_remove(c, j);
        core_service_job_gone(c, j, at_ms);
        c->deadlines -= core_may_be_removed(j->sub);
        c->time_warnings -= core_wants_time_warning(j->sub);
        if (j->sub->array)
            j->sub->array->singletons -= core_depend_is_singleton(j->sub);
    }
    core_depend_detach(c, j);
    core_depend_notify(c, j, at_ms);
    if (!core_is_worker(j))
        core_depend_singleton(c, j, at_ms);
}

void core_job_free(struct core *c, struct core_job *j) {
    free(j->usage);
    free(map_remove(&c->preempted_why, j->id));
    core_promise_forget(c, j);
    core_submission_unref(c, j->sub);
    free(j);
}

static void apply_submitted(struct core *c, int64_t at_ms, const struct event_job_submitted *b) {
    struct submission *s = core_submission_new(c, b->id, b->spec, b->submit_ms ? b->submit_ms : at_ms);
    uint64_t end = b->id + s->count;
    s->refs++;  // until the jobs are there
    core_depend_parse(s, b->spec);
    if (s->is_array) {
        s->array = core_array_new(c, s->id, s->count, b->spec->array.at, b->spec->array.len);
        s->array->limit = s->limit;
        s->array->sub = s;
        s->refs++;
        c->uncreated += s->count;
        core_user_count(c, s->user)->live += s->count;
        core_array_create(c, s->array, b->created ? b->created : s->count, at_ms);
    } else {
        struct core_job *j = xcalloc(1, sizeof *j);
        *j = (struct core_job){.id = b->id,
                               .sub = s,
                               .begin_ms = s->begin_ms,
                               .flags = (uint8_t)(s->hold ? HELD_USER : 0),
                               .version = c->seq};
        s->refs++;
        if (b->spec->workers_max)
            core_group_attach(c, s, b->spec);
        core_job_link(c, j);
        core_depend_attach(c, j, at_ms);
        if (s->group)
            end = core_group_add_first_workers(c, s, end);
        if (s->group && b->submit_ms)
            core_note_numbers(c, b->id, end - b->id);
        core_job_to_world(c, j);
    }
    c->counts.submitted += s->count;
    if (b->key)
        core_key_add(c, b->key, s->user, b->id, s->count);
    if (c->next_id < end)
        c->next_id = end;
    core_submission_unref(c, s);
    c->dirty = true;
}

static void set_state(struct core *c, struct core_job *j, enum job_state state) {
    if (!core_is_worker(j)) {
        c->counts.by_state[j->state]--;
        c->counts.by_state[state]++;
    }
    j->state = (uint8_t)state;
}

static void apply_held(struct core *c, struct core_job *j, const struct event_job *b, bool held) {
    uint8_t flag = b->by_admin ? HELD_ADMIN : HELD_USER;
    uint8_t clear = b->by_admin ? HELD_ADMIN | HELD_USER : HELD_USER;
    j->flags = (uint8_t)(held ? j->flags | flag : j->flags & ~clear);
    core_job_hold_changed(c, j);
    c->dirty = true;
}

int64_t core_run_paused_ms(const struct core_job *j, int64_t now_ms) {
    if (!j->run)
        return 0;
    int64_t pause = j->state == JOB_SUSPENDED ? now_ms - j->run->suspend_ms : 0;
    return j->run->suspended_ms + (pause > 0 ? pause : 0);
}

// Time spent suspended does not count towards the time limit.
void core_limit_to_world(struct core *c, const struct core_job *j) {
    if (j->run->time_limit_s)
        world_job_limit(c->world, j->id, (int64_t)j->run->time_limit_s * 1000 + j->run->suspended_ms);
}

// Only a limit that was itself changed counts: a job may run with less than it asked for (an interactive one's limit).
bool core_limit_changes(const struct submission *old, const struct submission *s) {
    return s->time_limit_s && s->time_limit_s != old->time_limit_s;
}

// An element that is changed gets a submission of its own; submit time, texts and index stay.
void core_apply_updated(struct core *c, struct core_job *j, int64_t at_ms,
                        const struct event_job_updated *b) {
    struct submission *old = j->sub, *s = core_submission_new(c, old->id, b->spec, old->submit_ms);
    s->count = old->count;
    s->is_array = old->is_array;
    s->array = old->array;
    s->group = old->group;
    s->limit = s->array ? b->spec->array_limit : 0;
    s->refs = 1;
    bool paused = j->attempt && s->begin_ms == old->begin_ms;  // before it is run again
    core_same_name_remove(c, j);
    if (!streq(s->name, old->name))
        core_depend_singleton(c, j, at_ms);
    if (j->state == JOB_PENDING)
        world_job_remove(c->world, j->id);
    else if (j->run && core_limit_changes(old, s)) {
        j->run->time_limit_s = s->time_limit_s;
        core_limit_to_world(c, j);
    }
    if (s->group)
        core_group_submission(c, j, s, b->spec);
    core_depend_parse(s, b->spec);
    core_depend_detach(c, j);
    c->deadlines += (uint64_t)core_may_be_removed(s) - core_may_be_removed(old);
    c->time_warnings += core_wants_time_warning(s) - core_wants_time_warning(old);
    if (s->array)
        s->array->singletons += (uint64_t)core_depend_is_singleton(s) - core_depend_is_singleton(old);
    j->sub = s;
    core_submission_unref(c, old);
    core_same_name_add(c, j);
    if (j->state == JOB_PENDING) {
        j->begin_ms = paused ? j->begin_ms : s->begin_ms;
        core_depend_attach(c, j, at_ms);
        core_job_to_world(c, j);
    }
    if (s->array && s->array->limit != s->limit)
        core_array_set_limit(c, s->array, s->limit);
    c->dirty = true;
}

static void node_take(struct node_entry *n, const struct run_part *p, int sign) {
    n->cpus_used += (uint32_t)sign * p->cpus;
    n->memory_used_bytes += (uint64_t)(int64_t)sign * p->memory_bytes;
    for (uint32_t g = 0; g < p->gpu_count; g++)
        n->gpus_used_milli += (uint32_t)sign * p->gpus[g].milli;
}

static void node_job_add(struct node_entry *n, struct core_job *j) {
    uint32_t i = n->jobs.len;
    vec_push(&n->jobs, j);
    for (; i > 0 && n->jobs.at[i - 1]->id > j->id; i--)
        n->jobs.at[i] = n->jobs.at[i - 1];
    n->jobs.at[i] = j;
}

static void node_job_remove(struct node_entry *n, const struct core_job *j, int64_t at_ms) {
    n->busy_ms = at_ms;
    for (uint32_t i = 0; i < n->jobs.len; i++)
        if (n->jobs.at[i] == j) {
            vec_remove(&n->jobs, i);
            return;
        }
}

static struct sched_alloc *alloc_of(const struct core_run *r) {
    uint32_t gpus = 0;
    for (uint32_t i = 0; i < r->part_count; i++)
        gpus += r->parts[i].gpu_count;
    struct sched_alloc *a = sched_alloc_new(r->part_count, gpus);
    struct sched_alloc_gpu *at = sched_alloc_gpus(a);
    for (uint32_t i = 0; i < r->part_count; i++) {
        const struct run_part *p = &r->parts[i];
        a->nodes[i] = (struct sched_alloc_node){.node = p->node->handle, .cpus = p->cpus, .tasks = p->tasks,
                                          .memory_bytes = p->memory_bytes, .gpus = at, .gpu_count = p->gpu_count};
        for (uint32_t g = 0; g < p->gpu_count; g++)
            *at++ = (struct sched_alloc_gpu){(uint16_t)p->gpus[g].index, (uint16_t)p->gpus[g].milli};
    }
    return a;
}

static void run_to_world(struct core *c, const struct core_job *j) {
    if (core_is_group(j)) {
        core_group_run_to_world(c, j);
        return;
    }
    if (core_is_worker(j) && !core_worker_in_world(c, j))
        return;
    struct sched_alloc *a = alloc_of(j->run);
    world_job_start_in(c->world, j->id, core_handle(c, ENTITY_PARTITION, j->run->partition), a, j->start_ms);
    core_limit_to_world(c, j);
    sched_alloc_free(a);
}

static void apply_ending(struct core *c, struct core_job *j, int64_t at_ms, const struct event_job_ending *b);

static void pause_over(struct core *c, struct core_job *j, int64_t at_ms) {
    j->run->suspended_ms = core_run_paused_ms(j, at_ms);
    j->run->suspend_ms = at_ms;
    core_limit_to_world(c, j);
}

static void apply_suspended(struct core *c, struct core_job *j, int64_t at_ms, bool resumed) {
    const struct group *g = core_is_group(j) ? j->sub->group : NULL;
    for (uint32_t i = 0; g && i < g->workers.len; i++) {
        struct core_job *w = core_find_job(c, g->workers.at[i].id);
        if (w && w->state == (resumed ? JOB_SUSPENDED : JOB_RUNNING))
            apply_suspended(c, w, at_ms, resumed);
    }
    if (!j->run)
        return;
    if (resumed)
        pause_over(c, j, at_ms);
    else
        j->run->suspend_ms = at_ms;
    set_state(c, j, resumed ? JOB_RUNNING : JOB_SUSPENDED);
    for (uint32_t i = 0; g && i < g->workers.len; i++) {
        struct core_job *w = core_find_job(c, g->workers.at[i].id);
        if (w)
            core_job_hold_changed(c, w);
    }
}

// A claim that a later release wrote counts as the strongest one known here.
enum sched_claim core_claim_read(uint32_t claim) {
    return claim < SCHED_CLAIM_COUNT ? (enum sched_claim)claim : SCHED_CLAIM_SHARE;
}

// The job it was preempted for; 0: none.
static uint64_t makes_room_for(const struct core_job *j) {
    uint64_t for_job = 0;
    if (j->run->cause == END_PREEMPT && j->run->by)
        parse_u64(j->run->by, &for_job);
    return for_job;
}

// After a snapshot is loaded: derives the scheduler's world, node usage and dependencies from the jobs.
void core_jobs_to_world(struct core *c) {
    for (uint32_t i = 0; i < c->order.len; i++) {
        struct core_job *j = c->order.at[i].job;
        struct array *a = j->sub->array;
        if (a && a->limit && !(j->flags & WAITS_ARRAY) && j->id - a->id < a->limited)
            a->active++;
        if (core_feature(c, FEATURE_ARRAY_SLICES))
            core_depend_link(c, j);
        else if (core_job_waits(j))
            core_depend_attach(c, j, j->sub->submit_ms);
        core_job_to_world(c, j);
        for (uint32_t k = 0; j->run && k < j->run->part_count; k++) {
            struct run_part *p = &j->run->parts[k];
            if (!p->ended) {
                node_take(p->node, p, 1);
                node_job_add(p->node, j);
            }
        }
        if (j->run)
            run_to_world(c, j);
        if (core_is_worker(j)) {
            core_worker_rank_to_world(c, core_worker_of(j));
            if (j->run && j->state == JOB_STARTING && j->begin_ms)
                j->run->delayed = true;
        }
    }
    for (uint32_t i = 0; i < c->order.len; i++)
        if (c->order.at[i].job->state == JOB_STARTING && core_launch_waits(c, c->order.at[i].job))
            core_launch_later(c, c->order.at[i].job);
    // In a pass of its own: most are preempted for a job with a larger id. A job that has started since and is
    // pending again is no preemptor any more.
    for (uint32_t i = 0; i < c->order.len; i++)
        if (c->order.at[i].job->run && c->order.at[i].job->run->ending)
            world_job_ending(c->world, c->order.at[i].job->id, makes_room_for(c->order.at[i].job));
    for (uint32_t i = 0; i < c->order.len; i++)
        world_job_preemptor_set(c->world, c->order.at[i].job->id, c->order.at[i].job->flags & TAKES);
}

void core_node_add(struct node_entry *n, const struct run_part *p, struct core_job *j) {
    node_take(n, p, 1);
    node_job_add(n, j);
}

// False: its node is not there.
static bool place_part(struct core *c, struct core_job *j, const struct part *from, struct run_part *p) {
    *p = (struct run_part){.node = core_find_node(c, from->node)};
    if (!p->node)
        return false;
    p->cpus = from->cpus;
    p->tasks = from->tasks;
    p->memory_bytes = from->memory_bytes;
    p->gpus = xmemdup(from->gpus.at, from->gpus.len * sizeof *p->gpus);
    p->gpu_count = from->gpus.len;
    core_node_add(p->node, p, j);
    return true;
}

void core_place(struct core *c, struct core_job *j, const struct part *parts, uint32_t count) {
    struct core_run *r = xcalloc(1, sizeof *r);
    r->parts = xcalloc(count + 1, sizeof *r->parts);
    for (uint32_t i = 0; i < count; i++)
        r->part_count += place_part(c, j, &parts[i], &r->parts[r->part_count]);
    j->run = r;
}

void core_begin_attempt(struct core *c, struct core_job *j, uint32_t attempt, int64_t start_ms) {
    // What has begun waits for nothing any more, also when it is queued again: an adopted job may name others that a
    // restored copy does not know.
    core_depend_detach(c, j);
    j->flags &= (uint8_t) ~(WAITS_DEPENDENCY | DEPENDENCY_NEVER | TAKES);
    j->steps = 0;
    if (j->usage && j->usage->earlier_attempts) {  // usage is of the newest attempt, as start and end are
        usage_attempt_begins(j->usage);
    } else {
        free(j->usage);
        j->usage = NULL;
    }
    if (j->run)
        j->run->begun_seq = c->seq;
    j->attempt = attempt;
    j->start_ms = start_ms;
    if (!j->eligible_ms)
        j->eligible_ms = start_ms;
    set_state(c, j, JOB_STARTING);
    if (core_launch_waits(c, j))  // for an optional worker that was being ended before
        core_launch_later(c, j);
}

static void apply_placed(struct core *c, struct core_job *j, int64_t at_ms,
                         const struct event_job_placed *b) {
    core_place(c, j, b->parts.at, b->parts.len);
    struct core_run *r = j->run;
    r->time_limit_s = b->time_limit_s;
    r->partition = b->partition ? core_intern(c, b->partition) : NULL;
    r->epoch = b->epoch;
    r->seq = !b->epoch ? 0 : b->placed_seq ? b->placed_seq : c->seq;
    r->agent_id = b->agent_id;
    r->adopted = b->reason != NULL;
    for (uint32_t i = 0; r->adopted && i < r->part_count; i++) {
        struct core_adopted k = {b->agent_id ? b->agent_id : b->id, b->attempt, b->epoch, r->parts[i].node->handle};
        core_note_adopted(c, &k);
    }
    r->reason = b->reason ? xstrdup(b->reason) : NULL;
    if (!j->eligible_ms)
        j->eligible_ms = at_ms;
    core_begin_attempt(c, j, b->attempt, b->start_ms ? b->start_ms : at_ms);
    run_to_world(c, j);
    if (core_is_worker(j)) {
        struct group *g = j->sub->group;
        core_worker_of(j)->node = r->part_count ? r->parts[0].node->handle : 0;
        if (r->adopted)
            j->begin_ms = 0;  // it runs
        if (g->generation < b->generation)
            g->generation = b->generation;
        core_group_changed(c, g);
    }
    if (r->adopted && j->sub->array && j->sub->array->limit)  // it came out of its turn: the others wait for it
        core_array_set_limit(c, j->sub->array, j->sub->array->limit);
    c->dirty = true;
}

static void apply_part_adopted(struct core *c, struct core_job *j, int64_t at_ms,
                               const struct event_part_adopted *b) {
    struct core_run *r = j->run;
    struct run_part part;
    uint32_t place = b->place < r->part_count ? b->place : r->part_count;
    if (!place_part(c, j, b->part, &part))
        return;
    r->parts = xrealloc(r->parts, (r->part_count + 2) * sizeof *r->parts);
    memmove(r->parts + place + 1, r->parts + place, (r->part_count - place) * sizeof *r->parts);
    r->parts[place] = part;
    r->part_count++;
    core_steps_part_added(j, place);
    core_note_adopted(c, &(struct core_adopted){core_agent_job(j), j->attempt, r->epoch, part.node->handle});
    struct sched_alloc *a = alloc_of(r);
    world_job_extend(c->world, j->id, a, at_ms);
    sched_alloc_free(a);
    if (core_is_worker(j)) {
        core_worker_of(j)->node = r->parts[0].node->handle;
        core_group_changed(c, j->sub->group);
    }
    c->dirty = true;
}

// Counts in its array that a job has started, or ended without having started, for the first time.
static void note_begun(struct core *c, struct core_job *j, int64_t at_ms) {
    struct array *a = j->sub->array;
    if (j->flags & HAS_BEGUN)
        return;
    j->flags |= HAS_BEGUN;
    if (a && ++a->begun == a->count) {
        a->begun_ms = at_ms;
        core_depend_array(c, a, at_ms);
    }
}

static void apply_started(struct core *c, struct core_job *j, int64_t at_ms, const struct event_job_started *b) {
    struct run_part *p = core_part_on(j, b->node);
    if (p && !p->started)
        p->started_seq = c->replaying ? 0 : c->seq;
    if (p)
        p->started = true;
    if (p && b->cpu_ids && !p->cpu_ids)
        p->cpu_ids = xstrdup(b->cpu_ids);
    // A worker's start is also its job's, if it is the first: an elastic job runs as soon as one of its
    // workers does.
    struct core_job *job = core_is_worker(j) ? core_group_job(c, j) : NULL;
    if (j->state == JOB_STARTING) {
        set_state(c, j, JOB_RUNNING);
        note_begun(c, j, at_ms);
        core_depend_notify(c, j, at_ms);
    }
    if (!job)
        return;
    if (job->state == JOB_STARTING) {
        set_state(c, job, JOB_RUNNING);
        note_begun(c, job, at_ms);
        core_depend_notify(c, job, at_ms);
    }
    // It was on its way when its job was suspended: it is suspended too, now that it runs.
    if (job->state == JOB_SUSPENDED && j->state == JOB_RUNNING)
        apply_suspended(c, j, at_ms, false);
    core_group_changed(c, j->sub->group);
}

// All workers end with their job; those that were cancelled before stay cancelled.
static void workers_ending(struct core *c, struct core_job *job, int64_t at_ms,
                           const struct event_job_ending *b) {
    const struct group *g = job->sub->group;
    for (uint32_t i = 0; i < g->workers.len; i++) {
        struct core_job *j = core_find_job(c, g->workers.at[i].id);
        if (j && j->run && !(j->run->ending && j->run->cause == END_CANCEL))
            apply_ending(c, j, at_ms, b);
    }
    core_group_waiting_to_world(c, job->sub->group, false);
}

// Jobs that were given what an optional worker holds are launched when it has ended.
static void launches_wait(struct core *c, const struct core_job *worker) {
    for (uint32_t i = 0; i < worker->run->part_count; i++) {
        const struct node_entry *n = worker->run->parts[i].node;
        for (uint32_t k = 0; k < n->jobs.len; k++)
            if (n->jobs.at[k]->state == JOB_STARTING && core_launch_waits(c, n->jobs.at[k]))
                core_launch_later(c, n->jobs.at[k]);
    }
}

static void apply_ending(struct core *c, struct core_job *j, int64_t at_ms, const struct event_job_ending *b) {
    struct core_run *r = j->run;
    if (!r)
        return;
    if (j->state == JOB_SUSPENDED)
        pause_over(c, j, at_ms);
    r->ending_ms = r->ending ? r->ending_ms : at_ms;
    r->ending = true;
    r->hold = b->hold;
    r->cause = b->cause;
    r->exit_code = b->exit_code;
    r->exit_signal = b->exit_signal;
    r->signal = b->signal;
    r->grace_s = b->grace_s;
    free(r->by);
    free(r->reason);
    r->by = b->by ? xstrdup(b->by) : NULL;
    r->reason = b->reason ? xstrdup(b->reason) : NULL;
    set_state(c, j, JOB_COMPLETING);
    // To the scheduler every ending is a preemption, for nobody if no job needs the room: what the job holds counts as
    // about to be free, so that no second victim is chosen for the same room.
    struct sched_preempt p = {.victim = j->id, .for_job = makes_room_for(j)};
    p.grounds = (struct sched_preemption){p.for_job, b->share, b->by_share, core_claim_read(b->claim)};
    world_job_preempt(c->world, &p);
    struct core_job *taker = core_find_job(c, p.for_job);
    // Nobody becomes a preemptor by the end of an optional worker: these give way to every job.
    if (taker && taker->state == JOB_PENDING && !core_is_optional(j))
        taker->flags |= TAKES;
    if (core_is_group(j))
        workers_ending(c, j, at_ms, b);
    if (core_is_optional(j))
        launches_wait(c, j);
    if (core_is_worker(j))
        core_group_changed(c, j->sub->group);
}

static void apply_part_ended(struct core *c, struct core_job *j, int64_t at_ms, const struct event_part_ended *b) {
    struct run_part *p = core_part_on(j, b->node);
    if (!p || p->ended)
        return;
    p->ended = true;
    p->cause = b->cause;
    p->exit_code = b->exit_code;
    p->exit_signal = b->exit_signal;
    p->launch_failed = b->launch_failed;
    // The first reason is the cause; the other parts end because of it.
    if (b->reason && !j->run->end_reason)
        j->run->end_reason = xstrdup(b->reason);
    if (b->usage) {
        if (!j->usage)
            j->usage = xcalloc(1, sizeof *j->usage);
        usage_add(j->usage, b->usage);
        struct core_job *job = core_is_worker(j) ? core_group_job(c, j) : NULL;
        if (job && !job->usage)
            job->usage = xcalloc(1, sizeof *job->usage);
        if (job)
            usage_add(job->usage, b->usage);
    }
    node_take(p->node, p, -1);
    node_job_remove(p->node, j, at_ms);
}

// Ends the attempt; parts that never reported an end (their node is gone) release their resources too.
static void run_end(struct core *c, struct core_job *j, int64_t at_ms) {
    if (!j->run)
        return;
    for (uint32_t i = 0; i < j->run->part_count; i++) {
        struct run_part *p = &j->run->parts[i];
        if (!p->ended) {
            node_take(p->node, p, -1);
            node_job_remove(p->node, j, at_ms);
        }
    }
    // A worker of the minimum holds a piece of its job's allocation. The scheduler knows only the whole, as
    // one running job, which gets smaller by the piece.
    bool piece = core_is_worker(j) && core_worker_of(j)->flags & GROUP_PIECE;
    if (!piece)
        world_job_end(c->world, j->id, at_ms);
    core_steps_free(c, j->run->steps);
    j->run->steps = NULL;
    j->run = core_run_free(j->run);
    if (!piece)
        return;
    core_worker_of(j)->flags &= (uint8_t)~GROUP_PIECE;
    const struct core_job *job = core_group_job(c, j);
    if (job->run)
        core_group_pieces_to_world(c, job, at_ms);
}

static void array_ended(struct core *c, struct core_job *j, bool ok, int64_t at_ms) {
    struct array *a = j->sub->array;
    note_begun(c, j, at_ms);
    a->ended++;
    a->ended_ok += ok;
    a->live--;
    if (!ok && a->live && a->ended == a->ended_ok + 1)
        core_depend_array(c, a, at_ms);  // the first failure: afterok can no longer hold
    if (a->limit && !(j->flags & WAITS_ARRAY) && j->id - a->id < a->limited) {
        a->active--;
        core_array_fill(c, a);
    }
    if (a->live)
        return;
    core_outcome_add(c, a->id | OUTCOME_ARRAY, a->ended_ok == a->count, true, (uint32_t)(a->begun_ms / 1000));
    map_remove(&c->arrays, a->id);
    core_depend_array(c, a, at_ms);
    core_array_free(c, a);
}

static void apply_ended(struct core *c, struct core_job *j, int64_t at_ms, const struct event_job_ended *b) {
    bool ok = b->state == JOB_COMPLETED;
    if (core_is_worker(j))
        core_group_worker_ended(c, j, b);
    if (j->run)
        run_end(c, j, at_ms);
    else
        world_job_remove(c->world, j->id);
    set_state(c, j, b->state);
    core_outcome_add(c, j->id, ok, b->attempt > 0, (uint32_t)(j->start_ms / 1000));
    core_job_unlink(c, j, at_ms);
    if (j->sub->array)
        array_ended(c, j, ok, at_ms);
    if (core_is_group(j))
        core_group_ended(c, j, at_ms);
    core_job_free(c, j);
    c->dirty = true;
}

// The job goes on after this attempt: what it held and used is kept for reports.
void core_count_attempt(struct core_job *j, int64_t at_ms) {
    uint64_t cpus = 0, gpus_milli = 0;
    if (!j->run || !j->start_ms)
        return;
    for (uint32_t i = 0; i < j->run->part_count; i++) {
        cpus += j->run->parts[i].cpus;
        for (uint32_t g = 0; g < j->run->parts[i].gpu_count; g++)
            gpus_milli += j->run->parts[i].gpus[g].milli;
    }
    if (!j->usage)
        j->usage = xcalloc(1, sizeof *j->usage);
    usage_attempt_ended(j->usage, j->start_ms, at_ms, cpus, gpus_milli);
}

static void apply_requeued(struct core *c, struct core_job *j, int64_t at_ms, const struct event_job_requeued *b) {
    uint32_t preempted = 0;
    cleanup_free struct sched_preemption *by =
        b->cause == END_PREEMPT ? world_job_preemptions(c->world, j->id, &preempted) : NULL;
    char *why = b->cause == END_PREEMPT && j->run && j->run->reason ? xstrdup(j->run->reason) : NULL;
    core_count_attempt(j, at_ms);
    run_end(c, j, at_ms);
    set_state(c, j, JOB_PENDING);
    c->counts.requeued++;
    if (b->cause == END_PREEMPT) {
        j->preempted += j->preempted < UINT16_MAX;
        c->counts.preempted++;
        free(map_remove(&c->preempted_why, j->id));
        if (why)
            map_put(&c->preempted_why, j->id, why);
    }
    j->uncounted += b->uncounted && j->uncounted < UINT16_MAX;
    j->retried += b->retry && j->retried < UINT16_MAX;
    if (b->hold)
        j->flags |= HELD_USER;
    j->begin_ms = b->begin_ms;
    j->start_ms = 0;
    if (core_is_group(j))
        core_group_waiting_to_world(c, j->sub->group, false);
    core_job_to_world(c, j);
    if (core_is_worker(j))
        core_group_changed(c, j->sub->group);
    world_job_preemptions_set(c->world, j->id, by, preempted);
    struct array *a = j->sub->array;
    // After an adoption there may be more than the limit, which may be counting them: it begins anew.
    if (a && a->limit && (a->active > a->limit || a->limited < a->created))
        core_array_set_limit(c, a, a->limit);
    core_orphan_check(c, j);
    c->dirty = true;
}

static void apply_job(struct core *c, const struct event *e) {
    if (e->type == EVENT_JOB_SUBMITTED) {
        apply_submitted(c, e->at_ms, e->body);
        return;
    }
    struct core_job *j = core_find_job(c, event_job_id(e));
    if (!j)
        return;
    switch (e->type) {
    case EVENT_JOB_HELD: apply_held(c, j, e->body, true); break;
    case EVENT_JOB_RELEASED: apply_held(c, j, e->body, false); break;
    case EVENT_JOB_UPDATED: core_apply_updated(c, j, e->at_ms, e->body); break;
    case EVENT_JOB_PLACED: apply_placed(c, j, e->at_ms, e->body); break;
    case EVENT_PART_ADOPTED: apply_part_adopted(c, j, e->at_ms, e->body); break;
    case EVENT_JOB_PROMISED: core_apply_promised(c, j, e); break;
    case EVENT_JOB_STARTED: apply_started(c, j, e->at_ms, e->body); break;
    case EVENT_JOB_HEALTH: core_apply_health(j, e->body); break;
    case EVENT_JOB_ENDING: apply_ending(c, j, e->at_ms, e->body); break;
    case EVENT_PART_ENDED: apply_part_ended(c, j, e->at_ms, e->body); break;
    case EVENT_JOB_ENDED: apply_ended(c, j, e->at_ms, e->body); break;
    case EVENT_JOB_REQUEUED: apply_requeued(c, j, e->at_ms, e->body); break;
    case EVENT_JOB_SUSPENDED: apply_suspended(c, j, e->at_ms, false); break;
    case EVENT_JOB_RESUMED: apply_suspended(c, j, e->at_ms, true); break;
    case EVENT_JOB_TIME_WARNING: {
        const struct event_job_time_warning *b = e->body;
        if (j->run && b->attempt == j->attempt)
            j->run->warned_percent = (uint8_t)b->percent;
        break;
    }
    case EVENT_WORKERS_PLACED:
    case EVENT_JOB_ADOPTED:
    case EVENT_WORKER_RESTARTED:
    case EVENT_JOB_RESIZED:
    case EVENT_WORKERS_RANKED: core_apply_group(c, j, e); break;
    case EVENT_STEP_STARTED:
    case EVENT_STEP_ENDING:
    case EVENT_STEP_ENDED: core_apply_step(c, j, e); break;
    default: break;
    }
    j = e->type == EVENT_JOB_ENDED ? NULL : core_find_job(c, event_job_id(e));
    if (j)
        j->version = c->seq;
}

void core_apply(struct core *c, const struct event *e) {
    if (c->last_event_ms < e->at_ms)
        c->last_event_ms = e->at_ms;
    if (event_job_id(e) || e->type == EVENT_JOB_SUBMITTED)
        apply_job(c, e);
    else if (e->type == EVENT_ARRAY_CONTINUED)
        core_apply_array(c, e->at_ms, e->body);
    else if (e->type == EVENT_DEPENDENTS_JUDGED)
        core_apply_judged(c, e->at_ms, e->body);
    else
        core_apply_cluster(c, e);
}
