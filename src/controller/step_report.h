// What is told about the end of a step on one node: which tasks ended how. Pure.
#pragma once
#include "model/event.h"
#include "session_messages.h"

void controller_step_report(const struct step_end *n, const struct step_part *part, struct arena *a,
                            struct answer_step_node *out);
