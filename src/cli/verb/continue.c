// acequia continue
#include "cli/job/action.h"
#include "verbs.h"

static int run(struct cli *c) {
    return job_action(c, "resume", "continued", NULL);
}

const struct verb verb_continue = {
    .name = "continue",
    .group = "Work",
    .arguments = "[options] JOB...",
    .summary = "resume suspended jobs",
    .text = "The opposite of suspend. A job that was not suspended is reported and is no error.",
    .examples = "acequia continue 12",
    .options = {&job_filter_options, &cli_common_options},
    .run = run,
    .complete = "@job",
    .most = -1,
    .jobs = VERB_JOBS,
    .live_jobs = true,
};
