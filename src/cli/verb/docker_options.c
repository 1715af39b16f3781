// Owns the options of `docker run` and `docker exec`: what each means here, and why some are refused.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "docker.h"
#include "model/name.h"

enum does { DOES, HARMLESS, REFUSED };
enum { ENV_FILE_MAX = 1 << 20 };

struct option_row {
    const char *name;
    char letter;
    bool value;
    enum does does;
    const char *why;  // of what is refused
};

#define LIMITS "the job's limits hold; ask for them when it is submitted (--memory, --cpus, --time)"
#define ALONE "containers of jobs have no privileges and gain none"
#define NETWORK "containers use the job's network; for a port that others reach use acequia submit --port"
static const struct option_row rows[] = {
    {"add-host", 0, true, REFUSED, "names are those of the node"},
    {"attach", 'a', true, HARMLESS, NULL},
    {"cap-add", 0, true, REFUSED, ALONE},
    {"cap-drop", 0, true, HARMLESS, NULL},
    {"cpus", 0, true, REFUSED, LIMITS},
    {"cpuset-cpus", 0, true, REFUSED, LIMITS},
    {"detach", 'd', false, DOES, NULL},
    {"device", 0, true, REFUSED,
     "a job has the devices that it was given; ask for GPUs when it is submitted (--gpus)"},
    {"dns", 0, true, REFUSED, "names are those of the node"},
    {"entrypoint", 0, true, DOES, NULL},
    {"env", 'e', true, DOES, NULL},
    {"env-file", 0, true, DOES, NULL},
    {"gpus", 0, true, DOES, NULL},
    {"group-add", 0, true, REFUSED, "you are yourself in a container, with your own groups"},
    {"hostname", 'h', true, REFUSED, "a container has the node's name"},
    {"init", 0, false, HARMLESS, NULL},
    {"interactive", 'i', false, HARMLESS, NULL},
    {"ipc", 0, true, HARMLESS, NULL},
    {"label", 'l', true, HARMLESS, NULL},
    {"log-driver", 0, true, HARMLESS, NULL},
    {"memory", 'm', true, REFUSED, LIMITS},
    {"memory-swap", 0, true, REFUSED, LIMITS},
    {"mount", 0, true, DOES, NULL},
    {"name", 0, true, DOES, NULL},
    {"net", 0, true, DOES, NULL},
    {"network", 0, true, DOES, NULL},
    {"oom-kill-disable", 0, false, REFUSED, LIMITS},
    {"pid", 0, true, DOES, NULL},
    {"pids-limit", 0, true, REFUSED, LIMITS},
    {"platform", 0, true, REFUSED, "images are those of the node's own kind"},
    {"privileged", 0, false, REFUSED, ALONE},
    {"publish", 'p', true, DOES, NULL},
    {"publish-all", 'P', false, REFUSED, NETWORK},
    {"pull", 0, true, DOES, NULL},
    {"quiet", 'q', false, HARMLESS, NULL},
    {"read-only", 0, false, REFUSED,
     "what is written to a container without a name is gone at its end anyway"},
    {"restart", 0, true, DOES, NULL},
    {"rm", 0, false, DOES, NULL},
    {"runtime", 0, true, DOES, NULL},
    {"security-opt", 0, true, REFUSED, ALONE},
    {"shm-size", 0, true, HARMLESS, NULL},
    {"tmpfs", 0, true, REFUSED, "/tmp is the job's; mount a folder with -v instead"},
    {"tty", 't', false, HARMLESS, NULL},
    {"ulimit", 0, true, HARMLESS, NULL},
    {"user", 'u', true, DOES, NULL},
    {"userns", 0, true, HARMLESS, NULL},
    {"volume", 'v', true, DOES, NULL},
    {"volumes-from", 0, true, REFUSED, "name the folders with -v"},
    {"workdir", 'w', true, DOES, NULL},
};

static int refuse(struct docker *d, const char *option, const char *value, const char *why) {
    char shown[128];
    return error_set(&d->c->error, EINVAL, "docker %s%s%s is not possible inside a job: %s", option,
                     value ? " " : "", value ? str_printable(value, shown, sizeof shown) : "", why);
}

