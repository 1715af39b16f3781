// Owns the conversations with a job: its output over HTTP (logs), and WebSocket sessions that run,
// attach to, or execute inside a job. Channel bytes of binary messages: 0 input, 1 output, 2 error,
// of further nodes 3 output and 4 error with the node's place in four bytes, lowest first; text
// messages are JSON, see session_messages.h.
#include <errno.h>
#include <string.h>

#include "base/text.h"
#include "api.h"
#include "attached.h"

struct message_log_read controller_session_log_read(struct job_record *r, uint32_t index,
                                                    enum log_source source, bool follow, int64_t tail) {
    return (struct message_log_read){.id = r->id,
                                     .attempt = r->attempt,
                                     .spec = r->spec,
                                     .part = &r->parts.at[index],
                                     .array_id = r->job        ? r->job
                                                 : r->is_array ? r->array_id
                                                               : 0,
                                     .array_index = r->job ? r->worker : r->array_index,
                                     .source = source,
                                     .follow = follow,
                                     .tail_lines = tail,
                                     .credit = STREAM_WINDOW_BYTES,
                                     .node_index = index};
}

// --- logs ---

struct placing {
    uint32_t attempt;
    struct arena *arena;
    struct job_record *record;
    bool found;
};

static int take_placing(void *ctx, const struct store_event *e) {
    struct placing *p = ctx;
    struct event event;
    if (e->type != EVENT_JOB_PLACED || event_decode(EVENT_JOB_PLACED, e->data, e->len, p->arena, &event) < 0)
        return 0;
    const struct event_job_placed *b = event.body;
    if (b->attempt != p->attempt)
        return 0;
    p->record->parts.at = b->parts.at;
    p->record->parts.len = b->parts.len;
    p->found = true;
    return 1;
}

// Makes the record one of an earlier attempt: where it ran is told by the journal. Attempts share
// their output file, unless it is kept on the node for somebody who is attached.
static bool find_attempt(struct controller *c, int64_t attempt, struct arena *a, struct job_record *r,
                         struct error *e) {
    struct placing p = {.attempt = (uint32_t)attempt, .arena = a, .record = r};
    unsigned long long id = (unsigned long long)r->id;
    if (attempt < 1 || attempt > r->attempt) {
        error_set(e, EINVAL,
                  r->attempt ? "attempt: job %llu has had %u attempts; expected 1 to %u"
                             : "attempt: job %llu has not run yet",
                  id, r->attempt, r->attempt);
        return false;
    }
    if (attempt < r->attempt && !r->spec->attach) {
        error_set(e, EINVAL,
                  r->spec->truncate
                      ? "attempt: the output of job %llu was replaced by that of attempt %u; without --truncate "
                        "all of it is kept"
                      : "attempt: all attempts of job %llu write to one file; leave --attempt out",
                  id, r->attempt);
        return false;
    }
    if (attempt == r->attempt && r->parts.len)
        return true;
    int rc = store_events(c->store, r->id, 0, 0, take_placing, &p, e);
    if (rc >= 0 && !p.found)
        error_set(e, ENOENT, "attempt: it is no longer known where attempt %u of job %llu ran", p.attempt,
                  id);
    r->attempt = p.attempt;
    return rc >= 0 && p.found;
}

// The part of a job that streams come from: its node, and where it is in the allocation. Numbers come
// from the request as they are: they are compared before they are made any narrower. Attempt 0: the newest.
static bool find_part(struct controller *c, uint64_t id, int64_t index, int64_t attempt, struct arena *a,
                      struct job_record *r, bool *live, struct error *e) {
    if (api_record(c, id, a, r, live) < 0) {
        error_set(e, ENOENT, "there is no job %llu", (unsigned long long)id);
        return false;
    }
    if (attempt && !find_attempt(c, attempt, a, r, e))
        return false;
    if (!r->parts.len) {
        error_set(e, EBUSY, "job %llu is %s; it %s", (unsigned long long)id, job_state_words[r->state],
                  r->attempt > 0 && r->state == JOB_PENDING ? "waits to run again" : "has not run yet");
        return false;
    }
    if (index < 0 || index >= r->parts.len) {
        error_set(e, EINVAL, "node: job %llu has %u %s, counted from 0; there is no %lld",
                  (unsigned long long)id, r->parts.len, r->parts.len == 1 ? "node" : "nodes",
                  (long long)index);
        return false;
    }
    return true;
}

