// Owns steps: tasks that run inside a job's allocation. A step is created by an event that says what it
// runs and what it holds of its job; it is sent to its nodes after the commit and again at every hello
// until they know it; it ends with an event when all its nodes have reported. What nodes report is kept in
// memory until then and acknowledged only afterwards, so a restarted controller is told again.
#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "base/text.h"
#include "model/nodelist.h"
#include "sched/step_pack.h"
#include "state.h"

enum {
    STEPS_PER_JOB_MAX = 10000,
    ENDED_KEPT = 64,
    STEP_GRACE_S = 30,
    ERROR_TEXT_LEN = 384,
    NUMBER_SLACK = 1000,  // steps that a job may have had in a state that was lost by a restore
};

struct core_step {
    struct arena arena;
    struct event_step *started;  // as it was created
    struct step_layout layout;   // the same, as the packing knows it
    struct step_end **ends;      // by part; NULL: it has not reported its end
    bool ending;
    bool unrecorded;  // that it is being ended: the journal's level has no event for it
    uint32_t signal, grace_s;
    int64_t away_ms;             // its client, since it was last there or this process began
    uint64_t created_seq;        // of the event that this process created it with; 0: it was read from disk
    // Where the helper of its first node listens, of an MPI step on several nodes; 0: not known (again) yet.
    uint32_t hub_port;
    uint8_t hub_key[MESSAGE_HUB_KEY_BYTES];
    struct event_step *ended;    // kept for a while for those who wait for it
};

// A step of a state that is lost, described by its first node when the job did not have the part of another one yet.
struct step_waiting {
    struct core_step_name name;
    const char *first;
    uint64_t missing;  // hash of the name of a node that has to join the job before
};

struct core_steps {
    struct arena arena;
    struct step_slot *slots;  // by part of the job
    uint32_t slots_max;
    VEC(struct core_step *) list;   // by number
    bool leased;                    // some have a lease
    VEC(struct core_step *) ended;  // the newest ones, oldest first
    VEC(struct text_use *) texts;   // environments on the controller's disk; they go with the job
    VEC(struct core_step_name) adopted;  // of a state that is lost, also those that have ended since
    VEC(struct step_waiting) waiting;    // not kept on disk: a node that says hello is asked again
    uint32_t own;                   // with such: the highest number of one that this state has created
    bool numbered;                  // a step was numbered since this controller started
};

static struct core_step *step_free_one(struct core_step *s) {
    arena_done(&s->arena);
    free(s);
    return NULL;
}

void core_steps_free(struct core *c, struct core_steps *s) {
    if (!s)
        return;
    for (uint32_t i = 0; i < s->list.len; i++)
        step_free_one(s->list.at[i]);
    for (uint32_t i = 0; i < s->ended.len; i++)
        step_free_one(s->ended.at[i]);
    for (uint32_t i = 0; c && i < s->texts.len; i++)
        core_text_drop(c, s->texts.at[i]);
    vec_done(&s->list);
    vec_done(&s->ended);
    vec_done(&s->texts);
    vec_done(&s->adopted);
    vec_done(&s->waiting);
    arena_done(&s->arena);
    free(s);
}

static struct step_slot slot_of(const struct run_part *p, struct arena *a) {
    struct step_slot s = {.node = p->node->name,
                          .cpus = p->cpus,
                          .cpu_held = arena_alloc(a, p->cpus + 1),
                          .memory_bytes = p->memory_bytes,
                          .gpus = arena_alloc(a, (p->gpu_count + 1) * sizeof(struct step_gpu)),
                          .gpu_count = p->gpu_count};
    for (uint32_t g = 0; g < p->gpu_count; g++)
        s.gpus[g] = (struct step_gpu){.index = p->gpus[g].index, .milli = p->gpus[g].milli};
    return s;
}

static struct core_steps *steps_of(struct core_job *j) {
    struct core_run *r = j->run;
    if (r->steps)
        return r->steps;
    struct core_steps *s = r->steps = xcalloc(1, sizeof *s);
    s->slots_max = r->part_count + 1;
    s->slots = arena_alloc(&s->arena, s->slots_max * sizeof *s->slots);
    for (uint32_t i = 0; i < r->part_count; i++)
        s->slots[i] = slot_of(&r->parts[i], &s->arena);
    return s;
}

void core_steps_part_added(struct core_job *j, uint32_t place) {
    struct core_steps *s = j->run->steps;
    uint32_t before = j->run->part_count - 1;
    if (!s)
        return;
    if (before == s->slots_max) {
        struct step_slot *more = arena_alloc(&s->arena, 2 * s->slots_max * sizeof *more);
        memcpy(more, s->slots, before * sizeof *more);
        s->slots = more;
        s->slots_max *= 2;
    }
    memmove(s->slots + place + 1, s->slots + place, (before - place) * sizeof *s->slots);
    s->slots[place] = slot_of(&j->run->parts[place], &s->arena);
    for (uint32_t i = 0; i < s->list.len; i++)
        for (uint32_t k = 0; k < s->list.at[i]->layout.len; k++)
            s->list.at[i]->layout.at[k].slot += s->list.at[i]->layout.at[k].slot >= place;
}

