// Reads, changes and applies a user's defaults and templates. The file is the user's own, never the cluster's: a
// default such as --checkpoint is a command that runs as the user.
#include "cli/job/defaults.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "cli/job/options.h"

enum { FILE_MAX = 64 * 1024 };

// Options of which only one may be given: a default of one does not add to another that was given.
static const char *const exclusive[][4] = {{"gpus", "gpus-per-node", "gpus-per-task", NULL},
                                           {"memory", "memory-per-cpu", "memory-per-gpu", NULL},
                                           {"requeue", "no-requeue", NULL, NULL}};

static int find_folder(struct cli *c, const char **out) {
    const char *xdg = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    if (!str_empty(xdg) && *xdg == '/')
        *out = arena_printf(&c->arena, "%s/acequia", xdg);
    else if (!str_empty(home) && *home == '/')
        *out = arena_printf(&c->arena, "%s/.config/acequia", home);
    else
        return -ENOENT;
    return 0;
}

static const struct option_spec *find_option(const char *name) {
    const struct option_table *const tables[] = {&job_resource_options, &job_control_options};
    for (int t = 0; t < 2; t++)
        for (size_t i = 0; i < tables[t]->count; i++)
            if (streq(tables[t]->at[i].name, name))
                return &tables[t]->at[i];
    return NULL;
}

static char *trim(char *s) {
    s += strspn(s, " \t");
    size_t n = strlen(s);
    while (n && (s[n - 1] == ' ' || s[n - 1] == '\t' || s[n - 1] == '\r'))
        s[--n] = 0;
    return s;
}

static int add_line(struct cli *c, struct job_defaults *d, char *line, unsigned number) {
    char *text = trim(line), *equals = strchr(text, '=');
    if (!*text || *text == '#')
        return 0;
    if (!equals)
        return error_set(&c->error, EINVAL, "%s, line %u: expected OPTION = VALUE", d->path, number);
    if (d->count == JOB_DEFAULTS_MAX)
        return error_set(&c->error, E2BIG, "%s has more than %d lines", d->path, JOB_DEFAULTS_MAX);
    *equals = 0;
    char *key = trim(text), *dot = strchr(key, '.');
    if (dot)
        *dot = 0;
    const char *option = dot ? dot + 1 : key;
    if (!find_option(option))
        return error_set(&c->error, EINVAL, "%s, line %u: submit has no option --%.60s", d->path, number, option);
    d->at[d->count++] = (struct job_default){dot ? key : NULL, option, trim(equals + 1)};
    return 0;
}

int job_defaults_load(struct cli *c, struct job_defaults *out) {
    const char *folder;
    *out = (struct job_defaults){0};
    if (find_folder(c, &folder) < 0)
        return 0;
    out->path = arena_printf(&c->arena, "%s/defaults", folder);
    cleanup_close int fd = open(out->path, O_RDONLY | O_CLOEXEC);
    // HOME may still be another user's, as after su without a login shell.
    if (fd < 0 && (errno == ENOENT || errno == EACCES || errno == ENOTDIR))
        return 0;
    char *text = arena_alloc(&c->arena, FILE_MAX + 1);
    ssize_t n = fd < 0 ? -1 : read(fd, text, FILE_MAX);
    if (n < 0)
        return error_set(&c->error, errno, "cannot read %s: %s", out->path, strerror(errno));
    text[n] = 0;
    unsigned number = 1;
    for (char *p = text, *next; p; p = next, number++) {
        next = strchr(p, '\n');
        if (next)
            *next++ = 0;
        int r = add_line(c, out, p, number);
        if (r < 0)
            return r;
    }
    return 0;
}

static int make_folders(struct cli *c, const char *path) {
    char *copy = arena_strdup(&c->arena, path);
    for (char *p = strchr(copy + 1, '/'); p; p = strchr(p + 1, '/')) {
        *p = 0;
        if (mkdir(copy, 0700) < 0 && errno != EEXIST)
            return error_set(&c->error, errno, "cannot create the folder %s: %s", copy, strerror(errno));
        *p = '/';
    }
    return 0;
}

static int save(struct cli *c, const struct job_defaults *d) {
    cleanup_buf struct buf text = {0};
    const char *temp = arena_printf(&c->arena, "%s.%d", d->path, (int)getpid());
    buf_adds(&text, "# Defaults for acequia submit, run and when; written by acequia config set.\n");
    for (uint32_t i = 0; i < d->count; i++)
        buf_addf(&text, "%s%s%s = %s\n", d->at[i].template ? d->at[i].template : "", d->at[i].template ? "." : "",
                 d->at[i].option, d->at[i].value);
    int r = make_folders(c, d->path);
    if (r < 0)
        return r;
    cleanup_close int fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, text.data, text.len) != (ssize_t)text.len || fsync(fd) < 0 || rename(temp, d->path) < 0)
        return error_set(&c->error, errno ? errno : EIO, "cannot write %s: %s", d->path, strerror(errno));
    return 0;
}

