// Fuzz target: whole requests of every route, as the daemon sees them after the HTTP parser: paths, queries, bodies,
// headers (Accept, If-Match, Last-Event-ID, Cookie, Origin and the others), and messages of WebSockets.
//
// An input is the number of the sender, a head of lines that end with \n, an empty line, and the body; of a WebSocket
// the body is its text messages, with empty lines between them. Every answer must be one that the API may give: no
// status 500, JSON where it says JSON. The controller is opened anew for every ROUND inputs; in between, a request
// meets what the ones before it have left.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../portal.h"
#include "../test/rig.h"
#include "base/text.h"
#include "driver.h"
#include "sample.h"

enum { ROUND = 256, MESSAGES_MAX = 8, SAMPLES_PER_ROUTE = 3 };

const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_SEED(
        "1GET /v1/table?state=RUNNING&where=gpus%3E%3D2&sort=-id&limit=5\nAccept: application/json\n\n"),
    FUZZ_SEED("1GET /v1/at?at_ms=1\nAccept: application/problem+json, */*\n\n"),
    FUZZ_SEED("1GET /v1/analytics?by=project&from_ms=0\nAccept: text/csv\n\n"),
    FUZZ_SEED("0PUT /v1/projects/vision\nIf-Match: \"4\"\n\n{\"quota_milligpu\":2000}"),
    FUZZ_SEED("0DELETE /v1/projects/vision\nIf-Match: W/\"4\", *\n\n"),
    FUZZ_SEED("1GET /v1/live?topics=jobs,nodes\nAccept: text/event-stream\nLast-Event-ID: 4\n\n"),
    FUZZ_SEED("1GET /v1/jobs/1/logs?follow=1\nAccept: text/event-stream\nLast-Event-ID: 12.3\nRange: "
              "bytes=0-9\n\n"),
    FUZZ_SEED("3GET /v1/me\nCookie: a=b; @session@; c\n\n"),
    FUZZ_SEED("3POST /v1/logout\nCookie: @session@\nSec-Fetch-Site: same-origin\n\n"),
    FUZZ_SEED("3POST /v1/login\nSec-Fetch-Site: "
              "same-origin\n\n{\"method\":\"own\",\"user\":\"eva\",\"password\":\"x\"}"),
    FUZZ_SEED("3POST /v1/login/code\nOrigin: http://@host@\n\n{\"code\":\"0123\"}"),
    FUZZ_SEED("3GET /index.html\nIf-None-Match: \"x\"\nAccept-Encoding: gzip;q=0, *\n\n"),
    FUZZ_SEED("4GET /v1/jobs\nAuthorization: Bearer aq1.x.y\n\n"),
    FUZZ_SEED("0PUT /v1/users/eva\n\n{\"role\":\"operator\",\"unix_user\":\"alice\"}"),
    FUZZ_SEED("1DELETE /v1/sessions/others\n\n"),
    FUZZ_SEED("1POST "
              "/v1/mcp\n\n{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/"
              "call\",\"params\":{\"name\":\"list_jobs\","
              "\"arguments\":{\"limit\":1,\"job\":null}}}"),
    FUZZ_SEED("1POST /v1/mcp\n\n{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":\"initialize\",\"params\":{}}"),
    FUZZ_SEED(
        "1POST /v1/jobs\n\n[{\"spec\":{\"workdir\":\"/\",\"argv\":[\"true\"]}},{\"spec\":{\"workdir\":\"/\","
        "\"argv\":[\"a\"],\"workers_min\":1,\"workers_max\":3}}]"),
    FUZZ_SEED("1POST /v1/jobs/cancel\n\n{\"ids\":[\"1\",\"2_[1-3]\"]}"),
    FUZZ_SEED(
        "1GET /v1/jobs/1/step\nConnection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 13\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\n\n{\"argv\":[\"true\"],\"tasks\":2}\n\n{\"signal\":2}"),
    {0},
};

// --- a request and an answer for every route ---

