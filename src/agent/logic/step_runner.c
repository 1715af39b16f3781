// Owns the steps that wait for their shepherds, and how long kills wait for checkpoint commands.
#include "agent/logic/step_runner.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

struct step_name {
    uint64_t id;
    uint32_t attempt, step;
    int64_t until_ms;
    struct message_exec *asked;  // its attempt is not in the spool yet; NULL: the step is there
    struct arena *arena;         // of that
};

struct agent_step_runner {
    struct agent_logic *logic;
    struct agent_step_host host;
    void *ctx;
    VEC(struct step_name) waiting;        // steps whose shepherd does not listen yet
    VEC(struct step_name) checkpointing;  // attempts whose kill waits for their checkpoint command
};

struct agent_step_runner *agent_step_runner_new(struct agent_logic *l, const struct agent_step_host *host,
                                                void *ctx) {
    struct agent_step_runner *r = xcalloc(1, sizeof *r);
    r->logic = l;
    r->host = *host;
    r->ctx = ctx;
    return r;
}

struct agent_step_runner *agent_step_runner_free(struct agent_step_runner *r) {
    if (!r)
        return NULL;
    for (uint32_t i = 0; i < r->waiting.len; i++) {
        if (r->waiting.at[i].arena)
            arena_done(r->waiting.at[i].arena);
        free(r->waiting.at[i].arena);
    }
    vec_done(&r->waiting);
    vec_done(&r->checkpointing);
    free(r);
    return NULL;
}

static void tell_ended(struct agent_step_runner *r, const struct step_end *end) {
    agent_logic_step_ended(r->logic, end);
    r->host.ended(r->ctx, end);
}

static void not_started(struct agent_step_runner *r, const struct step_name *s, const char *why) {
    struct step_end end = {.id = s->id,
                           .attempt = s->attempt,
                           .step = s->step,
                           .cause = END_LAUNCH,
                           .exit_code = 1,
                           .error = why};
    tell_ended(r, &end);
}

static bool does_not_listen(int rc) {
    return rc == -ENOENT || rc == -ECONNREFUSED || rc == -EAGAIN;
}

// Asks the shepherd. False: it does not listen yet.
static bool hand_over(struct agent_step_runner *r, const struct step_name *s, int64_t now_ms) {
    cleanup_arena struct arena arena = {0};
    int rc = r->host.start(r->ctx, s->id, s->attempt, s->step);
    bool young = does_not_listen(rc);
    bool over = agent_logic_phase(r->logic, s->id, s->attempt) == AGENT_ENDED;
    if (young && !over && now_ms < s->until_ms)
        return false;
    if (rc < 0 && rc != -EEXIST && rc != -EALREADY && rc != -ETIMEDOUT) {
        const char *why = rc == -ESHUTDOWN || young ? "the job is ending" : strerror(-rc);
        not_started(r, s, arena_printf(&arena, "cannot be started inside the job: %s", why));
    }
    return true;
}

static void start_later(struct agent_step_runner *r, uint64_t id, uint32_t attempt, uint32_t step,
                        int64_t now_ms) {
    struct step_name s = {
        .id = id, .attempt = attempt, .step = step, .until_ms = now_ms + AGENT_STEP_PATIENCE_MS};
    if (!hand_over(r, &s, now_ms))
        vec_push(&r->waiting, s);
}

// False: its attempt is not in the spool yet.
static bool prepare(struct agent_step_runner *r, const struct message_exec *m, bool patient, int64_t now_ms) {
    struct step_name s = {.id = m->id, .attempt = m->attempt, .step = m->step};
    struct error e = {0};
    int rc = r->host.create(r->ctx, m, &e);
    if (rc == -EAGAIN && patient)
        return false;
    if (rc < 0 && rc != -EEXIST)
        not_started(r, &s, e.text[0] ? e.text : strerror(-rc));
    else
        start_later(r, m->id, m->attempt, m->step, now_ms);
    return true;
}

void agent_step_runner_start(struct agent_step_runner *r, const struct message_exec *m, int64_t now_ms) {
    struct step_name s = {
        .id = m->id, .attempt = m->attempt, .step = m->step, .until_ms = now_ms + AGENT_STEP_PATIENCE_MS};
    if (prepare(r, m, true, now_ms))
        return;
    s.arena = xcalloc(1, sizeof *s.arena);
    s.asked = schema_copy(&message_exec_schema, m, s.arena);
    vec_push(&r->waiting, s);
}

static void forget_asked(struct step_name *s) {
    if (s->arena)
        arena_done(s->arena);
    free(s->arena);
    s->arena = NULL;
}

void agent_step_runner_retry(struct agent_step_runner *r, int64_t now_ms) {
    uint32_t n = r->waiting.len;
    struct step_name *list = r->waiting.at;
    r->waiting.at = NULL;
    r->waiting.len = r->waiting.cap = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct step_name *s = &list[i];
        if (s->asked ? prepare(r, s->asked, now_ms < s->until_ms, now_ms) : hand_over(r, s, now_ms))
            forget_asked(s);
        else
            vec_push(&r->waiting, *s);
    }
    free(list);
}

bool agent_step_runner_waits(const struct agent_step_runner *r) {
    return r->waiting.len > 0;
}

