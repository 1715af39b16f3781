// Owns the options of acequia-box. All of them are derived from the request itself (its user, its
// environment with the GPUs that were granted), so that steps find theirs the same way as jobs.
#include "agent/launch/container.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/text.h"
#include "device/gpu.h"
#include "model/config.h"
#include "model/name.h"
#include "model/paths.h"
#include "model/secret.h"

#define BOX_VARIABLE "ACEQUIA_BOX_OPTIONS"
enum { BOX_ARGS_MAX = 512, PROBE_TEXT_MAX = 512 };

struct args {
    struct arena *a;
    char **at;
    uint32_t len;
};

static void add(struct args *s, const char *option, const char *value) {
    if (!value || s->len + 2 > BOX_ARGS_MAX)
        return;
    s->at[s->len++] = arena_strdup(s->a, option);
    s->at[s->len++] = arena_strdup(s->a, value);
}

static const char *variable(const struct launch_request *r, const char *name) {
    size_t n = strlen(name);
    for (uint32_t i = 0; i < r->nenv; i++)
        if (strncmp(r->env[i], name, n) == 0 && r->env[i][n] == '=')
            return r->env[i] + n + 1;
    return NULL;
}

static void add_nodes(struct args *s, const struct gpu_nodes *files) {
    for (uint32_t i = 0; i < files->count; i++)
        add(s, "--device", files->paths[i]);
}

// Exactly the GPUs that were granted, as their indices were told to the job or step.
static void add_gpus(struct args *s, const struct request_node *node, const struct launch_request *r) {
    const char *step = r->step ? variable(r, "SLURM_STEP_GPUS") : NULL;
    const char *list = step ? step : variable(r, "ACEQUIA_JOB_GPUS");
    struct gpu_nodes files;
    bool any = false;
    for (const char *p = list; p && *p;) {
        size_t n = strcspn(p, ",");
        uint32_t index;
        if (parse_u32(arena_strndup(s->a, p, n), &index) == 0 && index < node->node->gpus.len) {
            gpu_nodes(&node->node->gpus.at[index], &files);
            add_nodes(s, &files);
            any = true;
        }
        p += n + (p[n] == ',');
    }
    if (!any)
        return;
    gpu_common_nodes(&files);
    add_nodes(s, &files);
    add(s, "--driver", node->driver_folder);
    if (!variable(r, "ACEQUIA_GPU_LEDGER_DIR"))
        return;
    const char *path = variable(r, "LD_LIBRARY_PATH");  // the shim comes first in it
    cleanup_free char *shim = path ? realpath(arena_strndup(s->a, path, strcspn(path, ":")), NULL) : NULL;
    add(s, "--shim", shim);
    add(s, "--bind", variable(r, "ACEQUIA_GPU_LEDGER_DIR"));
    add(s, "--bind", variable(r, "ACEQUIA_GPU_ARBITER_DIR"));
}

// Files of secrets are in the attempt's spool folder and have the same path inside.
static void add_secrets(struct args *s, const struct launch_request *r) {
    const char *names = variable(r, SECRET_FILES);
    size_t len;
    for (const char *at; (at = name_list_next(&names, &len));)
        add(s, "--bind", variable(r, arena_strndup(s->a, at, len)));
}

// Only its owner may look into a user's folder; the one above belongs to the agent.
static int make_cache(const struct request_node *node, const struct launch_request *r, struct arena *a,
                      const char **out, struct error *e) {
    const char *path = arena_printf(a, "%s/%u", node->image_folder, r->uid);
    int rc = paths_make(node->image_folder, 0711, e);
    if (rc < 0)
        return rc;
    if (mkdir(path, 0700) == 0) {
        if (r->switch_user && lchown(path, r->uid, r->gid) < 0) {
            rc = error_set(e, errno, "the folder for images %s cannot be given to its user: %m", path);
            rmdir(path);
        }
    } else if (errno != EEXIST) {
        rc = error_set(e, errno, "the folder for images %s cannot be made: %m", path);
    }
    *out = path;
    return rc;
}

