// Owns what the API says of the cluster: status, nodes, tokens and joining.
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "admission.h"
#include "api.h"
#include "notifier.h"
#include "telemetry.h"
#include "model/gpuspec.h"
#include "model/name.h"
#include "net/token.h"

enum { TOKEN_TTL_DEFAULT_S = 3600, TOKEN_TTL_MAX_S = 365 * 86400 };

static const char *node_word(const struct node_view *v) {
    if (v->state == NODE_DOWN)
        return "down";
    if (v->state == NODE_SILENT)
        return v->stale ? "cleaning" : "unreachable";
    if (v->drained || v->retry_ms)
        return v->jobs ? "draining" : "drained";
    if (!v->jobs)
        return "idle";
    uint32_t gpus = v->node->gpus.len * 1000;
    bool full = v->cpus_used >= v->node->cpus || (gpus && v->gpus_used_milli >= gpus);
    return full ? "allocated" : "mixed";
}

static void put_gpus(struct json_writer *w, const struct node *n) {
    json_key(w, "gpus");
    json_open(w, '[');
    for (uint32_t i = 0; i < n->gpus.len; i++)
        schema_write_json(&gpu_schema, &n->gpus.at[i], w);
    json_close(w, ']');
}

static bool put_partition(void *ctx, const char *name, const void *value) {
    json_put_str(ctx, name);
    return true;
}

static void put_node(struct controller *c, struct json_writer *w, const struct node_view *v, bool whole) {
    const struct node *n = v->node;
    const struct message_telemetry *t = telemetry_latest(c, n->name);
    json_open(w, '{');
    json_kv_str(w, "name", n->name);
    json_kv_str(w, "state", node_word(v));
    cleanup_buf struct buf launches = {0};
    if (v->launch_failures)
        buf_addf(&launches, "%u %s failed%s: %s", v->launch_failures,
                 v->launch_failures == 1 ? "launch" : "launches in a row",
                 v->retry_ms ? ", paused until retry" : ", on trial",
                 v->launch_reason ? v->launch_reason : "no reason given");
    json_kv_str(w, "reason", v->reason ? v->reason : launches.len ? buf_str(&launches) : NULL);
    json_kv_i64(w, "launch_failures", v->launch_failures);
    json_kv_i64(w, "retry_ms", v->retry_ms);
    json_kv_str(w, "by", v->by);
    json_kv_i64(w, "reason_ms", v->reason_ms);
    json_kv_i64(w, "busy_ms", v->busy_ms);
    json_kv_i64(w, "cpus", n->cpus);
    json_kv_i64(w, "cpus_used", v->cpus_used);
    json_kv_i64(w, "memory_bytes", (int64_t)n->memory_bytes);
    json_kv_i64(w, "memory_used_bytes", (int64_t)v->memory_used_bytes);
    json_kv_i64(w, "gpus_milli", (int64_t)n->gpus.len * 1000);
    json_kv_i64(w, "gpus_used_milli", v->gpus_used_milli);
    put_gpus(w, n);
    if (whole)
        api_put_gpus_now(c, w, v);
    json_key(w, "features");
    json_open(w, '[');
    for (uint32_t i = 0; i < n->features.len; i++)
        json_put_str(w, n->features.at[i]);
    json_close(w, ']');
    json_key(w, "partitions");
    json_open(w, '[');
    core_each_partition_of(c->core, n->name, put_partition, w);
    json_close(w, ']');
    json_kv_i64(w, "jobs", v->jobs);
    json_kv_str(w, "version", n->version);
    json_kv_str(w, "address", n->address);
    json_kv_str(w, "boot_id", n->boot_id);
    json_kv_i64(w, "boot_ms", n->boot_ms);
    json_kv_i64(w, "agent_start_ms", n->agent_start_ms);
    json_kv_str(w, "os", n->os);
    json_kv_str(w, "arch", n->arch);
    json_kv_i64(w, "sockets", n->sockets);
    json_kv_i64(w, "cores_per_socket", n->cores_per_socket);
    json_kv_i64(w, "threads_per_core", n->threads_per_core);
    json_kv_i64(w, "tmp_bytes", (int64_t)n->tmp_bytes);
    json_kv_str(w, "missing", n->missing);
    json_kv_bool(w, "connected", strmap_get(&c->agents, n->name) != NULL);
    if (t) {
        json_kv_i64(w, "cpu_milli", t->cpu_milli);
        json_kv_i64(w, "load_milli", t->load_milli);
        json_kv_i64(w, "memory_in_use_bytes", (int64_t)t->memory_used_bytes);
    }
    json_close(w, '}');
}

struct node_listing {
    struct controller *controller;
    struct json_writer w;
};

