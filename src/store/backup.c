// Copies of a state folder's database in one file: taking one while a controller goes on, checking one, putting one in
// place. The copy is a database of the same form, so that every release that can read the state can read a backup.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "schema.h"
#include "sql.h"
#include "sqlite_store.h"

enum { PAGES_A_STEP = 256, HEADER_BYTES = 100, HEADER_WRITE_FORMAT = 18, FORMAT_ROLLBACK = 1 };
#define BLOB_PREFIX "backup/"
#define UNFINISHED ".unfinished"  // of the folder that a backup is made in
#define COPY_NAME "backup"       // in it

static char *folder_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? xasprintf("%.*s", slash == path ? 1 : (int)(slash - path), path) : xstrdup(".");
}

// A backup is complete in one file. Whoever may write into its folder can put a journal or a log beside it, which
// SQLite would read into it. State databases, also those that were set aside, have a log that belongs to them.
static bool is_alone(const char *file) {
    unsigned char head[HEADER_BYTES];
    cleanup_close int fd = open(file, O_RDONLY | O_CLOEXEC);
    return fd >= 0 && read(fd, head, sizeof head) == (ssize_t)sizeof head &&
           head[HEADER_WRITE_FORMAT] == FORMAT_ROLLBACK;
}

// --- taking one ---

// The source stands in a transaction, so all pages are of one moment, whatever is committed meanwhile.
static int copy_pages(sqlite3 *from, sqlite3 *to, const struct store_backup_hooks *h, struct error *e) {
    sqlite3_backup *b = sqlite3_backup_init(to, "main", from, "main");
    int rc = b ? SQLITE_OK : SQLITE_ERROR;
    while (rc == SQLITE_OK) {
        rc = sqlite3_backup_step(b, PAGES_A_STEP);
        uint64_t all = (uint64_t)sqlite3_backup_pagecount(b), left = (uint64_t)sqlite3_backup_remaining(b);
        if (h && h->progress)
            h->progress(h->ctx, all - left, all);
    }
    if (b)
        sqlite3_backup_finish(b);
    return rc == SQLITE_DONE ? 0 : store_sql_error(to, e, "copying the state database");
}

static int copy_database(const char *source, const char *target, bool alone,
                         const struct store_backup_hooks *h, struct error *e) {
    struct sql_options reads = {.flags = SQLITE_OPEN_READWRITE, .alone = alone},
                       writes = {.flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE};
    sqlite3 *from = NULL, *to = NULL;
    int64_t tables;
    int r = store_sql_open(source, &reads, &from, e);
    if (r == 0)
        r = store_sql_exec(from, "PRAGMA query_only=ON; BEGIN", e);
    if (r == 0)  // the transaction begins with the first read
        r = store_sql_int(from, "SELECT count(*) FROM sqlite_schema", 0, &tables, e);
    if (r == 0)
        r = store_sql_open(target, &writes, &to, e);
    if (r == 0)
        r = copy_pages(from, to, h, e);
    // In one file: without a log beside it.
    if (r == 0)
        r = store_sql_exec(to, "PRAGMA journal_mode=DELETE", e);
    sqlite3_close(to);
    sqlite3_close(from);
    return r;
}

// Not even in a folder where everybody may write can others put something beside what is being copied. Whoever makes a
// backup holds the lock of its folder.
static void remove_unfinished(int folder, const char *name) {
    static const char *const files[] = {COPY_NAME, COPY_NAME "-journal", COPY_NAME "-wal", COPY_NAME "-shm"};
    cleanup_close int fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0 || st.st_uid != geteuid() || flock(fd, LOCK_EX | LOCK_NB) < 0)
        return;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        unlinkat(fd, files[i], 0);
    unlinkat(folder, name, AT_REMOVEDIR);
}

void store_backup_clear(const char *folder) {
    static const char end[] = ".backup" UNFINISHED;
    DIR *d = opendir(folder);
    for (const struct dirent *ent; d && (ent = readdir(d));) {
        size_t len = strlen(ent->d_name);
        if (len >= sizeof end && streq(ent->d_name + len + 1 - sizeof end, end))
            remove_unfinished(dirfd(d), ent->d_name);
    }
    if (d)
        closedir(d);
}

