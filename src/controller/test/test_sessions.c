// WebSocket sessions: what clients send is validated, what they are sent is as the route's tables say, and streams are
// refused where they must be.
#include "rig.h"

#include <stdio.h>

#include "base/text.h"

#define JOB "{\"spec\":{\"name\":\"t\",\"workdir\":\"/\",\"argv\":[\"true\"]}}"
#define ATTACHED "{\"spec\":{\"name\":\"t\",\"workdir\":\"/\",\"argv\":[\"cat\"],\"attach\":true}}"
#define STEPS "{\"name\":\"t\",\"workdir\":\"/\",\"launch\":\"steps\"}"

static const struct route *route_of(const char *path) {
    for (size_t i = 0; i < api_route_count; i++)
        if (streq(api_routes[i].path, path))
            return &api_routes[i];
    fail_msg("there is no route %s", path);
    return NULL;
}

static bool is_one_of(const struct json *j, const struct schema *s) {
    bool same = j->type == JSON_OBJECT && j->len == s->count;
    for (uint32_t i = 0; same && i < j->len; i++)
        same = streq(j->members[i].key, s->fields[i].name);
    return same;
}

// Every text message that was sent has exactly the fields of one of the route's tables.
static void all_are_described(const struct net_ws *ws, const char *path) {
    const struct route *r = route_of(path);
    for (uint32_t i = 0; i < ws->sent.len; i++) {
        cleanup_arena struct arena a = {0};
        struct json *j;
        struct error e = {0};
        bool found = false;
        if (ws->sent.at[i].type != WS_TEXT)
            continue;
        assert_int_equal(json_parse(ws->sent.at[i].data, ws->sent.at[i].len, &a, &j, &e), 0);
        for (size_t k = 0; r->sent[k]; k++)
            found |= is_one_of(j, r->sent[k]);
        if (!found)
            fail_msg("%s sent %s", path, ws->sent.at[i].data);
    }
}

static void says(struct net_ws *ws, const char *text) {
    const char *m = fake_next_text(ws);
    if (!m || !strstr(m, text))
        fail_msg("%s was sent, not %s", m ? m : "nothing", text);
}

// Somewhere among the messages to come.
static void hears(struct net_ws *ws, const char *text) {
    for (const char *m; (m = fake_next_text(ws));)
        if (strstr(m, text))
            return;
    fail_msg("%s was not sent", text);
}

static void failed(struct net_ws *ws, const char *path, const char *text) {
    says(ws, "\"error\":{");
    ws->read--;
    says(ws, text);
    assert_true(ws->closed);
    all_are_described(ws, path);
}

static uint64_t start(struct rig *r, struct net_ws *agent, const char *body, struct arena *a) {
    struct fake_request *q = rig_call(r, &fake_alice, "POST", "/v1/jobs", body);
    fake_expect(q, 201, NULL);
    const struct message_launch *m = fake_next_message(agent, MESSAGE_LAUNCH, a);
    assert_non_null(m);
    rig_message(r, agent, MESSAGE_STARTED,
                &(struct message_started){.id = m->id, .attempt = 1, .at_ms = controller_now_ms()});
    return m->id;
}

static void first_messages_are_validated(void **state) {
    static const struct {
        const char *path, *target, *text, *says;
    } cases[] = {
        {"/v1/run", "/v1/run", "{", "not valid JSON"},
        {"/v1/run", "/v1/run", "[]", "expected a JSON object"},
        {"/v1/run", "/v1/run", "{}", "field \\\"spec\\\" is missing"},
        {"/v1/run", "/v1/run", JOB, "\\\"attach\\\" of the spec must be true"},
        {"/v1/run", "/v1/run", "{\"spec\":{\"attach\":true,\"nise\":1}}", "did you mean"},
        {"/v1/jobs/{job}/exec", "/v1/jobs/1/exec", "{\"argv\":\"ls\"}",
         "field \\\"argv\\\": expected a list"},
        {"/v1/jobs/{job}/exec", "/v1/jobs/1/exec", "{\"argv\":[1]}", "field \\\"argv\\\": expected text"},
        {"/v1/jobs/{job}/exec", "/v1/jobs/1/exec", "{\"rows\":10001}", "out of range"},
        {"/v1/jobs/{job}/exec", "/v1/jobs/1/exec", "{\"argv\":[\"ls\"],\"node\":1}",
         "has 1 node, counted from 0"},
        {"/v1/jobs/{job}/exec", "/v1/jobs/1/exec", "{\"argv\":[\"ls\"],\"node\":-1}", "there is no -1"},
        {"/v1/jobs/{job}/exec", "/v1/jobs/1/exec", "{\"shell\":true}", "unknown field \\\"shell\\\""},
        {"/v1/jobs/{job}/step", "/v1/jobs/1/step", "{\"task\":1}", "did you mean \\\"tasks\\\""},
        {"/v1/jobs/{job}/step", "/v1/jobs/1/step", "{}", "there is nothing to run"},
        {"/v1/jobs/{job}/step", "/v1/jobs/1/step", "{\"argv\":[\"ls\"],\"tasks\":-1}", "out of range"},
        {"/v1/jobs/{job}/step", "/v1/jobs/1/step", "{\"argv\":[\"ls\"],\"umask\":512}", "out of range"},
        {"/v1/jobs/{job}/step", "/v1/jobs/1/step", "{\"argv\":[\"ls\"],\"nodelist\":\"n[\"}", "error"},
        {"/v1/jobs/{job}/step", "/v1/jobs/1/step", "{\"attach\":0}", "has no step 0 that runs"},
        {"/v1/jobs/{job}/step", "/v1/jobs/1/step", "{\"attach\":4294967295}", "out of range"},
        {"/v1/allocate", "/v1/allocate", "{}", "field \\\"submit\\\" is missing"},
        {"/v1/allocate", "/v1/allocate", "{\"submit\":" JOB "}", "\\\"launch\\\" of the spec must be steps"},
        {"/v1/allocate", "/v1/allocate", "{\"submit\":{\"spec\":" STEPS "},\"step\":{\"argv\":1}}", "argv"},
    };
    struct rig r;
    cleanup_arena struct arena a = {0};
    rig_open(&r);
    start(&r, rig_agent(&r, "n1"), JOB, &a);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct net_ws *ws = rig_socket(&r, &fake_alice, cases[i].target);
        assert_non_null(ws);
        fake_text(&r, ws, cases[i].text);
        failed(ws, cases[i].path, cases[i].says);
    }
    assert_int_equal(core_newest_id(r.c.core), 1);
    rig_close(&r);
}

