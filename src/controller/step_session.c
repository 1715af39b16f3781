// Owns the conversations about steps (srun) and allocations (salloc, srun alone), over a WebSocket. The
// step itself belongs to the core and to its nodes: a client that comes back with the same key goes on
// where it was, and the node's streams are opened again when a node comes back.
//
// Binary messages of a client that gave a key: 5 (output) or 6 (error), rank and node as four bytes, the
// position behind the data in the node's stream as eight, then data; to us 7, the position in the input as
// eight bytes, then data (none: the end). Numbers have the lowest byte first. Without a key: 1 or 2, the
// rank, data; to us 0 and data. Text messages are JSON, see session_messages.h.
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "api.h"
#include "base/clock.h"
#include "base/text.h"
#include "step_report.h"
#include "step_request.h"

enum { INPUT_HEAD = 9 };

struct step_node {
    struct step_session *session;
    struct stream *stream;  // NULL: not attached
    const char *node;
    uint64_t at;            // output before this was sent to the client
    bool finished;          // all its output was sent
    bool located, closed;   // it said where its input stands; it takes none
    uint64_t input_at;
};

enum step_phase { STEP_NEW, STEP_FOR_JOB, STEP_QUEUED, STEP_COMMITTING, STEP_ATTACHED, STEP_OVER };

struct step_session {
    struct controller *controller;
    struct net_ws *ws;
    struct actor actor;
    char user[USER_NAME_MAX];
    uint64_t job;
    uint32_t attempt, number;
    bool owns_job;  // the job is there for this client
    bool alone;     // no step in it: salloc
    bool keyed;     // the client comes back when it is cut off
    bool watching;  // looks on at a step of another client (sattach)
    enum step_phase phase;
    struct arena arena;  // of the request
    const struct request_step *request;  // NULL: none
    struct step_node *nodes;
    uint32_t node_count;
    struct waiter *waiter;
    struct step_commit *pending;
    uint64_t input_len;  // of a client without a key: input it has sent
    struct buf early_input;
    bool early_eof, told_busy, closed, told_nodes;
    int64_t heard_ms;  // when the client last sent something
    bool held;       // nothing is read from the client until the nodes have taken what it sent
    char *final;     // last message, sent when the output is complete
    uint64_t lost_bytes;
};

struct step_commit {
    struct step_session *session;  // NULL: it has gone
    uint64_t announce;  // tell the id of the new job
};

static void say(struct step_session *s, const struct schema *schema, const void *value) {
    if (!s->closed)
        api_session_send(s->ws, schema, value);
}

static void end_connection(struct step_session *s) {
    s->phase = STEP_OVER;
    if (!s->closed)
        net_ws_close(s->ws, WS_NORMAL, "");
}

static void cancel_job(struct step_session *s, const char *reason) {
    struct error ignored = {0};
    struct command_cancel cancel = {.id = s->job, .reason = reason};
    struct command command = {COMMAND_CANCEL, &cancel};
    core_command(s->controller->core, &s->actor, NULL, &command, controller_now_ms(), NULL, &ignored);
}

// The allocation ends with this exit. One that still waits has none: it leaves the queue.
static void give_back(struct step_session *s, int32_t exit_code, uint32_t exit_signal) {
    struct job_view v;
    if (!s->owns_job || !s->job)
        return;
    if (core_view(s->controller->core, s->job, &v) && v.state == JOB_PENDING)
        cancel_job(s, "given back before it started");
    else
        core_give_back(s->controller->core, s->job, exit_code, exit_signal, controller_now_ms());
    s->owns_job = false;
}

static void fail(struct step_session *s, const struct error *e) {
    if (!s->closed)
        api_session_error(s->ws, e);
    give_back(s, 1, 0);
    end_connection(s);
}

// --- the end ---

static void finish_if_complete(struct step_session *s);

// Of a node that is away for good no more output can come.
static bool is_lost(struct step_session *s, const struct step_node *n) {
    struct job_view v;
    return !n->stream && !strmap_get(&s->controller->agents, n->node) &&
           !core_view(s->controller->core, s->job, &v);
}

