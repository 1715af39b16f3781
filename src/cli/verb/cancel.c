// acequia cancel
#include <errno.h>

#include "base/text.h"
#include "cli/job/action.h"
#include "verbs.h"
#include "model/signalname.h"

static const struct option_spec specs[] = {
    {"signal", 0, "SIGNAL", "Only send this signal (such as USR1); the job is not cancelled.", 0, NULL,
     "TERM INT KILL USR1 USR2 HUP CONT STOP"},
    {"batch", 'b', NULL, "With --signal: only to the batch script, not to its steps.", 0, NULL, NULL},
    {"reason", 'r', "TEXT", "Reason, recorded with the job.", 0, NULL, NULL},
};
static const struct option_table table = OPTION_TABLE("Options", specs);

static int more(struct cli *c, struct json_writer *w) {
    const char *text = option_get(&c->options, "signal"), *reason = option_get(&c->options, "reason");
    uint32_t number;
    if (text) {
        int r = signal_parse(text, &number, &c->error);
        if (r < 0)
            return error_prefix(&c->error, "--signal");
        json_kv_i64(w, "signal", number);
    }
    if (option_given(&c->options, "batch") && !text)
        return error_set(&c->error, EINVAL, "--batch needs --signal: a job is cancelled as a whole");
    if (option_given(&c->options, "batch"))
        json_kv_bool(w, "batch_only", true);
    if (reason)
        json_kv_str(w, "reason", reason);
    return 0;
}

static int run(struct cli *c) {
    return job_action(c, "cancel", option_given(&c->options, "signal") ? "signalled" : "cancelled", more);
}

const struct verb verb_cancel = {
    .name = "cancel",
    .alias = "delete",
    .group = "Work",
    .arguments = "[options] JOB...\n[options] --name NAME | --all | ...",
    .summary = "cancel jobs, or send them a signal",
    .text = "Pending jobs are removed at once; running ones get SIGTERM, and SIGKILL after the grace time. "
            "Ids may be "
            "elements, as 12_[3-5].",
    .examples = "acequia cancel 12 13_4\nacequia cancel --name sweep --state PENDING\nacequia cancel "
                "--signal USR1 12",
    .options = {&table, &job_filter_options, &cli_common_options},
    .run = run,
    .complete = "@job",
    .most = -1,
    .jobs = VERB_JOBS,
    .live_jobs = true,
};
