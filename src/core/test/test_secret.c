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
    rig_assert_same_after_reload(&r);
    assert_int_equal(delete (&r, &bob, NULL, NULL, "token", &e), -ENOENT);
    assert_int_equal(delete (&r, &bob, NULL, "alice", "token", &e), -EPERM);
    assert_int_equal(delete (&r, &root, NULL, "alice", "token", &e), 0);
    assert_null(core_secret(r.core, "alice", NULL, "token"));
    rig_assert_same_after_reload(&r);
    // A version is not used again, also after a restart; others' begin at 1.
    for (uint32_t version = 3; version < 5; version++) {
        assert_int_equal(core_secret_next_version(r.core, "alice", NULL, "token"), version);
        assert_int_equal(set(&r, &alice, NULL, "token", &e), 0);
        assert_int_equal(core_secret(r.core, "alice", NULL, "token")->version, version);
        assert_int_equal(delete (&r, &alice, NULL, NULL, "token", &e), 0);
        rig_assert_same_after_reload(&r);
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
    rig_assert_same_after_reload(&r);
    // A project that is deleted takes them along.
    struct command_entity_delete gone = {ENTITY_PROJECT, "vision", true};
    assert_int_equal(rig_command(r.core, &root, COMMAND_ENTITY_DELETE, &gone, r.now_ms, &e), 0);
    rig_drain(&r);
    assert_null(core_secret(r.core, NULL, "vision", "token"));
    assert_non_null(core_secret(r.core, "vision", NULL, "token"));
    rig_assert_same_after_reload(&r);
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
    rig_assert_same_after_reload(&r);
    rig_done(&r);
}

// What the controller would read from its store; a text or a value may be missing.
struct lender {
    const char *script, *environment, *value;
    size_t environment_len;
};

static int lend_text(void *ctx, const char *id, const char **text, size_t *len) {
    const struct lender *s = ctx;
    bool script = streq(id, "script");
    *text = script ? s->script : s->environment;
    *len = !*text ? 0 : script ? strlen(s->script) : s->environment_len;
    return *text ? 0 : -ENOENT;
}

static int lend_secret(void *ctx, const char *node, const struct event_secret *secret, struct arena *a,
                       struct bytes *out, struct error *e) {
    const struct lender *s = ctx;
    if (!s->value)
        return error_set(e, ENOENT, "no key on %s", node);
    *out = (struct bytes){arena_strdup(a, s->value), strlen(s->value)};
    return 0;
}

// A job that runs a script with a secret, placed on n1; the effect that launches it is the last of the rig's.
static uint64_t submit_with_secret(struct rig *r) {
    static const char *wanted[] = {"TOKEN"};
    struct spec s = rig_spec();
    s.script_id = "script";
    s.environment_id = "environment";
    s.secrets.at = wanted;
    s.secrets.len = 1;
    s.requeue = false;
    uint32_t before = r->launches.len;
    uint64_t id = rig_submit(r, &alice, &s);
    assert_int_equal(r->launches.len, before + 1);
    return id;
}

// A launch leaves the core complete, its secrets in a message before it. What cannot be read ends it, with the reason.
static void launches_are_complete_or_fail(void **state) {
    struct rig r;
    struct message out[CORE_EFFECT_MESSAGES_MAX];
    cleanup_arena struct arena a = {0};
    static const char environment[] = "A=1\0B=2";
    struct lender whole = {"#!/bin/sh\n", environment, "hush", sizeof environment}, no_script = whole,
                  no_key = whole;
    struct core_sources from = {&whole, lend_text, lend_secret};
    rig_init(&r);
    rig_hello(&r, "n1", 8, 0, "boot", NULL, 0);
    assert_int_equal(set(&r, &alice, NULL, "TOKEN", NULL), 0);
    submit_with_secret(&r);
    struct effect f = r.launches.at[r.launches.len - 1];
    assert_int_equal(core_effect_messages(r.core, &f, &from, r.now_ms, &a, out), 2);
    assert_int_equal(out[0].type, MESSAGE_SECRETS);
    const struct message_secrets *s = out[0].body;
    assert_int_equal(s->id, f.job);
    assert_memory_equal(s->secrets.at[0].value.data, "hush", 4);
    const struct message_launch *m = out[1].body;
    assert_int_equal(out[1].type, MESSAGE_LAUNCH);
    assert_int_equal(m->script.len, strlen(whole.script));
    assert_int_equal(m->environment.len, 2);
    assert_string_equal(m->environment.at[1], "B=2");
    assert_true(message_wipe(&out[0]) && !message_wipe(&out[1]));
    assert_memory_equal(s->secrets.at[0].value.data, "\0\0\0\0", 4);
    f.attempt = 2;  // ended meanwhile
    assert_int_equal(core_effect_messages(r.core, &f, &from, r.now_ms, &a, out), 0);
    no_script.script = no_key.value = NULL;
    struct lender *broken[] = {&no_script, &no_key};
    static const char *const reasons[] = {"its script or environment cannot be read",
                                          "secret TOKEN: no key on n1"};
    for (int i = 0; i < 2; i++) {
        uint64_t id = submit_with_secret(&r);
        f = r.launches.at[r.launches.len - 1];
        from.ctx = broken[i];
        assert_int_equal(core_effect_messages(r.core, &f, &from, r.now_ms, &a, out), 0);
        struct outbox *o = core_outbox(r.core);
        struct event e = {0};
        for (uint32_t k = 0; k < o->events.len && e.type != EVENT_PART_ENDED; k++)
            assert_int_equal(event_decode(o->events.at[k].type, o->bytes.data + o->events.at[k].offset,
                                          o->events.at[k].len, &a, &e),
                             0);
        const struct event_part_ended *b = e.body;
        assert_int_equal(e.type, EVENT_PART_ENDED);
        assert_true(b->id == id && b->cause == END_LAUNCH);
        assert_non_null(strstr(b->reason, reasons[i]));
        rig_drain(&r);
        assert_int_equal(r.last_state, JOB_FAILED);
    }
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(versions), cmocka_unit_test(of_projects), cmocka_unit_test(jobs_and_limits),
        cmocka_unit_test(launches_are_complete_or_fail), cmocka_unit_test(wishes)};
    return cmocka_run_group_tests_name("secret", tests, NULL, NULL);
}
