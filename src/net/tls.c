// TLS sessions over memory buffers, so that the event loop and the blocking client share them.
// The pinned-CA check lives here: the pin names a certificate of the chain the server shows, and
// the chain is then verified with that one as the only trusted root.
#include "net/tls.h"

#include <assert.h>
#include <errno.h>
#include <openssl/pem.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"

struct tls_context {
    SSL_CTX *ctx;
    bool server;
    char pin[TLS_SHA256_HEX + 1];  // "" when a CA file is used
    char *verify_host;
    SSL_CTX *below;  // for names below `domain`; NULL: none
    char *below_domain;
    char *learned;  // where the fingerprint of whoever answers is left; NULL: it must be a known one
};

// New keys for what the peer sends cost us about 20 µs each, and OpenSSL takes as many as there are before it returns.
// Honest peers change keys after millions of records.
enum { KEY_UPDATES_MAX = 16 };  // without a byte of data in between

// A server's session is made when the first record of its peer is complete: until then a connection costs the bytes
// that came, however small the pieces are in which they come.
enum { RECORD_HEAD = 5, RECORD_MAX = 16 * 1024 };

struct tls {
    SSL_CTX *ctx;      // of a server whose session is not made yet
    struct buf hello;  // likewise: what the peer has sent
    SSL *ssl;
    BIO *in, *out;  // owned by ssl
    bool established, failed;
    uint32_t key_updates;  // since the last data
    char problem[200];
};

static const char *last_error(void) {
    unsigned long code = ERR_peek_last_error();
    const char *text = ERR_reason_error_string(code);
    return text ? text : "unknown TLS error";
}

static int openssl_error(struct error *e, int code, const char *what, const char *which) {
    int r = error_set(e, code, "%s %s: %s", what, which, last_error());
    ERR_clear_error();
    return r;
}

static void sha256_hex(const X509 *cert, char out[static TLS_SHA256_HEX + 1]) {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    out[0] = 0;
    if (!X509_digest(cert, EVP_sha256(), digest, &len))
        return;
    for (unsigned i = 0; i < len; i++) {
        out[2 * i] = "0123456789abcdef"[digest[i] >> 4];
        out[2 * i + 1] = "0123456789abcdef"[digest[i] & 15];
    }
    out[2 * len] = 0;
}

// Replaces the default verification when a pin is set.
static int verify_pinned(X509_STORE_CTX *store, void *arg) {
    const struct tls_context *c = arg;
    STACK_OF(X509) *shown = X509_STORE_CTX_get0_untrusted(store);
    X509 *root = NULL;
    for (int i = 0; i < sk_X509_num(shown) && !root; i++) {
        char hex[TLS_SHA256_HEX + 1];
        sha256_hex(sk_X509_value(shown, i), hex);
        if (c->learned ? i + 1 == sk_X509_num(shown) : strcasecmp(hex, c->pin) == 0)
            root = sk_X509_value(shown, i);
        if (root && c->learned)
            memcpy(c->learned, hex, sizeof hex);
    }
    if (!root) {
        X509_STORE_CTX_set_error(store, X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN);
        return 0;
    }
    STACK_OF(X509) *trusted = sk_X509_new_null();
    assert(trusted);
    sk_X509_push(trusted, root);
    X509_STORE_CTX_set0_trusted_stack(store, trusted);
    int ok = X509_verify_cert(store);
    X509_STORE_CTX_set0_trusted_stack(store, NULL);
    sk_X509_free(trusted);
    return ok;
}

