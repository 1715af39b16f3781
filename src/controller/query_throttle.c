// Owns the turn of questions: explanations and what-if answers are made on the loop, so they get a
// small part of its time. One that comes too soon after a long one waits and is answered then; nobody
// has more than a few waiting. Users take turns: the n-th waiting question of a user is of the n-th round from now.
#include "api.h"

#include "base/clock.h"
#include "base/text.h"

enum {
    REST = 9,             // times as long as an answer took, until the next one
    QUESTIONS_MAX = 256,  // waiting
    QUESTIONS_USER_MAX = 16,
};

struct question {
    struct controller *controller;
    struct net_request *req;
    char user[USER_NAME_MAX];
    uint64_t round;
};

static void arm(struct controller *c);

static struct question *take(struct controller *c, uint32_t i) {
    struct question *q = c->questions.at[i];
    vec_remove(&c->questions, i);
    return q;
}

// The request goes through the routes again: who may ask may have changed.
static void on_turn(uv_timer_t *t) {
    struct controller *c = t->data;
    if (!c->questions.len || c->stopping)
        return;
    uint32_t next = 0;
    for (uint32_t i = 1; i < c->questions.len; i++)
        if (c->questions.at[i]->round < c->questions.at[next]->round)
            next = i;
    struct question *q = take(c, next);
    c->query_throttle_round = q->round;
    net_request_watch(q->req, NULL, NULL, NULL);
    c->answering = true;
    q->req->began_us = clock_mono_us();
    api_dispatch(c, q->req);
    c->answering = false;
    free(q);
    arm(c);
}

static void arm(struct controller *c) {
    int64_t left_us = c->query_throttle_again_us - clock_mono_us();
    if (c->questions.len)
        uv_timer_start(&c->query_throttle_timer, on_turn, left_us > 0 ? (uint64_t)left_us / 1000 + 1 : 0, 0);
}

static void on_gone(struct net_request *req, void *user) {
    struct question *q = user;
    struct controller *c = q->controller;
    for (uint32_t i = 0; i < c->questions.len; i++)
        if (c->questions.at[i] == q) {
            take(c, i);
            break;
        }
    free(q);
    api_error(req, 503, "EAGAIN", "nobody waits for the answer any more");  // ends the request
}

static bool wait_turn(struct api_call *call) {
    struct controller *c = call->controller;
    uint32_t mine = 0;
    uint64_t round = c->query_throttle_round;
    for (uint32_t i = 0; i < c->questions.len; i++)
        if (streq(c->questions.at[i]->user, call->actor.user)) {
            mine++;
            round = c->questions.at[i]->round + 1;
        }
    if (c->questions.len >= QUESTIONS_MAX || mine >= QUESTIONS_USER_MAX) {
        api_error(call->req, 429, "EAGAIN", "too many questions wait for an answer; ask again in a moment");
        return false;
    }
    struct question *q = xcalloc(1, sizeof *q);
    *q = (struct question){.controller = c, .req = call->req, .round = round};
    snprintf(q->user, sizeof q->user, "%s", call->actor.user);
    vec_push(&c->questions, q);
    net_request_watch(call->req, on_gone, NULL, q);
    arm(c);
    return false;
}

bool query_throttle_begin(struct api_call *call) {
    struct controller *c = call->controller;
    int64_t now_us = clock_mono_us();
    if (!c->answering && (c->questions.len || now_us < c->query_throttle_again_us))
        return wait_turn(call);
    c->query_throttle_began_us = now_us;
    return true;
}

void query_throttle_end(struct controller *c) {
    int64_t now_us = clock_mono_us();
    c->query_throttle_again_us = now_us + (now_us - c->query_throttle_began_us) * REST;
}

void query_throttle_init(struct controller *c) {
    uv_timer_init(&c->loop, &c->query_throttle_timer);
    c->query_throttle_timer.data = c;
}

void query_throttle_done(struct controller *c) {
    for (uint32_t i = 0; i < c->questions.len; i++)
        free(c->questions.at[i]);
    vec_done(&c->questions);
}