uint32_t core_steps_own(const struct core_job *j) {
    const struct core_steps *s = j->run ? j->run->steps : NULL;
    return s && s->adopted.len ? s->own : j->steps;
}

void core_steps_set_own(struct core_job *j, uint32_t number) {
    steps_of(j)->own = number;
}

static struct core_step *find_step(const struct core_job *j, uint32_t number) {
    const struct core_steps *s = j && j->run ? j->run->steps : NULL;
    uint32_t low = 0, high = s ? s->list.len : 0;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (s->list.at[middle]->started->step < number)
            low = middle + 1;
        else
            high = middle;
    }
    return s && low < s->list.len && s->list.at[low]->started->step == number ? s->list.at[low] : NULL;
}

static uint32_t part_index(const struct core_step *s, const char *node) {
    for (uint32_t i = 0; i < s->started->parts.len; i++)
        if (streq(s->started->parts.at[i].node, node))
            return i;
    return UINT32_MAX;
}

// --- events ---

// The layout of a journaled step. False: it does not go with what the job holds.
static bool layout_of(const struct core_job *j, struct core_step *s) {
    const struct event_step *e = s->started;
    s->layout.at = arena_alloc(&s->arena, (e->parts.len + 1) * sizeof *s->layout.at);
    for (uint32_t i = 0; i < e->parts.len; i++) {
        const struct step_part *p = &e->parts.at[i];
        struct step_share *h = &s->layout.at[s->layout.len++];
        uint32_t slot = 0;
        while (slot < j->run->part_count && !streq(j->run->parts[slot].node->name, p->node))
            slot++;
        if (slot == j->run->part_count)
            return false;
        *h = (struct step_share){.slot = slot, .ranks = p->ranks.at, .tasks = p->ranks.len, .cpus = p->cpus.at,
                                 .cpu_count = p->cpus.len, .memory_bytes = p->memory_bytes, .gpu_count = p->gpus.len,
                                 .owns_gpus = p->owns_gpus};
        h->gpus = arena_alloc(&s->arena, (p->gpus.len + 1) * sizeof *h->gpus);
        for (uint32_t g = 0; g < p->gpus.len; g++)
            h->gpus[g] = (struct step_gpu_share){p->gpus.at[g].index, p->gpus.at[g].milli};
        for (uint32_t k = 0; k < h->cpu_count; k++)
            if (h->cpus[k] >= j->run->parts[slot].cpus)
                return false;
    }
    return true;
}

// NULL: it does not go with what the job holds, or with its other steps.
static struct core_step *new_step(const struct core_job *j, const struct event_step *b) {
    struct core_step *s = xcalloc(1, sizeof *s);
    s->started = schema_copy(event_info(EVENT_STEP_STARTED)->schema, b, &s->arena);
    s->ends = arena_alloc(&s->arena, b->parts.len * sizeof *s->ends);
    if (!find_step(j, b->step) && layout_of(j, s) && sched_step_fits(j->run->steps->slots, &s->layout))
        return s;
    return step_free_one(s);
}

// Numbers grow, but for those of steps that are adopted.
static void insert(struct core_steps *all, struct core_step *s) {
    uint32_t at = all->list.len;
    vec_push(&all->list, s);
    for (; at && all->list.at[at - 1]->started->step > s->started->step; at--)
        all->list.at[at] = all->list.at[at - 1];
    all->list.at[at] = s;
}

static void apply_started(struct core *c, struct core_job *j, const struct event_step *b) {
    if (b->adopted && b->epoch && j->run)
        core_step_note_adopted(j, &(struct core_step_name){b->step, b->epoch});
    else if (j->run && j->run->steps && b->step > core_steps_own(j))
        j->run->steps->own = b->step;
    j->steps = b->step > j->steps ? b->step : j->steps;
    if (!b->parts.len || !j->run)
        return;  // of a release that kept no layout
    steps_of(j);
    struct core_step *s = new_step(j, b);
    if (!s)
        return;
    struct core_steps *all = j->run->steps;
    insert(all, s);
    if (b->lease_s && !all->leased)
        core_lease_add(c, j->id, j->attempt);
    all->leased |= b->lease_s != 0;
    sched_step_hold(all->slots, &s->layout);
    struct text_use *t = core_text_take(c, j->sub->user, b->environment_id, b->environment_bytes);
    if (t)
        vec_push(&all->texts, t);
}

static void apply_ended(struct core_job *j, const struct event_step *b) {
    struct core_step *s = find_step(j, b->step);
    if (!s)
        return;
    struct core_steps *all = j->run->steps;
    for (uint32_t i = 0; i < all->list.len; i++)
        if (all->list.at[i] == s)
            vec_remove(&all->list, i);
    sched_step_free(all->slots, &s->layout);
    s->ended = schema_copy(event_info(EVENT_STEP_ENDED)->schema, b, &s->arena);
    vec_push(&all->ended, s);
    if (all->ended.len > ENDED_KEPT) {
        step_free_one(all->ended.at[0]);
        vec_remove(&all->ended, 0);
    }
}

