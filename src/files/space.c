// Owns what is said about a path's file system: its kind, whether it keeps limits for folders, how much is free. Of a
// path that is not there yet: of the nearest folder above it.
#include <errno.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/vfs.h>

#include "base/cleanup.h"
#include "base/quota.h"
#include "base/text.h"
#include "files.h"

static const char *name_of(unsigned long magic) {
    static const struct {
        unsigned long magic;
        const char *name;
    } known[] = {{EXT4_SUPER_MAGIC, "ext4"}, {XFS_SUPER_MAGIC, "xfs"},
                 {NFS_SUPER_MAGIC, "nfs"},   {BTRFS_SUPER_MAGIC, "btrfs"},
                 {TMPFS_MAGIC, "tmpfs"},     {FUSE_SUPER_MAGIC, "fuse"},
                 {CEPH_SUPER_MAGIC, "ceph"}, {OVERLAYFS_SUPER_MAGIC, "overlay"},
                 {0x0bd00bd0, "lustre"},     {0x2fc12fc1, "zfs"},
                 {0x47504653, "gpfs"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].magic == magic)
            return known[i].name;
    return "unknown";
}

int files_space(struct files *f, struct file_result *r, struct error *e) {
    cleanup_buf struct buf bytes = {0};
    struct stat st;
    struct statfs fs;
    int rc = files_path(f, f->request->path, &bytes, e);
    if (rc < 0)
        return rc;
    char *path = arena_strdup(&f->arena, buf_str(&bytes));
    cleanup_close int fd = files_open(f, path, &st, e);
    bool whole = fd >= 0;
    while (fd < 0 && (fd == -ENOENT || fd == -ENOTDIR) && strlen(path) > 1) {
        char *slash = strrchr(path, '/');
        slash[slash == path] = 0;
        fd = files_open(f, path, &st, e);
    }
    if (fd < 0)
        return fd;
    if (fstatfs(fd, &fs) < 0)
        return files_fail(e, errno, path);
    if (whole) {
        r->entry = arena_alloc(&f->arena, sizeof *r->entry);
        files_describe(f, -1, "", &st, r->entry);
    }
    r->path = files_text(f, path);
    r->file_system = name_of((unsigned long)fs.f_type);
    r->quota = quota_enforced(fd);
    r->space_bytes = (uint64_t)fs.f_blocks * (uint64_t)fs.f_frsize;
    r->space_free_bytes = (uint64_t)fs.f_bavail * (uint64_t)fs.f_frsize;
    return 0;
}