static bool list_node(void *ctx, const struct node_view *v) {
    struct node_listing *l = ctx;
    put_node(l->controller, &l->w, v, false);
    return true;
}

void api_nodes(struct api_call *call) {
    cleanup_buf struct buf b = {0};
    struct node_listing l = {.controller = call->controller, .w = {.out = &b}};
    json_open(&l.w, '{');
    json_key(&l.w, "nodes");
    json_open(&l.w, '[');
    core_each_node(call->controller->core, list_node, &l);
    json_close(&l.w, ']');
    json_close(&l.w, '}');
    api_json(call->req, 200, &b);
}

static bool need_node(struct api_call *call, struct node_view *v) {
    if (core_node(call->controller->core, call->name, v))
        return true;
    cleanup_buf struct buf text = {0};
    char shown[64];
    buf_addf(&text, "node \"%s\" does not exist; see 'acequia nodes'", printable(call->name, shown, sizeof shown));
    api_error(call->req, 404, "ENOENT", buf_str(&text));
    return false;
}

void api_node(struct api_call *call) {
    struct node_view v;
    cleanup_buf struct buf b = {0};
    struct json_writer w = {.out = &b};
    if (!need_node(call, &v))
        return;
    put_node(call->controller, &w, &v, true);
    api_json(call->req, 200, &b);
}

// Carries out a command that has no result, and answers.
static int give(struct api_call *call, enum command_type type, const void *body) {
    struct error e = {0};
    struct buf b = {0};
    struct command command = {type, body};
    int r = core_command(call->controller->core, &call->actor, NULL, &command, now_ms(), NULL, &e);
    if (r < 0) {
        api_fail(call->req, &e);
        return r;
    }
    buf_adds(&b, "{\"done\":true}");
    api_when_committed(call, 200, &b);
    return 0;
}

void api_node_action(struct api_call *call) {
    size_t len = strlen(call->req->path);
    if (len > 7 && streq(call->req->path + len - 7, "/resume")) {
        give(call, COMMAND_NODE_RESUME, &(struct command_node){call->name});
        return;
    }
    struct json *j;
    if (api_body(call, &j) == 0)
        give(call, COMMAND_NODE_DRAIN, &(struct command_node_drain){call->name, json_str(j, "reason")});
}

void api_node_remove(struct api_call *call) {
    give(call, COMMAND_NODE_REMOVE, &(struct command_node){call->name});
}

static bool warn_missing(void *ctx, const struct node_view *v) {
    struct json_writer *w = ctx;
    cleanup_buf struct buf b = {0};
    if (v->node->missing) {
        buf_addf(&b, "node %s: %s", v->node->name, v->node->missing);
        json_put_str(w, buf_str(&b));
    }
    return true;
}

// What bounds a submit, so that programs can stay within it.
static void put_limits(const struct controller *c, struct json_writer *w) {
    json_key(w, "limits");
    json_open(w, '{');
    json_kv_i64(w, "max_array_size", c->config.cluster.max_array_size);
    json_kv_i64(w, "max_jobs_per_user", c->config.cluster.max_jobs_per_user);
    json_kv_i64(w, "max_queue_length", c->config.cluster.max_queue_length);
    json_kv_i64(w, "grace_s", c->config.cluster.grace_s);
    json_close(w, '}');
}

static void put_prices(const struct config_report *r, struct json_writer *w) {
    const struct {
        const char *name;
        double value;
    } prices[] = {{"gpu_hour", r->price_gpu_hour}, {"cpu_hour", r->price_cpu_hour}, {"kwh", r->price_kwh},
                  {"co2_g_per_kwh", r->co2_g_per_kwh}};
    json_key(w, "prices");
    json_open(w, '{');
    json_kv_str(w, "currency", r->currency);
    for (size_t i = 0; i < sizeof prices / sizeof *prices; i++) {
        json_key(w, prices[i].name);
        json_put_double(w, prices[i].value);
    }
    json_close(w, '}');
}

