// Amounts as people write them: "0.5 GPUs", "1 GPU", "1 h 30 min", "3 CPUs". amount_text.c.
#pragma once
#include <stdint.h>

enum { AMOUNT_TEXT_MAX = 64 };

const char *sched_gpus_text(int64_t milli, char out[static AMOUNT_TEXT_MAX]);        // "0.5 GPUs"
const char *sched_gpu_number_text(int64_t milli, char out[static AMOUNT_TEXT_MAX]);  // "0.5"
const char *sched_cpus_text(uint64_t cpus, char out[static AMOUNT_TEXT_MAX]);
const char *sched_size_text(uint64_t bytes, char out[static AMOUNT_TEXT_MAX]);        // "1.5 GiB"
const char *sched_duration_text(int64_t ms, char out[static AMOUNT_TEXT_MAX]);        // exact, to the second
