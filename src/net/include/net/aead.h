// Authenticated encryption of small values (AES-256-GCM): whoever has not the key can neither read a value nor change
// it, nor put it in another's place, since the context it was made for is part of what is authenticated.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"

enum { AEAD_KEY_BYTES = 32, AEAD_OVERHEAD = 1 + 8 + 12 + 16 };

struct aead_key {
    uint8_t bytes[AEAD_KEY_BYTES];
};

// Appends the sealed form: version, an identification of the key, a random nonce, the encrypted bytes, a tag.
int aead_seal(const struct aead_key *k, const char *context, const void *data, size_t len, struct buf *out,
              struct error *e);
// -EKEYREJECTED: sealed with another key. -EBADMSG: damaged, or of another context.
int aead_open(const struct aead_key *k, const char *context, const void *data, size_t len, struct buf *out,
              struct error *e);
