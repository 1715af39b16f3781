// Browsers: the host they name, the page they come from, the headers of answers, and the portal's files.
#include "rig.h"

#include <stdio.h>
#include <unistd.h>
#include <zlib.h>

#include "../browser.h"
#include "../portal.h"
#include "../portal_pack.h"
#include "base/text.h"

static const struct net_peer browser = {
    .kind = NET_PEER_HTTP, .uid = (uid_t)-1, .gid = (gid_t)-1, .address = "[127.0.0.1]:5000"};

static struct fake_request *get(struct rig *r, const char *path, const char *host, const char *more) {
    cleanup_buf struct buf head = {0};
    buf_addf(&head, "GET %s HTTP/1.1\r\nHost: %s\r\n%s", path, host ? host : portal_host(&r->c),
             more ? more : "");
    return rig_bytes(r, &browser, buf_str(&head), NULL);
}

static void squeeze(const char *text, struct buf *out) {
    z_stream z = {.next_in = (unsigned char *)(uintptr_t)text, .avail_in = (uInt)strlen(text)};
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_out = (unsigned char *)buf_reserve(out, 4096);
    z.avail_out = 4096;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    out->len += 4096 - z.avail_out;
    deflateEnd(&z);
}

static void make_pack(struct buf *out, const char *page) {
    cleanup_buf struct buf index = {0}, script = {0};
    squeeze(page, &index);
    squeeze("run()", &script);
    buf_addf(out, "acequia-portal 1 2\n/index.html\ttext/html; charset=utf-8\t%zu\te1\n", index.len);
    buf_addf(out, "/assets/a.js\ttext/javascript\t%zu\te2\n\n", script.len);
    buf_add(out, index.data, index.len);
    buf_add(out, script.data, script.len);
}

static void write_pack(const char *path, const char *page) {
    cleanup_buf struct buf b = {0};
    make_pack(&b, page);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(b.data, 1, b.len, f), b.len);
    fclose(f);
}

static void only_its_own_name(void **state) {
    struct rig r;
    rig_open(&r);
    const char *host = portal_host(&r.c);
    assert_int_equal(strcspn(host, "."), 32);
    assert_non_null(strstr(host, ".localhost:"));
    // A page of another name that was made to point here (DNS rebinding), and names that other servers could have.
    const char *others[] = {"evil.example", "localhost:6821", "127.0.0.1:6821", "0123.localhost:6821", ""};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        fake_expect(get(&r, "/", others[i], NULL), 421, "not the name");
        fake_expect(get(&r, "/v1/status", others[i], "Authorization: Bearer x\r\n"), 421, NULL);
    }
    fake_expect(get(&r, "/v1/status", NULL, NULL), 401, NULL);
    // The same name and port after a restart.
    char before[128];
    snprintf(before, sizeof before, "%s", host);
    portal_close(&r.c);
    rig_settle(&r);
    portal_open(&r.c);
    assert_string_equal(portal_host(&r.c), before);
    rig_close(&r);
}

// Over TLS, too: a browser's request is answered under this server's names only. A program with a token may use any.
static void only_its_own_names_over_tls(void **state) {
    static const struct net_peer peer = {
        .kind = NET_PEER_TLS, .uid = (uid_t)-1, .gid = (gid_t)-1, .address = "[10.0.0.1]:5000"};
    static const struct {
        const char *host;
        bool known;
    } hosts[] = {{"evil.example", false},
                 {"evil.example:6820", false},
                 {"", false},
                 {"10.0.0.7:6820", true},
                 {"localhost:6820", true}};
    const char *lines[] = {"GET / HTTP/1.1", "GET /v1/login HTTP/1.1"};
    struct rig r;
    rig_open(&r);
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++)
        for (size_t k = 0; k < sizeof lines / sizeof *lines; k++) {
            cleanup_buf struct buf head = {0};
            buf_addf(&head, "%s\r\nHost: %s\r\n", lines[k], hosts[i].host);
            struct fake_request *q = rig_bytes(&r, &peer, buf_str(&head), NULL);
            if ((q->status == 421) == hosts[i].known)
                fail_msg("%s as %s: %d", lines[k], hosts[i].host, q->status);
            if (hosts[i].known)
                continue;
            buf_clear(&head);
            buf_addf(&head, "GET /v1/status HTTP/1.1\r\nHost: %s\r\nCookie: __Host-acequia_session=x\r\n",
                     hosts[i].host);
            fake_expect(rig_bytes(&r, &peer, buf_str(&head), NULL), 421, "not the name");
        }
    rig_close(&r);
}

