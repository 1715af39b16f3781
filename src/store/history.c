// Questions about finished jobs. The text of a question is put together from fixed pieces; every
// value is bound. Pages go by key, not by offset: the caller names the last row it has seen.
#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "store/sql.h"
#include "store/sqlite_store.h"

enum { BIND_ID = 1, BIND_ARRAY, BIND_USER, BIND_PROJECT, BIND_NAME, BIND_STATE, BIND_ENDED_FROM,
       BIND_ENDED_BEFORE, BIND_SUBMITTED_FROM, BIND_SUBMITTED_BEFORE, BIND_AFTER_END, BIND_AFTER_ID,
       BIND_LIMIT };

static bool one_state(uint32_t mask) {
    return mask && !(mask & (mask - 1));
}

static void question_filters(struct buf *sql, const struct store_query *q) {
    if (q->id)
        buf_adds(sql, " AND id = ?1");
    if (q->array)
        buf_adds(sql, " AND array_id = ?2 AND array_id != 0");
    if (q->user)
        buf_adds(sql, " AND user = ?3");
    if (q->project)
        buf_adds(sql, " AND project = ?4");
    if (q->name)
        buf_adds(sql, " AND name = ?5");
    if (q->state_mask)
        buf_adds(sql, one_state(q->state_mask) ? " AND state = ?6" : " AND (?6 >> state) & 1");
    if (q->ended_from_ms)
        buf_adds(sql, " AND end_ms >= ?7");
    if (q->ended_before_ms)
        buf_adds(sql, " AND end_ms < ?8");
    if (q->submitted_from_ms)
        buf_adds(sql, " AND submit_ms >= ?9");
    if (q->submitted_before_ms)
        buf_adds(sql, " AND submit_ms < ?10");
}

static void question_order(struct buf *sql, const struct store_query *q) {
    const char *way = q->descending ? "<" : ">", *order = q->descending ? " DESC" : "";
    if (q->order == STORE_BY_ID) {
        if (q->resume)
            buf_addf(sql, " AND id %s ?12", way);
        buf_addf(sql, " ORDER BY id%s", order);
    } else {
        if (q->resume)
            buf_addf(sql, " AND (end_ms, id) %s (?11, ?12)", way);
        buf_addf(sql, " ORDER BY end_ms%s, id%s", order, order);
    }
    buf_adds(sql, " LIMIT ?13");
}

// Binding a value the text does not mention is an error of no consequence.
static void question_bind(sqlite3_stmt *stmt, const struct store_query *q) {
    int64_t state = one_state(q->state_mask) ? __builtin_ctz(q->state_mask)
                                             : (int64_t)q->state_mask;
    sqlite3_bind_int64(stmt, BIND_ID, (int64_t)q->id);
    sqlite3_bind_int64(stmt, BIND_ARRAY, (int64_t)q->array);
    sqlite3_bind_text(stmt, BIND_USER, q->user, -1, SQLITE_STATIC);
    sqlite3_bind_text(stmt, BIND_PROJECT, q->project, -1, SQLITE_STATIC);
    sqlite3_bind_text(stmt, BIND_NAME, q->name, -1, SQLITE_STATIC);
    sqlite3_bind_int64(stmt, BIND_STATE, state);
    sqlite3_bind_int64(stmt, BIND_ENDED_FROM, q->ended_from_ms);
    sqlite3_bind_int64(stmt, BIND_ENDED_BEFORE, q->ended_before_ms);
    sqlite3_bind_int64(stmt, BIND_SUBMITTED_FROM, q->submitted_from_ms);
    sqlite3_bind_int64(stmt, BIND_SUBMITTED_BEFORE, q->submitted_before_ms);
    sqlite3_bind_int64(stmt, BIND_AFTER_END, q->after_end_ms);
    sqlite3_bind_int64(stmt, BIND_AFTER_ID, (int64_t)q->after_id);
    sqlite3_bind_int64(stmt, BIND_LIMIT, q->limit ? (int64_t)q->limit : -1);
}

static struct store_history row_history(sqlite3_stmt *q) {
    struct store_history row = {
        .id = (uint64_t)sqlite3_column_int64(q, 0),
        .array = (uint64_t)sqlite3_column_int64(q, 1),
        .index = (uint32_t)sqlite3_column_int64(q, 2),
        .state = (uint32_t)sqlite3_column_int64(q, 3),
        .user = (const char *)sqlite3_column_text(q, 4),
        .project = (const char *)sqlite3_column_text(q, 5),
        .name = (const char *)sqlite3_column_text(q, 6),
        .submit_ms = sqlite3_column_int64(q, 7),
        .start_ms = sqlite3_column_int64(q, 8),
        .end_ms = sqlite3_column_int64(q, 9),
        .nodes = (const char *)sqlite3_column_text(q, 10),
        .data = sqlite3_column_blob(q, 11),
        .len = (size_t)sqlite3_column_bytes(q, 11),
    };
    if (!row.data)
        row.data = "";
    return row;
}

int reader_history(struct store *st, const struct store_query *q, store_history_fn fn, void *ctx,
                   struct error *e) {
    struct sqlite_store *s = sqlite_store_of(st);
    cleanup_buf struct buf sql = {0};
    buf_adds(&sql, "SELECT id, array_id, array_index, state, user, project, name, submit_ms,"
                   " start_ms, end_ms, nodes, data FROM history WHERE 1");
    question_filters(&sql, q);
    question_order(&sql, q);
    sqlite3_stmt *stmt = NULL;
    int r = sql_prepare(s->reader, buf_str(&sql), &stmt, e);
    if (r < 0)
        return r;
    question_bind(stmt, q);
    int rc;
    while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        struct store_history row = row_history(stmt);
        r = fn(ctx, &row);
        if (r != 0)
            break;
    }
    if (r == 0 && rc != SQLITE_DONE)
        r = sql_error(s->reader, e, "reading the history");
    sqlite3_finalize(stmt);
    return r < 0 ? r : 0;
}
