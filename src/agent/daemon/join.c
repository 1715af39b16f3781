// Owns joining a cluster: the node makes its own key, which never leaves it, and a one-time token
// buys one signature. The token also names the controller's authority, so that it is known before
// it is trusted with anything.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/daemon/daemon.h"
#include "base/alloc.h"
#include "base/arena.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "net/pki.h"
#include "net/tls_client.h"
#include "net/token.h"

enum { JOIN_TIMEOUT_MS = 15000 };

static void request_body(const char *token_text, const char *csr, const char *name,
                         struct buf *out) {
    struct json_writer w = {.out = out};
    json_open(&w, '{');
    json_kv_str(&w, "token", token_text);
    json_kv_str(&w, "csr", csr);
    json_kv_str(&w, "name", name);
    json_close(&w, '}');
}

static int refused(const struct http_message *m, struct error *e) {
    cleanup_arena struct arena a = {0};
    struct json *j = NULL;
    const char *text = NULL;
    if (json_parse(buf_str(&m->body), m->body.len, &a, &j, NULL) == 0) {
        const struct json *error = json_get(j, "error");
        text = error ? json_str(error, "message") : NULL;
    }
    return error_set(e, EACCES, "the controller refused: %s", text ? text : "no reason given");
}

static int ask(const char *host, uint16_t port, struct tls_context *tls, const struct buf *body,
               struct http_message *answer, struct error *e) {
    struct http_client *client;
    struct http_request r = {.method = "POST", .target = "/v1/join", .body = body->data,
                             .content_type = "application/json", .body_len = body->len,
                             .timeout_ms = JOIN_TIMEOUT_MS};
    int rc = http_client_tls(host, port, tls, JOIN_TIMEOUT_MS, &client, e);
    if (rc < 0)
        return rc;
    rc = http_client_call(client, &r, answer, e);
    http_client_free(client);
    if (rc == 0 && answer->status / 100 != 2)
        rc = refused(answer, e);
    return rc;
}

static int keep(const char *folder, const char *file, const char *text, struct error *e) {
    cleanup_free char *path = xasprintf("%s/%s", folder, file);
    return pki_write_file(path, text, strlen(text), 0600, e);
}

static int keep_answer(const char *folder, const struct http_message *m, const char *name,
                       char **name_out, struct error *e) {
    cleanup_arena struct arena a = {0};
    struct json *j;
    int rc = json_parse(buf_str(&m->body), m->body.len, &a, &j, e);
    if (rc < 0)
        return error_prefix(e, "the controller's answer");
    const char *cert = json_str(j, "certificate"), *ca = json_str(j, "ca");
    const char *given = json_str(j, "name");
    if (!cert || !ca)
        return error_set(e, EBADMSG, "the controller's answer holds no certificate");
    if ((rc = keep(folder, "ca.pem", ca, e)) < 0 || (rc = keep(folder, "cert.pem", cert, e)) < 0)
        return rc;
    *name_out = xstrdup(given ? given : name);
    return 0;
}

int agent_join(const char *folder, const char *host, uint16_t port, const char *token_text,
               const char *name, char **name_out, struct error *e) {
    struct token token;
    struct tls_context *tls = NULL;
    struct http_message answer;
    cleanup_buf struct buf csr = {0}, body = {0};
    cleanup_free char *key = xasprintf("%s/key.pem", folder);
    char text[TOKEN_TEXT_LEN + 1];
    if (mkdir(folder, 0700) < 0 && errno != EEXIST)
        return error_set(e, errno, "the agent's folder %s cannot be made: %m", folder);
    int rc = token_parse(token_text, &token, e);
    if (rc < 0)
        return rc;
    token_format(&token, text);
    rc = pki_key_create(key, e);
    if (rc == 0 || rc == -EEXIST)
        rc = pki_csr_create(key, name, &csr, e);
    struct tls_client_options o = {.ca_sha256 = token.ca_sha256};
    if (rc == 0)
        rc = tls_context_client(&o, &tls, e);
    http_message_init(&answer);
    if (rc == 0) {
        request_body(text, buf_str(&csr), name, &body);
        rc = ask(host, port, tls, &body, &answer, e);
    }
    if (rc == 0)
        rc = keep_answer(folder, &answer, name, name_out, e);
    http_message_done(&answer);
    tls_context_free(tls);
    token_wipe(&token);
    explicit_bzero(text, sizeof text);
    if (body.data)
        explicit_bzero(body.data, body.len);
    return rc;
}
