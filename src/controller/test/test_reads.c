// Long answers are made in slices: how many rows are looked at in a turn of the loop, and whose turn it is.
#include <stdio.h>

#include "../listing.h"
#include "../portal.h"
#include "../sliced_read.h"
#include "base/clock.h"
#include "base/text.h"
#include "rig.h"

enum { ELEMENTS = 3 * READ_SLICE_ROWS };

static struct fake_request *get(struct rig *r, const struct net_peer *from, const char *target) {
    return rig_call(r, from, "GET", target, NULL);
}

static struct fake_request *get_at_once(struct rig *r, const struct net_peer *from, const char *target) {
    char head[256];
    snprintf(head, sizeof head, "GET %s HTTP/1.1\r\n", target);
    return rig_bytes_at_once(r, from, head, NULL);
}

static void submit_array(struct rig *r, const struct net_peer *from, uint32_t elements) {
    char body[256];
    snprintf(
        body, sizeof body,
        "{\"spec\":{\"name\":\"a\",\"workdir\":\"/\",\"argv\":[\"true\"],\"array\":[{\"first\":0,\"last\":%u,"
        "\"step\":1}]}}",
        elements - 1);
    fake_expect(rig_call(r, from, "POST", "/v1/jobs", body), 201, NULL);
}

static void open_with_array(struct rig *r) {
    rig_open(r);
    submit_array(r, &fake_alice, ELEMENTS);
}

// Asks, and lets another user ask in every turn until it is answered. Returns how many turns that took.
static uint32_t watch(struct rig *r, struct fake_request *q) {
    uint32_t turns = 0;
    r->c.reads.rows_max = 0;
    for (; !q->done; turns++) {
        fake_expect(rig_bytes_at_once(r, &fake_bob, "GET /v1/status HTTP/1.1\r\n", NULL), 200, NULL);
        rig_turn(r);
        assert_true(turns < 100000);
    }
    if (r->c.reads.rows_max > READ_SLICE_ROWS + 32)
        fail_msg("%u rows in a turn", r->c.reads.rows_max);
    assert_false(q->aborted);
    return turns;
}

static void lists_by_number(void **state) {
    struct rig r;
    open_with_array(&r);
    struct fake_request *q = get_at_once(&r, &fake_alice, "/v1/jobs?ids=1&fields=id,label,count");
    assert_true(watch(&r, q) >= ELEMENTS / READ_SLICE_ROWS);
    fake_expect(q, 200, "\"label\":\"1_[0-12287]\"");
    assert_int_equal(json_get(fake_json(q), "jobs")->len, 1);
    q = get_at_once(&r, &fake_alice, "/metrics");
    assert_true(watch(&r, q) >= ELEMENTS / READ_SLICE_ROWS);
    fake_expect(q, 200, "acequia_");
    // By their indices, in the order in which they were named; what is not there is left out.
    q = get_at_once(&r, &fake_alice, "/v1/jobs?ids=1_[0-9999],1_12287,1_99999,99999,1_0&fields=id");
    assert_true(watch(&r, q) >= 10000 / READ_SLICE_ROWS);
    const struct json *jobs = json_get(fake_json(q), "jobs");
    assert_int_equal(jobs->len, 10002);
    assert_int_equal(json_i64(&jobs->items[10000], "id", 0), 12288);
    assert_int_equal(json_i64(&jobs->items[10001], "id", 0), 1);
    fake_expect(get(&r, &fake_alice, "/v1/jobs?ids=1_[0-10000]"), 413, "at most 10000 can be listed");
    rig_close(&r);
}

