// Heads that a proxy passes on: what stays, what goes, what is written anew.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "net/http_forward.h"

static const struct http_forward plain = {.host = "a-1.localhost:6821",
                                          .scheme = "http",
                                          .client = "127.0.0.1",
                                          .user = "ana",
                                          .port = 8888,
                                          .own_cookie = "acequia_"};

static void parse(struct http_message *m, enum http_kind kind, const char *text) {
    struct http_parser p;
    http_message_init(m);
    http_parser_begin(&p, kind, m, 0, 0);
    assert_true(http_parser_feed(&p, text, strlen(text)) > 0);
    assert_true(p.state == HTTP_STATE_BODY || p.state == HTTP_STATE_DONE);
}

static void request_becomes(const char *text, const struct http_forward *f, const char *expected) {
    struct http_message m;
    struct buf out = {0};
    parse(&m, HTTP_REQUEST, text);
    http_forward_request(&m, f, &out);
    assert_string_equal(buf_str(&out), expected);
    buf_done(&out);
    http_message_done(&m);
}

#define TOLD                                                                                                 \
    "X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: a-1.localhost:6821\r\n"      \
    "X-Acequia-User: ana\r\n"
#define HOST "Host: a-1.localhost:6821\r\n"

static void requests(void **state) {
    request_becomes("GET /a?b HTTP/1.1\r\nhost: A-1.LOCALHOST:6821\r\nAccept: x\r\n\r\n", &plain,
                    "GET /a?b HTTP/1.1\r\n" HOST "Accept: x\r\n" TOLD "\r\n");
    // What concerns one connection, what Connection names, what a client would say about itself.
    request_becomes(
        "GET / HTTP/1.1\r\n" HOST "Connection: close, X-Own\r\nX-Own: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\n"
        "Proxy-Authorization: x\r\nx-forwarded-for: 6.6.6.6\r\nX-FORWARDED-PREFIX: /x\r\nForwarded: for=x\r\n"
        "X-Real-Ip: 6.6.6.6\r\nx-acequia-user: root\r\nExpect: 100-continue\r\n\r\n",
        &plain, "GET / HTTP/1.1\r\n" HOST TOLD "\r\n");
    // The same in the writing that programs take for the same.
    request_becomes("GET / HTTP/1.1\r\n" HOST "X_Acequia_User: root\r\nx-acequia_user: root\r\n"
                    "X_FORWARDED_FOR: 6.6.6.6\r\nX_Real-IP: 6.6.6.6\r\nContent_Length: "
                    "5\r\nx_own_name_that_is_very_long_indeed: 1\r\n\r\n",
                    &plain,
                    "GET / HTTP/1.1\r\n" HOST "x_own_name_that_is_very_long_indeed: 1\r\n" TOLD "\r\n");
    // Connection cannot take away what is told here.
    request_becomes("GET / HTTP/1.1\r\n" HOST
                    "Connection: Host, Cookie, X-Acequia-User\r\nCookie: a=1\r\n\r\n",
                    &plain, "GET / HTTP/1.1\r\n" HOST "Cookie: a=1\r\n" TOLD "\r\n");
    request_becomes("POST / HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n", &plain,
                    "POST / HTTP/1.1\r\n" HOST TOLD "Content-Length: 0\r\n\r\n");
    request_becomes("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n", &plain,
                    "POST / HTTP/1.1\r\n" HOST TOLD "Transfer-Encoding: chunked\r\n\r\n");
    // Cookies of ours, in every writing that a browser or a page may produce.
    request_becomes("GET / HTTP/1.1\r\n" HOST
                    "Cookie: acequia_app=x; a=1;ACEQUIA_session=y ; __Host-acequia_app=z; b=2; "
                    "=acequia_app=q; acequia_\r\nCookie: acequia_app_state=1\r\n\r\n",
                    &plain, "GET / HTTP/1.1\r\n" HOST "Cookie: a=1; b=2\r\n" TOLD "\r\n");
    struct http_forward token = plain;
    token.own_authorization = true;
    token.client = token.user = NULL;
    request_becomes("GET / HTTP/1.1\r\n" HOST "authorization: Bearer x\r\n\r\n", &token,
                    "GET / HTTP/1.1\r\n" HOST
                    "X-Forwarded-Proto: http\r\nX-Forwarded-Host: a-1.localhost:6821\r\n\r\n");
    // Of upgrades only WebSocket.
    request_becomes("GET / HTTP/1.1\r\n" HOST
                    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: k\r\n\r\n",
                    &plain,
                    "GET / HTTP/1.1\r\n" HOST "Sec-WebSocket-Key: k\r\n" TOLD
                    "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    request_becomes("GET / HTTP/1.1\r\n" HOST
                    "Connection: Upgrade\r\nUpgrade: h2c\r\nSec-WebSocket-Key: k\r\n\r\n",
                    &plain, "GET / HTTP/1.1\r\n" HOST TOLD "\r\n");
    request_becomes("POST / HTTP/1.1\r\n" HOST
                    "Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 2\r\n\r\n",
                    &plain, "POST / HTTP/1.1\r\n" HOST TOLD "Content-Length: 2\r\n\r\n");
}

