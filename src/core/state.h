// The controller's state, private to src/core. Only the functions that apply events change it (apply*.c, keys.c,
// policy.c, version.c). They also keep up to date what is derived from it (the scheduler's world, indexes,
// counts), so that replaying the journal gives the same state.
#pragma once
#include "base/map.h"
#include "core/core.h"
#include "model/dependency.h"
#include "records.h"
#include "sched/sched.h"
#include "sched/world.h"

// The feature that nodes which can run containers have for the scheduler. Users cannot write a name like it.
#define CORE_CONTAINERS "*containers"

enum {
    OUTCOMES_KEPT = 1 << 18,  // ended jobs that dependencies can still refer to
    EPOCHS_KEPT = 256,        // starts of the controller
    ADOPTED_KEPT = 2048,      // parts of jobs that were adopted after a restore
};

#define CORE_ID_MAX (1ull << 62)  // ids of a damaged record beyond this are refused

// What a job waits for, as its dependency says.
struct parsed_dependency {
    struct dependency terms;
    struct arena arena;
};

// What was submitted: one per job or array, shared by the elements. There may be a million of these and of
// core_job: keep them small, what only few jobs need is behind a pointer.
struct submission {
    uint64_t id;              // of the first element; owner of the texts
    uint64_t count;           // elements, 1 without an array
    int64_t submit_ms;
    const char *spec;         // encoded; in `bytes`
    const char *name;         // in `bytes`
    uint32_t spec_len;
    uint32_t refs;            // live jobs
    uint32_t limit;           // elements at once, 0: no limit
    int32_t nice;
    const char *user, *project, *partition, *qos;  // interned
    uint32_t uid, tasks, cpus, nodes_min, time_limit_s, priority;
    uint64_t memory_bytes, gpus_milli;
    uint16_t notify;          // enum notify_when
    uint16_t lease_s;         // 0: none
    uint8_t class;            // enum job_class
    bool is_array : 1, requeue : 1, hold : 1, remove_invalid : 1;
    bool health : 1;   // it has a health check
    bool volumes : 1;  // it has some
    int64_t begin_ms, deadline_ms;
    const struct world_request *request;
    struct array *array;      // NULL without
    struct group *group;      // NULL: no elastic job
    struct text_use *script, *environment, *upload;  // NULL without
    struct parsed_dependency *dependency;  // NULL without
    char bytes[];
};

// Counts over the elements of an array: for its limit, and for jobs that depend on the whole array.
struct array {
    uint64_t id, count, ended, ended_ok, begun, live;  // begun: started, or ended without having started
    uint64_t created;        // elements that exist or have existed; the others have a reserved id (array.c)
    uint64_t limited;        // the limit is applied to the elements before this position
    struct submission *sub;  // of the elements to be created; NULL: all are
    struct array_range *ranges;
    uint64_t *starts;  // position of each range's first element
    uint32_t range_count;
    bool ascending;           // the ranges: they can be searched by halves
    bool unfinished;          // it is in the list of the core
    uint32_t limit, active;   // active: live elements that the limit lets through, of those it is applied to
    uint64_t cursor;          // the limit lets all elements before this position through
    int64_t begun_ms;         // when `begun` reached `count`
    struct dependents *waiting;  // jobs that wait for the array as a whole; NULL: none
    uint64_t singletons;      // live elements with a singleton dependency
};

enum {
    GROUP_MINIMUM = 1,  // belongs to the minimum: never optional
    GROUP_PIECE = 2,    // what it holds is part of what the job holds for the scheduler
    GROUP_IDLE = 4,
    GROUP_LEFT = 8,  // it has ended for good
};

struct group_worker {
    uint64_t id;
    int32_t rank;
    uint8_t flags;      // GROUP_MINIMUM, …
    uint8_t state;      // enum job_state of one that has left
    uint8_t component;  // its index
    uint32_t node;      // handle of its last node in this attempt of the job; 0: none
    int32_t exit_code;  // of one that has left
    uint32_t exit_signal;
};

// One kind of workers (component.c).
struct group_component {
    const char *name;  // interned
    uint32_t min, max;
    uint32_t together;       // how many of its minimum the job was last put into the queue with
    bool head;               // the job ends with it
    bool task;               // a worker of it is one task on one node
    struct submission *sub;  // of its workers; NULL: the job's own
    const struct world_request *single,
        *optional;  // a worker in the queue by itself: of the minimum, or beyond it
};

// The workers of a job. The job itself has an id and a place in the queue, its workers have theirs (group.c).
struct group {
    uint64_t id;  // of the job
    uint64_t service;  // whose replicas the workers are; 0: of none
    uint32_t revision;
    VEC(struct group_component) components;  // at least one
    uint32_t min, max;                       // over all components
    VEC(struct group_worker) workers;  // by number
    uint64_t generation;  // of the membership: grows when a worker starts, is told to leave, or has left
    const struct world_request *together;  // the minimum, as it was last put into the queue
    bool listed;                           // in changed_groups
    uint8_t worst_state;                   // of the workers that have ended; 0: none has
    int32_t worst_code;
    uint32_t worst_signal;
    // Not part of the journal: when its nodes may be sent a membership again.
    int64_t next_send_ms;
    struct buf lines;  // the membership as its workers read it, of this generation and state of the cluster
    uint64_t lines_generation, lines_cluster;
    uint32_t send_from;        // handle of the first node that has not got the newest; 0: a new round begins
    uint64_t send_generation;  // at the beginning of the round
};

struct run_part {
    struct node_entry *node;
    uint32_t cpus, tasks;
    uint64_t memory_bytes;
    struct gpu_grant *gpus;
    uint32_t gpu_count;
    char *cpu_ids;            // NULL: the agent has not reported them
    bool started, ended;
    uint64_t started_seq;     // the event that says so; 0: it was read from disk
    bool launch_failed;       // for the node's own reasons: it never ran
    enum end_cause cause;
    int32_t exit_code;
    uint32_t exit_signal;
    enum job_health health;  // of its program, as the node says (health.c)
    char *health_reason;     // NULL: none
};

