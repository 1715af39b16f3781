// Owns the conversations about steps (srun, exec) and allocations (salloc, srun alone), over a WebSocket. The
// step itself belongs to the core and to its nodes: a client that comes back with the same key goes on
// where it was. follow.h says what its messages look like: a client that gave a key keeps positions.
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "api.h"
#include "base/clock.h"
#include "base/text.h"
#include "step_request.h"
#include "step_watch.h"

enum step_phase {
    STEP_NEW,
    STEP_UNREPORTED,  // what the client had is not known: a node may report it (STEP_REPORT_WAIT_MS)
    STEP_FOR_JOB,
    STEP_QUEUED,
    STEP_COMMITTING,
    STEP_ATTACHED,
    STEP_OVER
};

struct step_session {
    struct controller *controller;
    struct net_ws *ws;
    struct actor actor;
    char user[USER_NAME_MAX];
    uint64_t job;
    uint32_t number;  // of the step that is being created
    bool owns_job;  // the job is there for this client
    bool alone;     // no step in it: salloc
    bool keyed;     // the client comes back when it is cut off
    bool watching;  // looks on at a step of another client (sattach)
    enum step_phase phase;
    struct arena arena;  // of the request
    const struct request_step *request;  // NULL: none
    const struct request_allocate *allocate;  // likewise
    struct request_step_session early;   // asked for while it was not reported: to be ended or given back
    struct step_watch *watch;            // NULL until it is known for which job
    struct waiter *waiter;
    struct step_commit *pending;
    bool told_busy, closed;
    bool settled;       // what was decided before the client came back is committed
    bool exec;          // one command on one node
    int64_t exec_node;  // its number in the job
    bool local;         // on this machine: its connection ends with it
    int64_t heard_ms;   // when the client last sent something
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

// --- the step ---

static void say_to(void *ctx, const struct schema *schema, const void *value) {
    say(ctx, schema, value);
}

static ssize_t send_output(void *ctx, const char *data, size_t len) {
    struct step_session *s = ctx;
    return net_ws_send(s->ws, WS_BINARY, data, len);
}

static void pause_input(void *ctx, bool on) {
    struct step_session *s = ctx;
    net_ws_pause(s->ws, on);
}

static void stream_failed(void *ctx, const struct error *e) {
    fail(ctx, e);
}

static void step_ended(void *ctx, const struct event_step *ended) {
    struct step_session *s = ctx;
    if (!s->keyed)
        give_back(s, ended->exit_code, ended->exit_signal);
}

static void step_complete(void *ctx, const char *final) {
    struct step_session *s = ctx;
    struct error e = {0};
    error_set(&e, EBUSY, "the job has ended, and how the step ended is not known");
    if (!s->closed && final)
        net_ws_send(s->ws, WS_TEXT, final, strlen(final));
    else if (!s->closed)
        api_session_error(s->ws, &e);
    s->phase = STEP_OVER;
    // A client with a key says that it has everything, and then gives its allocation back.
    if (!s->keyed)
        end_connection(s);
}

static uint64_t committed_seq(void *ctx) {
    const struct step_session *s = ctx;
    return pipeline_committed_seq(s->controller->pipeline);
}

static void new_watch(struct step_session *s) {
    static const struct step_watch_client client = {say_to,     send_output,   pause_input,  stream_failed,
                                                    step_ended, step_complete, committed_seq};
    s->watch = controller_step_watch_new(&(struct step_watch_options){.core = s->controller->core,
                                                                      .store = s->controller->store,
                                                                      .streams = &s->controller->streams,
                                                                      .actor = &s->actor,
                                                                      .client = &client,
                                                                      .ctx = s,
                                                                      .job = s->job,
                                                                      .keyed = s->keyed,
                                                                      .ranks = !s->exec,
                                                                      .watching = s->watching});
}

void controller_step_sessions_node_up(struct controller *c, const char *node) {
    for (uint32_t k = c->step_sessions.len; k-- > 0;) {
        struct step_session *s = c->step_sessions.at[k];
        controller_step_watch_node_up(s->watch, node);
        if (k > c->step_sessions.len)
            k = c->step_sessions.len;
    }
}

// A client that gave --wait counts from the first end on.
void controller_step_sessions_step_ended(struct controller *c, uint64_t job, uint32_t step,
                                         const char *node) {
    for (uint32_t k = c->step_sessions.len; k-- > 0;) {
        struct step_session *s = c->step_sessions.at[k];
        if (s->watch && s->job == job && controller_step_watch_number(s->watch) == step) {
            say(s, &answer_step_node_ended_schema, &(struct answer_step_node_ended){node});
            controller_step_watch_look(s->watch);
        }
        if (k > c->step_sessions.len)
            k = c->step_sessions.len;
    }
}

// --- creation ---

// The watch may be complete, and the session be over, when this returns.
static void attach(struct step_session *s, const struct event_step *started) {
    struct error e = {0};
    s->phase = STEP_ATTACHED;
    if (controller_step_watch_attach(s->watch, started, s->request->from.at, s->request->from.len, &e) < 0)
        fail(s, &e);
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
    int rc =
        controller_step_wish_read(s->request, r, s->exec ? &s->exec_node : NULL, &a, &wish, &environment, e);
    if (rc < 0)
        return rc;
    struct core_step_request q = {.key = wish.key,
                                  .name = wish.name,
                                  .request = &wish.place,
                                  .command = &wish.command,
                                  .lease_s = wish.lease_s};
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

static void wait_for_commit(struct step_session *s, uint32_t number, pipeline_done_fn then) {
    s->phase = STEP_COMMITTING;
    s->number = number;
    s->pending = xcalloc(1, sizeof *s->pending);
    s->pending->session = s;
    pipeline_when_committed(s->controller->pipeline, then, s->pending);
}

static void wait_for_room(struct step_session *s) {
    s->phase = STEP_QUEUED;
    if (!s->told_busy)
        say(s, &answer_step_waiting_schema, &(struct answer_step_waiting){"Requested nodes are busy"});
    s->told_busy = true;
}

static void begin_step(struct step_session *s);

static void settled(void *arg) {
    struct step_commit *p = arg;
    struct step_session *s = p->session;
    if (s) {
        s->pending = NULL;
        s->settled = true;
        begin_step(s);
    }
    free(p);
}

// Whether the request was made before, and what became of it: the client was cut off and has come back.
static bool resume(struct step_session *s) {
    const struct request_step *q = s->request;
    struct step_watch_question question = {
        q->key,     q->resume,   q->epoch,   q->attempt,
        q->from.at, q->from.len, s->settled, clock_mono_ms() - s->controller->started_mono_ms};
    struct core_step_view v;
    struct error e = {0};
    enum step_phase before = s->phase;
    s->phase = STEP_ATTACHED;
    int r = controller_step_watch_resume(s->watch, &question, &e);
    if (r == 0)
        s->phase = before;
    if (r == -EAGAIN)
        wait_for_commit(s, core_step_view(s->controller->core, s->job, 0, q->key, &v) ? v.number : 0, settled);
    else if (r == -EINPROGRESS)
        s->phase = STEP_UNREPORTED;
    else if (r < 0)
        fail(s, &e);
    return r != 0;
}

// Agents of the first release start steps in a way of their own and tell nobody how they end.
static int check_agents(const struct step_session *s, const struct job_record *r, struct error *e) {
    for (uint32_t i = 0; i < r->parts.len; i++) {
        const struct agent_conn *a = strmap_get(&s->controller->agents, r->parts.at[i].node);
        if (a && a->level == FEATURE_LEVEL_FIRST)
            return error_set(
                e, EPROTONOSUPPORT,
                "node %s has an agent of release %s, which cannot run commands and steps for this "
                "controller; upgrade it",
                r->parts.at[i].node, feature_level_release(FEATURE_LEVEL_FIRST));
    }
    return 0;
}

static void begin_step(struct step_session *s) {
    cleanup_arena struct arena a = {0};
    struct job_record r;
    struct error e = {0};
    if (resume(s))
        return;
    if (core_record(s->controller->core, s->job, &a, &r) < 0) {
        bool live, known = api_record(s->controller, s->job, &a, &r, &live) == 0;
        error_set(&e, known ? EBUSY : ENOENT, known ? "job %llu has already ended" : "there is no job %llu",
                  (unsigned long long)s->job);
        fail(s, &e);
        return;
    }
    // Until the job runs there is nothing to place the step on; on_job_changed comes back here when it does.
    s->phase = STEP_FOR_JOB;
    if (r.state == JOB_STARTING || (r.state == JOB_PENDING && s->owns_job))
        return;
    int rc = check_agents(s, &r, &e);
    if (rc == 0)
        rc = create(s, &r, &e);
    if (rc == -EAGAIN && !s->request->immediate) {
        wait_for_room(s);
    } else if (rc < 0) {
        fail(s, &e);
    } else {
        wait_for_commit(s, s->number, created);
    }
}

// {"attach": N}: looks on at a step that runs, and types into it.
static void begin_watching(struct step_session *s) {
    struct core_step_view v;
    struct error e = {0};
    uint32_t number = s->request->attach;
    if (!core_step_view(s->controller->core, s->job, number + 1, NULL, &v) || v.ended) {
        error_set(&e, ENOENT, "job %llu has no step %u that runs", (unsigned long long)s->job, number);
        fail(s, &e);
        return;
    }
    if (v.created_seq > pipeline_committed_seq(s->controller->pipeline))
        wait_for_commit(s, v.number, created);
    else
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
        controller_step_watch_look(s->watch);
        return;
    }
    if (core_view(s->controller->core, id, &v)) {
        if (s->owns_job)
            tell_state(s, &v);
        // An allocation without a step, a session that has not said yet what to run, a commit that is
        // awaited: none of them begins a step here.
        if (s->alone || s->phase == STEP_NEW || s->pending)
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
        say(p->session, &answer_session_job_schema, &(struct answer_session_job){p->announce, true});
        if (!core_view(p->session->controller->core, p->announce, &v) || v.state == JOB_RUNNING)
            on_job_changed(p->session, p->announce);  // a client that came back: nothing else may change
    }
    free(p);
}

// The client had a job that has started: it must be found by its key, here or when its node reports it after a restore
// of an older copy. Its command may run: no other job is submitted in its place.
static int find_allocation(struct step_session *s, const struct request_allocate *q, struct error *e) {
    struct controller *c = s->controller;
    uint64_t id;
    if (!q->job ||
        (q->submit->key && core_key_job(c->core, s->actor.user, q->submit->key, controller_now_ms(), &id)))
        return 0;
    if (clock_mono_ms() - c->started_mono_ms < STEP_REPORT_WAIT_MS)
        return error_set(e, EINPROGRESS, "no node has reported the allocation yet");
    return error_set(
        e, ESTALE,
        "the controller does not know job %llu any more: its state was restored from an older copy, and no "
        "node has reported the job; submit it again",
        (unsigned long long)q->job);
}

// {"submit": …, "step": …}: a job that is there for this client. A repeated submit finds it by its key.
static void begin_allocation(struct step_session *s, const struct request_allocate *q) {
    struct api_call call = {.controller = s->controller, .actor = s->actor};
    struct error e = {0};
    struct command_result job = {0};
    bool resumes = q->job || (q->step && q->step->resume);
    int r = q->submit->spec->launch != LAUNCH_STEPS
                ? error_set(&e, EINVAL, "field \"launch\" of the spec must be steps here")
            : resumes ? find_allocation(s, q, &e)
                      : api_check_storage(s->controller, &e);
    if (r == -EINPROGRESS) {
        s->phase = STEP_UNREPORTED;
        return;
    }
    if (r == 0)
        r = api_submit_one(&call, q->submit, &job, &e);
    arena_done(&call.arena);
    if (r < 0) {
        s->owns_job = false;
        fail(s, &e);
        return;
    }
    s->job = job.id;
    new_watch(s);
    s->request = q->step;
    s->alone = !s->request;
    s->phase = STEP_FOR_JOB;
    core_lease_renew(s->controller->core, s->job);
    s->pending = xcalloc(1, sizeof *s->pending);
    *s->pending = (struct step_commit){.session = s, .announce = s->job};
    pipeline_when_committed(s->controller->pipeline, submit_committed, s->pending);
    s->waiter = controller_watch_job(s->controller, s->job, on_job_changed, s);
}

static void cancel(struct step_session *s);

// Has a node reported it by now?
static void look_again(struct step_session *s) {
    if (s->phase != STEP_UNREPORTED)
        return;
    if (s->owns_job && !s->job)
        begin_allocation(s, s->allocate);
    else
        begin_step(s);
    if (s->phase == STEP_UNREPORTED || s->phase == STEP_OVER)
        return;
    if (schema_given(&request_step_session_schema, &s->early, &s->early.give_back) && s->owns_job) {
        give_back(s, s->early.give_back, s->early.give_back_signal);
        end_connection(s);
    } else if (s->early.cancel) {
        cancel(s);
    }
}

void controller_step_sessions_renew(struct controller *c) {
    for (uint32_t i = c->step_sessions.len; i-- > 0;) {
        if (i >= c->step_sessions.len)
            continue;
        struct step_session *s = c->step_sessions.at[i];
        look_again(s);
        // A client with a key sends something now and then: a connection over a network may be half open.
        bool there =
            !s->closed && (!s->keyed || s->local || clock_mono_ms() - s->heard_ms < CORE_CLIENT_SILENT_MS);
        if (s->owns_job && s->job && there)
            core_lease_renew(c->core, s->job);
        if (there && s->watch)
            controller_step_watch_renew(s->watch);
        if (there && s->phase == STEP_COMMITTING && !s->watching)
            core_step_renew(c->core, s->job, s->number);
        if (controller_step_watch_is_ending(s->watch))
            controller_step_watch_look(s->watch);  // a node may have been given up
    }
}

// --- messages ---

static void begin(struct step_session *s, struct request_step *step) {
    s->request = step;
    s->keyed = step->key != NULL;
    s->watching = schema_given(&request_step_schema, step, &step->attach);
    new_watch(s);
    s->waiter = controller_watch_job(s->controller, s->job, on_job_changed, s);
    if (s->watching)
        begin_watching(s);
    else
        begin_step(s);
}

// It is kept: the step is made from it when there is room.
static void first_message(struct step_session *s, const char *data, size_t len) {
    struct request_allocate *allocate = arena_alloc(&s->arena, sizeof *allocate);
    struct request_exec exec;
    struct request_step *step = arena_alloc(&s->arena, sizeof *step);
    struct error e = {0};
    const struct schema *schema = s->owns_job ? &request_allocate_schema
                                  : s->exec   ? &request_exec_schema
                                              : &request_step_schema;
    void *out = s->owns_job ? (void *)allocate : s->exec ? (void *)&exec : (void *)step;
    if (api_session_read(data, len, schema, &s->arena, out, &e) < 0) {
        fail(s, &e);
    } else if (s->owns_job) {
        s->keyed = allocate->submit->key != NULL;
        s->allocate = allocate;
        begin_allocation(s, allocate);
    } else {
        if (s->exec) {
            controller_step_from_exec(&exec, step);
            s->exec_node = exec.node;
        }
        begin(s, step);
    }
}

static void signal_step(struct step_session *s, uint32_t signal, bool end) {
    struct error ignored = {0};
    uint32_t number = s->phase == STEP_COMMITTING ? s->number
                      : s->phase == STEP_ATTACHED ? controller_step_watch_number(s->watch)
                                                  : 0;
    if (number)
        core_step_signal(s->controller->core, &s->actor, s->job, number, signal, end, controller_now_ms(),
                         &ignored);
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
    if (q.ping)
        say(s, &answer_step_pong_schema, &(struct answer_step_pong){true});
    bool gives_back = schema_given(&request_step_session_schema, &q, &q.give_back);
    if (s->phase == STEP_UNREPORTED && (q.cancel || gives_back)) {
        s->early = q;
        look_again(s);
        return;
    }
    if (!s->watch)
        return;  // its first message was refused, or what it had is not known
    if (q.resize.len == 2)
        controller_follow_resize(controller_step_watch_follow(s->watch), q.resize.at[0], q.resize.at[1]);
    controller_follow_acknowledge(controller_step_watch_follow(s->watch), q.ack.at, q.ack.len);
    if (q.signal)
        signal_step(s, q.signal, q.signal == SIGKILL);
    if (q.cancel)
        cancel(s);
    if (q.received || gives_back)
        controller_step_watch_received(s->watch);
    if (q.received && !s->owns_job && s->phase == STEP_OVER)
        end_connection(s);
    if (gives_back && s->owns_job) {
        give_back(s, q.give_back, q.give_back_signal);
        end_connection(s);
    }
}

static void on_binary(struct step_session *s, const char *data, size_t len) {
    struct error e = {0};
    if (s->watch && controller_follow_binary(controller_step_watch_follow(s->watch), data, len, &e) == 0)
        return;
    if (!s->watch)
        error_set(&e, EINVAL, "the first message must be a request");
    signal_step(s, SIGTERM, true);
    fail(s, &e);
}

static void on_message(struct net_ws *ws, enum ws_opcode type, const char *data, size_t len, void *user) {
    struct step_session *s = user;
    s->heard_ms = clock_mono_ms();
    if (type == WS_TEXT)
        on_text(s, data, len);
    else if (s->phase != STEP_OVER)
        on_binary(s, data, len);
}

static void on_drain(struct net_ws *ws, void *user) {
    struct step_session *s = user;
    if (s->watch)
        controller_follow_drained(controller_step_watch_follow(s->watch));
}

// Without a key the client cannot come back: what it had ends with its connection.
static void end_with_client(struct step_session *s) {
    struct job_view v;
    if (s->keyed || s->watching)
        return;
    if (!controller_step_watch_knows_end(s->watch))
        signal_step(s, SIGHUP, true);
    if (s->owns_job && s->job && core_view(s->controller->core, s->job, &v) && v.state != JOB_COMPLETING)
        cancel_job(s, "its connection is gone");
}

static void on_close(struct net_ws *ws, int status, const char *reason, void *user) {
    struct step_session *s = user;
    struct controller *c = s->controller;
    s->closed = true;
    if (!c->stopping)
        end_with_client(s);
    s->watch = controller_step_watch_free(s->watch);
    for (uint32_t i = 0; i < c->step_sessions.len; i++)
        if (c->step_sessions.at[i] == s) {
            vec_remove(&c->step_sessions, i);
            break;
        }
    if (s->waiter)
        controller_unwatch_job(c, s->waiter);
    if (s->pending)
        s->pending->session = NULL;
    arena_done(&s->arena);
    free(s);
}

static void open_session(struct api_call *call, bool owns_job, bool exec) {
    static const struct net_ws_callbacks callbacks = {
        .on_message = on_message, .on_drain = on_drain, .on_close = on_close};
    struct step_session *s = xcalloc(1, sizeof *s);
    *s = (struct step_session){.controller = call->controller,
                               .actor = call->actor,
                               .job = exec ? api_first_worker(call->controller, call->job) : call->job,
                               .owns_job = owns_job,
                               .exec = exec,
                               .local = call->req->peer->kind == NET_PEER_UNIX,

                               .heard_ms = clock_mono_ms()};
    snprintf(s->user, sizeof s->user, "%s", call->actor.user);
    s->actor.user = s->user;
    s->ws = net_upgrade_ws(call->req, NULL, &callbacks, s);
    if (s->ws)
        vec_push(&s->controller->step_sessions, s);
    else
        free(s);
}

void api_step(struct api_call *call) {
    open_session(call, false, false);
}

void api_allocate(struct api_call *call) {
    open_session(call, true, false);
}

void api_exec(struct api_call *call) {
    open_session(call, false, true);
}
