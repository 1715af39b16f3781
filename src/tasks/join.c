// Owns the way to the head: finds it by the membership file, connects, and ends when it is lost. What a worker has been
// given and has no room for in its channel waits here.
#include "join.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "base/text.h"
#include "nodes.h"

enum {
    EVENTS = 64,
    MEMBERS_BYTES_MAX = 4 << 20,
    READ_BYTES = 64 << 10,
    RETRY_MS = 200,
    CONNECT_US = 5 * 1000 * 1000,
    OUT_ENOUGH = 16 << 20,    // unsent to the head, after which workers are not read
    FRAMES_BYTES = 512 << 10  // of workers, in one record
};

struct held_packet {
    char *data;
    size_t len;
};

struct joined_worker {
    struct tasks_stream stream;
    VEC(struct held_packet) later;  // what its channel has no room for
    bool paused;               // it is not read: the head does not read us
};

struct join {
    int epoll;
    const char *members;
    struct workers *ws;
    struct peers peers;
    struct map workers;  // by number + 1
    struct pool_peer *head;
    bool joined, over;
    int exit_code;
    uint32_t tried;  // ports
    int64_t next_us, since_us;
    const struct tasks_options *o;
    const char *gpus;
    uint16_t port;
};

// --- the way to the head ---

static int on_member(void *ctx, const struct json *value) {
    char **address = ctx;
    const char *component = json_str(value, "component"), *state = json_str(value, "state"),
               *at = json_str(value, "address");
    if (!component || !state || !at || !streq(component, "head"))
        return 0;
    if (!streq(state, "running") && !streq(state, "starting"))
        return 0;
    free(*address);
    *address = xstrdup(at);
    return 0;
}

// A node whose agent speaks to the controller over a unix socket has no address: it is where the controller is.
static char *address_of_controller(void) {
    const char *host = getenv("ACEQUIA_HOST"), *colon = host ? strrchr(host, ':') : NULL;
    if (!colon || host[0] == '/')
        return xstrdup("127.0.0.1");
    bool bracket = host[0] == '[' && colon > host + 2 && colon[-1] == ']';
    return xstrndup(host + bracket, (size_t)(colon - host) - 2 * (size_t)bracket);
}

static char *head_address(const char *members) {
    cleanup_buf struct buf text = {0};
    char *address = NULL;
    struct arena a = {0};
    struct error e;
    cleanup_close int fd = open(members, O_RDONLY | O_CLOEXEC);
    for (ssize_t n = 1; fd >= 0 && n > 0 && text.len < MEMBERS_BYTES_MAX; text.len += n > 0 ? (size_t)n : 0)
        n = read(fd, buf_reserve(&text, READ_BYTES), READ_BYTES - 1);
    if (text.len)
        text.data[text.len] = 0;
    for (const char *line = buf_str(&text); *line;) {
        size_t len = strcspn(line, "\n");
        struct json *value;
        if (len && json_parse(line, len, &a, &value, &e) == 0)
            on_member(&address, value);
        line += len + (line[len] == '\n');
    }
    arena_done(&a);
    if (address && (streq(address, "unix") || streq(address, ""))) {
        free(address);
        address = address_of_controller();
    }
    return address;
}

static void try_head(struct join *j, int64_t now) {
    cleanup_free char *address = head_address(j->members);
    j->next_us = now + RETRY_MS * 1000LL;
    if (!address)
        return;
    j->head = peers_connect(&j->peers, address, tasks_link_port(j->peers.key, j->tried++ % LINK_PORTS), PEER_CONTROL);
    j->since_us = now;
}

static void on_opened(void *ctx, struct pool_peer *p) {
    struct join *j = ctx;
    cleanup_buf struct buf b = {0};
    if (p != j->head)
        return;
    tasks_add_u32(&b, TASKS_VERSION);
    tasks_add_u32(&b, j->o->cpus);
    tasks_add_u64(&b, j->ws->memory_bytes);
    tasks_add_u32(&b, j->o->workers);
    tasks_add_u16(&b, j->port);
    tasks_add_u16(&b, (uint16_t)strlen(j->o->name));
    buf_adds(&b, j->o->name);
    tasks_add_u16(&b, (uint16_t)strlen(j->gpus));
    buf_adds(&b, j->gpus);
    tasks_link_send(&p->link, LINK_JOIN, b.data, b.len, NULL, 0);
    j->joined = true;
}

