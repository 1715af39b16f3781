// Requests through dispatch(): routes, identity, permission, validation, typed answers, submits and actions.
#include "../sliced_read.h"
#include "../sliced_work.h"
#include "rig.h"

#include "base/clock.h"
#include "base/text.h"

static struct fake_request *get(struct rig *r, const struct net_peer *from, const char *target) {
    return rig_call(r, from, "GET", target, NULL);
}

static uint64_t submit(struct rig *r, const struct net_peer *from, const char *body) {
    struct fake_request *q = rig_call(r, from, "POST", "/v1/jobs", body);
    fake_expect(q, 201, NULL);
    return (uint64_t)json_i64(fake_json(q), "id", 0);
}

#define JOB "{\"spec\":{\"name\":\"t\",\"workdir\":\"/\",\"argv\":[\"true\"]}}"

static void paths_and_methods(void **state) {
    struct rig r;
    rig_open(&r);
    fake_expect(get(&r, &fake_alice, "/v1/nothing"), 404, "\"code\":\"ENOENT\"");
    struct fake_request *q = rig_call(&r, &fake_alice, "DELETE", "/v1/status", NULL);
    fake_expect(q, 405, "does not take that method");
    assert_non_null(strstr(buf_str(&q->headers), "Allow: GET\r\n"));
    // No rule of alerts has the name of another route.
    q = rig_call(&r, &fake_root, "PUT", "/v1/alerts/ack", "{}");
    fake_expect(q, 405, "does not take that method");
    assert_non_null(strstr(buf_str(&q->headers), "Allow: POST\r\n"));
    fake_expect(get(&r, &fake_alice, "/v1/jobs/%ff"), 400, "not properly encoded");
    fake_expect(get(&r, &fake_alice, "/v1/jobs/twelve"), 400, "twelve");
    fake_expect(get(&r, &fake_alice, "/v1/jobs/12"), 404, "there is no job 12");
    fake_expect(get(&r, &fake_alice, "/v1/run"), 426, NULL);  // not a WebSocket
    rig_close(&r);
}

static void who_asks(void **state) {
    struct rig r;
    struct net_peer stranger = {.kind = NET_PEER_UNIX, .uid = 4242, .gid = 4242, .address = "unix"};
    struct net_peer own = {.kind = NET_PEER_UNIX, .uid = 999, .gid = 999, .address = "unix"};
    rig_open(&r);
    uint64_t id = submit(&r, &stranger, JOB);  // a user without a name is known by number
    struct fake_request *q = get(&r, &fake_alice, "/v1/jobs/1");
    assert_int_equal(id, 1);
    fake_expect(q, 200, "\"user\":\"4242\"");
    fake_expect(get(&r, &fake_lost, "/v1/status"), 503, "\"code\":\"ETIMEDOUT\"");
    // Administrators: root, the controller's own user, those of the configuration; nobody else.
    fake_expect(get(&r, &fake_alice, "/v1/audit"), 403, "you are alice");
    fake_expect(get(&r, &fake_root, "/v1/audit"), 200, NULL);
    fake_expect(get(&r, &own, "/v1/audit"), 200, NULL);
    const char *admins[] = {"bob"};
    struct config_cluster *k = &r.c.config.cluster;
    k->admins.at = admins;
    k->admins.len = 1;
    fake_expect(get(&r, &fake_bob, "/v1/audit"), 200, NULL);
    fake_expect(get(&r, &fake_alice, "/v1/audit"), 403, NULL);
    k->admins.len = 0;
    k->admins.at = NULL;
    rig_close(&r);
}

