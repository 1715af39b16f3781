// Large arrays: their elements are created, and a new limit is applied, in slices. No event works on more elements than
// a slice, and the journal and every snapshot in between give the same state.
#include <errno.h>

#include "rig.h"

#include "../state.h"

enum { SLICE = 2000, MANY = 5000 };

static struct core *empty_core(void) {
    struct core_config config;
    core_config_default(&config);
    return core_new(&config);
}

static void same_state(const struct core *x, const struct core *y) {
    cleanup_buf struct buf a = {0}, b = {0};
    core_snapshot(x, &a);
    core_snapshot(y, &b);
    assert_int_equal(a.len, b.len);
    assert_memory_equal(a.data, b.data, a.len);
}

// The state as a restart finds it: by the journal, and by a snapshot.
static void survives(const struct rig *r) {
    struct core *replayed = empty_core(), *loaded = empty_core();
    cleanup_buf struct buf b = {0};
    struct error e;
    for (uint32_t i = 0; i < r->journal.len; i++) {
        const struct outbox_event *o = &r->journal.at[i].e;
        assert_int_equal(core_replay(replayed, o->seq, o->at_ms, o->type, r->journal.at[i].data, o->len), 0);
    }
    core_snapshot(r->core, &b);
    if (core_load_snapshot(loaded, core_seq(r->core), b.data, b.len, &e) < 0)
        fail_msg("%s", e.text);
    core_assert(replayed);
    core_assert(loaded);
    same_state(r->core, replayed);
    same_state(r->core, loaded);
    core_free(replayed);
    core_free(loaded);
}

static uint64_t submit_array(struct rig *r, struct array_range *ranges, uint32_t count, uint32_t limit,
                             const char *dependency) {
    struct spec s = rig_spec();
    uint64_t id, elements;
    struct error e = {0};
    s.array.at = ranges;
    s.array.len = count;
    s.array_limit = limit;
    s.dependency = dependency;
    if (do_submit(r->core, &alice, &s, NULL, false, r->now_ms, &id, &elements, &e) < 0)
        fail_msg("%s", e.text);
    rig_drain(r);
    return id;
}

static void cancel(struct rig *r, uint64_t id) {
    assert_int_equal(do_cancel(r->core, &alice, id, &(struct command_cancel){0}, r->now_ms, NULL), 0);
    rig_drain(r);
}

// How many elements of an array the limit lets through.
static uint32_t released(const struct rig *r, uint64_t array) {
    uint32_t n = 0;
    for (uint64_t id = array; id < array + MANY; id++) {
        const struct core_job *j = core_find_job(r->core, id);
        n += j && !(j->flags & WAITS_ARRAY);
    }
    return n;
}

static void elements_are_created_in_slices(void **state) {
    struct rig r;
    struct array_range all = {10, 10 + MANY - 1, 1};
    rig_init(&r);
    uint64_t array = submit_array(&r, &all, 1, 0, NULL), created = SLICE;
    uint64_t other = rig_submit(
        &r, &bob,
        &(struct spec){.name = "x", .workdir = "/", .tasks = 1, .cpus_per_task = 1, .argv = rig_spec().argv});
    assert_int_equal(other, array + MANY);  // all ids are reserved
    created = r.core->jobs.len - 1;
    assert_true(created >= SLICE);
    survives(&r);
    while (core_array_unfinished(r.core, array)) {
        uint64_t before = r.core->jobs.len;
        assert_int_equal(core_array_uncreated(r.core, array), MANY - (before - 1));
        assert_true(core_array_continue(r.core, ++r.now_ms));
        rig_drain(&r);
        assert_true(r.core->jobs.len - before <= SLICE);
        survives(&r);
    }
    assert_int_equal(r.core->jobs.len, MANY + 1);
    for (uint32_t i = 0; i < MANY; i++)
        assert_int_equal(core_find_job(r.core, array + i)->array_index, 10 + i);
    assert_int_equal(core_user_count(r.core, "alice")->live, MANY);
    assert_false(core_array_continue(r.core, r.now_ms));
    rig_done(&r);
}

// What is not created yet counts as there for everybody who asks how much there is.
static void uncreated_elements_count(void **state) {
    struct rig r;
    struct error e;
    struct array_range all = {0, MANY - 1, 1};
    struct core_config config;
    rig_init(&r);
    core_config_default(&config);
    config.max_jobs_per_user = MANY;
    core_configure(r.core, &config);
    submit_array(&r, &all, 1, 0, NULL);
    struct spec s = rig_spec();
    uint64_t id, count;
    assert_int_equal(do_submit(r.core, &alice, &s, NULL, false, r.now_ms, &id, &count, &e), -EAGAIN);
    rig_done(&r);
}

