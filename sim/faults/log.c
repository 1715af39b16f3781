// Output of jobs: what machines keep of it, the agents' streams, and the clients that follow it. Of attached jobs
// (acequia run, attach) the files are the product's (launch/kept.c, in memory); others write to users' files, which lie
// on their machine, are appended to by later attempts and are read by a process. The product's are also the agent's
// streams
// (agent/stream/log_flow.c) and the controller's part (controller/job_watch.c, follow.c, stream.c). Every byte of an
// attempt must come to each client once and in order, also over restarts and cuts, of a log that is followed (logs -f)
// every byte of the file; at the end the client has all of the newest attempt, or was told what is missing; nobody
// waits for ever.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/text.h"
#include "fault_sim.h"
#include "job_watch.h"
#include "log_flow.h"
#include "seams.h"

enum {
    PIECE_MAX = 300,
    FLOOD_BYTES = 300 << 10,
    WITHOUT_CLIENT_MAX = 12,  // pieces, after which nobody is waited for
    READ_MS = 20,
    READ_SLOW_MS = 4000,
    TURN_MS = 2000,
    HEAD_BYTES = 17,             // of output: channel, task, number of the stream, position
    STREAMS = 2 * MACHINES_MAX,  // output and error of each node
};

typedef unsigned long long ull;

struct sim_log {  // of one attempt on one machine
    uint64_t id, epoch, unit;
    uint32_t attempt, without_client;
    struct kept_file file[2];
};

struct sim_file {  // what one job writes on one machine, its output and its errors
    uint64_t id, number;
    uint64_t len[2];
};

struct sim_log_stream {
    struct sim *sim;
    struct machine *machine;
    struct log_flow flow;
    uint64_t credit;
    bool error, over;
    // of a file that a process reads
    uint64_t reader;  // 0: it is kept output
    struct log_place at;
    size_t asked;
    char *piece;  // read, and on its way
    ssize_t len;
};

struct log_client {
    uint32_t number, item;
    bool one_log;  // logs -f: one file of the first node
    uint32_t fd;   // of it
    uint64_t file;
    uint64_t id, agent_id, session, sessions;
    uint64_t epoch, told_epoch;  // of the attempt: as the journal has it, and as it was told
    uint32_t attempt, node_count, known;
    const char *nodes[MACHINES_MAX];
    uint64_t from[STREAMS];
    bool missing[MACHINES_MAX], behind, cut, final, done;
    int64_t due_ms;
    struct job_watch *watch;  // the controller's side; NULL: not connected
};

static const struct actor root = {"root", 0, 0, true};

// --- machines ---

// Epoch 0: the newest of that number, which has the files.
static struct sim_log *log_of(const struct machine *m, uint64_t id, uint32_t attempt, uint64_t epoch) {
    for (uint32_t i = m->logs.len; i-- > 0;)
        if (m->logs.at[i]->id == id && m->logs.at[i]->attempt == attempt &&
            (!epoch || !m->logs.at[i]->epoch || m->logs.at[i]->epoch == epoch))
            return m->logs.at[i];
    return NULL;
}

static char content(const struct sim_log *l, uint32_t fd, uint64_t at) {
    return stream_content(l->id, l->epoch, l->attempt * 2 + fd, at);
}

static struct sim_file *file_of(const struct machine *m, uint64_t id) {
    for (uint32_t i = 0; i < m->files.len; i++)
        if (m->files.at[i]->id == id)
            return m->files.at[i];
    return NULL;
}

static char file_content(uint64_t file, uint64_t at) {
    return stream_content(file, 0, 0, at);
}

static uint64_t file_number(const struct sim_file *f, uint32_t fd) {
    return f->number * 2 + fd;
}

static void print_piece(struct sim *s, struct sim_log *l, uint32_t fd, bool last) {
    bool flood = s->plan->flood && l->unit % 3 == 0 && !last;
    char *data = arena_alloc(&s->arena, flood ? FLOOD_BYTES : PIECE_MAX);
    uint64_t at = atomic_load(&l->file[fd].head->len);
    size_t len = flood ? FLOOD_BYTES : (size_t)some_ms(s, 1, PIECE_MAX);
    if (!last && launch_kept_blocked(&l->file[fd]))
        return;  // the program waits
    for (size_t i = 0; i < len; i++)
        data[i] = content(l, fd, at + i);
    launch_kept_append(&l->file[fd], data, len, last);
}

