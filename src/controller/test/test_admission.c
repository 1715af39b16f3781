// Who gets in over TLS: tokens, wrong tokens, and what needs no user.
#include "rig.h"

#include <stdio.h>

#include "base/text.h"
#include "net/token.h"

struct visitor {
    struct rig r;
    char token[TOKEN_TEXT_LEN + 1], id[TOKEN_ID_HEX + 1];
};

static struct fake_request *ask(struct rig *r, const char *address, const char *token, const char *line,
                                const char *body) {
    struct net_peer p = fake_tls(address, NULL);
    cleanup_buf struct buf head = {0};
    buf_addf(&head, "%s HTTP/1.1\r\n", line);
    if (token)
        buf_addf(&head, "Authorization: Bearer %s\r\n", token);
    return rig_bytes(r, &p, buf_str(&head), body);
}

static void open_visitor(struct visitor *v) {
    rig_open(&v->r);
    rig_authority(&v->r);
    struct fake_request *q =
        rig_call(&v->r, &fake_alice, "POST", "/v1/tokens", "{\"kind\":\"user\",\"ttl_s\":600}");
    fake_expect(q, 201, NULL);
    snprintf(v->token, sizeof v->token, "%s", json_str(fake_json(q), "token"));
    snprintf(v->id, sizeof v->id, "%s", json_str(fake_json(q), "id"));
}

static void a_token_is_its_user(void **state) {
    struct visitor v;
    open_visitor(&v);
    struct fake_request *q = ask(&v.r, "[10.0.0.1]:1000", v.token, "GET /v1/status", NULL);
    fake_expect(q, 200, NULL);
    assert_string_equal(q->admission.account, "user alice");
    assert_string_equal(q->pub.who, "alice");
    assert_string_equal(q->pass, v.id);  // its connection ends with the token
    fake_expect(ask(&v.r, "[10.0.0.1]:1000", v.token, "GET /v1/audit", NULL), 403, "you are alice");
    fake_expect(rig_call(&v.r, &fake_bob, "DELETE", "/v1/tokens/0000000000000000", NULL), 404, NULL);
    cleanup_buf struct buf target = {0};
    buf_addf(&target, "/v1/tokens/%s", v.id);
    fake_expect(rig_call(&v.r, &fake_bob, "DELETE", buf_str(&target), NULL), 404,
                NULL);  // not even that it exists
    fake_expect(rig_call(&v.r, &fake_alice, "DELETE", buf_str(&target), NULL), 200, NULL);
    fake_expect(ask(&v.r, "[10.0.0.1]:1000", v.token, "GET /v1/status", NULL), 401, "revoked");
    rig_close(&v.r);
}

static void without_a_token_nothing_is_read(void **state) {
    struct visitor v;
    open_visitor(&v);
    struct fake_request *q = ask(&v.r, "[10.0.0.1]:1000", NULL, "POST /v1/jobs", "{}");
    fake_expect(q, 401, "Not authenticated");
    assert_int_equal(q->admission.delay_ms, 0);
    assert_int_equal(v.r.c.requests, 1);  // the making of the token: this one got no further
    // Joining and agents prove themselves otherwise, with a small body.
    q = ask(&v.r, "[10.0.0.1]:1000", NULL, "POST /v1/join",
            "{\"token\":\"x\",\"csr\":\"y\",\"name\":\"n1\"}");
    fake_expect(q, 400, NULL);
    assert_int_equal(q->admission.body_max, NET_SMALL_BODY_BYTES);
    fake_expect(ask(&v.r, "[10.0.0.1]:1000", NULL, "GET /v1/agent", NULL), 403, "certificate");
    rig_close(&v.r);
}

