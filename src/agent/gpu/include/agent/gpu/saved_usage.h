// What an attempt used on GPUs so far, kept in its spool folder: an agent that is killed and started
// again counts on from there.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "model/job.h"

// Both do nothing when there is no such attempt.
void gpus_saved_usage_write(int spool_fd, uint64_t job, uint32_t attempt, const struct usage *u);
bool gpus_saved_usage_read(int spool_fd, uint64_t job, uint32_t attempt, struct usage *out);