// The current attempt of a job, while it holds resources.
struct core_run {
    struct run_part *parts;
    uint32_t part_count;
    uint32_t time_limit_s;
    const char *partition;    // interned; NULL: the only one it names
    uint64_t epoch, seq;      // of the event that placed it; epoch 0: before there were epochs
    uint64_t agent_id;        // its number on its nodes, where that is another; 0: the job's
    uint64_t begun_seq;       // the event with which this attempt began in this journal; not part of the state
    bool adopted;             // it was started by a controller whose state is lost (adopt.c): never launched
    bool ending, hold;
    int64_t ending_ms;        // since when it is being ended; 0: not known. Not part of a snapshot
    bool delayed;             // a restarted worker: launched at its begin_ms
    uint8_t warned_percent;   // of its time limit, by the last warning
    enum end_cause cause;     // why it is being ended
    int32_t exit_code;        // of an allocation that was released by its owner
    uint32_t exit_signal;
    char *by, *reason;
    char *end_reason;         // the first that a part reported
    uint32_t signal, grace_s;
    int64_t suspended_ms;     // time it was suspended, without the current suspension
    int64_t suspend_ms;       // when it was suspended or resumed last; 0: never
    struct core_steps *steps; // NULL: none yet
    uint32_t steps_seen;      // the highest number of a step that a node knows of; not part of the state
};

enum { HELD_USER = 1, HELD_ADMIN = 2, WAITS_DEPENDENCY = 4, DEPENDENCY_NEVER = 8, WAITS_ARRAY = 16, HAS_BEGUN = 32,
       TAKES = 64 };  // jobs were preempted for it

struct core_job {
    uint64_t id;
    struct submission *sub;
    uint32_t array_index, attempt, steps;
    uint32_t expected_start_s;  // by the latest plan; 0: not known
    uint16_t preempted;   // how often; stays at its largest value
    uint16_t uncounted;   // attempts that a node failed to launch: not the job's
    uint16_t retried;     // times its program failed and was run again
    uint8_t state;        // enum job_state
    uint8_t flags;        // HELD_USER, …
    int64_t begin_ms, eligible_ms, start_ms;
    struct core_run *run;          // NULL: it holds no resources
    struct usage *usage;           // of the newest attempt, over its parts; NULL: none reported
    struct dependents *waiting;    // jobs that wait for this one; NULL: none
    uint32_t name_place;           // in the heap of its user and name, see same_name.c
    uint64_t version;              // the newest event about it; 0: before there were versions
};

// A place in the order of ids. It keeps its id when the job has ended, so that a search never has to skip it.
struct core_order {
    uint64_t id;
    struct core_job *job;  // NULL: it has ended
};

// A job that ends when its client stays away, or one with such steps. When a client was last there is not journaled.
struct core_lease {
    uint64_t id;
    int64_t away_ms;   // its client, since it was last there or this process began
    uint32_t attempt;  // not 0: steps of this attempt have leases of their own
};

// Ids of jobs that wait for a job or an array, ascending, from `head`. A job is there while its dependency is not
// decided; the list is freed with its last one.
struct dependents {
    uint64_t *at;
    uint32_t head, len, cap;
};

// More of them than a slice: they are judged by events to come. Some may have ended since, or wait no more.
struct judging {
    uint64_t target;  // OUTCOME_ARRAY set: an array
    struct dependents *ids;
};

// An attempt that a node was asked to describe (adopt.c). After restores its number may be that of another attempt,
// here or on another node: only the epoch tells them apart.
struct asked_attempt {
    uint64_t id, epoch;
    uint32_t attempt;
};

struct node_entry {
    uint32_t handle;           // stays with the name
    bool removed;
    const char *name;          // interned
    struct arena arena;        // of `node`
    struct node *node;
    enum node_state state;
    bool drained;
    char *reason, *by, *fingerprint;
    int64_t reason_ms;
    VEC(struct core_job *) jobs;    // with a part here that has not ended, by id
    VEC(uint64_t) stale;       // attempts (id, attempt) still being cleaned up; not part of the journal
    VEC(struct asked_attempt) unknown;  // asked about, not described yet; not part of the journal
    uint32_t cpus_used, gpus_used_milli;
    uint64_t memory_used_bytes;
    int64_t busy_ms;           // when its last job ended; 0: none yet
    uint32_t launch_failures;  // in a row, for the node's own reasons (node_health.c)
    int64_t retry_ms;          // no launches before this time; 0: none are held back
    char *launch_reason;       // of the last failure
    struct node_images *images;  // that its users hold there (images.c); NULL: none
};

struct memory_share {
    uint64_t per_cpu_bytes, per_gpu_bytes;  // 0: no node is known
};

struct entity_entry {
    uint32_t handle;           // stays with the name, also when it is deleted and created again
    const char *name;
    struct arena arena;
    struct memory_share share;  // of a partition, see memory_default.c; not part of the journal
    uint64_t share_generation;
    void *value;               // struct project, partition, qos or reservation; NULL: deleted
    uint64_t version;          // the event that set it; 0: before there were versions
};

struct token_entry {
    struct arena arena;
    struct event_token *token;
    bool used;
};
struct core_token_list {
    struct token_entry **at;
    uint32_t len, cap;
};

// A draft, a template or a view.
struct saved_entry {
    struct arena arena;
    struct event_saved *saved;
    size_t bytes;  // encoded
};
struct saved_owner {  // a user or a project
    char *key;
    VEC(struct saved_entry *) list;  // by kind and name
    uint64_t bytes;
};

struct secret_entry {
    char *key;
    struct arena arena;
    struct event_secret *secret;
    char *owner;
};

struct user_entry {
    struct arena arena;
    struct user_account *account;
    const char *own;    // "own:NAME"
    uint64_t password;  // number of its hash in the store; 0: none
    uint32_t version;
    int64_t set_ms;
};

struct share_entry {
    struct arena arena;
    const char *key;
    struct event_share *share;
};

struct service_entry {
    struct arena arena;
    const char *key;  // user and name
    struct event_service *service;
    VEC(struct service_token_entry *) tokens;  // in the order they were made
    // Not part of the journal: a job of it ended by itself, and is not submitted again before this time.
    int64_t retry_ms;
    uint32_t failures;  // in a row
    char problem[160];  // what was wrong last; "": nothing
};
struct service_token_entry {
    struct arena arena;
    struct event_service_token *token;
};

