// Long lists of jobs, written in slices between other work, in one of three forms: lines (the names of
// the fields, a line per job, and a last one that says how many there were, or what went wrong;
// whoever does not see that line has not seen everything), one JSON document, or a trace for the
// simulator. The last two are cut off, connection and all, when something goes wrong.
#pragma once
#include "listing.h"

#define LIST_STREAM_TYPE "application/x-ndjson"

enum {
    LIST_PAGE_ROWS = 1000,  // of finished jobs, unless asked for more
};

enum list_form { LIST_LINES, LIST_DOCUMENT, LIST_TRACE };

// Answers the request, now or later.
void listing_stream_begin(struct api_call *call, enum list_form form);

// api_trace.c
void api_trace_head(struct listing *l);
int api_trace_row(struct listing *l, const struct store_history *row);