static void finish_if_complete(struct step_session *s) {
    cleanup_buf struct buf b = {0};
    if (s->phase != STEP_ATTACHED || !s->final)
        return;
    for (uint32_t i = 0; i < s->node_count; i++) {
        if (!s->nodes[i].finished && !is_lost(s, &s->nodes[i]))
            return;
        if (!s->nodes[i].finished)
            buf_addf(&b, "%s%s", b.len ? "," : "", s->nodes[i].node);
    }
    cleanup_buf struct buf note = {0};
    if (b.len)
        buf_addf(&note, "output of %s is incomplete: the node is gone", buf_str(&b));
    else if (s->lost_bytes)
        buf_addf(&note, "%llu bytes of output were dropped while no client was connected",
                 (unsigned long long)s->lost_bytes);
    if (note.len)
        say(s, &answer_step_missing_schema, &(struct answer_step_missing){buf_str(&note)});
    if (!s->closed)
        net_ws_send(s->ws, WS_TEXT, s->final, strlen(s->final));
    // A client with a key gives its allocation back when it has everything.
    if (!s->owns_job || s->keyed)
        s->phase = STEP_OVER;
    if (!s->owns_job || !s->keyed)
        end_connection(s);
}

static void set_final(struct step_session *s, const struct schema *schema, const void *value) {
    cleanup_buf struct buf b = {0};
    schema_write_json(schema, value, &(struct json_writer){.out = &b});
    free(s->final);
    s->final = buf_take(&b);
}

static void write_final(struct step_session *s, const struct event_step *started,
                        const struct event_step *ended) {
    cleanup_arena struct arena a = {0};
    struct answer_step_result end = {.exit_code = ended->exit_code, .exit_signal = ended->exit_signal};
    if (s->final)
        return;
    end.nodes.at = arena_alloc(&a, (ended->ends.len + 1) * sizeof *end.nodes.at);
    for (; end.nodes.len < ended->ends.len && end.nodes.len < started->parts.len; end.nodes.len++)
        controller_step_report(&ended->ends.at[end.nodes.len], &started->parts.at[end.nodes.len], &a,
                               &end.nodes.at[end.nodes.len]);
    set_final(s, &answer_step_result_schema, &end);
    if (!s->keyed)
        give_back(s, ended->exit_code, ended->exit_signal);
}

struct step_history {
    struct arena *arena;
    uint32_t attempt, number;
    const char *key;
    struct event_step *started, *ended;
};

static int take_history(void *ctx, const struct store_event *e) {
    struct step_history *h = ctx;
    struct event event;
    if ((e->type != EVENT_STEP_STARTED && e->type != EVENT_STEP_ENDED) ||
        event_decode((enum event_type)e->type, e->data, e->len, h->arena, &event) < 0)
        return 0;
    struct event_step *b = event.body;
    if (e->type == EVENT_STEP_STARTED && (h->number ? b->step == h->number : h->key && streq(b->key, h->key))) {
        h->number = b->step;
        h->attempt = b->attempt;
        h->started = b;
    } else if (e->type == EVENT_STEP_ENDED && h->started && b->step == h->number && b->attempt == h->attempt) {
        h->ended = b;
    }
    return h->ended != NULL;
}

// A step that the core does not know any more, from the journal.
static bool find_in_history(struct step_session *s, const char *key, struct step_history *h, struct arena *a) {
    struct error ignored = {0};
    *h = (struct step_history){.arena = a, .number = s->number, .key = key};
    return store_events(s->controller->store, s->job, 0, 0, take_history, h, &ignored) >= 0 && h->ended;
}

// The step may have ended meanwhile.
static void look_for_end(struct step_session *s) {
    struct core_step_view v;
    struct job_view j;
    struct step_history h;
    cleanup_arena struct arena a = {0};
    if (s->phase != STEP_ATTACHED || s->final)
        return;
    if (core_step_view(s->controller->core, s->job, s->number, NULL, &v)) {
        if (v.ended)
            write_final(s, v.started, v.ended);
    } else if (find_in_history(s, NULL, &h, &a)) {
        write_final(s, h.started, h.ended);
    } else if (!core_view(s->controller->core, s->job, &j)) {
        struct error e = {0};
        error_set(&e, EBUSY, "the job has ended, and how the step ended is not known");
        set_final(s, &answer_failure_schema, &(struct answer_failure){api_error_answer(&a, &e)});
    }
    finish_if_complete(s);
}

// --- streams ---

