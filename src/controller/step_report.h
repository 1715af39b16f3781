// What is told about the end of a step on one node: which tasks ended how. Pure.
#pragma once
#include <stdint.h>

#include "base/json.h"

struct step_end {
    const char *node, *error;
    int32_t exit_code;
    uint32_t exit_signal, task;  // of the worst task, and its rank
    const uint32_t *ranks;       // of its tasks on this node
    uint32_t tasks;
    const uint32_t *exits;       // wait statuses in order of rank; may be fewer than tasks
    uint32_t exit_count;
};

// {"node":…,"tasks":"0-3","failed":[{"tasks":"0,2-3","exit_code":3,"exit_signal":0}],…}
void step_end_json(const struct step_end *n, struct json_writer *w);