static struct tls_context *context_new(bool server) {
    struct tls_context *c = xcalloc(1, sizeof *c);
    c->server = server;
    c->ctx = SSL_CTX_new(server ? TLS_server_method() : TLS_client_method());
    assert(c->ctx);
    SSL_CTX_set_min_proto_version(c->ctx, TLS1_2_VERSION);
    SSL_CTX_set_options(c->ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                    SSL_OP_NO_TICKET | SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_session_cache_mode(c->ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_num_tickets(c->ctx, 0);
    SSL_CTX_set_mode(c->ctx, SSL_MODE_RELEASE_BUFFERS);
    int ok = SSL_CTX_set_cipher_list(c->ctx, "ECDHE+AESGCM:ECDHE+CHACHA20");
    assert(ok);
    return c;
}

struct tls_context *tls_context_free(struct tls_context *c) {
    if (!c)
        return NULL;
    SSL_CTX_free(c->ctx);
    SSL_CTX_free(c->below);
    free(c->below_domain);
    free(c->verify_host);
    free(c);
    return NULL;
}

static void free_context(struct tls_context **c) {
    tls_context_free(*c);
}

static int load_identity(SSL_CTX *ctx, const char *cert_file, const char *key_file, struct error *e) {
    if (SSL_CTX_use_certificate_chain_file(ctx, cert_file) != 1)
        return openssl_error(e, EINVAL, "cannot use the certificate", cert_file);
    if (SSL_CTX_use_PrivateKey_file(ctx, key_file, SSL_FILETYPE_PEM) != 1)
        return openssl_error(e, EINVAL, "cannot use the key", key_file);
    if (SSL_CTX_check_private_key(ctx) != 1)
        return openssl_error(e, EINVAL, "the key does not belong to the certificate", cert_file);
    return 0;
}

int tls_context_server(const char *cert_file, const char *key_file, const char *ca_file,
                       struct tls_context **out, struct error *e) {
    __attribute__((__cleanup__(free_context))) struct tls_context *c = context_new(true);
    int r = load_identity(c->ctx, cert_file, key_file, e);
    if (r < 0)
        return r;
    STACK_OF(X509_NAME) *names = SSL_load_client_CA_file(ca_file);
    if (!names || SSL_CTX_load_verify_file(c->ctx, ca_file) != 1) {
        sk_X509_NAME_pop_free(names, X509_NAME_free);
        return openssl_error(e, EINVAL, "cannot use the CA certificate", ca_file);
    }
    SSL_CTX_set_client_CA_list(c->ctx, names);
    SSL_CTX_set_verify(c->ctx, SSL_VERIFY_PEER, NULL);
    *out = c;
    c = NULL;
    return 0;
}

// The first certificate of the PEM is the server's own, the others are its chain.
static int use_chain(struct tls_context *c, const struct buf *pem) {
    BIO *bio = BIO_new_mem_buf(pem->data, (int)pem->len);
    X509 *cert = bio ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL;
    bool ok = cert && SSL_CTX_use_certificate(c->ctx, cert) == 1;
    X509_free(cert);
    while (ok && (cert = PEM_read_bio_X509(bio, NULL, NULL, NULL)))
        if (SSL_CTX_add0_chain_cert(c->ctx, cert) != 1) {
            X509_free(cert);
            ok = false;
        }
    ERR_clear_error();  // the end of the PEM
    BIO_free(bio);
    return ok ? 0 : -EINVAL;
}

static int no_password(char *p, int size, int writing, void *arg) {
    return -1;
}

static int use_key(struct tls_context *c, const struct buf *pem) {
    BIO *bio = BIO_new_mem_buf(pem->data, (int)pem->len);
    EVP_PKEY *key = bio ? PEM_read_bio_PrivateKey(bio, NULL, no_password, NULL) : NULL;
    bool ok = key && SSL_CTX_use_PrivateKey(c->ctx, key) == 1 && SSL_CTX_check_private_key(c->ctx) == 1;
    EVP_PKEY_free(key);
    BIO_free(bio);
    return ok ? 0 : -EINVAL;
}

int tls_context_server_pem(const struct pki_pair *own, const char *ca_pem, struct tls_context **out, struct error *e) {
    __attribute__((__cleanup__(free_context))) struct tls_context *c = context_new(true);
    if (use_chain(c, &own->cert) < 0)
        return openssl_error(e, EINVAL, "cannot use the certificate", "the server's");
    if (use_key(c, &own->key) < 0)
        return openssl_error(e, EINVAL, "cannot use the key", "the server's");
    BIO *bio = BIO_new_mem_buf(ca_pem, -1);
    X509 *ca = bio ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL;
    bool ok = ca && X509_STORE_add_cert(SSL_CTX_get_cert_store(c->ctx), ca) == 1 &&
              SSL_CTX_add_client_CA(c->ctx, ca) == 1;
    X509_free(ca);
    BIO_free(bio);
    if (!ok)
        return openssl_error(e, EINVAL, "cannot use the CA certificate", "the cluster's");
    SSL_CTX_set_verify(c->ctx, SSL_VERIFY_PEER, NULL);
    *out = c;
    c = NULL;
    return 0;
}

static int choose_certificate(SSL *ssl, int *alert, void *arg) {
    struct tls_context *c = arg;
    const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name),
               *dot = name ? strchr(name, '.') : NULL;
    if (dot && dot > name && strcasecmp(dot + 1, c->below_domain) == 0)
        SSL_set_SSL_CTX(ssl, c->below);
    return SSL_TLSEXT_ERR_OK;
}

int tls_context_server_below(struct tls_context *c, const char *domain, const char *cert_file,
                             const char *key_file, struct error *e) {
    assert(c->server && !c->below);
    struct tls_context *other = context_new(true);
    int r = load_identity(other->ctx, cert_file, key_file, e);
    if (r == 0) {
        c->below = other->ctx;
        other->ctx = NULL;
        c->below_domain = xstrdup(domain);
        SSL_CTX_set_tlsext_servername_callback(c->ctx, choose_certificate);
        SSL_CTX_set_tlsext_servername_arg(c->ctx, c);
    }
    tls_context_free(other);
    return r;
}

int tls_context_client(const struct tls_client_options *o, struct tls_context **out,
                       struct error *e) {
    __attribute__((__cleanup__(free_context))) struct tls_context *c = context_new(false);
    if (!!o->ca_file + !!o->ca_sha256 + !!o->learned_sha256 != 1)
        return error_set(e, EINVAL, "give either the CA's certificate or its fingerprint");
    c->learned = o->learned_sha256;
    if (c->learned)
        SSL_CTX_set_cert_verify_callback(c->ctx, verify_pinned, c);
    if (o->ca_file && SSL_CTX_load_verify_file(c->ctx, o->ca_file) != 1)
        return openssl_error(e, EINVAL, "cannot use the CA certificate", o->ca_file);
    if (o->ca_sha256) {
        if (strlen(o->ca_sha256) != TLS_SHA256_HEX ||
            strspn(o->ca_sha256, "0123456789abcdefABCDEF") != TLS_SHA256_HEX)
            return error_set(e, EINVAL, "a CA fingerprint has %d hexadecimal digits",
                             TLS_SHA256_HEX);
        memcpy(c->pin, o->ca_sha256, TLS_SHA256_HEX);
        SSL_CTX_set_cert_verify_callback(c->ctx, verify_pinned, c);
    }
    if (o->cert_file) {
        int r = load_identity(c->ctx, o->cert_file, o->key_file, e);
        if (r < 0)
            return r;
    }
    if (o->verify_host)
        c->verify_host = xstrdup(o->verify_host);
    SSL_CTX_set_verify(c->ctx, SSL_VERIFY_PEER, NULL);
    *out = c;
    c = NULL;
    return 0;
}

static void set_verify_host(struct tls *t, char *host) {
    X509_VERIFY_PARAM *param = SSL_get0_param(t->ssl);
    if (X509_VERIFY_PARAM_set1_ip_asc(param, host))
        return;
    ERR_clear_error();
    int ok = SSL_set1_host(t->ssl, host) && SSL_set_tlsext_host_name(t->ssl, host);
    assert(ok);
}

static void on_message(int writes, int version, int type, const void *data, size_t len, SSL *ssl, void *arg) {
    struct tls *t = arg;
    if (!writes && type == SSL3_RT_HANDSHAKE && len && *(const unsigned char *)data == SSL3_MT_KEY_UPDATE)
        t->key_updates++;
}

// Once there are too many, OpenSSL gets no more input: tls_read ends the session.
static long on_input(BIO *b, int operation, const char *data, size_t len, int i, long l, int result,
                     size_t *done) {
    const struct tls *t = (const void *)BIO_get_callback_arg(b);
    return operation == BIO_CB_READ && t->key_updates > KEY_UPDATES_MAX ? -1 : result;
}

static void make_session(struct tls *t, SSL_CTX *ctx) {
    t->ssl = SSL_new(ctx);
    t->in = BIO_new(BIO_s_mem());
    t->out = BIO_new(BIO_s_mem());
    assert(t->ssl && t->in && t->out);
    SSL_set_bio(t->ssl, t->in, t->out);
    SSL_set_msg_callback(t->ssl, on_message);
    SSL_set_msg_callback_arg(t->ssl, t);
    BIO_set_callback_ex(t->in, on_input);
    BIO_set_callback_arg(t->in, (char *)t);
}

struct tls *tls_new(struct tls_context *c) {
    struct tls *t = xcalloc(1, sizeof *t);
    if (c->server) {
        t->ctx = c->ctx;
        SSL_CTX_up_ref(t->ctx);
        return t;
    }
    make_session(t, c->ctx);
    SSL_set_connect_state(t->ssl);
    if (c->verify_host)
        set_verify_host(t, c->verify_host);
    return t;
}

struct tls *tls_free(struct tls *t) {
    if (!t)
        return NULL;
    SSL_free(t->ssl);
    SSL_CTX_free(t->ctx);
    buf_done(&t->hello);
    free(t);
    return NULL;
}

// Whether the first record is complete, or can never be a good one: OpenSSL then says why.
static bool hello_complete(const struct buf *hello) {
    const unsigned char *p = (const unsigned char *)hello->data;
    if (hello->len && p[0] != SSL3_RT_HANDSHAKE)
        return true;
    if (hello->len < RECORD_HEAD)
        return false;
    size_t len = (size_t)p[3] << 8 | p[4];
    return len > RECORD_MAX || hello->len >= RECORD_HEAD + len;
}

bool tls_awaits_hello(const struct tls *t) {
    return !t->ssl && !hello_complete(&t->hello);
}

static void begin_session(struct tls *t) {
    cleanup_buf struct buf hello = t->hello;
    t->hello = (struct buf){0};
    make_session(t, t->ctx);
    SSL_set_accept_state(t->ssl);
    SSL_CTX_free(t->ctx);
    t->ctx = NULL;
    tls_feed(t, hello.data, hello.len);
}

void tls_feed(struct tls *t, const void *data, size_t len) {
    if (!t->ssl) {
        buf_add(&t->hello, data, len);
        return;
    }
    while (len) {
        int n = BIO_write(t->in, data, len > INT32_MAX ? INT32_MAX : (int)len);
        assert(n > 0);
        data = (const char *)data + n;
        len -= (size_t)n;
    }
}

static void note_problem(struct tls *t) {
    long verify = SSL_get_verify_result(t->ssl);
    const char *text = verify == X509_V_OK ? last_error() : X509_verify_cert_error_string(verify);
    str_printable(text, t->problem, sizeof t->problem);
    t->failed = true;
    ERR_clear_error();
}

int tls_handshake(struct tls *t) {
    if (t->established)
        return 1;
    if (t->failed)
        return -EPROTO;
    if (tls_awaits_hello(t))
        return 0;
    if (!t->ssl)
        begin_session(t);
    ERR_clear_error();
    int r = SSL_do_handshake(t->ssl);
    if (r == 1) {
        t->established = true;
        return 1;
    }
    if (SSL_get_error(t->ssl, r) == SSL_ERROR_WANT_READ)
        return 0;
    note_problem(t);
    return -EPROTO;
}

uint32_t tls_key_updates(const struct tls *t) {
    return t->key_updates;
}

bool tls_established(const struct tls *t) {
    return t->established;
}

const char *tls_problem(const struct tls *t) {
    return t->problem;
}

ssize_t tls_read(struct tls *t, void *p, size_t n) {
    if (t->failed)
        return -EPROTO;
    ERR_clear_error();
    size_t got = 0;
    int r = SSL_read_ex(t->ssl, p, n, &got);
    if (t->key_updates > KEY_UPDATES_MAX) {
        snprintf(t->problem, sizeof t->problem, "the peer changes its keys over and over");
        t->failed = true;
        ERR_clear_error();
        return -EPROTO;
    }
    if (r == 1) {
        t->key_updates = 0;
        return (ssize_t)got;
    }
    switch (SSL_get_error(t->ssl, r)) {
    case SSL_ERROR_WANT_READ:
        return 0;
    case SSL_ERROR_ZERO_RETURN:
        return -EPIPE;
    default:
        note_problem(t);
        return -EPROTO;
    }
}

bool tls_readable(const struct tls *t) {
    return t->ssl && (SSL_has_pending(t->ssl) || BIO_ctrl_pending(t->in) > 0);
}

// In pieces of one record, so that OpenSSL's own buffer stays small.
int tls_write(struct tls *t, const void *data, size_t len, struct buf *out) {
    enum { RECORD = 16 * 1024 };
    assert(t->established);
    const char *p = data;
    while (len) {
        size_t n = len < RECORD ? len : RECORD, put = 0;
        ERR_clear_error();
        if (t->failed || SSL_write_ex(t->ssl, p, n, &put) != 1) {
            note_problem(t);
            return -EPROTO;
        }
        assert(put == n);
        tls_output(t, out);
        p += n;
        len -= n;
    }
    return 0;
}

void tls_end(struct tls *t) {
    if (t->established && !t->failed)
        SSL_shutdown(t->ssl);
    ERR_clear_error();
}

void tls_output(struct tls *t, struct buf *out) {
    size_t n = t->out ? BIO_ctrl_pending(t->out) : 0;
    if (!n)
        return;
    char *p = buf_reserve(out, n);
    int got = BIO_read(t->out, p, (int)n);
    assert(got == (int)n);
    out->len += n;
    out->data[out->len] = 0;
}

bool tls_peer(const struct tls *t, char *cn, size_t cn_size,
              char sha256[static TLS_SHA256_HEX + 1]) {
    X509 *cert = SSL_get0_peer_certificate(t->ssl);
    cn[0] = 0;
    sha256[0] = 0;
    if (!cert || SSL_get_verify_result(t->ssl) != X509_V_OK)
        return false;
    sha256_hex(cert, sha256);
    const X509_NAME *name = X509_get_subject_name(cert);
    int at = X509_NAME_get_index_by_NID(name, NID_commonName, -1);
    // Two common names, or one with a NUL inside, could be read differently elsewhere: no name.
    if (at < 0 || X509_NAME_get_index_by_NID(name, NID_commonName, at) >= 0)
        return true;
    unsigned char *text = NULL;
    int len = ASN1_STRING_to_UTF8(&text, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(name, at)));
    if (len > 0 && (size_t)len < cn_size && !str_has_control_chars((char *)text, (size_t)len) &&
        strlen((char *)text) == (size_t)len) {
        memcpy(cn, text, (size_t)len);
        cn[len] = 0;
    }
    OPENSSL_free(text);
    return true;
}
