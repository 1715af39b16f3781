// Owns single jobs: finding one by what a person typed, live or from history, showing it, its texts
// and its events.
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "api.h"
#include "telemetry.h"
#include "model/dependency.h"
#include "sched/sched.h"

static int take_id(void *ctx, const struct store_history *row) {
    *(uint64_t *)ctx = row->id;
    return 1;
}

uint64_t api_parse_job(struct controller *c, const char *text, struct error *e) {
    struct job_ref ref;
    if (job_ref_parse(text, &ref, e) < 0)
        return 0;
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

struct loading {
    struct arena *arena;
    struct job_record *out;
    bool found;
};

static int load_row(void *ctx, const struct store_history *row) {
    struct loading *l = ctx;
    l->found = schema_decode(&job_record_schema, row->data, row->len, l->arena, l->out) == 0;
    return 1;
}

int api_record(struct controller *c, uint64_t id, struct arena *a, struct job_record *out, bool *live) {
    struct loading l = {.arena = a, .out = out};
    *live = core_record(c->core, id, a, out) == 0;
    if (*live)
        return 0;
    const void *record;
    size_t len;
    if (pipeline_ending(c->pipeline, id, &record, &len))
        return schema_decode(&job_record_schema, record, len, a, out);
    store_history(c->store, &(struct store_query){.id = id, .limit = 1}, load_row, &l, NULL);
    return l.found ? 0 : -ENOENT;
}

struct later {
    struct controller *controller;
    struct net_request *req;
    uint64_t id;
    int status;
};

static void reply_later(void *arg) {
    struct later *l = arg;
    api_reply_record(l->controller, l->req, l->id, l->status);
    free(l);
}

// An end is told only when it is committed.
static bool defer(struct controller *c, struct net_request *req, uint64_t id, int status) {
    const void *record;
    size_t len;
    if (!pipeline_ending(c->pipeline, id, &record, &len))
        return false;
    struct later *l = xcalloc(1, sizeof *l);
    *l = (struct later){c, req, id, status};
    pipeline_when_committed(c->pipeline, reply_later, l);
    return true;
}

bool api_owns(struct controller *c, const struct actor *actor, uint64_t id) {
    cleanup_arena struct arena a = {0};
    struct job_record r;
    bool live;
    return actor->admin || (api_record(c, id, &a, &r, &live) == 0 && streq(r.spec->user, actor->user));
}

bool api_may_see(struct controller *c, const struct actor *actor, uint64_t id) {
    cleanup_arena struct arena a = {0};
    struct job_record r;
    bool live;
    if (actor->admin || core_may_see(c->core, actor, id))
        return true;
    return api_record(c, id, &a, &r, &live) == 0 && !live && streq(r.spec->user, actor->user);
}

void api_label(const struct job_record *r, char *out, size_t size) {
    if (r->is_array)
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
static void put_gpus(struct json_writer *w, struct controller *c, const struct job_record *r) {
    json_key(w, "gpus");
    json_open(w, '[');
    for (uint32_t i = 0; i < r->parts.len; i++)
        for (uint32_t k = 0; k < r->parts.at[i].gpus.len; k++) {
            const struct gpu_grant *grant = &r->parts.at[i].gpus.at[k];
            const struct gpu_sample *s = sample_of(telemetry_latest(c, r->parts.at[i].node), r, grant->index);
            if (!s)
                continue;
            json_open(w, '{');
            json_kv_str(w, "node", r->parts.at[i].node);
            json_kv_i64(w, "index", grant->index);
            json_kv_i64(w, "share_milli", grant->milli);
            if (!s->utilisation_unknown)
                json_kv_i64(w, "use_milli", s->utilisation_milli);
            json_kv_i64(w, "throttled_milli", s->throttled_milli);
            json_kv_i64(w, "memory_bytes", (int64_t)s->memory_used_bytes);
            json_kv_i64(w, "memory_limit_bytes", (int64_t)s->memory_total_bytes);
            json_kv_i64(w, "power_mw", (int64_t)s->power_mw);
            json_close(w, '}');
        }
    json_close(w, ']');
}

static void put_live(struct json_writer *w, struct controller *c, const struct job_record *r,
                     const struct live_usage *u) {
    char warning[320];
    uint64_t id = r->id;
    json_key(w, "live");
    json_open(w, '{');
    json_kv_i64(w, "cpu_ms", (int64_t)((u->usage.cpu_user_us + u->usage.cpu_system_us) / 1000));
    json_kv_i64(w, "memory_bytes", (int64_t)u->memory_now_bytes);
    json_kv_i64(w, "memory_peak_bytes", (int64_t)u->usage.memory_peak_bytes);
    json_kv_i64(w, "processes", u->processes);
    json_kv_i64(w, "gpu_busy_ms", (int64_t)u->usage.gpu_busy_ms);
    json_kv_i64(w, "gpu_throttled_ms", (int64_t)u->usage.gpu_throttled_ms);
    json_kv_i64(w, "gpu_memory_peak_bytes", (int64_t)u->usage.gpu_memory_peak_bytes);
    json_kv_i64(w, "energy_mj", (int64_t)u->usage.energy_mj);
    json_kv_i64(w, "gpu_idle_s", (int64_t)telemetry_idle_s(c, id));
    if (u->preparing)
        json_kv_bool(w, "preparing", true);
    if (api_sick_gpu(c, r, warning, sizeof warning) || telemetry_warning(c, id, warning, sizeof warning))
        json_kv_str(w, "warning", warning);
    put_gpus(w, c, r);
    json_close(w, '}');
}

bool api_put_order(struct controller *c, uint64_t id, int64_t now, struct json_writer *w) {
    struct sched_queue_position t;
    if (sched_queue_position(core_world(c->core), id, now, core_policy(c->core), &t) < 0)
        return false;
    json_open(w, '{');
    json_kv_i64(w, "priority", t.priority);
    json_kv_i64(w, "queue_time_ms", t.queue_time_ms);
    json_kv_i64(w, "age_s", t.age_ms / 1000);
    json_kv_i64(w, "short_s", t.short_ms / 1000);
    json_kv_i64(w, "use_s", t.use_ms / 1000);
    json_kv_i64(w, "size_s", t.size_ms / 1000);
    json_kv_i64(w, "qos_s", t.qos_ms / 1000);
    json_kv_i64(w, "nice_s", t.nice_ms / 1000);
    json_kv_bool(w, "overdue", t.overdue);
    json_kv_i64(w, "tier", t.tier);
    json_kv_i64(w, "qos", t.qos);
    json_kv_i64(w, "own", t.own);
    json_kv_i64(w, "nice", t.nice);
    json_close(w, '}');
    return true;
}

// What is nobody else's business.
void api_hide_private(struct spec *s) {
    s->argv.len = 0;
    s->command_text = s->workdir = s->output = s->error = s->input = s->comment = s->checkpoint = NULL;
    s->submit_line = NULL;
    s->script_id = s->environment_id = NULL;
    s->script_bytes = s->environment_bytes = 0;
}

// Why a job could not be started names folders and commands after the first colon.
const char *api_public_reason(struct arena *a, const char *reason) {
    const char *colon = reason ? strstr(reason, ": ") : NULL;
    return colon ? arena_strndup(a, reason, (size_t)(colon - reason)) : reason;
}

void api_reply_record(struct controller *c, struct net_request *req, uint64_t id, int status) {
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf b = {0}, record = {0};
    struct json_writer w = {.out = &b}, rw = {.out = &record};
    struct job_record r;
    struct actor actor = {0};
    bool live;
    char label[48];
    if (defer(c, req, id, status))
        return;
    if (api_record(c, id, &a, &r, &live) < 0) {
        api_no_job(req, id);
        return;
    }
    if (api_actor_of(c, req, true, &a, &actor, NULL) < 0 || !api_may_see(c, &actor, id)) {
        api_hide_private(r.spec);
        r.reason = api_public_reason(&a, r.reason);
    }
    api_label(&r, label, sizeof label);
    schema_write_json(&job_record_schema, &r, &rw);
    record.len--;  // the closing brace: more members follow
    buf_add(&b, record.data, record.len);
    w.need_comma = true;
    json_kv_str(&w, "label", label);
    int64_t end = r.end_ms ? r.end_ms : now_ms();
    struct job_view view;
    int64_t paused = live && core_view(c->core, id, &view) ? core_view_paused_ms(&view, end) : r.suspended_ms;
    json_kv_i64(&w, "elapsed_ms", r.start_ms && end - paused > r.start_ms ? end - paused - r.start_ms : 0);
    if (live && r.state == JOB_PENDING) {
        json_key(&w, "order");
        if (!api_put_order(c, id, now_ms(), &w))
            json_put_null(&w);
    }
    struct live_usage *u = live ? map_get(&c->live, id) : NULL;
    if (u)
        put_live(&w, c, &r, u);
    json_close(&w, '}');
    api_json(req, status, &b);
}

void api_get(struct api_call *call) {
    api_reply_record(call->controller, call->req, call->job, 200);
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
                  script ? "this job has no script; it is a command"
                         : "this job has no environment of its own");
        return;
    }
    cleanup_buf struct buf b = {0};
    if (!script && api_query_i64(call, "list", 0)) {
        struct json_writer w = {.out = &b};
        json_open(&w, '{');
        json_key(&w, "environment");
        json_open(&w, '[');
        for (size_t at = 0; at < len; at += strnlen(text + at, len - at) + 1)
            json_put_strn(&w, text + at, strnlen(text + at, len - at));
        json_close(&w, ']');
        json_close(&w, '}');
        api_json(call->req, 200, &b);
        return;
    }
    buf_add(&b, text, len);
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

// --- events ---

static void hide_reason(const struct schema *s, void *body, struct arena *a) {
    for (size_t i = 0; i < s->count; i++) {
        const char **at = (const char **)(void *)((char *)body + s->fields[i].offset);
        if (streq(s->fields[i].name, "reason") && s->fields[i].type == FIELD_STRING)
            *at = api_public_reason(a, *at);
    }
}

static void hide_key(struct event_job_submitted *b) {
    b->key_text = NULL;
    b->key = NULL;
}

// `all`: for somebody who may see the job's private parts.
void api_event_json(const struct store_event *e, bool all, struct json_writer *w) {
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf body = {0};
    struct json_writer bw = {.out = &body};
    const struct event_info *info = event_info((enum event_type)e->type);
    struct event event;
    json_open(w, '{');
    json_kv_i64(w, "seq", (int64_t)e->seq);
    json_kv_i64(w, "at_ms", e->at_ms);
    json_kv_str(w, "type", info ? info->name : "unknown");
    if (info && event_decode((enum event_type)e->type, e->data, e->len, &a, &event) == 0) {
        if (e->type == EVENT_JOB_SUBMITTED || e->type == EVENT_JOB_UPDATED) {
            struct event_job_submitted *s = event.body;
            if (s->spec)
                api_hide_private(s->spec);
        }
        if (e->type == EVENT_JOB_SUBMITTED)
            hide_key(event.body);
        if (e->type == EVENT_KEYS_INIT)
            ((struct event_keys_init *)event.body)->secret = (struct bytes){0};
        if (e->type == EVENT_KEY_IMPORTED)
            ((struct event_key_imported *)event.body)->key = NULL;
        if (!all)
            hide_reason(info->schema, event.body, &a);
        if (e->type == EVENT_TOKEN_CREATED)
            ((struct event_token *)event.body)->hash = NULL;
        schema_write_json(info->schema, event.body, &bw);
        if (body.len > 2) {
            buf_addc(w->out, ',');
            buf_add(w->out, body.data + 1, body.len - 2);
        }
    }
    json_close(w, '}');
}

int api_list_event(void *ctx, const struct store_event *e) {
    struct api_event_list *l = ctx;
    if (!l->call->actor.admin && !(e->job && api_may_see(l->call->controller, &l->call->actor, e->job)))
        return 0;
    api_event_json(e, true, &l->writer);
    return 0;
}

static int list_job_event(void *ctx, const struct store_event *e) {
    struct api_event_list *l = ctx;
    api_event_json(e, l->all, &l->writer);
    return 0;
}

void api_job_events(struct api_call *call) {
    struct controller *c = call->controller;
    cleanup_buf struct buf b = {0};
    struct api_event_list list = {.writer = {.out = &b}, .call = call};
    struct job_record r;
    struct error e = {0};
    bool live;
    if (api_record(c, call->job, &call->arena, &r, &live) < 0) {
        api_no_job(call->req, call->job);
        return;
    }
    list.all = api_may_see(c, &call->actor, call->job);
    json_open(&list.writer, '{');
    json_key(&list.writer, "events");
    json_open(&list.writer, '[');
    // The submit of an array is recorded under its first element.
    if (r.is_array && r.array_id != r.id && store_events(c->store, r.array_id, 0, 1, list_job_event, &list, &e) < 0)
        goto failed;
    if (store_events(c->store, call->job, 0, 0, list_job_event, &list, &e) < 0)
        goto failed;
    json_close(&list.writer, ']');
    json_close(&list.writer, '}');
    api_json(call->req, 200, &b);
    return;
failed:
    api_error(call->req, 503, "EIO", e.text);
}
