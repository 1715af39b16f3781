// Simulated steps: what shepherds and the attempt's folder do for them. Which step is started, asked about and
// reported is decided by the product's own agent/logic/step_runner.c; this file is its host.
#include <errno.h>
#include <signal.h>
#include <stdlib.h>

#include "base/text.h"
#include "fault_sim.h"
#include "seams.h"

enum { MPI_PATIENCE_MS = 120000 };

struct sim_step *step_find(struct sim_unit *u, uint32_t number) {
    for (uint32_t i = 0; u && i < u->steps.len; i++)
        if (u->steps.at[i].number == number)
            return &u->steps.at[i];
    return NULL;
}

static void plan_change(struct sim *s, struct machine *m, struct sim_unit *u, struct sim_step *t,
                        int64_t in_ms) {
    after(s, in_ms, HAPPEN_STEP, m->number, u->number << 32 | t->number, ++t->turn);
}

static void hint(struct sim *s, struct machine *m, const struct sim_unit *u, const struct sim_step *t) {
    if (rand_below(&s->rand, 10) != 0)  // hints get lost: the agent looks now and then
        after(s, some_ms(s, 0, 4), HAPPEN_STEP_HINT, m->number, m->agent_life, u->number << 32 | t->number);
}

// What it does is in its command: how long it runs and how it exits.
static int create(void *ctx, const struct message_exec *x, struct error *e) {
    struct machine *m = ctx;
    struct sim *s = m->sim;
    struct sim_unit *u = unit_find(m, x->id, x->attempt);
    struct sim_step t = {
        .number = x->step, .epoch = x->epoch, .seq = x->seq, .created_ms = s->now_ms, .run_ms = 10};
    if (x->origin.len)
        t.origin = (struct bytes){arena_memdup(&s->arena, x->origin.data, x->origin.len), x->origin.len};
    uint32_t code = 0;
    if (!u)
        return error_set(e, ENOENT, "the attempt has no folder");
    if (step_find(u, x->step) && !(x->step == SIM_CHECKPOINT_STEP && seams_planted(PLANTED_CHECKPOINT_TWICE)))
        return -EEXIST;
    if (m->spool_full_until_ms > s->now_ms)
        return error_set(e, ENOSPC, "no space left in the spool");
    if (x->step == SIM_CHECKPOINT_STEP) {
        t.run_ms = u->behaviour.checkpoint_ms;
        if (step_find(u, x->step))  // planted: beside the one that an agent before this one has started
            t.number--;
    } else if (x->argv.len == 3 && parse_u32(x->argv.at[1], &t.run_ms) == 0 &&
               parse_u32(x->argv.at[2], &code) == 0) {
        t.exit_code = (int32_t)code;
    }
    t.mpi = x->mpi && x->node_count > 1;
    t.first = t.mpi && x->node_index == 0;
    t.life = m->agent_life;
    vec_push(&u->steps, t);
    return 0;
}

static int start(void *ctx, uint64_t id, uint32_t attempt, uint32_t step) {
    struct machine *m = ctx;
    struct sim *s = m->sim;
    struct sim_unit *u = unit_find(m, id, attempt);
    struct sim_step *t = step_find(u, step);
    if (seams_planted(PLANTED_CHECKPOINT_TWICE) && step == SIM_CHECKPOINT_STEP && step_find(u, step - 1))
        t = step_find(u, step - 1);
    if (!u || !u->shepherd || u->phase == PHASE_SPAWN)
        return u ? -ECONNREFUSED : -ENOENT;
    if (rand_below(&s->rand, 8) == 0)
        return -EAGAIN;
    if (!t)
        return -ENOENT;
    if (t->state != UNIT_CREATED)
        return t->state == UNIT_RUNNING ? -EEXIST : -EALREADY;
    if (u->phase != PHASE_RUN)
        return -ESHUTDOWN;
    t->state = UNIT_RUNNING;
    t->live = true;
    t->began_ms = s->now_ms;
    t->started_mono_ms = machine_mono_ms(s, m);
    s->steps_started++;
    note(s, "%s: job %llu attempt %u step %u runs", m->name, (unsigned long long)id, attempt, step);
    check_step_started(s, m, u, t);
    if (step != SIM_CHECKPOINT_STEP)
        stream_step_started(s, m, u, t);
    plan_change(s, m, u, t, t->run_ms);
    return rand_below(&s->rand, 20) == 0 ? -ETIMEDOUT : 0;  // the answer may come too late
}

