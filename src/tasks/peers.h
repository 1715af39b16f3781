// Connections to the processes of a pool on other nodes, and the values that go over them. A connection is for control
// (between the head and a node, one frame after the other) or for values (whoever made it asks for parts of the other
// side's memory). What is said in control frames is the owner's affair.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/map.h"
#include "base/vec.h"
#include "tasks/link.h"

enum { PEER_ADDRESS_MAX = 64 };

struct peer_fetch {
    uint64_t id, at, size, done;
};

struct peer_read {
    uint64_t id, at, size;
};

enum peer_kind { PEER_UNKNOWN, PEER_CONTROL, PEER_SERVED, PEER_ASKED };

struct pool_peer {
    uint32_t number;
    int fd;
    enum peer_kind kind;
    bool connecting, wants_write;
    bool bad;  // set by its owner: to be closed
    uint16_t port;
    char address[PEER_ADDRESS_MAX];  // of the other side, without port
    int64_t heard_us, said_us;
    struct tasks_link link;
    VEC(struct peer_read) reads;     // that it asked for
    VEC(struct peer_fetch) fetches;  // that we asked for
};

struct peers_host {
    void (*frame)(void *ctx, struct pool_peer *from, enum tasks_link_frame type, const char *body, size_t len);
    void (*opened)(void *ctx, struct pool_peer *p);               // a connection for control that we made is proved
    void (*ended)(void *ctx, struct pool_peer *p, const char *why);  // one for control
    void (*fetched)(void *ctx, uint64_t id, bool ok);
};

struct peers {
    int epoll, listener;
    uint64_t source;  // of events of connections, in the upper half of their data
    uint8_t key[LINK_KEY_BYTES];
    uint8_t *memory;
    uint64_t memory_bytes;
    struct map peers;
    uint32_t next;
    int64_t turn_us;
    VEC(uint64_t) failed;  // fetches, to be told in the next turn
    const struct peers_host *host;
    void *ctx;
};

// `fixed`: at one of the key's ports, for the head. Returns the port, or a negative errno.
int peers_listen(struct peers *ps, bool fixed);
void peers_accept(struct peers *ps);
struct pool_peer *peers_connect(struct peers *ps, const char *address, uint16_t port, enum peer_kind kind);  // NULL: no
void peers_event(struct peers *ps, uint32_t number, uint32_t events);
void peers_fetch(struct peers *ps, const char *address, uint16_t port, const struct peer_fetch *f, uint64_t from_at);
void peers_flush(struct peers *ps);
int peers_turn(struct peers *ps, int64_t now_us);  // timeouts and pings; when to call it again, in ms
void peers_close(struct peers *ps, struct pool_peer *p, const char *why);
void peers_done(struct peers *ps);
