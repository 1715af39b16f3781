// Time travel: queue, nodes and shares as they were. Kept snapshots (past_store.c) and the journal after them are read
// by a process of its own, which writes the answer; the controller's loop only starts it.
#pragma once
#include "controller.h"
#include "store/store.h"

enum {
    PAST_SNAPSHOTS_MAX = 200,
    PAST_BYTES_MAX = 1 << 30,  // of all of them
    PAST_ROWS_MAX = 2000,      // jobs of one answer
    PAST_VIEWS_MAX = 4,        // processes at a time,
    PAST_USER_VIEWS_MAX = 2,   // of them, one user's
    PAST_VIEW_MS = 30000,      // then it is ended
    PAST_ANSWER_MAX = 64 << 20,
};

// Keeps a snapshot for later; called by the process that makes them. at_ms: of the event `seq`.
void past_keep(const char *state, uint64_t seq, int64_t at_ms, const void *data, size_t len);
// Brings the core to the state of that time, from the journal at `place` and the snapshots kept in the folder `state`.
// -ENODATA: that long ago nothing is kept.
struct core;
int past_load(const char *place, const char *state, int64_t time_ms, struct core *core, struct error *e);

// How far one can look back; 0: not at all.
int64_t past_oldest_ms(const char *place, const char *state);

// Answers the request with what a process of this program writes: args as for exec, NULL at the end. It is ended after
// limit_ms. A process counts as one of those that look back.
struct api_call;
void past_process_answer(struct api_call *call, char *const *args, unsigned limit_ms);
// For such a process: writes its answer.
int past_process_write(const struct buf *answer);

void past_views_stop(struct controller *c);
void past_views_done(struct controller *c);
