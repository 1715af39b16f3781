// The proxy itself, shared by app_proxy.c (clients) and app_upstream.c (connections to programs).
#pragma once
#include "app.h"
#include "net/http_forward.h"
#include "port_socket.h"

// What a user's connections may hold in buffers, all together.
struct app_user {
    uint32_t refs;
    uint64_t windows;
    char name[];
};

// A connection to a program: used by one client at a time, kept for the next one.
struct app_upstream {
    struct controller *controller;
    struct app_name name;
    struct port_conn *port;  // NULL: it has ended
    struct app_conn *conn;   // NULL: idle, or to be closed
    struct app_user *user;   // for whom its window counts
    uint64_t window;         // bytes that may be on their way from the program
    uint64_t received;       // since the window grew
    uint64_t ungranted;      // received, and not granted again yet
    bool reused, dead;
    int64_t idle_since_ms;
};

enum { APP_UPSTREAM_IDLE_MS = 15 * 1000 };
// NULL, and why. One that was used before and has been idle for less than idle_ms, or a new one.
struct app_upstream *app_upstream_get(struct controller *c, const struct actor *actor,
                                      const struct app_name *name, struct app_conn *conn, int64_t idle_ms,
                                      struct error *e);
void app_upstream_put(struct app_upstream *u, bool reusable);  // its exchange is complete, or given up
bool app_upstream_send(struct app_upstream *u, const void *data,
                       size_t len);                 // false: pause until app_conn_room
void app_upstream_drained(struct app_upstream *u);  // the client took what waited for it
void app_upstreams_turn(struct controller *c);      // closes those that are dead
void app_upstreams_tick(struct controller *c);
void app_upstreams_done(struct controller *c);

// What comes from the program. Returns the bytes that wait for the client.
size_t app_conn_data(struct app_conn *x, const char *data, size_t len);
void app_conn_room(struct app_conn *x);
// It sends no more. The upstream is no longer the connection's; `reused`: it had served others, and had said nothing.
void app_conn_upstream_ended(struct app_conn *x, const char *error, bool reused);
