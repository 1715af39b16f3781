// The past, from the journal: the state as it was at a time, and the recorded decisions made again.
#pragma once
#include "controller/controller.h"

enum { PAST_EVENTS_MAX = 300000, PAST_DIFFERENCES_MAX = 100 };

// A core as it was at `at_ms`; the caller frees it. -EFBIG when the journal is too long to play back
// while others wait, -ENODATA when its beginning is no longer kept.
int past_core(struct controller *c, int64_t at_ms, struct core **out, struct error *e);

struct past_difference {
    uint64_t seq;
    int64_t at_ms;
    char recorded[120], now[120];
};

struct past_report {
    uint64_t events, passes, starts, preemptions;
    VEC(struct past_difference) differences;
    uint64_t different;  // passes
};
int past_compare(struct controller *c, struct past_report *out, struct error *e);
