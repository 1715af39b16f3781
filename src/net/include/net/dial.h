// A WebSocket client on the event loop, over a unix socket or TLS: how agents reach the controller.
// Reconnecting is the caller's. Connecting (names included) happens on libuv's worker threads.
#pragma once
#include <stdint.h>

#include "net/socket.h"

struct uv_loop_s;
struct tls_context;

enum { NET_DIAL_TIMEOUT_MS = 15 * 1000 };

struct net_dial_options {
    const char *unix_path;    // either this, or all of the next three
    const char *host;
    uint16_t port;
    struct tls_context *tls;  // the caller's; must outlive the connection
    const char *target;       // path and query
    const char *extra;        // more header lines, each ended by CRLF, or NULL
    size_t message_max;       // 0: WS_MESSAGE_MAX
    size_t output_max;        // 0: NET_OUTPUT_MAX
    uint32_t timeout_ms;      // 0: the default; to connect, and then to be answered
    uint32_t write_timeout_ms;  // 0: none; output that makes no progress
};

// Always returns a handle: on_open follows, or on_close with the reason in words. Strings are
// copied. Rules of ownership: net/socket.h.
struct net_ws *net_dial_ws(struct uv_loop_s *loop, const struct net_dial_options *options,
                           const struct net_ws_callbacks *callbacks, void *user);