void core_apply_step(struct core *c, struct core_job *j, const struct event *e) {
    const struct event_step *b = e->body;
    const struct event_step_ending *ending = e->body;
    struct core_step *s = find_step(j, e->type == EVENT_STEP_ENDING ? ending->step : b->step);
    if (e->type == EVENT_STEP_ENDING && ending->attempt == j->attempt && s) {
        s->ending = true;
        s->unrecorded = false;
        s->signal = ending->signal;
        s->grace_s = ending->grace_s;
    } else if (e->type == EVENT_STEP_STARTED && b->attempt == j->attempt) {
        struct event_step started = *b;
        started.made_seq = b->made_seq ? b->made_seq : c->seq;
        apply_started(c, j, &started);
    } else if (e->type == EVENT_STEP_ENDED && b->attempt == j->attempt) {
        apply_ended(j, b);
    }
}

// --- snapshots ---

uint32_t core_steps_running(const struct core_job *j) {
    return j->run && j->run->steps ? j->run->steps->list.len : 0;
}

void core_steps_record(const struct core_job *j, uint32_t i, struct event_step **started,
                       struct event_step_ending *out) {
    const struct core_step *s = j->run->steps->list.at[i];
    *started = s->started;
    *out = (struct event_step_ending){0};
    if (s->ending && !s->unrecorded)
        *out = (struct event_step_ending){.id = 1, .signal = s->signal, .grace_s = s->grace_s};
}

int core_steps_load(struct core *c, struct core_job *j, const struct event_step *started, bool ending,
                    uint32_t signal, uint32_t grace_s) {
    uint32_t before = core_steps_running(j);
    apply_started(c, j, started);
    if (core_steps_running(j) != before + 1)
        return -EBADMSG;
    struct core_step *s = find_step(j, started->step);
    s->ending = ending;
    s->signal = signal;
    s->grace_s = grace_s;
    return 0;
}

uint32_t core_steps_adopted(const struct core_job *j, const struct core_step_name **out) {
    const struct core_steps *s = j->run ? j->run->steps : NULL;
    *out = s ? s->adopted.at : NULL;
    return s ? s->adopted.len : 0;
}

void core_step_note_adopted(struct core_job *j, const struct core_step_name *step) {
    struct core_steps *s = steps_of(j);
    for (uint32_t i = 0; i < s->adopted.len; i++)
        if (s->adopted.at[i].number == step->number && s->adopted.at[i].epoch == step->epoch)
            return;
    if (!s->adopted.len)
        s->own = j->steps;
    vec_push(&s->adopted, *step);
}

bool core_step_wait(struct core *c, struct core_job *j, const struct event_step *b, const char *first) {
    struct core_steps *s = steps_of(j);
    const char *missing = NULL;
    uint32_t at = 0;
    for (uint32_t i = 0; i < b->parts.len && !missing; i++)
        missing = core_part_on(j, b->parts.at[i].node) ? NULL : b->parts.at[i].node;
    while (at < s->waiting.len &&
           (s->waiting.at[at].name.number != b->step || s->waiting.at[at].name.epoch != b->epoch))
        at++;
    if (!missing || at == STEPS_PER_JOB_MAX)
        return missing != NULL;
    if (at == s->waiting.len)
        vec_push(&s->waiting, (struct step_waiting){0});
    s->waiting.at[at] = (struct step_waiting){
        {b->step, b->epoch}, core_intern(c, first), hash_bytes(missing, strlen(missing))};
    return true;
}

void core_steps_ask_again(struct core *c, struct core_job *j, const char *joined) {
    struct core_steps *s = j->run->steps;
    uint64_t hash = hash_bytes(joined, strlen(joined));
    uint32_t kept = 0;
    for (uint32_t i = 0; s && i < s->waiting.len; i++) {
        const struct step_waiting w = s->waiting.at[i];
        if (w.missing == hash)
            core_step_ask(c, j, w.first, w.name.number, w.name.epoch);
        else
            s->waiting.at[kept++] = w;
    }
    if (s)
        s->waiting.len = kept;
}

// --- commands ---

static void fill_part(const struct core_job *j, const struct step_share *h, struct step_part *p, struct arena *a) {
    *p = (struct step_part){.node = j->run->parts[h->slot].node->name,
                            .ranks = {h->ranks, h->tasks},
                            .cpus = {h->cpus, h->cpu_count},
                            .memory_bytes = h->memory_bytes,
                            .owns_gpus = h->owns_gpus,
                            .task_gpus = {h->task_gpus, h->task_gpus ? h->tasks : 0}};
    p->gpus.at = arena_alloc(a, (h->gpu_count + 1) * sizeof *p->gpus.at);
    for (uint32_t g = 0; g < h->gpu_count; g++)
        p->gpus.at[p->gpus.len++] = (struct gpu_grant){h->gpus[g].index, h->gpus[g].milli};
}

static void dispatch(struct core *c, const struct core_job *j, const struct core_step *s, const char *node) {
    core_effect(c, EFFECT_STEP, core_intern(c, node), j->id, j->attempt);
    c->outbox.effects.at[c->outbox.effects.len - 1].step = s->started->step;
}

static void fold_nodes(const struct event_step *b, struct buf *out) {
    VEC(const char *) names = {0};
    for (uint32_t i = 0; i < b->parts.len; i++)
        vec_push(&names, b->parts.at[i].node);
    nodelist_fold(names.at, names.len, out);
    vec_done(&names);
}

