// Nodes that join, drain and leave; questions and their turn; figures and series.
#include "rig.h"

#include <stdio.h>
#include <unistd.h>

#include "../telemetry.h"
#include "base/clock.h"
#include "base/text.h"

#define JOB "{\"spec\":{\"name\":\"t\",\"workdir\":\"/\",\"argv\":[\"true\"]}}"

static struct fake_request *get(struct rig *r, const char *target) {
    return rig_call(r, &fake_alice, "GET", target, NULL);
}

// A key and a request that proves it is held; *text is what is sent to /v1/join.
static void make_request(const char *token, const char *name, struct buf *text) {
    char folder[] = "/tmp/acequia-join-XXXXXX", key[64];
    cleanup_buf struct buf csr = {0};
    struct error e = {0};
    assert_non_null(mkdtemp(folder));
    snprintf(key, sizeof key, "%s/key", folder);
    assert_int_equal(pki_key_create(key, &e), 0);
    assert_int_equal(pki_csr_create(key, name, &csr, &e), 0);
    unlink(key);
    rmdir(folder);
    struct request_join q = {.token = token, .csr = buf_str(&csr), .name = name};
    schema_write_given_json(&request_join_schema, &q, &(struct json_writer){.out = text});
}

static void a_node_joins_once_with_its_token(void **state) {
    struct rig r;
    struct error e = {0};
    cleanup_buf struct buf request = {0}, other = {0};
    rig_open(&r);
    rig_authority(&r);
    struct fake_request *q =
        rig_call(&r, &fake_root, "POST", "/v1/tokens", "{\"kind\":\"agent\",\"node\":\"n1\"}");
    fake_expect(q, 201, NULL);
    const char *token = json_str(fake_json(q), "token");
    struct net_peer stranger = fake_tls("[10.0.0.1]:1000", NULL);
    make_request(token, "n2", &other);
    fake_expect(rig_call(&r, &stranger, "POST", "/v1/join", buf_str(&other)), 401,
                "the token is for another node");
    make_request(token, "n1", &request);
    q = rig_call(&r, &stranger, "POST", "/v1/join", buf_str(&request));
    fake_expect(q, 200, "BEGIN CERTIFICATE");
    fake_expect(rig_call(&r, &stranger, "POST", "/v1/join", buf_str(&request)), 401,
                "wrong, used or expired");
    // With its certificate it is n1, and nobody else.
    const char *certificate = json_str(fake_json(q), "certificate");
    struct net_peer node = fake_tls("[10.0.0.1]:1001", "n1");
    assert_int_equal(pki_fingerprint(certificate, strlen(certificate), node.cert_sha256, &e), 0);
    struct net_ws *ws = rig_socket(&r, &node, "/v1/agent");
    rig_hello(&r, ws, "n2");
    assert_true(ws->closed);
    ws = rig_socket(&r, &node, "/v1/agent");
    rig_hello(&r, ws, "n1");
    assert_false(ws->closed);
    fake_expect(get(&r, "/v1/nodes/n1"), 200, "\"address\":\"[10.0.0.1]\"");
    // A node of its name on the controller's own machine does not take its place.
    struct net_ws *local = rig_socket(&r, &fake_root, "/v1/agent");
    rig_hello(&r, local, "n1");
    assert_true(local->closed && !ws->closed);
    fake_hang_up(&r, ws);
    fake_expect(rig_call(&r, &fake_root, "DELETE", "/v1/nodes/n1", NULL), 200, NULL);
    ws = rig_socket(&r, &node, "/v1/agent");
    rig_hello(&r, ws, "n1");
    assert_true(ws->closed);  // its certificate went with it
    rig_close(&r);
}

static void nodes_are_drained_and_resumed(void **state) {
    struct rig r;
    cleanup_arena struct arena a = {0};
    rig_open(&r);
    struct net_ws *ws = rig_agent(&r, "n1");
    fake_expect(rig_call(&r, &fake_alice, "POST", "/v1/nodes/n1/drain", "{\"reason\":\"x\"}"), 403, NULL);
    fake_expect(rig_call(&r, &fake_root, "POST", "/v1/nodes/n1/drain", "{}"), 400, "reason");
    fake_expect(rig_call(&r, &fake_root, "POST", "/v1/nodes/n9/drain", "{\"reason\":\"x\"}"), 404, "n9");
    fake_expect(rig_call(&r, &fake_root, "POST", "/v1/nodes/n1/drain", "{\"reason\":\"a fan\"}"), 200, NULL);
    fake_expect(get(&r, "/v1/nodes/n1"), 200, "a fan");
    fake_expect(rig_call(&r, &fake_alice, "POST", "/v1/jobs", JOB), 201, NULL);
    assert_null(fake_next_message(ws, MESSAGE_LAUNCH, &a));
    fake_expect(rig_call(&r, &fake_root, "POST", "/v1/nodes/n1/resume", NULL), 200, NULL);
    assert_non_null(fake_next_message(ws, MESSAGE_LAUNCH, &a));
    fake_expect(rig_call(&r, &fake_root, "DELETE", "/v1/nodes/n1", NULL), 409, "n1");
    rig_close(&r);
}

