// POST /v1/jobs/ACTION: cancel, hold, release, requeue, suspend, resume, update, on jobs named
// by id ("12", "12_3", "12_[1-5]", an array as a whole) or by filter.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "api.h"
#include "notifier.h"
#include "model/arrayspec.h"
#include "model/dependency.h"
#include "sliced_work.h"

enum {
    UPDATE_BYTES_MAX = 64 << 20,   // written by one request that changes jobs,
    ACTION_BYTES_MAX = 512 << 20,  // and by any other: enough for a million ordinary jobs
    BATCH_JOBS = 64,               // found before they are changed
    WORK_ELEMENTS = 500,           // named by index: read for one unit of work
    SELECT_MAX = 4 << 20,          // jobs of one request: more than there can be; the same may be named twice
};

enum { PROBLEMS_MAX = 1000, NOTES_MAX = 20 };  // reported in one answer

struct action_problems {
    struct arena *arena;
    VEC(struct answer_action_error) list;
};

static void problem(struct action_problems *p, const char *id, const struct error *e) {
    if (p->list.len < PROBLEMS_MAX)
        vec_push(&p->list,
                 ((struct answer_action_error){arena_strdup(p->arena, id), api_error_answer(p->arena, e)}));
}

// Jobs that a request names: one, some or all elements of an array, or those that pass the filter.
struct action_source {
    uint64_t job;              // or the array; 0: the filter
    uint64_t next, count;      // elements of an array as a whole, in the order of their ids
    struct array_spec ranges;  // elements by index
    uint32_t range;            // and where to go on
    uint64_t index;
};

struct bulk_action {
    struct sliced_work work;
    struct arena arena;  // of the request
    const struct request_action *q;
    enum command_type type;
    VEC(struct action_source) sources;
    uint32_t source;                                      // where to go on
    const char *user, *name, *project, *partition, *qos;  // the filter
    uint32_t states;
    uint64_t after;    // the filter goes on behind this job
    uint64_t newest;  // jobs that are submitted after the request are not meant
    bool filter_done;
    bool began;
    enum job_sight sight;  // of the job that is looked up
    uint32_t named;  // ids of the request that were looked up
    uint64_t size;   // jobs they mean
    uint64_t batch[BATCH_JOBS];
    uint32_t found, looked, acted;  // of the batch
    bool refused;                   // a limit of the user is reached: the other jobs would be refused too
    uint64_t matched, done, unchanged;
    uint64_t written;  // bytes of the journal
    struct action_problems problems;
    const char *notes[NOTES_MAX];  // of jobs that were as asked already
    uint32_t notes_len;
};

static void action_free(struct sliced_work *w) {
    struct bulk_action *b = (struct bulk_action *)w;
    vec_done(&b->sources);
    vec_done(&b->problems.list);
    arena_done(&b->arena);
    free(b);
}

static void action_stopped(const struct sliced_work *w, struct error *e) {
    error_set(e, ENOTCONN, "the controller is stopping; %llu jobs were changed, ask again for the others",
              (unsigned long long)((const struct bulk_action *)w)->done);
}

static bool take_sight(void *ctx, const struct job_view *v) {
    struct bulk_action *b = ctx;
    b->sight = job_sight(b->work.controller, &b->work.actor, v->user, v->project);
    return false;
}

// Whether it is, or was, a job or an array that the actor may not know of.
static bool is_hidden(struct bulk_action *b, uint64_t id) {
    struct controller *c = b->work.controller;
    b->sight = SIGHT_ALL;
    if (core_is_array(c->core, id))
        core_each_element(c->core, id, 0, take_sight, b);
    else
        b->sight = job_sight_of(c, &b->work.actor, id);
    return b->sight == SIGHT_NONE;
}

