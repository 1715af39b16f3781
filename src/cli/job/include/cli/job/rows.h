// Rows of jobs, fetched page by page or in one stream.
#pragma once
#include "base/vec.h"
#include "cli/client/client.h"

// Rows are lists of values; `fields` names them, in order.
struct job_rows {
    VEC(const struct json *) rows;
    const struct json *fields;
};

int job_rows_field(const struct job_rows *r, const char *name);  // position in a row, or -1

// `target` is a query of /v1/jobs with stream=1: the rows come in order of their ids, live ones only.
int job_list_stream(struct cli *c, struct client *k, const char *target, struct job_rows *out);
// `target` is a query of /v1/jobs; limit 0: all.
int job_list_fetch(struct cli *c, struct client *k, const char *target, uint32_t limit, struct job_rows *out);
