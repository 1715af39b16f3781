// What the portal is built on: problem documents, the live feed, the job table, the overview.
#include "rig.h"

#include <stdio.h>
#include <unistd.h>

#include "../job_sight.h"
#include "../live.h"
#include "../mcp.h"
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

// --- problem documents ---

static void blames(struct fake_request *q, int status, const char *field) {
    const struct json *j = fake_json(q), *inner = json_get(j, "error");
    assert_int_equal(q->status, status);
    assert_int_equal(json_i64(j, "status", 0), status);
    assert_string_equal(json_str(j, "type"), "about:blank");
    assert_string_equal(json_str(j, "title"), http_status_text(status));
    assert_string_equal(json_str(j, "detail"), json_str(inner, "message"));
    assert_string_equal(json_str(j, "instance"), q->pub.path);
    assert_non_null(json_str(inner, "code"));
    if (field)
        assert_string_equal(json_str(j, "field"), field);
    else
        assert_null(json_str(j, "field"));
}

static void errors_are_problem_documents(void **state) {
    struct rig r;
    rig_open(&r);
    blames(get(&r, &fake_alice, "/v1/jobs?state=MELTED"), 400, "state");
    blames(get(&r, &fake_alice, "/v1/jobs?limit=many"), 400, "limit");
    blames(get(&r, &fake_alice, "/v1/jobs?colour=red"), 400, "colour");
    blames(get(&r, &fake_alice, "/v1/jobs/77"), 404, NULL);
    blames(get(&r, &fake_alice, "/v1/nothing"), 404, NULL);
    blames(
        rig_call(&r, &fake_alice, "POST", "/v1/jobs", "{\"spec\":{\"argv\":[\"true\"],\"nice\":\"very\"}}"),
        400, "nice");
    // Found by the core, whose sentences begin with the field.
    blames(rig_call(&r, &fake_alice, "POST", "/v1/jobs",
                    "{\"spec\":{\"argv\":[\"true\"],\"workdir\":\"here\"}}"),
           400, "workdir");
    blames(rig_call(&r, &fake_alice, "PUT", "/v1/policy", "{}"), 403, NULL);
    rig_close(&r);
}

static void errors_have_the_type_that_the_client_reads(void **state) {
    struct rig r;
    rig_open(&r);
    struct fake_request *q = rig_bytes(&r, &fake_alice, "GET /v1/jobs/77 HTTP/1.1\r\nAccept: */*\r\n", NULL);
    blames(q, 404, NULL);
    assert_non_null(strstr(buf_str(&q->headers), "Content-Type: application/problem+json\r\n"));
    // Clients of release 0.2 send no Accept, and take nothing but application/json for JSON.
    q = rig_bytes(&r, &fake_alice, "GET /v1/jobs/77 HTTP/1.1\r\n", NULL);
    blames(q, 404, NULL);
    assert_non_null(strstr(buf_str(&q->headers), "Content-Type: application/json\r\n"));
    // A list of jobs is answered one by one, in the old form.
    q = rig_call(&r, &fake_alice, "POST", "/v1/jobs",
                 "[" JOB ",{\"spec\":{\"argv\":[\"true\"],\"workdir\":\"x\"}}]");
    fake_expect(q, 201, "{\"error\":{\"code\":\"EINVAL\"");
    assert_int_equal(submit(&r, &fake_alice, JOB), 2);
    rig_close(&r);
}

// --- the live feed ---

enum { WAIT_MS = 60000 };

static void wait_for(struct rig *r, struct fake_request *q, const char *text) {
    for (int64_t until_ms = clock_mono_ms() + WAIT_MS;
         clock_mono_ms() < until_ms && !strstr(buf_str(&q->body), text);) {
        usleep(1000);
        rig_settle(r);
    }
    if (!strstr(buf_str(&q->body), text))
        fail_msg("\"%s\" does not come; there is: %s", text, buf_str(&q->body));
}

static bool has(struct fake_request *q, const char *text) {
    return strstr(buf_str(&q->body), text) != NULL;
}

