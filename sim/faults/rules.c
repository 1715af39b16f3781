// Checks the scheduling rules users rely on: held, early, dependent and limited jobs wait; drained, silent and full
// nodes get no jobs; limits of projects hold; of two jobs that ask for the same, the older starts first.
#include "rules.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "model/dependency.h"
#include "model/name.h"

typedef unsigned long long ull;

__attribute__((format(printf, 2, 3))) static void broken(struct rules *r, const char *fmt, ...) {
    va_list args;
    if (r->broken[0])
        return;
    va_start(args, fmt);
    vsnprintf(r->broken, sizeof r->broken, fmt, args);
    va_end(args);
}

void rules_done(struct rules *r) {
    for (uint32_t i = 0; i < r->nodes.len; i++) {
        arena_done(&r->nodes.at[i]->arena);
        free(r->nodes.at[i]);
    }
    vec_done(&r->nodes);
    vec_done(&r->projects);
    vec_done(&r->jobs);
    arena_done(&r->arena);
}

static struct rule_job *job_of(struct rules *r, uint64_t id) {
    return id && id <= r->jobs.len ? &r->jobs.at[id - 1] : NULL;
}

static struct rule_node *node_of(struct rules *r, const char *name) {
    for (uint32_t i = 0; i < r->nodes.len; i++)
        if (streq(r->nodes.at[i]->name, name))
            return r->nodes.at[i];
    return NULL;
}

static struct rule_project *project_of(struct rules *r, const char *name) {
    for (uint32_t i = 0; i < r->projects.len; i++)
        if (streq(r->projects.at[i].name, name))
            return &r->projects.at[i];
    vec_push(&r->projects, (struct rule_project){.name = arena_strdup(&r->arena, name)});
    return &r->projects.at[r->projects.len - 1];
}

// --- what is asked for ---

static uint64_t likeness(const struct spec *s) {
    uint64_t h = hash_bytes(s->user, strlen(s->user)) * 3 + hash_bytes(s->project, strlen(s->project));
    uint64_t fields[] = {s->class,
                         s->nodes_min,
                         s->nodes_max,
                         s->tasks,
                         s->tasks_per_node,
                         s->cpus_per_task,
                         s->memory_per_node_bytes,
                         s->memory_per_cpu_bytes,
                         s->gpus_milli,
                         s->time_limit_s,
                         s->priority,
                         (uint64_t)(int64_t)s->nice,
                         s->requeue,
                         s->workers_min,
                         s->workers_max,
                         (uint64_t)s->deadline_ms,
                         s->licenses ? hash_bytes(s->licenses, strlen(s->licenses)) : 0,
                         s->qos ? hash_bytes(s->qos, strlen(s->qos)) : 0,
                         hash_bytes(s->partition, strlen(s->partition))};
    h ^= hash_bytes(fields, sizeof fields);
    for (uint32_t i = 0; i < s->components.len; i++) {  // a job with components has no shape of its own
        const struct job_component *k = &s->components.at[i];
        uint64_t shape[] = {k->workers_min,   k->workers_max, k->nodes_min,
                            k->cpus_per_task, k->gpus_milli,  k->memory_per_node_bytes};
        h = h * 3 + hash_bytes(shape, sizeof shape);
    }
    return h;
}

static void read_spec(struct rules *r, struct rule_job *j, const struct spec *s) {
    j->like = likeness(s);
    j->licensed = !str_empty(s->licenses);
    if (!j->tried || s->begin_ms != j->asked_ms)
        j->begin_ms = s->begin_ms;
    j->asked_ms = s->begin_ms;
    j->partition = arena_strdup(&r->arena, s->partition);
    j->project = project_of(r, s->project)->name;
    j->dependency = str_empty(s->dependency) ? NULL : arena_strdup(&r->arena, s->dependency);
}

// A worker is like no other job: who comes first among them is not the queue's order.
static void add_workers(struct rules *r, uint64_t job, uint64_t first, uint32_t count) {
    while (count && r->jobs.len < first - 1 + count)
        vec_push(&r->jobs, (struct rule_job){.ended = true});
    for (uint64_t id = first; id < first + count; id++) {
        const struct rule_job *of = &r->jobs.at[job - 1];
        r->jobs.at[id - 1] = (struct rule_job){.job = job,
                                               .array = id,
                                               .like = hash_u64(id),
                                               .partition = of->partition,
                                               .project = of->project,
                                               .submit_ms = of->submit_ms};
    }
}

