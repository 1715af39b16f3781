// Owns the table of streams and what all kinds share.
#include "stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"

static void on_watched(uv_poll_t *p, int status, int events) {
    struct stream_fd *w = p->data;
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
    return w;
}

void stream_fd_want(struct stream_fd *w, int events) {
    if (!w || w->events == events)
        return;
    w->events = events;
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

void stream_pipe_flush(struct stream_pipe *p) {
    while (p->w && p->pending.len) {
        ssize_t n = write(p->w->fd, p->pending.data, p->pending.len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n <= 0) {  // nobody reads any more
            buf_clear(&p->pending);
            p->w = stream_fd_close(p->w);
            break;
        }
        buf_drop(&p->pending, (size_t)n);
    }
    if (p->w && !p->pending.len && p->eof && !p->terminal)
        p->w = stream_fd_close(p->w);
    if (p->w)
        stream_fd_want(p->w, (p->w->events & UV_READABLE) | (p->pending.len ? UV_WRITABLE : 0));
}

void stream_pipe_write(struct stream_pipe *p, const void *data, size_t len, bool eof) {
    static const char end_of_input = 4;  // what a terminal's line discipline takes for the end
    if (!p->w || p->eof)
        return;
    if (p->pending.len + len <= STREAM_INPUT_MAX)
        buf_add(&p->pending, data, len);
    if (eof && p->terminal)
        buf_add(&p->pending, &end_of_input, 1);
    else if (eof)
        p->eof = true;
}

void stream_pipe_close(struct stream_pipe *p) {
    p->w = stream_fd_close(p->w);
    buf_done(&p->pending);
    if (p->keep_fd >= 0)
        close(p->keep_fd);
    p->keep_fd = -1;
}

void stream_put(struct agent_stream *s, uint32_t fd, uint32_t task, const void *data, size_t len) {
    struct message_stream m = {.stream = s->number, .fd = fd, .task = task,
                               .data = {.data = data, .len = len}};
    s->credit -= len < s->credit ? len : s->credit;
    agent_send(s->all->agent, MESSAGE_STREAM_DATA, &m);
}

void stream_credit_input(struct agent_stream *s, size_t waiting) {
    uint64_t left = s->input_bytes > waiting ? s->input_bytes - waiting : 0;
    if (left <= s->input_credited)
        return;
    struct message_stream m = {.stream = s->number, .credit = left - s->input_credited};
    s->input_credited = left;
    agent_send(s->all->agent, MESSAGE_STREAM_CREDIT, &m);
}

void stream_close(struct agent_stream *s) {
    struct streams *all = s->all;
    for (uint32_t i = 0; i < all->list.len; i++)
        if (all->list.at[i] == s) {
            vec_remove(&all->list, i);
            break;
        }
    s->log = stream_log_free(s->log);
    s->exec = stream_exec_free(s, s->exec);
    s->step_stream = stream_step_free(s, s->step_stream);
    buf_done(&s->early);
    free(s);
}

void stream_finish(struct agent_stream *s, int32_t exit_code, uint32_t exit_signal, const char *error) {
    struct message_stream m = {.stream = s->number, .eof = true, .exit_code = exit_code,
                               .exit_signal = exit_signal, .error = error};
    agent_send(s->all->agent, MESSAGE_STREAM_END, &m);
    stream_close(s);
}

static void on_timer(uv_timer_t *t) {
    struct streams *all = t->data;
    int64_t now_ms = clock_mono_ms();
    for (uint32_t i = all->list.len; i-- > 0;) {
        struct agent_stream *s = all->list.at[i];
        if (s->kind == STREAM_LOG)
            stream_log_pump(s, now_ms);
        else if (s->kind == STREAM_STEP)
            stream_step_pump(s, now_ms);
        else
            stream_exec_pump(s, now_ms);
        if (i > all->list.len)
            i = all->list.len;
    }
    stream_feeds_unblock(all);
    if (!all->list.len)
        uv_timer_stop(&all->timer);
}

struct streams *streams_new(struct agent_node *a) {
    struct streams *s = xcalloc(1, sizeof *s);
    s->agent = a;
    // Different after every start: steps of before may still have files.
    s->next_step = STREAM_STEP_FIRST + ((uint32_t)(clock_wall_ms() / 100) & STREAM_STEP_MASK);
    uv_timer_init(&a->loop, &s->timer);
    s->timer.data = s;
    return s;
}

void streams_close_all(struct streams *s) {
    while (s->list.len) {
        struct agent_stream *last = s->list.at[s->list.len - 1];
        if (last->kind == STREAM_EXEC)
            stream_exec_abandon(last);
        stream_close(last);
    }
}

static void on_timer_closed(uv_handle_t *h) {
    free(h->data);
}

struct streams *streams_free(struct streams *s) {
    if (!s)
        return NULL;
    streams_close_all(s);
    while (s->feeds.len)
        stream_feed_free(s->feeds.at[s->feeds.len - 1]);
    vec_done(&s->list);
    vec_done(&s->feeds);
    vec_done(&s->alone);
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
        stream_finish(s, 0, 0, "too many streams are open on this node");
        return NULL;
    }
    return s;
}

