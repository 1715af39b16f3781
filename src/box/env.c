// Owns the variables inside: those of the image, over them the job's, but nothing of the job's that
// names places of the machine outside.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "box/box.h"

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

struct vars {
    struct arena *a;
    char **at;
    uint32_t len;
};

static size_t name_length(const char *entry) {
    return strcspn(entry, "=");
}

static char **find(struct vars *v, const char *entry) {
    size_t n = name_length(entry);
    for (uint32_t i = 0; i < v->len; i++)
        if (name_length(v->at[i]) == n && memcmp(v->at[i], entry, n) == 0)
            return &v->at[i];
    return NULL;
}

static void set(struct vars *v, char *entry) {
    char **known = find(v, entry);
    if (known)
        *known = entry;
    else
        v->at[v->len++] = entry;
}

static const char *value(struct vars *v, const char *name) {
    char **known = find(v, name);
    return known ? *known + name_length(*known) + 1 : NULL;
}

static bool there(const char *path) {
    return access(path, F_OK) == 0;
}

static bool of_outside(const char *entry) {
    static const char *const names[] = {"PATH=", "LD_LIBRARY_PATH=", "LD_PRELOAD=", "ACEQUIA_BOX_"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (str_has_prefix(entry, names[i]))
            return true;
    return false;
}

// The shim before the driver before the image's: what holds a job to its part of a GPU is found first.
static void set_libraries(struct vars *v, const struct box_wish *w) {
    const char *image = value(v, "LD_LIBRARY_PATH");
    // In a root that nothing could be added to, the driver is where it is outside.
    const char *driver = there(BOX_DRIVER "/lib64")        ? BOX_DRIVER "/lib64"
                         : w->driver && there(w->driver) ? w->driver
                                                         : NULL;
    const char *parts[] = {w->shim, driver, str_empty(image) ? NULL : image};
    const char *all = NULL;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (parts[i])
            all = all ? arena_printf(v->a, "%s:%s", all, parts[i]) : parts[i];
    if (all)
        set(v, arena_printf(v->a, "LD_LIBRARY_PATH=%s", all));
}

char **box_env(const struct box_wish *w, const struct box_config *c, char **job, struct arena *a) {
    uint32_t n = 0;
    while (job[n])
        n++;
    struct vars v = {.a = a, .at = arena_alloc(a, (n + c->env.len + w->env.len + 16) * sizeof(char *))};
    // Later ones win: the image's, the job's, then what must hold inside.
    for (uint32_t i = 0; i < c->env.len; i++)
        if (strchr(c->env.at[i], '=') && c->env.at[i][0] != '=')
            set(&v, arena_strdup(a, c->env.at[i]));
    for (uint32_t i = 0; i < n; i++)
        if (strchr(job[i], '=') && !of_outside(job[i]))
            set(&v, job[i]);
    const char *path = value(&v, "PATH");
    set(&v, arena_printf(a, "PATH=%s%s%s", str_empty(path) ? DEFAULT_PATH : path,
                         there(BOX_DRIVER "/bin") ? ":" BOX_DRIVER "/bin" : "", there(BOX_TOOLS) ? ":" BOX_TOOLS : ""));
    set_libraries(&v, w);
    set(&v, arena_printf(a, "ACEQUIA_CONTAINER=%s", w->image ? w->image : w->name));
    set(&v, arena_printf(a, "SLURM_CONTAINER=%s", w->image ? w->image : w->name));
    const char *tmp = value(&v, "TMPDIR");
    if (tmp && access(tmp, W_OK) < 0)
        set(&v, arena_strdup(a, "TMPDIR=/tmp"));
    const char *shell = value(&v, "SHELL");
    if (shell && access(shell, X_OK) < 0)
        set(&v, arena_strdup(a, "SHELL=/bin/sh"));
    for (uint32_t i = 0; i < w->env.len; i++)
        set(&v, arena_strdup(a, w->env.at[i]));
    return v.at;
}
