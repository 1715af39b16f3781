// Jobs named by name: "train" instead of 12.
#pragma once
#include "cli/command/command.h"

extern const struct option_table job_pick_options;  // --project, for verbs that mean one job

// Replaces arguments that are not ids by the id of the job they name. `live`: only jobs that have not ended are meant;
// otherwise, when none is live, the newest that has ended. Prints what is wrong; 0 or the exit status.
int job_resolve_arguments(struct cli *c, int count, bool live);
int job_resolve_option(struct cli *c, const char *option);  // the same for the value of an option
// A dependency with the ids of the jobs that it names. NULL: c->error says why not.
const char *job_resolve_dependency(struct cli *c, const char *text);