static void a_node_that_goes_away_is_silent(void **state) {
    struct rig r;
    rig_open(&r);
    struct net_ws *ws = rig_agent(&r, "n1");
    fake_hang_up(&r, ws);
    struct fake_request *q = get(&r, "/v1/nodes/n1");
    fake_expect(q, 200, NULL);
    assert_string_not_equal(json_str(fake_json(q), "state"), "idle");
    rig_agent(&r, "n1");
    q = get(&r, "/v1/nodes/n1");
    assert_string_equal(json_str(fake_json(q), "state"), "idle");
    rig_close(&r);
}

static void questions_are_answered(void **state) {
    struct rig r;
    rig_open(&r);
    rig_agent(&r, "n1");
    fake_expect(rig_call(&r, &fake_alice, "POST", "/v1/jobs",
                         "{\"spec\":{\"name\":\"h\",\"workdir\":\"/\",\"argv\":[\"true\"],\"hold\":true}}"),
                201, NULL);
    struct fake_request *q = get(&r, "/v1/jobs/1/why");
    rig_wait(&r, q);
    fake_expect(q, 200, "\"It is held by its user.\"");
    fake_expect(q, 200, "\"sentences\":[{\"code\":\"why_held_user\",\"values\":{}},{\"code\":\"why_nodes\",\"values\":{\"needed\":1,");
    q = rig_call(&r, &fake_alice, "POST", "/v1/when", "{\"spec\":{\"cpus_per_task\":2}}");
    rig_wait(&r, q);
    fake_expect(q, 200, "\"basis\":\"now\"");
    q = rig_call(&r, &fake_alice, "POST", "/v1/when", "{\"spec\":{\"cpus_per_task\":64}}");
    rig_wait(&r, q);
    fake_expect(q, 400, "the largest node it may use has 8");
    // To whoever is still writing it, a refusal is an answer; the script is looked at, too.
    q = rig_call(&r, &fake_alice, "POST", "/v1/when", "{\"spec\":{\"cpus_per_task\":64},\"check\":true}");
    rig_wait(&r, q);
    fake_expect(q, 200, "\"refused\":\"");
    q = rig_call(&r, &fake_alice, "POST", "/v1/when", "{\"spec\":{},\"check\":true,\"script\":\"\"}");
    rig_wait(&r, q);
    fake_expect(q, 200, "\"refused\":\"script: it is empty");
    q = rig_call(&r, &fake_alice, "POST", "/v1/when",
                 "{\"spec\":{},\"check\":true,\"script\":\"#!/bin/sh\\ntrue\\n\"}");
    rig_wait(&r, q);
    fake_expect(q, 200, "\"refused\":null");
    // Alternatives are answered in their order; one that would be refused does not spoil the others.
    q = rig_call(
        &r, &fake_alice, "POST", "/v1/when",
        "{\"spec\":{\"cpus_per_task\":2},\"instead\":[{\"cpus_per_task\":64},{\"time_limit_s\":3600},"
        "{\"cpus_per_task\":9,\"gpus_milli\":0}]}");
    rig_wait(&r, q);
    fake_expect(q, 200, "Alternative 1: refused: ");
    fake_expect(q, 200, "With a limit of 1h: starts at once");
    fake_expect(q, 200, "With 0 GPUs: refused: ");
    assert_int_equal(json_get(fake_json(q), "variants")->len, 4);
    q = rig_call(&r, &fake_alice, "POST", "/v1/when",
                 "{\"spec\":{},\"instead\":[{},{},{},{},{},{},{},{},{},{},{},{}]}");
    fake_expect(q, 400, "instead: there are 12 alternatives; a question may have 11");
    // What was refused in one question is not in the answer to the next, whose variants lie where those did.
    cleanup_buf struct buf refused = {0};
    for (int i = 0; i < 11; i++)
        buf_addf(&refused, "%s{\"cpus_per_task\":64}", i ? "," : "{\"spec\":{},\"instead\":[");
    buf_adds(&refused, "]}");
    q = rig_call(&r, &fake_alice, "POST", "/v1/when", buf_str(&refused));
    rig_wait(&r, q);
    fake_expect(q, 200, "Alternative 11: refused: ");
    q = rig_call(&r, &fake_alice, "POST", "/v1/when", "{\"spec\":{\"workers_min\":1,\"workers_max\":2}}");
    rig_wait(&r, q);
    fake_expect(q, 200, "With all 2 workers from the start: starts at once");
    rig_close(&r);
}

