// Owns those who wait for a change of one job.
#include <string.h>

#include "base/clock.h"
#include "serve.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "api.h"
#include "controller.h"
#include "live.h"

struct waiter {
    uint64_t id;
    watch_fn fn;
    void *arg;
    struct waiter *next;
    bool dead;
};

struct waiter *controller_watch_job(struct controller *c, uint64_t id, watch_fn fn, void *arg) {
    struct waiter *w = xcalloc(1, sizeof *w);
    *w = (struct waiter){.id = id, .fn = fn, .arg = arg, .next = map_get(&c->waiters, id)};
    map_put(&c->waiters, id, w);
    return w;
}

static void sweep(struct controller *c, uint64_t id) {
    struct waiter *first = map_get(&c->waiters, id), **at = &first;
    while (*at) {
        struct waiter *w = *at;
        if (w->dead) {
            *at = w->next;
            free(w);
        } else {
            at = &w->next;
        }
    }
    if (first)
        map_put(&c->waiters, id, first);
    else
        map_remove(&c->waiters, id);
}

void controller_unwatch_job(struct controller *c, struct waiter *w) {
    w->dead = true;
    if (!c->walking_waiters)  // else swept after the walk
        sweep(c, w->id);
}

void controller_hook_job_changed(void *ctx, uint64_t id) {
    struct controller *c = ctx;
    live_job_changed(c, id);
    serve_job_changed(c, id);
    c->walking_waiters = true;
    for (struct waiter *w = map_get(&c->waiters, id); w; w = w->next)
        if (!w->dead)
            w->fn(w->arg, id);
    c->walking_waiters = false;
    if (map_get(&c->waiters, id))
        sweep(c, id);
    if (!core_has_job(c->core, id))  // a view of an elastic job with very many workers would take long
        controller_live_usage_free(map_remove(&c->live, id));
}

void controller_hook_storage(void *ctx, const struct error *problem) {
    struct controller *c = ctx;
    if (problem)
        log_error("the journal cannot be written: %s; nothing is acknowledged until it can", problem->text);
    else
        log_info("the journal is written again");
    snprintf(c->storage_problem, sizeof c->storage_problem, "%s", problem ? problem->text : "");
}

// --- GET /v1/jobs/ID/wait ---

enum { WAIT_USUAL_S = 60, WAITS_SLICE_US = 5000, WAITS_PAUSE_MS = 10 };

struct wait_request {
    struct controller *controller;
    struct net_request *req;
    struct waiter *waiter;
    uint64_t id;
    uv_timer_t timer;
    bool answered;
};

static void wait_closed(uv_handle_t *h) {
    free(h->data);
}

static bool wait_over(struct wait_request *w) {
    if (w->answered)
        return false;
    w->answered = true;
    controller_unwatch_job(w->controller, w->waiter);
    uv_close((uv_handle_t *)&w->timer, wait_closed);
    return true;
}

static void wait_answer(struct wait_request *w, bool final) {
    if (wait_over(w))
        api_reply_record(w->controller, w->req, w->id, final ? 200 : 202);
}

// The job has ended, or the time is over. Thousands may wait for the same job: they are answered in slices, with other
// requests in between.
static void wait_turn(uv_timer_t *t) {
    struct wait_request *w = t->data;
    struct controller *c = w->controller;
    if (c->waits_at_ms != uv_now(&c->loop)) {
        c->waits_at_ms = uv_now(&c->loop);
        c->waits_used_us = 0;
    }
    const void *record;
    size_t len;
    bool committed = !pipeline_ending(c->pipeline, w->id, &record, &len);
    if (!committed || c->waits_used_us >= WAITS_SLICE_US) {
        uv_timer_start(t, wait_turn, committed ? WAITS_PAUSE_MS : 1, 0);
        return;
    }
    int64_t began_us = clock_mono_us();
    wait_answer(w, !core_has_job(c->core, w->id));
    c->waits_used_us += clock_mono_us() - began_us;
}

static void wait_changed(void *arg, uint64_t id) {
    struct wait_request *w = arg;
    if (!w->answered && !core_has_job(w->controller->core, id))
        wait_turn(&w->timer);
}

static void wait_gone(struct net_request *req, void *user) {
    if (wait_over(user))  // ends the request; nobody reads it, and thousands may leave at once
        api_error(req, 503, "EAGAIN", "nobody waits for the answer any more");
}

void api_wait(struct api_call *call) {
    struct controller *c = call->controller;
    uint64_t id = call->job;
    const struct query_wait *q = call->query;
    uint32_t timeout_s = q->timeout_s ? q->timeout_s : WAIT_USUAL_S;
    if (!core_has_job(c->core, id)) {
        api_reply_record(c, call->req, id, 200);
        return;
    }
    struct wait_request *w = xcalloc(1, sizeof *w);
    w->controller = c;
    w->req = call->req;
    w->id = id;
    w->waiter = controller_watch_job(c, id, wait_changed, w);
    uv_timer_init(&c->loop, &w->timer);
    w->timer.data = w;
    uv_timer_start(&w->timer, wait_turn, (uint64_t)timeout_s * 1000, 0);
    net_request_watch(call->req, wait_gone, NULL, w);
}

void controller_watch_done(struct controller *c) {
    size_t it = 0;
    void *v;
    while (map_next(&c->waiters, &it, NULL, &v))
        for (struct waiter *w = v, *next; w; w = next) {
            next = w->next;
            free(w);
        }
    map_done(&c->waiters);
    it = 0;
    while (map_next(&c->live, &it, NULL, &v))
        controller_live_usage_free(v);
    map_done(&c->live);
}
