// Owns the question whose program listens on a port of the node's network, where anybody may. The kernel is asked for
// the listening sockets of this port alone: its table in /proc has a line for every connection of the node and takes
// milliseconds to read even when it is nearly empty. It is read where the kernel has no such questions.
// A socket of the job's user must also be open in a process of the attempt: the same user may run other programs on the
// node. Finding that out takes a look at all of the attempt's descriptors, so it is remembered by the socket's inode.
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
#include "base/clock.h"
#include "cgroup/procs.h"
#include "shepherd.h"

enum {
    ANSWER_BYTES = 16 << 10,
    ANSWERS_MAX = 64,
    ANSWER_PATIENCE_S = 2,
    LOOK_AGAIN_MS = 1000,  // at the attempt's descriptors, for a socket that was not among them
};

// What listens where a connection to 127.0.0.1 arrives.
struct found {
    bool any, of_others;  // of_others: another user's
    uint32_t inodes[LISTENERS_MAX];
    uint32_t len;
};

static void add(struct found *f, uint32_t owner, uint32_t uid, uint32_t inode) {
    f->any = true;
    f->of_others |= owner != uid;
    if (f->len < LISTENERS_MAX)
        f->inodes[f->len++] = inode;
}

// An address as the kernel has it: one word, or four of which the last may be of version 4.
static bool takes_loopback(int family, const uint32_t *address) {
    const uint32_t last = family == AF_INET ? address[0] : address[3];
    if (family == AF_INET6 && (address[0] || address[1] || (address[2] && address[2] != htonl(0xffff))))
        return false;
    if (family == AF_INET6 && !address[2])
        return !last;  // ::, but not ::1
    return !last || last == htonl(INADDR_LOOPBACK);
}

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

// One of what the kernel answers: 1: the answer goes on, 0: it is over, negative: the kernel has no such questions.
static int take(const struct nlmsghdr *h, uint16_t port, uint32_t uid, struct found *f) {
    if (h->nlmsg_type == NLMSG_DONE)
        return 0;
    if (h->nlmsg_type != SOCK_DIAG_BY_FAMILY || h->nlmsg_len < NLMSG_LENGTH(sizeof(struct inet_diag_msg)))
        return -EOPNOTSUPP;
    const struct inet_diag_msg *m = NLMSG_DATA(h);
    if (m->id.idiag_sport == htons(port) && takes_loopback(m->idiag_family, m->id.idiag_src))
        add(f, m->idiag_uid, uid, m->idiag_inode);
    return 1;
}

static int find_by_question(int family, uint16_t port, uint32_t uid, struct found *f) {
    _Alignas(struct nlmsghdr) char answer[ANSWER_BYTES];
    const struct timeval patience = {.tv_sec = ANSWER_PATIENCE_S};
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
        for (const struct nlmsghdr *h = (const void *)answer; NLMSG_OK(h, left); h = NLMSG_NEXT(h, left)) {
            int r = take(h, port, uid, f);
            if (r <= 0)
                return r;
        }
    }
    return -EOPNOTSUPP;
}

// The kernel's table has a line for each socket: number, local and remote address, state, queues, timer, retransmits,
// user, timeout, inode.
static void find_by_table(int family, uint16_t port, uint32_t uid, struct found *f) {
    char line[512];
    FILE *file = fopen(family == AF_INET ? "/proc/self/net/tcp" : "/proc/self/net/tcp6", "re");
    while (file && fgets(line, sizeof line, file)) {
        unsigned at, state, owner, inode;
        uint32_t a[4] = {0};
        int n = family == AF_INET
                    ? sscanf(line, " %*u: %8x:%x %*s %x %*s %*s %*s %u %*s %u", &a[0], &at, &state, &owner, &inode)
                    : sscanf(line, " %*u: %8x%8x%8x%8x:%x %*s %x %*s %*s %*s %u %*s %u", &a[0], &a[1], &a[2],
                             &a[3], &at, &state, &owner, &inode);
        if (n == (family == AF_INET ? 5 : 8) && at == port && state == TCP_LISTEN && takes_loopback(family, a))
            add(f, owner, uid, inode);
    }
    if (file)
        fclose(file);
}

static bool is_known(const struct listeners_known *k, uint32_t inode) {
    for (uint32_t i = 0; i < LISTENERS_MAX; i++)
        if (k->own[i] == inode)
            return true;
    return false;
}

// Looks once for all that are not known yet. Sockets that may be in processes which the kernel does not show to us
// count as the attempt's: they are the user's at least.
static int check_attempt(struct listeners_known *k, pid_t shepherd, const struct found *f) {
    uint32_t unknown[LISTENERS_MAX], n = 0;
    bool held[LISTENERS_MAX];
    int64_t now_ms = clock_mono_ms();
    for (uint32_t i = 0; i < f->len; i++)
        if (!is_known(k, f->inodes[i]))
            unknown[n++] = f->inodes[i];
    for (uint32_t i = 0; i < n; i++)
        if (unknown[i] == k->foreign && now_ms < k->foreign_until_ms)
            return -EADDRINUSE;
    if (!n)
        return 0;
    bool complete = cgroup_procs_tree_sockets(shepherd, unknown, n, held);
    for (uint32_t i = 0; i < n; i++)
        if (held[i] || !complete) {
            k->own[k->next++ % LISTENERS_MAX] = unknown[i];
        } else {
            k->foreign = unknown[i];
            k->foreign_until_ms = clock_mono_ms() + LOOK_AGAIN_MS;
            return -EADDRINUSE;
        }
    return 0;
}

int listeners_check(struct listeners_known *k, pid_t shepherd, uint16_t port, uint32_t uid) {
    static const int families[] = {AF_INET, AF_INET6};
    struct found f = {0};
    for (size_t i = 0; i < 2; i++)
        if (find_by_question(families[i], port, uid, &f) < 0)
            find_by_table(families[i], port, uid, &f);
    if (!f.any)
        return -ECONNREFUSED;
    return f.of_others ? -EACCES : check_attempt(k, shepherd, &f);
}
