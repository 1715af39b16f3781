// Owns what a stream of a step's output does; see the header.
#include "step_flow.h"

#include <errno.h>

enum {
    OPEN_PATIENCE_MS = 10000,    // for the shepherd to make the files
    UNHEARD_PATIENCE_MS = 5000,  // for the order to start a step that is asked for already
};

static bool is_over(const struct step_flow *f, const struct agent_logic *l, int64_t now_ms) {
    enum agent_step_phase phase = agent_steps_phase(agent_logic_steps(l), f->id, f->attempt, f->step);
    if (phase == AGENT_STEP_UNKNOWN && agent_logic_phase(l, f->id, f->attempt) == AGENT_RUNNING)
        return now_ms - f->begun_ms > UNHEARD_PATIENCE_MS;  // its start may be on its way
    return phase != AGENT_STEP_RUNNING;
}

static int open_files(struct step_flow *f) {
    uint64_t epoch = 0;
    int error = 0;
    struct relay_page *page = f->host->open(f->ctx, &epoch, &error);
    if (!page)
        return error;
    if (epoch && f->epoch && epoch != f->epoch)
        return -ESTALE;
    f->page = page;
    atomic_store(&page->client, 1);
    if (f->tail)
        f->at = atomic_load(&page->out_len);
    return 0;
}

static ssize_t read_output(void *ctx, uint64_t at, void *data, size_t size) {
    const struct step_flow *f = ctx;
    return f->host->read(f->ctx, at, data, size);
}

static void send_piece(void *ctx, const struct relay_record *r, const void *data, uint64_t end) {
    const struct step_flow *f = ctx;
    struct message_stream m = {.stream = f->stream,
                               .fd = r->fd,
                               .task = r->rank,
                               .offset = end,
                               .data = {.data = data, .len = r->len}};
    f->host->send(f->ctx, MESSAGE_STREAM_DATA, &m);
}

// Sends whole records as far as credit goes. 1: everything that is there was sent; negative: there is no record.
static int send_records(struct step_flow *f) {
    static const struct relay_source source = {read_output, send_piece};
    uint64_t room = f->host->room(f->ctx);
    struct relay_reader reader = {f->at, room};
    int r = launch_relay_read(&reader, atomic_load(&f->page->out_len), &source, f);
    f->at = reader.at;
    f->host->spend(f->ctx, room - reader.credit);
    return r;
}

static void finish(struct step_flow *f, const char *error) {
    struct message_stream m = {.stream = f->stream,
                               .eof = true,
                               .error = error,
                               .offset = f->at,
                               .lost_bytes = f->page ? atomic_load(&f->page->out_lost) : 0};
    f->host->send(f->ctx, MESSAGE_STREAM_END, &m);
    f->host->end(f->ctx);
}

void agent_step_flow_pump(struct step_flow *f, const struct agent_logic *l, int64_t now_ms) {
    bool over = is_over(f, l, now_ms);  // asked before reading: what was written before the end is then sent
    int rc = f->page ? 0 : open_files(f);
    if (rc == -ESTALE) {
        finish(f, "its output is not on the node: another step has its number there, since the controller's "
                  "state was "
                  "restored from an older copy");
        return;
    }
    if (rc < 0) {
        if (over)
            finish(f, rc == -ENOENT ? NULL : "its output is not on the node any more");
        else if (now_ms - f->begun_ms > OPEN_PATIENCE_MS)
            finish(f, "its output cannot be opened on the node");
        return;
    }
    if (f->at > atomic_load(&f->page->out_len)) {
        finish(f, "the position is beyond the end of the output");
        return;
    }
    int sent = send_records(f);
    if (sent < 0)
        finish(f, "the position is not the beginning of a piece of output");
    else if (over && sent)
        finish(f, NULL);
    else
        f->host->sent(f->ctx);
}

void agent_step_flow_begin(struct step_flow *f, const struct message_step *m, int64_t now_ms) {
    f->stream = m->stream;
    f->id = m->id;
    f->attempt = m->attempt;
    f->step = m->step;
    f->epoch = m->epoch;
    f->at = m->offset;
    f->tail = m->tail;
    f->begun_ms = now_ms;
}

bool agent_step_flow_received(const struct agent_logic *l, const struct message_step *m, uint64_t epoch) {
    return m->step &&
           agent_steps_phase(agent_logic_steps(l), m->id, m->attempt, m->step) != AGENT_STEP_RUNNING &&
           (!epoch || !m->epoch || epoch == m->epoch);
}
