// The controller's state and rules, without I/O, clock, threads or randomness. A command is checked
// against the state and becomes events; each event is applied to the state at once and put into the
// outbox together with its effects (messages to agents, notices). The owner of the core writes the events
// to the journal, and carries out the effects and answers the command only when they are committed.
// Recovery: core_load_snapshot, then core_replay for each journal record after it.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/vec.h"
#include "model/command.h"
#include "model/event.h"
#include "model/feature.h"
#include "model/job.h"
#include "model/message.h"
#include "model/name.h"
#include "model/node.h"
#include "sched/policy.h"

struct core;

// Limits and defaults; every one of them is a setting of the cluster.
#define CORE_MEMORY_SHARE UINT64_MAX

struct core_config {
    const char *cluster;
    uint64_t max_jobs;           // live, array elements counted one by one
    uint64_t max_jobs_per_user;
    const char *volume_folder;  // on storage that all nodes have; NULL or "": none
    uint32_t max_array_size;
    uint64_t max_spec_bytes_per_user;  // of their jobs, without scripts and environments: held in memory
    uint64_t max_text_bytes_per_user;  // scripts and environments of their live jobs, each text once: on disk
    uint32_t max_keys_per_user;        // idempotency keys that have not expired
    uint32_t max_dependencies;
    uint32_t elements_at_once;  // of an array, created by one event
    uint32_t default_time_s, grace_s;
    bool requeue;                // of jobs that do not say
    uint64_t default_memory_per_cpu_bytes;  // 0: none; CORE_MEMORY_SHARE: a CPU's share of its node's memory
    uint32_t max_attempts;       // a job requeued this often is held
    uint32_t epoch_random;       // chosen at random at every start: epochs of two restored copies differ
    struct policy policy;
};
void core_config_default(struct core_config *c);

// Who gives a command. Comes from the channel, never from a message.
struct actor {
    const char *user;
    uint32_t uid, gid;
    bool admin;
    int64_t until_ms;  // known by a token that ends then; 0: by the channel itself
    bool operates;     // an operator: acts on everybody's jobs, on nodes and reservations
    uint32_t scopes;   // enum user_scope: what the token, or having no Unix user, leaves; 0: all
    const char *project;   // acts on jobs of this project only; NULL: on all. Interned, as the identity
    const char *identity;  // that logged in; NULL: known by the channel or by a token
};

struct core *core_new(const struct core_config *config);
struct core *core_free(struct core *c);  // returns NULL
void core_configure(struct core *c, const struct core_config *config);

// --- outbox: what the last commands brought about, in order ---

struct outbox_event {
    uint64_t seq;
    int64_t at_ms;
    enum event_type type;
    uint64_t job;
    uint32_t offset, len;  // of the encoded body in outbox.bytes
};

enum effect_type {
    EFFECT_SEND,         // `message`, encoded in outbox.bytes, goes to `node`
    EFFECT_LAUNCH,       // of `attempt` on `node`: core_effect_messages makes the messages when they leave
    EFFECT_STEP,         // the same for `step`
    EFFECT_JOB_CHANGED,  // for those who watch
    EFFECT_NOTIFY,       // notices.at[offset] of the outbox
};

struct effect {
    enum effect_type type;
    const char *node;  // interned: lives as long as the core
    uint64_t job;
    uint32_t attempt, step;
    uint32_t offset, len;
};

// A job that has ended, to be kept in history together with its events.
struct outbox_finished {
    uint64_t id, array_id;
    uint32_t array_index;
    enum job_state state;
    int64_t submit_ms, start_ms, end_ms;
    uint64_t cpus, gpu_milli;        // that its last attempt held, on all nodes
    const char *user, *project;      // interned
    uint32_t name, nodes, record, record_len;  // offsets in outbox.bytes; texts end in NUL
    uint64_t text_owner;             // whose texts it used
    bool release_texts;              // no live job needs them any more
};

