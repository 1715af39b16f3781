// The job table: ended jobs of history in memory, as far as sorting, filtering and counting need them, so that live and
// ended jobs can be one list in any order. It is read from history when somebody first asks.
#pragma once
#include "controller.h"
#include "store/store.h"

enum {
    TABLE_ENDED_MAX = 250000,  // the newest; about 170 bytes each
    TABLE_PAGE_ROWS = 100,
};

// What is kept of an ended job, and looked at of a live one.
struct table_row {
    uint64_t id, array_id;
    uint32_t array_index, node_count, cpus, time_limit_s, attempt, preempted;
    uint64_t gpus_milli, memory_bytes, cpu_ms, memory_peak_bytes, gpu_busy_ms, energy_mj;
    int64_t submit_ms, eligible_ms, start_ms, end_ms, expected_start_ms, paused_ms;
    int32_t exit_code;
    uint8_t state, class;
    bool worker;                                   // of an elastic job, which stands for it
    const char *user, *project, *partition, *qos;  // interned
    const char *name;
};

void job_table_open(struct controller *c);
void job_table_close(struct controller *c);
void job_table_ended(struct controller *c, const struct store_history *row);  // a job has left the core
// Rows are read in slices: when it is ready, between begin and end no row moves. Jobs that end meanwhile are added.
void job_table_want(struct controller *c);  // history is to be read
bool job_table_ready(const struct controller *c);
void job_table_read_begin(struct controller *c);
void job_table_read_end(struct controller *c);
const struct table_row *job_table_rows(const struct controller *c, uint32_t *len, bool *complete);
bool job_table_turn(struct controller *c);  // reads some of history; false: there was nothing to do
// How long jobs that started at this time or later have waited; 0 jobs: none, or history is still being read.
void job_table_waits(struct controller *c, int64_t since_ms, uint64_t *jobs, int64_t *median_ms,
                     int64_t *p90_ms);
