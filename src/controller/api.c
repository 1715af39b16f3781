// Owns the table of routes, identity, permission, and the form of answers.
#include "api.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "net/token.h"

#define ROUTE(method_, path_, permission_, handler_, help_) \
    { .method = method_, .path = path_, .permission = permission_, .handler = handler_, .help = help_ }

const struct route api_routes[] = {
    ROUTE("POST", "/v1/jobs", ALLOW_USER, api_submit, "Submits a job, or a list of them."),
    ROUTE("GET", "/v1/jobs", ALLOW_USER, api_list, "Lists jobs."),
    ROUTE("POST", "/v1/jobs/{name}", ALLOW_USER, api_action,
          "cancel, hold, release, requeue, suspend, resume or update: acts on jobs named or filtered in the "
          "body."),
    ROUTE("GET", "/v1/jobs/{job}", ALLOW_USER, api_get, "One job."),
    ROUTE("GET", "/v1/jobs/{job}/array", ALLOW_USER, api_array,
          "How many elements of its array are in which state."),
    ROUTE("GET", "/v1/jobs/{job}/script", ALLOW_JOB, api_script, "Its script."),
    ROUTE("GET", "/v1/jobs/{job}/environment", ALLOW_JOB, api_environment,
          "Its environment, one NAME=value per line; with list=1 as JSON."),
    ROUTE("GET", "/v1/jobs/{job}/events", ALLOW_USER, api_job_events, "What happened to it, in order."),
    ROUTE("GET", "/v1/jobs/{job}/efficiency", ALLOW_USER, api_efficiency,
          "What it asked for against what it used, and which option to change."),
    ROUTE("GET", "/v1/jobs/{job}/wait", ALLOW_USER, api_wait, "Answers when it has ended."),
    ROUTE("GET", "/v1/jobs/{job}/logs", ALLOW_JOB, api_logs,
          "Its output: follow, tail, source (error), node and attempt by number."),
    ROUTE("GET", "/v1/jobs/{job}/exec", ALLOW_OWNER, api_exec, "WebSocket: a command or terminal inside it."),
    ROUTE("GET", "/v1/jobs/{job}/attach", ALLOW_OWNER, api_attach, "WebSocket: its output and input."),
    ROUTE("GET", "/v1/jobs/{job}/why", ALLOW_USER, api_why, "Why it waits, or waited at a time."),
    ROUTE("POST", "/v1/when", ALLOW_USER, api_when, "When a job would start if it were submitted now."),
    ROUTE("GET", "/v1/replay", ALLOW_ADMIN, api_replay,
          "Makes the recorded decisions again and tells differences."),
    ROUTE("GET", "/v1/jobs/{job}/step", ALLOW_OWNER, api_step,
          "WebSocket: tasks inside it, packed into what it holds."),
    ROUTE("GET", "/v1/allocate", ALLOW_USER, api_allocate,
          "WebSocket: submits an allocation, and a step in it; both end with the connection."),
    ROUTE("GET", "/v1/trace", ALLOW_ADMIN, api_trace,
          "Finished jobs (or, with nodes=1, the machines) as CSV for the simulator."),
    ROUTE("GET", "/v1/run", ALLOW_USER, api_run, "WebSocket: submits and attaches."),
    ROUTE("GET", "/v1/shares", ALLOW_USER, api_shares, "Quota, share and use of each project."),
    ROUTE("GET", "/v1/nodes", ALLOW_USER, api_nodes, "All nodes."),
    ROUTE("GET", "/v1/nodes/{name}", ALLOW_USER, api_node,
          "One node; gpus_now tells what each of its GPUs does right now, and for which jobs."),
    ROUTE("POST", "/v1/nodes/{name}/drain", ALLOW_ADMIN, api_node_action, "No new jobs there."),
    ROUTE("POST", "/v1/nodes/{name}/resume", ALLOW_ADMIN, api_node_action, "Jobs again."),
    ROUTE("DELETE", "/v1/nodes/{name}", ALLOW_ADMIN, api_node_remove,
          "Forgets a node that is gone for good."),
    ROUTE("GET", "/v1/status", ALLOW_USER, api_status,
          "The cluster at a glance; warnings say what needs a hand."),
    ROUTE("GET", "/v1/upgrade", ALLOW_USER, api_upgrade,
          "The journal's feature level, and whether an upgrade is finished."),
    ROUTE("POST", "/v1/upgrade/finish", ALLOW_ADMIN, api_upgrade_finish,
          "Finishes an upgrade: earlier releases cannot read the state any more."),
    ROUTE("GET", "/v1/events", ALLOW_USER, api_events, "The journal, also as server-sent events."),
    ROUTE("GET", "/metrics", ALLOW_USER, api_metrics, "Figures in OpenMetrics form."),
    ROUTE("GET", "/v1/series", ALLOW_USER, api_series,
          "Time series for charts: names with prefix=, or one with name=, from_ms=, to_ms=, step_ms=."),
    ROUTE("POST", "/v1/tokens", ALLOW_USER, api_token_create,
          "Makes a token for an agent to join, or for a user."),
    ROUTE("GET", "/v1/tokens", ALLOW_USER, api_token_list, "Tokens, without their secrets."),
    ROUTE("DELETE", "/v1/tokens/{name}", ALLOW_USER, api_token_revoke, "Revokes a token."),
    ROUTE("POST", "/v1/join", ALLOW_ANYBODY, api_join, "A node trades a join token for a certificate."),
    ROUTE("GET", "/v1/agent", ALLOW_AGENT, api_agent, "WebSocket: an agent."),
    ROUTE("GET", "/v1/policy", ALLOW_USER, api_policy, "The rules of sharing in force."),
    ROUTE("PUT", "/v1/policy", ALLOW_ADMIN, api_policy_set, "Changes the rules given; the others stay."),
    ROUTE("GET", "/v1/projects", ALLOW_USER, api_entities, "All projects."),
    ROUTE("GET", "/v1/partitions", ALLOW_USER, api_entities, "All partitions."),
    ROUTE("GET", "/v1/qos", ALLOW_USER, api_entities, "All QoS."),
    ROUTE("GET", "/v1/reservations", ALLOW_USER, api_entities, "All reservations."),
    ROUTE("GET", "/v1/projects/{name}", ALLOW_USER, api_entity, "One project."),
    ROUTE("GET", "/v1/partitions/{name}", ALLOW_USER, api_entity, "One partition."),
    ROUTE("GET", "/v1/qos/{name}", ALLOW_USER, api_entity, "One QoS."),
    ROUTE("GET", "/v1/reservations/{name}", ALLOW_USER, api_entity, "One reservation."),
    ROUTE("PUT", "/v1/projects/{name}", ALLOW_ADMIN, api_entity_set, "Creates or changes a project."),
    ROUTE("PUT", "/v1/partitions/{name}", ALLOW_ADMIN, api_entity_set, "Creates or changes a partition."),
    ROUTE("PUT", "/v1/qos/{name}", ALLOW_ADMIN, api_entity_set, "Creates or changes a QoS."),
    ROUTE("PUT", "/v1/reservations/{name}", ALLOW_ADMIN, api_entity_set, "Creates or changes a reservation."),
    ROUTE("DELETE", "/v1/projects/{name}", ALLOW_ADMIN, api_entity_delete,
          "Deletes a project; while live jobs are in it only with force=1."),
    ROUTE("DELETE", "/v1/partitions/{name}", ALLOW_ADMIN, api_entity_delete,
          "Deletes a partition; while live jobs are in it only with force=1."),
    ROUTE("DELETE", "/v1/qos/{name}", ALLOW_ADMIN, api_entity_delete,
          "Deletes a QoS; while live jobs have it only with force=1."),
    ROUTE("DELETE", "/v1/reservations/{name}", ALLOW_ADMIN, api_entity_delete, "Deletes a reservation."),
    ROUTE("GET", "/v1", ALLOW_USER, api_routes_list, "This list."),
};
const size_t api_route_count = sizeof api_routes / sizeof *api_routes;