static void files(void **state) {
    struct rig r;
    char path[] = "/tmp/acequia-pack-XXXXXX";
    close(mkstemp(path));
    unlink(path);
    rig_open(&r);
    r.c.config.portal.file = path;
    fake_expect(get(&r, "/", NULL, NULL), 503, "not built");
    write_pack(path, "<p>one</p>");
    struct fake_request *q = get(&r, "/", NULL, NULL);
    fake_expect(q, 200, "<p>one</p>");
    assert_non_null(strstr(buf_str(&q->headers), "Cache-Control: no-cache\r\n"));
    fake_expect(get(&r, "/jobs/12", NULL, NULL), 200, "<p>one</p>");  // a page of the portal's own making
    q = get(&r, "/", NULL, "If-None-Match: \"e1\"\r\n");
    fake_expect(q, 304, NULL);
    q = get(&r, "/assets/a.js", NULL, "Accept-Encoding: br, gzip\r\n");
    fake_expect(q, 200, NULL);
    assert_non_null(strstr(buf_str(&q->headers), "Content-Encoding: gzip\r\n"));
    assert_non_null(strstr(buf_str(&q->headers), "immutable"));
    fake_expect(get(&r, "/assets/b.js", NULL, NULL), 404, "no such file");
    fake_expect(get(&r, "/v1/nothing", NULL, NULL), 401, NULL);  // the API's paths stay the API's
    q = rig_bytes(&r, &browser, "POST / HTTP/1.1\r\n", "{}");
    fake_expect(q, 421, NULL);
    write_pack(path, "<p>the second</p>");
    fake_expect(get(&r, "/", NULL, NULL), 200, "<p>the second</p>");
    r.c.config.portal.enabled = false;
    fake_expect(get(&r, "/", NULL, NULL), 404, "turned off");
    unlink(path);
    rig_close(&r);
}

// Clickjacking, sniffing, other pages' windows: each answer says no.
static void headers(void **state) {
    struct rig r;
    rig_open(&r);
    const char *paths[] = {"/", "/v1/status", "/v1/nothing", "/assets/x"};
    const char *wanted[] = {
        "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; "
        "img-src 'self' data: blob:; font-src 'self'; media-src 'self'; connect-src 'self'; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'self'; "
        "require-trusted-types-for 'script'; trusted-types 'none'\r\n",
        "X-Content-Type-Options: nosniff",
        "X-Frame-Options: DENY",
        "Cross-Origin-Opener-Policy: same-origin",
        "Cross-Origin-Resource-Policy: same-origin",
        "Referrer-Policy: no-referrer"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        struct fake_request *q = get(&r, paths[i], NULL, NULL);
        for (size_t k = 0; k < sizeof wanted / sizeof *wanted; k++)
            assert_non_null(strstr(buf_str(&q->headers), wanted[k]));
    }
    rig_close(&r);
}

static void origins(void **state) {
    static const struct {
        const char *headers;
        bool said, unsaid;
    } cases[] = {
        {"", false, true},
        {"Sec-Fetch-Site: same-origin\r\n", true, true},
        {"Sec-Fetch-Site: none\r\n", true, true},
        {"Sec-Fetch-Site: same-site\r\n", false, false},
        {"Sec-Fetch-Site: cross-site\r\n", false, false},
        {"Origin: http://a.localhost:6821\r\n", true, true},
        {"Origin: https://a.localhost:6821\r\n", false, false},
        {"Origin: http://a.localhost:6822\r\n", false, false},
        {"Origin: http://b.localhost:6821\r\n", false, false},
        {"Origin: null\r\n", false, false},
        {"Origin: http://b.localhost:6821\r\nSec-Fetch-Site: same-origin\r\n", false, false},
        {"Origin: http://a.localhost:6821\r\nSec-Fetch-Site: cross-site\r\n", false, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct http_message m;
        struct http_parser p;
        cleanup_buf struct buf b = {0};
        buf_addf(&b, "POST / HTTP/1.1\r\nHost: a.localhost:6821\r\n%s\r\n", cases[i].headers);
        http_message_init(&m);
        http_parser_begin(&p, HTTP_REQUEST, &m, 0, 0);
        assert_true(http_parser_feed(&p, b.data, b.len) > 0);
        struct net_request req = {.method = m.method, .path = m.path, .http = &m, .peer = &browser};
        if (browser_same_origin(&req, false) != cases[i].said ||
            browser_same_origin(&req, true) != cases[i].unsaid)
            fail_msg("%s", cases[i].headers);
        http_message_done(&m);
    }
}

static void damaged_packs(void **state) {
    cleanup_buf struct buf whole = {0};
    make_pack(&whole, "<p>one</p>");
    // Cut short or with anything changed in its list it is refused, and never read beyond its end.
    for (size_t n = 0; n < whole.len; n++) {
        struct buf part = {0};
        struct portal_pack p;
        buf_add(&part, whole.data, n);
        assert_int_not_equal(portal_pack_parse(&p, &part, NULL), 0);
    }
    const char *bad[] = {"",
                         "acequia-portal 2 0\n\n",
                         "acequia-portal 1 99999\n\n",
                         "acequia-portal 1 x\n\n",
                         "acequia-portal 1 1\nindex\tt\t0\te\n\n",
                         "acequia-portal 1 1\n/a\tt\t1\te\n\n",
                         "acequia-portal 1 0\n\nmore",
                         "acequia-portal 1 1\n/a\tt\t-1\te\n\n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct buf b = {0};
        struct portal_pack p;
        buf_adds(&b, bad[i]);
        assert_int_not_equal(portal_pack_parse(&p, &b, NULL), 0);
    }
    struct buf b = {0};
    struct portal_pack p;
    buf_adds(&b, "acequia-portal 1 1\n/a\tt\t3\te\n\nabc");
    assert_int_equal(portal_pack_parse(&p, &b, NULL), 0);
    cleanup_buf struct buf out = {0};
    assert_int_not_equal(portal_pack_unpack(portal_pack_find(&p, "/a"), &out, NULL), 0);  // no gzip
    portal_pack_done(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(only_its_own_name),
                                       cmocka_unit_test(only_its_own_names_over_tls),
                                       cmocka_unit_test(files),
                                       cmocka_unit_test(headers),
                                       cmocka_unit_test(origins),
                                       cmocka_unit_test(damaged_packs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
