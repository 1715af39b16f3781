// Drafts, templates and views: whose they are, replay and snapshots, tokens of one project.
#include <errno.h>

#include "rig.h"

static int give(struct rig *r, const struct actor *who, enum command_type type, const struct event_saved *s) {
    struct error e = {0};
    int rc = rig_command(r->core, who, type, s, r->now_ms, &e);
    rig_drain(r);
    return rc;
}

static void drafts_are_kept_and_replaced(void **state) {
    struct rig r;
    struct spec spec = {.name = "train", .gpus_milli = 2000, .user = "root", .uid = 7};
    struct event_saved d = {.kind = SAVED_DRAFT, .name = "d", .spec = &spec, .script = "one"};
    rig_init(&r);
    assert_int_equal(give(&r, &alice, COMMAND_SAVED_SET, &d), 0);
    assert_int_equal(give(&r, &bob, COMMAND_SAVED_SET, &d), 0);
    rig_assert_same_after_reload(&r);
    r.now_ms += 1000;
    d.script = "two";
    assert_int_equal(give(&r, &alice, COMMAND_SAVED_SET, &d), 0);
    assert_int_equal(core_saved(r.core, SAVED_DRAFT, "alice", NULL, "d")->set_ms, r.now_ms);
    assert_int_equal(give(&r, &alice, COMMAND_SAVED_SET, &d),
                     0);  // within the same millisecond: another version
    const struct event_saved *s = core_saved(r.core, SAVED_DRAFT, "alice", NULL, "d");
    assert_non_null(s);
    assert_string_equal(s->script, "two");
    assert_int_equal(s->set_ms, r.now_ms + 1);
    assert_int_equal(s->spec->gpus_milli, 2000);
    assert_null(s->spec->user);
    assert_int_equal(s->spec->uid, 0);
    assert_string_equal(core_saved(r.core, SAVED_DRAFT, "bob", NULL, "d")->script, "one");
    assert_false(core_saved_visible(r.core, &bob, s));
    assert_false(core_saved_visible(r.core, &root, s));
    rig_assert_same_after_reload(&r);
    assert_int_equal(give(&r, &bob, COMMAND_SAVED_DELETE, &d), 0);
    assert_int_equal(give(&r, &bob, COMMAND_SAVED_DELETE, &d), -ENOENT);
    assert_non_null(core_saved(r.core, SAVED_DRAFT, "alice", NULL, "d"));
    assert_int_equal(give(&r, &alice, COMMAND_SAVED_DELETE, &d), 0);
    rig_assert_same_after_reload(&r);
    rig_done(&r);
}

static void kinds_have_names_of_their_own(void **state) {
    struct rig r;
    struct spec spec = {0};
    rig_init(&r);
    struct event_saved s = {.kind = SAVED_VIEW, .name = "x", .query = "mine=1"};
    assert_int_equal(give(&r, &alice, COMMAND_SAVED_SET, &s), 0);
    s = (struct event_saved){.kind = SAVED_TEMPLATE, .name = "x", .spec = &spec};
    assert_int_equal(give(&r, &alice, COMMAND_SAVED_SET, &s), 0);
    s.kind = SAVED_DRAFT;
    assert_int_equal(give(&r, &alice, COMMAND_SAVED_SET, &s), 0);
    assert_int_equal(give(&r, &alice, COMMAND_SAVED_DELETE, &s), 0);
    assert_non_null(core_saved(r.core, SAVED_VIEW, "alice", NULL, "x"));
    assert_non_null(core_saved(r.core, SAVED_TEMPLATE, "alice", NULL, "x"));
    s = (struct event_saved){.kind = SAVED_KINDS, .name = "x", .spec = &spec};
    assert_int_equal(give(&r, &alice, COMMAND_SAVED_SET, &s), -EINVAL);
    rig_assert_same_after_reload(&r);
    rig_done(&r);
}

