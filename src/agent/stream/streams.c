// Owns the table of streams and what all kinds share.
#include "stream.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"

static void on_watched(uv_poll_t *p, int status, int events) {
    struct stream_fd *w = p->data;
    if (status < 0)
        w->wanted = 0;  // libuv watches no more after an error
    w->on_ready(w, status < 0 ? UV_READABLE | UV_WRITABLE : events);
}

struct stream_fd *stream_fd_new(struct agent_node *a, int fd, void *owner,
                            void (*on_ready)(struct stream_fd *w, int events)) {
    struct stream_fd *w = xcalloc(1, sizeof *w);
    *w = (struct stream_fd){.fd = fd, .owner = owner, .on_ready = on_ready};
    if (uv_poll_init(&a->loop, &w->poll, fd) < 0) {
        free(w);
        return NULL;
    }
    w->poll.data = w;
    stream_fd_want(w, UV_READABLE);
    return w;
}

void stream_fd_want(struct stream_fd *w, int events) {
    if (events == w->wanted)
        return;  // to start it again costs a system call
    w->wanted = events;
    if (events)
        uv_poll_start(&w->poll, events, on_watched);
    else
        uv_poll_stop(&w->poll);
}

static void on_closed(uv_handle_t *h) {
    struct stream_fd *w = h->data;
    close(w->fd);
    free(w);
}

struct stream_fd *stream_fd_close(struct stream_fd *w) {
    if (w)
        uv_close((uv_handle_t *)&w->poll, on_closed);
    return NULL;
}

void stream_close(struct agent_stream *s) {
    struct streams *all = s->all;
    for (uint32_t i = 0; i < all->list.len; i++)
        if (all->list.at[i] == s) {
            vec_remove(&all->list, i);
            break;
        }
    s->log = stream_log_free(s->log);
    s->step_stream = stream_step_free(s->step_stream);
    s->file = stream_file_free(s->file);
    s->port = stream_port_free(s->port);
    stream_input_done(&s->input);
    free(s);
}

void stream_finish(struct agent_stream *s, const char *error) {
    struct message_stream m = {.stream = s->number, .eof = true, .error = error};
    agent_send(s->all->agent, MESSAGE_STREAM_END, &m);
    stream_close(s);
}

static void pump(struct agent_stream *s, int64_t now_ms) {
    switch (s->kind) {
    case STREAM_LOG: stream_log_pump(s, now_ms); break;
    case STREAM_STEP: stream_step_pump(s, now_ms); break;
    case STREAM_FILE: stream_file_pump(s, now_ms); break;
    case STREAM_PORT: stream_port_pump(s, now_ms); break;
    }
}

bool stream_takes_more(const struct agent_stream *s) {
    const struct agent_node *a = s->all->agent;
    return a->ws && net_ws_pending(a->ws) < STREAM_UNSENT_MAX;
}

uint64_t stream_room(const struct agent_stream *s) {
    return stream_takes_more(s) ? s->credit : 0;
}

// The streams from `to` down to `from`; some of them may end meanwhile.
static void pump_part(struct streams *all, uint32_t from, uint32_t to, int64_t now_ms) {
    for (uint32_t i = to; i > from;) {
        if (i > all->list.len) {
            i = all->list.len;
            continue;
        }
        pump(all->list.at[--i], now_ms);
    }
}

// Each time another one comes first: when all together send more than the connection takes, they take turns.
static void on_timer(uv_timer_t *t) {
    struct streams *all = t->data;
    int64_t now_ms = clock_mono_ms();
    uint32_t first = all->list.len ? all->turn++ % all->list.len : 0;
    pump_part(all, 0, first, now_ms);
    pump_part(all, first, all->list.len, now_ms);
    if (!all->list.len)
        uv_timer_stop(&all->timer);
}

struct streams *streams_new(struct agent_node *a) {
    struct streams *s = xcalloc(1, sizeof *s);
    s->agent = a;
    uv_timer_init(&a->loop, &s->timer);
    s->timer.data = s;
    return s;
}

void streams_close_all(struct streams *s) {
    while (s->list.len)
        stream_close(s->list.at[s->list.len - 1]);
}

static void on_timer_closed(uv_handle_t *h) {
    free(h->data);
}

struct streams *streams_free(struct streams *s) {
    if (!s)
        return NULL;
    streams_close_all(s);
    vec_done(&s->list);
    streams_alone_done(s);
    vec_done(&s->kept_users);
    uv_close((uv_handle_t *)&s->timer, on_timer_closed);
    return NULL;
}

static struct agent_stream *find(struct streams *all, uint64_t number) {
    for (uint32_t i = 0; i < all->list.len; i++)
        if (all->list.at[i]->number == number)
            return all->list.at[i];
    return NULL;
}

