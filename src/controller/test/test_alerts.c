// Alerts and time: what counts is how long the controller has seen a metric beyond its rule. A controller that stood
// still has seen nothing meanwhile.
#include "../alerts.h"
#include "rig.h"

enum { SECOND = 1000, STALL_MS = 600 * SECOND };

static const char rule[] = "gpu-too-hot", subject[] = "gpu/n1/0/temperature_celsius";  // above 85 for 5 min

static bool is_raised(struct rig *r) {
    return core_alert(r->c.core, rule, subject) != NULL;
}

// So many seconds, with a value at each.
static int64_t pass(struct rig *r, int64_t mono_ms, int seconds, double value) {
    for (int i = 0; i < seconds; i++) {
        alerts_measure(&r->c, subject, value);
        alerts_tick(&r->c, mono_ms += SECOND);
    }
    return mono_ms;
}

static void a_stall_raises_no_alert(void **state) {
    struct rig r;
    rig_open(&r);
    int64_t now_ms = pass(&r, SECOND, 5, 90);
    alerts_tick(&r.c, now_ms += STALL_MS);
    now_ms = pass(&r, now_ms, 5, 90);
    assert_false(is_raised(&r));
    pass(&r, now_ms, 300, 90);
    assert_true(is_raised(&r));
    rig_close(&r);
}

static void a_stall_ends_no_alert(void **state) {
    struct rig r;
    rig_open(&r);
    int64_t now_ms = pass(&r, SECOND, 310, 90);
    assert_true(is_raised(&r));
    alerts_tick(&r.c, now_ms += STALL_MS);
    assert_true(is_raised(&r));
    now_ms = pass(&r, now_ms, 20, 90);
    assert_true(is_raised(&r));
    pass(&r, now_ms, 90, 60);
    assert_false(is_raised(&r));
    rig_close(&r);
}

// One that nobody speaks of any more is over, after as much time as the controller was there to listen.
static void an_alert_without_values_ends(void **state) {
    struct rig r;
    rig_open(&r);
    int64_t now_ms = pass(&r, SECOND, 310, 90);
    for (int i = 0; i < 40; i++)
        alerts_tick(&r.c, now_ms += SECOND);
    assert_false(is_raised(&r));
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stall_raises_no_alert),
        cmocka_unit_test(a_stall_ends_no_alert),
        cmocka_unit_test(an_alert_without_values_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
