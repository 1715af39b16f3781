// Owns the agents' connections: who may dial in, their hello, heartbeats, and the way of each message
// into the core or to a stream.
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "api.h"
#include "controller.h"
#include "node_look.h"
#include "telemetry.h"

enum {
    HELLO_BYTES_MAX =
        2 << 20,  // about ten thousand attempts; all that may be sent before the node is accepted
    AGENT_MESSAGE_BYTES_MAX = 4 << 20,
    HEARTBEATS_TRUSTED = 2,  // an agent that answered one of the last so many is there
    SHARED_HEARTBEAT_S = 1,
    SECOND_AGENT_SAID_MS = 5 * 60 * 1000,  // how long the status tells of a second agent that was refused
};

static void refuse(struct agent_conn *a, const char *why) {
    log_warn("agent %s at %s refused: %s", a->node ? a->node : "?", a->peer.address, why);
    net_ws_close(a->ws, WS_POLICY, why);
}

// A node of this name must be what its certificate says; over the unix socket only the controller's
// own user and root get this far.
static bool may_be(struct agent_conn *a, const char *name) {
    if (a->peer.kind == NET_PEER_UNIX)
        return true;
    return a->peer.has_cert && streq(a->peer.cert_cn, name) &&
           core_enrolled(a->controller->core, name, a->peer.cert_sha256);
}

// Agents of controllers that share a database look for another one as soon as the leader is silent.
static uint32_t heartbeat_s(const struct controller *c) {
    return c->shared ? SHARED_HEARTBEAT_S : c->config.cluster.heartbeat_s;
}

static void welcome(struct agent_conn *a) {
    const struct config_cluster *k = &a->controller->config.cluster;
    struct message_welcome m = {
        .heartbeat_s = heartbeat_s(a->controller),
        .cluster = k->name,
        .usage_every_s = k->usage_interval_s,
        .grace_s = k->grace_s,
        .version = ACEQUIA_VERSION,
        .level = FEATURE_LEVEL_NEWEST};  // the position comes with pings: see pipeline_position
    agents_send(a->controller, a->node, MESSAGE_WELCOME, &m);
}

struct hello_commit {
    struct controller *controller;
    const char *node;
    uint64_t hello;
};

// All that the node should run has been sent to it. Its connection may have gone meanwhile.
static void hello_committed(void *arg) {
    struct hello_commit *p = arg;
    struct agent_conn *a = strmap_get(&p->controller->agents, p->node);
    if (a && a->hello == p->hello) {
        a->ready = true;
        controller_step_sessions_node_up(p->controller, a->node);
        controller_sessions_node_up(p->controller, a->node);
    }
    free(p);
}

static void wait_for_commit(struct agent_conn *a) {
    struct hello_commit *p = xcalloc(1, sizeof *p);
    *p = (struct hello_commit){a->controller, a->node, a->hello = ++a->controller->hellos};
    pipeline_when_committed(a->controller->pipeline, hello_committed, p);
}

// Two machines with one certificate (a copied disk, a restored virtual machine) would take the connection from each
// other for ever, and each time what the other runs would count as lost. An agent that only lost its connection has the
// spool folder of before; one whose machine was restarted has another, and its old connection falls silent.
static bool is_second_agent(const struct agent_conn *old, const struct message_hello *h) {
    struct controller *c = old->controller;
    struct node_view v;
    int64_t silent_ms = clock_mono_ms() - old->heard_ms;
    return core_node(c->core, old->node, &v) && !str_empty(h->node->spool_id) &&
           !streq(v.node->spool_id, h->node->spool_id) &&
           silent_ms < (int64_t)heartbeat_s(c) * 1000 * HEARTBEATS_TRUSTED;
}

static void refuse_second_agent(struct agent_conn *a, const struct agent_conn *old) {
    struct controller *c = a->controller;
    c->second_agent_ms = clock_mono_ms();
    snprintf(c->second_agent, sizeof c->second_agent,
             "two agents say that they are node %s: the one at %s is connected, the one at %s is refused. "
             "Stop one of "
             "the two, or join its machine again under another name",
             old->node, old->address, a->address);
    refuse(a, "another agent is connected as this node; stop one of the two, or join this machine under "
              "another name");
}

