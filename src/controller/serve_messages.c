// The tables of what the routes about services are asked and answer.
#include "serve_messages.h"

#include "serve.h"

static const char *const action_words[] = {"none", "promote", "rollback", NULL};
static const char *const state_words[] = {"starting", "ready", "idle", "updating", "failing", NULL};

#define S struct query_service
static const struct field query_fields[] = {
    FIELD(1, S, user, "Whose service, for administrators; one's own unless given."),
};
const struct schema query_service_schema = SCHEMA(S, "the query of a service", query_fields);
#undef S
#define S struct query_services
static const struct field query_list_fields[] = {
    FIELD(1, S, all, "Those of all users, for administrators."),
};
const struct schema query_services_schema = SCHEMA(S, "the query of services", query_list_fields);
#undef S
#define S struct query_service_token
static const struct field query_token_fields[] = {
    FIELD(1, S, user, "Whose service, for administrators; one's own unless given."),
    FIELD(2, S, id, "Id of the token.", .required = true),
};
const struct schema query_service_token_schema =
    SCHEMA(S, "the query of a token of a service", query_token_fields);
#undef S
#define S struct request_service
static const struct field request_fields[] = {
    FIELD(1, S, name, "Its name: small letters, digits and hyphens. Only for a new service.",
          .max = SERVICE_NAME_MAX),
    FIELD_SUB(2, S, spec, &spec_schema,
              "One replica, as a job. Of a service that exists: a new revision begins."),
    FIELD(3, S, script, "Text of the replica's script."),
    FIELD_LIST(4, S, environment, "Environment of the replica, as NAME=value."),
    FIELD(5, S, replicas_min, "Replicas that it always has; 0: none while nobody asks.",
          .max = SERVICE_REPLICAS_MAX),
    FIELD(6, S, replicas_max, "Replicas that it has at most.", .max = SERVICE_REPLICAS_MAX),
    FIELD(7, S, target, "Requests that a replica is to have at once; 8 unless given.",
          .max = SERVICE_TARGET_MAX),
    FIELD(8, S, limit, "Requests that it has at most; twice the target unless given.",
          .max = SERVICE_TARGET_MAX),
    FIELD(9, S, latency_ms, "Time within which 99 of 100 answers are to come; 0: not looked at."),
    FIELD(10, S, queue_max, "Requests that wait for a replica at most; 1000 unless given.",
          .max = SERVICE_QUEUE_MAX),
    FIELD(11, S, wait_s, "How long they wait; 60 unless given.", .max = SERVICE_WAIT_MAX_S),
    FIELD(12, S, cooldown_s, "Time with less work before it has fewer replicas; 60 unless given.",
          .max = SERVICE_PAUSE_MAX_S),
    FIELD(13, S, idle_s, "Time without requests before it has none; 300 unless given.",
          .max = SERVICE_PAUSE_MAX_S),
    FIELD(14, S, canary, "Percent of the requests that a new revision gets until it is promoted; 0: all.",
          .max = 99),
    FIELD(15, S, ready, "Path that must be answered before a replica gets requests; / unless given.",
          .max = 255),
    FIELD_WORDS(16, S, action, action_words,
                "promote: the newest revision takes all requests; rollback: it takes none and ends."),
};
const struct schema request_service_schema = SCHEMA_GIVEN(S, "a service", request_fields);
#undef S
#define S struct request_service_token
static const struct field request_token_fields[] = {
    FIELD(1, S, label, "What it is for.", .max = SERVICE_LABEL_MAX),
};
const struct schema request_service_token_schema = SCHEMA(S, "a token of a service", request_token_fields);
#undef S
#define S struct answer_serving_revision
static const struct field revision_fields[] = {
    FIELD(1, S, number, "Its number."),
    FIELD_WORDS(2, S, state, service_revision_words, "How far it has come."),
    FIELD(3, S, weight, "Its part of the requests, in percent."),
    FIELD(4, S, replicas, "Replicas that it is to have."),
    FIELD(5, S, ready, "Replicas that take requests."),
    FIELD(6, S, job, "The job whose workers its replicas are; 0: none now."),
    FIELD(7, S, command, "What it runs."),
    FIELD(8, S, made_ms, "When it was made."),
};
static const struct schema revision_schema = SCHEMA(S, "a revision of a service", revision_fields);
#undef S
#define S struct answer_service_replica
static const struct field replica_fields[] = {
    FIELD(1, S, job, "Job number of the worker."),
    FIELD(2, S, number, "Its number in the job."),
    FIELD(3, S, revision, "The revision it is of."),
    FIELD_WORDS(4, S, state, serve_state_words, "Where it is."),
    FIELD(5, S, optional, "Beyond the minimum: given back when others need its room."),
    FIELD(6, S, in_flight, "Requests that it has now."),
    FIELD(7, S, state_s, "For how long it has been in this state."),
    FIELD(8, S, reason, "Why it is not ready."),
};
static const struct schema replica_schema = SCHEMA(S, "a replica", replica_fields);
#undef S
#define S struct answer_service
static const struct field service_fields[] = {
    FIELD(1, S, name, "Its name."),
    FIELD(2, S, user, "Its user."),
    FIELD(3, S, project, "Its project."),
    FIELD(4, S, url, "Its address; null: it has none this way."),
    FIELD_WORDS(5, S, state, state_words, "Where it is."),
    FIELD(6, S, reason, "Why it is not ready; null: it is."),
    FIELD(7, S, replicas_min, "Replicas that it always has."),
    FIELD(8, S, replicas_max, "Replicas that it has at most."),
    FIELD(9, S, replicas, "Replicas that it is to have now."),
    FIELD(10, S, ready_replicas, "Replicas that take requests."),
    FIELD(11, S, in_flight, "Requests that replicas have now."),
    FIELD(12, S, queued, "Requests that wait for a replica."),
    FIELD(13, S, requests_per_s, "Requests answered a second, in the last minute."),
    FIELD(14, S, p50_ms, "Time within which half of them were."),
    FIELD(15, S, p99_ms, "Time within which 99 of 100 were."),
    FIELD(16, S, requests, "Requests given to replicas since the controller began."),
    FIELD(17, S, failures, "Those whose replica failed."),
    FIELD(18, S, refused, "Requests that found the queue full, or waited too long."),
    FIELD(19, S, cold_start_ms, "How long requests last waited for a first replica; 0: they never did."),
    FIELD(20, S, target, "Requests that a replica is to have at once."),
    FIELD(21, S, limit, "Requests that it has at most."),
    FIELD(22, S, latency_ms, "Time within which 99 of 100 answers are to come; 0: not looked at."),
    FIELD(23, S, queue_max, "Requests that wait at most."),
    FIELD(24, S, wait_s, "How long they wait."),
    FIELD(25, S, cooldown_s, "Time with less work before it has fewer replicas."),
    FIELD(26, S, idle_s, "Time without requests before it has none."),
    FIELD(27, S, canary,
          "Percent of the requests that the newest revision gets until it is promoted; 0: all."),
    FIELD(28, S, ready, "Path that must be answered before a replica gets requests."),
    FIELD(29, S, made_ms, "When it was made."),
    FIELD_LIST_SUB(30, S, revisions, &revision_schema, "Its revisions, oldest first."),
    FIELD_LIST_SUB(31, S, replica_list, &replica_schema, "Its replicas."),
};
const struct schema answer_service_schema = SCHEMA(S, "a service", service_fields);
#undef S
#define S struct answer_services
static const struct field services_fields[] = {
    FIELD_LIST_SUB(1, S, services, &answer_service_schema, "By user and name."),
};
const struct schema answer_services_schema = SCHEMA(S, "services", services_fields);
#undef S
#define S struct answer_service_token
static const struct field token_fields[] = {
    FIELD(1, S, id, "Its id."),
    FIELD(2, S, label, "What it is for."),
    FIELD(3, S, by, "Who made it."),
    FIELD(4, S, made_ms, "When."),
};
static const struct schema token_schema = SCHEMA(S, "a token of a service", token_fields);
#undef S
#define S struct answer_service_tokens
static const struct field tokens_fields[] = {
    FIELD_LIST_SUB(1, S, tokens, &token_schema, "In the order they were made, without their secrets."),
};
const struct schema answer_service_tokens_schema = SCHEMA(S, "tokens of a service", tokens_fields);
#undef S
#define S struct answer_service_token_made
static const struct field made_fields[] = {
    FIELD(1, S, id, "Its id."),
    FIELD(2, S, token, "The token; it is not shown again."),
    FIELD(3, S, url, "Address of the service; null: it has none this way."),
};
const struct schema answer_service_token_made_schema = SCHEMA(S, "a new token of a service", made_fields);
#undef S
