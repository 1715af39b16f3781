// A core with simulated agents that do what they are told, for the tests of this folder.
#pragma once
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/text.h"
#include "core/core.h"
#include "sched/world.h"

static const struct actor alice = {"alice", 1001, 1001, false}, bob = {"bob", 1002, 1002, false},
                          root = {"root", 0, 0, true};

struct journal_record {
    struct outbox_event e;
    char *data;
};

struct rig {
    struct core *core;
    int64_t now_ms;
    VEC(struct journal_record) journal;
    VEC(struct effect) launches;  // carried out by nobody yet
    VEC(struct notice) notices;   // nobody has looked at yet
    uint32_t kills, acks, finished, suspends;
    bool resumed;  // what the last of these said
    enum job_state last_state;
};

// Takes over what the last commands brought about.
static inline void rig_drain(struct rig *r) {
    struct outbox *o = core_outbox(r->core);
    for (uint32_t i = 0; i < o->events.len; i++) {
        struct journal_record j = {o->events.at[i],
                                   xmemdup(o->bytes.data + o->events.at[i].offset, o->events.at[i].len)};
        vec_push(&r->journal, j);
    }
    for (uint32_t i = 0; i < o->effects.len; i++) {
        struct effect *e = &o->effects.at[i];
        if (e->type == EFFECT_LAUNCH)
            vec_push(&r->launches, *e);
        if (e->type == EFFECT_SEND) {
            cleanup_arena struct arena a = {0};
            struct message m;
            assert_int_equal(message_decode(o->bytes.data + e->offset, e->len, &a, &m), 0);
            r->kills += m.type == MESSAGE_KILL;
            r->acks += m.type == MESSAGE_ACK;
            if (m.type == MESSAGE_SUSPEND) {
                r->suspends++;
                r->resumed = ((const struct message_suspend *)m.body)->resume;
            }
        }
    }
    for (uint32_t i = 0; i < o->effects.len; i++)
        if (o->effects.at[i].type == EFFECT_NOTIFY)
            vec_push(&r->notices, o->notices.at[o->effects.at[i].offset]);
    r->finished += o->finished.len;
    if (o->finished.len)
        r->last_state = o->finished.at[o->finished.len - 1].state;
    core_outbox_clear(o);
    core_assert(r->core);
}

static inline void rig_init(struct rig *r) {
    struct core_config config;
    core_config_default(&config);
    *r = (struct rig){.core = core_new(&config), .now_ms = 1000000};
    core_start(r->core, r->now_ms);
    struct command_keys_init keys = {{"0123456789abcdef", 16}};
    struct command m = {COMMAND_KEYS_INIT, &keys};
    assert_int_equal(core_command(r->core, &root, NULL, &m, r->now_ms, NULL, NULL), 0);
    rig_drain(r);
}

// --- commands by name ---

static inline int rig_command(struct core *c, const struct actor *who, enum command_type type, const void *body,
                              int64_t now_ms, struct error *e) {
    struct command m = {type, body};
    return core_command(c, who, NULL, &m, now_ms, NULL, e);
}

static inline int do_submit(struct core *c, const struct actor *who, const struct spec *s, const char *key, bool dry_run,
                            int64_t now_ms, uint64_t *id, uint64_t *count, struct error *e) {
    struct command m = {COMMAND_SUBMIT, &(struct command_submit){s, dry_run}};
    struct command_result out = {0};
    int r = core_command(c, who, key, &m, now_ms, &out, e);
    *id = out.id;
    *count = out.count;
    return r;
}

static inline int do_cancel(struct core *c, const struct actor *who, uint64_t id, const struct command_cancel *o,
                            int64_t now_ms, struct error *e) {
    struct command_cancel m = *o;
    m.id = id;
    return rig_command(c, who, COMMAND_CANCEL, &m, now_ms, e);
}

static inline int do_hold_as(struct core *c, const struct actor *who, uint64_t id, enum hold_kind as, int64_t now_ms,
                             struct error *e) {
    return rig_command(c, who, COMMAND_HOLD, &(struct command_hold){id, as}, now_ms, e);
}

