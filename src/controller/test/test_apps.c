// Programs of jobs in browsers: who gets to one and by which way, what the program and the client see of each other,
// hostile requests and answers, and connections that end at every moment.
#include "rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../app.h"
#include "../portal.h"
#include "base/cleanup.h"
#include "base/text.h"

#define SERVICE                                                                                              \
    "{\"spec\":{\"name\":\"t\",\"workdir\":\"/\",\"argv\":[\"true\"],\"ports\":[\"8000\",\"tcp:9000\"]}}"
#define HTML "Accept: text/html\r\n"

static const struct net_peer browser = {
    .kind = NET_PEER_HTTP, .uid = (uid_t)-1, .gid = (gid_t)-1, .address = "[127.0.0.1]:5000"};

struct lab {
    struct rig r;
    struct arena a;
    struct net_ws *agent;
    uint64_t job;
    char keys[40], host[APP_HOST_MAX], cookie[256];
    uint64_t stream;  // of the connection to the program that was opened last
    uint64_t credit;  // that the agent has for it
};

static void open_lab(struct lab *l) {
    *l = (struct lab){0};
    snprintf(l->keys, sizeof l->keys, "/tmp/acequia-apps-XXXXXX");
    assert_non_null(mkdtemp(l->keys));
    rig_open(&l->r);
    l->r.c.paths.keys = l->keys;
    l->agent = rig_agent(&l->r, "n1");
    struct fake_request *q = rig_call(&l->r, &fake_alice, "POST", "/v1/jobs", SERVICE);
    fake_expect(q, 201, NULL);
    const struct message_launch *m = fake_next_message(l->agent, MESSAGE_LAUNCH, &l->a);
    assert_non_null(m);
    l->job = m->id;
    rig_message(&l->r, l->agent, MESSAGE_STARTED,
                &(struct message_started){.id = m->id, .attempt = 1, .at_ms = controller_now_ms()});
}

static void close_lab(struct lab *l) {
    rig_close(&l->r);
    arena_done(&l->a);
    rig_remove_folder(l->keys);
}

// The part of a text between two others.
static void between(const char *text, const char *from, const char *to, char *out, size_t size) {
    const char *at = strstr(text, from);
    if (!at)
        fail_msg("no %s in %s", from, text);
    at += strlen(from);
    const char *end = strstr(at, to);
    snprintf(out, size, "%.*s", end ? (int)(end - at) : (int)strlen(at), at);
}

