// One job: finding it by what a person typed, live or in history; its script, environment and events.
#include <errno.h>
#include <string.h>

#include "app.h"
#include "base/clock.h"
#include "base/text.h"
#include "job_output.h"
#include "listing.h"
#include "telemetry.h"
#include "model/dependency.h"
#include "sched/sched.h"

static int take_id(void *ctx, const struct store_history *row) {
    *(uint64_t *)ctx = row->id;
    return 1;
}

// "12+3": worker 3 of job 12, which may have ended.
static uint64_t worker_id(struct controller *c, const struct actor *viewer, const struct job_ref *ref,
                          struct error *e) {
    cleanup_arena struct arena a = {0};
    struct job_record r;
    bool live;
    uint64_t id = core_worker(c->core, ref->job, ref->worker);
    bool found = !id && api_record(c, ref->job, &a, &r, &live) == 0;
    if (found && ref->worker < r.workers.len)
        id = r.workers.at[ref->worker].id;
    if (!id && found && job_sight(c, viewer, r.spec->user, r.spec->project) > SIGHT_NONE)
        error_set(e, ENOENT,
                  r.spec->workers_max ? "job %llu has no worker %u; see 'acequia get %llu'"
                                      : "job %llu is not elastic: it has no workers",
                  (unsigned long long)ref->job, ref->worker, (unsigned long long)ref->job);
    else if (!id)
        error_set(e, ENOENT, "there is no job %llu", (unsigned long long)ref->job);
    return id;
}

uint64_t api_parse_job(struct controller *c, const struct actor *viewer, const char *text, struct error *e) {
    struct job_ref ref;
    if (job_ref_parse(text, &ref, e) < 0)
        return 0;
    if (ref.is_worker)
        return worker_id(c, viewer, &ref, e);
    if (!ref.has_index)
        return ref.job;
    uint64_t id = core_element(c->core, ref.job, ref.index);
    if (!id)
        id = pipeline_ending_element(c->pipeline, ref.job, ref.index);
    if (!id)
        store_history(c->store,
                      &(struct store_query){
                          .array = ref.job, .has_index = true, .index = ref.index, .order = STORE_BY_ID},
                      take_id, &id, NULL);
    if (!id)
        error_set(e, ENOENT, "there is no job %s", text);
    return id;
}

int api_record(struct controller *c, uint64_t id, struct arena *a, struct job_record *out, bool *live) {
    return controller_job_record(&(struct job_lookup){c->core, c->pipeline, c->store}, id, a, out, live);
}

uint64_t api_first_worker(struct controller *c, uint64_t id) {
    cleanup_arena struct arena a = {0};
    struct job_record r;
    bool live;
    uint64_t head = core_head(c->core, id);
    if (head)
        return head;
    if (api_record(c, id, &a, &r, &live) < 0 || !r.workers.len)
        return id;
    for (uint32_t i = 0; i < r.workers.len; i++)
        if (streq(r.workers.at[i].component, COMPONENT_HEAD))
            return r.workers.at[i].id;
    for (uint32_t i = 0; i < r.workers.len; i++)
        if (r.workers.at[i].state == WORKER_RUNNING || r.workers.at[i].state == WORKER_LEAVING)
            return r.workers.at[i].id;
    return r.workers.at[0].id;
}

struct deferred_record {
    struct controller *controller;
    struct net_request *req;
    uint64_t id;
    int status;
};

static void reply_later(void *arg) {
    struct deferred_record *l = arg;
    api_reply_record(l->controller, l->req, l->id, l->status);
    free(l);
}

// The end of a job is shown only when it is committed.
static bool defer(struct controller *c, struct net_request *req, uint64_t id, int status) {
    const void *record;
    size_t len;
    if (!pipeline_ending(c->pipeline, id, &record, &len))
        return false;
    struct deferred_record *l = xcalloc(1, sizeof *l);
    *l = (struct deferred_record){c, req, id, status};
    pipeline_when_committed(c->pipeline, reply_later, l);
    return true;
}

bool api_owns(struct controller *c, const struct actor *actor, uint64_t id) {
    cleanup_arena struct arena a = {0};
    struct job_record r;
    bool live;
    if (api_record(c, id, &a, &r, &live) < 0)
        return actor->admin && !actor->project;
    return (actor->admin || streq(r.spec->user, actor->user)) &&
           (!actor->project || streq(actor->project, r.spec->project));
}

bool api_may_see(struct controller *c, const struct actor *actor, uint64_t id) {
    return (actor->admin && !actor->project) || job_sight_of(c, actor, id) == SIGHT_ALL;
}

void api_label(const struct job_record *r, char *out, size_t size) {
    if (r->job)
        snprintf(out, size, "%llu+%u", (unsigned long long)r->job, r->worker);
    else if (r->is_array)
        snprintf(out, size, "%llu_%u", (unsigned long long)r->array_id, r->array_index);
    else
        snprintf(out, size, "%llu", (unsigned long long)r->id);
}

