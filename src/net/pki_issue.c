// Building certificates. Everything in them is decided here or by the caller; names go into the
// structures one by one and never through a configuration string, so that none can hide another.
#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <string.h>

#include "base/rand.h"
#include "pki_internal.h"

bool pki_cn_ok(const char *cn) {
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:@-";
    size_t len = strlen(cn);
    return len > 0 && len <= PKI_CN_MAX && strspn(cn, allowed) == len;
}

static bool dns_name_ok(const char *name) {
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_";
    size_t len = strlen(name);
    return len > 0 && len <= 253 && strspn(name, allowed) == len;
}

int pki_error(struct error *e, int code, const char *what) {
    const char *text = ERR_reason_error_string(ERR_peek_last_error());
    int r = error_set(e, code, "%s: %s", what, text ? text : "unknown reason");
    ERR_clear_error();
    return r;
}

static int set_serial(X509 *x, struct error *e) {
    unsigned char bytes[PKI_SERIAL_BYTES];
    int r = rand_secret(bytes, sizeof bytes);
    if (r < 0)
        return error_set(e, -r, "the kernel gives no random numbers: %s", strerror(-r));
    bytes[0] = (bytes[0] & 0x7f) | 0x40;  // positive, and always of full length
    BIGNUM *n = BN_bin2bn(bytes, sizeof bytes, NULL);
    assert(n);
    bool ok = BN_to_ASN1_INTEGER(n, X509_get_serialNumber(x)) != NULL;
    BN_free(n);
    return ok ? 0 : pki_error(e, ENOMEM, "cannot set the serial number");
}

static int add_extension(X509 *x, X509 *issuer, int nid, const char *value) {
    X509V3_CTX ctx;
    X509V3_set_ctx(&ctx, issuer, x, NULL, NULL, 0);
    X509_EXTENSION *ext = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
    if (!ext)
        return -EINVAL;
    int ok = X509_add_ext(x, ext, -1);
    X509_EXTENSION_free(ext);
    return ok ? 0 : -EINVAL;
}

static GENERAL_NAME *general_name(const char *name) {
    unsigned char address[sizeof(struct in6_addr)];
    size_t address_len = inet_pton(AF_INET, name, address) == 1    ? 4
                         : inet_pton(AF_INET6, name, address) == 1 ? 16
                                                                   : 0;
    const void *data = address_len ? (const void *)address : name;
    size_t len = address_len ? address_len : strlen(name);
    GENERAL_NAME *g = GENERAL_NAME_new();
    ASN1_STRING *s = address_len ? ASN1_OCTET_STRING_new() : ASN1_IA5STRING_new();
    assert(g && s);
    int ok = ASN1_STRING_set(s, data, (int)len);
    assert(ok);
    GENERAL_NAME_set0_value(g, address_len ? GEN_IPADD : GEN_DNS, s);
    return g;
}

static int add_names(X509 *x, const char *const *names, size_t count, struct error *e) {
    if (count == 0 || count > PKI_NAMES_MAX)
        return error_set(e, EINVAL, "a server certificate has 1 to %d names, not %zu",
                         PKI_NAMES_MAX, count);
    GENERAL_NAMES *list = GENERAL_NAMES_new();
    assert(list);
    for (size_t i = 0; i < count; i++) {
        unsigned char scratch[sizeof(struct in6_addr)];
        if (!dns_name_ok(names[i]) && inet_pton(AF_INET6, names[i], scratch) != 1) {
            GENERAL_NAMES_free(list);
            return error_set(e, EINVAL, "\"%s\" is neither a host name nor an address", names[i]);
        }
        sk_GENERAL_NAME_push(list, general_name(names[i]));
    }
    int ok = X509_add1_ext_i2d(x, NID_subject_alt_name, list, 0, X509V3_ADD_DEFAULT);
    GENERAL_NAMES_free(list);
    return ok == 1 ? 0 : pki_error(e, EINVAL, "cannot add the names");
}

static int add_extensions(const struct pki_profile *p, X509 *x, X509 *issuer, struct error *e) {
    const char *usage = p->is_ca ? "critical,keyCertSign,cRLSign" : "critical,digitalSignature";
    const char *basic = p->is_ca ? "critical,CA:TRUE,pathlen:0" : "critical,CA:FALSE";
    if (add_extension(x, issuer, NID_basic_constraints, basic) < 0 ||
        add_extension(x, issuer, NID_key_usage, usage) < 0 ||
        add_extension(x, issuer, NID_subject_key_identifier, "hash") < 0 ||
        add_extension(x, issuer, NID_authority_key_identifier, "keyid:always") < 0)
        return pki_error(e, EINVAL, "cannot build the certificate");
    if (p->is_ca)
        return 0;
    if (add_extension(x, issuer, NID_ext_key_usage, p->is_server ? "serverAuth" : "clientAuth") < 0)
        return pki_error(e, EINVAL, "cannot build the certificate");
    return p->is_server ? add_names(x, p->names, p->name_count, e) : 0;
}

int pki_issue(const struct pki_profile *p, EVP_PKEY *subject_key, X509 *issuer,
              EVP_PKEY *issuer_key, X509 **out, struct error *e) {
    if (!pki_cn_ok(p->cn))
        return error_set(e, EINVAL,
                         "a certificate cannot be made for the name \"%.80s\"; use letters, digits and \"._:@-\", at "
                         "most %d of them",
                         p->cn, PKI_CN_MAX);
    __attribute__((__cleanup__(free_x509))) X509 *x = X509_new();
    assert(x);
    int r = set_serial(x, e);
    if (r < 0)
        return r;
    // Valid from a little earlier: the clocks of a cluster differ.
    time_t begin = (time_t)(p->now_s - PKI_BACKDATE_S), now = (time_t)p->now_s;
    X509_NAME *name = X509_get_subject_name(x);
    if (!X509_set_version(x, X509_VERSION_3) ||
        !X509_time_adj_ex(X509_getm_notBefore(x), 0, 0, &begin) ||
        !X509_time_adj_ex(X509_getm_notAfter(x), p->days, 0, &now) ||
        !X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)p->cn, -1, -1,
                                    0) ||
        !X509_set_issuer_name(x, issuer ? X509_get_subject_name(issuer) : name) ||
        !X509_set_pubkey(x, subject_key))
        return pki_error(e, EINVAL, "cannot build the certificate");
    r = add_extensions(p, x, issuer ? issuer : x, e);
    if (r < 0)
        return r;
    if (!X509_sign(x, issuer_key, EVP_sha256()))
        return pki_error(e, EINVAL, "cannot sign the certificate");
    *out = x;
    x = NULL;
    return 0;
}