// Somebody wants to hear of this event.
struct notice {
    uint64_t seq, job;
    enum event_type type;
    uint32_t percent;               // of a warning: how much of the time limit is used
    uint64_t array_count, array_ok;  // of an array as a whole: its elements, and how many of them completed
    char rule[IDENTIFIER_MAX + 1], subject[ALERT_METRIC_MAX + 1];  // of an alert
    double value;
};

struct outbox {
    VEC(struct outbox_event) events;
    VEC(struct effect) effects;
    VEC(struct outbox_finished) finished;
    VEC(struct notice) notices;
    struct buf bytes;
};
struct outbox *core_outbox(struct core *c);

// What launches and steps need besides the state: it lies in the store, and the controller reads it.
struct core_sources {
    void *ctx;
    // A text by its id; the bytes live until the next call.
    int (*text)(void *ctx, const char *id, const char **text, size_t *len);
    // The value of a secret, for a job on this node, into the arena. NULL: secrets are not sent.
    int (*secret)(void *ctx, const char *node, const struct event_secret *secret, struct arena *a,
                  struct bytes *out, struct error *e);
};
enum { CORE_EFFECT_MESSAGES_MAX = 2 };
// The complete messages of EFFECT_LAUNCH and EFFECT_STEP, to be sent to its node in this order; returns how many.
// None: it has ended meanwhile, or it cannot be launched, which is then recorded. To be wiped after sending
// (message_wipe).
uint32_t core_effect_messages(struct core *c, const struct effect *f, const struct core_sources *from,
                              int64_t now_ms, struct arena *a,
                              struct message out[static CORE_EFFECT_MESSAGES_MAX]);
const char *core_intern(struct core *c, const char *name);  // lives as long as the core; NULL stays NULL
void core_outbox_clear(struct outbox *o);

// --- recovery ---

int core_replay(struct core *c, uint64_t seq, int64_t at_ms, enum event_type type, const void *data, size_t len);
uint64_t core_seq(const struct core *c);  // of the newest event
int64_t core_last_event_before_start_ms(
    const struct core *c);  // of the state that was loaded; 0: it had none
void core_snapshot(const struct core *c, struct buf *out);
int core_load_snapshot(struct core *c, uint64_t seq, const void *data, size_t len, struct error *e);

// --- versions ---

// Call once when the state is loaded, before anything else: begins an epoch, and a journal without a record at
// the newest level.
void core_start(struct core *c, int64_t now_ms);
uint32_t core_level(const struct core *c);                       // of the journal (model/feature.h)
bool core_feature(const struct core *c, enum feature f);         // whether the journal's level has it
// When a node last showed that the state is an older copy than one it knows; 0: never.
int64_t core_restore_ms(const struct core *c);
// How far the journal has come, for agents; false: it has no epochs. `seq`: of the newest committed event.
bool core_position(const struct core *c, uint64_t seq, struct journal_position *out);

// --- commands ---

// Checks a command and carries it out; the only way in for what users, administrators and the configuration
// ask. `key` (may be NULL): idempotency key of a submit. The same key and the same spec give the same answer
// for CORE_KEY_DAYS, also when the job has ended or was submitted a moment ago by another connection; with
// another spec the answer is -EEXIST. `out` may be NULL.
enum { CORE_KEY_DAYS = 7, CORE_KEY_TEXT_MAX = 200 };
int core_command(struct core *c, const struct actor *actor, const char *key, const struct command *command,
                 int64_t now_ms, struct command_result *out, struct error *e);
// No job of this journal had the number, though one of a state that was lost by a restore may have it.
bool core_number_unused(const struct core *c, uint64_t id);
// The job that the user's key was used for; false: the key is not known.
bool core_key_job(const struct core *c, const char *user, const char *key, int64_t now_ms, uint64_t *id);
bool core_keys_ready(const struct core *c);  // COMMAND_KEYS_INIT was carried out, in this process or before