struct log_reply {
    struct controller *controller;
    struct net_request *req;
    struct stream *stream;
    bool started;
};

static ssize_t log_data(void *ctx, uint32_t fd, uint32_t task, const void *data, size_t len) {
    struct log_reply *l = ctx;
    if (!l->started) {
        net_reply_stream_start(l->req, 200, "application/octet-stream");
        l->started = true;
    }
    ssize_t n = len ? net_reply_stream_write(l->req, data, len) : 0;
    if (n < 0)
        l->stream = NULL;  // dropped by whoever called
    return n;
}

static void log_end(void *ctx, const struct message_stream *end) {
    struct log_reply *l = ctx;
    bool lost = end->error && end->exit_code == -1;
    if (end->error && !l->started) {
        api_error(l->req, lost ? 503 : 404, lost ? "EAGAIN" : "ENOENT", end->error);
    } else if (end->error) {
        net_reply_stream_abort(l->req);  // the reader must see that the rest is missing
    } else {
        log_data(l, 1, 0, NULL, 0);
        net_reply_stream_end(l->req);
    }
    free(l);
}

static void log_client_gone(struct net_request *req, void *user) {
    struct log_reply *l = user;
    if (l->stream)
        controller_stream_drop(l->stream);
    if (l->started)
        net_reply_stream_end(req);
    else
        net_reply(req, 499, NULL, NULL, 0);
    free(l);
}

static void log_drained(struct net_request *req, void *user) {
    struct log_reply *l = user;
    if (l->stream)
        controller_stream_drained(l->stream);
}

void api_logs(struct api_call *call) {
    static const struct stream_client client = {log_data, log_end, NULL, NULL, NULL};
    struct controller *c = call->controller;
    struct job_record r;
    struct error e = {0};
    bool live;
    const struct query_logs *q = call->query;
    int64_t index = q->node;
    if (!find_part(c, api_first_worker(c, call->job), index, q->attempt, &call->arena, &r, &live, &e)) {
        api_fail(call->req, &e);
        return;
    }
    const char *node = r.parts.at[index].node;
    bool error_file = q->source == QUERY_ERROR;
    struct message_log_read m =
        controller_session_log_read(&r, (uint32_t)index, error_file ? LOG_SOURCE_ERROR : LOG_SOURCE_OUTPUT,
                                    q->follow, schema_given(&query_logs_schema, q, &q->tail) ? q->tail : -1);
    struct log_reply *l = xcalloc(1, sizeof *l);
    *l = (struct log_reply){.controller = c, .req = call->req};
    error_set(&e, ENOTCONN, "node %s, which has the output, is not connected; try again later", node);
    l->stream = controller_stream_new(c, &call->actor, node, &client, l, &e);
    if (l->stream)
        m.stream = controller_stream_id(l->stream);
    if (!l->stream || !agents_send(c, node, MESSAGE_LOG_READ, &m)) {
        if (l->stream)
            controller_stream_drop(l->stream);
        api_fail(call->req, &e);
        free(l);
        return;
    }
    net_request_watch(call->req, log_client_gone, log_drained, l);
}

// --- WebSocket sessions ---

enum session_kind { SESSION_RUN, SESSION_ATTACH, SESSION_EXEC };
enum { TERMINAL_ROWS = 24, TERMINAL_COLUMNS = 80 };

struct session {
    struct controller *controller;
    enum session_kind kind;
    struct net_ws *ws;
    struct actor actor;
    char user[USER_NAME_MAX];
    uint64_t job;
    struct waiter *waiter;
    struct stream *output;           // of a command inside a job
    struct attached *attached;       // to a job of its own
    bool begun;                      // first message seen
    bool resume;                     // it was attached before and goes on
    bool output_done, closed;
    bool returning;
    bool held;                       // nothing is read from the client until its node has taken what it sent
    char *final;                     // last message, sent when the output is complete
    struct buf early_input;          // typed before the job took any
    bool early_eof;
    struct session **pending;        // set while a submit waits for its commit
};

