// Owns where the requests of a service go: to the replica with the fewest requests among those of the revision whose
// turn it is; and the requests that wait for one, first come first served.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "serve.h"

enum { DISPATCH_SLICE = 256 };  // requests that one service gives to replicas in one turn of the loop

static bool takes(const struct serve_replica *r, uint32_t limit) {
    return r->state == REPLICA_READY && r->in_flight < limit;
}

// The replica of the revision with the fewest requests; of equals the one after the last that was used.
static struct serve_replica *least_loaded(const struct serve_service *s, uint32_t revision, uint32_t limit,
                                          const struct serve_replica *avoid) {
    struct serve_replica *best = NULL;
    uint32_t from = (uint32_t)(s->requests % (s->replicas.len ? s->replicas.len : 1));
    for (uint32_t i = 0; i < s->replicas.len; i++) {
        struct serve_replica *r = s->replicas.at[(from + i) % s->replicas.len];
        if (r->revision == revision && r != avoid && takes(r, limit) &&
            (!best || r->in_flight < best->in_flight))
            best = r;
    }
    return best;
}

static struct serve_turn *turn_of(struct serve_service *s, uint32_t revision) {
    for (uint32_t i = 0; i < s->turns.len; i++)
        if (s->turns.at[i].revision == revision)
            return &s->turns.at[i];
    vec_push(&s->turns, (struct serve_turn){.revision = revision});
    return &s->turns.at[s->turns.len - 1];
}

// Of the revisions that can take it, the one whose turn it is by the weights.
static struct serve_replica *choose(struct serve_service *s, const struct event_service *e,
                                    const struct serve_replica *avoid) {
    struct serve_replica *found[SERVICE_REVISIONS_MAX], *best = NULL;
    uint32_t total = 0, at = 0;
    for (uint32_t i = 0; i < e->revisions.len; i++) {
        const struct service_revision *r = &e->revisions.at[i];
        found[i] = r->state == REVISION_SERVING ? least_loaded(s, r->number, e->limit, avoid) : NULL;
        total += found[i] ? r->weight : 0;
    }
    for (uint32_t i = 0; i < e->revisions.len; i++) {
        if (!found[i])
            continue;
        struct serve_turn *t = turn_of(s, e->revisions.at[i].number);
        t->credit += e->revisions.at[i].weight;
        if (!best || t->credit > turn_of(s, e->revisions.at[at].number)->credit) {
            best = found[i];
            at = i;
        }
    }
    if (best)
        turn_of(s, e->revisions.at[at].number)->credit -= total;
    return best;
}

void serve_count_time(struct serve_service *s, int64_t mono_ms) {
    if (s->counted_ms)
        s->in_flight_ms += (double)s->in_flight * (double)(mono_ms - s->counted_ms);
    s->counted_ms = mono_ms;
}

static struct serve_replica *begin(struct serve_service *s, struct serve_replica *r) {
    serve_count_time(s, clock_mono_ms());
    s->in_flight++;
    s->requests++;
    r->in_flight++;
    return r;
}

static bool any_ready(const struct serve_service *s) {
    for (uint32_t i = 0; i < s->replicas.len; i++)
        if (s->replicas.at[i]->state == REPLICA_READY)
            return true;
    return false;
}

static void append(struct serve_service *s, struct serve_waiter *w, int64_t until_ms) {
    w->service = s;
    w->until_ms = until_ms;
    w->next = &s->waiters;
    w->prev = s->waiters.prev;
    w->prev->next = s->waiters.prev = w;
    s->queued++;
}

void serve_unwait(struct serve_waiter *w) {
    if (!w->service)
        return;
    w->prev->next = w->next;
    w->next->prev = w->prev;
    w->service->queued--;
    w->service = NULL;
}

enum serve_verdict serve_take(struct controller *c, uint64_t service, struct serve_waiter *waiter,
                              const struct serve_replica *avoid, struct serve_replica **out) {
    struct serve_service *s = serve_find(c, service);
    const struct event_service *e = s ? core_service_by_id(c->core, service) : NULL;
    int64_t now = clock_mono_ms();
    if (!e)
        return SERVE_GONE;
    s->request_ms = now;
    struct serve_replica *r = s->queued ? NULL : choose(s, e, avoid);
    if (r) {
        *out = begin(s, r);
        return SERVE_TAKEN;
    }
    if (s->queued >= e->queue_max) {
        s->refused++;
        return SERVE_FULL;
    }
    if (!s->cold_since_ms && !any_ready(s))
        s->cold_since_ms = now;
    append(s, waiter, now + (int64_t)e->wait_s * 1000);
    s->dirty = c->serve->dirty = true;  // perhaps more replicas are needed
    return SERVE_WAITS;
}

void serve_done(struct serve_replica *r, int64_t took_us, bool failed) {
    struct serve_service *s = r->service;
    r->in_flight--;
    if (s) {
        serve_count_time(s, clock_mono_ms());
        s->in_flight--;
        s->failures += failed;
        if (took_us >= 0)
            serve_latency_add(&s->latency, clock_mono_ms(), took_us, failed);
        if (s->queued || r->state == REPLICA_DRAINS || r->state == REPLICA_LEAVES)
            s->dirty = s->controller->serve->dirty = true;
    } else if (!r->in_flight) {
        free(r);
    }
}

void serve_replica_lost(struct serve_replica *r, const char *why) {
    if (r->state != REPLICA_READY || !r->service)
        return;
    r->state = REPLICA_STARTS;
    r->since_ms = r->probe_ms = clock_mono_ms();
    r->pause_ms = 0;
    snprintf(r->reason, sizeof r->reason, "%.120s", why);
    r->service->dirty = r->service->controller->serve->dirty = true;
}

void serve_dispatch(struct serve_service *s) {
    struct controller *c = s->controller;
    for (uint32_t i = 0; i < DISPATCH_SLICE && s->queued; i++) {
        const struct event_service *e = core_service_by_id(c->core, s->id);
        struct serve_waiter *w = s->waiters.next;
        struct serve_replica *r = e ? choose(s, e, NULL) : NULL;
        if (!r)
            return;
        serve_unwait(w);
        if (s->cold_since_ms)
            s->cold_start_ms = clock_mono_ms() - s->cold_since_ms;
        s->cold_since_ms = 0;
        app_conn_replica(w, begin(s, r), SERVE_TAKEN);
    }
    if (s->queued)
        s->dirty = c->serve->dirty = true;  // the rest in the next turn
}

void serve_expire(struct serve_service *s, int64_t mono_ms) {
    struct serve_waiter *next;
    for (struct serve_waiter *w = s->waiters.next; w != &s->waiters; w = next) {
        next = w->next;
        if (w->until_ms > mono_ms)
            continue;
        serve_unwait(w);
        s->refused++;
        app_conn_replica(w, NULL, SERVE_WAITS);
    }
}
