// Requests about files: who has any, what a node is asked, what becomes of its answers, and what one user may have.
#include <errno.h>

#include "../files.h"
#include "base/clock.h"
#include "model/file.h"
#include "rig.h"

static struct fake_request *get(struct rig *r, const struct net_peer *who, const char *target) {
    return rig_call(r, who, "GET", target, NULL);
}

static const struct file_request *asked(struct net_ws *agent, struct arena *a) {
    const struct file_request *m = fake_next_message(agent, MESSAGE_FILE, a);
    assert_non_null(m);
    return m;
}

static struct fake_request *by_token(struct rig *r, const struct net_peer *who, const char *scopes,
                                     const char *line, const char *body) {
    cleanup_buf struct buf text = {0}, head = {0};
    struct net_peer p = fake_tls("[10.0.0.1]:1000", NULL);
    buf_addf(&text, "{\"kind\":\"user\"%s}", scopes);
    struct fake_request *q = rig_call(r, who, "POST", "/v1/tokens", buf_str(&text));
    fake_expect(q, 201, NULL);
    buf_addf(&head, "%s HTTP/1.1\r\nAuthorization: Bearer %s\r\n", line, json_str(fake_json(q), "token"));
    return rig_bytes(r, &p, buf_str(&head), body);
}

static void who_has_files(void **state) {
    struct rig r;
    cleanup_arena struct arena a = {0};
    rig_open(&r);
    rig_authority(&r);
    fake_expect(get(&r, &fake_alice, "/v1/files"), 503, "no node is connected");
    struct net_ws *agent = rig_agent(&r, "n1");
    get(&r, &fake_alice, "/v1/files?path=x");
    const struct file_request *m = asked(agent, &a);
    assert_string_equal(m->user, "alice");
    assert_int_equal(m->uid, fake_alice.uid);
    assert_true(!m->visible_only && !m->folder);
    // A token that only reads does so, and sees nothing hidden.
    fake_expect(by_token(&r, &fake_alice, ",\"scopes\":[\"read\"]", "PUT /v1/files/content?path=x", "text"),
                403, "for reading");
    fake_expect(by_token(&r, &fake_alice, ",\"scopes\":[\"read\"]", "DELETE /v1/files?path=x", NULL), 403,
                "for reading");
    by_token(&r, &fake_alice, ",\"scopes\":[\"read\"]", "GET /v1/files/content?path=x", NULL);
    assert_true(asked(agent, &a)->visible_only);
    by_token(&r, &fake_alice, ",\"scopes\":[\"submit\"]", "PUT /v1/files/content?path=x", "text");
    m = asked(agent, &a);
    assert_true(!m->visible_only && m->operation == FILE_WRITE && m->data.len == 4 && m->size == 4);
    fake_expect(rig_call(&r, &fake_root, "PUT", "/v1/projects/vision", "{\"name\":\"vision\"}"), 200, NULL);
    fake_expect(by_token(&r, &fake_alice, ",\"project\":\"vision\"", "GET /v1/files", NULL), 403,
                "one project");
    // Root's are for administrators without limits.
    get(&r, &fake_root, "/v1/files");
    assert_int_equal(asked(agent, &a)->uid, 0);
    static const char *const limited[] = {"read", "submit", "admin"};
    for (size_t i = 0; i < sizeof limited / sizeof *limited; i++) {
        cleanup_buf struct buf scopes = {0};
        buf_addf(&scopes, ",\"scopes\":[\"%s\"]", limited[i]);
        fake_expect(by_token(&r, &fake_root, buf_str(&scopes), "GET /v1/files", NULL), 403, "files of root");
    }
    assert_null(fake_next_message(agent, MESSAGE_FILE, &a));
    rig_close(&r);
}

static void contents_are_passed_on(void **state) {
    struct rig r;
    cleanup_arena struct arena a = {0};
    rig_open(&r);
    struct net_ws *agent = rig_agent(&r, "n1");
    struct file_entry entry = {.name = "f", .size = 10, .version = "v"};
    struct fake_request *q =
        rig_bytes(&r, &fake_alice, "GET /v1/files/content?path=f HTTP/1.1\r\nRange: bytes=2-5\r\n", NULL);
    const struct file_request *m = asked(agent, &a);
    assert_true(m->offset == 2 && m->length == 4);
    struct file_result head = {.stream = m->stream, .entry = &entry, .path = "/f", .first = 2, .length = 4};
    struct message_stream data = {.stream = m->stream, .data = {"2345", 4}},
                          end = {.stream = m->stream, .eof = true};
    rig_message(&r, agent, MESSAGE_FILE_RESULT, &head);
    rig_message(&r, agent, MESSAGE_STREAM_DATA, &data);
    assert_false(q->done);
    rig_message(&r, agent, MESSAGE_STREAM_END, &end);
    fake_expect(q, 206, "2345");
    assert_true(q->done && !q->aborted);
    assert_non_null(strstr(buf_str(&q->headers), "Content-Range: bytes 2-5/10"));
    // Less or more than was announced is not a file; neither is what a node says that lost its process.
    static const char *const wrong[] = {"234", "23456"};
    for (size_t i = 0; i < 2; i++) {
        q = rig_bytes(&r, &fake_alice, "GET /v1/files/content?path=f HTTP/1.1\r\nRange: bytes=2-5\r\n", NULL);
        head.stream = data.stream = end.stream = asked(agent, &a)->stream;
        data.data = (struct bytes){wrong[i], strlen(wrong[i])};
        rig_message(&r, agent, MESSAGE_FILE_RESULT, &head);
        rig_message(&r, agent, MESSAGE_STREAM_DATA, &data);
        rig_message(&r, agent, MESSAGE_STREAM_END, &end);
        assert_true(q->done && q->aborted);
        assert_true(q->body.len <= head.length);  // more would be read as the next answer
    }
    q = get(&r, &fake_alice, "/v1/files/content?path=f");
    head =
        (struct file_result){.stream = asked(agent, &a)->stream, .entry = &entry, .first = 5, .length = 50};
    rig_message(&r, agent, MESSAGE_FILE_RESULT, &head);
    fake_expect(q, 503, "cannot be read");
    rig_close(&r);
}

