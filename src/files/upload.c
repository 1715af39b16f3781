// Owns writing: uploads in pieces, which may stop and go on at any time, in any process. A piece is added to a hidden
// partial file beside the target, whose length is all the state there is; the last piece makes it the target by one
// rename. So a file is never half new, and nothing else has to remember an upload.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "base/text.h"
#include "files.h"
#include "model/units.h"

#define PARTIAL_PREFIX ".acequia-upload-"
enum { SWEEP_LOOK_MAX = 10000, LOCK_TRIES = 50, LOCK_NAP_MS = 100, DIGITS = 16, COPY_STEP = 16 << 20 };

// Another name, size or upload is another file.
void files_upload_name(const char *name, const char *upload, uint64_t size, char out[static FILES_NAME_MAX]) {
    char all[FILES_NAME_MAX + FILE_UPLOAD_NAME_MAX + 32];
    int n = snprintf(all, sizeof all, "%s/%s/%llu", name, upload, (unsigned long long)size);
    snprintf(out, FILES_NAME_MAX, PARTIAL_PREFIX "%0*llx", DIGITS,
             (unsigned long long)hash_bytes(all, (size_t)n));
}

bool files_upload_is_partial(const char *name) {
    size_t prefix = strlen(PARTIAL_PREFIX);
    return str_has_prefix(name, PARTIAL_PREFIX) && strlen(name) == prefix + DIGITS &&
           strspn(name + prefix, "0123456789abcdef") == DIGITS;
}

static void remove_partial(struct files *f, int parent, const char *name, mode_t mode) {
    if (S_ISREG(mode))
        unlinkat(parent, name, 0);
    else if (S_ISDIR(mode))  // of a copy of a folder
        files_remove_tree(f, parent, name);
}

