// A limit of zero is told from no limit: in what jobs may do, in snapshots, and in journals of release 0.1.0, whose
// zeros meant none.
#include "rig.h"

#include <errno.h>

static const struct qos *stored_qos;

static bool keep_qos(void *ctx, const char *name, const void *value) {
    if (streq(name, ctx))
        stored_qos = value;
    return true;
}

static const struct qos *qos_of(const struct core *c, const char *name) {
    stored_qos = NULL;
    core_each_entity(c, ENTITY_QOS, keep_qos, (void *)(uintptr_t)name);
    assert_non_null(stored_qos);
    return stored_qos;
}

static bool limits_jobs(const struct core *c, const char *name) {
    const struct qos *q = qos_of(c, name);
    return entity_has(ENTITY_QOS, q, &q->max_jobs_per_user);
}

static void set_qos(struct rig *r, const char *name, bool zero) {
    struct qos q = {.name = name};
    struct error e = {0};
    if (zero)
        schema_give(&entity_qos_schema, &q, &q.max_jobs_per_user);
    schema_give(&entity_qos_schema, &q, &q.priority);  // a zero that is no limit is not kept as one
    if (do_qos_set(r->core, &root, &q, r->now_ms, &e) < 0)
        fail_msg("%s", e.text);
    core_schedule(r->core, r->now_ms);
    rig_drain(r);
}

static void test_zero_jobs_of_a_qos(void **state) {
    struct rig r;
    struct spec s = rig_spec();
    rig_init(&r);
    rig_hello(&r, "n1", 8, 0, "boot", NULL, 0);
    set_qos(&r, "stopped", true);
    set_qos(&r, "free", false);
    s.qos = "free";
    assert_int_equal(rig_state(&r, rig_submit(&r, &alice, &s)), JOB_STARTING);
    s.qos = "stopped";
    uint64_t id = rig_submit(&r, &alice, &s);
    assert_int_equal(rig_state(&r, id), JOB_PENDING);
    assert_true(limits_jobs(r.core, "stopped"));
    assert_false(limits_jobs(r.core, "free"));
    assert_int_equal(qos_of(r.core, "free")->given[0], 0);

    cleanup_buf struct buf snapshot = {0};
    core_snapshot(r.core, &snapshot);
    struct core_config config;
    core_config_default(&config);
    struct core *again = core_new(&config);
    assert_int_equal(core_load_snapshot(again, core_seq(r.core), snapshot.data, snapshot.len, NULL), 0);
    assert_true(limits_jobs(again, "stopped"));
    assert_false(limits_jobs(again, "free"));
    core_free(again);

    set_qos(&r, "stopped", false);  // the limit is taken away
    assert_int_equal(rig_state(&r, id), JOB_STARTING);
    rig_done(&r);
}

static void test_a_longest_time_of_zero(void **state) {
    struct rig r;
    struct spec s = rig_spec();
    struct error e = {0};
    uint64_t id, count;
    rig_init(&r);
    rig_hello(&r, "n1", 8, 0, "boot", NULL, 0);
    struct partition p = {.name = "main", .is_default = true};
    schema_give(&entity_partition_schema, &p, &p.max_time_s);
    assert_int_equal(do_partition_set(r.core, &root, &p, r.now_ms, &e), 0);
    assert_int_equal(do_submit(r.core, &alice, &s, NULL, false, r.now_ms, &id, &count, &e), -EINVAL);
    assert_string_equal(e.text, "partition: main allows no jobs (its max_time is 0); name another");
    p = (struct partition){.name = "main", .is_default = true};
    assert_int_equal(do_partition_set(r.core, &root, &p, r.now_ms, &e), 0);
    id = rig_submit(&r, &alice, &s);
    assert_int_equal(rig_state(&r, id), JOB_STARTING);
    schema_give(&entity_partition_schema, &p, &p.default_time_s);
    assert_int_equal(do_partition_set(r.core, &root, &p, r.now_ms, &e), -EINVAL);
    rig_done(&r);
}

// A job that asks for no time in a QoS with a longest time gets that one instead of waiting for ever.
static void test_the_longest_time_of_a_qos_is_a_default(void **state) {
    struct rig r;
    struct spec s = rig_spec();
    struct error e = {0};
    struct job_view v;
    rig_init(&r);
    rig_hello(&r, "n1", 8, 0, "boot", NULL, 0);
    assert_int_equal(
        do_qos_set(r.core, &root, &(struct qos){.name = "short", .max_wall_s = 600}, r.now_ms, &e), 0);
    s.qos = "short";
    uint64_t id = rig_submit(&r, &alice, &s);
    assert_true(core_view(r.core, id, &v));
    assert_int_equal(v.state, JOB_STARTING);
    assert_int_equal(v.time_limit_s, 600);
    rig_done(&r);
}

