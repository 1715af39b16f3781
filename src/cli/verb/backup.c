// acequia backup, restore, check: programs of acequiad, on the state folder of this machine. They need no controller;
// one that runs goes on.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "cli/client/client.h"
#include "cli/client/daemon.h"
#include "cli/term/local_time.h"
#include "cli/term/table.h"
#include "model/paths.h"
#include "model/units.h"
#include "verbs.h"

enum { PASSPHRASE_LEAST = 8, ARGUMENTS_MAX = 8 };

struct backup_arguments {
    char *at[ARGUMENTS_MAX];
    int count;
};

static void add(struct cli *c, struct backup_arguments *a, const char *name, const char *value) {
    a->at[a->count++] = (char *)(uintptr_t)arena_printf(&c->arena, "%s%s", name, value);
}

static int read_passphrase_file(struct cli *c, const char *file, struct buf *out) {
    char piece[1024];
    cleanup_close int fd = open(file, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, piece, sizeof piece);
    if (n < 0)
        return error_set(&c->error, errno, "cannot read %s: %s", file, strerror(errno));
    buf_add(out, piece, (size_t)n);
    explicit_bzero(piece, sizeof piece);
    while (out->len && out->data[out->len - 1] == '\n')
        out->len--;
    return 0;
}

// In memory that only the program reads: neither in its arguments nor in its environment, which others can see.
static int hand_over(struct cli *c, const struct buf *secret, struct backup_arguments *a) {
    char number[16];
    int fd = memfd_create("passphrase", 0);
    if (fd < 0 || write(fd, secret->data, secret->len) != (ssize_t)secret->len)
        return error_set(&c->error, errno, "cannot hand the passphrase over: %s", strerror(errno));
    snprintf(number, sizeof number, "%d", fd);
    add(c, a, "passphrase=", number);
    return 0;
}

static int add_passphrase(struct cli *c, bool twice, struct backup_arguments *a) {
    cleanup_buf struct buf first = {0}, second = {0};
    const char *file = option_get(&c->options, "passphrase-file");
    int r = 0;
    if (!option_given(&c->options, "secret-key"))
        return file ? error_set(&c->error, EINVAL, "--passphrase-file goes with --secret-key") : 0;
    r = file ? read_passphrase_file(c, file, &first) : verb_read_password(c, "Passphrase", &first);
    if (r == 0 && twice && first.len < PASSPHRASE_LEAST)
        r = error_set(&c->error, EINVAL, "the passphrase has %zu characters; give at least %d", first.len,
                      PASSPHRASE_LEAST);
    if (r == 0 && twice && !file && isatty(STDIN_FILENO)) {
        r = verb_read_password(c, "The same again", &second);
        if (r == 0 && !streq(buf_str(&first), buf_str(&second)))
            r = error_set(&c->error, EINVAL, "the two passphrases differ");
    }
    if (r == 0)
        r = hand_over(c, &first, a);
    struct buf *const secrets[] = {&first, &second};
    for (int i = 0; i < 2; i++)
        if (secrets[i]->data)
            explicit_bzero(secrets[i]->data, secrets[i]->cap);
    return r;
}

// What the program needs; the names of files as seen from here.
static int begin(struct cli *c, const char *file, struct backup_arguments *a) {
    struct paths p;
    char here[PATH_MAX];
    int r = paths_get(&c->arena, &p, &c->error);
    if (r < 0)
        return r;
    if (*file != '/' && !getcwd(here, sizeof here))
        return error_set(&c->error, errno, "this folder cannot be found: %s", strerror(errno));
    add(c, a, "file=", *file == '/' ? file : arena_printf(&c->arena, "%s/%s", here, file));
    add(c, a, "folder=", p.state);
    add(c, a, "keys=", p.keys);
    if (c->json)
        add(c, a, "json", "");
    return 0;
}

// --- backup ---

static int list_backups(struct cli *c) {
    cleanup_buf struct buf out = {0};
    struct reply reply;
    int status = client_get(c, "/v1/backups", &reply);
    if (status != CLI_OK)
        return status;
    if (c->json) {
        buf_addf(&out, "%s\n", reply.text);
        return cli_print(&out);
    }
    const struct json *list = json_get(reply.json, "backups");
    const char *folder = json_str(reply.json, "folder"), *problem = json_str(reply.json, "problem");
    if (!folder) {
        buf_adds(
            &out,
            "The controller makes no backups: `folder` of [backup] in its configuration file is not set.\n");
        return cli_print(&out);
    }
    static const struct table_column columns[] = {
        {"FILE", false, 1, 10}, {"SIZE", true, 0, 0}, {"MADE", false, 0, 0}};
    struct text_table t;
    table_init(&t, &c->arena, columns, sizeof columns / sizeof *columns);
    for (uint32_t i = 0; list && i < list->len; i++) {
        char size[UNIT_TEXT_MAX], made[UNIT_TEXT_MAX];
        const struct json *b = &list->items[i];
        table_add(&t, json_str(b, "file"), COLOUR_NONE);
        table_addf(&t, "%s", size_format((uint64_t)json_i64(b, "bytes", 0), size));
        table_addf(&t, "%s", local_time_format(json_i64(b, "made_ms", 0), made));
    }
    buf_addf(&out, "In %s on the controller's machine%s\n", folder,
             json_true(reply.json, "running") ? "; one is being made:" : ":");
    table_print(&t, terminal_table_width(), true, terminal_colour(), &out);
    table_done(&t);
    if (problem)
        buf_addf(&out, "Problem: %s\n", problem);
    return cli_print(&out);
}

