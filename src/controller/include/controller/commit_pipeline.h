// The order of things around the core: events go to the store in one batch, and what they cause
// (messages to agents, answers to commands, notices) leaves only when that batch is committed, in
// the same order. Also recovery, snapshots, and the time-out of silent nodes. Does no I/O of its own:
// the store and the hooks do, so the fault simulator runs this very code.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "core/core.h"
#include "store/store.h"

struct commit_pipeline;

enum {
    PIPELINE_SNAPSHOT_EVENTS = 50000,  // journal records between snapshots, at least
    PIPELINE_KEY_SECRET_BYTES = 16,
};

struct pipeline_hooks {
    void *ctx;
    // An encoded message for an agent; dropped when it is not connected: reconciliation repairs that.
    void (*send)(void *ctx, const char *node, const void *data, size_t len);
    // Whether a launch or step, which may be large, would find room on its way there; else it waits for
    // pipeline_send_waiting. May be NULL: always.
    bool (*has_room)(void *ctx, const char *node);
    // As in struct core_sources. May be NULL.
    int (*secret)(void *ctx, const char *node, const struct event_secret *secret, struct arena *a,
                  struct bytes *out, struct error *e);
    void (*job_changed)(void *ctx, uint64_t id);
    void (*job_ended)(void *ctx, const struct store_history *row);  // when it leaves the core; may be NULL
    // The node was given up: its connection must end, so that its agent says hello before it is used
    // again. May be NULL.
    void (*node_lost)(void *ctx, const char *node);
    void (*notify)(void *ctx, const struct notice *what);  // may be NULL
    void (*storage)(void *ctx, const struct error *problem);  // NULL: it works again
    // Begins to make a snapshot elsewhere, which ends with pipeline_snapshot_made or pipeline_snapshot_failed; a
    // negative errno: it cannot. May be NULL: snapshots are made here.
    int (*make_snapshot)(void *ctx);
};

struct commit_pipeline *pipeline_new(struct core *core, const struct pipeline_hooks *hooks);
struct commit_pipeline *pipeline_free(struct commit_pipeline *s);
struct store_watch pipeline_watch(struct commit_pipeline *s);  // for opening the store
void pipeline_attach(struct commit_pipeline *s, struct store *store);
// Loads snapshot and journal into the core. Nodes count as silent until their agents come back.
int pipeline_load(struct commit_pipeline *s, int64_t now_ms, struct error *e);
// The same in steps, for a controller that does not lead yet: what there is, then again and again what came since, and
// at last, when it leads and has followed once more, the beginning of its own events.
int pipeline_read(struct commit_pipeline *s, struct error *e);
int pipeline_follow(struct commit_pipeline *s, struct error *e);
void pipeline_begin(struct commit_pipeline *s, int64_t now_ms);
// Once in the life of a cluster: gives the core the secret that idempotency keys are hashed with, and the keys
// that the previous release kept in the store. Does nothing when the core has a secret. Call after loading.
int pipeline_init_keys(struct commit_pipeline *s, const uint8_t secret[static PIPELINE_KEY_SECRET_BYTES],
                       int64_t now_ms, struct error *e);

// Sends what waited for room on the connection; `gone`: drops it, the node's hello brings it back.
void pipeline_send_waiting(struct commit_pipeline *s, const char *node, bool gone);

// Texts of a submit (script, environment); kept until a job refers to them in the same batch.
void pipeline_text_id(const void *text, size_t len, char id[static 33]);
void pipeline_keep_text(struct commit_pipeline *s, uint64_t owner, const void *text, size_t len);
// A small named value (store_batch_blob), committed with the next batch.
void pipeline_keep_blob(struct commit_pipeline *s, const char *name, const void *data, size_t len);
// What the encrypted value of a secret is called in the store.
void pipeline_secret_name(uint64_t number, char out[static STORE_BLOB_NAME_MAX]);
// By id; the bytes live until the next call. -ENOENT.
int pipeline_text(struct commit_pipeline *s, const char *id, const char **text, size_t *len);

// Calls fn when every event so far is committed; at once if all are.
typedef void (*pipeline_done_fn)(void *arg);
void pipeline_when_committed(struct commit_pipeline *s, pipeline_done_fn fn, void *arg);

// Runs the scheduler if `schedule` is set, and hands everything new to the store. Returns when
// to call again even if nothing happens.
int64_t pipeline_flush(struct commit_pipeline *s, int64_t now_ms, bool schedule);
size_t pipeline_backlog(
    const struct commit_pipeline *s);  // bytes that were handed to the store and are not committed
bool pipeline_dirty(const struct commit_pipeline *s);  // something waits for a flush
// The record of a job that has ended but whose end is not committed yet: it is neither in the core
// nor in history. Lives until the next call of anything here.
bool pipeline_ending(const struct commit_pipeline *s, uint64_t id, const void **record, size_t *len);
bool pipeline_has_endings(const struct commit_pipeline *s);  // there are such jobs
void pipeline_each_ending(const struct commit_pipeline *s, store_history_fn fn,
                          void *ctx);  // all of them, as history will have them
uint64_t pipeline_ending_element(const struct commit_pipeline *s, uint64_t array,
                                 uint32_t index);  // such a job's id; 0: none
void pipeline_poll(struct commit_pipeline *s);     // the store's descriptor is readable, or time has passed
void pipeline_retry(struct commit_pipeline *s);
// How far the journal is committed, for agents; false: it has no epochs, or event `after`, that of the agent's hello,
// is not committed yet. A node forgets what it knew of a lost journal when it is told of a later one, so the hello
// that shows the loss must be recorded first: otherwise a second restore from before that record would find nobody who
// knows.
bool pipeline_position(const struct commit_pipeline *s, uint64_t after, struct journal_position *out);
uint64_t pipeline_committed_seq(const struct commit_pipeline *s);  // the newest event on disk; 0: none
bool pipeline_degraded(const struct commit_pipeline *s, char *why, size_t size);  // commits fail

// Heartbeats: a node that was not heard of for `timeout_ms` is lost. To be checked about once a second, by monotonic
// time; while this process stalls no silence is counted.
void pipeline_heard(struct commit_pipeline *s, const char *node);
void pipeline_check_nodes(struct commit_pipeline *s, int64_t mono_ms, int64_t timeout_ms, int64_t now_ms);

int pipeline_snapshot(struct commit_pipeline *s);  // now and here, whatever the count
// What the hook began: the bytes of a file, as for store_snapshot_file.
int pipeline_snapshot_made(struct commit_pipeline *s, uint64_t seq, int fd, size_t at, size_t len);
void pipeline_snapshot_failed(struct commit_pipeline *s);  // tried again after as many events as between two
struct store *pipeline_store(struct commit_pipeline *s);
struct core *pipeline_core(struct commit_pipeline *s);
