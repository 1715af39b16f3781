// A GPU goes out of use with a reason and comes back.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "device/health.h"

static struct gpu_reading reading(uint64_t energy_mj) {
    return (struct gpu_reading){.sample.energy_mj = energy_mj};
}

static struct gpu_reading with_xid(uint64_t energy_mj, uint32_t xid) {
    struct gpu_reading r = reading(energy_mj);
    r.xids[0] = xid;
    r.xid_count = 1;
    return r;
}

static void test_reset_needed(void **state) {
    struct gpu_health h = {0};
    struct gpu_reading r = reading(100), x = with_xid(110, 79);
    assert_false(gpu_health_update(&h, &r, 1000));
    assert_true(gpu_health_update(&h, &x, 2000));
    assert_true(h.unhealthy);
    assert_string_equal(h.reason, "XID 79: fell off the bus; reset the GPU");
    r = reading(120);
    assert_false(gpu_health_update(&h, &r, 2000 + 10 * HEALTH_QUARANTINE_MS));  // time alone does not heal it
    assert_true(h.unhealthy);
    r = reading(5);  // the counter starts anew: it was reset
    assert_true(gpu_health_update(&h, &r, 9000000));
    assert_false(h.unhealthy);
    assert_string_equal(h.reason, "");
}

static void test_programs_are_not_blamed(void **state) {
    struct gpu_health h = {0};
    static const uint32_t codes[] = {13, 31, 43, 45, 63, 94};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        struct gpu_reading x = with_xid(100, codes[i]);
        assert_false(gpu_health_update(&h, &x, 1000));
        assert_int_equal(h.xid, codes[i]);
    }
}

static void test_quarantine(void **state) {
    struct gpu_health h = {0};
    struct gpu_reading x = with_xid(100, 777), r = reading(200);
    assert_true(gpu_health_update(&h, &x, 1000));
    assert_string_equal(h.reason, "XID 777: error reported by the driver");
    assert_false(gpu_health_update(&h, &r, 1000 + HEALTH_QUARANTINE_MS - 1));
    assert_true(gpu_health_update(&h, &r, 1000 + HEALTH_QUARANTINE_MS));
    assert_false(h.unhealthy);
}

static void test_memory_errors(void **state) {
    struct gpu_health h = {0};
    struct gpu_reading r = reading(100);
    r.sample.ecc_errors = 5;  // from before the agent came
    assert_false(gpu_health_update(&h, &r, 1000));
    r.sample.ecc_errors = 7;
    assert_true(gpu_health_update(&h, &r, 2000));
    assert_string_equal(h.reason, "2 new uncorrected memory errors");
    assert_true(gpu_health_update(&h, &r, 2000 + HEALTH_QUARANTINE_MS));
    assert_false(h.unhealthy);
    r.remap_pending = true;
    assert_true(gpu_health_update(&h, &r, 3000000));
    assert_string_equal(h.reason, "memory rows wait to be replaced; reset the GPU");
    r.remap_pending = false;
    assert_true(gpu_health_update(&h, &r, 3001000));
    assert_false(h.unhealthy);
    r.remap_failed = true;
    assert_true(gpu_health_update(&h, &r, 3002000));
    assert_true(h.unhealthy);
}

static void test_unreadable(void **state) {
    struct gpu_health h = {0};
    struct gpu_reading bad = {.error = -EIO}, good = reading(100);
    snprintf(bad.error_text, sizeof bad.error_text, "Timeout");
    assert_true(gpu_health_update(&h, &bad, 1000));
    assert_string_equal(h.reason, "cannot be read: Timeout");
    for (int i = 1; i < HEALTH_GOOD_READINGS; i++)
        assert_false(gpu_health_update(&h, &good, 1000 + i * 1000));
    assert_true(gpu_health_update(&h, &good, 1000 + HEALTH_GOOD_READINGS * 1000));
    assert_false(h.unhealthy);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reset_needed), cmocka_unit_test(test_programs_are_not_blamed),
        cmocka_unit_test(test_quarantine),   cmocka_unit_test(test_memory_errors),
        cmocka_unit_test(test_unreadable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
