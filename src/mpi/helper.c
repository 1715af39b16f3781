// acequia-mpi: the helper of an MPI step on one node. Owns the sockets of the tasks and those to the other nodes'
// helpers. It runs as the user in the step's control group; the shepherd starts it before the tasks and it ends with
// them. Neither the agent nor the controller is needed once the helpers have found each other.
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "base/vec.h"
#include "launch/fds.h"
#include "launch/mpi.h"
#include "helper.h"
#include "open_mpi.h"

enum {
    TASKS_MAX = 1 << 20,
    STRANGERS_MAX = 64,  // connections that have not proved the key
    STRANGER_PATIENCE_MS = 10000,
    CONNECT_RETRY_MS = 100,
    CONNECT_PATIENCE_MS = 60000,
    READ_BYTES = 64 << 10,
    READS_AT_ONCE = 16,
    KEEPALIVE_IDLE_S = 30,
    KEEPALIVE_EVERY_S = 10,
    KEEPALIVE_TIMES = 3,
};

void helper_say(struct mpi_helper *h, struct mpi_note *n) {
    if (send(h->control, n, sizeof *n, MSG_NOSIGNAL) < 0 && errno != EAGAIN)
        h->over = true;
}

bool helper_is_hub(const struct mpi_helper *h) {
    return h->node == 0;
}

void helper_send(struct mpi_helper *h, uint32_t node, enum link_frame type, const void *data,
                      size_t len) {
    struct peer *p = helper_is_hub(h) ? &h->peers[node] : &h->peers[0];
    if (h->o.nodes > 1 && (!helper_is_hub(h) || p->fd >= 0))
        link_send(&p->link, type, data, len);
}

// --- the end ---

void helper_abort_here(struct mpi_helper *h, uint32_t rank, int code, const char *text) {
    struct mpi_note n = {.type = MPI_ABORT, .rank = rank, .code = code};
    if (h->aborted)
        return;
    h->aborted = true;
    snprintf(n.text, sizeof n.text, "%s", text);
    helper_say(h, &n);
}

void helper_abort_others(struct mpi_helper *h, uint32_t rank, int code, const char *text) {
    cleanup_buf struct buf b = {0};
    int32_t number = code;
    if (h->aborted)
        return;
    buf_add(&b, &rank, sizeof rank);
    buf_add(&b, &number, sizeof number);
    buf_adds(&b, text);
    for (uint32_t i = helper_is_hub(h) ? 1 : 0; i < (helper_is_hub(h) ? h->o.nodes : 1); i++)
        helper_send(h, i, LINK_ABORT, b.data, b.len);
}

void helper_abort(struct mpi_helper *h, uint32_t rank, int code, const char *text) {
    helper_abort_others(h, rank, code, text);
    helper_abort_here(h, rank, code, text);
}

static void on_abort(void *ctx, uint32_t rank, int code, const char *text) {
    struct mpi_helper *h = ctx;
    char line[MPI_TEXT_MAX];
    snprintf(line, sizeof line, "rank %u ended the MPI program with MPI_Abort, code %d%s%.160s", rank, code,
             *text ? ": " : "", text);
    helper_abort(h, rank, code, line);
}

static void lost_node(struct mpi_helper *h, uint32_t node) {
    char line[MPI_TEXT_MAX];
    snprintf(line, sizeof line,
             "the MPI program cannot go on: the connection to node %u of the step was lost", node);
    helper_abort(h, 0, 0, line);
}

// --- who has begun and finished MPI ---

// The other nodes must know whether a helper that disappears takes a running MPI program with it.
static void tell_state(struct mpi_helper *h) {
    uint8_t state = h->joined > h->finished;
    if (h->o.nodes < 2 || h->joined_said == state)
        return;
    h->joined_said = state;
    for (uint32_t i = helper_is_hub(h) ? 1 : 0; i < (helper_is_hub(h) ? h->o.nodes : 1); i++)
        helper_send(h, i, LINK_BYE, &state, sizeof state);
}