// Nodes remember the steps of an attempt by their numbers. After a restore of an older copy an attempt from before may
// have had steps that this state does not know: new ones are numbered beyond them.
static uint32_t next_number(const struct core *c, const struct core_job *j, struct core_steps *all) {
    bool skip = !all->numbered && c->restore_ms && j->run->epoch <= c->restore_epoch;
    all->numbered = true;
    uint32_t last = j->steps > j->run->steps_seen ? j->steps : j->run->steps_seen;
    return last + 1 + (skip ? NUMBER_SLACK : 0);
}

// Where the job has ended already nothing is started: such a node reports to nobody how a step ended.
static int pack(const struct core_job *j, const struct core_steps *all, const struct step_request *q, struct arena *a,
                struct step_layout *out, struct error *e) {
    const struct core_run *run = j->run;
    struct step_request rest = *q;
    uint32_t over = 0;
    const char **excluded = arena_alloc(a, (q->excluded_count + run->part_count + 1) * sizeof *excluded);
    for (uint32_t i = 0; i < q->excluded_count; i++)
        excluded[i] = q->excluded[i];
    for (uint32_t i = 0; i < run->part_count; i++)
        if (run->parts[i].ended)
            excluded[q->excluded_count + over++] = run->parts[i].node->name;
    rest.excluded = excluded;
    rest.excluded_count += over;
    int r = sched_step_pack(over ? &rest : q, all->slots, run->part_count, a, out, e);
    if (r < 0 && r != -EAGAIN && over && sched_step_pack(q, all->slots, run->part_count, a, out, e) != r)
        return error_set(e, EBUSY, "job %llu has ended on %u of its %u nodes, and the step needs more than the others",
                         (unsigned long long)j->id, over, run->part_count);
    return r;
}

int core_step_create(struct core *c, const struct actor *actor, uint64_t id, const struct core_step_request *q,
                     int64_t now_ms, uint32_t *number, struct error *e) {
    struct core_job *j = core_find_job(c, id);
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf nodes = {0};
    struct step_layout l;
    if (!j)
        return error_set(e, EBUSY, "job %llu has already ended", (unsigned long long)id);
    if ((!actor->admin && !streq(j->sub->user, actor->user)) ||
        (actor->project && !streq(actor->project, j->sub->project)))
        return error_set(e, EPERM, "job %llu is another user's, or of another project than your token's",
                         (unsigned long long)id);
    if (core_is_group(j))
        return error_set(e, EINVAL, "job %llu has workers; a step runs in one of them, as in %llu+0",
                         (unsigned long long)id, (unsigned long long)id);
    if (j->state != JOB_RUNNING && j->state != JOB_SUSPENDED)
        return error_set(e, EBUSY, "job %llu is %s; a step needs a running job", (unsigned long long)id,
                         job_state_words[j->state]);
    struct core_steps *all = steps_of(j);
    if (all->list.len >= STEPS_PER_JOB_MAX)
        return error_set(e, EAGAIN, "the job runs %d steps, the most that are possible at once", STEPS_PER_JOB_MAX);
    // The environment counts against its user's limit of texts, like that of a job: nothing is packed that could not
    // be kept.
    struct spec text = {.user = j->sub->user, .environment_id = q->environment_id,
                        .environment_bytes = q->environment_bytes};
    int r = core_texts_check(c, &text, e);
    if (r == 0)
        r = pack(j, all, q->request, &a, &l, e);
    if (r < 0)
        return r;
    struct event_step b = {.id = id,
                           .attempt = j->attempt,
                           .step = next_number(c, j, all),
                           .name = q->name,
                           .key = q->key,
                           .tasks = q->request->tasks,
                           .state = JOB_RUNNING,
                           .command = (struct message_exec *)(uintptr_t)q->command,
                           .environment_id = q->environment_id,
                           .environment_bytes = q->environment_bytes,
                           .lease_s = q->lease_s,
                           .epoch = core_epoch(c)};
    b.parts.at = arena_alloc(&a, l.len * sizeof *b.parts.at);
    b.parts.len = l.len;
    for (uint32_t i = 0; i < l.len; i++) {
        fill_part(j, &l.at[i], &b.parts.at[i], &a);
        b.cpus += l.at[i].cpu_count ? l.at[i].cpu_count : l.at[i].tasks;
    }
    fold_nodes(&b, &nodes);
    b.nodes = buf_str(&nodes);
    // The event holds the whole layout: after a restart the same tasks are on the same CPUs and GPUs, and a node that
    // lost the message gets it again from there.
    core_emit(c, now_ms, EVENT_STEP_STARTED, &b);
    struct core_step *s = find_step(j, b.step);
    assert(s);
    s->created_seq = c->seq;
    for (uint32_t i = 0; i < b.parts.len; i++)
        if (core_part_on(j, b.parts.at[i].node)->started)
            dispatch(c, j, s, b.parts.at[i].node);
    *number = b.step;
    return 0;
}

