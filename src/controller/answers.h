// What the API answers with: one struct and one table per kind of answer. The tables yield the JSON, the
// reference (docs/api.md) and the OpenAPI document. Every field of a table is in every answer; what is not
// known is null.
#pragma once
#include "base/schema.h"
#include "model/app.h"
#include "model/job.h"
#include "model/node.h"

// --- jobs ---

// Where a pending job's turn comes from.
struct answer_order {
    int64_t priority, queue_time_ms, age_s, short_s, use_s, size_s, qos_s, nice_s;
    bool overdue;
    int64_t tier, qos, own, nice;
};

struct answer_job_gpu {
    const char *node;
    uint32_t index, share_milli, use_milli, throttled_milli;
    uint64_t memory_bytes, memory_limit_bytes, power_mw;
    uint64_t given[1];
};

// What a running job uses, as of the last second.
struct answer_live {
    uint64_t cpu_ms, memory_bytes, memory_peak_bytes, gpu_busy_ms, gpu_throttled_ms, gpu_memory_peak_bytes, energy_mj;
    uint32_t processes;
    uint64_t gpu_idle_s;
    bool preparing;
    int64_t preparing_ms;
    uint32_t progress_milli;
    const char *progress_text;
    int64_t left_ms;
    const char *warning;
    LIST(struct answer_job_gpu) gpus;
    uint64_t given[1];
};

// A job: all of it in GET /v1/jobs/{job}, the fields that are asked for in lists.
struct answer_job {
    uint64_t id, array_id;
    uint32_t array_index;
    const char *label, *name, *user, *project, *partition, *qos;
    enum job_class class;
    enum job_state state;
    const char *reason, *nodes;
    uint32_t node_count, tasks, cpus;
    uint64_t memory_bytes, gpus_milli;
    const char *gpu_model;
    uint32_t time_limit_s;
    int64_t submit_ms, eligible_ms, start_ms, end_ms, elapsed_ms, expected_start_ms;
    int32_t exit_code;
    uint32_t exit_signal, attempt, priority;
    int32_t nice;
    const char *comment, *workdir, *output, *error, *command_text, *dependency;
    bool hold;
    uint64_t cpu_ms, memory_peak_bytes, gpu_busy_ms, energy_mj;
    uint32_t preempted;
    const char *features;
    int64_t begin_ms;
    uint32_t uid;
    struct spec *spec;
    const char *steps;
    const char *by;
    const struct usage *usage;
    const char *ending;
    enum launch_kind launch;
    struct answer_order *order;
    uint64_t gpu_use_milli;
    const char *warning;
    int64_t suspended_ms, suspend_ms;
    uint64_t memory_now_bytes;
    const char *container;
    uint32_t step_count;
    uint32_t progress_milli;
    const char *health, *health_reason;
    LIST(const char *) urls;
    LIST(const char *) ports;
    LIST(const char *) tags;
    // Only in lists: elements of an array that wait, in one row.
    const char *elements;
    uint64_t count;
    // Only of one job.
    bool is_array;
    LIST(struct part) parts;
    struct answer_live *live;
    const char *preempted_why;
    const char *late_why;
    const char *workers;
    uint64_t job;
    uint32_t worker;
    LIST(struct worker) members;
    uint64_t version;
    uint64_t given[2];
};
// A set of fields of struct answer_job: a bit per row of its table.
typedef unsigned __int128 column_set;
#define COLUMN_BIT(c) ((column_set)1 << (c))
static inline int column_first(column_set s) {
    return (uint64_t)s ? __builtin_ctzll((uint64_t)s) : 64 + __builtin_ctzll((uint64_t)(s >> 64));
}
extern const struct schema answer_job_schema, answer_job_gpu_schema, answer_live_schema;

struct answer_states {
    uint64_t by_state[JOB_STATE_COUNT];
    uint64_t submitted, requeued, preempted;
};
struct answer_apps {
    LIST(struct app) apps;
};
extern const struct schema answer_apps_schema;
struct answer_array {
    uint64_t id, elements;
    bool complete;
    struct answer_states *states;
};
extern const struct schema answer_states_schema, answer_job_counts_schema, answer_array_schema;