static void a_slow_directory_holds_up_only_its_own(void **state) {
    struct rig r;
    rig_open(&r);
    struct fake_request *slow = get(&r, &fake_slow, "/v1/status");
    assert_int_equal(slow->status, 0);
    fake_expect(get(&r, &fake_alice, "/v1/status"), 200, NULL);
    api_users_changed(&r.c);  // somebody else's answer came
    assert_int_equal(slow->status, 0);
    fake_users_answer = true;
    api_users_changed(&r.c);
    fake_expect(slow, 200, NULL);
    fake_users_answer = false;
    slow = get(&r, &fake_slow, "/v1/status");
    r.c.stopping = true;
    api_users_changed(&r.c);
    fake_expect(slow, 503, "is stopping");
    r.c.stopping = false;
    rig_close(&r);
}

static void requests_are_validated(void **state) {
    static const struct {
        const char *method, *target, *body, *says;
        int status;
    } cases[] = {
        {"GET", "/v1/jobs?colour=red", NULL, "unknown parameter \\\"colour\\\"", 400},
        {"GET", "/v1/status?x=1", NULL, "this path takes none", 400},
        {"POST", "/v1/jobs", "", "JSON", 400},
        {"POST", "/v1/jobs", "{", "JSON", 400},
        {"POST", "/v1/jobs", "{\"spec\":{},\"spec\":{}}", "the same name twice", 400},
        {"POST", "/v1/jobs", "{\"spec\":{\"nise\":1}}", "did you mean \\\"nice\\\"", 400},
        {"POST", "/v1/jobs", "{\"spec\":{\"cpus_per_task\":-1}}", "out of range", 400},
        {"POST", "/v1/jobs", "{\"spec\":{\"argv\":[\"true\"],\"workdir\":\"/\"},\"environment\":[\"A\"]}",
         "NAME=value", 400},
        {"POST", "/v1/jobs", "{\"spec\":{\"argv\":[\"true\"],\"workdir\":\"/\"},\"script\":\"\"}",
         "script: it is empty", 400},
        {"POST", "/v1/jobs/dance", "{}", "there is no such action", 404},
        {"POST", "/v1/jobs/update", "{\"ids\":[\"1\"]}", "field \\\"spec\\\" is missing", 400},
        {"POST", "/v1/jobs/cancel", "[]", "expected a JSON object", 400},
        {"POST", "/v1/when", NULL, "JSON", 400},
        {"PUT", "/v1/policy", "{\"reclaim\":1}", "expected true or false", 400},
    };
    struct rig r;
    rig_open(&r);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct net_peer *from = streq(cases[i].method, "PUT") ? &fake_root : &fake_alice;
        struct fake_request *q = rig_call(&r, from, cases[i].method, cases[i].target, cases[i].body);
        fake_expect(q, cases[i].status, cases[i].says);
        const struct json *e = json_get(fake_json(q), "error");
        assert_true(e && json_str(e, "code") && json_str(e, "message"));
    }
    assert_int_equal(core_newest_id(r.c.core), 0);  // nothing was submitted
    rig_close(&r);
}

static void has_the_fields_of(const struct schema *s, const struct json *j, const char *what) {
    if (j->type != JSON_OBJECT || j->len != s->count)
        fail_msg("%s: %u fields, not %zu", what, j->len, s->count);
    for (size_t i = 0; i < s->count; i++)
        if (!streq(j->members[i].key, s->fields[i].name))
            fail_msg("%s: field %s, not %s", what, j->members[i].key, s->fields[i].name);
}

