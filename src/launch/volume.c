// Owns the folders of volumes.
#include "launch/volume.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/quota.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/acl.h"
#include "base/cleanup.h"
#include "base/quota.h"
#include "base/text.h"

enum { PROJECT_FIRST = 1000000 };  // of our quotas; numbers below are the site's own

const char *launch_volume_text(const struct volume_folder *v, struct arena *a) {
    return arena_printf(a, "%u %u %o %llu %llu %d %d\n%s\n%s\n%s", v->uid, v->gid, v->mode,
                        (unsigned long long)v->number, (unsigned long long)v->size_bytes, v->shared,
                        v->read_only, v->root, v->path, v->title);
}

int launch_volume_read(const char *text, struct arena *a, struct volume_folder *out) {
    unsigned long long number, size;
    struct volume_folder v = {0};
    int shared, read_only, n = 0;
    if (sscanf(text, "%u %u %o %llu %llu %d %d%n", &v.uid, &v.gid, &v.mode, &number, &size, &shared,
               &read_only, &n) != 7 ||
        text[n] != '\n')
        return -EBADMSG;
    const char *parts[3];
    const char *p = text + n;
    for (int i = 0; i < 3; i++) {
        if (*p != '\n')
            return -EBADMSG;
        size_t len = strcspn(++p, "\n");
        parts[i] = arena_strndup(a, p, len);
        p += len;
    }
    if (*p || (*parts[0] != '/' && !str_has_prefix(parts[0], "nfs://")) || !*parts[1])
        return -EBADMSG;
    v.number = number;
    v.size_bytes = size;
    v.shared = shared;
    v.read_only = read_only;
    v.root = parts[0];
    v.path = parts[1];
    v.title = parts[2];
    *out = v;
    return 0;
}

// Ours, and nobody else can put anything into it.
static int check_ours(int fd, const char *path, struct error *e) {
    struct stat st;
    if (fstat(fd, &st) < 0)
        return error_set(e, errno, "%s cannot be examined: %m", path);
    if (st.st_uid == geteuid() && !(st.st_mode & (S_IWGRP | S_IWOTH)))
        return 0;
    return error_set(
        e, EPERM,
        "%s belongs to user %u and has mode %03o; it must be root's, and nobody else may write to it", path,
        st.st_uid, st.st_mode & 0777);
}

static int enter(int parent, const char *name, struct error *e) {
    if (mkdirat(parent, name, 0711) < 0 && errno != EEXIST)
        return error_set(e, errno, "folder %s cannot be made: %m", name);
    cleanup_close int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return error_set(e, errno, "folder %s cannot be opened: %m", name);
    int r = check_ours(fd, name, e);
    return r < 0 ? r : TAKE_FD(fd);
}

// The number of its files in the quota of the file system. 1: it has none.
static int set_quota(int fd, const struct volume_folder *v) {
    struct fsxattr x;
    uint32_t project = PROJECT_FIRST + (uint32_t)v->number;
    uint64_t blocks = (v->size_bytes + QIF_DQBLKSIZE - 1) / QIF_DQBLKSIZE;
    struct if_dqblk q = {.dqb_bhardlimit = blocks, .dqb_bsoftlimit = blocks, .dqb_valid = QIF_BLIMITS};
    if (!v->size_bytes)
        return 0;
    if (ioctl(fd, FS_IOC_FSGETXATTR, &x) < 0)
        return 1;
    if (!quota_enforced(fd))
        return 1;
    x.fsx_projid = project;
    x.fsx_xflags |= FS_XFLAG_PROJINHERIT;
    if (ioctl(fd, FS_IOC_FSSETXATTR, &x) < 0)
        return 1;
    return syscall(SYS_quotactl_fd, fd, QCMD(Q_SETQUOTA, PRJQUOTA), project, &q) < 0;
}

// Made and not yet given to its owner: by us now, or by one that was killed in between.
static int give(int fd, const struct volume_folder *v, struct error *e) {
    struct stat st;
    bool root = geteuid() == 0;
    if (fstat(fd, &st) < 0)
        return error_set(e, errno, "its folder cannot be examined: %m");
    if (root && st.st_uid == 0 && v->uid != 0) {
        if (fchmod(fd, 0700) < 0 || fchown(fd, v->uid, v->gid) < 0 || fchmod(fd, v->mode) < 0)
            return error_set(e, errno,
                             "its folder cannot be given to its owner: %m; does its storage let root do so?");
        return 0;
    }
    if (st.st_uid != v->uid)
        return error_set(e, EPERM, "its folder belongs to user %u, not to its owner", st.st_uid);
    return 0;
}

static int open_folder(int parent, const char *name, const struct volume_folder *v, struct error *e) {
    bool fresh = mkdirat(parent, name, 0700) == 0;
    if (!fresh && errno != EEXIST)
        return error_set(e, errno, "its folder cannot be made: %m");
    cleanup_close int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return error_set(e, errno, "its folder cannot be opened: %m");
    int r = give(fd, v, e);
    if (r == 0 && fresh && fchmod(fd, v->mode) < 0)
        r = error_set(e, errno, "its folder cannot be prepared: %m");
    return r < 0 ? r : TAKE_FD(fd);
}

int launch_volume_make(const struct volume_folder *v, uint32_t user, struct error *e) {
    char part[256];
    cleanup_close int at = open(v->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const char *p = v->path;
    mode_t mask = umask(0);
    int r = at < 0
                ? error_set(e, errno, "the folder for volumes %s cannot be opened on this node: %m", v->root)
                : check_ours(at, v->root, e);
    while (r == 0) {
        size_t n = strcspn(p, "/");
        bool last = !p[n];
        if (!n || n >= sizeof part || *p == '.') {
            r = error_set(e, EINVAL, "its path is not valid");
            break;
        }
        snprintf(part, sizeof part, "%.*s", (int)n, p);
        int next = last ? open_folder(at, part, v, e) : enter(at, part, e);
        if (next < 0) {
            r = next;
            break;
        }
        close(at);
        at = next;
        if (last)
            break;
        p += n + 1;
    }
    umask(mask);
    if (r == 0 && v->shared) {
        r = acl_allow_in_folder(at, v->uid, user, ACL_READ | ACL_EXECUTE | (v->read_only ? 0 : ACL_WRITE));
        // A file system without such lists: its mode and groups decide.
        r = r == -EOPNOTSUPP || r == -EPERM ? 0
            : r < 0 ? error_set(e, -r, "its folder cannot be opened for user %u: %s", user, strerror(-r))
                    : 0;
    }
    if (r == 0)
        return set_quota(at, v) ? 1 : 0;
    error_prefix(e, "volume %s", v->title);
    return r;
}
