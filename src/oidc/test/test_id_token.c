// ID tokens: those of a provider are taken, every other one is refused. Keys and signatures are made here.
#include <errno.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rsa.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "../oidc.h"
#include "base/text.h"

enum { NOW_S = 1800000000 };
#define GOOD                                                                                                 \
    "{\"iss\":\"https://"                                                                                    \
    "id.example\",\"aud\":\"acequia\",\"sub\":\"77\",\"nonce\":\"n1\",\"iat\":1799999990,"                   \
    "\"exp\":1800000300}"

static const struct oidc_expected expected = {"https://id.example", "acequia", "n1", NOW_S};

static void encode(const void *data, size_t len, struct buf *out) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    const unsigned char *p = data;
    uint32_t bits = 0, count = 0;
    for (size_t i = 0; i < len; i++) {
        bits = bits << 8 | p[i];
        for (count += 8; count >= 6; count -= 6)
            buf_addc(out, digits[bits >> (count - 6) & 63]);
    }
    if (count)
        buf_addc(out, digits[bits << (6 - count) & 63]);
}

struct signer {
    EVP_PKEY *rsa, *ec, *other;
    struct arena arena;
    struct json *keys;
};

static void add_number(EVP_PKEY *key, const char *param, size_t bytes, const char *name, struct buf *out) {
    BIGNUM *n = NULL;
    unsigned char raw[512];
    assert_int_equal(EVP_PKEY_get_bn_param(key, param, &n), 1);
    size_t len = bytes ? bytes : (size_t)BN_num_bytes(n);
    assert_int_equal(BN_bn2binpad(n, raw, (int)len), (int)len);
    buf_addf(out, ",\"%s\":\"", name);
    encode(raw, len, out);
    buf_addc(out, '"');
    BN_free(n);
}

static int open_signer(void **state) {
    static struct signer s;
    cleanup_buf struct buf set = {0};
    s.rsa = EVP_RSA_gen(2048);
    s.other = EVP_RSA_gen(2048);
    s.ec = EVP_EC_gen("P-256");
    buf_adds(&set,
             "{\"keys\":[{\"kty\":\"oct\",\"k\":\"AAAA\"},{\"kty\":\"RSA\",\"kid\":\"r\",\"use\":\"sig\"");
    add_number(s.rsa, OSSL_PKEY_PARAM_RSA_N, 0, "n", &set);
    add_number(s.rsa, OSSL_PKEY_PARAM_RSA_E, 0, "e", &set);
    buf_adds(&set, "},{\"kty\":\"EC\",\"crv\":\"P-256\",\"kid\":\"e\",\"alg\":\"ES256\"");
    add_number(s.ec, OSSL_PKEY_PARAM_EC_PUB_X, 32, "x", &set);
    add_number(s.ec, OSSL_PKEY_PARAM_EC_PUB_Y, 32, "y", &set);
    buf_adds(&set, "}]}");
    assert_int_equal(json_parse(set.data, set.len, &s.arena, &s.keys, NULL), 0);
    *state = &s;
    return 0;
}

static int close_signer(void **state) {
    struct signer *s = *state;
    EVP_PKEY_free(s->rsa);
    EVP_PKEY_free(s->other);
    EVP_PKEY_free(s->ec);
    arena_done(&s->arena);
    return 0;
}

static void sign(EVP_PKEY *key, const struct buf *text, struct buf *out) {
    unsigned char sig[512];
    size_t len = sizeof sig;
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    assert_int_equal(EVP_DigestSignInit(ctx, NULL, EVP_sha256(), NULL, key), 1);
    assert_int_equal(EVP_DigestSign(ctx, sig, &len, (unsigned char *)text->data, text->len), 1);
    EVP_MD_CTX_free(ctx);
    if (EVP_PKEY_get_base_id(key) == EVP_PKEY_EC) {
        const unsigned char *p = sig;
        ECDSA_SIG *pair = d2i_ECDSA_SIG(NULL, &p, (long)len);
        BN_bn2binpad(ECDSA_SIG_get0_r(pair), sig, 32);
        BN_bn2binpad(ECDSA_SIG_get0_s(pair), sig + 32, 32);
        ECDSA_SIG_free(pair);
        len = 64;
    }
    encode(sig, len, out);
}

static void make(EVP_PKEY *key, const char *header, const char *claims, struct buf *out) {
    cleanup_buf struct buf sig = {0};
    encode(header, strlen(header), out);
    buf_addc(out, '.');
    encode(claims, strlen(claims), out);
    if (key)
        sign(key, out, &sig);
    buf_addf(out, ".%s", buf_str(&sig));
}

