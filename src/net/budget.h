// Budgets of the server (inside net/ only): connections and bytes of unfinished bodies, counted per account.
// An account is a user of the unix socket ("uid N"), an address that has not identified itself ("address A"), or the
// name that the caller gives to an identified request ("user alice", "node n1"). One account that spends its budget
// is refused; the others are not affected.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "conn.h"

struct net_server;
struct http_conn;
struct net_peer;
enum { NET_BUDGET_KEY_MAX = 320 };

struct net_budget {
    uint32_t refs, connections;
    uint64_t receiving;  // bytes of bodies and messages that are not complete yet, small ones not counted
    struct conn_account account;
    char key[];
};

// Counts a new connection. False: one of the limits is reached, the connection must be closed.
bool net_budget_accept(struct net_server *s, struct http_conn *h);
// The connection is somebody's whose identity is known from now on. False: that account has too many connections.
bool net_budget_identify(struct http_conn *h, const char *account);
// Counts the bytes of the body, or of the WebSocket message, being received. False: too many; *victim is the connection
// to be refused, which is `h` itself or one of the account with the most bytes.
bool net_budget_receive(struct http_conn *h, struct http_conn **victim);
void net_budget_release(struct net_server *s, struct http_conn *h);
