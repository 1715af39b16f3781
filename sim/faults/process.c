// Simulated shepherds and jobs: starting late, ignoring signals, hanging in the kernel, leaving daemons behind. Follows
// the rules of the spool: an attempt has a folder before it has a process, and its end is written when its last
// process is gone.
#include <errno.h>
#include <signal.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/text.h"
#include "fault_sim.h"

struct sim_unit *unit_find(struct machine *m, uint64_t id, uint32_t attempt) {
    for (uint32_t i = 0; i < m->units.len; i++)
        if (m->units.at[i]->id == id && m->units.at[i]->attempt == attempt)
            return m->units.at[i];
    return NULL;
}

struct sim_unit *unit_by_number(struct machine *m, uint64_t number) {
    for (uint32_t i = 0; i < m->units.len; i++)
        if (m->units.at[i]->number == number)
            return m->units.at[i];
    return NULL;
}

// The job's command names the item that submitted it.
static struct behaviour behaviour_of(const struct sim *s, const struct message_launch *l) {
    uint32_t item = 0;
    struct behaviour b = {.run_ms = 10};
    if (l->spec->argv.len > 1 && parse_u32(l->spec->argv.at[1], &item) == 0 && item < s->plan->items.len &&
        s->plan->items.at[item].job)
        b = s->plan->items.at[item].job->behaviour;
    b.run_ms += l->array_index * 137 + l->node_index * 29;
    return b;
}

struct sim_unit *unit_free(struct sim_unit *u) {
    free(u->origin);
    vec_done(&u->steps);
    free(u);
    return NULL;
}

int unit_create(struct sim *s, struct machine *m, const struct message_launch *l) {
    if (unit_find(m, l->id, l->attempt))
        return -EEXIST;
    if (m->spool_full_until_ms > s->now_ms)
        return -ENOSPC;
    struct sim_unit *u = xcalloc(1, sizeof *u);
    *u = (struct sim_unit){.number = ++s->units_made,
                       .id = l->id,
                       .attempt = l->attempt,
                       .epoch = l->epoch,
                       .boot = m->boot,
                       .created_ms = s->now_ms,
                       .behaviour = behaviour_of(s, l),
                       .cpus = l->part->cpus,
                       .memory_bytes = l->part->memory_bytes,
                       .time_limit_s = l->time_limit_s,
                       .grace_s = l->spec->grace_s ? l->spec->grace_s : s->plan->grace_s};
    u->members_generation = l->workers ? l->workers->generation : 0;
    for (uint32_t i = 0; i < l->part->gpus.len && i < GPUS_MAX; i++)
        u->gpus[u->gpu_count++] = l->part->gpus.at[i];
    snprintf(u->node, sizeof u->node, "%s", m->name);
    u->attached = l->spec->attach;
    vec_push(&m->units, u);
    return 0;
}

static void plan_change(struct sim *s, struct machine *m, struct sim_unit *u, int64_t in_ms) {
    u->due_ms = s->now_ms + in_ms;
    after(s, in_ms, HAPPEN_PROCESS, m->number, u->number, ++u->turn);
}

void unit_handover(struct sim *s, struct machine *m, struct sim_unit *u) {
    if (u->handed || u->state != UNIT_CREATED)
        return;
    u->handed = u->shepherd = true;
    u->phase = PHASE_SPAWN;
    plan_change(s, m, u, some_ms(s, 1, 40));
}

void unit_hint(struct sim *s, struct machine *m, struct sim_unit *u) {
    after(s, some_ms(s, 0, 4), HAPPEN_HINT, m->number, m->agent_life, u->number);
}

