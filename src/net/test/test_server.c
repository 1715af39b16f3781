// The server on real unix sockets: answers now and later, pipelining, streams, upgrades, clients
// that are slow, rude or gone. The server runs on its own thread; clients are plain sockets or the
// blocking client.
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/text.h"
#include "base/vec.h"
#include "net/client.h"
#include "net/server.h"

enum { WAIT_MS = 60000 };

struct fixture {
    char dir[64], path[96];
    uv_loop_t loop;
    uv_async_t stop;
    pthread_t thread;
    struct net_server *server;
    VEC(struct net_request *) parked;  // loop thread only
    uv_timer_t later;
    uint16_t http_port;  // on the loopback interface, where connections can be taken over
    int closes, drains, raw_closes, parks;  // atomic
    int ws_status;
    bool stopped;
    uint32_t grace_ms;
};

static struct fixture *fixture_of(void *user) {
    return user;
}

static void on_ws_message(struct net_ws *ws, enum ws_opcode type, const char *data, size_t len,
                          void *user) {
    if (len == 4 && memcmp(data, "quit", 4) == 0)
        net_ws_close(ws, WS_NORMAL, "as asked");
    else
        net_ws_send(ws, type, data, len);
}

static void on_ws_close(struct net_ws *ws, int status, const char *reason, void *user) {
    __atomic_store_n(&fixture_of(user)->ws_status, status, __ATOMIC_SEQ_CST);
}

static const struct net_ws_callbacks ws_echo = {.on_message = on_ws_message,
                                                .on_close = on_ws_close};

static size_t on_raw_data(struct net_raw *raw, const char *data, size_t len, void *user) {
    net_raw_write(raw, data, len);
    return len;
}

static void on_raw_eof(struct net_raw *raw, void *user) {
    net_raw_end(raw);
}

static void on_raw_close(struct net_raw *raw, void *user) {
    __atomic_add_fetch(&fixture_of(user)->raw_closes, 1, __ATOMIC_SEQ_CST);
}

static const struct net_raw_callbacks raw_echo = {
    .on_data = on_raw_data, .on_eof = on_raw_eof, .on_close = on_raw_close};

static void on_gone(struct net_request *req, void *user) {
    __atomic_add_fetch(&fixture_of(user)->closes, 1, __ATOMIC_SEQ_CST);
}

static void on_drained(struct net_request *req, void *user) {
    __atomic_add_fetch(&fixture_of(user)->drains, 1, __ATOMIC_SEQ_CST);
}

// Parked requests are answered in reverse, so that order must be made by the server.
static void answer_parked(uv_timer_t *timer) {
    struct fixture *f = timer->data;
    while (f->parked.len) {
        struct net_request *req = vec_pop(&f->parked);
        if (streq(req->path, "/ws-later")) {
            net_upgrade_ws(req, NULL, &ws_echo, f);
        } else if (str_has_prefix(req->path, "/stream-later")) {
            net_reply_stream_start(req, 200, "text/plain");
            net_reply_stream_write(req, "one ", 4);
            net_reply_stream_write(req, "two", 3);
            net_reply_stream_end(req);
        } else {
            net_reply(req, 200, "text/plain", req->query, strlen(req->query));
        }
    }
}

static void park(struct fixture *f, struct net_request *req, uint32_t ms) {
    net_request_watch(req, on_gone, NULL, f);
    vec_push(&f->parked, req);
    uv_timer_start(&f->later, answer_parked, ms, 0);
    __atomic_add_fetch(&f->parks, 1, __ATOMIC_SEQ_CST);
}

static void stream_big(struct fixture *f, struct net_request *req) {
    static char block[64 * 1024];
    memset(block, 'x', sizeof block);
    net_request_watch(req, on_gone, on_drained, f);
    net_reply_stream_start(req, 200, "application/octet-stream");
    for (int i = 0; i < 64; i++)
        if (net_reply_stream_write(req, block, sizeof block) < 0)
            break;
    net_reply_stream_end(req);
}