static int read_token(struct signer *s, const char *token, struct error *e) {
    cleanup_arena struct arena a = {0};
    const struct json *claims = NULL;
    int r = oidc_id_token_read(token, s->keys, &expected, &a, &claims, e);
    assert_true(r < 0 || streq(json_str(claims, "sub"), "77"));
    return r;
}

static void expect(struct signer *s, EVP_PKEY *key, const char *header, const char *claims,
                   const char *problem) {
    cleanup_buf struct buf token = {0};
    struct error e = {0};
    make(key, header, claims, &token);
    int r = read_token(s, token.data, &e);
    if (problem && (r != -EACCES || !strstr(e.text, problem)))
        fail_msg("%s %s: %d %s, not: %s", header, claims, r, e.text, problem);
    if (!problem && r != 0)
        fail_msg("%s %s: %s", header, claims, e.text);
}

#define RS "{\"alg\":\"RS256\",\"kid\":\"r\"}"
#define ES "{\"alg\":\"ES256\",\"kid\":\"e\"}"

static void signatures(void **state) {
    struct signer *s = *state;
    expect(s, s->rsa, RS, GOOD, NULL);
    expect(s, s->ec, ES, GOOD, NULL);
    expect(s, s->rsa, "{\"alg\":\"RS256\"}", GOOD, NULL);  // a provider with one key may leave its name out
    expect(s, s->other, RS, GOOD, "signature is wrong");
    expect(s, s->rsa, "{\"alg\":\"RS256\",\"kid\":\"gone\"}", GOOD, "no key");
    expect(s, s->rsa, "{\"alg\":\"RS256\",\"kid\":\"e\"}", GOOD, "no key");
    expect(s, s->rsa, ES, GOOD, "malformed");
    expect(s, s->rsa, "{\"alg\":\"RS256\",\"kid\":\"r\",\"crit\":[\"x\"]}", GOOD, "extensions");
    const char *algorithms[] = {"none", "None", "HS256", "RS512", "PS256", "rs256", ""};
    for (size_t i = 0; i < sizeof algorithms / sizeof *algorithms; i++) {
        char header[64];
        snprintf(header, sizeof header, "{\"alg\":\"%s\",\"kid\":\"r\"}", algorithms[i]);
        expect(s, NULL, header, GOOD, "algorithm");
        expect(s, s->rsa, header, GOOD, "algorithm");
    }
}

static void changed_bytes(void **state) {
    struct signer *s = *state;
    cleanup_buf struct buf token = {0};
    make(s->rsa, RS, GOOD, &token);
    for (size_t i = 0; i < token.len; i += 7) {
        struct error e = {0};
        char before = token.data[i];
        token.data[i] = before == 'A' ? 'B' : 'A';
        assert_int_equal(read_token(s, token.data, &e), -EACCES);
        token.data[i] = before;
    }
    const char *shapes[] = {"",        ".",     "..",          "...",   "a.b",
                            "a.b.c.d", "=.=.=", "e30.e30.e30", "e30..", "\xff.\xff.\xff"};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct error e = {0};
        assert_int_equal(read_token(s, shapes[i], &e), -EACCES);
    }
}

