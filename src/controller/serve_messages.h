// What the routes about services are asked and answer.
#pragma once
#include "base/schema.h"
#include "model/service.h"

struct query_service {
    const char *user;
};
struct query_services {
    bool all;
};
struct query_service_token {
    const char *user, *id;
};
struct request_service {
    const char *name;
    struct spec *spec;
    const char *script;
    LIST(const char *) environment;
    uint32_t replicas_min, replicas_max, target, limit, latency_ms, queue_max, wait_s, cooldown_s, idle_s,
        canary;
    const char *ready;
    unsigned action;  // service_action_words
    uint64_t given[1];
};
enum service_action { SERVICE_NO_ACTION, SERVICE_PROMOTE, SERVICE_ROLLBACK };
struct request_service_token {
    const char *label;
};
struct answer_serving_revision {
    uint32_t number;
    unsigned state;
    uint32_t weight, replicas, ready;
    uint64_t job;
    const char *command;
    int64_t made_ms;
};
struct answer_service_replica {
    uint64_t job;
    uint32_t number, revision;
    unsigned state;
    bool optional;
    uint32_t in_flight;
    int64_t state_s;
    const char *reason;
};
enum service_word { SERVICE_STARTING, SERVICE_READY, SERVICE_IDLE, SERVICE_UPDATING, SERVICE_FAILING };
struct answer_service {
    const char *name, *user, *project, *url;
    unsigned state;  // enum service_word
    const char *reason;
    uint32_t replicas_min, replicas_max, replicas, ready_replicas;
    uint32_t in_flight, queued;
    double requests_per_s, p50_ms, p99_ms;
    uint64_t requests, failures, refused;
    int64_t cold_start_ms;
    uint32_t target, limit, latency_ms, queue_max, wait_s, cooldown_s, idle_s, canary;
    const char *ready;
    int64_t made_ms;
    LIST(struct answer_serving_revision) revisions;
    LIST(struct answer_service_replica) replica_list;
};
struct answer_services {
    LIST(struct answer_service) services;
};
struct answer_service_token {
    const char *id, *label, *by;
    int64_t made_ms;
};
struct answer_service_tokens {
    LIST(struct answer_service_token) tokens;
};
struct answer_service_token_made {
    const char *id, *token, *url;
};
extern const struct schema query_service_schema, query_services_schema, query_service_token_schema,
    request_service_schema, request_service_token_schema, answer_service_schema, answer_services_schema,
    answer_service_tokens_schema, answer_service_token_made_schema;
