// What one client has of a step that was started: which step that is, also after a restart and after a restore of an
// older state; its streams; its end. Pure: the daemon's sessions and the fault simulator run the same code.
//
// A step is known by its job, attempt, number and epoch. A client that comes back names the epoch it was told: a step
// of the same key or number that is not the same step is not shown to it.
#pragma once
#include "follow.h"
#include "session_messages.h"
#include "store/store.h"

struct step_watch_client {
    void (*say)(void *ctx, const struct schema *schema, const void *value);
    ssize_t (*send)(void *ctx, const char *data, size_t len);  // as follow_client
    void (*pause)(void *ctx, bool on);
    void (*failed)(void *ctx, const struct error *e);  // the watch may be freed inside
    void (*ended)(void *ctx, const struct event_step *ended);
    // Once, when all output was sent: the last message; NULL: the job has ended, and how the step ended is not known.
    void (*complete)(void *ctx, const char *final);
    uint64_t (*committed_seq)(void *ctx);  // how far the journal is on disk
};

struct step_watch_options {
    struct core *core;
    struct store *store;
    struct stream_table *streams;
    const struct actor *actor;  // lives as long
    const struct step_watch_client *client;
    void *ctx;
    uint64_t job;
    bool keyed;     // the client keeps positions
    bool ranks;     // one that does not is told ranks, not nodes
    bool watching;  // looks on at another client's step
};

// What a client that asks again says.
struct step_watch_question {
    const char *key;
    bool resume;     // it was here before
    uint64_t epoch;  // of the step that it was told of; 0: it was told of none
    uint32_t attempt;  // of the same; 0: it does not say
    const uint64_t *from;
    uint32_t from_count;
    bool settled;  // everything is committed that was decided when this was first asked
    int64_t up_ms;  // how long this controller has been running
};
// After a start of the controller: its state may be an older copy, and nodes report what they run within this time.
enum { STEP_REPORT_WAIT_MS = 60 * 1000 };

struct step_watch;
struct step_watch *controller_step_watch_new(const struct step_watch_options *o);
struct step_watch *controller_step_watch_free(struct step_watch *w);
struct controller_follow *controller_step_watch_follow(struct step_watch *w);

// 1: the step that was made for this question is shown from its positions on; 0: none was made; -EAGAIN: its start or
// end may not be committed yet, to be asked again, settled, when it is; -EINPROGRESS: its node may yet report it, to be
// asked again in a second; otherwise negative: the step that the client means is not known any more, and it is told so.
int controller_step_watch_resume(struct step_watch *w, const struct step_watch_question *q, struct error *e);
int controller_step_watch_attach(struct step_watch *w, const struct event_step *started, const uint64_t *from,
                                 uint32_t from_count, struct error *e);
bool controller_step_watch_attached(const struct step_watch *w);  // and not complete
bool controller_step_watch_knows_end(const struct step_watch *w);
bool controller_step_watch_is_ending(const struct step_watch *w);  // to be looked at now and then
uint32_t controller_step_watch_number(const struct step_watch *w);  // 0: not attached
// It may have ended, or its nodes may be given up: the client is told when there is something.
void controller_step_watch_look(struct step_watch *w);
void controller_step_watch_node_up(struct step_watch *w, const char *node);
void controller_step_watch_renew(struct step_watch *w);     // its client is there
void controller_step_watch_received(struct step_watch *w);  // it has everything: the files on the nodes may go

// The number under which its nodes know the job: another one where a restored state had given the job's away.
uint64_t controller_agent_job(const struct core *core, struct store *store, uint64_t job, uint32_t attempt);
