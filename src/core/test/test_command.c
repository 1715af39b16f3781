// core_command: every kind of command through the one entry, and idempotency keys in every situation in which a
// submit can come twice.
#include "rig.h"

#include <errno.h>

#include "base/cleanup.h"

static const int64_t DAY_MS = 86400000;

static int submit(struct rig *r, const struct actor *who, const char *key, const struct spec *s,
                  struct command_result *out, struct error *e) {
    struct command m = {COMMAND_SUBMIT, &(struct command_submit){.spec = s}};
    return core_command(r->core, who, key, &m, r->now_ms, out, e);
}

static int give(struct rig *r, const struct actor *who, enum command_type type, const void *body, struct error *e) {
    return rig_command(r->core, who, type, body, r->now_ms, e);
}

static struct core *copy_by_replay(const struct rig *r, uint32_t from, struct core *c) {
    if (!c) {
        struct core_config config;
        core_config_default(&config);
        c = core_new(&config);
    }
    for (uint32_t i = from; i < r->journal.len; i++) {
        const struct journal_record *j = &r->journal.at[i];
        assert_int_equal(core_replay(c, j->e.seq, j->e.at_ms, j->e.type, j->data, j->e.len), 0);
    }
    core_assert(c);
    return c;
}

static struct core *copy_by_snapshot(const struct core *from, uint64_t seq) {
    struct core_config config;
    core_config_default(&config);
    struct core *c = core_new(&config);
    cleanup_buf struct buf b = {0};
    core_snapshot(from, &b);
    assert_int_equal(core_load_snapshot(c, seq, b.data, b.len, NULL), 0);
    core_assert(c);
    return c;
}

static void assert_same(const struct core *a, const struct core *b) {
    cleanup_buf struct buf x = {0}, y = {0};
    core_snapshot(a, &x);
    core_snapshot(b, &y);
    assert_int_equal(x.len, y.len);
    assert_memory_equal(x.data, y.data, x.len);
}

// --- every kind ---

static void commands_about_jobs(void **state) {
    struct rig r;
    struct error e = {0};
    struct job_view v;
    rig_init(&r);
    struct spec s = rig_spec();
    struct command_result out;
    assert_int_equal(submit(&r, &alice, NULL, &s, &out, &e), 0);
    assert_int_equal(out.count, 1);
    assert_false(out.repeated);
    struct command_job job = {out.id};
    struct command_hold hold = {.id = out.id};
    struct command_cancel cancel = {.id = out.id};
    assert_int_equal(give(&r, &bob, COMMAND_CANCEL, &cancel, &e), -EPERM);
    assert_int_equal(give(&r, &alice, COMMAND_HOLD, &hold, &e), 0);
    assert_true(core_view(r.core, out.id, &v) && v.held);
    assert_int_equal(give(&r, &alice, COMMAND_RELEASE, &job, &e), 0);
    assert_true(core_view(r.core, out.id, &v) && !v.held);
    rig_hello(&r, "n1", 4, 0, "b1", NULL, 0);
    rig_started(&r, "n1", out.id, 1);
    assert_int_equal(give(&r, &alice, COMMAND_SUSPEND, &job, &e), 0);
    assert_int_equal(rig_state(&r, out.id), JOB_SUSPENDED);
    assert_int_equal(give(&r, &alice, COMMAND_RESUME, &job, &e), 0);
    assert_int_equal(rig_state(&r, out.id), JOB_RUNNING);
    assert_int_equal(give(&r, &alice, COMMAND_REQUEUE, &(struct command_requeue){out.id, true}, &e), 0);
    rig_end(&r, "n1", out.id, 1, END_REQUEUE, 0);
    assert_int_equal(rig_state(&r, out.id), JOB_PENDING);
    assert_true(core_view(r.core, out.id, &v) && v.held);
    assert_int_equal(give(&r, &alice, COMMAND_CANCEL, &cancel, &e), 0);
    assert_int_equal(rig_state(&r, out.id), JOB_STATE_COUNT);
    assert_int_equal(give(&r, &alice, COMMAND_CANCEL, &cancel, &e), -EALREADY);
    // A check alone submits nothing.
    uint64_t seq = core_seq(r.core);
    struct command dry = {COMMAND_SUBMIT, &(struct command_submit){.spec = &s, .dry_run = true}};
    assert_int_equal(core_command(r.core, &alice, NULL, &dry, r.now_ms, &out, &e), 0);
    assert_int_equal(core_seq(r.core), seq);
    // Only a submit has a key.
    struct command release = {COMMAND_RELEASE, &job};
    assert_int_equal(core_command(r.core, &alice, "k", &release, r.now_ms, NULL, &e), -EINVAL);
    rig_done(&r);
}

