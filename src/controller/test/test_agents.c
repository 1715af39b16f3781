// Agents' connections: who may dial in, hello, reports, oversized and malformed messages, launches and ends.
#include "rig.h"

#include <stdio.h>

#include "base/text.h"

#define JOB "{\"spec\":{\"name\":\"t\",\"workdir\":\"/\",\"argv\":[\"true\"]}}"

static void refused(const struct net_ws *ws, const char *why) {
    assert_true(ws->closed);
    assert_int_equal(ws->status, WS_POLICY);
    if (!strstr(ws->reason, why))
        fail_msg("refused with: %s", ws->reason);
}

static const char *state_of(struct rig *r, uint64_t id) {
    struct job_view v;
    return core_view(r->c.core, id, &v) ? job_state_words[v.state] : "ended";
}

static void only_agents_may_dial_in(void **state) {
    struct rig r;
    rig_open(&r);
    assert_null(rig_socket(&r, &fake_alice, "/v1/agent"));
    fake_expect(r.requests.at[0], 403, "only an agent");
    struct net_peer nobody = fake_tls("[10.0.0.1]:1000", NULL), other = fake_tls("[10.0.0.1]:1000", "n1");
    assert_null(rig_socket(&r, &nobody, "/v1/agent"));
    struct net_ws *ws =
        rig_socket(&r, &other, "/v1/agent");  // signed by us, but not of a node that has joined
    assert_non_null(ws);
    rig_hello(&r, ws, "n1");
    refused(ws, "the certificate is not valid for this node");
    assert_int_equal(r.c.agents.len, 0);
    rig_close(&r);
}

static void hello_comes_first(void **state) {
    struct rig r;
    rig_open(&r);
    struct net_ws *ws = rig_socket(&r, &fake_root, "/v1/agent");
    rig_message(&r, ws, MESSAGE_STARTED, &(struct message_started){.id = 1, .attempt = 1});
    refused(ws, "the first message must be a hello");
    ws = rig_socket(&r, &fake_root, "/v1/agent");
    rig_message(&r, ws, MESSAGE_HELLO, &(struct message_hello){.protocol = 1});
    refused(ws, "the hello names no node");
    ws = rig_socket(&r, &fake_root, "/v1/agent");
    rig_hello(&r, ws, "");
    refused(ws, "the hello names no node");
    ws = rig_socket(&r, &fake_root, "/v1/agent");
    rig_hello(&r, ws, "not a name");
    assert_true(ws->closed && r.c.agents.len == 0);
    rig_close(&r);
}

// A copied disk: the second agent does not take the first one's place, and the jobs of the first go on.
static void a_second_agent_of_one_name_is_refused(void **state) {
    struct rig r;
    rig_open(&r);
    r.c.config.cluster.heartbeat_s = 3600;
    struct net_ws *first = rig_agent(&r, "n1"), *second = rig_socket(&r, &fake_root, "/v1/agent");
    struct node copy = {
        .name = "n1", .cpus = 8, .memory_bytes = 16ULL << 30, .boot_id = "b2", .spool_id = "s2"};
    struct message_hello hello = {.node = &copy, .protocol = 1, .level = FEATURE_LEVEL_NEWEST};
    rig_message(&r, second, MESSAGE_HELLO, &hello);
    refused(second, "another agent is connected as this node");
    assert_false(first->closed);
    assert_non_null(agents_problem(&r.c));
    assert_non_null(strstr(agents_problem(&r.c), "node n1"));
    // The first one's own new connection is taken, whatever the old one says.
    struct net_ws *again = rig_socket(&r, &fake_root, "/v1/agent");
    rig_hello(&r, again, "n1");
    assert_true(first->closed && !again->closed);
    // A machine that was restarted is taken once its old connection is silent.
    r.c.config.cluster.heartbeat_s = 0;
    struct net_ws *restarted = rig_socket(&r, &fake_root, "/v1/agent");
    rig_message(&r, restarted, MESSAGE_HELLO, &hello);
    assert_true(again->closed && !restarted->closed);
    rig_close(&r);
}

