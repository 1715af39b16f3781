// A job with several partitions: what it may name, where it is told to be, and that this outlives the
// controller and ends with a requeue.
#include <errno.h>

#include "rig.h"

static void partition(struct rig *r, const char *name, const char *nodes, uint32_t max_time_s) {
    struct error e = {0};
    struct partition p = {.name = name, .nodes = nodes, .max_time_s = max_time_s, .default_time_s = max_time_s};
    if (do_partition_set(r->core, &root, &p, r->now_ms, &e) < 0)
        fail_msg("partition: %s", e.text);
    core_schedule(r->core, r->now_ms);
    rig_drain(r);
}

// n1 is a, n2 is b; four CPUs each.
static void two_partitions(struct rig *r) {
    rig_init(r);
    rig_hello(r, "n1", 4, 0, "b1", NULL, 0);
    rig_hello(r, "n2", 4, 0, "b1", NULL, 0);
    partition(r, "a", "n1", 600);
    partition(r, "b", "n2", 1200);
}

static struct spec asks(const char *partition, uint32_t cpus) {
    struct spec s = rig_spec();
    s.partition = partition;
    s.cpus_per_task = cpus;
    return s;
}

static uint64_t submit(struct rig *r, const char *partition, uint32_t cpus) {
    struct spec s = asks(partition, cpus);
    return rig_submit(r, &alice, &s);
}

static const char *told(struct core *c, uint64_t id) {
    struct job_view v;
    assert_true(core_view(c, id, &v));
    return v.partition;
}

static void refused(struct rig *r, const struct spec *s, const char *words) {
    struct error e = {0};
    uint64_t id, n;
    assert_true(do_submit(r->core, &alice, s, NULL, false, r->now_ms, &id, &n, &e) < 0);
    if (!strstr(e.text, words))
        fail_msg("%s gave: %s", s->partition, e.text);
}

static void every_name_must_be_known(void **state) {
    (void)state;
    struct rig r;
    two_partitions(&r);
    struct spec s = asks("a,nope", 1);
    refused(&r, &s, "partition \"nope\" does not exist");
    s = asks(",", 1);
    refused(&r, &s, "partition \",\" does not exist");
    s = asks("a,,a,", 1);  // one, said in many words
    assert_string_equal(told(r.core, rig_submit(&r, &alice, &s)), "a");
    s = asks("a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a", 1);
    refused(&r, &s, "at most 16");
    s = asks("a,b", 5);
    refused(&r, &s, "(in partition a; the other partitions it names cannot run it either)");
    s = asks("a,b", 1);
    s.time_limit_s = 900;  // too long for a, not for b
    rig_submit(&r, &alice, &s);
    s.time_limit_s = 1500;
    refused(&r, &s, "exceeds partition a's limit of 10 min");
    rig_done(&r);
}

static void the_limit_of_the_one_it_runs_in_holds(void **state) {
    (void)state;
    struct rig r;
    struct job_view v;
    two_partitions(&r);
    uint64_t first = submit(&r, "a,b", 4), second = submit(&r, "a,b", 4);
    assert_string_equal(told(r.core, first), "a");
    assert_string_equal(told(r.core, second), "b");
    assert_true(core_view(r.core, first, &v));
    assert_int_equal(v.time_limit_s, 600);
    assert_true(core_view(r.core, second, &v));
    assert_int_equal(v.time_limit_s, 1200);
    cleanup_arena struct arena a = {0};
    struct message_launch m;
    assert_int_equal(core_launch(r.core, second, 1, "n2", &a, &m), 0);
    assert_string_equal(m.spec->partition, "b");  // in its environment
    struct spec s = asks("a,b", 4);
    s.time_limit_s = 900;
    uint64_t third = rig_submit(&r, &alice, &s);
    assert_string_equal(told(r.core, third), "a,b");
    rig_end(&r, "n1", first, 1, END_EXIT, 0);
    assert_int_equal(rig_state(&r, third), JOB_PENDING);  // a does not let it run that long
    rig_end(&r, "n2", second, 1, END_EXIT, 0);
    assert_string_equal(told(r.core, third), "b");
    rig_done(&r);
}

static struct core *loaded_again(struct rig *r) {
    struct core_config config;
    struct error e = {0};
    cleanup_buf struct buf b = {0}, again = {0};
    core_snapshot(r->core, &b);
    core_config_default(&config);
    struct core *c = core_new(&config);
    if (core_load_snapshot(c, core_seq(r->core), b.data, b.len, &e) < 0)
        fail_msg("%s", e.text);
    core_snapshot(c, &again);
    assert_int_equal(b.len, again.len);
    assert_memory_equal(b.data, again.data, b.len);
    return c;
}

static struct core *replayed(struct rig *r) {
    struct core_config config;
    core_config_default(&config);
    struct core *c = core_new(&config);
    for (uint32_t i = 0; i < r->journal.len; i++)
        assert_int_equal(core_replay(c, r->journal.at[i].e.seq, r->journal.at[i].e.at_ms, r->journal.at[i].e.type,
                                     r->journal.at[i].data, r->journal.at[i].e.len), 0);
    return c;
}

