// Volumes: who may make, use, share and delete them, that none goes while a job has it, and what is kept over replay and
// snapshots.
#include <errno.h>

#include "rig.h"
#include "state.h"

static int give(struct rig *r, const struct actor *who, enum command_type type, const void *body) {
    int rc = rig_command(r->core, who, type, body, r->now_ms, NULL);
    rig_drain(r);
    return rc;
}

static int create(struct rig *r, const struct actor *who, const char *name) {
    struct event_volume m = {.name = name, .at = "/srv/data", .size_bytes = 1 << 20};
    r->core->config.volume_folder = "/srv/volumes";
    if (!who->admin)
        m.at = NULL;
    else
        m.size_bytes = 0;
    return give(r, who, COMMAND_VOLUME_CREATE, &m);
}

static int submit_with(struct rig *r, const struct actor *who, const char *volume, uint64_t *id) {
    const char *argv[] = {"true"}, *volumes[] = {volume};
    struct spec s = {.name = "t", .workdir = "/", .argv = {argv, 1}, .volumes = {volumes, 1}, .hold = true};
    struct command_submit m = {.spec = &s};
    struct command_result out = {0};
    struct error e = {0};
    int rc = core_command(r->core, who, NULL, &(struct command){COMMAND_SUBMIT, &m}, r->now_ms, &out, &e);
    rig_drain(r);
    *id = out.id;
    return rc;
}

static void a_job_keeps_its_volume(void **state) {
    struct rig r;
    rig_init(&r);
    uint64_t job, ignored;
    struct command_volume named = {.name = "data"};
    assert_int_equal(submit_with(&r, &alice, "data:/data", &job), -ENOENT);
    assert_int_equal(create(&r, &alice, "data"), 0);
    assert_int_equal(create(&r, &alice, "data"), -EEXIST);
    assert_int_equal(submit_with(&r, &bob, "data:/data", &ignored), -ENOENT);
    assert_int_equal(submit_with(&r, &bob, "~alice/data:/data", &ignored), -ENOENT);
    uint64_t jobs[1] = {0}, second;
    assert_int_equal(core_volume_jobs(r.core, "~alice/data", jobs, 1), 0);
    assert_int_equal(submit_with(&r, &alice, "data:/data", &job), 0);
    assert_int_equal(submit_with(&r, &alice, "data:/other", &second), 0);
    assert_int_equal(core_volume_jobs(r.core, "~alice/data", jobs, 1), 2);
    assert_int_equal(jobs[0], job);
    assert_int_equal(give(&r, &alice, COMMAND_CANCEL, &(struct command_cancel){.id = second}), 0);
    assert_int_equal(core_volume_jobs(r.core, "~alice/data", jobs, 1), 1);
    rig_assert_same_after_reload(&r);
    assert_int_equal(give(&r, &alice, COMMAND_VOLUME_DELETE, &named), -EBUSY);
    struct command_cancel cancel = {.id = job};
    assert_int_equal(give(&r, &alice, COMMAND_CANCEL, &cancel), 0);
    assert_int_equal(give(&r, &bob, COMMAND_VOLUME_DELETE, &named), -ENOENT);
    named.user = "alice";
    assert_int_equal(give(&r, &bob, COMMAND_VOLUME_DELETE, &named), -ENOENT);
    assert_int_equal(give(&r, &alice, COMMAND_VOLUME_DELETE, &named), 0);
    assert_null(core_volume(r.core, "alice", NULL, "data"));
    rig_assert_same_after_reload(&r);
    rig_done(&r);
}

static void expect_users(struct rig *r, uint64_t first, uint64_t more) {
    uint64_t job = 0, count = core_volume_jobs(r->core, "~alice/data", &job, 1);
    assert_int_equal(job, first);
    assert_int_equal(count, (first != 0) + more);
    rig_assert_same_after_reload(r);
}

