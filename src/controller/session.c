// Owns the conversations with a job as a whole over a WebSocket: run submits and attaches, attach joins in, and logs
// are followed. They end with the job's last state when all output was sent. follow.h says what messages look like.
// A client that comes back sends {"resume":true,"from":[…]} first, with the positions it has.
#include "session.h"

#include <errno.h>
#include <string.h>

#include "base/text.h"
#include "job_watch.h"
#include "logs.h"

enum output_session_kind { SESSION_RUN, SESSION_ATTACH, SESSION_LOGS };

struct session {
    struct controller *controller;
    enum output_session_kind kind;
    struct net_ws *ws;
    struct actor actor;
    char user[USER_NAME_MAX];
    uint64_t job;
    struct waiter *waiter;
    struct job_watch *watch;
    bool placed;  // the client keeps positions
    bool resume;  // it was here before and goes on
    bool begun;   // first message seen, where there is one
    bool closed;
    struct session **pending;  // set while a submit waits for its commit
    struct arena arena;        // of the positions
};

static void say(struct session *s, const struct schema *schema, const void *value) {
    if (!s->closed)
        api_session_send(s->ws, schema, value);
}

static void session_fail(struct session *s, const struct error *e) {
    if (s->closed)
        return;
    api_session_error(s->ws, e);
    net_ws_close(s->ws, WS_NORMAL, "");
}

// --- what is shown ---

static void say_to(void *ctx, const struct schema *schema, const void *value) {
    say(ctx, schema, value);
}

static ssize_t send_output(void *ctx, const char *data, size_t len) {
    struct session *s = ctx;
    return net_ws_send(s->ws, WS_BINARY, data, len);
}

static void pause_input(void *ctx, bool on) {
    struct session *s = ctx;
    net_ws_pause(s->ws, on);
}

static void on_failed(void *ctx, const struct error *e) {
    session_fail(ctx, e);
}

static void on_complete(void *ctx, const char *final) {
    struct session *s = ctx;
    if (s->closed)
        return;
    net_ws_send(s->ws, WS_TEXT, final, strlen(final));
    net_ws_close(s->ws, WS_NORMAL, "");
}

static void on_nodes(void *ctx) {
    const struct session *s = ctx;
    if (!s->closed)
        net_ws_close(s->ws, WS_GOING_AWAY, "the job has other nodes; connect again");
}

static void new_watch(struct session *s, const struct query_logs *q) {
    static const struct job_watch_client client = {say_to,    send_output, pause_input,
                                                   on_failed, on_complete, on_nodes};
    struct controller *c = s->controller;
    struct job_watch_log log = {0};
    if (q)
        log = (struct job_watch_log){.once = schema_given(&query_logs_schema, q, &q->follow) && !q->follow,
                                     .error = q->source == QUERY_ERROR,
                                     .times = q->times,
                                     .node = q->node,
                                     .attempt = q->attempt,
                                     .from = q->from,
                                     .file = q->file,
                                     .tail = controller_logs_tail(q)};
    s->watch =
        controller_job_watch_new(&(struct job_watch_options){.source = {c->core, c->pipeline, c->store},
                                                             .streams = &c->streams,
                                                             .actor = &s->actor,
                                                             .client = &client,
                                                             .ctx = s,
                                                             .placed = s->placed,
                                                             .resume = s->resume,
                                                             .log = q ? &log : NULL});
    controller_job_watch_set(s->watch, s->job);
}

void controller_sessions_node_up(struct controller *c, const char *node) {
    for (uint32_t k = c->sessions.len; k-- > 0;)
        if (k < c->sessions.len)
            controller_job_watch_node_up(c->sessions.at[k]->watch, node);
}

void controller_sessions_tick(struct controller *c) {
    for (uint32_t k = c->sessions.len; k-- > 0;)
        if (k < c->sessions.len && !c->sessions.at[k]->pending)
            controller_job_watch_tick(c->sessions.at[k]->watch);
}

// --- the job ---

static void on_job_changed(void *arg, uint64_t id) {
    controller_job_watch_changed(((struct session *)arg)->watch);
}

static void watch(struct session *s, uint64_t id) {
    s->job = id;
    controller_job_watch_set(s->watch, id);
    s->waiter = controller_watch_job(s->controller, id, on_job_changed, s);
}

struct pending_submit {
    struct session *session;  // NULL: it has gone
    uint64_t id;
};

static void submit_committed(void *arg) {
    struct pending_submit *p = arg;
    struct session *s = p->session;
    if (s) {
        struct job_view v;
        s->pending = NULL;
        say(s, &answer_session_job_schema, &(struct answer_session_job){p->id, false});
        if (!core_view(s->controller->core, p->id, &v) || v.start_ms)
            on_job_changed(s, p->id);  // a client that sent its request again: nothing else may change
    }
    free(p);
}

static void begin_run(struct session *s, const struct request_submit *q) {
    struct api_call call = {.controller = s->controller, .actor = s->actor};
    struct error e = {0};
    struct command_result job = {0};
    int r = q->spec->attach ? api_check_storage(s->controller, &e)
                            : error_set(&e, EINVAL, "field \"attach\" of the spec must be true here");
    if (r == 0)
        r = api_submit_one(&call, q, &job, &e);
    arena_done(&call.arena);
    if (r < 0) {
        session_fail(s, &e);
        return;
    }
    struct pending_submit *p = xcalloc(1, sizeof *p);
    *p = (struct pending_submit){.session = s, .id = job.id};
    s->pending = &p->session;
    pipeline_when_committed(s->controller->pipeline, submit_committed, p);
    watch(s, job.id);
}

