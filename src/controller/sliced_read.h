// Questions whose answers may be long (lists, tables, counts, events) are answered in slices, between other work. In
// each turn of the loop all of them together get READ_SLICE_US and READ_SLICE_ROWS, users in turn: who asks many
// questions waits longer for his own answers, not others for theirs. Slices run behind the flush of the turn: jobs that
// have ended are in the outbox of the commit pipeline no more.
#pragma once
#include "controller.h"

enum {
    READ_SLICE_US = 2000,    // of a turn, of all questions together;
    READ_SLICE_ROWS = 4096,  // looked at in it at most
    READS_MAX = 4096,
    READS_USER_MAX = 64,  // of one kind, of one user who is no administrator
};

struct api_call;
// The first member of a question.
struct sliced_read {
    struct controller *controller;
    struct net_request *req;
    // Goes on until sliced_read_over says so, or it has to wait; true: it is complete and answered.
    bool (*run)(struct sliced_read *r);
    void (*free)(struct sliced_read *r);
    bool (*has_news)(const struct sliced_read *r);  // NULL: always
    const char *stream_type;  // of an answer that is sent in pieces; NULL: it is one piece
    bool slow_rows;           // the clock is looked at after each row
    bool waits;               // until its reader has read
    bool committing;          // until sliced_read_committed is called for it
    bool gone;                // its reader has left
    struct read_user *user;
    uint64_t served;  // the last slice it had
};

// Takes it, and answers with an error when its user has too many of this kind.
void sliced_read_begin(struct sliced_read *r, struct api_call *call);
// After each look at `rows` rows: whether the slice is over.
bool sliced_read_over(struct sliced_read *r, uint32_t rows);
// Waits for the commit of what has happened so far: then jobs that have ended are in history. False: there is nothing
// to wait for.
bool sliced_read_await_commit(struct sliced_read *r);
// Sends what there is and empties it; then it may have to wait for its reader.
void sliced_read_send(struct sliced_read *r, struct buf *out);