// What a controller needs to adopt the step. Only its first node keeps it: with a thousand nodes the layout of all of
// them on each would be a thousand times as much.
static struct bytes origin_of(const struct event_step *b, struct arena *a) {
    cleanup_buf struct buf out = {0};
    struct event_step small = *b;
    struct message_exec command = b->command ? *b->command : (struct message_exec){0};
    size_t argv_bytes = 0;
    uint32_t argc = 0;
    while (argc < command.argv.len &&
           (argv_bytes += strlen(command.argv.at[argc]) + 1) <= CORE_ADOPTED_ARGV_MAX)
        argc++;
    command.argv.len = argc;
    command.environment.len = 0;
    small.command = &command;
    small.environment_id = NULL;
    small.environment_bytes = 0;
    schema_encode(event_info(EVENT_STEP_STARTED)->schema, &small, &out);
    return (struct bytes){arena_memdup(a, out.data, out.len), out.len};
}

// By rank: the place of its node.
static void place_tasks(const struct event_step *b, struct arena *a, struct message_exec *out) {
    out->task_nodes.at = arena_alloc(a, (b->tasks + 1) * sizeof *out->task_nodes.at);
    out->task_nodes.len = b->tasks;
    for (uint32_t i = 0; i < b->parts.len; i++)
        for (uint32_t k = 0; k < b->parts.at[i].ranks.len; k++)
            if (b->parts.at[i].ranks.at[k] < b->tasks)
                out->task_nodes.at[b->parts.at[i].ranks.at[k]] = i;
}

int core_step_message(const struct core *c, uint64_t id, uint32_t attempt, uint32_t step, const char *node,
                      struct arena *a, struct message_exec *out, const char **environment_id) {
    struct core_job *j = core_find_job(c, id);
    struct core_step *s = j && j->attempt == attempt ? find_step(j, step) : NULL;
    uint32_t index = s ? part_index(s, node) : UINT32_MAX;
    // The message is made when it leaves, after the commit; meanwhile the job, the attempt or the step may have ended.
    if (index == UINT32_MAX || s->ends[index] || s->started->adopted)
        return -ESTALE;
    const struct event_step *b = s->started;
    const struct step_part *p = &b->parts.at[index];
    *out = b->command ? *b->command : (struct message_exec){0};
    out->id = core_agent_job(j);
    out->attempt = attempt;
    out->step = step;
    out->epoch = b->epoch;
    out->seq = b->made_seq;
    if (index == 0)
        out->origin = origin_of(b, a);
    out->total_tasks = b->tasks;
    out->tasks = p->ranks.len;
    out->first_rank = p->ranks.len ? p->ranks.at[0] : 0;
    out->ranks.at = p->ranks.at;
    out->ranks.len = p->ranks.len;
    out->node_index = index;
    out->node_count = b->parts.len;
    out->nodes = b->nodes;
    out->cpus.at = p->cpus.at;
    out->cpus.len = p->cpus.len;
    out->memory_bytes = p->memory_bytes;
    out->gpus.at = p->gpus.at;
    out->gpus.len = p->gpus.len;
    out->task_gpus.at = p->task_gpus.at;
    out->task_gpus.len = p->task_gpus.len;
    if (out->mpi && b->parts.len > 1)
        place_tasks(b, a, out);
    out->tasks_per_node.at = arena_alloc(a, b->parts.len * sizeof *out->tasks_per_node.at);
    for (uint32_t i = 0; i < b->parts.len; i++)
        out->tasks_per_node.at[out->tasks_per_node.len++] = b->parts.at[i].ranks.len;
    const struct node *n = j->run->parts[s->layout.at[index].slot].node->node;
    out->gpu_uuids.at = arena_alloc(a, (p->gpus.len + 1) * sizeof *out->gpu_uuids.at);
    for (uint32_t g = 0; g < p->gpus.len; g++)
        out->gpu_uuids.at[out->gpu_uuids.len++] =
            p->gpus.at[g].index < n->gpus.len ? n->gpus.at[p->gpus.at[g].index].uuid : "";
    *environment_id = b->environment_id;
    return 0;
}

static void send_step_kill(struct core *c, const struct core_job *j, const struct core_step *s,
                           uint32_t index) {
    const struct event_step *b = s->started;
    struct message_kill k = {.id = core_agent_job(j),
                             .attempt = b->attempt,
                             .step = b->step,
                             .cause = END_CANCEL,
                             .signal = s->signal,
                             .grace_s = s->grace_s};
    if (!s->ends[index])
        core_effect_send(c, b->parts.at[index].node, MESSAGE_KILL, &k);
}

static void end_step(struct core *c, struct core_job *j, struct core_step *s, uint32_t signal, const char *by,
                     const char *reason, int64_t now_ms) {
    struct event_step_ending b = {.id = j->id,
                                  .attempt = j->attempt,
                                  .step = s->started->step,
                                  .signal = signal,
                                  .grace_s = STEP_GRACE_S,
                                  .by = by,
                                  .reason = reason};
    if (s->ending && (s->signal == SIGKILL || signal != SIGKILL))
        return;
    if (core_feature(c, FEATURE_STEPS)) {
        core_emit(c, now_ms, EVENT_STEP_ENDING, &b);
    } else {
        s->ending = s->unrecorded = true;
        s->signal = signal;
        s->grace_s = b.grace_s;
    }
    for (uint32_t i = 0; i < s->started->parts.len; i++)
        send_step_kill(c, j, s, i);
}

