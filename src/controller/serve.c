// Owns the run of services: compares what the core says with the replicas that there are, asks those that start whether
// they are ready, and tells the core by commands what it cannot know: that a revision is ready, that one has answered
// all it took, and how many replicas the requests need.
#include "serve.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "metrics/openmetrics.h"
#include "model/reason.h"

enum {
    PROBE_FIRST_MS = 20,
    PROBE_PAUSE_MAX_MS = 1000,
    DECIDE_MS = 1000,          // between decisions about replicas
    DRAIN_MS = 5 * 60 * 1000,  // after that a replica is ended although it has requests
    NO_ROOM_MS = 10 * 1000,    // a new revision takes over with fewer replicas when the others find no room
    PROOF_HEX = 24,
};

const char *const serve_state_words[] = {"waiting", "starting", "ready", "draining", "leaving", NULL};
static const struct actor self = {.user = "controller", .admin = true};

struct serve_service *serve_find(struct controller *c, uint64_t id) {
    return c->serve ? map_get(&c->serve->services, id) : NULL;
}

uint64_t serve_of_label(struct controller *c, const char *label) {
    const struct serve_service *s = c->serve ? strmap_get(&c->serve->labels, label) : NULL;
    return s ? s->id : 0;
}

// NAME and a proof that we made it: nobody can guess the name of another user's service.
static bool make_label(struct controller *c, const struct event_service *e,
                       char out[static APP_LABEL_MAX + 1]) {
    cleanup_buf struct buf text = {0};
    char proof[MAC_HEX + 1];
    struct error error = {0};
    const struct mac_key *key = app_key(c, &error);
    if (!key)
        return false;
    buf_addf(&text, "%s/%s", e->user, e->name);
    mac_hex(key, "service", text.data, text.len, proof);
    snprintf(out, APP_LABEL_MAX + 1, "%.*s-%.*s", SERVICE_NAME_MAX, e->name, PROOF_HEX, proof);
    return true;
}

// --- which services there are ---

static struct serve_service *service_new(struct controller *c, const struct event_service *e) {
    struct serve_service *s = xcalloc(1, sizeof *s);
    int64_t now = clock_mono_ms();
    *s = (struct serve_service){
        .controller = c, .id = e->id, .decided_ms = now, .counted_ms = now, .request_ms = now, .dirty = true};
    s->waiters.next = s->waiters.prev = &s->waiters;
    map_put(&c->serve->services, s->id, s);
    if (make_label(c, e, s->label))
        strmap_put(&c->serve->labels, s->label, s);
    return s;
}

// Its last request frees it.
static void replica_leave(struct serve_replica *r) {
    serve_probe_end(r);
    map_remove(&r->service->controller->serve->replicas, r->job);
    r->service = NULL;
    r->state = REPLICA_LEAVES;
    if (!r->in_flight)
        free(r);
}

static void service_free(struct serve_service *s) {
    struct controller *c = s->controller;
    while (s->queued) {
        struct serve_waiter *w = s->waiters.next;
        serve_unwait(w);
        app_conn_replica(w, NULL, SERVE_GONE);
    }
    for (uint32_t i = 0; i < s->replicas.len; i++)
        replica_leave(s->replicas.at[i]);
    map_remove(&c->serve->services, s->id);
    strmap_remove(&c->serve->labels, s->label);
    vec_done(&s->replicas);
    vec_done(&s->turns);
    free(s);
}

void serve_sync(struct controller *c) {
    const struct event_service *e = NULL;
    VEC(struct serve_service *) gone = {0};
    size_t it = 0;
    void *v;
    if (!c->serve)
        return;
    while (map_next(&c->serve->services, &it, NULL, &v))
        if (!core_service_by_id(c->core, ((struct serve_service *)v)->id))
            vec_push(&gone, (struct serve_service *)v);
    for (uint32_t i = 0; i < gone.len; i++)
        service_free(gone.at[i]);
    vec_done(&gone);
    while ((e = core_service_next(c->core, e)))
        if (!map_get(&c->serve->services, e->id))
            service_new(c, e);
}

// --- which replicas there are ---

