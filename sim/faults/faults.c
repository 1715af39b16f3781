// The faults of a plan: what each kind does when it begins and when it ends.
#include "database.h"
#include "fault_sim.h"

static void disk(struct sim *s, const struct item *it, bool begin) {
    struct sim_disk_faults f = s->plan->disk;
    if (begin && it->kind == ITEM_DISK_FAIL)
        f.fail_permille = 300 + it->amount % 700;
    if (begin && it->kind == ITEM_DISK_SLOW) {
        f.slow_permille = 800;
        f.slow_ms = 1 + it->amount * 8;
    }
    if (begin && it->kind == ITEM_DISK_FULL)
        f.capacity_bytes = sim_disk_bytes(s->disk) + it->amount * 16 + 1;
    sim_disk_faults(s->disk, &f);
}

// Where several controllers share a database.
static void database(struct sim *s, const struct item *it) {
    switch (it->kind) {
    case ITEM_DISK_FAIL:
    case ITEM_DB_AWAY: database_away(s, true); break;
    case ITEM_DISK_SLOW:
    case ITEM_DB_SLOW: database_slow(s, 1 + it->amount * 4); break;
    case ITEM_DISK_FULL:
    case ITEM_DB_FULL: database_full(s, true); break;
    case ITEM_DB_CUT: database_cut(s, heads_target(s, it), s->now_ms + it->for_ms); break;
    case ITEM_DB_CLOCK: database_clock(s, it->for_ms); break;
    case ITEM_DB_ANSWER: database_lose_answer(s, 1 + it->pick); break;
    default: heads_replace_database(s, it->amount); break;
    }
}

static void several(struct sim *s, const struct item *it) {
    heads_use(s, heads_target(s, it));
    struct sim_head *h = s->head;
    switch (it->kind) {
    case ITEM_HEAD_PAUSE: heads_pause(s, it->for_ms); break;
    case ITEM_HEAD_PAUSE_SENDING:
        h->pause_in = 1 + it->pick;
        h->pause_for_ms = it->for_ms;
        break;
    case ITEM_HEAD_CUT: h->cut_until_ms = s->now_ms + it->for_ms; break;
    case ITEM_HAND_OVER: heads_hand_over(s); break;
    default: database(s, it); break;
    }
}

static void controller(struct sim *s, const struct item *it) {
    if (is_shared(s))
        heads_use(s, heads_target(s, it));
    struct sim_head *h = s->head;
    switch (it->kind) {
    case ITEM_HEAD_KILL:
        if (!h->core || h->die_in_steps)
            return;
        h->die_in_steps = 1 + it->amount % 12;
        h->die_for_ms = it->for_ms;
        h->mute_in = it->amount % 3 == 0 ? 1 + it->pick % 3 : 0;
        break;
    case ITEM_HEAD_UPGRADE:
        h->format = !h->format;
        head_stop(s, it->for_ms);
        break;
    case ITEM_HEAD_STOP: head_stop(s, it->for_ms); break;
    case ITEM_HEAD_SNAPSHOT:
        if (h->core && (!is_shared(s) || h->leads) && core_seq(h->core) &&
            !core_outbox(h->core)->events.len && pipeline_snapshot(h->pipeline) == 0) {
            h->snapshot_seq = core_seq(h->core);
            head_touched(s);
        }
        break;
    case ITEM_HEAD_CLOCK:
        h->clock_offset_ms += it->for_ms;
        if (h->clock_offset_ms > h->clock_ahead_ms)
            h->clock_ahead_ms = h->clock_offset_ms;
        break;
    case ITEM_HEAD_STALL: head_stall(s, it->for_ms); break;
    default:
        if (is_shared(s))
            database(s, it);
        else
            disk(s, it, true);
        break;
    }
}

static void shepherd_killed(struct sim *s, struct machine *m, uint32_t pick) {
    for (uint32_t i = 0; i < m->units.len; i++) {
        struct sim_unit *u = m->units.at[(pick + i) % m->units.len];
        if (u->shepherd && u->state != UNIT_ENDED) {
            u->shepherd = false;
            u->turn++;  // its processes go on until the agent clears them away
            return;
        }
    }
}

