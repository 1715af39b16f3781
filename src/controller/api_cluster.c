// The cluster in the API: status, nodes, tokens and joining.
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "admission.h"
#include "api.h"
#include "backups.h"
#include "notifier.h"
#include "policy.h"
#include "telemetry.h"
#include "model/gpuspec.h"
#include "model/name.h"
#include "net/token.h"

enum { TOKEN_TTL_DEFAULT_S = 3600 };

enum answer_node_state api_node_state(const struct node_view *v) {
    if (v->state == NODE_DOWN)
        return ANSWER_NODE_DOWN;
    if (v->state == NODE_SILENT)
        return v->stale ? ANSWER_NODE_CLEANING : ANSWER_NODE_UNREACHABLE;
    if (v->drained || v->retry_ms)
        return v->jobs ? ANSWER_NODE_DRAINING : ANSWER_NODE_DRAINED;
    if (!v->jobs)
        return ANSWER_NODE_IDLE;
    uint32_t gpus = v->node->gpus.len * 1000;
    bool full = v->cpus_used >= v->node->cpus || (gpus && v->gpus_used_milli >= gpus);
    return full ? ANSWER_NODE_ALLOCATED : ANSWER_NODE_MIXED;
}

struct partition_names {
    struct arena *arena;
    const char **at;
    uint32_t len, room;
};

static bool add_partition(void *ctx, const char *name, const void *value) {
    struct partition_names *p = ctx;
    if (p->len == p->room) {
        p->room = p->room ? p->room * 2 : 8;
        const char **more = arena_alloc(p->arena, p->room * sizeof *more);
        if (p->len)
            memcpy(more, p->at, p->len * sizeof *more);
        p->at = more;
    }
    p->at[p->len++] = name;
    return true;
}

static void fill_telemetry(const struct message_telemetry *t, struct answer_node_status *out) {
    out->cpu_milli = t->cpu_milli;
    out->load_milli = t->load_milli;
    out->memory_in_use_bytes = t->memory_used_bytes;
    schema_give(&answer_node_schema, out, &out->cpu_milli);
    schema_give(&answer_node_schema, out, &out->load_milli);
    schema_give(&answer_node_schema, out, &out->memory_in_use_bytes);
}

const char *api_launch_trouble(const struct node_view *v, struct arena *a) {
    if (!v->launch_failures)
        return NULL;
    return arena_printf(a, "%u %s failed%s: %s", v->launch_failures,
                        v->launch_failures == 1 ? "launch" : "launches in a row",
                        v->retry_ms ? ", paused until retry" : ", on trial",
                        v->launch_reason ? v->launch_reason : "no reason given");
}

// viewer: what its GPUs do is told as well, as far as they may know; NULL: it is not.
static void fill_node(struct controller *c, const struct node_view *v, const struct actor *viewer,
                      struct arena *a, struct answer_node_status *out) {
    const struct node *n = v->node;
    const struct message_telemetry *t = telemetry_latest(c, n->name);
    struct partition_names partitions = {.arena = a};
    core_each_partition_of(c->core, n->name, add_partition, &partitions);
    *out = (struct answer_node_status){.name = n->name,
                                       .state = api_node_state(v),
                                       .reason = v->reason ? v->reason : api_launch_trouble(v, a),
                                       .launch_failures = v->launch_failures,
                                       .retry_ms = v->retry_ms,
                                       .by = v->by,
                                       .reason_ms = v->reason_ms,
                                       .busy_ms = v->busy_ms,
                                       .cpus = n->cpus,
                                       .cpus_used = v->cpus_used,
                                       .memory_bytes = n->memory_bytes,
                                       .memory_used_bytes = v->memory_used_bytes,
                                       .gpus_milli = (uint64_t)n->gpus.len * 1000,
                                       .gpus_used_milli = v->gpus_used_milli,
                                       .jobs = v->jobs,
                                       .version = n->version,
                                       .address = n->address,
                                       .boot_id = n->boot_id,
                                       .boot_ms = n->boot_ms,
                                       .agent_start_ms = n->agent_start_ms,
                                       .os = n->os,
                                       .arch = n->arch,
                                       .sockets = n->sockets,
                                       .cores_per_socket = n->cores_per_socket,
                                       .threads_per_core = n->threads_per_core,
                                       .tmp_bytes = n->tmp_bytes,
                                       .missing = n->missing,
                                       .connected = strmap_get(&c->agents, n->name) != NULL,
                                       .containers = n->containers};
    out->gpus.at = n->gpus.at;
    out->gpus.len = n->gpus.len;
    out->features.at = n->features.at;
    out->features.len = n->features.len;
    out->partitions.at = partitions.at;
    out->partitions.len = partitions.len;
    if (viewer)
        api_gpus_now(c, viewer, v, a, out);
    if (t)
        fill_telemetry(t, out);
}

