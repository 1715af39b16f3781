// Connections to the ports of jobs, as acequia port-forward, the proxy and probes of services make them: from a client
// through the controller (controller/port_conn.c, stream.c) and the agent (agent/logic/port_relay.c), both the
// product's own, to a program that has a socket. The program says who it is, sends back what it gets, and says when it
// has got everything. So each byte must come back once and in order, from the program of the job that was asked for; an
// end without an error means that all of it did, or that the program is gone; nobody waits for ever, and no socket
// stays open that nobody uses. What such a connection does not survive, its client begins anew.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/logic/port_relay.h"
#include "base/text.h"
#include "fault_sim.h"
#include "port_conn.h"
#include "seams.h"
#include "state.h"

enum {
    PORT = 7000,
    SOCKET_BYTES = 700,  // that a socket takes before its reader has read
    PIECE_MAX = 500,
    NAME_BYTES = 8,    // with which a program begins and ends
    LISTEN_MS = 2000,  // after its start a program listens, at the latest
    TURN_MS = 800,
    WAIT_MAX_MS = 150000,  // without a byte, when the faults are over: longer than any time-out
    SETTLED_MS = 60000,    // after the last fault all nodes are connected
    FLIP = 0x5a,
};

typedef unsigned long long ull;

// A socket of a program; it stays until the end of the run, to be looked at.
struct sim_socket {
    uint64_t stream, unit;
    struct buf in, out;
    uint64_t name;
    bool in_ended, out_ended, answered_all;
    bool program_gone, agent_gone;
    bool due;  // a turn of the program
};

// A stream in an agent.
struct sim_port {
    struct sim *sim;
    struct machine *machine;
    struct port_relay relay;
    uint64_t id;
    uint32_t attempt;
    bool wants_read, wants_write, over;
    struct sim_socket *socket;  // NULL: not yet
    uint32_t unused;            // looks in a row at which no client was there
};

struct port_client {
    uint32_t number, item, wanted, completed;
    bool done;
    struct port_conn *conn;
    uint64_t stream, name;
    uint64_t total, sent, got, waiting, window;
    bool eof_sent, got_eof, paused, behind, granted;
    int64_t opened_ms, moved_ms;  // moved: when the last byte came or went
    char node[32];
};

static const struct actor root = {"root", 0, 0, true};

static uint64_t name_of(uint64_t id, uint32_t attempt, uint64_t epoch) {
    return hash_u64(id << 20 | attempt) ^ hash_u64(epoch);
}

static char byte_at(const struct port_client *c, uint64_t at) {
    return (char)(hash_u64(c->stream) + at * 7 + (at >> 8) * 13);
}

// --- programs ---

static bool is_live(struct machine *m, const struct sim_socket *k) {
    const struct sim_unit *u = unit_by_number(m, k->unit);
    return u && u->live;
}

static void program_due(struct sim *s, struct machine *m, struct sim_socket *k, int64_t ms) {
    if (k->due)
        return;
    k->due = true;
    after(s, ms, HAPPEN_PORT_PROGRAM, m->number, k->stream, 0);
}

// What is unread is lost with its reader, and whoever sent it is told.
static void program_ends(struct sim_socket *k) {
    if (k->in.len)
        buf_clear(&k->out);
    k->program_gone = true;
}

static void program_turn(struct sim *s, struct machine *m, struct sim_socket *k) {
    const struct sim_unit *u = unit_by_number(m, k->unit);
    if (k->program_gone || k->agent_gone)
        return;
    if (!is_live(m, k)) {
        program_ends(k);
        return;
    }
    if (u->suspended) {
        program_due(s, m, k, 1000);
        return;
    }
    size_t room = k->out.len < SOCKET_BYTES ? SOCKET_BYTES - k->out.len : 0;
    size_t n = k->in.len < room ? k->in.len : room;
    for (size_t i = 0; i < n; i++) {
        char back = (char)(k->in.data[i] ^ FLIP);
        buf_add(&k->out, &back, 1);
    }
    buf_drop(&k->in, n);
    if (k->in_ended && !k->in.len && !k->answered_all) {
        k->answered_all = k->out_ended = true;
        buf_add(&k->out, &k->name, NAME_BYTES);
    }
}