// A row that folds elements is written in one piece: it names so many ranges of indices, and the next row goes on.
static void folded_rows_are_bounded(void **state) {
    enum { LEFT = 20000 };  // 1, 2, 4, 5, 7, 8, ...: each step is another one than the one before
    struct rig r;
    rig_open(&r);
    submit_array(&r, &fake_alice, LEFT / 2 * 3);
    fake_expect(rig_call(&r, &fake_alice, "POST", "/v1/jobs/cancel", "{\"ids\":[\"1_[0-29999:3]\"]}"), 200,
                "10000");
    struct fake_request *q = get(&r, &fake_alice, "/v1/jobs?fields=id,count");
    const struct json *jobs = json_get(fake_json(q), "jobs");
    int64_t elements = 0;
    for (uint32_t i = 0; i < jobs->len; i++) {
        int64_t count = json_i64(&jobs->items[i], "count", 0);
        assert_true(count <= LISTING_GAPS_MAX + 3);
        elements += count ? count : 1;  // one that is alone is not folded
    }
    assert_true(jobs->len >= 2);
    assert_int_equal(elements, LEFT);
    rig_close(&r);
}

// Elements that end while their array is listed are there once, as live or as ended ones.
static void elements_that_end_meanwhile(void **state) {
    struct rig r;
    open_with_array(&r);
    struct fake_request *q = get_at_once(&r, &fake_alice, "/v1/jobs?ids=1&fields=id&elements=1");
    struct fake_request *counts = get_at_once(&r, &fake_alice, "/v1/jobs/1/array");
    rig_turn(&r);
    struct fake_request *cancel =
        rig_bytes_at_once(&r, &fake_alice, "POST /v1/jobs/cancel HTTP/1.1\r\n", "{\"ids\":[\"1\"]}");
    while (!q->done || !counts->done || !cancel->done)
        rig_turn(&r);
    const struct json *jobs = json_get(fake_json(q), "jobs");
    assert_int_equal(jobs->len, ELEMENTS);
    for (uint32_t i = 0; i < jobs->len; i++) {
        int64_t id = json_i64(&jobs->items[i], "id", 0);
        assert_true(id >= 1 && id <= ELEMENTS);
    }
    const struct json *states = json_get(fake_json(counts), "states");
    assert_int_equal(json_i64(states, "PENDING", 0) + json_i64(states, "CANCELLED", 0), ELEMENTS);
    rig_close(&r);
}

static void ended_arrays(void **state) {
    struct rig r;
    open_with_array(&r);
    fake_expect(rig_call(&r, &fake_alice, "POST", "/v1/jobs/cancel", "{\"ids\":[\"1\"]}"), 200, "12288");
    struct fake_request *q = get_at_once(&r, &fake_alice, "/v1/jobs?ids=1&fields=id,state");
    assert_true(watch(&r, q) >= ELEMENTS / READ_SLICE_ROWS);
    assert_int_equal(json_get(fake_json(q), "jobs")->len, ELEMENTS);
    q = get_at_once(&r, &fake_alice, "/v1/jobs/1/array");
    assert_true(watch(&r, q) >= ELEMENTS / READ_SLICE_ROWS);
    assert_int_equal(json_i64(json_get(fake_json(q), "states"), "CANCELLED", 0), ELEMENTS);
    q = get_at_once(&r, &fake_alice, "/v1/jobs/1/efficiency");
    assert_true(watch(&r, q) >= ELEMENTS / READ_SLICE_ROWS);
    fake_expect(q, 409, "has not run yet");
    // The table and the analysis of ended jobs, which are read from history before.
    q = get_at_once(&r, &fake_alice, "/v1/table?elements=1&limit=10&search=a");
    assert_true(watch(&r, q) >= ELEMENTS / READ_SLICE_ROWS);
    fake_expect(q, 200, "\"total\":12288");
    q = get_at_once(&r, &fake_alice, "/v1/analytics?by=user");
    assert_true(watch(&r, q) >= ELEMENTS / READ_SLICE_ROWS);
    fake_expect(q, 200, "\"complete\":true");
    rig_close(&r);
}

