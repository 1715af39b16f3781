// Owns the table of steps.
#include "agent/logic/steps.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/vec.h"

struct agent_step {
    uint64_t id;
    uint32_t attempt, step;
    enum agent_step_phase phase;
    struct arena arena;  // of the end
    struct step_end *end;
    bool kill;
    struct message_kill order;
    int64_t kill_next_ms;
};

struct agent_steps {
    VEC(struct agent_step) list;  // in the order in which they came
};

struct agent_steps *agent_steps_new(void) {
    return xcalloc(1, sizeof(struct agent_steps));
}

struct agent_steps *agent_steps_free(struct agent_steps *s) {
    if (!s)
        return NULL;
    for (uint32_t i = 0; i < s->list.len; i++)
        arena_done(&s->list.at[i].arena);
    vec_done(&s->list);
    free(s);
    return NULL;
}

// The newest are asked for most.
static struct agent_step *find(const struct agent_steps *s, uint64_t id, uint32_t attempt, uint32_t step) {
    for (uint32_t i = s->list.len; i-- > 0;) {
        struct agent_step *x = &s->list.at[i];
        if (x->step == step && x->id == id && x->attempt == attempt)
            return x;
    }
    return NULL;
}

static struct agent_step *add(struct agent_steps *s, uint64_t id, uint32_t attempt, uint32_t step) {
    vec_push(&s->list,
             (struct agent_step){.id = id, .attempt = attempt, .step = step, .phase = AGENT_STEP_RUNNING});
    return &s->list.at[s->list.len - 1];
}

bool agent_steps_start(struct agent_steps *s, uint64_t id, uint32_t attempt, uint32_t step) {
    if (!step || find(s, id, attempt, step))
        return false;
    add(s, id, attempt, step);
    return true;
}

void agent_steps_recover(struct agent_steps *s, uint64_t id, uint32_t attempt, uint32_t step,
                         const struct step_end *end) {
    if (!find(s, id, attempt, step))
        add(s, id, attempt, step);
    if (end)
        agent_steps_ended(s, end);
}

enum agent_step_phase agent_steps_phase(const struct agent_steps *s, uint64_t id, uint32_t attempt, uint32_t step) {
    const struct agent_step *x = find(s, id, attempt, step);
    return x ? x->phase : AGENT_STEP_UNKNOWN;
}

const struct step_end *agent_steps_end(const struct agent_steps *s, uint64_t id, uint32_t attempt, uint32_t step) {
    const struct agent_step *x = find(s, id, attempt, step);
    return x ? x->end : NULL;
}

bool agent_steps_ended(struct agent_steps *s, const struct step_end *end) {
    struct agent_step *x = find(s, end->id, end->attempt, end->step);
    if (!x || x->phase != AGENT_STEP_RUNNING)
        return false;
    x->phase = AGENT_STEP_ENDED;
    x->kill = false;
    x->end = schema_copy(&event_step_end_schema, end, &x->arena);
    return true;
}

bool agent_steps_acked(struct agent_steps *s, uint64_t id, uint32_t attempt, uint32_t step) {
    struct agent_step *x = find(s, id, attempt, step);
    if (!x || x->phase != AGENT_STEP_ENDED)
        return false;
    x->phase = AGENT_STEP_FORGOTTEN;
    x->end = NULL;
    arena_done(&x->arena);
    x->arena = (struct arena){0};
    return true;
}

void agent_steps_kill(struct agent_steps *s, const struct message_kill *m, int64_t now_ms) {
    struct agent_step *x = find(s, m->id, m->attempt, m->step);
    if (!x || x->phase != AGENT_STEP_RUNNING)
        return;
    x->kill = true;
    x->order = (struct message_kill){.id = m->id, .attempt = m->attempt, .step = m->step, .cause = m->cause,
                                     .signal = m->signal, .grace_s = m->grace_s};
    x->kill_next_ms = now_ms;
}

bool agent_steps_due(struct agent_steps *s, int64_t now_ms, struct message_kill *out) {
    for (uint32_t i = 0; i < s->list.len; i++) {
        struct agent_step *x = &s->list.at[i];
        if (x->kill && now_ms >= x->kill_next_ms) {
            x->kill_next_ms = now_ms + AGENT_STEP_KILL_RETRY_MS;
            *out = x->order;
            return true;
        }
    }
    return false;
}

uint32_t agent_steps_last(const struct agent_steps *s, uint64_t id, uint32_t attempt) {
    uint32_t last = 0;
    for (uint32_t i = 0; i < s->list.len; i++)
        if (s->list.at[i].id == id && s->list.at[i].attempt == attempt && s->list.at[i].step > last)
            last = s->list.at[i].step;
    return last;
}

void agent_steps_list(const struct agent_steps *s, struct attempt *out, struct arena *a) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->list.len; i++)
        n += s->list.at[i].id == out->id && s->list.at[i].attempt == out->attempt;
    out->last_step = agent_steps_last(s, out->id, out->attempt);
    if (!n)
        return;
    out->steps.at = arena_alloc(a, n * sizeof *out->steps.at);
    for (uint32_t i = 0; i < s->list.len; i++) {
        const struct agent_step *x = &s->list.at[i];
        if (x->id == out->id && x->attempt == out->attempt && x->phase != AGENT_STEP_FORGOTTEN)
            out->steps.at[out->steps.len++] = (struct step_state){.step = x->step, .end = x->end};
    }
}

void agent_steps_drop(struct agent_steps *s, uint64_t id, uint32_t attempt) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < s->list.len; i++) {
        if (s->list.at[i].id == id && s->list.at[i].attempt == attempt)
            arena_done(&s->list.at[i].arena);
        else
            s->list.at[kept++] = s->list.at[i];
    }
    s->list.len = kept;
}

void agent_steps_each_running(const struct agent_steps *s, agent_step_fn *fn, void *ctx) {
    for (uint32_t i = 0; i < s->list.len; i++)
        if (s->list.at[i].phase == AGENT_STEP_RUNNING)
            fn(ctx, s->list.at[i].id, s->list.at[i].attempt, s->list.at[i].step);
}