static int make_now(struct cli *c) {
    cleanup_buf struct buf out = {0}, body = {0};
    struct reply reply;
    int status = client_post(c, "/v1/backups", &body, &reply);
    if (status != CLI_OK)
        return status;
    buf_adds(&out, "The controller makes a backup; 'acequia backup --list' shows it when it is complete.\n");
    return cli_print(&out);
}

static int run_backup(struct cli *c) {
    struct backup_arguments a = {0};
    bool list = option_given(&c->options, "list"), now = option_given(&c->options, "now");
    if (list + now + (c->count > 0) != 1)
        return cli_usage(c, "give a FILE, --now or --list");
    if (list || now)
        return list ? list_backups(c) : make_now(c);
    if (streq(c->arguments[0], "-"))
        return cli_usage(c, "a backup is written to a file, not to standard output; name one");
    if (begin(c, c->arguments[0], &a) < 0 || add_passphrase(c, true, &a) < 0)
        return cli_fail(c);
    if (option_given(&c->options, "quiet"))
        add(c, &a, "quiet", "");
    client_daemon_exec(c, "backup", a.at, a.count, &c->error);
    return cli_fail(c);
}

#define KEY_OPTIONS                                                                                          \
    {                                                                                                        \
        "passphrase-file", 0, "FILE", "Read the passphrase from this file instead of the terminal.", 0,      \
            NULL, "@file"                                                                                    \
    }

static const struct option_spec backup_specs[] = {
    {"secret-key", 0, NULL, "Put the key of users' secrets in as well, encrypted with a passphrase.", 0, NULL,
     NULL},
    KEY_OPTIONS,
    {"quiet", 'q', NULL, "Say nothing when all is well.", 0, NULL, NULL},
    {"list", 0, NULL, "Show the backups that the controller has made by itself.", 0, NULL, NULL},
    {"now", 0, NULL, "Have the controller make one now, in its folder.", 0, NULL, NULL},
};
static const struct option_table backup_table = OPTION_TABLE("Options", backup_specs);

const struct verb verb_backup = {
    .name = "backup",
    .group = "Cluster",
    .arguments = "FILE | --now | --list",
    .summary = "copy the cluster's state into one file",
    .text = "FILE holds everything that must be kept: journal, history, scripts, keys and certificates, as "
            "of one "
            "moment, and is read back and checked before it gets its name. Run on the controller's machine "
            "as the user "
            "who owns the state; submits and jobs go on. Without --secret-key the key of users' secrets is "
            "left out: "
            "keep a copy of it elsewhere. The configuration file is not in it. With `folder` in [backup] the "
            "controller "
            "makes backups by itself.",
    .examples = "acequia backup /backup/acequia-today\nacequia backup --list",
    .options = {&backup_table, &cli_common_options},
    .complete = "@file",
    .run = run_backup,
    .most = 1,
};

// --- restore ---

static int run_restore(struct cli *c) {
    struct backup_arguments a = {0};
    if (begin(c, c->arguments[0], &a) < 0 || add_passphrase(c, false, &a) < 0)
        return cli_fail(c);
    client_daemon_exec(c, "restore", a.at, a.count, &c->error);
    return cli_fail(c);
}

static const struct option_spec restore_specs[] = {
    {"secret-key", 0, NULL, "Put the key of users' secrets back too; the passphrase is asked for.", 0, NULL,
     NULL},
    KEY_OPTIONS,
};
static const struct option_table restore_table = OPTION_TABLE("Options", restore_specs);

const struct verb verb_restore = {
    .name = "restore",
    .group = "Cluster",
    .arguments = "FILE",
    .summary = "put a backup in the place of the cluster's state",
    .text = "Checks FILE, and puts it in place if no controller uses the state folder of this machine. The "
            "state that "
            "was there is kept beside it. Start the controller afterwards: jobs that run and that the backup "
            "does not "
            "know are adopted, and numbers of new jobs continue beyond all that nodes have heard of.",
    .examples = "acequia down\nacequia restore /backup/acequia-today\nacequia up",
    .options = {&restore_table, &cli_common_options},
    .complete = "@file",
    .run = run_restore,
    .least = 1,
    .most = 1,
};

// --- check ---

static int run_check(struct cli *c) {
    struct backup_arguments a = {0};
    struct paths p;
    if (paths_get(&c->arena, &p, &c->error) < 0 || begin(c, c->count ? c->arguments[0] : p.state, &a) < 0)
        return cli_fail(c);
    client_daemon_exec(c, "check", a.at, a.count, &c->error);
    return cli_fail(c);
}

const struct verb verb_check = {
    .name = "check",
    .group = "Cluster",
    .arguments = "[FILE | FOLDER]",
    .summary = "test whether a backup or a state folder is readable",
    .text = "Reads everything, compares all checksums and loads the state as a controller would. Changes "
            "nothing; the "
            "controller may run. Without an argument: the state folder of this machine.",
    .examples = "acequia check\nacequia check /backup/acequia-today",
    .options = {&cli_common_options},
    .complete = "@file",
    .run = run_check,
    .most = 1,
};