// Its program is ready a while after its start, sick for a moment later, and ready again then.
void unit_tell_health(struct sim *s, struct machine *m, const struct sim_unit *u) {
    enum { FIRST_MS = 200, SPREAD_MS = 4000, READY_MS = 5000, SICK_MS = 3000 };
    int64_t ran = s->now_ms - u->began_ms - FIRST_MS - (int64_t)(u->number * 137 % SPREAD_MS);
    bool sick = ran >= READY_MS && ran < READY_MS + SICK_MS;
    if (u->live && u->phase == PHASE_RUN && u->shepherd && ran >= 0)
        agent_logic_health(m->logic, u->id, u->attempt, sick ? HEALTH_SICK : HEALTH_READY,
                           sick ? "HTTP status 503" : NULL);
}

static void spawn(struct sim *s, struct machine *m, struct sim_unit *u) {
    u->state = UNIT_RUNNING;
    u->phase = PHASE_RUN;
    u->live = true;
    u->pid = (uint32_t)(1000 + u->number);
    u->start_ms = machine_wall_ms(s, m);
    u->began_ms = s->now_ms;
    s->started++;
    note(s, "%s: job %llu attempt %u runs", m->name, (unsigned long long)u->id, u->attempt);
    check_started(s, m, u);
    if (u->attached || s->plan->logs)
        log_unit_started(s, m, u);
    if (m->doomed)
        after(s, some_ms(s, 0, 5), HAPPEN_DOOM, m->number, m->boot, 0);
    m->doomed = false;
    int64_t run = u->behaviour.run_ms, limit = (int64_t)u->time_limit_s * 1000;
    u->left_ms = run;
    plan_change(s, m, u, limit && limit < run ? limit : run);
    unit_hint(s, m, u);
}

static void gone(struct sim *s, struct machine *m, struct sim_unit *u) {
    step_end_all(s, m, u);
    log_unit_over(s, m, u);
    u->live = false;
    u->phase = PHASE_GONE;
    u->state = UNIT_ENDED;
    u->shepherd = false;
    u->gone_ms = s->now_ms;
    u->end_ms = machine_wall_ms(s, m);
    int64_t wall = s->now_ms - u->began_ms;
    u->usage = (struct usage){.cpu_user_us = (uint64_t)wall * 900 * u->cpus,
                              .cpu_system_us = (uint64_t)wall * 10,
                              .wall_ms = (uint64_t)wall,
                              .memory_peak_bytes = 1 << 20,
                              .gpu_busy_ms = u->gpu_count ? (uint64_t)wall : 0};
    note(s, "%s: job %llu attempt %u is over (%s, exit %d)", m->name, (unsigned long long)u->id, u->attempt,
         event_end_cause_words[u->cause], u->exit_code);
    check_ended(s, m, u);
    unit_hint(s, m, u);
}

// The last signal: nothing survives it, but some take their time.
static void send_kill9(struct sim *s, struct machine *m, struct sim_unit *u) {
    u->phase = PHASE_KILL;
    plan_change(s, m, u, 1 + (int64_t)u->behaviour.late_ms);
}

static void send_term(struct sim *s, struct machine *m, struct sim_unit *u, int64_t grace_ms) {
    u->phase = PHASE_TERM;
    int64_t reacts = some_ms(s, 1, 300);
    plan_change(s, m, u, u->behaviour.ignores_term || reacts > grace_ms ? grace_ms : reacts);
}

static void main_exits(struct sim *s, struct machine *m, struct sim_unit *u) {
    u->cause = u->behaviour.oom ? END_OOM : END_EXIT;
    u->exit_code = u->behaviour.exit_code;
    if (u->behaviour.leftover_ms)
        send_kill9(s, m, u);  // what it left behind
    else
        gone(s, m, u);
}