// The id of the last event that had one.
static unsigned long long last_id(struct fake_request *q) {
    unsigned long long id = 0;
    for (const char *p = buf_str(&q->body); (p = strstr(p, "id: ")); p++)
        sscanf(p, "id: %llu", &id);
    return id;
}

static void cancel(struct rig *r, const struct net_peer *from, const char *id) {
    cleanup_buf struct buf body = {0};
    buf_addf(&body, "{\"ids\":[\"%s\"]}", id);
    fake_expect(rig_call(r, from, "POST", "/v1/jobs/cancel", buf_str(&body)), 200, NULL);
}

static void changes_reach_viewers(void **state) {
    struct rig r;
    rig_open(&r);
    struct fake_request *all = get(&r, &fake_alice, "/v1/live?topics=jobs");
    struct fake_request *bobs = get(&r, &fake_alice, "/v1/live?topics=jobs&user=bob");
    struct fake_request *waiting = get(&r, &fake_alice, "/v1/live?topics=jobs&state=PENDING");
    struct fake_request *named = get(&r, &fake_alice, "/v1/live?topics=jobs&where=name%3Dother");
    fake_expect(all, 200, "event: hello");
    assert_non_null(strstr(buf_str(&all->headers), "text/event-stream"));
    submit(&r, &fake_alice, JOB);
    wait_for(&r, all, "\"id\":1,");
    wait_for(&r, waiting, "\"state\":\"PENDING\"");
    submit(&r, &fake_bob, "{\"spec\":{\"name\":\"other\",\"workdir\":\"/\",\"argv\":[\"true\"]}}");
    wait_for(&r, bobs, "\"id\":2,");
    wait_for(&r, named, "\"id\":2,");
    assert_false(has(bobs, "\"id\":1,"));
    assert_false(has(named, "\"id\":1,"));
    cancel(&r, &fake_alice, "1");
    wait_for(&r, all, "\"state\":\"CANCELLED\"");  // from history
    wait_for(&r, waiting, "\"gone\":[1]");
    assert_false(has(waiting, "\"state\":\"CANCELLED\""));
    rig_close(&r);
}

static void changes_in_between_are_one(void **state) {
    struct rig r;
    rig_open(&r);
    struct fake_request *v = get(&r, &fake_alice, "/v1/live?topics=jobs");
    rig_settle(&r);
    for (int i = 0; i < 10; i++) {
        fake_expect(rig_call(&r, &fake_alice, "POST", "/v1/jobs", JOB), 201, NULL);
        fake_expect(rig_call(&r, &fake_alice, "POST", "/v1/jobs/hold", "{\"all\":true}"), 200, NULL);
    }
    wait_for(&r, v, "\"id\":10,");
    uint32_t events = 0;
    for (const char *p = buf_str(&v->body); (p = strstr(p, "event: jobs")); p++)
        events++;
    assert_true(events < 20 + 1);  // 20 commits and more changes: fewer events
    rig_close(&r);
}

static void a_viewer_goes_on_where_it_was(void **state) {
    struct rig r;
    cleanup_buf struct buf head = {0}, old = {0};
    rig_open(&r);
    struct fake_request *v = get(&r, &fake_alice, "/v1/live?topics=jobs");
    submit(&r, &fake_alice, JOB);
    wait_for(&r, v, "\"id\":1,");
    unsigned long long seen = last_id(v);
    assert_true(seen > 0);
    fake_leave(v);
    submit(&r, &fake_alice, JOB);
    buf_addf(&head, "GET /v1/live?topics=jobs&after=1 HTTP/1.1\r\nLast-Event-ID: %llu\r\n", seen);
    v = rig_bytes(&r, &fake_alice, buf_str(&head), NULL);
    wait_for(&r, v, "\"id\":2,");
    assert_false(has(v, "\"id\":1,"));
    // After more than is kept it must load again.
    for (int i = 0; i < 4; i++) {
        cleanup_buf struct buf many = {0};
        buf_adds(&many, "[");
        for (int k = 0; k < 5000; k++)
            buf_addf(&many, "%s%s", k ? "," : "", JOB);
        buf_adds(&many, "]");
        fake_expect(rig_call(&r, &fake_alice, "POST", "/v1/jobs", buf_str(&many)), 201, NULL);
    }
    buf_addf(&old, "GET /v1/live?topics=jobs HTTP/1.1\r\nLast-Event-ID: %llu\r\n", seen);
    v = rig_bytes(&r, &fake_alice, buf_str(&old), NULL);
    wait_for(&r, v, "event: reset");
    assert_true(last_id(v) > seen);
    // An id of a state that was lost.
    v = rig_bytes(&r, &fake_alice, "GET /v1/live HTTP/1.1\r\nLast-Event-ID: 99999999\r\n", NULL);
    wait_for(&r, v, "event: reset");
    fake_expect(rig_bytes(&r, &fake_alice, "GET /v1/live HTTP/1.1\r\nLast-Event-ID: x\r\n", NULL), 400,
                "Last-Event-ID");
    fake_expect(get(&r, &fake_alice, "/v1/live?topics=weather"), 400, "expected jobs, nodes");
    rig_close(&r);
}

