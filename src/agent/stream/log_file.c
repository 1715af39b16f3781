// Owns reading an output file.
#include "log_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { TAIL_BLOCK = 16384 };

off_t stream_log_file_tail(int fd, int64_t lines, off_t first, off_t size) {
    char block[TAIL_BLOCK];
    if (lines < 0)
        return first;
    off_t at = size;
    int64_t left = lines;
    bool last = true;
    while (at > first) {
        size_t n = at - first < TAIL_BLOCK ? (size_t)(at - first) : TAIL_BLOCK;
        at -= (off_t)n;
        if (pread(fd, block, n, at) != (ssize_t)n)
            return first;
        for (size_t i = n; i-- > 0;) {
            // The newline that ends the file does not begin another line.
            if (block[i] == '\n' && !last && --left < 0)
                return at + (off_t)i + 1;
            if (block[i] == '\n' && last && lines == 0)
                return size;
            if (last) {
                last = false;
                left--;
            }
        }
    }
    return lines == 0 ? size : first;
}

static int open_file(struct log_file *f) {
    struct stat st;
    int fd = open(f->path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    struct statfs fs;
    // A link into /proc would show this process, a copy of the agent, instead of a job's output.
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || fstatfs(fd, &fs) < 0 || fs.f_type == PROC_SUPER_MAGIC) {
        close(fd);
        return -EBADF;
    }
    bool known = f->from && (!f->id || f->id == (uint64_t)st.st_ino);
    f->fd = fd;
    f->id = (uint64_t)st.st_ino;
    if (known)
        f->at = f->from <= (uint64_t)st.st_size ? (off_t)f->from : 0;
    else
        f->at = stream_log_file_tail(fd, f->from ? -1 : f->tail_lines, 0, st.st_size);
    return 0;
}

// Another file has its name now, and this one has been read to its end.
static bool is_replaced(const struct log_file *f) {
    struct stat st;
    return stat(f->path, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_ino != f->id;
}

static int open_next(struct log_file *f) {
    stream_log_file_done(f);
    f->from = 0;
    f->tail_lines = -1;
    return open_file(f);
}

static bool is_emptied(const struct log_file *f) {
    struct stat st;
    return fstat(f->fd, &st) == 0 && st.st_size < f->at;
}

// Nothing is answered only when nothing is there: who knows that the job has ended stops reading then.
ssize_t stream_log_file_read(struct log_file *f, void *out, size_t size) {
    int rc = f->fd < 0 ? open_file(f) : 0;
    if (rc < 0)
        return rc;
    ssize_t n = pread(f->fd, out, size, f->at);
    if (n == 0 && is_replaced(f)) {
        n = pread(f->fd, out, size, f->at);  // written between the two looks
        if (n == 0) {
            if ((rc = open_next(f)) < 0)
                return rc;
            n = pread(f->fd, out, size, f->at);
        }
    } else if (n == 0 && is_emptied(f)) {
        f->at = 0;  // by the job: begin anew
        n = pread(f->fd, out, size, f->at);
    }
    if (n < 0)
        return -errno;
    struct stat st;
    if (n > 0 && fstat(f->fd, &st) == 0)
        f->written_ms = (int64_t)st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000;
    f->at += n;
    return n;
}

void stream_log_file_done(struct log_file *f) {
    if (f->fd >= 0)
        close(f->fd);
    f->fd = -1;
}
