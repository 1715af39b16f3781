// Events: everything that ever changes the controller's state, in the order of the journal. The
// table in event.c gives each its name and its fields; numbers are never reused.
#pragma once
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "model/image.h"
#include "model/alert.h"
#include "model/health.h"
#include "model/job.h"
#include "model/node.h"
#include "model/provider.h"
#include "model/service.h"
#include "model/user.h"

enum event_type {
    EVENT_NONE = 0,
    EVENT_JOB_SUBMITTED = 1,
    EVENT_JOB_HELD = 2,
    EVENT_JOB_RELEASED = 3,
    EVENT_JOB_UPDATED = 4,
    EVENT_JOB_PLACED = 5,
    EVENT_JOB_STARTED = 6,
    EVENT_JOB_ENDING = 7,
    EVENT_PART_ENDED = 8,
    EVENT_JOB_ENDED = 9,
    EVENT_JOB_REQUEUED = 10,
    EVENT_JOB_SUSPENDED = 11,
    EVENT_JOB_RESUMED = 12,
    EVENT_STEP_STARTED = 13,
    EVENT_STEP_ENDED = 14,
    EVENT_STEP_ENDING = 15,
    EVENT_WORKERS_PLACED = 16,
    EVENT_WORKER_RESTARTED = 17,
    EVENT_JOB_TIME_WARNING = 18,
    EVENT_NODE_JOINED = 20,
    EVENT_NODE_STATE = 21,
    EVENT_NODE_DRAINED = 22,
    EVENT_NODE_RESUMED = 23,
    EVENT_NODE_REMOVED = 24,
    EVENT_NODE_LAUNCHES = 25,
    EVENT_ARRAY_CONTINUED = 26,
    EVENT_DEPENDENTS_JUDGED = 27,
    EVENT_PROJECT_SET = 30,
    EVENT_PROJECT_DELETED = 31,
    EVENT_PARTITION_SET = 32,
    EVENT_PARTITION_DELETED = 33,
    EVENT_QOS_SET = 34,
    EVENT_QOS_DELETED = 35,
    EVENT_RESERVATION_SET = 36,
    EVENT_RESERVATION_DELETED = 37,
    EVENT_POLICY_SET = 38,
    EVENT_TOKEN_CREATED = 40,
    EVENT_TOKEN_USED = 41,
    EVENT_TOKEN_REVOKED = 42,
    EVENT_LEVEL_SET = 50,
    EVENT_CONTROLLER_STARTED = 51,
    EVENT_RESTORE_FOUND = 52,
    EVENT_JOB_RESIZED = 53,
    EVENT_WORKERS_RANKED = 54,
    EVENT_KEYS_INIT = 60,
    EVENT_KEY_IMPORTED = 61,
    EVENT_KEYS_EXPIRED = 62,
    EVENT_SECRET_SET = 70,
    EVENT_SECRET_DELETED = 71,
    EVENT_USER_SET = 80,
    EVENT_USER_REMOVED = 81,
    EVENT_USER_PASSWORD = 82,
    EVENT_SESSION_BEGUN = 83,
    EVENT_SESSION_SEEN = 84,
    EVENT_SESSION_ENDED = 85,
    EVENT_SAVED_SET = 90,
    EVENT_SAVED_DELETED = 91,
    EVENT_USER_GRANTED = 95,
    EVENT_ALERT_RULE_SET = 98,
    EVENT_ALERT_RULE_DELETED = 99,
    EVENT_ALERT_RAISED = 100,
    EVENT_ALERT_ACKNOWLEDGED = 101,
    EVENT_ALERT_CLEARED = 102,
    EVENT_JOB_ADOPTED = 103,
    EVENT_SHARE_SET = 108,
    EVENT_SHARE_ENDED = 109,
    EVENT_PART_ADOPTED = 110,
    EVENT_JOB_HEALTH = 112,
    EVENT_SERVICE_SET = 116,
    EVENT_SERVICE_DELETED = 117,
    EVENT_SERVICE_TOKEN_SET = 118,
    EVENT_SERVICE_TOKEN_REVOKED = 119,
    EVENT_VOLUME_SET = 120,
    EVENT_VOLUME_DELETED = 121,
    EVENT_NODE_IMAGES = 128,
    EVENT_PROVIDER_SET = 132,
    EVENT_PROVIDER_REMOVED = 133,
    EVENT_WANTED_NODE = 134,
    EVENT_JOB_PROMISED = 135,
    EVENT_LICENSE_SET = 144,
    EVENT_LICENSE_DELETED = 145,
    EVENT_TYPE_MAX = 146
};

