// Several controllers that share a database: which one's turn it is, following and taking over with the product's own
// decisions (controller/leadership.h), pauses in which other controllers go on, and the start from the beginning of one
// that has lost the lease. What each does as leader is in head.c.
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "database.h"
#include "fault_sim.h"
#include "seams.h"
#include "state.h"
#include "store/sim_disk.h"
#include "threads.h"

enum {
    LOOK_MS = 50,
    OPEN_AGAIN_MS = 500,
    LEASE_WAIT_MS = 10,
    STAND_BACK_MS = 5000,
    NOBODY = HEADS_MAX - 1,
};

typedef unsigned long long ull;

int64_t head_steady_ms(const struct sim *s) {
    int64_t ms = s->now_ms - RUN_BEGIN_MS + 5000000;
    return ms + ms / 1000 * s->head->drift_ppm / 1000;
}

// --- turns ---

void heads_use(struct sim *s, uint32_t number) {
    s->head = &s->heads[number];
    seams_next_format(s->head->format);
}

void heads_begin(struct sim *s) {
    threads_begin(s);
    database_begin(s);
    s->head_count = s->plan->controllers;
    for (uint32_t i = 0; i < HEADS_MAX; i++)
        s->heads[i].number = i;
    for (uint32_t i = 0; i < s->head_count; i++) {
        s->heads[i].drift_ppm = s->plan->drift_ppm[i];
        s->heads[i].clock_offset_ms = s->plan->clock_ms[i];
        s->heads[i].clock_ahead_ms = s->plan->clock_ms[i] > 0 ? s->plan->clock_ms[i] : 0;
        after(s, some_ms(s, 0, 200), HAPPEN_HEAD_START, i, 0, 0);
    }
    heads_use(s, NOBODY);
}

// The one that has the lease and has begun.
void heads_pick(struct sim *s) {
    uint64_t term;
    uint32_t number;
    bool held = database_leader(s, &term, &number);
    const struct sim_head *h = &s->heads[number];
    heads_use(s, held && h->leads && !h->lost && !h->outdated && h->term == term ? number : NOBODY);
}

// Clients ask whom they know, which may be one that leads no longer.
static void pick_asked(struct sim *s) {
    heads_pick(s);
    uint32_t other = (uint32_t)rand_below(&s->rand, s->head_count * 4);
    if (other < s->head_count && s->heads[other].leads && !s->heads[other].outdated)
        heads_use(s, other);
}

uint32_t heads_target(struct sim *s, const struct item *it) {
    heads_pick(s);
    return it->pick % 3 && s->head->number != NOBODY ? s->head->number : it->node % s->head_count;
}

// Before a turn of the loop, and before anything is said when the lease has ended by the clock.
static void look(struct sim *s) {
    struct sim_head *h = s->head;
    int64_t now = head_steady_ms(s), waited = h->waits_from_ms ? now - h->waits_from_ms : 0;
    if (h->term && seams_planted(PLANTED_LEASE_NOT_CHECKED))
        return;
    switch (leadership_look(&h->leadership, h->store, waited, s->plan->lease_ms)) {
    case LEADERSHIP_LEAD:
        h->term = h->leadership.lease.term;
        h->lease_until_ms = now + h->leadership.lease.left_ms;
        h->waits_from_ms = 0;
        break;
    case LEADERSHIP_WAIT:
        h->waits_from_ms = h->waits_from_ms ? h->waits_from_ms : now;
        if (h->leads)
            head_stall(s, LEASE_WAIT_MS);
        break;
    default: h->lost = h->muted = true; break;
    }
}

static bool knows_to_lead(struct sim *s) {
    return head_steady_ms(s) < s->head->lease_until_ms || seams_planted(PLANTED_LEASE_NOT_CHECKED);
}

bool heads_may_speak(struct sim *s) {
    if (!knows_to_lead(s))
        look(s);
    return !s->head->lost && knows_to_lead(s);
}

static bool is_turn(const struct queued *q) {
    return q->kind == HAPPEN_HEAD_FLUSH || q->kind == HAPPEN_HEAD_TICK;
}

bool heads_event(struct sim *s, const struct queued *q) {
    switch ((enum happening)q->kind) {
    case HAPPEN_HEAD_START:
    case HAPPEN_HEAD_FLUSH:
    case HAPPEN_HEAD_TICK:
    case HAPPEN_DISK:
    case HAPPEN_FOLLOW:
    case HAPPEN_HELD:
    case HAPPEN_THREAD: heads_use(s, q->who); break;
    case HAPPEN_PACKET:
    case HAPPEN_RESET: heads_use(s, s->conns.at[q->who]->head); break;
    case HAPPEN_REQUEST: pick_asked(s); break;
    default: heads_pick(s); return true;
    }
    struct sim_head *h = s->head;
    if ((q->kind == HAPPEN_FOLLOW || q->kind == HAPPEN_HELD) && (!h->core || h->life != q->a))
        return false;
    bool whole = q->kind == HAPPEN_FOLLOW || q->kind == HAPPEN_THREAD;
    if (whole && h->paused_until_ms > s->now_ms) {
        queue_put(&s->queue, h->paused_until_ms, q->kind, q->who, q->a, q->b);
        return false;
    }
    if (!h->leads || s->now_ms < h->stalled_until_ms)
        return true;
    if (is_turn(q) ? h->life == q->a : q->kind == HAPPEN_REQUEST && !knows_to_lead(s))
        look(s);
    return !h->lost;
}