const char *agents_problem(const struct controller *c) {
    return *c->second_agent && clock_mono_ms() - c->second_agent_ms < SECOND_AGENT_SAID_MS ? c->second_agent
                                                                                           : NULL;
}

static void on_hello(struct agent_conn *a, const struct message_hello *h) {
    struct controller *c = a->controller;
    struct error e = {0};
    if (!h->node || str_empty(h->node->name)) {
        refuse(a, "the hello names no node");
        return;
    }
    if (!may_be(a, h->node->name)) {
        refuse(a, "the certificate is not valid for this node; join again with a new token");
        return;
    }
    if (a->node && !streq(a->node, h->node->name)) {
        refuse(a, "this connection said hello under another name; a connection is for one node");
        return;
    }
    struct agent_conn *old = strmap_get(&c->agents, h->node->name);
    if (old && old != a) {
        if (a->peer.kind == NET_PEER_UNIX && old->peer.kind != NET_PEER_UNIX) {
            refuse(a, "a node of this name is connected from another machine");
            return;
        }
        if (is_second_agent(old, h)) {
            refuse_second_agent(a, old);
            return;
        }
        // The old connection is half open: nothing that was asked for through it will be answered.
        controller_streams_node_gone(&c->streams, old->node);
        old->node = NULL;
        net_ws_abort(old->ws);
    }
    // It has heard of a leader that this database does not know: the database is an older copy, or this is not the
    // leader any more. Which of the two, the store finds out.
    if (c->shared && h->term > c->term + 1) {
        store_raise_term(c->store, h->term);
        refuse(a, "this node has heard of a later leader; try again");
        return;
    }
    a->terms = h->term;
    h->node->address = a->address;
    const char *node = core_intern(c->core, h->node->name);
    a->node = node;
    a->level = h->level ? h->level : FEATURE_LEVEL_FIRST;
    strmap_put(&c->agents, node, a);
    welcome(a);  // before what reconciliation sends
    if (core_agent_hello(c->core, h, a->peer.kind == NET_PEER_TLS ? a->peer.cert_sha256 : NULL,
                         controller_now_ms(), &e) < 0) {
        strmap_remove(&c->agents, node);
        a->node = NULL;
        refuse(a, e.text);
        return;
    }
    a->hello_seq = core_seq(c->core);
    net_ws_limit(a->ws, AGENT_MESSAGE_BYTES_MAX);
    pipeline_heard(c->pipeline, node);
    wait_for_commit(a);
    log_info("node %s is here (%s, %u CPUs, %u GPUs, %u attempts known)", node, a->address, h->node->cpus,
             h->node->gpus.len, h->attempts.len);
}

static void sum_parts(struct live_usage *u) {
    u->usage = (struct usage){0};
    u->memory_now_bytes = u->processes = 0;
    u->preparing = false;
    u->preparing_ms = 0;
    u->progress_known = false;
    u->progress_milli = 0;
    u->progress_text = "";
    for (uint32_t i = 0; i < u->parts.len; i++) {
        usage_add(&u->usage, &u->parts.at[i].usage);
        u->memory_now_bytes += u->parts.at[i].memory_now_bytes;
        u->processes += u->parts.at[i].processes;
        const struct live_part *p = &u->parts.at[i];
        u->preparing = u->preparing || p->preparing;
        if (p->preparing && p->preparing_ms && (!u->preparing_ms || p->preparing_ms < u->preparing_ms))
            u->preparing_ms = p->preparing_ms;
        if (p->progress_known && !u->progress_known) {
            u->progress_known = true;
            u->progress_milli = p->progress_milli;
            u->progress_text = p->progress_text;
        }
    }
}