static int add_mount(struct docker *d, struct docker_run *r, const char *from, const char *to,
                     bool read_only) {
    if (*from != '/' && *from != '.')
        return refuse(
            d, "-v", from,
            "volumes of docker are not known here; give a folder with its path, or a volume with acequia "
            "submit -v NAME:/PATH");
    char *full = realpath(from, NULL);
    if (!full && errno == ENOENT && *from == '/' && mkdir(from, 0777) == 0)  // docker makes it, too
        full = realpath(from, NULL);
    if (!full)
        return error_set(&d->c->error, errno, "docker -v %s: %s", from, strerror(errno));
    const char *path = arena_strdup(&d->c->arena, full);
    free(full);
    if (strpbrk(path, ",:") || strpbrk(to, ",:") || *to != '/')
        return error_set(&d->c->error, EINVAL,
                         "docker -v %s:%s: expected FOLDER:/PATH[:ro], without commas and colons in them",
                         from, to);
    buf_addf(&r->mounts, "%s%s:%s%s", r->mounts.len ? "," : "", path, to, read_only ? ":ro" : "");
    return 0;
}

static int take_volume(struct docker *d, struct docker_run *r, const char *text) {
    char *copy = arena_strdup(&d->c->arena, text), *to = strchr(copy, ':');
    if (!to)
        return refuse(d, "-v", text, "it names no folder outside; expected FOLDER:/PATH[:ro]");
    *to++ = 0;
    char *flags = strchr(to, ':');
    if (flags)
        *flags++ = 0;
    return add_mount(d, r, copy, to, flags && name_list_have(flags, "ro"));
}

static int take_mount(struct docker *d, struct docker_run *r, const char *text) {
    char *rest = arena_strdup(&d->c->arena, text);
    const char *from = NULL, *to = NULL, *type = "volume";
    bool read_only = false;
    for (char *word; (word = strsep(&rest, ","));) {
        char *value = strchr(word, '=');
        if (value)
            *value++ = 0;
        if (streq(word, "type") && value)
            type = value;
        else if ((streq(word, "source") || streq(word, "src")) && value)
            from = value;
        else if ((streq(word, "target") || streq(word, "dst") || streq(word, "destination")) && value)
            to = value;
        else if (streq(word, "readonly") || streq(word, "ro"))
            read_only = !streq(value, "false");
    }
    if (!streq(type, "bind") || !from || !to)
        return refuse(d, "--mount", text, "expected type=bind,source=FOLDER,target=/PATH[,readonly]");
    return add_mount(d, r, from, to, read_only);
}

static void take_env(struct docker *d, struct docker_run *r, const char *text) {
    const char *value = strchr(text, '=') ? NULL : getenv(text);
    if (strchr(text, '='))
        vec_push(&r->env, text);
    else if (value)  // -e NAME: as it is here
        vec_push(&r->env, arena_printf(&d->c->arena, "%s=%s", text, value));
}

static int take_env_file(struct docker *d, struct docker_run *r, const char *path) {
    char *text = arena_alloc(&d->c->arena, ENV_FILE_MAX + 1);
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, ENV_FILE_MAX);
    if (n < 0)
        return error_set(&d->c->error, errno, "docker --env-file %s: %s", path, strerror(errno));
    for (char *line; (line = strsep(&text, "\n"));)
        if (*line && *line != '#')
            take_env(d, r, line);
    return 0;
}

// "all", a number, "device=0,1", with quotes as people write them.
static int take_gpus(struct docker *d, struct docker_run *r, const char *text) {
    uint64_t n;
    r->gpus = true;
    r->gpu_count = -1;
    if (streq(text, "all"))
        return 0;
    if (parse_u64(text, &n) == 0 && n <= DOCKER_LIST_MAX) {
        r->gpus = n > 0;
        r->gpu_count = (int64_t)n;
        return 0;
    }
    return refuse(d, "--gpus", text,
                  "expected all or a number; a job's GPUs are numbered from 0 and are all its own");
}

// Only oneself, by name or number, with or without the group.
static int take_user(struct docker *d, const char *text) {
    uint32_t uid;
    size_t n = strcspn(text, ":");
    const char *user = arena_strndup(&d->c->arena, text, n), *own = getenv("USER");
    if ((parse_u32(user, &uid) == 0 && uid == getuid()) || streq(user, own))
        return 0;
    return refuse(d, "--user", text, "you are yourself in a container; leave it out, or give your own");
}

