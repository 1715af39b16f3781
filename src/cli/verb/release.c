// acequia release
#include "cli/job/action.h"
#include "verbs.h"

static int run(struct cli *c) {
    return job_action(c, "release", "released", NULL);
}

const struct verb verb_release = {
    .name = "release",
    .group = "Work",
    .arguments = "[options] JOB...",
    .summary = "release held jobs",
    .text = "A job held by an administrator can only be released by an administrator. A job that was not held is "
            "reported and is no error.",
    .examples = "acequia release 12",
    .options = {&job_filter_options, &cli_common_options},
    .run = run,
    .complete = "@job",
    .most = -1,
    .jobs = VERB_JOBS,
    .live_jobs = true,
};