static void versions_are_compared(void **state) {
    struct rig r;
    cleanup_arena struct arena a = {0};
    rig_open(&r);
    struct net_ws *agent = rig_agent(&r, "n1");
    struct file_entry entry = {.name = "f", .size = 10, .version = "v2"};
    struct file_result head = {.entry = &entry, .path = "/f", .length = 10};
    // Who has this version already is not sent it again.
    struct fake_request *q = rig_bytes(
        &r, &fake_alice, "GET /v1/files/content?path=f HTTP/1.1\r\nIf-None-Match: \"v1\", \"v2\"\r\n", NULL);
    head.stream = asked(agent, &a)->stream;
    rig_message(&r, agent, MESSAGE_FILE_RESULT, &head);
    fake_expect(q, 304, NULL);
    q = rig_bytes(&r, &fake_alice, "GET /v1/files/content?path=f HTTP/1.1\r\nIf-None-Match: \"v1\"\r\n",
                  NULL);
    head.stream = asked(agent, &a)->stream;
    rig_message(&r, agent, MESSAGE_FILE_RESULT, &head);
    assert_int_equal(q->status, 200);
    // The node compares what is written, removed or read in parts.
    rig_bytes(&r, &fake_alice, "PUT /v1/files/content?path=f HTTP/1.1\r\nIf-Match: \"v1\"\r\n", "text");
    const struct file_request *m = asked(agent, &a);
    assert_string_equal(m->match, "v1");
    assert_false(m->create);
    rig_bytes(&r, &fake_alice, "PUT /v1/files/content?path=f HTTP/1.1\r\nIf-None-Match: *\r\n", "text");
    m = asked(agent, &a);
    assert_true(m->create && !m->match);
    rig_bytes(&r, &fake_alice, "DELETE /v1/files?path=f HTTP/1.1\r\nIf-Match: \"v1\"\r\n", NULL);
    assert_string_equal(asked(agent, &a)->match, "v1");
    rig_bytes(&r, &fake_alice,
              "GET /v1/files/content?path=f HTTP/1.1\r\nRange: bytes=-3\r\nIf-Range: \"v1\"\r\n", NULL);
    m = asked(agent, &a);
    assert_string_equal(m->match, "v1");
    assert_int_equal(m->last, 3);
    rig_close(&r);
}

// The folder of a job is its user's.
static void folders_of_jobs(void **state) {
    struct rig r;
    cleanup_arena struct arena a = {0};
    rig_open(&r);
    struct net_ws *agent = rig_agent(&r, "n1");
    fake_expect(
        rig_call(&r, &fake_alice, "POST", "/v1/jobs",
                 "{\"spec\":{\"name\":\"a\",\"workdir\":\"/data/alice\",\"argv\":[\"true\"],\"hold\":true}}"),
        201, NULL);
    get(&r, &fake_alice, "/v1/files?job=1");
    assert_string_equal(asked(agent, &a)->folder, "/data/alice");
    fake_expect(get(&r, &fake_bob, "/v1/files?job=1"), 403, "private");
    fake_expect(get(&r, &fake_alice, "/v1/files?job=7"), 404, NULL);
    assert_null(fake_next_message(agent, MESSAGE_FILE, &a));
    rig_close(&r);
}

