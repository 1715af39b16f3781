// Rows of jobs, fetched page by page or in one stream.
#pragma once
#include "base/vec.h"
#include "cli/client/client.h"

// Rows are lists of values; `fields` names them, in order.
struct job_rows {
    VEC(const struct json *) rows;
    const struct json *fields;
    bool cut;  // there are more than `limit`
};

int job_rows_field(const struct job_rows *r, const char *name);  // position in a row, or -1
const char *job_rows_text(const struct json *row, int field);       // NULL: no text there
int64_t job_rows_number(const struct json *row, int field);         // 0: no number there
int job_rows_sort_by(struct job_rows *rows, const char *field);  // ascending, by a number

// `target` is a query of /v1/jobs with stream=1: the rows come in order of their ids, live ones only.
int job_list_stream(struct cli *c, struct client *k, const char *target, struct job_rows *out);
// The same, also for finished jobs, one row at a time: a row lives until `fn` returns. What `fn` returns, when it is
// not 0, ends the reading and is returned. `header` has the names of the fields.
typedef int job_row_fn(void *ctx, const struct job_rows *header, const struct json *row);
int job_list_each(struct cli *c, struct client *k, const char *target, job_row_fn *fn, void *ctx);
// `target` is a query of /v1/jobs; limit 0: all.
int job_list_fetch(struct cli *c, struct client *k, const char *target, uint32_t limit, struct job_rows *out);

// Makes one row of the rows of an array, with the numbers of its elements by state: "2 RUNNING, 98 PENDING", or
// `brief`: "2 R, 98 PD".
#define JOB_FOLD_FIELDS "array_id,label,state"
void job_rows_fold(struct job_rows *rows, bool brief, struct arena *a);
