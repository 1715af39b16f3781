// Services: who may change them, how revisions follow each other, what their jobs become, and what is kept over replay
// and snapshots.
#include <errno.h>

#include "rig.h"

static int give(struct rig *r, const struct actor *who, enum command_type type, const void *body) {
    int rc = rig_command(r->core, who, type, body, r->now_ms, NULL);
    core_services_reconcile(r->core, r->now_ms, NULL, NULL);
    rig_drain(r);
    rig_assert_same_after_reload(r);
    return rc;
}

static struct spec replica(void) {
    static const char *argv[] = {"model"};
    return (struct spec){.name = "x", .workdir = "/", .argv = {argv, 1}};
}

static int create(struct rig *r, const struct actor *who, const char *name, uint32_t min, uint32_t max) {
    struct spec s = replica();
    struct service_revision v = {.spec = &s};
    struct event_service m = {.name = name, .replicas_min = min, .replicas_max = max, .revisions = {&v, 1}};
    return give(r, who, COMMAND_SERVICE_CREATE, &m);
}

static int update(struct rig *r, const struct actor *who, const char *name, uint32_t canary) {
    struct spec s = replica();
    struct service_revision v = {.spec = &s};
    struct event_service m = {.name = name, .canary = canary, .revisions = {&v, 1}};
    return give(r, who, COMMAND_SERVICE_UPDATE, &m);
}

static int act(struct rig *r, const struct actor *who, enum command_type type, uint32_t revision,
               uint32_t replicas) {
    struct command_service m = {.user = "alice", .name = "model", .revision = revision, .replicas = replicas};
    return give(r, who, type, &m);
}

static const struct event_service *model(const struct rig *r) {
    return core_service(r->core, "alice", "model");
}

static uint32_t workers(const struct rig *r, uint32_t revision) {
    struct job_view v;
    uint64_t job = core_service_job(r->core, model(r)->id, revision);
    return job && core_view(r->core, job, &v) ? v.workers_max : 0;
}

static void expect(const struct rig *r, uint32_t at, uint32_t number, enum revision_state state,
                   uint32_t weight) {
    const struct event_service *s = model(r);
    assert_true(at < s->revisions.len);
    assert_int_equal(s->revisions.at[at].number, number);
    assert_int_equal(s->revisions.at[at].state, state);
    assert_int_equal(s->revisions.at[at].weight, weight);
    assert_non_null(s->revisions.at[at].spec);
}

static void a_service_has_a_job_with_its_replicas(void **state) {
    struct rig r;
    rig_init(&r);
    assert_int_equal(create(&r, &alice, "Model", 0, 4), -EINVAL);
    assert_int_equal(create(&r, &alice, "model", 5, 4), -EINVAL);
    assert_int_equal(create(&r, &alice, "model", 0, 4), 0);
    assert_int_equal(create(&r, &alice, "model", 0, 4), -EEXIST);
    assert_int_equal(create(&r, &bob, "model", 0, 4), 0);  // names are each user's own
    assert_int_equal(workers(&r, 1), 1);
    uint64_t job = core_service_job(r.core, model(&r)->id, 1);
    assert_int_equal(act(&r, &bob, COMMAND_SERVICE_SCALE, 1, 3), -ENOENT);
    assert_int_equal(act(&r, &alice, COMMAND_SERVICE_SCALE, 1, 3), 0);
    assert_int_equal(workers(&r, 1), 3);
    assert_int_equal(core_service_job(r.core, model(&r)->id, 1), job);
    act(&r, &alice, COMMAND_SERVICE_SCALE, 1, 0);  // not before it was seen ready once
    assert_int_equal(workers(&r, 1), 1);
    act(&r, &root, COMMAND_SERVICE_READY, 1, 0);
    expect(&r, 0, 1, REVISION_SERVING, 100);
    act(&r, &root, COMMAND_SERVICE_SCALE, 1, 0);
    assert_int_equal(core_service_job(r.core, model(&r)->id, 1), 0);
    act(&r, &root, COMMAND_SERVICE_SCALE, 1, 9);  // no more than its maximum
    assert_int_equal(workers(&r, 1), 4);
    assert_int_not_equal(core_service_job(r.core, model(&r)->id, 1), job);
    job = core_service_job(r.core, model(&r)->id, 1);
    assert_int_equal(act(&r, &alice, COMMAND_SERVICE_DELETE, 0, 0), 0);
    assert_null(model(&r));
    assert_false(core_has_job(r.core, job));  // it waited, so it is gone at once
    rig_done(&r);
}

static void a_job_that_ends_is_submitted_again_after_a_pause(void **state) {
    struct rig r;
    rig_init(&r);
    assert_int_equal(create(&r, &alice, "model", 1, 1), 0);
    uint64_t job = core_service_job(r.core, model(&r)->id, 1);
    struct command_cancel cancel = {.id = job};
    assert_int_equal(give(&r, &alice, COMMAND_CANCEL, &cancel), 0);
    assert_int_equal(core_service_job(r.core, model(&r)->id, 1), 0);
    assert_true(*core_service_problem(r.core, model(&r)->id));
    int64_t again = core_services_reconcile(r.core, r.now_ms, NULL, NULL);
    assert_true(again > r.now_ms && again <= r.now_ms + 5000);
    r.now_ms = again;
    core_services_reconcile(r.core, r.now_ms, NULL, NULL);
    rig_drain(&r);
    assert_true(core_service_job(r.core, model(&r)->id, 1) > job);
    rig_done(&r);
}

