// Logins and what they allow: codes, passwords, cookies, other pages in the browser, scopes of tokens, roles.
#include "rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../admission.h"
#include "../login_turns.h"
#include "../portal.h"
#include "base/text.h"

static const struct net_peer browser = {
    .kind = NET_PEER_HTTP, .uid = (uid_t)-1, .gid = (gid_t)-1, .address = "[127.0.0.1]:5000"};
#define SAME "Sec-Fetch-Site: same-origin\r\n"

struct visit {
    struct rig r;
    char keys[32], cookie[128];
};

static struct fake_request *begin(struct visit *v, const char *line, const char *cookie, const char *more,
                                  const char *body) {
    cleanup_buf struct buf head = {0};
    buf_addf(&head, "%s HTTP/1.1\r\nHost: %s\r\n%s", line, portal_host(&v->r.c), more);
    if (cookie)
        buf_addf(&head, "Cookie: a=b; acequia_session=%s; c=d\r\n", cookie);
    return rig_bytes(&v->r, &browser, buf_str(&head), body);
}

static struct fake_request *ask(struct visit *v, const char *line, const char *cookie, const char *more,
                                const char *body) {
    struct fake_request *q = begin(v, line, cookie, more, body);
    rig_wait(&v->r, q);
    return q;
}

static void take_cookie(struct visit *v, const struct fake_request *q) {
    const char *at = strstr(buf_str(&q->headers), "Set-Cookie: acequia_session=");
    assert_non_null(at);
    at += strlen("Set-Cookie: acequia_session=");
    snprintf(v->cookie, sizeof v->cookie, "%.*s", (int)strcspn(at, ";"), at);
    assert_int_equal(strlen(v->cookie), 16 + 1 + 64);
    assert_non_null(strstr(at, "; Path=/; HttpOnly; SameSite=Lax; Max-Age=604800\r\n"));
}

static void read_code(struct visit *v, struct fake_request *q, char out[static 128]) {
    fake_expect(q, 200, NULL);
    const char *url = json_str(fake_json(q), "url"), *code = strstr(url, "/#code=");
    cleanup_buf struct buf start = {0};
    const char *host = portal_host(&v->r.c);
    buf_addf(&start, "http:%c/%s/#code=", '/', host);
    assert_true(str_has_prefix(url, buf_str(&start)));
    snprintf(out, 128, "%s", code + 7);
}

static void link_code(struct visit *v, const struct net_peer *who, char out[static 128]) {
    read_code(v, rig_call(&v->r, who, "POST", "/v1/portal", NULL), out);
}

static struct fake_request *use_code(struct visit *v, const char *code, const char *cookie,
                                     const char *more) {
    cleanup_buf struct buf body = {0};
    buf_addf(&body, "{\"code\":\"%s\"}", code);
    return ask(v, "POST /v1/login/code", cookie, more, buf_str(&body));
}

static void open_visit(struct visit *v) {
    char code[128];
    rig_open(&v->r);
    snprintf(v->keys, sizeof v->keys, "/tmp/acequia-login-XXXXXX");
    assert_non_null(mkdtemp(v->keys));
    v->r.c.paths.keys = v->keys;
    link_code(v, &fake_alice, code);
    struct fake_request *q = use_code(v, code, NULL, SAME);
    fake_expect(q, 200, "\"user\":\"alice\"");
    take_cookie(v, q);
}

static void close_visit(struct visit *v) {
    char path[64];
    rig_close(&v->r);
    snprintf(path, sizeof path, "%s/secret.key", v->keys);
    unlink(path);
    rmdir(v->keys);
}

static void a_code_logs_in_once(void **state) {
    struct visit v;
    char code[128];
    open_visit(&v);
    struct fake_request *q = ask(&v, "GET /v1/me", v.cookie, "", NULL);
    fake_expect(q, 200, "\"via\":\"session\"");
    assert_string_equal(q->pub.who, "alice");
    assert_int_equal(q->pass[0], 's');  // its connection ends with the login
    link_code(&v, &fake_bob, code);
    fake_expect(use_code(&v, code, NULL, SAME), 200, "\"user\":\"bob\"");
    fake_expect(use_code(&v, code, NULL, SAME), 401, "used already");
    fake_expect(use_code(&v, "0123", NULL, SAME), 401, NULL);
    // While it is not known who the user is the code is not used up.
    fake_users_answer = true;
    link_code(&v, &fake_slow, code);
    fake_users_answer = false;
    cleanup_buf struct buf head = {0}, body = {0};
    buf_addf(&head, "POST /v1/login/code HTTP/1.1\r\nHost: %s\r\n" SAME, portal_host(&v.r.c));
    buf_addf(&body, "{\"code\":\"%s\"}", code);
    q = rig_bytes(&v.r, &browser, buf_str(&head), buf_str(&body));
    assert_int_equal(q->status, 0);
    fake_users_answer = true;
    api_users_changed(&v.r.c);
    rig_settle(&v.r);
    fake_expect(q, 200, "\"user\":\"carol\"");
    fake_expect(rig_call(&v.r, &fake_alice, "POST", "/v1/login/code", "{\"code\":\"x\"}"), 400,
                "the kernel says");
    // Out: the cookie is worth nothing any more.
    fake_expect(ask(&v, "POST /v1/logout", v.cookie, SAME, NULL), 200, NULL);
    fake_expect(ask(&v, "GET /v1/me", v.cookie, "", NULL), 401, NULL);
    close_visit(&v);
}

