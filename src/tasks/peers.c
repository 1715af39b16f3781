// Owns the sockets between nodes: bytes in and out, the parts of values that were asked for, silence.
#include "peers.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/text.h"
#include "tasks/wire.h"

enum {
    READ_BYTES = 512 << 10,
    CHUNK_BYTES = 512 << 10,   // of a value in one frame
    OUT_ENOUGH = 1 << 20,      // unsent, after which a value waits
    PEERS_MAX = 4096,
    READS_MAX = 4096,          // that one connection may have asked for
    UNPROVED_MAX = 64,         // that have not shown the key yet; the oldest makes room for the next
    PROOF_PATIENCE_US = 10 * 1000 * 1000,
    PING_US = 5 * 1000 * 1000,
    SILENCE_US = 20 * 1000 * 1000,
    TURN_MS = 1000,
};

static void watch(struct peers *ps, struct pool_peer *p, int op) {
    bool out = p->wants_write || p->connecting;
    struct epoll_event e = {.events = EPOLLIN | (out ? EPOLLOUT : 0), .data.u64 = ps->source << 32 | p->number};
    epoll_ctl(ps->epoll, op, p->fd, &e);
}

static struct pool_peer *peer_new(struct peers *ps, int fd, bool server, enum peer_kind kind) {
    struct pool_peer *p = xcalloc(1, sizeof *p);
    int yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    *p = (struct pool_peer){.number = ++ps->next, .fd = fd, .kind = kind, .connecting = !server};
    p->heard_us = p->said_us = ps->turn_us;
    if (tasks_link_init(&p->link, server, ps->key) < 0) {
        close(fd);
        free(p);
        return NULL;
    }
    map_put(&ps->peers, p->number, p);
    watch(ps, p, EPOLL_CTL_ADD);
    return p;
}

static int listen_on(uint16_t port) {
    int no = 0, yes = 1, fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = in6addr_any};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(port)};
    if (fd >= 0) {
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        if (bind(fd, (struct sockaddr *)&six, sizeof six) == 0 && listen(fd, 128) == 0)
            return fd;
        int before = errno;
        close(fd);
        errno = before;
        if (before == EADDRINUSE)
            return -1;
    }
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);  // a system without IPv6
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(fd, (struct sockaddr *)&four, sizeof four) == 0 && listen(fd, 128) == 0)
        return fd;
    close(fd);
    return -1;
}

int peers_listen(struct peers *ps, bool fixed) {
    ps->listener = -1;
    for (uint32_t i = 0; i < (fixed ? LINK_PORTS : 1) && ps->listener < 0; i++)
        ps->listener = listen_on(fixed ? tasks_link_port(ps->key, i) : 0);
    if (ps->listener < 0)
        return -errno;
    struct sockaddr_storage at;
    socklen_t len = sizeof at;
    getsockname(ps->listener, (struct sockaddr *)&at, &len);
    return ntohs(at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port
                                          : ((struct sockaddr_in *)&at)->sin_port);
}

// Anybody can connect: strangers must not use up the places and descriptors of those who have the key.
static void make_room(struct peers *ps) {
    struct pool_peer *oldest = NULL;
    uint32_t unproved = 0;
    uint64_t key;
    void *value;
    for (size_t it = 0; map_next(&ps->peers, &it, &key, &value);) {
        struct pool_peer *p = value;
        if (!p->link.server || p->link.open)
            continue;
        unproved++;
        if (!oldest || p->number < oldest->number)
            oldest = p;
    }
    if (unproved >= UNPROVED_MAX)
        peers_close(ps, oldest, "others came after it");
}