void api_status(struct api_call *call) {
    struct controller *c = call->controller;
    cleanup_buf struct buf b = {0};
    struct json_writer w = {.out = &b};
    struct core_counts n;
    struct store_stats s;
    core_counts(c->core, &n);
    store_stats(c->store, &s);
    json_open(&w, '{');
    json_kv_str(&w, "cluster", c->config.cluster.name);
    json_kv_str(&w, "version", ACEQUIA_VERSION);
    json_kv_i64(&w, "uptime_ms", now_ms() - c->started_ms);
    json_kv_str(&w, "user", call->actor.user);
    json_kv_bool(&w, "admin", call->actor.admin);
    json_key(&w, "nodes");
    json_open(&w, '{');
    json_kv_i64(&w, "total", n.nodes);
    json_kv_i64(&w, "up", n.nodes_up);
    json_kv_i64(&w, "drained", n.nodes_drained);
    json_kv_i64(&w, "down", n.nodes_down);
    json_close(&w, '}');
    json_key(&w, "jobs");
    json_open(&w, '{');
    for (int i = 0; i < JOB_STATE_COUNT; i++)
        json_kv_i64(&w, job_state_words[i], (int64_t)n.by_state[i]);
    json_kv_i64(&w, "submitted", (int64_t)n.submitted);
    json_kv_i64(&w, "requeued", (int64_t)n.requeued);
    json_kv_i64(&w, "preempted", (int64_t)n.preempted);
    json_close(&w, '}');
    cleanup_buf struct buf sick = {0}, waste = {0}, outside = {0};
    api_put_gpu_status(c, &w, &sick);
    json_kv_i64(&w, "journal_seq", (int64_t)s.committed_seq);
    json_key(&w, "storage");
    json_open(&w, '{');
    json_kv_i64(&w, "file_bytes", (int64_t)s.file_bytes);
    json_kv_i64(&w, "free_bytes", (int64_t)s.free_bytes);
    json_kv_i64(&w, "commits", (int64_t)s.commits);
    json_kv_i64(&w, "commit_us_mean", s.commits ? (int64_t)(s.commit_us_total / s.commits) : 0);
    json_kv_i64(&w, "commit_us_max", (int64_t)s.commit_us_max);
    json_kv_str(&w, "problem", *c->storage_problem ? c->storage_problem : NULL);
    json_close(&w, '}');
    json_key(&w, "scheduler");
    json_open(&w, '{');
    json_kv_i64(&w, "passes", (int64_t)c->schedules);
    json_kv_i64(&w, "action_slices", (int64_t)c->action_slices);
    json_kv_i64(&w, "action_work_max", c->action_work_max);
    json_kv_i64(&w, "last_us", c->schedule_us);
    json_close(&w, '}');
    put_limits(c, &w);
    put_prices(&c->config.report, &w);
    json_kv_i64(&w, "requests", (int64_t)c->requests);
    json_kv_str(&w, "listen", c->config.cluster.listen);
    json_key(&w, "warnings");
    json_open(&w, '[');
    struct error e = {0};
    if (api_check_storage(c, &e) < 0)
        json_put_str(&w, e.text);
    api_put_upgrade_warning(c->core, &w);
    if (notifier_problem(c->notifier))
        json_put_str(&w, notifier_problem(c->notifier));
    core_each_node(c->core, warn_missing, &w);
    if (sick.len)
        json_put_str(&w, buf_str(&sick));
    if (telemetry_outside(c, &outside))
        json_put_str(&w, buf_str(&outside));
    if (telemetry_waste(c, &waste))
        json_put_str(&w, buf_str(&waste));
    json_close(&w, ']');
    json_close(&w, '}');
    api_json(call->req, 200, &b);
}

// --- tokens ---

// A slip in a name would make a token that opens nothing. -EINPROGRESS: the request comes again.
static int check_user(struct api_call *call, const char *user, struct error *e) {
    const struct user_info *found;
    if (!call->actor.admin)
        return 0;  // refused for others anyway
    int r = users_by_name(call->controller->users, user, clock_mono_ms(), &found, e);
    if (r == -EINPROGRESS)
        vec_push(&call->controller->unidentified, call->req);
    if (r == -ENOENT)
        r = error_set(e, ENOENT, "user: there is no user %.64s on the controller's machine", user);
    return r;
}

