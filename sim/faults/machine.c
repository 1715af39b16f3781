// Simulated nodes: what the agent daemon does around its decision logic (which is the real one), on a machine that can
// lose power at any moment.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "seams.h"
#include "fault_sim.h"

enum { UNSYNCED_MS = 5000 };  // newer writes of a spool may be lost with the power

int64_t machine_wall_ms(const struct sim *s, const struct machine *m) {
    return s->now_ms + m->clock_offset_ms;
}

int64_t machine_mono_ms(const struct sim *s, const struct machine *m) {
    int64_t true_ms = s->now_ms - RUN_BEGIN_MS + 1000000;
    return true_ms + true_ms / 1000 * m->shape->drift_ppm / 1000;
}

static void name_machine(struct machine *m) {
    if (*m->given_name)
        snprintf(m->name, sizeof m->name, "%s", m->given_name);
    else if (m->identity)
        snprintf(m->name, sizeof m->name, "n%u-%u", m->number, m->identity);
    else
        snprintf(m->name, sizeof m->name, "n%u", m->number);
    snprintf(m->boot_id, sizeof m->boot_id, "boot-%u-%u", m->number, m->boot);
    snprintf(m->spool_id, sizeof m->spool_id, "spool-%u-%u", m->number, m->spool);
}

void machine_init(struct sim *s, uint32_t number) {
    struct machine *m = &s->machines[number];
    *m = (struct machine){.sim = s,
                          .number = number,
                          .shape = &s->plan->machines[number],
                          .powered = true,
                          .boot = 1,
                          .spool = 1};
    name_machine(m);
    if (number >= s->plan->machine_count) {  // the engine's: not there yet
        m->powered = false;
        m->gone = true;
        return;
    }
    after(s, some_ms(s, 0, 3000), HAPPEN_AGENT_START, number, m->boot, 0);
}

void machine_done(struct machine *m) {
    stream_machine_done(m);
    port_machine_done(m);
    log_machine_done(m);
    agent_step_runner_free(m->runner);
    agent_logic_free(m->logic);
    for (uint32_t i = 0; i < m->units.len; i++)
        unit_free(m->units.at[i]);
    vec_done(&m->units);
}

static void agent_gone(struct machine *m) {
    m->runner = agent_step_runner_free(m->runner);
    m->logic = agent_logic_free(m->logic);
    m->agent_life++;
    m->retrying = false;
    stream_agent_gone(m);
    port_agent_gone(m);
    log_agent_gone(m);
}

// --- power ---

void machine_boot(struct sim *s, struct machine *m) {
    if (m->powered || m->gone)
        return;
    m->powered = true;
    note(s, "%s: started, boot %u", m->name, m->boot);
    after(s, some_ms(s, 1, 3000), HAPPEN_AGENT_START, m->number, m->boot, 0);
}

// The newest folders, and the newest ends in older ones, may not have reached the disk.
static void lose_writes(struct sim *s, struct machine *m) {
    for (uint32_t i = m->units.len; i-- > 0;) {
        struct sim_unit *u = m->units.at[i];
        if (rand_below(&s->rand, 2))
            continue;
        if (u->created_ms > s->now_ms - UNSYNCED_MS) {
            unit_free(u);
            vec_remove(&m->units, i);
        } else if (u->state == UNIT_ENDED && u->gone_ms > s->now_ms - UNSYNCED_MS) {
            u->state = UNIT_RUNNING;
        }
    }
}

void machine_down(struct sim *s, struct machine *m, bool clean) {
    if (!m->powered)
        return;
    note(s, "%s: %s", m->name, clean ? "is shut down" : "loses power");
    if (clean)
        agent_kill(s, m);
    if (m->conn)
        net_vanish(s, m->conn, AGENT_END);
    m->conn = NULL;
    agent_gone(m);
    m->powered = false;
    for (uint32_t i = 0; i < m->units.len; i++)
        if (m->units.at[i]->live || m->units.at[i]->state != UNIT_ENDED)
            unit_stop(s, m, m->units.at[i]);
    m->boot++;
    if (!clean)
        lose_writes(s, m);
    if (!m->shape->keeps_spool) {
        for (uint32_t i = 0; i < m->units.len; i++)
            unit_free(m->units.at[i]);
        vec_clear(&m->units);
        m->spool++;
        m->seen = (struct journal_position){0};
        m->kept_term = m->obeyed_term = 0;
        stream_spool_lost(m);
        log_spool_lost(m);
    }
    name_machine(m);
}

// --- the agent ---

