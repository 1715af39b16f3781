// acequia man
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "model/config.h"
#include "texts.h"
#include "verbs.h"

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
    verb_man_overview(&main_page);
    verb_man_config(&config);
    int r = write_page(c, folder, "acequia.1", &main_page);
    r = r < 0 ? r : write_page(c, folder, "acequia.conf.5", &config);
    for (size_t i = 0; r == 0 && i < count; i++) {
        cleanup_buf struct buf page = {0};
        if (!verbs[i]->group)
            continue;
        verb_man_verb(verbs[i], &page);
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
            verb_docs_markdown(&out);
        else
            config_reference_markdown(&out);
        return cli_print(&out);
    }
    if (!c->count)
        return cli_usage(c, "man needs a folder for the pages: acequia man FOLDER");
    cleanup_close int folder = open(c->arguments[0], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return cli_failf(c, "cannot open the folder %s: %s", c->arguments[0], strerror(errno));
    return write_pages(c, folder) < 0 ? cli_fail(c) : CLI_OK;
}

const struct verb verb_man = {
    .name = "man",
    .arguments = "FOLDER",
    .summary = "write the manual pages into a folder",
    .options = {&man_options, &cli_common_options},
    .run = run_man,
    .most = 1,
};
