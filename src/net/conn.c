// Connections: reading, writing, TLS, deadlines, ending. The order of things at the end is fixed:
// finish (flush, close-notify, shut the sending side, linger), destroy (close the handles), gone
// (tell the owner), free (when the last reference is dropped).
#include "conn.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <string.h>

enum {
    TRY_BYTES = 256 * 1024,  // more is handed to the loop whole, instead of being moved up
    OUTPUT_PARTS = 64,       // of the limit of a connection, what it may have when its account's is reached
};

static void on_timer(uv_timer_t *timer);
static void count_output(struct net_conn *c);

static struct net_conn *from_handle(const void *handle) {
    return ((const uv_handle_t *)handle)->data;
}

static uint64_t now(const struct net_conn *c) {
    return uv_now(c->timer.loop);
}

void net_conn_init(struct net_conn *c, uv_loop_t *loop, char *read_buffer) {
    c->refs = 1;
    c->handles = 2;
    c->read_buffer = read_buffer;
    c->handle.data = c;
    uv_timer_init(loop, &c->timer);
    c->timer.data = c;
    c->write.data = c;
    c->shutdown.data = c;
    if (!c->output_max)
        c->output_max = NET_OUTPUT_MAX;
    if (!c->keep_bytes)
        c->keep_bytes = CONN_KEEP_BYTES;
    c->last_input = now(c);
}

struct net_conn *net_conn_ref(struct net_conn *c) {
    c->refs++;
    return c;
}

void net_conn_unref(struct net_conn *c) {
    assert(c->refs > 0);
    if (--c->refs)
        return;
    assert(c->handles == 0);
    tls_free(c->tls);
    buf_done(&c->out);
    buf_done(&c->inflight);
    buf_done(&c->pushback);
    c->free_fn(c);
}

// Makes the timer fire no later than the next thing that is due.
static void arm(struct net_conn *c) {
    uint64_t next = UINT64_MAX;
    if (c->deadline)
        next = c->deadline;
    if (c->write_deadline && c->write_deadline < next)
        next = c->write_deadline;
    if (c->kicked)
        next = c->kick_at;
    if (next == UINT64_MAX || c->closing || (uv_is_active((uv_handle_t *)&c->timer) &&
                                             c->due <= next))
        return;
    c->due = next;
    uint64_t t = now(c);
    uv_timer_start(&c->timer, on_timer, next > t ? next - t : 0, 0);
}

void net_conn_set_deadline(struct net_conn *c, uint64_t after_ms) {
    if (c->finishing)
        return;
    c->deadline = after_ms ? now(c) + after_ms : 0;
    arm(c);
}

static void on_handle_closed(uv_handle_t *handle) {
    struct net_conn *c = handle->data;
    if (--c->handles)
        return;
    c->ops->on_gone(c);
    if (c->on_closed)
        c->on_closed(c);
    net_conn_unref(c);
}

void net_conn_destroy(struct net_conn *c) {
    if (c->closing)
        return;
    c->closing = true;
    count_output(c);
    uv_close(&c->handle, on_handle_closed);
    uv_close((uv_handle_t *)&c->timer, on_handle_closed);
}

static void fail(struct net_conn *c, int code) {
    if (!c->problem_code)
        c->problem_code = code;
    net_conn_destroy(c);
}

size_t net_conn_pending(const struct net_conn *c) {
    return c->out.len + c->inflight.len;
}

static void count_output(struct net_conn *c) {
    size_t now_unsent = c->closing ? 0 : net_conn_pending(c) + c->queued;
    if (!c->account)
        return;
    c->account->unsent += now_unsent - c->counted;
    c->counted = now_unsent;
}

void net_conn_set_account(struct net_conn *c, struct conn_account *a) {
    if (c->account)
        c->account->unsent -= c->counted;
    c->account = a;
    c->counted = 0;
    count_output(c);
}

