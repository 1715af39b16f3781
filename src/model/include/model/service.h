// Services: programs that answer requests, as many copies of each as there is work for. A service has revisions, one
// for each time it was given another program or another shape; the replicas of a revision are the workers of one
// elastic job.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/schema.h"
#include "model/job.h"

enum {
    SERVICE_NAME_MAX = 32,
    SERVICES_PER_USER = 32,
    SERVICES_MAX = 1024,
    SERVICE_REVISIONS_MAX = 4,  // at a time
    SERVICE_TOKENS_MAX = 64,    // of one service
    SERVICE_LABEL_MAX = 64,     // bytes of what a token is for
    SERVICE_REPLICAS_MAX = 256,
    SERVICE_TARGET_MAX = 1024,
    SERVICE_QUEUE_MAX = 4096,
    SERVICE_WAIT_MAX_S = 600,
    SERVICE_PAUSE_MAX_S = 86400,
    SERVICE_BYTES_MAX = 256 << 10,  // of a revision, its script and environment with it
};

// How far a revision has come. STARTING: it takes requests as soon as its replicas are ready, while an earlier one
// serves. SERVING: it takes its part of the requests. RETIRING: it takes no new ones, and ends when it has answered
// those it has.
enum revision_state { REVISION_STARTING, REVISION_SERVING, REVISION_RETIRING, REVISION_STATES };
extern const char *const service_revision_words[];

struct service_revision {
    uint32_t number;
    unsigned state;     // enum revision_state
    uint32_t weight;    // its part of the requests, in percent
    uint32_t replicas;  // that it is to have now
    struct spec *spec;  // of one replica; NULL in an event: stays as it was
    const char *script;
    LIST(const char *) environment;  // NAME=value
    int64_t made_ms;
};
extern const struct schema service_revision_schema;

struct event_service {
    uint64_t id;  // of the service; never used again
    const char *user, *name, *project;
    uint32_t uid, gid;
    uint32_t replicas_min, replicas_max;
    uint32_t target;      // requests that a replica is to have at once
    uint32_t limit;       // that it has at most; others wait
    uint32_t latency_ms;  // that 99 of 100 answers are to take at most; 0: not looked at
    uint32_t queue_max;   // requests that wait for a replica
    uint32_t wait_s;      // how long they do
    uint32_t cooldown_s;  // fewer replicas only after so long with less work
    uint32_t idle_s;      // none only after so long without a request
    uint32_t canary;      // percent that the newest revision gets when it is ready; 0: all
    const char *ready;    // path that a replica is asked for before it gets requests
    LIST(struct service_revision) revisions;  // oldest first
    const char *by;
    int64_t made_ms;
    uint64_t given[1];
};
extern const struct schema event_service_schema;

// What lets a caller in. The text itself is known to the caller alone.
struct event_service_token {
    uint64_t service;
    const char *id, *hash;
    const char *label;  // what it is for, in its owner's words
    const char *by;
    int64_t made_ms;
};
extern const struct schema event_service_token_schema;

struct command_service {
    const char *user, *name;  // user NULL: the actor's own
    uint32_t revision, replicas;
};
extern const struct schema command_service_schema;
struct command_service_token {
    const char *user, *name;
    const char *id, *hash, *label;
};
extern const struct schema command_service_token_schema;

int service_name_check(const char *name, struct error *e);
// The numbers of a service, after defaults were filled in.
int service_check(const struct event_service *s, struct error *e);
void service_defaults(struct event_service *s);
