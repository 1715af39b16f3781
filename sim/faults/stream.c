// Output of steps and those who read it: tasks print, the agent sends from a position on, the controller's session
// passes it on and attaches again when a node comes back, the client counts positions. Positions, budgets and what is
// dropped are the product's (launch/relay_flow.c), and so are the messages; sessions and clients follow the rules of
// controller/step_session.c. Every byte must come once and in order, or the client is told that some are missing.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "fault_sim.h"
#include "launch/relay_flow.h"
#include "seams.h"

enum {
    PIECE_MAX = 200,
    WINDOW_BYTES = 2000,
    TURN_MS = 2000,
    CLIENT_TERM_MS = 60000,  // without a client a step is not blocked any longer
    LEFTOVER_MS = 300000,    // output that nobody has read, after the end of its step
    UNHEARD_MS = 5000,       // for the order to start a step that is asked for already
};

static const struct relay_limits limits = {1500, 4000};  // small ones, so that they are met

struct sim_output {
    uint64_t id, epoch;
    uint32_t attempt, step;
    struct relay_page page;
    struct buf bytes;
    uint64_t kept;       // bytes of output in the records
    bool over, removed;  // the step has ended; its files are to go
    int64_t until_ms, alone_ms;
};

struct sim_stream {
    uint64_t number, id;
    uint32_t attempt, step;
    struct relay_reader reader;
    bool tail;
    int64_t begun_ms;
};

struct output_delivery {
    uint32_t watcher, node;
    uint64_t session, end, len, lost;
    char *data;
    bool last;
    const char *error;
};

// --- the machine ---

static struct sim_output *output_of(struct machine *m, uint64_t id, uint32_t attempt, uint32_t step) {
    for (uint32_t i = m->outputs.len; i-- > 0;) {
        struct sim_output *o = m->outputs.at[i];
        if (o->id == id && o->attempt == attempt && o->step == step)
            return o;
    }
    return NULL;
}

static void output_free(struct machine *m, uint32_t i) {
    buf_done(&m->outputs.at[i]->bytes);
    free(m->outputs.at[i]);
    vec_remove(&m->outputs, i);
}

void stream_spool_lost(struct machine *m) {
    while (m->outputs.len)
        output_free(m, m->outputs.len - 1);
}

void stream_machine_done(struct machine *m) {
    stream_spool_lost(m);
    vec_done(&m->outputs);
    vec_done(&m->streams);
}

void stream_step_started(struct sim *s, struct machine *m, const struct sim_unit *u,
                         const struct sim_step *t) {
    struct sim_output *o = xcalloc(1, sizeof *o);
    *o = (struct sim_output){.id = u->id, .epoch = u->epoch, .attempt = u->attempt, .step = t->number};
    atomic_store(&o->page.client, 1);
    vec_push(&m->outputs, o);
    after(s, some_ms(s, 1, 100), HAPPEN_PRINT, m->number, u->number << 32 | t->number, 0);
}

static char content(uint64_t id, uint32_t step, uint64_t at) {
    return (char)(id * 31 + step * 17 + at * 7 + (at >> 8));
}

static void print_piece(struct sim *s, struct sim_output *o) {
    char data[PIECE_MAX];
    struct relay_record head = {.rank = 0, .fd = 1, .len = (uint16_t)some_ms(s, 1, PIECE_MAX), .mark = RELAY_MARK};
    if (launch_relay_drops(&o->page, &limits)) {
        atomic_fetch_add(&o->page.out_lost, head.len);
        return;
    }
    for (uint32_t i = 0; i < head.len; i++)
        data[i] = content(o->id, o->step, o->kept + i);
    o->kept += head.len;
    buf_add(&o->bytes, &head, sizeof head);
    buf_add(&o->bytes, data, head.len);
    atomic_store(&o->page.out_len, o->bytes.len);
}

