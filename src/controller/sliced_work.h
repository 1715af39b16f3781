// Requests that act on many jobs are carried out in slices, one slice in a turn of the loop, so that others are
// answered in between; the answer leaves when all of it is committed. A client that disconnects does not undo or stop
// it. One request of a user is carried out at a time, the others wait behind it; users take turns. No slice begins
// while the ones before it are not committed: what others submit would have to wait for them.
#pragma once
#include "controller.h"

enum {
    WORK_LOOK = 1,         // units of work, about a microsecond each: looking at a job,
    WORK_ACT = 20,         // changing or submitting one,
    WORK_BYTES = 64,       // and so many bytes of the journal
    WORK_SLICE = 10000,    // of one turn,
    WORK_SLICE_US = 10000, // which ends after this time however few units were done
    WORK_AT_ONCE = 2000,   // done when the request arrives, before other requests of the same turn
};

// The first member of what is to be done.
struct sliced_work {
    struct controller *controller;
    struct net_request *req;
    struct actor actor;
    // Adds the units of work to *spent and returns when that reaches `most` or controller_work_late says so; true: it
    // is complete and answered.
    bool (*run)(struct sliced_work *w, uint32_t most, uint32_t *spent);
    void (*stopped)(const struct sliced_work *w, struct error *e);  // says how far it came when the controller stops
    void (*free)(struct sliced_work *w);
};

void controller_work_begin(struct sliced_work *w);  // takes it; answers with an error when too many wait
bool controller_work_late(const struct controller *c);