static void on_submitted(struct rules *r, const struct event_job_submitted *b, int64_t at_ms) {
    struct rule_job j = {
        .held_user = b->spec->hold, .submit_ms = at_ms, .array = b->id, .array_limit = b->spec->array_limit};
    read_spec(r, &j, b->spec);
    if (b->submit_ms)
        j.submit_ms = b->submit_ms;
    while (r->jobs.len < b->id - 1 + spec_array_count(b->spec))  // a restore skips numbers
        vec_push(&r->jobs, (struct rule_job){.ended = true});
    for (uint64_t i = 0; i < spec_array_count(b->spec); i++) {
        j.uncreated = b->created && i >= b->created;
        r->jobs.at[b->id - 1 + i] = j;
    }
    add_workers(r, b->id, b->id + 1, b->spec->workers_max);
}

static void on_continued(struct rules *r, const struct event_array_continued *b) {
    for (uint64_t i = 0; i < b->created && b->id - 1 + i < r->jobs.len; i++)
        r->jobs.at[b->id - 1 + i].uncreated = false;
}

// --- dependencies ---

static bool all_of(struct rules *r, uint64_t id, bool (*holds)(const struct rule_job *)) {
    struct rule_job *first = job_of(r, id);
    if (first->array != id)  // an element by its own number: after a restore an old number may mean one
        return holds(first);
    for (uint64_t i = id; i <= r->jobs.len && r->jobs.at[i - 1].array == first->array; i++)
        if (!holds(&r->jobs.at[i - 1]))
            return false;
    return true;
}

static bool began(const struct rule_job *j) {
    return j->began || j->ended;
}

static bool has_ended(const struct rule_job *j) {
    return j->ended;
}

static bool ended_well(const struct rule_job *j) {
    return j->ended && j->ok;
}

static bool term_holds(struct rules *r, const struct dependency_term *t, uint64_t id) {
    const struct rule_job *self = job_of(r, id), *one = NULL;
    if (t->type == SINGLETON || !job_of(r, t->ref.job))
        return true;
    if (t->ref.has_index || t->type == AFTER_CORR) {
        uint64_t element = t->ref.job + (t->ref.has_index ? t->ref.index : id - self->array);
        one = job_of(r, element);
        if (!one || one->array != t->ref.job)
            return true;  // no such element: decided by the whole
        return t->type == AFTER_CORR ? ended_well(one) : has_ended(one);
    }
    switch (t->type) {
    case AFTER: return all_of(r, t->ref.job, began);
    case AFTER_OK: return all_of(r, t->ref.job, ended_well);
    case AFTER_NOT_OK: return all_of(r, t->ref.job, has_ended) && !all_of(r, t->ref.job, ended_well);
    default: return all_of(r, t->ref.job, has_ended);
    }
}

static bool may_go(struct rules *r, const struct rule_job *j, uint64_t id) {
    cleanup_arena struct arena a = {0};
    struct dependency d;
    if (!j->dependency || dependency_parse(j->dependency, &a, &d, NULL) < 0)
        return true;
    uint32_t holding = 0;
    for (uint32_t i = 0; i < d.len; i++)
        holding += term_holds(r, &d.at[i], id);
    return d.any ? holding > 0 : holding == d.len;
}

// --- placing ---

static void take_optional(struct rule_node *n, const struct part *p, int sign) {
    n->optional_cpus += (uint32_t)sign * p->cpus;
    n->optional_bytes += (uint64_t)(int64_t)sign * p->memory_bytes;
    for (uint32_t g = 0; g < p->gpus.len; g++)
        if (p->gpus.at[g].index < 32)
            n->optional_milli[p->gpus.at[g].index] += (uint32_t)sign * p->gpus.at[g].milli;
}

static void take(struct rules *r, const struct rule_job *j, const struct part *p, int sign) {
    struct rule_node *n = node_of(r, p->node);
    if (!n)
        return;
    if (j->optional) {
        take_optional(n, p, sign);
        return;
    }
    n->cpus += (uint32_t)sign * p->cpus;
    n->memory_bytes += (uint64_t)(int64_t)sign * p->memory_bytes;
    for (uint32_t g = 0; g < p->gpus.len; g++)
        if (p->gpus.at[g].index < 32)
            n->gpus_milli[p->gpus.at[g].index] += (uint32_t)sign * p->gpus.at[g].milli;
}

