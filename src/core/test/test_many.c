// Many jobs of one user, cancelled one after the other: each end costs a logarithm, with and without singleton
// dependencies, by which jobs of one name wait for the earlier ones.
#include <errno.h>

#include "rig.h"

#include "../state.h"

enum { MANY = 2000, STEPS_PER_JOB = 40 };  // a walk over the others would be a thousand steps each

static uint64_t submit_named(struct rig *r, const char *name, const char *dependency) {
    struct spec s = rig_spec();
    s.name = name;
    s.dependency = dependency;
    s.hold = true;
    return rig_submit(r, &alice, &s);
}

static bool waits(struct rig *r, uint64_t id) {
    return core_find_job(r->core, id)->flags & WAITS_DEPENDENCY;
}

static void cancel(struct rig *r, uint64_t id) {
    struct error e;
    assert_int_equal(do_cancel(r->core, &alice, id, &(struct command_cancel){0}, r->now_ms, &e), 0);
    rig_drain(r);
}

static void rename_job(struct rig *r, uint64_t id, const char *name) {
    struct error e;
    struct spec change = {.name = name};
    assert_int_equal(do_update(r->core, &alice, id, &change, r->now_ms, &e), 0);
    rig_drain(r);
}

static void one_singleton_among_many(void **state) {
    struct rig r;
    rig_init(&r);
    uint64_t first = submit_named(&r, "same", NULL), last = first;
    for (int i = 1; i < MANY; i++)
        last = submit_named(&r, "same", NULL);
    uint64_t single = submit_named(&r, "same", "singleton");
    for (uint64_t id = first; id <= last; id++) {
        assert_true(waits(&r, single));
        cancel(&r, id);
    }
    assert_false(waits(&r, single));
    assert_true(r.core->order_work < (uint64_t)MANY * STEPS_PER_JOB);
    assert_true(r.core->singleton_work < (uint64_t)MANY * STEPS_PER_JOB);
    rig_done(&r);
}

static void all_are_singletons(void **state) {
    struct rig r;
    rig_init(&r);
    uint64_t first = submit_named(&r, "same", "singleton");
    for (int i = 1; i < MANY; i++)
        submit_named(&r, "same", "singleton");
    for (uint64_t id = first; id < first + MANY; id++) {
        assert_false(waits(&r, id));
        if (id + 1 < first + MANY)
            assert_true(waits(&r, id + 1));
        cancel(&r, id);
    }
    assert_true(r.core->singleton_work < (uint64_t)MANY * STEPS_PER_JOB);
    rig_done(&r);
}

// Later jobs that end first change nothing.
static void ended_in_any_order(void **state) {
    struct rig r;
    rig_init(&r);
    uint64_t id[64];
    for (int i = 0; i < 64; i++)
        id[i] = submit_named(&r, "same", "singleton");
    for (int i = 63; i > 0; i--) {
        int k = i * 37 % 64;  // every one but the first, in another order
        assert_true(waits(&r, id[k]));
        cancel(&r, id[k]);
        assert_false(waits(&r, id[0]));
    }
    rig_done(&r);
}

static void an_array_waits_as_a_whole(void **state) {
    struct rig r;
    rig_init(&r);
    struct array_range hundred = {0, 99, 1};
    struct spec s = rig_spec();
    uint64_t first = submit_named(&r, s.name, NULL);
    s.array.at = &hundred;
    s.array.len = 1;
    s.dependency = "singleton";
    s.hold = true;
    uint64_t array = rig_submit(&r, &alice, &s), after = submit_named(&r, s.name, "singleton");
    for (int i = 0; i < 100; i++)
        assert_true(waits(&r, array + (uint64_t)i));
    cancel(&r, first);
    for (int i = 0; i < 100; i++) {
        assert_false(waits(&r, array + (uint64_t)i));
        assert_true(waits(&r, after));
    }
    uint64_t before = r.core->singleton_work;
    for (int i = 0; i < 100; i++)
        cancel(&r, array + (uint64_t)i);
    assert_false(waits(&r, after));
    assert_true(r.core->singleton_work - before < 100 * STEPS_PER_JOB);
    rig_done(&r);
}

// A job that is given another name no longer holds up those of its old name.
static void renamed_away(void **state) {
    struct rig r;
    rig_init(&r);
    uint64_t first = submit_named(&r, "same", NULL), second = submit_named(&r, "same", "singleton");
    assert_true(waits(&r, second));
    rename_job(&r, first, "other");
    assert_false(waits(&r, second));
    uint64_t third = submit_named(&r, "other", "singleton");
    assert_true(waits(&r, third));
    rename_job(&r, first, "other");  // the same name again
    assert_true(waits(&r, third));
    cancel(&r, first);
    assert_false(waits(&r, third));
    rig_done(&r);
}

// The search for a cycle looks at a bounded number of an array's elements: an action on many jobs makes one search for
// each of them. What it does not find is accepted, and waits.
static void search_for_cycles_is_bounded(void **state) {
    struct rig r;
    struct error e;
    rig_init(&r);
    struct array_range many = {0, 9999, 1};
    struct spec s = rig_spec(), change = {0};
    char on_job[32], on_array[32];
    uint64_t job = submit_named(&r, "first", NULL);
    s.array.at = &many;
    s.array.len = 1;
    s.hold = true;
    uint64_t array = rig_submit(&r, &alice, &s);
    snprintf(on_job, sizeof on_job, "afterany:%llu", (unsigned long long)job);
    snprintf(on_array, sizeof on_array, "afterany:%llu", (unsigned long long)array);
    change.dependency = on_job;
    assert_int_equal(do_update(r.core, &alice, array + 9999, &change, r.now_ms, &e), 0);
    change.dependency = on_array;
    assert_int_equal(do_update(r.core, &alice, job, &change, r.now_ms, &e), 0);
    change.dependency = on_job;
    assert_int_equal(do_update(r.core, &alice, array + 10, &change, r.now_ms, &e), -EDEADLK);
    rig_drain(&r);
    rig_done(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_singleton_among_many), cmocka_unit_test(all_are_singletons),
        cmocka_unit_test(ended_in_any_order),       cmocka_unit_test(an_array_waits_as_a_whole),
        cmocka_unit_test(renamed_away),             cmocka_unit_test(search_for_cycles_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