void agent_step_runner_check(struct agent_step_runner *r, uint64_t id, uint32_t attempt, uint32_t step) {
    cleanup_arena struct arena a = {0};
    struct agent_step_look look = {0};
    if (agent_steps_phase(agent_logic_steps(r->logic), id, attempt, step) != AGENT_STEP_RUNNING)
        return;
    if (r->host.look(r->ctx, id, attempt, step, &a, &look) < 0)
        return;
    if (look.state == AGENT_STEP_OVER)
        tell_ended(r, &look.end);
    else
        agent_logic_step_listens(r->logic, id, attempt, step, look.listens);
}

struct running {
    uint64_t id;  // 0: of all attempts
    uint32_t attempt;
    VEC(struct step_name) list;
};

static void collect(void *ctx, uint64_t id, uint32_t attempt, uint32_t step) {
    struct running *l = ctx;
    if (!l->id || (l->id == id && l->attempt == attempt))
        vec_push(&l->list, (struct step_name){.id = id, .attempt = attempt, .step = step});
}

// `close`: the attempt has ended, and whatever has no end yet gets one.
static void look_at_running(struct agent_step_runner *r, uint64_t id, uint32_t attempt, bool close) {
    struct running l = {.id = id, .attempt = attempt};
    agent_steps_each_running(agent_logic_steps(r->logic), collect, &l);
    for (uint32_t i = 0; i < l.list.len; i++) {
        const struct step_name *s = &l.list.at[i];
        struct step_end lost = {.id = s->id,
                                .attempt = s->attempt,
                                .step = s->step,
                                .cause = END_NODE_FAIL,
                                .exit_code = 1,
                                .error = "ended together with its job"};
        agent_step_runner_check(r, s->id, s->attempt, s->step);
        if (close)
            tell_ended(r, &lost);  // no news when its end was found
    }
    vec_done(&l.list);
}

void agent_step_runner_look(struct agent_step_runner *r) {
    look_at_running(r, 0, 0, false);
}

void agent_step_runner_attempt_ended(struct agent_step_runner *r, uint64_t id, uint32_t attempt) {
    look_at_running(r, id, attempt, true);
    // After a restore another attempt may have its number: that one's checkpoint has a grace of its own.
    for (uint32_t i = r->checkpointing.len; i-- > 0;)
        if (r->checkpointing.at[i].id == id && r->checkpointing.at[i].attempt == attempt)
            vec_remove(&r->checkpointing, i);
}

void agent_step_runner_recover(struct agent_step_runner *r, uint64_t id, uint32_t attempt, uint32_t step,
                               const struct agent_step_look *found, int64_t now_ms) {
    if (step >= AGENT_STEPS_BELOW)
        return;  // a command whose stream is gone, or the checkpoint
    agent_logic_step_recover(r->logic, id, attempt, step, &found->origin,
                             found->state == AGENT_STEP_OVER ? &found->end : NULL);
    if (found->state == AGENT_STEP_STARTED)
        agent_logic_step_listens(r->logic, id, attempt, step, found->listens);
    if (found->state == AGENT_STEP_CREATED)
        start_later(r, id, attempt, step, now_ms);
}

// --- checkpoints ---

// When the kill stops waiting, by this agent's own count: also for a command that is never started.
static int64_t patience_until(struct agent_step_runner *r, const struct agent_action *k, int64_t now_ms) {
    for (uint32_t i = 0; i < r->checkpointing.len; i++)
        if (r->checkpointing.at[i].id == k->id && r->checkpointing.at[i].attempt == k->attempt)
            return r->checkpointing.at[i].until_ms;
    if (r->checkpointing.len >= AGENT_CHECKPOINTS_MAX)
        vec_remove(&r->checkpointing, 0);
    struct step_name c = {.id = k->id, .attempt = k->attempt, .until_ms = now_ms + k->grace_ms};
    vec_push(&r->checkpointing, c);
    return c.until_ms;
}

static int create_checkpoint(struct agent_step_runner *r, const struct agent_action *k, struct error *e) {
    const char *argv[] = {"/bin/sh", "-c", k->checkpoint};
    struct message_exec m = {.id = k->id,
                             .attempt = k->attempt,
                             .step = r->host.checkpoint_step,
                             .argv = {argv, 3},
                             .tasks = 1,
                             .total_tasks = 1};
    return r->host.create(r->ctx, &m, e);
}

bool agent_step_runner_checkpoint(struct agent_step_runner *r, const struct agent_action *k, int64_t now_ms) {
    cleanup_arena struct arena a = {0};
    struct agent_step_look look = {0};
    struct error e = {0};
    if (agent_logic_phase(r->logic, k->id, k->attempt) != AGENT_RUNNING ||
        now_ms >= patience_until(r, k, now_ms))
        return false;
    int rc = r->host.look(r->ctx, k->id, k->attempt, r->host.checkpoint_step, &a, &look);
    if (rc == 0 && look.state == AGENT_STEP_OVER)
        return false;
    if (rc == 0 && look.state == AGENT_STEP_STARTED)  // maybe by an agent before this one
        return now_ms < look.started_mono_ms + k->grace_ms;
    if (rc == 0 && look.state == AGENT_STEP_ABSENT)
        rc = create_checkpoint(r, k, &e);
    if (rc == 0) {
        rc = r->host.start(r->ctx, k->id, k->attempt, r->host.checkpoint_step);
        rc = does_not_listen(rc) ? 0 : rc;  // it listens in a moment
    }
    if (rc == -EEXIST || rc == -EALREADY || rc == -ETIMEDOUT)  // it was or will be started
        rc = 0;
    if (rc < 0)
        r->host.warn(r->ctx, k->id, e.text[0] ? e.text : strerror(-rc));
    return rc == 0;
}
