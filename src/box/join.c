// Owns entering a container that runs already: the namespaces of one of its processes, which is the same user's.
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "box/box.h"

static int open_namespace(pid_t pid, const char *kind) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/ns/%s", pid, kind);
    return open(path, O_RDONLY | O_CLOEXEC);
}

char **box_join_environment(pid_t pid, struct arena *a) {
    char path[64];
    cleanup_buf struct buf b = {0};
    snprintf(path, sizeof path, "/proc/%d/environ", pid);
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n;
    while (fd >= 0 && b.len < BOX_CONFIG_MAX && (n = read(fd, buf_reserve(&b, 4096), 4096)) > 0)
        b.len += (size_t)n;
    uint32_t count = 0;
    for (size_t i = 0; i < b.len; i++)
        count += !b.data[i];
    char **out = arena_alloc(a, (count + 1) * sizeof *out);
    char *all = arena_memdup(a, b.data, b.len);
    count = 0;
    for (size_t i = 0, begin = 0; i < b.len; i++)
        if (!all[i]) {
            out[count++] = all + begin;
            begin = i + 1;
        }
    return out;
}

int box_join(pid_t pid, const char *workdir, struct error *e) {
    char path[4096] = "/";
    char link[64];
    cleanup_close int user = open_namespace(pid, "user"), mounts = open_namespace(pid, "mnt");
    snprintf(link, sizeof link, "/proc/%d/cwd", pid);
    ssize_t n = readlink(link, path, sizeof path - 1);  // as it is called inside
    path[n > 0 ? n : 1] = 0;
    if (user < 0 || mounts < 0 || setns(user, CLONE_NEWUSER) < 0 || setns(mounts, CLONE_NEWNS) < 0)
        return error_set(e, errno, "the container of process %d cannot be entered: %m", pid);
    int rc = box_drop_privileges(e);
    if (rc < 0)
        return rc;
    if (workdir && chdir(workdir) < 0)
        return error_set(e, errno, "working directory %s cannot be entered in the container: %m", workdir);
    if (!workdir && chdir(path) < 0 && chdir("/") < 0)
        return error_set(e, errno, "the container's root folder cannot be entered: %m");
    return 0;
}
