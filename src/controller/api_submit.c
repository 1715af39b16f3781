// POST /v1/jobs: one job or many, and the scripts and environments that come with them.
#include <errno.h>
#include <string.h>

#include "base/text.h"
#include "api.h"
#include "notifier.h"
#include "sliced_work.h"

int api_check_storage(struct controller *c, struct error *e) {
    char why[ERROR_TEXT_MAX];
    if (pipeline_degraded(c->pipeline, why, sizeof why))
        return error_set(
            e, ENOSPC, "nothing can be stored right now (%.300s); running jobs go on. Try again later", why);
    enum store_space space = store_space(c->store);
    if (space == STORE_SPACE_GONE)
        return error_set(
            e, EIO,
            "the controller's database has been removed from its folder %s; nothing new is accepted. "
            "Stop the controller and restore a backup",
            c->paths.state);
    if (space != STORE_SPACE_OK)
        return error_set(
            e, ENOSPC,
            "the disk of the controller's state folder %s is nearly full; running jobs go on, new ones "
            "are refused. Make room on that disk",
            c->paths.state);
    return 0;
}

// The environment as it is stored: the texts one after the other, each with its NUL.
static int join_environment(struct api_call *call, const char *const *list, uint32_t len, struct buf *out,
                            struct error *e) {
    uint64_t max = call->controller->config.cluster.max_environment_bytes;
    for (uint32_t i = 0; i < len; i++) {
        const char *v = list[i], *eq = strchr(v, '=');
        char shown[64];
        if (!eq || eq == v)
            return error_set(e, EINVAL, "environment: \"%s\" is not of the form NAME=value",
                             str_printable(v, shown, sizeof shown));
        buf_add(out, v, strlen(v) + 1);
        if (out->len > max)
            return error_set(
                e, E2BIG, "environment: more than %llu bytes (max_environment); pass only what the job needs",
                (unsigned long long)max);
    }
    return 0;
}

static int check_upload(struct api_call *call, const struct request_submit *q, struct error *e) {
    uint64_t max = call->controller->config.cluster.max_script_bytes;
    if (!q->upload)
        return 0;
    if (!q->script || !*q->upload)
        return error_set(e, EINVAL, "upload: it is put behind a script, and must not be empty");
    if (strlen(q->upload) > max)
        return error_set(e, E2BIG,
                         "upload: %zu bytes; at most %llu are allowed (max_script). Put large files into volumes, or "
                         "leave them out with .acequiaignore",
                         strlen(q->upload), (unsigned long long)max);
    return 0;
}

static int check_script(struct api_call *call, const char *script, struct error *e) {
    uint64_t max = call->controller->config.cluster.max_script_bytes;
    if (script && !*script)
        return error_set(e, EINVAL, "script: it is empty");
    if (script && strlen(script) > max)
        return error_set(e, E2BIG, "script: %zu bytes; at most %llu are allowed (max_script)", strlen(script),
                         (unsigned long long)max);
    return 0;
}

int api_text_ids(struct api_call *call, struct spec *spec, const char *script, const char *const *environment,
                 uint32_t environment_len, struct error *e) {
    cleanup_buf struct buf joined = {0};
    char id[33];
    int r = check_script(call, script, e);
    if (r < 0 || (r = join_environment(call, environment, environment_len, &joined, e)) < 0 ||
        (r = notifier_check(call->controller, spec, e)) < 0)
        return r;
    spec->script_id = spec->environment_id = spec->upload_id = NULL;
    spec->upload_bytes = 0;
    spec->script_bytes = script ? strlen(script) : 0;
    spec->environment_bytes = joined.len;
    if (script) {
        pipeline_text_id(script, strlen(script), id);
        spec->script_id = arena_strdup(&call->arena, id);
    }
    if (joined.len) {
        pipeline_text_id(joined.data, joined.len, id);
        spec->environment_id = arena_strdup(&call->arena, id);
    }
    return 0;
}