static void put_query(const struct schema *s, struct rand *r, struct buf *out) {
    static const char *const values[] = {"1",           "0",    "alice", "-id", "RUNNING,PENDING",
                                         "gpus%3E%3D2", "12.5", ""};
    for (size_t i = 0; s && i < s->count; i++)
        if (rand_below(r, 2))
            buf_addf(out, "%c%s=%s", strchr(buf_str(out), '?') ? '&' : '?', s->fields[i].name,
                     values[rand_below(r, sizeof values / sizeof *values)]);
}

static void put_messages(const struct route *route, struct rand *r, struct buf *out) {
    if (route->first)
        fuzz_sample_json(route->first, r, 0, &(struct json_writer){.out = out});
    for (int n = 0; route->later && n < 2; n++) {
        buf_adds(out, "\n\n");
        fuzz_sample_json(route->later, r, 0, &(struct json_writer){.out = out});
    }
}

static void sample(const struct route *route, struct rand *r, struct buf *out) {
    const char *open = strchr(route->path, '{'), *rest = open ? strchr(open, '}') + 1 : NULL;
    buf_addf(out, "%llu%s ", (unsigned long long)rand_below(r, 5), route->method);
    if (open)
        buf_addf(out, "%.*s%s%s", (int)(open - route->path), route->path,
                 strstr(route->path, "{job}") ? "1" : "vision", rest);
    else
        buf_adds(out, route->path);
    put_query(route->query, r, out);
    buf_adds(out, "\nCookie: @session@\nSec-Fetch-Site: same-origin\n");
    if (route->form == FORM_SOCKET)
        buf_adds(out, "Connection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 13\n"
                      "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\n");
    buf_adds(out, "\n");
    if (route->form == FORM_SOCKET)
        put_messages(route, r, out);
    else if (route->body)
        fuzz_sample_json(route->body, r, 0, &(struct json_writer){.out = out});
}

void fuzz_corpus(fuzz_add_fn add) {
    struct rand r;
    rand_seed(&r, 17);
    for (size_t i = 0; i < api_route_count * SAMPLES_PER_ROUTE; i++) {
        cleanup_buf struct buf b = {0};
        sample(&api_routes[i % api_route_count], &r, &b);
        add(b.data, b.len);
    }
}

// --- the controller ---

static struct rig rig;
static unsigned rounds;
static char session[256];

// A login of alice in a browser.
static void log_in(const struct net_peer *browser) {
    cleanup_buf struct buf bytes = {0}, body = {0};
    struct fake_request *q = rig_call(&rig, &fake_alice, "POST", "/v1/portal", "{}");
    const char *url = q->status == 200 ? json_str(fake_json(q), "url") : NULL,
               *code = url ? strrchr(url, '=') : NULL;
    FUZZ_CHECK(code);
    buf_addf(&body, "{\"code\":\"%s\"}", code + 1);
    buf_addf(&bytes,
             "POST /v1/login/code HTTP/1.1\r\nHost: %s\r\nSec-Fetch-Site: same-origin\r\nContent-Length: "
             "%zu\r\n\r\n%s",
             portal_host(&rig.c), body.len, buf_str(&body));
    q = rig_raw(&rig, browser, bytes.data, bytes.len);
    rig_settle(&rig);
    const char *cookie = strstr(buf_str(&q->headers), "Set-Cookie: ");
    FUZZ_CHECK(cookie);
    cookie += strlen("Set-Cookie: ");
    snprintf(session, sizeof session, "%.*s", (int)strcspn(cookie, ";\r"), cookie);
}

static const struct net_peer *peer_of(uint8_t number) {
    static struct net_peer browser = {
        .kind = NET_PEER_HTTP, .uid = (uid_t)-1, .gid = (gid_t)-1, .address = "127.0.0.1"};
    static struct net_peer remote;
    remote = fake_tls("192.0.2.7", NULL);
    const struct net_peer *peers[] = {&fake_root, &fake_alice, &fake_bob, &browser, &remote};
    return peers[number % 5];
}