uint32_t helper_task_of(const struct mpi_helper *h, uint32_t rank) {
    for (uint32_t i = 0; i < h->o.tasks; i++)
        if (h->o.ranks[i] == rank)
            return i;
    return UINT32_MAX;
}

static void on_pmix_joined(void *ctx, uint32_t rank) {
    struct mpi_helper *h = ctx;
    uint32_t t = helper_task_of(h, rank);
    if (t == UINT32_MAX || h->tasks[t].pmix_joined)
        return;
    h->tasks[t].pmix_joined = true;
    h->joined++;
    tell_state(h);
}

static void on_pmix_finished(void *ctx, uint32_t rank) {
    struct mpi_helper *h = ctx;
    uint32_t t = helper_task_of(h, rank);
    if (t == UINT32_MAX || !h->tasks[t].pmix_joined || h->tasks[t].pmix_finished)
        return;
    h->tasks[t].pmix_finished = true;
    h->finished++;
    tell_state(h);
}

static void check_connected(struct mpi_helper *h) {
    struct mpi_note n = {.type = MPI_CONNECTED};
    for (uint32_t i = helper_is_hub(h) ? 1 : 0; i < (helper_is_hub(h) ? h->o.nodes : 1); i++)
        if (h->peers[i].fd < 0 || !h->peers[i].link.open)
            return;
    if (!h->connected_said)
        helper_say(h, &n);
    h->connected_said = true;
    if (h->listener >= 0)
        close(h->listener);
    h->listener = -1;
}

// --- sockets ---

static int set_up(int fd) {
    int on = 1, idle = KEEPALIVE_IDLE_S, every = KEEPALIVE_EVERY_S, times = KEEPALIVE_TIMES;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof every);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times);
    return fcntl(fd, F_SETFL, O_NONBLOCK);
}

