// Owns what a client has of a step.
#include "step_watch.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "step_report.h"

struct step_watch {
    struct step_watch_options o;
    struct arena arena;
    uint64_t agent_job, epoch;
    uint32_t attempt, number;
    bool attached, complete;
    bool unknown;  // how it ended cannot be found out
    uint64_t gone_seq;  // the newest event when its job was first found gone; 0: it was not
    const char **nodes;
    uint32_t node_count;
    struct controller_follow *follow;
    char *final;  // last message, sent when the output is complete; NULL: not known yet
};

// --- from the journal ---

struct step_history {
    struct arena *arena;
    uint32_t attempt, number;
    const char *key;
    uint64_t epoch;      // of the step; 0: whichever has the key
    uint64_t agent_job;  // 0: the job's own
    struct event_step *started, *ended;
};

static int take_history(void *ctx, const struct store_event *e) {
    struct step_history *h = ctx;
    struct event event;
    bool wanted = e->type == EVENT_STEP_STARTED || e->type == EVENT_STEP_ENDED || e->type == EVENT_JOB_PLACED;
    if (!wanted || event_decode((enum event_type)e->type, e->data, e->len, h->arena, &event) < 0)
        return 0;
    struct event_step *b = event.body;
    const struct event_job_placed *placed = event.body;
    if (e->type == EVENT_JOB_PLACED) {
        // The newest placement up to the attempt: after a restore the node may know the job by another number.
        if (!h->attempt || placed->attempt <= h->attempt)
            h->agent_job = placed->agent_id;
    } else if (e->type == EVENT_STEP_STARTED && (!h->attempt || b->attempt == h->attempt) &&
               (!h->epoch || !b->epoch || b->epoch == h->epoch) &&
               (h->number ? b->step == h->number : h->key && streq(b->key, h->key))) {
        h->number = b->step;
        h->attempt = b->attempt;
        h->started = b;
    } else if (e->type == EVENT_STEP_ENDED && h->started && b->step == h->number &&
               b->attempt == h->attempt) {
        h->ended = b;
    }
    return h->ended != NULL;
}

// A step that the core does not know any more.
static bool find_in_history(struct step_watch *w, const char *key, uint64_t epoch, struct step_history *h,
                            struct arena *a) {
    struct error ignored = {0};
    *h = (struct step_history){
        .arena = a, .attempt = w->attempt, .number = w->number, .key = key, .epoch = epoch};
    return store_events(w->o.store, w->o.job, 0, 0, take_history, h, &ignored) >= 0 && h->ended;
}

uint64_t controller_agent_job(const struct core *core, struct store *store, uint64_t job, uint32_t attempt) {
    cleanup_arena struct arena a = {0};
    struct error ignored = {0};
    struct step_history h = {.arena = &a, .attempt = attempt};
    uint64_t known = core_agent_job_number(core, job, attempt);
    if (known)
        return known;
    store_events(store, job, 0, 0, take_history, &h, &ignored);
    return h.agent_job ? h.agent_job : job;
}

// --- the end ---

static void write_final(struct step_watch *w, const struct event_step *started,
                        const struct event_step *ended) {
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf b = {0};
    struct answer_step_result end = {.exit_code = ended->exit_code, .exit_signal = ended->exit_signal};
    end.nodes.at = arena_alloc(&a, (ended->ends.len + 1) * sizeof *end.nodes.at);
    for (; end.nodes.len < ended->ends.len && end.nodes.len < started->parts.len; end.nodes.len++)
        controller_step_report(&ended->ends.at[end.nodes.len], &started->parts.at[end.nodes.len], &a,
                               &end.nodes.at[end.nodes.len]);
    schema_write_json(&answer_step_result_schema, &end, &(struct json_writer){.out = &b});
    w->final = buf_take(&b);
    w->o.client->ended(w->o.ctx, ended);
}

// Its job has ended, or was given back to the queue: what a lost node had of the step does not come any more.
static bool attempt_is_over(const struct step_watch *w) {
    struct job_view v;
    return !core_view(w->o.core, w->o.job, &v) || v.state == JOB_PENDING || v.attempt != w->attempt;
}

static void finish_if_complete(struct step_watch *w) {
    if (!controller_step_watch_attached(w) || !controller_step_watch_knows_end(w) ||
        !controller_follow_complete(w->follow, attempt_is_over(w)))
        return;
    w->complete = true;
    w->o.client->complete(w->o.ctx, w->final);
}