static void open_file(struct sim *s, struct machine *m, uint64_t id) {
    if (file_of(m, id))
        return;
    struct sim_file *f = xcalloc(1, sizeof *f);
    *f = (struct sim_file){.id = id, .number = (uint64_t)(m->number + 1) << 20 | (m->files.len + 1)};
    vec_push(&m->files, f);
}

void log_unit_started(struct sim *s, struct machine *m, const struct sim_unit *u) {
    after(s, some_ms(s, 1, 200), HAPPEN_LOG_PRINT, m->number, u->number, 0);
    if (!u->attached) {
        open_file(s, m, u->id);
        return;
    }
    struct sim_log *l = xcalloc(1, sizeof *l);
    *l = (struct sim_log){.id = u->id, .epoch = u->epoch, .unit = u->number, .attempt = u->attempt};
    for (int i = 0; i < 2; i++)
        if (launch_kept_create(memfd_create("output", MFD_CLOEXEC), 1000, &l->file[i]) < 0)
            abort();
    for (int i = 0; i < 2 && s->plan->flood; i++)
        launch_kept_limit(&l->file[i], KEPT_LEAST_BYTES);
    vec_push(&m->logs, l);
}

static void write_piece(struct sim *s, struct sim_file *f, uint32_t fd) {
    f->len[fd] += (uint64_t)some_ms(s, 1, PIECE_MAX);
}

// A client that has been away for long is not waited for any more.
static void look_for_client(const struct machine *m, struct sim_log *l) {
    for (uint32_t i = 0; i < m->log_streams.len; i++)
        if (m->log_streams.at[i]->flow.client && m->log_streams.at[i]->flow.id == l->id &&
            m->log_streams.at[i]->flow.attempt == l->attempt)
            l->without_client = 0;
    if (++l->without_client == WITHOUT_CLIENT_MAX)
        for (int i = 0; i < 2; i++)
            atomic_store(&l->file[i].head->client, 0);
}

void log_print(struct sim *s, struct machine *m, uint64_t unit) {
    const struct sim_unit *u = unit_by_number(m, unit);
    struct sim_log *l = u && u->attached ? log_of(m, u->id, u->attempt, u->epoch) : NULL;
    struct sim_file *f = u && !u->attached ? file_of(m, u->id) : NULL;
    if ((!l && !f) || !u->live)
        return;
    for (uint32_t fd = 0; fd < 2 && !u->suspended; fd++)
        if (rand_below(&s->rand, 3) && l)
            print_piece(s, l, fd, false);
        else if (f)
            write_piece(s, f, fd);
    if (l)
        look_for_client(m, l);
    log_pump(s, m);
    after(s, some_ms(s, 50, 3000), HAPPEN_LOG_PRINT, m->number, unit, 0);
}

void log_unit_over(struct sim *s, struct machine *m, const struct sim_unit *u) {
    struct sim_log *l = log_of(m, u->id, u->attempt, u->epoch);
    struct sim_file *f = u->attached || !u->live ? NULL : file_of(m, u->id);
    if (l && l->unit == u->number)
        print_piece(s, l, 0, true);
    if (f)
        write_piece(s, f, 0);
}

static void close_stream(struct sim_log_stream *t) {
    launch_kept_close(&t->flow.kept);
    free(t->piece);
    free(t);
}

void log_agent_gone(struct machine *m) {
    for (uint32_t i = 0; i < m->log_streams.len; i++)
        close_stream(m->log_streams.at[i]);
    vec_clear(&m->log_streams);
}

void log_spool_lost(struct machine *m) {
    for (uint32_t i = 0; i < m->logs.len; i++) {
        launch_kept_close(&m->logs.at[i]->file[0]);
        launch_kept_close(&m->logs.at[i]->file[1]);
        free(m->logs.at[i]);
    }
    vec_clear(&m->logs);
}

void log_machine_done(struct machine *m) {
    log_agent_gone(m);
    log_spool_lost(m);
    for (uint32_t i = 0; i < m->files.len; i++)
        free(m->files.at[i]);
    vec_done(&m->files);
    vec_done(&m->logs);
    vec_done(&m->log_streams);
}

// --- agents ---

