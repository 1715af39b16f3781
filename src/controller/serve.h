// Services while they run: which replicas there are and which are ready, where the next request goes, who waits for a
// replica, and when there are to be more or fewer. All that must be known after a restart is in the core
// (core/service.c); what is here is found out anew. Shared by serve*.c, and by the proxy (app_*.c), which takes a
// replica for each request and gives it back.
#pragma once
#include "app.h"
#include "model/service.h"
#include "serve_scale.h"

enum serve_state {
    REPLICA_WAITS,   // for its place, or to be started again
    REPLICA_STARTS,  // its program runs and has not answered yet
    REPLICA_READY,
    REPLICA_DRAINS,  // takes no new requests
    REPLICA_LEAVES,  // is being ended
};
extern const char *const serve_state_words[];

struct serve_probe;
struct serve_replica {
    struct serve_service *service;  // NULL: it is no part of one any more, and is freed with its last request
    uint64_t job;                   // the worker's
    uint32_t number, revision, attempt, port;
    enum serve_state state;
    bool optional;
    bool unhealthy;  // by the health check of its job: it is not asked before that changes
    uint32_t in_flight;
    uint64_t seen;     // the last look at the core's jobs that found it
    int64_t since_ms;  // in this state; monotonic
    int64_t probe_ms;  // when it is asked next whether it is ready; monotonic
    uint32_t pause_ms;
    struct serve_probe *probe;  // under way
    char reason[128];           // why it is not ready
};

// A request that waits for a replica: part of the client's connection.
struct serve_waiter {
    struct serve_waiter *next, *prev;
    struct serve_service *service;  // NULL: it does not wait
    int64_t until_ms;               // monotonic
};

// How requests are shared out over revisions: each gets its weight added, the highest is taken.
struct serve_turn {
    uint32_t revision;
    int64_t credit;
};

struct serve_service {
    struct controller *controller;
    uint64_t id;
    char label[APP_LABEL_MAX + 1];  // of its host name
    VEC(struct serve_replica *) replicas;
    VEC(struct serve_turn) turns;
    struct serve_waiter waiters;  // head of the list
    uint32_t queued;
    struct serve_scaler scaler;
    uint32_t goal, goal_revision;  // replicas by the last decision, and of which revision; 0: there was none
    struct serve_latency latency;
    uint32_t in_flight;
    double in_flight_ms;  // requests by time, since the last decision
    int64_t counted_ms;   // until when that is counted; monotonic
    int64_t decided_ms;
    int64_t request_ms;  // when the last request came; monotonic
    int64_t
        waits_since_ms;  // the newest revision has some replicas ready and others wait; monotonic; 0: not so
    uint64_t requests, failures, refused;
    int64_t cold_since_ms;  // since when requests wait and no replica is ready; monotonic; 0: none does
    int64_t cold_start_ms;  // how long that took the last time; 0: it never happened
    uint64_t round;         // in which it was looked at last
    bool dirty;
};

// In one turn of the loop so many replicas are compared with the core's jobs, and those of one service more; the other
// services have their turn afterwards.
enum { SERVE_TURN_REPLICAS = 512 };

struct serve {
    struct map services;  // id → struct serve_service
    struct strmap labels;
    struct map replicas;               // the worker's job → struct serve_replica
    uint64_t looks;                    // at the jobs of a service, so far
    uint64_t round;                    // every service that has changed is looked at once in each
    uint32_t looked, looked_max;       // replicas in this turn; the most in any
    VEC(struct serve_probe *) probes;  // under way, or to be closed
    uv_timer_t timer;
    bool dirty;  // the core's services or their jobs have changed
};
void serve_open(struct controller *c);
void serve_close(struct controller *c);
void serve_tick(struct controller *c);
void serve_turn_ends(struct controller *c);  // before what came in is committed
void serve_job_changed(struct controller *c, uint64_t id);
void serve_changed(struct controller *c, uint64_t id);  // a service was changed; 0: it is gone
void serve_sync(struct controller *c);     // knows those that the core has

struct serve_service *serve_find(struct controller *c, uint64_t id);  // NULL: there is none
// The service that a label of a host name stands for; 0: none.
uint64_t serve_of_label(struct controller *c, const char *label);

// Those that the viewer may know of, in the arena.
struct metrics_service *serve_metrics(struct controller *c, const struct actor *viewer, struct arena *a,
                                      uint32_t *len);

// --- requests (serve_route.c) ---

enum serve_verdict { SERVE_TAKEN, SERVE_WAITS, SERVE_FULL, SERVE_GONE };
// A replica for a request, not `avoid` if there is another; or the request waits for one: app_conn_replica is called.
enum serve_verdict serve_take(struct controller *c, uint64_t service, struct serve_waiter *waiter,
                              const struct serve_replica *avoid, struct serve_replica **out);
// It is answered, or given up. took_us < 0: it does not count.
void serve_done(struct serve_replica *r, int64_t took_us, bool failed);
void serve_unwait(struct serve_waiter *w);
void serve_replica_lost(struct serve_replica *r, const char *why);  // it does not take connections
void serve_dispatch(struct serve_service *s);                       // gives waiting requests to replicas
void serve_expire(struct serve_service *s, int64_t mono_ms);        // those that waited too long
void serve_count_time(struct serve_service *s, int64_t mono_ms);

// --- the proxy (app_proxy.c) ---

// A waiting request gets a replica; NULL: none came in time, or the service is gone.
void app_conn_replica(struct serve_waiter *w, struct serve_replica *r, enum serve_verdict why);

// --- probes (serve_probe.c) ---

void serve_probe_begin(struct serve_replica *r);
void serve_probe_end(struct serve_replica *r);  // gives it up
void serve_probes_turn(struct controller *c, int64_t mono_ms);
void serve_probes_done(struct controller *c);
void serve_probe_result(struct serve_replica *r, bool ready, const char *why);  // serve.c
