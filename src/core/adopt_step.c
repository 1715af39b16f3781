// Steps after a restore of an older copy. A node lists a step with the event that created it; one that this journal
// does not have means that the step belongs to a state that is lost. Its first node has kept how it was created, and is
// asked: the step becomes one of its job again, with its number, key, lease and what it holds. It is never sent to its
// nodes: a node that does not have it either never got it or had its end acknowledged, so there it is over. One that is
// also on a node whose part of the job is not known yet (adopt_part.c) waits until that joins; its first node is asked
// again then. One whose CPUs or GPUs this state has given to another step before they were reported holds nothing here:
// both run on them. One whose number this state has given to another step, or adopted with one of another lost state,
// cannot be adopted: it runs on and ends with its job.
#include "base/text.h"
#include "model/name.h"
#include "state.h"

enum { TEXT_MAX = 255 };

bool core_step_was_adopted(const struct core_job *j, uint32_t number, uint64_t epoch) {
    const struct core_step_name *at;
    for (uint32_t i = core_steps_adopted(j, &at); i-- > 0;)
        if (at[i].number == number && at[i].epoch == epoch)
            return true;
    return false;
}

// Of whatever epoch: after two restores steps of two lost states may have one number.
static bool number_was_adopted(const struct core_job *j, uint32_t number) {
    const struct core_step_name *at;
    for (uint32_t i = core_steps_adopted(j, &at); i-- > 0;)
        if (at[i].number == number)
            return true;
    return false;
}

bool core_step_lost(const struct core *c, const struct core_job *j, uint32_t number, uint64_t epoch, uint64_t seq) {
    return core_feature(c, FEATURE_ADOPTED_STEPS) && seq && core_event_lost(c, epoch, seq) &&
           number > core_steps_own(j) && !number_was_adopted(j, number);
}

void core_step_ask(struct core *c, const struct core_job *j, const char *node, uint32_t number, uint64_t epoch) {
    struct message_step m = {
        .id = core_agent_job(j), .attempt = j->attempt, .step = number, .epoch = epoch};
    core_effect_send(c, node, MESSAGE_STEP_DESCRIBE, &m);
}

static bool is_line(const char *text) {
    return !text || name_line_check("step", text, TEXT_MAX, NULL) == 0;
}

static bool read_origin(const struct core *c, const struct core_job *j, const struct message_step_known *m,
                        struct arena *a, struct event_step *out) {
    size_t memory_max = m->origin.len * 32 + (1 << 20);
    if (!m->origin.len || schema_decode_bounded(event_info(EVENT_STEP_STARTED)->schema, m->origin.data,
                                                m->origin.len, memory_max, a, out) < 0)
        return false;
    if (out->step != m->step || !out->step || out->step >= CORE_STEPS_BELOW || out->epoch != m->epoch ||
        out->attempt != j->attempt || !core_step_lost(c, j, out->step, out->epoch, out->made_seq) ||
        !is_line(out->name) || !is_line(out->key) || !is_line(out->nodes))
        return false;
    out->id = j->id;
    out->adopted = true;
    out->state = JOB_RUNNING;
    out->environment_id = NULL;
    out->environment_bytes = 0;
    out->usage = NULL;
    out->ends.len = 0;
    return true;
}

// The nodes of the job that the step is on are asked how it is there.
static void look_at_others(struct core *c, struct core_job *j, const struct event_step *b, const char *node,
                           int64_t now_ms) {
    struct step_end with_job = {.id = b->id, .attempt = b->attempt, .step = b->step, .cause = END_NODE_FAIL,
                                .exit_code = 1, .error = "ended together with its job"};
    for (uint32_t i = 0; i < b->parts.len; i++) {
        const struct run_part *p = core_part_on(j, b->parts.at[i].node);
        struct core_step *s = core_step_same(j, b->step, b->epoch);
        if (s && (!p || p->ended))
            core_step_part_over(c, j, s, b->parts.at[i].node, &with_job, now_ms);
        else if (s && !streq(b->parts.at[i].node, node))
            core_step_ask(c, j, b->parts.at[i].node, b->step, b->epoch);
    }
}

static void hold_nothing(struct event_step *b) {
    for (uint32_t i = 0; i < b->parts.len; i++) {
        struct step_part *p = &b->parts.at[i];
        p->cpus.len = 0;
        p->memory_bytes = 0;
        p->owns_gpus = false;
    }
}

static void adopt(struct core *c, struct core_job *j, const char *node, const struct message_step_known *m,
                  int64_t now_ms) {
    cleanup_arena struct arena a = {0};
    struct event_step b;
    if (!read_origin(c, j, m, &a, &b))
        return;
    bool fits = core_step_fits(j, &b);
    if (!fits && core_step_wait(c, j, &b, node))
        return;  // until another of its nodes joins the job; without that it runs on, and ends with its job
    if (!fits)
        hold_nothing(&b);
    if (!fits && !core_step_fits(j, &b))
        return;
    core_emit(c, now_ms, EVENT_STEP_STARTED, &b);
    core_step_created(core_step_same(j, b.step, b.epoch), c->seq);
    look_at_others(c, j, &b, node, now_ms);
}

void core_agent_step_known(struct core *c, const char *node, const struct message_step_known *m, int64_t now_ms) {
    struct core_job *j;
    if (!core_reported_part(c, node, m->id, m->attempt, &j))
        return;
    if (m->known && !core_step_same(j, m->step, m->epoch))
        adopt(c, j, node, m, now_ms);
    struct core_step *s = core_step_same(j, m->step, m->epoch);
    struct step_end unknown = {.id = m->id, .attempt = m->attempt, .step = m->step, .cause = END_NODE_FAIL,
                               .exit_code = 1,
                               .error = "how it ended was lost when the controller's state was restored"};
    if (!s || !core_step_is_adopted(s))
        return;
    if (m->end)
        core_step_part_over(c, j, s, node, m->end, now_ms);
    else if (!m->known)
        core_step_part_over(c, j, s, node, &unknown, now_ms);
}
