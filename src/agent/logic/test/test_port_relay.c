// A connection to a port of a job: credit both ways, ends of one side and of both, patience.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "agent/logic/port_relay.h"

struct program {
    struct port_relay relay;
    int ask;  // what the shepherd answers
    uint32_t asks;
    size_t room;  // that its socket takes
    char in[64];  // what it got
    size_t in_len;
    const char *says;  // what it sends
    bool says_no_more, shut, stuck;
    bool wants_read, wants_write;
    char out[64];  // what the other side got
    size_t out_len;
    uint64_t credited;
    bool eof, ended;
    char error[128];
};

static int on_ask(void *ctx) {
    struct program *p = ctx;
    p->asks++;
    return p->ask;
}

static ssize_t on_read(void *ctx, void *data, size_t size) {
    struct program *p = ctx;
    size_t n = strlen(p->says);
    if (!n)
        return p->says_no_more ? 0 : -EAGAIN;
    n = n < size ? n : size;
    memcpy(data, p->says, n);
    p->says += n;
    return (ssize_t)n;
}

static ssize_t on_write(void *ctx, const void *data, size_t size) {
    struct program *p = ctx;
    size_t n = size < p->room ? size : p->room;
    if (!n)
        return -EAGAIN;
    memcpy(p->in + p->in_len, data, n);
    p->in_len += n;
    p->room -= n;
    return (ssize_t)n;
}

static void on_shut(void *ctx) {
    ((struct program *)ctx)->shut = true;
}

static void on_want(void *ctx, bool read, bool write) {
    struct program *p = ctx;
    p->wants_read = read;
    p->wants_write = write;
}

static bool on_may_send(void *ctx) {
    return !((struct program *)ctx)->stuck;
}

static void on_send(void *ctx, enum message_type type, struct message_stream *m) {
    struct program *p = ctx;
    assert_int_equal(m->stream, 7);
    if (type == MESSAGE_STREAM_CREDIT) {
        p->credited += m->credit;
        return;
    }
    memcpy(p->out + p->out_len, m->data.data, m->data.len);
    p->out_len += m->data.len;
    p->eof |= m->eof;
}

static void on_end(void *ctx, const char *error) {
    struct program *p = ctx;
    assert_false(p->ended);
    p->ended = true;
    snprintf(p->error, sizeof p->error, "%s", error ? error : "");
}

static const struct port_relay_host host = {on_ask,  on_read,     on_write, on_shut,
                                            on_want, on_may_send, on_send,  on_end};

static void begin(struct program *p, int ask, uint64_t credit, bool other) {
    struct message_connect m = {.stream = 7, .id = 1, .attempt = 1, .port = 80, .credit = credit};
    *p = (struct program){.relay = {.host = &host, .ctx = p}, .ask = ask, .room = 64, .says = ""};
    agent_port_begin(&p->relay, &m, other, 1000);
}

static void take(struct program *p, const char *text, bool eof) {
    agent_port_take(&p->relay,
                    &(struct message_stream){.data = {.data = text, .len = strlen(text)}, .eof = eof});
}

static void test_bytes_both_ways(void **state) {
    struct program p;
    begin(&p, 0, 5, false);
    take(&p, "before ", false);  // it is not connected yet
    agent_port_answered(&p.relay, 0);
    assert_true(p.wants_write && !p.wants_read);
    p.room = 3;
    agent_port_ready(&p.relay, 0, false, true);
    assert_memory_equal(p.in, "bef", 3);
    assert_int_equal(p.credited, 3);  // what the program has taken, no more
    assert_true(p.wants_write && p.wants_read);
    p.room = 60;
    p.says = "hello, world";
    agent_port_ready(&p.relay, 0, true, true);
    assert_int_equal(p.in_len, 7);
    assert_int_equal(p.credited, 7);
    assert_memory_equal(p.out, "hello", 5);  // as far as there is credit
    assert_int_equal(p.out_len, 5);
    assert_true(!p.wants_read && !p.wants_write);
    agent_port_credit(&p.relay, 100);
    assert_true(p.wants_read);
    p.stuck = true;  // the connection to the controller takes no more
    agent_port_ready(&p.relay, 0, true, false);
    assert_int_equal(p.out_len, 5);
    p.stuck = false;
    agent_port_ready(&p.relay, 0, true, false);
    assert_memory_equal(p.out, "hello, world", 12);
    agent_port_done(&p.relay);
}

static void test_ends(void **state) {
    struct program p;
    begin(&p, 0, 100, false);
    agent_port_answered(&p.relay, 0);
    agent_port_ready(&p.relay, 0, false, true);
    p.room = 2;
    take(&p, "last", true);
    assert_true(!p.shut && !p.ended);  // the program has not got all of it
    p.room = 10;
    agent_port_ready(&p.relay, 0, false, true);
    assert_true(p.shut && !p.ended);
    p.says = "bye";
    p.says_no_more = true;
    agent_port_ready(&p.relay, 0, true, false);
    assert_true(!p.eof && !p.ended);
    agent_port_ready(&p.relay, 0, true, false);
    assert_true(p.eof && p.ended);
    assert_string_equal(p.error, "");
    assert_memory_equal(p.out, "bye", 3);
    agent_port_done(&p.relay);
}

static void test_refusals(void **state) {
    struct program p;
    begin(&p, 0, 100, true);  // the attempt of these numbers is another one
    assert_true(p.ended && !p.asks);
    assert_string_equal(p.error, "the job does not run on this node");
    agent_port_done(&p.relay);

    begin(&p, -ENOENT, 100, false);  // its shepherd does not listen yet
    assert_false(p.ended);
    agent_port_pump(&p.relay, 1050);
    assert_int_equal(p.asks, 1);
    agent_port_pump(&p.relay, 1100);
    assert_int_equal(p.asks, 2);
    agent_port_pump(&p.relay, 4100);
    assert_true(p.ended);
    agent_port_done(&p.relay);

    begin(&p, 0, 100, false);
    agent_port_answered(&p.relay, ECONNREFUSED);
    assert_string_equal(p.error, "nothing listens on port 80 of the job");
    agent_port_done(&p.relay);

    begin(&p, 0, 100, false);
    agent_port_answered(&p.relay, 0);
    agent_port_pump(&p.relay, 11001);
    assert_string_equal(p.error, "the program on port 80 does not accept connections");
    agent_port_done(&p.relay);

    begin(&p, 0, 100, false);
    static const char much[PORT_RELAY_UNSENT_MAX + 1];
    agent_port_take(&p.relay, &(struct message_stream){.data = {.data = much, .len = sizeof much}});
    assert_true(p.ended);
    agent_port_done(&p.relay);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_both_ways),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
