// Clients of steps and their sessions with the controller. The controller's side is the product's own: which step a
// client means, streams, positions, the end and renewals are controller/step_watch.c, follow.c and stream.c. Every byte
// must come to the client once and in order, or it is told that some are missing; it is never given those of another
// step, also after restores.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "fault_sim.h"
#include "launch/relay.h"
#include "seams.h"
#include "state.h"

enum {
    WINDOW_BYTES = 2000,
    TURN_MS = 2000,
    OUTPUT_HEAD = 17,  // channel, rank, number of the stream, position
    LEASE_SLACK_MS = 5000,
    UNREPORTED_MAX = 4,  // looks in a row at which a step that its node has reported is not known
};

typedef unsigned long long ull;

enum output_delivery_kind { DELIVERY_STARTED, DELIVERY_OUTPUT, DELIVERY_MISSING, DELIVERY_FINAL };

// On its way from the controller to a client.
struct output_delivery {
    enum output_delivery_kind kind;
    uint32_t watcher;
    uint64_t session, epoch;
    uint32_t step, attempt, node_count;
    const char *nodes[MACHINES_MAX];
    char *data;
    size_t len;
};

static const struct actor root = {"root", 0, 0, true};

static struct machine *machine_named(struct sim *s, const char *node) {
    for (uint32_t i = 0; i < s->machine_count; i++)
        if (streq(s->machines[i].name, node))
            return &s->machines[i];
    return NULL;
}

// The number by which machines know its job. A leader goes on for a moment when the database is replaced by a copy that
// does not know the job.
static uint64_t agent_id(struct sim *s, struct watcher *w) {
    const struct placement *p = check_placement(check_told(&s->check, w->id), w->attempt);
    if (p && p->agent_id)
        w->agent_id = p->agent_id;
    return w->agent_id ? w->agent_id : w->id;
}

// What the machine has of the output that the client asks for.
static bool truth_of(struct sim *s, struct watcher *w, const char *node, struct stream_truth *out) {
    struct machine *m = machine_named(s, node);
    return m && stream_find(m, agent_id(s, w), w->attempt, w->step, w->epoch, out);
}

// --- the daemon around the controller's streams ---

static bool send_to_node(void *ctx, const char *node, enum message_type type, void *body) {
    struct sim *s = ctx;
    cleanup_buf struct buf b = {0};
    struct conn *c = s->head->muted ? NULL : head_route(s, node);
    struct message_step *attach = body;
    if (type == MESSAGE_STEP_ATTACH && attach->offset && seams_planted(PLANTED_STREAM_MISSES))
        attach->tail = true;
    message_encode(&(struct message){type, body}, &b);
    if (c)
        head_say(s, c, b.data, b.len);
    return c != NULL;
}

static bool is_connected(void *ctx, const char *node) {
    return head_route(ctx, node) != NULL;
}

static bool is_ready(void *ctx, const char *node) {
    const struct conn *c = head_route(ctx, node);
    return c && c->ready;
}

static bool is_given_up(void *ctx, const char *node) {
    const struct sim *s = ctx;
    struct node_view v;
    return !core_node(s->head->core, node, &v) || v.state == NODE_DOWN;
}

static size_t backlog_of(void *ctx, const char *node) {
    return 0;
}

static int64_t now_of(void *ctx) {
    return head_wall_ms(ctx);
}

static uint32_t level_of(void *ctx, const char *node) {
    const struct conn *c = head_route(ctx, node);
    const struct sim *s = ctx;
    return c && !s->machines[c->machine].shape->older ? FEATURE_LEVEL_NEWEST : 0;
}

static const struct stream_host stream_host = {send_to_node, is_connected, is_ready, is_given_up,
                                               backlog_of,   now_of,       level_of};

void watchers_head_started(struct sim *s) {
    s->head->streams = (struct stream_table){.host = &stream_host, .ctx = s, .window_bytes = WINDOW_BYTES};
}

static void end_session(struct watcher *w) {
    w->watch = controller_step_watch_free(w->watch);
    w->session = 0;
}

void watchers_head_gone(struct sim *s) {
    port_head_gone(s);
    logs_head_gone(s);
    for (uint32_t i = 0; i < s->watchers.len; i++) {
        end_session(s->watchers.at[i]);
        s->watchers.at[i]->asked_seq = 0;
    }
    controller_streams_done(&s->head->streams);
}

