// Questions about finished jobs, in PostgreSQL. The text of a question is put together from fixed pieces; every value
// is bound. Rows come in pages by key. Which jobs were there between two times is asked in the order of their ends: the
// planner chooses the index.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "pg_store.h"

enum { HISTORY_PAGE = 500 };

static void add(struct buf *sql, struct pg_args *a, const char *condition, int64_t v) {
    pg_int(a, v);
    buf_addf(sql, " AND %s $%d", condition, a->count);
}

static void add_text(struct buf *sql, struct pg_args *a, const char *condition, const char *text) {
    if (!text)
        return;
    pg_text(a, text);
    buf_addf(sql, " AND %s $%d", condition, a->count);
}

static void filters(struct buf *sql, struct pg_args *a, const struct store_query *q) {
    if (q->id)
        add(sql, a, "id =", (int64_t)q->id);
    if (q->array)
        add(sql, a, "array_id <> 0 AND array_id =", (int64_t)q->array);
    if (q->has_index)
        add(sql, a, "array_index =", q->index);
    add_text(sql, a, "user_name =", q->user);
    add_text(sql, a, "project =", q->project);
    add_text(sql, a, "name =", q->name);
    if (q->state_mask) {
        bool first = true;
        buf_adds(sql, " AND state IN (");
        for (int i = 0; i < 32; i++)
            if (q->state_mask >> i & 1) {
                buf_addf(sql, "%s%d", first ? "" : ",", i);
                first = false;
            }
        buf_addc(sql, ')');
    }
    if (q->ended_from_ms)
        add(sql, a, "end_ms >=", q->ended_from_ms);
    if (q->ended_before_ms)
        add(sql, a, "end_ms <", q->ended_before_ms);
    if (q->submitted_from_ms)
        add(sql, a, "submit_ms >=", q->submitted_from_ms);
    if (q->submitted_before_ms)
        add(sql, a, "submit_ms <", q->submitted_before_ms);
    if (q->began_before_ms)
        add(sql, a, "CASE start_ms WHEN 0 THEN submit_ms ELSE start_ms END <", q->began_before_ms);
}

static void order(struct buf *sql, struct pg_args *a, const struct store_query *q, bool resume,
                  uint32_t limit) {
    const char *way = q->descending ? "<" : ">", *down = q->descending ? " DESC" : "";
    if (resume && q->order == STORE_BY_ID) {
        pg_int(a, (int64_t)q->after_id);
        buf_addf(sql, " AND id %s $%d", way, a->count);
    } else if (resume) {
        pg_int(a, q->after_end_ms);
        pg_int(a, (int64_t)q->after_id);
        buf_addf(sql, " AND (end_ms, id) %s ($%d, $%d)", way, a->count - 1, a->count);
    }
    if (q->order == STORE_BY_ID)
        buf_addf(sql, " ORDER BY id%s", down);
    else
        buf_addf(sql, " ORDER BY end_ms%s, id%s", down, down);
    pg_int(a, limit);
    buf_addf(sql, " LIMIT $%d", a->count);
}

static struct store_history row_of(const PGresult *r, int row) {
    return (struct store_history){.id = (uint64_t)pg_get_int(r, row, 0),
                                  .array = (uint64_t)pg_get_int(r, row, 1),
                                  .index = (uint32_t)pg_get_int(r, row, 2),
                                  .state = (uint32_t)pg_get_int(r, row, 3),
                                  .user = pg_get_text(r, row, 4),
                                  .project = pg_get_text(r, row, 5),
                                  .name = pg_get_text(r, row, 6),
                                  .submit_ms = pg_get_int(r, row, 7),
                                  .start_ms = pg_get_int(r, row, 8),
                                  .end_ms = pg_get_int(r, row, 9),
                                  .nodes = pg_get_text(r, row, 10),
                                  .data = pg_lib.PQgetvalue(r, row, 11),
                                  .len = (size_t)pg_lib.PQgetlength(r, row, 11)};
}

int pg_reader_history(struct store *st, const struct store_query *asked, store_history_fn fn, void *ctx,
                      struct error *e) {
    struct pg_conn *c = pg_reader_conn(pg_store_of(st));
    struct store_query q = *asked;
    uint32_t told = 0;
    for (;;) {
        struct error own = {0};
        struct pg_args a = {0};
        cleanup_buf struct buf sql = {0};
        uint32_t page = q.limit && q.limit - told < HISTORY_PAGE ? q.limit - told : HISTORY_PAGE;
        buf_adds(&sql,
                 "SELECT id, array_id, array_index, state, user_name, project, name, submit_ms, start_ms,"
                 " end_ms, nodes, data FROM history WHERE true");
        filters(&sql, &a, &q);
        order(&sql, &a, &q, q.resume, page);
        cleanup_result PGresult *r = pg_query(c, buf_str(&sql), &a, "reading the history", &own);
        if (!r) {
            if (e)
                *e = own;
            return -own.code;
        }
        int rows = pg_lib.PQntuples(r);
        for (int i = 0; i < rows; i++) {
            struct store_history row = row_of(r, i);
            int stop = fn(ctx, &row);
            if (stop != 0)
                return stop < 0 ? stop : 0;
            q.after_id = row.id;
            q.after_end_ms = row.end_ms;
        }
        told += (uint32_t)rows;
        if ((uint32_t)rows < page || (q.limit && told >= q.limit))
            return 0;
        q.resume = true;
    }
}
