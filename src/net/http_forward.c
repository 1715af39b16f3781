// Owns the rules for heads that a reverse proxy passes on. The head of either side is written from the parsed message,
// never copied as bytes.
#include "net/http_forward.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static bool starts(const char *s, const char *prefix) {
    return strncasecmp(s, prefix, strlen(prefix)) == 0;
}

// Programs behind CGI, WSGI and the like see '-' and '_' in names of headers as the same, so they are the same here.
// begins: the name only begins so.
static bool is_named(const char *name, const char *known, bool begins) {
    for (; *known; name++, known++)
        if (tolower((unsigned char)(*name == '_' ? '-' : *name)) != tolower((unsigned char)*known))
            return false;
    return begins || !*name;
}

static bool is_one_of(const char *name, const char *const *list) {
    for (; *list; list++)
        if (is_named(name, *list, false))
            return true;
    return false;
}

// Headers of one connection (RFC 9110, 7.6.1), those that Connection names, and the framing, which is written anew.
static bool is_hop_by_hop(const struct http_message *m, const char *name) {
    static const char *const names[] = {"Connection",
                                        "Keep-Alive",
                                        "Proxy-Authenticate",
                                        "Proxy-Authorization",
                                        "Proxy-Connection",
                                        "TE",
                                        "Trailer",
                                        "Transfer-Encoding",
                                        "Upgrade",
                                        "Content-Length",
                                        "HTTP2-Settings",
                                        NULL};
    return is_one_of(name, names) || http_message_has_token(m, "Connection", name);
}

static void add(struct buf *out, const char *name, const char *value) {
    buf_adds(out, name);
    buf_adds(out, ": ");
    buf_adds(out, value);
    buf_adds(out, "\r\n");
}

bool http_forward_is_websocket(const struct http_message *m) {
    return m->upgrade && m->minor == 1 && strcmp(m->method, "GET") == 0 &&
           http_message_has_token(m, "Upgrade", "websocket") && !m->chunked && m->content_length <= 0;
}

// --- cookies ---

// The next of a list separated by ';': its start, with white space skipped; NULL: there is none.
static const char *next_part(const char **at, size_t *len) {
    while (**at == ' ' || **at == '\t' || **at == ';')
        (*at)++;
    if (!**at)
        return NULL;
    const char *part = *at;
    size_t n = strcspn(part, ";");
    *at += n;
    while (n && (part[n - 1] == ' ' || part[n - 1] == '\t'))
        n--;
    *len = n;
    return part;
}

// Whether "NAME=value" names one of the proxy's cookies. Browsers trim names, and some send a cookie without a name
// as its value alone, so white space and letters of either case count as the same.
static bool is_own_cookie(const char *part, size_t len, const char *own) {
    static const char host[] = "__Host-";
    while (len && (*part == '=' || *part == ' ' || *part == '\t')) {
        part++;
        len--;
    }
    if (len >= strlen(host) && starts(part, host)) {
        part += strlen(host);
        len -= strlen(host);
    }
    return own && len >= strlen(own) && strncasecmp(part, own, strlen(own)) == 0;
}

static void add_cookies(struct buf *out, const char *value, const char *own) {
    const char *part;
    size_t len;
    bool first = true;
    while ((part = next_part(&value, &len))) {
        if (is_own_cookie(part, len, own))
            continue;
        buf_adds(out, first ? "Cookie: " : "; ");
        buf_add(out, part, len);
        first = false;
    }
    if (!first)
        buf_adds(out, "\r\n");
}

// Without Domain: a cookie of one program is not sent to another one's host.
static void add_set_cookie(struct buf *out, const char *value, const char *own) {
    const char *part;
    size_t len;
    bool first = true;
    while ((part = next_part(&value, &len))) {
        if (first && is_own_cookie(part, len, own))
            return;
        const char *eq = memchr(part, '=', len);
        size_t name = eq ? (size_t)(eq - part) : len;
        while (name && (part[name - 1] == ' ' || part[name - 1] == '\t'))
            name--;
        if (!first && name == strlen("Domain") && starts(part, "Domain"))
            continue;
        buf_adds(out, first ? "Set-Cookie: " : "; ");
        buf_add(out, part, len);
        first = false;
    }
    if (!first)
        buf_adds(out, "\r\n");
}

const char *http_cookie_get(const struct http_message *m, const char *name, size_t *len) {
    const char *found = NULL;
    size_t n = strlen(name);
    for (unsigned i = 0; i < m->header_count; i++) {
        const char *at = m->headers[i].value, *part;
        size_t part_len;
        if (strcasecmp(m->headers[i].name, "Cookie") != 0)
            continue;
        while ((part = next_part(&at, &part_len))) {
            if (part_len <= n || strncmp(part, name, n) != 0 || part[n] != '=')
                continue;
            if (found)
                return NULL;
            found = part + n + 1;
            *len = part_len - n - 1;
        }
    }
    return found;
}

// --- requests ---

// Headers by which a proxy tells who the client is: the client's own are dropped. And Expect, which the proxy answers.
static bool is_proxys(const char *name) {
    static const char *const names[] = {"Host",     "Expect",      "Forwarded",      "X-Real-IP", "Via",
                                        "X-Scheme", "X-Client-IP", "True-Client-IP", NULL};
    return is_one_of(name, names) || is_named(name, "X-Forwarded-", true) ||
           is_named(name, "X-Acequia-", true);
}

static bool is_websocket_header(const char *name) {
    return starts(name, "Sec-WebSocket-");
}

