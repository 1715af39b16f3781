// What a controller keeps beside a database that it shares: which one it is, and how far its journal went. A database
// that was emptied, or another one by mistake, is noticed by it. The commands that work on a state folder find the
// database there.
#pragma once
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"

struct database_seen {
    const char *place;  // its address
    uint64_t seq;       // the newest record
};

// -ENOENT: none was seen.
int controller_database_seen(const char *state, struct arena *a, struct database_seen *out);
int controller_database_note(const char *state, const struct database_seen *seen, struct error *e);
// What was read from the database goes up to `seq`: an error where more was there once and nothing is now.
int controller_database_check(const char *state, uint64_t seq, struct error *e);
