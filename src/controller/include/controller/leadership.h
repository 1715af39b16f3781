// Who leads, as a controller sees it that shares its database: following the journal, taking over, and knowing when it
// must not say anything any more. Reads and claims through the store, decides, and does nothing else: the daemon
// (standby.c) and the fault simulator do the rest.
#pragma once
#include "controller/commit_pipeline.h"

struct leadership {
    bool read;                 // the journal was read, from its newest snapshot on
    bool claims;               // it takes the lease when nobody has it
    struct store_lease lease;  // as last looked at
};

enum leadership_next {
    LEADERSHIP_FOLLOW,  // again soon; with an error: the database does not answer
    LEADERSHIP_WAIT,    // a leader: nothing is said until this is over, look again soon
    LEADERSHIP_LEAD,
    LEADERSHIP_ANEW,  // what it knows counts for nothing: it starts from the beginning, as a follower
    LEADERSHIP_FAIL,  // the state cannot be used
};

// One that does not lead, about twenty times a second. LEADERSHIP_LEAD: it has the lease and everything that was
// committed before.
enum leadership_next leadership_follow(struct leadership *l, struct commit_pipeline *pipeline, bool may_claim,
                                       struct error *e);
// One that leads, before it says anything to anybody. A lease that has ended by our clock may still be ours, when this
// machine or the database was slow and nobody else came: the store finds out, for which it has `most_ms`.
enum leadership_next leadership_look(struct leadership *l, struct store *store, int64_t waited_ms,
                                     int64_t most_ms);
