// Thin help around SQLite: statements are prepared once from a table, errors become a negative
// errno and a sentence. Internal to the store.
#pragma once
#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

// Maps SQLite's latest error on `db` to a negative errno and says what was being done.
int store_sql_error(sqlite3 *db, struct error *e, const char *doing);
int store_sql_exec(sqlite3 *db, const char *sql, struct error *e);
int store_sql_prepare(sqlite3 *db, const char *sql, sqlite3_stmt **out, struct error *e);
int store_sql_prepare_all(sqlite3 *db, const char *const *sql, sqlite3_stmt **out, int count,
                          struct error *e);
void store_sql_finalize_all(sqlite3_stmt **stmts, int count);
// Runs a statement that yields no rows, then resets it.
int store_sql_run(sqlite3 *db, sqlite3_stmt *stmt, struct error *e, const char *doing);
// First column of the first row; `fallback` when there is no row.
int store_sql_int(sqlite3 *db, const char *sql, int64_t fallback, int64_t *out, struct error *e);

struct sql_options {
    const char *vfs;
    int flags;   // SQLITE_OPEN_*
    bool alone;  // it is only read, and no log or journal beside it is
};
// Opens the database file with the settings every connection has. `db` is NULL on failure.
int store_sql_open(const char *path, const struct sql_options *options, sqlite3 **db, struct error *e);

// Guards a record against silent damage: SQLite does not checksum its pages.
uint64_t store_sql_checksum(uint64_t seed, const void *data, size_t len);
