// acequia hold
#include "cli/job/action.h"
#include "verbs.h"

static int run(struct cli *c) {
    return job_action(c, "hold", "held", NULL);
}

const struct verb verb_hold = {
    .name = "hold",
    .group = "Work",
    .arguments = "[options] JOB...",
    .summary = "keep pending jobs from starting",
    .text = "A running job goes on, and is held if it comes back to the queue. A job that is held already is "
            "reported and is no error.",
    .examples = "acequia hold 12\nacequia hold --name sweep",
    .options = {&job_filter_options, &cli_common_options},
    .run = run,
    .complete = "@job",
    .most = -1,
    .jobs = VERB_JOBS,
    .live_jobs = true,
};
