// One run from the first event to the verdict: faults happen, then all are healed, and then the cluster must become
// idle by itself.
#include "run.h"

#include <stdarg.h>
#include <stdlib.h>

#include "database.h"
#include "fault_sim.h"
#include "threads.h"
#include "store/sim_disk.h"

enum { CLEANUP_EVERY_MS = 5000, CLEANUPS_MAX = 1200, CLOCK_CLEANUPS = 20, STEPS_MAX = 3000000 };

void sim_fail(struct sim *s, const char *fmt, ...) {
    va_list args;
    if (s->failed)
        return;
    s->failed = true;
    va_start(args, fmt);
    vsnprintf(s->failure, sizeof s->failure, fmt, args);
    va_end(args);
}

void sim_note(struct sim *s, const char *fmt, ...) {
    va_list args;
    int64_t ms = s->now_ms - RUN_BEGIN_MS;
    fprintf(s->out, "%6lld.%03d  ", (long long)ms / 1000, (int)(ms % 1000));
    va_start(args, fmt);
    vfprintf(s->out, fmt, args);
    va_end(args);
    fputc('\n', s->out);
}

static void mix(struct sim *s, uint64_t x) {
    s->hash = (s->hash ^ x) * 0x9e3779b97f4a7c15ULL;
    s->hash ^= s->hash >> 29;
}

static void on_item(struct sim *s, uint32_t number) {
    const struct item *it = &s->plan->items.at[number];
    if (s->keep && !s->keep[number])
        return;
    if (it->kind == ITEM_PORT)
        port_client_begin(s, number);
    else if (it->kind == ITEM_LOG)
        log_client_begin(s, number);
    else if (it->kind < ITEM_HEAD_KILL || (it->kind >= ITEM_LEVEL && it->kind < ITEM_HEAD_PAUSE))
        client_begin(s, number);
    else if (it->kind == ITEM_HOLDER)
        holder_item(s, it);
    else
        fault_begin(s, it, number);
}

static void cleanup(struct sim *s) {
    char why[200];
    if (!s->cleaning) {
        s->cleaning = true;
        s->over_ms = s->now_ms;
        faults_end(s);
    }
    if (check_idle(s, why, sizeof why)) {
        check_equal(s);
        s->finished = true;
        return;
    }
    client_cleanup(s);
    check_prompt(s);
    // A clock that was set back stays so for a while: what the controller does by itself does not wait for it.
    if (s->cleanups == CLOCK_CLEANUPS && !is_shared(s))
        s->head->clock_offset_ms = s->head->clock_ahead_ms;  // times that were promised come
    if (s->cleanups > CLEANUPS_MAX)
        sim_fail(s, "%d s after the last fault %s", CLEANUPS_MAX * CLEANUP_EVERY_MS / 1000, why);
    after(s, CLEANUP_EVERY_MS, HAPPEN_CLEANUP, 0, 0, 0);
}

static void on_unit(struct sim *s, const struct queued *q) {
    struct machine *m = &s->machines[q->who];
    struct sim_unit *u = unit_by_number(m, q->kind == HAPPEN_PROCESS ? q->a : q->b);
    if (!u)
        return;
    if (q->kind == HAPPEN_PROCESS) {
        if (u->turn == q->b)
            unit_step(s, m, u);
        return;
    }
    if (!m->logic || m->agent_life != q->a)
        return;
    if (q->kind == HAPPEN_HANDOVER) {
        unit_handover(s, m, u);
        return;
    }
    if (u->state == UNIT_RUNNING)
        agent_logic_started(m->logic, u->id, u->attempt, u->pid, u->start_ms);
    if (u->state == UNIT_ENDED) {
        struct message_ended end;
        struct usage usage;
        unit_end_message(u, &end, &usage);
        agent_step_runner_attempt_ended(m->runner, u->id, u->attempt);
        agent_logic_ended(m->logic, &end);
    }
    agent_act(s, m);
}

static void on_step(struct sim *s, const struct queued *q) {
    struct machine *m = &s->machines[q->who];
    uint64_t name = q->kind == HAPPEN_STEP_HINT ? q->b : q->a;
    struct sim_unit *u = unit_by_number(m, name >> 32);
    struct sim_step *t = step_find(u, (uint32_t)name);
    if (q->kind == HAPPEN_PRINT && t) {
        stream_print(s, m, u, t);
    } else if (q->kind == HAPPEN_STEP && t && t->turn == q->b) {
        step_change(s, m, u, t);
    } else if (q->kind == HAPPEN_STEP_HINT && t && m->logic && m->agent_life == q->a) {
        agent_step_runner_check(m->runner, u->id, u->attempt, t->number);
        agent_act(s, m);
    }
}