void watchers_node_up(struct sim *s, const char *node) {
    logs_node_up(s, node);
    for (uint32_t i = 0; i < s->watchers.len; i++)
        controller_step_watch_node_up(s->watchers.at[i]->watch, node);
}

void watchers_look(struct sim *s) {
    for (uint32_t i = 0; i < s->watchers.len; i++)
        controller_step_watch_look(s->watchers.at[i]->watch);
}

static void renewed(struct sim *s, struct watcher *w) {
    w->renewed_awake_ms = head_awake_ms(s);
    w->renewed_life = s->head->life;
}

// Every lease has its full term from then on, as those of allocations (holder.c).
void watchers_leases_begin(struct sim *s) {
    for (uint32_t i = 0; i < s->watchers.len; i++)
        if (s->watchers.at[i]->renewed_life)
            renewed(s, s->watchers.at[i]);
}

void watchers_renew(struct sim *s) {
    for (uint32_t i = 0; i < s->watchers.len; i++) {
        struct watcher *w = s->watchers.at[i];
        if (controller_step_watch_attached(w->watch)) {
            controller_step_watch_renew(w->watch);
            renewed(s, w);
        }
        controller_step_watch_look(w->watch);
    }
}

void watcher_lease_ended(struct sim *s, const struct event_step_ending *b) {
    if (s->check.rereading || !b->reason || !strstr(b->reason, "client was not connected"))
        return;
    for (uint32_t i = 0; i < s->watchers.len; i++) {
        const struct watcher *w = s->watchers.at[i];
        int64_t away_ms = head_awake_ms(s) - w->renewed_awake_ms;
        bool same = w->id == b->id && w->epoch && w->attempt == b->attempt && w->step == b->step;
        if (same && !s->restored && w->renewed_life == s->head->life &&
            away_ms < SIM_STEP_LEASE_S * 1000 - LEASE_SLACK_MS)
            sim_fail(s, "job %llu step %u was ended %lld ms after its client was there", (ull)b->id, b->step,
                     (long long)away_ms);
    }
}

// --- from the controller to the client ---

struct telling {  // what the callbacks of a session know
    struct sim *sim;
    uint32_t watcher;
};

static struct output_delivery *deliver(const struct telling *t, enum output_delivery_kind kind, const void *data,
                                       size_t len) {
    struct sim *s = t->sim;
    struct watcher *w = s->watchers.at[t->watcher];
    struct output_delivery *d = xcalloc(1, sizeof *d);
    *d = (struct output_delivery){.kind = kind, .watcher = w->number, .session = w->session, .len = len};
    d->data = xmemdup(data, len);
    vec_push(&s->deliveries, d);
    int64_t at_ms = s->now_ms + some_ms(s, 1, s->plan->latency_ms);
    w->due_ms = at_ms > w->due_ms ? at_ms : w->due_ms;  // in order
    queue_put(&s->queue, w->due_ms, HAPPEN_OUTPUT, s->deliveries.len - 1, 0, 0);
    return d;
}

static void tell_started(struct telling *t, const struct answer_step_started *a) {
    struct sim *s = t->sim;
    const struct watcher *w = s->watchers.at[t->watcher];
    struct output_delivery *d = deliver(t, DELIVERY_STARTED, "", 0);
    struct core_step_view v;
    d->epoch = a->epoch;
    d->step = a->step + 1;
    d->attempt = a->attempt;
    if (!core_step_view(s->head->core, w->id, d->step, NULL, &v) || v.started->attempt != a->attempt) {
        d->node_count = check_step_nodes(s, w->id, d->attempt, d->step, d->nodes);  // it has ended
        return;
    }
    for (uint32_t i = 0; i < v.started->parts.len && i < MACHINES_MAX; i++)
        d->nodes[d->node_count++] = arena_strdup(&s->arena, v.started->parts.at[i].node);
}