static void response_becomes(const char *request, const char *text, bool keep, enum http_forward_body body,
                             const char *expected) {
    struct http_message q, m;
    struct buf out = {0};
    bool keep_alive = true;
    parse(&q, HTTP_REQUEST, request);
    parse(&m, HTTP_RESPONSE, text);
    assert_int_equal(http_forward_response(&m, &q, &plain, &keep_alive, "Extra: 1\r\n", &out), body);
    assert_int_equal(keep_alive, keep);
    assert_string_equal(buf_str(&out), expected);
    buf_done(&out);
    http_message_done(&q);
    http_message_done(&m);
}

#define GET "GET / HTTP/1.1\r\n" HOST "\r\n"
#define HEAD "HEAD / HTTP/1.1\r\n" HOST "\r\n"
#define OLD "GET / HTTP/1.0\r\n\r\n"
#define KEPT "Connection: keep-alive\r\nExtra: 1\r\n\r\n"

static void responses(void **state) {
    response_becomes(GET,
                     "HTTP/1.1 200 Fine\r\nContent-Length: 2\r\nConnection: close, A\r\nA: 1\r\nB: 2\r\n\r\n",
                     true, HTTP_FORWARD_LENGTH, "HTTP/1.1 200 OK\r\nB: 2\r\nContent-Length: 2\r\n" KEPT);
    response_becomes(GET, "HTTP/1.0 200 OK\r\n\r\n", true, HTTP_FORWARD_CHUNKED,
                     "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n" KEPT);
    response_becomes(OLD, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", false,
                     HTTP_FORWARD_UNTIL_CLOSE, "HTTP/1.1 200 OK\r\nConnection: close\r\nExtra: 1\r\n\r\n");
    response_becomes(HEAD, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", true, HTTP_FORWARD_NONE,
                     "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n" KEPT);
    response_becomes(GET, "HTTP/1.1 204 No Content\r\nContent-Length: 9\r\n\r\n", true, HTTP_FORWARD_NONE,
                     "HTTP/1.1 204 No Content\r\n" KEPT);
    // What reaches beyond the program's own host.
    response_becomes(GET,
                     "HTTP/1.1 304 x\r\nAlt-Svc: x\r\nClear-Site-Data: x\r\nStrict-Transport-Security: x\r\n"
                     "Service-Worker-Allowed: /\r\n\r\n",
                     true, HTTP_FORWARD_NONE, "HTTP/1.1 304 Not Modified\r\n" KEPT);
    response_becomes(
        GET,
        "HTTP/1.1 204 x\r\nSet-Cookie: a=b; Path=/; DOMAIN = .localhost ;Secure\r\nSet-Cookie: domain=x; "
        "Domain\r\n"
        "Set-Cookie: Acequia_app=forged\r\nSet-Cookie: __host-acequia_session=f\r\nSet-Cookie: ;\r\n\r\n",
        true, HTTP_FORWARD_NONE,
        "HTTP/1.1 204 No Content\r\nSet-Cookie: a=b; Path=/; Secure\r\nSet-Cookie: domain=x\r\n" KEPT);
}

static void location_becomes(const char *value, const char *expected) {
    char text[256], out[256];
    snprintf(text, sizeof text, "HTTP/1.1 302 Found\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n", value);
    snprintf(out, sizeof out, "HTTP/1.1 302 Found\r\nLocation: %s\r\nContent-Length: 0\r\n" KEPT, expected);
    response_becomes(GET, text, true, HTTP_FORWARD_LENGTH, out);
}

static void redirects(void **state) {
    static const char own[] = "http://a-1.localhost:6821/x?y#z";
    location_becomes("http://127.0.0.1:8888/x?y#z", own);
    location_becomes("https://localhost:8888/x?y#z", own);
    location_becomes("HTTP://[::1]:8888/x?y#z", own);
    location_becomes("http://0.0.0.0:8888/x?y#z", own);
    location_becomes("https://A-1.localhost:6821/x?y#z", own);
    location_becomes("//127.0.0.1:8888/x?y#z", own);
    location_becomes("http://localhost:8888", "http://a-1.localhost:6821/");
    location_becomes("http://localhost:8888?q", "http://a-1.localhost:6821/?q");
    // Others' are theirs.
    static const char *const others[] = {"/x",
                                         "//evil/x",
                                         "http://localhost:8889/x",
                                         "http://localhost:88888/x",
                                         "http://localhost/x",
                                         "http://localhost:8888@evil/x",
                                         "http://localhost:8888.evil/x",
                                         "http://evil/localhost:8888/",
                                         "javascript:x"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        location_becomes(others[i], others[i]);
}

static void cookies(void **state) {
    struct http_message m;
    size_t len;
    parse(&m, HTTP_REQUEST,
          "GET / HTTP/1.1\r\n" HOST
          "Cookie: ab=0; a=1 ; b=; c\r\nCookie: twice=1\r\nCookie: twice=2\r\n\r\n");
    const char *v = http_cookie_get(&m, "a", &len);
    assert_true(v && len == 1 && *v == '1');
    assert_true(http_cookie_get(&m, "b", &len) && len == 0);
    assert_null(http_cookie_get(&m, "c", &len));
    assert_null(http_cookie_get(&m, "twice", &len));
    http_message_done(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests),
        cmocka_unit_test(responses),
        cmocka_unit_test(redirects),
        cmocka_unit_test(cookies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