static void recover(struct sim *s, struct machine *m, struct sim_unit *u) {
    if (u->state != UNIT_ENDED) {
        if (u->boot != m->boot)
            unit_close(s, m, u, "the machine was started anew");
        else if (!u->handed)  // made, but no shepherd has it
            after(s, some_ms(s, 0, 20), HAPPEN_HANDOVER, m->number, m->agent_life, u->number);
        else if (!u->shepherd)
            unit_close(s, m, u, "its shepherd died");
    }
    struct message_ended end;
    struct usage usage;
    unit_end_message(u, &end, &usage);
    agent_logic_recover(m->logic, u->id, u->attempt, u->state == UNIT_RUNNING ? u->start_ms : 0, u->pid, NULL, 0,
                        u->state == UNIT_ENDED ? &end : NULL);
    agent_logic_recover_origin(m->logic, u->id, u->attempt, u->origin, u->origin_len);
    if (u->state != UNIT_ENDED) {
        unit_tell_health(s, m, u);
        step_recover(s, m, u);
    }
}

void agent_start(struct sim *s, struct machine *m) {
    if (m->logic || !m->powered || m->gone)
        return;
    note(s, "%s: agent starts, %u attempts in its spool", m->name, m->units.len);
    name_machine(m);
    m->logic = agent_logic_new(m->shape->cpus);
    m->runner = agent_step_runner_new(m->logic, &step_host, m);
    m->agent_life++;
    m->refused = m->die_in = 0;
    agent_logic_recover_seen(m->logic, &m->seen);
    agent_logic_term(m->logic, m->kept_term);
    for (uint32_t i = 0; i < m->units.len; i++)
        recover(s, m, m->units.at[i]);
    after(s, some_ms(s, 0, 50), HAPPEN_AGENT_DIAL, m->number, m->agent_life, 0);
    after(s, some_ms(s, 0, 1000), HAPPEN_AGENT_TICK, m->number, m->agent_life, 0);
}

void agent_kill(struct sim *s, struct machine *m) {
    if (!m->logic)
        return;
    note(s, "%s: agent killed", m->name);
    struct conn *c = m->conn;
    m->conn = NULL;
    agent_gone(m);
    if (c)
        net_close(s, c, AGENT_END);  // the kernel closes it
}

static void describe(const struct machine *m, struct node *n, struct gpu gpus[GPUS_MAX], char ids[GPUS_MAX][48]) {
    *n = (struct node){.name = m->name,
                       .address = "10.0.0.1",
                       .version = "sim",
                       .boot_id = m->boot_id,
                       .spool_id = m->spool_id,
                       .cpus = m->shape->cpus,
                       .memory_bytes = m->shape->memory_bytes};
    n->gpus.at = gpus;
    n->gpus.len = m->shape->gpus;
    for (uint32_t i = 0; i < m->shape->gpus; i++) {
        snprintf(ids[i], sizeof ids[i], "gpu-%u-%u", m->number, i);
        gpus[i] = (struct gpu){.uuid = ids[i], .model = "V100", .memory_bytes = 32ull << 30, .simulated = true,
                               .unhealthy = m->broken_gpus >> i & 1 ? "fell off the bus" : NULL};
    }
}

void agent_dial(struct sim *s, struct machine *m) {
    struct node node;
    struct gpu gpus[GPUS_MAX];
    char ids[GPUS_MAX][48];
    if (m->conn)
        return;
    m->conn = net_dial(s, m);
    if (!m->conn) {
        m->refused++;
        after(s, some_ms(s, 200, m->refused < 5 ? 2000 : 5000), HAPPEN_AGENT_DIAL, m->number, m->agent_life, 0);
        return;
    }
    m->refused = 0;
    note(s, "%s: connection %u", m->name, m->conn->number);
    describe(m, &node, gpus, ids);
    agent_logic_connected(m->logic, &node, machine_mono_ms(s, m));
    agent_act(s, m);
}

void agent_gpu(struct sim *s, struct machine *m, uint32_t gpu) {
    struct node node;
    struct gpu gpus[GPUS_MAX];
    char ids[GPUS_MAX][48];
    cleanup_buf struct buf b = {0};
    if (!m->shape->gpus)
        return;
    m->broken_gpus ^= 1u << gpu % m->shape->gpus;
    if (!m->logic || !m->conn)
        return;
    describe(m, &node, gpus, ids);
    message_encode(&(struct message){MESSAGE_NODE_CHANGED, &node}, &b);
    net_send(s, m->conn, AGENT_END, b.data, b.len);
}

void agent_closed(struct sim *s, struct machine *m, struct conn *c) {
    if (m->conn != c)
        return;
    m->conn = NULL;
    if (!m->logic)
        return;
    agent_logic_disconnected(m->logic);
    stream_agent_gone(m);
    port_agent_gone(m);
    log_agent_gone(m);
    after(s, some_ms(s, 10, 1500), HAPPEN_AGENT_DIAL, m->number, m->agent_life, 0);
}

