// Lists of jobs: filters, ids, arrays, pages of finished jobs, traces.
#include "rig.h"

#include <stdio.h>

#include "base/text.h"

static struct fake_request *get(struct rig *r, const char *target) {
    return rig_call(r, &fake_root, "GET", target, NULL);
}

// Ids in the answer, joined: "1,3".
static const char *ids(struct rig *r, const char *target, struct buf *out) {
    struct fake_request *q = get(r, target);
    fake_expect(q, 200, NULL);
    assert_true(q->done && !q->aborted);
    const struct json *jobs = json_get(fake_json(q), "jobs");
    buf_clear(out);
    for (uint32_t i = 0; i < jobs->len; i++)
        buf_addf(out, "%s%lld", i ? "," : "", (long long)json_i64(&jobs->items[i], "id", 0));
    return buf_str(out);
}

static void fill(struct rig *r) {
    static const char *const bodies[] = {
        "{\"spec\":{\"name\":\"train\",\"workdir\":\"/\",\"argv\":[\"true\"],\"cpus_per_task\":4}}",
        "{\"spec\":{\"name\":\"eval\",\"workdir\":\"/\",\"argv\":[\"true\"],\"hold\":true}}",
        "{\"spec\":{\"name\":\"sweep\",\"workdir\":\"/"
        "\",\"argv\":[\"true\"],\"array\":[{\"first\":0,\"last\":3,\"step\":1}]}}",
    };
    fake_expect(rig_call(r, &fake_alice, "POST", "/v1/jobs", bodies[0]), 201, "\"id\":1");
    fake_expect(rig_call(r, &fake_bob, "POST", "/v1/jobs", bodies[1]), 201, "\"id\":2");
    fake_expect(rig_call(r, &fake_alice, "POST", "/v1/jobs", bodies[2]), 201, "\"id\":3");
}

static void filters_choose_jobs(void **state) {
    static const struct {
        const char *query, *ids;
    } cases[] = {
        {"", "1,2,3"},
        {"&user=alice", "1,3"},
        {"&user=alice,bob&name=eval", "2"},
        {"&state=RUNNING", ""},
        {"&state=PENDING&user=bob", "2"},
        {"&project=none", ""},
        {"&where=user%3Da*", "1,3"},
        {"&where=name%3Dtrain%7Ceval", "1,2"},
        {"&where=name!%3Dtrain%20user%3Dalice", "3"},
        {"&where=cpus%3E%3D2", "1"},
        {"&elements=1&name=sweep", "3,4,5,6"},
        {"&ids=2,1", "2,1"},
        {"&ids=3_1", "4"},
        {"&ids=3_[2-3]", "5,6"},
        {"&limit=1", "1"},
    };
    struct rig r;
    cleanup_buf struct buf target = {0}, found = {0};
    rig_open(&r);
    fill(&r);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        buf_clear(&target);
        buf_addf(&target, "/v1/jobs?fields=id%s", cases[i].query);
        if (!streq(ids(&r, buf_str(&target), &found), cases[i].ids))
            fail_msg("%s gave %s, not %s", cases[i].query, buf_str(&found), cases[i].ids);
    }
    rig_close(&r);
}

static void filters_that_are_wrong(void **state) {
    static const struct {
        const char *query, *says;
    } cases[] = {
        {"where=shoe%3D4", "there is no column"}, {"where=user", "where:"},
        {"where=user%3E4", "compare it by"},      {"where=cpus%3Dmany", "where: cpus"},
        {"state=ASLEEP", "there is no state"},    {"ids=x", "x"},
        {"fields=id,shoe_size", "shoe_size"},     {"finished=1&after=yesterday", "after"},
    };
    struct rig r;
    cleanup_buf struct buf target = {0};
    rig_open(&r);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        buf_clear(&target);
        buf_addf(&target, "/v1/jobs?%s", cases[i].query);
        fake_expect(get(&r, buf_str(&target)), 400, cases[i].says);
    }
    rig_close(&r);
}