struct volume_entry {
    struct arena arena;
    const char *title;
    struct event_volume *volume;
};

struct provider_entry {
    struct arena arena;
    struct node_provider *set;
    // Not part of the journal:
    char note[PROVIDER_REASON_MAX];  // what was last decided, or why nothing is started
    bool offered;                    // its program has said what can be had, in this process
    uint32_t empty_lists;            // lists in a row with nothing in them, since it is being removed
};
struct wanted_entry {
    struct arena arena;
    struct wanted_node *node;
    uint32_t missed;  // lists in a row without it; not part of the journal
};

struct alert_rule_entry {
    struct arena arena;
    struct event_alert_rule *set;
};

struct alert_entry {
    struct arena arena;
    const char *key;  // rule and subject
    struct event_alert *alert;
};

struct session_entry {
    struct arena arena;
    struct event_session *session;
};

struct user_grant_entry {
    struct arena arena;
    struct event_user_grant *grant;
};

// How an ended job or array ended, for dependencies.
struct core_outcome {
    uint64_t id;  // OUTCOME_ARRAY set: of a whole array
    bool ok, started;
    uint32_t start_s;  // since 1970; 0: it never started
};
#define OUTCOME_ARRAY (1ULL << 63)

// An idempotency key and what it was used for.
struct core_key {
    uint64_t hash;       // of user and key
    uint64_t spec_hash;  // 0: not known
    uint64_t id;
    uint32_t count, user;  // user: handle
    uint32_t expires_s;
    uint32_t plain;      // 1: hashed without the secret, before there was one
};

struct core_keys {
    bool ready;           // there is a secret
    uint8_t secret[16];
    VEC(struct core_key) list;  // in the order of events, so that snapshots are the same after a replay
    struct map index;     // hash → position in the list + 1
    uint32_t plain;       // how many were hashed without the secret
    int64_t swept_ms,
        looked_ms;  // looked: in a journal of the first level, where it is not part of the state
};

// A start of the controller: its events have numbers from `first_seq` to the next start's.
struct core_epoch {
    uint64_t epoch, first_seq;
};

// A part, as its node knows it. With epoch 0: the job numbers that an adopted elastic job and its workers have, from
// `id` on and `attempt` of them.
struct core_adopted {
    uint64_t id, attempt, epoch, node;  // node: its handle
};

struct core {
    struct core_config config;
    struct policy_settings policy;  // valid if has_policy: what a command has set
    bool has_policy;
    struct policy unset_policy;  // the configuration's own
    uint64_t seq, next_id;
    uint32_t level;              // feature level of the journal
    VEC(struct core_epoch) epochs;  // the newest starts of the controller, oldest first
    uint64_t unused_from, unused_to;  // job numbers that a restore skipped: never given out by this journal
    int64_t restore_ms;          // when a restore was last found; 0: never
    uint64_t restore_epoch;      // in which epoch
    VEC(struct core_adopted) adopted;  // the newest attempts that became jobs again, oldest first
    struct map jobs;             // id → struct core_job
    VEC(struct core_order) order;     // by id; entries of ended jobs are removed when they are half of it
    uint64_t order_work;              // steps done to remove jobs from it, counted for tests
    uint32_t holes;
    struct strmap interned;      // name → itself
    struct strmap nodes;         // name → struct node_entry
    VEC(struct node_entry *) node_list;  // by handle - 1
    struct strmap entities[ENTITY_COUNT];
    VEC(struct entity_entry *) entity_list[ENTITY_COUNT];  // by handle - 1
    struct strmap user_handles;
    VEC(const char *) users;     // by handle - 1
    struct strmap user_jobs;     // user → struct core_user
    struct strmap texts;         // key and user → struct text_use
    struct strmap tokens;
    struct core_keys keys;
    struct strmap saved_owners;  // owner → struct saved_owner
    uint64_t saved_bytes;        // of all
    struct strmap secrets;       // owner and name → struct secret_entry
    struct strmap secret_owners;  // owner → how many
    struct strmap secret_versions;  // owner → the highest version of those that were deleted
    struct strmap accounts;       // name → struct user_entry
    struct strmap identities;     // identity → struct user_entry
    struct strmap account_of_unix;  // Unix user → struct user_entry
    struct strmap alert_rules;      // name → struct alert_rule_entry
    struct strmap shares;           // job, port and with whom → struct share_entry
    struct strmap volumes;          // title → struct volume_entry
    struct strmap volume_users;     // title → struct volume_users (volume_use.c)
    struct map volume_uses;         // address of a submission → struct volume_use
    struct strmap alerts;           // rule and subject → struct alert_entry
    struct strmap login_sessions;   // id → struct session_entry
    struct strmap grants;           // Unix user → struct user_grant_entry
    int64_t next_grant_ms;          // when one may end; while there are any
    VEC(struct service_entry *) services;  // by user and name
    struct map service_ids;                // id → struct service_entry
    uint64_t newest_service;               // id
    VEC(uint64_t) service_jobs;            // live jobs whose workers are replicas
    struct map jobs_of_service;            // service → struct service_job_list: which of these are its
    int64_t next_service_ms;               // when one may have to be submitted again
    bool services_changed;                 // jobs may not be what services want
    struct strmap providers;               // name → struct provider_entry
    VEC(struct wanted_entry *) wanted;     // by id: those that are there, and the newest that are gone
    uint32_t wanted_gone;                  // of these, how many are gone
    uint64_t newest_wanted;                // id
    int64_t next_autoscale_ms;             // not before; not part of the journal
    uint64_t autoscaled_generation;        // the newest event that it has looked at; likewise
    bool shapes_changed;                   // the world does not know what can be had; likewise
    struct buf encoded;          // the spec below, so that one submit encodes it once for limit and state
    const struct spec *encoded_of;  // valid only within one command
    struct map same_name;        // hash of user and name → struct same_name
    struct map judging;          // target → struct judging
    struct map arrays;           // id → struct array, while elements live
    VEC(struct array *) unfinished;  // with elements to create, or that a limit is to be applied to
    uint32_t unfinished_next;        // whose turn it is; not part of the state
    uint64_t uncreated;              // elements that have a reserved id only
    struct map groups;           // id → struct group, while the job lives
    VEC(uint64_t) late_launches;   // jobs whose launch waits: for a pause, or for optional workers in the way
    VEC(uint64_t) changed_groups;  // whose nodes have not been sent the newest membership
    int64_t next_group_ms;         // when one of these two is due; INT64_MAX: none
    VEC(struct core_outcome) outcomes;  // a ring
    uint32_t outcome_next;
    struct map outcome_index;    // id → struct core_outcome
    struct world *world;
    struct sched_decisions decisions;
    struct core_counts counts;
    struct core_passes passes;
    struct outbox outbox;
    bool replaying;
    bool may_grow;               // an elastic job has started, and workers of it wait
    bool dirty;                  // something happened that can let a job start
    int64_t next_decide_ms, next_deadline_ms, next_warning_ms, last_event_ms;
    int64_t before_start_ms;     // the time of the newest event before this process began; 0: none
    int64_t scheduled_ms;        // the time of the latest core_schedule; 0: none yet
    int64_t next_retry_ms;       // when a node that failed to launch is tried again; INT64_MAX: none
    uint64_t deadlines, deadline_next;  // live jobs that removal.c looks at; the id after which it goes on
    uint32_t projects_deleted;   // being deleted (project_delete.c)
    bool orphans;                // jobs may wait whose partition or QoS was deleted (project_delete.c)
    int64_t next_deletion_ms;
    VEC(uint64_t) planned;       // jobs with a planned start by the latest pass
    struct map promised;         // job → struct core_promise: its promised start, or why an earlier one was not kept
    struct map preempted_why;    // job → text of its latest preemption; only of jobs that were preempted
    uint64_t time_warnings;      // live jobs that want one
    uint64_t cluster_generation;  // changes of nodes and entities since this process began
    VEC(struct core_lease) leased;  // jobs with a lease, some of which may have ended
    int64_t next_lease_ms;
    uint64_t dependents_judged;  // jobs that were judged since they wait for another, counted for tests
    uint64_t singleton_work;     // steps done for singleton dependencies, counted for tests
};