int core_step_signal(struct core *c, const struct actor *actor, uint64_t id, uint32_t step, uint32_t signal, bool end,
                     int64_t now_ms, struct error *e) {
    struct core_job *j;
    int r = core_need_job(c, actor, id, &j, e);
    struct core_step *s = r == 0 ? find_step(j, step) : NULL;
    if (r < 0)
        return r;
    if (!s)
        return error_set(e, ENOENT, "job %llu has no step %u that runs", (unsigned long long)id, step - 1);
    if (end || signal == SIGKILL) {
        end_step(c, j, s, signal, actor->user, NULL, now_ms);
        return 0;
    }
    for (uint32_t i = 0; i < s->started->parts.len; i++) {
        struct message_signal m = {
            .id = core_agent_job(j), .attempt = j->attempt, .step = step, .signal = signal};
        if (!s->ends[i])
            core_effect_send(c, s->started->parts.at[i].node, MESSAGE_SIGNAL, &m);
    }
    return 0;
}

void core_step_renew(struct core *c, uint64_t id, uint32_t step) {
    struct core_step *s = find_step(core_find_job(c, id), step);
    if (s)
        s->away_ms = 0;
}

bool core_steps_leases_check(struct core *c, struct core_job *j, int64_t passed_ms, int64_t now_ms) {
    if (!j->run || !j->run->steps || !j->run->steps->leased)
        return false;
    for (uint32_t i = 0; i < j->run->steps->list.len; i++) {
        cleanup_arena struct arena a = {0};
        struct core_step *s = j->run->steps->list.at[i];
        uint32_t lease_s = s->started->lease_s;
        if (lease_s && !s->ending && (s->away_ms += passed_ms) > (int64_t)lease_s * 1000)
            end_step(c, j, s, SIGTERM, NULL,
                     arena_printf(&a, "its client was not connected for %u s", lease_s), now_ms);
    }
    return true;
}

// --- reports ---

static int badness(const struct step_end *e) {
    return e->exit_signal ? 1000 + (int)e->exit_signal : e->exit_code;
}

static enum job_state end_state(const struct event_step *b, bool fine) {
    for (uint32_t i = 0; i < b->ends.len; i++)
        if (b->ends.at[i].cause == END_OOM || b->ends.at[i].cause == END_TIMEOUT)
            return b->ends.at[i].cause == END_OOM ? JOB_OUT_OF_MEMORY : JOB_TIMEOUT;
    return fine                                                      ? JOB_COMPLETED
           : b->exit_signal == SIGTERM || b->exit_signal == SIGKILL ? JOB_CANCELLED
                                                                     : JOB_FAILED;
}

static void finish_step(struct core *c, struct core_job *j, struct core_step *s, int64_t now_ms) {
    cleanup_arena struct arena a = {0};
    struct usage usage = {0};
    struct event_step b = {.id = j->id, .attempt = j->attempt, .step = s->started->step, .tasks = s->started->tasks,
                           .usage = &usage};
    const struct step_end *worst = NULL;
    bool broken = false;
    b.ends.at = arena_alloc(&a, s->started->parts.len * sizeof *b.ends.at);
    for (uint32_t i = 0; i < s->started->parts.len; i++) {
        const struct step_end *e = s->ends[i];
        b.ends.at[b.ends.len++] = *e;
        if (!worst || badness(e) > badness(worst))
            worst = e;
        if (e->usage)
            usage_add(&usage, e->usage);
        broken = broken || e->error;
    }
    b.exit_code = worst->exit_code ? worst->exit_code : broken && !worst->exit_signal ? 1 : 0;
    b.exit_signal = worst->exit_signal;
    b.state = end_state(&b, !b.exit_code && !b.exit_signal);
    const struct event_step *started = s->started;  // stays while the ended step is kept
    core_emit(c, now_ms, EVENT_STEP_ENDED, &b);
    for (uint32_t i = 0; i < started->parts.len; i++) {
        struct message_step ack = {
            .id = core_agent_job(j), .attempt = j->attempt, .step = b.step, .epoch = started->epoch};
        core_effect_send(c, started->parts.at[i].node, MESSAGE_STEP_ACK, &ack);
    }
}

static void take_end(struct core *c, struct core_job *j, struct core_step *s, uint32_t index,
                     const struct step_end *end, int64_t now_ms) {
    char text[ERROR_TEXT_LEN];  // a node's words are read by people at terminals
    struct step_end *e = s->ends[index] = schema_copy(&event_step_end_schema, end, &s->arena);
    uint32_t left = 0, tasks = s->started->parts.at[index].ranks.len;
    e->node = s->started->parts.at[index].node;
    if (e->exits.len > tasks)
        e->exits.len = tasks;
    if (e->error)
        e->error = arena_strdup(&s->arena, str_printable(e->error, text, sizeof text));
    for (uint32_t i = 0; i < s->started->parts.len; i++)
        left += !s->ends[i];
    bool bad = e->exit_code || e->exit_signal || e->error;
    if (!left)
        finish_step(c, j, s, now_ms);
    else if (bad && (e->error || (s->started->command && s->started->command->kill_on_bad_exit)))
        end_step(c, j, s, SIGTERM, NULL, NULL, now_ms);
}

// The step of that number, if it is the one that the node means: after a restore numbers come again. Agents of release
// 0.2 know no epochs of steps.
void core_step_created(struct core_step *s, uint64_t seq) {
    s->created_seq = seq;
}