static void claims(void **state) {
    struct signer *s = *state;
#define BASE "\"iss\":\"https://id.example\",\"sub\":\"77\",\"nonce\":\"n1\",\"iat\":1799999990"
    static const struct {
        const char *claims, *problem;
    } cases[] = {
        {"{" BASE ",\"aud\":[\"acequia\"],\"exp\":1800000300}", NULL},
        {"{" BASE ",\"aud\":[\"acequia\",\"b\"],\"azp\":\"acequia\",\"exp\":1800000300}", NULL},
        {"{" BASE ",\"aud\":[\"acequia\",\"b\"],\"exp\":1800000300}", "azp"},
        {"{" BASE ",\"aud\":\"acequia\",\"azp\":\"b\",\"exp\":1800000300}", "azp"},
        {"{" BASE ",\"aud\":\"b\",\"exp\":1800000300}", "another client"},
        {"{" BASE ",\"aud\":[],\"exp\":1800000300}", "another client"},
        {"{" BASE ",\"exp\":1800000300}", "another client"},
        {"{" BASE ",\"aud\":\"acequia\",\"exp\":1799999941}", NULL},  // within the skew
        {"{" BASE ",\"aud\":\"acequia\",\"exp\":1799999940}", "expired"},
        {"{" BASE ",\"aud\":\"acequia\"}", "expired"},
        {"{" BASE ",\"aud\":\"acequia\",\"exp\":\"1800000300\"}", "expired"},
        {"{" BASE ",\"aud\":\"acequia\",\"exp\":1e300}", "expired"},
        {"{" BASE ",\"aud\":\"acequia\",\"exp\":-5}", "expired"},
        {"{" BASE ",\"aud\":\"acequia\",\"exp\":1800000300.5,\"nbf\":1800000060}", NULL},
        {"{" BASE ",\"aud\":\"acequia\",\"exp\":1800000300,\"nbf\":1800000061}", "not hold yet"},
        {"{\"iss\":\"https://"
         "id.example\",\"aud\":\"acequia\",\"sub\":\"77\",\"nonce\":\"n1\",\"exp\":1800000300,"
         "\"iat\":1800000061}",
         "future"},
        {"{\"iss\":\"https://id.example/"
         "\",\"aud\":\"acequia\",\"sub\":\"77\",\"nonce\":\"n1\",\"exp\":1800000300,"
         "\"iat\":1}",
         "another issuer"},
        {"{\"iss\":\"https://"
         "id.example\",\"aud\":\"acequia\",\"sub\":\"77\",\"nonce\":\"n2\",\"exp\":1800000300,"
         "\"iat\":1}",
         "nonce"},
        {"{\"iss\":\"https://id.example\",\"aud\":\"acequia\",\"sub\":\"77\",\"exp\":1800000300,\"iat\":1}",
         "nonce"},
        {"{\"iss\":\"https://id.example\",\"aud\":\"acequia\",\"nonce\":\"n1\",\"exp\":1800000300,\"iat\":1}",
         "sub"},
        {"{\"iss\":\"https://id.example\",\"aud\":\"acequia\",\"sub\":\"7 "
         "7\",\"nonce\":\"n1\",\"exp\":1800000300,"
         "\"iat\":1}",
         "sub"},
        {"{\"iss\":\"https://id.example\",\"aud\":\"acequia\",\"sub\":77,\"nonce\":\"n1\",\"exp\":1800000300,"
         "\"iat\":1}",
         "sub"},
        {"[]", "malformed"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect(s, s->rsa, RS, cases[i].claims, cases[i].problem);
}

// Keys that are too short, or no keys at all, sign nothing.
static void weak_keys(void **state) {
    struct signer *s = *state;
    struct signer weak = *s;
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf set = {0};
    EVP_PKEY *key = EVP_RSA_gen(1024);
    buf_adds(&set, "{\"keys\":[{\"kty\":\"RSA\",\"kid\":\"r\"");
    add_number(key, OSSL_PKEY_PARAM_RSA_N, 0, "n", &set);
    add_number(key, OSSL_PKEY_PARAM_RSA_E, 0, "e", &set);
    buf_adds(&set, "}]}");
    assert_int_equal(json_parse(set.data, set.len, &a, &weak.keys, NULL), 0);
    expect(&weak, key, RS, GOOD, "signature is wrong");
    const char *sets[] = {"{}", "{\"keys\":{}}", "{\"keys\":[1,\"x\",null,[]]}",
                          "{\"keys\":[{\"kty\":\"RSA\",\"kid\":\"r\",\"n\":\"\",\"e\":\"AQAB\"}]}"};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        assert_int_equal(json_parse(sets[i], strlen(sets[i]), &a, &weak.keys, NULL), 0);
        expect(&weak, s->rsa, RS, GOOD, i == 3 ? "signature is wrong" : "no key");
    }
    EVP_PKEY_free(key);
}

// A key that the provider has for something else, or for another algorithm, signs no tokens.
static void keys_for_other_uses(void **state) {
    static const char *const marks[] = {"\"use\":\"enc\"", "\"alg\":\"RS512\"",
                                        "\"use\":\"sig\",\"alg\":\"RS256\""};
    struct signer *s = *state;
    struct signer other = *s;
    cleanup_arena struct arena a = {0};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        cleanup_buf struct buf set = {0};
        buf_addf(&set, "{\"keys\":[{\"kty\":\"RSA\",\"kid\":\"r\",%s", marks[i]);
        add_number(s->rsa, OSSL_PKEY_PARAM_RSA_N, 0, "n", &set);
        add_number(s->rsa, OSSL_PKEY_PARAM_RSA_E, 0, "e", &set);
        buf_adds(&set, "}]}");
        assert_int_equal(json_parse(set.data, set.len, &a, &other.keys, NULL), 0);
        expect(&other, s->rsa, RS, GOOD, i == 2 ? NULL : "no key");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signatures), cmocka_unit_test(changed_bytes),       cmocka_unit_test(claims),
        cmocka_unit_test(weak_keys),  cmocka_unit_test(keys_for_other_uses),
    };
    return cmocka_run_group_tests(tests, open_signer, close_signer);
}
