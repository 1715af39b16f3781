// The audit log: what is recorded, what is not, and that nobody can push out the records of others.
#include "rig.h"

#include <stdio.h>

#include "base/text.h"

static const struct json *records(struct rig *r, const char *query) {
    cleanup_buf struct buf target = {0};
    buf_addf(&target, "/v1/audit%s", query);
    struct fake_request *q = rig_call(r, &fake_root, "GET", buf_str(&target), NULL);
    fake_expect(q, 200, NULL);
    return json_get(fake_json(q), "records");
}

// How many of the last records have this.
static uint32_t found(struct rig *r, const char *query, const char *who, const char *what, int64_t status) {
    const struct json *list = records(r, query);
    uint32_t n = 0;
    for (uint32_t i = 0; i < list->len; i++) {
        const struct json *x = &list->items[i];
        n += (!who || streq(json_str(x, "who"), who)) && (!what || strstr(json_str(x, "what"), what)) &&
             (!status || json_i64(x, "status", 0) == status);
    }
    return n;
}

static void denials_and_administration_are_recorded(void **state) {
    struct rig r;
    rig_open(&r);
    rig_call(&r, &fake_alice, "POST", "/v1/jobs",
             "{\"spec\":{\"name\":\"t\",\"workdir\":\"/\",\"argv\":[\"true\"]}}");
    rig_call(&r, &fake_alice, "GET", "/v1/jobs", NULL);
    assert_int_equal(found(&r, "", "alice", NULL, 0), 0);  // everyday work is not
    rig_call(&r, &fake_alice, "PUT", "/v1/policy", "{\"reclaim\":false}");
    assert_int_equal(found(&r, "", "alice", "PUT /v1/policy", 403), 1);
    rig_call(&r, &fake_root, "PUT", "/v1/policy", "{\"reclaim\":false}");
    assert_int_equal(found(&r, "", "root", "PUT /v1/policy", 200), 1);
    // An administrator reads what is somebody else's, or acts on others' jobs.
    rig_call(&r, &fake_root, "GET", "/v1/jobs/1/environment", NULL);
    assert_int_equal(found(&r, "", "root", "GET /v1/jobs/1/environment", 0), 1);
    rig_call(&r, &fake_alice, "GET", "/v1/jobs/1/environment", NULL);
    assert_int_equal(found(&r, "", "alice", "environment", 0), 0);
    rig_call(&r, &fake_root, "POST", "/v1/jobs/cancel", "{\"ids\":[\"1\"],\"reason\":\"secret\"}");
    const struct json *last = records(&r, "?limit=1");
    assert_int_equal(last->len, 1);
    last = records(&r, "?limit=2");  // the newest is the question before
    assert_non_null(strstr(json_str(&last->items[1], "what"), "cancel"));
    assert_string_equal(json_str(&last->items[1], "on"),
                        "{\"ids\":[\"1\"]}");  // who is meant, not what is said
    rig_close(&r);
}

static void strangers_are_recorded_by_address(void **state) {
    struct rig r;
    struct net_peer p = fake_tls("[10.0.0.1]:1000", NULL);
    rig_open(&r);
    rig_authority(&r);
    rig_bytes(&r, &p, "GET /v1/status HTTP/1.1\r\nAuthorization: Bearer nonsense\r\n", NULL);
    const struct json *list = records(&r, "");
    bool seen = false;
    for (uint32_t i = 0; i < list->len; i++)
        seen |= streq(json_str(&list->items[i], "from"), "[10.0.0.1]:1000") &&
                json_i64(&list->items[i], "status", 0) == 401 && !json_str(&list->items[i], "who");
    assert_true(seen);
    // A token that is used for the first time from an address is a login; again it is not.
    struct fake_request *q = rig_call(&r, &fake_alice, "POST", "/v1/tokens", "{\"kind\":\"user\"}");
    cleanup_buf struct buf head = {0};
    buf_addf(&head, "GET /v1/status HTTP/1.1\r\nAuthorization: Bearer %s\r\n",
             json_str(fake_json(q), "token"));
    for (int i = 0; i < 3; i++)
        fake_expect(rig_bytes(&r, &p, buf_str(&head), NULL), 200, NULL);
    assert_int_equal(found(&r, "", "alice", "login", 200), 1);
    p = fake_tls("[10.0.0.2]:1000", NULL);
    rig_bytes(&r, &p, buf_str(&head), NULL);
    assert_int_equal(found(&r, "", "alice", "login", 200), 2);
    rig_close(&r);
}

static void nobody_pushes_out_the_records_of_others(void **state) {
    struct rig r;
    rig_open(&r);
    rig_call(&r, &fake_bob, "PUT", "/v1/policy", "{}");
    for (int i = 0; i < 200; i++)
        rig_bytes_at_once(&r, &fake_alice, "PUT /v1/policy HTTP/1.1\r\n", "{}");
    rig_settle(&r);
    uint32_t alices = found(&r, "?limit=10000", "alice", NULL, 403);
    assert_true(alices >= 60 && alices <= 120);  // at most 60 in a minute, and a minute may begin meanwhile
    assert_int_equal(found(&r, "?limit=10000", "bob", NULL, 403), 1);
    assert_int_equal(found(&r, "?user=bob", NULL, NULL, 0), 1);
    for (int i = 0; i < 200; i++)  // what administrators do is always recorded
        rig_bytes_at_once(&r, &fake_root, "POST /v1/nodes/none/drain HTTP/1.1\r\n", "{}");
    rig_settle(&r);
    assert_int_equal(found(&r, "?limit=10000", "root", "POST /v1/nodes/none/drain", 404), 200);
    rig_close(&r);
}

static void the_log_is_kept_in_the_store(void **state) {
    struct rig r;
    void *data;
    size_t len;
    rig_open(&r);
    for (int i = 0; i < 300; i++)
        rig_bytes_at_once(&r, &fake_root, "POST /v1/nodes/none/drain HTTP/1.1\r\n", "{}");
    rig_settle(&r);
    assert_int_equal(store_blob(r.c.store, "audit.1", &data, &len, NULL), 0);  // a page was full
    assert_true(len && len <= 16 << 10);
    free(data);
    audit_close(&r.c);
    audit_open(&r.c);  // as after a restart
    assert_int_equal(found(&r, "?limit=10000", "root", "drain", 404), 300);
    const struct json *list = records(&r, "?limit=10000");
    for (uint32_t i = 1; i < list->len; i++)  // newest first
        assert_true(json_i64(&list->items[i - 1], "at_ms", 0) >= json_i64(&list->items[i], "at_ms", 0));
    assert_int_equal(records(&r, "?since_ms=253402300799000")->len, 0);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(denials_and_administration_are_recorded),
        cmocka_unit_test(strangers_are_recorded_by_address),
        cmocka_unit_test(nobody_pushes_out_the_records_of_others),
        cmocka_unit_test(the_log_is_kept_in_the_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
