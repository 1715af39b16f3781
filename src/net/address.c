// Owns what counts as one sender among those whom nobody knows: budgets of connections, logins and wrong secrets are
// kept for each. Whoever has an IPv6 address has a whole network of 2^64 of them, so that network is the sender.
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "net/socket.h"

enum { NETWORK_BYTES = 8 };

// Addresses that stand for themselves: IPv4 in IPv6, the machine itself, and those of one cable, which share a network.
static bool is_single(const struct in6_addr *a) {
    return IN6_IS_ADDR_V4MAPPED(a) || IN6_IS_ADDR_LOOPBACK(a) || IN6_IS_ADDR_LINKLOCAL(a);
}

void net_address_network(const char *address, char *out, size_t size) {
    const char *end = strrchr(address, ']');
    char text[INET6_ADDRSTRLEN];
    struct in6_addr a;
    int len = end ? (int)(end - address) + 1 : (int)strlen(address);
    snprintf(out, size, "%.*s", len, address);
    if (!end || *address != '[' || (size_t)len - 2 >= sizeof text)
        return;
    snprintf(text, sizeof text, "%.*s", len - 2, address + 1);
    if (inet_pton(AF_INET6, text, &a) != 1 || is_single(&a))
        return;
    memset(a.s6_addr + NETWORK_BYTES, 0, sizeof a.s6_addr - NETWORK_BYTES);
    if (inet_ntop(AF_INET6, &a, text, sizeof text))
        snprintf(out, size, "[%s/64]", text);
}