struct core_user {
    uint32_t keys;        // idempotency keys, also expired ones that are not swept yet
    uint64_t live;
    uint64_t spec_bytes;  // encoded specs of their live submissions, in memory
    uint64_t text_bytes;  // scripts and environments of their live jobs, on disk
};

// state.c
void core_reset(struct core *c);  // as new
uint32_t core_slice(
    void);  // jobs that one event works on at most. Part of what events mean: it must not change
struct core_job *core_find_job(const struct core *c, uint64_t id);
struct node_entry *core_find_node(const struct core *c, const char *name);
struct entity_entry *core_find_entity(const struct core *c, enum entity_kind t, const char *name);
// Adds the user if needed: only while events are applied.
uint32_t core_user_handle(struct core *c, const char *user);
uint32_t core_user_known(const struct core *c, const char *user);  // 0: none yet
struct core_token_list core_tokens_by_id(const struct core *c);  // the caller frees it with vec_done
struct core_user *core_user_count(struct core *c, const char *user);
void core_order_add(struct core *c, struct core_job *j);
void core_order_reserve(struct core *c, uint64_t first, uint32_t count);  // for jobs that are added at once
uint32_t core_order_after(const struct core *c, uint64_t id);  // where larger ids begin
void core_order_remove(struct core *c, struct core_job *j);
void core_spec_of(const struct core_job *j, struct arena *a, struct spec *out);
struct core_run *core_run_free(struct core_run *r);
void core_outcome_add(struct core *c, uint64_t id, bool ok, bool started, uint32_t start_s);
const struct core_outcome *core_outcome_find(const struct core *c, uint64_t id);
const struct buf *core_encode_spec(struct core *c, const struct spec *spec);  // until the next call
struct submission *core_submission_new(struct core *c, uint64_t id, const struct spec *spec, int64_t submit_ms);
void core_submission_unref(struct core *c, struct submission *s);

// apply.c, apply_cluster.c
void core_apply(struct core *c, const struct event *e);
void core_apply_cluster(struct core *c, const struct event *e);
void core_job_link(struct core *c, struct core_job *j);
void core_place(struct core *c, struct core_job *j, const struct part *parts,
                uint32_t count);  // its run, on nodes
void core_begin_attempt(struct core *c, struct core_job *j, uint32_t attempt, int64_t start_ms);
void core_count_attempt(struct core_job *j, int64_t at_ms);  // it is over, and the job goes on
void core_node_add(struct node_entry *n, const struct run_part *p, struct core_job *j);
void core_job_unlink(struct core *c, struct core_job *j,
                     int64_t at_ms);  // out of every index but the scheduler's
void core_job_free(struct core *c, struct core_job *j);
void core_apply_updated(struct core *c, struct core_job *j, int64_t at_ms, const struct event_job_updated *b);
void core_limit_to_world(struct core *c, const struct core_job *j);
int64_t core_run_paused_ms(const struct core_job *j, int64_t now_ms);  // all pauses of the attempt until then
// Whether a running job that gets this new submission gets another time limit.
bool core_limit_changes(const struct submission *old, const struct submission *s);
void core_jobs_to_world(struct core *c);
enum sched_claim core_claim_read(uint32_t claim);
// event.c: numbers the event, applies it, puts it into the outbox.
void core_emit(struct core *c, int64_t now_ms, enum event_type type, void *body);
void core_effect(struct core *c, enum effect_type type, const char *node, uint64_t job, uint32_t attempt);
void core_effect_send(struct core *c, const char *node, enum message_type type, void *body);

// event_check.c: whether applying it, or a record with it, touches only what is there.
bool core_event_loads(const struct core *c, const struct event *e);
bool core_spec_loads(const struct spec *s);
bool core_node_loads(const struct node *n);
bool core_policy_loads(const struct policy_settings *s);           // policy.c
bool core_part_loads(const struct core *c, const struct part *p);  // its node may have been removed
bool core_worker_rank_loads(int64_t rank);
bool core_time_loads(int64_t at_ms);

// memory_default.c
void core_fill_memory(const struct core *c, struct entity_entry *partition, struct spec *s);