static void commands_about_the_cluster(void **state) {
    struct rig r;
    struct error e = {0};
    struct node_view n;
    rig_init(&r);
    rig_hello(&r, "n1", 4, 0, "b1", NULL, 0);
    struct command_node node = {"n1"};
    assert_int_equal(give(&r, &alice, COMMAND_NODE_DRAIN, &(struct command_node_drain){"n1", "fan"}, &e), -EPERM);
    assert_int_equal(give(&r, &root, COMMAND_NODE_DRAIN, &(struct command_node_drain){"n1", NULL}, &e), -EINVAL);
    assert_int_equal(give(&r, &root, COMMAND_NODE_DRAIN, &(struct command_node_drain){"n1", "fan"}, &e), 0);
    assert_true(core_node(r.core, "n1", &n) && n.drained);
    assert_int_equal(give(&r, &root, COMMAND_NODE_RESUME, &node, &e), 0);
    assert_true(core_node(r.core, "n1", &n) && !n.drained);
    assert_int_equal(give(&r, &root, COMMAND_NODE_REMOVE, &node, &e), -EBUSY);
    core_node_lost(r.core, "n1", "gone", r.now_ms);
    assert_int_equal(give(&r, &root, COMMAND_NODE_REMOVE, &node, &e), 0);
    assert_false(core_node(r.core, "n1", &n));
    struct project project = {.name = "vision"};
    struct partition partition = {.name = "small"};
    struct qos qos = {.name = "urgent"};
    struct reservation reservation = {.name = "night", .start_ms = 1, .end_ms = r.now_ms + 1000};
    struct license license = {.name = "matlab", .count = 2};
    const void *const values[ENTITY_COUNT] = {&project, &partition, &qos, &reservation, &license};
    for (int kind = 0; kind < ENTITY_COUNT; kind++) {
        const char *name = *(const char *const *)values[kind];
        struct command_entity_delete delete = {.kind = (enum entity_kind)kind, .name = name};
        enum command_type set = command_entity_set((enum entity_kind)kind);
        assert_ptr_equal(command_schema(set), entity_schema((enum entity_kind)kind));
        assert_int_equal(give(&r, &alice, set, values[kind], &e), -EPERM);
        assert_int_equal(give(&r, &root, set, values[kind], &e), 0);
        assert_int_not_equal(core_handle(r.core, (enum entity_kind)kind, name), 0);
        assert_int_equal(give(&r, &root, COMMAND_ENTITY_DELETE, &delete, &e), 0);
        assert_int_equal(give(&r, &root, COMMAND_ENTITY_DELETE, &delete, &e), -ENOENT);
    }
    struct command_entity_delete no_kind = {.kind = ENTITY_COUNT, .name = "x"};
    assert_int_equal(give(&r, &root, COMMAND_ENTITY_DELETE, &no_kind, &e), -EINVAL);
    rig_done(&r);
}

