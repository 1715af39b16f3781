// Commands: every change that somebody asks of the controller, as data. One schema-described struct per
// kind, whoever sends it: the API, the configuration file, the controller itself, the fault simulator.
// core_command (core/core.h) checks one and carries it out.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/schema.h"
#include "model/event.h"
#include "model/job.h"
#include "model/node.h"

enum command_type {
    COMMAND_NONE,
    COMMAND_SUBMIT,           // struct command_submit
    COMMAND_CANCEL,           // struct command_cancel
    COMMAND_HOLD,             // struct command_hold
    COMMAND_RELEASE,          // struct command_job
    COMMAND_REQUEUE,          // struct command_requeue
    COMMAND_SUSPEND,          // struct command_job
    COMMAND_RESUME,           // struct command_job
    COMMAND_UPDATE,           // struct command_update
    COMMAND_RESIZE,           // struct command_resize
    COMMAND_RANK_WORKERS,     // struct command_rank_workers
    COMMAND_NODE_DRAIN,       // struct command_node_drain
    COMMAND_NODE_RESUME,      // struct command_node
    COMMAND_NODE_REMOVE,      // struct command_node
    COMMAND_PROJECT_SET,      // struct project
    COMMAND_PARTITION_SET,    // struct partition
    COMMAND_QOS_SET,          // struct qos
    COMMAND_RESERVATION_SET,  // struct reservation
    COMMAND_LICENSE_SET,      // struct license
    COMMAND_ENTITY_DELETE,    // struct command_entity_delete
    COMMAND_POLICY_SET,       // struct policy_settings: only what is given changes
    COMMAND_TOKEN_CREATE,     // struct command_token_create
    COMMAND_TOKEN_REVOKE,     // struct command_token_revoke
    COMMAND_TOKEN_USE,        // struct command_token_use
    COMMAND_KEYS_INIT,        // struct command_keys_init
    COMMAND_KEY_IMPORT,       // struct command_key_import
    COMMAND_SECRET_SET,       // struct command_secret
    COMMAND_SECRET_DELETE,    // struct command_secret
    COMMAND_UPGRADE_FINISH,   // struct command_empty
    COMMAND_USER_SET,         // struct user_account: only what is given changes
    COMMAND_USER_REMOVE,      // struct command_user
    COMMAND_USER_PASSWORD,    // struct command_user
    COMMAND_USER_GRANT,       // struct event_user_grant
    COMMAND_SESSION_BEGIN,    // struct event_session
    COMMAND_SESSION_SEEN,     // struct command_session
    COMMAND_SESSION_END,      // struct command_session
    COMMAND_SAVED_SET,        // struct event_saved: user, by and set_ms are filled in
    COMMAND_SAVED_DELETE,     // struct event_saved: kind, name and project count
    COMMAND_ALERT_SET,        // struct alert_rule
    COMMAND_ALERT_DELETE,     // struct command_alert: its rule
    COMMAND_ALERT_RAISE,      // struct command_alert
    COMMAND_ALERT_CLEAR,      // struct command_alert
    COMMAND_ALERT_ACK,        // struct command_alert
    COMMAND_SHARE_SET,        // struct event_share: by and made_ms are filled in
    COMMAND_SHARE_END,        // struct event_share: job, port, user and project count
    COMMAND_SERVICE_CREATE,  // struct event_service with one revision: user, id, by and made_ms are filled in
    COMMAND_SERVICE_UPDATE,  // struct event_service: what is given changes; with a revision, a new one begins
    COMMAND_SERVICE_SCALE,   // struct command_service: replicas of a revision
    COMMAND_SERVICE_READY,   // struct command_service: the revision takes requests
    COMMAND_SERVICE_PROMOTE,       // struct command_service: the newest revision takes all of them
    COMMAND_SERVICE_ROLLBACK,      // struct command_service: the newest takes none and goes
    COMMAND_SERVICE_RETIRED,       // struct command_service: the revision has answered all that it took
    COMMAND_SERVICE_DELETE,        // struct command_service
    COMMAND_SERVICE_TOKEN_SET,     // struct command_service_token
    COMMAND_SERVICE_TOKEN_REVOKE,  // struct command_service_token: its id counts
    COMMAND_VOLUME_CREATE,    // struct event_volume: name, project, size_bytes, mode and at count
    COMMAND_VOLUME_DELETE,    // struct command_volume
    COMMAND_VOLUME_SHARE,     // struct command_volume
    COMMAND_PROVIDER_SET,     // struct provider: only what is given changes
    COMMAND_PROVIDER_REMOVE,  // struct command_provider_remove
    COMMAND_PROVIDER_REPORT,  // struct provider_report: by the controller, what the program said
    COMMAND_TYPE_COUNT
};

