// The certificate authority: making and loading it, and what it signs.
#include "net/pki.h"

#include <assert.h>
#include <errno.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "pki_internal.h"

#define cleanup_x509 __attribute__((__cleanup__(free_x509)))
#define cleanup_key __attribute__((__cleanup__(free_key)))
#define cleanup_bio __attribute__((__cleanup__(free_bio)))
#define cleanup_req __attribute__((__cleanup__(free_req)))

static void wipe(struct buf *b) {
    if (b->data)
        OPENSSL_cleanse(b->data, b->cap);
    buf_done(b);
}
#define cleanup_secret __attribute__((__cleanup__(wipe)))

static int digest_hex(const X509 *cert, char out[static PKI_SHA256_HEX + 1]) {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    if (!X509_digest(cert, EVP_sha256(), digest, &len) || len != PKI_SHA256_HEX / 2)
        return -EINVAL;
    for (unsigned i = 0; i < len; i++) {
        out[2 * i] = "0123456789abcdef"[digest[i] >> 4];
        out[2 * i + 1] = "0123456789abcdef"[digest[i] & 15];
    }
    out[PKI_SHA256_HEX] = 0;
    return 0;
}

static void bio_to_buf(BIO *bio, struct buf *out) {
    char *data = NULL;
    long len = BIO_get_mem_data(bio, &data);
    buf_add(out, data, (size_t)len);
}

static int cert_to_pem(X509 *cert, struct buf *out) {
    cleanup_bio BIO *bio = BIO_new(BIO_s_mem());
    if (!bio || !PEM_write_bio_X509(bio, cert))
        return -ENOMEM;
    bio_to_buf(bio, out);
    return 0;
}

static X509 *cert_from_pem(const char *pem, size_t len) {
    cleanup_bio BIO *bio = BIO_new_mem_buf(pem, (int)len);
    return bio ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL;
}

// A PEM password prompt would hang a daemon: there is never a password.
static int no_password(char *p, int size, int writing, void *arg) {
    return -1;
}

static int key_parse(const struct buf *pem, EVP_PKEY **out, struct error *e) {
    cleanup_bio BIO *bio = BIO_new_mem_buf(pem->data, (int)pem->len);
    *out = bio ? PEM_read_bio_PrivateKey(bio, NULL, no_password, NULL) : NULL;
    return *out ? 0 : pki_error(e, EINVAL, "not a private key");
}

static int key_load(const char *file, EVP_PKEY **out, struct error *e) {
    cleanup_secret struct buf pem = {0};
    int r = pki_read_file(file, &pem, e);
    if (r == 0 && (r = key_parse(&pem, out, e)) < 0)
        error_prefix(e, "%s", file);
    return r;
}

static int cert_parse(const struct buf *pem, X509 **out, struct error *e) {
    *out = cert_from_pem(pem->data, pem->len);
    return *out ? 0 : pki_error(e, EINVAL, "not a certificate");
}

static int cert_load(const char *file, X509 **out, struct error *e) {
    cleanup_buf struct buf pem = {0};
    int r = pki_read_file(file, &pem, e);
    if (r == 0 && (r = cert_parse(&pem, out, e)) < 0)
        error_prefix(e, "%s", file);
    return r;
}

static int key_to_pem(EVP_PKEY *key, struct buf *out) {
    cleanup_bio BIO *bio = BIO_new(BIO_s_secmem());
    if (!bio || !PEM_write_bio_PKCS8PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL))
        return -ENOMEM;
    bio_to_buf(bio, out);
    return 0;
}

static int key_write(const char *file, EVP_PKEY *key, struct error *e) {
    cleanup_secret struct buf pem = {0};
    if (key_to_pem(key, &pem) < 0)
        return pki_error(e, ENOMEM, "cannot write a key");
    return pki_write_file(file, pem.data, pem.len, 0600, e);
}

void pki_pair_done(struct pki_pair *p) {
    buf_done(&p->cert);
    wipe(&p->key);
    *p = (struct pki_pair){0};
}
#define cleanup_pair __attribute__((__cleanup__(pki_pair_done)))

int pki_pair_read(const char *cert_file, const char *key_file, struct pki_pair *out, struct error *e) {
    cleanup_pair struct pki_pair p = {0};
    int r = pki_read_file(cert_file, &p.cert, e);
    if (r == 0)
        r = pki_read_file(key_file, &p.key, e);
    if (r < 0)
        return r;
    *out = p;
    p = (struct pki_pair){0};
    return 0;
}

int pki_key_create(const char *key_file, struct error *e) {
    if (access(key_file, F_OK) == 0)
        return error_set(e, EEXIST, "%s exists already", key_file);
    cleanup_key EVP_PKEY *key = EVP_EC_gen("P-256");
    return key ? key_write(key_file, key, e) : pki_error(e, ENOMEM, "cannot make a key");
}

