// What a fuzz target offers to the small driver: sensible inputs to begin from.
#pragma once
#include <stddef.h>
#include <stdint.h>

extern const char *const fuzz_seeds[];  // NULL-terminated
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
