// The job table: ended jobs of history in memory, as far as sorting, filtering and counting need them, so that live and
// ended jobs can be one list in any order. It is read from history when somebody first asks.
#pragma once
#include "controller.h"
#include "store/store.h"

enum {
    TABLE_ENDED_MAX = 250000,  // the newest; about 170 bytes each
    TABLE_QUERIES_MAX = 1024,
    TABLE_USER_QUERIES_MAX = 64,  // of them, one user's who is no administrator
    TABLE_SLICE_US = 1500,        // then others have their turn
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
// Calls fn when history is in memory, at once if it is.
typedef void (*job_table_fn)(struct controller *c, void *arg);
void job_table_call(struct controller *c, job_table_fn fn, void *arg);
const struct table_row *job_table_rows(const struct controller *c, uint32_t *len, bool *complete);
bool job_table_turn(struct controller *c);  // a slice of what is to be done; false: nothing
// How long jobs that started at this time or later have waited; 0 jobs: none, or history is still being read.
void job_table_waits(struct controller *c, int64_t since_ms, uint64_t *jobs, int64_t *median_ms,
                     int64_t *p90_ms);
