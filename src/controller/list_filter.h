// The filter of a list of jobs (parameter "where"): which columns it can name, and whether a job passes. It is
// evaluated on what the viewer may see of the job, so that it tells nothing else.
#pragma once
#include "answers.h"
#include "base/arena.h"
#include "model/where.h"

struct list_filter {
    struct where where;                           // terms; none: every job passes
    const struct field *fields[WHERE_TERMS_MAX];  // by term
    column_set columns;  // fields of struct answer_job that it looks at, a bit per row of its table
};

int listing_filter_init(struct list_filter *f, const char *text, int64_t now_ms, struct arena *a,
                        struct error *e);
// The fields of f->columns must be filled in. `part`: terms about fields that differ between waiting elements of an
// array, the other terms, or all.
enum filter_part { FILTER_ALL, FILTER_ELEMENT, FILTER_SHARED };
bool listing_filter_passes(const struct list_filter *f, enum filter_part part, const struct answer_job *job,
                           int64_t now_ms);
