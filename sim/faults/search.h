// Many runs, in processes of their own: a run that aborts is a failure like any other.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "run.h"
#include "seams.h"

struct search {
    uint64_t first, last;      // seeds, both included
    uint32_t workers;
    double seconds;            // stop then; 0: when all are done
    enum planted planted;
    bool go_on;  // name every seed that fails instead of stopping at the first; a worker that crashes
                 // is replaced
    bool stoppable;            // SIGINT and SIGTERM end it, and what was done is counted
};

enum { SEARCH_FIRST_MAX = 20 };

struct search_found {
    bool failed;
    uint64_t failures;  // with go_on; else 0 or 1
    uint64_t seed, runs, steps, messages, jobs, starts, records, compares, asserts;
    int64_t virtual_ms;
    double seconds;
    char text[400];
    uint64_t first[SEARCH_FIRST_MAX];  // seeds that failed, the smallest ones, in order
};

struct search_found search_run(const struct search *s);
// One run in a process of its own; `path` (may be NULL) gets the timeline.
struct verdict trial(uint64_t seed, const bool *keep, enum planted planted, const char *path);
// Which items of a failing seed matter: the shortest beginning that fails, thinned out. Returns how
// many are left of `count`.
uint32_t shrink(uint64_t seed, enum planted planted, bool *keep, uint32_t count, double seconds);
