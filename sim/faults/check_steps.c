// What must hold for steps, checkpoint commands and leases: a step starts once, is killed only when somebody asked for
// it, and its end in the journal is the end that it had on its machine; a checkpoint command has its whole grace; a
// lease ends when its client stays away, and only then.
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "fault_sim.h"

enum {
    DIFFERS_MAX = 14,       // looks, five seconds apart: longer than a time-out
    LEASE_SLACK_MS = 5000,  // a renewal and a check of leases, each once a second
    LEASE_LATE_MS = 20000,
    LEASE_CLEANUPS = 29,  // before operators end what goes on for ever
    CHECKPOINT_SLACK_MS = 300,
};

typedef unsigned long long ull;

static uint64_t step_key(const char *node, uint64_t id, uint32_t attempt, uint64_t epoch, uint32_t step) {
    return hash_bytes(node, strlen(node)) ^ hash_u64(id << 20 | attempt) ^ hash_u64(epoch) ^
           hash_u64((uint64_t)step << 32 | 1);
}

static struct told_step *told_step(struct told *j, uint32_t attempt, uint32_t step) {
    for (uint32_t i = 0; j && i < j->steps.len; i++)
        if (j->steps.at[i].attempt == attempt && j->steps.at[i].step == step)
            return &j->steps.at[i];
    return NULL;
}

uint32_t check_step_nodes(struct sim *s, uint64_t id, uint32_t attempt, uint32_t step,
                          const char *out[static MACHINES_MAX]) {
    const struct told_step *t = told_step(check_told(&s->check, id), attempt, step);
    uint32_t n = 0;
    for (; t && n < t->part_count && n < MACHINES_MAX; n++)
        out[n] = arena_strdup(&s->arena, t->nodes[n]);
    return n;
}

static struct machine *machine_named(struct sim *s, const char *node) {
    for (uint32_t i = 0; i < s->machine_count; i++)
        if (streq(s->machines[i].name, node))
            return &s->machines[i];
    return NULL;
}

// --- the journal ---

static void step_began(struct sim *s, struct told *j, const struct event_step *b) {
    struct told_step t = {.attempt = b->attempt, .step = b->step, .part_count = b->parts.len};
    if (told_step(j, b->attempt, b->step))
        sim_fail(s, "job %llu attempt %u has two steps %u", (ull)b->id, b->attempt, b->step);
    for (uint32_t i = 0; i < b->parts.len && i < MACHINES_MAX; i++)
        t.nodes[i] = arena_strdup(&s->check.arena, b->parts.at[i].node);
    vec_push(&j->steps, t);
}

// An attempt that runs on as nothing had happened has not ended its steps.
static bool goes_on(struct sim *s, const struct placement *p, uint64_t id, uint32_t attempt,
                    const char *node) {
    struct machine *m = machine_named(s, node);
    const struct sim_unit *u = m ? unit_find(m, p->agent_id ? p->agent_id : id, attempt) : NULL;
    for (uint32_t i = 0; i < p->part_count; i++)
        if (p->part_ended[i] && streq(p->nodes[i], node))
            return false;  // the node was given up
    return u && u->epoch == p->epoch && u->live && u->phase == PHASE_RUN && u->shepherd && !u->killed;
}

static void step_over(struct sim *s, struct told *j, const struct event_step *b) {
    struct told_step *t = told_step(j, b->attempt, b->step);
    const struct placement *p = check_placement(j, b->attempt);
    if (!t || t->ended)
        sim_fail(s, "job %llu attempt %u: step %u ended %s", (ull)b->id, b->attempt, b->step,
                 t ? "twice" : "that never began");
    if (t)
        t->ended = true;
    for (uint32_t i = 0; t && p && !s->restored && i < b->ends.len && i < t->part_count; i++) {
        const struct step_end *e = &b->ends.at[i];
        uint64_t id = p->agent_id ? p->agent_id : b->id;
        const struct sim_step *truth =
            map_get(&s->check.step_truths, step_key(t->nodes[i], id, b->attempt, p->epoch, b->step));
        if (e->usage && e->usage->wall_ms &&
            (!truth || memcmp(&truth->usage, e->usage, sizeof *e->usage) != 0))
            sim_fail(s, "job %llu step %u on %s: the journal counts %llu ms, the machine %llu", (ull)b->id,
                     b->step, t->nodes[i], (ull)e->usage->wall_ms, (ull)(truth ? truth->usage.wall_ms : 0));
        if (!e->error && truth && (truth->exit_code != e->exit_code || truth->exit_signal != e->exit_signal))
            sim_fail(s, "job %llu step %u on %s: ended %d:%u in the journal, %d:%u on the machine",
                     (ull)b->id, b->step, t->nodes[i], e->exit_code, e->exit_signal, truth->exit_code,
                     truth->exit_signal);
        if (!truth && e->cause == END_NODE_FAIL && goes_on(s, p, b->id, b->attempt, t->nodes[i]))
            sim_fail(s, "job %llu: step %u was given up on %s although its job runs on", (ull)b->id, b->step,
                     t->nodes[i]);
    }
}