static void say(struct session *s, const struct schema *schema, const void *value) {
    if (!s->closed)
        api_session_send(s->ws, schema, value);
}

static void session_fail(struct session *s, const struct error *e) {
    if (!s->closed)
        api_session_error(s->ws, e);
    net_ws_close(s->ws, WS_NORMAL, "");
}

// The last message is kept until the output before it has left.
static void set_final(struct session *s, const struct schema *schema, const void *value) {
    cleanup_buf struct buf b = {0};
    schema_write_json(schema, value, &(struct json_writer){.out = &b});
    free(s->final);
    s->final = buf_take(&b);
}

static ssize_t session_data(void *ctx, uint32_t node, uint32_t fd, const void *data, size_t len) {
    struct session *s = ctx;
    cleanup_buf struct buf b = {0};
    if (s->closed)
        return -EPIPE;
    buf_addc(&b, (char)(node ? fd + 2 : fd));
    for (int i = 0; node && i < 4; i++)
        buf_addc(&b, (char)(node >> (8 * i)));
    buf_add(&b, data, len);
    return net_ws_send(s->ws, WS_BINARY, b.data, b.len);
}

static ssize_t on_stream_data(void *ctx, uint32_t fd, uint32_t task, const void *data, size_t len) {
    struct session *s = ctx;
    ssize_t n = session_data(s, 0, fd == 2 ? 2 : 1, data, len);
    if (n < 0)
        s->output = NULL;  // dropped by whoever called
    return n;
}

// The job goes on but its node cannot be reached now: whoever listens attaches again later.
static bool ask_to_return(struct session *s) {
    struct job_view v;
    struct error e = {0};
    if (s->returning)
        return true;
    if (s->kind == SESSION_EXEC || s->closed || !core_view(s->controller->core, s->job, &v))
        return false;
    s->returning = true;
    error_set(&e, EAGAIN, "the node of job %llu is not connected now; attach again", (unsigned long long)s->job);
    session_fail(s, &e);
    return true;
}

static void session_finish(struct session *s) {
    if (s->attached ? !controller_attached_complete(s->attached) : !s->output_done)
        return;
    if (s->returning || !s->final || s->closed)
        return;
    net_ws_send(s->ws, WS_TEXT, s->final, strlen(s->final));
    net_ws_close(s->ws, WS_NORMAL, "");
}

static void release_input(void *ctx);

static void on_exec_end(void *ctx, const struct message_stream *end) {
    struct session *s = ctx;
    struct error e = {0};
    s->output = NULL;
    release_input(s);
    if (end->error) {
        error_set(&e, EIO, "%s", end->error);
        session_fail(s, &e);
        return;
    }
    set_final(s, &answer_session_exit_schema,
              &(struct answer_session_exit){end->exit_code, end->exit_signal});
    s->output_done = true;
    session_finish(s);
}

static void on_input_credit(void *ctx, uint64_t bytes) {
    say(ctx, &answer_session_input_schema, &(struct answer_session_input){bytes});
}

static void on_position(void *ctx, uint64_t taken, uint64_t left, bool closed) {
    say(ctx, &answer_session_position_schema, &(struct answer_session_position){taken, left, closed});
}

static bool on_lost(void *ctx, const struct error *e) {
    struct session *s = ctx;
    if (!e)
        return ask_to_return(s);
    session_fail(s, e);
    return true;
}

static void on_output_complete(void *ctx) {
    session_finish(ctx);
}

static void release_input(void *ctx) {
    struct session *s = ctx;
    if (!s->held)
        return;
    s->held = false;
    s->controller->held_inputs--;
    net_ws_pause(s->ws, false);
}

// All streams of a node share its connection, which is ended when too much waits in it: one who
// sends faster than the node takes is read from no faster.
static void hold_input(struct session *s, size_t backlog) {
    if (s->held || backlog <= STREAM_BACKLOG_BYTES)
        return;
    s->held = true;
    s->controller->held_inputs++;
    net_ws_pause(s->ws, true);
}