// Every route that answers with one object or a list of them, and needs nothing to be asked.
static void answers_have_the_fields_of_their_tables(void **state) {
    struct rig r;
    uint32_t asked = 0;
    rig_open(&r);
    rig_agent(&r, "n1");
    submit(&r, &fake_alice, JOB);
    for (size_t i = 0; i < api_route_count; i++) {
        const struct route *t = &api_routes[i];
        if (!streq(t->method, "GET") || strchr(t->path, '{') ||
            (t->form != FORM_JSON && t->form != FORM_LIST) || t->handler == api_at ||
            t->handler == api_files || t->handler == api_file_space)  // a process of the daemon's; a node
            continue;
        struct fake_request *q = get(&r, &fake_root, t->path);
        rig_wait(&r, q);  // replays are made in a thread
        fake_expect(q, 200, NULL);
        assert_non_null(strstr(buf_str(&q->headers), "Content-Type: application/json"));
        const struct json *j = fake_json(q);
        for (uint32_t k = 0; t->form == FORM_LIST && k < j->len; k++)
            has_the_fields_of(t->answer, &j->items[k], t->path);
        if (t->form == FORM_JSON)
            has_the_fields_of(t->answer, j, t->path);
        asked++;
    }
    assert_true(asked >= 12);
    struct fake_request *q = get(&r, &fake_alice, "/v1/jobs/1");
    fake_expect(q, 200, NULL);
    has_the_fields_of(&answer_job_schema, fake_json(q), "a job");
    q = get(&r, &fake_alice, "/v1/series");
    fake_expect(q, 200, "{\"names\":[");
    has_the_fields_of(&answer_series_names_schema, fake_json(q), "series");
    fake_expect(get(&r, &fake_alice, "/v1/series?name=none"), 404, "there is no series");
    rig_close(&r);
}

static void a_submit_is_answered_when_it_is_committed(void **state) {
    struct rig r;
    rig_open(&r);
    struct fake_request *q = rig_bytes_at_once(&r, &fake_alice, "POST /v1/jobs HTTP/1.1\r\n", JOB);
    assert_int_equal(q->status, 0);
    rig_settle(&r);
    fake_expect(q, 201, "\"id\":1");
    rig_disk_fails(&r, true);
    q = rig_call(&r, &fake_alice, "POST", "/v1/jobs", JOB);
    assert_int_equal(q->status, 0);  // nobody is told that it is kept
    fake_expect(rig_call(&r, &fake_alice, "POST", "/v1/jobs", JOB), 503, "nothing can be stored right now");
    fake_expect(get(&r, &fake_alice, "/v1/jobs/1"), 200, NULL);  // questions are answered
    rig_disk_fails(&r, false);
    fake_expect(q, 201, "\"id\":2");
    rig_close(&r);
}

static void a_key_makes_one_job(void **state) {
    static const char keyed[] =
        "{\"spec\":{\"name\":\"t\",\"workdir\":\"/\",\"argv\":[\"true\"],\"array\":[{\"first\":0,"
        "\"last\":4,\"step\":1}]},\"key\":\"k1\"}";
    struct rig r;
    rig_open(&r);
    // Two connections in one turn of the loop, then again after the commit.
    struct fake_request *a = rig_bytes_at_once(&r, &fake_alice, "POST /v1/jobs HTTP/1.1\r\n", keyed);
    struct fake_request *b = rig_bytes_at_once(&r, &fake_alice, "POST /v1/jobs HTTP/1.1\r\n", keyed);
    rig_settle(&r);
    struct fake_request *c = rig_call(&r, &fake_alice, "POST", "/v1/jobs", keyed);
    fake_expect(a, 201, "\"repeated\":false");
    fake_expect(b, 201, "\"repeated\":true");
    fake_expect(c, 201, "\"repeated\":true");
    assert_int_equal(json_i64(fake_json(c), "id", 0), json_i64(fake_json(a), "id", 0));
    assert_int_equal(json_i64(fake_json(c), "count", 0), 5);
    // Another spec, script or environment with the key is an error; another user's key is another one.
    fake_expect(rig_call(&r, &fake_alice, "POST", "/v1/jobs",
                         "{\"spec\":{\"name\":\"u\",\"workdir\":\"/\",\"argv\":[\"true\"]},\"key\":\"k1\"}"),
                409, "k1");
    fake_expect(
        rig_call(&r, &fake_alice, "POST", "/v1/jobs",
                 "{\"spec\":{\"name\":\"t\",\"workdir\":\"/\",\"argv\":[\"true\"],\"array\":[{\"first\":0,"
                 "\"last\":4,\"step\":1}]},\"environment\":[\"A=1\"],\"key\":\"k1\"}"),
        409, NULL);
    fake_expect(rig_call(&r, &fake_bob, "POST", "/v1/jobs", keyed), 201, "\"repeated\":false");
    rig_close(&r);
}