static void set_variable(struct launch_request *r, const char *name, const char *value, struct arena *a) {
    size_t n = strlen(name);
    char **env = arena_alloc(a, (r->nenv + 2) * sizeof *env);
    uint32_t len = 0;
    for (uint32_t i = 0; i < r->nenv; i++)
        if (strncmp(r->env[i], name, n) != 0 || r->env[i][n] != '=')
            env[len++] = r->env[i];
    if (value)
        env[len++] = arena_printf(a, "%s=%s", name, value);
    if (!value && len == r->nenv)
        return;  // it was not there
    r->env = env;
    r->nenv = len;
}

// How a job starts containers of its own, for docker's words (cli/verb/docker.c): acequia-box and the options that this
// job has, separated by tabs. In a container there is none.
static void tell_box(const struct request_node *node, struct launch_request *r, const struct args *s,
                     struct arena *a) {
    cleanup_buf struct buf out = {0};
    for (uint32_t i = 0; s && i < s->len; i++)
        buf_addf(&out, "%s%s", i ? "\t" : "", s->at[i]);
    set_variable(r, BOX_VARIABLE, s && !node->no_containers ? buf_str(&out) : NULL, a);
}

int agent_container_apply(const struct request_node *node, struct launch_request *r,
                          const struct container_wish *w, bool login, struct arena *a, struct error *e) {
    struct args s = {.a = a, .at = arena_alloc(a, (BOX_ARGS_MAX + 2) * sizeof(char *))};
    const char *cache = NULL;
    bool host = str_empty(w->image) && str_empty(w->name);
    bool plain = host && str_empty(w->volumes) && str_empty(w->buckets) && !w->task;
    if (node->no_containers || !host)
        tell_box(node, r, NULL, a);
    if (node->no_containers)
        return plain ? 0 : error_set(e, ENOTSUP, "%s", node->no_containers);
    int rc = make_cache(node, r, a, &cache, e);
    if (rc < 0)
        return plain ? 0 : rc;
    s.at[s.len++] = arena_strdup(a, node->box_path);
    add(&s, "--image", str_empty(w->image) ? NULL : w->image);
    add(&s, "--name", str_empty(w->name) ? NULL : w->name);
    add(&s, "--pull", w->pull && w->pull < PULL_COUNT ? job_pull_words[w->pull] : NULL);
    add(&s, "--cache", cache);
    add(&s, "--cache-bytes", arena_printf(a, "%llu", (unsigned long long)node->image_cache_bytes));
    add(&s, "--mounts", str_empty(w->mounts) ? NULL : w->mounts);
    add(&s, "--volumes", str_empty(w->volumes) ? NULL : w->volumes);
    add(&s, "--buckets", str_empty(w->buckets) ? NULL : w->buckets);
    add(&s, "--workdir", str_empty(w->workdir) ? NULL : w->workdir);
    add(&s, "--user", variable(r, "USER"));
    add(&s, "--home", variable(r, "HOME"));
    add(&s, "--tools", node->tools_path);
    add(&s, "--bind", node->socket_folder);
    add_secrets(&s, r);
    add_gpus(&s, node, r);
    if (host) {  // without what this job alone is started with
        struct args own = {.a = a, .at = arena_alloc(a, (s.len + 1) * sizeof(char *))};
        for (uint32_t i = 0; i < s.len; i++) {
            bool left = streq(s.at[i], "--volumes") || streq(s.at[i], "--buckets") ||
                        streq(s.at[i], "--workdir") || streq(s.at[i], "--mounts");
            if (left)
                i++;
            else
                own.at[own.len++] = s.at[i];
        }
        tell_box(node, r, &own, a);
    }
    if (plain)
        return 0;
    if (login && !host) {
        s.at[s.len++] = arena_strdup(a, "--login");
        r->argc = 0;
    }
    if (w->task)
        s.at[s.len++] = arena_strdup(a, "--task");
    if (w->ssh && !host)
        s.at[s.len++] = arena_strdup(a, "--ssh");
    r->box = s.at;
    r->boxc = s.len;
    return launch_check(r, e);
}

