// A stream of a step's output in an agent: from which position, when there is nothing more to come, what is said at the
// end. Without files and connections: stream_step.c runs it on the spool folder, the fault simulator on its own.
#pragma once
#include "agent/logic/logic.h"
#include "launch/relay_flow.h"
#include "model/message.h"

struct step_flow_host {
    // The step's page, once its files are there, and the epoch of the step that they are of (0: not known). NULL, and a
    // negative errno: -ENOENT, there are none (yet).
    struct relay_page *(*open)(void *ctx, uint64_t *epoch, int *error);
    ssize_t (*read)(void *ctx, uint64_t at, void *data, size_t size);  // of the output
    uint64_t (*room)(void *ctx);                                       // bytes that may be sent now
    void (*spend)(void *ctx, uint64_t bytes);                          // so many of them were
    void (*send)(void *ctx, enum message_type type, struct message_stream *m);
    void (*sent)(void *ctx);  // all that can be sent now was
    void (*end)(void *ctx);   // the other side was told; the stream is not used any more
};

struct step_flow {
    const struct step_flow_host *host;
    void *ctx;
    uint64_t stream, id, epoch;  // epoch: of the step that is asked for; 0: whichever has the number
    uint32_t attempt, step;
    uint64_t at;  // output before this was sent
    bool tail;    // begins at the end of what is there
    int64_t begun_ms;
    struct relay_page *page;  // NULL: its files are not there yet
};

void agent_step_flow_begin(struct step_flow *f, const struct message_step *m, int64_t now_ms);
void agent_step_flow_pump(struct step_flow *f, const struct agent_logic *l, int64_t now_ms);
// Whether the word of a client that it has everything is about this step, of this epoch on the node, and frees it.
bool agent_step_flow_received(const struct agent_logic *l, const struct message_step *m, uint64_t epoch);