void stream_print(struct sim *s, struct machine *m, const struct sim_unit *u, const struct sim_step *t) {
    struct sim_output *o = output_of(m, u->id, u->attempt, t->number);
    if (!o || !t->live)
        return;
    bool waits = u->suspended || launch_relay_blocks(&o->page, &limits);
    for (uint64_t n = waits ? 0 : 1 + rand_below(&s->rand, 3); n; n--)
        print_piece(s, o);
    stream_pump(s, m);
    after(s, some_ms(s, 20, 1200), HAPPEN_PRINT, m->number, u->number << 32 | t->number, 0);
}

void stream_step_over(struct machine *m, const struct sim_unit *u, const struct sim_step *t) {
    struct sim_output *o = output_of(m, u->id, u->attempt, t->number);
    if (o)
        o->over = true;
}

// Its files stay until the client has everything, or for a time.
void stream_step_removed(struct sim *s, struct machine *m, uint64_t id, uint32_t attempt, uint32_t step) {
    for (uint32_t i = 0; i < m->outputs.len; i++) {
        struct sim_output *o = m->outputs.at[i];
        if (o->id == id && o->attempt == attempt && (!step || o->step == step) && !o->removed) {
            o->removed = o->over = true;
            o->until_ms = s->now_ms + LEFTOVER_MS;
        }
    }
}

// --- the agent ---

struct pumping {
    struct sim *sim;
    struct machine *machine;
    struct sim_stream *stream;
    const struct sim_output *output;
};

static void send_from(struct sim *s, struct machine *m, enum message_type type, struct message_stream *body) {
    cleanup_buf struct buf b = {0};
    message_encode(&(struct message){type, body}, &b);
    if (m->conn)
        net_send(s, m->conn, AGENT_END, b.data, b.len);
}

static ssize_t read_output(void *ctx, uint64_t at, void *data, size_t size) {
    const struct pumping *p = ctx;
    memcpy(data, p->output->bytes.data + at, size);
    return (ssize_t)size;
}

static void send_piece(void *ctx, const struct relay_record *r, const void *data, uint64_t end) {
    const struct pumping *p = ctx;
    struct message_stream m = {.stream = p->stream->number,
                               .fd = r->fd,
                               .task = r->rank,
                               .offset = end,
                               .data = {.data = (char *)(uintptr_t)data, .len = r->len}};
    send_from(p->sim, p->machine, MESSAGE_STREAM_DATA, &m);
}

static bool is_over(struct sim *s, struct machine *m, const struct sim_stream *t) {
    enum agent_step_phase phase = agent_steps_phase(agent_logic_steps(m->logic), t->id, t->attempt, t->step);
    if (phase == AGENT_STEP_UNKNOWN && agent_logic_phase(m->logic, t->id, t->attempt) == AGENT_RUNNING)
        return s->now_ms - t->begun_ms > UNHEARD_MS;
    return phase != AGENT_STEP_RUNNING;
}

// True: the stream has ended.
static bool pump_one(struct sim *s, struct machine *m, struct sim_stream *t) {
    static const struct relay_source source = {read_output, send_piece};
    bool over = is_over(s, m, t);
    struct sim_output *o = output_of(m, t->id, t->attempt, t->step);
    struct pumping p = {s, m, t, o};
    struct message_stream end = {.stream = t->number, .eof = true};
    if (!o && !over)
        return false;
    if (!o) {
        end.error = "its output is not on the node any more";
        send_from(s, m, MESSAGE_STREAM_END, &end);
        return true;
    }
    atomic_store(&o->page.client, 1);
    o->alone_ms = 0;
    if (t->tail)
        t->reader.at = o->bytes.len;
    t->tail = false;
    int sent = launch_relay_read(&t->reader, atomic_load(&o->page.out_len), &source, &p);
    if (sent < 0)
        sim_fail(s, "%s: a stream of job %llu step %u begins inside a piece of output", m->name,
                 (unsigned long long)t->id, t->step);
    if (!over || sent <= 0)
        return false;
    end.offset = t->reader.at;
    end.lost_bytes = atomic_load(&o->page.out_lost);
    send_from(s, m, MESSAGE_STREAM_END, &end);
    return true;
}

