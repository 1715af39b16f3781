// Services of many replicas: how many are looked at in a turn of the loop. Wrong tokens of services: counted, locked out,
// in the audit log.
#include "rig.h"

#include <stdio.h>
#include <stdlib.h>

#include "../portal.h"
#include "../serve.h"
#include "base/text.h"

enum { SERVICES = 12, REPLICAS = 256 };

struct lab {
    struct rig r;
    char keys[40];
};

static void open_lab(struct lab *l) {
    *l = (struct lab){0};
    snprintf(l->keys, sizeof l->keys, "/tmp/acequia-serve-XXXXXX");
    assert_non_null(mkdtemp(l->keys));
    rig_open(&l->r);
    l->r.c.paths.keys = l->keys;
    l->r.c.config.cluster.max_jobs_per_user = 100000;
    serve_open(&l->r.c);
}

static void close_lab(struct lab *l) {
    rig_close(&l->r);
    rig_remove_folder(l->keys);
}

static void turn(struct rig *r) {
    serve_turn_ends(&r->c);
    rig_turn(r);
}

static void make(struct rig *r, const char *name, int replicas) {
    char body[300];
    snprintf(
        body, sizeof body,
        "{\"name\":\"%s\",\"replicas_min\":%d,\"replicas_max\":%d,\"spec\":{\"name\":\"s\",\"workdir\":\"/\","
        "\"argv\":[\"true\"],\"ports\":[\"http:8000\"]}}",
        name, replicas, replicas);
    fake_expect(rig_call(r, &fake_alice, "POST", "/v1/services", body), 201, NULL);
}

static uint32_t known(struct rig *r) {
    uint32_t n = 0;
    size_t it = 0;
    void *v;
    while (map_next(&r->c.serve->services, &it, NULL, &v))
        n += ((struct serve_service *)v)->replicas.len;
    return n;
}

// However many services change at once, one turn looks at a part of their replicas; all get their turn, round by round.
static void replicas_are_looked_at_in_slices(void **state) {
    struct lab l;
    open_lab(&l);
    for (int i = 0; i < SERVICES; i++) {
        char name[16];
        snprintf(name, sizeof name, "s%d", i);
        make(&l.r, name, REPLICAS);
    }
    for (int i = 0; i < 200 && known(&l.r) < SERVICES * REPLICAS; i++) {
        serve_tick(&l.r.c);
        turn(&l.r);
    }
    assert_int_equal(known(&l.r), SERVICES * REPLICAS);
    uint64_t before = l.r.c.serve->looks;
    l.r.c.serve->looked_max = 0;
    serve_tick(&l.r.c);
    int turns = 0;
    for (; l.r.c.serve->looks - before < SERVICES && turns < 50; turns++)
        turn(&l.r);
    assert_int_equal(l.r.c.serve->looks - before, SERVICES);  // each of them once
    assert_in_range(l.r.c.serve->looked_max, REPLICAS, SERVE_TURN_REPLICAS + REPLICAS);
    assert_true(turns >= SERVICES * REPLICAS / (SERVE_TURN_REPLICAS + REPLICAS));
    close_lab(&l);
}

static struct net_raw *ask(struct lab *l, const char *host, const char *token) {
    static const struct net_peer caller = {
        .kind = NET_PEER_HTTP, .uid = (uid_t)-1, .gid = (gid_t)-1, .address = "[127.0.0.1]:5000"};
    char head[600];
    int n = snprintf(head, sizeof head, "GET /x HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n",
                     host, token);
    struct net_raw *raw = rig_takeover(&l->r, &caller, head, (size_t)n);
    assert_non_null(raw);
    return raw;
}

static bool says(struct lab *l, struct net_raw *raw, const char *text) {
    bool found = strstr(buf_str(&raw->out), text) != NULL;
    if (!found)
        print_message("no %s in: %.300s\n", text, buf_str(&raw->out));
    fake_raw_leave(&l->r, raw);
    return found;
}

// Wrong tokens are answered late, as those of the API.
static bool says_after(struct lab *l, struct net_raw *raw, uint64_t delay_ms, const char *text) {
    assert_int_equal(raw->out.len, 0);
    assert_int_equal(raw->deadline_ms, delay_ms);
    fake_raw_deadline(&l->r, raw);
    return says(l, raw, text);
}

static void wrong_tokens_of_a_service_are_locked_out(void **state) {
    struct lab l;
    open_lab(&l);
    make(&l.r, "echo", 1);
    turn(&l.r);
    struct fake_request *q = rig_call(&l.r, &fake_alice, "POST", "/v1/services/echo/tokens", NULL);
    fake_expect(q, 201, NULL);
    char token[200], wrong[200], host[200];
    snprintf(token, sizeof token, "%s", json_str(fake_json(q), "token"));
    const char *url = json_str(fake_json(q), "url");
    snprintf(host, sizeof host, "%.*s", (int)strcspn(url + 7, "/"), url + 7);
    memcpy(wrong, token, sizeof wrong);
    size_t last = strlen(wrong) - 1;
    wrong[last] = wrong[last] == '0' ? '1' : '0';
    assert_false(says(&l, ask(&l, host, token), " 401 "));
    for (uint32_t i = 0; i < 10; i++)
        assert_true(says_after(&l, ask(&l, host, wrong), 100u << (i < 5 ? i : 5), " 401 "));
    assert_true(says_after(&l, ask(&l, host, wrong), 100, " 429 "));
    assert_true(says_after(&l, ask(&l, host, token), 100, " 429 "));      // also the right one, from there
    assert_true(says_after(&l, ask(&l, host, "aqs1.x"), 3200, " 401 "));  // none at all is a wrong one, too
    // Denials, and that a token was made, are in the audit log.
    q = rig_call(&l.r, &fake_root, "GET", "/v1/audit", NULL);
    fake_expect(q, 200, "GET /x");
    fake_expect(q, 200, "POST /v1/services/echo/tokens");
    fake_expect(q, 200, "\"on\":\"service ");
    assert_null(strstr(buf_str(&q->body), token + 10));
    close_lab(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(replicas_are_looked_at_in_slices),
                                       cmocka_unit_test(wrong_tokens_of_a_service_are_locked_out)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
