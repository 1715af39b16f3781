// Owns input on its way into the file that the shepherd feeds tasks from (launch/relay.h). Every piece says where
// it begins, so it may come again after a cut: what the file has is left out, and a gap is answered with where
// input goes on. Nobody can make the file hold more than a few windows that the tasks have not read.
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/clock.h"
#include "stream.h"

enum { UNREAD_MAX = 4 * RELAY_INPUT_BYTES, RESEND_EVERY_MS = 1000, WAKE_EVERY_MS = 1000 };

void stream_wake(struct agent_stream *s) {
    struct control_request r = {.type = CONTROL_RELAY, .step = s->step};
    s->all->agent->control(s->all->agent, s->id, s->attempt, &r);
}

int stream_input_open(struct agent_stream *s) {
    struct stream_input *in = &s->input;
    int spool = s->all->agent->spool_fd;
    if (in->page)
        return 0;
    int fd = spool_relay_file(spool, s->id, s->attempt, s->step, SPOOL_RELAY_INPUT, O_RDWR);
    if (fd < 0)
        return fd;
    in->page = launch_relay_map(spool, s->id, s->attempt, s->step);
    if (!in->page) {
        close(fd);
        return -EAGAIN;
    }
    in->file = fd;
    return 0;
}

void stream_input_done(struct stream_input *in) {
    if (in->page)
        close(in->file);
    in->page = launch_relay_unmap(in->page);
}

static void tell(struct agent_stream *s, bool closed, uint64_t at, uint64_t waiting, bool resend) {
    struct stream_input *in = &s->input;
    struct message_stream m = {.stream = s->number,
                               .position = true,
                               .eof = closed,
                               .input_taken = at,
                               .input_waiting = waiting,
                               .resend = resend};
    uint64_t left = at > waiting ? at - waiting : 0;
    if (in->told && !resend && closed == in->told_closed && at == in->told_at &&
        (in->placed || left <= in->told_left))
        return;
    if (in->told && !in->placed)  // release 0.1 is told the position once, then how much has left
        m = (struct message_stream){.stream = s->number,
                                    .credit = left > in->told_left ? left - in->told_left : 0};
    in->told = true;
    in->told_closed = closed;
    in->told_at = at;
    in->told_left = left;
    agent_send(s->all->agent, MESSAGE_STREAM_CREDIT, &m);
}

void stream_input_refuse(struct agent_stream *s) {
    tell(s, true, 0, 0, false);
}

// What is accepted waits in the file, and the tasks have read up to a point.
static void tell_position(struct agent_stream *s, bool resend) {
    const struct relay_page *page = s->input.page;
    uint64_t len = atomic_load(&page->in_len), read = atomic_load(&page->in_read);
    bool closed = atomic_load(&page->in_closed) || atomic_load(&page->in_ended);
    uint64_t at = len < read + RELAY_INPUT_BYTES ? len : read + RELAY_INPUT_BYTES;
    uint64_t foreign = atomic_load(&page->in_foreign);
    tell(s, closed, at > foreign ? at - foreign : 0, len > read ? len - read : 0, resend);
}

// A gap, more than was asked for, or a full disk: what follows is refused too until it is sent again.
static void refuse_piece(struct agent_stream *s) {
    int64_t now_ms = clock_mono_ms();
    bool resend = s->input.placed && now_ms - s->input.refused_ms >= RESEND_EVERY_MS;
    s->input.refused = s->input.placed;
    if (resend)
        s->input.refused_ms = now_ms;
    tell_position(s, resend);
}

// The shepherd may not have heard that there is something: its socket was full, or the agent before this one was killed
// between writing and waking it. Nothing else would tell it of the last piece, or of the end.
static void wake_again(struct agent_stream *s) {
    const struct relay_page *page = s->input.page;
    bool unfed = atomic_load(&page->in_len) > atomic_load(&page->in_read) ||
                 (atomic_load(&page->in_ended) && !atomic_load(&page->in_closed));
    int64_t now_ms = clock_mono_ms();
    if (unfed && now_ms - s->input.woken_ms >= WAKE_EVERY_MS) {
        s->input.woken_ms = now_ms;
        stream_wake(s);
    }
}

void stream_input_tell(struct agent_stream *s) {
    wake_again(s);
    if (s->input.refused)
        refuse_piece(s);  // asks for it again from time to time
    else
        tell_position(s, false);
}

void stream_input_take(struct agent_stream *s, const struct message_stream *m) {
    struct stream_input *in = &s->input;
    struct relay_page *page = in->page;
    if (!page)
        return;  // it is sent again from the position that is told when the files are there
    uint64_t len = atomic_load(&page->in_len), read = atomic_load(&page->in_read);
    uint64_t foreign = atomic_load(&page->in_foreign), mine = len - foreign;
    bool other = m->offset == UINT64_MAX;  // one who looks on: what it types comes where it comes
    uint64_t offset = in->placed ? m->offset : mine;
    if (atomic_load(&page->in_ended)) {
        tell_position(s, false);
        return;
    }
    if ((!other && offset > mine) || len + m->data.len > read + UNREAD_MAX) {
        refuse_piece(s);
        return;
    }
    in->refused = false;
    uint64_t skip = other ? 0 : mine - offset;
    if (skip < m->data.len) {
        size_t more = m->data.len - (size_t)skip;
        if (pwrite(in->file, (const char *)m->data.data + skip, more, (off_t)len) != (ssize_t)more) {
            refuse_piece(s);
            return;
        }
        if (other)
            atomic_store(&page->in_foreign, foreign + more);
        atomic_store(&page->in_len, len + more);
    }
    if (m->eof && !other && offset + m->data.len >= mine)
        atomic_store(&page->in_ended, 1);
    stream_wake(s);
    stream_input_tell(s);
}

void stream_input_resize(struct agent_stream *s, uint32_t rows, uint32_t columns) {
    if (!s->input.page)
        return;
    atomic_store(&s->input.page->rows, rows);
    atomic_store(&s->input.page->columns, columns);
    stream_wake(s);
}
