// The HTTP parser, both kinds: whatever the bytes, it stays within its limits, and the result does
// not depend on how they are cut up. The first byte chooses kind and cut.
#include <string.h>

#include "driver.h"
#include "net/http.h"

enum { HEAD_MAX = 180, BODY_MAX = 20 };  // small, so that inputs pass them

const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_SEED("\x02GET /a?b=c HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
    FUZZ_SEED("\x06POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"),
    FUZZ_SEED("\x0aPUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
              "5\r\nhello\r\n1\r\n!\r\n0\r\nA: b\r\n\r\n"),
    FUZZ_SEED("\x08GET /w HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
              "Expect: 100-continue\r\n\r\n"),
    FUZZ_SEED("\x01HTTP/1.1 200 OK\r\nContent-Type: a/b\r\nContent-Length: 2\r\n\r\nok"),
    FUZZ_SEED("\x0bHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"),
    FUZZ_SEED("\x03HTTP/1.0 404 Not Found\r\n\r\nuntil the end"),
    {0},
};

struct outcome {
    enum http_state state;
    int fail_status;
    size_t used, body_len, body_sum;
    unsigned headers;
};

static void check_message(const struct http_parser *p, const struct http_message *m) {
    FUZZ_CHECK(m->head.len <= HEAD_MAX && m->body.len <= BODY_MAX + 1);
    if (p->state != HTTP_STATE_BODY && p->state != HTTP_STATE_DONE)
        return;
    FUZZ_CHECK(m->header_count <= HTTP_HEADERS_MAX);
    for (unsigned i = 0; i < m->header_count; i++)
        FUZZ_CHECK(http_header_ok(m->headers[i].name, m->headers[i].value));
    if (p->kind == HTTP_REQUEST) {
        FUZZ_CHECK(m->path[0] == '/' || strcmp(m->path, "*") == 0);
        FUZZ_CHECK(strlen(m->method) > 0 && strlen(m->query) < HEAD_MAX);
        cleanup_buf struct buf value = {0};
        http_query_get(m->query, "b", &value);
        http_percent_decode(m->path, strlen(m->path), false, &value);
    }
    FUZZ_CHECK(!(m->chunked && m->content_length >= 0));
}

static struct outcome run(const uint8_t *data, size_t size, enum http_kind kind, size_t step) {
    struct http_message m;
    struct http_parser p;
    struct outcome o = {0};
    http_message_init(&m);
    http_parser_begin(&p, kind, &m, HEAD_MAX, BODY_MAX);
    while (o.used < size && p.state != HTTP_STATE_DONE) {
        size_t n = size - o.used < step ? size - o.used : step;
        ssize_t r = http_parser_feed(&p, data + o.used, n);
        if (r < 0)
            break;
        FUZZ_CHECK((size_t)r <= n && r > 0);
        o.used += (size_t)r;
        check_message(&p, &m);
    }
    if (p.state == HTTP_STATE_FAILED) {
        FUZZ_CHECK(p.fail_status >= 400 && p.fail_text);
        o.used = 0;  // where exactly it noticed may differ
    } else {
        o.body_len = m.body.len;
        for (size_t i = 0; i < m.body.len; i++)
            o.body_sum += (unsigned char)m.body.data[i] * (i + 1);
        o.headers = p.state == HTTP_STATE_HEAD ? 0 : m.header_count;
        http_parser_eof(&p);
    }
    o.state = p.state;
    o.fail_status = p.fail_status;
    http_message_done(&m);
    return o;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0)
        return 0;
    enum http_kind kind = data[0] & 1 ? HTTP_RESPONSE : HTTP_REQUEST;
    size_t step = 1 + (data[0] >> 1);
    struct outcome whole = run(data + 1, size - 1, kind, SIZE_MAX);
    struct outcome parts = run(data + 1, size - 1, kind, step);
    // When two limits are passed in one piece, either may be named; everything else must agree.
    FUZZ_CHECK(whole.state == parts.state && whole.used == parts.used && whole.body_len == parts.body_len &&
               whole.body_sum == parts.body_sum && whole.headers == parts.headers);
    return 0;
}
