// Owns streams of steps: output is read from the step's file in the spool from a given position on, input
// is appended to its file, both by the positions in launch/relay.h. The step does not notice: streams of
// one step may come and go, and there may be several. A step whose client does not come back in time is
// marked as having none, so that its output is dropped at a limit instead of blocking it.
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "launch/relay_flow.h"
#include "stream.h"

enum {
    PUNCH_BYTES = 1 << 20,       // acknowledged output is given back to the file system in such pieces
    OPEN_PATIENCE_MS = 10000,    // for the shepherd to make the files
    UNHEARD_PATIENCE_MS = 5000,  // for the order to start a step that is asked for already
    CLIENT_TERM_MS = 60 * 1000,  // without a client, while there is a controller
};

struct stream_step {
    int out_file;
    uint64_t epoch;     // of the step that is asked for; 0: whichever has the number
    uint64_t at;        // output before this was sent
    bool tail;          // begins at the end of what is there
    uint64_t punched;
    int64_t begun_ms;
};

struct stream_step *stream_step_free(struct stream_step *p) {
    if (p && p->out_file >= 0)
        close(p->out_file);
    free(p);
    return NULL;
}

static int open_files(struct agent_stream *s) {
    struct stream_step *p = s->step_stream;
    if (p->out_file < 0)
        p->out_file =
            spool_relay_file(s->all->agent->spool_fd, s->id, s->attempt, s->step, SPOOL_RELAY_OUTPUT, O_RDWR);
    int rc = p->out_file < 0 ? p->out_file : stream_input_open(s);
    if (rc < 0)
        return rc;
    uint64_t epoch = spool_step_event(s->all->agent->spool_fd, s->id, s->attempt, s->step).epoch;
    if (epoch && p->epoch && epoch != p->epoch)
        return -ESTALE;
    atomic_store(&s->input.page->client, 1);
    if (p->tail)
        p->at = atomic_load(&s->input.page->out_len);
    return 0;
}

static bool step_over(const struct agent_stream *s) {
    const struct agent_logic *l = s->all->agent->logic;
    enum agent_step_phase phase = agent_steps_phase(agent_logic_steps(l), s->id, s->attempt, s->step);
    if (phase == AGENT_STEP_UNKNOWN && agent_logic_phase(l, s->id, s->attempt) == AGENT_RUNNING)
        return clock_mono_ms() - s->step_stream->begun_ms > UNHEARD_PATIENCE_MS;  // its start may be on its way
    return phase != AGENT_STEP_RUNNING;
}

static ssize_t read_output(void *ctx, uint64_t at, void *data, size_t size) {
    const struct agent_stream *s = ctx;
    return pread(s->step_stream->out_file, data, size, (off_t)at);
}

static void send_piece(void *ctx, const struct relay_record *r, const void *data, uint64_t end) {
    struct agent_stream *s = ctx;
    struct message_stream m = {.stream = s->number, .fd = r->fd, .task = r->rank, .offset = end,
                               .data = {.data = data, .len = r->len}};
    agent_send(s->all->agent, MESSAGE_STREAM_DATA, &m);
}

// Sends whole records as far as credit goes. 1: everything that is there was sent; negative: there is no record.
static int send_records(struct agent_stream *s) {
    static const struct relay_source source = {read_output, send_piece};
    uint64_t room = stream_room(s);
    struct relay_reader reader = {s->step_stream->at, room};
    int r = launch_relay_read(&reader, atomic_load(&s->input.page->out_len), &source, s);
    s->step_stream->at = reader.at;
    s->credit -= room - reader.credit;
    return r;
}

static void finish(struct agent_stream *s, const char *error) {
    struct stream_step *p = s->step_stream;
    struct message_stream m = {.stream = s->number,
                               .eof = true,
                               .error = error,
                               .offset = p->at,
                               .lost_bytes = s->input.page ? atomic_load(&s->input.page->out_lost) : 0};
    agent_send(s->all->agent, MESSAGE_STREAM_END, &m);
    stream_close(s);
}

void stream_step_pump(struct agent_stream *s, int64_t now_ms) {
    struct stream_step *p = s->step_stream;
    bool over = step_over(s);  // asked before reading: what was written before the end is then sent
    int rc = s->input.page ? 0 : open_files(s);
    if (rc == -ESTALE) {
        finish(
            s,
            "its output is not on the node: another step has its number there, since the controller's state "
            "was restored from an older copy");
        return;
    }
    if (rc < 0) {
        if (over)
            finish(s, rc == -ENOENT ? NULL : "its output is not on the node any more");
        else if (now_ms - p->begun_ms > OPEN_PATIENCE_MS)
            finish(s, "its output cannot be opened on the node");
        return;
    }
    if (p->at > atomic_load(&s->input.page->out_len)) {
        finish(s, "the position is beyond the end of the output");
        return;
    }
    int sent = send_records(s);
    if (sent < 0)
        finish(s, "the position is not the beginning of a piece of output");
    else if (over && sent)
        finish(s, NULL);
    else
        stream_input_tell(s);
}

