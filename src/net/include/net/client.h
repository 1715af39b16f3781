// The blocking HTTP client of the command line: one connection, one exchange at a time. Over a unix
// socket it needs neither an event loop nor a TLS library; other channels plug in as a transport
// (net/tls_client.h). Timeouts bound every single wait for the server, not the whole exchange.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/error.h"
#include "net/http.h"
#include "net/ws.h"

enum { HTTP_CLIENT_TIMEOUT_MS = 30 * 1000 };

// A byte stream. Functions return a negative errno on failure.
struct http_transport {
    void *self;
    ssize_t (*read)(void *self, void *p, size_t n);  // never waits: -EAGAIN; 0 at the end
    int (*write)(void *self, const void *p, size_t n, int timeout_ms);  // all of it
    int (*fd)(void *self);         // readable when more may have arrived
    bool (*buffered)(void *self);  // bytes are there that poll() on fd would not show
    void (*close)(void *self);     // frees self
};

struct http_request {
    const char *method, *target;
    const char *content_type;  // NULL without a body
    const void *body;
    size_t body_len;
    const char *extra;  // more header lines, each ended by CRLF, or NULL
    int timeout_ms;     // 0: the default; negative: wait for ever
};

struct http_client;

int http_client_unix(const char *path, struct http_client **out, struct error *e);
// Takes over the transport. `host` goes into the Host header.
struct http_client *http_client_new(struct http_transport transport, const char *host);
struct http_client *http_client_free(struct http_client *c);

// Sends a request and reads the whole response into `out` (initialised here; the caller ends it
// with http_message_done, also after a failure). Any status counts as success.
int http_client_call(struct http_client *c, const struct http_request *request,
                     struct http_message *out, struct error *e);
// The same, but the body of a 2xx response goes to `fn` piece by piece as it arrives; other
// responses end up in out->body. `fn` returns 0 to go on; anything else ends the exchange (and the
// connection with it) and is returned.
typedef int (*http_body_fn)(void *arg, const char *data, size_t len);
int http_client_stream(struct http_client *c, const struct http_request *request,
                       struct http_message *out, http_body_fn fn, void *arg, struct error *e);
// Waits for the server end with -EINTR as soon as this descriptor (a signalfd, say) is readable.
void http_client_wake_on(struct http_client *c, int fd);
bool http_client_reusable(const struct http_client *c);  // another request may follow

// Turns the connection into a WebSocket. When the server refuses, `refusal` (may be NULL) holds its
// response, ended by the caller.
int http_client_ws_open(struct http_client *c, const char *target, const char *extra,
                        struct http_message *refusal, struct error *e);
int http_client_ws_send(struct http_client *c, enum ws_opcode opcode, const void *data, size_t len);
// 1: `event` was filled (text, binary or close); 0: nothing came in time; negative: the connection
// failed (-EPIPE: it ended without a close). Pings are answered here.
int http_client_ws_recv(struct http_client *c, struct ws_event *event, int timeout_ms);
bool http_client_ws_buffered(const struct http_client *c);  // recv would not have to wait
int http_client_ws_close(struct http_client *c, int status, const char *reason);
int http_client_fd(const struct http_client *c);
