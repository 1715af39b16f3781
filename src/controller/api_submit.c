// POST /v1/jobs: one job or many, and the scripts and environments that come with them.
#include <errno.h>
#include <string.h>

#include "base/text.h"
#include "api.h"

int api_check_storage(struct controller *c, struct error *e) {
    char why[ERROR_TEXT_MAX];
    if (pipeline_degraded(c->pipeline, why, sizeof why))
        return error_set(
            e, ENOSPC, "nothing can be stored right now (%.300s); running jobs go on. Try again later", why);
    enum store_space space = store_space(c->store);
    if (space == STORE_SPACE_GONE)
        return error_set(e, EIO,
                         "the controller's database has been removed from its folder; nothing new is taken. "
                         "Stop it and put a backup back");
    if (space != STORE_SPACE_OK)
        return error_set(e, ENOSPC,
                         "the controller's disk is nearly full; running jobs go on, new ones are refused. "
                         "Free some space there");
    return 0;
}

static int read_environment(struct api_call *call, const struct json *j, struct buf *out, struct error *e) {
    const struct json *list = json_get(j, "environment");
    uint64_t max = call->controller->config.cluster.max_environment_bytes;
    if (!list || list->type == JSON_NULL)
        return 0;
    if (list->type != JSON_ARRAY)
        return error_set(e, EINVAL, "environment: expected a list of NAME=value texts");
    for (uint32_t i = 0; i < list->len; i++) {
        const struct json *v = &list->items[i];
        const char *eq = v->type == JSON_STRING ? strchr(v->s, '=') : NULL;
        char shown[64];
        if (!eq || eq == v->s)
            return error_set(e, EINVAL, "environment: \"%s\" is not of the form NAME=value",
                             v->type == JSON_STRING ? printable(v->s, shown, sizeof shown) : "(no text)");
        buf_add(out, v->s, v->len + 1);
        if (out->len > max)
            return error_set(
                e, E2BIG, "environment: more than %llu bytes (max_environment); pass only what the job needs",
                (unsigned long long)max);
    }
    return 0;
}

static int read_script(struct api_call *call, const struct json *j, const char **text, size_t *len, struct error *e) {
    const struct json *s = json_get(j, "script");
    uint64_t max = call->controller->config.cluster.max_script_bytes;
    *text = NULL;
    *len = 0;
    if (!s || s->type == JSON_NULL)
        return 0;
    if (s->type != JSON_STRING)
        return error_set(e, EINVAL, "script: expected text");
    if (s->len > max)
        return error_set(e, E2BIG, "script: %u bytes; at most %llu are allowed (max_script)", s->len,
                         (unsigned long long)max);
    if (!s->len)
        return error_set(e, EINVAL, "script: it is empty");
    *text = s->s;
    *len = s->len;
    return 0;
}

static int check_fields(const struct json *j, struct error *e) {
    static const char *const known[] = {"spec", "script", "environment", "key", "dry_run"};
    for (uint32_t i = 0; i < j->len; i++) {
        bool found = false;
        for (size_t k = 0; k < 5; k++)
            found |= streq(j->members[i].key, known[k]);
        char shown[64];
        if (!found)
            return error_set(e, EINVAL,
                             "unknown field \"%s\"; expected spec, script, environment, key or dry_run",
                             printable(j->members[i].key, shown, sizeof shown));
    }
    return 0;
}

