// The state of elastic jobs, changed by events: which workers there are, which of them are in the scheduler's world
// and as what. For the scheduler the minimum is one job, the elastic job itself; what its workers hold are pieces of
// that job's allocation. All other workers are jobs of their own while the elastic job runs.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "state.h"

struct group_worker *core_worker_of(const struct core_job *j) {
    struct group *g = j->sub->group;
    assert(core_is_worker(j) && j->array_index < g->workers.len);
    return &g->workers.at[j->array_index];
}

struct core_job *core_worker_job(const struct core *c, const struct group_worker *w) {
    return w->flags & GROUP_LEFT ? NULL : core_find_job(c, w->id);
}

struct core_job *core_group_job(const struct core *c, const struct core_job *worker) {
    return core_find_job(c, worker->sub->group->id);
}

bool core_is_optional(const struct core_job *j) {
    return core_is_worker(j) && !(core_worker_of(j)->flags & (GROUP_MINIMUM | GROUP_PIECE));
}

// The spec describes one worker; `workers` of them are one request, each a task of it.
void core_group_request(const struct spec *s, uint32_t workers, struct sched_request *out) {
    uint32_t cpus = s->cpus_per_task ? s->cpus_per_task : 1;
    out->nodes_min = out->nodes_max = 0;
    out->tasks = workers;
    out->gpu_milli_per_task = s->gpus_per_task_milli   ? s->gpus_per_task_milli
                              : s->gpus_per_node_milli ? s->gpus_per_node_milli
                                                       : s->gpus_milli;
    out->gpu_milli_per_job = out->gpu_milli_per_node = 0;
    if (s->memory_per_node_bytes) {
        out->memory_per_cpu_bytes = (s->memory_per_node_bytes + cpus - 1) / cpus;
        out->memory_per_node_bytes = 0;
    }
}

static void set_request(struct core *c, const struct world_request **at, const struct spec *s,
                        uint32_t workers, bool optional) {
    cleanup_arena struct arena a = {0};
    struct sched_request asked;
    core_request(c, s->user, s, &a, &asked, NULL);
    core_group_request(s, workers, &asked);
    asked.user = core_user_handle(c, s->user);
    asked.optional = optional;
    const struct world_request *made = world_request(c->world, &asked);
    if (*at)
        world_request_unref(c->world, *at);
    *at = made;
}

static void set_spec(struct core *c, struct group *g, const struct spec *s) {
    g->min = s->workers_min;
    g->max = s->workers_max;
    set_request(c, &g->single, s, 1, false);
    set_request(c, &g->optional, s, 1, true);
}

struct group *core_group_new(struct core *c, uint64_t id, const struct spec *spec) {
    struct group *g = xcalloc(1, sizeof *g);
    g->id = id;
    set_spec(c, g, spec);
    map_put(&c->groups, g->id, g);
    return g;
}

void core_group_free(struct core *c, struct group *g) {
    const struct world_request *requests[] = {g->single, g->optional, g->together};
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++)
        if (requests[i] && c)
            world_request_unref(c->world, requests[i]);
    vec_done(&g->workers);
    free(g);
}

void core_group_add_workers(struct core *c, struct submission *s, uint64_t first_id, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        struct core_job *j = xcalloc(1, sizeof *j);
        j->id = first_id + i;
        j->sub = s;
        j->array_index = s->group->workers.len;
        s->refs++;
        vec_push(&s->group->workers, ((struct group_worker){.id = j->id}));
        core_job_link(c, j);
    }
}

// --- in the scheduler's world ---

static uint32_t live_workers(const struct group *g) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->workers.len; i++)
        n += !(g->workers.at[i].flags & GROUP_LEFT);
    return n;
}

bool core_worker_in_world(const struct core *c, const struct core_job *j) {
    const struct core_job *job = core_group_job(c, j);
    if (core_worker_of(j)->flags & GROUP_PIECE)
        return false;
    return j->run || (job && job->run && !job->run->ending);
}

const struct world_request *core_group_queued_request(struct core *c, struct core_job *j) {
    struct group *g = j->sub->group;
    if (core_is_worker(j))
        return !core_worker_in_world(c, j) ? NULL : core_is_optional(j) ? g->optional : g->single;
    uint32_t live = live_workers(g), wanted = live < g->min ? live : g->min;
    if (!j->run || !g->together_workers)  // while it runs, the request it was placed with counts
        g->together_workers = wanted;
    cleanup_arena struct arena a = {0};
    struct spec s;
    core_spec_of(j, &a, &s);
    set_request(c, &g->together, &s, g->together_workers, false);
    return g->together;
}