// A job has as many events as its owner makes.
static void events_of_one_job(void **state) {
    enum { CHANGES = 1500 };
    struct rig r;
    rig_open(&r);
    submit_array(&r, &fake_alice, 1);
    for (int i = 0; i < CHANGES; i++) {
        rig_bytes_at_once(&r, &fake_alice,
                          i % 2 ? "POST /v1/jobs/release HTTP/1.1\r\n" : "POST /v1/jobs/hold HTTP/1.1\r\n",
                          "{\"ids\":[\"1\"]}");
        rig_turn(&r);
    }
    struct fake_request *q = get_at_once(&r, &fake_bob, "/v1/jobs/1/events");
    assert_true(watch(&r, q) >= 2);
    assert_true(json_get(fake_json(q), "events")->len > CHANGES);
    q = get_at_once(&r, &fake_alice, "/v1/events?after=0");
    watch(&r, q);
    assert_true(json_get(fake_json(q), "events")->len > 900);  // of a page, those that alice may see
    // One who follows from the beginning gets them in slices as well.
    q = get_at_once(&r, &fake_alice, "/v1/events?follow=1&after=0");
    uint32_t turns = 0;
    r.c.reads.rows_max = 0;
    for (; rig_turn(&r); turns++)
        assert_true(turns < 1000);
    assert_true(turns >= 2 && r.c.reads.rows_max <= READ_SLICE_ROWS + 16);
    // And costs nothing while nothing happens.
    uint64_t slices = r.c.reads.slices;
    rig_settle(&r);
    assert_int_equal(r.c.reads.slices, slices);
    rig_close(&r);
}

// A job has as many steps as its owner starts: the column of a list is read in slices, a single job shows the first.
static void steps_of_one_job(void **state) {
    enum { STEPS = 2000, ROWS = 2 * STEPS * 5 };  // two events a step, each worth several rows
    struct rig r;
    cleanup_arena struct arena a = {0};
    rig_open(&r);
    struct net_ws *agent = rig_agent(&r, "n1");
    fake_expect(rig_call(&r, &fake_alice, "POST", "/v1/jobs",
                         "{\"spec\":{\"name\":\"s\",\"workdir\":\"/\",\"argv\":[\"true\"]}}"),
                201, NULL);
    assert_non_null(fake_next_message(agent, MESSAGE_LAUNCH, &a));
    rig_message(&r, agent, MESSAGE_STARTED,
                &(struct message_started){.id = 1, .attempt = 1, .at_ms = controller_now_ms()});
    for (uint32_t i = 0; i < STEPS; i++) {
        struct net_ws *ws = rig_socket(&r, &fake_alice, "/v1/jobs/1/exec");
        fake_text(&r, ws, "{\"argv\":[\"ls\"]}");
        const struct message_exec *m = fake_next_message(agent, MESSAGE_STEP, &a);
        assert_non_null(m);
        rig_message(&r, agent, MESSAGE_STEP_END, &(struct step_end){.id = 1, .attempt = 1, .step = m->step});
        fake_hang_up(&r, ws);
        arena_reset(&a);
    }
    static const char *const live[] = {"/v1/jobs?ids=1&fields=id,steps", "/v1/jobs?fields=id,steps",
                                       "/v1/jobs?elements=1&fields=id,steps&limit=1"};
    static const char *const ended[] = {"/v1/jobs?ids=1&fields=id,steps",
                                        "/v1/jobs?finished=1&fields=id,steps"};
    for (size_t i = 0; i < sizeof live / sizeof *live; i++) {
        struct fake_request *q = get_at_once(&r, &fake_alice, live[i]);
        assert_true(watch(&r, q) >= ROWS / READ_SLICE_ROWS);
        assert_int_equal(json_get(fake_json(q), "jobs")->len, 1);
        assert_int_equal(json_get(&json_get(fake_json(q), "jobs")->items[0], "steps")->len, 2 * STEPS);
    }
    struct fake_request *one = get(&r, &fake_alice, "/v1/jobs/1");
    fake_expect(one, 200, NULL);
    uint32_t shown = json_get(fake_json(one), "steps")->len;
    assert_true(shown > 100 && shown <= 1024);
    fake_expect(rig_call(&r, &fake_alice, "POST", "/v1/jobs/cancel", "{\"ids\":[\"1\"]}"), 200, NULL);
    rig_message(
        &r, agent, MESSAGE_ENDED,
        &(struct message_ended){.id = 1, .attempt = 1, .end_ms = controller_now_ms(), .exit_signal = 15});
    for (size_t i = 0; i < sizeof ended / sizeof *ended; i++) {
        struct fake_request *q = get_at_once(&r, &fake_alice, ended[i]);
        assert_true(watch(&r, q) >= ROWS / READ_SLICE_ROWS);
        assert_int_equal(json_get(fake_json(q), "jobs")->len, 1);
        assert_int_equal(json_get(&json_get(fake_json(q), "jobs")->items[0], "steps")->len, 2 * STEPS);
    }
    rig_close(&r);
}