static const uint8_t sim_hub_key[MESSAGE_HUB_KEY_BYTES] = "simulated key";

// Of the helper on the step's first node: another one for every step.
static uint32_t hub_port(const struct sim_unit *u, const struct sim_step *t) {
    return 1 + (uint32_t)((u->id * 1000 + u->attempt * 100 + t->number) % 60000);
}

void step_hub(struct sim *s, struct machine *m, const struct agent_action *a) {
    const struct message_step_hub *h = a->message.body;
    struct sim_unit *u = unit_find(m, a->id, a->attempt);
    struct sim_step *t = step_find(u, a->step);
    if (!t || t->state != UNIT_RUNNING || rand_below(&s->rand, 10) == 0)
        return;  // the agent has not told the shepherd when it was killed
    if (h->port != hub_port(u, t) || h->key.len != sizeof sim_hub_key)
        sim_fail(s, "%s: job %llu step %u is sent to the helper of another step", m->name,
                 (unsigned long long)a->id, a->step);
    t->found = true;
}

static void describe(struct machine *m, const struct sim_unit *u, const struct sim_step *t, struct arena *a,
                     struct agent_step_look *out) {
    struct stream_truth printed = {0};
    stream_find(m, u->id, u->attempt, t->number, t->epoch, &printed);
    *out = (struct agent_step_look){.state = t->state == UNIT_CREATED   ? AGENT_STEP_CREATED
                                             : t->state == UNIT_RUNNING ? AGENT_STEP_STARTED
                                                                        : AGENT_STEP_OVER,
                                    .started_mono_ms = t->started_mono_ms,
                                    .origin = {t->epoch, t->seq, t->origin}};
    if (t->state == UNIT_RUNNING && t->mpi && !t->found) {
        struct message_step_hub *h = arena_alloc(a, sizeof *h);
        *h = (struct message_step_hub){.port = t->first ? hub_port(u, t) : 0,
                                       .key = {sim_hub_key, sizeof sim_hub_key}};
        out->listens = h;
    }
    if (t->state == UNIT_ENDED)
        out->end = (struct step_end){.id = u->id,
                                     .attempt = u->attempt,
                                     .step = t->number,
                                     .cause = t->cause,
                                     .exit_code = t->exit_code,
                                     .exit_signal = t->exit_signal,
                                     .output_bytes = printed.kept + printed.lost,
                                     .usage = arena_memdup(a, &t->usage, sizeof t->usage)};
}

static int look(void *ctx, uint64_t id, uint32_t attempt, uint32_t step, struct arena *a,
                struct agent_step_look *out) {
    struct machine *m = ctx;
    struct sim_unit *u = unit_find(m, id, attempt);
    struct sim_step *t = step_find(u, step);
    if (!u)
        return -ENOENT;
    if (seams_planted(PLANTED_CHECKPOINT_TWICE) && step == SIM_CHECKPOINT_STEP && t &&
        t->life != m->agent_life)
        t = NULL;  // an agent that knows only the commands that it has started itself
    *out = (struct agent_step_look){.state = AGENT_STEP_ABSENT};
    if (t)
        describe(m, u, t, a, out);
    return 0;
}

static void ended(void *ctx, const struct step_end *end) {
    struct machine *m = ctx;
    stream_pump(m->sim, m);
}

static void warn(void *ctx, uint64_t id, const char *text) {
    struct machine *m = ctx;
    note(m->sim, "%s: job %llu: its checkpoint command cannot be run: %s", m->name, (unsigned long long)id,
         text);
}

const struct agent_step_host step_host = {create, start, look, ended, warn, SIM_CHECKPOINT_STEP};

