// The controller daemon, shared by the files of this folder only: one event loop that ties the commit pipeline
// (core and store) to the network and the clock.
#pragma once
#include <uv.h>

#include "base/clock.h"
#include "base/map.h"
#include "base/users.h"
#include "base/vec.h"
#include "controller/commit_pipeline.h"
#include "metrics/writer.h"
#include "model/config.h"
#include "model/paths.h"
#include "model/progress.h"
#include "net/pki.h"
#include "net/server.h"
#include "net/tls.h"
#include "store/retention.h"
#include "stream.h"

enum {
    LAUNCH_BACKLOG_BYTES = 16 << 20,  // on their way to a node before launches wait
    WAITERS_MAX = 65536,
    USER_NAME_MAX = 257,  // longer than any: a name cut short could be another's
    LIST_ROWS_MAX = 1000000,
    BULK_SUBMITS_MAX = 10000,
    API_VALUES_MAX = 1 << 18,  // JSON values of one request, or of one job of a bulk request
};

struct agent_conn {
    struct controller *controller;
    struct net_ws *ws;
    const char *node;  // interned by the core; NULL before its hello
    struct net_peer peer;
    char address[NET_ADDRESS_MAX];
    struct message_skips skips;  // of a later release
    uint32_t level;    // that its program knows, by its hello
    uint64_t hello_seq;  // the newest event when its hello was taken
    uint64_t hello;      // number of its newest hello; 0: none
    int64_t heard_ms;    // when its newest message came
    bool ready;          // what that hello brought about is committed and sent
    bool terms;          // it expects the leader's term before each message
};

// What a running job uses, all its nodes together. Each node reports its own part. Not in the journal: after a restart
// it comes with the next reports.
struct live_part {
    const char *node;  // interned
    struct usage usage;
    uint64_t memory_now_bytes;
    uint32_t processes;
    bool preparing;
    int64_t preparing_ms;  // since when; 0: not known
    bool progress_known;   // the job says how far it has come
    uint32_t progress_milli;
    char progress_text[PROGRESS_TEXT_MAX];
};
struct live_usage {
    struct usage usage;
    uint64_t memory_now_bytes;
    uint32_t processes, attempt;
    bool preparing;  // its container image, on some node
    int64_t preparing_ms;
    bool progress_known;  // as its first node says that has read it
    uint32_t progress_milli;
    const char *progress_text;  // in `parts`
    VEC(struct live_part) parts;
    int64_t charted_ms;  // when its CPUs and memory were last put into its charts, and as of what:
    uint64_t charted_cpu_us;
    uint32_t charted_attempt;
};
struct live_usage *controller_live_usage_free(struct live_usage *u);

// sliced_read.c: questions that are answered in slices.
struct reads {
    uv_idle_t idle;  // keeps the loop turning while one has something to do
    VEC(struct sliced_read *) list;
    struct strmap users;  // name → struct read_user
    uint64_t slices;
    uint32_t rows, rows_max;  // looked at in this turn of the loop, and in any
    int64_t until_us;         // when the slices of this turn end
};

