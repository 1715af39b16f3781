// Drafts, templates and views through the API: kept over restarts, private, limited.
#include "rig.h"

#include <stdio.h>

#include "base/text.h"

static struct fake_request *get(struct rig *r, const struct net_peer *from, const char *target) {
    return rig_call(r, from, "GET", target, NULL);
}

static struct fake_request *put(struct rig *r, const struct net_peer *from, const char *target,
                                const char *body) {
    return rig_call(r, from, "PUT", target, body);
}

static uint32_t count(struct fake_request *q, const char *list) {
    fake_expect(q, 200, NULL);
    return json_get(fake_json(q), list)->len;
}

static void a_draft_comes_back_as_it_was_kept(void **state) {
    struct rig r;
    rig_open(&r);
    fake_expect(put(&r, &fake_alice, "/v1/drafts/night",
                    "{\"title\":\"For the "
                    "night\",\"spec\":{\"project\":\"default\",\"gpus_milli\":4000,\"user\":\"root\","
                    "\"uid\":0,\"requeue\":false},\"script\":\"#!/bin/sh\\ntrain\\n\"}"),
                200, NULL);
    const struct json *d = fake_json(get(&r, &fake_alice, "/v1/drafts/night")), *spec = json_get(d, "spec");
    assert_string_equal(json_str(d, "title"), "For the night");
    assert_string_equal(json_str(d, "script"), "#!/bin/sh\ntrain\n");
    assert_string_equal(json_str(d, "project"), "default");
    assert_int_equal(json_i64(spec, "gpus_milli", 0), 4000);
    assert_false(json_true(spec, "requeue"));
    assert_non_null(json_get(spec, "requeue"));  // given as false is not the same as left out
    assert_null(json_get(spec, "user"));         // whose it is is decided when it is submitted
    assert_true(json_i64(d, "set_ms", 0) > 0);
    const struct json *list = json_get(fake_json(get(&r, &fake_alice, "/v1/drafts")), "drafts");
    assert_int_equal(list->len, 1);
    assert_null(json_str(&list->items[0], "script"));
    assert_int_equal(count(get(&r, &fake_bob, "/v1/drafts"), "drafts"), 0);
    assert_int_equal(count(get(&r, &fake_root, "/v1/drafts"), "drafts"), 0);
    fake_expect(get(&r, &fake_root, "/v1/drafts/night"), 404, "there is no draft");
    fake_expect(rig_call(&r, &fake_bob, "DELETE", "/v1/drafts/night", NULL), 404, NULL);
    fake_expect(rig_call(&r, &fake_alice, "DELETE", "/v1/drafts/night", NULL), 200, NULL);
    fake_expect(get(&r, &fake_alice, "/v1/drafts/night"), 404, NULL);
    rig_close(&r);
}

static struct fake_request *matching(struct rig *r, const char *line, long long version, const char *body) {
    cleanup_buf struct buf head = {0};
    buf_addf(&head, "%s HTTP/1.1\r\nIf-Match: \"%lld\"\r\n", line, version);
    return rig_bytes(r, &fake_alice, buf_str(&head), body);
}

static long long version_of(struct rig *r) {
    return (long long)json_i64(fake_json(get(r, &fake_alice, "/v1/drafts/d")), "set_ms", 0);
}

static void a_stale_version_is_refused(void **state) {
    struct rig r;
    const char *one = "{\"spec\":{},\"script\":\"one\"}", *two = "{\"spec\":{},\"script\":\"two\"}";
    rig_open(&r);
    fake_expect(put(&r, &fake_alice, "/v1/drafts/d", one), 200, NULL);
    long long first = version_of(&r);
    fake_expect(matching(&r, "PUT /v1/drafts/d", first, two), 200, NULL);
    long long second = version_of(&r);
    assert_true(second > first);
    fake_expect(matching(&r, "PUT /v1/drafts/d", first, one), 412, "read it again");
    fake_expect(matching(&r, "DELETE /v1/drafts/d", first, NULL), 412, "read it again");
    assert_string_equal(json_str(fake_json(get(&r, &fake_alice, "/v1/drafts/d")), "script"), "two");
    fake_expect(matching(&r, "DELETE /v1/drafts/d", second, NULL), 200, NULL);
    fake_expect(matching(&r, "PUT /v1/drafts/d", second, one), 412, "does not exist any more");
    fake_expect(put(&r, &fake_alice, "/v1/drafts/d", one), 200, NULL);  // without a version: as it is sent
    rig_close(&r);
}

static void what_is_kept_is_checked(void **state) {
    struct rig r;
    rig_open(&r);
    fake_expect(put(&r, &fake_alice, "/v1/drafts/a%20b", "{\"spec\":{}}"), 400, "draft");
    fake_expect(put(&r, &fake_alice, "/v1/drafts/a", "{\"script\":\"x\"}"), 400, "spec");
    fake_expect(put(&r, &fake_alice, "/v1/drafts/a", "{\"spec\":{\"nice\":\"x\"}}"), 400, "nice");
    fake_expect(put(&r, &fake_alice, "/v1/drafts/a", "{\"spec\":{},\"title\":\"a\\nb\"}"), 400, "title");
    fake_expect(put(&r, &fake_alice, "/v1/views/a", "{\"query\":\"\"}"), 400, "query");
    fake_expect(put(&r, &fake_alice, "/v1/templates/a", "{\"project\":\"none\",\"spec\":{}}"), 404,
                "project");
    fake_expect(put(&r, &fake_alice, "/v1/templates/a", "{\"project\":\"default\",\"spec\":{}}"), 403,
                "members");
    rig_close(&r);
}