static uint64_t gpus_of(const struct event_job_placed *b) {
    uint64_t milli = 0;
    for (uint32_t i = 0; i < b->parts.len; i++)
        for (uint32_t g = 0; g < b->parts.at[i].gpus.len; g++)
            milli += b->parts.at[i].gpus.at[g].milli;
    return milli;
}

static void check_part(struct rules *r, uint64_t id, const struct part *p, bool optional) {
    const struct rule_node *n = node_of(r, p->node);
    if (!n || n->removed || !n->up || n->drained || n->paused) {
        broken(r, "job %llu was placed on %s, which is %s", (ull)id, p->node,
               !n || n->removed ? "not there"
               : n->drained     ? "drained"
               : n->paused      ? "paused after failed launches"
                                : "not up");
        return;
    }
    if (n->cpus + (optional ? n->optional_cpus : 0) > n->node->cpus ||
        n->memory_bytes + (optional ? n->optional_bytes : 0) > n->node->memory_bytes)
        broken(r, "job %llu was placed on %s, which is full", (ull)id, p->node);
    for (uint32_t g = 0; g < 32; g++)
        if (n->gpus_milli[g] > (g < n->node->gpus.len ? 1000 : 0))
            broken(r, "job %llu was placed on %s, whose GPU %u is full", (ull)id, p->node, g);
    for (uint32_t g = 0; optional && g < p->gpus.len; g++) {  // free for others, but not for it
        uint32_t index = p->gpus.at[g].index;
        if (index < 32 && n->gpus_milli[index] + n->optional_milli[index] > 1000)
            broken(r, "optional worker %llu was placed on %s, whose GPU %u is full", (ull)id, p->node, index);
    }
    for (uint32_t g = 0; g < p->gpus.len; g++)
        if (p->gpus.at[g].index < n->node->gpus.len && n->node->gpus.at[p->gpus.at[g].index].unhealthy)
            broken(r, "job %llu was placed on %s, on GPU %u, which is broken", (ull)id, p->node, p->gpus.at[g].index);
}

static void check_array(struct rules *r, uint64_t id, const struct rule_job *j) {
    uint32_t placed = 0;
    if (!j->array_limit)
        return;
    for (uint64_t i = j->array; i <= r->jobs.len && r->jobs.at[i - 1].array == j->array; i++)
        placed += r->jobs.at[i - 1].placed;
    if (placed > j->array_limit)
        broken(r, "job %llu was placed although %u of its array run, at most %u may", (ull)id, placed - 1,
               j->array_limit);
}

// A job that asks for the same, is older and could go. One with a promised start keeps it.
static void check_turn(struct rules *r, uint64_t id, const struct rule_job *j, int64_t at_ms) {
    for (uint32_t i = 0; i < r->jobs.len && !j->taker && !j->promised; i++) {
        const struct rule_job *o = &r->jobs.at[i];
        bool older = o->submit_ms != j->submit_ms ? o->submit_ms < j->submit_ms : i + 1 < id;
        bool waits = o->held_user || o->held_admin || o->placed || o->ended || o->begin_ms > at_ms ||
                     o->dependency || o->array_limit || o->uncreated;
        if (o->like == j->like && older && !waits) {
            r->passed = i + 1;
            r->passed_by = id;
            r->judge_ms = at_ms;
        }
    }
}

static void judge(struct rules *r, int64_t at_ms) {
    if ((!r->passed && !r->limited) || r->judge_ms == at_ms)
        return;
    const struct rule_job *o = job_of(r, r->passed), *l = job_of(r, r->limited);
    const struct rule_project *p = l ? project_of(r, l->project) : NULL;
    if (l && l->placed && p->has_limit && p->used_milli > p->limit_milli)
        broken(r, "job %llu was placed, its project %s now has %llu of %llu milli-GPU", (ull)r->limited,
               p->name, (ull)p->used_milli, (ull)p->limit_milli);
    if (o && !o->placed)
        broken(r, "job %llu passed job %llu, which asks for the same and is older", (ull)r->passed_by, (ull)r->passed);
    r->passed = r->limited = 0;
}

static void take_seat(struct rules *r, struct rule_job *j, uint64_t id, bool adopted) {
    j->holds_seat = j->licensed;
    r->seats_held += j->holds_seat;
    if (j->holds_seat && !adopted && r->seats_held > r->seats)
        broken(r, "job %llu was placed, %u of %u seats of its license are in use now", (ull)id, r->seats_held,
               r->seats);
}