struct command {
    enum command_type type;
    const void *body;  // as command_schema(type) describes
};

// One volume, and for a share with whom.
struct command_volume {
    const char *name, *user, *project;  // user and project NULL: one's own
    const char *with;                   // a user
    bool read_only, revoke;
};

const char *command_name(enum command_type type);              // "submit", "node_drain"
const struct schema *command_schema(enum command_type type);
enum command_type command_entity_set(enum entity_kind kind);   // COMMAND_PROJECT_SET, …

// What a command led to.
struct command_result {
    uint64_t id, count;  // submit: the first id, and how many jobs (elements of the array)
    bool repeated;       // submit: the idempotency key was used before for the same job
    bool unchanged;      // there was nothing to do; the error's text says why, as "job 7 was not held"
};
extern const struct schema command_result_schema;

// --- jobs ---

// With dry_run everything is checked and nothing happens. The texts' ids and sizes are set already.
struct command_submit {
    const struct spec *spec;
    bool dry_run;
    uint64_t service;  // by the controller for one of its services; those of `spec` do not count
    uint32_t revision;
};

struct command_job {  // release, suspend, resume
    uint64_t id;
};

struct command_cancel {
    uint64_t id;
    uint32_t signal;      // 0: end the job; otherwise only send this signal
    bool batch_only;      // to the batch script alone
    bool steps_only;      // not to the batch script, as Slurm's scancel --signal
    uint32_t step;        // only this step; 0: the whole job
    const char *reason;
};

// A job held by an administrator can only be released by one. A running job goes on, and is held when it
// comes back to the queue. HOLD_BY_OWNER: as user for one's own jobs, as administrator for others'.
enum hold_kind { HOLD_BY_OWNER, HOLD_USER, HOLD_ADMIN };
extern const char *const command_hold_kind_words[];

struct command_hold {
    uint64_t id;
    enum hold_kind as;
};

struct command_requeue {
    uint64_t id;
    bool hold;  // and hold it
};

struct command_update {
    uint64_t id;
    const struct spec *change;  // only what is given changes
    bool dry_run;
};

// How many workers an elastic job is to have. min 0 that is not given: stays, unless it is more than max.
struct command_resize {
    uint64_t id;
    uint32_t workers_min, workers_max;
    const char *component;  // of a job with several
    bool min_given;
};

// Which workers of an elastic job are given back first.
struct command_rank_workers {
    uint64_t id;
    LIST(struct worker_rank) ranks;
};

// --- administration ---

struct command_node {
    const char *node;
};

struct command_node_drain {
    const char *node, *reason;
};

// Refused while live jobs are in it, unless forced; those of a reservation only lose their right to it.
struct command_entity_delete {
    enum entity_kind kind;
    const char *name;
    bool force;
};

struct command_token_create {
    const char *id;
    const char *hash;   // of the secret
    const char *user;   // a user's API token; NULL: for an agent to join
    const char *node;   // of an agent's token: only for the node of this name
    int64_t expires_ms;
    uint32_t scopes;      // enum user_scope; 0: all
    const char *project;  // jobs of this project only
};

struct command_token_revoke {
    const char *id;
};

struct command_token_use {
    const char *id, *hash, *node;
    const char *fingerprint;  // of the certificate that the node gets
};

// The hash of a password does not pass through the core: it is stored, encrypted, in the same batch.
struct command_user {
    const char *name;
    const char *keep;  // password: this session stays when the others of the account end
};

struct command_alert {
    const char *rule, *subject;
    double value;         // to raise it
    const char *comment;  // of who acknowledges it
};
struct command_session {
    const char *id;
};

struct command_empty {  // nothing to say
    char unused;
};

// The value does not pass through the core: it is stored, encrypted, in the same batch.
struct command_secret {
    const char *name;
    const char *project;  // NULL: the user's own
    const char *user;     // delete: of this user, for administrators; NULL: one's own
};

// --- idempotency keys ---

// The secret that keys are hashed with, once in the life of a cluster.
struct command_keys_init {
    struct bytes secret;  // 16 random bytes
};

// A key that the previous release kept outside the core. The spec is not known: any is taken for the same.
struct command_key_import {
    const char *user, *key;
    uint64_t id, count;
    int64_t expires_ms;
};
