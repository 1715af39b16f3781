// The reserve: a file of a named size that occupies room on the disk of the state folder. When a
// commit finds the disk full, the file is emptied, and what already runs can still be recorded.
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "sqlite_store.h"

static const char reserve_name[] = "reserve";

static int free_space(struct sqlite_store *s, uint64_t *out) {
    struct statvfs v;
    if (fstatvfs(s->folder_fd, &v) < 0)
        return -errno;
    *out = (uint64_t)v.f_bavail * v.f_frsize;
    return 0;
}

int store_space_reserve(struct sqlite_store *s) {
    if (!s->reserve_bytes)
        return 0;
    cleanup_close int fd =
        openat(s->folder_fd, reserve_name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    struct stat st;
    if (fstat(fd, &st) == 0 && (uint64_t)st.st_blocks * 512 >= s->reserve_bytes) {
        s->reserve_released = false;
        return 0;
    }
    if (fallocate(fd, 0, 0, (off_t)s->reserve_bytes) < 0) {
        int code = errno;
        unlinkat(s->folder_fd, reserve_name, 0);  // a partial one would only take room away
        // A file system that cannot set room aside is no reason to stop; a full one is a warning.
        s->reserve_released = code != EOPNOTSUPP;
        return -code;
    }
    s->reserve_released = false;
    return 0;
}

bool store_space_release(struct sqlite_store *s) {
    if (!s->reserve_bytes || atomic_exchange(&s->reserve_released, true))
        return false;
    cleanup_close int fd = openat(s->folder_fd, reserve_name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    return fd >= 0 && ftruncate(fd, 0) == 0;
}

enum store_space store_space_look(struct sqlite_store *s, uint64_t *free_bytes) {
    uint64_t bytes = 0;
    if (free_space(s, &bytes) < 0)
        return STORE_SPACE_LOW;
    *free_bytes = bytes;
    if (s->reserve_released) {
        if (bytes < s->reserve_bytes * 2 + s->low_bytes)
            return STORE_SPACE_CRITICAL;
        pthread_mutex_lock(&s->lock);
        s->reserve_wanted = true;
        pthread_cond_signal(&s->care);
        pthread_mutex_unlock(&s->lock);
        return STORE_SPACE_LOW;
    }
    return bytes < s->low_bytes ? STORE_SPACE_LOW : STORE_SPACE_OK;
}