// In one of those it names: whichever, it must be up and have the nodes.
static void check_partition(struct rules *r, const struct rule_job *j, const struct event_job_placed *b) {
    const char *in = b->partition ? b->partition : j->partition;
    if (!name_list_have(j->partition, in))
        broken(r, "job %llu was placed in partition %s, it names %s", (ull)b->id, in, j->partition);
    if (r->partition_down && streq(in, "main"))
        broken(r, "job %llu was placed in a partition that is down", (ull)b->id);
    for (uint32_t i = 0; i < b->parts.len && streq(in, "small"); i++)
        if (!streq(b->parts.at[i].node, r->small_nodes))
            broken(r, "job %llu was placed on %s, which is not in partition small", (ull)b->id, b->parts.at[i].node);
}

static void on_placed(struct rules *r, struct rule_job *j, const struct event_job_placed *b, int64_t at_ms) {
    struct rule_project *p = project_of(r, j->project);
    j->optional = b->optional;
    j->tried = true;
    take_seat(r, j, b->id, b->reason);
    if (b->reason) {  // adopted: it runs, whatever the rules, and waits for nothing when it is queued again
        j->placed = true;
        j->dependency = NULL;
        memset(j->part_ended, 0, sizeof j->part_ended);
        j->at = schema_copy(event_info(EVENT_JOB_PLACED)->schema, b, &r->arena);
        if (!j->optional)
            p->used_milli += gpus_of(b);
        for (uint32_t i = 0; i < b->parts.len; i++)
            take(r, j, &b->parts.at[i], 1);
        return;
    }
    if (j->held_user || j->held_admin)
        broken(r, "job %llu was placed while it is held", (ull)b->id);
    if (at_ms < j->begin_ms && r->latest_ms < j->begin_ms)
        broken(r, "job %llu was placed %lld ms before its begin", (ull)b->id, (long long)(j->begin_ms - at_ms));
    if (!may_go(r, j, b->id))
        broken(r, "job %llu was placed before what it waits for (%s)", (ull)b->id, j->dependency);
    check_partition(r, j, b);
    if (p->deleted)
        broken(r, "job %llu was placed, its project %s is deleted", (ull)b->id, p->name);
    check_turn(r, b->id, j, at_ms);
    j->placed = true;
    j->taker = j->promised = false;
    memset(j->part_ended, 0, sizeof j->part_ended);
    j->at = schema_copy(event_info(EVENT_JOB_PLACED)->schema, b, &r->arena);
    if (!j->optional)  // the scheduler's limits count them apart
        p->used_milli += gpus_of(b);
    if (p->has_limit && !j->optional && gpus_of(b) && p->used_milli > p->limit_milli) {
        r->limited = b->id;
        r->judge_ms = at_ms;
    }
    for (uint32_t i = 0; i < b->parts.len; i++)
        take(r, j, &b->parts.at[i], 1);
    for (uint32_t i = 0; i < b->parts.len; i++)
        check_part(r, b->id, &b->parts.at[i], j->optional);
    check_array(r, b->id, j);
}

static void on_part_adopted(struct rules *r, struct rule_job *j, const struct event_part_adopted *b) {
    struct event_job_placed more = {.parts = {b->part, 1}}, *at;
    if (!j->at || j->at->parts.len >= 8)
        return;
    at = schema_copy(event_info(EVENT_JOB_PLACED)->schema, j->at, &r->arena);
    at->parts.at = arena_alloc(&r->arena, (j->at->parts.len + 1) * sizeof *at->parts.at);
    for (uint32_t i = 0; i < j->at->parts.len; i++)
        at->parts.at[i] = j->at->parts.at[i];
    const struct event_job_placed *kept = schema_copy(event_info(EVENT_JOB_PLACED)->schema, &more, &r->arena);
    at->parts.at[at->parts.len++] = kept->parts.at[0];
    j->part_ended[at->parts.len - 1] = false;
    j->at = at;
    if (!j->ending && !j->optional)
        project_of(r, j->project)->used_milli += gpus_of(&more);
    take(r, j, b->part, 1);
}

static void on_part_ended(struct rules *r, struct rule_job *j, const struct event_part_ended *b) {
    for (uint32_t i = 0; j->at && i < j->at->parts.len && i < 8; i++)
        if (streq(j->at->parts.at[i].node, b->node) && !j->part_ended[i]) {
            j->part_ended[i] = true;
            take(r, j, &j->at->parts.at[i], -1);
        }
}

