// Owns the format and the limit of kept output files.
#include "launch/kept.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char magic[8] = "AQKEPT1\n";

static_assert(sizeof(struct kept_head) <= KEPT_HEAD_BYTES, "the header has a fixed place");

void launch_kept_close(struct kept_file *k) {
    if (k->head)
        munmap(k->head, KEPT_HEAD_BYTES);
    if (k->fd >= 0)
        close(k->fd);
    *k = (struct kept_file){.fd = -1};
}

int launch_kept_open(int fd, struct kept_file *out) {
    struct stat st;
    *out = (struct kept_file){.fd = -1};
    int rc = fd < 0 || fstat(fd, &st) < 0 ? -errno : 0;
    if (rc == 0 && (!S_ISREG(st.st_mode) || st.st_size < KEPT_HEAD_BYTES))
        rc = -EBADMSG;
    void *m = rc < 0 ? MAP_FAILED : mmap(NULL, KEPT_HEAD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (rc == 0 && m == MAP_FAILED)
        rc = -errno;
    if (rc == 0 && memcmp(m, magic, sizeof magic) != 0) {
        munmap(m, KEPT_HEAD_BYTES);
        rc = -EBADMSG;
    }
    if (rc == 0)
        *out = (struct kept_file){.fd = fd, .head = m};
    return rc;
}

int launch_kept_create(int fd, uint32_t uid, struct kept_file *out) {
    char head[KEPT_HEAD_BYTES] = {0};
    struct kept_head h = {.uid = uid, .client = 1};
    memcpy(h.magic, magic, sizeof magic);
    memcpy(head, &h, sizeof h);
    *out = (struct kept_file){.fd = -1};
    // Written, not only extended: storing into the mapping must not need a block of a full disk.
    ssize_t n = pwrite(fd, head, sizeof head, 0);
    if (n != (ssize_t)sizeof head)
        return n < 0 ? -errno : -ENOSPC;
    return launch_kept_open(fd, out);
}

static uint64_t held(const struct kept_file *k) {
    uint64_t len = atomic_load(&k->head->len), start = atomic_load(&k->head->start);
    return len > start ? len - start : 0;
}

void launch_kept_limit(struct kept_file *k, uint64_t bytes) {
    uint32_t mib = (uint32_t)((bytes < KEPT_LEAST_BYTES ? KEPT_LEAST_BYTES : bytes) >> 20);
    atomic_store(&k->head->limit_mib, bytes >= KEPT_STREAM_BYTES ? 0 : mib);
}

static uint64_t limit_of(const struct kept_file *k) {
    uint64_t mib = atomic_load(&k->head->limit_mib);
    return mib && mib << 20 < KEPT_STREAM_BYTES ? mib << 20 : KEPT_STREAM_BYTES;
}

bool launch_kept_blocked(const struct kept_file *k) {
    return atomic_load(&k->head->client) && held(k) >= limit_of(k);
}

void launch_kept_append(struct kept_file *k, const void *data, size_t len, bool drain) {
    uint64_t at = atomic_load(&k->head->len), used = held(k);
    // A writer that waits at the limit has asked before it read this piece.
    bool over = drain || atomic_load(&k->head->client);
    uint64_t most = limit_of(k) + (over ? KEPT_OVER_BYTES : 0);
    size_t fits = used >= most ? 0 : most - used < len ? (size_t)(most - used) : len;
    // A full disk loses output, not the job.
    ssize_t n = fits ? pwrite(k->fd, data, fits, (off_t)(KEPT_HEAD_BYTES + at)) : 0;
    size_t written = n > 0 ? (size_t)n : 0;
    atomic_store(&k->head->len, at + written);
    if (written < len)
        atomic_store(&k->head->lost, atomic_load(&k->head->lost) + (len - written));
}

ssize_t launch_kept_read(const struct kept_file *k, uint64_t at, void *out, size_t size) {
    uint64_t len = atomic_load(&k->head->len);
    if (at >= len)
        return 0;
    size_t want = len - at < size ? (size_t)(len - at) : size;
    ssize_t n = pread(k->fd, out, want, (off_t)(KEPT_HEAD_BYTES + at));
    return n < 0 ? -errno : n;
}

int launch_kept_acknowledge(struct kept_file *k, uint64_t at) {
    uint64_t start = atomic_load(&k->head->start), len = atomic_load(&k->head->len);
    uint64_t limit = limit_of(k), behind = limit / 4 < KEPT_BEHIND_BYTES ? limit / 4 : KEPT_BEHIND_BYTES;
    uint64_t piece = limit / 8 < KEPT_FREE_BYTES ? limit / 8 : KEPT_FREE_BYTES;
    // As long as there is room everything stays, for those who read later.
    if (at > len || at < start + behind + piece || held(k) < limit / 2)
        return 0;
    uint64_t upto = (at - behind) / KEPT_HEAD_BYTES * KEPT_HEAD_BYTES;
    if (fallocate(k->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(KEPT_HEAD_BYTES + start),
                  (off_t)(upto - start)) < 0)
        return -errno;
    atomic_store(&k->head->start, upto);
    return 0;
}