static void a_job_that_never_was_is_told_at_once(void **state) {
    static const char *const targets[] = {"/v1/jobs/99/attach?placed=1", "/v1/jobs/99/attach", "/v1/jobs/99/exec",
                                          "/v1/jobs/99/step"};
    struct rig r;
    rig_open(&r);
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        assert_null(rig_socket(&r, &fake_root, targets[i]));
        fake_expect(r.requests.at[r.requests.len - 1], 404, "there is no job 99");
    }
    rig_close(&r);
}

static void sessions_are_for_the_owner(void **state) {
    struct rig r;
    cleanup_arena struct arena a = {0};
    rig_open(&r);
    start(&r, rig_agent(&r, "n1"), JOB, &a);
    static const char *const targets[] = {"/v1/jobs/1/exec", "/v1/jobs/1/attach", "/v1/jobs/1/step"};
    for (size_t i = 0; i < 3; i++) {
        assert_null(rig_socket(&r, &fake_bob, targets[i]));
        fake_expect(r.requests.at[r.requests.len - 1], 403, "only its owner");
    }
    fake_expect(rig_call(&r, &fake_alice, "GET", "/v1/jobs/1/exec", NULL), 426, NULL);
    rig_close(&r);
}

static void a_job_is_run_and_followed(void **state) {
    struct rig r;
    cleanup_arena struct arena a = {0};
    rig_open(&r);
    struct net_ws *agent = rig_agent(&r, "n1"), *ws = rig_socket(&r, &fake_alice, "/v1/run");
    fake_text(&r, ws, ATTACHED);
    hears(ws, "{\"id\":1,");
    fake_binary(&r, ws, "\0early", 6);  // typed before the job takes any
    assert_non_null(fake_next_message(agent, MESSAGE_LAUNCH, &a));
    rig_message(&r, agent, MESSAGE_STARTED,
                &(struct message_started){.id = 1, .attempt = 1, .at_ms = controller_now_ms()});
    agent->read = 0;  // they may have been opened before the launch left
    const struct message_log_read *output = fake_next_message(agent, MESSAGE_LOG_READ, &a);
    const struct message_log_read *error = fake_next_message(agent, MESSAGE_LOG_READ, &a);
    assert_true(output && error && output->attached && output->source == LOG_SOURCE_OUTPUT &&
                error->source == LOG_SOURCE_ERROR);
    // The node says where the input stands; only then does it flow.
    rig_message(&r, agent, MESSAGE_STREAM_CREDIT,
                &(struct message_stream){.stream = output->stream, .position = true});
    const struct message_stream *input = fake_next_message(agent, MESSAGE_STREAM_DATA, &a);
    assert_true(input && input->stream == output->stream && input->data.len == 5);
    assert_memory_equal(input->data.data, "early", 5);
    fake_binary(&r, ws, "\0more", 5);
    input = fake_next_message(agent, MESSAGE_STREAM_DATA, &a);
    assert_true(input && input->data.len == 4 && !input->eof);
    fake_binary(&r, ws, "\0", 1);
    input = fake_next_message(agent, MESSAGE_STREAM_DATA, &a);
    assert_true(input && input->data.len == 0 && input->eof);
    // Output, on its channel, and credit for it.
    rig_message(&r, agent, MESSAGE_STREAM_DATA,
                &(struct message_stream){.stream = output->stream, .fd = 1, .data = {"hello", 5}});
    const struct fake_message *last = &ws->sent.at[ws->sent.len - 1];
    assert_true(last->type == WS_BINARY && last->len == 6);
    assert_memory_equal(last->data, "\1hello", 6);
    const struct message_stream *credit = fake_next_message(agent, MESSAGE_STREAM_CREDIT, &a);
    assert_true(credit && credit->credit == 5);
    // Another node's stream is not this node's to write to.
    struct net_ws *other = rig_agent(&r, "n2");
    uint32_t before = ws->sent.len;
    rig_message(&r, other, MESSAGE_STREAM_DATA,
                &(struct message_stream){.stream = output->stream, .fd = 1, .data = {"forged", 6}});
    assert_int_equal(ws->sent.len, before);
    fake_text(&r, ws, "{\"resize\":[50,100]}");
    const struct message_stream *size = fake_next_message(agent, MESSAGE_RESIZE, &a);
    assert_true(size && size->rows == 50 && size->columns == 100);
    // The end comes behind the output.
    rig_message(&r, agent, MESSAGE_ENDED,
                &(struct message_ended){.id = 1, .attempt = 1, .exit_code = 4, .start_ms = 1, .end_ms = 2});
    assert_false(ws->closed);
    rig_message(&r, agent, MESSAGE_STREAM_END, &(struct message_stream){.stream = output->stream});
    rig_message(&r, agent, MESSAGE_STREAM_END, &(struct message_stream){.stream = error->stream});
    assert_true(ws->closed);
    assert_non_null(strstr(ws->sent.at[ws->sent.len - 1].data, "\"state\":\"FAILED\",\"exit_code\":4"));
    all_are_described(ws, "/v1/run");
    rig_close(&r);
}