static int do_open(void *ctx, struct kept_file *out) {
    const struct sim_log_stream *t = ctx;
    if (!agent_log_flow_has_begun(&t->flow, t->machine->logic))
        return -ENOENT;
    const struct sim_log *l = log_of(t->machine, t->flow.id, t->flow.attempt, 0);
    int fd = l ? dup(l->file[t->error].fd) : -1;
    int rc = fd < 0 ? -ENOENT : launch_kept_open(fd, out);
    if (rc < 0 && fd >= 0)
        close(fd);
    return rc;
}

static ssize_t do_read(void *ctx, char *out, size_t size, bool over) {
    struct sim_log_stream *t = ctx;
    return agent_log_flow_read_kept(&t->flow, out, size, over);
}

static uint64_t room_of(void *ctx) {
    const struct sim_log_stream *t = ctx;
    return t->machine->conn ? t->credit : 0;
}

static void do_spend(void *ctx, uint64_t bytes) {
    ((struct sim_log_stream *)ctx)->credit -= bytes;
}

static void do_send(void *ctx, enum message_type type, struct message_stream *body) {
    const struct sim_log_stream *t = ctx;
    cleanup_buf struct buf b = {0};
    if (seams_planted(PLANTED_LOG_DROPPED_UNTOLD))
        body->lost_bytes = 0;
    message_encode(&(struct message){type, body}, &b);
    if (t->machine->conn)
        net_send(t->sim, t->machine->conn, AGENT_END, b.data, b.len);
}

static void do_end(void *ctx) {
    ((struct sim_log_stream *)ctx)->over = true;
}

static void do_fail(void *ctx, int error) {
    struct sim_log_stream *t = ctx;
    if (error == ERANGE)
        sim_fail(t->sim, "%s: the output of job %llu attempt %u is asked for beyond its end",
                 t->machine->name, (ull)t->flow.id, t->flow.attempt);
    do_send(t, MESSAGE_STREAM_END,
            &(struct message_stream){.stream = t->flow.stream, .eof = true, .error = "there is no output"});
    do_end(t);
}

// Takes out those that are over.
static void close_ended(struct machine *m) {
    for (uint32_t i = m->log_streams.len; i-- > 0;)
        if (m->log_streams.at[i]->over) {
            close_stream(m->log_streams.at[i]);
            vec_remove(&m->log_streams, i);
        }
}

static void ask(struct sim *s, struct machine *m, struct sim_log_stream *t) {
    size_t bytes = agent_log_flow_ask(&t->flow, m->logic, machine_mono_ms(s, m));
    if (!bytes)
        return;
    t->asked = bytes;
    int64_t longest = rand_below(&s->rand, 20) ? READ_MS : READ_SLOW_MS;
    after(s, some_ms(s, 1, longest), HAPPEN_LOG_READ, m->number, t->reader, 0);
}

// As stream_log_file_read: a file is gone on with from a position, another one is read from its beginning.
static ssize_t read_file(struct sim_log_stream *t, char *out, size_t size) {
    const struct sim_file *f = file_of(t->machine, t->flow.id);
    if (!f)
        return -ENOENT;
    uint64_t number = file_number(f, t->error), len = f->len[t->error];
    if (!t->flow.opened && (t->at.file && t->at.file != number))
        t->at.at = 0;
    t->at.file = number;
    if (t->at.at > len)
        t->at.at = 0;
    size_t n = len - t->at.at < size ? (size_t)(len - t->at.at) : size;
    for (size_t i = 0; i < n; i++)
        out[i] = file_content(number, t->at.at + i);
    t->at.at += n;
    return (ssize_t)n;
}

// The process reads, and a moment later the agent hears of it.
void log_read(struct sim *s, struct machine *m, uint64_t reader) {
    struct sim_log_stream *t = NULL;
    for (uint32_t i = 0; i < m->log_streams.len; i++)
        if (m->log_streams.at[i]->reader == reader)
            t = m->log_streams.at[i];
    if (!t || !m->logic)
        return;
    if (!t->piece) {
        t->piece = xmalloc(t->asked);
        t->len = read_file(t, t->piece, t->asked);
        after(s, some_ms(s, 0, READ_MS), HAPPEN_LOG_READ, m->number, reader, 0);
        return;
    }
    char *piece = t->piece;
    t->piece = NULL;
    t->flow.at = t->at;
    if (seams_planted(PLANTED_LOG_END_ASSUMED))
        t->flow.asked_over = agent_log_flow_over(&t->flow, m->logic, machine_mono_ms(s, m));
    if (agent_log_flow_answer(&t->flow, piece, t->len, machine_mono_ms(s, m)) && !t->over)
        ask(s, m, t);
    free(piece);
    close_ended(m);
}