static struct net_raw *send_bytes(struct lab *l, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static struct net_raw *send_bytes(struct lab *l, const char *format, ...) {
    cleanup_buf struct buf b = {0};
    va_list args;
    va_start(args, format);
    buf_vaddf(&b, format, args);
    va_end(args);
    struct net_raw *raw = rig_takeover(&l->r, &browser, b.data, b.len);
    if (!raw)
        fail_msg("it was not taken over: %s", b.data);
    return raw;
}

static void answered(const struct net_raw *raw, const char *text) {
    if (!strstr(buf_str(&raw->out), text))
        fail_msg("no %s in: %s", text, buf_str(&raw->out));
}

static void not_answered(const struct net_raw *raw, const char *text) {
    if (strstr(buf_str(&raw->out), text))
        fail_msg("%s in: %s", text, buf_str(&raw->out));
}

static const char *link_to(struct lab *l, const struct net_peer *who) {
    char target[64];
    snprintf(target, sizeof target, "/v1/jobs/%llu/open", (unsigned long long)l->job);
    struct fake_request *q = rig_call(&l->r, who, "POST", target, NULL);
    fake_expect(q, 200, NULL);
    return json_str(fake_json(q), "link");
}

// Opens it as acequia open does; the cookie is kept.
static void enter(struct lab *l, const struct net_peer *who) {
    const char *link = link_to(l, who);
    char code[256];
    between(link, "http://", "/", l->host, sizeof l->host);
    between(link, "/.acequia/enter?code=", "&", code, sizeof code);
    struct net_raw *raw =
        send_bytes(l, "GET /.acequia/enter?code=%s HTTP/1.1\r\nHost: %s\r\n" HTML "\r\n", code, l->host);
    answered(raw, "HTTP/1.1 303 ");
    answered(raw, "Location: /\r\n");
    between(buf_str(&raw->out), "Set-Cookie: ", ";", l->cookie, sizeof l->cookie);
    fake_raw_leave(&l->r, raw);
    raw = send_bytes(l, "GET /.acequia/enter?code=%s HTTP/1.1\r\nHost: %s\r\n" HTML "\r\n", code, l->host);
    answered(raw, "HTTP/1.1 403 ");  // it works once
    fake_raw_leave(&l->r, raw);
}

// What the program was sent since the last look.
static const char *program_got(struct lab *l) {
    struct buf all = {0};
    while (l->agent->read < l->agent->sent.len) {
        const struct fake_message *f = &l->agent->sent.at[l->agent->read++];
        struct message m;
        if (f->type != WS_BINARY || message_decode(f->data, f->len, &l->a, &m) < 0)
            continue;
        if (m.type == MESSAGE_CONNECT) {
            l->stream = ((const struct message_connect *)m.body)->stream;
            l->credit = ((const struct message_connect *)m.body)->credit;
        }
        if (m.type == MESSAGE_STREAM_CREDIT)
            l->credit += ((const struct message_stream *)m.body)->credit;
        if (m.type == MESSAGE_STREAM_DATA) {
            const struct message_stream *s = m.body;
            buf_add(&all, s->data.data, s->data.len);
        }
    }
    const char *text = arena_strdup(&l->a, buf_str(&all));
    buf_done(&all);
    return text;
}

static void program_says(struct lab *l, const char *text) {
    rig_message(&l->r, l->agent, MESSAGE_STREAM_DATA,
                &(struct message_stream){.stream = l->stream, .fd = 1, .data = {text, strlen(text)}});
}

static void program_ends(struct lab *l, const char *error) {
    rig_message(&l->r, l->agent, MESSAGE_STREAM_END,
                &(struct message_stream){.stream = l->stream, .error = error});
}

static struct net_raw *get(struct lab *l, const char *path, const char *more) {
    return send_bytes(l, "GET %s HTTP/1.1\r\nHost: %s\r\nCookie: %s; own=1\r\n%s\r\n", path, l->host,
                      l->cookie, more);
}

static void requests_and_answers_pass(void **state) {
    struct lab l;
    open_lab(&l);
    enter(&l, &fake_alice);
    struct net_raw *raw =
        get(&l, "/a?b=c", "X-Forwarded-For: 6.6.6.6\r\nX-Acequia-User: root\r\nAuthorization: token x\r\n");
    const char *got = program_got(&l);
    assert_true(str_has_prefix(got, "GET /a?b=c HTTP/1.1\r\n"));
    assert_non_null(strstr(got, "Cookie: own=1\r\n"));
    assert_non_null(strstr(got, "X-Forwarded-For: 127.0.0.1\r\n"));
    assert_non_null(strstr(got, "X-Acequia-User: alice\r\n"));
    assert_non_null(strstr(got, "Authorization: token x\r\n"));
    assert_null(strstr(got, "acequia_app"));
    assert_null(strstr(got, "6.6.6.6"));
    assert_null(strstr(got, "root"));
    program_says(&l, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: X-Hop\r\nX-Hop: 1\r\nSet-Cookie: "
                     "a=b; domain=localhost\r\n\r\nhel");
    answered(raw, "HTTP/1.1 200 OK\r\n");
    answered(raw, "Set-Cookie: a=b\r\n");
    not_answered(raw, "X-Hop");
    program_says(&l, "lo");
    answered(raw, "\r\n\r\nhello");
    // The next request goes over the same connection to the program.
    uint64_t stream = l.stream;
    buf_clear(&raw->out);
    cleanup_buf struct buf b = {0};
    buf_addf(&b,
             "POST /p HTTP/1.1\r\nHost: %s\r\nCookie: %s\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n",
             l.host, l.cookie);
    fake_raw_data(&l.r, raw, b.data, b.len);
    got = program_got(&l);
    assert_int_equal(l.stream, stream);
    assert_non_null(strstr(got, "Transfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n"));
    fake_raw_data(&l.r, raw, "0\r\n\r\n", 5);
    assert_string_equal(program_got(&l), "0\r\n\r\n");
    program_says(&l, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nTransfer-Encoding: "
                     "chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
    answered(raw, "HTTP/1.1 201 Created\r\n");
    answered(raw, "3\r\nabc\r\n0\r\n\r\n");
    not_answered(raw, "100 Continue");
    assert_string_equal(raw->account, "user alice");
    close_lab(&l);
}

// Who has no cookie goes by the portal, with what proves that it is the same browser that comes back.
static void strangers_go_by_the_portal(void **state) {
    struct lab l;
    char where[512], state_cookie[128], code[256];
    open_lab(&l);
    enter(&l, &fake_alice);
    struct net_raw *raw = send_bytes(&l, "GET /x?y=1 HTTP/1.1\r\nHost: %s\r\n" HTML "\r\n", l.host);
    answered(raw, "HTTP/1.1 303 ");
    between(buf_str(&raw->out), "Location: ", "\r\n", where, sizeof where);
    between(buf_str(&raw->out), "Set-Cookie: ", ";", state_cookie, sizeof state_cookie);
    assert_non_null(strstr(where, "/v1/apps/authorize?app="));
    assert_non_null(strstr(where, "&to=%2Fx%3Fy%3D1"));
    assert_non_null(strstr(where, portal_host(&l.r.c)));
    raw = send_bytes(&l, "GET /x HTTP/1.1\r\nHost: %s\r\n\r\n", l.host);  // no browser
    answered(raw, "HTTP/1.1 401 ");
    raw = send_bytes(&l, "POST /x HTTP/1.1\r\nHost: %s\r\n" HTML "Content-Length: 9\r\n\r\n", l.host);
    answered(raw, "HTTP/1.1 401 ");
    answered(raw, "Connection: close\r\n");
    assert_true(raw->ended);
    // At the portal: without a login to its page, with one back.
    cleanup_buf struct buf head = {0};
    const char *target = strstr(where, "/v1/");
    buf_addf(&head, "GET %s HTTP/1.1\r\nHost: %s\r\n", target, portal_host(&l.r.c));
    struct fake_request *q = rig_bytes(&l.r, &browser, buf_str(&head), NULL);
    fake_expect(q, 303, NULL);
    assert_non_null(strstr(buf_str(&q->headers), "Location: /open?app="));
    struct fake_request *link = rig_call(&l.r, &fake_alice, "POST", "/v1/portal", NULL);
    between(json_str(fake_json(link), "url"), "#code=", "\n", code, sizeof code);
    cleanup_buf struct buf login = {0}, body = {0};
    buf_addf(&login, "POST /v1/login/code HTTP/1.1\r\nHost: %s\r\nSec-Fetch-Site: same-origin\r\n",
             portal_host(&l.r.c));
    buf_addf(&body, "{\"code\":\"%s\"}", code);
    q = rig_bytes(&l.r, &browser, buf_str(&login), buf_str(&body));
    fake_expect(q, 200, NULL);
    char session[160];
    between(buf_str(&q->headers), "Set-Cookie: ", ";", session, sizeof session);
    buf_addf(&head, "Cookie: %s\r\n", session);
    q = rig_bytes(&l.r, &browser, buf_str(&head), NULL);
    fake_expect(q, 303, NULL);
    between(buf_str(&q->headers), l.host, "\r\n", where, sizeof where);
    // In another browser the code is worth nothing, and stays what it is.
    raw = send_bytes(&l, "GET %s HTTP/1.1\r\nHost: %s\r\n" HTML "\r\n", where, l.host);
    answered(raw, "HTTP/1.1 403 ");
    raw = send_bytes(&l, "GET %s HTTP/1.1\r\nHost: %s\r\n" HTML "Cookie: %s\r\n\r\n", where, l.host,
                     state_cookie);
    answered(raw, "Location: /x?y=1\r\n");
    between(buf_str(&raw->out), "Set-Cookie: ", ";", l.cookie, sizeof l.cookie);
    get(&l, "/x", "");
    assert_true(str_has_prefix(program_got(&l), "GET /x "));
    // The cookie is worth nothing without the login it stands for.
    cleanup_buf struct buf out = {0};
    buf_addf(&out, "POST /v1/logout HTTP/1.1\r\nHost: %s\r\nSec-Fetch-Site: same-origin\r\nCookie: %s\r\n",
             portal_host(&l.r.c), session);
    fake_expect(rig_bytes(&l.r, &browser, buf_str(&out), NULL), 200, NULL);
    answered(get(&l, "/x", ""), "HTTP/1.1 401 ");
    close_lab(&l);
}

static void others_do_not_get_in(void **state) {
    struct lab l;
    char target[64];
    open_lab(&l);
    enter(&l, &fake_alice);
    snprintf(target, sizeof target, "/v1/jobs/%llu/open", (unsigned long long)l.job);
    fake_expect(rig_call(&l.r, &fake_bob, "POST", target, NULL), 403, "another user's");
    // A port that is not HTTP, or none of the job's.
    snprintf(target, sizeof target, "/v1/jobs/%llu/open?port=9000", (unsigned long long)l.job);
    fake_expect(rig_call(&l.r, &fake_alice, "POST", target, NULL), 400, "has no HTTP port 9000");
    // A cookie for another program, or one that was changed.
    char forged[256];
    snprintf(forged, sizeof forged, "%s", l.cookie);
    forged[strlen(forged) - 1] ^= 1;
    struct net_raw *raw = send_bytes(&l, "GET / HTTP/1.1\r\nHost: %s\r\nCookie: %s\r\n\r\n", l.host, forged);
    answered(raw, "HTTP/1.1 401 ");
    raw = send_bytes(&l, "GET / HTTP/1.1\r\nHost: %s\r\nCookie: %s; %s\r\n\r\n", l.host, l.cookie, forged);
    answered(raw, "HTTP/1.1 401 ");  // two of a name: one is somebody else's
    // A host name that was not made here.
    char host[APP_HOST_MAX];
    snprintf(host, sizeof host, "%s", l.host);
    host[0]++;
    raw = send_bytes(&l, "GET / HTTP/1.1\r\nHost: %s\r\nCookie: %s\r\n\r\n", host, l.cookie);
    answered(raw, "HTTP/1.1 404 ");
    // Pages of other hosts may link to it, and nothing else.
    static const char *const foreign[] = {
        "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: script\r\n",
        "Sec-Fetch-Site: same-site\r\nSec-Fetch-Mode: cors\r\nOrigin: http://x.localhost\r\n",
        "Sec-Fetch-Site: same-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: iframe\r\n",
        "Origin: null\r\n",
        "Origin: http://x.localhost:6821\r\nConnection: Upgrade\r\nUpgrade: "
        "websocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"};
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        answered(get(&l, "/", foreign[i]), "HTTP/1.1 403 ");
    assert_string_equal(program_got(&l), "");
    get(&l, "/", "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n");
    assert_true(str_has_prefix(program_got(&l), "GET / "));
    // A path that browsers read as another host.
    assert_true(app_path_ok("/a?b#c") && app_path_ok("/"));
    static const char *const paths[] = {"//evil", "/\\evil", "evil", "", "/a\rb", "/a b", "/\t/evil"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        assert_false(app_path_ok(paths[i]));
    close_lab(&l);
}

static void by_token_of(struct lab *l, const struct net_peer *who, const char *scopes, char *out,
                        size_t size) {
    cleanup_buf struct buf text = {0};
    buf_addf(&text, "{\"kind\":\"user\"%s}", scopes);
    struct fake_request *q = rig_call(&l->r, who, "POST", "/v1/tokens", buf_str(&text));
    fake_expect(q, 201, NULL);
    snprintf(out, size, "%s", json_str(fake_json(q), "token"));
}

static void by_token(struct lab *l, const char *scopes, char *out, size_t size) {
    by_token_of(l, &fake_alice, scopes, out, size);
}

// A colleague with whom it is shared gets in, until the share ends.
static void shares_let_others_in(void **state) {
    struct lab l;
    char target[64], token[300];
    open_lab(&l);
    rig_authority(&l.r);
    enter(&l, &fake_alice);
    get(&l, "/own", "");
    program_got(&l);
    program_says(&l, "HTTP/1.1 204 No Content\r\n\r\n");
    uint64_t kept = l.stream;
    snprintf(target, sizeof target, "/v1/jobs/%llu/shares", (unsigned long long)l.job);
    fake_expect(rig_call(&l.r, &fake_bob, "POST", target, "{\"user\":\"bob\"}"), 403, NULL);
    fake_expect(rig_call(&l.r, &fake_alice, "POST", target, "{\"user\":\"bop\"}"), 404,
                "there is no user bop");
    fake_expect(rig_call(&l.r, &fake_alice, "POST", target, "{\"user\":\"b\\u202eob\"}"), 400, "user");
    fake_expect(rig_call(&l.r, &fake_alice, "POST", target, "{\"user\":\"bob\",\"port\":9000}"), 400,
                "no HTTP port");
    fake_expect(rig_call(&l.r, &fake_alice, "POST", target, "{\"user\":\"bob\",\"for_s\":9999999}"), 400,
                "30 days");
    fake_expect(rig_call(&l.r, &fake_alice, "POST", target, "{\"user\":\"bob\",\"for_s\":60}"), 201, l.host);
    fake_expect(rig_call(&l.r, &fake_alice, "GET", target, NULL), 200, "\"user\":\"bob\"");
    enter(&l, &fake_bob);
    struct net_raw *raw = get(&l, "/shared", "");
    const char *got = program_got(&l);
    assert_true(str_has_prefix(got, "GET /shared "));
    assert_non_null(strstr(got, "X-Acequia-User: bob\r\n"));
    assert_int_not_equal(l.stream, kept);  // a connection that served one user does not serve another
    by_token_of(&l, &fake_bob, "", token, sizeof token);
    struct net_raw *other =
        send_bytes(&l, "GET /t HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n", l.host, token);
    assert_true(str_has_prefix(program_got(&l), "GET /t "));
    apps_tick(&l.r.c);
    assert_false(raw->aborted || other->aborted);
    snprintf(target, sizeof target, "/v1/jobs/%llu/shares?user=bob", (unsigned long long)l.job);
    fake_expect(rig_call(&l.r, &fake_alice, "DELETE", target, NULL), 200, NULL);
    fake_expect(rig_call(&l.r, &fake_alice, "DELETE", target, NULL), 404, "not shared");
    answered(get(&l, "/shared", ""), "HTTP/1.1 403 ");
    l.r.c.ticks = 0;  // who is connected is looked at now and then
    apps_tick(&l.r.c);
    assert_true(raw->aborted);
    assert_true(other->aborted);
    close_lab(&l);
}

static void tokens_open_it_and_stay_here(void **state) {
    struct lab l;
    char token[300];
    open_lab(&l);
    rig_authority(&l.r);
    enter(&l, &fake_alice);
    by_token(&l, "", token, sizeof token);
    send_bytes(&l, "GET /t HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n", l.host, token);
    const char *got = program_got(&l);
    assert_true(str_has_prefix(got, "GET /t "));
    assert_null(strstr(got, "Authorization"));
    by_token(&l, ",\"scopes\":[\"read\"]", token, sizeof token);
    struct net_raw *raw =
        send_bytes(&l, "GET /t HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n", l.host, token);
    answered(raw, "HTTP/1.1 403 ");
    raw = send_bytes(&l, "GET /t HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer aq1.x\r\n\r\n", l.host);
    assert_int_equal(raw->out.len, 0);
    assert_int_equal(raw->deadline_ms, 100);
    fake_raw_deadline(&l.r, raw);
    answered(raw, "HTTP/1.1 401 ");
    assert_string_equal(program_got(&l), "");
    close_lab(&l);
}

// As at the API: each wrong token is answered later than the one before, and many for one token lock it out from there.
static void wrong_tokens_are_locked_out(void **state) {
    struct lab l;
    char token[300], wrong[300];
    open_lab(&l);
    rig_authority(&l.r);
    enter(&l, &fake_alice);
    by_token(&l, "", token, sizeof token);
    memcpy(wrong, token, sizeof wrong);
    char *secret = strrchr(wrong, '.') - 1;
    *secret = *secret == '0' ? '1' : '0';
    for (uint32_t i = 0; i < 12; i++) {
        struct net_raw *raw =
            send_bytes(&l, "GET /t HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n", l.host,
                       i < 11 ? wrong : token);
        assert_int_equal(raw->out.len, 0);
        assert_int_equal(raw->deadline_ms, i >= 10 ? 100 : 100u << (i < 5 ? i : 5));
        fake_raw_deadline(&l.r, raw);
        answered(raw, i < 10 ? "HTTP/1.1 401 " : "HTTP/1.1 429 ");
        fake_raw_leave(&l.r, raw);
    }
    assert_string_equal(program_got(&l), "");
    close_lab(&l);
}

static void hostile_requests_go_no_further(void **state) {
    static const char *const bad[] = {"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
                                      "Content-Length: 3\r\nContent-Length: 4\r\n",
                                      "Transfer-Encoding: chunked, identity\r\n",
                                      "Transfer-Encoding : chunked\r\n",
                                      "Host: other\r\n",
                                      "X: a\r\n b\r\n",
                                      "Content-Length: +3\r\n"};
    struct lab l;
    open_lab(&l);
    enter(&l, &fake_alice);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        // As the second request of a connection, since the first is read by the server.
        struct net_raw *raw = get(&l, "/", "");
        program_got(&l);
        program_says(&l, "HTTP/1.1 204 No Content\r\n\r\n");
        buf_clear(&raw->out);
        cleanup_buf struct buf b = {0};
        buf_addf(
            &b,
            "POST / HTTP/1.1\r\nHost: %s\r\nCookie: %s\r\n%s\r\nabcGET /admin HTTP/1.1\r\nHost: %s\r\n\r\n",
            l.host, l.cookie, bad[i], l.host);
        fake_raw_data(&l.r, raw, b.data, b.len);
        if (!str_has_prefix(buf_str(&raw->out), "HTTP/1.1 4") &&
            !str_has_prefix(buf_str(&raw->out), "HTTP/1.1 5"))
            fail_msg("%s: %s", bad[i], buf_str(&raw->out));
        assert_true(raw->ended);
        assert_string_equal(program_got(&l), "");
    }
    // Another protocol than WebSocket is not spoken with the program, and a body is never part of the next request.
    get(&l, "/", "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n");
    const char *got = program_got(&l);
    assert_null(strstr(got, "h2c"));
    assert_null(strstr(got, "HTTP2-Settings"));
    assert_null(strstr(got, "Upgrade"));
    struct net_raw *raw = get(&l, "/", "");
    program_got(&l);
    program_says(
        &l,
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison");
    answered(raw, "\r\n\r\nok");
    not_answered(raw, "poison");
    uint64_t before = l.stream;
    get(&l, "/next", "");
    program_got(&l);
    assert_int_not_equal(l.stream, before);  // whoever says more than it was asked is not asked again
    // The host of the portal on a connection of a program's.
    raw = get(&l, "/", "");
    program_got(&l);
    program_says(&l, "HTTP/1.1 204 No Content\r\n\r\n");
    cleanup_buf struct buf other = {0};
    buf_addf(&other, "GET /v1/me HTTP/1.1\r\nHost: %s\r\n\r\n", portal_host(&l.r.c));
    fake_raw_data(&l.r, raw, other.data, other.len);
    answered(raw, "HTTP/1.1 421 ");
    close_lab(&l);
}

static void bad_answers_are_said_so(void **state) {
    static const struct {
        const char *says, *answer;
        bool cut;
    } cases[] = {
        {"garbage\r\n\r\n", "HTTP/1.1 502 ", false},
        {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n", "HTTP/1.1 502 ",
         false},
        {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.1 502 ",
         false},
        {"HTTP/1.1 200 OK\r\nX: a\x01\r\n\r\n", "HTTP/1.1 502 ", false},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "HTTP/1.1 200 ", true},
    };
    struct lab l;
    open_lab(&l);
    enter(&l, &fake_alice);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct net_raw *raw = get(&l, "/", "");
        program_got(&l);
        program_says(&l, cases[i].says);
        answered(raw, cases[i].answer);
        assert_int_equal(raw->aborted, cases[i].cut);
        fake_raw_leave(&l.r, raw);
    }
    // It ends in the middle of an answer with a length; without one the end is the end.
    struct net_raw *raw = get(&l, "/", "");
    program_got(&l);
    program_says(&l, "HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\nabc");
    program_ends(&l, NULL);
    assert_true(raw->aborted);
    raw = get(&l, "/", "");
    program_got(&l);
    program_says(&l, "HTTP/1.1 200 OK\r\n\r\nabc");
    program_ends(&l, NULL);
    answered(raw, "3\r\nabc\r\n0\r\n\r\n");
    assert_false(raw->aborted);
    // Nobody listens: a page that says so and reloads itself, or a problem document.
    raw = get(&l, "/", HTML);
    program_got(&l);
    program_ends(&l, "nothing listens on port 8000 of the job");
    answered(raw, "HTTP/1.1 502 ");
    answered(raw, "nothing listens on port 8000");
    answered(raw, "http-equiv=\"refresh\"");
    raw = get(&l, "/", "");
    program_got(&l);
    program_ends(&l, "nothing listens on port 8000 of the job");
    answered(raw, "application/problem+json");
    close_lab(&l);
}

// A connection that the program had kept is closed as the next request comes: it is sent again, once.
// However answers are cut, a kept connection never runs out of credit: the next answer would not come.
static void answers_give_their_credit_back(void **state) {
    enum { ANSWERS = 20, PIECE = 60 << 10 };
    static char body[PIECE + 1];
    struct lab l;
    open_lab(&l);
    enter(&l, &fake_alice);
    memset(body, 'x', PIECE);
    for (int i = 0; i < ANSWERS; i++) {
        char head[128];
        struct net_raw *raw = get(&l, "/", "");
        uint64_t stream = l.stream, sent;
        program_got(&l);
        assert_true(i == 0 || l.stream == stream);
        sent = (uint64_t)snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", PIECE) +
               PIECE;
        assert_true(l.credit >= sent);
        program_says(&l, head);
        program_says(&l, body);
        l.credit -= sent;
        program_got(&l);
        assert_true(raw->out.len > PIECE);
        fake_raw_leave(&l.r, raw);
    }
    close_lab(&l);
}

static void a_kept_connection_may_be_gone(void **state) {
    struct lab l;
    open_lab(&l);
    enter(&l, &fake_alice);
    struct net_raw *raw = get(&l, "/one", "");
    program_got(&l);
    program_says(&l, "HTTP/1.1 204 No Content\r\n\r\n");
    uint64_t kept = l.stream;
    raw = get(&l, "/two", "");
    assert_true(str_has_prefix(program_got(&l), "GET /two "));
    assert_int_equal(l.stream, kept);
    program_ends(&l, NULL);
    assert_true(str_has_prefix(program_got(&l), "GET /two "));
    assert_int_not_equal(l.stream, kept);
    program_ends(&l, NULL);
    answered(raw, "HTTP/1.1 502 ");
    // What may have been carried out is not.
    raw = get(&l, "/one", "");
    program_got(&l);
    program_says(&l, "HTTP/1.1 204 No Content\r\n\r\n");
    raw = send_bytes(&l, "DELETE /x HTTP/1.1\r\nHost: %s\r\nCookie: %s\r\n\r\n", l.host, l.cookie);
    program_got(&l);
    program_ends(&l, NULL);
    assert_string_equal(program_got(&l), "");
    answered(raw, "HTTP/1.1 502 ");
    close_lab(&l);
}

static void websockets_become_tunnels(void **state) {
    struct lab l;
    open_lab(&l);
    enter(&l, &fake_alice);
    cleanup_buf struct buf more = {0};
    buf_addf(&more,
             "Origin: http://%s\r\nConnection: keep-alive, Upgrade\r\nUpgrade: "
             "websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
             l.host);
    struct net_raw *raw = get(&l, "/ws", buf_str(&more));
    const char *got = program_got(&l);
    assert_non_null(strstr(got, "Connection: Upgrade\r\nUpgrade: websocket\r\n"));
    assert_non_null(strstr(got, "Sec-WebSocket-Key: dGhl"));
    fake_raw_data(&l.r, raw, "early", 5);  // not before the program has agreed
    assert_string_equal(program_got(&l), "");
    program_says(&l, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: "
                     "websocket\r\nSec-WebSocket-Accept: x\r\n\r\nfirst");
    answered(raw, "HTTP/1.1 101 ");
    answered(raw, "\r\n\r\nfirst");
    assert_string_equal(program_got(&l), "early");
    fake_raw_data(&l.r, raw, "GET / HTTP/1.1\r\n\r\n", 18);
    assert_string_equal(program_got(&l), "GET / HTTP/1.1\r\n\r\n");
    program_says(&l, "HTTP/1.1 200 OK\r\n\r\n");
    answered(raw, "HTTP/1.1 200 OK\r\n\r\n");
    program_ends(&l, NULL);
    assert_true(raw->ended);
    // A program that refuses answers like any other.
    raw = get(&l, "/ws", buf_str(&more));
    program_got(&l);
    program_says(&l, "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno");
    answered(raw, "HTTP/1.1 403 Forbidden");
    close_lab(&l);
}

// Whoever does not read holds back the program, and whoever does not take holds back the client.
static void the_slow_hold_back(void **state) {
    struct lab l;
    open_lab(&l);
    enter(&l, &fake_alice);
    struct net_raw *raw =
        send_bytes(&l, "POST /u HTTP/1.1\r\nHost: %s\r\nCookie: %s\r\nContent-Length: 100000000\r\n\r\n",
                   l.host, l.cookie);
    cleanup_free char *block = xcalloc(1, 64 << 10);
    uint32_t sent = 0;
    for (; !raw->paused && sent < 100; sent++)
        fake_raw_data(&l.r, raw, block, 64 << 10);
    assert_true(raw->paused && sent < 10);
    program_got(&l);
    rig_message(&l.r, l.agent, MESSAGE_STREAM_CREDIT,
                &(struct message_stream){.stream = l.stream, .credit = (uint64_t)sent << 16});
    assert_false(raw->paused);
    raw = get(&l, "/d", "");
    program_got(&l);
    program_says(&l, "HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n");
    raw->pending = 1 << 20;
    while (fake_next_message(l.agent, MESSAGE_STREAM_CREDIT, &l.a))
        ;
    for (int i = 0; i < 4; i++)
        program_says(&l, "0123456789");
    assert_null(fake_next_message(l.agent, MESSAGE_STREAM_CREDIT, &l.a));
    raw->pending = 0;
    raw->callbacks->on_drain(raw, raw->user);
    const struct message_stream *m = fake_next_message(l.agent, MESSAGE_STREAM_CREDIT, &l.a);
    assert_true(m && m->credit >= 40);
    close_lab(&l);
}

// Requests that are answered without the program cost room for their answers: with much unread none is taken.
static void who_reads_nothing_is_not_answered(void **state) {
    enum { REQUESTS = 1000 };
    struct lab l;
    open_lab(&l);
    enter(&l, &fake_alice);
    struct net_raw *raw = send_bytes(&l, "GET /1 HTTP/1.1\r\nHost: %s\r\n\r\n", l.host);
    answered(raw, "HTTP/1.1 401 ");
    cleanup_buf struct buf many = {0};
    for (int i = 0; i < REQUESTS; i++)
        buf_addf(&many, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", l.host);
    buf_clear(&raw->out);
    // One call of the connection's owner answers one request: its account's time is looked at in between.
    size_t taken = raw->callbacks->on_data(raw, many.data, many.len, raw->user), answer = raw->out.len;
    assert_int_equal(taken, many.len / REQUESTS);
    raw->pending = 1 << 20;
    fake_raw_data(&l.r, raw, many.data, many.len);
    assert_true(raw->paused);
    assert_int_equal(raw->out.len, answer);
    raw->pending = 0;
    raw->callbacks->on_drain(raw, raw->user);
    rig_settle(&l.r);
    assert_int_equal(raw->out.len, (REQUESTS + 1) * answer);
    close_lab(&l);
}

// At every moment of an exchange either side may go.
static void everybody_may_leave(void **state) {
    struct lab l;
    open_lab(&l);
    enter(&l, &fake_alice);
    for (int when = 0; when < 4; when++)
        for (int who = 0; who < 3; who++) {
            struct net_raw *raw =
                when < 3
                    ? get(&l, "/", "")
                    : send_bytes(&l,
                                 "POST / HTTP/1.1\r\nHost: %s\r\nCookie: %s\r\nContent-Length: 9\r\n\r\nabc",
                                 l.host, l.cookie);
            program_got(&l);
            if (when == 1)
                program_says(&l, "HTTP/1.1 200");
            if (when == 2)
                program_says(&l, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc");
            if (who == 0)
                fake_raw_leave(&l.r, raw);
            else if (who == 1)
                program_ends(&l, "gone");
            else
                raw->callbacks->on_eof(raw, raw->user);
            program_says(&l, "late");
            fake_raw_leave(&l.r, raw);
        }
    // The node goes.
    struct net_raw *raw = get(&l, "/", "");
    fake_hang_up(&l.r, l.agent);
    answered(raw, "HTTP/1.1 502 ");
    raw = get(&l, "/", HTML);
    answered(raw, "is not connected now");
    close_lab(&l);
}

// The job ends, its page says so; one that does not run yet has a page that waits.
static void the_state_of_the_job_is_said(void **state) {
    struct lab l;
    open_lab(&l);
    enter(&l, &fake_alice);
    rig_message(&l.r, l.agent, MESSAGE_ENDED, &(struct message_ended){.id = l.job, .attempt = 1});
    struct net_raw *raw = get(&l, "/", HTML);
    answered(raw, "HTTP/1.1 410 ");
    answered(raw, "has ended");
    not_answered(raw, "http-equiv");
    struct fake_request *q = rig_call(&l.r, &fake_alice, "POST", "/v1/jobs",
                                      "{\"spec\":{\"name\":\"t\",\"workdir\":\"/"
                                      "\",\"argv\":[\"true\"],\"ports\":[\"8000\"],\"hold\":true}}");
    fake_expect(q, 201, NULL);
    l.job = (uint64_t)json_i64(fake_json(q), "id", 0);
    enter(&l, &fake_alice);
    raw = get(&l, "/", HTML);
    answered(raw, "HTTP/1.1 503 ");
    answered(raw, "PENDING");
    answered(raw, "http-equiv=\"refresh\"");
    close_lab(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_and_answers_pass),
        cmocka_unit_test(strangers_go_by_the_portal),
        cmocka_unit_test(others_do_not_get_in),
        cmocka_unit_test(shares_let_others_in),
        cmocka_unit_test(tokens_open_it_and_stay_here),
        cmocka_unit_test(wrong_tokens_are_locked_out),
        cmocka_unit_test(hostile_requests_go_no_further),
        cmocka_unit_test(bad_answers_are_said_so),
        cmocka_unit_test(answers_give_their_credit_back),
        cmocka_unit_test(a_kept_connection_may_be_gone),
        cmocka_unit_test(websockets_become_tunnels),
        cmocka_unit_test(the_slow_hold_back),
        cmocka_unit_test(who_reads_nothing_is_not_answered),
        cmocka_unit_test(everybody_may_leave),
        cmocka_unit_test(the_state_of_the_job_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
