// Owns the generator; the algorithm is the public-domain xoshiro256** seeded through splitmix64.
#include "base/rand.h"

#include <assert.h>
#include <errno.h>
#include <sys/random.h>

static uint64_t splitmix(uint64_t *x) {
    uint64_t z = (*x += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

void rand_seed(struct rand *r, uint64_t seed) {
    for (int i = 0; i < 4; i++)
        r->s[i] = splitmix(&seed);
}

static uint64_t rotl(uint64_t x, int k) {
    return (x << k) | (x >> (64 - k));
}

uint64_t rand_u64(struct rand *r) {
    uint64_t *s = r->s, result = rotl(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return result;
}

uint64_t rand_below(struct rand *r, uint64_t n) {
    assert(n > 0);
    return (uint64_t)(((unsigned __int128)rand_u64(r) * n) >> 64);
}

int64_t rand_between(struct rand *r, int64_t low, int64_t high) {
    assert(low <= high);
    return low + (int64_t)rand_below(r, (uint64_t)(high - low) + 1);
}

double rand_unit(struct rand *r) {
    return (double)(rand_u64(r) >> 11) * 0x1.0p-53;
}

int rand_secret(void *p, size_t len) {
    unsigned char *at = p;
    while (len) {
        ssize_t n = getrandom(at, len, 0);
        if (n < 0) {
            if (errno == EINTR)
                continue;
            return -errno;
        }
        at += n;
        len -= (size_t)n;
    }
    return 0;
}
