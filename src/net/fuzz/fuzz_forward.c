// A proxy's heads: whatever was parsed, what is written is one head that our own parser reads in the same way, with the
// same framing, and without what must not pass. The first byte chooses the kind.
#include <string.h>
#include <strings.h>

#include "driver.h"
#include "net/http_forward.h"

const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_SEED("\x02GET /a?b=c HTTP/1.1\r\nHost: x\r\nConnection: close, X\r\nX: 1\r\nCookie: acequia_app=1; "
              "b=2\r\n\r\n"),
    FUZZ_SEED("\x02POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nX-Forwarded-For: y\r\n\r\n"),
    FUZZ_SEED("\x02GET /w HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"),
    FUZZ_SEED("\x01HTTP/1.1 200 OK\r\nSet-Cookie: a=b; Domain=x; Path=/\r\nContent-Length: 2\r\n\r\n"),
    FUZZ_SEED(
        "\x01HTTP/1.1 302 Found\r\nLocation: http://localhost:80/x\r\nSet-Cookie: acequia_app=1\r\n\r\n"),
    FUZZ_SEED("\x03HTTP/1.0 200 OK\r\nTransfer-Encoding: identity\r\nConnection: Set-Cookie\r\n\r\n"),
    {0},
};

static const struct http_forward forward = {
    .host = "h:1", .scheme = "http", .client = "c", .user = "u", .port = 80, .own_cookie = "acequia_"};

// Parses a head; false: it is none.
static bool parse(struct http_parser *p, struct http_message *m, enum http_kind kind, const void *data,
                  size_t size) {
    http_message_init(m);
    http_parser_begin(p, kind, m, 0, INT64_MAX);
    return http_parser_feed(p, data, size) > 0 &&
           (p->state == HTTP_STATE_BODY || p->state == HTTP_STATE_DONE);
}

static unsigned count(const struct http_message *m, const char *name) {
    unsigned n = 0;
    for (unsigned i = 0; i < m->header_count; i++)
        n += strcasecmp(m->headers[i].name, name) == 0;
    return n;
}

static void check(const struct http_message *in, enum http_kind kind, const struct buf *out) {
    struct http_message again;
    struct http_parser p;
    bool full = in->header_count + 8 > HTTP_HEADERS_MAX || in->head.len > HTTP_HEAD_MAX / 2;
    if (full)
        return;  // what is added may be too much
    FUZZ_CHECK(parse(&p, &again, kind, out->data, out->len));
    FUZZ_CHECK(again.head.len == out->len);  // one head, and nothing behind it
    for (unsigned i = 0; i < again.header_count; i++)
        if (strcasecmp(again.headers[i].name, kind == HTTP_REQUEST ? "Cookie" : "Set-Cookie") == 0)
            FUZZ_CHECK(strncasecmp(again.headers[i].value, "acequia_", 8) != 0);
    if (kind == HTTP_REQUEST) {
        FUZZ_CHECK(again.chunked == (in->chunked && !http_forward_is_websocket(in)));
        FUZZ_CHECK(http_forward_is_websocket(in) || again.content_length == in->content_length);
        FUZZ_CHECK(count(&again, "X-Forwarded-For") == 1 && count(&again, "X-Acequia-User") == 1);
        FUZZ_CHECK(again.upgrade == http_forward_is_websocket(in));
        FUZZ_CHECK(strcmp(http_message_header(&again, "Host"), "h:1") == 0);
    }
    http_message_done(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char request[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n", old[] = "HEAD / HTTP/1.0\r\n\r\n";
    struct http_message m, q;
    struct http_parser p;
    struct buf out = {0};
    bool keep = true;
    if (size == 0)
        return 0;
    enum http_kind kind = data[0] & 1 ? HTTP_RESPONSE : HTTP_REQUEST;
    if (parse(&p, &m, kind, data + 1, size - 1)) {
        if (kind == HTTP_REQUEST) {
            http_forward_request(&m, &forward, &out);
        } else {
            FUZZ_CHECK(parse(&p, &q, HTTP_REQUEST, data[0] & 2 ? old : request,
                             strlen(data[0] & 2 ? old : request)));
            http_forward_response(&m, &q, &forward, &keep, NULL, &out);
            http_message_done(&q);
        }
        check(&m, kind, &out);
    }
    http_message_done(&m);
    buf_done(&out);
    return 0;
}