// Users take turns: who asks for many lists makes his own wait.
static void users_take_turns(void **state) {
    struct rig r;
    struct fake_request *alices[READS_USER_MAX];
    open_with_array(&r);
    for (int i = 0; i < READS_USER_MAX; i++)
        alices[i] = get_at_once(&r, &fake_alice, "/v1/jobs?ids=1&elements=1&fields=id");
    fake_expect(get_at_once(&r, &fake_alice, "/v1/jobs?ids=1"), 429, "too many long answers");
    struct fake_request *bobs = get_at_once(&r, &fake_bob, "/v1/jobs?ids=1&elements=1&fields=id");
    uint64_t slices = r.c.reads.slices;
    while (!bobs->done)
        rig_turn(&r);
    // His slices and one of hers for each.
    assert_true(r.c.reads.slices - slices <= 2 * (json_get(fake_json(bobs), "jobs")->len / 16 + 2));
    uint32_t done = 0;
    for (int i = 0; i < READS_USER_MAX; i++)
        done += alices[i]->done;
    assert_true(done <= 1);
    // Those who leave make room.
    for (int i = 0; i < READS_USER_MAX; i++)
        fake_leave(alices[i]);
    rig_settle(&r);
    assert_int_equal(r.c.reads.list.len, 0);
    assert_int_equal(r.c.reads.users.len, 0);
    rig_close(&r);
}

// The answer waits for its reader, and goes on when it has read.
static void readers_that_do_not_read(void **state) {
    struct rig r;
    open_with_array(&r);
    struct fake_request *q = get_at_once(&r, &fake_alice, "/v1/jobs?ids=1&elements=1&fields=id");
    q->pending = 64 << 20;
    rig_settle(&r);
    assert_false(q->done);
    uint64_t slices = r.c.reads.slices;
    rig_settle(&r);
    assert_int_equal(r.c.reads.slices, slices);
    q->pending = 0;
    q->on_drain(&q->pub, q->watch_user);
    rig_settle(&r);
    assert_true(q->done);
    rig_close(&r);
}

// Explanations: the first of another user is answered before the second of the one who asked many.
static void questions_take_turns(void **state) {
    struct rig r;
    struct fake_request *alices[8];
    rig_open(&r);
    submit_array(&r, &fake_alice, 1);
    r.c.query_throttle_again_us = clock_mono_us() + 1000000000;
    for (int i = 0; i < 8; i++)
        alices[i] = get_at_once(&r, &fake_alice, "/v1/jobs/1/why");
    struct fake_request *bobs = get_at_once(&r, &fake_bob, "/v1/jobs/1/why");
    assert_true(r.c.questions.len == 9);
    while (!bobs->done) {
        r.c.query_throttle_again_us = 0;
        uv_timer_start(&r.c.query_throttle_timer, r.c.query_throttle_timer.timer_cb, 0, 0);
        rig_turn(&r);
    }
    uint32_t done = 0;
    for (int i = 0; i < 8; i++)
        done += alices[i]->done;
    assert_true(done <= 2);
    rig_close(&r);
}

