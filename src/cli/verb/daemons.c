// acequia controller, acequia agent: run a daemon in the foreground.
#include "base/text.h"
#include "cli/client/client.h"
#include "cli/client/daemon.h"
#include "verbs.h"

static int run_daemon(struct cli *c) {
    client_daemon_exec(c, c->verb->name, c->arguments, c->count, &c->error);
    return cli_fail(c);
}

// The leader steps back; who leads then is what the next request finds.
static int hand_over(struct cli *c) {
    cleanup_buf struct buf out = {0}, body = {0};
    struct reply reply;
    buf_adds(&body, "{}");
    int status = client_post(c, "/v1/hand-over", &body, &reply);
    if (status != CLI_OK)
        return status;
    buf_adds(&out, "The leader hands over to another controller.\n");
    return cli_print(&out);
}

static int run_controller(struct cli *c) {
    return c->count == 1 && streq(c->arguments[0], "hand-over") ? hand_over(c) : run_daemon(c);
}

static const struct option_spec controller_specs[] = {
    {"config", 0, "FILE", "Another configuration file.", 0, NULL, "@file"},
};
static const struct option_table controller_options = OPTION_TABLE("Options", controller_specs);

const struct verb verb_controller = {
    .name = "controller",
    .group = "Cluster",
    .arguments = "[options] | hand-over",
    .summary = "run the controller, or hand over to another",
    .text = "For services and containers; acequia up starts it in the background. Where several controllers "
            "share a "
            "database, hand-over makes another one the leader, for example before this machine is restarted: "
            "everything that was asked is answered, running jobs and open terminals go on.",
    .examples = "acequia controller\nacequia controller hand-over",
    .options = {&controller_options, &cli_common_options},
    .run = run_controller,
    .raw = true,
};

static const struct option_spec agent_specs[] = {
    {"name", 0, "NAME", "Name of the node; default: the host name.", 0, NULL, NULL},
    {"join", 0, "HOST:PORT,...",
     "Controller on another machine, over TLS, or all that share a database; default: the one on this "
     "machine.",
     0, NULL, NULL},
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