static void a_slow_viewer_waits_alone(void **state) {
    struct rig r;
    rig_open(&r);
    struct fake_request *slow = get(&r, &fake_alice, "/v1/live?topics=jobs");
    struct fake_request *quick = get(&r, &fake_alice, "/v1/live?topics=jobs");
    slow->pending = LIVE_BACKLOG_BYTES + 1;
    submit(&r, &fake_alice, JOB);
    wait_for(&r, quick, "\"id\":1,");
    assert_false(has(slow, "\"id\":1,"));
    slow->pending = 0;
    wait_for(&r, slow, "\"id\":1,");
    rig_close(&r);
}

// Many viewers are served in slices: in one turn of the loop only some of them.
static void viewers_are_served_in_slices(void **state) {
    enum { VIEWERS = 3 * LIVE_SLICE_VIEWERS };
    struct rig r;
    struct fake_request *viewers[VIEWERS];
    uint32_t served = 0, turns = 0;
    rig_open(&r);
    for (int i = 0; i < VIEWERS; i++)
        viewers[i] = get(&r, &fake_root, "/v1/live?topics=jobs");
    submit(&r, &fake_alice, JOB);
    for (int i = 0; i < VIEWERS; i++)
        served += has(viewers[i], "\"id\":1,");  // while it was committed
    assert_true(served <= LIVE_SLICE_VIEWERS);
    for (int64_t until_ms = clock_mono_ms() + WAIT_MS; served < VIEWERS && clock_mono_ms() < until_ms;) {
        uint32_t now = 0;
        usleep(1000);
        rig_turn(&r);
        for (int i = 0; i < VIEWERS; i++)
            now += has(viewers[i], "\"id\":1,");
        assert_true(now - served <= LIVE_SLICE_VIEWERS);
        turns += now > served;
        served = now;
    }
    assert_true(served == VIEWERS && turns >= VIEWERS / LIVE_SLICE_VIEWERS - 1);
    rig_close(&r);
}

static void everybody_gets_nodes_shares_and_status(void **state) {
    struct rig r;
    rig_open(&r);
    rig_agent(&r, "n1");
    struct fake_request *v = get(&r, &fake_alice, "/v1/live");
    wait_for(&r, v, "event: nodes\ndata: {\"at_ms\":");
    wait_for(&r, v, "event: shares\ndata: {\"total_milligpu\":");
    wait_for(&r, v, "event: status\ndata: {\"at_ms\":");
    assert_true(has(v, "\"name\":\"n1\""));
    struct fake_request *o = get(&r, &fake_alice, "/v1/overview");
    fake_expect(o, 200, "\"node_list\":[{\"name\":\"n1\"");
    assert_int_equal(json_i64(json_get(fake_json(o), "nodes"), "up", 0), 1);
    rig_close(&r);
}

static void on_later(uv_timer_t *t) {
}