static int pair_of(X509 *cert, EVP_PKEY *key, const char *more_pem, struct pki_pair *out, struct error *e) {
    cleanup_pair struct pki_pair p = {0};
    if (cert_to_pem(cert, &p.cert) < 0 || key_to_pem(key, &p.key) < 0)
        return pki_error(e, ENOMEM, "cannot write the certificate");
    buf_adds(&p.cert, more_pem);
    *out = p;
    p = (struct pki_pair){0};
    return 0;
}

// Key first, certificate last: whoever finds the certificate finds its key, also after a crash, and
// whoever does not makes both anew.
static int write_pair(const char *cert_file, const char *key_file, const struct pki_pair *p, struct error *e) {
    if (unlink(cert_file) < 0 && errno != ENOENT)
        return error_set(e, errno, "cannot replace %s: %s", cert_file, strerror(errno));
    int r = pki_write_file(key_file, p->key.data, p->key.len, 0600, e);
    return r < 0 ? r : pki_write_file(cert_file, p->cert.data, p->cert.len, 0644, e);
}

int pki_ca_make(const char *cn, int64_t now_s, struct pki_pair *out, struct error *e) {
    cleanup_key EVP_PKEY *key = EVP_EC_gen("P-256");
    cleanup_x509 X509 *cert = NULL;
    if (!key)
        return pki_error(e, ENOMEM, "cannot make a key");
    struct pki_profile profile = {.cn = cn, .is_ca = true, .now_s = now_s, .days = PKI_CA_DAYS};
    int r = pki_issue(&profile, key, NULL, key, &cert, e);
    return r < 0 ? r : pair_of(cert, key, "", out, e);
}

int pki_ca_create(const char *cert_file, const char *key_file, const char *cn, int64_t now_s,
                  struct error *e) {
    cleanup_pair struct pki_pair p = {0};
    if (access(cert_file, F_OK) == 0)
        return error_set(e, EEXIST, "%s exists already", cert_file);
    int r = pki_ca_make(cn, now_s, &p, e);
    return r < 0 ? r : write_pair(cert_file, key_file, &p, e);
}

int pki_ca_parse(const struct pki_pair *p, struct pki_ca **out, struct error *e) {
    cleanup_key EVP_PKEY *key = NULL;
    cleanup_x509 X509 *cert = NULL;
    cleanup_buf struct buf pem = {0};
    int r = cert_parse(&p->cert, &cert, e);
    if (r == 0)
        r = key_parse(&p->key, &key, e);
    if (r < 0)
        return r;
    if (!X509_check_private_key(cert, key) || X509_check_ca(cert) != 1) {
        ERR_clear_error();
        return error_set(e, EINVAL, "not a CA and its key");
    }
    struct pki_ca *ca = xcalloc(1, sizeof *ca);
    if (cert_to_pem(cert, &pem) < 0 || digest_hex(cert, ca->sha256) < 0) {
        free(ca);
        return pki_error(e, ENOMEM, "cannot read the CA");
    }
    ca->pem = buf_take(&pem);
    ca->cert = cert;
    ca->key = key;
    cert = NULL;
    key = NULL;
    *out = ca;
    return 0;
}

int pki_ca_load(const char *cert_file, const char *key_file, struct pki_ca **out, struct error *e) {
    cleanup_pair struct pki_pair p = {0};
    int r = pki_pair_read(cert_file, key_file, &p, e);
    if (r < 0)
        return r;
    if ((r = pki_ca_parse(&p, out, e)) < 0)
        error_prefix(e, "%s, %s", cert_file, key_file);
    return r;
}

struct pki_ca *pki_ca_free(struct pki_ca *ca) {
    if (!ca)
        return NULL;
    X509_free(ca->cert);
    EVP_PKEY_free(ca->key);
    free(ca->pem);
    free(ca);
    return NULL;
}

const char *pki_ca_sha256(const struct pki_ca *ca) {
    return ca->sha256;
}

const char *pki_ca_pem(const struct pki_ca *ca) {
    return ca->pem;
}

int pki_server_make(struct pki_ca *ca, const char *const *names, size_t name_count, int64_t now_s,
                    struct pki_pair *out, struct error *e) {
    cleanup_key EVP_PKEY *key = EVP_EC_gen("P-256");
    cleanup_x509 X509 *cert = NULL;
    if (!key)
        return pki_error(e, ENOMEM, "cannot make a key");
    struct pki_profile profile = {.cn = "acequia-controller",
                                  .is_server = true,
                                  .names = names,
                                  .name_count = name_count,
                                  .now_s = now_s,
                                  .days = PKI_SERVER_DAYS};
    int r = pki_issue(&profile, key, ca->cert, ca->key, &cert, e);
    return r < 0 ? r : pair_of(cert, key, ca->pem, out, e);
}