// Positions in the output of one attempt are not taken for those of the next: the client gets all of that. Of the same
// attempt it gets the rest.
static void positions_are_of_an_attempt(void **state) {
    struct rig r;
    cleanup_arena struct arena a = {0};
    rig_open(&r);
    struct net_ws *agent = rig_agent(&r, "n1");
    fake_expect(rig_call(&r, &fake_alice, "POST", "/v1/jobs", ATTACHED), 201, NULL);
    rig_message(&r, agent, MESSAGE_STARTED,
                &(struct message_started){.id = 1, .attempt = 1, .at_ms = controller_now_ms()});
    for (uint32_t attempt = 1; attempt <= 2; attempt++) {
        char first[80];
        struct net_ws *ws = rig_socket(&r, &fake_alice, "/v1/jobs/1/attach?placed=1");
        snprintf(first, sizeof first, "{\"resume\":true,\"from\":[700,0],\"attempt\":%u}", attempt);
        fake_text(&r, ws, first);
        const struct message_log_read *output = fake_next_message(agent, MESSAGE_LOG_READ, &a);
        assert_true(output && output->attempt == 1);
        assert_int_equal(output->offset, attempt == 1 ? 700 : 0);
        assert_non_null(fake_next_message(agent, MESSAGE_LOG_READ, &a));
    }
    rig_close(&r);
}

// A command is a step of its own, beside everything else in the job.
static void a_command_runs_inside_a_job(void **state) {
    struct rig r;
    cleanup_arena struct arena a = {0};
    rig_open(&r);
    struct net_ws *agent = rig_agent(&r, "n1");
    fake_expect(rig_call(&r, &fake_alice, "POST", "/v1/jobs",
                         "{\"spec\":{\"name\":\"h\",\"workdir\":\"/\",\"argv\":[\"true\"],"
                         "\"hold\":true}}"),
                201, NULL);
    struct net_ws *ws = rig_socket(&r, &fake_alice, "/v1/jobs/1/exec");
    fake_text(&r, ws, "{\"argv\":[\"ls\"]}");
    failed(ws, "/v1/jobs/{job}/exec", "needs a running job");
    start(&r, agent, JOB, &a);
    ws = rig_socket(&r, &fake_alice, "/v1/jobs/2/exec");
    fake_text(&r, ws,
              "{\"argv\":[\"ls\",\"-l\"],\"environment\":[\"A=1\"],\"workdir\":\"/tmp\",\"pty\":true}");
    const struct message_exec *m = fake_next_message(agent, MESSAGE_STEP, &a);
    assert_true(m && m->id == 2 && m->argv.len == 2 && m->pty && m->tasks == 1 && !m->cpus.len);
    assert_string_equal(m->workdir, "/tmp");
    const struct message_step *attach = fake_next_message(agent, MESSAGE_STEP_ATTACH, &a);
    assert_true(attach && attach->step == 1);
    rig_message(&r, agent, MESSAGE_STREAM_CREDIT,
                &(struct message_stream){.stream = attach->stream, .position = true});
    fake_binary(&r, ws, "\0abc", 4);
    rig_message(&r, agent, MESSAGE_STREAM_CREDIT,
                &(struct message_stream){.stream = attach->stream, .position = true, .input_taken = 3});
    hears(ws, "{\"input\":3}");
    rig_message(&r, agent, MESSAGE_STEP_END,
                &(struct step_end){.id = 2, .attempt = 1, .step = 1, .exit_code = 7});
    rig_message(&r, agent, MESSAGE_STREAM_END, &(struct message_stream){.stream = attach->stream});
    hears(ws, "{\"exit_code\":7,\"exit_signal\":0");
    assert_true(ws->closed);
    struct job_view v;
    assert_true(core_view(r.c.core, 2, &v) && v.state == JOB_RUNNING);
    all_are_described(ws, "/v1/jobs/{job}/exec");
    rig_close(&r);
}

static void agents_of_the_first_release_run_no_commands(void **state) {
    struct rig r;
    cleanup_arena struct arena a = {0};
    rig_open(&r);
    struct net_ws *agent = rig_agent(&r, "n1");
    start(&r, agent, JOB, &a);
    struct agent_conn *conn = strmap_get(&r.c.agents, "n1");
    conn->level = FEATURE_LEVEL_FIRST;
    struct net_ws *ws = rig_socket(&r, &fake_alice, "/v1/jobs/1/exec");
    fake_text(&r, ws, "{\"argv\":[\"ls\"]}");
    failed(ws, "/v1/jobs/{job}/exec", "node n1 has an agent of release 0.1.0");
    rig_close(&r);
}

static const struct message_stream *sent_input(struct net_ws *agent, struct arena *a, uint64_t at,
                                               const char *text) {
    const struct message_stream *m = fake_next_message(agent, MESSAGE_STREAM_DATA, a);
    assert_non_null(m);
    assert_int_equal(m->offset, at);
    assert_int_equal(m->data.len, strlen(text));
    assert_memory_equal(m->data.data, text, strlen(text));
    return m;
}

static bool is_acknowledged(struct net_ws *agent, struct arena *a, uint64_t at) {
    const struct message_stream *m;
    bool found = false;
    while ((m = fake_next_message(agent, MESSAGE_STREAM_CREDIT, a)))
        found |= m->offset == at;
    return found;
}

