// Requests on their way to their handlers: route, identity, permission, query and body; and the form of answers.
#include "answers.h"
#include "api.h"
#include "app.h"
#include "portal.h"
#include "requests.h"
#include "step_watch.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"

int64_t controller_now_ms(void) {
    return clock_wall_ms();
}

// --- answers ---

void api_json(struct net_request *req, int status, struct buf *body) {
    buf_addc(body, '\n');
    net_reply(req, status, "application/json", body->data, body->len);
}

void api_answer_to(struct net_request *req, int status, const struct schema *schema, const void *value) {
    cleanup_buf struct buf b = {0};
    schema_write_json(schema, value, &(struct json_writer){.out = &b});
    api_json(req, status, &b);
}

void api_answer(struct api_call *call, const struct schema *schema, const void *value) {
    api_answer_to(call->req, 200, schema, value);
}

void api_answer_committed(struct api_call *call, int status, const struct schema *schema, const void *value) {
    struct buf b = {0};
    schema_write_json(schema, value, &(struct json_writer){.out = &b});
    api_when_committed(call, status, &b);
}

void api_no_job(struct net_request *req, uint64_t id) {
    struct error e = {0};
    error_set(&e, ENOENT, "there is no job %llu", (unsigned long long)id);
    api_error(req, 404, "ENOENT", e.text);
}

static const struct {
    int code, status;
    const char *word;
} statuses[] = {
    {EINVAL, 400, "EINVAL"},
    {ERANGE, 400, "ERANGE"},
    {ENOENT, 404, "ENOENT"},
    {EPERM, 403, "EPERM"},
    {EACCES, 401, "EACCES"},
    {EBUSY, 409, "EBUSY"},
    {EALREADY, 409, "EALREADY"},
    {EEXIST, 409, "EEXIST"},
    {ESTALE, 409, "ESTALE"},
    {EAGAIN, 429, "EAGAIN"},
    {E2BIG, 413, "E2BIG"},
    {EDEADLK, 409, "EDEADLK"},
    {ELOOP, 409, "ELOOP"},
    {ENOSPC, 503, "ENOSPC"},
    {EIO, 503, "EIO"},
    {ENAMETOOLONG, 400, "ENAMETOOLONG"},
    {ENOTSUP, 400, "ENOTSUP"},
    {ENOTCONN, 503, "ENOTCONN"},
    {ETIMEDOUT, 503, "ETIMEDOUT"},
};

static void status_of(const struct error *e, int *status, const char **word) {
    *status = 400;
    *word = "EINVAL";
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        if (statuses[i].code == e->code) {
            *status = statuses[i].status;
            *word = statuses[i].word;
        }
}

void api_fail(struct net_request *req, const struct error *e) {
    int status;
    const char *word;
    status_of(e, &status, &word);
    api_error(req, status, word, e->text);
}

struct answer_error *api_error_answer(struct arena *a, const struct error *e) {
    struct answer_error *out = arena_alloc(a, sizeof *out);
    int status;
    status_of(e, &status, &out->code);
    out->message = arena_strdup(a, e->text);
    return out;
}

int api_session_read(const char *data, size_t len, const struct schema *schema, struct arena *a, void *out,
                     struct error *e) {
    struct json *j;
    int r = json_parse_few(data, len, API_VALUES_MAX, a, &j, e);
    return r < 0 ? r : schema_read_json(schema, j, a, out, e);
}

void api_session_send(struct net_ws *ws, const struct schema *schema, const void *value) {
    cleanup_buf struct buf b = {0};
    schema_write_json(schema, value, &(struct json_writer){.out = &b});
    net_ws_send(ws, WS_TEXT, b.data, b.len);
}

void api_session_error(struct net_ws *ws, const struct error *e) {
    cleanup_arena struct arena a = {0};
    api_session_send(ws, &answer_failure_schema, &(struct answer_failure){api_error_answer(&a, e)});
}

