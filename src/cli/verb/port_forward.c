// acequia port-forward
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "cli/client/client.h"
#include "cli/job/resolve.h"
#include "model/port.h"
#include "verbs.h"

enum { FORWARDS_MAX = 16, PIECE_BYTES = 64 << 10, BACKLOG = 128 };

static const struct option_spec specs[] = {
    {"stdio", 0, NULL, "Connect standard input and output instead of listening, for ssh's ProxyCommand.", 0,
     NULL, NULL},
};
static const struct option_table table = OPTION_TABLE("Options", specs);

struct forward {
    uint32_t local, port;
    int fd;
};

static int parse(struct cli *c, const char *text, struct forward *out) {
    const char *colon = strchr(text, ':'), *port = colon ? colon + 1 : text;
    char local[8] = "0";
    char shown[64];
    if (!colon || (colon > text && (size_t)(colon - text) < sizeof local))
        snprintf(local, sizeof local, "%.*s", colon ? (int)(colon - text) : 7, text);
    if (parse_u32(local, &out->local) < 0 || out->local > UINT16_MAX || parse_u32(port, &out->port) < 0 ||
        !out->port || out->port > UINT16_MAX)
        return cli_usage(c,
                         "\"%s\" is not understood; write PORT, LOCAL:PORT, or :PORT for any free local port",
                         str_printable(text, shown, sizeof shown));
    return 0;
}

int verb_write_all(int fd, const char *p, size_t n) {
    while (n) {
        ssize_t put = write(fd, p, n);
        if (put < 0 && errno != EINTR)
            return -errno;
        if (put > 0) {
            p += put;
            n -= (size_t)put;
        }
    }
    return 0;
}

// What the controller sent. 1: the connection has ended; negative: it failed. *whole: the job has sent all it wanted.
static int receive(struct cli *c, struct http_client *http, int out, bool *whole) {
    struct ws_event event;
    do {
        int r = http_client_ws_recv(http, &event, 0);
        if (r <= 0)
            return r;
        if (event.type == WS_CLOSE)
            return *whole ? 1 : error_set(&c->error, ECONNRESET, "the connection was cut");
        if (event.type == WS_BINARY) {
            if ((r = verb_write_all(out, event.data, event.len)) < 0)
                return r;
            continue;
        }
        struct json *j = NULL;
        if ((r = json_parse(event.data, event.len, &c->arena, &j, &c->error)) < 0)
            return r;
        const struct json *failure = json_get(j, "error");
        const char *message = failure ? json_str(failure, "message") : NULL;
        if (failure)
            return error_set(&c->error, EIO, "%s", message ? message : "the controller reports a failure");
        if (json_get(j, "eof")) {
            *whole = true;
            shutdown(out, SHUT_WR);
        }
    } while (http_client_ws_buffered(http));
    return 0;
}

// Copies until one side has gone; the end of input is passed on.
static int copy(struct cli *c, struct http_client *http, int in, int out) {
    static char piece[PIECE_BYTES];
    bool open = true, whole = false;
    for (;;) {
        struct pollfd p[2] = {{.fd = http_client_fd(http), .events = POLLIN},
                              {.fd = open ? in : -1, .events = POLLIN}};
        if (!http_client_ws_buffered(http) && poll(p, 2, -1) < 0 && errno != EINTR)
            return -errno;
        int r = p[0].revents || http_client_ws_buffered(http) ? receive(c, http, out, &whole) : 0;
        if (r)
            return r < 0 ? r : 0;
        if (!p[1].revents)
            continue;
        ssize_t n = read(in, piece, sizeof piece);
        if (n < 0 && errno == EINTR)
            continue;
        open = n > 0;
        static const char eof[] = "{\"eof\":true}";
        r = n > 0 ? http_client_ws_send(http, WS_BINARY, piece, (size_t)n)
                  : http_client_ws_send(http, WS_TEXT, eof, strlen(eof));
        if (r < 0)
            open = false;  // the other side has ended: why is in what it sent before
    }
}

// One connection, from its own process: a slow one holds up no other.
static int carry(struct cli *c, uint32_t port, int in, int out) {
    cleanup_query struct query q = {0};
    cleanup_buf struct buf path = {0};
    struct client *k;
    struct http_client *http;
    buf_adds(&path, "/v1/jobs/");
    http_percent_encode(&path, c->arguments[0]);
    buf_adds(&path, "/connect");
    client_query_begin(&q, buf_str(&path));
    client_query_addf(&q, "port", "%u", port);
    int r = client_open(c, &k);
    if (r < 0)
        return cli_fail(c);
    r = client_socket(k, buf_str(&q.text), &http);
    if (r == 0)
        r = copy(c, http, in, out);
    if (r < 0 && !c->error.text[0])
        error_set(&c->error, -r, "the connection to the controller failed: %s", strerror(-r));
    client_free(k);
    return r < 0 ? cli_fail(c) : CLI_OK;
}