static void on_head_ended(void *ctx, struct pool_peer *p, const char *why) {
    struct join *j = ctx;
    if (p != j->head)
        return;
    j->head = NULL;
    if (!j->joined || j->over)
        return;  // another port, later
    fprintf(stderr, "acequia-tasks: the connection to the first node of the pool was lost: %s\n", why);
    j->over = true;
    j->exit_code = JOIN_AGAIN;
}

static void say(struct join *j, enum tasks_link_frame type, uint32_t worker, const void *body, size_t len) {
    if (j->head)
        tasks_link_send(&j->head->link, type, &worker, sizeof worker, body, len);
}

// --- from workers ---

static struct joined_worker *worker_of(const struct join *j, uint32_t worker) {
    return map_get(&j->workers, (uint64_t)worker + 1);
}

static void say_output(struct join *j, uint32_t worker) {
    cleanup_buf struct buf out = {0};
    workers_output(j->ws, worker, &out);
    say(j, LINK_OUTPUT, worker, out.data, out.len);
}

static bool is_failure(enum tasks_frame type, const char *body, size_t len) {
    struct tasks_done d;
    return type == TASKS_DONE && tasks_read_done(body, len, &d) == 0 && d.error;
}

static void give_later(struct join *j, struct joined_worker *w, uint32_t worker) {
    while (w->later.len && workers_give(j->ws, worker, w->later.at[0].data, w->later.at[0].len) == 0) {
        free(w->later.at[0].data);
        vec_remove(&w->later, 0);
    }
}

// All whole frames go on, some together; before a failure goes what its task wrote.
static int pass_frames(struct join *j, struct joined_worker *w, uint32_t worker) {
    struct buf *in = &w->stream.in;
    size_t at = 0, sent = 0, before, len;
    enum tasks_frame type;
    const char *body;
    int r;
    while (before = at, (r = tasks_next_frame(in, &at, &type, &body, &len)) > 0) {
        bool failure = is_failure(type, body, len);
        if (before > sent && (failure || at - sent > FRAMES_BYTES)) {
            say(j, LINK_FRAMES, worker, in->data + sent, before - sent);
            sent = before;
        }
        if (failure)
            say_output(j, worker);
    }
    if (before > sent)
        say(j, LINK_FRAMES, worker, in->data + sent, before - sent);
    buf_drop(in, before);
    give_later(j, w, worker);
    return r;
}

static void on_stream(struct join *j, uint32_t worker, uint32_t events) {
    struct joined_worker *w = worker_of(j, worker);
    if (!w || w->stream.fd < 0)
        return;
    int r = events & (EPOLLIN | EPOLLHUP | EPOLLERR) ? tasks_stream_read(&w->stream) : 0;
    if (r >= 0 && (r = pass_frames(j, w, worker)) == -EPROTO)
        workers_stop(j->ws, worker, true);
    if (r < 0) {
        close(w->stream.fd);
        w->stream.fd = -1;
        return;
    }
    tasks_stream_flush(&w->stream, j->epoll, FROM_CONNECTION);
    if (j->head && j->head->link.out.len > OUT_ENOUGH) {
        w->paused = true;
        tasks_watch(j->epoll, w->stream.fd, FROM_CONNECTION, worker, 0, EPOLL_CTL_MOD);
    }
}

static void resume(struct join *j) {
    uint64_t key;
    void *value;
    if (!j->head || j->head->link.out.len > OUT_ENOUGH / 2)
        return;
    for (size_t it = 0; map_next(&j->workers, &it, &key, &value);) {
        struct joined_worker *w = value;
        if (!w->paused || w->stream.fd < 0)
            continue;
        w->paused = w->stream.wants_write = false;
        tasks_watch(j->epoll, w->stream.fd, FROM_CONNECTION, (uint32_t)key - 1, EPOLLIN, EPOLL_CTL_MOD);
    }
}