// The answer is written node by node: a struct of each at once would be large.
struct node_listing {
    struct controller *controller;
    struct json_writer w;
    struct arena scratch;
};

static bool list_node(void *ctx, const struct node_view *v) {
    struct node_listing *l = ctx;
    struct answer_node_status n;
    arena_reset(&l->scratch);
    fill_node(l->controller, v, NULL, &l->scratch, &n);
    schema_write_json(&answer_node_schema, &n, &l->w);
    return true;
}

void api_nodes(struct api_call *call) {
    cleanup_buf struct buf b = {0};
    struct node_listing l = {.controller = call->controller, .w = {.out = &b}};
    json_open(&l.w, '{');
    json_open_key(&l.w, "nodes", '[');
    core_each_node(call->controller->core, list_node, &l);
    json_close(&l.w, ']');
    json_close(&l.w, '}');
    arena_done(&l.scratch);
    api_json(call->req, 200, &b);
}

void api_node(struct api_call *call) {
    struct node_view v;
    struct answer_node_status n;
    struct error e = {0};
    char shown[64];
    if (!core_node(call->controller->core, call->name, &v)) {
        error_set(&e, ENOENT, "node \"%s\" does not exist; see 'acequia nodes'",
                  str_printable(call->name, shown, sizeof shown));
        api_fail(call->req, &e);
        return;
    }
    fill_node(call->controller, &v, &call->actor, &call->arena, &n);
    api_answer(call, &answer_node_schema, &n);
}

int api_give(struct api_call *call, enum command_type type, const void *body) {
    struct error e = {0};
    struct command command = {type, body};
    struct command_result result = {0};
    int r = core_command(call->controller->core, &call->actor, NULL, &command, controller_now_ms(), &result, &e);
    if (r < 0)
        api_fail(call->req, &e);
    else
        api_answer_committed(call, 200, &answer_done_schema, &(struct answer_done){!result.unchanged});
    return r;
}

void api_node_action(struct api_call *call) {
    size_t len = strlen(call->req->path);
    if (len > 7 && streq(call->req->path + len - 7, "/resume")) {
        api_give(call, COMMAND_NODE_RESUME, &(struct command_node){call->name});
        return;
    }
    const struct request_drain *q = call->body;
    api_give(call, COMMAND_NODE_DRAIN, &(struct command_node_drain){call->name, q->reason});
}

void api_node_remove(struct api_call *call) {
    api_give(call, COMMAND_NODE_REMOVE, &(struct command_node){call->name});
}

struct status_warnings {
    struct arena *arena;
    VEC(const char *) list;
};

static bool warn_missing(void *ctx, const struct node_view *v) {
    struct status_warnings *w = ctx;
    if (v->node->missing)
        vec_push(&w->list, arena_printf(w->arena, "node %s: %s", v->node->name, v->node->missing));
    return true;
}

static void add_text(struct status_warnings *w, const struct buf *text) {
    if (text->len)
        vec_push(&w->list, arena_strndup(w->arena, text->data, text->len));
}

static void warn_unlisted(void *ctx, const char *text) {
    vec_push(&((struct status_warnings *)ctx)->list, text);
}

void api_hand_over(struct api_call *call) {
    struct controller *c = call->controller;
    if (!c->shared) {
        api_error(call->req, 409, "ENOTSUP",
                  "this controller shares its state with no other; [store] of the configuration says how");
        return;
    }
    if (store_others(c->store) == 0) {
        api_error(call->req, 409, "ENODEV",
                  "no other controller is connected to the database, so nobody could take over; start another "
                  "one first. To restart this one no hand-over is needed: running jobs go on");
        return;
    }
    c->handing_over = true;  // at the next tick, when this answer has left
    api_answer_committed(call, 200, &answer_done_schema, &(struct answer_done){.done = true});
}

void api_reload(struct api_call *call) {
    struct controller *c = call->controller;
    struct status_warnings warnings = {.arena = &call->arena};
    struct error e = {0};
    if (controller_reload(c, &e) < 0) {
        api_fail(call->req, &e);
        return;
    }
    controller_policy_unlisted(c, &call->arena, warn_unlisted, &warnings);
    struct answer_reload answer = {.file = c->paths.config, .warnings = {warnings.list.at, warnings.list.len}};
    api_answer_committed(call, 200, &answer_reload_schema, &answer);
    vec_done(&warnings.list);
}