static void nobody_keeps_more_than_their_part(void **state) {
    struct rig r;
    rig_open(&r);
    for (int i = 0; i < CORE_SAVED_MAX; i++) {
        char target[40];
        snprintf(target, sizeof target, "/v1/views/v%d", i);
        fake_expect(put(&r, &fake_alice, target, "{\"query\":\"mine=1\"}"), 200, NULL);
    }
    fake_expect(put(&r, &fake_alice, "/v1/views/more", "{\"query\":\"mine=1\"}"), 413, "delete one");
    fake_expect(put(&r, &fake_alice, "/v1/views/v7", "{\"query\":\"mine=0\"}"), 200, NULL);  // not one more
    fake_expect(put(&r, &fake_bob, "/v1/views/more", "{\"query\":\"mine=1\"}"), 200, NULL);
    cleanup_buf struct buf body = {0};
    buf_adds(&body, "{\"spec\":{},\"script\":\"");
    for (int i = 0; i < CORE_SAVED_BYTES_MAX; i++)
        buf_addc(&body, 'x');
    buf_adds(&body, "\"}");
    fake_expect(put(&r, &fake_bob, "/v1/drafts/large", buf_str(&body)), 413, "file");
    body.len -= 1000 + 2;
    buf_adds(&body, "\"}");
    int kept = 0;
    for (int i = 0; i < 10; i++) {
        char target[40];
        snprintf(target, sizeof target, "/v1/drafts/d%d", i);
        kept += put(&r, &fake_bob, target, buf_str(&body))->status == 200;
    }
    assert_int_equal(kept, CORE_SAVED_OWNER_BYTES / CORE_SAVED_BYTES_MAX);
    fake_expect(put(&r, &fake_bob, "/v1/drafts/d0", "{\"spec\":{}}"), 200,
                NULL);  // smaller: there is room again
    fake_expect(put(&r, &fake_bob, "/v1/drafts/d9", "{\"spec\":{}}"), 200, NULL);
    rig_close(&r);
}

static void templates_are_found_in_their_order(void **state) {
    struct rig r;
    rig_open(&r);
    fake_expect(put(&r, &fake_root, "/v1/projects/lab", "{\"name\":\"lab\",\"members\":[\"alice\"]}"), 200,
                NULL);
    fake_expect(get(&r, &fake_alice, "/v1/templates/train"), 200, "\"of\":\"built_in\"");
    fake_expect(put(&r, &fake_alice, "/v1/templates/train", "{\"spec\":{\"name\":\"own\"}}"), 200, NULL);
    fake_expect(
        put(&r, &fake_alice, "/v1/templates/train", "{\"project\":\"lab\",\"spec\":{\"name\":\"labs\"}}"),
        200, NULL);
    fake_expect(get(&r, &fake_alice, "/v1/templates/train"), 200, "\"own\"");
    fake_expect(get(&r, &fake_alice, "/v1/templates/train?project=lab"), 200, "\"labs\"");
    fake_expect(get(&r, &fake_bob, "/v1/templates/train?project=lab"), 404, NULL);
    uint32_t built_in = count(get(&r, &fake_bob, "/v1/templates"), "templates");
    assert_int_equal(count(get(&r, &fake_alice, "/v1/templates"), "templates"), built_in + 2);
    // A later project of the name does not have them.
    fake_expect(rig_call(&r, &fake_root, "DELETE", "/v1/projects/lab", NULL), 200, NULL);
    fake_expect(put(&r, &fake_root, "/v1/projects/lab", "{\"name\":\"lab\",\"members\":[\"alice\"]}"), 200,
                NULL);
    fake_expect(get(&r, &fake_alice, "/v1/templates/train?project=lab"), 404, NULL);
    fake_expect(get(&r, &fake_alice, "/v1/templates/train"), 200, "\"own\"");
    rig_close(&r);
}

static void administrators_read_no_drafts_in_events(void **state) {
    struct rig r;
    rig_open(&r);
    fake_expect(put(&r, &fake_alice, "/v1/drafts/d",
                    "{\"title\":\"HUSH1\",\"spec\":{\"comment\":\"HUSH2\"},\"script\":\"HUSH3\"}"),
                200, NULL);
    struct fake_request *q = get(&r, &fake_root, "/v1/events");
    fake_expect(q, 200, "saved_set");
    assert_null(strstr(buf_str(&q->body), "HUSH"));
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_draft_comes_back_as_it_was_kept),
        cmocka_unit_test(a_stale_version_is_refused),
        cmocka_unit_test(what_is_kept_is_checked),
        cmocka_unit_test(nobody_keeps_more_than_their_part),
        cmocka_unit_test(templates_are_found_in_their_order),
        cmocka_unit_test(administrators_read_no_drafts_in_events),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
