// Elastic jobs in the simulator: what operators do to them, and the rules that hold for them. The minimum is placed
// all or nothing, an ended or requeued job leaves no worker running, what optional workers hold is granted to nobody
// who runs beside them, and the newest membership reaches every worker.
#include <errno.h>
#include <string.h>

#include "base/text.h"
#include "fault_sim.h"
#include "state.h"

enum { MEMBERS_OLD_MAX = 14 };  // looks, five seconds apart

typedef unsigned long long ull;

static uint32_t workers_of(const struct job_shape *j, uint32_t component, bool most) {
    return component == 0 ? j->heads : component == 2 ? 1 : most ? j->workers_max : j->workers_min;
}

uint64_t elastic_first_worker(const struct job_shape *j, uint64_t id, uint32_t component) {
    uint64_t first = id + 1;
    for (uint32_t i = 0; i < component; i++)
        first += workers_of(j, i, true);
    return first;
}

// The shape goes to the workers; the heads, and the last one, are small.
void elastic_components(const struct job_shape *j, struct job_component *list, struct spec *spec) {
    const char *const names[] = {j->head ? COMPONENT_HEAD : "first", "work", "last"};
    for (uint32_t i = 0; i < j->components; i++)
        list[i] = (struct job_component){.name = names[i],
                                         .workers_min = workers_of(j, i, false),
                                         .workers_max = workers_of(j, i, true),
                                         .workers_given = true,
                                         .nodes_min = i == 2 && j->wide ? 2 : 0,
                                         .nodes_max = i == 2 && j->wide ? 2 : 0,
                                         .tasks = i == 2 && j->wide ? 2 : 0,
                                         .cpus_per_task = i == 1 ? j->cpus : 1,
                                         .gpus_milli = i == 1 ? j->gpus_milli : 0,
                                         .memory_per_node_bytes = 64 << 20};
    spec->components.at = list;
    spec->components.len = j->components;
    spec->workers_min = spec->workers_max = spec->tasks = spec->cpus_per_task = spec->gpus_milli = 0;
    spec->nodes_min = spec->nodes_max = 0;
    spec->memory_per_node_bytes = 0;
}

int elastic_command(struct sim *s, const struct item *it, uint64_t id, struct error *e) {
    static const struct actor admin = {"root", 0, 0, true};
    uint32_t max = 1 + it->amount % 8;
    const struct job_shape *shape = s->plan->items.at[it->target].job;
    struct command_resize resize = {id, it->pick % 3 ? 0 : 1 + it->pick % max, max,
                                    shape && shape->components ? "work" : NULL};
    if (shape && shape->components && shape->head && it->pick % 4 == 0) {  // to none, or from none on
        resize.workers_min = 0;
        resize.workers_max = it->amount % 2 ? 0 : max;
        resize.min_given = true;
    }
    struct worker_rank ranks[] = {{.number = it->amount % 4, .rank = (int32_t)it->pick, .idle = it->pick % 2},
                                  {.number = it->amount % 7, .rank = -(int32_t)it->pick}};
    struct command_rank_workers rank = {.id = id, .ranks = {ranks, 1 + it->amount % 2}};
    struct command m = {it->kind == ITEM_RESIZE ? COMMAND_RESIZE : COMMAND_RANK_WORKERS,
                        it->kind == ITEM_RESIZE ? (const void *)&resize : &rank};
    if (!id)
        return -ENOENT;
    return core_command(s->head->core, &admin, NULL, &m, head_wall_ms(s), NULL, e);
}

// --- the journal ---

static void add_workers(struct sim *s, uint64_t job, uint64_t first, uint32_t count, uint32_t component) {
    struct check *c = &s->check;
    while (c->jobs.len < first - 1 + count)
        vec_push(&c->jobs, (struct told){.item = UINT32_MAX});
    for (uint32_t i = 0; i < count; i++) {
        struct told *w = &c->jobs.at[first - 1 + i];
        if (w->submitted)
            sim_fail(s, "job %llu and a worker of job %llu have one number", (ull)(first + i), (ull)job);
        w->submitted = true;
        w->job = job;
        w->component = component;
    }
}

void elastic_submitted(struct sim *s, const struct event_job_submitted *b) {
    if (!b->spec->workers_max)
        return;
    uint64_t first = b->id + 1;
    s->check.jobs.at[b->id - 1].workers_min = b->spec->workers_min;
    s->check.jobs.at[b->id - 1].component_min[0] = b->spec->workers_min;
    if (!b->spec->components.len)
        add_workers(s, b->id, first, b->spec->workers_max, 0);
    for (uint32_t i = 0; i < b->spec->components.len; i++) {
        const struct job_component *k = &b->spec->components.at[i];
        s->check.jobs.at[b->id - 1].component_min[i] = k->workers_min;
        add_workers(s, b->id, first, k->workers_max, i);
        first += k->workers_max;
    }
}

