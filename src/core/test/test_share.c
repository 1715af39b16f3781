// Programs of jobs that are shared: who may, with whom, until when, and what is kept over replay and snapshots.
#include <errno.h>

#include "rig.h"

static int give(struct rig *r, const struct actor *who, enum command_type type, const struct event_share *s) {
    int rc = rig_command(r->core, who, type, s, r->now_ms, NULL);
    rig_drain(r);
    return rc;
}

static bool count_one(void *ctx, const struct event_share *s) {
    ++*(uint32_t *)ctx;
    return true;
}

static uint32_t count(const struct rig *r) {
    uint32_t n = 0;
    core_each_share(r->core, count_one, &n);
    return n;
}

static uint64_t submit_as(struct rig *r, const struct actor *who) {
    const char *argv[] = {"true"}, *ports[] = {"8000"};
    struct spec s = {.name = "t", .workdir = "/", .argv = {argv, 1}, .ports = {ports, 1}, .hold = true};
    return rig_submit(r, who, &s);
}

static uint64_t submit(struct rig *r) {
    return submit_as(r, &alice);
}

static void the_owner_shares_for_a_time(void **state) {
    struct rig r;
    rig_init(&r);
    uint64_t job = submit(&r);
    struct event_share s = {.job = job, .port = 8000, .user = "bob", .expires_ms = r.now_ms + 1000};
    assert_int_equal(give(&r, &bob, COMMAND_SHARE_SET, &s), -EPERM);
    assert_int_equal(give(&r, &alice, COMMAND_SHARE_SET, &s), 0);
    rig_assert_same_after_reload(&r);
    assert_true(core_share_allows(r.core, "bob", job, 8000, r.now_ms));
    assert_false(core_share_allows(r.core, "bob", job, 8001, r.now_ms));
    assert_false(core_share_allows(r.core, "bob", job + 1, 8000, r.now_ms));
    assert_false(core_share_allows(r.core, "carol", job, 8000, r.now_ms));
    assert_false(core_share_allows(r.core, "bob", job, 8000, r.now_ms + 1000));
    s.expires_ms += 5000;  // again: for another time
    assert_int_equal(give(&r, &alice, COMMAND_SHARE_SET, &s), 0);
    assert_int_equal(count(&r), 1);
    assert_true(core_share_allows(r.core, "bob", job, 8000, r.now_ms + 1000));
    assert_int_equal(give(&r, &bob, COMMAND_SHARE_END, &s), -EPERM);
    assert_int_equal(give(&r, &alice, COMMAND_SHARE_END, &s), 0);
    assert_int_equal(give(&r, &alice, COMMAND_SHARE_END, &s), -ENOENT);
    assert_false(core_share_allows(r.core, "bob", job, 8000, r.now_ms));
    rig_assert_same_after_reload(&r);
    rig_done(&r);
}

static void what_means_nothing_is_refused(void **state) {
    struct rig r;
    rig_init(&r);
    uint64_t job = submit(&r);
    int64_t later = r.now_ms + 1000;
    const struct event_share bad[] = {
        {.job = job, .port = 8000, .expires_ms = later},
        {.job = job, .port = 8000, .user = "bob", .project = "default", .expires_ms = later},
        {.job = job, .user = "bob", .expires_ms = later},
        {.job = job, .port = 8000, .user = "b b", .expires_ms = later},
        {.job = job, .port = 8000, .user = "bob", .expires_ms = r.now_ms},
        {.job = job, .port = 8000, .project = "another", .expires_ms = later},
        {.job = job + 1, .port = 8000, .user = "bob", .expires_ms = later},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_true(give(&r, &alice, COMMAND_SHARE_SET, &bad[i]) < 0);
    assert_int_equal(count(&r), 0);
    rig_done(&r);
}

static void there_is_an_end_to_shares(void **state) {
    struct rig r;
    char name[16];
    rig_init(&r);
    struct event_share s = {.job = submit(&r), .port = 8000, .user = name, .expires_ms = r.now_ms + 1000};
    for (int i = 0; i < SHARES_PER_JOB; i++) {
        snprintf(name, sizeof name, "user%d", i);
        assert_int_equal(give(&r, &alice, COMMAND_SHARE_SET, &s), 0);
    }
    assert_int_equal(give(&r, &alice, COMMAND_SHARE_SET, &s), 0);  // the same again needs no room
    s.user = "one-more";
    assert_int_equal(give(&r, &alice, COMMAND_SHARE_SET, &s), -E2BIG);
    r.now_ms += 2000;  // they are over, and go
    s.expires_ms = r.now_ms + 1000;
    for (int i = 0; i < 5; i++)
        assert_int_equal(give(&r, &alice, COMMAND_SHARE_SET, &s), 0);
    assert_int_equal(count(&r), 1);
    rig_assert_same_after_reload(&r);
    rig_done(&r);
}

// One user cannot take the room of all.
static void one_user_has_so_many(void **state) {
    struct rig r;
    char name[16];
    rig_init(&r);
    struct event_share s = {.port = 8000, .user = name, .expires_ms = r.now_ms + 1000};
    for (int i = 0; i < SHARES_PER_USER; i++) {
        if (i % SHARES_PER_JOB == 0)
            s.job = submit(&r);
        snprintf(name, sizeof name, "user%d", i);
        assert_int_equal(give(&r, &alice, COMMAND_SHARE_SET, &s), 0);
    }
    s.job = submit(&r);
    assert_int_equal(give(&r, &alice, COMMAND_SHARE_SET, &s), -E2BIG);
    s.job = submit_as(&r, &bob);
    assert_int_equal(give(&r, &bob, COMMAND_SHARE_SET, &s), 0);
    rig_done(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_owner_shares_for_a_time),
        cmocka_unit_test(what_means_nothing_is_refused),
        cmocka_unit_test(there_is_an_end_to_shares),
        cmocka_unit_test(one_user_has_so_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
