// What an agent does, decided without I/O: what is in its spool, what the controller says, and what
// its processes do come in; actions come out, to be carried out in order right away. The daemon
// runs it against real processes, the fault simulator against pretended ones.
//
// Rules it keeps: an attempt is launched at most once, whatever is repeated or reordered; the end
// of an attempt is reported again with every hello until it is acknowledged, and only then is its
// folder removed; an attempt that is to be killed is killed, also if it starts only later; what else the controller
// wants of an attempt (suspended or not, its time limit) is kept until its shepherd has been told.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "agent/logic/steps.h"
#include "base/arena.h"
#include "base/vec.h"
#include "model/message.h"

enum {
    AGENT_FORGOTTEN_MAX = 65536,  // attempts remembered after they were acknowledged
    AGENT_SECRETS_MAX = 4096,     // launches whose secrets have come and that have not come themselves
    AGENT_KILL_RETRY_MS = 200,
    AGENT_HUB_RETRY_MS = 5000,  // where the first node of an MPI step is, is asked again
    AGENT_HEARTBEATS_MISSED = 3,  // then the connection counts as dead
    AGENT_WELCOME_WAIT_S = 20,    // the same for one that was never welcomed
};

enum agent_action_type {
    AGENT_SEND,    // message to the controller
    AGENT_LAUNCH,  // make the folder and hand it to a shepherd; answer agent_logic_launched
    AGENT_KILL,    // end the attempt (or step); answer agent_logic_kill_sent when it was told
    AGENT_SIGNAL,
    AGENT_TIME_LIMIT,  // `time_limit_s` from its start on; answer agent_logic_told, else it is asked again
    AGENT_SUSPEND,     // or resume; the same
    AGENT_MEMBERS,  // write the membership of the elastic job that the message carries, for this worker of it
    AGENT_REMOVE,   // the attempt's folder
    AGENT_STEP,  // start the step that the message describes; answer agent_logic_step_ended when it has ended
    AGENT_STEP_REMOVE,  // the step's files
    AGENT_STEP_HUB,     // tell the step's MPI helper where the first node's is, as the message says
    AGENT_STREAM,       // message about streams, logs, exec and steps, for those who serve them
    AGENT_DISCONNECT,   // the controller is silent: dial anew
};

// Pointers live until the next call into the logic.
struct agent_action {
    enum agent_action_type type;
    uint64_t id;
    uint32_t attempt, step;
    struct message message;               // send, stream, members
    const struct message_launch *launch;  // launch
    const struct message_secrets *secrets;  // launch: what came for it; NULL: none
    const void *origin;                   // launch: to be kept with it, and given to agent_logic_recover_origin
    size_t origin_len;
    const uint32_t *cpus;                 // launch: to be bound to; none: not bound
    uint32_t ncpus;
    enum end_cause cause;  // kill
    uint32_t signal, grace_ms;
    const char *checkpoint;  // kill: to be run before; NULL: none
    bool batch_only, steps_only, resume;
    uint32_t time_limit_s;
};

struct agent_actions {
    VEC(struct agent_action) list;
    struct arena arena;
};

struct agent_logic;
// `cpus`: ids 0 … cpus-1 are handed out; 0: jobs are not bound.
struct agent_logic *agent_logic_new(uint32_t cpus);
struct agent_logic *agent_logic_free(struct agent_logic *l);
const struct agent_actions *agent_logic_actions(const struct agent_logic *l);
void agent_logic_clear(struct agent_logic *l);  // after the actions were carried out

// --- before the first connection: what the spool holds ---
// Ended: `end` is given. Running: pid and start. Not started yet: start_ms 0.
void agent_logic_recover(struct agent_logic *l, uint64_t id, uint32_t attempt, int64_t start_ms,
                         uint32_t pid, const uint32_t *cpus, uint32_t ncpus,
                         const struct message_ended *end);

void agent_logic_recover_origin(struct agent_logic *l, uint64_t id, uint32_t attempt, const void *origin, size_t len);

