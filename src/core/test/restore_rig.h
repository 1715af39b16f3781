// What tests of restores share: the state goes back to an older copy, and the nodes do not.
#pragma once
#include "rig.h"

static uint32_t epoch_random;

// A core as it was after the first `count` records, started again.
static inline void restore(struct rig *r, uint32_t count) {
    struct core_config config;
    core_config_default(&config);
    config.epoch_random = epoch_random;
    core_free(r->core);
    r->core = core_new(&config);
    for (uint32_t i = 0; i < r->journal.len; i++) {
        const struct journal_record *j = &r->journal.at[i];
        if (i < count)
            assert_int_equal(core_replay(r->core, j->e.seq, j->e.at_ms, j->e.type, j->data, j->e.len), 0);
        else
            free(j->data);
    }
    r->journal.len = count;
    vec_clear(&r->launches);
    r->kills = r->acks = r->finished = 0;
    r->now_ms += 60000;
    core_start(r->core, r->now_ms);
    core_agent_gone(r->core, "n1", r->now_ms);
    core_agent_gone(r->core, "n2", r->now_ms);
    rig_drain(r);
}

struct remembered {  // what an agent knows of an attempt
    struct message_launch launch;
    struct arena arena;
};

static inline void remember(struct rig *r, const char *node, uint64_t id, uint32_t attempt,
                            struct remembered *out) {
    *out = (struct remembered){0};
    assert_int_equal(core_launch(r->core, id, attempt, node, &out->arena, &out->launch), 0);
    struct message_launch *own = schema_copy(message_info(MESSAGE_LAUNCH)->schema, &out->launch, &out->arena);
    out->launch = *own;
    assert_true(out->launch.epoch > 0 && out->launch.seq > 0);
}

static inline struct attempt attempt_of(const struct remembered *k) {
    return (struct attempt){
        .id = k->launch.id, .attempt = k->launch.attempt, .epoch = k->launch.epoch, .seq = k->launch.seq};
}