// Its users' images come with attempts, and some go again.
static void tell_images(struct machine *m) {
    struct node_image images[IMAGES_MAX] = {0};
    char names[IMAGES_MAX][16];
    for (uint32_t i = 0; i < m->images % IMAGES_MAX; i++) {
        snprintf(names[i], sizeof names[i], "image:%u", i);
        images[i] = (struct node_image){.uid = 1000, .name = names[i], .bytes = m->images};
    }
    agent_logic_images(m->logic, &(struct message_node_images){{images, m->images % IMAGES_MAX}});
}

void agent_tick(struct sim *s, struct machine *m) {
    tell_images(m);
    for (uint32_t i = 0; i < m->units.len; i++) {
        struct sim_unit *u = m->units.at[i];
        if (u->state != UNIT_ENDED && u->handed && !u->shepherd) {  // what a look at the locks shows
            struct message_ended end;
            struct usage usage;
            unit_close(s, m, u, "its shepherd died");
            unit_end_message(u, &end, &usage);
            agent_step_runner_attempt_ended(m->runner, u->id, u->attempt);
            agent_logic_ended(m->logic, &end);
        }
        unit_tell_health(s, m, u);
    }
    agent_step_runner_retry(m->runner, machine_mono_ms(s, m));
    if (rand_below(&s->rand, 2))
        agent_step_runner_look(m->runner);
    stream_agent_tick(s, m);
    port_agent_tick(s, m);
    log_pump(s, m);
    agent_logic_tick(m->logic, machine_mono_ms(s, m));
    agent_act(s, m);
    after(s, 1000, HAPPEN_AGENT_TICK, m->number, m->agent_life, 0);
}

// Planted: an agent that has no memory of what it launched.
static void launch_again(struct sim *s, struct machine *m, const struct message_launch *l) {
    struct sim_unit *known = unit_find(m, l->id, l->attempt);
    if (!known)
        return;
    known->attempt |= 1u << 31;  // out of the way
    if (unit_create(s, m, l) == 0)
        unit_handover(s, m, unit_find(m, l->id, l->attempt));
    known->attempt &= ~(1u << 31);
}

// What an agent of the release before does not know: it skips such messages, and does not say such things.
static bool unknown_to_older(enum message_type type) {
    return type == MESSAGE_DESCRIBE || type == MESSAGE_STEP || type == MESSAGE_STEP_ACK ||
           type == MESSAGE_STEP_ATTACH || type == MESSAGE_STEP_DESCRIBE || type == MESSAGE_CONNECT;
}

static void say_less(struct message_hello *h) {
    h->level = 0;
    h->seen = NULL;
    for (uint32_t i = 0; i < h->attempts.len; i++) {
        h->attempts.at[i].epoch = h->attempts.at[i].seq = 0;
        h->attempts.at[i].steps.len = h->attempts.at[i].last_step = 0;
        h->attempts.at[i].health = HEALTH_NONE;
    }
}

// As the daemon does it: a new term is on disk before anything is done in its name.
bool agent_obeys(struct sim *s, struct machine *m, struct conn *c, uint64_t term) {
    if (!m->logic)
        return true;
    if (!agent_logic_term(m->logic, term)) {
        note(s, "%s: does not obey a leader of term %llu", m->name, (unsigned long long)term);
        net_close(s, c, AGENT_END);
        return false;
    }
    if (term && !seams_planted(PLANTED_TERM_NOT_KEPT))
        m->kept_term = term;
    if (term && term < m->obeyed_term)
        sim_fail(s, "%s obeys a leader of term %llu after one of term %llu", m->name,
                 (unsigned long long)term, (unsigned long long)m->obeyed_term);
    m->obeyed_term = term ? term : m->obeyed_term;
    return true;
}

void agent_message(struct sim *s, struct machine *m, const struct message *msg) {
    if (m->shape->older && unknown_to_older(msg->type))
        return;
    if (seams_planted(PLANTED_LAUNCH_TWICE) && msg->type == MESSAGE_LAUNCH)
        launch_again(s, m, msg->body);
    agent_logic_message(m->logic, msg, machine_mono_ms(s, m));
    agent_act(s, m);
}

// --- what it wants done ---

static void launch(struct sim *s, struct machine *m, const struct agent_action *action) {
    struct message_launch given = *action->launch, *l = &given;
    if (seams_planted(PLANTED_FOLDER_LEFT_OUT) && l->spec->upload_id)
        l->script.len = strlen(JOB_SCRIPT);
    check_launch(s, m, l);
    int r = unit_create(s, m, l);
    if (r == 0) {
        struct sim_unit *u = unit_find(m, l->id, l->attempt);
        u->origin = xmemdup(action->origin, action->origin_len);
        u->origin_len = action->origin_len;
        after(s, some_ms(s, 0, 3), HAPPEN_HANDOVER, m->number, m->agent_life, u->number);
        return;
    }
    struct message_ended end = {.id = l->id,
                                .attempt = l->attempt,
                                .cause = r == -EEXIST ? END_LAUNCH : END_NODE_FAIL,
                                .launch_failed = r != -EEXIST,
                                .reason = r == -EEXIST ? "the attempt has a folder already"
                                                       : "no space left in the spool"};
    if (end.launch_failed)
        check_launch_failed(s, m, l);
    agent_logic_ended(m->logic, &end);
}