// What was to be computed for the overview is computed: the loop waits for events again, and the processor is idle.
static void the_loop_waits_after_an_overview(void **state) {
    struct rig r;
    rig_open(&r);
    rig_agent(&r, "n1");
    submit(&r, &fake_alice, "{\"spec\":{\"workdir\":\"/\",\"argv\":[\"true\"],\"hold\":true}}");
    cancel(&r, &fake_alice, "1");
    for (int i = 0; i < 4; i++) {  // the first one begins to read the history
        buf_clear(&r.c.overview);  // not the one that is kept for a second
        fake_expect(get(&r, &fake_alice, "/v1/overview"), 200, "node_list");
        for (int k = 0; k < 4; k++)
            rig_turn(&r);
    }
    uv_timer_t later;  // as a controller has: without one there would be nothing to wait for
    uv_timer_init(&r.c.loop, &later);
    uv_timer_start(&later, on_later, 3600 * 1000, 0);
    assert_true(uv_backend_timeout(&r.c.loop) > 0);
    uv_close((uv_handle_t *)&later, NULL);
    rig_close(&r);
}

// --- the job table ---

static uint32_t row_ids(struct fake_request *q, uint64_t *out, uint32_t max) {
    const struct json *rows = json_get(fake_json(q), "rows");
    assert_int_equal(q->status, 200);
    for (uint32_t i = 0; i < rows->len && i < max; i++)
        out[i] = (uint64_t)json_i64(&rows->items[i], "id", 0);
    return rows->len;
}

// So many that the table is made in several slices: each is counted once.
static void ended_jobs_are_counted_once(void **state) {
    struct rig r;
    rig_open(&r);
    submit(&r, &fake_alice,
           "{\"spec\":{\"name\":\"sweep\",\"workdir\":\"/\",\"argv\":[\"true\"],\"hold\":true,"
           "\"array\":[{\"first\":0,\"last\":29999,\"step\":1}]}}");
    cancel(&r, &fake_alice, "1");
    const char *targets[] = {"/v1/table?search=swe&elements=1&limit=1", "/v1/table?elements=1&limit=1"};
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        struct fake_request *q = get(&r, &fake_alice, targets[i]);
        rig_wait(&r, q);
        assert_int_equal(json_i64(fake_json(q), "total", 0), 30000);
        assert_int_equal(json_i64(json_get(fake_json(q), "states"), "CANCELLED", 0), 30000);
    }
    rig_close(&r);
}

static void the_table_has_live_and_ended_jobs(void **state) {
    struct rig r;
    uint64_t ids[16];
    rig_open(&r);
    for (int i = 0; i < 3; i++)
        submit(&r, &fake_alice, JOB);
    submit(&r, &fake_bob,
           "{\"spec\":{\"name\":\"sweep\",\"workdir\":\"/\",\"argv\":[\"true\"],\"array\":[{\"first\":0,"
           "\"last\":9,\"step\":1}]}}");
    cancel(&r, &fake_alice, "2");
    cancel(&r, &fake_bob, "4_3");
    struct fake_request *q = get(&r, &fake_alice, "/v1/table");
    assert_int_equal(row_ids(q, ids, 16), 4);
    const struct json *j = fake_json(q), *rows = json_get(j, "rows");
    assert_true(ids[0] == 4 && ids[1] == 3 && ids[2] == 2 && ids[3] == 1);
    assert_int_equal(json_i64(j, "total", 0), 4);
    assert_int_equal(json_i64(j, "jobs", 0), 13);
    assert_int_equal(json_i64(json_get(j, "states"), "PENDING", 0), 11);
    assert_int_equal(json_i64(json_get(j, "states"), "CANCELLED", 0), 2);
    assert_true(json_true(j, "complete"));
    const struct json *array = json_get(&rows->items[0], "array");
    assert_int_equal(json_i64(array, "elements", 0), 10);
    assert_int_equal(json_i64(json_get(array, "states"), "CANCELLED", 0), 1);
    assert_string_equal(json_str(&rows->items[0], "label"), "4");
    assert_string_equal(json_str(&rows->items[0], "state"), "PENDING");
    assert_non_null(json_str(&rows->items[0], "why"));
    assert_null(json_str(&rows->items[2], "why"));  // it has ended
    assert_string_equal(json_str(&rows->items[2], "state"), "CANCELLED");
    // Ended ones come into it as they end.
    cancel(&r, &fake_alice, "3");
    assert_int_equal(row_ids(get(&r, &fake_alice, "/v1/table?state=CANCELLED&elements=1&sort=id"), ids, 16),
                     3);
    assert_true(ids[0] == 2 && ids[1] == 3 && ids[2] == 7);
    assert_int_equal(row_ids(get(&r, &fake_alice, "/v1/table?search=SWE"), ids, 16), 1);
    assert_int_equal(row_ids(get(&r, &fake_alice, "/v1/table?user=alice&where=state%3DPD"), ids, 16), 1);
    assert_int_equal(row_ids(get(&r, &fake_alice, "/v1/table?where=command%3Dx"), ids, 16), 0);
    assert_int_equal(row_ids(get(&r, &fake_alice, "/v1/table?mine=1&fields=id,comment"), ids, 16), 3);
    fake_expect(get(&r, &fake_alice, "/v1/table?sort=colour"), 400, "expected one of id, name");
    fake_expect(get(&r, &fake_alice, "/v1/table?after=x"), 400, "next");
    rig_close(&r);
}

