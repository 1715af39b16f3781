// What a test can ask the simulated driver.
#pragma once
#include <stdint.h>

enum { FAKE_HITS_MAX = 128 };
struct fake_counts {
    _Atomic uint64_t hits[FAKE_HITS_MAX];
    _Atomic uint64_t kernels, kernel_ns;
    _Atomic uint64_t barriers;   // waits put into streams
    _Atomic uint64_t spoiled; // captures that a real driver would have declared invalid
};

__attribute__((visibility("default"))) struct fake_counts *fake_counts(void);
__attribute__((visibility("default"))) uint64_t fake_used(int device);
__attribute__((visibility("default"))) uint64_t fake_hits(const char *name);
// The base name, version and flags by which cuGetProcAddress gives a function that is in no other table.
__attribute__((visibility("default"))) int fake_version_of(const char *name, char base[static 64], uint64_t *flags);
