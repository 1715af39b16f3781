// Files of the certificate authority: written whole or not at all, read with a bound.
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "pki_internal.h"

static int write_all(int fd, const char *p, size_t n) {
    while (n) {
        ssize_t put = write(fd, p, n);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return -errno;
        p += put;
        n -= (size_t)put;
    }
    return 0;
}

static int sync_folder(const char *path) {
    cleanup_free char *copy = xstrdup(path);
    cleanup_close int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 || fsync(fd) < 0 ? -errno : 0;
}

int pki_write_file(const char *path, const void *data, size_t len, mode_t mode, struct error *e) {
    cleanup_free char *temp = xasprintf("%s.new", path);
    unlink(temp);
    cleanup_close int fd =
        open(temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return error_set(e, errno, "cannot create %s: %s", temp, strerror(errno));
    int r = write_all(fd, data, len);
    if (r == 0 && (fchmod(fd, mode) < 0 || fsync(fd) < 0 || rename(temp, path) < 0))
        r = -errno;
    if (r < 0) {
        unlink(temp);
        return error_set(e, -r, "cannot write %s: %s", path, strerror(-r));
    }
    r = sync_folder(path);
    return r < 0 ? error_set(e, -r, "cannot sync the folder of %s: %s", path, strerror(-r)) : 0;
}

int pki_read_file(const char *path, struct buf *out, struct error *e) {
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_set(e, errno, "cannot open %s: %s", path, strerror(errno));
    for (;;) {
        char *p = buf_reserve(out, PKI_PEM_MAX + 1);
        ssize_t n = read(fd, p, PKI_PEM_MAX + 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_set(e, errno, "cannot read %s: %s", path, strerror(errno));
        out->len += (size_t)n;
        out->data[out->len] = 0;
        if (out->len > PKI_PEM_MAX)
            return error_set(e, EFBIG, "%s is larger than %d bytes", path, PKI_PEM_MAX);
        if (n == 0)
            return 0;
    }
}