static struct sim_socket *socket_of(struct machine *m, uint64_t stream) {
    for (uint32_t i = m->sockets.len; i-- > 0;)
        if (m->sockets.at[i]->stream == stream)
            return m->sockets.at[i];
    return NULL;
}

// --- the agent's sockets ---

static int on_ask(void *ctx) {
    struct sim_port *p = ctx;
    struct sim *s = p->sim;
    const struct sim_unit *u = unit_find(p->machine, p->id, p->attempt);
    if (!u)
        return -ENOENT;
    if (!u->handed || !u->shepherd)
        return u->state == UNIT_ENDED ? -ENOENT : -ECONNREFUSED;
    after(s, some_ms(s, 1, 30), HAPPEN_PORT_ANSWER, p->machine->number, p->machine->agent_life,
          p->relay.stream);
    return 0;
}

static ssize_t on_read(void *ctx, void *data, size_t size) {
    struct sim_port *p = ctx;
    struct sim_socket *k = p->socket;
    size_t n = k->out.len < size ? k->out.len : size;
    if (!n && k->program_gone)
        return k->in.len ? -ECONNRESET : 0;
    if (!n)
        return k->out_ended ? 0 : -EAGAIN;
    memcpy(data, k->out.data, n);
    buf_drop(&k->out, n);
    program_due(p->sim, p->machine, k, some_ms(p->sim, 1, 50));
    return (ssize_t)n;
}

static ssize_t on_write(void *ctx, const void *data, size_t size) {
    struct sim_port *p = ctx;
    struct sim_socket *k = p->socket;
    size_t room = k->in.len < SOCKET_BYTES ? SOCKET_BYTES - k->in.len : 0, n = size < room ? size : room;
    if (k->program_gone)
        return -EPIPE;
    if (!n)
        return -EAGAIN;
    buf_add(&k->in, data, n);
    program_due(p->sim, p->machine, k, some_ms(p->sim, 1, 50));
    return (ssize_t)n;
}

static void on_shut(void *ctx) {
    struct sim_port *p = ctx;
    p->socket->in_ended = true;
    program_due(p->sim, p->machine, p->socket, some_ms(p->sim, 1, 50));
}

static void on_want(void *ctx, bool read, bool write) {
    struct sim_port *p = ctx;
    p->wants_read = read;
    p->wants_write = write;
}

static bool on_may_send(void *ctx) {
    return ((struct sim_port *)ctx)->machine->conn != NULL;
}

static void on_send(void *ctx, enum message_type type, struct message_stream *m) {
    struct sim_port *p = ctx;
    cleanup_buf struct buf b = {0};
    message_encode(&(struct message){type, m}, &b);
    if (p->machine->conn)
        net_send(p->sim, p->machine->conn, AGENT_END, b.data, b.len);
}

static void on_end(void *ctx, const char *error) {
    struct sim_port *p = ctx;
    struct message_stream m = {.stream = p->relay.stream, .eof = true, .error = error};
    on_send(p, MESSAGE_STREAM_END, &m);
    p->over = true;
}

static const struct port_relay_host relay_host = {.ask = on_ask,
                                                  .read = on_read,
                                                  .write = on_write,
                                                  .shut = on_shut,
                                                  .want = on_want,
                                                  .may_send = on_may_send,
                                                  .send = on_send,
                                                  .end = on_end};

static void port_free(struct machine *m, uint32_t i) {
    struct sim_port *p = m->ports.at[i];
    if (p->socket)
        p->socket->agent_gone = true;
    agent_port_done(&p->relay);
    free(p);
    vec_remove(&m->ports, i);
}

