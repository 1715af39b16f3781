// The guards against other pages in a user's browser. A cookie is sent by the browser whoever's page asks, so a request
// that is known by its cookie alone must come from our own page, and must name us as the host.
#include "browser.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "controller.h"
#include "portal.h"

// Trusted Types without any policy: no text ever becomes HTML or script.
#define PORTAL_CSP                                                                                           \
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; " \
    "media-src 'self'; "                                                                                     \
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; "                      \
    "require-trusted-types-for 'script'; trusted-types 'none'"

enum { HOST_MAX = 256 };

static bool is_address(const char *host) {
    struct in_addr a;
    struct in6_addr b;
    return inet_pton(AF_INET, host, &a) == 1 || (*host == '[' && strchr(host, ']')) ||
           inet_pton(AF_INET6, host, &b) == 1;
}

// Host without its port.
static bool host_name(const char *header, char out[static HOST_MAX]) {
    size_t len = *header == '[' ? strcspn(header, "]") + 1 : strcspn(header, ":");
    if (!len || len >= HOST_MAX || len > strlen(header))
        return false;
    memcpy(out, header, len);
    out[len] = 0;
    return true;
}

// Over TLS: this machine's names, those of the configuration, and addresses, which cannot be made to mean another one.
static bool tls_host_known(const struct controller *c, const char *header) {
    char host[HOST_MAX];
    const struct config_portal *k = &c->config.portal;
    const char *listen = c->config.cluster.listen;
    if (!host_name(header, host))
        return false;
    for (uint32_t i = 0; i < k->names.len; i++)
        if (strcasecmp(k->names.at[i], host) == 0)
            return true;
    size_t len = strcspn(listen, ":");
    return is_address(host) || strcasecmp(host, c->hostname) == 0 || strcasecmp(host, "localhost") == 0 ||
           (strlen(host) == len && strncasecmp(host, listen, len) == 0);
}

bool browser_host_known(const struct controller *c, const struct net_request *req) {
    const char *header = http_message_header(req->http, "Host");
    if (!header)
        return false;
    return req->peer->kind == NET_PEER_HTTP ? strcasecmp(header, portal_host(c)) == 0
                                            : tls_host_known(c, header);
}

bool browser_is_unsafe(const struct net_request *req) {
    return req->http->upgrade || !(streq(req->method, "GET") || streq(req->method, "HEAD"));
}

bool browser_same_origin(const struct net_request *req, bool unsaid) {
    const char *site = http_message_header(req->http, "Sec-Fetch-Site"),
               *origin = http_message_header(req->http, "Origin"),
               *host = http_message_header(req->http, "Host"),
               *scheme = req->peer->kind == NET_PEER_HTTP ? "http://" : "https://";
    size_t len = strlen(scheme);
    if (origin && (!host || strncasecmp(origin, scheme, len) != 0 || strcasecmp(origin + len, host) != 0))
        return false;
    if (site)
        return streq(site, "same-origin") || (streq(site, "none") && !req->http->upgrade);
    return origin || unsaid;
}

void browser_headers(struct net_request *req) {
    net_reply_header(req, "Content-Security-Policy", PORTAL_CSP);
    net_reply_header(req, "X-Content-Type-Options", "nosniff");
    net_reply_header(req, "X-Frame-Options", "DENY");
    net_reply_header(req, "Cross-Origin-Opener-Policy", "same-origin");
    net_reply_header(req, "Cross-Origin-Resource-Policy", "same-origin");
    net_reply_header(req, "Referrer-Policy", "no-referrer");
}