// A token of one project keeps, shows and deletes what belongs to that project.
static void a_token_of_a_project_keeps_to_it(void **state) {
    struct rig r;
    struct spec of_lab = {.project = "lab"}, of_other = {.project = "other"};
    struct actor token = alice;
    rig_init(&r);
    token.project = "lab";
    struct event_saved mine = {.kind = SAVED_DRAFT, .name = "mine", .spec = &of_lab};
    struct event_saved other = {.kind = SAVED_DRAFT, .name = "other", .spec = &of_other};
    assert_int_equal(give(&r, &token, COMMAND_SAVED_SET, &mine), 0);
    assert_int_equal(give(&r, &token, COMMAND_SAVED_SET, &other), -EPERM);
    assert_int_equal(give(&r, &alice, COMMAND_SAVED_SET, &other), 0);
    assert_true(core_saved_visible(r.core, &token, core_saved(r.core, SAVED_DRAFT, "alice", NULL, "mine")));
    assert_false(core_saved_visible(r.core, &token, core_saved(r.core, SAVED_DRAFT, "alice", NULL, "other")));
    assert_int_equal(give(&r, &token, COMMAND_SAVED_DELETE, &other), -ENOENT);
    other.spec = &of_lab;  // nor is it taken over
    assert_int_equal(give(&r, &token, COMMAND_SAVED_SET, &other), -EPERM);
    assert_int_equal(give(&r, &token, COMMAND_SAVED_DELETE, &mine), 0);
    rig_done(&r);
}

static void rooms_have_an_end(void **state) {
    static char script[200 << 10];
    struct rig r;
    struct spec spec = {0};
    char name[16];
    struct event_saved d = {.kind = SAVED_DRAFT, .name = name, .spec = &spec};
    rig_init(&r);
    for (int i = 0; i < CORE_SAVED_MAX; i++) {
        snprintf(name, sizeof name, "d%d", i);
        assert_int_equal(give(&r, &alice, COMMAND_SAVED_SET, &d), 0);
    }
    assert_int_equal(give(&r, &alice, COMMAND_SAVED_SET, &d), 0);  // replaced
    snprintf(name, sizeof name, "more");
    assert_int_equal(give(&r, &alice, COMMAND_SAVED_SET, &d), -E2BIG);
    assert_int_equal(give(&r, &bob, COMMAND_SAVED_SET, &d), 0);
    d.kind = SAVED_TEMPLATE;
    assert_int_equal(give(&r, &alice, COMMAND_SAVED_SET, &d), 0);
    // Bytes: of one, and of all of one owner, of which a replaced one leaves as many as it had.
    memset(script, 'x', sizeof script - 1);
    d.script = script;
    for (int i = 0; i < 5; i++) {
        snprintf(name, sizeof name, "b%d", i);
        assert_int_equal(give(&r, &bob, COMMAND_SAVED_SET, &d), 0);
    }
    assert_int_equal(give(&r, &bob, COMMAND_SAVED_SET, &d), 0);
    snprintf(name, sizeof name, "b5");
    assert_int_equal(give(&r, &bob, COMMAND_SAVED_SET, &d), -E2BIG);
    char *large = calloc(1, CORE_SAVED_BYTES_MAX + 1);
    memset(large, 'x', CORE_SAVED_BYTES_MAX);
    d.script = large;
    assert_int_equal(give(&r, &alice, COMMAND_SAVED_SET, &d), -E2BIG);
    free(large);
    rig_assert_same_after_reload(&r);
    rig_done(&r);
}

static void templates_of_a_project_are_its_members(void **state) {
    struct rig r;
    struct spec spec = {0};
    const char *members[] = {"alice"};
    struct project lab = {.name = "lab", .members = {members, 1}};
    struct event_saved t = {.kind = SAVED_TEMPLATE, .name = "t", .project = "lab", .spec = &spec};
    rig_init(&r);
    assert_int_equal(rig_command(r.core, &root, COMMAND_PROJECT_SET, &lab, r.now_ms, NULL), 0);
    rig_drain(&r);
    assert_int_equal(give(&r, &bob, COMMAND_SAVED_SET, &t), -EPERM);
    assert_int_equal(give(&r, &alice, COMMAND_SAVED_SET, &t), 0);
    const struct event_saved *s = core_saved(r.core, SAVED_TEMPLATE, NULL, "lab", "t");
    assert_non_null(s);
    assert_true(core_saved_visible(r.core, &alice, s) && core_saved_visible(r.core, &root, s));
    assert_false(core_saved_visible(r.core, &bob, s));
    struct actor token = alice;
    token.project = "other";
    assert_false(core_saved_visible(r.core, &token, s));
    assert_int_equal(give(&r, &bob, COMMAND_SAVED_DELETE, &t), -EPERM);
    assert_int_equal(give(&r, &alice, COMMAND_SAVED_DELETE, &t), 0);
    rig_done(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drafts_are_kept_and_replaced), cmocka_unit_test(kinds_have_names_of_their_own),
        cmocka_unit_test(a_token_of_a_project_keeps_to_it), cmocka_unit_test(rooms_have_an_end),
        cmocka_unit_test(templates_of_a_project_are_its_members)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
