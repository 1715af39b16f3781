// Owns the form of the stream, and both of its ends.
#include "cli/job/transfer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/rand.h"
#include "base/text.h"
#include "base/vec.h"

enum {
    PIECE_BYTES = 128 << 10,
    NAME_BYTES_MAX = 255,
    PATH_BYTES_MAX = 4096,
    DEPTH_MAX = 100,
    FOLDERS_MAX = 1 << 20,
};
enum entry_type { ENTRY_FILE = 'F', ENTRY_FOLDER = 'D', ENTRY_LINK = 'L', ENTRY_END = 'E' };

static const char magic[] = "ACQCP1\n";

static void note(const struct job_transfer *t, const char *path, const char *why) {
    char shown[200], text[400];
    snprintf(text, sizeof text, "%s: %s", str_printable(*path ? path : ".", shown, sizeof shown), why);
    if (t->note)
        t->note(text);
}

// --- sending ---

static int put(int fd, const void *data, size_t len) {
    for (const char *p = data; len;) {
        ssize_t n = write(fd, p, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

static int put_u32(int fd, uint32_t v) {
    uint8_t b[4] = {(uint8_t)v, (uint8_t)(v >> 8), (uint8_t)(v >> 16), (uint8_t)(v >> 24)};
    return put(fd, b, sizeof b);
}

static int put_text(int fd, const char *text) {
    int r = put_u32(fd, (uint32_t)strlen(text));
    return r < 0 ? r : put(fd, text, strlen(text));
}

static int put_head(int fd, enum entry_type type, mode_t mode, const char *path) {
    uint8_t letter = (uint8_t)type;
    int r = put(fd, &letter, 1);
    r = r < 0 ? r : put_u32(fd, mode & 0777);
    return r < 0 ? r : put_text(fd, path);
}

static int send_file(int out, int in, const struct stat *st, const char *path, struct job_transfer *t) {
    cleanup_free char *piece = xmalloc(PIECE_BYTES);
    int r = put_head(out, ENTRY_FILE, st->st_mode, path);
    while (r == 0) {
        ssize_t n = read(in, piece, PIECE_BYTES);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            note(t, path, strerror(errno));
            t->problems++;
        }
        r = put_u32(out, n > 0 ? (uint32_t)n : 0);
        if (n <= 0)
            break;
        r = r < 0 ? r : put(out, piece, (size_t)n);
        t->bytes += (uint64_t)n;
        if (t->progress)
            t->progress(t->ctx, t);
    }
    t->files++;
    return r;
}

static int send_link(int out, int dir, const char *name, const char *path) {
    char target[PATH_MAX];
    ssize_t n = readlinkat(dir, name, target, sizeof target - 1);
    if (n < 0)
        return 0;  // gone meanwhile
    target[n] = 0;
    int r = put_head(out, ENTRY_LINK, 0777, path);
    return r < 0 ? r : put_text(out, target);
}

static int send_folder(int out, int fd, const struct stat *st, const char *path, int depth,
                       struct job_transfer *t);

static int send_at(int out, int dir, const char *name, const char *path, int depth, struct job_transfer *t) {
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        note(t, path, strerror(errno));
        t->problems++;
        return 0;
    }
    if (S_ISLNK(st.st_mode))
        return send_link(out, dir, name, path);
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) {
        note(t, path, "neither a file nor a folder; left out");
        t->problems++;
        return 0;
    }
    cleanup_close int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0) {
        note(t, path, strerror(errno));
        t->problems++;
        return 0;
    }
    return S_ISDIR(st.st_mode)   ? send_folder(out, fd, &st, path, depth, t)
           : S_ISREG(st.st_mode) ? send_file(out, fd, &st, path, t)
                                 : 0;
}