static void put_number(struct buf *b, uint64_t v, int bytes) {
    for (int i = 0; i < bytes; i++)
        buf_addc(b, (char)(v >> (8 * i)));
}

static ssize_t on_data(void *ctx, uint32_t fd, uint32_t task, const void *data, size_t len) {
    struct step_node *n = ctx;
    struct step_session *s = n->session;
    cleanup_buf struct buf b = {0};
    uint64_t at = controller_stream_offset(n->stream);
    buf_addc(&b, (char)((s->keyed ? 4 : 0) + (fd == 2 ? 2 : 1)));
    put_number(&b, task, 4);
    if (s->keyed) {
        put_number(&b, (uint64_t)(n - s->nodes), 4);
        put_number(&b, at, 8);
    }
    buf_add(&b, data, len);
    ssize_t waiting = net_ws_send(s->ws, WS_BINARY, b.data, b.len);
    if (waiting < 0)
        n->stream = NULL;  // dropped by the caller
    else
        n->at = at;
    return waiting;
}

static bool is_behind(const struct step_session *s) {
    bool behind = false;
    for (uint32_t i = 0; i < s->node_count; i++)
        behind |= s->nodes[i].stream && controller_stream_backlog(s->nodes[i].stream) > STREAM_BACKLOG_BYTES;
    return behind;
}

static void release_input(struct step_session *s) {
    if (!s->held || is_behind(s))
        return;
    s->held = false;
    s->controller->held_inputs--;
    if (!s->closed)
        net_ws_pause(s->ws, false);
}

static void on_room(void *ctx) {
    release_input(((struct step_node *)ctx)->session);
}

static void on_end(void *ctx, const struct message_stream *end) {
    struct step_node *n = ctx;
    struct step_session *s = n->session;
    n->stream = NULL;
    n->located = false;
    release_input(s);
    if (end->error && end->exit_code == -1)
        return;  // the node is away: attached again when it is back
    n->finished = true;
    s->lost_bytes += end->lost_bytes;
    look_for_end(s);
    finish_if_complete(s);
}

static void feed(struct step_session *s, const char *data, size_t len, bool eof);

// Where input goes on: at the position that the slowest node has.
static void on_position(void *ctx, const struct message_stream *m) {
    struct step_node *n = ctx;
    struct step_session *s = n->session;
    bool again = !n->located, open = false;
    uint64_t least = UINT64_MAX;
    n->located = true;
    n->closed = m->eof;
    n->input_at = m->input_taken;
    for (uint32_t i = 0; i < s->node_count; i++) {
        const struct step_node *x = &s->nodes[i];
        if (x->closed || x->finished)
            continue;
        open = true;
        least = x->located && x->input_at < least ? x->input_at : x->located ? least : 0;
    }
    if (!s->keyed) {
        if (s->early_input.len || s->early_eof) {
            struct buf early = s->early_input;
            bool eof = s->early_eof;
            s->early_input = (struct buf){0};
            s->early_eof = false;
            feed(s, early.data, early.len, eof);
            buf_done(&early);
        }
        return;
    }
    if (again)
        say(s, &answer_step_from_schema, &(struct answer_step_from){open ? least : 0, !open});
    else
        say(s, &answer_step_at_schema, &(struct answer_step_at){open ? least : 0, !open});
}

static void attach_node(struct step_session *s, uint32_t i) {
    static const struct stream_client client = {on_data, on_end, NULL, on_room, on_position};
    struct step_node *n = &s->nodes[i];
    struct error e = {0};
    if (n->stream || n->finished || !strmap_get(&s->controller->agents, n->node))
        return;
    n->stream = controller_stream_new(s->controller, &s->actor, n->node, &client, n, &e);
    if (!n->stream) {
        fail(s, &e);
        return;
    }
    controller_stream_acknowledge(n->stream, !s->keyed && !s->watching);
    struct message_step m = {.id = s->job,
                             .attempt = s->attempt,
                             .step = s->number,
                             .stream = controller_stream_id(n->stream),
                             .offset = n->at,
                             .credit = STREAM_WINDOW_BYTES,
                             .tail = s->watching && !n->at};
    if (!agents_send(s->controller, n->node, MESSAGE_STEP_ATTACH, &m)) {
        controller_stream_drop(n->stream);
        n->stream = NULL;
    }
}

