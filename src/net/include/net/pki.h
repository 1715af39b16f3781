// The cluster's own certificate authority: keys on P-256, one CA, one server certificate, client
// certificates signed for agents. Files are PEM and replaced atomically; those with keys have mode
// 0600. Time is an argument (seconds since 1970).
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/error.h"

enum {
    PKI_CA_DAYS = 20 * 365,
    PKI_SERVER_DAYS = 10 * 365,
    PKI_CLIENT_DAYS = 10 * 365,
    PKI_BACKDATE_S = 24 * 3600,  // certificates begin earlier: clocks of nodes differ
    PKI_SERIAL_BYTES = 16,       // random
    PKI_CN_MAX = 64,             // the limit X.509 sets
    PKI_NAMES_MAX = 64,          // names of one server certificate
    PKI_PEM_MAX = 64 * 1024,     // bytes of a request or certificate that is read
    PKI_SHA256_HEX = 64,
};

struct pki_ca;

// A certificate (and what clients need after it) with its key, as PEM.
struct pki_pair {
    struct buf cert, key;
};
void pki_pair_done(struct pki_pair *p);  // wipes the key
int pki_pair_read(const char *cert_file, const char *key_file, struct pki_pair *out, struct error *e);
// In memory, for a caller that keeps them elsewhere. The rules are those of the functions on files below.
int pki_ca_make(const char *cn, int64_t now_s, struct pki_pair *out, struct error *e);
int pki_ca_parse(const struct pki_pair *p, struct pki_ca **out, struct error *e);
int pki_server_make(struct pki_ca *ca, const char *const *names, size_t name_count, int64_t now_s,
                    struct pki_pair *out, struct error *e);

// Makes a key and a self-signed certificate. An existing certificate is not touched: -EEXIST; a key
// without one is what a crash left, and is replaced.
int pki_ca_create(const char *cert_file, const char *key_file, const char *cn, int64_t now_s,
                  struct error *e);
int pki_ca_load(const char *cert_file, const char *key_file, struct pki_ca **out, struct error *e);
struct pki_ca *pki_ca_free(struct pki_ca *ca);
const char *pki_ca_sha256(const struct pki_ca *ca);  // hexadecimal, lower case
const char *pki_ca_pem(const struct pki_ca *ca);     // its certificate

// Makes a new key and a certificate for a server that is reached under `names` (host names and
// addresses); cert_file ends with the CA's certificate, as clients that pin it need. Existing files
// are replaced; after a crash meanwhile the certificate is missing, never at odds with its key.
int pki_server_create(struct pki_ca *ca, const char *cert_file, const char *key_file,
                      const char *const *names, size_t name_count, int64_t now_s, struct error *e);

// The node's side: a key of its own, and a request that proves it holds it.
int pki_key_create(const char *key_file, struct error *e);  // -EEXIST when it is there
int pki_csr_create(const char *key_file, const char *cn, struct buf *pem, struct error *e);
// The controller's side: signs the request's key under `cn`, which the caller has decided; nothing
// else in the request is believed. cn: letters, digits and "._:@-", at most PKI_CN_MAX.
int pki_sign_client(struct pki_ca *ca, const char *csr_pem, size_t csr_len, const char *cn,
                    int64_t now_s, struct buf *cert_pem, char sha256[static PKI_SHA256_HEX + 1],
                    struct error *e);

int pki_fingerprint(const char *pem, size_t len, char out[static PKI_SHA256_HEX + 1],
                    struct error *e);  // of the first certificate
int pki_fingerprint_file(const char *cert_file, char out[static PKI_SHA256_HEX + 1],
                         struct error *e);
// Seconds since 1970 at which the first certificate of the file ends.
int pki_expiry_file(const char *cert_file, int64_t *out, struct error *e);

// Writes a file next to its final place, syncs, renames.
int pki_write_file(const char *path, const void *data, size_t len, mode_t mode, struct error *e);