struct controller {
    uv_loop_t loop;
    uv_prepare_t prepare;
    uv_timer_t wake, tick;
    uv_poll_t store_poll, users_poll;
    uv_signal_t sigterm, sigint, sighup;
    struct net_server *server;
    struct core *core;
    struct commit_pipeline *pipeline;
    struct store *store;
    bool shared;             // the store is a database that other controllers may share (standby.c):
    bool handing_over;       // another is to lead
    bool database_noted;     // the state folder says which database it is, and how far its journal went
    uint64_t term;           // ours as its leader,
    int64_t lease_until_ms;  // and until when, by the monotonic clock, it is certainly ours
    struct config config;
    struct arena arena;  // of paths
    struct paths paths;
    const char *place;  // of the state: its folder, or the address of a database
    struct pki_ca *ca;
    struct tls_context *tls;
    char hostname[256];
    uid_t uid;
    bool stopping;
    bool pid_unwritten;  // there was no room for the pid file
    int64_t started_ms, started_mono_ms;
    int64_t schedule_us, scheduled_mono_us;  // how long the last decision took, and when
    uint64_t requests, schedules, ticks;
    struct store_retention_clock retention;  // what is old enough to be deleted
    uint64_t body_bytes;     // of requests since memory was last given back
    int64_t last_ping_ms;
    struct strmap agents;    // node → struct agent_conn
    uint64_t hellos;         // taken so far
    char
        second_agent[ERROR_TEXT_MAX];  // what is wrong when two agents have one name; "": that never happened
    int64_t second_agent_ms;
    struct map waiters;      // job → struct waiter
    struct stream_table streams;
    struct map live;         // job → struct live_usage
    struct live_feed *live_feed;  // live.c; NULL: not yet
    struct job_table *job_table;  // job_table.c; NULL: not yet
    const char *program;             // this one, to start processes beside it; NULL in tests
    VEC(struct past_view *) past_views;  // processes that look back
    struct buf overview;          // the answer of /v1/overview, for those who ask within a second
    int64_t overview_ms;
    VEC(struct step_session *) step_sessions;
    VEC(struct session *) sessions;
    VEC(struct file_call *) file_calls;  // requests about files, under way
    struct users *users;
    struct audit_log *audit;
    struct portal *portal;
    struct apps *apps;                       // app.h
    struct serve *serve;                     // serve.h
    VEC(struct login_check *) login_checks;  // under way
    VEC(struct helper *) helpers;            // programs that were asked, helper_process.c
    struct oidc *oidc;                       // login_oidc.c; NULL: nobody has come that way yet
    struct device_logins *device_logins;     // login_device.c; likewise
    VEC(struct login_code *) login_codes;    // one-time codes that were not used
    VEC(struct login *) logins;              // with a password: waiting, being checked, or refused late
    VEC(struct password_change *) password_changes;
    struct login_turns *login_turns;  // login_turns.c; NULL: nobody has come yet
    struct strmap guesses;   // wrong tokens: address, or address and token → struct admission_guess
    VEC(struct net_request *) unidentified;  // wait until it is known whose they are
    struct reads reads;
    struct strmap request_accounts;  // request_turns.c
    struct request_part {
        int64_t spent_us;
        uint32_t handled;
    } strangers;                     // what requests of all addresses without a user have had of this turn
    uint32_t strangers_from;         // whose turn among them is next
    struct site_apps *site_apps;     // api_apps.c
    uv_idle_t request_idle;          // while requests wait for the next turn
    int64_t request_turn_us;         // of an account; 0: they are only counted
    VEC(struct sliced_work *) work;  // requests about many jobs, not complete yet, in the order they came
    uv_idle_t work_idle;             // while there are such
    uint32_t work_next;              // whose turn it is
    uint32_t work_spent;             // units of work in this turn of the loop
    uint32_t work_spent_max;
    int64_t work_until_us;  // when the present slice ends
    uint64_t work_slices;
    bool walking_waiters;
    uint64_t waits_at_ms;   // turn of the loop in which waiting requests were answered last,
    int64_t waits_used_us;  // and how long that took
    VEC(struct question *) questions;  // that wait for their turn, oldest first
    uv_timer_t query_throttle_timer;
    int64_t query_throttle_began_us, query_throttle_again_us;
    uint64_t query_throttle_round;  // of the question that was answered last
    bool answering;          // one of those that waited
    struct past *past;       // the question about the past that is being answered
    int64_t journal_replay_again_us;  // when users may have the past played back again
    struct telemetry *telemetry;
    struct notifier *notifier;
    struct alerts *alerts;
    struct backups *backups;
    struct providers *providers;             // providers.h
    VEC(struct node_look *) node_looks;     // questions that an agent has not answered yet
    struct snapshot_maker *snapshot_maker;  // NULL: none was started yet
    VEC(struct fresh_secret *) fresh_secrets;  // not committed yet
    struct buf configured;   // entries that are or were in the configuration file, see policy.c
    struct metrics_histogram pass_times, request_times;
    struct map replies;      // route and status → count
    char storage_problem[ERROR_TEXT_MAX];
};

int64_t controller_now_ms(void);

// standby.c: a controller that shares its database. Returns 0 when it leads, 1 when it was told to stop.
int controller_stand_by(struct controller *c, const struct store_config *config, struct error *e);
// Returns when the lease is ours, at once as a rule; steps down when it is not. In every turn of the loop, and where
// something leaves that only a leader may say.
void controller_lease_look(struct controller *c);
// Starts the program anew, as one that does not lead.
void controller_step_down(struct controller *c, const char *why) __attribute__((noreturn));
void controller_note_database(struct controller *c);  // how far it goes, beside it
void controller_hand_over(struct controller *c);  // ends the lease; what follows is a step down
static inline bool controller_leads(const struct controller *c) {
    return !c->shared || clock_mono_ms() < c->lease_until_ms;
}
void controller_release(struct controller *c);  // frees all that it owns; the loop and its handles are closed
int controller_reload(struct controller *c, struct error *e);  // reads the configuration file again
int controller_init_keys(struct controller *c, struct error *e);  // gives the core a secret, once (daemon.c)