// CSRF: another page's request carries the cookie, and is refused.
static void other_pages_change_nothing(void **state) {
    struct visit v;
    open_visit(&v);
    const char *foreign[] = {"", "Sec-Fetch-Site: cross-site\r\n", "Sec-Fetch-Site: same-site\r\n",
                             "Origin: http://evil.localhost:6821\r\n", "Origin: null\r\n"};
    const char *lines[] = {"POST /v1/jobs/cancel", "PUT /v1/secrets/x", "DELETE /v1/sessions/others",
                           "POST /v1/portal"};
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        for (size_t k = 0; k < sizeof lines / sizeof *lines; k++)
            fake_expect(ask(&v, lines[k], v.cookie, foreign[i], "{}"), 403, "page of another server");
    fake_expect(ask(&v, "POST /v1/jobs/cancel", v.cookie, SAME, "{\"all\":true}"), 200, NULL);
    // Nor does another page log somebody in or out.
    for (size_t i = 1; i < sizeof foreign / sizeof *foreign; i++) {
        fake_expect(use_code(&v, "0123", NULL, foreign[i]), 403, "page of another server");
        fake_expect(ask(&v, "POST /v1/logout", v.cookie, foreign[i], NULL), 403, NULL);
    }
    fake_expect(ask(&v, "GET /v1/me", v.cookie, "", NULL), 200, NULL);
    close_visit(&v);
}

static void other_pages_open_no_websocket(void **state) {
    struct visit v;
    open_visit(&v);
    const char *upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                          "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    const char *foreign[] = {"", "Origin: http://evil.example\r\n", "Sec-Fetch-Site: cross-site\r\n",
                             "Sec-Fetch-Site: none\r\n"};
    cleanup_buf struct buf more = {0};
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        buf_clear(&more);
        buf_addf(&more, "%s%s", upgrade, foreign[i]);
        fake_expect(ask(&v, "GET /v1/run", v.cookie, buf_str(&more), NULL), 403, "page of another server");
    }
    buf_clear(&more);
    buf_addf(&more, "%sOrigin: http://%s\r\n", upgrade, portal_host(&v.r.c));
    assert_int_equal(ask(&v, "GET /v1/run", v.cookie, buf_str(&more), NULL)->status, 101);
    close_visit(&v);
}

// A session that somebody put into the browser beforehand is not the one that a login opens.
static void no_fixation(void **state) {
    struct visit v;
    char code[128], attackers[128], before[128];
    open_visit(&v);
    snprintf(attackers, sizeof attackers, "%s", v.cookie);
    link_code(&v, &fake_bob, code);
    take_cookie(&v, use_code(&v, code, attackers, SAME));
    assert_string_not_equal(v.cookie, attackers);
    fake_expect(ask(&v, "GET /v1/me", v.cookie, "", NULL), 200, "\"user\":\"bob\"");
    fake_expect(ask(&v, "GET /v1/me", attackers, "", NULL), 401, NULL);  // and the old one is over
    // A made-up value is never taken as an id.
    snprintf(before, sizeof before, "%064d.%016d", 1, 2);
    link_code(&v, &fake_bob, code);
    struct fake_request *q = use_code(&v, code, before, SAME);
    assert_null(strstr(buf_str(&q->headers), before));
    // Two cookies of the name: one is not ours, and neither counts.
    cleanup_buf struct buf two = {0};
    buf_addf(&two, "%s; acequia_session=%s", attackers, v.cookie);
    fake_expect(ask(&v, "GET /v1/me", buf_str(&two), "", NULL), 401, NULL);
    close_visit(&v);
}

static void sessions_are_ones_own(void **state) {
    struct visit v;
    char code[128], id[32], bobs[128];
    open_visit(&v);
    link_code(&v, &fake_bob, code);
    char alices[128];
    snprintf(alices, sizeof alices, "%s", v.cookie);
    take_cookie(&v, use_code(&v, code, NULL, SAME));
    snprintf(bobs, sizeof bobs, "%s", v.cookie);
    snprintf(id, sizeof id, "%.16s", alices);
    cleanup_buf struct buf line = {0};
    buf_addf(&line, "DELETE /v1/sessions/%s", id);
    fake_expect(ask(&v, buf_str(&line), bobs, SAME, NULL), 404, NULL);
    struct fake_request *q = ask(&v, "GET /v1/sessions", bobs, "", NULL);
    fake_expect(q, 200, "\"current\":true");
    assert_null(strstr(buf_str(&q->body), id));
    assert_null(strstr(buf_str(&q->body), "hash"));
    fake_expect(rig_call(&v.r, &fake_alice, "GET", "/v1/sessions", NULL), 200, id);  // from a terminal, too
    fake_expect(rig_call(&v.r, &fake_alice, "DELETE", "/v1/sessions/others", NULL), 200, NULL);
    fake_expect(ask(&v, "GET /v1/me", alices, "", NULL), 401, NULL);
    fake_expect(ask(&v, "GET /v1/me", bobs, "", NULL), 200, NULL);
    close_visit(&v);
}

static struct fake_request *password(struct visit *v, const char *user, const char *secret) {
    cleanup_buf struct buf body = {0};
    buf_addf(&body, "{\"method\":\"own\",\"user\":\"%s\",\"password\":\"%s\"}", user, secret);
    return ask(v, "POST /v1/login", NULL, SAME, buf_str(&body));
}