// Numbers come again in another attempt, and in a state that was restored.
static bool is_same(const struct step_watch *w, const struct event_step *started) {
    return started->epoch == w->epoch && started->attempt == w->attempt;
}

static void look_for_final(struct step_watch *w) {
    cleanup_arena struct arena a = {0};
    struct core_step_view v;
    struct step_history h;
    struct job_view j;
    if (core_step_view(w->o.core, w->o.job, w->number, NULL, &v) && is_same(w, v.started)) {
        if (v.ended)
            write_final(w, v.started, v.ended);
    } else if (find_in_history(w, NULL, w->epoch, &h, &a) && is_same(w, h.started)) {
        write_final(w, h.started, h.ended);
    } else if (!core_view(w->o.core, w->o.job, &j)) {
        // The end of its job may be on its way to the disk, and its own with it.
        if (!w->gone_seq)
            w->gone_seq = core_seq(w->o.core);
        w->unknown = w->o.client->committed_seq(w->o.ctx) >= w->gone_seq;
    }
}

void controller_step_watch_look(struct step_watch *w) {
    if (!controller_step_watch_attached(w))
        return;
    controller_follow_open_waiting(w->follow);
    if (!w->final)
        look_for_final(w);
    finish_if_complete(w);
}

// --- streams ---

static bool open_stream(void *ctx, uint32_t i, uint64_t stream, uint64_t at, uint64_t file) {
    struct step_watch *w = ctx;
    struct message_step m = {.id = w->agent_job,
                             .attempt = w->attempt,
                             .step = w->number,
                             .epoch = w->epoch,
                             .stream = stream,
                             .offset = at,
                             .credit = controller_stream_window(w->o.streams, stream),
                             .tail = w->o.watching && !at};
    return w->o.streams->host->send(w->o.streams->ctx, w->nodes[i], MESSAGE_STEP_ATTACH, &m);
}

// A node that has not heard of the step would say that it has no output.
static bool node_waits(void *ctx, uint32_t i) {
    const struct step_watch *w = ctx;
    struct core_step_view v;
    return core_step_view(w->o.core, w->o.job, w->number, NULL, &v) && is_same(w, v.started) &&
           core_step_told_seq(w->o.core, w->o.job, w->number, i) > w->o.client->committed_seq(w->o.ctx);
}

static void stream_over(void *ctx) {
    controller_step_watch_look(ctx);
}

static void stream_failed(void *ctx, const struct error *e) {
    struct step_watch *w = ctx;
    w->o.client->failed(w->o.ctx, e);
}

static void say(void *ctx, const struct schema *schema, const void *value) {
    struct step_watch *w = ctx;
    w->o.client->say(w->o.ctx, schema, value);
}

static ssize_t send_output(void *ctx, const char *data, size_t len) {
    struct step_watch *w = ctx;
    return w->o.client->send(w->o.ctx, data, len);
}

static void pause_input(void *ctx, bool on) {
    struct step_watch *w = ctx;
    w->o.client->pause(w->o.ctx, on);
}

struct step_watch *controller_step_watch_new(const struct step_watch_options *o) {
    static const struct follow_client client = {open_stream, node_waits,  stream_over, stream_failed,
                                                say,         send_output, pause_input};
    struct step_watch *w = xcalloc(1, sizeof *w);
    w->o = *o;
    w->follow = controller_follow_new(&(struct follow_options){.streams = o->streams,
                                                               .actor = o->actor,
                                                               .client = &client,
                                                               .ctx = w,
                                                               .placed = o->keyed,
                                                               .ranks = o->ranks,
                                                               .watching = o->watching});
    return w;
}

struct step_watch *controller_step_watch_free(struct step_watch *w) {
    if (!w)
        return NULL;
    controller_follow_free(w->follow);
    free(w->final);
    arena_done(&w->arena);
    free(w);
    return NULL;
}

struct controller_follow *controller_step_watch_follow(struct step_watch *w) {
    return w->follow;
}

bool controller_step_watch_attached(const struct step_watch *w) {
    return w && w->attached && !w->complete;
}

bool controller_step_watch_knows_end(const struct step_watch *w) {
    return w && (w->final || w->unknown);
}

bool controller_step_watch_is_ending(const struct step_watch *w) {
    return controller_step_watch_knows_end(w) || (w && w->gone_seq);
}

uint32_t controller_step_watch_number(const struct step_watch *w) {
    return w->attached ? w->number : 0;
}

