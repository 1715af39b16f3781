// The trace simulator as a command: `sim TRACE [options]`.
#pragma once
#include "sched/policy.h"
#include "sim/metrics.h"

int sim_main(int argc, char **argv);

// policy.c: "default", "easy,short_milli=2000", …
int sim_policy(const char *text, struct policy *p, struct error *err);
const char *sim_policy_help(void);

// One replayed policy.
struct sim_run {
    const char *name;
    struct metrics m;
};

// report.c, html.c
struct buf;
void sim_report_text(const struct trace *t, const struct sim_run *runs, uint32_t n, struct buf *out);
void sim_report_json(const struct trace *t, const struct sim_run *runs, uint32_t n, struct buf *out);
void sim_report_html(const struct trace *t, const char *path, const struct sim_run *runs, uint32_t n, struct buf *out);