// A worker is on as many nodes as its component asks for.
void elastic_whole(struct sim *s, const struct told *j, const struct event_job_placed *b) {
    const struct told *job = check_told(&s->check, j->job);
    const struct job_shape *shape =
        job && job->item < s->plan->items.len ? s->plan->items.at[job->item].job : NULL;
    uint32_t nodes = shape && shape->components && shape->wide && j->component == 2 ? 2 : 1;
    if (job && !b->reason && b->parts.len != nodes)
        sim_fail(s, "worker %llu is on %u nodes, it asks for %u", (ull)b->id, b->parts.len, nodes);
}

// Each component with its minimum, or with all that are left of it.
static void check_gang(struct sim *s, const struct event_workers_placed *b, const struct told *job) {
    uint32_t live[3] = {0}, placed[3] = {0};
    for (uint32_t i = 0; i < s->check.jobs.len; i++)
        live[s->check.jobs.at[i].component] += s->check.jobs.at[i].job == b->id && !s->check.jobs.at[i].ended;
    for (uint32_t i = 0; i < b->workers.len; i++) {
        const struct told *w = check_told(&s->check, b->workers.at[i].id);
        placed[w ? w->component : 0]++;
    }
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t min = job->component_min[i];
        if (placed[i] != (live[i] < min ? live[i] : min))
            sim_fail(s, "job %llu was placed with %u workers of component %u; its minimum is %u, %u are left",
                     (ull)b->id, placed[i], i, min, live[i]);
    }
}

static void placed(struct sim *s, const struct event_workers_placed *b, int64_t at_ms) {
    check_gang(s, b, check_told(&s->check, b->id));
    check_placed(s, check_told(&s->check, b->id),
                 &(struct event_job_placed){.id = b->id, .attempt = b->attempt, .epoch = b->epoch}, at_ms);
    for (uint32_t i = 0; i < b->workers.len; i++) {
        const struct placed_worker *w = &b->workers.at[i];
        struct part parts[MACHINES_MAX];
        struct event_job_placed one = {.id = w->id,
                                       .attempt = w->attempt,
                                       .epoch = b->epoch,
                                       .parts = {parts, rules_worker_parts(w, parts, MACHINES_MAX)}};
        struct told *j = check_told(&s->check, one.id);
        if (!j || j->job != b->id || j->ended)
            sim_fail(s, "worker %u of job %llu was placed, which is not there", w->number, (ull)b->id);
        else
            check_placed(s, j, &one, at_ms);
    }
}

// Where it was, after its end there.
static void restarted(struct sim *s, struct told *j, const struct event_worker_restarted *b, int64_t at_ms) {
    const struct placement *p = check_placement(j, j->attempt);
    struct part parts[MACHINES_MAX] = {0};
    bool over = p && j->placed;
    for (uint32_t i = 0; over && i < p->part_count; i++) {
        over = p->part_ended[i];
        parts[i].node = p->nodes[i];
    }
    if (!over) {
        sim_fail(s, "worker %llu was restarted although it runs", (ull)b->id);
        return;
    }
    struct event_job_placed one = {
        .id = b->id, .attempt = b->attempt, .epoch = b->epoch, .parts = {parts, p->part_count}};
    uint64_t cpus = j->cpus, gpus_milli = j->gpus_milli;
    j->placed = false;
    check_attempt_over(j, at_ms);
    check_placed(s, j, &one, at_ms);
    j->cpus = cpus;  // its piece stays its own
    j->gpus_milli = gpus_milli;
}

void elastic_event(struct sim *s, struct told *j, const struct event *e) {
    const struct event_job_resized *resized = e->body;
    if (e->type == EVENT_WORKERS_PLACED) {
        placed(s, e->body, e->at_ms);
    } else if (e->type == EVENT_WORKER_RESTARTED) {
        restarted(s, j, e->body, e->at_ms);
    } else if (e->type == EVENT_JOB_ADOPTED) {
        const struct event_job_adopted *b = e->body;
        check_placed(s, j,
                     &(struct event_job_placed){.id = b->id, .attempt = b->attempt, .start_ms = b->start_ms},
                     e->at_ms);
    } else {
        uint32_t component = resized->component ? 1 : 0;
        j->component_min[component] = resized->workers_min;
        j->workers_min = j->component_min[0] + j->component_min[1] + j->component_min[2];
        if (resized->added)
            add_workers(s, resized->id, resized->first_id, resized->added, component);
    }
}

static const struct sim_unit *unit_of(const struct sim *s, const struct event_job_placed *b) {
    uint64_t id = b->agent_id ? b->agent_id : b->id;
    for (uint32_t i = 0; i < s->plan->machine_count; i++)
        for (uint32_t k = 0; k < s->machines[i].units.len; k++) {
            const struct sim_unit *u = s->machines[i].units.at[k];
            if (u->id == id && u->attempt == b->attempt && u->epoch == b->epoch)
                return u;
        }
    return NULL;
}