static void add_request_headers(const struct http_message *m, const struct http_forward *f, bool websocket,
                                struct buf *out) {
    for (unsigned i = 0; i < m->header_count; i++) {
        const char *name = m->headers[i].name, *value = m->headers[i].value;
        if (strcasecmp(name, "Cookie") == 0)
            add_cookies(out, value, f->own_cookie);
        else if (is_hop_by_hop(m, name) || is_proxys(name) || (!websocket && is_websocket_header(name)) ||
                 (f->own_authorization && strcasecmp(name, "Authorization") == 0))
            continue;
        else
            add(out, name, value);
    }
}

void http_forward_request(const struct http_message *m, const struct http_forward *f, struct buf *out) {
    bool websocket = http_forward_is_websocket(m);
    buf_adds(out, m->method);
    buf_addc(out, ' ');
    buf_adds(out, m->path);
    if (*m->query) {
        buf_addc(out, '?');
        buf_adds(out, m->query);
    }
    buf_adds(out, " HTTP/1.1\r\n");
    add(out, "Host", f->host);
    add_request_headers(m, f, websocket, out);
    if (f->client)
        add(out, "X-Forwarded-For", f->client);
    add(out, "X-Forwarded-Proto", f->scheme);
    add(out, "X-Forwarded-Host", f->host);
    if (f->user)
        add(out, "X-Acequia-User", f->user);
    if (websocket)
        buf_adds(out, "Connection: Upgrade\r\nUpgrade: websocket\r\n");
    else if (m->chunked)
        add(out, "Transfer-Encoding", "chunked");
    else if (m->content_length >= 0)
        buf_addf(out, "Content-Length: %llu\r\n", (unsigned long long)m->content_length);
    buf_adds(out, "\r\n");
}

// --- responses ---

// What would reach beyond the program's own host, or make the browser look for it elsewhere.
static bool is_unwanted(const char *name) {
    static const char *const names[] = {"Alt-Svc",
                                        "Clear-Site-Data",
                                        "Public-Key-Pins",
                                        "Service-Worker-Allowed",
                                        "Strict-Transport-Security",
                                        NULL};
    return is_one_of(name, names);
}

// The rest of the URL after the program's own name for itself, or after the client's; NULL: it is another host's.
static const char *after_own_host(const char *url, const struct http_forward *f) {
    static const char *const names[] = {"127.0.0.1", "localhost", "[::1]", "0.0.0.0"};
    const char *host = starts(url, "http://")    ? url + 7
                       : starts(url, "https://") ? url + 8
                       : starts(url, "//")       ? url + 2
                                                 : NULL;
    if (!host)
        return NULL;
    size_t len = strcspn(host, "/?#");
    if (len == strlen(f->host) && strncasecmp(host, f->host, len) == 0)
        return host + len;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char own[32];
        int n = snprintf(own, sizeof own, "%s:%u", names[i], f->port);
        if ((size_t)n == len && strncasecmp(host, own, len) == 0)
            return host + len;
    }
    return NULL;
}

static void add_location(struct buf *out, const char *name, const char *value, const struct http_forward *f) {
    const char *rest = after_own_host(value, f);
    if (!rest) {
        add(out, name, value);
        return;
    }
    buf_addf(out, "%s: %s://%s%s%s\r\n", name, f->scheme, f->host, *rest == '/' ? "" : "/", rest);
}

static void add_response_headers(const struct http_message *m, const struct http_forward *f,
                                 struct buf *out) {
    for (unsigned i = 0; i < m->header_count; i++) {
        const char *name = m->headers[i].name, *value = m->headers[i].value;
        if (strcasecmp(name, "Set-Cookie") == 0)
            add_set_cookie(out, value, f->own_cookie);
        else if (is_hop_by_hop(m, name) || is_unwanted(name))
            continue;
        else if (strcasecmp(name, "Location") == 0 || strcasecmp(name, "Content-Location") == 0)
            add_location(out, name, value, f);
        else
            add(out, name, value);
    }
}

enum http_forward_body http_forward_response(const struct http_message *m, const struct http_message *request,
                                             const struct http_forward *f, bool *keep_alive,
                                             const char *extra, struct buf *out) {
    bool empty =
        m->status < 200 || m->status == 204 || m->status == 304 || strcmp(request->method, "HEAD") == 0;
    enum http_forward_body body = empty                    ? HTTP_FORWARD_NONE
                                  : m->content_length >= 0 ? HTTP_FORWARD_LENGTH
                                  : request->minor == 1    ? HTTP_FORWARD_CHUNKED
                                                           : HTTP_FORWARD_UNTIL_CLOSE;
    if (body == HTTP_FORWARD_UNTIL_CLOSE)
        *keep_alive = false;
    buf_addf(out, "HTTP/1.1 %d %s\r\n", m->status, http_status_text(m->status));
    add_response_headers(m, f, out);
    if (m->status == 101) {
        buf_adds(out, "Connection: Upgrade\r\nUpgrade: websocket\r\n");
    } else if (body == HTTP_FORWARD_CHUNKED) {
        add(out, "Transfer-Encoding", "chunked");
    } else if (m->content_length >= 0 && m->status >= 200 && m->status != 204) {
        // Also of an answer to HEAD or one with 304: what a GET would bring.
        buf_addf(out, "Content-Length: %llu\r\n", (unsigned long long)m->content_length);
    }
    if (m->status >= 200)
        add(out, "Connection", *keep_alive ? "keep-alive" : "close");
    if (extra)
        buf_adds(out, extra);
    buf_adds(out, "\r\n");
    return body;
}