// Puts workers that wait into the scheduler's queue, or takes them out of it.
void core_group_waiting_to_world(struct core *c, struct group *g, bool in) {
    for (uint32_t i = 0; i < g->workers.len; i++) {
        struct core_job *j = core_find_job(c, g->workers.at[i].id);
        struct sched_job_view v;
        if (!j || j->run)
            continue;
        bool there = world_job(c->world, j->id, &v);
        if (in && !there)
            core_job_to_world(c, j);
        else if (!in && there)
            world_job_remove(c->world, j->id);
    }
}

struct piece {
    const struct run_part *part;
    uint32_t number;
};

static int by_node(const void *a, const void *b) {
    const struct piece *x = a, *y = b;
    uint32_t i = x->part->node->handle, k = y->part->node->handle;
    return i != k ? (i < k ? -1 : 1) : (x->number > y->number) - (x->number < y->number);
}

// What the workers of the minimum hold together.
static struct sched_alloc *pieces_of(const struct core *c, const struct group *g) {
    VEC(struct piece) pieces = {0};
    uint32_t nodes = 0, gpus = 0;
    for (uint32_t i = 0; i < g->workers.len; i++) {
        const struct core_job *j = core_find_job(c, g->workers.at[i].id);
        if (j && j->run && g->workers.at[i].flags & GROUP_PIECE)
            vec_push(&pieces, ((struct piece){&j->run->parts[0], i}));
    }
    if (pieces.len)
        qsort(pieces.at, pieces.len, sizeof *pieces.at, by_node);
    for (uint32_t i = 0; i < pieces.len; i++) {
        nodes += !i || pieces.at[i].part->node != pieces.at[i - 1].part->node;
        gpus += pieces.at[i].part->gpu_count;
    }
    struct sched_alloc *a = sched_alloc_new(nodes, gpus);
    struct sched_alloc_gpu *gpu = sched_alloc_gpus(a);
    struct sched_alloc_node *n = a->nodes - 1;
    for (uint32_t i = 0; i < pieces.len; i++) {
        const struct run_part *p = pieces.at[i].part;
        if (!i || p->node != pieces.at[i - 1].part->node)
            *++n = (struct sched_alloc_node){.node = p->node->handle, .gpus = gpu};
        n->cpus += p->cpus;
        n->tasks++;
        n->memory_bytes += p->memory_bytes;
        for (uint32_t k = 0; k < p->gpu_count; k++, n->gpu_count++)
            *gpu++ = (struct sched_alloc_gpu){(uint16_t)p->gpus[k].index, (uint16_t)p->gpus[k].milli};
    }
    vec_done(&pieces);
    return a;
}

void core_group_run_to_world(struct core *c, const struct core_job *job) {
    struct sched_alloc *a = pieces_of(c, job->sub->group);
    world_job_start_in(c->world, job->id, core_handle(c, ENTITY_PARTITION, job->run->partition), a,
                       job->start_ms);
    core_limit_to_world(c, job);
    sched_alloc_free(a);
}

void core_group_pieces_to_world(struct core *c, const struct core_job *job, int64_t now_ms) {
    struct sched_alloc *a = pieces_of(c, job->sub->group);
    world_job_shrink(c->world, job->id, a, now_ms);  // of nothing: its optional workers go on
    sched_alloc_free(a);
}

// --- events ---

void core_group_changed(struct core *c, struct group *g) {
    g->generation++;
    if (!g->listed)
        vec_push(&c->changed_groups, g->id);
    g->listed = true;
    c->next_group_ms = 0;
}

