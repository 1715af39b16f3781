// Owns containers that keep what is written to them: containers/NAME in a user's folder for images.
//   rootfs/       a copy of the image's, which every process in the container writes to
//   config.json   variables and command of the image, as the image said them
//   image         the image as it was named
//   size          bytes when it was made;  use/ as of images
// A copy and not an overlay: tasks, steps and several jobs are in it at the same time, which an overlay does not bear.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "base/text.h"
#include "cache.h"
#include "model/name.h"
#include "model/units.h"

enum { ENTRIES_MAX = 4096, SMALL_MAX = 8192 };

static void put_list(struct json_writer *w, const char *key, const struct box_list *l) {
    json_open_key(w, key, '[');
    for (uint32_t i = 0; i < l->len; i++)
        json_put_str(w, l->at[i]);
    json_close(w, ']');
}

// In the form that images have it, whatever the image was.
static int write_config(const struct box_cache *c, const char *work, const struct box_config *config) {
    cleanup_buf struct buf out = {0};
    struct json_writer w = {.out = &out};
    json_open(&w, '{');
    json_open_key(&w, "config", '{');
    put_list(&w, "Env", &config->env);
    put_list(&w, "Entrypoint", &config->entrypoint);
    put_list(&w, "Cmd", &config->command);
    if (config->workdir)
        json_kv_str(&w, "WorkingDir", config->workdir);
    json_close(&w, '}');
    json_close(&w, '}');
    return box_cache_write(c, arena_printf(c->a, "%s/config.json", work), buf_str(&out));
}

// Of all containers of the user, as they were made.
static uint64_t all_bytes(const struct box_cache *c) {
    DIR *d = opendir(box_cache_path(c, "containers", ""));
    uint64_t total = 0, one;
    int n = 0;
    for (struct dirent *ent; d && n < ENTRIES_MAX && (ent = readdir(d)); n++) {
        cleanup_buf struct buf size = {0};
        if (ent->d_name[0] != '.' &&
            box_cache_read(arena_printf(c->a, "%s/containers/%s/size", c->folder, ent->d_name), &size, 64) &&
            parse_u64(buf_str(&size), &one) == 0)
            total += one;
    }
    if (d)
        closedir(d);
    return total;
}

static int copy(const struct box_cache *c, const char *root, const char *work, struct error *e) {
    cleanup_buf struct buf errors = {0};
    char *argv[] = {"cp",
                    "-R",
                    "-P",
                    "--preserve=mode,timestamps,links",
                    "--reflink=auto",
                    "--one-file-system",
                    "--",
                    arena_strdup(c->a, root),
                    arena_printf(c->a, "%s/rootfs", work),
                    NULL};
    struct box_tool t = {.argv = argv, .folder = work, .as_root = true, .errors = &errors};
    int status = box_tool_run(&t);
    if (status == 0)
        return 0;
    if (strstr(buf_str(&errors), "o space left on device") || strstr(buf_str(&errors), "isk quota exceeded"))
        return error_set(e, ENOSPC, "the image cannot be copied: no space left in %s", c->folder);
    return error_set(e, EIO, "the image cannot be copied: %s", box_tool_last_words(&errors, c->a));
}

static int put(const struct box_cache *c, const struct box_wish *w, const struct box_image *from,
               const char *work, struct error *e) {
    int rc = copy(c, from->root, work, e);
    if (rc < 0)
        return rc;
    uint64_t bytes = box_cache_size(c, work), before = all_bytes(c);
    if (bytes + before > w->cache_bytes) {
        char have[UNIT_TEXT_MAX], may[UNIT_TEXT_MAX];
        return error_set(
            e, EFBIG,
            "with it your containers take %s, and this node keeps %s of them per user (image_cache); "
            "remove some with 'acequia image remove --container NAME'",
            size_format(bytes + before, have), size_format(w->cache_bytes, may));
    }
    cleanup_close int folder = open(work, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0 || write_config(c, work, &from->config) < 0 ||
        box_cache_write(c, arena_printf(c->a, "%s/image", work), w->image) < 0 ||
        box_cache_write(c, arena_printf(c->a, "%s/size", work),
                        arena_printf(c->a, "%llu", (unsigned long long)bytes)) < 0 ||
        mkdirat(folder, "use", 0700) < 0 || syncfs(folder) < 0 ||
        rename(work, box_cache_path(c, "containers", w->name)) < 0)
        return error_set(e, errno, "it cannot be kept in %s: %m", c->folder);
    return 0;
}

