// Clients that send without end, never finish or never read: what they can make the server hold, and how long they can
// keep it busy in one turn of its loop. They come over the loopback interface, where they are strangers; the state of
// the server is asked for over its unix socket.
#include <fcntl.h>
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
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "../server_internal.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/text.h"
#include "net/client.h"

enum { CLIENTS = 8, MIB = 1 << 20, WAIT_MS = 60000, LONG_MS = 20 };

struct fixture {
    char dir[64], path[96];
    uint16_t port;
    uv_loop_t loop;
    uv_async_t stop;
    uv_check_t turn;
    pthread_t thread;
    struct net_server *server;
    struct net_request *parked;
    uint32_t slow, slow_max, slow_all;  // messages that took long: in this turn, most, in all
};

static void on_ws_message(struct net_ws *ws, enum ws_opcode type, const char *data, size_t len, void *user) {
    struct fixture *f = user;
    if (len != 4 || (memcmp(data, "slow", 4) != 0 && memcmp(data, "long", 4) != 0)) {
        net_ws_send(ws, type, data, len);
        return;
    }
    for (int64_t until = clock_mono_us() + (*data == 's' ? 1000 : LONG_MS * 1000); clock_mono_us() < until;)
        ;
    f->slow_all++;
    if (++f->slow > f->slow_max)
        f->slow_max = f->slow;
}

static void on_ws_close(struct net_ws *ws, int status, const char *reason, void *user) {
}

static void on_turn(uv_check_t *h) {
    ((struct fixture *)h->data)->slow = 0;
}

static void tell_state(struct fixture *f, struct net_request *req) {
    char text[128];
    uint64_t unsent = 0, long_rests = 0;
    size_t it = 0;
    void *v;
    while (strmap_next(&f->server->budgets, &it, NULL, &v)) {
        unsent += ((struct net_budget *)v)->account.unsent;
        long_rests += ((struct net_budget *)v)->account.long_rests;
    }
    const struct conn_account *strangers = &f->server->strangers;
    int n = snprintf(text, sizeof text, "%llu %llu %u %u %llu %llu %llu", (unsigned long long)unsent,
                     (unsigned long long)f->server->receiving, f->slow_max, f->slow_all,
                     (unsigned long long)long_rests, (unsigned long long)strangers->long_rests,
                     (unsigned long long)strangers->rest_max_ms);
    net_reply(req, 200, "text/plain", text, (size_t)n);
}

static void on_request(struct net_request *req, void *user) {
    static const struct net_ws_callbacks ws = {.on_message = on_ws_message, .on_close = on_ws_close};
    struct fixture *f = user;
    if (streq(req->path, "/state"))
        tell_state(f, req);
    else if (streq(req->path, "/ws"))
        net_upgrade_ws(req, NULL, &ws, f);
    else if (streq(req->path, "/never"))
        f->parked = req;
    else
        net_reply(req, 200, "application/octet-stream", req->body, req->body_len);
}

static void on_done(void *user) {
    struct fixture *f = user;
    uv_close((uv_handle_t *)&f->stop, NULL);
    uv_close((uv_handle_t *)&f->turn, NULL);
}

static void on_stop(uv_async_t *async) {
    struct fixture *f = async->data;
    net_server_close(f->server, 0, on_done, f);
}

static void *run_loop(void *arg) {
    uv_run(&((struct fixture *)arg)->loop, UV_RUN_DEFAULT);
    return NULL;
}

static void start(struct fixture *f, struct net_server_options options) {
    struct error e = {0};
    *f = (struct fixture){.dir = "/tmp/aq-flood-XXXXXX"};
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->path, sizeof f->path, "%s/s", f->dir);
    uv_loop_init(&f->loop);
    uv_async_init(&f->loop, &f->stop, on_stop);
    uv_check_init(&f->loop, &f->turn);
    uv_check_start(&f->turn, on_turn);
    f->stop.data = f->turn.data = f;
    options.on_request = on_request;
    options.user = f;
    f->server = net_server_new(&f->loop, &options);
    assert_int_equal(net_server_listen_unix(f->server, f->path, 0600, &e), 0);
    assert_int_equal(net_server_listen_loopback(f->server, &f->port, &e), 0);
    pthread_create(&f->thread, NULL, run_loop, f);
}

static void stop(struct fixture *f) {
    uv_async_send(&f->stop);
    pthread_join(f->thread, NULL);
    if (f->parked)
        net_reply(f->parked, 200, NULL, "", 0);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    rmdir(f->dir);
}

