// Fuzz target: an ID token and a set of keys, parted by a newline. Without the key nothing is ever accepted.
#include <assert.h>
#include <string.h>

#include "../oidc.h"
#include "driver.h"

const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_SEED("eyJhbGciOiJSUzI1NiIsImtpZCI6InIifQ.eyJpc3MiOiJhIn0.AAAA\n"
              "{\"keys\":[{\"kty\":\"RSA\",\"kid\":\"r\",\"n\":\"AQAB\",\"e\":\"AQAB\"}]}"),
    FUZZ_SEED("eyJhbGciOiJFUzI1NiJ9.e30.AAAA\n{\"keys\":[{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"AAAA\","
              "\"y\":\"AAAA\"}]}"),
    FUZZ_SEED("eyJhbGciOiJub25lIn0.e30.\n{\"keys\":[]}"),
    {0},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf token = {0};
    const struct oidc_expected x = {"https://id.example", "acequia", "n1", 1800000000};
    const struct json *claims = NULL;
    struct json *keys;
    struct error e = {0};
    const uint8_t *end = size ? memchr(data, '\n', size) : NULL;
    if (!end || memchr(data, 0, (size_t)(end - data)) ||
        json_parse((const char *)end + 1, size - (size_t)(end - data) - 1, &a, &keys, NULL) < 0)
        return 0;
    buf_add(&token, data, (size_t)(end - data));
    int r = oidc_id_token_read(buf_str(&token), keys, &x, &a, &claims, &e);
    assert(r < 0 && e.text[0] && !claims);
    return 0;
}
