// acequia config
#include <unistd.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "base/vec.h"
#include "cli/job/defaults.h"
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
    return config_load(file, now, local_time_offset_s(now), config, &c->error);
}

enum { MISTAKES_TOLD = 1 };

struct mistake {
    uint32_t line;
    const char *text;
};
struct mistakes {
    struct arena *arena;
    VEC(struct mistake) list;
};

static void note_mistake(void *ctx, uint32_t line, const char *text) {
    struct mistakes *m = ctx;
    vec_push(&m->list, ((struct mistake){line, arena_strdup(m->arena, text)}));
}

static int by_line(const void *a, const void *b) {
    const struct mistake *x = a, *y = b;
    return x->line < y->line ? -1 : x->line > y->line;
}

// All mistakes are told, in the order of their lines; programs get the first.
static int check_all(struct cli *c, const char *file, struct config *config) {
    int64_t now = clock_wall_ms();
    struct mistakes m = {.arena = &c->arena};
    if (c->json)
        return check(c, file, config);
    struct config_source source = {file, now, local_time_offset_s(now), note_mistake, &m};
    int r = config_load_from(&source, config, &c->error);
    if (m.list.len)
        qsort(m.list.at, m.list.len, sizeof *m.list.at, by_line);
    for (uint32_t i = 0; i < m.list.len; i++)
        cli_note("%s", m.list.at[i].text);
    r = r < 0 && m.list.len ? MISTAKES_TOLD : r;
    vec_done(&m.list);
    return r;
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

// "gpus" or "TEMPLATE.gpus"
static const char *split_key(struct cli *c, const char *key, const char **template) {
    const char *dot = strchr(key, '.');
    *template = dot ? arena_strndup(&c->arena, key, (size_t)(dot - key)) : NULL;
    return dot ? dot + 1 : key;
}

static int change(struct cli *c, bool set) {
    const char *template;
    if (c->count != (set ? 3 : 2))
        return cli_usage(c, set ? "config set needs an option of submit and its value, as in: acequia config "
                                  "set project vision"
                                : "config unset needs an option of submit");
    const char *option = split_key(c, c->arguments[1], &template);
    if (job_defaults_change(c, template, option, set ? c->arguments[2] : NULL) < 0)
        return cli_fail(c);
    return CLI_OK;
}

static int get(struct cli *c) {
    struct job_defaults d;
    cleanup_buf struct buf out = {0};
    struct json_writer w = {.out = &out};
    if (job_defaults_load(c, &d) < 0)
        return cli_fail(c);
    bool found = c->count < 2;
    if (c->json)
        json_open(&w, '{');
    for (uint32_t i = 0; i < d.count; i++) {
        const struct job_default *one = &d.at[i];
        const char *key = one->template ? arena_printf(&c->arena, "%s.%s", one->template, one->option) : one->option;
        if (c->count > 1 && !streq(c->arguments[1], key))
            continue;
        found = true;
        if (c->json)
            json_kv_str(&w, key, one->value);
        else
            buf_addf(&out, "%s = %s\n", key, one->value);
    }
    if (!found) {
        error_set(&c->error, ENOENT, "%.60s is not set", c->arguments[1]);
        return cli_fail(c);
    }
    if (c->json)
        buf_adds(&out, "}\n");
    return cli_print(&out);
}

static int run(struct cli *c) {
    struct paths p;
    const char *what = c->count ? c->arguments[0] : "show";
    if (streq(what, "set") || streq(what, "unset"))
        return change(c, streq(what, "set"));
    if (streq(what, "get"))
        return get(c);
    if (c->count > 2)
        return cli_usage(c, "config %s: unexpected argument \"%.40s\"", what, c->arguments[2]);
    if (paths_get(&c->arena, &p, &c->error) < 0)
        return cli_fail(c);
    const char *file = c->count > 1 ? c->arguments[1] : p.config;
    if (c->count > 1 && !streq(what, "path") && access(file, R_OK) != 0) {  // one that is not named may be missing
        error_set(&c->error, errno, "cannot read %.200s: %s", file, strerror(errno));
        return cli_fail(c);
    }
    if (streq(what, "show"))
        return show(c, file);
    if (streq(what, "check")) {
        cleanup_config struct config config = {0};
        int r = check_all(c, file, &config);
        if (r == MISTAKES_TOLD)
            return CLI_FAILED;
        if (r < 0)
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
    return cli_usage(c, "unknown action \"%.40s\"; use show, check, path, set, unset or get", what);
}

const struct verb verb_config = {
    .name = "config",
    .group = "Cluster",
    .arguments = "show [--defaults] [FILE]\ncheck [FILE]\npath\nset [TEMPLATE.]OPTION VALUE\nunset "
                 "[TEMPLATE.]OPTION\nget",
    .summary = "the cluster's configuration, and your own defaults",
    .text = "Without FILE: the file that this user's cluster reads. acequia.conf(5) describes the settings. "
            "set, unset and get are about your own defaults for submit, run and when: any option of submit, "
            "kept in "
            "~/.config/acequia/defaults. With TEMPLATE. before it, the option holds for --template TEMPLATE "
            "only.",
    .examples =
        "acequia config check new.conf\nacequia config show --defaults\nacequia config set project vision\n"
        "acequia config set big.gpus 8\nacequia submit --template big train.py",
    .options = {&table, &cli_common_options},
    .run = run,
    .complete = "show check path set unset get",
    .most = 3,
};
