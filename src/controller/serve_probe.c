// Owns the question whether a replica is ready: a GET of the service's path, on a connection of its own.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "net/http.h"
#include "port_socket.h"
#include "serve.h"

enum { PROBE_HEAD_MAX = 16 << 10, PROBE_BODY_MAX = 1 << 20, PROBE_MS = 5000 };

struct serve_probe {
    struct serve_replica *replica;  // NULL: it has its answer, or the question was given up
    struct port_conn *port;         // NULL: it has ended
    int64_t began_ms;               // monotonic
    struct http_parser parser;
    struct http_message answer;
    bool done;
};

static void result(struct serve_probe *p, bool ready, const char *why) {
    struct serve_replica *r = p->replica;
    if (p->done)
        return;
    p->done = true;
    p->replica = NULL;
    if (!r)
        return;
    r->probe = NULL;
    serve_probe_result(r, ready, why);
}

static ssize_t on_data(void *ctx, const char *data, size_t len) {
    struct serve_probe *p = ctx;
    char why[128];
    while (len && !p->done) {
        ssize_t n = http_parser_feed(&p->parser, data, len);
        if (n < 0) {
            result(p, false, "its answer is malformed");
            break;
        }
        data += n;
        len -= (size_t)n;
        if (p->parser.state == HTTP_STATE_HEAD)
            continue;
        const struct event_service *s =
            p->replica ? core_service_by_id(p->replica->service->controller->core, p->replica->service->id)
                       : NULL;
        int status = p->answer.status;
        bool ready = s && status >= 200 && status < (streq(s->ready, "/") ? 500 : 400);
        snprintf(why, sizeof why, "it answers %s with status %d", s ? s->ready : "", status);
        result(p, ready, why);
    }
    return 0;
}

static void on_eof(void *ctx) {
    result(ctx, false, "it ends the connection without an answer");
}

static void on_end(void *ctx, const char *error) {
    struct serve_probe *p = ctx;
    p->port = NULL;
    result(p, false, error ? error : "it ends the connection without an answer");
}

static void on_room(void *ctx) {
}

static void probe_free(struct serve_probe *p) {
    http_message_done(&p->answer);
    free(p);
}

void serve_probe_end(struct serve_replica *r) {
    if (!r->probe)
        return;
    r->probe->done = true;
    r->probe->replica = NULL;
    r->probe = NULL;
}

// They are closed here, never inside a callback of their own.
void serve_probes_turn(struct controller *c, int64_t mono_ms) {
    for (uint32_t i = c->serve->probes.len; i-- > 0;) {
        struct serve_probe *p = c->serve->probes.at[i];
        if (!p->done && mono_ms - p->began_ms > PROBE_MS)
            result(p, false, "it does not answer within 5 seconds");
        if (!p->done)
            continue;
        vec_remove_swap(&c->serve->probes, i);
        if (p->port)
            port_conn_close(p->port);
        probe_free(p);
    }
}

void serve_probes_done(struct controller *c) {
    for (uint32_t i = 0; i < c->serve->probes.len; i++)  // streams are freed with their table
        probe_free(c->serve->probes.at[i]);
    vec_done(&c->serve->probes);
}

void serve_probe_begin(struct serve_replica *r) {
    static const struct port_conn_client client = {
        .data = on_data, .eof = on_eof, .end = on_end, .room = on_room, .window = 64 << 10};
    struct controller *c = r->service->controller;
    const struct event_service *s = core_service_by_id(c->core, r->service->id);
    cleanup_buf struct buf head = {0};
    struct error e = {0};
    if (!s || r->probe)
        return;
    struct actor owner = {.user = s->user, .uid = s->uid, .gid = s->gid};
    struct serve_probe *p = xcalloc(1, sizeof *p);
    p->replica = r;
    p->began_ms = clock_mono_ms();
    http_message_init(&p->answer);
    http_parser_begin(&p->parser, HTTP_RESPONSE, &p->answer, PROBE_HEAD_MAX, PROBE_BODY_MAX);
    p->port = port_conn_open(c, &owner, r->job, r->port, &client, p, &e);
    if (!p->port) {
        probe_free(p);
        serve_probe_result(r, false, e.text);
        return;
    }
    r->probe = p;
    vec_push(&c->serve->probes, p);
    http_write_request_head(&head, "GET", s->ready, "localhost", NULL, -1,
                            "User-Agent: acequia\r\nConnection: close\r\n");
    port_conn_send(p->port, head.data, head.len);
}