struct sync {
    struct serve_service *service;
    const struct service_revision *revision;
    int64_t mono_ms;
    uint64_t look;
};

static void set_state(struct serve_replica *r, enum serve_state state, int64_t mono_ms) {
    if (r->state == state)
        return;
    r->state = state;
    r->since_ms = mono_ms;
    if (state != REPLICA_STARTS)
        serve_probe_end(r);
}

// What the health check of its job says, if it has one.
static void follow_health(struct serve_replica *r, const struct job_view *v, int64_t mono_ms) {
    bool unhealthy = !job_health_serves(v->health);
    if (unhealthy && r->state == REPLICA_READY)
        set_state(r, REPLICA_STARTS, mono_ms);
    if (unhealthy && r->state == REPLICA_STARTS)
        snprintf(r->reason, sizeof r->reason, "%.120s",
                 v->health_reason ? v->health_reason : "its health check has not passed");
    if (r->unhealthy && !unhealthy)
        r->probe_ms = mono_ms;
    r->unhealthy = unhealthy;
}

static bool sync_worker(void *ctx, const struct job_view *v) {
    struct sync *y = ctx;
    struct serve_service *s = y->service;
    struct serve *all = s->controller->serve;
    struct serve_replica *r = map_get(&all->replicas, v->id);
    struct error e = {0};
    all->looked++;
    if (!r) {
        r = xcalloc(1, sizeof *r);
        *r = (struct serve_replica){.service = s, .job = v->id, .since_ms = y->mono_ms};
        vec_push(&s->replicas, r);
        map_put(&all->replicas, v->id, r);
    }
    r->seen = y->look;
    r->number = v->worker;
    r->revision = y->revision->number;
    r->optional = v->optional;
    bool runs = v->state == JOB_RUNNING && !v->ending, begins = runs && r->attempt != v->attempt;
    if (v->ending) {
        set_state(r, REPLICA_LEAVES, y->mono_ms);
    } else if (!runs) {
        set_state(r, REPLICA_WAITS, y->mono_ms);
        snprintf(r->reason, sizeof r->reason, "%s", job_reason_words[v->reason]);
    } else if (begins || r->state == REPLICA_WAITS || r->state == REPLICA_LEAVES) {
        r->attempt = v->attempt;
        r->probe_ms = y->mono_ms;
        r->pause_ms = 0;
        r->reason[0] = 0;
        set_state(r, REPLICA_STARTS, y->mono_ms);
        if (app_choose_port(s->controller, v->id, 0, &r->port, &e) < 0)
            snprintf(r->reason, sizeof r->reason, "%.120s", e.text);
    }
    follow_health(r, v, y->mono_ms);
    if (y->revision->state == REVISION_RETIRING && r->state == REPLICA_READY)
        set_state(r, REPLICA_DRAINS, y->mono_ms);
    return true;
}

static void sync_replicas(struct serve_service *s, const struct event_service *e, int64_t mono_ms) {
    struct sync y = {.service = s, .mono_ms = mono_ms, .look = ++s->controller->serve->looks};
    for (uint32_t i = 0; i < e->revisions.len; i++) {
        y.revision = &e->revisions.at[i];
        core_each_worker(s->controller->core,
                         core_service_job(s->controller->core, e->id, y.revision->number), sync_worker, &y);
    }
    for (uint32_t i = s->replicas.len; i-- > 0;) {
        struct serve_replica *r = s->replicas.at[i];
        if (r->seen == y.look)
            continue;
        set_state(r, REPLICA_LEAVES, mono_ms);
        serve_probe_end(r);
        if (r->in_flight)
            continue;  // until they are answered
        vec_remove(&s->replicas, i);
        replica_leave(r);
    }
}

// --- commands to the core ---

