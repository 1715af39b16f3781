// The order of the job table: which columns it can be sorted by, the rows of one page, and the position at which the
// next page begins. A position is a value and an id, not a count: it stays right while jobs come and go.
#pragma once
#include "answers.h"
#include "base/arena.h"
#include "base/buf.h"
#include "base/vec.h"
#include "job_table.h"

struct table_place {
    uint64_t id;
    uint64_t array;    // not 0: this array in one row
    int64_t number;    // the value of the column,
    const char *text;  // or this
};

struct table_sort {
    const struct sort_column *column;
    bool descending, has_after;
    struct table_place after;
    int64_t now_ms;                // of values that grow with time
    uint32_t limit, rows;          // rows: of the page, when it is finished
    VEC(struct table_place) heap;  // at most limit + 1; the last in the order is on top until it is finished
};

// `column`: NULL or "-id"; `after`: NULL or what table_sort_next wrote.
int table_sort_init(struct table_sort *s, const char *column, const char *after, uint32_t limit,
                    int64_t now_ms, struct arena *a, struct error *e);
void table_sort_done(struct table_sort *s);
void table_sort_offer(struct table_sort *s, const struct table_row *r, uint64_t id, uint64_t array,
                      struct arena *a);
void table_sort_finish(struct table_sort *s);                       // puts them in order
bool table_sort_next(const struct table_sort *s, struct buf *out);  // false: there is no further page

int64_t table_nth(int64_t *values, uint32_t len, uint32_t n);  // the n-th smallest; changes their order
// A row as a filter sees it (only these fields are written), and whether that has all these columns of a list.
void table_answer(const struct table_row *r, int64_t now_ms, struct answer_job *out);
bool table_answers(column_set columns);
const char *table_reason(enum job_reason reason);  // why a job waits, in one sentence
