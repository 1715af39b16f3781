// A connection that speaks HTTP: bytes become requests, requests are handed out up to
// NET_PIPELINE_MAX at a time, and answers leave in the order of the requests. Parsing stops while
// the client does not read its answers, so that a client bounds its own memory here.
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "server_internal.h"

enum { OUTPUT_HIGH = 1024 * 1024 };  // unsent bytes beyond which no more requests are parsed

static const struct conn_ops http_ops;

static struct http_conn *http_of(struct net_conn *c) {
    return (struct http_conn *)c;  // the first member
}

static uint32_t or_default(uint32_t v, uint32_t fallback) {
    return v ? v : fallback;
}

// What the connection waits for decides how long it may.
static void set_deadline(struct http_conn *h) {
    const struct net_server_options *o = &h->server->options;
    if (h->current && h->parser.state == HTTP_STATE_BODY)
        return;  // set when the body began: slow bytes do not move it
    if (h->held && h->count == 0)
        return;  // about to be handed out
    if (h->count || h->held)
        net_conn_set_deadline(&h->conn, 0);
    else
        net_conn_set_deadline(&h->conn, or_default(o->idle_timeout_ms, NET_IDLE_TIMEOUT_MS));
}

static void begin_request(struct http_conn *h) {
    const struct net_server_options *o = &h->server->options;
    h->current = net_request_new(h);
    http_parser_begin(&h->parser, HTTP_REQUEST, &h->current->message, o->head_max, o->body_max);
}

static bool may_parse(const struct http_conn *h) {
    return !h->no_more && !h->upgrading && !h->upgraded && !h->held &&
           h->count < NET_PIPELINE_MAX && net_conn_pending(&h->conn) < OUTPUT_HIGH &&
           !h->conn.closing && !h->conn.finishing;
}

static void link_request(struct http_conn *h, struct net_server_request *r) {
    r->prev = h->last;
    *(h->last ? &h->last->next : &h->first) = r;
    h->last = r;
    h->count++;
    r->linked = true;
}

void http_conn_unlink(struct net_server_request *r) {
    struct http_conn *h = r->conn;
    assert(r->linked);
    *(r->prev ? &r->prev->next : &h->first) = r->next;
    *(r->next ? &r->next->prev : &h->last) = r->prev;
    r->prev = r->next = NULL;
    r->linked = false;
    h->count--;
}

// Gives a complete request to the handler, who may answer it before this returns.
static void hand_out(struct http_conn *h, struct net_server_request *r) {
    const struct http_message *m = &r->message;
    link_request(h, r);
    r->last = !m->keep_alive;
    if (r->last)
        h->no_more = true;
    h->upgrading = m->upgrade;
    r->pub.method = m->method;
    r->pub.path = m->path;
    r->pub.query = m->query;
    r->pub.body = buf_str(&m->body);
    r->pub.body_len = m->body.len;
    h->server->options.on_request(&r->pub, h->server->options.user);
}

// Bodies under way are bounded over all connections: anybody can begin one.
static bool count_receiving(struct http_conn *h) {
    struct net_server *s = h->server;
    size_t now = h->current ? h->current->message.body.len : 0;
    s->receiving += now;
    s->receiving -= h->receiving;
    h->receiving = now;
    return s->receiving <= s->options.receiving_max;
}

static struct net_server_request *take_current(struct http_conn *h) {
    struct net_server_request *r = h->current;
    h->current = NULL;
    count_receiving(h);
    return r;
}

static void take_request(struct http_conn *h) {
    struct net_server_request *r = take_current(h);
    if (r->message.upgrade && h->count)
        h->held = r;
    else
        hand_out(h, r);
}

// The answer to what could not be parsed; it takes its turn after the answers due before it.
static void refuse(struct http_conn *h, int status, const char *text) {
    struct net_server_request *r = h->current ? take_current(h) : net_request_new(h);
    buf_done(&r->message.body);
    h->no_more = true;
    link_request(h, r);
    r->last = true;
    net_reply(&r->pub, status, "text/plain; charset=utf-8", text, strlen(text));
}

static void after_head(struct http_conn *h) {
    const struct net_server_options *o = &h->server->options;
    net_conn_set_deadline(&h->conn, or_default(o->body_timeout_ms, NET_BODY_TIMEOUT_MS));
    if (h->current->message.expect_continue && !h->count)
        net_conn_write(&h->conn, "HTTP/1.1 100 Continue\r\n\r\n", 25);
}

static size_t consume(struct http_conn *h, const char *data, size_t len) {
    const struct net_server_options *o = &h->server->options;
    size_t used = 0;
    while (used < len && may_parse(h)) {
        if (!h->current) {
            begin_request(h);
            net_conn_set_deadline(&h->conn, or_default(o->head_timeout_ms, NET_HEAD_TIMEOUT_MS));
        }
        bool in_head = h->parser.state == HTTP_STATE_HEAD;
        ssize_t n = http_parser_feed(&h->parser, data + used, len - used);
        if (n < 0) {
            refuse(h, h->parser.fail_status, h->parser.fail_text);
            return len;
        }
        used += (size_t)n;
        if (!in_head && !count_receiving(h)) {
            refuse(h, 503, "The server receives too much at once; try again later.");
            return len;
        }
        if (in_head && h->parser.state == HTTP_STATE_BODY)
            after_head(h);
        if (h->parser.state == HTTP_STATE_DONE)
            take_request(h);
    }
    return used;
}