static const struct gpu_sample *sample_of(const struct message_telemetry *t, const struct job_record *r,
                                          uint32_t index) {
    for (uint32_t i = 0; t && i < t->gpus.len; i++)
        if (t->gpus.at[i].id == r->id && t->gpus.at[i].attempt == r->attempt && t->gpus.at[i].index == index)
            return &t->gpus.at[i];
    return NULL;
}

// What the job has and does on each of its GPUs, as of the last second.
static void add_gpus(struct controller *c, const struct job_record *r, struct arena *a, struct answer_live *out) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < r->parts.len; i++)
        count += r->parts.at[i].gpus.len;
    out->gpus.at = arena_alloc(a, (count + 1) * sizeof *out->gpus.at);
    for (uint32_t i = 0; i < r->parts.len; i++)
        for (uint32_t k = 0; k < r->parts.at[i].gpus.len; k++) {
            const struct gpu_grant *grant = &r->parts.at[i].gpus.at[k];
            const struct gpu_sample *s = sample_of(telemetry_latest(c, r->parts.at[i].node), r, grant->index);
            if (!s)
                continue;
            struct answer_job_gpu *g = &out->gpus.at[out->gpus.len++];
            *g = (struct answer_job_gpu){.node = r->parts.at[i].node,
                                         .index = grant->index,
                                         .share_milli = grant->milli,
                                         .throttled_milli = s->throttled_milli,
                                         .memory_bytes = s->memory_used_bytes,
                                         .memory_limit_bytes = s->memory_total_bytes,
                                         .power_mw = s->power_mw};
            if (!s->utilisation_unknown) {
                g->use_milli = s->utilisation_milli;
                schema_give(&answer_job_gpu_schema, g, &g->use_milli);
            }
        }
}

static struct answer_live *live_of(struct controller *c, const struct job_record *r,
                                   const struct live_usage *u, enum job_sight sight, struct arena *a) {
    struct answer_live *out = arena_alloc(a, sizeof *out);
    char warning[320];
    *out = (struct answer_live){.cpu_ms = (u->usage.cpu_user_us + u->usage.cpu_system_us) / 1000,
                                .memory_bytes = u->memory_now_bytes,
                                .memory_peak_bytes = u->usage.memory_peak_bytes,
                                .processes = u->processes,
                                .gpu_busy_ms = u->usage.gpu_busy_ms,
                                .gpu_throttled_ms = u->usage.gpu_throttled_ms,
                                .gpu_memory_peak_bytes = u->usage.gpu_memory_peak_bytes,
                                .energy_mj = u->usage.energy_mj,
                                .gpu_idle_s = telemetry_idle_s(c, r->id),
                                .preparing = u->preparing,
                                .preparing_ms = u->preparing_ms};
    if (u->progress_known) {
        int64_t left = progress_left_ms(u->progress_milli, (int64_t)u->usage.wall_ms);
        out->progress_milli = u->progress_milli;
        out->progress_text = sight == SIGHT_ALL ? arena_strdup(a, u->progress_text) : NULL;  // of its output
        schema_give(&answer_live_schema, out, &out->progress_milli);
        out->left_ms = left;
        if (left >= 0)
            schema_give(&answer_live_schema, out, &out->left_ms);
    }
    if (sight < SIGHT_PUBLIC)
        ;  // what it does is its owner's affair
    else if (api_sick_gpu(c, r, warning, sizeof warning) ||
             telemetry_warning(c, r->id, warning, sizeof warning))
        out->warning = arena_strdup(a, warning);
    add_gpus(c, r, a, out);
    return out;
}

struct answer_order *api_order(struct controller *c, uint64_t id, int64_t now, struct arena *a) {
    struct sched_queue_position t;
    if (sched_queue_position(core_world(c->core), id, now, core_policy(c->core), &t) < 0)
        return NULL;
    struct answer_order *out = arena_alloc(a, sizeof *out);
    *out = (struct answer_order){.priority = t.priority,
                                 .queue_time_ms = t.queue_time_ms,
                                 .age_s = t.age_ms / 1000,
                                 .short_s = t.short_ms / 1000,
                                 .use_s = t.use_ms / 1000,
                                 .size_s = t.size_ms / 1000,
                                 .qos_s = t.qos_ms / 1000,
                                 .nice_s = t.nice_ms / 1000,
                                 .overdue = t.overdue,
                                 .tier = t.tier,
                                 .qos = t.qos,
                                 .own = t.own,
                                 .nice = t.nice};
    return out;
}

// What is nobody else's business.
void api_hide_private(struct spec *s) {
    s->argv.len = 0;
    s->command_text = s->workdir = s->output = s->error = s->input = s->comment = s->checkpoint = NULL;
    s->submit_line = s->notify_to = s->container_mounts = s->container_workdir = s->container_name = NULL;
    s->script_id = s->environment_id = s->upload_id = s->key_hash = NULL;
    s->script_bytes = s->environment_bytes = s->upload_bytes = 0;
    s->secrets.len = 0;
    for (uint32_t i = 0; i < s->components.len; i++) {
        struct job_component *k = &s->components.at[i];
        k->argv.len = 0;
        k->output = k->error = k->container_mounts = k->container_workdir = NULL;
    }
}

