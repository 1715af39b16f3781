// Version and tables of the state database. A released step is never changed: a new format is a
// new step at the end, and STORE_FORMAT grows with it. A program one version older keeps working
// where `readable_by` says so, so that an upgrade can be taken back.
#include "schema.h"

#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>

#include "sql.h"
#include "store/store.h"

const struct schema_step store_schema_steps[] = {
    {.readable_by = 1,
     .sql = "CREATE TABLE meta(name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;"
            "CREATE TABLE journal(seq INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL,"
            "  type INTEGER NOT NULL, job INTEGER NOT NULL, sum INTEGER NOT NULL, data BLOB NOT NULL);"
            "CREATE INDEX journal_job ON journal(job) WHERE job != 0;"
            "CREATE TABLE text(id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, data BLOB NOT NULL);"
            "CREATE TABLE text_owner(owner INTEGER NOT NULL, text INTEGER NOT NULL,"
            "  live INTEGER NOT NULL, PRIMARY KEY(owner, text)) WITHOUT ROWID;"
            "CREATE INDEX text_owner_text ON text_owner(text);"
            "CREATE TABLE history(id INTEGER PRIMARY KEY, array_id INTEGER NOT NULL,"
            "  array_index INTEGER NOT NULL, state INTEGER NOT NULL, user TEXT NOT NULL,"
            "  project TEXT NOT NULL, name TEXT NOT NULL, submit_ms INTEGER NOT NULL,"
            "  start_ms INTEGER NOT NULL, end_ms INTEGER NOT NULL, nodes TEXT NOT NULL,"
            "  data BLOB NOT NULL);"
            "CREATE INDEX history_end ON history(end_ms);"
            "CREATE INDEX history_user ON history(user, end_ms);"
            "CREATE INDEX history_project ON history(project, end_ms);"
            "CREATE INDEX history_name ON history(name, end_ms);"
            "CREATE INDEX history_state ON history(state, end_ms);"
            "CREATE INDEX history_array ON history(array_id, array_index) WHERE array_id != 0;"
            "CREATE TABLE idem(user TEXT NOT NULL, key TEXT NOT NULL, job INTEGER NOT NULL,"
            "  expires_ms INTEGER NOT NULL, PRIMARY KEY(user, key)) WITHOUT ROWID;"
            "CREATE INDEX idem_expires ON idem(expires_ms);"},
    // Jobs that were there at some time: by the number of digits of the milliseconds they took, then
    // by their end; see history.c.
    {.readable_by = 1, .sql = "CREATE INDEX history_span ON history(" SCHEMA_SPAN ", end_ms);"},
    // Named values. Formats 1 and 2 do not know them and keep their keys in files, so they can go on.
    {.readable_by = 1,
     .sql =
         "CREATE TABLE blob(name TEXT PRIMARY KEY, sum INTEGER NOT NULL, data BLOB NOT NULL) WITHOUT ROWID;"},
    // Snapshots, which were files. Programs of earlier formats go on with the files that are there, until the upgrade
    // is finished; see snapshot.c.
    {.readable_by = 1,
     .sql = "CREATE TABLE snapshot(seq INTEGER PRIMARY KEY, len INTEGER NOT NULL, sum INTEGER NOT NULL,"
            "  pieces INTEGER NOT NULL);"
            "CREATE TABLE snapshot_piece(seq INTEGER NOT NULL, n INTEGER NOT NULL, data BLOB NOT NULL,"
            "  PRIMARY KEY(seq, n));"},
};
const int store_schema_step_count = sizeof store_schema_steps / sizeof store_schema_steps[0];
static_assert(sizeof store_schema_steps / sizeof store_schema_steps[0] == STORE_FORMAT,
              "one step per format");

static int schema_upgrade(sqlite3 *db, const struct schema_step *steps, int from, int to,
                          struct error *e) {
    int r = store_sql_exec(db, "BEGIN IMMEDIATE", e);
    for (int v = from; v < to && r == 0; v++)
        r = store_sql_exec(db, steps[v].sql, e);
    char tail[256];
    snprintf(tail, sizeof tail,
             "INSERT INTO meta(name, value) VALUES('readable_by', %d)"
             "  ON CONFLICT DO UPDATE SET value = max(value, excluded.value);"
             "PRAGMA user_version=%d; PRAGMA application_id=%d; COMMIT",
             steps[to - 1].readable_by, to, STORE_APPLICATION_ID);
    if (r == 0)
        r = store_sql_exec(db, tail, e);
    if (r < 0 && !sqlite3_get_autocommit(db))
        store_sql_exec(db, "ROLLBACK", NULL);
    return r;
}

int store_schema_prepare(sqlite3 *db, const char *path, const struct schema_step *steps, int count,
                         struct error *e) {
    int64_t version = 0, application = 0, tables = 0, readable_by = 0;
    int r = store_sql_int(db, "PRAGMA user_version", 0, &version, e);
    if (r == 0)
        r = store_sql_int(db, "PRAGMA application_id", 0, &application, e);
    if (r == 0)
        r = store_sql_int(db, "SELECT count(*) FROM sqlite_schema", 0, &tables, e);
    if (r < 0)
        return r;
    if (tables > 0 && application != STORE_APPLICATION_ID)
        return error_set(e, EBADMSG, "%s belongs to another program; name another state folder",
                         path);
    if (version == count)
        return 0;
    if (version < count)
        return schema_upgrade(db, steps, (int)version, count, e);
    r = store_sql_int(db, "SELECT value FROM meta WHERE name = 'readable_by'", version, &readable_by, e);
    if (r < 0)
        return r;
    if (readable_by > count)
        return error_set(e, EPROTONOSUPPORT,
                         "%s has format %lld, this program knows formats up to %d; install the "
                         "newer program again, or name another state folder",
                         path, (long long)version, count);
    return 0;
}

int store_schema_check_level(sqlite3 *db, const char *path, uint32_t known, struct error *e) {
    int64_t level = 0;
    int r = store_sql_int(db, SCHEMA_READ_LEVEL, 0, &level, e);
    if (r < 0)
        return r;
    if (!known || level <= known)
        return 0;
    sqlite3_stmt *stmt = NULL;
    r = store_sql_prepare(db, "SELECT data FROM blob WHERE name = '" SCHEMA_LEVEL_RELEASE "'", &stmt, e);
    if (r < 0)
        return r;
    const char *release = sqlite3_step(stmt) == SQLITE_ROW ? (const char *)sqlite3_column_text(stmt, 0) : NULL;
    r = error_set(e, EPROTONOSUPPORT,
                  "%s was written by a later release (feature level %lld, this program knows levels up to %u): "
                  "it needs Acequia %s or later",
                  path, (long long)level, known, release ? release : "of that level");
    sqlite3_finalize(stmt);
    return r;
}