static void on_machine(struct sim *s, const struct queued *q) {
    struct machine *m = &s->machines[q->who];
    bool boot_event = q->kind == HAPPEN_BOOT || q->kind == HAPPEN_AGENT_START || q->kind == HAPPEN_DOOM;
    if (boot_event ? m->boot != q->a : !m->logic || m->agent_life != q->a)
        return;
    switch (q->kind) {
    case HAPPEN_BOOT: machine_boot(s, m); break;
    case HAPPEN_DOOM:
        machine_down(s, m, false);
        after(s, m->doomed_for_ms, HAPPEN_BOOT, m->number, m->boot, 0);
        break;
    case HAPPEN_AGENT_START: agent_start(s, m); break;
    case HAPPEN_AGENT_DIAL: agent_dial(s, m); break;
    case HAPPEN_AGENT_RETRY: agent_retry(s, m); break;
    case HAPPEN_PORT_ANSWER: port_answer(s, m, q->b); break;
    default: agent_tick(s, m); break;
    }
}

static void on_client(struct sim *s, const struct queued *q) {
    if (q->kind == HAPPEN_REPLY) {
        client_answered(s, s->answers.at[q->who]);
        return;
    }
    struct request *r = &s->requests.at[q->who];
    if (r->settled || r->tries != q->a)
        return;
    if (q->kind == HAPPEN_REQUEST)
        client_arrives(s, r);
    else
        client_impatient(s, r);
}

static void on_head(struct sim *s, const struct queued *q) {
    if (q->kind == HAPPEN_HEAD_START) {
        head_start(s);
        return;
    }
    if (!s->head->core || s->head->life != q->a)
        return;
    if (q->kind == HAPPEN_DISK && s->now_ms == s->head->disk_at_ms)
        head_disk(s);
    else if (q->kind == HAPPEN_DISK)
        return;
    else if (q->kind == HAPPEN_HEAD_TICK)
        head_tick(s);
    else if (s->now_ms == s->head->flush_at_ms || s->now_ms == s->head->wake_at_ms)
        head_flush(s);  // others were overtaken
}

// The controller dies between two of its steps, or half-way through sending in the second.
static void maybe_die(struct sim *s, const struct queued *q) {
    struct sim_head *h = s->head;
    bool step = q->kind == HAPPEN_DISK || q->kind == HAPPEN_HEAD_FLUSH || q->kind == HAPPEN_HEAD_TICK ||
                q->kind == HAPPEN_REQUEST || (q->kind == HAPPEN_PACKET && q->a == AGENT_END);
    if (!h->core || !h->die_in_steps || !step)
        return;
    if (h->muted || (h->die_in_steps == 1 && !h->mute_in))
        head_kill(s, h->die_for_ms);
    else if (h->die_in_steps > 1)
        h->die_in_steps--;
}

