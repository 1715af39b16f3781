// Owns the conversations with a job as a whole over a WebSocket: run submits and attaches, attach joins in, and logs
// are followed. They end with the job's last state when all output was sent. follow.h says what messages look like.
// A client that comes back sends {"resume":true,"from":[…]} first, with the positions it has.
#include "session.h"

#include <errno.h>
#include <string.h>

#include "base/text.h"
#include "follow.h"
#include "logs.h"
#include "step_watch.h"

enum output_session_kind { SESSION_RUN, SESSION_ATTACH, SESSION_LOGS };

struct session {
    struct controller *controller;
    enum output_session_kind kind;
    struct net_ws *ws;
    struct actor actor;
    char user[USER_NAME_MAX];
    uint64_t job;
    uint32_t attempt;  // whose output is shown; 0: none yet
    struct waiter *waiter;
    struct controller_follow *follow;
    bool placed;  // the client keeps positions
    bool begun;   // first message seen, where there is one
    bool resume;  // it was here before and goes on
    bool closed;
    char *final;               // last message, sent when the output is complete
    struct session **pending;  // set while a submit waits for its commit
    struct query_logs logs;
    struct arena arena;  // of the positions
    const uint64_t *from;
    uint32_t from_count;
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

// --- the end ---

// Logs of a job as far as they are now.
static bool is_once(const struct session *s) {
    return s->kind == SESSION_LOGS && schema_given(&query_logs_schema, &s->logs, &s->logs.follow) &&
           !s->logs.follow;
}

static void write_final(struct session *s) {
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf b = {0};
    struct job_record r;
    bool live;
    if (s->final || api_record(s->controller, s->job, &a, &r, &live) < 0)
        return;
    if (live &&
        !(is_once(s) && controller_follow_is_open(s->follow) && controller_follow_complete(s->follow, true)))
        return;
    schema_write_json(&answer_session_end_schema,
                      &(struct answer_session_end){s->job, r.state, r.exit_code, r.exit_signal, r.reason},
                      &(struct json_writer){.out = &b});
    s->final = buf_take(&b);
}

static void finish_if_complete(struct session *s) {
    write_final(s);
    if (!s->final || s->closed ||
        (controller_follow_is_open(s->follow) && !controller_follow_complete(s->follow, true)))
        return;
    net_ws_send(s->ws, WS_TEXT, s->final, strlen(s->final));
    net_ws_close(s->ws, WS_NORMAL, "");
}

// --- streams ---

static bool open_stream(void *ctx, uint32_t i, uint64_t stream, uint64_t at, uint64_t file) {
    struct session *s = ctx;
    cleanup_arena struct arena a = {0};
    struct job_record r;
    struct error ignored = {0};
    bool live, logs = s->kind == SESSION_LOGS;
    uint32_t node = logs ? s->logs.node : i / 2;
    if (!controller_logs_find_part(s->controller, s->job, node, s->attempt, &a, &r, &live, &ignored))
        return false;
    struct message_log_read m =
        controller_logs_request(&r, node, logs ? s->logs.source == QUERY_ERROR : i % 2 != 0, !is_once(s),
                                logs && !at ? controller_logs_tail(&s->logs) : -1);
    m.id = controller_agent_job(s->controller->core, s->controller->store, s->job, s->attempt);
    m.stream = stream;
    m.credit = controller_stream_window(&s->controller->streams, stream);
    m.offset = at;
    m.file = file;
    m.attached = !logs;
    m.times = logs && s->logs.times;
    m.resumed = at > 0;
    return agents_send(s->controller, r.parts.at[node].node, MESSAGE_LOG_READ, &m);
}

static void stream_over(void *ctx) {
    finish_if_complete(ctx);
}

static void stream_failed(void *ctx, const struct error *e) {
    session_fail(ctx, e);
}

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

static void new_follow(struct session *s) {
    static const struct follow_client client = {open_stream, NULL,        stream_over, stream_failed,
                                                say_to,      send_output, pause_input};
    controller_follow_free(s->follow);
    s->follow = controller_follow_new(&(struct follow_options){.streams = &s->controller->streams,
                                                               .actor = &s->actor,
                                                               .client = &client,
                                                               .ctx = s,
                                                               .placed = s->placed,
                                                               .resumed = s->resume});
}

static void tell_nodes(struct session *s, uint32_t count) {
    if (count > 1 || s->placed)
        say(s, &answer_session_nodes_schema, &(struct answer_session_nodes){count, s->attempt});
}

// All nodes' output and errors, behind the launch.
static void open_attached(struct session *s, const struct job_record *r) {
    struct follow_source *sources = arena_alloc(&s->arena, 2 * r->parts.len * sizeof *sources);
    struct error e = {0};
    for (uint32_t i = 0; i < 2 * r->parts.len; i++)
        sources[i] = (struct follow_source){.node = core_intern(s->controller->core, r->parts.at[i / 2].node),
                                            .node_index = i / 2,
                                            .fd = 1 + i % 2,
                                            .input = i % 2 == 0};
    if (controller_follow_positions(s->from, s->from_count, sources, 2 * r->parts.len, &e) < 0) {
        session_fail(s, &e);
        return;
    }
    tell_nodes(s, r->parts.len);
    controller_follow_open(s->follow, sources, 2 * r->parts.len);
}

static void open_log(struct session *s, const struct job_record *r) {
    struct follow_source source = {.node = core_intern(s->controller->core, r->parts.at[s->logs.node].node),
                                   .fd = 1,
                                   .at = s->logs.from,
                                   .file = s->logs.file,
                                   .times = s->logs.times};
    controller_follow_open(s->follow, &source, 1);
}

// Opens the streams of the newest attempt, or of the one that was asked for.
static void attach_streams(struct session *s) {
    cleanup_arena struct arena a = {0};
    struct job_record r;
    struct error e = {0};
    bool live, logs = s->kind == SESSION_LOGS;
    if (controller_follow_is_open(s->follow) || s->closed)
        return;
    if (!controller_logs_find_part(s->controller, s->job, logs ? s->logs.node : 0, logs ? s->logs.attempt : 0,
                                   &a, &r, &live, &e)) {
        if (logs && (e.code != EBUSY || is_once(s)))
            session_fail(s, &e);
        return;
    }
    s->attempt = r.attempt;
    if (logs)
        open_log(s, &r);
    else
        open_attached(s, &r);
}

void controller_sessions_node_up(struct controller *c, const char *node) {
    for (uint32_t k = c->sessions.len; k-- > 0;)
        if (k < c->sessions.len)
            controller_follow_node_up(c->sessions.at[k]->follow, node);
}

// How a job ended may not be readable at the moment when it does: a database may be away.
static bool has_ended(const struct session *s) {
    struct job_view v;
    return s->final || (s->job && !s->pending && !core_view(s->controller->core, s->job, &v));
}

void controller_sessions_tick(struct controller *c) {
    for (uint32_t k = c->sessions.len; k-- > 0;) {
        if (k >= c->sessions.len || !has_ended(c->sessions.at[k]))
            continue;
        // Where its output is may not have been readable either.
        if (c->sessions.at[k]->kind != SESSION_LOGS)
            attach_streams(c->sessions.at[k]);
        finish_if_complete(c->sessions.at[k]);
    }
}

// --- the job ---

static void tell_state(struct session *s, const struct job_view *v) {
    say(s, &answer_session_state_schema, &(struct answer_session_state){v->state});
}

// A job that runs again prints from the beginning; a log file is the same one.
static void next_attempt(struct session *s) {
    if (s->kind == SESSION_LOGS || !controller_follow_is_open(s->follow))
        return;
    s->from_count = 0;
    s->resume = false;
    new_follow(s);
}

static void on_job_changed(void *arg, uint64_t id) {
    struct session *s = arg;
    struct job_view v;
    if (!core_view(s->controller->core, id, &v)) {
        finish_if_complete(s);
        return;
    }
    if (v.start_ms && v.attempt != s->attempt && v.state != JOB_PENDING)
        next_attempt(s);
    if (v.start_ms)
        attach_streams(s);
    tell_state(s, &v);
}

static void watch(struct session *s, uint64_t id) {
    s->job = id;
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

// Whoever comes back gets the rest of the output, also of a job that has ended meanwhile.
static void begin_attach(struct session *s) {
    struct job_view v;
    bool live = core_view(s->controller->core, s->job, &v);
    watch(s, s->job);
    if (live ? v.start_ms != 0 || is_once(s) : s->resume || s->kind == SESSION_LOGS)
        attach_streams(s);
    if (live)
        tell_state(s, &v);
    else
        finish_if_complete(s);
    if (!live && !s->final && s->kind != SESSION_LOGS) {  // neither live nor in history; logs have said so already
        struct error e = {0};
        error_set(&e, ENOENT, "there is no job %llu", (unsigned long long)s->job);
        session_fail(s, &e);
    }
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
        s->from = attach.from.at;
        s->from_count = attach.from.len;
        begin_attach(s);
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
        controller_follow_resize(s->follow, q.resize.at[0], q.resize.at[1]);
    controller_follow_acknowledge(s->follow, q.ack.at, q.ack.len);
    command(s, &q);
}

static void on_message(struct net_ws *ws, enum ws_opcode type, const char *data, size_t len, void *user) {
    struct session *s = user;
    struct error e = {0};
    if (type == WS_TEXT)
        on_text(s, data, len);
    else if (s->kind == SESSION_LOGS)
        session_fail(s, (error_set(&e, EINVAL, "logs take no input"), &e));
    else if (controller_follow_binary(s->follow, data, len, &e) < 0)
        session_fail(s, &e);
}

static void on_drain(struct net_ws *ws, void *user) {
    controller_follow_drained(((struct session *)user)->follow);
}

static void on_close(struct net_ws *ws, int status, const char *reason, void *user) {
    struct session *s = user;
    struct controller *c = s->controller;
    s->closed = true;
    s->follow = controller_follow_free(s->follow);
    for (uint32_t i = 0; i < c->sessions.len; i++)
        if (c->sessions.at[i] == s) {
            vec_remove_swap(&c->sessions, i);
            break;
        }
    if (s->waiter)
        controller_unwatch_job(c, s->waiter);
    if (s->pending)
        *s->pending = NULL;
    free(s->final);
    arena_done(&s->arena);
    free(s);
}

static struct session *open_session(struct api_call *call, enum output_session_kind kind, bool placed, bool resume) {
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
    new_follow(s);
    return s;
}

void api_run(struct api_call *call) {
    open_session(call, SESSION_RUN, ((const struct query_attach *)call->query)->placed, false);
}

// A client with positions sends them first.
void api_attach(struct api_call *call) {
    const struct query_attach *q = call->query;
    struct session *s = open_session(call, SESSION_ATTACH, q->placed, q->resume);
    if (!s || s->placed)
        return;
    s->begun = true;
    begin_attach(s);
}

void controller_session_follow_log(struct api_call *call) {
    struct query_logs q = *(const struct query_logs *)call->query;
    struct session *s = open_session(call, SESSION_LOGS, true, q.from > 0);
    if (!s)
        return;
    s->logs = q;
    s->begun = true;
    begin_attach(s);
}