// "12_[1-5,7]"
static int select_elements(struct bulk_action *b, const char *text, const char *bracket, uint64_t *size,
                           struct error *e) {
    struct action_source source = {0};
    size_t len = strlen(bracket);
    if (bracket[-1] != '_' || bracket[len - 1] != ']' ||
        parse_u64(arena_strndup(&b->arena, text, (size_t)(bracket - text - 1)), &source.job) < 0)
        return error_set(e, EINVAL, "\"%.60s\" is not a job; expected 12, 12_3 or 12_[1-5]", text);
    int r = array_parse(arena_strndup(&b->arena, bracket + 1, len - 2), &b->arena, &source.ranges, e);
    if (r == 0 && is_hidden(b, source.job))
        return error_set(e, ENOENT, "there is no job %s", text);
    if (r < 0 || !core_is_array(b->work.controller->core, source.job))
        return r;
    for (uint32_t i = 0; i < source.ranges.len; i++)
        *size += (source.ranges.at[i].last - source.ranges.at[i].first) / source.ranges.at[i].step + 1;
    if (source.ranges.len) {
        source.index = source.ranges.at[0].first;
        vec_push(&b->sources, source);
    }
    return 0;
}

static int select_id(struct bulk_action *b, const char *text, uint64_t *size, struct error *e) {
    struct controller *c = b->work.controller;
    const char *bracket = strchr(text, '[');
    struct job_ref ref;
    struct job_view v;
    if (bracket && bracket > text)
        return select_elements(b, text, bracket, size, e);
    int r = job_ref_parse(text, &ref, e);
    if (r < 0)
        return r;
    if (is_hidden(b, ref.job))
        return error_set(e, ENOENT, "there is no job %s", text);
    if (!ref.has_index && core_is_array(c->core, ref.job)) {
        struct action_source all = {.job = ref.job, .count = core_array_size(c->core, ref.job)};
        *size += all.count;
        vec_push(&b->sources, all);
        return 0;
    }
    uint64_t id = api_parse_job(c, &b->work.actor, text, e);
    if (!id)
        return -ENOENT;
    cleanup_arena struct arena a = {0};
    struct job_record record;
    bool live;
    if (!core_view(c->core, id, &v)) {
        if (api_record(c, id, &a, &record, &live) < 0)
            return error_set(e, ENOENT, "there is no job %s", text);
        return error_set(e, EALREADY, "job %s has already ended (%s)%s%s", text, job_state_words[record.state],
                         b->type == COMMAND_REQUEUE ? "; to run it again as a new job: acequia resubmit " : "",
                         b->type == COMMAND_REQUEUE ? text : "");
    }
    ++*size;
    vec_push(&b->sources, ((struct action_source){.job = id, .count = 1}));
    return 0;
}

static int read_states(struct bulk_action *b, struct error *e) {
    for (const char *p = b->q->state; p && *p;) {
        size_t n = strcspn(p, ",");
        int state = schema_word_find(job_state_words, arena_strndup(&b->arena, p, n));
        if (state < 0)
            return error_set(e, EINVAL,
                             "field \"state\": there is no state \"%.40s\"; expected PENDING, RUNNING, SUSPENDED, …",
                             b->q->state);
        b->states |= 1u << state;
        p += n + (p[n] == ',');
    }
    return 0;
}

// Looks up what the next id of the request means: that of an ended job is read from the disk, and a list of elements
// may be long.
static int select_next(struct bulk_action *b, uint32_t *spent, struct error *e) {
    const char *text = b->q->ids.at[b->named++];
    uint64_t size = b->size;
    struct error one = {0};
    if (select_id(b, text, &b->size, &one) < 0)
        problem(&b->problems, text, &one);
    *spent += WORK_ACT + (strchr(text, '[') ? WORK_ACT + (uint32_t)((b->size - size) / WORK_ELEMENTS) : 0);
    return b->size > SELECT_MAX
               ? error_set(e, E2BIG, "ids: more than %d jobs in one request; name fewer at a time",
                           SELECT_MAX)
               : 0;
}

static int select_jobs(struct bulk_action *b, struct error *e) {
    const struct request_action *q = b->q;
    if (schema_given(&request_action_schema, q, &q->ids))
        return 0;  // one after the other, when it is carried out
    b->named = q->ids.len;
    b->user = q->user;
    b->name = q->name;
    b->project = q->project;
    b->partition = q->partition;
    b->qos = q->qos;
    if (!b->user && !b->name && !b->project && !b->partition && !b->qos && !q->state && !q->all)
        return error_set(
            e, EINVAL, "no jobs are named: give ids, or a filter (user, name, state, project, partition, qos), or all");
    if (!b->user && !b->work.actor.admin)
        b->user = b->work.actor.user;  // a filter means one's own
    vec_push(&b->sources, (struct action_source){0});
    return read_states(b, e);
}