// --- arrays: work on all elements is done in slices ---

// Carries on with one array whose elements are not all created, or whose new limit is not applied to all of them;
// false: there is none.
bool core_array_continue(struct core *c, int64_t now_ms);
bool core_depend_continue(struct core *c, int64_t now_ms);  // the same for jobs that wait for one job
bool core_work_left(const struct core *c);                  // one of these two has something to do
bool core_array_unfinished(const struct core *c, uint64_t id);
bool core_arrays_unfinished(const struct core *c, uint64_t newest);  // any with an id up to this
uint64_t core_array_uncreated(const struct core *c,
                              uint64_t id);  // elements that are pending and do not exist yet

// --- what agents report ---

int core_agent_hello(struct core *c, const struct message_hello *hello, const char *fingerprint,
                     int64_t now_ms, struct error *e);
void core_agent_gone(struct core *c, const char *node, int64_t now_ms);                       // connection closed
void core_node_lost(struct core *c, const char *node, const char *reason, int64_t now_ms);    // time-out
void core_agent_started(struct core *c, const char *node, const struct message_started *m, int64_t now_ms);
// What the node holds of its users' images: from its agent, and as it is known; NULL: nothing.
void core_agent_images(struct core *c, const char *node, const struct message_node_images *m, int64_t now_ms);
const struct event_node_images *core_node_images(const struct core *c, const char *node);
void core_agent_health(struct core *c, const char *node, const struct message_health *m, int64_t now_ms);
void core_agent_ended(struct core *c, const char *node, const struct message_ended *m, int64_t now_ms);
// What an unknown attempt is: it becomes a job again.
// False: nobody asked for it.
bool core_agent_attempt(struct core *c, const char *node, const struct message_attempt *m, int64_t now_ms);
void core_agent_node_changed(struct core *c, const struct node *node, int64_t now_ms);
bool core_runs_on(const struct core *c, uint64_t id, uint32_t attempt,
                  const char *node);  // its attempt has a part there

// --- steps: processes that somebody started inside a running job ---

// What is asked for: where (request), what (command, without what differs by node), and a key by which a
// repeated request finds the step it has created. The texts live until the call returns.
struct step_request;
struct core_step_request {
    const char *key, *name;
    const struct step_request *request;
    const struct message_exec *command;
    const char *environment_id;  // of a text that is kept for the job
    uint64_t environment_bytes;
    uint32_t lease_s;  // 0: none
};
// Numbers begin at 1 in each attempt. -EAGAIN: other steps of the job are in the way; ask again when one of
// them has ended. Other errors: it can never run.
int core_step_create(struct core *c, const struct actor *actor, uint64_t id, const struct core_step_request *q,
                     int64_t now_ms, uint32_t *number, struct error *e);
// `end`: the signal, then SIGKILL after the grace time, until it has ended; otherwise the signal alone, once.
int core_step_signal(struct core *c, const struct actor *actor, uint64_t id, uint32_t step, uint32_t signal, bool end,
                     int64_t now_ms, struct error *e);
void core_agent_step_ended(struct core *c, const char *node, const struct step_end *end, int64_t now_ms);
void core_agent_step_listens(struct core *c, const char *node, const struct message_step_hub *m);
void core_agent_step_known(struct core *c, const char *node, const struct message_step_known *m,
                           int64_t now_ms);
struct core_step_view {
    uint32_t number;
    const struct event_step *started, *ended;  // ended NULL: it runs
    uint64_t created_seq;  // until this event is committed nobody may hear of it; 0: it was read from disk
};
// A step that runs or has ended not long ago, by number or (number 0) by key. Pointers live until the next command.
bool core_step_view(const struct core *c, uint64_t id, uint32_t number, const char *key, struct core_step_view *out);
// The step of this key and epoch, else the newest of the key: after restores there may be several, one that the client
// was told of and one that was created for an earlier request of it.
bool core_step_of_client(const struct core *c, uint64_t id, const char *key, uint64_t epoch,
                         struct core_step_view *out);