struct answer_error {
    const char *code, *message;
};
struct answer_failure {
    struct answer_error *error;
};
// What an error status is answered with, see RFC 9457.
struct answer_problem {
    const char *type, *title;
    uint32_t status;
    const char *detail, *instance, *field;
    struct answer_error *error;
};
extern const struct schema answer_problem_schema;
struct answer_action_error {
    const char *id;
    struct answer_error *error;
};
struct answer_action {
    uint64_t matched, done, unchanged;
    LIST(struct answer_action_error) errors;
    LIST(const char *) notes;
};
struct answer_environment {
    LIST(const char *) environment;
};
struct answer_events {
    const char *events;
};
struct answer_series_names {
    LIST(const char *) names;
};
struct answer_series {
    const char *name;
    int64_t step_ms;
    const char *points;
};
extern const struct schema answer_series_names_schema, answer_series_schema;
extern const struct schema answer_environment_schema;
extern const struct schema answer_error_schema, answer_failure_schema, answer_action_schema, answer_events_schema;

// --- explanations ---

extern const char *const answer_basis_words[];  // in the order of enum explain_basis
struct answer_start {
    unsigned basis;
    int64_t early_ms, late_ms;
    uint64_t given[1];
};
struct answer_why_nodes {
    uint32_t all, needed, fit, not_in_partition, not_for_project, not_listed, without_features, other_gpu_model, down,
        drained, too_small, reserved, gpus_busy, cpus_busy, memory_busy, exclusive, planned_for_others,
        of_another_user, gone_too_soon;
};
struct answer_holder {
    uint64_t job;
    const char *name, *user, *project;
    uint64_t gpus_milli;
    uint32_t cpus;
    int64_t end_ms;
    uint64_t given[1];
};
struct answer_why_change {
    unsigned what;
    int64_t value;
    LIST(uint64_t) jobs;
    uint64_t given[1];
};
struct answer_why_partition {
    const char *partition, *reason;
    int64_t planned_start_ms;
    uint64_t given[1];
};
struct answer_why {
    uint64_t job;
    enum job_state state;
    LIST(const char *) lines;
    const char *sentences;
    const char *reason;
    uint32_t position, waiting;
    LIST(struct answer_why_partition) partitions;
    struct answer_start *start;
    struct answer_why_nodes *nodes;
    LIST(struct answer_holder) holders;
    struct answer_why_change *change;
    uint64_t given[1];
};
struct answer_variant {
    const char *request, *reason;
    struct answer_start *start;
    const char *refused;
};
struct answer_when {
    LIST(const char *) lines;
    LIST(struct answer_variant) variants;
    const char *refused;
};
struct answer_difference {
    uint64_t seq;
    int64_t at_ms;
    const char *recorded, *now;
};
struct answer_replay {
    uint64_t events, passes, starts, preemptions, different;
    LIST(struct answer_difference) differences;
};
struct answer_efficiency_row {
    const char *what;
    uint64_t asked, used;
    uint32_t percent;
    const char *option, *text;
    uint64_t given[1];
};
struct answer_efficiency {
    uint64_t elapsed_s;
    bool final, too_short, failed;
    uint32_t elements;
    LIST(struct answer_efficiency_row) rows;
    uint64_t given[1];
};
extern const struct schema answer_efficiency_row_schema, answer_start_schema, answer_holder_schema,
    answer_why_change_schema, answer_why_partition_schema;
extern const struct schema answer_why_schema, answer_when_schema, answer_replay_schema, answer_efficiency_schema;

// --- the cluster ---

struct answer_gpu_holder {
    const char *job, *user;
    uint32_t use_milli;
    uint64_t memory_used_bytes, power_mw;
    bool stray;
    uint64_t given[1];
};
struct answer_gpu_now {
    uint32_t held_milli, use_milli;
    uint64_t memory_used_bytes, power_mw;
    int32_t temperature_c;
    uint32_t sm_clock_mhz;
    uint64_t clock_reasons, foreign_bytes;
    LIST(struct answer_gpu_holder) jobs;
    uint64_t given[1];
};
struct answer_node_status {
    const char *name;
    unsigned state;  // answer_node_words
    const char *reason, *by;
    int64_t reason_ms, busy_ms;
    uint32_t cpus, cpus_used;
    uint64_t memory_bytes, memory_used_bytes, gpus_milli, gpus_used_milli;
    LIST(struct gpu) gpus;
    LIST(struct answer_gpu_now) gpus_now;
    LIST(const char *) features;
    LIST(const char *) partitions;
    uint32_t jobs;
    const char *version, *address, *boot_id;
    int64_t boot_ms, agent_start_ms;
    const char *os, *arch;
    uint32_t sockets, cores_per_socket, threads_per_core;
    uint64_t tmp_bytes;
    const char *missing;
    bool connected, containers;
    uint32_t cpu_milli, load_milli;
    uint64_t memory_in_use_bytes;
    uint32_t launch_failures;
    int64_t retry_ms;
    uint64_t given[1];
};
enum answer_node_state {
    ANSWER_NODE_DOWN,
    ANSWER_NODE_CLEANING,
    ANSWER_NODE_UNREACHABLE,
    ANSWER_NODE_DRAINING,
    ANSWER_NODE_DRAINED,
    ANSWER_NODE_IDLE,
    ANSWER_NODE_ALLOCATED,
    ANSWER_NODE_MIXED
};
extern const char *const answer_node_words[];  // in the order of enum answer_node_state
struct answer_nodes {
    LIST(struct answer_node_status) nodes;
};
extern const struct schema answer_gpu_holder_schema, answer_gpu_now_schema, answer_node_schema, answer_nodes_schema;

