// ID tokens of OpenID Connect: a JWT in compact form whose signature is checked with a key of the provider's set before
// anything in it is believed. Which algorithm is used is decided by us: "none", HMAC and others are refused.
#include <errno.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>
#include <string.h>

#include "base/text.h"
#include "oidc.h"

enum { RSA_BITS_MIN = 2048, RSA_BITS_MAX = 8192, P256_BYTES = 32 };

static int refuse(struct error *e, const char *why) {
    return error_set(e, EACCES, "the provider's ID token is refused: %s", why);
}

static int digit_of(char c) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

// base64url without padding; what a decoder would have to guess is refused.
static bool decode(const char *in, size_t len, struct buf *out) {
    uint32_t bits = 0, count = 0;
    for (size_t i = 0; i < len; i++) {
        int d = digit_of(in[i]);
        if (d < 0)
            return false;
        bits = bits << 6 | (uint32_t)d;
        count += 6;
        if (count >= 8) {
            count -= 8;
            buf_addc(out, (char)(bits >> count & 0xff));
        }
    }
    return count < 6 && !(bits & ((1u << count) - 1));
}

static bool decode_member(const struct json *key, const char *name, struct buf *out) {
    const char *text = json_str(key, name);
    return text && strlen(text) <= 2048 && decode(text, strlen(text), out) && out->len;
}

// --- keys ---

static EVP_PKEY *key_from(const char *type, OSSL_PARAM *params) {
    EVP_PKEY *out = NULL;
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, type, NULL);
    if (!ctx || !params || EVP_PKEY_fromdata_init(ctx) != 1 ||
        EVP_PKEY_fromdata(ctx, &out, EVP_PKEY_PUBLIC_KEY, params) != 1)
        out = NULL;
    EVP_PKEY_CTX_free(ctx);
    OSSL_PARAM_free(params);
    return out;
}

static EVP_PKEY *rsa_key(const struct json *key) {
    cleanup_buf struct buf n = {0}, e = {0};
    EVP_PKEY *out = NULL;
    if (!decode_member(key, "n", &n) || !decode_member(key, "e", &e) || e.len > 8)
        return NULL;
    BIGNUM *modulus = BN_bin2bn((unsigned char *)n.data, (int)n.len, NULL),
           *exponent = BN_bin2bn((unsigned char *)e.data, (int)e.len, NULL);
    OSSL_PARAM_BLD *b = OSSL_PARAM_BLD_new();
    int bits = modulus ? BN_num_bits(modulus) : 0;
    if (exponent && b && bits >= RSA_BITS_MIN && bits <= RSA_BITS_MAX && BN_is_odd(exponent) &&
        !BN_is_one(exponent) && OSSL_PARAM_BLD_push_BN(b, OSSL_PKEY_PARAM_RSA_N, modulus) &&
        OSSL_PARAM_BLD_push_BN(b, OSSL_PKEY_PARAM_RSA_E, exponent))
        out = key_from("RSA", OSSL_PARAM_BLD_to_param(b));
    OSSL_PARAM_BLD_free(b);
    BN_free(modulus);
    BN_free(exponent);
    return out;
}

static EVP_PKEY *ec_key(const struct json *key) {
    cleanup_buf struct buf x = {0}, y = {0};
    unsigned char point[1 + 2 * P256_BYTES] = {4};
    EVP_PKEY *out = NULL;
    if (!streq(json_str(key, "crv"), "P-256") || !decode_member(key, "x", &x) ||
        !decode_member(key, "y", &y) || x.len != P256_BYTES || y.len != P256_BYTES)
        return NULL;
    memcpy(point + 1, x.data, P256_BYTES);
    memcpy(point + 1 + P256_BYTES, y.data, P256_BYTES);
    OSSL_PARAM_BLD *b = OSSL_PARAM_BLD_new();
    if (b && OSSL_PARAM_BLD_push_utf8_string(b, OSSL_PKEY_PARAM_GROUP_NAME, "prime256v1", 0) &&
        OSSL_PARAM_BLD_push_octet_string(b, OSSL_PKEY_PARAM_PUB_KEY, point, sizeof point))
        out = key_from("EC", OSSL_PARAM_BLD_to_param(b));
    OSSL_PARAM_BLD_free(b);
    return out;
}

// The signature of a JWT has both numbers one after the other; OpenSSL wants them as DER.
static bool ecdsa_der(const struct buf *raw, struct buf *out) {
    if (raw->len != 2 * P256_BYTES)
        return false;
    ECDSA_SIG *sig = ECDSA_SIG_new();
    BIGNUM *r = BN_bin2bn((unsigned char *)raw->data, P256_BYTES, NULL),
           *s = BN_bin2bn((unsigned char *)raw->data + P256_BYTES, P256_BYTES, NULL);
    unsigned char *der = NULL;
    int len = -1;
    if (sig && r && s && ECDSA_SIG_set0(sig, r, s) == 1) {
        r = s = NULL;  // its own now
        len = i2d_ECDSA_SIG(sig, &der);
    }
    if (len > 0)
        buf_add(out, der, (size_t)len);
    OPENSSL_free(der);
    BN_free(r);
    BN_free(s);
    ECDSA_SIG_free(sig);
    return len > 0;
}

static bool signed_by(const struct json *key, bool rsa, const char *text, size_t len,
                      const struct buf *signature) {
    EVP_PKEY *pkey = rsa ? rsa_key(key) : ec_key(key);
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool good = pkey && ctx && EVP_DigestVerifyInit(ctx, NULL, EVP_sha256(), NULL, pkey) == 1 &&
                EVP_DigestVerify(ctx, (unsigned char *)signature->data, signature->len,
                                 (const unsigned char *)text, len) == 1;
    EVP_MD_CTX_free(ctx);
    EVP_PKEY_free(pkey);
    return good;
}