// The node of this part of the step has been told of it once this event is committed and its effects have left;
// UINT64_MAX: the job has not started there yet.
uint64_t core_step_told_seq(const struct core *c, uint64_t id, uint32_t number, uint32_t part);
// The client of an allocation with a lease (spec.lease_s) is there. A lease that is not renewed for that
// long ends the job; after a start of the controller every lease has its full term again.
enum { CORE_CLIENT_SILENT_MS = 40 * 1000 };  // a client that says nothing for so long does not count as there
void core_lease_renew(struct core *c, uint64_t id);
void core_step_renew(struct core *c, uint64_t id, uint32_t step);  // the same for a step
// The client of an allocation is done with it: the job ends with this exit.
void core_give_back(struct core *c, uint64_t id, int32_t exit_code, uint32_t exit_signal, int64_t now_ms);

// --- projects, partitions, QoS, reservations; tokens ---

uint64_t core_jobs_in(const struct core *c, enum entity_kind kind, const char *name);  // live; 0 for reservations
bool core_enrolled(const struct core *c, const char *node,
                   const char *fingerprint);                                  // may dial in under this name
bool core_token_holds(const struct core *c, const char *id, int64_t now_ms);  // neither revoked nor ended
const struct event_token *core_token_of_user(const struct core *c, const char *id, const char *hash,
                                             int64_t now_ms);  // NULL: not valid, or for an agent

// Drafts, templates and views.
enum {
    CORE_SAVED_MAX = 100,              // of one kind, of one user or project
    CORE_SAVED_BYTES_MAX = 256 << 10,  // of one
    CORE_SAVED_OWNER_BYTES = 1 << 20,  // of all of one owner
    CORE_SAVED_ALL_BYTES = 256 << 20,
    CORE_SAVED_QUERY_MAX = 4096,
};
// Of a user or of a project (the other is NULL); NULL: there is none. Lives until the state changes.
const struct event_saved *core_saved(const struct core *c, enum saved_kind kind, const char *user,
                                     const char *project, const char *name);
bool core_saved_visible(const struct core *c, const struct actor *actor, const struct event_saved *s);
typedef bool (*core_saved_fn)(void *ctx, const struct event_saved *s);
// Of one owner, by kind and name; of all, owner by owner.
void core_each_saved_of(const struct core *c, const char *user, const char *project, core_saved_fn fn,
                        void *ctx);
void core_each_saved(const struct core *c, core_saved_fn fn, void *ctx);
// The secret of a user or of a project (the other is NULL); NULL: there is none. Lives until the state changes.
const struct event_secret *core_secret(const struct core *c, const char *user, const char *project, const char *name);
// The one that a job of this user and project gets under the name: the user's own, else the project's.
const struct event_secret *core_secret_of_job(const struct core *c, const char *user, const char *project,
                                              const char *name);
bool core_secret_visible(const struct core *c, const struct actor *actor, const struct event_secret *s);
// The version that a secret stored next has: greater than any before, also of deleted ones.
uint32_t core_secret_next_version(const struct core *c, const char *user, const char *project,
                                  const char *name);
uint64_t core_secret_count(const struct core *c);
void core_each_secret(const struct core *c, bool (*fn)(void *ctx, const struct event_secret *s), void *ctx);  // sorted

// --- people: accounts and logins (model/user.h) ---

struct core_user_view {  // pointers live until the state changes
    const struct user_account *account;
    uint64_t password;  // number under which the store has its hash; 0: none
    uint32_t version;   // of the password
    int64_t set_ms;
};
bool core_user(const struct core *c, const char *name, struct core_user_view *out);
void core_each_user(const struct core *c, bool (*fn)(void *ctx, const struct core_user_view *u),
                    void *ctx);  // sorted