// Why a job is being ended, or was.
enum end_cause {
    END_EXIT,
    END_CANCEL,
    END_TIMEOUT,
    END_PREEMPT,
    END_NODE_FAIL,
    END_REQUEUE,
    END_OOM,
    END_LAUNCH,
    END_DEADLINE,
    END_GPU,
    END_UNHEALTHY,  // its health check failed too often
    END_IDLE,       // its program was not used for as long as the job allows
    END_CAUSE_COUNT
};
extern const char *const event_end_cause_words[];

struct event_key {         // an idempotency key
    uint64_t hash;        // of user and key, with the cluster's secret
    uint64_t spec_hash;   // of the spec as it was sent; 0: not known
    int64_t expires_ms;
};
struct event_job_submitted {
    uint64_t id;  // of the first element; an array takes spec_array_count ids in a row
    struct spec *spec;
    const char *key_text;   // only in journals of the release before keys were part of the state
    struct event_key *key;  // NULL: none
    int64_t submit_ms;  // of a job adopted after a restore; 0: now
    uint64_t created;   // elements that exist from now on, the others follow (array_continued); 0: all
};
struct event_array_continued {
    uint64_t id;       // of the array
    uint64_t created;  // so many of its elements exist now,
    uint64_t limited;  // and its limit is applied to so many
};
// Many jobs wait for one job or array that has started or ended: they are looked at in slices.
struct event_dependents_judged {
    uint64_t target;  // the job or array
    bool array;       // it is an array as a whole
    uint64_t upto;    // the jobs with ids up to this
};
struct event_job {  // held, released, suspended, resumed
    uint64_t id;
    const char *by;
    bool by_admin;
    const char *reason;
};
struct event_job_time_warning {
    uint64_t id;
    uint32_t attempt, percent;  // of its time limit is used
};
struct event_job_updated {
    uint64_t id;
    struct spec *spec;  // replaces the old one, for this element only
    const char *by;
};
struct event_job_placed {
    uint64_t id;
    uint32_t attempt;
    LIST(struct part) parts;
    uint32_t time_limit_s;  // 0: none
    const char *partition;  // of the several it may have; NULL: it names one
    uint64_t epoch;         // of the controller that placed it; 0: before there were epochs
    // An attempt that an earlier copy of the controller had started (core/adopt.c):
    uint64_t placed_seq;    // the event that placed it then; 0: this one
    uint64_t agent_id;      // the job's number on its node, where that is another; 0: the same
    int64_t start_ms;       // 0: now
    const char *reason;     // shown while it runs
    bool optional;          // a worker beyond the minimum of its job
    uint64_t generation;    // of an adopted worker: of the membership that it knows
};
// A pending job will start by then at the latest, on these nodes (sched/promise.c).
struct promised_node {
    const char *node;
    uint32_t tasks;
    uint32_t gpus;  // where they are not divided evenly; else 0
    uint32_t part;  // of a job with several shapes
};
struct event_job_promised {
    uint64_t id;
    int64_t start_ms;  // 0: not known any more
    const char *partition;
    LIST(struct promised_node) nodes;
    const char *reason;  // why an earlier promise could not be kept; NULL: it was, or is the first
};
// A node reports its part of an attempt of several nodes that is a job again since another node reported it
// (core/adopt_part.c).
struct event_part_adopted {
    uint64_t id;
    uint32_t attempt;
    uint32_t place;  // among the parts that the job has; the first one runs the batch script
    struct part *part;
};
// An elastic job goes on whose workers an earlier copy of the controller had started (core/adopt_group.c). It runs
// from now on; each worker that is found follows as job_placed.
struct event_job_adopted {
    uint64_t id;
    uint32_t attempt;
    uint32_t time_limit_s;  // 0: none
    const char *partition;  // of the several it may have; NULL: it names one
    uint64_t agent_id;      // the job's number on its nodes, where that is another; 0: the same
    int64_t start_ms;
    int64_t begin_ms;    // workers that no node has reported by then are started
    bool texts_lost;     // its script and environment are not in this copy: it can start no more workers
    const char *reason;  // shown while it runs
};
// The minimum of an elastic job is placed: all of its workers at once, each with its part.
struct placed_worker {
    uint32_t number, attempt;
    uint64_t id;  // the worker's job id
    struct part *part;
    LIST(struct part) more;  // on further nodes
};
struct event_workers_placed {
    uint64_t id;       // of the job
    uint32_t attempt;  // of the job
    LIST(struct placed_worker) workers;
    uint32_t time_limit_s;  // 0: none
    const char *partition;  // of the several it may have; NULL: it names one
    uint64_t epoch;
};
// A worker whose program failed is run again where it was.
struct event_worker_restarted {
    uint64_t id;       // of the worker
    uint32_t attempt;  // the new one
    int64_t begin_ms;  // not before; 0: now
    uint32_t time_limit_s;
    uint64_t epoch;
    const char *reason;
    uint64_t job;  // it belongs to
};
struct event_job_resized {
    uint64_t id;
    uint32_t workers_min, workers_max;
    uint32_t added;     // new workers
    uint64_t first_id;  // of the first of them; the others follow
    const char *by;
    const char *component;  // whose numbers these are; NULL: the job has one kind of workers
    int64_t begin_ms;       // the new ones are not started before; 0: at once
};
struct worker_rank {
    uint32_t number;
    int32_t rank;
    bool idle;
};
extern const struct schema event_worker_rank_schema;
struct event_workers_ranked {
    uint64_t id;
    LIST(struct worker_rank) ranks;
    const char *by;
};
struct event_job_started {
    uint64_t id;
    uint32_t attempt;
    const char *node;
    const char *cpu_ids;
    bool first;  // of its array or of its job's workers, where somebody is to be notified of that
};
struct event_job_health {
    uint64_t id;
    uint32_t attempt;
    const char *node;
    enum job_health health;
    const char *reason;  // what the check answered, where it failed
};
struct event_job_ending {
    uint64_t id;
    uint32_t attempt;
    enum end_cause cause;
    const char *by;      // user, or the job it makes room for
    const char *reason;
    uint32_t signal;     // first signal; 0: SIGTERM
    uint32_t grace_s;
    bool hold;           // END_REQUEUE: held afterwards
    int32_t exit_code;   // END_EXIT of an allocation: what becomes of the job
    uint32_t exit_signal;
    uint32_t claim;      // END_PREEMPT: by what the other job takes it (enum sched_claim); the projects' shares then
    int64_t share, by_share;
};
struct event_part_ended {
    uint64_t id;
    uint32_t attempt;
    const char *node;
    enum end_cause cause;
    int32_t exit_code;
    uint32_t exit_signal;
    const char *reason;
    struct usage *usage;
    bool launch_failed;  // for the node's own reasons: it never ran
};
struct event_job_ended {
    uint64_t id;
    uint32_t attempt;
    enum job_state state;
    int32_t exit_code;
    uint32_t exit_signal;
    const char *reason;
    const char *by;
    uint64_t array_elements,
        array_completed;  // the last of its array, where somebody is to be notified of that
};
struct event_job_requeued {
    uint64_t id;
    uint32_t attempt;  // the one that ended
    enum end_cause cause;
    const char *by, *reason;
    bool hold;
    int64_t begin_ms;
    bool uncounted;  // the node could not launch it: not counted as one of the job's attempts
    bool retry;      // its program failed and is run again (spec.retries)
};
// What a step has on one node of its job; positions are those of the job's part there.
struct step_part {
    const char *node;
    LIST(uint32_t) ranks;
    LIST(uint32_t) cpus;
    uint64_t memory_bytes;
    LIST(struct gpu_grant) gpus;
    bool owns_gpus;            // other steps may not have them
    LIST(uint64_t) task_gpus;  // by task: mask of positions in `gpus`; empty: all see all
};
// How a step ended on one node.
struct step_end {
    uint64_t id;
    uint32_t attempt, step;
    const char *node;
    enum end_cause cause;
    int32_t exit_code;         // of the worst task
    uint32_t exit_signal;
    uint32_t task;             // its rank
    const char *error;         // why it could not run or was ended; NULL: it ended by itself
    LIST(uint32_t) exits;      // wait statuses in order of rank; may be fewer than tasks
    struct usage *usage;
    uint64_t output_bytes;  // that its tasks printed to streams, also what was dropped; 0: not known
    uint64_t epoch, made_seq;  // as in step_started
};
extern const struct schema event_step_end_schema;