static bool key_suits(const struct json *key, const char *kid, const char *alg, bool rsa) {
    const char *use = json_str(key, "use"), *of = json_str(key, "alg");
    return key->type == JSON_OBJECT && streq(json_str(key, "kty"), rsa ? "RSA" : "EC") &&
           (!use || streq(use, "sig")) && (!of || streq(of, alg)) &&
           (!kid || streq(json_str(key, "kid"), kid));
}

static int check_signature(const struct json *header, const struct json *keys, const char *text, size_t len,
                           const struct buf *raw, struct error *e) {
    const char *alg = json_str(header, "alg"), *kid = json_str(header, "kid");
    const struct json *list = json_get(keys, "keys");
    bool rsa = streq(alg, "RS256");
    cleanup_buf struct buf der = {0};
    if (!rsa && !streq(alg, "ES256"))
        return refuse(e, "it is signed with an algorithm other than RS256 and ES256");
    if (json_get(header, "crit"))
        return refuse(e, "it needs extensions that are not known here");
    if (!rsa && !ecdsa_der(raw, &der))
        return refuse(e, "its signature is malformed");
    uint32_t tried = 0;
    for (uint32_t i = 0; list && list->type == JSON_ARRAY && i < list->len; i++) {
        if (!key_suits(&list->items[i], kid, alg, rsa))
            continue;
        if (++tried > OIDC_KEYS_TRIED_MAX)
            break;
        if (signed_by(&list->items[i], rsa, text, len, rsa ? raw : &der))
            return 0;
    }
    return refuse(e,
                  tried ? "its signature is wrong" : "the provider has no key of the kind it is signed with");
}

// --- claims ---

static bool is_for(const struct json *claims, const char *client_id, bool *several) {
    const struct json *aud = json_get(claims, "aud");
    bool found = false;
    *several = false;
    if (aud && aud->type == JSON_STRING)
        return streq(aud->s, client_id);
    for (uint32_t i = 0; aud && aud->type == JSON_ARRAY && i < aud->len; i++)
        found = found || (aud->items[i].type == JSON_STRING && streq(aud->items[i].s, client_id));
    *several = aud && aud->type == JSON_ARRAY && aud->len > 1;
    return found;
}

// A time of a claim, which may have a fraction; false: it is none.
static bool time_of(const struct json *claims, const char *name, int64_t *out) {
    const struct json *v = json_get(claims, name);
    if (v && v->type == JSON_INT)
        *out = v->i;
    else if (v && v->type == JSON_DOUBLE && v->d >= 0 && v->d < 1e15)
        *out = (int64_t)v->d;
    else
        return false;
    return *out >= 0 && *out < INT64_MAX / 2000;
}

static bool subject_is_sound(const char *s) {
    size_t len = s ? strlen(s) : 0;
    return len && len <= OIDC_SUBJECT_MAX && !str_has_control_chars(s, len) && !strchr(s, ' ');
}

static int check_claims(const struct json *claims, const struct oidc_expected *x, struct error *e) {
    int64_t expires, issued, not_before;
    const char *azp = json_str(claims, "azp");
    bool several;
    if (!streq(json_str(claims, "iss"), x->issuer))
        return refuse(e, "it is of another issuer");
    if (!is_for(claims, x->client_id, &several))
        return refuse(e, "it is for another client");
    if ((several || json_get(claims, "azp")) && !streq(azp, x->client_id))
        return refuse(e, "it was made for another client (azp)");
    if (!time_of(claims, "exp", &expires) || expires + OIDC_SKEW_S <= x->now_s)
        return refuse(e, "it has expired; do the clocks of the provider and this machine agree?");
    if (!time_of(claims, "iat", &issued) || issued > x->now_s + OIDC_SKEW_S)
        return refuse(e, "it is from the future; do the clocks of the provider and this machine agree?");
    if (json_get(claims, "nbf") &&
        (!time_of(claims, "nbf", &not_before) || not_before > x->now_s + OIDC_SKEW_S))
        return refuse(e, "it does not hold yet; do the clocks of the provider and this machine agree?");
    if (!streq(json_str(claims, "nonce"), x->nonce))
        return refuse(e, "it belongs to another login (nonce)");
    if (!subject_is_sound(json_str(claims, "sub")))
        return refuse(e, "its subject (sub) is missing, too long, or has blanks or control characters");
    return 0;
}

static const struct json *read_part(const char *text, size_t len, struct arena *a) {
    cleanup_buf struct buf plain = {0};
    struct json *out;
    if (!decode(text, len, &plain) ||
        json_parse_few(buf_str(&plain), plain.len, OIDC_VALUES_MAX, a, &out, NULL) < 0)
        return NULL;
    return out->type == JSON_OBJECT ? out : NULL;
}

int oidc_id_token_read(const char *token, const struct json *keys, const struct oidc_expected *x,
                       struct arena *a, const struct json **claims, struct error *e) {
    const char *dot = strchr(token, '.'), *second = dot ? strchr(dot + 1, '.') : NULL;
    cleanup_buf struct buf signature = {0};
    if (!second || strchr(second + 1, '.') || !decode(second + 1, strlen(second + 1), &signature))
        return refuse(e, "it is malformed");
    const struct json *header = read_part(token, (size_t)(dot - token), a);
    if (!header)
        return refuse(e, "it is malformed");
    int r = check_signature(header, keys, token, (size_t)(second - token), &signature, e);
    if (r < 0)
        return r;
    const struct json *body = read_part(dot + 1, (size_t)(second - dot - 1), a);
    if (!body)
        return refuse(e, "it is malformed");
    if ((r = check_claims(body, x, e)) == 0)
        *claims = body;
    return r;
}