// What is acknowledged is deleted on the node: only the step's own client may do that.
static void who_looks_on_acknowledges_nothing(void **state) {
    struct rig r;
    cleanup_arena struct arena a = {0};
    rig_open(&r);
    struct net_ws *agent = rig_agent(&r, "n1");
    start(&r, agent, JOB, &a);
    struct net_ws *own = rig_socket(&r, &fake_alice, "/v1/jobs/1/step"), *other;
    fake_text(&r, own, "{\"argv\":[\"cat\"],\"key\":\"k\"}");
    const struct message_step *first = fake_next_message(agent, MESSAGE_STEP_ATTACH, &a), *second;
    assert_non_null(first);
    other = rig_socket(&r, &fake_alice, "/v1/jobs/1/step");
    fake_text(&r, other, "{\"attach\":0}");
    second = fake_next_message(agent, MESSAGE_STEP_ATTACH, &a);
    assert_true(second && second->step == first->step && second->stream != first->stream);
    struct message_stream data = {.stream = second->stream, .fd = 1, .data = {"hello", 5}, .offset = 13};
    rig_message(&r, agent, MESSAGE_STREAM_DATA, &data);
    fake_text(&r, other, "{\"ack\":[13]}");
    assert_false(is_acknowledged(agent, &a, 13));
    data.stream = first->stream;
    rig_message(&r, agent, MESSAGE_STREAM_DATA, &data);
    fake_text(&r, own, "{\"ack\":[13]}");
    assert_true(is_acknowledged(agent, &a, 13));
    rig_close(&r);
}

// A client with a key loses its connection, then the node does: everything goes on from its position.
static void streams_go_on_from_their_positions(void **state) {
    struct rig r;
    cleanup_arena struct arena a = {0};
    rig_open(&r);
    struct net_ws *agent = rig_agent(&r, "n1");
    start(&r, agent, JOB, &a);
    struct net_ws *ws = rig_socket(&r, &fake_alice, "/v1/jobs/1/exec");
    fake_text(&r, ws, "{\"argv\":[\"cat\"],\"key\":\"k\"}");
    const struct message_step *attach = fake_next_message(agent, MESSAGE_STEP_ATTACH, &a);
    assert_true(attach && !attach->offset);
    rig_message(
        &r, agent, MESSAGE_STREAM_DATA,
        &(struct message_stream){.stream = attach->stream, .fd = 1, .data = {"hello", 5}, .offset = 13});
    const struct fake_message *last = &ws->sent.at[ws->sent.len - 1];
    assert_int_equal(last->len, 17 + 5);
    assert_memory_equal(last->data, "\5\0\0\0\0\0\0\0\0\15\0\0\0\0\0\0\0hello", 22);
    rig_message(&r, agent, MESSAGE_STREAM_CREDIT,
                &(struct message_stream){.stream = attach->stream, .position = true});
    fake_binary(&r, ws, "\7\0\0\0\0\0\0\0\0abc", 12);
    sent_input(agent, &a, 0, "abc");
    fake_hang_up(&r, ws);
    uint64_t old = attach->stream;
    // The same request again finds the same step.
    ws = rig_socket(&r, &fake_alice, "/v1/jobs/1/exec");
    fake_text(&r, ws, "{\"argv\":[\"cat\"],\"key\":\"k\",\"resume\":true,\"from\":[13]}");
    attach = fake_next_message(agent, MESSAGE_STEP_ATTACH, &a);
    assert_true(attach && attach->step == 1 && attach->offset == 13 && attach->stream != old);
    uint32_t before = ws->sent.len;
    rig_message(&r, agent, MESSAGE_STREAM_DATA,  // what still comes for the old connection is nobody's
                &(struct message_stream){.stream = old, .fd = 1, .data = {"again", 5}, .offset = 26});
    assert_int_equal(ws->sent.len, before);
    rig_message(&r, agent, MESSAGE_STREAM_CREDIT,
                &(struct message_stream){.stream = attach->stream, .position = true, .input_taken = 2});
    hears(ws, "{\"input_from\":2,");
    fake_binary(&r, ws, "\7\0\0\0\0\0\0\0\0abcde", 14);  // what the node has is left out
    sent_input(agent, &a, 2, "cde");
    fake_binary(&r, ws, "\7\377\0\0\0\0\0\0\0x", 10);  // a gap is not passed on
    assert_null(fake_next_message(agent, MESSAGE_STREAM_DATA, &a));
    // Others cannot use the key, and positions that are none are refused.
    assert_null(rig_socket(&r, &fake_bob, "/v1/jobs/1/exec"));
    static const struct {
        const char *text, *says;
    } bad[] = {{"{\"argv\":[\"cat\"],\"key\":\"k\",\"from\":[-1]}", "out of range"},
               {"{\"argv\":[\"cat\"],\"key\":\"k\",\"from\":[1,2]}", "there are 1 streams"},
               {"{\"argv\":[\"cat\"],\"key\":\"k\",\"from\":[\"x\"]}", "from"}};
    for (size_t i = 0; i < 3; i++) {
        struct net_ws *other = rig_socket(&r, &fake_alice, "/v1/jobs/1/exec");
        fake_text(&r, other, bad[i].text);
        hears(other, bad[i].says);
        assert_true(other->closed);
    }
    // A client of a step that is not known any more is told so, and neither shown another one nor given a new one.
    static const char *const lost[] = {"\"key\":\"k\",\"epoch\":5,\"from\":[13]",
                                       "\"key\":\"gone\",\"epoch\":5", "\"key\":\"gone\",\"from\":[13]",
                                       "\"key\":\"k\",\"attempt\":2"};
    for (size_t i = 0; i < 4; i++) {
        char text[128];
        struct net_ws *other = rig_socket(&r, &fake_alice, "/v1/jobs/1/exec");
        snprintf(text, sizeof text, "{\"argv\":[\"cat\"],\"resume\":true,%s}", lost[i]);
        fake_text(&r, other, text);
        hears(other, "does not know this step of job 1 any more");
        assert_true(other->closed);
        assert_null(fake_next_message(agent, MESSAGE_STEP_ATTACH, &a));
        assert_null(fake_next_message(agent, MESSAGE_STEP, &a));
    }
    struct net_ws *step = rig_socket(&r, &fake_alice, "/v1/jobs/1/step");
    fake_text(&r, step, "{\"argv\":[\"cat\"],\"key\":\"l\",\"lease_s\":-1}");
    hears(step, "out of range");
    // The node goes and comes back: its stream is opened again from where it was.
    fake_hang_up(&r, agent);
    assert_false(ws->closed);
    agent = rig_agent(&r, "n1");
    attach = fake_next_message(agent, MESSAGE_STEP_ATTACH, &a);
    assert_true(attach && attach->offset == 13);
    fake_binary(&r, ws, "\7\0\0\0\0\0\0\0\377x", 10);
    hears(ws, "the position of the input is negative");
    assert_true(ws->closed);
    rig_close(&r);
}

