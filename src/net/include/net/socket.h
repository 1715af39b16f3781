// What a connection can become after its HTTP exchange: a WebSocket or a raw tunnel. Both are made
// by the server's upgrades (net/server.h) and the first also by dialling (net/dial.h).
// Ownership: on_close is called exactly once, always from the event loop and never from inside one
// of these functions; when it returns the handle is gone. Until then every call on it is safe.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "net/ws.h"

enum {
    NET_CN_MAX = 256,
    NET_ADDRESS_MAX = 64,
    NET_FINGERPRINT_HEX = 64,  // SHA-256 in lower-case hexadecimal
    NET_OUTPUT_MAX = 64 * 1024 * 1024,  // unsent bytes of one connection; beyond, it is ended
};

// HTTP: without encryption, which only listeners of the loopback interface speak.
enum net_peer_kind { NET_PEER_UNIX, NET_PEER_TLS, NET_PEER_HTTP };

// Who is at the other end, as told by the channel and never by the message.
struct net_peer {
    enum net_peer_kind kind;
    uid_t uid;  // unix: credentials when the peer connected; else -1
    gid_t gid;
    pid_t pid;
    bool has_cert;  // TLS: a certificate that our CA signed
    char cert_cn[NET_CN_MAX];
    char cert_sha256[NET_FINGERPRINT_HEX + 1];
    char address[NET_ADDRESS_MAX];  // "[addr]:port", or "unix"
};

// The sender that an address "[addr]:port" belongs to, for budgets: "[addr]", of IPv6 the network "[net::/64]".
void net_address_network(const char *address, char *out, size_t size);

struct net_ws;
struct net_raw;

struct net_ws_callbacks {
    void (*on_open)(struct net_ws *ws, void *user);  // dialled ones only; may be NULL
    void (*on_message)(struct net_ws *ws, enum ws_opcode type, const char *data, size_t len,
                       void *user);
    void (*on_drain)(struct net_ws *ws, void *user);  // all output has left; may be NULL
    // status as in ws.h (WS_ABNORMAL when there was no close frame); reason is never NULL
    void (*on_close)(struct net_ws *ws, int status, const char *reason, void *user);
};

// Returns the bytes now waiting to leave, -EPIPE when the connection is ending, -ENOTCONN when it
// is not open yet, -ENOBUFS when the peer is too slow (the connection is then ended).
ssize_t net_ws_send(struct net_ws *ws, enum ws_opcode type, const void *data, size_t len);
// Sends a close frame and ends once the peer answers or after a short time. Repeats are ignored.
void net_ws_close(struct net_ws *ws, int status, const char *reason);
// Larger messages from the peer end the connection, from the next frame on.
void net_ws_limit(struct net_ws *ws, size_t message_max);
void net_ws_abort(struct net_ws *ws);               // ends now, what waits is dropped
void net_ws_pause(struct net_ws *ws, bool paused);  // reads nothing while paused
size_t net_ws_pending(const struct net_ws *ws);
const struct net_peer *net_ws_peer(const struct net_ws *ws);
int64_t net_ws_last_input_ms(const struct net_ws *ws);  // loop time of the last bytes received

struct net_raw_callbacks {
    // Returns how many bytes were taken. With none reading stops until net_raw_resume; the rest is offered again, in a
    // later turn of the loop when the account of the connection has used up its part of this one.
    size_t (*on_data)(struct net_raw *raw, const char *data, size_t len, void *user);
    void (*on_eof)(struct net_raw *raw, void *user);    // the peer sends no more; may be NULL
    void (*on_drain)(struct net_raw *raw, void *user);  // may be NULL
    void (*on_deadline)(struct net_raw *raw, void *user);  // NULL: it is ended then
    void (*on_close)(struct net_raw *raw, void *user);
};

ssize_t net_raw_write(struct net_raw *raw, const void *data, size_t len);
ssize_t net_raw_write_parts(struct net_raw *raw, const void *head, size_t head_len, const void *data,
                            size_t len);  // both in one  // as net_ws_send
void net_raw_end(struct net_raw *raw);  // sends what waits, then ends
void net_raw_abort(struct net_raw *raw);
void net_raw_resume(struct net_raw *raw);
size_t net_raw_pending(const struct net_raw *raw);
void net_raw_deadline(struct net_raw *raw, uint64_t after_ms);  // 0: never
bool net_raw_ending(const struct net_raw *raw);                 // nothing can be written any more