void net_conn_queued(struct net_conn *c, size_t bytes) {
    c->queued = bytes;
    count_output(c);
}

bool net_conn_account_full(const struct net_conn *c) {
    return c->account && c->account->unsent > c->account->unsent_max;
}

static void flush(struct net_conn *c);

static void on_shut(uv_shutdown_t *req, int status) {
    struct net_conn *c = req->data;
    if (status < 0 || c->eof)
        net_conn_destroy(c);
}

static void on_written(uv_write_t *req, int status) {
    struct net_conn *c = req->data;
    c->writing = false;
    buf_clear(&c->inflight);
    if (c->inflight.cap > c->keep_bytes)
        buf_done(&c->inflight);
    c->write_deadline = 0;
    count_output(c);
    if (c->closing)
        return;
    if (status < 0) {
        fail(c, status);
        return;
    }
    flush(c);
    if (!c->closing && !c->finishing && net_conn_pending(c) == 0 && c->ops->on_drain)
        c->ops->on_drain(c);
}

static void write_rest(struct net_conn *c) {
    assert(!c->writing && c->inflight.len == 0);
    struct buf swap = c->inflight;
    c->inflight = c->out;
    c->out = swap;
    uv_buf_t b = uv_buf_init(c->inflight.data, (unsigned)c->inflight.len);
    int r = uv_write(&c->write, &c->stream, &b, 1, on_written);
    if (r < 0) {
        fail(c, r);
        return;
    }
    c->writing = true;
    c->write_left = c->stream.write_queue_size;
    if (c->write_timeout_ms) {
        c->write_deadline = now(c) + c->write_timeout_ms;
        arm(c);
    }
}

// Sends what is in `out`: at once as far as the kernel takes it, the rest through the loop.
static void flush(struct net_conn *c) {
    if (c->writing || c->closing)
        return;
    if (c->out.len > TRY_BYTES) {
        write_rest(c);
        return;
    }
    if (c->out.len) {
        uv_buf_t b = uv_buf_init(c->out.data, (unsigned)c->out.len);
        int n = uv_try_write(&c->stream, &b, 1);
        if (n < 0 && n != UV_EAGAIN) {
            fail(c, n);
            return;
        }
        if (n > 0)
            buf_drop(&c->out, (size_t)n);
        if (c->out.len) {
            write_rest(c);
            return;
        }
        if (c->out.cap > c->keep_bytes)
            buf_done(&c->out);
    }
    if (c->finishing && !c->shutdown_sent) {
        c->shutdown_sent = true;
        if (uv_shutdown(&c->shutdown, &c->stream, on_shut) < 0)
            net_conn_destroy(c);
    }
}

// Offers both parts to the kernel as they are, if nothing waits before them. Returns how many bytes it took; whatever
// is wrong with the connection is found when the rest is sent.
static size_t write_now(struct net_conn *c, const void *head, size_t head_len, const void *data, size_t len) {
    if (c->writing || c->out.len || c->corked || head_len + len == 0 || head_len + len > TRY_BYTES)
        return 0;
    uv_buf_t parts[2] = {uv_buf_init((char *)(uintptr_t)head, (unsigned)head_len),
                         uv_buf_init((char *)(uintptr_t)data, (unsigned)len)};
    int n = head_len ? uv_try_write(&c->stream, parts, len ? 2 : 1) : uv_try_write(&c->stream, parts + 1, 1);
    return n > 0 ? (size_t)n : 0;
}

static void write_plain(struct net_conn *c, const void *head, size_t head_len, const void *data, size_t len) {
    size_t n = write_now(c, head, head_len, data, len), of_head = n < head_len ? n : head_len;
    if (of_head < head_len)
        buf_add(&c->out, (const char *)head + of_head, head_len - of_head);
    if (n < head_len + len)
        buf_add(&c->out, (const char *)data + (n - of_head), len - (n - of_head));
}