static struct fake_request *settled(struct visit *v, struct fake_request *q) {
    rig_wait(&v->r, q);
    rig_settle(&v->r);
    return q;
}

static void own_users(void **state) {
    struct visit v;
    open_visit(&v);
    struct rig *r = &v.r;
    fake_expect(rig_call(r, &fake_alice, "PUT", "/v1/users/ana", "{}"), 403, NULL);
    fake_expect(rig_call(r, &fake_root, "PUT", "/v1/users/ana", "{\"unix_user\":\"alicia\"}"), 404,
                "no user alicia");
    fake_expect(rig_call(r, &fake_root, "PUT", "/v1/users/ana", "{\"full_name\":\"Ana B\"}"), 200, NULL);
    fake_expect(rig_call(r, &fake_root, "PUT", "/v1/users/ana/password", "{\"password\":\"short\"}"), 400,
                NULL);
    fake_expect(settled(&v, rig_call(r, &fake_root, "PUT", "/v1/users/ana/password",
                                     "{\"password\":\"correct horse\"}")),
                200, NULL);
    fake_expect(password(&v, "ana", "wrong horse"), 401, "name or password is wrong");
    fake_expect(password(&v, "nobody-here", "wrong horse"), 401, "name or password is wrong");
    // Without a Unix user: she may look, and change nothing.
    struct fake_request *q = password(&v, "ana", "correct horse");
    fake_expect(q, 200, "\"may_submit\":false");
    fake_expect(q, 200, "\"full_name\":\"Ana B\"");
    take_cookie(&v, q);
    fake_expect(ask(&v, "GET /v1/jobs", v.cookie, "", NULL), 200, NULL);
    fake_expect(ask(&v, "POST /v1/jobs", v.cookie, SAME, "{\"spec\":{\"argv\":[\"true\"]}}"), 403,
                "not mapped");
    fake_expect(ask(&v, "GET /v1/files", v.cookie, "", NULL), 403, "you have no files here");
    // Mapped, she is that user.
    fake_expect(rig_call(r, &fake_root, "PUT", "/v1/users/ana", "{\"unix_user\":\"alice\"}"), 200, NULL);
    fake_expect(ask(&v, "GET /v1/me", v.cookie, "", NULL), 200, "\"user\":\"alice\"");
    fake_expect(
        ask(&v, "POST /v1/jobs", v.cookie, SAME, "{\"spec\":{\"argv\":[\"true\"],\"workdir\":\"/\"}}"), 201,
        NULL);
    // Her own password: only with the old one. Nothing shows the hash.
    fake_expect(ask(&v, "PUT /v1/users/ana/password", v.cookie, SAME, "{\"password\":\"another horse\"}"),
                400, "current");
    fake_expect(ask(&v, "PUT /v1/users/ana/password", v.cookie, SAME,
                    "{\"password\":\"another horse\",\"current\":\"wrong horse\"}"),
                403, NULL);
    fake_expect(settled(&v, ask(&v, "PUT /v1/users/ana/password", v.cookie, SAME,
                                "{\"password\":\"another horse\",\"current\":\"correct horse\"}")),
                200, NULL);
    fake_expect(password(&v, "ana", "correct horse"), 401, NULL);
    fake_expect(password(&v, "ana", "another horse"), 200, NULL);
    q = rig_call(r, &fake_root, "GET", "/v1/users", NULL);
    fake_expect(q, 200, "\"has_password\":true");
    assert_null(strstr(buf_str(&q->body), "argon"));
    q = rig_call(r, &fake_root, "GET", "/v1/events", NULL);
    fake_expect(q, 200, "user_password");
    assert_true(!strstr(buf_str(&q->body), "argon") && !strstr(buf_str(&q->body), "horse"));
    assert_null(strstr(buf_str(&q->body), "\"hash\":\""));
    q = rig_call(r, &fake_root, "GET", "/v1/audit?limit=1000", NULL);
    fake_expect(q, 200, "own:ana");
    assert_null(strstr(buf_str(&q->body), "horse"));
    // Disabled: out at once, and not in again.
    fake_expect(rig_call(r, &fake_root, "PUT", "/v1/users/ana", "{\"disabled\":true}"), 200, NULL);
    fake_expect(ask(&v, "GET /v1/me", v.cookie, "", NULL), 401, NULL);
    fake_expect(password(&v, "ana", "another horse"), 401, NULL);
    close_visit(&v);
}

static bool is_not_ana(void *ctx, const struct event_session *s) {
    assert_string_not_equal(s->identity, "own:ana");
    return true;
}

