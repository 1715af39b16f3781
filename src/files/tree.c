// Owns what is done to names and whole folders: removing, making, moving, archives. Links inside a folder are never
// followed.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "files.h"
#include "zip.h"

enum { ZIP_ENTRIES_MAX = 100000, MISSING_MAX = 1000 };

static bool is_dots(const char *name) {
    return streq(name, ".") || streq(name, "..");
}

static DIR *open_folder(int parent, const char *name) {
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (fd >= 0 && !d)
        close(fd);
    return d;
}

static int remove_folder(struct files *f, int parent, const char *name, int depth);

// Removes what is in it; the number of entries that went, or the first error.
static int empty_folder(struct files *f, DIR *d, int depth) {
    int removed = 0, failed = 0;
    const struct dirent *ent;
    while ((ent = readdir(d))) {
        struct stat st;
        if (is_dots(ent->d_name))
            continue;
        files_working(f);
        int rc = fstatat(dirfd(d), ent->d_name, &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0 ? -errno : 0;
        if (rc == 0 && S_ISDIR(st.st_mode))
            rc = remove_folder(f, dirfd(d), ent->d_name, depth + 1);
        else if (rc == 0)
            rc = unlinkat(dirfd(d), ent->d_name, 0) < 0 ? -errno : 0;
        removed += rc == 0;
        failed = rc < 0 && rc != -ENOENT && !failed ? rc : failed;
    }
    return failed ? failed : removed;
}

static int remove_folder(struct files *f, int parent, const char *name, int depth) {
    if (unlinkat(parent, name, AT_REMOVEDIR) == 0)
        return 0;
    if ((errno != ENOTEMPTY && errno != EEXIST) || depth >= FILES_DEPTH_MAX)
        return depth >= FILES_DEPTH_MAX ? -ELOOP : -errno;
    DIR *d = open_folder(parent, name);
    if (!d)
        return -errno;
    // Some file systems skip entries while others are removed: look again until nothing is left to remove.
    int removed;
    while ((removed = empty_folder(f, d, depth)) > 0)
        rewinddir(d);
    closedir(d);
    if (removed < 0)
        return removed;
    return unlinkat(parent, name, AT_REMOVEDIR) < 0 ? -errno : 0;
}

int files_remove_tree(struct files *f, int parent, const char *name) {
    return remove_folder(f, parent, name, 0);
}

static bool is_home(const struct files *f, const struct stat *st) {
    struct stat home;
    return stat(f->order->home, &home) == 0 && home.st_dev == st->st_dev && home.st_ino == st->st_ino;
}

// Links in the paths of both are resolved: what counts is the place. A path that leads nowhere is in nobody's use.
static int check_unused(struct files *f, int parent, const char *name, struct error *e) {
    const char *folder = files_real_path(f, parent);
    const char *target = arena_printf(&f->arena, "%s/%s", folder && !streq(folder, "/") ? folder : "", name);
    size_t len = strlen(target);
    for (uint32_t i = 0; i < f->request->uses.len; i++) {
        const struct file_use *u = &f->request->uses.at[i];
        struct error ignored = {0};
        struct stat st;
        char shown[80];
        files_working(f);
        cleanup_close int fd = files_open(f, u->path, &st, &ignored);
        const char *used = fd < 0 ? NULL : files_real_path(f, fd);
        if (!used || !str_has_prefix(used, target) || (used[len] && used[len] != '/'))
            continue;
        return error_set(
            e, EBUSY,
            "job %llu (%s) is running and uses it; cancel the job first, or remove it all the same (force)",
            (unsigned long long)u->job, str_printable(u->name, shown, sizeof shown));
    }
    return 0;
}

int files_remove(struct files *f, struct file_result *r, struct error *e) {
    cleanup_buf struct buf path = {0};
    const struct file_request *q = f->request;
    const char *name;
    struct stat st;
    struct file_entry now;
    int rc = files_path(f, q->path, &path, e);
    cleanup_close int parent = rc < 0 ? rc : files_open_parent(f, buf_str(&path), &name, e);
    if (parent < 0)
        return parent;
    if (fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return files_fail(e, errno, buf_str(&path));
    // One wrong click must not remove everything somebody has.
    if (is_home(f, &st))
        return error_set(e, EPERM, "this is your home; remove what is in it, one by one");
    files_describe(f, parent, name, &st, &now);
    if (q->match && !streq(now.version, q->match))
        return error_set(e, ESTALE, "the file was changed meanwhile; look at it again before you remove it");
    rc = check_unused(f, parent, name, e);
    if (rc < 0)
        return rc;
    if (!S_ISDIR(st.st_mode))
        rc = unlinkat(parent, name, 0) < 0 ? -errno : 0;
    else if (q->recursive)
        rc = remove_folder(f, parent, name, 0);
    else
        rc = unlinkat(parent, name, AT_REMOVEDIR) < 0 ? -errno : 0;
    if (rc == -ENOTEMPTY)
        return error_set(e, ENOTEMPTY,
                         "the folder is not empty; remove it with all that is in it (recursive)");
    return rc < 0 ? files_fail(e, -rc, buf_str(&path)) : 0;
}

static int make_above(struct files *f, const char *path, struct error *e) {
    char *part = arena_strdup(&f->arena, path);
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        struct stat st;
        const char *name;
        struct error ignored = {0};
        int there = files_open(f, part, &st, &ignored);
        if (there >= 0) {
            close(there);
        } else {
            cleanup_close int parent = files_open_parent(f, part, &name, e);
            if (parent < 0)
                return parent;
            if (mkdirat(parent, name, 0777) < 0 && errno != EEXIST)
                return files_fail(e, errno, part);
        }
        *slash = '/';
    }
    return 0;
}

static bool is_folder(struct files *f, const char *path) {
    struct error ignored = {0};
    struct stat st;
    int saved = errno;
    cleanup_close int fd = files_open(f, path, &st, &ignored);
    errno = saved;
    return fd >= 0 && S_ISDIR(st.st_mode);
}

// With `recursive` a folder that is there already is none the worse for it, as with mkdir -p.
int files_make_folder(struct files *f, struct file_result *r, struct error *e) {
    cleanup_buf struct buf path = {0};
    const char *name;
    int rc = files_path(f, f->request->path, &path, e);
    if (rc == 0 && f->request->recursive)
        rc = make_above(f, buf_str(&path), e);
    cleanup_close int parent = rc < 0 ? rc : files_open_parent(f, buf_str(&path), &name, e);
    if (parent < 0)
        return parent;
    if (mkdirat(parent, name, 0777) == 0 ||
        (errno == EEXIST && f->request->recursive && is_folder(f, buf_str(&path))))
        return 0;
    return files_fail(e, errno, buf_str(&path));
}

int files_move(struct files *f, struct file_result *r, struct error *e) {
    cleanup_buf struct buf path = {0}, to = {0};
    const char *name, *to_name;
    int rc = files_path(f, f->request->path, &path, e);
    rc = rc < 0 ? rc : files_path(f, f->request->to, &to, e);
    cleanup_close int parent = rc < 0 ? rc : files_open_parent(f, buf_str(&path), &name, e);
    if (parent < 0)
        return parent;
    cleanup_close int to_parent = files_open_parent(f, buf_str(&to), &to_name, e);
    if (to_parent < 0)
        return to_parent;
    if (renameat2(parent, name, to_parent, to_name, f->request->create ? RENAME_NOREPLACE : 0) == 0)
        return 0;
    if (errno == EXDEV)
        return error_set(e, EXDEV,
                         "the new place is on another file system; copy there, then remove this one");
    return files_fail(e, errno, errno == ENOENT ? buf_str(&path) : buf_str(&to));
}

// --- archives ---

struct files_archive {
    struct files *f;
    struct zip zip;
    struct buf missing;  // what is not in it, a line each
    uint32_t missed;
    bool full;
};

static void put_zip(void *ctx, const void *data, size_t len) {
    for (size_t at = 0; at < len; at += FILES_BLOCK)
        files_data(ctx, (const char *)data + at, len - at < FILES_BLOCK ? len - at : FILES_BLOCK);
}

static void miss(struct files_archive *a, const char *path, const char *why) {
    if (a->missed++ < MISSING_MAX)
        buf_addf(&a->missing, "%s: %s\n", path, why);
}

static void add_file(struct files_archive *a, int parent, const char *name, const char *path) {
    static char block[FILES_BLOCK];
    struct stat st;
    cleanup_close int fd = openat(parent, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        miss(a, path, fd < 0 ? strerror(errno) : "not a plain file");
        return;
    }
    files_zip_begin(&a->zip, path, st.st_mode, st.st_mtime);
    for (uint64_t left = (uint64_t)st.st_size; left;) {
        ssize_t n = read(fd, block, left < sizeof block ? (size_t)left : sizeof block);
        if (n <= 0) {
            miss(a, path, n < 0 ? strerror(errno) : "it became shorter while it was read");
            break;
        }
        files_zip_data(&a->zip, block, (size_t)n);
        left -= (uint64_t)n;
    }
    files_zip_end(&a->zip);
}

static void add_folder(struct files_archive *a, DIR *d, const char *path, int depth);

// Type first, by a look without opening: pipes and devices are never opened.
static void add_entry(struct files_archive *a, DIR *d, const char *name, const char *above, int depth) {
    cleanup_buf struct buf path = {0};
    struct stat st;
    buf_adds(&path, above);
    file_name_write(name, strlen(name), &path);
    if (a->zip.entries >= ZIP_ENTRIES_MAX) {
        a->full = true;
    } else if (fstatat(dirfd(d), name, &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0) {
        miss(a, buf_str(&path), strerror(errno));
    } else if (S_ISREG(st.st_mode)) {
        add_file(a, dirfd(d), name, buf_str(&path));
    } else if (!S_ISDIR(st.st_mode)) {
        miss(a, buf_str(&path), S_ISLNK(st.st_mode) ? "a link" : "not a plain file");
    } else {
        DIR *inner = depth < FILES_DEPTH_MAX ? open_folder(dirfd(d), name) : NULL;
        struct error e = {0};
        if (!inner || files_check_place(a->f, dirfd(inner), &e) < 0) {
            miss(a, buf_str(&path), inner ? e.text : depth < FILES_DEPTH_MAX ? strerror(errno) : "too deep");
        } else {
            buf_addc(&path, '/');
            files_zip_begin(&a->zip, buf_str(&path), st.st_mode, st.st_mtime);
            files_zip_end(&a->zip);
            add_folder(a, inner, buf_str(&path), depth + 1);
        }
        if (inner)
            closedir(inner);
    }
}

static void add_folder(struct files_archive *a, DIR *d, const char *path, int depth) {
    const struct dirent *ent;
    while (!a->full && (ent = readdir(d))) {
        files_working(a->f);
        if (!is_dots(ent->d_name) && !(a->f->request->visible_only && ent->d_name[0] == '.') &&
            !files_upload_is_partial(ent->d_name))
            add_entry(a, d, ent->d_name, path, depth);
    }
}

static void add_missing(struct files_archive *a) {
    if (a->full)
        miss(a, "…", "an archive has at most 100000 entries; download folders one by one");
    if (!a->missed)
        return;
    files_zip_begin(&a->zip, "NOT-IN-THIS-ARCHIVE.txt", 0100644, 0);
    files_zip_data(&a->zip, a->missing.data, a->missing.len);
    files_zip_end(&a->zip);
}

int files_zip(struct files *f, struct file_result *r, struct error *e) {
    cleanup_buf struct buf path = {0};
    struct stat st;
    int rc = files_path(f, f->request->path, &path, e);
    cleanup_close int fd = rc < 0 ? rc : files_open(f, buf_str(&path), &st, e);
    if (fd < 0)
        return fd;
    int folder = files_reopen(fd, O_RDONLY | O_DIRECTORY);
    DIR *d = folder < 0 ? NULL : fdopendir(folder);
    if (!d)
        return files_fail(e, folder < 0 ? -folder : errno, buf_str(&path));
    const char *real = files_real_path(f, fd);
    r->path = files_text(f, real ? real : buf_str(&path));
    files_send(f, MESSAGE_FILE_RESULT, r);
    struct files_archive a = {.f = f, .zip = {.put = put_zip, .ctx = f}};
    add_folder(&a, d, "", 0);
    closedir(d);
    add_missing(&a);
    files_zip_finish(&a.zip);
    buf_done(&a.missing);
    return 0;
}
