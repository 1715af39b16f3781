// The HTTP parser: what is accepted, what is refused, and that it does not matter how the bytes are
// cut up on their way.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "net/http.h"

// Feeds `text` in pieces of `step`; returns bytes consumed, or -status on refusal.
static long feed(struct http_parser *p, struct http_message *m, enum http_kind kind,
                 const char *text, size_t len, size_t step) {
    http_message_init(m);
    http_parser_begin(p, kind, m, 1024, 1000);
    size_t at = 0;
    while (at < len && p->state != HTTP_STATE_DONE) {
        size_t n = len - at < step ? len - at : step;
        ssize_t used = http_parser_feed(p, text + at, n);
        if (used < 0)
            return -p->fail_status;
        assert_true((size_t)used <= n);
        at += (size_t)used;
    }
    return (long)at;
}

static void parses_a_request(void **state) {
    static const char text[] = "POST /a/b%20c?x=1&y HTTP/1.1\r\nHost: h\r\nContent-Length:  5 \r\n"
                               "X-Empty:\r\nConnection: Keep-Alive, close\r\n\r\nhelloNEXT";
    for (size_t step = 1; step < sizeof text; step++) {
        struct http_parser p;
        struct http_message m;
        assert_int_equal(feed(&p, &m, HTTP_REQUEST, text, sizeof text - 1, step),
                         sizeof text - 1 - 4);
        assert_int_equal(p.state, HTTP_STATE_DONE);
        assert_string_equal(m.method, "POST");
        assert_string_equal(m.path, "/a/b%20c");
        assert_string_equal(m.query, "x=1&y");
        assert_string_equal(http_message_header(&m, "host"), "h");
        assert_string_equal(http_message_header(&m, "X-EMPTY"), "");
        assert_null(http_message_header(&m, "Absent"));
        assert_int_equal(m.content_length, 5);
        assert_false(m.keep_alive);
        assert_string_equal(buf_str(&m.body), "hello");
        http_message_done(&m);
    }
}

// Nothing is collected, and the pieces are the body.
static void a_body_comes_by_pieces(void **state) {
    static const char *const texts[] = {
        "PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n00A\r\n, "
        "world!!!\r\n0\r\n\r\n",
        "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 15\r\n\r\nhello, world!!!"};
    for (size_t t = 0; t < sizeof texts / sizeof *texts; t++)
        for (size_t step = 1, len = strlen(texts[t]); step <= len; step++) {
            struct http_parser p;
            struct http_message m;
            cleanup_buf struct buf body = {0};
            http_message_init(&m);
            http_parser_begin(&p, HTTP_REQUEST, &m, 0, 0);
            p.by_pieces = true;
            for (size_t at = 0; at < len && p.state != HTTP_STATE_DONE;) {
                ssize_t n = http_parser_feed(&p, texts[t] + at, len - at < step ? len - at : step);
                assert_true(n > 0);
                at += (size_t)n;
                if (p.piece_len)
                    buf_add(&body, p.piece, p.piece_len);
                assert_int_equal(m.body.len, 0);
            }
            assert_int_equal(p.state, HTTP_STATE_DONE);
            assert_string_equal(buf_str(&body), "hello, world!!!");
            http_message_done(&m);
        }
}

static void parses_chunks(void **state) {
    static const char text[] = "PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\n\r\n"
                               "5\r\nhello\r\n00A\r\n, world!!!\r\n0\r\nTrailer: x\r\n\r\n!";
    for (size_t step = 1; step < sizeof text; step++) {
        struct http_parser p;
        struct http_message m;
        assert_int_equal(feed(&p, &m, HTTP_REQUEST, text, sizeof text - 1, step), sizeof text - 2);
        assert_int_equal(p.state, HTTP_STATE_DONE);
        assert_string_equal(buf_str(&m.body), "hello, world!!!");
        assert_true(m.keep_alive);
        http_message_done(&m);
    }
}

