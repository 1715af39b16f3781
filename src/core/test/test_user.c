// Accounts, identities, roles and logins: who may change them, replay and snapshots.
#include <errno.h>

#include "rig.h"

static int set(struct rig *r, const struct actor *who, const struct user_account *u, struct error *e) {
    int rc = rig_command(r->core, who, COMMAND_USER_SET, u, r->now_ms, e);
    rig_drain(r);
    return rc;
}

static int begin(struct rig *r, const char *id, const char *identity, struct error *e) {
    struct event_session s = {
        .id = id, .hash = "h", .identity = identity, .idle_s = 600, .expires_ms = r->now_ms + 3600000};
    int rc = rig_command(r->core, &root, COMMAND_SESSION_BEGIN, &s, r->now_ms, e);
    rig_drain(r);
    return rc;
}

static int session(struct rig *r, const struct actor *who, enum command_type type, const char *id) {
    int rc = rig_command(r->core, who, type, &(struct command_session){id}, r->now_ms, NULL);
    rig_drain(r);
    return rc;
}

static void accounts(void **state) {
    struct rig r;
    struct error e = {0};
    struct core_user_view v;
    struct core_person p;
    rig_init(&r);
    const char *identities[] = {"oidc:lab:77", "pam:ana01"};
    struct user_account u = {
        .name = "ana", .unix_user = "ana01", .role = USER_ROLE_OPERATOR, .full_name = "Ana B"};
    u.identities.at = identities;
    u.identities.len = 2;
    assert_int_equal(set(&r, &alice, &u, &e), -EPERM);
    assert_int_equal(set(&r, &root, &u, &e), 0);
    for (int i = 0; i < 3; i++) {
        const char *logins[] = {"own:ana", "pam:ana01", "oidc:lab:77"};
        core_person(r.core, logins[i], NULL, &p);
        assert_true(p.account && p.role == USER_ROLE_OPERATOR);
        assert_string_equal(p.unix_user, "ana01");
    }
    // A change of one field leaves the others; "" takes the Unix user away.
    assert_int_equal(set(&r, &root, &(struct user_account){.name = "ana", .full_name = "Ana C"}, &e), 0);
    assert_true(core_user(r.core, "ana", &v) && streq(v.account->unix_user, "ana01") &&
                v.account->identities.len == 2);
    rig_assert_same_after_reload(&r);
    // Another account can have neither its identities nor its Unix user.
    struct user_account other = {.name = "eve", .unix_user = "ana01"};
    assert_int_equal(set(&r, &root, &other, &e), -EEXIST);
    other = (struct user_account){.name = "eve"};
    other.identities.at = identities;
    other.identities.len = 1;
    assert_int_equal(set(&r, &root, &other, &e), -EEXIST);
    const char *bad[] = {"own:ana", "ana", "oidc:lab:", "oidc::1", "oidc:a b:1", "pam:a b", "pam:"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        other.identities.at = &bad[i];
        assert_true(set(&r, &root, &other, &e) < 0);
    }
    // Without an account: a user of the system is that user, a provider's the one it names, an own login nobody.
    core_person(r.core, "pam:bob", NULL, &p);
    assert_string_equal(p.unix_user, "bob");
    core_person(r.core, "oidc:lab:9", "carol", &p);
    assert_string_equal(p.unix_user, "carol");
    core_person(r.core, "own:mallory", "root", &p);
    assert_null(p.unix_user);
    assert_int_equal(
        rig_command(r.core, &alice, COMMAND_USER_REMOVE, &(struct command_user){"ana"}, r.now_ms, &e),
        -EPERM);
    assert_int_equal(
        rig_command(r.core, &root, COMMAND_USER_REMOVE, &(struct command_user){"ana"}, r.now_ms, &e), 0);
    rig_drain(&r);
    core_person(r.core, "oidc:lab:77", NULL, &p);
    assert_null(p.account);
    rig_assert_same_after_reload(&r);
    rig_done(&r);
}

static void passwords(void **state) {
    struct rig r;
    struct error e = {0};
    struct core_user_view v;
    struct command_user m = {"ana"};
    rig_init(&r);
    assert_int_equal(set(&r, &root, &(struct user_account){.name = "ana", .unix_user = "alice"}, &e), 0);
    assert_int_equal(begin(&r, "s1", "own:ana", &e), 0);
    assert_int_equal(begin(&r, "s2", "own:ana", &e), 0);
    assert_int_equal(begin(&r, "s3", "pam:bob", &e), 0);
    assert_int_equal(rig_command(r.core, &bob, COMMAND_USER_PASSWORD, &m, r.now_ms, &e), -EPERM);
    struct actor ana = alice;
    ana.identity = "own:ana";
    m.keep = "s2";
    assert_int_equal(rig_command(r.core, &ana, COMMAND_USER_PASSWORD, &m, r.now_ms, &e), 0);
    rig_drain(&r);
    assert_true(core_user(r.core, "ana", &v) && v.version == 1 && v.password);
    // Whoever knew the old password is out; the login that changed it and others' stay.
    assert_false(core_session_holds(r.core, "s1", r.now_ms));
    assert_true(core_session_holds(r.core, "s2", r.now_ms) && core_session_holds(r.core, "s3", r.now_ms));
    // An account that changes keeps its password.
    assert_int_equal(set(&r, &root, &(struct user_account){.name = "ana", .email = "a@b"}, &e), 0);
    assert_true(core_user(r.core, "ana", &v) && v.version == 1 && v.password);
    rig_assert_same_after_reload(&r);
    assert_int_equal(set(&r, &root, &(struct user_account){.name = "ana", .disabled = true}, &e), 0);
    assert_false(core_session_holds(r.core, "s2", r.now_ms));
    rig_assert_same_after_reload(&r);
    rig_done(&r);
}

