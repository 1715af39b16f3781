// Owns the way from a text to an open file.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "files.h"

enum { SHOWN_MAX = 200 };

static const char *explain(int error) {
    switch (error) {
    case ENOSPC:
        return "no space is left on this file system; remove something there, or choose another place";
    case EDQUOT:
        return "your disk quota is used up; remove something of yours on this file system, or ask for more";
    case EROFS: return "this file system can only be read; choose another place";
    default: return strerror(error);
    }
}

int files_fail(struct error *e, int error, const char *path) {
    char shown[SHOWN_MAX];
    str_printable(path, shown, sizeof shown);
    return error_set(e, error, "%s: %s", shown, explain(error));
}

static void add_folder(const struct files *f, struct buf *out) {
    buf_adds(out, str_empty(f->request->folder) ? f->order->home : f->request->folder);
}

// "~" and what is below it are in the user's home, what is not absolute in the folder of the request.
int files_path(const struct files *f, const char *text, struct buf *out, struct error *e) {
    cleanup_buf struct buf bytes = {0};
    int r = file_name_read(text ? text : "", &bytes, e);
    if (r < 0)
        return r;
    const char *path = buf_str(&bytes);
    if (*path == '~' && (path[1] == '/' || !path[1])) {
        buf_adds(out, f->order->home);
        path++;
    } else if (*path != '/') {
        add_folder(f, out);
        if (*path)
            buf_addc(out, '/');
    }
    buf_adds(out, path);
    if (out->len > FILE_PATH_MAX)
        return error_set(e, ENAMETOOLONG, "path: it is longer than %d bytes", FILE_PATH_MAX);
    if (*buf_str(out) != '/')
        return error_set(e, EINVAL,
                         "path: neither it nor the home of the user is absolute; give an absolute path");
    return 0;
}

// Their files are not data, reading some of them changes things, and those of /proc show this process.
static bool is_of_kernel(int fd) {
    static const long kinds[] = {PROC_SUPER_MAGIC, SYSFS_MAGIC,   CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC,
                                 DEBUGFS_MAGIC,    TRACEFS_MAGIC, SECURITYFS_MAGIC,   DEVPTS_SUPER_MAGIC,
                                 BPF_FS_MAGIC,     SELINUX_MAGIC, EFIVARFS_MAGIC,     NSFS_MAGIC,
                                 BINFMTFS_MAGIC,   SOCKFS_MAGIC,  PIPEFS_MAGIC,       PSTOREFS_MAGIC};
    struct statfs fs;
    if (fstatfs(fd, &fs) < 0)
        return true;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if ((unsigned long)fs.f_type == (unsigned long)kinds[i])
            return true;
    return false;
}

bool files_is_hidden(const char *path) {
    for (const char *p = path; *p; p++)
        if (*p == '.' && (p == path || p[-1] == '/') && p[1] && p[1] != '/' &&
            !(p[1] == '.' && (!p[2] || p[2] == '/')))
            return true;
    return false;
}

const char *files_real_path(struct files *f, int fd) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n <= 0 || path[0] != '/')
        return NULL;
    return arena_strndup(&f->arena, path, (size_t)n);
}

int files_check_place(const struct files *f, int fd, struct error *e) {
    if (is_of_kernel(fd))
        return error_set(e, EPERM, "file systems of the kernel (/proc, /sys) are not shown; use a terminal");
    if (!f->request->visible_only)
        return 0;
    struct files local = {0};
    const char *path = files_real_path(&local, fd);
    bool hidden = !path || files_is_hidden(path);
    arena_done(&local.arena);
    return hidden ? error_set(e, EPERM,
                              "a token that only reads does not open hidden files and folders, where "
                              "programs keep passwords and keys")
                  : 0;
}

static int open_as_path(const char *path, uint64_t flags) {
    struct open_how how = {.flags = O_PATH | O_CLOEXEC | flags, .resolve = RESOLVE_NO_MAGICLINKS};
    return (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
}

int files_open(struct files *f, const char *path, struct stat *st, struct error *e) {
    cleanup_close int fd = open_as_path(path, 0);
    if (fd < 0 || fstat(fd, st) < 0)
        return files_fail(e, errno, path);
    int r = files_check_place(f, fd, e);
    return r < 0 ? r : TAKE_FD(fd);
}

int files_reopen(int fd, int flags) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int got = open(link, flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    return got < 0 ? -errno : got;
}

int files_open_parent(struct files *f, const char *path, const char **name, struct error *e) {
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/')
        len--;
    char *whole = arena_strndup(&f->arena, path, len), *slash = strrchr(whole, '/');
    *name = arena_strdup(&f->arena, slash + 1);
    if (!**name || streq(*name, ".") || streq(*name, ".."))
        return error_set(e, EINVAL, "path: it must end with the name of a file or folder");
    slash[slash == whole] = 0;
    cleanup_close int fd = open_as_path(whole, O_DIRECTORY);
    if (fd < 0)
        return files_fail(e, errno, whole);
    int r = files_check_place(f, fd, e);
    return r < 0 ? r : TAKE_FD(fd);
}

const char *files_text(struct files *f, const char *bytes) {
    cleanup_buf struct buf b = {0};
    file_name_write(bytes, strlen(bytes), &b);
    return arena_strdup(&f->arena, buf_str(&b));
}

void files_describe(struct files *f, int folder, const char *name, const struct stat *st,
                    struct file_entry *out) {
    char target[PATH_MAX];
    *out =
        (struct file_entry){.name = files_text(f, name),
                            .type = S_ISREG(st->st_mode)   ? FILE_REGULAR
                                    : S_ISDIR(st->st_mode) ? FILE_FOLDER
                                    : S_ISLNK(st->st_mode) ? FILE_LINK
                                                           : FILE_OTHER,
                            .size = (uint64_t)st->st_size,
                            .modified_ms = (int64_t)st->st_mtim.tv_sec * 1000 + st->st_mtim.tv_nsec / 1000000,
                            .mode = st->st_mode & 07777};
    if (out->type == FILE_REGULAR)
        out->version = arena_printf(&f->arena, "%llx-%llx-%llx.%lx", (unsigned long long)st->st_ino,
                                    (unsigned long long)st->st_size, (unsigned long long)st->st_mtim.tv_sec,
                                    (unsigned long)st->st_mtim.tv_nsec);
    ssize_t n = out->type == FILE_LINK ? readlinkat(folder, name, target, sizeof target - 1) : -1;
    if (n > 0) {
        target[n] = 0;
        out->target = files_text(f, target);
    }
}
