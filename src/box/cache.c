// Owns the unpacked images of one user on one node:
//   store/DIGEST/   rootfs, config.json, size, use/PID.START per process that runs in it
//   refs/HASH       which digest a name or file was last found to mean
//   work/NAME.PID   what is being made; renamed into the store when it is whole and on the disk
//   locks/          one per name and per digest: one process makes an image, others wait
//   containers/     kept by name (named.c);  local/ images that were built here (local.c);  index: what there is
// Locks are the kernel's and go with their process, so a kill at any moment leaves at most a folder in
// work/ that the next one clears away.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/process.h"
#include "base/text.h"
#include "cache.h"
#include "model/units.h"

enum {
    ENTRIES_MAX = 4096,
    BLOCK = 512,
    REF_MAX = 16 << 10,
    QUIET_WAIT_MS = 2000,  // a shorter wait is not worth a line in the job's output
    LOOK_MS = 10,
};

static void cleanup_closedir_fn(DIR **d) {
    if (*d)
        closedir(*d);
}
#define cleanup_closedir cleanup(cleanup_closedir_fn)

const char *box_cache_path(const struct box_cache *c, const char *folder, const char *name) {
    return arena_printf(c->a, "%s/%s/%s", c->folder, folder, name);
}

int box_cache_folders(const struct box_cache *c, struct error *e) {
    static const char *const names[] = {"", "store", "refs", "work", "locks", "stage", "containers", "local"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *path = arena_printf(c->a, "%s/%s", c->folder, names[i]);
        if (mkdir(path, 0700) < 0 && errno != EEXIST)
            return error_set(e, errno, "the folder for images %s cannot be made: %m", path);
    }
    return 0;
}

int box_cache_lock(const struct box_cache *c, const char *name, const char *what, struct error *e) {
    static const struct timespec look = {.tv_nsec = LOOK_MS * 1000000L};
    int fd = open(box_cache_path(c, "locks", name), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600), rc;
    if (fd < 0)
        return error_set(e, errno, "the folder for images %s cannot be written: %m", c->folder);
    for (int waited = 0; (rc = flock(fd, LOCK_EX | LOCK_NB)) < 0 && what && waited < QUIET_WAIT_MS; waited += LOOK_MS)
        nanosleep(&look, NULL);
    if (rc == 0)
        return fd;
    if (what)
        dprintf(STDERR_FILENO, "acequia: waiting for %s %s, which another process prepares\n", what, c->image);
    do
        rc = flock(fd, LOCK_EX);
    while (rc < 0 && errno == EINTR);
    if (rc == 0)
        return fd;
    close(fd);
    return error_set(e, errno, "the folder for images %s cannot be locked: %m", c->folder);
}

// Two independent hashes: enough to keep one user's own names apart; the text is compared as well.
const char *box_cache_hash(const char *text, struct arena *a) {
    uint64_t h = 14695981039346656037u, k = 7809847782465536322u;
    for (; *text; text++) {
        h = (h ^ (unsigned char)*text) * 1099511628211u;
        k = (k + (unsigned char)*text) * 6364136223846793005u + 1442695040888963407u;
    }
    return arena_printf(a, "%016" PRIx64 "%016" PRIx64, h, k ^ (k >> 29));
}

// Clears marks of processes that have ended; how many are left.
uint32_t box_cache_users(const struct box_cache *c, const char *folder) {
    cleanup_closedir DIR *d = opendir(arena_printf(c->a, "%s/use", folder));
    uint32_t n = 0;
    for (struct dirent *ent; d && (ent = readdir(d));) {
        unsigned long long start;
        int pid;
        if (sscanf(ent->d_name, "%d.%llu", &pid, &start) != 2)
            continue;
        if (process_start(pid) == start)
            n++;
        else
            unlinkat(dirfd(d), ent->d_name, 0);
    }
    return n;
}

