// SipHash as published by Aumasson and Bernstein; words are little-endian on every machine.
#include "base/siphash.h"

#include <endian.h>
#include <string.h>

struct sip_state {
    uint64_t v0, v1, v2, v3;
};

static inline uint64_t rotate(uint64_t x, int bits) {
    return x << bits | x >> (64 - bits);
}

static inline uint64_t read_word(const uint8_t *p, size_t len) {
    uint64_t w = 0;
    memcpy(&w, p, len);
    return le64toh(w);
}

static inline void rounds(struct sip_state *s, int count) {
    while (count--) {
        s->v0 += s->v1;
        s->v2 += s->v3;
        s->v1 = rotate(s->v1, 13) ^ s->v0;
        s->v3 = rotate(s->v3, 16) ^ s->v2;
        s->v0 = rotate(s->v0, 32);
        s->v2 += s->v1;
        s->v0 += s->v3;
        s->v1 = rotate(s->v1, 17) ^ s->v2;
        s->v3 = rotate(s->v3, 21) ^ s->v0;
        s->v2 = rotate(s->v2, 32);
    }
}

static inline void absorb(struct sip_state *s, uint64_t word, int each) {
    s->v3 ^= word;
    rounds(s, each);
    s->v0 ^= word;
}

static inline uint64_t hash(const uint8_t *key, const void *data, size_t len, int each, int last) {
    uint64_t k0 = read_word(key, 8), k1 = read_word(key + 8, 8);
    struct sip_state s = {k0 ^ 0x736f6d6570736575ULL, k1 ^ 0x646f72616e646f6dULL, k0 ^ 0x6c7967656e657261ULL,
                          k1 ^ 0x7465646279746573ULL};
    const uint8_t *p = data;
    size_t left = len;
    for (; left >= 8; p += 8, left -= 8)
        absorb(&s, read_word(p, 8), each);
    absorb(&s, (left ? read_word(p, left) : 0) | (uint64_t)len << 56, each);
    s.v2 ^= 0xff;
    rounds(&s, last);
    return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}

uint64_t siphash(const uint8_t key[static SIPHASH_KEY_BYTES], const void *data, size_t len) {
    return hash(key, data, len, 2, 4);
}

uint64_t siphash_short(const uint8_t key[static SIPHASH_KEY_BYTES], const void *data, size_t len) {
    return hash(key, data, len, 1, 3);
}
