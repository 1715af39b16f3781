// What the API is asked: one struct and one table per kind of query string and of request body. The tables
// yield validation, the reference and the OpenAPI document.
#pragma once
#include "base/schema.h"
#include "model/command.h"
#include "model/job.h"

// --- query strings ---

struct query_jobs {
    const char *fields;
    const char *user, *project, *partition, *qos, *name, *node, *state, *ids, *after, *where;
    bool mine, elements, components, compact, finished, all, stream;
    uint32_t limit;
    int64_t since_ms, until_ms, from_ms, to_ms;
};
struct query_live {
    const char *topics, *user, *project, *partition, *state, *where;
    bool mine;
    uint64_t after;
    uint64_t given[1];
};
struct query_table {
    const char *fields, *user, *project, *partition, *qos, *name, *state, *where, *search, *sort, *after;
    bool mine, elements;
    uint32_t limit;
    int64_t since_ms;
};
extern const struct schema query_live_schema, query_table_schema;
struct query_at {
    int64_t time_ms;
};
enum { POLICY_TRIAL_DAYS_MAX = 366 };
struct request_policy_trial {
    struct policy_settings *change;
    uint32_t days;
    uint64_t given[1];
};
extern const struct schema request_policy_trial_schema;
struct query_analytics {
    int64_t from_ms, to_ms, step_ms;
    unsigned by;  // query_group_words
    bool csv;
};
enum query_group { QUERY_BY_PROJECT, QUERY_BY_USER, QUERY_BY_MONTH };
extern const struct schema query_at_schema, query_analytics_schema;
struct request_mcp {
    const char *jsonrpc, *method, *id, *params;
};
extern const struct schema request_mcp_schema;
struct query_connect {
    int64_t port;
};
struct query_app {
    const char *app, *to, *state;
};
struct query_share {
    uint32_t port;
    const char *user;
    bool project;
};
extern const struct schema query_share_schema;
struct query_app_open {
    uint64_t port;
};
extern const struct schema query_app_schema, query_app_open_schema;
struct query_wait {
    uint32_t timeout_s;
    uint64_t given[1];
};
struct query_logs {
    bool follow;
    int64_t tail;
    unsigned source;  // query_source_words
    uint32_t node, attempt;
    uint64_t from, file;
    bool times;
    uint64_t given[1];
};
struct query_environment {
    bool list;
};
struct query_attach {
    bool resume, placed;
};
struct query_when {
    uint32_t workers;
};
struct query_why {
    int64_t at_ms;
};
struct request_alert_rule {
    const char *metric;
    unsigned when;  // alert_when_words
    double value;
    uint32_t for_s;
    const char *to;
    bool disabled;
};
struct request_alert_ack {
    const char *rule, *subject, *comment;
};
extern const struct schema request_alert_rule_schema, request_alert_ack_schema;
struct query_extension {
    uint32_t time_limit_s;
};
extern const struct schema query_extension_schema;
struct query_trace {
    bool nodes;
    int64_t since_ms, until_ms;
};
struct query_audit {
    int64_t since_ms;
    const char *user;
    uint32_t limit;
};
extern const struct schema query_audit_schema;
struct query_events {
    bool follow;
    uint64_t after, job;
    uint64_t given[1];
};
struct query_series {
    const char *name, *prefix;
    int64_t from_ms, to_ms, step_ms;
    uint64_t given[1];
};
struct query_secret {
    const char *project, *user;
};
struct request_secret {
    const char *project;
    struct bytes value;
};
extern const struct schema query_secret_schema, request_secret_schema;
struct query_delete {
    bool force;
};
enum query_source { QUERY_OUTPUT, QUERY_ERROR };
extern const struct schema query_connect_schema;
extern const struct schema query_jobs_schema, query_wait_schema, query_logs_schema, query_environment_schema,
    query_attach_schema, query_why_schema, query_when_schema, query_trace_schema, query_events_schema,
    query_series_schema, query_delete_schema;

// Reads a query string. Refuses unknown, repeated and malformed parameters, naming them. `s` NULL: there
// may be none.
int query_read(const struct schema *s, const char *text, struct arena *a, void *out, struct error *e);

// --- bodies ---

struct request_submit {
    struct spec *spec;
    const char *script, *upload;
    LIST(const char *) environment;
    const char *key;
    bool dry_run;
};
struct request_app_start {
    LIST(const char *) values;  // "field=value"
    const char *workdir, *key;
    bool dry_run;
    struct app *app;  // NULL: one of those that are known
};
extern const struct schema request_app_start_schema;
struct request_when {
    struct spec *spec;
    const char *script;
    LIST(const char *) environment;
    bool check;
    LIST(struct spec) instead;
};
struct request_action {
    LIST(const char *) ids;
    const char *user, *name, *project, *partition, *qos, *state;
    bool all;
    uint32_t signal;
    bool batch_only, steps_only;
    uint32_t step;
    const char *reason;
    enum hold_kind as;
    bool hold;
    struct spec *spec;
    uint64_t version;
    uint64_t given[1];
};
struct request_resize {
    uint32_t workers_min, workers_max;
    const char *component;
    uint64_t given[1];
};
struct request_rank {
    LIST(struct worker_rank) ranks;
};
extern const struct schema request_resize_schema, request_rank_schema;
struct request_drain {
    const char *reason;
};
struct request_token {
    unsigned kind;  // answer_token_words
    const char *user, *node;
    uint32_t ttl_s;
    LIST(const char *) scopes;
    const char *project;
    uint64_t given[1];
};
struct request_join {
    const char *token, *csr, *name;
};
extern const struct schema request_submit_schema, request_when_schema, request_action_schema, request_drain_schema,
    request_token_schema, request_join_schema;