// What is known of the attempt on this node. NULL: it does not run there; a node speaks for nothing else.
static struct live_part *part_of(struct agent_conn *a, uint64_t id, uint32_t attempt, struct live_usage **out) {
    struct controller *c = a->controller;
    struct live_usage *u = map_get(&c->live, id);
    if (!core_runs_on(c->core, id, attempt, a->node))
        return NULL;
    if (!u) {
        u = xcalloc(1, sizeof *u);
        map_put(&c->live, id, u);
    }
    if (u->attempt != attempt)
        vec_clear(&u->parts);
    uint32_t at = 0;
    while (at < u->parts.len && !streq(u->parts.at[at].node, a->node))
        at++;
    if (at == u->parts.len)
        vec_push(&u->parts, (struct live_part){.node = a->node});
    u->attempt = attempt;
    *out = u;
    return &u->parts.at[at];
}

static void on_usage(struct agent_conn *a, const struct message_usage *m) {
    struct live_usage *u;
    struct live_part *p = m->usage ? part_of(a, m->id, m->attempt, &u) : NULL;
    if (!p)
        return;
    p->usage = *m->usage;
    p->memory_now_bytes = m->memory_now_bytes;
    p->processes = m->processes;
    p->preparing = m->preparing;
    p->progress_known = m->progress_known && m->progress_milli <= 1000;
    p->progress_milli = p->progress_known ? m->progress_milli : 0;
    str_printable(p->progress_known && m->progress_text ? m->progress_text : "", p->progress_text,
                  sizeof p->progress_text);
    sum_parts(u);
    telemetry_job_usage(a->controller, m->id, u);
}

static void on_image(struct agent_conn *a, const struct message_image *m) {
    struct live_usage *u;
    struct live_part *p = part_of(a, m->id, m->attempt, &u);
    if (!p)
        return;
    p->preparing = m->preparing;
    p->preparing_ms = m->since_ms;
    sum_parts(u);
}

struct live_usage *controller_live_usage_free(struct live_usage *u) {
    if (u)
        vec_done(&u->parts);
    free(u);
    return NULL;
}

static const char *sickness(const struct node *n, uint32_t i) {
    return i < n->gpus.len && n->gpus.at[i].unhealthy ? n->gpus.at[i].unhealthy : "";
}

static void log_health(struct controller *c, const struct node *n) {
    struct node_view v;
    char shown[160];
    if (!core_node(c->core, n->name, &v))
        return;
    for (uint32_t i = 0; i < n->gpus.len; i++) {
        const char *now = sickness(n, i);
        if (streq(now, sickness(v.node, i)))
            continue;
        if (*now)
            log_warn("GPU %u of node %s is out of use: %s", i, n->name,
                     str_printable(now, shown, sizeof shown));
        else
            log_info("GPU %u of node %s is in use again", i, n->name);
    }
}

static void on_attempt(struct agent_conn *a, const struct message_attempt *m) {
    if (core_agent_attempt(a->controller->core, a->node, m, controller_now_ms()))
        log_warn("node %s runs attempt %u of job %llu, which this state does not know: it was restored from "
                 "an older copy",
                 a->node, m->attempt, (unsigned long long)m->id);
}

static void on_agent_message(struct agent_conn *a, const struct message *m) {
    struct controller *c = a->controller;
    if (m->type == MESSAGE_HELLO) {
        on_hello(a, m->body);
        return;
    }
    if (!a->node) {
        refuse(a, "the first message must be a hello");
        return;
    }
    pipeline_heard(c->pipeline, a->node);
    switch (m->type) {
    case MESSAGE_STARTED: core_agent_started(c->core, a->node, m->body, controller_now_ms()); break;
    case MESSAGE_ENDED: core_agent_ended(c->core, a->node, m->body, controller_now_ms()); break;
    case MESSAGE_HEALTH: core_agent_health(c->core, a->node, m->body, controller_now_ms()); break;
    case MESSAGE_NODE_IMAGES: core_agent_images(c->core, a->node, m->body, controller_now_ms()); break;
    case MESSAGE_ATTEMPT: on_attempt(a, m->body); break;
    case MESSAGE_STEP_KNOWN:
        core_agent_step_known(a->controller->core, a->node, m->body, controller_now_ms());
        break;
    case MESSAGE_STEP_LISTENS: core_agent_step_listens(c->core, a->node, m->body); break;
    case MESSAGE_STEP_END: {
        const struct step_end *end = m->body;
        core_agent_step_ended(c->core, a->node, end, controller_now_ms());
        controller_step_sessions_step_ended(c, end->id, end->step, a->node);
        break;
    }
    case MESSAGE_USAGE: on_usage(a, m->body); break;
    case MESSAGE_IMAGE: on_image(a, m->body); break;
    case MESSAGE_NODE_SEEN: controller_node_seen(c, a->node, m->body); break;
    case MESSAGE_STREAM_DATA:
    case MESSAGE_STREAM_END:
    case MESSAGE_STREAM_CREDIT: controller_stream_message(&c->streams, a->node, m); break;
    case MESSAGE_FILE_RESULT: controller_stream_result(&c->streams, a->node, m->body); break;
    case MESSAGE_NODE_CHANGED: {
        struct node *n = m->body;
        if (streq(n->name, a->node)) {
            n->address = a->address;
            log_health(c, n);
            core_agent_node_changed(c->core, n, controller_now_ms());
        }
        break;
    }
    case MESSAGE_TELEMETRY: telemetry_add(c, a->node, m->body); break;
    default: break;  // PONG: being heard was all
    }
}