static void logins(void **state) {
    struct rig r;
    struct error e = {0};
    rig_init(&r);
    struct event_session made = {
        .id = "x", .hash = "h", .identity = "pam:alice", .idle_s = 600, .expires_ms = r.now_ms + 3600000};
    assert_int_equal(rig_command(r.core, &alice, COMMAND_SESSION_BEGIN, &made, r.now_ms, &e), -EPERM);
    assert_int_equal(begin(&r, "s1", "pam:alice", &e), 0);
    assert_int_equal(begin(&r, "s1", "pam:bob", &e), -EINVAL);  // an id is nobody else's
    assert_non_null(core_session(r.core, "s1", "h", r.now_ms));
    assert_null(core_session(r.core, "s1", "g", r.now_ms));
    assert_null(core_session(r.core, "s1", "", r.now_ms));
    // Use keeps it, up to its longest time; idleness ends it.
    assert_null(core_session(r.core, "s1", "h", r.now_ms + 600000));
    int64_t begun = r.now_ms;
    for (; r.now_ms < begun + 3000000; r.now_ms += 300000)
        assert_int_equal(session(&r, &root, COMMAND_SESSION_SEEN, "s1"), 0);
    assert_non_null(core_session(r.core, "s1", "h", r.now_ms));
    assert_null(core_session(r.core, "s1", "h", begun + 3600000));
    uint64_t seq = core_seq(r.core);
    r.now_ms -= 299000;  // a second after it was seen: not worth an event
    assert_int_equal(session(&r, &root, COMMAND_SESSION_SEEN, "s1"), 0);
    assert_int_equal(core_seq(r.core), seq);
    rig_assert_same_after_reload(&r);
    // Others' sessions do not exist for a user.
    assert_int_equal(session(&r, &bob, COMMAND_SESSION_END, "s1"), -ENOENT);
    assert_int_equal(session(&r, &alice, COMMAND_SESSION_END, "s1"), 0);
    assert_false(core_session_holds(r.core, "s1", r.now_ms));
    // The oldest of one's own gives way; those of others do not.
    assert_int_equal(begin(&r, "bobs", "pam:bob", &e), 0);
    for (int i = 0; i < USER_SESSIONS_MAX + 1; i++) {
        char id[16];
        snprintf(id, sizeof id, "n%03d", i);
        r.now_ms += 10;
        assert_int_equal(begin(&r, id, "pam:alice", &e), 0);
    }
    assert_false(core_session_holds(r.core, "n000", r.now_ms));
    assert_true(core_session_holds(r.core, "n001", r.now_ms) && core_session_holds(r.core, "bobs", r.now_ms));
    rig_assert_same_after_reload(&r);
    rig_done(&r);
}

// What a provider's groups give: a role and projects, until its time, then nothing.
static void grants(void **state) {
    struct rig r;
    struct error e = {0};
    struct core_person p;
    rig_init(&r);
    const char *projects[] = {"vision"}, *members[] = {"joan"};
    struct project vision = {.name = "vision"};
    vision.members.at = members;
    vision.members.len = 1;
    assert_int_equal(rig_command(r.core, &root, COMMAND_PROJECT_SET, &vision, r.now_ms, &e), 0);
    struct event_user_grant g = {
        .unix_user = "bob", .role = USER_ROLE_OPERATOR, .expires_ms = r.now_ms + 60000};
    g.projects.at = projects;
    g.projects.len = 1;
    assert_int_equal(rig_command(r.core, &alice, COMMAND_USER_GRANT, &g, r.now_ms, &e), -EPERM);
    assert_false(core_is_named_member(r.core, "bob", "vision"));
    assert_int_equal(rig_command(r.core, &root, COMMAND_USER_GRANT, &g, r.now_ms, &e), 0);
    rig_drain(&r);
    core_person(r.core, "pam:bob", NULL, &p);
    assert_true(p.role == USER_ROLE_OPERATOR && core_is_named_member(r.core, "bob", "vision"));
    assert_false(core_is_named_member(r.core, "alice", "vision") ||
                 core_is_named_member(r.core, "bob", "default"));
    rig_assert_same_after_reload(&r);
    // An account's role is not taken away by it.
    assert_int_equal(set(&r, &root,
                         &(struct user_account){.name = "bob", .unix_user = "bob", .role = USER_ROLE_ADMIN},
                         &e),
                     0);
    core_person(r.core, "pam:bob", NULL, &p);
    assert_int_equal(p.role, USER_ROLE_ADMIN);
    // A later login says less.
    g.role = USER_ROLE_USER;
    assert_int_equal(rig_command(r.core, &root, COMMAND_USER_GRANT, &g, r.now_ms, &e), 0);
    rig_drain(&r);
    assert_true(core_user_grant(r.core, "bob") && core_user_grant(r.core, "bob")->role == USER_ROLE_USER);
    // Its time comes, and the core asks to be woken for it.
    assert_true(core_schedule(r.core, r.now_ms + 59999) <= g.expires_ms);
    assert_true(core_is_named_member(r.core, "bob", "vision"));
    core_schedule(r.core, g.expires_ms);
    rig_drain(&r);
    assert_false(core_is_named_member(r.core, "bob", "vision"));
    assert_null(core_user_grant(r.core, "bob"));
    rig_assert_same_after_reload(&r);
    g.projects.len = USER_GRANT_PROJECTS_MAX + 1;
    assert_int_equal(rig_command(r.core, &root, COMMAND_USER_GRANT, &g, r.now_ms, &e), -EINVAL);
    rig_done(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(accounts), cmocka_unit_test(grants),
                                       cmocka_unit_test(passwords), cmocka_unit_test(logins)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