static void commands_about_policy_and_tokens(void **state) {
    struct rig r;
    struct error e = {0};
    struct policy_settings p;
    rig_init(&r);
    core_policy_settings(r.core, &p);
    p.order = ORDER_FCFS;
    assert_int_equal(give(&r, &alice, COMMAND_POLICY_SET, &p, &e), -EPERM);
    assert_int_equal(give(&r, &root, COMMAND_POLICY_SET, &p, &e), 0);
    core_policy_settings(r.core, &p);
    assert_int_equal(p.order, ORDER_FCFS);
    struct command_token_create create = {.id = "t1", .hash = "aa", .expires_ms = r.now_ms + 1000};
    struct command_token_use use = {.id = "t1", .hash = "aa", .node = "n1", .fingerprint = "f"};
    assert_int_equal(give(&r, &alice, COMMAND_TOKEN_CREATE, &create, &e), -EPERM);
    assert_int_equal(give(&r, &root, COMMAND_TOKEN_CREATE, &create, &e), 0);
    assert_int_equal(give(&r, &alice, COMMAND_TOKEN_USE, &use, &e), 0);
    assert_true(core_enrolled(r.core, "n1", "f"));
    assert_int_equal(give(&r, &alice, COMMAND_TOKEN_USE, &use, &e), -EACCES);
    assert_int_equal(give(&r, &alice, COMMAND_TOKEN_REVOKE, &(struct command_token_revoke){"t1"}, &e), -ENOENT);
    assert_int_equal(give(&r, &root, COMMAND_TOKEN_REVOKE, &(struct command_token_revoke){"t1"}, &e), 0);
    assert_int_equal(give(&r, &root, COMMAND_UPGRADE_FINISH, &(struct command_empty){0}, &e), 0);
    // The secret is set once.
    struct command_keys_init again = {{"fedcba9876543210", 16}};
    assert_int_equal(give(&r, &root, COMMAND_KEYS_INIT, &again, &e), -EALREADY);
    rig_done(&r);
}

// Zero, false and none are values when they are given; what is not given stays.
static void changes_tell_zero_from_absent(void **state) {
    struct rig r;
    struct error e = {0};
    struct policy_settings p, change = {0};
    struct job_record record;
    cleanup_arena struct arena a = {0};
    rig_init(&r);
    rig_hello(&r, "n1", 4, 2, "b1", NULL, 0);
    struct spec s = rig_spec(), update = {.comment = "only this"};
    s.nice = 7;
    s.gpus_milli = 1000;
    s.memory_per_node_bytes = 1 << 20;
    s.hold = true;
    uint64_t id = rig_submit(&r, &alice, &s);
    struct command_update m = {id, &update};
    assert_int_equal(give(&r, &alice, COMMAND_UPDATE, &m, &e), 0);
    assert_int_equal(core_record(r.core, id, &a, &record), 0);
    assert_string_equal(record.spec->comment, "only this");
    assert_true(record.spec->nice == 7 && record.spec->gpus_milli == 1000 && record.spec->requeue);
    schema_give(&spec_schema, &update, &update.nice);
    schema_give(&spec_schema, &update, &update.gpus_milli);
    schema_give(&spec_schema, &update, &update.memory_per_node_bytes);
    schema_give(&spec_schema, &update, &update.requeue);
    schema_give(&spec_schema, &update, &update.comment);
    update.comment = NULL;
    assert_int_equal(give(&r, &alice, COMMAND_UPDATE, &m, &e), 0);
    assert_int_equal(core_record(r.core, id, &a, &record), 0);
    assert_true(!record.spec->nice && !record.spec->gpus_milli && !record.spec->memory_per_node_bytes &&
                !record.spec->requeue && !record.spec->comment);
    core_policy_settings(r.core, &p);
    assert_true(p.reclaim && p.half_life_s);
    schema_give(&policy_schema, &change, &change.reclaim);
    schema_give(&policy_schema, &change, &change.min_run_s);
    uint32_t half_life_s = p.half_life_s;
    assert_int_equal(give(&r, &root, COMMAND_POLICY_SET, &change, &e), 0);
    core_policy_settings(r.core, &p);
    assert_true(!p.reclaim && !p.min_run_s && p.half_life_s == half_life_s);
    uint64_t seq = core_seq(r.core);
    assert_int_equal(give(&r, &root, COMMAND_POLICY_SET, &change, &e), 0);
    assert_int_equal(core_seq(r.core), seq);  // nothing changed: nothing is written
    rig_drain(&r);
    rig_done(&r);
}

