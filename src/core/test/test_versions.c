// The journal's feature level: a fresh cluster has the newest, an older journal keeps its own until the
// upgrade is finished, and a journal of a later release is refused.
#include "rig.h"

#include <errno.h>

static struct core *plain_core(void) {
    struct core_config config;
    core_config_default(&config);
    return core_new(&config);
}

static void test_fresh_is_newest(void **state) {
    struct rig r;
    rig_init(&r);
    assert_int_equal(core_level(r.core), FEATURE_LEVEL_NEWEST);
    assert_int_equal(r.journal.at[0].e.type, EVENT_LEVEL_SET);
    for (int f = 0; f < FEATURE_COUNT; f++)
        assert_true(core_feature(r.core, (enum feature)f));
    rig_done(&r);
}

// A journal that began before levels: nothing new is written until the upgrade is finished.
static struct core *old_journal(void) {
    struct core *c = plain_core();
    struct project p = {.name = "vision"};
    struct event_project_set b = {.project = &p, .by = "root"};
    cleanup_buf struct buf data = {0};
    event_encode(&(struct event){.type = EVENT_PROJECT_SET, .body = &b}, &data);
    assert_int_equal(core_replay(c, 1, 5, EVENT_PROJECT_SET, data.data, data.len), 0);
    core_start(c, 10);
    return c;
}

static void test_upgrade(void **state) {
    struct core *c = old_journal();
    struct error e = {0};
    assert_int_equal(core_level(c), FEATURE_LEVEL_FIRST);
    assert_false(core_feature(c, FEATURE_LEVELS));
    assert_int_equal(core_outbox(c)->events.len, 0);
    assert_int_equal(do_upgrade_finish(c, &alice, 20, &e), -EPERM);
    assert_int_equal(do_upgrade_finish(c, &root, 20, &e), 0);
    assert_int_equal(core_level(c), FEATURE_LEVEL_NEWEST);
    uint64_t seq = core_seq(c);
    assert_int_equal(do_upgrade_finish(c, &root, 30, &e), 0);  // again: nothing happens
    assert_int_equal(core_seq(c), seq);
    cleanup_buf struct buf snapshot = {0};
    core_snapshot(c, &snapshot);
    struct core *again = plain_core();
    assert_int_equal(core_load_snapshot(again, seq, snapshot.data, snapshot.len, &e), 0);
    assert_int_equal(core_level(again), FEATURE_LEVEL_NEWEST);
    core_free(again);
    core_free(c);
}

// A journal of a release in between says its level: it is kept over snapshots and starts, nothing later is written,
// and each start has its epoch as it had there.
static void test_levels_in_between(void **state) {
    for (uint32_t level = FEATURE_LEVEL_FIRST + 1; level < FEATURE_LEVEL_NEWEST; level++) {
        struct core *c = plain_core(), *again = plain_core();
        struct event_level_set b = {.level = level};
        cleanup_buf struct buf data = {0}, snapshot = {0};
        struct error e = {0};
        event_encode(&(struct event){.type = EVENT_LEVEL_SET, .body = &b}, &data);
        assert_int_equal(core_replay(c, 1, 5, EVENT_LEVEL_SET, data.data, data.len), 0);
        core_start(c, 10);
        assert_int_equal(core_level(c), level);
        for (int f = 0; f < FEATURE_COUNT; f++)
            assert_int_equal(core_feature(c, (enum feature)f), feature_info((enum feature)f)->level <= level);
        for (uint32_t i = 0; i < core_outbox(c)->events.len; i++)
            assert_true(event_info(core_outbox(c)->events.at[i].type)->level <= level);
        core_snapshot(c, &snapshot);
        assert_int_equal(core_load_snapshot(again, core_seq(c), snapshot.data, snapshot.len, &e), 0);
        assert_int_equal(core_level(again), level);
        uint64_t seq = core_seq(again);
        assert_int_equal(do_upgrade_finish(again, &root, 20, &e), 0);
        assert_int_equal(core_level(again), FEATURE_LEVEL_NEWEST);
        assert_int_equal(core_seq(again), seq + 1);  // the level alone: it had epochs before
        core_free(again);
        core_free(c);
    }
}

static void test_snapshot_of_the_first_level(void **state) {
    struct core *c = old_journal();
    cleanup_buf struct buf snapshot = {0};
    core_snapshot(c, &snapshot);
    struct core *again = plain_core();
    assert_int_equal(core_load_snapshot(again, 1, snapshot.data, snapshot.len, NULL), 0);
    assert_int_equal(core_level(again), FEATURE_LEVEL_FIRST);
    core_free(again);
    core_free(c);
}

static void test_later_journal_is_refused(void **state) {
    struct core *c = plain_core();
    struct event_level_set b = {.level = FEATURE_LEVEL_NEWEST + 1};
    cleanup_buf struct buf data = {0};
    event_encode(&(struct event){.type = EVENT_LEVEL_SET, .body = &b}, &data);
    assert_int_equal(core_replay(c, 1, 0, EVENT_LEVEL_SET, data.data, data.len), -EPROTONOSUPPORT);
    assert_int_equal(core_replay(c, 1, 0, (enum event_type)9999, "", 0), -EPROTONOSUPPORT);
    assert_int_equal(core_seq(c), 0);
    core_free(c);
}

// A later agent: what it calls an attempt's state or an end's cause has no word here.
static void test_later_agent(void **state) {
    struct rig r;
    rig_init(&r);
    rig_hello(&r, "n1", 8, 0, "boot", NULL, 0);
    struct spec spec = rig_spec();
    spec.requeue = false;
    uint64_t id = rig_submit(&r, &alice, &spec);
    assert_int_equal(rig_state(&r, id), JOB_STARTING);
    struct attempt known = {.id = id, .attempt = 1, .state = (enum attempt_state)9};
    rig_hello(&r, "n1", 8, 0, "boot", &known, 1);  // not ended: it runs
    assert_int_equal(rig_state(&r, id), JOB_RUNNING);
    assert_int_equal(r.kills, 0);
    rig_end(&r, "n1", id, 1, (enum end_cause)77, 0);
    assert_int_equal(r.last_state, JOB_FAILED);
    rig_done(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fresh_is_newest),          cmocka_unit_test(test_upgrade),
        cmocka_unit_test(test_levels_in_between),        cmocka_unit_test(test_snapshot_of_the_first_level),
        cmocka_unit_test(test_later_journal_is_refused), cmocka_unit_test(test_later_agent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