static void collect_warnings(struct controller *c, const struct buf *sick, struct status_warnings *w) {
    cleanup_buf struct buf waste = {0}, outside = {0};
    struct error e = {0};
    if (api_check_storage(c, &e) < 0)
        vec_push(&w->list, arena_strdup(w->arena, e.text));
    const char *upgrade = api_upgrade_warning(c->core, w->arena);
    if (upgrade)
        vec_push(&w->list, upgrade);
    const char *restore = api_restore_warning(c->core, controller_now_ms(), w->arena);
    if (restore)
        vec_push(&w->list, restore);
    const char *lost = controller_secret_key_lost(c, w->arena);
    if (lost)
        vec_push(&w->list, lost);
    if (agents_problem(c))
        vec_push(&w->list, agents_problem(c));
    if (notifier_problem(c->notifier))
        vec_push(&w->list, notifier_problem(c->notifier));
    if (backups_problem(c))
        vec_push(&w->list, backups_problem(c));
    controller_policy_unlisted(c, w->arena, warn_unlisted, w);
    core_each_node(c->core, warn_missing, w);
    add_text(w, sick);
    if (telemetry_outside(c, &outside))
        add_text(w, &outside);
    if (telemetry_waste(c, &waste))
        add_text(w, &waste);
}

void api_status(struct api_call *call) {
    struct controller *c = call->controller;
    const struct config_cluster *k = &c->config.cluster;
    struct core_counts n;
    struct store_stats s;
    struct answer_gpu_counts gpus;
    cleanup_buf struct buf sick = {0};
    struct status_warnings warnings = {.arena = &call->arena};
    core_counts(c->core, &n);
    store_stats(c->store, &s);
    api_gpu_counts(c, &gpus, &sick);
    collect_warnings(c, &sick, &warnings);
    struct answer_states jobs = {.submitted = n.submitted, .requeued = n.requeued, .preempted = n.preempted};
    memcpy(jobs.by_state, n.by_state, sizeof jobs.by_state);
    struct answer_node_counts nodes = {n.nodes, n.nodes_up, n.nodes_drained, n.nodes_down};
    struct answer_storage storage = {.file_bytes = s.file_bytes,
                                     .free_bytes = s.free_bytes,
                                     .commits = s.commits,
                                     .commit_us_mean = s.commits ? s.commit_us_total / s.commits : 0,
                                     .commit_us_max = s.commit_us_max,
                                     .problem = *c->storage_problem ? c->storage_problem : NULL};
    struct answer_scheduler scheduler = {c->schedules, (uint64_t)c->schedule_us, c->work_slices,
                                         c->work_spent_max};
    struct answer_limits limits = {k->max_array_size, k->max_jobs_per_user, k->max_queue_length, k->grace_s};
    const struct config_report *p = &c->config.report;
    struct answer_prices prices = {p->currency, p->price_gpu_hour, p->price_cpu_hour, p->price_kwh, p->co2_g_per_kwh};
    struct answer_status answer = {.cluster = k->name,
                                   .version = ACEQUIA_VERSION,
                                   .uptime_ms = controller_now_ms() - c->started_ms,
                                   .user = call->actor.user,
                                   .admin = call->actor.admin,
                                   .nodes = &nodes,
                                   .jobs = &jobs,
                                   .gpus = &gpus,
                                   .journal_seq = s.committed_seq,
                                   .storage = &storage,
                                   .scheduler = &scheduler,
                                   .limits = &limits,
                                   .prices = &prices,
                                   .requests = c->requests,
                                   .listen = k->listen};
    answer.warnings.at = warnings.list.at;
    answer.warnings.len = warnings.list.len;
    api_answer(call, &answer_status_schema, &answer);
    vec_done(&warnings.list);
}

// --- tokens ---