// The limit of a running job may be its partition's: its user may shorten that, an administrator lengthen it.
static void time_limits_of_running_jobs(void **state) {
    struct rig r;
    struct error e = {0};
    struct job_view v;
    rig_init(&r);
    struct partition p = {.name = "main", .is_default = true, .default_time_s = 600};
    assert_int_equal(give(&r, &root, COMMAND_PARTITION_SET, &p, &e), 0);
    rig_hello(&r, "n1", 4, 0, "b1", NULL, 0);
    struct spec s = rig_spec(), change = {.comment = "c"};
    uint64_t id = rig_submit(&r, &alice, &s);
    rig_started(&r, "n1", id, 1);
    struct command_update m = {id, &change};
    assert_int_equal(give(&r, &alice, COMMAND_UPDATE, &m, &e), 0);
    assert_true(core_view(r.core, id, &v) && v.time_limit_s == 600);
    change.time_limit_s = 601;
    assert_int_equal(give(&r, &alice, COMMAND_UPDATE, &m, &e), -EPERM);
    change.time_limit_s = 500;
    assert_int_equal(give(&r, &alice, COMMAND_UPDATE, &m, &e), 0);
    assert_true(core_view(r.core, id, &v) && v.time_limit_s == 500);
    change.time_limit_s = 700;
    assert_int_equal(give(&r, &alice, COMMAND_UPDATE, &m, &e), -EPERM);
    assert_int_equal(give(&r, &root, COMMAND_UPDATE, &m, &e), 0);
    assert_true(core_view(r.core, id, &v) && v.time_limit_s == 700);
    rig_drain(&r);
    rig_done(&r);
}

// A job that does not say whether it is queued again gets the cluster's setting; one that says no keeps it.
static void requeue_has_a_default(void **state) {
    struct rig r;
    struct job_record record;
    cleanup_arena struct arena a = {0};
    rig_init(&r);
    struct core_config config;
    core_config_default(&config);
    config.requeue = true;
    core_configure(r.core, &config);
    struct spec s = rig_spec();
    s.requeue = false;
    assert_int_equal(core_record(r.core, rig_submit(&r, &alice, &s), &a, &record), 0);
    assert_true(record.spec->requeue);
    schema_give(&spec_schema, &s, &s.requeue);
    assert_int_equal(core_record(r.core, rig_submit(&r, &alice, &s), &a, &record), 0);
    assert_false(record.spec->requeue);
    rig_done(&r);
}

// A text without a limit of its own cannot make a record that the journal refuses.
static void a_spec_is_bounded(void **state) {
    struct rig r;
    struct error e = {0};
    struct command_result out;
    rig_init(&r);
    char *text = xmalloc(20 << 20);
    memset(text, 'x', 20 << 20);
    text[(20 << 20) - 1] = 0;
    struct spec s = rig_spec(), change = {.command_text = text};
    uint64_t id = rig_submit(&r, &alice, &s);
    s.command_text = text;
    assert_int_equal(submit(&r, &alice, NULL, &s, &out, &e), -E2BIG);
    assert_int_equal(give(&r, &alice, COMMAND_UPDATE, &(struct command_update){id, &change}, &e), -E2BIG);
    text[3 << 20] = 0;
    assert_int_equal(submit(&r, &alice, NULL, &s, &out, &e), 0);
    rig_drain(&r);
    free(text);
    rig_done(&r);
}

static void every_command_has_a_table(void **state) {
    for (int i = COMMAND_NONE + 1; i < COMMAND_TYPE_COUNT; i++) {
        assert_non_null(command_name((enum command_type)i));
        assert_non_null(command_schema((enum command_type)i));
    }
    assert_null(command_schema(COMMAND_NONE));
    assert_null(command_name(COMMAND_TYPE_COUNT));
}

// --- keys ---