// Who somebody is: by the identity they logged in with and the Unix user that their provider names, or (identity NULL)
// a Unix user alone.
struct core_person {
    const struct user_account *account;  // NULL: there is none
    const char *unix_user;               // NULL: they may look, not submit
    enum user_role role;
    bool disabled;
    bool by_claim;  // no account has this identity: the Unix user is the one that a provider names
};
void core_person(const struct core *c, const char *identity, const char *claimed, struct core_person *out);

// Programs of jobs that are shared. NULL: not with them; job, port and user or project of `like` count.
const struct event_share *core_share(const struct core *c, const struct event_share *like);
void core_each_share(const struct core *c, bool (*fn)(void *ctx, const struct event_share *s), void *ctx);
// Whether the user may use it now by a share, their own or their project's.
bool core_share_allows(const struct core *c, const char *user, uint64_t job, uint32_t port, int64_t now_ms);
// --- services (model/service.h); pointers live until the state changes ---

const struct event_service *core_service(const struct core *c, const char *user,
                                         const char *name);  // NULL: none
const struct event_service *core_service_by_id(const struct core *c, uint64_t id);
// The one after `s` in the order of user and name; NULL: the first, or none follows.
const struct event_service *core_service_next(const struct core *c, const struct event_service *s);
const struct event_service_token *core_service_token(const struct core *c, uint64_t service, const char *id);
void core_each_service_token(const struct core *c, uint64_t service,
                             bool (*fn)(void *ctx, const struct event_service_token *t), void *ctx);
uint64_t core_service_job(const struct core *c, uint64_t service, uint32_t revision);  // live; 0: none
uint64_t core_service_of_job(const struct core *c, uint64_t job);  // of a live one or of a worker; 0: of none
const char *core_service_problem(const struct core *c,
                                 uint64_t service);  // why it has no job; "": nothing is wrong
// The live workers of an elastic job, by number.
struct job_view;
void core_each_worker(const struct core *c, uint64_t job, bool (*fn)(void *ctx, const struct job_view *v),
                      void *ctx);
// Submits, resizes and cancels jobs until they are what the services want. `submitted` is called for each new job,
// whose script and environment are the revision's. Returns when to call it again (INT64_MAX: when something happens).
typedef void (*core_service_fn)(void *ctx, uint64_t job, const struct event_service *s, uint32_t revision);
int64_t core_services_reconcile(struct core *c, int64_t now_ms, core_service_fn submitted, void *ctx);

// The volume of a user, or of a project (the other is NULL); NULL: there is none. Lives until the state changes.
const struct event_volume *core_volume(const struct core *c, const char *user, const char *project,
                                       const char *name);
void core_each_volume(const struct core *c, bool (*fn)(void *ctx, const struct event_volume *v),
                      void *ctx);  // sorted
// Whether the user's jobs in the project (NULL: in any) may have it; `write`: not only for reading.
bool core_volume_allows(const struct core *c, const char *user, const char *project,
                        const struct event_volume *v, bool write);
// How many live jobs have it; up to `most` of them in `jobs`.
uint64_t core_volume_jobs(const struct core *c, const char *title, uint64_t *jobs, uint32_t most);
bool core_volume_visible(const struct core *c, const struct actor *actor, const struct event_volume *v);
// NULL: there is none, or it is over. For whoever has proven otherwise that it is theirs.
const struct event_session *core_session_by_id(const struct core *c, const char *id, int64_t now_ms);
const struct event_session *core_session(const struct core *c, const char *id, const char *hash,
                                         int64_t now_ms);  // NULL: not valid
bool core_session_holds(const struct core *c, const char *id, int64_t now_ms);
bool core_session_is_of(const struct core *c, const struct actor *actor, const struct event_session *s);
void core_each_session(const struct core *c, bool (*fn)(void *ctx, const struct event_session *s),
                       void *ctx);  // sorted

