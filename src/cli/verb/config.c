// acequia config
#include <stdio.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/term/local_time.h"
#include "verbs.h"
#include "model/config.h"
#include "model/paths.h"

static const struct option_spec specs[] = {
    {"defaults", 'd', NULL, "With show: also print default values, as comments.", 0, NULL, NULL},
};
static const struct option_table table = OPTION_TABLE("Options", specs);

static int check(struct cli *c, const char *file, struct config *config) {
    int64_t now = clock_wall_ms();
    return config_load(file, now, local_offset_s(now), config, &c->error);
}

static int show(struct cli *c, const char *file) {
    cleanup_config struct config config = {0};
    cleanup_buf struct buf out = {0};
    struct json_writer w = {.out = &out};
    if (check(c, file, &config) < 0)
        return cli_fail(c);
    if (c->json) {
        config_show_json(&config, &w);
        buf_addc(&out, '\n');
    } else {
        config_show(&config, option_given(&c->options, "defaults"), &out);
    }
    return cli_print(&out);
}

static int run(struct cli *c) {
    struct paths p;
    const char *what = c->count ? c->arguments[0] : "show";
    if (paths_get(&c->arena, &p, &c->error) < 0)
        return cli_fail(c);
    const char *file = c->count > 1 ? c->arguments[1] : p.config;
    if (streq(what, "show"))
        return show(c, file);
    if (streq(what, "check")) {
        cleanup_config struct config config = {0};
        if (check(c, file, &config) < 0)
            return cli_fail(c);
        if (c->json)
            printf("{\"file\":\"%s\",\"ok\":true}\n", file);
        else
            printf("%s is valid\n", file);
        return CLI_OK;
    }
    if (streq(what, "path")) {
        printf("%s\n", file);
        return CLI_OK;
    }
    return cli_usage(c, "\"%.40s\" is not known; use show, check or path", what);
}

const struct verb verb_config = {
    .name = "config",
    .group = "Cluster",
    .arguments = "show [--defaults] [FILE]\ncheck [FILE]\npath",
    .summary = "show and check the configuration",
    .text = "Without FILE: the file that this user's cluster reads. acequia.conf(5) describes the settings.",
    .examples = "acequia config check new.conf\nacequia config show --defaults",
    .options = {&table, &common_options},
    .run = run,
    .complete = "show check path",
    .most = 2,
};
