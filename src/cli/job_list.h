// Rows of jobs fetched page by page.
#pragma once
#include "base/vec.h"
#include "cli/client.h"

struct job_rows {
    VEC(const struct json *) rows;
};

// `target` is a query of /v1/jobs; limit 0: all.
int job_list_fetch(struct cli *c, struct client *k, const char *target, uint32_t limit, struct job_rows *out);