// A password is looked at for a while. Whoever knows the one that was replaced meanwhile is not let in, nor is anybody
// whose account was removed.
static void a_login_overtaken_by_a_change(void **state) {
    static const char right[] = "{\"method\":\"own\",\"user\":\"ana\",\"password\":\"correct horse\"}";
    static const struct actor root = {"root", 0, 0, true};
    struct visit v;
    open_visit(&v);
    for (int removed = 1; removed >= 0; removed--) {
        char code[128];
        fake_expect(rig_call(&v.r, &fake_root, "PUT", "/v1/users/ana", "{\"unix_user\":\"alice\"}"), 200,
                    NULL);
        fake_expect(settled(&v, rig_call(&v.r, &fake_root, "PUT", "/v1/users/ana/password",
                                         "{\"password\":\"correct horse\"}")),
                    200, NULL);
        take_cookie(&v, ask(&v, "POST /v1/login", NULL, SAME, right));
        read_code(&v, ask(&v, "POST /v1/portal", v.cookie, SAME, NULL), code);
        struct fake_request *mine = begin(&v, "PUT /v1/users/ana/password", v.cookie, SAME,
                                          "{\"password\":\"another horse\",\"current\":\"correct horse\"}");
        struct fake_request *q = begin(&v, "POST /v1/login", NULL, SAME, right);
        struct command change = {removed ? COMMAND_USER_REMOVE : COMMAND_USER_PASSWORD,
                                 &(struct command_user){"ana"}};
        assert_int_equal(core_command(v.r.c.core, &root, NULL, &change, controller_now_ms(), NULL, NULL), 0);
        fake_expect(settled(&v, q), 401, "name or password is wrong");
        fake_expect(settled(&v, mine), 403, NULL);
        fake_expect(use_code(&v, code, NULL, SAME), 401, "used already");
        core_each_session(v.r.c.core, is_not_ana, NULL);
    }
    close_visit(&v);
}

static void guessing_is_locked_out(void **state) {
    struct visit v;
    open_visit(&v);
    fake_expect(rig_call(&v.r, &fake_root, "PUT", "/v1/users/eve", "{}"), 200, NULL);
    // The answers are held back, longer each time; the next guess need not wait for them.
    for (int i = 0; i < 10; i++) {
        cleanup_buf struct buf head = {0};
        buf_addf(&head, "POST /v1/login HTTP/1.1\r\nHost: %s\r\n" SAME, portal_host(&v.r.c));
        rig_bytes(&v.r, &browser, buf_str(&head),
                  "{\"method\":\"own\",\"user\":\"eve\",\"password\":\"guess guess\"}");
        while (login_turns_running(&v.r.c))
            rig_settle(&v.r);
    }
    fake_expect(password(&v, "eve", "guess guess"), 429, "too many wrong passwords");
    // Others are not affected.
    fake_expect(rig_call(&v.r, &fake_root, "PUT", "/v1/users/ana", "{}"), 200, NULL);
    fake_expect(settled(&v, rig_call(&v.r, &fake_root, "PUT", "/v1/users/ana/password",
                                     "{\"password\":\"correct horse\"}")),
                200, NULL);
    fake_expect(password(&v, "ana", "correct horse"), 200, NULL);
    close_visit(&v);
}

static struct fake_request *try_password(struct visit *v, const char *address, const char *user,
                                         const char *secret) {
    struct net_peer p = browser;
    cleanup_buf struct buf head = {0}, body = {0};
    snprintf(p.address, sizeof p.address, "%s", address);
    buf_addf(&head, "POST /v1/login HTTP/1.1\r\nHost: %s\r\n" SAME, portal_host(&v->r.c));
    buf_addf(&body, "{\"method\":\"own\",\"user\":\"%s\",\"password\":\"%s\"}", user, secret);
    return rig_bytes_at_once(&v->r, &p, buf_str(&head), buf_str(&body));
}

static void add_ana(struct visit *v) {
    fake_expect(rig_call(&v->r, &fake_root, "PUT", "/v1/users/ana", "{}"), 200, NULL);
    fake_expect(settled(v, rig_call(&v->r, &fake_root, "PUT", "/v1/users/ana/password",
                                    "{\"password\":\"correct horse\"}")),
                200, NULL);
}

static uint32_t answered(struct fake_request *const *list, uint32_t n, int status) {
    uint32_t found = 0;
    for (uint32_t i = 0; i < n; i++)
        found += status ? list[i]->status == status : list[i]->status != 0;
    return found;
}

// A hundred guesses at once. Others log in meanwhile: from elsewhere, and from the same address.
static void a_flood_of_guesses_holds_up_itself(void **state) {
    struct visit v;
    struct fake_request *flood[100];
    open_visit(&v);
    add_ana(&v);
    for (int names = 0; names < 2; names++) {  // for one account, then each for another
        for (uint32_t i = 0; i < 100; i++) {
            char user[16];
            snprintf(user, sizeof user, "eve%u", names ? i : 0);
            flood[i] = try_password(&v, "[10.0.0.66]:5000", user, "guess guess");
        }
        uint32_t refused = answered(flood, 100, 429);
        assert_in_range(refused, 30, 98);  // the rest waits: it did not all begin
        assert_in_range(login_turns_running(&v.r.c), 1, 2);
        size_t guessed = v.r.c.guesses.len;
        struct fake_request *other = try_password(&v, "[10.0.0.7]:5000", "ana", "correct horse");
        assert_int_equal(other->status, 0);
        rig_wait(&v.r, other);
        fake_expect(other, 200, NULL);
        // Of the flood those that had begun were looked at before, and some beside it.
        assert_in_range(v.r.c.guesses.len - guessed, 0, 16);
        if (!names) {
            struct fake_request *same = try_password(&v, "[10.0.0.66]:5001", "ana", "correct horse");
            rig_wait(&v.r, same);
            fake_expect(same, 200, NULL);
        }
        for (uint32_t i = 0; i < 100; i++)
            if (!flood[i]->status)
                fake_leave(flood[i]);
        while (login_turns_running(&v.r.c))
            rig_settle(&v.r);
        assert_int_equal(answered(flood, 100, 200), 0);
    }
    close_visit(&v);
}