static void a_list_of_jobs_is_answered_one_by_one(void **state) {
    struct rig r;
    rig_open(&r);
    struct fake_request *q =
        rig_call(&r, &fake_alice, "POST", "/v1/jobs", "[" JOB ",{\"spec\":{\"nise\":1}}," JOB "]");
    fake_expect(q, 201, NULL);
    const struct json *j = fake_json(q);
    assert_true(j->type == JSON_ARRAY && j->len == 3);
    assert_int_equal(json_i64(&j->items[0], "id", 0), 1);
    assert_non_null(json_get(&j->items[1], "error"));
    assert_int_equal(json_i64(&j->items[2], "id", 0), 2);
    fake_expect(rig_call(&r, &fake_alice, "POST", "/v1/jobs", "[" JOB ",{]"), 400, NULL);
    assert_int_equal(core_newest_id(r.c.core), 2);  // a list that is not JSON submits nothing
    rig_close(&r);
}

static void private_parts_stay_private(void **state) {
    struct rig r;
    rig_open(&r);
    submit(&r, &fake_alice,
           "{\"spec\":{\"name\":\"t\",\"workdir\":\"/of-alice\"},\"script\":\"#!/bin/sh\\necho "
           "hush\\n\",\"environment\":[\"A=1\"]}");
    fake_expect(get(&r, &fake_alice, "/v1/jobs/1/script"), 200, "echo hush");
    fake_expect(get(&r, &fake_bob, "/v1/jobs/1/script"), 403, "private");
    fake_expect(get(&r, &fake_bob, "/v1/jobs/1/environment"), 403, "private");
    fake_expect(get(&r, &fake_bob, "/v1/jobs/1/logs"), 403, "private");
    fake_expect(get(&r, &fake_root, "/v1/jobs/1/environment?list=1"), 200, "A=1");
    struct fake_request *seen = get(&r, &fake_bob, "/v1/jobs/1");
    fake_expect(seen, 200, NULL);
    assert_null(strstr(buf_str(&seen->body), "/of-alice"));
    fake_expect(get(&r, &fake_alice, "/v1/jobs/1"), 200, "/of-alice");
    fake_expect(rig_call(&r, &fake_bob, "POST", "/v1/jobs/cancel", "{\"ids\":[\"1\"]}"), 200, "EPERM");
    fake_expect(get(&r, &fake_alice, "/v1/jobs/1"), 200, "\"state\":\"PENDING\"");
    rig_close(&r);
}

#define ARRAY(last)                                                                                          \
    "{\"spec\":{\"name\":\"a\",\"workdir\":\"/\",\"argv\":[\"true\"],\"array\":[{\"first\":0,\"last\":" last \
    ",\"step\":1}]}}"

static void actions_are_carried_out_in_slices(void **state) {
    struct rig r;
    rig_open(&r);
    submit(&r, &fake_alice, ARRAY("2999"));
    submit(&r, &fake_bob, JOB);
    uint64_t slices = r.c.work_slices;
    struct fake_request *all =
        rig_bytes_at_once(&r, &fake_alice, "POST /v1/jobs/hold HTTP/1.1\r\n", "{\"all\":true}");
    assert_int_equal(r.c.work.len, 1);
    // Others are answered in between; a second one of the same user waits behind the first.
    fake_expect(rig_bytes_at_once(&r, &fake_bob, "GET /v1/status HTTP/1.1\r\n", NULL), 200, NULL);
    struct fake_request *second =
        rig_bytes_at_once(&r, &fake_alice, "POST /v1/jobs/release HTTP/1.1\r\n", "{\"ids\":[\"1_0\"]}");
    assert_int_equal(r.c.work.len, 2);
    assert_true(all->status == 0 && second->status == 0);
    rig_settle(&r);
    fake_expect(all, 200, NULL);
    fake_expect(second, 200, "\"done\":1");
    assert_int_equal(json_i64(fake_json(all), "done", 0), 3000);  // bob's is not alice's to hold
    assert_true(r.c.work_slices - slices > 3 && r.c.work_spent_max <= 11000);
    // A client that disconnects does not undo or stop it.
    struct fake_request *left =
        rig_bytes_at_once(&r, &fake_alice, "POST /v1/jobs/release HTTP/1.1\r\n", "{\"all\":true}");
    fake_leave(left);
    rig_settle(&r);
    fake_expect(get(&r, &fake_alice, "/v1/jobs/1_2999"), 200, "\"hold\":false");
    rig_close(&r);
}

