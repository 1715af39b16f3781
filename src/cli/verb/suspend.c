// acequia suspend
#include "cli/job/action.h"
#include "verbs.h"

static int run(struct cli *c) {
    return job_action(c, "suspend", "suspended", NULL);
}

const struct verb verb_suspend = {
    .name = "suspend",
    .group = "Work",
    .arguments = "[options] JOB...",
    .summary = "suspend running jobs",
    .text = "Their processes are stopped but keep their memory and allocation. A job that is suspended already is "
            "reported and is no error.",
    .examples = "acequia suspend 12",
    .options = {&job_filter_options, &cli_common_options},
    .run = run,
    .complete = "@job",
    .most = -1,
    .jobs = VERB_JOBS,
    .live_jobs = true,
};
