// Owns the folders' names.
#include "model/paths.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/text.h"

static void finish(struct arena *a, struct paths *p) {
    p->config = arena_printf(a, "%s/acequia.conf", p->config_dir);
    p->socket = arena_printf(a, "%s/api.sock", p->run);
}

// An XDG folder counts only when it is absolute, as the standard has it.
static const char *xdg(struct arena *a, const char *value, const char *home, const char *fallback) {
    if (!str_empty(value) && *value == '/')
        return arena_printf(a, "%s/acequia", value);
    return arena_printf(a, "%s/%s/acequia", home, fallback);
}

int paths_resolve(const struct paths_environment *env, struct arena *a, struct paths *out, struct error *e) {
    struct paths p = {0};
    const char *h = env->acequia_home;
    if (!str_empty(h)) {
        if (*h != '/')
            return error_set(e, EINVAL, "ACEQUIA_HOME is \"%.200s\"; set it to an absolute path", h);
        p.config_dir = arena_strdup(a, h);
        p.state = arena_printf(a, "%s/state", h);
        p.keys = arena_printf(a, "%s/keys", h);
        p.run = arena_printf(a, "%s/run", h);
        p.log = arena_printf(a, "%s/log", h);
        p.agents = arena_strdup(a, h);
        p.images = arena_printf(a, "%s/images", h);
    } else if (env->root) {
        p = (struct paths){.config_dir = "/etc/acequia", .state = "/var/lib/acequia",
                           .keys = "/var/lib/acequia-keys", .run = "/run/acequia",
                           .log = "/var/log/acequia", .agents = "/var/lib/acequia",
                           .images = "/var/cache/acequia/images"};
    } else {
        if (str_empty(env->home) || *env->home != '/')
            return error_set(e, EINVAL, "HOME is not set to an absolute path; set HOME or ACEQUIA_HOME");
        p.config_dir = xdg(a, env->xdg_config, env->home, ".config");
        p.state = xdg(a, env->xdg_state, env->home, ".local/state");
        p.keys = arena_printf(a, "%s/keys", p.config_dir);
        p.agents = p.state;
        p.images = arena_printf(a, "%s/images", p.state);
        p.log = arena_printf(a, "%s/log", p.state);
        if (!str_empty(env->xdg_runtime) && *env->xdg_runtime == '/')
            p.run = arena_printf(a, "%s/acequia", env->xdg_runtime);
        else
            p.run = arena_printf(a, "%s/run", p.state);
    }
    finish(a, &p);
    *out = p;
    return 0;
}

int paths_get(struct arena *a, struct paths *out, struct error *e) {
    struct paths_environment env = {
        .acequia_home = getenv("ACEQUIA_HOME"),
        .home = getenv("HOME"),
        .xdg_config = getenv("XDG_CONFIG_HOME"),
        .xdg_state = getenv("XDG_STATE_HOME"),
        .xdg_runtime = getenv("XDG_RUNTIME_DIR"),
        .root = geteuid() == 0,
    };
    return paths_resolve(&env, a, out, e);
}

const char *paths_agent(const struct paths *p, struct arena *a, const char *node) {
    return arena_printf(a, "%s/agent-%s", p->agents, node);
}

const char *paths_agent_spool(const struct paths *p, struct arena *a, const char *node) {
    return arena_printf(a, "%s/agent-%s/spool", p->agents, node);
}

const char *paths_pid_file(const struct paths *p, struct arena *a, const char *daemon) {
    return arena_printf(a, "%s/%s.pid", p->run, daemon);
}

const char *paths_log_file(const struct paths *p, struct arena *a, const char *daemon) {
    return arena_printf(a, "%s/%s.log", p->log, daemon);
}

static const char *own_folder(struct arena *a) {
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self);
    if (n <= 0 || (size_t)n == sizeof self)
        return NULL;
    const char *slash = memrchr(self, '/', (size_t)n);
    return slash ? arena_strndup(a, self, (size_t)(slash - self)) : NULL;
}

const char *paths_beside(struct arena *a, const char *from, const char *const *places, const char *file,
                         int mode) {
    if (!from && !(from = own_folder(a)))
        return NULL;
    for (; *places; places++) {
        char real[PATH_MAX];
        const char *folder = arena_printf(a, "%s/%s", from, *places);
        if (access(arena_printf(a, "%s/%s", folder, file), mode) == 0 && realpath(folder, real))
            return arena_strdup(a, real);
    }
    return NULL;
}

const char *paths_program(struct arena *a, const char *from, const char *module, const char *name) {
    // Where a program is installed comes first: a build folder that happens to be near must not be taken instead.
    const char *const places[] = {".",
                                  "../libexec/acequia",
                                  "../../bin",
                                  arena_printf(a, "../%s", module),
                                  arena_printf(a, "src/%s", module),
                                  arena_printf(a, "../src/%s", module),
                                  arena_printf(a, "../../%s", module),
                                  arena_printf(a, "../../../%s", module),
                                  NULL};
    const char *folder = paths_beside(a, from, places, name, X_OK);
    return folder ? arena_printf(a, "%s/%s", folder, name) : NULL;
}

// What lies above it, as far as it is missing.
static void make_parents(const char *path) {
    cleanup_buf struct buf above = {0};
    for (const char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
        buf_clear(&above);
        buf_add(&above, path, (size_t)(p - path));
        mkdir(buf_str(&above), 0755);
    }
}

int paths_make(const char *path, mode_t mode, struct error *e) {
    struct stat st;
    if (mkdir(path, mode) < 0 && errno == ENOENT)
        make_parents(path);
    if (mkdir(path, mode) < 0 && errno != EEXIST)
        return error_set(e, errno, "folder %s cannot be made: %s", path, strerror(errno));
    if (stat(path, &st) < 0)
        return error_set(e, errno, "folder %s cannot be examined: %s", path, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return error_set(e, ENOTDIR, "%s is not a folder; remove it", path);
    if (st.st_uid != geteuid() || st.st_mode & (S_IWGRP | S_IWOTH))
        return error_set(e, EPERM,
                         "folder %s belongs to user %u and has mode %03o; it must be yours, and nobody else "
                         "may write to it",
                         path, st.st_uid, st.st_mode & 0777);
    return 0;
}