// A client must not be told that output is gone which its node has.
static void tell_missing(struct telling *t, const struct answer_step_missing *a) {
    struct sim *s = t->sim;
    struct watcher *w = s->watchers.at[t->watcher];
    struct stream_truth truth;
    const struct machine *m = machine_named(s, a->node);
    if (w->epoch && m && m->logic && head_route(s, a->node) && truth_of(s, w, a->node, &truth) &&
        !truth.removed)
        sim_fail(s, "job %llu step %u: its client was told that the output of %s is missing, which is there",
                 (ull)w->id, w->step, a->node);
    deliver(t, DELIVERY_MISSING, a->node, strlen(a->node));
}

static void on_say(void *ctx, const struct schema *schema, const void *value) {
    if (schema == &answer_step_started_schema)
        tell_started(ctx, value);
    else if (schema == &answer_step_missing_schema)
        tell_missing(ctx, value);
}

static ssize_t on_send(void *ctx, const char *data, size_t len) {
    const struct telling *t = ctx;
    struct watcher *w = t->sim->watchers.at[t->watcher];
    deliver(t, DELIVERY_OUTPUT, data, len);
    w->behind |= rand_below(&t->sim->rand, 8) == 0;
    return w->behind ? STREAM_BACKLOG_BYTES + 1 : 0;
}

static void on_pause(void *ctx, bool on) {
}

static void on_failed(void *ctx, const struct error *e) {
    const struct telling *t = ctx;
    sim_fail(t->sim, "a stream cannot be opened: %s", e->text);
}

static void on_ended(void *ctx, const struct event_step *ended) {
}

static void on_complete(void *ctx, const char *final) {
    deliver(ctx, DELIVERY_FINAL, final ? final : "", final ? strlen(final) : 0);
}

static uint64_t on_committed_seq(void *ctx) {
    const struct telling *t = ctx;
    return pipeline_committed_seq(t->sim->head->pipeline);
}

// --- the client ---

void watcher_begin(struct sim *s, uint64_t id, uint32_t item) {
    struct watcher *w = xcalloc(1, sizeof *w);
    *w = (struct watcher){.number = s->watchers.len, .id = id, .item = item};
    snprintf(w->key, sizeof w->key, "step-%u", item);
    vec_push(&s->watchers, w);
    after(s, some_ms(s, 1, TURN_MS), HAPPEN_WATCH, w->number, 0, 0);
}

// Whether the job has a part on each node of the step: nodes may report theirs one after the other.
static bool has_its_nodes(struct core_job *j, const struct watcher *w) {
    uint32_t n = 0;
    while (n < w->node_count && core_part_on(j, w->nodes[n]))
        n++;
    return n == w->node_count;
}

// After a restore: a step that runs on its first node, which has reported it, in a job that goes on is adopted once its
// other nodes have reported the job. But one whose number was given to another step of this state is not, nor one that
// was reported before an upgrade. It is adopted when the node has been asked how it was created and has answered: not
// while question or answer are held up, or were lost with a connection that both ends still take for open. They notice
// that by their time-outs, later than these looks; the node then says hello again, and is asked again.
static void look_for_it(struct sim *s, struct watcher *w) {
    const struct placement *p = check_placement(check_told(&s->check, w->id), w->attempt);
    struct core_job *j = core_find_job(s->head->core, w->id);
    struct machine *m = w->node_count ? machine_named(s, w->nodes[0]) : NULL;
    struct sim_unit *u = m && p ? unit_find(m, p->agent_id ? p->agent_id : w->id, w->attempt) : NULL;
    const struct sim_step *t = u ? step_find(u, w->step) : NULL;
    const struct conn *c = m ? head_route(s, m->name) : NULL;
    bool adopts =
        core_feature(s->check.shadow, FEATURE_ADOPTED_STEPS) && c && c->hello_seq > s->check.level_seq;
    if (!t || !t->live || t->epoch != w->epoch || !t->origin.len || m->shape->older || !c || !c->ready ||
        !net_is_prompt(s, c)) {
        w->unreported = 0;
        return;
    }
    if (j && j->attempt == w->attempt && j->run && !j->run->ending && j->run->epoch == u->epoch &&
        core_steps_own(j) < w->step && has_its_nodes(j, w) && adopts && ++w->unreported > UNREPORTED_MAX)
        sim_fail(s, "job %llu step %u: its client does not find it, and it runs on %s", (ull)w->id, w->step,
                 m->name);
}