// After a restore: a worker that the copy has as waiting, or whose job it does not know, is the same worker of its job
// again. The journal before this event is what the controller knew.
void elastic_adopted(struct sim *s, const struct event_job_placed *b) {
    cleanup_arena struct arena a = {0};
    struct core *c = s->check.shadow;
    struct message_launch l;
    const struct sim_unit *u = b->reason && core_feature(c, FEATURE_ADOPTED_WORKERS) ? unit_of(s, b) : NULL;
    if (!u || !u->origin ||
        schema_decode(message_info(MESSAGE_LAUNCH)->schema, u->origin, u->origin_len, &a, &l) < 0 || !l.job)
        return;
    const struct core_job *j = core_find_job(c, b->id), *job = core_find_job(c, l.job->id);
    bool worker = j && core_is_worker(j),
         same = job && core_is_group(job) && job->sub->submit_ms == l.submit_ms;
    if (worker && j->array_index != l.worker)
        sim_fail(s, "worker %u of job %llu became worker %u", l.worker, (ull)l.job->id, j->array_index);
    if (worker && same && core_group_of(j)->id != job->id)
        sim_fail(s, "worker %u of job %llu became one of job %llu", l.worker, (ull)l.job->id,
                 (ull)core_group_of(j)->id);
    if (worker || !same || (job->run && job->run->ending) || l.worker >= job->sub->group->workers.len)
        return;
    // A resize that the copy does not have may have given the number to another component: then it does not fit.
    const struct group_worker *w = &job->sub->group->workers.at[l.worker];
    j = core_worker_job(c, w);
    if (j && !j->run && j->attempt < l.attempt && w->component == l.job->component)
        sim_fail(s, "worker %u of job %llu, which waits for it, became a job of its own, %llu", l.worker,
                 (ull)l.job->id, (ull)b->id);
}

void elastic_over(struct sim *s, struct told *j, uint64_t id, bool ended) {
    for (uint32_t i = 0; j->workers_min && i < s->check.jobs.len; i++) {
        struct told *w = &s->check.jobs.at[i];
        if (w->job != id || w->ended)
            continue;
        if (w->placed)
            sim_fail(s, "job %llu %s while its worker %u runs", (ull)id,
                     ended ? "ended" : "went back to the queue", i + 1);
        w->ended = ended;
    }
}

// --- the controller ---

// A job whose head has ended is being ended; it does not go on, and does not wait in the queue.
static void check_head(struct sim *s, const struct group *g) {
    const struct core_job *job = core_find_job(s->head->core, g->id);
    bool left = job && core_group_has_head(g) && !(job->run && job->run->ending);
    for (uint32_t i = 0; left && i < g->workers.len; i++)
        left = !core_component_of(g, &g->workers.at[i])->head || g->workers.at[i].flags & GROUP_LEFT;
    if (left)
        sim_fail(s, "job %llu %s although its head has ended", (ull)job->id,
                 job->run ? "goes on" : "is queued");
}

void elastic_heads(struct sim *s) {
    size_t it = 0;
    void *g;
    while (map_next(&s->head->core->groups, &it, NULL, &g))
        check_head(s, g);
}

void elastic_within(struct sim *s, const struct node_view *v) {
    const struct node_entry *n = core_find_node(s->head->core, v->node->name);
    uint64_t cpus[2] = {0}, memory[2] = {0}, gpus[2] = {0};  // of optional workers, and of all others
    bool gives_way = false;
    for (uint32_t i = 0; n && i < n->jobs.len; i++) {
        const struct run_part *p = core_part_on(n->jobs.at[i], n->name);
        int other = !core_is_optional(n->jobs.at[i]);
        gives_way |= !other && n->jobs.at[i]->run->ending;
        cpus[other] += p->cpus;
        memory[other] += p->memory_bytes;
        for (uint32_t g = 0; g < p->gpu_count; g++)
            gpus[other] += p->gpus[g].milli;
    }
    // What optional workers hold counts as free for others, who begin when those have ended.
    for (int i = 0; i < 2; i++) {
        uint64_t used = gives_way ? cpus[i] : cpus[0] + cpus[1],
                 bytes = gives_way ? memory[i] : memory[0] + memory[1],
                 milli = gives_way ? gpus[i] : gpus[0] + gpus[1];
        if (used > v->node->cpus || bytes > v->node->memory_bytes || milli > v->node->gpus.len * 1000)
            sim_fail(s, "node %s has %u CPUs and %u GPUs; %llu and %llu.%03llu are granted", v->node->name,
                     v->node->cpus, v->node->gpus.len, (ull)used, (ull)(milli / 1000), (ull)(milli % 1000));
    }
}

void elastic_members(struct sim *s, struct sim_unit *u) {
    // After a restore a worker may have another number than on its node, and its own number may be another attempt's
    // there.
    struct core_job *j;
    const struct run_part *p = core_reported_part(s->head->core, u->node, u->id, u->attempt, &j);
    bool comparable = u->live && u->phase == PHASE_RUN && p && core_is_worker(j) &&
                      j->attempt == u->attempt && j->run->epoch == u->epoch && p->started && !j->run->ending;
    u->members_old =
        comparable && core_group_of(j)->generation != u->members_generation ? u->members_old + 1 : 0;
    if (u->members_old > MEMBERS_OLD_MAX)
        sim_fail(s, "worker %llu attempt %u knows membership %llu of its job, the newest is %llu", (ull)u->id,
                 u->attempt, (ull)u->members_generation, (ull)core_group_of(j)->generation);
}