struct committed_reply {
    struct net_request *req;
    int status;
    struct buf body;
};

static void reply_now(void *arg) {
    struct committed_reply *l = arg;
    api_json(l->req, l->status, &l->body);
    buf_done(&l->body);
    free(l);
}

void api_when_committed(struct api_call *call, int status, struct buf *body) {
    struct committed_reply *l = xcalloc(1, sizeof *l);
    *l = (struct committed_reply){.req = call->req, .status = status, .body = *body};
    *body = (struct buf){0};
    pipeline_when_committed(call->controller->pipeline, reply_now, l);
}

// --- routing ---

// Matches "/v1/jobs/{job}/logs"; the part in braces is left in *value.
static bool path_matches(const char *pattern, const char *path, const char **value, size_t *value_len, bool *is_job) {
    while (*pattern) {
        if (*pattern == '{') {
            *is_job = str_has_prefix(pattern, "{job}");
            pattern = strchr(pattern, '}') + 1;
            *value = path;
            *value_len = strcspn(path, "/");
            if (!*value_len)
                return false;
            path += *value_len;
        } else if (*pattern++ != *path++) {
            return false;
        }
    }
    return !*path;
}

// Whether routes name this very path. Then those with a part in braces do not mean it.
static bool is_named(const char *path) {
    for (size_t i = 0; i < api_route_count && !strchr(path, '{'); i++)
        if (streq(api_routes[i].path, path))
            return true;
    return false;
}

// The route; or NULL, with the methods that the path takes in `allowed` (none: no such path).
static const struct route *find_route(const char *method, const char *path, const char **value, size_t *len,
                                      bool *is_job, struct buf *allowed) {
    bool named = is_named(path);
    for (size_t i = 0; i < api_route_count; i++) {
        *value = NULL;
        *is_job = false;
        if (!path_matches(api_routes[i].path, path, value, len, is_job) || (named && *value))
            continue;
        if (streq(api_routes[i].method, method))
            return &api_routes[i];
        buf_addf(allowed, "%s%s", allowed->len ? ", " : "", api_routes[i].method);
    }
    return NULL;
}

const struct route *api_route_find(const char *method, const char *path) {
    const char *value;
    size_t len;
    bool is_job;
    cleanup_buf struct buf allowed = {0};
    return find_route(method, path, &value, &len, &is_job, &allowed);
}

bool api_needs_no_user(const struct net_request *req) {
    const struct route *r = api_route_find(req->method, req->path);
    return r ? r->permission == ALLOW_ANYBODY || r->permission == ALLOW_AGENT : portal_has_path(req);
}

static bool take_value(struct api_call *call, const char *value, size_t len, bool is_job) {
    cleanup_buf struct buf text = {0};
    struct error e = {0};
    if (http_percent_decode(value, len, false, &text) < 0 || strlen(buf_str(&text)) != text.len ||
        !str_utf8_valid(buf_str(&text), text.len)) {
        api_error(call->req, 400, "EINVAL", "the path is not properly encoded");
        return false;
    }
    call->name = arena_strdup(&call->arena, buf_str(&text));
    if (is_job && !(call->job = api_parse_job(call->controller, &call->actor, call->name, &e))) {
        api_fail(call->req, &e);
        return false;
    }
    return true;
}

// What a token must allow for the route.
static enum user_scope scope_of(const struct route *r) {
    if (r->permission == ALLOW_ADMIN || r->permission == ALLOW_OPERATOR)
        return USER_SCOPE_ADMIN;
    bool acts = !streq(r->method, "GET") || r->form == FORM_SOCKET;
    return acts && !r->for_all_scopes ? USER_SCOPE_SUBMIT : USER_SCOPE_READ;
}

