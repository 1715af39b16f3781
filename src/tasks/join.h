// The process of a pool on a node other than the head's: it does for its workers what the head says, reports what they
// do, and moves values. It knows nothing of tasks.
#pragma once
#include "tasks/pool.h"
#include "workers.h"

enum { JOIN_AGAIN = 75 };  // exit code: the head was lost, or this node for it; the template starts us again

// `members`: the membership file of the job. Returns the exit code.
int join_run(struct workers *ws, const struct tasks_options *o, const char *gpus, const char *members);
