// What a fuzz target provides: libFuzzer's entry point, and a few inputs to begin with for the
// standalone driver (fuzz_main.c), which needs no special compiler.
#pragma once
#include <stddef.h>
#include <stdint.h>

struct fuzz_seed {
    const char *data;
    size_t len;
};

#define FUZZ_SEED(text) {text, sizeof(text) - 1}

extern const struct fuzz_seed fuzz_seeds[];  // ends with a NULL data
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// Unlike assert, also on in every build, and short enough to be read in a report.
#define FUZZ_CHECK(condition) \
    do {                      \
        if (!(condition))     \
            __builtin_trap(); \
    } while (0)
