// The HTTP server: listens on unix sockets, TLS and, for browsers of this machine, the loopback
// interface; parses requests and hands each complete one to one callback; routing is the caller's.
// Everything happens on the caller's event loop and thread.
// A request belongs to the handler until it is answered by exactly one of net_reply,
// net_reply_stream_end, net_upgrade_ws or net_upgrade_raw; after that call the pointer is dead. If
// the client goes away earlier the pointer stays good and answering it does nothing.
// SIGPIPE is ignored from net_server_new on: whoever starts other programs resets it there.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "net/http.h"
#include "net/socket.h"

struct uv_loop_s;
struct tls_context;
struct net_server;

enum { NET_WHO_MAX = 256 };  // bytes of a user's name

struct net_request {
    const char *method, *path, *query;  // path and query are still percent-encoded
    const char *body;                   // NUL-terminated; "" when empty
    size_t body_len;
    const struct http_message *http;  // headers: http_message_header(req->http, "…")
    const struct net_peer *peer;
    void *user;  // the handler's own
    uint32_t tag;      // likewise, for on_reply
    bool admin, of_others;
    char note[256];  // likewise: what it changed, in words
    char who[NET_WHO_MAX + 1];
    int64_t began_us;
};

typedef void (*net_request_fn)(struct net_request *req, void *user);

// What the caller says about a request over TLS or the loopback interface when its head is complete and before its
// body is received.
struct net_admission {
    const char *account;  // who it is, e.g. "user alice"; NULL: unknown, it counts for its address
    uint64_t body_max;    // bytes its body may have; 0: the server's limit
    int status;           // 0: admitted; else the request is refused with this status, unread
    const char *text;     // of the refusal, a whole JSON or text body
    const char *content_type;
    uint32_t delay_ms;    // the refusal is held back for this long
};

// Connections that somebody else speaks HTTP on: a proxy, say, which cannot wait until a body is complete. Decided when
// the head of a request is complete, and only when no answer is due before it; then the connection is a raw tunnel.
struct net_takeover {
    bool (*wants)(const struct net_request *req, void *user);  // NULL: nobody does
    // `parser` has read the head into `message`, which becomes the callee's; the bytes after it come by the callbacks.
    // Returns what the callbacks get as `user`.
    void *(*begin)(struct net_raw *raw, const struct net_peer *peer, const struct http_parser *parser,
                   struct http_message *message, void *user);
    const struct net_raw_callbacks *callbacks;
};

enum {
    NET_CONNECTIONS_MAX = 16 * 1024,
    NET_ADMIN_CONNECTIONS = 256,        // beyond that, for root and our own user on the unix socket
    NET_USER_CONNECTIONS_MAX = 2048,    // of one user; on the unix socket root and our own user may have all
    NET_ADDRESS_CONNECTIONS_MAX = 512,  // of one address, connections that have not identified themselves
    NET_CLIENT_LEFT = 499,              // instead of a status
    NET_PASS_MAX = 64,                  // bytes of a pass
    NET_PIPELINE_MAX = 64,              // requests of one connection that may await their answers
    NET_RECEIVING_MAX = 512 * 1024 * 1024,       // bytes of large incomplete bodies, all connections together
    NET_USER_RECEIVING_MAX = 128 * 1024 * 1024,  // and those of one account
    NET_USER_UNSENT_MAX = 256 * 1024 * 1024,     // answers and messages of one account that nobody has read
    NET_SMALL_BODY_BYTES = 64 * 1024,  // a body of up to this size is never refused for lack of room
    NET_HEAD_TIMEOUT_MS = 15 * 1000,   // first byte (or TLS hello) to the end of the head
    NET_BODY_TIMEOUT_MS = 120 * 1000,  // whole body
    NET_IDLE_TIMEOUT_MS = 300 * 1000,  // between requests
    NET_WRITE_TIMEOUT_MS = 60 * 1000,  // output that makes no progress
};

struct net_server_options {
    net_request_fn on_request;
    // Called for every request over TLS or the loopback interface before its body is received; may be NULL. Only
    // method, path, query and headers are set in `req`. On the unix socket the kernel has told who it is.
    void (*on_head)(struct net_request *req, struct net_admission *out, void *user);
    // Called for every answer by net_reply and, when it begins, by net_reply_stream_start; with the status
    // NET_CLIENT_LEFT when the client leaves before its answer. May be NULL.
    void (*on_reply)(const struct net_request *req, int status, bool streams, void *user);
    struct net_takeover takeover;  // over TLS and the loopback interface; asked before on_head
    void *user;
    // 0 means the default named above or in http.h, ws.h, socket.h
    uint32_t connections_max;
    uint32_t network_connections_max;  // over TLS and the loopback interface, of connections_max; default 3/4
    uint32_t admin_connections;
    uint32_t user_connections_max;
    uint32_t address_connections_max;
    size_t head_max;
    uint64_t body_max;
    uint64_t receiving_max;
    uint64_t user_receiving_max;
    uint64_t user_unsent_max;
    uint64_t small_body_bytes;
    size_t output_max;
    size_t ws_message_max;
    uint32_t head_timeout_ms, body_timeout_ms, idle_timeout_ms, write_timeout_ms;
};