// Whoever has guessed much has one check at a time, others the rest; whoever leaves is not waited for.
static void guessers_have_a_small_part(void **state) {
    struct visit v;
    struct fake_request *flood[40];
    open_visit(&v);
    add_ana(&v);
    for (uint32_t i = 0; i < 12; i++) {
        char user[16];
        snprintf(user, sizeof user, "eve%u", i);
        struct fake_request *q = try_password(&v, "[10.0.0.66]:5000", user, "guess guess");
        assert_int_equal(q->status, 0);
        while (login_turns_running(&v.r.c))
            rig_settle(&v.r);
    }
    assert_true(admission_guesses_much(&v.r.c, "[10.0.0.66]"));
    for (uint32_t i = 0; i < 40; i++) {
        char user[16];
        snprintf(user, sizeof user, "mallory%u", i);
        flood[i] = try_password(&v, "[10.0.0.66]:5000", user, "guess guess");
    }
    assert_int_equal(login_turns_running(&v.r.c), 1);
    assert_int_equal(answered(flood, 40, 429), 40 - 1 - 32);
    struct fake_request *other = try_password(&v, "[10.0.0.7]:5000", "ana", "correct horse");
    assert_int_equal(login_turns_running(&v.r.c), 2);  // at once
    rig_wait(&v.r, other);
    fake_expect(other, 200, NULL);
    for (uint32_t i = 0; i < 40; i++)
        if (!flood[i]->status)
            fake_leave(flood[i]);
    while (login_turns_running(&v.r.c))
        rig_settle(&v.r);
    close_visit(&v);
}

struct asker {
    struct visit *visit;
    struct fake_request *req;
    struct login_turn *turn;
    char name;
    bool running;
    char (*order)[64];
};

static void note(struct asker *a) {
    size_t n = strlen(*a->order);
    a->running = true;
    (*a->order)[n] = a->name;
    (*a->order)[n + 1] = 0;
}

static void its_turn(void *arg, const struct error *problem) {
    struct asker *a = arg;
    a->running = false;
    if (problem)
        a->turn = NULL;
    else
        note(a);
}

static void take_turn(struct asker *a, const char *address, const char *account) {
    struct net_peer p = browser;
    struct error e = {0};
    snprintf(p.address, sizeof p.address, "%s", address);
    a->req = rig_bytes_at_once(&a->visit->r, &p, "GET /v1/login HTTP/1.1\r\nHost: x\r\n", NULL);
    if (login_turn_take(&a->visit->r.c, LOGIN_TURN_OWN, &a->req->pub, account, its_turn, a, &a->turn, &e) > 0)
        note(a);
}

static void end_one(struct asker *list, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (list[i].turn && list[i].running) {
            struct login_turn *t = list[i].turn;
            list[i].turn = NULL;
            login_turn_end(t);
            return;
        }
}

// Addresses take turns, within an address accounts do; whoever has left is passed over.
static void turns_go_round(void **state) {
    static const struct {
        char name;
        const char *address, *account;
    } who[] = {{'a', "[10.0.0.1]:1", "x"}, {'b', "[10.0.0.1]:2", "x"}, {'c', "[10.0.0.1]:3", "x"},
               {'d', "[10.0.0.1]:4", "x"}, {'e', "[10.0.0.1]:5", "y"}, {'f', "[10.0.0.2]:6", "x"},
               {'g', "[10.0.0.2]:7", "x"}, {'h', "[10.0.0.3]:8", "x"}};
    enum { COUNT = sizeof who / sizeof *who };
    struct asker list[COUNT];
    char order[64] = "";
    struct visit v;
    open_visit(&v);
    for (size_t i = 0; i < COUNT; i++) {
        list[i] = (struct asker){.visit = &v, .name = who[i].name, .order = &order};
        take_turn(&list[i], who[i].address, who[i].account);
    }
    assert_string_equal(order, "ab");  // two at a time
    list[3].req->gone = true;
    for (size_t i = 0; i < COUNT; i++)
        end_one(list, COUNT);
    assert_string_equal(order, "abfhegc");
    assert_int_equal(login_turns_running(&v.r.c), 0);
    close_visit(&v);
}

// Very many addresses do not make us forget to count.
static void guesses_are_always_counted(void **state) {
    struct visit v;
    open_visit(&v);
    for (uint32_t i = 0; i < 5000; i++) {
        struct net_peer p = browser;
        struct net_request req = {.peer = &p};
        snprintf(p.address, sizeof p.address, "[10.1.%u.%u]:5000", i / 250, i % 250);
        admission_wrong_login(&v.r.c, &req, "own:eve");
    }
    struct net_request req = {.peer = &browser};
    for (int i = 0; i < 10; i++)
        admission_wrong_login(&v.r.c, &req, "own:eve");
    assert_true(admission_login_locked(&v.r.c, &req, "own:eve"));
    assert_true(v.r.c.guesses.len <= 4096);
    close_visit(&v);
}