static void on_over(struct rules *r, struct rule_job *j) {
    if (!j->placed)
        return;
    for (uint32_t i = 0; i < j->at->parts.len && i < 8; i++)
        if (!j->part_ended[i])
            take(r, j, &j->at->parts.at[i], -1);
    if (!j->ending && !j->optional)
        project_of(r, j->project)->used_milli -= gpus_of(j->at);
    r->seats_held -= j->holds_seat;
    j->placed = j->ending = j->optional = j->holds_seat = false;
    j->at = NULL;
}

// A limit counts what runs, not what makes room.
static void to_end(struct rules *r, struct rule_job *j) {
    if (!j->ending && j->placed && !j->optional)
        project_of(r, j->project)->used_milli -= gpus_of(j->at);
    j->ending = j->placed;
}

// --- elastic jobs ---

uint32_t rules_worker_parts(const struct placed_worker *w, struct part *out, uint32_t most) {
    uint32_t n = 0;
    out[n++] = *w->part;
    for (uint32_t i = 0; i < w->more.len && n < most; i++)
        out[n++] = w->more.at[i];
    return n;
}

static void on_workers_placed(struct rules *r, const struct event_workers_placed *b, int64_t at_ms) {
    struct event_job_placed whole = {.id = b->id, .partition = b->partition};
    on_placed(r, job_of(r, b->id), &whole, at_ms);
    job_of(r, b->id)->like = hash_u64(b->id);  // queued again it may ask for fewer workers
    for (uint32_t i = 0; i < b->workers.len; i++) {
        struct part parts[8];
        struct event_job_placed one = {.id = b->workers.at[i].id,
                                       .partition = b->partition,
                                       .parts = {parts, rules_worker_parts(&b->workers.at[i], parts, 8)}};
        struct rule_job *j = job_of(r, one.id);
        if (!j)
            continue;
        j->begin_ms = 0;
        on_placed(r, j, &one, at_ms);
    }
}

// It runs with those of its workers that are found; the others wait a while.
static void on_adopted(struct rules *r, const struct event_job_adopted *b, int64_t at_ms) {
    struct event_job_placed whole = {.id = b->id, .partition = b->partition, .reason = b->reason};
    on_placed(r, job_of(r, b->id), &whole, at_ms);
    for (uint32_t i = 0; i < r->jobs.len; i++)
        if (r->jobs.at[i].job == b->id)
            r->jobs.at[i].begin_ms = b->begin_ms;
}

static void on_restarted(struct rules *r, struct rule_job *j) {
    if (!j->at || !j->part_ended[0])
        return;
    for (uint32_t i = 0; i < j->at->parts.len && i < 8; i++) {
        j->part_ended[i] = false;
        take(r, j, &j->at->parts.at[i], 1);
    }
    if (j->ending && !j->optional)
        project_of(r, j->project)->used_milli += gpus_of(j->at);
    j->ending = false;
}

static void workers_over(struct rules *r, uint64_t job) {
    for (uint32_t i = 0; i < r->jobs.len; i++)
        r->jobs.at[i].ended |= r->jobs.at[i].job == job;
}

// --- the rest of the journal ---