static void on_message(struct net_ws *ws, enum ws_opcode type, const char *data, size_t len, void *user) {
    struct agent_conn *a = user;
    cleanup_arena struct arena arena = {0};
    struct message m;
    int r = type == WS_BINARY ? message_decode_views(data, len, &arena, &m) : -EBADMSG;
    a->heard_ms = clock_mono_ms();
    if (r == -EPROTONOSUPPORT && a->node) {
        pipeline_heard(a->controller->pipeline, a->node);
        if (message_skip(&a->skips, m.type))
            log_warn("node %s: messages of type %u are skipped; its agent is of a later release than this controller",
                     a->node, m.type);
        return;
    }
    if (r < 0 || !message_info(m.type)->from_agent) {
        refuse(a, "the agent sent a message that cannot be read");
        return;
    }
    on_agent_message(a, &m);
}

static void on_close(struct net_ws *ws, int status, const char *reason, void *user) {
    struct agent_conn *a = user;
    struct controller *c = a->controller;
    if (a->node && strmap_get(&c->agents, a->node) == a) {
        log_info("node %s is not connected any more (%s)", a->node, *reason ? reason : "closed");
        strmap_remove(&c->agents, a->node);
        pipeline_send_waiting(c->pipeline, a->node, true);
        controller_streams_node_gone(&c->streams, a->node);
        if (!c->stopping)
            core_agent_gone(c->core, a->node, controller_now_ms());
    }
    free(a);
}

static void on_drain(struct net_ws *ws, void *user) {
    struct agent_conn *a = user;
    if (!a->node)
        return;
    pipeline_send_waiting(a->controller->pipeline, a->node, false);
    if (a->controller->streams.held_inputs)
        controller_streams_node_drained(&a->controller->streams, a->node);
}

void agents_upgrade(struct controller *c, struct net_request *req) {
    static const struct net_ws_callbacks callbacks = {
        .on_message = on_message, .on_drain = on_drain, .on_close = on_close};
    struct net_peer peer = *req->peer;
    if (peer.kind == NET_PEER_UNIX ? peer.uid != 0 && peer.uid != c->uid : !peer.has_cert) {
        api_error(req, 403, "EPERM",
                  "only an agent with a certificate of this cluster, or one started by the controller's own "
                  "user, may do this");
        return;
    }
    struct agent_conn *a = xcalloc(1, sizeof *a);
    *a = (struct agent_conn){.controller = c, .peer = peer};
    // The port changes with every connection and says nothing.
    snprintf(a->address, sizeof a->address, "%s", peer.address);
    char *colon = strrchr(a->address, ':');
    if (colon)
        *colon = 0;
    a->ws = net_upgrade_ws(req, NULL, &callbacks, a);
    if (a->ws)
        net_ws_limit(a->ws, HELLO_BYTES_MAX);
    else
        free(a);
}