static void open_controller(void) {
    if (rounds)
        rig_close(&rig);
    setenv("CMOCKA_TEST_ABORT", "1", 1);  // what the rig asserts ends the run as a crash does
    rig_open(&rig);
    fake_users_answer = true;
    rig_agent(&rig, "n1");
    rig_call(&rig, &fake_alice, "POST", "/v1/jobs", "{\"spec\":{\"workdir\":\"/\",\"argv\":[\"true\"]}}");
    rig_call(&rig, &fake_root, "PUT", "/v1/projects/vision", "{\"quota_milligpu\":1000}");
    log_in(peer_of(3));
    rounds = 0;
}

// --- one input ---

static void put_line(struct buf *out, const char *line, size_t len) {
    for (size_t i = 0; i < len;) {
        if (len - i >= 9 && !memcmp(line + i, "@session@", 9)) {
            buf_adds(out, session);
            i += 9;
        } else if (len - i >= 6 && !memcmp(line + i, "@host@", 6)) {
            buf_adds(out, portal_host(&rig.c));
            i += 6;
        } else {
            buf_addc(out, line[i++]);
        }
    }
    buf_adds(out, "\r\n");
}

// Where the line of one of these begins that is empty; `len` when there is none.
static size_t empty_line(const char *text, size_t len) {
    for (size_t i = 0; i + 1 < len; i++)
        if (text[i] == '\n' && text[i + 1] == '\n')
            return i;
    return len;
}

static void put_head(const char *head, size_t len, struct buf *out) {
    const char *end = memchr(head, '\n', len);
    size_t first = end ? (size_t)(end - head) : len;
    buf_add(out, head, first);
    buf_adds(out, " HTTP/1.1\r\n");
    if (!memmem(head, len, "\nHost:", 6))
        buf_addf(out, "Host: %s\r\n", portal_host(&rig.c));
    for (size_t at = first + 1; at < len;) {
        end = memchr(head + at, '\n', len - at);
        size_t line = end ? (size_t)(end - head) - at : len - at;
        put_line(out, head + at, line);
        at += line + 1;
    }
}

static void check_answer(struct fake_request *q) {
    struct error e = {0};
    struct json *j;
    FUZZ_CHECK(q->status != 500 && q->status < 600);
    if (q->done && strstr(buf_str(&q->headers), "Content-Type: application/json\r\n"))
        FUZZ_CHECK(json_parse(q->body.data, q->body.len, &q->arena, &j, &e) == 0);
}

static void send_messages(struct net_ws *ws, const char *text, size_t len) {
    for (int n = 0; n < MESSAGES_MAX && len && !ws->closed; n++) {
        cleanup_arena struct arena a = {0};
        size_t one = empty_line(text, len), next = one + 2 < len ? one + 2 : len;
        fake_text(&rig, ws, arena_strndup(&a, text, one));
        text += next;
        len -= next;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    cleanup_buf struct buf bytes = {0};
    const char *text = (const char *)data;
    if (!size)
        return 0;
    if (!rig.disk || rounds == ROUND)
        open_controller();
    rounds++;
    size_t head = empty_line(text + 1, size - 1), body = head + 2 < size - 1 ? size - 3 - head : 0;
    put_head(text + 1, head, &bytes);
    bool socket = memmem(text + 1, head, "Upgrade: websocket", 18);
    if (body && !socket)
        buf_addf(&bytes, "Content-Length: %zu\r\n", body);
    buf_adds(&bytes, "\r\n");
    if (body && !socket)
        buf_add(&bytes, text + 3 + head, body);
    struct fake_request *q = rig_raw(&rig, peer_of(data[0]), bytes.data, bytes.len);
    if (!q)
        return 0;
    rig_settle(&rig);
    if (q->ws)
        send_messages(q->ws, text + 3 + head, body);
    check_answer(q);
    if (!q->done)
        fake_leave(q);
    rig_settle(&rig);
    return 0;
}
