// Long lists of jobs, written in slices between other work: a line with the names of the fields, a line
// per job, and a last line that says how many there were, or what went wrong. Whoever does not see that
// line has not seen everything.
#pragma once
#include "controller/listing.h"

#define LIST_STREAM_TYPE "application/x-ndjson"

enum {
    LIST_SLICE_US = 1500,              // then others have their turn
    LIST_BACKLOG_BYTES = 1 << 20,      // unsent; then the list waits for its reader
    LIST_BACKLOG_MANY_BYTES = 64 << 10,  // the same when there are more lists than
    LIST_STREAMS_FEW = 32,
};

// Answers the request, now or later.
void list_stream_begin(struct api_call *call);
void list_stream_head(struct listing *l);
void list_stream_tail(struct listing *l, const struct error *e);  // `e` NULL: complete

void list_streams_init(struct controller *c);
void list_streams_done(struct controller *c);
