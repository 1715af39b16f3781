// Forgets what retention allows, a few hundred rows per transaction, so that commits get their
// turn in between. Runs on the writer's thread.
#include <errno.h>

#include "base/vec.h"
#include "sql.h"
#include "sqlite_store.h"

enum { PRUNE_ROWS = 500 };

static int used_bytes(sqlite3 *db, uint64_t *out, struct error *e) {
    int64_t pages = 0, unused = 0, size = 0;
    int r = store_sql_int(db, "PRAGMA page_count", 0, &pages, e);
    if (r == 0)
        r = store_sql_int(db, "PRAGMA freelist_count", 0, &unused, e);
    if (r == 0)
        r = store_sql_int(db, "PRAGMA page_size", 0, &size, e);
    *out = (uint64_t)(pages - unused) * (uint64_t)size;
    return r;
}

// Records that ended before this may go; with too large a database, any.
static int64_t limit_of(int64_t keep_ms, int64_t now_ms, bool too_large) {
    return too_large ? INT64_MAX : keep_ms ? now_ms - keep_ms : INT64_MIN;
}

// Rows removed, or a negative errno.
static int prune_journal(struct sqlite_store *s, int64_t before_ms, uint64_t oldest,
                         struct error *e) {
    struct writer *w = &s->writer;
    if (oldest == 0 || before_ms == INT64_MIN)
        return 0;
    sqlite3_stmt *q = w->stmt[WRITE_PRUNE_JOURNAL];
    // The snapshot's own record stays: it shows that journal and snapshot belong together.
    sqlite3_bind_int64(q, 1, (int64_t)oldest);
    sqlite3_bind_int64(q, 2, before_ms);
    sqlite3_bind_int64(q, 3, PRUNE_ROWS);
    int r = store_sql_run(w->db, q, e, "pruning the journal");
    return r < 0 ? r : sqlite3_changes(w->db);
}

struct old_row {
    uint64_t id, array;
};

static int old_rows(struct sqlite_store *s, int64_t before_ms, struct old_row *rows,
                    struct error *e) {
    sqlite3_stmt *q = s->writer.stmt[WRITE_OLD_HISTORY];
    sqlite3_bind_int64(q, 1, before_ms);
    sqlite3_bind_int64(q, 2, PRUNE_ROWS);
    int count = 0, rc;
    while ((rc = sqlite3_step(q)) == SQLITE_ROW && count < PRUNE_ROWS) {
        rows[count].id = (uint64_t)sqlite3_column_int64(q, 0);
        rows[count++].array = (uint64_t)sqlite3_column_int64(q, 1);
    }
    int r = rc == SQLITE_DONE ? count : store_sql_error(s->writer.db, e, "pruning the history");
    sqlite3_reset(q);
    return r;
}

static int prune_history(struct sqlite_store *s, int64_t before_ms, struct error *e) {
    struct writer *w = &s->writer;
    if (before_ms == INT64_MIN)
        return 0;
    struct old_row rows[PRUNE_ROWS];
    int count = old_rows(s, before_ms, rows, e);
    // Rows before texts: a text is dropped when no row of history stands for its owner any more.
    for (int i = 0; i < count; i++) {
        sqlite3_bind_int64(w->stmt[WRITE_DROP_HISTORY], 1, (int64_t)rows[i].id);
        int r = store_sql_run(w->db, w->stmt[WRITE_DROP_HISTORY], e, "pruning the history");
        if (r < 0)
            return r;
    }
    for (int i = 0; i < count; i++) {
        int r = store_writer_drop_owner(s, rows[i].id, e);
        // Elements of an array end one after the other and lie side by side: their array is looked at once
        // for all of them.
        bool again = i > 0 && rows[i].array == rows[i - 1].array;
        if (r == 0 && rows[i].array && !again)
            r = store_writer_drop_owner(s, rows[i].array, e);
        if (r < 0)
            return r;
    }
    return count;
}

static int prune_idem(struct sqlite_store *s, int64_t now_ms, struct error *e) {
    struct writer *w = &s->writer;
    sqlite3_bind_int64(w->stmt[WRITE_PRUNE_IDEM], 1, now_ms);
    sqlite3_bind_int64(w->stmt[WRITE_PRUNE_IDEM], 2, PRUNE_ROWS);
    int r = store_sql_run(w->db, w->stmt[WRITE_PRUNE_IDEM], e, "pruning idempotency keys");
    return r < 0 ? r : sqlite3_changes(w->db);
}

int store_prune_step(struct sqlite_store *s, int64_t now_ms, uint64_t oldest_snapshot, struct error *e) {
    struct writer *w = &s->writer;
    const struct store_retention *keep = &s->retention;
    uint64_t used = 0;
    int r = keep->file_bytes ? used_bytes(w->db, &used, e) : 0;
    bool too_large = keep->file_bytes && used > keep->file_bytes;
    if (r == 0)
        r = store_sql_run(w->db, w->stmt[WRITE_BEGIN], e, "pruning");
    if (r < 0)
        return r;
    // What happened goes before what came of it: the accounts of jobs are the last to go.
    int journal = prune_journal(s, limit_of(keep->journal_ms, now_ms, too_large), oldest_snapshot, e);
    bool accounts = too_large && journal == 0;
    int history = journal < 0 ? journal : prune_history(s, limit_of(keep->history_ms, now_ms, accounts), e);
    int idem = history < 0 ? history : prune_idem(s, now_ms, e);
    r = idem < 0 ? idem : store_sql_run(w->db, w->stmt[WRITE_COMMIT], e, "pruning");
    if (r < 0) {
        if (!sqlite3_get_autocommit(w->db))
            sqlite3_exec(w->db, "ROLLBACK", NULL, NULL, NULL);
        return r;
    }
    return journal > 0 || history > 0 || idem > 0;
}