static int make(const struct box_cache *c, const struct box_wish *w, struct error *e) {
    struct box_source source;
    struct box_image from = {0};
    if (str_empty(w->image))
        return error_set(e, ENOENT,
                         "it does not exist on this node; --container IMAGE names the image to make it from, "
                         "'acequia image containers' shows those that there are");
    int rc = box_image_find(w, c->a, &source, e);
    rc = rc < 0 ? rc : box_cache_get(w->cache, w->cache_bytes, &source, w->image, w->pull, c->a, &from, e);
    if (rc < 0)
        return rc;
    dprintf(STDERR_FILENO, "acequia: making container %s from image %s\n", w->name, w->image);
    const char *name = arena_printf(c->a, "container-%s.%d", w->name, getpid());
    box_cache_clear(w->cache, c->a);
    if (mkdir(box_cache_path(c, "work", name), 0700) < 0)
        return error_set(e, errno, "the folder for images %s cannot be written: %m", c->folder);
    rc = put(c, w, &from, box_cache_path(c, "work", name), e);
    if (rc < 0)
        box_remove(box_cache_path(c, "work", ""), name);
    return rc;
}

int box_named_get(const struct box_wish *w, struct arena *a, struct box_image *out, struct error *e) {
    struct box_cache c = {.folder = w->cache, .image = w->name, .a = a};
    cleanup_buf struct buf text = {0};
    int rc = box_cache_folders(&c, e);
    rc = rc < 0 ? rc : name_check("container name", w->name, e);
    if (rc < 0)
        return rc;
    const char *folder = box_cache_path(&c, "containers", w->name);
    cleanup_close int held = box_cache_lock(&c, arena_printf(a, "container-%s", w->name), "container", e);
    if (held < 0)
        return held;
    if (!box_cache_use(&c, folder)) {
        rc = make(&c, w, e);
        if (rc == 0 && !box_cache_use(&c, folder))
            rc = error_set(e, EIO, "it was removed at once");
        if (rc < 0)
            return error_prefix(e, "container %s", w->name), rc;
        box_index_write(w->cache, a);
    }
    out->root = arena_printf(a, "%s/rootfs", folder);
    out->kept = true;
    if (box_cache_read(arena_printf(a, "%s/config.json", folder), &text, BOX_CONFIG_MAX))
        rc = box_config_image(buf_str(&text), text.len, a, &out->config, e);
    return rc < 0 ? (error_prefix(e, "container %s: its configuration", w->name), rc) : 0;
}

int box_named_remove(const char *cache, const char *name, struct arena *a, struct error *e) {
    struct box_cache c = {.folder = cache, .image = name, .a = a};
    int rc = box_cache_folders(&c, e);
    rc = rc < 0 ? rc : name_check("container name", name, e);
    if (rc < 0)
        return rc;
    cleanup_close int held = box_cache_lock(&c, arena_printf(a, "container-%s", name), "container", e);
    cleanup_close int all = held < 0 ? -1 : box_cache_lock(&c, "all", NULL, e);
    if (all < 0)
        return -EIO;
    const char *folder = box_cache_path(&c, "containers", name);
    if (access(folder, F_OK) < 0)
        return error_set(e, ENOENT, "container %s does not exist on this node", name);
    if (box_cache_users(&c, folder))
        return error_set(e, EBUSY, "container %s is in use by a running job; end that first", name);
    return box_cache_discard(&c, "containers", name, e);
}
