// Seats of licenses that a job asks for: "matlab:2,ansys", cluster-wide and each named once. "=" is read as ":".
#pragma once
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"

enum { LICENSES_PER_JOB = 16, LICENSE_SEATS_MAX = 1000000 };

struct license_ask {
    const char *name;
    uint32_t count;  // at least 1
};
struct license_asks {
    struct license_ask at[LICENSES_PER_JOB];
    uint32_t len;
};

// Names land in the arena. NULL and "" ask for none.
int license_asks_parse(const char *text, struct arena *a, struct license_asks *out, struct error *e);
// In the one form that is kept: "matlab:2,ansys:1".
const char *license_asks_text(const struct license_asks *asks, struct arena *a);
