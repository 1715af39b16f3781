// How connections become WebSockets and tunnels (inside net/ only).
#pragma once
#include "conn.h"
#include "net/socket.h"

// Takes over an open connection. The owner of `c` keeps its own hooks (on_closed).
struct net_ws *net_ws_attach(struct net_conn *c, enum ws_role role, size_t message_max,
                             const struct net_ws_callbacks *callbacks, void *user);
struct net_raw *net_raw_attach(struct net_conn *c, const struct net_raw_callbacks *callbacks,
                               void *user);
struct net_conn *net_raw_conn(struct net_raw *raw);
void net_raw_set_user(struct net_raw *raw, void *user);
// For dialling: a WebSocket whose connection is still being made, opened or failed later.
struct net_ws *net_ws_prepare(struct net_conn *c, size_t message_max,
                              const struct net_ws_callbacks *callbacks, void *user);
void net_ws_opened(struct net_ws *ws);
void net_ws_failed(struct net_ws *ws, const char *reason);  // calls on_close and frees