void stream_pump(struct sim *s, struct machine *m) {
    for (uint32_t i = m->streams.len; m->logic && i-- > 0;)
        if (pump_one(s, m, &m->streams.at[i]))
            vec_remove(&m->streams, i);
}

void stream_agent_message(struct sim *s, struct machine *m, const struct message *msg) {
    const struct message_step *attach = msg->body;
    const struct message_stream *credit = msg->body;
    if (msg->type == MESSAGE_STEP_ATTACH) {
        struct sim_stream t = {.number = attach->stream,
                               .id = attach->id,
                               .attempt = attach->attempt,
                               .step = attach->step,
                               .reader = {attach->offset, attach->credit},
                               .tail = attach->tail,
                               .begun_ms = s->now_ms};
        vec_push(&m->streams, t);
    }
    for (uint32_t i = 0; i < m->streams.len && msg->type != MESSAGE_STEP_ATTACH; i++) {
        struct sim_stream *t = &m->streams.at[i];
        struct sim_output *o = output_of(m, t->id, t->attempt, t->step);
        if (t->number != credit->stream)
            continue;
        if (msg->type == MESSAGE_STREAM_CREDIT && o && credit->offset)
            launch_relay_ack(&o->page, credit->offset, &limits);
        if (msg->type == MESSAGE_STREAM_CREDIT)
            t->reader.credit += credit->credit;
        if (msg->type == MESSAGE_STREAM_END)
            vec_remove(&m->streams, i--);
    }
    stream_pump(s, m);
}

void stream_agent_tick(struct sim *s, struct machine *m) {
    stream_pump(s, m);
    for (uint32_t i = m->outputs.len; i-- > 0;) {
        struct sim_output *o = m->outputs.at[i];
        bool read = atomic_load(&o->page.out_acked) >= atomic_load(&o->page.out_len);
        bool used = false;
        for (uint32_t k = 0; k < m->streams.len; k++)
            used |= m->streams.at[k].id == o->id && m->streams.at[k].attempt == o->attempt &&
                    m->streams.at[k].step == o->step;
        if (used || !m->conn)
            o->alone_ms = 0;
        else if (!o->alone_ms)
            o->alone_ms = s->now_ms;
        else if (s->now_ms - o->alone_ms > CLIENT_TERM_MS)
            atomic_store(&o->page.client, 0);
        if (o->removed && !used && (read || s->now_ms >= o->until_ms))
            output_free(m, i);
    }
}

// --- the controller's sessions ---

static void send_to_node(struct sim *s, const char *node, enum message_type type, void *body) {
    cleanup_buf struct buf b = {0};
    struct conn *c = head_route(s, node);
    message_encode(&(struct message){type, body}, &b);
    if (c)
        net_send(s, c, HEAD_END, b.data, b.len);
}

static bool has_session(const struct sim *s, const struct watcher *w) {
    return w->session && s->head.core && w->session_life == s->head.life;
}

static void attach(struct sim *s, struct watcher *w, uint32_t i) {
    if (w->stream[i] || w->finished[i] || !head_route(s, w->nodes[i]))
        return;
    bool again = w->attached[i];
    w->stream[i] = ++s->streams_made;
    w->attached[i] = true;
    struct message_step m = {.id = w->id,
                             .attempt = w->attempt,
                             .step = w->step,
                             .stream = w->stream[i],
                             .offset = w->at[i],
                             .credit = WINDOW_BYTES};
    if (again && seams_planted(PLANTED_STREAM_REPEATS))
        m.offset = 0;
    if (again && seams_planted(PLANTED_STREAM_MISSES))
        m.tail = true;
    send_to_node(s, w->nodes[i], MESSAGE_STEP_ATTACH, &m);
}