static void test_no_interactive_jobs(void **state) {
    struct rig r;
    struct spec s = rig_spec();
    struct error e = {0};
    uint64_t id, count;
    rig_init(&r);
    rig_hello(&r, "n1", 8, 0, "boot", NULL, 0);
    struct project p = {.name = "batch"};
    schema_give(&entity_project_schema, &p, &p.interactive_limit_s);
    assert_int_equal(do_project_set(r.core, &root, &p, r.now_ms, &e), 0);
    s.project = "batch";
    s.class = CLASS_INTERACTIVE;
    assert_int_equal(do_submit(r.core, &alice, &s, NULL, false, r.now_ms, &id, &count, &e), -EINVAL);
    assert_non_null(strstr(e.text, "project: batch allows no interactive jobs"));
    s.class = CLASS_TRAIN;
    rig_submit(&r, &alice, &s);
    rig_done(&r);
}

// What the job asked for may be longer than what it runs with: a change of something else is no way to get it.
static void test_an_update_does_not_lengthen_an_interactive_job(void **state) {
    struct rig r;
    struct spec s = rig_spec(), change = {.comment = "mine"};
    struct error e = {0};
    struct job_view v;
    rig_init(&r);
    rig_hello(&r, "n1", 8, 0, "boot", NULL, 0);
    struct project p = {.name = "short", .interactive_limit_s = 600};
    schema_give(&entity_project_schema, &p, &p.interactive_limit_s);
    assert_int_equal(do_project_set(r.core, &root, &p, r.now_ms, &e), 0);
    s.project = "short";
    s.class = CLASS_INTERACTIVE;
    s.time_limit_s = 3600;
    uint64_t id = rig_submit(&r, &alice, &s);
    assert_true(core_view(r.core, id, &v));
    assert_int_equal(v.time_limit_s, 600);
    assert_int_equal(do_update(r.core, &alice, id, &change, r.now_ms, &e), 0);
    assert_true(core_view(r.core, id, &v));
    assert_int_equal(v.time_limit_s, 600);
    change = (struct spec){.time_limit_s = 300};
    assert_int_equal(do_update(r.core, &alice, id, &change, r.now_ms, &e), 0);
    assert_true(core_view(r.core, id, &v));
    assert_int_equal(v.time_limit_s, 300);
    rig_done(&r);
}

static bool keep_project(void *ctx, const char *name, const void *value) {
    if (streq(name, "p"))
        *(struct project *)ctx = *(const struct project *)value;
    return true;
}

// A request gives the figure, the flag, or both.
static void test_limit_of_a_project_and_its_flag(void **state) {
    struct rig r;
    struct error e = {0};
    struct project kept, p = {.name = "p", .limit_milligpu = 4000};
    rig_init(&r);
    assert_int_equal(do_project_set(r.core, &root, &p, r.now_ms, &e), 0);
    core_each_entity(r.core, ENTITY_PROJECT, keep_project, &kept);
    assert_true(kept.has_limit && kept.limit_milligpu == 4000 && !kept.has_weight);
    p = (struct project){.name = "p"};
    schema_give(&entity_project_schema, &p, &p.limit_milligpu);
    assert_int_equal(do_project_set(r.core, &root, &p, r.now_ms, &e), 0);
    core_each_entity(r.core, ENTITY_PROJECT, keep_project, &kept);
    assert_true(kept.has_limit && kept.limit_milligpu == 0);
    schema_give(&entity_project_schema, &p, &p.has_limit);  // false
    assert_int_equal(do_project_set(r.core, &root, &p, r.now_ms, &e), 0);
    core_each_entity(r.core, ENTITY_PROJECT, keep_project, &kept);
    assert_false(kept.has_limit || entity_has(ENTITY_PROJECT, &kept, &kept.limit_milligpu));
    rig_done(&r);
}

static void test_an_old_journal(void **state) {
    struct core_config config;
    core_config_default(&config);
    struct core *c = core_new(&config);
    struct qos q = {.name = "old", .priority = 3};  // as release 0.1.0 wrote a QoS without limits
    struct event_qos_set b = {.qos = &q, .by = "root"};
    cleanup_buf struct buf data = {0};
    struct error e = {0};
    event_encode(&(struct event){.type = EVENT_QOS_SET, .body = &b}, &data);
    assert_int_equal(core_replay(c, 1, 5, EVENT_QOS_SET, data.data, data.len), 0);
    core_start(c, 10);
    assert_false(limits_jobs(c, "old"));
    schema_give(&entity_qos_schema, &q, &q.max_jobs_per_user);
    assert_int_equal(do_qos_set(c, &root, &q, 20, &e), -EINVAL);  // the release before would take it for none
    assert_non_null(strstr(e.text, "acequia upgrade finish"));
    assert_int_equal(do_upgrade_finish(c, &root, 20, &e), 0);
    assert_int_equal(do_qos_set(c, &root, &q, 20, &e), 0);
    assert_true(limits_jobs(c, "old"));
    core_free(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_zero_jobs_of_a_qos),
        cmocka_unit_test(test_a_longest_time_of_zero),
        cmocka_unit_test(test_the_longest_time_of_a_qos_is_a_default),
        cmocka_unit_test(test_no_interactive_jobs),
        cmocka_unit_test(test_an_update_does_not_lengthen_an_interactive_job),
        cmocka_unit_test(test_limit_of_a_project_and_its_flag),
        cmocka_unit_test(test_an_old_journal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