// Page by page while jobs come and go: every job that is there all the time comes once.
static void pages_stay_stable(void **state) {
    struct rig r;
    rig_open(&r);
    for (int i = 0; i < 40; i++)
        submit(&r, &fake_alice, JOB);
    static const char *const sorts[] = {"-id",     "id",     "name", "-submit_ms",
                                        "wait_ms", "-state", "user", "time_limit_s"};
    for (size_t s = 0; s < sizeof sorts / sizeof *sorts; s++) {
        bool seen[41] = {false};
        uint32_t pages = 0, rows = 0;
        cleanup_buf struct buf target = {0};
        buf_addf(&target, "/v1/table?limit=7&sort=%s", sorts[s]);
        for (bool more = true; more && pages < 40; pages++) {
            uint64_t ids[7];
            struct fake_request *q = get(&r, &fake_alice, buf_str(&target));
            uint32_t n = row_ids(q, ids, 7);
            for (uint32_t i = 0; i < n; i++)
                if (ids[i] <= 40) {
                    assert_false(seen[ids[i]]);
                    seen[ids[i]] = true;
                    rows++;
                }
            const char *next = json_str(fake_json(q), "next");
            more = next != NULL;
            buf_clear(&target);
            buf_addf(&target, "/v1/table?limit=7&sort=%s&after=", sorts[s]);
            http_percent_encode(&target, next ? next : "");
            submit(&r, &fake_bob, JOB);
        }
        assert_int_equal(rows, 40);
    }
    rig_close(&r);
}

// --- versions ---

static struct fake_request *with(struct rig *r, const struct net_peer *from, const char *line,
                                 const char *match, const char *body) {
    cleanup_buf struct buf head = {0};
    buf_addf(&head, "%s HTTP/1.1\r\nIf-Match: \"%s\"\r\n", line, match);
    return rig_bytes(r, from, buf_str(&head), body);
}

static const char *tag_of(struct fake_request *q, char out[static 32]) {
    const char *at = strstr(buf_str(&q->headers), "ETag: \"");
    assert_non_null(at);
    assert_int_equal(sscanf(at, "ETag: \"%31[0-9]\"", out), 1);
    return out;
}

