// The journal's feature level: which kinds of records it may hold, and finishing an upgrade.
#include <assert.h>
#include <errno.h>

#include "state.h"

uint32_t core_level(const struct core *c) {
    return c->level;
}

bool core_feature(const struct core *c, enum feature f) {
    return c->level >= feature_info(f)->level;
}

static void set_level(struct core *c, const char *by, int64_t now_ms) {
    struct event_level_set b = {.level = FEATURE_LEVEL_NEWEST, .by = by};
    core_emit(c, now_ms, EVENT_LEVEL_SET, &b);
}

int64_t core_last_event_before_start_ms(const struct core *c) {
    return c->before_start_ms;
}

void core_start(struct core *c, int64_t now_ms) {
    c->before_start_ms = c->last_event_ms;
    if (!c->seq)
        set_level(c, NULL, now_ms);
    if (core_feature(c, FEATURE_EPOCHS))
        core_epoch_begin(c, 0, now_ms);
}

CORE_COMMAND(core_command_upgrade_finish) {
    int r = core_need_admin(actor, "finish an upgrade", e);
    if (r < 0)
        return r;
    if (c->level == FEATURE_LEVEL_NEWEST)
        return 0;
    bool had_epochs = core_feature(c, FEATURE_EPOCHS);
    set_level(c, actor->user, now_ms);
    if (!had_epochs)
        core_epoch_begin(c, 0, now_ms);
    return 0;
}

void core_apply_level(struct core *c, const struct event_level_set *b) {
    assert(b->level <= FEATURE_LEVEL_NEWEST);  // core_replay has refused others
    c->level = b->level;
}