void controller_step_sessions_node_up(struct controller *c, const char *node) {
    for (uint32_t k = c->step_sessions.len; k-- > 0;) {
        struct step_session *s = c->step_sessions.at[k];
        for (uint32_t i = 0; s->phase == STEP_ATTACHED && i < s->node_count; i++)
            if (streq(s->nodes[i].node, node))
                attach_node(s, i);
        if (k > c->step_sessions.len)
            k = c->step_sessions.len;
    }
}

void controller_step_sessions_step_ended(struct controller *c, uint64_t job, uint32_t step) {
    for (uint32_t k = c->step_sessions.len; k-- > 0;) {
        struct step_session *s = c->step_sessions.at[k];
        if (s->job == job && s->number == step)
            look_for_end(s);
        if (k > c->step_sessions.len)
            k = c->step_sessions.len;
    }
}

// --- input ---

static void send_input(struct step_session *s, uint64_t offset, const void *data, size_t len, bool eof) {
    for (uint32_t i = 0; i < s->node_count; i++) {
        struct message_stream m = {.fd = 0, .data = {data, len}, .eof = eof, .offset = offset};
        if (s->nodes[i].stream && !s->nodes[i].closed)
            controller_stream_send(s->nodes[i].stream, MESSAGE_STREAM_DATA, &m);
    }
    if (!s->held && is_behind(s)) {
        s->held = true;
        s->controller->held_inputs++;
        net_ws_pause(s->ws, true);
    }
}

static void feed(struct step_session *s, const char *data, size_t len, bool eof) {
    if (s->phase != STEP_ATTACHED || (s->node_count && !s->nodes[0].located)) {
        if (s->early_input.len + len <= STREAM_WINDOW_BYTES)
            buf_add(&s->early_input, data, len);
        s->early_eof |= eof;
        return;
    }
    uint64_t offset = s->watching ? UINT64_MAX : s->input_len;
    s->input_len += len;
    send_input(s, offset, data, len, eof && !s->watching);  // one who looks on cannot end the input of others
}

// --- creation ---

static void tell_step(struct step_session *s, const struct event_step *started) {
    say(s, &answer_step_started_schema,
        &(struct answer_step_started){started->step - 1, started->tasks,
                                      started->nodes ? started->nodes : ""});
}

static uint64_t resume_at(const struct step_session *s, uint32_t i) {
    return i < s->request->from.len ? s->request->from.at[i] : 0;
}

static void attach(struct step_session *s, const struct event_step *started) {
    s->number = started->step;
    s->attempt = started->attempt;
    s->phase = STEP_ATTACHED;
    s->node_count = started->parts.len;
    s->nodes = xcalloc(s->node_count + 1, sizeof *s->nodes);
    for (uint32_t i = 0; i < s->node_count; i++)
        s->nodes[i] = (struct step_node){
            .session = s, .node = core_intern(s->controller->core, started->parts.at[i].node), .at = resume_at(s, i)};
    tell_step(s, started);
    for (uint32_t i = 0; i < s->node_count && s->phase == STEP_ATTACHED; i++)
        attach_node(s, i);
    look_for_end(s);
}

static void created(void *arg) {
    struct step_commit *p = arg;
    struct step_session *s = p->session;
    struct core_step_view v;
    struct error e = {0};
    if (s) {
        s->pending = NULL;
        error_set(&e, EBUSY, "the job has ended");
        if (core_step_view(s->controller->core, s->job, s->number, NULL, &v))
            attach(s, v.started);
        else
            fail(s, &e);
    }
    free(p);
}

static int create(struct step_session *s, const struct job_record *r, struct error *e) {
    struct controller *c = s->controller;
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf environment = {0};
    struct step_wish wish;
    char id[33];
    int rc = controller_step_wish_read(s->request, r, &a, &wish, &environment, e);
    if (rc < 0)
        return rc;
    struct core_step_request q = {.key = wish.key, .name = wish.name, .request = &wish.place, .command = &wish.command};
    if (environment.len) {
        pipeline_text_id(environment.data, environment.len, id);
        q.environment_id = id;
        q.environment_bytes = environment.len;
    }
    rc = core_step_create(c->core, &s->actor, s->job, &q, controller_now_ms(), &s->number, e);
    if (rc == 0 && environment.len)
        pipeline_keep_text(c->pipeline, r->is_array ? r->array_id : r->id, environment.data, environment.len);
    return rc;
}