void peers_accept(struct peers *ps) {
    struct sockaddr_storage from;
    socklen_t len = sizeof from;
    int fd = accept4(ps->listener, (struct sockaddr *)&from, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    make_room(ps);
    struct pool_peer *p = ps->peers.len < PEERS_MAX ? peer_new(ps, fd, true, PEER_UNKNOWN) : (close(fd), NULL);
    if (!p)
        return;
    p->connecting = false;
    getnameinfo((struct sockaddr *)&from, len, p->address, sizeof p->address, NULL, 0, NI_NUMERICHOST);
    if (strncmp(p->address, "::ffff:", strlen("::ffff:")) == 0)  // an IPv4 address, for which others may have no IPv6
        memmove(p->address, p->address + strlen("::ffff:"), strlen(p->address) - strlen("::ffff:") + 1);
}

struct pool_peer *peers_connect(struct peers *ps, const char *address, uint16_t port, enum peer_kind kind) {
    char text[8];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    snprintf(text, sizeof text, "%u", port);
    if (getaddrinfo(address, text, &hints, &found) != 0 || !found)
        return NULL;
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int r = fd < 0 ? -1 : connect(fd, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    if (r < 0 && (fd < 0 || errno != EINPROGRESS)) {
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    struct pool_peer *p = peer_new(ps, fd, false, kind);
    if (!p)
        return NULL;
    snprintf(p->address, sizeof p->address, "%s", address);
    p->port = port;
    return p;
}

void peers_close(struct peers *ps, struct pool_peer *p, const char *why) {
    map_remove(&ps->peers, p->number);
    if (p->kind == PEER_CONTROL)
        ps->host->ended(ps->ctx, p, why);
    for (uint32_t i = 0; i < p->fetches.len; i++)
        vec_push(&ps->failed, p->fetches.at[i].id);
    close(p->fd);
    tasks_link_done(&p->link);
    vec_done(&p->reads);
    vec_done(&p->fetches);
    free(p);
}

// --- values ---

static void send_read(struct pool_peer *p, uint64_t id, uint64_t at, uint64_t size) {
    cleanup_buf struct buf b = {0};
    tasks_add_u64(&b, id);
    tasks_add_u64(&b, at);
    tasks_add_u64(&b, size);
    tasks_link_send(&p->link, LINK_READ, b.data, b.len, NULL, 0);
}

void peers_fetch(struct peers *ps, const char *address, uint16_t port, const struct peer_fetch *f, uint64_t from_at) {
    uint64_t key;
    void *value;
    struct pool_peer *p = NULL;
    for (size_t it = 0; !p && map_next(&ps->peers, &it, &key, &value);) {
        struct pool_peer *one = value;
        if (one->kind == PEER_ASKED && one->port == port && streq(one->address, address))
            p = one;
    }
    if (!p)
        p = peers_connect(ps, address, port, PEER_ASKED);
    if (!p || f->size > ps->memory_bytes || f->at > ps->memory_bytes - f->size) {
        vec_push(&ps->failed, f->id);
        return;
    }
    vec_push(&p->fetches, *f);
    p->fetches.at[p->fetches.len - 1].done = 0;
    if (p->link.open)
        send_read(p, f->id, from_at, f->size);
    else  // sent when it is open
        vec_push(&p->reads, (struct peer_read){f->id, from_at, f->size});
}

static int on_read(struct peers *ps, struct pool_peer *p, struct tasks_reader *r) {
    struct peer_read one = {.id = tasks_read_u64(r), .at = tasks_read_u64(r), .size = tasks_read_u64(r)};
    if (r->bad || one.size > ps->memory_bytes || one.at > ps->memory_bytes - one.size || p->reads.len >= READS_MAX)
        return -EPROTO;
    vec_push(&p->reads, one);
    return 0;
}

static int on_bytes(struct peers *ps, struct pool_peer *p, struct tasks_reader *r) {
    uint64_t id = tasks_read_u64(r), len = (uint64_t)(r->end - r->at);
    struct peer_fetch *f = p->fetches.len ? &p->fetches.at[0] : NULL;  // they are answered in order
    if (r->bad || !f || f->id != id || len > f->size - f->done)
        return -EPROTO;
    memcpy(ps->memory + f->at + f->done, r->at, len);
    f->done += len;
    if (f->done < f->size)
        return 0;
    vec_remove(&p->fetches, 0);
    ps->host->fetched(ps->ctx, id, true);
    return 0;
}

// More of what the other side asked for, while it reads.
static void serve(struct peers *ps, struct pool_peer *p) {
    while (p->kind == PEER_SERVED && p->reads.len && p->link.out.len < OUT_ENOUGH) {
        struct peer_read *r = &p->reads.at[0];
        uint64_t n = r->size < CHUNK_BYTES ? r->size : CHUNK_BYTES;
        tasks_link_send(&p->link, LINK_BYTES, &r->id, sizeof r->id, ps->memory + r->at, n);
        r->at += n;
        r->size -= n;
        if (!r->size)
            vec_remove(&p->reads, 0);
    }
}

// --- bytes ---

static void flush(struct peers *ps, struct pool_peer *p) {
    struct buf *out = &p->link.out;
    size_t at = 0;
    serve(ps, p);
    while (!p->connecting && at < out->len) {
        ssize_t n = send(p->fd, out->data + at, out->len - at, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0)
            break;  // what is wrong is seen when it is read
        at += (size_t)n;
        p->said_us = ps->turn_us;
    }
    if (at)
        buf_drop(out, at);
    bool wants = out->len > 0 || (p->kind == PEER_SERVED && p->reads.len > 0);
    if (wants != p->wants_write) {
        p->wants_write = wants;
        watch(ps, p, EPOLL_CTL_MOD);
    }
}

void peers_flush(struct peers *ps) {
    uint64_t key;
    void *value;
    for (size_t it = 0; map_next(&ps->peers, &it, &key, &value);)
        if (!((struct pool_peer *)value)->wants_write)
            flush(ps, value);
}

static int on_frame(struct peers *ps, struct pool_peer *p, enum tasks_link_frame type, const char *body, size_t len) {
    struct tasks_reader r = {.at = (const uint8_t *)body, .end = (const uint8_t *)body + len};
    if (p->kind == PEER_UNKNOWN && type == LINK_READ)
        p->kind = PEER_SERVED;
    if (p->kind == PEER_UNKNOWN && type == LINK_JOIN)
        p->kind = PEER_CONTROL;
    if (type == LINK_PING)
        return 0;
    switch (p->kind) {
    case PEER_SERVED: return type == LINK_READ ? on_read(ps, p, &r) : -EPROTO;
    case PEER_ASKED: return type == LINK_BYTES ? on_bytes(ps, p, &r) : -EPROTO;
    case PEER_CONTROL: ps->host->frame(ps->ctx, p, type, body, len); return p->bad ? -EPROTO : 0;
    case PEER_UNKNOWN: return -EPROTO;
    }
    return -EPROTO;
}

static void on_open(struct peers *ps, struct pool_peer *p) {
    if (p->kind == PEER_CONTROL)
        ps->host->opened(ps->ctx, p);
    if (p->kind != PEER_ASKED)
        return;
    for (uint32_t i = 0; i < p->reads.len; i++)
        send_read(p, p->reads.at[i].id, p->reads.at[i].at, p->reads.at[i].size);
    vec_clear(&p->reads);
}

static int on_readable(struct peers *ps, struct pool_peer *p) {
    char *room = buf_reserve(&p->link.in, READ_BYTES);
    ssize_t n = recv(p->fd, room, READ_BYTES, MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    if (n == 0)
        return -ECONNRESET;
    p->link.in.len += (size_t)n;
    if (p->link.open)  // until then patience counts from the beginning, however slowly bytes come
        p->heard_us = ps->turn_us;
    enum tasks_link_frame type;
    const char *body;
    size_t len;
    int r = 1;
    while (r > 0) {
        bool open = p->link.open;
        r = tasks_link_next(&p->link, &type, &body, &len);
        if (r >= 0 && !open && p->link.open)
            on_open(ps, p);
        if (r > 0)
            r = on_frame(ps, p, type, body, len) < 0 ? -EPROTO : 1;
    }
    return r;
}

void peers_event(struct peers *ps, uint32_t number, uint32_t events) {
    struct pool_peer *p = map_get(&ps->peers, number);
    int r = 0;
    if (!p)
        return;
    if (p->connecting && events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) {
        socklen_t len = sizeof r;
        getsockopt(p->fd, SOL_SOCKET, SO_ERROR, &r, &len);
        p->connecting = false;
        p->wants_write = true;  // as it is watched
        r = -r;
    }
    if (!r && events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        r = on_readable(ps, p);
    if (r < 0)
        peers_close(ps, p, r == -EPERM || r == -EBADMSG ? "it has not the key of this pool" : strerror(-r));
    else
        flush(ps, p);
}

int peers_turn(struct peers *ps, int64_t now_us) {
    VEC(struct pool_peer *) silent = {0};
    uint64_t key;
    void *value;
    // All of the job's processes may have stood still together: nobody is to blame for that time.
    int64_t still = now_us - ps->turn_us > 2 * TURN_MS * 1000LL ? now_us - ps->turn_us : 0;
    ps->turn_us = now_us;
    for (size_t it = 0; map_next(&ps->peers, &it, &key, &value);) {
        struct pool_peer *p = value;
        p->heard_us += still;
        p->said_us += still;
        bool busy = p->kind == PEER_CONTROL || p->fetches.len;
        int64_t patience = p->link.open ? SILENCE_US : PROOF_PATIENCE_US;
        if ((busy || !p->link.open) && now_us - p->heard_us > patience)
            vec_push(&silent, p);
        else if (p->link.open && p->kind == PEER_CONTROL && now_us - p->said_us >= PING_US)
            tasks_link_send(&p->link, LINK_PING, NULL, 0, NULL, 0);
        if (!busy)
            p->heard_us = p->link.open ? now_us : p->heard_us;
    }
    for (uint32_t i = 0; i < silent.len; i++)
        peers_close(ps, silent.at[i], "it said nothing for too long");
    vec_done(&silent);
    for (uint32_t n = ps->failed.len; n; n--) {
        uint64_t id = ps->failed.at[0];
        vec_remove(&ps->failed, 0);
        ps->host->fetched(ps->ctx, id, false);
    }
    peers_flush(ps);
    return ps->failed.len ? 0 : ps->peers.len ? TURN_MS : -1;
}

void peers_done(struct peers *ps) {
    static const struct peers_host nobody;
    uint64_t key;
    void *value;
    for (size_t it = 0; map_next(&ps->peers, &it, &key, &value);) {
        struct pool_peer *p = value;
        close(p->fd);
        tasks_link_done(&p->link);
        vec_done(&p->reads);
        vec_done(&p->fetches);
        free(p);
    }
    ps->host = &nobody;
    vec_done(&ps->failed);
    map_done(&ps->peers);
    if (ps->listener >= 0)
        close(ps->listener);
}
