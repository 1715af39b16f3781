// What controller and agents answer to GET /metrics. The caller fills a plain struct with counts and
// lists it has anyway; rendering takes no locks, asks nobody, and is bounded: every list has a limit,
// and what is beyond it is folded into the label value "other" or left out and counted as such.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "metrics/writer.h"
#include "model/job.h"
#include "model/message.h"
#include "model/node.h"

enum {
    METRICS_USERS_MAX = 500,      // the rest is "other"
    METRICS_PROJECTS_MAX = 500,   // the rest is "other"
    METRICS_PARTITIONS_MAX = 200, // the rest is "other"
    METRICS_ROUTES_MAX = 1000,    // the rest is left out
    METRICS_STORAGE_MAX = 16,
    METRICS_NODES_MAX = 10000,    // beyond: only in the sums
    METRICS_GPUS_MAX = 8192,      // beyond: ask the agents
    METRICS_JOB_GPUS_MAX = 8192,
};
#define METRICS_OTHER "other"

// OpenMetrics unless the client's Accept header (NULL: none) names text/plain and not OpenMetrics.
enum metrics_format metrics_negotiate(const char *accept);
const char *metrics_content_type(enum metrics_format format);

// A user's, a project's or a partition's jobs.
struct metrics_group {
    const char *name;
    uint64_t pending, running, suspended;
    uint64_t cpus;             // held by its running jobs
    uint64_t gpus_milli;       // likewise
    uint64_t quota_milligpu;   // projects
    uint64_t share_milligpu;   // projects: the quota as it counts, of the rest too; 0: one share
    uint64_t cpus_total, cpus_idle, cpus_other;  // partitions
};

struct metrics_node {
    const char *name;
    enum node_state state;
    bool drained;
    bool completing, maintenance, reserved, gpu_unhealthy;
    uint32_t cpus, cpus_used, jobs;
    uint64_t memory_bytes, memory_used_bytes;  // held by jobs
    uint32_t gpus_milli, gpus_used_milli;
    const struct message_telemetry *telemetry;  // the newest; NULL: none yet
};

struct metrics_gpu {
    const char *node;
    uint32_t index;
    const struct gpu *gpu;
    uint32_t allocated_milli;
    const struct gpu_sample *sample;  // of the whole device; NULL: none yet
};

struct metrics_job_gpu {
    uint64_t job;
    const char *label;           // "12_3"; NULL: the id
    const char *user, *project;  // NULL: not known here
    const char *node;
    const char *uuid;
    uint32_t grant_milli;
    const struct gpu_sample *sample;  // of the job; its memory_total_bytes is the job's limit
    uint64_t idle_s;
};

struct metrics_route {
    const char *route, *method;
    uint32_t code;
    uint64_t count;
};

struct metrics_storage {
    const char *path;
    uint64_t size_bytes, free_bytes;
};

struct metrics_process {
    uint64_t cpu_us, memory_bytes, fds;
};
// Of the calling process, from /proc; what cannot be read is 0.
void metrics_process_self(struct metrics_process *out);

// How many jobs ended lately, from the counts since the beginning: update at each scrape or oftener.
enum { METRICS_RECENT_MS = 300000, METRICS_RECENT_SLOTS = 64 };
struct metrics_recent {
    struct {
        int64_t at_ms;
        uint64_t by_state[JOB_STATE_COUNT];
    } slots[METRICS_RECENT_SLOTS];
    uint32_t len, next;
};
void metrics_recent_update(struct metrics_recent *r, int64_t now_ms, const uint64_t by_state[JOB_STATE_COUNT]);
uint64_t metrics_recent_count(const struct metrics_recent *r, int64_t now_ms, enum job_state state);

// A service: what its replicas do.
struct metrics_service {
    const char *name, *user;
    uint64_t wanted, ready, in_flight, queued;
    uint64_t requests, failures, refused;
    uint64_t p50_us, p99_us;
};

struct metrics_input {
    enum metrics_format format;
    const char *version;
    int64_t now_ms, start_ms;                  // wall clock
    uint64_t jobs_by_state[JOB_STATE_COUNT];   // live ones now; final ones since the beginning
    uint64_t pending_by_reason[REASON_COUNT];
    uint64_t submitted, started, requeued, preempted;
    int64_t oldest_eligible_ms;                // of pending jobs that nothing but resources holds back; 0: none
    const struct metrics_recent *recent;       // NULL: none ended lately
    LIST(const struct metrics_group) users;
    LIST(const struct metrics_group) projects;
    LIST(const struct metrics_group) partitions;
    LIST(const struct metrics_service) services;
    LIST(const struct metrics_node) nodes;
    LIST(const struct metrics_gpu) gpus;
    LIST(const struct metrics_job_gpu) job_gpus;
    const struct metrics_histogram *pass;      // of scheduling; NULL: none
    uint64_t pass_last_us, pass_jobs, backfilled;
    LIST(const struct metrics_route) routes;
    const struct metrics_histogram *request;
    uint64_t connections;
    uint64_t journal_events, journal_bytes, journal_waiting, journal_commits, journal_commit_us;
    int64_t snapshot_ms;                       // 0: none yet
    LIST(const struct metrics_storage) storage;
    struct metrics_process process;
};
void metrics_controller(const struct metrics_input *in, struct buf *out);

struct metrics_agent_input {
    enum metrics_format format;
    const char *version;
    int64_t now_ms, start_ms;
    const struct node *node;
    bool connected;  // to the controller
    uint32_t jobs;
    const struct message_telemetry *telemetry;  // the newest, samples of devices and of jobs; NULL: none
    LIST(const struct metrics_job_gpu) job_gpus;
    LIST(const uint32_t) allocated_milli;       // per GPU of the node; may be shorter
    struct metrics_process process;
};
void metrics_agent(const struct metrics_agent_input *in, struct buf *out);
