// Owns copies of folders. A copy is made under a hidden name beside its target, as an upload is, and gets its name when
// it is whole. Links are copied as links; what cannot be copied ends it with the name of that, and nothing is left.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "files.h"

enum { COPY_ENTRIES_MAX = 100000 };

struct copy {
    struct files *f;
    struct error *e;
    struct buf path;  // of what is copied now, for messages
    mode_t mask;
    uint32_t entries;
};

static int failed(struct copy *c, int error) {
    return files_fail(c->e, error, buf_str(&c->path));
}

static int copy_file(struct copy *c, int from_folder, int to_folder, const char *name) {
    struct stat st;
    cleanup_close int from =
        openat(from_folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (from < 0 || fstat(from, &st) < 0)
        return failed(c, errno);
    cleanup_close int to =
        openat(to_folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (to < 0)
        return failed(c, errno);
    int rc = files_copy_content(c->f, from, to, (uint64_t)st.st_size);
    if (rc == -ENODATA)
        rc = 0;  // it became shorter meanwhile: a copy of what is there
    if (rc == 0 && fchmod(to, st.st_mode & 0777 & ~c->mask) < 0)
        rc = -errno;
    return rc < 0 ? failed(c, -rc) : 0;
}

static int copy_link(struct copy *c, int from_folder, int to_folder, const char *name) {
    char target[PATH_MAX];
    ssize_t n = readlinkat(from_folder, name, target, sizeof target - 1);
    if (n < 0)
        return failed(c, errno);
    target[n] = 0;
    return symlinkat(target, to_folder, name) < 0 ? failed(c, errno) : 0;
}

static int copy_entries(struct copy *c, DIR *from, int to, int depth);

static int copy_inner(struct copy *c, int from_folder, int to_folder, const char *name, mode_t mode,
                      int depth) {
    int fd = openat(from_folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        int rc = failed(c, errno);
        if (fd >= 0)
            close(fd);
        return rc;
    }
    cleanup_close int to = mkdirat(to_folder, name, 0700) < 0
                               ? -1
                               : openat(to_folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int rc = to < 0 ? failed(c, errno) : copy_entries(c, d, to, depth);
    if (rc == 0 && fchmod(to, mode & 0777 & ~c->mask) < 0)
        rc = failed(c, errno);
    closedir(d);
    return rc;
}

static int copy_entry(struct copy *c, int from, int to, const char *name, int depth) {
    struct stat st;
    char shown[256];
    files_working(c->f);
    if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0)
        return errno == ENOENT ? 0 : failed(c, errno);
    if (S_ISDIR(st.st_mode))
        return copy_inner(c, from, to, name, st.st_mode, depth + 1);
    if (S_ISREG(st.st_mode))
        return copy_file(c, from, to, name);
    if (S_ISLNK(st.st_mode))
        return copy_link(c, from, to, name);
    return error_set(c->e, ENOTSUP, "%s is a device, pipe or socket, which is not copied; remove it first",
                     str_printable(buf_str(&c->path), shown, sizeof shown));
}

static int copy_entries(struct copy *c, DIR *from, int to, int depth) {
    size_t len = c->path.len;
    int rc = depth < FILES_DEPTH_MAX ? 0 : failed(c, ELOOP);
    for (const struct dirent *ent; rc == 0 && (ent = readdir(from));) {
        if (streq(ent->d_name, ".") || streq(ent->d_name, ".."))
            continue;
        if (++c->entries > COPY_ENTRIES_MAX)
            return error_set(c->e, E2BIG,
                             "the folder holds more than %d files; copy it in a terminal, with cp -r",
                             COPY_ENTRIES_MAX);
        buf_addf(&c->path, "/%s", ent->d_name);
        rc = copy_entry(c, dirfd(from), to, ent->d_name, depth);
        c->path.len = len;
    }
    return rc;
}

static bool is_inside(const char *path, const char *folder) {
    size_t len = strlen(folder);
    return path && str_has_prefix(path, folder) && (path[len] == '/' || !path[len] || streq(folder, "/"));
}

// An empty folder of ours under the hidden name, locked as long as the descriptor is open. What a copy that was killed
// has left there goes.
static int make_partial(struct files *f, int parent, const char *partial, struct error *e) {
    for (int i = 0; i < 2; i++) {
        int made = mkdirat(parent, partial, 0700);
        cleanup_close int fd = openat(parent, partial, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
            return files_fail(e, errno, partial);
        if (flock(fd, LOCK_EX | LOCK_NB) < 0)
            return error_set(e, EBUSY, "it is being copied there right now; wait until that has ended");
        if (made == 0)
            return TAKE_FD(fd);
        int rc = files_remove_tree(f, parent, partial);
        if (rc < 0)
            return files_fail(e, -rc, partial);
    }
    return error_set(e, EBUSY, "it is being copied there right now; wait until that has ended");
}

int files_copy_folder(struct files *f, int folder, const char *path, const char *to, struct file_result *r,
                      struct error *e) {
    struct copy c = {.f = f, .e = e};
    struct stat st;
    const char *name;
    char partial[FILES_NAME_MAX];
    cleanup_close int parent = files_open_parent(f, to, &name, e);
    if (parent < 0)
        return parent;
    if (fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return error_set(e, EEXIST, "there is something of this name already; choose another one");
    const char *real = files_real_path(f, folder);
    if (!real || is_inside(files_real_path(f, parent), real))
        return error_set(e, EINVAL, "to: a folder cannot be copied into itself");
    int fd = files_reopen(folder, O_RDONLY | O_DIRECTORY);
    DIR *from = fd < 0 ? NULL : fdopendir(fd);
    if (!from)
        return files_fail(e, fd < 0 ? -fd : errno, path);
    fstat(dirfd(from), &st);
    c.mask = umask(0);
    umask(c.mask);
    buf_adds(&c.path, path);
    files_upload_name(name, "copy", 0, partial);
    cleanup_close int into = make_partial(f, parent, partial, e);
    int rc = into < 0 ? into : copy_entries(&c, from, into, 0);
    if (rc == 0 && (fchmod(into, st.st_mode & 0777 & ~c.mask) < 0 ||
                    renameat2(parent, partial, parent, name, RENAME_NOREPLACE) < 0))
        rc = files_fail(e, errno, to);
    if (rc == 0 && fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        r->entry = arena_alloc(&f->arena, sizeof *r->entry);
        files_describe(f, parent, name, &st, r->entry);
    } else if (rc < 0 && into >= 0) {
        files_remove_tree(f, parent, partial);
    }
    closedir(from);
    buf_done(&c.path);
    return rc;
}
