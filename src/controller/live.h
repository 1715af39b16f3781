// The live feed: GET /v1/live sends what changes to many viewers (live.c); parts that all of them share, such as the
// nodes, are written once for all (overview.c).
#pragma once
#include "controller.h"
#include "listing.h"

enum {
    LIVE_RING = 16384,  // changes that a viewer can be behind
    LIVE_PRELOAD_EVENTS =
        4096,  // of the journal, so that viewers can go on after a restart of the controller
    LIVE_VIEWERS_MAX = 4096,
    LIVE_USER_VIEWERS_MAX = 64,       // of them, one user's who is no administrator
    LIVE_INTERVAL_MS = 250,           // between two events of a viewer, at least,
    LIVE_VIEWERS_PER_S = 1000,        // and in all no more than so many are written to in a second
    LIVE_SLICE_VIEWERS = 64,          // in one turn of the loop,
    LIVE_SLICE_US = 5000,             // which ends after this time however few were served,
    LIVE_SLICE_PAUSE_MS = 10,         // and goes on after this one;
    LIVE_VIEWER_US = 1000,            // a viewer with much to look at goes on in its next turn
    LIVE_BACKLOG_BYTES = 64 << 10,    // unsent to a viewer: until it has read them it gets nothing more
    LIVE_BYTES_PER_S = 64 << 20,      // written to all viewers together, about
    LIVE_EVENT_BYTES_MIN = 16 << 10,  // of one event, whatever the number of viewers
    LIVE_EVENT_BYTES_MAX = 256 << 10,
    LIVE_PARTS_MS = 2000,        // between two looks at nodes, shares and status
    LIVE_PARTS_MOST_MS = 30000,  // the same for a large cluster with many viewers
    LIVE_QUIET_MS = 15000,       // then a comment shows that the connection works
};

enum live_topic { LIVE_JOBS = 1, LIVE_NODES = 2, LIVE_SHARES = 4, LIVE_STATUS = 8, LIVE_ALL = 15 };

// What all viewers of a topic get, as an event ready to be sent.
struct feed_part {
    struct buf event, content;  // content: without the time, to see whether it has changed
    uint64_t version;           // 0: there is none yet
    int64_t looked_ms;
};

struct feed_parts {
    struct feed_part nodes, shares, status;
};

// Looks at them again if it is time. `viewers`: how many get them.
void feed_parts_look(struct controller *c, struct feed_parts *p, uint32_t viewers, int64_t mono_ms);
void feed_parts_done(struct feed_parts *p);

void live_open(struct controller *c);  // after the state is loaded
void live_close(struct controller *c);
void live_job_changed(struct controller *c, uint64_t id);
