// Owns making and removing the files behind a fraction of a GPU.
#include "device/fraction.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/acl.h"
#include "shim/arbiter.h"
#include "shim/ledger.h"

static_assert((int)FRACTION_PATH_MAX == (int)LEDGER_PATH_MAX, "paths are passed through");

int gpu_fraction_path(const char *folder, const char *uuid, char path[FRACTION_PATH_MAX]) {
    return ledger_path(path, folder, uuid, LEDGER_SUFFIX);
}

// Jobs of different users take turns through the arbiter's file, so they write to it; nobody else reaches it.
static int allow_turns(const char *path, uid_t uid) {
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -errno;
    int r = acl_allow_user(fd, uid, ACL_READ | ACL_WRITE);
    if (r < 0 && fchmod(fd, 0666) == 0)  // no access control lists here
        r = 0;
    close(fd);
    return r;
}

int gpu_fraction_make(const struct fraction *f, const struct gpu *gpu, char path[FRACTION_PATH_MAX]) {
    char arbiter[LEDGER_PATH_MAX];
    struct ledger_limits limits = {
        .memory_bytes = f->memory_bytes ? f->memory_bytes : gpu->memory_bytes / FRACTION_WHOLE_MILLI * f->milli,
        .compute_milli = f->milli,
        .flags = LEDGER_BORROW,
        .total_bytes = gpu->memory_bytes,
    };
    int r = gpu_fraction_path(f->folder, gpu->uuid, path);
    if (r == 0)
        r = ledger_create(path, f->job, gpu->uuid, &limits, 0600, true);
    if (r == 0 && f->uid != (uid_t)-1 && chown(path, f->uid, f->gid) < 0)
        r = -errno;
    if (r == 0)
        r = ledger_path(arbiter, f->arbiter_folder, gpu->uuid, ARBITER_SUFFIX);
    if (r == 0 && access(arbiter, F_OK) < 0)
        r = arbiter_create(arbiter, gpu->uuid, 0600);
    return r == 0 && f->uid != (uid_t)-1 ? allow_turns(arbiter, f->uid) : r;
}

void gpu_fraction_forget(const char *folder, const char *arbiter_folder, const char *uuid, const char *job) {
    char path[FRACTION_PATH_MAX];
    if (gpu_fraction_path(folder, uuid, path) < 0 || unlink(path) < 0)
        return;
    if (ledger_path(path, arbiter_folder, uuid, ARBITER_SUFFIX) == 0)
        arbiter_forget(path, job);
}

static bool trim(const char *path, size_t bytes) {
    enum { BLOCK_BYTES = 512, SLACK_BYTES = 4 << 20 };  // a huge page may hold the whole file
    struct stat st;
    // Asked by name first: nothing is opened in the usual case.
    if (lstat(path, &st) < 0 || !S_ISREG(st.st_mode) ||
        (st.st_size <= (off_t)bytes && (size_t)st.st_blocks * BLOCK_BYTES <= bytes + SLACK_BYTES))
        return false;
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    bool done = fd >= 0 && ftruncate(fd, (off_t)bytes) == 0;
    if (fd >= 0)
        close(fd);
    return done;
}

bool gpu_fraction_trim_ledger(const char *path) {
    return trim(path, ledger_bytes());
}

bool gpu_fraction_trim_arbiter(const char *folder, const char *uuid) {
    char path[LEDGER_PATH_MAX];
    return ledger_path(path, folder, uuid, ARBITER_SUFFIX) == 0 && trim(path, arbiter_bytes());
}