void log_pump(struct sim *s, struct machine *m) {
    int64_t now_ms = machine_mono_ms(s, m);
    for (uint32_t i = m->log_streams.len; m->logic && i-- > 0;) {
        struct sim_log_stream *t = m->log_streams.at[i];
        if (t->reader)
            ask(s, m, t);
        else if (now_ms >= t->flow.next_try_ms)
            agent_log_flow_pump(&t->flow, m->logic, now_ms);
    }
    close_ended(m);
}

static void begin_stream(struct sim *s, struct machine *m, const struct message_log_read *read) {
    static const struct log_flow_host host = {.read = do_read,
                                              .open = do_open,
                                              .room = room_of,
                                              .spend = do_spend,
                                              .send = do_send,
                                              .failed = do_fail,
                                              .end = do_end};
    struct sim_log_stream *t = xcalloc(1, sizeof *t);
    *t = (struct sim_log_stream){.sim = s,
                                 .machine = m,
                                 .flow = {.host = &host, .ctx = t},
                                 .credit = read->credit,
                                 .error = read->source == LOG_SOURCE_ERROR};
    agent_log_flow_begin(&t->flow, read, machine_mono_ms(s, m));
    t->reader = read->spec && !read->spec->attach ? ++s->log_readers : 0;
    t->at = t->flow.at;
    note(s, "%s: output %u of job %llu attempt %u is followed from %llu on", m->name, 1 + t->error,
         (ull)read->id, read->attempt, (ull)read->offset);
    vec_push(&m->log_streams, t);
}

// What one client has not got yet stays for it.
static void acknowledge(const struct machine *m, struct sim_log_stream *t, uint64_t at) {
    if (at > t->flow.at.at)
        return;
    t->flow.acknowledged = at > t->flow.acknowledged ? at : t->flow.acknowledged;
    uint64_t least = t->flow.acknowledged;
    for (uint32_t i = 0; i < m->log_streams.len; i++) {
        const struct sim_log_stream *x = m->log_streams.at[i];
        if (x->flow.client && x->flow.id == t->flow.id && x->flow.attempt == t->flow.attempt && x->error == t->error &&
            x->flow.acknowledged < least)
            least = x->flow.acknowledged;
    }
    agent_log_flow_acknowledge(&t->flow, least);
}

void log_agent_message(struct sim *s, struct machine *m, const struct message *msg) {
    const struct message_stream *b = msg->body;
    if (msg->type == MESSAGE_LOG_READ)
        begin_stream(s, m, msg->body);
    else if (msg->type != MESSAGE_STREAM_CREDIT && msg->type != MESSAGE_STREAM_END)
        return;
    for (uint32_t i = 0; i < m->log_streams.len && msg->type != MESSAGE_LOG_READ; i++) {
        struct sim_log_stream *t = m->log_streams.at[i];
        if (t->flow.stream != b->stream)
            continue;
        if (msg->type == MESSAGE_STREAM_CREDIT) {
            t->credit += b->credit;
            if (b->offset)
                acknowledge(m, t, b->offset);
        } else {
            close_stream(t);
            vec_remove(&m->log_streams, i--);
        }
    }
    log_pump(s, m);
}

// --- from the controller to a client ---

enum log_delivery_kind {
    DELIVERY_NONE,
    DELIVERY_NODES,
    DELIVERY_FILE,
    DELIVERY_OUTPUT,
    DELIVERY_MISSING,
    DELIVERY_FINAL
};

struct log_delivery {
    enum log_delivery_kind kind;
    uint32_t client, attempt, node_count;
    const char *nodes[MACHINES_MAX];
    uint64_t session, told_epoch, epoch, agent_id, file, at;
    char *data;
    size_t len;
};

struct log_session {  // what its callbacks know
    struct sim *sim;
    uint32_t client;
};

static struct log_delivery *deliver(const struct log_session *t, enum log_delivery_kind kind,
                                    const void *data, size_t len) {
    struct sim *s = t->sim;
    struct log_client *c = s->log_clients.at[t->client];
    struct log_delivery *d = xcalloc(1, sizeof *d);
    *d = (struct log_delivery){.kind = kind, .client = c->number, .session = c->session, .len = len};
    d->data = xmemdup(data, len);
    vec_push(&s->log_deliveries, d);
    int64_t at_ms = s->now_ms + some_ms(s, 1, s->plan->latency_ms);
    c->due_ms = at_ms > c->due_ms ? at_ms : c->due_ms;  // in order
    queue_put(&s->queue, c->due_ms, HAPPEN_LOG_OUTPUT, s->log_deliveries.len - 1, 0, 0);
    return d;
}