// --- finding the next jobs ---

// Names and users that may not be seen match nothing.
static bool is_known(const struct bulk_action *b, const struct job_view *v) {
    return (!b->user && !b->name) || streq(b->work.actor.user, v->user) ||
           job_sight(b->work.controller, &b->work.actor, v->user, v->project) >= SIGHT_PUBLIC;
}

static bool filter_view(void *ctx, const struct job_view *v) {
    struct bulk_action *b = ctx;
    // Jobs that were submitted after the request are not its own: else it might never end.
    if (v->id > b->newest) {
        b->filter_done = true;
        return false;
    }
    b->after = v->id;
    b->looked++;
    if (!v->job && (!b->states || b->states >> v->state & 1) && (!b->user || streq(b->user, v->user)) &&
        (!b->name || streq(b->name, v->name)) && (!b->project || streq(b->project, v->project)) &&
        (!b->partition || streq(b->partition, v->partition)) && (!b->qos || streq(b->qos, v->qos)) &&
        is_known(b, v))
        b->batch[b->found++] = v->id;
    return b->found < BATCH_JOBS && b->looked < BATCH_JOBS * WORK_ACT;
}

static bool find_by_filter(struct bulk_action *b) {
    uint64_t before = b->after;
    core_each_job_after(b->work.controller->core, b->after, filter_view, b);
    return b->filter_done || b->after == before;
}

// True when the source has no more.
static bool find_in_source(struct bulk_action *b, struct action_source *s) {
    const struct core *core = b->work.controller->core;
    struct job_view v;
    uint64_t id;
    if (!s->job)
        return find_by_filter(b);
    if (!s->ranges.len) {
        if (s->next < s->count && core_view(core, s->job + s->next, &v))
            b->batch[b->found++] = s->job + s->next;
        b->looked++;
        return ++s->next >= s->count;
    }
    id = core_element(core, s->job, (uint32_t)s->index);
    b->looked++;
    if (id && core_view(core, id, &v))
        b->batch[b->found++] = id;
    s->index += s->ranges.at[s->range].step;
    if (s->index > s->ranges.at[s->range].last && ++s->range < s->ranges.len)
        s->index = s->ranges.at[s->range].first;
    return s->range >= s->ranges.len;
}

// Fills the batch; returns the work it took.
static uint32_t find_batch(struct bulk_action *b) {
    b->found = b->looked = b->acted = 0;
    while (b->source < b->sources.len && b->found < BATCH_JOBS && b->looked < BATCH_JOBS * WORK_ACT)
        if (find_in_source(b, &b->sources.at[b->source]))
            b->source++;
    return b->looked * WORK_LOOK;
}

static int act(struct bulk_action *b, uint64_t id, struct command_result *result, struct error *e) {
    const struct request_action *q = b->q;
    struct command_job job = {id};
    struct command_cancel cancel = {.id = id,
                                    .signal = q->signal,
                                    .batch_only = q->batch_only,
                                    .steps_only = q->steps_only,
                                    .step = q->step,
                                    .reason = q->reason};
    struct command_hold hold = {id, q->as};
    struct command_requeue requeue = {id, q->hold};
    struct command_update update = {id, q->spec};
    const void *const bodies[] = {
        [COMMAND_CANCEL] = &cancel,   [COMMAND_HOLD] = &hold,   [COMMAND_RELEASE] = &job,
        [COMMAND_REQUEUE] = &requeue, [COMMAND_SUSPEND] = &job, [COMMAND_RESUME] = &job,
        [COMMAND_UPDATE] = &update};
    struct command command = {b->type, bodies[b->type]};
    return core_command(b->work.controller->core, &b->work.actor, NULL, &command, controller_now_ms(), result,
                        e);
}

// The actions are the names of the commands about jobs that exist.
static enum command_type action_of(const char *name) {
    for (int type = COMMAND_CANCEL; type <= COMMAND_UPDATE; type++)
        if (streq(command_name((enum command_type)type), name))
            return (enum command_type)type;
    return COMMAND_NONE;
}

// --- carrying out ---

static void answer(struct bulk_action *b) {
    struct api_call call = {.controller = b->work.controller, .req = b->work.req};
    struct answer_action out = {.matched = b->matched, .done = b->done, .unchanged = b->unchanged};
    out.notes.at = b->notes;
    out.notes.len = b->notes_len;
    out.errors.at = b->problems.list.at;
    out.errors.len = b->problems.list.len;
    api_answer_committed(&call, 200, &answer_action_schema, &out);
}