// What it had not begun, as ids.
static void returned(struct join *j, struct joined_worker *w, uint32_t worker) {
    cleanup_buf struct buf packet = {0}, ids = {0};
    while (workers_take_back(j->ws, worker, &packet)) {
        if (packet.len > sizeof(uint64_t) && packet.data[0] == TASKS_TASK)
            buf_add(&ids, packet.data + 1, sizeof(uint64_t));
        buf_clear(&packet);
    }
    for (uint32_t i = 0; i < w->later.len; i++) {
        if (w->later.at[i].len > sizeof(uint64_t) && w->later.at[i].data[0] == TASKS_TASK)
            buf_add(&ids, w->later.at[i].data + 1, sizeof(uint64_t));
        free(w->later.at[i].data);
    }
    vec_clear(&w->later);
    say(j, LINK_RETURNED, worker, ids.data, ids.len);
}

static void worker_free(struct joined_worker *w) {
    tasks_stream_done(&w->stream);
    for (uint32_t i = 0; i < w->later.len; i++)
        free(w->later.at[i].data);
    vec_done(&w->later);
    free(w);
}

static void on_worker_ended(void *ctx, uint32_t worker, const char *how) {
    struct join *j = ctx;
    struct joined_worker *w = worker_of(j, worker);
    while (w->stream.fd >= 0 && tasks_stream_read(&w->stream) > 0)
        continue;
    pass_frames(j, w, worker);
    returned(j, w, worker);
    say_output(j, worker);
    say(j, LINK_ENDED, worker, how, strlen(how));
    map_remove(&j->workers, (uint64_t)worker + 1);
    worker_free(w);
    workers_forget(j->ws, worker);
}

// --- from the head ---

static int on_start(struct join *j, uint32_t worker, struct tasks_reader *r) {
    uint32_t conn = tasks_read_u32(r);
    if (r->bad || worker_of(j, worker))
        return -EPROTO;
    cleanup_free char *gpus = xstrndup((const char *)r->at, (size_t)(r->end - r->at));
    struct joined_worker *w = xcalloc(1, sizeof *w);
    w->stream.number = worker;
    w->stream.fd = workers_start(j->ws, worker, conn, gpus);
    map_put(&j->workers, (uint64_t)worker + 1, w);
    tasks_watch(j->epoll, w->stream.fd, FROM_CONNECTION, worker, EPOLLIN, EPOLL_CTL_ADD);
    return 0;
}

// A worker that ended meanwhile is no mistake of the head.
static int on_order(struct join *j, enum tasks_link_frame type, struct tasks_reader *r) {
    uint32_t worker = tasks_read_u32(r);
    size_t len = (size_t)(r->end - r->at);
    if (r->bad)
        return -EPROTO;
    if (type == LINK_START)
        return on_start(j, worker, r);
    struct joined_worker *w = worker_of(j, worker);
    if (!w)
        return 0;
    switch (type) {
    case LINK_GIVE:
        if (w->later.len || workers_give(j->ws, worker, r->at, len) < 0)
            vec_push(&w->later, (struct held_packet){xmemdup(r->at, len), len});
        return 0;
    case LINK_ASK_BACK: returned(j, w, worker); return 0;
    case LINK_STOP: workers_stop(j->ws, worker, tasks_read_u8(r)); return 0;
    case LINK_SEND:
        if (w->stream.fd < 0)
            return 0;
        buf_add(&w->stream.out, r->at, len);
        tasks_stream_flush(&w->stream, j->epoll, FROM_CONNECTION);
        return 0;
    default: return -EPROTO;
    }
}

static int on_fetch(struct join *j, struct tasks_reader *r) {
    struct peer_fetch f = {.id = tasks_read_u64(r), .at = tasks_read_u64(r), .size = tasks_read_u64(r)};
    uint64_t from_at = tasks_read_u64(r);
    uint16_t port = tasks_read_u16(r);
    if (r->bad)
        return -EPROTO;
    cleanup_free char *address = xstrndup((const char *)r->at, (size_t)(r->end - r->at));
    bool head = !*address;
    peers_fetch(&j->peers, head ? j->head->address : address, head ? j->head->port : port, &f, from_at);
    return 0;
}