// The nodes of the attempt; 0: the newest that has run.
static void deliver_nodes(const struct log_session *t, enum log_delivery_kind kind, uint32_t attempt,
                          uint64_t told_epoch) {
    const struct log_client *c = t->sim->log_clients.at[t->client];
    struct log_delivery *d = deliver(t, kind, "", 0);
    d->told_epoch = told_epoch;
    const struct sim_head *h = t->sim->head;
    struct job_lookup source = {h->core, h->pipeline, h->store};
    struct job_record r;
    struct error e = {0};
    bool live;
    if (!controller_job_find_part(&source, c->id, 0, attempt, &t->sim->arena, &r, &live, &e))
        return;
    d->attempt = r.attempt;
    const struct placement *p = check_placement(check_told(&t->sim->check, c->id), r.attempt);
    d->epoch = p ? p->epoch : 0;
    d->agent_id = p && p->agent_id ? p->agent_id : c->id;
    for (uint32_t i = 0; i < r.parts.len && i < MACHINES_MAX; i++)
        d->nodes[d->node_count++] = arena_strdup(&t->sim->arena, r.parts.at[i].node);
}

static void on_say(void *ctx, const struct schema *schema, const void *value) {
    const struct log_session *t = ctx;
    const struct answer_session_nodes *nodes = value;
    const struct answer_step_missing *missing = value;
    if (schema == &answer_step_missing_schema)
        deliver(t, DELIVERY_MISSING, missing->node ? missing->node : "",
                missing->node ? strlen(missing->node) : 0);
    if (schema == &answer_session_file_schema) {
        struct log_delivery *d = deliver(t, DELIVERY_FILE, "", 0);
        d->file = ((const struct answer_session_file *)value)->file;
        d->at = ((const struct answer_session_file *)value)->at;
    }
    if (schema == &answer_session_nodes_schema)
        deliver_nodes(t, DELIVERY_NODES, nodes->attempt, nodes->epoch);
}

static ssize_t on_send(void *ctx, const char *data, size_t len) {
    const struct log_session *t = ctx;
    struct log_client *c = t->sim->log_clients.at[t->client];
    deliver(t, DELIVERY_OUTPUT, data, len);
    c->behind |= rand_below(&t->sim->rand, 8) == 0;
    return c->behind ? STREAM_BACKLOG_BYTES + 1 : 0;
}

static void on_pause(void *ctx, bool on) {
}

static void on_failed(void *ctx, const struct error *e) {
    const struct log_session *t = ctx;
    const struct log_client *c = t->sim->log_clients.at[t->client];
    if (e->code != ENOENT && !c->one_log)  // its submit may have been lost
        sim_fail(t->sim, "job %llu: a client of its output is refused: %s", (ull)c->id, e->text);
    note(t->sim, "client %u of output: refused: %s", c->number, e->text);
    deliver(t, DELIVERY_MISSING, "", 0);
    deliver(t, DELIVERY_FINAL, "", 0);
}

static void on_nodes(void *ctx) {
    const struct log_session *t = ctx;
    t->sim->log_clients.at[t->client]->cut = true;
}

static void on_complete(void *ctx, const char *final) {
    deliver_nodes(ctx, DELIVERY_FINAL, 0, 0);
}

// --- clients ---

void log_client_begin(struct sim *s, uint32_t item) {
    struct log_client *c = xcalloc(1, sizeof *c);
    const struct item *it = &s->plan->items.at[item];
    *c = (struct log_client){.number = s->log_clients.len,
                             .item = item,
                             .one_log = !s->plan->items.at[it->target].job->attached || it->pick % 2,
                             .fd = it->amount % 5 == 0};
    vec_push(&s->log_clients, c);
    log_client_turn(s, c);
}

static void end_session(struct log_client *c) {
    c->watch = controller_job_watch_free(c->watch);
    c->session = 0;
}

