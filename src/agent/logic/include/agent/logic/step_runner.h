// Starts steps inside running attempts, finds out how they ended, and runs the command that saves a job's work before
// it is preempted: decided here without I/O. What has to be done on the machine is done by a host: the daemon's works
// on the spool folder and on shepherds, the fault simulator's on pretended ones.
//
// Rules: what a step runs lies in the attempt's folder before the shepherd is asked to start it, so a restarted agent
// asks again; the shepherd starts it once. What the folder says is the truth, a hint only says where to look. The
// checkpoint command is a step with a number of its own: it runs once and to its end or to the end of the grace, also
// over restarts of the agent.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "agent/logic/logic.h"
#include "base/error.h"

enum {
    AGENT_STEP_PATIENCE_MS = 3000,   // how long a shepherd may take to listen
    AGENT_CHECKPOINTS_MAX = 1024,    // remembered; older ones have long ended
    AGENT_STEPS_BELOW = 0x40000000,  // steps have smaller numbers, commands and the checkpoint larger ones
};

enum agent_step_state { AGENT_STEP_ABSENT, AGENT_STEP_CREATED, AGENT_STEP_STARTED, AGENT_STEP_OVER };

// What the attempt's folder says of a step.
struct agent_step_look {
    enum agent_step_state state;
    int64_t started_mono_ms;
    struct agent_step_origin origin;
    const struct message_step_hub
        *listens;         // of an MPI step that looks for its other nodes; NULL: not, or any more
    struct step_end end;  // OVER; what it points at belongs to the arena
};

struct agent_step_host {
    // Puts what the step runs into the attempt's folder. 0; -EEXIST: it is there already; -EAGAIN: the attempt itself
    // is still being put there; else it cannot be run.
    int (*create)(void *ctx, const struct message_exec *m, struct error *e);
    // Asks the shepherd to start it. 0, -EEXIST, -EALREADY, -ETIMEDOUT: it was or will be started; -ENOENT,
    // -ECONNREFUSED, -EAGAIN: the shepherd does not listen (yet); -ESHUTDOWN: the attempt is ending.
    int (*start)(void *ctx, uint64_t id, uint32_t attempt, uint32_t step);
    int (*look)(void *ctx, uint64_t id, uint32_t attempt, uint32_t step, struct arena *a,
                struct agent_step_look *out);
    void (*ended)(void *ctx, const struct step_end *end);  // the logic was told; for its streams
    void (*warn)(void *ctx, uint64_t id, const char *text);
    uint32_t checkpoint_step;  // its number
};

struct agent_step_runner;
struct agent_step_runner *agent_step_runner_new(struct agent_logic *l, const struct agent_step_host *host,
                                                void *ctx);
struct agent_step_runner *agent_step_runner_free(struct agent_step_runner *r);

void agent_step_runner_start(struct agent_step_runner *r, const struct message_exec *m, int64_t now_ms);
void agent_step_runner_retry(struct agent_step_runner *r,
                             int64_t now_ms);                     // steps whose shepherd did not listen
bool agent_step_runner_waits(const struct agent_step_runner *r);  // there are such
void agent_step_runner_check(struct agent_step_runner *r, uint64_t id, uint32_t attempt,
                             uint32_t step);               // has it ended?
void agent_step_runner_look(struct agent_step_runner *r);  // the same for all
void agent_step_runner_attempt_ended(struct agent_step_runner *r, uint64_t id,
                                     uint32_t attempt);  // its steps have too
// A step that a starting agent finds in the folder of an attempt that has not ended.
void agent_step_runner_recover(struct agent_step_runner *r, uint64_t id, uint32_t attempt, uint32_t step,
                               const struct agent_step_look *found, int64_t now_ms);
// True while the kill has to wait for the checkpoint command; the logic asks again and again meanwhile.
bool agent_step_runner_checkpoint(struct agent_step_runner *r, const struct agent_action *kill,
                                  int64_t now_ms);
