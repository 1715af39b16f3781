// SQLite's calls with this project's errors. Nothing here knows what is stored.
#include "sql.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/buf.h"
#include "base/cleanup.h"

enum { BUSY_TIMEOUT_MS = 5000 };

static int sql_errno(sqlite3 *db) {
    int rc = db ? sqlite3_extended_errcode(db) : SQLITE_NOMEM;
    int system = db ? sqlite3_system_errno(db) : 0;
    switch (rc & 0xff) {
    case SQLITE_FULL:
        return ENOSPC;
    case SQLITE_IOERR:
        // Some calls report a full disk as an I/O error; the errno tells.
        return system == ENOSPC || system == EDQUOT ? ENOSPC : EIO;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return EBADMSG;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return EBUSY;
    case SQLITE_READONLY:
        return EROFS;
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
        return system ? system : EACCES;
    case SQLITE_NOMEM:
        return ENOMEM;
    default:
        return EIO;
    }
}

static bool is_read_only(const char *file) {
    struct statvfs v;
    return file && *file && statvfs(file, &v) == 0 && (v.f_flag & ST_RDONLY);
}

int store_sql_error(sqlite3 *db, struct error *e, const char *doing) {
    const char *why = db ? sqlite3_errmsg(db) : "out of memory",
               *file = db ? sqlite3_db_filename(db, "main") : NULL;
    int code = sql_errno(db);
    // "disk I/O error" is all that SQLite says of a disk that the kernel has made read-only.
    if (code == EIO && is_read_only(file))
        code = EROFS;
    const char *remedy = error_remedy(code);
    if (code == EBADMSG)
        remedy = "; the file is damaged: restore the state folder from a backup, or move it away "
                 "and start with an empty one";
    return error_set(e, code, "%s%s%s: %s%s", file && *file ? file : "", file && *file ? ": " : "", doing,
                     code == EROFS ? strerror(code) : why, remedy);
}

int store_sql_exec(sqlite3 *db, const char *sql, struct error *e) {
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
        return store_sql_error(db, e, "database");
    return 0;
}

int store_sql_prepare(sqlite3 *db, const char *sql, sqlite3_stmt **out, struct error *e) {
    if (sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, out, NULL) != SQLITE_OK)
        return store_sql_error(db, e, "database");
    return 0;
}

int store_sql_prepare_all(sqlite3 *db, const char *const *sql, sqlite3_stmt **out, int count,
                          struct error *e) {
    for (int i = 0; i < count; i++) {
        int r = store_sql_prepare(db, sql[i], &out[i], e);
        if (r < 0)
            return r;
    }
    return 0;
}

void store_sql_finalize_all(sqlite3_stmt **stmts, int count) {
    for (int i = 0; i < count; i++) {
        sqlite3_finalize(stmts[i]);
        stmts[i] = NULL;
    }
}

int store_sql_run(sqlite3 *db, sqlite3_stmt *stmt, struct error *e, const char *doing) {
    int rc = sqlite3_step(stmt);
    assert(rc != SQLITE_ROW);
    int r = rc == SQLITE_DONE ? 0 : store_sql_error(db, e, doing);
    sqlite3_reset(stmt);
    return r;
}

int store_sql_int(sqlite3 *db, const char *sql, int64_t fallback, int64_t *out, struct error *e) {
    sqlite3_stmt *stmt = NULL;
    int r = store_sql_prepare(db, sql, &stmt, e);
    if (r < 0)
        return r;
    int rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW && sqlite3_column_type(stmt, 0) != SQLITE_NULL)
        *out = sqlite3_column_int64(stmt, 0);
    else if (rc == SQLITE_ROW || rc == SQLITE_DONE)
        *out = fallback;
    else
        r = store_sql_error(db, e, "reading the state database");
    sqlite3_finalize(stmt);
    return r;
}

static char *immutable_uri(const char *path) {
    cleanup_buf struct buf b = {0};
    // With an empty host: the path may begin with two slashes.
    buf_adds(&b, *path == '/' ? "file://" : "file:");
    for (const char *p = path; *p; p++)
        if (strchr("%?#", *p))
            buf_addf(&b, "%%%02x", (unsigned char)*p);
        else
            buf_addc(&b, *p);
    buf_adds(&b, "?immutable=1");
    return buf_take(&b);
}

int store_sql_open(const char *path, const struct sql_options *options, sqlite3 **db, struct error *e) {
    sqlite3 *opened = NULL;
    cleanup_free char *uri = options->alone ? immutable_uri(path) : NULL;
    int flags = (uri ? SQLITE_OPEN_READONLY | SQLITE_OPEN_URI : options->flags) | SQLITE_OPEN_NOMUTEX |
                SQLITE_OPEN_EXRESCODE;
    int r = 0;
    if (sqlite3_open_v2(uri ? uri : path, &opened, flags, options->vfs) != SQLITE_OK)
        r = store_sql_error(opened, e, path);
    // Checkpoints are done by hand, off the commit path. FULL: a commit returns after its sync.
    if (r == 0) {
        sqlite3_busy_timeout(opened, BUSY_TIMEOUT_MS);
        r = store_sql_exec(opened,
                           "PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=0;"
                           "PRAGMA temp_store=MEMORY; PRAGMA trusted_schema=OFF;"
                           "PRAGMA cell_size_check=ON; PRAGMA cache_size=-2048;"
                           "PRAGMA journal_size_limit=134217728",
                           e);
    }
    if (r < 0) {
        sqlite3_close(opened);
        return r;
    }
    *db = opened;
    return 0;
}

uint64_t store_sql_checksum(uint64_t seed, const void *data, size_t len) {
    const uint64_t m = 0x9fb21c651e98df25ull;
    const unsigned char *p = data;
    uint64_t h = (seed ^ len) * m;
    for (; len >= 8; p += 8, len -= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        h = (h ^ word) * m;
        h ^= h >> 29;
    }
    uint64_t tail = 0;
    if (len)
        memcpy(&tail, p, len);
    h = (h ^ tail) * m;
    h ^= h >> 32;
    h *= m;
    return h ^ (h >> 29);
}