// False: there is nobody on the other side any more.
static bool flush(int fd, struct buf *out) {
    while (out->len) {
        ssize_t n = send(fd, out->data, out->len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN;
        buf_drop(out, (size_t)n);
    }
    return true;
}

static void close_peer(struct peer *p) {
    if (p->fd >= 0)
        close(p->fd);
    p->fd = -1;
    link_done(&p->link);
}

static void drop_peer(struct mpi_helper *h, struct peer *p, uint32_t node) {
    bool was_open = p->link.open, joined = p->joined;
    close_peer(p);
    p->link = (struct mpi_link){0};
    if (was_open && joined)
        lost_node(h, node);
    if (was_open && !helper_is_hub(h))
        h->has_hub = false;
}

// 0: go on; negative: the connection is of no use.
static int read_link(struct mpi_helper *h, struct peer *p) {
    static char data[READ_BYTES];
    bool was_open = p->link.open;
    for (int i = 0; i < READS_AT_ONCE; i++) {
        ssize_t n = recv(p->fd, data, sizeof data, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return 0;
        if (n <= 0)
            return -EPIPE;
        int rc = link_data(&p->link, data, (size_t)n, exchange_frame, h);
        if (rc < 0)
            return rc;
        if (!was_open)
            return 0;
    }
    return 0;
}

// A stranger that has proved the key takes its node's place.
static void promote(struct mpi_helper *h, uint32_t index) {
    struct peer p = h->strangers.at[index];
    vec_remove(&h->strangers, index);
    if (p.link.node == 0 || p.link.node >= h->o.nodes || h->peers[p.link.node].fd >= 0) {
        close_peer(&p);
        return;
    }
    uint8_t state = h->joined > h->finished;
    p.joined = h->peers[p.link.node].joined;
    h->peers[p.link.node] = p;
    if (state)
        link_send(&h->peers[p.link.node].link, LINK_BYE, &state, sizeof state);
    check_connected(h);
    if (link_data(&h->peers[p.link.node].link, NULL, 0, exchange_frame, h) < 0)
        drop_peer(h, &h->peers[p.link.node], p.link.node);
}

static void accept_stranger(struct mpi_helper *h, int64_t now_ms) {
    uint8_t nonce[LINK_NONCE_BYTES];
    int fd = accept4(h->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    if (h->strangers.len >= STRANGERS_MAX || getrandom(nonce, sizeof nonce, 0) != sizeof nonce ||
        set_up(fd) < 0) {
        close(fd);
        return;
    }
    struct peer p = {.fd = fd, .since_ms = now_ms};
    link_init(&p.link, true, 0, h->key, nonce);
    vec_push(&h->strangers, p);
}

static int listen_anywhere(uint32_t *port) {
    int off = 0;
    struct sockaddr_in6 a = {.sin6_family = AF_INET6};
    struct sockaddr_in b = {.sin_family = AF_INET};
    socklen_t len = sizeof a;
    cleanup_close int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool six = fd >= 0 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) == 0 &&
               bind(fd, (struct sockaddr *)&a, sizeof a) == 0;
    if (!six) {
        if (fd >= 0)
            close(fd);
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0 || bind(fd, (struct sockaddr *)&b, sizeof b) < 0)
            return -errno;
    }
    if (listen(fd, SOMAXCONN) < 0 || getsockname(fd, (struct sockaddr *)&a, &len) < 0)
        return -errno;
    *port = ntohs(a.sin6_port);  // at the same place in both kinds of address
    return TAKE_FD(fd);
}

static void connect_later(struct mpi_helper *h, int64_t now_ms) {
    struct peer *p = &h->peers[0];
    close(p->fd);
    p->fd = -1;
    p->connecting = false;
    h->connect_at_ms = now_ms + CONNECT_RETRY_MS;
    if (now_ms < h->connect_until_ms)
        return;
    char line[MPI_TEXT_MAX];
    snprintf(line, sizeof line, "node %u of the step cannot reach the step's first node at %s port %u",
             h->node, h->hub.address, h->hub.port);
    helper_abort_here(h, 0, 0, line);
    h->has_hub = false;
}

static void connect_hub(struct mpi_helper *h, int64_t now_ms) {
    struct peer *p = &h->peers[0];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *found = NULL;
    char port[16];
    uint8_t nonce[LINK_NONCE_BYTES];
    if (!h->has_hub || p->fd >= 0 || now_ms < h->connect_at_ms)
        return;
    snprintf(port, sizeof port, "%u", h->hub.port);
    if (getaddrinfo(h->hub.address, port, &hints, &found) != 0 ||
        getrandom(nonce, sizeof nonce, 0) != sizeof nonce) {
        h->connect_at_ms = now_ms + CONNECT_RETRY_MS;
        if (found)
            freeaddrinfo(found);
        return;
    }
    p->fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (p->fd >= 0) {
        struct buf held = p->link.held;
        p->link.held = (struct buf){0};
        set_up(p->fd);
        link_done(&p->link);
        link_init(&p->link, false, h->node, h->hub.key, nonce);
        p->link.held = held;
        p->connecting = true;
        if (connect(p->fd, found->ai_addr, found->ai_addrlen) < 0 && errno != EINPROGRESS)
            connect_later(h, now_ms);
    }
    freeaddrinfo(found);
}

static void connect_done(struct mpi_helper *h, int64_t now_ms) {
    int err = 0;
    socklen_t len = sizeof err;
    struct peer *p = &h->peers[0];
    if (getsockopt(p->fd, SOL_SOCKET, SO_ERROR, &err, &len) < 0 || err)
        connect_later(h, now_ms);
    else
        p->connecting = false;
}

// --- tasks ---

static void on_reply(void *ctx, uint32_t task, const void *data, size_t len) {
    struct mpi_helper *h = ctx;
    if (h->tasks[task].fd >= 0)
        buf_add(&h->tasks[task].out, data, len);
}

static void add_environment(struct mpi_helper *h, uint32_t task, struct buf *b) {
    uint32_t rank = h->o.ranks[task];
    if (h->pmi) {
        buf_addf(b, "PMI_FD=%d%cPMI_RANK=%u%cPMI_SIZE=%u%c", MPI_TASK_FD, 0, rank, 0, h->o.size, 0);
        buf_addf(b, "PMI_JOBID=%s%cPMI_SPAWNED=%d%cMPI_LOCALNRANKS=%u%cMPI_LOCALRANKID=%u%c", h->o.name, 0,
                 h->o.spawned != NULL, 0,
                 h->o.tasks, 0, task, 0);
    }
    if (h->server)
        pmix_server_environment(h->server, rank, b);
    buf_add(b, h->open_mpi.data, h->open_mpi.len);
    // Each rank of a container has namespaces of its own: they reach each other's memory by name, not by /proc.
    if (h->container)
        buf_addf(b, "?UCX_POSIX_USE_PROC_LINK=n%c?OMPI_MCA_btl_vader_single_copy_mechanism=none%c", 0, 0);
}

static void start_task(struct mpi_helper *h, uint32_t rank, int fd) {
    uint32_t t = helper_task_of(h, rank);
    cleanup_buf struct buf env = {0};
    if (t == UINT32_MAX || h->tasks[t].started) {
        close(fd);
        return;
    }
    h->tasks[t].fd = fd;
    h->tasks[t].started = true;
    fcntl(fd, F_SETFL, O_NONBLOCK);
    add_environment(h, t, &env);
    struct mpi_environment head = {.len = env.len <= MPI_ENVIRONMENT_MAX ? (uint32_t)env.len : 0};
    buf_add(&h->tasks[t].out, &head, sizeof head);
    buf_add(&h->tasks[t].out, env.data, head.len);
}

static void note_pmi(struct mpi_helper *h, uint32_t task) {
    struct task *t = &h->tasks[task];
    bool runs = pmi_task_runs(h->world, task);
    if (runs == t->said_joined)
        return;
    t->said_joined = runs;
    h->joined += runs;
    h->joined -= !runs;
    tell_state(h);
}

// Comes alone: the kernel does not join data to descriptors. Nothing more is taken after the first.
static void take_output(struct mpi_helper *h, const int *fds, int nfds) {
    for (int i = 0; i < nfds; i++)
        if (h->output[i] < 0)
            h->output[i] = fds[i];
        else
            close(fds[i]);
}

static void drop_output(struct mpi_helper *h) {
    for (int i = 0; i < 2; i++) {
        if (h->output[i] >= 0)
            close(h->output[i]);
        h->output[i] = -1;
    }
}

static void task_gone(struct mpi_helper *h, uint32_t task) {
    struct task *t = &h->tasks[task];
    char line[MPI_TEXT_MAX];
    bool early = (h->world && pmi_task_gone(h->world, task)) || (t->pmix_joined && !t->pmix_finished);
    if (h->world)
        note_pmi(h, task);
    close(t->fd);
    t->fd = -1;
    buf_done(&t->out);
    if (task == 0 && !h->groups.len)
        drop_output(h);
    if (!early)
        return;
    snprintf(line, sizeof line, "rank %u ended without MPI_Finalize; the others cannot go on without it",
             h->o.ranks[task]);
    helper_abort(h, h->o.ranks[task], 0, line);
}

static void read_task(struct mpi_helper *h, uint32_t task) {
    static char data[READ_BYTES];
    struct task *t = &h->tasks[task];
    int fds[2], nfds = 0;
    ssize_t n = launch_fds_receive(t->fd, data, sizeof data, fds, 2, &nfds);
    if (n == -EAGAIN || n == -EINTR)
        return;
    if (n <= 0) {
        task_gone(h, task);
        return;
    }
    if (nfds) {
        take_output(h, fds, nfds);
        return;
    }
    if (!h->world || t->deaf)
        return;
    t->deaf = !pmi_task_data(h->world, task, data, (size_t)n);
    note_pmi(h, task);
}

// --- the shepherd ---

static void read_control(struct mpi_helper *h, int64_t now_ms) {
    struct mpi_note n;
    int fd = -1, nfds = 0;
    ssize_t len = launch_fds_receive(h->control, &n, sizeof n, &fd, 1, &nfds);
    if (len == -EAGAIN || len == -EINTR)
        return;
    if (len != (ssize_t)sizeof n) {
        h->over = true;
        return;
    }
    if (n.type == MPI_TASK && nfds == 1) {
        start_task(h, n.rank, fd);
        return;
    }
    if (nfds)
        close(fd);
    if (n.type == MPI_HUB && !helper_is_hub(h) && h->peers[0].fd < 0 && memchr(n.address, 0, sizeof n.address)) {
        h->hub = n;
        h->has_hub = true;
        h->connect_at_ms = now_ms;
        h->connect_until_ms = now_ms + CONNECT_PATIENCE_MS;
    }
}

// --- the loop ---

static void add_poll(struct pollfd *p, uint32_t *n, int fd, bool write) {
    p[(*n)++] = (struct pollfd){.fd = fd, .events = (short)(POLLIN | (write ? POLLOUT : 0))};
}

static uint32_t fill_poll(struct mpi_helper *h, struct pollfd *p) {
    uint32_t n = 0;
    add_poll(p, &n, h->control, false);
    add_poll(p, &n, h->listener, false);
    add_poll(p, &n, h->server ? pmix_server_fd(h->server) : -1, false);
    for (uint32_t i = 0; i < h->o.nodes; i++)
        add_poll(p, &n, h->peers[i].fd, h->peers[i].connecting || h->peers[i].link.out.len);
    for (uint32_t i = 0; i < STRANGERS_MAX; i++)
        add_poll(p, &n, i < h->strangers.len ? h->strangers.at[i].fd : -1,
                 i < h->strangers.len && h->strangers.at[i].link.out.len);
    for (uint32_t i = 0; i < h->o.tasks; i++)
        add_poll(p, &n, h->tasks[i].fd, h->tasks[i].out.len);
    for (uint32_t i = 0; i < h->groups.len; i++)
        add_poll(p, &n, h->groups.at[i].fd, false);
    return n;
}

static void serve_peer(struct mpi_helper *h, uint32_t i, short events, int64_t now_ms) {
    struct peer *p = &h->peers[i];
    if (p->fd < 0)
        return;
    if (p->connecting) {
        if (events)
            connect_done(h, now_ms);
        return;
    }
    bool was_open = p->link.open;
    if ((events & (POLLIN | POLLHUP | POLLERR)) && read_link(h, p) < 0) {
        if (!p->link.open && !helper_is_hub(h))  // somebody else has the port, or it does not know the key
            connect_later(h, now_ms);
        else
            drop_peer(h, p, helper_is_hub(h) ? i : 0);
        return;
    }
    if (was_open || !p->link.open)
        return;
    check_connected(h);
    if (link_data(&p->link, NULL, 0, exchange_frame, h) < 0)
        drop_peer(h, p, 0);
}

static void serve_strangers(struct mpi_helper *h, const struct pollfd *p, int64_t now_ms) {
    for (uint32_t i = h->strangers.len; i-- > 0;) {
        struct peer *s = &h->strangers.at[i];
        bool bad = (p[i].revents & (POLLIN | POLLHUP | POLLERR)) && p[i].fd == s->fd && read_link(h, s) < 0;
        if (!bad && s->link.open) {
            promote(h, i);
        } else if (bad || now_ms - s->since_ms > STRANGER_PATIENCE_MS || !flush(s->fd, &s->link.out)) {
            close_peer(s);
            vec_remove(&h->strangers, i);
        }
    }
}

// Other nodes first: a task that has been told that it has finished may end, and this process with it.
static void flush_all(struct mpi_helper *h) {
    for (uint32_t i = 0; i < h->o.nodes; i++)
        if (h->peers[i].fd >= 0 && !h->peers[i].connecting && !flush(h->peers[i].fd, &h->peers[i].link.out))
            drop_peer(h, &h->peers[i], helper_is_hub(h) ? i : 0);
    for (uint32_t i = 0; i < h->o.tasks; i++)
        if (h->tasks[i].fd >= 0 && h->tasks[i].out.len && !flush(h->tasks[i].fd, &h->tasks[i].out))
            task_gone(h, i);
}

static void run(struct mpi_helper *h) {
    uint32_t room = 3 + h->o.nodes + STRANGERS_MAX + h->o.tasks + MPI_GROUPS_MAX;
    struct pollfd *p = arena_alloc(&h->arena, room * sizeof *p);
    while (!h->over) {
        uint32_t n = fill_poll(h, p);
        bool hurry = h->strangers.len || (h->has_hub && h->peers[0].fd < 0 && !helper_is_hub(h));
        if (poll(p, n, hurry ? CONNECT_RETRY_MS : -1) < 0 && errno != EINTR)
            return;
        int64_t now_ms = clock_mono_ms();
        for (uint32_t i = h->groups.len, at = n - i; i-- > 0;)
            if (p[at + i].revents)
                groups_ended(h, i);
        if (!h->groups.len && h->tasks[0].started && h->tasks[0].fd < 0)
            drop_output(h);
        if (p[2].revents)
            pmix_server_serve(h->server);
        for (uint32_t i = 0, at = 3 + h->o.nodes + STRANGERS_MAX; i < h->o.tasks; i++)
            if (p[at + i].revents & (POLLIN | POLLHUP | POLLERR) && h->tasks[i].fd == p[at + i].fd)
                read_task(h, i);
        for (uint32_t i = 0; i < h->o.nodes; i++)
            if (p[3 + i].revents && h->peers[i].fd == p[3 + i].fd)
                serve_peer(h, i, p[3 + i].revents, now_ms);
        serve_strangers(h, p + 3 + h->o.nodes, now_ms);
        if (p[1].revents && h->listener >= 0)
            accept_stranger(h, now_ms);
        if (p[0].revents)
            read_control(h, now_ms);
        if (!helper_is_hub(h))
            connect_hub(h, now_ms);
        flush_all(h);
    }
}

// --- the beginning ---

// "0*4,1*4": runs of node numbers by rank.
static bool read_places(struct mpi_helper *h, const char *text) {
    uint32_t *at = arena_alloc(&h->arena, (h->o.size + 1) * sizeof *at), n = 0;
    while (*text) {
        char *end;
        unsigned long node = strtoul(text, &end, 10), times = 1;
        if (end == text || node >= h->o.nodes)
            return false;
        if (*end == '*') {
            text = end + 1;
            times = strtoul(text, &end, 10);
        }
        if (times > h->o.size - n)
            return false;
        for (; times; times--)
            at[n++] = (uint32_t)node;
        if (*end && *end != ',')
            return false;
        text = end + (*end == ',');
    }
    h->o.places = at;
    return n == h->o.size;
}

static void own_ranks(struct mpi_helper *h) {
    uint32_t *ranks = arena_alloc(&h->arena, (h->o.size + 1) * sizeof *ranks);
    for (uint32_t i = 0; i < h->o.size; i++)
        if (h->o.places[i] == h->node)
            ranks[h->o.tasks++] = i;
    h->o.ranks = ranks;
}

static int read_arguments(struct mpi_helper *h, int argc, char **argv) {
    const char *places = NULL, *kind = "pmi";
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *v = argv[i + 1];
        if (streq(argv[i], "--kind"))
            kind = v;
        else if (streq(argv[i], "--size") && parse_u32(v, &h->o.size) == 0)
            continue;
        else if (streq(argv[i], "--nodes") && parse_u32(v, &h->o.nodes) == 0)
            continue;
        else if (streq(argv[i], "--node") && parse_u32(v, &h->node) == 0)
            continue;
        else if (streq(argv[i], "--places"))
            places = v;
        else if (streq(argv[i], "--name"))
            h->o.name = v;
        else if (streq(argv[i], "--node-list"))
            h->node_list = v;
        else if (streq(argv[i], "--tools"))
            h->tools = v;
        else if (streq(argv[i], "--container"))
            h->container = streq(v, "yes");
        else
            return -EINVAL;
    }
    h->pmi = streq(kind, "pmi") || streq(kind, "both");
    h->pmix = streq(kind, "pmix") || streq(kind, "both");
    if ((!h->pmi && !h->pmix) || !h->o.size || h->o.size > TASKS_MAX || !h->o.nodes ||
        h->o.nodes > h->o.size || h->node >= h->o.nodes || !h->o.name || !places || !read_places(h, places))
        return -EINVAL;
    own_ranks(h);
    h->o.spawned = getenv("ACEQUIA_MPI_SPAWN");
    if (h->o.spawned && !*h->o.spawned)
        h->o.spawned = NULL;
    h->folder = getenv("ACEQUIA_MPI_FOLDER");
    if (h->folder && access(h->folder, W_OK) < 0)
        h->folder = NULL;
    return h->o.tasks ? 0 : -EINVAL;
}