int api_submit_one(struct api_call *call, const struct json *j, struct command_result *out, struct error *e) {
    struct controller *c = call->controller;
    const struct json *spec_json = json_get(j, "spec");
    const char *key = json_str(j, "key"), *script;
    size_t script_len;
    cleanup_buf struct buf environment = {0};
    char script_id[33], environment_id[33];
    struct spec spec;
    int r;
    if (j->type != JSON_OBJECT || !spec_json)
        return error_set(e, EINVAL, "expected an object with a \"spec\"");
    if ((r = check_fields(j, e)) < 0 || (r = schema_read_json(&spec_schema, spec_json, &call->arena, &spec, e)) < 0 ||
        (r = read_script(call, j, &script, &script_len, e)) < 0 || (r = read_environment(call, j, &environment, e)) < 0)
        return r;
    spec.script_id = spec.environment_id = NULL;
    spec.script_bytes = script_len;
    spec.environment_bytes = environment.len;
    if (script) {
        pipeline_text_id(script, script_len, script_id);
        spec.script_id = script_id;
    }
    if (environment.len) {
        pipeline_text_id(environment.data, environment.len, environment_id);
        spec.environment_id = environment_id;
    }
    struct command_submit submit = {.spec = &spec, .dry_run = json_true(j, "dry_run")};
    struct command command = {COMMAND_SUBMIT, &submit};
    r = core_command(c->core, &call->actor, key, &command, now_ms(), out, e);
    if (r < 0 || submit.dry_run || out->repeated)
        return r;
    if (script)
        pipeline_keep_text(c->pipeline, out->id, script, script_len);
    if (environment.len)
        pipeline_keep_text(c->pipeline, out->id, environment.data, environment.len);
    return 0;
}

static void put_result(struct json_writer *w, const struct command_result *r) {
    json_open(w, '{');
    json_kv_i64(w, "id", (int64_t)r->id);
    json_kv_i64(w, "count", (int64_t)r->count);
    json_kv_bool(w, "repeated", r->repeated);
    json_close(w, '}');
}

// The whole list is looked at before the first job of it is taken.
static int check_bulk(struct api_call *call, struct error *e) {
    struct json_items it;
    struct json *item;
    int r;
    json_items_begin(&it, call->req->body, call->req->body_len, API_VALUES_MAX);
    do {
        cleanup_arena struct arena a = {0};
        r = json_items_next(&it, &a, &item, e);
    } while (r > 0 && it.count <= BULK_SUBMITS_MAX);
    return r > 0 ? error_set(e, E2BIG, "more than %d jobs in one request; send them in several", BULK_SUBMITS_MAX) : r;
}

static void submit_item(struct api_call *call, const struct json *item, struct json_writer *w) {
    struct error e = {0};
    struct command_result result;
    if (api_submit_one(call, item, &result, &e) < 0) {
        json_open(w, '{');
        json_key(w, "error");
        api_error_json(w, &e);
        json_close(w, '}');
    } else {
        put_result(w, &result);
    }
}

// One job after the other is decoded, submitted and forgotten: the request's bytes are the only thing
// that is as large as the request.
static void submit_bulk(struct api_call *call, struct json_items *it) {
    struct buf b = {0};
    struct json_writer w = {.out = &b};
    struct arena whole = call->arena;
    struct error e = {0};
    struct json *item;
    if (check_bulk(call, &e) < 0) {
        api_fail(call->req, &e);
        return;
    }
    json_open(&w, '[');
    for (call->arena = (struct arena){0}; json_items_next(it, &call->arena, &item, &e) > 0; arena_done(&call->arena))
        submit_item(call, item, &w);
    arena_done(&call->arena);
    call->arena = whole;
    json_close(&w, ']');
    api_when_committed(call, 201, &b);
}

void api_submit(struct api_call *call) {
    struct json *j;
    struct json_items items;
    struct error e = {0};
    struct command_result result;
    if (api_check_storage(call->controller, &e) < 0) {
        api_fail(call->req, &e);
        return;
    }
    if (json_items_begin(&items, call->req->body, call->req->body_len, API_VALUES_MAX)) {
        submit_bulk(call, &items);
        return;
    }
    if (api_body(call, &j) < 0)
        return;
    if (api_submit_one(call, j, &result, &e) < 0) {
        api_fail(call->req, &e);
        return;
    }
    struct buf b = {0};
    struct json_writer w = {.out = &b};
    put_result(&w, &result);
    api_when_committed(call, 201, &b);
}
