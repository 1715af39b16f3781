// Owns the connections to the processes of other nodes, and which worker is where.
#include "nodes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/alloc.h"

enum {
    NAME_MAX_BYTES = 255,
    UNSENT_MAX = 4 << 20,  // to a node, after which its workers get no more tasks
    SEND_BYTES = 1 << 20,  // of frames in one record
};

struct remote_node {
    uint32_t number;
    struct pool_peer *peer;
    uint16_t port;
    struct map workers;
};

struct remote_worker {
    uint32_t worker, conn;
    struct remote_node *node;
    struct buf tail;
};

struct nodes {
    struct peers peers;
    struct tasks_pool *pool;
    struct map nodes;    // by number
    struct map by_peer;  // by number of the connection
    struct map workers;  // by number + 1
    struct map conns;    // remote_worker by connection
};

bool nodes_key(uint8_t key[static LINK_KEY_BYTES]) {
    bool good = tasks_link_key(getenv("ACEQUIA_POOL_KEY"), key) == 0;
    unsetenv("ACEQUIA_POOL_KEY");
    if (!good)
        fprintf(stderr, "acequia-tasks: ACEQUIA_POOL_KEY has no key of a pool\n");
    return good;
}

uint32_t nodes_split_gpus(char *list, const char *names[static WORKERS_GPUS_MAX]) {
    uint32_t n = 0;
    for (char *at = list; at && *at && n < WORKERS_GPUS_MAX;) {
        names[n++] = at;
        at += strcspn(at, ",");
        if (*at)
            *at++ = 0;
    }
    return n;
}

static struct remote_worker *worker_of(const struct nodes *ns, uint32_t worker) {
    return map_get(&ns->workers, (uint64_t)worker + 1);
}

bool nodes_has(const struct nodes *ns, uint32_t worker) {
    return worker_of(ns, worker) != NULL;
}

// --- to the nodes ---

static void tell(const struct remote_worker *w, enum tasks_link_frame type, const void *body, size_t len) {
    tasks_link_send(&w->node->peer->link, type, &w->worker, sizeof w->worker, body, len);
}

void nodes_start(struct nodes *ns, uint32_t node, uint32_t worker, uint32_t conn, const char *gpus) {
    cleanup_buf struct buf b = {0};
    struct remote_worker *w = xcalloc(1, sizeof *w);
    *w = (struct remote_worker){.worker = worker, .conn = conn, .node = map_get(&ns->nodes, node)};
    map_put(&ns->workers, (uint64_t)worker + 1, w);
    map_put(&ns->conns, conn, w);
    map_put(&w->node->workers, (uint64_t)worker + 1, w);
    tasks_add_u32(&b, conn);
    buf_adds(&b, gpus);
    tell(w, LINK_START, b.data, b.len);
}

int nodes_give(struct nodes *ns, uint32_t worker, const struct buf *packet) {
    const struct remote_worker *w = worker_of(ns, worker);
    if (w->node->peer->link.out.len > UNSENT_MAX)
        return -EAGAIN;
    tell(w, LINK_GIVE, packet->data, packet->len);
    return 0;
}

void nodes_ask_back(struct nodes *ns, uint32_t worker) {
    const struct remote_worker *w = worker_of(ns, worker);
    if (w)
        tell(w, LINK_ASK_BACK, NULL, 0);
}

void nodes_stop(struct nodes *ns, uint32_t worker, bool kill) {
    uint8_t how = kill;
    tell(worker_of(ns, worker), LINK_STOP, &how, 1);
}

void nodes_output(struct nodes *ns, uint32_t worker, struct buf *out) {
    struct remote_worker *w = worker_of(ns, worker);
    buf_add(out, w->tail.data, w->tail.len);
    buf_clear(&w->tail);
}

void nodes_send(struct nodes *ns, uint32_t conn, const struct buf *frames) {
    const struct remote_worker *w = map_get(&ns->conns, conn);
    for (size_t at = 0; w && at < frames->len; at += SEND_BYTES)
        tell(w, LINK_SEND, frames->data + at, frames->len - at < SEND_BYTES ? frames->len - at : SEND_BYTES);
}

size_t nodes_unsent(const struct nodes *ns, uint32_t conn) {
    const struct remote_worker *w = map_get(&ns->conns, conn);
    return w ? w->node->peer->link.out.len : 0;
}