// The role is enough for the route, and the token or login allows it.
static bool may_use(struct api_call *call, const struct route *r) {
    const struct actor *a = &call->actor;
    cleanup_buf struct buf b = {0};
    bool operator= r->permission == ALLOW_OPERATOR;
    if ((r->permission == ALLOW_ADMIN || operator) && !a->admin && !(operator&& a->operates))
        buf_addf(
            &b, "only an %s may do this; you are %s", operator? "operator or administrator" : "administrator",
            a->user);
    else if (a->scopes && !(a->scopes & scope_of(r)))
        buf_adds(&b, "you may look and change nothing: your token is for reading, or your login is not "
                     "mapped to a Unix "
                     "user; an administrator can do that with 'acequia user set'");
    if (b.len)
        api_error(call->req, 403, "EPERM", buf_str(&b));
    return !b.len;
}

static bool permitted(struct api_call *call, const struct route *r) {
    struct error e = {0};
    if (r->permission == ALLOW_ANYBODY || r->permission == ALLOW_AGENT)
        return true;
    int rc = api_actor_of(call->controller, call->req, false, &call->arena, &call->actor, &e);
    if (rc == -EINPROGRESS) {
        vec_push(&call->controller->unidentified, call->req);
        return false;
    }
    if (rc == -ETIMEDOUT) {
        api_fail(call->req, &e);
        return false;
    }
    if (rc < 0) {
        api_error(call->req, 401, "EACCES", API_NOT_AUTHENTICATED);
        return false;
    }
    snprintf(call->req->who, sizeof call->req->who, "%s", call->actor.user);
    call->req->admin = call->actor.admin || call->actor.operates;
    return may_use(call, r);
}

enum { DOCUMENT_REST_BYTES = 4 << 20 };

// A script, a folder and an environment, each character as an escape of two, and everything else.
size_t api_document_max(const struct controller *c) {
    return (size_t)(2 * (2 * c->config.cluster.max_script_bytes + c->config.cluster.max_environment_bytes)) +
           DOCUMENT_REST_BYTES;
}

static bool is_too_long(struct api_call *call, const struct route *r) {
    struct error e = {0};
    struct json_items items;
    const struct net_request *req = call->req;
    size_t most = api_document_max(call->controller);
    if (req->body_len <= most ||
        (r->form == FORM_SUBMIT && json_items_begin(&items, req->body, req->body_len, API_VALUES_MAX)))
        return false;
    error_set(&e, E2BIG, "the request has %zu bytes; at most %zu are read of one that is no list of jobs",
              req->body_len, most);
    api_fail(call->req, &e);
    return true;
}

// Query and body, as the route's tables say.
static bool read_request(struct api_call *call, const struct route *r) {
    struct error e = {0};
    struct json *j;
    if (r->query)
        call->query = arena_alloc(&call->arena, r->query->size);
    if (query_read(r->query, call->req->query, &call->arena, call->query, &e) < 0) {
        api_fail(call->req, &e);
        return false;
    }
    if (is_too_long(call, r))
        return false;
    if (!r->body || r->reads_body)
        return true;
    call->body = arena_alloc(&call->arena, r->body->size);
    if (!call->req->body_len && r->body_optional)
        return true;
    int n = json_parse_few(call->req->body, call->req->body_len, API_VALUES_MAX, &call->arena, &j, &e);
    if (n == 0)
        n = schema_read_json(r->body, j, &call->arena, call->body, &e);
    if (n < 0)
        api_fail(call->req, &e);
    return n == 0;
}

// A number that this journal never gave to a job, shortly after the start: the state may be an older copy, and a node
// run the job. Clients that come back to it try again.
static bool may_be_reported(const struct controller *c, uint64_t id) {
    return clock_mono_ms() - c->started_mono_ms < STEP_REPORT_WAIT_MS && core_number_unused(c->core, id);
}