static void refuses_what_could_be_read_two_ways(void **state) {
#define R "GET / HTTP/1.1\r\nHost: h\r\n"
#define C "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    static const struct {
        int status;
        const char *text;
    } cases[] = {
        {400, "\r\n" R "\r\n"},
        {400, " GET / HTTP/1.1\r\nHost: h\r\n\r\n"},
        {400, "GET  / HTTP/1.1\r\nHost: h\r\n\r\n"},
        {400, "GET / HTTP/1.1 \r\nHost: h\r\n\r\n"},
        {400, "GET / http/1.1\r\nHost: h\r\n\r\n"},
        {400, "GET /\r\n\r\n"},
        {400, "GET http://h/ HTTP/1.1\r\nHost: h\r\n\r\n"},
        {400, "GET /#f HTTP/1.1\r\nHost: h\r\n\r\n"},
        {400, "GET /\x80 HTTP/1.1\r\nHost: h\r\n\r\n"},
        {400, "GET /\x01 HTTP/1.1\r\nHost: h\r\n\r\n"},
        {400, "G(T / HTTP/1.1\r\nHost: h\r\n\r\n"},
        {505, "GET / HTTP/1.2\r\nHost: h\r\n\r\n"},
        {505, "GET / HTTP/2.0\r\nHost: h\r\n\r\n"},
        {400, "GET / HTTP/1.1\nHost: h\n\n"},
        {400, R "A: b\n\r\n"},
        {400, R "A: b\rc\r\n\r\n"},
        {400, R " folded\r\n\r\n"},
        {400, R "A: b\r\n\tfolded\r\n\r\n"},
        {400, R "A : b\r\n\r\n"},
        {400, R ": b\r\n\r\n"},
        {400, R "A\r\n\r\n"},
        {400, R "A: \x01\r\n\r\n"},
        {400, R "A: \x7f\r\n\r\n"},
        {400, R "Host: i\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nA: b\r\n\r\n"},
        {400, R "Content-Length: 1\r\nContent-Length: 1\r\n\r\n"},
        {400, R "Content-Length: 1, 1\r\n\r\n"},
        {400, R "Content-Length: +1\r\n\r\n"},
        {400, R "Content-Length: -1\r\n\r\n"},
        {400, R "Content-Length: 0x1\r\n\r\n"},
        {400, R "Content-Length: 1 1\r\n\r\n"},
        {400, R "Content-Length:\r\n\r\n"},
        {413, R "Content-Length: 99999999999999999999999\r\n\r\n"},
        {413, R "Content-Length: 1001\r\n\r\n"},
        {400, R "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"},
        {501, R "Transfer-Encoding: gzip, chunked\r\n\r\n"},
        {501, R "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"},
        {501, R "Transfer-Encoding: \"chunked\"\r\n\r\n"},
        {501, R "Transfer-Encoding: identity\r\n\r\n"},
        {400, "GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"},
        {400, C "\r\n"},
        {400, C "g\r\n"},
        {400, C "1 \r\nx\r\n"},
        {400, C " 1\r\nx\r\n"},
        {400, C "0x1\r\nx\r\n"},
        {400, C "1;a=b\r\nx\r\n"},
        {400, C "1\nx\r\n"},
        {400, C "1\r\nxy\r\n"},
        {400, C "1\r\nx\n"},
        {400, C "000000001\r\nx\r\n"},
        {400, C "fffffffffffffffff\r\nx\r\n"},
        {413, C "ffffffff\r\n"},
        {413, C "3e9\r\n"},
        {400, C "0\r\nA: b\n\r\n"},
        {400, C "0\r\n\n"},
        {400, C "0\r\nA: b\rX: c\r\n\r\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t len = strlen(cases[i].text);
        for (size_t step = 1; step <= len; step += len - 1 ? len - 1 : 1) {
            struct http_parser p;
            struct http_message m;
            long r = feed(&p, &m, HTTP_REQUEST, cases[i].text, len, step);
            if (r != -cases[i].status)
                fail_msg("case %zu: %ld instead of %d", i, r, -cases[i].status);
            assert_int_equal(p.state, HTTP_STATE_FAILED);
            assert_int_equal(http_parser_feed(&p, "x", 1), -EPROTO);
            http_message_done(&m);
        }
    }
}

static void bounds_the_head(void **state) {
    struct http_parser p;
    struct http_message m;
    cleanup_buf struct buf b = {0};
    buf_adds(&b, R);
    for (int i = 0; i < 63; i++)
        buf_addf(&b, "A%d: b\r\n", i);
    size_t ok = b.len;
    buf_adds(&b, "\r\n");
    assert_int_equal(feed(&p, &m, HTTP_REQUEST, b.data, b.len, 99), (long)b.len);
    http_message_done(&m);
    b.len = ok;
    buf_adds(&b, "One: more\r\n\r\n");
    assert_int_equal(feed(&p, &m, HTTP_REQUEST, b.data, b.len, 99), -431);
    http_message_done(&m);
    buf_clear(&b);
    buf_adds(&b, R "A: ");
    while (b.len < 1025)
        buf_addc(&b, 'x');
    assert_int_equal(feed(&p, &m, HTTP_REQUEST, b.data, b.len, 7), -431);
    http_message_done(&m);
}

