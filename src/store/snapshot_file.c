// Snapshots of release 0.1.0 and of early builds of 0.2.0: files "snapshot-SEQ" beside the database, a header with a
// checksum, then the bytes. They are read, and removed once the upgrade is finished; nothing writes them any more.
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

int store_snapshot_file_list(const struct sqlite_store *s, uint64_t *seqs, int max) {
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

void store_snapshot_file_remove_all(struct sqlite_store *s) {
    uint64_t seqs[STORE_SNAPSHOTS_KEPT + 8];
    char name[SNAPSHOT_NAME_MAX];
    int count = store_snapshot_file_list(s, seqs, STORE_SNAPSHOTS_KEPT + 8);
    for (int i = 0; i < count; i++) {
        snapshot_name(seqs[i], name);
        unlinkat(s->folder_fd, name, 0);
    }
    unlinkat(s->folder_fd, snapshot_unfinished, 0);
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

int store_snapshot_file_read(const struct sqlite_store *s, uint64_t seq, void **data, size_t *len,
                             struct error *e) {
    char name[SNAPSHOT_NAME_MAX];
    snapshot_name(seq, name);
    cleanup_close int fd = openat(s->folder_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return error_set(e, errno, "cannot open %s/%s: %s", s->folder, name, strerror(errno));
    struct snapshot_header header = {0};
    int r = read_all(fd, &header, sizeof header);
    // The length is held against the file's before it is believed: a damaged one could ask for any amount of memory.
    if (r == 0 &&
        (memcmp(header.magic, snapshot_magic, sizeof header.magic) != 0 || header.format != SNAPSHOT_FORMAT ||
         header.unused != 0 || header.seq != seq || header.len != (uint64_t)st.st_size - sizeof header))
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
