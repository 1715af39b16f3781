// Budgets of connections and unfinished bodies. Three rules:
// - connections over TLS and the loopback interface never use up those of the unix socket, and administrators of the
//   unix socket (root and the server's own user) have a reserve that nobody else can take;
// - bodies up to NET_SMALL_BODY_BYTES are never refused for lack of room: their sum is bounded by the connections;
// - when all large bodies together exceed the limit, the account that holds the most gives up one of its own.
#include "budget.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "server_internal.h"

static struct net_budget *budget_get(struct net_server *s, const char *key) {
    struct net_budget *b = strmap_get(&s->budgets, key);
    if (!b) {
        size_t len = strlen(key);
        b = xcalloc(1, sizeof *b + len + 1);
        memcpy(b->key, key, len + 1);
        b->account.unsent_max = s->options.user_unsent_max;
        b->account.many_pieces = CONN_MANY_PIECES;
        b->account.all = strncmp(key, "address ", 8) == 0 ? &s->strangers : NULL;
        strmap_put(&s->budgets, b->key, b);
    }
    b->refs++;
    return b;
}

static void budget_put(struct net_server *s, struct net_budget *b) {
    if (!b || --b->refs)
        return;
    assert(b->connections == 0 && b->receiving == 0);
    strmap_remove(&s->budgets, b->key);
    free(b);
}

static bool is_local_admin(const struct net_peer *peer) {
    return peer->kind == NET_PEER_UNIX && (peer->uid == 0 || peer->uid == geteuid());
}

// Those who keep the cluster going are not held up: root and the server's own user. Nodes take turns as all others do,
// so that one with a certificate cannot hold up the rest; what is sent to them and what they send is not limited.
static struct conn_account *account_of(struct net_budget *b, const struct net_peer *peer) {
    if (is_local_admin(peer))
        return NULL;
    if (strncmp(b->key, "node ", 5) == 0) {
        b->account.unsent_max = UINT64_MAX;
        b->account.many_pieces = UINT32_MAX;
        b->account.always_heard = true;
    }
    return &b->account;
}

static void address_key(const struct net_peer *peer, char *out, size_t size) {
    char network[NET_ADDRESS_MAX];
    net_address_network(peer->address, network, sizeof network);
    snprintf(out, size, "address %s", network);
}

bool net_budget_accept(struct net_server *s, struct http_conn *h) {
    const struct net_server_options *o = &s->options;
    const struct net_peer *peer = &h->conn.peer;
    char key[NET_BUDGET_KEY_MAX];
    bool network = peer->kind != NET_PEER_UNIX;
    if (network)
        address_key(peer, key, sizeof key);
    else
        snprintf(key, sizeof key, "uid %u", (unsigned)peer->uid);
    h->budget = budget_get(s, key);
    h->budget->connections++;
    net_conn_set_account(&h->conn, account_of(h->budget, peer));
    s->admitted++;
    s->network_connections += network;
    bool ok = is_local_admin(peer) ? s->admitted <= o->connections_max + o->admin_connections
                                   : s->admitted <= o->connections_max &&
                                         (!network || s->network_connections <= o->network_connections_max) &&
                                         h->budget->connections <=
                                             (network ? o->address_connections_max : o->user_connections_max);
    if (!ok)  // it is closed at the end of the loop turn, and must not count against others until then
        net_budget_release(s, h);
    return ok;
}

bool net_budget_identify(struct http_conn *h, const char *account) {
    struct net_server *s = h->server;
    h->identified = true;
    if (strcmp(h->budget->key, account) == 0)
        return true;
    struct net_budget *b = budget_get(s, account);
    if (b->connections >= s->options.user_connections_max) {
        budget_put(s, b);
        return false;
    }
    assert(h->receiving == 0);
    net_conn_set_account(&h->conn, account_of(b, &h->conn.peer));
    h->budget->connections--;
    budget_put(s, h->budget);
    h->budget = b;
    b->connections++;
    return true;
}

static struct net_budget *largest(const struct net_server *s) {
    struct net_budget *best = NULL;
    size_t it = 0;
    void *v;
    while (strmap_next(&s->budgets, &it, NULL, &v)) {
        struct net_budget *b = v;
        if (!best || b->receiving > best->receiving)
            best = b;
    }
    return best;
}

static struct http_conn *largest_body_of(const struct net_server *s, const struct net_budget *b) {
    struct http_conn *best = NULL;
    for (struct http_conn *h = s->first; h; h = h->next)
        if (h->budget == b && (!best || h->receiving > best->receiving))
            best = h;
    return best;
}

bool net_budget_receive(struct http_conn *h, struct http_conn **victim) {
    struct net_server *s = h->server;
    const struct net_server_options *o = &s->options;
    size_t now = h->current ? h->current->message.body.len : h->message_bytes;
    if (now <= o->small_body_bytes)
        now = 0;
    s->receiving += now - h->receiving;
    h->budget->receiving += now - h->receiving;
    h->receiving = now;
    *victim = h;
    if (!now || (s->receiving <= o->receiving_max && h->budget->receiving <= o->user_receiving_max))
        return true;
    if (h->budget->receiving <= o->user_receiving_max) {
        struct net_budget *most = largest(s);
        if (most != h->budget)
            *victim = largest_body_of(s, most);
    }
    return false;
}

void net_budget_release(struct net_server *s, struct http_conn *h) {
    if (!h->budget)
        return;
    net_conn_set_account(&h->conn, NULL);
    s->receiving -= h->receiving;
    h->budget->receiving -= h->receiving;
    h->receiving = 0;
    h->budget->connections--;
    s->admitted--;
    s->network_connections -= h->conn.peer.kind != NET_PEER_UNIX;
    budget_put(s, h->budget);
    h->budget = NULL;
}
