// TLS without I/O, on OpenSSL: a context (keys, whom to trust) and sessions that turn ciphertext
// into plaintext and back. TLS 1.2 and 1.3 with forward secrecy only; no renegotiation, no
// compression, no session resumption.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/error.h"
#include "net/pki.h"

enum { TLS_SHA256_HEX = 64 };

struct tls_context;
struct tls;

// A server shows cert_file (its chain in PEM, the CA's certificate last, so that clients can pin
// it) and asks clients for a certificate; one that is presented must be signed by ca_file for
// client use, else the handshake fails. Without one the session goes on, anonymous.
int tls_context_server(const char *cert_file, const char *key_file, const char *ca_file,
                       struct tls_context **out, struct error *e);
// The same from memory: the server's certificate with its chain and key, and the authority of its clients.
int tls_context_server_pem(const struct pki_pair *own, const char *ca_pem, struct tls_context **out, struct error *e);
// Clients that ask for a name one label below `domain` are shown another certificate, with its chain, instead.
int tls_context_server_below(struct tls_context *c, const char *domain, const char *cert_file,
                             const char *key_file, struct error *e);

// Whom a client trusts, and what it shows. Exactly one of ca_file, ca_sha256 and learned_sha256 must be given. The
// server's certificate must be meant for servers; its names are checked when verify_host is given.
struct tls_client_options {
    const char *ca_file;    // PEM
    const char *ca_sha256;  // hexadecimal SHA-256 of the CA's certificate (DER), any case
    char *
        learned_sha256;  // any CA is accepted, and its fingerprint left here: nothing secret may be said to it
    const char *cert_file, *key_file;  // may both be NULL
    const char *verify_host;           // name or address, or NULL
};
int tls_context_client(const struct tls_client_options *options, struct tls_context **out,
                       struct error *e);
struct tls_context *tls_context_free(struct tls_context *c);

struct tls *tls_new(struct tls_context *c);
struct tls *tls_free(struct tls *t);
// Ciphertext in. Then handshake or read, then tls_output.
void tls_feed(struct tls *t, const void *data, size_t len);
// 1 when established, 0 when more input is needed, negative (tls_problem says why) when refused.
int tls_handshake(struct tls *t);
bool tls_awaits_hello(const struct tls *t);  // of a server: the peer's first record is not complete
bool tls_established(const struct tls *t);
// Plaintext out: bytes; 0 when more input is needed; -EPIPE after the peer's orderly end; -EPROTO.
ssize_t tls_read(struct tls *t, void *p, size_t n);
uint32_t tls_key_updates(
    const struct tls *t);                // new keys of the peer since its last data; many end the session
bool tls_readable(const struct tls *t);  // tls_read may have something without more input
// All of it, the ciphertext appended to `out`: 0 or -EPROTO.
int tls_write(struct tls *t, const void *data, size_t len, struct buf *out);
void tls_end(struct tls *t);                                 // the orderly end, into the output
void tls_output(struct tls *t, struct buf *out);             // appends ciphertext to be sent
const char *tls_problem(const struct tls *t);                // why the handshake failed
// The peer's verified certificate; false when it showed none. cn may end up "".
bool tls_peer(const struct tls *t, char *cn, size_t cn_size,
              char sha256[static TLS_SHA256_HEX + 1]);