int api_submit_one(struct api_call *call, const struct request_submit *q, struct command_result *out,
                   struct error *e) {
    struct controller *c = call->controller;
    cleanup_buf struct buf environment = {0};
    char script_id[33], environment_id[33], upload_id[33];
    int r = check_script(call, q->script, e);
    if (r < 0 || (r = check_upload(call, q, e)) < 0)
        return r;
    if ((r = join_environment(call, q->environment.at, q->environment.len, &environment, e)) < 0)
        return r;
    size_t script_len = q->script ? strlen(q->script) : 0;
    struct spec *spec = q->spec;
    if ((r = notifier_check(c, spec, e)) < 0)
        return r;
    if (streq(spec->health, "jupyter") && !spec->idle_s && !schema_given(&spec_schema, spec, &spec->idle_s))
        spec->idle_s = c->config.portal.notebook_idle_s;
    spec->script_id = spec->environment_id = NULL;
    spec->script_bytes = script_len;
    spec->environment_bytes = environment.len;
    spec->upload_id = NULL;
    spec->upload_bytes = q->upload ? strlen(q->upload) : 0;
    if (q->upload) {
        pipeline_text_id(q->upload, spec->upload_bytes, upload_id);
        spec->upload_id = upload_id;
    }
    if (q->script) {
        pipeline_text_id(q->script, script_len, script_id);
        spec->script_id = script_id;
    }
    if (environment.len) {
        pipeline_text_id(environment.data, environment.len, environment_id);
        spec->environment_id = environment_id;
    }
    struct command_submit submit = {.spec = spec, .dry_run = q->dry_run};
    struct command command = {COMMAND_SUBMIT, &submit};
    r = core_command(c->core, &call->actor, q->key, &command, controller_now_ms(), out, e);
    if (r < 0 || submit.dry_run || out->repeated)
        return r;
    if (q->script)
        pipeline_keep_text(c->pipeline, out->id, q->script, script_len);
    if (q->upload)
        pipeline_keep_text(c->pipeline, out->id, q->upload, strlen(q->upload));
    if (environment.len)
        pipeline_keep_text(c->pipeline, out->id, environment.data, environment.len);
    return 0;
}

// A list of jobs, carried out in slices. The whole list is checked for being JSON before its first job is submitted.
// Then one job after the other is decoded, submitted and forgotten: the request's bytes are the only thing that is as
// large as the request.
struct bulk_submit {
    struct sliced_work work;
    struct arena arena;  // of the request
    struct json_items check, items;
    bool checked;
    uint64_t array;  // the latest: the next job is submitted when all its elements exist
    struct buf out;
    struct json_writer writer;
};

enum {
    WORK_JSON_BYTES = 128,
    ELEMENTS_COUNTED = 2000
};  // bytes read for one unit of work; elements of a submit

static void bulk_free(struct sliced_work *w) {
    struct bulk_submit *b = (struct bulk_submit *)w;
    buf_done(&b->out);
    arena_done(&b->arena);
    free(b);
}

static void bulk_stopped(const struct sliced_work *w, struct error *e) {
    const struct bulk_submit *b = (const struct bulk_submit *)w;
    error_set(
        e, ENOTCONN,
        "the controller is stopping; the first %llu jobs of the list were submitted. Those with a key can be "
        "sent again",
        b->checked ? (unsigned long long)b->items.count : 0);
}

// 0: go on.
static int check_next(struct bulk_submit *b, uint32_t *spent, struct error *e) {
    cleanup_arena struct arena a = {0};
    struct json *item;
    size_t from = b->check.at;
    int r = json_items_next(&b->check, &a, &item, e);
    *spent += WORK_LOOK + (uint32_t)((b->check.at - from) / WORK_JSON_BYTES);
    b->checked = r == 0;
    return r > 0 && b->check.count > BULK_SUBMITS_MAX
               ? error_set(e, E2BIG, "more than %d jobs in one request; send them in several",
                           BULK_SUBMITS_MAX)
           : r < 0 ? r
                   : 0;
}

// Those of a large array are created in the turns to come.
static uint32_t elements_work(const struct command_result *r) {
    return r->count < ELEMENTS_COUNTED ? (uint32_t)r->count : ELEMENTS_COUNTED;
}

// False: there is no more.
static bool submit_next(struct bulk_submit *b, uint32_t *spent) {
    struct api_call call = {.controller = b->work.controller, .req = b->work.req, .actor = b->work.actor};
    size_t from = b->items.at;
    struct error e = {0};
    struct command_result result = {0};
    struct json *item;
    struct request_submit q;
    bool more = json_items_next(&b->items, &call.arena, &item, &e) > 0;
    if (more && (schema_read_json(&request_submit_schema, item, &call.arena, &q, &e) < 0 ||
                 api_submit_one(&call, &q, &result, &e) < 0))
        schema_write_json(&answer_failure_schema, &(struct answer_failure){api_error_answer(&call.arena, &e)},
                          &b->writer);
    else if (more)
        schema_write_json(&command_result_schema, &result, &b->writer);
    if (core_array_unfinished(call.controller->core, result.id))
        b->array = result.id;
    *spent += WORK_ACT + (uint32_t)((b->items.at - from) / WORK_BYTES) + elements_work(&result);
    arena_done(&call.arena);
    return more;
}

