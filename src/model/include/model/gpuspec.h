// What someone asks of GPUs: "2", "0.5", "a100:2", "gpu:2", "gpu:a100:1", "v100:0.25".
#pragma once
#include <stdint.h>

#include "base/error.h"
#include "model/name.h"

enum { GPU_MILLI_MAX = 65536 * 1000 };

struct gpu_spec {
    uint32_t milli;                  // thousandths of a GPU; a fraction only below 1000
    char model[IDENTIFIER_MAX + 1];  // "" for any
};

int gpu_spec_parse(const char *text, struct gpu_spec *out, struct error *e);
// A count alone: "2", "0.5".
int gpu_count_parse(const char *text, uint32_t *milli, struct error *e);
// "2", "0.5", "0.125"
enum { GPU_TEXT_MAX = 32 };
const char *gpu_milli_format(uint64_t milli, char out[static GPU_TEXT_MAX]);