static void feed_input(struct session *s, const void *data, size_t len, bool eof) {
    struct message_stream m = {.fd = 0, .data = {data, len}, .eof = eof};
    if (s->attached) {
        controller_attached_input(s->attached, data, len, eof);
        hold_input(s, controller_attached_backlog(s->attached));
    } else if (s->output) {
        controller_stream_send(s->output, MESSAGE_STREAM_DATA, &m);
        hold_input(s, controller_stream_backlog(s->output));
    } else {
        if (s->early_input.len + len <= STREAM_WINDOW_BYTES)
            buf_add(&s->early_input, data, len);
        s->early_eof |= eof;
    }
}

static void tell_nodes(struct session *s, uint32_t count) {
    if (count > 1)
        say(s, &answer_session_nodes_schema, &(struct answer_session_nodes){count});
}

// Opens the streams of an attached job, behind its launch.
static void attach_streams(struct session *s) {
    static const struct attached_client client = {session_data,       on_input_credit, on_position,
                                                  on_output_complete, on_lost,         release_input};
    cleanup_arena struct arena a = {0};
    struct job_record r;
    bool live;
    if (s->attached || api_record(s->controller, s->job, &a, &r, &live) < 0 || !r.parts.len)
        return;
    tell_nodes(s, r.parts.len);
    s->attached = controller_attached_new(s->controller, &s->actor, &client, s, s->resume);
    controller_attached_open(s->attached, &r);
    if (s->returning || s->closed)
        return;
    if (s->early_input.len || s->early_eof)
        controller_attached_input(s->attached, s->early_input.data, s->early_input.len, s->early_eof);
    buf_done(&s->early_input);
}

static void report_final(struct session *s) {
    cleanup_arena struct arena a = {0};
    struct job_record r;
    bool live;
    if (s->final || api_record(s->controller, s->job, &a, &r, &live) < 0 || live)
        return;
    set_final(s, &answer_session_end_schema,
              &(struct answer_session_end){s->job, r.state, r.exit_code, r.exit_signal, r.reason});
    if (!s->attached)
        s->output_done = true;
    session_finish(s);
}