void port_agent_gone(struct machine *m) {
    while (m->ports.len && !seams_planted(PLANTED_PORT_OUTLIVES_CUT))
        port_free(m, m->ports.len - 1);
}

void port_machine_done(struct machine *m) {
    while (m->ports.len)
        port_free(m, m->ports.len - 1);
    for (uint32_t i = 0; i < m->sockets.len; i++) {
        buf_done(&m->sockets.at[i]->in);
        buf_done(&m->sockets.at[i]->out);
        free(m->sockets.at[i]);
    }
    vec_done(&m->ports);
    vec_done(&m->sockets);
}

static struct sim_port *port_of(struct machine *m, uint64_t stream, uint32_t *at) {
    for (uint32_t i = 0; i < m->ports.len; i++)
        if (m->ports.at[i]->relay.stream == stream) {
            *at = i;
            return m->ports.at[i];
        }
    return NULL;
}

// As poll() would have it: called for as long as there is something that it waits for.
static void serve(struct sim *s, struct machine *m, uint64_t stream) {
    uint32_t at;
    struct sim_port *p = port_of(m, stream, &at);
    for (uint32_t turn = 0; p && !p->over && p->socket && turn < 16; turn++) {
        const struct sim_socket *k = p->socket;
        bool readable = p->wants_read && (k->out.len || k->out_ended || k->program_gone);
        bool writable = p->wants_write && (k->in.len < SOCKET_BYTES || k->program_gone);
        if (!readable && !writable)
            break;
        agent_port_ready(&p->relay, 0, readable, writable);
    }
    if (p && p->over)
        port_free(m, at);
}

void port_agent_message(struct sim *s, struct machine *m, const struct message *msg) {
    const struct message_stream *data = msg->body;
    const struct message_connect *c = msg->body;
    uint64_t stream = msg->type == MESSAGE_CONNECT ? c->stream : data->stream;
    uint32_t at;
    struct sim_port *p = port_of(m, stream, &at);
    if (msg->type == MESSAGE_CONNECT && !p) {
        p = xcalloc(1, sizeof *p);
        *p = (struct sim_port){.sim = s,
                               .machine = m,
                               .relay = {.host = &relay_host, .ctx = p, .stream = stream},
                               .id = c->id,
                               .attempt = c->attempt};
        vec_push(&m->ports, p);
        agent_port_begin(&p->relay, c, agent_logic_is_other(m->logic, c->id, c->attempt, c->epoch),
                         machine_mono_ms(s, m));
    } else if (p && msg->type == MESSAGE_STREAM_DATA) {
        agent_port_take(&p->relay, data);
    } else if (p && msg->type == MESSAGE_STREAM_CREDIT) {
        agent_port_credit(&p->relay, data->credit);
    } else if (p && msg->type == MESSAGE_STREAM_END) {
        port_free(m, at);
        return;
    }
    serve(s, m, stream);
}

void port_answer(struct sim *s, struct machine *m, uint64_t stream) {
    uint32_t at;
    struct sim_port *p = port_of(m, stream, &at);
    struct sim_unit *u = p ? unit_find(m, p->id, p->attempt) : NULL;
    if (!p || p->over || p->socket)
        return;
    // Programs listen some time after they have started.
    bool listens = u && u->live && u->phase == PHASE_RUN &&
                   s->now_ms - u->began_ms >= (int64_t)(hash_u64(u->number) % LISTEN_MS);
    if (listens) {
        struct sim_socket *k = xcalloc(1, sizeof *k);
        *k = (struct sim_socket){
            .stream = stream, .unit = u->number, .name = name_of(u->id, u->attempt, u->epoch)};
        buf_add(&k->out, &k->name, NAME_BYTES);
        vec_push(&m->sockets, k);
        p->socket = k;
        s->ports_opened++;
    }
    agent_port_answered(&p->relay, listens ? 0 : u ? ECONNREFUSED : ESRCH);
    serve(s, m, stream);
}