static void on_data(struct streams *all, const struct message_stream *m) {
    struct agent_stream *s = find(all, m->stream);
    if (!s)
        return;
    s->input_bytes += m->data.len;
    if (s->kind == STREAM_STEP) {
        stream_step_input(s, m);
        return;
    }
    if (s->kind == STREAM_EXEC) {
        stream_exec_input(s, m);
        return;
    }
    struct stream_feed *f = stream_feed_find(all, s->id, s->attempt);  // whoever reads an attached job feeds it
    if (f) {
        stream_feed_write(f, m->data.data, m->data.len, m->eof);
        stream_feed_flush(f);
    } else {
        if (s->early.len + m->data.len <= STREAM_INPUT_MAX)
            buf_add(&s->early, m->data.data, m->data.len);
        s->early_eof |= m->eof;
    }
}

static void on_resize(struct streams *all, const struct message_stream *m) {
    struct agent_stream *s = find(all, m->stream);
    struct stream_feed *f = s && s->kind == STREAM_LOG ? stream_feed_find(all, s->id, s->attempt) : NULL;
    if (s) {
        s->rows = m->rows;
        s->columns = m->columns;
    }
    if (s && s->kind == STREAM_EXEC)
        stream_exec_resize(s, m->rows, m->columns);
    else if (s && s->kind == STREAM_STEP)
        stream_step_resize(s, m->rows, m->columns);
    else if (f)
        stream_feed_resize(f, m->rows, m->columns);
}

static void on_credit(struct streams *all, const struct message_stream *m) {
    struct agent_stream *s = find(all, m->stream);
    if (!s)
        return;
    s->credit += m->credit;
    if (s->kind == STREAM_STEP && m->offset)
        stream_step_ack(s, m->offset);
    if (s->kind == STREAM_STEP)
        stream_step_pump(s, clock_mono_ms());
    else if (s->kind == STREAM_EXEC)
        stream_exec_credit(s);
    else
        stream_log_pump(s, clock_mono_ms());
}

static void on_stop(struct streams *all, const struct message_stream *m) {
    struct agent_stream *s = find(all, m->stream);
    if (!s)
        return;
    if (s->kind == STREAM_EXEC)
        stream_exec_abandon(s);
    stream_close(s);
}

void streams_users_changed(struct streams *all) {
    for (uint32_t i = all->list.len; i-- > 0;)
        if (i < all->list.len && all->list.at[i]->kind == STREAM_LOG)
            stream_log_pump(all->list.at[i], clock_mono_ms());
}

void streams_message(struct streams *all, const struct message *m) {
    struct agent_stream *s;
    if (m->type == MESSAGE_LOG_READ) {
        const struct message_log_read *r = m->body;
        if ((s = begin(all, STREAM_LOG, r->stream, r->id, r->attempt, r->credit)))
            stream_log_start(s, r);
    } else if (m->type == MESSAGE_EXEC) {
        const struct message_exec *x = m->body;
        if ((s = begin(all, STREAM_EXEC, x->stream, x->id, x->attempt, x->credit)))
            stream_exec_start(s, x);
    } else if (m->type == MESSAGE_STEP_ATTACH) {
        const struct message_step *x = m->body;
        if ((s = begin(all, STREAM_STEP, x->stream, x->id, x->attempt, x->credit)))
            stream_step_start(s, x);
    } else if (m->type == MESSAGE_STREAM_DATA) {
        on_data(all, m->body);
    } else if (m->type == MESSAGE_STREAM_CREDIT) {
        on_credit(all, m->body);
    } else if (m->type == MESSAGE_RESIZE) {
        on_resize(all, m->body);
    } else if (m->type == MESSAGE_STREAM_END) {
        on_stop(all, m->body);
    }
}

void streams_step_changed(struct streams *all, uint64_t id, uint32_t attempt, uint32_t step) {
    for (uint32_t i = all->list.len; i-- > 0;) {
        struct agent_stream *s = all->list.at[i];
        if (s->kind == STREAM_STEP && s->id == id && s->attempt == attempt && s->step == step)
            stream_step_pump(s, clock_mono_ms());
        if (i > all->list.len)
            i = all->list.len;
    }
}

void streams_step_ended(struct streams *all, uint64_t id, uint32_t attempt, uint32_t step) {
    for (uint32_t i = 0; i < all->list.len; i++) {
        struct agent_stream *s = all->list.at[i];
        if (s->kind == STREAM_EXEC && s->id == id && s->attempt == attempt && s->step == step) {
            stream_exec_step_ended(s);
            return;
        }
    }
    // Nobody waits for it any more.
    spool_remove_step(all->agent->spool_fd, id, attempt, step);
}

void streams_attempt_ended(struct streams *all, uint64_t id, uint32_t attempt) {
    struct stream_feed *f = stream_feed_find(all, id, attempt);
    if (f) {
        stream_feed_drain(f);
        stream_feed_free(f);
    }
    for (uint32_t i = all->list.len; i-- > 0;) {
        struct agent_stream *s = all->list.at[i];
        if (s->id != id || s->attempt != attempt)
            continue;
        if (s->kind == STREAM_EXEC)
            stream_exec_step_ended(s);
        else if (s->kind == STREAM_STEP)
            stream_step_pump(s, clock_mono_ms());
        else
            stream_log_pump(s, clock_mono_ms());
        if (i > all->list.len)
            i = all->list.len;
    }
}
