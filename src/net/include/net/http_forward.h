// Heads of messages that a reverse proxy passes on, without I/O: what a parsed head (net/http.h) becomes on the other
// side. Headers that concern one connection are removed, and the framing is written anew from what the parser
// understood, so that both sides agree where a message ends.
#pragma once
#include "net/http.h"

struct http_forward {
    const char *host;    // as the client names it, with its port
    const char *scheme;  // "http" or "https", of the client's connection
    const char *client;  // its address; NULL: not told
    const char *user;    // who it is; NULL: not told
    uint32_t port;       // that the program listens on: its own name for itself is replaced in redirects
    const char
        *own_cookie;  // cookies whose names begin so are the proxy's: the program neither gets nor sets them
    bool own_authorization;  // the header Authorization is for the proxy
};

// Whether the request asks for a WebSocket; other upgrades are not passed on.
bool http_forward_is_websocket(const struct http_message *m);
// Appends the head of a request for the program. A body follows as it was framed: with its length or in chunks.
void http_forward_request(const struct http_message *m, const struct http_forward *f, struct buf *out);

enum http_forward_body {
    HTTP_FORWARD_NONE,
    HTTP_FORWARD_LENGTH,
    HTTP_FORWARD_CHUNKED,
    HTTP_FORWARD_UNTIL_CLOSE
};
// Appends the head of the response to `request` for the client, with `extra` lines (each ended by CRLF; may be NULL).
// Returns how the body is to be framed. keep_alive: the connection goes on after it; false on return when it cannot.
enum http_forward_body http_forward_response(const struct http_message *m, const struct http_message *request,
                                             const struct http_forward *f, bool *keep_alive,
                                             const char *extra, struct buf *out);

// The value of a cookie in the headers of a request; NULL: it is not there, or there are two, one of them forged.
const char *http_cookie_get(const struct http_message *m, const char *name, size_t *len);
