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
#include "step_flow.h"
#include "stream.h"

enum {
    PUNCH_BYTES = 1 << 20,       // acknowledged output is given back to the file system in such pieces
    CLIENT_TERM_MS = 60 * 1000,  // without a client, while there is a controller
};

struct stream_step {
    struct step_flow flow;
    int out_file;
    uint64_t punched;
};

struct stream_step *stream_step_free(struct stream_step *p) {
    if (p && p->out_file >= 0)
        close(p->out_file);
    free(p);
    return NULL;
}

// --- what the flow asks for ---

static struct relay_page *do_open(void *ctx, uint64_t *epoch, int *error) {
    struct agent_stream *s = ctx;
    struct stream_step *p = s->step_stream;
    if (p->out_file < 0)
        p->out_file =
            spool_relay_file(s->all->agent->spool_fd, s->id, s->attempt, s->step, SPOOL_RELAY_OUTPUT, O_RDWR);
    *error = p->out_file < 0 ? p->out_file : stream_input_open(s);
    if (*error < 0)
        return NULL;
    *epoch = spool_step_event(s->all->agent->spool_fd, s->id, s->attempt, s->step).epoch;
    return s->input.page;
}

static ssize_t do_read(void *ctx, uint64_t at, void *data, size_t size) {
    const struct agent_stream *s = ctx;
    return pread(s->step_stream->out_file, data, size, (off_t)at);
}

static uint64_t room_of(void *ctx) {
    return stream_room(ctx);
}

static void do_spend(void *ctx, uint64_t bytes) {
    ((struct agent_stream *)ctx)->credit -= bytes;
}

static void do_send(void *ctx, enum message_type type, struct message_stream *m) {
    const struct agent_stream *s = ctx;
    agent_send(s->all->agent, type, m);
}

static void all_sent(void *ctx) {
    stream_input_tell(ctx);
}

static void do_end(void *ctx) {
    stream_close(ctx);
}

// --- the stream ---

void stream_step_pump(struct agent_stream *s, int64_t now_ms) {
    agent_step_flow_pump(&s->step_stream->flow, s->all->agent->logic, now_ms);
}

void stream_step_start(struct agent_stream *s, const struct message_step *m) {
    static const struct step_flow_host host = {.open = do_open,
                                               .read = do_read,
                                               .room = room_of,
                                               .spend = do_spend,
                                               .send = do_send,
                                               .sent = all_sent,
                                               .end = do_end};
    s->step = m->step;
    s->input.placed = true;
    s->step_stream = xcalloc(1, sizeof *s->step_stream);
    *s->step_stream = (struct stream_step){.flow = {.host = &host, .ctx = s}, .out_file = -1};
    int64_t now_ms = clock_mono_ms();
    agent_step_flow_begin(&s->step_stream->flow, m, now_ms);
    stream_step_pump(s, now_ms);
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
    uint64_t epoch = m->step ? spool_step_event(a->spool_fd, m->id, m->attempt, m->step).epoch : 0;
    if (!agent_step_flow_received(a->logic, m, epoch))
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
