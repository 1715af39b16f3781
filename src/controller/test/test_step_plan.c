// How steps are packed into a job: whole nodes, exactly, beside others; CPUs, memory, GPUs.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/text.h"
#include "../step_plan.h"

struct fixture {
    struct arena arena;
    struct step_part parts[2];
};

static void make(struct fixture *f, uint32_t cpus, uint32_t gpus) {
    struct gpu_grant grants[8];
    for (uint32_t i = 0; i < gpus; i++)
        grants[i] = (struct gpu_grant){.index = i, .milli = 1000};
    struct part a = {.node = "n1", .cpus = cpus, .memory_bytes = 1000, .gpus = {grants, gpus}}, b = a;
    b.node = "n2";
    step_part_init(&f->parts[0], &a, &f->arena);
    step_part_init(&f->parts[1], &b, &f->arena);
}

static int plan(struct fixture *f, const struct step_need *n, struct step_shares *out) {
    struct error e = {0};
    return step_plan(n, f->parts, 2, &f->arena, out, &e);
}

static void whole_steps_exclude_each_other(void **state) {
    struct fixture f = {0};
    struct step_shares one, two;
    make(&f, 4, 0);
    struct step_need n = {.tasks = 2, .whole = true};
    assert_int_equal(plan(&f, &n, &one), 0);
    assert_int_equal(one.len, 2);
    assert_int_equal(one.at[0].cpu_count, 4);
    assert_int_equal(one.at[1].first_rank, 1);
    step_take(f.parts, &one);
    assert_int_equal(plan(&f, &n, &two), -EAGAIN);
    n.whole = false;
    assert_int_equal(plan(&f, &n, &two), -EAGAIN);
    n.overlap = true;
    assert_int_equal(plan(&f, &n, &two), 0);
    assert_int_equal(two.at[0].cpu_count, 0);
    step_release(f.parts, &one);
    assert_int_equal(f.parts[0].cpus_held, 0);
    arena_done(&f.arena);
}

static void exact_steps_fill_up(void **state) {
    struct fixture f = {0};
    struct step_shares s[4], no;
    make(&f, 4, 0);
    struct step_need n = {.tasks = 2, .cpus_per_task = 1};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(plan(&f, &n, &s[i]), 0);
        assert_int_equal(s[i].len, 1);
        assert_int_equal(s[i].at[0].part, i / 2);
        assert_int_equal(s[i].at[0].cpus[0], i % 2 ? 2 : 0);
        step_take(f.parts, &s[i]);
    }
    assert_int_equal(plan(&f, &n, &no), -EAGAIN);
    step_release(f.parts, &s[1]);
    assert_int_equal(plan(&f, &n, &no), 0);
    assert_int_equal(no.at[0].cpus[0], 2);
    arena_done(&f.arena);
}

static void what_can_never_be_is_refused(void **state) {
    struct fixture f = {0};
    struct step_shares s;
    make(&f, 4, 1);
    assert_int_equal(plan(&f, &(struct step_need){.tasks = 9, .cpus_per_task = 1}, &s), -E2BIG);
    assert_int_equal(plan(&f, &(struct step_need){.tasks = 3, .nodes = 3}, &s), -E2BIG);
    assert_int_equal(plan(&f, &(struct step_need){.tasks = 1, .nodes = 2}, &s), -EINVAL);
    assert_int_equal(plan(&f, &(struct step_need){.tasks = 1, .memory_per_node_bytes = 1001}, &s), -E2BIG);
    assert_int_equal(plan(&f, &(struct step_need){.tasks = 1, .gpus_milli = 3000}, &s), -E2BIG);
    assert_int_equal(plan(&f, &(struct step_need){.tasks = 9, .whole = true, .overcommit = true}, &s), 0);
    arena_done(&f.arena);
}

static void tasks_are_spread(void **state) {
    struct fixture f = {0};
    struct step_shares s;
    make(&f, 4, 0);
    assert_int_equal(plan(&f, &(struct step_need){.tasks = 5, .nodes = 2, .whole = true}, &s), 0);
    assert_int_equal(s.at[0].tasks, 4);
    assert_int_equal(s.at[1].tasks, 1);
    assert_int_equal(s.at[1].first_rank, 4);
    assert_int_equal(plan(&f, &(struct step_need){.tasks = 4, .nodes = 2, .tasks_per_node = 2, .whole = true}, &s), 0);
    assert_int_equal(s.at[0].tasks, 2);
    assert_int_equal(plan(&f, &(struct step_need){.tasks = 9, .nodes = 2, .whole = true, .overcommit = true}, &s), 0);
    assert_int_equal(s.at[0].tasks, 5);  // no CPUs bound it: evenly
    assert_int_equal(s.at[1].tasks, 4);
    const char *only[] = {"n2"};
    assert_int_equal(plan(&f, &(struct step_need){.tasks = 1, .names = only, .name_count = 1}, &s), 0);
    assert_int_equal(s.at[0].part, 1);
    arena_done(&f.arena);
}

static void gpus_are_taken_and_given_back(void **state) {
    struct fixture f = {0};
    struct step_shares a, b, c;
    make(&f, 8, 2);
    struct step_need n = {.tasks = 1, .cpus_per_task = 1, .gpus_milli = 1000};
    assert_int_equal(plan(&f, &n, &a), 0);
    assert_int_equal(a.at[0].gpus[0].index, 0);
    step_take(f.parts, &a);
    assert_int_equal(plan(&f, &n, &b), 0);
    assert_int_equal(b.at[0].gpus[0].index, 1);
    step_take(f.parts, &b);
    step_release(f.parts, &a);
    assert_int_equal(plan(&f, &n, &c), 0);
    assert_int_equal(c.at[0].gpus[0].index, 0);
    struct step_need each = {.tasks = 2, .cpus_per_task = 1, .gpus_per_task_milli = 1000};
    assert_int_equal(plan(&f, &each, &c), 0);
    assert_int_equal(c.len, 2);  // one is left on n1, the other task goes to n2
    struct step_need half = {.tasks = 1, .cpus_per_task = 1, .gpus_milli = 500};
    assert_int_equal(plan(&f, &half, &c), 0);
    assert_int_equal(c.at[0].gpus[0].milli, 500);
    arena_done(&f.arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_steps_exclude_each_other), cmocka_unit_test(exact_steps_fill_up),
        cmocka_unit_test(what_can_never_be_is_refused),   cmocka_unit_test(tasks_are_spread),
        cmocka_unit_test(gpus_are_taken_and_given_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
