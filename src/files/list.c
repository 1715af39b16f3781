// Owns looking at files: what a path is, a folder's entries page by page, and contents.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "files.h"

enum { PAGE_BYTES = 256 << 10, SIGN_EVERY = 256 };

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

struct files_names {
    VEC(char *) all;
    bool truncated;
};

// The names after `after`, sorted: pages stay right while others come and go.
static int read_names(struct files *f, int fd, const char *after, struct files_names *out) {
    DIR *d = fdopendir(fd);
    if (!d)
        return -errno;
    for (uint32_t n = 0;; n++) {
        errno = 0;
        const struct dirent *ent = readdir(d);
        if (!ent || n >= FILES_LOOK_MAX) {
            out->truncated = ent != NULL;
            break;
        }
        if (n % SIGN_EVERY == 0)
            files_working(f);
        if (streq(ent->d_name, ".") || streq(ent->d_name, "..") || strcmp(ent->d_name, after) <= 0 ||
            (f->request->visible_only && ent->d_name[0] == '.'))
            continue;
        vec_push(&out->all, arena_strdup(&f->arena, ent->d_name));
    }
    int error = errno;
    closedir(d);
    if (out->all.len)
        qsort(out->all.at, out->all.len, sizeof *out->all.at, by_name);
    return error && !out->all.len ? -error : 0;
}

// A link is shown as one, and not followed: what it leads to may hang, and the others shall be seen.
static void fill_page(struct files *f, int folder, const struct files_names *names, struct file_result *r) {
    uint32_t limit =
                 f->request->limit && f->request->limit < FILE_PAGE_MAX ? f->request->limit : FILE_PAGE_MAX,
             i = 0;
    size_t bytes = 0;
    r->entries.at = arena_alloc(&f->arena, limit * sizeof *r->entries.at);
    for (; i < names->all.len && r->entries.len < limit && bytes < PAGE_BYTES; i++) {
        struct stat st;
        const char *name = names->all.at[i];
        if (i % SIGN_EVERY == 0)
            files_working(f);
        if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0)
            continue;  // it has gone meanwhile
        struct file_entry *entry = &r->entries.at[r->entries.len++];
        files_describe(f, folder, name, &st, entry);
        bytes += strlen(entry->name) + (entry->target ? strlen(entry->target) : 0) + sizeof st;
    }
    if (i && i < names->all.len)
        r->next = files_text(f, names->all.at[i - 1]);
    r->truncated = names->truncated;
}

static void describe_opened(struct files *f, int fd, const struct stat *st, struct file_result *r) {
    const char *real = files_real_path(f, fd), *slash = real ? strrchr(real, '/') : NULL;
    r->entry = arena_alloc(&f->arena, sizeof *r->entry);
    files_describe(f, -1, slash ? slash + 1 : "", st, r->entry);
    r->path = real ? files_text(f, real) : f->request->path;
    r->home = files_text(f, f->order->home);
}

static void describe_space(int folder, struct file_result *r) {
    struct statvfs v;
    if (fstatvfs(folder, &v) < 0)
        return;
    r->space_bytes = (uint64_t)v.f_blocks * v.f_frsize;
    r->space_free_bytes = (uint64_t)v.f_bavail * v.f_frsize;
}

int files_list(struct files *f, struct file_result *r, struct error *e) {
    cleanup_buf struct buf path = {0}, after = {0};
    struct stat st;
    int rc = files_path(f, f->request->path, &path, e);
    if (rc == 0 && f->request->after)
        rc = file_name_read(f->request->after, &after, e);
    cleanup_close int fd = rc < 0 ? rc : files_open(f, buf_str(&path), &st, e);
    if (fd < 0)
        return fd;
    describe_opened(f, fd, &st, r);
    if (!S_ISDIR(st.st_mode))
        return 0;
    struct files_names names = {0};
    int folder = files_reopen(fd, O_RDONLY | O_DIRECTORY);
    rc = folder < 0 ? folder : read_names(f, folder, buf_str(&after), &names);
    if (rc == 0) {
        fill_page(f, fd, &names, r);
        describe_space(fd, r);
    }
    vec_done(&names.all);
    return rc < 0 ? files_fail(e, -rc, buf_str(&path)) : 0;
}

// What another process appends meanwhile is not part of it.
static int send_content(struct files *f, int fd, uint64_t at, uint64_t left) {
    static char block[FILES_BLOCK];
    while (left) {
        ssize_t n = pread(fd, block, left < sizeof block ? (size_t)left : sizeof block, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -ENODATA;
        files_data(f, block, (size_t)n);
        at += (uint64_t)n;
        left -= (uint64_t)n;
    }
    return 0;
}

int files_read(struct files *f, struct file_result *r, struct error *e) {
    cleanup_buf struct buf path = {0};
    const struct file_request *q = f->request;
    struct stat st;
    int rc = files_path(f, q->path, &path, e);
    cleanup_close int fd = rc < 0 ? rc : files_open(f, buf_str(&path), &st, e);
    if (fd < 0)
        return fd;
    if (S_ISDIR(st.st_mode))
        return files_fail(e, EISDIR, buf_str(&path));
    if (!S_ISREG(st.st_mode))
        return error_set(e, ENOTSUP, "this is not a plain file; devices, pipes and sockets are not opened");
    cleanup_close int content = files_reopen(fd, O_RDONLY);
    if (content < 0)
        return files_fail(e, -content, buf_str(&path));
    describe_opened(f, fd, &st, r);
    uint64_t size = (uint64_t)st.st_size;
    if (q->offset > size)
        return error_set(e, ERANGE, "the file has %llu bytes; there is nothing at %llu",
                         (unsigned long long)size, (unsigned long long)q->offset);
    // A part of another version than the reader has begun with would be mixed with that: then the whole file is sent.
    bool whole = q->match && !streq(q->match, r->entry->version);
    r->first = whole ? 0 : q->last ? (q->last < size ? size - q->last : 0) : q->offset;
    r->length = size - r->first;
    if (!whole && q->length && q->length < r->length)
        r->length = q->length;
    files_send(f, MESSAGE_FILE_RESULT, r);
    rc = send_content(f, content, r->first, r->length);
    return rc < 0 ? error_set(e, -rc,
                              rc == -ENODATA ? "the file became shorter while it was read"
                                             : "the file cannot be read to its end")
                  : 0;
}