void port_program(struct sim *s, struct machine *m, uint64_t stream) {
    struct sim_socket *k = socket_of(m, stream);
    if (!k)
        return;
    k->due = false;
    program_turn(s, m, k);
    if (m->logic)
        serve(s, m, stream);
}

void port_agent_tick(struct sim *s, struct machine *m) {
    for (uint32_t i = m->ports.len; i-- > 0;) {
        struct sim_port *p = m->ports.at[i];
        uint64_t stream = p->relay.stream;
        if (p->socket && !p->socket->program_gone && !is_live(m, p->socket))
            program_ends(p->socket);
        agent_port_pump(&p->relay, machine_mono_ms(s, m));
        serve(s, m, stream);
    }
}

// --- clients ---

static struct sim_socket *socket_in(struct sim *s, uint64_t stream) {
    for (uint32_t i = 0; i < s->machine_count; i++) {
        struct sim_socket *k = socket_of(&s->machines[i], stream);
        if (k)
            return k;
    }
    return NULL;
}

struct port_calling {
    struct sim *sim;
    uint32_t client;
};

static char expected(const struct port_client *c, uint64_t at) {
    char name[NAME_BYTES];
    memcpy(name, &c->name, sizeof name);
    if (at < NAME_BYTES)
        return name[at];
    if (at < NAME_BYTES + c->total)
        return (char)(byte_at(c, at - NAME_BYTES) ^ FLIP);
    return name[at - NAME_BYTES - c->total];
}

static ssize_t client_data(void *ctx, const char *data, size_t len) {
    const struct port_calling *t = ctx;
    struct sim *s = t->sim;
    struct port_client *c = s->port_clients.at[t->client];
    for (size_t i = 0; i < len && !s->failed; i++, c->got++) {
        if (c->got >= 2 * NAME_BYTES + c->total)
            sim_fail(s, "client %u of a port: more comes back than was sent", c->number);
        else if (c->got < NAME_BYTES && data[i] != expected(c, c->got))
            sim_fail(s, "client %u of a port: the program of another attempt answers", c->number);
        else if (data[i] != expected(c, c->got))
            sim_fail(s, "client %u of a port: byte %llu that comes back is not the one that was sent",
                     c->number, (ull)c->got);
    }
    c->moved_ms = s->now_ms;
    c->behind |= rand_below(&s->rand, 4) == 0;
    c->waiting += c->behind ? len : 0;
    uint64_t most =
        c->window + s->head->streams.window_bytes / 2;  // half of a window waits, and another one comes
    if (c->waiting > most)
        sim_fail(s, "client %u of a port: %llu bytes wait for it, %llu may", c->number, (ull)c->waiting,
                 (ull)most);
    return (ssize_t)c->waiting;
}

// Whether the program that it has asked for takes connections, and did when it asked.
static bool is_reachable(struct sim *s, const struct port_client *c) {
    for (uint32_t i = 0; i < s->machine_count; i++) {
        const struct machine *m = &s->machines[i];
        for (uint32_t k = 0; k < m->units.len && streq(m->name, c->node); k++) {
            const struct sim_unit *u = m->units.at[k];
            if (name_of(u->id, u->attempt, u->epoch) == c->name)
                return u->live && u->phase == PHASE_RUN && u->shepherd &&
                       u->began_ms + LISTEN_MS < c->opened_ms;
        }
    }
    return false;
}

static void client_eof(void *ctx) {
    const struct port_calling *t = ctx;
    t->sim->port_clients.at[t->client]->got_eof = true;
}