bool core_step_is_adopted(const struct core_step *s) {
    return s->started->adopted;
}

bool core_step_fits(struct core_job *j, const struct event_step *b) {
    steps_of(j);
    struct core_step *s = b->parts.len && core_steps_running(j) < STEPS_PER_JOB_MAX ? new_step(j, b) : NULL;
    if (s)
        step_free_one(s);
    return s != NULL;
}

struct core_step *core_step_same(const struct core_job *j, uint32_t number, uint64_t epoch) {
    struct core_step *s = find_step(j, number);
    return s && epoch && s->started->epoch && s->started->epoch != epoch ? NULL : s;
}

void core_step_part_over(struct core *c, struct core_job *j, struct core_step *s, const char *node,
                         const struct step_end *end, int64_t now_ms) {
    uint32_t index = part_index(s, node);
    if (index != UINT32_MAX && !s->ends[index])
        take_end(c, j, s, index, end, now_ms);
}

void core_agent_step_ended(struct core *c, const char *node, const struct step_end *end, int64_t now_ms) {
    struct core_job *j;
    bool here = core_reported_part(c, node, end->id, end->attempt, &j) != NULL;
    struct core_step *s = here ? core_step_same(j, end->step, end->epoch) : NULL;
    uint32_t index = s ? part_index(s, node) : UINT32_MAX;
    const struct node_entry *n = core_find_node(c, node);
    struct message_step ack = {
        .id = end->id, .attempt = end->attempt, .step = end->step, .epoch = end->epoch};
    if (!here && n && core_attempt_asked(n, end->id, end->attempt))
        return;  // its attempt is being described, and this end with it
    if (here && !s && core_step_lost(c, j, end->step, end->epoch, end->made_seq))
        core_step_ask(c, j, node, end->step, end->epoch);
    else if (index == UINT32_MAX)
        core_effect_send(c, node, MESSAGE_STEP_ACK, &ack);  // of a step that is over: the node may forget it
    else if (!s->ends[index])
        take_end(c, j, s, index, end, now_ms);
}

static void send_hub(struct core *c, const struct core_job *j, const struct core_step *s, uint32_t index) {
    const struct event_step *b = s->started;
    const struct node_entry *first = core_find_node(c, b->parts.at[0].node);
    struct message_step_hub m = {.id = core_agent_job(j),
                                 .attempt = b->attempt,
                                 .step = b->step,
                                 .epoch = b->epoch,
                                 .port = s->hub_port,
                                 .key = {s->hub_key, sizeof s->hub_key},
                                 .address = first && first->node ? first->node->address : NULL};
    if (!s->ends[index])
        core_effect_send(c, b->parts.at[index].node, MESSAGE_STEP_HUB, &m);
}

// The first node says where its helper listens, the others ask for that. Neither needs an event: nodes say it again
// after every reconnect until their helpers have found each other.
void core_agent_step_listens(struct core *c, const char *node, const struct message_step_hub *m) {
    struct core_job *j;
    bool here = core_reported_part(c, node, m->id, m->attempt, &j) != NULL;
    struct core_step *s = here ? core_step_same(j, m->step, m->epoch) : NULL;
    uint32_t index = s ? part_index(s, node) : UINT32_MAX;
    if (index == UINT32_MAX || s->ends[index])
        return;
    if (index > 0 && s->hub_port)
        send_hub(c, j, s, index);
    if (index > 0 || !m->port || m->port > UINT16_MAX || m->key.len != sizeof s->hub_key)
        return;
    s->hub_port = m->port;
    memcpy(s->hub_key, m->key.data, sizeof s->hub_key);
    for (uint32_t i = 1; i < s->started->parts.len; i++)
        send_hub(c, j, s, i);
}

// The job has started on one more node: its steps there, which the node would not have known what to do with before.
void core_steps_part_started(struct core *c, const struct core_job *j, const char *node) {
    for (uint32_t i = 0; i < core_steps_running(j); i++) {
        const struct core_step *s = j->run->steps->list.at[i];
        uint32_t index = part_index(s, node);
        if (index == UINT32_MAX || s->ends[index])
            continue;
        dispatch(c, j, s, node);
        if (s->ending)
            send_step_kill(c, j, s, index);
    }
}

// A part of the job has ended, or the whole job: steps end there too.
void core_steps_part_ended(struct core *c, struct core_job *j, const char *node, int64_t now_ms) {
    for (uint32_t i = core_steps_running(j); i-- > 0;) {
        if (i >= core_steps_running(j))
            continue;
        struct core_step *s = j->run->steps->list.at[i];
        uint32_t index = part_index(s, node);
        struct step_end end = {.id = j->id, .attempt = j->attempt, .step = s->started->step, .cause = END_NODE_FAIL,
                               .exit_code = 1, .error = "ended together with its job"};
        if (index != UINT32_MAX && !s->ends[index])
            take_end(c, j, s, index, &end, now_ms);
    }
}

// Of a state that is lost, and it cannot be adopted: it runs on and ends with the job. Agents of release 0.2 do not say
// which event created a step.
static bool is_foreign(const struct core *c, const struct core_job *j, const struct step_state *t) {
    if (t->seq)
        return core_event_lost(c, t->epoch, t->seq) && !core_step_was_adopted(j, t->step, t->epoch);
    return c->restore_ms &&
           (t->step > j->steps || find_step(j, t->step) != core_step_same(j, t->step, t->epoch));
}

