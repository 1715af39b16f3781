// acequia controller, acequia agent: run a daemon in the foreground.
#include "cli/client/daemon.h"
#include "verbs.h"

static int run_daemon(struct cli *c) {
    client_daemon_exec(c, c->verb->name, c->arguments, c->count, &c->error);
    return cli_fail(c);
}

static const struct option_spec controller_specs[] = {
    {"config", 0, "FILE", "Another configuration file.", 0, NULL, "@file"},
};
static const struct option_table controller_options = OPTION_TABLE("Options", controller_specs);

const struct verb verb_controller = {
    .name = "controller",
    .group = "Cluster",
    .arguments = "[options]",
    .summary = "run the controller in the foreground",
    .text = "For services and containers; acequia up starts it in the background.",
    .options = {&controller_options, &cli_common_options},
    .run = run_daemon,
    .raw = true,
};

static const struct option_spec agent_specs[] = {
    {"name", 0, "NAME", "Name of the node; default: the host name.", 0, NULL, NULL},
    {"join", 0, "HOST:PORT", "Controller on another machine, over TLS; default: the one on this machine.", 0,
     NULL, NULL},
    {"token-file", 0, "FILE", "Join token (acequia token create), needed only the first time.", 0, NULL,
     "@file"},
    {"config", 0, "FILE", "Another configuration file.", 0, NULL, "@file"},
};
static const struct option_table agent_options = OPTION_TABLE("Options", agent_specs);

const struct verb verb_agent = {
    .name = "agent",
    .group = "Cluster",
    .arguments = "[options]",
    .summary = "run a node's agent in the foreground",
    .text =
        "With --join the agent creates a key and has it signed by the controller. The token is used up by "
        "this; afterwards the agent uses its certificate.",
    .examples = "acequia agent --join head:6820 --token-file join.token",
    .options = {&agent_options, &cli_common_options},
    .run = run_daemon,
    .raw = true,
};