void stream_node_up(struct sim *s, const char *node) {
    for (uint32_t k = 0; k < s->watchers.len; k++) {
        struct watcher *w = s->watchers.at[k];
        for (uint32_t i = 0; has_session(s, w) && i < w->node_count; i++)
            if (streq(w->nodes[i], node))
                attach(s, w, i);
    }
}

// Streams belong to a connection: with it they are gone, also when it was only half open.
void stream_node_gone(struct sim *s, const char *node) {
    for (uint32_t k = 0; k < s->watchers.len; k++)
        for (uint32_t i = 0; i < s->watchers.at[k]->node_count; i++)
            if (streq(s->watchers.at[k]->nodes[i], node) && !seams_planted(PLANTED_STREAM_HANGS))
                s->watchers.at[k]->stream[i] = 0;
}

static struct watcher *by_stream(struct sim *s, uint64_t stream, const char *node, uint32_t *index) {
    for (uint32_t k = 0; k < s->watchers.len; k++)
        for (uint32_t i = 0; i < s->watchers.at[k]->node_count; i++)
            if (s->watchers.at[k]->stream[i] == stream && streq(s->watchers.at[k]->nodes[i], node)) {
                *index = i;
                return s->watchers.at[k];
            }
    return NULL;
}

void stream_head_message(struct sim *s, const char *node, const struct message *msg) {
    const struct message_stream *m = msg->body;
    uint32_t i = 0;
    struct watcher *w = m->stream ? by_stream(s, m->stream, node, &i) : NULL;
    if (!w || !has_session(s, w))
        return;
    struct output_delivery *d = xcalloc(1, sizeof *d);
    *d = (struct output_delivery){.watcher = w->number,
                           .node = i,
                           .session = w->session,
                           .end = m->offset,
                           .len = m->data.len,
                           .lost = m->lost_bytes,
                           .last = msg->type == MESSAGE_STREAM_END,
                           .error = m->error ? "told" : NULL};
    d->data = xmemdup(m->data.data ? m->data.data : "", m->data.len);
    if (d->last)
        w->stream[i] = 0;
    else
        w->at[i] = m->offset;
    if (d->last)
        w->finished[i] = true;
    vec_push(&s->deliveries, d);
    int64_t at_ms = s->now_ms + some_ms(s, 1, s->plan->latency_ms);
    if (at_ms > w->due_ms)
        w->due_ms = at_ms;  // in order
    queue_put(&s->queue, w->due_ms, HAPPEN_OUTPUT, s->deliveries.len - 1, 0, 0);
}

// --- the client ---

void watcher_begin(struct sim *s, uint64_t id, const char *key) {
    struct watcher *w = xcalloc(1, sizeof *w);
    *w = (struct watcher){.number = s->watchers.len, .id = id};
    snprintf(w->key, sizeof w->key, "%s", key);
    vec_push(&s->watchers, w);
    after(s, some_ms(s, 1, TURN_MS), HAPPEN_WATCH, w->number, 0, 0);
}

static void begin_session(struct sim *s, struct watcher *w) {
    struct core_step_view v;
    struct job_view j;
    if (!core_step_view(s->head.core, w->id, 0, w->key, &v)) {
        w->done = w->node_count ||
                  !core_view(s->head.core, w->id, &j);  // its end is in the journal, or it never was
        return;
    }
    if (w->node_count && (v.started->attempt != w->attempt || v.number != w->step)) {
        w->done = true;  // after a restore
        return;
    }
    w->attempt = v.started->attempt;
    w->step = v.number;
    w->session = ++s->sessions_made;
    w->session_life = s->head.life;
    for (uint32_t i = 0; i < v.started->parts.len && i < MACHINES_MAX; i++) {
        w->nodes[i] = arena_strdup(&s->arena, v.started->parts.at[i].node);
        w->at[i] = w->from[i];
        w->stream[i] = 0;
        w->finished[i] = w->complete[i];
        w->node_count = i + 1;
    }
    for (uint32_t i = 0; i < w->node_count; i++)
        attach(s, w, i);
}

