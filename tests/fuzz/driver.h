// What a fuzz target provides, and helpers for it. A target defines LLVMFuzzerTestOneInput and fuzz_seeds; one whose
// inputs are not texts also defines fuzz_corpus. With clang the same files link against libFuzzer.
#pragma once
#include <stddef.h>
#include <stdint.h>

struct fuzz_seed {
    const char *data;
    size_t len;
};
#define FUZZ_SEED(text)                                                                                      \
    { text, sizeof(text) - 1 }

extern const struct fuzz_seed fuzz_seeds[];  // inputs to begin from; ends with a NULL data
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
// Optional: more inputs, made by the program's own encoders.
typedef void (*fuzz_add_fn)(const void *data, size_t len);
__attribute__((weak)) void fuzz_corpus(fuzz_add_fn add);

// Unlike assert, on in every build.
#define FUZZ_CHECK(condition)                                                                                \
    do {                                                                                                     \
        if (!(condition))                                                                                    \
            __builtin_trap();                                                                                \
    } while (0)
