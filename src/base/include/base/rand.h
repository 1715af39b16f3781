// Seeded random numbers (xoshiro256**): the caller owns the state, so a seed decides everything.
// Not for secrets: those come from rand_secret, which asks the kernel.
#pragma once
#include <stddef.h>
#include <stdint.h>

struct rand {
    uint64_t s[4];
};

void rand_seed(struct rand *r, uint64_t seed);
uint64_t rand_u64(struct rand *r);
uint64_t rand_below(struct rand *r, uint64_t n);                 // 0 … n-1, n > 0
int64_t rand_between(struct rand *r, int64_t low, int64_t high);  // both included
double rand_unit(struct rand *r);                                 // [0, 1)
int rand_secret(void *p, size_t len);                             // 0 or a negative errno