// What a provider's groups give a Unix user; NULL: nothing.
const struct event_user_grant *core_user_grant(const struct core *c, const char *user);
bool core_grants_project(const struct core *c, const char *user, const char *project);
void core_each_user_grant(const struct core *c, bool (*fn)(void *ctx, const struct event_user_grant *g),
                          void *ctx);  // sorted
// --- alerts (model/alert.h); pointers live until the state changes ---

const struct alert_rule *core_alert_rule(const struct core *c, const char *name);  // NULL: none was set
const struct event_alert *core_alert(const struct core *c, const char *rule,
                                     const char *subject);  // NULL: none now
void core_each_alert_rule(const struct core *c, bool (*fn)(void *ctx, const struct event_alert_rule *r),
                          void *ctx);
void core_each_alert(const struct core *c, bool (*fn)(void *ctx, const struct event_alert *a),
                     void *ctx);  // sorted

// --- time passes ---

// Starts what can be started and ends what must end. Call after commands, and again at the time it
// returns (INT64_MAX: only when something happens).
int64_t core_schedule(struct core *c, int64_t now_ms);

// --- questions ---

// --- providers and wanted nodes ---

const struct node_provider *core_provider(const struct core *c, const char *name);  // NULL: there is none
void core_each_provider(const struct core *c, bool (*fn)(void *ctx, const struct node_provider *p),
                        void *ctx);  // by name
const struct wanted_node *core_wanted(const struct core *c, uint64_t id);
// In the order of ids, those that are gone with them; provider NULL: of all.
void core_each_wanted(const struct core *c, const char *provider,
                      bool (*fn)(void *ctx, const struct wanted_node *n), void *ctx);
const char *core_provider_note(const struct core *c, const char *name);  // what was last decided; "": nothing
uint64_t core_provider_spent_micro(const struct core *c, const struct node_provider *p, int64_t now_ms);  // today
// What the program is to be asked now, by the state: to start these nodes, to stop those. `known`: with keys that the
// journal does not know but that the program has listed, see core_provider_strangers.
bool core_wanted_to_start(const struct wanted_node *n, int64_t now_ms);
bool core_wanted_to_stop(const struct wanted_node *n);
// Decides how many nodes are wanted and which are given back, and follows nodes through their states. Call it every
// second, and when nodes or jobs have changed.
void core_providers_tick(struct core *c, int64_t now_ms);
// Nodes of the last list of a program that are its own and not in the journal, or gone there, and not known to run
// jobs: to be stopped. `settled`: the controller is up for long enough that all agents had time to say hello.
uint32_t core_provider_strangers(const struct core *c, const struct provider_report *r, bool settled,
                                 const struct engine_node **out, uint32_t max);

// The nodes of a job's attempt are told of it once this event is committed. UINT64_MAX: not yet, others on its nodes
// have to end first, or it is run after a pause. 0: it is not the live one.
uint64_t core_launch_told_seq(const struct core *c, uint64_t id, uint32_t attempt);
// The launch of an attempt on a node, without texts and secrets; -ESTALE when it is no longer wanted.
int core_launch(const struct core *c, uint64_t id, uint32_t attempt, const char *node, struct arena *a,
                struct message_launch *out);
int core_record(const struct core *c, uint64_t id, struct arena *a, struct job_record *out);  // -ENOENT
// Whose live job it is; false: there is none.
bool core_job_owner(const struct core *c, uint64_t id, const char **user, const char **project);
// Script, environment and output of a job of that user in that project: its user, administrators, and the members of a
// project that shares logs.
bool core_may_see(const struct core *c, const struct actor *actor, const char *user, const char *project);
// Whose job it is and its name, where these are not shown to everybody: of one's own, of one's projects, for operators.
bool core_may_know(const struct core *c, const struct actor *actor, const char *user, const char *project);
bool core_leads(const struct core *c, const char *user, const char *project);
bool core_is_named_member(const struct core *c, const char *user, const char *project);
// "12_3" style: the id of an array's element; 0 if there is none.
uint64_t core_element(const struct core *c, uint64_t array_id, uint32_t index);
uint64_t core_worker(const struct core *c, uint64_t job,
                     uint32_t number);  // id of an elastic job's worker; 0: none
