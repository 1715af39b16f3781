// Clients that send anything in any pieces and leave at any moment, against handlers that answer
// now, later, in pieces, by upgrade, or after everybody has gone. Afterwards the server still serves,
// holds no connection, and (under the sanitizers) nothing leaked or was touched too late.
// Longer: test_net_chaos CLIENTS SEED.
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <uv.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/rand.h"
#include "base/text.h"
#include "base/vec.h"
#include "net/client.h"
#include "net/server.h"

enum { OPEN_MAX_AT_ONCE = 40 };
static uint64_t clients = 1500, seed = 5;

struct parked {
    struct net_request *req;
    int left;  // pieces still to write
    bool streaming;
};

struct chaos_peers {
    char dir[64], path[96];
    uv_loop_t loop;
    uv_async_t stop;
    uv_timer_t tick;
    pthread_t thread;
    struct net_server *server;
    struct rand rand;  // of the loop thread
    VEC(struct parked) parked;
    VEC(struct net_ws *) sockets;
    VEC(struct net_raw *) tunnels;
    uint32_t handled, noticed;
    uint32_t connections_left;
    bool ending;
};

static struct chaos_peers world;

static void on_gone(struct net_request *req, void *user) {
    assert_true(net_request_gone(req));
    world.noticed++;
}

static void ws_message(struct net_ws *ws, enum ws_opcode type, const char *data, size_t len,
                       void *user) {
    switch (rand_below(&world.rand, 6)) {
    case 0:
        net_ws_close(ws, WS_NORMAL, "enough");
        break;
    case 1:
        net_ws_abort(ws);
        break;
    case 2:
        net_ws_pause(ws, true);
        break;
    default:
        net_ws_send(ws, type, data, len);
    }
}

static void ws_close(struct net_ws *ws, int status, const char *reason, void *user) {
    for (uint32_t i = 0; i < world.sockets.len; i++)
        if (world.sockets.at[i] == ws)
            vec_remove_swap(&world.sockets, i);
}

static size_t raw_data(struct net_raw *raw, const char *data, size_t len, void *user) {
    if (rand_below(&world.rand, 4) == 0)
        net_raw_end(raw);
    net_raw_write(raw, data, len);
    return len;
}

static void raw_close(struct net_raw *raw, void *user) {
    for (uint32_t i = 0; i < world.tunnels.len; i++)
        if (world.tunnels.at[i] == raw)
            vec_remove_swap(&world.tunnels, i);
}

static const struct net_ws_callbacks ws_callbacks = {.on_message = ws_message,
                                                     .on_close = ws_close};
static const struct net_raw_callbacks raw_callbacks = {.on_data = raw_data, .on_close = raw_close};

static void finish(struct parked *p) {
    struct net_request *req = p->req;
    if (p->streaming) {
        net_reply_stream_end(req);
    } else if (rand_below(&world.rand, 2) && req->http->upgrade) {
        struct net_ws *ws = net_upgrade_ws(req, NULL, &ws_callbacks, NULL);
        if (ws)
            vec_push(&world.sockets, ws);
    } else if (rand_below(&world.rand, 2)) {
        struct net_raw *raw = net_upgrade_raw(req, &raw_callbacks, NULL);
        if (raw)
            vec_push(&world.tunnels, raw);
    } else {
        net_reply(req, 200, "text/plain", "late", 4);
    }
}

static void on_tick(uv_timer_t *timer) {
    static char block[30000];
    for (uint32_t i = 0; i < world.parked.len;) {
        struct parked *p = &world.parked.at[i];
        if (p->left-- > 0 && !world.ending) {
            if (p->streaming)
                net_reply_stream_write(p->req, block, rand_below(&world.rand, sizeof block));
            i++;
            continue;
        }
        struct parked taken = *p;
        vec_remove_swap(&world.parked, i);
        finish(&taken);
    }
    for (uint32_t i = 0; i < world.sockets.len; i++)
        if (rand_below(&world.rand, 3) == 0)
            net_ws_pause(world.sockets.at[i], false);
}

static void on_request(struct net_request *req, void *user) {
    world.handled++;
    if (streq(req->path, "/sane")) {
        net_reply(req, 200, "text/plain", "sane", 4);
        return;
    }
    struct parked p = {.req = req, .left = (int)rand_below(&world.rand, 5)};
    if (rand_below(&world.rand, 2))
        net_request_watch(req, on_gone, NULL, NULL);
    switch (rand_below(&world.rand, 4)) {
    case 0:
        finish(&p);
        return;
    case 1:
        p.streaming = true;
        net_reply_stream_start(req, 200, "text/plain");
        break;
    default:
        break;
    }
    vec_push(&world.parked, p);
}

static void on_done(void *user) {
    uv_close((uv_handle_t *)&world.stop, NULL);
    uv_close((uv_handle_t *)&world.tick, NULL);
}

static void on_stop(uv_async_t *async) {
    world.ending = true;
    world.connections_left = net_server_connections(world.server);
    net_server_close(world.server, 300, on_done, NULL);
}

static void *run_loop(void *arg) {
    uv_run(&world.loop, UV_RUN_DEFAULT);
    return NULL;
}

static int dial(void) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    memcpy(a.sun_path, world.path, strlen(world.path));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