static void tell(struct serve_service *s, enum command_type type, uint32_t revision, uint32_t replicas) {
    struct controller *c = s->controller;
    const struct event_service *e = core_service_by_id(c->core, s->id);
    cleanup_arena struct arena a = {0};
    struct error error = {0};
    if (!e || api_check_storage(c, &error) < 0)
        return;
    struct command_service m = {.user = arena_strdup(&a, e->user),
                                .name = arena_strdup(&a, e->name),
                                .revision = revision,
                                .replicas = replicas};
    int r =
        core_command(c->core, &self, NULL, &(struct command){type, &m}, controller_now_ms(), NULL, &error);
    if (r < 0)
        log_warn("service %s of %s: %s", m.name, m.user, error.text);
}

static uint32_t count_state(const struct serve_service *s, uint32_t revision, enum serve_state state) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->replicas.len; i++)
        n += s->replicas.at[i]->revision == revision && s->replicas.at[i]->state == state;
    return n;
}

// Whether a revision that starts takes over. The first one of a service serves with its first replica; a later one when
// all of its replicas are ready, or those that found room.
static bool takes_over(struct serve_service *s, const struct event_service *e,
                       const struct service_revision *r, int64_t mono_ms) {
    uint32_t ready = count_state(s, r->number, REPLICA_READY);
    uint32_t least = e->replicas_min < r->replicas ? e->replicas_min : r->replicas;
    bool alone = true;
    for (uint32_t i = 0; i < e->revisions.len; i++)
        alone &= e->revisions.at[i].state != REVISION_SERVING;
    if (!ready || alone || ready >= r->replicas)
        return ready > 0;
    bool no_room = count_state(s, r->number, REPLICA_WAITS) + ready >= r->replicas;
    if (!no_room)
        s->waits_since_ms = 0;
    else if (!s->waits_since_ms)
        s->waits_since_ms = mono_ms;
    return no_room && ready >= least && mono_ms - s->waits_since_ms >= NO_ROOM_MS;
}

static uint32_t requests_of(const struct serve_service *s, uint32_t revision) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->replicas.len; i++)
        n += s->replicas.at[i]->revision == revision ? s->replicas.at[i]->in_flight : 0;
    return n;
}

static bool drained_too_long(const struct serve_service *s, uint32_t revision, int64_t mono_ms) {
    for (uint32_t i = 0; i < s->replicas.len; i++) {
        const struct serve_replica *r = s->replicas.at[i];
        if (r->revision == revision && r->in_flight && mono_ms - r->since_ms < DRAIN_MS)
            return false;
    }
    return true;
}

// One step of a rollout. Returns whether it told the core something: then all is looked at anew.
static bool roll(struct serve_service *s, const struct event_service *e, int64_t mono_ms) {
    for (uint32_t i = 0; i < e->revisions.len; i++) {
        const struct service_revision *r = &e->revisions.at[i];
        if (r->state == REVISION_STARTING && takes_over(s, e, r, mono_ms)) {
            s->waits_since_ms = 0;
            tell(s, COMMAND_SERVICE_READY, r->number, 0);
            return true;
        }
        if (r->state == REVISION_RETIRING &&
            (!requests_of(s, r->number) || drained_too_long(s, r->number, mono_ms))) {
            tell(s, COMMAND_SERVICE_RETIRED, r->number, 0);
            return true;
        }
    }
    return false;
}

// --- how many replicas ---

static uint32_t decide(struct serve_service *s, const struct event_service *e,
                       const struct service_revision *r, int64_t mono_ms) {
    serve_count_time(s, mono_ms);
    int64_t span_ms = mono_ms - s->decided_ms;
    struct serve_load l = {
        .now_ms = mono_ms,
        .min = e->replicas_min,
        .max = e->replicas_max,
        .target = e->target,
        .latency_ms = e->latency_ms,
        .cooldown_ms = e->cooldown_s * 1000,
        .idle_ms = e->idle_s * 1000,
        .replicas = s->goal_revision == r->number ? s->goal : r->replicas,
        .ready = count_state(s, r->number, REPLICA_READY),
        .in_flight = span_ms > 0 ? s->in_flight_ms / (double)span_ms : s->in_flight,
        .queued = s->queued,
        .p99_ms = (uint32_t)(serve_latency_us(&s->latency, mono_ms, 990) / 1000),
        .request_ms = s->request_ms,
    };
    if (s->in_flight > l.in_flight)
        l.in_flight = s->in_flight;
    s->decided_ms = mono_ms;
    s->in_flight_ms = 0;
    s->goal = serve_scale(&s->scaler, &l);
    s->goal_revision = r->number;
    return s->goal;
}