static void on_job_changed(void *arg, uint64_t id) {
    struct session *s = arg;
    struct job_view v;
    if (!core_view(s->controller->core, id, &v)) {
        report_final(s);
        return;
    }
    if (v.start_ms)
        attach_streams(s);
    say(s, &answer_session_state_schema, &(struct answer_session_state){v.state});
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
    if (p->session) {
        p->session->pending = NULL;
        say(p->session, &answer_session_job_schema, &(struct answer_session_job){p->id});
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

static void begin_exec(struct session *s, const struct request_exec *q, struct arena *a) {
    static const struct stream_client client = {on_stream_data, on_exec_end, on_input_credit, release_input, NULL};
    struct controller *c = s->controller;
    struct job_record r;
    struct error e = {0};
    bool live;
    int64_t index = q->node;
    if (!find_part(c, s->job, index, 0, a, &r, &live, &e)) {
        session_fail(s, &e);
        return;
    }
    if (!live || (r.state != JOB_RUNNING && r.state != JOB_SUSPENDED)) {
        error_set(&e, EBUSY, "job %llu is %s; a command can only be run inside a running job",
                  (unsigned long long)s->job, job_state_words[r.state]);
        session_fail(s, &e);
        return;
    }
    const char *node = r.parts.at[index].node;
    struct message_exec m = {.id = s->job,
                             .attempt = r.attempt,
                             .argv = {q->argv.at, q->argv.len},
                             .environment = {q->environment.at, q->environment.len},
                             .workdir = q->workdir,
                             .pty = q->pty,
                             .rows = q->rows ? q->rows : TERMINAL_ROWS,
                             .columns = q->columns ? q->columns : TERMINAL_COLUMNS,
                             .tasks = 1,
                             .total_tasks = 1,
                             .credit = STREAM_WINDOW_BYTES,
                             .node_index = (uint32_t)index};
    error_set(&e, ENOTCONN, "node %s is not connected; try again later", node);
    s->output = controller_stream_new(c, &s->actor, node, &client, s, &e);
    if (s->output)
        m.stream = controller_stream_id(s->output);
    if (!s->output || !agents_send(c, node, MESSAGE_EXEC, &m))
        session_fail(s, &e);
}

static void begin_attach(struct session *s) {
    struct job_view v;
    watch(s, s->job);
    if (core_view(s->controller->core, s->job, &v) && v.start_ms)
        attach_streams(s);
    else
        report_final(s);
}

static void begin(struct session *s, const char *data, size_t len) {
    cleanup_arena struct arena a = {0};
    struct request_submit submit;
    struct request_exec exec;
    struct error e = {0};
    bool runs = s->kind == SESSION_RUN;
    s->begun = true;
    if (api_session_read(data, len, runs ? &request_submit_schema : &request_exec_schema, &a,
                         runs ? (void *)&submit : (void *)&exec, &e) < 0)
        session_fail(s, &e);
    else if (runs)
        begin_run(s, &submit);
    else
        begin_exec(s, &exec, &a);
}

static void resize(struct session *s, uint32_t rows, uint32_t columns) {
    struct message_stream m = {.rows = rows, .columns = columns};
    if (s->output)
        controller_stream_send(s->output, MESSAGE_RESIZE, &m);
    else if (s->attached)
        controller_attached_resize(s->attached, rows, columns);
}

static void on_text(struct session *s, const char *data, size_t len) {
    cleanup_arena struct arena a = {0};
    struct request_session q;
    struct error e = {0};
    if (!s->begun) {
        begin(s, data, len);
        return;
    }
    if (api_session_read(data, len, &request_session_schema, &a, &q, &e) < 0) {
        session_fail(s, &e);
        return;
    }
    if (q.resize.len == 2)
        resize(s, q.resize.at[0], q.resize.at[1]);
    struct command_cancel cancel = {.id = s->job, .signal = q.signal};
    struct command command = {COMMAND_CANCEL, &cancel};
    if (s->job && s->kind != SESSION_EXEC && (q.signal || q.cancel))
        core_command(s->controller->core, &s->actor, NULL, &command, controller_now_ms(), NULL, &e);
}

static void on_message(struct net_ws *ws, enum ws_opcode type, const char *data, size_t len, void *user) {
    struct session *s = user;
    struct error e = {0};
    if (type == WS_BINARY && len > SESSION_INPUT_MAX) {
        error_set(&e, E2BIG, "a message of %zu bytes of input; at most %d are taken at once", len, SESSION_INPUT_MAX);
        session_fail(s, &e);
    } else if (type == WS_TEXT)
        on_text(s, data, len);
    else if (len && data[0] == 0)
        feed_input(s, data + 1, len - 1, len == 1);
}

static void on_drain(struct net_ws *ws, void *user) {
    struct session *s = user;
    if (s->output)
        controller_stream_drained(s->output);
    if (s->attached)
        controller_attached_drained(s->attached);
}

static void on_close(struct net_ws *ws, int status, const char *reason, void *user) {
    struct session *s = user;
    s->closed = true;
    s->controller->held_inputs -= s->held;
    if (s->output)
        controller_stream_drop(s->output);
    s->attached = controller_attached_free(s->attached);
    if (s->waiter)
        controller_unwatch_job(s->controller, s->waiter);
    if (s->pending)
        *s->pending = NULL;
    free(s->final);
    buf_done(&s->early_input);
    free(s);
}

static void open_session(struct api_call *call, enum session_kind kind) {
    static const struct net_ws_callbacks callbacks = {
        .on_message = on_message, .on_drain = on_drain, .on_close = on_close};
    struct session *s = xcalloc(1, sizeof *s);
    *s = (struct session){.controller = call->controller,
                          .kind = kind,
                          .actor = call->actor,
                          .job = call->job ? api_first_worker(call->controller, call->job) : 0,
                          .resume =
                              kind == SESSION_ATTACH && ((const struct query_attach *)call->query)->resume};
    snprintf(s->user, sizeof s->user, "%s", call->actor.user);
    s->actor.user = s->user;
    s->ws = net_upgrade_ws(call->req, NULL, &callbacks, s);
    if (!s->ws) {
        free(s);
        return;
    }
    if (kind == SESSION_ATTACH) {
        s->begun = true;
        begin_attach(s);
    }
}

void api_run(struct api_call *call) {
    open_session(call, SESSION_RUN);
}

void api_attach(struct api_call *call) {
    open_session(call, SESSION_ATTACH);
}

void api_exec(struct api_call *call) {
    open_session(call, SESSION_EXEC);
}