static void where_it_runs_outlives_the_controller(void **state) {
    (void)state;
    struct rig r;
    two_partitions(&r);
    submit(&r, "a", 4);
    uint64_t id = submit(&r, "a,b", 4), waits = submit(&r, "b,a", 4);
    assert_string_equal(told(r.core, id), "b");
    struct core *again[] = {loaded_again(&r), replayed(&r)};
    for (int i = 0; i < 2; i++) {
        struct sched_job_view v;
        assert_string_equal(told(again[i], id), "b");
        assert_string_equal(told(again[i], waits), "b,a");
        assert_true(world_job(core_world(again[i]), id, &v));
        assert_int_equal(v.partition, core_handle(again[i], ENTITY_PARTITION, "b"));
        assert_int_equal(v.limit_end_ms - v.start_ms, 1200 * 1000);
        core_assert(again[i]);
        core_free(again[i]);
    }
    rig_done(&r);
}

static void a_requeue_gives_all_of_them_back(void **state) {
    (void)state;
    struct rig r;
    struct error e = {0};
    two_partitions(&r);
    uint64_t id = submit(&r, "a,b", 4);
    rig_started(&r, "n1", id, 1);
    // what is told of it, sent back with another name, is no change of partition
    cleanup_arena struct arena a = {0};
    struct job_record record;
    assert_int_equal(core_record(r.core, id, &a, &record), 0);
    assert_string_equal(record.spec->partition, "a");
    record.spec->name = "other";
    assert_int_equal(do_update(r.core, &alice, id, record.spec, r.now_ms, &e), 0);
    record.spec->partition = "b";
    assert_int_equal(do_update(r.core, &alice, id, record.spec, r.now_ms, &e), -EBUSY);
    struct partition down = {.name = "a", .nodes = "n1", .down = true};
    assert_int_equal(do_partition_set(r.core, &root, &down, r.now_ms, &e), 0);
    assert_int_equal(do_requeue(r.core, &alice, id, true, r.now_ms, &e), 0);
    rig_end(&r, "n1", id, 1, END_REQUEUE, 0);
    assert_string_equal(told(r.core, id), "a,b");
    assert_int_equal(do_release(r.core, &alice, id, r.now_ms, &e), 0);
    core_schedule(r.core, r.now_ms);
    rig_drain(&r);
    assert_string_equal(told(r.core, id), "b");
    rig_done(&r);
}

static void a_partition_may_go_under_it(void **state) {
    (void)state;
    struct rig r;
    struct error e = {0};
    two_partitions(&r);
    uint64_t in_a = submit(&r, "a", 4), in_b = submit(&r, "b,a", 4), waits = submit(&r, "a,b", 4);
    assert_int_equal(do_delete(r.core, &root, ENTITY_PARTITION, "b", true, r.now_ms, &e), 0);
    core_schedule(r.core, r.now_ms);
    rig_drain(&r);
    assert_string_equal(told(r.core, in_b), "b");
    rig_end(&r, "n2", in_b, 1, END_EXIT, 0);
    assert_int_equal(rig_state(&r, waits), JOB_PENDING);  // b's node is free, but b is gone
    rig_end(&r, "n1", in_a, 1, END_EXIT, 0);
    assert_string_equal(told(r.core, waits), "a");
    rig_done(&r);
}

// With other partitions, while it waits.
static void it_may_be_changed(void **state) {
    (void)state;
    struct rig r;
    struct error e = {0};
    two_partitions(&r);
    uint64_t first = submit(&r, "a", 4), id = submit(&r, "a", 4);
    struct spec s = asks("a,b", 4);
    assert_int_equal(do_update(r.core, &alice, id, &s, r.now_ms, &e), 0);
    core_schedule(r.core, r.now_ms);
    rig_drain(&r);
    assert_string_equal(told(r.core, id), "b");
    assert_string_equal(told(r.core, first), "a");
    rig_done(&r);
}

static void reservation(struct rig *r, const char *nodes) {
    struct error e = {0};
    struct reservation v = {.name = "disks", .nodes = nodes, .start_ms = r->now_ms + 1000,
                            .end_ms = r->now_ms + 3600 * 1000, .maintenance = true};
    if (rig_command(r->core, &root, command_entity_set(ENTITY_RESERVATION), &v, r->now_ms, &e) < 0)
        fail_msg("reservation: %s", e.text);
    core_schedule(r->core, r->now_ms);
    rig_drain(r);
}

// A list of nodes none of which is known means no node, not every node.
static void a_list_of_unknown_nodes_is_no_node(void **state) {
    (void)state;
    struct rig r;
    two_partitions(&r);
    reservation(&r, "n9");
    assert_int_equal(rig_state(&r, submit(&r, "a", 1)), JOB_STARTING);
    reservation(&r, "n1");
    assert_int_equal(rig_state(&r, submit(&r, "a", 1)), JOB_PENDING);
    assert_int_equal(rig_state(&r, submit(&r, "b", 1)), JOB_STARTING);
    reservation(&r, "ALL");
    assert_int_equal(rig_state(&r, submit(&r, "b", 1)), JOB_PENDING);
    rig_done(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_name_must_be_known),
        cmocka_unit_test(the_limit_of_the_one_it_runs_in_holds),
        cmocka_unit_test(where_it_runs_outlives_the_controller),
        cmocka_unit_test(a_requeue_gives_all_of_them_back),
        cmocka_unit_test(a_partition_may_go_under_it),
        cmocka_unit_test(it_may_be_changed),
        cmocka_unit_test(a_list_of_unknown_nodes_is_no_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