// A descriptor that holds the lock of the new folder.
static int make_unfinished(int folder, const char *name, const char *path, struct error *e) {
    remove_unfinished(folder, name);
    if (mkdirat(folder, name, 0700) < 0)
        return error_set(e, errno, "cannot make the folder %s: %s%s", path, strerror(errno),
                         errno == EEXIST ? "; another backup to that file is being made, or somebody else has "
                                           "made it: name another file, or remove it"
                                         : error_remedy(errno));
    cleanup_close int fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
        return error_set(e, EBUSY, "another backup to %s is being made", path);
    return TAKE_FD(fd);
}

static int copy_and_check(const char *source, const char *new, const struct store_backup_hooks *hooks,
                          const struct store_loader *loader, struct store_contents *out, struct error *e) {
    cleanup_close int made = open(new, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (made < 0)
        return error_set(e, errno, "cannot write %s: %s%s", new, strerror(errno), error_remedy(errno));
    int r = copy_database(source, new, false, hooks, e);
    if (r == 0)
        r = store_check_file(new, loader, 0, out, e);
    if (r == 0)
        r = store_seal(new, e);
    if (r == 0 && hooks && hooks->finish)
        r = hooks->finish(hooks->ctx, new, e);
    if (r == 0 && fsync(made) < 0)
        r = error_set(e, errno, "cannot write %s: %s%s", new, strerror(errno), error_remedy(errno));
    return r;
}

int store_backup(const char *path, const char *file, const struct store_backup_hooks *hooks,
                 const struct store_loader *loader, struct store_contents *out, struct error *e) {
    cleanup_free char *source = xasprintf("%s/%s", path, STORE_DATABASE_NAME), *folder = folder_of(file);
    cleanup_free char *private = xasprintf("%s" UNFINISHED, file), *new = xasprintf("%s/" COPY_NAME, private);
    const char *slash = strrchr(private, '/'), *name = slash ? slash + 1 : private;
    if (access(source, F_OK) < 0)
        return error_set(e, errno, "%s: %s; %s", source, strerror(errno),
                         errno == EACCES ? "run it as the user that the controller runs as"
                                         : "name the state folder of a cluster");
    struct stat st;
    if (stat(file, &st) == 0)
        return S_ISDIR(st.st_mode)
                   ? error_set(e, EISDIR, "%s is a folder; name a file in it", file)
                   : error_set(e, EEXIST, "%s exists already; name another file, or remove it", file);
    cleanup_close int at = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (at < 0)
        return error_set(e, errno, "cannot write %s: the folder %s: %s", file, folder, strerror(errno));
    int lock = make_unfinished(at, name, private, e);
    if (lock < 0)
        return lock;
    int r = copy_and_check(source, new, hooks, loader, out, e);
    if (r == 0 && (rename(new, file) < 0 || fsync(at) < 0))
        r = error_set(e, errno, "cannot write %s: %s%s", file, strerror(errno), error_remedy(errno));
    close(lock);
    remove_unfinished(at, name);
    return r;
}

// --- checking one ---

static int check_header(const char *file, bool alone, struct error *e) {
    struct sql_options options = {.flags = SQLITE_OPEN_READWRITE, .alone = alone};
    int64_t application = 0, format = 0;
    sqlite3 *db = NULL;
    if (access(file, R_OK) < 0)
        return error_set(e, errno, "%s: %s", file, strerror(errno));
    int r = store_sql_open(file, &options, &db, e);
    if (r == 0)
        r = store_sql_int(db, "PRAGMA application_id", 0, &application, e);
    if (r == 0)
        r = store_sql_int(db, "PRAGMA user_version", 0, &format, e);
    sqlite3_close(db);
    if (r < 0)
        return r;
    if (application != STORE_APPLICATION_ID)
        return error_set(e, EBADMSG, "%s is neither a backup nor a state database of Acequia", file);
    if (format < STORE_FORMAT)
        return error_set(
            e, EPROTONOSUPPORT,
            "%s has format %lld of an earlier release; start the controller of this release on it "
            "once, which brings it to format %d",
            file, (long long)format, STORE_FORMAT);
    return 0;
}

// The folder stays unknown: files beside a backup do not belong to it.
static int open_file(struct sqlite_store *s, const char *file, struct error *e) {
    *s = (struct sqlite_store){
        .folder = xstrdup(file), .file = xstrdup(file), .folder_fd = -1, .alone = is_alone(file)};
    int r = check_header(file, s->alone, e);
    return r < 0 ? r : store_reader_open(s, e);
}

static void close_file(struct sqlite_store *s) {
    store_reader_close(s);
    free(s->folder);
    free(s->file);
}

// Programs that SQLite would run inside the database: we never make any. What is not plainly a table or an index may be
// one: SQLite reads more spellings than it writes.
static int check_no_programs(sqlite3 *db, const char *file, struct error *e) {
    int64_t n = 0;
    int r = store_sql_int(db,
                          "SELECT count(*) FROM sqlite_schema WHERE type NOT IN ('table', 'index')"
                          "  OR (sql NOT LIKE 'CREATE TABLE %' AND sql NOT LIKE 'CREATE INDEX %'"
                          "      AND sql NOT LIKE 'CREATE UNIQUE INDEX %')",
                          0, &n, e);
    if (r == 0 && n)
        r = error_set(e, EBADMSG,
                      "%s has triggers, views or virtual tables, which Acequia never makes: it was changed; "
                      "use another one",
                      file);
    return r;
}

static int count_contents(struct sqlite_store *s, struct store_contents *out, struct error *e) {
    int64_t first = 0, last = 0, finished = 0;
    struct stat st;
    int r = store_sql_int(s->reader, "SELECT min(seq) FROM journal", 0, &first, e);
    if (r == 0)
        r = store_sql_int(s->reader, "SELECT max(seq) FROM journal", 0, &last, e);
    if (r == 0)
        r = store_sql_int(s->reader, "SELECT at_ms FROM journal ORDER BY seq DESC LIMIT 1", 0, &out->last_ms,
                          e);
    if (r == 0)
        r = store_sql_int(s->reader, "SELECT count(*) FROM history", 0, &finished, e);
    out->first_seq = (uint64_t)first;
    out->last_seq = (uint64_t)last;
    out->finished = (uint64_t)finished;
    out->bytes = stat(s->file, &st) == 0 ? (uint64_t)st.st_size : 0;
    return r;
}

static int check(const char *file, const struct store_loader *loader, uint32_t level,
                 struct store_contents *out, struct error *e) {
    struct sqlite_store s;
    uint64_t last = 0;
    int r = open_file(&s, file, e);
    if (r == 0)  // everything below sees one state of the database
        r = store_sql_exec(s.reader, "BEGIN", e);
    if (r == 0)
        r = check_no_programs(s.reader, file, e);
    if (r == 0)
        r = store_schema_check_level(s.reader, file, level, e);
    if (r == 0)
        r = count_contents(&s, out, e);
    if (r == 0)
        r = store_reader_check(&s.base, e);
    if (r == 0)
        r = store_reader_load_all(&s, loader, &last, e);
    close_file(&s);
    return r;
}

int store_check_folder(const char *path, const struct store_loader *loader, uint32_t level,
                       struct store_contents *out, struct error *e) {
    cleanup_free char *file = xasprintf("%s/%s", path, STORE_DATABASE_NAME);
    return check(file, loader, level, out, e);
}

int store_check_file(const char *file, const struct store_loader *loader, uint32_t level,
                     struct store_contents *out, struct error *e) {
    int r = store_seal_check(file, e);
    return r < 0 ? r : check(file, loader, level, out, e);
}

// --- values that only a backup has ---

int store_backup_value_set(const char *file, const char *name, const void *data, size_t len,
                           struct error *e) {
    struct sql_options options = {.flags = SQLITE_OPEN_READWRITE};
    cleanup_free char *full = xasprintf("%s%s", BLOB_PREFIX, name);
    sqlite3 *db = NULL;
    sqlite3_stmt *q = NULL;
    int r = store_sql_open(file, &options, &db, e);
    if (r == 0)
        r = store_sql_prepare(db, "INSERT OR REPLACE INTO blob(name, sum, data) VALUES(?, ?, ?)", &q, e);
    if (r == 0) {
        sqlite3_bind_text(q, 1, full, -1, SQLITE_STATIC);
        sqlite3_bind_int64(q, 2, (int64_t)store_sql_checksum(strlen(full), data, len));
        sqlite3_bind_blob(q, 3, data, (int)len, SQLITE_STATIC);
        r = store_sql_run(db, q, e, "writing to the backup");
    }
    sqlite3_finalize(q);
    sqlite3_close(db);
    return r < 0 ? r : store_seal(file, e);
}

int store_backup_value(const char *file, const char *name, void **out, size_t *len, struct error *e) {
    cleanup_free char *full = xasprintf("%s%s", BLOB_PREFIX, name);
    struct sqlite_store s;
    int r = open_file(&s, file, e);
    if (r == 0)
        r = store_reader_blob(&s.base, full, out, len, e);
    close_file(&s);
    return r;
}

// --- putting one in place ---

// By SQLite and not byte by byte: a database that was set aside has a log beside it.
static int copy_backup(const char *from, const char *to, struct error *e) {
    cleanup_close int made = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (made < 0)
        return error_set(e, errno, "cannot write %s: %s%s", to, strerror(errno), error_remedy(errno));
    int r = copy_database(from, to, is_alone(from), NULL, e);
    if (r == 0 && fsync(made) < 0)
        r = error_set(e, errno, "cannot write %s: %s%s", to, strerror(errno), error_remedy(errno));
    return r;
}

static int drop_values(const char *file, struct error *e) {
    struct sql_options options = {.flags = SQLITE_OPEN_READWRITE};
    sqlite3 *db = NULL;
    int r = store_sql_open(file, &options, &db, e);
    if (r == 0)
        r = store_sql_exec(db, "DELETE FROM blob WHERE name LIKE '" BLOB_PREFIX "%'", e);
    sqlite3_close(db);
    return r;
}

// The log goes first: without its database it is nothing, but beside another database it would be read into that.
static int set_aside(struct sqlite_store *s, const char *aside, struct error *e) {
    static const char *const endings[] = {"-wal", "-shm", ""};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        cleanup_free char *from = xasprintf("%s%s", STORE_DATABASE_NAME, endings[i]);
        cleanup_free char *to = xasprintf("%s%s", aside, endings[i]);
        if (renameat(s->folder_fd, from, s->folder_fd, to) < 0 && errno != ENOENT)
            return error_set(e, errno, "cannot move %s/%s away: %s%s", s->folder, from, strerror(errno),
                             error_remedy(errno));
    }
    return 0;
}