static void a_hello_is_welcomed(void **state) {
    struct rig r;
    cleanup_arena struct arena a = {0};
    rig_open(&r);
    r.c.config.cluster.heartbeat_s = 7;
    struct net_ws *ws = rig_socket(&r, &fake_root, "/v1/agent");
    assert_int_equal(ws->limit, 2 << 20);  // before it is accepted little is received
    rig_hello(&r, ws, "n1");
    assert_int_equal(ws->limit, 4 << 20);
    const struct message_welcome *w = fake_next_message(ws, MESSAGE_WELCOME, &a);
    assert_true(w && w->heartbeat_s == 7 && streq(w->cluster, "test"));
    fake_expect(rig_call(&r, &fake_alice, "GET", "/v1/nodes/n1", NULL), 200, "\"cpus\":8");
    rig_hello(&r, ws, "n2");
    refused(ws, "a connection is for one node");
    rig_close(&r);
}

// What a node knows of a lost journal must outlive the moment until its hello is recorded.
static void a_position_is_told_once_the_hello_is_recorded(void **state) {
    struct rig r;
    cleanup_arena struct arena a = {0};
    rig_open(&r);
    struct net_ws *ws = rig_agent(&r, "n1");
    struct agent_conn *agent = strmap_get(&r.c.agents, "n1");
    assert_true(agent->hello_seq > 0);
    assert_null(((const struct message_welcome *)fake_next_message(ws, MESSAGE_WELCOME, &a))->at);
    agents_ping(&r.c);
    const struct message_ping *ping = fake_next_message(ws, MESSAGE_PING, &a);
    assert_true(ping && ping->at && ping->at->seq >= agent->hello_seq);
    agent->hello_seq = core_seq(r.c.core) + 1;  // as if its hello were not committed yet
    agents_ping(&r.c);
    ping = fake_next_message(ws, MESSAGE_PING, &a);
    assert_true(ping && !ping->at);
    rig_close(&r);
}

static void a_new_connection_takes_the_place_of_a_dead_one(void **state) {
    struct rig r;
    rig_open(&r);
    struct net_ws *old = rig_agent(&r, "n1"), *fresh = rig_agent(&r, "n1");
    assert_true(old->closed && !fresh->closed);
    assert_ptr_equal(((struct agent_conn *)strmap_get(&r.c.agents, "n1"))->ws, fresh);
    fake_expect(rig_call(&r, &fake_alice, "GET", "/v1/nodes/n1", NULL), 200, "\"state\":\"idle\"");
    fake_hang_up(&r, fresh);
    assert_null(strmap_get(&r.c.agents, "n1"));
    rig_close(&r);
}

