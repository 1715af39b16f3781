// Owns the folder of indexes of when logs were written (launch/log_times.h), for attempts that have ended: "times" in
// the folder of kept output, a file "JOB.ATTEMPT.out" or ".err" each. While an attempt runs they are in its spool
// folder.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/vec.h"
#include "launch/spool.h"
#include "stream.h"

enum { KEPT_MAX = 2048, PRUNE_EVERY = 256 };

static const char folder[] = "times";
static const char *const ends[] = {"out", "err"};

static void kept_name(char out[SPOOL_PATH_MAX], uint64_t id, uint32_t attempt, bool error) {
    snprintf(out, SPOOL_PATH_MAX, "%s/%llu.%u.%s", folder, (unsigned long long)id, attempt, ends[error]);
}

static int open_running(struct agent_node *a, uint64_t id, uint32_t attempt, bool error) {
    char path[SPOOL_PATH_MAX];
    snprintf(path, sizeof path, "%llu.%u/%s", (unsigned long long)id, attempt, launch_times_names[error]);
    return openat(a->spool_fd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
}

int streams_times_open(struct agent_node *a, uint64_t id, uint32_t attempt, bool error) {
    char path[SPOOL_PATH_MAX];
    int fd = open_running(a, id, attempt, error);
    kept_name(path, id, attempt, error);
    return fd >= 0 ? fd : openat(a->output_fd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
}

static int by_number(const void *x, const void *y) {
    uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;
    return a < b ? -1 : a > b;
}

// Of too many files those of the older half of the jobs go.
static void prune(struct agent_node *a) {
    VEC(uint64_t) ids = {0};
    int fd = openat(a->output_fd, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d)
        return;
    for (struct dirent *ent; (ent = readdir(d));)
        vec_push(&ids, strtoull(ent->d_name, NULL, 10));
    if (ids.len > KEPT_MAX) {
        qsort(ids.at, ids.len, sizeof *ids.at, by_number);
        uint64_t below = ids.at[ids.len / 2];
        rewinddir(d);
        for (struct dirent *ent; (ent = readdir(d));)
            if (ent->d_name[0] != '.' && strtoull(ent->d_name, NULL, 10) < below)
                unlinkat(fd, ent->d_name, 0);
    }
    vec_done(&ids);
    closedir(d);
}

static bool keep_one(struct agent_node *a, const char *path, const struct log_times *t) {
    size_t bytes = t->len * sizeof *t->at;
    int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW;
    cleanup_close int to = openat(a->output_fd, path, flags, 0600);
    if (to < 0 && errno == ENOENT && mkdirat(a->output_fd, folder, 0700) == 0)
        to = openat(a->output_fd, path, flags, 0600);
    if (to < 0)
        return false;
    if (write(to, t->at, bytes) != (ssize_t)bytes)
        unlinkat(a->output_fd, path, 0);  // a full disk: the log has no times
    return true;
}

void streams_times_keep(struct streams *all, uint64_t id, uint32_t attempt) {
    struct agent_node *a = all->agent;
    for (int error = 0; error < 2; error++) {
        char path[SPOOL_PATH_MAX];
        cleanup_close int from = open_running(a, id, attempt, error);
        if (from < 0)
            continue;
        struct log_times *t = xcalloc(1, sizeof *t);
        launch_times_read(t, from);
        kept_name(path, id, attempt, error);
        if (t->len && keep_one(a, path, t) && ++all->times_kept % PRUNE_EVERY == 0)
            prune(a);
        free(t);
    }
}
