// A connection that speaks HTTP: bytes become requests, requests are handed out up to
// NET_PIPELINE_MAX at a time, and answers leave in the order of the requests. Parsing stops while
// the client does not read its answers, so that a client bounds its own memory here.
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "server_internal.h"
#include "socket_internal.h"

enum {
    KEEPALIVE_S =
        60,  // a connection that was taken over may be silent for long: the kernel asks whether it is alive
    OUTPUT_HIGH = 1024 * 1024,  // unsent bytes beyond which no more requests are parsed
};

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
    if (h->refused || (h->held && h->count == 0))
        return;  // its deadline hands it out
    if (h->count || h->held)
        net_conn_set_deadline(&h->conn, 0);
    else if (h->identified)
        net_conn_set_deadline(&h->conn, or_default(o->idle_timeout_ms, NET_IDLE_TIMEOUT_MS));
    else
        net_conn_set_deadline(&h->conn, or_default(o->head_timeout_ms, NET_HEAD_TIMEOUT_MS));
}

static void begin_request(struct http_conn *h) {
    const struct net_server_options *o = &h->server->options;
    h->current = net_request_new(h);
    // Whoever takes the connection over has limits of its own: after_head sets ours.
    http_parser_begin(&h->parser, HTTP_REQUEST, &h->current->message, o->head_max,
                      o->takeover.wants ? INT64_MAX : o->body_max);
}

static bool may_parse(const struct http_conn *h) {
    return !h->no_more && !h->upgrading && !h->upgraded && !h->held && h->count < NET_PIPELINE_MAX &&
           net_conn_pending(&h->conn) + h->queued < OUTPUT_HIGH && !h->conn.closing && !h->conn.finishing;
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
    r->pub.body = buf_str(&m->body);
    r->pub.body_len = m->body.len;
    h->server->options.on_request(&r->pub, h->server->options.user);
}