// notify.c
void core_notice(struct core *c, uint64_t seq, const struct event *e);
bool core_wants_time_warning(const struct submission *s);
void core_warn_of_time_limits(struct core *c, int64_t now_ms);
int core_check_notify(const struct spec *s, struct error *e);

// queue.c
void core_job_to_world(struct core *c, struct core_job *j);      // adds it to the scheduler's world as pending
void core_job_hold_changed(struct core *c, struct core_job *j);  // tells the scheduler after a change of flags
enum job_reason core_reason_of(const struct core *c, const struct core_job *j);
// The job, if the actor may change it.
int core_need_job(const struct core *c, const struct actor *actor, uint64_t id, struct core_job **out, struct error *e);
// Refuses what a project that is being deleted can no longer have, naming the field.
int core_check_not_deleted(const struct core *c, const char *field, const char *name, struct error *e);
const char *core_default_partition(const struct core *c);  // of jobs that name none; NULL: there is no partition
void core_deletions(struct core *c, int64_t now_ms);
static inline bool core_deletions_wait(const struct core *c) {
    return c->projects_deleted || c->orphans;
}
void core_orphan_check(struct core *c, const struct core_job *j);  // the job waits in the queue again
int core_need_admin(const struct actor *actor, const char *what, struct error *e);
int core_need_operator(const struct actor *actor, const char *what, struct error *e);

// command.c and the files of each subject: core_command's functions. `body` is of the command's own type.
int core_command_submit(struct core *c, const struct actor *actor, const char *key, const struct command_submit *m,
                        int64_t now_ms, struct command_result *out, struct error *e);
enum { CORE_UNCHANGED = 1 };  // of a command that found nothing to do; the error's text says why
#define CORE_COMMAND(name) \
    int name(struct core *c, const struct actor *actor, const void *body, int64_t now_ms, struct error *e)
CORE_COMMAND(core_command_cancel);
CORE_COMMAND(core_command_hold);
CORE_COMMAND(core_command_release);
CORE_COMMAND(core_command_requeue);
CORE_COMMAND(core_command_suspend);
CORE_COMMAND(core_command_resume);
CORE_COMMAND(core_command_update);
CORE_COMMAND(core_command_node_drain);
CORE_COMMAND(core_command_node_resume);
CORE_COMMAND(core_command_node_remove);
CORE_COMMAND(core_command_project_set);
CORE_COMMAND(core_command_partition_set);
CORE_COMMAND(core_command_qos_set);
CORE_COMMAND(core_command_license_set);
int core_licenses_check(const struct core *c, const struct spec *s, struct error *e);  // submit.c
CORE_COMMAND(core_command_reservation_set);
CORE_COMMAND(core_command_entity_delete);
CORE_COMMAND(core_command_policy_set);
CORE_COMMAND(core_command_token_create);
CORE_COMMAND(core_command_token_revoke);
CORE_COMMAND(core_command_token_use);
CORE_COMMAND(core_command_keys_init);
CORE_COMMAND(core_command_key_import);
CORE_COMMAND(core_command_saved_set);
CORE_COMMAND(core_command_saved_delete);
CORE_COMMAND(core_command_secret_set);
CORE_COMMAND(core_command_secret_delete);
CORE_COMMAND(core_command_upgrade_finish);
CORE_COMMAND(core_command_user_set);
CORE_COMMAND(core_command_user_remove);
CORE_COMMAND(core_command_user_password);
CORE_COMMAND(core_command_user_grant);
CORE_COMMAND(core_command_session_begin);
CORE_COMMAND(core_command_session_seen);
CORE_COMMAND(core_command_session_end);
CORE_COMMAND(core_command_provider_set);
CORE_COMMAND(core_command_provider_remove);
CORE_COMMAND(core_command_provider_report);
CORE_COMMAND(core_command_alert_set);
CORE_COMMAND(core_command_alert_delete);
CORE_COMMAND(core_command_alert_raise);
CORE_COMMAND(core_command_alert_clear);
CORE_COMMAND(core_command_alert_ack);
CORE_COMMAND(core_command_share_set);
CORE_COMMAND(core_command_share_end);
CORE_COMMAND(core_command_service_create);
CORE_COMMAND(core_command_service_update);
CORE_COMMAND(core_command_service_scale);
CORE_COMMAND(core_command_service_ready);
CORE_COMMAND(core_command_service_promote);
CORE_COMMAND(core_command_service_rollback);
CORE_COMMAND(core_command_service_retired);
CORE_COMMAND(core_command_service_delete);
CORE_COMMAND(core_command_service_token_set);
CORE_COMMAND(core_command_service_token_revoke);
CORE_COMMAND(core_command_volume_create);
CORE_COMMAND(core_command_volume_delete);
CORE_COMMAND(core_command_volume_share);

// keys.c
int core_key_check(const char *key, struct error *e);  // its form
enum { CORE_KEY_HASH_TEXT = 17 };                      // as it is in a spec
void core_key_to_text(const struct event_key *key, char out[static CORE_KEY_HASH_TEXT]);
// The key of a job that is adopted, from its spec. False: it has none, or the key is in use.
bool core_key_adopt(const struct core *c, const char *text, int64_t now_ms, struct event_key *out);
// Finds what the key was used for: out->repeated. Otherwise `entry` is what to keep with the new job. Refuses
// a key that was used with another spec, and a new one of a user who has too many.
int core_key_find(struct core *c, const char *user, const char *key, const struct spec *spec, int64_t now_ms,
                  struct event_key *entry, struct command_result *out, struct error *e);
void core_key_add(struct core *c, const struct event_key *key, const char *user, uint64_t id, uint64_t count);
void core_key_put(struct core *c, const struct core_key *key);
void core_keys_set_secret(struct core *c, const struct bytes *secret);
void core_apply_keys(struct core *c, const struct event *e);
bool core_keys_add_up(const struct core *c);

