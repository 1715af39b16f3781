// acequia help, acequia version
#include <stdio.h>

#include "base/text.h"
#include "texts.h"
#include "verbs.h"

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
    .options = {&cli_common_options},
    .run = run_version,
};

static int run_help(struct cli *c) {
    cleanup_buf struct buf out = {0};
    const struct verb *v = c->count ? verb_find(c->arguments[0]) : NULL;
    if (c->count && !v)
        return cli_usage(c, "unknown verb \"%.40s\"; see acequia --help", c->arguments[0]);
    if (v)
        verb_help_verb(v, &out);
    else
        verb_help_overview(&out, false);
    return cli_print(&out);
}

const struct verb verb_help = {
    .name = "help",
    .group = "More",
    .arguments = "[VERB]",
    .summary = "show help for a verb",
    .options = {&cli_common_options},
    .run = run_help,
    .complete = "@verb",
    .most = 1,
};
