// Owns POST /v1/jobs/ACTION: cancel, hold, release, requeue, suspend, resume, update, on jobs named
// by id ("12", "12_3", "12_[1-5]", an array as a whole) or by filter.
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "api.h"
#include "model/arrayspec.h"
#include "model/dependency.h"

// One request is carried out in one turn of the loop, during which everybody else waits.
enum {
    SELECT_TIME_US = 2000000,
    SELECT_CHECK_EVERY = 4096,
    ACTION_TIME_US = 10000000,
    SELECT_MAX = 4 << 20,           // more than there can be; the same may be named twice
    ACTION_EVENT_BYTES = 64 << 20,  // of the journal, by one request
};

struct selection {
    struct api_call *call;
    uint32_t looked;
    const char *user, *name, *project, *partition, *qos, *node;
    uint32_t states;
    VEC(uint64_t) ids;
};

static bool select_view(void *ctx, const struct job_view *v) {
    struct selection *s = ctx;
    if ((!s->states || s->states >> v->state & 1) && (!s->user || streq(s->user, v->user)) &&
        (!s->name || streq(s->name, v->name)) && (!s->project || streq(s->project, v->project)) &&
        (!s->partition || streq(s->partition, v->partition)) && (!s->qos || streq(s->qos, v->qos)))
        vec_push(&s->ids, v->id);
    return true;
}

static bool select_any(void *ctx, const struct job_view *v) {
    vec_push(&((struct selection *)ctx)->ids, v->id);
    return true;
}

// False when the request asks for more than one may.
static bool may_go_on(struct selection *s, struct error *e) {
    if (s->ids.len <= SELECT_MAX &&
        (s->looked++ % SELECT_CHECK_EVERY || clock_mono_us() - s->call->req->began_us < SELECT_TIME_US))
        return true;
    error_set(e, E2BIG, "ids: this takes too long in one request; name fewer jobs at a time");
    return false;
}

struct problems {
    struct json_writer w;
    struct buf out;
    uint64_t count;
};

static void problem(struct problems *p, const char *id, const struct error *e) {
    if (p->count++ >= 1000)
        return;  // enough to see what is wrong
    json_open(&p->w, '{');
    json_kv_str(&p->w, "id", id);
    json_key(&p->w, "error");
    api_error_json(&p->w, e);
    json_close(&p->w, '}');
}

// "12_[1-5,7]"
static int select_elements(struct selection *s, const char *text, const char *bracket, struct error *e) {
    struct core *core = s->call->controller->core;
    struct array_spec spec;
    uint64_t array;
    size_t len = strlen(bracket);
    if (bracket[-1] != '_' || bracket[len - 1] != ']' ||
        parse_u64(arena_strndup(&s->call->arena, text, (size_t)(bracket - text - 1)), &array) < 0)
        return error_set(e, EINVAL, "\"%.60s\" is not a job; expected 12, 12_3 or 12_[1-5]", text);
    int r = array_parse(arena_strndup(&s->call->arena, bracket + 1, len - 2), &s->call->arena, &spec, e);
    if (r < 0)
        return r;
    if (!core_is_array(core, array))
        return 0;
    for (uint32_t i = 0; i < spec.len; i++)
        for (uint64_t k = spec.at[i].first; k <= spec.at[i].last; k += spec.at[i].step) {
            if (!may_go_on(s, e))
                return -E2BIG;
            uint64_t id = core_element(core, array, (uint32_t)k);
            struct job_view v;
            if (id && core_view(core, id, &v))
                vec_push(&s->ids, id);
        }
    return 0;
}

static int select_id(struct selection *s, const char *text, struct error *e) {
    struct controller *c = s->call->controller;
    const char *bracket = strchr(text, '[');
    struct job_ref ref;
    struct job_view v;
    if (bracket && bracket > text)
        return select_elements(s, text, bracket, e);
    int r = job_ref_parse(text, &ref, e);
    if (r < 0)
        return r;
    if (!ref.has_index && core_is_array(c->core, ref.job)) {
        core_each_element(c->core, ref.job, select_any, s);
        return 0;
    }
    uint64_t id = api_parse_job(c, text, e);
    if (!id)
        return -ENOENT;
    cleanup_arena struct arena a = {0};
    struct job_record record;
    bool live;
    if (!core_view(c->core, id, &v)) {
        if (api_record(c, id, &a, &record, &live) < 0)
            return error_set(e, ENOENT, "there is no job %s", text);
        return error_set(e, EALREADY, "job %s has already ended (%s)", text, job_state_words[record.state]);
    }
    vec_push(&s->ids, id);
    return 0;
}

static int read_states(struct selection *s, const struct json *j, struct error *e) {
    const char *text = json_str(j, "state");
    for (const char *p = text; p && *p;) {
        size_t n = strcspn(p, ",");
        int state = words_find(job_state_words, arena_strndup(&s->call->arena, p, n));
        if (state < 0)
            return error_set(e, EINVAL, "state: \"%.40s\" is not known", text);
        s->states |= 1u << state;
        p += n + (p[n] == ',');
    }
    return 0;
}