void api_token_create(struct api_call *call) {
    struct controller *c = call->controller;
    const struct request_token *q = call->body;
    struct error e = {0};
    struct token t;
    char hash[TOKEN_SHA256_HEX + 1], text[TOKEN_TEXT_LEN + 1];
    const char *user = q->user;
    int64_t ttl_s = q->ttl_s ? q->ttl_s : TOKEN_TTL_DEFAULT_S;
    bool for_user = q->kind == ANSWER_TOKEN_USER;
    uint32_t scopes = 0;
    user_scopes_parse((const char *const *)q->scopes.at, q->scopes.len, &scopes, &e);
    // For others an administrator alone makes tokens: the rest is refused anyway.
    if (!e.code && for_user && user && call->actor.admin &&
        api_need_user(call, "user", user, &e) == -EINPROGRESS)
        return;
    if (!e.code && q->node)
        name_check("node", q->node, &e);
    if (!e.code && !c->ca)
        error_set(
            &e, ENOTSUP,
            "this controller serves only its own machine: set listen in [cluster], for example listen = "
            "0.0.0.0:6820, and restart it");
    if (e.code || token_create(pki_ca_sha256(c->ca), &t, &e) < 0) {
        api_fail(call->req, &e);
        return;
    }
    token_hash(&t, hash);
    token_format(&t, text);
    struct command_token_create create = {.id = t.id,
                                          .hash = hash,
                                          .user = for_user ? (user ? user : call->actor.user) : NULL,
                                          .node = q->node,
                                          .scopes = scopes,
                                          .project = str_empty(q->project) ? NULL : q->project,
                                          .expires_ms = controller_now_ms() + ttl_s * 1000};
    struct command command = {COMMAND_TOKEN_CREATE, &create};
    int r = core_command(c->core, &call->actor, NULL, &command, controller_now_ms(), NULL, &e);
    if (r < 0)
        api_fail(call->req, &e);
    else
        api_answer_committed(call, 201, &answer_token_created_schema,
                             &(struct answer_token_created){text, t.id, create.expires_ms});
    token_wipe(&t);
}

struct token_listing {
    struct api_call *call;
    VEC(struct answer_token) list;
};

static bool list_token(void *ctx, const struct event_token *t, bool used) {
    struct token_listing *l = ctx;
    const char **words = arena_alloc(&l->call->arena, 3 * sizeof *words);
    if (l->call->actor.admin || streq(t->user, l->call->actor.user))
        vec_push(&l->list,
                 ((struct answer_token){.id = t->id,
                                        .scopes = {words, t->user ? user_scopes_words(t->scopes, words) : 0},
                                        .project = t->project,
                                        .kind = t->user ? ANSWER_TOKEN_USER : ANSWER_TOKEN_AGENT,
                                        .user = t->user,
                                        .by = t->by,
                                        .expires_ms = t->expires_ms,
                                        .used = used,
                                        .node = t->node}));
    return true;
}

void api_token_list(struct api_call *call) {
    struct token_listing l = {.call = call};
    struct answer_tokens answer = {0};
    core_each_token(call->controller->core, list_token, &l);
    answer.tokens.at = l.list.at;
    answer.tokens.len = l.list.len;
    api_answer(call, &answer_tokens_schema, &answer);
    vec_done(&l.list);
}

void api_token_revoke(struct api_call *call) {
    if (api_give(call, COMMAND_TOKEN_REVOKE, &(struct command_token_revoke){call->name}) == 0)
        agents_dismiss(call->controller);
}

void api_join(struct api_call *call) {
    static const struct actor nobody = {.user = "agent"};  // the token is the proof
    struct controller *c = call->controller;
    const struct request_join *q = call->body;
    struct error e = {0};
    struct token t;
    char hash[TOKEN_SHA256_HEX + 1], fingerprint[PKI_SHA256_HEX + 1];
    struct buf cert = {0};
    const char *name = q->name;
    if (!c->ca)
        error_set(&e, ENOTSUP,
                  "this controller serves only its own machine; an administrator can set listen in [cluster]");
    // Whoever has a token may bring a node, but not take the place of one that is here.
    else if (strmap_get(&c->agents, name))
        error_set(&e, EBUSY, "a node of this name is connected; stop its agent first, or choose another name");
    else if (token_parse(q->token, &t, &e) == 0 && name_check("node", name, &e) == 0 &&
             pki_sign_client(c->ca, q->csr, strlen(q->csr), name, controller_now_ms() / 1000, &cert,
                             fingerprint, &e) == 0) {
        token_hash(&t, hash);
        struct command_token_use use = {.id = t.id, .hash = hash, .node = name, .fingerprint = fingerprint};
        struct command command = {COMMAND_TOKEN_USE, &use};
        if (core_command(c->core, &nobody, NULL, &command, controller_now_ms(), NULL, &e) == -EACCES)
            admission_wrong_secret(c, call->req);
    }
    if (e.code) {
        api_fail(call->req, &e);
        buf_done(&cert);
        return;
    }
    api_answer_committed(call, 200, &answer_join_schema,
                         &(struct answer_join){buf_str(&cert), pki_ca_pem(c->ca), name, c->config.cluster.name});
    buf_done(&cert);
}
