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
    uint32_t kills, acks, finished;
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
    rig_drain(r);
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
    if (core_submit(r->core, who, s, NULL, false, r->now_ms, &id, &count, &e) < 0)
        fail_msg("submit: %s", e.text);
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
