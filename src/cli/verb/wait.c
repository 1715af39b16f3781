// acequia wait
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/client/job_wait.h"
#include "cli/job/resolve.h"
#include "verbs.h"
#include "model/job.h"
#include "model/units.h"

static const struct option_spec specs[] = {
    {"timeout", 't', "DURATION", "Give up after this time; a bare number is seconds.", 0, NULL, NULL},
    {"quiet", 'Q', NULL, "Print nothing.", 0, NULL, NULL},
};
static const struct option_table table = OPTION_TABLE("Options", specs);

static int run(struct cli *c) {
    uint32_t seconds = DURATION_UNLIMITED;
    if (option_duration(&c->options, "timeout", 1, &seconds, &c->error) < 0)
        return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    struct client *k;
    if (client_open(c, &k) < 0)
        return cli_fail(c);
    int status = CLI_OK;
    int64_t end = seconds == DURATION_UNLIMITED ? -1 : clock_mono_ms() + (int64_t)seconds * 1000;
    for (int i = 0; i < c->count; i++) {
        int64_t left = end < 0 ? -1 : end - clock_mono_ms();
        int one = client_job_wait(c, k, c->arguments[i], left < 0 && end >= 0 ? 0 : left,
                                  option_given(&c->options, "quiet"));
        if (status == CLI_OK)
            status = one;
    }
    client_free(k);
    return status;
}

const struct verb verb_wait = {
    .name = "wait",
    .group = "Work",
    .arguments = "[options] JOB...",
    .summary = "wait until jobs have ended; the exit status is theirs",
    .text = "With several jobs, the exit status is that of the first one that failed. An array has ended "
            "when all its elements have.",
    .examples = "acequia wait 12 && acequia logs 12",
    .options = {&table, &job_pick_options, &cli_common_options},
    .run = run,
    .complete = "@job",
    .least = 1,
    .most = -1,
    .jobs = VERB_JOBS,
};