void agents_dismiss(struct controller *c) {
    size_t it = 0;
    const char *node;
    void *v;
    while (strmap_next(&c->agents, &it, &node, &v)) {
        struct agent_conn *a = v;
        if (a->peer.kind == NET_PEER_TLS && !may_be(a, node)) {
            log_warn("node %s: its certificate is not valid any more; it is disconnected", node);
            net_ws_abort(a->ws);
        }
    }
}

// One direction of its link may still work: without this it would stay down, connected.
void controller_hook_node_lost(void *ctx, const char *node) {
    struct controller *c = ctx;
    struct agent_conn *a = strmap_get(&c->agents, node);
    if (a)
        net_ws_abort(a->ws);
}

// Nothing leaves from a controller whose lease has ended: another may lead by now.
static int send_bytes(struct agent_conn *a, const void *data, size_t len) {
    struct controller *c = a->controller;
    if (!controller_leads(c))
        controller_lease_look(c);
    if (!c->term || !a->terms)
        return net_ws_send(a->ws, WS_BINARY, data, len);
    cleanup_buf struct buf b = {0};
    message_put_term(&b, c->term);
    buf_add(&b, data, len);
    int r = net_ws_send(a->ws, WS_BINARY, b.data, b.len);
    explicit_bzero(b.data, b.len);  // it may hold secrets
    return r;
}

void controller_hook_send(void *ctx, const char *node, const void *data, size_t len) {
    struct controller *c = ctx;
    struct agent_conn *a = strmap_get(&c->agents, node);
    if (a && send_bytes(a, data, len) < 0)
        log_debug("message to %s not sent", node);
}

bool controller_hook_has_room(void *ctx, const char *node) {
    return agents_backlog(ctx, node) < LAUNCH_BACKLOG_BYTES;
}

bool agents_send(struct controller *c, const char *node, enum message_type type, void *body) {
    cleanup_buf struct buf b = {0};
    struct agent_conn *a = node ? strmap_get(&c->agents, node) : NULL;
    if (!a)
        return false;
    message_encode(&(struct message){type, body}, &b);
    return send_bytes(a, b.data, b.len) >= 0;
}

size_t agents_backlog(const struct controller *c, const char *node) {
    const struct agent_conn *a = strmap_get(&c->agents, node);
    return a ? net_ws_pending(a->ws) : 0;
}

static bool send_to(void *ctx, const char *node, enum message_type type, void *body) {
    return agents_send(ctx, node, type, body);
}

static bool is_connected(void *ctx, const char *node) {
    const struct controller *c = ctx;
    return strmap_get(&c->agents, node) != NULL;
}

static bool is_ready(void *ctx, const char *node) {
    const struct controller *c = ctx;
    const struct agent_conn *a = strmap_get(&c->agents, node);
    return a && a->ready;
}

static bool is_given_up(void *ctx, const char *node) {
    const struct controller *c = ctx;
    struct node_view v;
    return !core_node(c->core, node, &v) || v.state == NODE_DOWN;
}

static size_t backlog_of(void *ctx, const char *node) {
    return agents_backlog(ctx, node);
}

static int64_t now_of(void *ctx) {
    return controller_now_ms();
}

static uint32_t level_of(void *ctx, const char *node) {
    const struct controller *c = ctx;
    const struct agent_conn *a = strmap_get(&c->agents, node);
    return a ? a->level : 0;
}

const struct stream_host agents_stream_host = {send_to,    is_connected, is_ready, is_given_up,
                                               backlog_of, now_of,       level_of};

void agents_ping(struct controller *c) {
    struct journal_position at;
    size_t it = 0;
    const char *node;
    void *agent;
    while (strmap_next(&c->agents, &it, &node, &agent)) {
        uint64_t after = ((const struct agent_conn *)agent)->hello_seq;
        struct message_ping m = {.at_ms = controller_now_ms(),
                                 .at = pipeline_position(c->pipeline, after, &at) ? &at : NULL};
        agents_send(c, node, MESSAGE_PING, &m);
    }
}

void agents_tick(struct controller *c) {
    int64_t mono = clock_mono_ms();
    if (mono - c->last_ping_ms < (int64_t)heartbeat_s(c) * 1000)
        return;
    c->last_ping_ms = mono;
    agents_ping(c);
}