struct state {
    unsigned long long unsent, receiving, long_rests, strangers_rests, rest_max_ms;
    unsigned slow_max, slow_all;
};

static struct state state_of(const struct fixture *f) {
    struct http_client *c = NULL;
    struct http_message m;
    struct error e = {0};
    struct state s = {0};
    assert_int_equal(http_client_unix(f->path, &c, &e), 0);
    struct http_request q = {.method = "GET", .target = "/state"};
    assert_int_equal(http_client_call(c, &q, &m, &e), 0);
    assert_int_equal(sscanf(buf_str(&m.body), "%llu %llu %u %u %llu %llu %llu", &s.unsent, &s.receiving,
                            &s.slow_max, &s.slow_all, &s.long_rests, &s.strangers_rests, &s.rest_max_ms),
                     7);
    http_message_done(&m);
    http_client_free(c);
    return s;
}

static int dial(const struct fixture *f) {
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons(f->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), small = 65536;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

static int dial_ws(const struct fixture *f) {
    static const char head[] =
        "GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    int fd = dial(f);
    char c;
    size_t seen = 0;
    assert_int_equal(send(fd, head, sizeof head - 1, MSG_NOSIGNAL), sizeof head - 1);
    while (seen < 4 && read(fd, &c, 1) == 1)
        seen = c == "\r\n\r\n"[seen] ? seen + 1 : c == '\r';
    assert_int_equal(seen, 4);
    return fd;
}

static void add_frame(struct buf *out, bool fin, int opcode, const char *data, size_t len) {
    buf_addc(out, (char)((fin ? 0x80 : 0) | opcode));
    buf_addc(out, (char)(0x80 | (len < 126 ? len : 127)));
    for (int i = 7; len >= 126 && i >= 0; i--)
        buf_addc(out, (char)(len >> 8 * i));
    buf_add(out, "\0\0\0\0", 4);
    buf_add(out, data, len);
}

// Sends it again and again, from byte `sent` on, until the server takes nothing for a while; how many bytes were sent.
static size_t pour(int fd, const struct buf *data, size_t sent, size_t max, int wait_ms) {
    fcntl(fd, F_SETFL, O_NONBLOCK);
    while (sent < max) {
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        size_t at = sent % data->len;
        if (poll(&p, 1, wait_ms) <= 0)
            break;
        ssize_t n = send(fd, data->data + at, data->len - at, MSG_NOSIGNAL);
        if (n <= 0)
            break;
        sent += (size_t)n;
    }
    return sent;
}

static void messages_without_an_end_are_bounded(void **state) {
    struct fixture f;
    int fds[CLIENTS];
    cleanup_buf struct buf out = {0};
    char *text = xcalloc(1, 3 * MIB);
    start(&f, (struct net_server_options){.user_receiving_max = 8 * MIB, .small_body_bytes = 1000});
    add_frame(&out, false, WS_TEXT, text, 3 * MIB);
    for (int i = 0; i < CLIENTS; i++) {
        fds[i] = dial_ws(&f);
        pour(fds[i], &out, 0, out.len, WAIT_MS);
    }
    unsigned ended = 0;
    for (int64_t until = clock_mono_ms() + WAIT_MS; clock_mono_ms() < until && ended < CLIENTS - 2;) {
        ended = 0;
        for (int i = 0; i < CLIENTS; i++) {
            char frame[4] = {0};
            struct pollfd p = {.fd = fds[i], .events = POLLIN};
            if (poll(&p, 1, 10) > 0) {
                ended++;
                assert_true(recv(fds[i], frame, 4, MSG_PEEK) <= 0 || memcmp(frame + 2, "\x03\xf5", 2) == 0);
            }
        }
    }
    assert_int_equal(ended, CLIENTS - 2);
    assert_in_range(state_of(&f).receiving, 6 * MIB, 8 * MIB);
    for (int i = 0; i < CLIENTS; i++)
        close(fds[i]);
    free(text);
    stop(&f);
}

static void unread_pongs_do_not_pile_up(void **state) {
    struct fixture f;
    cleanup_buf struct buf out = {0};
    char text[125] = "";
    start(&f, (struct net_server_options){0});
    for (int i = 0; i < 1000; i++)
        add_frame(&out, true, WS_PING, text, sizeof text);
    cleanup_close int fd = dial_ws(&f);
    assert_int_equal(pour(fd, &out, 0, 40 * MIB / out.len * out.len, WAIT_MS), 40 * MIB / out.len * out.len);
    assert_in_range(state_of(&f).unsent, 0, MIB / 2);
    stop(&f);
}

// A flood of small messages leaves most of the time to others; large ones are not slowed down.
static void many_small_messages_rest(void **state) {
    struct fixture f;
    cleanup_buf struct buf small = {0}, large = {0};
    char *text = xcalloc(1, MIB);
    start(&f, (struct net_server_options){0});
    for (int i = 0; i < 10000; i++)
        add_frame(&small, true, WS_PONG, text, 0);
    add_frame(&large, true, WS_PONG, text, 125);
    add_frame(&large, false, WS_TEXT, text, MIB - 1000);
    cleanup_close int fd = dial_ws(&f);
    assert_int_equal(pour(fd, &large, 0, large.len, WAIT_MS), large.len);
    assert_int_equal(state_of(&f).long_rests, 0);
    cleanup_close int other = dial_ws(&f);
    size_t sent = 0;
    for (int64_t until = clock_mono_ms() + WAIT_MS; clock_mono_ms() < until && !state_of(&f).long_rests;)
        sent = pour(other, &small, sent, sent + 4 * MIB, 100);
    assert_true(state_of(&f).long_rests > 0 && state_of(&f).strangers_rests > 0);
    free(text);
    stop(&f);
}

// After a message that took long, others get as much time as it took beyond its part.
static void long_messages_are_followed_by_a_rest(void **state) {
    struct fixture f;
    cleanup_buf struct buf out = {0};
    start(&f, (struct net_server_options){0});
    for (int i = 0; i < 3; i++)
        add_frame(&out, true, WS_TEXT, "long", 4);
    cleanup_close int fd = dial_ws(&f);
    assert_int_equal(send(fd, out.data, out.len, MSG_NOSIGNAL), out.len);
    for (int64_t until = clock_mono_ms() + WAIT_MS; clock_mono_ms() < until && state_of(&f).slow_all < 3;)
        poll(NULL, 0, 10);
    struct state s = state_of(&f);
    assert_int_equal(s.slow_all, 3);
    assert_int_equal(s.slow_max, 1);
    assert_in_range(s.rest_max_ms, 2 * LONG_MS - 2, CONN_REST_MAX_MS);
    stop(&f);
}

static void who_does_not_read_is_not_listened_to(void **state) {
    struct fixture f;
    cleanup_buf struct buf out = {0};
    char text[100] = "";
    start(&f, (struct net_server_options){0});
    for (int i = 0; i < 1000; i++)
        add_frame(&out, true, WS_TEXT, text, sizeof text);
    cleanup_close int fd = dial_ws(&f);
    int little = 64 << 10;  // few answers fit between us, so that they soon wait in the server
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &little, sizeof little), 0);
    size_t sent = 0;
    for (int64_t until = clock_mono_ms() + WAIT_MS; clock_mono_ms() < until && state_of(&f).unsent < MIB / 2;)
        sent = pour(fd, &out, sent, 50 * MIB, 100);
    sent = pour(fd, &out, sent, 50 * MIB, 1000);
    assert_true(sent < 50 * MIB);
    assert_in_range(state_of(&f).unsent, MIB / 2, 2 * MIB);
    // It reads: all that it sent is answered.
    cleanup_buf struct buf rest = {0};
    buf_add(&rest, out.data + sent % out.len, out.len - sent % out.len);
    size_t all = (sent + rest.len) / out.len * 1000 * (2 + sizeof text), got = 0, put = 0;
    char in[65536];
    while (got < all) {
        struct pollfd p = {.fd = fd, .events = POLLIN | (put < rest.len ? POLLOUT : 0)};
        assert_true(poll(&p, 1, WAIT_MS) > 0);
        ssize_t n = p.revents & POLLIN ? read(fd, in, sizeof in) : 0;
        got += n > 0 ? (size_t)n : 0;
        n = p.revents & POLLOUT ? send(fd, rest.data + put, rest.len - put, MSG_NOSIGNAL) : 0;
        put += n > 0 ? (size_t)n : 0;
        assert_true(!(p.revents & (POLLHUP | POLLERR)));
    }
    assert_int_equal(got, all);
    stop(&f);
}

