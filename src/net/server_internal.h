// Shared by the files of the server only: connections that speak HTTP, and their requests.
#pragma once
#include "base/map.h"
#include "base/vec.h"
#include "budget.h"
#include "conn.h"
#include "net/server.h"

struct listener;

// A crowd that connects at once is let in over several turns of the loop.
enum { NET_ACCEPT_TURN = 64 };

struct net_server {
    uv_loop_t *loop;
    struct net_server_options options;
    VEC(struct listener *) listeners;
    uint32_t listeners_open;
    struct http_conn *first;
    uint32_t connections;                // open, including those that are being closed
    uint32_t admitted, network_connections;  // within the budgets
    uint32_t accepted_max;                   // by one listener in one turn of the loop
    uint64_t receiving;     // bytes of large bodies that are not complete yet
    struct strmap budgets;  // account → struct net_budget
    struct conn_handshakes handshakes;
    uint16_t port;
    bool closing;
    uv_timer_t grace;
    void (*done)(void *user);
    void *done_user;
    struct conn_account strangers;  // what input of those whom nobody knows costs
    char read_buffer[CONN_READ_BYTES];
};

struct net_server_request {
    struct net_request pub;
    struct http_message message;
    struct http_conn *conn;  // a reference on it
    struct net_server_request *prev, *next;
    struct buf out;    // answer so far, while earlier requests are not answered
    struct buf extra;  // header lines
    struct buf late_text;   // a refusal that is held back
    const char *late_type;
    int late_status;
    void (*on_close)(struct net_request *, void *user);
    void (*on_drain)(struct net_request *, void *user);
    void *watch_user;
    bool linked, gone, streaming, chunked, done, last;
    struct {
        net_answer_fn fn;  // NULL: none
        void *user;
        size_t max;
        struct buf body;
        int status;  // 0: no answer has begun
        const char *type;
    } capture;
};

struct http_conn {
    struct net_conn conn;
    struct net_server *server;  // NULL once the connection is closed
    struct http_conn *prev, *next;
    struct http_parser parser;
    struct net_server_request *current;        // being parsed
    struct net_server_request *held;           // an upgrade that waits for the answers before it
    struct net_server_request *first, *last;   // dispatched, answers due in this order
    unsigned count;
    size_t queued;     // bytes of answers that wait for their turn
    struct net_budget *budget;  // the account it counts for
    size_t receiving;           // this connection's part of the account's
    size_t message_bytes;       // of a WebSocket message that is not complete yet
    struct net_server_request *refused;    // a refusal that is held back
    char pass[NET_PASS_MAX + 1];  // "": none is needed
    bool upgrading;  // an upgrade request is with the handler: nothing after it is parsed
    bool upgraded;
    bool no_more;    // no request after those already taken
    bool identified; // by the caller, as an account; on the unix socket always
    bool consuming;
};

void http_conn_start(struct net_server *s, struct http_conn *h);  // peer and tls are set
void http_conn_shutdown(struct http_conn *h);
struct net_server_request *net_request_new(struct http_conn *h);
struct net_server_request *net_request_free(struct net_server_request *r);
// All of r's answer is written: the next ones may leave.
void http_conn_advance(struct http_conn *h);
void http_conn_unlink(struct net_server_request *r);
