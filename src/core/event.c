// Events: each is numbered, encoded, applied and put into the outbox, followed by its effects. Also replay.
#include <assert.h>
#include <errno.h>

#include "state.h"

void core_emit(struct core *c, int64_t now_ms, enum event_type type, void *body) {
    struct event e = {.type = type, .at_ms = now_ms, .body = body};
    struct outbox *o = &c->outbox;
    uint64_t seq = ++c->seq;
    uint32_t offset = (uint32_t)o->bytes.len;
    assert(!c->replaying && o->bytes.len < UINT32_MAX / 2);
    // What an earlier release cannot apply is not written before the upgrade is finished.
    assert(event_info(type)->level <= c->level || type == EVENT_LEVEL_SET);
    core_notice(c, seq, &e);  // before it is encoded: it says then whether somebody is notified
    event_encode(&e, &o->bytes);
    struct outbox_event record = {.seq = seq,
                                  .at_ms = now_ms,
                                  .type = type,
                                  .job = event_job_id(&e),
                                  .offset = offset,
                                  .len = (uint32_t)(o->bytes.len - offset)};
    vec_push(&o->events, record);
    const struct core_job *j = record.job ? core_find_job(c, record.job) : NULL;
    uint64_t group = j && core_is_worker(j) ? core_group_of(j)->id : 0;
    core_apply(c, &e);
    // Clients attach to a job when they are notified, which must come after its launch message: schedule.c notifies
    // of placements.
    if (record.job && type != EVENT_JOB_PLACED && type != EVENT_WORKERS_PLACED)
        core_effect(c, EFFECT_JOB_CHANGED, NULL, record.job, 0);
    if (group)
        core_effect(c, EFFECT_JOB_CHANGED, NULL, group, 0);
}

void core_effect(struct core *c, enum effect_type type, const char *node, uint64_t job, uint32_t attempt) {
    struct effect e = {.type = type, .node = node, .job = job, .attempt = attempt};
    vec_push(&c->outbox.effects, e);
}

void core_effect_send(struct core *c, const char *node, enum message_type type, void *body) {
    struct outbox *o = &c->outbox;
    struct effect e = {.type = EFFECT_SEND, .node = core_intern(c, node), .offset = (uint32_t)o->bytes.len};
    message_encode(&(struct message){type, body}, &o->bytes);
    e.len = (uint32_t)(o->bytes.len - e.offset);
    vec_push(&o->effects, e);
}

struct outbox *core_outbox(struct core *c) {
    return &c->outbox;
}

void core_outbox_clear(struct outbox *o) {
    vec_clear(&o->events);
    vec_clear(&o->effects);
    vec_clear(&o->finished);
    vec_clear(&o->notices);
    if (o->bytes.cap > 256 << 10)
        buf_done(&o->bytes);  // do not keep the memory of a burst
    else
        buf_clear(&o->bytes);
}

int core_replay(struct core *c, uint64_t seq, int64_t at_ms, enum event_type type, const void *data, size_t len) {
    cleanup_arena struct arena a = {0};
    struct event e;
    if (seq != c->seq + 1)
        return -EBADMSG;
    // What a later release wrote is refused: leaving it out would make another state.
    int r = event_decode(type, data, len, &a, &e);
    if (r < 0)
        return r;
    if (type == EVENT_LEVEL_SET && ((struct event_level_set *)e.body)->level > FEATURE_LEVEL_NEWEST)
        return -EPROTONOSUPPORT;
    if (!core_event_loads(c, &e))
        return -EBADMSG;
    e.at_ms = at_ms;
    c->replaying = true;
    c->seq = seq;
    core_apply(c, &e);
    c->replaying = false;
    return 0;
}

uint64_t core_seq(const struct core *c) {
    return c->seq;
}
