// acequia sim: the simulator is a part of acequiad.
#include "cli/client/daemon.h"
#include "verbs.h"

static const struct option_spec specs[] = {
    {"nodes", 0, "FILE", "The machines, as CSV with the columns sn, cpu_milli, memory_mib, gpu and model.", 0,
     NULL, "@file"},
    {"policy", 0, "POLICY",
     "default, easy, sjbf or fcfs, with settings after commas; repeated, they are compared.", OPTION_REPEAT,
     NULL, "default easy sjbf fcfs"},
    {"json", 0, "FILE", "The figures as JSON; - or nothing: to standard output instead of the table.", 0,
     NULL, "@file"},
    {"html", 0, "FILE", "A report with charts.", 0, NULL, "@file"},
    {"fill", 0, "PERCENT", "Placement only: draw jobs until their GPUs reach this part of all.", 0, NULL,
     NULL},
    {"seed", 0, "NUMBER", "First seed of --fill; default 1.", 0, NULL, NULL},
    {"runs", 0, "COUNT", "Seeds of --fill to average over; default 10.", 0, NULL, NULL},
    {"help", 'h', NULL, "Show this help.", 0, NULL, NULL},
};
static const struct option_table table = OPTION_TABLE("Options", specs);

static int run(struct cli *c) {
    client_daemon_exec(c, "sim", c->arguments, c->count, &c->error);
    return cli_fail(c);
}

const struct verb verb_sim = {
    .name = "sim",
    .group = "Sharing",
    .arguments = "TRACE [options]",
    .summary = "replay a trace under a policy and report",
    .text = "TRACE is in the Standard Workload Format, an openb pod list, or a CSV with the columns "
            "submit_s, run_s, limit_s, user, project, "
            "nodes, tasks, cpus_per_task, memory_mib, gpu_milli, gpu_model, class and workers_max; gzipped "
            "or not. An "
            "unknown policy prints the list of policies and their settings.",
    .examples =
        "acequia sim trace.swf\nacequia sim trace.swf --policy easy --policy default --html report.html",
    .options = {&table},
    .run = run,
    .raw = true,
    .most = -1,
};
