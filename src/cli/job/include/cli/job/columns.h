// The columns a list of jobs can show: one table gives names, titles, the fields they need of the
// API, and how a value is printed.
#pragma once
#include "base/json.h"
#include "cli/command/command.h"
#include "cli/term/table.h"

enum { JOB_COLUMNS_MAX = 40 };

struct job_column;
struct job_rows;

struct job_columns {
    const struct job_column *at[JOB_COLUMNS_MAX];
    int field[JOB_COLUMNS_MAX];               // where in a row the column's value is
    int label, nodes, reason, state, workers, progress, exit_signal, gpus, cpus,
        elapsed;  // and those of columns made of several
    struct table_column titles[JOB_COLUMNS_MAX];
    uint32_t count;
    bool whole_ids;  // lists of array elements are not shortened
};

#define JOB_COLUMNS_LIVE "id,name,user,state,time,limit,cpus,gpus,where"
#define JOB_COLUMNS_LIVE_NARROW "id,name,state,time,gpus,where"
#define JOB_COLUMNS_FINISHED_NARROW "id,name,state,exit,time,end"
#define JOB_COLUMNS_FINISHED "id,name,user,state,exit,time,cpu,peak,where,end"

int job_columns_parse(const char *text, struct job_columns *out, struct error *e);  // "id,name,…"
void job_columns_fields(const struct job_columns *c, struct buf *out);  // for the query
void job_columns_bind(struct job_columns *c, const struct job_rows *rows);  // before rows are added
void job_columns_add(const struct job_columns *c, struct arena *a, const struct json *row, int64_t now_ms,
                     struct text_table *t);
// "state,-start"; refuses unknown columns.
int job_rows_sort(struct job_rows *rows, const char *keys, struct error *e);
enum colour job_state_colour(const char *state);
const char *job_exit_text(struct arena *a, const char *state, int64_t code,
                          int64_t signal);  // "0", "1", "SIGKILL"; "" while it runs
void job_columns_list(struct buf *out);  // names and meanings, for help