static void kill_unit(struct sim *s, struct machine *m, struct sim_unit *u, const struct agent_action *a) {
    if (!u)
        return;
    if (a->step) {
        step_kill(s, m, u, a->step, a->signal, a->grace_ms);
        return;
    }
    if (a->checkpoint && !u->checkpoint_asked_ms)
        u->checkpoint_asked_ms = s->now_ms;
    if (a->checkpoint && agent_step_runner_checkpoint(m->runner, a, machine_mono_ms(s, m)))
        return;  // not told yet: the logic asks again
    check_kill(s, m, u, a);
    if (unit_kill(s, m, u, a->cause, a->signal, a->grace_ms))
        agent_logic_kill_sent(m->logic, a->id, a->attempt);
}

static void act(struct sim *s, struct machine *m, const struct agent_action *a) {
    struct sim_unit *u = unit_find(m, a->id, a->attempt);
    switch (a->type) {
    case AGENT_SEND:
        if (m->conn && !(m->shape->older &&
                         (a->message.type == MESSAGE_HEALTH || a->message.type == MESSAGE_NODE_IMAGES))) {
            cleanup_buf struct buf b = {0};
            if (m->shape->older && a->message.type == MESSAGE_HELLO)
                say_less(a->message.body);
            message_encode(&a->message, &b);
            net_send(s, m->conn, AGENT_END, b.data, b.len);
        }
        break;
    case AGENT_LAUNCH: launch(s, m, a); break;
    case AGENT_KILL: kill_unit(s, m, u, a); break;
    case AGENT_TIME_LIMIT:  // pretended jobs have no limits of their own
        agent_logic_told(m->logic, a->id, a->attempt, a->type);
        break;
    case AGENT_SUSPEND:
        if (u && (unit_suspend(s, u, m, a->resume) || seams_planted(PLANTED_SUSPEND_DROPPED)))
            agent_logic_told(m->logic, a->id, a->attempt, a->type);
        break;
    case AGENT_REMOVE:
        m->images++;
        m->seen = agent_logic_seen(m->logic);
        stream_step_removed(s, m, a->id, a->attempt, 0);
        if (u)
            unit_remove(s, m, u);
        break;
    case AGENT_DISCONNECT:
        if (m->conn)
            net_close(s, m->conn, AGENT_END);
        break;
    case AGENT_STEP: agent_step_runner_start(m->runner, a->message.body, machine_mono_ms(s, m)); break;
    case AGENT_STEP_REMOVE:
        if (u)
            step_remove(s, m, u, a->step);
        break;
    case AGENT_MEMBERS:
        if (u && m->spool_full_until_ms > s->now_ms) {
            agent_logic_members_failed(m->logic, a->id, a->attempt, a->message.body, machine_mono_ms(s, m));
        } else if (u) {
            u->members_generation = ((const struct message_workers *)a->message.body)->generation;
            agent_logic_told(m->logic, a->id, a->attempt, AGENT_MEMBERS);
        }
        break;
    case AGENT_STEP_HUB: step_hub(s, m, a); break;
    case AGENT_SIGNAL: break;  // changes nothing that counts here
    case AGENT_STREAM:
        stream_agent_message(s, m, &a->message);
        port_agent_message(s, m, &a->message);
        log_agent_message(s, m, &a->message);
        break;
    }
}

void agent_act(struct sim *s, struct machine *m) {
    const struct agent_actions *actions = agent_logic_actions(m->logic);
    for (uint32_t i = 0; i < actions->list.len; i++) {
        struct agent_action a = actions->list.at[i];  // carrying it out may add more
        if (m->die_in && --m->die_in == 0) {  // half-way through what it wanted to do
            agent_kill(s, m);
            after(s, m->die_for_ms, HAPPEN_AGENT_START, m->number, m->boot, 0);
            return;
        }
        act(s, m, &a);
    }
    agent_logic_clear(m->logic);
    if (agent_step_runner_waits(m->runner) && !m->retrying) {
        m->retrying = true;
        after(s, 25, HAPPEN_AGENT_RETRY, m->number, m->agent_life, 0);
    }
}

void agent_retry(struct sim *s, struct machine *m) {
    m->retrying = false;
    agent_step_runner_retry(m->runner, machine_mono_ms(s, m));
    agent_act(s, m);
}
