// Owns the helper of an MPI step (acequia-mpi): starts it in the step's control group before the tasks, gives each task
// a socket to it, and carries the few records by which the helpers of a step's nodes find each other between it and the
// attempt's folder, where the agent reads and writes them. A restarted agent finds them there again.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "launch/fds.h"
#include "shepherd.h"

enum { ABORT_GRACE_MS = 2000, NOTES_AT_ONCE = 16, LEFT_FILES_MAX = 100000, LEFT_DEPTH_MAX = 8 };

// Without it everything works too, but slower.
static void make_folder(struct shepherd_unit *u) {
    char path[MPI_FOLDER_MAX];
    const struct launch_request *r = &u->req;
    if (mkdir(mpi_folder(path, u->status.id, u->step), 0700) == 0 && r->switch_user &&
        lchown(path, r->uid, r->gid) < 0)
        rmdir(path);
}

// What is in it is the user's: links are not followed, and there is an end to it.
static void remove_left(int parent, const char *name, int depth, int *files) {
    if (unlinkat(parent, name, AT_REMOVEDIR) == 0 || (errno != ENOTEMPTY && errno != EEXIST) ||
        depth > LEFT_DEPTH_MAX)
        return;
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    for (struct dirent *ent; d && *files > 0 && (ent = readdir(d)); (*files)--)
        if (!streq(ent->d_name, ".") && !streq(ent->d_name, "..") && unlinkat(fd, ent->d_name, 0) < 0)
            remove_left(fd, ent->d_name, depth + 1, files);
    if (d)
        closedir(d);
    else if (fd >= 0)
        close(fd);
    unlinkat(parent, name, AT_REMOVEDIR);
}

static void remove_folder(const struct shepherd_unit *u) {
    char path[MPI_FOLDER_MAX];
    int files = LEFT_FILES_MAX;
    remove_left(AT_FDCWD, mpi_folder(path, u->status.id, u->step), 0, &files);
}

int mpi_open(struct shepherd *s, struct shepherd_unit *u) {
    int pair[2];
    if (!u->req.mpic)
        return 0;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    u->mpi.fd = pair[0];
    u->mpi.task_fd = pair[1];
    make_folder(u);
    pid_t pid = spawn_helper(s, u);
    u->mpi.task_fd = -1;
    atomic_store(&u->note->pid, 0);  // the first task's is awaited there
    close(pair[1]);
    if (pid <= 0)
        return pid < 0 ? pid : -EAGAIN;
    u->mpi.pid = pid;
    return 0;
}

int mpi_task_open(struct shepherd_unit *u, uint32_t rank) {
    struct mpi_note n = {.type = MPI_TASK, .rank = rank};
    int pair[2];
    if (u->mpi.fd < 0)
        return 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    u->mpi.task_fd = pair[1];
    int rc = launch_fds_send(u->mpi.fd, &n, sizeof n, &pair[0], 1);
    close(pair[0]);
    return rc;
}

static void end_step(struct shepherd *s, struct shepherd_unit *u, const struct mpi_note *n, int64_t now_ms) {
    char text[MPI_TEXT_MAX], line[MPI_TEXT_MAX + 32];
    int64_t grace_ms = u->req.grace_ms < ABORT_GRACE_MS ? u->req.grace_ms : ABORT_GRACE_MS;
    if (u->mpi.ended)
        return;
    u->mpi.ended = true;
    u->mpi.code = n->code & 0xff;
    snprintf(line, sizeof line, "acequia: %s\n", str_printable(n->text, text, sizeof text));
    if (*text)
        relay_note(s, u, n->rank, line);
    unit_end(s, u, ENDED_EXITED, 0, SIGTERM, grace_ms, now_ms);
}

static void keep_note(struct shepherd *s, const struct shepherd_unit *u, const struct mpi_note *n) {
    struct spool_hint h = {
        .job = u->status.job, .attempt = u->status.attempt, .step = u->step, .state = SPOOL_MPI};
    char name[SPOOL_NAME_MAX];
    if (n) {
        if (spool_mpi_write(s->spool_fd, u->status.job, u->status.attempt, u->step, SPOOL_MPI_OWN, n) < 0)
            return;
    } else {
        for (enum spool_mpi i = SPOOL_MPI_OWN; i <= SPOOL_MPI_HUB; i++) {
            spool_mpi_name(name, u->step, i);
            unlinkat(s->folder_fd, name, 0);
        }
    }
    if (write(s->hint_fd, &h, sizeof h) < 0)
        return;  // full: the agent looks by itself
}

void mpi_serve(struct shepherd *s, struct shepherd_unit *u, int64_t now_ms) {
    struct mpi_note n;
    for (int i = 0; i < NOTES_AT_ONCE && u->mpi.fd >= 0; i++) {
        ssize_t len = recv(u->mpi.fd, &n, sizeof n, MSG_DONTWAIT);
        if (len < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (len != sizeof n) {
            close(u->mpi.fd);
            u->mpi.fd = -1;
            u->mpi.groups = 0;
            return;
        }
        n.text[sizeof n.text - 1] = 0;
        if (n.type == MPI_LISTENS)
            keep_note(s, u, &n);
        else if (n.type == MPI_CONNECTED)
            keep_note(s, u, NULL);
        else if (n.type == MPI_GROUPS)
            u->mpi.groups = n.rank;
        else if (n.type == MPI_ABORT)
            end_step(s, u, &n, now_ms);
    }
}

int mpi_hub(struct shepherd *s, struct shepherd_unit *u) {
    struct mpi_note n;
    if (u->mpi.fd < 0)
        return 0;
    int rc = spool_mpi_read(s->spool_fd, u->status.job, u->status.attempt, u->step, SPOOL_MPI_HUB, &n);
    if (rc < 0)
        return rc;
    n.type = MPI_HUB;
    return send(u->mpi.fd, &n, sizeof n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

// Without it the tasks would wait for each other for ever.
bool mpi_reaped(struct shepherd *s, pid_t pid, int status, int64_t now_ms) {
    for (int i = 1; i < s->units_top; i++) {
        struct shepherd_unit *u = &s->units[i];
        if (u->phase == UNIT_FREE || u->mpi.pid != pid)
            continue;
        struct mpi_note n = {0};
        snprintf(n.text, sizeof n.text, "the helper of the MPI step ended (%s %d), and the step with it%s",
                 WIFSIGNALED(status) ? "signal" : "status",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
                 WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL ? "; was its memory too small?" : "");
        u->mpi.pid = 0;
        u->mpi.groups = 0;
        mpi_serve(s, u, now_ms);  // it may have said why
        if (u->alive)
            end_step(s, u, &n, now_ms);
        return true;
    }
    return false;
}

void mpi_close(struct shepherd *s, struct shepherd_unit *u) {
    if (u->mpi.fd >= 0)
        close(u->mpi.fd);
    if (u->mpi.task_fd >= 0)
        close(u->mpi.task_fd);
    if (u->mpi.pid > 0)
        kill(u->mpi.pid, SIGKILL);
    if (u->req.mpic)
        remove_folder(u);
    u->mpi.fd = u->mpi.task_fd = -1;
    u->mpi.pid = 0;
}