static void begin_session(struct sim *s, struct log_client *c) {
    static const struct job_watch_client client = {on_say, on_send, on_pause, on_failed, on_complete, on_nodes};
    const struct sim_head *h = s->head;
    struct log_session *t = arena_alloc(&s->arena, sizeof *t);
    *t = (struct log_session){s, c->number};
    struct job_watch_log log = {.error = c->fd, .from = c->from[0], .file = c->file, .tail = -1};
    struct job_view v;
    if (seams_planted(PLANTED_LOG_STAYS) && core_view(h->core, c->id, &v))
        log.attempt = v.start_ms ? v.attempt : 0;
    c->session = ++s->sessions_made;
    c->behind = c->cut = false;
    c->watch =
        controller_job_watch_new(&(struct job_watch_options){.source = {h->core, h->pipeline, h->store},
                                                             .streams = &s->head->streams,
                                                             .actor = &root,
                                                             .client = &client,
                                                             .ctx = t,
                                                             .placed = true,
                                                             .resume = !c->one_log,
                                                             .log = c->one_log ? &log : NULL});
    controller_job_watch_set(c->watch, c->id);
    if (c->one_log) {
        note(s, "client %u of output: log %u of job %llu from %llu on in file %llu", c->number, 1 + c->fd, (ull)c->id,
             (ull)c->from[0], (ull)c->file);
        controller_job_watch_begin(c->watch, c->from[0] > 0, &(struct job_watch_positions){0});
        return;
    }
    struct job_watch_positions has = {arena_memdup(&s->arena, c->from, sizeof c->from), 2 * c->known,
                                      seams_planted(PLANTED_ATTACH_OTHER_ATTEMPT) ? 0 : c->attempt, c->told_epoch,
                                      arena_memdup(&s->arena, c->nodes, sizeof c->nodes),
                                      seams_planted(PLANTED_ATTACH_OTHER_NODES) ? 0 : c->known};
    note(s, "client %u of output: job %llu, has attempt %u", c->number, (ull)c->id, c->attempt);
    controller_job_watch_begin(c->watch, true, &has);
}

// After a restore its job's number may be given to another one.
static bool is_another(struct sim *s, const struct log_client *c) {
    const struct told *told = c->id ? check_told(&s->check, c->id) : NULL;
    return told && told->submitted && told->item != s->plan->items.at[c->item].target;
}

void log_client_turn(struct sim *s, struct log_client *c) {
    bool reachable = head_reachable(s);
    uint64_t id = client_job_of(s, s->plan->items.at[c->item].target);
    if (c->done)
        return;
    c->id = c->id ? c->id : id;
    if (is_another(s, c)) {
        note(s, "client %u of output: job %llu is another one since a restore", c->number, (ull)c->id);
        c->done = true;
        end_session(c);
        return;
    }
    if (s->cleaning && !c->id) {  // its job was refused
        c->done = true;
        return;
    }
    if (c->watch && (c->cut || (!s->cleaning && rand_below(&s->rand, 10) == 0)))
        end_session(c);  // its connection was cut
    if (c->final) {
        c->done = true;
        end_session(c);
        return;
    }
    if (!c->watch && reachable && c->id) {
        begin_session(s, c);
    } else if (c->watch && reachable) {
        struct controller_follow *f = controller_job_watch_follow(c->watch);
        if (!c->one_log)
            controller_follow_acknowledge(f, c->from, 2 * c->node_count);
        if (c->behind)
            controller_follow_drained(f);
        c->behind = false;
    }
    after(s, some_ms(s, TURN_MS / 4, TURN_MS), HAPPEN_LOG_CLIENT, c->number, 0, 0);
}

// Nodes of one attempt may be found one by one after a restore. Those that are not found yet stay behind the others.
static void take_names(struct log_client *c, const struct log_delivery *d) {
    for (uint32_t i = 0; i < d->node_count; i++) {
        uint32_t was = 0;
        while (was < c->known && !streq(c->nodes[was], d->nodes[i]))
            was++;
        if (was == c->known)
            c->known++;
        const char *there = c->nodes[i];
        c->nodes[was] = there;
        c->nodes[i] = d->nodes[i];
        bool missing = c->missing[was];
        c->missing[was] = c->missing[i];
        c->missing[i] = missing;
        for (uint32_t k = 0; k < 2; k++) {
            uint64_t from = c->from[2 * was + k];
            c->from[2 * was + k] = c->from[2 * i + k];
            c->from[2 * i + k] = from;
        }
    }
}