static void the_same_key_gives_the_same_job(void **state) {
    struct rig r;
    struct error e = {0};
    struct command_result first, again;
    rig_init(&r);
    struct spec s = rig_spec();
    struct array_range range = {1, 40, 1};
    s.array.at = &range;
    s.array.len = 1;
    assert_int_equal(submit(&r, &alice, "k", &s, &first, &e), 0);
    assert_false(first.repeated);
    assert_int_equal(first.count, 40);
    // In the same batch, before anything is committed.
    uint64_t seq = core_seq(r.core);
    assert_int_equal(submit(&r, &alice, "k", &s, &again, &e), 0);
    assert_true(again.repeated && again.id == first.id && again.count == 40);
    assert_int_equal(core_seq(r.core), seq);
    // Another user's key is another key.
    assert_int_equal(submit(&r, &bob, "k", &s, &again, &e), 0);
    assert_false(again.repeated);
    // Also when the first has ended, and when defaults have changed since.
    for (uint64_t id = first.id; id < first.id + 40; id++)
        assert_int_equal(give(&r, &alice, COMMAND_CANCEL, &(struct command_cancel){.id = id}, &e), 0);
    struct partition other = {.name = "other", .is_default = true};
    assert_int_equal(give(&r, &root, COMMAND_PARTITION_SET, &other, &e), 0);
    rig_drain(&r);
    r.now_ms += DAY_MS;
    assert_int_equal(submit(&r, &alice, "k", &s, &again, &e), 0);
    assert_true(again.repeated && again.id == first.id && again.count == 40);
    // A check does not use the key up, and does not look at it.
    struct command dry = {COMMAND_SUBMIT, &(struct command_submit){.spec = &s, .dry_run = true}};
    assert_int_equal(core_command(r.core, &alice, "new", &dry, r.now_ms, &again, &e), 0);
    assert_int_equal(submit(&r, &alice, "new", &s, &again, &e), 0);
    assert_false(again.repeated);
    rig_done(&r);
}

static void a_key_with_another_spec_is_refused(void **state) {
    struct rig r;
    struct error e = {0};
    struct command_result first, again;
    rig_init(&r);
    struct spec s = rig_spec(), other = rig_spec();
    s.script_id = "11111111111111111111111111111111";
    assert_int_equal(submit(&r, &alice, "k", &s, &first, &e), 0);
    uint64_t seq = core_seq(r.core);
#define DIFFERS(change)                                                  \
    do {                                                                 \
        other = s;                                                       \
        change;                                                          \
        assert_int_equal(submit(&r, &alice, "k", &other, &again, &e), -EEXIST); \
        assert_non_null(strstr(e.text, "was used for job 1"));           \
    } while (0)
    DIFFERS(other.name = "u");
    DIFFERS(other.script_id = "22222222222222222222222222222222");
    DIFFERS(other.environment_id = "33333333333333333333333333333333");
    DIFFERS(other.cpus_per_task = 2);
    assert_int_equal(core_seq(r.core), seq);
    assert_int_equal(submit(&r, &alice, "k", &s, &again, &e), 0);
    assert_true(again.repeated);
    // Keys are texts for people: bounded, and without control characters.
    char longest[CORE_KEY_TEXT_MAX + 2];
    memset(longest, 'x', sizeof longest);
    longest[CORE_KEY_TEXT_MAX + 1] = 0;
    assert_int_equal(submit(&r, &alice, longest, &s, &again, &e), -EINVAL);
    assert_int_equal(submit(&r, &alice, "", &s, &again, &e), -EINVAL);
    assert_int_equal(submit(&r, &alice, "a\nb", &s, &again, &e), -EINVAL);
    longest[CORE_KEY_TEXT_MAX] = 0;
    assert_int_equal(submit(&r, &alice, longest, &s, &again, &e), 0);
    rig_done(&r);
}

static void a_refused_submit_keeps_no_key(void **state) {
    struct rig r;
    struct error e = {0};
    struct command_result out;
    rig_init(&r);
    struct spec bad = rig_spec(), good = rig_spec();
    bad.project = "nowhere";
    assert_int_equal(submit(&r, &alice, "k", &bad, &out, &e), -ENOENT);
    assert_int_equal(submit(&r, &alice, "k", &good, &out, &e), 0);
    assert_false(out.repeated);
    rig_done(&r);
}