void nodes_drop(struct nodes *ns, uint32_t node, uint64_t at, uint64_t size) {
    const struct remote_node *n = map_get(&ns->nodes, node);
    if (n)
        tasks_link_send(&n->peer->link, LINK_DROP, &at, sizeof at, &size, sizeof size);
}

void nodes_fetch(struct nodes *ns, uint32_t to, const struct peer_fetch *f, uint32_t from, uint64_t from_at) {
    cleanup_buf struct buf b = {0};
    const struct remote_node *target = map_get(&ns->nodes, to), *source = map_get(&ns->nodes, from);
    if (!to) {
        peers_fetch(&ns->peers, source->peer->address, source->port, f, from_at);
        return;
    }
    tasks_add_u64(&b, f->id);
    tasks_add_u64(&b, f->at);
    tasks_add_u64(&b, f->size);
    tasks_add_u64(&b, from_at);
    tasks_add_u16(&b, source ? source->port : 0);
    buf_adds(&b, source ? source->peer->address : "");
    tasks_link_send(&target->peer->link, LINK_FETCH, b.data, b.len, NULL, 0);
}

// --- from the nodes ---

static void forget_worker(struct nodes *ns, struct remote_worker *w) {
    map_remove(&ns->workers, (uint64_t)w->worker + 1);
    map_remove(&ns->conns, w->conn);
    map_remove(&w->node->workers, (uint64_t)w->worker + 1);
    buf_done(&w->tail);
    free(w);
}

static int on_join(struct nodes *ns, struct pool_peer *from, struct tasks_reader *r) {
    const char *gpus[WORKERS_GPUS_MAX];
    struct tasks_node n = {.gpu_names = gpus};
    uint32_t version = tasks_read_u32(r);
    n.cpus = tasks_read_u32(r);
    n.memory_bytes = tasks_read_u64(r);
    n.workers = tasks_read_u32(r);
    uint16_t port = tasks_read_u16(r), name_len = tasks_read_u16(r);
    const uint8_t *name = tasks_read_bytes(r, name_len);
    uint16_t gpus_len = tasks_read_u16(r);
    const uint8_t *names = tasks_read_bytes(r, gpus_len);
    if (r->bad || version != TASKS_VERSION || !n.cpus || !n.memory_bytes || name_len > NAME_MAX_BYTES ||
        map_get(&ns->by_peer, from->number))
        return -EPROTO;
    char *own_name = xstrndup((const char *)name, name_len), *own_gpus = xstrndup((const char *)names, gpus_len);
    n.name = own_name;
    n.gpus = nodes_split_gpus(own_gpus, gpus);
    struct remote_node *node = xcalloc(1, sizeof *node);
    node->peer = from;
    node->port = port;
    node->number = tasks_pool_node_joined(ns->pool, &n, tasks_now_us());
    map_put(&ns->nodes, node->number, node);
    map_put(&ns->by_peer, from->number, node);
    free(own_name);
    free(own_gpus);
    return 0;
}

static int on_frames(struct nodes *ns, struct remote_worker *w, struct tasks_reader *r) {
    struct buf in = {.data = (char *)(uintptr_t)r->at, .len = (size_t)(r->end - r->at)};
    enum tasks_frame type;
    const char *body;
    size_t at = 0, len;
    int rc;
    while ((rc = tasks_next_frame(&in, &at, &type, &body, &len)) > 0)
        if (tasks_pool_frame(ns->pool, w->conn, type, body, len, tasks_now_us()) < 0)
            nodes_stop(ns, w->worker, true);
    return at == in.len ? 0 : -EPROTO;
}

static void on_ended(struct nodes *ns, struct remote_worker *w, struct tasks_reader *r) {
    cleanup_buf struct buf how = {0};
    uint32_t conn = w->conn;
    buf_add(&how, r->at, (size_t)(r->end - r->at));
    tasks_pool_worker_ended(ns->pool, w->worker, buf_str(&how), tasks_now_us());
    forget_worker(ns, w);
    tasks_pool_close(ns->pool, conn, tasks_now_us());
}

static int on_worker_frame(struct nodes *ns, struct remote_node *n, enum tasks_link_frame type,
                           struct tasks_reader *r) {
    uint32_t worker = tasks_read_u32(r);
    struct remote_worker *w = map_get(&n->workers, (uint64_t)worker + 1);
    if (r->bad || !w)
        return -EPROTO;
    switch (type) {
    case LINK_FRAMES: return on_frames(ns, w, r);
    case LINK_OUTPUT:
        buf_clear(&w->tail);
        buf_add(&w->tail, r->at, (size_t)(r->end - r->at));
        return 0;
    case LINK_RETURNED:
        tasks_pool_returned(ns->pool, worker, r->at, (size_t)(r->end - r->at) / sizeof(uint64_t), tasks_now_us());
        return 0;
    case LINK_ENDED: on_ended(ns, w, r); return 0;
    default: return -EPROTO;
    }
}