static void on_job(struct rules *r, const struct event *e) {
    struct rule_job *j = job_of(r, event_job_id(e)), *taker;
    const struct event_job *by = e->body;
    const struct event_job_ending *ending = e->body;
    uint64_t for_job;
    if (!j)
        return;
    switch (e->type) {
    case EVENT_JOB_HELD: *(by->by_admin ? &j->held_admin : &j->held_user) = true; break;
    case EVENT_JOB_RELEASED:
        j->held_user = false;
        j->held_admin &= !by->by_admin;
        break;
    case EVENT_JOB_UPDATED: read_spec(r, j, ((struct event_job_updated *)e->body)->spec); break;
    case EVENT_JOB_PLACED: on_placed(r, j, e->body, e->at_ms); break;
    case EVENT_PART_ADOPTED: on_part_adopted(r, j, e->body); break;
    case EVENT_WORKERS_PLACED: on_workers_placed(r, e->body, e->at_ms); break;
    case EVENT_WORKER_RESTARTED: on_restarted(r, j); break;
    case EVENT_JOB_ADOPTED: on_adopted(r, e->body, e->at_ms); break;
    case EVENT_JOB_RESIZED: {
        const struct event_job_resized *b = e->body;
        j->like = hash_u64(b->id);  // it asks for something else now
        if (b->added)
            add_workers(r, b->id, b->first_id, b->added);
        break;
    }
    case EVENT_JOB_STARTED:
        j->began = true;
        if (job_of(r, j->job))
            job_of(r, j->job)->began = true;
        break;
    case EVENT_JOB_PROMISED: j->promised = ((const struct event_job_promised *)e->body)->start_ms > 0; break;
    case EVENT_JOB_ENDING:
        to_end(r, j);
        for (uint32_t i = 0; i < r->jobs.len; i++)  // workers end with their job
            if (r->jobs.at[i].job == event_job_id(e))
                to_end(r, &r->jobs.at[i]);
        if (ending->cause == END_PREEMPT && ending->by && parse_u64(ending->by, &for_job) == 0 &&
            (taker = job_of(r, for_job)))
            taker->taker = true;
        break;
    case EVENT_PART_ENDED: on_part_ended(r, j, e->body); break;
    case EVENT_JOB_REQUEUED:
        on_over(r, j);
        j->held_user |= ((struct event_job_requeued *)e->body)->hold;
        j->begin_ms = ((struct event_job_requeued *)e->body)->begin_ms;
        break;
    case EVENT_JOB_ENDED:
        on_over(r, j);
        j->ended = true;
        workers_over(r, event_job_id(e));
        j->ok = ((struct event_job_ended *)e->body)->state == JOB_COMPLETED;
        break;
    default: break;
    }
}

static void on_joined(struct rules *r, const struct event_node_joined *b) {
    struct rule_node *n = node_of(r, b->node->name);
    if (!n) {
        n = xcalloc(1, sizeof *n);
        n->name = arena_strdup(&r->arena, b->node->name);
        vec_push(&r->nodes, n);
    }
    n->removed = false;
    arena_done(&n->arena);
    n->arena = (struct arena){0};
    n->node = schema_copy(&node_schema, b->node, &n->arena);
}

static void on_node(struct rules *r, const struct event *e) {
    const struct event_node *b = e->body;
    struct rule_node *n = node_of(r, b->name);
    if (!n)
        return;
    switch (e->type) {
    case EVENT_NODE_STATE: n->up = b->state == NODE_UP; break;
    case EVENT_NODE_DRAINED: n->drained = true; break;
    case EVENT_NODE_RESUMED: n->drained = false; break;
    default:
        n->removed = true;
        n->drained = n->up = n->paused = false;
        break;
    }
}

static void on_node_launches(struct rules *r, const struct event_node_launches *b) {
    struct rule_node *n = node_of(r, b->name);
    if (n)
        n->paused = b->retry_ms != 0;
}

void rules_event(struct rules *r, const struct event *e) {
    struct rule_project *p;
    judge(r, e->at_ms);
    switch (e->type) {
    case EVENT_JOB_SUBMITTED: on_submitted(r, e->body, e->at_ms); break;
    case EVENT_ARRAY_CONTINUED: on_continued(r, e->body); break;
    case EVENT_NODE_JOINED: on_joined(r, e->body); break;
    case EVENT_NODE_LAUNCHES: on_node_launches(r, e->body); break;
    case EVENT_NODE_STATE:
    case EVENT_NODE_DRAINED:
    case EVENT_NODE_RESUMED:
    case EVENT_NODE_REMOVED: on_node(r, e); break;
    case EVENT_LICENSE_SET: r->seats = ((struct event_license_set *)e->body)->license->count; break;
    case EVENT_PROJECT_SET: {
        const struct project *set = ((struct event_project_set *)e->body)->project;
        p = project_of(r, set->name);
        p->deleted = false;
        p->has_limit = set->has_limit;
        p->limit_milli = set->limit_milligpu;
        break;
    }
    case EVENT_PROJECT_DELETED: project_of(r, ((struct event_name *)e->body)->name)->deleted = true; break;
    case EVENT_PARTITION_SET:
        if (streq(((struct event_partition_set *)e->body)->partition->name, "main"))
            r->partition_down = ((struct event_partition_set *)e->body)->partition->down;
        else
            r->small_nodes = arena_strdup(&r->arena, ((struct event_partition_set *)e->body)->partition->nodes);
        break;
    default: on_job(r, e); break;
    }
}