// All that were created have ended before the others exist: the array goes on, and what waits for it waits.
static void early_elements_may_end(void **state) {
    struct rig r;
    struct error e;
    struct array_range all = {0, MANY - 1, 1};
    char whole[32], one[32];
    rig_init(&r);
    uint64_t array = submit_array(&r, &all, 1, 0, NULL);
    snprintf(whole, sizeof whole, "afterany:%llu", (unsigned long long)array);
    snprintf(one, sizeof one, "afterany:%llu_%d", (unsigned long long)array, MANY - 1);
    struct spec s = rig_spec();
    uint64_t waiting, count;
    s.dependency = one;
    assert_int_equal(do_submit(r.core, &alice, &s, NULL, false, r.now_ms, &waiting, &count, &e), -EAGAIN);
    s.dependency = whole;
    assert_int_equal(do_submit(r.core, &alice, &s, NULL, false, r.now_ms, &waiting, &count, &e), 0);
    rig_drain(&r);
    for (uint64_t id = array; id < array + SLICE; id++)
        cancel(&r, id);
    assert_true(core_find_job(r.core, waiting)->flags & WAITS_DEPENDENCY);
    assert_true(core_is_array(r.core, array));
    survives(&r);
    while (core_array_continue(r.core, r.now_ms))
        rig_drain(&r);
    survives(&r);
    for (uint64_t id = array + SLICE; id < array + MANY; id++) {
        assert_true(core_find_job(r.core, waiting)->flags & WAITS_DEPENDENCY);
        cancel(&r, id);
    }
    assert_false(core_find_job(r.core, waiting)->flags & WAITS_DEPENDENCY);
    rig_done(&r);
}

static void carry_on(struct rig *r, uint64_t array, uint32_t most_released) {
    uint32_t turns = 0;
    while (core_array_unfinished(r->core, array)) {
        const struct array *a = map_get(&r->core->arrays, array);
        uint64_t limited = a->limited, cursor = a->cursor;
        assert_true(core_array_continue(r->core, r->now_ms));
        rig_drain(r);
        assert_true(a->limited <= limited + SLICE && a->cursor <= cursor + SLICE);  // the work of one event
        assert_true(released(r, array) <= most_released);
        survives(r);
        assert_true(++turns < 100);
    }
}

static void a_limit_is_applied_in_slices(void **state) {
    struct rig r;
    struct error e;
    struct array_range all = {0, MANY - 1, 1};
    struct spec change = {.array_limit = 7};
    rig_init(&r);
    uint64_t array = submit_array(&r, &all, 1, 3, NULL);
    carry_on(&r, array, 3);
    assert_int_equal(released(&r, array), 3);
    assert_int_equal(do_update(r.core, &alice, array + 5, &change, r.now_ms, &e), 0);
    rig_drain(&r);
    carry_on(&r, array, 7);
    assert_int_equal(released(&r, array), 7);
    cancel(&r, array);
    assert_int_equal(released(&r, array), 7);  // the next one's turn
    change.array_limit = 0;
    schema_give(&spec_schema, &change, &change.array_limit);
    assert_int_equal(do_update(r.core, &alice, array + 5, &change, r.now_ms, &e), 0);
    rig_drain(&r);
    carry_on(&r, array, MANY);
    assert_int_equal(released(&r, array), MANY - 1);
    rig_done(&r);
}

static uint32_t placed(const struct rig *r, uint64_t array) {
    uint32_t n = 0;
    for (uint64_t id = array; id < array + MANY; id++)
        n += core_find_job(r->core, id)->run != NULL;
    return n;
}

