// acequia completion
#include "base/text.h"
#include "texts.h"
#include "verbs.h"

static int run_completion(struct cli *c) {
    cleanup_buf struct buf out = {0};
    if (streq(c->arguments[0], "bash"))
        verb_completion_bash(&out);
    else if (streq(c->arguments[0], "zsh"))
        verb_completion_zsh(&out);
    else if (streq(c->arguments[0], "fish"))
        verb_completion_fish(&out);
    else
        return cli_usage(c, "unknown shell \"%.40s\"; use bash, zsh or fish", c->arguments[0]);
    return cli_print(&out);
}

const struct verb verb_completion = {
    .name = "completion",
    .group = "More",
    .arguments = "bash|zsh|fish",
    .summary = "print a completion script for a shell",
    .examples = "source <(acequia completion bash)\nacequia completion zsh > ~/.zfunc/_acequia\n"
                "acequia completion fish > ~/.config/fish/completions/acequia.fish",
    .options = {&cli_common_options},
    .run = run_completion,
    .complete = "bash zsh fish",
    .least = 1,
    .most = 1,
};
