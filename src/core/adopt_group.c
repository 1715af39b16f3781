// Workers of elastic jobs after a restore of an older copy. A worker that a node describes carries its job: number,
// spec, attempt, and which worker it is. So it becomes the same worker of the same job again:
// - the job waits in the copy, or is not in it at all: it runs from then on (job_adopted), with the workers that nodes
//   describe one after the other. Those that nobody has described after a while are started as any worker that waits;
// - the job runs in the copy: the worker joins it.
// Minimum, maximum, worker numbers and components stay; the generation of the membership goes on from the newest that a
// node knows. What does not fit the copy any more becomes a job of its own (adopt.c): a worker that the copy has
// started a second time, of a job that the copy is ending, or whose number is another component's in the copy, because
// a resize of components was lost.
#include <string.h>

#include "base/text.h"
#include "model/name.h"
#include "state.h"

enum { REPORT_WAIT_MS = 120 * 1000 };      // nodes that run other workers connect within this time
#define NEVER_MS INT64_C(253402300799000)  // the last second of the year 9999

static const char reason[] =
    "Adopted: its workers were started before the controller's state was restored from an "
    "older copy";

static bool is_same(const struct core_job *job, const struct message_launch *l) {
    return job && core_is_group(job) && job->sub->submit_ms == l->submit_ms &&
           streq(job->sub->user, l->spec->user);
}

// The job of the copy, or one that was made of another worker and may have got another number.
static struct core_job *find(const struct core *c, const struct message_launch *l) {
    struct core_job *job = core_find_job(c, l->job->id);
    void *g;
    if (is_same(job, l))
        return job;
    for (size_t it = 0; map_next(&c->groups, &it, NULL, &g);) {
        job = core_find_job(c, ((const struct group *)g)->id);
        if (is_same(job, l) && job->run && job->run->agent_id == l->job->id)
            return job;
    }
    return NULL;
}

// Numbers run over the components in order; later ones were added by a resize.
static bool is_of_component(const struct spec *s, uint32_t number, uint32_t component) {
    uint32_t first = 0;
    if (!s->components.len)
        return component == 0;
    if (component >= s->components.len)
        return false;
    for (uint32_t i = 0; i < component; i++)
        first += s->components.at[i].workers_max;
    return number >= s->workers_max ||
           (number >= first && number < first + s->components.at[component].workers_max);
}

static bool texts_lost(const struct spec *s) {
    return !str_empty(s->script_id) || !str_empty(s->environment_id) || s->secrets.len;
}

// Its submit was lost: it is submitted again, as far as this state knows what it names.
static struct core_job *submit(struct core *c, const struct message_launch *l, int64_t now_ms) {
    const struct spec *from = l->job->spec;
    struct actor owner = {.user = from->user, .uid = from->uid, .gid = from->gid, .admin = true};
    struct spec s = *from;
    s.script_id = s.environment_id = s.upload_id = s.dependency = NULL;
    s.script_bytes = s.environment_bytes = s.upload_bytes = 0;
    s.secrets.len = 0;
    s.begin_ms = 0;
    s.hold = false;
    core_adopted_names(c, &s);
    core_fill_defaults(c, &owner, &s);
    if (!core_spec_loads(&s) || core_check_spec(c, &owner, &s, 0, now_ms, NULL) < 0)
        return NULL;
    struct event_key key;
    bool keyed = core_key_adopt(c, s.key_hash, now_ms, &key);
    struct event_job_submitted b = {.id = core_adopted_id(c, l->job->id, 1 + (uint64_t)s.workers_max),
                                    .spec = &s,
                                    .key = keyed ? &key : NULL,
                                    .submit_ms = core_adopted_submit_ms(l->submit_ms, now_ms)};
    core_emit(c, now_ms, EVENT_JOB_SUBMITTED, &b);
    return core_find_job(c, b.id);
}

static void run(struct core *c, struct core_job *job, const struct message_launch *l, bool lost,
                int64_t now_ms) {
    const struct launch_job *of = l->job;
    uint32_t next = core_next_attempt(c, job);
    struct event_job_adopted b = {.id = job->id,
                                  .attempt = of->attempt > next ? of->attempt : next,
                                  .time_limit_s = of->time_limit_s,
                                  .agent_id = of->id == job->id ? 0 : of->id,
                                  .start_ms =
                                      of->start_ms > 0 && of->start_ms < now_ms ? of->start_ms : now_ms,
                                  .begin_ms = lost ? NEVER_MS : now_ms + REPORT_WAIT_MS,
                                  .texts_lost = lost,
                                  .reason = reason};
    if (name_list_several(job->sub->partition) && name_list_have(job->sub->partition, l->spec->partition))
        b.partition = l->spec->partition;
    core_emit(c, now_ms, EVENT_JOB_ADOPTED, &b);
    core_effect(c, EFFECT_JOB_CHANGED, NULL, job->id, 0);
}