static void apply_placed(struct core *c, struct core_job *job, int64_t at_ms,
                         const struct event_workers_placed *b) {
    struct group *g = job->sub->group;
    core_place(c, job, NULL, 0);
    job->run->time_limit_s = b->time_limit_s;
    job->run->partition = b->partition ? core_intern(c, b->partition) : NULL;
    job->run->epoch = b->epoch;
    job->run->seq = b->epoch ? c->seq : 0;
    core_begin_attempt(c, job, b->attempt, at_ms);
    for (uint32_t i = 0; i < g->workers.len; i++) {
        g->workers.at[i].flags &= (uint8_t) ~(GROUP_MINIMUM | GROUP_PIECE);
        g->workers.at[i].node = 0;
    }
    for (uint32_t i = 0; i < b->workers.len; i++) {
        const struct placed_worker *from = &b->workers.at[i];
        struct core_job *j =
            from->number < g->workers.len ? core_find_job(c, g->workers.at[from->number].id) : NULL;
        if (!j || j->run || !from->part)
            continue;
        core_place(c, j, from->part, 1);
        j->run->time_limit_s = b->time_limit_s;
        j->run->partition = job->run->partition;
        j->run->epoch = b->epoch;
        j->run->seq = job->run->seq;
        core_begin_attempt(c, j, from->attempt, at_ms);
        g->workers.at[from->number].flags |= GROUP_MINIMUM | GROUP_PIECE;
        g->workers.at[from->number].node = j->run->part_count ? j->run->parts[0].node->handle : 0;
    }
    core_group_run_to_world(c, job);
    core_group_waiting_to_world(c, g, true);
    core_group_changed(c, g);
    c->dirty = c->may_grow = true;
}

// Its piece stays the worker's: nothing changes for the scheduler.
static void apply_restarted(struct core *c, struct core_job *j, int64_t at_ms,
                            const struct event_worker_restarted *b) {
    struct core_run *r = j->run;
    if (!r || !r->part_count || !r->parts[0].ended || !core_is_worker(j))
        return;
    struct run_part *p = &r->parts[0];
    core_count_attempt(j, at_ms);
    p->started = p->ended = p->launch_failed = false;
    p->cause = END_EXIT;
    p->exit_code = 0;
    p->exit_signal = 0;
    free(p->cpu_ids);
    p->cpu_ids = NULL;
    core_node_add(p->node, p, j);
    free(TAKE_PTR(r->by));
    free(TAKE_PTR(r->reason));
    free(TAKE_PTR(r->end_reason));
    core_steps_free(c, r->steps);
    r->steps = NULL;
    r->ending = false;
    r->cause = END_EXIT;
    r->time_limit_s = b->time_limit_s;
    r->epoch = b->epoch;
    r->seq = b->epoch ? c->seq : 0;
    r->delayed = b->begin_ms != 0;
    r->suspended_ms = r->suspend_ms = 0;
    j->begin_ms = b->begin_ms;
    j->retried += j->retried < UINT16_MAX;
    core_begin_attempt(c, j, b->attempt, at_ms);
    if (r->delayed)
        core_launch_later(c, j);
    core_group_changed(c, j->sub->group);
}

// Workers that wait take the place of what is missing to the minimum, or become optional, the last first.
static void set_roles(struct core *c, const struct core_job *job) {
    struct group *g = job->sub->group;
    uint32_t have = 0;
    if (!job->run)
        return;
    for (uint32_t i = 0; i < g->workers.len; i++)
        have +=
            !(g->workers.at[i].flags & GROUP_LEFT) && g->workers.at[i].flags & (GROUP_MINIMUM | GROUP_PIECE);
    core_group_waiting_to_world(c, g, false);
    for (uint32_t i = 0; i < g->workers.len && have < g->min; i++) {
        const struct core_job *j = core_find_job(c, g->workers.at[i].id);
        if (j && !j->run && !(g->workers.at[i].flags & GROUP_MINIMUM)) {
            g->workers.at[i].flags |= GROUP_MINIMUM;
            have++;
        }
    }
    for (uint32_t i = g->workers.len; i-- > 0 && have > g->min;) {
        const struct core_job *j = core_find_job(c, g->workers.at[i].id);
        if (j && !j->run && g->workers.at[i].flags & GROUP_MINIMUM) {
            g->workers.at[i].flags &= (uint8_t)~GROUP_MINIMUM;
            have--;
        }
    }
    if (!job->run->ending)
        core_group_waiting_to_world(c, g, true);
}

static void apply_resized(struct core *c, struct core_job *job, int64_t at_ms,
                          const struct event_job_resized *b) {
    cleanup_arena struct arena a = {0};
    struct spec s;
    core_spec_of(job, &a, &s);
    s.workers_min = b->workers_min;
    s.workers_max = b->workers_max;
    uint64_t first = b->first_id;
    core_group_add_workers(c, job->sub, first, b->added);
    if (c->next_id < first + b->added)
        c->next_id = first + b->added;
    core_apply_updated(c, job, at_ms, &(struct event_job_updated){.id = job->id, .spec = &s});
    set_roles(c, job);
    c->dirty = true;
}

