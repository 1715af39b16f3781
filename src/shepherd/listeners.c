// Owns the question whose program listens on a port of the node's network, where anybody may. The kernel is asked for
// the listening sockets of this port alone: its table in /proc has a line for every connection of the node and takes
// milliseconds to read even when it is nearly empty. It is read where the kernel has no such questions.
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "shepherd.h"

enum { ANSWER_BYTES = 16 << 10, ANSWERS_MAX = 64, ANSWER_PATIENCE_S = 2 };

static int ask(int fd, int family, uint16_t port) {
    struct {
        struct nlmsghdr head;
        struct inet_diag_req_v2 body;
    } q = {.head = {.nlmsg_len = sizeof q,
                    .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                    .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
           .body = {.sdiag_family = (uint8_t)family,
                    .sdiag_protocol = IPPROTO_TCP,
                    .idiag_states = 1u << TCP_LISTEN,
                    .id = {.idiag_sport = htons(port)}}};
    return send(fd, &q, sizeof q, 0) == (ssize_t)sizeof q ? 0 : -EOPNOTSUPP;
}

// One of what the kernel answers: whether the answer goes on, and in *found whose the listeners are so far.
static bool take(const struct nlmsghdr *h, uint16_t port, uint32_t uid, int *found) {
    if (h->nlmsg_type == NLMSG_DONE)
        return false;
    if (h->nlmsg_type != SOCK_DIAG_BY_FAMILY || h->nlmsg_len < NLMSG_LENGTH(sizeof(struct inet_diag_msg))) {
        *found = -EOPNOTSUPP;
        return false;
    }
    const struct inet_diag_msg *m = NLMSG_DATA(h);
    if (m->id.idiag_sport != htons(port))
        return true;
    if (m->idiag_uid != uid)
        *found = -EACCES;
    else if (*found == -ECONNREFUSED)
        *found = 0;
    return true;
}

static int check_by_question(int family, uint16_t port, uint32_t uid) {
    _Alignas(struct nlmsghdr) char answer[ANSWER_BYTES];
    const struct timeval patience = {.tv_sec = ANSWER_PATIENCE_S};
    int found = -ECONNREFUSED;
    cleanup_close int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) < 0 ||
        ask(fd, family, port) < 0)
        return -EOPNOTSUPP;
    for (int i = 0; i < ANSWERS_MAX; i++) {
        ssize_t n = recv(fd, answer, sizeof answer, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -EOPNOTSUPP;
        size_t left = (size_t)n;
        for (const struct nlmsghdr *h = (const void *)answer; NLMSG_OK(h, left); h = NLMSG_NEXT(h, left))
            if (!take(h, port, uid, &found))
                return found;
    }
    return -EOPNOTSUPP;
}

// The kernel's table has a line for each socket: number, local and remote address, state, queues, timer, retransmits,
// user.
static int check_by_table(int family, uint16_t port, uint32_t uid) {
    char line[512];
    int found = -ECONNREFUSED;
    FILE *f = fopen(family == AF_INET ? "/proc/self/net/tcp" : "/proc/self/net/tcp6", "re");
    while (f && found != -EACCES && fgets(line, sizeof line, f)) {
        unsigned at, state, owner;
        if (sscanf(line, " %*u: %*[0-9A-Fa-f]:%x %*s %x %*s %*s %*s %u", &at, &state, &owner) == 3 &&
            at == port && state == TCP_LISTEN)
            found = owner == uid ? 0 : -EACCES;
    }
    if (f)
        fclose(f);
    return found;
}

static int check_family(int family, uint16_t port, uint32_t uid) {
    int r = check_by_question(family, port, uid);
    return r == -EOPNOTSUPP ? check_by_table(family, port, uid) : r;
}

int listeners_check(uint16_t port, uint32_t uid) {
    int v4 = check_family(AF_INET, port, uid), v6 = check_family(AF_INET6, port, uid);
    return v4 == -EACCES || v6 == -EACCES ? -EACCES : v4 && v6 ? -ECONNREFUSED : 0;
}