void api_token_create(struct api_call *call) {
    struct controller *c = call->controller;
    struct json *j;
    struct error e = {0};
    struct token t;
    char hash[TOKEN_SHA256_HEX + 1], text[TOKEN_TEXT_LEN + 1];
    if (api_body(call, &j) < 0)
        return;
    const char *kind = json_str(j, "kind"), *user = json_str(j, "user");
    int64_t ttl_s = json_i64(j, "ttl_s", TOKEN_TTL_DEFAULT_S);
    bool for_user = streq(kind, "user");
    if (kind && !for_user && !streq(kind, "agent"))
        error_set(&e, EINVAL, "kind: expected agent or user");
    else if (ttl_s < 1 || ttl_s > TOKEN_TTL_MAX_S)
        error_set(&e, ERANGE, "ttl_s: expected 1 to %d", TOKEN_TTL_MAX_S);
    else if (!c->ca)
        error_set(&e, ENOTSUP,
                  "this controller takes no other machines: set listen in [cluster], for example listen = "
                  "0.0.0.0:6820, and restart it");
    if (!e.code && for_user && user && check_user(call, user, &e) == -EINPROGRESS)
        return;
    if (e.code || token_create(pki_ca_sha256(c->ca), &t, &e) < 0) {
        api_fail(call->req, &e);
        return;
    }
    token_hash(&t, hash);
    token_format(&t, text);
    struct command_token_create create = {.id = t.id,
                                          .hash = hash,
                                          .user = for_user ? (user ? user : call->actor.user) : NULL,
                                          .node = json_str(j, "node"),
                                          .expires_ms = now_ms() + ttl_s * 1000};
    struct command command = {COMMAND_TOKEN_CREATE, &create};
    int r = core_command(c->core, &call->actor, NULL, &command, now_ms(), NULL, &e);
    struct buf b = {0};
    struct json_writer w = {.out = &b};
    json_open(&w, '{');
    json_kv_str(&w, "token", text);
    json_kv_str(&w, "id", t.id);
    json_kv_i64(&w, "expires_ms", create.expires_ms);
    json_close(&w, '}');
    if (r < 0)
        api_fail(call->req, &e);
    else
        api_when_committed(call, 201, &b);
    buf_done(&b);
    token_wipe(&t);
}

struct token_listing {
    struct api_call *call;
    struct json_writer w;
};

static bool list_token(void *ctx, const struct event_token *t, bool used) {
    struct token_listing *l = ctx;
    if (!l->call->actor.admin && !streq(t->user, l->call->actor.user))
        return true;
    json_open(&l->w, '{');
    json_kv_str(&l->w, "id", t->id);
    json_kv_str(&l->w, "kind", t->user ? "user" : "agent");
    json_kv_str(&l->w, "user", t->user);
    json_kv_str(&l->w, "by", t->by);
    json_kv_i64(&l->w, "expires_ms", t->expires_ms);
    json_kv_bool(&l->w, "used", used);
    json_kv_str(&l->w, "node", t->node);
    json_close(&l->w, '}');
    return true;
}

void api_token_list(struct api_call *call) {
    cleanup_buf struct buf b = {0};
    struct token_listing l = {.call = call, .w = {.out = &b}};
    json_open(&l.w, '{');
    json_key(&l.w, "tokens");
    json_open(&l.w, '[');
    core_each_token(call->controller->core, list_token, &l);
    json_close(&l.w, ']');
    json_close(&l.w, '}');
    api_json(call->req, 200, &b);
}

void api_token_revoke(struct api_call *call) {
    if (give(call, COMMAND_TOKEN_REVOKE, &(struct command_token_revoke){call->name}) == 0)
        agents_dismiss(call->controller);
}

void api_join(struct api_call *call) {
    static const struct actor nobody = {.user = "agent"};  // the token is the proof
    struct controller *c = call->controller;
    struct json *j;
    struct error e = {0};
    struct token t;
    char hash[TOKEN_SHA256_HEX + 1], fingerprint[PKI_SHA256_HEX + 1];
    struct buf cert = {0}, b = {0};
    if (api_body(call, &j) < 0)
        return;
    const char *text = json_str(j, "token"), *csr = json_str(j, "csr"), *name = json_str(j, "name");
    if (!c->ca)
        error_set(&e, ENOTSUP, "this controller takes no other machines");
    else if (!text || !csr || !name)
        error_set(&e, EINVAL, "expected token, csr and name");
    // Whoever has a token may bring a node, but not take the place of one that is here.
    else if (strmap_get(&c->agents, name))
        error_set(&e, EBUSY, "a node of this name is connected; stop its agent first, or choose another name");
    else if (token_parse(text, &t, &e) == 0 && identifier_check("node", name, &e) == 0 &&
             pki_sign_client(c->ca, csr, strlen(csr), name, now_ms() / 1000, &cert, fingerprint, &e) == 0) {
        token_hash(&t, hash);
        struct command_token_use use = {.id = t.id, .hash = hash, .node = name, .fingerprint = fingerprint};
        struct command command = {COMMAND_TOKEN_USE, &use};
        if (core_command(c->core, &nobody, NULL, &command, now_ms(), NULL, &e) == -EACCES)
            admission_wrong_join(c, call->req);
    }
    if (e.code) {
        api_fail(call->req, &e);
        buf_done(&cert);
        return;
    }
    struct json_writer w = {.out = &b};
    json_open(&w, '{');
    json_kv_str(&w, "certificate", buf_str(&cert));
    json_kv_str(&w, "ca", pki_ca_pem(c->ca));
    json_kv_str(&w, "name", name);
    json_kv_str(&w, "cluster", c->config.cluster.name);
    json_close(&w, '}');
    api_when_committed(call, 200, &b);
    buf_done(&cert);
}