static void on_frame(void *ctx, struct pool_peer *from, enum tasks_link_frame type, const char *body, size_t len) {
    struct nodes *ns = ctx;
    struct tasks_reader r = {.at = (const uint8_t *)body, .end = (const uint8_t *)body + len};
    struct remote_node *n = map_get(&ns->by_peer, from->number);
    int rc = -EPROTO;
    if (type == LINK_JOIN) {
        rc = on_join(ns, from, &r);
    } else if (n && type == LINK_FETCHED) {
        uint64_t id = tasks_read_u64(&r);
        bool ok = tasks_read_u8(&r);
        rc = r.bad ? -EPROTO : 0;
        if (!rc)
            tasks_pool_fetched(ns->pool, n->number, id, ok, tasks_now_us());
    } else if (n) {
        rc = on_worker_frame(ns, n, type, &r);
    }
    from->bad |= rc < 0;
}

static void on_lost(void *ctx, struct pool_peer *p, const char *why) {
    struct nodes *ns = ctx;
    struct remote_node *n = map_remove(&ns->by_peer, p->number);
    if (!n)
        return;
    fprintf(stderr, "acequia-tasks: a node at %s was lost: %s\n", p->address, why);
    map_remove(&ns->nodes, n->number);
    tasks_pool_node_lost(ns->pool, n->number, tasks_now_us());
    uint64_t key;
    void *value;
    for (size_t it = 0; map_next(&n->workers, &it, &key, &value); it = 0)
        forget_worker(ns, value);
    map_done(&n->workers);
    free(n);
}

static void on_opened(void *ctx, struct pool_peer *p) {
}

static void on_fetched(void *ctx, uint64_t id, bool ok) {
    struct nodes *ns = ctx;
    tasks_pool_fetched(ns->pool, 0, id, ok, tasks_now_us());
}

// --- the rest ---

struct nodes *nodes_new(int epoll, const struct workers *own, struct tasks_pool *pool) {
    static const struct peers_host host = {on_frame, on_opened, on_lost, on_fetched};
    struct nodes *ns = xcalloc(1, sizeof *ns);
    ns->pool = pool;
    ns->peers = (struct peers){.epoll = epoll,
                               .source = FROM_PEER,
                               .memory = own->memory,
                               .memory_bytes = own->memory_bytes,
                               .turn_us = tasks_now_us(),
                               .host = &host,
                               .ctx = ns};
    int r = nodes_key(ns->peers.key) ? peers_listen(&ns->peers, true) : -EINVAL;
    if (r < 0) {
        fprintf(stderr, "acequia-tasks: the other nodes of the pool cannot connect: %s\n", strerror(-r));
        free(ns);
        return NULL;
    }
    tasks_watch(epoll, ns->peers.listener, FROM_NODES, 0, EPOLLIN, EPOLL_CTL_ADD);
    return ns;
}

struct nodes *nodes_free(struct nodes *ns) {
    uint64_t key;
    void *value;
    if (!ns)
        return NULL;
    for (size_t it = 0; map_next(&ns->nodes, &it, &key, &value);) {
        struct remote_node *n = value;
        tasks_link_send(&n->peer->link, LINK_END, NULL, 0, NULL, 0);
    }
    peers_flush(&ns->peers);
    peers_done(&ns->peers);
    for (size_t it = 0; map_next(&ns->workers, &it, &key, &value);) {
        struct remote_worker *w = value;
        buf_done(&w->tail);
        free(w);
    }
    for (size_t it = 0; map_next(&ns->nodes, &it, &key, &value);) {
        struct remote_node *n = value;
        map_done(&n->workers);
        free(n);
    }
    map_done(&ns->nodes);
    map_done(&ns->by_peer);
    map_done(&ns->workers);
    map_done(&ns->conns);
    free(ns);
    return NULL;
}

void nodes_accept(struct nodes *ns) {
    peers_accept(&ns->peers);
}

void nodes_event(struct nodes *ns, uint32_t number, uint32_t events) {
    peers_event(&ns->peers, number, events);
}

int nodes_turn(struct nodes *ns, int64_t now_us) {
    return peers_turn(&ns->peers, now_us);
}