static void take_nodes(struct log_client *c, const struct log_delivery *d) {
    bool other = c->told_epoch && d->told_epoch && d->told_epoch != c->told_epoch;
    bool elsewhere = c->one_log && c->node_count && d->node_count && !streq(c->nodes[0], d->nodes[0]);
    if (d->attempt != c->attempt || other || elsewhere) {  // it prints from the beginning
        memset(c->from, 0, sizeof c->from);
        memset(c->missing, 0, sizeof c->missing);
        c->known = 0;
    }
    c->attempt = d->attempt;
    c->epoch = d->epoch;
    c->told_epoch = d->told_epoch ? d->told_epoch : c->told_epoch;
    c->agent_id = d->agent_id;
    c->node_count = d->node_count;
    if (c->one_log)
        memcpy(c->nodes, d->nodes, sizeof c->nodes);
    else
        take_names(c, d);
}

static uint64_t number_at(const char *p, int bytes) {
    uint64_t v = 0;
    for (int i = 0; i < bytes; i++)
        v |= (uint64_t)(unsigned char)p[i] << (8 * i);
    return v;
}

static const struct sim_log *truth_of(const struct sim *s, const struct log_client *c, uint32_t node) {
    for (uint32_t i = 0; i < s->machine_count; i++)
        if (streq(s->machines[i].name, c->nodes[node]))
            return log_of(&s->machines[i], c->agent_id, c->attempt, c->epoch);
    return NULL;
}

static char printed(const struct log_client *c, const struct sim_log *l, uint32_t fd, uint64_t at) {
    return l ? content(l, fd, at) : file_content(c->file, at);
}

static void take_output(struct sim *s, struct log_client *c, const struct log_delivery *d) {
    uint32_t number = (uint32_t)number_at(d->data + 5, 4), fd = c->one_log ? c->fd : number % 2;
    uint64_t end = number_at(d->data + 9, 8), len = d->len - HEAD_BYTES;
    bool file = c->one_log && !c->attempt;  // of a user
    if (number >= (c->one_log ? 1 : 2 * c->node_count)) {
        sim_fail(s, "job %llu: output of a node that attempt %u does not have", (ull)c->id, c->attempt);
        return;
    }
    const struct sim_log *l = file ? NULL : truth_of(s, c, number / 2);
    uint64_t gone = l ? atomic_load(&l->file[fd].head->start) : 0;  // clients had it, and it is not kept any more
    if (end - len != c->from[number] && (end - len < c->from[number] || end - len > gone))
        sim_fail(s, "job %llu attempt %u: output up to %llu comes after output up to %llu: bytes %s", (ull)c->id,
                 c->attempt, (ull)end, (ull)c->from[number],
                 end - len > c->from[number] ? "are missing" : "are repeated");
    for (uint64_t i = 0; (l || file) && i < len && !s->failed; i++)
        if (d->data[HEAD_BYTES + i] != printed(c, l, fd, end - len + i))
            sim_fail(s, "job %llu attempt %u: byte %llu of its output is not what was printed", (ull)c->id,
                     c->attempt, (ull)(end - len + i));
    c->from[number] = end;
    s->log_bytes += len;
}

// A log goes on in another file, which is read from its beginning, or in the one that it is in.
static void take_file(struct sim *s, struct log_client *c, const struct log_delivery *d) {
    bool same = d->file == c->file;
    if (d->at != (same || c->attempt ? c->from[0] : 0))
        sim_fail(s, "job %llu: its log is said to go on at %llu in file %llu after %llu in file %llu", (ull)c->id,
                 (ull)d->at, (ull)d->file, (ull)c->from[0], (ull)c->file);
    c->missing[0] &= same;
    c->file = d->file;
    c->from[0] = d->at;
}

static void take_missing(struct log_client *c, const struct log_delivery *d) {
    c->missing[0] |= c->one_log;
    for (uint32_t i = 0; i < c->node_count; i++)
        c->missing[i] |= !d->len || (strlen(c->nodes[i]) == d->len && memcmp(c->nodes[i], d->data, d->len) == 0);
}

static void check_kept(struct sim *s, const struct log_client *c, const struct sim_log *l, uint32_t fd, uint64_t has) {
    uint64_t len = atomic_load(&l->file[fd].head->len), lost = atomic_load(&l->file[fd].head->lost);
    if (has != len || lost)
        sim_fail(s,
                 "job %llu attempt %u: its output ended after %llu bytes of %llu and %llu dropped, and nobody was "
                 "told",
                 (ull)c->id, c->attempt, (ull)has, (ull)len, (ull)lost);
}