static void happen(struct sim *s, const struct queued *q) {
    if ((is_shared(s) && !heads_event(s, q)) || head_stalled(s, q)) {
        if (is_shared(s))
            heads_after(s);
        return;
    }
    switch ((enum happening)q->kind) {
    case HAPPEN_ITEM: on_item(s, q->who); break;
    case HAPPEN_HEAL: fault_over(s, &s->plan->items.at[q->who]); break;
    case HAPPEN_PACKET: net_packet(s, s->conns.at[q->who], (enum side)q->a); break;
    case HAPPEN_RESET: net_reset(s, s->conns.at[q->who], (enum side)q->a); break;
    case HAPPEN_BOOT:
    case HAPPEN_DOOM:
    case HAPPEN_AGENT_START:
    case HAPPEN_AGENT_DIAL:
    case HAPPEN_AGENT_RETRY:
    case HAPPEN_PORT_ANSWER:
    case HAPPEN_AGENT_TICK: on_machine(s, q); break;
    case HAPPEN_PORT_PROGRAM: port_program(s, &s->machines[q->who], q->a); break;
    case HAPPEN_PORT_CLIENT: port_client_turn(s, s->port_clients.at[q->who]); break;
    case HAPPEN_LOG_PRINT: log_print(s, &s->machines[q->who], q->a); break;
    case HAPPEN_LOG_READ: log_read(s, &s->machines[q->who], q->a); break;
    case HAPPEN_LOG_OUTPUT: log_output(s, q->who); break;
    case HAPPEN_LOG_CLIENT: log_client_turn(s, s->log_clients.at[q->who]); break;
    case HAPPEN_WATCH: watcher_turn(s, s->watchers.at[q->who]); break;
    case HAPPEN_OUTPUT: watcher_output(s, q->who); break;
    case HAPPEN_PRINT:
    case HAPPEN_STEP:
    case HAPPEN_STEP_HINT: on_step(s, q); break;
    case HAPPEN_LOGIN: login_turn(s, &s->logins.at[q->who]); break;
    case HAPPEN_HOLDER: holder_turn(s, &s->holders.at[q->who]); break;
    case HAPPEN_HANDOVER:
    case HAPPEN_PROCESS:
    case HAPPEN_HINT: on_unit(s, q); break;
    case HAPPEN_HEAD_START:
    case HAPPEN_HEAD_FLUSH:
    case HAPPEN_HEAD_TICK:
    case HAPPEN_DISK: on_head(s, q); break;
    case HAPPEN_REQUEST:
    case HAPPEN_REPLY:
    case HAPPEN_CLIENT: on_client(s, q); break;
    case HAPPEN_ENGINE: provider_turn(s, q->who, q->a == 0); break;
    case HAPPEN_ENGINE_BOOT: provider_boot(s, q->who); break;
    case HAPPEN_CLEANUP: cleanup(s); break;
    case HAPPEN_FOLLOW: heads_follow(s); break;
    case HAPPEN_HELD: heads_held(s); break;
    case HAPPEN_THREAD: heads_thread(s, q); break;
    case HAPPEN_DATABASE: database_event(s, q->who, q->a); break;
    }
    maybe_die(s, q);
    if (is_shared(s))
        heads_after(s);
}

static void begin(struct sim *s) {
    rand_seed(&s->rand, s->plan->seed ^ 0x5bd1e995);
    check_init(s);
    head_init(s);
    for (uint32_t i = 0; i < s->machine_count; i++)
        machine_init(s, i);
    if (!is_shared(s))
        client_setup(s, false);
    for (uint32_t i = 0; i < s->plan->items.len; i++)
        after(s, s->plan->items.at[i].at_ms, HAPPEN_ITEM, i, 0, 0);
    after(s, s->plan->last_ms + 1, HAPPEN_CLEANUP, 0, 0, 0);
}

static void end(struct sim *s) {
    for (uint32_t i = 0; i < s->conns.len; i++)
        net_free(s->conns.at[i]);
    vec_done(&s->conns);
    for (uint32_t i = 0; i < s->machine_count; i++)
        machine_done(&s->machines[i]);
    head_done(s);
    if (is_shared(s)) {
        database_end();
        threads_end();
    }
    check_done(s);
    vec_done(&s->requests);
    vec_done(&s->answers);
    vec_done(&s->holders);
    vec_done(&s->logins);
    watchers_done(s);
    port_done(s);
    logs_done(s);
    provider_done(s);
    map_done(&s->cancelled);
    arena_done(&s->arena);
    queue_done(&s->queue);
}

struct verdict run_plan(const struct plan *p, const bool *keep, FILE *timeline) {
    struct sim *s = xcalloc(1, sizeof *s);
    struct queued q;
    *s = (struct sim){.plan = p,
                      .keep = keep,
                      .now_ms = RUN_BEGIN_MS,
                      .recording = timeline != NULL,
                      .out = timeline,
                      .machine_count = p->machine_count + (p->engine ? ENGINE_MACHINES : 0)};
    s->head = s->heads;
    begin(s);
    while (!s->failed && !s->finished && queue_take(&s->queue, &q)) {
        s->now_ms = q.at_ms;
        mix(s, (uint64_t)q.at_ms << 8 | q.kind);
        mix(s, (uint64_t)q.who << 32 ^ q.a ^ q.b << 16);
        happen(s, &q);
        if (!s->failed)
            check_step(s);
        if (++s->steps > STEPS_MAX)
            sim_fail(s, "no end after %d steps", STEPS_MAX);
    }
    mix(s, sim_disk_hash(s->disk));
    struct verdict v = {.failed = s->failed,
                        .hash = s->hash,
                        .steps = s->steps,
                        .messages = s->messages,
                        .jobs = s->check.jobs.len,
                        .starts = s->started,
                        .records = s->check.read,
                        .compares = s->check.compares,
                        .asserts = s->check.asserts,
                        .virtual_ms = s->now_ms - RUN_BEGIN_MS};
    snprintf(v.text, sizeof v.text, "%s", s->failure);
    if (s->failed)
        note(s, "FAILED: %s", s->failure);
    end(s);
    free(s);
    return v;
}