static void a_stale_update_is_refused(void **state) {
    struct rig r;
    char tag[32], old[32];
    cleanup_buf struct buf body = {0};
    rig_open(&r);
    submit(&r, &fake_alice, JOB);
    struct fake_request *q = get(&r, &fake_alice, "/v1/jobs/1");
    int64_t version = json_i64(fake_json(q), "version", 0);
    assert_true(version > 0);
    assert_int_equal(strtoll(tag_of(q, tag), NULL, 10), version);
    buf_addf(&body, "{\"ids\":[\"1\"],\"version\":%lld,\"spec\":{\"nice\":5}}", (long long)version);
    fake_expect(rig_call(&r, &fake_alice, "POST", "/v1/jobs/update", buf_str(&body)), 200, "\"done\":1");
    fake_expect(rig_call(&r, &fake_alice, "POST", "/v1/jobs/update", buf_str(&body)), 409, "job_updated");
    fake_expect(with(&r, &fake_alice, "POST /v1/jobs/hold", tag, "{\"ids\":[\"1\"]}"), 412,
                "\"field\":\"version\"");
    fake_expect(get(&r, &fake_alice, "/v1/jobs/1"), 200, "\"hold\":false");
    tag_of(get(&r, &fake_alice, "/v1/jobs/1"), tag);
    fake_expect(with(&r, &fake_alice, "POST /v1/jobs/hold", tag, "{\"ids\":[\"1\"]}"), 200, "\"done\":1");
    fake_expect(with(&r, &fake_alice, "POST /v1/jobs/hold", tag, "{\"all\":true}"), 400, "exactly one");
    fake_expect(with(&r, &fake_alice, "POST /v1/jobs/hold", "new", "{\"ids\":[\"1\"]}"), 400, "If-Match");
    // Projects and the like.
    fake_expect(rig_call(&r, &fake_root, "PUT", "/v1/projects/vision", "{\"quota_milligpu\":2000}"), 200,
                NULL);
    tag_of(get(&r, &fake_alice, "/v1/projects/vision"), old);
    fake_expect(with(&r, &fake_root, "PUT /v1/projects/vision", old, "{\"quota_milligpu\":4000}"), 200, NULL);
    fake_expect(with(&r, &fake_root, "PUT /v1/projects/vision", old, "{\"quota_milligpu\":6000}"), 412,
                "2 -> 4");
    fake_expect(with(&r, &fake_root, "DELETE /v1/projects/vision", old, NULL), 412, "read it again");
    fake_expect(get(&r, &fake_alice, "/v1/projects/vision"), 200, "\"quota_milligpu\":4000");
    tag_of(get(&r, &fake_alice, "/v1/projects/vision"), tag);
    fake_expect(with(&r, &fake_root, "DELETE /v1/projects/vision", tag, NULL), 200, NULL);
    fake_expect(with(&r, &fake_root, "PUT /v1/projects/vision", tag, "{\"quota_milligpu\":6000}"), 412,
                "not exist");
    rig_close(&r);
}

// --- tools for assistants ---

static struct fake_request *rpc(struct rig *r, const struct net_peer *from, const char *method,
                                const char *params) {
    cleanup_buf struct buf body = {0};
    buf_addf(&body, "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"%s\",\"params\":%s}", method, params);
    struct fake_request *q = rig_call(r, from, "POST", "/v1/mcp", buf_str(&body));
    rig_wait(r, q);
    assert_int_equal(q->status, 200);
    assert_int_equal(json_i64(fake_json(q), "id", 0), 7);
    return q;
}

// The text of a tool's answer.
static const char *tool(struct rig *r, const struct net_peer *from, const char *call, bool fails) {
    const struct json *result = json_get(fake_json(rpc(r, from, "tools/call", call)), "result");
    assert_non_null(result);
    assert_int_equal(json_true(result, "isError"), fails);
    return json_str(&json_get(result, "content")->items[0], "text");
}

// Every argument is one that the route's tables describe.
static void check_tool(const struct json *listed, const struct mcp_tool *t) {
    const struct json *schema = json_get(listed, "inputSchema"), *properties = json_get(schema, "properties");
    uint32_t arguments = strstr(t->path, "{job}") ? 1 : 0;
    for (const char *p = t->arguments; p && *p; p += strcspn(p, ",") + (strchr(p, ',') != NULL))
        arguments++;
    assert_string_equal(json_str(listed, "name"), t->name);
    assert_string_equal(json_str(schema, "type"), "object");
    assert_int_equal(properties->len, arguments);
    for (uint32_t i = 0; i < properties->len; i++)
        assert_true(json_str(&properties->members[i].value, "type") &&
                    json_str(&properties->members[i].value, "description"));
    const struct json *spec = json_get(properties, "spec");
    if (spec)
        assert_string_equal(json_str(json_get(json_get(spec, "properties"), "argv"), "type"), "array");
    assert_int_equal(json_true(json_get(listed, "annotations"), "readOnlyHint"), !t->changes);
}

