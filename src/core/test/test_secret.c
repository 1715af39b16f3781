// Secrets: who may set, use and see which; versions, limits, replay and snapshots.
#include <errno.h>

#include "rig.h"
#include "model/secret.h"

static int set(struct rig *r, const struct actor *who, const char *project, const char *name,
               struct error *e) {
    struct command_secret m = {.name = name, .project = project};
    int rc = rig_command(r->core, who, COMMAND_SECRET_SET, &m, r->now_ms, e);
    rig_drain(r);
    return rc;
}

static int delete (struct rig *r, const struct actor *who, const char *project, const char *user,
                   const char *name, struct error *e) {
    struct command_secret m = {.name = name, .project = project, .user = user};
    int rc = rig_command(r->core, who, COMMAND_SECRET_DELETE, &m, r->now_ms, e);
    rig_drain(r);
    return rc;
}

static void make_project(struct rig *r, const char *name, const char *member) {
    const char *members[] = {member};
    struct project p = {.name = name};
    p.members.at = members;
    p.members.len = member ? 1 : 0;
    assert_int_equal(rig_command(r->core, &root, COMMAND_PROJECT_SET, &p, r->now_ms, NULL), 0);
    rig_drain(r);
}

static void assert_same_after_reload(struct rig *r) {
    cleanup_buf struct buf b = {0}, again = {0};
    struct core_config config;
    core_config_default(&config);
    struct core *c = core_new(&config);
    core_snapshot(r->core, &b);
    assert_int_equal(core_load_snapshot(c, core_seq(r->core), b.data, b.len, NULL), 0);
    core_assert(c);
    core_snapshot(c, &again);
    assert_int_equal(b.len, again.len);
    assert_memory_equal(b.data, again.data, b.len);
    core_free(c);
    c = core_new(&config);
    for (uint32_t i = 0; i < r->journal.len; i++) {
        const struct outbox_event *e = &r->journal.at[i].e;
        assert_int_equal(core_replay(c, e->seq, e->at_ms, e->type, r->journal.at[i].data, e->len), 0);
    }
    core_assert(c);
    buf_clear(&again);
    core_snapshot(c, &again);
    assert_int_equal(b.len, again.len);
    assert_memory_equal(b.data, again.data, b.len);
    core_free(c);
}

static void versions(void **state) {
    struct rig r;
    struct error e = {0};
    rig_init(&r);
    assert_int_equal(set(&r, &alice, NULL, "token", &e), 0);
    const struct event_secret *s = core_secret(r.core, "alice", NULL, "token");
    uint64_t first = s->value;
    assert_int_equal(s->version, 1);
    assert_int_equal(s->set_ms, r.now_ms);
    assert_int_equal(set(&r, &alice, NULL, "token", &e), 0);
    s = core_secret(r.core, "alice", NULL, "token");
    assert_true(s->version == 2 && s->value != first);
    assert_null(core_secret(r.core, "bob", NULL, "token"));
    assert_same_after_reload(&r);
    assert_int_equal(delete (&r, &bob, NULL, NULL, "token", &e), -ENOENT);
    assert_int_equal(delete (&r, &bob, NULL, "alice", "token", &e), -EPERM);
    assert_int_equal(delete (&r, &root, NULL, "alice", "token", &e), 0);
    assert_null(core_secret(r.core, "alice", NULL, "token"));
    assert_same_after_reload(&r);
    // A version is not used again, also after a restart; others' begin at 1.
    for (uint32_t version = 3; version < 5; version++) {
        assert_int_equal(core_secret_next_version(r.core, "alice", NULL, "token"), version);
        assert_int_equal(set(&r, &alice, NULL, "token", &e), 0);
        assert_int_equal(core_secret(r.core, "alice", NULL, "token")->version, version);
        assert_int_equal(delete (&r, &alice, NULL, NULL, "token", &e), 0);
        assert_same_after_reload(&r);
    }
    assert_int_equal(core_secret_next_version(r.core, "bob", NULL, "token"), 1);
    rig_done(&r);
}

static void of_projects(void **state) {
    struct rig r;
    struct error e = {0};
    rig_init(&r);
    make_project(&r, "vision", "alice");
    make_project(&r, "open", NULL);
    assert_int_equal(set(&r, &alice, "vision", "token", &e), 0);
    assert_int_equal(set(&r, &bob, "vision", "token", &e), -EPERM);
    assert_int_equal(set(&r, &bob, "open", "token", &e), -EPERM);  // everybody's: only administrators
    assert_int_equal(set(&r, &root, "open", "token", &e), 0);
    assert_int_equal(set(&r, &alice, "none", "token", &e), -ENOENT);
    const struct event_secret *s = core_secret(r.core, NULL, "vision", "token");
    assert_true(core_secret_visible(r.core, &alice, s) && core_secret_visible(r.core, &root, s));
    assert_false(core_secret_visible(r.core, &bob, s));
    // The user's own comes first.
    assert_ptr_equal(core_secret_of_job(r.core, "alice", "vision", "token"), s);
    assert_int_equal(set(&r, &alice, NULL, "token", &e), 0);
    assert_string_equal(core_secret_of_job(r.core, "alice", "vision", "token")->user, "alice");
    assert_null(core_secret_of_job(r.core, "bob", "default", "token"));
    // A user and a project of one name have different ones.
    assert_int_equal(set(&r, &(struct actor){"vision", 1003, 1003, false}, NULL, "token", &e), 0);
    assert_null(core_secret(r.core, NULL, "vision", "token")->user);
    assert_same_after_reload(&r);
    // A project that is deleted takes them along.
    struct command_entity_delete gone = {ENTITY_PROJECT, "vision", true};
    assert_int_equal(rig_command(r.core, &root, COMMAND_ENTITY_DELETE, &gone, r.now_ms, &e), 0);
    rig_drain(&r);
    assert_null(core_secret(r.core, NULL, "vision", "token"));
    assert_non_null(core_secret(r.core, "vision", NULL, "token"));
    assert_same_after_reload(&r);
    rig_done(&r);
}

