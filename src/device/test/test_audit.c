// The judgement over whether a job keeps to its part: what is found, after how long, and above all what
// is not: jobs within their limits, contexts, processes that come and go, old readings.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "device/audit.h"

#define MIB (1ULL << 20)
#define GIB (1ULL << 30)

static struct audit_facts honest(void) {
    return (struct audit_facts){.fresh = true,
                                .granted = true,
                                .limit_bytes = 16 * GIB,
                                .milli = 500,
                                .ledger = true,
                                .ledger_readable = true,
                                .ledger_bytes = 15 * GIB,
                                .ledger_limit_bytes = 16 * GIB,
                                .ledger_milli = 500,
                                .driver_bytes = 15 * GIB,
                                .processes = 4};
}

// The reading at which it was found, 0: never within `count`.
static uint32_t found_after(const struct audit_facts *f, uint32_t count, struct audit_finding *out) {
    struct audit_state s = {0};
    for (uint32_t i = 1; i <= count; i++) {
        *out = gpu_audit_look(&s, f, i * 1000);
        if (out->kind)
            return i;
    }
    return 0;
}

static void honest_jobs_are_left_alone(void **state) {
    struct audit_finding x;
    struct audit_facts f = honest();
    assert_int_equal(found_after(&f, 100, &x), 0);
    f.driver_bytes = f.ledger_bytes + 900 * MIB;  // the shim does not see all, but it is within the limit
    assert_int_equal(found_after(&f, 100, &x), 0);
    f.driver_bytes = f.limit_bytes + 500 * MIB;  // four contexts that grew while the ledger was full
    assert_int_equal(found_after(&f, 100, &x), 0);
    f.ledger_bytes = f.limit_bytes + 3 * GIB / 2;  // more of it, and the ledger says so itself
    f.driver_bytes = f.ledger_bytes + 100 * MIB;
    assert_int_equal(found_after(&f, 100, &x), 0);
    f = honest();
    f.limit_bytes = 0;  // a whole GPU
    f.ledger = f.ledger_readable = false;
    f.driver_bytes = 140 * GIB;
    assert_int_equal(found_after(&f, 100, &x), 0);
}

static void memory_beyond_the_limit_is_found(void **state) {
    struct audit_finding x;
    char text[AUDIT_TEXT_MAX];
    struct audit_facts f = honest();
    f.driver_bytes = 18 * GIB;
    assert_int_equal(found_after(&f, 10, &x), 4);  // 2.5 s after the first
    assert_int_equal(x.kind, AUDIT_BEYOND);
    assert_string_equal(gpu_audit_text(&x, 3, text),
                        "its processes held 18432 MiB of GPU 3 where the job may "
                        "hold 16384 MiB; ask for more with --gpu-memory");
    f.ledger_bytes = 90 * GIB;  // what the job's own file says excuses only so much
    f.driver_bytes = 19 * GIB;
    assert_true(found_after(&f, 10, &x) > 0);
    f.ledger = f.ledger_readable = false;  // a simulated one has none
    f.driver_bytes = 17 * GIB;
    assert_true(found_after(&f, 10, &x) > 0);
}

static void a_moment_is_forgiven(void **state) {
    struct audit_state s = {0};
    struct audit_facts good = honest(), bad = honest(), old = honest();
    bad.driver_bytes = 30 * GIB;
    old.driver_bytes = 30 * GIB;
    old.fresh = false;
    for (int i = 0; i < 50; i++) {
        assert_int_equal(gpu_audit_look(&s, i % 3 == 2 ? &good : &bad, i * 1500).kind, AUDIT_CLEAN);
        assert_int_equal(gpu_audit_look(&s, &old, i * 1500 + 700).kind,
                         AUDIT_CLEAN);  // the same list looked at again
    }
    struct audit_state quick = {0};
    for (int i = 0; i < 20; i++)  // many readings in a short time are one moment, too
        assert_int_equal(gpu_audit_look(&quick, &bad, 1000 + i * 100).kind, AUDIT_CLEAN);
}

static void processes_around_the_shim_are_found(void **state) {
    struct audit_finding x;
    char text[AUDIT_TEXT_MAX];
    const uint32_t pids[] = {4711};
    struct audit_facts f = honest();
    f.driver_bytes = 2 * GIB;
    f.unlisted = pids;
    f.unlisted_count = 1;
    assert_int_equal(found_after(&f, 10, &x), 4);
    assert_int_equal(x.kind, AUDIT_AROUND);
    assert_int_equal(x.pid, 4711);
    assert_non_null(strstr(gpu_audit_text(&x, 0, text), "process 4711 used GPU 0 without the library"));
    f.granted = false;
    f.ledger = false;
    f.limit_bytes = 0;
    assert_int_equal(found_after(&f, 10, &x), 4);
    assert_int_equal(x.kind, AUDIT_STRAY);
}

// Short processes that end one after another are each without a ledger for a moment.
static void processes_that_end_are_no_finding(void **state) {
    struct audit_state s = {0};
    struct audit_facts f = honest();
    for (uint32_t i = 0; i < 200; i++) {
        const uint32_t pids[] = {i, i + 1, 1000 + i};
        f.unlisted = pids;
        f.unlisted_count = 3;
        assert_int_equal(gpu_audit_look(&s, &f, i * 1000).kind, AUDIT_CLEAN);
    }
    // Among more of them than are followed, the one that stays is found all the same.
    uint32_t found = 0;
    for (uint32_t i = 0; i < 100 && !found; i++) {
        uint32_t pids[30];
        for (uint32_t k = 0; k < 30; k++)
            pids[k] = k == i % 30 ? 77 : 5000 + i * 30 + k;
        f.unlisted = pids;
        f.unlisted_count = 30;
        found = gpu_audit_look(&s, &f, 1000000 + i * 1000).pid;
    }
    assert_int_equal(found, 77);
}

static void a_changed_ledger_is_found(void **state) {
    struct audit_finding x;
    struct audit_facts f = honest();
    f.ledger_limit_bytes = 20 * GIB;
    assert_int_equal(found_after(&f, 10, &x), 4);
    assert_int_equal(x.kind, AUDIT_TAMPERED);
    f = honest();
    f.ledger_milli = 0;
    assert_true(found_after(&f, 10, &x) > 0);
    f = honest();
    f.ledger_readable = false;
    assert_true(found_after(&f, 10, &x) > 0);
    f.processes = 0;  // nobody uses the GPU: nothing to hold it to
    assert_int_equal(found_after(&f, 10, &x), 0);
    f = honest();
    f.ledger_limit_bytes += MIB;  // rounding
    f.ledger_milli = 400;         // less is the agent's or the job's own affair
    assert_int_equal(found_after(&f, 10, &x), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(honest_jobs_are_left_alone),        cmocka_unit_test(memory_beyond_the_limit_is_found),
        cmocka_unit_test(a_moment_is_forgiven),              cmocka_unit_test(processes_around_the_shim_are_found),
        cmocka_unit_test(processes_that_end_are_no_finding), cmocka_unit_test(a_changed_ledger_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