// depend.c
int core_depend_check(const struct core *c, const char *text, uint64_t self, struct error *e);
void core_depend_parse(struct submission *s, const struct spec *spec);
void core_depend_free(struct submission *s);
void core_depend_attach(struct core *c, struct core_job *j, int64_t now_ms);  // registers j with the jobs it waits for
void core_depend_link(struct core *c, struct core_job *j);                    // the same without judging
void core_depend_detach(struct core *c, struct core_job *j);                  // it does not wait any more
void core_depend_notify(struct core *c, struct core_job *j, int64_t now_ms);  // j has started or ended

// dependents.c
void core_dependents_add(struct dependents **list, uint64_t id);
void core_dependents_remove(struct dependents **list, uint64_t id);
bool core_dependents_have(const struct dependents *list, uint64_t id);
void core_dependents_free(struct dependents **list);
uint32_t core_dependents_count(const struct dependents *list);
void core_dependents_merge(struct dependents **to, struct dependents **from);  // from is empty then

// depend.c
void core_apply_judged(struct core *c, int64_t at_ms, const struct event_dependents_judged *b);
void core_judging_done(struct core *c);
bool core_job_waits(const struct core_job *j);  // for what its dependency names, and it is not decided
void core_depend_array(struct core *c, struct array *a, int64_t now_ms);
// After `removed` has left the jobs of its name: it has ended, or gets another name.
void core_depend_singleton(struct core *c, const struct core_job *removed, int64_t now_ms);
bool core_depend_is_singleton(const struct submission *s);

// array.c
struct array *core_array_new(struct core *c, uint64_t id, uint64_t count, const struct array_range *ranges,
                             uint32_t range_count);
void core_array_free(struct core *c, struct array *a);               // it is not in c->arrays any more
uint64_t core_array_element(const struct array *a, uint32_t index);  // id, 0: none
void core_array_create(struct core *c, struct array *a, uint64_t upto, int64_t at_ms);
void core_array_fill(struct core *c, struct array *a);  // releases elements up to the limit
void core_array_set_limit(struct core *c, struct array *a, uint32_t limit);  // a new one; 0: none
void core_array_note_unfinished(struct core *c, struct array *a);
void core_apply_array(struct core *c, int64_t at_ms, const struct event_array_continued *b);
void core_array_need(struct core *c, uint64_t id,
                     int64_t now_ms);  // creates the element with this id, and those before
bool core_array_loads(const struct core *c, const struct event_array_continued *b);

// same_name.c: the live jobs of each user and name.
void core_same_name_add(struct core *c, struct core_job *j);
void core_same_name_remove(struct core *c, struct core_job *j);
struct core_job *core_same_name_oldest(const struct core *c, const struct core_job *like);  // NULL: none
void core_same_name_done(struct core *c);

// dispatch.c
void core_send_desired(struct core *c, const struct core_job *j, const struct run_part *p);
void core_node_ready(struct core *c, struct node_entry *n, int64_t now_ms);  // nothing stale is left: up

// node_health.c
void core_node_launch_failed(struct core *c, struct node_entry *n, const char *reason, int64_t now_ms);
void core_node_launch_worked(struct core *c, struct node_entry *n, int64_t now_ms);
void core_node_trust(struct core *c, struct node_entry *n, const char *by, int64_t now_ms);  // an administrator says so
void core_node_retries(struct core *c, int64_t now_ms);  // ends pauses that are over
void core_apply_node_launches(struct core *c, struct node_entry *n, const struct event_node_launches *b);

// health.c
void core_apply_health(struct core_job *j, const struct event_job_health *b);
void core_health_reconcile(struct core *c, const struct core_job *j, const char *node,
                           const struct attempt *a,
                           int64_t now_ms);  // at a hello
enum job_health core_health_of(const struct core_job *j, const char **reason);
void core_part_set_health(struct run_part *p, enum job_health health, const char *reason);

// report.c
enum job_state core_part_state(const struct run_part *p);
struct run_part *core_part_on(struct core_job *j, const char *node);
// The part that a node speaks of, by the number the job has there; NULL: none that has not ended.
struct run_part *core_reported_part(struct core *c, const char *node, uint64_t id, uint32_t attempt,
                                    struct core_job **j);
// For each part of the job, and of its workers, that has not ended.
void core_each_part(struct core *c, const struct core_job *j,
                    void (*send)(struct core *c, const struct core_job *j, const struct run_part *p));
void core_finish_if_done(struct core *c, struct core_job *j, int64_t now_ms);
void core_begin_ending(struct core *c, struct core_job *j, const struct event_job_ending *how, int64_t now_ms);
void core_send_kill(struct core *c, const struct core_job *j, const struct run_part *p);
void core_send_suspend(struct core *c, const struct core_job *j, const struct run_part *p);
void core_send_time_limit(struct core *c, const struct core_job *j, const struct run_part *p);
void core_end_part(struct core *c, struct core_job *j, struct run_part *p, enum end_cause cause, const char *reason,
              int64_t now_ms);
void core_end_other_parts(struct core *c, struct core_job *j, const struct run_part *p, int64_t now_ms);
void core_end_pending(struct core *c, struct core_job *j, enum job_state state, const char *by, const char *reason,
                 int64_t now_ms);

// texts.c
struct text_use *core_text_take(struct core *c, const char *user, const char *id, uint64_t bytes);  // user: interned
void core_text_drop(struct core *c, struct text_use *t);  // accepts NULL
int core_texts_check(struct core *c, const struct spec *s, struct error *e);
bool core_texts_add_up(const struct core *c);

// version.c
void core_apply_level(struct core *c, const struct event_level_set *b);

// submit.c: everything but the limits of the queue. `self`: the job that is changed, 0 for a new one.
int core_check_spec(struct core *c, const struct actor *actor, const struct spec *s, uint64_t self, int64_t now_ms,
                    struct error *e);