// Many small ones in one packet are done at once, but no more of them than fit into a turn; a slice of what waits is
// none of that turn either, and none begins while the disk is behind.
static void small_actions_take_no_more_than_their_turn(void **state) {
    struct rig r;
    size_t most = 0;
    rig_open(&r);
    submit(&r, &fake_alice, ARRAY("2999"));
    r.c.work_spent_max = 0;
    for (int i = 0; i < 12; i++)
        rig_bytes_at_once(&r, &fake_alice,
                          i % 2 ? "POST /v1/jobs/release HTTP/1.1\r\n" : "POST /v1/jobs/hold HTTP/1.1\r\n",
                          "{\"ids\":[\"1_[0-79]\"]}");
    assert_true(r.c.work.len > 0);
    struct fake_request *all = rig_bytes_at_once(&r, &fake_bob, "POST /v1/jobs HTTP/1.1\r\n", ARRAY("19999"));
    struct fake_request *last = rig_bytes_at_once(&r, &fake_alice, "POST /v1/jobs/hold HTTP/1.1\r\n", "{\"all\":true}");
    uint64_t slices = r.c.work_slices;
    bool full = r.c.work_spent >= WORK_SLICE;  // else the machine was so slow that time ended them
    rig_turn(&r);
    assert_true(!full || r.c.work_slices == slices);
    r.disk_waits = true;
    for (int turns = 0; turns < 20; turns++) {
        rig_turn(&r);
        size_t backlog = pipeline_backlog(r.c.pipeline);
        most = backlog > most ? backlog : most;
    }
    assert_true(most > 0 && most < 128 << 10);  // what is behind, and a slice
    assert_int_equal(last->status, 0);
    r.disk_waits = false;
    rig_settle(&r);
    fake_expect(all, 201, NULL);
    fake_expect(last, 200, NULL);
    assert_true(r.c.work_spent_max <= 13000);
    rig_close(&r);
}

// A large array: each turn creates a slice of it, others are answered in between, and its own answer leaves when all
// elements exist. Actions on it mean the elements that are still to come as well.
static void arrays_are_created_in_slices(void **state) {
    struct rig r;
    struct core_counts n;
    rig_open(&r);
    struct fake_request *array =
        rig_bytes_at_once(&r, &fake_alice, "POST /v1/jobs HTTP/1.1\r\n", ARRAY("19999"));
    struct fake_request *hold =
        rig_bytes_at_once(&r, &fake_root, "POST /v1/jobs/hold HTTP/1.1\r\n", "{\"ids\":[\"1\"]}");
    struct fake_request *list =
        rig_bytes_at_once(&r, &fake_bob, "POST /v1/jobs HTTP/1.1\r\n", "[" ARRAY("4999") "," JOB "]");
    core_counts(r.c.core, &n);
    uint64_t before = n.by_state[JOB_PENDING], most = 0;
    assert_true(before <= 2 * 2000);  // the first elements of both
    for (int turns = 0; !array->status || !list->status; turns++) {
        fake_expect(rig_bytes_at_once(&r, &fake_bob, "GET /v1/status HTTP/1.1\r\n", NULL), 200, NULL);
        rig_turn(&r);
        core_counts(r.c.core, &n);
        most = n.by_state[JOB_PENDING] - before > most ? n.by_state[JOB_PENDING] - before : most;
        before = n.by_state[JOB_PENDING];
        assert_true(turns < 1000);
        if (array->status)
            assert_int_equal(core_array_uncreated(r.c.core, 1), 0);
    }
    assert_true(most <= 3 * 2000 + 1);  // one submit and two slices
    rig_settle(&r);
    fake_expect(array, 201, "\"count\":20000");
    fake_expect(list, 201, "\"count\":5000");
    assert_int_equal(json_i64(fake_json(hold), "done", 0), 20000);
    core_counts(r.c.core, &n);
    assert_int_equal(n.by_state[JOB_PENDING], 25001);
    rig_close(&r);
}

