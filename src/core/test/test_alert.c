// Alerts: who may set and acknowledge them, what is kept over replay and snapshots, what is told.
#include <errno.h>

#include "model/alert.h"
#include "rig.h"

static int give(struct rig *r, const struct actor *who, enum command_type type, const void *body) {
    int rc = rig_command(r->core, who, type, body, r->now_ms, NULL);
    rig_drain(r);
    return rc;
}

static const struct alert_rule hot = {.name = "hot",
                                      .metric = "gpu/*/*/temperature_celsius",
                                      .value = 85,
                                      .for_s = 120,
                                      .to = "ops@example.org"};
static const struct command_alert gpu = {
    .rule = "hot", .subject = "gpu/n1/0/temperature_celsius", .value = 91.5};

static void rules_are_checked_and_kept(void **state) {
    struct rig r;
    rig_init(&r);
    assert_int_equal(give(&r, &alice, COMMAND_ALERT_SET, &hot), -EPERM);
    assert_int_equal(give(&r, &root, COMMAND_ALERT_SET, &hot), 0);
    uint64_t seq = core_seq(r.core);
    assert_int_equal(give(&r, &root, COMMAND_ALERT_SET, &hot), 0);  // as it is
    assert_int_equal(core_seq(r.core), seq);
    struct alert_rule bad[] = {hot, hot, hot, hot};
    bad[0].metric = "temperature";
    bad[1].metric = "gpu/*/x y";
    bad[2].for_s = ALERT_FOR_MAX_S + 1;
    bad[3].to = "nobody here";
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_true(give(&r, &root, COMMAND_ALERT_SET, &bad[i]) < 0);
    struct alert_rule zero = {.name = "zero", .metric = "cluster/gpus", .when = ALERT_BELOW};
    assert_int_equal(give(&r, &root, COMMAND_ALERT_SET, &zero), 0);
    rig_assert_same_after_reload(&r);
    assert_true(core_alert_rule(r.core, "zero")->value == 0 && core_alert_rule(r.core, "hot")->value == 85);
    assert_int_equal(give(&r, &root, COMMAND_ALERT_DELETE, &(struct command_alert){.rule = "zero"}), 0);
    assert_int_equal(give(&r, &root, COMMAND_ALERT_DELETE, &(struct command_alert){.rule = "zero"}), -ENOENT);
    assert_null(core_alert_rule(r.core, "zero"));
    rig_assert_same_after_reload(&r);
    rig_done(&r);
}

static void there_is_an_end_to_rules(void **state) {
    struct rig r;
    char name[16];
    struct alert_rule rule = hot;
    rule.name = name;
    rig_init(&r);
    for (int i = 0; i < ALERT_RULES_MAX; i++) {
        snprintf(name, sizeof name, "rule%d", i);
        assert_int_equal(give(&r, &root, COMMAND_ALERT_SET, &rule), 0);
    }
    rule.value = 1;  // changing one needs no room
    assert_int_equal(give(&r, &root, COMMAND_ALERT_SET, &rule), 0);
    assert_int_equal(give(&r, &root, COMMAND_ALERT_SET, &hot), -E2BIG);
    rig_done(&r);
}

static void acknowledgements_last_as_long_as_the_alert(void **state) {
    struct rig r;
    rig_init(&r);
    struct command_alert ack = gpu;
    ack.comment = "fan ordered";
    assert_int_equal(give(&r, &root, COMMAND_ALERT_ACK, &ack), -ENOENT);  // nothing to acknowledge yet
    assert_int_equal(give(&r, &root, COMMAND_ALERT_RAISE, &gpu), 0);
    int64_t raised_ms = r.now_ms;
    r.now_ms += 1000;
    assert_int_equal(give(&r, &root, COMMAND_ALERT_RAISE, &gpu), 0);  // it holds already
    assert_int_equal(give(&r, &alice, COMMAND_ALERT_ACK, &ack), -EPERM);
    assert_int_equal(give(&r, &root, COMMAND_ALERT_ACK, &ack), 0);
    rig_assert_same_after_reload(&r);
    const struct event_alert *a = core_alert(r.core, gpu.rule, gpu.subject);
    assert_string_equal(a->comment, "fan ordered");
    assert_true(a->value == 91.5 && a->raised_ms == raised_ms && a->acknowledged_ms == r.now_ms);
    assert_int_equal(give(&r, &root, COMMAND_ALERT_CLEAR, &gpu), 0);
    assert_null(core_alert(r.core, gpu.rule, gpu.subject));
    assert_int_equal(give(&r, &root, COMMAND_ALERT_RAISE, &gpu), 0);
    assert_null(core_alert(r.core, gpu.rule, gpu.subject)->by);  // a new one
    rig_assert_same_after_reload(&r);
    rig_done(&r);
}

static void alerts_go_with_their_rule(void **state) {
    struct rig r;
    rig_init(&r);
    assert_int_equal(give(&r, &root, COMMAND_ALERT_SET, &hot), 0);
    assert_int_equal(give(&r, &root, COMMAND_ALERT_RAISE, &gpu), 0);
    struct alert_rule other = hot;
    other.value = 95;
    assert_int_equal(give(&r, &root, COMMAND_ALERT_SET, &other), 0);  // measured anew
    assert_null(core_alert(r.core, gpu.rule, gpu.subject));
    assert_int_equal(give(&r, &root, COMMAND_ALERT_RAISE, &gpu), 0);
    assert_int_equal(give(&r, &root, COMMAND_ALERT_DELETE, &(struct command_alert){.rule = "hot"}), 0);
    assert_null(core_alert(r.core, gpu.rule, gpu.subject));
    for (int i = 0; i <= ALERTS_MAX; i++) {
        char subject[32];
        snprintf(subject, sizeof subject, "gpu/n1/%d/x", i);
        assert_int_equal(
            give(&r, &root, COMMAND_ALERT_RAISE, &(struct command_alert){.rule = "hot", .subject = subject}),
            i < ALERTS_MAX ? 0 : -E2BIG);
    }
    rig_assert_same_after_reload(&r);
    rig_done(&r);
}

static void patterns(void **state) {
    assert_true(alert_metric_matches("gpu/*/*/temperature_celsius", "gpu/n1/0/temperature_celsius"));
    assert_true(alert_metric_matches("cluster/gpus", "cluster/gpus"));
    const char *other[] = {"gpu/n1/0/power_watts", "gpu/n1/temperature_celsius",
                           "gpu/n1/0/1/temperature_celsius", "gpu/n1/0/temperature_celsiusx", "gpu/n1/0"};
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        assert_false(alert_metric_matches("gpu/*/*/temperature_celsius", other[i]));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_are_checked_and_kept), cmocka_unit_test(there_is_an_end_to_rules),
        cmocka_unit_test(acknowledgements_last_as_long_as_the_alert),
        cmocka_unit_test(alerts_go_with_their_rule), cmocka_unit_test(patterns)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