// After a hello: the node has the steps it should have, and no others.
void core_steps_reconcile(struct core *c, struct core_job *j, const char *node, const struct attempt *a,
                          bool restored, int64_t now_ms) {
    struct step_end unknown = {.id = core_agent_job(j),
                               .attempt = j->attempt,
                               .cause = END_NODE_FAIL,
                               .exit_code = 1,
                               .error = "how it ended was lost when the controller's state was restored"};
    if (a->last_step > j->run->steps_seen && a->last_step < CORE_STEPS_BELOW)
        j->run->steps_seen = a->last_step;
    for (uint32_t i = 0; i < a->steps.len; i++) {
        const struct step_state *t = &a->steps.at[i];
        struct step_end end = t->end ? *t->end : (struct step_end){0};
        struct core_step *s = core_step_same(j, t->step, t->epoch);
        end.id = core_agent_job(j);
        end.attempt = j->attempt;
        end.step = t->step;
        end.epoch = t->epoch;
        end.made_seq = t->seq;
        struct message_kill k = {.id = core_agent_job(j),
                                 .attempt = j->attempt,
                                 .step = t->step,
                                 .cause = END_CANCEL,
                                 .signal = SIGKILL};
        if (!s && core_step_lost(c, j, t->step, t->epoch, t->seq))
            core_step_ask(c, j, node, t->step, t->epoch);
        else if (t->end)
            core_agent_step_ended(c, node, &end, now_ms);
        else if (!is_foreign(c, j, t) && (!s || part_index(s, node) == UINT32_MAX))
            core_effect_send(c, node, MESSAGE_KILL, &k);
    }
    for (uint32_t i = core_steps_running(j); i-- > 0;) {
        struct core_step *s = j->run->steps->list.at[i];
        uint32_t index = part_index(s, node);
        bool known = false;
        for (uint32_t k = 0; k < a->steps.len && !known; k++)
            known = core_step_same(j, a->steps.at[k].step, a->steps.at[k].epoch) == s;
        if (index == UINT32_MAX || s->ends[index])
            continue;
        // It may have run and be over, unless this process has created it since.
        if (!known && ((restored && !s->created_seq) || s->started->adopted)) {
            unknown.step = s->started->step;
            take_end(c, j, s, index, &unknown, now_ms);
            continue;
        }
        if (!known)
            dispatch(c, j, s, node);
        if (s->ending)
            send_step_kill(c, j, s, index);
    }
}

// --- questions ---

static void view_of(const struct core_step *s, struct core_step_view *out) {
    *out = (struct core_step_view){.number = s->started->step,
                                   .started = s->started,
                                   .ended = s->ended,
                                   .created_seq = s->created_seq};
}

bool core_step_view(const struct core *c, uint64_t id, uint32_t number, const char *key, struct core_step_view *out) {
    const struct core_job *j = core_find_job(c, id);
    const struct core_steps *all = j && j->run ? j->run->steps : NULL;
    for (uint32_t k = 0; all && k < 2; k++) {
        uint32_t n = k ? all->ended.len : all->list.len;
        for (uint32_t i = n; i-- > 0;) {
            const struct core_step *s = k ? all->ended.at[i] : all->list.at[i];
            if (number ? s->started->step == number : key && streq(s->started->key, key)) {
                view_of(s, out);
                return true;
            }
        }
    }
    return false;
}

bool core_step_of_client(const struct core *c, uint64_t id, const char *key, uint64_t epoch,
                         struct core_step_view *out) {
    const struct core_job *j = core_find_job(c, id);
    const struct core_steps *all = j && j->run ? j->run->steps : NULL;
    for (uint32_t k = 0; all && epoch && k < 2; k++) {
        uint32_t n = k ? all->ended.len : all->list.len;
        for (uint32_t i = n; i-- > 0;) {
            const struct core_step *s = k ? all->ended.at[i] : all->list.at[i];
            if (s->started->epoch == epoch && streq(s->started->key, key)) {
                view_of(s, out);
                return true;
            }
        }
    }
    return core_step_view(c, id, 0, key, out);
}

uint64_t core_step_told_seq(const struct core *c, uint64_t id, uint32_t number, uint32_t part) {
    const struct core_job *j = core_find_job(c, id);
    const struct core_step *s = find_step(j, number);
    const struct run_part *p = s && part < s->layout.len ? &j->run->parts[s->layout.at[part].slot] : NULL;
    if (!p || p->ended)
        return 0;  // it has ended there: nothing more is told
    if (!p->started)
        return UINT64_MAX;
    return s->created_seq > p->started_seq ? s->created_seq : p->started_seq;
}

void core_give_back(struct core *c, uint64_t id, int32_t exit_code, uint32_t exit_signal, int64_t now_ms) {
    struct core_job *j = core_find_job(c, id);
    if (!j || !j->run || j->run->ending)
        return;
    struct event_job_ending how = {
        .cause = END_EXIT, .signal = SIGKILL, .exit_code = exit_code, .exit_signal = exit_signal};
    core_begin_ending(c, j, &how, now_ms);
}