void unit_step(struct sim *s, struct machine *m, struct sim_unit *u) {
    switch (u->phase) {
    case PHASE_SPAWN:
        if (u->killed) {
            u->began_ms = s->now_ms;
            u->phase = PHASE_GONE;
            gone(s, m, u);
        } else {
            spawn(s, m, u);
        }
        break;
    case PHASE_RUN:
        if (u->time_limit_s && s->now_ms - u->began_ms >= (int64_t)u->time_limit_s * 1000 &&
            u->left_ms > (int64_t)u->time_limit_s * 1000) {
            u->killed = true;
            u->cause = END_TIMEOUT;
            u->exit_signal = SIGTERM;
            send_term(s, m, u, (int64_t)u->grace_s * 1000);
        } else {
            main_exits(s, m, u);
        }
        break;
    case PHASE_TERM:
        if (u->behaviour.ignores_term || u->behaviour.leftover_ms || u->behaviour.late_ms)
            send_kill9(s, m, u);
        else
            gone(s, m, u);
        break;
    case PHASE_KILL: gone(s, m, u); break;
    case PHASE_GONE: break;
    }
}

bool unit_kill(struct sim *s, struct machine *m, struct sim_unit *u, enum end_cause cause, uint32_t signal,
               int64_t grace_ms) {
    if (u->state == UNIT_ENDED)
        return true;
    if (!u->shepherd)
        return false;  // not yet, or not any more
    if (u->phase == PHASE_SPAWN && rand_below(&s->rand, 2))
        return false;  // it does not listen yet
    if (!u->killed) {
        u->cause = cause;
        u->exit_signal = signal;
    }
    bool first = !u->killed;
    u->killed = true;
    u->suspended = false;
    if (u->phase == PHASE_SPAWN)
        return true;  // ended as soon as it would start
    if (signal == SIGKILL && u->phase != PHASE_KILL)
        send_kill9(s, m, u);
    else if (first && u->phase == PHASE_RUN)
        send_term(s, m, u, grace_ms);
    return true;
}

bool unit_suspend(struct sim *s, struct sim_unit *u, struct machine *m, bool resume) {
    if (!u->shepherd || u->phase == PHASE_SPAWN || rand_below(&s->rand, 8) == 0)
        return false;
    if (u->phase != PHASE_RUN || u->suspended == !resume)
        return true;
    u->suspended = !resume;
    if (resume) {
        plan_change(s, m, u, u->left_ms > 0 ? u->left_ms : 1);
    } else {
        u->left_ms = u->due_ms - s->now_ms;
        u->turn++;
    }
    return true;
}

void unit_stop(struct sim *s, struct machine *m, struct sim_unit *u) {
    step_stop_all(u);
    u->live = false;
    u->shepherd = false;
    u->turn++;
    if (u->state != UNIT_ENDED)
        u->phase = PHASE_GONE;
}

void unit_close(struct sim *s, struct machine *m, struct sim_unit *u, const char *reason) {
    unit_stop(s, m, u);
    u->state = UNIT_ENDED;
    u->cause = u->killed && u->cause != END_EXIT && !u->start_ms ? u->cause : END_NODE_FAIL;
    u->reason = reason;
    u->end_ms = machine_wall_ms(s, m);
    note(s, "%s: job %llu attempt %u is closed: %s", m->name, (unsigned long long)u->id, u->attempt, reason);
    check_ended(s, m, u);
}

void unit_remove(struct sim *s, struct machine *m, struct sim_unit *u) {
    if (u->state != UNIT_ENDED || u->live) {
        sim_fail(s, "%s: the folder of job %llu attempt %u was removed while it runs", m->name,
                 (unsigned long long)u->id, u->attempt);
        return;
    }
    check_removed(s, m, u);
    for (uint32_t i = 0; i < m->units.len; i++)
        if (m->units.at[i] == u) {
            vec_remove(&m->units, i);
            break;
        }
    unit_free(u);
}

void unit_end_message(const struct sim_unit *u, struct message_ended *out, struct usage *usage) {
    *usage = u->usage;
    *out = (struct message_ended){.id = u->id,
                                  .attempt = u->attempt,
                                  .cause = u->cause,
                                  .exit_code = u->exit_code,
                                  .exit_signal = u->exit_signal,
                                  .reason = u->reason,
                                  .usage = usage,
                                  .start_ms = u->start_ms,
                                  .end_ms = u->end_ms};
}
