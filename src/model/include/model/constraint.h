// Features that nodes must have, as users write them: names joined by & or , (all) and | (any), with parentheses.
// | joins more closely than &: "a&b|c" is a and one of b and c.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"

enum { CONSTRAINT_NAMES_MAX = 2048, CONSTRAINT_DEPTH_MAX = 16, CONSTRAINT_TEXT_MAX = 4096 };

struct constraint {
    const char **terms;  // all must hold; each is a name or alternatives "b|c"
    uint32_t len;
    bool alike;  // brackets: all nodes of the job must have the same one of the alternatives
};
// An empty text has no terms. -EINVAL with the reason.
int constraint_parse(const char *text, struct arena *a, struct constraint *out, struct error *e);
