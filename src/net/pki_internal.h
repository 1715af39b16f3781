// Shared by the files of pki only.
#pragma once
#include <openssl/evp.h>
#include <openssl/x509.h>

#include "net/pki.h"

struct pki_ca {
    X509 *cert;
    EVP_PKEY *key;
    char sha256[PKI_SHA256_HEX + 1];
    char *pem;
};

int pki_read_file(const char *path, struct buf *out, struct error *e);
// What OpenSSL says was wrong, after `what`.
int pki_error(struct error *e, int code, const char *what);
// Makes and signs a certificate; issuer NULL: self-signed CA. names: a server's, else NULL.
struct pki_profile {
    const char *cn;
    bool is_ca, is_server;
    const char *const *names;
    size_t name_count;
    int64_t now_s;
    int days;
};
int pki_issue(const struct pki_profile *profile, EVP_PKEY *subject_key, X509 *issuer,
              EVP_PKEY *issuer_key, X509 **out, struct error *e);
bool pki_cn_ok(const char *cn);

static inline void free_x509(X509 **p) {
    X509_free(*p);
}
static inline void free_key(EVP_PKEY **p) {
    EVP_PKEY_free(*p);
}
static inline void free_bio(BIO **p) {
    BIO_free_all(*p);
}
static inline void free_req(X509_REQ **p) {
    X509_REQ_free(*p);
}
