// Answers that the portal's pages are made of.
#pragma once
#include "answers.h"

struct answer_gpu_part {
    const char *project;
    uint32_t milli;
};
struct answer_view_gpu {
    uint32_t index;
    const char *model;
    uint64_t memory_bytes;
    uint32_t held_milli, use_milli;
    uint64_t memory_used_bytes, power_mw;
    int32_t temperature_c;
    const char *unhealthy;
    LIST(struct answer_gpu_part) parts;
    uint64_t given[1];
};
struct answer_view_node {
    const char *name;
    unsigned state;  // answer_node_words
    const char *reason;
    uint32_t cpus, cpus_used, cpu_milli;
    uint64_t memory_bytes, memory_used_bytes, memory_in_use_bytes;
    uint32_t jobs;
    LIST(struct answer_view_gpu) gpus;
    uint64_t given[1];
};
extern const struct schema answer_view_gpu_schema, answer_view_node_schema;

struct answer_view_gpus {
    uint64_t total, allocated_milli, idle_allocated_milli, free_milli, out_of_use, measured, busy_milli,
        power_mw;
};
struct answer_view_cpus {
    uint64_t total, allocated;
};
struct answer_view_memory {
    uint64_t total_bytes, allocated_bytes;
};
struct answer_view_users {
    uint64_t live;
};
struct answer_view_projects {
    uint64_t live, running, pending;
};
struct answer_view_alerts {
    uint64_t open, acknowledged;
};
struct answer_view_wait {
    uint32_t hours;
    uint64_t jobs;
    int64_t median_ms, p90_ms;
};
struct answer_view_hour {
    int64_t step_ms;
    const char *utilisation, *power_watts, *gpus_allocated, *jobs_pending, *jobs_running;
};
// Without the time: the same state is the same text.
struct answer_view_status {
    struct answer_view_gpus *gpus;
    struct answer_node_counts *nodes;
    struct answer_states *jobs;
    struct answer_view_users *users;
    struct answer_view_projects *projects;
    struct answer_view_wait *wait;
    struct answer_view_alerts *alerts;
};
struct answer_overview {
    int64_t at_ms;
    uint64_t seq;
    const char *cluster, *version;
    struct answer_view_gpus *gpus;
    struct answer_view_cpus *cpus;
    struct answer_view_memory *memory;
    struct answer_node_counts *nodes;
    struct answer_states *jobs;
    struct answer_view_users *users;
    struct answer_view_projects *projects;
    struct answer_view_wait *wait;
    struct answer_view_hour *last_hour;
    struct answer_view_alerts *alerts;
    struct answer_shares *shares;
    LIST(struct answer_view_node) node_list;
};
extern const struct schema answer_view_status_schema, answer_overview_schema;

// The state at a time that is over.
struct answer_at {
    int64_t time_ms, oldest_ms;
    uint64_t seq;
    struct answer_states *states;
    const char *jobs;
    bool complete;
    LIST(struct answer_view_node) nodes;
    struct answer_shares *shares;
};
struct answer_analytics_group {
    const char *name;
    uint64_t jobs;
    double gpu_hours, cpu_hours, gpu_busy_hours, gpu_ended_hours, energy_kwh, cost;
    int64_t wait_median_ms;
    LIST(double) gpus;
};
struct answer_analytics {
    int64_t from_ms, to_ms, step_ms;
    bool complete;
    const char *currency;
    LIST(struct answer_analytics_group) groups;
};
extern const struct schema answer_at_schema, answer_analytics_group_schema, answer_analytics_schema;

// What another time limit of a running job does to those that wait.
struct answer_delay {
    const char *job, *name, *user, *project;
    int64_t before_ms, after_ms;
    uint64_t given[1];
};
struct answer_extension {
    uint32_t time_limit_s;
    int64_t end_ms;
    const char *refused;
    uint64_t delayed, earlier;
    bool complete;
    LIST(struct answer_delay) moved;
};
extern const struct schema answer_delay_schema, answer_extension_schema;

// What another policy would have done.
struct answer_trial_run {
    double wait_mean_s, wait_median_s, wait_p95_s, gpu_hours;
    uint64_t preemptions, not_started;
};
struct answer_trial_project {
    const char *project;
    uint64_t jobs;
    struct answer_trial_run *now, *changed;
};
struct answer_policy_trial {
    int64_t from_ms, to_ms;
    uint64_t jobs, left_out, sooner, later;
    bool complete;
    struct answer_trial_run *now, *changed;
    LIST(struct answer_trial_project) projects;
};
extern const struct schema answer_policy_trial_schema;

struct answer_alert {
    const char *rule, *subject, *text;
    double value, now;
    int64_t raised_ms, acknowledged_ms;
    const char *by, *comment;
    uint64_t given[1];
};
struct answer_alert_rule_now {
    const char *name, *metric;
    unsigned when;  // alert_when_words
    double value;
    uint32_t for_s;
    const char *to;
    bool disabled, built_in, set;
};
struct answer_alerts {
    LIST(struct answer_alert) alerts;
    LIST(struct answer_alert_rule_now) rules;
};
extern const struct schema answer_alert_schema, answer_alerts_schema;

struct answer_process {
    uint64_t job;
    uint32_t pid, parent, threads;
    uint64_t memory_bytes, cpu_ms;
    uint32_t cpu_milli;
    const char *name;
    uint64_t given[1];
};
struct answer_processes {
    LIST(struct answer_process) processes;
    uint32_t left_out;
};
struct answer_node_log {
    const char *log;
};
extern const struct schema answer_process_schema, answer_processes_schema, answer_node_log_schema;

struct answer_mcp {
    const char *jsonrpc, *id, *result, *error;
};
extern const struct schema answer_mcp_schema;

// The job table: what its rows have beside a job's fields, and what stands around them.
struct answer_table_array {
    uint64_t elements;
    struct answer_states *states;
};
struct answer_table {
    uint64_t seq;
    int64_t now_ms;
    const char *rows;
    const char *next;
    uint64_t total, jobs;
    struct answer_states *states;
    bool complete;
};
extern const struct schema answer_table_array_schema, answer_table_schema;
