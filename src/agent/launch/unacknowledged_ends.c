// Owns ends that wait for a controller which is away: after a few seconds they are copied from the
// spool, which a reboot empties, to the agent's own folder on disk, and go when acknowledged.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher_state.h"
#include "base/cleanup.h"
#include "base/log.h"

enum { ENDS_AT_ONCE = 256 };

int launcher_ends_open(struct launcher *l, const char *folder, struct error *e) {
    const char *path = arena_printf(&l->node->arena, "%s/ends", folder);
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return error_set(e, errno, "the folder %s cannot be made: %s%s", path, strerror(errno),
                         error_remedy(errno));
    l->ends_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    return l->ends_fd < 0 ? error_set(e, errno, "the folder %s cannot be opened: %m", path) : 0;
}

static int keep(struct launcher *l, const char *name, const struct spool_status *s) {
    char temporary[SPOOL_NAME_MAX + 8];
    snprintf(temporary, sizeof temporary, "%s.new", name);
    cleanup_close int fd = openat(l->ends_fd, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    errno = ENOSPC;  // a write that is cut short does not say why
    int rc = write(fd, s, sizeof *s) != sizeof *s || fdatasync(fd) < 0 ||
                     renameat(l->ends_fd, temporary, l->ends_fd, name) < 0
                 ? -errno
                 : 0;
    if (rc < 0)
        unlinkat(l->ends_fd, temporary, 0);
    return rc;
}

struct keeping {
    struct launcher *launcher;
    unsigned kept;
};

static void keep_one(void *ctx, uint64_t id, uint32_t attempt, enum agent_phase phase) {
    struct keeping *k = ctx;
    struct launcher *l = k->launcher;
    struct spool_status s;
    char name[SPOOL_NAME_MAX];
    if (phase != AGENT_ENDED || k->kept >= ENDS_AT_ONCE)
        return;
    spool_name(name, id, attempt);
    if (faccessat(l->ends_fd, name, F_OK, 0) == 0 ||
        spool_read_status(l->node->spool_fd, id, attempt, 0, &s) < 0 || s.state != SPOOL_ENDED)
        return;
    k->kept++;
    int rc = keep(l, name, &s);
    if (rc == 0)
        l->ends_kept++;
    else
        log_warn("job %llu: its end cannot be kept in the folder %s/ends: %s%s", (unsigned long long)id,
                 l->node->folder, strerror(-rc), error_remedy(-rc));
}

void launcher_ends_keep(struct launcher *l) {
    struct keeping k = {.launcher = l};
    agent_logic_each(l->node->logic, keep_one, &k);
}

void launcher_ends_forget(struct launcher *l, uint64_t id, uint32_t attempt) {
    char name[SPOOL_NAME_MAX];
    if (!l->ends_kept)
        return;
    spool_name(name, id, attempt);
    if (unlinkat(l->ends_fd, name, 0) == 0)
        l->ends_kept--;
}

static bool read_end(struct launcher *l, const char *name, struct spool_status *s) {
    uint64_t id;
    uint32_t attempt;
    if (spool_parse_name(name, &id, &attempt) < 0)
        return false;
    cleanup_close int fd = openat(l->ends_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    return fd >= 0 && read(fd, s, sizeof *s) == sizeof *s && spool_sealed(s) && s->job == id &&
           s->attempt == attempt && s->state == SPOOL_ENDED;
}

// After the spool was read: what it knows comes from there.
void launcher_ends_recover(struct launcher *l) {
    int fd = openat(l->ends_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    for (struct dirent *ent; d && (ent = readdir(d));) {
        struct spool_status s;
        struct message_ended end;
        cleanup_arena struct arena arena = {0};
        if (ent->d_name[0] == '.')
            continue;
        if (!read_end(l, ent->d_name, &s)) {
            unlinkat(fd, ent->d_name, 0);
            continue;
        }
        l->ends_kept++;
        agent_request_report(&s, &arena, &end);
        agent_logic_recover(l->node->logic, s.job, s.attempt, s.started_wall_ms, 0, NULL, 0, &end);
    }
    if (d)
        closedir(d);
}
