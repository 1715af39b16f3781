// TLS end to end: the CA, whom server and clients let in, the blocking client, the dialled
// WebSocket, join tokens. Servers run on a thread of their own, on loopback.
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
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
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/rand.h"
#include "base/text.h"
#include "../connect.h"
#include "../server_internal.h"
#include "net/dial.h"
#include "net/pki.h"
#include "net/server.h"
#include "net/tls_client.h"
#include "net/token.h"

enum { WAIT_MS = 60000 };
static const int64_t long_ago_s = 365 * 86400;  // 1971: whatever was made then has expired

static char dir[64];

static const char *at(const char *name) {
    static char paths[8][128];
    static int turn;
    char *p = paths[turn++ % 8];
    snprintf(p, sizeof paths[0], "%s/%s", dir, name);
    return p;
}

#define ok(expr)                               \
    do {                                       \
        struct error e_ = {0}, *err = &e_;     \
        if ((expr) < 0)                        \
            fail_msg("%s: %s", #expr, err->text); \
    } while (0)

static struct pki_ca *ca, *other_ca;
static char agent_sha256[PKI_SHA256_HEX + 1];

static void sign(struct pki_ca *by, const char *name, const char *cn, int64_t now_s,
                 char sha256[static PKI_SHA256_HEX + 1]) {
    cleanup_buf struct buf csr = {0}, cert = {0};
    char key[32], crt[32];
    snprintf(key, sizeof key, "%s.key", name);
    snprintf(crt, sizeof crt, "%s.crt", name);
    ok(pki_key_create(at(key), err));
    ok(pki_csr_create(at(key), "whatever", &csr, err));
    ok(pki_sign_client(by, csr.data, csr.len, cn, now_s, &cert, sha256, err));
    buf_adds(&cert, pki_ca_pem(by));
    ok(pki_write_file(at(crt), cert.data, cert.len, 0644, err));
}

static int set_up(void **state) {
    static const char *const names[] = {"localhost", "127.0.0.1", "::1", "head.example"};
    char unused[PKI_SHA256_HEX + 1];
    int64_t now_s = time(NULL);
    snprintf(dir, sizeof dir, "/tmp/aq-tls-XXXXXX");
    assert_non_null(mkdtemp(dir));
    ok(pki_ca_create(at("ca.crt"), at("ca.key"), "acequia-ca", now_s, err));
    ok(pki_ca_load(at("ca.crt"), at("ca.key"), &ca, err));
    ok(pki_ca_create(at("other.crt"), at("other.key"), "acequia-ca", now_s, err));
    ok(pki_ca_load(at("other.crt"), at("other.key"), &other_ca, err));
    ok(pki_server_create(ca, at("server.crt"), at("server.key"), names, 4, now_s, err));
    ok(pki_server_create(ca, at("old-server.crt"), at("old-server.key"), names, 4, long_ago_s,
                         err));
    sign(ca, "agent", "node:alpha", now_s, agent_sha256);
    sign(ca, "old-agent", "node:old", long_ago_s, unused);
    sign(other_ca, "stranger", "node:alpha", now_s, unused);
    return 0;
}

static int tear_down(void **state) {
    static const char *const files[] = {"ca.crt",         "ca.key",         "other.crt",    "other.key",
                                        "server.crt",     "server.key",     "agent.crt",    "agent.key",
                                        "old-agent.crt",  "old-agent.key",  "stranger.crt", "stranger.key",
                                        "old-server.crt", "old-server.key", "apps.crt",     "apps.key"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        unlink(at(files[i]));
    pki_ca_free(ca);
    pki_ca_free(other_ca);
    return rmdir(dir);
}

struct fixture {
    uv_loop_t loop;
    uv_async_t stop;
    pthread_t thread;
    struct net_server *server;
    struct tls_context *tls;
    uint16_t port;
    char unix_path[96];
};

static void on_ws_message(struct net_ws *ws, enum ws_opcode type, const char *data, size_t len,
                          void *user) {
    net_ws_send(ws, type, data, len);
}

static void on_ws_close(struct net_ws *ws, int status, const char *reason, void *user) {
}

static const struct net_ws_callbacks ws_echo = {.on_message = on_ws_message,
                                                .on_close = on_ws_close};

static void on_request(struct net_request *req, void *user) {
    if (streq(req->path, "/ws")) {
        net_upgrade_ws(req, NULL, &ws_echo, NULL);
    } else if (streq(req->path, "/no")) {
        net_reply(req, 403, "text/plain", "not you", 7);
    } else if (req->body_len) {
        net_reply(req, 200, "text/plain", req->body, req->body_len);
    } else {
        char text[600];
        int n = snprintf(text, sizeof text, "%d %s %s", req->peer->has_cert, req->peer->cert_cn,
                         req->peer->cert_sha256);
        net_reply(req, 200, "text/plain", text, (size_t)n);
    }
}

static void on_done(void *user) {
    struct fixture *f = user;
    uv_close((uv_handle_t *)&f->stop, NULL);
}

static void on_stop(uv_async_t *async) {
    struct fixture *f = async->data;
    net_server_close(f->server, 1000, on_done, f);
}

static void *run_loop(void *arg) {
    struct fixture *f = arg;
    uv_run(&f->loop, UV_RUN_DEFAULT);
    return NULL;
}

static struct fixture *start(const char *cert, const char *key) {
    struct fixture *f = xcalloc(1, sizeof *f);
    uv_loop_init(&f->loop);
    uv_async_init(&f->loop, &f->stop, on_stop);
    f->stop.data = f;
    struct net_server_options o = {.on_request = on_request, .head_timeout_ms = 2000};
    f->server = net_server_new(&f->loop, &o);
    ok(tls_context_server(at(cert), at(key), at("ca.crt"), &f->tls, err));
    ok(net_server_listen_tls(f->server, "127.0.0.1", 0, f->tls, err));
    snprintf(f->unix_path, sizeof f->unix_path, "%s", at("sock"));
    ok(net_server_listen_unix(f->server, f->unix_path, 0600, err));
    f->port = net_server_port(f->server);
    pthread_create(&f->thread, NULL, run_loop, f);
    return f;
}

static void stop(struct fixture *f) {
    uv_async_send(&f->stop);
    pthread_join(f->thread, NULL);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    tls_context_free(f->tls);
    free(f);
}

// One request under the given trust; the body goes to `body`. Negative when anything fails.
static int try_get(struct fixture *f, struct tls_client_options o, struct buf *body,
                   struct error *e) {
    struct tls_context *ctx = NULL;
    struct http_client *c = NULL;
    struct http_message m;
    struct http_request q = {.method = "GET", .target = "/", .timeout_ms = WAIT_MS};
    http_message_init(&m);
    int r = tls_context_client(&o, &ctx, e);
    if (r == 0)
        r = http_client_tls("127.0.0.1", f->port, ctx, WAIT_MS, &c, e);
    if (r == 0)
        r = http_client_call(c, &q, &m, e);
    if (r == 0 && body)
        buf_add(body, m.body.data, m.body.len);
    http_message_done(&m);
    http_client_free(c);
    tls_context_free(ctx);
    return r;
}

static void who_is_let_in(void **state) {
    struct fixture *f = start("server.crt", "server.key");
    struct error e = {0};
    cleanup_buf struct buf body = {0};
    struct tls_client_options nobody = {.ca_file = at("ca.crt")};
    assert_int_equal(try_get(f, nobody, &body, &e), 0);
    assert_string_equal(body.data, "0  ");
    buf_clear(&body);
    struct tls_client_options agent = {.ca_sha256 = pki_ca_sha256(ca),
                                       .cert_file = at("agent.crt"),
                                       .key_file = at("agent.key"),
                                       .verify_host = "127.0.0.1"};
    assert_int_equal(try_get(f, agent, &body, &e), 0);
    char want[200];
    snprintf(want, sizeof want, "1 node:alpha %s", agent_sha256);
    assert_string_equal(body.data, want);
    agent.verify_host = "head.example";
    assert_int_equal(try_get(f, agent, NULL, &e), 0);
    agent.verify_host = "other.example";
    assert_true(try_get(f, agent, NULL, &e) < 0);
    assert_non_null(strcasestr(e.text, "hostname mismatch"));
    agent.verify_host = "127.0.0.2";
    assert_true(try_get(f, agent, NULL, &e) < 0);
    stop(f);
}

// Names below a domain have a certificate of their own, by somebody else; the others are served as before.
static void a_domain_has_its_own_certificate(void **state) {
    static const char *const names[] = {"12-8888-x.apps.example"};
    struct error e = {0};
    ok(pki_server_create(other_ca, at("apps.crt"), at("apps.key"), names, 1, time(NULL), err));
    struct fixture *f = start("server.crt", "server.key");
    assert_true(tls_context_server_below(f->tls, "apps.example", at("apps.crt"), at("server.key"), &e) < 0);
    ok(tls_context_server_below(f->tls, "apps.example", at("apps.crt"), at("apps.key"), err));
    struct tls_client_options browser = {.ca_file = at("other.crt"), .verify_host = "12-8888-x.apps.example"};
    assert_int_equal(try_get(f, browser, NULL, &e), 0);
    browser.verify_host = "a.b.apps.example";
    assert_true(try_get(f, browser, NULL, &e) < 0);
    browser.verify_host = "head.example";
    assert_true(try_get(f, browser, NULL, &e) < 0);
    browser.ca_file = at("ca.crt");
    assert_int_equal(try_get(f, browser, NULL, &e), 0);
    stop(f);
}

static void who_is_not(void **state) {
    struct fixture *f = start("server.crt", "server.key");
    struct error e = {0};
    // The client does not know this server.
    assert_true(try_get(f, (struct tls_client_options){.ca_file = at("other.crt")}, NULL, &e) < 0);
    assert_non_null(strstr(e.text, "TLS handshake failed"));
    assert_true(try_get(f, (struct tls_client_options){.ca_sha256 = pki_ca_sha256(other_ca)}, NULL,
                        &e) < 0);
    assert_non_null(strstr(e.text, "TLS handshake failed"));
    assert_int_equal(try_get(f, (struct tls_client_options){.ca_sha256 = "12"}, NULL, &e), -EINVAL);
    assert_int_equal(try_get(f, (struct tls_client_options){0}, NULL, &e), -EINVAL);
    // The server does not know this client: another CA of the same name, or expired.
    assert_true(try_get(f,
                        (struct tls_client_options){.ca_file = at("ca.crt"),
                                                    .cert_file = at("stranger.crt"),
                                                    .key_file = at("stranger.key")},
                        NULL, &e) < 0);
    assert_true(try_get(f,
                        (struct tls_client_options){.ca_file = at("ca.crt"),
                                                    .cert_file = at("old-agent.crt"),
                                                    .key_file = at("old-agent.key")},
                        NULL, &e) < 0);
    // A server's certificate does not make a client.
    assert_true(try_get(f,
                        (struct tls_client_options){.ca_file = at("ca.crt"),
                                                    .cert_file = at("server.crt"),
                                                    .key_file = at("server.key")},
                        NULL, &e) < 0);
    // Still there for the others.
    assert_int_equal(try_get(f, (struct tls_client_options){.ca_file = at("ca.crt")}, NULL, &e), 0);
    stop(f);

    // An agent that poses as the server, and a server whose certificate has expired.
    f = start("agent.crt", "agent.key");
    assert_true(try_get(f, (struct tls_client_options){.ca_file = at("ca.crt")}, NULL, &e) < 0);
    assert_non_null(strstr(e.text, "unsuitable certificate purpose"));
    assert_true(try_get(f, (struct tls_client_options){.ca_sha256 = pki_ca_sha256(ca)}, NULL, &e) <
                0);
    stop(f);
    f = start("old-server.crt", "old-server.key");
    assert_true(try_get(f, (struct tls_client_options){.ca_file = at("ca.crt")}, NULL, &e) < 0);
    assert_non_null(strstr(e.text, "expired"));
    assert_true(try_get(f, (struct tls_client_options){.ca_sha256 = pki_ca_sha256(ca)}, NULL, &e) <
                0);
    stop(f);
}

static void plain_text_gets_nothing(void **state) {
    struct fixture *f = start("server.crt", "server.key");
    struct error e = {0};
    cleanup_close int fd = net_connect_tcp("127.0.0.1", f->port, WAIT_MS, &e);
    assert_true(fd >= 0);
    static const char text[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    assert_int_equal(net_send_all(fd, text, sizeof text - 1, WAIT_MS), 0);
    char answer[64];
    struct pollfd p = {.fd = fd, .events = POLLIN};
    ssize_t n, total = 0;
    while (poll(&p, 1, WAIT_MS) > 0 && (n = read(fd, answer, sizeof answer)) > 0)
        total += n;
    assert_true(total < 16);  // an alert at most
    // One that never says hello is dropped by the head time-out.
    cleanup_close int silent = net_connect_tcp("127.0.0.1", f->port, WAIT_MS, &e);
    p.fd = silent;
    int64_t t0 = clock_mono_ms();
    assert_true(poll(&p, 1, WAIT_MS) > 0);
    assert_int_equal(read(silent, answer, sizeof answer), 0);
    assert_true(clock_mono_ms() - t0 < 4000);
    stop(f);
}

static void old_protocols_are_refused(void **state) {
    struct fixture *f = start("server.crt", "server.key");
    static const int versions[] = {TLS1_VERSION, TLS1_1_VERSION, TLS1_2_VERSION, TLS1_3_VERSION};
    for (size_t i = 0; i < 4; i++) {
        struct error e = {0};
        cleanup_close int fd = net_connect_tcp("127.0.0.1", f->port, WAIT_MS, &e);
        fcntl(fd, F_SETFL, 0);
        SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
        SSL_CTX_set_security_level(ctx, 0);
        SSL_CTX_set_min_proto_version(ctx, versions[i]);
        SSL_CTX_set_max_proto_version(ctx, versions[i]);
        SSL *ssl = SSL_new(ctx);
        SSL_set_fd(ssl, fd);
        assert_int_equal(SSL_connect(ssl) == 1, versions[i] >= TLS1_2_VERSION);
        SSL_free(ssl);
        SSL_CTX_free(ctx);
    }
    stop(f);
}

// Rubbish instead of a hello, rubbish after the handshake, and leaving at any moment.
static void rubbish_and_leaving(void **state) {
    struct fixture *f = start("server.crt", "server.key");
    struct rand r;
    rand_seed(&r, 3);
    struct tls_client_options o = {.ca_file = at("ca.crt")};
    struct tls_context *ctx = NULL;
    ok(tls_context_client(&o, &ctx, err));
    char junk[2000];
    for (int i = 0; i < 300; i++) {
        struct error e = {0};
        for (size_t k = 0; k < sizeof junk; k++)
            junk[k] = (char)rand_u64(&r);
        size_t n = rand_below(&r, sizeof junk);
        if (i % 3) {
            cleanup_close int fd = net_connect_tcp("127.0.0.1", f->port, WAIT_MS, &e);
            assert_true(fd >= 0);
            if (i % 3 == 1)
                memcpy(junk, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11);
            net_send_all(fd, junk, n, WAIT_MS);
            continue;
        }
        struct http_client *c = NULL;
        ok(http_client_tls("127.0.0.1", f->port, ctx, WAIT_MS, &c, err));
        if (i % 2)
            net_send_all(http_client_fd(c), junk, n, WAIT_MS);
        http_client_free(c);
    }
    struct error e = {0};
    assert_int_equal(try_get(f, o, NULL, &e), 0);
    tls_context_free(ctx);
    stop(f);
}

static void many_requests(void **state) {
    struct fixture *f = start("server.crt", "server.key");
    struct tls_client_options o = {.ca_file = at("ca.crt")};
    struct tls_context *ctx = NULL;
    struct http_client *c = NULL;
    ok(tls_context_client(&o, &ctx, err));
    ok(http_client_tls("127.0.0.1", f->port, ctx, WAIT_MS, &c, err));
    enum { N = 5000, BIG = 4000000 };
    struct http_request q = {.method = "POST", .target = "/", .body = "x", .body_len = 1};
    int64_t t0 = clock_mono_us();
    for (int i = 0; i < N; i++) {
        struct http_message m;
        ok(http_client_call(c, &q, &m, err));
        assert_string_equal(m.body.data, "x");
        http_message_done(&m);
    }
    int64_t us = clock_mono_us() - t0;
    print_message("TLS, one connection: %lld requests/s\n", (long long)N * 1000000 / (us ? us : 1));
    char *big = xmalloc(BIG);
    for (int i = 0; i < BIG; i++)
        big[i] = (char)((unsigned)i * 7919 >> 3);
    q.body = big;
    q.body_len = BIG;
    struct http_message m;
    ok(http_client_call(c, &q, &m, err));
    assert_int_equal(m.body.len, BIG);
    assert_memory_equal(m.body.data, big, BIG);
    http_message_done(&m);
    free(big);
    http_client_free(c);
    enum { CONNECTIONS = 200 };
    t0 = clock_mono_us();
    for (int i = 0; i < CONNECTIONS; i++) {
        ok(http_client_tls("127.0.0.1", f->port, ctx, WAIT_MS, &c, err));
        http_client_free(c);
    }
    us = clock_mono_us() - t0;
    print_message("TLS, handshakes: %lld/s\n", CONNECTIONS * 1000000LL / (us ? us : 1));
    tls_context_free(ctx);
    stop(f);
}

static void blocking_websocket(void **state) {
    struct fixture *f = start("server.crt", "server.key");
    struct tls_client_options o = {.ca_file = at("ca.crt")};
    struct tls_context *ctx = NULL;
    struct http_client *c = NULL;
    struct ws_event ev;
    ok(tls_context_client(&o, &ctx, err));
    ok(http_client_tls("127.0.0.1", f->port, ctx, WAIT_MS, &c, err));
    ok(http_client_ws_open(c, "/ws", NULL, NULL, err));
    for (int i = 0; i < 100; i++)
        assert_int_equal(http_client_ws_send(c, WS_TEXT, "hello", 5), 0);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(http_client_ws_recv(c, &ev, WAIT_MS), 1);
        assert_string_equal(ev.data, "hello");
    }
    assert_false(http_client_ws_buffered(c));
    assert_int_equal(http_client_ws_recv(c, &ev, 10), 0);
    http_client_free(c);
    tls_context_free(ctx);
    stop(f);
}

// What a dialled WebSocket went through.
struct seen {
    int opens, messages, closes, status;
    size_t bytes;
    char reason[128];
    int want;  // messages after which it closes
};

static void dial_open(struct net_ws *ws, void *user) {
    struct seen *s = user;
    s->opens++;
    char block[100000];
    memset(block, 'd', sizeof block);
    for (int i = 0; i < s->want; i++)
        assert_true(net_ws_send(ws, WS_BINARY, block, sizeof block) >= 0);
    if (!s->want)
        net_ws_close(ws, WS_NORMAL, "bye");
}

static void dial_message(struct net_ws *ws, enum ws_opcode type, const char *data, size_t len,
                         void *user) {
    struct seen *s = user;
    s->messages++;
    s->bytes += len;
    if (s->messages == s->want)
        net_ws_close(ws, WS_NORMAL, "bye");
}

static void dial_close(struct net_ws *ws, int status, const char *reason, void *user) {
    struct seen *s = user;
    s->closes++;
    s->status = status;
    snprintf(s->reason, sizeof s->reason, "%s", reason);
}

static const struct net_ws_callbacks dial_callbacks = {
    .on_open = dial_open, .on_message = dial_message, .on_close = dial_close};

static struct seen dial(struct net_dial_options o, int want, bool abort_at_once) {
    struct seen s = {.want = want};
    uv_loop_t loop;
    uv_loop_init(&loop);
    struct net_ws *ws = net_dial_ws(&loop, &o, &dial_callbacks, &s);
    assert_int_equal(net_ws_send(ws, WS_TEXT, "x", 1), -ENOTCONN);
    if (abort_at_once)
        net_ws_abort(ws);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    assert_int_equal(s.closes, 1);
    return s;
}

static void dialling(void **state) {
    struct fixture *f = start("server.crt", "server.key");
    struct tls_context *good = NULL, *bad = NULL;
    struct tls_client_options o = {.ca_sha256 = pki_ca_sha256(ca),
                                   .cert_file = at("agent.crt"),
                                   .key_file = at("agent.key")};
    ok(tls_context_client(&o, &good, err));
    o.ca_sha256 = pki_ca_sha256(other_ca);
    ok(tls_context_client(&o, &bad, err));
    struct net_dial_options d = {.host = "localhost", .port = f->port, .tls = good,
                                 .target = "/ws", .timeout_ms = WAIT_MS};
    struct seen s = dial(d, 200, false);
    assert_int_equal(s.opens, 1);
    assert_int_equal(s.messages, 200);
    assert_int_equal(s.bytes, 200 * 100000);
    assert_int_equal(s.status, WS_NORMAL);
    s = dial(d, 0, false);
    assert_int_equal(s.status, WS_NORMAL);

    d.target = "/no";
    s = dial(d, 1, false);
    assert_int_equal(s.opens, 0);
    assert_string_equal(s.reason, "the server refused the WebSocket with status 403: not you");
    d.target = "/ws";
    s = dial(d, 1, true);
    assert_int_equal(s.opens, 0);
    d.tls = bad;
    s = dial(d, 1, false);
    assert_int_equal(s.opens, 0);
    assert_non_null(strstr(s.reason, "certificate"));
    d.tls = good;
    d.port = 1;
    s = dial(d, 1, false);
    assert_non_null(strstr(s.reason, "refused"));
    d.host = "no-such-host.invalid";
    s = dial(d, 1, false);
    assert_non_null(strstr(s.reason, "is not known"));

    s = dial((struct net_dial_options){.unix_path = f->unix_path, .target = "/ws"}, 50, false);
    assert_int_equal(s.messages, 50);
    assert_int_equal(s.status, WS_NORMAL);
    s = dial((struct net_dial_options){.unix_path = "/nowhere/at/all", .target = "/ws"}, 1, false);
    assert_non_null(strstr(s.reason, "/nowhere/at/all"));
    tls_context_free(good);
    tls_context_free(bad);
    stop(f);
}

static void authority(void **state) {
    struct error e = {0};
    struct stat st;
    char hex[PKI_SHA256_HEX + 1], again[PKI_SHA256_HEX + 1];
    assert_int_equal(stat(at("ca.key"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(stat(at("server.key"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(pki_ca_create(at("ca.crt"), at("ca.key"), "x", 1, &e), -EEXIST);
    assert_int_equal(pki_key_create(at("agent.key"), &e), -EEXIST);
    assert_true(pki_ca_load(at("ca.crt"), at("other.key"), &(struct pki_ca *){NULL}, &e) < 0);
    assert_true(pki_ca_load(at("agent.crt"), at("agent.key"), &(struct pki_ca *){NULL}, &e) < 0);
    ok(pki_fingerprint_file(at("ca.crt"), hex, err));
    assert_string_equal(hex, pki_ca_sha256(ca));
    ok(pki_fingerprint(pki_ca_pem(ca), strlen(pki_ca_pem(ca)), again, err));
    assert_string_equal(hex, again);
    int64_t expiry = 0, now_s = time(NULL);
    ok(pki_expiry_file(at("server.crt"), &expiry, err));
    assert_true(expiry > now_s + 9LL * 365 * 86400);

    cleanup_buf struct buf csr = {0}, cert = {0};
    ok(pki_csr_create(at("agent.key"), "x", &csr, err));
    char too_long[PKI_CN_MAX + 2];
    memset(too_long, 'a', sizeof too_long - 1);
    too_long[sizeof too_long - 1] = 0;
    const char *const bad_names[] = {"", "a b", "a\nb", "a/b", "a,CN=b", too_long};
    for (size_t i = 0; i < sizeof bad_names / sizeof *bad_names; i++)
        assert_int_equal(
            pki_sign_client(ca, csr.data, csr.len, bad_names[i], now_s, &cert, hex, &e), -EINVAL);
    csr.data[csr.len / 2] ^= 1;
    assert_true(pki_sign_client(ca, csr.data, csr.len, "a", now_s, &cert, hex, &e) < 0);
    assert_true(pki_sign_client(ca, "rubbish", 7, "a", now_s, &cert, hex, &e) < 0);
    assert_int_equal(cert.len, 0);
    static const char *const bad_server[] = {"a,DNS:b"}, *const good_server[] = {"a"};
    struct tls_context *tls = NULL;
    ok(pki_server_create(ca, at("x.crt"), at("x.key"), good_server, 1, now_s, err));
    assert_int_equal(
        pki_server_create(ca, at("x.crt"), at("x.key"), bad_server, 1, now_s, &e), -EINVAL);
    ok(tls_context_server(at("x.crt"), at("x.key"), at("ca.crt"), &tls, err));  // as they were
    tls = tls_context_free(tls);
    // A CA's key without certificate, as a crash leaves it, does not block a new start.
    unlink(at("x.crt"));
    ok(pki_ca_create(at("x.crt"), at("x.key"), "x", now_s, err));
    struct pki_ca *again_ca = NULL;
    ok(pki_ca_load(at("x.crt"), at("x.key"), &again_ca, err));
    pki_ca_free(again_ca);
    unlink(at("x.key"));
    unlink(at("x.crt"));
}

static void tokens(void **state) {
    struct token t, back;
    struct error e = {0};
    char text[TOKEN_TEXT_LEN + 3], hash[TOKEN_SHA256_HEX + 1], other[TOKEN_SHA256_HEX + 1];
    ok(token_create(pki_ca_sha256(ca), &t, err));
    token_format(&t, text);
    assert_int_equal(strlen(text), TOKEN_TEXT_LEN);
    assert_true(str_has_prefix(text, "aq1."));
    memcpy(text + TOKEN_TEXT_LEN, "\n", 2);
    ok(token_parse(text, &back, err));
    assert_memory_equal(&t, &back, sizeof t);
    token_hash(&back, hash);
    assert_true(token_matches(&t, hash));
    assert_null(strstr(text, hash));
    for (size_t i = 0; i < TOKEN_TEXT_LEN; i++) {
        char cut[TOKEN_TEXT_LEN + 1];
        memcpy(cut, text, i);
        cut[i] = 0;
        assert_int_equal(token_parse(cut, &back, &e), -EINVAL);
    }
    for (size_t i = 0; i < TOKEN_TEXT_LEN; i++) {
        char was = text[i];
        text[i] = was == '0' ? '1' : '0';
        if (token_parse(text, &back, &e) == 0 && i < TOKEN_TEXT_LEN - TOKEN_SHA256_HEX)
            assert_false(token_matches(&back, hash));
        text[i] = was;
    }
    ok(token_create(pki_ca_sha256(ca), &back, err));
    token_hash(&back, other);
    assert_string_not_equal(hash, other);
    assert_false(token_matches(&back, hash));
    assert_false(token_matches(&t, ""));
    assert_int_equal(token_create("xyz", &back, &e), -EINVAL);
    token_wipe(&t);
}

static void ignore_done(void *user) {
}

// A server on a loop that the test turns, and clients that have said nothing yet.
enum { MANY = 8 * CONN_HANDSHAKES_TURN };
struct crowd {
    uv_loop_t loop;
    struct net_server *server;
    struct tls_context *server_context, *context;
    struct tls *clients[MANY];
    struct buf hellos[MANY];
    int fds[MANY];
};

static void crowd_connects(struct crowd *x) {
    *x = (struct crowd){0};
    uv_loop_init(&x->loop);
    x->server = net_server_new(&x->loop, &(struct net_server_options){.on_request = on_request});
    ok(tls_context_server(at("server.crt"), at("server.key"), at("ca.crt"), &x->server_context, err));
    ok(net_server_listen_tls(x->server, "127.0.0.1", 0, x->server_context, err));
    ok(tls_context_client(&(struct tls_client_options){.ca_file = at("ca.crt")}, &x->context, err));
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(net_server_port(x->server)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (int i = 0; i < MANY; i++) {
        int one = 1;
        x->fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(x->fds[i], (struct sockaddr *)&to, sizeof to), 0);
        setsockopt(x->fds[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        x->clients[i] = tls_new(x->context);
        assert_int_equal(tls_handshake(x->clients[i]), 0);
        tls_output(x->clients[i], &x->hellos[i]);
    }
}

static void crowd_sends(struct crowd *x, size_t from, size_t len) {
    for (int i = 0; i < MANY; i++)
        if (from < x->hellos[i].len)
            assert_true(send(x->fds[i], x->hellos[i].data + from,
                             from + len < x->hellos[i].len ? len : x->hellos[i].len - from,
                             MSG_NOSIGNAL) > 0);
}

// Until all of them have their answer.
static void crowd_is_answered(struct crowd *x) {
    uint32_t answered = 0;
    for (int64_t until_ms = clock_mono_ms() + WAIT_MS; answered < MANY && clock_mono_ms() < until_ms;) {
        char data[8192];
        uv_run(&x->loop, UV_RUN_NOWAIT);
        for (int i = 0; i < MANY; i++) {
            ssize_t n = recv(x->fds[i], data, sizeof data, MSG_DONTWAIT);
            if (n <= 0 || tls_established(x->clients[i]))
                continue;
            tls_feed(x->clients[i], data, (size_t)n);
            answered += tls_handshake(x->clients[i]) == 1;
        }
    }
    assert_int_equal(answered, MANY);
}

static void crowd_leaves(struct crowd *x) {
    for (int i = 0; i < MANY; i++) {
        tls_free(x->clients[i]);
        buf_done(&x->hellos[i]);
        close(x->fds[i]);
    }
    net_server_close(x->server, 0, ignore_done, NULL);
    uv_run(&x->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&x->loop), 0);
    tls_context_free(x->server_context);
    tls_context_free(x->context);
}

// Handshakes that all begin at once are made a few in each turn of the loop, and all of them.
static void handshakes_take_turns(void **state) {
    struct crowd x;
    crowd_connects(&x);
    crowd_sends(&x, 0, SIZE_MAX / 2);
    crowd_is_answered(&x);
    assert_int_equal(x.server->accepted_max, NET_ACCEPT_TURN);
    assert_true(x.server->handshakes.steps_max > 1 && x.server->handshakes.steps_max <= CONN_HANDSHAKES_TURN);
    crowd_leaves(&x);
}

// A hello that comes a byte at a time costs no more handshakes than one that comes at once.
static void hellos_in_pieces_are_gathered(void **state) {
    struct crowd x;
    crowd_connects(&x);
    for (size_t i = 0; i < x.hellos[0].len - 1; i++) {
        crowd_sends(&x, i, 1);
        uv_run(&x.loop, UV_RUN_NOWAIT);
        assert_int_equal(x.server->handshakes.steps_all, 0);
    }
    crowd_sends(&x, x.hellos[0].len - 1, SIZE_MAX / 2);
    crowd_is_answered(&x);
    assert_int_equal(x.server->handshakes.steps_all, MANY);
    assert_true(x.server->handshakes.steps_max <= CONN_HANDSHAKES_TURN);
    crowd_leaves(&x);
}

// What is no hello is refused at its first byte, and an announced length beyond any record's is.
static void what_is_no_hello_is_refused(void **state) {
    static const char *const words[] = {"GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\xff\xff", "\x16\x03\x01"};
    struct tls_context *context = NULL;
    ok(tls_context_server(at("server.crt"), at("server.key"), at("ca.crt"), &context, err));
    for (int i = 0; i < 3; i++) {
        struct tls *t = tls_new(context);
        assert_true(tls_awaits_hello(t));
        assert_int_equal(tls_handshake(t), 0);
        tls_feed(t, words[i], strlen(words[i]));
        assert_int_equal(tls_awaits_hello(t), i == 2);
        assert_int_equal(tls_handshake(t), i == 2 ? 0 : -EPROTO);
        tls_free(t);
    }
    tls_context_free(context);
}

// A server's session and a client that is OpenSSL itself, so that it can do what ours never does.
struct two_sides {
    struct tls_context *context;
    struct tls *server;
    SSL_CTX *client_context;
    SSL *client;
};

static void carry(struct two_sides *x) {
    char data[64 << 10];
    cleanup_buf struct buf back = {0};
    for (int n; (n = BIO_read(SSL_get_wbio(x->client), data, sizeof data)) > 0;)
        tls_feed(x->server, data, (size_t)n);
    tls_output(x->server, &back);
    if (back.len)
        BIO_write(SSL_get_rbio(x->client), back.data, (int)back.len);
}

static void meet(struct two_sides *x) {
    ok(tls_context_server(at("server.crt"), at("server.key"), at("ca.crt"), &x->context, err));
    x->server = tls_new(x->context);
    x->client_context = SSL_CTX_new(TLS_client_method());
    x->client = SSL_new(x->client_context);
    SSL_set_bio(x->client, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    SSL_set_connect_state(x->client);
    for (int i = 0; i < 5; i++) {
        SSL_do_handshake(x->client);
        carry(x);
        tls_handshake(x->server);
        carry(x);
    }
    assert_true(tls_established(x->server) && SSL_version(x->client) == TLS1_3_VERSION);
}

static void part(struct two_sides *x) {
    tls_free(x->server);
    tls_context_free(x->context);
    SSL_free(x->client);
    SSL_CTX_free(x->client_context);
}

static void change_keys(struct two_sides *x, int times) {
    for (int i = 0; i < times; i++)
        assert_true(SSL_key_update(x->client, SSL_KEY_UPDATE_REQUESTED) && SSL_do_handshake(x->client) == 1);
}

// New keys are expensive for whoever gets them. A stranger's packet full of them is not worked through: how many were
// taken is counted.
static void floods_of_new_keys_end_the_session(void **state) {
    struct two_sides x = {0};
    char data[16];
    meet(&x);
    for (int i = 0; i < 20; i++) {  // now and then is fine, however often
        change_keys(&x, 10);
        assert_int_equal(SSL_write(x.client, "x", 1), 1);
        carry(&x);
        assert_int_equal(tls_read(x.server, data, sizeof data), 1);
        assert_int_equal(tls_key_updates(x.server), 0);
        carry(&x);
    }
    change_keys(&x, 2000);
    carry(&x);
    assert_int_equal(tls_read(x.server, data, sizeof data), -EPROTO);
    assert_in_range(tls_key_updates(x.server), 10, 20);
    assert_non_null(strstr(tls_problem(x.server), "over and over"));
    assert_int_equal(tls_read(x.server, data, sizeof data), -EPROTO);
    part(&x);
}

// Data in records of one byte and a hello in pieces of one byte: a call does one record's work.
static void tiny_records_are_read_one_by_one(void **state) {
    struct two_sides x = {0};
    char data[4096];
    meet(&x);
    for (int i = 0; i < 500; i++)
        assert_int_equal(SSL_write(x.client, "x", 1), 1);
    carry(&x);
    for (int i = 0; i < 500; i++)
        assert_int_equal(tls_read(x.server, data, sizeof data), 1);
    assert_int_equal(tls_read(x.server, data, sizeof data), 0);
    part(&x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(authority),
        cmocka_unit_test(tokens),
        cmocka_unit_test(who_is_let_in),
        cmocka_unit_test(a_domain_has_its_own_certificate),
        cmocka_unit_test(who_is_not),
        cmocka_unit_test(plain_text_gets_nothing),
        cmocka_unit_test(old_protocols_are_refused),
        cmocka_unit_test(rubbish_and_leaving),
        cmocka_unit_test(many_requests),
        cmocka_unit_test(blocking_websocket),
        cmocka_unit_test(dialling),
        cmocka_unit_test(handshakes_take_turns),
        cmocka_unit_test(hellos_in_pieces_are_gathered),
        cmocka_unit_test(what_is_no_hello_is_refused),
        cmocka_unit_test(floods_of_new_keys_end_the_session),
        cmocka_unit_test(tiny_records_are_read_one_by_one),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
