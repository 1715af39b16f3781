// Output of steps on their machines: tasks print into pages and bytes, the agent sends from a position on. What the
// agent's streams do is the product's (agent/stream/step_flow.c), and so are positions, budgets and what is dropped
// (launch/relay_flow.c).
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "fault_sim.h"
#include "seams.h"
#include "step_flow.h"

enum {
    PIECE_MAX = 200,
    CLIENT_TERM_MS = 60000,  // without a client a step is not blocked any longer
    LEFTOVER_MS = 300000,    // output that nobody has read, after the end of its step
    EARLY_MS = 100000,       // planted: longer than any patience
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
    struct sim *sim;
    struct machine *machine;
    struct step_flow flow;
    uint64_t credit;
    bool over;
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

void stream_agent_gone(struct machine *m) {
    for (uint32_t i = 0; i < m->streams.len; i++)
        free(m->streams.at[i]);
    vec_clear(&m->streams);
}

void stream_machine_done(struct machine *m) {
    stream_agent_gone(m);
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

// The one that it has opened, or would.
static struct sim_output *output_for(const struct sim_stream *t) {
    const struct machine *m = t->machine;
    for (uint32_t i = 0; t->flow.page && i < m->outputs.len; i++)
        if (&m->outputs.at[i]->page == t->flow.page)
            return m->outputs.at[i];
    return output_of(t->machine, t->flow.id, t->flow.attempt, t->flow.step);
}

static struct relay_page *do_open(void *ctx, uint64_t *epoch, int *error) {
    struct sim_output *o = output_for(ctx);
    *error = -ENOENT;
    if (!o)
        return NULL;
    *epoch = o->epoch;
    return &o->page;
}

static ssize_t do_read(void *ctx, uint64_t at, void *data, size_t size) {
    const struct sim_output *o = output_for(ctx);
    size_t there = at < o->bytes.len ? o->bytes.len - at : 0;
    memcpy(data, o->bytes.data + at, size < there ? size : there);
    return (ssize_t)(size < there ? size : there);
}

static uint64_t room_of(void *ctx) {
    const struct sim_stream *t = ctx;
    return t->machine->conn ? t->credit : 0;
}

static void do_spend(void *ctx, uint64_t bytes) {
    ((struct sim_stream *)ctx)->credit -= bytes;
}

static void do_send(void *ctx, enum message_type type, struct message_stream *body) {
    const struct sim_stream *t = ctx;
    cleanup_buf struct buf b = {0};
    if (type == MESSAGE_STREAM_END && body->error && strstr(body->error, "position"))
        sim_fail(t->sim, "%s: a stream of job %llu step %u: %s", t->machine->name,
                 (unsigned long long)t->flow.id, t->flow.step, body->error);
    message_encode(&(struct message){type, body}, &b);
    if (t->machine->conn)
        net_send(t->sim, t->machine->conn, AGENT_END, b.data, b.len);
}

static void all_sent(void *ctx) {
}

static void do_end(void *ctx) {
    ((struct sim_stream *)ctx)->over = true;
}

void stream_pump(struct sim *s, struct machine *m) {
    for (uint32_t i = m->streams.len; m->logic && i-- > 0;) {
        struct sim_stream *t = m->streams.at[i];
        struct sim_output *o = output_for(t);
        if (o)
            o->alone_ms = 0;
        else
            t->flow.page = NULL;  // its files were removed
        agent_step_flow_pump(&t->flow, m->logic, machine_mono_ms(s, m));
        if (t->over) {
            free(t);
            vec_remove(&m->streams, i);
        }
    }
}

// Its client has everything.
static void received(struct machine *m, const struct message_step *r) {
    struct sim_output *o = output_of(m, r->id, r->attempt, r->step);
    if (o && agent_step_flow_received(m->logic, r, o->epoch))
        atomic_store(&o->page.out_acked, atomic_load(&o->page.out_len));
}

static void begin(struct sim *s, struct machine *m, const struct message_step *attach) {
    static const struct step_flow_host host = {.open = do_open,
                                               .read = do_read,
                                               .room = room_of,
                                               .spend = do_spend,
                                               .send = do_send,
                                               .sent = all_sent,
                                               .end = do_end};
    struct sim_stream *t = xcalloc(1, sizeof *t);
    int64_t early_ms = seams_planted(PLANTED_STREAM_TOO_EARLY) ? EARLY_MS : 0;
    *t = (struct sim_stream){
        .sim = s, .machine = m, .flow = {.host = &host, .ctx = t}, .credit = attach->credit};
    agent_step_flow_begin(&t->flow, attach, machine_mono_ms(s, m) - early_ms);
    vec_push(&m->streams, t);
}

void stream_agent_message(struct sim *s, struct machine *m, const struct message *msg) {
    const struct message_stream *credit = msg->body;
    if (msg->type == MESSAGE_STEP_RECEIVED) {
        received(m, msg->body);
        return;
    }
    if (msg->type == MESSAGE_STEP_ATTACH)
        begin(s, m, msg->body);
    for (uint32_t i = 0; i < m->streams.len && msg->type != MESSAGE_STEP_ATTACH; i++) {
        struct sim_stream *t = m->streams.at[i];
        if (t->flow.stream != credit->stream)
            continue;
        if (msg->type == MESSAGE_STREAM_CREDIT && t->flow.page && credit->offset)
            launch_relay_ack(t->flow.page, credit->offset, &limits);
        if (msg->type == MESSAGE_STREAM_CREDIT)
            t->credit += credit->credit;
        if (msg->type == MESSAGE_STREAM_END) {
            free(t);
            vec_remove(&m->streams, i--);
        }
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
            used |= output_for(m->streams.at[k]) == o;
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