// The numbers up to this worker's, which a resize had added after the copy was made.
static void add_numbers(struct core *c, const struct core_job *job, const struct message_launch *l,
                        int64_t now_ms) {
    const struct group *g = job->sub->group;
    const struct group_component *k = &g->components.at[l->job->component];
    uint32_t added = l->worker + 1 - g->workers.len;
    struct event_job_resized b = {.id = job->id,
                                  .workers_min = k->min,
                                  .workers_max = k->max,
                                  .added = added,
                                  .first_id = core_adopted_id(c, l->id - added + 1, added),
                                  .component = k->sub ? k->name : NULL,
                                  .begin_ms = core_texts_lost(c, job) ? NEVER_MS : now_ms + REPORT_WAIT_MS,
                                  .by = job->sub->user};
    core_emit(c, now_ms, EVENT_JOB_RESIZED, &b);
}

static bool described(const struct core *c, const struct message_launch *l) {
    const struct launch_job *of = l->job;
    return of && of->spec && core_feature(c, FEATURE_ADOPTED_WORKERS) && of->id &&
           l->worker < 16 * JOB_WORKERS_MAX && of->spec->workers_max && spec_known(of->spec) &&
           streq(of->spec->user, l->spec->user);
}

// Whether the worker of this number waits in the copy, or is not known there.
static bool is_missing(const struct core *c, const struct core_job *job, const struct message_launch *l) {
    const struct group *g = job->sub->group;
    if (job->run && job->run->ending)
        return false;
    if (l->worker >= g->workers.len)
        return l->job->component < g->components.len;
    const struct core_job *j = core_worker_job(c, &g->workers.at[l->worker]);
    return j && !j->run && j->attempt < l->attempt && g->workers.at[l->worker].component == l->job->component;
}

bool core_adopt_worker(struct core *c, const struct message_attempt *m, struct event_job_placed *placed,
                       int64_t now_ms) {
    const struct message_launch *l = m->launch;
    if (!described(c, l))
        return false;
    struct core_job *job = find(c, l);
    bool known = job != NULL;
    if (!known && is_of_component(l->job->spec, l->worker, l->job->component))
        job = submit(c, l, now_ms);
    if (!job || !is_missing(c, job, l))
        return false;
    if (!job->run)
        run(c, job, l, !known && texts_lost(l->job->spec), now_ms);
    if (l->worker >= job->sub->group->workers.len)
        add_numbers(c, job, l, now_ms);
    const struct core_job *j = core_worker_job(c, &job->sub->group->workers.at[l->worker]);
    placed->id = j->id;
    placed->agent_id = j->id == m->id ? 0 : m->id;
    placed->optional = core_is_optional(j);
    placed->partition = job->run->partition;
    placed->generation = m->generation;
    core_emit(c, now_ms, EVENT_JOB_PLACED, placed);
    core_effect(c, EFFECT_JOB_CHANGED, NULL, j->id, 0);
    core_effect(c, EFFECT_JOB_CHANGED, NULL, job->id, 0);
    return true;
}

void core_apply_job_adopted(struct core *c, struct core_job *job, int64_t at_ms,
                            const struct event_job_adopted *b) {
    struct group *g = job->sub->group;
    core_place(c, job, NULL, 0);
    job->run->time_limit_s = b->time_limit_s;
    job->run->partition = b->partition ? core_intern(c, b->partition) : NULL;
    job->run->agent_id = b->agent_id;
    job->run->adopted = b->texts_lost;
    job->run->reason = b->reason ? xstrdup(b->reason) : NULL;
    core_begin_attempt(c, job, b->attempt, b->start_ms ? b->start_ms : at_ms);
    for (uint32_t i = 0; i < g->workers.len; i++) {
        struct group_worker *w = &g->workers.at[i];
        struct core_job *j = core_worker_job(c, w);
        w->flags &= (uint8_t) ~(GROUP_MINIMUM | GROUP_PIECE);
        w->node = 0;
        if (j)
            j->begin_ms = b->begin_ms;
    }
    core_group_run_to_world(c, job);
    core_group_set_roles(c, job);
    core_group_changed(c, g);
    c->dirty = c->may_grow = true;
}
