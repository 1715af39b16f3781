// Questions about finished jobs. The text of a question is put together from fixed pieces; every
// value is bound. Pages go by key, not by offset: the caller names the last row it has seen.
//
// Which jobs were there between two times is a question about overlapping intervals, which no plain
// index answers. Rows are therefore indexed by the class of their length (digits of its milliseconds) and
// their end: jobs of one class that began before B ended before B plus the longest of the class, so
// that each class is one short range of ends, however much came after.
#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "schema.h"
#include "sql.h"
#include "sqlite_store.h"

enum { BIND_ID = 1, BIND_ARRAY, BIND_USER, BIND_PROJECT, BIND_NAME, BIND_STATE, BIND_ENDED_FROM,
       BIND_ENDED_BEFORE, BIND_SUBMITTED_FROM, BIND_SUBMITTED_BEFORE, BIND_AFTER_END, BIND_AFTER_ID,
       BIND_LIMIT, BIND_INDEX, BIND_BEGAN_BEFORE, BIND_SPAN, BIND_SPAN_END };
enum { SPANS = 20 };  // digits of 64 bits, and a sign

static bool one_state(uint32_t mask) {
    return mask && !(mask & (mask - 1));
}

static bool by_span(const struct store_query *q) {
    return q->order == STORE_ANY && q->began_before_ms && !q->id && !q->array;
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
    // Where the order goes on from a row, that row is the bound on its side: of two bounds SQLite would
    // take the first for its index and test the other row by row.
    bool goes_on = q->order != STORE_BY_ID && (q->resume || by_span(q));
    if (q->ended_from_ms && (!goes_on || q->descending))
        buf_adds(sql, " AND end_ms >= ?7");
    if (q->ended_before_ms && (!goes_on || !q->descending))
        buf_adds(sql, " AND end_ms < ?8");
    if (q->submitted_from_ms)
        buf_adds(sql, " AND submit_ms >= ?9");
    if (q->submitted_before_ms)
        buf_adds(sql, " AND submit_ms < ?10");
    if (q->has_index)
        buf_adds(sql, " AND array_index = ?14");
    if (q->began_before_ms)
        buf_adds(sql, " AND " SCHEMA_BEGAN " < ?15");
}


static void question_order(struct buf *sql, const struct store_query *q) {
    const char *way = q->descending ? "<" : ">", *order = q->descending ? " DESC" : "";
    if (by_span(q))
        buf_adds(sql, " AND " SCHEMA_SPAN " = ?16 AND end_ms < ?17");
    if (q->order == STORE_BY_ID) {
        if (q->resume)
            buf_addf(sql, " AND id %s ?12", way);
        buf_addf(sql, " ORDER BY id%s", order);
    } else {
        if (q->resume || by_span(q))
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
    sqlite3_bind_int64(stmt, BIND_INDEX, q->index);
    sqlite3_bind_int64(stmt, BIND_BEGAN_BEFORE, q->began_before_ms);
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

struct asking {
    struct sqlite_store *store;
    sqlite3_stmt *stmt;
    store_history_fn fn;
    void *ctx;
    uint32_t rows;
};

// 0: all rows were told, 1: the caller wants no more.
static int ask(struct asking *a, struct error *e) {
    int rc, r = 0;
    while (r == 0 && (rc = sqlite3_step(a->stmt)) == SQLITE_ROW) {
        struct store_history row = row_history(a->stmt);
        a->rows++;
        r = a->fn(a->ctx, &row);
    }
    if (r == 0 && rc != SQLITE_DONE)
        r = store_sql_error(a->store->reader, e, "reading the history");
    sqlite3_reset(a->stmt);
    return r > 0 ? 1 : r;
}

// As SQLite counts the characters of the number.
static int span_of(int64_t began_ms, int64_t end_ms) {
    int64_t took_ms;
    if (__builtin_sub_overflow(end_ms, began_ms, &took_ms))
        return SPANS;
    int digits = took_ms < 0 ? 2 : 1;
    while (took_ms /= 10)
        digits++;
    return digits;
}

// The first moment at which no job of that class that began before `began_ms` can have ended.
static int64_t span_end(int64_t began_ms, int span) {
    int64_t ms = 1, end;
    for (int i = 0; i < span; i++)
        if (__builtin_mul_overflow(ms, 10, &ms))
            return INT64_MAX;
    return __builtin_add_overflow(began_ms, ms, &end) ? INT64_MAX : end;
}

static int ask_spans(struct asking *a, const struct store_query *q, struct error *e) {
    int first = q->resume ? span_of(q->after_began_ms, q->after_end_ms) : 1, r = 0;
    for (int span = first; span <= SPANS && r == 0; span++) {
        bool goes_on = q->resume && span == first;
        int64_t from = q->ended_from_ms ? q->ended_from_ms : INT64_MIN;
        if (q->limit && a->rows >= q->limit)
            break;
        sqlite3_bind_int64(a->stmt, BIND_SPAN, span);
        sqlite3_bind_int64(a->stmt, BIND_SPAN_END, span_end(q->began_before_ms, span));
        sqlite3_bind_int64(a->stmt, BIND_AFTER_END, goes_on ? q->after_end_ms : from);
        sqlite3_bind_int64(a->stmt, BIND_AFTER_ID, goes_on ? (int64_t)q->after_id : 0);
        sqlite3_bind_int64(a->stmt, BIND_LIMIT, q->limit ? (int64_t)(q->limit - a->rows) : -1);
        r = ask(a, e);
    }
    return r;
}

int store_reader_history(struct store *st, const struct store_query *q, store_history_fn fn, void *ctx,
                         struct error *e) {
    struct asking a = {.store = sqlite_store_of(st), .fn = fn, .ctx = ctx};
    cleanup_buf struct buf sql = {0};
    buf_addf(&sql, "SELECT id, array_id, array_index, state, user, project, name, submit_ms,"
                   " start_ms, end_ms, nodes, data FROM history%s WHERE 1",
             by_span(q) ? " INDEXED BY history_span" : "");
    question_filters(&sql, q);
    question_order(&sql, q);
    int r = store_sql_prepare(a.store->reader, buf_str(&sql), &a.stmt, e);
    if (r < 0)
        return r;
    question_bind(a.stmt, q);
    r = by_span(q) ? ask_spans(&a, q, e) : ask(&a, e);
    sqlite3_finalize(a.stmt);
    return r < 0 ? r : 0;
}