uint64_t core_head(const struct core *c, uint64_t job);  // id of the first head that has not ended; 0: none
uint32_t core_worker_count(const struct core *c,
                           uint64_t job);       // numbers ever given to its workers; 0: no such job
uint64_t core_newest_id(const struct core *c);  // of all jobs ever submitted; 0: none
uint64_t core_array_size(const struct core *c, uint64_t id);  // of a live array: elements, ended ones too, ids in a row
bool core_is_array(const struct core *c, uint64_t id);  // some element of it is live

// A live job as lists need it: nothing is copied, all pointers live until the next command.
struct job_view {
    uint64_t id, array_id;
    uint32_t array_index, array_limit;
    const char *name, *user, *project, *qos;
    const char *partition;  // it runs in; while it waits all it names, "a,b"
    enum job_class class;
    enum job_state state;
    enum job_reason reason;
    uint32_t attempt, tasks, cpus, node_count, time_limit_s, preempted, uid, steps, priority;
    uint64_t memory_bytes, gpus_milli;
    int64_t submit_ms, eligible_ms, start_ms, expected_start_ms;
    int64_t suspended_ms, suspend_ms;  // pauses that are over; when it was suspended or resumed last
    const char *ending_reason, *ending;  // the word of the cause; NULL: it is not being ended
    const void *spec_bytes;  // encoded spec
    size_t spec_len;
    bool held;
    enum job_health health;  // of its program; HEALTH_NONE: it has no health check, or does not run
    const char *health_reason;
    int32_t nice;
    uint64_t job;                                        // of a worker: the elastic job it belongs to; else 0
    uint32_t worker;                                     // its number there
    bool optional;                                       // beyond the minimum
    const char *component;                               // of a worker: what kind it is
    uint32_t components;                                 // of it, or of its job: how many kinds there are
    uint32_t workers_min, workers_max, workers_running;  // of an elastic job; max 0: it is none
};
bool core_has_job(const struct core *c, uint64_t id);  // it is live
// The number under which its nodes know a live attempt: another one where that was given away after a restore. 0: the
// attempt is not live.
uint64_t core_agent_job_number(const struct core *c, uint64_t id, uint32_t attempt);
uint64_t core_attempt_epoch(const struct core *c,
                            uint64_t id);  // of its current attempt; 0: none, or not known
bool core_view(const struct core *c, uint64_t id, struct job_view *out);
int64_t core_view_paused_ms(const struct job_view *v, int64_t now_ms);  // all pauses, with the one it is in
// Calls fn for every live job in order of id until it returns false.
void core_each_job(const struct core *c, bool (*fn)(void *ctx, const struct job_view *v), void *ctx);
void core_each_job_after(const struct core *c, uint64_t after,
                         bool (*fn)(void *ctx, const struct job_view *v),
                         void *ctx);  // those with larger ids
void core_each_element(const struct core *c, uint64_t array_id, uint64_t after,
                       bool (*fn)(void *ctx, const struct job_view *v), void *ctx);
const struct usage *core_usage(const struct core *c, uint64_t id);  // of its ended parts and attempts; NULL: none
void core_job_nodes(const struct core *c, uint64_t id, struct buf *out);  // folded list
uint32_t core_job_node_names(const struct core *c, uint64_t id, const char **names, uint32_t max);
// A job that is being ended: the i-th of its nodes on which it has not ended yet.
struct core_ending {
    const char *node;
    int64_t since_ms;  // 0: not known
    uint32_t grace_s;
};
bool core_job_ending(const struct core *c, uint64_t id, uint32_t i, struct core_ending *out);