void stream_step_start(struct agent_stream *s, const struct message_step *m) {
    s->step = m->step;
    s->input.placed = true;
    s->step_stream = xcalloc(1, sizeof *s->step_stream);
    *s->step_stream = (struct stream_step){
        .out_file = -1, .epoch = m->epoch, .at = m->offset, .tail = m->tail, .begun_ms = clock_mono_ms()};
    stream_step_pump(s, s->step_stream->begun_ms);
}

void stream_step_ack(struct agent_stream *s, uint64_t offset) {
    struct stream_step *p = s->step_stream;
    struct relay_page *page = s->input.page;
    if (!page)
        return;
    bool waited = launch_relay_ack(page, offset, &launch_relay_limits);
    if (offset > atomic_load(&page->out_acked))
        return;  // makes no sense
    if (offset > p->punched && offset - p->punched >= PUNCH_BYTES &&
        fallocate(p->out_file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)p->punched,
                  (off_t)(offset - p->punched)) == 0)
        p->punched = offset;
    if (waited)
        stream_wake(s);
}

// Its files may go: the client has everything.
void stream_step_received(struct agent_node *a, const struct message_step *m) {
    const struct agent_steps *steps = agent_logic_steps(a->logic);
    uint64_t epoch = m->step ? spool_step_event(a->spool_fd, m->id, m->attempt, m->step).epoch : 0;
    if (!m->step || agent_steps_phase(steps, m->id, m->attempt, m->step) == AGENT_STEP_RUNNING ||
        (epoch && m->epoch && epoch != m->epoch))
        return;
    struct relay_page *page = launch_relay_map(a->spool_fd, m->id, m->attempt, m->step);
    if (page)
        atomic_store(&page->out_acked, atomic_load(&page->out_len));
    launch_relay_unmap(page);
}

// --- steps and attached jobs without a client ---

struct step_alone {  // since when, and whether it is blocked no longer
    uint64_t id;
    uint32_t attempt, step;
    int64_t since_ms;
    bool given_up, seen;
};

static uint64_t key_of(uint64_t id, uint32_t attempt, uint32_t step) {
    return hash_u64(id ^ hash_u64((uint64_t)attempt << 32 | step));
}

static void give_up_client(struct agent_node *a, uint64_t id, uint32_t attempt, uint32_t step) {
    struct control_request r = {.type = CONTROL_RELAY, .step = step};
    if (!step) {
        streams_kept_give_up_client(a, id, attempt);
        return;
    }
    struct relay_page *page = launch_relay_map(a->spool_fd, id, attempt, step);
    if (page && atomic_exchange(&page->client, 0))
        a->control(a, id, attempt, &r);
    launch_relay_unmap(page);
}

struct looking {
    struct streams *all;
    struct map clients;  // of what there are streams
    int64_t now_ms;
};

static void look_at(void *ctx, uint64_t id, uint32_t attempt, uint32_t step) {
    struct looking *l = ctx;
    struct map *alone = &l->all->alone;
    uint64_t key = key_of(id, attempt, step);
    if (map_get(&l->clients, key))
        return;  // not seen: its entry is removed
    struct step_alone *x = map_get(alone, key);
    if (!x) {
        x = xcalloc(1, sizeof *x);
        *x = (struct step_alone){.id = id, .attempt = attempt, .step = step, .since_ms = l->now_ms};
        map_put(alone, key, x);
    }
    x->seen = true;
    if (!x->given_up && l->now_ms - x->since_ms > CLIENT_TERM_MS) {
        x->given_up = true;
        give_up_client(l->all->agent, id, attempt, step);
    }
}

// Those that were not seen have ended or have a client again. Attached jobs are not looked at every time.
static void remove_unseen(struct streams *all, bool attached, bool everything) {
    size_t it = 0;
    uint64_t key;
    void *v;
    while (map_next(&all->alone, &it, &key, &v)) {
        struct step_alone *x = v;
        bool gone = everything || (!x->seen && (x->step || attached));
        x->seen = false;
        if (gone) {
            map_remove(&all->alone, key);
            free(x);
        }
    }
}

void streams_alone_done(struct streams *all) {
    remove_unseen(all, true, true);
    map_done(&all->alone);
}

void streams_look_at_steps(struct streams *all, bool connected, int64_t now_ms) {
    struct looking l = {.all = all, .now_ms = now_ms};
    if (!connected) {  // nobody can come: the term begins anew when somebody can
        remove_unseen(all, true, true);
        return;
    }
    for (uint32_t i = 0; i < all->list.len; i++) {
        const struct agent_stream *s = all->list.at[i];
        if (s->kind == STREAM_STEP || stream_log_is_client(s))
            map_put(&l.clients, key_of(s->id, s->attempt, s->step), all);
    }
    agent_steps_each_running(agent_logic_steps(all->agent->logic), look_at, &l);
    bool attached = streams_kept_look(all, now_ms, look_at, &l);
    remove_unseen(all, attached, false);
    map_done(&l.clients);
}