static void on_frame(void *ctx, struct pool_peer *from, enum tasks_link_frame type, const char *body, size_t len) {
    struct join *j = ctx;
    struct tasks_reader r = {.at = (const uint8_t *)body, .end = (const uint8_t *)body + len};
    int rc = -EPROTO;
    if (from != j->head) {
        from->bad = true;  // only the head says what is to be done
    } else if (type == LINK_END) {
        j->over = true;
    } else if (type == LINK_DROP) {
        uint64_t at = tasks_read_u64(&r), size = tasks_read_u64(&r);
        rc = r.bad || size > j->ws->memory_bytes || at > j->ws->memory_bytes - size ? -EPROTO : 0;
        if (!rc)
            workers_drop(j->ws, at, size);
        from->bad = rc < 0;
    } else {
        rc = type == LINK_FETCH ? on_fetch(j, &r) : on_order(j, type, &r);
        from->bad = rc < 0;
    }
}

static void on_fetched(void *ctx, uint64_t id, bool ok) {
    struct join *j = ctx;
    uint8_t good = ok;
    if (j->head)
        tasks_link_send(&j->head->link, LINK_FETCHED, &id, sizeof id, &good, 1);
}

// --- the program ---

static void handle(struct join *j, const struct epoll_event *e) {
    uint32_t number = (uint32_t)e->data.u64;
    switch ((enum source)(e->data.u64 >> 32)) {
    case FROM_CONTROL: workers_on_control(j->ws, on_worker_ended, j); break;
    case FROM_CONNECTION: on_stream(j, number, e->events); break;
    case FROM_OUTPUT: workers_on_output(j->ws, number); break;
    case FROM_NODES: peers_accept(&j->peers); break;
    case FROM_PEER: peers_event(&j->peers, number, e->events); break;
    case FROM_LISTENER: break;
    }
}

static void loop(struct join *j) {
    struct epoll_event events[EVENTS];
    while (!j->over && !j->ws->over) {
        int64_t now = tasks_now_us();
        if (j->head && !j->joined && now - j->since_us > CONNECT_US)
            peers_close(&j->peers, j->head, "it does not answer");
        if (!j->head && !j->joined && now >= j->next_us)
            try_head(j, now);
        int wait = peers_turn(&j->peers, now);
        resume(j);
        if (!j->joined)
            wait = wait < 0 || wait > RETRY_MS ? RETRY_MS : wait;
        int n = epoll_wait(j->epoll, events, EVENTS, wait);
        for (int i = 0; i < n && !j->over && !j->ws->over; i++)
            handle(j, &events[i]);
    }
}

int join_run(struct workers *ws, const struct tasks_options *o, const char *gpus, const char *members) {
    static const struct peers_host host = {on_frame, on_opened, on_head_ended, on_fetched};
    struct join j = {.epoll = ws->epoll, .members = members, .ws = ws, .o = o, .gpus = gpus};
    uint64_t key;
    void *value;
    if (!workers_memory(ws)) {
        fprintf(stderr, "acequia-tasks: there is no memory for values: %s\n", strerror(errno));
        return 1;
    }
    j.peers = (struct peers){.epoll = j.epoll,
                             .source = FROM_PEER,
                             .memory = ws->memory,
                             .memory_bytes = ws->memory_bytes,
                             .turn_us = tasks_now_us(),
                             .host = &host,
                             .ctx = &j};
    int port = nodes_key(j.peers.key) ? peers_listen(&j.peers, false) : -EINVAL;
    if (port < 0) {
        fprintf(stderr, "acequia-tasks: this node cannot be reached by others: %s\n", strerror(-port));
        return 1;
    }
    j.port = (uint16_t)port;
    tasks_watch(j.epoll, ws->control, FROM_CONTROL, 0, EPOLLIN, EPOLL_CTL_ADD);
    tasks_watch(j.epoll, j.peers.listener, FROM_NODES, 0, EPOLLIN, EPOLL_CTL_ADD);
    loop(&j);
    peers_flush(&j.peers);
    peers_done(&j.peers);
    for (size_t it = 0; map_next(&j.workers, &it, &key, &value);)
        worker_free(value);
    map_done(&j.workers);
    workers_done(ws);
    return j.exit_code;
}