// adopt.c
uint64_t core_epoch(const struct core *c);  // of this start; 0: none yet
void core_epoch_begin(struct core *c, uint64_t at_least, int64_t now_ms);
void core_apply_started_controller(struct core *c, const struct event_controller_started *b);
void core_apply_restore(struct core *c, int64_t at_ms, const struct event_restore_found *b);
// Whether an event that a node knows of is missing in this journal.
bool core_event_lost(const struct core *c, uint64_t epoch, uint64_t seq);
// An attempt of a hello that this journal never heard of.
bool core_attempt_unknown(const struct core *c, const struct node_entry *n, const struct attempt *a);
uint32_t core_next_attempt(const struct core *c, const struct core_job *j);
void core_note_adopted(struct core *c, const struct core_adopted *part);
void core_note_numbers(struct core *c, uint64_t first, uint64_t count);
// Looks for signs of a restore in a hello; true when there are any.
bool core_find_restore(struct core *c, const struct node_entry *n, const struct message_hello *h, int64_t now_ms);
void core_ask_attempt(struct core *c, struct node_entry *n, const struct attempt *a);
// An adopted job whose script and environment went with the lost state: it cannot be run again. Of a worker its job
// knows.
bool core_texts_lost(const struct core *c, const struct core_job *j);
bool core_attempt_asked(const struct node_entry *n, uint64_t id, uint32_t attempt);
static inline uint64_t core_agent_job(const struct core_job *j) {
    return j->run && j->run->agent_id ? j->run->agent_id : j->id;
}

// adopt_part.c: the part of the node joins the job that another node's part has become. False: there is none.
bool core_adopt_part(struct core *c, const struct node_entry *n, const struct message_launch *l,
                     int64_t now_ms);

// adopt_group.c: makes the attempt a worker of its job again, `placed` being what it holds. False: it cannot be one,
// and nothing was changed.
// promise.c: planned starts that are kept
struct core_promise {
    struct bytes event;  // its body, encoded; as the snapshot keeps it
    char *late_why;      // NULL: no promise was broken
};
void core_promises_to_world(struct core *c);  // when all jobs are loaded
void core_promises(struct core *c, const struct sched_decisions *d, int64_t now_ms);
bool core_promise_loads(const struct event_job_promised *b);
void core_apply_promised(struct core *c, struct core_job *j, const struct event *e);
void core_promise_forget(struct core *c, const struct core_job *j);
const struct core_promise *core_promise_of(const struct core *c, const struct core_job *j);
// Of a snapshot, with the reason of an earlier event.
int core_promise_load(struct core *c, struct core_job *j, struct bytes event, const char *late_why);
bool core_adopt_worker(struct core *c, const struct message_attempt *m, struct event_job_placed *placed,
                       int64_t now_ms);
void core_apply_job_adopted(struct core *c, struct core_job *job, int64_t at_ms,
                            const struct event_job_adopted *b);
// The first of `count` job numbers in a row: `id` if no job of this journal had them, else new ones.
uint64_t core_adopted_id(const struct core *c, uint64_t id, uint64_t count);
// Leaves out of a spec what this state does not know: projects, partitions, …, its script.
void core_adopted_names(const struct core *c, struct spec *s);
int64_t core_adopted_submit_ms(int64_t ms, int64_t now_ms);  // when a node says that it was submitted

// policy.c
void core_apply_policy(struct core *c, const struct policy_settings *s, int64_t at_ms);  // at_ms 0: from a snapshot
void core_policy_reapply(struct core *c);

// query.c
void core_fold_nodes(const struct core *c, const struct core_job *j,
                     struct buf *out);  // the nodes it holds, as a folded list

// account.c
void core_finished_row(struct core *c, const struct core_job *j, const struct event_job_ended *e, int64_t now_ms);
void core_record_of(const struct core *c, const struct core_job *j, struct arena *a, struct job_record *out);

// group.c: elastic jobs
static inline struct group *core_group_of(const struct core_job *j) {
    return j->sub->group;
}
static inline bool core_is_worker(const struct core_job *j) {
    return j->sub->group && j->id != j->sub->group->id;
}
static inline bool core_is_group(const struct core_job *j) {
    return j->sub->group && j->id == j->sub->group->id;
}
struct group_worker *core_worker_of(const struct core_job *j);  // the worker's entry
// NULL: it has left. Of a job that is resized over and over most have, and are passed over without a search.
struct core_job *core_worker_job(const struct core *c, const struct group_worker *w);
struct core_job *core_group_job(const struct core *c, const struct core_job *worker);
int core_group_check_spec(const struct core *c, const struct spec *s, struct error *e);
// The scheduler starts the minimum: `placed` says all but its parts.
void core_group_start(struct core *c, struct core_job *job, const struct sched_start *s,
                      const struct event_job_placed *placed, int64_t now_ms);
uint32_t core_worker_time_limit(const struct core *c, const struct core_job *worker, int64_t now_ms);
// A worker's attempt is over: `p` is its part, with the cause that counts.
void core_group_worker_done(struct core *c, struct core_job *j, const struct run_part *p, const char *reason,
                            bool never_ran, int64_t now_ms);
void core_group_settle(struct core *c, struct core_job *job,
                       int64_t now_ms);  // ends or requeues it when it is time
void core_group_send_changed(struct core *c, int64_t now_ms);  // memberships that are due
void core_group_send_members(struct core *c, const struct core_job *worker, const struct run_part *p);
// It waits, or has waited and is not sent yet.
bool core_launch_is_late(const struct core *c, const struct core_job *j);
void core_launch_later(struct core *c, const struct core_job *j);  // it is sent when nothing is in the way
bool core_launch_waits(const struct core *c, const struct core_job *j);
void core_group_tasks(struct core *c, int64_t now_ms);  // launches and memberships that are due
void core_group_members(const struct core *c, const struct core_job *worker, struct arena *a,
                        struct message_workers *out);
// The worker's job, for a controller that does not know it.
void core_group_launch_job(const struct core *c, const struct core_job *worker, struct arena *a,
                           struct message_launch *out);
void core_group_launch_components(const struct core *c, const struct group *g, struct arena *a,
                                  struct message_launch *out);
struct core_group_counts {
    uint32_t least, most, running, cpus;
    uint64_t memory_bytes, gpus_milli;
};
void core_group_counts(const struct core *c, const struct group *g, struct core_group_counts *out);
uint32_t core_group_nodes(const struct core *c, const struct group *g, const char **names, uint32_t max);
int core_check_room(struct core *c, const struct actor *actor, uint64_t count, struct error *e);  // submit.c
void core_group_record(const struct core *c, const struct core_job *j, struct arena *a,
                       struct job_record *out);
CORE_COMMAND(core_command_resize);
CORE_COMMAND(core_command_rank_workers);