static void wait_for_room(struct step_session *s) {
    s->phase = STEP_QUEUED;
    if (!s->told_busy)
        say(s, &answer_step_waiting_schema, &(struct answer_step_waiting){"Requested nodes are busy"});
    s->told_busy = true;
}

// Whether the request was made before: the client was cut off and has come back.
static bool resume(struct step_session *s) {
    const char *key = s->request->key;
    struct core_step_view v;
    struct step_history h;
    if (key && core_step_view(s->controller->core, s->job, 0, key, &v)) {
        attach(s, v.started);
        return true;
    }
    if (!key || !s->request->resume)
        return false;
    if (!find_in_history(s, key, &h, &s->arena))
        return false;
    attach(s, h.started);
    return true;
}

static void begin_step(struct step_session *s) {
    cleanup_arena struct arena a = {0};
    struct job_record r;
    struct error e = {0};
    if (resume(s))
        return;
    if (core_record(s->controller->core, s->job, &a, &r) < 0) {
        error_set(&e, EBUSY, "job %llu has already ended", (unsigned long long)s->job);
        fail(s, &e);
        return;
    }
    s->phase = STEP_FOR_JOB;
    if (r.state == JOB_STARTING || (r.state == JOB_PENDING && s->owns_job))
        return;
    int rc = create(s, &r, &e);
    if (rc == -EAGAIN && !s->request->immediate) {
        wait_for_room(s);
    } else if (rc < 0) {
        fail(s, &e);
    } else {
        s->phase = STEP_COMMITTING;
        s->pending = xcalloc(1, sizeof *s->pending);
        s->pending->session = s;
        pipeline_when_committed(s->controller->pipeline, created, s->pending);
    }
}

// {"attach": N}: looks on at a step that runs, and types into it.
static void begin_watching(struct step_session *s) {
    struct core_step_view v;
    struct error e = {0};
    uint32_t number = s->request->attach;
    s->watching = true;
    if (!core_step_view(s->controller->core, s->job, number + 1, NULL, &v) || v.ended) {
        error_set(&e, ENOENT, "job %llu has no step %u that runs", (unsigned long long)s->job, number);
        fail(s, &e);
        return;
    }
    attach(s, v.started);
}

// --- the job ---

static void tell_state(struct step_session *s, const struct job_view *v) {
    say(s, &answer_step_state_schema,
        &(struct answer_step_state){v->state, v->state == JOB_PENDING ? v->reason : REASON_NONE});
}

static void on_job_changed(void *arg, uint64_t id) {
    struct step_session *s = arg;
    struct job_view v;
    if (s->phase == STEP_OVER)
        return;
    if (s->phase == STEP_ATTACHED || s->phase == STEP_COMMITTING) {
        look_for_end(s);
        return;
    }
    if (core_view(s->controller->core, id, &v)) {
        if (s->owns_job)
            tell_state(s, &v);
        if (s->alone || s->phase == STEP_NEW)
            return;
        if (s->phase == STEP_QUEUED || v.state == JOB_RUNNING)
            begin_step(s);
        return;
    }
    struct error e = {0};
    cleanup_arena struct arena a = {0};
    struct job_record r;
    bool live;
    int n = api_record(s->controller, id, &a, &r, &live);
    error_set(&e, EBUSY, "job %llu has ended%s%s%s%s", (unsigned long long)id, n == 0 ? ": " : "",
              n == 0 ? job_state_words[r.state] : "", n == 0 && r.reason ? ", " : "",
              n == 0 && r.reason ? r.reason : "");
    s->owns_job = false;
    fail(s, &e);
}

static void submit_committed(void *arg) {
    struct step_commit *p = arg;
    if (p->session) {
        struct job_view v;
        p->session->pending = NULL;
        say(p->session, &answer_session_job_schema, &(struct answer_session_job){p->announce});
        if (!core_view(p->session->controller->core, p->announce, &v) || v.state == JOB_RUNNING)
            on_job_changed(p->session, p->announce);  // a client that came back: nothing else may change
    }
    free(p);
}