// A job that the viewer may not know of is answered like one that does not exist.
static bool may_see_job(struct api_call *call, const struct route *r) {
    if (!call->job)
        return true;
    call->sight = job_sight_of(call->controller, &call->actor, call->job);
    if (call->sight == SIGHT_NONE && r->form == FORM_SOCKET && may_be_reported(call->controller, call->job))
        api_error(call->req, 503, "EAGAIN",
                  arena_printf(
                      &call->arena,
                      "there is no job %llu that the controller knows of; it was started less than a minute "
                      "ago, and a node may still report it: check the number, or try again",
                      (unsigned long long)call->job));
    else if (call->sight == SIGHT_NONE)
        api_no_job(call->req, call->job);
    else if (r->permission == ALLOW_JOB && call->sight < SIGHT_ALL)
        api_error(call->req, 403, "EPERM", "this job is another user's: its script and output are private");
    else if (r->permission == ALLOW_OWNER && !api_owns(call->controller, &call->actor, call->job))
        api_error(call->req, 403, "EPERM", "this job is another user's: only its owner may do that");
    else
        return true;
    return false;
}

static void no_route(struct net_request *req, const struct buf *allowed) {
    if (!allowed->len) {
        api_error(req, 404, "ENOENT", "there is no such path; GET /v1 lists all paths");
        return;
    }
    net_reply_header(req, "Allow", allowed->data);
    api_error(req, 405, "EINVAL", "this path does not take that method; GET /v1 lists all paths and methods");
}

// An administrator reads or uses what is private to somebody else.
static bool is_of_others(const struct api_call *call, const struct route *r) {
    struct actor plain = call->actor;
    if (!call->actor.admin || (r->permission != ALLOW_JOB && r->permission != ALLOW_OWNER))
        return false;
    plain.admin = false;
    return r->permission == ALLOW_JOB ? !api_may_see(call->controller, &plain, call->job)
                                      : !api_owns(call->controller, &plain, call->job);
}

void api_dispatch(struct controller *c, struct net_request *req) {
    struct api_call call = {.controller = c, .req = req};
    const char *value;
    size_t len = 0;
    bool is_job;
    cleanup_buf struct buf allowed = {0};
    const struct route *r = find_route(req->method, req->path, &value, &len, &is_job, &allowed);
    req->tag = r ? (uint32_t)(r - api_routes) + 1 : 0;
    buf_str(&allowed);
    if (req->peer->kind != NET_PEER_UNIX && !portal_has_path(req))
        net_reply_header(req, "Cache-Control", "no-store");
    if (!r && portal_has_path(req))
        portal_reply(c, req);
    else if (!r)
        no_route(req, &allowed);
    else if (permitted(&call, r) && (!value || take_value(&call, value, len, is_job)) && may_see_job(&call, r) &&
             read_request(&call, r)) {
        req->of_others = is_of_others(&call, r);
        r->handler(&call);
    }
    arena_done(&call.arena);
}

// Those who are still not known come back into the line.
void api_users_changed(struct controller *c) {
    uint32_t n = c->unidentified.len;
    struct net_request **list = c->unidentified.at;
    c->unidentified.at = NULL;
    c->unidentified.len = c->unidentified.cap = 0;
    for (uint32_t i = 0; i < n; i++)
        if (c->stopping)
            api_error(list[i], 503, "ENOTCONN", "the controller is stopping; try again later");
        else
            api_dispatch(c, list[i]);
    free(list);
    if (!c->stopping)
        apps_users_changed(c);
}

void api_routes_list(struct api_call *call) {
    cleanup_buf struct buf b = {0};
    struct json_writer w = {.out = &b};
    json_open(&w, '[');
    for (size_t i = 0; i < api_route_count; i++)
        schema_write_json(&answer_route_schema,
                          &(struct answer_route){api_routes[i].method, api_routes[i].path, api_routes[i].help}, &w);
    json_close(&w, ']');
    api_json(call->req, 200, &b);
}

void api_agent(struct api_call *call) {
    agents_upgrade(call->controller, call->req);
}