static ssize_t write_parts(struct net_conn *c, const void *head, size_t head_len, const void *data,
                           size_t len) {
    if (c->closing || c->finishing)
        return -EPIPE;
    if (c->tls && !tls_established(c->tls))
        return -ENOTCONN;
    if (net_conn_pending(c) + head_len + len > CONN_OUTPUT_HARD_MAX) {
        fail(c, UV_ENOBUFS);
        return -ENOBUFS;
    }
    if (!c->tls) {
        write_plain(c, head, head_len, data, len);
    } else if ((head_len && tls_write(c->tls, head, head_len, &c->out) < 0) ||
               tls_write(c->tls, data, len, &c->out) < 0) {
        fail(c, UV_EPROTO);
        return -EPIPE;
    }
    if (!c->corked)
        flush(c);
    count_output(c);
    return c->closing ? -EPIPE : (ssize_t)net_conn_pending(c);
}

ssize_t net_conn_write(struct net_conn *c, const void *data, size_t len) {
    return write_parts(c, NULL, 0, data, len);
}

ssize_t net_conn_write_bounded(struct net_conn *c, const void *data, size_t len) {
    return net_conn_write_parts(c, NULL, 0, data, len);
}

ssize_t net_conn_write_parts(struct net_conn *c, const void *head, size_t head_len, const void *data,
                             size_t len) {
    size_t before = net_conn_pending(c);
    ssize_t n = write_parts(c, head, head_len, data, len);
    // One piece may be larger than the limit, but nothing may pile up behind another.
    size_t max = net_conn_account_full(c) ? c->output_max / OUTPUT_PARTS : c->output_max;
    if (n >= 0 && before > 0 && (size_t)n > max) {
        c->problem = "the peer is too slow for what it is sent";
        fail(c, UV_ENOBUFS);
        return -ENOBUFS;
    }
    return n;
}

void net_conn_cork(struct net_conn *c) {
    c->corked = true;
}

void net_conn_uncork(struct net_conn *c) {
    c->corked = false;
    flush(c);
    count_output(c);
}

void net_conn_finish(struct net_conn *c) {
    if (c->closing || c->finishing)
        return;
    if (c->tls) {
        tls_end(c->tls);
        tls_output(c->tls, &c->out);
    }
    net_conn_set_deadline(c, CONN_LINGER_MS + (net_conn_pending(c) ? c->write_timeout_ms : 0));
    c->finishing = true;
    buf_done(&c->pushback);
    if (c->paused)
        net_conn_resume(c);
    if (!c->corked)
        flush(c);
}

// Nothing is under way, so there is nothing to linger for; the peer still gets an orderly end.
void net_conn_hang_up(struct net_conn *c) {
    if (net_conn_pending(c)) {
        net_conn_finish(c);
        return;
    }
    if (c->tls && !c->closing) {
        tls_end(c->tls);
        tls_output(c->tls, &c->out);
        flush(c);
    }
    net_conn_destroy(c);
}

bool net_conn_peer_closed(const struct net_conn *c) {
    if (c->tls)
        return true;
    uv_os_fd_t fd;
    if (uv_fileno(&c->handle, &fd) < 0)
        return true;
    struct pollfd p = {.fd = fd};
    return poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR));
}

static void go_on_at(struct net_conn *c, uint64_t ms) {
    net_conn_pause(c);
    c->kicked = true;
    c->kick_at = ms;
    arm(c);
}

static void go_on_in_next_turn(struct net_conn *c) {
    go_on_at(c, now(c) + 1);  // at once would be in this turn, if it is a timer that brought us here
}

// How long, from the beginning of the turn. A single message may take longer than the part of a turn: then others get
// as much time afterwards as it took beyond that.
static uint64_t rest_ms(const struct conn_account *a, bool many) {
    uint64_t least = many ? CONN_LONG_REST_MS : CONN_REST_MS, ms = (2 * a->spent_ns - CONN_TURN_NS) / 1000000;
    return ms < least ? least : ms > CONN_REST_MAX_MS ? CONN_REST_MAX_MS : ms;
}