// One's own current password can be guessed no faster than at a login, and many changes at once wait for their turns.
static void changes_of_passwords_take_turns(void **state) {
    struct visit v;
    struct fake_request *list[40];
    open_visit(&v);
    add_ana(&v);
    fake_expect(rig_call(&v.r, &fake_root, "PUT", "/v1/users/ana", "{\"unix_user\":\"alice\"}"), 200, NULL);
    static const char guess[] = "{\"password\":\"another horse\",\"current\":\"wrong horse\"}";
    for (int i = 0; i < 40; i++)
        list[i] = begin(&v, "PUT /v1/users/ana/password", v.cookie, SAME, guess);
    assert_true(answered(list, 40, 429) >= 25);
    assert_in_range(login_turns_running(&v.r.c), 1, 2);
    for (int i = 0; i < 40; i++)
        rig_wait(&v.r, list[i]);
    uint32_t wrong = answered(list, 40, 403);
    for (; wrong < 10; wrong++)
        fake_expect(ask(&v, "PUT /v1/users/ana/password", v.cookie, SAME, guess), 403, "is wrong");
    fake_expect(ask(&v, "PUT /v1/users/ana/password", v.cookie, SAME, guess), 429,
                "too many wrong passwords");
    close_visit(&v);
}

// --- tokens and roles ---

static struct fake_request *by_token(struct visit *v, const char *token, const char *line, const char *body) {
    struct net_peer p = fake_tls("[10.0.0.1]:1000", NULL);
    cleanup_buf struct buf head = {0};
    buf_addf(&head, "%s HTTP/1.1\r\nAuthorization: Bearer %s\r\n", line, token);
    return rig_bytes(&v->r, &p, buf_str(&head), body);
}

static void make_token(struct visit *v, const struct net_peer *who, const char *body, char out[static 256]) {
    struct fake_request *q = rig_call(&v->r, who, "POST", "/v1/tokens", body);
    fake_expect(q, 201, NULL);
    snprintf(out, 256, "%s", json_str(fake_json(q), "token"));
}

// --- programs on other machines ---

struct program {
    char device_code[1024], user_code[16], link[1024];
};

static struct fake_request *by_program(struct visit *v, const char *line, const char *body) {
    struct net_peer p = fake_tls("[10.0.0.9]:1000", NULL);
    cleanup_buf struct buf head = {0};
    buf_addf(&head, "%s HTTP/1.1\r\nHost: 127.0.0.1\r\n", line);
    return rig_bytes(&v->r, &p, buf_str(&head), body);
}

static void ask_for_login(struct visit *v, struct program *out) {
    struct fake_request *q =
        by_program(v, "POST /v1/login/device", "{\"client\":\"laptop\",\"scopes\":[\"submit\"]}");
    fake_expect(q, 201, NULL);
    snprintf(out->device_code, sizeof out->device_code, "%s", json_str(fake_json(q), "device_code"));
    snprintf(out->user_code, sizeof out->user_code, "%s", json_str(fake_json(q), "user_code"));
    const char *code = strstr(json_str(fake_json(q), "verification_uri_complete"), "?code=");
    assert_non_null(code);
    snprintf(out->link, sizeof out->link, "%s", code + strlen("?code="));
}

static struct fake_request *fetch_token(struct visit *v, const struct program *p) {
    cleanup_buf struct buf body = {0};
    buf_addf(&body, "{\"device_code\":\"%s\"}", p->device_code);
    return by_program(v, "POST /v1/login/device/token", buf_str(&body));
}

static struct fake_request *answer(struct visit *v, const struct net_peer *who, const struct program *p,
                                   bool allow) {
    cleanup_buf struct buf path = {0};
    buf_addf(&path, "/v1/devices/%s", p->user_code);
    return rig_call(&v->r, who, "POST", buf_str(&path), allow ? "{\"allow\":true}" : "{\"allow\":false}");
}

static void programs_are_logged_in_by_their_user(void **state) {
    struct visit v;
    struct program p;
    char token[256];
    open_visit(&v);
    rig_authority(&v.r);
    ask_for_login(&v, &p);
    fake_expect(fetch_token(&v, &p), 200, "\"state\":\"pending\"");
    fake_expect(answer(&v, &fake_alice, &p, true), 200, NULL);
    // Once it is answered nobody else can answer it, with another login or otherwise.
    fake_expect(answer(&v, &fake_bob, &p, true), 404, "no program waits");
    fake_expect(answer(&v, &fake_bob, &p, false), 404, NULL);
    struct fake_request *q = fetch_token(&v, &p);
    fake_expect(q, 200, "\"user\":\"alice\"");
    snprintf(token, sizeof token, "%s", json_str(fake_json(q), "token"));
    fake_expect(fetch_token(&v, &p), 200, "\"state\":\"expired\"");  // it is given once
    fake_expect(by_token(&v, token, "GET /v1/me", NULL), 200, "\"user\":\"alice\"");
    // A token, which ends, cannot agree to another one that lasts longer.
    ask_for_login(&v, &p);
    cleanup_buf struct buf line = {0};
    buf_addf(&line, "POST /v1/devices/%s", p.user_code);
    fake_expect(by_token(&v, token, buf_str(&line), "{\"allow\":true}"), 403, "not with a token");
    fake_expect(fetch_token(&v, &p), 200, "\"state\":\"pending\"");
    fake_expect(answer(&v, &fake_alice, &p, false), 200, NULL);
    fake_expect(fetch_token(&v, &p), 200, "\"state\":\"denied\"");
    // Whoever agreed in the portal and logged out before the program came has not agreed.
    ask_for_login(&v, &p);
    buf_clear(&line);
    buf_addf(&line, "POST /v1/devices/%s", p.user_code);
    fake_expect(ask(&v, buf_str(&line), v.cookie, SAME, "{\"allow\":true}"), 200, NULL);
    fake_expect(ask(&v, "POST /v1/logout", v.cookie, SAME, NULL), 200, NULL);
    fake_expect(fetch_token(&v, &p), 401, "has ended since");
    close_visit(&v);
}

