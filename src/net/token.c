// Join tokens: text form, hash, comparison.
#include "net/token.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <string.h>

#include "base/rand.h"

enum { SHA256_BYTES = TOKEN_SHA256_HEX / 2, SECRET_HEX = 2 * TOKEN_SECRET_BYTES };

static const char prefix[] = "aq1.";
static const char digits[] = "0123456789abcdef";

static void to_hex(const unsigned char *p, size_t n, char *out) {
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = digits[p[i] >> 4];
        out[2 * i + 1] = digits[p[i] & 15];
    }
    out[2 * n] = 0;
}

// Exactly 2 * n lower-case digits at `s`.
static int from_hex(const char *s, size_t n, unsigned char *out) {
    for (size_t i = 0; i < n; i++) {
        const char *high = s[2 * i] ? strchr(digits, s[2 * i]) : NULL;
        const char *low = high && s[2 * i + 1] ? strchr(digits, s[2 * i + 1]) : NULL;
        if (!low)
            return -EINVAL;
        out[i] = (unsigned char)((high - digits) << 4 | (low - digits));
    }
    return 0;
}

int token_random(struct token *out, struct error *e) {
    unsigned char id[TOKEN_ID_BYTES];
    int r = rand_secret(id, sizeof id);
    if (r == 0)
        r = rand_secret(out->secret, sizeof out->secret);
    if (r < 0)
        return error_set(e, -r, "the kernel gives no random numbers: %s", strerror(-r));
    to_hex(id, sizeof id, out->id);
    out->ca_sha256[0] = 0;
    return 0;
}

int token_create(const char *ca_sha256, struct token *out, struct error *e) {
    unsigned char scratch[SHA256_BYTES];
    if (strlen(ca_sha256) != TOKEN_SHA256_HEX || from_hex(ca_sha256, SHA256_BYTES, scratch) < 0)
        return error_set(e, EINVAL, "the CA fingerprint is not %d lower-case hexadecimal digits",
                         TOKEN_SHA256_HEX);
    int r = token_random(out, e);
    if (r < 0)
        return r;
    memcpy(out->ca_sha256, ca_sha256, TOKEN_SHA256_HEX + 1);
    return 0;
}

void token_short_format(const struct token *t, char out[static TOKEN_SHORT_LEN + 1]) {
    memcpy(out, t->id, TOKEN_ID_HEX);
    out[TOKEN_ID_HEX] = '.';
    to_hex(t->secret, TOKEN_SECRET_BYTES, out + TOKEN_ID_HEX + 1);
}

int token_short_parse(const char *text, size_t len, struct token *out) {
    unsigned char scratch[TOKEN_ID_BYTES];
    if (len != TOKEN_SHORT_LEN || text[TOKEN_ID_HEX] != '.' || from_hex(text, TOKEN_ID_BYTES, scratch) < 0 ||
        from_hex(text + TOKEN_ID_HEX + 1, TOKEN_SECRET_BYTES, out->secret) < 0)
        return -EINVAL;
    memcpy(out->id, text, TOKEN_ID_HEX);
    out->id[TOKEN_ID_HEX] = out->ca_sha256[0] = 0;
    return 0;
}

void token_format(const struct token *t, char out[static TOKEN_TEXT_LEN + 1]) {
    char *p = out;
    memcpy(p, prefix, sizeof prefix - 1);
    p += sizeof prefix - 1;
    memcpy(p, t->id, TOKEN_ID_HEX);
    p += TOKEN_ID_HEX;
    *p++ = '.';
    to_hex(t->secret, TOKEN_SECRET_BYTES, p);
    p += SECRET_HEX;
    *p++ = '.';
    memcpy(p, t->ca_sha256, TOKEN_SHA256_HEX + 1);
    assert(p + TOKEN_SHA256_HEX == out + TOKEN_TEXT_LEN);
}

static int parse_fields(const char *s, struct token *out) {
    unsigned char scratch[SHA256_BYTES];
    const char *id = s + sizeof prefix - 1, *secret = id + TOKEN_ID_HEX + 1,
               *ca = secret + SECRET_HEX + 1;
    if (memcmp(s, prefix, sizeof prefix - 1) != 0 || secret[-1] != '.' || ca[-1] != '.' ||
        from_hex(id, TOKEN_ID_BYTES, scratch) < 0 ||
        from_hex(secret, TOKEN_SECRET_BYTES, out->secret) < 0 ||
        from_hex(ca, SHA256_BYTES, scratch) < 0)
        return -EINVAL;
    memcpy(out->id, id, TOKEN_ID_HEX);
    out->id[TOKEN_ID_HEX] = 0;
    memcpy(out->ca_sha256, ca, TOKEN_SHA256_HEX);
    out->ca_sha256[TOKEN_SHA256_HEX] = 0;
    return 0;
}

int token_parse(const char *text, struct token *out, struct error *e) {
    struct token t;
    while (isspace((unsigned char)*text))
        text++;
    size_t len = strlen(text);
    while (len && isspace((unsigned char)text[len - 1]))
        len--;
    int r = len == TOKEN_TEXT_LEN ? parse_fields(text, &t) : -EINVAL;
    if (r == 0)
        *out = t;
    token_wipe(&t);
    if (r < 0)
        return error_set(e, EINVAL,
                         "this is not a join token: one begins with \"aq1.\" and has %d "
                         "characters; make one with \"acequia token create\"",
                         TOKEN_TEXT_LEN);
    return 0;
}

void token_hash(const struct token *t, char out[static TOKEN_SHA256_HEX + 1]) {
    static const char purpose[] = "acequia join token 1";
    unsigned char text[sizeof purpose + TOKEN_ID_HEX + TOKEN_SECRET_BYTES], hash[SHA256_BYTES];
    memcpy(text, purpose, sizeof purpose);
    memcpy(text + sizeof purpose, t->id, TOKEN_ID_HEX);
    memcpy(text + sizeof purpose + TOKEN_ID_HEX, t->secret, TOKEN_SECRET_BYTES);
    unsigned len = 0;
    int ok = EVP_Digest(text, sizeof text, hash, &len, EVP_sha256(), NULL);
    assert(ok == 1 && len == SHA256_BYTES);
    OPENSSL_cleanse(text, sizeof text);
    to_hex(hash, SHA256_BYTES, out);
}

bool token_matches(const struct token *t, const char *hash_hex) {
    char own[TOKEN_SHA256_HEX + 1];
    token_hash(t, own);
    return strlen(hash_hex) == TOKEN_SHA256_HEX &&
           CRYPTO_memcmp(own, hash_hex, TOKEN_SHA256_HEX) == 0;
}

void token_wipe(struct token *t) {
    OPENSSL_cleanse(t, sizeof *t);
}

void token_challenge(const char *verifier, char out[static TOKEN_CHALLENGE_LEN + 1]) {
    unsigned char hash[SHA256_BYTES + 1] = {0};
    char text[4 * (SHA256_BYTES / 3 + 1) + 1];
    unsigned len = 0;
    int ok = EVP_Digest(verifier, strlen(verifier), hash, &len, EVP_sha256(), NULL);
    assert(ok == 1 && len == SHA256_BYTES);
    EVP_EncodeBlock((unsigned char *)text, hash, SHA256_BYTES);
    for (size_t i = 0; i < TOKEN_CHALLENGE_LEN; i++)
        out[i] = text[i] == '+' ? '-' : text[i] == '/' ? '_' : text[i];
    out[TOKEN_CHALLENGE_LEN] = 0;
}
