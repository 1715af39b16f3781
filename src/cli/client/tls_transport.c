// Connects to a controller on another machine over TLS, trusting ca.pem or the fingerprint inside the user's token.
#include "cli/client/tls_transport.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cli/client/addresses.h"
#include "cli/client/saved_login.h"
#include "net/tls_client.h"
#include "net/token.h"

enum { DIAL_TIMEOUT_MS = 15000 };

static const char *existing(struct arena *a, const char *folder, const char *file) {
    const char *path = arena_printf(a, "%s/%s", folder, file);
    return access(path, R_OK) == 0 ? path : NULL;
}

static int read_token(struct arena *a, const char *folder, struct token *out, struct error *e) {
    const char *file = getenv("ACEQUIA_TOKEN_FILE");
    char text[TOKEN_TEXT_LEN + 64];
    if (!file)
        file = arena_printf(a, "%s/token", folder);
    cleanup_close int fd = open(file, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (n <= 0)
        return error_set(e, ENOENT,
                         "no token in %s and no ca.pem in %s; an administrator can create a token with "
                         "'acequia token create --user NAME' on the controller",
                         file, folder);
    text[n] = 0;
    int r = token_parse(text, out, e);
    explicit_bzero(text, sizeof text);
    return r;
}

static bool is_server(const char *server, const char *host, unsigned port) {
    char text[300];
    snprintf(text, sizeof text, strchr(host, ':') ? "[%s]:%u" : "%s:%u", host, port);
    return addresses_within(text, server);
}

static int dial(const char *host, unsigned port, const char *folder, struct http_client **out, struct error *e) {
    cleanup_arena struct arena a = {0};
    // Lives as long as the connection, which lives as long as the program.
    struct tls_context *context;
    struct tls_client_options o = {.ca_file = existing(&a, folder, "ca.pem"),
                                   .cert_file = existing(&a, folder, "cert.pem"),
                                   .key_file = existing(&a, folder, "key.pem")};
    struct token t = {0};
    struct saved_login saved = {0};
    int r = saved_login_read(folder, &a, &saved, e);
    if (r < 0 && r != -ENOENT)
        return r;
    if (r == 0 && is_server(saved.server, host, port)) {
        o.ca_file = NULL;
        o.ca_sha256 = saved.fingerprint;
    }
    r = 0;
    if (!o.ca_file && !o.ca_sha256 && (r = read_token(&a, folder, &t, e)) == 0)
        o.ca_sha256 = t.ca_sha256;
    if (r == 0 && (r = tls_context_client(&o, &context, e)) == 0)
        r = http_client_tls(host, (uint16_t)port, context, DIAL_TIMEOUT_MS, out, e);
    token_wipe(&t);
    return r;
}

static int dial_to(const char *host, unsigned port, char fingerprint[65], struct http_client **out,
                   struct error *e) {
    struct tls_context *context;  // as above
    struct tls_client_options o = {0};
    if (*fingerprint)
        o.ca_sha256 = fingerprint;
    else
        o.learned_sha256 = fingerprint;
    int r = tls_context_client(&o, &context, e);
    return r < 0 ? r : http_client_tls(host, (uint16_t)port, context, DIAL_TIMEOUT_MS, out, e);
}

const struct cli_transport client_tls_transport = {.connect = dial, .connect_to = dial_to};
