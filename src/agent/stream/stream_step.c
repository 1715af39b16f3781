// Owns streams of steps: output is read from the step's file in the spool from a given position on, input
// is appended to its file, both by the positions in launch/relay.h. The step does not notice: streams of
// one step may come and go, and there may be several. A step whose client does not come back in time is
// marked as having none, so that its output is dropped at a limit instead of blocking it.
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "launch/relay.h"
#include "stream.h"

enum {
    READ_BYTES = 256 << 10,      // looked at in one go
    PUNCH_BYTES = 1 << 20,       // acknowledged output is given back to the file system in such pieces
    OPEN_PATIENCE_MS = 10000,    // for the shepherd to make the files
    UNHEARD_PATIENCE_MS = 5000,  // for the order to start a step that is asked for already
    CLIENT_TERM_MS = 60 * 1000,  // without a client, while there is a controller
};

struct stream_step {
    int out_file, in_file;
    struct relay_page *page;
    uint64_t at;        // output before this was sent
    bool tail;          // begins at the end of what is there
    uint64_t punched;
    uint64_t told_at;   // input position that the other side knows
    bool told_closed, told;
    int64_t begun_ms;
};

static void wake(struct agent_stream *s) {
    struct control_request r = {.type = CONTROL_RELAY, .step = s->step};
    s->all->agent->control(s->all->agent, s->id, s->attempt, &r);
}

struct stream_step *stream_step_free(struct agent_stream *s, struct stream_step *p) {
    if (!p)
        return NULL;
    if (p->page)
        munmap(p->page, sizeof *p->page);
    if (p->out_file >= 0)
        close(p->out_file);
    if (p->in_file >= 0)
        close(p->in_file);
    free(p);
    return NULL;
}

static int open_files(struct agent_stream *s) {
    struct stream_step *p = s->step_stream;
    int spool = s->all->agent->spool_fd;
    struct stat st;
    cleanup_close int page = spool_relay_file(spool, s->id, s->attempt, s->step, SPOOL_RELAY_PAGE, O_RDWR);
    if (page < 0)
        return page;
    if (fstat(page, &st) < 0 || st.st_size < (off_t)sizeof *p->page)
        return -EAGAIN;
    if (p->out_file < 0)
        p->out_file = spool_relay_file(spool, s->id, s->attempt, s->step, SPOOL_RELAY_OUTPUT, O_RDWR);
    if (p->in_file < 0)
        p->in_file = spool_relay_file(spool, s->id, s->attempt, s->step, SPOOL_RELAY_INPUT, O_RDWR);
    if (p->out_file < 0 || p->in_file < 0)
        return -EAGAIN;
    void *m = mmap(NULL, sizeof *p->page, PROT_READ | PROT_WRITE, MAP_SHARED, page, 0);
    if (m == MAP_FAILED)
        return -errno;
    if (((struct relay_page *)m)->magic != RELAY_MAGIC) {
        munmap(m, sizeof *p->page);
        return -EAGAIN;
    }
    p->page = m;
    atomic_store(&p->page->client, 1);
    if (p->tail)
        p->at = atomic_load(&p->page->out_len);
    return 0;
}

static bool step_over(const struct agent_stream *s) {
    const struct agent_logic *l = s->all->agent->logic;
    enum agent_step_phase phase = agent_steps_phase(agent_logic_steps(l), s->id, s->attempt, s->step);
    if (phase == AGENT_STEP_UNKNOWN && agent_logic_phase(l, s->id, s->attempt) == AGENT_RUNNING)
        return clock_mono_ms() - s->step_stream->begun_ms > UNHEARD_PATIENCE_MS;  // its start may be on its way
    return phase != AGENT_STEP_RUNNING;
}