// Its nodes have not heard of it, and it may be lost with the controller: whoever asks for it again, or looks on, waits.
static void a_step_is_shown_when_it_is_recorded(void **state) {
    struct rig r;
    cleanup_arena struct arena a = {0};
    rig_open(&r);
    struct net_ws *agent = rig_agent(&r, "n1");
    start(&r, agent, JOB, &a);
    rig_disk_fails(&r, true);
    struct net_ws *ws = rig_socket(&r, &fake_alice, "/v1/jobs/1/step");
    fake_text(&r, ws, "{\"argv\":[\"cat\"],\"key\":\"k\"}");
    fake_hang_up(&r, ws);
    ws = rig_socket(&r, &fake_alice, "/v1/jobs/1/step");
    fake_text(&r, ws, "{\"argv\":[\"cat\"],\"key\":\"k\",\"resume\":true,\"from\":[]}");
    struct net_ws *other = rig_socket(&r, &fake_alice, "/v1/jobs/1/step");
    fake_text(&r, other, "{\"attach\":0}");
    assert_null(fake_next_text(ws));
    assert_null(fake_next_text(other));
    assert_null(fake_next_message(agent, MESSAGE_STEP_ATTACH, &a));
    assert_false(ws->closed || other->closed);
    rig_disk_fails(&r, false);
    const struct message_exec *step = fake_next_message(agent, MESSAGE_STEP, &a);
    assert_true(step && step->step == 1);
    for (int i = 0; i < 2; i++) {
        const struct message_step *attach = fake_next_message(agent, MESSAGE_STEP_ATTACH, &a);
        assert_true(attach && attach->step == 1);
    }
    hears(ws, "{\"step\":0,");
    hears(other, "{\"step\":0,");
    rig_close(&r);
}

// A node says of a step that it has not heard of that there is no output: it is asked when it has been told of the step.
static void a_node_is_asked_when_it_knows_the_step(void **state) {
    struct rig r;
    cleanup_arena struct arena a = {0};
    rig_open(&r);
    struct net_ws *first = rig_agent(&r, "n1"), *second = rig_agent(&r, "n2");
    start(&r, first,
          "{\"spec\":{\"name\":\"t\",\"workdir\":\"/"
          "\",\"argv\":[\"true\"],\"nodes_min\":2,\"nodes_max\":2,\"tasks\":2}}",
          &a);
    struct net_ws *ws = rig_socket(&r, &fake_alice, "/v1/jobs/1/step");
    fake_text(&r, ws, "{\"argv\":[\"cat\"],\"key\":\"k\",\"tasks\":2}");
    assert_non_null(fake_next_message(first, MESSAGE_STEP_ATTACH, &a));
    assert_null(fake_next_message(second, MESSAGE_STEP_ATTACH, &a));
    // The start on the second node is heard of, and not recorded yet.
    rig_disk_fails(&r, true);
    rig_message(&r, second, MESSAGE_STARTED,
                &(struct message_started){.id = 1, .attempt = 1, .at_ms = controller_now_ms()});
    assert_null(fake_next_message(second, MESSAGE_STEP_ATTACH, &a));
    rig_disk_fails(&r, false);
    assert_non_null(fake_next_message(second, MESSAGE_STEP, &a));
    assert_non_null(fake_next_message(second, MESSAGE_STEP_ATTACH, &a));
    // It comes back: what it should run is sent when its hello is recorded.
    fake_hang_up(&r, second);
    rig_disk_fails(&r, true);
    second = rig_agent(&r, "n2");
    struct net_ws *other = rig_socket(&r, &fake_alice, "/v1/jobs/1/step");
    fake_text(&r, other, "{\"attach\":0}");
    assert_null(fake_next_message(second, MESSAGE_STEP_ATTACH, &a));
    rig_disk_fails(&r, false);
    assert_non_null(fake_next_message(second, MESSAGE_STEP_ATTACH, &a));
    assert_non_null(fake_next_message(second, MESSAGE_STEP_ATTACH, &a));
    assert_false(ws->closed || other->closed);
    rig_close(&r);
}

// The end of a step leaves the core with its job: until it is committed nobody can say how the step ended.
static void the_end_of_a_step_is_told_when_it_is_recorded(void **state) {
    for (int cut = 0; cut < 2; cut++) {
        struct rig r;
        cleanup_arena struct arena a = {0};
        rig_open(&r);
        struct net_ws *agent = rig_agent(&r, "n1");
        start(&r, agent, JOB, &a);
        struct net_ws *ws = rig_socket(&r, &fake_alice, "/v1/jobs/1/step");
        fake_text(&r, ws, "{\"argv\":[\"cat\"],\"key\":\"k\"}");
        const struct message_step *attach = fake_next_message(agent, MESSAGE_STEP_ATTACH, &a);
        assert_non_null(attach);
        rig_message(
            &r, agent, MESSAGE_STREAM_DATA,
            &(struct message_stream){.stream = attach->stream, .fd = 1, .data = {"hello", 5}, .offset = 13});
        rig_disk_fails(&r, true);
        if (cut)
            rig_message(&r, agent, MESSAGE_STEP_END,
                        &(struct step_end){.id = 1, .attempt = 1, .step = 1, .node = "n1", .exit_code = 7});
        rig_message(&r, agent, MESSAGE_ENDED,
                    &(struct message_ended){.id = 1, .attempt = 1, .cause = END_EXIT, .start_ms = controller_now_ms()});
        struct job_view v;
        assert_false(core_view(r.c.core, 1, &v));
        if (cut) {
            fake_hang_up(&r, ws);
            ws = rig_socket(&r, &fake_alice, "/v1/jobs/1/step");
            fake_text(&r, ws, "{\"argv\":[\"cat\"],\"key\":\"k\",\"resume\":true,\"from\":[13]}");
            assert_null(fake_next_text(ws));
        } else {
            rig_message(&r, agent, MESSAGE_STREAM_END, &(struct message_stream){.stream = attach->stream});
        }
        assert_false(ws->closed);
        rig_disk_fails(&r, false);
        if (cut) {
            attach = fake_next_message(agent, MESSAGE_STEP_ATTACH, &a);
            assert_true(attach && attach->offset == 13);
            rig_message(&r, agent, MESSAGE_STREAM_END, &(struct message_stream){.stream = attach->stream});
        }
        bool told = false;
        for (const char *m; (m = fake_next_text(ws));)
            told |= strstr(m, cut ? "\"exit_code\":7" : "ended together with its job") != NULL;
        assert_true(told);
        rig_close(&r);
    }
}