// The limit has counted it as running, and goes on to count others: it waits for its turn like all that are queued.
static void an_element_is_requeued_while_the_limit_is_applied(void **state) {
    static const uint64_t running[] = {0, 1, MANY - 2, MANY - 1};
    struct rig r;
    struct error e;
    struct array_range all = {0, MANY - 1, 1};
    struct spec change = {.array_limit = 2}, held = rig_spec();
    uint64_t array, count;
    rig_init(&r);
    held.hold = true;
    held.array.at = &all;
    held.array.len = 1;
    assert_int_equal(do_submit(r.core, &alice, &held, NULL, false, r.now_ms, &array, &count, &e), 0);
    rig_drain(&r);
    carry_on(&r, array, MANY);
    rig_hello(&r, "n1", 4, 0, "boot", NULL, 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(do_release(r.core, &alice, array + running[i], r.now_ms, &e), 0);
    core_schedule(r.core, ++r.now_ms);
    rig_drain(&r);
    assert_int_equal(placed(&r, array), 4);
    assert_int_equal(do_update(r.core, &alice, array, &change, r.now_ms, &e), 0);
    rig_end(&r, "n1", array + 1, 1, END_REQUEUE, 0);
    while (core_array_unfinished(r.core, array)) {
        assert_true(core_array_continue(r.core, r.now_ms));
        core_schedule(r.core, ++r.now_ms);
        rig_drain(&r);
    }
    assert_int_equal(placed(&r, array), 3);
    assert_true(core_find_job(r.core, array + 1)->flags & WAITS_ARRAY);
    survives(&r);
    rig_done(&r);
}

// Between two slices the scheduler looks at elements that the limit has not come to: they wait.
static void nothing_starts_before_the_limit_is_applied(void **state) {
    struct rig r;
    struct error e;
    struct array_range all = {0, MANY - 1, 1};
    struct spec change = {.array_limit = 2};
    rig_init(&r);
    uint64_t array = submit_array(&r, &all, 1, 0, NULL);
    carry_on(&r, array, MANY);
    assert_int_equal(do_update(r.core, &alice, array, &change, r.now_ms, &e), 0);
    rig_drain(&r);
    rig_hello(&r, "n1", 8, 0, "boot", NULL, 0);
    while (core_array_unfinished(r.core, array)) {
        assert_int_equal(placed(&r, array), 0);
        assert_true(core_array_continue(r.core, r.now_ms));
        core_schedule(r.core, ++r.now_ms);
        rig_drain(&r);
    }
    assert_int_equal(placed(&r, array), 2);
    rig_done(&r);
}

// Elements that end before their turn are passed over, a slice at a time.
static void a_gap_is_passed_in_slices(void **state) {
    struct rig r;
    struct array_range all = {0, MANY - 1, 1};
    rig_init(&r);
    uint64_t array = submit_array(&r, &all, 1, 1, NULL);
    carry_on(&r, array, 1);
    for (uint64_t id = array + 1; id < array + MANY - 1; id++)
        cancel(&r, id);
    cancel(&r, array);
    assert_int_equal(released(&r, array), 0);
    carry_on(&r, array, 1);
    assert_int_equal(released(&r, array), 1);
    rig_done(&r);
}

// An array that waits for a job, which ends: as many elements are judged by one event as are in a slice.
static void many_dependents_are_judged_in_slices(void **state) {
    struct rig r;
    struct array_range all = {0, MANY - 1, 1};
    struct spec first = rig_spec();
    char on[32];
    rig_init(&r);
    first.hold = true;
    uint64_t one = rig_submit(&r, &alice, &first), two = rig_submit(&r, &alice, &first);
    snprintf(on, sizeof on, "afterany:%llu:%llu", (unsigned long long)one, (unsigned long long)two);
    uint64_t array = submit_array(&r, &all, 1, 0, on);
    while (core_array_continue(r.core, r.now_ms))
        ;
    rig_drain(&r);
    for (int ends = 0; ends < 2; ends++) {
        uint64_t before = r.core->dependents_judged, slices = 0;
        cancel(&r, ends ? two : one);
        cancel(&r, array + (uint64_t)(ends ? 2500 : 1500));  // among those that are still to be judged
        for (; core_work_left(r.core); slices++) {
            survives(&r);
            assert_true(r.core->dependents_judged - before <= SLICE);
            before = r.core->dependents_judged;
            assert_true(core_depend_continue(r.core, r.now_ms));
            rig_drain(&r);
        }
        assert_true(slices > 1 && slices <= MANY / SLICE + 1);
        survives(&r);
        for (uint64_t id = array; id < array + MANY; id++) {
            const struct core_job *j = core_find_job(r.core, id);
            assert_true(!j || (j->flags & WAITS_DEPENDENCY ? 0 : 1) == ends);
        }
    }
    rig_done(&r);
}

// Every other index: as many ranges as elements. Elements have the right index, and are found by it.
static void many_ranges(void **state) {
    enum { RANGES = 5000 };
    struct rig r;
    struct array_range *ranges = xcalloc(RANGES, sizeof *ranges);
    for (uint32_t i = 0; i < RANGES; i++)
        ranges[i] = (struct array_range){i * 7 + i % 3, i * 7 + i % 3, 1};
    rig_init(&r);
    uint64_t array = submit_array(&r, ranges, RANGES, 0, NULL);
    while (core_array_continue(r.core, r.now_ms))
        ;
    rig_drain(&r);
    for (uint32_t i = 0; i < RANGES; i++) {
        assert_int_equal(core_find_job(r.core, array + i)->array_index, ranges[i].first);
        assert_int_equal(core_element(r.core, array, ranges[i].first), array + i);
        assert_int_equal(core_element(r.core, array, ranges[i].first + 3), 0);
    }
    free(ranges);
    rig_done(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_are_created_in_slices),
        cmocka_unit_test(uncreated_elements_count),
        cmocka_unit_test(early_elements_may_end),
        cmocka_unit_test(a_limit_is_applied_in_slices),
        cmocka_unit_test(nothing_starts_before_the_limit_is_applied),
        cmocka_unit_test(an_element_is_requeued_while_the_limit_is_applied),
        cmocka_unit_test(a_gap_is_passed_in_slices),
        cmocka_unit_test(many_ranges),
        cmocka_unit_test(many_dependents_are_judged_in_slices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
