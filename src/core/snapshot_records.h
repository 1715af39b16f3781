// The records of a snapshot. A snapshot is a sequence of them, each a type, a length and a body that is described by a
// table (snapshot_records.c). Order: meta, users, nodes, entities, tokens, keys, outcomes, usage, then jobs by id, each
// after its submission, and the end. Only snapshot_write.c and snapshot_load.c include this.
#pragma once
#include "state.h"

enum record_type {
    REC_META = 1,
    REC_USER,
    REC_NODE,
    REC_ENTITY,
    REC_TOKEN,
    REC_SUBMISSION,
    REC_JOB,
    REC_OUTCOMES,
    REC_USAGE,
    REC_END,
    REC_GROUP = 40,           // only with FEATURE_ELASTIC
    REC_JUDGING = 46,         // only with FEATURE_ARRAY_SLICES
    REC_SECRET_DELETED = 48,  // only with FEATURE_SECRET_VERSIONS
    REC_SECRET = 50,          // only with FEATURE_SECRETS
    REC_ACCOUNT = 51,         // only with FEATURE_USERS
    REC_SESSION = 52,         // likewise
    REC_SAVED = 55,           // only with FEATURE_SAVED
    REC_GRANT = 58,           // only with FEATURE_USERS
    REC_ALERT_RULE = 60,      // only with FEATURE_ALERTS
    REC_ALERT = 61,           // likewise
    REC_SHARE = 62,           // only with FEATURE_SHARES
    REC_SERVICE = 66,         // only with FEATURE_SERVICES
    REC_SERVICE_TOKEN = 67,   // likewise; after its service
    REC_VOLUME = 68,          // only with FEATURE_VOLUMES
    REC_NODE_IMAGES = 71,     // only with FEATURE_IMAGES; after its node
    REC_PROVIDER = 74,        // only with FEATURE_PROVIDERS
    REC_WANTED = 75,          // likewise; after its provider
    REC_TYPES
};

struct rec_meta {
    uint64_t next_id, submitted, requeued, preempted;
    LIST(uint64_t) by_state;
    int64_t last_event_ms;
    struct policy_settings *policy;  // NULL: never set
    uint32_t level;                  // 0: the first
    struct bytes key_secret;
    int64_t keys_swept_ms;
    LIST(uint64_t) epochs, epoch_seqs;
    LIST(uint64_t) adopted;  // id, attempt, epoch, node of each
    uint64_t unused_from, unused_to, restore_epoch;
    int64_t restore_ms;
};
struct rec_user {
    const char *name;
};
struct rec_usage {  // what a user used of a project lately
    uint32_t project, user;
    int64_t milli, at_ms;
};
struct rec_node {
    const char *name;
    struct node *node;
    uint32_t state;
    bool drained, removed;
    const char *reason, *by, *fingerprint;
    int64_t reason_ms, busy_ms;
    uint32_t launch_failures;
    int64_t retry_ms;
    const char *launch_reason;
};
struct rec_entity {
    uint32_t kind;
    const char *name;
    struct bytes value;  // empty: deleted, the name keeps its handle
    uint64_t version;
};
struct rec_token {
    struct bytes token;
    bool used;
};
struct rec_submission {
    uint64_t number;     // within this snapshot, named by jobs
    uint64_t id, count;
    int64_t submit_ms;
    struct bytes spec;
    bool is_array;
    uint32_t limit;
    uint64_t ended, ended_ok, begun, live, cursor;
    LIST(struct array_range) ranges;
    bool has_array;      // this record brings the array's counts
    int64_t begun_ms;
    uint64_t uncreated,
        unlimited;  // elements of the array that do not exist yet, or have not got its limit yet
    bool creating;  // they will have this submission
};
struct rec_worker {
    uint64_t id;
    int32_t rank, exit_code;
    uint32_t flags, state, node, exit_signal, component;
};
struct rec_group {  // the workers of an elastic job; comes after its submission
    uint64_t id, generation;
    uint32_t together, worst_state, worst_signal;
    int32_t worst_code;
    LIST(struct rec_worker) workers;
    LIST(uint32_t) together_more;  // of components after the first
};
struct rec_judging {  // jobs that wait for a job or array and are still to be judged; comes after the jobs
    uint64_t target;
    LIST(uint64_t) ids;
};
struct rec_part {
    struct part *part;
    bool started, ended;
    uint32_t cause, exit_signal;
    int32_t exit_code;
    bool launch_failed;
    uint32_t health;
    const char *health_reason;
};
struct rec_gave {  // a job's preemption: for which job, and the two projects' shares then
    uint64_t to;
    int64_t share, to_share;
    uint32_t claim;
};
struct rec_step {
    struct bytes started;  // the event, encoded
    bool ending;
    uint32_t signal, grace_s;
};
struct rec_job {
    uint64_t id, submission;
    uint32_t array_index, attempt, preempted, state, flags, steps, exit_signal;
    int32_t exit_code;
    int64_t begin_ms, eligible_ms, start_ms;
    struct usage *usage;
    LIST(struct rec_part) parts;
    uint32_t time_limit_s;
    bool ending, hold;
    uint32_t cause, signal, grace_s;
    const char *by, *reason, *end_reason;
    const char *partition;
    int64_t suspended_ms, suspend_ms;
    uint32_t warned_percent;
    LIST(struct rec_gave) gave;
    uint32_t uncounted, retried;
    const char *preempted_why;
    struct bytes promised;  // the event, encoded
    const char *late_why;
    uint64_t epoch, seq, agent_id;
    bool adopted;
    LIST(struct rec_step) running;
    LIST(uint64_t) adopted_steps;  // with such: the highest number of others, then number and epoch of each
    uint64_t version;
};
// In columns: outcomes of ended jobs, or idempotency keys. One type of record for both, since the release before
// keys were part of the state refuses types that it does not know, and skips columns.
enum { KEY_COLUMNS = 7 };
struct rec_outcomes {
    LIST(uint64_t) ids, flags, starts;
    LIST(uint64_t) key_hashes, key_specs, key_ids, key_counts, key_users, key_expires, key_plain;
};

const struct schema *core_record_schema(enum record_type type);  // NULL: there is no such type, or it has no body