static void end_session(struct sim *s, struct watcher *w) {
    for (uint32_t i = 0; i < w->node_count; i++) {
        struct message_stream stop = {.stream = w->stream[i]};
        if (w->stream[i] && has_session(s, w))
            send_to_node(s, w->nodes[i], MESSAGE_STREAM_END, &stop);
        w->stream[i] = 0;
    }
    w->session = 0;
}

// A turn: the connection is looked at and opened again, and what was read is acknowledged.
void watcher_turn(struct sim *s, struct watcher *w) {
    bool reachable = s->head.core && s->now_ms >= s->head.stalled_until_ms;
    if (w->done)
        return;
    if (w->session && (!has_session(s, w) || (!s->cleaning && rand_below(&s->rand, 12) == 0)))
        end_session(s, w);  // the controller has gone, or the connection
    if (!w->session && reachable)
        begin_session(s, w);
    bool all = w->node_count > 0;
    for (uint32_t i = 0; i < w->node_count; i++) {
        struct message_stream ack = {.stream = w->stream[i], .offset = w->from[i], .credit = w->credit[i]};
        all &= w->complete[i];
        if (!has_session(s, w) || !w->stream[i] || !reachable)
            continue;
        w->credit[i] = 0;
        send_to_node(s, w->nodes[i], MESSAGE_STREAM_CREDIT, &ack);
    }
    w->done |= all;
    if (!w->done)
        after(s, some_ms(s, TURN_MS / 4, TURN_MS), HAPPEN_WATCH, w->number, 0, 0);
}

static void take(struct sim *s, struct watcher *w, const struct output_delivery *d) {
    uint64_t *from = &w->from[d->node];
    if (d->end != *from + sizeof(struct relay_record) + d->len)
        sim_fail(s, "job %llu step %u on %s: output up to %llu comes after output up to %llu: bytes %s",
                 (unsigned long long)w->id, w->step, w->nodes[d->node], (unsigned long long)d->end,
                 (unsigned long long)*from, d->end > *from ? "are missing" : "are repeated");
    for (uint64_t i = 0; i < d->len && !s->failed; i++)
        if (d->data[i] != content(w->agent_id ? w->agent_id : w->id, w->step, w->got[d->node] + i))
            sim_fail(s, "job %llu step %u: byte %llu is not what was printed", (unsigned long long)w->id,
                     w->step, (unsigned long long)(w->got[d->node] + i));
    *from = d->end;
    w->got[d->node] += d->len;
    w->credit[d->node] += d->len;
    s->output_bytes += d->len;
}

static void take_end(struct sim *s, struct watcher *w, const struct output_delivery *d) {
    struct machine *m = NULL;
    for (uint32_t i = 0; i < s->machine_count; i++)
        if (streq(s->machines[i].name, w->nodes[d->node]))
            m = &s->machines[i];
    const struct sim_output *o = m ? output_of(m, w->id, w->attempt, w->step) : NULL;
    w->complete[d->node] = true;
    if (d->error || !o)
        return;  // the client was told, or nobody knows any more
    if (w->from[d->node] != o->bytes.len || w->got[d->node] != o->kept ||
        d->lost != atomic_load(&o->page.out_lost))
        sim_fail(s, "job %llu step %u on %s: the stream ended with %llu bytes of %llu, and nobody was told",
                 (unsigned long long)w->id, w->step, w->nodes[d->node], (unsigned long long)w->got[d->node],
                 (unsigned long long)o->kept);
}

void watcher_output(struct sim *s, uint32_t number) {
    struct output_delivery *d = s->deliveries.at[number];
    struct watcher *w = s->watchers.at[d->watcher];
    bool there = w->session == d->session && !w->done;
    if (there && d->last)
        take_end(s, w, d);
    else if (there)
        take(s, w, d);
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
        bool lost = false;
        for (uint32_t k = 0; k < w->node_count; k++)
            lost |= !w->complete[k] && (!head_route(s, w->nodes[k]) || has_older_agent(s, w->nodes[k]));
        if (!w->done && !lost)
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