static void an_update_takes_over_when_it_is_ready(void **state) {
    struct rig r;
    rig_init(&r);
    assert_int_equal(create(&r, &alice, "model", 2, 4), 0);
    act(&r, &root, COMMAND_SERVICE_READY, 1, 0);
    assert_int_equal(update(&r, &bob, "model", 0), -ENOENT);
    assert_int_equal(update(&r, &alice, "model", 0), 0);
    expect(&r, 0, 1, REVISION_SERVING, 100);
    expect(&r, 1, 2, REVISION_STARTING, 0);
    assert_int_equal(workers(&r, 1), 2);
    assert_int_equal(workers(&r, 2), 2);
    uint64_t old = core_service_job(r.core, model(&r)->id, 1);
    act(&r, &root, COMMAND_SERVICE_READY, 2, 0);
    expect(&r, 0, 1, REVISION_RETIRING, 0);
    expect(&r, 1, 2, REVISION_SERVING, 100);
    assert_true(core_has_job(r.core, old));  // it still answers what it took
    act(&r, &root, COMMAND_SERVICE_RETIRED, 1, 0);
    assert_int_equal(model(&r)->revisions.len, 1);
    assert_false(core_has_job(r.core, old));
    expect(&r, 0, 2, REVISION_SERVING, 100);
    rig_done(&r);
}

static void a_canary_gets_its_part(void **state) {
    struct rig r;
    rig_init(&r);
    assert_int_equal(create(&r, &alice, "model", 1, 4), 0);
    act(&r, &root, COMMAND_SERVICE_READY, 1, 0);
    assert_true(act(&r, &alice, COMMAND_SERVICE_PROMOTE, 0, 0) < 0);
    assert_int_equal(update(&r, &alice, "model", 10), 0);
    act(&r, &root, COMMAND_SERVICE_READY, 2, 0);
    expect(&r, 0, 1, REVISION_SERVING, 90);
    expect(&r, 1, 2, REVISION_SERVING, 10);
    assert_int_equal(act(&r, &alice, COMMAND_SERVICE_ROLLBACK, 0, 0), 0);
    expect(&r, 0, 1, REVISION_SERVING, 100);
    expect(&r, 1, 2, REVISION_RETIRING, 0);
    assert_int_equal(update(&r, &alice, "model", 25), 0);
    act(&r, &root, COMMAND_SERVICE_READY, 3, 0);
    expect(&r, 2, 3, REVISION_SERVING, 25);
    assert_int_equal(act(&r, &alice, COMMAND_SERVICE_PROMOTE, 0, 0), 0);
    expect(&r, 0, 1, REVISION_RETIRING, 0);
    expect(&r, 2, 3, REVISION_SERVING, 100);
    rig_done(&r);
}

static void tokens_are_kept_and_revoked(void **state) {
    struct rig r;
    rig_init(&r);
    assert_int_equal(create(&r, &alice, "model", 0, 1), 0);
    struct command_service_token t = {
        .user = "alice", .name = "model", .id = "0123456789abcdef", .hash = "h", .label = "phone"};
    assert_int_equal(give(&r, &bob, COMMAND_SERVICE_TOKEN_SET, &t), -ENOENT);
    assert_int_equal(give(&r, &alice, COMMAND_SERVICE_TOKEN_SET, &t), 0);
    assert_int_equal(give(&r, &alice, COMMAND_SERVICE_TOKEN_SET, &t), -EEXIST);
    assert_string_equal(core_service_token(r.core, model(&r)->id, t.id)->label, "phone");
    act(&r, &root, COMMAND_SERVICE_READY, 1, 0);  // other changes leave tokens as they are
    assert_non_null(core_service_token(r.core, model(&r)->id, t.id));
    assert_int_equal(give(&r, &alice, COMMAND_SERVICE_TOKEN_REVOKE, &t), 0);
    assert_int_equal(give(&r, &alice, COMMAND_SERVICE_TOKEN_REVOKE, &t), -ENOENT);
    assert_null(core_service_token(r.core, model(&r)->id, t.id));
    rig_done(&r);
}

static void settings_change_alone(void **state) {
    struct rig r;
    rig_init(&r);
    assert_int_equal(create(&r, &alice, "model", 0, 4), 0);
    struct event_service m = {.name = "model", .target = 3, .replicas_max = 2, .replicas_min = 2};
    assert_int_equal(give(&r, &alice, COMMAND_SERVICE_UPDATE, &m), 0);
    assert_int_equal(model(&r)->target, 3);
    assert_int_equal(model(&r)->limit, 6);
    assert_int_equal(model(&r)->revisions.len, 1);
    act(&r, &root, COMMAND_SERVICE_READY, 1, 0);
    assert_int_equal(give(&r, &alice, COMMAND_SERVICE_UPDATE, &m), 0);
    assert_int_equal(workers(&r, 1), 2);
    m = (struct event_service){.name = "model", .replicas_min = 9};
    assert_int_equal(give(&r, &alice, COMMAND_SERVICE_UPDATE, &m), -EINVAL);
    rig_done(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_service_has_a_job_with_its_replicas),
        cmocka_unit_test(a_job_that_ends_is_submitted_again_after_a_pause),
        cmocka_unit_test(an_update_takes_over_when_it_is_ready),
        cmocka_unit_test(a_canary_gets_its_part),
        cmocka_unit_test(tokens_are_kept_and_revoked),
        cmocka_unit_test(settings_change_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
