// acequia version, completion, help, man, controller, agent: what is said or started without a
// controller.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "cli/daemon.h"
#include "cli/verbs.h"
#include "model/config.h"

static int run_version(struct cli *c) {
    if (c->json)
        printf("{\"version\":\"%s\"}\n", ACEQUIA_VERSION);
    else
        printf("acequia %s\n", ACEQUIA_VERSION);
    return CLI_OK;
}

const struct verb verb_version = {
    .name = "version",
    .group = "More",
    .summary = "print the version",
    .options = {&common_options},
    .run = run_version,
};

static int run_completion(struct cli *c) {
    cleanup_buf struct buf out = {0};
    if (streq(c->arguments[0], "bash"))
        completion_bash(&out);
    else if (streq(c->arguments[0], "zsh"))
        completion_zsh(&out);
    else if (streq(c->arguments[0], "fish"))
        completion_fish(&out);
    else
        return cli_usage(c, "\"%.40s\" is not known; use bash, zsh or fish", c->arguments[0]);
    return cli_print(&out);
}

const struct verb verb_completion = {
    .name = "completion",
    .group = "More",
    .arguments = "bash|zsh|fish",
    .summary = "print a completion script for a shell",
    .examples = "source <(acequia completion bash)\nacequia completion zsh > ~/.zfunc/_acequia\n"
                "acequia completion fish > ~/.config/fish/completions/acequia.fish",
    .options = {&common_options},
    .run = run_completion,
    .complete = "bash zsh fish",
    .least = 1,
    .most = 1,
};

static int run_help(struct cli *c) {
    cleanup_buf struct buf out = {0};
    const struct verb *v = c->count ? verb_find(c->arguments[0]) : NULL;
    if (c->count && !v)
        return cli_usage(c, "there is no verb \"%.40s\"", c->arguments[0]);
    if (v)
        help_verb(v, &out);
    else
        help_overview(&out, false);
    return cli_print(&out);
}

const struct verb verb_help = {
    .name = "help",
    .group = "More",
    .arguments = "[VERB]",
    .summary = "tell about a verb",
    .options = {&common_options},
    .run = run_help,
    .complete = "@verb",
    .most = 1,
};

static int write_page(struct cli *c, int folder, const char *name, const struct buf *text) {
    cleanup_close int fd = openat(folder, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0 || write(fd, text->data, text->len) != (ssize_t)text->len)
        return error_set(&c->error, errno, "cannot write %s: %s", name, strerror(errno));
    return 0;
}

static int write_pages(struct cli *c, int folder) {
    size_t count;
    const struct verb *const *verbs = verbs_all(&count);
    cleanup_buf struct buf main_page = {0}, config = {0};
    man_overview(&main_page);
    man_config(&config);
    int r = write_page(c, folder, "acequia.1", &main_page);
    r = r < 0 ? r : write_page(c, folder, "acequia.conf.5", &config);
    for (size_t i = 0; r == 0 && i < count; i++) {
        cleanup_buf struct buf page = {0};
        if (!verbs[i]->group)
            continue;
        man_verb(verbs[i], &page);
        r = write_page(c, folder, arena_printf(&c->arena, "acequia-%s.1", verbs[i]->name), &page);
    }
    return r;
}

static const struct option_spec man_specs[] = {
    {"markdown", 0, NULL, "Print docs/commands.md instead.", 0, NULL, NULL},
    {"configuration", 0, NULL, "Print docs/configuration.md instead.", 0, NULL, NULL},
};
static const struct option_table man_options = OPTION_TABLE("Options", man_specs);

static int run_man(struct cli *c) {
    cleanup_buf struct buf out = {0};
    if (option_given(&c->options, "markdown") || option_given(&c->options, "configuration")) {
        if (option_given(&c->options, "markdown"))
            docs_markdown(&out);
        else
            config_reference_markdown(&out);
        return cli_print(&out);
    }
    if (!c->count)
        return cli_usage(c, "man needs a folder to write the pages into");
    cleanup_close int folder = open(c->arguments[0], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return cli_failf(c, "cannot open the folder %s: %s", c->arguments[0], strerror(errno));
    return write_pages(c, folder) < 0 ? cli_fail(c) : CLI_OK;
}

const struct verb verb_man = {
    .name = "man",
    .arguments = "FOLDER",
    .summary = "write the manual pages into a folder",
    .options = {&man_options, &common_options},
    .run = run_man,
    .most = 1,
};

static int run_daemon(struct cli *c) {
    daemon_exec(c, c->verb->name, c->arguments, c->count, &c->error);
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
    .options = {&controller_options, &common_options},
    .run = run_daemon,
    .raw = true,
};

static const struct option_spec agent_specs[] = {
    {"name", 0, "NAME", "Name of the node; else the host name.", 0, NULL, NULL},
    {"join", 0, "HOST:PORT", "Controller on another machine, with TLS; else this machine's.", 0, NULL, NULL},
    {"token-file", 0, "FILE", "Token for the first time, from acequia token create.", 0, NULL, "@file"},
    {"config", 0, "FILE", "Another configuration file.", 0, NULL, "@file"},
};
static const struct option_table agent_options = OPTION_TABLE("Options", agent_specs);

const struct verb verb_agent = {
    .name = "agent",
    .group = "Cluster",
    .arguments = "[options]",
    .summary = "run a node's agent in the foreground",
    .text = "With --join it makes its own key, has it signed with the token, which is then used up, and "
            "needs no token any more.",
    .examples = "acequia agent --join head:6820 --token-file join.token",
    .options = {&agent_options, &common_options},
    .run = run_daemon,
    .raw = true,
};