void check_step_event(struct sim *s, struct told *j, const struct event *e) {
    const struct event_step_ending *ending = e->body;
    if (e->type == EVENT_STEP_STARTED) {
        step_began(s, j, e->body);
    } else if (e->type == EVENT_STEP_ENDED) {
        step_over(s, j, e->body);
    } else {
        struct told_step *t = told_step(j, ending->attempt, ending->step);
        watcher_lease_ended(s, ending);
        if (t)
            t->ending = true;
    }
}

// --- the machines ---

void check_step_started(struct sim *s, struct machine *m, const struct sim_unit *u,
                        const struct sim_step *t) {
    uint32_t number = t->number == SIM_CHECKPOINT_STEP - 1 ? SIM_CHECKPOINT_STEP : t->number;
    uint64_t key = step_key(m->boot_id, u->id, u->attempt, u->epoch, number);
    if (number != SIM_CHECKPOINT_STEP)  // an agent that starts anew does not know numbers of before
        key ^= hash_u64(s->restores);
    if (map_get(&s->check.step_starts, key))
        sim_fail(s, "%s: job %llu attempt %u: %s %u was started twice", m->name, (ull)u->id, u->attempt,
                 number == SIM_CHECKPOINT_STEP ? "the checkpoint command, step" : "step", number);
    map_put(&s->check.step_starts, key, m);
    if (number != SIM_CHECKPOINT_STEP && !s->restored &&
        !told_step(check_told(&s->check, u->id), u->attempt, number))
        sim_fail(s, "%s: job %llu attempt %u: step %u runs, which the journal does not know", m->name,
                 (ull)u->id, u->attempt, number);
}

void check_step_ended(struct sim *s, struct machine *m, const struct sim_unit *u, const struct sim_step *t) {
    uint64_t key = step_key(m->name, u->id, u->attempt, u->epoch, t->number);
    struct sim_step *truth = map_get(&s->check.step_truths, key);
    if (!truth) {
        truth = xcalloc(1, sizeof *truth);
        map_put(&s->check.step_truths, key, truth);
    }
    *truth = *t;
}

// Journals of the first level do not say that a step is being ended.
void check_step_killed(struct sim *s, struct machine *m, const struct sim_unit *u, const struct sim_step *t) {
    struct told *j = check_told(&s->check, u->id);
    const struct told_step *told = told_step(j, u->attempt, t->number);
    bool over =
        !j || j->ended || j->attempt != u->attempt || !j->placed || (told && (told->ending || told->ended));
    if (!over && !s->restored && streq(m->name, u->node) && s->plan->level > FEATURE_LEVEL_FIRST)
        sim_fail(s, "%s: step %u of job %llu attempt %u is killed although nobody asked for it", m->name,
                 t->number, (ull)u->id, u->attempt);
}

void check_step_removed(struct sim *s, struct machine *m, const struct sim_unit *u,
                        const struct sim_step *t) {
    struct told *j = check_told(&s->check, u->id);
    const struct told_step *told = told_step(j, u->attempt, t->number);
    bool over = !j || j->ended || j->attempt != u->attempt || !j->placed || (told && told->ended);
    over |= check_part_ended(s, u);  // the node was given up, and its part of the step with it
    // Under another name it is nobody's: the name it was launched under is given up in time.
    if (!over && !s->restored && streq(m->name, u->node))
        sim_fail(s, "%s: the end of step %u of job %llu attempt %u was forgotten before it was recorded",
                 m->name, t->number, (ull)u->id, u->attempt);
}

// The attempt is about to be killed: its checkpoint command has ended, or had its grace.
void check_kill(struct sim *s, struct machine *m, struct sim_unit *u, const struct agent_action *a) {
    const struct sim_step *t = step_find(u, SIM_CHECKPOINT_STEP);
    if (!a->checkpoint || !t || !t->live || a->signal == SIGKILL)
        return;
    if (s->now_ms - u->checkpoint_asked_ms < (int64_t)a->grace_ms - CHECKPOINT_SLACK_MS)
        sim_fail(
            s, "%s: job %llu attempt %u is killed while its checkpoint command runs, after %lld ms of %u",
            m->name, (ull)u->id, u->attempt, (long long)(s->now_ms - u->checkpoint_asked_ms), a->grace_ms);
}

