// See the header. Checked against the published examples of the signature's description (test/test_data.c).
#include "sign.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>

static void hex(const uint8_t *bytes, size_t n, char *out) {
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = "0123456789abcdef"[bytes[i] >> 4];
        out[2 * i + 1] = "0123456789abcdef"[bytes[i] & 15];
    }
    out[2 * n] = 0;
}

void data_sha256_hex(const void *data, size_t len, char out[static DATA_SHA256_HEX + 1]) {
    uint8_t digest[EVP_MAX_MD_SIZE];
    EVP_Digest(data, len, digest, NULL, EVP_sha256(), NULL);
    hex(digest, DATA_SHA256_HEX / 2, out);
}

static void hmac(const uint8_t *key, size_t key_len, const char *text, uint8_t out[static 32]) {
    unsigned n = 32;
    HMAC(EVP_sha256(), key, (int)key_len, (const uint8_t *)text, strlen(text), out, &n);
}

void data_uri_add(struct buf *out, const char *text, size_t len, bool keep_slashes) {
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        bool plain = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' ||
                     c == '.' || c == '_' || c == '~' || (c == '/' && keep_slashes);
        if (plain)
            buf_addc(out, (char)c);
        else
            buf_addf(out, "%%%02X", c);
    }
}

void data_sign(const struct data_request *r, const struct data_keys *keys, time_t now, struct buf *headers) {
    struct tm tm;
    char stamp[20], day[12];
    gmtime_r(&now, &tm);
    strftime(stamp, sizeof stamp, "%Y%m%dT%H%M%SZ", &tm);
    strftime(day, sizeof day, "%Y%m%d", &tm);
    const char *names = keys->token ? "host;x-amz-content-sha256;x-amz-date;x-amz-security-token"
                                    : "host;x-amz-content-sha256;x-amz-date";
    struct buf cleanup_buf canonical = {0}, cleanup_buf to_sign = {0}, cleanup_buf scope = {0};
    buf_addf(&canonical, "%s\n%s\n%s\nhost:%s\nx-amz-content-sha256:%s\nx-amz-date:%s\n", r->method, r->path, r->query,
             r->host, r->payload_hash, stamp);
    if (keys->token)
        buf_addf(&canonical, "x-amz-security-token:%s\n", keys->token);
    buf_addf(&canonical, "\n%s\n%s", names, r->payload_hash);
    char digest[DATA_SHA256_HEX + 1];
    data_sha256_hex(canonical.data, canonical.len, digest);
    buf_addf(&scope, "%s/%s/s3/aws4_request", day, r->region);
    buf_addf(&to_sign, "AWS4-HMAC-SHA256\n%s\n%s\n%s", stamp, scope.data, digest);
    struct buf cleanup_buf first = {0};
    buf_addf(&first, "AWS4%s", keys->secret);
    uint8_t key[32];
    hmac((const uint8_t *)first.data, first.len, day, key);
    hmac(key, sizeof key, r->region, key);
    hmac(key, sizeof key, "s3", key);
    hmac(key, sizeof key, "aws4_request", key);
    hmac(key, sizeof key, to_sign.data, key);
    explicit_bzero(first.data, first.len);
    char signature[DATA_SHA256_HEX + 1];
    hex(key, sizeof key, signature);
    explicit_bzero(key, sizeof key);
    buf_addf(headers, "Authorization: AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, Signature=%s\n", keys->id,
             scope.data, names, signature);
    buf_addf(headers, "x-amz-date: %s\nx-amz-content-sha256: %s\n", stamp, r->payload_hash);
    if (keys->token)
        buf_addf(headers, "x-amz-security-token: %s\n", keys->token);
}
