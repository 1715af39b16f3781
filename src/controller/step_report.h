// What is told about the end of a step on one node: which tasks ended how. Pure.
#pragma once
#include "base/json.h"
#include "model/event.h"

// {"node":…,"tasks":"0-3","failed":[{"tasks":"0,2-3","exit_code":3,"exit_signal":0}],…}
void controller_step_end_json(const struct step_end *n, const struct step_part *part, struct json_writer *w);