static void on_request(struct net_request *req, void *user) {
    struct fixture *f = user;
    if (streq(req->path, "/later"))
        park(f, req, 20);
    else if (streq(req->path, "/soon"))
        park(f, req, 1000);
    else if (streq(req->path, "/stream-later") || streq(req->path, "/ws-later"))
        park(f, req, 20);
    else if (streq(req->path, "/ten"))  // until there are ten
        park(f, req, f->parked.len == 9 ? 0 : 600000);
    else if (streq(req->path, "/never"))
        park(f, req, 600);
    else if (streq(req->path, "/big"))
        stream_big(f, req);
    else if (streq(req->path, "/ws"))
        net_upgrade_ws(req, NULL, &ws_echo, f);
    else if (streq(req->path, "/raw"))
        net_upgrade_raw(req, &raw_echo, f);
    else if (streq(req->path, "/restore")) {
        struct error e;
        net_reply(req, 200, "text/plain", net_server_restore_unix(f->server, &e) == 1 ? "1" : "0", 1);
    } else if (streq(req->path, "/whoami")) {
        char text[64];
        int n = snprintf(text, sizeof text, "%u %u %d", req->peer->uid, req->peer->gid,
                         (int)req->peer->pid);
        net_reply_header(req, "X-Kind", req->peer->kind == NET_PEER_UNIX ? "unix" : "tls");
        net_reply(req, 200, "text/plain", text, (size_t)n);
    } else if (streq(req->method, "POST")) {
        net_reply(req, 201, "application/octet-stream", req->body, req->body_len);
    } else {
        net_reply(req, 200, "text/plain", req->query, strlen(req->query));
    }
}

static void on_done(void *user) {
    struct fixture *f = user;
    f->stopped = true;
    uv_close((uv_handle_t *)&f->stop, NULL);
    uv_close((uv_handle_t *)&f->later, NULL);
}

static void on_stop(uv_async_t *async) {
    struct fixture *f = async->data;
    net_server_close(f->server, f->grace_ms, on_done, f);
}

static void *run_loop(void *arg) {
    struct fixture *f = arg;
    uv_run(&f->loop, UV_RUN_DEFAULT);
    return NULL;
}

static struct fixture *start(struct net_server_options options) {
    struct fixture *f = xcalloc(1, sizeof *f);
    snprintf(f->dir, sizeof f->dir, "/tmp/aq-net-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->path, sizeof f->path, "%s/s", f->dir);
    f->grace_ms = 2000;
    uv_loop_init(&f->loop);
    uv_async_init(&f->loop, &f->stop, on_stop);
    uv_timer_init(&f->loop, &f->later);
    f->stop.data = f->later.data = f;
    options.on_request = on_request;
    options.user = f;
    f->server = net_server_new(&f->loop, &options);
    struct error e = {0};
    if (net_server_listen_unix(f->server, f->path, 0600, &e) < 0)
        fail_msg("%s", e.text);
    if (options.takeover.wants)
        assert_int_equal(net_server_listen_loopback(f->server, &f->http_port, &e), 0);
    pthread_create(&f->thread, NULL, run_loop, f);
    return f;
}

static void stop(struct fixture *f) {
    uv_async_send(&f->stop);
    pthread_join(f->thread, NULL);
    assert_true(f->stopped);
    while (f->parked.len)
        net_reply(vec_pop(&f->parked), 200, NULL, "", 0);  // after the server has gone: harmless
    assert_int_equal(uv_loop_close(&f->loop), 0);
    vec_done(&f->parked);
    assert_int_not_equal(access(f->path, F_OK), 0);
    rmdir(f->dir);
    free(f);
}

static bool eventually(const int *p, int want) {
    for (int i = 0; i < 6000; i++) {
        if (__atomic_load_n(p, __ATOMIC_SEQ_CST) == want)
            return true;
        poll(NULL, 0, 10);
    }
    return false;
}

static int dial(struct fixture *f) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    memcpy(a.sun_path, f->path, strlen(f->path));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

static void put(int fd, const char *text) {
    size_t len = strlen(text);
    assert_int_equal(send(fd, text, len, MSG_NOSIGNAL), (ssize_t)len);
}

// Everything until the server ends the connection.
static void read_all(int fd, struct buf *out) {
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, WAIT_MS) <= 0)
            fail_msg("the server did not end the connection; so far: %s", buf_str(out));
        char *at = buf_reserve(out, 65536 + 1);
        ssize_t n = read(fd, at, 65536);
        out->len += n > 0 ? (size_t)n : 0;
        out->data[out->len] = 0;
        if (n <= 0)
            return;
    }
}

static int count(const char *text, const char *what) {
    int n = 0;
    for (const char *p = text; (p = strstr(p, what)); p += strlen(what))
        n++;
    return n;
}

static struct http_client *client(struct fixture *f) {
    struct http_client *c = NULL;
    struct error e = {0};
    if (http_client_unix(f->path, &c, &e) < 0)
        fail_msg("%s", e.text);
    return c;
}

