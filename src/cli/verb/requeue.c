// acequia requeue
#include "cli/job/action.h"
#include "verbs.h"

static const struct option_spec specs[] = {
    {"hold", 'H', NULL, "Hold them in the queue.", 0, NULL, NULL},
};
static const struct option_table table = OPTION_TABLE("Options", specs);

static int more(struct cli *c, struct json_writer *w) {
    if (option_given(&c->options, "hold"))
        json_kv_bool(w, "hold", true);
    return 0;
}

static int run(struct cli *c) {
    return job_action(c, "requeue", "queued again", more);
}

const struct verb verb_requeue = {
    .name = "requeue",
    .group = "Work",
    .arguments = "[options] JOB...",
    .summary = "stop running jobs and queue them again",
    .text = "The job runs again from its beginning; ACEQUIA_RESTART_COUNT holds the number of restarts. "
            "A pending job is reported and is no error. A job that has ended keeps its number and its record: to "
            "run it again as a new job, use acequia resubmit.",
    .examples = "acequia requeue 12",
    .options = {&table, &job_filter_options, &cli_common_options},
    .run = run,
    .complete = "@job",
    .most = -1,
    .jobs = VERB_JOBS,
    .live_jobs = true,
};