static bool rests(struct conn_account *a, uint64_t t) {
    if (a->at_ms != t && t >= a->rests_until_ms) {
        a->at_ms = t;
        a->spent_ns = a->pieces = 0;
    }
    if (a->spent_ns < CONN_TURN_NS)
        return false;
    if (t >= a->rests_until_ms) {
        bool many = a->pieces > a->many_pieces;
        uint64_t ms = rest_ms(a, many);
        a->rests_until_ms = t + ms;
        a->rest_max_ms = ms > a->rest_max_ms ? ms : a->rest_max_ms;
        a->long_rests += many;
    }
    return true;
}

// Goes on in a later turn if the account, or that of all strangers, has used up its part of this one.
static bool account_rests(struct net_conn *c) {
    uint64_t until_ms = 0;
    for (struct conn_account *a = c->account; a; a = a->all)
        if (rests(a, now(c)) && a->rests_until_ms > until_ms)
            until_ms = a->rests_until_ms;
    if (until_ms)
        go_on_at(c, until_ms);
    return until_ms;
}

static void account_spend(struct net_conn *c, uint64_t began_ns) {
    uint64_t took_ns = uv_hrtime() - began_ns;
    for (struct conn_account *a = c->account; a; a = a->all) {
        a->spent_ns += took_ns;
        a->pieces++;
    }
}

// Offers bytes to the owner, who may change, pause or end the connection meanwhile.
static void deliver(struct net_conn *c, const char *data, size_t len) {
    while (len && !c->paused && !c->closing && !c->finishing && !account_rests(c)) {
        uint64_t began_ns = uv_hrtime();
        size_t n = c->ops->on_data(c, data, len);
        account_spend(c, began_ns);
        assert(n <= len);
        data += n;
        len -= n;
        if (n == 0)
            c->paused = true;
    }
    if (len && !c->closing && !c->finishing)
        buf_add(&c->pushback, data, len);
}

static void handle_eof(struct net_conn *c) {
    if (c->eof || c->closing)
        return;
    c->eof = true;
    if (c->finishing) {
        if (c->shutdown_sent && net_conn_pending(c) == 0)
            net_conn_destroy(c);
        return;
    }
    c->ops->on_eof(c);
}

static bool pump_handshake(struct net_conn *c) {
    uint64_t began_ns = uv_hrtime();
    int r = tls_handshake(c->tls);
    account_spend(c, began_ns);
    tls_output(c->tls, &c->out);
    flush(c);
    if (c->closing)
        return false;
    if (r < 0) {
        c->problem = tls_problem(c->tls);
        fail(c, UV_EPROTO);
        return false;
    }
    if (r == 0)
        return false;
    c->peer.has_cert =
        tls_peer(c->tls, c->peer.cert_cn, sizeof c->peer.cert_cn, c->peer.cert_sha256);
    if (c->ops->on_open)
        c->ops->on_open(c);
    return !c->closing;
}

// Whoever sends his hello in pieces is read from less and less often: what came meanwhile is then one piece.
static void await_hello(struct net_conn *c) {
    c->hello_ms = c->hello_ms < CONN_HELLO_MAX_MS ? 2 * c->hello_ms + 1 : CONN_HELLO_MAX_MS;
    go_on_at(c, now(c) + c->hello_ms);
}

// Goes on in a later turn if there is no complete hello yet, or if this turn has seen enough handshakes.
static bool handshake_waits(struct net_conn *c) {
    struct conn_handshakes *h = c->handshakes;
    if (tls_awaits_hello(c->tls)) {
        await_hello(c);
        return true;
    }
    if (account_rests(c))
        return true;
    if (!h)
        return false;
    if (h->at_ms != now(c)) {
        h->at_ms = now(c);
        h->steps = 0;
    }
    if (h->steps >= CONN_HANDSHAKES_TURN) {
        go_on_in_next_turn(c);
        return true;
    }
    h->steps_all++;
    if (++h->steps > h->steps_max)
        h->steps_max = h->steps;
    return false;
}

