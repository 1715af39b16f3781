// Owns images that were built on this node: local/HASH in a user's folder for images, with
//   layout/   the image as an OCI layout, under the name "image"
//   name      its name with its tag;  digest, size
// and the file `index`: what there is of all kinds, which the agent reads and reports (model/image.h).
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "base/text.h"
#include "cache.h"
#include "model/image.h"
#include "model/units.h"

enum { ENTRIES_MAX = 4096, SMALL_MAX = 16 << 10, LAYOUT_INDEX_MAX = 256 << 10 };

static void cleanup_closedir_fn(DIR **d) {
    if (*d)
        closedir(*d);
}
#define cleanup_closedir cleanup(cleanup_closedir_fn)

const char *box_local_title(const char *name, struct arena *a) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/:";
    if (str_has_prefix(name, "localhost/"))
        name += strlen("localhost/");
    size_t n = strlen(name);
    if (!n || n >= IMAGE_NAME_MAX / 2 || strspn(name, letters) != n || strchr("./:-", *name) ||
        strchr("/:", name[n - 1]) || strstr(name, ".."))
        return NULL;
    const char *slash = strrchr(name, '/');
    return strchr(slash ? slash : name, ':') ? arena_strdup(a, name) : arena_printf(a, "%s:latest", name);
}

// The first line of a small file; NULL: there is none.
static const char *line_of(const struct box_cache *c, const char *path) {
    cleanup_buf struct buf b = {0};
    if (!box_cache_read(path, &b, SMALL_MAX) || !b.len)
        return NULL;
    return arena_strndup(c->a, b.data, strcspn(b.data, "\n"));
}

static const char *in_local(const struct box_cache *c, const char *title, const char *file) {
    return arena_printf(c->a, "%s/local/%s%s%s", c->folder, box_cache_hash(title, c->a), file ? "/" : "",
                        file ? file : "");
}

static bool there(const struct box_cache *c, const char *title) {
    return streq(line_of(c, in_local(c, title, "name")), title);
}

bool box_local_find(const char *cache, const char *name, struct arena *a, struct box_source *out) {
    struct box_cache c = {.folder = cache, .image = name, .a = a};
    const char *title = box_local_title(name, a);
    return title && there(&c, title) &&
           box_source_find(arena_printf(a, "%s:image", in_local(&c, title, "layout")), a, out, NULL) == 0;
}

int box_image_find(const struct box_wish *w, struct arena *a, struct box_source *out, struct error *e) {
    struct stat st;
    // A file or folder of that name comes first, as it did before images were built here.
    if (!str_has_prefix(w->image, "docker://") && w->pull != PULL_ALWAYS &&
        (w->docker || stat(w->image, &st) < 0) && box_local_find(w->cache, w->image, a, out))
        return 0;
    return box_source_find(w->image, a, out, e);
}

static const char *layout_digest(const struct box_cache *c, const char *layout) {
    cleanup_buf struct buf b = {0};
    struct json *root = NULL;
    if (!box_cache_read(arena_printf(c->a, "%s/index.json", layout), &b, LAYOUT_INDEX_MAX) ||
        json_parse(buf_str(&b), b.len, c->a, &root, NULL) < 0)
        return NULL;
    const struct json *all = json_get(root, "manifests");
    return all && all->type == JSON_ARRAY && all->len ? json_str(&all->items[0], "digest") : NULL;
}

static uint64_t bytes_of(const struct box_cache *c, const char *folder) {
    const char *text = line_of(c, arena_printf(c->a, "%s/size", folder));
    uint64_t bytes = 0;
    return text && parse_u64(text, &bytes) == 0 ? bytes : 0;
}

static uint64_t all_bytes(const struct box_cache *c) {
    cleanup_closedir DIR *d = opendir(box_cache_path(c, "local", ""));
    uint64_t total = 0;
    int n = 0;
    for (struct dirent *ent; d && n < ENTRIES_MAX && (ent = readdir(d)); n++)
        if (ent->d_name[0] != '.')
            total += bytes_of(c, box_cache_path(c, "local", ent->d_name));
    return total;
}

