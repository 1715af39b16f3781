// One run: a plan in, a verdict out. The same plan always gives the same hash.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "plan.h"

struct verdict {
    bool failed;
    char text[400];
    uint64_t hash, steps, messages, jobs, starts, records, compares, asserts;
    int64_t virtual_ms;
};

// `keep`: which items are carried out, NULL: all. `timeline`: where it is told, NULL: nowhere.
struct verdict run_plan(const struct plan *p, const bool *keep, FILE *timeline);