static void parses_responses(void **state) {
    struct http_parser p;
    struct http_message m;
    static const char a[] = "HTTP/1.1 200 Fine\r\nContent-Length: 2\r\n\r\nok";
    assert_int_equal(feed(&p, &m, HTTP_RESPONSE, a, sizeof a - 1, 3), sizeof a - 1);
    assert_int_equal(m.status, 200);
    assert_true(m.keep_alive);
    http_message_done(&m);
    static const char b[] = "HTTP/1.0 404\r\n\r\nuntil the end";
    assert_int_equal(feed(&p, &m, HTTP_RESPONSE, b, sizeof b - 1, 3), sizeof b - 1);
    assert_int_equal(p.state, HTTP_STATE_BODY);
    assert_int_equal(http_parser_eof(&p), 0);
    assert_string_equal(buf_str(&m.body), "until the end");
    http_message_done(&m);
    static const char c[] = "HTTP/1.1 204 No Content\r\nContent-Length: 7\r\n\r\nHTTP/1";
    assert_int_equal(feed(&p, &m, HTTP_RESPONSE, c, sizeof c - 1, 99), sizeof c - 1 - 6);
    assert_int_equal(p.state, HTTP_STATE_DONE);
    http_message_done(&m);
    static const char d[] = "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nshort";
    feed(&p, &m, HTTP_RESPONSE, d, sizeof d - 1, 99);
    assert_int_equal(http_parser_eof(&p), -EPROTO);
    http_message_done(&m);
    static const char *bad[] = {"HTTP/1.1 2x0 OK\r\n\r\n", "HTTP/1.1 99 OK\r\n\r\n",
                                "HTTP/1.1  200 OK\r\n\r\n", "HTTP/1.1 2000\r\n\r\n",
                                "ICY 200 OK\r\n\r\n\r\n", "HTTP/1.1 099 x\r\n\r\n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_true(feed(&p, &m, HTTP_RESPONSE, bad[i], strlen(bad[i]), 99) < 0);
        http_message_done(&m);
    }
}

static void writes_what_it_reads(void **state) {
    struct http_parser p;
    struct http_message m;
    cleanup_buf struct buf b = {0};
    http_write_response_head(&b, 200, "text/plain", HTTP_CHUNKED, false, "X-A: b\r\n");
    char block[300];
    memset(block, 'c', sizeof block);
    http_write_chunk(&b, block, sizeof block);
    http_write_chunk(&b, block, 1);
    http_write_last_chunk(&b);
    assert_int_equal(feed(&p, &m, HTTP_RESPONSE, b.data, b.len, 11), (long)b.len);
    assert_int_equal(m.body.len, 301);
    assert_false(m.keep_alive);
    assert_string_equal(http_message_header(&m, "X-A"), "b");
    http_message_done(&m);
    buf_clear(&b);
    http_write_request_head(&b, "GET", "/x?y", "h", NULL, -1, NULL);
    assert_int_equal(feed(&p, &m, HTTP_REQUEST, b.data, b.len, 11), (long)b.len);
    assert_string_equal(m.query, "y");
    http_message_done(&m);
    assert_false(http_header_ok("A", "b\r\nC: d"));
    assert_false(http_header_ok("A b", ""));
    assert_false(http_header_ok("", ""));
    assert_true(http_header_ok("X-Y", "z, w"));
}

static void decodes_queries(void **state) {
    cleanup_buf struct buf b = {0};
    assert_int_equal(http_query_get("a=1&b%20c=%2Fx+y&flag&d=", "b c", &b), 0);
    assert_string_equal(buf_str(&b), "/x y");
    buf_clear(&b);
    assert_int_equal(http_query_get("a=1&flag&d=", "flag", &b), 0);
    assert_int_equal(http_query_get("a=1&flag&d=", "d", &b), 0);
    assert_int_equal(b.len, 0);
    assert_int_equal(http_query_get("a=1", "b", &b), -ENOENT);
    assert_int_equal(http_query_get("", "b", &b), -ENOENT);
    assert_int_equal(http_query_get("a=%", "a", &b), -EINVAL);
    assert_int_equal(http_query_get("a=%1", "a", &b), -EINVAL);
    assert_int_equal(http_query_get("a=%zz", "a", &b), -EINVAL);
    assert_int_equal(http_query_get("a=x%00", "a", &b), -EINVAL);
    assert_int_equal(b.len, 0);
    http_percent_encode(&b, "a/b c~\xff");
    assert_string_equal(b.data, "a%2Fb%20c~%FF");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parses_a_request),       cmocka_unit_test(parses_chunks),
        cmocka_unit_test(a_body_comes_by_pieces), cmocka_unit_test(refuses_what_could_be_read_two_ways),
        cmocka_unit_test(bounds_the_head),        cmocka_unit_test(parses_responses),
        cmocka_unit_test(writes_what_it_reads),   cmocka_unit_test(decodes_queries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