// Behind a request that is not answered, answers wait in memory.
static void answers_behind_a_slow_one_are_bounded(void **state) {
    static const char first[] = "GET /never HTTP/1.1\r\nHost: x\r\n\r\n";
    struct fixture f;
    cleanup_buf struct buf out = {0};
    start(&f, (struct net_server_options){0});
    buf_addf(&out, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", MIB / 2);
    buf_fill(&out, 'x', MIB / 2);
    cleanup_close int fd = dial(&f);
    assert_int_equal(send(fd, first, sizeof first - 1, MSG_NOSIGNAL), sizeof first - 1);
    assert_true(pour(fd, &out, 0, 40 * out.len, 1000) < 40 * out.len);
    assert_in_range(state_of(&f).unsent, 0, 3 * MIB);
    stop(&f);
}

static void unread_answers_of_one_account_are_bounded(void **state) {
    static const char question[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    struct fixture f;
    cleanup_buf struct buf out = {0};
    char answer[16] = "";
    start(&f, (struct net_server_options){.user_unsent_max = 4 * MIB});
    buf_addf(&out, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", 32 * MIB);
    buf_fill(&out, 'x', 32 * MIB);
    int fd = dial(&f);
    pour(fd, &out, 0, out.len, WAIT_MS);
    for (int64_t until = clock_mono_ms() + WAIT_MS; clock_mono_ms() < until && state_of(&f).unsent < 8 * MIB;)
        poll(NULL, 0, 10);
    cleanup_close int other = dial(&f);
    assert_int_equal(send(other, question, sizeof question - 1, MSG_NOSIGNAL), sizeof question - 1);
    assert_int_equal(recv(other, answer, 12, MSG_WAITALL), 12);
    assert_string_equal(answer, "HTTP/1.1 503");
    close(fd);
    for (int64_t until = clock_mono_ms() + WAIT_MS; clock_mono_ms() < until && state_of(&f).unsent;)
        poll(NULL, 0, 10);
    cleanup_close int again = dial(&f);
    assert_int_equal(send(again, question, sizeof question - 1, MSG_NOSIGNAL), sizeof question - 1);
    assert_int_equal(recv(again, answer, 12, MSG_WAITALL), 12);
    assert_string_equal(answer, "HTTP/1.1 200");
    stop(&f);
}

// Many messages in one packet, on several connections: an account has 2 ms of a turn for those that waited, and 2 for
// those that come.
static void messages_take_turns(void **state) {
    struct fixture f;
    cleanup_buf struct buf out = {0};
    int fds[4];
    start(&f, (struct net_server_options){0});
    for (int i = 0; i < 50; i++)
        add_frame(&out, true, WS_TEXT, "slow", 4);
    for (int i = 0; i < 4; i++)
        fds[i] = dial_ws(&f);
    for (int i = 0; i < 4; i++)
        assert_int_equal(send(fds[i], out.data, out.len, MSG_NOSIGNAL), out.len);
    for (int64_t until = clock_mono_ms() + WAIT_MS; clock_mono_ms() < until && state_of(&f).slow_all < 200;)
        poll(NULL, 0, 10);
    struct state s = state_of(&f);
    assert_int_equal(s.slow_all, 200);
    assert_in_range(s.slow_max, 1, 6);
    for (int i = 0; i < 4; i++)
        close(fds[i]);
    stop(&f);
}

static void admit_as_node(struct net_request *req, struct net_admission *out, void *user) {
    out->account = "node n1";
}

// A node with a certificate that sends without a pause takes turns as well.
static void messages_of_a_node_take_turns(void **state) {
    struct fixture f;
    cleanup_buf struct buf out = {0};
    start(&f, (struct net_server_options){.on_head = admit_as_node});
    for (int i = 0; i < 50; i++)
        add_frame(&out, true, WS_TEXT, "slow", 4);
    cleanup_close int fd = dial_ws(&f);
    assert_int_equal(send(fd, out.data, out.len, MSG_NOSIGNAL), out.len);
    for (int64_t until = clock_mono_ms() + WAIT_MS; clock_mono_ms() < until && state_of(&f).slow_all < 50;)
        poll(NULL, 0, 10);
    struct state s = state_of(&f);
    assert_int_equal(s.slow_all, 50);
    assert_in_range(s.slow_max, 1, 6);
    stop(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(messages_without_an_end_are_bounded),
                                       cmocka_unit_test(unread_pongs_do_not_pile_up),
                                       cmocka_unit_test(many_small_messages_rest),
                                       cmocka_unit_test(long_messages_are_followed_by_a_rest),
                                       cmocka_unit_test(who_does_not_read_is_not_listened_to),
                                       cmocka_unit_test(answers_behind_a_slow_one_are_bounded),
                                       cmocka_unit_test(unread_answers_of_one_account_are_bounded),
                                       cmocka_unit_test(messages_take_turns),
                                       cmocka_unit_test(messages_of_a_node_take_turns)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