struct net_server *net_server_new(struct uv_loop_s *loop, const struct net_server_options *options);
// Replaces a socket file that nobody listens on any more; -EADDRINUSE if somebody does. `mode` is
// that of the socket file.
int net_server_listen_unix(struct net_server *s, const char *path, mode_t mode, struct error *e);
// 1: a unix socket whose file was deleted has one again. 0: none was. To be called now and then.
int net_server_restore_unix(struct net_server *s, struct error *e);
// host: an address or name, NULL for every interface; port 0 picks one, see net_server_port.
// `tls` stays the caller's and must outlive the server.
int net_server_listen_tls(struct net_server *s, const char *host, uint16_t port,
                          struct tls_context *tls, struct error *e);
uint16_t net_server_port(const struct net_server *s);  // of the TLS listener opened last
// Without encryption, on 127.0.0.1 only. *port 0 picks one and leaves it there.
int net_server_listen_loopback(struct net_server *s, uint16_t *port, struct error *e);
uint32_t net_server_connections(const struct net_server *s);
// Stops listening, ends idle connections, tells WebSockets "going away", lets requests in progress
// finish for grace_ms, then drops the rest. `done` is called once and the server is gone then.
void net_server_close(struct net_server *s, uint32_t grace_ms, void (*done)(void *user),
                      void *user);

// Adds a header to the answer to come; -EINVAL if it may not be sent.
int net_reply_header(struct net_request *req, const char *name, const char *value);
// Answers; content_type may be NULL. The body is copied. 0, or -EPIPE when the client has gone.
int net_reply(struct net_request *req, int status, const char *content_type, const void *body,
              size_t len);

// Called at most once, when the client goes away before the answer is complete; the request stays
// the handler's to end. on_drain: all output of the connection has left.
void net_request_watch(struct net_request *req, void (*on_close)(struct net_request *, void *user),
                       void (*on_drain)(struct net_request *, void *user), void *user);
bool net_request_gone(const struct net_request *req);
// For whom its connection counts: "uid 1000", "user alice", "node n1", "address [10.0.0.1]". Until the next request.
const char *net_request_account(const struct net_request *req);

// From this call on the answer is collected, also one in pieces, and handed to `fn`, which answers in its place; of a
// longer one the first `max` bytes.
typedef void (*net_answer_fn)(struct net_request *req, int status, const char *content_type, const void *body,
                              size_t len, void *user);
void net_request_capture(struct net_request *req, size_t max, net_answer_fn fn, void *user);

// An answer in pieces (chunked): start, any number of writes, end. Write returns the bytes now
// waiting to leave, -EPIPE when the client has gone, -ENOBUFS when it is too slow and was dropped.
int net_reply_stream_start(struct net_request *req, int status, const char *content_type);
// The same with a length that is known: exactly so many bytes are written, or the answer is aborted.
int net_reply_stream_start_length(struct net_request *req, int status, const char *content_type,
                                  int64_t length);
ssize_t net_reply_stream_write(struct net_request *req, const void *data, size_t len);
int net_reply_stream_end(struct net_request *req);
// Ends it unfinished: the connection is cut, so that the reader sees that something is missing.
void net_reply_stream_abort(struct net_request *req);
size_t net_reply_stream_pending(const struct net_request *req);

// The connection is used under a pass, the id of a token say; it is kept, and what the connection
// becomes (a WebSocket) keeps it as well. net_server_end_passes ends the connections whose pass does
// not hold any more, and returns how many.
void net_request_set_pass(struct net_request *req, const char *pass);
uint32_t net_server_end_passes(struct net_server *s, bool (*holds)(const char *pass, void *user), void *user);

// True when the request asks for a WebSocket in the proper way.
bool net_request_wants_ws(const struct net_request *req);
// Answers 101 and hands the connection over; if it is not a proper WebSocket request an error is
// answered, if the client has gone nothing is; both return NULL. `protocol` (may be NULL) is the
// subprotocol chosen.
struct net_ws *net_upgrade_ws(struct net_request *req, const char *protocol,
                              const struct net_ws_callbacks *callbacks, void *user);
// Hands the bare byte stream over; the handler writes everything, the response head included. Only
// for requests with http->upgrade set; others, and clients gone, yield NULL with the request ended.
struct net_raw *net_upgrade_raw(struct net_request *req, const struct net_raw_callbacks *callbacks,
                                void *user);
// Of a connection that was taken over: as net_admission.account and net_request_set_pass. False: that account has too
// many connections.
bool net_raw_identify(struct net_raw *raw, const char *account, const char *pass);
