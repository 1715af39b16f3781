// The steps of an agent's attempts, decided without I/O as in logic.h. Rules: a step is started at most
// once; its end is reported again with every hello until it is acknowledged; a step that is to be killed
// is killed, also if it starts only later. Steps that were acknowledged are remembered as long as their
// attempt, so that a late copy of their start does nothing. After a restore of the controller's state a number may come
// again: a step is known by its epoch too.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "model/message.h"

enum { AGENT_STEP_KILL_RETRY_MS = 500 };

enum agent_step_phase { AGENT_STEP_UNKNOWN, AGENT_STEP_RUNNING, AGENT_STEP_ENDED, AGENT_STEP_FORGOTTEN };

// Where it comes from, for a controller whose state is an older copy (message_exec).
struct agent_step_origin {
    uint64_t epoch, seq;
    struct bytes data;
};

struct agent_steps;
struct agent_steps *agent_steps_new(void);
struct agent_steps *agent_steps_free(struct agent_steps *s);
// True: it is new and must be started now.
bool agent_steps_start(struct agent_steps *s, const struct message_exec *m);
void agent_steps_recover(struct agent_steps *s, uint64_t id, uint32_t attempt, uint32_t step,
                         const struct agent_step_origin *origin,
                         const struct step_end *end);  // NULL: it runs
// Fills in what is known of the step that `out` names. Pointers live until the step changes.
void agent_steps_describe(const struct agent_steps *s, struct message_step_known *out);
// Another step has that number here, which is not over or not acknowledged.
bool agent_steps_taken(const struct agent_steps *s, const struct message_exec *m);
enum agent_step_phase agent_steps_phase(const struct agent_steps *s, uint64_t id, uint32_t attempt, uint32_t step);
// The end, until it is acknowledged; NULL: it runs, or is not known.
const struct step_end *agent_steps_end(const struct agent_steps *s, uint64_t id, uint32_t attempt, uint32_t step);
bool agent_steps_ended(struct agent_steps *s, const struct step_end *end);  // true: that is news
// Where the step's MPI helper here listens, or that it asks; NULL: it has found the others.
// Returns what the controller is to be told; NULL: nothing.
const struct message_step_hub *agent_steps_listens(struct agent_steps *s, uint64_t id, uint32_t attempt,
                                                   uint32_t step, const struct message_step_hub *m);
// Calls for each running step that still looks for its other nodes.
typedef void agent_step_hub_fn(void *ctx, const struct message_step_hub *m);
void agent_steps_each_listening(const struct agent_steps *s, agent_step_hub_fn *fn, void *ctx);
bool agent_steps_acked(struct agent_steps *s, const struct message_step *m);  // true: remove its files
void agent_steps_kill(struct agent_steps *s, const struct message_kill *m, int64_t now_ms);
// The next kill that is due, to be sent to the shepherd; false: none.
bool agent_steps_due(struct agent_steps *s, int64_t now_ms, struct message_kill *out);
uint32_t agent_steps_last(const struct agent_steps *s, uint64_t id,
                          uint32_t attempt);  // highest number; 0: none
void agent_steps_list(const struct agent_steps *s, struct attempt *out, struct arena *a);  // of out->id, out->attempt
void agent_steps_drop(struct agent_steps *s, uint64_t id, uint32_t attempt);  // the attempt is forgotten
typedef void agent_step_fn(void *ctx, uint64_t id, uint32_t attempt, uint32_t step);
void agent_steps_each_running(const struct agent_steps *s, agent_step_fn *fn, void *ctx);
