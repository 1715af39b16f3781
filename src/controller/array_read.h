// Looks at all elements of an array, the live ones and then those of history, in slices.
#pragma once
#include "list_names.h"

// The first member of the question.
struct array_read {
    struct sliced_read read;
    uint64_t array;
    // Each of them until it returns false: that is enough.
    bool (*live)(struct array_read *a, const struct job_view *v);
    bool (*ended)(struct array_read *a, const struct store_history *row);
    void (*answer)(struct array_read *a, const struct error *e);  // e->code 0: all were looked at
    void (*done)(struct array_read *a);                           // before it is freed; NULL: nothing to do
    enum { ARRAY_LIVE, ARRAY_COMMIT, ARRAY_ENDED } phase;
    uint64_t after;
    struct seen_ids seen;
    bool cut, enough;
    struct error error;
};

void array_read_begin(struct array_read *a, struct api_call *call);  // takes it