static void finished_jobs_come_in_pages(void **state) {
    struct rig r;
    cleanup_buf struct buf target = {0}, seen = {0};
    char next[64] = "";
    rig_open(&r);
    fill(&r);
    for (int i = 0; i < 2; i++)
        fake_expect(rig_call(&r, &fake_root, "POST", "/v1/jobs/cancel",
                             i ? "{\"ids\":[\"3\"]}" : "{\"ids\":[\"1\",\"2\"]}"),
                    200, NULL);
    uint32_t pages = 0;
    do {
        buf_clear(&target);
        buf_addf(&target, "/v1/jobs?fields=id,state&finished=1&limit=2%s%s", *next ? "&after=" : "", next);
        struct fake_request *q = get(&r, buf_str(&target));
        fake_expect(q, 200, NULL);
        const struct json *j = fake_json(q), *jobs = json_get(j, "jobs");
        for (uint32_t i = 0; i < jobs->len; i++)
            buf_addf(&seen, "%lld ", (long long)json_i64(&jobs->items[i], "id", 0));
        snprintf(next, sizeof next, "%s", json_str(j, "next") ? json_str(j, "next") : "");
    } while (*next && ++pages < 10);
    for (int id = 1; id <= 6; id++) {  // each once
        char text[8];
        snprintf(text, sizeof text, "%d ", id);
        assert_non_null(strstr(buf_str(&seen), text));
    }
    assert_int_equal(seen.len, 12);
    // A stream has them as well, with a last line that says that it is complete.
    struct fake_request *q = get(&r, "/v1/jobs?stream=1&all=1&fields=id");
    fake_expect(q, 200, "{\"rows\":6}\n");
    // And a trace: a head and a line for each that has run; these have not.
    q = get(&r, "/v1/trace");
    for (int i = 0; i < 100 && !q->done; i++)
        rig_settle(&r);
    fake_expect(q, 200, ",");
    assert_true(strstr(buf_str(&q->headers), "text/csv") && q->done);
    rig_close(&r);
}

static void arrays_are_counted(void **state) {
    struct rig r;
    rig_open(&r);
    fill(&r);
    fake_expect(rig_call(&r, &fake_alice, "POST", "/v1/jobs/cancel", "{\"ids\":[\"3_0\"]}"), 200,
                "\"done\":1");
    struct fake_request *q = get(&r, "/v1/jobs/3/array");
    fake_expect(q, 200, NULL);
    const struct json *states = json_get(fake_json(q), "states");
    assert_int_equal(json_i64(states, "PENDING", 0), 3);
    assert_int_equal(json_i64(states, "CANCELLED", 0), 1);
    fake_expect(get(&r, "/v1/jobs/1/array"), 404, "no array");
    fake_expect(rig_call(&r, &fake_alice, "POST", "/v1/jobs/hold", "{\"ids\":[\"3_[1-2]\"]}"), 200,
                "\"done\":2");
    fake_expect(rig_call(&r, &fake_alice, "POST", "/v1/jobs/hold", "{\"ids\":[\"3_[1-2\"]}"), 200,
                "is not a job");
    rig_close(&r);
}

static void what_ran_is_compared_with_what_was_asked(void **state) {
    struct rig r;
    cleanup_arena struct arena a = {0};
    rig_open(&r);
    struct net_ws *ws = rig_agent(&r, "n1");
    fill(&r);
    fake_expect(get(&r, "/v1/jobs/2/efficiency"), 409, "has not run yet");
    const struct message_launch *m = fake_next_message(ws, MESSAGE_LAUNCH, &a);
    assert_true(m && m->id == 1);
    int64_t now = controller_now_ms();
    struct usage used = {.cpu_user_us = 1000000, .wall_ms = 10000, .memory_peak_bytes = 1 << 20};
    rig_message(&r, ws, MESSAGE_STARTED,
                &(struct message_started){.id = 1, .attempt = 1, .at_ms = now - 10000});
    rig_message(&r, ws, MESSAGE_ENDED,
                &(struct message_ended){
                    .id = 1, .attempt = 1, .usage = &used, .start_ms = now - 10000, .end_ms = now});
    struct fake_request *q = get(&r, "/v1/jobs/1/efficiency");
    fake_expect(q, 200, "\"final\":true");
    fake_expect(get(&r, "/v1/jobs/1"), 200, "\"cpu_ms\":1000");
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(filters_choose_jobs),
        cmocka_unit_test(filters_that_are_wrong),
        cmocka_unit_test(finished_jobs_come_in_pages),
        cmocka_unit_test(arrays_are_counted),
        cmocka_unit_test(what_ran_is_compared_with_what_was_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