// What has a volume is known without a look at the jobs: of an array once, after a change of the job, after a restart.
static void users_of_a_volume_are_counted(void **state) {
    struct rig r;
    rig_init(&r);
    uint64_t first, second;
    const char *none[] = {"/tmp:/tmp"};
    assert_int_equal(create(&r, &alice, "data"), 0);
    expect_users(&r, 0, 0);
    assert_int_equal(submit_with(&r, &alice, "data:/data", &first), 0);
    expect_users(&r, first, 0);
    assert_int_equal(submit_with(&r, &alice, "data:/data", &second), 0);
    expect_users(&r, first, 1);
    struct spec change = {.volumes = {none, 1}};
    schema_give(&spec_schema, &change, &change.volumes);
    assert_int_equal(
        give(&r, &alice, COMMAND_UPDATE, &(struct command_update){.id = first, .change = &change}), 0);
    expect_users(&r, second, 0);
    assert_int_equal(give(&r, &alice, COMMAND_CANCEL, &(struct command_cancel){.id = second}), 0);
    expect_users(&r, 0, 0);
    rig_done(&r);
}

static void shares_say_how_much(void **state) {
    struct rig r;
    rig_init(&r);
    uint64_t job;
    assert_int_equal(create(&r, &alice, "data"), 0);
    struct command_volume share = {.name = "data", .with = "bob", .read_only = true};
    assert_int_equal(give(&r, &alice, COMMAND_VOLUME_SHARE, &share), 0);
    assert_int_equal(submit_with(&r, &bob, "~alice/data:/data", &job), -EPERM);
    assert_int_equal(submit_with(&r, &bob, "~alice/data:/data:ro", &job), 0);
    struct command_volume theirs = {.name = "data", .user = "alice"};
    assert_int_equal(give(&r, &bob, COMMAND_VOLUME_DELETE, &theirs), -EPERM);
    share.read_only = false;
    assert_int_equal(give(&r, &alice, COMMAND_VOLUME_SHARE, &share), 0);
    assert_int_equal(core_volume(r.core, "alice", NULL, "data")->readers.len, 0);
    assert_int_equal(submit_with(&r, &bob, "~alice/data:/data", &job), 0);
    rig_assert_same_after_reload(&r);
    share.revoke = true;
    assert_int_equal(give(&r, &alice, COMMAND_VOLUME_SHARE, &share), 0);
    assert_int_equal(give(&r, &alice, COMMAND_VOLUME_SHARE, &share), -ENOENT);
    assert_int_equal(submit_with(&r, &bob, "~alice/data:/data:ro", &job), -ENOENT);
    rig_assert_same_after_reload(&r);
    rig_done(&r);
}

static void what_means_nothing_is_refused(void **state) {
    struct rig r;
    rig_init(&r);
    struct event_volume m = {.name = "data"};
    assert_int_equal(give(&r, &alice, COMMAND_VOLUME_CREATE, &m), -ENOTSUP);  // there is no folder for them
    r.core->config.volume_folder = "/srv/volumes";
    m.name = "../x";
    assert_int_equal(give(&r, &alice, COMMAND_VOLUME_CREATE, &m), -EINVAL);
    m.name = "data";
    m.at = "/srv";
    assert_int_equal(give(&r, &alice, COMMAND_VOLUME_CREATE, &m), -EPERM);
    m.at = "nfs://server/export";
    assert_int_equal(give(&r, &alice, COMMAND_VOLUME_CREATE, &m), -EPERM);
    m.at = "gs://bucket";
    assert_int_equal(give(&r, &alice, COMMAND_VOLUME_CREATE, &m), -EINVAL);
    m.at = "s3://bucket";
    m.size_bytes = 1;
    assert_int_equal(give(&r, &alice, COMMAND_VOLUME_CREATE, &m), -EINVAL);
    m.size_bytes = 0;
    m.name = "bucket";  // mounted with their own credentials
    assert_int_equal(give(&r, &alice, COMMAND_VOLUME_CREATE, &m), 0);
    m.name = "data";
    m.at = NULL;
    m.project = "none";
    assert_int_equal(give(&r, &alice, COMMAND_VOLUME_CREATE, &m), -ENOENT);
    assert_null(core_volume(r.core, "alice", NULL, "data"));
    rig_done(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_keeps_its_volume),
        cmocka_unit_test(users_of_a_volume_are_counted),
        cmocka_unit_test(shares_say_how_much),
        cmocka_unit_test(what_means_nothing_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