int controller_step_watch_attach(struct step_watch *w, const struct event_step *started, const uint64_t *from,
                                 uint32_t from_count, struct error *e) {
    w->number = started->step;
    w->attempt = started->attempt;
    w->epoch = started->epoch;
    w->agent_job = controller_agent_job(w->o.core, w->o.store, w->o.job, w->attempt);
    w->node_count = started->parts.len;
    w->nodes = arena_alloc(&w->arena, (w->node_count + 1) * sizeof *w->nodes);
    struct follow_source *sources = arena_alloc(&w->arena, (w->node_count + 1) * sizeof *sources);
    for (uint32_t i = 0; i < w->node_count; i++) {
        w->nodes[i] = core_intern(w->o.core, started->parts.at[i].node);
        sources[i] = (struct follow_source){.node = w->nodes[i], .node_index = i, .input = true};
    }
    int r = controller_follow_positions(from, from_count, sources, w->node_count, e);
    if (r < 0)
        return r;
    w->attached = true;
    say(w, &answer_step_started_schema,
        &(struct answer_step_started){started->step - 1, started->tasks, started->nodes ? started->nodes : "",
                                      started->epoch, started->attempt});
    controller_follow_open(w->follow, sources, w->node_count);
    controller_step_watch_look(w);
    return 0;
}

// It was told of a step or has some of its output.
static bool had_step(const struct step_watch_question *q) {
    for (uint32_t i = 0; q->resume && i < q->from_count; i++)
        if (q->from[i])
            return true;
    return q->epoch != 0;
}

static bool is_another(const struct event_step *started, const struct step_watch_question *q) {
    return started && ((q->epoch && started->epoch && started->epoch != q->epoch) ||
                       (q->attempt && started->attempt != q->attempt));
}

int controller_step_watch_resume(struct step_watch *w, const struct step_watch_question *q, struct error *e) {
    struct core_step_view v;
    struct step_history h;
    const struct event_step *started = NULL;
    if (!q->key)
        return 0;
    bool live = core_step_of_client(w->o.core, w->o.job, q->key, q->epoch, &v);
    if (live)
        started = v.started;
    bool other = is_another(started, q);
    if ((!live || other) && q->resume && find_in_history(w, q->key, q->epoch, &h, &w->arena)) {
        live = false;
        started = h.started;
        other = is_another(started, q);
    }
    if (!started && had_step(q) && !q->settled)
        return error_set(e, EAGAIN, "the end of the step may not be recorded yet");
    if (!started && had_step(q) && q->up_ms < STEP_REPORT_WAIT_MS)
        return error_set(e, EINPROGRESS, "no node has reported the step yet");
    bool unsupported = core_restore_ms(w->o.core) && !core_feature(w->o.core, FEATURE_ADOPTED_STEPS);
    if (other || (!started && had_step(q)))
        return error_set(
            e, ESTALE,
            unsupported
                ? "the controller's state was restored from an older copy, and steps of job %llu are "
                  "not adopted, because the upgrade of that copy is not finished; after 'acequia "
                  "upgrade finish' and another start of the controller they are. The step runs on "
                  "until its job ends; what it prints, and how it ends, cannot be shown now"
                : "the controller does not know this step of job %llu any more: its state was restored "
                  "from an older copy, or the job ended long ago. The step may run on until its job ends; what it "
                  "prints from here on, and how it ends, cannot be shown",
            (unsigned long long)w->o.job);
    if (!started)
        return 0;
    // It could be lost yet, and its nodes have not heard of it: they would say that it has no output.
    if (live && v.created_seq > w->o.client->committed_seq(w->o.ctx))
        return error_set(e, EAGAIN, "step %u is not recorded yet", v.number);
    int r = controller_step_watch_attach(w, started, q->from, q->from_count, e);
    return r < 0 ? r : 1;
}

void controller_step_watch_node_up(struct step_watch *w, const char *node) {
    if (controller_step_watch_attached(w))
        controller_follow_node_up(w->follow, node);
}

void controller_step_watch_renew(struct step_watch *w) {
    struct core_step_view v;
    if (controller_step_watch_attached(w) && !w->o.watching &&
        core_step_view(w->o.core, w->o.job, w->number, NULL, &v) && is_same(w, v.started))
        core_step_renew(w->o.core, w->o.job, w->number);
}

void controller_step_watch_received(struct step_watch *w) {
    struct message_step m = {
        .id = w->agent_job, .attempt = w->attempt, .step = w->number, .epoch = w->epoch};
    for (uint32_t i = 0; w->complete && !w->o.watching && i < w->node_count; i++)
        w->o.streams->host->send(w->o.streams->ctx, w->nodes[i], MESSAGE_STEP_RECEIVED, &m);
}