static void machine(struct sim *s, const struct item *it) {
    struct machine *m = &s->machines[it->node];
    if (m->gone)
        return;
    switch (it->kind) {
    case ITEM_AGENT_KILL:
        if (m->logic && it->amount % 2) {
            m->die_in = 1 + it->pick;
            m->die_for_ms = it->for_ms;
            break;
        }
        agent_kill(s, m);
        after(s, it->for_ms, HAPPEN_AGENT_START, m->number, m->boot, 0);
        break;
    case ITEM_REBOOT:
        if (it->amount % 4 == 0) {
            m->doomed = true;
            m->doomed_for_ms = it->for_ms;
            break;
        }
        // fall through
    case ITEM_POWER_OFF:
        machine_down(s, m, it->kind == ITEM_REBOOT && it->amount % 2);
        after(s, it->for_ms, HAPPEN_BOOT, m->number, m->boot, 0);
        break;
    case ITEM_GONE:
        if (s->machine_count > 1 && it->node) {  // one machine always stays
            machine_down(s, m, false);
            m->gone = true;
        }
        break;
    case ITEM_IDENTITY:
        agent_kill(s, m);
        m->identity++;
        after(s, it->for_ms, HAPPEN_AGENT_START, m->number, m->boot, 0);
        break;
    case ITEM_SHEPHERD_KILL: shepherd_killed(s, m, it->pick); break;
    case ITEM_GPU: agent_gpu(s, m, it->amount); break;
    case ITEM_SPOOL_FULL: m->spool_full_until_ms = s->now_ms + it->for_ms; break;
    default: m->clock_offset_ms += it->for_ms; break;
    }
}

static void network(struct sim *s, const struct item *it) {
    struct machine *m = &s->machines[it->node];
    int64_t until = s->now_ms + it->for_ms;
    enum side side = it->amount % 2 ? AGENT_END : HEAD_END;
    switch (it->kind) {
    case ITEM_BREAK:
        if (m->conn)
            net_break(s, m->conn);
        break;
    case ITEM_HALF_OPEN:
        if (m->conn)
            m->conn->hole = true;
        break;
    case ITEM_CUT_UP: m->link.cut_until_ms[AGENT_END] = until; break;
    case ITEM_CUT_DOWN: m->link.cut_until_ms[HEAD_END] = until; break;
    case ITEM_CUT: m->link.cut_until_ms[AGENT_END] = m->link.cut_until_ms[HEAD_END] = until; break;
    case ITEM_SLOW:
        m->link.slow_until_ms = until;
        m->link.slow_ms = 1 + it->amount * 5;
        break;
    case ITEM_CORRUPT: m->link.corrupt[side]++; break;
    default: m->link.repeat[side] += 1 + it->pick; break;
    }
}

void fault_begin(struct sim *s, const struct item *it, uint32_t number) {
    char text[200];
    if (s->recording) {
        item_print(it, number, text, sizeof text);
        sim_note(s, "--- %s", text);
    }
    if (it->kind >= ITEM_HEAD_PAUSE)
        several(s, it);
    else if (it->kind == ITEM_HEAD_RESTORE)
        head_restore(s, it->amount, it->for_ms);
    else if (it->kind >= ITEM_BREAK)
        network(s, it);
    else if (it->kind >= ITEM_AGENT_KILL)
        machine(s, it);
    else
        controller(s, it);
    if ((it->kind >= ITEM_DISK_FAIL && it->kind <= ITEM_DISK_FULL) || it->kind == ITEM_DB_AWAY ||
        it->kind == ITEM_DB_SLOW || it->kind == ITEM_DB_FULL || it->kind == ITEM_DB_RESTORE)
        after(s, it->for_ms, HAPPEN_HEAL, number, 0, 0);
}

void fault_over(struct sim *s, const struct item *it) {
    if (!is_shared(s))
        disk(s, it, false);
    else if (it->kind == ITEM_DISK_SLOW || it->kind == ITEM_DB_SLOW)
        database_slow(s, 0);
    else if (it->kind == ITEM_DISK_FULL || it->kind == ITEM_DB_FULL)
        database_full(s, false);
    else
        database_away(s, false);
}

void faults_end(struct sim *s) {
    struct sim_disk_faults healthy = s->plan->disk;
    healthy.fail_permille = healthy.slow_permille = healthy.rot_permille = healthy.unreadable_permille = 0;
    sim_disk_faults(s->disk, &healthy);
    note(s, "--- all faults are over");
    if (is_shared(s))
        heads_faults_end(s);
    s->head->die_in_steps = s->head->mute_in = 0;
    for (uint32_t i = 0; i < s->machine_count; i++) {
        struct machine *m = &s->machines[i];
        m->link = (struct link){0};
        m->die_in = 0;
        m->doomed = false;
        m->spool_full_until_ms = 0;
        for (uint32_t g = 0; g < m->shape->gpus; g++)
            if (m->broken_gpus >> g & 1)
                agent_gpu(s, m, g);
    }
}