// Each changed or ended job has a copy of what was submitted: one request may not fill the disk with them.
static void check_written(struct bulk_action *b) {
    struct error full = {0};
    if (b->written <= (b->type == COMMAND_UPDATE ? UPDATE_BYTES_MAX : ACTION_BYTES_MAX))
        return;
    error_set(&full, E2BIG,
              "one request may not change this much; %llu jobs were changed, ask again for the others",
              (unsigned long long)b->done);
    problem(&b->problems, "", &full);
    b->refused = true;
}

// Returns the work it took.
static uint32_t act_on(struct bulk_action *b, uint64_t id) {
    struct core *core = b->work.controller->core;
    size_t before = core_outbox(core)->bytes.len;
    struct error one = {0};
    struct command_result result = {0};
    b->matched++;
    if (act(b, id, &result, &one) == 0 && !result.unchanged) {
        b->done++;
    } else if (result.unchanged) {
        if (b->unchanged++ < NOTES_MAX)
            b->notes[b->notes_len++] = arena_strdup(&b->arena, one.text);
    } else {
        char text[24];
        snprintf(text, sizeof text, "%llu", (unsigned long long)id);
        problem(&b->problems, text, &one);
        b->refused |= one.code == EAGAIN;
    }
    size_t after = core_outbox(core)->bytes.len, written = after > before ? after - before : 0;
    b->written += written;
    return WORK_ACT + (uint32_t)(written / WORK_BYTES);
}

// Elements that are still to be created are meant as well.
static bool waits_for_elements(const struct bulk_action *b) {
    const struct core *core = b->work.controller->core;
    for (uint32_t i = 0; i < b->sources.len; i++)
        if (b->sources.at[i].job ? core_array_unfinished(core, b->sources.at[i].job)
                                 : core_arrays_unfinished(core, b->newest))
            return true;
    return false;
}

static bool carry_out(struct sliced_work *w, uint32_t most, uint32_t *spent) {
    struct bulk_action *b = (struct bulk_action *)w;
    struct job_view v;
    struct error e = {0};
    while (b->named < b->q->ids.len) {
        if (*spent >= most || controller_work_late(w->controller))
            return false;
        if (select_next(b, spent, &e) < 0) {
            api_fail(w->req, &e);
            return true;
        }
    }
    if (!b->began && waits_for_elements(b))
        return false;
    b->began = true;
    while ((b->acted < b->found || b->source < b->sources.len) && !b->refused) {
        if (*spent >= most || controller_work_late(w->controller))
            return false;
        if (b->acted == b->found) {
            *spent += find_batch(b);
            continue;
        }
        uint64_t id = b->batch[b->acted++];
        if (!core_view(w->controller->core, id, &v))
            continue;  // it has ended since it was found
        *spent += act_on(b, id);
        if (b->acted < b->found || b->source < b->sources.len)
            check_written(b);
    }
    answer(b);
    return true;
}

void api_action(struct api_call *call) {
    struct error e = {0};
    enum command_type action = action_of(call->name);
    if (action != COMMAND_NONE && !api_job_version_holds(call, call->body))
        return;
    struct bulk_action *b = xcalloc(1, sizeof *b);
    *b = (struct bulk_action){
        .work = {call->controller, call->req, call->actor, carry_out, action_stopped, action_free},
        .q = call->body,
        .type = action,
        .arena = call->arena,
        .newest = core_newest_id(call->controller->core)};
    call->arena = (struct arena){0};
    b->problems.arena = &b->arena;
    if (action == COMMAND_NONE)
        error_set(&e, ENOENT,
                  "there is no such action; expected cancel, hold, release, requeue, suspend, resume or update");
    else if (action == COMMAND_UPDATE && !b->q->spec)
        error_set(&e, EINVAL, "field \"spec\" is missing: an object with the fields to change");
    if (!e.code && b->q->spec)
        notifier_check(call->controller, b->q->spec, &e);
    if (e.code || select_jobs(b, &e) < 0) {
        api_fail(call->req, &e);
        action_free(&b->work);
        return;
    }
    controller_work_begin(&b->work);
}