static void add_something(struct buf *out, struct rand *r) {
    static const char upgrade[] =
        "GET /u HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    switch (rand_below(r, 8)) {
    case 0:
        buf_adds(out, "POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello");
        break;
    case 1:
        buf_adds(out, "POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                      "3\r\nabc\r\n0\r\n\r\n");
        break;
    case 2:
        buf_adds(out, upgrade);
        for (uint64_t i = rand_below(r, 4); i > 0; i--)
            ws_encode(out, WS_CLIENT, WS_TEXT, "ping pong", 9, (uint32_t)rand_u64(r));
        break;
    case 3:
        buf_adds(out, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        break;
    case 4:
        buf_add(out, "\x16\x03\x01 rubbish\r\n\r\n", 14);
        break;
    case 5:
        buf_adds(out, "HEAD /h HTTP/1.1\r\nHost: x\r\n\r\n");
        break;
    default:
        buf_adds(out, "GET /g?x HTTP/1.1\r\nHost: x\r\n\r\n");
    }
}

// One client's life up to where it is left open; the caller closes it some time.
static int misbehave(struct rand *r) {
    int fd = dial();
    cleanup_buf struct buf out = {0};
    for (uint64_t i = rand_below(r, 6); i > 0; i--)
        add_something(&out, r);
    size_t len = rand_below(r, 3) ? out.len : rand_below(r, out.len + 1), at = 0;
    while (at < len) {
        size_t n = 1 + rand_below(r, len - at);
        if (send(fd, out.data + at, n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
            break;
        at += n;
    }
    char in[4096];
    if (rand_below(r, 2))
        (void)!recv(fd, in, sizeof in, MSG_DONTWAIT);
    if (rand_below(r, 4) == 0)
        shutdown(fd, rand_below(r, 2) ? SHUT_WR : SHUT_RD);
    return fd;
}

static void start(void) {
    snprintf(world.dir, sizeof world.dir, "/tmp/aq-chaos-XXXXXX");
    assert_non_null(mkdtemp(world.dir));
    snprintf(world.path, sizeof world.path, "%s/s", world.dir);
    rand_seed(&world.rand, seed + 1);
    uv_loop_init(&world.loop);
    uv_async_init(&world.loop, &world.stop, on_stop);
    uv_timer_init(&world.loop, &world.tick);
    uv_timer_start(&world.tick, on_tick, 1, 1);
    struct net_server_options o = {.on_request = on_request,
                                   .head_timeout_ms = 50,
                                   .body_timeout_ms = 50,
                                   .idle_timeout_ms = 50,
                                   .write_timeout_ms = 50,
                                   .output_max = 200000};
    world.server = net_server_new(&world.loop, &o);
    struct error e = {0};
    if (net_server_listen_unix(world.server, world.path, 0600, &e) < 0)
        fail_msg("%s", e.text);
    pthread_create(&world.thread, NULL, run_loop, NULL);
}

static int ask(void) {
    struct http_client *c = NULL;
    struct error e = {0};
    struct http_message m;
    assert_int_equal(http_client_unix(world.path, &c, &e), 0);
    struct http_request q = {.method = "GET", .target = "/sane", .timeout_ms = 5000};
    int r = http_client_call(c, &q, &m, &e);
    if (r == 0) {
        assert_string_equal(buf_str(&m.body), "sane");
        http_message_done(&m);
    }
    http_client_free(c);
    return r;
}

static void survives(void **state) {
    start();
    struct rand r;
    rand_seed(&r, seed);
    int open[OPEN_MAX_AT_ONCE];
    for (int i = 0; i < OPEN_MAX_AT_ONCE; i++)
        open[i] = -1;
    for (uint64_t i = 0; i < clients; i++) {
        int *slot = &open[rand_below(&r, OPEN_MAX_AT_ONCE)];
        if (*slot >= 0)
            close(*slot);
        *slot = misbehave(&r);
        if (i % 50 == 0)
            poll(NULL, 0, 2);
    }
    for (int i = 0; i < OPEN_MAX_AT_ONCE; i++)
        if (open[i] >= 0)
            close(open[i]);
    int asked = -1;
    for (int i = 0; i < 20 && asked < 0; i++)  // on a busy machine 50 ms are over soon
        asked = ask();
    assert_int_equal(asked, 0);
    poll(NULL, 0, 300);  // what was parked is answered, what lingers times out
    uv_async_send(&world.stop);
    pthread_join(world.thread, NULL);
    print_message("%u requests, %u times a client had gone\n", world.handled, world.noticed);
    assert_int_equal(world.connections_left, 0);
    assert_int_equal(world.parked.len, 0);
    assert_int_equal(world.sockets.len, 0);
    assert_int_equal(world.tunnels.len, 0);
    assert_true(world.handled > clients / 10 && world.noticed > 10);
    vec_done(&world.parked);
    vec_done(&world.sockets);
    vec_done(&world.tunnels);
    assert_int_equal(uv_loop_close(&world.loop), 0);
    rmdir(world.dir);
}

int main(int argc, char **argv) {
    if (argc == 3 && (parse_u64(argv[1], &clients) < 0 || parse_u64(argv[2], &seed) < 0))
        return 2;
    const struct CMUnitTest tests[] = {cmocka_unit_test(survives)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