int pki_server_create(struct pki_ca *ca, const char *cert_file, const char *key_file,
                      const char *const *names, size_t name_count, int64_t now_s,
                      struct error *e) {
    cleanup_pair struct pki_pair p = {0};
    int r = pki_server_make(ca, names, name_count, now_s, &p, e);
    return r < 0 ? r : write_pair(cert_file, key_file, &p, e);
}

int pki_csr_create(const char *key_file, const char *cn, struct buf *pem, struct error *e) {
    cleanup_key EVP_PKEY *key = NULL;
    int r = key_load(key_file, &key, e);
    if (r < 0)
        return r;
    if (!pki_cn_ok(cn))
        return error_set(e, EINVAL,
                         "a certificate cannot be made for the name \"%.80s\"; use letters, digits and \"._:@-\", at "
                         "most %d of them",
                         cn, PKI_CN_MAX);
    cleanup_req X509_REQ *req = X509_REQ_new();
    cleanup_bio BIO *bio = BIO_new(BIO_s_mem());
    if (!req || !bio || !X509_REQ_set_version(req, X509_REQ_VERSION_1) ||
        !X509_NAME_add_entry_by_txt(X509_REQ_get_subject_name(req), "CN", MBSTRING_ASC,
                                    (const unsigned char *)cn, -1, -1, 0) ||
        !X509_REQ_set_pubkey(req, key) || !X509_REQ_sign(req, key, EVP_sha256()) ||
        !PEM_write_bio_X509_REQ(bio, req))
        return pki_error(e, EINVAL, "cannot make the certificate request");
    bio_to_buf(bio, pem);
    return 0;
}

static bool key_is_p256(const EVP_PKEY *key) {
    char group[32];
    size_t len = 0;
    return EVP_PKEY_get_base_id(key) == EVP_PKEY_EC &&
           EVP_PKEY_get_group_name(key, group, sizeof group, &len) == 1 &&
           strcmp(group, SN_X9_62_prime256v1) == 0;
}

int pki_sign_client(struct pki_ca *ca, const char *csr_pem, size_t csr_len, const char *cn,
                    int64_t now_s, struct buf *cert_pem, char sha256[static PKI_SHA256_HEX + 1],
                    struct error *e) {
    if (csr_len > PKI_PEM_MAX)
        return error_set(e, EFBIG, "the certificate request is larger than %d bytes", PKI_PEM_MAX);
    cleanup_bio BIO *bio = BIO_new_mem_buf(csr_pem, (int)csr_len);
    cleanup_req X509_REQ *req = bio ? PEM_read_bio_X509_REQ(bio, NULL, NULL, NULL) : NULL;
    if (!req)
        return pki_error(e, EINVAL, "not a certificate request");
    EVP_PKEY *key = X509_REQ_get0_pubkey(req);
    if (!key || !key_is_p256(key))
        return error_set(e, EINVAL, "the certificate request's key is not on P-256");
    if (X509_REQ_verify(req, key) != 1)
        return pki_error(e, EINVAL, "the certificate request is not signed with its own key");
    cleanup_x509 X509 *cert = NULL;
    struct pki_profile profile = {.cn = cn, .now_s = now_s, .days = PKI_CLIENT_DAYS};
    int r = pki_issue(&profile, key, ca->cert, ca->key, &cert, e);
    if (r < 0)
        return r;
    if (digest_hex(cert, sha256) < 0 || cert_to_pem(cert, cert_pem) < 0)
        return pki_error(e, ENOMEM, "cannot write the certificate");
    return 0;
}

int pki_fingerprint(const char *pem, size_t len, char out[static PKI_SHA256_HEX + 1],
                    struct error *e) {
    if (len > PKI_PEM_MAX)
        return error_set(e, EFBIG, "the certificate is larger than %d bytes", PKI_PEM_MAX);
    cleanup_x509 X509 *cert = cert_from_pem(pem, len);
    if (!cert || digest_hex(cert, out) < 0)
        return pki_error(e, EINVAL, "not a certificate");
    return 0;
}

int pki_fingerprint_file(const char *cert_file, char out[static PKI_SHA256_HEX + 1],
                         struct error *e) {
    cleanup_x509 X509 *cert = NULL;
    int r = cert_load(cert_file, &cert, e);
    if (r < 0)
        return r;
    return digest_hex(cert, out) < 0 ? pki_error(e, EINVAL, "cannot hash the certificate") : 0;
}

int pki_expiry_file(const char *cert_file, int64_t *out, struct error *e) {
    cleanup_x509 X509 *cert = NULL;
    int r = cert_load(cert_file, &cert, e);
    if (r < 0)
        return r;
    struct tm tm;
    if (!ASN1_TIME_to_tm(X509_get0_notAfter(cert), &tm))
        return pki_error(e, EINVAL, "the certificate's dates cannot be read");
    *out = (int64_t)timegm(&tm);
    return 0;
}
