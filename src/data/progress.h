// The line that shows how far a run is: rewritten on a terminal, else a new one now and then, with a percentage that
// `acequia list` and the portal read.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct data_progress {
    bool on, terminal, listed, shown;
    int64_t begun_ms, shown_ms, rate_ms;
    uint64_t items_done, items_found, rows, failures, rate_rows;
    double rate, loading, working;  // busy parts
    const char *stage;
    int shown_percent;
};

void data_progress_begin(struct data_progress *p, bool on, int64_t now_ms);
void data_progress_show(struct data_progress *p, int64_t now_ms, bool last);
void data_progress_clear(struct data_progress *p);
