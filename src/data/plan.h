// A pipeline: where rows come from, what is done to them, where results go. It comes as one JSON document, from
// `acequia data run` or from Python.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/schema.h"

enum data_source_kind { DATA_IMAGES, DATA_FILES, DATA_TEXT, DATA_JSONL, DATA_CSV, DATA_PARQUET, DATA_TAR, DATA_RANGE };
enum data_stage_kind { DATA_PYTHON, DATA_ONNX, DATA_PROGRAM };
enum data_output_kind { DATA_OUT_NONE, DATA_OUT_JSONL, DATA_OUT_CSV, DATA_OUT_PARQUET, DATA_OUT_STREAM };

struct data_source {
    uint32_t kind;
    LIST(const char *) inputs;
    uint32_t width, height, shorter, filter, mode;
    bool planes;  // values for a model instead of bytes
    LIST(double) mean;
    LIST(double) std;
    LIST(const char *) columns;
    uint64_t rows, limit;
    bool any_name;
};

struct data_stage {
    uint32_t kind;
    const char *name, *settings, *identity;
    uint32_t batch, replicas, threads;
    double cpus, gpus;
};

struct data_output {
    uint32_t kind;
    const char *path;
    bool single;
};

struct data_plan {
    struct data_source *source;
    LIST(struct data_stage) stages;
    struct data_output *output;
    uint64_t memory_bytes;
    uint64_t errors_max;
    bool errors_unlimited, fresh;
    const char *python;
    uint64_t given[1];
};

extern const char *const data_source_words[], *const data_stage_words[], *const data_output_words[],
                                                                             *const data_mode_words[];
extern const struct schema data_plan_schema;

enum {
    DATA_PLAN_MAX = 64 << 20,
    DATA_INPUTS_MAX = 1 << 16,
    DATA_STAGES_MAX = 16,
    DATA_BATCH_MAX = 1 << 16,
    DATA_REPLICAS_MAX = 1024,
    DATA_ERRORS_DEFAULT = 100,
};

int data_plan_read(const char *text, size_t len, struct arena *a, struct data_plan *out, struct error *e);
// What results depend on: equal plans may go on with each other's results. Sizes of batches and memory do not count.
uint64_t data_plan_identity(const struct data_plan *p);