// The replica that leaves first: one that takes nothing yet, then the one with the fewest requests, then the newest.
static struct serve_replica *to_drain(const struct serve_service *s, uint32_t revision) {
    struct serve_replica *best = NULL;
    for (uint32_t i = 0; i < s->replicas.len; i++) {
        struct serve_replica *r = s->replicas.at[i];
        if (r->revision != revision || (r->state != REPLICA_READY && r->state != REPLICA_STARTS))
            continue;
        if (!best || (r->state == REPLICA_STARTS) > (best->state == REPLICA_STARTS) ||
            (r->state == best->state && r->optional > best->optional) ||
            (r->state == best->state && r->optional == best->optional && r->in_flight <= best->in_flight))
            best = r;
    }
    return best;
}

static void cancel_worker(struct serve_service *s, const struct serve_replica *r) {
    struct command_cancel m = {.id = r->job, .reason = reason_text(BECAUSE_FEWER_REPLICAS)};
    struct error e = {0};
    core_command(s->controller->core, &self, NULL, &(struct command){COMMAND_CANCEL, &m}, controller_now_ms(),
                 NULL, &e);
}

// Fewer: those that wait go at once, others when they have answered what they have.
static void shrink(struct serve_service *s, const struct service_revision *r, uint32_t wanted,
                   int64_t mono_ms) {
    uint32_t replicas = r->replicas, number = r->number, waiting = count_state(s, number, REPLICA_WAITS);
    uint32_t draining = count_state(s, number, REPLICA_DRAINS);
    uint32_t at_once = replicas - wanted < waiting ? replicas - wanted : waiting;
    struct serve_replica *d;
    replicas -= at_once;
    while (replicas - draining > wanted && (d = to_drain(s, number))) {
        set_state(d, REPLICA_DRAINS, mono_ms);
        draining++;
    }
    for (uint32_t i = 0; i < s->replicas.len; i++) {
        d = s->replicas.at[i];
        bool over = d->revision == number && d->state == REPLICA_DRAINS &&
                    (!d->in_flight || mono_ms - d->since_ms >= DRAIN_MS);
        if (!over || replicas <= wanted)
            continue;
        if (wanted)  // else the whole job ends
            cancel_worker(s, d);
        set_state(d, REPLICA_LEAVES, mono_ms);
        replicas--;
    }
    if (replicas != r->replicas)
        tell(s, COMMAND_SERVICE_SCALE, number, replicas);
}

// Those that were to leave stay.
static void stay(struct serve_service *s, uint32_t revision, int64_t mono_ms) {
    for (uint32_t i = 0; i < s->replicas.len; i++)
        if (s->replicas.at[i]->revision == revision && s->replicas.at[i]->state == REPLICA_DRAINS)
            set_state(s->replicas.at[i], REPLICA_READY, mono_ms);
}

static void fit(struct serve_service *s, const struct service_revision *r, uint32_t wanted, int64_t mono_ms) {
    if (wanted >= r->replicas)
        stay(s, r->number, mono_ms);
    if (wanted > r->replicas)
        tell(s, COMMAND_SERVICE_SCALE, r->number, wanted);
    else if (wanted < r->replicas)
        shrink(s, r, wanted, mono_ms);
}

// The stable revision has what the requests need; one that is tried beside it its part of that.
static void scale(struct serve_service *s, int64_t mono_ms) {
    struct core *core = s->controller->core;
    const struct event_service *e = core_service_by_id(core, s->id);
    uint32_t numbers[SERVICE_REVISIONS_MAX], weights[SERVICE_REVISIONS_MAX], n = 0, wanted = 0;
    for (uint32_t i = 0; i < e->revisions.len; i++)
        if (e->revisions.at[i].state == REVISION_SERVING) {
            numbers[n] = e->revisions.at[i].number;
            weights[n++] = e->revisions.at[i].weight;
        }
    for (uint32_t k = 0; k < n && (e = core_service_by_id(core, s->id)); k++)
        for (uint32_t i = 0; i < e->revisions.len; i++) {
            const struct service_revision *r = &e->revisions.at[i];
            if (r->number != numbers[k] || r->state != REVISION_SERVING)
                continue;
            if (k == 0)
                wanted = decide(s, e, r, mono_ms);
            fit(s, r, k == 0 ? wanted : (wanted * weights[k] + 99) / 100, mono_ms);
            break;
        }
}