// Tells where input goes on: what is accepted waits in the file, and the tasks have read up to a point.
static void tell_position(struct agent_stream *s) {
    struct stream_step *p = s->step_stream;
    uint64_t len = atomic_load(&p->page->in_len), read = atomic_load(&p->page->in_read);
    bool closed = atomic_load(&p->page->in_closed) || atomic_load(&p->page->in_ended);
    uint64_t at = (len < read + RELAY_INPUT_BYTES ? len : read + RELAY_INPUT_BYTES);
    uint64_t foreign = atomic_load(&p->page->in_foreign);
    at = at > foreign ? at - foreign : 0;
    if (p->told && at == p->told_at && closed == p->told_closed)
        return;
    p->told = true;
    p->told_at = at;
    p->told_closed = closed;
    struct message_stream m = {.stream = s->number, .position = true, .eof = closed, .input_taken = at,
                               .input_waiting = len > read ? len - read : 0};
    agent_send(s->all->agent, MESSAGE_STREAM_CREDIT, &m);
}

// Sends whole records as far as credit goes. True: everything that is there was sent.
static bool send_records(struct agent_stream *s) {
    struct stream_step *p = s->step_stream;
    cleanup_free char *data = xcalloc(1, READ_BYTES);
    uint64_t end = atomic_load(&p->page->out_len);
    while (s->credit && p->at < end) {
        size_t want = end - p->at < READ_BYTES ? (size_t)(end - p->at) : READ_BYTES;
        ssize_t n = pread(p->out_file, data, want, (off_t)p->at);
        size_t at = 0;
        if (n <= 0)
            return true;  // a damaged file has no more than this
        while (s->credit && at + sizeof(struct relay_record) <= (size_t)n) {
            struct relay_record r;
            memcpy(&r, data + at, sizeof r);
            if (at + sizeof r + r.len > (size_t)n)
                break;
            at += sizeof r + r.len;
            struct message_stream m = {.stream = s->number, .fd = r.fd, .task = r.rank, .offset = p->at + at,
                                       .data = {.data = data + at - r.len, .len = r.len}};
            s->credit -= r.len < s->credit ? r.len : s->credit;
            agent_send(s->all->agent, MESSAGE_STREAM_DATA, &m);
        }
        if (!at)
            return true;
        p->at += at;
    }
    return p->at >= end;
}

static void finish(struct agent_stream *s, const char *error) {
    struct stream_step *p = s->step_stream;
    struct message_stream m = {.stream = s->number, .eof = true, .error = error, .offset = p->at,
                               .lost_bytes = p->page ? atomic_load(&p->page->out_lost) : 0};
    agent_send(s->all->agent, MESSAGE_STREAM_END, &m);
    stream_close(s);
}

void stream_step_pump(struct agent_stream *s, int64_t now_ms) {
    struct stream_step *p = s->step_stream;
    bool over = step_over(s);  // asked before reading: what was written before the end is then sent
    int rc = p->page ? 0 : open_files(s);
    if (rc < 0) {
        if (over)
            finish(s, rc == -ENOENT ? NULL : "its output is not on the node any more");
        else if (now_ms - p->begun_ms > OPEN_PATIENCE_MS)
            finish(s, "its output cannot be opened on the node");
        return;
    }
    bool all = send_records(s);
    if (over && all)
        finish(s, NULL);
    else
        tell_position(s);
}

void stream_step_start(struct agent_stream *s, const struct message_step *m) {
    s->step = m->step;
    s->step_stream = xcalloc(1, sizeof *s->step_stream);
    *s->step_stream = (struct stream_step){
        .out_file = -1, .in_file = -1, .at = m->offset, .tail = m->tail, .begun_ms = clock_mono_ms()};
    stream_step_pump(s, s->step_stream->begun_ms);
}

void stream_step_input(struct agent_stream *s, const struct message_stream *m) {
    struct stream_step *p = s->step_stream;
    if (!p->page)
        return;  // it is sent again from the position that is told when the files are there
    uint64_t len = atomic_load(&p->page->in_len), read = atomic_load(&p->page->in_read);
    uint64_t foreign = atomic_load(&p->page->in_foreign), mine = len - foreign;
    bool other = m->offset == UINT64_MAX;  // one who looks on: what it types comes where it comes
    if ((!other && m->offset > mine) || len + m->data.len > read + 4 * (uint64_t)RELAY_INPUT_BYTES) {
        p->told = false;  // a gap, or more than was asked for
        tell_position(s);
        return;
    }
    uint64_t skip = other ? 0 : mine - m->offset;
    if (other)
        atomic_store(&p->page->in_foreign, foreign + m->data.len);
    if (skip < m->data.len) {
        size_t more = m->data.len - (size_t)skip;
        if (pwrite(p->in_file, (const char *)m->data.data + skip, more, (off_t)len) != (ssize_t)more)
            return;  // a full disk: it is sent again
        atomic_store(&p->page->in_len, len + more);
    }
    if (m->eof)
        atomic_store(&p->page->in_ended, 1);
    wake(s);
    tell_position(s);
}

