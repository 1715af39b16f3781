// Shared by the exporters of this folder only.
#pragma once
#include "metrics/openmetrics.h"

struct metrics_export_gpus {
    const struct metrics_gpu *gpus;
    uint32_t gpu_count;  // within METRICS_GPUS_MAX
    const struct metrics_job_gpu *jobs;
    uint32_t job_count;  // within METRICS_JOB_GPUS_MAX
    bool idle;           // the idle times are known
};
void metrics_export_gpus(struct metrics_writer *w, const struct metrics_export_gpus *in);
void metrics_export_about(struct metrics_writer *w, const char *version, int64_t start_ms,
                          const struct metrics_process *process);

static inline uint64_t export_u64_diff(uint64_t a, uint64_t b) {  // not below 0
    return a > b ? a - b : 0;
}