// --- probes ---

void serve_probe_result(struct serve_replica *r, bool ready, const char *why) {
    int64_t now = clock_mono_ms();
    struct serve_service *s = r->service;
    if (r->state != REPLICA_STARTS || !s)
        return;
    if (ready) {
        r->reason[0] = 0;
        set_state(r, REPLICA_READY, now);
    } else {
        snprintf(r->reason, sizeof r->reason, "%.120s", why);
        r->pause_ms = r->pause_ms ? r->pause_ms * 3 / 2 : PROBE_FIRST_MS;
        if (r->pause_ms > PROBE_PAUSE_MAX_MS)
            r->pause_ms = PROBE_PAUSE_MAX_MS;
        r->probe_ms = now + r->pause_ms;
    }
    s->dirty = s->controller->serve->dirty = true;
}

// Returns when to come again.
static int64_t probe(struct serve_service *s, int64_t mono_ms) {
    int64_t next = INT64_MAX;
    for (uint32_t i = 0; i < s->replicas.len; i++) {
        struct serve_replica *r = s->replicas.at[i];
        if (r->state != REPLICA_STARTS || r->unhealthy || r->probe || !r->port)
            continue;
        if (r->probe_ms <= mono_ms)
            serve_probe_begin(r);
        if (!r->probe && r->probe_ms < next)
            next = r->probe_ms;
    }
    return next;
}

// --- figures ---

struct metrics_service *serve_metrics(struct controller *c, const struct actor *viewer, struct arena *a,
                                      uint32_t *len) {
    struct metrics_service *list =
        arena_alloc(a, ((c->serve ? c->serve->services.len : 0) + 1) * sizeof *list);
    const struct event_service *e = NULL;
    int64_t now = clock_mono_ms();
    *len = 0;
    while (c->serve && (e = core_service_next(c->core, e)) && *len < c->serve->services.len) {
        const struct serve_service *s = serve_find(c, e->id);
        if (!s || job_sight(c, viewer, e->user, e->project) < SIGHT_PUBLIC)
            continue;
        struct metrics_service *m = &list[(*len)++];
        *m = (struct metrics_service){.name = arena_strdup(a, e->name),
                                      .user = arena_strdup(a, e->user),
                                      .in_flight = s->in_flight,
                                      .queued = s->queued,
                                      .requests = s->requests,
                                      .failures = s->failures,
                                      .refused = s->refused,
                                      .p50_us = serve_latency_us(&s->latency, now, 500),
                                      .p99_us = serve_latency_us(&s->latency, now, 990)};
        for (uint32_t i = 0; i < e->revisions.len; i++) {
            const struct service_revision *r = &e->revisions.at[i];
            m->wanted += r->state == REVISION_RETIRING ? 0 : r->replicas;
            m->ready += r->state == REVISION_SERVING ? count_state(s, r->number, REPLICA_READY) : 0;
        }
    }
    return list;
}

// --- the daemon's life ---

static void on_timer(uv_timer_t *t) {
    struct controller *c = t->data;
    c->serve->dirty = true;
}

void serve_open(struct controller *c) {
    c->serve = xcalloc(1, sizeof *c->serve);
    c->serve->dirty = true;
    c->serve->round = 1;
    uv_timer_init(&c->loop, &c->serve->timer);
    c->serve->timer.data = c;
    uv_unref((uv_handle_t *)&c->serve->timer);
}