static void begin_attach(struct session *s, const struct job_watch_positions *has) {
    watch(s, s->job);
    controller_job_watch_begin(s->watch, s->resume, has);
}

// --- messages ---

static void command(struct session *s, const struct request_session *q) {
    struct error ignored = {0};
    struct command_cancel cancel = {.id = s->job, .signal = q->signal};
    struct command command = {COMMAND_CANCEL, &cancel};
    if (s->job && s->kind != SESSION_LOGS && (q->signal || q->cancel))
        core_command(s->controller->core, &s->actor, NULL, &command, controller_now_ms(), NULL, &ignored);
}

static void first_message(struct session *s, const char *data, size_t len) {
    cleanup_arena struct arena a = {0};
    struct request_submit submit;
    struct request_attach attach;
    struct error e = {0};
    bool run = s->kind == SESSION_RUN;
    int r = run ? api_session_read(data, len, &request_submit_schema, &a, &submit, &e)
                : api_session_read(data, len, &request_attach_schema, &s->arena, &attach, &e);
    if (r < 0) {
        session_fail(s, &e);
    } else if (run) {
        begin_run(s, &submit);
    } else {
        s->resume = attach.resume;
        begin_attach(s, &(struct job_watch_positions){.from = attach.from.at,
                                                      .count = attach.from.len,
                                                      .attempt = attach.attempt,
                                                      .epoch = attach.epoch,
                                                      .nodes = attach.nodes.at,
                                                      .node_count = attach.nodes.len});
    }
}

static void on_text(struct session *s, const char *data, size_t len) {
    cleanup_arena struct arena a = {0};
    struct request_session q;
    struct error e = {0};
    if (!s->begun) {
        s->begun = true;
        first_message(s, data, len);
        return;
    }
    if (api_session_read(data, len, &request_session_schema, &a, &q, &e) < 0) {
        session_fail(s, &e);
        return;
    }
    if (q.ping)
        say(s, &answer_step_pong_schema, &(struct answer_step_pong){true});
    if (q.resize.len == 2)
        controller_follow_resize(controller_job_watch_follow(s->watch), q.resize.at[0], q.resize.at[1]);
    controller_follow_acknowledge(controller_job_watch_follow(s->watch), q.ack.at, q.ack.len);
    command(s, &q);
}

static void on_message(struct net_ws *ws, enum ws_opcode type, const char *data, size_t len, void *user) {
    struct session *s = user;
    struct error e = {0};
    if (type == WS_TEXT)
        on_text(s, data, len);
    else if (s->kind == SESSION_LOGS)
        session_fail(s, (error_set(&e, EINVAL, "logs take no input"), &e));
    else if (controller_follow_binary(controller_job_watch_follow(s->watch), data, len, &e) < 0)
        session_fail(s, &e);
}

static void on_drain(struct net_ws *ws, void *user) {
    controller_follow_drained(controller_job_watch_follow(((struct session *)user)->watch));
}

static void on_close(struct net_ws *ws, int status, const char *reason, void *user) {
    struct session *s = user;
    struct controller *c = s->controller;
    s->closed = true;
    s->watch = controller_job_watch_free(s->watch);
    for (uint32_t i = 0; i < c->sessions.len; i++)
        if (c->sessions.at[i] == s) {
            vec_remove_swap(&c->sessions, i);
            break;
        }
    if (s->waiter)
        controller_unwatch_job(c, s->waiter);
    if (s->pending)
        *s->pending = NULL;
    arena_done(&s->arena);
    free(s);
}

static struct session *open_session(struct api_call *call, enum output_session_kind kind, bool placed,
                                    bool resume, const struct query_logs *logs) {
    static const struct net_ws_callbacks callbacks = {
        .on_message = on_message, .on_drain = on_drain, .on_close = on_close};
    struct session *s = xcalloc(1, sizeof *s);
    *s = (struct session){.controller = call->controller,
                          .kind = kind,
                          .actor = call->actor,
                          .job = call->job ? api_first_worker(call->controller, call->job) : 0,
                          .placed = placed,
                          .resume = resume};
    snprintf(s->user, sizeof s->user, "%s", call->actor.user);
    s->actor.user = s->user;
    s->ws = net_upgrade_ws(call->req, NULL, &callbacks, s);
    if (!s->ws) {
        free(s);
        return NULL;
    }
    vec_push(&s->controller->sessions, s);
    new_watch(s, logs);
    return s;
}

void api_run(struct api_call *call) {
    open_session(call, SESSION_RUN, ((const struct query_attach *)call->query)->placed, false, NULL);
}

// A client with positions sends them first.
void api_attach(struct api_call *call) {
    const struct query_attach *q = call->query;
    struct session *s = open_session(call, SESSION_ATTACH, q->placed, q->resume, NULL);
    if (!s || s->placed)
        return;
    s->begun = true;
    begin_attach(s, &(struct job_watch_positions){0});
}

void controller_session_follow_log(struct api_call *call) {
    const struct query_logs *q = call->query;
    struct session *s = open_session(call, SESSION_LOGS, true, q->from > 0, q);
    if (!s)
        return;
    s->begun = true;
    begin_attach(s, &(struct job_watch_positions){0});
}