static inline int do_hold(struct core *c, const struct actor *who, uint64_t id, int64_t now_ms, struct error *e) {
    return do_hold_as(c, who, id, HOLD_BY_OWNER, now_ms, e);
}

static inline int do_release(struct core *c, const struct actor *who, uint64_t id, int64_t now_ms, struct error *e) {
    return rig_command(c, who, COMMAND_RELEASE, &(struct command_job){id}, now_ms, e);
}

static inline int do_requeue(struct core *c, const struct actor *who, uint64_t id, bool hold, int64_t now_ms,
                             struct error *e) {
    return rig_command(c, who, COMMAND_REQUEUE, &(struct command_requeue){id, hold}, now_ms, e);
}

static inline int do_suspend(struct core *c, const struct actor *who, uint64_t id, bool resume, int64_t now_ms,
                             struct error *e) {
    return rig_command(c, who, resume ? COMMAND_RESUME : COMMAND_SUSPEND, &(struct command_job){id}, now_ms, e);
}

static inline int do_update(struct core *c, const struct actor *who, uint64_t id, const struct spec *change,
                            int64_t now_ms, struct error *e) {
    return rig_command(c, who, COMMAND_UPDATE, &(struct command_update){id, change}, now_ms, e);
}

static inline int do_drain(struct core *c, const struct actor *who, const char *node, const char *reason, int64_t now_ms,
                           struct error *e) {
    return rig_command(c, who, COMMAND_NODE_DRAIN, &(struct command_node_drain){node, reason}, now_ms, e);
}

static inline int do_resume(struct core *c, const struct actor *who, const char *node, int64_t now_ms, struct error *e) {
    return rig_command(c, who, COMMAND_NODE_RESUME, &(struct command_node){node}, now_ms, e);
}

static inline int do_node_remove(struct core *c, const struct actor *who, const char *node, int64_t now_ms,
                                 struct error *e) {
    return rig_command(c, who, COMMAND_NODE_REMOVE, &(struct command_node){node}, now_ms, e);
}

static inline int do_delete(struct core *c, const struct actor *who, enum entity_kind kind, const char *name, bool force,
                            int64_t now_ms, struct error *e) {
    return rig_command(c, who, COMMAND_ENTITY_DELETE, &(struct command_entity_delete){kind, name, force}, now_ms, e);
}

static inline int do_token_create(struct core *c, const struct actor *who, const struct command_token_create *t,
                                  int64_t now_ms, struct error *e) {
    return rig_command(c, who, COMMAND_TOKEN_CREATE, t, now_ms, e);
}

static inline int do_token_use(struct core *c, const char *id, const char *hash, const char *node,
                               const char *fingerprint, int64_t now_ms, struct error *e) {
    struct command_token_use m = {id, hash, node, fingerprint};
    return rig_command(c, &alice, COMMAND_TOKEN_USE, &m, now_ms, e);
}

static inline int do_token_revoke(struct core *c, const struct actor *who, const char *id, int64_t now_ms,
                                  struct error *e) {
    return rig_command(c, who, COMMAND_TOKEN_REVOKE, &(struct command_token_revoke){id}, now_ms, e);
}

static inline int do_upgrade_finish(struct core *c, const struct actor *who, int64_t now_ms, struct error *e) {
    return rig_command(c, who, COMMAND_UPGRADE_FINISH, &(struct command_empty){0}, now_ms, e);
}

static inline int do_project_set(struct core *c, const struct actor *who, const struct project *body, int64_t now_ms,
                         struct error *e) {
    return rig_command(c, who, COMMAND_PROJECT_SET, body, now_ms, e);
}

static inline int do_partition_set(struct core *c, const struct actor *who, const struct partition *body, int64_t now_ms,
                         struct error *e) {
    return rig_command(c, who, COMMAND_PARTITION_SET, body, now_ms, e);
}

