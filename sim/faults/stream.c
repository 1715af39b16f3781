// Output of steps on their machines: tasks print, the agent sends from a position on. Positions, budgets and what is
// dropped are the product's (launch/relay_flow.c), and so are the messages.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "fault_sim.h"
#include "launch/relay_flow.h"
#include "seams.h"

enum {
    PIECE_MAX = 200,
    CLIENT_TERM_MS = 60000,  // without a client a step is not blocked any longer
    LEFTOVER_MS = 300000,    // output that nobody has read, after the end of its step
    UNHEARD_MS = 5000,       // for the order to start a step that is asked for already
};

static const struct relay_limits limits = {1500, 4000};  // small ones, so that they are met

struct sim_output {
    uint64_t id, epoch;  // epoch: of the step
    uint32_t attempt, step;
    struct relay_page page;
    struct buf bytes;
    uint64_t kept;       // bytes of output in the records
    bool over, removed;  // the step has ended; its files are to go
    int64_t until_ms, alone_ms;
};

struct sim_stream {
    uint64_t number, id, epoch;
    uint32_t attempt, step;
    struct relay_reader reader;
    bool tail;
    int64_t begun_ms;
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
    *o = (struct sim_output){.id = u->id, .epoch = t->epoch, .attempt = u->attempt, .step = t->number};
    atomic_store(&o->page.client, 1);
    vec_push(&m->outputs, o);
    after(s, some_ms(s, 1, 100), HAPPEN_PRINT, m->number, u->number << 32 | t->number, 0);
}

char stream_content(uint64_t id, uint64_t epoch, uint32_t step, uint64_t at) {
    return (char)(id * 31 + epoch * 13 + step * 17 + at * 7 + (at >> 8));
}

static void print_piece(struct sim *s, struct sim_output *o) {
    char data[PIECE_MAX];
    struct relay_record head = {.rank = 0, .fd = 1, .len = (uint16_t)some_ms(s, 1, PIECE_MAX), .mark = RELAY_MARK};
    if (launch_relay_drops(&o->page, &limits)) {
        atomic_fetch_add(&o->page.out_lost, head.len);
        return;
    }
    for (uint32_t i = 0; i < head.len; i++)
        data[i] = stream_content(o->id, o->epoch, o->step, o->kept + i);
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

bool stream_find(struct machine *m, uint64_t id, uint32_t attempt, uint32_t step, uint64_t epoch,
                 struct stream_truth *out) {
    const struct sim_output *o = output_of(m, id, attempt, step);
    if (!o || o->epoch != epoch)
        return false;
    *out = (struct stream_truth){.len = o->bytes.len,
                                 .kept = o->kept,
                                 .lost = atomic_load(&o->page.out_lost),
                                 .removed = o->removed,
                                 .wanted = atomic_load(&o->page.out_acked) < atomic_load(&o->page.out_len)};
    return true;
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
        return s->now_ms - t->begun_ms > (seams_planted(PLANTED_STREAM_TOO_EARLY) ? -1 : UNHEARD_MS);
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
    if (!o || (t->epoch && o->epoch && o->epoch != t->epoch)) {
        end.error = o ? "its output is not on the node" : NULL;  // a step that never began has none
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

// Its client has everything.
static void received(struct machine *m, const struct message_step *r) {
    const struct agent_steps *steps = agent_logic_steps(m->logic);
    struct sim_output *o = output_of(m, r->id, r->attempt, r->step);
    if (o && (!r->epoch || o->epoch == r->epoch) &&
        agent_steps_phase(steps, r->id, r->attempt, r->step) != AGENT_STEP_RUNNING)
        atomic_store(&o->page.out_acked, atomic_load(&o->page.out_len));
}

void stream_agent_message(struct sim *s, struct machine *m, const struct message *msg) {
    const struct message_step *attach = msg->body;
    const struct message_stream *credit = msg->body;
    if (msg->type == MESSAGE_STEP_RECEIVED) {
        received(m, msg->body);
        return;
    }
    if (msg->type == MESSAGE_STEP_ATTACH) {
        struct sim_stream t = {.number = attach->stream,
                               .id = attach->id,
                               .epoch = attach->epoch,
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
        if (o->removed && !used && (read || s->now_ms >= o->until_ms)) {
            step_forget(m, o->id, o->attempt, o->step);
            output_free(m, i);
        }
    }
}