static struct net_server_request *take_current(struct http_conn *h) {
    struct net_server_request *r = h->current;
    struct http_conn *victim;
    h->current = NULL;
    if (h->server && h->budget)
        net_budget_receive(h, &victim);
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

static void refuse_as(struct http_conn *h, const struct net_admission *a) {
    struct net_server_request *r = take_current(h);
    buf_done(&r->message.body);
    h->no_more = true;
    link_request(h, r);
    r->last = true;
    if (!a->delay_ms) {
        net_reply(&r->pub, a->status, a->content_type, a->text, strlen(a->text));
        return;
    }
    r->late_status = a->status;
    r->late_type = a->content_type;
    buf_adds(&r->late_text, a->text);
    h->refused = r;
    net_conn_set_deadline(&h->conn, a->delay_ms);
}

// Who sends the request is decided before its body costs memory. False: it was refused.
static bool admit(struct http_conn *h) {
    struct net_server *s = h->server;
    struct net_admission a = {.content_type = "text/plain; charset=utf-8", .text = ""};
    if (h->conn.peer.kind == NET_PEER_UNIX || !s->options.on_head)
        return true;
    s->options.on_head(&h->current->pub, &a, s->options.user);
    if (!a.status && a.account && !net_budget_identify(h, a.account)) {
        a.status = 429;
        a.text = "This user or node has too many connections; close some of them.";
    }
    if (a.status) {
        refuse_as(h, &a);
        return false;
    }
    if (a.body_max && a.body_max < h->parser.body_max)
        http_parser_limit_body(&h->parser, a.body_max);
    return true;
}

static void begin_body(struct http_conn *h) {
    const struct net_server_options *o = &h->server->options;
    net_conn_set_deadline(&h->conn, or_default(o->body_timeout_ms, NET_BODY_TIMEOUT_MS));
    if (h->current->message.expect_continue && !h->count)
        net_conn_write(&h->conn, "HTTP/1.1 100 Continue\r\n\r\n", 25);
}

// The connection is somebody else's from here on. False: nobody wants it, or the request was refused.
static bool take_over(struct http_conn *h) {
    static const char text[] =
        "This host is not served on a connection with requests for another one under way.";
    const struct net_takeover *t = &h->server->options.takeover;
    struct net_server_request *r = h->current;
    if (h->conn.peer.kind == NET_PEER_UNIX || !t->wants || !t->wants(&r->pub, h->server->options.user))
        return false;
    if (h->count || h->held) {
        refuse(h, 421, text);
        return true;
    }
    struct http_parser parser = h->parser;
    struct http_message message = r->message;
    http_message_init(&r->message);  // it is no longer the request's
    take_current(h);
    net_request_free(r);
    h->upgraded = true;
    net_conn_set_deadline(&h->conn, 0);
    uv_tcp_keepalive(&h->conn.tcp, 1, KEEPALIVE_S);
    struct net_raw *raw = net_raw_attach(&h->conn, t->callbacks, NULL);
    net_raw_set_user(raw, t->begin(raw, &h->conn.peer, &parser, &message, h->server->options.user));
    return true;
}

bool net_raw_identify(struct net_raw *raw, const char *account, const char *pass) {
    struct http_conn *h = http_of(net_raw_conn(raw));
    assert(strlen(pass) <= NET_PASS_MAX);
    snprintf(h->pass, sizeof h->pass, "%s", pass);
    return !h->server || net_budget_identify(h, account);
}

// False: the request was refused, or the connection was taken over.
static bool after_head(struct http_conn *h) {
    const struct net_server_options *o = &h->server->options;
    static const char unread[] = "Your other connections have not read their answers; read or close them.";
    struct net_server_request *r = h->current;
    r->pub.method = r->message.method;
    r->pub.path = r->message.path;
    r->pub.query = r->message.query;
    if (take_over(h))
        return false;
    http_parser_limit_body(&h->parser, o->body_max ? o->body_max : HTTP_BODY_MAX);
    if (h->parser.state == HTTP_STATE_FAILED)
        return true;
    if (!admit(h))
        return false;
    if (net_conn_account_full(&h->conn)) {
        refuse(h, 503, unread);
        return false;
    }
    if (h->parser.state == HTTP_STATE_BODY)
        begin_body(h);
    return true;
}

// A WebSocket whose message cannot be finished is of no use any more.
static void give_up_message(struct http_conn *h) {
    struct http_conn *victim;
    h->message_bytes = 0;
    net_budget_receive(h, &victim);
}

// Makes room when the bodies under way are too many bytes. False: this one had to give way.
// One who is over the limit of a user gives way himself. When all together are too many, the largest body of the user
// who has most gives way, so that whoever sends much does not push others out (budget.c).
static bool make_room(struct http_conn *h) {
    static const char text[] = "Too many bytes of requests are being received; send fewer at once, or try again later.";
    struct http_conn *victim;
    while (!net_budget_receive(h, &victim)) {
        if (victim->upgraded)
            give_up_message(victim);
        else
            refuse(victim, 503, text);
        if (victim == h)
            return false;
        if (victim->upgraded)
            net_conn_destroy(&victim->conn);
    }
    return true;
}

static bool on_receiving(struct net_conn *c, size_t bytes) {
    struct http_conn *h = http_of(c);
    if (bytes == h->message_bytes || !h->budget)
        return true;
    h->message_bytes = bytes;
    return make_room(h);
}

// Feeds the parser until the data or the permission to parse is used up. What is left over stays in the connection's
// buffer and comes again with the next call: a client that pipelines faster than we answer is held back by TCP.
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
        if (!in_head && !make_room(h))
            return len;
        if (in_head && h->parser.state != HTTP_STATE_HEAD) {
            if (!after_head(h))
                return h->upgraded ? used : len;
            if (h->parser.state == HTTP_STATE_FAILED) {
                refuse(h, h->parser.fail_status, h->parser.fail_text);
                return len;
            }
        }
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

// Answers leave in the order of their requests, whichever is ready first: HTTP has no other way to tell them apart.
// With requests A, B, C and answers ready as B, C, A, those of B and C wait in memory, counted in `queued`, until A
// has gone.
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
            net_conn_queued(&h->conn, h->queued);
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

// One timer serves four purposes, of which at most one holds at a time: a refusal that is held back (a guesser must
// wait), a request that waits until those before it are answered, a request that is too slow, and an idle connection.
static void on_deadline(struct net_conn *c) {
    struct http_conn *h = http_of(c);
    if (h->refused) {
        struct net_server_request *r = h->refused;
        h->refused = NULL;
        net_reply(&r->pub, r->late_status, r->late_type, r->late_text.data, r->late_text.len);
    } else if (h->held && h->count == 0) {
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

// A request is freed by the one who needs it last: by us when it is answered, else by whoever works on it, who is
// told here that nobody listens any more and answers into the void.
static void drop_request(struct net_server_request *r) {
    if (r->linked)
        http_conn_unlink(r);
    if (!r->done && !r->streaming && r->conn->server->options.on_reply)
        r->conn->server->options.on_reply(&r->pub, NET_CLIENT_LEFT, false, r->conn->server->options.user);
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
    if (h->refused) {
        http_conn_unlink(h->refused);
        h->refused = net_request_free(h->refused);
    }
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
    h->conn.on_receiving = on_receiving;
    h->conn.output_max = o->output_max ? o->output_max : NET_OUTPUT_MAX;
    h->conn.write_timeout_ms = or_default(o->write_timeout_ms, NET_WRITE_TIMEOUT_MS);
    net_conn_set_deadline(&h->conn, or_default(o->head_timeout_ms, NET_HEAD_TIMEOUT_MS));
    net_conn_start(&h->conn);
}
