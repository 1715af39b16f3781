// What squeue can print of a job; also used by scontrol and sacct.
#pragma once
#include "columns.h"
#include "job_row.h"

extern const struct column squeue_columns[];
extern const size_t squeue_column_count;

int64_t slurm_job_end_ms(const struct sjob *j);     // expected while it runs; 0: unknown
uint32_t slurm_job_priority(const struct sjob *j);  // 0: held
uint64_t slurm_job_memory(const struct sjob *j, bool *per_cpu);
void slurm_job_path(const struct sjob *j, const char *pattern, struct buf *out);
void slurm_job_dependency(const struct sjob *j, struct buf *out);