// What the ids of a request mean is looked up in slices, too: one may be a long list of elements.
static void ids_are_looked_up_in_slices(void **state) {
    enum { IDS = 300 };
    struct rig r;
    cleanup_buf struct buf body = {0};
    rig_open(&r);
    submit(&r, &fake_alice, ARRAY("99"));
    buf_adds(&body, "{\"ids\":[");
    for (int i = 0; i < IDS; i++)
        buf_adds(&body, i ? ",\"1_[0-9999]\"" : "\"1_[0-9999]\"");
    buf_adds(&body, "]}");
    uint64_t slices = r.c.work_slices;
    struct fake_request *hold =
        rig_bytes_at_once(&r, &fake_alice, "POST /v1/jobs/hold HTTP/1.1\r\n", buf_str(&body));
    assert_true(r.c.work.len == 1 && hold->status == 0);
    rig_settle(&r);
    assert_int_equal(json_i64(fake_json(hold), "done", 0), 100);
    assert_true(r.c.work_slices - slices > 3 && r.c.work_spent_max <= 13000);
    fake_expect(
        rig_call(&r, &fake_alice, "POST", "/v1/jobs/hold", "{\"ids\":[\"1_[0-999999,0-999999,0-999999]\"]}"),
        200, "names more than 2000000 indices");
    rig_close(&r);
}

// How many elements there are is asked before the ranges are checked.
static void strange_ranges_are_refused(void **state) {
    struct rig r;
    rig_open(&r);
#define RANGES(text) "{\"spec\":{\"name\":\"a\",\"workdir\":\"/\",\"argv\":[\"true\"],\"array\":[" text "]}}"
    static const char *const bad[] = {RANGES("{\"first\":0,\"last\":1,\"step\":0}"),
                                      RANGES("{\"first\":3,\"last\":1,\"step\":1}"),
                                      RANGES("{\"first\":0,\"last\":4294967295,\"step\":1}")};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        fake_expect(rig_call(&r, &fake_alice, "POST", "/v1/jobs", bad[i]), 400, "is not valid");
    rig_close(&r);
}

// What is read in one go is bounded, whatever a list of jobs may have in all.
static void documents_are_bounded(void **state) {
    struct rig r;
    cleanup_buf struct buf body = {0};
    rig_open(&r);
    size_t most = api_document_max(&r.c);
    buf_adds(&body, "{\"spec\":{\"name\":\"");
    while (body.len < most + 100)
        buf_adds(&body, "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef");
    buf_adds(&body, "\"}}");
    fake_expect(rig_call(&r, &fake_alice, "POST", "/v1/jobs", buf_str(&body)), 413, "no list of jobs");
    fake_expect(rig_call(&r, &fake_alice, "POST", "/v1/when", buf_str(&body)), 413, "no list of jobs");
    cleanup_buf struct buf list = {0};
    buf_adds(&list, "[{\"spec\":{\"workdir\":\"/\",\"argv\":[\"true\"]}},");
    buf_add(&list, body.data, body.len);
    buf_addc(&list, ']');
    fake_expect(rig_call(&r, &fake_alice, "POST", "/v1/jobs", buf_str(&list)), 413, "item 2 of the list");
    rig_close(&r);
}

