// The state folder: one controller at a time, and noticing that its database, or the log that belongs to it, was lost.
// The file `lock` says so: it is locked while a controller runs, and holds the number of the newest record that was
// committed. It is written after each commit and never synced, so it can be behind the database, but not ahead of it:
// a database that ends earlier has lost records.
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "sql.h"
#include "sqlite_store.h"

enum { LOCK_TRIES = 100, LOCK_PAUSE_US = 20000, LOCK_TEXT_MAX = 128 };

static const char lock_name[] = "lock";
static const char lock_has_database[] = "database: " STORE_DATABASE_NAME "\n";
static const char lock_newest[] = "newest record: ";

// A controller that was just killed holds its lock until its last sync returns: wait that long.
static int take_lock(int fd) {
    for (int tries = 0;; tries++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            return 0;
        if (errno != EWOULDBLOCK || tries == LOCK_TRIES)
            return -errno;
        usleep(LOCK_PAUSE_US);
    }
}

// The process, for people; that there is a database; its newest record. Always as long as before in one process, so
// that a reader never finds half of it.
void store_folder_note(struct sqlite_store *s, uint64_t seq) {
    char text[LOCK_TEXT_MAX];
    int len = snprintf(text, sizeof text, "%d\n%s%s%020" PRIu64 "\n", (int)getpid(), lock_has_database,
                       lock_newest, seq);
    (void)!pwrite(s->lock_fd, text, (size_t)len,
                  0);  // a full disk must not keep the controller from going on
}

static void read_lock(struct sqlite_store *s, char text[static LOCK_TEXT_MAX]) {
    ssize_t n = pread(s->lock_fd, text, LOCK_TEXT_MAX - 1, 0);
    text[n > 0 ? n : 0] = 0;
    s->had_database = strstr(text, lock_has_database);
    const char *newest = strstr(text, lock_newest);
    if (newest)
        s->had_seq = strtoull(newest + sizeof lock_newest - 1, NULL, 10);
}

int store_folder_open(struct sqlite_store *s, struct error *e) {
    char text[LOCK_TEXT_MAX];
    if (mkdir(s->folder, 0700) < 0 && errno != EEXIST)
        return error_set(e, errno, "cannot make the state folder %s: %s%s", s->folder, strerror(errno),
                         error_remedy(errno));
    s->folder_fd = open(s->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (s->folder_fd < 0)
        return error_set(e, errno, "cannot open the state folder %s: %s%s", s->folder, strerror(errno),
                         error_remedy(errno));
    s->lock_fd = openat(s->folder_fd, lock_name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (s->lock_fd < 0)
        return error_set(e, errno, "cannot write into the state folder %s (%s): %s%s", s->folder, lock_name,
                         strerror(errno), error_remedy(errno));
    int r = take_lock(s->lock_fd);
    read_lock(s, text);
    if (r == 0)
        return 0;
    text[strcspn(text, "\n")] = 0;
    return error_set(e, r == -EWOULDBLOCK ? EBUSY : -r,
                     "the state folder %s is in use by another controller%s%s; stop that one first, or name "
                     "another folder",
                     s->folder, text[0] ? ", process " : "", text);
}

// Scripts and environments are nobody else's business: SQLite gives its other files this mode too.
void store_folder_make_private(struct sqlite_store *s) {
    cleanup_close int fd =
        openat(s->folder_fd, STORE_DATABASE_NAME, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd >= 0)
        (void)!fchmod(fd, 0600);
}

// A folder that holds other files of a cluster has lost its database: an empty one would forget every job.
int store_folder_check(struct sqlite_store *s, const char *const *companions, struct error *e) {
    uint64_t seqs[STORE_SNAPSHOTS_KEPT];
    const char *found = NULL;
    struct stat st;
    int r = fstatat(s->folder_fd, STORE_DATABASE_NAME, &st, AT_SYMLINK_NOFOLLOW);
    if ((r == 0 && st.st_size > 0) || (r < 0 && errno != ENOENT))
        return 0;
    for (size_t i = 0; companions && companions[i] && !found; i++)
        if (faccessat(s->folder_fd, companions[i], F_OK, AT_SYMLINK_NOFOLLOW) == 0)
            found = companions[i];
    if (!found && store_snapshot_file_list(s, seqs, STORE_SNAPSHOTS_KEPT) > 0)
        found = "a snapshot";
    // Until its first record was committed, an empty file is a start that was interrupted.
    if (!found && (r < 0 ? s->had_database : s->had_seq > 0))
        found = "a lock file that names one";
    if (!found)
        return 0;
    return error_set(
        e, ENOENT,
        "%s/%s is %s although the folder holds %s: the state is not complete. Put a backup in its "
        "place with 'acequia restore'; to begin a new cluster, empty the folder",
        s->folder, STORE_DATABASE_NAME, r < 0 ? "missing" : "empty", found);
}

// Records that were committed are missing when the log was deleted, or when an older copy was put here by hand.
int store_folder_check_journal(struct sqlite_store *s, struct error *e) {
    int64_t newest = 0;
    int r = store_sql_int(s->reader, "SELECT max(seq) FROM journal", 0, &newest, e);
    if (r < 0)
        return r;
    if ((uint64_t)newest < s->had_seq)
        return error_set(
            e, EBADMSG,
            "%s/%s ends at record %" PRId64 ", but record %" PRIu64
            " was committed: its log (%s-wal) was lost, or an older copy was put in its place. Put the "
            "log back; or restore a backup with 'acequia restore'; or, to go on without these records, "
            "delete %s/%s",
            s->folder, STORE_DATABASE_NAME, newest, s->had_seq, STORE_DATABASE_NAME, s->folder, lock_name);
    if (ftruncate(s->lock_fd, 0) == 0)
        store_folder_note(s, (uint64_t)newest);
    return 0;
}