static bool bulk_run(struct sliced_work *w, uint32_t most, uint32_t *spent) {
    struct bulk_submit *b = (struct bulk_submit *)w;
    struct api_call call = {.controller = w->controller, .req = w->req};
    struct error e = {0};
    do {
        if (*spent >= most || controller_work_late(w->controller) ||
            core_array_unfinished(w->controller->core, b->array))
            return false;
        if (!b->checked && check_next(b, spent, &e) < 0) {
            api_fail(w->req, &e);
            return true;
        }
    } while (!b->checked || submit_next(b, spent));
    if (core_array_unfinished(w->controller->core, b->array))
        return false;
    json_close(&b->writer, ']');
    api_when_committed(&call, 201, &b->out);
    return true;
}

static void submit_bulk(struct api_call *call, const struct json_items *items) {
    struct bulk_submit *b = xcalloc(1, sizeof *b);
    *b = (struct bulk_submit){
        .work = {call->controller, call->req, call->actor, bulk_run, bulk_stopped, bulk_free},
        .arena = call->arena,
        .check = *items,
        .items = *items};
    call->arena = (struct arena){0};
    b->writer.out = &b->out;
    json_open(&b->writer, '[');
    controller_work_begin(&b->work);
}

// A large array: its request waits for its elements, behind what else its user has under way.
struct array_submit {
    struct sliced_work work;
    struct arena arena;  // of the request
    struct request_submit q;
    struct command_result result;
    bool submitted;
};

static void array_free(struct sliced_work *w) {
    arena_done(&((struct array_submit *)w)->arena);
    free(w);
}

static void array_stopped(const struct sliced_work *w, struct error *e) {
    const struct array_submit *s = (const struct array_submit *)w;
    error_set(e, ENOTCONN,
              s->submitted ? "the controller is stopping; array %llu is submitted and will be complete when "
                             "it has started again"
                           : "the controller is stopping; nothing was submitted. Try again",
              (unsigned long long)s->result.id);
}

static bool array_run(struct sliced_work *w, uint32_t most, uint32_t *spent) {
    struct array_submit *s = (struct array_submit *)w;
    struct api_call call = {.controller = w->controller, .req = w->req, .actor = w->actor};
    struct error e = {0};
    if (!s->submitted) {
        if (api_check_storage(w->controller, &e) < 0 || api_submit_one(&call, &s->q, &s->result, &e) < 0) {
            api_fail(w->req, &e);
            return true;
        }
        s->submitted = true;
        *spent += elements_work(&s->result);
    }
    if (core_array_unfinished(w->controller->core, s->result.id))
        return false;
    api_answer_committed(&call, 201, &command_result_schema, &s->result);
    return true;
}

static void submit_array(struct api_call *call, const struct request_submit *q) {
    struct array_submit *s = xcalloc(1, sizeof *s);
    *s = (struct array_submit){
        .work = {call->controller, call->req, call->actor, array_run, array_stopped, array_free},
        .arena = call->arena,
        .q = *q};
    call->arena = (struct arena){0};
    controller_work_begin(&s->work);
}

void api_submit(struct api_call *call) {
    struct json *j;
    struct json_items items;
    struct error e = {0};
    struct request_submit q;
    struct command_result result;
    if (api_check_storage(call->controller, &e) < 0) {
        api_fail(call->req, &e);
        return;
    }
    if (json_items_begin(&items, call->req->body, call->req->body_len, API_VALUES_MAX)) {
        items.item_max = api_document_max(call->controller);
        submit_bulk(call, &items);
        return;
    }
    if (json_parse_few(call->req->body, call->req->body_len, API_VALUES_MAX, &call->arena, &j, &e) < 0 ||
        schema_read_json(&request_submit_schema, j, &call->arena, &q, &e) < 0) {
        api_fail(call->req, &e);
        return;
    }
    if (q.spec && !q.dry_run && spec_array_count(q.spec) > ELEMENTS_COUNTED) {
        submit_array(call, &q);
        return;
    }
    if (api_submit_one(call, &q, &result, &e) < 0) {
        api_fail(call->req, &e);
        return;
    }
    api_answer_committed(call, 201, &command_result_schema, &result);
}