// component.c
int core_components_check(const struct core *c, const struct spec *s, struct error *e);
void core_group_request(const struct spec *s, uint32_t workers, struct sched_request *out);
// One request for workers of all components, which start together; counts NULL: the minimum of each.
int core_components_request(struct core *c, const char *user, const struct spec *s, const uint32_t *counts,
                            struct arena *a, struct sched_request *out, struct error *e);
void core_group_set_together(struct core *c, struct group *g, const struct spec *s);
void core_group_set_spec(struct core *c, struct group *g, const struct spec *s, int64_t submit_ms);
void core_components_free(struct core *c, struct group *g);
struct group_component *core_component_of(const struct group *g, const struct group_worker *w);
int core_component_find(const struct group *g, const char *name);  // its index, or -ENOENT
bool core_group_has_head(const struct group *g);
const struct core_job *core_group_head(const struct core *c,
                                       const struct group *g);  // the first that has not ended; NULL: none

// apply_group.c
bool core_is_optional(const struct core_job *j);
void core_group_attach(struct core *c, struct submission *s,
                       const struct spec *spec);  // a new group, of this job
void core_group_free(struct core *c, struct group *g);
void core_group_add_workers(struct core *c, struct submission *s, uint64_t first_id, uint32_t count,
                            uint32_t component);
uint64_t core_group_add_first_workers(struct core *c, struct submission *s,
                                      uint64_t first_id);  // the id after them
void core_group_submission(struct core *c, const struct core_job *job, struct submission *s,
                           const struct spec *spec);
const struct world_request *core_group_queued_request(struct core *c,
                                                      struct core_job *j);  // NULL: not in the queue
uint32_t core_group_together(
    const struct group *g);  // workers in the request that the job was last queued with
void core_spec_resize(struct spec *s, uint32_t component, uint32_t min, uint32_t max);
bool core_worker_in_world(const struct core *c, const struct core_job *j);
void core_group_waiting_to_world(struct core *c, struct group *g, bool in);
void core_group_set_roles(struct core *c, const struct core_job *job);  // of workers that wait
void core_group_run_to_world(struct core *c, const struct core_job *job);
void core_group_pieces_to_world(struct core *c, const struct core_job *job, int64_t now_ms);
void core_worker_rank_to_world(struct core *c, const struct group_worker *w);
void core_group_changed(struct core *c, struct group *g);
void core_apply_group(struct core *c, struct core_job *j, const struct event *e);
void core_group_worker_ended(struct core *c, struct core_job *j, const struct event_job_ended *b);
void core_group_ended(struct core *c, struct core_job *job,
                      int64_t at_ms);  // what is left of its workers goes

enum { CORE_STEPS_BELOW = 0x40000000 };  // larger numbers on nodes are not of steps
// lease.c
bool core_leases_due(const struct core *c, int64_t now_ms);
void core_leases_check(struct core *c, int64_t now_ms);
void core_lease_add(struct core *c, uint64_t id, uint32_t attempt);

// step.c
// The message that starts a step on a node, without its environment; -ESTALE when it is no longer wanted.
int core_step_message(const struct core *c, uint64_t id, uint32_t attempt, uint32_t step, const char *node,
                      struct arena *a, struct message_exec *out, const char **environment_id);
// Ends steps whose client stays away, this much longer now. False: there are none to look after.
bool core_steps_leases_check(struct core *c, struct core_job *j, int64_t passed_ms, int64_t now_ms);
void core_apply_step(struct core *c, struct core_job *j, const struct event *e);
void core_steps_free(struct core *c, struct core_steps *s);  // c NULL: everything goes; accepts NULL
uint32_t core_steps_running(const struct core_job *j);
void core_steps_record(const struct core_job *j, uint32_t i, struct event_step **started,
                       struct event_step_ending *out);
int core_steps_load(struct core *c, struct core_job *j, const struct event_step *started, bool ending,
                    uint32_t signal, uint32_t grace_s);
void core_steps_part_ended(struct core *c, struct core_job *j, const char *node, int64_t now_ms);
void core_steps_part_started(struct core *c, const struct core_job *j, const char *node);
void core_steps_reconcile(struct core *c, struct core_job *j, const char *node, const struct attempt *a,
                          bool restored, int64_t now_ms);
// The step of that number that runs, if it is of this epoch: after a restore numbers come again.
struct core_step;
struct core_step *core_step_same(const struct core_job *j, uint32_t number, uint64_t epoch);
bool core_step_is_adopted(const struct core_step *s);
void core_step_created(struct core_step *s, uint64_t seq);  // by this process, with this event
enum {
    CORE_ADOPTED_ARGV_MAX = 16384
};  // bytes of a command line that nodes keep, and a job that is adopted has
bool core_step_fits(struct core_job *j, const struct event_step *b);  // beside the steps that run
// Of the step on a node that has it and has not reported its end yet. The step may be over then.
void core_step_part_over(struct core *c, struct core_job *j, struct core_step *s, const char *node,
                         const struct step_end *end, int64_t now_ms);
// Steps of the attempt that were adopted, also those that have ended since.
struct core_step_name {
    uint32_t number;
    uint64_t epoch;
};
uint32_t core_steps_adopted(const struct core_job *j, const struct core_step_name **out);
void core_step_note_adopted(struct core_job *j, const struct core_step_name *step);
// The highest number of a step that this state has created by itself.
uint32_t core_steps_own(const struct core_job *j);
void core_steps_set_own(struct core_job *j, uint32_t number);
void core_steps_part_added(struct core_job *j, uint32_t place);  // the job has got a part there
bool core_step_wait(struct core *c, struct core_job *j, const struct event_step *b, const char *first);  // for a node
void core_steps_ask_again(struct core *c, struct core_job *j, const char *joined);  // those that waited for this node

// adopt_step.c
bool core_step_was_adopted(const struct core_job *j, uint32_t number, uint64_t epoch);
// Whether the step is of a state that is lost, and can be adopted.
bool core_step_lost(const struct core *c, const struct core_job *j, uint32_t number, uint64_t epoch, uint64_t seq);
void core_step_ask(struct core *c, const struct core_job *j, const char *node, uint32_t number, uint64_t epoch);