void stream_step_ack(struct agent_stream *s, uint64_t offset) {
    struct stream_step *p = s->step_stream;
    if (!p->page)
        return;
    uint64_t acked = atomic_load(&p->page->out_acked), len = atomic_load(&p->page->out_len);
    if (offset <= acked || offset > len)
        return;
    bool was_full = len - acked >= RELAY_BUDGET_BYTES;
    atomic_store(&p->page->out_acked, offset);
    if (offset - p->punched >= PUNCH_BYTES &&
        fallocate(p->out_file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)p->punched,
                  (off_t)(offset - p->punched)) == 0)
        p->punched = offset;
    if (was_full)
        wake(s);
}

void stream_step_resize(struct agent_stream *s, uint32_t rows, uint32_t columns) {
    struct stream_step *p = s->step_stream;
    if (!p->page)
        return;
    atomic_store(&p->page->rows, rows);
    atomic_store(&p->page->columns, columns);
    wake(s);
}

// --- steps without a client ---

static bool has_stream(const struct streams *all, uint64_t id, uint32_t attempt, uint32_t step) {
    for (uint32_t i = 0; i < all->list.len; i++) {
        const struct agent_stream *s = all->list.at[i];
        bool reads = s->kind == STREAM_STEP || (!step && s->kind == STREAM_LOG && stream_log_is_client(s));
        if (reads && s->id == id && s->attempt == attempt && s->step == step)
            return true;
    }
    return false;
}

static void give_up_client(struct agent_node *a, uint64_t id, uint32_t attempt, uint32_t step) {
    struct control_request r = {.type = CONTROL_RELAY, .step = step};
    if (!step) {
        streams_kept_give_up_client(a, id, attempt);
        return;
    }
    cleanup_close int fd = spool_relay_file(a->spool_fd, id, attempt, step, SPOOL_RELAY_PAGE, O_RDWR);
    struct relay_page *page =
        fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED)
        return;
    if (atomic_exchange(&page->client, 0))
        a->control(a, id, attempt, &r);
    munmap(page, sizeof *page);
}

struct looking {
    struct streams *all;
    int64_t now_ms;
};

static void look_at(void *ctx, uint64_t id, uint32_t attempt, uint32_t step) {
    struct looking *l = ctx;
    struct streams *all = l->all;
    struct step_alone *found = NULL;
    for (uint32_t i = 0; i < all->alone.len && !found; i++)
        if (all->alone.at[i].id == id && all->alone.at[i].attempt == attempt && all->alone.at[i].step == step)
            found = &all->alone.at[i];
    if (has_stream(all, id, attempt, step)) {
        if (found)
            vec_remove(&all->alone, (uint32_t)(found - all->alone.at));
        return;
    }
    if (!found) {
        vec_push(&all->alone, (struct step_alone){id, attempt, step, l->now_ms, false});
    } else if (!found->given_up && l->now_ms - found->since_ms > CLIENT_TERM_MS) {
        found->given_up = true;
        give_up_client(all->agent, id, attempt, step);
    }
}

void streams_look_at_steps(struct streams *all, bool connected, int64_t now_ms) {
    struct looking l = {all, now_ms};
    stream_feeds_unblock(all);
    if (!connected) {  // nobody can come: the term begins anew when somebody can
        vec_clear(&all->alone);
        return;
    }
    agent_steps_each_running(agent_logic_steps(all->agent->logic), look_at, &l);
    streams_kept_look(all, now_ms, look_at, &l);
}
