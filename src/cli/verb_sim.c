// acequia sim: the simulator is a part of acequiad.
#include "cli/daemon.h"
#include "cli/verbs.h"

static int run(struct cli *c) {
    daemon_exec(c, "sim", c->arguments, c->count, &c->error);
    return cli_fail(c);
}

const struct verb verb_sim = {
    .name = "sim",
    .group = "Sharing",
    .arguments = "TRACE [options]",
    .summary = "replay a trace under a policy and report",
    .text = "Reads Standard Workload Format and CSV traces. Options are told by the simulator itself: acequia sim TRACE --policy help.",
    .options = {&common_options},
    .run = run,
    .raw = true,
    .most = -1,
};