static int open_all(struct mpi_helper *h, bool wanted_pmix, struct error *e) {
    static const struct pmi_host host = {on_reply, exchange_fence, on_abort, groups_start};
    static const struct pmix_host pmix_host = {exchange_collect,     exchange_ask,           exchange_answer,
                                               on_pmix_joined, on_pmix_finished, on_abort};
    struct mpi_note n = {.type = MPI_LISTENS};
    h->tasks = arena_alloc(&h->arena, h->o.tasks * sizeof *h->tasks);
    h->peers = arena_alloc(&h->arena, h->o.nodes * sizeof *h->peers);
    h->fence = arena_alloc(&h->arena, h->o.nodes * sizeof *h->fence);
    h->fence_has = arena_alloc(&h->arena, h->o.nodes * sizeof *h->fence_has);
    for (uint32_t i = 0; i < h->o.tasks; i++)
        h->tasks[i].fd = -1;
    for (uint32_t i = 0; i < h->o.nodes; i++)
        h->peers[i].fd = -1;
    if (h->pmi)
        h->world = pmi_world_new(&h->o, &host, h);
    if (h->o.nodes > 1 && helper_is_hub(h)) {
        if (getrandom(h->key, sizeof h->key, 0) != sizeof h->key)
            return error_set(e, EIO, "the kernel gives no random bytes");
        int rc = h->listener = listen_anywhere(&n.port);
        if (rc < 0)
            return error_set(e, -rc, "no port can be opened for the step's other nodes: %s", strerror(-rc));
        memcpy(n.key, h->key, sizeof n.key);
    }
    if (h->o.nodes > 1)
        helper_say(h, &n);
    if (!h->pmix)
        return 0;
    struct pmix_options po = {.step = h->o, .node = h->node, .node_list = h->node_list, .folder = h->folder};
    int rc = pmix_server_open(&po, &pmix_host, h, &h->server, e);
    if (rc == 0)
        open_mpi_environment(h->folder, &h->open_mpi);
    return rc < 0 && !wanted_pmix ? 0 : rc;
}