static void assistants_have_tools_with_the_callers_rights(void **state) {
    struct rig r;
    rig_open(&r);
    fake_expect(rpc(&r, &fake_alice, "initialize", "{\"protocolVersion\":\"2025-03-26\"}"), 200,
                "\"protocolVersion\":\"2025-03-26\"");
    fake_expect(rpc(&r, &fake_alice, "initialize", "{\"protocolVersion\":\"1999-01-01\"}"), 200,
                "2025-06-18");
    fake_expect(rig_call(&r, &fake_alice, "POST", "/v1/mcp",
                         "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}"),
                202, NULL);
    const struct json *tools =
        json_get(json_get(fake_json(rpc(&r, &fake_alice, "tools/list", "{}")), "result"), "tools");
    assert_true(tools->len > 10);
    for (uint32_t i = 0; i < tools->len; i++)
        check_tool(&tools->items[i], &mcp_tools[i]);
#define SPEC "\"spec\":{\"name\":\"t\",\"workdir\":\"/\",\"argv\":[\"true\"]}"
    tool(&r, &fake_alice, "{\"name\":\"check_job\",\"arguments\":{" SPEC "}}", false);
    fake_expect(get(&r, &fake_alice, "/v1/jobs"), 200, "\"jobs\":[]");  // nothing was submitted
    assert_non_null(strstr(tool(&r, &fake_alice, "{\"name\":\"submit_job\",\"arguments\":{" SPEC "}}", false),
                           "\"id\":1"));
    assert_non_null(
        strstr(tool(&r, &fake_alice, "{\"name\":\"list_jobs\",\"arguments\":{\"state\":\"PENDING\"}}", false),
               "\"total\":1"));
    assert_non_null(strstr(tool(&r, &fake_alice, "{\"name\":\"get_job\",\"arguments\":{\"job\":1}}", false),
                           "\"state\":\"PENDING\""));
    tool(&r, &fake_alice, "{\"name\":\"explain_job\",\"arguments\":{\"job\":\"1\"}}", false);
    tool(&r, &fake_alice, "{\"name\":\"overview\"}", false);
    tool(&r, &fake_alice, "{\"name\":\"list_jobs\",\"arguments\":{\"user\":null}}",
         false);  // as good as left out
    // Another user's job stays theirs, and errors are sentences.
    assert_non_null(
        strstr(tool(&r, &fake_bob, "{\"name\":\"cancel_jobs\",\"arguments\":{\"ids\":[\"1\"]}}", false),
               "\"done\":0"));
    assert_non_null(
        strstr(tool(&r, &fake_bob, "{\"name\":\"job_logs\",\"arguments\":{\"job\":1,\"tail\":5}}", true),
               "another user's"));
    assert_non_null(strstr(tool(&r, &fake_alice, "{\"name\":\"get_job\",\"arguments\":{\"job\":99}}", true),
                           "there is no job 99"));
    assert_non_null(
        strstr(tool(&r, &fake_alice, "{\"name\":\"cancel_jobs\",\"arguments\":{\"ids\":[\"1\"]}}", false),
               "\"done\":1"));
    fake_expect(rpc(&r, &fake_alice, "tools/call", "{\"name\":\"rm\"}"), 200, "no such tool");
    fake_expect(
        rpc(&r, &fake_alice, "tools/call", "{\"name\":\"get_job\",\"arguments\":{\"job\":1,\"x\":2}}"), 200,
        "unknown argument");
    fake_expect(
        rpc(&r, &fake_alice, "tools/call", "{\"name\":\"get_job\",\"arguments\":{\"job\":\"1/script\"}}"),
        200, "isError\":true");
    fake_expect(rpc(&r, &fake_alice, "resources/list", "{}"), 200, "-32601");
    const char *refused[] = {"", "{", "[]", "{\"jsonrpc\":\"2.0\"}", "{\"jsonrpc\":\"2.0\",\"method\":1}",
                             "{\"jsonrpc\":2,\"method\":\"ping\"}", "{\"jsonrpc\":\"2.0\",\"method\":\"ping\",\"id\":{}}",
                             "{\"jsonrpc\":\"2.0\",\"method\":\"ping\",\"id\":1,\"x\":1}"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        fake_expect(rig_call(&r, &fake_alice, "POST", "/v1/mcp", refused[i]), 400, "detail");
    fake_expect(rpc(&r, &fake_alice, "ping", "null"), 200, "\"result\":{}");
    fake_expect(get(&r, &fake_alice, "/v1/mcp"), 405, NULL);
    rig_close(&r);
}

// What somebody wrote about a job, and why it failed, is not for everybody.
static void others_see_no_texts(void **state) {
    struct rig r;
    cleanup_arena struct arena a = {0};
    static const char failure[] = "could not be started: /home/alice/plan.sh";
    assert_string_equal(job_sight_reason(SIGHT_ALL, &a, failure), failure);
    assert_string_equal(job_sight_reason(SIGHT_PUBLIC, &a, failure), "could not be started");
    assert_null(job_sight_reason(SIGHT_MASKED, &a, failure));
    assert_string_equal(job_sight_reason(SIGHT_MASKED, &a, job_reason_words[REASON_RESOURCES]),
                        job_reason_words[REASON_RESOURCES]);
    rig_open(&r);
    fake_expect(rig_call(&r, &fake_alice, "POST", "/v1/jobs",
                         "{\"spec\":{\"name\":\"hidden-name\",\"workdir\":\"/"
                         "hidden-folder\",\"argv\":[\"hidden-program\"],"
                         "\"comment\":\"hidden-comment\",\"hold\":true}}"),
                201, NULL);
    r.c.config.cluster.others_jobs = OTHERS_JOBS_MASKED;
    static const char *const targets[] = {"/v1/jobs/1", "/v1/jobs",
                                          "/v1/jobs?fields=id,comment,name,workdir,command_text"};
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        struct fake_request *q = get(&r, &fake_bob, targets[i]);
        assert_int_equal(q->status, 200);
        if (strstr(buf_str(&q->body), "hidden"))
            fail_msg("%s: %s", targets[i], buf_str(&q->body));
        fake_expect(get(&r, &fake_alice, targets[i]), 200, "hidden-name");
    }
    // An alert about a job is as visible as the job.
    struct command_alert idle = {
        .rule = "job-holds-idle-gpus", .subject = "job/1/gpu_idle_seconds", .value = 2000};
    struct command command = {COMMAND_ALERT_RAISE, &idle};
    struct actor root = {.user = "root", .admin = true};
    assert_int_equal(core_command(r.c.core, &root, NULL, &command, controller_now_ms(), NULL, NULL), 0);
    rig_settle(&r);
    r.c.config.cluster.others_jobs = OTHERS_JOBS_HIDDEN;
    fake_expect(get(&r, &fake_alice, "/v1/alerts"), 200, "job/1/gpu_idle_seconds");
    struct fake_request *q = get(&r, &fake_bob, "/v1/alerts");
    fake_expect(q, 200, "\"alerts\":[]");
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(others_see_no_texts),
        cmocka_unit_test(errors_are_problem_documents),
        cmocka_unit_test(errors_have_the_type_that_the_client_reads),
        cmocka_unit_test(changes_reach_viewers),
        cmocka_unit_test(changes_in_between_are_one),
        cmocka_unit_test(a_viewer_goes_on_where_it_was),
        cmocka_unit_test(a_slow_viewer_waits_alone),
        cmocka_unit_test(viewers_are_served_in_slices),
        cmocka_unit_test(everybody_gets_nodes_shares_and_status),
        cmocka_unit_test(the_loop_waits_after_an_overview),
        cmocka_unit_test(the_table_has_live_and_ended_jobs),
        cmocka_unit_test(ended_jobs_are_counted_once),
        cmocka_unit_test(pages_stay_stable),
        cmocka_unit_test(a_stale_update_is_refused),
        cmocka_unit_test(assistants_have_tools_with_the_callers_rights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
