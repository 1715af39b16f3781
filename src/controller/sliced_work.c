// Owns the queue of requests that are carried out in slices.
#include "sliced_work.h"

#include <errno.h>

#include "api.h"
#include "base/clock.h"
#include "base/text.h"

enum {
    WAITING_MAX = 1024,
    WAITING_USER_MAX = 64,
    BACKLOG_BYTES = 64 << 10,  // not committed yet: more than others submit in a turn, less than a slice writes
};

static bool run_slice(struct sliced_work *w, uint32_t most) {
    struct controller *c = w->controller;
    uint32_t spent = 0;
    c->work_until_us = clock_mono_us() + (int64_t)WORK_SLICE_US * most / WORK_SLICE;
    bool complete = w->run(w, most, &spent);
    c->work_spent += spent;
    c->work_slices++;
    if (c->work_spent > c->work_spent_max)
        c->work_spent_max = c->work_spent;
    return complete;
}

bool controller_work_late(const struct controller *c) {
    return clock_mono_us() >= c->work_until_us;
}

static bool is_first_of_its_user(const struct controller *c, uint32_t i) {
    for (uint32_t k = 0; k < i; k++)
        if (streq(c->work.at[k]->actor.user, c->work.at[i]->actor.user))
            return false;
    return true;
}

static void on_idle(uv_idle_t *h) {
    struct controller *c = h->data;
    if (pipeline_backlog(c->pipeline) > BACKLOG_BYTES) {
        uv_idle_stop(h);  // until controller_work_committed
        return;
    }
    for (uint32_t n = c->work.len; n && c->work_spent < WORK_SLICE; n--) {
        uint32_t i = c->work_next++ % c->work.len;
        if (!is_first_of_its_user(c, i))
            continue;
        struct sliced_work *w = c->work.at[i];
        if (run_slice(w, WORK_SLICE - c->work_spent)) {
            vec_remove(&c->work, i);
            w->free(w);
        }
        break;
    }
    if (!c->work.len)
        uv_idle_stop(h);
}

void controller_work_committed(struct controller *c) {
    if (c->work.len && !c->stopping)
        uv_idle_start(&c->work_idle, on_idle);
}

void controller_work_turn_ends(struct controller *c) {
    c->work_spent = 0;
}

void controller_work_init(struct controller *c) {
    uv_idle_init(&c->loop, &c->work_idle);
    c->work_idle.data = c;
}

void controller_work_stop(struct controller *c) {
    for (uint32_t i = 0; i < c->work.len; i++) {
        struct sliced_work *w = c->work.at[i];
        struct error e = {0};
        w->stopped(w, &e);
        api_fail(w->req, &e);
        w->free(w);
    }
    vec_done(&c->work);
}

// Small ones are done at once, unless their user has others under way or much was done in this turn already.
void controller_work_begin(struct sliced_work *w) {
    struct controller *c = w->controller;
    uint32_t mine = 0;
    for (uint32_t i = 0; i < c->work.len; i++)
        mine += streq(c->work.at[i]->actor.user, w->actor.user);
    if (mine >= WAITING_USER_MAX || c->work.len >= WAITING_MAX) {
        api_error(w->req, 429, "EAGAIN", "too many actions are waiting to be carried out; ask again in a moment");
        w->free(w);
        return;
    }
    if (!mine && c->work_spent < WORK_SLICE && run_slice(w, WORK_AT_ONCE)) {
        w->free(w);
        return;
    }
    vec_push(&c->work, w);
    uv_idle_start(&c->work_idle, on_idle);
}