static void name_aside(struct sqlite_store *s, char out[static STORE_ASIDE_MAX]) {
    char when[32];
    struct tm tm;
    time_t now = time(NULL);
    strftime(when, sizeof when, "%Y%m%d-%H%M%S", gmtime_r(&now, &tm));
    snprintf(out, STORE_ASIDE_MAX, STORE_DATABASE_NAME ".before-%s", when);
    for (int i = 2; faccessat(s->folder_fd, out, F_OK, AT_SYMLINK_NOFOLLOW) == 0; i++)
        snprintf(out, STORE_ASIDE_MAX, STORE_DATABASE_NAME ".before-%s-%d", when, i);
}

int store_restore(const char *file, const char *path, char aside[static STORE_ASIDE_MAX], struct error *e) {
    cleanup_free char *new = xasprintf("%s/%s.restored", path, STORE_DATABASE_NAME);
    cleanup_free char *database = xasprintf("%s/%s", path, STORE_DATABASE_NAME);
    struct sqlite_store s = {.folder = xstrdup(path), .folder_fd = -1, .lock_fd = -1};
    int r = store_folder_open(&s, e);
    if (r < 0)
        goto out;
    bool there = access(database, F_OK) == 0;
    unlink(new);
    r = copy_backup(file, new, e);
    if (r == 0)
        r = store_seal_remove(new, e);
    if (r == 0)
        r = drop_values(new, e);
    if (r == 0 && there) {
        name_aside(&s, aside);
        r = set_aside(&s, aside, e);
    } else {
        *aside = 0;
    }
    if (r == 0 && rename(new, database) < 0)
        r = error_set(e, errno, "cannot put the backup in place as %s: %s%s", database, strerror(errno),
                      error_remedy(errno));
    if (r == 0 && ftruncate(s.lock_fd, 0) < 0)
        r = error_set(e, errno, "cannot write into %s: %s%s", path, strerror(errno), error_remedy(errno));
    if (r == 0) {
        store_folder_note(&s, 0);
        store_snapshot_file_remove_all(&s);  // of an earlier release: they belong to what was there before
        if (fsync(s.folder_fd) < 0)
            r = error_set(e, errno, "cannot write into %s: %s%s", path, strerror(errno), error_remedy(errno));
    }
    if (r < 0)
        unlink(new);
out:
    if (s.lock_fd >= 0)
        close(s.lock_fd);
    if (s.folder_fd >= 0)
        close(s.folder_fd);
    free(s.folder);
    return r;
}