// {"submit": …, "step": …}: a job that is there for this client. A repeated submit finds it by its key.
static void begin_allocation(struct step_session *s, const struct request_allocate *q) {
    struct api_call call = {.controller = s->controller, .actor = s->actor};
    struct error e = {0};
    struct command_result job = {0};
    bool resumes = q->step && q->step->resume;
    int r = q->submit->spec->launch != LAUNCH_STEPS
                ? error_set(&e, EINVAL, "field \"launch\" of the spec must be steps here")
            : resumes ? 0
                      : api_check_storage(s->controller, &e);
    if (r == 0)
        r = api_submit_one(&call, q->submit, &job, &e);
    arena_done(&call.arena);
    if (r < 0) {
        s->owns_job = false;
        fail(s, &e);
        return;
    }
    s->job = job.id;
    s->keyed = q->submit->key != NULL;
    s->request = q->step;
    s->alone = !s->request;
    s->phase = STEP_FOR_JOB;
    core_lease_renew(s->controller->core, s->job);
    s->pending = xcalloc(1, sizeof *s->pending);
    *s->pending = (struct step_commit){.session = s, .announce = s->job};
    pipeline_when_committed(s->controller->pipeline, submit_committed, s->pending);
    s->waiter = controller_watch_job(s->controller, s->job, on_job_changed, s);
}

void controller_step_sessions_renew(struct controller *c) {
    for (uint32_t i = 0; i < c->step_sessions.len; i++) {
        const struct step_session *s = c->step_sessions.at[i];
        // A client with a key sends something now and then; the connection alone may be half open.
        bool there = !s->keyed || clock_mono_ms() - s->heard_ms < CORE_CLIENT_SILENT_MS;
        if (s->owns_job && s->job && !s->closed && there)
            core_lease_renew(c->core, s->job);
    }
}

// --- messages ---

static void first_message(struct step_session *s, const char *data, size_t len) {
    struct request_allocate allocate;
    struct request_step *step = arena_alloc(&s->arena, sizeof *step);
    struct error e = {0};
    // It is kept: the step is made from it when there is room.
    if (api_session_read(data, len, s->owns_job ? &request_allocate_schema : &request_step_schema, &s->arena,
                         s->owns_job ? (void *)&allocate : (void *)step, &e) < 0) {
        fail(s, &e);
        return;
    }
    if (s->owns_job) {
        begin_allocation(s, &allocate);
        return;
    }
    s->request = step;
    s->keyed = step->key != NULL;
    s->waiter = controller_watch_job(s->controller, s->job, on_job_changed, s);
    if (schema_given(&request_step_schema, step, &step->attach))
        begin_watching(s);
    else
        begin_step(s);
}

static void take_acks(struct step_session *s, const struct request_step_session *q) {
    for (uint32_t i = 0; i < q->ack.len && i < s->node_count; i++) {
        struct message_stream m = {.offset = q->ack.at[i]};
        if (s->nodes[i].stream && m.offset && m.offset <= s->nodes[i].at)
            controller_stream_send(s->nodes[i].stream, MESSAGE_STREAM_CREDIT, &m);
    }
}

static void signal_step(struct step_session *s, uint32_t signal, bool end) {
    struct error ignored = {0};
    if (s->phase == STEP_ATTACHED || s->phase == STEP_COMMITTING)
        core_step_signal(s->controller->core, &s->actor, s->job, s->number, signal, end, controller_now_ms(),
                         &ignored);
}

static void resize(struct step_session *s, uint32_t rows, uint32_t columns) {
    struct message_stream m = {.rows = rows, .columns = columns};
    for (uint32_t i = 0; i < s->node_count; i++)
        if (s->nodes[i].stream)
            controller_stream_send(s->nodes[i].stream, MESSAGE_RESIZE, &m);
}

static void cancel(struct step_session *s) {
    signal_step(s, SIGTERM, true);
    if (s->phase == STEP_FOR_JOB || s->phase == STEP_QUEUED) {
        s->keyed = false;  // nobody comes back for it
        end_connection(s);
    }
}

