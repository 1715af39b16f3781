// Splitting one GPU among jobs: the figures of simple cases, and that nothing is made up in any case.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rand.h"
#include "../split.h"

static void test_by_use(void **state) {
    struct split_job j[] = {{.milli = 500, .measured = true, .use_milli = 300},
                            {.milli = 500, .measured = true, .use_milli = 100}};
    struct split_device d = {.use_known = true,
                             .use_milli = 400,
                             .power_mw = 500000,
                             .energy_mj = 500000,
                             .idle_power_mw = 100000,
                             .span_ms = 1000};
    gpu_split(&d, j, 2);
    assert_int_equal(j[0].energy_mj, 50000 + 300000);  // half of the idling, three quarters of the work
    assert_int_equal(j[1].energy_mj, 50000 + 100000);
    assert_int_equal(j[0].power_mw, 350000);
}

static void test_idle_holder_pays_its_share(void **state) {
    struct split_job j[] = {{.milli = 250, .measured = true}, {.milli = 500, .measured = true}};
    struct split_device d = {.use_known = true, .energy_mj = 80000, .power_mw = 80000, .span_ms = 1000};
    gpu_split(&d, j, 2);
    assert_int_equal(j[0].energy_mj, 20000);
    assert_int_equal(j[1].energy_mj, 40000);  // a quarter is nobody's
}

static void test_foreign_use_is_not_the_jobs(void **state) {
    struct split_job j[] = {{.milli = 500, .measured = true, .use_milli = 100}};
    struct split_device d = {
        .use_known = true, .use_milli = 400, .foreign_milli = 300, .energy_mj = 400, .span_ms = 1000};
    gpu_split(&d, j, 1);
    assert_int_equal(j[0].energy_mj, 100);
}

static void test_unmeasured_share_the_rest(void **state) {
    struct split_job j[] = {{.milli = 500, .measured = true, .use_milli = 200}, {.milli = 250}, {.milli = 250}};
    struct split_device d = {.use_known = true, .use_milli = 600};
    gpu_split(&d, j, 3);
    assert_int_equal(j[0].use_milli, 200);
    assert_int_equal(j[1].use_milli, 200);
    assert_int_equal(j[2].use_milli, 200);
}

static void test_overlapping_measurements(void **state) {
    struct split_job j[] = {{.milli = 500, .measured = true, .use_milli = 680},
                            {.milli = 250, .measured = true, .use_milli = 680},
                            {.milli = 250}};
    struct split_device d = {.use_known = true, .use_milli = 1000, .energy_mj = 1000, .span_ms = 1000};
    gpu_split(&d, j, 3);
    assert_int_equal(j[0].use_milli, 500);
    assert_int_equal(j[1].use_milli, 500);
    assert_int_equal(j[2].use_milli, 0);
    assert_int_equal(j[0].energy_mj, 500);
}

static void test_never_more_than_there_was(void **state) {
    struct rand r;
    rand_seed(&r, 1);
    for (int round = 0; round < 20000; round++) {
        struct split_job j[8];
        uint32_t n = (uint32_t)rand_below(&r, 9);
        for (uint32_t i = 0; i < n; i++)
            j[i] = (struct split_job){.milli = (uint32_t)rand_below(&r, 1001),
                                      .measured = rand_below(&r, 2),
                                      .use_milli = (uint32_t)rand_below(&r, 2000)};
        struct split_device d = {.use_known = rand_below(&r, 2),
                                 .use_milli = (uint32_t)rand_below(&r, 1001),
                                 .foreign_milli = (uint32_t)rand_below(&r, 1001),
                                 .power_mw = rand_below(&r, 1000000),
                                 .energy_mj = rand_u64(&r) >> rand_below(&r, 64),
                                 .idle_power_mw = rand_below(&r, 200000),
                                 .span_ms = (int64_t)rand_below(&r, 60000)};
        gpu_split(&d, j, n);
        __uint128_t energy = 0, power = 0;
        for (uint32_t i = 0; i < n; i++) {
            energy += j[i].energy_mj;
            power += j[i].power_mw;
            assert_true(j[i].use_milli <= 1000);
        }
        assert_true(energy <= d.energy_mj);
        assert_true(power <= d.power_mw);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_use),
        cmocka_unit_test(test_idle_holder_pays_its_share),
        cmocka_unit_test(test_foreign_use_is_not_the_jobs),
        cmocka_unit_test(test_unmeasured_share_the_rest),
        cmocka_unit_test(test_overlapping_measurements),
        cmocka_unit_test(test_never_more_than_there_was),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
