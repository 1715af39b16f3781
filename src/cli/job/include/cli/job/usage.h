// What jobs used in a window of time, summed by project, user and month: for acequia report and sreport.
#pragma once
#include "base/vec.h"
#include "cli/client/client.h"

enum { USAGE_BY_PROJECT = 1, USAGE_BY_USER = 2, USAGE_BY_MONTH = 4 };

struct job_usage {
    const char *project, *user;  // NULL: of all
    int month;                   // year * 12 + month from 0; 0: of all
    uint64_t jobs;               // that ran in the window
    double gpu_hours, cpu_hours, kwh;
    double idle_gpu_hours, idle_cpu_hours;  // held and not used; GPUs: only where it was measured
    double lost_gpu_hours, lost_cpu_hours;  // of jobs that failed
    double wait_s;               // sum over jobs that started in the window
    uint64_t started;
};

struct job_usage_query {
    int64_t from_ms, to_ms;
    unsigned by;
    const char *project, *user;  // only these; NULL: all
};

struct job_usages {
    VEC(struct job_usage) at;  // sorted by month, project, user
    struct job_usage total;
};

int job_usage_fetch(struct cli *c, struct client *k, const struct job_usage_query *q, struct job_usages *out);
void job_usages_done(struct job_usages *u);