bool box_cache_use(const struct box_cache *c, const char *folder) {
    cleanup_close int held = box_cache_lock(c, "all", NULL, NULL);
    if (held < 0 || access(folder, F_OK) < 0)
        return false;
    box_cache_users(c, folder);
    const char *mark =
        arena_printf(c->a, "%s/use/%d.%llu", folder, getpid(), (unsigned long long)process_start(getpid()));
    cleanup_close int fd = open(mark, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    utimensat(AT_FDCWD, arena_printf(c->a, "%s/use", folder), NULL, 0);
    return fd >= 0;
}

// The image is there: it stays for as long as this process lives.
static bool pin(const struct box_cache *c, const char *digest) {
    return box_cache_use(c, box_cache_path(c, "store", digest));
}

bool box_cache_read(const char *path, struct buf *out, size_t max) {
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    ssize_t n;
    while (fd >= 0 && out->len < max && (n = read(fd, buf_reserve(out, 4096), 4096)) > 0)
        out->len += (size_t)n;
    if (out->len)
        out->data[out->len] = 0;
    return fd >= 0;
}

// Line one says what the name stood for, line two which digest it is.
static const char *read_ref(const struct box_cache *c, const char *name, const char *identity, bool *fresh) {
    cleanup_buf struct buf b = {0};
    struct stat st;
    const char *path = box_cache_path(c, "refs", name);
    if (stat(path, &st) < 0 || !box_cache_read(path, &b, REF_MAX))
        return NULL;
    size_t n = strlen(identity);
    if (b.len < n + 2 || memcmp(b.data, identity, n) != 0 || b.data[n] != '\n')
        return NULL;
    const char *digest = arena_strndup(c->a, b.data + n + 1, strcspn(b.data + n + 1, "\n"));
    int64_t age = (int64_t)time(NULL) - st.st_mtime;
    *fresh = age >= 0 && age < BOX_REFERENCE_KEEP_S;
    return *digest && !strchr(digest, '/') ? digest : NULL;
}

int box_cache_write(const struct box_cache *c, const char *path, const char *text) {
    const char *new = arena_printf(c->a, "%s.new", path);
    cleanup_close int fd = open(new, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && rename(new, path) == 0)
        return 0;
    int err = errno;
    unlink(new);
    return -err;
}

// One that cannot be written is asked again next time.
static void write_ref(const struct box_cache *c, const char *name, const char *identity, const char *digest) {
    box_cache_write(c, box_cache_path(c, "refs", name), arena_printf(c->a, "%s\n%s\n", identity, digest));
}

const char *box_cache_known(const struct box_cache *c, const struct box_source *s) {
    bool fresh;
    return read_ref(c, box_cache_hash(s->identity, c->a), s->identity, &fresh);
}

int box_cache_discard(const struct box_cache *c, const char *folder, const char *name, struct error *e) {
    const char *gone = arena_printf(c->a, "gone-%s.%d", name, getpid());
    if (rename(box_cache_path(c, folder, name), box_cache_path(c, "work", gone)) < 0)
        return error_set(e, errno, "%s cannot be removed from %s: %m", name, c->folder);
    box_remove(box_cache_path(c, "work", ""), gone);
    return 0;
}

uint64_t box_cache_size(const struct box_cache *c, const char *folder) {
    char *const paths[] = {arena_strdup(c->a, folder), NULL};
    uint64_t bytes = 0;
    FTS *walk = fts_open(paths, FTS_PHYSICAL | FTS_XDEV | FTS_NOCHDIR, NULL);
    for (FTSENT *f; walk && (f = fts_read(walk));)
        if (f->fts_info != FTS_DP && f->fts_info != FTS_NS)
            bytes += (uint64_t)f->fts_statp->st_blocks * BLOCK;
    if (walk)
        fts_close(walk);
    return bytes;
}

// What processes that are gone have left half made.
static void clear_work(const struct box_cache *c) {
    cleanup_closedir DIR *d = opendir(box_cache_path(c, "work", ""));
    for (struct dirent *ent; d && (ent = readdir(d));) {
        const char *dot = strrchr(ent->d_name, '.');
        uint32_t pid;
        if (dot && parse_u32(dot + 1, &pid) == 0 && pid && kill((pid_t)pid, 0) < 0 && errno == ESRCH)
            box_remove(box_cache_path(c, "work", ""), ent->d_name);
    }
}

void box_cache_clear(const char *cache, struct arena *a) {
    clear_work(&(struct box_cache){.folder = cache, .a = a});
}

struct box_cache_entry {
    const char *name;
    uint64_t bytes;
    time_t used;
};

static uint32_t list_entries(const struct box_cache *c, struct box_cache_entry *out, uint64_t *total) {
    cleanup_closedir DIR *d = opendir(box_cache_path(c, "store", ""));
    uint32_t n = 0;
    *total = 0;
    for (struct dirent *ent; d && n < ENTRIES_MAX && (ent = readdir(d));) {
        cleanup_buf struct buf size = {0};
        struct stat st;
        if (ent->d_name[0] == '.' || stat(arena_printf(c->a, "%s/store/%s/use", c->folder, ent->d_name), &st) < 0)
            continue;
        out[n] = (struct box_cache_entry){.name = arena_strdup(c->a, ent->d_name), .used = st.st_mtime};
        if (box_cache_read(arena_printf(c->a, "%s/store/%s/size", c->folder, ent->d_name), &size, 64))
            parse_u64(buf_str(&size), &out[n].bytes);
        *total += out[n++].bytes;
    }
    return n;
}

// The least recently used go until the rest is within the limit. They are moved aside under the lock and
// removed after it.
static void make_room(const struct box_cache *c, uint64_t limit, const char *keep) {
    struct box_cache_entry *all = arena_alloc(c->a, ENTRIES_MAX * sizeof *all);
    struct box_list aside = {0};
    uint64_t total;
    cleanup_close int held = box_cache_lock(c, "all", NULL, NULL);
    if (held < 0)
        return;
    uint32_t n = list_entries(c, all, &total);
    while (total > limit) {
        struct box_cache_entry *oldest = NULL;
        for (uint32_t i = 0; i < n; i++)
            if (all[i].name && (!oldest || all[i].used < oldest->used))
                oldest = &all[i];
        if (!oldest)
            break;
        const char *name = TAKE_PTR(oldest->name);
        if (streq(name, keep) || box_cache_users(c, box_cache_path(c, "store", name)))
            continue;
        const char *gone = arena_printf(c->a, "gone-%s.%d", name, getpid());
        if (rename(box_cache_path(c, "store", name), box_cache_path(c, "work", gone)) == 0) {
            total -= oldest->bytes;
            box_list_add(&aside, c->a, gone);
        }
    }
    close(TAKE_FD(held));
    for (uint32_t i = 0; i < aside.len; i++)
        box_remove(box_cache_path(c, "work", ""), aside.at[i]);
}

static int put_in_store(const struct box_cache *c, const char *work, const char *digest, uint64_t limit,
                        struct error *e) {
    char size[32];
    uint64_t bytes = box_cache_size(c, work);
    if (bytes > limit) {
        char have[UNIT_TEXT_MAX], may[UNIT_TEXT_MAX];
        return error_set(e, EFBIG, "it takes %s unpacked, and this node keeps %s of images per user (image_cache)",
                         size_format(bytes, have), size_format(limit, may));
    }
    cleanup_close int folder = open(work, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cleanup_close int fd = folder < 0 ? -1 : openat(folder, "size", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    int n = snprintf(size, sizeof size, "%llu", (unsigned long long)bytes);
    // On the disk before it bears its name: a machine that stops must not leave half of it under it.
    if (fd < 0 || write(fd, size, (size_t)n) != n || mkdirat(folder, "use", 0700) < 0 || syncfs(folder) < 0 ||
        rename(work, box_cache_path(c, "store", digest)) < 0)
        return error_set(e, errno, "it cannot be kept in %s: %m", c->folder);
    return 0;
}

static int make_once(const struct box_cache *c, const struct box_source *s, const char *digest,
                     uint64_t limit, struct error *e) {
    const char *name = arena_printf(c->a, "%s.%d", digest, getpid()), *work = box_cache_path(c, "work", name);
    clear_work(c);
    if (mkdir(work, 0700) < 0)
        return error_set(e, errno, "the folder for images %s cannot be written: %m", c->folder);
    int rc = box_fetch(s, work, c->a, e);
    box_remove(work, "containers");  // skopeo's notes
    if (rc == 0)
        rc = put_in_store(c, work, digest, limit, e);
    if (rc < 0)
        box_remove(box_cache_path(c, "work", ""), name);
    return rc;
}

static int make(const struct box_cache *c, const struct box_source *s, const char *digest, uint64_t limit,
                struct error *e) {
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    int rc = make_once(c, s, digest, limit, e);
    if (rc == -ENOSPC || rc == -EDQUOT) {  // all that nobody uses now makes room
        make_room(c, 0, digest);
        rc = make_once(c, s, digest, limit, e);
    }
    if (rc < 0)
        return rc;
    clock_gettime(CLOCK_MONOTONIC, &end);
    dprintf(STDERR_FILENO, "acequia: image %s is ready after %ld s\n", c->image, (long)(end.tv_sec - begin.tv_sec));
    make_room(c, limit, digest);
    return 0;
}

static bool believed(const struct box_source *s, bool fresh, enum job_pull pull) {
    return !s->remote || s->digested || pull == PULL_MISSING || pull == PULL_NEVER ||
           (fresh && pull != PULL_ALWAYS);
}

static int find_digest(const struct box_cache *c, const struct box_source *s, const char *ref,
                       const char **out, struct error *e) {
    if (s->kind == BOX_SQUASHFS) {
        *out = arena_printf(c->a, "file-%s", ref);
        return 0;
    }
    const char *name = arena_printf(c->a, "ref-%s.%d", ref, getpid());
    if (mkdir(box_cache_path(c, "work", name), 0700) < 0)
        return error_set(e, errno, "the folder for images %s cannot be written: %m", c->folder);
    int rc = box_fetch_digest(s, box_cache_path(c, "work", name), c->a, out, e);
    box_remove(box_cache_path(c, "work", ""), name);
    return rc;
}

static int find_or_make(const struct box_cache *c, const struct box_source *s, uint64_t limit,
                        enum job_pull pull, const char **out, struct error *e) {
    const char *ref = box_cache_hash(s->identity, c->a), *digest = NULL;
    bool fresh = false;
    // Two locks, in this order: the name, so that one process asks the registry, then the content, which several
    // names may share.
    cleanup_close int named = box_cache_lock(c, arena_printf(c->a, "ref-%s", ref), "image", e);
    if (named < 0)
        return named;
    const char *known = read_ref(c, ref, s->identity, &fresh);
    *out = known;
    if (known && believed(s, fresh, pull) && pin(c, known))
        return 0;
    if (s->remote && pull == PULL_NEVER)
        return error_set(e, ENOENT,
                         "it is not on this node, and --pull never does not fetch it; 'acequia image pull' "
                         "does, and so does a job without --pull never");
    dprintf(STDERR_FILENO, "acequia: preparing image %s\n", c->image);
    int rc = find_digest(c, s, ref, &digest, e);
    // A registry that is down does not stop jobs whose image is here.
    if (rc < 0 && known && pull != PULL_ALWAYS && pin(c, known)) {
        dprintf(STDERR_FILENO, "acequia: image %s as it was before is used: %s\n", c->image, e->text);
        return 0;
    }
    if (rc < 0)
        return rc;
    cleanup_close int held = box_cache_lock(c, digest, "image", e);
    *out = digest;
    rc = held < 0 ? held : 0;
    if (rc == 0 && !pin(c, digest)) {
        rc = make(c, s, digest, limit, e);
        if (rc == 0 && !pin(c, digest))
            rc = error_set(e, EIO, "it was removed at once");
    }
    if (rc == 0) {
        write_ref(c, ref, s->identity, digest);
        box_index_write(c->folder, c->a);
    }
    return rc;
}

int box_cache_get(const char *cache, uint64_t limit_bytes, const struct box_source *s, const char *image,
                  enum job_pull pull, struct arena *a, struct box_image *out, struct error *e) {
    struct box_cache c = {.folder = cache, .image = image, .a = a};
    const char *digest;
    cleanup_buf struct buf text = {0};
    int rc = box_cache_folders(&c, e);
    if (rc == 0 && (s->kind == BOX_SQUASHFS || s->kind == BOX_SKOPEO)) {
        rc = find_or_make(&c, s, limit_bytes, pull, &digest, e);
        if (rc < 0)
            return error_prefix(e, "image %s", image), rc;
        out->root = arena_printf(a, "%s/store/%s/rootfs", cache, digest);
        if (box_cache_read(arena_printf(a, "%s/store/%s/config.json", cache, digest), &text, BOX_CONFIG_MAX))
            rc = box_config_image(buf_str(&text), text.len, a, &out->config, e);
        return rc < 0 ? (error_prefix(e, "image %s: its configuration", image), rc) : 0;
    }
    if (rc < 0)
        return rc;
    out->root = s->path;
    out->bundle = s->kind == BOX_BUNDLE;
    if (!out->bundle)
        return 0;
    const char *path = arena_printf(a, "%s/config.json", s->path);
    if (!box_cache_read(path, &text, BOX_CONFIG_MAX))
        return error_set(e, errno, "image %s: config.json cannot be read: %m", image);
    rc = box_config_bundle(buf_str(&text), text.len, a, &out->config, e);
    if (rc < 0)
        return error_prefix(e, "image %s: config.json", image), rc;
    const char *root = out->config.rootfs ? out->config.rootfs : "rootfs";
    out->root = *root == '/' ? root : arena_printf(a, "%s/%s", s->path, root);
    return 0;
}