static void raise_descriptors(void) {
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) == 0 && l.rlim_cur < l.rlim_max) {
        l.rlim_cur = l.rlim_max;
        setrlimit(RLIMIT_NOFILE, &l);
    }
}

int main(int argc, char **argv) {
    struct mpi_helper h = {.control = MPI_HELPER_FD, .listener = -1, .output = {-1, -1}};
    struct error e = {0};
    // Signals of the step are for its tasks; the shepherd ends the helper when they have ended.
    for (int sig = 1; sig < 32; sig++)
        if (sig != SIGCHLD && sig != SIGSEGV && sig != SIGABRT && sig != SIGBUS && sig != SIGFPE &&
            sig != SIGILL)
            signal(sig, SIG_IGN);
    prctl(PR_SET_DUMPABLE, 0);  // it holds the step's key
    raise_descriptors();
    fcntl(h.control, F_SETFD, FD_CLOEXEC);
    fcntl(MPI_ENVIRONMENT_FD, F_SETFD, FD_CLOEXEC);
    if (read_arguments(&h, argc, argv) < 0) {
        fprintf(stderr, "acequia-mpi is started by the shepherd of a step\n");
        return 2;
    }
    if (open_all(&h, !h.pmi, &e) < 0) {
        char line[MPI_TEXT_MAX];
        snprintf(line, sizeof line, "MPI cannot be started: %.200s", e.text);
        helper_abort_here(&h, 0, 0, line);
        return 1;
    }
    run(&h);
    pmix_server_close(h.server);
    return 0;
}