static int send_folder(int out, int fd, const struct stat *st, const char *path, int depth,
                       struct job_transfer *t) {
    if (depth > DEPTH_MAX) {
        note(t, path, "more than 100 folders deep; left out");
        t->problems++;
        return 0;
    }
    int r = put_head(out, ENTRY_FOLDER, st->st_mode, path), copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    if (!d) {
        if (copy >= 0)
            close(copy);
        note(t, path, strerror(errno));
        t->problems++;
        return r;
    }
    for (struct dirent *entry; r == 0 && (entry = readdir(d));) {
        cleanup_buf struct buf below = {0};
        if (streq(entry->d_name, ".") || streq(entry->d_name, ".."))
            continue;
        buf_addf(&below, "%s%s%s", path, *path ? "/" : "", entry->d_name);
        if (below.len > PATH_BYTES_MAX) {
            note(t, path, "a path below it is too long; left out");
            t->problems++;
        } else {
            r = send_at(out, fd, entry->d_name, buf_str(&below), depth + 1, t);
        }
    }
    closedir(d);
    return r;
}

// The last part of the path as it is written; false if that is no name: "/", "." and "..".
static bool plain_name(const char *path, char out[static NAME_BYTES_MAX + 1]) {
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/')
        len--;
    const char *own = memrchr(path, '/', len);
    own = own ? own + 1 : path;
    size_t n = len - (size_t)(own - path);
    if (!n || (n == 1 && *own == '.') || (n == 2 && !memcmp(own, "..", 2)) || memchr(own, '/', n))
        return false;
    snprintf(out, NAME_BYTES_MAX + 1, "%.*s", (int)(n < NAME_BYTES_MAX ? n : NAME_BYTES_MAX), own);
    return true;
}

// The last part of the path, also of "." and "..".
static int name_of(const char *path, char out[static NAME_BYTES_MAX + 1], struct error *e) {
    if (plain_name(path, out))
        return 0;
    cleanup_free char *full = realpath(path, NULL);
    const char *slash = full ? strrchr(full, '/') : NULL;
    if (!full)
        return error_set(e, errno, "%s: %s", path, strerror(errno));
    snprintf(out, NAME_BYTES_MAX + 1, "%s", slash && slash[1] ? slash + 1 : "root");
    return 0;
}

int job_transfer_send(int fd, const char *path, struct job_transfer *t, struct error *e) {
    char name[NAME_BYTES_MAX + 1], shown[200];
    struct stat st;
    cleanup_close int in = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    str_printable(path, shown, sizeof shown);
    if (in < 0 || fstat(in, &st) < 0)
        return error_set(e, errno, "%s: %s", shown, strerror(errno));
    if (S_ISDIR(st.st_mode) && !t->recursive)
        return error_set(e, EISDIR, "%s is a folder; copy it with -r", shown);
    if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode))
        return error_set(e, EINVAL, "%s is neither a file nor a folder", shown);
    int r = name_of(path, name, e);
    if (r < 0)
        return r;
    t->total = S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
    r = put(fd, magic, sizeof magic - 1);
    r = r < 0 ? r : put_text(fd, name);
    if (r == 0)
        r = S_ISDIR(st.st_mode) ? send_folder(fd, in, &st, "", 0, t) : send_file(fd, in, &st, "", t);
    r = r < 0 ? r : put(fd, "E", 1);
    return r < 0 ? error_set(e, -r, "%s could not be sent: %s", shown, strerror(-r)) : 0;
}

// --- receiving ---

struct receiver {
    int fd;
    struct job_transfer *t;
    int base;            // the folder that holds what is received
    const char *name;    // its name there
    bool name_is_senders;  // nobody here has said it
    struct error *e;
    // Folders get their permissions at the end: one that may not be written to must be filled before.
    VEC(char *) folders;
    VEC(uint32_t) modes;
};

static int broken(struct receiver *v, const char *what) {
    return error_set(v->e, EBADMSG, "what came is not a copy of files: %s", what);
}