struct message_exec;
extern const struct schema message_exec_schema;

struct event_step {
    uint64_t id;
    uint32_t attempt, step;
    const char *name, *nodes;
    uint32_t tasks;
    int32_t exit_code;
    uint32_t exit_signal;
    enum job_state state;
    struct usage *usage;
    uint32_t cpus;
    // started
    const char *key;               // of the request, so that a repeat finds the step
    LIST(struct step_part) parts;
    struct message_exec *command;  // what runs, without what differs by node and without environment
    const char *environment_id;    // of the text
    uint64_t environment_bytes;
    uint32_t lease_s;  // it ends when its client was not connected for so long; 0: it stays
    uint64_t
        epoch;  // of the controller that made it: tells it from one of the same number in a state that was
                // lost by a restore; 0: not known
    uint64_t made_seq;  // of the event that created it; 0 in a journal: this one
    bool adopted;       // by a state that is lost (core/adopt_step.c): it is never sent to its nodes
    // ended
    LIST(struct step_end) ends;
};
struct event_step_ending {
    uint64_t id;
    uint32_t attempt, step;
    uint32_t signal, grace_s;
    const char *by, *reason;
};
struct event_node_joined {
    struct node *node;
    const char *fingerprint;  // of its certificate; NULL: local
};
struct event_node {  // state, drained, resumed, removed
    const char *name;
    enum node_state state;
    const char *reason, *by;
};
struct event_node_launches {  // launches that failed for the node's own reasons, or work again
    const char *name;
    uint32_t failures;        // in a row; 0: trusted again
    int64_t retry_ms;         // no launches before this time; 0: tried again
    const char *reason, *by;
};
struct event_project_set { struct project *project; const char *by; };
struct event_partition_set { struct partition *partition; const char *by; };
struct event_qos_set { struct qos *qos; const char *by; };
struct event_reservation_set { struct reservation *reservation; const char *by; };
struct event_license_set { struct license *license; const char *by; };
struct event_policy_set { struct policy_settings *policy; const char *by; };
struct event_name {  // deletions
    const char *name, *by;
};
struct event_token {
    const char *id;
    const char *hash;   // of the secret
    const char *user;   // a user's API token; NULL: for an agent to join
    int64_t expires_ms;
    const char *by, *node;
    const char *fingerprint;  // of the certificate the node got for it
    int64_t used_ms;
    uint32_t scopes;      // enum user_scope; 0: all
    const char *project;  // jobs of this project only; NULL: of all
};
struct event_keys_init {
    struct bytes secret;
};
struct event_key_imported {
    struct event_key *key;
    const char *user;
    uint64_t id, count;  // of the job it was used for
};
struct event_keys_expired {
    int64_t before_ms;
};