static int select_jobs(struct selection *s, const struct json *j, struct problems *p, struct error *e) {
    const struct json *ids = json_get(j, "ids");
    if (ids) {
        if (ids->type != JSON_ARRAY)
            return error_set(e, EINVAL, "ids: expected a list of texts");
        for (uint32_t i = 0; i < ids->len; i++) {
            struct error one = {0};
            if (ids->items[i].type != JSON_STRING)
                return error_set(e, EINVAL, "ids: expected a list of texts");
            s->looked = 0;  // one of them may take long by itself
            if (!may_go_on(s, e))
                return -E2BIG;
            if (select_id(s, ids->items[i].s, &one) < 0)
                problem(p, ids->items[i].s, &one);
        }
        return 0;
    }
    s->user = json_str(j, "user");
    s->name = json_str(j, "name");
    s->project = json_str(j, "project");
    s->partition = json_str(j, "partition");
    s->qos = json_str(j, "qos");
    if (!s->user && !s->name && !s->project && !s->partition && !s->qos && !json_get(j, "state") &&
        !json_true(j, "all"))
        return error_set(e, EINVAL, "say which jobs: ids, or a filter (user, name, state, project, partition), or all");
    if (!s->user && !s->call->actor.admin)
        s->user = s->call->actor.user;  // a filter means one's own
    int r = read_states(s, j, e);
    if (r == 0)
        core_each_job(s->call->controller->core, select_view, s);
    return r;
}

static int read_change(const struct json *change, struct arena *a, struct spec *out, struct error *e) {
    if (!change || change->type != JSON_OBJECT)
        return error_set(e, EINVAL, "spec: expected an object with the fields to change");
    return schema_read_json(&spec_schema, change, a, out, e);
}

static enum hold_kind hold_kind(const struct json *j) {
    const char *as = json_str(j, "as");
    return streq(as, "admin") ? HOLD_ADMIN : streq(as, "user") ? HOLD_USER : HOLD_BY_OWNER;
}

static int act(struct api_call *call, enum command_type type, uint64_t id, const struct json *j,
               const struct spec *change, struct error *e) {
    struct command_job job = {id};
    struct command_cancel cancel = {.id = id,
                                    .signal = (uint32_t)json_i64(j, "signal", 0),
                                    .batch_only = json_true(j, "batch_only"),
                                    .steps_only = json_true(j, "steps_only"),
                                    .step = (uint32_t)json_i64(j, "step", 0),
                                    .reason = json_str(j, "reason")};
    struct command_hold hold = {id, hold_kind(j)};
    struct command_requeue requeue = {id, json_true(j, "hold")};
    struct command_update update = {id, change};
    const void *const bodies[] = {[COMMAND_CANCEL] = &cancel,   [COMMAND_HOLD] = &hold,   [COMMAND_RELEASE] = &job,
                                  [COMMAND_REQUEUE] = &requeue, [COMMAND_SUSPEND] = &job, [COMMAND_RESUME] = &job,
                                  [COMMAND_UPDATE] = &update};
    struct command command = {type, bodies[type]};
    return core_command(call->controller->core, &call->actor, NULL, &command, now_ms(), NULL, e);
}

// The actions are the names of the commands about jobs that exist.
static enum command_type action_of(const char *name) {
    for (int type = COMMAND_CANCEL; type <= COMMAND_UPDATE; type++)
        if (streq(command_name((enum command_type)type), name))
            return (enum command_type)type;
    return COMMAND_NONE;
}

void api_action(struct api_call *call) {
    struct json *j;
    struct error e = {0};
    struct selection s = {.call = call};
    struct problems p = {0};
    struct spec change = {0};
    enum command_type action = action_of(call->name);
    p.w.out = &p.out;
    if (action == COMMAND_NONE) {
        api_error(call->req, 404, "ENOENT",
                  "no such action; expected cancel, hold, release, requeue, suspend, resume or update");
        return;
    }
    if (api_body(call, &j) < 0)
        return;
    int64_t signal = json_i64(j, "signal", 0);
    if (signal < 0 || signal > 64)
        error_set(&e, ERANGE, "signal: %lld is not a signal number", (long long)signal);
    if (e.code || (action == COMMAND_UPDATE && read_change(json_get(j, "spec"), &call->arena, &change, &e) < 0) ||
        select_jobs(&s, j, &p, &e) < 0) {
        api_fail(call->req, &e);
        goto done;
    }
    uint64_t done = 0;
    bool too_long = false;
    for (uint32_t i = 0; i < s.ids.len; i++) {
        struct error one = {0};
        char id[24];
        if (i % 64 == 0)
            too_long = clock_mono_us() - call->req->began_us > ACTION_TIME_US;
        if (too_long || core_outbox(call->controller->core)->bytes.len > ACTION_EVENT_BYTES)
            error_set(
                &one, E2BIG,
                "one request may not change this much; %llu jobs were changed, ask again for the others",
                (unsigned long long)done);
        else if (act(call, action, s.ids.at[i], j, &change, &one) == 0) {
            done++;
            continue;
        }
        snprintf(id, sizeof id, "%llu", (unsigned long long)s.ids.at[i]);
        problem(&p, id, &one);
    }
    struct buf b = {0};
    struct json_writer w = {.out = &b};
    json_open(&w, '{');
    json_kv_i64(&w, "matched", s.ids.len);
    json_kv_i64(&w, "done", (int64_t)done);
    json_key(&w, "errors");
    json_open(&w, '[');
    if (p.out.len)
        json_put_raw(&w, buf_str(&p.out));
    json_close(&w, ']');
    json_close(&w, '}');
    api_when_committed(call, 200, &b);
done:
    buf_done(&p.out);
    vec_done(&s.ids);
}