static void pump_tls(struct net_conn *c) {
    char plain[16 * 1024];
    if (!tls_established(c->tls) && (handshake_waits(c) || !pump_handshake(c)))
        return;
    while (!c->paused && !c->closing && !account_rests(c)) {
        uint64_t began_ns = uv_hrtime();
        ssize_t n = tls_read(c->tls, plain, sizeof plain);
        account_spend(c, began_ns);
        if (n == 0)
            break;
        if (n == -EPIPE) {
            handle_eof(c);
            break;
        }
        if (n < 0) {
            c->problem = tls_problem(c->tls);
            fail(c, UV_EPROTO);
            return;
        }
        deliver(c, plain, (size_t)n);
    }
    if (!c->closing) {
        tls_output(c->tls, &c->out);
        if (!c->corked)
            flush(c);
    }
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *b) {
    *b = uv_buf_init(from_handle(handle)->read_buffer, CONN_READ_BYTES);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *b) {
    struct net_conn *c = from_handle(stream);
    if (n == 0 || c->closing)
        return;
    if (n == UV_EOF) {
        handle_eof(c);
        return;
    }
    if (n < 0) {
        fail(c, (int)n);
        return;
    }
    c->last_input = now(c);
    if (c->tls) {
        tls_feed(c->tls, b->base, (size_t)n);
        pump_tls(c);
    } else {
        deliver(c, b->base, (size_t)n);
    }
    if (!c->closing && c->paused)
        uv_read_stop(&c->stream);
}

static void read_on(struct net_conn *c) {
    if (c->closing || c->paused || c->eof)
        return;
    int r = uv_read_start(&c->stream, on_alloc, on_read);
    if (r < 0 && r != UV_EALREADY)
        fail(c, r);
}

void net_conn_start(struct net_conn *c) {
    if (c->tls && !tls_awaits_hello(c->tls))
        pump_handshake(c);
    read_on(c);
}

void net_conn_pause(struct net_conn *c) {
    c->paused = true;
    c->kicked = false;  // a resume that has not happened yet is taken back
    if (!c->closing)
        uv_read_stop(&c->stream);
}

void net_conn_resume(struct net_conn *c) {
    if (!c->paused || c->closing)
        return;
    c->kicked = true;
    c->kick_at = 0;
    arm(c);
}

// The deferred part of net_conn_resume: bytes that were put back come before new ones.
static void resume_now(struct net_conn *c) {
    c->paused = false;
    if (account_rests(c))
        return;  // before anything is copied: many may wait for the same account
    struct buf again = c->pushback;
    c->pushback = (struct buf){0};
    deliver(c, again.data, again.len);
    buf_done(&again);
    if (!c->closing && !c->paused && c->tls && !tls_awaits_hello(c->tls))
        pump_tls(c);
    read_on(c);
}

static void check_write_progress(struct net_conn *c) {
    size_t left = c->stream.write_queue_size;
    if (left < c->write_left) {
        c->write_left = left;
        c->write_deadline = now(c) + c->write_timeout_ms;
        return;
    }
    c->problem = "the peer takes no output";
    fail(c, UV_ETIMEDOUT);
}

static void on_timer(uv_timer_t *timer) {
    struct net_conn *c = timer->data;
    uint64_t t = now(c);
    if (c->kicked) {
        c->kicked = false;
        resume_now(c);
    }
    if (!c->closing && c->write_deadline && t >= c->write_deadline)
        check_write_progress(c);
    if (!c->closing && c->deadline && t >= c->deadline) {
        c->deadline = 0;
        if (c->finishing)
            net_conn_destroy(c);
        else
            c->ops->on_deadline(c);
    }
    arm(c);
}
