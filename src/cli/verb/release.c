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
    .summary = "let held jobs start",
    .text = "What an administrator held only an administrator releases.",
    .examples = "acequia release 12",
    .options = {&job_filter_options, &common_options},
    .run = run,
    .complete = "@job",
    .most = -1,
};