// agents.c
void agents_upgrade(struct controller *c, struct net_request *req);
bool agents_send(struct controller *c, const char *node, enum message_type type,
                 void *body);                                         // false: not connected
size_t agents_backlog(const struct controller *c, const char *node);  // bytes on their way to it
const char *agents_problem(const struct controller *c);               // for the status; NULL: none
void agents_ping(struct controller *c);
void agents_tick(struct controller *c);  // pings when it is time
extern const struct stream_host agents_stream_host;  // with the controller
void agents_dismiss(struct controller *c);  // those whose certificate has been revoked
void controller_hook_send(void *ctx, const char *node, const void *data, size_t len);
bool controller_hook_has_room(void *ctx, const char *node);
void controller_hook_node_lost(void *ctx, const char *node);

// secrets.c
int controller_hook_secret(void *ctx, const char *node, const struct event_secret *secret, struct arena *a,
                           struct bytes *out, struct error *e);
void controller_secrets_done(struct controller *c);
// What to do about a key file that is gone while there are secrets; NULL: it is not.
const char *controller_secret_key_lost(const struct controller *c, struct arena *a);
// A key for proofs that something was made here, which nothing stored tells; made with that of secrets.
struct mac_key;
int controller_derive_key(struct controller *c, const char *purpose, struct mac_key *out, struct error *e);
// Other values that are kept encrypted, under the number of the event that says so. `context` binds each to its place.
int controller_seal(struct controller *c, const char *context, const void *data, size_t len, struct buf *out,
                    struct error *e);
void controller_sealed_keep(struct controller *c, uint64_t number, struct buf *sealed);  // takes it
int controller_unseal(struct controller *c, uint64_t number, const char *context, struct buf *out,
                      struct error *e);

// sliced_work.c: requests about many jobs, in slices.
void controller_work_init(struct controller *c);
void controller_work_stop(struct controller *c);  // answers those that are not complete
void controller_work_turn_ends(struct controller *c);
void controller_work_committed(struct controller *c);  // the store has caught up

// request_turns.c: requests of accounts that sent many at once.
void controller_requests_init(struct controller *c);
void controller_requests_stop(struct controller *c);  // answers those that wait
void controller_requests_done(struct controller *c);
bool controller_requests_turn(struct controller *c);  // false: none waited

// sliced_read.c: questions that are answered in slices.
void controller_reads_init(struct controller *c);
void controller_reads_done(struct controller *c);
void controller_reads_wake(struct controller *c);
bool controller_reads_turn(struct controller *c);  // false: there was nothing to do

// session.c: conversations with attached jobs, and logs that are followed.
void controller_sessions_node_up(struct controller *c, const char *node);
void controller_sessions_tick(struct controller *c);  // those that wait for output of nodes that are given up

// step_session.c
void controller_step_sessions_node_up(struct controller *c, const char *node);
// Before the commit: should it be lost, the nodes report the end again.
void controller_step_sessions_step_ended(struct controller *c, uint64_t job, uint32_t step,
                                         const char *node);  // there, perhaps not on others
void controller_step_sessions_renew(
    struct controller *c);  // leases of allocations whose clients are connected

// query_throttle.c: whose question is answered when.
void query_throttle_init(struct controller *c);
void query_throttle_done(struct controller *c);

// subscriptions.c: those who wait for a job, and those who follow events.
typedef void (*watch_fn)(void *arg, uint64_t id);
struct waiter *controller_watch_job(struct controller *c, uint64_t id, watch_fn fn, void *arg);
void controller_unwatch_job(struct controller *c, struct waiter *w);
void controller_hook_job_changed(void *ctx, uint64_t id);
void controller_hook_storage(void *ctx, const struct error *problem);
void controller_watch_done(struct controller *c);

// cluster_keys.c: loads or makes the authority (c->ca) and the TLS context (c->tls). `names`: of this machine.
int controller_keys_open(struct controller *c, const char *const *names, size_t count, struct error *e);
// daemon.c: on the address of the configuration. -ENOENT: there are no keys yet, and only a leader may make them.
int controller_listen_tls(struct controller *c, struct net_server *server, struct error *e);