static void wrong_tokens_take_longer_and_longer(void **state) {
    static const uint32_t delays[] = {100, 200, 400, 800, 1600, 3200, 3200};
    struct visitor v;
    open_visitor(&v);
    for (size_t i = 0; i < sizeof delays / sizeof *delays; i++) {
        struct fake_request *q = ask(&v.r, "[10.0.0.1]:1000", "nonsense", "GET /v1/status", NULL);
        fake_expect(q, 401, "Not authenticated");
        assert_int_equal(q->admission.delay_ms, delays[i]);
    }
    // The port does not matter, the address does; the right token is not slowed down.
    assert_int_equal(ask(&v.r, "[10.0.0.1]:2222", "nonsense", "GET /v1/status", NULL)->admission.delay_ms,
                     3200);
    assert_int_equal(ask(&v.r, "[10.0.0.2]:1000", "nonsense", "GET /v1/status", NULL)->admission.delay_ms,
                     100);
    struct fake_request *right = ask(&v.r, "[10.0.0.1]:1000", v.token, "GET /v1/status", NULL);
    fake_expect(right, 200, NULL);
    assert_int_equal(right->admission.delay_ms, 0);
    rig_close(&v.r);
}

static void guessing_a_secret_locks_the_token_for_that_address(void **state) {
    struct visitor v;
    char wrong[TOKEN_TEXT_LEN + 1];
    open_visitor(&v);
    snprintf(wrong, sizeof wrong, "%s", v.token);
    char *digit = strchr(strchr(wrong, '.') + 1, '.') + 1;  // of the secret
    *digit = *digit == '0' ? '1' : '0';
    for (int i = 0; i < 9; i++)
        fake_expect(ask(&v.r, "[10.0.0.1]:1000", wrong, "GET /v1/status", NULL), 401, NULL);
    fake_expect(ask(&v.r, "[10.0.0.1]:1000", v.token, "GET /v1/status", NULL), 200, NULL);
    fake_expect(ask(&v.r, "[10.0.0.1]:1000", wrong, "GET /v1/status", NULL), 401, NULL);  // the tenth
    fake_expect(ask(&v.r, "[10.0.0.1]:1000", v.token, "GET /v1/status", NULL), 429, "Too many wrong secrets");
    fake_expect(ask(&v.r, "[10.0.0.2]:1000", v.token, "GET /v1/status", NULL), 200, NULL);
    struct fake_request *other = rig_call(&v.r, &fake_bob, "POST", "/v1/tokens", "{\"kind\":\"user\"}");
    fake_expect(ask(&v.r, "[10.0.0.1]:1000", json_str(fake_json(other), "token"), "GET /v1/status", NULL),
                200, NULL);
    rig_close(&v.r);
}

static void tokens_are_for_those_who_may_have_them(void **state) {
    struct visitor v;
    open_visitor(&v);
    fake_expect(rig_call(&v.r, &fake_alice, "POST", "/v1/tokens", "{\"kind\":\"agent\"}"), 403, NULL);
    fake_expect(rig_call(&v.r, &fake_alice, "POST", "/v1/tokens", "{\"kind\":\"user\",\"user\":\"bob\"}"),
                403, NULL);
    fake_expect(rig_call(&v.r, &fake_root, "POST", "/v1/tokens", "{\"kind\":\"user\",\"user\":\"bob\"}"), 201,
                NULL);
    struct fake_request *q = rig_call(&v.r, &fake_alice, "GET", "/v1/tokens", NULL);
    fake_expect(q, 200, v.id);
    assert_null(strstr(buf_str(&q->body), "bob"));
    char secret[17] = "";
    memcpy(secret, strchr(strchr(v.token, '.') + 1, '.') + 1, 16);
    assert_null(strstr(buf_str(&q->body), secret));
    pki_ca_free(v.r.c.ca);
    v.r.c.ca = NULL;
    fake_expect(rig_call(&v.r, &fake_alice, "POST", "/v1/tokens", "{\"kind\":\"user\"}"), 400, "set listen");
    rig_close(&v.r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_token_is_its_user),
        cmocka_unit_test(without_a_token_nothing_is_read),
        cmocka_unit_test(wrong_tokens_take_longer_and_longer),
        cmocka_unit_test(guessing_a_secret_locks_the_token_for_that_address),
        cmocka_unit_test(tokens_are_for_those_who_may_have_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