int64_t now_ms(void) {
    return clock_wall_ms();
}

// --- answers ---

void api_json(struct net_request *req, int status, struct buf *body) {
    buf_addc(body, '\n');
    net_reply(req, status, "application/json", body->data, body->len);
}

void api_error(struct net_request *req, int status, const char *code, const char *message) {
    cleanup_buf struct buf b = {0};
    struct json_writer w = {.out = &b};
    json_open(&w, '{');
    json_key(&w, "error");
    json_open(&w, '{');
    json_kv_str(&w, "code", code);
    json_kv_str(&w, "message", message);
    json_close(&w, '}');
    json_close(&w, '}');
    api_json(req, status, &b);
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
    {EINVAL, 400, "EINVAL"},     {ERANGE, 400, "ERANGE"},
    {ENOENT, 404, "ENOENT"},     {EPERM, 403, "EPERM"},
    {EACCES, 401, "EACCES"},     {EBUSY, 409, "EBUSY"},
    {EALREADY, 409, "EALREADY"}, {EEXIST, 409, "EEXIST"}, {EAGAIN, 429, "EAGAIN"},
    {E2BIG, 413, "E2BIG"},       {EDEADLK, 409, "EDEADLK"},
    {ELOOP, 409, "ELOOP"},       {ENOSPC, 503, "ENOSPC"},
    {EIO, 503, "EIO"},           {ENAMETOOLONG, 400, "ENAMETOOLONG"},
    {ENOTSUP, 400, "ENOTSUP"},   {ENOTCONN, 503, "ENOTCONN"},
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

void api_error_json(struct json_writer *w, const struct error *e) {
    int status;
    const char *word;
    status_of(e, &status, &word);
    json_open(w, '{');
    json_kv_str(w, "code", word);
    json_kv_str(w, "message", e->text);
    json_close(w, '}');
}

struct later {
    struct net_request *req;
    int status;
    struct buf body;
};

static void reply_now(void *arg) {
    struct later *l = arg;
    api_json(l->req, l->status, &l->body);
    buf_done(&l->body);
    free(l);
}

void api_when_committed(struct api_call *call, int status, struct buf *body) {
    struct later *l = xcalloc(1, sizeof *l);
    *l = (struct later){.req = call->req, .status = status, .body = *body};
    *body = (struct buf){0};
    pipeline_when_committed(call->controller->pipeline, reply_now, l);
}

// --- questions ---

const char *api_query(struct api_call *call, const char *name) {
    cleanup_buf struct buf b = {0};
    if (http_query_get(call->req->query, name, &b) < 0)
        return NULL;
    return arena_strdup(&call->arena, buf_str(&b));
}

int64_t api_query_i64(const struct api_call *call, const char *name, int64_t fallback) {
    cleanup_buf struct buf b = {0};
    int64_t v;
    if (http_query_get(call->req->query, name, &b) < 0 || parse_i64(buf_str(&b), &v) < 0)
        return fallback;
    return v;
}

int api_body(struct api_call *call, struct json **out) {
    struct error e = {0};
    int r = json_parse_few(call->req->body, call->req->body_len, API_VALUES_MAX, &call->arena, out, &e);
    if (r < 0)
        api_fail(call->req, &e);
    return r;
}

// --- identity ---

static bool is_admin(const struct controller *c, const char *user, uid_t uid) {
    if (uid == 0 || uid == c->uid)
        return true;
    for (uint32_t i = 0; i < c->config.cluster.admins.len; i++)
        if (streq(c->config.cluster.admins.at[i], user))
            return true;
    return false;
}

static bool token_holds(const char *id, void *ctx) {
    return core_token_holds(((struct controller *)ctx)->core, id, now_ms());
}

// Whoever was let in by a token, and still streams or follows, goes with it.
void api_end_tokens(struct controller *c) {
    uint32_t ended = net_server_end_passes(c->server, token_holds, c);
    if (ended)
        log_info("%u connections ended with their tokens", ended);
}

// Who somebody is that was identified a moment ago (`again`) is not asked anew.
static int find_user(struct controller *c, uid_t uid, const char *name, bool again, const struct user_info **out,
                     struct error *e) {
    *out = again ? users_last(c->users, uid, name) : NULL;
    if (*out)
        return 0;
    return name ? users_by_name(c->users, name, clock_mono_ms(), out, e)
                : users_by_uid(c->users, uid, clock_mono_ms(), out, e);
}

static int actor_by_token(struct controller *c, struct net_request *req, bool again, struct arena *a,
                          struct actor *out, struct error *e) {
    const char *header = http_message_header(req->http, "Authorization");
    struct token t;
    char hash[TOKEN_SHA256_HEX + 1];
    if (!header || !str_has_prefix(header, "Bearer ") || token_parse(header + 7, &t, NULL) < 0)
        return -EACCES;
    token_hash(&t, hash);
    int64_t until_ms;
    const char *user = core_token_user(c->core, t.id, hash, now_ms(), &until_ms);
    const struct user_info *found;
    if (user)
        net_request_set_pass(req, t.id);
    token_wipe(&t);
    int r = user ? find_user(c, 0, user, again, &found, e) : -EACCES;
    if (r < 0)
        return r == -ENOENT ? -EACCES : r;
    *out = (struct actor){.user = arena_strdup(a, user),
                          .uid = found->uid,
                          .gid = found->gid,
                          .admin = is_admin(c, user, found->uid),
                          .until_ms = until_ms};
    return 0;
}

int api_actor_of(struct controller *c, struct net_request *req, bool again, struct arena *a, struct actor *out,
                 struct error *e) {
    if (req->peer->kind == NET_PEER_TLS)
        return actor_by_token(c, req, again, a, out, e);
    const struct user_info *found;
    int r = find_user(c, req->peer->uid, NULL, again, &found, e);
    if (r < 0 && r != -ENOENT)
        return r;
    // No name: the number stands for it.
    const char *user = r == 0 ? arena_strdup(a, found->name) : arena_printf(a, "%u", (unsigned)req->peer->uid);
    *out = (struct actor){.user = user,
                          .uid = req->peer->uid,
                          .gid = req->peer->gid,
                          .admin = is_admin(c, user, req->peer->uid)};
    return 0;
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

static const struct route *find_route(const struct net_request *req, const char **value, size_t *len, bool *is_job,
                                      bool *path_known) {
    for (size_t i = 0; i < api_route_count; i++) {
        *value = NULL;
        *is_job = false;
        if (!path_matches(api_routes[i].path, req->path, value, len, is_job))
            continue;
        *path_known = true;
        if (streq(api_routes[i].method, req->method))
            return &api_routes[i];
    }
    return NULL;
}

bool api_needs_no_user(const struct net_request *req) {
    const char *value;
    size_t len;
    bool is_job, path_known;
    const struct route *r = find_route(req, &value, &len, &is_job, &path_known);
    return r && (r->permission == ALLOW_ANYBODY || r->permission == ALLOW_AGENT);
}

static bool take_value(struct api_call *call, const char *value, size_t len, bool is_job) {
    cleanup_buf struct buf text = {0};
    struct error e = {0};
    if (http_percent_decode(value, len, false, &text) < 0) {
        api_error(call->req, 400, "EINVAL", "the path is not properly encoded");
        return false;
    }
    call->name = arena_strdup(&call->arena, buf_str(&text));
    if (is_job && !(call->job = api_parse_job(call->controller, call->name, &e))) {
        api_fail(call->req, &e);
        return false;
    }
    return true;
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
    if (r->permission == ALLOW_ADMIN && !call->actor.admin) {
        cleanup_buf struct buf b = {0};
        buf_addf(&b, "only an administrator may do that; you are %s", call->actor.user);
        api_error(call->req, 403, "EPERM", buf_str(&b));
        return false;
    }
    return true;
}

static void dispatch(struct controller *c, struct net_request *req) {
    struct api_call call = {.controller = c, .req = req};
    const char *value;
    size_t len = 0;
    bool is_job, path_known = false;
    const struct route *r = find_route(req, &value, &len, &is_job, &path_known);
    req->tag = r ? (uint32_t)(r - api_routes) + 1 : 0;
    if (!r)
        api_error(req, path_known ? 405 : 404, path_known ? "EINVAL" : "ENOENT",
                  path_known ? "this path does not take that method; see GET /v1"
                             : "there is no such path; see GET /v1");
    else if (permitted(&call, r) && (!value || take_value(&call, value, len, is_job))) {
        if (r->permission == ALLOW_JOB && !api_may_see(call.controller, &call.actor, call.job))
            api_error(req, 403, "EPERM", "that job is somebody else's; its script and output are private");
        else if (r->permission == ALLOW_OWNER && !api_owns(call.controller, &call.actor, call.job))
            api_error(req, 403, "EPERM", "that job is somebody else's; only its user may run commands in it");
        else
            r->handler(&call);
    }
    arena_done(&call.arena);
}

void api_request(struct net_request *req, void *user) {
    struct controller *c = user;
    c->requests++;
    c->body_bytes += req->body_len;
    req->began_us = clock_mono_us();
    dispatch(c, req);
}

// Those who are still not known come back into the line.
void api_users_changed(struct controller *c) {
    uint32_t n = c->unidentified.len;
    struct net_request **list = c->unidentified.at;
    c->unidentified.at = NULL;
    c->unidentified.len = c->unidentified.cap = 0;
    for (uint32_t i = 0; i < n; i++)
        if (c->stopping)
            api_error(list[i], 503, "ENOTCONN", "the controller stops; try again later");
        else
            dispatch(c, list[i]);
    free(list);
}

void api_routes_list(struct api_call *call) {
    cleanup_buf struct buf b = {0};
    struct json_writer w = {.out = &b};
    json_open(&w, '[');
    for (size_t i = 0; i < api_route_count; i++) {
        json_open(&w, '{');
        json_kv_str(&w, "method", api_routes[i].method);
        json_kv_str(&w, "path", api_routes[i].path);
        json_kv_str(&w, "help", api_routes[i].help);
        json_close(&w, '}');
    }
    json_close(&w, ']');
    api_json(call->req, 200, &b);
}

void api_agent(struct api_call *call) {
    agent_upgrade(call->controller, call->req);
}