static void what_cannot_be_read_ends_the_connection(void **state) {
    struct rig r;
    struct net_ws *ws;
    char *large = calloc(1, (4 << 20) + 1);
    rig_open(&r);
    ws = rig_agent(&r, "n1");
    fake_text(&r, ws, "{\"hello\":1}");
    refused(ws, "cannot be read");
    ws = rig_agent(&r, "n1");
    fake_binary(&r, ws, "\x03\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12);
    refused(ws, "cannot be read");
    ws = rig_agent(&r, "n1");
    fake_binary(&r, ws, "", 0);
    refused(ws, "cannot be read");
    ws = rig_agent(&r, "n1");
    rig_message(&r, ws, MESSAGE_WELCOME, &(struct message_welcome){.heartbeat_s = 1});  // that is ours to say
    refused(ws, "cannot be read");
    ws = rig_agent(&r, "n1");
    fake_binary(&r, ws, large, (4 << 20) + 1);
    assert_true(ws->closed && ws->status == WS_TOO_BIG);
    ws = rig_socket(&r, &fake_root, "/v1/agent");
    fake_binary(&r, ws, large, (2 << 20) + 1);
    assert_true(ws->closed && ws->status == WS_TOO_BIG);
    free(large);
    assert_false(rig_agent(&r, "n1")->closed);  // and the controller goes on
    rig_close(&r);
}

// A type that this release does not know is skipped, not held against a later agent.
static void messages_of_later_releases_are_skipped(void **state) {
    struct rig r;
    cleanup_buf struct buf b = {0};
    rig_open(&r);
    struct net_ws *ws = rig_agent(&r, "n1");
    schema_put_varint(&b, 999);
    buf_adds(&b, "anything");
    fake_binary(&r, ws, b.data, b.len);
    assert_false(ws->closed);
    struct net_ws *unknown = rig_socket(&r, &fake_root, "/v1/agent");
    fake_binary(&r, unknown, b.data, b.len);
    refused(unknown, "cannot be read");  // before its hello nobody is of a later release
    rig_close(&r);
}

// The same field several times in a message: two readers could understand it differently, so it is refused.
static void repeated_fields_are_refused(void **state) {
    struct rig r;
    cleanup_buf struct buf once = {0}, b = {0};
    rig_open(&r);
    struct net_ws *ws = rig_socket(&r, &fake_root, "/v1/agent");
    struct node first = {.name = "n1", .cpus = 4, .memory_bytes = 1 << 30, .boot_id = "b", .spool_id = "s"};
    struct node second = {.name = "n2", .cpus = 8, .memory_bytes = 1 << 30, .boot_id = "b", .spool_id = "s"};
    struct message_hello h = {.node = &first, .protocol = 1};
    message_encode(&(struct message){MESSAGE_HELLO, &h}, &b);
    h = (struct message_hello){.node = &second};
    message_encode(&(struct message){MESSAGE_HELLO, &h}, &once);
    const uint8_t *at = (const uint8_t *)once.data;
    uint64_t type;
    schema_get_varint(&at, at + once.len, &type);
    buf_add(&b, at, once.len - (size_t)(at - (const uint8_t *)once.data));
    fake_binary(&r, ws, b.data, b.len);
    refused(ws, "cannot be read");
    assert_int_equal(r.c.agents.len, 0);
    rig_close(&r);
}

static void run_job(struct rig *r, struct net_ws *ws, struct arena *a) {
    fake_expect(rig_call(r, &fake_alice, "POST", "/v1/jobs", JOB), 201, NULL);
    const struct message_launch *m = fake_next_message(ws, MESSAGE_LAUNCH, a);
    assert_non_null(m);
    assert_true(m->id == 1 && m->attempt == 1 && streq(m->spec->user, "alice") && m->spec->uid == 1001);
    assert_string_equal(state_of(r, 1), "STARTING");
    rig_message(r, ws, MESSAGE_STARTED,
                &(struct message_started){.id = 1, .attempt = 1, .pid = 77, .at_ms = controller_now_ms()});
    assert_string_equal(state_of(r, 1), "RUNNING");
}

static void a_job_is_launched_and_ends(void **state) {
    struct rig r;
    cleanup_arena struct arena a = {0};
    rig_open(&r);
    struct net_ws *ws = rig_agent(&r, "n1");
    run_job(&r, ws, &a);
    struct message_ended end = {.id = 1, .attempt = 1, .exit_code = 3, .start_ms = 1, .end_ms = 2};
    struct message_ended stale = {.id = 1, .attempt = 9, .exit_code = 9};
    rig_message(&r, ws, MESSAGE_ENDED, &stale);
    assert_string_equal(state_of(&r, 1), "RUNNING");
    rig_message(&r, ws, MESSAGE_ENDED, &end);
    struct fake_request *q = rig_call(&r, &fake_alice, "GET", "/v1/jobs/1", NULL);
    fake_expect(q, 200, "\"state\":\"FAILED\"");
    assert_int_equal(json_i64(fake_json(q), "exit_code", 0), 3);
    assert_non_null(fake_next_message(ws, MESSAGE_ACK, &a));
    end.exit_code = 0;
    rig_message(&r, ws, MESSAGE_ENDED, &end);  // repeated, even with another exit: the first one counts
    assert_non_null(fake_next_message(ws, MESSAGE_ACK, &a));
    fake_expect(rig_call(&r, &fake_alice, "GET", "/v1/jobs/1", NULL), 200, "\"state\":\"FAILED\"");
    rig_close(&r);
}

static void a_node_speaks_for_what_runs_on_it(void **state) {
    struct rig r;
    cleanup_arena struct arena a = {0};
    struct usage used = {.cpu_user_us = 500};
    struct message_usage m = {
        .id = 1, .attempt = 1, .usage = &used, .memory_now_bytes = 1000, .processes = 2};
    rig_open(&r);
    struct net_ws *ws = rig_agent(&r, "n1");
    run_job(&r, ws, &a);
    struct net_ws *other = rig_agent(&r, "n2");
    rig_message(&r, other, MESSAGE_USAGE, &m);
    assert_null(map_get(&r.c.live, 1));
    rig_message(&r, other, MESSAGE_ENDED, &(struct message_ended){.id = 1, .attempt = 1, .exit_code = 1});
    assert_string_equal(state_of(&r, 1), "RUNNING");
    rig_message(&r, ws, MESSAGE_USAGE, &m);
    rig_message(&r, ws, MESSAGE_USAGE, &m);  // again: it replaces, it does not add
    const struct live_usage *u = map_get(&r.c.live, 1);
    assert_true(u && u->memory_now_bytes == 1000 && u->processes == 2 && u->usage.cpu_user_us == 500);
    m.usage = NULL;
    m.memory_now_bytes = 5;
    rig_message(&r, ws, MESSAGE_USAGE, &m);  // without figures it says nothing
    assert_int_equal(((const struct live_usage *)map_get(&r.c.live, 1))->memory_now_bytes, 1000);
    rig_message(&r, ws, MESSAGE_ENDED,
                &(struct message_ended){.id = 1, .attempt = 1, .start_ms = 1, .end_ms = 2});
    assert_null(map_get(&r.c.live, 1));
    rig_close(&r);
}

static void a_busy_connection_gets_no_launches(void **state) {
    struct rig r;
    cleanup_arena struct arena a = {0};
    rig_open(&r);
    struct net_ws *ws = rig_agent(&r, "n1");
    ws->pending = LAUNCH_BACKLOG_BYTES;
    fake_expect(rig_call(&r, &fake_alice, "POST", "/v1/jobs", JOB), 201, NULL);
    assert_null(fake_next_message(ws, MESSAGE_LAUNCH, &a));
    ws->pending = 0;
    ws->callbacks.on_drain(ws, ws->user);
    rig_settle(&r);
    assert_non_null(fake_next_message(ws, MESSAGE_LAUNCH, &a));
    rig_close(&r);
}

static void check_nodes(struct rig *r, int64_t *mono_ms, uint32_t seconds) {
    for (uint32_t i = 0; i < seconds; i++)
        pipeline_check_nodes(r->c.pipeline, *mono_ms += 1000, 10000, controller_now_ms());
    rig_settle(r);
}

// A node that was given up comes back and is to clear away its old attempt before it is up: when nothing more is heard
// of it, its connection ends as that of any node, and who waits for its output learns that none comes.
static void a_node_that_is_down_is_not_waited_for(void **state) {
    struct rig r;
    cleanup_arena struct arena a = {0};
    struct node_view v;
    int64_t mono_ms = 1000;
    rig_open(&r);
    struct net_ws *ws = rig_agent(&r, "n1");
    run_job(&r, ws, &a);
    check_nodes(&r, &mono_ms, 15);
    assert_true(ws->closed && core_node(r.c.core, "n1", &v) && v.state == NODE_DOWN);
    struct node n = {.name = "n1", .cpus = 8, .memory_bytes = 16ULL << 30, .boot_id = "b", .spool_id = "s"};
    struct attempt old = {.id = 1, .attempt = 1};
    struct message_hello hello = {
        .node = &n, .protocol = 1, .level = FEATURE_LEVEL_NEWEST, .attempts = {&old, 1}};
    struct net_ws *back = rig_socket(&r, &fake_root, "/v1/agent");
    rig_message(&r, back, MESSAGE_HELLO, &hello);
    assert_true(core_node(r.c.core, "n1", &v) && v.state == NODE_DOWN);
    check_nodes(&r, &mono_ms, 5);
    assert_false(back->closed);
    check_nodes(&r, &mono_ms, 10);
    assert_true(back->closed && r.c.agents.len == 0);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_agents_may_dial_in),
        cmocka_unit_test(hello_comes_first),
        cmocka_unit_test(a_second_agent_of_one_name_is_refused),
        cmocka_unit_test(a_hello_is_welcomed),
        cmocka_unit_test(a_position_is_told_once_the_hello_is_recorded),
        cmocka_unit_test(a_new_connection_takes_the_place_of_a_dead_one),
        cmocka_unit_test(what_cannot_be_read_ends_the_connection),
        cmocka_unit_test(messages_of_later_releases_are_skipped),
        cmocka_unit_test(repeated_fields_are_refused),
        cmocka_unit_test(a_job_is_launched_and_ends),
        cmocka_unit_test(a_node_speaks_for_what_runs_on_it),
        cmocka_unit_test(a_busy_connection_gets_no_launches),
        cmocka_unit_test(a_node_that_is_down_is_not_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