static void later_messages_are_validated(void **state) {
    static const char *const bad[] = {"{",
                                      "{\"resise\":[1,2]}",
                                      "{\"resize\":[1,\"2\"]}",
                                      "{\"resize\":[1,10001]}",
                                      "{\"signal\":65}",
                                      "{\"signal\":-1}",
                                      "{\"cancel\":1}"};
    struct rig r;
    cleanup_arena struct arena a = {0};
    rig_open(&r);
    start(&r, rig_agent(&r, "n1"), ATTACHED, &a);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct net_ws *ws = rig_socket(&r, &fake_alice, "/v1/jobs/1/attach");
        while (fake_next_text(ws))
            ;
        fake_text(&r, ws, bad[i]);
        failed(ws, "/v1/jobs/{job}/attach", "\"code\":");
    }
    struct job_view v;
    assert_true(core_view(r.c.core, 1, &v) && v.state == JOB_RUNNING);
    char *large = calloc(1, SESSION_INPUT_MAX + 1);
    struct net_ws *ws = rig_socket(&r, &fake_alice, "/v1/jobs/1/attach");
    while (fake_next_text(ws))
        ;
    fake_binary(&r, ws, large, SESSION_INPUT_MAX + 1);
    failed(ws, "/v1/jobs/{job}/attach", "at most");
    free(large);
    // What is right is carried out.
    ws = rig_socket(&r, &fake_alice, "/v1/jobs/1/attach");
    fake_text(&r, ws, "{\"cancel\":true}");
    assert_true(core_view(r.c.core, 1, &v) && v.state == JOB_COMPLETING);
    rig_close(&r);
}

static void followed_streams_are_bounded(void **state) {
    struct rig r;
    cleanup_arena struct arena a = {0};
    struct net_ws *ws = NULL;
    rig_open(&r);
    struct net_ws *agent = rig_agent(&r, "n1");
    start(&r, agent, JOB, &a);
    for (int i = 0; i <= USER_STREAMS_MAX; i++) {
        ws = rig_socket(&r, &fake_alice, "/v1/jobs/1/exec");
        fake_text(&r, ws, "{\"argv\":[\"ls\"]}");
    }
    assert_int_equal(r.c.streams.streams.len, USER_STREAMS_MAX);
    hears(ws, "the limit for one user");
    assert_true(ws->closed);
    fake_expect(rig_call(&r, &fake_alice, "GET", "/v1/jobs/1/logs", NULL), 409, "the limit for one user");
    struct fake_request *q = rig_call(&r, &fake_root, "GET", "/v1/jobs/1/logs", NULL);
    assert_int_equal(q->status, 0);  // an administrator's has room
    fake_hang_up(&r, r.sockets.at[1]);
    assert_int_equal(r.c.streams.streams.len, USER_STREAMS_MAX);
    rig_close(&r);
}

// A client that sends faster than its node takes is not read from until the node has caught up.
static void input_waits_for_the_node(void **state) {
    struct rig r;
    cleanup_arena struct arena a = {0};
    rig_open(&r);
    struct net_ws *agent = rig_agent(&r, "n1");
    start(&r, agent, JOB, &a);
    struct net_ws *ws = rig_socket(&r, &fake_alice, "/v1/jobs/1/exec");
    fake_text(&r, ws, "{\"argv\":[\"cat\"]}");
    const struct message_step *attach = fake_next_message(agent, MESSAGE_STEP_ATTACH, &a);
    rig_message(&r, agent, MESSAGE_STREAM_CREDIT,
                &(struct message_stream){.stream = attach->stream, .position = true});
    agent->pending = STREAM_BACKLOG_BYTES + 1;
    fake_binary(&r, ws, "\0x", 2);
    assert_true(ws->paused && r.c.streams.held_inputs == 1);
    agent->pending = 0;
    agent->callbacks.on_drain(agent, agent->user);
    assert_true(!ws->paused && r.c.streams.held_inputs == 0);
    // Output that the client does not take holds back the credit.
    ws->pending = STREAM_BACKLOG_BYTES + 1;
    rig_message(
        &r, agent, MESSAGE_STREAM_DATA,
        &(struct message_stream){.stream = attach->stream, .fd = 1, .data = {"hello", 5}, .offset = 13});
    assert_null(fake_next_message(agent, MESSAGE_STREAM_CREDIT, &a));
    ws->pending = 0;
    ws->callbacks.on_drain(ws, ws->user);
    const struct message_stream *credit = fake_next_message(agent, MESSAGE_STREAM_CREDIT, &a);
    assert_true(credit && credit->credit == 5);
    rig_close(&r);
}