// Those that nobody went on with for days.
static void sweep(struct files *f, int parent) {
    int fd = openat(parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    time_t old = time(NULL) - FILE_UPLOAD_DAYS * 86400;
    struct stat st;
    const struct dirent *ent;
    for (int i = 0; d && i < SWEEP_LOOK_MAX && (ent = readdir(d)); i++)
        if (files_upload_is_partial(ent->d_name) &&
            fstatat(parent, ent->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_uid == geteuid() &&
            st.st_mtime < old)
            remove_partial(f, parent, ent->d_name, st.st_mode);
    if (d)
        closedir(d);
}

static int open_partial(struct files *f, struct files_upload *u, bool begin, struct error *e) {
    struct stat st;
    if (begin)
        sweep(f, u->parent);
    u->fd = openat(u->parent, u->partial, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
    if (u->fd < 0)
        return files_fail(e, errno, u->name);
    if (fstat(u->fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid())
        return error_set(e, EPERM, "%s is in the way of the upload; remove it", u->partial);
    // Whoever had the lock may have renamed the file into its place between our open and our lock. Then what we have
    // open is the target itself, which must not be truncated or written to.
    struct stat named;
    if (flock(u->fd, LOCK_EX | LOCK_NB) < 0 ||
        fstatat(u->parent, u->partial, &named, AT_SYMLINK_NOFOLLOW) < 0 || named.st_ino != st.st_ino ||
        named.st_dev != st.st_dev)
        return error_set(e, EBUSY, "another request writes this upload right now; try again later");
    return 0;
}

static int write_piece(int fd, const struct bytes *data, uint64_t at) {
    for (size_t done = 0; done < data->len;) {
        ssize_t n = pwrite(fd, (const char *)data->data + done, data->len - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        done += (size_t)n;
    }
    return fdatasync(fd) < 0 ? -errno : 0;
}

// Two requests that replace one file take turns: the second then sees the version that the first has made.
static int lock_target(int parent, const char *name) {
    struct timespec nap = {.tv_nsec = LOCK_NAP_MS * 1000000L};
    int fd = openat(parent, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    for (int i = 0; fd >= 0 && i < LOCK_TRIES && flock(fd, LOCK_EX | LOCK_NB) < 0; i++)
        nanosleep(&nap, NULL);
    return fd;
}

static int check_version(struct files *f, int parent, const char *name, struct stat *st, struct error *e) {
    const struct file_request *q = f->request;
    struct file_entry now;
    bool there = fstatat(parent, name, st, AT_SYMLINK_NOFOLLOW) == 0;
    if (there && q->create)
        return error_set(e, EEXIST, "there is something of this name already");
    if (there && !S_ISREG(st->st_mode))
        return error_set(e, S_ISDIR(st->st_mode) ? EISDIR : ENOTSUP,
                         "what has this name is not a plain file and is not replaced");
    if (!q->match)
        return there;
    if (there)
        files_describe(f, parent, name, st, &now);
    if (!there || !streq(now.version, q->match))
        return error_set(e, ESTALE,
                         "the file was changed or removed meanwhile; read it again before you replace it");
    return 1;
}

int files_upload_finish(struct files *f, const struct files_upload *u, const char *path, struct error *e) {
    struct stat st;
    // Without a look first: a pipe or device is not even opened.
    if (fstatat(u->parent, u->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        st.st_mode = 0;
    cleanup_close int lock = S_ISREG(st.st_mode) ? lock_target(u->parent, u->name) : -1;
    int there = check_version(f, u->parent, u->name, &st, e);
    if (there < 0)
        return there;
    mode_t mask = umask(0);
    umask(mask);
    if (there && st.st_gid != getegid() && fchown(u->fd, (uid_t)-1, st.st_gid) < 0)
        st.st_mode &= ~(mode_t)070;  // the group it is left with was not meant
    if (fchmod(u->fd, there ? st.st_mode & 0777 : 0666 & ~mask) < 0)
        return files_fail(e, errno, path);
    unsigned flags = f->request->create ? RENAME_NOREPLACE : 0;
    if (renameat2(u->parent, u->partial, u->parent, u->name, flags) < 0)
        return files_fail(e, errno, path);
    return 0;
}

// Said before the first byte rather than after an hour. A file system that does not say how large it is has room.
static int check_space(int folder, uint64_t bytes, struct error *e) {
    struct statvfs v;
    char needed[UNIT_TEXT_MAX], left[UNIT_TEXT_MAX];
    if (fstatvfs(folder, &v) < 0 || !v.f_blocks || bytes <= (uint64_t)v.f_bavail * v.f_frsize)
        return 0;
    size_format(bytes, needed);
    size_format((uint64_t)v.f_bavail * v.f_frsize, left);
    return error_set(e, ENOSPC,
                     "it needs %s, and %s are left on this file system; remove something there, or choose "
                     "another place",
                     needed, left);
}

static int take_piece(struct files *f, struct files_upload *u, const char *path, struct file_result *r,
                      struct error *e) {
    const struct file_request *q = f->request;
    struct stat st;
    int rc = open_partial(f, u, q->offset == 0, e);
    if (rc < 0)
        return rc;
    if (fstat(u->fd, &st) < 0)
        return files_fail(e, errno, path);
    if (!st.st_size && (rc = check_space(u->parent, q->size, e)) < 0) {
        unlinkat(u->parent, u->partial, 0);
        return rc;
    }
    // One piece is all, or somebody has written to it: what is there is worth nothing.
    bool anew = (q->offset == 0 && q->data.len == q->size) || (uint64_t)st.st_size > q->size;
    if (anew && (ftruncate(u->fd, 0) < 0 || fstat(u->fd, &st) < 0))
        return files_fail(e, errno, path);
    r->offset = (uint64_t)st.st_size;
    // An empty piece asks where the upload stands.
    if (!q->data.len && r->offset < q->size)
        return 0;
    if (q->data.len && r->offset != q->offset)
        return error_set(e, ESPIPE, "offset: the upload has %llu bytes; go on from there",
                         (unsigned long long)r->offset);
    rc = write_piece(u->fd, &q->data, r->offset);
    if (rc < 0 && ftruncate(u->fd, (off_t)q->offset) < 0)
        unlinkat(u->parent, u->partial, 0);  // what is there is not known
    if (rc < 0)
        return files_fail(e, -rc, path);
    r->offset += q->data.len;
    if (r->offset < q->size)
        return 0;
    rc = files_upload_finish(f, u, path, e);
    if (rc < 0) {
        unlinkat(u->parent, u->partial, 0);
        return rc;
    }
    r->complete = true;
    return 0;
}

static void describe_written(struct files *f, const struct files_upload *u, struct file_result *r) {
    struct stat st;
    if (fstatat(u->parent, u->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return;
    r->entry = arena_alloc(&f->arena, sizeof *r->entry);
    files_describe(f, u->parent, u->name, &st, r->entry);
}

// A link to a file is followed, so that the file is replaced and the link stays.
static int open_target(struct files *f, const char *path, const char **name, struct error *e) {
    struct stat st;
    cleanup_close int there = files_open(f, path, &st, e);
    if (there < 0 && e->code != ENOENT)
        return there;
    const char *real = there >= 0 ? files_real_path(f, there) : NULL;
    return files_open_parent(f, real ? real : path, name, e);
}

int files_write(struct files *f, struct file_result *r, struct error *e) {
    cleanup_buf struct buf path = {0};
    const struct file_request *q = f->request;
    struct files_upload u = {.fd = -1};
    int rc = files_path(f, q->path, &path, e);
    if (rc == 0 && (q->offset > q->size || q->data.len > q->size - q->offset || !q->upload))
        rc = error_set(e, EINVAL, "size: the piece goes beyond the end of the file");
    cleanup_close int parent = rc < 0 ? rc : open_target(f, buf_str(&path), &u.name, e);
    if (parent < 0)
        return parent;
    u.parent = parent;
    files_upload_name(u.name, q->upload, q->size, u.partial);
    rc = take_piece(f, &u, buf_str(&path), r, e);
    if (r->complete)
        describe_written(f, &u, r);
    if (u.fd >= 0)
        close(u.fd);
    return rc;
}

// The kernel copies by itself within a file system, and between some of the same kind; elsewhere we do.
static ssize_t copy_some(int from, int to, size_t most) {
    static char block[FILES_BLOCK];
    ssize_t n = copy_file_range(from, NULL, to, NULL, most, 0);
    if (n >= 0 || (errno != EXDEV && errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP))
        return n;
    n = read(from, block, most < sizeof block ? most : sizeof block);
    for (ssize_t at = 0; at < n;) {
        ssize_t written = write(to, block + at, (size_t)(n - at));
        if (written < 0 && errno != EINTR)
            return -1;
        at += written > 0 ? written : 0;
    }
    return n;
}

int files_copy_content(struct files *f, int from, int to, uint64_t size) {
    for (uint64_t left = size; left;) {
        ssize_t n = copy_some(from, to, left < COPY_STEP ? (size_t)left : COPY_STEP);
        if (n <= 0)
            return n < 0 ? -errno : -ENODATA;
        left -= (uint64_t)n;
        files_working(f);
    }
    return 0;
}

int files_copy(struct files *f, struct file_result *r, struct error *e) {
    cleanup_buf struct buf path = {0}, to = {0};
    struct files_upload u = {.fd = -1};
    struct stat st;
    int rc = files_path(f, f->request->path, &path, e);
    rc = rc < 0 ? rc : files_path(f, f->request->to, &to, e);
    cleanup_close int fd = rc < 0 ? rc : files_open(f, buf_str(&path), &st, e);
    if (fd < 0)
        return fd;
    if (S_ISDIR(st.st_mode))
        return files_copy_folder(f, fd, buf_str(&path), buf_str(&to), r, e);
    if (!S_ISREG(st.st_mode))
        return error_set(e, ENOTSUP, "this is a device, pipe or socket, which is not copied");
    cleanup_close int from = files_reopen(fd, O_RDONLY);
    if (from < 0)
        return files_fail(e, -from, buf_str(&path));
    cleanup_close int parent = files_open_parent(f, buf_str(&to), &u.name, e);
    if (parent < 0)
        return parent;
    // By way of a partial file, as an upload: the target is never half written.
    u.parent = parent;
    files_upload_name(u.name, "copy", (uint64_t)st.st_size, u.partial);
    rc = open_partial(f, &u, true, e);
    if (rc == 0 && ftruncate(u.fd, 0) < 0)
        rc = files_fail(e, errno, buf_str(&to));
    if (rc == 0)
        rc = check_space(parent, (uint64_t)st.st_size, e);
    if (rc == 0 && ((rc = files_copy_content(f, from, u.fd, (uint64_t)st.st_size)) < 0 ||
                    (rc = fdatasync(u.fd) < 0 ? -errno : 0) < 0))
        files_fail(e, -rc, buf_str(&to));
    if (rc == 0)
        rc = files_upload_finish(f, &u, buf_str(&to), e);
    if (rc == 0)
        describe_written(f, &u, r);
    else if (u.fd >= 0)
        unlinkat(parent, u.partial, 0);
    if (u.fd >= 0)
        close(u.fd);
    return rc;
}