static void keys_are_bounded_and_expire(void **state) {
    struct rig r;
    struct error e = {0};
    struct command_result out;
    rig_init(&r);
    struct core_config config;
    core_config_default(&config);
    config.max_keys_per_user = 3;
    core_configure(r.core, &config);
    struct spec s = rig_spec();
    char key[8];
    int64_t began_ms = r.now_ms;
    for (int i = 0; i < 3; i++) {
        snprintf(key, sizeof key, "k%d", i);
        assert_int_equal(submit(&r, &alice, key, &s, &out, &e), 0);
        r.now_ms += DAY_MS;
    }
    rig_drain(&r);
    // Full: a new key is refused with the reason, an old one still answers, others and no key at all go on.
    assert_int_equal(submit(&r, &alice, "k3", &s, &out, &e), -EAGAIN);
    assert_non_null(strstr(e.text, "max_keys_per_user"));
    assert_int_equal(submit(&r, &alice, "k0", &s, &out, &e), 0);
    assert_true(out.repeated);
    assert_int_equal(submit(&r, &bob, "k3", &s, &out, &e), 0);
    assert_int_equal(submit(&r, &alice, NULL, &s, &out, &e), 0);
    // The first expires after seven days; then there is room for one.
    r.now_ms = began_ms + CORE_KEY_DAYS * DAY_MS - 1000;
    assert_int_equal(submit(&r, &alice, "k3", &s, &out, &e), -EAGAIN);
    r.now_ms = began_ms + CORE_KEY_DAYS * DAY_MS + 60000;
    assert_int_equal(submit(&r, &alice, "k3", &s, &out, &e), 0);
    assert_false(out.repeated);
    assert_int_equal(submit(&r, &alice, "k0", &s, &out, &e), -EAGAIN);
    assert_int_equal(submit(&r, &alice, "k1", &s, &out, &e), 0);
    assert_true(out.repeated);
    // Without the limit an expired key is a new key, with whatever spec.
    core_config_default(&config);
    core_configure(r.core, &config);
    s.name = "another";
    assert_int_equal(submit(&r, &alice, "k0", &s, &out, &e), 0);
    assert_false(out.repeated);
    rig_drain(&r);
    struct core *c = copy_by_replay(&r, 0, NULL);
    assert_same(r.core, c);
    core_free(c);
    rig_done(&r);
}

// Whatever the way back, the same keys are known afterwards.
static void keys_survive(void **state) {
    struct rig r;
    struct error e = {0};
    struct command_result out;
    rig_init(&r);
    struct spec s = rig_spec();
    char key[16];
    uint64_t snapshot_seq = 0;
    uint32_t records = 0;
    struct core *snapshot = NULL;
    for (int i = 0; i < 3000; i++) {
        snprintf(key, sizeof key, "key-%d", i);
        assert_int_equal(submit(&r, i % 2 ? &alice : &bob, key, &s, &out, &e), 0);
        assert_int_equal(give(&r, &root, COMMAND_CANCEL, &(struct command_cancel){.id = out.id}, &e), 0);
        r.now_ms += 1800000;  // some expire meanwhile
        rig_drain(&r);
        if (i == 2000) {
            snapshot_seq = core_seq(r.core);
            snapshot = copy_by_snapshot(r.core, snapshot_seq);
            records = r.journal.len;
        }
    }
    struct core *replayed = copy_by_replay(&r, 0, NULL);
    copy_by_replay(&r, records, snapshot);
    assert_same(r.core, replayed);
    assert_same(r.core, snapshot);
    struct command m = {COMMAND_SUBMIT, &(struct command_submit){.spec = &s}};
    struct core *const cores[] = {r.core, replayed, snapshot};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(core_command(cores[i], &alice, "key-2999", &m, r.now_ms, &out, &e), 0);
        assert_true(out.repeated);
        assert_int_equal(out.id, 3000);
        assert_int_equal(core_command(cores[i], &alice, "key-1", &m, r.now_ms, &out, &e), 0);
        assert_false(out.repeated);  // expired long ago
    }
    core_free(replayed);
    core_free(snapshot);
    rig_done(&r);
}