static void too_many_actions_are_refused(void **state) {
    struct rig r;
    rig_open(&r);
    submit(&r, &fake_alice, ARRAY("2999"));
    struct fake_request *last = NULL;
    for (int i = 0; i < 65; i++)
        last = rig_bytes_at_once(&r, &fake_alice, "POST /v1/jobs/hold HTTP/1.1\r\n", "{\"all\":true}");
    fake_expect(last, 429, "too many actions");
    struct fake_request *bobs =
        rig_bytes_at_once(&r, &fake_bob, "POST /v1/jobs/hold HTTP/1.1\r\n", "{\"all\":true}");
    assert_int_equal(bobs->status, 0);  // it waits for its turn
    // A controller that stops answers those that are under way.
    struct fake_request *first = r.requests.at[1];
    assert_int_equal(first->status, 0);
    controller_work_stop(&r.c);
    fake_expect(first, 503, "is stopping");
    rig_close(&r);
}

static void waiting_for_a_job(void **state) {
    struct rig r;
    rig_open(&r);
    submit(&r, &fake_alice, JOB);
    struct fake_request *waits = get(&r, &fake_alice, "/v1/jobs/1/wait?timeout_s=3600");
    struct fake_request *left = get(&r, &fake_alice, "/v1/jobs/1/wait?timeout_s=3600");
    assert_true(waits->status == 0 && left->status == 0);
    fake_leave(left);
    assert_true(left->done);
    rig_call(&r, &fake_alice, "POST", "/v1/jobs/cancel", "{\"ids\":[\"1\"]}");
    fake_expect(waits, 200, "\"state\":\"CANCELLED\"");
    fake_expect(get(&r, &fake_alice, "/v1/jobs/1/wait"), 200, "\"state\":\"CANCELLED\"");
    rig_close(&r);
}

static void events_are_followed(void **state) {
    struct rig r;
    rig_open(&r);
    struct fake_request *mine = get(&r, &fake_alice, "/v1/events?follow=1");
    struct fake_request *others = get(&r, &fake_bob, "/v1/events?follow=1");
    assert_true(mine->streaming && strstr(buf_str(&mine->headers), "text/event-stream"));
    submit(&r, &fake_alice, JOB);
    const char *text = buf_str(&mine->body);
    assert_non_null(strstr(text, "\"type\":\"job_submitted\""));
    assert_true(str_has_prefix(text, "id: "));
    assert_null(strstr(buf_str(&others->body), "job_submitted"));  // bob may not see alice's
    fake_leave(others);
    rig_settle(&r);
    assert_true(others->done && r.c.reads.list.len == 1);
    for (int i = 1; i < READS_USER_MAX; i++)
        assert_true(get(&r, &fake_alice, "/v1/events?follow=1")->streaming);
    fake_expect(get(&r, &fake_alice, "/v1/events?follow=1"), 429, "too many long answers");
    assert_true(get(&r, &fake_bob, "/v1/events?follow=1")->streaming);
    fake_expect(get(&r, &fake_alice, "/v1/jobs/1/events"), 200, "job_submitted");
    rig_close(&r);
}

static void lists_are_written_in_pieces(void **state) {
    struct rig r;
    rig_open(&r);
    submit(&r, &fake_alice, JOB);
    submit(&r, &fake_bob, JOB);
    struct fake_request *q = get(&r, &fake_alice, "/v1/jobs?fields=id,user");
    fake_expect(q, 200, "{\"id\":1,\"user\":\"alice\"}");
    assert_true(q->done && !q->aborted);
    q = get(&r, &fake_alice, "/v1/jobs?fields=id,user&compact=1&user=bob");
    fake_expect(q, 200, "[2,\"bob\"]");
    assert_null(strstr(buf_str(&q->body), "alice"));
    q = get(&r, &fake_alice, "/v1/jobs?stream=1&fields=id&mine=1");
    fake_expect(q, 200, "[1]\n{\"rows\":1}\n");
    fake_expect(get(&r, &fake_alice, "/v1/jobs?fields=shoe_size"), 400, "shoe_size");
    rig_close(&r);
}

