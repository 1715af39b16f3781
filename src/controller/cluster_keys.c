// Owns the cluster's certificate authority and the controller's own certificate. Both are kept in the store
// as named values, so that a copy of the store is all that a restore needs. Release 0.1.0 kept them in files of
// the state folder: these are read once, and removed when the upgrade is finished.
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "controller.h"

static const char ca_cert[] = "ca.crt", ca_key[] = "ca.key", server_cert[] = "server.crt", server_key[] = "server.key";

#define cleanup_pair __attribute__((__cleanup__(pki_pair_done)))

static int load_blob(struct controller *c, const char *name, struct buf *out, struct error *e) {
    void *data = NULL;
    size_t len = 0;
    int r = store_blob(c->store, name, &data, &len, e);
    if (r == 0)
        buf_add(out, data, len);
    if (data)
        explicit_bzero(data, len);
    free(data);
    return r;
}

static int load_pair(struct controller *c, const char *cert, const char *key, struct pki_pair *out, struct error *e) {
    int r = load_blob(c, cert, &out->cert, e);
    return r < 0 ? r : load_blob(c, key, &out->key, e);
}

// Returns when both are on disk.
static int keep_pair(struct controller *c, const char *cert, const char *key, const struct pki_pair *p,
                     struct error *e) {
    cleanup_pair struct pki_pair again = {0};
    struct store_batch *b = store_batch_new();
    store_batch_blob(b, cert, p->cert.data, p->cert.len);
    store_batch_blob(b, key, p->key.data, p->key.len);
    store_submit(c->store, b);
    store_flush(c->store);
    return load_pair(c, cert, key, &again, e);
}

static const char *file_of(struct controller *c, const char *name) {
    return arena_printf(&c->arena, "%s/%s", c->paths.state, name);
}

// Reads the files of an earlier release; -ENOENT: there are none.
static int import_pair(struct controller *c, const char *cert, const char *key, struct pki_pair *out, struct error *e) {
    const char *cert_file = file_of(c, cert), *key_file = file_of(c, key);
    if (access(cert_file, F_OK) < 0)
        return -ENOENT;
    int r = pki_pair_read(cert_file, key_file, out, e);
    if (r == 0 && (r = keep_pair(c, cert, key, out, e)) == 0)
        log_info("%s and %s are now kept in the database; the files stay until the upgrade is finished", cert_file,
                 key);
    return r;
}

static void remove_files(struct controller *c) {
    const char *const names[] = {ca_cert, ca_key, server_cert, server_key};
    for (size_t i = 0; i < sizeof names / sizeof *names && core_level(c->core) > FEATURE_LEVEL_FIRST; i++)
        if (unlink(file_of(c, names[i])) == 0)
            log_info("%s is removed: it is kept in the database", file_of(c, names[i]));
}

static int open_ca(struct controller *c, struct error *e) {
    cleanup_pair struct pki_pair p = {0};
    int r = load_pair(c, ca_cert, ca_key, &p, e);
    if (r == -ENOENT && !controller_leads(c))
        return r;
    if (r == -ENOENT)
        r = import_pair(c, ca_cert, ca_key, &p, e);
    if (r == -ENOENT && (r = pki_ca_make(c->config.cluster.name, controller_now_ms() / 1000, &p, e)) == 0)
        r = keep_pair(c, ca_cert, ca_key, &p, e);
    if (r == 0 && (r = pki_ca_parse(&p, &c->ca, e)) < 0)
        error_prefix(e, "the cluster's certificate authority");
    return r;
}

int controller_keys_open(struct controller *c, const char *const *names, size_t count, struct error *e) {
    cleanup_pair struct pki_pair p = {0};
    if (c->tls)
        return 0;  // since it stood by
    int r = open_ca(c, e);
    if (r < 0)
        return r;
    // Controllers that share a database have names of their own: each makes itself a certificate at every start, which
    // the one authority vouches for.
    r = c->shared ? pki_server_make(c->ca, names, count, controller_now_ms() / 1000, &p, e)
                  : load_pair(c, server_cert, server_key, &p, e);
    if (r == -ENOENT)
        r = import_pair(c, server_cert, server_key, &p, e);
    if (r == -ENOENT && (r = pki_server_make(c->ca, names, count, controller_now_ms() / 1000, &p, e)) == 0)
        r = keep_pair(c, server_cert, server_key, &p, e);
    if (r == 0)
        r = tls_context_server_pem(&p, pki_ca_pem(c->ca), &c->tls, e);
    if (r == 0 && !c->shared)
        remove_files(c);
    return r;
}