// The clock was ahead for a while: keys made then do not stay for ever.
static void keys_of_a_wrong_clock_expire(void **state) {
    struct rig r;
    struct error e = {0};
    struct command_result out;
    rig_init(&r);
    struct spec s = rig_spec();
    int64_t now = r.now_ms + 1000 * DAY_MS;
    r.now_ms = now + 400 * DAY_MS;
    assert_int_equal(submit(&r, &alice, "k", &s, &out, &e), 0);
    r.now_ms = now;
    assert_int_equal(submit(&r, &alice, "other", &s, &out, &e), 0);  // sweeps
    r.now_ms = now + (CORE_KEY_DAYS + 1) * DAY_MS;
    assert_int_equal(submit(&r, &alice, "k", &s, &out, &e), 0);
    assert_false(out.repeated);
    rig_drain(&r);
    rig_done(&r);
}

// --- a journal of the first feature level ---

static void old_journals_keep_keys(void **state) {
    struct core_config config;
    core_config_default(&config);
    struct rig r = {.core = core_new(&config), .now_ms = 1000000};
    struct error e = {0};
    struct command_result out;
    struct spec s = rig_spec();
    struct project p = {.name = "vision"};
    struct event_project_set b = {.project = &p, .by = "root"};
    cleanup_buf struct buf data = {0};
    event_encode(&(struct event){.type = EVENT_PROJECT_SET, .body = &b}, &data);
    assert_int_equal(core_replay(r.core, 1, 5, EVENT_PROJECT_SET, data.data, data.len), 0);
    core_start(r.core, r.now_ms);
    assert_int_equal(core_level(r.core), FEATURE_LEVEL_FIRST);
    // A key of the release before, and one of now.
    struct command_key_import import = {
        .user = "alice", .key = "old", .id = 7, .count = 3, .expires_ms = r.now_ms + DAY_MS};
    assert_int_equal(give(&r, &alice, COMMAND_KEY_IMPORT, &import, &e), -EPERM);
    assert_int_equal(give(&r, &root, COMMAND_KEY_IMPORT, &import, &e), 0);
    assert_int_equal(submit(&r, &alice, "old", &s, &out, &e), 0);
    assert_true(out.repeated && out.id == 7 && out.count == 3);
    assert_int_equal(submit(&r, &alice, "new", &s, &out, &e), 0);
    uint64_t id = out.id;
    for (uint32_t i = 0; i < core_outbox(r.core)->events.len; i++)  // nothing that the release before refuses
        assert_true(event_info(core_outbox(r.core)->events.at[i].type)->level <= FEATURE_LEVEL_FIRST);
    rig_drain(&r);
    struct core *loaded = copy_by_snapshot(r.core, core_seq(r.core));
    assert_same(r.core, loaded);
    // The upgrade is finished: from now on there is a secret, and what was known before stays known.
    assert_int_equal(give(&r, &root, COMMAND_UPGRADE_FINISH, &(struct command_empty){0}, &e), 0);
    assert_int_equal(give(&r, &root, COMMAND_KEYS_INIT, &(struct command_keys_init){{"0123456789abcdef", 16}}, &e), 0);
    assert_int_equal(give(&r, &root, COMMAND_KEY_IMPORT, &import, &e), 0);
    assert_int_equal(submit(&r, &alice, "old", &s, &out, &e), 0);
    assert_true(out.repeated && out.id == 7 && out.count == 3);
    assert_int_equal(submit(&r, &alice, "new", &s, &out, &e), 0);
    assert_true(out.repeated && out.id == id);
    rig_drain(&r);
    core_free(loaded);
    rig_done(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_command_has_a_table),
        cmocka_unit_test(commands_about_jobs),
        cmocka_unit_test(commands_about_the_cluster),
        cmocka_unit_test(commands_about_policy_and_tokens),
        cmocka_unit_test(changes_tell_zero_from_absent),
        cmocka_unit_test(requeue_has_a_default),
        cmocka_unit_test(a_spec_is_bounded),
        cmocka_unit_test(time_limits_of_running_jobs),
        cmocka_unit_test(the_same_key_gives_the_same_job),
        cmocka_unit_test(a_key_with_another_spec_is_refused),
        cmocka_unit_test(a_refused_submit_keeps_no_key),
        cmocka_unit_test(keys_are_bounded_and_expire),
        cmocka_unit_test(keys_survive),
        cmocka_unit_test(keys_of_a_wrong_clock_expire),
        cmocka_unit_test(old_journals_keep_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