static void apply_ranked(struct core *c, struct group *g, const struct event_workers_ranked *b) {
    for (uint32_t i = 0; i < b->ranks.len; i++) {
        const struct worker_rank *r = &b->ranks.at[i];
        if (r->number >= g->workers.len)
            continue;
        struct group_worker *w = &g->workers.at[r->number];
        w->rank = r->rank;
        w->flags = (uint8_t)(r->idle ? w->flags | GROUP_IDLE : w->flags & ~GROUP_IDLE);
        core_worker_rank_to_world(c, w);
    }
}

// Idle workers come before all others, then the rank decides.
void core_worker_rank_to_world(struct core *c, const struct group_worker *w) {
    world_job_rank(c->world, w->id, w->rank - (w->flags & GROUP_IDLE ? 2 * JOB_WORKER_RANK_MAX + 1 : 0));
}

void core_apply_group(struct core *c, struct core_job *j, const struct event *e) {
    if (!core_group_of(j))
        return;
    if (e->type == EVENT_WORKER_RESTARTED)
        apply_restarted(c, j, e->at_ms, e->body);
    else if (!core_is_group(j))
        return;
    else if (e->type == EVENT_WORKERS_PLACED)
        apply_placed(c, j, e->at_ms, e->body);
    else if (e->type == EVENT_JOB_RESIZED)
        apply_resized(c, j, e->at_ms, e->body);
    else if (e->type == EVENT_WORKERS_RANKED)
        apply_ranked(c, j->sub->group, e->body);
}

// The job's submission has changed: its workers are of the new one.
void core_group_submission(struct core *c, const struct core_job *job, struct submission *s,
                           const struct spec *spec) {
    struct group *g = s->group;
    bool limit = job->run && core_limit_changes(job->sub, s);
    set_spec(c, g, spec);
    for (uint32_t i = 0; i < g->workers.len; i++) {
        struct core_job *j = core_find_job(c, g->workers.at[i].id);
        if (!j)
            continue;
        s->refs++;
        core_submission_unref(c, j->sub);
        j->sub = s;
        if (!j->run || !limit)
            continue;
        // What the job had used when this worker started, without the pauses before that.
        int64_t paused_ms = job->run->suspended_ms - j->run->suspended_ms;
        int64_t used_s = (j->start_ms - job->start_ms - paused_ms) / 1000;
        j->run->time_limit_s = used_s < s->time_limit_s ? (uint32_t)(s->time_limit_s - used_s) : 1;
        core_limit_to_world(c, j);
    }
}

// How bad an end is: one that was asked for counts least, of failures the first counts.
static int severity(uint32_t state) {
    return !state ? 0 : state == JOB_CANCELLED ? 1 : state == JOB_COMPLETED ? 2 : 3;
}

void core_group_worker_ended(struct core *c, struct core_job *j, const struct event_job_ended *b) {
    struct group *g = j->sub->group;
    struct group_worker *w = core_worker_of(j);
    const struct core_job *job = core_group_job(c, j);
    w->flags |= GROUP_LEFT;  // its piece is given back with its run
    w->state = (uint8_t)b->state;
    w->exit_code = b->exit_code;
    w->exit_signal = b->exit_signal;
    // Ends that the job itself brought about say nothing about it.
    if (!(job && job->run && job->run->ending) && severity(b->state) > severity(g->worst_state)) {
        g->worst_state = (uint8_t)b->state;
        g->worst_code = b->exit_code;
        g->worst_signal = b->exit_signal;
    }
    core_group_changed(c, g);
}

void core_group_ended(struct core *c, struct core_job *job, int64_t at_ms) {
    struct group *g = job->sub->group;
    for (uint32_t i = 0; i < g->workers.len; i++) {
        struct core_job *j = core_find_job(c, g->workers.at[i].id);
        struct sched_job_view v;
        if (!j)
            continue;
        assert(!j->run);
        if (world_job(c->world, j->id, &v))
            world_job_remove(c->world, j->id);
        core_outcome_add(c, j->id, false, j->attempt > 0, 0);
        core_job_unlink(c, j, at_ms);
        core_job_free(c, j);
    }
    map_remove(&c->groups, g->id);
    job->sub->group = NULL;
    core_group_free(c, g);
}
