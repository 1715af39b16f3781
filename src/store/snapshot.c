// Snapshots are files of their own: "snapshot-SEQ", a header with a checksum, then the bytes. They
// are written beside, synced in pieces (so that commits on the same disk are not held up for long)
// and renamed into place; only whole ones ever carry the name. The newest two are kept.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "sql.h"
#include "sqlite_store.h"

enum {
    SNAPSHOT_FORMAT = 1,  // of the file around the bytes, not of the bytes
    SNAPSHOT_PIECE_BYTES = 4 << 20,
    SNAPSHOT_NAME_MAX = 48,
};
static const char snapshot_prefix[] = "snapshot-";
static const char snapshot_unfinished[] = "snapshot.new";

struct snapshot_header {
    char magic[8];
    uint32_t format, unused;  // SNAPSHOT_FORMAT, 0
    uint64_t seq, len, sum;
};
static_assert(sizeof(struct snapshot_header) == 40, "layout on disk");
static const char snapshot_magic[8] = "ACEQSNAP";

static void snapshot_name(uint64_t seq, char out[SNAPSHOT_NAME_MAX]) {
    snprintf(out, SNAPSHOT_NAME_MAX, "%s%020" PRIu64, snapshot_prefix, seq);
}

static int write_piece(int fd, const void *data, size_t len) {
    const char *p = data;
    while (len) {
        ssize_t n = write(fd, p, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        p += n;
        len -= (size_t)n;
    }
    return fdatasync(fd) < 0 ? -errno : 0;
}

int store_snapshot_write(struct sqlite_store *s, uint64_t seq, const void *data, size_t len,
                         struct error *e) {
    cleanup_close int fd = openat(s->folder_fd, snapshot_unfinished,
                                  O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return error_set(e, errno, "cannot create %s/%s: %s", s->folder, snapshot_unfinished,
                         strerror(errno));
    struct snapshot_header header = {
        .format = SNAPSHOT_FORMAT, .seq = seq, .len = len, .sum = store_sql_checksum(seq, data, len)};
    memcpy(header.magic, snapshot_magic, sizeof header.magic);
    int r = write_piece(fd, &header, sizeof header);
    for (size_t at = 0; at < len && r == 0; at += SNAPSHOT_PIECE_BYTES) {
        size_t piece = len - at < SNAPSHOT_PIECE_BYTES ? len - at : SNAPSHOT_PIECE_BYTES;
        r = write_piece(fd, (const char *)data + at, piece);
    }
    if (r < 0) {
        unlinkat(s->folder_fd, snapshot_unfinished, 0);
        return error_set(e, -r, "cannot write a snapshot to %s: %s", s->folder, strerror(-r));
    }
    return 0;
}

int store_snapshot_publish(struct sqlite_store *s, uint64_t seq, struct error *e) {
    char name[SNAPSHOT_NAME_MAX];
    snapshot_name(seq, name);
    if (renameat(s->folder_fd, snapshot_unfinished, s->folder_fd, name) < 0 ||
        fsync(s->folder_fd) < 0)
        return error_set(e, errno, "cannot put snapshot %s into %s: %s", name, s->folder,
                         strerror(errno));
    uint64_t seqs[STORE_SNAPSHOTS_KEPT + 8];
    int count = store_snapshot_list(s, seqs, STORE_SNAPSHOTS_KEPT + 8);
    for (int i = STORE_SNAPSHOTS_KEPT; i < count; i++) {
        snapshot_name(seqs[i], name);
        unlinkat(s->folder_fd, name, 0);
    }
    return 0;
}

void store_snapshot_discard(struct sqlite_store *s) {
    unlinkat(s->folder_fd, snapshot_unfinished, 0);
}

// Keeps the `max` newest, sorted, newest first.
static int insert_seq(uint64_t *seqs, int count, int max, uint64_t seq) {
    int at = count;
    while (at > 0 && seqs[at - 1] < seq)
        at--;
    if (at == max)
        return count;
    int keep = count < max ? count : max - 1;
    memmove(seqs + at + 1, seqs + at, (size_t)(keep - at) * sizeof *seqs);
    seqs[at] = seq;
    return keep + 1;
}

int store_snapshot_list(struct sqlite_store *s, uint64_t *seqs, int max) {
    int fd = openat(s->folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        if (fd >= 0)
            close(fd);
        return 0;
    }
    int count = 0;
    const struct dirent *entry;
    while ((entry = readdir(dir))) {
        uint64_t seq = 0;
        if (!str_has_prefix(entry->d_name, snapshot_prefix))
            continue;
        if (parse_u64(entry->d_name + sizeof snapshot_prefix - 1, &seq) == 0 && seq > 0)
            count = insert_seq(seqs, count, max, seq);
    }
    closedir(dir);
    return count;
}

static int read_all(int fd, void *data, size_t len) {
    char *p = data;
    while (len) {
        ssize_t n = read(fd, p, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EBADMSG;
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

int store_snapshot_read(struct sqlite_store *s, uint64_t seq, void **data, size_t *len, struct error *e) {
    char name[SNAPSHOT_NAME_MAX];
    snapshot_name(seq, name);
    cleanup_close int fd = openat(s->folder_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return error_set(e, errno, "cannot open %s/%s: %s", s->folder, name, strerror(errno));
    struct snapshot_header header = {0};
    int r = read_all(fd, &header, sizeof header);
    if (r == 0 && (memcmp(header.magic, snapshot_magic, sizeof header.magic) != 0 ||
                   header.format != SNAPSHOT_FORMAT || header.unused != 0 || header.seq != seq ||
                   header.len != (uint64_t)st.st_size - sizeof header))
        r = -EBADMSG;
    if (r < 0)
        return error_set(e, -r, "snapshot %s/%s is damaged", s->folder, name);
    cleanup_free void *bytes = xmalloc(header.len + 1);
    r = read_all(fd, bytes, header.len);
    if (r == 0 && store_sql_checksum(seq, bytes, header.len) != header.sum)
        r = -EBADMSG;
    if (r < 0)
        return error_set(e, -r, "snapshot %s/%s is damaged", s->folder, name);
    *data = TAKE_PTR(bytes);
    *len = header.len;
    return 0;
}