static void jobs_and_limits(void **state) {
    struct rig r;
    struct error e = {0};
    uint64_t id, count;
    char name[16];
    rig_init(&r);
    const char *wishes[] = {"t1", "t2:file=KEY"};
    struct spec s = rig_spec();
    s.secrets.at = wishes;
    s.secrets.len = 2;
    assert_int_equal(do_submit(r.core, &alice, &s, NULL, false, r.now_ms, &id, &count, &e), -ENOENT);
    assert_non_null(strstr(e.text, "secret set t1"));
    for (int i = 0; i < SECRETS_PER_OWNER; i++) {
        snprintf(name, sizeof name, "t%d", i);
        assert_int_equal(set(&r, &alice, NULL, name, &e), 0);
    }
    assert_int_equal(set(&r, &alice, NULL, "more", &e), -E2BIG);
    assert_int_equal(set(&r, &alice, NULL, "t5", &e), 0);  // a new value of an old one
    assert_int_equal(set(&r, &bob, NULL, "more", &e), 0);
    assert_int_equal(set(&r, &alice, NULL, "a/b", &e), -EINVAL);
    assert_int_equal(do_submit(r.core, &alice, &s, NULL, false, r.now_ms, &id, &count, &e), 0);
    assert_int_equal(do_submit(r.core, &bob, &s, NULL, false, r.now_ms, &id, &count, &e), -ENOENT);
    rig_drain(&r);
    // A job whose secret is gone can still be changed and released; its launch says what is missing.
    assert_int_equal(delete (&r, &alice, NULL, NULL, "t1", &e), 0);
    struct spec change = {.comment = "later"};
    assert_int_equal(do_update(r.core, &alice, id = core_newest_id(r.core), &change, r.now_ms, &e), 0);
    change.secrets.at = wishes;
    change.secrets.len = 1;
    assert_int_equal(do_update(r.core, &alice, id, &change, r.now_ms, &e), -ENOENT);
    rig_drain(&r);
    assert_same_after_reload(&r);
    rig_done(&r);
}

static void wishes(void **state) {
    cleanup_arena struct arena a = {0};
    struct secret_wish w;
    struct error e;
    static const struct {
        const char *text, *name, *variable;
        bool file;
    } good[] = {{"HF_TOKEN", "HF_TOKEN", "HF_TOKEN", false},
                {"a.b-c", "a.b-c", "a_b_c", false},
                {"x=Y", "x", "Y", false},
                {"k:file", "k", "k_FILE", true},
                {"k:file=V", "k", "V", true},
                {"1a", "1a", "_1a", false}};
    static const char *const bad[] = {"",          "=X",   ":file", "a:",     "a:files",      "a:file:b",
                                      "a=",        "a=1b", "a=b c", "a=PATH", "a=LD_PRELOAD", "a=ACEQUIA_X",
                                      "a=SLURM_X", "a b",  "../a",  "a=\x1b"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(secret_wish_parse(good[i].text, &a, &w, &e), 0);
        assert_string_equal(w.name, good[i].name);
        assert_string_equal(w.variable, good[i].variable);
        assert_int_equal(w.file, good[i].file);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_true(secret_wish_parse(bad[i], &a, &w, &e) < 0);
    const char *twice[] = {"a:file", "a:file=B"}, *same[] = {"a", "b=a"}, *both[] = {"a", "a:file"};
    assert_true(secret_wishes_check(twice, 2, &e) < 0 && secret_wishes_check(same, 2, &e) < 0);
    assert_int_equal(secret_wishes_check(both, 2, &e), 0);
    assert_true(secret_variable("A,B", "B=x") && secret_variable("A,B", "A") &&
                !secret_variable("A,B", "AB=x"));
    assert_true(!secret_variable(NULL, "A=x") && secret_variable("A", SECRET_VARIABLES "=A"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(versions), cmocka_unit_test(of_projects),
                                       cmocka_unit_test(jobs_and_limits), cmocka_unit_test(wishes)};
    return cmocka_run_group_tests_name("secret", tests, NULL, NULL);
}