void serve_close(struct controller *c) {
    size_t it = 0;
    void *v;
    if (!c->serve)
        return;
    while (map_next(&c->serve->services, &it, NULL, &v)) {
        struct serve_service *s = v;
        for (uint32_t i = 0; i < s->replicas.len; i++)
            free(s->replicas.at[i]);
        vec_done(&s->replicas);
        vec_done(&s->turns);
        free(s);
    }
    map_done(&c->serve->services);
    map_done(&c->serve->replicas);
    strmap_done(&c->serve->labels);
    serve_probes_done(c);
    free(c->serve);
    c->serve = NULL;
}

void serve_changed(struct controller *c, uint64_t id) {
    struct serve_service *s = serve_find(c, id);
    if (c->serve)
        c->serve->dirty = true;
    if (s)
        s->dirty = true;
}

void serve_job_changed(struct controller *c, uint64_t id) {
    struct serve_service *s = c->serve ? serve_find(c, core_service_of_job(c->core, id)) : NULL;
    if (s)
        s->dirty = c->serve->dirty = true;
}

// The texts of a new job: as of one that somebody submits.
static void keep_texts(void *ctx, uint64_t job, const struct event_service *s, uint32_t revision) {
    struct controller *c = ctx;
    cleanup_buf struct buf environment = {0};
    for (uint32_t i = 0; i < s->revisions.len; i++) {
        const struct service_revision *r = &s->revisions.at[i];
        if (r->number != revision)
            continue;
        if (r->script)
            pipeline_keep_text(c->pipeline, job, r->script, strlen(r->script));
        for (uint32_t k = 0; k < r->environment.len; k++)
            buf_add(&environment, r->environment.at[k], strlen(r->environment.at[k]) + 1);
        if (environment.len)
            pipeline_keep_text(c->pipeline, job, environment.data, environment.len);
    }
}

static void turn_of(struct serve_service *s, int64_t mono_ms) {
    const struct event_service *e = core_service_by_id(s->controller->core, s->id);
    s->dirty = false;
    if (!e)
        return;
    sync_replicas(s, e, mono_ms);
    for (uint32_t i = 0; i < SERVICE_REVISIONS_MAX && e && roll(s, e, mono_ms); i++)
        if ((e = core_service_by_id(s->controller->core, s->id)))
            sync_replicas(s, e, mono_ms);
    bool waits = s->queued && !s->in_flight;  // nobody takes requests: do not wait for the next decision
    if (e && (mono_ms - s->decided_ms >= DECIDE_MS || waits))
        scale(s, mono_ms);
    serve_dispatch(s);
}

void serve_turn_ends(struct controller *c) {
    struct serve *v = c->serve;
    int64_t now = clock_mono_ms(), next = INT64_MAX;
    struct error e = {0};
    size_t it = 0;
    void *at;
    if (!v || c->stopping)
        return;
    serve_probes_turn(c, now);
    if (!v->dirty)
        return;
    v->dirty = false;
    v->looked = 0;
    serve_sync(c);
    bool all = true;
    while (map_next(&v->services, &it, NULL, &at)) {
        struct serve_service *s = at;
        if (s->dirty && s->round != v->round && v->looked < SERVE_TURN_REPLICAS) {
            s->round = v->round;
            turn_of(s, now);
        }
        all &= !s->dirty || s->round == v->round;
        v->dirty |= s->dirty;
        int64_t due = probe(s, now);
        if (due < next)
            next = due;
    }
    v->round += all;
    if (v->looked > v->looked_max)
        v->looked_max = v->looked;
    if (api_check_storage(c, &e) == 0)
        core_services_reconcile(c->core, controller_now_ms(), keep_texts, c);
    if (v->dirty)
        uv_timer_start(&v->timer, on_timer, 0, 0);
    else if (next != INT64_MAX)
        uv_timer_start(&v->timer, on_timer, next > now ? (uint64_t)(next - now) : 0, 0);
}

void serve_tick(struct controller *c) {
    size_t it = 0;
    void *v;
    int64_t now = clock_mono_ms();
    if (!c->serve)
        return;
    while (map_next(&c->serve->services, &it, NULL, &v)) {
        serve_expire(v, now);
        ((struct serve_service *)v)->dirty = true;
    }
    c->serve->dirty = true;
}
