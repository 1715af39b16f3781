// Requests that cost more than others: how much of one user's is done in a turn of the loop, whatever the machine's
// speed. Uploads, folders as ZIP, earlier states, trials of policies, apps, tools of assistants. Another user is answered
// in the same turn.
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../past_view.h"
#include "../stream.h"
#include "base/text.h"
#include "model/file.h"
#include "rig.h"

enum { TURN = 256, MANY = 600, CALLS_OF_A_USER = 16 };

static struct fake_request *ask(struct rig *r, const struct net_peer *from, const char *request,
                                const char *body) {
    cleanup_buf struct buf head = {0};
    buf_addf(&head, "%s HTTP/1.1\r\n", request);
    return rig_bytes_at_once(r, from, buf_str(&head), body);
}

static void bob_is_answered(struct rig *r) {
    fake_expect(ask(r, &fake_bob, "GET /v1/jobs/1", NULL), 404, NULL);
}

static uint32_t answered(struct fake_request *const *list, uint32_t n) {
    uint32_t done = 0;
    for (uint32_t i = 0; i < n; i++)
        done += list[i]->done;
    return done;
}

// Sends the same request many times at once; at most `most` of them are answered in each turn, and at last all.
static void at_most(struct rig *r, const char *request, const char *body, int status, uint32_t most) {
    struct fake_request *list[MANY];
    uint32_t before = 0, turns = 0;
    for (int i = 0; i < MANY; i++)
        list[i] = ask(r, &fake_alice, request, body);
    while (before < MANY) {
        uint32_t done = answered(list, MANY);
        assert_in_range(done - before, 0, most);
        assert_true(turns++ < 10 * MANY);
        bob_is_answered(r);
        before = done;
        rig_turn(r);
    }
    assert_true(turns >= MANY / most);
    for (int i = 0; i < MANY; i++)
        fake_expect(list[i], status, NULL);
    rig_settle(r);
}

// Of 4 MiB one goes on to the node in a turn; of small ones as many as a user may have under way.
static void uploads(void **state) {
    enum { UPLOADS = 4 };
    struct rig r;
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf piece = {0};
    struct fake_request *list[UPLOADS];
    rig_open(&r);
    struct net_ws *agent = rig_agent(&r, "n1");
    buf_fill(&piece, 'x', FILE_PIECE_MAX);
    for (int i = 0; i < UPLOADS; i++)
        list[i] = ask(&r, &fake_alice, "PUT /v1/files/content?path=f", buf_str(&piece));
    for (int turn = 0; turn < UPLOADS; turn++) {
        const struct file_request *m = fake_next_message(agent, MESSAGE_FILE, &a);
        assert_non_null(m);
        assert_int_equal(m->data.len, FILE_PIECE_MAX);
        assert_null(fake_next_message(agent, MESSAGE_FILE, &a));
        bob_is_answered(&r);
        rig_turn(&r);
    }
    assert_null(fake_next_message(agent, MESSAGE_FILE, &a));
    assert_int_equal(answered(list, UPLOADS), 0);  // they are under way
    fake_expect(rig_call(&r, &fake_alice, "PUT", "/v1/files/content?path=f", "x"), 429, "under way");
    rig_close(&r);
}

// What a node may send before it is asked for more.
static void zips(void **state) {
    struct rig r;
    cleanup_arena struct arena a = {0};
    struct fake_request *list[MANY];
    rig_open(&r);
    struct net_ws *agent = rig_agent(&r, "n1");
    for (int i = 0; i < MANY; i++)
        list[i] = ask(&r, &fake_alice, "GET /v1/files/zip?path=many", NULL);
    bob_is_answered(&r);
    uint32_t handled = answered(list, MANY) + CALLS_OF_A_USER;
    assert_in_range(handled, CALLS_OF_A_USER, TURN);
    rig_settle(&r);
    assert_int_equal(answered(list, MANY), MANY - CALLS_OF_A_USER);
    fake_expect(list[MANY - 1], 429, "under way");
    uint64_t credit = 0;
    uint32_t asked = 0;
    for (const struct file_request *m; (m = fake_next_message(agent, MESSAGE_FILE, &a)); asked++)
        credit += m->credit;
    assert_int_equal(asked, CALLS_OF_A_USER);
    assert_in_range(credit, 1, (uint64_t)CALLS_OF_A_USER * STREAM_WINDOW_BYTES);
    rig_close(&r);
}

// A program of the controller's that answers nothing for a while.
static void slow_program(struct rig *r, char path[static 64]) {
    snprintf(path, 64, "/tmp/acequia-turns-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "#!/bin/sh\nexec sleep 600\n", 25), 25);
    assert_int_equal(fchmod(fd, 0755), 0);
    close(fd);
    r->c.program = path;
}

// Processes that read an earlier state: few at a time, of one user fewer.
static void processes(void **state) {
    static const struct {
        const char *request, *body;
        const struct net_peer *first, *second;
    } kinds[] = {{"GET /v1/at?time_ms=1000", NULL, &fake_alice, &fake_bob},
                 {"POST /v1/policy/dry-run", "{\"change\":{},\"days\":7}", &fake_root, NULL}};
    for (size_t k = 0; k < 2; k++) {
        struct rig r;
        char path[64];
        struct fake_request *list[MANY];
        rig_open(&r);
        slow_program(&r, path);
        for (int i = 0; i < MANY; i++)
            list[i] = ask(&r, kinds[k].first, kinds[k].request, kinds[k].body);
        assert_in_range(answered(list, MANY), 0, TURN);
        rig_settle(&r);
        assert_int_equal(answered(list, MANY), MANY - PAST_USER_VIEWS_MAX);
        fake_expect(list[MANY - 1], 429, NULL);
        assert_int_equal(r.c.past_views.len, PAST_USER_VIEWS_MAX);
        for (int i = 0; kinds[k].second && i < 10; i++)
            ask(&r, kinds[k].second, kinds[k].request, kinds[k].body);
        assert_in_range(r.c.past_views.len, PAST_USER_VIEWS_MAX, PAST_VIEWS_MAX);
        assert_true(r.c.helpers.len <= PAST_VIEWS_MAX);
        rig_close(&r);
        unlink(path);
    }
}

static void apps(void **state) {
    static const char start[] = "{\"dry_run\":true,\"workdir\":\"/tmp\",\"values\":[\"command=true\"]}";
    struct rig r;
    rig_open(&r);
    at_most(&r, "GET /v1/apps", NULL, 200, TURN);
    at_most(&r, "POST /v1/apps/program", start, 201,
            2 * TURN);  // answers wait for a commit: those of two turns
    rig_close(&r);
}

// A call of a tool counts as the request that it stands for; a large one counts by its bytes.
static void tools(void **state) {
    static const char list[] = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}",
                      call[] = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\","
                               "\"params\":{\"name\":\"get_job\",\"arguments\":{\"job\":\"1\"}}}";
    cleanup_buf struct buf large = {0};
    struct rig r;
    rig_open(&r);
    at_most(&r, "POST /v1/mcp", list, 200, TURN);
    at_most(&r, "POST /v1/mcp", call, 200, TURN);
    buf_adds(&large, "{\"jsonrpc\":\"2.0\",\"id\":\"");
    buf_fill(&large, 'x', 96 << 10);
    buf_adds(&large, "\",\"method\":\"ping\"}");
    at_most(&r, "POST /v1/mcp", buf_str(&large), 200, TURN / 7 + 1);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(uploads), cmocka_unit_test(zips),
                                       cmocka_unit_test(processes), cmocka_unit_test(apps),
                                       cmocka_unit_test(tools)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