// Of a job that was resized over and over those workers that are there, and the newest of the others: everybody may
// ask, and the answer is written in one piece.
static void members_of(const struct job_record *r, struct arena *a, struct answer_job *out) {
    uint32_t len = r->workers.len;
    out->members.at = arena_alloc(a, (len + 1) * sizeof *out->members.at);
    out->members.len = 0;
    for (uint32_t i = 0; i < len; i++) {
        struct worker w = r->workers.at[i];
        if (len > JOB_WORKERS_MAX && w.state == WORKER_LEFT && i + JOB_WORKERS_MAX < len)
            continue;
        if (job_state_final(r->state) &&
            !w.ended) {  // it was ended with its job, whose record was made before
            w.state = WORKER_LEFT;
            w.ended = job_state_words[JOB_CANCELLED];
            w.optional = false;
        }
        out->members.at[out->members.len++] = w;
    }
}

void api_reply_record(struct controller *c, struct net_request *req, uint64_t id, int status) {
    struct job_record r;
    struct job_view view;
    struct answer_job job;
    struct row row;
    struct listing l = {.controller = c, .now = controller_now_ms(), .way = req->peer->kind};
    bool live;
    if (defer(c, req, id, status))
        return;
    if (api_record(c, id, &l.scratch, &r, &live) < 0) {
        api_no_job(req, id);
        listing_done(&l);
        return;
    }
    if (api_actor_of(c, req, true, &l.scratch, &l.viewer, NULL) == 0)
        l.sight = job_sight(c, &l.viewer, r.spec->user, r.spec->project);
    if (l.sight == SIGHT_NONE) {  // it may have become so while the client waited
        api_no_job(req, id);
        listing_done(&l);
        return;
    }
    listing_all_columns(&l);
    live = live && core_view(c->core, id, &view);
    listing_row_of(&l, &r, live ? &view : NULL, &row);
    listing_answer(&l, &row, &job);
    struct live_usage *u = live ? map_get(&c->live, id) : NULL;
    job.is_array = r.is_array;
    job.parts.at = r.parts.at;
    job.parts.len = r.parts.len;
    app_job_ports(c, &r, &l.scratch, &job);
    job.job = r.job;
    job.worker = r.worker;
    members_of(&r, &l.scratch, &job);
    job.late_why = l.sight == SIGHT_ALL ? r.late_why : NULL;
    job.preempted_why = l.sight == SIGHT_ALL ? r.preempted_why : NULL;
    job.live = u ? live_of(c, &r, u, l.sight, &l.scratch) : NULL;
    job.version = core_job_version(c->core, id);
    api_version_tag(req, job.version);
    api_answer_to(req, status, &answer_job_schema, &job);
    listing_done(&l);
}

void api_get(struct api_call *call) {
    api_reply_record(call->controller, call->req, call->job, 200);
}

static void answer_environment(struct api_call *call, const char *text, size_t len) {
    struct answer_environment out = {0};
    uint32_t count = 1;
    for (size_t i = 0; i < len; i++)
        count += !text[i];
    out.environment.at = arena_alloc(&call->arena, count * sizeof *out.environment.at);
    for (size_t at = 0, n; at < len; at += n + 1) {
        n = strnlen(text + at, len - at);
        out.environment.at[out.environment.len++] = arena_strndup(&call->arena, text + at, n);
    }
    api_answer(call, &answer_environment_schema, &out);
}

static void reply_text(struct api_call *call, bool script) {
    struct job_record r;
    bool live;
    const char *text, *id = NULL;
    size_t len;
    if (api_record(call->controller, call->job, &call->arena, &r, &live) == 0)
        id = script ? r.spec->script_id : r.spec->environment_id;
    if (!id || pipeline_text(call->controller->pipeline, id, &text, &len) < 0) {
        api_error(call->req, 404, "ENOENT",
                  script ? "this job has no script: it was submitted as a command"
                         : "this job has no environment of its own");
        return;
    }
    cleanup_buf struct buf b = {0};
    const char *more;
    size_t more_len;
    if (!script && ((const struct query_environment *)call->query)->list) {
        answer_environment(call, text, len);
        return;
    }
    buf_add(&b, text, len);
    if (script && r.spec->upload_id &&
        pipeline_text(call->controller->pipeline, r.spec->upload_id, &more, &more_len) == 0)
        buf_add(&b, more, more_len);  // as on the node, and as it can be submitted again
    for (size_t i = 0; !script && i < b.len; i++)
        if (!b.data[i])
            b.data[i] = '\n';
    net_reply(call->req, 200, "text/plain; charset=utf-8", b.data, b.len);
}

void api_script(struct api_call *call) {
    reply_text(call, true);
}

void api_environment(struct api_call *call) {
    reply_text(call, false);
}