// A secret of a user or of a project. Its value is in the store, encrypted, under the number `value`.
struct event_secret {
    const char *name;
    const char *user;     // NULL: of the project
    const char *project;  // NULL: of the user
    uint32_t version;     // from 1; larger with each value
    uint64_t value;
    uint64_t replaced;    // the value before it, or of a deleted secret, which is removed; 0: none
    const char *by;
    int64_t set_ms;       // in snapshots; in the journal it is the event's time
};

struct event_user_set {
    struct user_account *account;
    const char *by;
    // In snapshots: of its password, see event_user_password, and when it was set.
    uint64_t value;
    uint32_t version;
    int64_t set_ms;
};
struct event_user_removed {
    const char *name, *by;
    uint64_t replaced;  // its password, which is removed; 0: none
};
// The password of an account: its hash is in the store, encrypted, under the number `value`.
struct event_user_password {
    const char *name;
    uint32_t version;  // from 1
    uint64_t value;
    uint64_t replaced;  // the one before, which is removed; 0: none
    const char *by;
};
// A login of a browser. The cookie has the secret; here is its hash.
struct event_session {
    const char *id, *hash;
    const char *identity;
    const char *unix_user;  // that the provider's claim names; NULL: as the account says
    const char *full_name;
    const char *from, *agent;  // address and program it was begun with
    int64_t begun_ms, expires_ms, seen_ms;
    uint32_t idle_s;  // it ends when it was not used for this long
};
extern const struct schema event_session_schema;
// What a provider's groups give a Unix user until a time; it replaces what they gave before. The role user and no
// projects: nothing any more.
struct event_user_grant {
    const char *unix_user;
    uint32_t role;  // enum user_role
    LIST(const char *) projects;
    int64_t expires_ms;
    const char *by;  // NULL: its time has come
};
extern const struct schema event_user_grant_schema;
struct event_session_seen {
    const char *id;
    int64_t seen_ms;
};
struct event_session_ended {
    const char *id, *by;
};

