// One run of a pipeline: inputs are listed, cut into chunks, given to the node's engine, recorded, and shown.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "plan.h"

struct data_run_options {
    const char *program;   // data_worker.py
    uint32_t cpus;
    const char *gpus;
    uint64_t memory_bytes;
    int memory_fd, stream_fd;  // of a reader of the results; -1
    bool explain, quiet;
};

// 0; or a negative errno with the reason. What is done by then stays, and the same pipeline goes on after it.
int data_run(const struct data_plan *plan, const struct data_run_options *o, struct error *e);