static struct agent_stream *begin(struct streams *all, enum stream_kind kind, uint64_t number,
                            uint64_t id, uint32_t attempt, uint64_t credit) {
    if (find(all, number))
        return NULL;
    struct agent_stream *s = xcalloc(1, sizeof *s);
    *s = (struct agent_stream){.all = all, .kind = kind, .number = number, .id = id, .attempt = attempt,
                         .credit = credit};
    vec_push(&all->list, s);
    if (!uv_is_active((uv_handle_t *)&all->timer))
        uv_timer_start(&all->timer, on_timer, STREAM_POLL_MS, STREAM_POLL_MS);
    if (all->list.len > AGENT_STREAMS_MAX) {
        stream_finish(s, "too many streams are open on this node");
        return NULL;
    }
    return s;
}

static void on_credit(struct streams *all, const struct message_stream *m) {
    struct agent_stream *s = find(all, m->stream);
    if (!s)
        return;
    if (s->kind == STREAM_PORT) {
        stream_port_credit(s, m->credit);
        return;
    }
    s->credit += m->credit;
    if (s->kind == STREAM_STEP && m->offset)
        stream_step_ack(s, m->offset);
    else if (s->kind == STREAM_LOG && m->offset)
        stream_log_ack(s, m->offset);
    pump(s, clock_mono_ms());
}

// A controller of release 0.1 runs commands by themselves; now they are steps.
static void refuse_exec(struct streams *all, const struct message_exec *m) {
    struct message_stream end = {
        .stream = m->stream,
        .eof = true,
        .error = "this node's agent is of a later release than the controller and runs no "
                 "commands for it; upgrade the controller"};
    agent_send(all->agent, MESSAGE_STREAM_END, &end);
}

void streams_users_changed(struct streams *all) {
    for (uint32_t i = all->list.len; i-- > 0;)
        if (i < all->list.len && all->list.at[i]->kind != STREAM_STEP)
            pump(all->list.at[i], clock_mono_ms());
}

void streams_message(struct streams *all, const struct message *m) {
    const struct message_stream *data = m->body;
    struct agent_stream *s;
    // begin() gives NULL when there is such a stream already, and when too many are open, which it says.
    switch (m->type) {
    case MESSAGE_LOG_READ: {
        const struct message_log_read *r = m->body;
        if ((s = begin(all, STREAM_LOG, r->stream, r->id, r->attempt, r->credit)))
            stream_log_start(s, r);
        break;
    }
    case MESSAGE_STEP_ATTACH: {
        const struct message_step *x = m->body;
        if ((s = begin(all, STREAM_STEP, x->stream, x->id, x->attempt, x->credit)))
            stream_step_start(s, x);
        break;
    }
    case MESSAGE_FILE: {
        const struct file_request *q = m->body;
        if ((s = begin(all, STREAM_FILE, q->stream, 0, 0, q->credit)))
            stream_file_start(s, q);
        break;
    }
    case MESSAGE_CONNECT: {
        const struct message_connect *x = m->body;
        if ((s = begin(all, STREAM_PORT, x->stream, x->id, x->attempt, x->credit)))
            stream_port_start(s, x);
        break;
    }
    case MESSAGE_STEP_RECEIVED: stream_step_received(all->agent, m->body); break;
    case MESSAGE_EXEC: refuse_exec(all, m->body); break;
    case MESSAGE_STREAM_CREDIT: on_credit(all, data); break;
    case MESSAGE_STREAM_DATA:
        // A stream of files has no input: the whole order went with the request.
        if ((s = find(all, data->stream)) && s->kind == STREAM_PORT)
            stream_port_take(s, data);
        else if (s && s->kind != STREAM_FILE)
            stream_input_take(s, data);
        break;
    case MESSAGE_RESIZE:
        if ((s = find(all, data->stream)) && (s->kind == STREAM_LOG || s->kind == STREAM_STEP))
            stream_input_resize(s, data->rows, data->columns);
        break;
    case MESSAGE_STREAM_END:
        if ((s = find(all, data->stream)))
            stream_close(s);
        break;
    default: break;
    }
}

static void pump_all(struct streams *all, uint64_t id, uint32_t attempt, uint32_t step, bool any_step) {
    for (uint32_t i = all->list.len; i-- > 0;) {
        struct agent_stream *s = all->list.at[i];
        if (s->id == id && s->attempt == attempt && (any_step || s->step == step)) {
            if (s->log)
                stream_log_kick(s);
            else
                pump(s, clock_mono_ms());
        }
        if (i > all->list.len)
            i = all->list.len;
    }
}

void streams_changed(struct streams *all, uint64_t id, uint32_t attempt, uint32_t step) {
    pump_all(all, id, attempt, step, false);
}

void streams_attempt_ended(struct streams *all, uint64_t id, uint32_t attempt) {
    pump_all(all, id, attempt, 0, true);
}