void step_recover(struct sim *s, struct machine *m, struct sim_unit *u) {
    for (uint32_t i = 0; i < u->steps.len; i++) {
        cleanup_arena struct arena a = {0};
        struct agent_step_look found;
        describe(m, u, &u->steps.at[i], &a, &found);
        u->steps.at[i].leftover = false;  // this agent learns anew that it may go
        agent_step_runner_recover(m->runner, u->id, u->attempt, u->steps.at[i].number, &found,
                                  machine_mono_ms(s, m));
    }
}

static void gone(struct sim *s, struct machine *m, struct sim_unit *u, struct sim_step *t) {
    uint64_t wall = (uint64_t)(s->now_ms - t->began_ms);
    t->live = false;
    t->state = UNIT_ENDED;
    t->turn++;
    t->usage = (struct usage){.cpu_user_us = wall * 700, .wall_ms = wall, .memory_peak_bytes = 1 << 16};
    note(s, "%s: job %llu attempt %u step %u is over (exit %d, signal %u)", m->name,
         (unsigned long long)u->id, u->attempt, t->number, t->exit_code, t->exit_signal);
    check_step_ended(s, m, u, t);
    stream_step_over(m, u, t);
    hint(s, m, u, t);
}

void step_change(struct sim *s, struct machine *m, struct sim_unit *u, struct sim_step *t) {
    if (!t->live)
        return;
    if (u->suspended && !t->killed) {
        plan_change(s, m, u, t, 500);
        return;
    }
    // The ranks of an MPI program wait for each other.
    if (t->mpi && !t->first && !t->found && !t->killed && s->now_ms - t->began_ms < MPI_PATIENCE_MS) {
        plan_change(s, m, u, t, 500);
        return;
    }
    gone(s, m, u, t);
}

// The attempt is over: its shepherd ends what is left of its steps and writes it down.
void step_end_all(struct sim *s, struct machine *m, struct sim_unit *u) {
    for (uint32_t i = 0; i < u->steps.len; i++)
        if (u->steps.at[i].live) {
            u->steps.at[i].exit_code = 0;
            u->steps.at[i].exit_signal = SIGKILL;
            u->steps.at[i].cause = END_CANCEL;
            gone(s, m, u, &u->steps.at[i]);
        }
}

// Power is lost or the shepherd died: nothing is written.
void step_stop_all(struct sim_unit *u) {
    for (uint32_t i = 0; i < u->steps.len; i++) {
        u->steps.at[i].live = false;
        u->steps.at[i].turn++;
    }
}

void step_kill(struct sim *s, struct machine *m, struct sim_unit *u, uint32_t number, uint32_t signal,
               int64_t grace_ms) {
    struct sim_step *t = step_find(u, number);
    if (!t || !t->live || !u->shepherd || rand_below(&s->rand, 8) == 0)
        return;  // the logic asks again
    check_step_killed(s, m, u, t);
    if (t->killed && signal != SIGKILL)
        return;
    t->killed = true;
    t->exit_code = 0;
    t->exit_signal = signal;
    t->cause = END_CANCEL;
    plan_change(s, m, u, t, signal == SIGKILL ? 1 : some_ms(s, 1, grace_ms < 300 ? grace_ms + 1 : 300));
}

void step_remove(struct sim *s, struct machine *m, struct sim_unit *u, uint32_t number) {
    struct sim_step *t = step_find(u, number);
    if (!t)
        return;
    if (t->live)
        sim_fail(s, "%s: the files of job %llu attempt %u step %u were removed while it runs", m->name,
                 (unsigned long long)u->id, u->attempt, number);
    check_step_removed(s, m, u, t);
    struct stream_truth printed;
    t->leftover = stream_find(m, u->id, u->attempt, number, t->epoch, &printed) && printed.wanted;
    stream_step_removed(s, m, u->id, u->attempt, number);
    if (!t->leftover)
        vec_remove(&u->steps, (uint32_t)(t - u->steps.at));
}

// The output that its client wanted is gone, and with it what is left of the step.
void step_forget(struct machine *m, uint64_t id, uint32_t attempt, uint32_t number) {
    struct sim_unit *u = unit_find(m, id, attempt);
    struct sim_step *t = step_find(u, number);
    if (t && t->leftover)
        vec_remove(&u->steps, (uint32_t)(t - u->steps.at));
}