static int get(struct receiver *v, void *data, size_t len) {
    for (char *p = data; len;) {
        ssize_t n = read(v->fd, p, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_set(v->e, errno, "the copy cannot be received: %s", strerror(errno));
        if (!n)
            return error_set(v->e, EPIPE, "the copy broke off before its end");
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

static int get_u32(struct receiver *v, uint32_t *out) {
    uint8_t b[4];
    int r = get(v, b, sizeof b);
    *out = r < 0 ? 0 : (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
    return r;
}

static int get_text(struct receiver *v, char *out, uint32_t max) {
    uint32_t len;
    int r = get_u32(v, &len);
    if (r == 0 && len > max)
        r = broken(v, "a name is too long");
    if (r == 0 && (r = get(v, out, len)) == 0 && memchr(out, 0, len))
        r = broken(v, "a name holds a zero byte");
    out[r < 0 ? 0 : len] = 0;
    return r;
}

static bool part_valid(const char *p, size_t len) {
    return len && len <= NAME_BYTES_MAX && !(len == 1 && *p == '.') &&
           !(len == 2 && p[0] == '.' && p[1] == '.');
}

// "a/b": every part a plain name, so that nothing leads outside.
static bool path_valid(const char *path) {
    for (const char *p = path; *p;) {
        size_t n = strcspn(p, "/");
        if (!part_valid(p, n) || (p[n] == '/' && !p[n + 1]))
            return false;
        p += n + (p[n] == '/');
    }
    return *path != '/';
}

static int open_below(int dir, const char *name) {
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

// The folder that the entry is in, and its last part. Links on the way are not followed.
static int open_parent(struct receiver *v, const char *path, char last[static NAME_BYTES_MAX + 1]) {
    int dir = fcntl(v->base, F_DUPFD_CLOEXEC, 3);
    const char *rest = path;
    if (dir < 0)
        dir = -errno;
    snprintf(last, NAME_BYTES_MAX + 1, "%s", v->name);
    while (dir >= 0 && *rest) {
        size_t n = strcspn(rest, "/");
        int next = open_below(dir, last);
        close(dir);
        dir = next;
        memcpy(last, rest, n);
        last[n] = 0;
        rest += n + (rest[n] == '/');
    }
    if (dir >= 0)
        return dir;
    char shown[200];
    return error_set(v->e, -dir, "%s: its folder cannot be opened: %s",
                     str_printable(path, shown, sizeof shown), strerror(-dir));
}

// A file has no name until it is whole, so that nothing is left behind whenever this process ends. Where the file
// system has no such files (NFS), it has a temporary name, which the signals that cancel a copy remove.
static struct {
    volatile sig_atomic_t used;
    int dir;
    char name[64];
} temporary;

static void remove_temporary(int signal_number) {
    if (temporary.used)
        unlinkat(temporary.dir, temporary.name, 0);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static void name_temporary(int dir) {
    uint64_t random = 0;
    rand_secret(&random, sizeof random);
    snprintf(temporary.name, sizeof temporary.name, ".acequia-cp-%016llx", (unsigned long long)random);
    temporary.dir = dir;
    temporary.used = true;
}

static void forget_temporary(bool remove) {
    if (temporary.used && remove)
        unlinkat(temporary.dir, temporary.name, 0);
    temporary.used = false;
}

static int open_temporary(const struct job_transfer *t, int dir, mode_t mode) {
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    bool unnamed = !t->named && access("/proc/self/fd", X_OK) == 0;
    int fd = !unnamed ? -1 : openat(dir, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, mode);
    if (fd >= 0)
        return fd;
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (signal(signals[i], remove_temporary) == SIG_IGN)  // as under nohup
            signal(signals[i], SIG_IGN);
    name_temporary(dir);
    fd = openat(dir, temporary.name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (fd < 0)
        forget_temporary(false);
    return fd < 0 ? -errno : fd;
}

// Whoever reads the old file sees it whole until the new one is.
static int give_name(int fd, int dir, const char *name) {
    char path[40];
    if (!temporary.used) {
        name_temporary(dir);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (linkat(AT_FDCWD, path, dir, temporary.name, AT_SYMLINK_FOLLOW) < 0)
            return -errno;
    }
    return renameat(dir, temporary.name, dir, name) < 0 ? -errno : 0;
}

static int receive_pieces(struct receiver *v, int to, const char *path) {
    cleanup_free char *piece = xmalloc(PIECE_BYTES);
    char shown[200];
    for (;;) {
        uint32_t len;
        int r = get_u32(v, &len);
        if (r < 0 || !len)
            return r;
        if (len > PIECE_BYTES)
            return broken(v, "a piece of a file is too long");
        if ((r = get(v, piece, len)) < 0)
            return r;
        if (to >= 0 && (r = put(to, piece, len)) < 0)
            return error_set(v->e, -r, "%s cannot be written: %s",
                             str_printable(*path ? path : v->name, shown, sizeof shown), strerror(-r));
        v->t->bytes += len;
        if (v->t->progress)
            v->t->progress(v->t->ctx, v->t);
    }
}

static int receive_file(struct receiver *v, uint32_t mode, const char *path) {
    char last[NAME_BYTES_MAX + 1], shown[200];
    struct stat st;
    cleanup_close int dir = open_parent(v, path, last);
    if (dir < 0)
        return dir;
    str_printable(*path ? path : last, shown, sizeof shown);
    if (fstatat(dir, last, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
        return error_set(v->e, EISDIR, "%s is a folder here, and a file where it comes from", shown);
    cleanup_close int fd = open_temporary(v->t, dir, (mode & 0777) | 0200);
    if (fd < 0)
        return error_set(v->e, -fd, "%s cannot be made: %s", shown, strerror(-fd));
    int r = receive_pieces(v, fd, path), named = r < 0 ? r : give_name(fd, dir, last);
    if (r == 0 && named < 0)
        r = error_set(v->e, -named, "%s cannot be made: %s", shown, strerror(-named));
    forget_temporary(r < 0);
    v->t->files++;
    return r;
}

static int receive_folder(struct receiver *v, uint32_t mode, const char *path) {
    char last[NAME_BYTES_MAX + 1], shown[200];
    cleanup_close int dir = open_parent(v, path, last);
    if (dir < 0)
        return dir;
    if (v->folders.len == FOLDERS_MAX)
        return broken(v, "too many folders");
    if (mkdirat(dir, last, (mode & 0777) | 0700) < 0 && errno != EEXIST)
        return error_set(v->e, errno, "folder %s cannot be made: %s",
                         str_printable(*path ? path : last, shown, sizeof shown), strerror(errno));
    cleanup_close int made = open_below(dir, last);
    if (made < 0)
        return error_set(v->e, -made, "folder %s cannot be opened: %s",
                         str_printable(*path ? path : last, shown, sizeof shown), strerror(-made));
    if ((mode & 0700) != 0700) {
        vec_push(&v->folders, xstrdup(path));
        vec_push(&v->modes, mode & 0777);
    }
    return 0;
}

// A link may lead to what was copied with it, not elsewhere. Steps upwards come first: the folders above the link are
// real ones, while a part of its target may be a link itself.
static bool target_valid(const char *path, const char *target) {
    int depth = 0;
    bool down = false;
    for (const char *p = path; *p; p++)
        depth += *p == '/';
    for (const char *p = target; *p;) {
        size_t n = strcspn(p, "/");
        if (n == 2 && p[0] == '.' && p[1] == '.') {
            if (down || --depth < 0)
                return false;
        } else if (n && !(n == 1 && *p == '.')) {
            down = true;
        }
        p += n + (p[n] == '/');
    }
    return *target && *target != '/' && *path;
}

static int receive_link(struct receiver *v, const char *path) {
    char last[NAME_BYTES_MAX + 1], target[PATH_BYTES_MAX + 1];
    struct stat st;
    int r = get_text(v, target, PATH_BYTES_MAX);
    if (r < 0)
        return r;
    if (!target_valid(path, target)) {
        note(v->t, path, "a symbolic link that leads out of the folder; left out");
        v->t->problems++;
        return 0;
    }
    cleanup_close int dir = open_parent(v, path, last);
    if (dir < 0)
        return dir;
    if (fstatat(dir, last, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISDIR(st.st_mode))
        unlinkat(dir, last, 0);
    if (symlinkat(target, dir, last) < 0) {
        note(v->t, path, strerror(errno));
        v->t->problems++;
    }
    return 0;
}

static int receive_entries(struct receiver *v) {
    char path[PATH_BYTES_MAX + 1];
    bool first = true;
    for (;; first = false) {
        uint8_t type;
        uint32_t mode;
        int r = get(v, &type, 1);
        if (r < 0 || type == ENTRY_END)
            return r < 0 ? r : first ? broken(v, "there is nothing in it") : 0;
        if ((r = get_u32(v, &mode)) < 0 || (r = get_text(v, path, PATH_BYTES_MAX)) < 0)
            return r;
        if (!path_valid(path) || first != !*path)
            return broken(v, "a path leads elsewhere");
        if (!first && !v->t->recursive)
            return broken(v, "a folder came where a file was asked for");
        if (type == ENTRY_FOLDER && !v->t->recursive)
            return error_set(v->e, EISDIR, "it is a folder; copy it with -r");
        if (first && v->name_is_senders && type != ENTRY_FOLDER)
            return broken(v, "a file came where a folder was asked for");
        r = type == ENTRY_FILE     ? receive_file(v, mode, path)
            : type == ENTRY_FOLDER ? receive_folder(v, mode, path)
            : type == ENTRY_LINK   ? receive_link(v, path)
                                   : broken(v, "an entry of unknown kind");
        if (r < 0)
            return r;
    }
}

static void set_modes(struct receiver *v) {
    for (uint32_t i = v->folders.len; i-- > 0;) {
        char last[NAME_BYTES_MAX + 1];
        cleanup_close int dir = open_parent(v, v->folders.at[i], last);
        cleanup_close int fd = dir < 0 ? -1 : open_below(dir, last);
        if (fd >= 0)
            fchmod(fd, v->modes.at[i]);
    }
}

// Where it goes: below a folder that is there, else beside others under the name given.
static int open_place(struct receiver *v, const char *path, char name[static NAME_BYTES_MAX + 1]) {
    char shown[200];
    struct stat st;
    str_printable(path, shown, sizeof shown);
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        v->base = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return v->base < 0 ? error_set(v->e, errno, "%s: %s", shown, strerror(errno)) : 0;
    }
    const char *slash = strrchr(path, '/'), *last = slash ? slash + 1 : path;
    if (!part_valid(last, strlen(last)))
        return error_set(v->e, ENOENT, "%s: there is no such folder", shown);
    cleanup_free char *folder = slash ? xstrndup(path, (size_t)(slash - path)) : xstrdup(".");
    v->base = open(*folder ? folder : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (v->base < 0)
        return error_set(v->e, errno, "%s: its folder cannot be opened: %s", shown, strerror(errno));
    snprintf(name, NAME_BYTES_MAX + 1, "%s", last);
    v->name_is_senders = false;
    return 0;
}

// The sender may be anybody's program: without this it could send ".bashrc" when "result.txt" was asked for.
static int check_name(struct receiver *v, const char *name) {
    char wanted[NAME_BYTES_MAX + 1];
    if (!v->t->wanted)
        return 0;
    if (plain_name(v->t->wanted, wanted))
        return streq(name, wanted) ? 0 : broken(v, "its name is not the one that was asked for");
    v->name_is_senders = true;
    return 0;
}

static int check_senders_name(struct receiver *v, const char *name) {
    char shown[200];
    struct stat st;
    if (!v->name_is_senders)
        return 0;
    str_printable(name, shown, sizeof shown);
    if (*name == '.')
        return error_set(v->e, EPERM,
                         "the folder's name there is %s, which is hidden; ask for it by this name", shown);
    if (fstatat(v->base, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return error_set(v->e, EEXIST,
                         "the folder's name there is %s, and that is here already; ask for it by this name",
                         shown);
    return 0;
}

int job_transfer_receive(int fd, const char *path, struct job_transfer *t, struct error *e) {
    struct receiver v = {.fd = fd, .t = t, .base = -1, .e = e};
    char head[sizeof magic - 1], name[NAME_BYTES_MAX + 1];
    int r = get(&v, head, sizeof head);
    if (r == 0 && memcmp(head, magic, sizeof head))
        r = broken(&v, "it begins with something else");
    if (r == 0)
        r = get_text(&v, name, NAME_BYTES_MAX);
    if (r == 0 && (!part_valid(name, strlen(name)) || strchr(name, '/')))
        r = broken(&v, "its name leads elsewhere");
    if (r == 0)
        r = check_name(&v, name);
    if (r == 0)
        r = open_place(&v, path, name);
    if (r == 0)
        r = check_senders_name(&v, name);
    v.name = name;
    if (r == 0)
        r = receive_entries(&v);
    if (v.base >= 0) {
        set_modes(&v);
        close(v.base);
    }
    for (uint32_t i = 0; i < v.folders.len; i++)
        free(v.folders.at[i]);
    vec_done(&v.folders);
    vec_done(&v.modes);
    return r;
}