// --- leases ---

void check_lease_ended(struct sim *s, uint64_t id, const struct event_job_ending *b) {
    const struct sim_holder *h = NULL;
    const struct told *j = check_told(&s->check, id);
    // After a restore another job may have the number, and its client may not have heard of it yet.
    for (uint32_t i = 0; j && i < s->holders.len; i++)
        if (s->holders.at[i].id == id && s->requests.at[s->holders.at[i].request].item == j->item)
            h = &s->holders.at[i];
    if (!h || s->check.rereading || !b->reason || !strstr(b->reason, "client was not connected"))
        return;
    int64_t away_ms = head_awake_ms(s) - h->renewed_awake_ms;
    if (h->renewed_awake_ms && away_ms < (int64_t)h->lease_s * 1000 - LEASE_SLACK_MS)
        sim_fail(s, "the lease of job %llu ended %lld ms after its client was there; it has %u s", (ull)id,
                 (long long)away_ms, h->lease_s);
}

static void lease_prompt(struct sim *s, const struct sim_holder *h) {
    struct job_view v;
    int64_t due_ms = h->gone_ms + (int64_t)h->lease_s * 1000 + CORE_CLIENT_SILENT_MS + LEASE_LATE_MS;
    const struct told *j = check_told(&s->check, h->id);
    // After a restore another job may have the number, and the lease of one that was adopted begins then.
    if (s->restored && (!j || j->item != s->requests.at[h->request].item ||
                        s->now_ms < s->over_ms + (int64_t)h->lease_s * 1000 + LEASE_LATE_MS))
        return;
    if (!h->gone || s->cleanups != LEASE_CLEANUPS || s->now_ms < due_ms ||
        !core_view(s->head->core, h->id, &v))
        return;
    if (v.state == JOB_RUNNING || v.state == JOB_STARTING || v.state == JOB_PENDING)
        sim_fail(s, "job %llu is an allocation whose client ended long ago, and is still %s", (ull)h->id,
                 job_state_words[v.state]);
}

// --- the end ---

// The nodes of an MPI step find each other, whatever was restarted meanwhile.
static void step_meets(struct sim *s, uint64_t id, struct told_step *t, uint32_t running, uint32_t apart) {
    t->apart = running == t->part_count && apart ? t->apart + 1 : 0;
    if (t->apart > DIFFERS_MAX)
        sim_fail(s, "step %u of job %llu: %u of its %u nodes do not find the first one", t->step, (ull)id, apart,
                 t->part_count);
}

// What runs in the journal runs on the machines, unless the journal is about to hear of its end.
static void step_prompt(struct sim *s, uint64_t id, struct told *j, struct told_step *t) {
    const struct placement *p = check_placement(j, t->attempt);
    bool differs = false;
    uint32_t running = 0, apart = 0;
    if (t->ended || j->ended || !j->placed || j->attempt != t->attempt || !p)
        return;
    for (uint32_t i = 0; i < t->part_count && i < MACHINES_MAX; i++) {
        struct machine *m = machine_named(s, t->nodes[i]);
        struct sim_unit *u = m && m->logic ? unit_find(m, p->agent_id ? p->agent_id : id, t->attempt) : NULL;
        if (u && !m->shape->older && goes_on(s, p, id, t->attempt, t->nodes[i])) {
            const struct sim_step *on = step_find(u, t->step);
            differs |= !on || !on->live;
            running += on && on->live && on->mpi;
            apart += on && on->live && on->mpi && !on->first && !on->found;
        }
    }
    step_meets(s, id, t, running, apart);
    // With several nodes the journal waits for the slowest.
    t->differs = differs && t->part_count == 1 ? t->differs + 1 : 0;
    if (t->differs > DIFFERS_MAX)
        sim_fail(s, "step %u of job %llu runs in the journal but not on %s", t->step, (ull)id, t->nodes[0]);
}

void check_steps_prompt(struct sim *s) {
    for (uint32_t i = 0; i < s->holders.len; i++)
        lease_prompt(s, &s->holders.at[i]);
    for (uint32_t i = 0; i < s->check.jobs.len && !s->restored; i++)
        for (uint32_t k = 0; k < s->check.jobs.at[i].steps.len; k++)
            step_prompt(s, i + 1, &s->check.jobs.at[i], &s->check.jobs.at[i].steps.at[k]);
}