// A log that was followed to the end of its job has all that the newest attempt has written.
static void check_log(struct sim *s, const struct log_client *c, const struct log_delivery *d) {
    const struct machine *m = NULL;
    for (uint32_t i = 0; i < s->machine_count && d->node_count; i++)
        if (streq(s->machines[i].name, d->nodes[0]))
            m = &s->machines[i];
    const struct sim_log *l = m ? log_of(m, d->agent_id, d->attempt, d->epoch) : NULL;
    const struct sim_file *f = m && !l ? file_of(m, d->agent_id) : NULL;
    if (l && d->attempt != c->attempt)
        sim_fail(s, "job %llu: its log ended with attempt %u of %u", (ull)c->id, c->attempt, d->attempt);
    else if (l)
        check_kept(s, c, l, c->fd, c->from[0]);
    else if (f && f->len[c->fd] && (c->file != file_number(f, c->fd) || c->from[0] != f->len[c->fd]))
        sim_fail(s, "job %llu: its log ended after %llu bytes of file %llu; attempt %u wrote %llu to file %llu",
                 (ull)c->id, (ull)c->from[0], (ull)c->file, d->attempt, (ull)f->len[c->fd],
                 (ull)file_number(f, c->fd));
}

// All of the newest attempt, or its client was told.
static void take_final(struct sim *s, struct log_client *c, const struct log_delivery *d) {
    c->final = true;
    note(s, "client %u of output: job %llu has ended", c->number, (ull)c->id);
    if (c->one_log && !c->missing[0])
        check_log(s, c, d);
    for (uint32_t i = 0; !c->one_log && i < 2 * c->node_count; i++) {
        const struct sim_log *l = c->missing[i / 2] ? NULL : truth_of(s, c, i / 2);
        if (l)
            check_kept(s, c, l, i % 2, c->from[i]);
    }
}

void log_output(struct sim *s, uint32_t number) {
    struct log_delivery *d = s->log_deliveries.at[number];
    struct log_client *c = s->log_clients.at[d->client];
    bool there = c->session == d->session && !c->final && !is_another(s, c);
    switch (there ? d->kind : DELIVERY_NONE) {
    case DELIVERY_NONE: break;
    case DELIVERY_NODES: take_nodes(c, d); break;
    case DELIVERY_FILE: take_file(s, c, d); break;
    case DELIVERY_OUTPUT: take_output(s, c, d); break;
    case DELIVERY_MISSING: take_missing(c, d); break;
    case DELIVERY_FINAL: take_final(s, c, d); break;
    }
    free(d->data);
    d->data = NULL;
}

// --- the daemon around the watches ---

void logs_job_changed(struct sim *s, uint64_t id) {
    for (uint32_t i = 0; i < s->log_clients.len; i++)
        if (s->log_clients.at[i]->watch && s->log_clients.at[i]->id == id)
            controller_job_watch_changed(s->log_clients.at[i]->watch);
}

void logs_node_up(struct sim *s, const char *node) {
    for (uint32_t i = 0; i < s->log_clients.len; i++)
        if (s->log_clients.at[i]->watch)
            controller_job_watch_node_up(s->log_clients.at[i]->watch, node);
}

void logs_tick(struct sim *s) {
    for (uint32_t i = 0; i < s->log_clients.len; i++)
        if (s->log_clients.at[i]->watch)
            controller_job_watch_tick(s->log_clients.at[i]->watch);
}

void logs_head_gone(struct sim *s) {
    for (uint32_t i = 0; i < s->log_clients.len; i++)
        end_session(s->log_clients.at[i]);
}

bool log_clients_done(struct sim *s) {
    for (uint32_t i = 0; i < s->log_clients.len; i++)
        if (!s->log_clients.at[i]->done)
            return false;
    return true;
}

void logs_done(struct sim *s) {
    for (uint32_t i = 0; i < s->log_deliveries.len; i++) {
        free(s->log_deliveries.at[i]->data);
        free(s->log_deliveries.at[i]);
    }
    for (uint32_t i = 0; i < s->log_clients.len; i++)
        free(s->log_clients.at[i]);
    vec_done(&s->log_deliveries);
    vec_done(&s->log_clients);
}