// Of very many requests that one user sends at once, some are handled in each turn; others are not held up.
static void requests_take_turns(void **state) {
    enum { MANY = 1000 };
    struct rig r;
    struct fake_request *alices[MANY];
    rig_open(&r);
    for (int i = 0; i < MANY; i++)
        alices[i] = get_at_once(&r, &fake_alice, "/v1/jobs/1");
    assert_true(alices[0]->done && !alices[300]->done);
    struct fake_request *bobs = get_at_once(&r, &fake_bob, "/v1/jobs/1");
    fake_expect(bobs, 404, NULL);
    uint32_t before = 0, turns = 0;
    while (before < MANY) {
        uint32_t done = 0;
        for (int i = 0; i < MANY; i++) {
            assert_true(!i || alices[i - 1]->done || !alices[i]->done);  // in their order
            done += alices[i]->done;
        }
        assert_true(done - before <= 256 && turns++ < 1000);
        before = done;
        rig_turn(&r);
    }
    rig_settle(&r);
    assert_int_equal(r.c.request_accounts.len, 0);
    // There is an end to what may wait; and nobody waits for a controller that stops.
    struct fake_request *last = NULL;
    for (int i = 0; i < 4096 + 257; i++)
        last = get_at_once(&r, &fake_alice, "/v1/jobs/1");
    fake_expect(last, 429, "too many requests at once");
    rig_close(&r);
}

// Somebody always has more requests waiting than a turn handles: what is kept for them does not grow by it (asserted in
// request_turns.c).
static void requests_without_a_pause(void **state) {
    enum { TURN = 256, TURNS = 50 };
    struct rig r;
    struct fake_request *last = NULL;
    rig_open(&r);
    for (int i = 0; i < 2 * TURN; i++)
        get_at_once(&r, &fake_alice, "/v1/jobs/1");
    for (int turn = 0; turn < TURNS; turn++) {
        for (int i = 0; i < TURN; i++)
            last = get_at_once(&r, &fake_alice, "/v1/jobs/1");
        assert_false(last->done);
        rig_turn(&r);
    }
    rig_settle(&r);
    fake_expect(last, 404, NULL);
    rig_close(&r);
}

// Strangers from very many addresses have together what one account has; they take turns, and a user is handled at once.
static void strangers_share_a_part(void **state) {
    enum { ADDRESSES = 40, EACH = 20, ALL = ADDRESSES * EACH };
    struct rig r;
    struct fake_request *list[ALL];
    rig_open(&r);
    for (int i = 0; i < ALL; i++) {
        char head[200];
        struct net_peer from = {.kind = NET_PEER_HTTP, .uid = (uid_t)-1, .gid = (gid_t)-1};
        snprintf(from.address, sizeof from.address, "[10.0.0.%d]:5000", 1 + i / EACH);
        snprintf(head, sizeof head, "GET /v1/login HTTP/1.1\r\nHost: %s\r\n", portal_host(&r.c));
        list[i] = rig_bytes_at_once(&r, &from, head, NULL);
    }
    fake_expect(get_at_once(&r, &fake_bob, "/v1/jobs/1"), 404, NULL);
    uint32_t before = 0, turns = 0;
    while (before < ALL) {
        uint32_t done = 0;
        for (int i = 0; i < ALL; i++)
            done += list[i]->done;
        assert_true(done - before <= 256 && turns++ < 100);
        before = done;
        rig_turn(&r);
        fake_expect(get_at_once(&r, &fake_bob, "/v1/jobs/1"), 404, NULL);
    }
    assert_true(turns >= ALL / 256);
    rig_settle(&r);
    assert_int_equal(r.c.request_accounts.len, 0);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_by_number),
        cmocka_unit_test(elements_that_end_meanwhile),
        cmocka_unit_test(ended_arrays),
        cmocka_unit_test(events_of_one_job),
        cmocka_unit_test(folded_rows_are_bounded),
        cmocka_unit_test(steps_of_one_job),
        cmocka_unit_test(users_take_turns),
        cmocka_unit_test(readers_that_do_not_read),
        cmocka_unit_test(questions_take_turns),
        cmocka_unit_test(requests_take_turns),
        cmocka_unit_test(strangers_share_a_part),
        cmocka_unit_test(requests_without_a_pause),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