// What had the name goes when the new one is in its place.
static int put_in_place(const struct box_cache *c, const char *work, const char *title, struct error *e) {
    const char *hash = box_cache_hash(title, c->a), *place = in_local(c, title, NULL);
    if (access(place, F_OK) == 0 && box_cache_discard(c, "local", hash, e) < 0)
        return -EIO;
    cleanup_close int fd = open(work, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || syncfs(fd) < 0 || rename(work, place) < 0)
        return error_set(e, errno, "image %s cannot be kept in %s: %m", title, c->folder);
    return 0;
}

int box_local_put(const struct box_wish *w, const char *work, const char *name, struct arena *a,
                  struct error *e) {
    struct box_cache c = {.folder = w->cache, .image = name, .a = a};
    const char *title = box_local_title(name, a), *layout = arena_printf(a, "%s/layout", work);
    const char *digest = layout_digest(&c, layout);
    if (!title || !digest)
        return error_set(e, EBADMSG, "image %s cannot be kept: its layout is not whole", name);
    cleanup_close int held = box_cache_lock(&c, "local", NULL, e);
    if (held < 0)
        return held;
    uint64_t bytes = box_cache_size(&c, layout), total = all_bytes(&c) + bytes;
    if (there(&c, title))
        total -= bytes_of(&c, in_local(&c, title, NULL));
    if (total > w->cache_bytes) {
        char have[UNIT_TEXT_MAX], may[UNIT_TEXT_MAX];
        return error_set(e, EFBIG,
                         "with it the images that you built take %s, and this node keeps %s of them per user "
                         "(image_cache); remove some with 'acequia image remove NAME'",
                         size_format(total, have), size_format(w->cache_bytes, may));
    }
    if (box_cache_write(&c, arena_printf(a, "%s/size", work),
                        arena_printf(a, "%llu\n", (unsigned long long)bytes)) < 0 ||
        box_cache_write(&c, arena_printf(a, "%s/digest", work), arena_printf(a, "%s\n", digest)) < 0 ||
        box_cache_write(&c, arena_printf(a, "%s/name", work), arena_printf(a, "%s\n", title)) < 0)
        return error_set(e, errno, "image %s cannot be kept in %s: %m", title, w->cache);
    return put_in_place(&c, work, title, e);
}

int box_local_remove(const char *cache, const char *name, struct arena *a, struct error *e) {
    struct box_cache c = {.folder = cache, .image = name, .a = a};
    const char *title = box_local_title(name, a);
    int rc = box_cache_folders(&c, e);
    if (rc < 0)
        return rc;
    cleanup_close int held = box_cache_lock(&c, "local", NULL, e);
    if (held < 0)
        return held;
    if (!title || !there(&c, title))
        return error_set(e, ENOENT, "image %s does not exist on this node", name);
    return box_cache_discard(&c, "local", box_cache_hash(title, a), e);
}

// Nothing in a layout is ever written to again, so both names can have the same files.
int box_local_tag(const char *cache, const char *name, const char *other, struct arena *a, struct error *e) {
    struct box_cache c = {.folder = cache, .image = name, .a = a};
    const char *title = box_local_title(name, a), *new = box_local_title(other, a);
    const char *work = arena_printf(a, "%s/work/tag.%d", cache, getpid());
    cleanup_buf struct buf errors = {0};
    if (!title || !there(&c, title))
        return error_set(e, ENOENT, "image %s does not exist on this node", name);
    if (!new)
        return error_set(e, EINVAL,
                         "\"%s\" cannot be the name of an image; expected NAME[:TAG] or HOST/NAME[:TAG]",
                         other);
    char *argv[] = {"cp", "-al", "--", arena_strdup(a, in_local(&c, title, NULL)), arena_strdup(a, work),
                    NULL};
    struct box_tool t = {.argv = argv, .folder = cache, .errors = &errors};
    if (box_tool_run(&t) != 0)
        return error_set(e, EIO, "image %s cannot be copied: %s", title, box_tool_last_words(&errors, a));
    // The files beside the layout differ between the names.
    unlink(arena_printf(a, "%s/name", work));
    cleanup_close int held = box_cache_lock(&c, "local", NULL, e);
    int rc = held < 0 ? held : 0;
    if (rc == 0 && box_cache_write(&c, arena_printf(a, "%s/name", work), arena_printf(a, "%s\n", new)) < 0)
        rc = error_set(e, errno, "image %s cannot be kept: %m", new);
    rc = rc < 0 ? rc : put_in_place(&c, work, new, e);
    if (rc < 0)
        box_remove(box_cache_path(&c, "work", ""), strrchr(work, '/') + 1);
    return rc;
}

