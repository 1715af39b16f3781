// Proof that a text was made by us (HMAC-SHA256). Each purpose has its own: what was made for one is none for another.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MAC_KEY_BYTES = 32, MAC_HEX = 64 };

struct mac_key {
    uint8_t bytes[MAC_KEY_BYTES];
};

// A key of its own for a purpose, from another one.
void mac_derive(const uint8_t from[static MAC_KEY_BYTES], const char *purpose, struct mac_key *out);
void mac_hex(const struct mac_key *k, const char *purpose, const char *text, size_t len,
             char out[static MAC_HEX + 1]);
// Compares the first `digits` of it, in constant time.
bool mac_matches(const struct mac_key *k, const char *purpose, const char *text, size_t len, const char *hex,
                 size_t digits);
