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

// What the minimum of all components asks for; the job itself asks for nothing.
static void add_up(struct submission *s) {
    const struct group *g = s->group;
    if (!g->components.at[0].sub)
        return;
    s->memory_bytes = 0;
    for (uint32_t i = 0; i < g->components.len; i++)
        s->memory_bytes += g->components.at[i].min * g->components.at[i].sub->memory_bytes;
}

void core_group_attach(struct core *c, struct submission *s, const struct spec *spec) {
    s->group = xcalloc(1, sizeof *s->group);
    s->group->id = s->id;
    s->group->service = spec->service;
    s->group->revision = spec->revision;
    core_group_set_spec(c, s->group, spec, s->submit_ms);
    map_put(&c->groups, s->id, s->group);
    add_up(s);
}

void core_group_free(struct core *c, struct group *g) {
    if (g->together)
        world_request_unref(c->world, g->together);
    core_components_free(c, g);
    vec_done(&g->workers);
    buf_done(&g->lines);
    free(g);
}

// `s`: the job's submission.
void core_group_add_workers(struct core *c, struct submission *s, uint64_t first_id, uint32_t count,
                            uint32_t component) {
    struct group *g = s->group;
    for (uint32_t i = 0; i < count; i++) {
        struct core_job *j = xcalloc(1, sizeof *j);
        j->id = first_id + i;
        j->version = c->seq;
        j->sub = g->components.at[component].sub ? g->components.at[component].sub : s;
        j->array_index = g->workers.len;
        j->sub->refs++;
        vec_push(&g->workers, ((struct group_worker){.id = j->id, .component = (uint8_t)component}));
        core_job_link(c, j);
    }
}

uint64_t core_group_add_first_workers(struct core *c, struct submission *s, uint64_t first_id) {
    for (uint32_t i = 0; i < s->group->components.len; i++) {
        core_group_add_workers(c, s, first_id, s->group->components.at[i].max, i);
        first_id += s->group->components.at[i].max;
    }
    return first_id;
}

// --- in the scheduler's world ---

bool core_worker_in_world(const struct core *c, const struct core_job *j) {
    const struct core_job *job = core_group_job(c, j);
    if (core_worker_of(j)->flags & GROUP_PIECE)
        return false;
    return j->run || (job && job->run && !job->run->ending);
}

// How many workers of each component's minimum the job is to start with: those that have not left.
static void count_together(struct group *g) {
    for (uint32_t i = 0; i < g->components.len; i++)
        g->components.at[i].together = 0;
    for (uint32_t i = 0; i < g->workers.len; i++) {
        struct group_component *k = core_component_of(g, &g->workers.at[i]);
        k->together += !(g->workers.at[i].flags & GROUP_LEFT) && k->together < k->min;
    }
}

const struct world_request *core_group_queued_request(struct core *c, struct core_job *j) {
    struct group *g = j->sub->group;
    if (core_is_worker(j)) {
        const struct group_component *k = core_component_of(g, core_worker_of(j));
        return !core_worker_in_world(c, j) ? NULL : core_is_optional(j) ? k->optional : k->single;
    }
    if (!j->run || !core_group_together(g))  // while it runs, the request it was placed with counts
        count_together(g);
    cleanup_arena struct arena a = {0};
    struct spec s;
    core_spec_of(j, &a, &s);
    core_group_set_together(c, g, &s);
    return g->together;
}

uint32_t core_group_together(const struct group *g) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->components.len; i++)
        n += g->components.at[i].together;
    return n;
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
        for (uint32_t k = 0; j && j->run && g->workers.at[i].flags & GROUP_PIECE && k < j->run->part_count;
             k++)
            vec_push(&pieces, ((struct piece){&j->run->parts[k], i}));
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
        n->tasks += p->tasks;
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

static void place(struct core *c, struct core_job *j, const struct placed_worker *from) {
    cleanup_arena struct arena a = {0};
    struct part *parts = arena_alloc(&a, (from->more.len + 1) * sizeof *parts);
    parts[0] = *from->part;
    if (from->more.len)
        memcpy(parts + 1, from->more.at, from->more.len * sizeof *parts);
    core_place(c, j, parts, from->more.len + 1);
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
        place(c, j, from);
        j->run->time_limit_s = b->time_limit_s;
        j->run->partition = job->run->partition;
        j->run->epoch = b->epoch;
        j->run->seq = job->run->seq;
        j->begin_ms = 0;  // of a wait that its job's start has ended
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
    if (!r || !r->part_count || !core_is_worker(j))
        return;
    for (uint32_t i = 0; i < r->part_count; i++)
        if (!r->parts[i].ended)
            return;
    core_count_attempt(j, at_ms);
    for (uint32_t i = 0; i < r->part_count; i++) {
        struct run_part *p = &r->parts[i];
        p->started = p->ended = p->launch_failed = false;
        p->cause = END_EXIT;
        p->exit_code = 0;
        p->exit_signal = 0;
        free(p->cpu_ids);
        p->cpu_ids = NULL;
        core_part_set_health(p, HEALTH_NONE, NULL);
        core_node_add(p->node, p, j);
    }
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
    core_group_changed(c, j->sub->group);
}