struct node_view {
    const struct node *node;
    enum node_state state;
    bool drained;
    const char *reason, *by;  // of the drain or of being down
    int64_t reason_ms;
    uint32_t cpus_used, gpus_used_milli, jobs;
    uint64_t memory_used_bytes;
    uint32_t stale;           // attempts still being cleaned up there
    int64_t busy_ms;          // when its last job ended; 0: none yet
    uint32_t launch_failures; // launches in a row that failed for the node's own reasons
    int64_t retry_ms;         // it gets no launches before this time; 0: it does
    const char *launch_reason;
};
void core_each_node(const struct core *c, bool (*fn)(void *ctx, const struct node_view *v), void *ctx);
bool core_node(const struct core *c, const char *name, struct node_view *out);
// Thousandths of each GPU that jobs hold, by index; `held` is zeroed first.
void core_node_gpus(const struct core *c, const char *name, uint32_t *held, uint32_t max);
// Parts of the node's GPUs that jobs hold.
struct core_grant {
    uint64_t job;
    const char *user, *project;
    uint32_t index, milli;
};
void core_each_grant(const struct core *c, const char *node,
                     void (*fn)(void *ctx, const struct core_grant *g), void *ctx);
// Jobs that hold resources, each once; elastic jobs by their workers.
void core_each_running(const struct core *c, void (*fn)(void *ctx, const struct job_view *v), void *ctx);
uint32_t core_live_users(const struct core *c);                     // users with live jobs
uint32_t core_node_ending(const struct core *c, const char *name);  // jobs there that are being ended
const char *core_node_fingerprint(const struct core *c, const char *name);

struct core_counts {
    uint64_t by_state[JOB_STATE_COUNT];  // live ones now; final ones since the beginning
    uint64_t submitted, requeued, preempted;
    uint32_t nodes, nodes_up, nodes_drained, nodes_down;
};
void core_counts(const struct core *c, struct core_counts *out);
// What the scheduler did since this process began; not part of the state.
struct core_passes {
    uint64_t passes, looked_at, started, backfilled;
};
void core_passes(const struct core *c, struct core_passes *out);
bool core_entity_exists(const struct core *c, enum entity_kind kind, const char *name);
void core_each_entity(const struct core *c, enum entity_kind kind,
                      bool (*fn)(void *ctx, const char *name, const void *value), void *ctx);
void core_each_partition_of(const struct core *c, const char *node,
                            bool (*fn)(void *ctx, const char *name, const void *value), void *ctx);
void core_each_token(const struct core *c, bool (*fn)(void *ctx, const struct event_token *t, bool used), void *ctx);
struct world *core_world(struct core *c);  // for explanations
// The number of the newest event about a live job, or of the one that set an entity: grows with every change.
// 0: there is none such, or it was last changed by an earlier release.
uint64_t core_job_version(const struct core *c, uint64_t id);
uint32_t core_license_used(const struct core *c, const char *name);  // seats that running jobs hold
uint64_t core_entity_version(const struct core *c, enum entity_kind kind, const char *name);
uint32_t core_handle(const struct core *c, enum entity_kind kind, const char *name);  // the world's id; 0: none
const struct policy *core_policy(const struct core *c);
void core_policy_settings(const struct core *c, struct policy_settings *out);
// What the scheduler works with under these settings; fields that are no setting stay as they are in *out.
int core_policy_of(const struct policy_settings *s, struct policy *out, struct error *e);
// Turns a spec into the scheduler's request (lists live in the arena).
struct sched_request;
int core_request(struct core *c, const char *user, const struct spec *spec, struct arena *a,
                 struct sched_request *out, struct error *e);
void core_fill_defaults(const struct core *c, const struct actor *actor, struct spec *spec);  // as a submit would
uint32_t core_node_handle(const struct core *c, const char *node);  // the world's id; 0: none
// Every index against every other; aborts with a message when one is wrong.
void core_assert(const struct core *c);