static void errors_have_their_status(void **state) {
    static const struct {
        int error, status;
    } cases[] = {{EACCES, 403}, {ENOENT, 404}, {EEXIST, 409},    {ESTALE, 412},
                 {ENOSPC, 507}, {EDQUOT, 507}, {ETIMEDOUT, 504}, {ENOTSUP, 400}};
    struct rig r;
    cleanup_arena struct arena a = {0};
    rig_open(&r);
    struct net_ws *agent = rig_agent(&r, "n1");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fake_request *q = rig_call(&r, &fake_alice, "PUT", "/v1/files/content?path=f", "x");
        struct file_result e = {
            .stream = asked(agent, &a)->stream, .error = cases[i].error, .text = "why\x1b"};
        rig_message(&r, agent, MESSAGE_FILE_RESULT, &e);
        fake_expect(q, cases[i].status, "why?");
    }
    // The node goes away, or never answers.
    struct fake_request *q = get(&r, &fake_alice, "/v1/files");
    controller_files_tick(&r.c, clock_mono_ms() + 20000);
    assert_false(q->done);
    // One that says that it works has all the time it needs from then on.
    int64_t asked_ms = clock_mono_ms();
    while (clock_mono_ms() == asked_ms)
        ;
    struct file_result alive = {.stream = asked(agent, &a)->stream, .working = true};
    rig_message(&r, agent, MESSAGE_FILE_RESULT, &alive);
    controller_files_tick(&r.c, asked_ms + 30000);
    assert_false(q->done);
    controller_files_tick(&r.c, clock_mono_ms() + 40000);
    fake_expect(q, 504, "does not answer");
    q = get(&r, &fake_alice, "/v1/files");
    fake_hang_up(&r, agent);
    fake_expect(q, 503, "connection to the node was lost");
    rig_close(&r);
}

static void what_one_user_may_have(void **state) {
    struct rig r;
    cleanup_arena struct arena a = {0};
    rig_open(&r);
    struct net_ws *agent = rig_agent(&r, "n1");
    struct fake_request *first = NULL;
    for (int i = 0; i < 4; i++)
        first = rig_call(&r, &fake_alice, "PUT", "/v1/files/content?path=f", "x");
    fake_expect(rig_call(&r, &fake_alice, "PUT", "/v1/files/content?path=f", "x"), 429, "under way");
    for (int i = 4; i < 16; i++)
        assert_int_equal(get(&r, &fake_alice, "/v1/files")->status, 0);
    fake_expect(get(&r, &fake_alice, "/v1/files"), 429, "under way");
    assert_int_equal(get(&r, &fake_bob, "/v1/files")->status, 0);
    fake_leave(first);
    assert_int_equal(get(&r, &fake_alice, "/v1/files")->status, 0);
    // A node that does not take what was sent to it is sent no more pieces.
    agent->pending = 64 << 20;
    fake_expect(rig_call(&r, &fake_bob, "PUT", "/v1/files/content?path=f", "x"), 429, "has not taken");
    agent->pending = 0;
    fake_expect(rig_call(&r, &fake_bob, "PUT", "/v1/files/content?path=f&size=9", "x"), 400, "upload");
    fake_expect(rig_call(&r, &fake_bob, "PUT", "/v1/files/content?path=f&upload=a/b&size=9", "x"), 400,
                "upload");
    fake_expect(rig_call(&r, &fake_bob, "PUT", "/v1/files/content?path=f&upload=a&size=1&offset=1", "x"), 400,
                "size");
    fake_expect(get(&r, &fake_bob, "/v1/files?node=other"), 404, "there is no node other");
    fake_expect(
        rig_call(&r, &fake_bob, "POST", "/v1/files/copy", "{\"path\":\"a\",\"to\":\"b\",\"node\":\"other\"}"),
        404, "there is no node other");
    fake_expect(get(&r, &fake_bob, "/v1/files/zip"), 400, "is missing");
    fake_expect(rig_call(&r, &fake_bob, "DELETE", "/v1/files?path=&recursive=1", NULL), 400, "is missing");
    fake_hang_up(&r, agent);
    fake_expect(get(&r, &fake_bob, "/v1/files?node=n1"), 503, "not connected");
    rig_close(&r);
}

// The OpenAPI document has every status that a look at a file can bring.
static void statuses_are_documented(void **state) {
    static const char *const paths[] = {"/v1/files", "/v1/files/content", "/v1/files/zip"};
    static const char *const statuses[] = {"400", "403", "404", "409", "413", "429", "503", "504"};
    struct rig r;
    rig_open(&r);
    const struct json *all = json_get(fake_json(get(&r, &fake_alice, "/v1/openapi.json")), "paths");
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        const struct json *responses = json_get(json_get(json_get(all, paths[i]), "get"), "responses");
        for (size_t k = 0; k < sizeof statuses / sizeof *statuses; k++)
            if (!json_get(responses, statuses[k]))
                fail_msg("GET %s: %s is not documented", paths[i], statuses[k]);
        assert_int_equal(json_get(responses, "206") != NULL, i == 1);
        assert_int_equal(json_get(responses, "416") != NULL, i == 1);
    }
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_has_files),          cmocka_unit_test(statuses_are_documented),
        cmocka_unit_test(contents_are_passed_on), cmocka_unit_test(versions_are_compared),
        cmocka_unit_test(folders_of_jobs),
        cmocka_unit_test(errors_have_their_status),
        cmocka_unit_test(what_one_user_may_have),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
