// Owns mounts of NFS exports that are volumes. Each process that is started for a job makes them in a mount namespace
// of its own, as root, before it becomes the user: nobody else on the node sees them, and they go with the last process
// of the job, whatever happens to the agent.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/text.h"
#include "launch/launch.h"
#include "launch/volume.h"

#define NFS_FOLDER "/run/acequia-nfs"
enum { MOUNT_MAX_MS = 60000, WORDS_MAX = 512, STEP_MS = 20 };

const char *launch_nfs_folder(uint32_t index, struct arena *a) {
    return arena_printf(a, NFS_FOLDER "/%u", index);
}

bool launch_volume_is_nfs(const struct volume_folder *v) {
    return str_has_prefix(v->root, "nfs://");
}

void launch_volumes_keep_nfs(struct launch_request *r) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->nvolumes; i++)
        if (strstr(r->volumes[i], "\nnfs://"))
            r->volumes[n++] = r->volumes[i];
    r->nvolumes = n;
}

static int make_folder(const char *path, struct error *e) {
    struct stat st;
    if (mkdir(path, 0755) < 0 && errno != EEXIST)
        return error_set(e, errno, "the folder %s cannot be made: %m", path);
    if (lstat(path, &st) < 0 || !S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 022))
        return error_set(e, EPERM, "%s must be a folder of root that nobody else may write to", path);
    return 0;
}

static int own_namespace(struct error *e) {
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
        return error_set(e, errno, "the job's own mounts cannot be made: %m");
    return 0;
}

_Noreturn static void run_mount(const struct volume_folder *v, int words) {
    static const char *const places[] = {"/usr/local/sbin/mount.nfs", "/usr/sbin/mount.nfs",
                                         "/sbin/mount.nfs"};
    char source[4200];
    const char *server = v->root + strlen("nfs://");
    size_t n = strcspn(server, "/");
    snprintf(source, sizeof source, "%.*s:%s", (int)n, server, server + n);
    char *env[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", NULL};
    char options[] = "nosuid,nodev,retry=0,rw", folder[64];
    snprintf(folder, sizeof folder, "%s", v->path);
    if (v->read_only)
        memcpy(options + sizeof options - 3, "ro", 2);
    char *argv[] = {"mount.nfs", source, folder, "-o", options, NULL};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(words, STDOUT_FILENO);
    dup2(words, STDERR_FILENO);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        execve(places[i], argv, env);
    dprintf(STDERR_FILENO, "mount.nfs is not installed on this node (Debian's package nfs-common)");
    _exit(127);
}

// The end of what it said, as one line.
static void read_words(int fd, char out[WORDS_MAX]) {
    ssize_t n = read(fd, out, WORDS_MAX - 1);
    out[n > 0 ? n : 0] = 0;
    for (char *p = out; *p; p++)
        if ((unsigned char)*p < ' ')
            *p = ' ';
    for (size_t len = strlen(out); len && out[len - 1] == ' ';)
        out[--len] = 0;
}

static int mount_one(const struct volume_folder *v, struct error *e) {
    char said[WORDS_MAX] = "";
    int words[2], status = 0;
    if (pipe2(words, O_CLOEXEC | O_NONBLOCK) < 0)
        return error_set(e, errno, "it cannot be mounted: %m");
    pid_t pid = fork();
    if (pid == 0)
        run_mount(v, words[1]);
    close(words[1]);
    int64_t until_ms = clock_mono_ms() + MOUNT_MAX_MS;
    pid_t done = pid < 0 ? -1 : 0;
    while (pid > 0 && (done = waitpid(pid, &status, WNOHANG)) == 0 && clock_mono_ms() < until_ms)
        poll(NULL, 0, STEP_MS);
    if (pid > 0 && done == 0) {
        kill(pid, SIGKILL);
        close(words[0]);
        return error_set(e, ETIMEDOUT, "%s was not mounted within %d s: does its server answer?", v->root,
                         MOUNT_MAX_MS / 1000);
    }
    read_words(words[0], said);
    close(words[0]);
    if (done == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    return error_set(e, EIO, "%s cannot be mounted on this node: %s", v->root,
                     *said ? said : "mount.nfs did not say why");
}

int launch_nfs_mount(const struct volume_folder *v, bool *entered, struct error *e) {
    int r = geteuid() != 0
                ? error_set(e, EPERM, "NFS exports are mounted by root, and this node's agent is not root")
                : make_folder(NFS_FOLDER, e);
    r = r < 0 ? r : make_folder(v->path, e);
    if (r == 0 && !*entered) {
        r = own_namespace(e);
        *entered = r == 0;
    }
    r = r < 0 ? r : mount_one(v, e);
    if (r < 0)
        error_prefix(e, "volume %s", v->title);
    return r;
}