static int64_t made_ms(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 ? (int64_t)st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000 : 0;
}

static uint32_t index_folder(const struct box_cache *c, enum image_kind kind, struct buf *out) {
    const char *parent = kind == IMAGE_BUILT ? "local" : "containers";
    cleanup_closedir DIR *d = opendir(box_cache_path(c, parent, ""));
    uint32_t n = 0;
    for (struct dirent *ent; d && n < IMAGES_PER_USER && (ent = readdir(d));) {
        const char *folder = box_cache_path(c, parent, ent->d_name);
        const char *size = arena_printf(c->a, "%s/size", folder);
        bool built = kind == IMAGE_BUILT;
        struct node_image i = {
            .kind = kind,
            .name = built ? line_of(c, arena_printf(c->a, "%s/name", folder)) : ent->d_name,
            .digest = built ? line_of(c, arena_printf(c->a, "%s/digest", folder)) : NULL,
            .image = built ? NULL : line_of(c, arena_printf(c->a, "%s/image", folder)),
            .bytes = bytes_of(c, folder),
            .made_ms = made_ms(size),
        };
        if (ent->d_name[0] == '.' || !i.name)
            continue;
        image_index_line(out, &i);
        n++;
    }
    return n;
}

// "docker://HOST/NAME:TAG", "docker-archive:/FILE …", "/FILE …": as people name it.
static const char *plain_name(const struct box_cache *c, const char *identity) {
    static const char *const begins[] = {"docker://", "docker-archive:", "oci-archive:", "oci:"};
    char *name = arena_strndup(c->a, identity, strcspn(identity, " \n"));
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (str_has_prefix(name, begins[i]))
            return name + strlen(begins[i]);
    return name;
}

static void index_fetched(const struct box_cache *c, uint32_t n, struct buf *out) {
    const char *own = arena_printf(c->a, "%s/local/", c->folder);
    cleanup_closedir DIR *d = opendir(box_cache_path(c, "refs", ""));
    for (struct dirent *ent; d && n < IMAGES_PER_USER && (ent = readdir(d));) {
        cleanup_buf struct buf b = {0};
        if (ent->d_name[0] == '.' || strchr(ent->d_name, '.') ||
            !box_cache_read(box_cache_path(c, "refs", ent->d_name), &b, SMALL_MAX) || !b.len)
            continue;
        const char *name = plain_name(c, b.data), *second = strchr(b.data, '\n');
        char *digest = second ? arena_strndup(c->a, second + 1, strcspn(second + 1, "\n")) : NULL;
        const char *folder = digest ? box_cache_path(c, "store", digest) : NULL;
        const char *size = folder ? arena_printf(c->a, "%s/size", folder) : NULL;
        if (!size || strchr(digest, '/') || access(size, F_OK) < 0 || str_has_prefix(name, own))
            continue;
        char *dash = strchr(digest, '-');
        struct node_image i = {
            .kind = IMAGE_FETCHED, .name = name, .bytes = bytes_of(c, folder), .made_ms = made_ms(size)};
        if (dash && !str_has_prefix(digest, "file-")) {
            *dash = ':';
            i.digest = digest;
        }
        image_index_line(out, &i);
        n++;
    }
}

void box_index_write(const char *cache, struct arena *a) {
    struct box_cache c = {.folder = cache, .image = "", .a = a};
    const char *path = arena_printf(a, "%s/index", cache);
    cleanup_buf struct buf out = {0}, old = {0};
    cleanup_close int held = box_cache_lock(&c, "index", NULL, NULL);
    if (held < 0)
        return;
    uint32_t n = index_folder(&c, IMAGE_CONTAINER, &out);
    n += index_folder(&c, IMAGE_BUILT, &out);
    index_fetched(&c, n, &out);
    if (!box_cache_read(path, &old, IMAGE_INDEX_MAX) || !streq(buf_str(&old), buf_str(&out)))
        box_cache_write(&c, path, buf_str(&out));
}