static inline int do_qos_set(struct core *c, const struct actor *who, const struct qos *body, int64_t now_ms,
                         struct error *e) {
    return rig_command(c, who, COMMAND_QOS_SET, body, now_ms, e);
}

static inline int do_reservation_set(struct core *c, const struct actor *who, const struct reservation *body, int64_t now_ms,
                         struct error *e) {
    return rig_command(c, who, COMMAND_RESERVATION_SET, body, now_ms, e);
}

static inline int do_policy_set(struct core *c, const struct actor *who, const struct policy_settings *body, int64_t now_ms,
                         struct error *e) {
    struct policy_settings all = *body;
    for (size_t i = 0; i < policy_schema.count; i++)
        schema_give(&policy_schema, &all, (char *)&all + policy_schema.fields[i].offset);
    return rig_command(c, who, COMMAND_POLICY_SET, &all, now_ms, e);
}

static inline void rig_done(struct rig *r) {
    core_free(r->core);
    for (uint32_t i = 0; i < r->journal.len; i++)
        free(r->journal.at[i].data);
    vec_done(&r->journal);
    vec_done(&r->launches);
    vec_done(&r->notices);
}

static inline void rig_hello(struct rig *r, const char *name, uint32_t cpus, uint32_t gpus, const char *boot,
                             struct attempt *known, uint32_t count) {
    struct gpu g[16];
    char ids[16][8];
    for (uint32_t i = 0; i < gpus; i++) {
        snprintf(ids[i], sizeof ids[i], "g%u", i);
        g[i] = (struct gpu){.uuid = ids[i], .model = "V100", .memory_bytes = 32ull << 30, .simulated = true};
    }
    struct node n = {.name = name,
                     .boot_id = boot,
                     .spool_id = "s",
                     .cpus = cpus,
                     .memory_bytes = 64ull << 30,
                     .gpus = {g, gpus}};
    struct message_hello h = {.node = &n, .attempts = {known, count}};
    struct error e = {0};
    if (core_agent_hello(r->core, &h, NULL, r->now_ms, &e) < 0)
        fail_msg("hello: %s", e.text);
    core_schedule(r->core, r->now_ms);
    rig_drain(r);
}

static inline struct spec rig_spec(void) {
    static const char *argv[] = {"true"};
    return (struct spec){
        .name = "t", .workdir = "/tmp", .tasks = 1, .cpus_per_task = 1, .requeue = true, .argv = {argv, 1}};
}

static inline uint64_t rig_submit(struct rig *r, const struct actor *who, const struct spec *s) {
    uint64_t id, count;
    struct error e = {0};
    if (do_submit(r->core, who, s, NULL, false, r->now_ms, &id, &count, &e) < 0)
        fail_msg("submit: %s", e.text);
    while (core_array_continue(r->core, r->now_ms))
        ;
    core_schedule(r->core, r->now_ms);
    rig_drain(r);
    return id;
}

static inline enum job_state rig_state(struct rig *r, uint64_t id) {
    struct job_view v;
    return core_view(r->core, id, &v) ? v.state : JOB_STATE_COUNT;  // ended
}

static inline void rig_end(struct rig *r, const char *node, uint64_t id, uint32_t attempt,
                           enum end_cause cause, int32_t code) {
    struct usage u = {.cpu_user_us = 5, .wall_ms = 10};
    struct message_ended m = {
        .id = id, .attempt = attempt, .cause = cause, .exit_code = code, .usage = &u, .start_ms = r->now_ms};
    core_agent_ended(r->core, node, &m, r->now_ms);
    core_schedule(r->core, r->now_ms);
    rig_drain(r);
}

static inline void rig_started(struct rig *r, const char *node, uint64_t id, uint32_t attempt) {
    core_agent_started(r->core, node, &(struct message_started){.id = id, .attempt = attempt}, r->now_ms);
    rig_drain(r);
}

// The same state out of a snapshot, and out of the journal.
static inline void rig_assert_same_after_reload(struct rig *r) {
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