static void client_end(void *ctx, const char *error) {
    const struct port_calling *t = ctx;
    struct sim *s = t->sim;
    struct port_client *c = s->port_clients.at[t->client];
    const struct sim_socket *k = socket_in(s, c->stream);
    bool whole = c->eof_sent && c->got_eof && c->got == 2 * NAME_BYTES + c->total;
    c->conn = NULL;
    note(s, "client %u of a port: %s", c->number, error ? error : "both sides have ended");
    if (!error && !whole && !(k && k->program_gone))
        sim_fail(s, "client %u of a port: ended without an error after %llu bytes of %llu", c->number,
                 (ull)c->got, (ull)(2 * NAME_BYTES + c->total));
    if (error && s->cleaning && c->opened_ms > s->over_ms + SETTLED_MS && is_reachable(s, c))
        sim_fail(s, "client %u of a port: \"%s\", and the program is there", c->number, error);
    c->completed += !error && whole;
}

static void client_room(void *ctx) {
    const struct port_calling *t = ctx;
    t->sim->port_clients.at[t->client]->paused = false;
}

void port_client_begin(struct sim *s, uint32_t item) {
    const struct item *it = &s->plan->items.at[item];
    struct port_client *c = xcalloc(1, sizeof *c);
    *c = (struct port_client){.number = s->port_clients.len, .item = item, .wanted = 1 + it->pick % 4};
    vec_push(&s->port_clients, c);
    after(s, some_ms(s, 1, TURN_MS), HAPPEN_PORT_CLIENT, c->number, 0, 0);
}

static void connect(struct sim *s, struct port_client *c, uint64_t job) {
    const struct item *it = &s->plan->items.at[c->item];
    bool own_window = it->amount % 3 == 0;  // as the proxy has
    struct port_conn_client client = {
        .data = client_data, .eof = client_eof, .end = client_end, .room = client_room};
    struct error e = {0};
    struct job_view v = {0};
    struct port_calling *t = arena_alloc(&s->arena, sizeof *t);
    head_serve(s);
    *t = (struct port_calling){s, c->number};
    client.window = own_window ? 200 + it->amount % 300 : 0;
    if (core_view(s->head->core, job, &v))
        c->name = name_of(core_agent_job_number(s->head->core, job, v.attempt), v.attempt,
                          core_attempt_epoch(s->head->core, job));
    c->total = c->sent = c->got = c->waiting = 0;
    c->eof_sent = c->got_eof = c->paused = c->behind = c->granted = false;
    c->window = own_window ? client.window : s->head->streams.window_bytes;
    c->conn = port_conn_begin(&s->head->streams, s->head->core, &root, job, PORT, &client, t, &e);
    c->stream = s->head->streams.next;
    c->total = rand_below(&s->rand, it->amount % 2 ? 6000 : 600);
    c->opened_ms = c->moved_ms = s->now_ms;
    const char *node = NULL;
    if (core_job_node_names(s->head->core, job, &node, 1))
        snprintf(c->node, sizeof c->node, "%s", node);
    if (c->conn)
        note(s, "client %u of a port: connects to job %llu, %llu bytes", c->number, (ull)job, (ull)c->total);
    else if (e.code == EINVAL || e.code == ENOENT || e.code == EPROTONOSUPPORT)
        c->done = true;  // it has no port, or is gone
    else if (e.code == EBUSY && v.state != JOB_PENDING && v.state != JOB_STARTING && v.state != JOB_SUSPENDED)
        c->done = true;
}

static void send_some(struct sim *s, struct port_client *c) {
    char data[PIECE_MAX];
    for (uint64_t n = 1 + rand_below(&s->rand, 4); n && c->conn && !c->paused && c->sent < c->total; n--) {
        uint64_t len = 1 + rand_below(&s->rand, PIECE_MAX);
        len = len < c->total - c->sent ? len : c->total - c->sent;
        for (uint64_t i = 0; i < len; i++)
            data[i] = byte_at(c, c->sent + i);
        c->sent += len;
        c->moved_ms = s->now_ms;
        c->paused = !port_conn_send(c->conn, data, (size_t)len);
    }
    if (c->conn && !c->paused && c->sent == c->total && !c->eof_sent) {
        c->eof_sent = true;
        port_conn_send_eof(c->conn);
    }
}

