// HMAC-SHA256 by OpenSSL. The purpose and a zero byte come before the text: no text of one purpose is one of another.
#include "net/mac.h"

#include <assert.h>
#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <string.h>

#include "base/buf.h"

static void compute(const uint8_t *key, const char *purpose, const char *text, size_t len,
                    uint8_t out[static MAC_KEY_BYTES]) {
    cleanup_buf struct buf b = {0};
    unsigned n = 0;
    buf_add(&b, purpose, strlen(purpose) + 1);
    buf_add(&b, text, len);
    const void *done = HMAC(EVP_sha256(), key, MAC_KEY_BYTES, (const unsigned char *)b.data, b.len, out, &n);
    assert(done && n == MAC_KEY_BYTES);
}

void mac_derive(const uint8_t from[static MAC_KEY_BYTES], const char *purpose, struct mac_key *out) {
    compute(from, "key", purpose, strlen(purpose), out->bytes);
}

void mac_hex(const struct mac_key *k, const char *purpose, const char *text, size_t len,
             char out[static MAC_HEX + 1]) {
    static const char digits[] = "0123456789abcdef";
    uint8_t mac[MAC_KEY_BYTES];
    compute(k->bytes, purpose, text, len, mac);
    for (size_t i = 0; i < sizeof mac; i++) {
        out[2 * i] = digits[mac[i] >> 4];
        out[2 * i + 1] = digits[mac[i] & 15];
    }
    out[MAC_HEX] = 0;
}

bool mac_matches(const struct mac_key *k, const char *purpose, const char *text, size_t len, const char *hex,
                 size_t digits) {
    char right[MAC_HEX + 1];
    assert(digits <= MAC_HEX);
    mac_hex(k, purpose, text, len, right);
    return CRYPTO_memcmp(right, hex, digits) == 0;
}