static bool same_text(const char *a, const char *b) {
    return a && b ? streq(a, b) : a == b;
}

// Refuses what submit would refuse, so that no later submit fails because of a default.
static int parse_value(struct cli *c, const struct option_spec *o, const char *value) {
    const struct option_table *const tables[] = {&job_resource_options, &job_control_options, NULL};
    char *argv[] = {arena_printf(&c->arena, "--%s=%s", o->name, value)};
    struct cli_options found;
    struct spec s;
    int r = options_parse(tables, 1, argv, false, &found, &c->error);
    if (r < 0)
        return r;
    r = job_spec(c, &found, &s);
    options_done(&found);
    return r;
}

static int check_value(struct cli *c, const struct option_spec *o, const char *value) {
    if (strpbrk(value, "\n\r") || strlen(value) > 4096)
        return error_set(&c->error, EINVAL, "the value of %s must be one line of at most 4096 characters", o->name);
    if (!o->value && !streq(value, "true") && !streq(value, "false"))
        return error_set(&c->error, EINVAL, "--%s takes no value; use true or false", o->name);
    return o->value ? parse_value(c, o, value) : 0;
}

int job_defaults_change(struct cli *c, const char *template, const char *option, const char *value) {
    struct job_defaults d;
    const struct option_spec *known = find_option(option);
    if (!known)
        return error_set(&c->error, EINVAL, "submit has no option --%.60s; see acequia submit --help", option);
    if (template &&
        (!*template || strspn(template, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") !=
                           strlen(template)))
        return error_set(&c->error, EINVAL, "the name of a template has only letters, digits, _ and -");
    int r = value ? check_value(c, known, value) : 0;
    r = r < 0 ? r : job_defaults_load(c, &d);
    if (r == 0 && !d.path)
        r = error_set(&c->error, ENOENT, "HOME is not set: there is no place for defaults");
    if (r < 0)
        return r;
    uint32_t i = 0;
    while (i < d.count && !(same_text(d.at[i].template, template) && streq(d.at[i].option, option)))
        i++;
    if (!value && i == d.count)
        return error_set(&c->error, ENOENT, "%s%s%s is not set", template ? template : "", template ? "." : "", option);
    if (i == JOB_DEFAULTS_MAX)
        return error_set(&c->error, E2BIG, "there can be at most %d defaults", JOB_DEFAULTS_MAX);
    if (value) {
        d.at[i] = (struct job_default){template, option, value};
        d.count += i == d.count;
    } else {
        memmove(d.at + i, d.at + i + 1, (--d.count - i) * sizeof *d.at);
    }
    return save(c, &d);
}

static bool clashes(const struct cli_options *o, const char *option) {
    for (size_t g = 0; g < sizeof exclusive / sizeof *exclusive; g++) {
        bool member = false, given = false;
        for (int i = 0; exclusive[g][i]; i++) {
            member = member || streq(exclusive[g][i], option);
            given = given || (option_known(o, exclusive[g][i]) && option_given(o, exclusive[g][i]));
        }
        if (member && given)
            return true;
    }
    return false;
}

static int add_all(struct cli *c, const struct job_defaults *d, const char *template, struct cli_options *o) {
    struct cli_options found;
    char *argv[JOB_DEFAULTS_MAX];
    int argc = 0;
    for (uint32_t i = 0; i < d->count; i++) {
        const struct job_default *one = &d->at[i];
        const struct option_spec *s = find_option(one->option);
        if (!same_text(one->template, template) || !option_known(o, one->option) || clashes(o, one->option) ||
            (!s->value && !streq(one->value, "true")))
            continue;
        argv[argc++] = s->value ? arena_printf(&c->arena, "--%s=%s", one->option, one->value)
                                : arena_printf(&c->arena, "--%s", one->option);
    }
    int r = options_parse(o->tables, argc, argv, false, &found, &c->error);
    if (r < 0)
        return error_prefix(&c->error, "%s", d->path);
    options_add_missing(o, &found);
    options_done(&found);
    return 0;
}

bool job_defaults_have(struct cli *c, const char *template) {
    struct job_defaults d;
    if (job_defaults_load(c, &d) < 0)
        return false;
    for (uint32_t i = 0; i < d.count; i++)
        if (same_text(d.at[i].template, template))
            return true;
    return false;
}

int job_defaults_apply(struct cli *c, struct cli_options *o) {
    struct job_defaults d;
    const char *template = option_known(o, "template") ? option_get(o, "template") : NULL;
    int r = job_defaults_load(c, &d);
    if (r < 0)
        return r;
    r = template ? add_all(c, &d, template, o) : 0;
    return r < 0 ? r : add_all(c, &d, NULL, o);
}