static struct fake_request *look(struct visit *v, const struct net_peer *who, const char *code) {
    cleanup_buf struct buf path = {0};
    buf_addf(&path, "/v1/devices/%s", code);
    return rig_call(&v->r, who, "GET", buf_str(&path), NULL);
}

// Many users share an address: one of them who asks over and over keeps nobody from logging in.
static void floods_of_programs_keep_nobody_out(void **state) {
    enum { FLOOD = 40 };  // one address may have fewer codes that can be typed
    struct visit v;
    struct program typed, linked, looked_at, p;
    open_visit(&v);
    rig_authority(&v.r);
    ask_for_login(&v, &linked);
    ask_for_login(&v, &looked_at);
    fake_expect(look(&v, &fake_alice, looked_at.user_code), 200, "laptop");
    for (int i = 0; i < FLOOD; i++)
        ask_for_login(&v, &p);
    ask_for_login(&v, &typed);
    assert_true(strcmp(typed.user_code, linked.user_code) != 0);
    fake_expect(answer(&v, &fake_alice, &typed, true), 200, NULL);
    fake_expect(fetch_token(&v, &typed), 200, "\"user\":\"alice\"");
    // Too many came after it for its code to be known; the program still waits, and its link works.
    fake_expect(look(&v, &fake_alice, linked.user_code), 404, "no program waits");
    fake_expect(fetch_token(&v, &linked), 200, "\"state\":\"pending\"");
    fake_expect(look(&v, &fake_alice, linked.link), 200, linked.user_code);
    for (int i = 0; i < FLOOD; i++)
        ask_for_login(&v, &p);
    fake_expect(answer(&v, &fake_alice, &linked, true), 200, NULL);  // what somebody has opened stays
    fake_expect(fetch_token(&v, &linked), 200, "\"user\":\"alice\"");
    fake_expect(look(&v, &fake_alice, linked.link), 404, NULL);
    fake_expect(answer(&v, &fake_alice, &looked_at, false), 200, NULL);
    fake_expect(fetch_token(&v, &looked_at), 200, "\"state\":\"denied\"");
    // A code is good for what it was made for, as it was made.
    fake_expect(look(&v, &fake_alice, p.device_code), 404, NULL);
    snprintf(p.device_code, sizeof p.device_code, "%s", p.link);
    fake_expect(fetch_token(&v, &p), 200, "\"state\":\"expired\"");
    p.link[10] = p.link[10] == '1' ? '2' : '1';
    fake_expect(look(&v, &fake_alice, p.link), 404, NULL);
    close_visit(&v);
}

static void tokens_allow_their_scopes(void **state) {
    struct visit v;
    char token[256];
    open_visit(&v);
    rig_authority(&v.r);
    const char *job = "{\"spec\":{\"argv\":[\"true\"],\"workdir\":\"/\"}}";
    make_token(&v, &fake_alice, "{\"kind\":\"user\",\"scopes\":[\"read\"]}", token);
    fake_expect(by_token(&v, token, "GET /v1/jobs", NULL), 200, NULL);
    fake_expect(by_token(&v, token, "POST /v1/jobs", job), 403, "for reading");
    fake_expect(by_token(&v, token, "POST /v1/jobs/cancel", "{\"all\":true}"), 403, NULL);
    fake_expect(by_token(&v, token, "POST /v1/tokens", "{\"kind\":\"user\"}"), 403, NULL);
    // An administrator's without admin is a plain user's.
    make_token(&v, &fake_root, "{\"kind\":\"user\",\"scopes\":[\"submit\"]}", token);
    fake_expect(by_token(&v, token, "GET /v1/audit", NULL), 403, NULL);
    fake_expect(by_token(&v, token, "POST /v1/jobs", job), 201, NULL);
    // With a short life: one as long as the token's own would be refused for that, if a millisecond has passed.
    fake_expect(by_token(&v, token, "POST /v1/tokens", "{\"kind\":\"user\",\"ttl_s\":60}"), 403, "allows no more");
    fake_expect(by_token(&v, token, "POST /v1/portal", NULL), 403, NULL);
    fake_expect(
        by_token(&v, token, "POST /v1/tokens", "{\"kind\":\"user\",\"scopes\":[\"read\"],\"ttl_s\":60}"), 201,
        NULL);
    make_token(&v, &fake_root, "{\"kind\":\"user\"}", token);
    fake_expect(by_token(&v, token, "GET /v1/audit", NULL), 200, NULL);
    // Of one project.
    fake_expect(rig_call(&v.r, &fake_root, "PUT", "/v1/projects/vision", "{\"name\":\"vision\"}"), 200, NULL);
    make_token(&v, &fake_alice, "{\"kind\":\"user\",\"project\":\"vision\"}", token);
    struct fake_request *q = by_token(&v, token, "POST /v1/jobs", job);
    fake_expect(q, 201, NULL);
    cleanup_buf struct buf line = {0};
    buf_addf(&line, "GET /v1/jobs/%lld", (long long)json_i64(fake_json(q), "id", 0));
    fake_expect(by_token(&v, token, buf_str(&line), NULL), 200, "\"project\":\"vision\"");
    fake_expect(by_token(&v, token, "POST /v1/jobs",
                         "{\"spec\":{\"argv\":[\"true\"],\"workdir\":\"/\",\"project\":\"default\"}}"),
                403, "project vision alone");
    q = rig_call(&v.r, &fake_alice, "POST", "/v1/jobs",
                 "{\"spec\":{\"argv\":[\"true\"],\"workdir\":\"/\",\"project\":\"default\"}}");
    buf_clear(&line);
    buf_addf(&line, "GET /v1/jobs/%lld/script", (long long)json_i64(fake_json(q), "id", 0));
    fake_expect(by_token(&v, token, buf_str(&line), NULL), 403, NULL);
    fake_expect(rig_call(&v.r, &fake_alice, "POST", "/v1/tokens", "{\"kind\":\"user\",\"scopes\":[\"all\"]}"),
                400, "scopes");
    close_visit(&v);
}

