// A controller for unit tests: the real routes, core, commit pipeline and agents' messages, on a simulated disk and
// without a socket. fake_net.c stands for the server (net/server.h, net/socket.h) and for the look-up of users
// (base/users.h): bytes of a request go in, the bytes of its answer come out.
#pragma once
#include <setjmp.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "../api.h"
#include "../audit.h"
#include "store/sim_store.h"

// What became of a request. It stays readable until rig_close.
struct fake_request {
    struct net_request pub;  // first: the controller sees only this
    struct http_message message;
    struct net_peer peer;
    struct rig *rig;
    int status;  // 0: no answer yet
    struct buf headers, body;
    bool streaming, done, aborted, gone;
    size_t pending;  // of a stream, as the test says
    net_answer_fn capture;
    void *capture_user;
    struct buf captured;
    int captured_status;
    char pass[NET_PASS_MAX + 1];
    void (*on_close)(struct net_request *, void *user);
    void (*on_drain)(struct net_request *, void *user);
    void *watch_user;
    struct net_ws *ws;  // it has become a WebSocket
    struct net_admission admission;
    struct arena arena;  // of fake_json
};

struct fake_message {
    enum ws_opcode type;
    char *data;
    size_t len;
};

struct net_ws {
    struct net_ws_callbacks callbacks;
    void *user;
    struct net_peer peer;
    VEC(struct fake_message) sent;  // by the controller
    uint32_t read;                  // of them, by the test
    bool closing, closed, paused;
    int status;
    char reason[128];
    size_t limit, pending;  // pending: as the test says
};

// A connection that was taken over from the server.
struct net_raw {
    const struct net_raw_callbacks *callbacks;
    void *user;
    struct buf out;   // that the controller has sent
    struct buf kept;  // that it has not taken yet
    size_t pending;   // as the test says
    uint64_t deadline_ms;  // from when it was set; 0: none
    bool paused, resumed, ended, aborted, closed;
    char account[64], pass[NET_PASS_MAX + 1];
};

struct rig {
    struct controller c;
    struct sim_disk *disk;
    int64_t disk_ms;
    bool disk_waits;  // what is written is not committed until it is false again
    VEC(struct fake_request *) requests;
    VEC(struct net_ws *) sockets;
    VEC(struct net_raw *) raws;
};

extern const struct net_peer fake_root, fake_alice, fake_bob;
// Users whose look-up is slow: not known yet (until fake_users_answer), or not answered in time.
extern const struct net_peer fake_slow, fake_lost;
extern bool fake_users_answer;
extern atomic_bool fake_socket_deleted;  // the unix socket; it is put back at the next look
struct net_peer fake_tls(const char *address, const char *node);  // node NULL: without a certificate

void rig_open(struct rig *r);
void rig_open_on(struct rig *r, const char *folder);  // with a real store in there
void rig_close(struct rig *r);
bool rig_turn(struct rig *r);  // one turn of the daemon's loop; false: nothing happened
// Lets everything happen that is due: commits, slices of actions, timers.
void rig_settle(struct rig *r);
// Until a request is answered that a thread works for; at most a minute.
void rig_wait(struct rig *r, const struct fake_request *q);
// The disk refuses commits, or takes them again.
void rig_disk_fails(struct rig *r, bool fails);

// A whole request as it would come from a socket, answered at once; NULL: the bytes are none.
struct fake_request *rig_raw(struct rig *r, const struct net_peer *from, const void *bytes, size_t len);
// Sends a request; `bytes` are its head and body as they would come from a socket. The body's length is added.
struct fake_request *rig_bytes(struct rig *r, const struct net_peer *from, const char *head,
                               const char *body);
// The same without the commit: what is answered at once.
struct fake_request *rig_bytes_at_once(struct rig *r, const struct net_peer *from, const char *head,
                                       const char *body);
struct fake_request *rig_call(struct rig *r, const struct net_peer *from, const char *method,
                              const char *target, const char *body);
// The client goes away before its answer.
void fake_leave(struct fake_request *q);
// The body as JSON; fails the test when it is none. Lives until rig_close.
const struct json *fake_json(struct fake_request *q);
void fake_expect(const struct fake_request *q, int status, const char *text);  // in the body; NULL: any

// A connection whose first request is for a host that the controller takes over; NULL: it does not, or there is no
// complete head.
struct net_raw *rig_takeover(struct rig *r, const struct net_peer *from, const void *bytes, size_t len);
void fake_raw_data(struct rig *r, struct net_raw *raw, const void *data, size_t len);
bool fake_raw_go_on(struct net_raw *raw);  // what was kept is offered again; false: nothing was to do
void fake_raw_deadline(struct rig *r, struct net_raw *raw);  // it is over
void fake_raw_leave(struct rig *r, struct net_raw *raw);

struct net_ws *rig_socket(struct rig *r, const struct net_peer *from, const char *target);
void fake_text(struct rig *r, struct net_ws *ws, const char *text);
void fake_binary(struct rig *r, struct net_ws *ws, const void *data, size_t len);
void fake_hang_up(struct rig *r, struct net_ws *ws);
// The next text message that was sent, skipping binary ones; NULL: there is none.
const char *fake_next_text(struct net_ws *ws);

// An agent that has said hello; 8 CPUs, 16 GiB.
struct net_ws *rig_agent(struct rig *r, const char *name);
void rig_hello(struct rig *r, struct net_ws *ws, const char *name);
void rig_message(struct rig *r, struct net_ws *ws, enum message_type type, void *body);
// The next message of this type that was sent to the agent, decoded; others are skipped. NULL: there is none.
void *fake_next_message(struct net_ws *ws, enum message_type type, struct arena *a);
void rig_remove_folder(const char *path);  // with everything in it
// The cluster has an authority: tokens can be made.
void rig_authority(struct rig *r);