// Refuses at once what no connection could reach; which number a port 0 has only the controller knows.
static int check_job(struct cli *c, const struct forward *at, int n) {
    cleanup_buf struct buf path = {0};
    struct reply reply;
    struct job_port given;
    buf_adds(&path, "/v1/jobs/");
    http_percent_encode(&path, c->arguments[0]);
    int status = client_get(c, buf_str(&path), &reply);
    if (status != CLI_OK)
        return status;
    const char *state = json_str(reply.json, "state");
    const struct json *spec = json_get(reply.json, "spec"), *ports = spec ? json_get(spec, "ports") : NULL;
    if (json_i64(reply.json, "end_ms", 0))
        return cli_failf(c, "job %s has already ended (%s)", c->arguments[0], state);
    struct reply me;
    const char *owner = spec ? json_str(spec, "user") : NULL;
    if ((status = client_get(c, "/v1/me", &me)) != CLI_OK)
        return status;
    if (owner && !streq(owner, json_str(me.json, "user")))
        return cli_failf(c, "job %s is another user's: only its owner may connect to its ports",
                         c->arguments[0]);
    for (int i = 0; i < n; i++) {
        bool found = false;
        for (uint32_t k = 0; ports && ports->type == JSON_ARRAY && k < ports->len; k++)
            found |= ports->items[k].type == JSON_STRING &&
                     port_parse(ports->items[k].s, &given, NULL) == 0 &&
                     (!given.number || given.number == at[i].port);
        if (!found)
            return cli_failf(c, "job %s has no port %u; ports are given at its submit, with --port %u",
                             c->arguments[0], at[i].port, at[i].port);
    }
    if (state && !streq(state, "RUNNING"))
        cli_note("job %s is %s; its ports can be reached when it runs", c->arguments[0], state);
    return CLI_OK;
}

static int listen_on(struct cli *c, struct forward *f) {
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)f->local),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    int on = 1;
    f->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (f->fd < 0)
        return cli_failf(c, "cannot make a socket: %s", strerror(errno));
    setsockopt(f->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(f->fd, (struct sockaddr *)&a, sizeof a) < 0 || listen(f->fd, BACKLOG) < 0)
        return cli_failf(c, "cannot listen on 127.0.0.1:%u: %s; choose another local port with LOCAL:%u",
                         f->local, strerror(errno), f->port);
    getsockname(f->fd, (struct sockaddr *)&a, &len);
    f->local = ntohs(a.sin_port);
    printf("127.0.0.1:%u is port %u of job %s\n", f->local, f->port, c->arguments[0]);
    fflush(stdout);
    return 0;
}

// Whoever is connected must not take what came before a cut for all there was: a reset tells.
static int carry_and_tell(struct cli *c, uint32_t port, int conn) {
    int status = carry(c, port, conn, conn);
    if (status != CLI_OK)
        setsockopt(conn, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger));
    return status;
}

static void accept_one(struct cli *c, const struct forward *f) {
    cleanup_close int conn = accept4(f->fd, NULL, NULL, SOCK_CLOEXEC);
    if (conn < 0)
        return;
    pid_t parent = getpid(), pid = fork();
    if (pid < 0)
        cli_note("a connection was refused: %s", strerror(errno));
    if (pid != 0)
        return;
    prctl(PR_SET_PDEATHSIG, SIGTERM);  // the connections end with the command
    if (getppid() != parent)
        _exit(0);
    _exit(carry_and_tell(c, f->port, conn));
}

static int run_port_forward(struct cli *c) {
    struct forward at[FORWARDS_MAX];
    struct pollfd p[FORWARDS_MAX];
    int n = c->count - 1;
    if (n > FORWARDS_MAX)
        return cli_usage(c, "at most %d ports at once", FORWARDS_MAX);
    for (int i = 0; i < n; i++) {
        int r = parse(c, c->arguments[i + 1], &at[i]);
        if (r)
            return r;
    }
    signal(SIGPIPE, SIG_IGN);
    if (option_given(&c->options, "stdio"))
        return n == 1 ? carry(c, at[0].port, STDIN_FILENO, STDOUT_FILENO)
                      : cli_usage(c, "--stdio takes one port");
    int status = check_job(c, at, n);
    if (status != CLI_OK)
        return status;
    for (int i = 0; i < n; i++) {
        int r = listen_on(c, &at[i]);
        if (r)
            return r;
        p[i] = (struct pollfd){.fd = at[i].fd, .events = POLLIN};
    }
    signal(SIGCHLD, SIG_IGN);  // nobody waits for them
    for (;;) {
        if (poll(p, (nfds_t)n, -1) < 0 && errno != EINTR)
            return cli_failf(c, "cannot wait for connections: %s", strerror(errno));
        for (int i = 0; i < n; i++)
            if (p[i].revents)
                accept_one(c, &at[i]);
    }
}

const struct verb verb_port_forward = {
    .name = "port-forward",
    .group = "Programs",
    .arguments = "[options] JOB [LOCAL:]PORT...",
    .summary = "reach ports of a running job from this machine",
    .text = "Listens on 127.0.0.1, on the same port or on LOCAL (:PORT takes any free one), and connects "
            "whatever "
            "comes with the port of the job, until it is interrupted. The job must have been submitted with "
            "--port. "
            "Everybody with an account on this machine can connect to the local port; the program's own "
            "password or "
            "token still holds.",
    .examples = "acequia port-forward 12 8888\nacequia port-forward 12 9000:8888 :6006\n"
                "ssh -o ProxyCommand='acequia port-forward --stdio 12 22' me@job",
    .options = {&table, &job_pick_options, &cli_common_options},
    .run = run_port_forward,
    .complete = "@job",
    .least = 2,
    .most = -1,
    .jobs = VERB_JOB_FIRST,
    .live_jobs = true,
};