void heads_after(struct sim *s) {
    for (uint32_t i = 0; i < s->head_count; i++)
        if (s->heads[i].lost) {
            heads_use(s, i);
            heads_step_down(s, "another has the lease, or it has ended");
        }
    heads_pick(s);
}

// --- following ---

static void follow_later(struct sim *s, int64_t ms) {
    after(s, ms, HAPPEN_FOLLOW, s->head->number, s->head->life, 0);
}

void heads_open(struct sim *s) {
    struct sim_head *h = s->head;
    char address[32];
    struct error e = {0};
    snprintf(address, sizeof address, "c%u:6820", h->number);
    struct store_config config = {.path = "postgresql://sim",
                                  .address = address,
                                  .lease_ms = s->plan->lease_ms,
                                  .watch = pipeline_watch(h->pipeline),
                                  .level = FEATURE_LEVEL_NEWEST,
                                  .retention = {.journal_ms = 30000}};
    int r = store_open(&config, &h->store, &e);
    if (r == 0)
        pipeline_attach(h->pipeline, h->store);
    follow_later(s, r < 0 ? OPEN_AGAIN_MS : LOOK_MS);
}

static void check_followed(struct sim *s, struct sim_head *h) {
    cleanup_buf struct buf live = {0}, shadow = {0};
    core_snapshot(h->core, &live);
    core_snapshot(s->check.shadow, &shadow);
    s->check.compares++;
    if (live.len == shadow.len && memcmp(live.data, shadow.data, live.len) == 0)
        h->outdated = false;  // the leader has committed again what a replaced database had lost
    else if (!h->outdated || h->leads)
        sim_fail(s, "controller %u has followed the journal to record %llu and knows another state",
                 h->number, (ull)core_seq(h->core));
}

// It has the lease. Its time may be over again when the answer was slow: then it waits, or starts anew.
static void take_over(struct sim *s) {
    struct sim_head *h = s->head;
    look(s);
    if (h->lost)
        return;
    if (h->waits_from_ms) {
        follow_later(s, LEASE_WAIT_MS);
        return;
    }
    h->stands_back = false;
    h->leads = true;
    check_followed(s, h);
    head_lead(s);
}

void heads_follow(struct sim *s) {
    struct sim_head *h = s->head;
    struct error e = {0};
    if (!h->store) {
        heads_open(s);
        return;
    }
    bool may_claim = !h->stands_back || s->now_ms - h->started_ms > STAND_BACK_MS;
    switch (leadership_follow(&h->leadership, h->pipeline, may_claim, &e)) {
    case LEADERSHIP_LEAD: take_over(s); break;
    case LEADERSHIP_ANEW: heads_step_down(s, e.text); break;
    case LEADERSHIP_FAIL: sim_fail(s, "controller %u cannot use the database: %s", h->number, e.text); break;
    default: follow_later(s, some_ms(s, LOOK_MS, 2 * LOOK_MS)); break;
    }
}

// What a thread has done, the loop is told soon.
void heads_thread(struct sim *s, const struct queued *q) {
    struct sim_head *h = s->head;
    thread_turn(s, q->who, q->a, q->b);
    if (!h->leads || h->disk_at_ms)
        return;
    h->disk_at_ms = s->now_ms + some_ms(s, 0, 1);
    queue_put(&s->queue, h->disk_at_ms, HAPPEN_DISK, h->number, h->life, 0);
}

// --- pauses ---

void heads_pause(struct sim *s, int64_t for_ms) {
    struct sim_head *h = s->head;
    if (!h->core || h->paused_until_ms > s->now_ms)
        return;
    note(s, "controller %u: paused for %lld ms", h->number, (long long)for_ms);
    head_stall(s, for_ms);
    h->paused_until_ms = s->now_ms + for_ms;
}

void head_say(struct sim *s, struct conn *c, const void *data, size_t len) {
    struct sim_head *h = s->head;
    if (!is_shared(s)) {
        net_send(s, c, HEAD_END, data, len);
        return;
    }
    bool may = heads_may_speak(s);
    if (h->lost)
        return;
    struct buf b = {0};
    if (may)
        message_put_term(&b, h->term);
    buf_add(&b, data, len);
    if (h->pause_in && --h->pause_in == 0)
        heads_pause(s, h->pause_for_ms);
    bool paused = h->paused_until_ms > s->now_ms;
    if (!may || paused || h->held.len) {
        if (!h->held.len)
            queue_put(&s->queue, paused ? h->paused_until_ms : s->now_ms + LEASE_WAIT_MS, HAPPEN_HELD,
                      h->number, h->life, 0);
        vec_push(&h->held, ((struct held_message){c->number, may, b.data, b.len}));
        return;
    }
    if (database_led_by_another(s, h->term))
        sim_fail(s, "controller %u says something in term %llu, and another has led since", h->number,
                 (ull)h->term);
    net_send(s, c, HEAD_END, b.data, b.len);
    buf_done(&b);
}