static size_t on_data(struct net_conn *c, const char *data, size_t len) {
    struct http_conn *h = http_of(c);
    if (h->no_more)
        return len;  // behind the last request: dropped
    net_conn_cork(c);
    h->consuming = true;
    size_t used = consume(h, data, len);
    h->consuming = false;
    if (!h->upgraded && !h->current && !c->closing)
        set_deadline(h);
    net_conn_uncork(c);
    return used;
}

void http_conn_advance(struct http_conn *h) {
    while (h->first && h->first->done) {
        struct net_server_request *r = h->first;
        bool last = r->last;
        http_conn_unlink(r);
        net_request_free(r);
        if (last) {
            net_conn_finish(&h->conn);
            return;
        }
        // The next one's answer, as far as it is there, may leave now.
        if (h->first && h->first->out.len) {
            h->queued -= h->first->out.len;
            net_conn_write(&h->conn, h->first->out.data, h->first->out.len);
            buf_done(&h->first->out);
        }
    }
    if (h->held && h->count == 0 && !h->conn.closing) {
        net_conn_set_deadline(&h->conn, 1);  // on_deadline hands it out, from the loop
        return;
    }
    if (!h->consuming) {
        if (!h->current && !h->conn.closing && h->server)
            set_deadline(h);
        if (may_parse(h))
            net_conn_resume(&h->conn);
    }
}

static void on_deadline(struct net_conn *c) {
    struct http_conn *h = http_of(c);
    if (h->held && h->count == 0) {
        struct net_server_request *r = h->held;
        h->held = NULL;
        hand_out(h, r);
    } else if (h->current) {
        refuse(h, 408, "The request did not arrive in time.");
    } else {
        net_conn_hang_up(c);
    }
}

// The client sends no more. Answers that are due still go to one that only shut its sending side.
static void on_eof(struct net_conn *c) {
    struct http_conn *h = http_of(c);
    h->no_more = true;
    if (net_conn_peer_closed(c) || (h->count == 0 && !h->held)) {
        net_conn_destroy(c);
        return;
    }
    if (h->last)
        h->last->last = true;
    for (struct net_server_request *r = h->first; r; r = r->next)
        if (r->streaming) {
            net_conn_destroy(c);  // nobody may ever notice otherwise that the reader of a stream left
            return;
        }
}

static void on_drain(struct net_conn *c) {
    struct http_conn *h = http_of(c);
    if (may_parse(h))
        net_conn_resume(c);
    struct net_server_request *r = h->first;
    if (r && r->streaming && r->on_drain)
        r->on_drain(&r->pub, r->watch_user);
}

static void drop_request(struct net_server_request *r) {
    if (r->linked)
        http_conn_unlink(r);
    r->gone = true;
    if (r->done)
        net_request_free(r);
    else if (r->on_close)
        r->on_close(&r->pub, r->watch_user);
}

static void on_gone(struct net_conn *c) {
    struct http_conn *h = http_of(c);
    if (h->current)
        net_request_free(take_current(h));
    h->held = net_request_free(h->held);
    while (h->first)
        drop_request(h->first);
}

static void on_shutdown(struct net_conn *c) {
    struct http_conn *h = http_of(c);
    h->no_more = true;
    if (h->count == 0 && !h->held)
        net_conn_hang_up(c);
    else if (h->last)
        h->last->last = true;
}

void http_conn_shutdown(struct http_conn *h) {
    struct net_conn *c = &h->conn;
    if (c->finishing && c->shutdown_sent && net_conn_pending(c) == 0)
        net_conn_destroy(c);  // only lingers
    else if (!c->closing && !c->finishing)
        c->ops->on_shutdown(c);
}

static const struct conn_ops http_ops = {
    .on_data = on_data,
    .on_eof = on_eof,
    .on_drain = on_drain,
    .on_deadline = on_deadline,
    .on_shutdown = on_shutdown,
    .on_gone = on_gone,
};

void http_conn_start(struct net_server *s, struct http_conn *h) {
    const struct net_server_options *o = &s->options;
    h->server = s;
    h->conn.ops = &http_ops;
    h->conn.owner = h;
    h->conn.output_max = o->output_max ? o->output_max : NET_OUTPUT_MAX;
    h->conn.write_timeout_ms = or_default(o->write_timeout_ms, NET_WRITE_TIMEOUT_MS);
    net_conn_set_deadline(&h->conn, or_default(o->head_timeout_ms, NET_HEAD_TIMEOUT_MS));
    net_conn_start(&h->conn);
}