// How far the journal had come when a controller last said so. Kept over restarts of the agent, at the latest when the
// folder of an attempt is removed: with it goes the proof that the attempt ran.
// The term of a leader, which precedes what it sends. False: another has led since, and nothing of this one counts. A
// new one must be on disk before anything is done in its name: agent_logic_newest_term.
bool agent_logic_term(struct agent_logic *l, uint64_t term);
uint64_t agent_logic_newest_term(const struct agent_logic *l);
struct journal_position agent_logic_seen(const struct agent_logic *l);
void agent_logic_recover_seen(struct agent_logic *l, const struct journal_position *seen);

// --- connection ---
void agent_logic_connected(struct agent_logic *l, const struct node *node, int64_t now_ms);
void agent_logic_disconnected(struct agent_logic *l);
void agent_logic_message(struct agent_logic *l, const struct message *m, int64_t now_ms);
void agent_logic_tick(struct agent_logic *l, int64_t now_ms);
uint32_t agent_logic_usage_every_s(const struct agent_logic *l);  // 0 before the welcome
// What the node holds of its users' images, all of it: told at every welcome and when it has changed.
void agent_logic_images(struct agent_logic *l, const struct message_node_images *m);
bool agent_logic_welcomed(const struct agent_logic *l);

// --- what became of attempts ---
void agent_logic_started(struct agent_logic *l, uint64_t id, uint32_t attempt, uint32_t pid,
                         int64_t start_ms);
// What its health check says now; NULL: no reason. Repeats do no harm.
void agent_logic_health(struct agent_logic *l, uint64_t id, uint32_t attempt, enum job_health health,
                        const char *reason);
// Also for launches that failed before there was a process. Repeats do no harm.
void agent_logic_ended(struct agent_logic *l, const struct message_ended *end);
// The agent's own decision: the attempt is killed at once, and its end carries `cause` and `reason`.
// One that is being ended already keeps the cause of that, but not its grace.
void agent_logic_stop(struct agent_logic *l, uint64_t id, uint32_t attempt, enum end_cause cause,
                      const char *reason, int64_t now_ms);
void agent_logic_kill_sent(struct agent_logic *l, uint64_t id, uint32_t attempt);
void agent_logic_told(struct agent_logic *l, uint64_t id, uint32_t attempt, enum agent_action_type what);
// A membership could not be written: it is tried again, unless a newer one comes.
enum { AGENT_MEMBERS_RETRY_MS = 5000 };
void agent_logic_members_failed(struct agent_logic *l, uint64_t id, uint32_t attempt,
                                const struct message_workers *m, int64_t now_ms);

// Of a step on this node, also of one that could not be started. Repeats do no harm.
void agent_logic_step_ended(struct agent_logic *l, const struct step_end *end);
void agent_logic_step_recover(struct agent_logic *l, uint64_t id, uint32_t attempt, uint32_t step,
                              const struct agent_step_origin *origin,
                              const struct step_end *end);  // before the first connection; NULL: it runs

// The step's MPI helper here listens, or asks where the first node's is; NULL: the nodes have found each other.
void agent_logic_step_listens(struct agent_logic *l, uint64_t id, uint32_t attempt, uint32_t step,
                              const struct message_step_hub *m);

// --- questions ---
const struct agent_steps *agent_logic_steps(const struct agent_logic *l);
enum agent_phase { AGENT_UNKNOWN, AGENT_LAUNCHING, AGENT_RUNNING, AGENT_ENDED };
enum agent_phase agent_logic_phase(const struct agent_logic *l, uint64_t id, uint32_t attempt);
// Why this node could not launch it; NULL: it could, or the end has been acknowledged.
const char *agent_logic_launch_failure(const struct agent_logic *l, uint64_t id, uint32_t attempt);
// The attempt of these numbers here is not the one of this epoch: after a restore numbers come again.
bool agent_logic_is_other(const struct agent_logic *l, uint64_t id, uint32_t attempt, uint64_t epoch);
// Acknowledged and forgotten, or known never to run: not merely unheard of. Epoch 0: whichever had the numbers.
bool agent_logic_forgotten(const struct agent_logic *l, uint64_t id, uint32_t attempt, uint64_t epoch);
typedef void agent_logic_fn(void *ctx, uint64_t id, uint32_t attempt, enum agent_phase phase);
void agent_logic_each(const struct agent_logic *l, agent_logic_fn *fn, void *ctx);