static void roles(void **state) {
    struct visit v;
    open_visit(&v);
    struct rig *r = &v.r;
    rig_agent(r, "n1");
    struct fake_request *q = rig_call(r, &fake_bob, "POST", "/v1/jobs",
                                      "{\"spec\":{\"hold\":true,\"argv\":[\"true\"],\"workdir\":\"/\"}}");
    fake_expect(q, 201, NULL);
    char cancel[64], update[160];
    long long id = (long long)json_i64(fake_json(q), "id", 0);
    snprintf(cancel, sizeof cancel, "{\"ids\":[\"%lld\"]}", id);
    snprintf(update, sizeof update, "{\"ids\":[\"%lld\"],\"spec\":{\"argv\":[\"id\"]}}", id);
    fake_expect(rig_call(r, &fake_alice, "POST", "/v1/nodes/n1/drain", "{\"reason\":\"x\"}"), 403,
                "operator");
    fake_expect(
        rig_call(r, &fake_root, "PUT", "/v1/users/alice", "{\"unix_user\":\"alice\",\"role\":\"operator\"}"),
        200, NULL);
    fake_expect(rig_call(r, &fake_alice, "GET", "/v1/me", NULL), 200, "\"role\":\"operator\"");
    fake_expect(rig_call(r, &fake_alice, "POST", "/v1/nodes/n1/drain", "{\"reason\":\"x\"}"), 200, NULL);
    fake_expect(rig_call(r, &fake_alice, "GET", "/v1/audit", NULL), 403, NULL);
    // She arranges others' jobs, and neither reads them nor changes what runs.
    fake_expect(rig_call(r, &fake_alice, "POST", "/v1/jobs/update", update), 200,
                "of another user's job only");
    cleanup_buf struct buf line = {0};
    buf_addf(&line, "/v1/jobs/%lld/script", id);
    fake_expect(rig_call(r, &fake_alice, "GET", buf_str(&line), NULL), 403, NULL);
    fake_expect(rig_call(r, &fake_alice, "POST", "/v1/jobs/cancel", cancel), 200, NULL);
    // A lead: the project's jobs and its members, nothing else.
    fake_expect(rig_call(r, &fake_root, "PUT", "/v1/users/alice", "{\"role\":\"user\"}"), 200, NULL);
    fake_expect(rig_call(r, &fake_root, "PUT", "/v1/projects/lab",
                         "{\"name\":\"lab\",\"leads\":[\"alice\"],\"members\":[\"bob\"]}"),
                200, NULL);
    q = rig_call(r, &fake_bob, "POST", "/v1/jobs",
                 "{\"spec\":{\"hold\":true,\"argv\":[\"true\"],\"workdir\":\"/\",\"project\":\"lab\"}}");
    fake_expect(q, 201, NULL);
    snprintf(cancel, sizeof cancel, "{\"ids\":[\"%lld\"]}", (long long)json_i64(fake_json(q), "id", 0));
    fake_expect(rig_call(r, &fake_alice, "PUT", "/v1/projects/lab",
                         "{\"name\":\"lab\",\"leads\":[\"alice\"],\"members\":[\"bob\",\"carol\"]}"),
                200, NULL);
    fake_expect(
        rig_call(r, &fake_alice, "PUT", "/v1/projects/lab",
                 "{\"name\":\"lab\",\"leads\":[\"alice\"],\"members\":[\"bob\"],\"quota_milligpu\":9000}"),
        403, "a lead");
    fake_expect(rig_call(r, &fake_bob, "PUT", "/v1/projects/lab", "{\"name\":\"lab\"}"), 403, NULL);
    fake_expect(rig_call(r, &fake_alice, "POST", "/v1/jobs/cancel", cancel), 200, "\"done\":1");
    close_visit(&v);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_code_logs_in_once),
                                       cmocka_unit_test(other_pages_change_nothing),
                                       cmocka_unit_test(other_pages_open_no_websocket),
                                       cmocka_unit_test(no_fixation),
                                       cmocka_unit_test(sessions_are_ones_own),
                                       cmocka_unit_test(own_users),
                                       cmocka_unit_test(a_login_overtaken_by_a_change),
                                       cmocka_unit_test(guessing_is_locked_out),
                                       cmocka_unit_test(a_flood_of_guesses_holds_up_itself),
                                       cmocka_unit_test(guessers_have_a_small_part),
                                       cmocka_unit_test(turns_go_round),
                                       cmocka_unit_test(guesses_are_always_counted),
                                       cmocka_unit_test(changes_of_passwords_take_turns),
                                       cmocka_unit_test(programs_are_logged_in_by_their_user),
                                       cmocka_unit_test(floods_of_programs_keep_nobody_out),
                                       cmocka_unit_test(tokens_allow_their_scopes),
                                       cmocka_unit_test(roles)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