// Bytes to a port of a job: no more than a window is under way, and both sides may end theirs first.
static void a_port_is_reached(void **state) {
    static const char piece[64 << 10];
    struct rig r;
    cleanup_arena struct arena a = {0};
    rig_open(&r);
    struct net_ws *agent = rig_agent(&r, "n1");
    start(&r, agent, "{\"spec\":{\"name\":\"t\",\"workdir\":\"/\",\"argv\":[\"true\"],\"ports\":[\"8000\"]}}",
          &a);
    assert_null(rig_socket(&r, &fake_bob, "/v1/jobs/1/connect?port=8000"));
    fake_expect(r.requests.at[r.requests.len - 1], 403, "only its owner");
    assert_null(rig_socket(&r, &fake_alice, "/v1/jobs/1/connect?port=8001"));
    fake_expect(r.requests.at[r.requests.len - 1], 400, "has no port 8001");
    struct agent_conn *conn = strmap_get(&r.c.agents, "n1");
    uint32_t level = conn->level;
    conn->level = FEATURE_LEVEL_FIRST;
    assert_null(rig_socket(&r, &fake_alice, "/v1/jobs/1/connect?port=8000"));
    assert_non_null(strstr(buf_str(&r.requests.at[r.requests.len - 1]->body), "of an earlier release"));
    conn->level = level;
    struct net_ws *ws = rig_socket(&r, &fake_alice, "/v1/jobs/1/connect?port=8000");
    assert_non_null(ws);
    const struct message_connect *m = fake_next_message(agent, MESSAGE_CONNECT, &a);
    assert_true(m && m->port == 8000 && m->id == 1);
    for (int i = 0; i < 4; i++) {
        assert_false(ws->paused);
        fake_binary(&r, ws, piece, sizeof piece);
    }
    assert_true(ws->paused);  // 256 KiB that the program has not taken
    struct message_stream taken = {.stream = m->stream, .credit = sizeof piece};
    rig_message(&r, agent, MESSAGE_STREAM_CREDIT, &taken);
    assert_true(ws->paused);
    rig_message(&r, agent, MESSAGE_STREAM_CREDIT, &taken);
    assert_false(ws->paused);  // half of it has gone
    struct message_stream data = {.stream = m->stream, .fd = 1, .data = {"hello", 5}, .eof = true};
    rig_message(&r, agent, MESSAGE_STREAM_DATA, &data);
    const struct fake_message *got = &ws->sent.at[0];
    assert_true(got->type == WS_BINARY && got->len == 5 && !memcmp(got->data, "hello", 5));
    says(ws, "\"eof\":true");
    for (int i = 0; i < 4; i++)
        assert_non_null(fake_next_message(agent, MESSAGE_STREAM_DATA, &a));
    fake_text(&r, ws, "{\"eof\":true}");
    const struct message_stream *end = fake_next_message(agent, MESSAGE_STREAM_DATA, &a);
    assert_true(end && end->eof && !end->data.len);
    rig_message(&r, agent, MESSAGE_STREAM_END, &(struct message_stream){.stream = m->stream});
    assert_true(ws->closed && r.c.streams.streams.len == 0);
    rig_close(&r);
}

static void an_allocation_and_its_step(void **state) {
    struct rig r;
    cleanup_arena struct arena a = {0};
    rig_open(&r);
    struct net_ws *agent = rig_agent(&r, "n1"), *ws = rig_socket(&r, &fake_alice, "/v1/allocate");
    fake_text(&r, ws, "{\"submit\":{\"spec\":" STEPS "},\"step\":{\"argv\":[\"hostname\"],\"tasks\":1}}");
    hears(ws, "{\"id\":1,");
    assert_non_null(fake_next_message(agent, MESSAGE_LAUNCH, &a));
    rig_message(&r, agent, MESSAGE_STARTED,
                &(struct message_started){.id = 1, .attempt = 1, .at_ms = controller_now_ms()});
    const struct message_step *attach = fake_next_message(agent, MESSAGE_STEP_ATTACH, &a);
    assert_true(attach && attach->id == 1 && attach->step == 1);
    fake_text(&r, ws, "{\"ping\":true}");
    const char *m;
    bool started = false, pong = false;
    while ((m = fake_next_text(ws))) {
        started |= strstr(m, "{\"step\":0,\"tasks\":1,\"nodes\":\"n1\",\"epoch\":") != NULL;
        pong |= streq(m, "{\"pong\":true}");
    }
    assert_true(started && pong);
    rig_message(
        &r, agent, MESSAGE_STREAM_DATA,
        &(struct message_stream){.stream = attach->stream, .fd = 1, .data = {"n1\n", 3}, .offset = 3});
    const struct fake_message *last = &ws->sent.at[ws->sent.len - 1];
    assert_true(last->type == WS_BINARY && last->len == 8);
    assert_memory_equal(last->data, "\1\0\0\0\0n1\n", 8);
    // A node that has no task of the step says nothing about it; the right one ends it.
    rig_message(&r, rig_agent(&r, "n2"), MESSAGE_STEP_END,
                &(struct step_end){.id = 1, .attempt = 1, .step = 1, .node = "n1", .exit_code = 9});
    assert_false(ws->closed);
    uint32_t exits[] = {5 << 8};
    rig_message(&r, agent, MESSAGE_STEP_END,
                &(struct step_end){
                    .id = 1, .attempt = 1, .step = 1, .node = "n1", .exit_code = 5, .exits = {exits, 1}});
    rig_message(&r, agent, MESSAGE_STREAM_END, &(struct message_stream){.stream = attach->stream});
    assert_true(ws->closed);
    bool ended = false;
    for (uint32_t i = 0; i < ws->sent.len; i++)
        ended |=
            ws->sent.at[i].type == WS_TEXT &&
            strstr(ws->sent.at[i].data, "{\"exit_code\":5,\"exit_signal\":0,\"nodes\":[{\"node\":\"n1\"");
    assert_true(ended);
    all_are_described(ws, "/v1/allocate");
    rig_close(&r);
}