static void answers_and_credentials(void **state) {
    struct fixture *f = start((struct net_server_options){0});
    struct stat st;
    assert_int_equal(stat(f->path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    struct http_client *c = client(f);
    struct http_message m;
    struct error e = {0};
    struct http_request q = {.method = "GET", .target = "/whoami"};
    assert_int_equal(http_client_call(c, &q, &m, &e), 0);
    char want[64];
    snprintf(want, sizeof want, "%u %u %d", getuid(), getgid(), (int)getpid());
    assert_int_equal(m.status, 200);
    assert_string_equal(buf_str(&m.body), want);
    assert_string_equal(http_message_header(&m, "x-kind"), "unix");
    http_message_done(&m);

    char *big = xmalloc(3000000);
    memset(big, 'b', 3000000);
    q = (struct http_request){.method = "POST", .target = "/", .body = big, .body_len = 3000000};
    assert_int_equal(http_client_call(c, &q, &m, &e), 0);
    assert_int_equal(m.status, 201);
    assert_int_equal(m.body.len, 3000000);
    assert_memory_equal(m.body.data, big, 3000000);
    http_message_done(&m);
    free(big);

    q = (struct http_request){.method = "HEAD", .target = "/x?abc"};
    assert_int_equal(http_client_call(c, &q, &m, &e), 0);
    assert_string_equal(http_message_header(&m, "Content-Length"), "3");
    assert_int_equal(m.body.len, 0);
    http_message_done(&m);
    http_client_free(c);
    stop(f);
}

static void many_requests(void **state) {
    struct fixture *f = start((struct net_server_options){0});
    struct http_client *c = client(f);
    struct http_message m;
    struct error e = {0};
    enum { N = 5000 };
    int64_t t0 = clock_mono_us();
    for (int i = 0; i < N; i++) {
        char target[32], want[16];
        snprintf(target, sizeof target, "/q?%d", i);
        snprintf(want, sizeof want, "%d", i);
        struct http_request q = {.method = "GET", .target = target};
        assert_int_equal(http_client_call(c, &q, &m, &e), 0);
        assert_string_equal(buf_str(&m.body), want);
        http_message_done(&m);
    }
    int64_t us = clock_mono_us() - t0;
    print_message("unix socket, one connection: %lld requests/s\n",
                  (long long)N * 1000000 / (us ? us : 1));
    http_client_free(c);
    t0 = clock_mono_us();
    for (int i = 0; i < N / 5; i++) {
        c = client(f);
        struct http_request q = {.method = "GET", .target = "/"};
        assert_int_equal(http_client_call(c, &q, &m, &e), 0);
        http_message_done(&m);
        http_client_free(c);
    }
    us = clock_mono_us() - t0;
    print_message("unix socket, a connection each: %lld requests/s\n",
                  (long long)N / 5 * 1000000 / (us ? us : 1));
    stop(f);
}

static void pipelined_rate(void **state) {
    struct fixture *f = start((struct net_server_options){0});
    cleanup_close int fd = dial(f);
    cleanup_buf struct buf out = {0}, in = {0};
    enum { BATCH = 50, ROUNDS = 400 };
    for (int i = 0; i < BATCH; i++)
        buf_adds(&out, "GET /?x HTTP/1.1\r\nHost: x\r\n\r\n");
    static const char answer[] =
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1\r\n\r\nx";
    size_t want = BATCH * (sizeof answer - 1);
    int64_t t0 = clock_mono_us();
    for (int i = 0; i < ROUNDS; i++) {
        put(fd, out.data);
        buf_clear(&in);
        assert_int_equal(recv(fd, buf_reserve(&in, want), want, MSG_WAITALL), (ssize_t)want);
        assert_memory_equal(in.data, answer, sizeof answer - 1);
    }
    int64_t us = clock_mono_us() - t0;
    print_message("unix socket, %d in a pipeline: %lld requests/s\n", BATCH,
                  (long long)BATCH * ROUNDS * 1000000 / (us ? us : 1));
    stop(f);
}

// Far more than the pipeline takes at once, answered late and in reverse by the handler.
static void pipelining_keeps_order(void **state) {
    struct fixture *f = start((struct net_server_options){0});
    cleanup_close int fd = dial(f);
    cleanup_buf struct buf out = {0}, in = {0};
    enum { N = 300 };
    for (int i = 0; i < N; i++)
        buf_addf(&out, "GET /%s?n%d HTTP/1.1\r\nHost: x\r\n%s\r\n",
                 i % 7 == 3 ? "stream-later" : i % 3 ? "later" : "now", i,
                 i == N - 1 ? "Connection: close\r\n" : "");
    put(fd, out.data);
    read_all(fd, &in);
    const char *p = in.data;
    for (int i = 0; i < N; i++) {
        p = strstr(p, "HTTP/1.1 200 OK");
        assert_non_null(p);
        p = strstr(p, "\r\n\r\n") + 4;
        char want[16];
        snprintf(want, sizeof want, "n%d", i);
        if (i % 7 == 3)
            assert_true(str_has_prefix(p, "4\r\none \r\n3\r\ntwo\r\n0\r\n\r\n"));
        else
            assert_true(str_has_prefix(p, want));
    }
    assert_int_equal(count(in.data, "HTTP/1.1"), N);
    assert_int_equal(count(in.data, "Connection: close"), 1);
    stop(f);
}

static void refuses_rubbish(void **state) {
    struct fixture *f = start((struct net_server_options){.head_max = 4096, .body_max = 1000});
    static const struct {
        const char *text, *status;
    } cases[] = {
        {"rubbish\r\n\r\n", "400"},
        {"GET / HTTP/2.0\r\nHost: x\r\n\r\n", "505"},
        {"GET / HTTP/1.1\r\n\r\n", "400"},
        {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\n", "413"},
        {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\n", "413"},
        {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
         "400"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cleanup_close int fd = dial(f);
        cleanup_buf struct buf in = {0};
        put(fd, "GET /first HTTP/1.1\r\nHost: x\r\n\r\n");
        put(fd, cases[i].text);
        read_all(fd, &in);
        assert_true(str_has_prefix(in.data, "HTTP/1.1 200"));
        const char *second = strstr(in.data + 9, "HTTP/1.1 ");
        assert_non_null(second);
        assert_true(str_has_prefix(second + 9, cases[i].status));
    }
    // A head that never ends is refused as soon as it is too large, with what was sent unread.
    cleanup_close int fd = dial(f);
    cleanup_buf struct buf in = {0};
    put(fd, "GET / HTTP/1.1\r\n");
    for (int i = 0; i < 2000; i++)
        if (send(fd, "A: bbbbbbbbbbbbbbbbbbbbbbbbb\r\n", 30, MSG_NOSIGNAL) < 0)
            break;
    read_all(fd, &in);
    assert_true(str_has_prefix(in.data, "HTTP/1.1 431"));
    stop(f);
}

static void bounds_bodies_under_way(void **state) {
    struct fixture *f = start((struct net_server_options){.receiving_max = 100000, .small_body_bytes = 1000});
    static char block[60000];
    memset(block, 'b', sizeof block);
    static const char head[] = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 70000\r\n"
                               "Connection: close\r\n\r\n";
    for (int i = 0; i < 3; i++) {
        int first = dial(f);
        cleanup_close int second = dial(f);
        cleanup_buf struct buf in = {0};
        put(first, head);
        assert_int_equal(send(first, block, sizeof block, MSG_NOSIGNAL), sizeof block);
        poll(NULL, 0, 30);
        put(second, head);
        (void)!send(second, block, sizeof block, MSG_NOSIGNAL);
        read_all(second, &in);
        assert_true(str_has_prefix(in.data, "HTTP/1.1 503"));
        if (i == 1) {
            close(first);  // what it held is given back
            continue;
        }
        assert_int_equal(send(first, block, 10000, MSG_NOSIGNAL), 10000);
        buf_clear(&in);
        read_all(first, &in);
        assert_true(str_has_prefix(in.data, "HTTP/1.1 201"));
        close(first);
    }
    stop(f);
}

// Answers that wait for an earlier one count as output as well.
static void bounds_answers_out_of_turn(void **state) {
    for (int i = 0; i < 2; i++) {
        struct fixture *f = start((struct net_server_options){.output_max = i ? 100000 : 0});
        cleanup_close int fd = dial(f);
        cleanup_buf struct buf out = {0}, in = {0};
        for (int k = 0; k < 10; k++) {
            buf_adds(&out, "GET /ten?");
            for (int n = 0; n < 20000; n++)
                buf_addc(&out, 'q');
            buf_addf(&out, " HTTP/1.1\r\nHost: x\r\n%s\r\n", k == 9 ? "Connection: close\r\n" : "");
        }
        put(fd, out.data);
        read_all(fd, &in);
        assert_int_equal(count(buf_str(&in), "HTTP/1.1 200"), i ? 0 : 10);
        stop(f);
    }
}

static void half_closed_gets_its_answer(void **state) {
    struct fixture *f = start((struct net_server_options){0});
    cleanup_close int fd = dial(f);
    cleanup_buf struct buf in = {0};
    put(fd, "GET /later?a HTTP/1.1\r\nHost: x\r\n\r\nGET /later?b HTTP/1.1\r\nHost: x\r\n\r\n");
    shutdown(fd, SHUT_WR);
    read_all(fd, &in);
    assert_int_equal(count(in.data, "HTTP/1.1 200"), 2);
    assert_int_equal(f->closes, 0);
    stop(f);
}

static void a_client_that_leaves_is_noticed(void **state) {
    struct fixture *f = start((struct net_server_options){0});
    for (int i = 0; i < 20; i++) {
        int fd = dial(f);
        put(fd, "GET /never HTTP/1.1\r\nHost: x\r\n\r\n");
        poll(NULL, 0, 5);
        close(fd);
    }
    assert_true(eventually(&f->closes, 20));
    poll(NULL, 0, 700);  // the answers come when nobody is there
    stop(f);
}

static void slow_clients_time_out(void **state) {
    struct fixture *f = start(
        (struct net_server_options){.head_timeout_ms = 300, .body_timeout_ms = 300, .idle_timeout_ms = 350});
    cleanup_buf struct buf a = {0}, b = {0}, c = {0}, d = {0};
    cleanup_close int idle = dial(f);
    put(idle, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    cleanup_close int body = dial(f);
    put(body, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n123");
    cleanup_close int head = dial(f), silent = dial(f);
    put(head, "GET / HTTP/1.1\r\nHo");
    read_all(head, &a);
    read_all(body, &b);
    read_all(idle, &c);
    read_all(silent, &d);
    assert_true(str_has_prefix(a.data, "HTTP/1.1 408"));
    assert_true(str_has_prefix(b.data, "HTTP/1.1 408"));
    assert_true(str_has_prefix(c.data, "HTTP/1.1 200"));
    assert_int_equal(d.len, 0);
    stop(f);
}

static void a_stream_and_its_limits(void **state) {
    struct fixture *f = start((struct net_server_options){0});
    struct http_client *c = client(f);
    struct http_message m;
    struct error e = {0};
    struct http_request q = {.method = "GET", .target = "/big"};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(http_client_call(c, &q, &m, &e), 0);
        assert_int_equal(m.body.len, 64 * 64 * 1024);
        http_message_done(&m);
    }
    http_client_free(c);
    stop(f);
    // One who does not read is dropped after the write time-out.
    f = start((struct net_server_options){.write_timeout_ms = 200});
    cleanup_close int fd = dial(f);
    put(fd, "GET /big HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_int_equal(poll(&(struct pollfd){.fd = fd, .events = POLLRDHUP}, 1, WAIT_MS), 1);
    cleanup_buf struct buf in = {0};
    read_all(fd, &in);
    assert_true(in.len < 64 * 64 * 1024);
    stop(f);
    // One whose output would pass the limit is dropped at once.
    f = start((struct net_server_options){.output_max = 1024 * 1024});
    // A single answer may be larger, also behind another.
    char *big = xmalloc(3000000);
    memset(big, 'b', 3000000);
    c = client(f);
    q = (struct http_request){.method = "POST", .target = "/", .body = big, .body_len = 3000000};
    assert_int_equal(http_client_call(c, &q, &m, &e), 0);
    assert_int_equal(m.body.len, 3000000);
    http_message_done(&m);
    http_client_free(c);
    free(big);
    cleanup_close int fd2 = dial(f);
    put(fd2, "GET /big HTTP/1.1\r\nHost: x\r\n\r\n");
    cleanup_buf struct buf in2 = {0};
    poll(NULL, 0, 100);
    read_all(fd2, &in2);
    assert_true(in2.len < 64 * 64 * 1024);
    stop(f);
}

static int take_some(void *arg, const char *data, size_t len) {
    size_t *total = arg;
    *total += len;
    return *total > 1000000 ? 7 : 0;
}

static void streaming_client_can_stop(void **state) {
    struct fixture *f = start((struct net_server_options){0});
    struct http_client *c = client(f);
    struct http_message m;
    struct error e = {0};
    size_t total = 0;
    struct http_request q = {.method = "GET", .target = "/big"};
    assert_int_equal(http_client_stream(c, &q, &m, take_some, &total, &e), 7);
    assert_false(http_client_reusable(c));
    http_message_done(&m);
    http_client_free(c);
    stop(f);
}

static void old_clients_get_plain_streams(void **state) {
    struct fixture *f = start((struct net_server_options){0});
    cleanup_close int fd = dial(f);
    cleanup_buf struct buf in = {0};
    put(fd, "GET /stream-later HTTP/1.0\r\n\r\n");
    read_all(fd, &in);
    assert_non_null(strstr(in.data, "\r\n\r\none two"));
    assert_null(strstr(in.data, "chunked"));
    stop(f);
}

static void expect_continue(void **state) {
    struct fixture *f = start((struct net_server_options){0});
    cleanup_close int fd = dial(f);
    cleanup_buf struct buf in = {0};
    put(fd, "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n"
            "Connection: close\r\n\r\n");
    char first[25];
    assert_int_equal(recv(fd, first, 25, MSG_WAITALL), 25);
    assert_memory_equal(first, "HTTP/1.1 100 Continue\r\n\r\n", 25);
    put(fd, "ok");
    read_all(fd, &in);
    assert_true(str_has_prefix(in.data, "HTTP/1.1 201"));
    stop(f);
}

static void websocket_echo(void **state) {
    struct fixture *f = start((struct net_server_options){0});
    struct http_client *c = client(f);
    struct error e = {0};
    struct ws_event ev;
    assert_int_equal(http_client_ws_open(c, "/ws", NULL, NULL, &e), 0);
    assert_int_equal(http_client_ws_recv(c, &ev, 0), 0);
    for (size_t len = 0; len < 300000; len = len * 3 + 1) {
        char *data = xmalloc(len + 1);
        memset(data, 'w', len);
        assert_int_equal(http_client_ws_send(c, WS_PING, "p", 1), 0);
        assert_int_equal(http_client_ws_send(c, WS_BINARY, data, len), 0);
        assert_int_equal(http_client_ws_recv(c, &ev, WAIT_MS), 1);
        assert_int_equal(ev.type, WS_BINARY);
        assert_int_equal(ev.len, len);
        assert_memory_equal(ev.data, data, len);
        free(data);
    }
    assert_int_equal(http_client_ws_send(c, WS_TEXT, "quit", 4), 0);
    assert_int_equal(http_client_ws_recv(c, &ev, WAIT_MS), 1);
    assert_int_equal(ev.type, WS_CLOSE);
    assert_int_equal(ev.status, WS_NORMAL);
    assert_int_equal(http_client_ws_close(c, ev.status, ""), 0);
    http_client_free(c);
    assert_true(eventually(&f->ws_status, WS_NORMAL));

    // Bytes that follow the upgrade at once are not lost, and requests before it come first.
    for (int i = 0; i < 4; i++) {
        cleanup_close int fd = dial(f);
        cleanup_buf struct buf out = {0}, in = {0};
        buf_addf(&out, "%sGET /ws%s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n"
                 "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                 "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
                 "\x81\x84....\x5f\x5b\x47\x5a\x88\x80....",
                 i & 1 ? "GET /later?a HTTP/1.1\r\nHost: x\r\n\r\n" : "", i & 2 ? "-later" : "");
        put(fd, out.data);
        read_all(fd, &in);
        assert_int_equal(count(in.data, "HTTP/1.1 200"), i & 1);
        assert_non_null(strstr(in.data, "HTTP/1.1 101"));
        assert_non_null(strstr(in.data, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        assert_memory_equal(in.data + in.len - 12, "\x88\x0a\x03\xe8" "as asked", 12);
    }

    c = client(f);
    struct http_message refusal;
    assert_true(http_client_ws_open(c, "/nothing", NULL, &refusal, &e) < 0);
    assert_int_equal(refusal.status, 200);
    http_message_done(&refusal);
    http_client_free(c);
    stop(f);
}

static void pages_from_elsewhere_open_no_websocket(void **state) {
    struct fixture *f = start((struct net_server_options){0});
    static const struct {
        const char *origin, *status;
    } cases[] = {{"", "101"},
                 {"Origin: https://head:6820\r\n", "101"},
                 {"Origin: https://HEAD:6820\r\n", "101"},
                 {"Origin: https://elsewhere.example\r\n", "403"},
                 {"Origin: https://head\r\n", "403"},
                 {"Origin: https://head:6820.elsewhere.example\r\n", "403"},
                 {"Origin: null\r\n", "403"}};
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        bool raw = i & 1;
        cleanup_close int fd = dial(f);
        cleanup_buf struct buf out = {0}, in = {0};
        buf_addf(&out, "GET /%s HTTP/1.1\r\nHost: head:6820\r\nConnection: Upgrade\r\n%s"
                 "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                 "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n%s",
                 raw ? "raw" : "ws", cases[i / 2].origin, raw ? "x" : "\x81\x84....\x5f\x5b\x47\x5a\x88\x80....");
        put(fd, out.data);
        shutdown(fd, SHUT_WR);
        read_all(fd, &in);
        if (raw && streq(cases[i / 2].status, "101"))
            assert_string_equal(buf_str(&in), "x");
        else
            assert_true(in.len > 12 && memcmp(in.data + 9, cases[i / 2].status, 3) == 0);
    }
    stop(f);
}

static void tunnel_echo(void **state) {
    struct fixture *f = start((struct net_server_options){0});
    cleanup_close int fd = dial(f);
    cleanup_buf struct buf in = {0};
    put(fd, "GET /raw HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nabc");
    poll(NULL, 0, 30);
    put(fd, "def");
    shutdown(fd, SHUT_WR);
    read_all(fd, &in);
    assert_string_equal(in.data, "abcdef");
    assert_true(eventually(&f->raw_closes, 1));
    stop(f);
}

static bool wants_app(const struct net_request *req, void *user) {
    return streq(http_message_header(req->http, "Host"), "app");
}

static void *begin_app(struct net_raw *raw, const struct net_peer *peer, const struct http_parser *parser,
                       struct http_message *message, void *user) {
    char text[128];
    int n = snprintf(text, sizeof text, "%s %s %lld %d|", message->method, message->path,
                     (long long)message->content_length, parser->state == HTTP_STATE_DONE);
    net_raw_write(raw, text, (size_t)n);
    assert_true(net_raw_identify(raw, "user ana", "pass"));
    http_message_done(message);
    return user;
}

static int dial_http(const struct fixture *f) {
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons(f->http_port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

// Bodies of any size, since the server does not read them; others keep the server's limit; never behind an answer.
static void connections_are_taken_over(void **state) {
    static const struct {
        const char *send, *got;
    } cases[] = {
        {"POST /a HTTP/1.1\r\nHost: app\r\nContent-Length: 99999999999\r\n\r\nabc",
         "POST /a 99999999999 0|abc"},
        {"GET /a HTTP/1.1\r\nHost: app\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n",
         "GET /a -1 1|GET /b HTTP/1.1\r\nHost: x\r\n\r\n"},
        {"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n", "HTTP/1.1 413 "},
        {"GET /a?first HTTP/1.1\r\nHost: x\r\n\r\nGET /a HTTP/1.1\r\nHost: app\r\n\r\n", "firstGET /a -1 1|"},
        {"GET /later?first HTTP/1.1\r\nHost: x\r\n\r\nGET /a HTTP/1.1\r\nHost: app\r\n\r\n", "HTTP/1.1 421 "},
    };
    struct fixture *f = start((struct net_server_options){
        .body_max = 1000, .takeover = {.wants = wants_app, .begin = begin_app, .callbacks = &raw_echo}});
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cleanup_close int fd = dial_http(f);
        cleanup_buf struct buf in = {0};
        put(fd, cases[i].send);
        shutdown(fd, SHUT_WR);
        read_all(fd, &in);
        if (!strstr(buf_str(&in), cases[i].got))
            fail_msg("%s: %s", cases[i].send, buf_str(&in));
    }
    // The unix socket has no names of hosts that count.
    cleanup_close int fd = dial(f);
    cleanup_buf struct buf in = {0};
    put(fd, "GET /a?own HTTP/1.1\r\nHost: app\r\nConnection: close\r\n\r\n");
    read_all(fd, &in);
    assert_non_null(strstr(buf_str(&in), "\r\n\r\nown"));
    assert_true(eventually(&f->raw_closes, 3));
    stop(f);
}

static void limits_connections(void **state) {
    struct fixture *f = start((struct net_server_options){.connections_max = 2, .admin_connections = 1});
    cleanup_close int a = dial(f), b = dial(f), c = dial(f), d = dial(f);
    cleanup_buf struct buf in = {0};
    read_all(d, &in);
    assert_int_equal(in.len, 0);
    put(a, "GET /?x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    read_all(a, &in);
    assert_true(str_has_prefix(in.data, "HTTP/1.1 200"));
    assert_true(b >= 0 && c >= 0);
    stop(f);
}

// In a child with descriptors of its own: how many of 60 clients were served.
static int serve_sixty(struct fixture *f) {
    int fds[60], served = 0;
    for (int i = 0; i < 60; i++) {
        fds[i] = dial(f);
        (void)!send(fds[i], "GET /?x HTTP/1.1\r\nHost: x\r\n\r\n", 30, MSG_NOSIGNAL);
    }
    for (int i = 0; i < 60; i++) {
        struct pollfd p = {.fd = fds[i], .events = POLLIN};
        char answer[200];
        if (poll(&p, 1, WAIT_MS) <= 0)
            return 255;  // neither served nor turned away
        served += read(fds[i], answer, sizeof answer) > 0;
    }
    return served;
}

static void runs_out_of_descriptors(void **state) {
    struct fixture *f = start((struct net_server_options){0});
    struct http_client *c = client(f);
    struct http_message m;
    struct error e = {0};
    struct http_request q = {.method = "GET", .target = "/?still", .timeout_ms = WAIT_MS};
    struct rlimit was, low;
    getrlimit(RLIMIT_NOFILE, &was);
    pid_t pid = fork();
    if (pid == 0) {
        poll(NULL, 0, 50);
        _exit(serve_sixty(f));
    }
    int spare = dup(0);
    close(spare);
    low = (struct rlimit){(rlim_t)spare + 20, was.rlim_max};
    setrlimit(RLIMIT_NOFILE, &low);
    int status = 0;
    waitpid(pid, &status, 0);
    assert_int_equal(http_client_call(c, &q, &m, &e), 0);
    http_message_done(&m);
    setrlimit(RLIMIT_NOFILE, &was);
    http_client_free(c);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) >= 10 && WEXITSTATUS(status) < 60);
    c = client(f);
    assert_int_equal(http_client_call(c, &q, &m, &e), 0);
    http_message_done(&m);
    http_client_free(c);
    stop(f);
}

static void ends_gracefully(void **state) {
    struct fixture *f = start((struct net_server_options){0});
    f->grace_ms = WAIT_MS;
    struct http_client *ws = client(f);
    struct error e = {0};
    assert_int_equal(http_client_ws_open(ws, "/ws", NULL, NULL, &e), 0);
    cleanup_close int busy = dial(f), idle = dial(f);
    put(busy, "GET /soon?done HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(eventually(&f->parks, 1));
    uv_async_send(&f->stop);
    cleanup_buf struct buf a = {0}, b = {0};
    read_all(busy, &a);
    read_all(idle, &b);
    assert_non_null(strstr(a.data, "done"));
    assert_non_null(strstr(a.data, "Connection: close"));
    struct ws_event ev;
    assert_int_equal(http_client_ws_recv(ws, &ev, WAIT_MS), 1);
    assert_int_equal(ev.status, WS_GOING_AWAY);
    http_client_free(ws);
    stop(f);
}

static void second_server_is_refused(void **state) {
    struct fixture *f = start((struct net_server_options){0});
    struct error e = {0};
    uv_loop_t loop;
    uv_loop_init(&loop);
    struct net_server_options o = {.on_request = on_request};
    struct net_server *s = net_server_new(&loop, &o);
    assert_int_equal(net_server_listen_unix(s, f->path, 0600, &e), -EADDRINUSE);
    net_server_close(s, 0, NULL, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    struct http_client *c = client(f);
    http_client_free(c);
    stop(f);
}

static void a_deleted_socket_is_put_back(void **state) {
    struct fixture *f = start((struct net_server_options){0});
    struct http_client *before = client(f), *after;
    struct http_message m;
    struct error e = {0};
    struct http_request q = {.method = "GET", .target = "/restore"};
    assert_int_equal(unlink(f->path), 0);
    assert_true(http_client_unix(f->path, &after, &e) < 0);
    for (int i = 0; i < 2; i++) {  // what was connected stays so
        assert_int_equal(http_client_call(before, &q, &m, &e), 0);
        assert_string_equal(buf_str(&m.body), i ? "0" : "1");
        http_message_done(&m);
    }
    after = client(f);
    assert_int_equal(http_client_call(after, &q, &m, &e), 0);
    assert_string_equal(buf_str(&m.body), "0");
    http_message_done(&m);
    http_client_free(before);
    http_client_free(after);
    stop(f);
}

// One who has an IPv6 network has all of its addresses.
static void a_network_is_one_sender(void **state) {
    static const char *const expected[][2] = {
        {"[10.0.0.7]:5000", "[10.0.0.7]"},
        {"[::ffff:10.0.0.7]:5000", "[::ffff:10.0.0.7]"},
        {"[2001:db8:1:2:a:b:c:d]:1", "[2001:db8:1:2::/64]"},
        {"[2001:db8:1:2::1]:65535", "[2001:db8:1:2::/64]"},
        {"[2001:db8:1:3::1]:1", "[2001:db8:1:3::/64]"},
        {"[::1]:5000", "[::1]"},
        {"[fe80::1]:5000", "[fe80::1]"},
        {"unix", "unix"},
        {"[?]:0", "[?]"},
        {"[2001:db8:1:2::/64]", "[2001:db8:1:2::/64]"},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        char out[NET_ADDRESS_MAX];
        net_address_network(expected[i][0], out, sizeof out);
        assert_string_equal(out, expected[i][1]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_deleted_socket_is_put_back),
        cmocka_unit_test(answers_and_credentials),
        cmocka_unit_test(many_requests),
        cmocka_unit_test(pipelined_rate),
        cmocka_unit_test(pipelining_keeps_order),
        cmocka_unit_test(refuses_rubbish),
        cmocka_unit_test(bounds_bodies_under_way),
        cmocka_unit_test(bounds_answers_out_of_turn),
        cmocka_unit_test(a_network_is_one_sender),
        cmocka_unit_test(half_closed_gets_its_answer),
        cmocka_unit_test(a_client_that_leaves_is_noticed),
        cmocka_unit_test(slow_clients_time_out),
        cmocka_unit_test(a_stream_and_its_limits),
        cmocka_unit_test(streaming_client_can_stop),
        cmocka_unit_test(old_clients_get_plain_streams),
        cmocka_unit_test(expect_continue),
        cmocka_unit_test(websocket_echo),
        cmocka_unit_test(pages_from_elsewhere_open_no_websocket),
        cmocka_unit_test(tunnel_echo),
        cmocka_unit_test(connections_are_taken_over),
        cmocka_unit_test(limits_connections),
        cmocka_unit_test(runs_out_of_descriptors),
        cmocka_unit_test(ends_gracefully),
        cmocka_unit_test(second_server_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