static void on_text(struct step_session *s, const char *data, size_t len) {
    cleanup_arena struct arena a = {0};
    struct request_step_session q;
    struct error e = {0};
    if (s->phase == STEP_NEW) {
        first_message(s, data, len);
        return;
    }
    if (api_session_read(data, len, &request_step_session_schema, &a, &q, &e) < 0) {
        fail(s, &e);
        return;
    }
    if (q.resize.len == 2)
        resize(s, q.resize.at[0], q.resize.at[1]);
    if (q.ping)
        say(s, &answer_step_pong_schema, &(struct answer_step_pong){true});
    take_acks(s, &q);
    if (q.signal)
        signal_step(s, q.signal, q.signal == SIGKILL);
    if (q.cancel)
        cancel(s);
    if (schema_given(&request_step_session_schema, &q, &q.give_back) && s->owns_job) {
        give_back(s, q.give_back, q.give_back_signal);
        end_connection(s);
    }
}

static void on_binary(struct step_session *s, const char *data, size_t len) {
    struct error e = {0};
    uint64_t offset = 0;
    if (len > SESSION_INPUT_MAX + INPUT_HEAD) {
        error_set(&e, E2BIG, "a message of %zu bytes of input; at most %d are taken at once", len, SESSION_INPUT_MAX);
        signal_step(s, SIGTERM, true);
        fail(s, &e);
        return;
    }
    if (len && data[0] == 0)
        feed(s, data + 1, len - 1, len == 1);
    if (len < INPUT_HEAD || data[0] != 7 || s->phase != STEP_ATTACHED)
        return;
    for (int i = 0; i < 8; i++)
        offset |= (uint64_t)(unsigned char)data[1 + i] << (8 * i);
    send_input(s, s->watching ? UINT64_MAX : offset, data + INPUT_HEAD, len - INPUT_HEAD, len == INPUT_HEAD);
}

static void on_message(struct net_ws *ws, enum ws_opcode type, const char *data, size_t len, void *user) {
    struct step_session *s = user;
    s->heard_ms = clock_mono_ms();
    if (s->phase == STEP_OVER && !s->owns_job)
        return;
    if (type == WS_TEXT)
        on_text(s, data, len);
    else
        on_binary(s, data, len);
}

static void on_drain(struct net_ws *ws, void *user) {
    struct step_session *s = user;
    for (uint32_t i = 0; i < s->node_count; i++)
        if (s->nodes[i].stream)
            controller_stream_drained(s->nodes[i].stream);
}

// Without a key the client cannot come back: what it had ends with its connection.
static void end_with_client(struct step_session *s) {
    struct job_view v;
    if (s->keyed || s->watching)
        return;
    if (!s->final)
        signal_step(s, SIGHUP, true);
    if (s->owns_job && s->job && core_view(s->controller->core, s->job, &v) && v.state != JOB_COMPLETING)
        cancel_job(s, "its connection is gone");
}

static void on_close(struct net_ws *ws, int status, const char *reason, void *user) {
    struct step_session *s = user;
    struct controller *c = s->controller;
    s->closed = true;
    c->held_inputs -= s->held;
    s->held = false;
    for (uint32_t i = 0; i < s->node_count; i++)
        if (s->nodes[i].stream)
            controller_stream_drop(s->nodes[i].stream);
    if (!c->stopping)
        end_with_client(s);
    for (uint32_t i = 0; i < c->step_sessions.len; i++)
        if (c->step_sessions.at[i] == s) {
            vec_remove(&c->step_sessions, i);
            break;
        }
    if (s->waiter)
        controller_unwatch_job(c, s->waiter);
    if (s->pending)
        s->pending->session = NULL;
    free(s->nodes);
    free(s->final);
    buf_done(&s->early_input);
    arena_done(&s->arena);
    free(s);
}

static void open_session(struct api_call *call, bool owns_job) {
    static const struct net_ws_callbacks callbacks = {
        .on_message = on_message, .on_drain = on_drain, .on_close = on_close};
    struct step_session *s = xcalloc(1, sizeof *s);
    *s = (struct step_session){
        .controller = call->controller, .actor = call->actor, .job = call->job, .owns_job = owns_job};
    snprintf(s->user, sizeof s->user, "%s", call->actor.user);
    s->actor.user = s->user;
    s->ws = net_upgrade_ws(call->req, NULL, &callbacks, s);
    if (s->ws)
        vec_push(&s->controller->step_sessions, s);
    else
        free(s);
}

void api_step(struct api_call *call) {
    open_session(call, false);
}

void api_allocate(struct api_call *call) {
    open_session(call, true);
}