static void converse(struct sim *s, struct port_client *c) {
    if (c->behind) {
        c->behind = false;
        c->waiting = 0;
        port_conn_drained(c->conn);
    }
    if (c->conn && c->got && c->window < s->head->streams.window_bytes && !c->granted) {
        uint64_t more = s->head->streams.window_bytes - c->window;
        c->granted = true;
        c->window += more;
        port_conn_grant(c->conn, more);
    }
    send_some(s, c);
}

void port_client_turn(struct sim *s, struct port_client *c) {
    bool reachable = s->head->core && s->now_ms >= s->head->stalled_until_ms;
    uint64_t job = client_job_of(s, s->plan->items.at[c->item].target);
    if (c->done)
        return;
    if (c->conn && reachable && !s->cleaning && rand_below(&s->rand, 20) == 0) {
        port_conn_close(c->conn);  // its connection was cut, or it goes
        c->conn = NULL;
    }
    if (c->conn && reachable)
        converse(s, c);
    else if (reachable && c->completed >= c->wanted)
        c->done = true;
    else if (reachable && job)
        connect(s, c, job);
    else if (reachable && s->cleaning)
        c->done = true;  // the job was never there
    if (!c->done)
        after(s, some_ms(s, TURN_MS / 4, TURN_MS), HAPPEN_PORT_CLIENT, c->number, 0, 0);
}

void port_head_gone(struct sim *s) {
    for (uint32_t i = 0; i < s->port_clients.len; i++) {
        struct port_client *c = s->port_clients.at[i];
        if (c->conn)
            port_conn_close(c->conn);
        c->conn = NULL;
    }
}

// --- what must hold when the faults are over ---

static bool is_used(const struct sim *s, uint64_t stream) {
    for (uint32_t i = 0; i < s->port_clients.len; i++)
        if (s->port_clients.at[i]->conn && s->port_clients.at[i]->stream == stream)
            return true;
    return false;
}

static bool is_suspended(struct sim *s, uint64_t stream) {
    for (uint32_t i = 0; i < s->machine_count; i++) {
        const struct sim_socket *k = socket_of(&s->machines[i], stream);
        const struct sim_unit *u = k ? unit_by_number(&s->machines[i], k->unit) : NULL;
        if (u && u->suspended)
            return true;
    }
    return false;
}

void port_check(struct sim *s) {
    for (uint32_t i = 0; i < s->port_clients.len; i++) {
        struct port_client *c = s->port_clients.at[i];
        int64_t since_ms = c->moved_ms > s->over_ms ? c->moved_ms : s->over_ms;
        if (c->conn && !is_suspended(s, c->stream) && s->now_ms - since_ms > WAIT_MAX_MS)
            sim_fail(s, "client %u of a port waits for ever, after %llu bytes of %llu", c->number,
                     (ull)c->got, (ull)(2 * NAME_BYTES + c->total));
    }
    for (uint32_t i = 0; i < s->machine_count; i++)
        for (uint32_t k = 0; k < s->machines[i].ports.len; k++) {
            struct sim_port *p = s->machines[i].ports.at[k];
            p->unused = is_used(s, p->relay.stream) ? 0 : p->unused + 1;
            if (p->unused * 5000 > WAIT_MAX_MS)
                sim_fail(s, "%s: a connection to a port of job %llu stays open, and nobody uses it",
                         s->machines[i].name, (ull)p->id);
        }
}

bool port_clients_done(const struct sim *s) {
    for (uint32_t i = 0; i < s->port_clients.len; i++)
        if (!s->port_clients.at[i]->done)
            return false;
    return true;
}

void port_done(struct sim *s) {
    for (uint32_t i = 0; i < s->port_clients.len; i++)
        free(s->port_clients.at[i]);
    vec_done(&s->port_clients);
}