struct answer_node_counts {
    uint32_t total, up, drained, down;
};
extern const struct schema answer_node_counts_schema;
struct answer_gpu_counts {
    uint32_t total, out_of_use, measured;
    uint64_t busy_milli, power_mw;
};
struct answer_storage {
    uint64_t file_bytes, free_bytes, commits, commit_us_mean, commit_us_max;
    const char *problem;
};
struct answer_scheduler {
    uint64_t passes, last_us, action_slices, action_work_max;
};
struct answer_limits {
    uint64_t max_array_size, max_jobs_per_user, max_queue_length, grace_s;
};
struct answer_prices {
    const char *currency;
    double gpu_hour, cpu_hour, kwh, co2_g_per_kwh;
};
struct answer_status {
    const char *cluster, *version;
    int64_t uptime_ms;
    const char *user;
    bool admin;
    struct answer_node_counts *nodes;
    struct answer_states *jobs;
    struct answer_gpu_counts *gpus;
    uint64_t journal_seq;
    struct answer_storage *storage;
    struct answer_scheduler *scheduler;
    struct answer_limits *limits;
    struct answer_prices *prices;
    uint64_t requests;
    const char *listen;
    LIST(const char *) warnings;
};
struct answer_reload {
    const char *file;
    LIST(const char *) warnings;
};
extern const struct schema answer_reload_schema;

struct answer_upgrade {
    const char *version;
    uint32_t level, newest_level;
    const char *readable_since;
    bool finished;
};
extern const struct schema answer_status_schema, answer_upgrade_schema;

struct answer_audit_record {
    int64_t at_ms;
    const char *who, *from, *what, *on;
    uint32_t status;
};
struct answer_audit {
    LIST(struct answer_audit_record) records;
};
extern const struct schema answer_audit_record_schema, answer_audit_schema;

struct answer_token_created {
    const char *token, *id;
    int64_t expires_ms;
};
enum answer_token_kind { ANSWER_TOKEN_AGENT, ANSWER_TOKEN_USER };
extern const char *const answer_token_words[];
struct answer_token {
    const char *id;
    unsigned kind;
    const char *user, *by;
    int64_t expires_ms;
    bool used;
    const char *node;
    LIST(const char *) scopes;
    const char *project;
};
struct answer_secret {
    const char *name, *user, *project;
    uint32_t version;
    int64_t set_ms;
    const char *by;
};
struct answer_secrets {
    LIST(struct answer_secret) secrets;
    const char *key_lost;
};
extern const struct schema answer_secrets_schema;
struct answer_tokens {
    LIST(struct answer_token) tokens;
};
struct answer_join {
    const char *certificate, *ca, *name, *cluster;
};
extern const struct schema answer_token_created_schema, answer_tokens_schema, answer_join_schema;

// --- sharing ---

struct answer_share {
    const char *project, *parent;
    uint64_t quota_milligpu, share_milligpu, used_milligpu, queued_milligpu;
    uint64_t used_cpus, queued_cpus, running, pending;
    bool deleting;
};
struct answer_shares {
    uint64_t total_milligpu, total_cpus;
    LIST(struct answer_share) projects;
};
struct answer_projects {
    LIST(struct project) projects;
};
struct answer_partitions {
    LIST(struct partition) partitions;
};
struct answer_qos_list {
    LIST(struct qos) qos;
};
struct answer_licenses {
    LIST(struct license) licenses;
};
struct answer_reservations {
    LIST(struct reservation) reservations;
};
struct answer_done {
    bool done;
};
struct answer_changed {
    bool done;
    LIST(const char *) warnings;
};
struct answer_route {
    const char *method, *path, *help;
};
extern const struct schema answer_shares_schema, answer_projects_schema, answer_partitions_schema, answer_qos_schema,
    answer_reservations_schema, answer_licenses_schema, answer_done_schema, answer_changed_schema, answer_route_schema;
