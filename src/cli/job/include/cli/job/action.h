// Acting on jobs: by id, or by filters. Shared by cancel, hold, release, requeue, suspend, continue.
#pragma once
#include "base/json.h"
#include "cli/command/command.h"

extern const struct option_table job_filter_options;
const char *job_states_text(struct arena *a,
                            const char *states);  // "running,Pending" as the words are written; NULL stays
// Writes further members of the request; may be NULL.
typedef int (*job_action_fn)(struct cli *c, struct json_writer *w);
// `done` is the word for success: "cancelled".
int job_action(struct cli *c, const char *action, const char *done, job_action_fn more);
struct reply;
// The request alone; a status other than CLI_OK was reported.
int job_action_ask(struct cli *c, const char *action, job_action_fn more, struct reply *out);
// `mend` may do otherwise what was refused for a job, and report that itself: true then. May be NULL.
typedef bool (*job_action_mend_fn)(void *ctx, const char *id, const char *code);
int job_action_report(struct cli *c, const struct reply *reply, const char *done, job_action_mend_fn mend,
                      void *ctx);
