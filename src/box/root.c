// Owns what the job sees: a root made of the image, writable in memory, and over it the kernel's own
// file systems, the devices it may use, its home, working folder and mounts. Everything from outside is
// taken as a tree of mounts before the root changes and put in place afterwards, so that no symbolic
// link in an image can lead a mount or a new folder anywhere but into the image.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "box/box.h"
#include "model/paths.h"

enum { TREES_MAX = 512 + BOX_LIST_MAX, OPENED_MAX = 512, DEPTH_MAX = 64 };

struct tree {
    int fd;
    const char *to;
    bool folder, optional;
};

struct room {
    struct arena *a;
    const struct box_wish *wish;
    const struct box_image *image;
    VEC(struct tree) trees;
    struct box_list same;  // folders that are seen at their own path
    bool own_terminals;    // no terminal comes from outside: those that are opened inside are of its own
    bool overlay;          // else the root is read-only, and places to mount on must be there
};

static bool under(const char *path, const char *folder) {
    size_t n = strlen(folder);
    return strncmp(path, folder, n) == 0 && (!path[n] || path[n] == '/');
}

static int take(struct room *r, const char *from, const char *to, bool read_only, bool optional, struct error *e) {
    struct mount_attr ro = {.attr_set = MOUNT_ATTR_RDONLY};
    struct stat st;
    int fd = open_tree(AT_FDCWD, from, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
    if (fd < 0 && optional)
        return 0;
    if (fd < 0)
        return error_set(e, errno, "mount %s: the path cannot be opened on this node: %m", from);
    if (fstat(fd, &st) < 0 || (read_only && mount_setattr(fd, "", AT_EMPTY_PATH | AT_RECURSIVE, &ro, sizeof ro) < 0) ||
        r->trees.len >= TREES_MAX) {
        int err = r->trees.len >= TREES_MAX ? E2BIG : errno;
        close(fd);
        return error_set(e, err, "mount %s cannot be made: %s", from, strerror(err));
    }
    struct tree t = {.fd = fd, .to = to, .folder = S_ISDIR(st.st_mode), .optional = optional};
    vec_push(&r->trees, t);
    return 0;
}

// At its own path, unless a folder around it is there already.
static int take_same(struct room *r, const char *path, bool read_only, bool optional, struct error *e) {
    if (str_empty(path) || *path != '/' || streq(path, "/"))
        return 0;
    for (uint32_t i = 0; i < r->same.len; i++)
        if (under(path, r->same.at[i]))
            return 0;
    if (!read_only)
        box_list_add(&r->same, r->a, path);
    uint32_t before = r->trees.len;
    int rc = take(r, path, path, read_only, optional, e);
    if (r->trees.len > before)
        r->trees.at[before].optional = false;  // what there is must be seen
    return rc;
}

// A working folder among the system's own would cover the image's.
static bool of_the_system(const char *path) {
    static const char *const folders[] = {"/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc",
                                          "/run", "/sbin", "/sys", "/usr", "/var"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        if (under(path, folders[i]))
            return !under(path, "/var/lib") && !under(path, "/var/tmp");
    return false;
}

static int take_devices(struct room *r, struct error *e) {
    static const char *const plain[] = {"/dev/null",   "/dev/zero",    "/dev/full",
                                        "/dev/random", "/dev/urandom", "/dev/tty",
                                        "/dev/shm",    "/dev/mqueue",  "/dev/infiniband"};
    int rc = 0;
    if (!r->own_terminals) {
        rc = take(r, "/dev/ptmx", "/dev/ptmx", false, true, e);
        rc = rc < 0 ? rc : take(r, "/dev/pts", "/dev/pts", false, true, e);
    }
    for (size_t i = 0; i < sizeof plain / sizeof *plain && rc == 0; i++)
        rc = take(r, plain[i], plain[i], false, i > 0, e);
    for (uint32_t i = 0; i < r->wish->devices.len && rc == 0; i++)
        rc = take(r, r->wish->devices.at[i], r->wish->devices.at[i], false, true, e);
    box_list_add(&r->same, r->a, "/dev/shm");
    return rc;
}

static bool of_the_driver(const char *name) {
    static const char *const begins[] = {"libcuda.so", "libcudadebugger.so", "libnvidia-", "libnvcuvid.so",
                                         "libnvoptix.so"};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (str_has_prefix(name, begins[i]))
            return true;
    return false;
}

// The driver of this machine, which must be the one of its kernel module: never the image's.
static int take_driver(struct room *r, struct error *e) {
    const char *folder = r->wish->driver;
    DIR *d = folder ? opendir(folder) : NULL;
    int rc = 0;
    for (struct dirent *ent; d && rc == 0 && (ent = readdir(d));)
        if (of_the_driver(ent->d_name) && strstr(ent->d_name, ".so"))
            rc = take(r, arena_printf(r->a, "%s/%s", folder, ent->d_name),
                      arena_printf(r->a, BOX_DRIVER "/lib64/%s", ent->d_name), true, true, e);
    if (d)
        closedir(d);
    static const char *const programs[] = {"/usr/bin/nvidia-smi", "/usr/local/nvidia/bin/nvidia-smi",
                                           "/usr/local/bin/nvidia-smi"};
    for (size_t i = 0; folder && rc == 0 && i < sizeof programs / sizeof *programs; i++)
        if (access(programs[i], X_OK) == 0)
            return take(r, programs[i], BOX_DRIVER "/bin/nvidia-smi", true, true, e);
    return rc;
}

// The node's own programs with the node's own libraries: what is in the image does not matter to them.
static int take_ssh(struct room *r, struct error *e) {
    static const char *const libraries[] = {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"};
    int rc = take(r, "/usr/sbin/sshd", PATHS_CONTAINER_SSH "/sshd", true, true, e);
    if (rc == 0)
        rc = take(r, "/usr/bin/ssh-keygen", PATHS_CONTAINER_SSH "/ssh-keygen", true, true, e);
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries && rc == 0; i++)
        rc = take(r, libraries[i], PATHS_CONTAINER_SSH "/lib", true, true, e);
    return rc;
}

// A volume that its user may not enter is named here, and not found out by the program.
static int take_volumes(struct room *r, struct error *e) {
    int rc = 0;
    for (uint32_t i = 0; i < r->wish->volumes.len && rc == 0; i++) {
        const struct mount_spec *m = &r->wish->volumes.at[i];
        if (access(m->from, R_OK) < 0 && errno == EACCES)
            return error_set(e, EACCES,
                             "volume %s: its permissions do not let you in; its owner can change them",
                             m->from);
        rc = take(r, m->from, m->to, m->read_only, false, e);
    }
    for (uint32_t i = 0; i < r->wish->buckets.len && rc == 0; i++) {
        const struct box_bucket *b = &r->wish->buckets.at[i];
        struct tree t = {.fd = box_bucket_mount(b, r->wish->cache, r->wish->senders, r->a, e),
                         .to = b->to,
                         .folder = true};
        rc = t.fd < 0 ? t.fd : 0;
        if (rc == 0)
            vec_push(&r->trees, t);
    }
    return rc;
}

// Settings of the kernel belong to root, and who is root may change them even without a privilege: core_pattern names a
// program that the kernel starts. So they are read-only, as /sys is.
static int take_kernel(struct room *r, struct error *e) {
    static const char *const settings[] = {"/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs",
                                           "/proc/acpi", "/proc/scsi"};
    int rc = take(r, "/proc", "/proc", false, false, e);
    for (size_t i = 0; rc == 0 && geteuid() == 0 && i < sizeof settings / sizeof *settings; i++)
        rc = take(r, settings[i], settings[i], true, true, e);
    return rc < 0 ? rc : take(r, "/sys", "/sys", true, true, e);
}

static int take_mounts(struct room *r, const struct box_image *image, const char *script, const char *cwd,
                       struct error *e) {
    const struct box_wish *w = r->wish;
    // Later ones lie over earlier ones: what this job asks for comes last, over the image's own and what all jobs have.
    int rc = take_kernel(r, e);
    rc = rc < 0 ? rc : take_devices(r, e);
    rc = rc < 0 ? rc : take_same(r, "/tmp", false, true, e);
    for (uint32_t i = 0; i < image->config.mounts.len && rc == 0; i++) {
        const struct mount_spec *m = &image->config.mounts.at[i];
        rc = take(r, m->from, m->to, m->read_only, false, e);
    }
    rc = rc < 0 ? rc : take_same(r, w->home, false, true, e);
    rc = rc < 0 || of_the_system(cwd) ? rc : take_same(r, cwd, false, true, e);
    for (uint32_t i = 0; i < w->binds.len && rc == 0; i++)
        rc = take_same(r, w->binds.at[i], false, true, e);
    rc = rc < 0 ? rc : take_same(r, w->shim, true, true, e);
    rc = rc < 0 ? rc : take_same(r, script, true, false, e);
    rc = rc < 0 ? rc : take_driver(r, e);
    if (rc == 0 && w->tools)
        rc = take(r, w->tools, BOX_TOOLS "/acequia", true, true, e);
    if (rc == 0 && w->ssh)
        rc = take_ssh(r, e);
    rc = rc < 0 ? rc : take_volumes(r, e);
    for (uint32_t i = 0; i < w->mounts.len && rc == 0; i++) {
        const struct mount_spec *m = &w->mounts.at[i];
        rc = take(r, m->from, m->to, m->read_only, false, e);
    }
    return rc;
}

static int put(const struct tree *t, struct arena *a, struct error *e);

// Folders of an image that belongs to somebody else cannot be added to. Such a one is covered with
// memory, in which everything that was in it is put back in its place, and then can be.
static int open_up(const char *folder, struct arena *a) {
    struct {
        const char *path, *link;
        int fd;
        bool folder;
    } *at = arena_alloc(a, OPENED_MAX * sizeof *at);
    DIR *d = opendir(folder);
    uint32_t n = 0;
    int rc = !d || streq(folder, "/") ? -EACCES : 0;
    for (struct dirent *ent; rc == 0 && (ent = readdir(d));) {
        char link[4096];
        if (streq(ent->d_name, ".") || streq(ent->d_name, ".."))
            continue;
        at[n].path = arena_printf(a, "%s/%s", folder, ent->d_name);
        ssize_t len = readlink(at[n].path, link, sizeof link - 1);
        at[n].link = len > 0 ? arena_strndup(a, link, (size_t)len) : NULL;
        at[n].folder = ent->d_type == DT_DIR;
        at[n].fd = len > 0 ? -1 : open_tree(AT_FDCWD, at[n].path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
        n++;
        rc = n == OPENED_MAX ? -E2BIG : 0;
    }
    if (d)
        closedir(d);
    if (rc == 0 && mount("tmpfs", folder, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755") < 0)
        rc = -errno;
    for (uint32_t i = 0; i < n; i++) {
        struct tree t = {.fd = at[i].fd, .to = at[i].path, .folder = at[i].folder, .optional = true};
        if (rc == 0 && at[i].link && symlink(at[i].link, at[i].path) < 0)
            rc = -errno;
        if (rc == 0 && !at[i].link)
            put(&t, a, NULL);
        else if (at[i].fd >= 0)
            close(at[i].fd);
    }
    return rc;
}

// Of somebody else; of a group that is not in our namespace; read-only.
static bool is_closed(int err) {
    return err == EACCES || err == EPERM || err == EOVERFLOW || err == EROFS;
}

// A link to what is not there, as /home to var/home: that is made. Absolute or not, it is inside by now.
static const char *link_target(const char *path, const char *parent, struct arena *a) {
    char target[4096];
    ssize_t n = readlink(path, target, sizeof target - 1);
    if (n <= 0)
        return NULL;
    target[n] = 0;
    return *target == '/' ? arena_strdup(a, target) : arena_printf(a, "%s/%s", parent, target);
}

static int make_folder_within(const char *path, int depth, struct arena *a) {
    char *copy = arena_strdup(a, path);
    struct stat st;
    if (stat(path, &st) == 0)
        return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
    char *slash = strrchr(copy, '/');
    if (!slash || !depth)
        return -ELOOP;
    *slash = 0;
    int rc = *copy ? make_folder_within(copy, depth - 1, a) : 0;
    const char *target = rc == 0 ? link_target(path, copy, a) : NULL;
    if (target)
        return make_folder_within(target, depth - 1, a);
    if (rc == 0 && mkdir(path, 0755) < 0)
        rc = !is_closed(errno) ? -errno : open_up(*copy ? copy : "/", a);
    // Again: the folder above can be added to now.
    return rc < 0 ? rc : mkdir(path, 0755) < 0 && errno != EEXIST ? -errno : 0;
}

static int make_folder(const char *path, struct arena *a) {
    return make_folder_within(path, DEPTH_MAX, a);
}

static int make_place(const struct tree *t, struct arena *a) {
    struct stat st;
    if (t->folder)
        return make_folder(t->to, a);
    if (stat(t->to, &st) == 0)
        return S_ISDIR(st.st_mode) ? -EISDIR : 0;
    const char *parent = arena_strndup(a, t->to, (size_t)(strrchr(t->to, '/') - t->to));
    int rc = *parent ? make_folder(parent, a) : 0;
    int fd = rc < 0 ? -1 : open(t->to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0 && rc == 0 && is_closed(errno) && (rc = open_up(*parent ? parent : "/", a)) == 0)
        fd = open(t->to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0)
        return rc < 0 ? rc : -errno;
    close(fd);
    return 0;
}

static int put(const struct tree *t, struct arena *a, struct error *e) {
    int rc = make_place(t, a);
    if (rc == 0 && move_mount(t->fd, "", AT_FDCWD, t->to, MOVE_MOUNT_F_EMPTY_PATH) < 0)
        rc = -errno;
    close(t->fd);
    if (rc == 0 || t->optional)
        return 0;
    return error_set(e, -rc, "nothing can be mounted at %s in the image: %s", t->to, strerror(-rc));
}

// To the working folder.
static int change_root(struct error *e) {
    // The old root lies on top of the new one for a moment, and is then let go. On machines that run from
    // the kernel's first memory it cannot be: there it is covered for good.
    bool changed = syscall(SYS_pivot_root, ".", ".") == 0
                       ? umount2(".", MNT_DETACH) == 0
                       : errno == EINVAL && mount(".", "/", NULL, MS_MOVE, NULL) == 0;
    if (!changed || chroot(".") < 0 || chdir("/") < 0)
        return error_set(e, errno, "the image cannot be entered: %m");
    return 0;
}

// Where an overlay can keep what is changed. In memory, if files in memory can carry the marks it needs
// (Linux 6.6); else folders that were removed could not be made again, and a folder beside the images
// serves, which goes when the next one of this user begins.
static int open_changes(struct room *r, struct error *e) {
    const char *work = arena_printf(r->a, "%s/work", r->wish->cache);
    const char *name = arena_printf(r->a, "changes.%d", getpid());
    const char *folder = arena_printf(r->a, "%s/%s", work, name);
    if (setxattr("upper", "user.overlay.probe", "y", 1, 0) < 0) {
        box_cache_clear(r->wish->cache, r->a);
        box_remove(work, name);
        if (mkdir(folder, 0700) < 0 || mkdir(arena_printf(r->a, "%s/upper", folder), 0755) < 0 ||
            mkdir(arena_printf(r->a, "%s/work", folder), 0755) < 0)
            return error_set(e, errno, "%s cannot be made: %m", folder);
    } else {
        removexattr("upper", "user.overlay.probe");
        folder = ".";
    }
    int fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? error_set(e, errno, "%s cannot be opened: %m", folder) : fd;
}

// A container that is kept: what is written stays.
static int enter_kept(struct room *r, int root, const char *stage, struct error *e) {
    cleanup_close int tree = open_tree(root, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
    if (tree < 0 || move_mount(tree, "", AT_FDCWD, stage, MOVE_MOUNT_F_EMPTY_PATH) < 0 || chdir(stage) < 0)
        return error_set(e, errno, "the container cannot be entered: %m");
    r->overlay = true;  // files and folders can be added to it
    return change_root(e);
}

// The image below, memory above: it is shared by all that run in it, and what one writes is its own and
// gone at its end. Where the kernel does not allow that, or other file systems are mounted inside the
// folder (as in /), it is shown as it is, read-only.
static int make_root(struct room *r, const char *root, const char *stage, struct error *e) {
    cleanup_close int fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct mount_attr ro = {.attr_set = MOUNT_ATTR_RDONLY};
    if (fd < 0)
        return error_set(e, errno, "the image's root folder %s cannot be entered: %m", root);
    if (r->image->kept)
        return enter_kept(r, fd, stage, e);
    cleanup_close int plain = open_tree(fd, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE | AT_EMPTY_PATH);
    if (mount("tmpfs", stage, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755") < 0 || chdir(stage) < 0 ||
        mkdir("upper", 0755) < 0 || mkdir("work", 0755) < 0 || mkdir("root", 0755) < 0)
        return error_set(e, errno, "the image cannot be mounted: %m");
    cleanup_close int changes = open_changes(r, e);
    if (changes < 0)
        return changes;
    const char *options = arena_printf(r->a, "lowerdir=/proc/self/fd/%d,upperdir=/proc/self/fd/%d/upper,"
                                       "workdir=/proc/self/fd/%d/work,userxattr", fd, changes, changes);
    r->overlay = mount("overlay", "root", "overlay", 0, options) == 0;
    if (!r->overlay && (plain < 0 || mount_setattr(plain, "", AT_EMPTY_PATH | AT_RECURSIVE, &ro, sizeof ro) < 0 ||
                        move_mount(plain, "", AT_FDCWD, "root", MOVE_MOUNT_F_EMPTY_PATH) < 0))
        return error_set(e, errno, "the image cannot be mounted: %m");
    if (chdir("root") < 0)
        return error_set(e, errno, "the image cannot be entered: %m");
    return change_root(e);
}

// The node as it is: everything of its root folder, in a root of memory to which places for mounts can be added.
static int make_host_root(const char *stage, struct arena *a, struct error *e) {
    DIR *d = opendir("/");
    int rc = !d || mount("tmpfs", stage, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755") < 0 ? -errno : 0;
    for (struct dirent *ent; rc == 0 && (ent = readdir(d));) {
        char link[4096];
        const char *from = arena_printf(a, "/%s", ent->d_name), *to = arena_printf(a, "%s%s", stage, from);
        struct stat st;
        if (streq(ent->d_name, ".") || streq(ent->d_name, "..") || lstat(from, &st) < 0)
            continue;
        ssize_t n = S_ISLNK(st.st_mode) ? readlink(from, link, sizeof link - 1) : -1;
        if (n > 0) {
            link[n] = 0;
            rc = symlink(link, to) < 0 ? -errno : 0;
            continue;
        }
        cleanup_close int tree =
            open_tree(AT_FDCWD, from, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
        cleanup_close int file =
            S_ISDIR(st.st_mode) ? -1 : open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        if (tree < 0 || (S_ISDIR(st.st_mode) ? mkdir(to, 0755) < 0 : file < 0) ||
            move_mount(tree, "", AT_FDCWD, to, MOVE_MOUNT_F_EMPTY_PATH) < 0)
            rc = S_ISDIR(st.st_mode) ? -errno : 0;  // a file beside the folders is not missed
    }
    if (d)
        closedir(d);
    if (rc == 0 && chdir(stage) < 0)
        rc = -errno;
    return rc < 0 ? error_set(e, -rc, "volumes cannot be mounted on this node: %s", strerror(-rc))
                  : change_root(e);
}

// Root's jobs without an image keep root's rights: there is nothing in the way that has to be got around.
static int enter_host(struct room *r, const char *cwd, struct error *e) {
    const char *stage = arena_printf(r->a, "%s/stage", r->wish->cache);
    bool root = geteuid() == 0;
    if (mkdir(stage, 0700) < 0 && errno != EEXIST)
        return error_set(e, errno, "the folder %s cannot be made: %m", stage);
    int rc = root ? 0 : box_namespaces(CLONE_NEWNS, geteuid(), getegid(), e);
    if (root && (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0))
        rc = error_set(e, errno, "volumes cannot be mounted on this node: %m");
    rc = rc < 0 ? rc : take_volumes(r, e);
    rc = rc < 0 ? rc : make_host_root(stage, r->a, e);
    for (uint32_t i = 0; i < r->trees.len && rc == 0; i++)
        rc = put(&r->trees.at[i], r->a, e);
    rc = rc < 0 || root ? rc : box_drop_privileges(e);
    if (rc == 0 && chdir(cwd) < 0)
        rc = error_set(e, errno, "working directory %s cannot be entered: %m", cwd);
    return rc;
}

static int mount_memory(struct room *r, const char *at, struct error *e) {
    int rc = make_folder(at, r->a);
    if (rc == 0 && mount("tmpfs", at, "tmpfs", MS_NOSUID, "mode=0755") < 0)
        rc = -errno;
    if (rc < 0)
        return error_set(e, -rc, "nothing can be mounted at %s in the image: %s", at, strerror(-rc));
    return 0;
}

// Terminals for programs inside that open some (tmux, ssh, notebooks): the node's /dev/ptmx finds those of its own
// folder only, which is not ours.
static void mount_terminals(struct room *r) {
    const char *options = arena_printf(r->a, "newinstance,ptmxmode=0666,mode=0620,gid=%u", getegid());
    if (mkdir("/dev/pts", 0755) == 0 &&
        mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, options) == 0 &&
        symlink("pts/ptmx", "/dev/ptmx") < 0)
        umount2("/dev/pts", MNT_DETACH);  // programs go without
}

static void link_devices(void) {
    static const char *const links[][2] = {{"/proc/self/fd", "/dev/fd"}, {"/proc/self/fd/0", "/dev/stdin"},
                                           {"/proc/self/fd/1", "/dev/stdout"}, {"/proc/self/fd/2", "/dev/stderr"}};
    for (size_t i = 0; i < sizeof links / sizeof *links; i++)
        if (symlink(links[i][0], links[i][1]) < 0)
            return;  // nothing else is in that folder: memory is full, and more will fail
}

static void link_tools(void) {
    static const char *const names[] = {"aq", "sbatch", "srun", "salloc", "squeue", "scancel", "sinfo", "scontrol",
                                        "sacct", "sattach", "sstat", "sprio", "sshare"};
    char path[64];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, BOX_TOOLS "/%s", names[i]);
        if (symlink("acequia", path) < 0)
            return;
    }
}

static void read_file(const char *path, struct buf *out) {
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n;
    while (fd >= 0 && out->len < BOX_FILE_MAX && (n = read(fd, buf_reserve(out, 4096), 4096)) > 0)
        out->len += (size_t)n;
}

// What stands there is replaced, never written through: it may be a link. In an image of somebody else
// ours is laid over it.
static void write_file(const char *path, const char *data, size_t len, struct arena *a) {
    cleanup_buf struct buf old = {0};
    struct stat st;
    if (lstat(path, &st) == 0 && S_ISREG(st.st_mode) && (size_t)st.st_size == len) {
        read_file(path, &old);
        if (old.len == len && memcmp(old.data, data, len) == 0)
            return;  // as in a container that is kept
    }
    bool gone = unlink(path) == 0 || errno == ENOENT;
    const char *own = gone ? path : arena_printf(a, BOX_OWN "/%s", strrchr(path, '/') + 1);
    cleanup_close int fd = open(own, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0 || write(fd, data, len) != (ssize_t)len || gone)
        return;  // the image goes without
    if (mount(own, path, NULL, MS_BIND, NULL) < 0)
        unlink(own);
}

// The user's own line comes first, so that it is found before one of the image.
static void add_line(const char *path, const char *line, struct arena *a) {
    cleanup_buf struct buf b = {0}, old = {0};
    read_file(path, &old);
    if (old.len >= strlen(line) && memcmp(old.data, line, strlen(line)) == 0)
        return;  // from an earlier start
    buf_adds(&b, line);
    buf_add(&b, old.data, old.len);
    write_file(path, b.data, b.len, a);
}

// The ssh server gives terminals to the group of that name, which is none in our namespace. Without it the user's own
// group is as good.
static void hide_group_tty(struct arena *a) {
    cleanup_buf struct buf b = {0}, kept = {0};
    read_file("/etc/group", &b);
    for (const char *p = buf_str(&b); *p;) {
        size_t n = strcspn(p, "\n");
        n += p[n] == '\n';
        if (!str_has_prefix(p, "tty:"))
            buf_add(&kept, p, n);
        p += n;
    }
    write_file("/etc/group", buf_str(&kept), kept.len, a);
}

struct outside {
    struct buf resolv, hosts, hostname;
    const char *group;
};

static void look_outside(struct outside *o, struct arena *a) {
    struct group *g = getgrgid(getegid());
    o->group = arena_strdup(a, g ? g->gr_name : "job");
    read_file("/etc/resolv.conf", &o->resolv);
    read_file("/etc/hosts", &o->hosts);
    read_file("/etc/hostname", &o->hostname);
}

static void write_names(struct room *r, const struct outside *o) {
    const struct box_wish *w = r->wish;
    const char *shell = access("/bin/bash", X_OK) == 0 ? "/bin/bash" : "/bin/sh";
    const char *user = w->user ? w->user : "job", *home = w->home ? w->home : "/";
    if (make_folder("/etc", r->a) == 0 && (mkdir("/etc/.acequia", 0700) < 0 || rmdir("/etc/.acequia") < 0))
        open_up("/etc", r->a);
    add_line("/etc/passwd", arena_printf(r->a, "%s:x:%u:%u::%s:%s\n", user, geteuid(), getegid(), home, shell),
             r->a);
    add_line("/etc/group", arena_printf(r->a, "%s:x:%u:\n", o->group, getegid()), r->a);
    if (w->ssh)
        hide_group_tty(r->a);
    const struct buf *files[] = {&o->resolv, &o->hosts, &o->hostname};
    static const char *const paths[] = {"/etc/resolv.conf", "/etc/hosts", "/etc/hostname"};
    for (int i = 0; i < 3; i++)
        if (files[i]->len)
            write_file(paths[i], files[i]->data, files[i]->len, r->a);
}

int box_drop_privileges(struct error *e) {
    for (int cap = 0; cap <= CAP_LAST_CAP; cap++)
        if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0 && errno != EINVAL)
            return error_set(e, errno, "privileges cannot be given up: %m");
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return error_set(e, errno, "privileges cannot be given up: %m");
    return 0;
}

static int furnish(struct room *r, const struct outside *o, struct error *e) {
    int rc = mount_memory(r, "/dev", e);
    if (rc == 0 && r->overlay)
        rc = mount_memory(r, BOX_OWN, e);
    if (rc == 0 && r->overlay)
        write_names(r, o);
    if (rc == 0 && r->own_terminals)
        mount_terminals(r);
    for (uint32_t i = 0; i < r->trees.len && rc == 0; i++)
        rc = put(&r->trees.at[i], r->a, e);
    link_devices();
    if (access(BOX_TOOLS, F_OK) == 0)
        link_tools();
    return rc;
}

int box_enter(const struct box_wish *w, const struct box_image *image, const char *script, const char *cwd,
              struct arena *a, struct error *e) {
    struct room r = {
        .a = a, .wish = w, .image = image, .own_terminals = !isatty(0) && !isatty(1) && !isatty(2)};
    struct outside o = {0};
    if (!w->image && !w->name)
        return enter_host(&r, cwd, e);
    look_outside(&o, a);
    int rc = box_namespaces(CLONE_NEWNS, geteuid(), getegid(), e);
    rc = rc < 0 ? rc : take_mounts(&r, image, script, cwd, e);
    rc = rc < 0 ? rc : make_root(&r, image->root, arena_printf(a, "%s/stage", w->cache), e);
    rc = rc < 0 ? rc : furnish(&r, &o, e);
    rc = rc < 0 ? rc : box_drop_privileges(e);
    if (rc < 0)
        return rc;
    const char *other = image->config.workdir;
    const char *inside = w->workdir ? w->workdir : !w->docker ? cwd : str_empty(other) ? "/" : other;
    if (chdir(inside) == 0)
        return 0;
    if (w->workdir)
        return error_set(e, errno, "working directory %s cannot be entered in the image: %m", w->workdir);
    if ((!other || chdir(other) < 0) && chdir("/") < 0)
        return error_set(e, errno, "the image's root folder cannot be entered: %m");
    return 0;
}