// An app that comes with the request is checked as those in folders are.
static void an_app_of_ones_own_is_started(void **state) {
    struct rig r;
    rig_open(&r);
    rig_agent(&r, "n1");
    fake_expect(rig_call(&r, &fake_alice, "POST", "/v1/apps/mine", "{\"workdir\":\"/\"}"), 404, "no app");
    fake_expect(rig_call(&r, &fake_alice, "POST", "/v1/apps/mine", "{\"workdir\":\"/\",\"app\":{}}"), 400,
                "it must begin with #!");
    fake_expect(rig_call(&r, &fake_alice, "POST", "/v1/apps/Mine",
                         "{\"workdir\":\"/\",\"app\":{\"script\":\"#!/bin/sh\\n\"}}"),
                400, "small letters");
    fake_expect(rig_call(&r, &fake_alice, "POST", "/v1/apps/mine",
                         "{\"workdir\":\"/\",\"values\":[\"word=x\"],\"app\":{\"script\":\"#!/bin/sh\\n\","
                         "\"fields\":[{\"name\":\"word\"}]}}"),
                201, NULL);
    struct fake_request *q = get(&r, "/v1/jobs?fields=tags,name,user");
    rig_wait(&r, q);
    fake_expect(q, 200, "app=mine");
    rig_close(&r);
}

static void questions_wait_for_their_turn(void **state) {
    struct rig r;
    struct fake_request *waiting[16], *q;
    rig_open(&r);
    rig_agent(&r, "n1");
    r.c.query_throttle_again_us = clock_mono_us() + 3600000000LL;  // an answer has just taken very long
    for (int i = 0; i < 16; i++) {
        waiting[i] = rig_call(&r, &fake_alice, "POST", "/v1/when", "{\"spec\":{}}");
        assert_int_equal(waiting[i]->status, 0);
    }
    fake_expect(rig_call(&r, &fake_alice, "POST", "/v1/when", "{\"spec\":{}}"), 429, "too many questions");
    q = rig_call(&r, &fake_bob, "POST", "/v1/when", "{\"spec\":{}}");
    assert_int_equal(q->status, 0);
    fake_leave(waiting[0]);
    assert_true(waiting[0]->done && r.c.questions.len == 16);
    fake_expect(get(&r, "/v1/status"), 200, NULL);  // everything else is answered meanwhile
    rig_close(&r);
}

static void figures_are_collected(void **state) {
    struct rig r;
    rig_open(&r);
    struct net_ws *ws = rig_agent(&r, "n1");
    rig_message(&r, ws, MESSAGE_TELEMETRY,
                &(struct message_telemetry){
                    .at_ms = controller_now_ms(), .cpu_milli = 250, .memory_used_bytes = 1 << 20});
    telemetry_tick(&r.c);
    struct fake_request *q = get(&r, "/v1/series");
    fake_expect(q, 200, NULL);
    const struct json *names = json_get(fake_json(q), "names");
    assert_true(names && names->len > 0);
    cleanup_buf struct buf target = {0};
    buf_adds(&target, "/v1/series?name=");
    http_percent_encode(&target, names->items[0].s);
    q = get(&r, buf_str(&target));
    fake_expect(q, 200, "\"points\":[[");
    const struct json *j = fake_json(q);
    assert_true(streq(json_str(j, "name"), names->items[0].s) && json_i64(j, "step_ms", 0) >= 1000);
    buf_adds(&target, "&from_ms=5&to_ms=4");
    fake_expect(get(&r, buf_str(&target)), 400, "range of time");
    q = get(&r, "/metrics");
    fake_expect(q, 200, "acequia_");
    assert_non_null(strstr(buf_str(&q->body), "# EOF"));
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_node_joins_once_with_its_token),
        cmocka_unit_test(nodes_are_drained_and_resumed),
        cmocka_unit_test(a_node_that_goes_away_is_silent),
        cmocka_unit_test(questions_are_answered),
        cmocka_unit_test(an_app_of_ones_own_is_started),
        cmocka_unit_test(questions_wait_for_their_turn),
        cmocka_unit_test(figures_are_collected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