static int take_value(struct docker *d, struct docker_run *r, const struct option_row *row, const char *v) {
    char *end;
    if (streq(row->name, "name")) {
        if (name_check("container name", v, &d->c->error) < 0)
            return -EINVAL;
        r->name = v;
    } else if (streq(row->name, "workdir")) {
        r->workdir = v;
    } else if (streq(row->name, "entrypoint")) {
        r->entrypoint = v;
    } else if (streq(row->name, "env")) {
        take_env(d, r, v);
    } else if (streq(row->name, "env-file")) {
        return take_env_file(d, r, v);
    } else if (streq(row->name, "volume")) {
        return take_volume(d, r, v);
    } else if (streq(row->name, "mount")) {
        return take_mount(d, r, v);
    } else if (streq(row->name, "gpus")) {
        return take_gpus(d, r, v);
    } else if (streq(row->name, "user")) {
        return take_user(d, v);
    } else if (streq(row->name, "pull")) {
        r->pull = v;
    } else if (streq(row->name, "runtime")) {
        return streq(v, "nvidia") ? take_gpus(d, r, "all")
                                  : refuse(d, "--runtime", v, "there is one, and nvidia");
    } else if (streq(row->name, "publish")) {
        long port = strtol(v, &end, 10);
        // The same number on both sides is what the job's network gives anyway.
        return *end == ':' && strtol(end + 1, NULL, 10) == port ? 0 : refuse(d, "-p", v, NETWORK);
    } else if (streq(row->name, "restart")) {
        return streq(v, "no") ? 0 : refuse(d, "--restart", v, "use acequia submit --retries");
    } else if (!streq(v, "host")) {  // network, net, pid
        return refuse(d, arena_printf(&d->c->arena, "--%s", row->name), v, NETWORK);
    }
    return 0;
}

static void take_flag(struct docker_run *r, const struct option_row *row) {
    if (streq(row->name, "detach"))
        r->detach = true;
    else if (streq(row->name, "rm"))
        r->remove = true;
}

static const struct option_row *find(const char *name, size_t len, char letter) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (letter ? rows[i].letter == letter
                   : strlen(rows[i].name) == len && !strncmp(rows[i].name, name, len))
            return &rows[i];
    return NULL;
}

static int unknown(struct docker *d, const char *word) {
    char shown[64];
    return error_set(&d->c->error, EINVAL, "docker: option %s is not known here; see 'acequia docker --help'",
                     str_printable(word, shown, sizeof shown));
}

static int take(struct docker *d, struct docker_run *r, const struct option_row *row, const char *value) {
    if (row->does == REFUSED)
        return refuse(d, arena_printf(&d->c->arena, "--%s", row->name), value, row->why);
    if (row->does == HARMLESS)
        return 0;
    if (row->value)
        return take_value(d, r, row, value);
    if (!streq(value, "false"))
        take_flag(r, row);
    return 0;
}

// -it, -v FOLDER:/PATH, -vFOLDER:/PATH
static int take_letters(struct docker *d, struct docker_run *r, int argc, char **argv, int *i) {
    for (const char *p = argv[*i] + 1; *p; p++) {
        const struct option_row *row = find(NULL, 0, *p);
        if (!row)
            return unknown(d, argv[*i]);
        const char *value = NULL;
        if (row->value) {
            value = p[1] ? p + 1 + (p[1] == '=') : *i + 1 < argc ? argv[++*i] : NULL;
            if (!value)
                return error_set(&d->c->error, EINVAL, "docker: -%c needs a value", *p);
        }
        int rc = take(d, r, row, value);
        if (rc < 0 || row->value)
            return rc;
    }
    return 0;
}

static int take_word(struct docker *d, struct docker_run *r, int argc, char **argv, int *i) {
    const char *word = argv[*i] + 2, *equals = strchr(word, '=');
    const struct option_row *row = find(word, equals ? (size_t)(equals - word) : strlen(word), 0);
    const char *value = equals ? equals + 1 : NULL;
    if (!row)
        return unknown(d, argv[*i]);
    if (row->value && !value && !(value = *i + 1 < argc ? argv[++*i] : NULL))
        return error_set(&d->c->error, EINVAL, "docker: --%s needs a value", row->name);
    return take(d, r, row, value);
}

int docker_options_read(struct docker *d, bool exec, int argc, char **argv, struct docker_run *r) {
    int i = 0, rc = 0;
    *r = (struct docker_run){.gpus = d->nvidia, .gpu_count = -1};
    for (; i < argc && argv[i][0] == '-' && argv[i][1] && rc == 0; i++) {
        if (streq(argv[i], "--")) {
            i++;
            break;
        }
        rc = argv[i][1] == '-' ? take_word(d, r, argc, argv, &i) : take_letters(d, r, argc, argv, &i);
    }
    if (rc < 0)
        return rc;
    if (i >= argc)
        return error_set(&d->c->error, EINVAL, "docker %s needs %s", exec ? "exec" : "run",
                         exec ? "a container and a command" : "an image");
    r->image = argv[i];
    r->argv = argv + i + 1;
    r->argc = argc - i - 1;
    if (exec && !r->argc)
        return error_set(&d->c->error, EINVAL, "docker exec needs a command after the container");
    return 0;
}

void docker_run_done(struct docker_run *r) {
    buf_done(&r->mounts);
    vec_done(&r->env);
}