// One that was told to leave is not counted: whoever comes for it takes its place in the minimum at once.
static bool in_minimum(const struct core *c, const struct group_worker *w) {
    const struct core_job *j = core_worker_job(c, w);
    bool leaves = j && j->run && j->run->ending && j->run->cause == END_CANCEL;
    return !leaves && !(w->flags & GROUP_LEFT) && w->flags & (GROUP_MINIMUM | GROUP_PIECE);
}

// Workers of the component that wait take the place of what is missing to its minimum, or become optional, the last
// first.
static void set_component_roles(struct core *c, struct group *g, uint32_t component) {
    uint32_t have = 0, min = g->components.at[component].min;
    for (uint32_t i = 0; i < g->workers.len; i++)
        have += g->workers.at[i].component == component && in_minimum(c, &g->workers.at[i]);
    for (uint32_t i = 0; i < g->workers.len && have < min; i++) {
        struct group_worker *w = &g->workers.at[i];
        const struct core_job *j = w->component == component ? core_worker_job(c, w) : NULL;
        if (j && !j->run && !(w->flags & GROUP_MINIMUM)) {
            w->flags |= GROUP_MINIMUM;
            have++;
        }
    }
    for (uint32_t i = g->workers.len; i-- > 0 && have > min;) {
        struct group_worker *w = &g->workers.at[i];
        const struct core_job *j = w->component == component ? core_worker_job(c, w) : NULL;
        if (j && !j->run && w->flags & GROUP_MINIMUM) {
            w->flags &= (uint8_t)~GROUP_MINIMUM;
            have--;
        }
    }
}

void core_group_set_roles(struct core *c, const struct core_job *job) {
    struct group *g = job->sub->group;
    if (!job->run)
        return;
    core_group_waiting_to_world(c, g, false);
    for (uint32_t i = 0; i < g->components.len; i++)
        set_component_roles(c, g, i);
    if (!job->run->ending)
        core_group_waiting_to_world(c, g, true);
}

void core_spec_resize(struct spec *s, uint32_t component, uint32_t min, uint32_t max) {
    if (!s->components.len) {
        s->workers_min = min;
        s->workers_max = max;
        return;
    }
    s->components.at[component].workers_min = min;
    s->components.at[component].workers_max = max;
    if (!min)
        s->components.at[component].workers_given = true;
    s->workers_min = s->workers_max = 0;
    for (uint32_t i = 0; i < s->components.len; i++) {
        s->workers_min += s->components.at[i].workers_min;
        s->workers_max += s->components.at[i].workers_max;
    }
}

static void apply_resized(struct core *c, struct core_job *job, int64_t at_ms,
                          const struct event_job_resized *b) {
    cleanup_arena struct arena a = {0};
    struct spec s;
    struct group *g = job->sub->group;
    int component = b->component ? core_component_find(g, b->component) : 0;
    core_spec_of(job, &a, &s);
    if (component < 0)
        return;
    core_spec_resize(&s, (uint32_t)component, b->workers_min, b->workers_max);
    uint64_t first = b->first_id;
    core_group_add_workers(c, job->sub, first, b->added, (uint32_t)component);
    for (uint32_t i = 0; i < b->added; i++)
        core_find_job(c, first + i)->begin_ms = b->begin_ms;
    if (b->added && b->begin_ms)
        core_note_numbers(c, first, b->added);
    if (c->next_id < first + b->added)
        c->next_id = first + b->added;
    core_apply_updated(c, job, at_ms, &(struct event_job_updated){.id = job->id, .spec = &s});
    core_group_set_roles(c, job);
    core_group_changed(c, g);
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
    else if (e->type == EVENT_JOB_ADOPTED)
        core_apply_job_adopted(c, j, e->at_ms, e->body);
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
    core_group_set_spec(c, g, spec, s->submit_ms);
    add_up(s);
    for (uint32_t i = 0; i < g->workers.len; i++) {
        struct core_job *j = core_worker_job(c, &g->workers.at[i]);
        const struct group_component *k = core_component_of(g, &g->workers.at[i]);
        if (!j)
            continue;
        struct submission *to = k->sub ? k->sub : s;
        to->refs++;
        core_submission_unref(c, j->sub);
        j->sub = to;
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
    // Ends that the job itself brought about say nothing about it; of a job with a head the head's end counts.
    bool counts =
        !(job && job->run && job->run->ending) && (core_component_of(g, w)->head || !core_group_has_head(g));
    if (counts && severity(b->state) > severity(g->worst_state)) {
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