// Told that the controller does not know its step any more. That must not happen to one that runs.
static void lost(struct sim *s, struct watcher *w) {
    struct core_step_view v;
    note(s, "client: job %llu step %u is lost", (ull)w->id, w->step);
    if (core_step_view(s->head->core, w->id, w->step, w->key, &v) && v.started->epoch == w->epoch &&
        v.started->attempt == w->attempt)
        sim_fail(s, "job %llu step %u: its client was told that nobody knows it", (ull)w->id, w->step);
    w->done = true;
    end_session(w);
}

static void begin_session(struct sim *s, struct watcher *w) {
    static const struct step_watch_client client = {on_say, on_send, on_pause, on_failed, on_ended, on_complete,
                                                    on_committed_seq};
    struct telling *t = arena_alloc(&s->arena, sizeof *t);
    struct error e = {0};
    struct job_view j;
    uint64_t committed = pipeline_committed_seq(s->head->pipeline);
    head_serve(s);
    *t = (struct telling){s, w->number};
    w->session = ++s->sessions_made;
    w->behind = false;
    w->watch = controller_step_watch_new(&(struct step_watch_options){.core = s->head->core,
                                                                      .store = s->head->store,
                                                                      .streams = &s->head->streams,
                                                                      .actor = &root,
                                                                      .client = &client,
                                                                      .ctx = t,
                                                                      .job = w->id,
                                                                      .keyed = true,
                                                                      .ranks = true});
    // Its request made the step, so it comes back each time. Steps of the first level have no epoch to name.
    struct step_watch_question q = {.key = w->key,
                                    .resume = true,
                                    .epoch = w->epoch,
                                    .attempt = w->epoch ? w->attempt : 0,
                                    .from = w->from,
                                    .from_count = w->node_count,
                                    .settled = w->asked_seq && committed >= w->asked_seq,
                                    .up_ms = s->now_ms - s->head->started_ms};
    int r = controller_step_watch_resume(w->watch, &q, &e);
    if (r == -EAGAIN ||
        r == -EINPROGRESS) {  // asked again: when everything is committed, when nodes have reported
        w->asked_seq = w->asked_seq ? w->asked_seq : core_seq(s->head->core);
        end_session(w);
        if (r == -EINPROGRESS)
            look_for_it(s, w);
        return;
    }
    w->asked_seq = 0;
    if (r < 0 && e.code != ESTALE)
        sim_fail(s, "job %llu: a client that comes back is refused: %s", (ull)w->id, e.text);
    if (r < 0)
        lost(s, w);
    if (r == 0) {  // none was made for it: now it is
        w->done = s->cleaning || !core_view(s->head->core, w->id, &j);
        if (!w->done)
            client_step_again(s, w->item, w->id);
        end_session(w);
    }
}

static void acknowledge(struct sim *s, struct watcher *w) {
    struct controller_follow *f = controller_step_watch_follow(w->watch);
    controller_follow_acknowledge(f, w->from, w->node_count);
    if (w->behind)
        controller_follow_drained(f);
    w->behind = false;
    if (!w->final)
        return;
    controller_step_watch_received(w->watch);
    w->done = true;
    end_session(w);
}

// A turn: the connection is looked at and opened again, and what was read is acknowledged.
void watcher_turn(struct sim *s, struct watcher *w) {
    bool reachable = head_reachable(s);
    if (w->done)
        return;
    if (w->watch && !s->cleaning && rand_below(&s->rand, 12) == 0)
        end_session(w);  // its connection was cut
    if (!w->watch && reachable)
        begin_session(s, w);
    else if (w->watch && reachable)
        acknowledge(s, w);
    if (!w->done)
        after(s, some_ms(s, TURN_MS / 4, TURN_MS), HAPPEN_WATCH, w->number, 0, 0);
}

static void take_started(struct sim *s, struct watcher *w, const struct output_delivery *d) {
    if (w->epoch && (d->epoch != w->epoch || d->attempt != w->attempt || d->step != w->step))
        sim_fail(s, "job %llu: the client of step %u is shown step %u, another one", (ull)w->id, w->step, d->step);
    w->epoch = d->epoch;
    w->step = d->step;
    w->attempt = d->attempt;
    if (!d->node_count)
        return;
    w->node_count = d->node_count;
    memcpy(w->nodes, d->nodes, sizeof w->nodes);
}