// What a person keeps: a job that is not submitted yet, a template of jobs, or a view of the table of jobs.
enum saved_kind { SAVED_DRAFT, SAVED_TEMPLATE, SAVED_VIEW, SAVED_KINDS };
extern const char *const event_saved_words[];
struct event_saved {
    unsigned kind;        // enum saved_kind
    const char *name;     // unique among its owner's of this kind
    const char *user;     // whose it is; NULL: the project's
    const char *project;  // of a template that all members of a project use; NULL: the user's
    const char *title;    // as people call it; NULL: by its name
    struct spec *spec;    // of drafts and templates, as far as it is filled in
    const char *script;   // likewise; NULL: none
    const char *query;    // of views: filters, order and columns, as the query of an address has them
    const char *by;
    int64_t set_ms;  // in snapshots; in the journal it is the event's time
};
extern const struct schema event_saved_schema;
struct event_alert_rule {
    struct alert_rule *rule;
    const char *by;
    int64_t set_ms;
};
extern const struct schema event_alert_rule_schema;
// A metric that is beyond a rule: raised, acknowledged, back again.
struct event_alert {
    const char *rule, *subject;
    double value;  // when it was raised
    int64_t raised_ms, acknowledged_ms;
    const char *by, *comment;  // of the acknowledgement; by NULL: nobody has
};
extern const struct schema event_alert_schema;

// A port of a job that others may use, for a time: one user, or the members of the job's project.
enum { SHARES_PER_JOB = 64, SHARES_PER_USER = 256, SHARES_MAX = 16384 };
struct event_share {
    uint64_t job;
    uint32_t port;
    const char *user, *project;  // one of them
    const char *by;
    int64_t made_ms, expires_ms;
};
extern const struct schema event_share_schema;

// A volume (model/volume.h): a folder on storage that nodes share.
struct event_volume {
    const char *name;
    const char *user;            // its owner, to whom its folder belongs
    const char *project;         // NULL: the user's own
    uint32_t uid, gid;           // of the owner
    uint64_t number;             // which no other volume ever has
    uint64_t size_bytes;         // 0: no limit
    uint32_t mode;               // of its folder
    const char *at;              // a folder that nodes have; NULL: below the cluster's own
    LIST(const char *) readers;  // users that it is shared with
    LIST(const char *) writers;
    const char *by;
    int64_t made_ms;
};
extern const struct schema event_volume_schema;

// What a node holds of its users' images, all of it (model/image.h).
struct event_node_images {
    const char *name;
    LIST(struct node_image) images;
};
extern const struct schema event_node_images_schema;

struct event_level_set {  // from here on the journal may hold what this level has (model/feature.h)
    uint32_t level;
    const char *by;  // NULL: a fresh cluster
};

struct event_controller_started {
    uint64_t epoch;  // larger with every start, also after a restore of an older copy
    const char *version;
};
// A node knows of events that this journal does not have: the state is an older copy.
struct event_restore_found {
    const char *node;
    uint64_t lost_epoch, lost_seq;  // the newest event it knows of
    uint64_t next_id;     // new jobs have at least this number: those below may be taken
};

struct event {
    enum event_type type;
    int64_t at_ms;
    void *body;
};

struct event_info {
    const char *name;  // "job_submitted"
    const struct schema *schema;
    uint32_t level;  // the first that has it (model/feature.h); 0: the first of all
};
const struct event_info *event_info(enum event_type type);  // NULL: no such type
uint64_t event_job_id(const struct event *e);                // 0: not about a job
void event_encode(const struct event *e, struct buf *out);   // the body only
// -EPROTONOSUPPORT: an event, or a word in it, of a later release.
int event_decode(enum event_type type, const void *data, size_t len, struct arena *a, struct event *e);