static void entities_and_policy_are_changed_by_administrators(void **state) {
    struct rig r;
    rig_open(&r);
    fake_expect(rig_call(&r, &fake_alice, "PUT", "/v1/projects/vision", "{\"quota_milligpu\":2000}"), 403,
                NULL);
    fake_expect(rig_call(&r, &fake_root, "PUT", "/v1/projects/vision", "{\"quota_milligpu\":2000}"), 200,
                NULL);
    fake_expect(get(&r, &fake_alice, "/v1/projects/vision"), 200, "\"quota_milligpu\":2000");
    fake_expect(rig_call(&r, &fake_root, "PUT", "/v1/projects/vision", "{\"name\":\"speech\"}"), 400, "name");
    fake_expect(get(&r, &fake_alice, "/v1/projects/speech"), 404, NULL);
    fake_expect(rig_call(&r, &fake_root, "DELETE", "/v1/projects/vision", NULL), 200, NULL);
    fake_expect(get(&r, &fake_alice, "/v1/projects/vision"), 404, NULL);
    // Zero and false are values.
    fake_expect(rig_call(&r, &fake_root, "PUT", "/v1/policy", "{\"reclaim\":false,\"min_run_s\":0}"), 200,
                NULL);
    fake_expect(get(&r, &fake_alice, "/v1/policy"), 200, "\"reclaim\":false");
    rig_close(&r);
}

// Who somebody is comes from the connection; a body that names another user is refused, and numbers in it count for nothing.
static void the_body_says_nothing_about_who_asks(void **state) {
    struct rig r;
    rig_open(&r);
    fake_expect(rig_call(&r, &fake_alice, "POST", "/v1/jobs",
                         "{\"spec\":{\"user\":\"bob\",\"workdir\":\"/\",\"argv\":[\"true\"]}}"),
                403, "would run as alice");
    fake_expect(rig_call(&r, &fake_alice, "POST", "/v1/jobs",
                         "{\"spec\":{\"uid\":0,\"gid\":0,\"workdir\":\"/\",\"argv\":[\"true\"]}}"),
                201, NULL);
    struct fake_request *q = rig_call(&r, &fake_alice, "GET", "/v1/jobs/1", NULL);
    rig_wait(&r, q);
    fake_expect(q, 200, "\"user\":\"alice\"");
    const struct json *spec = json_get(fake_json(q), "spec");
    assert_string_equal(json_str(spec, "user"), "alice");
    assert_int_equal(json_i64(spec, "uid", 0), fake_alice.uid);
    assert_int_equal(json_i64(spec, "gid", 0), fake_alice.gid);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths_and_methods),
        cmocka_unit_test(who_asks),
        cmocka_unit_test(a_slow_directory_holds_up_only_its_own),
        cmocka_unit_test(requests_are_validated),
        cmocka_unit_test(answers_have_the_fields_of_their_tables),
        cmocka_unit_test(a_submit_is_answered_when_it_is_committed),
        cmocka_unit_test(a_key_makes_one_job),
        cmocka_unit_test(a_list_of_jobs_is_answered_one_by_one),
        cmocka_unit_test(private_parts_stay_private),
        cmocka_unit_test(actions_are_carried_out_in_slices),
        cmocka_unit_test(small_actions_take_no_more_than_their_turn),
        cmocka_unit_test(arrays_are_created_in_slices),
        cmocka_unit_test(ids_are_looked_up_in_slices),
        cmocka_unit_test(strange_ranges_are_refused),
        cmocka_unit_test(documents_are_bounded),
        cmocka_unit_test(too_many_actions_are_refused),
        cmocka_unit_test(waiting_for_a_job),
        cmocka_unit_test(events_are_followed),
        cmocka_unit_test(lists_are_written_in_pieces),
        cmocka_unit_test(entities_and_policy_are_changed_by_administrators),
        cmocka_unit_test(the_body_says_nothing_about_who_asks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
