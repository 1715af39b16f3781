// The program itself: reads what the agent asks for, finds the image, enters it, and becomes the job's
// program. A failure is one sentence on the descriptor that the shepherd left open for it.
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "box/box.h"
#include "launch/box_report.h"
#include "launch/shebang.h"

enum { FAILED_EXIT = 127, NOBODY = 65534 };

extern char **environ;

_Noreturn static void fail(enum launch_code code, const char *text) {
    char line[BOX_REPORT_MAX];
    int n = snprintf(line, sizeof line, "%u %s", code, text);
    if (write(BOX_REPORT_FD, line, n < (int)sizeof line ? (size_t)n : sizeof line - 1) < 0)
        dprintf(STDERR_FILENO, "acequia: %s\n", text);  // run by hand
    _exit(FAILED_EXIT);
}

static int take_option(struct box_wish *w, const char *name, const char *value, struct arena *a, struct error *e) {
    const struct {
        const char *name, **to;
    } texts[] = {{"--image", &w->image},     {"--cache", &w->cache},
                 {"--workdir", &w->workdir}, {"--user", &w->user},
                 {"--home", &w->home},       {"--driver", &w->driver},
                 {"--shim", &w->shim},       {"--tools", &w->tools},
                 {"--name", &w->name},       {"--entrypoint", &w->entrypoint}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (streq(name, texts[i].name)) {
            *texts[i].to = value;
            return 0;
        }
    if (streq(name, "--mounts"))
        return spec_mounts_parse("container_mounts", value, a, &w->mounts, e);
    if (streq(name, "--volumes"))
        return spec_mounts_parse("volumes", value, a, &w->volumes, e);
    if (streq(name, "--buckets"))
        return box_buckets_parse(value, a, &w->buckets, e);
    if (streq(name, "--pull")) {
        int word = schema_word_find(job_pull_words, value);
        w->pull = word < 0 ? PULL_USUAL : (enum job_pull)word;
        return 0;
    }
    if (streq(name, "--join"))
        return parse_u32(value, &w->join) < 0 || !w->join ? error_set(e, EINVAL, "--join needs a process")
                                                          : 0;
    if (streq(name, "--env")) {
        box_list_add(&w->env, a, value);
        return 0;
    }
    if (streq(name, "--device"))
        box_list_add(&w->devices, a, value);
    else if (streq(name, "--bind"))
        box_list_add(&w->binds, a, value);
    else if (!streq(name, "--cache-bytes") || parse_u64(value, &w->cache_bytes) < 0)
        return error_set(e, EINVAL, "acequia-box does not understand %s %s", name, value);
    return 0;
}

static int read_options(int argc, char **argv, struct box_wish *w, struct arena *a, struct error *e) {
    int i = 1, rc = 0;
    for (; i < argc && !streq(argv[i], "--") && rc == 0; i++) {
        if (streq(argv[i], "--script")) {
            w->script = true;
        } else if (streq(argv[i], "--login")) {
            w->login = true;
        } else if (streq(argv[i], "--ssh")) {
            w->ssh = true;
        } else if (streq(argv[i], "--docker")) {
            w->docker = true;
        } else if (streq(argv[i], "--task")) {
            w->task = true;
        } else if (i + 1 >= argc) {
            rc = error_set(e, EINVAL, "acequia-box: %s needs a value", argv[i]);
        } else {
            rc = take_option(w, argv[i], argv[i + 1], a, e);
            i++;
        }
    }
    if (rc < 0)
        return rc;
    w->argv = i < argc ? argv + i + 1 : argv + argc;
    w->argc = i < argc ? argc - i - 1 : 0;
    bool boxed = w->image || w->name;
    if ((!boxed && !w->volumes.len && !w->buckets.len && !w->task && !w->join) || !w->cache ||
        !w->cache_bytes || ((w->script || !boxed) && !w->argc))
        return error_set(e, EINVAL,
                         "acequia-box is started by the agent: --image, --name or --volumes, --cache and "
                         "--cache-bytes are "
                         "needed");
    return 0;
}

static void add_all(struct box_list *to, const struct box_list *from, struct arena *a) {
    for (uint32_t i = 0; i < from->len; i++)
        box_list_add(to, a, from->at[i]);
}

// A command takes the place of the image's own, its entry point included.
static char **choose_command(const struct box_wish *w, const struct box_config *c, struct arena *a) {
    struct box_list own = {0};
    if (w->login) {
        box_list_add(&own, a, access("/bin/bash", X_OK) == 0 ? "/bin/bash" : "/bin/sh");
        box_list_add(&own, a, "-l");
    } else if (w->argc && !w->docker) {
        return w->argv;
    } else {
        if (!w->docker || !w->entrypoint)
            add_all(&own, &c->entrypoint, a);
        else if (*w->entrypoint)
            box_list_add(&own, a, w->entrypoint);
        for (int i = 0; i < w->argc; i++)
            box_list_add(&own, a, w->argv[i]);
        if (!w->argc && !w->entrypoint)
            add_all(&own, &c->command, a);
    }
    if (!own.len)
        fail(LAUNCH_COMMAND, "the image names no command of its own; give one after --");
    char **argv = arena_alloc(a, (own.len + 1) * sizeof *argv);
    for (uint32_t i = 0; i < own.len; i++)
        argv[i] = arena_strdup(a, own.at[i]);
    return argv;
}

_Noreturn static void exec_failed(const char *command, int err, struct arena *a) {
    struct stat st;
    if ((err == ENOENT || err == ENOTDIR) && strchr(command, '/') && stat(command, &st) == 0)
        fail(LAUNCH_INTERPRETER, arena_printf(a, "command %s names an interpreter or loader that does not exist in "
                                              "the image", command));
    if (err == ENOENT || err == ENOTDIR)
        fail(LAUNCH_COMMAND, arena_printf(a, "command %s not found in the image", command));
    if (err == EACCES || err == EPERM)
        fail(LAUNCH_PERMISSION, arena_printf(a, "command %s may not be executed in the image", command));
    if (err == ENOEXEC)
        fail(LAUNCH_FORMAT, arena_printf(a, "command %s is neither a program of this machine's kind nor a script "
                                         "that begins with #! and an interpreter", command));
    fail(LAUNCH_COMMAND, arena_printf(a, "command %s cannot be executed in the image: %s", command, strerror(err)));
}

static void search_and_exec(char **argv, char **env, struct arena *a) {
    const char *path = NULL, *command = argv[0];
    int err = ENOENT;
    for (char **p = env; *p; p++)
        if (str_has_prefix(*p, "PATH="))
            path = *p + strlen("PATH=");
    if (strchr(command, '/') || !*command) {
        execve(command, argv, env);
        exec_failed(command, errno, a);
    }
    for (const char *p = path; p && *p;) {
        size_t n = strcspn(p, ":");
        execve(arena_printf(a, "%.*s/%s", (int)n, p, command), argv, env);
        if (errno != ENOENT && errno != ENOTDIR)
            err = errno;
        if (err != ENOENT && err != EACCES)
            break;
        p += n + (p[n] == ':');
    }
    exec_failed(command, err, a);
}

_Noreturn static void become(const struct box_wish *w, const struct box_config *c, char **env, struct arena *a) {
    struct shebang s;
    char text[SHEBANG_MAX + 128];
    if (!w->script) {
        search_and_exec(choose_command(w, c, a), env, a);
        _exit(FAILED_EXIT);
    }
    enum launch_code code = launch_shebang_read(w->argv[0], &s, text, sizeof text);
    if (code != LAUNCH_OK)
        fail(code, text);
    char **argv = arena_alloc(a, ((size_t)w->argc + 3) * sizeof *argv);
    int n = 0;
    argv[n++] = s.interpreter;
    if (s.argument)
        argv[n++] = s.argument;
    for (int i = 0; i < w->argc; i++)
        argv[n++] = w->argv[i];
    execve(s.interpreter, argv, env);
    if (errno == ENOENT || errno == ENOTDIR)
        fail(LAUNCH_INTERPRETER, arena_printf(a, "the script's interpreter %s does not exist in the image",
                                              s.interpreter));
    exec_failed(s.interpreter, errno, a);
}

// Whether users can have containers here: asked once by the agent, as somebody without any privilege.
static int probe(void) {
    struct error e = {0};
    if (geteuid() == 0 && (setresgid(NOBODY, NOBODY, NOBODY) < 0 || setresuid(NOBODY, NOBODY, NOBODY) < 0))
        return FAILED_EXIT;
    prctl(PR_SET_DUMPABLE, 1);  // the change of user took it, and with it our own files in /proc
    if (box_namespaces(CLONE_NEWNS, geteuid(), getegid(), &e) == 0)
        return 0;
    printf("%s\n", e.text);
    return 1;
}

// Its failure is that of the job's program, not of its start.
static int run_task(const struct box_wish *w, struct arena *a) {
    struct error e = {0};
    close(BOX_REPORT_FD);
    if (box_task(w, a, &e) == 0)
        return 0;
    fflush(stdout);
    dprintf(STDERR_FILENO, "acequia: %s\n", e.text);
    return 1;
}

_Noreturn static void enter_running(const struct box_wish *w, struct arena *a) {
    struct error e = {0};
    char **env = box_join_environment((pid_t)w->join, a);
    uint32_t n = 0;
    while (env[n])
        n++;
    char **all = arena_alloc(a, (n + w->env.len + 1) * sizeof *all);
    uint32_t len = 0;
    for (uint32_t i = 0; i < w->env.len; i++)  // the first of a name is the one that is found
        all[len++] = arena_strdup(a, w->env.at[i]);
    for (uint32_t i = 0; i < n; i++)
        all[len++] = env[i];
    if (box_join((pid_t)w->join, w->workdir, &e) < 0)
        fail(LAUNCH_IMAGE, e.text);
    search_and_exec(w->argv, all, a);
    _exit(FAILED_EXIT);
}

int main(int argc, char **argv) {
    cleanup_arena struct arena a = {0};
    struct box_senders senders = {0};
    struct box_wish w = {.senders = &senders};
    struct box_source source;
    struct box_image image = {0};
    struct error e = {0};
    char cwd[4096];
    if (argc > 0 && box_is_fusermount(argv[0]))
        return box_fusermount(argc, argv);
    if (argc == 2 && streq(argv[1], "--probe"))
        return probe();
    fcntl(BOX_REPORT_FD, F_SETFD, FD_CLOEXEC);
    int rc = read_options(argc, argv, &w, &a, &e);
    if (rc < 0)
        fail(LAUNCH_REQUEST, e.text);
    if (!getcwd(cwd, sizeof cwd))
        fail(LAUNCH_CWD, "the working directory has no path");
    if (w.task)
        return run_task(&w, &a);
    if (w.join)
        enter_running(&w, &a);
    if (w.name)
        rc = box_named_get(&w, &a, &image, &e);
    else if (w.image)
        rc = box_image_find(&w, &a, &source, &e);
    if (rc == 0 && w.image && !w.name)
        rc = box_cache_get(w.cache, w.cache_bytes, &source, w.image, w.pull, &a, &image, &e);
    if (rc == 0)
        rc = box_enter(&w, &image, w.script ? w.argv[0] : NULL, cwd, &a, &e);
    if (rc < 0)
        fail(rc == -ENOSPC || rc == -EDQUOT ? LAUNCH_DISK : LAUNCH_IMAGE, e.text);
    box_buckets_wait(&senders);
    become(&w, &image.config, w.image || w.name ? box_env(&w, &image.config, environ, &a) : environ, &a);
}