static uint64_t number_at(const char *p, int bytes) {
    uint64_t v = 0;
    for (int i = 0; i < bytes; i++)
        v |= (uint64_t)(unsigned char)p[i] << (8 * i);
    return v;
}

static void take_output(struct sim *s, struct watcher *w, const struct output_delivery *d) {
    uint32_t node = (uint32_t)number_at(d->data + 5, 4);
    uint64_t end = number_at(d->data + 9, 8), len = d->len - OUTPUT_HEAD, *from = &w->from[node];
    uint64_t id = agent_id(s, w);
    if (node >= w->node_count) {
        sim_fail(s, "job %llu step %u: output of a node that it does not have", (ull)w->id, w->step);
        return;
    }
    if (end != *from + sizeof(struct relay_record) + len)
        sim_fail(s, "job %llu step %u on %s: output up to %llu comes after output up to %llu: bytes %s",
                 (ull)w->id, w->step, w->nodes[node], (ull)end, (ull)*from,
                 end > *from ? "are missing" : "are repeated");
    for (uint64_t i = 0; i < len && !s->failed; i++)
        if (d->data[OUTPUT_HEAD + i] != stream_content(id, w->epoch, w->step, w->got[node] + i))
            sim_fail(s, "job %llu step %u: byte %llu is not what was printed", (ull)w->id, w->step,
                     (ull)(w->got[node] + i));
    *from = end;
    w->got[node] += len;
    s->output_bytes += len;
}

static void take_missing(struct watcher *w, const struct output_delivery *d) {
    for (uint32_t i = 0; i < w->node_count; i++)
        if (strlen(w->nodes[i]) == d->len && memcmp(w->nodes[i], d->data, d->len) == 0)
            w->missing[i] = true;
}

// Complete, or the client was told.
static void take_final(struct sim *s, struct watcher *w) {
    w->final = true;
    for (uint32_t i = 0; i < w->node_count; i++) {
        struct stream_truth truth;
        if (w->missing[i] || !truth_of(s, w, w->nodes[i], &truth))
            continue;
        if (w->from[i] != truth.len || w->got[i] != truth.kept)
            sim_fail(s, "job %llu step %u on %s: the stream ended with %llu bytes of %llu, and nobody was told",
                     (ull)w->id, w->step, w->nodes[i], (ull)w->got[i], (ull)truth.kept);
    }
}

void watcher_output(struct sim *s, uint32_t number) {
    struct output_delivery *d = s->deliveries.at[number];
    struct watcher *w = s->watchers.at[d->watcher];
    bool there = w->session == d->session && !w->done;
    if (there && d->kind == DELIVERY_STARTED)
        take_started(s, w, d);
    else if (there && d->kind == DELIVERY_OUTPUT)
        take_output(s, w, d);
    else if (there && d->kind == DELIVERY_MISSING)
        take_missing(w, d);
    else if (there)
        take_final(s, w);
    free(d->data);
    d->data = NULL;
}

static bool has_older_agent(const struct sim *s, const char *node) {
    for (uint32_t i = 0; i < s->machine_count; i++)
        if (streq(s->machines[i].name, node))
            return s->machines[i].shape->older;
    return false;
}

// Of a node that is away for good no more output can come, nor of one whose agent knows no steps.
bool watchers_done_waiting(struct sim *s) {
    for (uint32_t i = 0; i < s->watchers.len; i++) {
        const struct watcher *w = s->watchers.at[i];
        bool gone = false;
        for (uint32_t k = 0; k < w->node_count; k++)
            gone |= !head_route(s, w->nodes[k]) || has_older_agent(s, w->nodes[k]);
        if (!w->done && !gone)
            return false;
    }
    return true;
}

void watchers_done(struct sim *s) {
    for (uint32_t i = 0; i < s->deliveries.len; i++) {
        free(s->deliveries.at[i]->data);
        free(s->deliveries.at[i]);
    }
    for (uint32_t i = 0; i < s->watchers.len; i++)
        free(s->watchers.at[i]);
    vec_done(&s->deliveries);
    vec_done(&s->watchers);
}