static void drop_held(struct sim_head *h) {
    for (uint32_t i = 0; i < h->held.len; i++)
        free(h->held.at[i].data);
    vec_clear(&h->held);
}

void heads_held(struct sim *s) {
    struct sim_head *h = s->head;
    bool may = true;
    for (uint32_t i = 0; i < h->held.len && may; i++)
        may = h->held.at[i].checked || heads_may_speak(s);
    if (h->lost || !h->leads)
        return;
    if (!may || h->paused_until_ms > s->now_ms) {
        int64_t at = h->paused_until_ms > s->now_ms ? h->paused_until_ms : s->now_ms + LEASE_WAIT_MS;
        queue_put(&s->queue, at, HAPPEN_HELD, h->number, h->life, 0);
        return;
    }
    for (uint32_t i = 0; i < h->held.len; i++) {
        struct held_message *m = &h->held.at[i];
        struct conn *c = s->conns.at[m->conn];
        cleanup_buf struct buf b = {0};
        if (!m->checked)
            message_put_term(&b, h->term);
        buf_add(&b, m->data, m->len);
        net_send(s, c, HEAD_END, b.data, b.len);
    }
    drop_held(h);
}

// --- life ---

void heads_forget(struct sim *s) {
    struct sim_head *h = s->head;
    drop_held(h);
    h->leads = h->lost = h->outdated = false;
    h->leadership = (struct leadership){0};
    h->term = 0;
    h->lease_until_ms = h->waits_from_ms = h->paused_until_ms = 0;
    h->pause_in = 0;
}

// It starts its program anew: connections end, and whatever it knew that is not in the journal counts for nothing.
void heads_step_down(struct sim *s, const char *why) {
    note(s, "controller %u: does not lead (%s); starts anew", s->head->number, why);
    head_kill(s, some_ms(s, 5, 200));
}

void heads_hand_over(struct sim *s) {
    struct sim_head *h = s->head;
    if (!h->leads || s->now_ms < h->stalled_until_ms)
        return;
    h->stands_back = true;
    store_give_up(h->store);
    h->lease_until_ms = 0;
}

void heads_replace_database(struct sim *s, uint32_t records) {
    check_journal(s);
    uint32_t had = s->check.read;
    database_restore(s, had > records ? had - records : 1);
    note(s, "database: an older copy is put in its place: %u records, not %u", s->disk->journal.len, had);
    // What it does not know to be committed it commits again, and is right to.
    for (uint32_t i = 0; i < s->head_count; i++)
        s->heads[i].outdated |= s->heads[i].core && s->disk->journal.len < had &&
                                pipeline_committed_seq(s->heads[i].pipeline) > s->disk->journal.len;
    check_restored(s);
}

bool head_reachable(struct sim *s) {
    struct sim_head *h = s->head;
    if (!h->core || s->now_ms < h->stalled_until_ms)
        return false;
    if (!is_shared(s))
        return true;
    if (!h->leads || !heads_may_speak(s))
        return false;
    if (database_led_by_another(s, h->term))
        sim_fail(s, "controller %u answers in term %llu, and another has led since", h->number, (ull)h->term);
    return true;
}

// --- what must hold ---

void heads_check_equal(struct sim *s) {
    for (uint32_t i = 0; i < s->head_count; i++) {
        struct sim_head *h = &s->heads[i];
        if (h->core && !h->leads && h->leadership.read && core_seq(h->core) == core_seq(s->check.shadow))
            check_followed(s, h);
    }
}

bool heads_idle(struct sim *s, char *why, size_t size) {
    heads_check_equal(s);
    for (uint32_t i = 0; i < s->head_count; i++) {
        const struct sim_head *h = &s->heads[i];
        if (!h->core || h->outdated ||
            (!h->leads && (!h->leadership.read || core_seq(h->core) != core_seq(s->check.shadow)))) {
            snprintf(why, size, "controller %u does not follow", i);
            return false;
        }
    }
    return true;
}

void heads_faults_end(struct sim *s) {
    int64_t ahead_ms = 0;
    database_away(s, false);
    database_slow(s, 0);
    database_full(s, false);
    database_lose_answer(s, 0);
    for (uint32_t i = 0; i < s->head_count; i++) {
        struct sim_head *h = &s->heads[i];
        database_cut(s, i, 0);
        h->cut_until_ms = 0;
        h->die_in_steps = h->mute_in = h->pause_in = 0;
        ahead_ms = h->clock_ahead_ms > ahead_ms ? h->clock_ahead_ms : ahead_ms;
    }
    for (uint32_t i = 0; i < s->head_count; i++)
        s->heads[i].clock_offset_ms = ahead_ms;  // times that were promised come
}
