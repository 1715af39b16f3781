// SipHash: a 64-bit hash keyed by a 128-bit secret. Without the secret nobody can choose inputs that collide,
// so it is the hash for tables whose keys come from users.
#pragma once
#include <stddef.h>
#include <stdint.h>

enum { SIPHASH_KEY_BYTES = 16 };

uint64_t siphash(const uint8_t key[static SIPHASH_KEY_BYTES], const void *data, size_t len);  // SipHash-2-4
// SipHash-1-3: half the work, enough for tables in memory.
uint64_t siphash_short(const uint8_t key[static SIPHASH_KEY_BYTES], const void *data, size_t len);