static void a_client_without_a_key_takes_its_allocation_along(void **state) {
    struct rig r;
    struct job_view v;
    rig_open(&r);
    struct net_ws *ws = rig_socket(&r, &fake_alice, "/v1/allocate");
    fake_text(&r, ws, "{\"submit\":{\"spec\":" STEPS "}}");
    struct net_ws *kept = rig_socket(&r, &fake_alice, "/v1/allocate");
    fake_text(&r, kept, "{\"submit\":{\"spec\":" STEPS ",\"key\":\"k\"}}");
    assert_true(core_view(r.c.core, 1, &v) && core_view(r.c.core, 2, &v));
    fake_hang_up(&r, ws);
    fake_hang_up(&r, kept);
    assert_false(core_view(r.c.core, 1, &v));
    assert_true(core_view(r.c.core, 2, &v));  // it may come back
    ws = rig_socket(&r, &fake_alice, "/v1/allocate");
    fake_text(&r, ws, "{\"submit\":{\"spec\":" STEPS ",\"key\":\"k\"}}");
    hears(ws, "{\"id\":2,");
    fake_text(&r, ws, "{\"give_back\":0}");  // zero is a value
    assert_true(ws->closed);
    assert_false(core_view(r.c.core, 2, &v));  // it waited: it leaves the queue
    ws = rig_socket(&r, &fake_alice, "/v1/allocate");
    fake_text(&r, ws, "{\"submit\":{\"spec\":" STEPS "}}");
    assert_true(core_view(r.c.core, 3, &v));
    fake_text(&r, ws, "{\"give_bach\":0}");
    hears(ws, "did you mean");
    assert_true(ws->closed);
    assert_false(core_view(r.c.core, 3, &v));
    rig_close(&r);
}

static void nothing_is_begun_that_cannot_be_kept(void **state) {
    struct rig r;
    rig_open(&r);
    rig_disk_fails(&r, true);
    rig_call(&r, &fake_alice, "POST", "/v1/jobs", JOB);
    struct net_ws *ws = rig_socket(&r, &fake_alice, "/v1/run");
    fake_text(&r, ws, ATTACHED);
    failed(ws, "/v1/run", "nothing can be stored right now");
    ws = rig_socket(&r, &fake_alice, "/v1/allocate");
    fake_text(&r, ws, "{\"submit\":{\"spec\":" STEPS "}}");
    failed(ws, "/v1/allocate", "nothing can be stored right now");
    rig_disk_fails(&r, false);
    rig_close(&r);
}

static void logs_are_read_from_the_node(void **state) {
    struct rig r;
    cleanup_arena struct arena a = {0};
    rig_open(&r);
    struct net_ws *agent = rig_agent(&r, "n1");
    start(&r, agent, JOB, &a);
    struct fake_request *q = rig_call(&r, &fake_alice, "GET", "/v1/jobs/1/logs?tail=0", NULL);
    const struct message_log_read *m = fake_next_message(agent, MESSAGE_LOG_READ, &a);
    assert_true(m && m->tail_lines == 0 && !m->follow);  // zero is a value
    rig_message(&r, agent, MESSAGE_STREAM_DATA,
                &(struct message_stream){.stream = m->stream, .fd = 1, .data = {"line\n", 5}});
    rig_message(&r, agent, MESSAGE_STREAM_END, &(struct message_stream){.stream = m->stream});
    fake_expect(q, 200, "line\n");
    assert_true(q->done && !q->aborted);
    // The node goes away in the middle: the reader must see that something is missing.
    q = rig_call(&r, &fake_alice, "GET", "/v1/jobs/1/logs", NULL);
    m = fake_next_message(agent, MESSAGE_LOG_READ, &a);
    assert_int_equal(m->tail_lines, -1);
    rig_message(&r, agent, MESSAGE_STREAM_DATA,
                &(struct message_stream){.stream = m->stream, .fd = 1, .data = {"half", 4}});
    fake_hang_up(&r, agent);
    assert_true(q->done && q->aborted);
    fake_expect(rig_call(&r, &fake_alice, "GET", "/v1/jobs/1/logs", NULL), 503, "is not connected");
    fake_expect(rig_call(&r, &fake_alice, "GET", "/v1/jobs/1/logs?attempt=2", NULL), 400, "attempt");
    fake_expect(rig_call(&r, &fake_alice, "GET", "/v1/jobs/1/logs?node=4294967295", NULL), 400,
                "there is no 4294967295");
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_messages_are_validated),
        cmocka_unit_test(a_job_that_never_was_is_told_at_once),
        cmocka_unit_test(sessions_are_for_the_owner),
        cmocka_unit_test(a_job_is_run_and_followed),
        cmocka_unit_test(positions_are_of_an_attempt),
        cmocka_unit_test(a_command_runs_inside_a_job),
        cmocka_unit_test(who_looks_on_acknowledges_nothing),
        cmocka_unit_test(streams_go_on_from_their_positions),
        cmocka_unit_test(agents_of_the_first_release_run_no_commands),
        cmocka_unit_test(a_step_is_shown_when_it_is_recorded),
        cmocka_unit_test(a_node_is_asked_when_it_knows_the_step),
        cmocka_unit_test(the_end_of_a_step_is_told_when_it_is_recorded),
        cmocka_unit_test(later_messages_are_validated),
        cmocka_unit_test(followed_streams_are_bounded),
        cmocka_unit_test(input_waits_for_the_node),
        cmocka_unit_test(a_port_is_reached),
        cmocka_unit_test(an_allocation_and_its_step),
        cmocka_unit_test(a_client_without_a_key_takes_its_allocation_along),
        cmocka_unit_test(nothing_is_begun_that_cannot_be_kept),
        cmocka_unit_test(logs_are_read_from_the_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