struct container_wish agent_container_of(const struct launch_request *r) {
    struct container_wish w = {0};
    for (uint32_t i = 1; i + 1 < r->boxc; i += 2) {
        if (streq(r->box[i], "--image"))
            w.image = r->box[i + 1];
        else if (streq(r->box[i], "--mounts"))
            w.mounts = r->box[i + 1];
        else if (streq(r->box[i], "--volumes"))
            w.volumes = r->box[i + 1];
        else if (streq(r->box[i], "--buckets"))
            w.buckets = r->box[i + 1];
        else if (streq(r->box[i], "--workdir"))
            w.workdir = r->box[i + 1];
        else if (streq(r->box[i], "--name"))
            w.name = r->box[i + 1];
    }
    return w;
}

// Where the loader found the driver: the library that GPUs are read through is loaded already.
static const char *driver_folder(struct arena *a) {
    void *h = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_NOLOAD);
    struct link_map *map = NULL;
    const char *out = NULL;
    if (h && dlinfo(h, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name && *map->l_name == '/')
        out = arena_strndup(a, map->l_name, (size_t)(strrchr(map->l_name, '/') - map->l_name));
    if (h)
        dlclose(h);
    return out;
}

// Tried once, by a process without privilege, as jobs will.
static const char *probe(struct agent_node *a, const char *box) {
    char text[PROBE_TEXT_MAX] = "";
    int out[2], status;
    if (pipe2(out, O_CLOEXEC) < 0)
        return "containers cannot be run on this node: it is out of descriptors";
    pid_t pid = fork();
    if (pid == 0) {
        dup2(out[1], STDOUT_FILENO);
        execl(box, box, "--probe", (char *)NULL);
        _exit(127);
    }
    close(out[1]);
    ssize_t n = pid < 0 ? -1 : read(out[0], text, sizeof text - 1);
    close(out[0]);
    if (pid > 0 && waitpid(pid, &status, 0) == pid && status == 0)
        return NULL;
    text[n > 0 ? n : 0] = 0;
    text[strcspn(text, "\n")] = 0;
    return *text ? arena_strdup(&a->arena, text) : "containers cannot be run on this node: acequia-box fails";
}

void agent_container_describe(struct agent_node *a, const struct config_node *c, const char *images,
                              const char *socket) {
    struct request_node *n = &a->request_node;
    const char *folder = !str_empty(c->image_folder) ? c->image_folder : images;
    n->image_folder = folder ? folder : arena_printf(&a->arena, "%s/images", a->folder);
    n->image_cache_bytes = c->image_cache_bytes;
    n->box_path = paths_program(&a->arena, NULL, "box", "acequia-box");
    n->tools_path = paths_program(&a->arena, NULL, "cli", "acequia");
    n->mpi_path = paths_program(&a->arena, NULL, "mpi", "acequia-mpi");
    n->tasks_path = paths_program(&a->arena, NULL, "tasks", "acequia-tasks");
    n->data_path = paths_program(&a->arena, NULL, "data", "acequia-data");
    // Its folder: a controller that starts anew makes a new socket in it.
    const char *slash = socket ? strrchr(socket, '/') : NULL;
    n->socket_folder = slash && slash > socket ? arena_strndup(&a->arena, socket, (size_t)(slash - socket)) : NULL;
    n->driver_folder = driver_folder(&a->arena);
    n->no_containers = n->box_path ? probe(a, n->box_path)
                                   : "containers cannot be run on this node: acequia-box is not installed";
    a->node.containers = !n->no_containers;
    if (n->no_containers)
        log_warn("%s", n->no_containers);
}
